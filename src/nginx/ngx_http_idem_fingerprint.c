
/*
 * Hashes a request's method, path, query and body, for its fingerprint, or for a
 * key made of them. A body is hashed while it arrives if possible, and otherwise
 * read again from its buffers or its file.
 */

#include "ngx_http_idem.h"


#define NGX_HTTP_IDEM_PIECE  65536


ngx_http_request_body_filter_pt  ngx_http_idem_next_request_body_filter;


/* The target as the client sent it, before any rewrite. */

void
ngx_http_idem_fingerprint_target(ngx_http_request_t *r, ngx_str_t *path, ngx_str_t *query)
{
    u_char  *mark;

    *path = r->unparsed_uri;
    ngx_str_null(query);

    mark = ngx_strlchr(path->data, path->data + path->len, '?');

    if (mark) {
        query->data = mark + 1;
        query->len = (size_t) (path->data + path->len - query->data);
        path->len = (size_t) (mark - path->data);
    }
}


/* Reads a body again, in pieces: it arrived before our handler, or is needed once more. */

ngx_int_t
ngx_http_idem_fingerprint_read_pieces(ngx_http_request_t *r,
    ngx_http_idem_fingerprint_piece_pt piece, void *data)
{
    off_t         at;
    size_t        size;
    u_char       *room;
    ssize_t       n;
    ngx_buf_t    *b;
    ngx_chain_t  *cl;

    room = NULL;

    for (cl = r->request_body ? r->request_body->bufs : NULL; cl; cl = cl->next) {
        b = cl->buf;

        if (ngx_buf_in_memory(b)) {
            piece(data, b->pos, (size_t) (b->last - b->pos));
            continue;
        }

        for (at = b->file_pos; b->in_file && at < b->file_last; at += n) {

            if (room == NULL) {
                room = ngx_pnalloc(r->pool, NGX_HTTP_IDEM_PIECE);
                if (room == NULL) {
                    return NGX_ERROR;
                }
            }

            size = (size_t) ngx_min(b->file_last - at, NGX_HTTP_IDEM_PIECE);
            n = ngx_read_file(b->file, room, size, at);

            if (n <= 0) {
                return NGX_ERROR;
            }

            piece(data, room, (size_t) n);
        }
    }

    return NGX_OK;
}


static void
ngx_http_idem_fingerprint_piece_sha256(void *data, const void *bytes, size_t len)
{
    idem_sha_add(data, bytes, len);
}


static void
ngx_http_idem_fingerprint_piece_sha512(void *data, const void *bytes, size_t len)
{
    idem_sha512_add(data, bytes, len);
}


static void
ngx_http_idem_fingerprint_piece_bytes(void *data, const void *bytes, size_t len)
{
    idem_fingerprint_add(data, bytes, len);
}


/* Hashes a body that was not hashed while it arrived. */

static ngx_int_t
ngx_http_idem_fingerprint_hash_body(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx)
{
    ngx_int_t        rc;
    struct idem_sha  sha;

    if (ctx->body.sha256.state == NGX_HTTP_IDEM_HASH_DONE) {
        return NGX_OK;
    }

    idem_sha_begin(&sha);
    rc = ngx_http_idem_fingerprint_read_pieces(r, ngx_http_idem_fingerprint_piece_sha256, &sha);

    if (idem_sha_end(&sha, ctx->body.sha256.bytes) != 0 || rc != NGX_OK) {
        return NGX_ERROR;
    }

    ctx->body.sha256.state = NGX_HTTP_IDEM_HASH_DONE;

    return NGX_OK;
}


/*
 * The check of a signature hashes the body, and the fingerprint is made of that
 * hash. Such a fingerprint has another definition, and so another name.
 */

static const char *
ngx_http_idem_fingerprint_body_name(ngx_http_idem_ctx_t *ctx)
{
    return ctx->conf->sign ? "signed body" : "body";
}


static void
ngx_http_idem_fingerprint_piece_split(void *data, const void *bytes, size_t len)
{
    idem_http_split_add(data, bytes, len);
}


/* Bodies other than JSON are compared byte for byte, or part by part. */

static void
ngx_http_idem_fingerprint_part(void *data, const void *bytes, size_t len)
{
    if (bytes) {
        idem_fingerprint_add(data, bytes, len);

    } else {
        idem_fingerprint_piece_end(data);
    }
}


