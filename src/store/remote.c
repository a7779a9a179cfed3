/*
 * The common part of the stores on servers: see remote.h.
 */
#include "store/remote.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/fork.h"
#include "base/list.h"
#include "base/visible.h"

#define QUEUE_MAX 32768
#define QUEUE_BYTES_MAX ((size_t)256 << 20)
#define TALLY_MS 1000     /* the interval between two batches of counts */
#define CLOSE_WAIT_MS 500 /* limit for submitted operations when the store is closed */

/* Queues. */

void remote_queue_init(struct remote_queue *queue) {
    queue->first = NULL;
    queue->end = &queue->first;
}

void remote_queue_put(struct remote_queue *queue, struct remote_op *op) {
    op->queued = true;
    op->queue_next = NULL;
    *queue->end = op;
    queue->end = &op->queue_next;
}

struct remote_op *remote_queue_pop(struct remote_queue *queue) {
    struct remote_op *op = queue->first;

    if (op == NULL)
        return NULL;
    queue->first = op->queue_next;
    if (queue->first == NULL)
        queue->end = &queue->first;
    op->queued = false;
    return op;
}

struct remote_op *remote_queue_take(struct remote_queue *queue) {
    struct remote_op *ops = queue->first;

    remote_queue_init(queue);
    return ops;
}

void remote_queue_append(struct remote_queue *queue, struct remote_queue *from) {
    if (from->first == NULL)
        return;
    *queue->end = from->first;
    queue->end = from->end;
    remote_queue_init(from);
}

/* Operations. */

bool remote_op_is_keyed(const struct remote_op *op) {
    return op->copy.kind != IDEM_OP_LIST && op->copy.kind != IDEM_OP_SWEEP &&
           op->copy.kind != IDEM_OP_STATS && op->copy.kind != IDEM_OP_TIME;
}

bool remote_op_only_reads(const struct remote_op *op) {
    return op->copy.kind >= IDEM_OP_LOOKUP && op->copy.kind != IDEM_OP_SETTLE &&
           op->copy.kind != IDEM_OP_FORGET;
}

bool remote_op_is_repeatable(const struct remote_op *op) {
    return remote_op_only_reads(op) || op->copy.kind == IDEM_OP_CLAIM ||
           op->copy.kind == IDEM_OP_FINISH || op->copy.kind == IDEM_OP_ISSUE;
}

static void op_free(struct remote_op *op) {
    idem_op_copy_release(&op->copy);
    op->remote->engine->op_free(op);
}

bool remote_op_is_gone(struct remote_op *op) {
    if (op->caller != NULL)
        return false;
    if (op->responses_due == 0 && !op->queued) {
        if (op->link != NULL)
            idem_link_remove(op);
        op_free(op);
    }
    return true;
}

/* Ends a cancelled or completed operation. A connection or a queue may still refer to it: then it
   is freed later, or with the store. */
static void op_drop(struct remote_op *op) {
    struct remote *r = op->remote;

    idem_link_remove_end(&r->ops_end, op);
    r->ops_n--;
    r->ops_bytes -= op->size;
    idem_link_insert(&r->dropped, op);
    op->caller = NULL;
    (void)remote_op_is_gone(op);
}

void remote_op_complete(struct remote_op *op, int rc) {
    struct remote *r = op->remote;
    struct idem_op *caller = op->caller;

    op->caller = NULL;
    op->responses_due++; /* keeps it: a response may arrive inside the callback */
    remote_enter(r);
    if (caller != NULL) {
        caller->out = op->copy.out;
        if (rc != 0)
            caller->error = op->copy.error;
        idem_op_complete(&r->base, caller, rc);
    }
    if (remote_leave(r))
        return;
    op->responses_due--;
    op_drop(op);
}

