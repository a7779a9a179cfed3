
/*
 * The HTTP front door, as an nginx module. These files have the prefix
 * ngx_http_idem_, which comments leave out.
 *
 *     module.c            the table of directives, workers
 *     conf.c              merges configuration levels
 *     directive.c         parses the directives; directive_key.c: idem_key;
 *                         directive_sign.c: idem_sign
 *     check.c             checks the whole configuration, for nginx -t
 *     store.c             stores on nginx's loop, one handle per worker
 *     ctx.c, state.c      the context of a request, and its states
 *     handler.c           leads a request: body, key, claim, verdict
 *     sign.c              checks that a request is signed, current and new
 *     key.c               scope and key of a request
 *     fingerprint.c       hashes requests and their bodies
 *     claim.c             claims, which may outlive their requests
 *     decision.c          the decision about a request
 *     upstream.c          headers for the backend, and the outcome of a run
 *     capture.c           holds the response until its outcome is stored
 *     reply.c             replays and refusals
 *     gunzip.c            decodes replays for clients that do not accept gzip
 *     log.c               the operator's log line of a refusal
 *     token.c             the location that issues tokens
 *     js.c                the location that serves the browser's scripts
 *     metric.c            counters, in memory that workers share
 *     status.c            the location that shows them
 *     admin.c             the location where operators may change records
 *     admin_action.c      executes and audits their requests
 *     location.c          shared by the locations above
 *     probe.c             asks the backend for the outcome of an uncertain run
 *     probe_tx.c          asks the database of backend and store instead
 *     probe_sweep.c       probes in the background, without a client's retry
 *     variable.c          $idem_*, and idem_set
 *     fields.c            header fields
 *     strip.c             removes reserved fields and ambiguous spellings
 *
 * ngx_http_idem_state.h draws the states of a request. Its context has parts: each
 * is read everywhere, and written only by the file that is named with it, which
 * tools/house --check verifies.
 */

#ifndef IDEM_NGINX_NGX_HTTP_IDEM_H
#define IDEM_NGINX_NGX_HTTP_IDEM_H


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "core/claim.h"
#include "core/fingerprint.h"
#include "expr/expr.h"
#include "core/admin_request.h"
#include "http/http_answer.h"
#include "http/http_field.h"
#include "http/http_form.h"
#include "http/http_inflate.h"
#include "http/http_multipart.h"
#include "http/http_problem.h"
#include "metric/metric_meter.h"
#include "metric/metric_report.h"
#include "sign/sign.h"
#include "nginx/ngx_http_idem_state.h"


/* r->buffered has four bits; image_filter uses this one too */
#define NGX_HTTP_IDEM_BUFFERED     0x08

#define NGX_HTTP_IDEM_NEVER        "the backend says that it never happened"
#define NGX_HTTP_IDEM_NO_ROW       "no transaction of the backend has committed it so far"

/* the outcomes of a run: the values of Idem-Outcome, and RETRY for on_failure */
#define NGX_HTTP_IDEM_DONE         IDEM_HTTP_DONE
#define NGX_HTTP_IDEM_RELEASE      IDEM_HTTP_RELEASE
#define NGX_HTTP_IDEM_KEEP         IDEM_HTTP_KEEP
#define NGX_HTTP_IDEM_UNKNOWN      IDEM_HTTP_UNKNOWN
#define NGX_HTTP_IDEM_RETRY        100

#define NGX_HTTP_IDEM_KEY_HEADER   1
#define NGX_HTTP_IDEM_KEY_PARAM    2
#define NGX_HTTP_IDEM_KEY_PARAMS   3
#define NGX_HTTP_IDEM_KEY_SERIAL   4
#define NGX_HTTP_IDEM_KEY_VALUE    5
#define NGX_HTTP_IDEM_KEY_TOKEN    6

#define NGX_HTTP_IDEM_FINGERPRINT_METHOD 0x01
#define NGX_HTTP_IDEM_FINGERPRINT_PATH   0x02
#define NGX_HTTP_IDEM_FINGERPRINT_QUERY  0x04
#define NGX_HTTP_IDEM_FINGERPRINT_BODY   0x08
#define NGX_HTTP_IDEM_FINGERPRINT_ALL    0x0f
#define NGX_HTTP_IDEM_FINGERPRINT_ARGS   0x0d      /* for idem_key params: all but the path */
#define NGX_HTTP_IDEM_FINGERPRINT_NONE   0x10
#define NGX_HTTP_IDEM_FINGERPRINT_EXPR   0x20


/* one per store URL of the configuration, with a handle in every worker */

