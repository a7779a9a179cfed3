
/*
 * The stored copy of the backend's response: the body as it arrives, and then
 * head and body encoded as one result.
 */

#include "ngx_http_idem.h"


#define NGX_HTTP_IDEM_KEPT_MIN  1024
#define NGX_HTTP_IDEM_HELD      (1 << 20)      /* where no result is kept */


/* How much of a body is held. In every mode, its end is waited for up to this limit. */

off_t
ngx_http_idem_capture_body_limit(ngx_http_idem_ctx_t *ctx)
{
    int64_t  max = ctx->conf->policy->result_max;

    return max > 0 ? (off_t) max : NGX_HTTP_IDEM_HELD;
}


ngx_uint_t
ngx_http_idem_capture_body_is_gzip(ngx_str_t *coding)
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
ngx_http_idem_capture_body_measure(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx, u_char *bytes,
    size_t size)
{
    ngx_table_elt_t  *encoding = r->headers_out.content_encoding;

    if (ctx->kept.len == 0 && encoding && ngx_http_idem_capture_body_is_gzip(&encoding->value)
        && !ctx->measured)
    {
        ctx->measured = 1;
        idem_http_measure_begin(&ctx->measure, (size_t) ngx_http_idem_capture_body_limit(ctx));
    }

    if (ctx->measured) {
        idem_http_measure_add(&ctx->measure, bytes, size);
    }
}


ngx_int_t
ngx_http_idem_capture_body_append(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx, u_char *bytes,
    size_t size)
{
    off_t    length;
    size_t   room;
    u_char  *p;

    if ((off_t) (ctx->kept.len + size) > ngx_http_idem_capture_body_limit(ctx)) {
        return NGX_DECLINED;
    }

    if (ctx->kept.len + size > ctx->kept_size) {
        length = r->headers_out.content_length_n;
        room = ngx_max(2 * ctx->kept_size, NGX_HTTP_IDEM_KEPT_MIN);

        if (ctx->kept_size == 0 && length > 0 && length <= ngx_http_idem_capture_body_limit(ctx)) {
            room = (size_t) length;
        }

        room = ngx_max(room, ctx->kept.len + size);

        p = ngx_palloc(r->pool, room);
        if (p == NULL) {
            return NGX_ERROR;
        }

        if (ctx->kept.data) {
            ngx_memcpy(p, ctx->kept.data, ctx->kept.len);
            (void) ngx_pfree(r->pool, ctx->kept.data);
        }

        ctx->kept.data = p;
        ctx->kept_size = room;
    }

    if (!ctx->discard) {
        ngx_http_idem_capture_body_measure(r, ctx, bytes, size);
    }

    ngx_memcpy(ctx->kept.data + ctx->kept.len, bytes, size);
    ctx->kept.len += size;

    return NGX_OK;
}


/* Encodes head and body as one result. */

static ngx_int_t
ngx_http_idem_capture_body_write(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx, ngx_uint_t status,
    struct idem_http_header *headers, ngx_uint_t n, ngx_str_t *ret)
{
    u_char                       *room;
    size_t                        size;
    struct idem_http_answer_out   out;

    size = idem_http_answer_size(headers, n, ctx->kept.len);
    if (size == 0) {
        return NGX_DECLINED;
    }

    room = ngx_palloc(r->pool, size);
    if (room == NULL) {
        return NGX_ERROR;
    }

    if (idem_http_answer_begin(&out, room, size, (int) status, headers, n) != 0
        || idem_http_answer_append(&out, ctx->kept.data, ctx->kept.len) != 0)
    {
        return NGX_DECLINED;
    }

    ret->data = room;
    ret->len = idem_http_answer_end(&out);

    return NGX_OK;
}


/* Encodes the result in a row of the backend's database as a response. */

ngx_int_t
ngx_http_idem_capture_body_encode_row(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx,
    ngx_uint_t status, ngx_str_t *ret)
{
    struct idem_http_header  type;

    type.name = IDEM_HTTP_TEXT("Content-Type");
    type.value = ngx_http_idem_text(ctx->conf->probe_type);

    return ngx_http_idem_capture_body_write(r, ctx, status, &type, ctx->kept.len ? 1 : 0, ret);
}


/* Encodes the response: the fields of its head that a replay repeats, and its body. */

ngx_int_t
ngx_http_idem_capture_body_encode(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx, ngx_str_t *ret)
{
    u_char                   *type;
    size_t                    size;
    ngx_uint_t                n;
    ngx_list_part_t          *part;
    ngx_table_elt_t          *header;
    ngx_http_idem_fields_t    fields;
    struct idem_http_header  *kept;
    struct idem_http_decoded  decoded;
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

    n = 0;

    if (ctx->measured) {
        decoded = idem_http_measure_end(&ctx->measure);
        type = ngx_pnalloc(r->pool, IDEM_HTTP_DECODED_TEXT);

        if (type == NULL) {
            return NGX_ERROR;
        }

        if (decoded.kind != IDEM_HTTP_DECODED_UNKNOWN) {
            kept[n++] = idem_http_decoded_print(&decoded, (char *) type);
        }
    }

    if (r->headers_out.content_type.len) {
        kept[n].name = IDEM_HTTP_TEXT("Content-Type");
        kept[n].value.at = (char *) r->headers_out.content_type.data;
        kept[n].value.len = r->headers_out.content_type.len;

        if (r->headers_out.charset.len
            && r->headers_out.content_type_len == r->headers_out.content_type.len)
        {
            size = r->headers_out.content_type.len + sizeof("; charset=") - 1
                   + r->headers_out.charset.len;

            type = ngx_pnalloc(r->pool, size);
            if (type == NULL) {
                return NGX_ERROR;
            }

            ngx_sprintf(type, "%V; charset=%V", &r->headers_out.content_type,
                        &r->headers_out.charset);

            kept[n].value.at = (char *) type;
            kept[n].value.len = size;
        }

        n++;
    }

    if (r->headers_out.last_modified == NULL && r->headers_out.last_modified_time != -1) {
        type = ngx_pnalloc(r->pool, sizeof("Mon, 28 Sep 1970 06:00:00 GMT") - 1);
        if (type == NULL) {
            return NGX_ERROR;
        }

        kept[n].name = IDEM_HTTP_TEXT("Last-Modified");
        kept[n].value.at = (char *) type;
        kept[n].value.len = (size_t) (ngx_http_time(type, r->headers_out.last_modified_time)
                                      - type);
        n++;
    }

    ngx_http_idem_fields_begin(&fields, &r->headers_out.headers);

    while ((header = ngx_http_idem_fields_next(&fields)) != NULL) {
        if (header->hash == 0) {
            continue;
        }

        kept[n].name = ngx_http_idem_text(&header->key);
        kept[n].value = ngx_http_idem_text(&header->value);

        if (idem_http_header_kept(kept[n].name, none, ctx->conf->headers->elts,
                                  ctx->conf->headers->nelts))
        {
            n++;
        }
    }

    return ngx_http_idem_capture_body_write(r, ctx, r->headers_out.status, kept, n, ret);
}