int remote_op_fail(struct remote_op *op, const char *otherwise) {
    const struct remote *r = op->remote;
    bool unknown = op->sent && !remote_op_only_reads(op);
    int code = unknown                           ? IDEM_E_UNKNOWN
               : r->trouble_code == IDEM_E_NOMEM ? IDEM_E_NOMEM
                                                 : IDEM_E_REFUSED;

    return idem_error_set(&op->copy.error, code, "%s%s",
                          r->trouble[0] != '\0' ? r->trouble : otherwise,
                          unknown ? "; it may have happened" : "");
}

void remote_op_give_up(struct remote_op *op, const char *otherwise) {
    remote_op_complete(op, remote_op_fail(op, otherwise));
}

int remote_op_judge(struct remote_op *op, int rc) {
    char why[400];

    if (!op->lost || remote_op_only_reads(op) || (rc != IDEM_E_REFUSED && rc != IDEM_E_FULL))
        return rc;
    snprintf(why, sizeof(why), "%.399s", op->copy.error.text);
    return idem_error_set(
        &op->copy.error, IDEM_E_UNKNOWN,
        "%s; but it was sent before the connection was lost, and may have happened", why);
}

int remote_op_check_finish(struct remote_op *op) {
    if (!op->lost || op->copy.out.finish.ack != IDEM_LOST ||
        op->copy.in.finish.action == IDEM_OWNER_RENEW)
        return 0;
    return idem_error_set(&op->copy.error, IDEM_E_UNKNOWN,
                          "the connection was lost before the response came, and the record is not "
                          "this owner's any more: it may have been stored before");
}

void remote_op_lost(struct remote_op *op) {
    int rc;

    if (op->lost && !remote_op_is_repeatable(op)) {
        remote_op_give_up(op, "the connection was lost");
        return;
    }
    rc = op->remote->engine->op_begin(op);
    if (rc != 0)
        remote_op_complete(op, remote_op_judge(op, rc));
    else
        remote_op_pause(op);
}

void remote_op_turn(struct remote_op *op, struct remote_queue *turn, struct idem_task *flush) {
    if (op->queued)
        return;
    remote_queue_put(turn, op);
    idem_task_post(op->remote->base.loop, flush);
}

void remote_op_pause(struct remote_op *op) {
    struct remote *r = op->remote;
    int ms = r->engine->again_ms;

    if (op->queued)
        return;
    remote_queue_put(&r->paused, op);
    if (r->again.link == NULL) /* at random: operations that collided do not collide again */
        idem_timer_set(r->base.loop, &r->again, ms / 2 + rand() % ms);
}

/* All operations have the same timeout, so the last one renewed is the last in the list. */
void remote_op_renew(struct remote_op *op) {
    struct remote *r = op->remote;

    if (op->link == NULL)
        return;
    op->deadline = idem_loop_now() + r->timeout_ms;
    if (op->next == NULL)
        return;
    idem_link_remove(op);
    idem_link_append(&r->ops_end, op);
}

void remote_resume(struct remote *r) {
    struct remote_op *op = remote_queue_take(&r->paused), *next;

    for (; op != NULL; op = next) {
        next = op->queue_next;
        op->queued = false;
        if (!remote_op_is_gone(op))
            r->engine->op_turn(op);
    }
}

static void remote_fire_again(struct idem_timer *timer) {
    remote_resume(idem_container_of(timer, struct remote, again));
}

/* Trouble and deadlines. */

static struct remote_op *remote_first_unsent(const struct remote *r) {
    struct remote_op *op = r->ops;

    while (op != NULL && (op->sent || op->responses_due > 0))
        op = op->next;
    return op;
}

/* Refuses operations that were never sent, because waiting does not help; but not those that their
   callbacks submit. Runs from the loop, when all servers that can be tried are being tried. */