static void
ngx_http_idem_fingerprint_plain_open(ngx_http_idem_ctx_t *ctx,
    struct idem_fingerprint_hash *fingerprint,
    struct idem_http_split *split)
{
    if (ctx->body.delimiter.len == 0) {
        idem_fingerprint_open_plain(fingerprint, ngx_http_idem_fingerprint_body_name(ctx));
        return;
    }

    idem_fingerprint_open_pieces(fingerprint, ngx_http_idem_fingerprint_body_name(ctx));
    idem_http_split_begin(split, &ctx->body.delimiter, ngx_http_idem_fingerprint_part, fingerprint);
}


static void
ngx_http_idem_fingerprint_plain_close(ngx_http_idem_ctx_t *ctx,
    struct idem_fingerprint_hash *fingerprint,
    struct idem_http_split *split)
{
    if (ctx->body.delimiter.len) {
        idem_http_split_end(split);
        idem_fingerprint_piece_end(fingerprint);
    }

    idem_fingerprint_close(fingerprint);
}


static void
ngx_http_idem_fingerprint_add(ngx_http_idem_ctx_t *ctx, const void *bytes, size_t len)
{
    if (ctx->body.delimiter.len) {
        idem_http_split_add(&ctx->body.split, bytes, len);

    } else {
        idem_fingerprint_add(&ctx->body.fingerprint, bytes, len);
    }
}


/*
 * A body declared as JSON is compared in its canonical form. If it cannot be
 * read, or is too long, its hash is compared. A form with files is compared part
 * by part, with any delimiter; all other bodies byte for byte.
 */

static ngx_int_t
ngx_http_idem_fingerprint_json(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx,
    struct idem_fingerprint_hash *fingerprint)
{
    ngx_int_t           rc;
    struct idem_json    value;
    struct idem_error   err;
    struct idem_arena   arena;

    rc = ctx->body.type == NGX_HTTP_IDEM_BODY_UNREADABLE
         ? NGX_DECLINED : ngx_http_idem_fingerprint_read_body(r, ctx);

    if (rc == NGX_ERROR) {
        return NGX_ERROR;
    }

    if (rc == NGX_OK) {
        idem_fingerprint_arena(&arena, ctx->body.text.len);

        if (idem_json_parse((char *) ctx->body.text.data, ctx->body.text.len, &arena, &value,
                            &err)
            == 0)
        {
            (void) idem_fingerprint_json(fingerprint, ngx_http_idem_fingerprint_body_name(ctx),
                                   IDEM_FINGERPRINT_JSON, &value, &err);
            idem_arena_free(&arena);
            return NGX_OK;
        }

        idem_arena_free(&arena);
    }

    if (ngx_http_idem_fingerprint_hash_body(r, ctx) != NGX_OK) {
        return NGX_ERROR;
    }

    idem_fingerprint_unread(fingerprint, ngx_http_idem_fingerprint_body_name(ctx),
                            ctx->body.sha256.bytes);

    return NGX_OK;
}


static void
ngx_http_idem_fingerprint_head(ngx_http_request_t *r, ngx_uint_t parts,
    struct idem_fingerprint_hash *fingerprint)
{
    ngx_str_t  path, query;

    ngx_http_idem_fingerprint_target(r, &path, &query);

    idem_fingerprint_begin(fingerprint);

    if (parts & NGX_HTTP_IDEM_FINGERPRINT_METHOD) {
        idem_fingerprint_bytes(fingerprint, "method", r->method_name.data, r->method_name.len);
    }

    if (parts & NGX_HTTP_IDEM_FINGERPRINT_PATH) {
        idem_fingerprint_bytes(fingerprint, "path", path.data, path.len);
    }

    if (parts & NGX_HTTP_IDEM_FINGERPRINT_QUERY) {
        idem_fingerprint_bytes(fingerprint, "query", query.data, query.len);
    }
}


/* The parts of a request to hash, for its key or for its fingerprint. */

static ngx_uint_t
ngx_http_idem_fingerprint_wanted_parts(ngx_http_idem_loc_conf_t *conf)
{
    return conf->key->kind == NGX_HTTP_IDEM_KEY_PARAMS
           ? NGX_HTTP_IDEM_FINGERPRINT_ARGS
           : conf->fingerprint & NGX_HTTP_IDEM_FINGERPRINT_ALL;
}


/* A signature needs SHA-256 of every body, and SHA-512 if Content-Digest may contain it. */

