
/*
 * Holds the backend's answer until what came of the run is stored, and keeps it
 * for replays.
 *
 * The filter stands between copy and headers: what is kept is neither encoded
 * for this client nor has it add_header's fields, both of which a replay gets
 * anew. An answer that is too long to be kept is done without a result as soon
 * as that is known, and then flows as it comes.
 *
 *     RUNNING    the head has come, the body is being gathered
 *     STORING    what came of it was said; nothing goes out before the store has
 *                heard (or idem_finish_timeout is over)
 *     STORED     it has: head and body go out
 *     SENT       they went, and whatever still comes passes
 *
 * In shadow mode the answer passes while it is gathered, and STORED is left out.
 */

#include "ngx_http_idem.h"


ngx_http_output_header_filter_pt  ngx_http_idem_next_header_filter;
ngx_http_output_body_filter_pt    ngx_http_idem_next_body_filter;


static ngx_int_t ngx_http_idem_hold(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx,
    ngx_chain_t *in);
static ngx_int_t ngx_http_idem_gather(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx,
    ngx_chain_t *in);
static ngx_int_t ngx_http_idem_store(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx);
static ngx_int_t ngx_http_idem_send_kept(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx,
    ngx_chain_t *in);


/* The one place where it changes what was heard of an answer. */

void
ngx_http_idem_hear(ngx_http_idem_ctx_t *ctx, ngx_http_idem_heard_e heard)
{
    static const ngx_uint_t  allowed[] = {
        [NGX_HTTP_IDEM_SILENT] = 1 << NGX_HTTP_IDEM_HEAD,
        [NGX_HTTP_IDEM_HEAD] = 1 << NGX_HTTP_IDEM_WHOLE | 1 << NGX_HTTP_IDEM_CUT
                               | 1 << NGX_HTTP_IDEM_SILENT,
        [NGX_HTTP_IDEM_WHOLE] = 1 << NGX_HTTP_IDEM_SILENT,
        [NGX_HTTP_IDEM_CUT] = 0,
    };

    if (heard != ctx->heard && !(allowed[ctx->heard] & (1 << heard))) {
        ngx_log_error(NGX_LOG_ALERT, ctx->request->connection->log, 0,
                      "idem: record %s: of an answer, %d was heard after %d", ctx->hash,
                      (int) heard, (int) ctx->heard);
        return;
    }

    ctx->heard = heard;
}


/* What the client is to see of the guard. */

static ngx_int_t
ngx_http_idem_mark(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx)
{
    ngx_str_t  yes = ngx_string("true");
    ngx_str_t  no = ngx_string("no");
    ngx_str_t  open = ngx_string("open");

    if (ctx->lost && ngx_http_idem_add_header(r, "Idem-Lost", &yes) != NGX_OK) {
        return NGX_ERROR;
    }

    if (ctx->unkept && !ctx->lost && ngx_http_idem_add_header(r, "Idem-Kept", &no) != NGX_OK) {
        return NGX_ERROR;
    }

    if (ctx->unguarded && ngx_http_idem_add_header(r, "Idem-Guard", &open) != NGX_OK) {
        return NGX_ERROR;
    }

    return NGX_OK;
}


/* An answer that its sender calls a stream cannot be waited for. */

static ngx_uint_t
ngx_http_idem_is_stream(ngx_http_request_t *r)
{
    ngx_table_elt_t         *header;
    struct idem_http_text    name, value;
    ngx_http_idem_fields_t   fields;

    if (idem_http_type_read(ngx_http_idem_text(&r->headers_out.content_type))
        == IDEM_HTTP_EVENTS)
    {
        return 1;
    }

    if (r->upstream == NULL || r->upstream->cleanup == NULL) {
        return 0;
    }

    ngx_http_idem_fields(&fields, &r->upstream->headers_in.headers);

    while ((header = ngx_http_idem_next(&fields)) != NULL) {
        name = ngx_http_idem_text(&header->key);
        value = ngx_http_idem_text(&header->value);

        if (idem_http_same(name, IDEM_HTTP_TEXT("X-Accel-Buffering"))
            && idem_http_same(value, IDEM_HTTP_TEXT("no")))
        {
            return 1;
        }
    }

    return 0;
}