static void remote_run_refuse(struct idem_task *task) {
    struct remote *r = idem_container_of(task, struct remote, refuse);
    struct remote_op *op;

    if (!r->for_good &&
        (r->was_ready || (r->engine->is_hopeful != NULL && r->engine->is_hopeful(r))))
        return;
    r->for_good = false;
    r->unreachable = true;
    remote_enter(r);
    for (size_t n = r->ops_n; n > 0 && !r->closing; n--) {
        op = remote_first_unsent(r);
        if (op == NULL)
            break;
        remote_op_give_up(op, "the server cannot be reached");
    }
    (void)remote_leave(r);
}

void remote_trouble(struct remote *r, int code, bool for_good, const char *fmt, ...) {
    va_list args;

    va_start(args, fmt);
    vsnprintf(r->trouble, sizeof(r->trouble), fmt, args);
    va_end(args);
    r->trouble_code = code;
    r->for_good |= for_good;
    if (for_good || !r->was_ready)
        idem_task_post(r->base.loop, &r->refuse);
}

void remote_ready(struct remote *r) {
    r->was_ready = true;
    r->trouble[0] = '\0';
    r->trouble_code = 0;
    remote_resume(r);
}

void remote_notice(struct remote *r, const char *text) {
    char shown[400];

    if (r->base.notice == NULL)
        return;
    (void)idem_visible_copy(text, strlen(text), '?', shown, sizeof(shown));
    r->base.notice(r->base.notice_data, shown);
}

static void remote_arm_deadline(struct remote *r) {
    int64_t left;

    if (r->ops == NULL || r->deadline.link != NULL)
        return;
    left = r->ops->deadline - idem_loop_now();
    idem_timer_set(r->base.loop, &r->deadline, left > 0 ? left : 0);
}

static void remote_fire_deadline(struct idem_timer *timer) {
    struct remote *r = idem_container_of(timer, struct remote, deadline);
    int64_t now = idem_loop_now();

    remote_enter(r);
    r->engine->pump(r); /* this process may have been suspended */
    while (!r->closing && r->ops != NULL && r->ops->deadline <= now)
        remote_op_give_up(r->ops, "the server did not answer in time");
    if (!remote_leave(r))
        remote_arm_deadline(r);
}

int remote_submit(struct idem_store *base, struct idem_op *caller) {
    struct remote *r = remote_of(base);
    size_t room = r->engine->op_size + idem_op_copy_len(caller);
    struct remote_op *op;
    int rc = idem_op_admit(caller, r->forks);

    if (rc != 0)
        return rc;
    if (r->ops_n >= QUEUE_MAX || r->ops_bytes > QUEUE_BYTES_MAX)
        return idem_error_set(&caller->error, IDEM_E_REFUSED,
                              "%d operations or %zu MiB wait for the server", QUEUE_MAX,
                              QUEUE_BYTES_MAX >> 20);
    op = r->engine->op_new(r, room);
    if (op == NULL)
        return idem_error_set(&caller->error, IDEM_E_NOMEM, "no memory for an operation");
    op->remote = r;
    op->caller = caller;
    op->room = room;
    op->size = r->engine->op_size + idem_op_strings_len(caller);
    idem_op_copy(caller, &op->copy, (unsigned char *)(op + 1));
    rc = r->engine->op_begin(op);
    if (rc != 0) {
        caller->error = op->copy.error;
        op_free(op);
        return rc;
    }
    caller->driver = op;
    op->deadline = idem_loop_now() + r->timeout_ms;
    idem_link_append(&r->ops_end, op);
    r->ops_n++;
    r->ops_bytes += op->size;
    remote_arm_deadline(r);
    r->engine->op_turn(op);
    return 0;
}

void remote_cancel(struct idem_store *base, struct idem_op *caller) {
    struct remote_op *op = caller->driver;

    (void)base;
    caller->driver = NULL;
    op_drop(op);
}

/* Waiting. */

static bool channel_has_key(const struct remote_channel *channel,
                            const struct idem_record_key *key) {
    return channel->key.prefix_len == key->prefix_len &&
           memcmp(channel->key.at, key->at, idem_record_key_len(key)) == 0;
}

