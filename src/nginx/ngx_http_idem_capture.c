
/*
 * Holds the backend's response until its outcome is stored, and keeps a copy for
 * replays.
 *
 * The filter stands between nginx's copy and headers filters: what it keeps is
 * not encoded for this client and lacks the fields of add_header; a replay gets
 * both anew. A response too long to keep is done without a result as soon as its
 * length is known, and then flows as it arrives.
 *
 *     RUNNING    the head has arrived, the body is being gathered
 *     STORING    the outcome is handed over; nothing goes out before the store
 *                confirms it (or idem_finish_timeout ends)
 *     READY      no longer held: head and body may go out
 *     SENT       the head went out, and further data passes
 *
 * In shadow mode the response passes while it is gathered, without READY.
 */

#include "ngx_http_idem.h"


#define NGX_HTTP_IDEM_KEPT_MIN  1024
#define NGX_HTTP_IDEM_HELD      (1 << 20)      /* where no result is kept */


ngx_http_output_header_filter_pt  ngx_http_idem_next_header_filter;
ngx_http_output_body_filter_pt    ngx_http_idem_next_body_filter;


static ngx_int_t ngx_http_idem_capture_hold(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx,
    ngx_chain_t *in);
static ngx_int_t ngx_http_idem_capture_gather(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx,
    ngx_chain_t *in);
static ngx_int_t ngx_http_idem_capture_finish(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx);
static ngx_int_t ngx_http_idem_capture_send(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx,
    ngx_chain_t *in);


/* The only place that changes `arrived`. A move that is not in the table is a bug of ours. */

void
ngx_http_idem_capture_set_arrived(ngx_http_idem_ctx_t *ctx, ngx_http_idem_arrived_e arrived)
{
    if (!ngx_http_idem_state_allows_arrived(ctx->response.arrived, arrived)) {
        ngx_log_error(NGX_LOG_ALERT, ctx->request->connection->log, 0,
                      "idem: record %s: a response cannot be %s after %s; it stays there",
                      ctx->decision.hash, ngx_http_idem_state_arrived_name(arrived),
                      ngx_http_idem_state_arrived_name(ctx->response.arrived));
        return;
    }

    ctx->response.arrived = arrived;
}


void
ngx_http_idem_capture_set_kept(ngx_http_idem_ctx_t *ctx, ngx_http_idem_kept_e kept)
{
    ctx->response.kept = kept;
}


/* The body will not be stored. */

void
ngx_http_idem_capture_discard(ngx_http_idem_ctx_t *ctx)
{
    ctx->response.discard = 1;
}


/* How much of a body is held. In every mode, its end is waited for up to this limit. */

off_t
ngx_http_idem_capture_limit(ngx_http_idem_ctx_t *ctx)
{
    int64_t  max = ctx->conf->policy->result_max;

    return max > 0 ? (off_t) max : NGX_HTTP_IDEM_HELD;
}


ngx_uint_t
ngx_http_idem_capture_is_gzip(ngx_str_t *coding)
{
    struct idem_http_text  text = ngx_http_idem_text(coding);

    return idem_http_same(text, IDEM_HTTP_TEXT("gzip"))
           || idem_http_same(text, IDEM_HTTP_TEXT("x-gzip"));
}


/*
 * Measures the decoded length of gzip while it arrives. Measuring at the end, or
 * at a replay, would block other requests for the whole body.
 */

static void
ngx_http_idem_capture_measure(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx, u_char *bytes,
    size_t size)
{
    ngx_table_elt_t  *encoding = r->headers_out.content_encoding;

    if (ctx->response.body.len == 0 && encoding && ngx_http_idem_capture_is_gzip(&encoding->value)
        && !ctx->response.measured)
    {
        ctx->response.measured = 1;
        idem_http_measure_begin(&ctx->response.measure, (size_t) ngx_http_idem_capture_limit(ctx));
    }

    if (ctx->response.measured) {
        idem_http_measure_add(&ctx->response.measure, bytes, size);
    }
}


