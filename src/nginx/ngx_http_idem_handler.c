
/*
 * Leads a request: reads its body (and hashes it on arrival), claims its key, and
 * acts on the verdict.
 *
 * The handler stands in the precontent phase, after authentication, and is called
 * again each time the request goes on. A parked request holds nothing but its
 * connection.
 */

#include "ngx_http_idem.h"


static ngx_int_t ngx_http_idem_handler_begin(ngx_http_request_t *r, ngx_http_idem_loc_conf_t *conf,
    ngx_uint_t guarded);
static void ngx_http_idem_handler_body_handler(ngx_http_request_t *r);
static void ngx_http_idem_handler_park(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx,
    ngx_http_idem_state_e state);
static void ngx_http_idem_handler_claim(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx);
static void ngx_http_idem_handler_continue(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx,
    ngx_int_t rc);
static ngx_int_t ngx_http_idem_handler_decide(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx);
static ngx_int_t ngx_http_idem_handler_apply_verdict(ngx_http_request_t *r,
    ngx_http_idem_ctx_t *ctx);


/* The request has no context: it comes for the first time, or is neither guarded nor signed. */

static ngx_int_t
ngx_http_idem_handler_enter(ngx_http_request_t *r)
{
    ngx_uint_t                 guarded;
    ngx_http_idem_loc_conf_t  *conf;

    conf = ngx_http_get_module_loc_conf(r, ngx_http_idem_module);

    if ((conf->guard || conf->sign) && ngx_http_idem_strip(r, conf) != NGX_OK) {
        return NGX_ERROR;
    }

    guarded = (conf->guard && !conf->issues && ngx_http_idem_conf_is_guarded(r, conf));

    return guarded || conf->sign ? ngx_http_idem_handler_begin(r, conf, guarded) : NGX_DECLINED;
}


/*
 * The client has its response, or has disconnected: a post_action is not part of
 * the guarded request.
 */

static ngx_int_t
ngx_http_idem_handler_post_action(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx)
{
    ngx_int_t  rc;

    ngx_http_idem_claim_detach(ctx);
    ngx_http_idem_ctx_set_state(ctx, NGX_HTTP_IDEM_PASSED);
    r->buffered &= ~NGX_HTTP_IDEM_BUFFERED;

    rc = ngx_http_idem_sign_check_redirect(r, ctx);

    return rc == NGX_OK ? NGX_DECLINED : rc;
}


/*
 * Its body could not be read, and error_page led here: error_page may show a page,
 * but a backend must not run.
 */

static ngx_int_t
ngx_http_idem_handler_unread(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx)
{
    ngx_http_idem_ctx_set_state(ctx, NGX_HTTP_IDEM_PASSED);

    if (r->content_handler == NULL
        || (!ctx->conf->sign && !ngx_http_idem_conf_is_guarded(r, ctx->conf)))
    {
        return NGX_DECLINED;
    }

    return r->err_status >= NGX_HTTP_SPECIAL_RESPONSE ? (ngx_int_t) r->err_status
                                                      : NGX_HTTP_BAD_REQUEST;
}


ngx_int_t
ngx_http_idem_handler(ngx_http_request_t *r)
{
    ngx_int_t             rc;
    ngx_http_idem_ctx_t  *ctx;

    if (r != r->main) {
        return NGX_DECLINED;
    }

    ctx = ngx_http_idem_ctx_find(r);

    if (ctx == NULL) {
        return ngx_http_idem_handler_enter(r);
    }

    if (r->post_action) {
        return ngx_http_idem_handler_post_action(r, ctx);
    }

    if (ctx->state >= NGX_HTTP_IDEM_RUNNING) {
        rc = ngx_http_idem_sign_check_redirect(r, ctx);

        if (rc != NGX_OK) {
            return rc;
        }
    }

    switch (ctx->state) {

    case NGX_HTTP_IDEM_READING:
        return ngx_http_idem_handler_unread(r, ctx);

    case NGX_HTTP_IDEM_SIGNING:
    case NGX_HTTP_IDEM_CLAIMING:
    case NGX_HTTP_IDEM_SETTLING:
        return NGX_DONE;

    case NGX_HTTP_IDEM_PROBING:
        return NGX_AGAIN;

    case NGX_HTTP_IDEM_PROBED:
        rc = ngx_http_idem_probe_finish(r, ctx);
        return rc == NGX_OK ? ngx_http_idem_handler_decide(r, ctx) : rc;

    case NGX_HTTP_IDEM_ANSWERED:
        return ngx_http_idem_handler_decide(r, ctx);

    case NGX_HTTP_IDEM_RUNNING:
        return ngx_http_idem_upstream_redirect(r, ctx);

    default:
        return NGX_DECLINED;
    }
}


