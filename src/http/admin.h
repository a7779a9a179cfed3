/*
 * What operators ask of the gateway (idem_admin), as far as it needs no server: the request, read
 * from JSON; the token by which it is known to come from the gateway's own page; the record as they
 * see it; and the line that is left of each request in the log.
 */
#ifndef IDEM_HTTP_ADMIN_H
#define IDEM_HTTP_ADMIN_H

#include <stdio.h>

#include "core/arena.h"
#include "http/field.h"
#include "store/store.h"

#define IDEM_ADMIN_BODY_MAX 4096

enum idem_admin_action { IDEM_ADMIN_INSPECT, IDEM_ADMIN_SETTLE, IDEM_ADMIN_FORGET };
const char *idem_admin_action_name(enum idem_admin_action action);

struct idem_admin_request {
    enum idem_admin_action action;
    struct idem_record_key key;
    struct idem_http_text store; /* by its name on the board */
    struct idem_settle_in settle;
    bool force;
};

/* Reads it; what it points to is in the text or the arena. 0, or IDEM_E_INVALID with words for the
   operator, or IDEM_E_NOMEM. */
int idem_admin_read(const char *text, size_t len, struct idem_arena *arena,
                    struct idem_admin_request *ret, struct idem_error *err);

/* The operation that does it; the strings stay the request's. */
void idem_admin_op(const struct idem_admin_request *request, struct idem_op *op);

/*
 * A token is good for one operator at one address, for an hour or two. Who can read it can read the
 * page: another site's script cannot.
 */
#define IDEM_ADMIN_SECRET 32
#define IDEM_ADMIN_TOKEN (2 * 32)
struct idem_admin_caller {
    struct idem_http_text who, address;
};
/* 0 or IDEM_E_NOMEM. */
int idem_admin_token_make(const unsigned char secret[IDEM_ADMIN_SECRET],
                          const struct idem_admin_caller *caller, int64_t now_s,
                          char out[IDEM_ADMIN_TOKEN + 1]);
bool idem_admin_token_good(const unsigned char secret[IDEM_ADMIN_SECRET],
                           const struct idem_admin_caller *caller, int64_t now_s,
                           struct idem_http_text token);

/* Whether an Origin is that of the Host that was asked. */
bool idem_admin_same_origin(struct idem_http_text origin, struct idem_http_text host);

/* A host (without its port, in small letters) that no name leads to: an address, or localhost. */
bool idem_admin_host_is_plain(struct idem_http_text host);
/* Whether it is what server_name means: a name, .name, *.name or name.* */
bool idem_admin_host_matches(struct idem_http_text host, struct idem_http_text name);

/* A record as it was found, or why it was not: IDEM_E_ABSENT, or another code. */
struct idem_admin_found {
    int rc;
    bool live;
    struct idem_entry entry;
};
#define IDEM_ADMIN_NOT_ASKED 1

/* One answer as JSON, in one line. */
void idem_admin_answer(const struct idem_admin_found *before, const struct idem_admin_found *after,
                       FILE *out);
/* A refusal (RFC 9457), in one line. */
void idem_admin_problem(int status, const char *title, const char *detail, FILE *out);

/* The audit (core/audit.h) of a request, without a line feed. What others have chosen is cut: it
   all fits. */
struct idem_admin_audit {
    int64_t time_ms;
    const struct idem_admin_caller *caller;
    const struct idem_admin_request *request;
    int code; /* what came of it */
    const struct idem_admin_found *before, *after;
    bool begun; /* it is still to be done, and `after` not known */
};
#define IDEM_ADMIN_LINE 1700
void idem_admin_line(const struct idem_admin_audit *audit, char out[IDEM_ADMIN_LINE]);

#endif
