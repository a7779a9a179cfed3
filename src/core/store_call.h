/*
 * One operation of the store: the only way in which core calls it. One request, and one result or a
 * timeout; a user may have it sent again.
 *
 *     send ──> under way ──> answered ──again──> pause ──> send
 */
#ifndef IDEM_CORE_STORE_CALL_H
#define IDEM_CORE_STORE_CALL_H

#include "core/handle.h"

/* A member of a struct that its user allocates. `answered` is called last and may free that
   struct. err is NULL if rc is 0. A response that does not arrive in time is IDEM_E_UNKNOWN. */
struct idem_store_call {
    struct idem *h; /* NULL: the handle was closed, or nothing is under way */
    struct idem_store_call *next, **link;
    struct idem_op op;       /* the user fills it, except complete and data */
    struct idem_timer timer; /* bounds the response, or ends the pause before the next try */
    struct idem_task task;
    void (*answered)(struct idem_store_call *store_call, int rc, const struct idem_error *err);
    int64_t timeout_ms; /* of one try; 0: the handle's; negative: none */
    bool timed_out;     /* the last try */
    bool quiet;         /* failures are not counted as the store's */

    /* For idem_store_call_again(): no try is sent after `until`. The pause doubles up to its
       maximum; there is none behind a try that has taken its time. */
    int64_t until, pause_ms, pause_max_ms;
};

/* Sends the operation from the loop, and stops it when the handle is closed. The user has set `op`
   and `answered`. */
void idem_store_call_start(struct idem *h, struct idem_store_call *store_call);

/* The same in steps, for a user that stops its calls itself when the handle is closed. */
void idem_store_call_init(struct idem *h, struct idem_store_call *store_call,
                          void (*answered)(struct idem_store_call *store_call, int rc,
                                           const struct idem_error *err));
/* Sends it now, or from the loop. Call send last: a failure calls `answered` at once. */
void idem_store_call_send(struct idem_store_call *store_call);
void idem_store_call_post(struct idem_store_call *store_call);
static inline bool idem_store_call_is_pending(const struct idem_store_call *store_call) {
    return store_call->op.driver != NULL;
}
/* True for an error against which another try cannot help. */
bool idem_store_call_is_permanent(int rc);
/* Sends it again after a pause. False: `until` is over, or the error is permanent. */
bool idem_store_call_again(struct idem_store_call *store_call, int rc);

/* Stops the operation: no callback follows. Also works in a forked child and after the handle
   closed. */
void idem_store_call_stop(struct idem_store_call *store_call);

#endif
