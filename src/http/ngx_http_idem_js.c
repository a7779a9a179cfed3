
/*
 * The browser's half, web/idem.js, as it was when the module was built
 * (idem_js).
 */

#include "ngx_http_idem.h"


/* a C string, made by the build */

static u_char  ngx_http_idem_js_text[] =
#include "idem.js.h"
;


static ngx_int_t
ngx_http_idem_js_etag(ngx_http_request_t *r, size_t len)
{
    ngx_table_elt_t        *etag;
    unsigned char           hash[IDEM_HASH_LEN];
    struct idem_bytes       text = { ngx_http_idem_js_text, len };

    etag = ngx_list_push(&r->headers_out.headers);
    if (etag == NULL) {
        return NGX_ERROR;
    }

    etag->hash = 0;                            /* until it is whole */
    etag->value.data = ngx_pnalloc(r->pool, 2 + 16);

    if (etag->value.data == NULL || idem_sha256(text, hash) != 0) {
        return NGX_ERROR;
    }

    etag->value.data[0] = '"';
    ngx_hex_dump(etag->value.data + 1, hash, 8);
    etag->value.data[17] = '"';
    etag->value.len = 18;

    etag->hash = 1;
    ngx_str_set(&etag->key, "ETag");

    r->headers_out.etag = etag;

    return NGX_OK;
}


/* It is asked for anew with each page, and told by its ETag that nothing has changed: a page and
   the gateway that it talks to are of one version. */

ngx_int_t
ngx_http_idem_js_handler(ngx_http_request_t *r)
{
    ngx_int_t    rc;
    ngx_buf_t   *b;
    ngx_str_t    cache = ngx_string("no-cache");
    ngx_chain_t  out;

    if (!(r->method & (NGX_HTTP_GET|NGX_HTTP_HEAD))) {
        ngx_str_t  allow = ngx_string("GET, HEAD");

        return ngx_http_idem_add_header(r, "Allow", &allow) == NGX_OK
               ? NGX_HTTP_NOT_ALLOWED : NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    rc = ngx_http_discard_request_body(r);
    if (rc != NGX_OK) {
        return rc;
    }

    b = ngx_calloc_buf(r->pool);
    if (b == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    b->pos = ngx_http_idem_js_text;
    b->last = b->pos + sizeof(ngx_http_idem_js_text) - 1;
    b->memory = 1;
    b->last_buf = 1;
    b->last_in_chain = 1;

    r->headers_out.status = NGX_HTTP_OK;
    r->headers_out.content_length_n = b->last - b->pos;
    ngx_str_set(&r->headers_out.content_type, "text/javascript");
    r->headers_out.content_type_len = r->headers_out.content_type.len;
    r->headers_out.content_type_lowcase = NULL;
    ngx_str_set(&r->headers_out.charset, "utf-8");

    if (ngx_http_idem_add_header(r, "Cache-Control", &cache) != NGX_OK
        || ngx_http_idem_js_etag(r, (size_t) (b->last - b->pos)) != NGX_OK)
    {
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
