/*
 * Handles: open, close, the host's events, and the wait of a blocking caller. Fails if the store
 * does, or if there is no memory, thread or descriptor. A handle that was inherited over a fork
 * returns IDEM_E_FORK.
 */
#include "core/handle.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"
#include "base/fork.h"
#include "base/thread.h"
#include "core/policy.h"
#include "core/settings.h"
#include "core/store_call.h"

#define OP_TIMEOUT_MS 10000
#define OP_TIMEOUT_MORE_MS 1000 /* beyond the store's own timeout, whose error text is better */
#define OP_TIMEOUT_MAX_MS 3600000
#define TURNS_MAX 4

const char *idem_version(void) {
    return IDEM_VERSION;
}

int idem_handle_check(const struct idem *h, struct idem_error *err) {
    if (h->forks == idem_fork_count())
        return 0;
    return idem_error_set(err, IDEM_E_FORK,
                          "the handle was opened before a fork; open one in the "
                          "process that uses it");
}

int idem_handle_check_blocking(const struct idem *h, struct idem_error *err) {
    if (h->service == NULL)
        return idem_error_set(err, IDEM_E_INVALID,
                              "a handle from idem_open_on() has no blocking "
                              "calls; use idem_open()");
    return idem_handle_check(h, err);
}

int idem_handle_check_loop(const struct idem *h, struct idem_error *err) {
    int rc = idem_handle_check(h, err);

    if (rc == 0 && h->service != NULL)
        rc =
            idem_error_set(err, IDEM_E_INVALID,
                           "a handle from idem_open() has blocking calls only; use idem_open_on()");
    return rc;
}

const struct idem_settings *idem_handle_settings(const struct idem *h) {
    return h == NULL ? NULL : h->settings;
}

void idem_handle_tally(struct idem *h, enum idem_event event) {
    const struct idem_meter *meter = h->store->meter;

    h->store->driver->tally(h->store, event, 1);
    if (meter != NULL)
        meter->event(meter->data, event, 1);
}

void idem_handle_measure(struct idem *h, const struct idem_meter *meter) {
    h->store->meter = meter;
}

/* The service thread. */

static void service_wake(struct idem_service *service) {
    static const uint64_t one = 1;

    service->asleep = false; /* one wake-up is enough */
    if (write(service->wake_fd, &one, sizeof(one)) != (ssize_t)sizeof(one))
        errno = 0;
}

static int service_watch(void *data, int fd, int events) {
    struct idem_service *service = data;
    struct idem_host host = idem_poll_host(&service->poll);

    if (host.watch(host.data, fd, events) < 0)
        return -1;
    if (service->asleep)
        service_wake(service);
    return 0;
}

/* The thread does not learn of a timer that is cleared or postponed: it wakes once too often,
   which is cheaper than a wake-up at each call. Only its own wake-up resets timer_at. */
static void service_timer(void *data, int64_t ms) {
    struct idem_service *service = data;
    int64_t at;

    if (ms == 0) {
        service->tasks = true;
    } else if (ms > 0) {
        at = idem_loop_now() + ms;
        if (at < service->timer_at)
            service->timer_at = at;
    }
}

static void service_ready(void *sink, int fd, int events) {
    struct idem *h = sink;

    if (fd != h->service->wake_fd)
        idem_loop_ready(&h->loop, fd, events);
}

/* Runs due tasks and timers, in the service thread or a caller's; the loop arms itself anew. */
static void service_run(struct idem *h) {
    h->service->tasks = false;
    idem_loop_timeout(&h->loop);
}

static int service_sleep(struct idem_service *service) {
    int64_t left;

    service->asleep = true;
    service->asleep_until = service->tasks ? INT64_MIN : service->timer_at;
    if (service->tasks)
        return 0;
    if (service->timer_at == INT64_MAX)
        return -1;
    left = service->timer_at - idem_loop_now();
    return left <= 0 ? 0 : left > INT_MAX ? INT_MAX : (int)left;
}

static void *service_main(void *data) {
    struct idem *h = data;
    struct idem_service *service = h->service;
    struct pollfd set[IDEM_POLL_MAX + 1];

    pthread_mutex_lock(&service->lock);
    while (!service->stop) {
        int unused, ms = service_sleep(service);
        size_t n = idem_poll_collect(&service->poll, set, -1, &unused);
        uint64_t drained;

        pthread_mutex_unlock(&service->lock);
        if (idem_poll_sleep(&service->poll, set, n, ms) < 0)
            n = 0;
        pthread_mutex_lock(&service->lock);
        service->asleep = false;
        if (read(service->wake_fd, &drained, sizeof(drained)) < 0)
            errno = 0;
        idem_poll_dispatch(&service->poll, set, n);
        if (service->tasks || service->timer_at <= idem_loop_now()) {
            service->timer_at = INT64_MAX;
            service_run(h);
        }
    }
    pthread_mutex_unlock(&service->lock);
    return NULL;
}

