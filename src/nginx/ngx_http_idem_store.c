
/*
 * Stores on nginx's loop: each worker opens its own handle, after the fork.
 *
 * The library needs descriptors and one timer. Its timer does not keep a worker
 * from exiting, since some of it runs for ever; claim.c counts what must not be
 * abandoned (claims, and outcomes that are not stored yet).
 */

#include "ngx_http_idem.h"


#define NGX_HTTP_IDEM_AGAIN  1000    /* ms, before a store is opened again */


typedef struct {
    ngx_queue_t                queue;
    ngx_http_idem_store_t     *store;
    ngx_connection_t          *connection;
    int                        fd;
} ngx_http_idem_store_fd_t;


static int ngx_http_idem_store_watch(void *data, int fd, int events);
static void ngx_http_idem_store_set_timer(void *data, int64_t ms);


ngx_http_idem_store_t *
ngx_http_idem_store_add(ngx_conf_t *cf, ngx_str_t *url)
{
    ngx_uint_t                  i;
    ngx_http_idem_store_t      *store, **stores;
    ngx_http_idem_main_conf_t  *imcf;

    imcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_idem_module);
    stores = imcf->stores.elts;

    for (i = 0; i < imcf->stores.nelts; i++) {
        if (idem_same(stores[i]->url.data, stores[i]->url.len, url->data, url->len)) {
            return stores[i];
        }
    }

    store = ngx_pcalloc(cf->pool, sizeof(ngx_http_idem_store_t));
    if (store == NULL) {
        return NULL;
    }

    stores = ngx_array_push(&imcf->stores);
    if (stores == NULL) {
        return NULL;
    }

    *stores = store;
    store->url = *url;         /* a word of the configuration ends with a NUL */
    ngx_queue_init(&store->fds);

    return store;
}


static void
ngx_http_idem_store_notice(void *data, const char *text)
{
    ngx_http_idem_store_t  *store = data;

    ngx_log_error(NGX_LOG_WARN, store->log, 0, "idem: %s", text);
}


static void
ngx_http_idem_store_retry_handler(ngx_event_t *ev)
{
    ngx_http_idem_store_t  *store = ev->data;

    if (!ngx_exiting) {
        (void) ngx_http_idem_store_open(store, (ngx_cycle_t *) ngx_cycle);
    }
}


static void
ngx_http_idem_store_timer_handler(ngx_event_t *ev)
{
    ngx_http_idem_store_t  *store = ev->data;

    if (store->h != NULL) {
        store->ringing = 1;
        idem_timeout(store->h);
        store->ringing = 0;
    }
}


ngx_int_t
ngx_http_idem_store_open(ngx_http_idem_store_t *store, ngx_cycle_t *cycle)
{
    int                  rc;
    struct idem         *h;
    struct idem_host     host;
    struct idem_error    err;
    struct idem_options  options;

    store->log = cycle->log;

    store->timer.handler = ngx_http_idem_store_timer_handler;
    store->timer.data = store;
    store->timer.log = cycle->log;
    store->timer.cancelable = 1;

    store->again.handler = ngx_http_idem_store_retry_handler;
    store->again.data = store;
    store->again.log = cycle->log;
    store->again.cancelable = 1;

    ngx_memzero(&host, sizeof(struct idem_host));
    host.data = store;
    host.watch = ngx_http_idem_store_watch;
    host.timer = ngx_http_idem_store_set_timer;

    ngx_memzero(&options, sizeof(struct idem_options));
    options.notice = ngx_http_idem_store_notice;
    options.notice_data = store;

    rc = idem_open_on((char *) store->url.data, &options, &host, &h, &err);

    if (rc == 0) {
        store->h = h;
        ngx_http_idem_metric_store_opened(store);
        return NGX_OK;
    }

    if (ngx_strcmp(err.text, store->error.text) != 0) {
        ngx_log_error(NGX_LOG_ERR, cycle->log, 0, "idem: the store cannot be opened: %s",
                      err.text);
    }

    store->error = err;

    if (store->board) {
        board_store_failed(store->board);
    }

    ngx_add_timer(&store->again, NGX_HTTP_IDEM_AGAIN);

    return NGX_ERROR;
}


void
ngx_http_idem_store_close(ngx_http_idem_store_t *store)
{
    struct idem  *h;

    ngx_http_idem_stop_event(&store->again);

    if (store->h == NULL) {
        return;
    }

    survey_stop(&store->survey);

    h = store->h;
    store->h = NULL;
    idem_close(h);

    ngx_http_idem_stop_event(&store->timer);
}


