
/*
 * Configurations, and how levels merge: the settings of a level, those inherited
 * from above, and the guard made of both. Fails, for nginx -t, if something is
 * missing or contradictory.
 *
 * Each level keeps its own settings apart, because a preset belongs to its level:
 * a level's settings come before its preset, and the levels above after it.
 */

#include "ngx_http_idem.h"


static ngx_str_t  ngx_http_idem_default_header = ngx_string("Idempotency-Key");

static const ngx_uint_t  ngx_http_idem_default_release[] = {
    401, 407, 408, 421, 423, 425, 429
};

static ngx_str_t  ngx_http_idem_default_methods[] = {
    ngx_string("POST"),
    ngx_string("PATCH")
};


void *
ngx_http_idem_conf_create_main(ngx_conf_t *cf)
{
    ngx_http_idem_main_conf_t  *imcf;

    imcf = ngx_pcalloc(cf->pool, sizeof(ngx_http_idem_main_conf_t));
    if (imcf == NULL) {
        return NULL;
    }

    if (ngx_array_init(&imcf->stores, cf->pool, 2, sizeof(ngx_http_idem_store_t *)) != NGX_OK
        || ngx_array_init(&imcf->guarded, cf->pool, 8, sizeof(ngx_http_idem_location_t))
           != NGX_OK
        || ngx_array_init(&imcf->signers, cf->pool, 4, sizeof(ngx_http_idem_signer_t)) != NGX_OK
        || ngx_array_init(&imcf->routes, cf->pool, 8, sizeof(ngx_http_idem_location_t))
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

    idem_policy_release(&conf->layer);
    idem_guard_free(conf->guard);
}


void *
ngx_http_idem_conf_create_loc(ngx_conf_t *cf)
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
    conf->methods = NGX_CONF_UNSET_PTR;
    conf->probe = NGX_CONF_UNSET_PTR;
    conf->label = NGX_CONF_UNSET_PTR;
    conf->bind = NGX_CONF_UNSET_PTR;
    conf->enforce = NGX_CONF_UNSET_PTR;
    conf->release = NGX_CONF_UNSET_PTR;
    conf->headers = NGX_CONF_UNSET_PTR;

    return conf;
}


/* Merging. */

/* The nearest preset, from this level upwards. */

static enum idem_preset
ngx_http_idem_conf_preset(ngx_http_idem_loc_conf_t *conf)
{
    while (conf->layer.policy.preset == 0 && conf->parent) {
        conf = conf->parent;
    }

    return conf->layer.policy.preset;
}


/* A plain form has no key field: the parameters that its button sends are the key. */

static ngx_http_idem_key_t *
ngx_http_idem_conf_default_key(ngx_conf_t *cf, ngx_http_idem_loc_conf_t *conf)
{
    ngx_http_idem_key_t  *key;

    key = ngx_pcalloc(cf->pool, sizeof(ngx_http_idem_key_t));
    if (key == NULL) {
        return NULL;
    }

    if (ngx_http_idem_conf_preset(conf) == IDEM_PRESET_SUBMIT) {
        key->kind = NGX_HTTP_IDEM_KEY_PARAMS;

    } else {
        key->kind = NGX_HTTP_IDEM_KEY_HEADER;
        key->name = ngx_http_idem_default_header;
    }

    return key;
}


/*
 * A user corrects a refused form and sends it again with the same token, so any
 * 4xx gives the token back.
 */

