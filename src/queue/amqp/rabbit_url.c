/*
 * The URL of a RabbitMQ server, and names of queues:
 *
 *     amqp://[USER:PASSWORD@]HOST[:PORT][,HOST[:PORT]...][/VHOST][?OPTIONS]    amqps:// with TLS
 *
 * Several hosts are those of one cluster: connections try them in turn. The default user is
 * "guest", the default virtual host "/". Fails on unknown parts, and on files that cannot be
 * read. No error text contains a password.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/units.h"
#include "queue/amqp/rabbit.h"

#define CONFIG(r) ((struct rabbit_config *)(r)->config)
#define PORT 5672
#define PORT_TLS 5671
#define HEARTBEAT_MS 10000
#define CONNECT_MS 10000

/* Options. */

/* The protocol counts whole seconds, and with 0 a silent server would never be noticed. */
static int url_read_heartbeat(struct idem_reading *r, const char *name, const char *value,
                              void *field) {
    struct idem_error why;
    int64_t ms;

    if (idem_duration_parse(value, strlen(value), &ms, &why) < 0 || ms < 1000 || ms > 600000 ||
        ms % 1000 != 0)
        return idem_reading_refuse_value(r, name, value, "1s to 10m, in whole seconds");
    *(int64_t *)field = ms;
    return 0;
}

static int url_read_name(struct idem_reading *r, const char *name, const char *value, void *field) {
    size_t len = strlen(value);

    if (len == 0 || len > RABBIT_NAME_MAX || !idem_utf8_valid(value, len))
        return idem_reading_refuse(r, "name= is a text of 1 to 255 bytes");
    return idem_read_text(r, name, value, field);
}

static int url_read_file(struct idem_reading *r, const char *name, const char *value, void *field) {
    if (access(value, R_OK) < 0)
        return idem_error_set(r->err, IDEM_E_INVALID, "%s: %s, %.200s: %s", r->url->scheme, name,
                              strchr(value, '@') != NULL ? "?" : value, strerror(errno));
    return idem_read_text(r, name, value, field);
}

static const char with_tls[] = "TLS only: use amqps:";

static bool url_option_may(const struct idem_reading *r, const struct idem_url_option *option) {
    (void)option;
    return CONFIG(r)->tls;
}

static const struct idem_url_option options[] = {
#define AT(field) offsetof(struct rabbit_config, field)
    {"password_file", AT(password), idem_read_secret, NULL},
    {"name", AT(name), url_read_name, NULL},
    {"connect_timeout", AT(connect_timeout_ms), idem_read_duration, NULL},
    {"heartbeat", AT(heartbeat_ms), url_read_heartbeat, NULL},
    {"tls_verify", AT(tls_verify), idem_read_flag, with_tls},
    {"tls_ca", AT(tls_ca), url_read_file, with_tls},
    {"tls_cert", AT(tls_cert), url_read_file, with_tls},
    {"tls_key", AT(tls_key), url_read_file, with_tls},
    {"tls_name", AT(tls_name), idem_read_text, with_tls},
#undef AT
};

/* The default user of a fresh server has its name as password; every other user needs one. */
static int url_fill_user(struct idem_reading *r) {
    const char *password = getenv("IDEM_AMQP_PASSWORD");
    struct rabbit_config *config = CONFIG(r);
    int rc = 0;

    if (config->password == NULL && password != NULL && password[0] != '\0')
        rc = idem_read_text(r, NULL, password, &config->password);
    if (rc == 0 && config->user != NULL && config->password == NULL)
        rc = idem_reading_refuse(r, "a user needs a password: USER:PASSWORD@, password_file= or "
                                    "IDEM_AMQP_PASSWORD");
    if (rc == 0 && config->user == NULL)
        rc = idem_read_text(r, NULL, "guest", &config->user);
    if (rc == 0 && config->password == NULL)
        rc = idem_read_text(r, NULL, "guest", &config->password);
    if (rc == 0 && strlen(config->user) > RABBIT_NAME_MAX)
        rc = idem_reading_refuse(r, "the user's name has more than 255 bytes");
    return rc;
}

static int url_read_options(struct idem_reading *r) {
    struct rabbit_config *config = CONFIG(r);
    int rc = idem_read_options(r, options, sizeof(options) / sizeof(options[0]), url_option_may);

    if (rc == 0 && (config->tls_cert == NULL) != (config->tls_key == NULL))
        rc = idem_reading_refuse(r, "tls_cert and tls_key go together");
    if (rc == 0)
        rc = url_fill_user(r);
    if (rc == 0 && config->name == NULL)
        rc = idem_read_text(r, NULL, "idem", &config->name);
    return rc;
}

