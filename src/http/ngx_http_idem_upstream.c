
/*
 * The backend: what it gets of a request that runs, and what came of it.
 *
 * Whether anything was sent decides whether a run can be given back. nginx knows
 * it (u->request_sent), for the server that was tried last; a claimed request is
 * never sent to another one after that.
 */

#include "ngx_http_idem.h"


static ngx_str_t  ngx_http_idem_key_name = ngx_string("Idempotency-Key");
static ngx_str_t  ngx_http_idem_attempt_name = ngx_string("Idem-Attempt");
static ngx_str_t  ngx_http_idem_downstream_name = ngx_string("Idem-Downstream-Key");
static ngx_str_t  ngx_http_idem_scope_name = ngx_string("Idem-Scope");
static ngx_str_t  ngx_http_idem_encoding_name = ngx_string("Accept-Encoding");


static ngx_int_t
ngx_http_idem_put(ngx_http_request_t *r, ngx_str_t *name, u_char *value, size_t len)
{
    ngx_table_elt_t  *h;

    h = ngx_list_push(&r->headers_in.headers);
    if (h == NULL) {
        return NGX_ERROR;
    }

    ngx_memzero(h, sizeof(ngx_table_elt_t));

    h->key = *name;
    h->value.data = value;
    h->value.len = len;

    h->lowcase_key = ngx_pnalloc(r->pool, name->len);
    if (h->lowcase_key == NULL) {
        return NGX_ERROR;
    }

    h->hash = ngx_hash_strlow(h->lowcase_key, name->data, name->len);

    return NGX_OK;
}


/* What a client did not send: as it is, where a header can hold it; or by the record's hash. */

static ngx_int_t
ngx_http_idem_put_text(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx, ngx_str_t *name,
    ngx_str_t *text)
{
    size_t  i;

    for (i = 0; i < text->len; i++) {
        if (text->data[i] <= 0x20 || text->data[i] >= 0x7f) {
            return ngx_http_idem_put(r, name, ctx->hash, IDEM_HEX_LEN);
        }
    }

    return ngx_http_idem_put(r, name, text->data, text->len);
}


/* The key, unless it is there already, as the client has sent it. */

static ngx_int_t
ngx_http_idem_put_key(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx)
{
    ngx_http_idem_key_t  *key = ctx->conf->key;

    if (ctx->conf->probe_type == NULL && key->kind == NGX_HTTP_IDEM_KEY_HEADER
        && key->name.len == ngx_http_idem_key_name.len
        && ngx_strncasecmp(key->name.data, ngx_http_idem_key_name.data, key->name.len) == 0)
    {
        return NGX_OK;
    }

    if (ngx_http_idem_drop(r, &ngx_http_idem_key_name) != NGX_OK) {
        return NGX_ERROR;
    }

    return ngx_http_idem_put_text(r, ctx, &ngx_http_idem_key_name, &ctx->key);
}


/*
 * What the backend names its row by, where it is looked for: beside the key, without the quotes
 * that a client may have put, the scope. One that no header can hold must not be left out: without
 * it, rows of two users would be one.
 */

static ngx_int_t
ngx_http_idem_put_scope(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx)
{
    if (ctx->conf->probe_type == NULL || ctx->scope.len == 0) {
        return NGX_OK;
    }

    return ngx_http_idem_put_text(r, ctx, &ngx_http_idem_scope_name, &ctx->scope);
}


/* The same for every attempt, and for every caller of the same operation: the backend may give it
   to those that it calls. */

u_char *
ngx_http_idem_downstream(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx)
{
    u_char  *hex;

    if (ctx->downstream) {
        return ctx->downstream;
    }

    hex = ngx_pnalloc(r->pool, IDEM_HEX_LEN + 1);
    if (hex == NULL) {
        return NULL;
    }

    if (idem_downstream_key(ctx->conf->policy->prefix, (const char *) ctx->hash, (char *) hex)
        != 0)
    {
        return NULL;
    }

    ctx->downstream = hex;

    return hex;
}


ngx_int_t
ngx_http_idem_request_headers(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx)
{
    u_char  *p, *attempt;

    if (ctx->readied) {
        return NGX_OK;
    }

    ctx->readied = 1;

    if (ngx_http_idem_put_key(r, ctx) != NGX_OK || ngx_http_idem_put_scope(r, ctx) != NGX_OK) {
        return NGX_ERROR;
    }

    p = ngx_http_idem_downstream(r, ctx);
    attempt = ngx_pnalloc(r->pool, NGX_INT32_LEN);

    if (p == NULL || attempt == NULL
        || ngx_http_idem_put(r, &ngx_http_idem_downstream_name, p, IDEM_HEX_LEN) != NGX_OK)
    {
        return NGX_ERROR;
    }

    if (!ctx->unguarded
        && ngx_http_idem_put(r, &ngx_http_idem_attempt_name, attempt,
                             (size_t) (ngx_sprintf(attempt, "%uD", ctx->attempt) - attempt))
           != NGX_OK)
    {
        return NGX_ERROR;
    }

    /* An answer is stored as it would be for anybody; gzip for the client comes behind. */

    return ngx_http_idem_drop(r, &ngx_http_idem_encoding_name);
}


