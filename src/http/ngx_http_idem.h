
/*
 * The HTTP front door, as an nginx module.
 *
 *     module.c    the table of directives, workers
 *     conf.c      how levels merge
 *     directive.c what each directive takes; directive_key.c: idem_key;
 *                 directive_sign.c: idem_sign
 *     check.c     what is wrong with a configuration, told by nginx -t
 *     store.c     stores on nginx's loop, one handle per worker
 *     handler.c   a request's way: body, key, claim, verdict
 *     sign.c      whether a request is signed, now and once
 *     key.c       who asks for what: scope and key
 *     print.c     what of a request is hashed: fingerprints, and its body
 *     run.c       claims, which may outlive their requests
 *     upstream.c  what the backend gets, and what came of it
 *     capture.c   holds the answer until its end is stored
 *     keep.c      what is kept of it
 *     reply.c     replays and refusals
 *     unpack.c    replays for clients that do not take gzip
 *     log.c       what the operator reads of a refusal
 *     token.c     the location that issues tokens
 *     js.c        the location that serves the browser's half
 *     metric.c    what is counted, in memory that workers share
 *     status.c    the location that shows it
 *     admin.c     the one where operators may change records, and who they are
 *     act.c       what they ask for, done and written down
 *     serve.c     what those locations have in common
 *     probe.c     asks the backend what came of an uncertain run
 *     row.c       asks the database that backend and store share, instead
 *     round.c     the same in the background, for runs that nobody asks for again
 *     variable.c  $idem_*, and idem_set
 *     fields.c    header fields
 *     strip.c     which of them no backend may see, and what would be taken for them
 *
 * One request, from the left to the right:
 *
 *     START ─> READING ─> SIGNING ─> CLAIMING ─> ANSWERED ─> RUNNING ─> STORING ─> STORED ─> SENT
 *                                       │           │ ^
 *                                       │           v │ 2xx, 404, ...
 *                                       │         PROBING
 *                                       └─> PASSED (not ours), or an answer of our own
 *
 * What was heard of the backend's answer, meanwhile (capture.c):
 *
 *     SILENT ─> HEAD ─> WHOLE
 *       ^        │ └──> CUT         by the backend, or because we have cancelled it
 *       └────────┴── (or WHOLE)     a probe was told 404: what runs now is heard anew
 */

#ifndef _NGX_HTTP_IDEM_H_INCLUDED_
#define _NGX_HTTP_IDEM_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "core/claim.h"
#include "core/print.h"
#include "expr/expr.h"
#include "http/admin.h"
#include "http/answer.h"
#include "http/field.h"
#include "http/form.h"
#include "http/inflate.h"
#include "http/multipart.h"
#include "http/problem.h"
#include "metric/meter.h"
#include "metric/report.h"
#include "sign/sign.h"


/* of the four bits of r->buffered, image_filter shares this one */
#define NGX_HTTP_IDEM_BUFFERED     0x08

#define NGX_HTTP_IDEM_NEVER        "the backend says that it never happened"
#define NGX_HTTP_IDEM_NO_ROW       "no transaction of the backend has committed it so far"

/* what came of a run: the words of Idem-Outcome, and one that only on_failure says */
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

#define NGX_HTTP_IDEM_PRINT_METHOD 0x01
#define NGX_HTTP_IDEM_PRINT_PATH   0x02
#define NGX_HTTP_IDEM_PRINT_QUERY  0x04
#define NGX_HTTP_IDEM_PRINT_BODY   0x08
#define NGX_HTTP_IDEM_PRINT_ALL    0x0f
#define NGX_HTTP_IDEM_PRINT_ARGS   0x0d      /* for idem_key params: all but the path */
#define NGX_HTTP_IDEM_PRINT_NONE   0x10
#define NGX_HTTP_IDEM_PRINT_EXPR   0x20


/* one per URL in the configuration, with a handle in every worker */

typedef struct {
    ngx_str_t                  url;         /* NUL-terminated */
    ngx_log_t                 *log;
    struct idem               *h;           /* NULL: could not be opened */
    ngx_queue_t                fds;         /* watched for it */
    ngx_event_t                timer;       /* the one that the library sets */
    ngx_event_t                again;       /* until it can be opened */
    struct idem_error          error;
    struct board_store        *board;       /* NULL: nothing is counted */
    struct board_meter         meter;
    struct survey              survey;      /* in the first worker */
    unsigned                   ringing:1;   /* within the timer's own handler */
} ngx_http_idem_store_t;


