
/*
 * Sweeps: with idem_probe, uncertain runs are settled without a client's retry.
 * One worker lists a page of them, asks the backend about each, and takes the
 * next page when all have responses, within a rate limit. A record does not
 * contain its key: the backend is asked by Idem-Downstream-Key.
 *
 * A run that happened is settled as done. One that never happened needs a request
 * to run, which a sweep has not: it waits for the client's own retry, and is
 * marked, so that it is not asked about again.
 *
 * A probe is a subrequest, and needs a parent request. Its connection is a socket
 * pair without a client.
 */

#include "ngx_http_idem.h"
#include "base/hex.h"
#include "core/store_call.h"


#define NGX_HTTP_IDEM_PAGE   50
#define NGX_HTTP_IDEM_BUSY   1000     /* ms between two pages */
#define NGX_HTTP_IDEM_IDLE   5000     /* ms, after a sweep without a find */
#define NGX_HTTP_IDEM_OPEN   3600    /* s: the longest time for which a transaction may stay open */


struct ngx_http_idem_probe_sweep_s {
    ngx_http_idem_location_t  *guarded;
    ngx_event_t                timer;
    struct idem_store_call     call;
    ngx_uint_t                 asked;       /* probes of this page without a response */
    ngx_uint_t                 found;
};


static void ngx_http_idem_probe_sweep_handler(ngx_event_t *ev);
static void ngx_http_idem_probe_sweep_list_handler(struct idem_store_call *call, int rc,
    const struct idem_error *err);


static ngx_array_t  *ngx_http_idem_probe_sweeps;


static ngx_uint_t
ngx_http_idem_probe_sweep_exists(ngx_http_idem_loc_conf_t *conf)
{
    ngx_uint_t                    i;
    ngx_http_idem_probe_sweep_t  *sweep;

    sweep = ngx_http_idem_probe_sweeps->elts;

    for (i = 0; i < ngx_http_idem_probe_sweeps->nelts; i++) {
        if (sweep[i].guarded->conf->store == conf->store
            && ngx_strcmp(sweep[i].guarded->conf->policy->prefix, conf->policy->prefix) == 0)
        {
            return 1;
        }
    }

    return 0;
}


/*
 * True if runs are to be probed in the background. With idem_enforce off, nginx
 * must behave as without a guard. With a variable it is off for some requests
 * only, and a record does not show for which.
 */

ngx_uint_t
ngx_http_idem_probe_sweep_is_wanted(ngx_http_idem_loc_conf_t *conf)
{
    return conf->probe && conf->policy->recover == IDEM_RECOVER_HOLD
           && !(conf->enforce && conf->enforce->lengths == NULL);
}


/*
 * True if a probe's URI depends on the record alone. A sweep has no client's
 * request: other variables would be empty, and the probe would ask another URI.
 */

ngx_uint_t
ngx_http_idem_probe_sweep_is_possible(ngx_pool_t *pool, ngx_http_idem_loc_conf_t *conf)
{
    size_t      at = 0;
    ngx_int_t   rc;
    ngx_str_t   name;

    do {
        rc = ngx_http_idem_variable_next(pool, &conf->probe->value, &at, &name);

        if (rc == NGX_DECLINED) {
            return 1;
        }

    } while (rc == NGX_OK && (idem_is_word(name.data, name.len, "idem_key_hash")
                              || idem_is_word(name.data, name.len, "idem_downstream_key")
                              || idem_is_word(name.data, name.len, "idem_attempt")));

    return 0;
}


