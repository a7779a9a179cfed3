/*
 * The URL of a SQL store and the configuration that follows from it:
 *
 *     SCHEME://[USER[:PASSWORD]@]HOST[:PORT][,HOST[:PORT]]/DATABASE[?OPTIONS]
 *     SCHEME:/PATH[?OPTIONS]      by a socket; with the options user= and db=
 *
 * Fails on unknown options and values, and on files that cannot be read. No error contains a
 * password.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "store/sql/sql_engine.h"

#define CONFIG(r) ((struct sql_config *)(r)->config)

static int config_read_once(struct idem_reading *r, const char *name, const char *value,
                            void *field) {
    if (*(char **)field != NULL)
        return idem_error_set(r->err, IDEM_E_INVALID,
                              "%s: %s= is given twice: in the URL's own place, and as an option",
                              r->url->scheme, name);
    if (*value == '\0')
        return idem_error_set(r->err, IDEM_E_INVALID, "%s: %s= is empty", r->url->scheme, name);
    return idem_read_text(r, name, value, field);
}

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

static const struct idem_url_option options[] = {
#define AT(field) offsetof(struct sql_config, field)
    {"user", AT(user), config_read_once, NULL},
    {"db", AT(db), config_read_once, NULL},
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
#undef AT
};

static int config_read_hosts(struct idem_reading *r, char *list) {
    struct sql_config *config = CONFIG(r);
    char *host;
    int rc = 0;

    while (rc == 0 && (host = strsep(&list, ",")) != NULL) {
        if (config->hosts_n == config->engine->hosts_max)
            return idem_error_set(r->err, IDEM_E_INVALID, "%s: more than %u host%s", r->url->scheme,
                                  config->engine->hosts_max,
                                  config->engine->hosts_max == 1 ? "" : "s");
        rc = idem_read_host(r, host, config->engine->port, &config->hosts[config->hosts_n]);
        if (rc == 0)
            config->hosts_n++;
    }
    return rc;
}

static int config_read_database(struct idem_reading *r, char *path) {
    if (path == NULL || *path == '\0')
        return 0;
    (void)idem_url_decode(path);
    return idem_read_text(r, NULL, path, &CONFIG(r)->db);
}

static int config_read_location(struct idem_reading *r, char *rest) {
    struct sql_config *config = CONFIG(r);
    struct idem_url_parts parts;
    int rc = idem_read_parts(r, rest, config->engine->form, &parts);

    if (rc == 0 && parts.socket != NULL) {
        config->hosts_n = 1;
        return idem_read_socket(r, parts.socket, &config->hosts[0]);
    }
    if (rc == 0 && parts.password != NULL)
        rc = idem_read_text(r, NULL, parts.password, &config->password);
    if (rc == 0 && parts.user != NULL)
        rc = idem_read_text(r, NULL, parts.user, &config->user);
    if (rc == 0)
        rc = config_read_hosts(r, parts.hosts);
    return rc == 0 ? config_read_database(r, parts.path) : rc;
}

/* Checks the options against each other. */
static int config_check(struct idem_reading *r) {
    struct sql_config *config = CONFIG(r);

    if (config->tls == SQL_TLS_UNSAID)
        config->tls = config->tls_ca != NULL ? SQL_TLS_VERIFY : SQL_TLS_PREFER;
    if ((config->tls_cert == NULL) != (config->tls_key == NULL))
        return idem_reading_refuse(r, "tls_cert and tls_key go together");
    if (config->hosts[0].port == 0 && config->tls > SQL_TLS_PREFER)
        return idem_reading_refuse(r, "a socket is without TLS");
    if (config->tls_ca != NULL && config->tls != SQL_TLS_VERIFY)
        return idem_reading_refuse(r, "tls_ca is of use with tls=verify only");
    if (config->db == NULL)
        return idem_reading_refuse(r, config->engine->form);
    return 0;
}

static int config_read_options(struct idem_reading *r) {
    struct sql_config *config = CONFIG(r);
    const char *password = getenv(config->engine->password);
    int rc = idem_read_options(r, options, sizeof(options) / sizeof(options[0]), NULL);

    if (rc == 0 && config->password == NULL && password != NULL && password[0] != '\0')
        rc = idem_read_text(r, NULL, password, &config->password);
    if (rc == 0 && config->name == NULL)
        rc = idem_read_text(r, NULL, "idem", &config->name);
    return rc == 0 ? config_check(r) : rc;
}

int sql_config_read(const struct sql_engine *engine, const struct idem_url *url,
                    struct sql_config *ret, struct idem_error *err) {
    struct sql_config config = {.engine = engine,
                                .connect_timeout_ms = 5000,
                                .timeout_ms = 5000,
                                .lanes_n = 4,
                                .sweep = true};
    struct idem_reading r = {.url = url, .config = &config, .err = err};
    char *rest = strdup(url->raw);
    size_t rest_len = strlen(url->raw);
    int rc = rest == NULL ? idem_error_set(err, IDEM_E_NOMEM, "no memory for a store's URL")
                          : config_read_location(&r, rest);

    if (rc == IDEM_E_INVALID && strchr(url->raw, '@') == NULL && idem_reading_is_cut(&r))
        rc = idem_reading_refuse(&r, idem_reading_cut);
    if (rc == 0)
        rc = config_read_options(&r);
    if (rest != NULL)
        explicit_bzero(rest,
                       rest_len); /* a copy with the password; its parts are in `config` now */
    free(rest);
    if (rc != 0) {
        sql_config_release(&config);
        return rc;
    }
    *ret = config;
    return 0;
}

/* Lists every text that a configuration owns. */
#define TEXTS_N 7
static void config_texts(struct sql_config *config, char **ret[TEXTS_N]) {
    ret[0] = &config->user;
    ret[1] = &config->password;
    ret[2] = &config->db;
    ret[3] = &config->tls_ca;
    ret[4] = &config->tls_cert;
    ret[5] = &config->tls_key;
    ret[6] = &config->name;
}

bool sql_config_copy(const struct sql_config *config, struct sql_config *ret) {
    char **texts[TEXTS_N];
    bool whole = true;

    *ret = *config;
    config_texts(ret, texts);
    for (size_t i = 0; i < TEXTS_N; i++)
        if (*texts[i] != NULL && (*texts[i] = strdup(*texts[i])) == NULL)
            whole = false;
    if (!whole)
        sql_config_release(ret);
    return whole;
}

void sql_config_release(struct sql_config *config) {
    char **texts[TEXTS_N];

    config_texts(config, texts);
    for (size_t i = 0; i < TEXTS_N; i++)
        idem_secret_free(*texts[i]);
    *config = (struct sql_config){0};
}