static ngx_uint_t
ngx_http_idem_fingerprint_wants_sha512(ngx_http_request_t *r)
{
    ngx_str_t                name = ngx_string("Content-Digest");
    ngx_table_elt_t         *header;
    ngx_http_idem_fields_t   fields;

    ngx_http_idem_fields_begin(&fields, &r->headers_in.headers);

    while ((header = ngx_http_idem_fields_next(&fields)) != NULL) {
        if (ngx_http_idem_fields_match(header, &name)
            && ngx_strlcasestrn(header->value.data, header->value.data + header->value.len,
                                (u_char *) "sha-512", 7 - 1))
        {
            return 1;
        }
    }

    return 0;
}


static void
ngx_http_idem_fingerprint_hashes_start(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx)
{
    idem_sha_begin(&ctx->body.sha256.sha);
    ctx->body.sha256.state = NGX_HTTP_IDEM_HASH_OPEN;

    if (ngx_http_idem_fingerprint_wants_sha512(r)) {
        idem_sha512_begin(&ctx->body.sha512.sha);
        ctx->body.sha512.state = NGX_HTTP_IDEM_HASH_OPEN;
    }
}


/* Completes the hashes of a body, which is read again if it was not hashed while it arrived. */

ngx_int_t
ngx_http_idem_fingerprint_body_hashes(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx)
{
    ngx_int_t            rc;
    ngx_chain_t         *cl;
    struct idem_sha512   sha;

    for (cl = r->request_body ? r->request_body->bufs : NULL; cl; cl = cl->next) {
        ctx->body.size += ngx_buf_size(cl->buf);
    }

    if (ngx_http_idem_fingerprint_hash_body(r, ctx) != NGX_OK) {
        return NGX_ERROR;
    }

    if (ctx->body.sha512.state == NGX_HTTP_IDEM_HASH_DONE
        || !ngx_http_idem_fingerprint_wants_sha512(r))
    {
        return NGX_OK;
    }

    idem_sha512_begin(&sha);
    rc = ngx_http_idem_fingerprint_read_pieces(r, ngx_http_idem_fingerprint_piece_sha512, &sha);

    if (idem_sha512_end(&sha, ctx->body.sha512.bytes) != 0 || rc != NGX_OK) {
        return NGX_ERROR;
    }

    ctx->body.sha512.state = NGX_HTTP_IDEM_HASH_DONE;

    return NGX_OK;
}


static void
ngx_http_idem_fingerprint_read_type(ngx_http_request_t *r, ngx_http_idem_body_t *body)
{
    struct idem_http_text  text;

    static const ngx_http_idem_body_type_e  types[] = {
        [IDEM_HTTP_JSON] = NGX_HTTP_IDEM_BODY_JSON,
        [IDEM_HTTP_FORM] = NGX_HTTP_IDEM_BODY_FORM,
        [IDEM_HTTP_EVENTS] = NGX_HTTP_IDEM_BODY_BYTES,
        [IDEM_HTTP_OTHER] = NGX_HTTP_IDEM_BODY_BYTES,
    };

    if (r->headers_in.content_type) {
        text = ngx_http_idem_text(&r->headers_in.content_type->value);
        body->type = types[idem_http_type_read(text)];
        (void) idem_http_delimiter_read(text, &body->delimiter);
    }
}


/* Called before the body is read, to hash it while it arrives if possible. */

void
ngx_http_idem_fingerprint_start(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx)
{
    off_t       length;
    ngx_uint_t  parts;

    ngx_http_idem_fingerprint_read_type(r, &ctx->body);

    if (r->request_body) {
        return;
    }

    if (ctx->conf->sign) {
        ngx_http_idem_fingerprint_hashes_start(r, ctx);

        if (ctx->guard == NGX_HTTP_IDEM_SIGNED_ONLY || ctx->body.delimiter.len == 0) {
            return;
        }
    }

    parts = ngx_http_idem_fingerprint_wanted_parts(ctx->conf);

    if (!(parts & NGX_HTTP_IDEM_FINGERPRINT_BODY)) {
        return;
    }

    if (ctx->body.type != NGX_HTTP_IDEM_BODY_JSON) {
        ngx_http_idem_fingerprint_head(r, parts, &ctx->body.fingerprint);
        ngx_http_idem_fingerprint_plain_open(ctx, &ctx->body.fingerprint, &ctx->body.split);
        ctx->body.hash_state = NGX_HTTP_IDEM_HASH_OPEN;
        return;
    }

    length = r->headers_in.content_length_n;

    if (length < 0 || length > ctx->conf->policy->json_max) {
        idem_sha_begin(&ctx->body.sha256.sha);
        ctx->body.sha256.state = NGX_HTTP_IDEM_HASH_OPEN;
    }
}


