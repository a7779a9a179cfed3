/*
 * Faults of the broker's connections, its server, its stream and its group
 * while messages are out: none is lost, and an entry that comes twice is the
 * same one.
 */
#include "loop_clock.h"
#include "store/redis/fake_server.h"
#include "store/redis/farm.h"
#include "temp.h"
#include "test_consumer.h"

/* With this lease no periodic work happens before a test has ended. */
#define LONG_LEASE 3600000

/* A timeout that no busy machine reaches, and that the loop's clock can pass at once. */
#define PATIENT "timeout=60s&connect_timeout=60s"
#define PATIENT_MS 60000
#define BLOCK_MS 600000

static void proxied_begin(void) {
    server_begin();
    proxy_start(&proxy, temp_folder(), "proxy", server.socket);
}

static size_t came(const struct test_consumer *t, const char *id) {
    size_t n = 0;

    for (size_t i = 0; i < t->n; i++)
        n += strcmp(t->ids[i], id) == 0;
    return n;
}

/* Servers. */

TEST(a_server_that_dies_with_messages_out_keeps_them_ours) {
    struct test_consumer t;

    server_begin();
    add_n(6, 0);
    test_consumer_open(&t, &(struct queue_config){.prefetch = 4});
    test_consumer_until(&t, 4);
    CHECK(test_consumer_delay(&t, 3, 600000));
    server_stop(&server);
    test_consumer_until_text(&t, "it is tried again");
    CHECK(!t.ready);
    test_consumer_ack(&t, 0);
    /* sleep: until an attempt has failed; any moment will do */
    test_consumer_idle(&t, 300);
    server_begin();
    test_consumer_ack(&t, 1);
    test_consumer_until(&t, 6);
    test_consumer_ack(&t, 4);
    test_consumer_due(&t);
    test_consumer_until(&t, 7);
    CHECK_INT(t.gone, 0);
    CHECK(t.ready);
    test_consumer_ack(&t, 2);
    CHECK_STR(body_of(&t, 5), "m5");
    for (size_t i = 5; i < 7; i++)
        test_consumer_ack(&t, i);
    for (size_t i = 0; i < 7; i++)
        CHECK_INT(came(&t, t.ids[i]), i == 3 || strcmp(t.ids[i], t.ids[3]) == 0 ? 2 : 1);
    pending_until(&t, "", 0);
    test_consumer_close(&t);
}

TEST(a_server_that_lost_its_data_makes_what_is_out_gone) {
    struct test_consumer t;

    server_begin_light();
    add_n(5, 0);
    test_consumer_open(&t, &(struct queue_config){.prefetch = 4});
    test_consumer_until(&t, 4);
    CHECK(test_consumer_delay(&t, 1, 60000));
    test_consumer_until(&t, 5);
    test_consumer_ack(&t, 4);
    server_stop(&server);
    server_begin_light();
    test_consumer_until_gone(&t, 3);
    CHECK_STR(body_of(&t, 0), "m0"); /* the message is still readable */
    test_consumer_ack(&t, 0);
    test_consumer_give(&t, 2);
    CHECK(test_consumer_delay(&t, 3, 1));
    add("new");
    test_consumer_until(&t, 6);
    CHECK_STR(body_of(&t, 5), "new");
    test_consumer_ack(&t, 5);
    pending_until(&t, "", 0);
    /* sleep: only time shows that nothing more comes */
    test_consumer_idle(&t, 500);
    CHECK_INT(t.n, 6);
    CHECK_INT(t.gone, 3);
    CHECK_HAS(t.text, "group idem was not there");
    test_consumer_close(&t);
}

TEST(a_server_that_is_paused_is_used_again_when_it_goes_on) {
    struct test_consumer t;
    char url[400];

    server_begin();
    add_n(3, 0);
    snprintf(url, sizeof(url), "redis:%s?timeout=1s&connect_timeout=1s", server.socket);
    test_consumer_open(&t, &(struct queue_config){.url = url, .prefetch = 2});
    test_consumer_until(&t, 2);
    server_pause(&server);
    test_consumer_ack(&t, 0);
    test_consumer_until_text(&t, "no response within 1000 ms");
    server_go_on(&server);
    test_consumer_ack(&t, 1);
    test_consumer_until(&t, 3);
    test_consumer_ack(&t, 2);
    pending_until(&t, "", 0);
    CHECK_INT(t.n, 3);
    CHECK_INT(t.gone, 0);
    test_consumer_close(&t);
}

