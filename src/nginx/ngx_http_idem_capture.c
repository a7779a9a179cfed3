
/*
 * Holds the backend's response until its outcome is stored, and keeps a copy for
 * replays.
 *
 * The filter stands between copy and headers: the copy is neither encoded for
 * this client nor has it the fields of add_header; a replay gets both anew. A
 * response too long to keep is done without a result as soon as its length is
 * known, and then flows as it arrives.
 *
 *     RUNNING    the head has arrived, the body is being gathered
 *     STORING    the outcome is handed over; nothing goes out before the store
 *                confirms it (or idem_finish_timeout ends)
 *     STORED     confirmed: head and body may go out
 *     SENT       both went out, and further data passes
 *
 * In shadow mode the response passes while it is gathered, without STORED.
 */

#include "ngx_http_idem.h"


ngx_http_output_header_filter_pt  ngx_http_idem_next_header_filter;
ngx_http_output_body_filter_pt    ngx_http_idem_next_body_filter;


static ngx_int_t ngx_http_idem_capture_hold(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx,
    ngx_chain_t *in);
static ngx_int_t ngx_http_idem_capture_gather(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx,
    ngx_chain_t *in);
static ngx_int_t ngx_http_idem_capture_finish(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx);
static ngx_int_t ngx_http_idem_capture_send(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx,
    ngx_chain_t *in);


/* The only place that changes ctx->heard. */

void
ngx_http_idem_capture_set_heard(ngx_http_idem_ctx_t *ctx, ngx_http_idem_heard_e heard)
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


/* Adds the fields that show the client how the guard ended. */

static ngx_int_t
ngx_http_idem_capture_add_fields(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx)
{
    ngx_str_t  yes = ngx_string("true");
    ngx_str_t  no = ngx_string("no");
    ngx_str_t  open = ngx_string("open");

    if (ctx->lost && ngx_http_idem_reply_add_header(r, "Idem-Lost", &yes) != NGX_OK) {
        return NGX_ERROR;
    }

    if (ctx->unkept && !ctx->lost
        && ngx_http_idem_reply_add_header(r, "Idem-Kept", &no) != NGX_OK)
    {
        return NGX_ERROR;
    }

    if (ctx->unguarded && ngx_http_idem_reply_add_header(r, "Idem-Guard", &open) != NGX_OK) {
        return NGX_ERROR;
    }

    return NGX_OK;
}


/* A response declared as a stream cannot be held to its end. */

