
/*
 * The browser's half, web/idem.js, as it was when the module was built
 * (idem_js).
 */

#include "ngx_http_idem.h"


/* a C string, made by the build */

static u_char  ngx_http_idem_js_text[] =
#include "idem.js.h"
;


static u_char  ngx_http_idem_js_etag[] = "\"0123456789abcdef\"";


/* When the configuration is read: the text is always the same. */

ngx_int_t
ngx_http_idem_js_init(void)
{
    unsigned char      hash[IDEM_HASH_LEN];
    struct idem_bytes  text = { ngx_http_idem_js_text, sizeof(ngx_http_idem_js_text) - 1 };

    if (idem_sha256(text, hash) != 0) {
        return NGX_ERROR;
    }

    ngx_hex_dump(ngx_http_idem_js_etag + 1, hash, 8);

    return NGX_OK;
}


/* It is asked for anew with each page, and told by its ETag that nothing has changed: a page and
   the gateway that it talks to are of one version. */

ngx_int_t
ngx_http_idem_js_handler(ngx_http_request_t *r)
{
    ngx_int_t         rc;
    ngx_buf_t        *b;
    ngx_str_t         methods = ngx_string("GET, HEAD");
    ngx_str_t         type = ngx_string("text/javascript");
    ngx_str_t         cache = ngx_string("no-cache");
    ngx_table_elt_t  *etag;

    rc = ngx_http_idem_allow(r, NGX_HTTP_GET|NGX_HTTP_HEAD, &methods);
    if (rc != NGX_OK) {
        return rc;
    }

    b = ngx_calloc_buf(r->pool);
    etag = ngx_list_push(&r->headers_out.headers);

    if (b == NULL || etag == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    ngx_memzero(etag, sizeof(ngx_table_elt_t));

    etag->hash = 1;
    ngx_str_set(&etag->key, "ETag");
    etag->value.data = ngx_http_idem_js_etag;
    etag->value.len = sizeof(ngx_http_idem_js_etag) - 1;
    r->headers_out.etag = etag;

    b->pos = ngx_http_idem_js_text;
    b->last = b->pos + sizeof(ngx_http_idem_js_text) - 1;
    b->memory = 1;

    ngx_str_set(&r->headers_out.charset, "utf-8");

    return ngx_http_idem_serve(r, b, &type, &cache);
}
