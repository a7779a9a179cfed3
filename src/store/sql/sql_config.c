/*
 * The URL of a SQL store and the configuration that follows from it:
 *
 *     SCHEME://[USER[:PASSWORD]@]HOST[:PORT][,HOST[:PORT]]/DATABASE[?OPTIONS]
 *     SCHEME:/PATH[?OPTIONS]      by a socket; with the options user= and db=
 *
 * Fails on unknown options and values, and on files that cannot be read. No error contains a
 * password.
 */
#include <string.h>

#include "base/error.h"
#include "store/sql/sql_engine.h"

#define CONFIG(r) ((struct sql_config *)(r)->config)

static int config_read_tls(struct idem_reading *r, const char *name, const char *value,
                           void *field) {
    static const char *const words[] = {[SQL_TLS_OFF] = "off",
                                        [SQL_TLS_PREFER] = "prefer",
                                        [SQL_TLS_REQUIRE] = "require",
                                        [SQL_TLS_VERIFY] = "verify"};

    for (size_t i = SQL_TLS_OFF; i < sizeof(words) / sizeof(words[0]); i++)
        if (strcmp(value, words[i]) == 0) {
            *(enum sql_tls *)field = (enum sql_tls)i;
            return 0;
        }
    return idem_reading_refuse_value(r, name, value, "off, prefer, require, verify");
}

static int config_read_connections(struct idem_reading *r, const char *name, const char *value,
                                   void *field) {
    long n;

    if (idem_read_number(value, SQL_LANES_MAX, &n) < 0 || n < 1)
        return idem_reading_refuse_value(r, name, value, "1 to 64");
    *(size_t *)field = (size_t)n;
    return 0;
}

#define AT(field) offsetof(struct sql_config, field)

static const struct idem_url_option options[] = {
    {"user", AT(user), idem_read_once, NULL},
    {"db", AT(db), idem_read_once, NULL},
    {"password_file", AT(password), idem_read_secret, NULL},
    {"name", AT(name), idem_read_text, NULL},
    {"connections", AT(lanes_n), config_read_connections, NULL},
    {"connect_timeout", AT(connect_timeout_ms), idem_read_duration, NULL},
    {"timeout", AT(timeout_ms), idem_read_duration, NULL},
    {"pooled", AT(pooled), idem_read_flag, NULL},
    {"sweep", AT(sweep), idem_read_flag, NULL},
    {"tls", AT(tls), config_read_tls, NULL},
    {"tls_ca", AT(tls_ca), idem_read_text, NULL},
    {"tls_cert", AT(tls_cert), idem_read_text, NULL},
    {"tls_key", AT(tls_key), idem_read_text, NULL},
};

static int config_read_database(struct idem_reading *r, char *path) {
    if (path == NULL || *path == '\0')
        return 0;
    (void)idem_url_decode(path);
    return idem_read_text(r, NULL, path, &CONFIG(r)->db);
}

/* Either engine has sockets. */
static int config_check_socket(struct idem_reading *r) {
    (void)r;
    return 0;
}

/* Checks the options against each other. */
static int config_check(struct idem_reading *r) {
    struct sql_config *config = CONFIG(r);

    if (config->tls == SQL_TLS_UNSAID)
        config->tls = config->tls_ca != NULL ? SQL_TLS_VERIFY : SQL_TLS_PREFER;
    if (config->hosts[0].port == 0 && config->tls > SQL_TLS_PREFER)
        return idem_reading_refuse(r, "a socket is without TLS");
    if (config->tls_ca != NULL && config->tls != SQL_TLS_VERIFY)
        return idem_reading_refuse(r, "tls_ca is of use with tls=verify only");
    if (config->db == NULL)
        return idem_reading_refuse(r, config->engine->form);
    return 0;
}

static const size_t texts[] = {AT(user),     AT(password), AT(db),  AT(tls_ca),
                               AT(tls_cert), AT(tls_key),  AT(name)};

static const struct idem_url_shape shape = {
    .socket = config_check_socket,
    .path = config_read_database,
    .check = config_check,
    IDEM_URL_FIELDS(struct sql_config),
};

int sql_config_read(const struct sql_engine *engine, const struct idem_url *url,
                    struct sql_config *ret, struct idem_error *err) {
    struct sql_config config = {.engine = engine,
                                .connect_timeout_ms = 5000,
                                .timeout_ms = 5000,
                                .lanes_n = 4,
                                .sweep = true};
    struct idem_url_shape known = shape;
    int rc;

    known.form = engine->form;
    known.password = engine->password;
    known.port = engine->port;
    known.hosts_max = engine->hosts_max;
    rc = idem_read_url(url, &known, &config, err);
    if (rc == 0)
        *ret = config;
    return rc;
}

bool sql_config_copy(const struct sql_config *config, struct sql_config *ret) {
    *ret = *config;
    return idem_texts_copy(&shape, ret);
}

void sql_config_release(struct sql_config *config) {
    idem_texts_free(&shape, config);
}
