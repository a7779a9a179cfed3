
/*
 * Replays of gzip responses for clients that do not accept gzip.
 *
 * The decoded length was measured when the response was stored (capture.c),
 * so it is known at once if the body may be decoded here: up to idem_result_max
 * of the location. A longer or damaged body goes out as it is. The body is
 * decoded piece by piece into one buffer, and the next piece only after the
 * client has taken the last one: a client costs that buffer and zlib's window,
 * however long the body is. Other requests run between two pieces. What a piece
 * reads is bounded, too: blocks without content give no output.
 *
 *     CLOSED      zlib has no memory
 *     MEASURING   a record of the release before this one: it is decoded once,
 *                 without output, to find its length
 *     SENDING     the head is out; pieces follow
 */

#include "ngx_http_idem.h"
#include "http/http_inflate.h"


#define NGX_HTTP_IDEM_PIECE  65536


typedef enum {
    NGX_HTTP_IDEM_GUNZIP_CLOSED = 0,
    NGX_HTTP_IDEM_GUNZIP_MEASURING,
    NGX_HTTP_IDEM_GUNZIP_SENDING
} ngx_http_idem_gunzip_e;


struct ngx_http_idem_gunzip_s {
    ngx_http_request_t        *request;
    ngx_http_idem_gunzip_e     state;
    struct idem_http_text      packed;
    struct idem_http_inflate   inflate;
    size_t                     limit;       /* the location's; its own length once it is known */
    size_t                     size;        /* decoded so far */
    ngx_event_t                turn;        /* for the next piece */
    ngx_chain_t               *free, *busy;
};


static void ngx_http_idem_gunzip_continue(ngx_http_request_t *r, ngx_http_idem_gunzip_t *u);


static void
ngx_http_idem_gunzip_close(ngx_http_idem_gunzip_t *u)
{
    if (u->state != NGX_HTTP_IDEM_GUNZIP_CLOSED) {
        idem_http_inflate_release(&u->inflate);
        u->state = NGX_HTTP_IDEM_GUNZIP_CLOSED;
    }
}


void
ngx_http_idem_gunzip_drop(ngx_http_idem_ctx_t *ctx)
{
    ngx_http_idem_gunzip_t  *u = ctx->gunzip;

    if (u == NULL) {
        return;
    }

    ctx->gunzip = NULL;

    ngx_http_idem_gunzip_close(u);

    ngx_http_idem_stop_event(&u->turn);
}


/* Starts at the beginning of the body. */

static ngx_int_t
ngx_http_idem_gunzip_open(ngx_http_idem_gunzip_t *u, ngx_http_idem_gunzip_e state)
{
    ngx_http_idem_gunzip_close(u);

    u->size = 0;

    if (idem_http_inflate_init(&u->inflate, u->packed.at, u->packed.len, u->limit) != 0) {
        return NGX_ERROR;
    }

    u->state = state;

    return NGX_OK;
}


/* Continues in the loop's next turn, after the other work of this one. */

static void
ngx_http_idem_gunzip_post(ngx_http_idem_gunzip_t *u)
{
#if (nginx_version >= 1017005)
    ngx_post_event(&u->turn, &ngx_posted_next_events);
#else
    ngx_add_timer(&u->turn, 1);
#endif
}


static void
ngx_http_idem_gunzip_event_handler(ngx_event_t *ev)
{
    ngx_connection_t        *c;
    ngx_http_request_t      *r;
    ngx_http_idem_gunzip_t  *u = ev->data;

    r = u->request;
    c = r->connection;

    ngx_http_set_log_request(c->log, r);

    ngx_http_idem_gunzip_continue(r, u);

    ngx_http_run_posted_requests(c);
}


/* Returns the buffer that the client has taken, or a new one. */

static ngx_chain_t *
ngx_http_idem_gunzip_buffer(ngx_http_request_t *r, ngx_http_idem_gunzip_t *u)
{
    ngx_chain_t  *cl;

    if (u->free) {
        cl = u->free;
        u->free = NULL;
        return cl;
    }

    cl = ngx_alloc_chain_link(r->pool);
    if (cl == NULL) {
        return NULL;
    }

    cl->next = NULL;
    cl->buf = ngx_create_temp_buf(r->pool, NGX_HTTP_IDEM_PIECE);

    if (cl->buf == NULL) {
        return NULL;
    }

    cl->buf->tag = (ngx_buf_tag_t) &ngx_http_idem_module;
    cl->buf->recycled = 1;                 /* not to be postponed: the next piece waits for it */

    return cl;
}