static ngx_uint_t
ngx_http_idem_capture_is_stream(ngx_http_request_t *r)
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

    ngx_http_idem_fields_begin(&fields, &r->upstream->headers_in.headers);

    while ((header = ngx_http_idem_fields_next(&fields)) != NULL) {
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
ngx_http_idem_capture_header_filter(ngx_http_request_t *r)
{
    ngx_int_t                  rc;
    ngx_http_idem_ctx_t       *ctx;
    ngx_http_idem_loc_conf_t  *conf;

    ctx = ngx_http_idem_ctx_find(r);

    if (ctx && ctx->probe == r) {
        return ngx_http_idem_probe_header(r, ctx);
    }

    if (r != r->main) {
        return ngx_http_idem_next_header_filter(r);
    }

    if (ctx == NULL || ctx->state != NGX_HTTP_IDEM_RUNNING) {
        conf = ngx_http_get_module_loc_conf(r, ngx_http_idem_module);

        if (conf->guard) {
            ngx_http_idem_upstream_remove_fields(r);
        }

        return ngx_http_idem_next_header_filter(r);
    }

    ngx_http_idem_upstream_judge(r, ctx);

    if (ctx->unguarded) {
        ctx->state = NGX_HTTP_IDEM_SENT;

        if (ngx_http_idem_capture_add_fields(r, ctx) != NGX_OK) {
            return NGX_ERROR;
        }

        return ngx_http_idem_next_header_filter(r);
    }

    r->filter_need_in_memory = 1;

    /*
     * The range filter sees the body before this filter does, and the head,
     * which names the ranges, only after the whole is stored. The stored copy is
     * whole, too.
     */

    r->allow_ranges = 0;

    ctx->live = (r->upstream && r->upstream->cleanup);

    if (ctx->conf->policy->mode != IDEM_MODE_REPLAY) {
        ctx->discard = 1;
    }

    if (r->upstream && r->upstream->upgrade) {

        /* from now on a connection, which needs its head at once */

        ctx->discard = 1;
        ctx->enforced = 0;
        (void) ngx_http_idem_capture_finish(r, ctx);
    }

    if (!ctx->enforced) {

        /* shadow mode: the response is kept, but not held */

        rc = ngx_http_idem_next_header_filter(r);

        if (r->header_only && ctx->state == NGX_HTTP_IDEM_RUNNING) {
            /* the body filter is not called for a 204 */

            ngx_http_idem_capture_set_heard(ctx, NGX_HTTP_IDEM_WHOLE);
            (void) ngx_http_idem_capture_finish(r, ctx);
        }

        return rc;
    }

    if (r->header_only) {                       /* its handler sends no body */
        ngx_http_idem_capture_set_heard(ctx, NGX_HTTP_IDEM_WHOLE);

    } else if (r->headers_out.content_length_n > ngx_http_idem_capture_body_limit(ctx)
               || ngx_http_idem_capture_is_stream(r))
    {
        ctx->discard = 1;

    } else {
        return NGX_OK;                          /* its body decides */
    }

    if (ngx_http_idem_capture_finish(r, ctx) == NGX_OK) {
        ctx->state = NGX_HTTP_IDEM_SENT;
        return ngx_http_idem_next_header_filter(r);
    }

    return NGX_OK;
}


ngx_int_t
ngx_http_idem_capture_body_filter(ngx_http_request_t *r, ngx_chain_t *in)
{
    ngx_int_t             rc;
    ngx_http_idem_ctx_t  *ctx;

    ctx = ngx_http_idem_ctx_find(r);

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
        rc = ngx_http_idem_capture_gather(r, ctx, in);

        if (!ctx->enforced) {
            ctx->discard |= (rc != NGX_OK);

            if (ctx->heard != NGX_HTTP_IDEM_HEAD) {
                (void) ngx_http_idem_capture_finish(r, ctx);
            }

            return ngx_http_idem_next_body_filter(r, in);
        }

        if (rc == NGX_DECLINED) {

            /* too long to keep: it is done, and the response can flow */

            ctx->discard = 1;

            return ngx_http_idem_capture_finish(r, ctx) == NGX_OK
                   ? ngx_http_idem_capture_send(r, ctx, in)
                   : ngx_http_idem_capture_hold(r, ctx, in);
        }

        if (rc != NGX_OK) {
            return rc;
        }

        if (ctx->heard == NGX_HTTP_IDEM_HEAD) {
            return NGX_OK;                      /* there is more to come */
        }

        return ngx_http_idem_capture_finish(r, ctx) == NGX_OK
               ? ngx_http_idem_capture_send(r, ctx, NULL) : NGX_AGAIN;

    case NGX_HTTP_IDEM_STORING:
        return ngx_http_idem_capture_hold(r, ctx, in);

    case NGX_HTTP_IDEM_STORED:
        return ngx_http_idem_capture_send(r, ctx, in);

    default:
        return ngx_http_idem_next_body_filter(r, in);
    }
}


/*
 * The outcome is unknown, unless the backend stated it beside X-Accel-Redirect:
 * that holds, whatever the other location responds.
 */

static void
ngx_http_idem_capture_set_cut(ngx_http_idem_ctx_t *ctx)
{
    ngx_http_idem_capture_set_heard(ctx, NGX_HTTP_IDEM_CUT);

    if (!ctx->told) {
        ctx->outcome = NGX_HTTP_IDEM_UNKNOWN;
    }
}


/* Copies the buffers. NGX_DECLINED: no room for the rest of `in`. */

static ngx_int_t
ngx_http_idem_capture_gather(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx, ngx_chain_t *in)
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
            rc = ngx_http_idem_capture_body_append(r, ctx, b->pos, size);

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

    /* nginx, not the backend's last byte, ended a live upstream */

    if (ctx->live && r->upstream->cleanup == NULL
        && (last ? ngx_http_idem_upstream_is_cut(r->upstream) : flush))
    {
        ngx_http_idem_capture_set_cut(ctx);

    } else if (last) {
        ngx_http_idem_capture_set_heard(ctx, NGX_HTTP_IDEM_WHOLE);
    }

    return rc;
}