/* The server's location. */

static int url_read_hosts(struct idem_reading *r, char *list) {
    struct rabbit_config *config = CONFIG(r);
    char *host;
    int rc = 0;

    while (rc == 0 && (host = strsep(&list, ",")) != NULL) {
        if (config->hosts_n == RABBIT_HOSTS_MAX)
            return idem_reading_refuse(r, "more than 8 hosts");
        rc =
            idem_read_host(r, host, config->tls ? PORT_TLS : PORT, &config->hosts[config->hosts_n]);
        if (rc == 0)
            config->hosts_n++;
    }
    return rc;
}

static int url_read_vhost(struct idem_reading *r, char *path) {
    if (path == NULL || *path == '\0')
        return idem_read_text(r, NULL, "/", &CONFIG(r)->vhost);
    if (strchr(path, '/') != NULL)
        return idem_reading_refuse(r, "a / in the name of a virtual host is written %2F");
    (void)idem_url_decode(path); /* invalid escapes were refused with the URL */
    if (strlen(path) > RABBIT_NAME_MAX)
        return idem_reading_refuse(r, "the name of a virtual host has at most 255 bytes");
    return idem_read_text(r, NULL, path, &CONFIG(r)->vhost);
}

static int url_read_location(struct idem_reading *r, char *rest) {
    static const char form[] = "written amqp://USER:PASSWORD@HOST:PORT/VHOST";
    struct rabbit_config *config = CONFIG(r);
    struct idem_url_parts parts;
    int rc = idem_read_parts(r, rest, form, &parts);

    if (rc == 0 && parts.socket != NULL)
        rc = idem_reading_refuse(r, form);
    if (rc == 0 && parts.password != NULL)
        rc = idem_read_text(r, NULL, parts.password, &config->password);
    if (rc == 0 && parts.user != NULL)
        rc = idem_read_text(r, NULL, parts.user, &config->user);
    if (rc == 0)
        rc = url_read_hosts(r, parts.hosts);
    return rc == 0 ? url_read_vhost(r, parts.path) : rc;
}

static int url_fill_config(const struct idem_url *url, struct rabbit_config *config,
                           struct idem_error *err) {
    struct idem_reading r = {.url = url, .config = config, .err = err};
    char *rest = strdup(url->raw);
    size_t rest_len = strlen(url->raw);
    int rc = rest == NULL ? idem_error_set(err, IDEM_E_NOMEM, "no memory for a broker's URL")
                          : url_read_location(&r, rest);

    if (rc == IDEM_E_INVALID && strchr(url->raw, '@') == NULL && idem_reading_is_cut(&r))
        rc = idem_reading_refuse(&r, idem_reading_cut);
    if (rc == 0)
        rc = url_read_options(&r);
    if (rest != NULL)
        explicit_bzero(rest, rest_len); /* it was split into parts; it may contain a password */
    free(rest);
    return rc;
}

int rabbit_config_read(const char *text, struct rabbit_config *ret, struct idem_error *err) {
    struct rabbit_config config = {
        .tls_verify = true,
        .connect_timeout_ms = CONNECT_MS,
        .heartbeat_ms = HEARTBEAT_MS,
    };
    struct idem_url url;
    int rc = idem_url_parse(text, &url, err);

    if (rc != 0)
        return rc;
    config.tls = strcmp(url.scheme, "amqps") == 0;
    rc = config.tls || strcmp(url.scheme, "amqp") == 0
             ? url_fill_config(&url, &config, err)
             : idem_error_set(err, IDEM_E_INVALID, "%.20s: is not amqp: or amqps:", url.scheme);
    idem_url_release(&url);
    if (rc != 0) {
        rabbit_config_release(&config);
        return rc;
    }
    *ret = config;
    return 0;
}

void rabbit_config_release(struct rabbit_config *config) {
    idem_secret_free(config->password);
    free(config->user);
    free(config->vhost);
    free(config->tls_ca);
    free(config->tls_cert);
    free(config->tls_key);
    free(config->tls_name);
    free(config->name);
    *config = (struct rabbit_config){0};
}

int rabbit_url_check_name(const char *name, const char *what, struct idem_error *err) {
    size_t len = strlen(name);

    if (len == 0 || len > RABBIT_NAME_MAX || !idem_utf8_valid(name, len))
        return idem_error_set(err, IDEM_E_INVALID,
                              "amqp: the name of %s is a text of 1 to 255 bytes", what);
    return 0;
}
