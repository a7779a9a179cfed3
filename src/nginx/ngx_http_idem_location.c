
/*
 * Shared by our own locations (token.c, js.c, status.c, admin.c): the hosts and
 * methods they accept, and sending a text.
 */

#include "ngx_http_idem.h"
#include "http/http_host.h"


/* Called when the whole server is read. nginx frees its names with the configuration's text. */

ngx_int_t
ngx_http_idem_location_copy_names(ngx_conf_t *cf, ngx_http_idem_hosts_t *hosts)
{
    size_t                     size;
    ngx_http_core_srv_conf_t  *cscf;

    cscf = ngx_http_conf_get_module_srv_conf(cf, ngx_http_core_module);
    size = cscf->server_names.nelts * sizeof(ngx_http_server_name_t);

    hosts->names = ngx_palloc(cf->pool, size);
    if (hosts->names == NULL) {
        return NGX_ERROR;
    }

    ngx_memcpy(hosts->names, cscf->server_names.elts, size);
    hosts->n = cscf->server_names.nelts;

    return NGX_OK;
}


/*
 * A browser can be led here by any name, because the owner of a name controls
 * its DNS. It then takes our page for a page of that site, whose scripts may
 * read it.
 */

ngx_uint_t
ngx_http_idem_location_allows_host(ngx_http_request_t *r, ngx_http_idem_hosts_t *hosts)
{
    ngx_uint_t               i;
    ngx_str_t               *host = &r->headers_in.server;
    ngx_http_server_name_t  *names;

    if (hosts == NULL) {
        return 0;
    }

    if (hosts->any || host->len == 0 || idem_http_host_is_plain(ngx_http_idem_text(host))) {
        return 1;
    }

    names = hosts->names;

    for (i = 0; i < hosts->n; i++) {

#if (NGX_PCRE)
        if (names[i].regex) {

            if (ngx_regex_exec(names[i].regex->regex, host, NULL, 0) >= 0) {
                return 1;
            }

            continue;
        }
#endif

        if (idem_http_host_matches(ngx_http_idem_text(host), ngx_http_idem_text(&names[i].name)))
        {
            return 1;
        }
    }

    return 0;
}


ngx_int_t
ngx_http_idem_location_check_method(ngx_http_request_t *r, ngx_uint_t methods, ngx_str_t *names)
{
    if (r->method & methods) {
        return NGX_OK;
    }

    return ngx_http_idem_reply_add_header(r, "Allow", names) == NGX_OK
           ? NGX_HTTP_NOT_ALLOWED : NGX_HTTP_INTERNAL_SERVER_ERROR;
}


/* Closes a stream of open_memstream(), and returns its text; NULL: there is no memory. */

ngx_buf_t *
ngx_http_idem_location_close_text(ngx_http_request_t *r, FILE *out, char **text, size_t *len)
{
    ngx_buf_t  *b;

    b = fclose(out) == 0 ? ngx_create_temp_buf(r->pool, *len) : NULL;

    if (b) {
        b->last = ngx_cpymem(b->pos, *text, *len);
    }

    free(*text);

    return b;
}


ngx_int_t
ngx_http_idem_location_serve(ngx_http_request_t *r, ngx_buf_t *b, ngx_str_t *type, ngx_str_t *cache)
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

    if (ngx_http_idem_reply_add_header(r, "Cache-Control", cache) != NGX_OK) {
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