void idem_handle_enter(struct idem *h) {
    pthread_mutex_lock(&h->service->lock);
}

/* If a timer was armed meanwhile, the service thread would sleep too long. */
static void service_catch_up(struct idem_service *service) {
    if (service->asleep && (service->tasks || service->timer_at < service->asleep_until))
        service_wake(service);
}

void idem_handle_leave(struct idem *h) {
    struct idem_service *service = h->service;

    service_catch_up(service);
    pthread_mutex_unlock(&service->lock);
}

void idem_waiter_init(struct idem_waiter *waiter) {
    waiter->ready = false;
    pthread_cond_init(&waiter->cond, NULL);
}

void idem_waiter_release(struct idem_waiter *waiter) {
    pthread_cond_destroy(&waiter->cond);
}

void idem_waiter_notify(struct idem_waiter *waiter) {
    waiter->ready = true;
    pthread_cond_signal(&waiter->cond);
}

void idem_waiter_wait(struct idem *h, struct idem_waiter *waiter) {
    /* A long scan is left to the service thread, which serves the other callers meanwhile. */
    for (int turns = 0; turns < TURNS_MAX && !waiter->ready && h->loop.tasks != NULL; turns++)
        service_run(h);
    if (!waiter->ready)
        service_catch_up(h->service);
    while (!waiter->ready)
        pthread_cond_wait(&waiter->cond, &h->service->lock);
}

struct handle_run {
    struct idem_store_call store_call;
    struct idem_waiter waiter;
    void (*copy)(struct idem_op *op, int rc);
    void *data;
    int rc;
};

static void handle_run_answered(struct idem_store_call *store_call, int rc,
                                const struct idem_error *err) {
    struct handle_run *run = idem_container_of(store_call, struct handle_run, store_call);

    (void)err;
    run->rc = rc;
    store_call->op.data = run->data;
    if (run->copy != NULL)
        run->copy(&store_call->op, rc);
    idem_waiter_notify(&run->waiter);
}

int idem_handle_run(struct idem *h, struct idem_op *op, void (*copy)(struct idem_op *op, int rc),
                    struct idem_error *err) {
    struct handle_run run = {.store_call.op = *op, .copy = copy, .data = op->data};

    idem_waiter_init(&run.waiter);
    idem_handle_enter(h);
    idem_store_call_init(h, &run.store_call, handle_run_answered);
    idem_store_call_send(&run.store_call);
    idem_waiter_wait(h, &run.waiter);
    idem_handle_leave(h);
    idem_waiter_release(&run.waiter);
    *op = run.store_call.op;
    if (run.rc != 0)
        idem_error_copy(err, &op->error);
    return run.rc;
}

static void service_free(struct idem_service *service) {
    if (service == NULL)
        return;
    if (service->wake_fd >= 0)
        close(service->wake_fd);
    idem_poll_release(&service->poll);
    pthread_mutex_destroy(&service->lock);
    free(service);
}

static struct idem_service *service_new(struct idem *h, struct idem_error *err) {
    struct idem_service *service = calloc(1, sizeof(*service));
    struct idem_host host;

    if (service == NULL) {
        idem_error_set(err, IDEM_E_NOMEM, "no memory for a handle");
        return NULL;
    }
    pthread_mutex_init(&service->lock, NULL);
    idem_poll_init(&service->poll);
    service->poll.ready = service_ready;
    service->timer_at = INT64_MAX;
    service->poll.sink = h;
    service->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    host = idem_poll_host(&service->poll);
    if (service->wake_fd < 0 || host.watch(host.data, service->wake_fd, IDEM_READ) < 0) {
        idem_error_set(err, IDEM_E_NOMEM, "no descriptor for a handle: %s", strerror(errno));
        service_free(service);
        return NULL;
    }
    return service;
}

static int service_start(struct idem *h, struct idem_error *err) {
    int rc = idem_thread_start(&h->service->thread, NULL, service_main, h);

    if (rc != 0)
        return idem_error_set(err, IDEM_E_NOMEM, "cannot start a thread: %s", strerror(rc));
    return 0;
}

static void service_stop(struct idem_service *service) {
    pthread_mutex_lock(&service->lock);
    service->stop = true;
    service_wake(service);
    pthread_mutex_unlock(&service->lock);
    pthread_join(service->thread, NULL);
}

/* Open and close. */

static void handle_free(struct idem *h) {
    service_free(h->service);
    idem_settings_free(h->settings);
    idem_freelist_free(&h->freelist);
    free(h);
}

