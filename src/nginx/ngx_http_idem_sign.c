
/*
 * Signed requests: checks that a request proves its sender, is current and new.
 *
 * This runs before everything else, before the scope too, which may be the
 * signer. The request by itself is checked first; the store is asked last, in one
 * step, if the nonce is new. No verdict here is ever open: neither
 * idem_on_store_error nor idem_enforce lets an unproven request pass.
 */

#include "ngx_http_idem.h"
#include "base/error.h"


static ngx_int_t
ngx_http_idem_sign_refuse(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx, enum idem_proof proof,
    const char *detail)
{
    u_char  *text;
    size_t   len;

    static const enum idem_http_problem_kind  problems[] = {
        [IDEM_PROOF_INCOMPLETE] = IDEM_HTTP_SIGNATURE_INCOMPLETE,
        [IDEM_PROOF_STALE] = IDEM_HTTP_SIGNATURE_STALE,
        [IDEM_PROOF_WRONG] = IDEM_HTTP_SIGNATURE_WRONG,
        [IDEM_PROOF_REUSED] = IDEM_HTTP_NONCE_REUSED,
    };

    if (ctx->conf->store->h) {
        idem_proof_tally(ctx->conf->store->h, proof);
    }

    len = ngx_strlen(detail) + 1;

    text = ngx_pnalloc(r->pool, len);
    if (text == NULL) {
        return NGX_ERROR;
    }

    ngx_memcpy(text, detail, len);

    return ngx_http_idem_decision_refuse(ctx, problems[proof], idem_proof_name(proof),
                                         (char *) text);
}


static ngx_int_t
ngx_http_idem_sign_unavailable(ngx_http_idem_ctx_t *ctx)
{
    return ngx_http_idem_decision_refuse(ctx, IDEM_HTTP_STORE_UNAVAILABLE, "store_error", NULL);
}


/* True if Host names the same server as the request line, or the latter names none. */

static ngx_uint_t
ngx_http_idem_sign_is_one_host(ngx_http_request_t *r)
{
    size_t            len;
    ngx_table_elt_t  *host = r->headers_in.host;

    if (r->host_start == NULL || r->host_end == NULL || r->http_version >= NGX_HTTP_VERSION_20) {
        return 1;
    }

    len = (size_t) (r->host_end - r->host_start);

    return host && host->value.len >= len
           && ngx_strncasecmp(host->value.data, r->host_start, len) == 0
           && (host->value.len == len || host->value.data[len] == ':');
}


static ngx_int_t
ngx_http_idem_sign_request(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx,
    struct idem_sign_request *ret)
{
    ngx_str_t  path, query;

    ngx_memzero(ret, sizeof(struct idem_sign_request));

    ret->headers = ngx_http_idem_fields_collect(r, &ret->headers_n);
    if (ret->headers == NULL) {
        return NGX_ERROR;
    }

    ngx_http_idem_fingerprint_target(r, &path, &query);

    ret->method = ngx_http_idem_text(&r->method_name);
    ret->path = ngx_http_idem_text(&path);
    ret->query = ngx_http_idem_text(&query);
    ret->scheme = (struct idem_http_text) IDEM_HTTP_TEXT("http");

#if (NGX_HTTP_SSL)
    if (r->connection->ssl) {
        ret->scheme = (struct idem_http_text) IDEM_HTTP_TEXT("https");
    }
#endif

    if (r->headers_in.host) {
        ret->authority = ngx_http_idem_text(&r->headers_in.host->value);
    }

    ret->has_body = (ctx->body.size > 0);
    ret->sha256 = ctx->body.sha256.bytes;
    ret->sha512 = ctx->body.sha512.state == NGX_HTTP_IDEM_HASH_DONE ? ctx->body.sha512.bytes : NULL;

    return NGX_OK;
}


/* Continues from outside the request's own events. */

static void
ngx_http_idem_sign_nonce_handler(struct idem_nonce *nonce, int rc, const char *detail,
    const struct idem_error *err, void *data)
{
    ngx_int_t             next;
    ngx_http_request_t   *r;
    ngx_http_idem_ctx_t  *ctx = data;

    r = ctx->request;
    ngx_http_idem_decision_wait_end(ctx);

    ngx_http_set_log_request(r->connection->log, r);
    ngx_http_idem_sign_drop(ctx);

    if (rc != 0) {
        ngx_log_error(NGX_LOG_ERR, r->connection->log, 0, "idem: a nonce could not be asked "
                      "for: %s", err->text);
        next = ngx_http_idem_sign_unavailable(ctx);

    } else if (detail) {
        next = ngx_http_idem_sign_refuse(r, ctx, IDEM_PROOF_REUSED, detail);

    } else {
        ctx->sign.proven = 1;
        next = NGX_OK;
    }

    ngx_http_idem_handler_signed(r, ctx, next);
}


