/*
 * Reads the URL of a Redis store. Fails on unknown options, and on files that cannot be read. No
 * error contains a password.
 */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "store/redis/redis_connection.h"
#include "store/store_url.h"

/*
 *     redis://[USER:PASSWORD@]HOST[:PORT][/DB][?OPTIONS]      rediss:// with TLS
 *     redis:/PATH/TO/SOCKET[?OPTIONS]      user= and db= among them
 *     redis+sentinel://[...@]HOST[:PORT],HOST[:PORT]/MASTER[/DB]    rediss+sentinel://
 *     redis+cluster://[...@]HOST[:PORT],HOST[:PORT]                rediss+cluster://
 *
 * The URL is split before %XX is decoded, so that a user name or a password may contain any
 * separator.
 */

#define REPLICAS_MAX 100

#define CONFIG(r) ((struct redis_config *)(r)->config)

/* Options. */

static int config_read_db(struct idem_reading *r, const char *name, const char *value,
                          void *field) {
    struct redis_config *config = CONFIG(r);
    long db;

    (void)name;
    if (config->kind == REDIS_CLUSTER)
        return idem_reading_refuse(r, "a cluster has one database only");
    if (config->db_said)
        return idem_reading_refuse(r, "the database is given twice, by the path and by db=");
    if (idem_read_number(value, 1 << 20, &db) < 0)
        return idem_reading_refuse(r, "the database is a number: redis://HOST/0");
    *(int *)field = (int)db;
    config->db_said = true;
    return 0;
}

static int config_read_user(struct idem_reading *r, const char *name, const char *value,
                            void *field) {
    if (CONFIG(r)->user != NULL)
        return idem_reading_refuse(r, "the user is given twice, before the @ and by user=");
    if (*value == '\0')
        return idem_reading_refuse(r, "user= is empty");
    return idem_read_text(r, name, value, field);
}

static int config_read_replicas(struct idem_reading *r, const char *name, const char *value,
                                void *field) {
    long n;

    (void)name;
    if (CONFIG(r)->kind == REDIS_CLUSTER)
        return idem_reading_refuse(r, "replicas= is not for clusters");
    if (idem_read_number(value, REPLICAS_MAX, &n) < 0)
        return idem_reading_refuse(r, "replicas= is a number: how many must have what was written");
    *(int *)field = (int)n;
    return 0;
}

/* The server would refuse such a name, and the connection would have none. */
static int config_read_name(struct idem_reading *r, const char *name, const char *value,
                            void *field) {
    for (const char *at = value; *at != '\0'; at++)
        if (*at < '!' || *at > '~')
            return idem_reading_refuse(r, "name= may hold visible ASCII only, and no space");
    return idem_read_text(r, name, value, field);
}

/* The sentinels are asked once a second, so a shorter grace would always be over. */
static int config_read_grace(struct idem_reading *r, const char *name, const char *value,
                             void *field) {
    int rc = idem_read_duration(r, name, value, field);

    if (rc == 0 && *(int64_t *)field < 1000)
        return idem_reading_refuse(r, "sentinel_grace= must be 1s or more");
    return rc;
}

static const char with_tls[] = "TLS only: say rediss:", with_sentinels[] = "sentinels only";

static bool config_may_have(const struct idem_reading *r, const struct idem_url_option *option) {
    return option->only == with_tls ? CONFIG(r)->tls : CONFIG(r)->kind == REDIS_SENTINEL;
}

static const struct idem_url_option options[] = {
#define AT(field) offsetof(struct redis_config, field)
    {"user", AT(user), config_read_user, NULL},
    {"db", AT(db), config_read_db, NULL},
    {"password_file", AT(password), idem_read_secret, NULL},
    {"sentinel_user", AT(sentinel_user), idem_read_text, with_sentinels},
    {"sentinel_password_file", AT(sentinel_password), idem_read_secret, with_sentinels},
    {"replicas", AT(replicas), config_read_replicas, NULL},
    {"sentinel_grace", AT(sentinel_grace_ms), config_read_grace, with_sentinels},
    {"name", AT(client_name), config_read_name, NULL},
    {"connect_timeout", AT(connect_timeout_ms), idem_read_duration, NULL},
    {"timeout", AT(timeout_ms), idem_read_duration, NULL},
    {"unsafe", AT(unsafe), idem_read_flag, NULL},
    {"tls_verify", AT(tls_verify), idem_read_flag, with_tls},
    {"tls_ca", AT(tls_ca), idem_read_text, with_tls},
    {"tls_cert", AT(tls_cert), idem_read_text, with_tls},
    {"tls_key", AT(tls_key), idem_read_text, with_tls},
    {"tls_name", AT(tls_name), idem_read_text, with_tls},
#undef AT
};

