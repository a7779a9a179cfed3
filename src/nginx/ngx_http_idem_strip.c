
/*
 * Removes fields from a request before the backend sees it: reserved ones
 * (Idem-*), and other spellings of headers that decide.
 *
 * CGI and its descendants (FastCGI, uwsgi, WSGI, Rack, PHP) give a program one
 * variable for X-Order-Key and X_Order_Key. If a key, a scope or a signature is
 * read from one of them, the other must not reach the program. nginx itself drops
 * names with an underscore, unless underscores_in_headers or
 * ignore_invalid_headers changes that.
 */

#include "ngx_http_idem.h"

#include "base/chars.h"


/* a header that decides */

typedef struct {
    ngx_str_t                  name;        /* the spelling that stays */
    ngx_int_t                  index;       /* of $http_NAME, which reads every spelling;
                                               NGX_ERROR: only this one is read */
} ngx_http_idem_strip_decider_t;


/* the fields to remove from a request */

typedef struct {
    ngx_str_t                 *name;        /* in every spelling; NULL: none */
    ngx_uint_t                 ours;
    ngx_str_t                 *stay;        /* other spellings of these */
    ngx_uint_t                 n;
} ngx_http_idem_strip_unwanted_t;


/*
 * True if a name has anything but letters, digits and hyphens. Without such a
 * name in the request or the configuration, a header has only one spelling.
 */

