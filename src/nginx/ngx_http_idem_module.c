
/*
 * The module: its table of directives, and the start and end of a worker.
 */

#include "ngx_http_idem.h"


static ngx_int_t ngx_http_idem_postconfiguration(ngx_conf_t *cf);
static ngx_int_t ngx_http_idem_init_process(ngx_cycle_t *cycle);
static void ngx_http_idem_exit_process(ngx_cycle_t *cycle);


#define NGX_HTTP_IDEM_ANYWHERE                                                \
    NGX_HTTP_MAIN_CONF|NGX_HTTP_SRV_CONF|NGX_HTTP_LOC_CONF|NGX_HTTP_LIF_CONF

#define NGX_HTTP_IDEM_DIRECTIVE(name, type, set)                              \
    { ngx_string(name), type, set, NGX_HTTP_LOC_CONF_OFFSET, 0, NULL }

#define NGX_HTTP_IDEM_WORD(word)                                              \
    NGX_HTTP_IDEM_DIRECTIVE("idem_" word, NGX_HTTP_IDEM_ANYWHERE|NGX_CONF_TAKE1, \
                            ngx_http_idem_directive_option)


static ngx_command_t  ngx_http_idem_commands[] = {

    NGX_HTTP_IDEM_DIRECTIVE("idem", NGX_HTTP_IDEM_ANYWHERE|NGX_CONF_TAKE1,
                            ngx_http_idem_directive_mode),
    NGX_HTTP_IDEM_DIRECTIVE("idem_store", NGX_HTTP_IDEM_ANYWHERE|NGX_CONF_TAKE1,
                            ngx_http_idem_directive_store),
    NGX_HTTP_IDEM_DIRECTIVE("idem_scope", NGX_HTTP_IDEM_ANYWHERE|NGX_CONF_TAKE1,
                            ngx_http_idem_directive_scope),
    NGX_HTTP_IDEM_DIRECTIVE("idem_key", NGX_HTTP_IDEM_ANYWHERE|NGX_CONF_1MORE,
                            ngx_http_idem_directive_key),
    NGX_HTTP_IDEM_DIRECTIVE("idem_sign", NGX_HTTP_IDEM_ANYWHERE|NGX_CONF_1MORE,
                            ngx_http_idem_directive_sign),
    NGX_HTTP_IDEM_DIRECTIVE("idem_set", NGX_HTTP_MAIN_CONF|NGX_HTTP_SRV_CONF|NGX_HTTP_LOC_CONF
                            |NGX_CONF_TAKE2, ngx_http_idem_variable_set),
    NGX_HTTP_IDEM_DIRECTIVE("idem_fingerprint", NGX_HTTP_IDEM_ANYWHERE|NGX_CONF_1MORE,
                            ngx_http_idem_directive_fingerprint),
    NGX_HTTP_IDEM_DIRECTIVE("idem_methods", NGX_HTTP_IDEM_ANYWHERE|NGX_CONF_1MORE,
                            ngx_http_idem_directive_methods),
    NGX_HTTP_IDEM_DIRECTIVE("idem_release_status", NGX_HTTP_IDEM_ANYWHERE|NGX_CONF_1MORE,
                            ngx_http_idem_directive_release_status),
    NGX_HTTP_IDEM_DIRECTIVE("idem_replay_headers", NGX_HTTP_IDEM_ANYWHERE|NGX_CONF_1MORE,
                            ngx_http_idem_directive_replay_headers),
    NGX_HTTP_IDEM_DIRECTIVE("idem_enforce", NGX_HTTP_IDEM_ANYWHERE|NGX_CONF_TAKE1,
                            ngx_http_idem_directive_enforce),
    NGX_HTTP_IDEM_DIRECTIVE("idem_probe", NGX_HTTP_IDEM_ANYWHERE|NGX_CONF_TAKE12,
                            ngx_http_idem_directive_probe),
    NGX_HTTP_IDEM_DIRECTIVE("idem_label", NGX_HTTP_IDEM_ANYWHERE|NGX_CONF_TAKE1,
                            ngx_http_idem_directive_label),
    NGX_HTTP_IDEM_DIRECTIVE("idem_token", NGX_HTTP_LOC_CONF|NGX_CONF_NOARGS,
                            ngx_http_idem_directive_token),
    NGX_HTTP_IDEM_DIRECTIVE("idem_js", NGX_HTTP_LOC_CONF|NGX_CONF_NOARGS|NGX_CONF_TAKE1,
                            ngx_http_idem_directive_js),
    NGX_HTTP_IDEM_DIRECTIVE("idem_status", NGX_HTTP_LOC_CONF|NGX_CONF_NOARGS|NGX_CONF_TAKE1,
                            ngx_http_idem_directive_status),
    NGX_HTTP_IDEM_DIRECTIVE("idem_admin", NGX_HTTP_LOC_CONF|NGX_CONF_ANY,
                            ngx_http_idem_admin),
    NGX_HTTP_IDEM_DIRECTIVE("idem_token_bind", NGX_HTTP_IDEM_ANYWHERE|NGX_CONF_TAKE1,
                            ngx_http_idem_directive_token_bind),

    NGX_HTTP_IDEM_WORD("preset"),
    NGX_HTTP_IDEM_WORD("prefix"),
    NGX_HTTP_IDEM_WORD("ttl"),
    NGX_HTTP_IDEM_WORD("hold_ttl"),
    NGX_HTTP_IDEM_WORD("lease"),
    NGX_HTTP_IDEM_WORD("run_max"),
    NGX_HTTP_IDEM_WORD("wait"),
    NGX_HTTP_IDEM_WORD("recover"),
    NGX_HTTP_IDEM_WORD("on_failure"),
    NGX_HTTP_IDEM_WORD("attempts"),
    NGX_HTTP_IDEM_WORD("backoff"),
    NGX_HTTP_IDEM_WORD("on_duplicate"),
    NGX_HTTP_IDEM_WORD("message"),
    NGX_HTTP_IDEM_WORD("on_store_error"),
    NGX_HTTP_IDEM_WORD("result_max"),
    NGX_HTTP_IDEM_WORD("finish_timeout"),
    NGX_HTTP_IDEM_WORD("json_max"),
    NGX_HTTP_IDEM_WORD("token_ttl"),

      ngx_null_command
};


