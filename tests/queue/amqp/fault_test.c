/*
 * Trouble: servers that stop, are silent, accept no more bytes or are killed,
 * and connections that are cut in the middle of a frame. No signal is ignored
 * here: a write to a closed connection must not raise one.
 */
#include "../../temp.h"
#include "../../test.h"
#include "client.h"
#include "farm.h"
#include "proxy.h"
#include "test_consumer.h"

static struct farm farm;
static struct client client;
static struct test_consumer consumer;
static struct proxy proxy;

#define NEVER_MS 3600000

static const struct queue_dead_fields dead_fields = {.verdict = "dead", .attempts = 1};

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
    test_consumer_start(&consumer, farm_url(proxy.port, "heartbeat=10m&connect_timeout=60s"),
                        queue);
    test_consumer_wait(&consumer, n > 10 ? 10 : (size_t)n);
}

/* The server gets the ack before any later command. */
static void ack_arrives(size_t i) {
    unsigned before = proxy.acks;

    test_consumer_ack(&consumer, i);
    TEST_CONSUMER_UNTIL(&consumer, proxy.acks > before);
}

static void finish(void) {
    test_consumer_close(&consumer);
    proxy_stop(&proxy);
    client_close(&client);
}

/* This test takes longest, so it begins first. */
TEST(a_copy_of_which_nothing_is_heard_is_not_taken) {
    char url[300];

    client_open(&client, farm.server.port);
    publish("lame", false, 1);
    /* Twice the interval is longer than a pause of a busy machine. */
    snprintf(url, sizeof(url), "%s", farm_url(farm.server.port, "heartbeat=6s"));
    test_consumer_start(&consumer, url, "lame");
    test_consumer_wait(&consumer, 1);
    TEST_CONSUMER_UNTIL(&consumer, test_consumer_delay(&consumer, 0, 250));
    test_consumer_wait(&consumer, 2);
    farm_eval(&farm, "ra:stop_server(quorum_queues, "
                     "{list_to_atom(\"%2F_lame.idem.retry.250\"), node()})");
    CHECK(!test_consumer_delay(&consumer, 1, 250));
    CHECK_HAS(consumer.why, "no word within three heartbeats");
    TEST_CONSUMER_UNTIL(&consumer,
                        !test_consumer_delay(&consumer, 1, 250) &&
                            strstr(consumer.why, "it is not used for a while: no word") != NULL);
    TEST_CONSUMER_UNTIL(&consumer,
                        test_consumer_delay(&consumer, 1, 500)); /* other queues are used */
    test_consumer_wait(&consumer, 3);
    test_consumer_close(&consumer);
    client_close(&client);
}

TEST(a_delivery_that_is_cut_in_the_middle_comes_again_whole) {
    static unsigned char body[300000];

    memset(body, 'x', sizeof(body));
    start("cut", 1);
    ack_arrives(0);
    for (long cut = 3; cut < 400000; cut = cut * 10 + 7) {
        size_t before = consumer.got_n;

        proxy.cut_after = cut;
        client_send(&client, "", "cut", NULL, body, sizeof(body));
        client_confirm(&client);
        test_consumer_wait(&consumer, before + 1);
        CHECK_INT(consumer.got[before].message->body.len, sizeof(body));
        CHECK(!consumer.got[before].gone);
        ack_arrives(before);
    }
    CHECK(proxy.cuts >= 5);
    test_consumer_close(&consumer);
    client_wait_count(&client, "cut", 0);
    proxy_stop(&proxy);
    client_close(&client);
}

TEST(an_acknowledgement_that_is_cut_in_the_middle_is_said_again_of_what_comes_again) {
    start("mid-ack", 3);
    proxy.cut_at_len = sizeof(ack_method);
    proxy.cut_behind = 7;
    proxy.cut_at = ack_method;
    test_consumer_ack(&consumer, 1);
    test_consumer_wait_gone(&consumer, 2);
    test_consumer_wait(&consumer, 6);
    CHECK_INT(proxy.cuts, 1);
    CHECK_STR(test_consumer_body(&consumer, 4), "m1");
    for (size_t i = 3; i < 6; i++)
        test_consumer_ack(&consumer, i);
    test_consumer_close(&consumer);
    client_wait_count(&client, "mid-ack", 0);
    proxy_stop(&proxy);
    client_close(&client);
}