static ngx_array_t *
ngx_http_idem_conf_default_release(ngx_conf_t *cf, ngx_http_idem_loc_conf_t *conf)
{
    ngx_uint_t    i, n, *status;
    ngx_array_t  *statuses;

    statuses = ngx_array_create(cf->pool, 8, sizeof(ngx_uint_t));
    if (statuses == NULL) {
        return NULL;
    }

    n = ngx_http_idem_conf_preset(conf) == IDEM_PRESET_SUBMIT
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
ngx_http_idem_conf_default_fingerprint(ngx_conf_t *cf, ngx_http_idem_key_t *key)
{
    if (key->kind == NGX_HTTP_IDEM_KEY_PARAMS
        || (key->kind == NGX_HTTP_IDEM_KEY_VALUE
            && ngx_http_idem_variable_is_computed(cf, &key->value->value)))
    {
        return NGX_HTTP_IDEM_FINGERPRINT_NONE;
    }

    return NGX_HTTP_IDEM_FINGERPRINT_ALL;
}


static ngx_int_t
ngx_http_idem_conf_make_guard(ngx_conf_t *cf, ngx_http_idem_loc_conf_t *conf)
{
    struct idem_error          err;
    struct idem_policy         own, above;
    ngx_http_idem_loc_conf_t  *level;

    ngx_memzero(&own, sizeof(struct idem_policy));
    ngx_memzero(&above, sizeof(struct idem_policy));

    /* settings above the level that sets the mode yield if they contradict it */

    for (level = conf; level; level = level->parent) {
        idem_policy_merge(&own, &level->layer.policy);

        if (level->layer.policy.mode) {
            break;
        }
    }

    while (level && level->parent) {
        level = level->parent;
        idem_policy_merge(&above, &level->layer.policy);
    }

    /* directives of this module set how keys are made and compared */

    own.key_kind = conf->issues || conf->key->kind == NGX_HTTP_IDEM_KEY_TOKEN
                   ? IDEM_KEY_TOKEN : IDEM_KEY_LITERAL;
    own.fingerprint = own.mode == IDEM_MODE_LOCK ? 0 : 1;

    if (own.prefix == NULL && above.prefix == NULL) {
        return ngx_http_idem_check_report(cf, NGX_LOG_EMERG, conf,
                   "idem_prefix is missing: it is put before every key (idem_prefix order:;), so "
                   "that operations never meet");
    }

    if (own.scope == NULL && above.scope == NULL) {
        return ngx_http_idem_check_report(cf, NGX_LOG_EMERG, conf,
                   "idem_scope is missing: identify the caller by what was checked (idem_scope "
                   "$remote_user; under auth_basic), so that no caller gets another's response, "
                   "or use \"idem_scope none;\" if callers need not be kept apart");
    }

    if (idem_guard_make(NULL, &own, &above, &conf->guard, &err) != 0) {
        return ngx_http_idem_check_report(cf, NGX_LOG_EMERG, conf, "%s", err.text);
    }

    conf->policy = idem_guard_policy(conf->guard);

    return NGX_OK;
}


static void
ngx_http_idem_conf_inherit(ngx_http_idem_loc_conf_t *conf, ngx_http_idem_loc_conf_t *prev)
{
    ngx_http_idem_heritage_t  *heritage = &prev->heritage;

    if (prev->parent == NULL) {                /* http{} has no parent to merge with */
        heritage->key = prev->key;
        heritage->fingerprint = prev->fingerprint;
        heritage->fingerprint_expr = prev->fingerprint_expr;
        heritage->release = prev->release;
    }

    ngx_conf_merge_ptr_value(conf->key, heritage->key, NULL);
    ngx_conf_merge_ptr_value(conf->release, heritage->release, NULL);

    if (conf->fingerprint == 0) {
        conf->fingerprint = heritage->fingerprint;
        conf->fingerprint_expr = heritage->fingerprint_expr;
    }

    conf->heritage.key = conf->key;
    conf->heritage.fingerprint = conf->fingerprint;
    conf->heritage.fingerprint_expr = conf->fingerprint_expr;
    conf->heritage.release = conf->release;
}


/* Inherits what this level does not set. */

static void
ngx_http_idem_conf_merge_values(ngx_http_idem_loc_conf_t *conf, ngx_http_idem_loc_conf_t *prev)
{
    conf->parent = prev;

    if (conf->on == NGX_CONF_UNSET) {
        conf->on = conf->layer.policy.preset ? 1 : prev->on;
    }

    if (conf->file == NULL) {
        conf->file = prev->file;
        conf->line = prev->line;
    }

    ngx_http_idem_conf_inherit(conf, prev);

    if (conf->sign == NGX_CONF_UNSET_PTR) {
        conf->sign_file = prev->sign_file;
        conf->sign_line = prev->sign_line;
    }

    if (conf->probe == NGX_CONF_UNSET_PTR) {
        conf->probe_type = prev->probe_type;
    }

    ngx_conf_merge_ptr_value(conf->store, prev->store, NULL);
    ngx_conf_merge_ptr_value(conf->sign, prev->sign, NULL);
    ngx_conf_merge_ptr_value(conf->scope, prev->scope, NULL);
    ngx_conf_merge_ptr_value(conf->probe, prev->probe, NULL);
    ngx_conf_merge_ptr_value(conf->label, prev->label, NULL);
    ngx_conf_merge_ptr_value(conf->bind, prev->bind, NULL);
    ngx_conf_merge_ptr_value(conf->enforce, prev->enforce, NULL);
    ngx_conf_merge_ptr_value(conf->headers, prev->headers, NULL);
    ngx_conf_merge_ptr_value(conf->methods, prev->methods, NULL);
}


/* Fills in defaults that depend on other settings. */

static ngx_int_t
ngx_http_idem_conf_merge_defaults(ngx_conf_t *cf, ngx_http_idem_loc_conf_t *conf)
{
    if (conf->key == NULL) {
        conf->key = ngx_http_idem_conf_default_key(cf, conf);
    }

    if (conf->headers == NULL) {
        conf->headers = ngx_array_create(cf->pool, 1, sizeof(struct idem_http_text));
    }

    if (conf->release == NULL) {
        conf->release = ngx_http_idem_conf_default_release(cf, conf);
    }

    return conf->key && conf->headers && conf->release ? NGX_OK : NGX_ERROR;
}


static ngx_int_t
ngx_http_idem_conf_merge_fingerprint(ngx_conf_t *cf, ngx_http_idem_loc_conf_t *conf,
    ngx_http_idem_loc_conf_t *prev)
{
    if (conf->policy->mode != IDEM_MODE_LOCK) {

        if (conf->fingerprint == 0) {
            conf->fingerprint = ngx_http_idem_conf_default_fingerprint(cf, conf->key);
        }

        return NGX_OK;
    }

    if (conf->fingerprint & ~NGX_HTTP_IDEM_FINGERPRINT_NONE
        && conf->fingerprint != prev->heritage.fingerprint)
    {
        return ngx_http_idem_check_report(cf, NGX_LOG_EMERG, conf,
                   "idem lock and idem_fingerprint exclude each other: a lock compares nothing");
    }

    conf->fingerprint = NGX_HTTP_IDEM_FINGERPRINT_NONE;

    return NGX_OK;
}


static ngx_int_t
ngx_http_idem_conf_add_location(ngx_conf_t *cf, ngx_array_t *locations,
    ngx_http_idem_loc_conf_t *conf)
{
    ngx_http_idem_location_t  *location;

    location = ngx_array_push(locations);
    if (location == NULL) {
        return NGX_ERROR;
    }

    location->conf = conf;
    location->server = ngx_http_conf_get_module_srv_conf(cf, ngx_http_core_module);
    location->clcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);
    location->loc_conf = ((ngx_http_conf_ctx_t *) cf->ctx)->loc_conf;

    return NGX_OK;
}