/* The location's own handler, with what a claimed request needs besides. */

ngx_int_t
ngx_http_idem_content_handler(ngx_http_request_t *r)
{
    ngx_int_t             rc;
    ngx_http_upstream_t  *u;
    ngx_http_idem_ctx_t  *ctx;

    ctx = ngx_http_idem_ctx(r);

    /*
     * nginx sends what it calls idempotent (PUT, DELETE) to the next server when
     * the first one fails in the middle. Nothing else behind this phase asks for
     * the number of the method, and its name stays. In shadow mode it may.
     */

    if (ctx->enforced && !(r->method & (NGX_HTTP_POST|NGX_HTTP_PATCH|NGX_HTTP_LOCK))) {
        r->method = NGX_HTTP_POST;
    }

    rc = ctx->content(r);

    /*
     * A client that hangs up is the one that will retry: the backend is heard to
     * the end. The body is read already, so that the upstream has begun.
     */

    u = r->upstream;

    if (rc == NGX_DONE && u && u->cleanup
        && r->read_event_handler != ngx_http_block_reading
        && ctx->heard == NGX_HTTP_IDEM_SILENT && ctx->state == NGX_HTTP_IDEM_RUNNING)
    {
        r->read_event_handler = ngx_http_block_reading;
        r->write_event_handler = ngx_http_request_empty_handler;
    }

    return rc;
}


ngx_uint_t
ngx_http_idem_was_sent(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx)
{
    if (r->upstream) {
        return ctx->sent || r->upstream->request_sent;
    }

    /* a handler in nginx itself has begun as soon as it was called */

    return ctx->sent || ctx->heard != NGX_HTTP_IDEM_SILENT;
}


/* Whether nginx goes where X-Accel-Redirect says. It does not where that is ignored, the head is
   none, or an error page comes before it. */

ngx_uint_t
ngx_http_idem_is_accel(ngx_http_upstream_t *u)
{
    return u && u->headers_in.x_accel_redirect
           && !(u->conf->ignore_headers & NGX_HTTP_UPSTREAM_IGN_XA_REDIRECT)
           && u->state && u->state->status == u->headers_in.status_n
           && !(u->conf->intercept_errors
                && u->headers_in.status_n >= NGX_HTTP_SPECIAL_RESPONSE);
}


/* Whether an answer's head came from the backend; its status, if so. */

ngx_uint_t
ngx_http_idem_upstream_status(ngx_http_request_t *r)
{
    ngx_http_upstream_t  *u = r->upstream;

    if (u == NULL) {
        return r->headers_out.status;               /* nginx itself is the backend */
    }

#if (NGX_HTTP_CACHE)

    if (r->cached) {

        /* what proxy_cache_use_stale shows instead of an answer that did not come is none */

        return u->cache_status == NGX_HTTP_CACHE_STALE && u->request_sent
               ? 0 : r->headers_out.status;
    }

#endif

    if (u->cleanup) {
        return u->headers_in.status_n ? u->headers_in.status_n : r->headers_out.status;
    }

    /*
     * It was finalized before: what we see is an error page, or what the backend
     * has named instead of an answer.
     */

    if (ngx_http_idem_is_accel(u)) {
        return r->headers_out.status;
    }

    if (u->headers_in.status_n && u->state && u->state->status == u->headers_in.status_n) {
        return u->headers_in.status_n;              /* proxy_intercept_errors */
    }

    return 0;
}


