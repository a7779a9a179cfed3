
/*
 * The backend: the headers of a request that runs, and the outcome of the run.
 *
 * A run can be given back only if nothing was sent. nginx knows that
 * (u->request_sent) for the server it tried last; a claimed request is never sent
 * to another one after that.
 */

#include "ngx_http_idem.h"
#include "protocol/record_key.h"
#include "base/error.h"


static ngx_str_t  ngx_http_idem_key_name = ngx_string("Idempotency-Key");
static ngx_str_t  ngx_http_idem_attempt_name = ngx_string("Idem-Attempt");
static ngx_str_t  ngx_http_idem_downstream_name = ngx_string("Idem-Downstream-Key");
static ngx_str_t  ngx_http_idem_scope_name = ngx_string("Idem-Scope");
static ngx_str_t  ngx_http_idem_encoding_name = ngx_string("Accept-Encoding");


static ngx_int_t
ngx_http_idem_upstream_add_header(ngx_http_request_t *r, ngx_str_t *name, u_char *value, size_t len)
{
    ngx_str_t         text = { len, value };
    ngx_table_elt_t  *h;

    h = ngx_http_idem_fields_push(&r->headers_in.headers, name, &text);
    if (h == NULL) {
        return NGX_ERROR;
    }

    h->lowcase_key = ngx_pnalloc(r->pool, name->len);
    if (h->lowcase_key == NULL) {
        return NGX_ERROR;
    }

    h->hash = ngx_hash_strlow(h->lowcase_key, name->data, name->len);

    return NGX_OK;
}


/*
 * Adds a value that the client did not send: as it is if a header can hold it,
 * and otherwise as the record's hash.
 */

static ngx_int_t
ngx_http_idem_upstream_add_text(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx, ngx_str_t *name,
    ngx_str_t *text)
{
    size_t  i;

    for (i = 0; i < text->len; i++) {
        if (text->data[i] <= 0x20 || text->data[i] >= 0x7f) {
            return ngx_http_idem_upstream_add_header(r, name, ctx->decision.hash, IDEM_HEX_LEN);
        }
    }

    return ngx_http_idem_upstream_add_header(r, name, text->data, text->len);
}


/* Adds the key, unless the client's own header already contains it. */

static ngx_int_t
ngx_http_idem_upstream_add_key(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx)
{
    ngx_http_idem_key_t  *key = ctx->conf->key;

    if (ctx->conf->probe_type == NULL && key->kind == NGX_HTTP_IDEM_KEY_HEADER
        && idem_http_same(ngx_http_idem_text(&key->name), IDEM_HTTP_TEXT("Idempotency-Key")))
    {
        return NGX_OK;
    }

    if (ngx_http_idem_strip_header(r, &ngx_http_idem_key_name) != NGX_OK) {
        return NGX_ERROR;
    }

    return ngx_http_idem_upstream_add_text(r, ctx, &ngx_http_idem_key_name, &ctx->key.text);
}


/*
 * With idem_probe tx, the backend names its row by key and scope: the key
 * without the quotes that a client may send, and the scope. A scope that no
 * header can hold must not be left out: without it, rows of two users would be
 * one.
 */

static ngx_int_t
ngx_http_idem_upstream_add_scope(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx)
{
    if (ctx->conf->probe_type == NULL || ctx->key.scope.len == 0) {
        return NGX_OK;
    }

    return ngx_http_idem_upstream_add_text(r, ctx, &ngx_http_idem_scope_name, &ctx->key.scope);
}


/*
 * The same for every attempt, and for every caller of the same operation: the
 * backend may pass it on to services that it calls.
 */

u_char *
ngx_http_idem_upstream_downstream_key(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx)
{
    u_char  *hex;

    if (ctx->backend.downstream) {
        return ctx->backend.downstream;
    }

    hex = ngx_pnalloc(r->pool, IDEM_HEX_LEN + 1);
    if (hex == NULL) {
        return NULL;
    }

    if (idem_downstream_key(ctx->conf->policy->prefix, (const char *) ctx->decision.hash,
                            (char *) hex)
        != 0)
    {
        return NULL;
    }

    ctx->backend.downstream = hex;

    return hex;
}