/* An upper bound of the head that the stored form will have. */

static size_t
ngx_http_idem_capture_head_max(ngx_http_request_t *r)
{
    size_t                   len;
    ngx_uint_t               n;
    ngx_table_elt_t         *header;
    ngx_http_idem_fields_t   fields;

    n = 2;                                      /* fields that nginx keeps apart */
    len = sizeof("Content-Type; charset=") + r->headers_out.content_type.len
          + r->headers_out.charset.len + sizeof("Last-Modified: Mon, 28 Sep 1970 06:00:00 GMT");

    ngx_http_idem_fields_begin(&fields, &r->headers_out.headers);

    while ((header = ngx_http_idem_fields_next(&fields)) != NULL) {
        len += header->key.len + header->value.len;
        n++;
    }

    return ngx_min(idem_http_answer_head_max(n, len), IDEM_HTTP_HEAD_MAX);
}


/*
 * Makes room for a body of that length, behind room for its head. The head is
 * written last and before the body, so that the stored form needs no copy. The
 * claim and the store share these bytes with the client's response.
 */

static ngx_int_t
ngx_http_idem_capture_reserve(ngx_http_idem_ctx_t *ctx, size_t head, size_t room)
{
    u_char                    *at;
    struct idem_shared_bytes  *shared;

    head = ngx_max(head, ctx->response.head);

    shared = idem_shared_bytes_resize(ctx->response.shared, head + room);
    if (shared == NULL) {
        return NGX_ERROR;
    }

    at = shared->at;

    if (ctx->response.body.len && head > ctx->response.head) {
        ngx_memmove(at + head, at + ctx->response.head, ctx->response.body.len);
    }

    ctx->response.shared = shared;
    ctx->response.head = head;
    ctx->response.body.data = at + head;
    ctx->response.room = room;

    return NGX_OK;
}


static ngx_int_t
ngx_http_idem_capture_append(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx, u_char *bytes,
    size_t size)
{
    off_t   length;
    size_t  head, room;

    if ((off_t) (ctx->response.body.len + size) > ngx_http_idem_capture_limit(ctx)) {
        return NGX_DECLINED;
    }

    if (ctx->response.body.len + size > ctx->response.room) {
        length = r->headers_out.content_length_n;
        room = ngx_max(2 * ctx->response.room, NGX_HTTP_IDEM_KEPT_MIN);

        if (ctx->response.room == 0 && length > 0 && length <= ngx_http_idem_capture_limit(ctx)) {
            room = (size_t) length;
        }

        room = ngx_max(room, ctx->response.body.len + size);
        head = ctx->response.discard ? 0 : ngx_http_idem_capture_head_max(r);

        if (ngx_http_idem_capture_reserve(ctx, head, room) != NGX_OK) {
            return NGX_ERROR;
        }
    }

    if (!ctx->response.discard) {
        ngx_http_idem_capture_measure(r, ctx, bytes, size);
    }

    ngx_memcpy(ctx->response.body.data + ctx->response.body.len, bytes, size);
    ctx->response.body.len += size;

    return NGX_OK;
}


/* Keeps bytes of a probe's response. If there is no room for them, no body is stored. */

void
ngx_http_idem_capture_add(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx, u_char *bytes,
    size_t size)
{
    if (ngx_http_idem_capture_append(r, ctx, bytes, size) != NGX_OK) {
        ctx->response.discard = 1;
    }
}


/* Forgets a probe's response: the run's follows. */

void
ngx_http_idem_capture_restart(ngx_http_idem_ctx_t *ctx)
{
    ngx_http_idem_capture_set_arrived(ctx, NGX_HTTP_IDEM_SILENT);
    idem_http_measure_drop(&ctx->response.measure);
    ctx->response.measured = 0;
    ctx->response.body.len = 0;
    ctx->response.discard = 0;
}


/* Writes the head before the body: both are one result, in the shared bytes. */

