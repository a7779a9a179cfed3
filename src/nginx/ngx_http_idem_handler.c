
/*
 * Leads a request: reads its body (and hashes it on arrival), claims its key, and
 * acts on the verdict.
 *
 * The handler stands in the precontent phase, after authentication, and is called
 * again each time the request goes on. A parked request holds nothing but its
 * connection.
 */

#include "ngx_http_idem.h"
#include "base/error.h"


ngx_http_request_body_filter_pt  ngx_http_idem_next_request_body_filter;


static ngx_int_t ngx_http_idem_handler_begin(ngx_http_request_t *r, ngx_http_idem_loc_conf_t *conf,
    ngx_uint_t guarded);
static void ngx_http_idem_handler_body_handler(ngx_http_request_t *r);
static void ngx_http_idem_handler_park(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx,
    ngx_http_idem_state_e state);
static void ngx_http_idem_handler_claim(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx);
static void ngx_http_idem_handler_continue(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx,
    ngx_int_t rc);
static ngx_int_t ngx_http_idem_handler_apply_verdict(ngx_http_request_t *r,
    ngx_http_idem_ctx_t *ctx);


/* An internal redirect clears the contexts of all modules: ours is found through its cleanup. */

ngx_http_idem_ctx_t *
ngx_http_idem_ctx_find(ngx_http_request_t *r)
{
    ngx_http_cleanup_t   *cln;
    ngx_http_idem_ctx_t  *ctx;

    ctx = ngx_http_get_module_ctx(r, ngx_http_idem_module);

    if (ctx || !r->internal || r != r->main) {
        return ctx;
    }

    for (cln = r->cleanup; cln; cln = cln->next) {
        if (cln->handler == ngx_http_idem_handler_cleanup) {
            ctx = cln->data;
            ngx_http_set_ctx(r, ctx, ngx_http_idem_module);
            return ctx;
        }
    }

    return NULL;
}


void
ngx_http_idem_handler_cleanup(void *data)
{
    ngx_http_idem_ctx_t  *ctx = data;

    ngx_http_idem_claim_detach(ctx);
    ngx_http_idem_probe_tx_drop(ctx);
    ngx_http_idem_sign_drop(ctx);
    ngx_http_idem_gunzip_drop(ctx);
    idem_http_measure_drop(&ctx->measure);

    if (ctx->max.timer_set) {
        ngx_del_timer(&ctx->max);
    }

    if (ctx->hashing) {
        idem_sha_fail(&ctx->body_sha);
    }

    if (ctx->hashing512) {
        idem_sha512_fail(&ctx->body_sha512);
    }

    if (ctx->streaming) {
        idem_sha_fail(&ctx->stream.parts);
    }

    if (ctx->round) {
        ngx_http_idem_probe_sweep_done(ctx);
    }
}


static void
ngx_http_idem_handler_wrap_content(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx)
{
    if (r->content_handler) {
        ctx->content = r->content_handler;
        r->content_handler = ngx_http_idem_upstream_content_handler;
    }
}


