/*
 * A handler of idem consume on the poll loop, and messages for it.
 */
#ifndef IDEM_TEST_QUEUE_HANDLER_HANDLER_RIG_H
#define IDEM_TEST_QUEUE_HANDLER_HANDLER_RIG_H

#include <fcntl.h>
#include <sys/stat.h>

#include "loop/poll.h"
#include "queue/handler/handler_open.h"
#include "temp.h"
#include "test.h"
#include "wait.h"

#define HANDLER_RIG_FIELDS 1200
#define HANDLER_RIG_HASH "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

struct handler_rig {
    struct idem_poll poll;
    struct idem_loop loop;
    struct handler handler;
    int reports;
};

/* A message, its work, and its outcome. */
struct item {
    struct queue_run run;
    struct queue_message message;
    struct queue_field headers[HANDLER_RIG_FIELDS], properties[8];
    struct handler_rig *rig;
    int reports;
    struct queue_outcome outcome;
    char reason[2048];
};

static void handler_rig_ready(void *sink, int fd, int events) {
    idem_loop_ready(sink, fd, events);
}

static void handler_rig_timeout(void *sink) {
    idem_loop_timeout(sink);
}

static void handler_rig_init(struct handler_rig *rig) {
    struct idem_host host;

    *rig = (struct handler_rig){0};
    (void)signal(SIGPIPE, SIG_IGN);
    idem_poll_init(&rig->poll);
    rig->poll.ready = handler_rig_ready;
    rig->poll.timeout = handler_rig_timeout;
    rig->poll.sink = &rig->loop;
    host = idem_poll_host(&rig->poll);
    idem_loop_init(&rig->loop, &host);
}

static void handler_rig_close(struct handler_rig *rig) {
    handler_close(&rig->handler);
    CHECK(rig->loop.fds == NULL);
    CHECK(rig->loop.timers == NULL);
    CHECK(rig->loop.tasks == NULL);
    idem_poll_release(&rig->poll);
}

static void handler_rig_turn(struct handler_rig *rig, int64_t ms) {
    CHECK(idem_poll_turn(&rig->poll, NULL, 0, ms) >= 0);
}

/* Turns the loop until the condition is true. */
#define HANDLER_RIG_UNTIL(rig, condition) WAIT_BY(handler_rig_turn(rig, 5), condition)

/* Turns the loop for this long, to show that nothing happens. */
static inline void handler_rig_spin(struct handler_rig *rig, int64_t ms) {
    int64_t until = idem_loop_now() + ms, left;

    while ((left = until - idem_loop_now()) > 0)
        handler_rig_turn(rig, left);
}

static void item_finished(struct queue_run *run, const struct queue_outcome *outcome) {
    struct item *item = idem_container_of(run, struct item, run);

    item->reports++;
    item->rig->reports++;
    item->outcome = *outcome;
    snprintf(item->reason, sizeof(item->reason), "%s",
             outcome->reason == NULL ? "" : outcome->reason);
}

/* Allocated; the caller frees it. The body is borrowed. */
static struct item *item_of(const void *body, size_t len) {
    struct item *item = calloc(1, sizeof(*item));

    CHECK(item != NULL);
    item->message = (struct queue_message){
        .body = {body, len},
        .headers = item->headers,
        .properties = item->properties,
        .queue = "orders",
    };
    item->run = (struct queue_run){
        .message = &item->message,
        .key = "4711",
        .key_len = 4,
        .hash = HANDLER_RIG_HASH,
        .trace = "trace-1",
        .attempt = 3,
        .not_after = INT64_MAX,
        .finished = item_finished,
    };
    return item;
}

static struct item *item_new(const char *body) {
    return item_of(body, strlen(body));
}

static struct idem_bytes bytes_of(const char *text) {
    return (struct idem_bytes){(const unsigned char *)text, strlen(text)};
}

static inline void item_header(struct item *item, const char *name, const char *value) {
    CHECK(item->message.headers_n < HANDLER_RIG_FIELDS);
    item->headers[item->message.headers_n++] =
        (struct queue_field){.name = bytes_of(name), .value = bytes_of(value)};
}

static inline void item_property(struct item *item, const char *name, const char *value) {
    CHECK(item->message.properties_n < 8);
    item->properties[item->message.properties_n++] =
        (struct queue_field){.name = bytes_of(name), .value = bytes_of(value)};
}

static void handler_rig_begin(struct handler_rig *rig, struct item *item) {
    int before = item->reports;

    item->rig = rig;
    rig->handler.queue.begin(rig->handler.queue.data, &item->run);
    CHECK_INT(item->reports, before); /* never inside begin() */
}

static inline void handler_rig_cancel(struct handler_rig *rig, struct item *item) {
    int before = item->reports;

    rig->handler.queue.cancel(rig->handler.queue.data, &item->run);
    CHECK_INT(item->reports, before);
}

static inline void handler_rig_wait_all(struct handler_rig *rig, int reports) {
    HANDLER_RIG_UNTIL(rig, rig->reports >= reports);
    CHECK_INT(rig->reports, reports);
}

static void handler_rig_wait(struct handler_rig *rig, struct item *item) {
    HANDLER_RIG_UNTIL(rig, item->reports != 0);
    CHECK_INT(item->reports, 1);
}

static inline void handler_rig_run(struct handler_rig *rig, struct item *item) {
    handler_rig_begin(rig, item);
    handler_rig_wait(rig, item);
}

#define CHECK_SAID(item, want)                                                                     \
    do {                                                                                           \
        if ((item)->outcome.result != (want))                                                      \
            fprintf(stderr, "# the result was %s: %s\n",                                           \
                    queue_result_name((item)->outcome.result), (item)->reason);                    \
        CHECK_STR(queue_result_name((item)->outcome.result), queue_result_name(want));             \
    } while (0)

/* Files of the test's directory. */

static const char *path_of(const char *name) {
    static char paths[8][512];
    static unsigned turn;
    char *path = paths[turn++ % 8];

    snprintf(path, sizeof(paths[0]), "%s/%s", temp_folder(), name);
    return path;
}

static inline void file_write(const char *name, const char *text) {
    FILE *file = fopen(path_of(name), "w");

    CHECK(file != NULL);
    CHECK(fputs(text, file) >= 0);
    CHECK_INT(fclose(file), 0);
    CHECK_INT(chmod(path_of(name), 0700), 0);
}

/* The whole file, with a NUL; the caller frees it. "" if there is no file. */
static char *file_read(const char *name, size_t *ret_len) {
    FILE *file = fopen(path_of(name), "r");
    char *text = calloc(1, 8 << 20);
    size_t len = 0;

    CHECK(text != NULL);
    if (file != NULL) {
        len = fread(text, 1, (8 << 20) - 1, file);
        (void)fclose(file);
    }
    if (ret_len != NULL)
        *ret_len = len;
    return text;
}

/* Waits for a number that a program writes into a file. */
static inline int file_number(const char *name) {
    char *text;
    long n;

    WAIT_UNTIL(strchr(text = file_read(name, NULL), '\n') != NULL || (free(text), false));
    n = strtol(text, NULL, 10);
    free(text);
    return (int)n;
}

/* True if the process has ended, even if it is still a zombie. */
static inline bool is_gone(int pid) {
    char path[64], state = 'Z';
    FILE *file;

    snprintf(path, sizeof(path), "/proc/%d/stat", pid);
    file = fopen(path, "r");
    if (file == NULL)
        return true;
    if (fscanf(file, "%*d (%*[^)]) %c", &state) != 1)
        state = 'Z';
    (void)fclose(file);
    return state == 'Z' || state == 'X';
}

#endif