static int handle_new(const struct idem_options *options, struct idem **ret,
                      struct idem_error *err) {
    struct idem *h = calloc(1, sizeof(*h));
    int rc = 0;

    if (h == NULL)
        return idem_error_set(err, IDEM_E_NOMEM, "no memory for a handle");
    idem_fork_watch();
    h->forks = idem_fork_count();
    h->op_timeout_ms = OP_TIMEOUT_MS;
    if (options != NULL) {
        if (options->op_timeout_ms < 0 || options->op_timeout_ms > OP_TIMEOUT_MAX_MS)
            rc = idem_error_set(err, IDEM_E_INVALID, "op_timeout_ms must be 1 to %d (an hour)",
                                OP_TIMEOUT_MAX_MS);
        else if (options->op_timeout_ms > 0)
            h->op_timeout_ms = options->op_timeout_ms;
        if (rc == 0 && options->settings != NULL)
            rc = idem_settings_copy(options->settings, &h->settings, err);
    }
    if (rc != 0) {
        free(h);
        return rc;
    }
    *ret = h;
    return 0;
}

/* The notice callback is set in time: the store runs from the loop, so nothing has run yet. */
static int handle_open_store(struct idem *h, const char *url, const struct idem_options *options,
                             struct idem_error *err) {
    int rc = idem_store_open(url, &h->loop, NULL, &h->store, err);

    if (rc == 0 && (options == NULL || options->op_timeout_ms == 0) &&
        h->op_timeout_ms < h->store->timeout_ms + OP_TIMEOUT_MORE_MS)
        h->op_timeout_ms = h->store->timeout_ms + OP_TIMEOUT_MORE_MS;
    if (rc == 0 && options != NULL) {
        h->store->notice = options->notice;
        h->store->notice_data = options->notice_data;
    }
    return rc;
}

int idem_open(const char *url, const struct idem_options *options, struct idem **ret,
              struct idem_error *err) {
    struct idem_host host = {.watch = service_watch, .timer = service_timer};
    struct idem *h;
    int rc = idem_need(url, err) ?: idem_need(ret, err) ?: handle_new(options, &h, err);

    if (rc != 0)
        return rc;
    host.data = h->service = service_new(h, err);
    rc = h->service == NULL ? IDEM_E_NOMEM : 0;
    idem_loop_init(&h->loop, &host);
    if (rc == 0)
        rc = handle_open_store(h, url, options, err);
    if (rc == 0 && (rc = service_start(h, err)) != 0)
        idem_store_close(h->store);
    if (rc != 0) {
        handle_free(h);
        return rc;
    }
    *ret = h;
    return 0;
}

int idem_open_on(const char *url, const struct idem_options *options, const struct idem_host *host,
                 struct idem **ret, struct idem_error *err) {
    struct idem *h;
    int rc = idem_need(url, err) ?: idem_need(host, err) ?: idem_need(ret, err);

    if (rc == 0)
        rc = idem_need(host->watch, err) ?: idem_need(host->timer, err);
    if (rc == 0)
        rc = handle_new(options, &h, err);
    if (rc != 0)
        return rc;
    idem_loop_init(&h->loop, host);
    rc = handle_open_store(h, url, options, err);
    if (rc != 0) {
        idem_loop_stop(&h->loop);
        handle_free(h);
        return rc;
    }
    *ret = h;
    return 0;
}

/* The host's callbacks may close the handle; the outermost call frees it on its way out. */
static void handle_exit(struct idem *h) {
    if (--h->depth == 0 && h->closed)
        handle_free(h);
}

void idem_ready(struct idem *h, int fd, int events) {
    if (h->forks != idem_fork_count())
        return; /* the descriptor and its data belong to the parent */
    h->depth++;
    idem_loop_ready(&h->loop, fd, events);
    handle_exit(h);
}

void idem_timeout(struct idem *h) {
    if (h->forks != idem_fork_count())
        return;
    h->depth++;
    idem_loop_timeout(&h->loop);
    handle_exit(h);
}

void idem_close(struct idem *h) {
    if (h == NULL || h->closed)
        return;
    if (h->forks != idem_fork_count()) {
        if (h->service != NULL) {
            h->closed = true; /* another thread may have been in the middle of a change: nothing can
                                 be freed */
            return;
        }
        h->loop.stopped = true; /* the host's descriptors belong to the parent, too */
    } else if (h->service != NULL) {
        service_stop(h->service);
    }
    idem_claims_detach(h);
    idem_store_calls_detach(h);
    idem_store_close(h->store); /* writes the releases that are still pending */
    idem_release_retries_drop(h);
    if (!h->loop.stopped)
        idem_loop_stop(&h->loop);
    h->store = NULL;
    h->closed = true;
    if (h->depth == 0)
        handle_free(h);
}