/* Waits until the client takes more. */

static void
ngx_http_idem_gunzip_wait_client(ngx_http_request_t *r)
{
    ngx_event_t               *wev = r->connection->write;
    ngx_http_core_loc_conf_t  *clcf;

    clcf = ngx_http_get_module_loc_conf(r, ngx_http_core_module);

    if (!wev->delayed) {
        ngx_add_timer(wev, clcf->send_timeout);
    }

    if (ngx_handle_write_event(wev, clcf->send_lowat) != NGX_OK) {
        ngx_http_finalize_request(r, NGX_ERROR);
    }
}


static void
ngx_http_idem_gunzip_finish(ngx_http_request_t *r, ngx_int_t rc)
{
    ngx_http_idem_gunzip_drop(ngx_http_idem_ctx_find(r));
    ngx_http_finalize_request(r, rc);
}


/* Sends one piece, or the rest of the last piece. */

static void
ngx_http_idem_gunzip_send(ngx_http_request_t *r, ngx_http_idem_gunzip_t *u)
{
    int           failed;
    size_t        len;
    ngx_int_t     rc;
    ngx_chain_t  *out;
    ngx_event_t  *wev = r->connection->write;

    out = NULL;
    len = 1;

    if (u->busy == NULL) {
        out = ngx_http_idem_gunzip_buffer(r, u);
        if (out == NULL) {
            ngx_http_idem_gunzip_finish(r, NGX_ERROR);
            return;
        }

        failed = idem_http_inflate_next(&u->inflate, out->buf->pos, NGX_HTTP_IDEM_PIECE, &len);

        if (!failed && len == 0 && !u->inflate.done) {     /* blocks without content */
            u->free = out;
            ngx_http_idem_gunzip_post(u);
            return;
        }

        if (failed || (len == 0 && u->size != u->limit)) {
            ngx_log_error(NGX_LOG_ERR, r->connection->log, 0,
                          "idem: a stored body in gzip is not what it was when it was stored");
            ngx_http_idem_gunzip_finish(r, NGX_ERROR);
            return;
        }

        u->size += len;
        out->buf->last = out->buf->pos + len;

        if (len == 0) {
            out->buf->temporary = 0;
            out->buf->last_buf = 1;
            out->buf->last_in_chain = 1;
        }
    }

    rc = ngx_http_output_filter(r, out);

    if (rc == NGX_ERROR || len == 0) {     /* nginx sends what is left */
        ngx_http_idem_gunzip_finish(r, rc);
        return;
    }

    ngx_chain_update_chains(r->pool, &u->free, &u->busy, &out,
                            (ngx_buf_tag_t) &ngx_http_idem_module);

    if (u->busy || wev->delayed) {
        ngx_http_idem_gunzip_wait_client(r);
        return;
    }

    if (wev->timer_set) {
        ngx_del_timer(wev);
    }

    ngx_http_idem_gunzip_post(u);
}


static void
ngx_http_idem_gunzip_write_handler(ngx_http_request_t *r)
{
    ngx_event_t             *wev = r->connection->write;
    ngx_http_idem_ctx_t     *ctx = ngx_http_idem_ctx_find(r);
    ngx_http_idem_gunzip_t  *u = ctx->gunzip;

    if (wev->timedout) {
        ngx_log_error(NGX_LOG_INFO, r->connection->log, NGX_ETIMEDOUT, "client timed out");
        r->connection->timedout = 1;
        ngx_http_idem_gunzip_finish(r, NGX_HTTP_REQUEST_TIME_OUT);
        return;
    }

    if (u->state != NGX_HTTP_IDEM_GUNZIP_SENDING || u->turn.posted || u->turn.timer_set) {
        return;                            /* its event is already scheduled */
    }

    if (wev->delayed) {
        ngx_http_idem_gunzip_wait_client(r);
        return;
    }

    ngx_http_idem_gunzip_send(r, u);
}


/* Sends the head, with the decoded length, and the first piece. */

