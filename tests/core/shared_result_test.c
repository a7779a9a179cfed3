/*
 * A result that no layer copies between the front door and the store, however early its other
 * owners leave.
 */
#include "base/shared_bytes.h"
#include "core/claim.h"
#include "loop/poll.h"
#include "store/store.h"
#include "temp.h"
#include "test.h"

#define RESULT_LEN 100000
#define HEAD 7 /* the result begins inside of its bytes */

static struct idem_shared_bytes *bytes_of(unsigned char what) {
    struct idem_shared_bytes *bytes = idem_shared_bytes_new(HEAD + RESULT_LEN);

    CHECK(bytes != NULL);
    memset(bytes->at, what, bytes->size);
    return bytes;
}

TEST(a_copy_of_an_operation_copies_its_strings_but_not_a_shared_result) {
    struct idem_shared_bytes *bytes = bytes_of('r');
    struct idem_op op = {.kind = IDEM_OP_FINISH}, copy;
    unsigned char *room = malloc(RESULT_LEN + 3);

    CHECK(room != NULL);
    op.in.finish.result = (struct idem_bytes){bytes->at + HEAD, RESULT_LEN};
    op.in.finish.reason = (struct idem_bytes){(const unsigned char *)"why", 3};
    CHECK(idem_op_strings_len(&op) == RESULT_LEN + 3 && idem_op_copy_len(&op) == RESULT_LEN + 3);
    idem_op_copy(&op, &copy, room);
    CHECK(copy.in.finish.result.at == room && copy.in.finish.reason.at == room + RESULT_LEN);
    CHECK(idem_bytes_equal(copy.in.finish.result, op.in.finish.result) && bytes->refs == 1);
    idem_op_copy_release(&copy);

    op.in.finish.shared = bytes;
    CHECK(idem_op_strings_len(&op) == RESULT_LEN + 3 && idem_op_copy_len(&op) == 3);
    idem_op_copy(&op, &copy, room);
    CHECK(copy.in.finish.result.at == bytes->at + HEAD && copy.in.finish.reason.at == room);
    CHECK_INT(bytes->refs, 2);
    idem_op_copy_release(&copy);
    CHECK_INT(bytes->refs, 1);
    idem_shared_bytes_release(bytes);
    free(room);
}

/* Claims on a loop of this program. */

struct rig {
    struct idem_poll poll;
    struct idem *h;
    struct idem_guard *guard;
};

static void rig_ready(void *sink, int fd, int events) {
    idem_ready(sink, fd, events);
}

static void rig_timeout(void *sink) {
    idem_timeout(sink);
}

static void rig_open(struct rig *rig, const char *options) {
    static const struct idem_policy policy = {
        .prefix = "pay:", .scope = IDEM_SCOPE_NONE, .mode = IDEM_MODE_REPLAY, .wait_ms = IDEM_NONE};
    struct idem_error err = {0};
    struct idem_host host;

    idem_poll_init(&rig->poll);
    host = idem_poll_host(&rig->poll);
    CHECK_INT(idem_open_on(temp_url("store", options), NULL, &host, &rig->h, &err), 0);
    CHECK_INT(idem_guard_new(rig->h, &policy, &rig->guard, NULL), 0);
    rig->poll.ready = rig_ready;
    rig->poll.timeout = rig_timeout;
    rig->poll.sink = rig->h;
}

static void rig_close(struct rig *rig) {
    idem_guard_free(rig->guard);
    idem_close(rig->h);
    idem_poll_release(&rig->poll);
}

static void rig_step(struct rig *rig) {
    CHECK(idem_poll_turn(&rig->poll, NULL, 0, 1000) >= 0);
}

struct seen {
    bool answered, finished;
    enum idem_verdict verdict;
    const unsigned char *result;
    struct idem_shared_bytes *bytes; /* a reference of the test's own */
};

static void on_answer(struct idem_claim *claim, int rc, const struct idem_answer *answer,
                      const struct idem_error *err, void *data) {
    struct seen *seen = data;

    (void)err;
    CHECK_INT(rc, 0);
    seen->answered = true;
    seen->verdict = answer->verdict;
    if (!answer->has_result)
        return;
    CHECK(answer->result_len == RESULT_LEN);
    seen->result = answer->result;
    seen->bytes = idem_claim_answer_ref(claim);
    CHECK(idem_shared_bytes_hold(seen->bytes, answer->result, answer->result_len));
}

static void on_finish(struct idem_claim *claim, int rc, bool lost, const struct idem_error *err,
                      void *data) {
    struct seen *seen = data;

    (void)claim;
    (void)err;
    CHECK(rc == 0 && !lost);
    seen->finished = true;
}

static struct idem_claim *rig_claim(struct rig *rig, const char *key, struct seen *seen) {
    struct idem_args args = {.key = key, .key_len = strlen(key)};
    struct idem_claim *claim;