static void
ngx_http_idem_store_set_timer(void *data, int64_t ms)
{
    ngx_event_t            *ev;
    ngx_http_idem_store_t  *store = data;

    ev = &store->timer;

    if (ms == 0) {

        /*
         * in this turn of the loop, after its other work: the operations of all its
         * requests go out together. The library's own work (a long scan) waits for the
         * next turn; in this one it would never end
         */

        if (ev->timer_set) {
            ngx_del_timer(ev);
        }

        ngx_post_event(ev, store->ringing ? &ngx_posted_next_events : &ngx_posted_events);
        return;
    }

    ngx_http_idem_stop_event(ev);

    if (ms > 0) {
        ngx_add_timer(ev, (ngx_msec_t) ngx_min(ms, 24 * 3600 * 1000));
    }
}


static void
ngx_http_idem_store_fd_handler(ngx_event_t *ev)
{
    ngx_connection_t          *c;
    ngx_http_idem_store_fd_t  *watched;

    c = ev->data;
    watched = c->data;

    /* the library reads until there is no more, as an edge-triggered loop requires */

    idem_ready(watched->store->h, watched->fd, ev->write ? IDEM_WRITE : IDEM_READ);
}


static ngx_http_idem_store_fd_t *
ngx_http_idem_store_fd_find(ngx_http_idem_store_t *store, int fd)
{
    ngx_queue_t               *q;
    ngx_http_idem_store_fd_t  *watched;

    for (q = ngx_queue_head(&store->fds); q != ngx_queue_sentinel(&store->fds);
         q = ngx_queue_next(q))
    {
        watched = ngx_queue_data(q, ngx_http_idem_store_fd_t, queue);

        if (watched->fd == fd) {
            return watched;
        }
    }

    return NULL;
}


/* Without NGX_CLOSE_EVENT: the library closes the descriptor, perhaps much later. */

static void
ngx_http_idem_store_fd_stop(ngx_event_t *ev, ngx_int_t event)
{
    if (ev->active) {
        (void) ngx_del_event(ev, event, 0);
    }

    ngx_http_idem_stop_event(ev);
    ev->closed = 1;
}


static void
ngx_http_idem_store_fd_free(ngx_http_idem_store_fd_t *watched)
{
    ngx_connection_t  *c = watched->connection;

    ngx_http_idem_store_fd_stop(c->read, NGX_READ_EVENT);
    ngx_http_idem_store_fd_stop(c->write, NGX_WRITE_EVENT);

    ngx_free_connection(c);
    c->fd = (ngx_socket_t) -1;

    ngx_queue_remove(&watched->queue);
    ngx_free(watched);
}


static ngx_http_idem_store_fd_t *
ngx_http_idem_store_fd_add(ngx_http_idem_store_t *store, int fd)
{
    ngx_connection_t          *c;
    ngx_http_idem_store_fd_t  *watched;

    watched = ngx_calloc(sizeof(ngx_http_idem_store_fd_t), store->log);
    if (watched == NULL) {
        return NULL;
    }

    c = ngx_get_connection(fd, store->log);
    if (c == NULL) {
        ngx_free(watched);
        return NULL;
    }

    c->data = watched;
    c->read->handler = ngx_http_idem_store_fd_handler;
    c->read->log = store->log;
    c->write->handler = ngx_http_idem_store_fd_handler;
    c->write->log = store->log;

    watched->store = store;
    watched->connection = c;
    watched->fd = fd;
    ngx_queue_insert_tail(&store->fds, &watched->queue);

    return watched;
}


static ngx_int_t
ngx_http_idem_store_fd_set(ngx_event_t *ev, ngx_uint_t wanted, ngx_int_t event)
{
    ngx_uint_t  flags;

    flags = (ngx_event_flags & NGX_USE_CLEAR_EVENT) ? NGX_CLEAR_EVENT : NGX_LEVEL_EVENT;

    if (wanted && !ev->active) {
        return ngx_add_event(ev, event, flags);
    }

    if (!wanted && ev->active) {
        return ngx_del_event(ev, event, 0);
    }

    return NGX_OK;
}


static int
ngx_http_idem_store_watch(void *data, int fd, int events)
{
    ngx_http_idem_store_fd_t  *watched;
    ngx_http_idem_store_t     *store = data;

    watched = ngx_http_idem_store_fd_find(store, fd);

    if (events == 0) {
        if (watched != NULL) {
            ngx_http_idem_store_fd_free(watched);
        }

        return 0;
    }

    if (watched == NULL) {
        watched = ngx_http_idem_store_fd_add(store, fd);
        if (watched == NULL) {
            return -1;
        }
    }

    if (ngx_http_idem_store_fd_set(watched->connection->read, events & IDEM_READ, NGX_READ_EVENT)
        != NGX_OK
        || ngx_http_idem_store_fd_set(watched->connection->write, events & IDEM_WRITE,
                                      NGX_WRITE_EVENT)
           != NGX_OK)
    {
        ngx_http_idem_store_fd_free(watched);
        return -1;
    }

    return 0;
}
