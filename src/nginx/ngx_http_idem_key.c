
/*
 * Evaluates the scope and the key of a request.
 *
 * A missing or malformed key is the client's mistake: the request is refused with
 * its own kind of problem before the store is asked. No text here contains a key,
 * a scope or a byte of a body.
 */

#include "ngx_http_idem.h"
#include "core/key.h"


ngx_int_t
ngx_http_idem_key_missing(ngx_http_idem_ctx_t *ctx, const char *detail)
{
    return ngx_http_idem_decision_refuse(ctx, IDEM_HTTP_KEY_MISSING, "missing", detail);
}


ngx_int_t
ngx_http_idem_key_malformed(ngx_http_idem_ctx_t *ctx, const char *detail)
{
    return ngx_http_idem_decision_refuse(ctx, IDEM_HTTP_KEY_MALFORMED, "malformed", detail);
}


static ngx_int_t
ngx_http_idem_key_set(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx, const void *key,
    size_t len)
{
    ctx->key.text.data = ngx_pnalloc(r->pool, len);
    if (ctx->key.text.data == NULL) {
        return NGX_ERROR;
    }

    ngx_memcpy(ctx->key.text.data, key, len);
    ctx->key.text.len = len;

    return NGX_OK;
}


static ngx_int_t
ngx_http_idem_key_from_header(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx)
{
    char                   key[IDEM_HTTP_KEY_MAX];
    size_t                 len;
    ngx_uint_t             n;
    const char            *wrong;
    ngx_table_elt_t       *header;
    struct idem_http_text  text;

    header = ngx_http_idem_fields_find(&r->headers_in.headers, &ctx->conf->key->name, &n);

    if (n == 0) {
        return ctx->conf->key->optional
               ? NGX_DECLINED
               : ngx_http_idem_key_missing(ctx, "The header that carries the key is missing.");
    }

    if (n > 1) {
        return ngx_http_idem_key_malformed(ctx, "The header that carries the key is repeated.");
    }

    text = ngx_http_idem_text(&header->value);

    wrong = idem_http_key_read(text, key, &len);

    return wrong ? ngx_http_idem_key_malformed(ctx, wrong)
                 : ngx_http_idem_key_set(r, ctx, key, len);
}


static ngx_int_t
ngx_http_idem_key_check_param(ngx_http_idem_ctx_t *ctx, enum idem_http_found found, size_t len)
{
    switch (found) {

    case IDEM_HTTP_ONCE:
        return len ? NGX_OK
                   : ngx_http_idem_key_missing(ctx, "The parameter that carries the key is "
                                                    "empty.");

    case IDEM_HTTP_REPEATED:
        return ngx_http_idem_key_malformed(ctx, "The parameter that carries the key is repeated.");

    case IDEM_HTTP_TOO_LONG:
        return ngx_http_idem_key_malformed(ctx, "The key is longer than 255 bytes.");

    default:
        return ngx_http_idem_key_malformed(ctx, "The parameters cannot be decoded.");
    }
}


/* Looks in the query and, unless it is NULL, in the form. NGX_DECLINED: the key is in neither. */

static ngx_int_t
ngx_http_idem_key_find_param(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx, ngx_str_t *form)
{
    char                   key[IDEM_HTTP_KEY_MAX];
    size_t                 len;
    ngx_int_t              rc;
    ngx_str_t              path, query, *places[2];
    ngx_uint_t             i;
    enum idem_http_found   found;
    struct idem_http_text  name, text;

    ngx_http_idem_fingerprint_target(r, &path, &query);

    name = ngx_http_idem_text(&ctx->conf->key->param);
    places[0] = &query;
    places[1] = form;
    ngx_str_null(&ctx->key.text);

    for (i = 0; i < 2 && places[i]; i++) {
        text = ngx_http_idem_text(places[i]);
        len = 0;

        found = i && ctx->body.delimiter.len
                ? idem_http_multipart_find(text, &ctx->body.delimiter, name, key, sizeof(key),
                                           &len)
                : idem_http_form_find(text, name, key, sizeof(key), &len);

        if (found == IDEM_HTTP_NONE) {
            continue;
        }

        if (found == IDEM_HTTP_ONCE && ctx->key.text.len) {
            found = IDEM_HTTP_REPEATED;
        }

        rc = ngx_http_idem_key_check_param(ctx, found, len);

        if (rc != NGX_OK) {
            return rc;
        }

        if (ngx_http_idem_key_set(r, ctx, key, len) != NGX_OK) {
            return NGX_ERROR;
        }
    }

    return ctx->key.text.len ? NGX_OK : NGX_DECLINED;
}


