/*
 * Addresses of `idem gateway`: parses --listen and --upstream strictly enough that they can be
 * copied into a configuration, and checks that an address is free. Fails on text that is no
 * address, and on an address that is taken, not of this machine or not allowed.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/error.h"
#include "base/units.h"
#include "base/url.h"
#include "cli/gateway/gateway.h"

#define HOST_BYTES "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_"
#define V6_BYTES "0123456789abcdefABCDEF:."

/* A part of a text; not NUL-terminated. */
struct part {
    const char *at;
    size_t len;
};

static bool part_copy(struct part part, char *buf, size_t size) {
    if (part.len >= size)
        return false;
    memcpy(buf, part.at, part.len);
    buf[part.len] = '\0';
    return true;
}

static bool part_is_port(struct part port) {
    struct idem_error err;
    int64_t number = 0;

    return idem_count_parse(port.at, port.len, &number, &err) == 0 && number >= 1 &&
           number <= 65535;
}

/* Splits HOST[:PORT]; the host keeps its brackets. *ret_port is untouched if there is no port. */
static bool part_split_host(struct part text, struct part *ret_host, struct part *ret_port) {
    const char *colon;
    size_t len;

    if (text.len != 0 && text.at[0] == '[') {
        len = strspn(text.at + 1, V6_BYTES) + 2;
        if (len > text.len || len < 4 || text.at[len - 1] != ']')
            return false;
    } else {
        colon = memchr(text.at, ':', text.len);
        len = colon == NULL ? text.len : (size_t)(colon - text.at);
        if (len == 0 || strspn(text.at, HOST_BYTES) < len)
            return false;
    }
    *ret_host = (struct part){text.at, len};
    if (len == text.len)
        return true;
    *ret_port = (struct part){text.at + len + 1, text.len - len - 1};
    return text.at[len] == ':' && part_is_port(*ret_port);
}

/* --listen. */

static int gateway_address_listen_usage(const char *text) {
    char quoted[IDEM_QUOTE_TEXT];

    return cli_fail(
        CLI_USAGE,
        "gateway: --listen %s is no address; allowed: PORT, HOST:PORT, [V6]:PORT, *:PORT or "
        "unix:PATH, with ports from 1 to 65535",
        idem_error_quote(text, strlen(text), quoted, sizeof(quoted)));
}

/* Makes the path absolute: nginx may be started in another directory, and unlinks the file by its
   name. */
static int gateway_address_listen_unix(const char *path, struct gateway_listen *ret) {
    char directory[PATH_MAX] = "";
    int n;

    if (path[0] == '\0')
        return gateway_address_listen_usage("unix:");
    if (path[0] != '/' && getcwd(directory, sizeof(directory)) == NULL)
        return cli_fail(CLI_SYSTEM, "gateway: --listen: %s", strerror(errno));
    n = snprintf(ret->text, sizeof(ret->text), "unix:%s%s%s", directory, path[0] == '/' ? "" : "/",
                 path);
    if (n < 0 || (size_t)n - strlen("unix:") >= sizeof(((struct sockaddr_un *)0)->sun_path))
        return cli_fail(CLI_USAGE,
                        "gateway: --listen: the path of a socket may have %zu bytes at most",
                        sizeof(((struct sockaddr_un *)0)->sun_path) - 1);
    return CLI_OK;
}

int gateway_listen_parse(const char *text, struct gateway_listen *ret) {
    struct part whole = {text, strlen(text)}, host = {"127.0.0.1", 9}, port = {NULL, 0};

    *ret = (struct gateway_listen){0};
    if (idem_text_begins(text, "unix:"))
        return gateway_address_listen_unix(text + 5, ret);
    if (part_is_port(whole)) {
        port = whole;
    } else if (idem_text_begins(text, "*:") &&
               part_is_port((struct part){text + 2, whole.len - 2})) {
        host = (struct part){"*", 1};
        port = (struct part){text + 2, whole.len - 2};
    } else if (!part_split_host(whole, &host, &port) || port.at == NULL) {
        return gateway_address_listen_usage(text);
    }
    snprintf(ret->text, sizeof(ret->text), "%.*s:%.*s", (int)host.len, host.at, (int)port.len,
             port.at);
    if (host.at[0] == '[')
        host = (struct part){host.at + 1, host.len - 2};
    if (!part_copy(host, ret->host, sizeof(ret->host)) ||
        !part_copy(port, ret->port, sizeof(ret->port)))
        return gateway_address_listen_usage(text);
    return CLI_OK;
}

/* --upstream. */

static int gateway_address_upstream_usage(const char *text, const char *why) {
    char quoted[IDEM_QUOTE_TEXT];

    return cli_fail(CLI_USAGE,
                    "gateway: --upstream %s: %s; allowed: http://HOST[:PORT][/PATH], or with https",
                    idem_error_quote(text, strlen(text), quoted, sizeof(quoted)), why);
}

