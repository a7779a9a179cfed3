/*
 * The consumer without memory for new messages: none is given back only to come
 * again at once, none is lost, and no later message overtakes one.
 */
#include "contract/alloc_fault.h"
#include "queue/delivery.h"
#include "rig.h"

#define NEVER_MS 3600000

static struct rig rig;

static void pause_set(int64_t ms) {
    idem_timer_set(&rig.h->loop, &rig.consumer->backlog.timer, ms);
}

static void begin(void) {
    rig.prefetch = 8;
    rig_start(&rig, rig_policy(), 1, "#body.user");
    for (int i = 0; i < 8; i++)
        rig.say[i].result = QUEUE_DONE;
}

/* With each of the allocations of the arrival failing in turn, and all later ones. */
TEST(what_finds_no_memory_waits_and_whatever_comes_behind_it_waits_too) {
    static const char *const bodies[] = {"{\"id\": 1, \"user\": 1}", "{\"id\": 2, \"user\": 1}",
                                         "{\"id\": 3, \"user\": 2}"};
    int fails = 0;

    begin();
    for (long n = 1;; n++) {
        bool failed;

        CHECK(n < 100);
        rig.messages_n = 0;
        rig.lines_n = rig.reports = rig.works_n = rig.open_works = 0;
        alloc_arm(n, ALLOC_FAIL_SINCE);
        rig_deliver(&rig, bodies[0], NULL);
        failed = alloc_disarm();
        rig_deliver(&rig, bodies[1], NULL);
        rig_deliver(&rig, bodies[2], NULL);
        CHECK_INT(rig.lines_n, 0);
        if (!failed)
            break;
        fails++;
        pause_set(NEVER_MS);
        /* sleep: only time shows that nothing is reported meanwhile */
        rig_turn(&rig, 20);
        CHECK_INT(rig.lines_n, 0);
        CHECK_INT(rig.works_n, 0);
        CHECK_HAS(rig.states, "no memory for a message");
        rig.states[0] = '\0';
        pause_set(0);
        rig_until(&rig, &rig.lines_n, 3);
        for (int i = 0; i < 3; i++) {
            CHECK_STR(rig.lines[i].what, "ack");
            CHECK(!rig.messages[i].out);
        }
        CHECK(rig.lines[0].n == 0 || (rig.lines[1].n == 0 && rig.lines[0].n == 2));
    }
    CHECK(fails >= 3);
    rig_until(&rig, &rig.lines_n, 3);
    rig_finish(&rig);
}

static void backlog_of(int n) {
    begin();
    alloc_arm(1, ALLOC_FAIL_ONCE);
    for (int i = 0; i < n; i++)
        rig_deliver(&rig, i % 2 == 0 ? "{\"id\": 1, \"user\": 1}" : "{\"id\": 2, \"user\": 2}",
                    NULL);
    CHECK(alloc_disarm());
    CHECK_INT(rig.consumer->backlog.n, n);
}

TEST(it_is_tried_again_by_itself) {
    backlog_of(2);
    rig_until(&rig, &rig.lines_n, 2);
    CHECK_STR(rig.lines[0].what, "ack");
    CHECK_INT(rig.consumer->backlog.n, 0);
    rig_finish(&rig);
}

TEST(what_waits_for_memory_is_given_back_by_a_stop_in_its_order) {
    backlog_of(3);
    queue_consumer_stop(rig.consumer, 1000);
    CHECK_INT(rig.lines_n, 3);
    for (int i = 0; i < 3; i++) {
        CHECK_STR(rig.lines[i].what, "giveback");
        CHECK_INT(rig.lines[i].n, i);
    }
    RIG_UNTIL(&rig, rig.stopped);
    rig_finish(&rig);
}

TEST(what_waits_for_memory_is_kept_and_may_be_gone) {
    backlog_of(3);
    pause_set(NEVER_MS);
    idem_timer_set(&rig.h->loop, &rig.consumer->extend_timer, 0);
    rig_until(&rig, &rig.extended, 3);
    rig.events.gone(rig.events.data, &rig.messages[2].m); /* the last message, then the first */
    rig.events.gone(rig.events.data, &rig.messages[0].m);
    CHECK_INT(rig.lines_n, 2);
    CHECK_INT(rig.consumer->backlog.n, 1);
    rig_deliver(&rig, "{\"id\": 3, \"user\": 3}", NULL);
    CHECK_INT(rig.consumer->backlog.n, 2);
    pause_set(0);
    rig_until(&rig, &rig.lines_n, 4);
    CHECK_INT(rig.lines[2].n, 1);
    CHECK_INT(rig.lines[3].n, 3);
    rig_finish(&rig);
}

TEST_MAIN