static ngx_uint_t
ngx_http_idem_strip_is_irregular(ngx_str_t *name)
{
    u_char  c;
    size_t  i;

    for (i = 0; i < name->len; i++) {
        c = ngx_tolower(name->data[i]);

        if ((c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-') {
            return 1;
        }
    }

    return 0;
}


/* Configuration: the headers that decide in a location. */

static ngx_int_t
ngx_http_idem_strip_add_decider(ngx_conf_t *cf, ngx_http_idem_loc_conf_t *conf, const u_char *name,
    size_t len, ngx_int_t index)
{
    size_t                          i;
    ngx_http_idem_strip_decider_t  *decider;

    if (conf->deciders == NULL) {
        conf->deciders = ngx_array_create(cf->pool, 4, sizeof(ngx_http_idem_strip_decider_t));
        if (conf->deciders == NULL) {
            return NGX_ERROR;
        }
    }

    decider = ngx_array_push(conf->deciders);
    if (decider == NULL) {
        return NGX_ERROR;
    }

    decider->index = index;
    decider->name.len = len;
    decider->name.data = ngx_pnalloc(cf->pool, len);

    if (decider->name.data == NULL) {
        return NGX_ERROR;
    }

    for (i = 0; i < len; i++) {
        decider->name.data[i] = (index != NGX_ERROR && name[i] == '_') ? '-' : name[i];
    }

    conf->decider_odd |= ngx_http_idem_strip_is_irregular(&decider->name);

    return NGX_OK;
}


static ngx_int_t
ngx_http_idem_strip_add_name(ngx_conf_t *cf, ngx_http_idem_loc_conf_t *conf, ngx_str_t *name)
{
    return name->len ? ngx_http_idem_strip_add_decider(cf, conf, name->data, name->len, NGX_ERROR)
                     : NGX_OK;
}


static ngx_int_t
ngx_http_idem_strip_add_expr(ngx_conf_t *cf, ngx_http_idem_loc_conf_t *conf,
    const struct idem_expr *expr)
{
    size_t       i;
    ngx_str_t    name;

    for (i = 0; expr; i++) {
        name.data = (u_char *) idem_expr_member(expr, "headers", i, &name.len);

        if (name.data == NULL) {
            break;
        }

        if (ngx_http_idem_strip_add_name(cf, conf, &name) != NGX_OK) {
            return NGX_ERROR;
        }
    }

    return NGX_OK;
}


/* $http_NAME, or a variable that idem_set makes of #headers. */

static ngx_int_t
ngx_http_idem_strip_add_variable(ngx_conf_t *cf, ngx_http_idem_loc_conf_t *conf, ngx_str_t *name)
{
    size_t                 prefix = sizeof("http_") - 1;
    ngx_int_t              index;
    ngx_http_variable_t   *v;

    v = ngx_http_idem_variable_find_set(cf, name);

    if (v) {
        return ngx_http_idem_strip_add_expr(cf, conf, (struct idem_expr *) v->data);
    }

    if (name->len <= prefix || ngx_strncmp(name->data, "http_", prefix) != 0) {
        return NGX_OK;
    }

    index = ngx_http_get_variable_index(cf, name);
    if (index == NGX_ERROR) {
        return NGX_ERROR;
    }

    return ngx_http_idem_strip_add_decider(cf, conf, name->data + prefix, name->len - prefix,
                                           index);
}


static ngx_int_t
ngx_http_idem_strip_add_value(ngx_conf_t *cf, ngx_http_idem_loc_conf_t *conf,
    ngx_http_complex_value_t *value)
{
    size_t     at = 0;
    ngx_str_t  name;

    while (value && ngx_http_idem_variable_next(cf->pool, &value->value, &at, &name) == NGX_OK) {
        if (ngx_http_idem_strip_add_variable(cf, conf, &name) != NGX_OK) {
            return NGX_ERROR;
        }
    }

    return NGX_OK;
}


static ngx_int_t
ngx_http_idem_strip_add_sign(ngx_conf_t *cf, ngx_http_idem_loc_conf_t *conf)
{
    size_t      i;
    ngx_str_t   name;
    ngx_str_t  *own;

    static ngx_str_t  rfc9421[] = {
        ngx_string("Signature-Input"), ngx_string("Content-Digest"), ngx_null_string
    };
    static ngx_str_t  classic[] = {
        ngx_string("X-Key-Id"), ngx_string("X-Timestamp"), ngx_string("X-Nonce"),
        ngx_string("X-Sign"), ngx_null_string
    };

    if (conf->sign == NULL) {
        return NGX_OK;
    }

    own = conf->sign->form == IDEM_SIGN_CLASSIC ? classic : rfc9421;

    for ( /* void */ ; own->len; own++) {
        if (ngx_http_idem_strip_add_name(cf, conf, own) != NGX_OK) {
            return NGX_ERROR;
        }
    }

    for (i = 0; i < conf->sign->names_n; i++) {
        name.data = (u_char *) conf->sign->names[i].at;
        name.len = conf->sign->names[i].len;

        if (name.data[0] != '@' && ngx_http_idem_strip_add_name(cf, conf, &name) != NGX_OK) {
            return NGX_ERROR;
        }
    }

    return NGX_OK;
}


/* Called when all settings of a location are known. */

ngx_int_t
ngx_http_idem_strip_find_deciders(ngx_conf_t *cf, ngx_http_idem_loc_conf_t *conf)
{
    ngx_http_idem_key_t  *key = conf->guard ? conf->key : NULL;

    if (ngx_http_idem_strip_add_sign(cf, conf) != NGX_OK) {
        return NGX_ERROR;
    }

    if (conf->guard == NULL) {
        return NGX_OK;
    }

    if (ngx_http_idem_strip_add_value(cf, conf, conf->scope) != NGX_OK
        || ngx_http_idem_strip_add_value(cf, conf, conf->bind) != NGX_OK
        || ngx_http_idem_strip_add_value(cf, conf, conf->enforce) != NGX_OK
        || ngx_http_idem_strip_add_expr(cf, conf, conf->fingerprint_expr) != NGX_OK)
    {
        return NGX_ERROR;
    }

    if (conf->issues) {
        return NGX_OK;
    }

    if (key->kind == NGX_HTTP_IDEM_KEY_VALUE) {
        return ngx_http_idem_strip_add_value(cf, conf, key->value);
    }

    if (ngx_http_idem_strip_add_name(cf, conf, &key->name) != NGX_OK) {
        return NGX_ERROR;
    }

    return ngx_http_idem_strip_add_name(cf, conf, &key->credential);
}


/* Requests. */

/* True for a header that only Idem may set. */

ngx_uint_t
ngx_http_idem_strip_is_reserved(ngx_table_elt_t *header)
{
    u_char                 *name = header->key.data;
    struct idem_http_text   text;

    if (header->key.len <= 5 || (name[0] | 0x20) != 'i'
        || ngx_strncasecmp(name, (u_char *) "Idem", 4) != 0)
    {
        return 0;
    }

    text.at = (char *) name;
    text.len = 5;

    if (idem_http_same_variable(text, IDEM_HTTP_TEXT("Idem-"))) {
        return 1;
    }

    text.len = header->key.len;

    return idem_http_same_variable(text, IDEM_HTTP_TEXT("Idempotency-Key"))
           && !idem_http_same(text, IDEM_HTTP_TEXT("Idempotency-Key"));
}


static ngx_uint_t
ngx_http_idem_strip_matches(ngx_table_elt_t *header, ngx_http_idem_strip_unwanted_t *unwanted)
{
    ngx_uint_t             i;
    struct idem_http_text  name;

    if (unwanted->ours && ngx_http_idem_strip_is_reserved(header)) {
        return 1;
    }

    name = ngx_http_idem_text(&header->key);

    if (unwanted->name && idem_http_same_variable(name, ngx_http_idem_text(unwanted->name))) {
        return 1;
    }

    for (i = 0; i < unwanted->n; i++) {
        if (idem_http_same_variable(name, ngx_http_idem_text(&unwanted->stay[i]))
            && !ngx_http_idem_fields_match(header, &unwanted->stay[i]))
        {
            return 1;
        }
    }

    return 0;
}


/*
 * Pointers to a removed field (r->headers_in.accept_encoding) still lead to it.
 * NGX_DECLINED: there is none.
 */

static ngx_int_t
ngx_http_idem_strip_remove(ngx_http_request_t *r, ngx_http_idem_strip_unwanted_t *unwanted)
{
    ngx_list_t               kept;
    ngx_table_elt_t         *header, *h;
    ngx_http_idem_fields_t   fields;

    ngx_http_idem_fields_begin(&fields, &r->headers_in.headers);

    while ((header = ngx_http_idem_fields_next(&fields)) != NULL) {
        if (ngx_http_idem_strip_matches(header, unwanted)) {
            break;
        }
    }

    if (header == NULL) {
        return NGX_DECLINED;
    }

    if (ngx_list_init(&kept, r->pool, 20, sizeof(ngx_table_elt_t)) != NGX_OK) {
        return NGX_ERROR;
    }

    ngx_http_idem_fields_begin(&fields, &r->headers_in.headers);

    while ((header = ngx_http_idem_fields_next(&fields)) != NULL) {
        if (ngx_http_idem_strip_matches(header, unwanted)) {
            continue;
        }

        h = ngx_list_push(&kept);
        if (h == NULL) {
            return NGX_ERROR;
        }

        *h = *header;
    }

    r->headers_in.headers = kept;

    if (kept.last == &kept.part) {
        r->headers_in.headers.last = &r->headers_in.headers.part;
    }

    return NGX_OK;
}


ngx_int_t
ngx_http_idem_strip_header(ngx_http_request_t *r, ngx_str_t *name)
{
    ngx_http_idem_strip_unwanted_t  unwanted = { name, 0, NULL, 0 };

    return ngx_http_idem_strip_remove(r, &unwanted) == NGX_ERROR ? NGX_ERROR : NGX_OK;
}


static ngx_uint_t
ngx_http_idem_strip_has_irregular(ngx_http_request_t *r)
{
    ngx_table_elt_t         *header;
    ngx_http_idem_fields_t   fields;

    ngx_http_idem_fields_begin(&fields, &r->headers_in.headers);

    while ((header = ngx_http_idem_fields_next(&fields)) != NULL) {
        if (ngx_http_idem_strip_is_irregular(&header->key)) {
            return 1;
        }
    }

    return 0;
}


/*
 * nginx's variables read letters, digits, hyphens and underscores: $http_x_user
 * reads X-User and X_User, and never X.User.
 */

static ngx_uint_t
ngx_http_idem_strip_is_readable(ngx_str_t *name)
{
    ngx_uint_t  i;

    for (i = 0; i < name->len; i++) {
        if (!idem_is_alpha((char) name->data[i]) && !idem_is_digit((char) name->data[i])
            && name->data[i] != '-' && name->data[i] != '_')
        {
            return 0;
        }
    }

    return 1;
}


/*
 * Returns the spelling that stays: the one with hyphens, or the first one that
 * the variable reads if that is missing.
 */

static ngx_str_t
ngx_http_idem_strip_spelling(ngx_http_request_t *r, ngx_http_idem_strip_decider_t *decider)
{
    ngx_str_t                first = ngx_null_string;
    ngx_table_elt_t         *header;
    struct idem_http_text    name;
    ngx_http_idem_fields_t   fields;

    if (decider->index == NGX_ERROR) {
        return decider->name;
    }

    name = ngx_http_idem_text(&decider->name);
    ngx_http_idem_fields_begin(&fields, &r->headers_in.headers);

    while ((header = ngx_http_idem_fields_next(&fields)) != NULL) {
        if (ngx_http_idem_fields_match(header, &decider->name)) {
            return decider->name;
        }

        if (first.len == 0 && ngx_http_idem_strip_is_readable(&header->key)
            && idem_http_same_variable(ngx_http_idem_text(&header->key), name))
        {
            first = header->key;
        }
    }

    return first.len ? first : decider->name;
}


static ngx_int_t
ngx_http_idem_strip_deciders(ngx_http_request_t *r, ngx_array_t *deciders)
{
    ngx_int_t                        rc;
    ngx_uint_t                       i;
    ngx_http_idem_strip_decider_t   *decider = deciders->elts;
    ngx_http_idem_strip_unwanted_t   unwanted = { NULL, 0, NULL, deciders->nelts };

    unwanted.stay = ngx_palloc(r->pool, deciders->nelts * sizeof(ngx_str_t));
    if (unwanted.stay == NULL) {
        return NGX_ERROR;
    }

    for (i = 0; i < deciders->nelts; i++) {
        unwanted.stay[i] = ngx_http_idem_strip_spelling(r, &decider[i]);
    }

    rc = ngx_http_idem_strip_remove(r, &unwanted);

    /* `if` and `set` may have read it before */

    for (i = 0; rc == NGX_OK && i < deciders->nelts; i++) {
        if (decider[i].index != NGX_ERROR) {
            r->variables[decider[i].index].valid = 0;
            r->variables[decider[i].index].not_found = 0;
        }
    }

    return rc == NGX_ERROR ? NGX_ERROR : NGX_OK;
}


ngx_int_t
ngx_http_idem_strip(ngx_http_request_t *r, ngx_http_idem_loc_conf_t *conf)
{
    ngx_http_idem_strip_unwanted_t  ours = { NULL, 1, NULL, 0 };

    if (conf->guard && !conf->issues && ngx_http_idem_strip_remove(r, &ours) == NGX_ERROR) {
        return NGX_ERROR;
    }

    if (conf->deciders == NULL || (!conf->decider_odd && !ngx_http_idem_strip_has_irregular(r))) {
        return NGX_OK;
    }

    return ngx_http_idem_strip_deciders(r, conf->deciders);
}
