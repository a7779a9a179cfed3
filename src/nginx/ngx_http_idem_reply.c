
/*
 * Responses of our own: replays of kept responses, and refusals.
 */

#include "ngx_http_idem.h"


ngx_int_t
ngx_http_idem_reply_add_header(ngx_http_request_t *r, const char *name, ngx_str_t *value)
{
    ngx_str_t  key = { ngx_strlen(name), (u_char *) name };

    return ngx_http_idem_fields_push(&r->headers_out.headers, &key, value) ? NGX_OK : NGX_ERROR;
}


static ngx_int_t
ngx_http_idem_reply_add_seconds(ngx_http_request_t *r, const char *name, int64_t seconds)
{
    ngx_str_t  value;

    value.data = ngx_pnalloc(r->pool, NGX_INT64_LEN);
    if (value.data == NULL) {
        return NGX_ERROR;
    }

    value.len = (size_t) (ngx_sprintf(value.data, "%L", seconds) - value.data);

    return ngx_http_idem_reply_add_header(r, name, &value);
}


/* Refusals. */

static ngx_uint_t
ngx_http_idem_reply_wants_html(ngx_http_request_t *r)
{
    struct idem_http_accept  accept;

    ngx_http_idem_fields_accept(r, &accept);

    return idem_http_accept_html(&accept);
}


static int64_t
ngx_http_idem_reply_retry_after(ngx_http_idem_ctx_t *ctx)
{
    switch (ctx->decision.problem) {

    case IDEM_HTTP_IN_PROGRESS:
        return ctx->decision.retry_ms <= 1000 ? 1 : (ctx->decision.retry_ms + 999) / 1000;

    case IDEM_HTTP_STORE_UNAVAILABLE:
        return 1;

    default:
        return 0;
    }
}


static struct idem_http_problem
ngx_http_idem_reply_problem(ngx_http_idem_ctx_t *ctx, ngx_uint_t status)
{
    struct idem_http_problem         problem;
    const ngx_http_idem_decision_t  *decision = &ctx->decision;

    ngx_memzero(&problem, sizeof(struct idem_http_problem));

    problem.kind = decision->problem;
    problem.status = (int) status;
    problem.retry_after = ngx_http_idem_reply_retry_after(ctx);
    problem.key_hash.at = (char *) decision->hash;
    problem.key_hash.len = ngx_strlen(decision->hash);

    if (ctx->conf->policy) {
        problem.detail.at = ctx->conf->policy->message;
        problem.detail.len = ngx_strlen(problem.detail.at);
    }

    if (ctx->response.arrived == NGX_HTTP_IDEM_CUT) {    /* not refused: something has run */
        problem.detail = IDEM_HTTP_TEXT("The backend was asked, and its response did not come "
                                        "whole.");

        if (ctx->conf->policy->recover == IDEM_RECOVER_RERUN) {
            problem.retryable = IDEM_HTTP_RETRY;          /* it will run again */
        }
    }

    if (decision->detail) {
        problem.reason.at = decision->detail;
        problem.reason.len = ngx_strlen(decision->detail);
    }

    if (decision->problem == IDEM_HTTP_DUPLICATE) {
        problem.first_status = decision->status;
    }

    if (decision->problem == IDEM_HTTP_FAILED) {
        problem.last_status = decision->status;
        problem.reason.at = (char *) decision->reason.data;
        problem.reason.len = decision->reason.len;
    }

    return problem;
}


