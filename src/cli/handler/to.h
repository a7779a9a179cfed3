/*
 * The inside of --to: one transfer per message, all on one multi handle of
 * libcurl, which works on our loop.
 */
#ifndef IDEM_CLI_HANDLER_TO_H
#define IDEM_CLI_HANDLER_TO_H

#include <curl/curl.h>

#include "cli/handler/handler.h"
#include "http/field.h"
#include "loop/nest.h"

#define TO_KEPT_MAX 1024      /* bytes of an answer's body that are looked at */
#define TO_HEAD_MAX 65536     /* bytes of an answer's header that are taken */
#define TO_ORIGINALS_MAX 64   /* headers of a message that are passed on */
#define TO_ORIGINALS_LEN 8192 /* and their bytes */

/* What an endpoint has answered so far. */
struct to_answer {
    bool whole_head; /* to the empty line at its end: libcurl takes one that breaks off for whole */
    bool has_outcome;
    enum idem_http_outcome outcome;
    char retry_after[64], date[64]; /* as they came */
    char type[128];                 /* Content-Type */
    char body[TO_KEPT_MAX];
    size_t body_len, head_len;
};

/* One field of its header; or a status line, after which everything begins anew. */
void to_answer_line(struct to_answer *answer, const char *line, size_t len);
void to_answer_body(struct to_answer *answer, const char *bytes, size_t len);
/* How long to wait, by its Retry-After; 0 where it says nothing. */
int64_t to_answer_delay_ms(const struct to_answer *answer);
/* "HTTP 422: no such order": with what the body says to people, if it does. */
const char *to_answer_reason(const struct to_answer *answer, long status, char *buf, size_t size);

/* The header of the request; the caller's: curl_slist_free_all(). NULL without memory. */
struct curl_slist *to_request_headers(const struct queue_work *work, const char *prefix);

#endif
