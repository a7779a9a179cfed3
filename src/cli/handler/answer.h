/*
 * The worker protocol of --exec-jsonl: one JSON object on a line in each
 * direction, one message at a time.
 *
 *     to the worker     {"id": 7, "key": "4711", "key_hash": "0f3a...", "attempt": 1,
 *                        "trace": "...", "queue": "orders", "redelivered": false,
 *                        "headers": {...}, "properties": {...}, "body": "..."}
 *     from the worker   {"id": 7, "result": "done"}
 *                       {"id": 7, "result": "retry", "delay": "30s", "status": 503,
 *                        "reason": "the bank is closed"}
 *
 * Body and key are texts; what is not UTF-8 is there as "body_base64" and
 * "key_base64" instead. Results are done, retry, dead and unknown. A delay is a
 * time ("1m30s") or a number of seconds, at most a day, and 0 leaves it to the
 * policy; status is any 32-bit integer. Other members are left aside.
 */
#ifndef IDEM_CLI_HANDLER_ANSWER_H
#define IDEM_CLI_HANDLER_ANSWER_H

#include "queue/handler.h"

#define HANDLER_ANSWER_MAX (64 << 10) /* bytes of a line, without its end */

struct handler_answer {
    enum queue_result result;
    int64_t delay_ms;
    int32_t status;
    char reason[IDEM_REASON_MAX + 1]; /* one line; empty: none */
};

/* 0, or IDEM_E_INVALID with what is wrong, which never shows the line; or IDEM_E_NOMEM. *ret is
   untouched then. */
int handler_answer_parse(const char *line, size_t len, uint64_t id, struct handler_answer *ret,
                         struct idem_error *err);

/* The line for a worker, with its end; the caller's: free(). NULL without memory. */
char *handler_question(const struct queue_work *work, uint64_t id, size_t *ret_len);

/* Bytes from outside as the words of one line: control characters become blanks, and what is not
   UTF-8 '?'; what is too long is cut. Returns buf. */
const char *handler_words(const char *text, size_t len, char *buf, size_t size);

#endif
