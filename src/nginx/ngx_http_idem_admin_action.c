
/*
 * Executes an operator's request: looks the record up, changes it, and looks it
 * up again, on the worker's own loop.
 *
 *     BEFORE ─> a line ─> CHANGE ─> AFTER
 *       └───────────────────┴─────────┴──> a line in the log, and the response
 *
 * The first line announces the change, so that even a worker that is killed
 * changes nothing without a trace. The last line is always written, also if the
 * record is absent, the store is unavailable, or the worker ends before the store
 * responds. The action goes on if its client disconnects.
 */

#include "ngx_http_idem.h"

#include "core/store_call.h"
#include "protocol/record_entry.h"


#define NGX_HTTP_IDEM_ADMIN_ACTION_ARENA  65536  /* for a request of IDEM_ADMIN_BODY_MAX as JSON */


typedef enum {
    NGX_HTTP_IDEM_ADMIN_ACTION_BEFORE = 1,
    NGX_HTTP_IDEM_ADMIN_ACTION_CHANGE,
    NGX_HTTP_IDEM_ADMIN_ACTION_AFTER
} ngx_http_idem_admin_action_e;


typedef struct {
    struct idem_store_call         call;        /* first: callbacks cast it back */
    ngx_queue_t                    queue;       /* of pending actions */
    ngx_http_request_t            *request;
    struct idem                   *h;
    ngx_http_idem_admin_action_e   step;
    struct idem_arena              arena;
    struct idem_admin_request      asked;
    struct idem_admin_caller       caller;
    struct idem_admin_found        before;
    struct idem_admin_found        after;
    int                            rc;          /* result of the change */
    ngx_str_t                      body;
    unsigned                       begun:1;     /* and its last line is not written yet */
} ngx_http_idem_admin_action_t;


static void ngx_http_idem_admin_action_handler(struct idem_store_call *call, int rc,
    const struct idem_error *err);


static ngx_queue_t  ngx_http_idem_admin_actions;


static ngx_uint_t
ngx_http_idem_admin_action_is_refusal(int rc)
{
    return rc == IDEM_E_ABSENT || rc == IDEM_E_LIVE || rc == IDEM_E_SETTLED;
}


/* Before the change is submitted, an unknown result means that nothing happened. */

static int
ngx_http_idem_admin_action_code(ngx_http_idem_admin_action_t *action, int rc)
{
    return rc == IDEM_E_UNKNOWN && action->step == NGX_HTTP_IDEM_ADMIN_ACTION_BEFORE
           ? IDEM_E_REFUSED : rc;
}


/* Pending actions delay a graceful exit of the worker. */

static void
ngx_http_idem_admin_action_register(ngx_http_idem_admin_action_t *action)
{
    if (ngx_http_idem_admin_actions.next == NULL) {
        ngx_queue_init(&ngx_http_idem_admin_actions);
    }

    action->begun = 1;
    ngx_queue_insert_tail(&ngx_http_idem_admin_actions, &action->queue);
    ngx_http_idem_claim_linger_begin();
}


static void
ngx_http_idem_admin_action_unregister(ngx_http_idem_admin_action_t *action)
{
    if (action->begun) {
        action->begun = 0;
        ngx_queue_remove(&action->queue);
        ngx_http_idem_claim_linger_end();
    }
}


/*
 * Writes the audit line. If the log's level hides notices, it takes a level that
 * the log shows: no change goes unrecorded.
 */

static void
ngx_http_idem_admin_action_log(ngx_http_idem_admin_action_t *action, bool begun)
{
    char                      line[IDEM_ADMIN_LINE];
    ngx_log_t                *log = action->request->connection->log;
    ngx_time_t               *tp;
    ngx_uint_t                level;
    struct idem_admin_audit   audit;

    tp = ngx_timeofday();

    audit.time_ms = (int64_t) tp->sec * 1000 + tp->msec;
    audit.caller = &action->caller;
    audit.request = &action->asked;
    audit.before = &action->before;
    audit.after = &action->after;

    audit.code = action->rc;
    audit.begun = begun;

    idem_admin_line(&audit, line);
    level = ngx_min(NGX_LOG_NOTICE, log->log_level);

    ngx_log_error(level, log, 0, "idem: audit: %s", line);
}


