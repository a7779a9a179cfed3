/*
 * The handle, inside: a store on a loop; and, for blocking callers, the thread
 * that runs that loop.
 *
 * Everything behind a blocking handle is guarded by one lock. A caller takes
 * it, submits, and runs the loop's tasks itself: what can be answered at once
 * is answered without another thread. For the rest it sleeps until the service
 * thread, which holds the lock except while it polls, has run its call-back.
 */
#ifndef IDEM_CORE_HANDLE_H
#define IDEM_CORE_HANDLE_H

#include <pthread.h>

#include "core/spare.h"
#include "loop/loop.h"
#include "loop/poll.h"
#include "store/store.h"

struct idem_service {
    pthread_mutex_t lock;
    pthread_t thread;
    struct idem_poll poll;
    int wake_fd;
    bool asleep, stop;
    bool tasks;           /* the loop has tasks to run */
    int64_t timer_at;     /* not later than the loop's first timer; INT64_MAX: none */
    int64_t asleep_until; /* on idem_loop_now() */
};

struct idem {
    unsigned forks; /* idem_fork_count() when it was opened */
    struct idem_loop loop;
    struct idem_store *store;
    struct idem_settings *settings;
    int64_t op_timeout_ms;
    struct idem_service *service; /* NULL: on the caller's own loop */
    struct idem_claim *claims;
    struct idem_ask *asks;       /* on their way */
    struct idem_spare spare;     /* claims that are over; on the caller's own loop only */
    struct idem_errand *errands; /* releases in the background */
    unsigned depth;              /* of calls from the host */
    bool closed;
};

/* IDEM_E_FORK after a fork, else 0. */
int idem_handle_check(const struct idem *h, struct idem_error *err);

/* IDEM_E_INVALID unless the handle is for blocking calls. */
int idem_handle_check_blocking(const struct idem *h, struct idem_error *err);
/* The same, unless it is on a loop of the caller's own. */
int idem_handle_check_loop(const struct idem *h, struct idem_error *err);

/* Blocking callers: between these two the handle is theirs. */
void idem_handle_enter(struct idem *h);
void idem_handle_leave(struct idem *h);

/* Something a blocking caller waits for; set up, told and waited for under the lock. */
struct idem_waiter {
    pthread_cond_t cond;
    bool ready;
};
void idem_waiter_init(struct idem_waiter *waiter);
void idem_waiter_release(struct idem_waiter *waiter);
void idem_waiter_tell(struct idem_waiter *waiter);
/* Runs the loop's tasks and then sleeps until told, or until `ms` are over
   (negative: no limit). True if told. */
bool idem_waiter_wait(struct idem *h, struct idem_waiter *waiter, int64_t ms);

/* Submits and waits: the operation's code. What the answer points to is gone
   afterwards, so `take` (may be NULL) sees it first, under the lock. */
int idem_handle_run(struct idem *h, struct idem_op *op, void (*take)(struct idem_op *op, int rc),
                    struct idem_error *err);

/* Counts an event, in the store. */
void idem_handle_tally(struct idem *h, enum idem_event event);

/* Has a meter told what goes on, from now on; it outlives the handle. NULL: none. */
void idem_handle_measure(struct idem *h, const struct idem_meter *meter);

/* claim.c: the handle is closing. */
void idem_claims_detach(struct idem *h);
void idem_asks_detach(struct idem *h); /* ask.c: likewise */

/* errand.c: releases by owner id, in the background, tried again for a bounded time. Dropped once
   the store is closed. */
void idem_errand_release(struct idem *h, const struct idem_record_key *key,
                         const unsigned char owner[IDEM_OWNER_LEN], int64_t ttl_ms);
void idem_errands_drop(struct idem *h);

#endif