typedef struct {
    ngx_array_t                stores;      /* ngx_http_idem_store_t * */
    ngx_array_t                guarded;     /* ngx_http_idem_guarded_t */
    ngx_array_t                routes;      /* ngx_http_idem_route_t */
    ngx_shm_zone_t            *zone;        /* of the board; NULL: there is no idem_status */
    struct board              *board;
    struct board_process      *process;     /* this worker's place on it */
} ngx_http_idem_main_conf_t;


typedef struct {
    ngx_uint_t                 kind;
    unsigned                   optional:1;
    ngx_str_t                  name;        /* HEADER, PARAM, SERIAL, TOKEN: of the header */
    ngx_str_t                  param;       /* PARAM; TOKEN: empty, where none may carry it */
    ngx_str_t                  credential;  /* SERIAL */
    ngx_http_complex_value_t   value;       /* VALUE */
} ngx_http_idem_key_t;


/* What has a default that depends on the preset, the key or the mode: as it was said, at this
   level or above. A nested level inherits this, and makes its own defaults. */

typedef struct {
    ngx_http_idem_key_t       *key;
    ngx_uint_t                 print;
    struct idem_expr          *print_expr;
    ngx_array_t               *release;
} ngx_http_idem_heritage_t;


typedef struct {
    ngx_array_t                allow;       /* ngx_cidr_t */
    unsigned                   all:1;       /* whoever has come through the access phase */
    ngx_http_complex_value_t  *who;
} ngx_http_idem_admin_t;


/* by which names a page of ours may be asked for */

typedef struct {
    ngx_http_server_name_t    *names;       /* the server's */
    ngx_uint_t                 n;
    unsigned                   any:1;
} ngx_http_idem_hosts_t;


typedef struct ngx_http_idem_loc_conf_s  ngx_http_idem_loc_conf_t;

struct ngx_http_idem_loc_conf_s {
    ngx_http_idem_loc_conf_t  *parent;
    struct idem_layer          said;        /* the words of this level */
    struct idem_guard         *guard;       /* of this level and those above; NULL: off */
    const struct idem_policy  *policy;      /* the guard's */

    ngx_flag_t                 on;
    unsigned                   issues:1;    /* tokens; it is no guard then */
    ngx_http_idem_store_t     *store;
    struct idem_signer        *sign;        /* NULL: requests need no signature */
    ngx_http_complex_value_t  *scope;       /* an empty value: none */
    ngx_http_idem_key_t       *key;
    ngx_uint_t                 print;
    struct idem_expr          *print_expr;
    ngx_array_t               *methods;     /* of ngx_str_t: those that are guarded */
    ngx_http_complex_value_t  *probe;       /* NULL: nobody is asked */
    ngx_str_t                 *probe_type;  /* of what a row holds; NULL: a URI is asked */
    ngx_http_complex_value_t  *label;       /* NULL: none */
    ngx_http_complex_value_t  *bind;        /* of tokens; NULL: none */
    ngx_http_complex_value_t  *enforce;     /* NULL: on; without variables: off */
    ngx_array_t               *release;     /* of ngx_uint_t: statuses */
    ngx_array_t               *headers;     /* of ngx_str_t: replayed besides */
    ngx_array_t               *deciders;    /* headers of one spelling, see strip.c; NULL: none */
    ngx_http_idem_heritage_t   heritage;
    struct board_row          *row;         /* NULL: nothing is counted */
    unsigned                   shows:1;     /* what was counted; it is no guard then */
    unsigned                   decider_odd:1;   /* a name of deciders has an underscore */
    ngx_http_idem_admin_t     *admin;       /* who may change records; NULL: nobody */
    ngx_http_idem_hosts_t     *hosts;       /* of idem_status and idem_admin */

    u_char                    *file;        /* where it was switched on, for messages */
    ngx_uint_t                 line;
    u_char                    *sign_file;
    ngx_uint_t                 sign_line;
};


/* what is counted under a name of its own */

typedef struct {
    ngx_http_idem_loc_conf_t  *conf;
    ngx_http_core_srv_conf_t  *server;
    ngx_http_core_loc_conf_t  *clcf;
} ngx_http_idem_route_t;


/* what is checked once the whole configuration was read */

