/*
 * Several hosts in a URL: one of them that is not there does not keep a process that has just
 * started from the others.
 */
#include "ask.h"
#include "fake.h"
#include "server.h"
#include "store/redis/store.h"
#include "temp.h"

static char url[600];

/* A map where the only fake has everything, the master that it is, or that there is no record. */
static bool say_all(const struct fake_command *command, char *out, size_t size) {
    char port[16];

    snprintf(port, sizeof(port), "%d", fakes.port[0]);
    if (fake_is(command, "CLUSTER", "SLOTS"))
        snprintf(out, size, "*1\r\n*3\r\n:0\r\n:%d\r\n*2\r\n$9\r\n127.0.0.1\r\n:%s\r\n",
                 REDIS_SLOTS - 1, port);
    else if (fake_is(command, "SENTINEL", NULL))
        snprintf(out, size, "*2\r\n$9\r\n127.0.0.1\r\n$%zu\r\n%s\r\n", strlen(port), port);
    else
        snprintf(out, size, "*4\r\n$0\r\n\r\n:-1\r\n:1700000000000\r\n:0\r\n");
    return true;
}

/* The first operation of a store that was just opened. */
static void answers(void) {
    int64_t before = idem_loop_now();
    struct answer a;
    struct conn c;

    conn_open(&c, url, HOST_POLL, NULL);
    a = lookup(&c, "k");
    if (a.rc != IDEM_E_ABSENT)
        fprintf(stderr, "# %s: %s\n", url, a.text);
    CHECK_INT(a.rc, IDEM_E_ABSENT);
    CHECK(idem_loop_now() - before < 5000);
    conn_close(&c);
}

static void among(int port) {
    snprintf(url, sizeof(url), "redis+sentinel://127.0.0.1:%d,127.0.0.1:%d/shop", port,
             fakes.port[0]);
    answers();
    snprintf(url, sizeof(url), "redis+cluster://127.0.0.1:%d,127.0.0.1:%d", port, fakes.port[0]);
    answers();
}

TEST(a_sentinel_or_a_server_of_a_cluster_that_is_not_there_does_not_keep_from_the_next) {
    fakes_start(1, say_all);
    among(port_free());
    fakes_stop();
}

TEST_MAIN
