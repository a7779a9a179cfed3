/*
 * The URL of a Redis store, and what follows from it:
 *
 *     redis://[USER:PASSWORD@]HOST[:PORT][/DB][?OPTIONS]      rediss:// with TLS
 *     redis:/PATH/TO/SOCKET[?OPTIONS]      user= and db= among them
 *     redis+sentinel://[...@]HOST[:PORT],HOST[:PORT]/MASTER[/DB]    rediss+sentinel://
 *     redis+cluster://[...@]HOST[:PORT],HOST[:PORT]                rediss+cluster://
 *
 * It is parted before %XX is decoded, so that a user's name or a password may
 * hold whatever parts it. Fails on what it does not know, and on files that
 * cannot be read. No error holds a password.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/error.h"
#include "core/units.h"
#include "store/redis/redis.h"

#define SECRET_MAX 4096

struct reading {
    const struct idem_url *url;
    struct redis_config *config;
    struct idem_error *err;
    bool db_said;
};

static int refuse(struct reading *r, const char *what) {
    return idem_error_set(r->err, IDEM_E_INVALID, "%s: %s", r->url->scheme, what);
}

static int text_set(struct reading *r, char **slot, const char *text) {
    char *copy = strdup(text);

    if (copy == NULL)
        return idem_error_set(r->err, IDEM_E_NOMEM, "no memory for a store's URL");
    free(*slot);
    *slot = copy;
    return 0;
}

/* Options. */

static int secret_read(struct reading *r, char **slot, const char *path) {
    char buf[SECRET_MAX + 1];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, buf, sizeof(buf));
    int why = errno, rc;

    if (fd >= 0)
        close(fd);
    if (n < 0)
        return idem_error_set(r->err, IDEM_E_INVALID, "%s: the file with the password, %.200s: %s",
                              r->url->scheme, strchr(path, '@') != NULL ? "?" : path,
                              strerror(why));
    while (n > 0 && (buf[n - 1] == '\n' || buf[n - 1] == '\r'))
        n--;
    if (n == 0 || n > SECRET_MAX || memchr(buf, '\0', (size_t)n) != NULL ||
        memchr(buf, '\n', (size_t)n) != NULL) {
        rc = refuse(r, "the file with the password must hold it on one line");
    } else {
        buf[n] = '\0';
        rc = text_set(r, slot, buf);
    }
    explicit_bzero(buf, sizeof(buf));
    return rc;
}

static int value_refuse(struct reading *r, const char *name, const char *value,
                        const char *allowed) {
    return idem_error_set(r->err, IDEM_E_INVALID, "%s: %s=%.40s; allowed: %s", r->url->scheme, name,
                          strchr(value, '@') != NULL ? "?" : value, allowed);
}

static int yes_no(struct reading *r, const char *name, const char *value, bool *ret) {
    if (strcmp(value, "yes") != 0 && strcmp(value, "no") != 0)
        return value_refuse(r, name, value, "yes, no");
    *ret = value[0] == 'y';
    return 0;
}

static int duration(struct reading *r, const char *name, const char *value, int64_t *ret) {
    struct idem_error why;
    int64_t ms;

    if (idem_duration_parse(value, strlen(value), &ms, &why) < 0 || ms < 1 || ms > 3600000)
        return value_refuse(r, name, value, "1ms to 1h");
    *ret = ms;
    return 0;
}

static int number_read(const char *text, long max, long *ret) {
    char *end;

    if (text[0] < '0' || text[0] > '9')
        return -1;
    errno = 0;
    *ret = strtol(text, &end, 10);
    return errno != 0 || *end != '\0' || *ret > max ? -1 : 0;
}

static int db_read(struct reading *r, const char *text) {
    long db;

    if (r->config->kind == REDIS_CLUSTER)
        return refuse(r, "a cluster has one database only");
    if (r->db_said)
        return refuse(r, "the database is given twice, by the path and by db=");
    if (number_read(text, 1 << 20, &db) < 0)
        return refuse(r, "the database is a number: redis://HOST/0");
    r->config->db = (int)db;
    r->db_said = true;
    return 0;
}

static int user_set(struct reading *r, const char *name) {
    if (r->config->user != NULL)
        return refuse(r, "the user is given twice, before the @ and by user=");
    if (*name == '\0')
        return refuse(r, "user= is empty");
    return text_set(r, &r->config->user, name);
}

/* The server would refuse it, and the connection have none. */
static int name_set(struct reading *r, char **slot, const char *name) {
    for (const char *at = name; *at != '\0'; at++)
        if (*at < '!' || *at > '~')
            return refuse(r, "name= may hold visible ASCII only, and no space");
    return text_set(r, slot, name);
}

enum option_type { TEXT, NAME, FLAG, DURATION, SECRET, USER, DB };

