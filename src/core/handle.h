/*
 * The inside of the handle: a store on a loop; for blocking callers also the thread that runs the
 * loop.
 *
 * One lock guards everything behind a blocking handle. A caller takes the lock, submits, and runs
 * the loop's tasks itself, so an immediate response needs no other thread. Otherwise the caller
 * sleeps until the service thread, which holds the lock except while it polls, has run its
 * callback.
 */
#ifndef IDEM_CORE_HANDLE_H
#define IDEM_CORE_HANDLE_H

#include <pthread.h>

#include "base/freelist.h"
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
    unsigned forks; /* idem_fork_count() at the time of opening */
    struct idem_loop loop;
    struct idem_store *store;
    struct idem_settings *settings;
    int64_t op_timeout_ms;
    struct idem_service *service; /* NULL: on the caller's own loop */
    struct idem_claim *claims;
    struct idem_store_call *store_calls; /* operations under way */
    struct idem_freelist freelist;       /* memory of ended claims; only on the caller's own loop */
    struct idem_release_retry *release_retries; /* releases that are retried in the background */
    unsigned depth;                             /* of nested calls from the host */
    bool closed;
};

/* IDEM_E_FORK after a fork, else 0. */
int idem_handle_check(const struct idem *h, struct idem_error *err);

/* IDEM_E_INVALID unless the handle is one for blocking calls. */
int idem_handle_check_blocking(const struct idem *h, struct idem_error *err);
/* IDEM_E_INVALID unless the handle is on the caller's own loop. */
int idem_handle_check_loop(const struct idem *h, struct idem_error *err);

/* Blocking callers: between these two calls the handle is locked for the caller. */
void idem_handle_enter(struct idem *h);
void idem_handle_leave(struct idem *h);

/* Lets a blocking caller wait for an event. Initialized, signalled and waited for under the
   lock. */
struct idem_waiter {
    pthread_cond_t cond;
    bool ready;
};
void idem_waiter_init(struct idem_waiter *waiter);
void idem_waiter_release(struct idem_waiter *waiter);
void idem_waiter_notify(struct idem_waiter *waiter);
/* Runs the loop's tasks, then sleeps until the waiter is signalled. */
void idem_waiter_wait(struct idem *h, struct idem_waiter *waiter);

/* Submits an operation and waits; returns its code. The memory that the result points to is
   freed afterwards, so `copy` (may be NULL) copies the result first, under the lock. */
int idem_handle_run(struct idem *h, struct idem_op *op, void (*copy)(struct idem_op *op, int rc),
                    struct idem_error *err);

/* Counts an event in the store and on the meter. */
void idem_handle_tally(struct idem *h, enum idem_event event);

/* Sets the meter, which receives events from now on and must outlive the handle. NULL: none. */
void idem_handle_measure(struct idem *h, const struct idem_meter *meter);

/* claim.c: detaches every claim, because the handle closes. */
void idem_claims_detach(struct idem *h);
void idem_store_calls_detach(struct idem *h); /* store_call.c: detaches every operation */

/* release_retry.c: releases a record by its owner id, in the background, with retries for a
   bounded time. Pending releases are dropped once the store is closed. */
void idem_release_retry_start(struct idem *h, const struct idem_record_key *key,
                              const unsigned char owner[IDEM_OWNER_LEN], int64_t ttl_ms);
void idem_release_retries_drop(struct idem *h);

#endif
