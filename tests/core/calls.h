/*
 * Blocking calls in tests: a store, a guard, a function that follows its `struct work`, and a
 * call.
 */
#ifndef IDEM_TEST_CALLS_H
#define IDEM_TEST_CALLS_H

#include <pthread.h>
#include <stdatomic.h>

#include "idem.h"
#include "temp.h"
#include "test.h"
#include "wait.h"

static inline struct idem *open_store(const char *options) {
    struct idem_error err = {0};
    struct idem *h;

    if (idem_open(temp_url("store", options), NULL, &h, &err) < 0) {
        fprintf(stderr, "# %s\n", err.text);
        exit(1);
    }
    return h;
}

static inline struct idem_guard *guard_of(struct idem *h, struct idem_policy policy) {
    struct idem_error err = {0};
    struct idem_guard *guard;

    if (policy.prefix == NULL)
        policy.prefix = "t:";
    if (policy.scope == NULL)
        policy.scope = IDEM_SCOPE_NONE;
    if (idem_guard_new(h, &policy, &guard, &err) < 0) {
        fprintf(stderr, "# %s\n", err.text);
        exit(1);
    }
    return guard;
}

/* Sets what the function under test does, and counts its runs. */
struct work {
    enum idem_result say;
    const char *result;
    int32_t status;
    const char *reason;
    bool until_cancel; /* runs until it is cancelled */
    atomic_int *count; /* or until this has come so far; NULL: not */
    int until;
    void (*then)(void); /* and then does this; NULL: nothing */
    atomic_int runs;
    uint32_t attempt;
    bool cancelled;
};

static inline enum idem_result do_work(struct idem_run *run, void *data) {
    struct work *work = data;

    work->runs++;
    work->attempt = idem_run_attempt(run);
    WAIT_UNTIL(!work->until_cancel || idem_run_cancelled(run));
    WAIT_UNTIL(work->count == NULL || *work->count >= work->until);
    if (work->then != NULL)
        work->then();
    work->cancelled = idem_run_cancelled(run);
    if (work->result != NULL)
        CHECK_INT(idem_run_set_result(run, work->result, strlen(work->result)), 0);
    idem_run_set_status(run, work->status);
    if (work->reason != NULL)
        idem_run_set_reason(run, work->reason);
    return work->say;
}

static inline struct idem_outcome call(struct idem *h, const struct idem_guard *guard,
                                       const char *key, struct work *work) {
    struct idem_args args = {.key = key, .key_len = strlen(key)};
    struct idem_error err = {0};
    struct idem_outcome out;

    if (idem_call(h, guard, &args, do_work, work, &out, &err) < 0) {
        fprintf(stderr, "# %s\n", err.text);
        exit(1);
    }
    return out;
}

/* The same, for the verdict alone. */
static inline enum idem_verdict verdict(struct idem *h, const struct idem_guard *guard,
                                        const char *key, struct work *work) {
    struct idem_outcome out = call(h, guard, key, work);

    idem_outcome_release(&out);
    return out.verdict;
}

static inline int64_t count_of(struct idem *h, enum idem_event event) {
    struct idem_stats stats;

    CHECK_INT(idem_stats(h, &stats, NULL), 0);
    return (int64_t)stats.events[event];
}

#endif