/* Queues buffers until the store confirms. */

static ngx_int_t
ngx_http_idem_capture_hold(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx, ngx_chain_t *in)
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
 * Hands the outcome to the store. NGX_AGAIN: nothing goes out until the store
 * confirms. NGX_OK: there is nothing to wait for; this includes a failed
 * handover.
 */

static ngx_int_t
ngx_http_idem_capture_finish(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx)
{
    ngx_str_t   result;
    ngx_uint_t  keeps;

    ngx_str_null(&result);

    keeps = (ctx->outcome == NGX_HTTP_IDEM_DONE || ctx->outcome == NGX_HTTP_IDEM_KEEP
             || ctx->outcome == NGX_HTTP_IDEM_RETRY);

    if (keeps && ctx->heard == NGX_HTTP_IDEM_WHOLE && !ctx->discard
        && ngx_http_idem_capture_body_encode(r, ctx, &result) != NGX_OK)
    {
        ngx_str_null(&result);
    }

    /* a failure to be retried has further responses to come */

    ctx->unkept = (result.data == NULL && ctx->conf->policy->mode == IDEM_MODE_REPLAY
                   && (ctx->outcome == NGX_HTTP_IDEM_DONE
                       || ctx->outcome == NGX_HTTP_IDEM_KEEP));

    if (ctx->run) {
        ngx_http_idem_claim_finish(ctx, ctx->outcome, r->headers_out.status, result.data,
                                   result.len);
    }

    /* a run whose lease ended could not reach the store in all that time: do not wait again */

    if (!ctx->enforced || ctx->run == NULL || ctx->cancelled == IDEM_END_LEASE) {
        ctx->state = ctx->enforced ? NGX_HTTP_IDEM_STORED : NGX_HTTP_IDEM_SENT;

        if (ctx->run) {
            ctx->run->ctx = NULL;
            ctx->run = NULL;
        }

        return NGX_OK;
    }

    ctx->state = NGX_HTTP_IDEM_STORING;

    /* delayed: send_timeout does not run, and a pipe does not try to write meanwhile */

    r->buffered |= NGX_HTTP_IDEM_BUFFERED;
    r->connection->write->delayed = 1;

    return NGX_AGAIN;
}


/* We ended the upstream within a response of which nothing has gone out. */

void
ngx_http_idem_capture_cut(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx)
{
    ngx_http_idem_capture_set_cut(ctx);

    if (ngx_http_idem_capture_finish(r, ctx) == NGX_OK) {
        (void) ngx_http_output_filter(r, NULL);
    }

    ngx_http_finalize_request(r, NGX_OK);       /* waits for buffered data */
}


/*
 * Sends the response once the store confirms, or after the timeout. Called from
 * the store's own events.
 */

void
ngx_http_idem_capture_resume(ngx_http_idem_ctx_t *ctx)
{
    ngx_connection_t    *c;
    ngx_http_request_t  *r;

    r = ctx->request;

    if (ctx->state == NGX_HTTP_IDEM_SETTLING) {       /* after a probe */
        ctx->state = NGX_HTTP_IDEM_ANSWERED;
        ngx_http_idem_handler_resume(r);
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

        /* a stream may have sent only its head so far */

        (void) ngx_http_output_filter(r, NULL);
    }

    r->write_event_handler(r);

    ngx_http_run_posted_requests(c);
}


static ngx_int_t
ngx_http_idem_capture_send(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx, ngx_chain_t *in)
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

        /* nothing has gone out: send an error instead of a truncated response */

        ctx->problem = IDEM_HTTP_UNCERTAIN;

        if (ngx_http_idem_reply_refusal(r, ctx,
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

    if (ngx_http_idem_capture_add_fields(r, ctx) != NGX_OK) {
        return NGX_ERROR;
    }

    rc = ngx_http_idem_next_header_filter(r);

    if (rc == NGX_ERROR || rc > NGX_OK) {
        return NGX_ERROR;
    }

    if (ngx_http_idem_capture_hold(r, ctx, in) == NGX_ERROR) {
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
