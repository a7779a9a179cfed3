/*
 * The worker protocol of --exec-jsonl: one JSON object on a line in each direction, one
 * message at a time.
 *
 *     to the worker     {"id": 7, "key": "4711", "key_hash": "0f3a...", "attempt": 1,
 *                        "trace": "...", "queue": "orders", "redelivered": false,
 *                        "headers": {...}, "properties": {...}, "body": "..."}
 *     from the worker   {"id": 7, "result": "done"}
 *                       {"id": 7, "result": "retry", "delay": "30s", "status": 503,
 *                        "reason": "the bank is closed"}
 *
 * Body and key are texts; if they are not UTF-8, they are sent as "body_base64" and
 * "key_base64" instead. Results are done, retry, dead and unknown. A delay is a time ("1m30s")
 * or a number of seconds, at most a day; 0 leaves it to the policy. The status is any 32-bit
 * integer. Other members are ignored.
 */
#ifndef IDEM_QUEUE_HANDLER_HANDLER_ANSWER_H
#define IDEM_QUEUE_HANDLER_HANDLER_ANSWER_H

#include "queue/handler.h"

#define HANDLER_ANSWER_MAX (64 << 10) /* bytes of a line, without its newline */

struct handler_answer {
    enum queue_result result;
    int64_t delay_ms;
    int32_t status;
    char reason[IDEM_REASON_MAX + 1]; /* one line; empty: none */
};

/* Returns 0, IDEM_E_INVALID with the fault (never with the line), or IDEM_E_NOMEM. On failure
 *ret is untouched. */
int handler_answer_parse(const char *line, size_t len, uint64_t id, struct handler_answer *ret,
                         struct idem_error *err);

/* The line for a worker, with its newline. The caller frees it. NULL without memory. */
char *handler_request_line(const struct queue_run *run, uint64_t id, size_t *ret_len);

/* Makes one printable line of foreign bytes: invisible characters (base/visible.h) become
   blanks, bytes that are not UTF-8 become '?', and a text that is too long is cut. Returns buf. */
const char *handler_words(const char *text, size_t len, char *buf, size_t size);

#endif