static ngx_int_t
ngx_http_idem_reply_refusal_head(ngx_http_request_t *r, const struct idem_http_problem *problem,
    const char *type, size_t len)
{
    ngx_str_t                store = ngx_string("no-store");
    ngx_str_t                name = ngx_string("WWW-Authenticate");
    ngx_str_t                proof = ngx_string("Signature");
    ngx_http_headers_out_t  *out = &r->headers_out;

    ngx_http_clean_header(r);

    out->status = (ngx_uint_t) idem_http_problem_status(problem);
    out->content_length_n = (off_t) len;
    out->last_modified_time = -1;
    ngx_str_null(&out->charset);
    out->content_type.data = (u_char *) type;
    out->content_type.len = ngx_strlen(type);
    out->content_type_len = out->content_type.len;
    out->content_type_lowcase = NULL;

    if (out->status == 422) {
        ngx_str_set(&out->status_line, "422 Unprocessable Content");
    }

    /* RFC 9110, 11.6.1: a 401 response names the proof that is required */

    if (out->status == NGX_HTTP_UNAUTHORIZED) {
        out->www_authenticate = ngx_http_idem_fields_push(&out->headers, &name, &proof);
        if (out->www_authenticate == NULL) {
            return NGX_ERROR;
        }
    }

    if (ngx_http_idem_reply_add_header(r, "Cache-Control", &store) != NGX_OK
        || (problem->retry_after
            && ngx_http_idem_reply_add_seconds(r, "Retry-After", problem->retry_after) != NGX_OK))
    {
        return NGX_ERROR;
    }

    return NGX_OK;
}


/* Makes the head of the response, and its body as *out. Status 0: the problem's own. */