static ngx_int_t
ngx_http_idem_key_from_param(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx)
{
    ngx_int_t             rc;
    ngx_str_t            *form;
    ngx_uint_t            n, hidden;
    ngx_http_idem_key_t  *key = ctx->conf->key;

    form = NULL;
    hidden = 0;

    if (ctx->body.type == NGX_HTTP_IDEM_BODY_FORM || ctx->body.delimiter.len) {
        rc = ngx_http_idem_fingerprint_read_body(r, ctx);

        if (rc == NGX_ERROR) {
            return NGX_ERROR;
        }

        if (rc == NGX_DECLINED && ctx->body.type == NGX_HTTP_IDEM_BODY_FORM) {
            return ngx_http_idem_key_malformed(ctx, "The form is too long for a key in it.");
        }

        /* files make a form long: its key may be elsewhere, and counts */

        hidden = (rc == NGX_DECLINED);
        form = hidden ? NULL : &ctx->body.text;
    }

    rc = ngx_http_idem_key_find_param(r, ctx, form);

    if (rc != NGX_DECLINED) {
        return rc;
    }

    if (hidden && key->kind == NGX_HTTP_IDEM_KEY_TOKEN) {
        (void) ngx_http_idem_fields_find(&r->headers_in.headers, &key->name, &n);
        hidden = (n == 0);
    }

    if (hidden) {
        return ngx_http_idem_key_malformed(ctx, "The form is too long for a key in it.");
    }

    return key->optional || key->kind == NGX_HTTP_IDEM_KEY_TOKEN
           ? NGX_DECLINED
           : ngx_http_idem_key_missing(ctx, "The parameter that carries the key is missing.");
}


static ngx_int_t
ngx_http_idem_key_from_params(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx)
{
    int                      rc;
    ngx_int_t                made;
    ngx_str_t                path, query;
    struct idem_bytes        bytes;
    struct idem_error        err;
    struct idem_identity     identity;
    struct idem_fingerprint  arguments;

    made = ngx_http_idem_fingerprint_parts(r, ctx, NGX_HTTP_IDEM_FINGERPRINT_ARGS, &arguments);
    if (made != NGX_OK) {
        return made;
    }

    ngx_http_idem_fingerprint_target(r, &path, &query);
    bytes.at = path.data;
    bytes.len = path.len;

    rc = idem_key_parameters(bytes, &arguments, &identity, &err);

    return rc ? ngx_http_idem_key_malformed(ctx, "The path is too long for a key.")
              : ngx_http_idem_key_set(r, ctx, identity.key, identity.key_len);
}


static ngx_int_t
ngx_http_idem_key_from_serial(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx)
{
    int                   rc;
    ngx_uint_t            n, m;
    ngx_table_elt_t      *serial, *credential;
    struct idem_bytes     a, b;
    struct idem_error     err;
    struct idem_identity  identity;

    serial = ngx_http_idem_fields_find(&r->headers_in.headers, &ctx->conf->key->name, &n);
    credential = ngx_http_idem_fields_find(&r->headers_in.headers, &ctx->conf->key->credential, &m);

    if (n == 0 || serial->value.len == 0) {
        return ngx_http_idem_key_missing(ctx, "The serial number is missing.");
    }

    if (m == 0 || credential->value.len == 0) {
        return ngx_http_idem_key_missing(ctx, "The credential's id is missing.");
    }

    if (n > 1 || m > 1) {
        return ngx_http_idem_key_malformed(ctx, "The serial number or the credential's id is "
                                                "repeated.");
    }

    a.at = serial->value.data;
    a.len = serial->value.len;
    b.at = credential->value.data;
    b.len = credential->value.len;

    rc = idem_key_serial(a, b, &identity, &err);

    return rc ? ngx_http_idem_key_malformed(ctx, "The serial number is too long.")
              : ngx_http_idem_key_set(r, ctx, identity.key, identity.key_len);
}


static ngx_int_t
ngx_http_idem_key_from_value(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx)
{
    if (ngx_http_complex_value(r, ctx->conf->key->value, &ctx->key.text) != NGX_OK) {
        return NGX_ERROR;
    }

    if (ctx->decision.kind == NGX_HTTP_IDEM_REFUSED) {         /* an expression in it was refused */
        return NGX_ABORT;
    }

    if (ctx->key.text.len == 0) {
        return ctx->conf->key->optional
               ? NGX_DECLINED
               : ngx_http_idem_key_missing(ctx, "The values that make up the key are missing.");
    }

    if (ctx->key.text.len > IDEM_KEY_MAX) {
        return ngx_http_idem_key_malformed(ctx, "The key is longer than 4096 bytes.");
    }

    return NGX_OK;
}


/*
 * The token is in its header, or in a parameter if one is configured. If both
 * are present, they must be equal.
 */