ngx_int_t
ngx_http_idem_probe_sweep_start(ngx_cycle_t *cycle, ngx_http_idem_main_conf_t *imcf)
{
    ngx_uint_t                    i;
    ngx_http_idem_probe_sweep_t  *sweep;
    ngx_http_idem_location_t     *guarded;

    if (ngx_process == NGX_PROCESS_WORKER && ngx_worker != 0) {
        return NGX_OK;
    }

    ngx_http_idem_probe_sweeps = ngx_array_create(cycle->pool, imcf->guarded.nelts + 1,
                                                  sizeof(ngx_http_idem_probe_sweep_t));
    if (ngx_http_idem_probe_sweeps == NULL) {
        return NGX_ERROR;
    }

    guarded = imcf->guarded.elts;

    for (i = 0; i < imcf->guarded.nelts; i++) {

        if (!ngx_http_idem_probe_sweep_is_wanted(guarded[i].conf)
            || !ngx_http_idem_probe_sweep_is_possible(cycle->pool, guarded[i].conf)
            || ngx_http_idem_probe_sweep_exists(guarded[i].conf))
        {
            continue;
        }

        sweep = ngx_array_push(ngx_http_idem_probe_sweeps);  /* has room for all: none moves */
        ngx_memzero(sweep, sizeof(ngx_http_idem_probe_sweep_t));

        sweep->guarded = &guarded[i];
        sweep->timer.handler = ngx_http_idem_probe_sweep_handler;
        sweep->timer.data = sweep;
        sweep->timer.log = cycle->log;
        sweep->timer.cancelable = 1;

        ngx_add_timer(&sweep->timer, NGX_HTTP_IDEM_IDLE / 5);
    }

    return NGX_OK;
}


void
ngx_http_idem_probe_sweep_stop(void)
{
    ngx_uint_t                    i;
    ngx_http_idem_probe_sweep_t  *sweep;

    if (ngx_http_idem_probe_sweeps == NULL) {
        return;
    }

    sweep = ngx_http_idem_probe_sweeps->elts;

    for (i = 0; i < ngx_http_idem_probe_sweeps->nelts; i++) {
        ngx_http_idem_stop_event(&sweep[i].timer);
        idem_store_call_stop(&sweep[i].call);
    }
}


static void
ngx_http_idem_probe_sweep_schedule(ngx_http_idem_probe_sweep_t *sweep)
{
    if (ngx_exiting || sweep->timer.timer_set) {
        return;
    }

    ngx_add_timer(&sweep->timer, sweep->found ? NGX_HTTP_IDEM_BUSY : NGX_HTTP_IDEM_IDLE);
}


static void
ngx_http_idem_probe_sweep_handler(ngx_event_t *ev)
{
    struct idem_op               *op;
    ngx_http_idem_probe_sweep_t  *sweep = ev->data;
    ngx_http_idem_loc_conf_t     *conf;

    if (ngx_exiting) {
        return;
    }

    conf = sweep->guarded->conf;
    sweep->found = 0;

    if (conf->store->h == NULL) {
        ngx_http_idem_probe_sweep_schedule(sweep);
        return;
    }

    op = &sweep->call.op;

    op->kind = IDEM_OP_LIST;
    op->in.list.prefix.at = (u_char *) conf->policy->prefix;
    op->in.list.prefix.len = ngx_strlen(conf->policy->prefix);
    op->in.list.state = IDEM_RUNNING;
    op->in.list.uncertain = true;
    op->in.list.max = NGX_HTTP_IDEM_PAGE;
    sweep->call.answered = ngx_http_idem_probe_sweep_list_handler;
    sweep->call.quiet = true;

    idem_store_call_start(conf->store->h, &sweep->call);
}


/* Takes the descriptor, also if it fails. */

static ngx_connection_t *
ngx_http_idem_probe_sweep_connect(ngx_http_idem_location_t *guarded, ngx_socket_t fd)
{
    ngx_log_t              *log;
    ngx_connection_t       *c;
    struct sockaddr_in     *sin;
    ngx_http_log_ctx_t     *lctx;
    ngx_http_connection_t  *hc;

    c = ngx_get_connection(fd, ngx_cycle->log);

    if (c == NULL) {
        (void) close(fd);
        return NULL;
    }

    c->pool = ngx_create_pool(1024, ngx_cycle->log);

    if (c->pool == NULL) {
        ngx_close_connection(c);
        return NULL;
    }

#if (NGX_STAT_STUB)
    (void) ngx_atomic_fetch_add(ngx_stat_active, 1);
#endif

    log = ngx_palloc(c->pool, sizeof(ngx_log_t));
    lctx = ngx_pcalloc(c->pool, sizeof(ngx_http_log_ctx_t));
    hc = ngx_pcalloc(c->pool, sizeof(ngx_http_connection_t));
    sin = ngx_pcalloc(c->pool, sizeof(struct sockaddr_in));
    c->buffer = ngx_create_temp_buf(c->pool, 1);

    if (log == NULL || lctx == NULL || hc == NULL || sin == NULL || c->buffer == NULL) {
        ngx_http_close_connection(c);
        return NULL;
    }

    *log = *ngx_cycle->log;
    log->connection = c->number;
    log->handler = NULL;
    log->data = lctx;
    log->action = "probing an uncertain run";
    lctx->connection = c;

    c->log = log;
    c->pool->log = log;
    c->read->log = log;
    c->write->log = log;
    c->read->handler = ngx_http_empty_handler;
    c->write->handler = ngx_http_empty_handler;
    c->log_error = NGX_ERROR_INFO;
    c->number = ngx_atomic_fetch_add(ngx_connection_counter, 1);
    c->start_time = ngx_current_msec;

    sin->sin_family = AF_INET;
    sin->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    c->sockaddr = (struct sockaddr *) sin;
    c->socklen = sizeof(struct sockaddr_in);
    c->local_sockaddr = c->sockaddr;
    c->local_socklen = c->socklen;
    ngx_str_set(&c->addr_text, "127.0.0.1");

    hc->conf_ctx = guarded->server->ctx;
    c->data = hc;

    return c;
}


