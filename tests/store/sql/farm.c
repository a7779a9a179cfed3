/*
 * Arrangements of SQL servers, for tests.
 */
#include "farm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "certificates.h"
#include "client.h"
#include "process.h"
#include "wait.h"

enum way { WAY_SOCKET, WAY_TCP, WAY_TLS, WAY_POOLED };

static const struct {
    enum server_engine engine;
    enum way way;
    enum farm_user user; /* the user in farm_url() */
} kinds[] = {
    [FARM_PG_SOCKET] = {SERVER_POSTGRES, WAY_SOCKET, FARM_APP},
    [FARM_PG_TCP] = {SERVER_POSTGRES, WAY_TCP, FARM_ODD},
    [FARM_PG_TLS] = {SERVER_POSTGRES, WAY_TLS, FARM_APP},
    [FARM_PG_POOLED] = {SERVER_POSTGRES, WAY_POOLED, FARM_APP},
    [FARM_MY_SOCKET] = {SERVER_MARIADB, WAY_SOCKET, FARM_APP},
    [FARM_MY_TCP] = {SERVER_MARIADB, WAY_TCP, FARM_ODD},
    [FARM_MY_TLS] = {SERVER_MARIADB, WAY_TLS, FARM_APP},
};

static const struct {
    const char *name, *password, *in_url;
} users[] = {
    [FARM_APP] = {CLIENT_APP, CLIENT_APP_PASSWORD, CLIENT_APP_PASSWORD},
    [FARM_OWNER] = {CLIENT_OWNER, CLIENT_OWNER_PASSWORD, CLIENT_OWNER_PASSWORD},
    [FARM_ODD] = {CLIENT_ODD, CLIENT_ODD_PASSWORD, "p%40ss%3A%2F%3F%25"},
};

/* Every user needs a certificate on the port: in MariaDB this is a property of the user. */
static void certificates_demand(const struct farm *farm) {
    struct client client = client_root(&farm->server);
    const char *error = client_try(&client,
                                   "ALTER USER " CLIENT_APP "@127.0.0.1 REQUIRE X509;"
                                   "ALTER USER " CLIENT_ODD "@127.0.0.1 REQUIRE X509;"
                                   "ALTER USER " CLIENT_OWNER "@127.0.0.1 REQUIRE X509;",
                                   NULL, 0);

    if (error != NULL)
        process_fail(farm->folder, error);
}

/* Waits until the server responds over the tests' kind of connection. A test with certificates
 * of its own uses another kind. */
static void farm_wait(struct farm *farm) {
    if (kinds[farm->kind].way == WAY_TLS && farm->server.options.settings != NULL)
        return;
    WAIT_UNTIL(farm_try(farm, kinds[farm->kind].user, "SELECT 1") == NULL);
}

void farm_start_with(struct farm *farm, enum farm_kind kind, const char *folder, int clock_fd,
                     const char *const *settings, bool durable) {
    enum way way = kinds[kind].way;
    struct server_options options = {.port = way == WAY_TCP || way == WAY_TLS,
                                     .durable = durable,
                                     .clock_fd = clock_fd,
                                     .settings = settings};
    char path[512];

    *farm = (struct farm){.kind = kind};
    snprintf(farm->folder, sizeof(farm->folder), "%.200s/farm", folder);
    (void)mkdir(farm->folder, 0711);
    if (way == WAY_TLS) {
        certificates_make(farm->folder, clock_fd);
        options.tls = farm->folder;
    }
    snprintf(path, sizeof(path), "%s/server", farm->folder);
    server_start(&farm->server, kinds[kind].engine, path, &options);
    if (kind == FARM_MY_TLS)
        certificates_demand(farm);
    snprintf(path, sizeof(path), "%s/pooler", farm->folder);
    if (way == WAY_POOLED)
        pooler_start(&farm->pooler, &farm->server, path);
    farm_wait(farm);
}

void farm_start(struct farm *farm, enum farm_kind kind, const char *folder, int clock_fd) {
    farm_start_with(farm, kind, folder, clock_fd, NULL, false);
}

void farm_stop(struct farm *farm) {
    pooler_stop(&farm->pooler);
    server_stop(&farm->server);
}

void farm_kill(struct farm *farm) {
    server_kill(&farm->server);
}

void farm_restart(struct farm *farm) {
    server_restart(&farm->server);
    farm_wait(farm);
}

/* URLs. */

