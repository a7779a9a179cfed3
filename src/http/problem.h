/*
 * Refusals: as application/problem+json (RFC 9457), and as a small HTML page for
 * a person.
 */
#ifndef IDEM_HTTP_PROBLEM_H
#define IDEM_HTTP_PROBLEM_H

#include "http/field.h"

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

/* What each kind is unless a problem says otherwise. Its type is "urn:idem:" and the word. */
struct idem_http_problem_row {
    const char *word;
    int status;
    const char *title;
    bool retryable; /* the same request again may be answered otherwise */
};
extern const struct idem_http_problem_row idem_http_problem_rows[IDEM_HTTP_PROBLEMS];

/* Zero is "not said", and its member is left out, but for status and retryable, which are the
   kind's then. Texts are any bytes: what is not UTF-8 becomes U+FFFD. */
struct idem_http_problem {
    enum idem_http_problem_kind kind;
    int status;
    enum { IDEM_HTTP_BY_KIND, IDEM_HTTP_RETRY, IDEM_HTTP_NO_RETRY } retryable;
    struct idem_http_text detail;   /* the policy's message, or what is wrong with the key */
    struct idem_http_text key_hash; /* hexadecimal digits */
    int first_status;               /* duplicate */
    int last_status;                /* failed */
    struct idem_http_text reason;   /* failed */
    int64_t retry_after;            /* seconds; HTML only, JSON has the header */
};

int idem_http_problem_status(const struct idem_http_problem *problem);
bool idem_http_problem_retryable(const struct idem_http_problem *problem);

/*
 * Like snprintf(): at most `size` bytes are written, a NUL behind them if there
 * is room for one and for all of them; the length of the whole is returned. Call
 * with (NULL, 0) for it.
 */
size_t idem_http_problem_json(const struct idem_http_problem *problem, char *buf, size_t size);
size_t idem_http_problem_html(const struct idem_http_problem *problem, char *buf, size_t size);

#define IDEM_HTTP_PROBLEM_JSON "application/problem+json"
#define IDEM_HTTP_PROBLEM_HTML "text/html; charset=utf-8"

#endif