/* Creates a request without a client, for one record. */

static ngx_http_request_t *
ngx_http_idem_probe_sweep_create_request(ngx_http_idem_location_t *guarded, ngx_socket_t *peer)
{
    int                  fd[2];
    ngx_connection_t    *c;
    ngx_http_request_t  *r;

    if (socketpair(AF_UNIX, SOCK_STREAM|SOCK_CLOEXEC|SOCK_NONBLOCK, 0, fd) == -1) {
        ngx_log_error(NGX_LOG_CRIT, ngx_cycle->log, ngx_errno, "socketpair() failed");
        return NULL;
    }

    c = ngx_http_idem_probe_sweep_connect(guarded, fd[0]);
    if (c == NULL) {
        (void) close(fd[1]);
        return NULL;
    }

    r = ngx_http_create_request(c);
    if (r == NULL) {
        ngx_http_close_connection(c);
        (void) close(fd[1]);
        return NULL;
    }

    c->data = r;

    if (ngx_list_init(&r->headers_in.headers, r->pool, 8, sizeof(ngx_table_elt_t)) != NGX_OK) {
        ngx_http_finalize_request(r, NGX_DONE);
        (void) close(fd[1]);
        return NULL;
    }

    r->logged = 1;
    r->internal = 1;
    r->valid_location = 1;
    r->method = NGX_HTTP_GET;
    r->method_name = ngx_http_core_get_method;
    r->http_version = NGX_HTTP_VERSION_11;
    ngx_str_set(&r->http_protocol, "HTTP/1.1");
    ngx_str_set(&r->request_line, "GET / HTTP/1.1");
    ngx_str_set(&r->uri, "/");
    ngx_str_set(&r->unparsed_uri, "/");
    r->headers_in.server = guarded->server->server_name;
    r->write_event_handler = ngx_http_request_empty_handler;

    *peer = fd[1];

    return r;
}


static ngx_int_t
ngx_http_idem_probe_sweep_probe(ngx_http_idem_probe_sweep_t *sweep, const struct idem_entry *entry)
{
    size_t                   len;
    ngx_socket_t             peer;
    ngx_http_request_t      *r;
    ngx_http_idem_ctx_t     *ctx;
    struct idem_record_key   key;

    len = ngx_strlen(entry->prefix);
    key.prefix_len = len;
    ngx_memcpy(key.at, entry->prefix, len);

    if (!idem_hex_parse(entry->hash, ngx_strlen(entry->hash), key.at + len)) {
        return NGX_ERROR;
    }

    r = ngx_http_idem_probe_sweep_create_request(sweep->guarded, &peer);
    if (r == NULL) {
        return NGX_ERROR;
    }

    ctx = ngx_http_idem_ctx_new(r, sweep->guarded->conf);
    if (ctx == NULL) {
        (void) close(peer);
        ngx_http_finalize_request(r, NGX_DONE);
        return NGX_ERROR;
    }

    ngx_http_idem_ctx_set_state(ctx, NGX_HTTP_IDEM_CLAIMING);
    ctx->sweep = sweep;
    ctx->sweep_peer = peer;
    sweep->asked++;

    if (ngx_http_idem_claim_named(ctx, &key) != NGX_OK) {
        ngx_http_finalize_request(r, NGX_DONE);
    }

    return NGX_OK;
}


/*
 * True for a run that never happened, or must be rolled back by now: it waits
 * for the client's own retry. A transaction may commit after its client gave up,
 * so a missing row is looked up again for a while.
 */