static const struct option {
    const char *name;
    size_t offset;
    enum option_type type;
    bool tls;      /* only with TLS */
    bool sentinel; /* only with sentinels */
} options[] = {
#define AT(field) offsetof(struct redis_config, field)
    {"user", 0, USER, false, false},
    {"db", 0, DB, false, false},
    {"password_file", AT(password), SECRET, false, false},
    {"sentinel_user", AT(sentinel_user), TEXT, false, true},
    {"sentinel_password_file", AT(sentinel_password), SECRET, false, true},
    {"name", AT(client_name), NAME, false, false},
    {"connect_timeout", AT(connect_timeout_ms), DURATION, false, false},
    {"timeout", AT(timeout_ms), DURATION, false, false},
    {"unsafe", AT(unsafe), FLAG, false, false},
    {"tls_verify", AT(tls_verify), FLAG, true, false},
    {"tls_ca", AT(tls_ca), TEXT, true, false},
    {"tls_cert", AT(tls_cert), TEXT, true, false},
    {"tls_key", AT(tls_key), TEXT, true, false},
    {"tls_name", AT(tls_name), TEXT, true, false},
#undef AT
};
#define OPTIONS_N (sizeof(options) / sizeof(options[0]))

static const struct option *option_find(const char *name) {
    for (size_t i = 0; i < OPTIONS_N; i++)
        if (strcmp(options[i].name, name) == 0)
            return &options[i];
    return NULL;
}

static const char is_cut[] = "a ? in a user's name or password is written %3F";

/* Whether the options may be half a password, which no error may hold. */
static bool is_secret(const struct reading *r) {
    for (size_t i = 0; i < r->url->query_n; i++)
        if (strchr(r->url->query[i].name, '@') != NULL ||
            strchr(r->url->query[i].value, '@') != NULL)
            return true;
    return false;
}

static int option_unknown(struct reading *r, const char *name) {
    char known[512] = "";
    size_t len = 0;

    for (size_t i = 0; i < OPTIONS_N; i++)
        len += (size_t)snprintf(known + len, sizeof(known) - len, "%s%s", i == 0 ? "" : ", ",
                                options[i].name);
    if (is_secret(r))
        return refuse(r, is_cut);
    return idem_error_set(r->err, IDEM_E_INVALID, "%s: unknown option %.40s; allowed: %s",
                          r->url->scheme, name, known);
}

static int option_set(struct reading *r, const char *name, const char *value) {
    const struct option *option = option_find(name);
    void *field;

    if (option == NULL)
        return option_unknown(r, name);
    if (option->tls && !r->config->tls)
        return idem_error_set(r->err, IDEM_E_INVALID, "%s: %s is of use with TLS only: %s",
                              r->url->scheme, name, "say rediss:");
    if (option->sentinel && r->config->kind != REDIS_SENTINEL)
        return idem_error_set(r->err, IDEM_E_INVALID, "%s: %s is of use with sentinels only",
                              r->url->scheme, name);
    field = (char *)r->config + option->offset;
    switch (option->type) {
    case TEXT:
        return text_set(r, field, value);
    case NAME:
        return name_set(r, field, value);
    case SECRET:
        return secret_read(r, field, value);
    case FLAG:
        return yes_no(r, name, value, field);
    case USER:
        return user_set(r, value);
    case DB:
        return db_read(r, value);
    default:
        return duration(r, name, value, field);
    }
}

static int options_read(struct reading *r) {
    const char *password = getenv("IDEM_REDIS_PASSWORD");
    int rc = 0;

    for (size_t i = 0; i < r->url->query_n && rc == 0; i++)
        rc = option_set(r, r->url->query[i].name, r->url->query[i].value);
    if (rc == 0 && (r->config->tls_cert == NULL) != (r->config->tls_key == NULL))
        rc = refuse(r, "tls_cert and tls_key go together");
    if (rc == 0 && r->config->password == NULL && password != NULL && password[0] != '\0')
        rc = text_set(r, &r->config->password, password);
    if (rc == 0 && r->config->user != NULL && r->config->password == NULL)
        rc = refuse(r, "a user needs a password: USER:PASSWORD@, password_file= or "
                       "IDEM_REDIS_PASSWORD");
    return rc;
}

/* Where. */

/* HOST, HOST:PORT, [IPV6] or [IPV6]:PORT. */
static int host_read(struct reading *r, char *text) {
    struct redis_host *host = &r->config->hosts[r->config->hosts_n];
    const char *from = text, *end, *port;
    long number = r->config->kind == REDIS_SENTINEL ? REDIS_SENTINEL_PORT : REDIS_PORT;

    if (r->config->hosts_n == REDIS_HOSTS_MAX)
        return refuse(r, "more than 16 hosts");
    (void)idem_url_decode(text); /* what is no escape was refused with the URL */
    if (text[0] == '[') {
        from = text + 1;
        end = strchr(from, ']');
        if (end == NULL || (end[1] != '\0' && end[1] != ':'))
            return refuse(r, "an IPv6 address is written [ADDRESS]:PORT");
        port = end[1] == ':' ? end + 2 : NULL;
    } else {
        end = from + strcspn(from, ":");
        port = *end == ':' ? end + 1 : NULL;
    }
    if (end == from || (size_t)(end - from) >= sizeof(host->name))
        return refuse(r, "the host is missing, or longer than 255 bytes: redis://HOST:PORT/DB");
    if (port != NULL && (number_read(port, 65535, &number) < 0 || number == 0))
        return refuse(r, "the port must be a number from 1 to 65535");
    memcpy(host->name, from, (size_t)(end - from));
    host->name[end - from] = '\0';
    host->port = (uint16_t)number;
    r->config->hosts_n++;
    return 0;
}