/* A read may block for longer than the timeout of other commands. */
TEST(silence_while_a_read_blocks_is_no_loss) {
    struct test_consumer t;
    char url[400];

    server_begin();
    snprintf(url, sizeof(url), "redis:%s?" PATIENT, server.socket);
    test_consumer_open(&t, &(struct queue_config){.url = url});
    add("m");
    test_consumer_until(&t, 1);
    test_consumer_ack(&t, 0);
    blocked_until(&t, 1);
    test_consumer_sync(&t); /* only the read is under way */
    loop_clock_stop();
    loop_clock_forward(PATIENT_MS + 1000);
    calls_until(&t, "xpending", 1); /* the periodic work has happened */
    CHECK_INT(t.states, 2);         /* made, connected */
    loop_clock_go_on();
    add("m");
    test_consumer_until(&t, 2);
    test_consumer_close(&t);
}

/* Connections. */

TEST(answers_that_are_cut_at_any_byte_lose_nothing_and_bring_nothing_twice) {
    struct test_consumer t;
    size_t acked = 0, n = 0;

    proxied_begin();
    test_consumer_open_proxied(&t, "me", PATIENT, LONG_LEASE);
    for (long at = 0; at < 140; at += 7) {
        unsigned before = proxy.cuts;

        proxy.cut_after = at;
        add(numbered("m", (unsigned)n++));
        test_consumer_until(&t, n);
        for (; acked < n; acked++)
            test_consumer_ack(&t, acked);
        WAIT_BY(test_consumer_turn(&t, 20),
                proxy.cuts > before); /* every second there is a response */
    }
    pending_until(&t, "", 0);
    CHECK_INT(t.n, n);
    CHECK_INT(t.gone, 0);
    for (size_t i = 0; i < n; i++)
        CHECK_INT(came(&t, t.ids[i]), 1);
    test_consumer_close(&t);
    proxy_stop(&proxy);
}

TEST(an_ack_whose_answer_is_lost_is_said_again) {
    struct test_consumer t;

    proxied_begin();
    add_n(3, 0);
    test_consumer_open_proxied(&t, "me", PATIENT, LONG_LEASE);
    test_consumer_until(&t, 3);
    proxy.deaf_at = "XACK"; /* the server never gets it */
    test_consumer_ack(&t, 0);
    test_consumer_ack(&t, 1);
    WAIT_BY(test_consumer_turn(&t, 10), proxy.deaf_at == NULL);
    CHECK_INT(pending("me"), 3);
    loop_clock_forward(PATIENT_MS);
    pending_until(&t, "me", 1);
    CHECK_INT(t.n, 3);
    test_consumer_close(&t);
    proxy_stop(&proxy);
}

TEST(entries_of_an_answer_that_never_came_are_found_as_our_own) {
    struct test_consumer t;

    proxied_begin();
    test_consumer_open_proxied(&t, "me", PATIENT, LONG_LEASE);
    test_consumer_block(&t, BLOCK_MS);
    add("m");
    test_consumer_until(&t, 1); /* so that the next read is the longer one */
    test_consumer_ack(&t, 0);
    pending_until(&t, "", 0);
    blocked_until(&t, 1);
    proxy.swallow = true;
    add_n(3, 0);
    pending_until(&t, "me", 1); /* the blocked read got it */
    WAIT_UNTIL(proxy.swallowed > 0);
    CHECK_INT(t.n, 1);
    loop_clock_forward(BLOCK_MS + PATIENT_MS);
    test_consumer_until_text(&t, "no response within");
    proxy.swallow = false;
    loop_clock_forward(PATIENT_MS); /* greetings whose replies were swallowed, too */
    test_consumer_until(&t, 4);
    for (size_t i = 0; i < 3; i++) {
        CHECK_STR(body_of(&t, i + 1), numbered("m", (unsigned)i));
        test_consumer_ack(&t, i + 1);
    }
    pending_until(&t, "", 0);
    CHECK_INT(t.n, 4);
    test_consumer_close(&t);
    proxy_stop(&proxy);
}

