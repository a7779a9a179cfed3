
/*
 * Variables: $idem_verdict and others for logs, and those that idem_set makes of
 * a request with an expression.
 */

#include "ngx_http_idem.h"
#include "base/chars.h"
#include "http/http_request.h"


/* memory for an evaluation, besides the request itself */
#define NGX_HTTP_IDEM_ROOM  (4 << 20)


static ngx_int_t
ngx_http_idem_variable_value(ngx_http_variable_value_t *v, u_char *data, size_t len)
{
    v->data = data;
    v->len = (unsigned) len;
    v->valid = 1;
    v->no_cacheable = 0;
    v->not_found = 0;

    return NGX_OK;
}


/* Sets the value for a request that has a context; it is empty otherwise. */

typedef ngx_int_t (*ngx_http_idem_variable_pt)(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx,
    ngx_str_t *ret);


static ngx_int_t
ngx_http_idem_variable_get(ngx_http_request_t *r, ngx_http_variable_value_t *v, uintptr_t data)
{
    ngx_str_t                   value = ngx_string("");
    ngx_http_idem_ctx_t        *ctx = ngx_http_idem_ctx_find(r->main);
    ngx_http_idem_variable_pt   set = (ngx_http_idem_variable_pt) data;

    if (ctx && set(r, ctx, &value) != NGX_OK) {
        return NGX_ERROR;
    }

    return ngx_http_idem_variable_value(v, value.data, value.len);
}


static ngx_int_t
ngx_http_idem_variable_verdict(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx, ngx_str_t *ret)
{
    if (ctx->decision.word) {
        ret->data = (u_char *) ctx->decision.word;
        ret->len = ngx_strlen(ctx->decision.word);
    }

    return NGX_OK;
}


static ngx_int_t
ngx_http_idem_variable_key_hash(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx, ngx_str_t *ret)
{
    ret->data = ctx->decision.hash;
    ret->len = ngx_strlen(ctx->decision.hash);

    return NGX_OK;
}


static ngx_int_t
ngx_http_idem_variable_downstream_key(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx,
    ngx_str_t *ret)
{
    if (ctx->decision.hash[0] == '\0') {
        return NGX_OK;
    }

    ret->data = ngx_http_idem_upstream_downstream_key(r->main, ctx);
    ret->len = IDEM_HEX_LEN;

    return ret->data ? NGX_OK : NGX_ERROR;
}


static ngx_int_t
ngx_http_idem_variable_attempt(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx, ngx_str_t *ret)
{
    if (ctx->decision.attempt == 0) {
        return NGX_OK;
    }

    ret->data = ngx_pnalloc(r->pool, NGX_INT32_LEN);
    if (ret->data == NULL) {
        return NGX_ERROR;
    }

    ret->len = (size_t) (ngx_sprintf(ret->data, "%uD", ctx->decision.attempt) - ret->data);

    return NGX_OK;
}


static ngx_int_t
ngx_http_idem_variable_time(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx, ngx_str_t *ret)
{
    if (ctx->decision.hash[0] == '\0' && ctx->decision.asked == 0) {   /* a token has no hash */
        return NGX_OK;
    }

    ret->data = ngx_pnalloc(r->pool, NGX_TIME_T_LEN + 4);
    if (ret->data == NULL) {
        return NGX_ERROR;
    }

    ret->len = (size_t) (ngx_sprintf(ret->data, "%T.%03M", (time_t) ctx->decision.waited / 1000,
                                     ctx->decision.waited % 1000)
                         - ret->data);

    return NGX_OK;
}


/* The id of the key that signed the request; empty before that is proven. */

static ngx_int_t
ngx_http_idem_variable_signer(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx, ngx_str_t *ret)
{
    if (ctx->sign.proven) {
        *ret = ctx->sign.key_id;
    }

    return NGX_OK;
}


#define NGX_HTTP_IDEM_VARIABLE(name, set)                                     \
    { ngx_string(name), NULL, ngx_http_idem_variable_get, (uintptr_t) set,     \
      NGX_HTTP_VAR_NOCACHEABLE, 0 }

static ngx_http_variable_t  ngx_http_idem_variables[] = {

    NGX_HTTP_IDEM_VARIABLE("idem_verdict", ngx_http_idem_variable_verdict),
    NGX_HTTP_IDEM_VARIABLE("idem_key_hash", ngx_http_idem_variable_key_hash),
    NGX_HTTP_IDEM_VARIABLE("idem_downstream_key", ngx_http_idem_variable_downstream_key),
    NGX_HTTP_IDEM_VARIABLE("idem_attempt", ngx_http_idem_variable_attempt),
    NGX_HTTP_IDEM_VARIABLE("idem_time", ngx_http_idem_variable_time),
    NGX_HTTP_IDEM_VARIABLE("idem_sign_key_id", ngx_http_idem_variable_signer),

      ngx_http_null_variable
};