ngx_int_t
ngx_http_idem_handler(ngx_http_request_t *r)
{
    ngx_int_t                  rc;
    char                       uri[IDEM_QUOTE_TEXT];
    ngx_uint_t                 accel, guarded, status;
    ngx_http_idem_ctx_t       *ctx;
    ngx_http_idem_loc_conf_t  *conf;

    if (r != r->main) {
        return NGX_DECLINED;
    }

    ctx = ngx_http_idem_ctx_find(r);

    if (ctx == NULL) {
        conf = ngx_http_get_module_loc_conf(r, ngx_http_idem_module);

        if ((conf->guard || conf->sign) && ngx_http_idem_strip(r, conf) != NGX_OK) {
            return NGX_ERROR;
        }

        guarded = (conf->guard && !conf->issues && ngx_http_idem_conf_is_guarded(r, conf));

        return guarded || conf->sign ? ngx_http_idem_handler_begin(r, conf, guarded) : NGX_DECLINED;
    }

    if (r->post_action) {

        /*
         * The client has its response, or has disconnected: a post_action is not part of
         * the guarded request.
         */

        ngx_http_idem_claim_detach(ctx);
        ctx->state = NGX_HTTP_IDEM_PASSED;
        r->buffered &= ~NGX_HTTP_IDEM_BUFFERED;

        rc = ngx_http_idem_sign_check_redirect(r, ctx);

        return rc == NGX_OK ? NGX_DECLINED : rc;
    }

    if (ctx->state >= NGX_HTTP_IDEM_RUNNING) {
        rc = ngx_http_idem_sign_check_redirect(r, ctx);

        if (rc != NGX_OK) {
            return rc;
        }
    }

    switch (ctx->state) {

    case NGX_HTTP_IDEM_READING:

        /* its body could not be read, and error_page led here: only a page may report that */

        ctx->state = NGX_HTTP_IDEM_PASSED;

        if (r->content_handler == NULL
            || (!ctx->conf->sign && !ngx_http_idem_conf_is_guarded(r, ctx->conf)))
        {
            return NGX_DECLINED;
        }

        return r->err_status >= NGX_HTTP_SPECIAL_RESPONSE ? (ngx_int_t) r->err_status
                                                          : NGX_HTTP_BAD_REQUEST;

    case NGX_HTTP_IDEM_SIGNING:
    case NGX_HTTP_IDEM_CLAIMING:
    case NGX_HTTP_IDEM_SETTLING:
        return NGX_DONE;

    case NGX_HTTP_IDEM_PROBING:
        rc = ngx_http_idem_probe(r, ctx);
        return rc == NGX_OK ? ngx_http_idem_handler_apply_verdict(r, ctx) : rc;

    case NGX_HTTP_IDEM_ANSWERED:
        return ngx_http_idem_handler_apply_verdict(r, ctx);

    case NGX_HTTP_IDEM_RUNNING:

        /*
         * Redirected while it ran. A place that the backend itself named is part of its
         * response, and so is an error page that is a file. A second backend is not,
         * after the first one was asked or the lease was lost. In shadow mode the
         * request goes wherever it would go without a guard.
         */

        accel = ngx_http_idem_upstream_is_accel(r->upstream);

        if (accel) {
            ngx_http_idem_upstream_accel(r, ctx);
        }

        if (r->content_handler == NULL) {
            return NGX_DECLINED;
        }

        if (!ctx->enforced) {
            ctx->sent = ngx_http_idem_upstream_was_sent(r, ctx);
            ngx_http_idem_handler_wrap_content(r, ctx);
            return NGX_DECLINED;
        }

        /* lost on the way here (limit_req): there was nothing to cancel */

        if (ngx_http_idem_claim_is_lost(r, ctx)) {
            ngx_http_idem_upstream_mark_cancelled(ctx, ctx->run->lost);
        }

        if (!ctx->cancelled && (accel || !ngx_http_idem_upstream_was_sent(r, ctx))) {

            if (!accel && ngx_http_idem_check_sends_twice(r)) {
                ngx_log_error(NGX_LOG_ERR, r->connection->log, 0,
                              "idem: record %s: not sent to %s, where proxy_next_upstream "
                              "non_idempotent would send it twice", ctx->hash,
                              ngx_http_idem_log_uri(r, uri));
                return NGX_HTTP_BAD_GATEWAY;
            }

            ngx_http_idem_handler_wrap_content(r, ctx);
            return NGX_DECLINED;
        }

        ngx_log_error(NGX_LOG_WARN, r->connection->log, 0,
                      "idem: record %s: not sent to a second backend, %s, %s", ctx->hash,
                      ngx_http_idem_log_uri(r, uri),
                      ctx->cancelled ? "after it was cancelled"
                                     : "after the first one was asked");

        /*
         * proxy_intercept_errors: the backend's status is known, although an error page
         * replaces it
         */

        status = ctx->cancelled || r->upstream == NULL ? 0 : ngx_http_idem_upstream_status(r);

        r->error_page = 1;    /* final, also with recursive_error_pages */

        if (status >= NGX_HTTP_SPECIAL_RESPONSE) {
            return (ngx_int_t) status;
        }

        if (r->err_status >= NGX_HTTP_SPECIAL_RESPONSE) {
            return (ngx_int_t) r->err_status;
        }

        return ctx->cancelled ? NGX_HTTP_GATEWAY_TIME_OUT : NGX_HTTP_BAD_GATEWAY;

    default:
        return NGX_DECLINED;
    }
}