struct remote_channel **remote_channel_find(struct remote *r, const struct idem_record_key *key) {
    struct remote_channel **at = &r->channels[key->at[key->prefix_len]];

    while (*at != NULL && !channel_has_key(*at, key))
        at = &(*at)->next;
    return at;
}

void remote_channel_each(struct remote *r, void (*call)(struct remote_channel *channel, void *data),
                         void *data) {
    for (unsigned i = 0; i < REMOTE_CHANNEL_BUCKETS; i++)
        for (struct remote_channel *at = r->channels[i], *next; at != NULL; at = next) {
            next = at->next;
            call(at, data);
        }
}

void remote_channel_free(struct remote *r, struct remote_channel *channel) {
    *remote_channel_find(r, &channel->key) = channel->next;
    free(channel);
}

/* A watch goes back to its channel before its callback, which may remove it. */
static void remote_run_wake(struct idem_task *task) {
    struct remote *r = idem_container_of(task, struct remote, wake_first);
    struct idem_watch *watch;

    r->waking = r->woken;
    r->woken = NULL;
    if (r->waking != NULL)
        r->waking->link = &r->waking;
    remote_enter(r);
    while (!r->closing && (watch = r->waking) != NULL) {
        idem_link_remove(watch);
        idem_link_insert(&(*remote_channel_find(r, &watch->key))->watches, watch);
        watch->wake(watch);
    }
    while ((watch = r->waking) != NULL && watch->link != NULL) /* the store was closed meanwhile */
        idem_link_remove(watch);
    (void)remote_leave(r);
}

static void remote_wake(struct remote *r, struct idem_watch *watch) {
    idem_link_remove(watch);
    idem_link_insert(&r->woken, watch);
    idem_task_post(r->base.loop, &r->wake_first);
}

void remote_channel_wake(struct remote *r, struct remote_channel *channel) {
    while (channel->watches != NULL)
        remote_wake(r, channel->watches);
}

int remote_watch(struct idem_store *base, struct idem_watch *watch) {
    struct remote *r = remote_of(base);
    struct remote_channel **at = remote_channel_find(r, &watch->key), *channel = *at;

    if (channel == NULL) {
        channel = *at = calloc(1, r->engine->channel_size);
        if (channel == NULL)
            return IDEM_E_NOMEM;
        channel->key = watch->key;
    }
    idem_link_insert(&channel->watches, watch);
    channel->n++;
    r->watches_n++;
    if (channel->in_force)
        remote_wake(r, watch);
    r->engine->watched(r, channel);
    return 0;
}

void remote_unwatch(struct idem_store *base, struct idem_watch *watch) {
    struct remote *r = remote_of(base);
    struct remote_channel *channel;

    if (watch->link == NULL)
        return;
    idem_link_remove(watch);
    r->watches_n--;
    channel = *remote_channel_find(r, &watch->key);
    if (channel == NULL)
        return;
    channel->n--;
    r->engine->unwatched(r, channel);
}

/* Counts: a timer sends them, because they are many, and not urgent. One batch is under way at a
   time; tally_sent has its counts until the responses arrive. */

static void remote_arm_tally(struct remote *r, int64_t ms) {
    if (r->tally_timer.link == NULL)
        idem_timer_set(r->base.loop, &r->tally_timer, ms);
}

bool remote_has_tally(const struct remote *r) {
    for (int i = 0; i < IDEM_EVENT__COUNT; i++)
        if (r->tally[i] != 0)
            return true;
    return false;
}

static void remote_fire_tally(struct idem_timer *timer) {
    struct remote *r = idem_container_of(timer, struct remote, tally_timer);

    remote_enter(r);
    r->engine->tally_send(r);
    if (!r->closing && remote_has_tally(r))
        remote_arm_tally(r, r->engine->tally_again_ms);
    (void)remote_leave(r);
}