void
ngx_http_idem_sign_drop(ngx_http_idem_ctx_t *ctx)
{
    if (ctx->sign.nonce) {
        idem_nonce_free(ctx->sign.nonce);
        ctx->sign.nonce = NULL;
        ngx_http_idem_claim_linger_end();
    }
}


static ngx_int_t
ngx_http_idem_sign_submit_nonce(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx,
    struct idem_sign_parts *parts)
{
    struct idem_error  err;

    ctx->sign.key_id.data = ngx_pnalloc(r->pool, parts->key_id_len);
    if (ctx->sign.key_id.data == NULL) {
        return NGX_ERROR;
    }

    ngx_memcpy(ctx->sign.key_id.data, parts->key_id, parts->key_id_len);
    ctx->sign.key_id.len = parts->key_id_len;

    if (ctx->conf->store->h == NULL) {
        return ngx_http_idem_sign_unavailable(ctx);
    }

    ngx_http_idem_decision_wait_begin(ctx);

    if (idem_nonce_new(ctx->conf->store->h, ctx->conf->sign, parts,
                       ngx_http_idem_sign_nonce_handler, ctx, &ctx->sign.nonce, &err)
        != 0)
    {
        ngx_log_error(NGX_LOG_ERR, r->connection->log, 0, "idem: a nonce could not be asked "
                      "for: %s", err.text);
        return NGX_ERROR;
    }

    ngx_http_idem_claim_linger_begin();

    return NGX_AGAIN;
}


/* NGX_AGAIN: the store was asked. NGX_ABORT: ctx->decision.problem is set. */

ngx_int_t
ngx_http_idem_sign(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx)
{
    int64_t                    now;
    ngx_int_t                  rc;
    ngx_time_t                *tp;
    struct idem_error          err;
    struct idem_sign_request   request;
    struct idem_sign_checked   checked;

    if (ngx_http_idem_fingerprint_body_hashes(r, ctx) != NGX_OK
        || ngx_http_idem_sign_request(r, ctx, &request) != NGX_OK)
    {
        return NGX_ERROR;
    }

    tp = ngx_timeofday();
    now = (int64_t) tp->sec * 1000 + (int64_t) tp->msec;

    if (idem_sign_check(ctx->conf->sign, &request, now, &checked, &err) != 0) {
        ngx_log_error(NGX_LOG_ERR, r->connection->log, 0, "idem: %s", err.text);
        return NGX_ERROR;
    }

    if (checked.proof != IDEM_PROOF_GOOD && checked.parts.signatures > 1) {

        /*
         * one response for all: details of the chosen signature would reveal which keys
         * are known
         */

        rc = ngx_http_idem_sign_refuse(r, ctx, IDEM_PROOF_WRONG,
                                       "None of the signatures is complete, current and made for "
                                       "this request with a secret that is known here, or more "
                                       "than one is of known keys.");

    } else if (checked.proof != IDEM_PROOF_GOOD) {
        rc = ngx_http_idem_sign_refuse(r, ctx, checked.proof, checked.detail);

    } else if (!ngx_http_idem_sign_is_one_host(r)) {
        rc = ngx_http_idem_sign_refuse(r, ctx, IDEM_PROOF_WRONG,
                                       "Host and the request line name two servers.");

    } else {
        rc = ngx_http_idem_sign_submit_nonce(r, ctx, &checked.parts);
    }

    idem_sign_checked_release(&checked);

    return rc;
}


/*
 * A request that is led to another location (try_files, index, error_page,
 * X-Accel-Redirect) has proven what the first one requires. If the second
 * requires a signature by rules of its own, that is not enough, and it is too
 * late for another: the nonce is spent.
 */

ngx_int_t
ngx_http_idem_sign_check_redirect(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx)
{
    char                       uri[IDEM_QUOTE_TEXT];
    ngx_http_idem_loc_conf_t  *conf;

    conf = ngx_http_get_module_loc_conf(r, ngx_http_idem_module);

    if (conf->sign == NULL && ctx->conf->sign && !ctx->sign.proven && !r->post_action
        && r->content_handler)
    {
        /* its body could not be read, and the error page led on to a backend */

        return r->err_status >= NGX_HTTP_SPECIAL_RESPONSE ? (ngx_int_t) r->err_status
                                                          : NGX_HTTP_FORBIDDEN;
    }

    if (conf->sign == NULL || (ctx->sign.proven && conf->sign == ctx->conf->sign)) {
        return NGX_OK;
    }

    ngx_log_error(NGX_LOG_ERR, r->connection->log, 0,
                  "idem: not led on to %s, which requires a signature that the first location "
                  "does not require: set idem_sign once, around both",
                  ngx_http_idem_log_uri(r, uri));

    /* not 401, which gives a key back although a backend may have been asked */

    return NGX_HTTP_FORBIDDEN;
}
