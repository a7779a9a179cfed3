/*
 * Trouble: servers that stop, are silent, take nothing more or are killed, and
 * connections that are cut in the middle of a frame. No signal is ignored here: a write to
 * what is not there any more must not raise one.
 */
#include "../../temp.h"
#include "../../test.h"
#include "client.h"
#include "farm.h"
#include "proxy.h"
#include "test_consumer.h"

static struct farm farm;
static struct client client;
static struct hand hand;
static struct proxy proxy;

#define NEVER_MS 3600000

static const struct queue_epitaph epitaph = {.verdict = "dead", .attempts = 1};

/* basic.ack and basic.publish, as they begin. */
static const unsigned char ack_method[] = {0, 60, 0, 80}, publish_method[] = {0, 60, 0, 40};

static void publish(const char *queue, bool quorum, int n) {
    char body[32];

    client_declare(&client, queue, quorum, NULL);
    for (int i = 0; i < n; i++) {
        snprintf(body, sizeof(body), "m%d", i);
        client_send(&client, "", queue, NULL, body, strlen(body));
    }
    client_confirm(&client);
}

static void start(const char *queue, int n) {
    client_open(&client, farm.server.port);
    publish(queue, true, n);
    proxy_start(&proxy, farm.server.port);
    hand_start(&hand, farm_url(proxy.port, "heartbeat=10m&connect_timeout=60s"), queue);
    hand_wait(&hand, n > 10 ? 10 : (size_t)n);
}

/* The server has it before anything that it is told later. */
static void ack_arrives(size_t i) {
    unsigned before = proxy.acks;

    hand_ack(&hand, i);
    HAND_UNTIL(&hand, proxy.acks > before);
}

static void finish(void) {
    hand_close(&hand);
    proxy_stop(&proxy);
    client_close(&client);
}

/* It takes longest, and is the first to begin. */
TEST(a_copy_of_which_nothing_is_heard_is_not_taken) {
    char url[300];

    client_open(&client, farm.server.port);
    publish("lame", false, 1);
    /* Twice its time is longer than a busy machine stands still. */
    snprintf(url, sizeof(url), "%s", farm_url(farm.server.port, "heartbeat=6s"));
    hand_start(&hand, url, "lame");
    hand_wait(&hand, 1);
    HAND_UNTIL(&hand, hand_delay(&hand, 0, 250));
    hand_wait(&hand, 2);
    farm_eval(&farm, "ra:stop_server(quorum_queues, "
                     "{list_to_atom(\"%2F_lame.idem.retry.250\"), node()})");
    CHECK(!hand_delay(&hand, 1, 250));
    CHECK_HAS(hand.why, "no word within three heartbeats");
    HAND_UNTIL(&hand, !hand_delay(&hand, 1, 250) &&
                          strstr(hand.why, "it is not used for a while: no word") != NULL);
    HAND_UNTIL(&hand, hand_delay(&hand, 1, 500)); /* others are used */
    hand_wait(&hand, 3);
    hand_close(&hand);
    client_close(&client);
}

TEST(a_delivery_that_is_cut_in_the_middle_comes_again_whole) {
    static unsigned char body[300000];

    memset(body, 'x', sizeof(body));
    start("cut", 1);
    ack_arrives(0);
    for (long cut = 3; cut < 400000; cut = cut * 10 + 7) {
        size_t before = hand.got_n;

        proxy.cut_after = cut;
        client_send(&client, "", "cut", NULL, body, sizeof(body));
        client_confirm(&client);
        hand_wait(&hand, before + 1);
        CHECK_INT(hand.got[before].message->body.len, sizeof(body));
        CHECK(!hand.got[before].gone);
        ack_arrives(before);
    }
    CHECK(proxy.cuts >= 5);
    hand_close(&hand);
    client_wait_count(&client, "cut", 0);
    proxy_stop(&proxy);
    client_close(&client);
}

TEST(an_acknowledgement_that_is_cut_in_the_middle_is_said_again_of_what_comes_again) {
    start("mid-ack", 3);
    proxy.cut_at_len = sizeof(ack_method);
    proxy.cut_behind = 7;
    proxy.cut_at = ack_method;
    hand_ack(&hand, 1);
    hand_wait_gone(&hand, 2);
    hand_wait(&hand, 6);
    CHECK_INT(proxy.cuts, 1);
    CHECK_STR(hand_body(&hand, 4), "m1");
    for (size_t i = 3; i < 6; i++)
        hand_ack(&hand, i);
    hand_close(&hand);
    client_wait_count(&client, "mid-ack", 0);
    proxy_stop(&proxy);
    client_close(&client);
}