typedef struct {
    ngx_str_t                  url;         /* NUL-terminated */
    ngx_log_t                 *log;
    struct idem               *h;           /* NULL: not open */
    ngx_queue_t                fds;         /* descriptors that the library watches */
    ngx_event_t                timer;       /* the library's timer */
    ngx_event_t                again;       /* tries to open the store again */
    struct idem_error          error;
    struct board_store        *board;       /* NULL: nothing is counted */
    struct board_meter         meter;
    struct survey              survey;      /* in the first worker */
    unsigned                   ringing:1;   /* inside the timer's own handler */
} ngx_http_idem_store_t;


typedef struct {
    ngx_array_t                stores;      /* ngx_http_idem_store_t * */
    ngx_array_t                guarded;     /* ngx_http_idem_location_t */
    ngx_array_t                signers;     /* ngx_http_idem_signer_t */
    int64_t                    longest;     /* ms: the longest window of signers; 0: none */
    ngx_array_t                routes;      /* ngx_http_idem_location_t: those that are counted */
    ngx_shm_zone_t            *zone;        /* of the board; NULL: there is no idem_status */
    struct board              *board;
    struct board_process      *process;     /* this worker's slot on the board */
} ngx_http_idem_main_conf_t;


typedef struct {
    ngx_uint_t                 kind;
    unsigned                   optional:1;
    ngx_str_t                  name;        /* HEADER, PARAM, SERIAL, TOKEN: of the header */
    ngx_str_t                  param;       /* PARAM; TOKEN: empty if no parameter is read */
    ngx_str_t                  credential;  /* SERIAL */
    ngx_http_complex_value_t  *value;       /* VALUE */
} ngx_http_idem_key_t;


/*
 * Settings whose default depends on the preset, the key or the mode, as set at
 * this level or above. A nested level inherits these, and makes its own
 * defaults.
 */

typedef struct {
    ngx_http_idem_key_t       *key;
    ngx_uint_t                 fingerprint;
    struct idem_expr          *fingerprint_expr;
    ngx_array_t               *release;
} ngx_http_idem_heritage_t;


typedef struct {
    ngx_array_t                allow;       /* ngx_cidr_t */
    unsigned                   all:1;       /* every client that passes the access phase */
    ngx_http_complex_value_t  *who;
} ngx_http_idem_admin_t;


/* the names by which clients may request a page of ours */

typedef struct {
    ngx_http_server_name_t    *names;       /* of the server */
    ngx_uint_t                 n;
    unsigned                   any:1;
} ngx_http_idem_hosts_t;


typedef struct ngx_http_idem_loc_conf_s  ngx_http_idem_loc_conf_t;

struct ngx_http_idem_loc_conf_s {
    ngx_http_idem_loc_conf_t  *parent;
    struct idem_layer          layer;       /* settings of this level */
    struct idem_guard         *guard;       /* of this level and those above; NULL: off */
    const struct idem_policy  *policy;      /* of the guard */

    ngx_flag_t                 on;
    unsigned                   issues:1;    /* tokens; not a guard then */
    ngx_http_idem_store_t     *store;
    struct idem_signer        *sign;        /* NULL: requests need no signature */
    ngx_http_complex_value_t  *scope;       /* NULL: no scope */
    ngx_http_idem_key_t       *key;
    ngx_uint_t                 fingerprint;
    struct idem_expr          *fingerprint_expr;
    ngx_array_t               *methods;     /* of ngx_str_t: guarded methods */
    ngx_http_complex_value_t  *probe;       /* NULL: no probe */
    ngx_str_t                 *probe_type;  /* of results in rows; NULL: the probe is a URI */
    ngx_http_complex_value_t  *label;       /* NULL: none */
    ngx_http_complex_value_t  *bind;        /* of tokens; NULL: none */
    ngx_http_complex_value_t  *enforce;     /* NULL: on; without variables: off */
    ngx_array_t               *release;     /* of ngx_uint_t: statuses */
    ngx_array_t               *headers;     /* of ngx_str_t: further fields to replay */
    ngx_array_t               *deciders;    /* headers of one spelling, see strip.c; NULL: none */
    ngx_http_idem_heritage_t   heritage;
    struct board_route        *route;       /* its counters; NULL: nothing is counted */
    unsigned                   shows:1;     /* the counters; not a guard then */
    unsigned                   decider_odd:1;   /* a name of deciders has an underscore */
    ngx_http_idem_admin_t     *admin;       /* may change records; NULL: no one */
    ngx_http_idem_hosts_t     *hosts;       /* of idem_status and idem_admin */

    u_char                    *file;        /* where the guard is set, for messages */
    ngx_uint_t                 line;
    u_char                    *sign_file;
    ngx_uint_t                 sign_line;
};


/* an idem_sign, and its place */

typedef struct {
    struct idem_signer        *signer;
    void                      *server;      /* its server{}, or the http{} around it */
    u_char                    *file;
    ngx_uint_t                 line;
} ngx_http_idem_signer_t;


/* a location with a guard to check once the whole configuration is read, or with counters */

