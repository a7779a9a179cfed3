
/*
 * The module: its table of directives, how the levels of a configuration merge,
 * and what a worker does when it begins and ends.
 *
 * Each level keeps what it said, because a preset belongs to its level: what the
 * level itself says comes before it, and what the levels above say behind.
 */

#include "ngx_http_idem.h"


static ngx_int_t ngx_http_idem_preconfiguration(ngx_conf_t *cf);
static ngx_int_t ngx_http_idem_postconfiguration(ngx_conf_t *cf);
static void *ngx_http_idem_create_main_conf(ngx_conf_t *cf);
static void *ngx_http_idem_create_loc_conf(ngx_conf_t *cf);
static char *ngx_http_idem_merge_loc_conf(ngx_conf_t *cf, void *parent, void *child);
static ngx_int_t ngx_http_idem_init_process(ngx_cycle_t *cycle);
static void ngx_http_idem_exit_process(ngx_cycle_t *cycle);



#define NGX_HTTP_IDEM_ANYWHERE                                                \
    NGX_HTTP_MAIN_CONF|NGX_HTTP_SRV_CONF|NGX_HTTP_LOC_CONF|NGX_HTTP_LIF_CONF

#define NGX_HTTP_IDEM_WORD(word)                                              \
    { ngx_string("idem_" word), NGX_HTTP_IDEM_ANYWHERE|NGX_CONF_TAKE1,         \
      ngx_http_idem_word, NGX_HTTP_LOC_CONF_OFFSET, 0, NULL }


static ngx_command_t  ngx_http_idem_commands[] = {

    { ngx_string("idem"),
      NGX_HTTP_IDEM_ANYWHERE|NGX_CONF_TAKE1,
      ngx_http_idem_mode,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("idem_store"),
      NGX_HTTP_IDEM_ANYWHERE|NGX_CONF_TAKE1,
      ngx_http_idem_store_url,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("idem_scope"),
      NGX_HTTP_IDEM_ANYWHERE|NGX_CONF_TAKE1,
      ngx_http_idem_scope_value,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("idem_key"),
      NGX_HTTP_IDEM_ANYWHERE|NGX_CONF_1MORE,
      ngx_http_idem_key,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("idem_sign"),
      NGX_HTTP_IDEM_ANYWHERE|NGX_CONF_1MORE,
      ngx_http_idem_sign_rules,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("idem_set"),
      NGX_HTTP_MAIN_CONF|NGX_HTTP_SRV_CONF|NGX_HTTP_LOC_CONF|NGX_CONF_TAKE2,
      ngx_http_idem_set,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("idem_fingerprint"),
      NGX_HTTP_IDEM_ANYWHERE|NGX_CONF_1MORE,
      ngx_http_idem_fingerprint,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("idem_methods"),
      NGX_HTTP_IDEM_ANYWHERE|NGX_CONF_1MORE,
      ngx_http_idem_method_names,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("idem_release_status"),
      NGX_HTTP_IDEM_ANYWHERE|NGX_CONF_1MORE,
      ngx_http_idem_release_status,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("idem_replay_headers"),
      NGX_HTTP_IDEM_ANYWHERE|NGX_CONF_1MORE,
      ngx_http_idem_replay_headers,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("idem_enforce"),
      NGX_HTTP_IDEM_ANYWHERE|NGX_CONF_TAKE1,
      ngx_http_idem_enforce,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("idem_probe"),
      NGX_HTTP_IDEM_ANYWHERE|NGX_CONF_TAKE12,
      ngx_http_idem_probe_uri,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("idem_label"),
      NGX_HTTP_IDEM_ANYWHERE|NGX_CONF_TAKE1,
      ngx_http_idem_label_value,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("idem_token"),
      NGX_HTTP_LOC_CONF|NGX_CONF_NOARGS,
      ngx_http_idem_token,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("idem_js"),
      NGX_HTTP_LOC_CONF|NGX_CONF_NOARGS|NGX_CONF_TAKE1,
      ngx_http_idem_js,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("idem_token_bind"),
      NGX_HTTP_IDEM_ANYWHERE|NGX_CONF_TAKE1,
      ngx_http_idem_token_bind,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      NULL },

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
    ngx_http_idem_preconfiguration,        /* preconfiguration */
    ngx_http_idem_postconfiguration,       /* postconfiguration */

    ngx_http_idem_create_main_conf,        /* create main configuration */
    NULL,                                  /* init main configuration */

    NULL,                                  /* create server configuration */
    NULL,                                  /* merge server configuration */

    ngx_http_idem_create_loc_conf,         /* create location configuration */
    ngx_http_idem_merge_loc_conf           /* merge location configuration */
};