TEST(a_copy_that_is_cut_in_the_middle_is_not_taken_and_can_be_sent_again) {
    start("mid-copy", 1);
    proxy.cut_at_len = sizeof(publish_method);
    proxy.cut_behind = 9;
    proxy.cut_at = publish_method;
    CHECK(!hand_bury(&hand, 0, &epitaph));
    CHECK_HAS(hand.why, "it may be there");
    CHECK_INT(hand.gone_n, 0); /* the other connection goes on */
    HAND_UNTIL(&hand, hand_bury(&hand, 0, &epitaph));
    CHECK_INT(client_count(&client, "mid-copy.dead"), 1);
    hand_ack(&hand, 0);
    finish();
}

/* As with logins that are tokens: the name that was said at the login is not the user's. */
TEST(a_server_that_knows_us_by_another_name_gets_copies_without_it) {
    start("renamed", 1);
    proxy.from = "\x04" SERVER_USER;
    proxy.to = "\x04"
               "IDEM";
    CHECK(!hand_bury(&hand, 0, &epitaph));
    CHECK_HAS(hand.why, "user_id");
    HAND_UNTIL(&hand, hand_bury(&hand, 0, &epitaph));
    finish();
}

TEST(a_copy_whose_confirm_is_lost_is_not_taken_and_may_be_there) {
    start("mid-confirm", 1);
    CHECK(hand_bury(&hand, 0, &epitaph));
    proxy.cut_after = 3; /* the next that the server says is the confirm */
    CHECK(!hand_bury(&hand, 0, &epitaph));
    CHECK_HAS(hand.why, "it may be there");
    client_wait_count(&client, "mid-confirm.dead", 2);
    finish();
}

TEST(a_delay_whose_original_is_gone_is_over_when_its_copy_is_confirmed) {
    start("half", 1);
    CHECK(hand_bury(&hand, 0, &epitaph)); /* the connection for copies is there */
    proxy.cut_at_len = sizeof(ack_method);
    proxy.cut_behind = 2;
    proxy.cut_at = ack_method;
    CHECK(hand_delay(&hand, 0, 250)); /* the copy is confirmed, and its original's ack is cut */
    hand_wait(&hand, 3);              /* both come */
    CHECK_STR(hand_body(&hand, 1), "m0");
    CHECK_STR(hand_body(&hand, 2), "m0");
    finish();
}

TEST(a_link_may_be_closed_in_each_of_its_call_backs) {
    for (int i = 0; i < 3; i++) {
        start("closing", i == 0 ? 0 : 4);
        if (i == 0)
            publish("closing", true, 4);
        hand.close_in = true;
        if (i == 0)
            hand_wait(&hand, 1);
        if (i == 1)
            CHECK(!hand_delay(&hand, 0, 250) || hand.taken);
        if (i == 2) {
            proxy.cut_after = 0;
            client_publish(&client, "closing", "more");
            hand_wait_gone(&hand, 1);
        }
        CHECK(hand.link == NULL);
        hand_idle(&hand, 50); /* sleep: nothing more comes */
        CHECK_INT(hand.gone_n, i == 2 ? 1 : 0);
        client_delete(&client, "closing");
        finish();
    }
}

TEST(a_network_that_swallows_everything_is_noticed) {
    char url[300];

    client_open(&client, farm.server.port);
    publish("deaf", false, 1);
    proxy_start(&proxy, farm.server.port);
    snprintf(url, sizeof(url), "%s", farm_url(proxy.port, "heartbeat=1s&connect_timeout=1s"));
    hand_start(&hand, url, "deaf");
    HAND_UNTIL(&hand, hand.got_n > hand.gone_n); /* a busy machine may have lost it before */
    proxy.deaf = true;
    hand_wait_gone(&hand, hand.got_n);
    proxy.deaf = false;
    hand_wait(&hand, hand.got_n + 1);
    finish();
}

/* Through the proxy, which may lie. */
static void start_ordered(const char *queue) {
    struct queue_config config = hand_config(farm_url(proxy.port, ""), queue);

    config.prefetch = 20;
    config.ordered = true;
    hand_open(&hand, &config);
    queue_broker_amqp.fetch(hand.link, true);
}

