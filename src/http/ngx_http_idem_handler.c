
/*
 * A request's way: its body is read (and hashed as it comes), its key is
 * claimed, and the verdict says who answers it.
 *
 * The handler stands in the precontent phase, behind authentication, and is
 * entered again each time the request goes on. Requests that are parked hold
 * nothing but their connection.
 */

#include "ngx_http_idem.h"


ngx_http_request_body_filter_pt  ngx_http_idem_next_request_body_filter;


static ngx_int_t ngx_http_idem_begin(ngx_http_request_t *r, ngx_http_idem_loc_conf_t *conf,
    ngx_uint_t guarded);
static void ngx_http_idem_body_handler(ngx_http_request_t *r);
static void ngx_http_idem_park(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx,
    ngx_http_idem_state_e state);
static void ngx_http_idem_ask(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx);
static void ngx_http_idem_go_on(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx, ngx_int_t rc);
static ngx_int_t ngx_http_idem_act(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx);


/* An internal redirect forgets the contexts of all modules: ours is found by its cleanup. */

ngx_http_idem_ctx_t *
ngx_http_idem_ctx(ngx_http_request_t *r)
{
    ngx_http_cleanup_t   *cln;
    ngx_http_idem_ctx_t  *ctx;

    ctx = ngx_http_get_module_ctx(r, ngx_http_idem_module);

    if (ctx || !r->internal || r != r->main) {
        return ctx;
    }

    for (cln = r->cleanup; cln; cln = cln->next) {
        if (cln->handler == ngx_http_idem_cleanup) {
            ctx = cln->data;
            ngx_http_set_ctx(r, ctx, ngx_http_idem_module);
            return ctx;
        }
    }

    return NULL;
}


void
ngx_http_idem_cleanup(void *data)
{
    ngx_http_idem_ctx_t  *ctx = data;

    ngx_http_idem_run_detach(ctx);
    ngx_http_idem_row_drop(ctx);
    ngx_http_idem_sign_drop(ctx);
    ngx_http_idem_unpack_drop(ctx);
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
        ngx_http_idem_round_over(ctx);
    }
}


static void
ngx_http_idem_wrap(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx)
{
    if (r->content_handler) {
        ctx->content = r->content_handler;
        r->content_handler = ngx_http_idem_content_handler;
    }
}


ngx_int_t
ngx_http_idem_handler(ngx_http_request_t *r)
{
    ngx_int_t                  rc;
    ngx_uint_t                 accel, guarded, status;
    ngx_http_idem_ctx_t       *ctx;
    ngx_http_idem_loc_conf_t  *conf;

    if (r != r->main) {
        return NGX_DECLINED;
    }

    ctx = ngx_http_idem_ctx(r);

    if (ctx == NULL) {
        conf = ngx_http_get_module_loc_conf(r, ngx_http_idem_module);

        if ((conf->guard || conf->sign) && ngx_http_idem_strip(r, conf) != NGX_OK) {
            return NGX_ERROR;
        }

        guarded = (conf->guard && !conf->issues && ngx_http_idem_is_guarded(r, conf));

        return guarded || conf->sign ? ngx_http_idem_begin(r, conf, guarded) : NGX_DECLINED;
    }

    if (r->post_action) {

        /* The client has its answer, or has gone: what nginx does behind a request is no part of
           it. */

        ngx_http_idem_run_detach(ctx);
        ctx->state = NGX_HTTP_IDEM_PASSED;
        r->buffered &= ~NGX_HTTP_IDEM_BUFFERED;

        rc = ngx_http_idem_sign_follow(r, ctx);

        return rc == NGX_OK ? NGX_DECLINED : rc;
    }

    if (ctx->state >= NGX_HTTP_IDEM_RUNNING) {
        rc = ngx_http_idem_sign_follow(r, ctx);

        if (rc != NGX_OK) {
            return rc;
        }
    }

    switch (ctx->state) {

    case NGX_HTTP_IDEM_READING:

        /* its body could not be read, and error_page has led here: a page may say so */

        ctx->state = NGX_HTTP_IDEM_PASSED;

        if (r->content_handler == NULL
            || (!ctx->conf->sign && !ngx_http_idem_is_guarded(r, ctx->conf)))
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
        return rc == NGX_OK ? ngx_http_idem_act(r, ctx) : rc;

    case NGX_HTTP_IDEM_ANSWERED:
        return ngx_http_idem_act(r, ctx);

    case NGX_HTTP_IDEM_RUNNING:

        /*
         * Redirected while it ran. Where the backend itself sent it is part of
         * its answer, and so is an error page that is a file; a second backend,
         * after the first one was asked or the lease was lost, is not. In shadow
         * mode it goes wherever it would go without a guard.
         */

        accel = ngx_http_idem_is_accel(r->upstream);

        if (accel) {
            ngx_http_idem_accel(r, ctx);
        }

        if (r->content_handler == NULL) {
            return NGX_DECLINED;
        }

        if (!ctx->enforced) {
            ctx->sent = ngx_http_idem_was_sent(r, ctx);
            ngx_http_idem_wrap(r, ctx);
            return NGX_DECLINED;
        }

        /* lost on the way here (limit_req): there was nothing that could be cancelled */

        if (ngx_http_idem_is_lost(r, ctx)) {
            ngx_http_idem_give_up(ctx, ctx->run->lost);
        }

        if (!ctx->cancelled && (accel || !ngx_http_idem_was_sent(r, ctx))) {

            if (!accel && ngx_http_idem_sends_again(r)) {
                ngx_log_error(NGX_LOG_ERR, r->connection->log, 0,
                              "idem: record %s: not sent to \"%V\", where proxy_next_upstream "
                              "non_idempotent would send it twice", ctx->hash, &r->uri);
                return NGX_HTTP_BAD_GATEWAY;
            }

            ngx_http_idem_wrap(r, ctx);
            return NGX_DECLINED;
        }

        ngx_log_error(NGX_LOG_WARN, r->connection->log, 0,
                      "idem: record %s: not sent to a second backend, \"%V\", %s", ctx->hash,
                      &r->uri, ctx->cancelled ? "after it was cancelled"
                                              : "after the first one was asked");

        /* proxy_intercept_errors: its answer is known, although the page instead of it is not */

        status = ctx->cancelled || r->upstream == NULL ? 0 : ngx_http_idem_upstream_status(r);

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

    cln->handler = ngx_http_idem_cleanup;
    cln->data = ctx;

    ngx_http_set_ctx(r, ctx, ngx_http_idem_module);

    ctx->request = r;
    ctx->conf = conf;
    ctx->enforced = 1;

    return ctx;
}


static ngx_int_t
ngx_http_idem_begin(ngx_http_request_t *r, ngx_http_idem_loc_conf_t *conf, ngx_uint_t guarded)
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

    ngx_http_idem_print_start(r, ctx);

    rc = ngx_http_read_client_request_body(r, ngx_http_idem_body_handler);

    if (rc >= NGX_HTTP_SPECIAL_RESPONSE) {
        return rc;
    }

    ngx_http_finalize_request(r, NGX_DONE);

    return NGX_DONE;
}