ngx_int_t
ngx_http_idem_upstream_request_headers(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx)
{
    u_char  *p, *attempt, *last;

    if (ctx->backend.send != NGX_HTTP_IDEM_SEND_UNPREPARED) {
        return NGX_OK;
    }

    ctx->backend.send = NGX_HTTP_IDEM_SEND_PREPARED;

    if (ngx_http_idem_upstream_add_key(r, ctx) != NGX_OK
        || ngx_http_idem_upstream_add_scope(r, ctx) != NGX_OK)
    {
        return NGX_ERROR;
    }

    p = ngx_http_idem_upstream_downstream_key(r, ctx);
    attempt = ngx_pnalloc(r->pool, NGX_INT32_LEN);

    if (p == NULL || attempt == NULL
        || ngx_http_idem_upstream_add_header(r, &ngx_http_idem_downstream_name, p, IDEM_HEX_LEN)
           != NGX_OK)
    {
        return NGX_ERROR;
    }

    last = ngx_sprintf(attempt, "%uD", ctx->decision.attempt);

    if (ctx->decision.kind != NGX_HTTP_IDEM_UNGUARDED
        && ngx_http_idem_upstream_add_header(r, &ngx_http_idem_attempt_name, attempt,
                                             (size_t) (last - attempt))
           != NGX_OK)
    {
        return NGX_ERROR;
    }

    /* The stored response must suit every client; gzip for this client comes later. */

    return ngx_http_idem_strip_header(r, &ngx_http_idem_encoding_name);
}


/* Calls the location's own handler, with the precautions for a claimed request. */

static ngx_int_t
ngx_http_idem_upstream_content_handler(ngx_http_request_t *r)
{
    ngx_int_t             rc;
    ngx_http_upstream_t  *u;
    ngx_http_idem_ctx_t  *ctx;

    ctx = ngx_http_idem_ctx_find(r);

    /*
     * nginx sends methods that it calls idempotent (PUT, DELETE) to the next
     * server when the first one fails midway. Nothing after this phase reads the
     * method's number, and its name stays. In shadow mode nginx may do so.
     */

    if (ctx->guard != NGX_HTTP_IDEM_SHADOW
        && !(r->method & (NGX_HTTP_POST|NGX_HTTP_PATCH|NGX_HTTP_LOCK)))
    {
        r->method = NGX_HTTP_POST;
    }

    rc = ctx->backend.content(r);

    /*
     * A client that disconnects is the one that will retry: the backend's
     * response is read to its end. The body is read already, so the upstream has
     * begun.
     */

    u = r->upstream;

    if (rc == NGX_DONE && u && u->cleanup
        && r->read_event_handler != ngx_http_block_reading
        && ctx->response.arrived == NGX_HTTP_IDEM_SILENT && ctx->state == NGX_HTTP_IDEM_RUNNING)
    {
        r->read_event_handler = ngx_http_block_reading;
        r->write_event_handler = ngx_http_request_empty_handler;
    }

    return rc;
}


void
ngx_http_idem_upstream_wrap_content(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx)
{
    if (r->content_handler) {
        ctx->backend.content = r->content_handler;
        r->content_handler = ngx_http_idem_upstream_content_handler;
    }
}


ngx_uint_t
ngx_http_idem_upstream_was_sent(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx)
{
    if (ctx->backend.send == NGX_HTTP_IDEM_SEND_BEGUN) {
        return 1;
    }

    /* a handler in nginx itself has begun once it is called */

    return r->upstream ? r->upstream->request_sent
                       : ctx->response.arrived != NGX_HTTP_IDEM_SILENT;
}


/* Called before another upstream may take the place of r->upstream, and so of its request_sent. */

