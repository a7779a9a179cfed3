/*
 * A handler of idem consume on the poll loop, and messages for it.
 */
#ifndef IDEM_TEST_QUEUE_HANDLER_HAND_H
#define IDEM_TEST_QUEUE_HANDLER_HAND_H

#include <fcntl.h>
#include <sys/stat.h>

#include "loop/poll.h"
#include "queue/handler/handler_open.h"
#include "temp.h"
#include "test.h"
#include "wait.h"

#define HAND_FIELDS 1200
#define HAND_HASH "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

struct hand {
    struct idem_poll poll;
    struct idem_loop loop;
    struct handler handler;
    int told;
};

/* A message, what is to be done with it, and what came of it. */
struct item {
    struct queue_work work;
    struct queue_message message;
    struct queue_field headers[HAND_FIELDS], properties[8];
    struct hand *hand;
    int told;
    struct queue_outcome said;
    char reason[2048];
};

static void hand_ready(void *sink, int fd, int events) {
    idem_loop_ready(sink, fd, events);
}

static void hand_timeout(void *sink) {
    idem_loop_timeout(sink);
}

static void hand_init(struct hand *hand) {
    struct idem_host host;

    *hand = (struct hand){0};
    (void)signal(SIGPIPE, SIG_IGN);
    idem_poll_init(&hand->poll);
    hand->poll.ready = hand_ready;
    hand->poll.timeout = hand_timeout;
    hand->poll.sink = &hand->loop;
    host = idem_poll_host(&hand->poll);
    idem_loop_init(&hand->loop, &host);
}

static void hand_close(struct hand *hand) {
    handler_close(&hand->handler);
    CHECK(hand->loop.fds == NULL);
    CHECK(hand->loop.timers == NULL);
    CHECK(hand->loop.tasks == NULL);
    idem_poll_release(&hand->poll);
}

static void hand_turn(struct hand *hand, int64_t ms) {
    CHECK(idem_poll_turn(&hand->poll, NULL, 0, ms) >= 0);
}

/* Turns the loop until the condition is true. */
#define HAND_UNTIL(hand, condition) WAIT_BY(hand_turn(hand, 5), condition)

/* Turns the loop for so long: to show that nothing happens. */
static inline void hand_spin(struct hand *hand, int64_t ms) {
    int64_t until = idem_loop_now() + ms, left;

    while ((left = until - idem_loop_now()) > 0)
        hand_turn(hand, left);
}

static void item_told(struct queue_work *work, const struct queue_outcome *said) {
    struct item *item = idem_container_of(work, struct item, work);

    item->told++;
    item->hand->told++;
    item->said = *said;
    snprintf(item->reason, sizeof(item->reason), "%s", said->reason == NULL ? "" : said->reason);
}

/* On the heap; free(). The body is borrowed. */
static struct item *item_of(const void *body, size_t len) {
    struct item *item = calloc(1, sizeof(*item));

    CHECK(item != NULL);
    item->message = (struct queue_message){
        .body = {body, len},
        .headers = item->headers,
        .properties = item->properties,
        .queue = "orders",
    };
    item->work = (struct queue_work){
        .message = &item->message,
        .key = "4711",
        .key_len = 4,
        .hash = HAND_HASH,
        .trace = "trace-1",
        .attempt = 3,
        .not_after = INT64_MAX,
        .told = item_told,
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
    CHECK(item->message.headers_n < HAND_FIELDS);
    item->headers[item->message.headers_n++] =
        (struct queue_field){.name = bytes_of(name), .value = bytes_of(value)};
}

static inline void item_property(struct item *item, const char *name, const char *value) {
    CHECK(item->message.properties_n < 8);
    item->properties[item->message.properties_n++] =
        (struct queue_field){.name = bytes_of(name), .value = bytes_of(value)};
}

static void hand_begin(struct hand *hand, struct item *item) {
    int before = item->told;

    item->hand = hand;
    hand->handler.queue.begin(hand->handler.queue.data, &item->work);
    CHECK_INT(item->told, before); /* never inside begin() */
}

static inline void hand_cancel(struct hand *hand, struct item *item) {
    int before = item->told;

    hand->handler.queue.cancel(hand->handler.queue.data, &item->work);
    CHECK_INT(item->told, before);
}

static inline void hand_wait_all(struct hand *hand, int told) {
    HAND_UNTIL(hand, hand->told >= told);
    CHECK_INT(hand->told, told);
}

static void hand_wait(struct hand *hand, struct item *item) {
    HAND_UNTIL(hand, item->told != 0);
    CHECK_INT(item->told, 1);
}

static inline void hand_run(struct hand *hand, struct item *item) {
    hand_begin(hand, item);
    hand_wait(hand, item);
}

#define CHECK_SAID(item, want)                                                                     \
    do {                                                                                           \
        if ((item)->said.result != (want))                                                         \
            fprintf(stderr, "# it said %s: %s\n", queue_result_name((item)->said.result),          \
                    (item)->reason);                                                               \
        CHECK_STR(queue_result_name((item)->said.result), queue_result_name(want));                \
    } while (0)

/* Files of the test's folder. */

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

/* The whole of it, with a NUL; free(). An empty text where there is none. */
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

/* A number that a program writes into a file; it is waited for. */
static inline int file_number(const char *name) {
    char *text;
    long n;

    WAIT_UNTIL(strchr(text = file_read(name, NULL), '\n') != NULL || (free(text), false));
    n = strtol(text, NULL, 10);
    free(text);
    return (int)n;
}

/* True if the process is gone; one that nobody has reaped yet is. */
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