static ngx_int_t
ngx_http_idem_key_from_token(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx)
{
    ngx_int_t   rc;
    ngx_str_t   other = ngx_null_string;
    ngx_uint_t  n;

    if (ctx->conf->key->param.len) {
        rc = ngx_http_idem_key_from_param(r, ctx);

        if (rc != NGX_OK && rc != NGX_DECLINED) {
            return rc;
        }

        other = ctx->key.text;
        (void) ngx_http_idem_fields_find(&r->headers_in.headers, &ctx->conf->key->name, &n);

        if (n == 0 && rc == NGX_OK) {
            return NGX_OK;
        }
    }

    rc = ngx_http_idem_key_from_header(r, ctx);

    if (rc == NGX_OK && other.len
        && !idem_same(ctx->key.text.data, ctx->key.text.len, other.data, other.len))
    {
        return ngx_http_idem_key_malformed(ctx, "The header and the parameter carry two tokens.");
    }

    return rc;
}


static ngx_int_t
ngx_http_idem_key_evaluate_scope(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx)
{
    if (ctx->conf->scope == NULL) {     /* no scope */
        return NGX_OK;
    }

    if (ngx_http_complex_value(r, ctx->conf->scope, &ctx->key.scope) != NGX_OK) {
        return NGX_ERROR;
    }

    if (ctx->decision.kind == NGX_HTTP_IDEM_REFUSED) {
        return NGX_ABORT;
    }

    if (ctx->key.scope.len == 0) {
        return ngx_http_idem_key_missing(ctx, "The caller is not identified.");
    }

    if (ctx->key.scope.len > IDEM_SCOPE_MAX) {
        return ngx_http_idem_key_malformed(ctx, "The caller's name is too long.");
    }

    ngx_http_idem_variable_reset(ctx);

    return NGX_OK;
}


ngx_int_t
ngx_http_idem_key_read_scope(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx)
{
    ngx_int_t  rc;

    ctx->key.evaluating = 1;
    rc = ngx_http_idem_key_evaluate_scope(r, ctx);
    ctx->key.evaluating = 0;

    return rc;
}


/* Copies as much as fits into a label, up to the first control character. */

ngx_int_t
ngx_http_idem_key_read_label(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx)
{
    size_t     len;
    ngx_str_t  value;

    if (ngx_http_complex_value(r, ctx->conf->label, &value) != NGX_OK) {
        return NGX_ERROR;
    }

    for (len = 0; len < ngx_min(value.len, IDEM_LABEL_MAX); len++) {
        if (value.data[len] < 0x20 || value.data[len] == 0x7f) {
            break;
        }
    }

    ctx->key.label = ngx_pnalloc(r->pool, len + 1);
    if (ctx->key.label == NULL) {
        return NGX_ERROR;
    }

    *ngx_cpymem(ctx->key.label, value.data, len) = '\0';

    return NGX_OK;
}


/*
 * Evaluates key and fingerprint. NGX_DECLINED: there is no key, and none is needed.
 * NGX_ABORT: ctx->decision.problem is set.
 */

ngx_int_t
ngx_http_idem_key_identify(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx)
{
    ngx_int_t                 rc;
    struct idem_fingerprint  *fingerprint = &ctx->key.fingerprint;

    static ngx_int_t  (*const keys[])(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx) = {
        [NGX_HTTP_IDEM_KEY_HEADER] = ngx_http_idem_key_from_header,
        [NGX_HTTP_IDEM_KEY_PARAM] = ngx_http_idem_key_from_param,
        [NGX_HTTP_IDEM_KEY_PARAMS] = ngx_http_idem_key_from_params,
        [NGX_HTTP_IDEM_KEY_SERIAL] = ngx_http_idem_key_from_serial,
        [NGX_HTTP_IDEM_KEY_VALUE] = ngx_http_idem_key_from_value,
        [NGX_HTTP_IDEM_KEY_TOKEN] = ngx_http_idem_key_from_token,
    };

    ngx_memzero(fingerprint, sizeof(struct idem_fingerprint));

    ctx->key.evaluating = 1;
    rc = ngx_http_idem_key_evaluate_scope(r, ctx);

    if (rc == NGX_OK) {
        rc = keys[ctx->conf->key->kind](r, ctx);
    }

    ctx->key.evaluating = 0;

    if (rc != NGX_OK || (ctx->conf->fingerprint & NGX_HTTP_IDEM_FINGERPRINT_NONE)) {
        return rc;
    }

    if (ctx->conf->fingerprint & NGX_HTTP_IDEM_FINGERPRINT_EXPR) {
        return ngx_http_idem_fingerprint_expr(r, ctx, fingerprint);
    }

    return ngx_http_idem_fingerprint_parts(r, ctx,
                                           ctx->conf->fingerprint & NGX_HTTP_IDEM_FINGERPRINT_ALL,
                                           fingerprint);
}