ngx_http_idem_ctx_t *
ngx_http_idem_ctx_new(ngx_http_request_t *r, ngx_http_idem_loc_conf_t *conf)
{
    ngx_http_cleanup_t   *cln;
    ngx_http_idem_ctx_t  *ctx;

    ctx = ngx_pcalloc(r->pool, sizeof(ngx_http_idem_ctx_t));
    cln = ngx_http_cleanup_add(r, 0);

    if (ctx == NULL || cln == NULL) {
        return NULL;
    }

    cln->handler = ngx_http_idem_handler_cleanup;
    cln->data = ctx;

    ngx_http_set_ctx(r, ctx, ngx_http_idem_module);

    ctx->request = r;
    ctx->conf = conf;
    ctx->enforced = 1;

    return ctx;
}


static ngx_int_t
ngx_http_idem_handler_begin(ngx_http_request_t *r, ngx_http_idem_loc_conf_t *conf,
    ngx_uint_t guarded)
{
    ngx_int_t              rc;
    ngx_http_idem_ctx_t   *ctx;
    enum idem_http_type    type;
    struct idem_http_text  text;

    ctx = ngx_http_idem_ctx_new(r, conf);
    if (ctx == NULL) {
        return NGX_ERROR;
    }

    ctx->state = NGX_HTTP_IDEM_READING;
    ctx->unclaimed = !guarded;

    if (r->headers_in.content_type) {
        text = ngx_http_idem_text(&r->headers_in.content_type->value);
        type = idem_http_type_read(text);
        ctx->json = (type == IDEM_HTTP_JSON);
        ctx->form = (type == IDEM_HTTP_FORM);
        (void) idem_http_delimiter_read(text, &ctx->delimiter);
    }

    ngx_http_idem_fingerprint_start(r, ctx);

    rc = ngx_http_read_client_request_body(r, ngx_http_idem_handler_body_handler);

    if (rc >= NGX_HTTP_SPECIAL_RESPONSE) {
        return rc;
    }

    ngx_http_finalize_request(r, NGX_DONE);

    return NGX_DONE;
}


ngx_int_t
ngx_http_idem_handler_request_body_filter(ngx_http_request_t *r, ngx_chain_t *in)
{
    size_t                len;
    ngx_chain_t          *cl;
    ngx_http_idem_ctx_t  *ctx;

    ctx = ngx_http_get_module_ctx(r, ngx_http_idem_module);

    if (ctx && r == r->main && ctx->state == NGX_HTTP_IDEM_READING) {
        for (cl = in; cl; cl = cl->next) {
            len = ngx_buf_in_memory(cl->buf) ? (size_t) (cl->buf->last - cl->buf->pos) : 0;

            if (len && ctx->streaming) {
                ngx_http_idem_fingerprint_add(ctx, cl->buf->pos, len);
            }

            if (len && ctx->hashing) {
                idem_sha_add(&ctx->body_sha, cl->buf->pos, len);
            }

            if (len && ctx->hashing512) {
                idem_sha512_add(&ctx->body_sha512, cl->buf->pos, len);
            }
        }
    }

    return ngx_http_idem_next_request_body_filter(r, in);
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

    ctx->enforced = !(value.len == 0 || (value.len == 1 && value.data[0] == '0')
                      || (value.len == 3 && ngx_strncmp(value.data, "off", 3) == 0));

    return NGX_OK;
}