TEST(a_copy_that_is_cut_in_the_middle_is_not_taken_and_can_be_sent_again) {
    start("mid-copy", 1);
    proxy.cut_at_len = sizeof(publish_method);
    proxy.cut_behind = 9;
    proxy.cut_at = publish_method;
    CHECK(!test_consumer_bury(&consumer, 0, &dead_fields));
    CHECK_HAS(consumer.why, "it may be there");
    CHECK_INT(consumer.gone_n, 0); /* the other connection continues */
    TEST_CONSUMER_UNTIL(&consumer, test_consumer_bury(&consumer, 0, &dead_fields));
    CHECK_INT(client_count(&client, "mid-copy.dead"), 1);
    test_consumer_ack(&consumer, 0);
    finish();
}

/* As with logins that are tokens: the name of the login is not the name of the user. */
TEST(a_server_that_knows_us_by_another_name_gets_copies_without_it) {
    start("renamed", 1);
    proxy.from = "\x04" SERVER_USER;
    proxy.to = "\x04"
               "IDEM";
    CHECK(!test_consumer_bury(&consumer, 0, &dead_fields));
    CHECK_HAS(consumer.why, "user_id");
    TEST_CONSUMER_UNTIL(&consumer, test_consumer_bury(&consumer, 0, &dead_fields));
    finish();
}

TEST(a_copy_whose_confirm_is_lost_is_not_taken_and_may_be_there) {
    start("mid-confirm", 1);
    CHECK(test_consumer_bury(&consumer, 0, &dead_fields));
    proxy.cut_after = 3; /* the server's next frame is the confirm */
    CHECK(!test_consumer_bury(&consumer, 0, &dead_fields));
    CHECK_HAS(consumer.why, "it may be there");
    client_wait_count(&client, "mid-confirm.dead", 2);
    finish();
}

TEST(a_delay_whose_original_is_gone_is_over_when_its_copy_is_confirmed) {
    start("half", 1);
    CHECK(test_consumer_bury(&consumer, 0, &dead_fields)); /* the connection for copies exists */
    proxy.cut_at_len = sizeof(ack_method);
    proxy.cut_behind = 2;
    proxy.cut_at = ack_method;
    CHECK(test_consumer_delay(&consumer, 0,
                              250));  /* the copy is confirmed, and its original's ack is cut */
    test_consumer_wait(&consumer, 3); /* both come */
    CHECK_STR(test_consumer_body(&consumer, 1), "m0");
    CHECK_STR(test_consumer_body(&consumer, 2), "m0");
    finish();
}

TEST(a_link_may_be_closed_in_each_of_its_call_backs) {
    for (int i = 0; i < 3; i++) {
        start("closing", i == 0 ? 0 : 4);
        if (i == 0)
            publish("closing", true, 4);
        consumer.close_in = true;
        if (i == 0)
            test_consumer_wait(&consumer, 1);
        if (i == 1)
            CHECK(!test_consumer_delay(&consumer, 0, 250) || consumer.taken);
        if (i == 2) {
            proxy.cut_after = 0;
            client_publish(&client, "closing", "more");
            test_consumer_wait_gone(&consumer, 1);
        }
        CHECK(consumer.link == NULL);
        test_consumer_idle(&consumer, 50); /* sleep: no more messages come */
        CHECK_INT(consumer.gone_n, i == 2 ? 1 : 0);
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
    test_consumer_start(&consumer, url, "deaf");
    TEST_CONSUMER_UNTIL(&consumer,
                        consumer.got_n >
                            consumer.gone_n); /* a busy machine may have lost the first one */
    proxy.deaf = true;
    test_consumer_wait_gone(&consumer, consumer.got_n);
    proxy.deaf = false;
    test_consumer_wait(&consumer, consumer.got_n + 1);
    finish();
}

/* Through the proxy, which may change the server's answers. */
static void start_ordered(const char *queue) {
    struct queue_config config = test_consumer_config(farm_url(proxy.port, ""), queue);

    config.prefetch = 20;
    config.ordered = true;
    test_consumer_open(&consumer, &config);
    queue_broker_amqp.fetch(consumer.link, true);
}

/* Another client has the first ten of twenty messages, like a consumer that crashed a moment
 * ago. */
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
    client_wait_consumers(&client, queue, 2); /* the consumer checks the queue, and takes nothing */
    test_consumer_idle(&consumer, 200);       /* sleep: no more messages come */
    CHECK_INT(consumer.got_n, 0);
    client_close(&ghost);
    test_consumer_wait(&consumer, 20);
    for (size_t i = 0; i < 20; i++) {
        snprintf(body, sizeof(body), "m%zu", i);
        CHECK_STR(test_consumer_body(&consumer, i), body);
    }
    client_wait_consumers(&client, queue, 1); /* the other one has disconnected */
    finish();
}