/* The path is written unquoted into proxy_pass, where a $ would begin a variable. */
static bool gateway_address_path_is_plain(const char *path) {
    for (; *path != '\0'; path++)
        if (*path <= ' ' || *path > '~' || strchr("\"'\\;{}$?#`<>|^", *path) != NULL)
            return false;
    return true;
}

static int gateway_address_upstream_parse(const char *text, struct gateway_upstream *ret) {
    struct part host = {NULL, 0}, port = {"80", 2};
    const char *at, *path;
    size_t len;

    *ret = (struct gateway_upstream){0};
    at = idem_url_http(text, &ret->tls);
    if (at == NULL)
        return gateway_address_upstream_usage(text, "it begins with neither http:// nor https://");
    if (ret->tls)
        port = (struct part){"443", 3};
    path = at + strcspn(at, "/");
    if (!part_split_host((struct part){at, (size_t)(path - at)}, &host, &port) ||
        !part_copy(host, ret->host, sizeof(ret->host)) ||
        !part_copy(port, ret->port, sizeof(ret->port)))
        return gateway_address_upstream_usage(text, "its host or port is not understood");
    if (!gateway_address_path_is_plain(path))
        return gateway_address_upstream_usage(text, "its path is not understood");
    for (len = strlen(path); len > 0 && path[len - 1] == '/'; len--)
        ;
    if (len + 2 > sizeof(ret->path))
        return gateway_address_upstream_usage(text, "its path is too long");
    if (len > 0)
        snprintf(ret->path, sizeof(ret->path), "%.*s/", (int)len, path);
    return CLI_OK;
}

int gateway_upstreams_parse(const struct cli_list *list, struct gateway_upstream *ret) {
    int status;

    for (size_t i = 0; i < list->n; i++) {
        status = gateway_address_upstream_parse(list->at[i], &ret[i]);
        if (status != CLI_OK)
            return status;
        /* One proxy_pass serves all of them, and under TLS one name is checked. */
        if (ret[i].tls != ret[0].tls || strcmp(ret[i].path, ret[0].path) != 0 ||
            (ret[i].tls && strcmp(ret[i].host, ret[0].host) != 0))
            return cli_fail(
                CLI_USAGE,
                "gateway: several --upstream must have the same scheme and path, and under "
                "https the same host");
    }
    return CLI_OK;
}

/* Checking. */

static int gateway_listen_refuse(const struct gateway_listen *at, int why) {
    if (why == EADDRINUSE)
        return cli_fail(
            CLI_SYSTEM,
            "gateway: --listen %s: the address is in use (ss -ltnp shows by which program); "
            "end that program, or choose another address",
            at->text);
    return cli_fail(CLI_SYSTEM, "gateway: --listen %s: %s%s", at->text, strerror(why),
                    why == EACCES ? "; ports below 1024 are root's" : "");
}

static int gateway_listen_check_unix(const struct gateway_listen *at) {
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    const char *path = at->text + strlen("unix:");
    struct stat file;
    int fd, why;

    if (lstat(path, &file) < 0)
        return CLI_OK; /* nginx creates it, or reports why not */
    if (!S_ISSOCK(file.st_mode))
        return cli_fail(CLI_SYSTEM, "gateway: --listen %s: there is a file, and it is no socket",
                        at->text);
    memcpy(name.sun_path, path,
           strlen(path)); /* gateway_listen_parse() has checked that the path fits */
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return gateway_listen_refuse(at, errno);
    why = connect(fd, (struct sockaddr *)&name, sizeof(name)) < 0 ? errno : 0;
    close(fd);
    if (why != ECONNREFUSED)
        return gateway_listen_refuse(at, EADDRINUSE);
    /* A file left by an nginx that was killed: bind() would refuse it for ever. */
    return unlink(path) == 0 ? CLI_OK : gateway_listen_refuse(at, errno);
}

/* Binds once, to report at once what nginx would report after seconds of retries. */
static int addrinfo_try_bind(const struct addrinfo *at) {
    int fd = socket(at->ai_family, at->ai_socktype | SOCK_CLOEXEC, at->ai_protocol), on = 1, why;

    if (fd < 0)
        return errno == EAFNOSUPPORT ? 0 : errno;
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (at->ai_family == AF_INET6)
        (void)setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof(on));
    why = bind(fd, at->ai_addr, at->ai_addrlen) < 0 ? errno : 0;
    close(fd);
    return why;
}

int gateway_listen_check(const struct gateway_listen *at) {
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
    bool any = strcmp(at->host, "*") == 0;
    struct addrinfo *list;
    int rc, why = 0;

    if (at->port[0] == '\0')
        return gateway_listen_check_unix(at);
    rc = getaddrinfo(any ? "0.0.0.0" : at->host, at->port, &hints, &list);
    if (rc != 0)
        return cli_fail(CLI_USAGE, "gateway: --listen %s: %s", at->text, gai_strerror(rc));
    for (struct addrinfo *one = list; one != NULL && why == 0; one = one->ai_next)
        why = addrinfo_try_bind(one);
    freeaddrinfo(list);
    return why == 0 ? CLI_OK : gateway_listen_refuse(at, why);
}
