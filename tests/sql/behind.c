/*
 * A server, and a proxy before it.
 */
#include "behind.h"

#include "../store/ask.h"
#include "temp.h"

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
    while (!holds())
        conn_turn(c, 20);
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