static ngx_uint_t
ngx_http_idem_in(ngx_array_t *list, ngx_uint_t status)
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
ngx_http_idem_by_status(ngx_http_idem_ctx_t *ctx, ngx_uint_t status, ngx_uint_t upgraded)
{
    if (ngx_http_idem_in(ctx->conf->release, status)) {
        return NGX_HTTP_IDEM_RELEASE;
    }

    /* nginx takes the first head that comes for the answer: of what comes behind a 1xx nothing is
       known */

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


/* What the backend says to us, and to nobody else: read, and taken out of the answer. */

static void
ngx_http_idem_said(ngx_http_request_t *r, ngx_list_t *headers, ngx_http_idem_ctx_t *ctx,
    ngx_uint_t heard, ngx_int_t *outcome)
{
    ngx_table_elt_t         *header;
    struct idem_http_text    name, value;
    ngx_http_idem_fields_t   fields;
    enum idem_http_outcome   said;

    ngx_http_idem_fields(&fields, headers);

    while ((header = ngx_http_idem_next(&fields)) != NULL) {
        if (header->hash == 0 || !ngx_http_idem_is_ours(header)) {
            continue;
        }

        if (headers == &r->headers_out.headers) {
            header->hash = 0;
        }

        if (!heard) {
            continue;
        }

        name = ngx_http_idem_text(&header->key);
        value = ngx_http_idem_text(&header->value);

        if (idem_http_same(name, IDEM_HTTP_TEXT("Idem-Outcome"))) {
            if (idem_http_outcome_read(value, &said)) {
                *outcome = (ngx_int_t) said;
                continue;
            }

        } else if (idem_http_same(name, IDEM_HTTP_TEXT("Idem-Ttl"))) {
            if (idem_http_number(value, 1, 3650 * 86400, &ctx->ttl)) {
                continue;
            }

        } else if (idem_http_same(name, IDEM_HTTP_TEXT("Idem-Store"))) {
            if (idem_http_same(idem_http_trim(value), IDEM_HTTP_TEXT("no"))) {
                ctx->discard = 1;
                continue;
            }
        }

        ngx_log_error(NGX_LOG_WARN, r->connection->log, 0,
                      "idem: the backend's \"%V: %V\" is not understood", &header->key,
                      &header->value);
    }
}


void
ngx_http_idem_unsay(ngx_http_request_t *r)
{
    ngx_http_idem_said(r, &r->headers_out.headers, NULL, 0, NULL);
}


/*
 * The backend names another place instead of an answer. It was asked, whoever
 * answers now, and what it says to us does not come with that answer.
 */

void
ngx_http_idem_accel(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx)
{
    ngx_int_t  said = -1;

    ctx->sent = 1;

    if (ctx->accel) {
        return;
    }

    ctx->accel = 1;
    ngx_http_idem_said(r, &r->upstream->headers_in.headers, ctx, 1, &said);

    if (said != -1) {
        ctx->outcome = (ngx_uint_t) said;
        ctx->told = 1;
    }
}


/* FastCGI says where an answer ends; nginx takes a connection that is closed before for the end. */

ngx_uint_t
ngx_http_idem_is_cut(ngx_http_upstream_t *u)
{
    if (u->conf->module.len != sizeof("fastcgi") - 1
        || ngx_strncmp(u->conf->module.data, "fastcgi", sizeof("fastcgi") - 1) != 0)
    {
        return 0;
    }

    return u->buffering ? !u->pipe->upstream_done : u->length != 0;
}


/* Decides what came of the run, from the head of an answer. */

void
ngx_http_idem_judge(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx)
{
    ngx_int_t   said;
    ngx_uint_t  status, own;

    ngx_http_idem_hear(ctx, NGX_HTTP_IDEM_HEAD);
    status = ctx->cancelled ? 0 : ngx_http_idem_upstream_status(r);

    /* What the backend says to us is in its own head, whatever page stands before it, and whatever
       proxy_hide_header leaves out. */

    own = (r->upstream && !ngx_http_idem_is_accel(r->upstream));

#if (NGX_HTTP_CACHE)
    own = (own && !r->cached);
#endif

    said = -1;
    ngx_http_idem_said(r, &r->headers_out.headers, ctx, status && !own, &said);

    if (status && own) {
        ngx_http_idem_said(r, &r->upstream->headers_in.headers, ctx, 1, &said);
    }

    if (said != -1) {
        ctx->outcome = (ngx_uint_t) said;
        ctx->told = 0;

    } else if (ctx->told) {
        ctx->discard |= (status == 0);          /* a page of nginx's is not what came of it */
        return;

    } else if (status) {
        ctx->outcome = ngx_http_idem_by_status(ctx, status,
                                               r->upstream && r->upstream->upgrade);

    } else {
        ctx->outcome = ngx_http_idem_was_sent(r, ctx) ? NGX_HTTP_IDEM_UNKNOWN
                                                      : NGX_HTTP_IDEM_RELEASE;
    }

    /* It has done its part: that its answer cannot be had is no reason to ask it again. */

    if (ctx->accel && said == -1
        && (ctx->outcome == NGX_HTTP_IDEM_RELEASE || ctx->outcome == NGX_HTTP_IDEM_RETRY))
    {
        ctx->outcome = NGX_HTTP_IDEM_UNKNOWN;
    }
}


/* Not in shadow mode, where the answer may be flowing; and not what nginx itself does, which has
   no connection that could be ended. */

ngx_uint_t
ngx_http_idem_may_cancel(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx)
{
    return ctx->state == NGX_HTTP_IDEM_RUNNING && ctx->enforced && r->upstream
           && r->upstream->cleanup;
}


void
ngx_http_idem_give_up(ngx_http_idem_ctx_t *ctx, enum idem_end why)
{
    ctx->cancelled = why;
    ctx->verdict = "cancelled";
}


/* The backend is not waited for any more. Nothing of an answer has gone out: what is too long to be
   held has been said to be done before, and has no lease that could be lost. */

void
ngx_http_idem_cancel(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx, enum idem_end why)
{
    ngx_connection_t     *c = r->connection;
    ngx_http_upstream_t  *u = r->upstream;

    ngx_http_idem_give_up(ctx, why);
    ctx->sent = ngx_http_idem_was_sent(r, ctx);

    ngx_http_set_log_request(c->log, r);

    /* ends the upstream, and gives back its hold on the request */

    r->main->count++;
    (*u->cleanup)(r);

    if (ctx->heard != NGX_HTTP_IDEM_SILENT) {
        ngx_http_idem_cut(r, ctx);

    } else {
        ngx_http_finalize_request(r, NGX_HTTP_GATEWAY_TIME_OUT);
    }

    ngx_http_run_posted_requests(c);
}