TEST(a_burial_whose_answer_is_lost_is_not_taken) {
    static const struct queue_dead_fields dead_fields = {.verdict = "dead"};
    unsigned before;
    struct test_consumer t;

    proxied_begin();
    add("m");
    test_consumer_open_proxied(&t, "me", PATIENT, LONG_LEASE);
    test_consumer_until(&t, 1);
    proxy.deaf_at = "XADD";
    before = test_consumer_bury_begin(&t, 0, &dead_fields);
    WAIT_BY(test_consumer_turn(&t, 10), proxy.deaf_at == NULL);
    loop_clock_forward(PATIENT_MS);
    CHECK(!test_consumer_told(&t, before));
    CHECK_HAS(t.why, "connection was lost");
    CHECK(!test_consumer_bury(&t, 0, &dead_fields));
    CHECK_HAS(t.why, "no connection");
    while (!test_consumer_bury(&t, 0, &dead_fields))
        test_consumer_turn(&t, 20);
    test_consumer_close(&t);
    proxy_stop(&proxy);
}

TEST(who_was_away_for_too_long_leaves_to_others_what_they_have_taken) {
    struct test_consumer a, b;

    server_begin_timed();
    proxy_start(&proxy, temp_folder(), "proxy", server.socket);
    add_n(4, 0);
    test_consumer_open_proxied(&a, "a", "timeout=1s", 0);
    test_consumer_until(&a, 4);
    test_consumer_hurry(&a);
    CHECK(test_consumer_delay(&a, 3, 600000));
    test_consumer_sync(&a);
    proxy_stop(&proxy);
    test_consumer_until_text(&a, "it is tried again");
    time_pass(4000);
    test_consumer_open_as(&b, "b");
    test_consumer_hurry(&b);
    test_consumer_until(&b, 4);
    test_consumer_ack(&b, 1);
    pending_until(&b, "", 3);
    proxy_start(&proxy, temp_folder(), "proxy", server.socket);
    test_consumer_until_gone(&a, 1); /* the message that is pending nowhere */
    test_consumer_due(&a);
    /* sleep: only time shows that nothing more comes */
    test_consumer_idle(&a, 200);
    test_consumer_sync(&a);
    CHECK_INT(a.n, 4); /* the delayed one does not come: b has it */
    CHECK_INT(a.gone, 1);
    CHECK_INT(pending("b"), 3);
    test_consumer_ack(&a, 0); /* acknowledged, whichever consumer has it */
    pending_until(&a, "b", 2);
    test_consumer_give(&a, 2); /* another consumer has it */
    test_consumer_ack(&a, 1);
    test_consumer_sync(&a);
    CHECK_INT(pending("b"), 2);
    CHECK_INT(a.n, 4);
    test_consumer_close(&a);
    test_consumer_close(&b);
    proxy_stop(&proxy);
}

/* The stream and its group. */

static void taken_away(const char *first, const char *second, const char *third) {
    struct test_consumer t;

    server_begin();
    add_n(3, 0);
    test_consumer_open(&t, &(struct queue_config){.prefetch = 4});
    test_consumer_until(&t, 3);
    test_consumer_ack(&t, 0);
    pending_until(&t, "", 2);
    if (third != NULL)
        say(first, second, third, "idem", NULL);
    else if (second != NULL)
        say(first, second, NULL);
    else
        say(first, NULL);
    test_consumer_until_gone(&t, 2);
    test_consumer_until_text(&t, "not there any more");
    test_consumer_ack(&t, 1);
    test_consumer_ack(&t, 2);
    if (third == NULL)
        add_n(3, 0);
    test_consumer_until(&t, 6); /* from the beginning: the records know which are done */
    for (size_t i = 3; i < 6; i++) {
        CHECK_STR(body_of(&t, i), numbered("m", (unsigned)i - 3));
        test_consumer_ack(&t, i);
    }
    pending_until(&t, "", 0);
    /* sleep: only time shows that nothing more comes */
    test_consumer_idle(&t, 300);
    CHECK_INT(t.n, 6);
    CHECK_INT(t.gone, 2);
    test_consumer_close(&t);
}

TEST(a_group_that_was_destroyed_is_made_anew_and_what_was_out_is_gone) {
    taken_away("XGROUP", "DESTROY", "q");
}

TEST(a_stream_that_was_deleted_is_made_anew_and_what_was_out_is_gone) {
    taken_away("DEL", "q", NULL);
}

TEST(a_server_that_was_flushed_is_used_anew_and_what_was_out_is_gone) {
    taken_away("FLUSHALL", NULL, NULL);
}

