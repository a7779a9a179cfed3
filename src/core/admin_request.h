/*
 * Operators' requests to the gateway (idem_admin), without the server's part: the request, parsed
 * from JSON; the token that proves a request comes from the gateway's own page; the record as
 * operators see it; and the line that each request leaves in the log.
 */
#ifndef IDEM_CORE_ADMIN_REQUEST_H
#define IDEM_CORE_ADMIN_REQUEST_H

#include <stdio.h>

#include "base/arena.h"
#include "http/http_field.h"
#include "store/store.h"

#define IDEM_ADMIN_BODY_MAX 4096

enum idem_admin_action { IDEM_ADMIN_INSPECT, IDEM_ADMIN_SETTLE, IDEM_ADMIN_FORGET };
const char *idem_admin_action_name(enum idem_admin_action action);

struct idem_admin_request {
    enum idem_admin_action action;
    struct idem_record_key key;
    struct idem_http_text store; /* the store's name on the board */
    struct idem_settle_in settle;
    bool force;
};

/* Parses a request; it points into the text or the arena. Returns 0, IDEM_E_INVALID with words
   for the operator, or IDEM_E_NOMEM. */
int idem_admin_request_read(const char *text, size_t len, struct idem_arena *arena,
                            struct idem_admin_request *ret, struct idem_error *err);

/* Fills the store operation for a request; the strings stay the request's. */
void idem_admin_request_op(const struct idem_admin_request *request, struct idem_op *op);

/* A token is valid for one operator at one address, for one to two hours. Only a client that can
   read the page can read its token: another site's script cannot. */
#define IDEM_ADMIN_SECRET 32
#define IDEM_ADMIN_TOKEN (2 * 32)
struct idem_admin_caller {
    struct idem_http_text who, address;
};
/* Returns 0 or IDEM_E_NOMEM. */
int idem_admin_token_make(const unsigned char secret[IDEM_ADMIN_SECRET],
                          const struct idem_admin_caller *caller, int64_t now_s,
                          char out[IDEM_ADMIN_TOKEN + 1]);
bool idem_admin_token_good(const unsigned char secret[IDEM_ADMIN_SECRET],
                           const struct idem_admin_caller *caller, int64_t now_s,
                           struct idem_http_text token);

/* True if an Origin names the same server as the request's Host. */
bool idem_admin_same_origin(struct idem_http_text origin, struct idem_http_text host);

/* A record that was looked up, or the reason why there is none: IDEM_E_ABSENT, or another code. */
struct idem_admin_found {
    int rc;
    bool live;
    struct idem_entry entry;
};
#define IDEM_ADMIN_NOT_ASKED 1

/* Writes the response as one line of JSON. */
void idem_admin_answer(const struct idem_admin_found *before, const struct idem_admin_found *after,
                       FILE *out);
/* Writes a refusal (RFC 9457) as one line of JSON. */
void idem_admin_problem(int status, const char *title, const char *detail, FILE *out);

/* The audit line (core/audit.h) of a request, without a line feed. Texts that others choose are
   cut, so that the whole line fits. */
struct idem_admin_audit {
    int64_t time_ms;
    const struct idem_admin_caller *caller;
    const struct idem_admin_request *request;
    int code; /* the result */
    const struct idem_admin_found *before, *after;
    bool begun; /* written before the change: `after` is not known yet */
};
#define IDEM_ADMIN_LINE 1700
void idem_admin_line(const struct idem_admin_audit *audit, char out[IDEM_ADMIN_LINE]);

#endif