ngx_int_t
ngx_http_idem_header_filter(ngx_http_request_t *r)
{
    ngx_int_t                  rc;
    ngx_http_idem_ctx_t       *ctx;
    ngx_http_idem_loc_conf_t  *conf;

    ctx = ngx_http_idem_ctx(r);

    if (ctx && ctx->probe == r) {
        return ngx_http_idem_probe_header(r, ctx);
    }

    if (r != r->main) {
        return ngx_http_idem_next_header_filter(r);
    }

    if (ctx == NULL || ctx->state != NGX_HTTP_IDEM_RUNNING) {
        conf = ngx_http_get_module_loc_conf(r, ngx_http_idem_module);

        if (conf->guard) {
            ngx_http_idem_unsay(r);
        }

        return ngx_http_idem_next_header_filter(r);
    }

    ngx_http_idem_judge(r, ctx);

    if (ctx->unguarded) {
        ctx->state = NGX_HTTP_IDEM_SENT;

        if (ngx_http_idem_mark(r, ctx) != NGX_OK) {
            return NGX_ERROR;
        }

        return ngx_http_idem_next_header_filter(r);
    }

    r->filter_need_in_memory = 1;

    /* A body passes the filter that cuts ranges before it comes here, and its head, which says
       which, not before the whole is stored. What is kept is whole, too. */

    r->allow_ranges = 0;

    ctx->live = (r->upstream && r->upstream->cleanup);

    if (ctx->conf->policy->mode != IDEM_MODE_REPLAY) {
        ctx->discard = 1;
    }

    if (r->upstream && r->upstream->upgrade) {

        /* a connection from now on, which does not wait for its head */

        ctx->discard = 1;
        ctx->enforced = 0;
        (void) ngx_http_idem_store(r, ctx);
    }

    if (!ctx->enforced) {

        /* shadow mode: the answer is kept, and not held */

        rc = ngx_http_idem_next_header_filter(r);

        if (r->header_only && ctx->state == NGX_HTTP_IDEM_RUNNING) {
            ngx_http_idem_hear(ctx, NGX_HTTP_IDEM_WHOLE);      /* of a 204 no body comes here */
            (void) ngx_http_idem_store(r, ctx);
        }

        return rc;
    }

    if (r->header_only) {                       /* its handler says that there is no body */
        ngx_http_idem_hear(ctx, NGX_HTTP_IDEM_WHOLE);

    } else if (r->headers_out.content_length_n > ngx_http_idem_limit(ctx)
               || ngx_http_idem_is_stream(r))
    {
        ctx->discard = 1;

    } else {
        return NGX_OK;                          /* its body decides */
    }

    if (ngx_http_idem_store(r, ctx) == NGX_OK) {
        ctx->state = NGX_HTTP_IDEM_SENT;
        return ngx_http_idem_next_header_filter(r);
    }

    return NGX_OK;
}


ngx_int_t
ngx_http_idem_body_filter(ngx_http_request_t *r, ngx_chain_t *in)
{
    ngx_int_t             rc;
    ngx_http_idem_ctx_t  *ctx;

    ctx = ngx_http_idem_ctx(r);

    if (ctx == NULL) {
        return ngx_http_idem_next_body_filter(r, in);
    }

    if (ctx->probe == r) {
        return ngx_http_idem_probe_body(r, ctx, in);
    }

    if (r != r->main || ctx->heard == NGX_HTTP_IDEM_SILENT) {
        return ngx_http_idem_next_body_filter(r, in);
    }

    switch (ctx->state) {

    case NGX_HTTP_IDEM_RUNNING:
        rc = ngx_http_idem_gather(r, ctx, in);

        if (!ctx->enforced) {
            ctx->discard |= (rc != NGX_OK);

            if (ctx->heard != NGX_HTTP_IDEM_HEAD) {
                (void) ngx_http_idem_store(r, ctx);
            }

            return ngx_http_idem_next_body_filter(r, in);
        }

        if (rc == NGX_DECLINED) {

            /* too long to be kept: it is done, and what it answers can flow */

            ctx->discard = 1;

            return ngx_http_idem_store(r, ctx) == NGX_OK ? ngx_http_idem_send_kept(r, ctx, in)
                                                         : ngx_http_idem_hold(r, ctx, in);
        }

        if (rc != NGX_OK) {
            return rc;
        }

        if (ctx->heard == NGX_HTTP_IDEM_HEAD) {
            return NGX_OK;                      /* there is more to come */
        }

        return ngx_http_idem_store(r, ctx) == NGX_OK ? ngx_http_idem_send_kept(r, ctx, NULL)
                                                     : NGX_AGAIN;

    case NGX_HTTP_IDEM_STORING:
        return ngx_http_idem_hold(r, ctx, in);

    case NGX_HTTP_IDEM_STORED:
        return ngx_http_idem_send_kept(r, ctx, in);

    default:
        return ngx_http_idem_next_body_filter(r, in);
    }
}


