/*
 * Servers that are killed and started again on the same data. No signal is ignored
 * here: a write to what is not there any more must not raise one.
 */
#include "../../temp.h"
#include "../../test.h"
#include "client.h"
#include "farm.h"
#include "hand.h"

/* Until the server does not forget a queue any more when it is killed. */
#define SETTLE_MS 4000

static struct farm farm;
static struct client client;
static struct hand hand;

static const struct queue_epitaph epitaph = {.verdict = "dead", .attempts = 1};

static void publish(const char *queue, bool quorum, int n) {
    char body[32];

    client_declare(&client, queue, quorum, NULL);
    for (int i = 0; i < n; i++) {
        snprintf(body, sizeof(body), "m%d", i);
        client_send(&client, "", queue, NULL, body, strlen(body));
    }
    client_confirm(&client);
}

TEST(messages_that_were_out_when_the_server_was_killed_come_again) {
    static struct hand other;

    client_open(&client, farm.server.port);
    publish("killed", true, 4);
    publish("killed-classic", false, 4);
    client_close(&client);
    hand_start(&hand, farm_url(farm.server.port, ""), "killed");
    hand_start(&other, farm_url(farm.server.port, ""), "killed-classic");
    hand_wait(&hand, 4, 20000);
    hand_wait(&other, 4, 20000);
    hand_ack(&hand, 1);
    hand_ack(&other, 1);
    hand_turn(&hand, SETTLE_MS); /* until the queues and the acknowledgements are safe there */
    farm_kill(&farm);
    hand_wait_gone(&hand, 3, 20000);
    hand_wait_gone(&other, 3, 20000);
    CHECK(!hand.ready);
    CHECK(!hand_bury(&hand, 2, &epitaph));
    CHECK_HAS(hand.why, "there is no connection");
    CHECK_STR(hand_body(&hand, 2), "m2"); /* it can be read as long as it is not given back */
    CHECK(hand_delay(&hand, 2, 250));     /* it comes again by itself */
    hand_giveback(&hand, 3);
    farm_restart(&farm);
    hand_wait(&hand, 7, 20000);
    hand_wait(&other, 7, 20000);
    CHECK_STR(hand_body(&hand, 4), "m0");
    CHECK_STR(hand_body(&hand, 5), "m2");
    CHECK_STR(hand_body(&hand, 6), "m3");
    hand_ack(&hand, 0); /* of the connection that was: it is not one of the new one's */
    hand_turn(&hand, 300);
    for (size_t i = 4; i < 7; i++) {
        if (i > 4)
            hand_ack(&hand, i);
        hand_ack(&other, i);
    }
    hand_turn(&hand, 300);
    CHECK_INT(hand.got_n, 7);
    CHECK_INT(hand.gone_n, 3);
    hand_close(&hand);
    hand_close(&other);
    client_open(&client, farm.server.port);
    client_wait_count(&client, "killed", 1, 20000);
    client_wait_count(&client, "killed-classic", 0, 20000);
    client_close(&client);
}

/* The message itself is not persistent, so that it is the copy that comes. */
TEST(a_copy_that_was_taken_outlives_the_server_though_its_queue_is_new) {
    amqp_basic_properties_t fleeting = {._flags = AMQP_BASIC_DELIVERY_MODE_FLAG,
                                        .delivery_mode = 1};

    client_open(&client, farm.server.port);
    publish("new", false, 0);
    hand_start(&hand, farm_url(farm.server.port, ""), "new");
    hand_turn(&hand, SETTLE_MS);
    client_send(&client, "", "new", &fleeting, "one", 3);
    client_confirm(&client);
    client_close(&client);
    hand_wait(&hand, 1, 20000);
    CHECK(hand_delay(&hand, 0, 4000));
    farm_kill(&farm);
    farm_restart(&farm);
    hand_wait(&hand, 2, 30000);
    CHECK_STR(hand_body(&hand, 1), "one");
    CHECK_STR(hand_property(&hand, 1, "delivery_mode"), "=1");
    hand_ack(&hand, 1);
    hand_close(&hand);
}

int main(int argc, char **argv) {
    int rc;

    farm_start(&farm, temp_folder());
    rc = test_main(argc, argv);
    farm_stop(&farm);
    return rc;
}