TEST(where_an_order_matters_what_a_consumer_had_who_is_just_gone_comes_first) {
    proxy_start(&proxy, farm.server.port);
    check_ghost_is_waited_for("haunted", true);
    proxy_start(&proxy, farm.server.port);
    check_ghost_is_waited_for("haunted.classic", false);
}

/* After a crash of the server, and until it has a leader, a quorum queue reports the state that
 * it wrote last: here, that of before the consumer came. */
TEST(where_an_order_matters_what_a_queue_says_before_its_leader_does_is_not_believed) {
    proxy_start(&proxy, farm.server.port);
    proxy.lie_from = "\5stale\0\0\0\12\0\0\0\1"; /* ten messages ready, one consumer */
    proxy.lie_len = 14;
    proxy.lie_to = "\5stale\0\0\0\24\0\0\0\0"; /* twenty messages, and no consumer */
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
    test_consumer_wait_line(&consumer, "messages are fetched when it is there");
    client_wait_consumers(&client, "away", 1);
    proxy.to = NULL;
    client_wait_consumers(&client, "away", 2);
    test_consumer_idle(&consumer, 200); /* sleep: no more messages come */
    CHECK_INT(consumer.got_n, 0);
    client_close(&ghost);
    test_consumer_wait(&consumer, 20);
    CHECK_STR(test_consumer_body(&consumer, 0), "m0");
    finish();
}

/* RabbitMQ 4, and others: a queue cannot be checked by consuming from it, and an empty queue may
 * be one without a leader. */
TEST(where_an_order_matters_a_queue_that_cannot_be_looked_at_is_not_believed_at_once) {
    proxy_start(&proxy, farm.server.port);
    proxy.lie_from = "RabbitMQ";
    proxy.lie_len = strlen("RabbitMQ");
    proxy.lie_to = "RabbitXY";
    client_open(&client, farm.server.port);
    publish("silent", true, 1);
    rabbit_ghost_ms = rabbit_calm_ms = NEVER_MS;
    start_ordered("silent");
    TEST_CONSUMER_UNTIL(&consumer, proxy.met == 1);
    test_consumer_idle(&consumer, 300); /* sleep: no more messages come */
    client_wait_consumers(&client, "silent", 0);
    CHECK(strstr(consumer.log, "is there") == NULL);
    rabbit_calm_ms = 0;
    test_consumer_wait(&consumer, 1);
    ack_arrives(0);
    test_consumer_close(&consumer);
    start_ordered("silent"); /* the queue is empty now */
    TEST_CONSUMER_UNTIL(&consumer, proxy.met == 2);
    test_consumer_idle(&consumer, 300); /* sleep: no more messages come */
    CHECK(strstr(consumer.log, "is there") == NULL);
    publish("silent", true, 1);
    test_consumer_wait(&consumer, 1);
    finish();
}

TEST(who_is_alive_is_not_waited_for_for_long) {
    static struct client neighbour;

    rabbit_ghost_ms = 300;
    proxy_start(&proxy, farm.server.port);
    start_haunted("alive", true, &neighbour);
    test_consumer_wait(&consumer, 10);
    CHECK_STR(test_consumer_body(&consumer, 0), "m10");
    client_close(&neighbour);
    finish();
}

/* Faults of the whole server. */

/* A short heartbeat, so that the test notices the stop soon; a busy machine may lose the
 * connection earlier. */