typedef struct {
    ngx_http_idem_loc_conf_t  *conf;
    ngx_http_core_srv_conf_t  *server;
    ngx_http_core_loc_conf_t  *clcf;
    void                     **loc_conf;
} ngx_http_idem_location_t;


typedef struct ngx_http_idem_probe_tx_s  ngx_http_idem_probe_tx_t;
typedef struct ngx_http_idem_probe_sweep_s  ngx_http_idem_probe_sweep_t;
typedef struct ngx_http_idem_gunzip_s  ngx_http_idem_gunzip_t;
typedef struct ngx_http_idem_ctx_s  ngx_http_idem_ctx_t;


/* A claim. Its request may end before the outcome is stored. */

typedef enum {
    NGX_HTTP_IDEM_HANDED_NOTHING = 0,
    NGX_HTTP_IDEM_HANDED_OUTCOME,           /* and no result */
    NGX_HTTP_IDEM_HANDED_RESULT
} ngx_http_idem_handed_e;


typedef struct {
    struct idem_claim         *core;        /* the claim of core/claim.h */
    ngx_http_idem_ctx_t       *ctx;         /* NULL: the request has ended */
    ngx_event_t                hold;        /* limits how long a response waits for the store */
    ngx_event_t                cancel;      /* fires after pending input was read */
    enum idem_end              lost;        /* why the lease was lost; nothing may begin then */
    ngx_http_idem_handed_e     handed;      /* to the store */
} ngx_http_idem_claim_t;


/* The body of the request: fingerprint.c. */

typedef enum {
    NGX_HTTP_IDEM_BODY_BYTES = 0,
    NGX_HTTP_IDEM_BODY_FORM,
    NGX_HTTP_IDEM_BODY_JSON,                /* by its Content-Type */
    NGX_HTTP_IDEM_BODY_UNREADABLE           /* JSON without a canonical form */
} ngx_http_idem_body_type_e;


typedef enum {
    NGX_HTTP_IDEM_HASH_NONE = 0,
    NGX_HTTP_IDEM_HASH_OPEN,                /* the body is arriving */
    NGX_HTTP_IDEM_HASH_DONE
} ngx_http_idem_hash_e;


typedef struct {
    ngx_http_idem_body_type_e  type;
    ngx_http_idem_hash_e       hash_state;
    struct idem_fingerprint_hash  fingerprint;  /* of a body other than JSON, as it arrives */
    struct idem_http_delimiter  delimiter;  /* of a form with files; otherwise its len is 0 */
    struct idem_http_split     split;       /* of such a form, while it arrives */

    struct {
        ngx_http_idem_hash_e   state;
        struct idem_sha        sha;
        u_char                 bytes[IDEM_HASH_LEN];
    } sha256;                               /* of JSON that may be too long; for a signature */

    struct {
        ngx_http_idem_hash_e   state;
        struct idem_sha512     sha;
        u_char                 bytes[IDEM_SHA512_LEN];
    } sha512;                               /* if Content-Digest contains it */

    off_t                      size;
    ngx_str_t                  text;        /* whole, once it is needed */
    unsigned                   read:1;      /* into text */
} ngx_http_idem_body_t;


/* The signature of the request: sign.c. */

typedef struct {
    struct idem_nonce         *nonce;       /* pending in the store */
    ngx_str_t                  key_id;
    unsigned                   proven:1;
} ngx_http_idem_signature_t;


/* The caller and the operation: key.c. */

typedef struct {
    ngx_str_t                  scope;
    ngx_str_t                  text;
    struct idem_fingerprint    fingerprint;
    char                      *label;       /* NULL: none */
    unsigned                   evaluating:1;    /* scope and key */
} ngx_http_idem_identity_t;


/* The request as expressions read it: variable.c. */

typedef struct {
    struct idem_arena          arena;
    struct idem_json          *json;        /* NULL: not made yet */
    unsigned                   owned:1;     /* the pool frees the arena, after the log phase */
} ngx_http_idem_vars_t;


/* The decision if the request runs, and its reasons: decision.c. */

typedef enum {
    NGX_HTTP_IDEM_UNDECIDED = 0,
    NGX_HTTP_IDEM_REFUSED,                  /* before the store was asked: see problem */
    NGX_HTTP_IDEM_NO_STORE,                 /* the store is not open, or has failed */
    NGX_HTTP_IDEM_VERDICT,
    NGX_HTTP_IDEM_UNGUARDED                 /* it runs unguarded, as on_store_error has it */
} ngx_http_idem_decision_e;


typedef struct {
    ngx_http_idem_decision_e   kind;
    enum idem_verdict          verdict;
    const char                *word;        /* the decision, for logs; NULL: none */
    u_char                     hash[IDEM_HEX_LEN + 1];
    uint32_t                   attempt;
    int32_t                    status;
    int64_t                    retry_ms;
    ngx_str_t                  result;      /* data is NULL: none */
    struct idem_shared_bytes  *shared;      /* has the result; NULL: other memory has it */
    ngx_str_t                  reason;
    enum idem_http_problem_kind  problem;
    const char                *detail;      /* of a refusal, beside the policy's message */
    ngx_msec_t                 asked;       /* time of the last store operation */
    ngx_msec_t                 waited;      /* total time for the store */
} ngx_http_idem_decision_t;