static void
ngx_http_idem_upstream_note_sent(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx)
{
    if (ngx_http_idem_upstream_was_sent(r, ctx)) {
        ctx->backend.send = NGX_HTTP_IDEM_SEND_BEGUN;
    }
}


/*
 * True if nginx follows X-Accel-Redirect. It does not if the field is ignored,
 * the head is invalid, or an error page takes precedence.
 */

static ngx_uint_t
ngx_http_idem_upstream_is_accel(ngx_http_upstream_t *u)
{
    return u && u->headers_in.x_accel_redirect
           && !(u->conf->ignore_headers & NGX_HTTP_UPSTREAM_IGN_XA_REDIRECT)
           && u->state && u->state->status == u->headers_in.status_n
           && !(u->conf->intercept_errors
                && u->headers_in.status_n >= NGX_HTTP_SPECIAL_RESPONSE);
}


/* Returns the status of a response whose head came from the backend, or 0. */

static ngx_uint_t
ngx_http_idem_upstream_status(ngx_http_request_t *r)
{
    ngx_http_upstream_t  *u = r->upstream;

    if (u == NULL) {
        return r->headers_out.status;               /* nginx itself is the backend */
    }

#if (NGX_HTTP_CACHE)

    if (r->cached) {

        /* a stale copy (proxy_cache_use_stale) is not the backend's response */

        return u->cache_status == NGX_HTTP_CACHE_STALE && u->request_sent
               ? 0 : r->headers_out.status;
    }

#endif

    if (u->cleanup) {
        return u->headers_in.status_n ? u->headers_in.status_n : r->headers_out.status;
    }

    /*
     * The upstream was finalized before: this is an error page, or the location
     * that the backend named instead of a response.
     */

    if (ngx_http_idem_upstream_is_accel(u)) {
        return r->headers_out.status;
    }

    if (u->headers_in.status_n && u->state && u->state->status == u->headers_in.status_n) {
        return u->headers_in.status_n;              /* proxy_intercept_errors */
    }

    return 0;
}


static ngx_uint_t
ngx_http_idem_upstream_is_listed(ngx_array_t *list, ngx_uint_t status)
{
    ngx_uint_t  i, *elts;

    elts = list->elts;

    for (i = 0; i < list->nelts; i++) {
        if (elts[i] == status) {
            return 1;
        }
    }

    return 0;
}


static ngx_uint_t
ngx_http_idem_upstream_status_outcome(ngx_http_idem_ctx_t *ctx, ngx_uint_t status,
    ngx_uint_t upgraded)
{
    if (ngx_http_idem_upstream_is_listed(ctx->conf->release, status)) {
        return NGX_HTTP_IDEM_RELEASE;
    }

    /* nginx takes the first head for the response: after a 1xx, the final one is not known */

    if (status == NGX_HTTP_BAD_GATEWAY || status == NGX_HTTP_GATEWAY_TIME_OUT
        || (status < NGX_HTTP_OK && !upgraded))
    {
        return NGX_HTTP_IDEM_UNKNOWN;
    }

    if (status < NGX_HTTP_INTERNAL_SERVER_ERROR) {
        return NGX_HTTP_IDEM_DONE;
    }

    switch (ctx->conf->policy->on_failure) {
    case IDEM_ON_FAILURE_KEEP:
        return NGX_HTTP_IDEM_KEEP;
    case IDEM_ON_FAILURE_RETRY:
        return NGX_HTTP_IDEM_RETRY;
    default:
        return NGX_HTTP_IDEM_RELEASE;
    }
}


/* Reads the fields that the backend addresses to us, and removes them from the response. */

