
/*
 * Claims. A claim belongs to its request until the outcome is handed over. From
 * then on it lives on its own, because the client may leave before the store
 * responds.
 */

#include "ngx_http_idem.h"


/* ms: after finish_timeout the response goes out, and the store gets this much more time */
#define NGX_HTTP_IDEM_FINISH_MORE  60000

/* ms between checks for open claims in a worker that exits */
#define NGX_HTTP_IDEM_LINGER       1000


static void ngx_http_idem_claim_answer_handler(struct idem_claim *core, int rc,
    const struct idem_answer *answer, const struct idem_error *err, void *data);
static void ngx_http_idem_claim_finish_handler(struct idem_claim *core, int rc, bool lost,
    const struct idem_error *err, void *data);
static void ngx_http_idem_claim_lost_handler(struct idem_claim *core, enum idem_end why,
    void *data);


static ngx_uint_t        ngx_http_idem_linger_count;
static ngx_event_t       ngx_http_idem_linger;
static ngx_connection_t  ngx_http_idem_timer_connection;    /* for nginx's debug log of timers */


/*
 * nginx exits gracefully once only cancelable timers are left. This one is not
 * cancelable, so that open claims delay the exit.
 */

static void
ngx_http_idem_claim_linger_handler(ngx_event_t *ev)
{
    if (ngx_http_idem_linger_count > 0) {
        ngx_add_timer(ev, NGX_HTTP_IDEM_LINGER);
    }
}


void
ngx_http_idem_claim_linger_begin(void)
{
    ngx_event_t  *ev;

    ev = &ngx_http_idem_linger;
    ngx_http_idem_linger_count++;

    if (!ev->timer_set) {
        ngx_http_idem_timer_connection.fd = (ngx_socket_t) -1;
        ev->handler = ngx_http_idem_claim_linger_handler;
        ev->data = &ngx_http_idem_timer_connection;
        ev->log = ngx_cycle->log;
        ngx_add_timer(ev, NGX_HTTP_IDEM_LINGER);
    }
}


void
ngx_http_idem_claim_linger_end(void)
{
    ngx_http_idem_linger_count--;

    if (ngx_http_idem_linger_count == 0 && ngx_exiting) {
        ngx_http_idem_stop_event(&ngx_http_idem_linger);
    }
}


static ngx_http_idem_claim_t *
ngx_http_idem_claim_new(void)
{
    ngx_http_idem_claim_t  *claim;

    claim = ngx_calloc(sizeof(ngx_http_idem_claim_t), ngx_cycle->log);

    if (claim) {
        ngx_http_idem_claim_linger_begin();
    }

    return claim;
}


static void
ngx_http_idem_claim_free(ngx_http_idem_claim_t *claim)
{
    ngx_http_idem_stop_event(&claim->hold);
    ngx_http_idem_stop_event(&claim->cancel);

    if (claim->ctx) {
        claim->ctx->claim = NULL;
    }

    idem_claim_free(claim->core);
    ngx_free(claim);

    ngx_http_idem_claim_linger_end();
}


static void
ngx_http_idem_claim_start(ngx_http_idem_ctx_t *ctx, ngx_http_idem_claim_t *claim)
{
    ngx_http_idem_decision_set_hash(ctx, claim->core);

    claim->ctx = ctx;
    ctx->claim = claim;
    ngx_http_idem_decision_wait_begin(ctx);

    idem_claim_on_lost(claim->core, ngx_http_idem_claim_lost_handler, claim);
    idem_claim_start(ctx->conf->store->h, claim->core);
}


/* The parts of the operation, as the library takes them. */

static ngx_int_t
ngx_http_idem_claim_set_args(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx,
    struct idem_args *args)
{
    ngx_str_t  bind;

    ngx_memzero(args, sizeof(struct idem_args));

    args->key = ctx->key.text.data;
    args->key_len = ctx->key.text.len;