typedef struct {
    ngx_http_idem_loc_conf_t  *conf;
    ngx_http_core_srv_conf_t  *server;
    ngx_http_core_loc_conf_t  *clcf;
    void                     **loc_conf;
} ngx_http_idem_guarded_t;


typedef enum {
    NGX_HTTP_IDEM_START = 0,
    NGX_HTTP_IDEM_READING,
    NGX_HTTP_IDEM_SIGNING,
    NGX_HTTP_IDEM_CLAIMING,
    NGX_HTTP_IDEM_ANSWERED,
    NGX_HTTP_IDEM_PROBING,
    NGX_HTTP_IDEM_SETTLING,
    NGX_HTTP_IDEM_RUNNING,
    NGX_HTTP_IDEM_STORING,
    NGX_HTTP_IDEM_STORED,                   /* nothing has gone out yet */
    NGX_HTTP_IDEM_SENT,                     /* the head has, and whatever comes passes */
    NGX_HTTP_IDEM_PASSED
} ngx_http_idem_state_e;


typedef enum {
    NGX_HTTP_IDEM_SILENT = 0,
    NGX_HTTP_IDEM_HEAD,
    NGX_HTTP_IDEM_WHOLE,                    /* to its end, and no byte before that was left out */
    NGX_HTTP_IDEM_CUT
} ngx_http_idem_heard_e;


typedef enum {
    NGX_HTTP_IDEM_DOUBTFUL = 0,             /* nobody has told, or nobody knows */
    NGX_HTTP_IDEM_HAPPENED,
    NGX_HTTP_IDEM_NOT                       /* and it may run */
} ngx_http_idem_came_e;


typedef struct ngx_http_idem_row_s  ngx_http_idem_row_t;
typedef struct ngx_http_idem_unpack_s  ngx_http_idem_unpack_t;
typedef struct ngx_http_idem_ctx_s  ngx_http_idem_ctx_t;


/* A claim. Its request may end before what came of it is stored. */

typedef struct {
    struct idem_claim         *claim;
    ngx_http_idem_ctx_t       *ctx;         /* NULL: the request is gone */
    ngx_event_t                hold;        /* how long an answer is held for the store */
    ngx_event_t                cancel;      /* what has come is looked at before */
    enum idem_end              lost;        /* why its lease is gone: nothing may begin under it */
    unsigned                   finished:1;  /* its end was said */
    unsigned                   result:1;    /* and there was one to keep */
} ngx_http_idem_run_t;


struct ngx_http_idem_ctx_s {
    ngx_http_request_t        *request;
    ngx_http_idem_loc_conf_t  *conf;
    ngx_http_idem_state_e      state;
    ngx_http_idem_run_t       *run;

    /* what was asked */

    struct idem_print          stream;      /* of a body that is no JSON */
    unsigned                   streaming:1;
    struct idem_http_delimiter  delimiter;  /* of a form with files; its len is 0 of any other */
    struct idem_http_split     split;       /* of what is streamed */
    struct idem_sha            body_sha;    /* of JSON that may be too long; for a signature */
    struct idem_sha512         body_sha512; /* where Content-Digest has it */
    u_char                     body_hash[IDEM_HASH_LEN];
    u_char                     body_hash512[IDEM_SHA512_LEN];
    off_t                      body_size;
    unsigned                   hashing:1;
    unsigned                   hashed:1;
    unsigned                   hashing512:1;
    unsigned                   hashed512:1;
    struct idem_nonce         *nonce;       /* the store is asked for it */
    ngx_str_t                  signer;      /* the id of the key */
    unsigned                   proven:1;
    unsigned                   unclaimed:1;  /* signed, and not to be guarded */
    unsigned                   json:1;      /* the request says that it is JSON */
    unsigned                   form:1;
    unsigned                   unreadable:1;  /* JSON that has no canonical form */
    ngx_str_t                  body;        /* whole, once somebody has asked for it */
    unsigned                   body_read:1;
    ngx_str_t                  scope;
    ngx_str_t                  key;
    struct idem_fingerprint    print;
    u_char                    *downstream;  /* IDEM_HEX_LEN digits, once somebody has asked */
    char                      *label;       /* NULL: none */
    struct idem_arena          arena;
    struct idem_json          *vars;        /* for expressions */
    unsigned                   arena_used:1;
    unsigned                   arena_owned:1;   /* the request's pool frees it, behind the log */
    unsigned                   naming:1;    /* scope and key are being made */