/* So fast that no command meets a stream without a group: these are new entries under known ids. */
TEST(a_group_that_begins_anew_behind_our_back_is_noticed) {
    struct test_consumer t;
    char url[400];

    server_begin();
    for (int i = 1; i <= 2; i++)
        say("XADD", "q", numbered("1-", (unsigned)i), "body", "x", NULL);
    snprintf(url, sizeof(url), "redis:%s", server.socket);
    test_consumer_open(&t, &(struct queue_config){.url = url, .prefetch = 2});
    test_consumer_until(&t, 2);
    say("EVAL",
        "redis.call('XGROUP', 'DESTROY', 'q', 'idem') "
        "redis.call('XGROUP', 'CREATE', 'q', 'idem', '0') return 1",
        "0", NULL);
    test_consumer_extend(&t, 0);
    test_consumer_until_gone(&t, 1);
    test_consumer_ack(&t, 0);
    test_consumer_until(&t, 3);
    CHECK_STR(t.ids[2], "1-1");
    test_consumer_ack(&t, 2);
    test_consumer_until_gone(&t, 2); /* 1-2 came as a new entry, while the old one was out */
    test_consumer_ack(&t, 1);
    test_consumer_until(&t, 4);
    CHECK_STR(t.ids[3], "1-2");
    test_consumer_ack(&t, 3);
    pending_until(&t, "", 0);
    test_consumer_close(&t);
}

TEST(a_name_that_is_no_stream_is_told_and_tried_until_it_is_mended) {
    struct test_consumer t;

    server_begin();
    say("SET", "q", "x", NULL);
    test_consumer_begin(&t, &(struct queue_config){.prefetch = 4});
    queue_broker_stream.fetch(t.link, true);
    test_consumer_until_text(&t, "no stream");
    CHECK(!t.ready);
    /* sleep: only time shows that the command is not sent again */
    test_consumer_idle(&t, 1000);
    CHECK_INT(t.states, 1); /* the state is reported once */
    say("DEL", "q", NULL);
    add("m");
    test_consumer_until(&t, 1);
    say("SET", "q", "x", NULL);
    test_consumer_until_gone(&t, 1);
    say("DEL", "q", NULL);
    add("n");
    test_consumer_until(&t, 2);
    test_consumer_close(&t);
}

/* The rights of users. */

static struct farm farm;

static void farm_taker(struct test_consumer *t, enum farm_kind kind, char *url, size_t size) {
    farm_start(&farm, kind, temp_folder(), -1);
    farm_url(&farm, "", url, size);
    server = farm.servers[0];
    test_consumer_begin(t, &(struct queue_config){.url = url, .consumer = "me"});
    queue_broker_stream.fetch(t->link, true);
}

TEST(a_user_a_password_and_a_database_are_used) {
    struct test_consumer t;
    char url[1200];

    farm_taker(&t, FARM_TCP, url, sizeof(url));
    test_consumer_until_text(&t, "connected to localhost");
    CHECK_STR(say("EXISTS", "q", NULL), ":0\r\n");
    CHECK(strstr(t.text, "a:b") == NULL);
    test_consumer_close(&t);
    farm_stop(&farm);
}

TEST(a_wrong_password_is_told_and_never_shown) {
    struct test_consumer t;
    char url[1200];

    farm_start(&farm, FARM_TCP, temp_folder(), -1);
    snprintf(url, sizeof(url), "redis://idem:geheim@127.0.0.1:%d", farm.servers[0].port);
    test_consumer_begin(&t, &(struct queue_config){.url = url});
    test_consumer_until_text(&t, "refuses the user or the password");
    /* sleep: only time shows that the login fails */
    test_consumer_idle(&t, 500);
    CHECK(!t.ready);
    CHECK(strstr(t.text, "geheim") == NULL);
    test_consumer_close(&t);
    server = farm.servers[0];
    say("ACL", "SETUSER", "default", "on", ">x", NULL);
    snprintf(url, sizeof(url), "redis://127.0.0.1:%d", farm.servers[0].port);
    test_consumer_begin(&t, &(struct queue_config){.url = url});
    test_consumer_until_text(&t, "wants a password");
    test_consumer_close(&t);
    farm_stop(&farm);
}

TEST(tls_is_spoken) {
    struct test_consumer t;
    char url[1200];

    farm_taker(&t, FARM_TLS, url, sizeof(url));
    test_consumer_until_text(&t, "connected to localhost");
    add_n(200, 0);
    for (unsigned i = 0; i < 200; i++) {
        test_consumer_until(&t, i + 1);
        CHECK_STR(body_of(&t, i), numbered("m", i));
        test_consumer_ack(&t, i);
    }
    pending_until(&t, "", 0);
    test_consumer_close(&t);
    farm_stop(&farm);
}

