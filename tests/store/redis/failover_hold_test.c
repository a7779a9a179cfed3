/*
 * Sentinels' reports decide when the store must not write: fake sentinels that
 * lead a failover and disappear, that slept, whose replies are late. The test
 * moves the clock.
 */
#include "contract/conn.h"
#include "fake_server.h"
#include "loop_clock.h"
#include "store/driver_call.h"
#include "store/redis/redis_store.h"
#include "wait.h"

#define SENTINELS 2
#define OLD 2 /* masters; their numbers follow the sentinels' */
#define NEW 3
#define GRACE_MS 3000
#define OPTIONS "timeout=100s&connect_timeout=100s&sentinel_grace=3s"
#define IDS "000000000000000000000000000000000000000"

/* The report of a sentinel. */
static struct {
    _Atomic size_t master;
    _Atomic unsigned epoch;
    _Atomic bool leads; /* is leading a failover */
    _Atomic bool gone;  /* the sentinel closes each connection */
    _Atomic int events; /* the connection that has subscribed */
} views[SENTINELS];

/* The requests that a master got. */
static struct { _Atomic unsigned writes, counts, waits; } masters[FAKES_MAX];

/* Replies that are not sent until the test releases them: to one connection of each fake. */
static struct {
    _Atomic bool on;
    const char *_Atomic word; /* the command to delay; NULL: all */
    _Atomic int client;
    _Atomic unsigned n;
    char text[8192];
} delayed[FAKES_MAX];

static void reply_delay(const struct fake_command *command, char *out) {
    size_t i = command->fake, len = strlen(delayed[i].text);

    if (!delayed[i].on || (delayed[i].word != NULL && !fake_is(command, delayed[i].word, NULL)))
        return;
    snprintf(delayed[i].text + len, sizeof(delayed[i].text) - len, "%s", out);
    out[0] = '\0';
    delayed[i].client = command->client;
    delayed[i].n++;
}

static void delay_begin(size_t i, const char *word) {
    delayed[i].word = word;
    delayed[i].n = 0;
    delayed[i].text[0] = '\0';
    delayed[i].on = true;
}

static void delay_end(size_t i) {
    delayed[i].on = false;
    fake_push(delayed[i].client, delayed[i].text);
}

static _Atomic bool lists_itself;

/* A sentinel as SENTINEL SENTINELS lists it. */
static size_t listed_put(char *out, size_t size, size_t id, const char *ip, int port) {
    char digits[8];

    snprintf(digits, sizeof(digits), "%d", port);
    return (size_t)snprintf(out, size,
                            "*6\r\n$5\r\nrunid\r\n$40\r\n" IDS "%zu\r\n$2\r\nip\r\n$%zu\r\n%s\r\n"
                            "$4\r\nport\r\n$%zu\r\n%s\r\n",
                            id, strlen(ip), ip, strlen(digits), digits);
}

static void sentinels_list(size_t i, char *out, size_t size) {
    size_t len;

    if (i == 0) {
        len = (size_t)snprintf(out, size, "*1\r\n");
        listed_put(out + len, size - len, 1, "127.0.0.1", fakes.port[1]);
    } else if (lists_itself) {
        len = (size_t)snprintf(out, size, "*2\r\n");
        len += listed_put(out + len, size - len, 1, "127.0.0.2", 9);
        listed_put(out + len, size - len, 1, "127.0.0.3", 9);
    } else {
        snprintf(out, size, "*0\r\n");
    }
}

static void view_put(size_t i, bool address_only, char *out, size_t size) {
    const char *flags = views[i].leads ? "master,failover_in_progress" : "master";
    char port[8];

    snprintf(port, sizeof(port), "%d", fakes.port[views[i].master]);
    if (address_only)
        snprintf(out, size, "*2\r\n$9\r\n127.0.0.1\r\n$%zu\r\n%s\r\n", strlen(port), port);
    else
        snprintf(out, size,
                 "*8\r\n$2\r\nip\r\n$9\r\n127.0.0.1\r\n$4\r\nport\r\n$%zu\r\n%s\r\n$5\r\nflags\r\n"
                 "$%zu\r\n%s\r\n$12\r\nconfig-epoch\r\n$1\r\n%u\r\n",
                 strlen(port), port, strlen(flags), flags, views[i].epoch);
}