ngx_int_t
ngx_http_idem_fingerprint_body_filter(ngx_http_request_t *r, ngx_chain_t *in)
{
    size_t                 len;
    ngx_chain_t           *cl;
    ngx_http_idem_ctx_t   *ctx;
    ngx_http_idem_body_t  *body;

    ctx = ngx_http_get_module_ctx(r, ngx_http_idem_module);

    if (ctx == NULL || r != r->main || ctx->state != NGX_HTTP_IDEM_READING) {
        return ngx_http_idem_next_request_body_filter(r, in);
    }

    body = &ctx->body;

    for (cl = in; cl; cl = cl->next) {
        len = ngx_buf_in_memory(cl->buf) ? (size_t) (cl->buf->last - cl->buf->pos) : 0;

        if (len && body->hash_state == NGX_HTTP_IDEM_HASH_OPEN) {
            ngx_http_idem_fingerprint_add(ctx, cl->buf->pos, len);
        }

        if (len && body->sha256.state == NGX_HTTP_IDEM_HASH_OPEN) {
            idem_sha_add(&body->sha256.sha, cl->buf->pos, len);
        }

        if (len && body->sha512.state == NGX_HTTP_IDEM_HASH_OPEN) {
            idem_sha512_add(&body->sha512.sha, cl->buf->pos, len);
        }
    }

    return ngx_http_idem_next_request_body_filter(r, in);
}


/* The body is whole. A hash that failed is made again if it is needed. */

void
ngx_http_idem_fingerprint_end(ngx_http_idem_ctx_t *ctx)
{
    ngx_http_idem_body_t  *body = &ctx->body;

    if (body->sha256.state == NGX_HTTP_IDEM_HASH_OPEN) {
        body->sha256.state = idem_sha_end(&body->sha256.sha, body->sha256.bytes) == 0
                             ? NGX_HTTP_IDEM_HASH_DONE : NGX_HTTP_IDEM_HASH_NONE;
    }

    if (body->sha512.state == NGX_HTTP_IDEM_HASH_OPEN) {
        body->sha512.state = idem_sha512_end(&body->sha512.sha, body->sha512.bytes) == 0
                             ? NGX_HTTP_IDEM_HASH_DONE : NGX_HTTP_IDEM_HASH_NONE;
    }
}


/* Called when the request ends. */

void
ngx_http_idem_fingerprint_drop(ngx_http_idem_ctx_t *ctx)
{
    ngx_http_idem_body_t  *body = &ctx->body;

    if (body->sha256.state == NGX_HTTP_IDEM_HASH_OPEN) {
        idem_sha_fail(&body->sha256.sha);
    }

    if (body->sha512.state == NGX_HTTP_IDEM_HASH_OPEN) {
        idem_sha512_fail(&body->sha512.sha);
    }

    if (body->hash_state == NGX_HTTP_IDEM_HASH_OPEN) {
        idem_sha_fail(&body->fingerprint.parts);
    }
}


ngx_int_t
ngx_http_idem_fingerprint_parts(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx, ngx_uint_t parts,
    struct idem_fingerprint *ret)
{
    ngx_int_t               rc;
    struct idem_fingerprint_hash       fingerprint;
    struct idem_http_split  split;

    if (ctx->body.hash_state == NGX_HTTP_IDEM_HASH_OPEN
        && parts == ngx_http_idem_fingerprint_wanted_parts(ctx->conf))
    {
        ctx->body.hash_state = NGX_HTTP_IDEM_HASH_DONE;
        ngx_http_idem_fingerprint_plain_close(ctx, &ctx->body.fingerprint, &ctx->body.split);
        return idem_fingerprint_end(&ctx->body.fingerprint, ret) == 0 ? NGX_OK : NGX_ERROR;
    }

    ngx_http_idem_fingerprint_head(r, parts, &fingerprint);
    rc = NGX_OK;

