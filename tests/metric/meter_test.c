/*
 * The counts of a handle's meter, and the results of a survey, on the LMDB
 * store.
 */
#include "metric/metric_meter.h"

#include "core/poll_handle.h"
#include "wait.h"

struct parts {
    struct rig rig;
    struct board *board;
    struct board_store *store;
    struct board_process *process;
    struct board_meter meter;
    struct idem_guard *guard;
    unsigned answers;
    enum idem_verdict verdict;
};

static void parts_begin(struct parts *p, struct idem_policy policy) {
    *p = (struct parts){.board = calloc(1, BOARD_SIZE)};
    CHECK(p->board != NULL && board_init(p->board));
    rig_begin(&p->rig, "sync=off", NULL);
    p->store = board_store(p->board, "lmdb:/somewhere");
    p->process = board_process(p->board, getpid());
    board_meter_init(&p->meter, p->store, p->process);
    idem_handle_measure(p->rig.h, &p->meter.meter);
    policy.prefix = "t:";
    policy.scope = IDEM_SCOPE_NONE;
    CHECK_INT(idem_guard_new(p->rig.h, &policy, &p->guard, NULL), 0);
}

static void parts_end(struct parts *p) {
    idem_guard_free(p->guard);
    rig_end(&p->rig);
    free(p->board);
}

static void answered(struct idem_claim *claim, int rc, const struct idem_answer *answer,
                     const struct idem_error *err, void *data) {
    struct parts *p = data;

    (void)claim;
    (void)err;
    CHECK_INT(rc, 0);
    p->verdict = answer->verdict;
    p->answers++;
}

static void finished(struct idem_claim *claim, int rc, bool lost, const struct idem_error *err,
                     void *data) {
    struct parts *p = data;

    (void)claim;
    (void)err;
    CHECK(rc == 0 && !lost);
    p->answers++;
}

static struct idem_claim *claim_start(struct parts *p, const char *key) {
    struct idem_args args = {.key = key, .key_len = strlen(key), .label = key};
    struct idem_claim *claim;

    CHECK_INT(idem_claim_new(p->rig.h, p->guard, &args, answered, p, &claim, NULL), 0);
    return claim;
}

static void turn_until(struct parts *p, unsigned answers) {
    WAIT_UNTIL((idem_poll_turn(&p->rig.poll, NULL, 0, 5), p->answers >= answers));
    CHECK_INT(p->answers, answers);
}

TEST(a_meter_counts_operations_events_and_what_goes_on) {
    struct parts p;
    struct idem_claim *first, *second;

    parts_begin(&p, (struct idem_policy){.wait_ms = 120000});
    first = claim_start(&p, "k");
    turn_until(&p, 1);
    CHECK_INT(p.verdict, IDEM_RUN);
    CHECK_INT(p.process->running, 1);
    second = claim_start(&p, "k");
    WAIT_BY((void)idem_poll_turn(&p.rig.poll, NULL, 0, 20), p.process->parked == 1);
    CHECK_INT(idem_claim_done(first, 200, "r", 1, finished, &p), 0);
    CHECK_INT(p.process->running, 1); /* until its outcome is stored */
    turn_until(&p, 3);
    CHECK_INT(p.verdict, IDEM_REPLAY);
    CHECK_INT(p.process->parked, 0);
    CHECK_INT(p.process->running, 0);
    CHECK_INT(board_get(&p.store->events[IDEM_EVENT_RUN]), 1);
    CHECK_INT(board_get(&p.store->events[IDEM_EVENT_REPLAY]), 1);
    CHECK(board_get(&p.store->ops[BOARD_OP_FINISH].counts[BOARD_BOUNDS]) == 0);
    idem_claim_free(first);
    idem_claim_free(second);
    parts_end(&p);
}

TEST(claims_that_are_dropped_or_outlive_their_handle_are_not_in_flight) {
    struct parts p;
    struct idem_claim *dropped, *left;

    parts_begin(&p, (struct idem_policy){0});
    dropped = claim_start(&p, "a");
    left = claim_start(&p, "b");
    turn_until(&p, 2);
    CHECK_INT(p.process->running, 2);
    idem_claim_free(dropped);
    CHECK_INT(p.process->running, 1);
    idem_close(p.rig.h);
    CHECK_INT(p.process->running, 0);
    idem_claim_free(left);
    CHECK_INT(p.process->running, 0);
    idem_guard_free(p.guard);
    idem_poll_release(&p.rig.poll);
    free(p.board);
}

TEST(a_survey_counts_what_runs_and_what_is_uncertain_and_names_the_oldest) {
    struct parts p;
    struct board_survey found;
    struct survey survey;
    struct idem_claim *claims[60];
    char key[16];
    int n = 0;

    parts_begin(&p, (struct idem_policy){.lease_ms = 3600000});
    for (; n < 60; n++) {
        snprintf(key, sizeof(key), "k%02d", n);
        claims[n] = claim_start(&p, key);
        turn_until(&p, (unsigned)n + 1);
        if (n % 10 == 0)
            usleep(2000); /* sleep: so that some records are older by their clock */
    }
    p.answers = 0;
    for (int i = 0; i < 25; i++)
        CHECK_INT(idem_claim_unknown(claims[i], "who knows", finished, &p), 0);
    turn_until(&p, 25);
    CHECK_INT(idem_claim_done(claims[59], 0, NULL, 0, finished, &p), 0);
    turn_until(&p, 26);
    survey_start(&survey, p.rig.h, p.store);
    board_survey_get(p.board, p.store, &found);
    CHECK_INT(found.at_ms, 0);
    WAIT_UNTIL((idem_poll_turn(&p.rig.poll, NULL, 0, 5), board_survey_get(p.board, p.store, &found),
                found.at_ms != 0));
    CHECK_INT(found.uncertain, 25);
    CHECK_INT(found.running, 34);
    CHECK_INT(found.oldest_n[0], BOARD_OLDEST);
    CHECK_INT(found.oldest_n[1], BOARD_OLDEST);
    for (int list = 0; list < 2; list++)
        for (int i = 1; i < BOARD_OLDEST; i++)
            CHECK(found.oldest[list][i - 1].changed_ms <= found.oldest[list][i].changed_ms);
    CHECK(strcmp(found.oldest[0][0].label, "k31") < 0 &&
          strcmp(found.oldest[0][0].label, "k24") > 0);
    CHECK_STR(found.oldest[1][0].reason, "who knows");
    CHECK_INT(found.oldest_ms, found.oldest[1][0].changed_ms);
    survey_stop(&survey);
    survey_stop(&survey);
    for (int i = 0; i < 60; i++)
        idem_claim_free(claims[i]);
    parts_end(&p);
}

TEST_MAIN