static void subscribed_put(const struct fake_command *command, char *out, size_t size) {
    size_t len = 0;

    for (size_t i = 1; i < command->n; i++)
        len += (size_t)snprintf(out + len, size - len,
                                "*3\r\n$9\r\nsubscribe\r\n$%zu\r\n%s\r\n:%zu\r\n",
                                strlen(command->word[i]), command->word[i], i);
}

static bool sentinel_say(const struct fake_command *command, char *out, size_t size) {
    size_t i = command->fake;

    if (views[i].gone)
        return false;
    if (fake_is(command, "SUBSCRIBE", NULL)) {
        views[i].events = command->client;
        subscribed_put(command, out, size);
    } else if (fake_is(command, "PING", NULL)) {
        snprintf(out, size, "*2\r\n$4\r\npong\r\n$0\r\n\r\n");
    } else if (fake_is(command, "SENTINEL", "MYID")) {
        snprintf(out, size, "$40\r\n" IDS "%zu\r\n", i);
        reply_delay(command, out);
    } else if (fake_is(command, "SENTINEL", "SENTINELS")) {
        sentinels_list(i, out, size);
        reply_delay(command, out);
    } else {
        view_put(i, fake_is(command, "SENTINEL", "GET-MASTER-ADDR-BY-NAME"), out, size);
        reply_delay(command, out);
    }
    return true;
}

static bool master_say(const struct fake_command *command, char *out, size_t size) {
    size_t i = command->fake;

    masters[i].writes += fake_is(command, "SET", NULL);
    masters[i].counts += fake_is(command, "HINCRBY", NULL);
    masters[i].waits += fake_is(command, "WAIT", NULL);
    if (fake_is(command, "ROLE", NULL))
        snprintf(out, size, "*1\r\n$6\r\nmaster\r\n");
    else if (fake_is(command, "PUBLISH", NULL))
        snprintf(out, size, ":0\r\n");
    else if (fake_is(command, "HELLO", NULL))
        snprintf(out, size, "*2\r\n$4\r\nmode\r\n$10\r\nstandalone\r\n");
    else if (fake_is(command, "SET", NULL) && strcmp(command->word[4], "GET") == 0)
        snprintf(out, size, "$-1\r\n");
    else if (fake_is(command, "SET", NULL))
        snprintf(out, size, "+OK\r\n");
    else
        snprintf(out, size, ":1\r\n");
    reply_delay(command, out);
    return true;
}

static bool say(const struct fake_command *command, char *out, size_t size) {
    return command->fake < SENTINELS ? sentinel_say(command, out, size)
                                     : master_say(command, out, size);
}

static struct redis_store *store_of(const struct conn *c) {
    return idem_container_of(c->store, struct redis_store, remote.base);
}

static bool is_held(const struct conn *c) {
    return redis_sentinel_holds(store_of(c));
}

static void open_store(struct conn *c, const char *options) {
    char url[300];

    loop_clock_stop();
    fakes_start(4, say);
    for (size_t i = 0; i < SENTINELS; i++) {
        if (views[i].epoch == 0)
            views[i].epoch = 3;
        if (views[i].master == 0)
            views[i].master = OLD;
    }
    snprintf(url, sizeof(url), "redis+sentinel://127.0.0.1:%d,127.0.0.1:%d/shop?" OPTIONS "%s",
             fakes.port[0], fakes.port[1], options);
    conn_open(c, url, HOST_EDGE, NULL);
    fakes_settle(c);
}

static void begin(struct conn *c, const char *options) {
    open_store(c, options);
    CHECK(store_of(c)->nodes != NULL && store_of(c)->nodes->conn.state == REDIS_CONN_READY);
    CHECK(!is_held(c));
}

static void end(struct conn *c) {
    conn_close(c);
    fakes_stop();
}

