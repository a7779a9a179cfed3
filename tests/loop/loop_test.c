/*
 * Timers, tasks and descriptors over a host that only records its calls, and
 * over poll(2).
 */
#include "loop/loop.h"

#include "loop/poll.h"
#include "loop_clock.h"
#include "test.h"

struct host {
    int64_t timer;
    int watches;
};

static int host_watch(void *data, int fd, int events) {
    struct host *host = data;

    (void)fd;
    host->watches += events != 0 ? 1 : -1;
    return 0;
}

static void host_timer(void *data, int64_t ms) {
    ((struct host *)data)->timer = ms;
}

static void loop_open(struct idem_loop *loop, struct host *host) {
    struct idem_host hooks = {.data = host, .watch = host_watch, .timer = host_timer};

    loop_clock_stop();
    *host = (struct host){.timer = -1};
    idem_loop_init(loop, &hooks);
}

struct item {
    struct idem_timer timer;
    struct idem_task task;
    struct idem_loop *loop;
    struct item *other;
    int fired;
    bool again;
};

static int64_t order[1000];
static int order_n;

static void item_fire(struct idem_timer *timer) {
    struct item *item = idem_container_of(timer, struct item, timer);

    item->fired++;
    order[order_n++] = timer->at;
    if (item->other != NULL)
        idem_timer_clear(item->loop, &item->other->timer);
}

static void item_run(struct idem_task *task) {
    struct item *item = idem_container_of(task, struct item, task);

    item->fired++;
    if (item->again)
        idem_task_post(item->loop, task);
    if (item->other != NULL)
        idem_task_drop(item->loop, &item->other->task);
}

/* The host's timer is one shot: it is off when it has fired. */
static void host_fire(struct host *host, struct idem_loop *loop) {
    host->timer = -1;
    idem_loop_timeout(loop);
}

static void spin_until(struct host *host, struct idem_loop *loop, int64_t ms) {
    loop_clock_forward(ms + 1);
    host_fire(host, loop);
}

TEST(timers_fire_in_the_order_of_their_times) {
    static struct item items[300];
    struct idem_loop loop;
    struct host host;

    loop_open(&loop, &host);
    srandom(7);
    for (int i = 0; i < 300; i++) {
        items[i].timer.fire = item_fire;
        items[i].loop = &loop;
        idem_timer_set(&loop, &items[i].timer, 1 + random() % 40);
    }
    for (int i = 0; i < 300; i += 3)
        idem_timer_clear(&loop, &items[i].timer);
    for (int i = 1; i < 300; i += 3)
        idem_timer_set(&loop, &items[i].timer, 1 + random() % 40);
    spin_until(&host, &loop, 45);
    CHECK_INT(order_n, 200);
    for (int i = 1; i < order_n; i++)
        CHECK(order[i - 1] <= order[i]);
    for (int i = 0; i < 300; i++)
        CHECK_INT(items[i].fired, i % 3 != 0);
    CHECK_INT(host.timer, -1);
}

TEST(a_timer_can_clear_another_that_is_due) {
    struct item a = {.timer.fire = item_fire}, b = {.timer.fire = item_fire};
    struct idem_loop loop;
    struct host host;

    loop_open(&loop, &host);
    a.loop = b.loop = &loop;
    a.other = &b;
    idem_timer_set(&loop, &a.timer, 1);
    idem_timer_set(&loop, &b.timer, 2);
    spin_until(&host, &loop, 5);
    CHECK_INT(a.fired, 1);
    CHECK_INT(b.fired, 0);
}

TEST(the_host_is_told_of_the_earliest_time_only) {
    struct item a = {.timer.fire = item_fire}, b = {.timer.fire = item_fire};
    struct idem_loop loop;
    struct host host;

    loop_open(&loop, &host);
    idem_timer_set(&loop, &a.timer, 5000);
    CHECK_INT(host.timer, 5000);
    idem_timer_set(&loop, &b.timer, 100);
    CHECK_INT(host.timer, 100);
    idem_timer_clear(&loop, &b.timer);
    CHECK_INT(host.timer, 5000);
    idem_timer_clear(&loop, &a.timer);
    CHECK_INT(host.timer, -1);
}

TEST(a_task_runs_once_however_often_it_is_posted) {
    struct item a = {.task.run = item_run};
    struct idem_loop loop;
    struct host host;

    loop_open(&loop, &host);
    a.loop = &loop;
    idem_task_post(&loop, &a.task);
    idem_task_post(&loop, &a.task);
    CHECK_INT(host.timer, 0);
    CHECK_INT(a.fired, 0);
    host_fire(&host, &loop);
    CHECK_INT(a.fired, 1);
    host_fire(&host, &loop);
    CHECK_INT(a.fired, 1);
    CHECK_INT(host.timer, -1);
}