ngx_module_t  ngx_http_idem_module = {
    NGX_MODULE_V1,
    &ngx_http_idem_module_ctx,             /* module context */
    ngx_http_idem_commands,                /* module directives */
    NGX_HTTP_MODULE,                       /* module type */
    NULL,                                  /* init master */
    NULL,                                  /* init module */
    ngx_http_idem_init_process,            /* init process */
    NULL,                                  /* init thread */
    NULL,                                  /* exit thread */
    ngx_http_idem_exit_process,            /* exit process */
    NULL,                                  /* exit master */
    NGX_MODULE_V1_PADDING
};


static ngx_str_t  ngx_http_idem_default_header = ngx_string("Idempotency-Key");

static const ngx_uint_t  ngx_http_idem_default_release[] = {
    401, 407, 408, 421, 423, 425, 429
};


static void *
ngx_http_idem_create_main_conf(ngx_conf_t *cf)
{
    ngx_http_idem_main_conf_t  *imcf;

    imcf = ngx_pcalloc(cf->pool, sizeof(ngx_http_idem_main_conf_t));
    if (imcf == NULL) {
        return NULL;
    }

    if (ngx_array_init(&imcf->stores, cf->pool, 2, sizeof(ngx_http_idem_store_t *)) != NGX_OK
        || ngx_array_init(&imcf->guarded, cf->pool, 8, sizeof(ngx_http_idem_guarded_t))
           != NGX_OK)
    {
        return NULL;
    }

    return imcf;
}


static void
ngx_http_idem_conf_cleanup(void *data)
{
    ngx_http_idem_loc_conf_t  *conf = data;

    idem_policy_release(&conf->said);
    idem_guard_free(conf->guard);
}


static void *
ngx_http_idem_create_loc_conf(ngx_conf_t *cf)
{
    ngx_pool_cleanup_t        *cln;
    ngx_http_idem_loc_conf_t  *conf;

    conf = ngx_pcalloc(cf->pool, sizeof(ngx_http_idem_loc_conf_t));
    cln = ngx_pool_cleanup_add(cf->pool, 0);

    if (conf == NULL || cln == NULL) {
        return NULL;
    }

    cln->handler = ngx_http_idem_conf_cleanup;
    cln->data = conf;

    conf->on = NGX_CONF_UNSET;
    conf->store = NGX_CONF_UNSET_PTR;
    conf->sign = NGX_CONF_UNSET_PTR;
    conf->scope = NGX_CONF_UNSET_PTR;
    conf->key = NGX_CONF_UNSET_PTR;
    conf->probe = NGX_CONF_UNSET_PTR;
    conf->label = NGX_CONF_UNSET_PTR;
    conf->bind = NGX_CONF_UNSET_PTR;
    conf->enforce = NGX_CONF_UNSET_PTR;
    conf->release = NGX_CONF_UNSET_PTR;
    conf->headers = NGX_CONF_UNSET_PTR;

    return conf;
}


/* Merging. */

/* The nearest that is said. */

static enum idem_preset
ngx_http_idem_preset(ngx_http_idem_loc_conf_t *conf)
{
    while (conf->said.said.preset == 0 && conf->parent) {
        conf = conf->parent;
    }

    return conf->said.said.preset;
}


/* A plain form brings no key: what its button sends is the key. */

static ngx_http_idem_key_t *
ngx_http_idem_default_key(ngx_conf_t *cf, ngx_http_idem_loc_conf_t *conf)
{
    ngx_http_idem_key_t  *key;

    key = ngx_pcalloc(cf->pool, sizeof(ngx_http_idem_key_t));
    if (key == NULL) {
        return NULL;
    }

    if (ngx_http_idem_preset(conf) == IDEM_PRESET_SUBMIT) {
        key->kind = NGX_HTTP_IDEM_KEY_PARAMS;

    } else {
        key->kind = NGX_HTTP_IDEM_KEY_HEADER;
        key->name = ngx_http_idem_default_header;
    }

    return key;
}