/* Somebody has the first ten of twenty messages, as a consumer that has crashed a moment ago. */
static void start_haunted(const char *queue, bool quorum, struct client *ghost) {
    client_open(&client, farm.server.port);
    publish(queue, quorum, 20);
    client_open(ghost, farm.server.port);
    (void)amqp_basic_qos(ghost->conn, 1, 0, 10, 0);
    (void)amqp_basic_consume(ghost->conn, 1, amqp_cstring_bytes(queue), amqp_empty_bytes, 0, 0, 0,
                             amqp_empty_table);
    client_wait_count(&client, queue, 10);
    start_ordered(queue);
}

static void check_ghost_is_waited_for(const char *queue, bool quorum) {
    static struct client ghost;
    char body[16];

    rabbit_ghost_ms = NEVER_MS;
    start_haunted(queue, quorum, &ghost);
    client_wait_consumers(&client, queue, 2); /* who looks, and gets nothing */
    hand_idle(&hand, 200);                    /* sleep: nothing more comes */
    CHECK_INT(hand.got_n, 0);
    client_close(&ghost);
    hand_wait(&hand, 20);
    for (size_t i = 0; i < 20; i++) {
        snprintf(body, sizeof(body), "m%zu", i);
        CHECK_STR(hand_body(&hand, i), body);
    }
    client_wait_consumers(&client, queue, 1); /* and is gone */
    finish();
}

TEST(where_an_order_matters_what_a_consumer_had_who_is_just_gone_comes_first) {
    proxy_start(&proxy, farm.server.port);
    check_ghost_is_waited_for("haunted", true);
    proxy_start(&proxy, farm.server.port);
    check_ghost_is_waited_for("haunted.classic", false);
}

/* After a crash of the server, and until it has a leader, a quorum queue says what it had written
   down last: here, of before the consumer came. */
TEST(where_an_order_matters_what_a_queue_says_before_its_leader_does_is_not_believed) {
    proxy_start(&proxy, farm.server.port);
    proxy.lie_from = "\5stale\0\0\0\12\0\0\0\1"; /* ten messages are ready, one consumes */
    proxy.lie_len = 14;
    proxy.lie_to = "\5stale\0\0\0\24\0\0\0\0"; /* twenty, and nobody does */
    check_ghost_is_waited_for("stale", true);
}

TEST(where_an_order_matters_a_queue_that_was_away_is_looked_at_anew) {
    static struct client ghost;

    rabbit_ghost_ms = NEVER_MS;
    proxy_start(&proxy, farm.server.port);
    start_haunted("away", true, &ghost);
    client_wait_consumers(&client, "away", 2);
    proxy.from = "away";
    proxy.to = "none";
    hand_wait_line(&hand, "messages are fetched when it is there");
    client_wait_consumers(&client, "away", 1);
    proxy.to = NULL;
    client_wait_consumers(&client, "away", 2);
    hand_idle(&hand, 200); /* sleep: nothing more comes */
    CHECK_INT(hand.got_n, 0);
    client_close(&ghost);
    hand_wait(&hand, 20);
    CHECK_STR(hand_body(&hand, 0), "m0");
    finish();
}

/* RabbitMQ 4, and others: nothing is consumed to look, and an empty queue may be one that has no
   leader. */
TEST(where_an_order_matters_a_queue_that_cannot_be_looked_at_is_not_believed_at_once) {
    proxy_start(&proxy, farm.server.port);
    proxy.lie_from = "RabbitMQ";
    proxy.lie_len = strlen("RabbitMQ");
    proxy.lie_to = "RabbitXY";
    client_open(&client, farm.server.port);
    publish("silent", true, 1);
    rabbit_ghost_ms = rabbit_calm_ms = NEVER_MS;
    start_ordered("silent");
    HAND_UNTIL(&hand, proxy.met == 1);
    hand_idle(&hand, 300); /* sleep: nothing more comes */
    client_wait_consumers(&client, "silent", 0);
    CHECK(strstr(hand.log, "is there") == NULL);
    rabbit_calm_ms = 0;
    hand_wait(&hand, 1);
    ack_arrives(0);
    hand_close(&hand);
    start_ordered("silent"); /* which is empty now */
    HAND_UNTIL(&hand, proxy.met == 2);
    hand_idle(&hand, 300); /* sleep: nothing more comes */
    CHECK(strstr(hand.log, "is there") == NULL);
    publish("silent", true, 1);
    hand_wait(&hand, 1);
    finish();
}

