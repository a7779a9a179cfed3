/* A server, and a proxy in front of it. */
#include "proxied_server.h"

#include "client.h"
#include "protocol/record_key.h"
#include "store/driver_call.h"
#include "temp.h"
#include <mysql.h>

struct farm farm;
struct proxy proxy;

bool is_postgres(void) {
    const char *engine = getenv("IDEM_TEST_SQL");

    return engine == NULL || strcmp(engine, "postgres") == 0;
}

void server_begin(const char *const *settings) {
    farm_start_with(&farm, is_postgres() ? FARM_PG_SOCKET : FARM_MY_SOCKET, temp_folder(), -1,
                    settings, false);
    tables_make(&farm);
}

void open_plain(struct conn *c, const char *options) {
    char more[200], url[1024];

    snprintf(more, sizeof(more), "&sweep=no%s", options);
    farm_url(&farm, more, url, sizeof(url));
    conn_open(c, url, HOST_POLL, NULL);
}

static char proxy_folder[300];

void proxy_begin(void) {
    char target[320];

    if (is_postgres()) {
        snprintf(target, sizeof(target), "%s/.s.PGSQL.5432", farm.server.socket);
        proxy_start(&proxy, proxy_folder, ".s.PGSQL.5432", target);
    } else {
        proxy_start(&proxy, proxy_folder, "proxy", farm.server.socket);
    }
}

void proxied(struct conn *c, enum host_kind kind, const char *options) {
    char url[1024];

    server_begin(NULL);
    snprintf(proxy_folder, sizeof(proxy_folder), "%s", temp_folder());
    proxy_begin();
    if (is_postgres())
        snprintf(url, sizeof(url), "postgres:%s", proxy_folder);
    else
        snprintf(url, sizeof(url), "mysql:%s", proxy.path);
    snprintf(url + strlen(url), sizeof(url) - strlen(url),
             "?user=idem_app&db=idem&connections=1&sweep=no%s", options);
    conn_open(c, url, kind, NULL);
    CHECK_INT(lookup(c, "is it there").rc, IDEM_E_ABSENT);
}

void turn_until(struct conn *c, bool (*holds)(void)) {
    TURN_UNTIL(c, holds());
}

static unsigned asked_before;

static bool was_asked(void) {
    return proxy.asked > asked_before;
}

void submit_asked(struct conn *c, struct call *call) {
    asked_before = proxy.asked;
    CHECK_INT(call_submit(call), 0);
    turn_until(c, was_asked);
}

long ask_number(const char *sql) {
    return strtol(farm_ask(&farm, sql), NULL, 10);
}

static const char *root_ask(const char *sql) {
    static char out[2000];
    struct client client = client_root(&farm.server);
    const char *error = client_try(&client, sql, out, sizeof(out));

    CHECK_STR(error == NULL ? "" : error, "");
    return out;
}

void root_do(const char *sql) {
    (void)root_ask(sql);
}

long root_number(const char *sql) {
    return strtol(root_ask(sql), NULL, 10);
}

struct idem_sql row_hold(const char *key) {
    struct idem_record_key name = key_in("t:", key);
    char url[1024], sql[300], hex[IDEM_HEX_LEN + 1];
    struct idem_error error;
    struct idem_sql conn;

    idem_record_key_hex(&name, hex);
    farm_url_as(&farm, FARM_OWNER, FARM_PATIENT, url, sizeof(url));
    CHECK_INT(idem_sql_open(url, &conn, &error), 0);
    snprintf(sql, sizeof(sql),
             "SELECT 1 FROM idem_record WHERE prefix = 't:' AND hash = %s%s' FOR UPDATE",
             is_postgres() ? "'\\x" : "x'", hex);
    if (is_postgres()) {
        PGresult *res;

        PQclear(PQexec(conn.at.pg, "BEGIN"));
        res = PQexec(conn.at.pg, sql);
        CHECK_INT(PQntuples(res), 1);
        PQclear(res);
    } else {
        CHECK_INT(mysql_query(conn.at.mysql, "START TRANSACTION READ WRITE"), 0);
        CHECK_INT(mysql_query(conn.at.mysql, sql), 0);
        mysql_free_result(mysql_store_result(conn.at.mysql));
    }
    return conn;
}