static int config_read_options(struct idem_reading *r) {
    const char *password = getenv("IDEM_REDIS_PASSWORD");
    struct redis_config *config = CONFIG(r);
    int rc = idem_read_options(r, options, sizeof(options) / sizeof(options[0]), config_may_have);

    if (rc == 0 && (config->tls_cert == NULL) != (config->tls_key == NULL))
        rc = idem_reading_refuse(r, "tls_cert and tls_key go together");
    if (rc == 0 && config->password == NULL && password != NULL && password[0] != '\0')
        rc = idem_read_text(r, NULL, password, &config->password);
    if (rc == 0 && config->user != NULL && config->password == NULL)
        rc = idem_reading_refuse(r, "a user needs a password: USER:PASSWORD@, password_file= or "
                                    "IDEM_REDIS_PASSWORD");
    return rc;
}

/* Hosts and paths. */

static int config_read_hosts(struct idem_reading *r, char *list) {
    struct redis_config *config = CONFIG(r);
    uint16_t port = config->kind == REDIS_SENTINEL ? REDIS_SENTINEL_PORT : REDIS_PORT;
    char *host;
    int rc = 0;

    while (rc == 0 && (host = strsep(&list, ",")) != NULL) {
        if (config->hosts_n == REDIS_HOSTS_MAX)
            return idem_reading_refuse(r, "more than 16 hosts");
        rc = idem_read_host(r, host, port, &config->hosts[config->hosts_n]);
        if (rc == 0)
            config->hosts_n++;
    }
    if (rc == 0 && config->kind == REDIS_STANDALONE && config->hosts_n > 1)
        rc = idem_reading_refuse(r, "several hosts are for redis+sentinel: and redis+cluster:");
    return rc;
}

/* MASTER or MASTER/DB. */
static int config_read_master(struct idem_reading *r, char *text) {
    struct redis_config *config = CONFIG(r);
    char *name = text == NULL ? NULL : strsep(&text, "/");
    int rc;

    if (name == NULL || *name == '\0')
        return idem_reading_refuse(r,
                                   "the master's name is missing: redis+sentinel://HOST,HOST/NAME");
    (void)idem_url_decode(name);
    rc = idem_read_text(r, NULL, name, &config->master);
    return rc != 0 || text == NULL || *text == '\0' ? rc
                                                    : config_read_db(r, NULL, text, &config->db);
}

static int config_read_socket(struct idem_reading *r, char *path) {
    struct redis_config *config = CONFIG(r);

    if (config->kind != REDIS_STANDALONE)
        return idem_reading_refuse(r, "a socket is for one server only");
    /* No server speaks TLS on a socket: the handshake would only time out. */
    if (config->tls)
        return idem_reading_refuse(r, "a socket is without TLS: say redis:/PATH");
    config->hosts_n = 1;
    return idem_read_socket(r, path, &config->hosts[0]);
}

static int config_read_location(struct idem_reading *r, char *rest) {
    struct redis_config *config = CONFIG(r);
    struct idem_url_parts parts;
    int rc = idem_read_parts(r, rest, "written redis://HOST:PORT/DB, or redis:/PATH of a socket",
                             &parts);

    if (rc == 0 && parts.socket != NULL)
        return config_read_socket(r, parts.socket);
    if (rc == 0 && parts.password != NULL)
        rc = idem_read_text(r, NULL, parts.password, &config->password);
    if (rc == 0 && parts.user != NULL)
        rc = config_read_user(r, "user", parts.user, &config->user);
    if (rc == 0)
        rc = config_read_hosts(r, parts.hosts);
    if (rc == 0 && config->kind == REDIS_SENTINEL)
        rc = config_read_master(r, parts.path);
    else if (rc == 0 && parts.path != NULL && *parts.path != '\0')
        rc = config_read_db(r, NULL, parts.path, &config->db);
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
        .sentinel_grace_ms = 3000,
        .connect_timeout_ms = 5000,
        .timeout_ms = 5000,
    };
    struct idem_reading r = {.url = url, .config = &config, .err = err};
    char *rest = strdup(url->raw);
    size_t rest_len = strlen(url->raw);
    int rc = rest == NULL ? idem_error_set(err, IDEM_E_NOMEM, "no memory for a store's URL")
                          : config_read_location(&r, rest);

    if (rc == IDEM_E_INVALID && strchr(url->raw, '@') == NULL && idem_reading_is_cut(&r))
        rc = idem_reading_refuse(&r, idem_reading_cut);
    if (rc == 0)
        rc = config_read_options(&r);
    if (rc == 0 && config.client_name == NULL)
        rc = idem_read_text(&r, NULL, "idem", &config.client_name);
    if (rest != NULL)
        explicit_bzero(rest, rest_len); /* it may contain the password */
    free(rest);
    if (rc != 0) {
        redis_config_release(&config);
        return rc;
    }
    *ret = config;
    return 0;
}

void redis_config_release(struct redis_config *config) {
    idem_secret_free(config->password);
    idem_secret_free(config->sentinel_password);
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
