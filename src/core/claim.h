/*
 * The internals of a claim, for the files of core and for front doors.
 */
#ifndef IDEM_CORE_CLAIM_H
#define IDEM_CORE_CLAIM_H

#include "core/policy.h"
#include "core/store_call.h"

enum idem_claim_state {
    IDEM_CLAIM_ASKING,
    IDEM_CLAIM_PARKED,
    IDEM_CLAIM_RUNNING,
    IDEM_CLAIM_FINISHING,
    IDEM_CLAIM_OVER,
};

/* Called when a finish was not acknowledged and will be tried again. It must not free the claim. */
typedef void idem_tried_cb(struct idem_claim *claim, const struct idem_error *err, void *data);

struct idem_claim {
    struct idem *h; /* NULL: the handle was closed */
    struct idem_claim *next, **link;
    enum idem_claim_state state;
    bool *gone; /* set if the claim is freed inside its own callback */

    struct idem_record_key key;
    char hash[65];
    unsigned char *key_bytes; /* in key_room, or allocated */
    size_t key_len;
    unsigned char key_room[64];
    char label[IDEM_LABEL_MAX];
    struct idem_policy policy; /* merged; its strings belong to the guard */
    struct idem_claim_in in;

    struct idem_store_call store_call; /* the claim, then the finish */
    struct idem_task task;
    struct idem_timer timer;   /* ends the pause of a parked claim */
    int64_t sent;              /* before the claim was sent, by this process's clock */
    unsigned late;             /* how often its lease ended before the run could begin */
    enum idem_verdict granted; /* the last verdict that was reported: RUN or PROBE; 0: none */
    idem_claim_cb *cb;
    void *data;

    struct idem_watch watch;
    bool watching, unwatchable, woken;
    int64_t wait_until, poll_ms;
    int64_t busy_until;
    uint32_t busy_attempt;
    enum idem_state busy_state;

    struct idem_store_call renew;
    struct idem_timer lease_timer, max_timer;
    int64_t lease_until, renew_sent;
    uint32_t attempt, tries;
    bool lost_notified;
    idem_lost_cb *lost;
    void *lost_data;
    idem_finish_cb *renew_cb;
    void *renew_data;

    idem_finish_cb *finish_cb;
    void *finish_data;
    struct idem_shared_bytes *shared; /* has the result until the claim is freed; NULL: no result */
    char *reason;                     /* the copy of the finish's reason; NULL: it has none */
    int64_t finish_since;
    int64_t delay_ms;    /* replaces the back-off; 0: the back-off */
    bool finish_doubted; /* a finish that was sent may have been stored */
    bool finish_shrunk;  /* the result was left out, because the store had no room for it */
    idem_tried_cb *finish_tried;
    void *finish_tried_data;
};

static inline bool idem_claim_reruns(const struct idem_claim *c) {
    return c->policy.recover == IDEM_RECOVER_RERUN;
}

/* idem_claim_new() in two steps, for a caller that holds a lock. The first step runs the policy's
   key_fn and needs no handle; idem_claim_free() undoes it. The second step sends the claim. */
int idem_claim_make(const struct idem_guard *guard, const struct idem_args *args, idem_claim_cb *cb,
                    void *data, struct idem_claim **ret, struct idem_error *err);
/* The same with a literal key whose fingerprint is computed already; a definition of 0 means that
   it has none. `h` is the handle of this thread's own loop, where the claim will be started, or
   NULL. */
int idem_claim_make_fingerprinted(struct idem *h, const struct idem_guard *guard,
                                  const struct idem_args *args,
                                  const struct idem_fingerprint *fingerprint, idem_claim_cb *cb,
                                  void *data, struct idem_claim **ret, struct idem_error *err);
/* Makes a prober's claim of a record of which only the name is known. */
int idem_claim_make_named(const struct idem_guard *guard, const struct idem_record_key *key,
                          idem_claim_cb *cb, void *data, struct idem_claim **ret,
                          struct idem_error *err);