    if (parts & NGX_HTTP_IDEM_FINGERPRINT_BODY) {

        if (ctx->body.type >= NGX_HTTP_IDEM_BODY_JSON) {
            rc = ngx_http_idem_fingerprint_json(r, ctx, &fingerprint);

        } else if (ctx->conf->sign && ctx->body.delimiter.len == 0) {
            rc = ngx_http_idem_fingerprint_hash_body(r, ctx);
            idem_fingerprint_hashed(&fingerprint, ngx_http_idem_fingerprint_body_name(ctx),
                              ctx->body.sha256.bytes);

        } else {
            ngx_http_idem_fingerprint_plain_open(ctx, &fingerprint, &split);
            rc = ctx->body.delimiter.len
                 ? ngx_http_idem_fingerprint_read_pieces(r, ngx_http_idem_fingerprint_piece_split,
                                                         &split)
                 : ngx_http_idem_fingerprint_read_pieces(r, ngx_http_idem_fingerprint_piece_bytes,
                                                         &fingerprint);
            ngx_http_idem_fingerprint_plain_close(ctx, &fingerprint, &split);
        }
    }

    switch (idem_fingerprint_end(&fingerprint, ret)) {

    case 0:
        return rc;

    case IDEM_E_INVALID:

        /* numbers that no canonical form can hold */

        if (ctx->body.type == NGX_HTTP_IDEM_BODY_JSON) {
            ctx->body.type = NGX_HTTP_IDEM_BODY_UNREADABLE;
            return ngx_http_idem_fingerprint_parts(r, ctx, parts, ret);
        }

        /* fall through */

    default:
        return NGX_ERROR;
    }
}


ngx_int_t
ngx_http_idem_fingerprint_expr(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx,
    struct idem_fingerprint *ret)
{
    int                 rc;
    struct idem_json   *vars, value;
    struct idem_error   err;
    struct idem_fingerprint_hash   fingerprint;

    vars = ngx_http_idem_variable_request_json(r, ctx, &err);
    rc = vars ? 0 : err.code;

    if (rc == 0) {
        rc = idem_expr_select(ctx->conf->fingerprint_expr, vars, &ctx->vars.arena, &value, &err);
    }

    if (rc == 0) {
        idem_fingerprint_begin(&fingerprint);
        rc = idem_fingerprint_json(&fingerprint, idem_expr_text(ctx->conf->fingerprint_expr),
                                   IDEM_FINGERPRINT_VALUE,
                             &value, &err);

        if (idem_fingerprint_end(&fingerprint, ret) != 0 && rc == 0) {
            return NGX_ERROR;
        }
    }

    if (rc == IDEM_E_NOMEM) {
        return NGX_ERROR;
    }

    if (rc != 0) {
        ngx_log_error(NGX_LOG_WARN, r->connection->log, 0, "idem: idem_fingerprint: %s",
                      err.text);
        return ngx_http_idem_key_malformed(ctx, "The values to compare are not in the request.");
    }

    return NGX_OK;
}


/* Reads the body into one piece of memory. NGX_DECLINED: it is longer than idem_json_max. */

ngx_int_t
ngx_http_idem_fingerprint_read_body(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx)
{
    off_t         size;
    u_char       *p;
    ssize_t       n;
    ngx_buf_t    *b;
    ngx_chain_t  *cl;

    if (ctx->body.read) {
        return NGX_OK;
    }

    if (r->request_body == NULL) {
        ctx->body.read = 1;
        return NGX_OK;
    }

    size = 0;

    for (cl = r->request_body->bufs; cl; cl = cl->next) {
        size += ngx_buf_size(cl->buf);
    }

    if (size > ctx->conf->policy->json_max) {
        return NGX_DECLINED;
    }

    cl = r->request_body->bufs;

    if (cl && cl->next == NULL && ngx_buf_in_memory(cl->buf)) {
        ctx->body.text.data = cl->buf->pos;
        ctx->body.text.len = (size_t) size;
        ctx->body.read = 1;
        return NGX_OK;
    }

    p = ngx_pnalloc(r->pool, (size_t) size + 1);
    if (p == NULL) {
        return NGX_ERROR;
    }

    ctx->body.text.data = p;

    for ( /* void */ ; cl; cl = cl->next) {
        b = cl->buf;

        if (ngx_buf_in_memory(b)) {
            p = ngx_cpymem(p, b->pos, b->last - b->pos);
            continue;
        }

        if (!b->in_file) {
            continue;
        }

        n = ngx_read_file(b->file, p, (size_t) (b->file_last - b->file_pos), b->file_pos);

        if (n != (ssize_t) (b->file_last - b->file_pos)) {
            ngx_log_error(NGX_LOG_CRIT, r->connection->log, 0,
                          "idem: a request's body could not be read back");
            return NGX_ERROR;
        }

        p += n;
    }

    ctx->body.text.len = (size_t) (p - ctx->body.text.data);
    ctx->body.read = 1;

    return NGX_OK;
}