/* A user of the server, with the password pw. */
static const char *url_of_user(const char *user) {
    static char url[700];
    char path[300];
    FILE *file;

    snprintf(path, sizeof(path), "%s/pw", temp_folder());
    file = fopen(path, "w");
    CHECK(file != NULL && fputs("pw", file) >= 0 && fclose(file) == 0);
    snprintf(url, sizeof(url), "redis:%s?user=%s&password_file=%s&" PATIENT, server.socket, user,
             path);
    return url;
}

TEST(a_user_who_may_not_is_told_so) {
    struct test_consumer t;

    server_begin();
    add("m");
    say("ACL", "SETUSER", "poor", "on", ">pw", "~*", "+client", "+xpending", "+xgroup",
        "+xreadgroup", NULL);
    test_consumer_open(&t, &(struct queue_config){.url = url_of_user("poor")});
    test_consumer_until(&t, 1);
    test_consumer_ack(&t, 0);
    test_consumer_until_text(&t, "XACK: the user may not do that");
    /* sleep: only time shows that the command is not sent again */
    test_consumer_idle(&t, 300); /* only time shows that the command is not sent again */
    CHECK_INT(pending("me"), 1);
    say("ACL", "SETUSER", "poor", "+@all", NULL);
    pending_until(&t, "", 0);
    CHECK_INT(t.n, 1);
    test_consumer_close(&t);
}

/* The rights that stream.h lists. */
TEST(a_user_who_may_what_is_needed_can_do_everything) {
    static const struct queue_dead_fields dead_fields = {.verdict = "dead"};
    struct idem_error err = {0};
    struct queue_letter letter;
    struct queue_dead *dead = NULL;
    struct test_consumer a, t;

    server_begin_timed();
    add_n(4, 0);
    say("ACL", "SETUSER", "enough", "on", ">pw", "~q", "~q.dead", "+xreadgroup", "+xack", "+xadd",
        "+xpending", "+xclaim", "+xautoclaim", "+xrange", "+xgroup|create", "+eval",
        "+client|setname", "+client|id", "+client|list", "+client|unblock", "+type", "+xdel",
        "+xrevrange", NULL);
    test_consumer_open(&a, &(struct queue_config){.consumer = "a", .prefetch = 1});
    test_consumer_until(&a, 1);
    time_pass(4000);
    test_consumer_open(&t, &(struct queue_config){.url = url_of_user("enough")});
    test_consumer_hurry(&t);
    test_consumer_until(&t, 4);
    test_consumer_extend(&t, 0);
    CHECK(test_consumer_delay(&t, 1, 10));
    test_consumer_until(&t, 5);
    test_consumer_give(&t, 2);
    test_consumer_until(&t, 6);
    CHECK(test_consumer_bury(&t, 3, &dead_fields));
    queue_broker_stream.fetch(t.link, false);
    test_consumer_ack(&t, 0);
    for (size_t i = 3; i < 6; i++)
        test_consumer_ack(&t, i);
    pending_until(&t, "", 0);
    CHECK(strstr(t.text, "may not") == NULL);
    CHECK_INT(queue_dead_broker_stream.open(
                  &(struct queue_dead_config){.url = url_of_user("enough"), .queue = "q.dead"},
                  &dead, &err),
              0);
    CHECK_INT(queue_dead_broker_stream.next(dead, &letter, &err), 0);
    CHECK_INT(queue_dead_broker_stream.requeue(dead, NULL, &err), 0);
    CHECK_INT(queue_dead_broker_stream.remove(dead, letter.receipt, &err), 0);
    queue_dead_broker_stream.close(dead);
    test_consumer_close(&t);
    test_consumer_close(&a);
}

TEST(what_is_no_place_or_no_name_is_refused_when_it_is_opened) {
    static const struct {
        struct queue_config config;
        const char *why;
    } cases[] = {
        {{.url = "redis+sentinel://127.0.0.1/shop", .queue = "q"}, "from one server"},
        {{.url = "redis+cluster://127.0.0.1", .queue = "q"}, "from one server"},
        {{.url = "redis://127.0.0.1/x", .queue = "q"}, "the database is a number"},
        {{.url = "redis://127.0.0.1", .queue = ""}, "the stream has no name"},
        {{.url = "redis://127.0.0.1"}, "the stream has no name"},
        {{.url = "redis://127.0.0.1", .queue = "q", .group = ""}, "group has no name"},
        {{.url = "redis://127.0.0.1", .queue = "q", .consumer = ""}, "consumer has no name"},
        {{.url = "redis://127.0.0.1", .queue = "q", .body_field = ""}, "body has no name"},
        {{.url = "redis://127.0.0.1", .queue = "q", .dead_letter = "q"}, "that they come from"},
        {{.url = "redis://127.0.0.1", .queue = "q", .consumer = STREAM_NOBODY}, "may be called"},
    };
    struct idem_error err;
    struct queue_link *link = NULL;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct queue_config config = cases[i].config;
        struct test_consumer t = {.n = 0};
        struct queue_events events = {.data = &t};

        config.prefetch = 1;
        err.text[0] = '\0';
        CHECK_INT(queue_broker_stream.open(&config, &t.loop, &events, &link, &err), IDEM_E_INVALID);
        CHECK_HAS(err.text, cases[i].why);
        CHECK(link == NULL);
    }
}

