
/*
 * What an operator asks for is done: the record is looked up, changed, and
 * looked up again, on the worker's own loop.
 *
 *     BEFORE ─> a line ─> CHANGE ─> AFTER
 *       └───────────────────┴─────────┴──> a line in the log, and the answer
 *
 * The first line says that it is begun, so that also a worker that is killed has
 * changed nothing without one. The last is written whatever comes of it: also
 * where the record is not there, where the store is away, and where the worker
 * ends before it is answered. A client that hangs up changes nothing of it.
 */

#include "ngx_http_idem.h"

#include "core/ask.h"
#include "core/entry.h"


#define NGX_HTTP_IDEM_ACT_ARENA  65536      /* for a request of IDEM_ADMIN_BODY_MAX as JSON */


typedef enum {
    NGX_HTTP_IDEM_ACT_BEFORE = 1,
    NGX_HTTP_IDEM_ACT_CHANGE,
    NGX_HTTP_IDEM_ACT_AFTER
} ngx_http_idem_act_e;


typedef struct {
    struct idem_ask             ask;         /* first: it is found by it */
    ngx_queue_t                 queue;       /* of those that have begun */
    ngx_http_request_t         *request;
    struct idem                *h;
    ngx_http_idem_act_e         step;
    struct idem_arena           arena;
    struct idem_admin_request   asked;
    struct idem_admin_caller    caller;
    struct idem_admin_found     before;
    struct idem_admin_found     after;
    int                         rc;          /* what the store says of the change */
    ngx_str_t                   body;
    unsigned                    begun:1;     /* and not written down yet */
} ngx_http_idem_act_t;


static void ngx_http_idem_act_answered(struct idem_ask *ask, int rc,
    const struct idem_error *err);


static ngx_queue_t  ngx_http_idem_acts;


static ngx_uint_t
ngx_http_idem_act_is_refusal(int rc)
{
    return rc == IDEM_E_ABSENT || rc == IDEM_E_LIVE || rc == IDEM_E_SETTLED;
}


/* Until the change was asked for, nothing can have happened. */

static int
ngx_http_idem_act_code(ngx_http_idem_act_t *act, int rc)
{
    return rc == IDEM_E_UNKNOWN && act->step == NGX_HTTP_IDEM_ACT_BEFORE ? IDEM_E_REFUSED : rc;
}


/* What has begun keeps a worker from exiting gracefully. */

static void
ngx_http_idem_act_begun(ngx_http_idem_act_t *act)
{
    if (ngx_http_idem_acts.next == NULL) {
        ngx_queue_init(&ngx_http_idem_acts);
    }

    act->begun = 1;
    ngx_queue_insert_tail(&ngx_http_idem_acts, &act->queue);
    ngx_http_idem_linger_begin();
}


static void
ngx_http_idem_act_over(ngx_http_idem_act_t *act)
{
    if (act->begun) {
        act->begun = 0;
        ngx_queue_remove(&act->queue);
        ngx_http_idem_linger_end();
    }
}


/* The line in the log. Where the log is set to less than notices, it is written as what the log
   does take: nobody changes a record unseen. */

static void
ngx_http_idem_act_write(ngx_http_idem_act_t *act, bool begun)
{
    char                      line[IDEM_ADMIN_LINE];
    ngx_log_t                *log = act->request->connection->log;
    ngx_time_t               *tp;
    ngx_uint_t                level;
    struct idem_admin_audit   audit;

    tp = ngx_timeofday();

    audit.time_ms = (int64_t) tp->sec * 1000 + tp->msec;
    audit.caller = &act->caller;
    audit.request = &act->asked;
    audit.before = &act->before;
    audit.after = &act->after;

    audit.code = act->rc;
    audit.begun = begun;

    idem_admin_line(&audit, line);
    level = ngx_min(NGX_LOG_NOTICE, log->log_level);

    ngx_log_error(level, log, 0, "idem: audit: %s", line);
}


/* It ends before the store has answered. */

static void
ngx_http_idem_act_stop(ngx_http_idem_act_t *act)
{
    idem_ask_stop(&act->ask);

    if (act->begun) {
        ngx_http_idem_act_over(act);
        act->rc = ngx_http_idem_act_code(act, IDEM_E_UNKNOWN);
        ngx_http_idem_act_write(act, false);
    }
}


static void
ngx_http_idem_act_cleanup(void *data)
{
    ngx_http_idem_act_t  *act = data;

    ngx_http_idem_act_stop(act);
    idem_arena_free(&act->arena);
}


/* A worker that is told to end at once does not clean its requests up. */

void
ngx_http_idem_acts_stop(void)
{
    ngx_queue_t  *q;

    while (ngx_http_idem_acts.next && !ngx_queue_empty(&ngx_http_idem_acts)) {
        q = ngx_queue_head(&ngx_http_idem_acts);
        ngx_http_idem_act_stop(ngx_queue_data(q, ngx_http_idem_act_t, queue));
    }
}


