
/*
 * The location that issues tokens (idem_token), for a scope and the value of
 * idem_token_bind. key.c reads them when they are used.
 */

#include "ngx_http_idem.h"


typedef struct {
    ngx_http_request_t        *request;
    struct idem_issue         *issue;
} ngx_http_idem_token_t;


static void
ngx_http_idem_token_cleanup(void *data)
{
    ngx_http_idem_token_t  *token = data;

    if (token->issue) {
        idem_issue_free(token->issue);
        token->issue = NULL;
        ngx_http_idem_claim_linger_end();
    }
}


static ngx_int_t
ngx_http_idem_token_unavailable(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx)
{
    (void) ngx_http_idem_decision_refuse(ctx, IDEM_HTTP_STORE_UNAVAILABLE, "store_error", NULL);

    return ngx_http_idem_reply_refuse_handler(r);
}


static ngx_int_t
ngx_http_idem_token_send(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx, const char *token)
{
    ngx_buf_t  *b;
    ngx_str_t   type = ngx_string("application/json");
    ngx_str_t   cache = ngx_string("no-store");

    ngx_http_idem_decision_set_word(ctx, "issued");

    b = ngx_create_temp_buf(r->pool, sizeof("{\"token\":\"\",\"expires_in\":}\n") + IDEM_TOKEN_LEN
                                     + NGX_INT64_LEN);
    if (b == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    b->last = ngx_sprintf(b->pos, "{\"token\":\"%s\",\"expires_in\":%L}\n", token,
                          ctx->conf->policy->token_ttl_s);

    r->disable_not_modified = 1;           /* each token is new */

    return ngx_http_idem_location_serve(r, b, &type, &cache);
}


static void
ngx_http_idem_token_issued(struct idem_issue *issue, int rc, const char *text,
    const struct idem_error *err, void *data)
{
    ngx_int_t               sent;
    ngx_connection_t       *c;
    ngx_http_request_t     *r;
    ngx_http_idem_ctx_t    *ctx;
    ngx_http_idem_token_t  *token = data;

    r = token->request;
    c = r->connection;
    ctx = ngx_http_get_module_ctx(r, ngx_http_idem_module);
    ngx_http_idem_decision_wait_end(ctx);

    ngx_http_set_log_request(c->log, r);

    if (rc == 0) {
        sent = ngx_http_idem_token_send(r, ctx, text);

    } else {
        ngx_log_error(NGX_LOG_ERR, c->log, 0, "idem: no token: %s", err->text);
        sent = ngx_http_idem_token_unavailable(r, ctx);
    }

    ngx_http_idem_token_cleanup(token);
    ngx_http_finalize_request(r, sent);
    ngx_http_run_posted_requests(c);
}


/* NGX_ABORT: the store is not open. */

static ngx_int_t
ngx_http_idem_token_submit(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx, ngx_str_t *bind)
{
    struct idem_args        args;
    struct idem_error       err;
    ngx_http_cleanup_t     *cln;
    ngx_http_idem_token_t  *token;

    if (ctx->conf->store->h == NULL) {
        return NGX_ABORT;
    }

    cln = ngx_http_cleanup_add(r, sizeof(ngx_http_idem_token_t));
    if (cln == NULL) {
        return NGX_ERROR;
    }

    token = cln->data;
    ngx_memzero(token, sizeof(ngx_http_idem_token_t));
    token->request = r;
    cln->handler = ngx_http_idem_token_cleanup;

    ngx_memzero(&args, sizeof(struct idem_args));

    if (ctx->key.scope.len) {
        args.scope = ctx->key.scope.data;
        args.scope_len = ctx->key.scope.len;
    }

    if (ctx->conf->bind) {
        args.bind = bind->data;
        args.bind_len = bind->len;
    }

    if (idem_issue_new(ctx->conf->store->h, ctx->conf->guard, &args, ngx_http_idem_token_issued,
                       token, &token->issue, &err)
        != 0)
    {
        ngx_log_error(NGX_LOG_ERR, r->connection->log, 0, "idem: no token: %s", err.text);
        return NGX_ERROR;
    }

    ngx_http_idem_claim_linger_begin();

    return NGX_OK;
}


/* NGX_DONE: the store was asked. */

static ngx_int_t
ngx_http_idem_token_start(ngx_http_request_t *r)
{
    ngx_int_t                  rc;
    ngx_str_t                  bind = ngx_null_string;
    ngx_http_idem_ctx_t       *ctx;
    ngx_http_idem_loc_conf_t  *conf;

    conf = ngx_http_get_module_loc_conf(r, ngx_http_idem_module);

    ctx = ngx_http_idem_ctx_find(r);     /* a signed request has one */

    if (ctx == NULL) {
        ctx = ngx_http_idem_ctx_new(r, conf);
        if (ctx == NULL) {
            return NGX_HTTP_INTERNAL_SERVER_ERROR;
        }
    }

    ngx_http_idem_ctx_set_state(ctx, NGX_HTTP_IDEM_PASSED);

    rc = ngx_http_idem_key_read_scope(r, ctx);

    if (rc == NGX_OK && conf->bind) {

        if (ngx_http_complex_value(r, conf->bind, &bind) != NGX_OK) {
            rc = NGX_ERROR;

        } else if (bind.len == 0) {
            rc = ngx_http_idem_key_missing(ctx, "The value that the token is bound to is "
                                                "missing.");
        }
    }

    if (rc == NGX_ABORT) {
        return ngx_http_idem_reply_refuse_handler(r);
    }

    if (rc == NGX_OK) {
        ngx_http_idem_decision_wait_begin(ctx);
        rc = ngx_http_idem_token_submit(r, ctx, &bind);
    }

    if (rc == NGX_ABORT) {
        return ngx_http_idem_token_unavailable(r, ctx);
    }

    if (rc != NGX_OK) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    r->read_event_handler = ngx_http_test_reading;

    return NGX_DONE;
}


static void
ngx_http_idem_token_body_handler(ngx_http_request_t *r)
{
    ngx_int_t  rc;

    rc = ngx_http_idem_token_start(r);

    if (rc != NGX_DONE) {
        ngx_http_finalize_request(r, rc);
    }
}


/*
 * Reads the body of a POST, although it is not needed. If it were discarded,
 * nginx would limit the request to lingering_timeout, and a client that still
 * sends would get a connection reset.
 */

ngx_int_t
ngx_http_idem_token_handler(ngx_http_request_t *r)
{
    ngx_int_t  rc;
    ngx_str_t  methods = ngx_string("GET, POST");

    rc = ngx_http_idem_location_check_method(r, NGX_HTTP_GET|NGX_HTTP_POST, &methods);
    if (rc != NGX_OK) {
        return rc;
    }

    rc = ngx_http_read_client_request_body(r, ngx_http_idem_token_body_handler);

    return rc >= NGX_HTTP_SPECIAL_RESPONSE ? rc : NGX_DONE;
}
