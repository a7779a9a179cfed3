
/*
 * Probes: asks the backend for the outcome of an uncertain run, one prober at a
 * time. 2xx settles the record as done, with that response; 404 means that it
 * never happened, and it runs; anything else leaves it as it was. If backend and
 * store share a database, the row there is looked up instead (probe_tx.c).
 */

#include "ngx_http_idem.h"


static ngx_int_t ngx_http_idem_probe_done(ngx_http_request_t *r, void *data, ngx_int_t rc);


/* The status is that of a result, or 0; the reason is why the record stays uncertain, or NULL. */

void
ngx_http_idem_probe_set_found(ngx_http_idem_ctx_t *ctx, ngx_http_idem_found_e found,
    ngx_uint_t status, const char *reason)
{
    ctx->probe.found = found;
    ctx->probe.status = status;
    ctx->probe.reason = reason;
}


ngx_int_t
ngx_http_idem_probe_start(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx)
{
    ngx_str_t                    uri, args;
    ngx_uint_t                   flags;
    ngx_http_request_t          *sr;
    ngx_http_post_subrequest_t  *ps;

    ngx_http_idem_probe_set_found(ctx, NGX_HTTP_IDEM_DOUBTFUL, 0, NULL);

    if (ctx->conf->probe_type) {
        return ngx_http_idem_probe_tx_start(r, ctx);
    }

    if (ngx_http_complex_value(r, ctx->conf->probe, &uri) != NGX_OK) {
        return NGX_ERROR;
    }

    ngx_str_null(&args);
    flags = 0;

    if (ngx_http_parse_unsafe_uri(r, &uri, &args, &flags) != NGX_OK) {
        ngx_log_error(NGX_LOG_ERR, r->connection->log, 0,
                      "idem: record %s: idem_probe gives no URI", ctx->decision.hash);
        return NGX_DECLINED;
    }

    if (ngx_http_idem_upstream_request_headers(r, ctx) != NGX_OK) {
        return NGX_ERROR;
    }

    ps = ngx_palloc(r->pool, sizeof(ngx_http_post_subrequest_t));
    if (ps == NULL) {
        return NGX_ERROR;
    }

    ps->handler = ngx_http_idem_probe_done;
    ps->data = ctx;

    if (ngx_http_subrequest(r, &uri, &args, &sr, ps, NGX_HTTP_SUBREQUEST_WAITED) != NGX_OK) {
        return NGX_ERROR;
    }

    /* it asks, and has no body */

    sr->request_body = ngx_pcalloc(r->pool, sizeof(ngx_http_request_body_t));
    if (sr->request_body == NULL) {
        return NGX_ERROR;
    }

    sr->headers_in.content_length = NULL;
    sr->headers_in.content_length_n = -1;
    sr->headers_in.chunked = 0;
    sr->filter_need_in_memory = 1;

    ngx_http_set_ctx(sr, ctx, ngx_http_idem_module);

    ctx->probe.request = sr;
    ngx_http_idem_ctx_set_state(ctx, NGX_HTTP_IDEM_PROBING);
    r->write_event_handler = ngx_http_core_run_phases;

    return NGX_AGAIN;
}


ngx_int_t
ngx_http_idem_probe(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx)
{
    ngx_int_t  rc;

    if (ctx->decision.verdict == IDEM_PROBE) {
        rc = ngx_http_idem_probe_start(r, ctx);

        if (rc == NGX_DECLINED) {          /* the probe is impossible: the record stays as it was */
            ngx_http_idem_decision_set_verdict(ctx, IDEM_UNCERTAIN);
            ngx_http_idem_ctx_set_state(ctx, NGX_HTTP_IDEM_SETTLING);
            r->write_event_handler = ngx_http_request_empty_handler;

            ngx_http_idem_claim_finish(ctx, NGX_HTTP_IDEM_UNKNOWN, 0, NULL, 0);

            return ctx->claim ? NGX_AGAIN : NGX_ERROR;
        }

        return rc;
    }

    /* takes the record over, so that no other prober asks meanwhile */

    if (ngx_http_idem_claim(r, ctx, 1) != NGX_OK) {
        return NGX_ERROR;
    }

    ngx_http_idem_ctx_set_state(ctx, NGX_HTTP_IDEM_CLAIMING);
    r->write_event_handler = ngx_http_request_empty_handler;

    return NGX_AGAIN;
}


ngx_int_t
ngx_http_idem_probe_header(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx)
{
    ngx_http_idem_capture_set_arrived(ctx, NGX_HTTP_IDEM_HEAD);
    ctx->probe.status = r->headers_out.status;
    r->filter_need_in_memory = 1;

    return NGX_OK;
}


ngx_int_t
ngx_http_idem_probe_body(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx, ngx_chain_t *in)
{
    ngx_buf_t  *b;

    for ( /* void */ ; in; in = in->next) {
        b = in->buf;

        if (ngx_buf_in_memory(b) && b->last != b->pos && !ctx->response.discard) {
            ngx_http_idem_capture_add(r, ctx, b->pos, (size_t) (b->last - b->pos));
        }

        if (b->last_buf || b->last_in_chain) {
            ngx_http_idem_capture_set_arrived(ctx, NGX_HTTP_IDEM_WHOLE);
        }

        b->pos = b->last;
        b->file_pos = b->file_last;
    }

    return NGX_OK;
}