/* Merges a guard, or a location that issues its tokens. */

static ngx_int_t
ngx_http_idem_conf_merge_guard(ngx_conf_t *cf, ngx_http_idem_loc_conf_t *conf,
    ngx_http_idem_loc_conf_t *prev)
{
    ngx_http_core_loc_conf_t   *clcf;
    ngx_http_idem_main_conf_t  *imcf;

    if (conf->store == NULL) {
        return ngx_http_idem_check_report(cf, NGX_LOG_EMERG, conf,
                   "idem_store is missing: name the store that remembers keys (idem_store "
                   "lmdb:/var/lib/nginx/idem;)");
    }

    if (ngx_http_idem_conf_merge_defaults(cf, conf) != NGX_OK
        || ngx_http_idem_conf_make_guard(cf, conf) != NGX_OK)
    {
        return NGX_ERROR;
    }

    clcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);

    if (conf->issues && clcf->handler != ngx_http_idem_token_handler) {
        ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                      "idem: idem_token and another handler (proxy_pass, fastcgi_pass, "
                      "idem_js) exclude each other: nothing would be guarded there; give "
                      "each its own location, instead of \"%V\" in %s:%ui", &clcf->name,
                      conf->file, conf->line);
        return NGX_ERROR;
    }

    if (conf->issues) {
        return NGX_OK;
    }

    if (ngx_http_idem_conf_merge_fingerprint(cf, conf, prev) != NGX_OK) {
        return NGX_ERROR;
    }

    imcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_idem_module);

    return ngx_http_idem_conf_add_location(cf, &imcf->guarded, conf);
}