TEST(who_is_alive_is_not_waited_for_for_long) {
    static struct client neighbour;

    rabbit_ghost_ms = 300;
    proxy_start(&proxy, farm.server.port);
    start_haunted("alive", true, &neighbour);
    hand_wait(&hand, 10);
    CHECK_STR(hand_body(&hand, 0), "m10");
    client_close(&neighbour);
    finish();
}

/* All of the server. */

/* What must be noticed soon is: heartbeats are short, and a busy machine may lose the connection
 * before. */
TEST_ALONE(a_server_that_stops_for_a_while_is_noticed_and_found_again) {
    char url[300];

    client_open(&client, farm.server.port);
    publish("paused", true, 2);
    snprintf(url, sizeof(url), "%s", farm_url(farm.server.port, "heartbeat=1s&connect_timeout=1s"));
    hand_start(&hand, url, "paused");
    HAND_UNTIL(&hand, hand.got_n == hand.gone_n + 2);
    farm_pause(&farm);
    hand_wait_gone(&hand, hand.got_n);
    hand_wait_line(&hand, "the server is silent");
    hand_wait_line(&hand, "no connection to");
    farm_go_on(&farm);
    hand_wait(&hand, hand.got_n + 2);
    hand_close(&hand);
    hand_start(&hand, farm_url(farm.server.port, ""), "paused");
    hand_wait(&hand, 2);
    hand_ack(&hand, 0);
    hand_ack(&hand, 1);
    hand_close(&hand);
    client_wait_count(&client, "paused", 0);
    client_close(&client);
}

/* It is closed while the server still stands still. */
TEST_ALONE(a_link_to_a_server_that_stands_still_is_closed_in_time) {
    unsigned met;

    start("still", 3);
    CHECK(hand_bury(&hand, 0, &epitaph));
    farm_pause(&farm);
    hand_ack(&hand, 0);
    hand_close(&hand);
    met = proxy.met;
    hand_start(&hand, farm_url(proxy.port, "connect_timeout=10s"), "still");
    HAND_UNTIL(&hand, proxy.met > met); /* it waits at the login */
    hand_close(&hand);
    farm_go_on(&farm);
    proxy_stop(&proxy);
    client_close(&client);
}

TEST_ALONE(a_connection_that_the_server_closes_is_made_again_and_says_why) {
    start("forced", 1);
    farm_eval(&farm, "[rabbit_networking:close_connection(Pid, \"go away\") || "
                     "Pid <- rabbit_networking:connections()]");
    hand_wait_gone(&hand, 1);
    hand_wait_line(&hand, "CONNECTION_FORCED - go away");
    hand_wait(&hand, 2);
    hand_close(&hand);
    proxy_stop(&proxy); /* the client's connection is gone, too */
}

TEST_ALONE(a_server_that_takes_no_more_is_waited_for) {
    start("blocked", 2);
    CHECK(hand_bury(&hand, 0, &epitaph));
    farm_eval(&farm, "vm_memory_monitor:set_vm_memory_high_watermark(0.00001)");
    queue_broker_amqp.bury(hand.link, hand.got[0].message, &epitaph, hand_told, &hand);
    hand_wait_line(&hand, "takes no messages now");
    CHECK_HAS(hand.log, "memory");
    CHECK(hand.ready); /* messages come all the same */
    queue_broker_amqp.bury(hand.link, hand.got[1].message, &epitaph, hand_told, &hand);
    hand_idle(&hand, 300); /* sleep: nothing more comes */
    CHECK_INT(hand.told_n, 1);
    farm_eval(&farm, "vm_memory_monitor:set_vm_memory_high_watermark(0.4)");
    hand_wait_told(&hand, 3);
    CHECK(hand.taken);
    hand_wait_line(&hand, "takes messages again");
    finish();
}

/* Servers that are killed and started again on the same data. */

/* Until the server does not forget a queue any more when it is killed. */
#define SETTLE_MS 4000

/* In which a copy is not delivered: the server is killed meanwhile. */
#define COPY_MS 20000

static struct hand other, late, maker;
static struct proxy other_proxy;