    *seen = (struct seen){0};
    CHECK_INT(idem_claim_new(rig->h, rig->guard, &args, on_answer, seen, &claim, NULL), 0);
    while (!seen->answered)
        rig_step(rig);
    return claim;
}

static void check_result(const struct seen *seen, unsigned char what) {
    for (size_t i = 0; i < RESULT_LEN; i++)
        CHECK(seen->result[i] == what);
}

TEST(a_finish_uses_the_bytes_that_were_shared_and_copies_all_others) {
    struct rig rig;
    struct seen seen;
    struct idem_claim *claim;
    struct idem_shared_bytes *bytes = bytes_of('s');
    unsigned char *own = malloc(RESULT_LEN);

    rig_open(&rig, "sync=off");
    claim = rig_claim(&rig, "shared", &seen);
    idem_claim_share_result(claim, bytes);
    CHECK_INT(idem_claim_done(claim, 200, bytes->at + HEAD, RESULT_LEN, on_finish, &seen), 0);
    CHECK(claim->store_call.op.in.finish.result.at == bytes->at + HEAD);
    while (!seen.finished)
        rig_step(&rig);
    idem_claim_free(claim);
    CHECK_INT(bytes->refs, 1);

    CHECK(own != NULL);
    memset(own, 'o', RESULT_LEN);
    claim = rig_claim(&rig, "own", &seen);
    idem_claim_share_result(claim, bytes);
    CHECK_INT(idem_claim_done(claim, 200, own, RESULT_LEN, on_finish, &seen), 0);
    CHECK_INT(bytes->refs, 1);
    memset(own, 'x', RESULT_LEN);
    free(own);
    while (!seen.finished)
        rig_step(&rig);
    idem_claim_free(claim);
    idem_claim_free(rig_claim(&rig, "own", &seen));
    CHECK_INT(seen.verdict, IDEM_REPLAY);
    check_result(&seen, 'o');
    idem_shared_bytes_release(seen.bytes);
    idem_shared_bytes_release(bytes);
    rig_close(&rig);
}

/* The claim goes before the store has seen the finish, while the writer thread may have it, after
   it, or with the handle. */
TEST(the_store_keeps_the_bytes_until_it_has_written_them) {
    struct rig rig;
    struct seen seen[24], again;
    struct idem_claim *claims[24];
    struct idem_shared_bytes *bytes;
    unsigned replays = 0;
    char key[16];

    rig_open(&rig, "sync=always");
    for (unsigned i = 0; i < 24; i++) {
        snprintf(key, sizeof(key), "k%u", i);
        claims[i] = rig_claim(&rig, key, &seen[i]);
        bytes = bytes_of((unsigned char)('a' + i));
        idem_claim_share_result(claims[i], bytes);
        CHECK_INT(
            idem_claim_done(claims[i], 200, bytes->at + HEAD, RESULT_LEN, on_finish, &seen[i]), 0);
        idem_shared_bytes_release(bytes);
        if (i % 4 > 0)
            rig_step(&rig);
        while (i % 4 == 2 && !seen[i].finished)
            rig_step(&rig);
        if (i % 4 == 3)
            continue;
        idem_claim_free(claims[i]);
        claims[i] = NULL;
    }
    rig_close(&rig);
    for (unsigned i = 0; i < 24; i++)
        idem_claim_free(claims[i]);
    rig_open(&rig, "sync=always");
    for (unsigned i = 0; i < 24; i++) {
        snprintf(key, sizeof(key), "k%u", i);
        idem_claim_free(rig_claim(&rig, key, &again));
        CHECK_INT(again.verdict, again.bytes == NULL ? IDEM_BUSY : IDEM_REPLAY);
        CHECK(again.bytes != NULL || i % 4 < 2); /* else it was cancelled before it began */
        replays += again.bytes != NULL;
        if (again.bytes != NULL)
            check_result(&again, (unsigned char)('a' + i));
        idem_shared_bytes_release(again.bytes);
    }
    CHECK(replays >= 12);
    rig_close(&rig);
}

TEST(what_a_replay_has_stays_until_the_last_reference) {
    struct rig rig;
    struct seen seen;
    struct idem_claim *claim;
    struct idem_shared_bytes *bytes = bytes_of('p');

    rig_open(&rig, "sync=off");
    claim = rig_claim(&rig, "k", &seen);
    idem_claim_share_result(claim, bytes);
    CHECK_INT(idem_claim_done(claim, 200, bytes->at + HEAD, RESULT_LEN, on_finish, &seen), 0);
    while (!seen.finished)
        rig_step(&rig);
    idem_claim_free(claim);
    idem_shared_bytes_release(bytes);
    idem_claim_free(rig_claim(&rig, "k", &seen));
    rig_close(&rig);
    CHECK(seen.bytes != NULL && seen.bytes->refs == 1);
    check_result(&seen, 'p');
    idem_shared_bytes_release(seen.bytes);
}

TEST_MAIN
