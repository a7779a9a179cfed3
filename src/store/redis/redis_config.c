/*
 * Reads the URL of a Redis store. Fails on unknown options, and on files that cannot be read. No
 * error contains a password.
 */
#include <string.h>

#include "base/bytes.h"
#include "base/error.h"
#include "store/redis/redis_connection.h"
#include "store/store_url.h"

/*
 *     redis://[USER:PASSWORD@]HOST[:PORT][/DB][?OPTIONS]      rediss:// with TLS
 *     redis:/PATH/TO/SOCKET[?OPTIONS]      user= and db= among them
 *     redis+sentinel://[...@]HOST[:PORT],HOST[:PORT]/MASTER[/DB]    rediss+sentinel://
 *     redis+cluster://[...@]HOST[:PORT],HOST[:PORT]                rediss+cluster://
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
    if (config->db_given)
        return idem_reading_refuse(r, "the database is given twice, by the path and by db=");
    if (idem_read_number(value, 1 << 20, &db) < 0)
        return idem_reading_refuse(r, "the database is a number: redis://HOST/0");
    *(int *)field = (int)db;
    config->db_given = true;
    return 0;
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

static const char with_tls[] = "TLS only: use rediss:", with_sentinels[] = "sentinels only";

static bool config_may_have(const struct idem_reading *r, const struct idem_url_option *option) {
    return option->only == with_tls ? CONFIG(r)->tls : CONFIG(r)->kind == REDIS_SENTINEL;
}

#define AT(field) offsetof(struct redis_config, field)

static const struct idem_url_option options[] = {
    {"user", AT(user), idem_read_once, NULL},
    {"db", AT(db), config_read_db, NULL},
    {"password_file", AT(password), idem_read_secret, NULL},
    {"sentinel_user", AT(sentinel_user), idem_read_text, with_sentinels},
    {"sentinel_password_file", AT(sentinel_password), idem_read_secret, with_sentinels},
    {"replicas", AT(replicas), config_read_replicas, NULL},
    {"sentinel_grace", AT(sentinel_grace_ms), config_read_grace, with_sentinels},
    {"name", AT(name), config_read_name, NULL},
    {"connect_timeout", AT(connect_timeout_ms), idem_read_duration, NULL},
    {"timeout", AT(timeout_ms), idem_read_duration, NULL},
    {"unsafe", AT(unsafe), idem_read_flag, NULL},
    {"tls_verify", AT(tls_verify), idem_read_flag, with_tls},
    {"tls_ca", AT(tls_ca), idem_read_text, with_tls},
    {"tls_cert", AT(tls_cert), idem_read_text, with_tls},
    {"tls_key", AT(tls_key), idem_read_text, with_tls},
    {"tls_name", AT(tls_name), idem_read_text, with_tls},
};

/* Hosts and paths. */

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

static int config_check_socket(struct idem_reading *r) {
    if (CONFIG(r)->kind != REDIS_STANDALONE)
        return idem_reading_refuse(r, "a socket is for one server only");
    /* No server speaks TLS on a socket: the handshake would only time out. */
    return CONFIG(r)->tls ? idem_reading_refuse(r, "a socket is without TLS: use redis:/PATH") : 0;
}

static int config_read_path(struct idem_reading *r, char *path) {
    struct redis_config *config = CONFIG(r);

    if (config->kind == REDIS_STANDALONE && config->hosts_n > 1)
        return idem_reading_refuse(r, "several hosts are for redis+sentinel: and redis+cluster:");
    if (config->kind == REDIS_SENTINEL)
        return config_read_master(r, path);
    return path == NULL || *path == '\0' ? 0 : config_read_db(r, NULL, path, &config->db);
}

static const size_t texts[] = {
    AT(user),   AT(password), AT(sentinel_user), AT(sentinel_password), AT(master),
    AT(tls_ca), AT(tls_cert), AT(tls_key),       AT(tls_name),          AT(name),
};

static const struct idem_url_shape shape = {
    .form = "written redis://HOST:PORT/DB, or redis:/PATH of a socket",
    .password = "IDEM_REDIS_PASSWORD",
    .user_needs_password = true,
    .port = REDIS_PORT,
    .hosts_max = REDIS_HOSTS_MAX,
    .may = config_may_have,
    .socket = config_check_socket,
    .path = config_read_path,
    IDEM_URL_FIELDS(struct redis_config),
};

int redis_config_read(const struct idem_url *url, struct redis_config *ret,
                      struct idem_error *err) {
    struct redis_config config = {
        .kind = strstr(url->scheme, "+sentinel") != NULL  ? REDIS_SENTINEL
                : strstr(url->scheme, "+cluster") != NULL ? REDIS_CLUSTER
                                                          : REDIS_STANDALONE,
        .tls = idem_text_begins(url->scheme, "rediss"),
        .tls_verify = true,
        .sentinel_grace_ms = 3000,
        .connect_timeout_ms = 5000,
        .timeout_ms = 5000,
    };
    struct idem_url_shape known = shape;
    int rc;

    if (config.kind == REDIS_SENTINEL)
        known.port = REDIS_SENTINEL_PORT;
    rc = idem_read_url(url, &known, &config, err);
    if (rc == 0)
        *ret = config;
    return rc;
}

void redis_config_release(struct redis_config *config) {
    idem_texts_free(&shape, config);
}
