
/*
 * The browser's scripts, web/idem.js and web/idem-sign.js, as they were when the
 * module was built (idem_js, idem_js sign).
 */

#include "ngx_http_idem.h"


/* C strings, made by the build */

static u_char  ngx_http_idem_js_main[] =
#include "idem.js.h"
;

static u_char  ngx_http_idem_js_sign[] =
#include "idem-sign.js.h"
;


#define NGX_HTTP_IDEM_JS(text)  { text, sizeof(text) - 1, "\"0123456789abcdef\"" }

typedef struct {
    u_char  *text;
    size_t   len;
    u_char   etag[sizeof("\"0123456789abcdef\"")];
} ngx_http_idem_js_t;

enum { NGX_HTTP_IDEM_JS_MAIN, NGX_HTTP_IDEM_JS_SIGN, NGX_HTTP_IDEM_JS_N };

static ngx_http_idem_js_t  ngx_http_idem_js_files[NGX_HTTP_IDEM_JS_N] = {
    NGX_HTTP_IDEM_JS(ngx_http_idem_js_main),
    NGX_HTTP_IDEM_JS(ngx_http_idem_js_sign),
};


/* Computes the ETags when the configuration is read: the texts never change. */

ngx_int_t
ngx_http_idem_js_init(void)
{
    ngx_uint_t           i;
    unsigned char        hash[IDEM_HASH_LEN];
    ngx_http_idem_js_t  *file;

    for (i = 0; i < NGX_HTTP_IDEM_JS_N; i++) {
        file = &ngx_http_idem_js_files[i];

        if (idem_sha256((struct idem_bytes) { file->text, file->len }, hash) != 0) {
            return NGX_ERROR;
        }

        ngx_hex_dump(file->etag + 1, hash, 8);
    }

    return NGX_OK;
}


/*
 * Browsers revalidate the script for each page, and the ETag confirms it: a page
 * and its gateway are of one version.
 */

static ngx_int_t
ngx_http_idem_js_serve(ngx_http_request_t *r, ngx_http_idem_js_t *file)
{
    ngx_int_t         rc;
    ngx_buf_t        *b;
    ngx_str_t         methods = ngx_string("GET, HEAD");
    ngx_str_t         type = ngx_string("text/javascript");
    ngx_str_t         cache = ngx_string("no-cache");
    ngx_str_t         name = ngx_string("ETag");
    ngx_str_t         value = { sizeof(file->etag) - 1, file->etag };
    ngx_table_elt_t  *etag;

    rc = ngx_http_idem_location_check_method(r, NGX_HTTP_GET|NGX_HTTP_HEAD, &methods);
    if (rc != NGX_OK) {
        return rc;
    }

    b = ngx_calloc_buf(r->pool);
    etag = ngx_http_idem_fields_push(&r->headers_out.headers, &name, &value);

    if (b == NULL || etag == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    r->headers_out.etag = etag;

    b->pos = file->text;
    b->last = b->pos + file->len;
    b->memory = 1;

    ngx_str_set(&r->headers_out.charset, "utf-8");

    return ngx_http_idem_location_serve(r, b, &type, &cache);
}


ngx_int_t
ngx_http_idem_js_handler(ngx_http_request_t *r)
{
    return ngx_http_idem_js_serve(r, &ngx_http_idem_js_files[NGX_HTTP_IDEM_JS_MAIN]);
}


ngx_int_t
ngx_http_idem_js_sign_handler(ngx_http_request_t *r)
{
    return ngx_http_idem_js_serve(r, &ngx_http_idem_js_files[NGX_HTTP_IDEM_JS_SIGN]);
}