    if (ctx->key.scope.len) {
        args->scope = ctx->key.scope.data;
        args->scope_len = ctx->key.scope.len;
    }

    if (ctx->conf->bind) {
        if (ngx_http_complex_value(r, ctx->conf->bind, &bind) != NGX_OK) {
            return NGX_ERROR;
        }

        args->bind = bind.len ? bind.data : (u_char *) "";
        args->bind_len = bind.len;
    }

    if (ctx->conf->label) {
        if (ngx_http_idem_key_read_label(r, ctx) != NGX_OK) {
            return NGX_ERROR;
        }

        args->label = ctx->key.label;
    }

    return NGX_OK;
}


/* NGX_ABORT: the store is not open, and the decision is made. */

ngx_int_t
ngx_http_idem_claim(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx, ngx_uint_t probe)
{
    int                     rc;
    struct idem_args        args;
    struct idem_error       err;
    struct idem_policy      with;
    ngx_http_idem_claim_t  *claim;

    if (ngx_http_idem_claim_set_args(r, ctx, &args) != NGX_OK) {
        return NGX_ERROR;
    }

    args.probe = probe;

    if (ctx->guard == NGX_HTTP_IDEM_SHADOW) {                      /* shadow mode never waits */
        ngx_memzero(&with, sizeof(struct idem_policy));
        with.wait_ms = IDEM_NONE;
        args.with = &with;
    }

    claim = ngx_http_idem_claim_new();
    if (claim == NULL) {
        return NGX_ERROR;
    }

    rc = idem_claim_make_fingerprinted(ctx->conf->store->h, ctx->conf->guard, &args,
                                       &ctx->key.fingerprint, ngx_http_idem_claim_answer_handler,
                                       claim, &claim->core, &err);
    if (rc != 0) {
        ngx_log_error(NGX_LOG_ERR, r->connection->log, 0, "idem: %s", err.text);
        ngx_http_idem_claim_free(claim);
        return NGX_ERROR;
    }

    if (ctx->conf->store->h == NULL) {

        /* an unguarded run passes the hash to the backend */

        ngx_http_idem_decision_set_hash(ctx, claim->core);
        ngx_http_idem_decision_set_kind(ctx, NGX_HTTP_IDEM_NO_STORE);
        ngx_http_idem_claim_free(claim);
        ngx_http_idem_metric_store_unavailable(ctx->conf->store);

        return NGX_ABORT;
    }

    ngx_http_idem_claim_start(ctx, claim);

    return NGX_OK;
}


ngx_int_t
ngx_http_idem_claim_named(ngx_http_idem_ctx_t *ctx, struct idem_record_key *key)
{
    struct idem_error       err;
    ngx_http_idem_claim_t  *claim;

    claim = ngx_http_idem_claim_new();
    if (claim == NULL) {
        return NGX_ERROR;
    }

    if (idem_claim_make_named(ctx->conf->guard, key, ngx_http_idem_claim_answer_handler, claim,
                              &claim->core, &err)
        != 0)
    {
        ngx_log_error(NGX_LOG_ERR, ngx_cycle->log, 0, "idem: %s", err.text);
        ngx_http_idem_claim_free(claim);
        return NGX_ERROR;
    }

    ngx_http_idem_claim_start(ctx, claim);

    return NGX_OK;
}


/* Resumes the request with the store's response. */