static ngx_int_t
ngx_http_idem_capture_write(ngx_http_idem_ctx_t *ctx, ngx_uint_t status,
    struct idem_http_header *headers, ngx_uint_t n, ngx_str_t *ret)
{
    u_char                       *at;
    size_t                        size, head;
    struct idem_http_answer_out   out;

    size = idem_http_answer_size(headers, n, ctx->response.body.len);
    if (size == 0) {
        return NGX_DECLINED;
    }

    head = size - ctx->response.body.len;

    if (head > ctx->response.head
        && ngx_http_idem_capture_reserve(ctx, head, ctx->response.body.len) != NGX_OK)
    {
        return NGX_ERROR;
    }

    at = ctx->response.body.data - head;

    if (idem_http_answer_begin(&out, at, size, (int) status, headers, n) != 0
        || idem_http_answer_append(&out, ctx->response.body.data, ctx->response.body.len) != 0)
    {
        return NGX_DECLINED;
    }

    ret->data = at;
    ret->len = idem_http_answer_end(&out);

    return NGX_OK;
}


/* Encodes the result in a row of the backend's database as a response. */

ngx_int_t
ngx_http_idem_capture_encode_row(ngx_http_idem_ctx_t *ctx, ngx_uint_t status, ngx_str_t *ret)
{
    struct idem_http_header  type;

    type.name = IDEM_HTTP_TEXT("Content-Type");
    type.value = ngx_http_idem_text(ctx->conf->probe_type);

    return ngx_http_idem_capture_write(ctx, status, &type, ctx->response.body.len ? 1 : 0, ret);
}


/* Names the charset, which nginx keeps apart, if the type does not. */

static ngx_int_t
ngx_http_idem_capture_content_type(ngx_http_request_t *r, struct idem_http_header *header)
{
    u_char                  *p;
    ngx_http_headers_out_t  *out = &r->headers_out;

    header->name = IDEM_HTTP_TEXT("Content-Type");
    header->value = ngx_http_idem_text(&out->content_type);

    if (out->charset.len && out->content_type_len == out->content_type.len) {
        header->value.len += sizeof("; charset=") - 1 + out->charset.len;

        p = ngx_pnalloc(r->pool, header->value.len);
        if (p == NULL) {
            return NGX_ERROR;
        }

        ngx_sprintf(p, "%V; charset=%V", &out->content_type, &out->charset);
        header->value.at = (char *) p;
    }

    return NGX_OK;
}


static ngx_int_t
ngx_http_idem_capture_last_modified(ngx_http_request_t *r, struct idem_http_header *header)
{
    u_char  *p;

    p = ngx_pnalloc(r->pool, sizeof("Mon, 28 Sep 1970 06:00:00 GMT") - 1);
    if (p == NULL) {
        return NGX_ERROR;
    }

    header->name = IDEM_HTTP_TEXT("Last-Modified");
    header->value.at = (char *) p;
    header->value.len = (size_t) (ngx_http_time(p, r->headers_out.last_modified_time) - p);

    return NGX_OK;
}


/* Fills in our own field and those that nginx keeps apart, and returns the end of the list. */

static struct idem_http_header *
ngx_http_idem_capture_own_fields(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx,
    struct idem_http_header *kept)
{
    u_char                    *p;
    struct idem_http_decoded   decoded;

    if (ctx->response.measured) {
        decoded = idem_http_measure_end(&ctx->response.measure);

        p = ngx_pnalloc(r->pool, IDEM_HTTP_DECODED_TEXT);
        if (p == NULL) {
            return NULL;
        }

        if (decoded.kind != IDEM_HTTP_DECODED_UNKNOWN) {
            *kept++ = idem_http_decoded_print(&decoded, (char *) p);
        }
    }

    if (r->headers_out.content_type.len
        && ngx_http_idem_capture_content_type(r, kept++) != NGX_OK)
    {
        return NULL;
    }

    if (r->headers_out.last_modified == NULL && r->headers_out.last_modified_time != -1
        && ngx_http_idem_capture_last_modified(r, kept++) != NGX_OK)
    {
        return NULL;
    }