TEST_ALONE(a_server_that_stops_for_a_while_is_noticed_and_found_again) {
    char url[300];

    client_open(&client, farm.server.port);
    publish("paused", true, 2);
    snprintf(url, sizeof(url), "%s", farm_url(farm.server.port, "heartbeat=1s&connect_timeout=1s"));
    test_consumer_start(&consumer, url, "paused");
    TEST_CONSUMER_UNTIL(&consumer, consumer.got_n == consumer.gone_n + 2);
    farm_pause(&farm);
    test_consumer_wait_gone(&consumer, consumer.got_n);
    test_consumer_wait_line(&consumer, "the server is silent");
    test_consumer_wait_line(&consumer, "no connection to");
    farm_go_on(&farm);
    test_consumer_wait(&consumer, consumer.got_n + 2);
    test_consumer_close(&consumer);
    test_consumer_start(&consumer, farm_url(farm.server.port, ""), "paused");
    test_consumer_wait(&consumer, 2);
    test_consumer_ack(&consumer, 0);
    test_consumer_ack(&consumer, 1);
    test_consumer_close(&consumer);
    client_wait_count(&client, "paused", 0);
    client_close(&client);
}

/* The consumer is closed while the server still stands still. */
TEST_ALONE(a_link_to_a_server_that_stands_still_is_closed_in_time) {
    unsigned met;

    start("still", 3);
    CHECK(test_consumer_bury(&consumer, 0, &dead_fields));
    farm_pause(&farm);
    test_consumer_ack(&consumer, 0);
    test_consumer_close(&consumer);
    met = proxy.met;
    test_consumer_start(&consumer, farm_url(proxy.port, "connect_timeout=10s"), "still");
    TEST_CONSUMER_UNTIL(&consumer, proxy.met > met); /* the connection waits at the login */
    test_consumer_close(&consumer);
    farm_go_on(&farm);
    proxy_stop(&proxy);
    client_close(&client);
}

TEST_ALONE(a_connection_that_the_server_closes_is_made_again_and_says_why) {
    start("forced", 1);
    farm_eval(&farm, "[rabbit_networking:close_connection(Pid, \"go away\") || "
                     "Pid <- rabbit_networking:connections()]");
    test_consumer_wait_gone(&consumer, 1);
    test_consumer_wait_line(&consumer, "CONNECTION_FORCED - go away");
    test_consumer_wait(&consumer, 2);
    test_consumer_close(&consumer);
    proxy_stop(&proxy); /* this closes the client's connection, too */
}

TEST_ALONE(a_server_that_takes_no_more_is_waited_for) {
    start("blocked", 2);
    CHECK(test_consumer_bury(&consumer, 0, &dead_fields));
    /* The alarm is raised a moment later. Connections know of it when it is listed. */
    farm_eval(&farm, "vm_memory_monitor:set_vm_memory_high_watermark(0.00001), "
                     "(fun Wait() -> rabbit_alarm:get_alarms() =/= [] orelse "
                     "begin timer:sleep(20), Wait() end end)()"); /* sleep: the step of a poll */
    queue_broker_amqp.bury(consumer.link, consumer.got[0].message, &dead_fields, test_consumer_told,
                           &consumer);
    test_consumer_wait_line(&consumer, "takes no messages now");
    CHECK_HAS(consumer.log, "memory");
    CHECK(consumer.ready); /* messages come all the same */
    queue_broker_amqp.bury(consumer.link, consumer.got[1].message, &dead_fields, test_consumer_told,
                           &consumer);
    test_consumer_idle(&consumer, 300); /* sleep: no more messages come */
    CHECK_INT(consumer.told_n, 1);
    farm_eval(&farm, "vm_memory_monitor:set_vm_memory_high_watermark(0.4)");
    test_consumer_wait_told(&consumer, 3);
    CHECK(consumer.taken);
    test_consumer_wait_line(&consumer, "takes messages again");
    finish();
}

/* Servers that are killed and restarted on the same data. */

/* The time after which a killed server no longer forgets a queue. */
#define SETTLE_MS 4000

/* The delay of a copy: the server is killed meanwhile. */
#define COPY_MS 20000

static struct test_consumer other, late, maker;
static struct proxy other_proxy;

static void copier_start(struct test_consumer *h) {
    struct queue_config config = test_consumer_config(farm_url(farm.server.port, ""), "new");

    config.delay_max_ms = COPY_MS;
    test_consumer_open(h, &config);
    queue_broker_amqp.fetch(h->link, true);
}