static void
ngx_http_idem_claim_answer_handler(struct idem_claim *core, int rc,
    const struct idem_answer *answer, const struct idem_error *err, void *data)
{
    ngx_http_request_t     *r;
    ngx_http_idem_claim_t  *claim = data;
    ngx_http_idem_ctx_t    *ctx;

    ctx = claim->ctx;
    r = ctx->request;

    ngx_http_idem_ctx_set_state(ctx, NGX_HTTP_IDEM_ANSWERED);
    ngx_http_idem_decision_wait_end(ctx);

    if (rc == 0) {
        ngx_http_idem_decision_take(ctx, core, answer);

    } else if (ngx_http_idem_decision_no_store(ctx, err->text) != NGX_OK
               || ctx->guard == NGX_HTTP_IDEM_SHADOW || ctx->sweep)
    {
        /* otherwise the refusal's line contains it */

        ngx_log_error(NGX_LOG_ERR, r->connection->log, 0, "idem: record %s: %s",
                      ctx->decision.hash, err->text);
    }

    /* only a run or a probe keeps its claim */

    if (ctx->decision.kind != NGX_HTTP_IDEM_VERDICT
        || (ctx->decision.verdict != IDEM_RUN && ctx->decision.verdict != IDEM_PROBE))
    {
        ngx_http_idem_claim_free(claim);
    }

    ngx_http_idem_handler_resume(r);
}


/*
 * True if the lease was lost and the backend's response is no longer awaited,
 * because another request may run by now. A run that was superseded after its
 * request was sent still waits: its client gets the response, although it is not
 * stored.
 */

ngx_uint_t
ngx_http_idem_claim_is_lost(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx)
{
    ngx_http_idem_claim_t  *claim = ctx->claim;

    return claim && claim->lost
           && (claim->lost != IDEM_END_TAKEN || !ngx_http_idem_upstream_was_sent(r, ctx));
}


static void
ngx_http_idem_claim_cancel_handler(ngx_event_t *ev)
{
    enum idem_end           why;
    ngx_uint_t              cancel;
    ngx_http_idem_ctx_t    *ctx;
    ngx_http_idem_claim_t  *claim = ev->data;

    ctx = claim->ctx;
    why = claim->lost;

    if (ctx == NULL) {
        return;
    }

    cancel = ngx_http_idem_upstream_may_cancel(ctx->request, ctx)
             && ngx_http_idem_claim_is_lost(ctx->request, ctx);

    ngx_log_error(NGX_LOG_WARN, ctx->request->connection->log, 0, "idem: record %s: %s%s",
                  ctx->decision.hash,
                  why == IDEM_END_RUN_MAX ? "it takes longer than idem_run_max"
                  : why == IDEM_END_LEASE ? "its lease is over, and could not be renewed"
                                          : "another owner has taken over",
                  cancel ? ": cancelled" : "");

    if (cancel) {
        ngx_http_idem_upstream_cancel(ctx->request, ctx, why);
    }
}


/*
 * A worker that was blocked may notice the lost lease before it reads what the
 * backend has sent meanwhile. The timer lets it read that first. After the
 * outcome is handed over there is nothing to cancel, and the store decides.
 */

static void
ngx_http_idem_claim_lost_handler(struct idem_claim *core, enum idem_end why, void *data)
{
    ngx_http_idem_claim_t  *claim = data;

    claim->lost = why;
    claim->cancel.handler = ngx_http_idem_claim_cancel_handler;
    claim->cancel.data = claim;
    claim->cancel.log = ngx_cycle->log;
    ngx_add_timer(&claim->cancel, 1);
}


/* Sends a response that was held long enough; its outcome is still being stored. */

static void
ngx_http_idem_claim_hold_handler(ngx_event_t *ev)
{
    ngx_http_idem_claim_t  *claim = ev->data;
    ngx_http_idem_ctx_t    *ctx = claim->ctx;

    if (ctx == NULL) {
        return;
    }

    ngx_log_error(NGX_LOG_ERR, ctx->request->connection->log, 0,
                  "idem: record %s: the store did not confirm the outcome within "
                  "idem_finish_timeout; the client gets its response, and storing is tried for "
                  "another minute", ctx->decision.hash);

    ngx_http_idem_decision_wait_end(ctx);
    ngx_http_idem_claim_separate(ctx);

    ngx_http_idem_capture_resume(ctx);
}