    return kept;
}


/* Encodes the response: the fields of its head that a replay repeats, and its body. */

ngx_int_t
ngx_http_idem_capture_encode(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx, ngx_str_t *ret)
{
    ngx_uint_t                n;
    ngx_list_part_t          *part;
    ngx_table_elt_t          *header;
    ngx_http_idem_fields_t    fields;
    struct idem_http_header  *kept, *last;
    struct idem_http_text     none = { "", 0 };

    n = 3;                                      /* fields that nginx keeps apart, and our own */

    for (part = &r->headers_out.headers.part; part; part = part->next) {
        n += part->nelts;
    }

    if (n > IDEM_HTTP_HEADERS_MAX) {
        return NGX_DECLINED;
    }

    kept = ngx_palloc(r->pool, n * sizeof(struct idem_http_header));
    if (kept == NULL) {
        return NGX_ERROR;
    }

    last = ngx_http_idem_capture_own_fields(r, ctx, kept);
    if (last == NULL) {
        return NGX_ERROR;
    }

    ngx_http_idem_fields_begin(&fields, &r->headers_out.headers);

    while ((header = ngx_http_idem_fields_next(&fields)) != NULL) {
        if (header->hash == 0) {
            continue;
        }

        last->name = ngx_http_idem_text(&header->key);
        last->value = ngx_http_idem_text(&header->value);

        if (idem_http_header_kept(last->name, none, ctx->conf->headers->elts,
                                  ctx->conf->headers->nelts))
        {
            last++;
        }
    }

    return ngx_http_idem_capture_write(ctx, r->headers_out.status, kept,
                                       (ngx_uint_t) (last - kept), ret);
}


/* The filters. */

/* Adds the fields that show the client how the guard ended. */