    /* what was answered */

    const char                *verdict;     /* for logs; NULL: none */
    enum idem_verdict          answer;
    int                        code;        /* of an error, instead of an answer */
    u_char                     hash[IDEM_HEX_LEN + 1];
    uint32_t                   attempt;
    int32_t                    status;
    int64_t                    retry_ms;
    ngx_str_t                  result;
    ngx_str_t                  reason;
    ngx_msec_t                 asked;       /* when the store was asked last */
    ngx_msec_t                 waited;      /* for it, together */
    unsigned                   has_result:1;
    unsigned                   unguarded:1;
    unsigned                   probed:1;    /* it was asked what came of it */
    unsigned                   enforced:1;
    unsigned                   refused:1;
    enum idem_http_problem_kind  problem;
    const char                *detail;      /* of a refusal, beside the policy's message */
    ngx_http_idem_unpack_t    *unpack;      /* a replay that is decoded; NULL: none, or over */

    /* what came of it */

    ngx_http_handler_pt        content;     /* the location's own */
    ngx_uint_t                 outcome;
    enum idem_end              cancelled;   /* why we have ended it; 0: we have not */
    ngx_event_t                max;         /* idem_run_max of what runs unguarded */
    int64_t                    ttl;         /* the backend's own; 0: none */
    ngx_str_t                  kept;        /* the answer's body, so far */
    size_t                     kept_size;
    struct idem_http_measure   measure;     /* of what is kept, where it is in gzip */
    ngx_chain_t               *pending;     /* of what does not fit */
    ngx_chain_t              **pending_last;
    ngx_http_idem_heard_e      heard;       /* of the answer, or of a probe's */
    unsigned                   live:1;      /* it comes from an upstream */
    unsigned                   readied:1;   /* the request has its headers for the backend */
    unsigned                   sent:1;      /* bytes went to the backend, by an earlier try too */
    unsigned                   accel:1;     /* it has named another place instead of an answer */
    unsigned                   told:1;      /* and said what came of it */
    unsigned                   discard:1;   /* its body is not to be kept */
    unsigned                   measured:1;
    unsigned                   lost:1;
    unsigned                   unkept:1;    /* it is done, and duplicates will not get its answer */

    /* a probe's answer */

    ngx_http_request_t        *probe;
    ngx_http_idem_row_t       *row;         /* is asked for instead */
    ngx_http_idem_came_e       came;
    ngx_uint_t                 probe_status;
    const char                *probe_reason;  /* why it is left as it was */
    unsigned                   probe_over:1;
    void                      *round;       /* of which it is a part; NULL: a client asks */
    ngx_socket_t               peer;        /* the other end of its connection */
};


extern ngx_module_t  ngx_http_idem_module;

extern ngx_http_output_header_filter_pt  ngx_http_idem_next_header_filter;
extern ngx_http_output_body_filter_pt    ngx_http_idem_next_body_filter;


/* conf.c */
void *ngx_http_idem_create_main_conf(ngx_conf_t *cf);
void *ngx_http_idem_create_loc_conf(ngx_conf_t *cf);
char *ngx_http_idem_merge_loc_conf(ngx_conf_t *cf, void *parent, void *child);
ngx_uint_t ngx_http_idem_is_guarded(ngx_http_request_t *r, ngx_http_idem_loc_conf_t *conf);