static void
ngx_http_idem_upstream_take_fields(ngx_http_request_t *r, ngx_list_t *headers,
    ngx_http_idem_ctx_t *ctx, ngx_uint_t trusted, ngx_int_t *outcome)
{
    char                     quoted[2][IDEM_QUOTE_TEXT];
    ngx_table_elt_t         *header;
    struct idem_http_text    name, value;
    ngx_http_idem_fields_t   fields;
    enum idem_http_outcome   stated;

    ngx_http_idem_fields_begin(&fields, headers);

    while ((header = ngx_http_idem_fields_next(&fields)) != NULL) {
        if (header->hash == 0 || !ngx_http_idem_strip_is_reserved(header)) {
            continue;
        }

        if (headers == &r->headers_out.headers) {
            header->hash = 0;
        }

        if (!trusted) {
            continue;
        }

        name = ngx_http_idem_text(&header->key);
        value = ngx_http_idem_text(&header->value);

        if (idem_http_same(name, IDEM_HTTP_TEXT("Idem-Outcome"))) {
            if (idem_http_outcome_read(value, &stated)) {
                *outcome = (ngx_int_t) stated;
                continue;
            }

        } else if (idem_http_same(name, IDEM_HTTP_TEXT("Idem-Ttl"))) {
            if (idem_http_number(value, 1, 3650 * 86400, &ctx->backend.ttl)) {
                continue;
            }

        } else if (idem_http_same(name, IDEM_HTTP_TEXT("Idem-Store"))) {
            if (idem_http_same(idem_http_trim(value), IDEM_HTTP_TEXT("no"))) {
                ngx_http_idem_capture_discard(ctx);
                continue;
            }
        }

        ngx_log_error(NGX_LOG_WARN, r->connection->log, 0,
                      "idem: the backend's %s: %s is not understood",
                      idem_error_quote(name.at, name.len, quoted[0], IDEM_QUOTE_TEXT),
                      idem_error_quote(value.at, value.len, quoted[1], IDEM_QUOTE_TEXT));
    }
}


void
ngx_http_idem_upstream_remove_fields(ngx_http_request_t *r)
{
    ngx_http_idem_upstream_take_fields(r, &r->headers_out.headers, NULL, 0, NULL);
}


/*
 * The backend names another location instead of a response. It was asked, and
 * the fields it addresses to us do not come with that location's response.
 */

static void
ngx_http_idem_upstream_accel(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx)
{
    ngx_int_t  stated = -1;

    ctx->backend.send = NGX_HTTP_IDEM_SEND_BEGUN;

    if (ctx->backend.accel != NGX_HTTP_IDEM_ACCEL_NONE) {
        return;
    }

    ctx->backend.accel = NGX_HTTP_IDEM_ACCEL_FOLLOWED;
    ngx_http_idem_upstream_take_fields(r, &r->upstream->headers_in.headers, ctx, 1, &stated);

    if (stated != -1) {
        ctx->backend.outcome = (ngx_uint_t) stated;
        ctx->backend.accel = NGX_HTTP_IDEM_ACCEL_STATED;
    }
}


/* FastCGI marks the end of a response, but nginx takes a closed connection for the end, too. */

ngx_uint_t
ngx_http_idem_upstream_is_cut(ngx_http_upstream_t *u)
{
    if (!idem_is_word(u->conf->module.data, u->conf->module.len, "fastcgi")) {
        return 0;
    }

    return u->buffering ? !u->pipe->upstream_done : u->length != 0;
}


/* Decides the outcome of the run from the head of a response. */