static ngx_uint_t
ngx_http_idem_probe_sweep_skips(const struct idem_entry *entry)
{
    return ngx_strcmp(entry->reason, NGX_HTTP_IDEM_NEVER) == 0
           || (ngx_strcmp(entry->reason, NGX_HTTP_IDEM_NO_ROW) == 0
               && entry->created_ms / 1000 + NGX_HTTP_IDEM_OPEN < ngx_time());
}


static void
ngx_http_idem_probe_sweep_list_handler(struct idem_store_call *call, int rc,
    const struct idem_error *err)
{
    size_t                        i;
    struct idem_op               *op = &call->op;
    const struct idem_entry      *entry;
    ngx_http_idem_probe_sweep_t  *sweep = idem_container_of(call,
                                                            ngx_http_idem_probe_sweep_t, call);
    ngx_http_idem_loc_conf_t     *conf = sweep->guarded->conf;

    idem_store_call_stop(call);

    if (rc != 0) {
        ngx_log_error(NGX_LOG_WARN, ngx_cycle->log, 0, "idem: listing uncertain runs: %s",
                      err->text);
        ngx_http_idem_probe_sweep_schedule(sweep);
        return;
    }

    sweep->asked++;                    /* this page counts as one, until all are asked */

    for (i = 0; i < op->out.list.n; i++) {
        entry = &op->out.list.entries[i];

        if (!entry->uncertain || ngx_strcmp(entry->prefix, conf->policy->prefix) != 0
            || ngx_http_idem_probe_sweep_skips(entry))
        {
            continue;
        }

        sweep->found++;

        if (ngx_http_idem_probe_sweep_probe(sweep, entry) != NGX_OK) {
            break;
        }
    }

    /* the next page, or the first one */

    if (op->out.list.cursor.end) {
        ngx_memzero(&op->in.list.cursor, sizeof(struct idem_cursor));

    } else {
        op->in.list.cursor = op->out.list.cursor;
        sweep->found++;
    }

    if (--sweep->asked == 0) {
        ngx_http_idem_probe_sweep_schedule(sweep);
    }
}


/* Settles the record after the subrequest, or the lookup of its row. */

static void
ngx_http_idem_probe_sweep_settle(ngx_http_request_t *r)
{
    ngx_str_t             result;
    ngx_uint_t            outcome;
    ngx_http_idem_ctx_t  *ctx;

    ctx = ngx_http_get_module_ctx(r, ngx_http_idem_module);

    if (ctx->state != NGX_HTTP_IDEM_PROBED) {
        return;
    }

    outcome = ngx_http_idem_probe_outcome(ctx, &result);

    r->write_event_handler = ngx_http_request_empty_handler;
    ngx_http_idem_ctx_set_state(ctx, NGX_HTTP_IDEM_SETTLING);

    ngx_http_idem_claim_finish(ctx, outcome, ctx->probe.status, result.data, result.len);

    ngx_http_finalize_request(r, NGX_DONE);
}


/* Continues after the claim, or the lookup of a row. */

void
ngx_http_idem_probe_sweep_resume(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx)
{
    ngx_connection_t  *c = r->connection;

    if (ctx->state == NGX_HTTP_IDEM_PROBED) {
        ngx_http_idem_probe_sweep_settle(r);
        ngx_http_run_posted_requests(c);
        return;
    }

    if (ctx->decision.kind == NGX_HTTP_IDEM_VERDICT && ctx->decision.verdict == IDEM_PROBE
        && !ngx_exiting && ngx_http_idem_probe_start(r, ctx) == NGX_AGAIN)
    {
        r->write_event_handler = ngx_http_idem_probe_sweep_settle;
        ngx_http_run_posted_requests(c);
        return;
    }

    /* another prober was faster, or the store is unavailable */

    ngx_http_finalize_request(r, NGX_DONE);
    ngx_http_run_posted_requests(c);
}


void
ngx_http_idem_probe_sweep_done(ngx_http_idem_ctx_t *ctx)
{
    ngx_http_idem_probe_sweep_t  *sweep = ctx->sweep;

    if (sweep == NULL) {
        return;
    }

    (void) close(ctx->sweep_peer);

    if (--sweep->asked == 0) {
        ngx_http_idem_probe_sweep_schedule(sweep);
    }
}
