/* The events that sentinels publish, in the format of Redis 7.0. */
#include "store/redis/redis_sentinel_event.h"
#include "test.h"

static const char replica[] = "slave 127.0.0.1:18077 127.0.0.1 18077 @ shop 127.0.0.1 12950";
static const char moved[] = "shop 127.0.0.1 12950 127.0.0.1 18077";

static bool reads(const char *channel, const char *text, struct sentinel_event *ret) {
    return sentinel_event_read(channel, text, strlen(text), "shop", ret);
}

TEST(a_failover_begins_when_a_replica_is_selected) {
    struct sentinel_event event;

    CHECK(reads("+selected-slave", replica, &event));
    CHECK_INT(event.sign, SENTINEL_BEGINS);
    CHECK(reads("+failover-state-wait-promotion", replica, &event));
    CHECK_INT(event.sign, SENTINEL_BEGINS);
}

TEST(a_promoted_replica_is_the_master_with_its_address) {
    struct sentinel_event event;

    CHECK(reads("+promoted-slave", replica, &event));
    CHECK_INT(event.sign, SENTINEL_MOVES);
    CHECK_STR(event.host.name, "127.0.0.1");
    CHECK_INT(event.host.port, 18077);
    event = (struct sentinel_event){0};
    CHECK(reads("+switch-master", moved, &event));
    CHECK_INT(event.sign, SENTINEL_MOVES);
    CHECK_INT(event.host.port, 18077);
}

TEST(a_failover_that_is_aborted_leaves_the_master) {
    struct sentinel_event event;

    CHECK(reads("-failover-abort-no-good-slave", "master shop 127.0.0.1 12950", &event));
    CHECK_INT(event.sign, SENTINEL_ABORTS);
}

TEST(events_of_another_master_and_other_texts_are_passed_over) {
    static const char *const texts[] = {"",
                                        "shop",
                                        "cart 127.0.0.1 1 127.0.0.1 2",
                                        "shop 127.0.0.1 1 127.0.0.1 0",
                                        "shop 127.0.0.1 1 127.0.0.1 65536",
                                        "shop 127.0.0.1 1 127.0.0.1 -2",
                                        "shop 127.0.0.1 1 127.0.0.1 2x",
                                        "shop 127.0.0.1 1  2",
                                        "shop 127.0.0.1 1 127.0.0.1 2 3"};
    struct sentinel_event event;

    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
        CHECK(!reads("+switch-master", texts[i], &event));
    CHECK(!reads("+sdown", replica, &event));
    CHECK(!reads("+promoted-slave", "slave a 127.0.0.1 1 @ cart 127.0.0.1 2", &event));
    CHECK(!reads("+promoted-slave", moved, &event));
}

TEST(every_channel_that_is_subscribed_to_is_read) {
    struct sentinel_event event;
    size_t n = 0;

    for (; sentinel_channel(n) != NULL; n++)
        CHECK(reads(sentinel_channel(n), replica, &event) ||
              reads(sentinel_channel(n), moved, &event));
    CHECK(n >= 8);
}

TEST_MAIN