ngx_int_t
ngx_http_idem_request_body_filter(ngx_http_request_t *r, ngx_chain_t *in)
{
    size_t                len;
    ngx_chain_t          *cl;
    ngx_http_idem_ctx_t  *ctx;

    ctx = ngx_http_get_module_ctx(r, ngx_http_idem_module);

    if (ctx && r == r->main && ctx->state == NGX_HTTP_IDEM_READING) {
        for (cl = in; cl; cl = cl->next) {
            len = ngx_buf_in_memory(cl->buf) ? (size_t) (cl->buf->last - cl->buf->pos) : 0;

            if (len && ctx->streaming) {
                ngx_http_idem_print_add(ctx, cl->buf->pos, len);
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


/* Whether it is only watched. Asked when the body is there, of which idem_set may make it, and when
   it is known who asks, which is #user. */

static ngx_int_t
ngx_http_idem_enforced(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx)
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
ngx_http_idem_body_handler(ngx_http_request_t *r)
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
        ngx_http_idem_ask(r, ctx);
        return;
    }

    rc = ngx_http_idem_sign(r, ctx);

    if (rc == NGX_AGAIN) {
        ngx_http_idem_park(r, ctx, NGX_HTTP_IDEM_SIGNING);
        return;
    }

    ngx_http_idem_go_on(r, ctx, rc);
}


/* Until the store has answered. Who leaves while he waits is let go. */

static void
ngx_http_idem_park(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx, ngx_http_idem_state_e state)
{
    ctx->state = state;

    r->read_event_handler = ngx_http_test_reading;
    r->write_event_handler = ngx_http_request_empty_handler;

    if (r->connection->read->ready) {
        ngx_post_event(r->connection->read, &ngx_posted_events);
    }
}


/* What the store has said of a nonce: the request goes on, from outside its own events. */

void
ngx_http_idem_signed(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx, ngx_int_t rc)
{
    ngx_connection_t  *c = r->connection;

    if (rc != NGX_OK) {
        ngx_http_idem_go_on(r, ctx, rc);

    } else if (ctx->unclaimed) {
        ctx->verdict = "signed";
        ngx_http_idem_go_on(r, ctx, NGX_DECLINED);

    } else {
        ngx_http_idem_ask(r, ctx);
    }

    ngx_http_run_posted_requests(c);
}


static void
ngx_http_idem_ask(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx)
{
    ngx_int_t  rc;

    rc = ngx_http_idem_identify(r, ctx, &ctx->print);

    if (ngx_http_idem_enforced(r, ctx) != NGX_OK) {
        rc = NGX_ERROR;
    }

    if (rc == NGX_OK) {
        rc = ngx_http_idem_claim(r, ctx, 0, &ctx->print);

        if (rc == NGX_OK) {
            ngx_http_idem_park(r, ctx, NGX_HTTP_IDEM_CLAIMING);
            return;
        }
    }

    ngx_http_idem_go_on(r, ctx, rc);
}


/* Answered without a claim, or not to be guarded. */

static void
ngx_http_idem_go_on(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx, ngx_int_t rc)
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


/* The request goes on, from outside its own events. */

void
ngx_http_idem_resume(ngx_http_request_t *r)
{
    ngx_connection_t     *c = r->connection;
    ngx_http_idem_ctx_t  *ctx = ngx_http_get_module_ctx(r, ngx_http_idem_module);

    ngx_http_set_log_request(c->log, r);

    if (ctx->round) {
        ngx_http_idem_round_resume(r, ctx);
        return;
    }

    r->read_event_handler = ngx_http_block_reading;
    r->write_event_handler = ngx_http_core_run_phases;

    ngx_http_core_run_phases(r);

    ngx_http_run_posted_requests(c);
}


/* The answer comes from us, and not from the location: neither mirrors nor try_files see it. */

static ngx_int_t
ngx_http_idem_answer_by(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx,
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
ngx_http_idem_refuse(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx,
    enum idem_http_problem_kind problem, const char *verdict)
{
    ngx_http_idem_set_problem(ctx, problem, verdict);

    return ngx_http_idem_answer_by(r, ctx, ngx_http_idem_refuse_handler);
}


static ngx_int_t
ngx_http_idem_run(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx)
{
    ctx->state = NGX_HTTP_IDEM_RUNNING;
    ctx->verdict = ctx->unguarded ? "open" : "run";

    if (ctx->run == NULL && !ctx->unguarded) {
        return NGX_ERROR;
    }

    if (ngx_http_idem_request_headers(r, ctx) != NGX_OK) {
        return NGX_ERROR;
    }

    if (ctx->unguarded) {
        ngx_http_idem_bound(ctx);
    }

    ngx_http_idem_wrap(r, ctx);

    return NGX_DECLINED;
}


/* What the verdict means. */

static ngx_int_t
ngx_http_idem_act(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx)
{
    if (ctx->refused) {        /* refused before the store was asked */
        return ngx_http_idem_refuse(r, ctx, ctx->problem, ctx->verdict);
    }

    if (ctx->code != 0) {

        /* a token is never run on trust */

        if (ctx->conf->store->h == NULL
            && ctx->conf->policy->on_store_error == IDEM_ON_STORE_ERROR_OPEN
            && ctx->conf->key->kind != NGX_HTTP_IDEM_KEY_TOKEN)
        {
            ctx->unguarded = 1;
            return ngx_http_idem_run(r, ctx);
        }

        return ngx_http_idem_refuse(r, ctx, IDEM_HTTP_STORE_UNAVAILABLE, "store_error");
    }

    switch (ctx->answer) {

    case IDEM_RUN:
        return ngx_http_idem_run(r, ctx);

    case IDEM_REPLAY:
        ctx->verdict = "replay";
        return ngx_http_idem_answer_by(r, ctx, ngx_http_idem_replay_handler);

    case IDEM_DEAD:

        if (ctx->has_result && ctx->conf->policy->mode == IDEM_MODE_REPLAY) {
            ctx->verdict = "dead";
            return ngx_http_idem_answer_by(r, ctx, ngx_http_idem_replay_handler);
        }

        return ngx_http_idem_refuse(r, ctx, IDEM_HTTP_FAILED, "dead");

    case IDEM_DUPLICATE:
        return ngx_http_idem_refuse(r, ctx, IDEM_HTTP_DUPLICATE, "duplicate");

    case IDEM_BUSY:
        return ngx_http_idem_refuse(r, ctx, IDEM_HTTP_IN_PROGRESS, "busy");

    case IDEM_MISMATCH:
        return ngx_http_idem_refuse(r, ctx, IDEM_HTTP_MISMATCH, "mismatch");

    case IDEM_UNCERTAIN:
    case IDEM_PROBE:

        if (ctx->conf->probe && ctx->enforced && !ctx->probed) {
            return ngx_http_idem_probe(r, ctx);
        }

        return ngx_http_idem_refuse(r, ctx, IDEM_HTTP_UNCERTAIN, "uncertain");

    default:
        return ngx_http_idem_refuse(r, ctx, IDEM_HTTP_TOKEN_REFUSED, "no_token");
    }
}
