
/*
 * An uncertain run, where the backend guards its own transaction by idem_once()
 * in the database that is our store as well: its row is looked for, instead of
 * asking a URI. The row is there: it is done, with what the row holds. It is not:
 * nothing has been committed, and it runs; where a transaction is still open, the
 * backend's own guard waits for it and is told that it is a duplicate. The store
 * cannot tell: it stays as it was.
 */

#include "ngx_http_idem.h"

#include "core/ask.h"


struct ngx_http_idem_row_s {
    struct idem_ask       ask;
    ngx_http_idem_ctx_t  *ctx;
};


/* What was found is copied; the body as one that comes from a backend. */

static void
ngx_http_idem_row_take(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx, const struct idem_op *op)
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
        return;                                 /* which have no body */
    }

    if (result->len
        && ngx_http_idem_keep(r, ctx, (u_char *) result->at, result->len) != NGX_OK)
    {
        ctx->discard = 1;
    }
}


static void
ngx_http_idem_row_answered(struct idem_ask *ask, int rc, const struct idem_error *err)
{
    ngx_log_t            *log;
    ngx_http_idem_row_t  *row = (ngx_http_idem_row_t *) ask;
    ngx_http_idem_ctx_t  *ctx = row->ctx;

    log = ctx->request->connection->log;
    ctx->waited += ngx_current_msec - ctx->asked;

    if (rc == 0) {
        ngx_http_idem_row_take(ctx->request, ctx, &ask->op);

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

    ngx_http_idem_resume(ctx->request);
}


ngx_int_t
ngx_http_idem_row_start(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx)
{
    ngx_http_idem_row_t  *row;

    row = ngx_pcalloc(r->pool, sizeof(ngx_http_idem_row_t));
    if (row == NULL) {
        return NGX_ERROR;
    }

    row->ctx = ctx;
    row->ask.answered = ngx_http_idem_row_answered;
    row->ask.op.kind = IDEM_OP_TX;
    row->ask.op.key = ctx->run->claim->key;     /* the row and the record have one name */

    ctx->row = row;
    ctx->probe_over = 0;
    ctx->asked = ngx_current_msec;
    ctx->state = NGX_HTTP_IDEM_PROBING;
    r->write_event_handler = ngx_http_request_empty_handler;

    idem_ask_start(ctx->conf->store->h, &row->ask);

    return NGX_AGAIN;
}


/* The request is over. */

void
ngx_http_idem_row_drop(ngx_http_idem_ctx_t *ctx)
{
    if (ctx->row) {
        idem_ask_stop(&ctx->row->ask);
        ctx->row = NULL;
    }
}
