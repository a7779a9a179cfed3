/*
 * Refusals: as application/problem+json (RFC 9457), and as a small HTML page for people.
 */
#ifndef IDEM_HTTP_HTTP_PROBLEM_H
#define IDEM_HTTP_HTTP_PROBLEM_H

#include "http/http_field.h"

enum idem_http_problem_kind {
    IDEM_HTTP_KEY_MISSING,
    IDEM_HTTP_KEY_MALFORMED,
    IDEM_HTTP_MISMATCH,
    IDEM_HTTP_IN_PROGRESS,
    IDEM_HTTP_DUPLICATE,
    IDEM_HTTP_UNCERTAIN,
    IDEM_HTTP_FAILED,
    IDEM_HTTP_TOKEN_REFUSED,
    IDEM_HTTP_SIGNATURE_INCOMPLETE,
    IDEM_HTTP_SIGNATURE_STALE,
    IDEM_HTTP_SIGNATURE_WRONG,
    IDEM_HTTP_NONCE_REUSED,
    IDEM_HTTP_STORE_UNAVAILABLE,
    IDEM_HTTP_PROBLEMS,
};

/* The defaults of a kind. The type in JSON is "urn:idem:" and the word. */
struct idem_http_problem_defaults {
    const char *word;
    int status;
    const char *title;
    bool retryable; /* the same request may have another outcome later */
};
extern const struct idem_http_problem_defaults idem_http_problem_defaults[IDEM_HTTP_PROBLEMS];

/* Zero or empty means absent, and the member is left out; status and retryable then come from
   the kind. Texts are any bytes: U+FFFD replaces bytes that are not UTF-8. */
struct idem_http_problem {
    enum idem_http_problem_kind kind;
    int status;
    enum { IDEM_HTTP_BY_KIND, IDEM_HTTP_RETRY, IDEM_HTTP_NO_RETRY } retryable;
    struct idem_http_text detail;   /* the policy's message, or the fault of the key */
    struct idem_http_text key_hash; /* hexadecimal digits */
    int first_status;               /* duplicate */
    int last_status;                /* failed */
    struct idem_http_text reason;   /* failed */
    int64_t retry_after;            /* seconds; HTML only, since JSON has the header */
};

int idem_http_problem_status(const struct idem_http_problem *problem);
bool idem_http_problem_retryable(const struct idem_http_problem *problem);

/*
 * Like snprintf(): writes at most `size` bytes, with a NUL if the whole and the NUL fit, and
 * returns the length of the whole. (NULL, 0) measures it.
 */
size_t idem_http_problem_json(const struct idem_http_problem *problem, char *buf, size_t size);
size_t idem_http_problem_html(const struct idem_http_problem *problem, char *buf, size_t size);

#define IDEM_HTTP_PROBLEM_JSON "application/problem+json"
#define IDEM_HTTP_PROBLEM_HTML "text/html; charset=utf-8"

#endif