/* Nobody knows what came of it; but what was said beside X-Accel-Redirect holds, whatever becomes
   of the other place's answer. */

static void
ngx_http_idem_cut_off(ngx_http_idem_ctx_t *ctx)
{
    ngx_http_idem_hear(ctx, NGX_HTTP_IDEM_CUT);

    if (!ctx->told) {
        ctx->outcome = NGX_HTTP_IDEM_UNKNOWN;
    }
}


/* Copies what has come. NGX_DECLINED: no room for what is left of `in`. */

static ngx_int_t
ngx_http_idem_gather(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx, ngx_chain_t *in)
{
    size_t        size;
    ngx_buf_t    *b;
    ngx_int_t     rc;
    ngx_uint_t    flush, last;
    ngx_chain_t  *cl;

    flush = 0;
    last = 0;
    rc = NGX_OK;

    for (cl = in; cl; cl = cl->next) {
        b = cl->buf;
        size = ngx_buf_in_memory(b) ? (size_t) (b->last - b->pos) : 0;

        if (size && rc == NGX_OK && (ctx->enforced || !ctx->discard)) {
            rc = ngx_http_idem_keep(r, ctx, b->pos, size);

            if (rc == NGX_OK && ctx->enforced) {
                b->pos = b->last;
                b->file_pos = b->file_last;
            }
        }

        if (rc != NGX_OK && ctx->enforced) {
            return rc;
        }

        flush |= b->flush;
        last |= b->last_buf;
    }

    /* A live upstream that was ended by nginx, and not by its own last byte. */

    if (ctx->live && r->upstream->cleanup == NULL
        && (last ? ngx_http_idem_is_cut(r->upstream) : flush))
    {
        ngx_http_idem_cut_off(ctx);

    } else if (last) {
        ngx_http_idem_hear(ctx, NGX_HTTP_IDEM_WHOLE);
    }

    return rc;
}


/* What has to wait for the store. */

static ngx_int_t
ngx_http_idem_hold(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx, ngx_chain_t *in)
{
    ngx_chain_t  *cl;

    if (ctx->pending_last == NULL) {
        ctx->pending_last = &ctx->pending;
    }

    for ( /* void */ ; in; in = in->next) {

        if (ngx_buf_size(in->buf) == 0 && !ngx_buf_special(in->buf)) {
            continue;
        }

        cl = ngx_alloc_chain_link(r->pool);
        if (cl == NULL) {
            return NGX_ERROR;
        }

        cl->buf = in->buf;
        cl->next = NULL;
        *ctx->pending_last = cl;
        ctx->pending_last = &cl->next;
    }

    return NGX_AGAIN;
}


/*
 * Says what came of it. NGX_AGAIN: nothing goes out until the store has heard.
 * NGX_OK: there is nothing to wait for, be it that it could not even be said.
 */

static ngx_int_t
ngx_http_idem_store(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx)
{
    ngx_str_t   result;
    ngx_uint_t  keeps;

    ngx_str_null(&result);

    keeps = (ctx->outcome == NGX_HTTP_IDEM_DONE || ctx->outcome == NGX_HTTP_IDEM_KEEP
             || ctx->outcome == NGX_HTTP_IDEM_RETRY);

    if (keeps && ctx->heard == NGX_HTTP_IDEM_WHOLE && !ctx->discard
        && ngx_http_idem_encode(r, ctx, &result) != NGX_OK)
    {
        ngx_str_null(&result);
    }

    /* a failure that is tried again has other answers to come */

    ctx->unkept = (result.data == NULL && ctx->conf->policy->mode == IDEM_MODE_REPLAY
                   && (ctx->outcome == NGX_HTTP_IDEM_DONE
                       || ctx->outcome == NGX_HTTP_IDEM_KEEP));

    if (ctx->run) {
        ngx_http_idem_finish(ctx, ctx->outcome, r->headers_out.status, result.data,
                             result.len);
    }

    /* whose lease was over could not reach the store for all of it: it is not waited for again */

    if (!ctx->enforced || ctx->run == NULL || ctx->cancelled == IDEM_END_LEASE) {
        ctx->state = ctx->enforced ? NGX_HTTP_IDEM_STORED : NGX_HTTP_IDEM_SENT;

        if (ctx->run) {
            ctx->run->ctx = NULL;
            ctx->run = NULL;
        }

        return NGX_OK;
    }

    ctx->state = NGX_HTTP_IDEM_STORING;

    /* delayed: neither does send_timeout run, nor does a pipe try to write meanwhile */

    r->buffered |= NGX_HTTP_IDEM_BUFFERED;
    r->connection->write->delayed = 1;

    return NGX_AGAIN;
}


