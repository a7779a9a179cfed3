/* A server, and a proxy in front of it. */
#include "proxied_server.h"

#include "store/driver_call.h"
#include "temp.h"
#include "wait.h"

struct server server;
struct proxy proxy;

static const char *const durable[] = {
    "--appendonly", "yes", "--appendfsync", "always", "--save", "", NULL};

void server_begin(void) {
    char folder[300];

    snprintf(folder, sizeof(folder), "%s/server", temp_folder());
    server_start(&server, folder, "redis-server", false, durable, -1);
}

/* A store on the server itself, and one through the proxy. */
void open_plain(struct conn *c, const char *options) {
    char url[512];

    snprintf(url, sizeof(url), "redis:%s?connect_timeout=100s&%s", server.socket, options);
    conn_open(c, url, HOST_POLL, NULL);
}

static void open_proxied(struct conn *c, enum host_kind kind, const char *options) {
    char url[512];

    snprintf(url, sizeof(url), "redis:%s?%s%s", proxy.path,
             strstr(options, "connect_timeout") != NULL ? "" : "connect_timeout=100s&", options);
    conn_open(c, url, kind, NULL);
    CHECK_INT(lookup(c, "is it there").rc, IDEM_E_ABSENT);
}

void proxied(struct conn *c, enum host_kind kind, const char *options) {
    server_begin();
    proxy_start(&proxy, temp_folder(), "proxy", server.socket);
    open_proxied(c, kind, options);
}

void turn_until(struct conn *c, bool (*holds)(void)) {
    TURN_UNTIL(c, holds());
}

void pass_until(struct conn *c, bool (*holds)(void)) {
    TURN_UNTIL(c, (conn_pass(c, 50), holds()));
}

static unsigned asked_before;

static bool was_asked(void) {
    return proxy.asked > asked_before;
}

/* Submits, and waits until the server has the request. */
void submit_asked(struct conn *c, struct call *call) {
    asked_before = proxy.asked;
    CHECK_INT(call_submit(call), 0);
    turn_until(c, was_asked);
}

const char *numbered(const char *stem, unsigned n) {
    static char texts[4][32];
    static unsigned turn;
    char *text = texts[turn++ % 4];

    snprintf(text, sizeof(texts[0]), "%s%u", stem, n);
    return text;
}