static void killed_prepare(void) {
    client_open(&client, farm.server.port);
    publish("killed", true, 4);
    publish("killed-classic", false, 4);
    publish("new", false, 0);
    proxy_start(&proxy, farm.server.port);
    proxy_start(&other_proxy, farm.server.port);
    test_consumer_start(&consumer, farm_url(proxy.port, ""), "killed");
    test_consumer_start(&other, farm_url(other_proxy.port, ""), "killed-classic");
    copier_start(&late);
    copier_start(&maker);
    test_consumer_wait(&consumer, 4);
    test_consumer_wait(&other, 4);
    test_consumer_ack(&consumer, 1);
    test_consumer_ack(&other, 1);
    WAIT_UNTIL(proxy.acks == 1 && other_proxy.acks == 1);
}

/* The messages themselves are not persistent, so that the copies come. The copies' queue is new:
 * both the consumer that makes it and one that finds it wait until it is safe. Then everything
 * that was there before is safe, too. */
static void copies_prepare(void) {
    amqp_basic_properties_t fleeting = {._flags = AMQP_BASIC_DELIVERY_MODE_FLAG,
                                        .delivery_mode = 1};

    client_wait_consumers(&client, "new", 2);
    for (int i = 0; i < 2; i++) /* one for each consumer */
        client_send(&client, "", "new", &fleeting, "one", 3);
    client_confirm(&client);
    test_consumer_wait(&late, 1);
    test_consumer_wait(&maker, 1);
    test_consumer_delay_begin(&maker, 0, COPY_MS);
    client_wait_count(&client, "new.idem.retry.20000", 0);
    CHECK(test_consumer_delay(&late, 0, COPY_MS));
}

static void copies_check(void) {
    test_consumer_wait(&late, 3);
    for (size_t i = 1; i < 3; i++) {
        CHECK_STR(test_consumer_body(&late, i), "one");
        CHECK_STR(test_consumer_property(&late, i, "delivery_mode"), "=1");
        test_consumer_ack(&late, i);
    }
    test_consumer_close(&late);
}

static void killed_check(void) {
    test_consumer_wait(&consumer, 7);
    test_consumer_wait(&other, 7);
    CHECK_STR(test_consumer_body(&consumer, 4), "m0");
    CHECK_STR(test_consumer_body(&consumer, 5), "m2");
    CHECK_STR(test_consumer_body(&consumer, 6), "m3");
    test_consumer_ack(&consumer,
                      0); /* of the earlier connection: not acknowledged on the new one */
    test_consumer_idle(&consumer, 300); /* sleep: no more messages come */
    for (size_t i = 4; i < 7; i++) {
        if (i > 4)
            test_consumer_ack(&consumer, i);
        test_consumer_ack(&other, i);
    }
    test_consumer_idle(&consumer, 300); /* sleep: no more messages come */
    CHECK_INT(consumer.got_n, 7);
    CHECK_INT(consumer.gone_n, 3);
    test_consumer_close(&consumer);
    test_consumer_close(&other);
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
    test_consumer_wait_told(&maker, 1);
    CHECK(maker.taken);
    farm_kill(&farm);
    test_consumer_close(&maker);
    test_consumer_wait_gone(&consumer, 3);
    test_consumer_wait_gone(&other, 3);
    TEST_CONSUMER_UNTIL(&consumer, !consumer.ready);
    CHECK(!test_consumer_bury(&consumer, 2, &dead_fields));
    CHECK_HAS(consumer.why, "there is no connection");
    CHECK_STR(test_consumer_body(&consumer, 2), "m2"); /* readable until it is given back */
    CHECK(test_consumer_delay(&consumer, 2, 250));     /* the message comes again by itself */
    test_consumer_giveback(&consumer, 3);
    farm_restart(&farm);
    killed_check();
    copies_check();
}

int main(int argc, char **argv) {
    int rc;

    rabbit_settle_ms = 100; /* for tests that do not kill the server */
    test_at_a_time = 5;
    farm_start(&farm, temp_folder());
    rc = test_main(argc, argv);
    farm_stop(&farm);
    return rc;
}
