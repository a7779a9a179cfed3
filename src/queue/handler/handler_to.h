/*
 * The inside of --to: one transfer per message, all on one multi handle of libcurl, which runs
 * on our loop.
 */
#ifndef IDEM_QUEUE_HANDLER_HANDLER_TO_H
#define IDEM_QUEUE_HANDLER_HANDLER_TO_H

#include <curl/curl.h>

#include "http/http_field.h"
#include "loop/epoll_set.h"
#include "queue/handler/handler_open.h"

#define TO_KEPT_MAX 1024      /* bytes of a response's body that are kept */
#define TO_HEAD_MAX 65536     /* limit for the bytes of a response's header */
#define TO_ORIGINALS_MAX 64   /* headers of a message that are passed on */
#define TO_ORIGINALS_LEN 8192 /* limit for their bytes */

/* The response of an endpoint so far. */
struct to_answer {
    bool whole_head; /* the empty line has arrived: libcurl accepts a header that breaks off */
    bool has_outcome;
    enum idem_http_outcome outcome;
    char retry_after[64], date[64]; /* as received */
    char type[128];                 /* Content-Type */
    char body[TO_KEPT_MAX];
    size_t body_len, head_len;
};

/* Takes one field of the header, or a status line, which starts a new response. */
void to_answer_line(struct to_answer *answer, const char *line, size_t len);
void to_answer_body(struct to_answer *answer, const char *bytes, size_t len);
/* The delay by its Retry-After; 0 without one. */
int64_t to_answer_delay_ms(const struct to_answer *answer);
/* "HTTP 422: no such order": the status, with the body's message for people, if it has one. */
const char *to_answer_reason(const struct to_answer *answer, long status, char *buf, size_t size);

#endif
