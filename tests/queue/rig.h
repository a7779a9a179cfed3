/*
 * A consumer with a broker and a handler of the test's own, on a real store:
 * the broker records its calls, the handler returns the outcomes that the test
 * wants.
 */
#ifndef IDEM_TEST_QUEUE_RIG_H
#define IDEM_TEST_QUEUE_RIG_H

#include "base/error.h"
#include "core/handle.h"
#include "queue/consumer.h"
#include "temp.h"
#include "test.h"
#include "wait.h"

#define RIG_MAX 256
#define RIG_LONG_MS 600000 /* no test takes as long, however busy the machine is */

struct rig_message {
    struct queue_message m;
    struct queue_field headers[4], properties[2];
    int n;
    bool out;
};

/* A call to the broker for message n, in the order of the calls. */
struct rig_line {
    char what[16]; /* ack, delay, bury, giveback */
    int n;
    int64_t ms;
    char verdict[32], reason[256], hash[65];
    uint32_t attempts;
};

struct rig_work {
    struct queue_run *work;
    int n;
    uint32_t attempt;
    bool cancelled;
};

struct rig_report {
    char then[16], trace[80], hash[65];
    int64_t again_ms;
};

struct rig {
    struct idem_poll poll;
    struct idem *h;
    struct idem_guard *guard, *key, *order;
    struct queue_consumer *consumer;
    struct queue_consumer_config config;
    unsigned prefetch;                 /* 0: 64 */
    const struct queue_broker *broker; /* NULL: rig_broker */

    struct queue_events events;
    struct rig_message messages[RIG_MAX];
    int messages_n;
    struct rig_line lines[RIG_MAX];
    int lines_n;
    bool fetching, no_delay, silent_delay, no_bury, silent_bury;
    int extended;
    size_t widened;
    queue_done_fn *told; /* the callback held back under silent_bury */
    void *told_data;

    struct rig_work works[RIG_MAX];
    int works_n, open_works, most_works;
    struct queue_outcome say[RIG_MAX]; /* the outcome of message n; result 0: the handler waits */
    struct queue_outcome script[RIG_MAX]; /* the outcome of the n-th work, in place of that */
    struct idem_task work_task;
    int said_n;

    int reports;
    struct rig_report said[RIG_MAX]; /* the reports, in order */
    enum { RIG_STORE_UP, RIG_STORE_REFUSES, RIG_STORE_SILENT, RIG_STORE_LATE } store;
    struct idem_op *late_op; /* under RIG_STORE_LATE, until rig_store_go_on() */
    int (*submit)(struct idem_store *store, struct idem_op *op); /* that of the real store */
    void (*cancel)(struct idem_store *store, struct idem_op *op);
    struct idem_driver driver;
    char states[1024];
    bool stopped;
};

static struct rig *rig_now; /* a test has only one */

static void rig_ready(void *sink, int fd, int events) {
    idem_ready(sink, fd, events);
}

static void rig_timeout(void *sink) {
    idem_timeout(sink);
}

/* The broker. */

static int rig_open(const struct queue_config *config, struct idem_loop *loop,
                    const struct queue_events *events, struct queue_link **ret,
                    struct idem_error *err) {
    (void)config;
    (void)loop;
    (void)err;
    rig_now->events = *events;
    *ret = (struct queue_link *)rig_now;
    return 0;
}

static void rig_fetch(struct queue_link *link, bool on) {
    (void)link;
    rig_now->fetching = on;
}

static struct rig_line *rig_line(const char *what, struct queue_message *m) {
    struct rig *rig = rig_now;
    struct rig_line *line = &rig->lines[rig->lines_n++];

    CHECK(rig->lines_n < RIG_MAX);
    snprintf(line->what, sizeof(line->what), "%s", what);
    line->n = ((struct rig_message *)m)->n;
    return line;
}

/* How often the broker had this call. */
static inline int rig_count(const char *what) {
    int n = 0;

    for (int i = 0; i < rig_now->lines_n; i++)
        n += strcmp(rig_now->lines[i].what, what) == 0;
    return n;
}

static void rig_end(struct queue_message *m) {
    struct rig_message *message = (struct rig_message *)m;

    CHECK(message->out); /* only once */
    message->out = false;
}