/* Compares names: nginx has one number for all methods it does not know. */

ngx_uint_t
ngx_http_idem_conf_is_guarded(ngx_http_request_t *r, ngx_http_idem_loc_conf_t *conf)
{
    ngx_str_t   *names;
    ngx_uint_t   i, n;

    names = ngx_http_idem_default_methods;
    n = sizeof(ngx_http_idem_default_methods) / sizeof(ngx_str_t);

    if (conf->methods) {
        names = conf->methods->elts;
        n = conf->methods->nelts;
    }

    for (i = 0; i < n; i++) {
        if (idem_same(r->method_name.data, r->method_name.len, names[i].data, names[i].len)) {
            return 1;
        }
    }

    return 0;
}


char *
ngx_http_idem_conf_merge_loc(ngx_conf_t *cf, void *parent, void *child)
{
    ngx_http_core_loc_conf_t   *clcf;
    ngx_http_idem_loc_conf_t   *prev = parent;
    ngx_http_idem_loc_conf_t   *conf = child;
    ngx_http_idem_main_conf_t  *imcf;

    imcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_idem_module);

    ngx_http_idem_conf_merge_values(conf, prev);

    if (conf->sign && conf->store == NULL) {
        ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                      "idem: idem_store is missing: name the store that remembers nonces "
                      "(idem_store lmdb:/var/lib/nginx/idem;), for idem_sign in %s:%ui",
                      conf->sign_file, conf->sign_line);
        return NGX_CONF_ERROR;
    }

    clcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);

    if (conf->admin && clcf->handler != ngx_http_idem_admin_handler) {
        ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                      "idem: idem_admin and another handler (proxy_pass, idem_status) exclude each "
                      "other; give each its own location, instead of \"%V\"", &clcf->name);
        return NGX_CONF_ERROR;
    }

    if (conf->admin == NULL) {
        conf->admin = prev->admin;         /* an "if" keeps the handler of its location */
    }

    if (conf->hosts == NULL) {
        conf->hosts = prev->hosts;

    } else if (ngx_http_idem_location_copy_names(cf, conf->hosts) != NGX_OK) {
        return NGX_CONF_ERROR;
    }

    if (conf->shows) {                     /* such a location inherits no guard */
        return NGX_CONF_OK;
    }

    if ((conf->sign || conf->on == 1 || conf->issues)
        && ngx_http_idem_conf_add_location(cf, &imcf->routes, conf) != NGX_OK)
    {
        return NGX_CONF_ERROR;
    }

    if ((conf->on == 1 || conf->issues)
        && ngx_http_idem_conf_merge_guard(cf, conf, prev) != NGX_OK)
    {
        return NGX_CONF_ERROR;
    }

    return ngx_http_idem_strip_find_deciders(cf, conf) == NGX_OK ? NGX_CONF_OK : NGX_CONF_ERROR;
}
