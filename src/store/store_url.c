/*
 * URLs of servers. A URL is split before %XX is decoded, so that each part may contain the
 * separators; escapes that are not valid were refused with the URL. Fails on unknown options and
 * values, and on files that cannot be read. No error contains a password.
 */
#include "store/store_url.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/error.h"
#include "base/units.h"

#define SECRET_MAX 4096

static const char cut_password[] = "a ? in a user's name or password is written %3F";

static void *reading_field(const struct idem_reading *r, size_t offset) {
    return (char *)r->config + offset;
}

int idem_reading_refuse(struct idem_reading *r, const char *what) {
    return idem_error_set(r->err, IDEM_E_INVALID, "%s: %s", r->url->scheme, what);
}

int idem_reading_refuse_value(struct idem_reading *r, const char *name, const char *value,
                              const char *allowed) {
    return idem_error_set(r->err, IDEM_E_INVALID, "%s: %s=%.40s; allowed: %s", r->url->scheme, name,
                          strchr(value, '@') != NULL ? "?" : value, allowed);
}

static void secret_free(char *secret) {
    if (secret != NULL)
        explicit_bzero(secret, strlen(secret));
    free(secret);
}

/* Values. */

int idem_read_text(struct idem_reading *r, const char *name, const char *value, void *field) {
    char **slot = field, *copy = strdup(value);

    (void)name;
    if (copy == NULL)
        return idem_error_set(r->err, IDEM_E_NOMEM, "no memory for a store's URL");
    secret_free(*slot);
    *slot = copy;
    return 0;
}

int idem_read_once(struct idem_reading *r, const char *name, const char *value, void *field) {
    if (*(char **)field != NULL)
        return idem_error_set(r->err, IDEM_E_INVALID,
                              "%s: %s= is given twice: in the URL's own place, and as an option",
                              r->url->scheme, name);
    if (*value == '\0')
        return idem_error_set(r->err, IDEM_E_INVALID, "%s: %s= is empty", r->url->scheme, name);
    return idem_read_text(r, name, value, field);
}

int idem_read_secret(struct idem_reading *r, const char *name, const char *value, void *field) {
    char buf[SECRET_MAX + 1];
    int fd = open(value, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, buf, sizeof(buf));
    int why = errno, rc;

    if (fd >= 0)
        close(fd);
    if (n < 0)
        return idem_error_set(r->err, IDEM_E_INVALID, "%s: the file with the password, %.200s: %s",
                              r->url->scheme, strchr(value, '@') != NULL ? "?" : value,
                              strerror(why));
    while (n > 0 && (buf[n - 1] == '\n' || buf[n - 1] == '\r'))
        n--;
    if (n == 0 || n > SECRET_MAX || memchr(buf, '\0', (size_t)n) != NULL ||
        memchr(buf, '\n', (size_t)n) != NULL) {
        rc = idem_reading_refuse(r, "the file with the password must hold it on one line");
    } else {
        buf[n] = '\0';
        rc = idem_read_text(r, name, buf, field);
    }
    explicit_bzero(buf, sizeof(buf));
    return rc;
}

int idem_read_flag(struct idem_reading *r, const char *name, const char *value, void *field) {
    if (strcmp(value, "yes") != 0 && strcmp(value, "no") != 0)
        return idem_reading_refuse_value(r, name, value, "yes, no");
    *(bool *)field = value[0] == 'y';
    return 0;
}

int idem_read_duration(struct idem_reading *r, const char *name, const char *value, void *field) {
    struct idem_error why;
    int64_t ms;

    if (idem_duration_parse(value, strlen(value), &ms, &why) < 0 || ms < 1 || ms > 3600000)
        return idem_reading_refuse_value(r, name, value, "1ms to 1h");
    *(int64_t *)field = ms;
    return 0;
}

int idem_read_number(const char *text, long max, long *ret) {
    char *end;

    if (text[0] < '0' || text[0] > '9')
        return -1;
    errno = 0;
    *ret = strtol(text, &end, 10);
    return errno != 0 || *end != '\0' || *ret > max ? -1 : 0;
}

/* Options. */

/* True if a ? in a password may have cut it: then no error may show the options. */
static bool reading_is_cut(const struct idem_reading *r) {
    for (size_t i = 0; i < r->url->query_n; i++)
        if (strchr(r->url->query[i].name, '@') != NULL ||
            strchr(r->url->query[i].value, '@') != NULL)
            return true;
    return false;
}