TEST(a_task_that_posts_itself_lets_the_host_breathe) {
    struct item a = {.task.run = item_run, .again = true};
    struct idem_loop loop;
    struct host host;

    loop_open(&loop, &host);
    a.loop = &loop;
    idem_task_post(&loop, &a.task);
    host_fire(&host, &loop);
    CHECK_INT(a.fired, 1);
    CHECK_INT(host.timer, 0);
}

TEST(a_task_can_drop_another) {
    struct item a = {.task.run = item_run}, b = {.task.run = item_run};
    struct idem_loop loop;
    struct host host;

    loop_open(&loop, &host);
    a.loop = b.loop = &loop;
    a.other = &b;
    idem_task_post(&loop, &a.task);
    idem_task_post(&loop, &b.task);
    host_fire(&host, &loop);
    CHECK_INT(a.fired, 1);
    CHECK_INT(b.fired, 0);
}

static void stop_run(struct idem_task *task) {
    struct item *item = idem_container_of(task, struct item, task);

    idem_loop_stop(item->loop);
}

TEST(a_stopped_loop_runs_nothing_more) {
    struct item a = {.task.run = stop_run}, b = {.task.run = item_run};
    struct idem_loop loop;
    struct host host;

    loop_open(&loop, &host);
    a.loop = b.loop = &loop;
    idem_task_post(&loop, &a.task);
    idem_task_post(&loop, &b.task);
    host_fire(&host, &loop);
    host_fire(&host, &loop);
    CHECK_INT(b.fired, 0);
}

static int seen_events;

static void pipe_ready(struct idem_fd *fd, int events) {
    char byte;

    seen_events = events;
    CHECK_INT(read(fd->fd, &byte, 1), 1);
}

static void sink_ready(void *sink, int fd, int events) {
    idem_loop_ready(sink, fd, events);
}

static void sink_timeout(void *sink) {
    idem_loop_timeout(sink);
}

TEST(the_poll_host_tells_of_descriptors_and_of_time) {
    struct item a = {.timer.fire = item_fire};
    struct idem_poll poll;
    struct idem_loop loop;
    struct idem_host hooks;
    struct idem_fd fd = {.ready = pipe_ready};
    int ends[2];

    idem_poll_init(&poll);
    poll.ready = sink_ready;
    poll.timeout = sink_timeout;
    poll.sink = &loop;
    hooks = idem_poll_host(&poll);
    idem_loop_init(&loop, &hooks);
    CHECK_INT(pipe(ends), 0);
    fd.fd = ends[0];
    CHECK_INT(idem_loop_watch(&loop, &fd, IDEM_READ), 0);
    a.loop = &loop;
    loop_clock_stop();
    idem_timer_set(&loop, &a.timer, 20);
    CHECK_INT(write(ends[1], "x", 1), 1);
    CHECK_INT(idem_poll_turn(&poll, NULL, 0, 1000), 0);
    CHECK_INT(seen_events, IDEM_READ);
    CHECK_INT(a.fired, 0);
    loop_clock_go_on();
    CHECK_INT(idem_poll_turn(&poll, NULL, 0, -1), 0);
    if (a.fired == 0) /* poll may wake a millisecond early */
        CHECK_INT(idem_poll_turn(&poll, NULL, 0, -1), 0);
    CHECK_INT(a.fired, 1);
    idem_loop_unwatch(&loop, &fd);
    idem_poll_release(&poll);
}

/* A callback that calls the loop: a host that runs itself from inside one does that. */
static void item_turn(struct idem_task *task) {
    struct item *item = idem_container_of(task, struct item, task);

    item->fired++;
    if (item->other != NULL)
        idem_task_post(item->loop, &item->other->task);
    idem_loop_timeout(item->loop);
}

TEST(a_turn_inside_a_turn_runs_what_is_there) {
    struct idem_loop loop;
    struct host host;
    struct item a = {.task.run = item_turn, .loop = &loop};
    struct item b = {.task.run = item_turn, .loop = &loop}, c = {.task.run = item_run};

    loop_open(&loop, &host);
    a.other = &c;
    c.loop = &loop;
    idem_task_post(&loop, &a.task);
    idem_task_post(&loop, &b.task);
    idem_loop_timeout(&loop);
    CHECK_INT(a.fired, 1);
    CHECK_INT(b.fired, 1);
    CHECK_INT(c.fired, 1);
    CHECK(loop.tasks == NULL);
}

TEST_MAIN