static void rig_ack(struct queue_link *link, struct queue_message *m) {
    (void)link;
    rig_line("ack", m);
    rig_end(m);
}

static void rig_giveback(struct queue_link *link, struct queue_message *m) {
    (void)link;
    rig_line("giveback", m);
    rig_end(m);
}

/* The broker's results come from the loop. */
struct rig_answer {
    struct idem_task task;
    queue_done_fn *told;
    void *data;
    bool taken;
};

static void rig_answer_run(struct idem_task *task) {
    struct rig_answer *answer = idem_container_of(task, struct rig_answer, task);
    struct rig_answer copy = *answer;

    free(answer);
    copy.told(copy.data, copy.taken, "the test says no");
}

static void rig_answer(queue_done_fn *told, void *data, bool taken) {
    struct rig_answer *answer = calloc(1, sizeof(*answer));

    CHECK(answer != NULL);
    *answer =
        (struct rig_answer){.task.run = rig_answer_run, .told = told, .data = data, .taken = taken};
    idem_task_post(&rig_now->h->loop, &answer->task);
}

static void rig_delay(struct queue_link *link, struct queue_message *m, int64_t ms,
                      queue_done_fn *told, void *data) {
    (void)link;
    rig_line("delay", m)->ms = ms;
    if (rig_now->silent_delay)
        return;
    if (!rig_now->no_delay)
        rig_end(m);
    rig_answer(told, data, !rig_now->no_delay);
}

static void rig_bury(struct queue_link *link, struct queue_message *m,
                     const struct queue_dead_fields *dead_fields, queue_done_fn *told, void *data) {
    struct rig_line *line = rig_line("bury", m);

    (void)link;
    snprintf(line->verdict, sizeof(line->verdict), "%s", dead_fields->verdict);
    snprintf(line->reason, sizeof(line->reason), "%s",
             dead_fields->reason == NULL ? "" : dead_fields->reason);
    snprintf(line->hash, sizeof(line->hash), "%s",
             dead_fields->hash == NULL ? "" : dead_fields->hash);
    line->attempts = dead_fields->attempts;
    if (rig_now->silent_bury) {
        rig_now->told = told;
        rig_now->told_data = data;
        return;
    }
    rig_answer(told, data, !rig_now->no_bury);
}

static void rig_extend(struct queue_link *link, struct queue_message *const *messages, size_t n) {
    (void)link;
    (void)messages;
    rig_now->extended += (int)n;
}

static void rig_widen(struct queue_link *link, size_t more) {
    (void)link;
    rig_now->widened = more;
}

static void rig_close_link(struct queue_link *link) {
    (void)link;
}

static int64_t rig_redelivery(const struct queue_config *config) {
    (void)config;
    return 1000;
}

static const char *const rig_schemes[] = {"rig", NULL};
static const struct queue_broker rig_broker = {
    "rig",    rig_schemes,  rig_open,       rig_fetch,  rig_ack,   rig_delay,
    rig_bury, rig_giveback, rig_close_link, rig_extend, rig_widen, rig_redelivery};

/* The handler. */

static void rig_say(struct rig_work *work, struct queue_outcome said) {
    struct queue_run *at = work->work;

    CHECK(at != NULL);
    work->work = NULL;
    rig_now->open_works--;
    at->finished(at, &said);
}

static void rig_works_run(struct idem_task *task) {
    (void)task;
    for (int i = 0; i < rig_now->works_n; i++) {
        struct rig_work *work = &rig_now->works[i];
        const struct queue_outcome *said =
            rig_now->script[i].result != 0 ? &rig_now->script[i] : &rig_now->say[work->n];

        if (work->work != NULL && said->result != 0)
            rig_say(work, *said);
    }
}

static void rig_begin(void *data, struct queue_run *work) {
    struct rig *rig = data;
    const struct rig_message *message = (const struct rig_message *)work->message;

    CHECK(rig->works_n < RIG_MAX);
    rig->works[rig->works_n++] =
        (struct rig_work){.work = work, .n = message->n, .attempt = work->attempt};
    rig->open_works++;
    if (rig->open_works > rig->most_works)
        rig->most_works = rig->open_works;
    idem_task_post(&rig->h->loop, &rig->work_task);
}

