
/*
 * The location for operators (idem_admin): it shows the same as idem_status, and
 * executes their requests (admin_action.c). Off by default, with an access rule
 * of its own.
 *
 * A browser may send a request that its user does not want. So each request must
 * carry a token that only this location's page contains, in a header that no
 * form and no other site's script can send.
 */

#include "ngx_http_idem.h"


/* Configuration. */

static ngx_int_t
ngx_http_idem_admin_allow(ngx_conf_t *cf, ngx_http_idem_admin_t *admin, ngx_str_t *value)
{
    ngx_int_t    rc;
    ngx_cidr_t  *cidr;

    if (ngx_strcmp(value->data, "all") == 0) {
        admin->all = 1;
        return NGX_OK;
    }

    cidr = ngx_array_push(&admin->allow);
    if (cidr == NULL) {
        return NGX_ERROR;
    }

    ngx_memzero(cidr, sizeof(ngx_cidr_t));

    if (ngx_strcmp(value->data, "unix:") == 0) {
        cidr->family = AF_UNIX;
        return NGX_OK;
    }

    rc = ngx_ptocidr(value, cidr);

    if (rc == NGX_DONE) {
        ngx_conf_log_error(NGX_LOG_WARN, cf, 0, "idem_admin: low address bits of %V are "
                           "meaningless", value);
        return NGX_OK;
    }

    if (rc != NGX_OK) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "idem_admin: allow=%V is not understood; "
                           "allowed are an address, a network (10.0.0.0/8), \"unix:\" and "
                           "\"all\"", value);
    }

    return rc;
}


static ngx_int_t
ngx_http_idem_admin_parameter(ngx_conf_t *cf, ngx_http_idem_admin_t *admin, ngx_str_t *word)
{
    ngx_str_t  value;

    if (ngx_http_idem_directive_parameter(word, "allow=", &value) == NGX_OK) {
        return ngx_http_idem_admin_allow(cf, admin, &value);
    }

    if (ngx_http_idem_directive_parameter(word, "who=", &value) == NGX_OK) {
        admin->who = ngx_http_idem_directive_complex_value(cf, &value);
        return admin->who ? NGX_OK : NGX_ERROR;
    }

    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "idem_admin: \"%V\" is not understood; it takes "
                       "allow=ADDRESS and who=VALUE", word);

    return NGX_ERROR;
}


char *
ngx_http_idem_admin(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_str_t                 *value = cf->args->elts, user = ngx_string("$remote_user");
    ngx_uint_t                 i;
    ngx_http_idem_admin_t     *admin;
    ngx_http_core_loc_conf_t  *clcf;
    ngx_http_idem_loc_conf_t  *ilcf = conf;

    if (ilcf->admin) {
        return "is duplicate";
    }

    admin = ngx_pcalloc(cf->pool, sizeof(ngx_http_idem_admin_t));
    ilcf->hosts = ngx_pcalloc(cf->pool, sizeof(ngx_http_idem_hosts_t));

    if (admin == NULL || ilcf->hosts == NULL
        || ngx_array_init(&admin->allow, cf->pool, 2, sizeof(ngx_cidr_t)) != NGX_OK)
    {
        return NGX_CONF_ERROR;
    }

    for (i = 1; i < cf->args->nelts; i++) {
        if (ngx_http_idem_admin_parameter(cf, admin, &value[i]) != NGX_OK) {
            return NGX_CONF_ERROR;
        }
    }

    if (!admin->all && admin->allow.nelts == 0) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "idem_admin: name the clients that may change records: \"idem_admin "
                           "allow=127.0.0.1;\" for an address or a network, or \"idem_admin "
                           "allow=all;\" where auth_basic, auth_request or client certificates "
                           "decide");
        return NGX_CONF_ERROR;
    }

    if (admin->who == NULL) {
        admin->who = ngx_http_idem_directive_complex_value(cf, &user);
        if (admin->who == NULL) {
            return NGX_CONF_ERROR;
        }
    }

    ilcf->admin = admin;
    ilcf->shows = 1;

    clcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);
    clcf->handler = ngx_http_idem_admin_handler;

    return ngx_http_idem_metric_zone(cf) == NGX_OK ? NGX_CONF_OK : NGX_CONF_ERROR;
}


/* Once per board, so that tokens stay valid after a reload. */

ngx_int_t
ngx_http_idem_admin_secret(ngx_http_idem_main_conf_t *imcf)
{
    u_char         *secret = imcf->board->secret;
    static u_char   none[IDEM_ADMIN_SECRET];

    if (ngx_memcmp(secret, none, IDEM_ADMIN_SECRET) != 0) {
        return NGX_OK;
    }

    return idem_random(secret, IDEM_ADMIN_SECRET) == 0 ? NGX_OK : NGX_ERROR;
}