/* The end. */

static ngx_int_t
ngx_http_idem_act_reply(ngx_http_idem_act_t *act)
{
    FILE                *out;
    char                *text = NULL;
    size_t               len = 0;
    ngx_str_t            type = ngx_string("application/json");
    ngx_http_request_t  *r = act->request;

    switch (act->rc) {

    case 0:
        break;

    case IDEM_E_ABSENT:
        return ngx_http_idem_admin_refuse(r, NGX_HTTP_NOT_FOUND,
                                          "There is no such record: it has expired, was forgotten, "
                                          "or never was.");

    case IDEM_E_LIVE:
        return ngx_http_idem_admin_refuse(r, NGX_HTTP_CONFLICT,
                                          "Somebody is running it now, or it was begun again since "
                                          "you looked. Look again; \"force\" takes it from who is "
                                          "running it.");

    case IDEM_E_SETTLED:
        return ngx_http_idem_admin_refuse(r, NGX_HTTP_CONFLICT,
                                          "It is done already, or was settled since you looked. "
                                          "Look again; forget it, if it must run again.");

    case IDEM_E_UNKNOWN:
        return ngx_http_idem_admin_refuse(r, NGX_HTTP_SERVICE_UNAVAILABLE,
                                          "The store did not answer: it may have been done. Look "
                                          "again.");

    case IDEM_E_CORRUPT:
        return ngx_http_idem_admin_refuse(r, NGX_HTTP_CONFLICT,
                                          "The record is damaged. It can only be forgotten, with "
                                          "\"force\".");

    default:
        return ngx_http_idem_admin_refuse(r, NGX_HTTP_SERVICE_UNAVAILABLE,
                                          "The store cannot be asked, and nothing was changed. The "
                                          "error log says why.");
    }

    out = open_memstream(&text, &len);
    if (out == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    idem_admin_answer(&act->before, &act->after, out);

    return ngx_http_idem_admin_send(r, &type, out, &text, &len);
}


static ngx_int_t
ngx_http_idem_act_end(ngx_http_idem_act_t *act)
{
    ngx_http_idem_act_over(act);
    ngx_http_idem_act_write(act, false);

    return ngx_http_idem_act_reply(act);
}


/* Asking. */

static void
ngx_http_idem_act_ask(ngx_http_idem_act_t *act, ngx_http_idem_act_e step)
{
    act->step = step;

    if (step == NGX_HTTP_IDEM_ACT_CHANGE) {
        idem_admin_op(&act->asked, &act->ask.op);

    } else {
        ngx_memzero(&act->ask.op, sizeof(struct idem_op));
        act->ask.op.kind = IDEM_OP_LOOKUP;
        act->ask.op.key = act->asked.key;
    }

    act->ask.answered = ngx_http_idem_act_answered;
    idem_ask_start(act->h, &act->ask);
}


static void
ngx_http_idem_act_found(struct idem_admin_found *found, const struct idem_op *op, int rc)
{
    found->rc = rc;

    if (rc == 0) {
        found->live = op->out.lookup.live;
        idem_entry_fill(&found->entry, &op->key, &op->out.lookup.record, found->live,
                        op->out.lookup.left_ms);
    }
}


/* Which step is next; NGX_OK: it is over. A record that is damaged can be forgotten. */

static ngx_int_t
ngx_http_idem_act_next(ngx_http_idem_act_t *act, int rc)
{
    switch (act->step) {

    case NGX_HTTP_IDEM_ACT_BEFORE:
        ngx_http_idem_act_found(&act->before, &act->ask.op, rc);
        act->rc = ngx_http_idem_act_code(act, rc);

        if (act->asked.action == IDEM_ADMIN_INSPECT
            || (rc != 0 && !(rc == IDEM_E_CORRUPT && act->asked.action == IDEM_ADMIN_FORGET)))
        {
            return NGX_OK;
        }

        if (act->asked.settle.attempt == 0) {              /* what is changed is what was seen */
            act->asked.settle.attempt = act->before.entry.attempt;
        }

        act->asked.settle.from = act->before.entry.state;

        ngx_http_idem_act_write(act, true);

        return NGX_HTTP_IDEM_ACT_CHANGE;

    case NGX_HTTP_IDEM_ACT_CHANGE:
        act->rc = rc;

        return rc == 0 || rc == IDEM_E_UNKNOWN ? NGX_HTTP_IDEM_ACT_AFTER : NGX_OK;

    default:
        ngx_http_idem_act_found(&act->after, &act->ask.op, rc);

        return NGX_OK;
    }
}


static void
ngx_http_idem_act_answered(struct idem_ask *ask, int rc, const struct idem_error *err)
{
    ngx_int_t             next;
    ngx_connection_t     *c;
    ngx_http_request_t   *r;
    ngx_http_idem_act_t  *act = (ngx_http_idem_act_t *) ask;

    r = act->request;
    c = r->connection;

    ngx_http_set_log_request(c->log, r);

    if (rc != 0 && !ngx_http_idem_act_is_refusal(rc)) {
        ngx_log_error(NGX_LOG_ERR, c->log, 0, "idem: idem_admin: %s", err->text);
    }

    next = ngx_http_idem_act_next(act, rc);
    idem_ask_stop(ask);

    if (next != NGX_OK) {
        ngx_http_idem_act_ask(act, next);
        return;
    }

    ngx_http_finalize_request(r, ngx_http_idem_act_end(act));
    ngx_http_run_posted_requests(c);
}


/* The beginning. */

/* The store of that name on the board; two of one name cannot be told apart. */

static ngx_http_idem_store_t *
ngx_http_idem_act_store(ngx_http_request_t *r, struct idem_http_text *name)
{
    ngx_uint_t                  i;
    ngx_http_idem_store_t     **stores, *found = NULL;
    ngx_http_idem_main_conf_t  *imcf;

    imcf = ngx_http_get_module_main_conf(r, ngx_http_idem_module);
    stores = imcf->stores.elts;

    for (i = 0; i < imcf->stores.nelts; i++) {

        if (stores[i]->board == NULL || ngx_strlen(stores[i]->board->name) != name->len
            || ngx_memcmp(stores[i]->board->name, name->at, name->len) != 0)
        {
            continue;
        }

        if (found) {
            return NULL;
        }

        found = stores[i];
    }

    return found;
}


static ngx_int_t
ngx_http_idem_act_begin(ngx_http_idem_act_t *act)
{
    struct idem_error       err;
    ngx_http_request_t     *r = act->request;
    ngx_http_idem_store_t  *store;

    if (idem_admin_read((char *) act->body.data, act->body.len, &act->arena, &act->asked, &err)
        != 0)
    {
        return ngx_http_idem_admin_refuse(r, NGX_HTTP_BAD_REQUEST, err.text);
    }

    store = ngx_http_idem_act_store(r, &act->asked.store);
    if (store == NULL) {
        return ngx_http_idem_admin_refuse(r, NGX_HTTP_BAD_REQUEST,
                                          "There is no store of that name, or there are two; then "
                                          "`idem settle` and `idem forget` know them by their "
                                          "URLs.");
    }

    act->before.rc = IDEM_ADMIN_NOT_ASKED;
    act->after.rc = IDEM_ADMIN_NOT_ASKED;

    if (store->h == NULL) {
        ngx_http_idem_metric_away(store);
        act->rc = IDEM_E_REFUSED;
        return ngx_http_idem_act_end(act);
    }

    act->h = store->h;
    ngx_http_idem_act_begun(act);

    r->read_event_handler = ngx_http_block_reading;
    ngx_http_idem_act_ask(act, NGX_HTTP_IDEM_ACT_BEFORE);

    return NGX_DONE;
}


static void
ngx_http_idem_act_piece(void *data, const void *bytes, size_t len)
{
    ngx_str_t  *body = data;

    len = ngx_min(len, IDEM_ADMIN_BODY_MAX - body->len);
    ngx_memcpy(body->data + body->len, bytes, len);
    body->len += len;
}


static void
ngx_http_idem_act_body_handler(ngx_http_request_t *r)
{
    ngx_int_t             rc;
    ngx_http_cleanup_t   *cln;
    ngx_http_idem_act_t  *act;

    for (cln = r->cleanup; cln->handler != ngx_http_idem_act_cleanup; cln = cln->next) {
        /* void: a module's context is that of a guard */
    }

    act = cln->data;

    rc = ngx_http_idem_admin_check(r, &act->caller);

    if (rc == NGX_DECLINED) {
        rc = ngx_http_idem_pieces(r, ngx_http_idem_act_piece, &act->body) == NGX_OK
             ? ngx_http_idem_act_begin(act) : NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    if (rc != NGX_DONE) {
        ngx_http_finalize_request(r, rc);
    }
}


ngx_int_t
ngx_http_idem_act_start(ngx_http_request_t *r, struct idem_admin_caller *caller)
{
    ngx_int_t             rc;
    ngx_http_cleanup_t   *cln;
    ngx_http_idem_act_t  *act;

    cln = ngx_http_cleanup_add(r, sizeof(ngx_http_idem_act_t));
    if (cln == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    act = cln->data;
    ngx_memzero(act, sizeof(ngx_http_idem_act_t));
    idem_arena_init(&act->arena, NGX_HTTP_IDEM_ACT_ARENA);
    cln->handler = ngx_http_idem_act_cleanup;

    act->request = r;
    act->caller = *caller;
    act->body.data = ngx_pnalloc(r->pool, IDEM_ADMIN_BODY_MAX);

    if (act->body.data == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    rc = ngx_http_read_client_request_body(r, ngx_http_idem_act_body_handler);

    return rc >= NGX_HTTP_SPECIAL_RESPONSE ? rc : NGX_DONE;
}