void farm_url_as(const struct farm *farm, enum farm_user user, const char *options, char *url,
                 size_t size) {
    const struct server *server = &farm->server;
    const char *scheme = server->engine == SERVER_POSTGRES ? "postgres" : "mysql";
    const char *tls = farm->folder;
    int port = farm->pooler.pid != 0 ? farm->pooler.port : server->port;
    char more[1000] = "";

    if (kinds[farm->kind].way == WAY_SOCKET) {
        snprintf(url, size, "%s:%s?user=%s&db=" SERVER_DB "%s", scheme, server->socket,
                 users[user].name, options);
        return;
    }
    if (kinds[farm->kind].way == WAY_TLS)
        snprintf(more, sizeof(more),
                 "&tls=verify&tls_ca=%s/ca.crt&tls_cert=%s/client.crt&tls_key=%s/client.key", tls,
                 tls, tls);
    if (kinds[farm->kind].way == WAY_POOLED)
        snprintf(more, sizeof(more), "&pooled=yes");
    snprintf(url, size, "%s://%s:%s@localhost:%d/" SERVER_DB "?name=test%s%s", scheme,
             users[user].name, users[user].in_url, port, more, options);
}

void farm_url(const struct farm *farm, const char *options, char *url, size_t size) {
    farm_url_as(farm, kinds[farm->kind].user, options, url, size);
}

/* SQL. */

const char *farm_try(struct farm *farm, enum farm_user user, const char *sql) {
    struct client client = {.engine = farm->server.engine,
                            .port = farm->pooler.pid != 0 ? farm->pooler.port : farm->server.port,
                            .user = users[user].name,
                            .password = users[user].password,
                            .db = SERVER_DB};

    if (kinds[farm->kind].way == WAY_SOCKET) {
        client.socket = farm->server.socket;
        client.password = NULL;
    }
    if (kinds[farm->kind].way == WAY_TLS)
        client.tls = farm->folder;
    return client_try(&client, sql, farm->answer, sizeof(farm->answer));
}

const char *farm_ask(struct farm *farm, const char *sql) {
    struct client client = client_root(&farm->server);
    const char *error;

    client.user = CLIENT_OWNER;
    client.db = SERVER_DB;
    error = client_try(&client, sql, farm->answer, sizeof(farm->answer));
    if (error != NULL) {
        fprintf(stderr, "# %s\n# in: %s\n", error, sql);
        exit(1);
    }
    return farm->answer;
}

void farm_sql(struct farm *farm, const char *sql) {
    (void)farm_ask(farm, sql);
}

/* Idem's tables. */

#define FEW "1000" /* deleting this many rows takes less time than making the table anew */

static const char postgres_flush[] =
    "DO $$ DECLARE t text; n bigint; BEGIN SET LOCAL lock_timeout = '120s';"
    " FOREACH t IN ARRAY ARRAY['idem_record', 'idem_counter', 'idem_event', 'idem_tx'] LOOP"
    "  IF to_regclass(t) IS NULL THEN CONTINUE; END IF;"
    "  EXECUTE format('SELECT count(*) FROM (SELECT FROM %I LIMIT " FEW " + 1) few', t) INTO n;"
    "  IF n > " FEW " THEN EXECUTE format('TRUNCATE %I', t);"
    "  ELSIF n > 0 THEN EXECUTE format('DELETE FROM %I', t); END IF;"
    " END LOOP;"
    " IF to_regclass('idem_meta') IS NOT NULL THEN"
    "  UPDATE idem_meta SET sweeper = NULL, sweep_until = NULL, sweep_table = NULL,"
    "   sweep_prefix = NULL, sweep_hash = NULL WHERE sweeper IS NOT NULL;"
    " END IF; END $$";

#define MARIADB_FLUSH(table)                                                                       \
    "IF EXISTS (SELECT 1 FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE()"           \
    "  AND TABLE_NAME = '" table "') THEN"                                                         \
    " IF (SELECT COUNT(*) FROM (SELECT 1 FROM " table " LIMIT " FEW ", 1) few) > 0 THEN"           \
    "  TRUNCATE " table "; ELSE DELETE FROM " table "; END IF; END IF;"

static const char mariadb_flush[] = "BEGIN NOT ATOMIC " MARIADB_FLUSH("idem_record")
    MARIADB_FLUSH("idem_counter") MARIADB_FLUSH("idem_event") MARIADB_FLUSH(
        "idem_tx") "IF EXISTS (SELECT 1 FROM information_schema.TABLES WHERE TABLE_SCHEMA = "
                   "DATABASE()"
                   "  AND TABLE_NAME = 'idem_meta') THEN"
                   " UPDATE idem_meta SET sweeper = NULL, sweep_until = NULL, sweep_table = NULL,"
                   "  sweep_prefix = NULL, sweep_hash = NULL WHERE sweeper IS NOT NULL; END IF; "
                   "END";

void farm_flush(struct farm *farm) {
    farm_sql(farm, farm->server.engine == SERVER_POSTGRES ? postgres_flush : mariadb_flush);
}

size_t farm_keys(struct farm *farm) {
    return strtoul(farm_ask(farm, "SELECT (SELECT count(*) FROM idem_record) +"
                                  " (SELECT count(*) FROM idem_counter)"),
                   NULL, 10);
}