static ngx_http_module_t  ngx_http_idem_module_ctx = {
    ngx_http_idem_variable_add,            /* preconfiguration */
    ngx_http_idem_postconfiguration,       /* postconfiguration */

    ngx_http_idem_conf_create_main,        /* create main configuration */
    NULL,                                  /* init main configuration */

    NULL,                                  /* create server configuration */
    NULL,                                  /* merge server configuration */

    ngx_http_idem_conf_create_loc,         /* create location configuration */
    ngx_http_idem_conf_merge_loc           /* merge location configuration */
};


ngx_module_t  ngx_http_idem_module = {
    NGX_MODULE_V1,
    &ngx_http_idem_module_ctx,             /* module context */
    ngx_http_idem_commands,                /* module directives */
    NGX_HTTP_MODULE,                       /* module type */
    NULL,                                  /* init master */
    ngx_http_idem_check_stores,            /* init module */
    ngx_http_idem_init_process,            /* init process */
    NULL,                                  /* init thread */
    NULL,                                  /* exit thread */
    ngx_http_idem_exit_process,            /* exit process */
    NULL,                                  /* exit master */
    NGX_MODULE_V1_PADDING
};


static ngx_int_t
ngx_http_idem_postconfiguration(ngx_conf_t *cf)
{
    ngx_uint_t                   i;
    ngx_http_handler_pt         *h;
    ngx_http_idem_location_t    *guarded;
    ngx_http_core_main_conf_t   *cmcf;
    ngx_http_idem_main_conf_t   *imcf;

    imcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_idem_module);
    guarded = imcf->guarded.elts;

    for (i = 0; i < imcf->guarded.nelts; i++) {
        if (ngx_http_idem_check(cf, &guarded[i]) != NGX_OK) {
            return NGX_ERROR;
        }
    }

    ngx_http_idem_check_signers(cf, imcf);

    cmcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_core_module);

    h = ngx_array_push(&cmcf->phases[NGX_HTTP_PRECONTENT_PHASE].handlers);
    if (h == NULL) {
        return NGX_ERROR;
    }

    *h = ngx_http_idem_handler;

    h = ngx_array_push(&cmcf->phases[NGX_HTTP_LOG_PHASE].handlers);
    if (h == NULL) {
        return NGX_ERROR;
    }

    *h = ngx_http_idem_metric_count_handler;

    ngx_http_idem_next_header_filter = ngx_http_top_header_filter;
    ngx_http_top_header_filter = ngx_http_idem_capture_header_filter;

    ngx_http_idem_next_body_filter = ngx_http_top_body_filter;
    ngx_http_top_body_filter = ngx_http_idem_capture_body_filter;

    ngx_http_idem_next_request_body_filter = ngx_http_top_request_body_filter;
    ngx_http_top_request_body_filter = ngx_http_idem_fingerprint_body_filter;

    return NGX_OK;
}


/* Workers. */

/* NULL: this process serves no requests, or there is no http{}. */

static ngx_http_idem_main_conf_t *
ngx_http_idem_worker_conf(ngx_cycle_t *cycle)
{
    return ngx_process == NGX_PROCESS_WORKER || ngx_process == NGX_PROCESS_SINGLE
           ? ngx_http_cycle_get_module_main_conf(cycle, ngx_http_idem_module) : NULL;
}


static ngx_int_t
ngx_http_idem_init_process(ngx_cycle_t *cycle)
{
    ngx_uint_t                   i;
    ngx_http_idem_store_t      **stores;
    ngx_http_idem_main_conf_t   *imcf;

    imcf = ngx_http_idem_worker_conf(cycle);

    if (imcf == NULL) {
        return NGX_OK;
    }

    ngx_http_idem_metric_start(cycle, imcf);

    stores = imcf->stores.elts;

    for (i = 0; i < imcf->stores.nelts; i++) {
        (void) ngx_http_idem_store_open(stores[i], cycle);     /* retries by itself */
    }

    return ngx_http_idem_probe_sweep_start(cycle, imcf);
}


static void
ngx_http_idem_exit_process(ngx_cycle_t *cycle)
{
    ngx_uint_t                   i;
    ngx_http_idem_store_t      **stores;
    ngx_http_idem_main_conf_t   *imcf;

    imcf = ngx_http_idem_worker_conf(cycle);

    if (imcf == NULL) {
        return;
    }

    ngx_http_idem_probe_sweep_stop();
    ngx_http_idem_admin_action_stop_all();

    stores = imcf->stores.elts;

    for (i = 0; i < imcf->stores.nelts; i++) {
        ngx_http_idem_store_close(stores[i]);
    }

    ngx_http_idem_metric_stop(imcf);
}