static void
ngx_http_idem_gunzip_begin(ngx_http_request_t *r, ngx_http_idem_gunzip_t *u)
{
    ngx_int_t  rc;

    r->headers_out.content_encoding->hash = 0;
    r->headers_out.content_encoding = NULL;
    ngx_http_weak_etag(r);

    rc = ngx_http_idem_reply_replay_head(r, u->limit);

    if (rc == NGX_ERROR || rc > NGX_OK || r->header_only) {
        ngx_http_idem_gunzip_finish(r, rc);
        return;
    }

    if (ngx_http_idem_gunzip_open(u, NGX_HTTP_IDEM_GUNZIP_SENDING) != NGX_OK) {
        ngx_http_idem_gunzip_finish(r, NGX_ERROR);
        return;
    }

    ngx_http_idem_gunzip_send(r, u);
}


/* Decodes one piece of a body whose length is not known yet. */

static void
ngx_http_idem_gunzip_measure(ngx_http_request_t *r, ngx_http_idem_gunzip_t *u)
{
    int           failed;
    size_t        len;
    ngx_int_t     rc;
    ngx_chain_t  *cl;

    cl = ngx_http_idem_gunzip_buffer(r, u);
    if (cl == NULL) {
        ngx_http_idem_gunzip_finish(r, NGX_HTTP_INTERNAL_SERVER_ERROR);
        return;
    }

    failed = idem_http_inflate_next(&u->inflate, cl->buf->pos, NGX_HTTP_IDEM_PIECE, &len);
    u->free = cl;

    if (failed) {
        ngx_http_idem_gunzip_drop(ngx_http_idem_ctx_find(r));

        rc = failed == IDEM_E_NOMEM ? NGX_HTTP_INTERNAL_SERVER_ERROR
                                    : ngx_http_idem_reply_replay_as_is(r, &u->packed);
        ngx_http_finalize_request(r, rc);
        return;
    }

    if (len || !u->inflate.done) {
        u->size += len;
        ngx_http_idem_gunzip_post(u);
        return;
    }

    u->limit = u->size;
    ngx_http_idem_gunzip_begin(r, u);
}


static void
ngx_http_idem_gunzip_continue(ngx_http_request_t *r, ngx_http_idem_gunzip_t *u)
{
    if (u->state == NGX_HTTP_IDEM_GUNZIP_SENDING) {
        ngx_http_idem_gunzip_send(r, u);

    } else {
        ngx_http_idem_gunzip_measure(r, u);
    }
}


/* NGX_DECLINED: the body goes out as it is. */

static ngx_int_t
ngx_http_idem_gunzip_decide(ngx_http_idem_gunzip_t *u, const struct idem_http_decoded *decoded,
    ngx_uint_t *known)
{
    *known = 0;

    switch (decoded->kind) {

    case IDEM_HTTP_DECODED_EXACT:
        *known = 1;

        if (decoded->size > u->limit) {
            return NGX_DECLINED;
        }

        u->limit = decoded->size;
        return NGX_OK;

    case IDEM_HTTP_DECODED_OVER:      /* by another limit, perhaps: it may have been raised since */
        return decoded->size >= u->limit ? NGX_DECLINED : NGX_OK;

    case IDEM_HTTP_DECODED_NEVER:
        return NGX_DECLINED;

    default:
        return idem_http_gzip_claims(u->packed) > u->limit ? NGX_DECLINED : NGX_OK;
    }
}


/* NGX_DONE: the body is being sent. NGX_DECLINED: the caller must send it as it is. */

ngx_int_t
ngx_http_idem_gunzip(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx,
    struct idem_http_answer *answer)
{
    ngx_uint_t               known;
    ngx_http_idem_gunzip_t  *u;

    u = ngx_pcalloc(r->pool, sizeof(ngx_http_idem_gunzip_t));
    if (u == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    u->request = r;
    u->packed = answer->body;
    u->limit = (size_t) ngx_http_idem_capture_limit(ctx);
    u->turn.handler = ngx_http_idem_gunzip_event_handler;
    u->turn.data = u;
    u->turn.log = r->connection->log;

    if (ngx_http_idem_gunzip_decide(u, &answer->decoded, &known) != NGX_OK) {
        return NGX_DECLINED;
    }

    if (!known && ngx_http_idem_gunzip_open(u, NGX_HTTP_IDEM_GUNZIP_MEASURING) != NGX_OK) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    ctx->gunzip = u;
    r->main->count++;
    r->write_event_handler = ngx_http_idem_gunzip_write_handler;

    if (known) {
        ngx_http_idem_gunzip_begin(r, u);

    } else {
        ngx_http_idem_gunzip_measure(r, u);
    }

    return NGX_DONE;
}