static int hosts_read(struct reading *r, char *list) {
    char *host;
    int rc = 0;

    while (rc == 0 && (host = strsep(&list, ",")) != NULL)
        rc = host_read(r, host);
    if (rc == 0 && r->config->kind == REDIS_STANDALONE && r->config->hosts_n > 1)
        rc = refuse(r, "several hosts are for redis+sentinel: and redis+cluster:");
    return rc;
}

/* MASTER or MASTER/DB. */
static int master_read(struct reading *r, char *text) {
    char *name = text == NULL ? NULL : strsep(&text, "/");
    int rc;

    if (name == NULL || *name == '\0')
        return refuse(r, "the master's name is missing: redis+sentinel://HOST,HOST/NAME");
    (void)idem_url_decode(name);
    rc = text_set(r, &r->config->master, name);
    return rc != 0 || text == NULL || *text == '\0' ? rc : db_read(r, text);
}

static int user_read(struct reading *r, char *text) {
    char *password = strchr(text, ':');
    int rc = 0;

    if (password != NULL) {
        *password++ = '\0';
        (void)idem_url_decode(password);
        rc = text_set(r, &r->config->password, password);
    }
    (void)idem_url_decode(text);
    if (rc == 0 && *text != '\0')
        rc = user_set(r, text);
    return rc;
}

static int socket_read(struct reading *r, char *path) {
    struct redis_host *host = &r->config->hosts[0];

    if (r->config->kind != REDIS_STANDALONE)
        return refuse(r, "a socket is for one server only");
    /* No server speaks TLS there: it would be waited for. */
    if (r->config->tls)
        return refuse(r, "a socket is without TLS: say redis:/PATH");
    (void)idem_url_decode(path);
    if (strlen(path) >= 108)
        return refuse(r, "the path of a socket has at most 107 bytes");
    snprintf(host->name, sizeof(host->name), "%s", path);
    host->port = 0;
    r->config->hosts_n = 1;
    return 0;
}

static int where_read(struct reading *r, char *rest) {
    char *at, *path;
    int rc = 0;

    if (rest[0] == '/' && rest[1] != '/')
        return socket_read(r, rest);
    if (strncmp(rest, "//", 2) != 0)
        return refuse(r, "written redis://HOST:PORT/DB, or redis:/PATH of a socket");
    rest += 2;
    at = strrchr(rest, '@'); /* before the path: a password may hold a slash */
    if (at != NULL) {
        *at = '\0';
        rc = user_read(r, rest);
        rest = at + 1;
    }
    path = strchr(rest, '/');
    if (path != NULL)
        *path++ = '\0';
    if (rc == 0)
        rc = hosts_read(r, rest);
    if (rc == 0 && r->config->kind == REDIS_SENTINEL)
        rc = master_read(r, path);
    else if (rc == 0 && path != NULL && *path != '\0')
        rc = db_read(r, path);
    return rc;
}

int redis_config_read(const struct idem_url *url, struct redis_config *ret,
                      struct idem_error *err) {
    struct redis_config config = {
        .kind = strstr(url->scheme, "+sentinel") != NULL  ? REDIS_SENTINEL
                : strstr(url->scheme, "+cluster") != NULL ? REDIS_CLUSTER
                                                          : REDIS_STANDALONE,
        .tls = strncmp(url->scheme, "rediss", 6) == 0,
        .tls_verify = true,
        .connect_timeout_ms = 5000,
        .timeout_ms = 5000,
    };
    struct reading r = {.url = url, .config = &config, .err = err};
    char *rest = strdup(url->raw);
    size_t rest_len = strlen(url->raw);
    int rc = rest == NULL ? idem_error_set(err, IDEM_E_NOMEM, "no memory for a store's URL")
                          : where_read(&r, rest);

    if (rc == IDEM_E_INVALID && strchr(url->raw, '@') == NULL && is_secret(&r))
        rc = refuse(&r, is_cut);
    if (rc == 0)
        rc = options_read(&r);
    if (rc == 0 && config.client_name == NULL)
        rc = text_set(&r, &config.client_name, "idem");
    if (rest != NULL)
        explicit_bzero(rest, rest_len); /* it is in parts now */
    free(rest);
    if (rc != 0) {
        redis_config_release(&config);
        return rc;
    }
    *ret = config;
    return 0;
}

static void secret_free(char *secret) {
    if (secret != NULL)
        explicit_bzero(secret, strlen(secret));
    free(secret);
}

void redis_config_release(struct redis_config *config) {
    secret_free(config->password);
    secret_free(config->sentinel_password);
    free(config->user);
    free(config->sentinel_user);
    free(config->master);
    free(config->tls_ca);
    free(config->tls_cert);
    free(config->tls_key);
    free(config->tls_name);
    free(config->client_name);
    *config = (struct redis_config){0};
}
