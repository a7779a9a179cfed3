
/*
 * Replays of answers in gzip for clients that do not take it.
 *
 * How long such a body is without gzip was found out when it was stored
 * (keep.c), so that it is known at once whether it may be decoded here: up to
 * idem_result_max of the location. What is longer, or damaged, goes out as it
 * is. The body is decoded piece by piece, into one buffer, and the next piece
 * not before the client has taken the last: a client costs that buffer and
 * zlib's window, however long the body is. Between two pieces other requests
 * have their turn.
 *
 *     MEASURING   a record of the release before this one: it is decoded once,
 *                 and thrown away, to see how long it is
 *     SENDING     the head is out; pieces follow
 */

#include "ngx_http_idem.h"
#include "http/inflate.h"


#define NGX_HTTP_IDEM_PIECE  65536


struct ngx_http_idem_unpack_s {
    ngx_http_request_t        *request;
    struct idem_http_text      packed;
    struct idem_http_inflate   inflate;
    size_t                     max;
    size_t                     size;        /* decoded so far */
    ngx_event_t                turn;        /* the next piece */
    ngx_chain_t               *free, *busy;
    unsigned                   open:1;      /* zlib has memory */
    unsigned                   sending:1;
};


static void ngx_http_idem_unpack_go_on(ngx_http_request_t *r, ngx_http_idem_unpack_t *u);


void
ngx_http_idem_unpack_drop(ngx_http_idem_ctx_t *ctx)
{
    ngx_http_idem_unpack_t  *u = ctx->unpack;

    if (u == NULL) {
        return;
    }

    ctx->unpack = NULL;

    if (u->open) {
        idem_http_inflate_release(&u->inflate);
        u->open = 0;
    }

    if (u->turn.timer_set) {
        ngx_del_timer(&u->turn);
    }

    if (u->turn.posted) {
        ngx_delete_posted_event(&u->turn);
    }
}


/* From the beginning of the body. */

static ngx_int_t
ngx_http_idem_unpack_open(ngx_http_idem_unpack_t *u)
{
    if (u->open) {
        idem_http_inflate_release(&u->inflate);
        u->open = 0;
    }

    u->size = 0;

    if (idem_http_inflate_init(&u->inflate, u->packed.at, u->packed.len, u->max) != 0) {
        return NGX_ERROR;
    }

    u->open = 1;

    return NGX_OK;
}


/* In the loop's next turn, behind what else is to be done in this one. */

static void
ngx_http_idem_unpack_wait_turn(ngx_http_idem_unpack_t *u)
{
#if (nginx_version >= 1017005)
    ngx_post_event(&u->turn, &ngx_posted_next_events);
#else
    ngx_add_timer(&u->turn, 1);
#endif
}


static void
ngx_http_idem_unpack_turn(ngx_event_t *ev)
{
    ngx_connection_t        *c;
    ngx_http_request_t      *r;
    ngx_http_idem_unpack_t  *u = ev->data;

    r = u->request;
    c = r->connection;

    ngx_http_set_log_request(c->log, r);

    ngx_http_idem_unpack_go_on(r, u);

    ngx_http_run_posted_requests(c);
}


/* The buffer, which the client has taken, or a new one. */

static ngx_chain_t *
ngx_http_idem_unpack_room(ngx_http_request_t *r, ngx_http_idem_unpack_t *u)
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
    cl->buf->recycled = 1;                 /* not to be gathered: it is waited for */

    return cl;
}


/* Until the client has taken more of it. */

static void
ngx_http_idem_unpack_wait_client(ngx_http_request_t *r)
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
ngx_http_idem_unpack_over(ngx_http_request_t *r, ngx_int_t rc)
{
    ngx_http_idem_unpack_drop(ngx_http_idem_ctx(r));
    ngx_http_finalize_request(r, rc);
}


/* One piece, or what the client has not taken yet of the last. */