static void rig_cancel(void *data, struct queue_run *work) {
    struct rig *rig = data;

    for (int i = 0; i < rig->works_n; i++)
        if (rig->works[i].work == work)
            rig->works[i].cancelled = true;
}

/* The consumer's reports. */

static void rig_report(void *data, const struct queue_report *report) {
    struct rig *rig = data;
    struct rig_report *said = &rig->said[rig->reports++ % RIG_MAX];

    CHECK(report->trace != NULL && report->verdict != NULL && report->then != NULL);
    snprintf(said->then, sizeof(said->then), "%s", report->then);
    snprintf(said->trace, sizeof(said->trace), "%s", report->trace);
    snprintf(said->hash, sizeof(said->hash), "%s", report->hash == NULL ? "" : report->hash);
    said->again_ms = report->again_ms;
}

static void rig_state(void *data, bool ready, const char *text) {
    struct rig *rig = data;
    size_t len = strlen(rig->states);

    (void)ready;
    snprintf(rig->states + len, sizeof(rig->states) - len, "%s\n", text);
}

static void rig_stopped(void *data) {
    struct rig *rig = data;

    CHECK(!rig->stopped);
    rig->stopped = true;
}

/* The whole. */

static struct idem_guard *rig_guard(const struct idem_policy *policy) {
    struct idem_guard *guard = NULL;
    struct idem_error err = {0};

    if (idem_guard_make(NULL, policy, NULL, &guard, &err) < 0) {
        fprintf(stderr, "# %s\n", err.text);
        exit(1);
    }
    return guard;
}

/* The store, which a test can make refuse, stay silent, or delay an operation. */

static int rig_submit(struct idem_store *store, struct idem_op *op) {
    if (rig_now->store == RIG_STORE_UP)
        return rig_now->submit(store, op);
    if (rig_now->store == RIG_STORE_REFUSES)
        return idem_error_set(&op->error, IDEM_E_REFUSED, "the test's store refuses");
    if (rig_now->store == RIG_STORE_LATE)
        rig_now->late_op = op;
    op->driver = rig_now; /* marks the operation as under way */
    return 0;
}

/* Passes the delayed operation to the store. */
static inline void rig_store_go_on(struct rig *rig) {
    struct idem_op *op = rig->late_op;

    CHECK(op != NULL);
    rig->store = RIG_STORE_UP;
    rig->late_op = NULL;
    op->driver = NULL;
    CHECK_INT(rig->submit(rig->h->store, op), 0);
}

static void rig_cancel_op(struct idem_store *store, struct idem_op *op) {
    if (op->driver != rig_now) {
        rig_now->cancel(store, op);
        return;
    }
    op->driver = NULL;
    if (op == rig_now->late_op)
        rig_now->late_op = NULL;
}

static void rig_store_wrap(struct rig *rig) {
    struct idem_store *store = rig->h->store;

    rig->driver = *store->driver;
    rig->submit = store->driver->submit;
    rig->cancel = store->driver->cancel;
    rig->driver.submit = rig_submit;
    rig->driver.cancel = rig_cancel_op;
    store->driver = &rig->driver;
}

static void rig_store(struct rig *rig, const char *url) {
    static const struct idem_options options = {.op_timeout_ms = RIG_LONG_MS};
    struct idem_host host;
    struct idem_error err = {0};

    idem_poll_init(&rig->poll);
    rig->poll.ready = rig_ready;
    rig->poll.timeout = rig_timeout;
    host = idem_poll_host(&rig->poll);
    if (idem_open_on(url, &options, &host, &rig->h, &err) < 0) {
        fprintf(stderr, "# %s\n", err.text);
        exit(1);
    }
    rig->poll.sink = rig->h;
    rig_store_wrap(rig);
}

