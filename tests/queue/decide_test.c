/*
 * The two tables: every verdict and every result has its row, and no row
 * acknowledges a result that is not durable.
 */
#include "queue/decide.h"
#include "test.h"

TEST(every_verdict_has_a_row_of_its_own) {
    for (int verdict = IDEM_RUN; verdict <= IDEM_PROBE; verdict++)
        for (int state = IDEM_ABSENT; state <= IDEM_FAILED; state++)
            CHECK_INT(
                queue_decide_verdict((enum idem_verdict)verdict, (enum idem_state)state)->verdict,
                verdict);
}

TEST(every_result_has_a_row_of_its_own) {
    for (int result = QUEUE_DONE; result <= QUEUE_UNBEGUN; result++)
        for (int room = QUEUE_ROOM_LEFT; room <= QUEUE_ROOM_RELEASE; room++)
            CHECK_INT(queue_decide_result((enum queue_result)result, (enum queue_room)room)->result,
                      result);
}

TEST(only_what_is_done_is_acknowledged_without_a_copy) {
    for (int result = QUEUE_RETRY; result <= QUEUE_UNBEGUN; result++)
        for (int room = QUEUE_ROOM_LEFT; room <= QUEUE_ROOM_RELEASE; room++)
            CHECK(queue_decide_result((enum queue_result)result, (enum queue_room)room)->step !=
                  QUEUE_STEP_ACK);
    CHECK_INT(queue_decide_verdict(IDEM_DUPLICATE, IDEM_DONE)->step, QUEUE_STEP_ACK);
    CHECK_INT(queue_decide_verdict(IDEM_REPLAY, IDEM_DONE)->step, QUEUE_STEP_ACK);
    CHECK_INT(queue_decide_verdict(IDEM_BUSY, IDEM_RUNNING)->step, QUEUE_STEP_HOLD);
    CHECK_INT(queue_decide_verdict(IDEM_BUSY, IDEM_FAILED)->step, QUEUE_STEP_DELAY);
    CHECK_INT(queue_decide_verdict(IDEM_DEAD, IDEM_FAILED)->step, QUEUE_STEP_BURY);
    CHECK_INT(queue_decide_verdict(IDEM_MISMATCH, IDEM_ABSENT)->step, QUEUE_STEP_BURY);
    CHECK_INT(queue_decide_verdict(IDEM_UNCERTAIN, IDEM_RUNNING)->step, QUEUE_STEP_BURY);
}

TEST(a_letter_that_is_buried_says_why) {
    for (int verdict = IDEM_RUN; verdict <= IDEM_PROBE; verdict++) {
        const struct queue_verdict_rule *row =
            queue_decide_verdict((enum idem_verdict)verdict, IDEM_ABSENT);

        CHECK((row->step == QUEUE_STEP_BURY) == (row->dead_verdict != NULL));
        CHECK(row->dead_verdict == NULL || strlen(queue_dead_verdict_text(row->dead_verdict)) > 10);
    }
    CHECK_STR(queue_decide_result(QUEUE_RETRY, QUEUE_ROOM_NONE)->dead_verdict, "dead");
    CHECK_STR(queue_decide_result(QUEUE_REFUSED, QUEUE_ROOM_LEFT)->dead_verdict, "refused");
}

TEST(room_is_what_the_policy_leaves) {
    struct idem_policy policy = {.on_failure = IDEM_ON_FAILURE_RETRY};

    CHECK_INT(queue_room(&policy, false), QUEUE_ROOM_LEFT);
    CHECK_INT(queue_room(&policy, true), QUEUE_ROOM_NONE);
    policy.on_failure = IDEM_ON_FAILURE_RELEASE;
    CHECK_INT(queue_room(&policy, false), QUEUE_ROOM_RELEASE);
    CHECK(queue_decide_result(QUEUE_RETRY, QUEUE_ROOM_RELEASE)->release);
    CHECK(queue_decide_result(QUEUE_UNBEGUN, QUEUE_ROOM_NONE)->release);
}

TEST_MAIN