static ngx_int_t
ngx_http_idem_probe_done(ngx_http_request_t *r, void *data, ngx_int_t rc)
{
    ngx_http_idem_ctx_t  *ctx = data;

    if (rc == NGX_ERROR || rc >= NGX_HTTP_SPECIAL_RESPONSE) {
        ctx->probe.status = (rc == NGX_ERROR) ? 0 : (ngx_uint_t) rc;
    }

    if (ctx->state == NGX_HTTP_IDEM_PROBING) {        /* not after a post_action */
        ngx_http_idem_ctx_set_state(ctx, NGX_HTTP_IDEM_PROBED);
    }

    return rc;
}


/*
 * Returns the backend's own status, or 0. A 404 of nginx itself (a missing
 * location, or a page) must not mean that nothing happened, nor a page of nginx
 * that it did.
 */

static ngx_uint_t
ngx_http_idem_probe_backend_status(ngx_http_idem_ctx_t *ctx)
{
    ngx_http_upstream_t  *u = ctx->probe.request->upstream;

    if ((u && u->headers_in.status_n == ctx->probe.status)
        || !(ctx->probe.status == NGX_HTTP_NOT_FOUND
             || (ctx->probe.status >= 200 && ctx->probe.status < 300)))
    {
        return ctx->probe.status;               /* the backend's own, or one that decides nothing */
    }

    ngx_log_error(NGX_LOG_ERR, ctx->request->connection->log, 0,
                  "idem: record %s: nginx itself, not a backend, responded to idem_probe with "
                  "%ui: the outcome stays unknown", ctx->decision.hash, ctx->probe.status);

    return 0;
}


/*
 * Interprets the response of a URI: it happened, if the backend confirms it with
 * a whole response. A sweep skips records that never happened.
 */

static void
ngx_http_idem_probe_judge(ngx_http_idem_ctx_t *ctx)
{
    ngx_uint_t            status;
    ngx_http_upstream_t  *u = ctx->probe.request->upstream;

    status = ctx->probe.status = ngx_http_idem_probe_backend_status(ctx);
    ctx->probe.reason = status ? "the backend was asked, and does not know" : NULL;

    if (status == NGX_HTTP_NOT_FOUND) {
        ctx->probe.found = NGX_HTTP_IDEM_NOT;
        ctx->probe.reason = NGX_HTTP_IDEM_NEVER;

    } else if (status >= 200 && status < 300 && ctx->response.arrived == NGX_HTTP_IDEM_WHOLE
               && !(u && ngx_http_idem_upstream_is_cut(u)))
    {
        ctx->probe.found = NGX_HTTP_IDEM_HAPPENED;
    }

    ngx_log_error(NGX_LOG_NOTICE, ctx->request->connection->log, 0,
                  "idem: record %s: the backend was asked for the outcome, and responded with "
                  "%ui",
                  ctx->decision.hash, status);
}


/* Ends a probe: returns the record's outcome, and its result if one is to be kept. */

ngx_uint_t
ngx_http_idem_probe_outcome(ngx_http_idem_ctx_t *ctx, ngx_str_t *result)
{
    ngx_int_t            rc;
    ngx_http_request_t  *sr = ctx->probe.request;

    ngx_str_null(result);

    if (sr) {
        ngx_http_idem_probe_judge(ctx);
        ctx->probe.request = NULL;
    }

    if (ctx->probe.found != NGX_HTTP_IDEM_HAPPENED) {
        return NGX_HTTP_IDEM_UNKNOWN;
    }

    if (!ctx->response.discard && ctx->conf->policy->mode == IDEM_MODE_REPLAY) {
        rc = sr ? ngx_http_idem_capture_encode(sr, ctx, result)
                : ngx_http_idem_capture_encode_row(ctx, ctx->probe.status, result);

        if (rc != NGX_OK) {
            ngx_str_null(result);
        }
    }

    return NGX_HTTP_IDEM_DONE;
}


/*
 * True if the run may still start. A probe can outlast a lease that the store
 * could not renew, or run_max: another prober may have got the same response by
 * now.
 */

static ngx_uint_t
ngx_http_idem_probe_in_time(ngx_http_idem_ctx_t *ctx)
{
    return !ctx->claim->lost && idem_claim_lease_until(ctx->claim->core) > idem_loop_now();
}


ngx_int_t
ngx_http_idem_probe_finish(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx)
{
    ngx_str_t   result;
    ngx_uint_t  outcome;

    outcome = ngx_http_idem_probe_outcome(ctx, &result);

    if (ctx->probe.found == NGX_HTTP_IDEM_NOT && ngx_http_idem_probe_in_time(ctx)) {
        ngx_http_idem_decision_set_verdict(ctx, IDEM_RUN);
        ngx_http_idem_ctx_set_state(ctx, NGX_HTTP_IDEM_ANSWERED);
        ctx->probe.reason = NULL;          /* the run has an outcome of its own */
        ngx_http_idem_capture_restart(ctx);

        return NGX_OK;
    }

    if (outcome == NGX_HTTP_IDEM_DONE) {
        ngx_http_idem_decision_set_done(ctx, ctx->probe.status, &result);

    } else {
        ngx_http_idem_decision_set_verdict(ctx, IDEM_UNCERTAIN);
    }

    ngx_http_idem_ctx_set_state(ctx, NGX_HTTP_IDEM_SETTLING);
    r->write_event_handler = ngx_http_request_empty_handler;

    ngx_http_idem_claim_finish(ctx, outcome, ctx->probe.status, result.data, result.len);

    if (ctx->claim == NULL) {                     /* the handover itself failed */
        ngx_http_idem_ctx_set_state(ctx, NGX_HTTP_IDEM_ANSWERED);
        return NGX_OK;
    }

    return NGX_AGAIN;
}