/* A policy with prefix and scope; `order` is an expression or NULL. */
static void rig_start_on(struct rig *rig, const char *url, struct idem_policy policy,
                         unsigned workers, const char *order) {
    struct idem_policy key = policy;
    struct idem_policy lane = {.prefix = "o:", .scope = IDEM_SCOPE_NONE, .key_expr = order};
    struct idem_error err = {0};

    rig_now = rig;
    rig_store(rig, url);
    policy.fingerprint_expr = NULL;
    policy.key_expr = NULL;
    rig->guard = rig_guard(&policy);
    if (key.key_expr == NULL && key.key_kind == 0)
        key.key_expr = "#body.id";
    rig->key = rig_guard(&key);
    rig->order = order == NULL ? NULL : rig_guard(&lane);
    rig->work_task.run = rig_works_run;
    rig->config = (struct queue_consumer_config){
        .h = rig->h,
        .guard = rig->guard,
        .keying = {.kind = key.key_expr != NULL ? QUEUE_KEY_EXPRESSION : QUEUE_KEY_ID,
                   .guard = rig->key,
                   .order = rig->order},
        .broker = rig->broker == NULL ? &rig_broker : rig->broker,
        .queue = {.url = "rig:",
                  .queue = "q",
                  .prefetch = rig->prefetch == 0 ? 64 : rig->prefetch,
                  .lease_ms = policy.lease_ms},
        .handler = {rig, workers, rig_begin, rig_cancel},
        .events = {rig, rig_report, rig_state, rig_stopped},
    };
    CHECK_INT(queue_consumer_new(&rig->config, &rig->consumer, &err), 0);
    CHECK(rig->fetching);
}

static void rig_start(struct rig *rig, struct idem_policy policy, unsigned workers,
                      const char *order) {
    rig_start_on(rig, temp_url("store", "sync=off"), policy, workers, order);
}

/* Turns the loop until `*value` is `want`. */
static void rig_until(struct rig *rig, const int *value, int want) {
    int64_t by = idem_loop_now() + WAIT_LIMIT_S * 1000;

    while (*value != want && idem_loop_now() < by)
        (void)idem_poll_turn(&rig->poll, NULL, 0, 10);
    if (*value != want) {
        fprintf(stderr, "# waited in vain for %d, it is %d\n", want, *value);
        for (int i = 0; i < rig->lines_n; i++)
            fprintf(stderr, "# %s %d\n", rig->lines[i].what, rig->lines[i].n);
        exit(1);
    }
}

/* Turns the loop until the condition is true. */
#define RIG_UNTIL(rig, condition)                                                                  \
    WAIT_BY((void)idem_poll_turn(&(rig)->poll, NULL, 0, 10), condition)

/* Turns the loop for this long, to show that nothing happens. */
static void rig_turn(struct rig *rig, int ms) {
    int64_t by = idem_loop_now() + ms;

    while (idem_loop_now() < by)
        (void)idem_poll_turn(&rig->poll, NULL, 0, 5);
}

/* Delivers a message with this body and, if it is not NULL, this id. Returns its number. */
static int rig_deliver(struct rig *rig, const char *body, const char *id) {
    struct rig_message *message = &rig->messages[rig->messages_n];

    CHECK(rig->messages_n < RIG_MAX);
    message->n = rig->messages_n++;
    message->out = true;
    message->m = (struct queue_message){
        .body = {(const unsigned char *)body, strlen(body)},
        .properties = message->properties,
        .properties_n = id != NULL,
        .queue = "q",
    };
    if (id != NULL)
        message->properties[0] = (struct queue_field){{(const unsigned char *)"message_id", 10},
                                                      {(const unsigned char *)id, strlen(id)},
                                                      false};
    rig->events.message(rig->events.data, &message->m);
    return message->n;
}

static void rig_finish(struct rig *rig) {
    /* sleep: results that are on their way; later ones are right, too */
    rig_turn(rig, 10); /* results that are on their way */
    queue_consumer_free(rig->consumer);
    idem_guard_free(rig->guard);
    idem_guard_free(rig->key);
    idem_guard_free(rig->order);
    idem_close(rig->h);
    idem_poll_release(&rig->poll);
}

static struct idem_policy rig_policy(void) {
    return (struct idem_policy){.prefix = "q:",
                                .scope = IDEM_SCOPE_NONE,
                                .preset = IDEM_PRESET_QUEUE,
                                .lease_ms = RIG_LONG_MS,
                                .backoff_min_ms = 300,
                                .backoff_max_ms = 1000};
}

#endif