/* Who is told that his form is wrong corrects it, and sends it again, with the same token. */

static ngx_array_t *
ngx_http_idem_default_statuses(ngx_conf_t *cf, ngx_http_idem_loc_conf_t *conf)
{
    ngx_uint_t    i, n, *status;
    ngx_array_t  *statuses;

    statuses = ngx_array_create(cf->pool, 8, sizeof(ngx_uint_t));
    if (statuses == NULL) {
        return NULL;
    }

    n = ngx_http_idem_preset(conf) == IDEM_PRESET_SUBMIT
        ? 100 : sizeof(ngx_http_idem_default_release) / sizeof(ngx_uint_t);

    for (i = 0; i < n; i++) {
        status = ngx_array_push(statuses);
        if (status == NULL) {
            return NULL;
        }

        *status = (n == 100) ? 400 + i : ngx_http_idem_default_release[i];
    }

    return statuses;
}


static ngx_uint_t
ngx_http_idem_default_print(ngx_conf_t *cf, ngx_http_idem_key_t *key)
{
    if (key->kind == NGX_HTTP_IDEM_KEY_PARAMS
        || (key->kind == NGX_HTTP_IDEM_KEY_VALUE
            && ngx_http_idem_is_computed(cf, &key->value.value)))
    {
        return NGX_HTTP_IDEM_PRINT_NONE;
    }

    return NGX_HTTP_IDEM_PRINT_ALL;
}


static ngx_int_t
ngx_http_idem_make_guard(ngx_conf_t *cf, ngx_http_idem_loc_conf_t *conf)
{
    struct idem_error          err;
    struct idem_policy         said, above;
    ngx_http_idem_loc_conf_t  *level;

    ngx_memzero(&said, sizeof(struct idem_policy));
    ngx_memzero(&above, sizeof(struct idem_policy));

    /* what stands above the level that says the mode gives way where it contradicts it */

    for (level = conf; level; level = level->parent) {
        idem_policy_merge(&said, &level->said.said);

        if (level->said.said.mode) {
            break;
        }
    }

    while (level && level->parent) {
        level = level->parent;
        idem_policy_merge(&above, &level->said.said);
    }

    /* how keys are made and compared is said by directives of our own */

    said.key_kind = conf->issues || conf->key->kind == NGX_HTTP_IDEM_KEY_TOKEN
                    ? IDEM_KEY_TOKEN : IDEM_KEY_LITERAL;
    said.fingerprint = said.mode == IDEM_MODE_LOCK ? 0 : 1;

    if (said.prefix == NULL && above.prefix == NULL) {
        ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                      "idem: idem_prefix is missing: it is put before every key (idem_prefix "
                      "order:;), so that operations never meet, for the guard in %s:%ui",
                      conf->file, conf->line);
        return NGX_ERROR;
    }

    if (said.scope == NULL && above.scope == NULL) {
        ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                      "idem: idem_scope is missing: say who is asking (idem_scope "
                      "$remote_user;), so that nobody gets another's answer, or \"idem_scope "
                      "none;\" if there is nobody to tell apart, for the guard in %s:%ui",
                      conf->file, conf->line);
        return NGX_ERROR;
    }

    if (idem_guard_make(NULL, &said, &above, &conf->guard, &err) != 0) {
        ngx_log_error(NGX_LOG_EMERG, cf->log, 0, "idem: %s, for the guard in %s:%ui", err.text,
                      conf->file, conf->line);
        return NGX_ERROR;
    }

    conf->policy = idem_guard_policy(conf->guard);

    return NGX_OK;
}


static void
ngx_http_idem_inherit(ngx_http_idem_loc_conf_t *conf, ngx_http_idem_loc_conf_t *prev)
{
    ngx_http_idem_heritage_t  *heritage = &prev->heritage;

    if (prev->parent == NULL) {                /* http{}: merged with nothing */
        heritage->key = prev->key;
        heritage->print = prev->print;
        heritage->print_expr = prev->print_expr;
        heritage->release = prev->release;
    }

    ngx_conf_merge_ptr_value(conf->key, heritage->key, NULL);
    ngx_conf_merge_ptr_value(conf->release, heritage->release, NULL);

    if (conf->print == 0) {
        conf->print = heritage->print;
        conf->print_expr = heritage->print_expr;
    }

    conf->heritage.key = conf->key;
    conf->heritage.print = conf->print;
    conf->heritage.print_expr = conf->print_expr;
    conf->heritage.release = conf->release;
}