static ngx_int_t
ngx_http_idem_handler_begin(ngx_http_request_t *r, ngx_http_idem_loc_conf_t *conf,
    ngx_uint_t guarded)
{
    ngx_int_t             rc;
    ngx_http_idem_ctx_t  *ctx;

    ctx = ngx_http_idem_ctx_new(r, conf);
    if (ctx == NULL) {
        return NGX_ERROR;
    }

    ngx_http_idem_ctx_set_state(ctx, NGX_HTTP_IDEM_READING);
    ngx_http_idem_ctx_set_guard(ctx, guarded ? NGX_HTTP_IDEM_ENFORCED : NGX_HTTP_IDEM_SIGNED_ONLY);

    ngx_http_idem_fingerprint_start(r, ctx);

    rc = ngx_http_read_client_request_body(r, ngx_http_idem_handler_body_handler);

    if (rc >= NGX_HTTP_SPECIAL_RESPONSE) {
        return rc;
    }

    ngx_http_finalize_request(r, NGX_DONE);

    return NGX_DONE;
}


/*
 * Evaluates idem_enforce: off is shadow mode. Called when the body is there,
 * because idem_set may read it, and when the scope is known, which is #user.
 */

static ngx_int_t
ngx_http_idem_handler_set_enforced(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx)
{
    ngx_str_t  value;

    if (ctx->conf->enforce == NULL) {
        return NGX_OK;
    }

    if (ngx_http_complex_value(r, ctx->conf->enforce, &value) != NGX_OK) {
        return NGX_ERROR;
    }

    if (value.len == 0 || idem_is_word(value.data, value.len, "0")
        || idem_is_word(value.data, value.len, "off"))
    {
        ngx_http_idem_ctx_set_guard(ctx, NGX_HTTP_IDEM_SHADOW);
    }

    return NGX_OK;
}


static void
ngx_http_idem_handler_body_handler(ngx_http_request_t *r)
{
    ngx_int_t             rc;
    ngx_http_idem_ctx_t  *ctx;

    ctx = ngx_http_get_module_ctx(r, ngx_http_idem_module);

    ngx_http_idem_fingerprint_end(ctx);

    r->preserve_body = 1;

    if (ctx->conf->sign == NULL) {
        ngx_http_idem_handler_claim(r, ctx);
        return;
    }

    rc = ngx_http_idem_sign(r, ctx);

    if (rc == NGX_AGAIN) {
        ngx_http_idem_handler_park(r, ctx, NGX_HTTP_IDEM_SIGNING);
        return;
    }

    ngx_http_idem_handler_continue(r, ctx, rc);
}


/* Suspends the request until the store responds. A client that disconnects is dropped. */

static void
ngx_http_idem_handler_park(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx,
    ngx_http_idem_state_e state)
{
    ngx_http_idem_ctx_set_state(ctx, state);

    r->read_event_handler = ngx_http_test_reading;
    r->write_event_handler = ngx_http_request_empty_handler;

    if (r->connection->read->ready) {
        ngx_post_event(r->connection->read, &ngx_posted_events);
    }
}


/* Continues after the store has checked the nonce, from outside the request's own events. */

void
ngx_http_idem_handler_signed(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx, ngx_int_t rc)
{
    ngx_connection_t  *c = r->connection;

    if (rc != NGX_OK) {
        ngx_http_idem_handler_continue(r, ctx, rc);

    } else if (ctx->guard == NGX_HTTP_IDEM_SIGNED_ONLY) {
        ngx_http_idem_decision_set_word(ctx, "signed");
        ngx_http_idem_handler_continue(r, ctx, NGX_DECLINED);

    } else {
        ngx_http_idem_handler_claim(r, ctx);
    }

    ngx_http_run_posted_requests(c);
}


static void
ngx_http_idem_handler_claim(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx)
{
    ngx_int_t  rc;

    rc = ngx_http_idem_key_identify(r, ctx);

    if (ngx_http_idem_handler_set_enforced(r, ctx) != NGX_OK) {
        rc = NGX_ERROR;
    }

    if (rc == NGX_OK) {
        rc = ngx_http_idem_claim(r, ctx, 0);

        if (rc == NGX_OK) {
            ngx_http_idem_handler_park(r, ctx, NGX_HTTP_IDEM_CLAIMING);
            return;
        }
    }

    ngx_http_idem_handler_continue(r, ctx, rc);
}


/* Continues a request that needs no claim, or is not guarded. */

static void
ngx_http_idem_handler_continue(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx, ngx_int_t rc)
{
    if (rc == NGX_ERROR) {
        ngx_http_finalize_request(r, NGX_HTTP_INTERNAL_SERVER_ERROR);
        return;
    }

    ngx_http_idem_ctx_set_state(ctx, rc == NGX_DECLINED ? NGX_HTTP_IDEM_PASSED
                                                        : NGX_HTTP_IDEM_ANSWERED);

    r->read_event_handler = ngx_http_block_reading;
    r->write_event_handler = ngx_http_core_run_phases;
    ngx_http_core_run_phases(r);
}


/* Continues from outside the request's own events. */

