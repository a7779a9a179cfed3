/*
 * Several hosts in a URL, several addresses of a name: one that is down, or
 * that never responds, does not keep a process that has just started from
 * reaching the others.
 */
#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "fake_server.h"
#include "loop_clock.h"
#include "server.h"
#include "store/driver_call.h"
#include "store/redis/redis_store.h"
#include "temp.h"
#include "wait.h"

#define CONNECT_MS 10000
#define TIMEOUTS "connect_timeout=10s&timeout=100s"

static char url[600];

/* Replies as the only fake: it owns all slots, is the master, and has no record. */
static bool say_all(const struct fake_command *command, char *out, size_t size) {
    char port[16];

    snprintf(port, sizeof(port), "%d", fakes.port[0]);
    if (fake_is(command, "CLUSTER", "SLOTS"))
        snprintf(out, size, "*1\r\n*3\r\n:0\r\n:%d\r\n*2\r\n$9\r\n127.0.0.1\r\n:%s\r\n",
                 REDIS_SLOTS - 1, port);
    else if (fake_is(command, "ROLE", NULL))
        snprintf(out, size, "*1\r\n$6\r\nmaster\r\n");
    else if (fake_is(command, "SENTINEL", NULL))
        snprintf(out, size, "*2\r\n$9\r\n127.0.0.1\r\n$%zu\r\n%s\r\n", strlen(port), port);
    else
        snprintf(out, size, "*4\r\n$0\r\n\r\n:-1\r\n:1700000000000\r\n:0\r\n");
    return true;
}

/* Replaces the C library's connect(): it counts the connections to the hole. */
static _Atomic unsigned knocks;
static _Atomic int hole_port;

int connect(int fd, __CONST_SOCKADDR_ARG address, socklen_t len) {
    const struct sockaddr_in *in = address.__sockaddr_in__;

    if (in->sin_family == AF_INET && ntohs(in->sin_port) == hole_port)
        knocks++;
    return (int)syscall(SYS_connect, fd, in, len);
}

/* A server that never responds, as if the machine were off: its listener's queue is full. */
struct hole {
    int listener, first;
    struct sockaddr_in address;
};

static void hole_open(struct hole *hole) {
    socklen_t len = sizeof(hole->address);

    hole->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    hole->first = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    hole->address = (struct sockaddr_in){.sin_family = AF_INET};
    hole->address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    CHECK_INT(bind(hole->listener, (struct sockaddr *)&hole->address, len), 0);
    CHECK_INT(listen(hole->listener, 0), 0);
    CHECK_INT(getsockname(hole->listener, (struct sockaddr *)&hole->address, &len), 0);
    CHECK_INT(connect(hole->first, (struct sockaddr *)&hole->address, len), 0);
    hole_port = ntohs(hole->address.sin_port);
}

static void hole_close(struct hole *hole) {
    close(hole->first);
    close(hole->listener);
}

/* The first operation of a store that was just opened. Time passes only once, and only if the
 * first host is silent: half of the connect timeout. */
static void answers(bool silent) {
    struct answer a;
    struct call call;
    struct conn c;

    loop_clock_stop();
    knocks = 0;
    conn_open(&c, url, HOST_POLL, NULL);
    kind_fill(&call, &c, IDEM_OP_LOOKUP, "k");
    CHECK_INT(call_submit(&call), 0);
    if (silent) {
        TURN_UNTIL(&c, knocks > 0);
        CHECK_INT(call.completed, 0);
        loop_clock_forward(CONNECT_MS / 2 + 1);
    }
    a = answer_wait(&call);
    if (a.rc != IDEM_E_ABSENT)
        fprintf(stderr, "# %s: %s\n", url, a.text);
    CHECK_INT(a.rc, IDEM_E_ABSENT);
    conn_close(&c);
}

static void among(int port, bool silent) {
    snprintf(url, sizeof(url), "redis+sentinel://127.0.0.1:%d,127.0.0.1:%d/shop?" TIMEOUTS, port,
             fakes.port[0]);
    answers(silent);
    snprintf(url, sizeof(url), "redis+cluster://127.0.0.1:%d,127.0.0.1:%d?" TIMEOUTS, port,
             fakes.port[0]);
    answers(silent);
}

TEST(a_sentinel_or_a_server_of_a_cluster_that_is_not_there_does_not_keep_from_the_next) {
    fakes_start(1, say_all);
    among(port_free(), false);
    fakes_stop();
}

/* After the first operation no time passes: the others do not wait for another attempt. */
static void is_known_to_be_down(const char *kind, const char *master) {
    struct conn c;

    fakes.at_once = "-ERR not now\r\n";
    snprintf(url, sizeof(url), "redis+%s://127.0.0.1:%d,127.0.0.1:%d%s?" TIMEOUTS, kind,
             fakes.port[0], fakes.port[1], master);
    loop_clock_stop();
    conn_open(&c, url, HOST_EDGE, NULL);
    CHECK_INT(lookup(&c, "k").rc, IDEM_E_REFUSED);
    for (int i = 0; i < 20; i++) {
        CHECK_INT(lookup(&c, "k").rc, IDEM_E_REFUSED);
        fakes_pass(&c, 100);
    }
    fakes.at_once = NULL;
    fakes_pass(&c, 1000); /* the store tries the host at least once in a second */
    CHECK_INT(lookup(&c, "k").rc, IDEM_E_ABSENT);
    conn_close(&c);
}