static void
ngx_http_idem_handler_body_handler(ngx_http_request_t *r)
{
    ngx_int_t             rc;
    ngx_http_idem_ctx_t  *ctx;

    ctx = ngx_http_get_module_ctx(r, ngx_http_idem_module);

    if (ctx->hashing) {
        ctx->hashing = 0;
        ctx->hashed = (idem_sha_end(&ctx->body_sha, ctx->body_hash) == 0);
    }

    if (ctx->hashing512) {
        ctx->hashing512 = 0;
        ctx->hashed512 = (idem_sha512_end(&ctx->body_sha512, ctx->body_hash512) == 0);
    }

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
    ctx->state = state;

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

    } else if (ctx->unclaimed) {
        ctx->verdict = "signed";
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

    rc = ngx_http_idem_key_identify(r, ctx, &ctx->print);

    if (ngx_http_idem_handler_set_enforced(r, ctx) != NGX_OK) {
        rc = NGX_ERROR;
    }

    if (rc == NGX_OK) {
        rc = ngx_http_idem_claim(r, ctx, 0, &ctx->print);

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

    ctx->state = (rc == NGX_DECLINED) ? NGX_HTTP_IDEM_PASSED : NGX_HTTP_IDEM_ANSWERED;

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

    if (ctx->round) {
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
    ctx->state = NGX_HTTP_IDEM_PASSED;

    if (!ctx->enforced) {
        return NGX_DECLINED;
    }

    r->content_handler = handler;

    return NGX_OK;
}


static ngx_int_t
ngx_http_idem_handler_refuse(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx,
    enum idem_http_problem_kind problem, const char *verdict)
{
    ngx_http_idem_reply_set_problem(ctx, problem, verdict);

    return ngx_http_idem_handler_respond(r, ctx, ngx_http_idem_reply_refuse_handler);
}


static ngx_int_t
ngx_http_idem_handler_run(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx)
{
    ctx->state = NGX_HTTP_IDEM_RUNNING;
    ctx->verdict = ctx->unguarded ? "open" : "run";

    if (ctx->run == NULL && !ctx->unguarded) {
        return NGX_ERROR;
    }

    if (ngx_http_idem_upstream_request_headers(r, ctx) != NGX_OK) {
        return NGX_ERROR;
    }

    if (ctx->unguarded) {
        ngx_http_idem_claim_start_run_max(ctx);
    }

    ngx_http_idem_handler_wrap_content(r, ctx);

    return NGX_DECLINED;
}


/* Acts on the verdict. */

static ngx_int_t
ngx_http_idem_handler_apply_verdict(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx)
{
    if (ctx->refused) {        /* before the store was asked */
        return ngx_http_idem_handler_refuse(r, ctx, ctx->problem, ctx->verdict);
    }

    if (ctx->code != 0) {

        /* a token never runs unguarded */

        if (ctx->conf->store->h == NULL
            && ctx->conf->policy->on_store_error == IDEM_ON_STORE_ERROR_OPEN
            && ctx->conf->key->kind != NGX_HTTP_IDEM_KEY_TOKEN)
        {
            ctx->unguarded = 1;
            return ngx_http_idem_handler_run(r, ctx);
        }

        return ngx_http_idem_handler_refuse(r, ctx, IDEM_HTTP_STORE_UNAVAILABLE, "store_error");
    }

    switch (ctx->answer) {

    case IDEM_RUN:
        return ngx_http_idem_handler_run(r, ctx);

    case IDEM_REPLAY:
        ctx->verdict = "replay";
        return ngx_http_idem_handler_respond(r, ctx, ngx_http_idem_reply_replay_handler);

    case IDEM_DEAD:

        if (ctx->has_result && ctx->conf->policy->mode == IDEM_MODE_REPLAY) {
            ctx->verdict = "dead";
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

        if (ctx->conf->probe && ctx->enforced && !ctx->probed) {
            return ngx_http_idem_probe(r, ctx);
        }

        return ngx_http_idem_handler_refuse(r, ctx, IDEM_HTTP_UNCERTAIN, "uncertain");

    default:
        return ngx_http_idem_handler_refuse(r, ctx, IDEM_HTTP_TOKEN_REFUSED, "no_token");
    }
}