static void copier_start(struct hand *h) {
    struct queue_config config = hand_config(farm_url(farm.server.port, ""), "new");

    config.delay_max_ms = COPY_MS;
    hand_open(h, &config);
    queue_broker_amqp.fetch(h->link, true);
}

static void killed_prepare(void) {
    client_open(&client, farm.server.port);
    publish("killed", true, 4);
    publish("killed-classic", false, 4);
    publish("new", false, 0);
    proxy_start(&proxy, farm.server.port);
    proxy_start(&other_proxy, farm.server.port);
    hand_start(&hand, farm_url(proxy.port, ""), "killed");
    hand_start(&other, farm_url(other_proxy.port, ""), "killed-classic");
    copier_start(&late);
    copier_start(&maker);
    hand_wait(&hand, 4);
    hand_wait(&other, 4);
    hand_ack(&hand, 1);
    hand_ack(&other, 1);
    WAIT_UNTIL(proxy.acks == 1 && other_proxy.acks == 1);
}

/* The messages themselves are not persistent, so that it is the copies that come. Their queue is
   new: who makes it waits until it is safe, and so does who finds it. Then all that was there
   before is safe, too. */
static void copies_prepare(void) {
    amqp_basic_properties_t fleeting = {._flags = AMQP_BASIC_DELIVERY_MODE_FLAG,
                                        .delivery_mode = 1};

    client_wait_consumers(&client, "new", 2);
    for (int i = 0; i < 2; i++) /* one for each of them */
        client_send(&client, "", "new", &fleeting, "one", 3);
    client_confirm(&client);
    hand_wait(&late, 1);
    hand_wait(&maker, 1);
    hand_delay_begin(&maker, 0, COPY_MS);
    client_wait_count(&client, "new.idem.retry.20000", 0);
    CHECK(hand_delay(&late, 0, COPY_MS));
}

static void copies_check(void) {
    hand_wait(&late, 3);
    for (size_t i = 1; i < 3; i++) {
        CHECK_STR(hand_body(&late, i), "one");
        CHECK_STR(hand_property(&late, i, "delivery_mode"), "=1");
        hand_ack(&late, i);
    }
    hand_close(&late);
}

static void killed_check(void) {
    hand_wait(&hand, 7);
    hand_wait(&other, 7);
    CHECK_STR(hand_body(&hand, 4), "m0");
    CHECK_STR(hand_body(&hand, 5), "m2");
    CHECK_STR(hand_body(&hand, 6), "m3");
    hand_ack(&hand, 0);    /* of the connection that was: it is not one of the new one's */
    hand_idle(&hand, 300); /* sleep: nothing more comes */
    for (size_t i = 4; i < 7; i++) {
        if (i > 4)
            hand_ack(&hand, i);
        hand_ack(&other, i);
    }
    hand_idle(&hand, 300); /* sleep: nothing more comes */
    CHECK_INT(hand.got_n, 7);
    CHECK_INT(hand.gone_n, 3);
    hand_close(&hand);
    hand_close(&other);
    client_open(&client, farm.server.port);
    client_wait_count(&client, "killed", 1);
    client_wait_count(&client, "killed-classic", 0);
    proxy_stop(&proxy);
    proxy_stop(&other_proxy);
    client_close(&client);
}

TEST_ALONE(
    what_was_out_when_the_server_was_killed_comes_again_and_copies_that_were_taken_outlive_it) {
    rabbit_settle_ms = SETTLE_MS;
    killed_prepare();
    copies_prepare();
    client_close(&client);
    hand_wait_told(&maker, 1);
    CHECK(maker.taken);
    farm_kill(&farm);
    hand_close(&maker);
    hand_wait_gone(&hand, 3);
    hand_wait_gone(&other, 3);
    HAND_UNTIL(&hand, !hand.ready);
    CHECK(!hand_bury(&hand, 2, &epitaph));
    CHECK_HAS(hand.why, "there is no connection");
    CHECK_STR(hand_body(&hand, 2), "m2"); /* it can be read as long as it is not given back */
    CHECK(hand_delay(&hand, 2, 250));     /* it comes again by itself */
    hand_giveback(&hand, 3);
    farm_restart(&farm);
    killed_check();
    copies_check();
}

int main(int argc, char **argv) {
    int rc;

    rabbit_settle_ms = 100; /* where the server is not killed */
    test_at_a_time = 5;
    farm_start(&farm, temp_folder());
    rc = test_main(argc, argv);
    farm_stop(&farm);
    return rc;
}