void idem_claim_start(struct idem *h, struct idem_claim *c);

/* For a caller that received RUN or PROBE, has run nothing yet, and is late: releases the claim and
   sends it anew. The claim's callback receives the new verdict, possibly before this function
   returns. */
void idem_claim_again(struct idem_claim *c);

/* Override the policy; call them before the finish. In order: how long the outcome is
   remembered, how long the finish is tried, the callback for failed tries, and the maximum size
   of the result. */
void idem_claim_set_ttl(struct idem_claim *c, int64_t ttl_s);
void idem_claim_set_finish_timeout(struct idem_claim *c, int64_t ms);
void idem_claim_on_finish_tried(struct idem_claim *c, idem_tried_cb *tried, void *data);
void idem_claim_set_result_max(struct idem_claim *c, int64_t bytes);
/* Sets the delay before the next run, instead of the policy's back-off; 0: the back-off. */
void idem_claim_set_delay(struct idem_claim *c, int64_t ms);
/* Shares the bytes that hold the result of the finish to come: the claim takes a reference, and the
   finish copies no result that lies in them. From then on nobody may write to them. */
void idem_claim_share_result(struct idem_claim *c, struct idem_shared_bytes *bytes);
/* For the claim's callback, and only while it runs: takes a reference to the bytes that hold the
   answer's result, which the caller releases. NULL: nothing holds them, and they must be copied. */
struct idem_shared_bytes *idem_claim_answer_ref(const struct idem_claim *c);
/* Returns the delay that the finish has set. */
int64_t idem_claim_delay(const struct idem_claim *c);
/* True if a run that fails now is not repeated: no attempts are left, or failures are kept. */
bool idem_claim_is_last(const struct idem_claim *c);

/* All changes of a claim's state go through this function. */
void idem_claim_set(struct idem_claim *c, enum idem_claim_state state);

/* claim_prepare.c: fills the claim. For a claim that has its name already,
   idem_claim_prepare_policy() fills only the fields that the policy defines. */
int idem_claim_prepare(struct idem_claim *c, const struct idem_guard *guard,
                       const struct idem_args *args, const struct idem_fingerprint *fingerprint,
                       struct idem_error *err);
int idem_claim_prepare_policy(struct idem_claim *c, bool probe, struct idem_error *err);
/* Parts of it: the scope, borrowed (`at` stays as it is for scope none); the record's name; the
   label, which is copied into `room`; the hash of the value that a token is bound to. */
int idem_claim_prepare_scope(const struct idem_policy *policy, const struct idem_args *args,
                             struct idem_bytes *ret, struct idem_error *err);
int idem_claim_prepare_name(const struct idem_policy *policy, const struct idem_args *args,
                            struct idem_bytes key, struct idem_record_key *ret,
                            struct idem_error *err);
int idem_claim_prepare_label(const char *label, char room[IDEM_LABEL_MAX], struct idem_bytes *ret,
                             struct idem_error *err);
int idem_claim_prepare_bind(const struct idem_args *args, unsigned char bind[IDEM_HASH_LEN],
                            bool *ret_has, struct idem_error *err);

/* lease.c */
void idem_lease_init(struct idem_claim *c);
void idem_lease_begin(struct idem_claim *c);
/* Starts run_max alone, for an unguarded run, which has no lease; idem_claim_free() ends it. */
void idem_lease_bound(struct idem_claim *c);
void idem_lease_stop(struct idem_claim *c);
/* Returns the time by idem_loop_now() at which the lease of a running claim ends. idem.h does not
   offer it; it is for a caller that starts a command, which must not begin later. */
int64_t idem_claim_lease_until(const struct idem_claim *c);

/* finish.c: the delay before the next try: grows with each try, with a random share. */
int64_t idem_backoff(int64_t min_ms, int64_t max_ms, uint32_t tries);

#endif