static const char *
ngx_http_idem_claim_unknown_reason(ngx_http_idem_ctx_t *ctx)
{
    if (ctx->probe.reason) {
        return ctx->probe.reason;
    }

    if (ctx->backend.cancelled) {
        return ctx->backend.cancelled == IDEM_END_RUN_MAX
               ? "cancelled after idem_run_max" : "cancelled because its lease was lost";
    }

    return ctx->response.arrived == NGX_HTTP_IDEM_CUT
           ? "the backend's response was cut off"
           : "the backend was asked, and gave no response of its own";
}


static int
ngx_http_idem_claim_submit(ngx_http_idem_ctx_t *ctx, ngx_uint_t outcome, ngx_uint_t status,
    u_char *result, size_t len)
{
    ngx_http_idem_claim_t  *claim = ctx->claim;

    switch (outcome) {

    case NGX_HTTP_IDEM_DONE:

        if (result == NULL && ctx->conf->policy->mode == IDEM_MODE_REPLAY) {
            ngx_http_idem_metric_count(ctx->conf, BOARD_NOT_KEPT);
        }

        return idem_claim_done(claim->core, (int32_t) status, result, len,
                               ngx_http_idem_claim_finish_handler, claim);

    case NGX_HTTP_IDEM_RELEASE:
        return idem_claim_release(claim->core, ngx_http_idem_claim_finish_handler, claim);

    case NGX_HTTP_IDEM_KEEP:
    case NGX_HTTP_IDEM_RETRY:
        return idem_claim_fail(claim->core, (int32_t) status, "the backend failed", result, len,
                               outcome == NGX_HTTP_IDEM_KEEP,
                               ngx_http_idem_claim_finish_handler, claim);

    default:

        if (ctx->decision.verdict == IDEM_RUN) {
            ngx_http_idem_metric_count(ctx->conf, BOARD_UNKNOWN);
        }

        return idem_claim_unknown(claim->core, ngx_http_idem_claim_unknown_reason(ctx),
                                  ngx_http_idem_claim_finish_handler, claim);
    }
}


/*
 * Hands the outcome to the store, once. If there is still a request, its
 * response is held until the store confirms.
 */

void
ngx_http_idem_claim_finish(ngx_http_idem_ctx_t *ctx, ngx_uint_t outcome,
    ngx_uint_t status, u_char *result, size_t len)
{
    int                        rc;
    struct idem_claim         *core;
    ngx_http_idem_claim_t     *claim;
    const struct idem_policy  *policy;

    claim = ctx->claim;
    core = claim->core;
    policy = ctx->conf->policy;
    claim->handed = result ? NGX_HTTP_IDEM_HANDED_RESULT : NGX_HTTP_IDEM_HANDED_OUTCOME;

    ngx_http_idem_decision_wait_begin(ctx);

    if (ctx->backend.ttl) {
        idem_claim_set_ttl(core, ctx->backend.ttl);
    }

    idem_claim_set_finish_timeout(core, policy->finish_timeout_ms + NGX_HTTP_IDEM_FINISH_MORE);

    /* capture.c limits the body, and has the result in its bytes */

    idem_claim_set_result_max(core, IDEM_RESULT_MAX + IDEM_HTTP_HEAD_MAX);
    idem_claim_share_result(core, result ? ctx->response.shared : NULL);

    rc = ngx_http_idem_claim_submit(ctx, outcome, status, result, len);

    if (rc != 0) {
        ngx_log_error(NGX_LOG_ALERT, ngx_cycle->log, 0,
                      "idem: record %s: could not store the outcome: %s", ctx->decision.hash,
                      idem_code_name(rc));
        ngx_http_idem_claim_free(claim);
        return;
    }

    claim->hold.handler = ngx_http_idem_claim_hold_handler;
    claim->hold.data = claim;
    claim->hold.log = ngx_cycle->log;
    ngx_add_timer(&claim->hold, (ngx_msec_t) policy->finish_timeout_ms);
}


