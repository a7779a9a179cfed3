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

#define AT(field) offsetof(struct rabbit_config, field)

static const struct idem_url_option options[] = {
    {"password_file", AT(password), idem_read_secret, NULL},
    {"name", AT(name), url_read_name, NULL},
    {"connect_timeout", AT(connect_timeout_ms), idem_read_duration, NULL},
    {"heartbeat", AT(heartbeat_ms), url_read_heartbeat, NULL},
    {"tls_verify", AT(tls_verify), idem_read_flag, with_tls},
    {"tls_ca", AT(tls_ca), url_read_file, with_tls},
    {"tls_cert", AT(tls_cert), url_read_file, with_tls},
    {"tls_key", AT(tls_key), url_read_file, with_tls},
    {"tls_name", AT(tls_name), idem_read_text, with_tls},
};

/* The default user of a fresh server has its name as password. */
static int url_check(struct idem_reading *r) {
    struct rabbit_config *config = CONFIG(r);
    int rc = 0;

    if (config->user == NULL)
        rc = idem_read_text(r, NULL, "guest", &config->user);
    if (rc == 0 && config->password == NULL)
        rc = idem_read_text(r, NULL, "guest", &config->password);
    if (rc == 0 && strlen(config->user) > RABBIT_NAME_MAX)
        rc = idem_reading_refuse(r, "the user's name has more than 255 bytes");
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

static const size_t texts[] = {AT(user),     AT(password), AT(vhost),    AT(tls_ca),
                               AT(tls_cert), AT(tls_key),  AT(tls_name), AT(name)};

static const struct idem_url_shape shape = {
    .form = "written amqp://USER:PASSWORD@HOST:PORT/VHOST",
    .password = "IDEM_AMQP_PASSWORD",
    .user_needs_password = true,
    .port = PORT,
    .hosts_max = RABBIT_HOSTS_MAX,
    .may = url_option_may,
    .path = url_read_vhost,
    .check = url_check,
    IDEM_URL_FIELDS(struct rabbit_config),
};

int rabbit_config_read(const char *text, struct rabbit_config *ret, struct idem_error *err) {
    struct rabbit_config config = {
        .tls_verify = true,
        .connect_timeout_ms = CONNECT_MS,
        .heartbeat_ms = HEARTBEAT_MS,
    };
    struct idem_url_shape known = shape;
    struct idem_url url;
    int rc = idem_url_parse(text, &url, err);

    if (rc != 0)
        return rc;
    config.tls = strcmp(url.scheme, "amqps") == 0;
    if (config.tls)
        known.port = PORT_TLS;
    rc = config.tls || strcmp(url.scheme, "amqp") == 0
             ? idem_read_url(&url, &known, &config, err)
             : idem_error_set(err, IDEM_E_INVALID, "%.20s: is not amqp: or amqps:", url.scheme);
    idem_url_release(&url);
    if (rc == 0)
        *ret = config;
    return rc;
}

void rabbit_config_release(struct rabbit_config *config) {
    idem_texts_free(&shape, config);
}

int rabbit_url_check_name(const char *name, const char *what, struct idem_error *err) {
    size_t len = strlen(name);

    if (len == 0 || len > RABBIT_NAME_MAX || !idem_utf8_valid(name, len))
        return idem_error_set(err, IDEM_E_INVALID,
                              "amqp: the name of %s is a text of 1 to 255 bytes", what);
    return 0;
}