TEST(the_longest_redelivery_follows_from_the_lease) {
    CHECK_INT(queue_broker_stream.redelivery_ms(&(struct queue_config){.lease_ms = 30000}), 90000);
    CHECK_INT(queue_broker_stream.redelivery_ms(&(struct queue_config){.lease_ms = 1}), 4500);
    CHECK_INT(queue_broker_stream.redelivery_ms(&(struct queue_config){.lease_ms = 0}), 90000);
    CHECK(queue_broker_stream.redelivery_ms(&(struct queue_config){.lease_ms = INT64_MAX}) > 0);
}

/* Servers that are not Redis. */

static const char *const odd[] = {
    "+OK\r\n",
    ":1\r\n",
    "$-1\r\n",
    "*-1\r\n",
    "*0\r\n",
    "-ERR what\r\n",
    "-LOADING wait\r\n",
    "*1\r\n$1\r\nq\r\n",
    "*1\r\n*2\r\n$1\r\nq\r\n*0\r\n",
    "*1\r\n*2\r\n$1\r\nq\r\n*1\r\n*2\r\n$3\r\n1-1\r\n$-1\r\n",
    "*1\r\n*2\r\n$1\r\nq\r\n*1\r\n*2\r\n$3\r\n1-1\r\n*1\r\n$1\r\nx\r\n",
    "*1\r\n*2\r\n$1\r\nq\r\n*1\r\n*2\r\n$3\r\n1-1\r\n*2\r\n:1\r\n:2\r\n",
    "*1\r\n*2\r\n$1\r\nq\r\n*1\r\n*2\r\n$1\r\nx\r\n*0\r\n",
    "*1\r\n*4\r\n$3\r\n1-1\r\n$2\r\nme\r\n:0\r\n:1\r\n",
    "*1\r\n*4\r\n$3\r\n1-1\r\n$5\r\nentry\r\n:1\r\n*1\r\n$1\r\nx\r\n",
    "*2\r\n$3\r\n0-0\r\n*1\r\n$3\r\n1-1\r\n",
    "*3\r\n$3\r\n9-9\r\n*2\r\n*-1\r\n$-1\r\n*1\r\n$3\r\n1-1\r\n",
    "!what\r\n",
};
static _Atomic unsigned odd_at;

static bool say_odd(const struct fake_command *command, char *out, size_t size) {
    if (fake_is(command, "XPENDING", NULL) && command->n == 3)
        snprintf(out, size, "*4\r\n:0\r\n$-1\r\n$-1\r\n*-1\r\n");
    else
        snprintf(out, size, "%s", odd[odd_at]);
    return true;
}

TEST(a_server_that_answers_what_it_was_not_asked_is_not_asked_without_end) {
    char url[100];
    struct test_consumer t;

    fakes_start(1, say_odd);
    snprintf(url, sizeof(url), "redis://127.0.0.1:%d", fakes.port[0]);
    for (odd_at = 0; odd_at < sizeof(odd) / sizeof(odd[0]); odd_at++) {
        unsigned before = fakes.asked[0];

        test_consumer_begin(&t, &(struct queue_config){.url = url});
        queue_broker_stream.fetch(t.link, true);
        /* sleep: only time shows that the broker pauses between commands */
        test_consumer_idle(&t, 200);
        if (fakes.asked[0] - before > 50)
            fprintf(stderr, "# %u times: %s", fakes.asked[0] - before, odd[odd_at]);
        CHECK(fakes.asked[0] - before <= 50);
        test_consumer_close(&t);
    }
    fakes_stop();
}

int main(int argc, char **argv) {
    test_at_a_time = 4; /* the tests wait more than they work */
    return test_main(argc, argv);
}
