
/*
 * Counters for idem_status: a board in shared memory, which survives reloads, with
 * those of each location that is guarded, signed or issues tokens. A request is
 * counted once, when it ends.
 */

#include "ngx_http_idem.h"


/* the board, and the slab pool's own needs */
#define NGX_HTTP_IDEM_ZONE     ngx_align(BOARD_SIZE + BOARD_SIZE / 16 + 16 * 4096, 4096)

#define NGX_HTTP_IDEM_SAMPLE   1000      /* ms: the board itself knows when a sample is due */


static ngx_int_t ngx_http_idem_metric_init_zone(ngx_shm_zone_t *zone, void *data);
static void ngx_http_idem_metric_sample_handler(ngx_event_t *ev);


static ngx_event_t       ngx_http_idem_sample;
static ngx_connection_t  ngx_http_idem_sample_connection;


/* One idem_status is enough to count everywhere. */

ngx_int_t
ngx_http_idem_metric_zone(ngx_conf_t *cf)
{
    ngx_str_t                   name = ngx_string("idem_status");
    ngx_shm_zone_t             *zone;
    ngx_http_idem_main_conf_t  *imcf;

    imcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_idem_module);

    if (imcf->zone) {
        return NGX_OK;
    }

    zone = ngx_shared_memory_add(cf, &name, NGX_HTTP_IDEM_ZONE, &ngx_http_idem_module);
    if (zone == NULL) {
        return NGX_ERROR;
    }

    zone->init = ngx_http_idem_metric_init_zone;
    zone->data = imcf;
    imcf->zone = zone;

    return NGX_OK;
}


/* For people, in metrics and in the log. */

void
ngx_http_idem_metric_route_name(ngx_http_core_srv_conf_t *server, ngx_http_core_loc_conf_t *clcf,
    u_char *buf, size_t size)
{
    *ngx_snprintf(buf, size - 1, "%V%s%V", &server->server_name,
                  server->server_name.len && clcf->name.len ? " " : "", &clcf->name) = '\0';
}


static struct board_route *
ngx_http_idem_metric_board_route(struct board *board, ngx_http_idem_location_t *location)
{
    u_char  text[BOARD_ROUTE_MAX + 1];

    ngx_http_idem_metric_route_name(location->server, location->clcf, text, sizeof(text));

    return board_route(board, "http", (char *) text,
                       location->conf->policy ? location->conf->policy->prefix : "");
}


/* Runs before the workers start, and in the master. A reload keeps the board. */

static ngx_int_t
ngx_http_idem_metric_init_zone(ngx_shm_zone_t *zone, void *data)
{
    ngx_uint_t                  i;
    struct board               *board;
    ngx_slab_pool_t            *pool;
    ngx_http_idem_location_t   *routes;
    ngx_http_idem_store_t     **stores;
    ngx_http_idem_main_conf_t  *imcf = zone->data, *before = data;

    if (before) {
        board = before->board;

    } else {
        pool = (ngx_slab_pool_t *) zone->shm.addr;
        board = zone->shm.exists ? pool->data : ngx_slab_calloc(pool, BOARD_SIZE);

        if (board == NULL) {
            ngx_log_error(NGX_LOG_EMERG, zone->shm.log, 0, "idem: no room for idem_status");
            return NGX_ERROR;
        }

        pool->data = board;
    }

    if (!board_init(board)) {              /* made by another version */
        ngx_memzero(board, BOARD_SIZE);
        (void) board_init(board);
    }

    imcf->board = board;

    if (ngx_http_idem_admin_secret(imcf) != NGX_OK) {
        ngx_log_error(NGX_LOG_EMERG, zone->shm.log, 0, "idem: no random bits for idem_admin");
        return NGX_ERROR;
    }

    stores = imcf->stores.elts;

    for (i = 0; i < imcf->stores.nelts; i++) {
        stores[i]->board = board_store(board, (char *) stores[i]->url.data);
    }

    board_stores_next_turn(board);

    routes = imcf->routes.elts;

    for (i = 0; i < imcf->routes.nelts; i++) {
        routes[i].conf->route = ngx_http_idem_metric_board_route(board, &routes[i]);
        board_route_set_store(board, routes[i].conf->route, routes[i].conf->store->board);
    }

    return NGX_OK;
}


/* Workers. */

/* The first worker scans the stores, and takes samples. */

static ngx_uint_t
ngx_http_idem_metric_is_first_worker(void)
{
    return ngx_worker == 0 && !ngx_exiting;
}


void
ngx_http_idem_metric_start(ngx_cycle_t *cycle, ngx_http_idem_main_conf_t *imcf)
{
    ngx_uint_t               i;
    ngx_event_t             *ev = &ngx_http_idem_sample;
    ngx_http_idem_store_t  **stores;

    if (imcf->board == NULL) {
        return;
    }

    imcf->process = board_process(imcf->board, ngx_pid);
    stores = imcf->stores.elts;

    for (i = 0; i < imcf->stores.nelts; i++) {
        board_meter_init(&stores[i]->meter, stores[i]->board, imcf->process);
    }

    if (ngx_http_idem_metric_is_first_worker()) {
        ngx_http_idem_sample_connection.fd = (ngx_socket_t) -1;
        ngx_http_idem_sample_connection.data = imcf;
        ev->handler = ngx_http_idem_metric_sample_handler;
        ev->data = &ngx_http_idem_sample_connection;
        ev->log = cycle->log;
        ev->cancelable = 1;
        ngx_http_idem_metric_sample_handler(ev);
    }
}