void remote_tally(struct idem_store *base, enum idem_event event, uint64_t n) {
    struct remote *r = remote_of(base);

    r->tally[event] += n;
    if (r->forks == idem_fork_count())
        remote_arm_tally(r, TALLY_MS);
}

void remote_tally_sent(struct remote *r, int event) {
    r->tally_flying++;
    r->tally_sent[event] = r->tally[event];
    r->tally[event] = 0;
}

void remote_tally_answered(struct remote *r, const uint64_t *sent, bool confirmed) {
    r->tally_flying--;
    if (confirmed)
        return;
    r->tally[sent - r->tally_sent] += *sent;
    remote_arm_tally(r, TALLY_MS);
}

/* Opening and closing. */

static void remote_ignore_completion(struct idem_op *op, int rc) {
    (void)op;
    (void)rc;
}

void remote_init(struct remote *r, const struct remote_engine *engine, struct idem_loop *loop,
                 int64_t timeout_ms) {
    r->base.loop = loop;
    r->base.timeout_ms = r->timeout_ms = timeout_ms;
    r->engine = engine;
    idem_fork_watch();
    r->forks = idem_fork_count();
    r->ops_end = &r->ops;
    remote_queue_init(&r->paused);
    r->refuse.run = remote_run_refuse;
    r->wake_first.run = remote_run_wake;
    r->deadline.fire = remote_fire_deadline;
    r->again.fire = remote_fire_again;
    r->tally_timer.fire = remote_fire_tally;
    r->no_caller.complete = remote_ignore_completion;
}

/* For remote_channel_each(): the list is not used any more, so it is not mended. */
static void channel_free(struct remote_channel *channel, void *data) {
    (void)data;
    free(channel);
}

static void remote_free(struct remote *r) {
    remote_channel_each(r, channel_free, NULL);
    r->engine->free(r);
}

void remote_enter(struct remote *r) {
    r->depth++;
}

bool remote_leave(struct remote *r) {
    if (--r->depth > 0 || !r->closing)
        return r->closing;
    remote_free(r);
    return true;
}

/* Completes submitted operations without callbacks. Closing a socket with unread responses discards
   data that it has sent, so responses are read for a while. */
static void remote_drain(struct remote *r) {
    int64_t until = idem_loop_now() + CLOSE_WAIT_MS, left;
    struct pollfd fds[REMOTE_POLL_MAX];
    nfds_t n;

    for (struct remote_op *op = r->ops; op != NULL; op = op->next) {
        if (op->caller != NULL)
            op->caller->driver = NULL;
        op->caller = &r->no_caller;
    }
    while ((n = r->engine->drain(r, fds)) > 0 && (left = until - idem_loop_now()) > 0)
        if (poll(fds, n, (int)left) < 0 && errno != EINTR)
            break;
}

static void remote_free_ops(struct remote_op *op) {
    for (struct remote_op *next; op != NULL; op = next) {
        next = op->next;
        if (op->caller != NULL)
            op->caller->driver = NULL;
        op_free(op);
    }
}

void remote_close(struct idem_store *base) {
    struct remote *r = remote_of(base);

    if (r->forks == idem_fork_count()) {
        remote_enter(r);
        remote_drain(r);
        r->depth--; /* not remote_leave(), which would free a store that is closed only now */
    }
    r->closing = true;
    idem_task_drop(base->loop, &r->refuse);
    idem_task_drop(base->loop, &r->wake_first);
    idem_timer_clear(base->loop, &r->deadline);
    idem_timer_clear(base->loop, &r->again);
    idem_timer_clear(base->loop, &r->tally_timer);
    r->engine->disconnect(r);
    remote_free_ops(r->dropped);
    remote_free_ops(r->ops);
    r->dropped = r->ops = NULL;
    r->ops_end = &r->ops;
    if (r->depth == 0)
        remote_free(r);
}