static void
ngx_http_idem_unpack_send(ngx_http_request_t *r, ngx_http_idem_unpack_t *u)
{
    int           failed;
    size_t        len;
    ngx_int_t     rc;
    ngx_chain_t  *out;
    ngx_event_t  *wev = r->connection->write;

    out = NULL;
    len = 1;

    if (u->busy == NULL) {
        out = ngx_http_idem_unpack_room(r, u);
        if (out == NULL) {
            ngx_http_idem_unpack_over(r, NGX_ERROR);
            return;
        }

        failed = idem_http_inflate_next(&u->inflate, out->buf->pos, NGX_HTTP_IDEM_PIECE, &len);

        if (failed || (len == 0 && u->size != u->max)) {
            ngx_log_error(NGX_LOG_ERR, r->connection->log, 0,
                          "idem: a stored body in gzip is not what it was when it was stored");
            ngx_http_idem_unpack_over(r, NGX_ERROR);
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

    if (rc == NGX_ERROR || len == 0) {     /* what is left to send then is nginx's to wait for */
        ngx_http_idem_unpack_over(r, rc);
        return;
    }

    ngx_chain_update_chains(r->pool, &u->free, &u->busy, &out,
                            (ngx_buf_tag_t) &ngx_http_idem_module);

    if (u->busy || wev->delayed) {
        ngx_http_idem_unpack_wait_client(r);
        return;
    }

    if (wev->timer_set) {
        ngx_del_timer(wev);
    }

    ngx_http_idem_unpack_wait_turn(u);
}


static void
ngx_http_idem_unpack_write_handler(ngx_http_request_t *r)
{
    ngx_event_t             *wev = r->connection->write;
    ngx_http_idem_ctx_t     *ctx = ngx_http_idem_ctx(r);
    ngx_http_idem_unpack_t  *u = ctx->unpack;

    if (wev->timedout) {
        ngx_log_error(NGX_LOG_INFO, r->connection->log, NGX_ETIMEDOUT, "client timed out");
        r->connection->timedout = 1;
        ngx_http_idem_unpack_over(r, NGX_HTTP_REQUEST_TIME_OUT);
        return;
    }

    if (!u->sending || u->turn.posted || u->turn.timer_set) {
        return;                            /* its turn comes by itself */
    }

    if (wev->delayed) {
        ngx_http_idem_unpack_wait_client(r);
        return;
    }

    ngx_http_idem_unpack_send(r, u);
}


/* The head, with the length that the body will have, and the first piece. */

static void
ngx_http_idem_unpack_begin(ngx_http_request_t *r, ngx_http_idem_unpack_t *u)
{
    ngx_int_t  rc;

    r->headers_out.content_encoding->hash = 0;
    r->headers_out.content_encoding = NULL;
    ngx_http_weak_etag(r);

    rc = ngx_http_idem_replay_head(r, u->max);

    if (rc == NGX_ERROR || rc > NGX_OK || r->header_only) {
        ngx_http_idem_unpack_over(r, rc);
        return;
    }

    if (ngx_http_idem_unpack_open(u) != NGX_OK) {
        ngx_http_idem_unpack_over(r, NGX_ERROR);
        return;
    }

    u->sending = 1;
    ngx_http_idem_unpack_send(r, u);
}


/* One piece of a body whose length is not known yet. */

static void
ngx_http_idem_unpack_measure(ngx_http_request_t *r, ngx_http_idem_unpack_t *u)
{
    int           failed;
    size_t        len;
    ngx_int_t     rc;
    ngx_chain_t  *cl;

    cl = ngx_http_idem_unpack_room(r, u);
    if (cl == NULL) {
        ngx_http_idem_unpack_over(r, NGX_HTTP_INTERNAL_SERVER_ERROR);
        return;
    }

    failed = idem_http_inflate_next(&u->inflate, cl->buf->pos, NGX_HTTP_IDEM_PIECE, &len);
    u->free = cl;

    if (failed) {
        ngx_http_idem_unpack_drop(ngx_http_idem_ctx(r));

        rc = failed == IDEM_E_NOMEM ? NGX_HTTP_INTERNAL_SERVER_ERROR
                                    : ngx_http_idem_replay_as_is(r, &u->packed);
        ngx_http_finalize_request(r, rc);
        return;
    }

    if (len) {
        u->size += len;
        ngx_http_idem_unpack_wait_turn(u);
        return;
    }

    u->max = u->size;
    ngx_http_idem_unpack_begin(r, u);
}


static void
ngx_http_idem_unpack_go_on(ngx_http_request_t *r, ngx_http_idem_unpack_t *u)
{
    if (u->sending) {
        ngx_http_idem_unpack_send(r, u);

    } else {
        ngx_http_idem_unpack_measure(r, u);
    }
}


/* NGX_DECLINED: it goes out as it is. */

static ngx_int_t
ngx_http_idem_unpack_decide(ngx_http_idem_unpack_t *u, const struct idem_http_decoded *decoded,
    ngx_uint_t *known)
{
    *known = 0;

    switch (decoded->kind) {

    case IDEM_HTTP_DECODED_EXACT:
        *known = 1;

        if (decoded->size > u->max) {
            return NGX_DECLINED;
        }

        u->max = decoded->size;
        return NGX_OK;

    case IDEM_HTTP_DECODED_OVER:           /* of another limit, perhaps: it may have been raised */
        return decoded->size >= u->max ? NGX_DECLINED : NGX_OK;

    case IDEM_HTTP_DECODED_NEVER:
        return NGX_DECLINED;

    default:
        return idem_http_gzip_claims(u->packed) > u->max ? NGX_DECLINED : NGX_OK;
    }
}


/* NGX_DONE: it is being sent. NGX_DECLINED: it is to be sent as it is. */

ngx_int_t
ngx_http_idem_unpack(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx,
    struct idem_http_answer *answer)
{
    ngx_uint_t               known;
    ngx_http_idem_unpack_t  *u;

    u = ngx_pcalloc(r->pool, sizeof(ngx_http_idem_unpack_t));
    if (u == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    u->request = r;
    u->packed = answer->body;
    u->max = (size_t) ngx_http_idem_limit(ctx);
    u->turn.handler = ngx_http_idem_unpack_turn;
    u->turn.data = u;
    u->turn.log = r->connection->log;

    if (ngx_http_idem_unpack_decide(u, &answer->decoded, &known) != NGX_OK) {
        return NGX_DECLINED;
    }

    if (!known && ngx_http_idem_unpack_open(u) != NGX_OK) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    ctx->unpack = u;
    r->main->count++;
    r->write_event_handler = ngx_http_idem_unpack_write_handler;

    if (known) {
        ngx_http_idem_unpack_begin(r, u);

    } else {
        ngx_http_idem_unpack_measure(r, u);
    }

    return NGX_DONE;
}
