
/*
 * What locations of our own have in common (token.c, js.c, status.c, admin.c):
 * which methods they take, and how a text of theirs goes out.
 */

#include "ngx_http_idem.h"


ngx_int_t
ngx_http_idem_allow(ngx_http_request_t *r, ngx_uint_t methods, ngx_str_t *names)
{
    if (r->method & methods) {
        return NGX_OK;
    }

    return ngx_http_idem_add_header(r, "Allow", names) == NGX_OK
           ? NGX_HTTP_NOT_ALLOWED : NGX_HTTP_INTERNAL_SERVER_ERROR;
}


ngx_int_t
ngx_http_idem_serve(ngx_http_request_t *r, ngx_buf_t *b, ngx_str_t *type, ngx_str_t *cache)
{
    ngx_int_t    rc;
    ngx_chain_t  out;

    rc = ngx_http_discard_request_body(r);
    if (rc != NGX_OK) {
        return rc;
    }

    b->last_buf = (r == r->main);         /* more of a page may follow an include */
    b->last_in_chain = 1;

    if (r->headers_out.status == 0) {
        r->headers_out.status = NGX_HTTP_OK;
    }

    r->headers_out.content_length_n = b->last - b->pos;
    r->headers_out.content_type = *type;
    r->headers_out.content_type_len = type->len;
    r->headers_out.content_type_lowcase = NULL;

    if (ngx_http_idem_add_header(r, "Cache-Control", cache) != NGX_OK) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    rc = ngx_http_send_header(r);

    if (rc == NGX_ERROR || rc > NGX_OK || r->header_only) {
        return rc;
    }

    out.buf = b;
    out.next = NULL;

    return ngx_http_output_filter(r, &out);
}