static void event_publish(size_t i, const char *channel, const char *text) {
    char out[400];

    snprintf(out, sizeof(out), "*3\r\n$7\r\nmessage\r\n$%zu\r\n%s\r\n$%zu\r\n%s\r\n",
             strlen(channel), channel, strlen(text), text);
    fake_push(views[i].events, out);
}

static void failover_begin(size_t i) {
    char text[200];

    views[i].leads = true;
    snprintf(text, sizeof(text), "slave r 127.0.0.1 %d @ shop 127.0.0.1 %d", fakes.port[NEW],
             fakes.port[OLD]);
    event_publish(i, "+selected-slave", text);
}

static void failover_abort(size_t i) {
    char text[200];

    views[i].leads = false;
    snprintf(text, sizeof(text), "master shop 127.0.0.1 %d", fakes.port[OLD]);
    event_publish(i, "-failover-abort-not-elected", text);
}

static void switch_publish(size_t i, size_t from, size_t to) {
    char text[200];

    snprintf(text, sizeof(text), "shop 127.0.0.1 %d 127.0.0.1 %d", fakes.port[from],
             fakes.port[to]);
    event_publish(i, "+switch-master", text);
}

/* A claim that this master grants at once. */
static void check_granted(struct conn *c, size_t master, const char *key) {
    unsigned before = masters[master].writes;
    struct call call;

    claim_fill(&call, c, key, 7);
    CHECK_INT(call_submit(&call), 0);
    fakes_settle(c);
    CHECK_INT(call.completed, 1);
    CHECK_INT(call.rc, 0);
    CHECK_INT(call.op.out.claim.verdict, IDEM_RUN);
    CHECK_INT(masters[master].writes, before + 1);
}

/* A sentinel that disappears. */

TEST(a_failover_whose_leader_is_lost_is_waited_for_and_then_given_up) {
    struct conn c;
    struct call call;

    begin(&c, "");
    views[0].leads = true;
    fakes_pass(&c, 1000);
    CHECK(is_held(&c));
    once_fill(&call, &c, "n");
    CHECK_INT(call_submit(&call), 0);
    views[0].gone = true;
    fakes_pass(&c, GRACE_MS);
    CHECK(is_held(&c));
    CHECK_INT(masters[OLD].writes, 0);
    fakes_pass(&c, 2000); /* one round, and the next, which notices */
    CHECK(!is_held(&c));
    CHECK_INT(call.rc, IDEM_E_REFUSED);
    CHECK_INT(masters[OLD].writes, 0);
    check_granted(&c, OLD, "k");
    end(&c);
}

TEST(a_failover_whose_leader_is_lost_is_over_when_another_sentinel_names_the_new_master) {
    struct conn c;

    begin(&c, "");
    failover_begin(0);
    fakes_settle(&c);
    views[0].gone = true;
    fakes_pass(&c, 1000);
    CHECK(is_held(&c));
    views[1].epoch = 4;
    views[1].master = NEW;
    switch_publish(1, OLD, NEW);
    fakes_pass(&c, 100);
    CHECK(!is_held(&c));
    check_granted(&c, NEW, "k");
    CHECK_INT(masters[OLD].writes, 0);
    end(&c);
}

TEST(
    a_master_that_only_a_lost_sentinel_knew_is_not_left_for_a_former_one_before_the_grace_is_over) {
    struct conn c;
    struct call call;

    views[0].epoch = 4;
    views[0].master = NEW;
    begin(&c, "");
    check_granted(&c, NEW, "before");
    views[0].gone = true;
    fakes_pass(&c, 1000);
    CHECK(is_held(&c));
    once_fill(&call, &c, "n");
    CHECK_INT(call_submit(&call), 0);
    fakes_pass(&c, GRACE_MS - 1000 - 100);
    CHECK_INT(masters[OLD].writes, 0);
    CHECK_INT(masters[NEW].writes, 1);
    CHECK_INT(fakes.met[OLD], 0);
    fakes_pass(&c, 2000);
    CHECK(!is_held(&c));
    CHECK(fakes.met[OLD] > 0);
    check_granted(&c, OLD, "after");
    end(&c);
}

/* Replies that are late. */

