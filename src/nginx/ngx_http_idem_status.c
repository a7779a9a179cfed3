
/*
 * The location that shows the counters (idem_status): text for Prometheus, JSON
 * for programs, and a page for people. The location for operators (admin.c) shows
 * the same.
 */

#include "ngx_http_idem.h"


/* Restricts what the page may load, and keeps browsers from guessing another type. */

static ngx_int_t
ngx_http_idem_status_headers(ngx_http_request_t *r, enum report_form form)
{
    ngx_str_t    policy, nosniff = ngx_string("nosniff"), none = ngx_string("no-referrer");
    ngx_str_t    deny = ngx_string("DENY");
    const char  *text;

    if (ngx_http_idem_reply_add_header(r, "X-Content-Type-Options", &nosniff) != NGX_OK) {
        return NGX_ERROR;
    }

    if (form != REPORT_PAGE) {
        return NGX_OK;
    }

    text = report_page_policy();
    if (text == NULL) {
        return NGX_ERROR;
    }

    policy.data = (u_char *) text;
    policy.len = ngx_strlen(text);

    if (ngx_http_idem_reply_add_header(r, "Content-Security-Policy", &policy) != NGX_OK
        || ngx_http_idem_reply_add_header(r, "X-Frame-Options", &deny) != NGX_OK)
    {
        return NGX_ERROR;
    }

    return ngx_http_idem_reply_add_header(r, "Referrer-Policy", &none);
}


static ngx_buf_t *
ngx_http_idem_status_render(ngx_http_request_t *r, struct board *board,
    const struct report_origin *origin, enum report_form form)
{
    FILE    *out;
    char    *text = NULL;
    size_t   len = 0;

    out = open_memstream(&text, &len);
    if (out == NULL) {
        return NULL;
    }

    report_write(board, origin, form, out);

    return ngx_http_idem_location_close_text(r, out, &text, &len);
}


/* The token is for operators who may change records; NULL: no one may. */

ngx_int_t
ngx_http_idem_status_show(ngx_http_request_t *r, const char *token)
{
    ngx_str_t                   type, cache = ngx_string("no-store");
    ngx_str_t                   vary = ngx_string("Accept");
    ngx_buf_t                  *b;
    enum report_form            form;
    struct report_origin        origin = { "http", token };
    struct idem_http_accept     accept;
    ngx_http_idem_main_conf_t  *imcf;

    ngx_http_idem_fields_accept(r, &accept);

    if (!report_form(ngx_http_idem_text(&r->args), &accept, &form)) {
        return NGX_HTTP_BAD_REQUEST;
    }

    imcf = ngx_http_get_module_main_conf(r, ngx_http_idem_module);
    b = ngx_http_idem_status_render(r, imcf->board, &origin, form);

    if (b == NULL || ngx_http_idem_status_headers(r, form) != NGX_OK
        || ngx_http_idem_reply_add_header(r, "Vary", &vary) != NGX_OK)
    {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    type.data = (u_char *) report_type(form);
    type.len = ngx_strlen(type.data);

    r->disable_not_modified = 1;
    r->allow_ranges = 0;

    return ngx_http_idem_location_serve(r, b, &type, &cache);
}


ngx_int_t
ngx_http_idem_status_handler(ngx_http_request_t *r)
{
    ngx_int_t                  rc;
    ngx_str_t                  methods = ngx_string("GET, HEAD");
    ngx_http_idem_loc_conf_t  *conf;

    if (r != r->main) {                    /* access rules do not apply to subrequests */
        return NGX_HTTP_FORBIDDEN;
    }

    conf = ngx_http_get_module_loc_conf(r, ngx_http_idem_module);

    if (!ngx_http_idem_location_allows_host(r, conf->hosts)) {
        ngx_log_error(NGX_LOG_WARN, r->connection->log, 0,
                      "idem: idem_status refuses a Host that is not one of the server's names; "
                      "add it to server_name, or set \"idem_status host=any;\"");

        return ngx_http_idem_admin_refuse(r, NGX_HTTP_FORBIDDEN,
                                          "The Host of the request is not one of this server's "
                                          "names. Add it to server_name, use an address, or "
                                          "set \"idem_status host=any;\".");
    }

    rc = ngx_http_idem_location_check_method(r, NGX_HTTP_GET|NGX_HTTP_HEAD, &methods);

    return rc == NGX_OK ? ngx_http_idem_status_show(r, NULL) : rc;
}