static char *
ngx_http_idem_merge_loc_conf(ngx_conf_t *cf, void *parent, void *child)
{
    ngx_http_idem_guarded_t    *guarded;
    ngx_http_core_loc_conf_t   *clcf;
    ngx_http_idem_loc_conf_t   *prev = parent;
    ngx_http_idem_loc_conf_t   *conf = child;
    ngx_http_idem_main_conf_t  *imcf;

    conf->parent = prev;

    if (conf->on == NGX_CONF_UNSET) {
        conf->on = conf->said.said.preset ? 1 : prev->on;
    }

    if (conf->file == NULL) {
        conf->file = prev->file;
        conf->line = prev->line;
    }

    ngx_http_idem_inherit(conf, prev);

    if (conf->sign == NGX_CONF_UNSET_PTR) {
        conf->sign_file = prev->sign_file;
        conf->sign_line = prev->sign_line;
    }

    ngx_conf_merge_ptr_value(conf->store, prev->store, NULL);
    ngx_conf_merge_ptr_value(conf->sign, prev->sign, NULL);
    ngx_conf_merge_ptr_value(conf->scope, prev->scope, NULL);
    if (conf->probe == NGX_CONF_UNSET_PTR) {
        conf->probe_type = prev->probe_type;
    }

    ngx_conf_merge_ptr_value(conf->probe, prev->probe, NULL);
    ngx_conf_merge_ptr_value(conf->label, prev->label, NULL);
    ngx_conf_merge_ptr_value(conf->bind, prev->bind, NULL);
    ngx_conf_merge_ptr_value(conf->enforce, prev->enforce, NULL);
    ngx_conf_merge_ptr_value(conf->headers, prev->headers, NULL);
    ngx_conf_merge_bitmask_value(conf->methods, prev->methods,
                                 (NGX_CONF_BITMASK_SET|NGX_HTTP_POST|NGX_HTTP_PATCH));

    if (conf->sign && conf->store == NULL) {
        ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                      "idem: idem_store is missing: say where nonces are remembered (idem_store "
                      "lmdb:/var/lib/nginx/idem;), for idem_sign in %s:%ui",
                      conf->sign_file, conf->sign_line);
        return NGX_CONF_ERROR;
    }

    if (conf->on != 1 && !conf->issues) {
        return NGX_CONF_OK;
    }

    if (conf->store == NULL) {
        ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                      "idem: idem_store is missing: say where it is remembered (idem_store "
                      "lmdb:/var/lib/nginx/idem;), for the guard in %s:%ui",
                      conf->file, conf->line);
        return NGX_CONF_ERROR;
    }

    if (conf->key == NULL) {
        conf->key = ngx_http_idem_default_key(cf, conf);
        if (conf->key == NULL) {
            return NGX_CONF_ERROR;
        }
    }

    if (conf->headers == NULL) {
        conf->headers = ngx_array_create(cf->pool, 1, sizeof(struct idem_http_text));
        if (conf->headers == NULL) {
            return NGX_CONF_ERROR;
        }
    }

    if (conf->release == NULL) {
        conf->release = ngx_http_idem_default_statuses(cf, conf);
        if (conf->release == NULL) {
            return NGX_CONF_ERROR;
        }
    }

    if (ngx_http_idem_make_guard(cf, conf) != NGX_OK) {
        return NGX_CONF_ERROR;
    }

    if (conf->issues) {
        clcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);

        if (clcf->handler != ngx_http_idem_token_handler) {
            ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                          "idem: idem_token and another handler (proxy_pass, fastcgi_pass, "
                          "idem_js) exclude each other: nothing would be guarded there; give "
                          "each its own location, instead of \"%V\" in %s:%ui", &clcf->name,
                          conf->file, conf->line);
            return NGX_CONF_ERROR;
        }

        return NGX_CONF_OK;
    }

    if (conf->policy->mode == IDEM_MODE_LOCK) {

        if (conf->print & ~NGX_HTTP_IDEM_PRINT_NONE && conf->print != prev->heritage.print) {
            ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                          "idem: idem lock and idem_fingerprint exclude each other: a lock "
                          "compares nothing; for the guard in %s:%ui", conf->file, conf->line);
            return NGX_CONF_ERROR;
        }

        conf->print = NGX_HTTP_IDEM_PRINT_NONE;

    } else if (conf->print == 0) {
        conf->print = ngx_http_idem_default_print(cf, conf->key);
    }

    imcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_idem_module);

    guarded = ngx_array_push(&imcf->guarded);
    if (guarded == NULL) {
        return NGX_CONF_ERROR;
    }

    guarded->conf = conf;
    guarded->server = ngx_http_conf_get_module_srv_conf(cf, ngx_http_core_module);
    guarded->clcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);
    guarded->loc_conf = ((ngx_http_conf_ctx_t *) cf->ctx)->loc_conf;

    return NGX_CONF_OK;
}