ngx_int_t
ngx_http_idem_variable_add(ngx_conf_t *cf)
{
    ngx_http_variable_t  *var, *v;

    for (v = ngx_http_idem_variables; v->name.len; v++) {
        var = ngx_http_add_variable(cf, &v->name, v->flags);
        if (var == NULL) {
            return NGX_ERROR;
        }

        var->get_handler = v->get_handler;
        var->data = v->data;
    }

    return NGX_OK;
}


/*
 * Freed with the pool, not with the request: the log phase, which may read
 * variables, comes in between.
 */

static void
ngx_http_idem_variable_arena_cleanup(void *data)
{
    ngx_http_idem_ctx_t  *ctx = data;

    idem_arena_free(&ctx->vars.arena);
    ctx->vars.json = NULL;
}


static void
ngx_http_idem_variable_arena_init(ngx_http_idem_ctx_t *ctx)
{
    idem_fingerprint_arena(&ctx->vars.arena, ctx->body.text.len);
    ctx->vars.arena.left += NGX_HTTP_IDEM_ROOM;
}


/* An expression has read the request without #user: the next one reads it again. */

void
ngx_http_idem_variable_reset(ngx_http_idem_ctx_t *ctx)
{
    if (ctx->vars.owned) {
        idem_arena_free(&ctx->vars.arena);
        ngx_http_idem_variable_arena_init(ctx);
        ctx->vars.json = NULL;
    }
}


/* Returns the request as expressions read it. */

struct idem_json *
ngx_http_idem_variable_request_json(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx,
    struct idem_error *err)
{
    int                        rc;
    ngx_int_t                  read;
    ngx_pool_cleanup_t        *cln;
    struct idem_json          *vars;
    struct idem_http_request   request;

    if (ctx->vars.json) {
        return ctx->vars.json;
    }

    err->code = IDEM_E_NOMEM;
    ngx_cpystrn((u_char *) err->text, (u_char *) "no memory for a request", sizeof(err->text));

    read = ngx_http_idem_fingerprint_read_body(r, ctx);

    if (read == NGX_ERROR) {
        return NULL;
    }

    if (read == NGX_DECLINED) {
        err->code = IDEM_E_INVALID;
        ngx_cpystrn((u_char *) err->text, (u_char *) "the body is longer than idem_json_max",
                    sizeof(err->text));
        return NULL;
    }

    ngx_memzero(&request, sizeof(struct idem_http_request));

    request.headers = ngx_http_idem_fields_collect(r, &request.headers_n);
    vars = ngx_palloc(r->pool, sizeof(struct idem_json));

    if (request.headers == NULL || vars == NULL) {
        return NULL;
    }

    request.method.at = (char *) r->method_name.data;
    request.method.len = r->method_name.len;
    request.path.at = (char *) r->uri.data;
    request.path.len = r->uri.len;
    request.query.at = (char *) r->args.data;
    request.query.len = r->args.len;
    request.body.at = (char *) ctx->body.text.data;
    request.body.len = ctx->body.text.len;

    if (ctx->key.scope.len) {
        request.user.at = (char *) ctx->key.scope.data;
        request.user.len = ctx->key.scope.len;
    }

    if (!ctx->vars.owned) {
        cln = ngx_pool_cleanup_add(r->pool, 0);
        if (cln == NULL) {
            return NULL;
        }

        cln->handler = ngx_http_idem_variable_arena_cleanup;
        cln->data = ctx;
        ctx->vars.owned = 1;
        ngx_http_idem_variable_arena_init(ctx);
    }

    rc = idem_http_request_json(&request, &ctx->vars.arena, vars, err);

    if (rc != 0) {
        err->code = rc;
        return NULL;
    }

    ctx->vars.json = vars;

    return vars;
}


static ngx_int_t
ngx_http_idem_variable_evaluate(ngx_http_request_t *r, ngx_http_variable_value_t *v, uintptr_t data)
{
    int                   rc;
    size_t                len;
    u_char               *copy;
    const char           *text;
    struct idem_expr     *expr = (struct idem_expr *) data;
    struct idem_json     *vars;
    struct idem_error     err;
    ngx_http_idem_ctx_t  *ctx;

    ctx = ngx_http_idem_ctx_find(r->main);

    if (ctx == NULL || ctx->state == NGX_HTTP_IDEM_START
        || (ctx->state == NGX_HTTP_IDEM_READING && r->main->request_body == NULL))
    {
        if (ctx == NULL) {
            ngx_log_error(NGX_LOG_INFO, r->connection->log, 0,
                          "idem: a variable of idem_set has no value outside guarded requests, "
                          "nor before their body was read (rewrite, access)");
        }

        *v = ngx_http_variable_null_value;
        v->no_cacheable = 1;                /* it may get one later */
        return NGX_OK;
    }

    vars = ngx_http_idem_variable_request_json(r->main, ctx, &err);
    rc = vars ? idem_expr_key(expr, vars, &ctx->vars.arena, &text, &len, &err) : err.code;

    if (rc == IDEM_E_NOMEM) {
        return NGX_ERROR;
    }

    if (rc != 0) {

        /* As a key or a scope it is refused; for a label or a log it is just empty. */

        if (ctx->key.evaluating) {
            ngx_log_error(NGX_LOG_WARN, r->connection->log, 0, "idem: idem_set: %s", err.text);

            (void) ngx_http_idem_key_malformed(ctx,
                                               "The values that make up the key are not in the "
                                               "request, or have another type.");
        }

        *v = ngx_http_variable_null_value;
        v->no_cacheable = 1;
        return NGX_OK;
    }

    copy = ngx_pnalloc(r->pool, len);
    if (copy == NULL) {
        return NGX_ERROR;
    }

    ngx_memcpy(copy, text, len);

    return ngx_http_idem_variable_value(v, copy, len);
}