void
ngx_http_idem_upstream_judge(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx)
{
    ngx_int_t                  stated;
    ngx_uint_t                 status, own;
    ngx_http_idem_backend_t   *backend = &ctx->backend;

    ngx_http_idem_capture_set_arrived(ctx, NGX_HTTP_IDEM_HEAD);
    status = backend->cancelled ? 0 : ngx_http_idem_upstream_status(r);

    /*
     * The backend's fields for us are in its own head, even if another page
     * replaces it or proxy_hide_header hides them.
     */

    own = (r->upstream && !ngx_http_idem_upstream_is_accel(r->upstream));

#if (NGX_HTTP_CACHE)
    own = (own && !r->cached);
#endif

    stated = -1;
    ngx_http_idem_upstream_take_fields(r, &r->headers_out.headers, ctx, status && !own, &stated);

    if (status && own) {
        ngx_http_idem_upstream_take_fields(r, &r->upstream->headers_in.headers, ctx, 1, &stated);
    }

    if (stated != -1) {
        backend->outcome = (ngx_uint_t) stated;

        if (backend->accel == NGX_HTTP_IDEM_ACCEL_STATED) {
            backend->accel = NGX_HTTP_IDEM_ACCEL_FOLLOWED;
        }

    } else if (backend->accel == NGX_HTTP_IDEM_ACCEL_STATED) {

        if (status == 0) {                           /* a page of nginx is not the result */
            ngx_http_idem_capture_discard(ctx);
        }

        return;

    } else if (status) {
        backend->outcome = ngx_http_idem_upstream_status_outcome(ctx, status,
                                                            r->upstream && r->upstream->upgrade);

    } else {
        backend->outcome = ngx_http_idem_upstream_was_sent(r, ctx) ? NGX_HTTP_IDEM_UNKNOWN
                                                              : NGX_HTTP_IDEM_RELEASE;
    }

    /*
     * The backend has done its part: a response that cannot be fetched is no
     * reason to ask it again.
     */

    if (backend->accel != NGX_HTTP_IDEM_ACCEL_NONE && stated == -1
        && (backend->outcome == NGX_HTTP_IDEM_RELEASE || backend->outcome == NGX_HTTP_IDEM_RETRY))
    {
        backend->outcome = NGX_HTTP_IDEM_UNKNOWN;
    }
}


/*
 * The outcome is unknown, unless the backend stated it beside X-Accel-Redirect:
 * that holds, whatever the other location responds.
 */

void
ngx_http_idem_upstream_judge_cut(ngx_http_idem_ctx_t *ctx)
{
    if (ctx->backend.accel != NGX_HTTP_IDEM_ACCEL_STATED) {
        ctx->backend.outcome = NGX_HTTP_IDEM_UNKNOWN;
    }
}


/*
 * False in shadow mode, where the response may be flowing, and for handlers of
 * nginx itself, which have no connection to end.
 */

ngx_uint_t
ngx_http_idem_upstream_may_cancel(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx)
{
    return ctx->state == NGX_HTTP_IDEM_RUNNING && ctx->guard != NGX_HTTP_IDEM_SHADOW && r->upstream
           && r->upstream->cleanup;
}


static void
ngx_http_idem_upstream_mark_cancelled(ngx_http_idem_ctx_t *ctx, enum idem_end why)
{
    ctx->backend.cancelled = why;
    ngx_http_idem_decision_set_word(ctx, "cancelled");
}


/*
 * Stops waiting for the backend. Nothing of a response has gone out: one too
 * long to hold was stored as done earlier, and has no lease to lose.
 */

void
ngx_http_idem_upstream_cancel(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx, enum idem_end why)
{
    ngx_connection_t     *c = r->connection;
    ngx_http_upstream_t  *u = r->upstream;

    ngx_http_idem_upstream_mark_cancelled(ctx, why);
    ngx_http_idem_upstream_note_sent(r, ctx);

    ngx_http_set_log_request(c->log, r);

    /* ends the upstream, and its reference to the request */

    r->main->count++;
    (*u->cleanup)(r);

    if (ctx->response.arrived != NGX_HTTP_IDEM_SILENT) {
        ngx_http_idem_capture_cut(r, ctx);

    } else {
        ngx_http_finalize_request(r, NGX_HTTP_GATEWAY_TIME_OUT);
    }

    ngx_http_run_posted_requests(c);
}


/* An unguarded run has no claim, but must not hang for ever. */

static void
ngx_http_idem_upstream_run_max_handler(ngx_event_t *ev)
{
    ngx_http_idem_ctx_t  *ctx = ev->data;

    if (!ngx_http_idem_upstream_may_cancel(ctx->request, ctx)) {
        return;
    }

    ngx_log_error(NGX_LOG_WARN, ctx->request->connection->log, 0,
                  "idem: record %s: it takes longer than idem_run_max, unguarded: cancelled",
                  ctx->decision.hash);

    ngx_http_idem_upstream_cancel(ctx->request, ctx, IDEM_END_RUN_MAX);
}