/* Ends the action before the store responds. */

static void
ngx_http_idem_admin_action_stop(ngx_http_idem_admin_action_t *action)
{
    idem_store_call_stop(&action->call);

    if (action->begun) {
        ngx_http_idem_admin_action_unregister(action);
        action->rc = ngx_http_idem_admin_action_code(action, IDEM_E_UNKNOWN);
        ngx_http_idem_admin_action_log(action, false);
    }
}


static void
ngx_http_idem_admin_action_cleanup(void *data)
{
    ngx_http_idem_admin_action_t  *action = data;

    ngx_http_idem_admin_action_stop(action);
    idem_arena_free(&action->arena);
}


/* A worker that terminates at once does not clean up its requests. */

void
ngx_http_idem_admin_action_stop_all(void)
{
    ngx_queue_t  *q;

    while (ngx_http_idem_admin_actions.next && !ngx_queue_empty(&ngx_http_idem_admin_actions)) {
        q = ngx_queue_head(&ngx_http_idem_admin_actions);
        ngx_http_idem_admin_action_stop(ngx_queue_data(q, ngx_http_idem_admin_action_t, queue));
    }
}


/* Finishing. */

static const struct {
    int          rc;
    ngx_uint_t   status;
    const char  *detail;
} ngx_http_idem_admin_refusals[] = {

    { IDEM_E_ABSENT, NGX_HTTP_NOT_FOUND,
      "There is no such record: it has expired, was forgotten, or never was." },

    { IDEM_E_LIVE, NGX_HTTP_CONFLICT,
      "It is running now, or was started again since you looked. Look again; \"force\" takes it "
      "from who is running it." },

    { IDEM_E_SETTLED, NGX_HTTP_CONFLICT,
      "It is done already, or was settled since you looked. Look again; forget it, if it must run "
      "again." },

    { IDEM_E_UNKNOWN, NGX_HTTP_SERVICE_UNAVAILABLE,
      "The store did not answer: it may have been done. Look again." },

    { IDEM_E_CORRUPT, NGX_HTTP_CONFLICT,
      "The record is damaged. It can only be forgotten, with \"force\"." },

    { 0, NGX_HTTP_SERVICE_UNAVAILABLE,                     /* every other code */
      "The store cannot be asked, and nothing was changed. The error log has the reason." },
};