static void
ngx_http_idem_variable_expr_cleanup(void *data)
{
    idem_expr_free(data);
}


struct idem_expr *
ngx_http_idem_variable_compile(ngx_conf_t *cf, ngx_str_t *text)
{
    ngx_str_t            name;
    struct idem_expr    *expr;
    struct idem_error    err;
    ngx_pool_cleanup_t  *cln;

    static const char *const  known[] = {
        "method", "path", "query", "headers", "cookies", "body", "user", NULL
    };

    cln = ngx_pool_cleanup_add(cf->pool, 0);
    if (cln == NULL) {
        return NULL;
    }

    if (idem_expr_compile_key((char *) text->data, text->len, &expr, &err) != 0) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "%s", err.text);
        return NULL;
    }

    cln->handler = ngx_http_idem_variable_expr_cleanup;
    cln->data = expr;

    name.data = (u_char *) idem_expr_stranger(expr, known, &name.len);

    if (name.data) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"#%V\" is not part of a request; allowed: #method, #path, #query, "
                           "#headers, #cookies, #body, #user", &name);
        return NULL;
    }

    return expr;
}


char *
ngx_http_idem_variable_set(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_str_t            *value, name;
    struct idem_expr     *expr;
    ngx_http_variable_t  *var;

    value = cf->args->elts;

    if (value[1].len < 2 || value[1].data[0] != '$') {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"%V\" is no variable: it begins with $, as in idem_set $order_id "
                           "'#body.orderId'", &value[1]);
        return NGX_CONF_ERROR;
    }

    name.data = value[1].data + 1;
    name.len = value[1].len - 1;

    expr = ngx_http_idem_variable_compile(cf, &value[2]);
    if (expr == NULL) {
        return NGX_CONF_ERROR;
    }

    var = ngx_http_add_variable(cf, &name, 0);
    if (var == NULL) {
        return NGX_CONF_ERROR;
    }

    if (var->get_handler) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "variable \"$%V\" is defined already", &name);
        return NGX_CONF_ERROR;
    }

    var->get_handler = ngx_http_idem_variable_evaluate;
    var->data = (uintptr_t) expr;

    return NGX_CONF_OK;
}


/* Finds the next variable in a value, in lower case; NGX_DECLINED: there are no more. */

ngx_int_t
ngx_http_idem_variable_next(ngx_pool_t *pool, ngx_str_t *value, size_t *at, ngx_str_t *name)
{
    size_t  start, end;

    while (*at < value->len && value->data[*at] != '$') {
        (*at)++;
    }

    if (*at == value->len) {
        return NGX_DECLINED;
    }

    start = *at + 1;

    if (start < value->len && value->data[start] == '{') {
        start++;
    }

    for (end = start; end < value->len; end++) {
        if (!idem_is_alpha((char) value->data[end]) && !idem_is_digit((char) value->data[end])
            && value->data[end] != '_')
        {
            break;
        }
    }

    name->len = end - start;
    name->data = ngx_pnalloc(pool, name->len + 1);

    if (name->data == NULL) {
        return NGX_ERROR;
    }

    ngx_strlow(name->data, value->data + start, name->len);
    *at = end;

    return NGX_OK;
}


/* Returns NULL if idem_set does not make it. */

ngx_http_variable_t *
ngx_http_idem_variable_find_set(ngx_conf_t *cf, ngx_str_t *name)
{
    ngx_uint_t                  k;
    ngx_hash_key_t             *keys;
    ngx_http_variable_t        *var;
    ngx_http_core_main_conf_t  *cmcf;

    cmcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_core_module);
    keys = cmcf->variables_keys->keys.elts;

    for (k = 0; k < cmcf->variables_keys->keys.nelts; k++) {
        var = keys[k].value;

        if (idem_same(keys[k].key.data, keys[k].key.len, name->data, name->len)
            && var->get_handler == ngx_http_idem_variable_evaluate)
        {
            return var;
        }
    }

    return NULL;
}


/* True if a value uses a variable of idem_set. The two directives may stand in any order. */

ngx_uint_t
ngx_http_idem_variable_is_computed(ngx_conf_t *cf, ngx_str_t *value)
{
    size_t     at = 0;
    ngx_str_t  name;

    while (ngx_http_idem_variable_next(cf->pool, value, &at, &name) == NGX_OK) {
        if (ngx_http_idem_variable_find_set(cf, &name)) {
            return 1;
        }
    }

    return 0;
}