static void
ngx_http_idem_metric_sample_handler(ngx_event_t *ev)
{
    ngx_uint_t                  i;
    ngx_connection_t           *c = ev->data;
    ngx_http_idem_store_t     **stores;
    ngx_http_idem_main_conf_t  *imcf = c->data;

    if (!ngx_http_idem_metric_is_first_worker()) {  /* a worker of another cycle goes on */

        stores = imcf->stores.elts;

        for (i = 0; i < imcf->stores.nelts; i++) {
            survey_stop(&stores[i]->survey);
        }

        return;
    }

    board_sample(imcf->board);
    ngx_add_timer(ev, NGX_HTTP_IDEM_SAMPLE);
}


void
ngx_http_idem_metric_stop(ngx_http_idem_main_conf_t *imcf)
{
    ngx_http_idem_stop_event(&ngx_http_idem_sample);

    if (imcf->process) {
        board_process_leave(imcf->process);
        imcf->process = NULL;
    }
}


void
ngx_http_idem_metric_store_opened(ngx_http_idem_store_t *store)
{
    if (store->board == NULL) {
        return;
    }

    idem_handle_measure(store->h, &store->meter.meter);
    board_store_answered(store->board);

    if (ngx_http_idem_metric_is_first_worker()) {
        survey_start(&store->survey, store->h, store->board);
    }
}


/* Counts a store error, without a handle, which would have a meter. */

void
ngx_http_idem_metric_store_unavailable(ngx_http_idem_store_t *store)
{
    if (store->board) {
        board_add(&store->board->events[IDEM_EVENT_STORE_ERROR], 1);
        board_store_failed(store->board);
    }
}


/* Requests. */

/* A run that was lost or cancelled counts as a run, and under its own count. */

static const struct {
    const char          *word;
    enum board_verdict   verdict;
    enum board_count     count;
} ngx_http_idem_ends[] = {
    { "lost", BOARD_RUN, BOARD_LOST },
    { "cancelled", BOARD_RUN, BOARD_CANCELLED },
};


static enum board_verdict
ngx_http_idem_metric_find_verdict(struct board_route *route, const char *word)
{
    ngx_uint_t  i;

    for (i = 0; i < sizeof(ngx_http_idem_ends) / sizeof(ngx_http_idem_ends[0]); i++) {
        if (ngx_strcmp(word, ngx_http_idem_ends[i].word) == 0) {
            board_add(&route->counts[ngx_http_idem_ends[i].count], 1);
            return ngx_http_idem_ends[i].verdict;
        }
    }

    return board_verdict_find(word);
}


static void
ngx_http_idem_metric_count_verdict(ngx_http_idem_ctx_t *ctx, struct board *board,
    enum board_verdict verdict)
{
    struct board_route  *route = ctx->conf->route;

    board_add(&route->verdicts[verdict], 1);

    switch (verdict) {

    case BOARD_RUN:

        if (ctx->conf->key->kind == NGX_HTTP_IDEM_KEY_TOKEN && ctx->decision.attempt == 1) {
            board_add(&route->counts[BOARD_TOKEN_SPENT], 1);
        }

        return;

    case BOARD_OPEN:
    case BOARD_SIGNED:
        return;

    case BOARD_REPLAY:

        if (ctx->guard == NGX_HTTP_IDEM_SHADOW) {
            board_add(&route->counts[BOARD_SHADOWED], 1);
        }

        return;

    default:

        if (ctx->guard == NGX_HTTP_IDEM_SHADOW) {
            board_add(&route->counts[BOARD_SHADOWED], 1);
            return;
        }

        board_refused(board, route, verdict,
                      ctx->decision.hash[0] ? (char *) ctx->decision.hash : NULL, ctx->key.label);
    }
}


/* Runs in the log phase, when the outcome is known. */

ngx_int_t
ngx_http_idem_metric_count_handler(ngx_http_request_t *r)
{
    enum board_verdict          verdict;
    ngx_http_idem_ctx_t        *ctx;
    ngx_http_idem_main_conf_t  *imcf;

    ctx = ngx_http_idem_ctx_find(r);

    if (ctx == NULL || ctx->sweep || ctx->decision.word == NULL || ctx->conf->route == NULL) {
        return NGX_OK;
    }

    if (ngx_strcmp(ctx->decision.word, "issued") == 0) {
        board_add(&ctx->conf->route->counts[BOARD_TOKEN_ISSUED], 1);
        return NGX_OK;
    }

    imcf = ngx_http_get_module_main_conf(r, ngx_http_idem_module);
    verdict = ngx_http_idem_metric_find_verdict(ctx->conf->route, ctx->decision.word);

    if (verdict < BOARD_VERDICTS) {
        ngx_http_idem_metric_count_verdict(ctx, imcf->board, verdict);
    }

    return NGX_OK;
}


void
ngx_http_idem_metric_count(ngx_http_idem_loc_conf_t *conf, enum board_count count)
{
    if (conf->route) {
        board_add(&conf->route->counts[count], 1);
    }
}