/* Its upstream was ended by us in the middle of an answer, of which nothing has gone out. */

void
ngx_http_idem_cut(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx)
{
    ngx_http_idem_cut_off(ctx);

    if (ngx_http_idem_store(r, ctx) == NGX_OK) {
        (void) ngx_http_output_filter(r, NULL);
    }

    ngx_http_finalize_request(r, NGX_OK);       /* which waits for what is buffered */
}


/* The store has heard, or was waited for long enough. Called from the store's own events. */

void
ngx_http_idem_send(ngx_http_idem_ctx_t *ctx)
{
    ngx_connection_t    *c;
    ngx_http_request_t  *r;

    r = ctx->request;

    if (ctx->state == NGX_HTTP_IDEM_SETTLING) {       /* after a probe */
        ctx->state = NGX_HTTP_IDEM_ANSWERED;
        ngx_http_idem_resume(r);
        return;
    }

    if (ctx->state != NGX_HTTP_IDEM_STORING) {
        return;
    }

    c = r->connection;

    ctx->state = NGX_HTTP_IDEM_STORED;

    r->buffered &= ~NGX_HTTP_IDEM_BUFFERED;
    c->write->delayed = 0;

    ngx_http_set_log_request(c->log, r);

    if (r->upstream && r->upstream->cleanup) {

        /* a stream may have said nothing yet but its head */

        (void) ngx_http_output_filter(r, NULL);
    }

    r->write_event_handler(r);

    ngx_http_run_posted_requests(c);
}


static ngx_int_t
ngx_http_idem_send_kept(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx, ngx_chain_t *in)
{
    ngx_buf_t    *b;
    ngx_int_t     rc;
    ngx_uint_t    whole;
    ngx_chain_t  *out, **last;

    ctx->state = NGX_HTTP_IDEM_SENT;
    whole = (ctx->heard == NGX_HTTP_IDEM_WHOLE);
    out = NULL;
    last = &out;

    if (ctx->heard == NGX_HTTP_IDEM_CUT) {

        /* nothing of it has gone out: the client is told, and not cut off */

        ctx->problem = IDEM_HTTP_UNCERTAIN;

        if (ngx_http_idem_refusal(r, ctx,
                                  ctx->cancelled ? NGX_HTTP_GATEWAY_TIME_OUT
                                                 : NGX_HTTP_BAD_GATEWAY,
                                  &out)
            != NGX_OK)
        {
            return NGX_ERROR;
        }

    } else {

        if (whole && r->headers_out.content_length_n == -1 && !r->expect_trailers
            && r->headers_out.status != NGX_HTTP_NO_CONTENT
            && r->headers_out.status != NGX_HTTP_NOT_MODIFIED)
        {
            ngx_http_clear_content_length(r);
            r->headers_out.content_length_n = (off_t) ctx->kept.len;
        }

        if (ctx->kept.len || whole) {
            b = ngx_calloc_buf(r->pool);
            *last = ngx_alloc_chain_link(r->pool);

            if (b == NULL || *last == NULL) {
                return NGX_ERROR;
            }

            b->pos = ctx->kept.data;
            b->last = ctx->kept.data + ctx->kept.len;
            b->memory = (ctx->kept.len != 0);
            b->last_buf = whole;

            (*last)->buf = b;
            (*last)->next = NULL;
            last = &(*last)->next;
        }
    }

    if (ngx_http_idem_mark(r, ctx) != NGX_OK) {
        return NGX_ERROR;
    }

    rc = ngx_http_idem_next_header_filter(r);

    if (rc == NGX_ERROR || rc > NGX_OK) {
        return NGX_ERROR;
    }

    if (ngx_http_idem_hold(r, ctx, in) == NGX_ERROR) {
        return NGX_ERROR;
    }

    if (ctx->heard != NGX_HTTP_IDEM_CUT) {
        *last = ctx->pending;
    }

    ctx->pending = NULL;
    ctx->pending_last = NULL;

    if (r->header_only) {
        for (in = out; in; in = in->next) {
            in->buf->pos = in->buf->last;
        }

        return rc;
    }

    return ngx_http_idem_next_body_filter(r, out);
}