/* Responses. */

/* Closes the stream, and sends its text. */

ngx_int_t
ngx_http_idem_admin_send(ngx_http_request_t *r, ngx_str_t *type, FILE *out, char **text,
    size_t *len)
{
    ngx_buf_t  *b;
    ngx_str_t   cache = ngx_string("no-store"), nosniff = ngx_string("nosniff");

    b = ngx_http_idem_location_close_text(r, out, text, len);

    if (b == NULL
        || ngx_http_idem_reply_add_header(r, "X-Content-Type-Options", &nosniff) != NGX_OK)
    {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    r->disable_not_modified = 1;
    r->allow_ranges = 0;

    return ngx_http_idem_location_serve(r, b, type, &cache);
}


static const char *
ngx_http_idem_admin_title(ngx_uint_t status)
{
    ngx_uint_t  i;

    static const struct {
        ngx_uint_t   status;
        const char  *title;
    } titles[] = {
        { NGX_HTTP_BAD_REQUEST, "Bad Request" },
        { NGX_HTTP_FORBIDDEN, "Forbidden" },
        { NGX_HTTP_NOT_FOUND, "Not Found" },
        { NGX_HTTP_CONFLICT, "Conflict" },
        { NGX_HTTP_LENGTH_REQUIRED, "Length Required" },
        { NGX_HTTP_REQUEST_ENTITY_TOO_LARGE, "Content Too Large" },
        { NGX_HTTP_UNSUPPORTED_MEDIA_TYPE, "Unsupported Media Type" },
        { NGX_HTTP_SERVICE_UNAVAILABLE, "Service Unavailable" },
        { 0, "Error" },
    };

    for (i = 0; titles[i].status && titles[i].status != status; i++) { /* void */ }

    return titles[i].title;
}


ngx_int_t
ngx_http_idem_admin_refuse(ngx_http_request_t *r, ngx_uint_t status, const char *detail)
{
    FILE       *out;
    char       *text = NULL;
    size_t      len = 0;
    ngx_str_t   type = ngx_string(IDEM_HTTP_PROBLEM_JSON);

    out = open_memstream(&text, &len);
    if (out == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    idem_admin_problem((int) status, ngx_http_idem_admin_title(status), detail, out);
    r->headers_out.status = status;

    return ngx_http_idem_admin_send(r, &type, out, &text, &len);
}


/* Requests. */

/* Returns how often a field occurs, and the value of its last occurrence. */

static ngx_uint_t
ngx_http_idem_admin_find_field(ngx_http_request_t *r, const char *name, ngx_str_t *value)
{
    ngx_str_t         wanted = { ngx_strlen(name), (u_char *) name };
    ngx_uint_t        n;
    ngx_table_elt_t  *header;

    header = ngx_http_idem_fields_find(&r->headers_in.headers, &wanted, &n);

    if (header) {
        *value = header->value;

    } else {
        ngx_str_null(value);
    }

    return n;
}


/* Ignores parameters of the media type. */

static ngx_uint_t
ngx_http_idem_admin_is_json(ngx_http_request_t *r)
{
    ngx_str_t              value;
    ngx_uint_t             n;
    struct idem_http_text  type;

    n = ngx_http_idem_admin_find_field(r, "Content-Type", &value);

    type.at = (char *) value.data;
    type.len = 0;

    while (type.len < value.len && value.data[type.len] != ';') {
        type.len++;
    }

    return n == 1 && idem_http_same(idem_http_trim(type), IDEM_HTTP_TEXT("application/json"));
}


/* NULL if the request comes from our own page, or the reason why not. */

static const char *
ngx_http_idem_admin_check_origin(ngx_http_request_t *r, struct idem_admin_caller *caller)
{
    ngx_str_t                   origin, site, token, host;
    ngx_uint_t                  n;
    ngx_http_idem_main_conf_t  *imcf;

    imcf = ngx_http_get_module_main_conf(r, ngx_http_idem_module);

    n = ngx_http_idem_admin_find_field(r, "Origin", &origin);

    if (n && (n > 1 || ngx_http_idem_admin_find_field(r, "Host", &host) != 1
              || !idem_admin_same_origin(ngx_http_idem_text(&origin), ngx_http_idem_text(&host))))
    {
        return "The request comes from another site's page (Origin).";
    }

    n = ngx_http_idem_admin_find_field(r, "Sec-Fetch-Site", &site);

    if (n && (n > 1 || !idem_is_word(site.data, site.len, "same-origin"))) {
        return "The request comes from another site's page (Sec-Fetch-Site).";
    }

    if (ngx_http_idem_admin_find_field(r, "Idem-Admin-Token", &token) != 1
        || !idem_admin_token_good(imcf->board->secret, caller, ngx_time(),
                                  ngx_http_idem_text(&token)))
    {
        return "The header Idem-Admin-Token must carry the token that a GET of this location with "
               "?format=json gives to you as \"admin\"; it is good for an hour.";
    }

    return NULL;
}


static ngx_int_t
ngx_http_idem_admin_warn(ngx_http_request_t *r, ngx_uint_t status, const char *detail)
{
    ngx_log_error(NGX_LOG_WARN, r->connection->log, 0, "idem: idem_admin refuses: %s", detail);

    return ngx_http_idem_admin_refuse(r, status, detail);
}


/* NGX_DECLINED: the request is valid; otherwise a response. */

ngx_int_t
ngx_http_idem_admin_check(ngx_http_request_t *r, struct idem_admin_caller *caller)
{
    const char  *wrong;

    if (!ngx_http_idem_admin_is_json(r)) {
        return ngx_http_idem_admin_warn(r, NGX_HTTP_UNSUPPORTED_MEDIA_TYPE,
                                        "The request must be application/json.");
    }

    wrong = ngx_http_idem_admin_check_origin(r, caller);

    return wrong ? ngx_http_idem_admin_warn(r, NGX_HTTP_FORBIDDEN, wrong) : NGX_DECLINED;
}


/*
 * The body is read before any other check: a client that still sends its body
 * may get a connection reset instead of the response.
 */

static ngx_int_t
ngx_http_idem_admin_post(ngx_http_request_t *r, struct idem_admin_caller *caller)
{
    if (r->headers_in.content_length_n < 0) {
        return ngx_http_idem_admin_refuse(r, NGX_HTTP_LENGTH_REQUIRED,
                                          "The request must have a Content-Length.");
    }

    if (r->headers_in.content_length_n > IDEM_ADMIN_BODY_MAX) {
        return ngx_http_idem_admin_refuse(r, NGX_HTTP_REQUEST_ENTITY_TOO_LARGE,
                                          "The request is longer than 4096 bytes.");
    }

    return ngx_http_idem_admin_action_start(r, caller);
}


static ngx_int_t
ngx_http_idem_admin_get(ngx_http_request_t *r, struct idem_admin_caller *caller)
{
    char                        token[IDEM_ADMIN_TOKEN + 1];
    ngx_http_idem_main_conf_t  *imcf;

    imcf = ngx_http_get_module_main_conf(r, ngx_http_idem_module);

    if (idem_admin_token_make(imcf->board->secret, caller, ngx_time(), token) != 0) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    return ngx_http_idem_status_show(r, token);
}


ngx_int_t
ngx_http_idem_admin_handler(ngx_http_request_t *r)
{
    ngx_int_t                  rc;
    ngx_str_t                  who, methods = ngx_string("GET, HEAD, POST");
    ngx_http_idem_admin_t     *admin;
    ngx_http_idem_loc_conf_t  *conf;
    struct idem_admin_caller   caller;

    if (r != r->main) {                    /* nginx checks no password for subrequests */
        return NGX_HTTP_FORBIDDEN;
    }

    conf = ngx_http_get_module_loc_conf(r, ngx_http_idem_module);
    admin = conf->admin;

    if (admin == NULL
        || (!admin->all
            && ngx_cidr_match(r->connection->sockaddr, &admin->allow) != NGX_OK))
    {
        return ngx_http_idem_admin_warn(r, NGX_HTTP_FORBIDDEN,
                                        "Your address is not one of those that may do this.");
    }

    if (!ngx_http_idem_location_allows_host(r, conf->hosts)) {
        return ngx_http_idem_admin_warn(r, NGX_HTTP_FORBIDDEN,
                                        "The Host of the request is not one of this server's "
                                        "names. Add it to server_name, or use an address.");
    }

    rc = ngx_http_idem_location_check_method(r, NGX_HTTP_GET|NGX_HTTP_HEAD|NGX_HTTP_POST, &methods);
    if (rc != NGX_OK) {
        return rc;
    }

    if (ngx_http_complex_value(r, admin->who, &who) != NGX_OK) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    caller.who = ngx_http_idem_text(&who);
    caller.address = ngx_http_idem_text(&r->connection->addr_text);

    return r->method == NGX_HTTP_POST ? ngx_http_idem_admin_post(r, &caller)
                                      : ngx_http_idem_admin_get(r, &caller);
}
