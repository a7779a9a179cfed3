/*
 * Timers, tasks and descriptors on a host's loop. Timers are a pairing heap and tasks a list, both
 * of embedded nodes: nothing is allocated, so only the host's watch can fail.
 */
#include "loop/loop.h"
#include "base/list.h"

#include <time.h>

void idem_loop_init(struct idem_loop *loop, const struct idem_host *host) {
    *loop = (struct idem_loop){.host = *host, .armed = INT64_MAX};
    loop->tasks_end = &loop->tasks;
}

void idem_loop_stop(struct idem_loop *loop) {
    if (loop->armed != INT64_MAX)
        loop->host.timer(loop->host.data, -1);
    loop->stopped = true;
}

int64_t idem_loop_now_us(void) {
    struct timespec ts;

    clock_gettime(CLOCK_BOOTTIME, &ts);
    return (int64_t)ts.tv_sec * 1000000 + ts.tv_nsec / 1000;
}

int64_t idem_loop_now(void) {
    return idem_loop_now_us() / 1000;
}

/* Sets the host's timer, if its time has changed. */
static void loop_arm(struct idem_loop *loop) {
    int64_t at, now;

    if (loop->depth > 0 || loop->stopped)
        return;
    if (loop->tasks != NULL)
        at = INT64_MIN;
    else if (loop->timers != NULL)
        at = loop->timers->at;
    else
        at = INT64_MAX;
    if (at == loop->armed)
        return;
    loop->armed = at;
    if (at == INT64_MAX) {
        loop->host.timer(loop->host.data, -1);
    } else if (at == INT64_MIN) {
        loop->host.timer(loop->host.data, 0);
    } else {
        now = idem_loop_now();
        loop->host.timer(loop->host.data, at > now ? at - now : 0);
    }
}

int idem_loop_watch(struct idem_loop *loop, struct idem_fd *fd, int events) {
    struct idem_fd *it;

    if (loop->host.watch(loop->host.data, fd->fd, events) < 0)
        return IDEM_E_REFUSED;
    for (it = loop->fds; it != NULL; it = it->next)
        if (it == fd)
            return 0;
    fd->next = loop->fds;
    loop->fds = fd;
    return 0;
}

void idem_loop_unwatch(struct idem_loop *loop, struct idem_fd *fd) {
    struct idem_fd **at;

    for (at = &loop->fds; *at != NULL; at = &(*at)->next) {
        if (*at == fd) {
            *at = fd->next;
            if (!loop->stopped)
                (void)loop->host.watch(loop->host.data, fd->fd, 0);
            return;
        }
    }
}

static struct idem_timer *timer_heap_meld(struct idem_timer *a, struct idem_timer *b) {
    struct idem_timer *low, *high;

    if (a == NULL)
        return b;
    if (b == NULL)
        return a;
    low = a->at <= b->at ? a : b;
    high = low == a ? b : a;
    high->next = low->child;
    if (low->child != NULL)
        low->child->link = &high->next;
    low->child = high;
    high->link = &low->child;
    low->next = NULL;
    return low;
}

/* Melds the siblings in pairs, then the pairs, without recursion. */
static struct idem_timer *timer_heap_meld_all(struct idem_timer *first) {
    struct idem_timer *pairs = NULL, *all = NULL;

    while (first != NULL) {
        struct idem_timer *a = first, *b = a->next, *pair;

        first = b == NULL ? NULL : b->next;
        a->next = NULL;
        if (b != NULL)
            b->next = NULL;
        pair = timer_heap_meld(a, b);
        pair->next = pairs;
        pairs = pair;
    }
    while (pairs != NULL) {
        struct idem_timer *pair = pairs;

        pairs = pair->next;
        pair->next = NULL;
        all = timer_heap_meld(all, pair);
    }
    return all;
}

static void loop_timer_insert(struct idem_loop *loop, struct idem_timer *timer) {
    timer->child = timer->next = NULL;
    loop->timers = timer_heap_meld(loop->timers, timer);
    loop->timers->link = &loop->timers;
}

static void loop_timer_remove(struct idem_loop *loop, struct idem_timer *timer) {
    struct idem_timer *rest = timer_heap_meld_all(timer->child);

    if (timer == loop->timers) {
        loop->timers = rest;
    } else {
        idem_link_remove(timer);
        loop->timers = timer_heap_meld(loop->timers, rest);
    }
    if (loop->timers != NULL)
        loop->timers->link = &loop->timers;
    timer->child = timer->next = NULL;
    timer->link = NULL;
}

void idem_timer_set(struct idem_loop *loop, struct idem_timer *timer, int64_t ms) {
    if (timer->link != NULL)
        loop_timer_remove(loop, timer);
    timer->at = idem_loop_now() + (ms > 0 ? ms : 0);
    loop_timer_insert(loop, timer);
    loop_arm(loop);
}

void idem_timer_clear(struct idem_loop *loop, struct idem_timer *timer) {
    if (timer->link != NULL)
        loop_timer_remove(loop, timer);
    loop_arm(loop);
}

void idem_task_post(struct idem_loop *loop, struct idem_task *task) {
    if (task->link != NULL)
        return;
    idem_link_append(&loop->tasks_end, task);
    loop_arm(loop);
}

void idem_task_drop(struct idem_loop *loop, struct idem_task *task) {
    if (task->link == NULL)
        return;
    idem_link_remove_end(&loop->tasks_end, task);
    task->next = NULL;
}

static void loop_enter(struct idem_loop *loop) {
    loop->depth++;
}

static void loop_leave(struct idem_loop *loop) {
    loop->depth--;
    loop_arm(loop);
}

void idem_loop_ready(struct idem_loop *loop, int fd, int events) {
    struct idem_fd *it;

    if (loop->stopped)
        return;
    loop_enter(loop);
    for (it = loop->fds; it != NULL && it->fd != fd; it = it->next)
        ;
    if (it != NULL)
        it->ready(it, events);
    loop_leave(loop);
}

/* Runs only the tasks that were posted before: a task that posts itself again must not starve
   the host. */
static void loop_run_tasks(struct idem_loop *loop) {
    struct idem_task stop = {.run = NULL};
    struct idem_task *task;

    if (loop->tasks == NULL)
        return;
    idem_task_post(loop, &stop);
    while (!loop->stopped && (task = loop->tasks) != &stop) {
        idem_task_drop(loop, task);
        if (task->run != NULL)
            task->run(task);
        else
            idem_task_post(
                loop,
                task); /* `task` is the end mark of an outer turn that this one runs inside of */
    }
    idem_task_drop(loop, &stop);
}

static void loop_run_timers(struct idem_loop *loop) {
    int64_t now = idem_loop_now();

    while (!loop->stopped && loop->timers != NULL && loop->timers->at <= now) {
        struct idem_timer *timer = loop->timers;

        loop_timer_remove(loop, timer);
        timer->fire(timer);
    }
}

void idem_loop_timeout(struct idem_loop *loop) {
    if (loop->stopped)
        return;
    loop->armed = INT64_MAX;
    loop_enter(loop);
    loop_run_timers(loop);
    loop_run_tasks(loop);
    loop_leave(loop);
}
