/*
 * A claim, inside.
 */
#ifndef IDEM_CORE_CLAIM_H
#define IDEM_CORE_CLAIM_H

#include "core/handle.h"
#include "core/policy.h"

enum idem_claim_state {
    IDEM_CLAIM_ASKING,
    IDEM_CLAIM_PARKED,
    IDEM_CLAIM_RUNNING,
    IDEM_CLAIM_FINISHING,
    IDEM_CLAIM_OVER,
};

/* A finish was not acknowledged, and is tried again. It must not free the claim. */
typedef void idem_tried_cb(struct idem_claim *claim, const struct idem_error *err, void *data);

struct idem_claim {
    struct idem *h; /* NULL: the handle was closed */
    struct idem_claim *next, **link;
    enum idem_claim_state state;
    bool *gone; /* set when it is freed inside its own call-back */

    struct idem_record_key key;
    char hash[65];
    unsigned char *key_bytes; /* in key_room, or allocated */
    size_t key_len;
    unsigned char key_room[64];
    char label[IDEM_LABEL_MAX];
    struct idem_policy policy; /* merged; its strings are the guard's */
    struct idem_claim_in in;

    struct idem_op op; /* the claim, then the finish */
    struct idem_task task;
    struct idem_timer timer;   /* bounds the answer, ends the pause, tries again */
    int64_t sent;              /* before the claim was sent, by our clock */
    unsigned late;             /* how often its lease was over before it could begin */
    enum idem_verdict granted; /* what was told and counted last: RUN or PROBE; 0: nothing yet */
    idem_claim_cb *cb;
    void *data;

    struct idem_watch watch;
    bool watching, unwatchable, woken;
    int64_t wait_until, poll_ms;
    int64_t busy_until;
    uint32_t busy_attempt;
    enum idem_state busy_state;

    struct idem_op renew_op;
    struct idem_timer lease_timer, max_timer;
    int64_t lease_until, renew_sent;
    uint32_t attempt, tries;
    bool lost_told;
    idem_lost_cb *lost;
    void *lost_data;
    idem_finish_cb *renew_cb;
    void *renew_data;

    idem_finish_cb *finish_cb;
    void *finish_data;
    unsigned char *kept; /* result and reason, until it is acknowledged */
    int64_t finish_until, retry_ms;
    int64_t delay_ms; /* instead of the back-off; 0: that */
    bool finish_sent;
    bool finish_doubted;            /* one that was sent may have been stored */
    bool finish_shrunk;             /* the result was left out: the store had no room for it */
    struct idem_error finish_error; /* the last one, while it is tried again */
    idem_tried_cb *finish_tried;
    void *finish_tried_data;
};

static inline bool idem_claim_reruns(const struct idem_claim *c) {
    return c->policy.recover == IDEM_RECOVER_RERUN;
}

/* idem_claim_new() in two steps, for who holds a lock: the first runs the policy's key_fn, needs
   no handle, and is undone by idem_claim_free(); the second asks. */
int idem_claim_make(const struct idem_guard *guard, const struct idem_args *args, idem_claim_cb *cb,
                    void *data, struct idem_claim **ret, struct idem_error *err);
/* The same with a literal key whose fingerprint is computed already; its definition 0: none. `h` is
   the handle of this thread's own loop, where it will be started, or NULL. */
int idem_claim_make_printed(struct idem *h, const struct idem_guard *guard,
                            const struct idem_args *args, const struct idem_fingerprint *print,
                            idem_claim_cb *cb, void *data, struct idem_claim **ret,
                            struct idem_error *err);
/* A prober's claim of a record whose name alone is known. */
int idem_claim_make_named(const struct idem_guard *guard, const struct idem_record_key *key,
                          idem_claim_cb *cb, void *data, struct idem_claim **ret,
                          struct idem_error *err);
void idem_claim_start(struct idem *h, struct idem_claim *c);

/* For who was answered RUN or PROBE, has run nothing yet, and is late: gives it back and asks anew.
   The answer comes by the claim's call-back, which may be called at once. */
void idem_claim_again(struct idem_claim *c);

/* Before its finish, where they are not the policy's: how long the end is remembered, how long it
   is tried to store it, and how long its result may be. */
void idem_claim_set_ttl(struct idem_claim *c, int64_t ttl_s);
void idem_claim_set_finish_timeout(struct idem_claim *c, int64_t ms);
void idem_claim_on_finish_tried(struct idem_claim *c, idem_tried_cb *tried, void *data);
void idem_claim_set_result_max(struct idem_claim *c, int64_t bytes);
/* After how long it may run again, instead of the policy's back-off; 0: the back-off. */
void idem_claim_set_delay(struct idem_claim *c, int64_t ms);
/* What a finish that was said has made of that. */
int64_t idem_claim_delay(const struct idem_claim *c);
/* Whether a run that fails now is not run again: no attempts are left, or failures are kept. */
bool idem_claim_is_last(const struct idem_claim *c);

/* The one place where a claim changes its state. */
void idem_claim_set(struct idem_claim *c, enum idem_claim_state state);

/* fill.c: all that it says; and, of a claim that has its name, what its policy has it say. */
int idem_claim_fill(struct idem_claim *c, const struct idem_guard *guard,
                    const struct idem_args *args, const struct idem_fingerprint *print,
                    struct idem_error *err);
int idem_claim_words(struct idem_claim *c, bool probe, struct idem_error *err);
/* Its parts: who is asking, borrowed, with `at` left as it is for scope none; the record's name;
 * the label, put into `room`; the hash of what a token is bound to.
 */
int idem_fill_scope(const struct idem_policy *policy, const struct idem_args *args,
                    struct idem_bytes *ret, struct idem_error *err);
int idem_fill_name(const struct idem_policy *policy, const struct idem_args *args,
                   struct idem_bytes key, struct idem_record_key *ret, struct idem_error *err);
int idem_fill_label(const char *label, char room[IDEM_LABEL_MAX], struct idem_bytes *ret,
                    struct idem_error *err);
int idem_fill_bind(const struct idem_args *args, unsigned char bind[IDEM_HASH_LEN], bool *ret_has,
                   struct idem_error *err);

/* lease.c */
void idem_lease_init(struct idem_claim *c);
void idem_lease_begin(struct idem_claim *c);
/* run_max alone, for an unguarded run, which has no lease; idem_claim_free() ends it. */
void idem_lease_bound(struct idem_claim *c);
void idem_lease_stop(struct idem_claim *c);
/* When the lease of a claim that runs is over by idem_loop_now(), which idem.h does not tell: for
   who starts something that must not begin after it. */
int64_t idem_claim_lease_until(const struct idem_claim *c);

/* finish.c: how long to wait before the next try; how it grows, and its chance. */
int64_t idem_backoff(int64_t min_ms, int64_t max_ms, uint32_t tries);
/* finish.c: sends what is to be said, for the first time or again; the same, after nothing came. */
void idem_finish_send(struct idem_claim *c);
void idem_finish_resend(struct idem_claim *c);

#endif