static ngx_int_t
ngx_http_idem_admin_action_reply(ngx_http_idem_admin_action_t *action)
{
    FILE                *out;
    char                *text = NULL;
    size_t               len = 0;
    ngx_str_t            type = ngx_string("application/json");
    ngx_uint_t           i;
    ngx_http_request_t  *r = action->request;

    if (action->rc != 0) {
        for (i = 0; ngx_http_idem_admin_refusals[i].rc
                    && ngx_http_idem_admin_refusals[i].rc != action->rc; i++)
        {
            /* void */
        }

        return ngx_http_idem_admin_refuse(r, ngx_http_idem_admin_refusals[i].status,
                                          ngx_http_idem_admin_refusals[i].detail);
    }

    out = open_memstream(&text, &len);
    if (out == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    idem_admin_answer(&action->before, &action->after, out);

    return ngx_http_idem_admin_send(r, &type, out, &text, &len);
}


static ngx_int_t
ngx_http_idem_admin_action_finish(ngx_http_idem_admin_action_t *action)
{
    ngx_http_idem_admin_action_unregister(action);
    ngx_http_idem_admin_action_log(action, false);

    return ngx_http_idem_admin_action_reply(action);
}


/* Store operations. */

static void
ngx_http_idem_admin_action_submit(ngx_http_idem_admin_action_t *action,
    ngx_http_idem_admin_action_e step)
{
    action->step = step;

    if (step == NGX_HTTP_IDEM_ADMIN_ACTION_CHANGE) {
        idem_admin_request_op(&action->asked, &action->call.op);

    } else {
        ngx_memzero(&action->call.op, sizeof(struct idem_op));
        action->call.op.kind = IDEM_OP_LOOKUP;
        action->call.op.key = action->asked.key;
    }

    action->call.answered = ngx_http_idem_admin_action_handler;
    idem_store_call_start(action->h, &action->call);
}


static void
ngx_http_idem_admin_action_set_found(struct idem_admin_found *found, const struct idem_op *op,
    int rc)
{
    found->rc = rc;

    if (rc == 0) {
        found->live = op->out.lookup.live;
        idem_entry_fill(&found->entry, &op->key, &op->out.lookup.record, found->live,
                        op->out.lookup.left_ms);
    }
}


/* Returns the next step, or NGX_OK at the end. A damaged record can still be forgotten. */

static ngx_int_t
ngx_http_idem_admin_action_next(ngx_http_idem_admin_action_t *action, int rc)
{
    switch (action->step) {

    case NGX_HTTP_IDEM_ADMIN_ACTION_BEFORE:
        ngx_http_idem_admin_action_set_found(&action->before, &action->call.op, rc);
        action->rc = ngx_http_idem_admin_action_code(action, rc);

        if (action->asked.action == IDEM_ADMIN_INSPECT
            || (rc != 0 && !(rc == IDEM_E_CORRUPT && action->asked.action == IDEM_ADMIN_FORGET)))
        {
            return NGX_OK;
        }

        if (action->asked.settle.attempt == 0) {           /* change only what was looked up */
            action->asked.settle.attempt = action->before.entry.attempt;
        }

        action->asked.settle.from = action->before.entry.state;

        ngx_http_idem_admin_action_log(action, true);

        return NGX_HTTP_IDEM_ADMIN_ACTION_CHANGE;

    case NGX_HTTP_IDEM_ADMIN_ACTION_CHANGE:
        action->rc = rc;

        return rc == 0 || rc == IDEM_E_UNKNOWN ? NGX_HTTP_IDEM_ADMIN_ACTION_AFTER : NGX_OK;

    default:
        ngx_http_idem_admin_action_set_found(&action->after, &action->call.op, rc);

        return NGX_OK;
    }
}


static void
ngx_http_idem_admin_action_handler(struct idem_store_call *call, int rc,
    const struct idem_error *err)
{
    ngx_int_t                      next;
    ngx_connection_t              *c;
    ngx_http_request_t            *r;
    ngx_http_idem_admin_action_t  *action = (ngx_http_idem_admin_action_t *) call;

    r = action->request;
    c = r->connection;

    ngx_http_set_log_request(c->log, r);

    if (rc != 0 && !ngx_http_idem_admin_action_is_refusal(rc)) {
        ngx_log_error(NGX_LOG_ERR, c->log, 0, "idem: idem_admin: %s", err->text);
    }

    next = ngx_http_idem_admin_action_next(action, rc);
    idem_store_call_stop(call);

    if (next != NGX_OK) {
        ngx_http_idem_admin_action_submit(action, next);
        return;
    }

    ngx_http_finalize_request(r, ngx_http_idem_admin_action_finish(action));
    ngx_http_run_posted_requests(c);
}


/* Starting. */

/* Finds a store by its name on the board; NULL if two stores share the name. */

static ngx_http_idem_store_t *
ngx_http_idem_admin_action_find_store(ngx_http_request_t *r, struct idem_http_text *name)
{
    ngx_uint_t                  i;
    ngx_http_idem_store_t     **stores, *found = NULL;
    ngx_http_idem_main_conf_t  *imcf;

    imcf = ngx_http_get_module_main_conf(r, ngx_http_idem_module);
    stores = imcf->stores.elts;

    for (i = 0; i < imcf->stores.nelts; i++) {

        if (stores[i]->board == NULL
            || !idem_is_word(name->at, name->len, stores[i]->board->name))
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
ngx_http_idem_admin_action_begin(ngx_http_idem_admin_action_t *action)
{
    struct idem_error       err;
    ngx_http_request_t     *r = action->request;
    ngx_http_idem_store_t  *store;

    if (idem_admin_request_read((char *) action->body.data, action->body.len, &action->arena,
                                &action->asked, &err)
        != 0)
    {
        return ngx_http_idem_admin_refuse(r, NGX_HTTP_BAD_REQUEST, err.text);
    }

    store = ngx_http_idem_admin_action_find_store(r, &action->asked.store);
    if (store == NULL) {
        return ngx_http_idem_admin_refuse(r, NGX_HTTP_BAD_REQUEST,
                                          "There is no store of that name, or there are two; then "
                                          "`idem settle` and `idem forget` know them by their "
                                          "URLs.");
    }

    action->before.rc = IDEM_ADMIN_NOT_ASKED;
    action->after.rc = IDEM_ADMIN_NOT_ASKED;

    if (store->h == NULL) {
        ngx_http_idem_metric_store_unavailable(store);
        action->rc = IDEM_E_REFUSED;
        return ngx_http_idem_admin_action_finish(action);
    }

    action->h = store->h;
    ngx_http_idem_admin_action_register(action);

    r->read_event_handler = ngx_http_block_reading;
    ngx_http_idem_admin_action_submit(action, NGX_HTTP_IDEM_ADMIN_ACTION_BEFORE);

    return NGX_DONE;
}


static void
ngx_http_idem_admin_action_add_piece(void *data, const void *bytes, size_t len)
{
    ngx_str_t  *body = data;

    len = ngx_min(len, IDEM_ADMIN_BODY_MAX - body->len);
    ngx_memcpy(body->data + body->len, bytes, len);
    body->len += len;
}


static void
ngx_http_idem_admin_action_body_handler(ngx_http_request_t *r)
{
    ngx_int_t                      rc;
    ngx_http_cleanup_t            *cln;
    ngx_http_idem_admin_action_t  *action;

    for (cln = r->cleanup; cln->handler != ngx_http_idem_admin_action_cleanup; cln = cln->next) {
        /* void: the module's context belongs to guards */
    }

    action = cln->data;

    rc = ngx_http_idem_admin_check(r, &action->caller);

    if (rc == NGX_DECLINED) {
        rc = ngx_http_idem_fingerprint_read_pieces(r, ngx_http_idem_admin_action_add_piece,
                                                   &action->body)
             == NGX_OK
             ? ngx_http_idem_admin_action_begin(action) : NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    if (rc != NGX_DONE) {
        ngx_http_finalize_request(r, rc);
    }
}


ngx_int_t
ngx_http_idem_admin_action_start(ngx_http_request_t *r, struct idem_admin_caller *caller)
{
    ngx_int_t                      rc;
    ngx_http_cleanup_t            *cln;
    ngx_http_idem_admin_action_t  *action;

    cln = ngx_http_cleanup_add(r, sizeof(ngx_http_idem_admin_action_t));
    if (cln == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    action = cln->data;
    ngx_memzero(action, sizeof(ngx_http_idem_admin_action_t));
    idem_arena_init(&action->arena, NGX_HTTP_IDEM_ADMIN_ACTION_ARENA);
    cln->handler = ngx_http_idem_admin_action_cleanup;

    action->request = r;
    action->caller = *caller;
    action->body.data = ngx_pnalloc(r->pool, IDEM_ADMIN_BODY_MAX);

    if (action->body.data == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    rc = ngx_http_read_client_request_body(r, ngx_http_idem_admin_action_body_handler);

    return rc >= NGX_HTTP_SPECIAL_RESPONSE ? rc : NGX_DONE;
}