static ngx_int_t
ngx_http_idem_preconfiguration(ngx_conf_t *cf)
{
    return ngx_http_idem_add_variables(cf);
}


static ngx_int_t
ngx_http_idem_postconfiguration(ngx_conf_t *cf)
{
    ngx_uint_t                   i;
    ngx_http_handler_pt         *h;
    ngx_http_idem_guarded_t     *guarded;
    ngx_http_core_main_conf_t   *cmcf;
    ngx_http_idem_main_conf_t   *imcf;

    imcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_idem_module);
    guarded = imcf->guarded.elts;

    for (i = 0; i < imcf->guarded.nelts; i++) {
        if (ngx_http_idem_check(cf, &guarded[i]) != NGX_OK) {
            return NGX_ERROR;
        }
    }

    cmcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_core_module);

    h = ngx_array_push(&cmcf->phases[NGX_HTTP_PRECONTENT_PHASE].handlers);
    if (h == NULL) {
        return NGX_ERROR;
    }

    *h = ngx_http_idem_handler;

    ngx_http_idem_next_header_filter = ngx_http_top_header_filter;
    ngx_http_top_header_filter = ngx_http_idem_header_filter;

    ngx_http_idem_next_body_filter = ngx_http_top_body_filter;
    ngx_http_top_body_filter = ngx_http_idem_body_filter;

    ngx_http_idem_next_request_body_filter = ngx_http_top_request_body_filter;
    ngx_http_top_request_body_filter = ngx_http_idem_request_body_filter;

    return NGX_OK;
}


/* Workers. */

static ngx_int_t
ngx_http_idem_init_process(ngx_cycle_t *cycle)
{
    ngx_uint_t                   i;
    ngx_http_idem_store_t      **stores;
    ngx_http_idem_main_conf_t   *imcf;

    if (ngx_process != NGX_PROCESS_WORKER && ngx_process != NGX_PROCESS_SINGLE) {
        return NGX_OK;
    }

    imcf = ngx_http_cycle_get_module_main_conf(cycle, ngx_http_idem_module);

    if (imcf == NULL) {
        return NGX_OK;
    }

    stores = imcf->stores.elts;

    for (i = 0; i < imcf->stores.nelts; i++) {
        (void) ngx_http_idem_store_open(stores[i], cycle);     /* tries again by itself */
    }

    return ngx_http_idem_rounds_start(cycle, imcf);
}


static void
ngx_http_idem_exit_process(ngx_cycle_t *cycle)
{
    ngx_uint_t                   i;
    ngx_http_idem_store_t      **stores;
    ngx_http_idem_main_conf_t   *imcf;

    if (ngx_process != NGX_PROCESS_WORKER && ngx_process != NGX_PROCESS_SINGLE) {
        return;
    }

    imcf = ngx_http_cycle_get_module_main_conf(cycle, ngx_http_idem_module);

    if (imcf == NULL) {
        return;
    }

    ngx_http_idem_rounds_stop();

    stores = imcf->stores.elts;

    for (i = 0; i < imcf->stores.nelts; i++) {
        ngx_http_idem_store_close(stores[i]);
    }
}