static int reading_refuse_option(struct idem_reading *r, const struct idem_url_option *options,
                                 size_t n, const char *name) {
    char known[512] = "";
    size_t len = 0;

    for (size_t i = 0; i < n && len < sizeof(known); i++)
        len += (size_t)snprintf(known + len, sizeof(known) - len, "%s%s", i == 0 ? "" : ", ",
                                options[i].name);
    if (reading_is_cut(r))
        return idem_reading_refuse(r, cut_password);
    return idem_error_set(r->err, IDEM_E_INVALID, "%s: unknown option %.40s; allowed: %s",
                          r->url->scheme, name, known);
}

static const struct idem_url_option *url_option_find(const struct idem_url_option *options,
                                                     size_t n, const char *name) {
    for (size_t i = 0; i < n; i++)
        if (strcmp(options[i].name, name) == 0)
            return &options[i];
    return NULL;
}

int idem_read_options(struct idem_reading *r, const struct idem_url_option *options, size_t n,
                      bool (*may)(const struct idem_reading *r,
                                  const struct idem_url_option *option)) {
    int rc = 0;

    for (size_t i = 0; i < r->url->query_n && rc == 0; i++) {
        const char *name = r->url->query[i].name, *value = r->url->query[i].value;
        const struct idem_url_option *option = url_option_find(options, n, name);

        if (option == NULL)
            rc = reading_refuse_option(r, options, n, name);
        else if (may != NULL && option->only != NULL && !may(r, option))
            rc = idem_error_set(r->err, IDEM_E_INVALID, "%s: %s is of use with %s", r->url->scheme,
                                name, option->only);
        else
            rc = option->read(r, name, value, reading_field(r, option->offset));
    }
    return rc;
}

/* Location. */

/* HOST, HOST:PORT, [IPV6] or [IPV6]:PORT. */
static int reading_read_host(struct idem_reading *r, char *text, uint16_t port,
                             struct idem_host_name *ret) {
    const char *from = text, *end, *port_text;
    long number = port;

    (void)idem_url_decode(text); /* invalid escapes were refused with the URL */
    if (text[0] == '[') {
        from = text + 1;
        end = strchr(from, ']');
        if (end == NULL || (end[1] != '\0' && end[1] != ':'))
            return idem_reading_refuse(r, "an IPv6 address is written [ADDRESS]:PORT");
        port_text = end[1] == ':' ? end + 2 : NULL;
    } else {
        end = from + strcspn(from, ":");
        port_text = *end == ':' ? end + 1 : NULL;
    }
    if (end == from || (size_t)(end - from) >= sizeof(ret->name))
        return idem_error_set(
            r->err, IDEM_E_INVALID,
            "%s: the host is missing, or longer than 255 bytes: %s://HOST:PORT/DB", r->url->scheme,
            r->url->scheme);
    if (port_text != NULL && (idem_read_number(port_text, 65535, &number) < 0 || number == 0))
        return idem_reading_refuse(r, "the port must be a number from 1 to 65535");
    memcpy(ret->name, from, (size_t)(end - from));
    ret->name[end - from] = '\0';
    ret->port = (uint16_t)number;
    return 0;
}

/* Hosts, parted by commas; they are split before they are decoded. */
static int reading_read_hosts(struct idem_reading *r, const struct idem_url_shape *shape,
                              char *list) {
    struct idem_host_name *hosts = reading_field(r, shape->at_hosts);
    size_t *n = reading_field(r, shape->at_hosts_n);
    char *host;
    int rc = 0;

    while (rc == 0 && (host = strsep(&list, ",")) != NULL) {
        if (*n == shape->hosts_max)
            return idem_error_set(r->err, IDEM_E_INVALID, "%s: more than %zu host%s",
                                  r->url->scheme, shape->hosts_max,
                                  shape->hosts_max == 1 ? "" : "s");
        rc = reading_read_host(r, host, shape->port, &hosts[*n]);
        *n += rc == 0;
    }
    return rc;
}

static int reading_read_socket(struct idem_reading *r, const struct idem_url_shape *shape,
                               char *path) {
    struct idem_host_name *host = reading_field(r, shape->at_hosts);
    int rc = shape->socket == NULL ? idem_reading_refuse(r, shape->form) : shape->socket(r);

    (void)idem_url_decode(path);
    if (rc == 0 && strlen(path) >= 108)
        return idem_reading_refuse(r, "the path of a socket has at most 107 bytes");
    snprintf(host->name, sizeof(host->name), "%s", path);
    host->port = 0;
    *(size_t *)reading_field(r, shape->at_hosts_n) = 1;
    return rc;
}

