
/*
 * Probes of a transaction: if the backend guards it with idem_once() in the
 * database that is also our store, its row is looked up instead of a URI. A row
 * means done, with the row's result. No row means that nothing is committed, and
 * it runs; if a transaction is still open, the backend's own guard waits for it
 * and reports a duplicate. If the store fails, the record stays as it was.
 */

#include "ngx_http_idem.h"

#include "core/store_call.h"


struct ngx_http_idem_probe_tx_s {
    struct idem_store_call     call;
    ngx_http_idem_ctx_t       *ctx;
};


/* Copies the result; its body as if it came from a backend. */

static void
ngx_http_idem_probe_tx_copy(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx,
    const struct idem_op *op)
{
    ngx_uint_t                status;
    const struct idem_bytes  *result = &op->out.tx.result;

    if (!op->out.tx.there) {
        ngx_http_idem_probe_set_found(ctx, NGX_HTTP_IDEM_NOT, 0, NGX_HTTP_IDEM_NO_ROW);
        return;
    }

    status = op->out.tx.status >= 200 && op->out.tx.status < 600
             ? (ngx_uint_t) op->out.tx.status : NGX_HTTP_OK;

    ngx_http_idem_probe_set_found(ctx, NGX_HTTP_IDEM_HAPPENED, status, NULL);

    /* these have no body */

    if (status != NGX_HTTP_NO_CONTENT && status != NGX_HTTP_NOT_MODIFIED && result->len) {
        ngx_http_idem_capture_add(r, ctx, (u_char *) result->at, result->len);
    }
}


static void
ngx_http_idem_probe_tx_handler(struct idem_store_call *call, int rc, const struct idem_error *err)
{
    ngx_log_t                 *log;
    ngx_http_idem_probe_tx_t  *tx = (ngx_http_idem_probe_tx_t *) call;
    ngx_http_idem_ctx_t       *ctx = tx->ctx;

    log = ctx->request->connection->log;
    ngx_http_idem_decision_wait_end(ctx);

    if (rc == 0) {
        ngx_http_idem_probe_tx_copy(ctx->request, ctx, &call->op);

        ngx_log_error(NGX_LOG_NOTICE, log, 0,
                      "idem: record %s: the row of its transaction %s", ctx->decision.hash,
                      ctx->probe.found == NGX_HTTP_IDEM_HAPPENED
                      ? "is there: it happened" : "is not there");

    } else {
        ngx_http_idem_probe_set_found(ctx, NGX_HTTP_IDEM_DOUBTFUL, 0,
                                      "the row of its transaction could not be looked for");

        ngx_log_error(NGX_LOG_ERR, log, 0,
                      "idem: record %s: the row of its transaction could not be looked for: %s",
                      ctx->decision.hash, err->text);
    }

    idem_store_call_stop(call);
    ctx->probe_tx = NULL;
    ngx_http_idem_ctx_set_state(ctx, NGX_HTTP_IDEM_PROBED);

    ngx_http_idem_handler_resume(ctx->request);
}


ngx_int_t
ngx_http_idem_probe_tx_start(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx)
{
    ngx_http_idem_probe_tx_t  *tx;

    tx = ngx_pcalloc(r->pool, sizeof(ngx_http_idem_probe_tx_t));
    if (tx == NULL) {
        return NGX_ERROR;
    }

    tx->ctx = ctx;
    tx->call.answered = ngx_http_idem_probe_tx_handler;
    tx->call.op.kind = IDEM_OP_TX;
    tx->call.op.key = ctx->claim->core->key;      /* row and record have the same name */

    ctx->probe_tx = tx;
    ngx_http_idem_decision_wait_begin(ctx);
    ngx_http_idem_ctx_set_state(ctx, NGX_HTTP_IDEM_PROBING);
    r->write_event_handler = ngx_http_request_empty_handler;

    idem_store_call_start(ctx->conf->store->h, &tx->call);

    return NGX_AGAIN;
}


/* Called when the request ends. */

void
ngx_http_idem_probe_tx_drop(ngx_http_idem_ctx_t *ctx)
{
    if (ctx->probe_tx) {
        idem_store_call_stop(&ctx->probe_tx->call);
        ctx->probe_tx = NULL;
    }
}
