
/*
 * The decision about a request, for logs, variables and counters too. The fields
 * of ctx->decision are set here only: tools/house --check finds other places.
 */

#include "ngx_http_idem.h"


/* Refuses the request; a detail stands beside the policy's message. Returns NGX_ABORT. */

ngx_int_t
ngx_http_idem_decision_refuse(ngx_http_idem_ctx_t *ctx, enum idem_http_problem_kind problem,
    const char *word, const char *detail)
{
    ctx->decision.kind = NGX_HTTP_IDEM_REFUSED;
    ctx->decision.problem = problem;
    ctx->decision.word = word;
    ctx->decision.detail = detail;

    return NGX_ABORT;
}


/* The problem of a response that fails later: the word stays, and is counted. */

void
ngx_http_idem_decision_set_problem(ngx_http_idem_ctx_t *ctx, enum idem_http_problem_kind problem)
{
    ctx->decision.problem = problem;
}


void
ngx_http_idem_decision_set_word(ngx_http_idem_ctx_t *ctx, const char *word)
{
    ctx->decision.word = word;
}


void
ngx_http_idem_decision_set_kind(ngx_http_idem_ctx_t *ctx, ngx_http_idem_decision_e kind)
{
    ctx->decision.kind = kind;
}


void
ngx_http_idem_decision_set_hash(ngx_http_idem_ctx_t *ctx, struct idem_claim *claim)
{
    ngx_memcpy(ctx->decision.hash, idem_claim_hash(claim), IDEM_HEX_LEN);
}


/* The time between these two is spent on the store. */

void
ngx_http_idem_decision_wait_begin(ngx_http_idem_ctx_t *ctx)
{
    ctx->decision.asked = ngx_current_msec;
}


void
ngx_http_idem_decision_wait_end(ngx_http_idem_ctx_t *ctx)
{
    ctx->decision.waited += ngx_current_msec - ctx->decision.asked;
}


static ngx_int_t
ngx_http_idem_decision_copy(ngx_pool_t *pool, ngx_str_t *to, const void *from, size_t len)
{
    to->len = len;
    to->data = ngx_pnalloc(pool, len + 1);

    if (to->data == NULL) {
        return NGX_ERROR;
    }

    if (len) {
        ngx_memcpy(to->data, from, len);
    }

    to->data[len] = '\0';

    return NGX_OK;
}


/* The store has failed. NGX_ERROR: there is no memory for the reason. */

ngx_int_t
ngx_http_idem_decision_no_store(ngx_http_idem_ctx_t *ctx, const char *reason)
{
    ctx->decision.kind = NGX_HTTP_IDEM_NO_STORE;

    return ngx_http_idem_decision_copy(ctx->request->pool, &ctx->decision.reason, reason,
                                       ngx_strlen(reason));
}


/* Keeps the store's bytes as long as the response; copies those that it cannot share. */

static ngx_int_t
ngx_http_idem_decision_keep_result(ngx_http_request_t *r, ngx_http_idem_decision_t *decision,
    struct idem_claim *claim, const struct idem_answer *answer)
{
    idem_shared_bytes_release(decision->shared);
    decision->shared = idem_claim_answer_ref(claim);

    if (decision->shared == NULL) {
        return ngx_http_idem_decision_copy(r->pool, &decision->result, answer->result,
                                           answer->result_len);
    }

    decision->result.data = (u_char *) answer->result;
    decision->result.len = answer->result_len;

    return NGX_OK;
}


/* Takes the needed parts of the store's response to a claim. */

void
ngx_http_idem_decision_take(ngx_http_idem_ctx_t *ctx, struct idem_claim *claim,
    const struct idem_answer *answer)
{
    ngx_http_request_t        *r = ctx->request;
    ngx_http_idem_decision_t  *decision = &ctx->decision;

    decision->verdict = answer->verdict;
    decision->attempt = answer->attempt;
    decision->status = answer->status;
    decision->retry_ms = answer->retry_after_ms;
    decision->kind = answer->unguarded ? NGX_HTTP_IDEM_UNGUARDED : NGX_HTTP_IDEM_VERDICT;

    if (ngx_http_idem_decision_copy(r->pool, &decision->reason, answer->reason,
                                    answer->reason_len)
        != NGX_OK
        || (answer->has_result
            && ngx_http_idem_decision_keep_result(r, decision, claim, answer) != NGX_OK))
    {
        decision->kind = NGX_HTTP_IDEM_NO_STORE;
    }
}


/* A probe has changed the verdict; a result is one that duplicates get. */

void
ngx_http_idem_decision_set_verdict(ngx_http_idem_ctx_t *ctx, enum idem_verdict verdict)
{
    ctx->decision.verdict = verdict;
}


void
ngx_http_idem_decision_set_done(ngx_http_idem_ctx_t *ctx, ngx_uint_t status, ngx_str_t *result)
{
    ctx->decision.verdict = result->len ? IDEM_REPLAY : IDEM_DUPLICATE;
    ctx->decision.status = (int32_t) status;
    ctx->decision.result = *result;
}