ngx_int_t
ngx_http_idem_reply_refusal(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx, ngx_uint_t status,
    ngx_chain_t **out)
{
    char                      *text;
    size_t                     len;
    size_t                   (*print)(const struct idem_http_problem *, char *, size_t);
    ngx_buf_t                 *b;
    ngx_uint_t                 html;
    ngx_chain_t               *cl;
    struct idem_http_problem   problem;

    problem = ngx_http_idem_reply_problem(ctx, status);
    html = ngx_http_idem_reply_wants_html(r);
    print = html ? idem_http_problem_html : idem_http_problem_json;
    len = print(&problem, NULL, 0);

    text = ngx_pnalloc(r->pool, len + 1);
    b = ngx_calloc_buf(r->pool);
    cl = ngx_alloc_chain_link(r->pool);

    if (text == NULL || b == NULL || cl == NULL) {
        return NGX_ERROR;
    }

    (void) print(&problem, text, len + 1);

    if (ngx_http_idem_reply_refusal_head(r, &problem,
                                         html ? IDEM_HTTP_PROBLEM_HTML : IDEM_HTTP_PROBLEM_JSON,
                                         len)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    b->pos = (u_char *) text;
    b->last = b->pos + len;
    b->memory = 1;
    b->last_buf = (r == r->main);         /* a token may be a part of a page */
    b->last_in_chain = 1;

    cl->buf = b;
    cl->next = NULL;
    *out = cl;

    return NGX_OK;
}


static ngx_int_t
ngx_http_idem_reply_send(ngx_http_request_t *r, ngx_chain_t *out)
{
    ngx_int_t  rc;

    r->allow_ranges = 0;
    r->disable_not_modified = 1;
    r->err_status = 0;

    rc = ngx_http_send_header(r);

    if (rc == NGX_ERROR || rc > NGX_OK || r->header_only) {
        return rc;
    }

    return ngx_http_output_filter(r, out);
}


ngx_int_t
ngx_http_idem_reply_refuse_handler(ngx_http_request_t *r)
{
    ngx_int_t             rc;
    ngx_chain_t          *out;
    ngx_http_idem_ctx_t  *ctx;

    ctx = ngx_http_idem_ctx_find(r);

    rc = ngx_http_discard_request_body(r);
    if (rc != NGX_OK) {
        return rc;
    }

    if (ctx->decision.problem == IDEM_HTTP_DUPLICATE
        && ctx->conf->policy->on_duplicate == IDEM_ON_DUPLICATE_SUCCESS)
    {
        r->headers_out.status = NGX_HTTP_NO_CONTENT;
        r->headers_out.content_length_n = -1;
        r->header_only = 1;

        return ngx_http_idem_reply_send(r, NULL);
    }

    ngx_http_idem_log_refusal(r, ctx);

    if (ngx_http_idem_reply_refusal(r, ctx, 0, &out) != NGX_OK) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    return ngx_http_idem_reply_send(r, out);
}


/* Replays. */

/* Splits a Content-Type into the parts that nginx keeps apart. */

static void
ngx_http_idem_reply_set_content_type(ngx_http_request_t *r, ngx_str_t *type)
{
    u_char  *p, *last, *end;

    r->headers_out.content_type = *type;
    r->headers_out.content_type_len = type->len;
    r->headers_out.content_type_lowcase = NULL;

    end = type->data + type->len;

    for (p = type->data; p < end; p++) {

        if (*p != ';') {
            continue;
        }

        last = p;

        do {
            p++;
        } while (p < end && *p == ' ');

        if ((size_t) (end - p) < sizeof("charset=") - 1
            || ngx_strncasecmp(p, (u_char *) "charset=", sizeof("charset=") - 1) != 0)
        {
            continue;
        }

        p += sizeof("charset=") - 1;
        r->headers_out.content_type_len = (size_t) (last - type->data);

        if (p < end && *p == '"') {
            p++;
        }

        if (end > p && *(end - 1) == '"') {
            end--;
        }

        r->headers_out.charset.data = p;
        r->headers_out.charset.len = (size_t) (end - p);

        return;
    }
}


/* `expires` sets the first of these, and removes the others. */

static ngx_int_t
ngx_http_idem_reply_add_cache_control(ngx_http_request_t *r, ngx_table_elt_t *h)
{
#if (nginx_version >= 1023000)

    ngx_table_elt_t  **last;

    for (last = &r->headers_out.cache_control; *last; last = &(*last)->next) { /* void */ }

    *last = h;

#else

    ngx_array_t       *all = &r->headers_out.cache_control;
    ngx_table_elt_t  **place;

    if (all->elts == NULL
        && ngx_array_init(all, r->pool, 1, sizeof(ngx_table_elt_t *)) != NGX_OK)
    {
        return NGX_ERROR;
    }

    place = ngx_array_push(all);
    if (place == NULL) {
        return NGX_ERROR;
    }

    *place = h;

#endif

    return NGX_OK;
}


static ngx_int_t
ngx_http_idem_reply_replay_header(ngx_http_request_t *r, ngx_str_t *name, ngx_str_t *value)
{
    ngx_table_elt_t       *h;
    struct idem_http_text  text;

    text = ngx_http_idem_text(name);

    if (idem_http_same(text, IDEM_HTTP_TEXT("Content-Type"))) {
        ngx_http_idem_reply_set_content_type(r, value);
        return NGX_OK;
    }

    h = ngx_http_idem_fields_push(&r->headers_out.headers, name, value);
    if (h == NULL) {
        return NGX_ERROR;
    }

    /* fields that other filters look for; not Location, which nginx would make absolute */

    if (idem_http_same(text, IDEM_HTTP_TEXT("Content-Encoding"))) {
        r->headers_out.content_encoding = h;

    } else if (idem_http_same(text, IDEM_HTTP_TEXT("ETag"))) {
        r->headers_out.etag = h;

    } else if (idem_http_same(text, IDEM_HTTP_TEXT("Last-Modified"))) {
        r->headers_out.last_modified = h;
        r->headers_out.last_modified_time = ngx_parse_http_time(value->data, value->len);

    } else if (idem_http_same(text, IDEM_HTTP_TEXT("Expires"))) {
        r->headers_out.expires = h;

    } else if (idem_http_same(text, IDEM_HTTP_TEXT("Cache-Control"))) {
        return ngx_http_idem_reply_add_cache_control(r, h);
    }

    return NGX_OK;
}


static ngx_uint_t
ngx_http_idem_reply_accepts_gzip(ngx_http_request_t *r)
{
    struct idem_http_text     value;
    struct idem_http_codings  codings;

    idem_http_codings_init(&codings);

#if (NGX_HTTP_GZIP)

    if (r->headers_in.accept_encoding) {
        value = ngx_http_idem_text(&r->headers_in.accept_encoding->value);
        idem_http_codings_add(&codings, value);
    }

#endif

    return idem_http_codings_gzip(&codings);
}


/* True if the backend encoded the result unasked and this client does not accept that. */

static ngx_uint_t
ngx_http_idem_reply_needs_gunzip(ngx_http_request_t *r)
{
    ngx_table_elt_t  *encoding = r->headers_out.content_encoding;

    return encoding && ngx_http_idem_capture_is_gzip(&encoding->value)
           && !ngx_http_idem_reply_accepts_gzip(r);
}


/* Sends the head of a replay whose body has that length. */

ngx_int_t
ngx_http_idem_reply_replay_head(ngx_http_request_t *r, size_t len)
{
    if (r->headers_out.status == NGX_HTTP_NO_CONTENT) {

        /* a status line of its own, as from a backend, makes nginx leave the fields alone */

        ngx_str_set(&r->headers_out.status_line, "204 No Content");

    } else if (r->headers_out.status != NGX_HTTP_NOT_MODIFIED) {
        r->headers_out.content_length_n = (off_t) len;
    }

    r->allow_ranges = 0;
    r->disable_not_modified = 1;
    r->err_status = 0;

    return ngx_http_send_header(r);
}


ngx_int_t
ngx_http_idem_reply_replay_as_is(ngx_http_request_t *r, struct idem_http_text *body)
{
    ngx_buf_t    *b;
    ngx_int_t     rc;
    ngx_chain_t   out;

    b = ngx_calloc_buf(r->pool);
    if (b == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    rc = ngx_http_idem_reply_replay_head(r, body->len);

    if (rc == NGX_ERROR || rc > NGX_OK || r->header_only) {
        return rc;
    }

    b->pos = (u_char *) body->at;
    b->last = b->pos + body->len;
    b->memory = (body->len != 0);
    b->last_buf = 1;
    b->last_in_chain = 1;

    if (ngx_http_idem_ctx_own_bytes(r, b) != NGX_OK) {
        return NGX_ERROR;
    }

    out.buf = b;
    out.next = NULL;

    return ngx_http_output_filter(r, &out);
}


ngx_int_t
ngx_http_idem_reply_replay_handler(ngx_http_request_t *r)
{
    ngx_int_t                 rc;
    ngx_str_t                 yes = ngx_string("true"), name, value;
    ngx_http_idem_ctx_t      *ctx;
    struct idem_http_answer   answer;
    struct idem_http_header   header;

    ctx = ngx_http_idem_ctx_find(r);

    rc = ngx_http_discard_request_body(r);
    if (rc != NGX_OK) {
        return rc;
    }

    if (idem_http_answer_read(ctx->decision.result.data, ctx->decision.result.len, &answer) != 0) {
        ngx_log_error(NGX_LOG_ERR, r->connection->log, 0,
                      "idem: record %s: its result is no response that this version can read",
                      ctx->decision.hash);

        ngx_http_idem_decision_set_problem(ctx, ctx->decision.verdict == IDEM_DEAD
                                                ? IDEM_HTTP_FAILED : IDEM_HTTP_DUPLICATE);

        return ngx_http_idem_reply_refuse_handler(r);
    }

    while (idem_http_answer_next(&answer.headers, &header)) {
        name.data = (u_char *) header.name.at;
        name.len = header.name.len;
        value.data = (u_char *) header.value.at;
        value.len = header.value.len;

        if (ngx_http_idem_reply_replay_header(r, &name, &value) != NGX_OK) {
            return NGX_HTTP_INTERNAL_SERVER_ERROR;
        }
    }

    if (ngx_http_idem_reply_add_header(r, "Idempotent-Replayed", &yes) != NGX_OK) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    r->headers_out.status = (ngx_uint_t) answer.status;

    if (ngx_http_idem_reply_needs_gunzip(r)) {
        rc = ngx_http_idem_gunzip(r, ctx, &answer);

        if (rc != NGX_DECLINED) {
            return rc;
        }
    }

    return ngx_http_idem_reply_replay_as_is(r, &answer.body);
}