TEST(a_reply_that_comes_after_a_failover_began_is_asked_again) {
    struct call claimed, once;
    struct conn c;

    begin(&c, "");
    delay_begin(OLD, NULL);
    claim_fill(&claimed, &c, "k", 1);
    CHECK_INT(call_submit(&claimed), 0);
    once_fill(&once, &c, "n");
    CHECK_INT(call_submit(&once), 0);
    fakes_settle(&c);
    CHECK_INT(masters[OLD].writes, 2);
    failover_begin(0);
    fakes_settle(&c);
    CHECK(is_held(&c));
    delay_end(OLD);
    fakes_settle(&c);
    CHECK_INT(claimed.completed, 0);
    CHECK_INT(once.completed, 1);
    CHECK_INT(once.rc, IDEM_E_UNKNOWN);
    failover_abort(0);
    fakes_pass(&c, 100);
    CHECK_INT(claimed.completed, 1);
    CHECK_INT(claimed.op.out.claim.verdict, IDEM_RUN);
    CHECK_INT(masters[OLD].writes, 3);
    end(&c);
}

TEST(a_change_that_replicas_have_is_asked_again_where_a_failover_began_meanwhile) {
    struct conn c;
    struct call call;

    begin(&c, "&replicas=1");
    check_granted(&c, OLD, "before");
    CHECK_INT(masters[OLD].waits, 1);
    delay_begin(OLD, "WAIT");
    claim_fill(&call, &c, "k", 1);
    CHECK_INT(call_submit(&call), 0);
    fakes_settle(&c);
    CHECK_INT(masters[OLD].waits, 2);
    CHECK_INT(call.completed, 0);
    failover_begin(0);
    fakes_settle(&c);
    delay_end(OLD);
    fakes_settle(&c);
    CHECK_INT(call.completed, 0);
    failover_abort(0);
    fakes_pass(&c, 100);
    CHECK_INT(call.completed, 1);
    CHECK_INT(call.op.out.claim.verdict, IDEM_RUN);
    CHECK_INT(masters[OLD].writes, 3);
    end(&c);
}

TEST(a_sentinels_reply_from_before_its_event_does_not_end_a_failover) {
    struct conn c;
    struct call call;

    begin(&c, "");
    delay_begin(0, NULL);
    fakes_pass(&c, 1000);
    CHECK_INT(delayed[0].n, 2);
    failover_begin(0);
    fakes_settle(&c);
    CHECK(is_held(&c));
    delay_end(0);
    fakes_settle(&c);
    CHECK(is_held(&c));
    once_fill(&call, &c, "n");
    CHECK_INT(call_submit(&call), 0);
    fakes_settle(&c);
    CHECK_INT(masters[OLD].writes, 0);
    end(&c);
}

TEST(a_sentinels_reply_from_before_its_event_does_not_bring_the_old_master_back) {
    struct conn c;

    begin(&c, "");
    failover_begin(0);
    fakes_settle(&c);
    fakes_pass(&c, 50);
    delay_begin(0, NULL);
    fakes_pass(&c, 1000);
    CHECK_INT(delayed[0].n, 2);
    switch_publish(0, OLD, NEW);
    fakes_settle(&c);
    delay_end(0);
    fakes_settle(&c);
    CHECK(!is_held(&c));
    check_granted(&c, NEW, "k");
    CHECK_INT(masters[OLD].writes, 0);
    end(&c);
}

/* A sentinel that slept. */

TEST(a_late_switch_of_a_sentinel_that_slept_leads_to_no_former_master) {
    struct conn c;
    struct call call;

    views[0].epoch = 5; /* back to the first master, after two failovers */
    begin(&c, "");
    delay_begin(1, NULL);
    views[1].epoch = 4;
    views[1].master = NEW;
    switch_publish(1, OLD, NEW);
    fakes_settle(&c);
    CHECK(is_held(&c));
    fakes_pass(&c, 100);
    once_fill(&call, &c, "n");
    CHECK_INT(call_submit(&call), 0);
    fakes_settle(&c);
    CHECK_INT(masters[OLD].writes, 0);
    CHECK_INT(delayed[1].n, 2);
    delay_end(1);
    fakes_pass(&c, 100);
    CHECK(!is_held(&c));
    CHECK_INT(call.rc, 0);
    CHECK_INT(call.completed, 1);
    CHECK_INT(masters[OLD].writes, 1);
    CHECK_INT(fakes.met[NEW], 0);
    end(&c);
}