void
ngx_http_idem_handler_resume(ngx_http_request_t *r)
{
    ngx_connection_t     *c = r->connection;
    ngx_http_idem_ctx_t  *ctx = ngx_http_get_module_ctx(r, ngx_http_idem_module);

    ngx_http_set_log_request(c->log, r);

    if (ctx->sweep) {
        ngx_http_idem_probe_sweep_resume(r, ctx);
        return;
    }

    r->read_event_handler = ngx_http_block_reading;
    r->write_event_handler = ngx_http_core_run_phases;

    ngx_http_core_run_phases(r);

    ngx_http_run_posted_requests(c);
}


/* We respond instead of the location: mirrors and try_files do not see the request. */

static ngx_int_t
ngx_http_idem_handler_respond(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx,
    ngx_http_handler_pt handler)
{
    ngx_http_idem_ctx_set_state(ctx, NGX_HTTP_IDEM_PASSED);

    if (ctx->guard == NGX_HTTP_IDEM_SHADOW) {
        return NGX_DECLINED;
    }

    r->content_handler = handler;

    return NGX_OK;
}


static ngx_int_t
ngx_http_idem_handler_refuse(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx,
    enum idem_http_problem_kind problem, const char *verdict)
{
    (void) ngx_http_idem_decision_refuse(ctx, problem, verdict, NULL);

    return ngx_http_idem_handler_respond(r, ctx, ngx_http_idem_reply_refuse_handler);
}


static ngx_int_t
ngx_http_idem_handler_run(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx)
{
    ngx_uint_t  open = (ctx->decision.kind == NGX_HTTP_IDEM_UNGUARDED);

    ngx_http_idem_ctx_set_state(ctx, NGX_HTTP_IDEM_RUNNING);
    ngx_http_idem_decision_set_word(ctx, open ? "open" : "run");

    if (ctx->claim == NULL && !open) {
        return NGX_ERROR;
    }

    if (ngx_http_idem_upstream_request_headers(r, ctx) != NGX_OK) {
        return NGX_ERROR;
    }

    if (open) {
        ngx_http_idem_upstream_start_run_max(ctx);
    }

    ngx_http_idem_upstream_wrap_content(r, ctx);

    return NGX_DECLINED;
}


static ngx_int_t
ngx_http_idem_handler_decide(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx)
{
    switch (ctx->decision.kind) {

    case NGX_HTTP_IDEM_REFUSED:
        return ngx_http_idem_handler_respond(r, ctx, ngx_http_idem_reply_refuse_handler);

    case NGX_HTTP_IDEM_NO_STORE:

        /* a token never runs unguarded */

        if (ctx->conf->store->h || ctx->conf->key->kind == NGX_HTTP_IDEM_KEY_TOKEN
            || ctx->conf->policy->on_store_error != IDEM_ON_STORE_ERROR_OPEN)
        {
            return ngx_http_idem_handler_refuse(r, ctx, IDEM_HTTP_STORE_UNAVAILABLE,
                                                "store_error");
        }

        ngx_http_idem_decision_set_kind(ctx, NGX_HTTP_IDEM_UNGUARDED);

        /* fall through */

    case NGX_HTTP_IDEM_UNGUARDED:
        return ngx_http_idem_handler_run(r, ctx);

    default:
        return ngx_http_idem_handler_apply_verdict(r, ctx);
    }
}


static ngx_int_t
ngx_http_idem_handler_apply_verdict(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx)
{
    switch (ctx->decision.verdict) {

    case IDEM_RUN:
        return ngx_http_idem_handler_run(r, ctx);

    case IDEM_REPLAY:
        ngx_http_idem_decision_set_word(ctx, "replay");
        return ngx_http_idem_handler_respond(r, ctx, ngx_http_idem_reply_replay_handler);

    case IDEM_DEAD:

        if (ctx->decision.result.data && ctx->conf->policy->mode == IDEM_MODE_REPLAY) {
            ngx_http_idem_decision_set_word(ctx, "dead");
            return ngx_http_idem_handler_respond(r, ctx, ngx_http_idem_reply_replay_handler);
        }

        return ngx_http_idem_handler_refuse(r, ctx, IDEM_HTTP_FAILED, "dead");

    case IDEM_DUPLICATE:
        return ngx_http_idem_handler_refuse(r, ctx, IDEM_HTTP_DUPLICATE, "duplicate");

    case IDEM_BUSY:
        return ngx_http_idem_handler_refuse(r, ctx, IDEM_HTTP_IN_PROGRESS, "busy");

    case IDEM_MISMATCH:
        return ngx_http_idem_handler_refuse(r, ctx, IDEM_HTTP_MISMATCH, "mismatch");

    case IDEM_UNCERTAIN:
    case IDEM_PROBE:

        if (ctx->conf->probe && ctx->guard != NGX_HTTP_IDEM_SHADOW
            && ctx->probe.found == NGX_HTTP_IDEM_UNASKED)
        {
            return ngx_http_idem_probe(r, ctx);
        }

        return ngx_http_idem_handler_refuse(r, ctx, IDEM_HTTP_UNCERTAIN, "uncertain");

    default:
        return ngx_http_idem_handler_refuse(r, ctx, IDEM_HTTP_TOKEN_REFUSED, "no_token");
    }
}
