
/*
 * The context of a request: found, made, set to a state, and freed.
 */

#include "ngx_http_idem.h"


static void ngx_http_idem_ctx_cleanup(void *data);
static void ngx_http_idem_ctx_release_bytes(void *data);


/* An internal redirect clears the contexts of all modules: ours is found through its cleanup. */

ngx_http_idem_ctx_t *
ngx_http_idem_ctx_find(ngx_http_request_t *r)
{
    ngx_http_cleanup_t   *cln;
    ngx_http_idem_ctx_t  *ctx;

    ctx = ngx_http_get_module_ctx(r, ngx_http_idem_module);

    if (ctx || !r->internal || r != r->main) {
        return ctx;
    }

    for (cln = r->cleanup; cln; cln = cln->next) {
        if (cln->handler == ngx_http_idem_ctx_cleanup) {
            ctx = cln->data;
            ngx_http_set_ctx(r, ctx, ngx_http_idem_module);
            return ctx;
        }
    }

    return NULL;
}


ngx_http_idem_ctx_t *
ngx_http_idem_ctx_new(ngx_http_request_t *r, ngx_http_idem_loc_conf_t *conf)
{
    ngx_http_cleanup_t   *cln;
    ngx_pool_cleanup_t   *bytes;
    ngx_http_idem_ctx_t  *ctx;

    ctx = ngx_pcalloc(r->pool, sizeof(ngx_http_idem_ctx_t));
    cln = ngx_http_cleanup_add(r, 0);
    bytes = ngx_pool_cleanup_add(r->pool, 0);

    if (ctx == NULL || cln == NULL || bytes == NULL) {
        return NULL;
    }

    cln->handler = ngx_http_idem_ctx_cleanup;
    cln->data = ctx;
    bytes->handler = ngx_http_idem_ctx_release_bytes;
    bytes->data = ctx;

    ngx_http_set_ctx(r, ctx, ngx_http_idem_module);

    ctx->request = r;
    ctx->conf = conf;

    return ctx;
}


static void
ngx_http_idem_ctx_cleanup(void *data)
{
    ngx_http_idem_ctx_t  *ctx = data;

    ngx_http_idem_claim_detach(ctx);
    ngx_http_idem_probe_tx_drop(ctx);
    ngx_http_idem_sign_drop(ctx);
    ngx_http_idem_gunzip_drop(ctx);
    ngx_http_idem_capture_drop(ctx);
    ngx_http_idem_fingerprint_drop(ctx);
    ngx_http_idem_probe_sweep_done(ctx);
}


/* Called when the pool is freed: the log phase before that may read fields of a replay. */

static void
ngx_http_idem_ctx_release_bytes(void *data)
{
    ngx_http_idem_ctx_t  *ctx = data;

    idem_shared_bytes_release(ctx->decision.shared);
    idem_shared_bytes_release(ctx->response.shared);
}


/*
 * A filter that has set filter_need_temporary changes the bytes of a response in
 * their place, as charset does: it gets a copy, because the store shares ours.
 * Call it after the header filters.
 */

ngx_int_t
ngx_http_idem_ctx_own_bytes(ngx_http_request_t *r, ngx_buf_t *b)
{
    size_t   size;
    u_char  *p;

    if (!r->filter_need_temporary || !b->memory) {
        return NGX_OK;
    }

    size = (size_t) (b->last - b->pos);

    p = ngx_pnalloc(r->pool, size);
    if (p == NULL) {
        return NGX_ERROR;
    }

    b->last = ngx_cpymem(p, b->pos, size);
    b->pos = p;
    b->memory = 0;
    b->temporary = 1;

    return NGX_OK;
}


/* The only place that changes the state. A move that is not in the table is a bug of ours. */

void
ngx_http_idem_ctx_set_state(ngx_http_idem_ctx_t *ctx, ngx_http_idem_state_e state)
{
    if (!ngx_http_idem_state_allows(ctx->state, state)) {
        ngx_log_error(NGX_LOG_ALERT, ctx->request->connection->log, 0,
                      "idem: record %s: a request cannot be %s after %s; it stays there",
                      ctx->decision.hash, ngx_http_idem_state_name(state),
                      ngx_http_idem_state_name(ctx->state));
        return;
    }

    ctx->state = state;
}


void
ngx_http_idem_ctx_set_guard(ngx_http_idem_ctx_t *ctx, ngx_http_idem_guard_e guard)
{
    ctx->guard = guard;
}