void
ngx_http_idem_upstream_start_run_max(ngx_http_idem_ctx_t *ctx)
{
    ngx_event_t  *ev = &ctx->backend.run_max;

    if (ctx->conf->policy->run_max_ms <= 0) {
        return;
    }

    ev->handler = ngx_http_idem_upstream_run_max_handler;
    ev->data = ctx;
    ev->log = ngx_cycle->log;
    ngx_add_timer(ev, (ngx_msec_t) ctx->conf->policy->run_max_ms);
}


void
ngx_http_idem_upstream_drop(ngx_http_idem_ctx_t *ctx)
{
    ngx_http_idem_stop_event(&ctx->backend.run_max);
}


/* Returns the response to a run that must not go to a second backend. */

static ngx_int_t
ngx_http_idem_upstream_refuse_second(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx)
{
    char        uri[IDEM_QUOTE_TEXT];
    ngx_uint_t  status;

    ngx_log_error(NGX_LOG_WARN, r->connection->log, 0,
                  "idem: record %s: not sent to a second backend, %s, %s", ctx->decision.hash,
                  ngx_http_idem_log_uri(r, uri),
                  ctx->backend.cancelled ? "after it was cancelled"
                                         : "after the first one was asked");

    /*
     * proxy_intercept_errors: the backend's status is known, although an error page
     * replaces it
     */

    status = ctx->backend.cancelled || r->upstream == NULL ? 0 : ngx_http_idem_upstream_status(r);

    r->error_page = 1;    /* final, also with recursive_error_pages */

    if (status >= NGX_HTTP_SPECIAL_RESPONSE) {
        return (ngx_int_t) status;
    }

    if (r->err_status >= NGX_HTTP_SPECIAL_RESPONSE) {
        return (ngx_int_t) r->err_status;
    }

    return ctx->backend.cancelled ? NGX_HTTP_GATEWAY_TIME_OUT : NGX_HTTP_BAD_GATEWAY;
}


/*
 * Redirected while it ran. A place that the backend itself named is part of its
 * response, and so is an error page that is a file. A second backend is not,
 * after the first one was asked or the lease was lost. In shadow mode the
 * request goes wherever it would go without a guard.
 */

ngx_int_t
ngx_http_idem_upstream_redirect(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx)
{
    char        uri[IDEM_QUOTE_TEXT];
    ngx_uint_t  accel;

    accel = ngx_http_idem_upstream_is_accel(r->upstream);

    if (accel) {
        ngx_http_idem_upstream_accel(r, ctx);
    }

    if (r->content_handler == NULL) {
        return NGX_DECLINED;
    }

    if (ctx->guard == NGX_HTTP_IDEM_SHADOW) {
        ngx_http_idem_upstream_note_sent(r, ctx);
        ngx_http_idem_upstream_wrap_content(r, ctx);
        return NGX_DECLINED;
    }

    /* lost on the way here (limit_req): there was nothing to cancel */

    if (ngx_http_idem_claim_is_lost(r, ctx)) {
        ngx_http_idem_upstream_mark_cancelled(ctx, ctx->claim->lost);
    }

    if (ctx->backend.cancelled || (!accel && ngx_http_idem_upstream_was_sent(r, ctx))) {
        return ngx_http_idem_upstream_refuse_second(r, ctx);
    }

    if (!accel && ngx_http_idem_check_sends_twice(r)) {
        ngx_log_error(NGX_LOG_ERR, r->connection->log, 0,
                      "idem: record %s: not sent to %s, where proxy_next_upstream "
                      "non_idempotent would send it twice", ctx->decision.hash,
                      ngx_http_idem_log_uri(r, uri));
        return NGX_HTTP_BAD_GATEWAY;
    }

    ngx_http_idem_upstream_wrap_content(r, ctx);

    return NGX_DECLINED;
}