/* The run at the backend, and its outcome: upstream.c. */

typedef enum {
    NGX_HTTP_IDEM_SEND_UNPREPARED = 0,
    NGX_HTTP_IDEM_SEND_PREPARED,            /* the headers for the backend are set */
    NGX_HTTP_IDEM_SEND_BEGUN                /* bytes went to the backend, in any try */
} ngx_http_idem_send_e;


typedef enum {
    NGX_HTTP_IDEM_ACCEL_NONE = 0,
    NGX_HTTP_IDEM_ACCEL_FOLLOWED,           /* X-Accel-Redirect came instead of a response */
    NGX_HTTP_IDEM_ACCEL_STATED              /* and the outcome beside it */
} ngx_http_idem_accel_e;


typedef struct {
    ngx_http_handler_pt        content;     /* the location's own */
    u_char                    *downstream;  /* IDEM_HEX_LEN digits of a key, once they are needed */
    ngx_http_idem_send_e       send;
    ngx_uint_t                 outcome;
    ngx_http_idem_accel_e      accel;
    enum idem_end              cancelled;   /* why we ended the run; 0: we did not */
    ngx_event_t                run_max;     /* of an unguarded run */
    int64_t                    ttl;         /* set by the backend; 0: not set */
} ngx_http_idem_backend_t;


/* The response of the run: capture.c. */

typedef enum {
    NGX_HTTP_IDEM_KEPT = 0,                 /* for duplicates, where the mode keeps results */
    NGX_HTTP_IDEM_NOT_KEPT,                 /* done, but duplicates do not get the response */
    NGX_HTTP_IDEM_LOST                      /* superseded: nothing was stored */
} ngx_http_idem_kept_e;


typedef struct {
    ngx_http_idem_arrived_e    arrived;     /* of the response, or of a probe's */
    ngx_http_idem_kept_e       kept;
    struct idem_shared_bytes  *shared;      /* has room for the head, and the body behind it */
    size_t                     head;        /* bytes of that room */
    ngx_str_t                  body;        /* so far */
    size_t                     room;        /* bytes that body has memory for */
    struct idem_http_measure   measure;     /* of the body, if it is in gzip */
    ngx_chain_t               *pending;     /* buffers that arrive while the response is held */
    ngx_chain_t              **pending_last;
    unsigned                   live:1;      /* it comes from an upstream */
    unsigned                   discard:1;   /* do not store the body */
    unsigned                   measured:1;
} ngx_http_idem_response_t;


/* What a probe has found: probe.c. */

typedef enum {
    NGX_HTTP_IDEM_UNASKED = 0,
    NGX_HTTP_IDEM_DOUBTFUL,                 /* no response, or an unclear one */
    NGX_HTTP_IDEM_HAPPENED,
    NGX_HTTP_IDEM_NOT                       /* it did not happen, and may run */
} ngx_http_idem_found_e;


typedef struct {
    ngx_http_idem_found_e      found;
    ngx_http_request_t        *request;     /* the subrequest */
    ngx_uint_t                 status;
    const char                *reason;      /* why the record stays uncertain */
} ngx_http_idem_probe_t;


typedef enum {
    NGX_HTTP_IDEM_ENFORCED = 0,
    NGX_HTTP_IDEM_SHADOW,                   /* counted and stored; refuses and holds nothing:
                                               shadow mode, and a run that is upgraded */
    NGX_HTTP_IDEM_SIGNED_ONLY               /* signed, but not guarded */
} ngx_http_idem_guard_e;


struct ngx_http_idem_ctx_s {
    ngx_http_request_t        *request;
    ngx_http_idem_loc_conf_t  *conf;
    ngx_http_idem_state_e      state;       /* set by ngx_http_idem_ctx_set_state() */
    ngx_http_idem_guard_e      guard;       /* set by ngx_http_idem_ctx_set_guard() */
    ngx_http_idem_claim_t     *claim;       /* claim.c: of a run or a probe; NULL: none */
    ngx_http_idem_gunzip_t    *gunzip;      /* decodes a replay; NULL: none, or finished */
    ngx_http_idem_probe_tx_t  *probe_tx;    /* looks a row up; NULL: none, or finished */
    ngx_http_idem_probe_sweep_t  *sweep;    /* NULL: a client's request */
    ngx_socket_t               sweep_peer;  /* the other end of a sweep's connection */

    ngx_http_idem_body_t       body;
    ngx_http_idem_signature_t  sign;
    ngx_http_idem_identity_t   key;
    ngx_http_idem_vars_t       vars;
    ngx_http_idem_decision_t   decision;
    ngx_http_idem_backend_t    backend;
    ngx_http_idem_response_t   response;
    ngx_http_idem_probe_t      probe;
};


