
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
    struct idem_ask       ask;
    ngx_http_idem_ctx_t  *ctx;
};


/* Copies the result; its body as if it came from a backend. */

static void
ngx_http_idem_probe_tx_copy(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx,
    const struct idem_op *op)
{
    int32_t                   status = op->out.tx.status;
    const struct idem_bytes  *result = &op->out.tx.result;

    if (!op->out.tx.there) {
        ctx->came = NGX_HTTP_IDEM_NOT;
        ctx->probe_reason = NGX_HTTP_IDEM_NO_ROW;
        return;
    }

    ctx->came = NGX_HTTP_IDEM_HAPPENED;
    ctx->probe_status = (status >= 200 && status < 600) ? (ngx_uint_t) status : NGX_HTTP_OK;

    if (ctx->probe_status == NGX_HTTP_NO_CONTENT || ctx->probe_status == NGX_HTTP_NOT_MODIFIED) {
        return;                                 /* these have no body */
    }

    if (result->len
        && ngx_http_idem_capture_body_append(r, ctx, (u_char *) result->at, result->len) != NGX_OK)
    {
        ctx->discard = 1;
    }
}


static void
ngx_http_idem_probe_tx_handler(struct idem_ask *ask, int rc, const struct idem_error *err)
{
    ngx_log_t                 *log;
    ngx_http_idem_probe_tx_t  *tx = (ngx_http_idem_probe_tx_t *) ask;
    ngx_http_idem_ctx_t       *ctx = tx->ctx;

    log = ctx->request->connection->log;
    ctx->waited += ngx_current_msec - ctx->asked;

    if (rc == 0) {
        ngx_http_idem_probe_tx_copy(ctx->request, ctx, &ask->op);

        ngx_log_error(NGX_LOG_NOTICE, log, 0,
                      "idem: record %s: the row of its transaction %s", ctx->hash,
                      ctx->came == NGX_HTTP_IDEM_HAPPENED ? "is there: it happened"
                                                          : "is not there");

    } else {
        ctx->probe_reason = "the row of its transaction could not be looked for";

        ngx_log_error(NGX_LOG_ERR, log, 0,
                      "idem: record %s: the row of its transaction could not be looked for: %s",
                      ctx->hash, err->text);
    }

    idem_ask_stop(ask);
    ctx->row = NULL;
    ctx->probe_over = 1;

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
    tx->ask.answered = ngx_http_idem_probe_tx_handler;
    tx->ask.op.kind = IDEM_OP_TX;
    tx->ask.op.key = ctx->run->claim->key;      /* row and record have the same name */

    ctx->row = tx;
    ctx->probe_over = 0;
    ctx->asked = ngx_current_msec;
    ctx->state = NGX_HTTP_IDEM_PROBING;
    r->write_event_handler = ngx_http_request_empty_handler;

    idem_ask_start(ctx->conf->store->h, &tx->ask);

    return NGX_AGAIN;
}


/* Called when the request ends. */

void
ngx_http_idem_probe_tx_drop(ngx_http_idem_ctx_t *ctx)
{
    if (ctx->row) {
        idem_ask_stop(&ctx->row->ask);
        ctx->row = NULL;
    }
}