TEST(sentinels_and_a_cluster_that_never_answered_are_known_to_be_down) {
    fakes_start(2, say_all);
    is_known_to_be_down("sentinel", "/shop");
    is_known_to_be_down("cluster", "");
    fakes_stop();
}

TEST(a_sentinel_or_a_server_of_a_cluster_that_is_silent_does_not_keep_from_the_next) {
    struct hole hole;

    fakes_start(1, say_all);
    hole_open(&hole);
    among(hole_port, true);
    hole_close(&hole);
    fakes_stop();
}

/* Names. This function replaces the system's lookup. */

#define MANY 40

static struct sockaddr_in told[2];
static struct addrinfo infos[MANY];
static _Atomic unsigned lookups;
static _Atomic int rotating[2]; /* two ports, which lookups return in turn */
static _Atomic bool many;       /* each lookup returns many further addresses */

/* Returns one address, or many that begin with it. */
static void rotate(struct addrinfo **restrict ret) {
    static struct sockaddr_in addresses[MANY];
    int port = rotating[lookups % 2];
    size_t n = many ? MANY : 1;

    for (size_t i = 0; i < n; i++) {
        addresses[i] =
            (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
        addresses[i].sin_addr.s_addr = htonl(INADDR_LOOPBACK + (uint32_t)i);
        infos[i] = (struct addrinfo){.ai_family = AF_INET,
                                     .ai_socktype = SOCK_STREAM,
                                     .ai_addrlen = sizeof(addresses[i]),
                                     .ai_addr = (struct sockaddr *)&addresses[i],
                                     .ai_next = i + 1 < n ? &infos[i + 1] : NULL};
    }
    *ret = infos;
    lookups++;
}

int getaddrinfo(const char *restrict name, const char *restrict service,
                const struct addrinfo *restrict hints, struct addrinfo **restrict ret) {
    (void)service;
    (void)hints;
    if (strcmp(name, "rotates.test") == 0) {
        rotate(ret);
        return 0;
    }
    if (strcmp(name, "two.test") != 0)
        return EAI_NONAME;
    for (size_t i = 0; i < 2; i++)
        infos[i] = (struct addrinfo){.ai_family = AF_INET,
                                     .ai_socktype = SOCK_STREAM,
                                     .ai_addrlen = sizeof(told[i]),
                                     .ai_addr = (struct sockaddr *)&told[i],
                                     .ai_next = i == 0 ? &infos[1] : NULL};
    *ret = infos;
    return 0;
}

void freeaddrinfo(struct addrinfo *list) {
    (void)list;
}

static struct sockaddr_in address_of(int port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};

    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
}

TEST(the_second_address_of_a_name_is_tried_where_the_first_refuses_or_is_silent) {
    struct hole hole;

    fakes_start(1, say_all);
    snprintf(url, sizeof(url), "redis://two.test:6379?" TIMEOUTS);
    told[0] = address_of(port_free());
    told[1] = address_of(fakes.port[0]);
    answers(false);
    hole_open(&hole);
    told[0] = hole.address;
    answers(true);
    hole_close(&hole);
    fakes_stop();
}

/* The store looks up the name `n` more times. */
static void watch_for(struct conn *c, unsigned n) {
    for (unsigned i = 0; i < n; i++) {
        unsigned before = lookups;

        WAIT_BY(conn_pass(c, 100), lookups > before);
    }
}

static void rotating_open(struct conn *c) {
    loop_clock_stop();
    fakes_start(2, say_all);
    rotating[0] = rotating[1] = fakes.port[0];
    snprintf(url, sizeof(url), "redis://rotates.test:6379?" TIMEOUTS);
    conn_open(c, url, HOST_POLL, NULL);
    CHECK_INT(lookup(c, "k").rc, IDEM_E_ABSENT);
    CHECK_INT(fakes.met[0], 1);
}

TEST(a_name_whose_lookups_give_its_addresses_in_turn_keeps_its_connection) {
    struct conn c;

    rotating_open(&c);
    rotating[1] = fakes.port[1];
    watch_for(&c, 8);
    CHECK_INT(lookup(&c, "k").rc, IDEM_E_ABSENT);
    CHECK_INT(fakes.met[0], 1);
    CHECK_INT(fakes.met[1], 0);
    rotating[0] = fakes.port[1]; /* the name has moved for good */
    WAIT_UNTIL((watch_for(&c, 1), fakes.met[1] > 0));
    conn_close(&c);
    fakes_stop();
}

/* Of so many addresses, some may be left out. */
TEST(a_name_of_very_many_addresses_keeps_its_connection) {
    struct conn c;

    rotating_open(&c);
    many = true;
    rotating[0] = rotating[1] = fakes.port[1];
    watch_for(&c, 8);
    CHECK_INT(lookup(&c, "k").rc, IDEM_E_ABSENT);
    CHECK_INT(fakes.met[0], 1);
    CHECK_INT(fakes.met[1], 0);
    conn_close(&c);
    fakes_stop();
}

TEST_MAIN