static ngx_int_t
ngx_http_idem_capture_add_fields(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx)
{
    ngx_str_t  yes = ngx_string("true");
    ngx_str_t  no = ngx_string("no");
    ngx_str_t  open = ngx_string("open");

    if (ctx->response.kept == NGX_HTTP_IDEM_LOST
        && ngx_http_idem_reply_add_header(r, "Idem-Lost", &yes) != NGX_OK)
    {
        return NGX_ERROR;
    }

    if (ctx->response.kept == NGX_HTTP_IDEM_NOT_KEPT
        && ngx_http_idem_reply_add_header(r, "Idem-Kept", &no) != NGX_OK)
    {
        return NGX_ERROR;
    }

    if (ctx->decision.kind == NGX_HTTP_IDEM_UNGUARDED
        && ngx_http_idem_reply_add_header(r, "Idem-Guard", &open) != NGX_OK)
    {
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


/* Shadow mode: the response is kept, but not held. */

static ngx_int_t
ngx_http_idem_capture_pass_header(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx)
{
    ngx_int_t  rc;

    rc = ngx_http_idem_next_header_filter(r);

    if (r->header_only && ctx->state == NGX_HTTP_IDEM_RUNNING) {
        /* the body filter is not called for a 204 */

        ngx_http_idem_capture_set_arrived(ctx, NGX_HTTP_IDEM_WHOLE);
        (void) ngx_http_idem_capture_finish(r, ctx);
    }

    return rc;
}


/* Holds the head, unless the outcome is clear without the body and stored at once. */

static ngx_int_t
ngx_http_idem_capture_hold_header(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx)
{
    if (r->header_only) {                       /* its handler sends no body */
        ngx_http_idem_capture_set_arrived(ctx, NGX_HTTP_IDEM_WHOLE);

    } else if (r->headers_out.content_length_n > ngx_http_idem_capture_limit(ctx)
               || ngx_http_idem_capture_is_stream(r))
    {
        ctx->response.discard = 1;

    } else {
        return NGX_OK;                          /* its body decides */
    }

    if (ngx_http_idem_capture_finish(r, ctx) == NGX_OK) {
        ngx_http_idem_ctx_set_state(ctx, NGX_HTTP_IDEM_SENT);
        return ngx_http_idem_next_header_filter(r);
    }

    return NGX_OK;
}


/* The head of the run's response. */

static ngx_int_t
ngx_http_idem_capture_run_header(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx)
{
    ngx_http_idem_upstream_judge(r, ctx);

    if (ctx->decision.kind == NGX_HTTP_IDEM_UNGUARDED) {
        ngx_http_idem_ctx_set_state(ctx, NGX_HTTP_IDEM_SENT);

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

    ctx->response.live = (r->upstream && r->upstream->cleanup);

    if (ctx->conf->policy->mode != IDEM_MODE_REPLAY) {
        ctx->response.discard = 1;
    }

    if (r->upstream && r->upstream->upgrade) {

        /* a connection from now on: its head and data pass at once, as in shadow mode */

        ctx->response.discard = 1;
        ngx_http_idem_ctx_set_guard(ctx, NGX_HTTP_IDEM_SHADOW);
        (void) ngx_http_idem_capture_finish(r, ctx);
    }

    return ctx->guard == NGX_HTTP_IDEM_SHADOW ? ngx_http_idem_capture_pass_header(r, ctx)
                                              : ngx_http_idem_capture_hold_header(r, ctx);
}


ngx_int_t
ngx_http_idem_capture_header_filter(ngx_http_request_t *r)
{
    ngx_http_idem_ctx_t       *ctx;
    ngx_http_idem_loc_conf_t  *conf;

    ctx = ngx_http_idem_ctx_find(r);

    if (ctx && ctx->probe.request == r) {
        return ngx_http_idem_probe_header(r, ctx);
    }

    if (r != r->main) {
        return ngx_http_idem_next_header_filter(r);
    }

    if (ctx && ctx->state == NGX_HTTP_IDEM_RUNNING) {
        return ngx_http_idem_capture_run_header(r, ctx);
    }

    conf = ngx_http_get_module_loc_conf(r, ngx_http_idem_module);

    if (conf->guard) {
        ngx_http_idem_upstream_remove_fields(r);
    }

    return ngx_http_idem_next_header_filter(r);
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

    if (ctx->probe.request == r) {
        return ngx_http_idem_probe_body(r, ctx, in);
    }

    if (r != r->main || ctx->response.arrived == NGX_HTTP_IDEM_SILENT) {
        return ngx_http_idem_next_body_filter(r, in);
    }

    switch (ctx->state) {

    case NGX_HTTP_IDEM_RUNNING:
        rc = ngx_http_idem_capture_gather(r, ctx, in);

        if (ctx->guard == NGX_HTTP_IDEM_SHADOW) {
            ctx->response.discard |= (rc != NGX_OK);

            if (ctx->response.arrived != NGX_HTTP_IDEM_HEAD) {
                (void) ngx_http_idem_capture_finish(r, ctx);
            }

            return ngx_http_idem_next_body_filter(r, in);
        }

        if (rc == NGX_DECLINED) {

            /* too long to keep: it is done, and the response can flow */

            ctx->response.discard = 1;

            return ngx_http_idem_capture_finish(r, ctx) == NGX_OK
                   ? ngx_http_idem_capture_send(r, ctx, in)
                   : ngx_http_idem_capture_hold(r, ctx, in);
        }

        if (rc != NGX_OK) {
            return rc;
        }

        if (ctx->response.arrived == NGX_HTTP_IDEM_HEAD) {
            return NGX_OK;                      /* there is more to come */
        }

        return ngx_http_idem_capture_finish(r, ctx) == NGX_OK
               ? ngx_http_idem_capture_send(r, ctx, NULL) : NGX_AGAIN;

    case NGX_HTTP_IDEM_STORING:
        return ngx_http_idem_capture_hold(r, ctx, in);

    case NGX_HTTP_IDEM_READY:
        return ngx_http_idem_capture_send(r, ctx, in);

    default:
        return ngx_http_idem_next_body_filter(r, in);
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

        if (size && rc == NGX_OK
            && (ctx->guard != NGX_HTTP_IDEM_SHADOW || !ctx->response.discard))
        {
            rc = ngx_http_idem_capture_append(r, ctx, b->pos, size);

            if (rc == NGX_OK && ctx->guard != NGX_HTTP_IDEM_SHADOW) {
                b->pos = b->last;
                b->file_pos = b->file_last;
            }
        }

        if (rc != NGX_OK && ctx->guard != NGX_HTTP_IDEM_SHADOW) {
            return rc;
        }

        flush |= b->flush;
        last |= b->last_buf;
    }

    /* nginx, not the backend's last byte, ended a live upstream */

    if (ctx->response.live && r->upstream->cleanup == NULL
        && (last ? ngx_http_idem_upstream_is_cut(r->upstream) : flush))
    {
        ngx_http_idem_capture_set_arrived(ctx, NGX_HTTP_IDEM_CUT);
        ngx_http_idem_upstream_judge_cut(ctx);

    } else if (last) {
        ngx_http_idem_capture_set_arrived(ctx, NGX_HTTP_IDEM_WHOLE);
    }

    return rc;
}


/* Queues buffers until the store confirms. */

static ngx_int_t
ngx_http_idem_capture_hold(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx, ngx_chain_t *in)
{
    ngx_chain_t  *cl;

    if (ctx->response.pending_last == NULL) {
        ctx->response.pending_last = &ctx->response.pending;
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
        *ctx->response.pending_last = cl;
        ctx->response.pending_last = &cl->next;
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
    ngx_uint_t  outcome, keeps;

    ngx_str_null(&result);

    outcome = ctx->backend.outcome;
    keeps = (outcome == NGX_HTTP_IDEM_DONE || outcome == NGX_HTTP_IDEM_KEEP
             || outcome == NGX_HTTP_IDEM_RETRY);

    if (keeps && ctx->response.arrived == NGX_HTTP_IDEM_WHOLE && !ctx->response.discard
        && ngx_http_idem_capture_encode(r, ctx, &result) != NGX_OK)
    {
        ngx_str_null(&result);
    }

    /* a failure to be retried has further responses to come */

    if (result.data == NULL && ctx->conf->policy->mode == IDEM_MODE_REPLAY
        && (outcome == NGX_HTTP_IDEM_DONE || outcome == NGX_HTTP_IDEM_KEEP))
    {
        ctx->response.kept = NGX_HTTP_IDEM_NOT_KEPT;
    }

    if (ctx->claim) {
        ngx_http_idem_claim_finish(ctx, outcome, r->headers_out.status, result.data, result.len);
    }

    /* a run whose lease ended could not reach the store in all that time: do not wait again */

    if (ctx->guard == NGX_HTTP_IDEM_SHADOW || ctx->claim == NULL
        || ctx->backend.cancelled == IDEM_END_LEASE)
    {
        ngx_http_idem_ctx_set_state(ctx, ctx->guard == NGX_HTTP_IDEM_SHADOW
                                         ? NGX_HTTP_IDEM_SENT : NGX_HTTP_IDEM_READY);

        ngx_http_idem_claim_separate(ctx);

        return NGX_OK;
    }

    ngx_http_idem_ctx_set_state(ctx, NGX_HTTP_IDEM_STORING);

    /* delayed: send_timeout does not run, and a pipe does not try to write meanwhile */

    r->buffered |= NGX_HTTP_IDEM_BUFFERED;
    r->connection->write->delayed = 1;

    return NGX_AGAIN;
}


/* We ended the upstream within a response of which nothing has gone out. */

void
ngx_http_idem_capture_cut(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx)
{
    ngx_http_idem_capture_set_arrived(ctx, NGX_HTTP_IDEM_CUT);
    ngx_http_idem_upstream_judge_cut(ctx);

    if (ngx_http_idem_capture_finish(r, ctx) == NGX_OK) {
        (void) ngx_http_output_filter(r, NULL);
    }

    ngx_http_finalize_request(r, NGX_OK);       /* waits for buffered data */
}


/* Called when the request ends. */

void
ngx_http_idem_capture_drop(ngx_http_idem_ctx_t *ctx)
{
    idem_http_measure_drop(&ctx->response.measure);
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
        ngx_http_idem_ctx_set_state(ctx, NGX_HTTP_IDEM_ANSWERED);
        ngx_http_idem_handler_resume(r);
        return;
    }

    if (ctx->state != NGX_HTTP_IDEM_STORING) {
        return;
    }

    c = r->connection;

    ngx_http_idem_ctx_set_state(ctx, NGX_HTTP_IDEM_READY);

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


/* Nothing has gone out: an error replaces the truncated response. */

static ngx_int_t
ngx_http_idem_capture_make_error(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx,
    ngx_chain_t **out)
{
    ngx_http_idem_decision_set_problem(ctx, IDEM_HTTP_UNCERTAIN);

    return ngx_http_idem_reply_refusal(r, ctx,
                                       ctx->backend.cancelled ? NGX_HTTP_GATEWAY_TIME_OUT
                                                              : NGX_HTTP_BAD_GATEWAY,
                                       out);
}


/* The body so far, and its length if that is final. */

static ngx_int_t
ngx_http_idem_capture_make_body(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx,
    ngx_chain_t **out)
{
    ngx_buf_t   *b;
    ngx_str_t   *body = &ctx->response.body;
    ngx_uint_t   whole = (ctx->response.arrived == NGX_HTTP_IDEM_WHOLE);

    if (whole && r->headers_out.content_length_n == -1 && !r->expect_trailers
        && r->headers_out.status != NGX_HTTP_NO_CONTENT
        && r->headers_out.status != NGX_HTTP_NOT_MODIFIED)
    {
        ngx_http_clear_content_length(r);
        r->headers_out.content_length_n = (off_t) body->len;
    }

    if (body->len == 0 && !whole) {
        return NGX_OK;
    }

    b = ngx_calloc_buf(r->pool);
    *out = ngx_alloc_chain_link(r->pool);

    if (b == NULL || *out == NULL) {
        return NGX_ERROR;
    }

    b->pos = body->data;
    b->last = body->data + body->len;
    b->memory = (body->len != 0);
    b->last_buf = whole;

    (*out)->buf = b;
    (*out)->next = NULL;

    return NGX_OK;
}


static ngx_int_t
ngx_http_idem_capture_send(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx, ngx_chain_t *in)
{
    ngx_int_t     rc;
    ngx_uint_t    cut;
    ngx_chain_t  *out, **last;

    ngx_http_idem_ctx_set_state(ctx, NGX_HTTP_IDEM_SENT);
    cut = (ctx->response.arrived == NGX_HTTP_IDEM_CUT);
    out = NULL;

    rc = cut ? ngx_http_idem_capture_make_error(r, ctx, &out)
             : ngx_http_idem_capture_make_body(r, ctx, &out);

    if (rc != NGX_OK || ngx_http_idem_capture_add_fields(r, ctx) != NGX_OK) {
        return NGX_ERROR;
    }

    rc = ngx_http_idem_next_header_filter(r);

    if (rc == NGX_ERROR || rc > NGX_OK) {
        return NGX_ERROR;
    }

    if (out && ngx_http_idem_ctx_own_bytes(r, out->buf) != NGX_OK) {
        return NGX_ERROR;
    }

    if (ngx_http_idem_capture_hold(r, ctx, in) == NGX_ERROR) {
        return NGX_ERROR;
    }

    if (!cut) {
        last = out ? &out->next : &out;
        *last = ctx->response.pending;
    }

    ctx->response.pending = NULL;
    ctx->response.pending_last = NULL;

    if (r->header_only) {
        for (in = out; in; in = in->next) {
            in->buf->pos = in->buf->last;
        }

        return rc;
    }

    return ngx_http_idem_next_body_filter(r, out);
}