extern ngx_module_t  ngx_http_idem_module;

extern ngx_http_output_header_filter_pt  ngx_http_idem_next_header_filter;
extern ngx_http_output_body_filter_pt    ngx_http_idem_next_body_filter;
extern ngx_http_request_body_filter_pt   ngx_http_idem_next_request_body_filter;


/* conf.c */
void *ngx_http_idem_conf_create_main(ngx_conf_t *cf);
void *ngx_http_idem_conf_create_loc(ngx_conf_t *cf);
char *ngx_http_idem_conf_merge_loc(ngx_conf_t *cf, void *parent, void *child);
ngx_uint_t ngx_http_idem_conf_is_guarded(ngx_http_request_t *r, ngx_http_idem_loc_conf_t *conf);

/* directive.c */
char *ngx_http_idem_directive_mode(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
char *ngx_http_idem_directive_option(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
char *ngx_http_idem_directive_store(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
char *ngx_http_idem_directive_scope(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
char *ngx_http_idem_directive_key(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
ngx_http_complex_value_t *ngx_http_idem_directive_complex_value(ngx_conf_t *cf, ngx_str_t *value);
char *ngx_http_idem_directive_fingerprint(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
char *ngx_http_idem_directive_methods(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
char *ngx_http_idem_directive_release_status(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
char *ngx_http_idem_directive_replay_headers(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
char *ngx_http_idem_directive_probe(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
char *ngx_http_idem_directive_label(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
char *ngx_http_idem_directive_enforce(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
char *ngx_http_idem_directive_token(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
char *ngx_http_idem_directive_js(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
char *ngx_http_idem_directive_status(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
char *ngx_http_idem_directive_token_bind(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
ngx_int_t ngx_http_idem_directive_parameter(ngx_str_t *word, const char *name, ngx_str_t *ret);

/* directive_sign.c */
char *ngx_http_idem_directive_sign(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);

/* fields.c */
typedef struct {
    ngx_list_part_t           *part;
    ngx_uint_t                 i;
} ngx_http_idem_fields_t;

void ngx_http_idem_fields_begin(ngx_http_idem_fields_t *fields, ngx_list_t *list);
ngx_table_elt_t *ngx_http_idem_fields_next(ngx_http_idem_fields_t *fields);  /* NULL: no more */
ngx_uint_t ngx_http_idem_fields_match(ngx_table_elt_t *header, ngx_str_t *name);
ngx_table_elt_t *ngx_http_idem_fields_push(ngx_list_t *list, ngx_str_t *name, ngx_str_t *value);
ngx_table_elt_t *ngx_http_idem_fields_find(ngx_list_t *list, ngx_str_t *name, ngx_uint_t *ret_n);
struct idem_http_header *ngx_http_idem_fields_collect(ngx_http_request_t *r, size_t *n);
void ngx_http_idem_fields_accept(ngx_http_request_t *r, struct idem_http_accept *accept);

static ngx_inline struct idem_http_text
ngx_http_idem_text(ngx_str_t *s)
{
    struct idem_http_text  text = { (char *) s->data, s->len };

    return text;
}

/* Stops an event, whether it waits for its time or for its turn. */

static ngx_inline void
ngx_http_idem_stop_event(ngx_event_t *ev)
{
    if (ev->timer_set) {
        ngx_del_timer(ev);
    }

    if (ev->posted) {
        ngx_delete_posted_event(ev);
    }
}

/* strip.c */
ngx_int_t ngx_http_idem_strip_find_deciders(ngx_conf_t *cf, ngx_http_idem_loc_conf_t *conf);
ngx_int_t ngx_http_idem_strip(ngx_http_request_t *r, ngx_http_idem_loc_conf_t *conf);
ngx_int_t ngx_http_idem_strip_header(ngx_http_request_t *r, ngx_str_t *name);
ngx_uint_t ngx_http_idem_strip_is_reserved(ngx_table_elt_t *header);

/* store.c */
ngx_http_idem_store_t *ngx_http_idem_store_add(ngx_conf_t *cf, ngx_str_t *url);
ngx_int_t ngx_http_idem_store_open(ngx_http_idem_store_t *store, ngx_cycle_t *cycle);
void ngx_http_idem_store_close(ngx_http_idem_store_t *store);

/* check.c */
ngx_int_t ngx_http_idem_check_report(ngx_conf_t *cf, ngx_uint_t level,
    ngx_http_idem_loc_conf_t *conf, const char *fmt, ...);
ngx_int_t ngx_http_idem_check(ngx_conf_t *cf, ngx_http_idem_location_t *guarded);
void ngx_http_idem_check_signers(ngx_conf_t *cf, ngx_http_idem_main_conf_t *imcf);
ngx_int_t ngx_http_idem_check_stores(ngx_cycle_t *cycle);
ngx_uint_t ngx_http_idem_check_sends_twice(ngx_http_request_t *r);

/* ctx.c */
ngx_http_idem_ctx_t *ngx_http_idem_ctx_find(ngx_http_request_t *r);
ngx_http_idem_ctx_t *ngx_http_idem_ctx_new(ngx_http_request_t *r, ngx_http_idem_loc_conf_t *conf);
void ngx_http_idem_ctx_set_state(ngx_http_idem_ctx_t *ctx, ngx_http_idem_state_e state);
void ngx_http_idem_ctx_set_guard(ngx_http_idem_ctx_t *ctx, ngx_http_idem_guard_e guard);
ngx_int_t ngx_http_idem_ctx_own_bytes(ngx_http_request_t *r, ngx_buf_t *b);

/* handler.c */
ngx_int_t ngx_http_idem_handler(ngx_http_request_t *r);
void ngx_http_idem_handler_resume(ngx_http_request_t *r);
void ngx_http_idem_handler_signed(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx, ngx_int_t rc);

/* sign.c */
ngx_int_t ngx_http_idem_sign(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx);
void ngx_http_idem_sign_drop(ngx_http_idem_ctx_t *ctx);
ngx_int_t ngx_http_idem_sign_check_redirect(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx);

/* key.c */
ngx_int_t ngx_http_idem_key_identify(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx);
ngx_int_t ngx_http_idem_key_read_scope(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx);
ngx_int_t ngx_http_idem_key_read_label(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx);
ngx_int_t ngx_http_idem_key_missing(ngx_http_idem_ctx_t *ctx, const char *detail);
ngx_int_t ngx_http_idem_key_malformed(ngx_http_idem_ctx_t *ctx, const char *detail);

/* fingerprint.c */
void ngx_http_idem_fingerprint_start(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx);
ngx_int_t ngx_http_idem_fingerprint_body_filter(ngx_http_request_t *r, ngx_chain_t *in);
void ngx_http_idem_fingerprint_end(ngx_http_idem_ctx_t *ctx);
void ngx_http_idem_fingerprint_drop(ngx_http_idem_ctx_t *ctx);
ngx_int_t ngx_http_idem_fingerprint_parts(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx,
    ngx_uint_t parts, struct idem_fingerprint *ret);
ngx_int_t ngx_http_idem_fingerprint_expr(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx,
    struct idem_fingerprint *ret);
void ngx_http_idem_fingerprint_target(ngx_http_request_t *r, ngx_str_t *path, ngx_str_t *query);
typedef void (*ngx_http_idem_fingerprint_piece_pt)(void *data, const void *bytes, size_t len);
ngx_int_t ngx_http_idem_fingerprint_read_pieces(ngx_http_request_t *r,
    ngx_http_idem_fingerprint_piece_pt piece, void *data);
ngx_int_t ngx_http_idem_fingerprint_read_body(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx);
ngx_int_t ngx_http_idem_fingerprint_body_hashes(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx);

/* location.c; check_method returns NGX_OK, or a response */
ngx_int_t ngx_http_idem_location_copy_names(ngx_conf_t *cf, ngx_http_idem_hosts_t *hosts);
ngx_uint_t ngx_http_idem_location_allows_host(ngx_http_request_t *r, ngx_http_idem_hosts_t *hosts);
ngx_int_t ngx_http_idem_location_check_method(ngx_http_request_t *r, ngx_uint_t methods,
    ngx_str_t *names);
ngx_buf_t *ngx_http_idem_location_close_text(ngx_http_request_t *r, FILE *out, char **text,
    size_t *len);
ngx_int_t ngx_http_idem_location_serve(ngx_http_request_t *r, ngx_buf_t *b, ngx_str_t *type,
    ngx_str_t *cache);

/* js.c */
ngx_int_t ngx_http_idem_js_init(void);
ngx_int_t ngx_http_idem_js_handler(ngx_http_request_t *r);
ngx_int_t ngx_http_idem_js_sign_handler(ngx_http_request_t *r);

/* token.c */
ngx_int_t ngx_http_idem_token_handler(ngx_http_request_t *r);

/* metric.c */
ngx_int_t ngx_http_idem_metric_zone(ngx_conf_t *cf);
void ngx_http_idem_metric_route_name(ngx_http_core_srv_conf_t *server,
    ngx_http_core_loc_conf_t *clcf, u_char *buf, size_t size);
void ngx_http_idem_metric_start(ngx_cycle_t *cycle, ngx_http_idem_main_conf_t *imcf);
void ngx_http_idem_metric_stop(ngx_http_idem_main_conf_t *imcf);
void ngx_http_idem_metric_store_opened(ngx_http_idem_store_t *store);
void ngx_http_idem_metric_store_unavailable(ngx_http_idem_store_t *store);
ngx_int_t ngx_http_idem_metric_count_handler(ngx_http_request_t *r);
void ngx_http_idem_metric_count(ngx_http_idem_loc_conf_t *conf, enum board_count count);

/* status.c */
ngx_int_t ngx_http_idem_status_handler(ngx_http_request_t *r);
ngx_int_t ngx_http_idem_status_show(ngx_http_request_t *r, const char *token);

/* admin.c */
char *ngx_http_idem_admin(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
ngx_int_t ngx_http_idem_admin_handler(ngx_http_request_t *r);
ngx_int_t ngx_http_idem_admin_secret(ngx_http_idem_main_conf_t *imcf);
ngx_int_t ngx_http_idem_admin_check(ngx_http_request_t *r, struct idem_admin_caller *caller);
ngx_int_t ngx_http_idem_admin_refuse(ngx_http_request_t *r, ngx_uint_t status,
    const char *detail);
ngx_int_t ngx_http_idem_admin_send(ngx_http_request_t *r, ngx_str_t *type, FILE *out, char **text,
    size_t *len);

/* admin_action.c; returns NGX_DONE, or a response */
ngx_int_t ngx_http_idem_admin_action_start(ngx_http_request_t *r, struct idem_admin_caller *caller);
void ngx_http_idem_admin_action_stop_all(void);

/* claim.c */
void ngx_http_idem_claim_linger_begin(void);
void ngx_http_idem_claim_linger_end(void);
ngx_int_t ngx_http_idem_claim_named(ngx_http_idem_ctx_t *ctx, struct idem_record_key *key);
ngx_int_t ngx_http_idem_claim(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx, ngx_uint_t probe);
void ngx_http_idem_claim_finish(ngx_http_idem_ctx_t *ctx, ngx_uint_t outcome,
    ngx_uint_t status, u_char *result, size_t len);
void ngx_http_idem_claim_detach(ngx_http_idem_ctx_t *ctx);
void ngx_http_idem_claim_separate(ngx_http_idem_ctx_t *ctx);
ngx_uint_t ngx_http_idem_claim_is_lost(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx);

/* decision.c */
ngx_int_t ngx_http_idem_decision_refuse(ngx_http_idem_ctx_t *ctx,
    enum idem_http_problem_kind problem, const char *word, const char *detail);
void ngx_http_idem_decision_set_problem(ngx_http_idem_ctx_t *ctx,
    enum idem_http_problem_kind problem);
void ngx_http_idem_decision_set_word(ngx_http_idem_ctx_t *ctx, const char *word);
void ngx_http_idem_decision_set_kind(ngx_http_idem_ctx_t *ctx, ngx_http_idem_decision_e kind);
void ngx_http_idem_decision_set_hash(ngx_http_idem_ctx_t *ctx, struct idem_claim *claim);
void ngx_http_idem_decision_wait_begin(ngx_http_idem_ctx_t *ctx);
void ngx_http_idem_decision_wait_end(ngx_http_idem_ctx_t *ctx);
ngx_int_t ngx_http_idem_decision_no_store(ngx_http_idem_ctx_t *ctx, const char *reason);
void ngx_http_idem_decision_take(ngx_http_idem_ctx_t *ctx, struct idem_claim *claim,
    const struct idem_answer *answer);
void ngx_http_idem_decision_set_verdict(ngx_http_idem_ctx_t *ctx, enum idem_verdict verdict);
void ngx_http_idem_decision_set_done(ngx_http_idem_ctx_t *ctx, ngx_uint_t status,
    ngx_str_t *result);

/* upstream.c */
void ngx_http_idem_upstream_wrap_content(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx);
ngx_int_t ngx_http_idem_upstream_redirect(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx);
void ngx_http_idem_upstream_start_run_max(ngx_http_idem_ctx_t *ctx);
void ngx_http_idem_upstream_drop(ngx_http_idem_ctx_t *ctx);
ngx_int_t ngx_http_idem_upstream_request_headers(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx);
u_char *ngx_http_idem_upstream_downstream_key(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx);
ngx_uint_t ngx_http_idem_upstream_was_sent(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx);
ngx_uint_t ngx_http_idem_upstream_is_cut(ngx_http_upstream_t *u);
void ngx_http_idem_upstream_remove_fields(ngx_http_request_t *r);
void ngx_http_idem_upstream_judge_cut(ngx_http_idem_ctx_t *ctx);
void ngx_http_idem_upstream_judge(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx);
ngx_uint_t ngx_http_idem_upstream_may_cancel(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx);
void ngx_http_idem_upstream_cancel(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx,
    enum idem_end why);

/* capture.c */
ngx_int_t ngx_http_idem_capture_header_filter(ngx_http_request_t *r);
ngx_int_t ngx_http_idem_capture_body_filter(ngx_http_request_t *r, ngx_chain_t *in);
void ngx_http_idem_capture_drop(ngx_http_idem_ctx_t *ctx);
void ngx_http_idem_capture_cut(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx);
void ngx_http_idem_capture_resume(ngx_http_idem_ctx_t *ctx);
ngx_uint_t ngx_http_idem_capture_is_gzip(ngx_str_t *coding);
off_t ngx_http_idem_capture_limit(ngx_http_idem_ctx_t *ctx);
void ngx_http_idem_capture_set_arrived(ngx_http_idem_ctx_t *ctx, ngx_http_idem_arrived_e arrived);
void ngx_http_idem_capture_set_kept(ngx_http_idem_ctx_t *ctx, ngx_http_idem_kept_e kept);
void ngx_http_idem_capture_discard(ngx_http_idem_ctx_t *ctx);
void ngx_http_idem_capture_add(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx, u_char *bytes,
    size_t size);
void ngx_http_idem_capture_restart(ngx_http_idem_ctx_t *ctx);
ngx_int_t ngx_http_idem_capture_encode(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx,
    ngx_str_t *ret);
ngx_int_t ngx_http_idem_capture_encode_row(ngx_http_idem_ctx_t *ctx, ngx_uint_t status,
    ngx_str_t *ret);

/* reply.c */
ngx_int_t ngx_http_idem_reply_replay_handler(ngx_http_request_t *r);
ngx_int_t ngx_http_idem_reply_replay_head(ngx_http_request_t *r, size_t len);
ngx_int_t ngx_http_idem_reply_replay_as_is(ngx_http_request_t *r, struct idem_http_text *body);
ngx_int_t ngx_http_idem_reply_refuse_handler(ngx_http_request_t *r);
ngx_int_t ngx_http_idem_reply_add_header(ngx_http_request_t *r, const char *name, ngx_str_t *value);
ngx_int_t ngx_http_idem_reply_refusal(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx,
    ngx_uint_t status, ngx_chain_t **out);

/* gunzip.c */
ngx_int_t ngx_http_idem_gunzip(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx,
    struct idem_http_answer *answer);
void ngx_http_idem_gunzip_drop(ngx_http_idem_ctx_t *ctx);

/* log.c */
void ngx_http_idem_log_refusal(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx);
const char *ngx_http_idem_log_uri(ngx_http_request_t *r, char *buf);

/* probe.c */
ngx_int_t ngx_http_idem_probe(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx);
ngx_int_t ngx_http_idem_probe_finish(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx);
ngx_int_t ngx_http_idem_probe_start(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx);
ngx_uint_t ngx_http_idem_probe_outcome(ngx_http_idem_ctx_t *ctx, ngx_str_t *result);
ngx_int_t ngx_http_idem_probe_header(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx);
ngx_int_t ngx_http_idem_probe_body(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx,
    ngx_chain_t *in);

void ngx_http_idem_probe_set_found(ngx_http_idem_ctx_t *ctx, ngx_http_idem_found_e found,
    ngx_uint_t status, const char *reason);

/* probe_tx.c */
ngx_int_t ngx_http_idem_probe_tx_start(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx);
void ngx_http_idem_probe_tx_drop(ngx_http_idem_ctx_t *ctx);

/* probe_sweep.c */
ngx_int_t ngx_http_idem_probe_sweep_start(ngx_cycle_t *cycle, ngx_http_idem_main_conf_t *imcf);
void ngx_http_idem_probe_sweep_stop(void);
ngx_uint_t ngx_http_idem_probe_sweep_is_wanted(ngx_http_idem_loc_conf_t *conf);
ngx_uint_t ngx_http_idem_probe_sweep_is_possible(ngx_pool_t *pool,
    ngx_http_idem_loc_conf_t *conf);
void ngx_http_idem_probe_sweep_resume(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx);
void ngx_http_idem_probe_sweep_done(ngx_http_idem_ctx_t *ctx);

/* variable.c */
ngx_int_t ngx_http_idem_variable_add(ngx_conf_t *cf);
struct idem_json *ngx_http_idem_variable_request_json(ngx_http_request_t *r,
    ngx_http_idem_ctx_t *ctx, struct idem_error *err);
void ngx_http_idem_variable_reset(ngx_http_idem_ctx_t *ctx);
struct idem_expr *ngx_http_idem_variable_compile(ngx_conf_t *cf, ngx_str_t *text);
char *ngx_http_idem_variable_set(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
ngx_uint_t ngx_http_idem_variable_is_computed(ngx_conf_t *cf, ngx_str_t *value);
ngx_int_t ngx_http_idem_variable_next(ngx_pool_t *pool, ngx_str_t *value, size_t *at,
    ngx_str_t *name);
ngx_http_variable_t *ngx_http_idem_variable_find_set(ngx_conf_t *cf, ngx_str_t *name);


#endif /* IDEM_NGINX_NGX_HTTP_IDEM_H */