static void
ngx_http_idem_claim_finish_handler(struct idem_claim *core, int rc, bool lost,
    const struct idem_error *err, void *data)
{
    ngx_log_t              *log;
    ngx_uint_t              dropped;
    ngx_http_idem_claim_t  *claim = data;
    ngx_http_idem_ctx_t    *ctx;

    ctx = claim->ctx;
    log = ctx ? ctx->request->connection->log : ngx_cycle->log;

    if (rc != 0) {
        ngx_log_error(NGX_LOG_ERR, log, 0, "idem: record %s: %s", idem_claim_hash(core),
                      err->text);

    } else if (lost) {
        ngx_log_error(NGX_LOG_WARN, log, 0,
                      "idem: record %s: superseded while the backend worked: nothing was "
                      "stored", idem_claim_hash(core));
    }

    dropped = (rc == 0 && !lost && claim->handed == NGX_HTTP_IDEM_HANDED_RESULT
               && !idem_claim_result_kept(core));

    if (dropped) {
        ngx_log_error(NGX_LOG_ERR, log, 0,
                      "idem: record %s: the store has no room for the result: it is stored as "
                      "done without it, and duplicates get 409; make room, or lower "
                      "idem_result_max", idem_claim_hash(core));
    }

    ngx_http_idem_claim_free(claim);

    if (ctx == NULL) {
        return;
    }

    if (dropped) {
        ngx_http_idem_capture_set_kept(ctx, NGX_HTTP_IDEM_NOT_KEPT);
        ngx_http_idem_metric_count(ctx->conf, BOARD_NOT_KEPT);
    }

    ngx_http_idem_decision_wait_end(ctx);

    if (lost) {
        ngx_http_idem_capture_set_kept(ctx, NGX_HTTP_IDEM_LOST);
        ngx_http_idem_decision_set_word(ctx, "lost");
    }

    ngx_http_idem_capture_resume(ctx);
}


/* From now on the claim lives on its own, until the store responds. */

void
ngx_http_idem_claim_separate(ngx_http_idem_ctx_t *ctx)
{
    if (ctx->claim) {
        ctx->claim->ctx = NULL;
        ctx->claim = NULL;
    }
}


/* Called when the request ends. */

void
ngx_http_idem_claim_detach(ngx_http_idem_ctx_t *ctx)
{
    ngx_http_idem_claim_t  *claim = ctx->claim;

    ngx_http_idem_upstream_drop(ctx);

    if (claim == NULL) {
        return;
    }

    switch (ctx->state) {

    case NGX_HTTP_IDEM_RUNNING:

        /* the response was not complete */

        ngx_http_idem_claim_finish(ctx,
                                   ctx->backend.accel == NGX_HTTP_IDEM_ACCEL_STATED
                                   ? ctx->backend.outcome
                                   : ngx_http_idem_upstream_was_sent(ctx->request, ctx)
                                     ? NGX_HTTP_IDEM_UNKNOWN : NGX_HTTP_IDEM_RELEASE,
                                   0, NULL, 0);
        break;

    case NGX_HTTP_IDEM_ANSWERED:

        /* granted, but nothing has begun */

        ngx_http_idem_claim_finish(ctx, ctx->decision.verdict == IDEM_PROBE ? NGX_HTTP_IDEM_UNKNOWN
                                                                  : NGX_HTTP_IDEM_RELEASE,
                                   0, NULL, 0);
        break;

    case NGX_HTTP_IDEM_PROBING:
    case NGX_HTTP_IDEM_PROBED:

        ngx_http_idem_claim_finish(ctx, NGX_HTTP_IDEM_UNKNOWN, 0, NULL, 0);
        break;

    default:

        /* the store has not responded: the claim is given back in the background */

        if (claim->handed == NGX_HTTP_IDEM_HANDED_NOTHING) {
            ngx_http_idem_claim_free(claim);
            return;
        }
    }

    ngx_http_idem_claim_separate(ctx);
}