/* USER:PASSWORD, split before it is decoded: both may contain the separators. */
static int reading_read_user(struct idem_reading *r, const struct idem_url_shape *shape,
                             char *text) {
    char *password = strchr(text, ':');
    int rc = 0;

    if (password != NULL) {
        *password++ = '\0';
        (void)idem_url_decode(password);
        rc = idem_read_text(r, NULL, password, reading_field(r, shape->at_password));
    }
    (void)idem_url_decode(text);
    return rc != 0 || *text == '\0'
               ? rc
               : idem_read_text(r, NULL, text, reading_field(r, shape->at_user));
}

static int reading_read_location(struct idem_reading *r, const struct idem_url_shape *shape,
                                 char *rest) {
    char *at, *path;
    int rc = 0;

    if (rest[0] == '/' && rest[1] != '/')
        return reading_read_socket(r, shape, rest);
    if (!idem_text_begins(rest, "//"))
        return idem_reading_refuse(r, shape->form);
    rest += 2;
    at = strrchr(rest, '@'); /* the last @, even behind a slash: a password may contain one */
    if (at != NULL) {
        *at = '\0';
        rc = reading_read_user(r, shape, rest);
        rest = at + 1;
    }
    path = strchr(rest, '/');
    if (path != NULL)
        *path++ = '\0';
    if (rc == 0)
        rc = reading_read_hosts(r, shape, rest);
    return rc == 0 ? shape->path(r, path) : rc;
}

/* Missing parts, and parts that do not fit together. */
static int reading_complete(struct idem_reading *r, const struct idem_url_shape *shape) {
    char **password = reading_field(r, shape->at_password), **name;
    const char *variable = getenv(shape->password);
    int rc = 0;

    if ((*(char **)reading_field(r, shape->at_tls_cert) == NULL) !=
        (*(char **)reading_field(r, shape->at_tls_key) == NULL))
        return idem_reading_refuse(r, "tls_cert and tls_key go together");
    if (*password == NULL && variable != NULL && variable[0] != '\0')
        rc = idem_read_text(r, NULL, variable, password);
    if (rc == 0 && shape->user_needs_password && *password == NULL &&
        *(char **)reading_field(r, shape->at_user) != NULL)
        return idem_error_set(r->err, IDEM_E_INVALID,
                              "%s: a user needs a password: USER:PASSWORD@, password_file= or %s",
                              r->url->scheme, shape->password);
    name = reading_field(r, shape->at_name);
    if (rc == 0 && *name == NULL)
        rc = idem_read_text(r, NULL, "idem", name);
    return rc == 0 && shape->check != NULL ? shape->check(r) : rc;
}

int idem_read_url(const struct idem_url *url, const struct idem_url_shape *shape, void *config,
                  struct idem_error *err) {
    struct idem_reading r = {.url = url, .config = config, .err = err};
    char *rest = strdup(url->raw);
    size_t rest_len = strlen(url->raw);
    int rc = rest == NULL ? idem_error_set(err, IDEM_E_NOMEM, "no memory for a URL")
                          : reading_read_location(&r, shape, rest);

    if (rc == IDEM_E_INVALID && strchr(url->raw, '@') == NULL && reading_is_cut(&r))
        rc = idem_reading_refuse(&r, cut_password);
    if (rc == 0)
        rc = idem_read_options(&r, shape->options, shape->options_n, shape->may);
    if (rc == 0)
        rc = reading_complete(&r, shape);
    if (rest != NULL)
        explicit_bzero(rest, rest_len); /* its parts are in the configuration now */
    free(rest);
    if (rc != 0)
        idem_texts_free(shape, config);
    return rc;
}

/* The texts of a configuration. */

void idem_texts_free(const struct idem_url_shape *shape, void *config) {
    for (size_t i = 0; i < shape->texts_n; i++) {
        char **text = (char **)((char *)config + shape->texts[i]);

        secret_free(*text);
        *text = NULL;
    }
}

bool idem_texts_copy(const struct idem_url_shape *shape, void *config) {
    bool whole = true;

    for (size_t i = 0; i < shape->texts_n; i++) {
        char **text = (char **)((char *)config + shape->texts[i]);

        if (*text != NULL && (*text = strdup(*text)) == NULL)
            whole = false;
    }
    if (!whole)
        idem_texts_free(shape, config);
    return whole;
}