/* The first sentinel to respond may have slept through a failover. */
TEST(a_process_that_starts_does_not_follow_the_first_sentinel_that_answers) {
    struct conn c;
    struct call call;

    views[1].epoch = 4;
    views[1].master = NEW;
    delay_begin(1, NULL);
    open_store(&c, "");
    claim_fill(&call, &c, "k", 1);
    CHECK_INT(call_submit(&call), 0);
    fakes_pass(&c, 1500);
    CHECK_INT(call.completed, 0);
    CHECK_INT(fakes.met[OLD], 0);
    delay_end(1);
    fakes_pass(&c, 100);
    CHECK_INT(call.completed, 1);
    CHECK_INT(call.rc, 0);
    CHECK_INT(masters[NEW].writes, 1);
    CHECK_INT(fakes.met[OLD], 0);
    end(&c);
}

TEST(a_learnt_sentinel_that_lists_itself_at_another_address_is_kept) {
    struct conn c;
    char url[200];

    loop_clock_stop();
    fakes_start(4, say);
    lists_itself = true;
    for (size_t i = 0; i < SENTINELS; i++) {
        views[i].epoch = 3;
        views[i].master = OLD;
    }
    snprintf(url, sizeof(url), "redis+sentinel://127.0.0.1:%d/shop?" OPTIONS, fakes.port[0]);
    conn_open(&c, url, HOST_EDGE, NULL);
    fakes_settle(&c);
    fakes_pass(&c, 12000); /* every tenth round asks for the other sentinels */
    CHECK_INT(fakes.met[1], 2);
    CHECK(fakes.asked[1] > 10);
    end(&c);
}

/* Counts. */

TEST(counts_are_not_sent_to_the_old_master_during_a_failover) {
    struct conn c;

    begin(&c, "");
    failover_begin(0);
    fakes_settle(&c);
    c.store->driver->tally(c.store, IDEM_EVENT_RUN, 1);
    fakes_pass(&c, 2000);
    CHECK_INT(masters[OLD].counts, 0);
    failover_abort(0);
    fakes_pass(&c, 1100);
    CHECK_INT(masters[OLD].counts, 1);
    end(&c);
}

TEST(counts_that_the_old_master_took_as_a_failover_began_are_sent_again) {
    struct conn c;

    begin(&c, "");
    c.store->driver->tally(c.store, IDEM_EVENT_RUN, 1);
    delay_begin(OLD, NULL);
    fakes_pass(&c, 1100);
    CHECK_INT(masters[OLD].counts, 1);
    failover_begin(0);
    fakes_settle(&c);
    delay_end(OLD);
    fakes_settle(&c);
    views[0].leads = false;
    views[0].epoch = 4;
    views[0].master = NEW;
    switch_publish(0, OLD, NEW);
    fakes_pass(&c, 1100);
    CHECK_INT(masters[NEW].counts, 1);
    end(&c);
}

/* Closing. */

static void store_close(struct call *call) {
    conn_close_store(call->conn);
}

TEST(a_callback_may_close_the_store_when_the_master_moves_while_replicas_are_waited_for) {
    struct conn c;
    struct call call;

    begin(&c, "&replicas=1");
    once_fill(&call, &c, "n");
    call.then = store_close;
    delay_begin(OLD, "WAIT");
    CHECK_INT(call_submit(&call), 0);
    fakes_settle(&c);
    CHECK_INT(masters[OLD].waits, 1);
    CHECK_INT(call.completed, 0);
    failover_begin(0);
    fakes_settle(&c);
    switch_publish(0, OLD, NEW);
    TURN_UNTIL(&c, call.completed == 1);
    CHECK_INT(call.rc, IDEM_E_UNKNOWN);
    end(&c);
}

TEST_MAIN
