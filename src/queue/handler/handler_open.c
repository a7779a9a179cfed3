/*
 * Shared by the handlers: the check of their settings, and the close.
 */
#include "queue/handler/handler_open.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/chars.h"
#include "base/error.h"

/*
 * Parses the lists of --on-exit and --on-status. A list with any fault is refused: a misread
 * list would decide wrongly about every message.
 */

const struct idem_word handler_results[] = {
    {"done", QUEUE_DONE},
    {"retry", QUEUE_RETRY},
    {"dead", QUEUE_REFUSED},
    {"unknown", QUEUE_UNKNOWN},
    {NULL, 0},
};

/* One of the two lists. */
struct list {
    const char *option;
    int min, max; /* of statuses */
    bool classes; /* 4xx */
    bool rest;    /* * */
    const char *allowed;
};

static const struct list on_exit_list = {
    .option = "--on-exit",
    .min = 1,
    .max = 255,
    .rest = true,
    .allowed = "a number from 1 to 255, or *",
};
static const struct list on_status_list = {
    .option = "--on-status",
    .min = 200,
    .max = HANDLER_STATUS_MAX,
    .classes = true,
    .allowed = "a number from 200 to 599, or 2xx, 3xx, 4xx or 5xx",
};

/* The rules so far: with the defaults in `rules`, the given ones alone in `given`. */
struct reading {
    const struct list *list;
    struct handler_rules rules, given;
    struct idem_error *err;
};

__attribute__((format(printf, 3, 4))) static int
reading_refuse(struct reading *r, struct idem_bytes item, const char *fmt, ...) {
    char quoted[IDEM_QUOTE_TEXT], why[160];
    va_list args;

    va_start(args, fmt);
    vsnprintf(why, sizeof(why), fmt, args);
    va_end(args);
    idem_error_quote((const char *)item.at, item.len, quoted, sizeof(quoted));
    return idem_error_set(r->err, IDEM_E_INVALID, "%s: %s: %s", r->list->option, quoted, why);
}

static struct idem_bytes bytes_trim(struct idem_bytes text) {
    while (text.len > 0 && idem_is_blank((char)text.at[0])) {
        text.at++;
        text.len--;
    }
    while (text.len > 0 && idem_is_blank((char)text.at[text.len - 1]))
        text.len--;
    return text;
}

/* Up to three digits; -1: the text is no number. */
static int bytes_number(struct idem_bytes text) {
    int n = 0;

    if (text.len == 0 || text.len > 3)
        return -1;
    for (size_t i = 0; i < text.len; i++) {
        if (!idem_is_digit((char)text.at[i]))
            return -1;
        n = 10 * n + (text.at[i] - '0');
    }
    return n;
}

/* The place of the named rule in a set of rules, or NULL. */
static unsigned char *list_rule(const struct list *list, struct handler_rules *rules,
                                struct idem_bytes name) {
    int n = bytes_number(name);

    if (n >= list->min && n <= list->max)
        return &rules->exact[n];
    if (list->rest && name.len == 1 && name.at[0] == '*')
        return &rules->rest;
    if (list->classes && name.len == 3 && name.at[0] >= '2' && name.at[0] <= '5' &&
        memcmp(name.at + 1, "xx", 2) == 0)
        return &rules->classes[name.at[0] - '0'];
    return NULL;
}

static int reading_item(struct reading *r, struct idem_bytes item) {
    const unsigned char *equals = item.len == 0 ? NULL : memchr(item.at, '=', item.len);
    struct idem_bytes name = item, word = {0};
    unsigned char *given;
    int result;

    if (equals == NULL)
        return reading_refuse(r, item, "a rule is STATUS=RESULT");
    name.len = (size_t)(equals - item.at);
    word = bytes_trim((struct idem_bytes){equals + 1, item.len - name.len - 1});
    name = bytes_trim(name);
    given = list_rule(r->list, &r->given, name);
    if (given == NULL)
        return reading_refuse(r, item, "a status is %s", r->list->allowed);
    if (!idem_word_find(handler_results, (const char *)word.at, word.len, &result))
        return reading_refuse(r, item, "a result is done, retry, dead or unknown");
    if (*given != 0)
        return reading_refuse(r, item, "this status has a rule before");
    *given = (unsigned char)result;
    *list_rule(r->list, &r->rules, name) = (unsigned char)result;
    return 0;
}

static int reading_list(struct reading *r, const char *text) {
    int rc;

    for (;;) {
        size_t len = strcspn(text, ",");

        rc = reading_item(r, bytes_trim((struct idem_bytes){(const unsigned char *)text, len}));
        if (rc < 0 || text[len] == '\0')
            return rc;
        text += len + 1;
    }
}

static int reading_finish(struct reading *r, const char *text, struct handler_rules *ret) {
    int rc = text == NULL ? 0 : reading_list(r, text);

    if (rc == 0)
        *ret = r->rules;
    return rc;
}

int handler_on_exit_parse(const char *text, struct handler_rules *ret, struct idem_error *err) {
    struct reading r = {
        .list = &on_exit_list,
        .rules = {.exact = {[0] = QUEUE_DONE, [75] = QUEUE_RETRY}, .rest = QUEUE_RETRY},
        .err = err,
    };

    memset(r.rules.exact + 129, QUEUE_UNKNOWN, 64);
    return reading_finish(&r, text, ret);
}

int handler_on_status_parse(const char *text, struct handler_rules *ret, struct idem_error *err) {
    struct reading r = {
        .list = &on_status_list,
        .rules =
            {.exact = {[409] = QUEUE_RETRY,
                       [425] = QUEUE_RETRY,
                       [429] = QUEUE_RETRY,
                       [502] = QUEUE_UNKNOWN,
                       [503] = QUEUE_RETRY,
                       [504] = QUEUE_UNKNOWN},
             .classes =
                 {[2] = QUEUE_DONE, [3] = QUEUE_REFUSED, [4] = QUEUE_REFUSED, [5] = QUEUE_RETRY},
             .rest = QUEUE_UNKNOWN},
        .err = err,
    };

    return reading_finish(&r, text, ret);
}

enum queue_result handler_rule(const struct handler_rules *rules, int status) {
    if (status < 0 || status > HANDLER_STATUS_MAX)
        return (enum queue_result)rules->rest;
    if (rules->exact[status] != 0)
        return (enum queue_result)rules->exact[status];
    if (rules->classes[status / 100] != 0)
        return (enum queue_result)rules->classes[status / 100];
    return (enum queue_result)rules->rest;
}

/* The kernel accepts no longer string as an argument. */
#define COMMAND_MAX 131071

void handler_close(struct handler *handler) {
    if (handler->close != NULL)
        handler->close(handler->queue.data);
    *handler = (struct handler){0};
}

int handler_open_check_workers(unsigned workers, struct idem_error *err) {
    if (workers >= 1 && workers <= HANDLER_WORKERS_MAX)
        return 0;
    return idem_error_set(err, IDEM_E_INVALID, "%u workers: there are 1 to %d", workers,
                          HANDLER_WORKERS_MAX);
}

int handler_open_check_program(const char *option, const struct handler_program *program,
                               unsigned workers, struct idem_error *err) {
    if (program->command == NULL || program->command[strspn(program->command, " \t\n")] == '\0')
        return idem_error_set(err, IDEM_E_INVALID, "%s: the command is empty", option);
    if (strlen(program->command) > COMMAND_MAX)
        return idem_error_set(err, IDEM_E_INVALID,
                              "%s: the command is longer than the system takes (%d bytes); put it "
                              "into a file",
                              option, COMMAND_MAX);
    return handler_open_check_workers(workers, err);
}