/* directive.c */
char *ngx_http_idem_mode(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
char *ngx_http_idem_word(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
char *ngx_http_idem_store_url(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
char *ngx_http_idem_scope_value(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
char *ngx_http_idem_key(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
ngx_http_complex_value_t *ngx_http_idem_complex(ngx_conf_t *cf, ngx_str_t *value);
char *ngx_http_idem_fingerprint(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
char *ngx_http_idem_method_names(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
char *ngx_http_idem_release_status(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
char *ngx_http_idem_replay_headers(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
char *ngx_http_idem_probe_uri(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
char *ngx_http_idem_label_value(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
char *ngx_http_idem_enforce(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
char *ngx_http_idem_token(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
char *ngx_http_idem_js(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
char *ngx_http_idem_status(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
char *ngx_http_idem_token_bind(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
ngx_int_t ngx_http_idem_named(ngx_str_t *word, const char *name, ngx_str_t *ret);

/* directive_sign.c */
char *ngx_http_idem_sign_rules(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);

/* fields.c */
typedef struct {
    ngx_list_part_t           *part;
    ngx_uint_t                 i;
} ngx_http_idem_fields_t;

void ngx_http_idem_fields(ngx_http_idem_fields_t *fields, ngx_list_t *list);
ngx_table_elt_t *ngx_http_idem_next(ngx_http_idem_fields_t *fields);      /* NULL: no more */
ngx_uint_t ngx_http_idem_is(ngx_table_elt_t *header, ngx_str_t *name);
struct idem_http_header *ngx_http_idem_headers(ngx_http_request_t *r, size_t *n);
void ngx_http_idem_accept(ngx_http_request_t *r, struct idem_http_accept *accept);

static ngx_inline struct idem_http_text
ngx_http_idem_text(ngx_str_t *s)
{
    struct idem_http_text  text = { (char *) s->data, s->len };

    return text;
}

/* strip.c */
ngx_int_t ngx_http_idem_deciders(ngx_conf_t *cf, ngx_http_idem_loc_conf_t *conf);
ngx_int_t ngx_http_idem_strip(ngx_http_request_t *r, ngx_http_idem_loc_conf_t *conf);
ngx_int_t ngx_http_idem_drop(ngx_http_request_t *r, ngx_str_t *name);
ngx_uint_t ngx_http_idem_is_ours(ngx_table_elt_t *header);

/* store.c */
ngx_http_idem_store_t *ngx_http_idem_store_add(ngx_conf_t *cf, ngx_str_t *url);
ngx_int_t ngx_http_idem_store_open(ngx_http_idem_store_t *store, ngx_cycle_t *cycle);
void ngx_http_idem_store_close(ngx_http_idem_store_t *store);

/* check.c */
ngx_int_t ngx_http_idem_check(ngx_conf_t *cf, ngx_http_idem_guarded_t *guarded);
ngx_uint_t ngx_http_idem_sends_again(ngx_http_request_t *r);

/* handler.c */
ngx_int_t ngx_http_idem_handler(ngx_http_request_t *r);
ngx_int_t ngx_http_idem_request_body_filter(ngx_http_request_t *r, ngx_chain_t *in);
ngx_http_idem_ctx_t *ngx_http_idem_ctx(ngx_http_request_t *r);
ngx_http_idem_ctx_t *ngx_http_idem_ctx_new(ngx_http_request_t *r, ngx_http_idem_loc_conf_t *conf);
void ngx_http_idem_resume(ngx_http_request_t *r);
void ngx_http_idem_signed(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx, ngx_int_t rc);
void ngx_http_idem_cleanup(void *data);
extern ngx_http_request_body_filter_pt  ngx_http_idem_next_request_body_filter;

/* sign.c */
ngx_int_t ngx_http_idem_sign(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx);
void ngx_http_idem_sign_drop(ngx_http_idem_ctx_t *ctx);
ngx_int_t ngx_http_idem_sign_follow(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx);

/* key.c */
ngx_int_t ngx_http_idem_identify(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx,
    struct idem_fingerprint *print);
ngx_int_t ngx_http_idem_who(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx);
ngx_int_t ngx_http_idem_missing(ngx_http_idem_ctx_t *ctx, const char *detail);
ngx_int_t ngx_http_idem_malformed(ngx_http_idem_ctx_t *ctx, const char *detail);

/* print.c */
void ngx_http_idem_print_start(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx);
void ngx_http_idem_print_add(ngx_http_idem_ctx_t *ctx, const void *bytes, size_t len);
ngx_int_t ngx_http_idem_print_parts(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx,
    ngx_uint_t parts, struct idem_fingerprint *ret);
ngx_int_t ngx_http_idem_print_expr(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx,
    struct idem_fingerprint *ret);
void ngx_http_idem_target(ngx_http_request_t *r, ngx_str_t *path, ngx_str_t *query);
typedef void (*ngx_http_idem_piece_pt)(void *data, const void *bytes, size_t len);
ngx_int_t ngx_http_idem_pieces(ngx_http_request_t *r, ngx_http_idem_piece_pt piece, void *data);
ngx_int_t ngx_http_idem_body(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx);
ngx_int_t ngx_http_idem_body_sums(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx);

/* serve.c: whether Host is ours; NGX_OK, or the answer to another method; and a text, whole */
ngx_int_t ngx_http_idem_hosts_names(ngx_conf_t *cf, ngx_http_idem_hosts_t *hosts);
ngx_uint_t ngx_http_idem_hosts_have(ngx_http_request_t *r, ngx_http_idem_hosts_t *hosts);
ngx_int_t ngx_http_idem_allow(ngx_http_request_t *r, ngx_uint_t methods, ngx_str_t *names);
ngx_int_t ngx_http_idem_serve(ngx_http_request_t *r, ngx_buf_t *b, ngx_str_t *type,
    ngx_str_t *cache);

/* js.c */
ngx_int_t ngx_http_idem_js_init(void);
ngx_int_t ngx_http_idem_js_handler(ngx_http_request_t *r);
ngx_int_t ngx_http_idem_js_sign_handler(ngx_http_request_t *r);

/* token.c */
ngx_int_t ngx_http_idem_token_handler(ngx_http_request_t *r);

/* metric.c */
ngx_int_t ngx_http_idem_metric_zone(ngx_conf_t *cf);
void ngx_http_idem_route_name(ngx_http_core_srv_conf_t *server, ngx_http_core_loc_conf_t *clcf,
    u_char *buf, size_t size);
ngx_int_t ngx_http_idem_metric_route(ngx_conf_t *cf, ngx_http_idem_loc_conf_t *conf);
void ngx_http_idem_metric_start(ngx_cycle_t *cycle, ngx_http_idem_main_conf_t *imcf);
void ngx_http_idem_metric_stop(ngx_http_idem_main_conf_t *imcf);
void ngx_http_idem_metric_opened(ngx_http_idem_store_t *store);
void ngx_http_idem_metric_away(ngx_http_idem_store_t *store);
ngx_int_t ngx_http_idem_count_handler(ngx_http_request_t *r);
void ngx_http_idem_count(ngx_http_idem_loc_conf_t *conf, enum board_count count);

/* status.c */
ngx_int_t ngx_http_idem_status_handler(ngx_http_request_t *r);
ngx_int_t ngx_http_idem_show(ngx_http_request_t *r, const char *token);

/* admin.c */
char *ngx_http_idem_admin(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
ngx_int_t ngx_http_idem_admin_handler(ngx_http_request_t *r);
ngx_int_t ngx_http_idem_admin_secret(ngx_http_idem_main_conf_t *imcf);
ngx_int_t ngx_http_idem_admin_check(ngx_http_request_t *r, struct idem_admin_caller *caller);
ngx_int_t ngx_http_idem_admin_refuse(ngx_http_request_t *r, ngx_uint_t status,
    const char *detail);
ngx_int_t ngx_http_idem_admin_send(ngx_http_request_t *r, ngx_str_t *type, FILE *out, char **text,
    size_t *len);

/* act.c: NGX_DONE, or an answer */
ngx_int_t ngx_http_idem_act_start(ngx_http_request_t *r, struct idem_admin_caller *caller);
void ngx_http_idem_acts_stop(void);

/* run.c */
void ngx_http_idem_linger_begin(void);
void ngx_http_idem_linger_end(void);
ngx_int_t ngx_http_idem_claim_named(ngx_http_idem_ctx_t *ctx, struct idem_record_key *key);
ngx_int_t ngx_http_idem_claim(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx, ngx_uint_t probe,
    struct idem_fingerprint *print);
void ngx_http_idem_finish(ngx_http_idem_ctx_t *ctx, ngx_uint_t outcome,
    ngx_uint_t status, u_char *result, size_t len);
void ngx_http_idem_run_detach(ngx_http_idem_ctx_t *ctx);
ngx_uint_t ngx_http_idem_is_lost(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx);
void ngx_http_idem_bound(ngx_http_idem_ctx_t *ctx);

/* upstream.c */
ngx_int_t ngx_http_idem_content_handler(ngx_http_request_t *r);
ngx_int_t ngx_http_idem_request_headers(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx);
u_char *ngx_http_idem_downstream(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx);
ngx_uint_t ngx_http_idem_was_sent(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx);
ngx_uint_t ngx_http_idem_is_cut(ngx_http_upstream_t *u);
ngx_uint_t ngx_http_idem_upstream_status(ngx_http_request_t *r);
void ngx_http_idem_unsay(ngx_http_request_t *r);
ngx_uint_t ngx_http_idem_is_accel(ngx_http_upstream_t *u);
void ngx_http_idem_accel(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx);
void ngx_http_idem_judge(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx);
ngx_uint_t ngx_http_idem_may_cancel(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx);
void ngx_http_idem_give_up(ngx_http_idem_ctx_t *ctx, enum idem_end why);
void ngx_http_idem_cancel(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx, enum idem_end why);

/* capture.c */
ngx_int_t ngx_http_idem_header_filter(ngx_http_request_t *r);
ngx_int_t ngx_http_idem_body_filter(ngx_http_request_t *r, ngx_chain_t *in);
void ngx_http_idem_hear(ngx_http_idem_ctx_t *ctx, ngx_http_idem_heard_e heard);
void ngx_http_idem_cut(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx);
void ngx_http_idem_send(ngx_http_idem_ctx_t *ctx);

/* keep.c */
ngx_uint_t ngx_http_idem_is_gzip(ngx_str_t *coding);
off_t ngx_http_idem_limit(ngx_http_idem_ctx_t *ctx);
ngx_int_t ngx_http_idem_keep(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx, u_char *bytes,
    size_t size);
ngx_int_t ngx_http_idem_encode(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx, ngx_str_t *ret);
ngx_int_t ngx_http_idem_encode_row(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx,
    ngx_uint_t status, ngx_str_t *ret);

/* reply.c */
void ngx_http_idem_set_problem(ngx_http_idem_ctx_t *ctx, enum idem_http_problem_kind problem,
    const char *verdict);
ngx_int_t ngx_http_idem_replay_handler(ngx_http_request_t *r);
ngx_int_t ngx_http_idem_replay_head(ngx_http_request_t *r, size_t len);
ngx_int_t ngx_http_idem_replay_as_is(ngx_http_request_t *r, struct idem_http_text *body);
ngx_int_t ngx_http_idem_refuse_handler(ngx_http_request_t *r);
ngx_int_t ngx_http_idem_add_header(ngx_http_request_t *r, const char *name, ngx_str_t *value);
ngx_int_t ngx_http_idem_refusal(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx,
    ngx_uint_t status, ngx_chain_t **out);

/* unpack.c */
ngx_int_t ngx_http_idem_unpack(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx,
    struct idem_http_answer *answer);
void ngx_http_idem_unpack_drop(ngx_http_idem_ctx_t *ctx);

/* log.c */
void ngx_http_idem_log_refusal(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx);

/* probe.c */
ngx_int_t ngx_http_idem_probe(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx);
ngx_int_t ngx_http_idem_probe_start(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx);
ngx_uint_t ngx_http_idem_probe_take(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx,
    ngx_str_t *result);
ngx_int_t ngx_http_idem_probe_header(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx);
ngx_int_t ngx_http_idem_probe_body(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx,
    ngx_chain_t *in);

/* row.c */
ngx_int_t ngx_http_idem_row_start(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx);
void ngx_http_idem_row_drop(ngx_http_idem_ctx_t *ctx);

/* round.c */
ngx_int_t ngx_http_idem_rounds_start(ngx_cycle_t *cycle, ngx_http_idem_main_conf_t *imcf);
void ngx_http_idem_rounds_stop(void);
ngx_uint_t ngx_http_idem_round_is_wanted(ngx_http_idem_loc_conf_t *conf);
ngx_uint_t ngx_http_idem_round_may_ask(ngx_http_idem_loc_conf_t *conf);
void ngx_http_idem_round_resume(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx);
void ngx_http_idem_round_over(ngx_http_idem_ctx_t *ctx);

/* variable.c */
ngx_int_t ngx_http_idem_add_variables(ngx_conf_t *cf);
struct idem_json *ngx_http_idem_vars(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx,
    struct idem_error *err);
struct idem_expr *ngx_http_idem_compile(ngx_conf_t *cf, ngx_str_t *text);
char *ngx_http_idem_set(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
ngx_uint_t ngx_http_idem_is_set(ngx_http_variable_t *v);
ngx_uint_t ngx_http_idem_is_computed(ngx_conf_t *cf, ngx_str_t *value);
ngx_int_t ngx_http_idem_variable_next(ngx_conf_t *cf, ngx_str_t *value, size_t *at,
    ngx_str_t *name);
ngx_http_variable_t *ngx_http_idem_find_set(ngx_conf_t *cf, ngx_str_t *name);


#endif /* _NGX_HTTP_IDEM_H_INCLUDED_ */
