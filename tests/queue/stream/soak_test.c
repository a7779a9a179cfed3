/*
 * Several consumers of one group that do anything allowed with their messages,
 * die and come back, over connections that are cut: in the end each message was
 * handled, and none is pending.
 */
#include "temp.h"
#include "test_consumer.h"

#define CONSUMERS 3
#define MESSAGES 1000

static struct test_consumer consumers[CONSUMERS];
static unsigned seen[MESSAGES], done[MESSAGES];
static unsigned seed;

static unsigned dice(unsigned sides) {
    return (unsigned)rand_r(&seed) % sides;
}

static void open_one(size_t i) {
    char url[300];

    snprintf(url, sizeof(url), "redis:%s?timeout=1s", proxy.path);
    test_consumer_begin(
        &consumers[i],
        &(struct queue_config){.url = url, .consumer = numbered("c", (unsigned)i), .prefetch = 5});
    queue_broker_stream.fetch(consumers[i].link, true);
    test_consumer_hurry(&consumers[i]);
}

static void deal(struct test_consumer *t, size_t i) {
    static const struct queue_dead_fields dead_fields = {.verdict = "dead"};
    unsigned m = (unsigned)strtoul(body_of(t, i) + 1, NULL, 10), what = dice(20);

    CHECK(m < MESSAGES);
    seen[m]++;
    if (what < 9) {
        done[m]++;
        test_consumer_ack(t, i);
    } else if (what < 13) {
        (void)test_consumer_delay(t, i, dice(300));
    } else if (what < 15) {
        test_consumer_give(t, i);
    } else if (what < 16 && test_consumer_bury(t, i, &dead_fields)) {
        done[m]++;
        test_consumer_ack(t, i);
    } else {
        test_consumer_extend(t, i);
    }
}

/* Acts on a message that is out, or kills a consumer, or cuts a connection. */
static void step(void) {
    size_t k = dice(CONSUMERS);
    struct test_consumer *t = &consumers[k];

    test_consumer_turn(t, 1);
    if (dice(150) == 0) {
        test_consumer_close(t); /* with all messages that are out */
        open_one(k);
        return;
    }
    if (dice(30) == 0)
        proxy.cut_after = (long)dice(200);
    for (size_t i = 0; i < t->n; i++)
        if (t->got[i] != NULL && dice(4) == 0)
            deal(t, i);
}

static bool is_all_done(void) {
    for (unsigned m = 0; m < MESSAGES; m++)
        if (done[m] == 0)
            return false;
    return pending("") == 0;
}

TEST(whatever_happens_each_message_is_dealt_with_and_none_stays_pending) {
    const char *given = getenv("IDEM_SEED");
    unsigned added = 0, steps = 0, twice = 0;

    seed = given != NULL ? (unsigned)strtoul(given, NULL, 10) : (unsigned)getpid();
    fprintf(stderr, "# IDEM_SEED=%u\n", seed);
    server_begin();
    proxy_start(&proxy, temp_folder(), "proxy", server.socket);
    for (size_t i = 0; i < CONSUMERS; i++)
        open_one(i);
    while (added < MESSAGES || steps % 50 != 0 || !is_all_done()) {
        if (added < MESSAGES && dice(3) == 0)
            add(numbered("m", added++));
        step();
        steps++;
    }
    for (unsigned m = 0; m < MESSAGES; m++)
        twice += done[m] > 1;
    fprintf(stderr, "# %u steps, %u cuts, %u done more than once\n", steps, proxy.cuts, twice);
    for (size_t i = 0; i < CONSUMERS; i++)
        test_consumer_close(&consumers[i]);
    CHECK_INT(pending(""), 0);
    proxy_stop(&proxy);
}

TEST_MAIN
