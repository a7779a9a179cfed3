
/*
 * What a whole configuration says that a single directive does not show: told by
 * nginx -t, with the place of the guard.
 */

#include "ngx_http_idem.h"


static ngx_str_t  ngx_http_idem_upstreams[] = {
    ngx_string("ngx_http_proxy_module"),
    ngx_string("ngx_http_fastcgi_module"),
    ngx_string("ngx_http_uwsgi_module"),
    ngx_string("ngx_http_scgi_module"),
    ngx_null_string
};

#define NGX_HTTP_IDEM_KINDS  (sizeof(ngx_http_idem_upstreams) / sizeof(ngx_str_t) - 1)


static ngx_str_t  ngx_http_idem_grpc = ngx_string("ngx_http_grpc_module");
static ngx_str_t  ngx_http_idem_rewrite = ngx_string("ngx_http_rewrite_module");


/* What another module keeps for a location; that of an upstream begins with its
   ngx_http_upstream_conf_t. */

static void *
ngx_http_idem_module_conf(volatile ngx_cycle_t *cycle, void **loc_conf, ngx_str_t *name)
{
    ngx_uint_t     i;
    ngx_module_t  *module;

    for (i = 0; cycle->modules[i]; i++) {
        module = cycle->modules[i];

        if (ngx_strlen(module->name) == name->len
            && ngx_strncmp(module->name, name->data, name->len) == 0)
        {
            return loc_conf[module->ctx_index];
        }
    }

    return NULL;
}


static ngx_int_t
ngx_http_idem_check_upstream(ngx_conf_t *cf, ngx_http_idem_guarded_t *guarded,
    ngx_http_upstream_conf_t *ucf)
{
    ngx_http_idem_loc_conf_t  *conf = guarded->conf;

    if (!ucf->request_buffering) {
        ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                      "idem: a guard and proxy_request_buffering off (fastcgi_, uwsgi_, scgi_) "
                      "exclude each other: the key is claimed before the backend is asked; "
                      "in location \"%V\", for the guard in %s:%ui",
                      &guarded->clcf->name, conf->file, conf->line);
        return NGX_ERROR;
    }

    if (ucf->next_upstream & NGX_HTTP_UPSTREAM_FT_NON_IDEMPOTENT) {
        ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                      "idem: a guard and proxy_next_upstream non_idempotent exclude each other: "
                      "a request that was sent is never sent to a second server; "
                      "in location \"%V\", for the guard in %s:%ui",
                      &guarded->clcf->name, conf->file, conf->line);
        return NGX_ERROR;
    }

    return NGX_OK;
}


/* Duplicates are refused while ttl lasts: a client that is still waiting when it ends comes back to
   a key that nobody remembers. */

static void
ngx_http_idem_check_ttl(ngx_conf_t *cf, ngx_http_idem_guarded_t *guarded,
    ngx_http_upstream_conf_t *ucf)
{
    ngx_http_idem_loc_conf_t  *conf = guarded->conf;

    if (conf->policy->mode == IDEM_MODE_REJECT
        && (int64_t) ucf->read_timeout > conf->policy->ttl_s * 1000)
    {
        ngx_log_error(NGX_LOG_WARN, cf->log, 0,
                      "idem: idem_ttl of %L s is shorter than the %M ms that the backend may "
                      "take: a client's retry after a time-out would run again; "
                      "in location \"%V\", for the guard in %s:%ui",
                      conf->policy->ttl_s, ucf->read_timeout, &guarded->clcf->name, conf->file,
                      conf->line);
    }
}


/*
 * What is said for the backend of a location, by one kind of backend after the other. Where it is
 * named by a variable (fastcgi_pass $name), nobody tells of which kind it is, and what is said for
 * any of them counts.
 */

static ngx_uint_t
ngx_http_idem_backends(volatile ngx_cycle_t *cycle, void **loc_conf,
    ngx_http_upstream_conf_t **ret)
{
    ngx_str_t                 *name;
    ngx_uint_t                 n;
    ngx_http_upstream_conf_t  *ucf;

    n = 0;

    for (name = ngx_http_idem_upstreams; name->len; name++) {
        ucf = ngx_http_idem_module_conf(cycle, loc_conf, name);

        if (ucf && ucf->upstream) {
            ret[0] = ucf;
            return 1;
        }

        if (ucf) {
            ret[n++] = ucf;
        }
    }

    return n;
}


/* Whether nginx would send a request to a second server after the first one was asked. It is
   refused in guarded locations; a request may be redirected to others. */

ngx_uint_t
ngx_http_idem_sends_again(ngx_http_request_t *r)
{
    ngx_uint_t                 i, n;
    ngx_http_upstream_conf_t  *said[NGX_HTTP_IDEM_KINDS];

    n = ngx_http_idem_backends(ngx_cycle, r->loc_conf, said);

    for (i = 0; i < n; i++) {
        if (said[i]->next_upstream & NGX_HTTP_UPSTREAM_FT_NON_IDEMPOTENT) {
            return 1;
        }
    }

    return 0;
}


static ngx_int_t
ngx_http_idem_check_backend(ngx_conf_t *cf, ngx_http_idem_guarded_t *guarded)
{
    ngx_uint_t                 i, n;
    ngx_http_upstream_conf_t  *ucf, *said[NGX_HTTP_IDEM_KINDS];
    ngx_http_idem_loc_conf_t  *conf = guarded->conf;

    ucf = ngx_http_idem_module_conf(cf->cycle, guarded->loc_conf, &ngx_http_idem_grpc);

    if (ucf && ucf->upstream) {
        ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                      "idem: a guard and grpc_pass exclude each other: what came of a call stands "
                      "in its trailers, which are neither read nor kept; say \"idem off;\" in "
                      "location \"%V\", for the guard in %s:%ui",
                      &guarded->clcf->name, conf->file, conf->line);
        return NGX_ERROR;
    }

    n = ngx_http_idem_backends(cf->cycle, guarded->loc_conf, said);

    for (i = 0; i < n; i++) {
        if (ngx_http_idem_check_upstream(cf, guarded, said[i]) != NGX_OK) {
            return NGX_ERROR;
        }
    }

    if (n) {
        ngx_http_idem_check_ttl(cf, guarded, said[0]);
    }

    return NGX_OK;
}


/*
 * What `set`, `if` and `rewrite` read: their program is a run of codes, of which
 * those that read a variable are a function and the variable's index.
 */

static ngx_int_t
ngx_http_idem_check_rewrite(ngx_conf_t *cf, ngx_http_idem_guarded_t *guarded, void **loc_conf)
{
    size_t                      i, n;
    ngx_array_t               **codes;
    uintptr_t                  *words;
    ngx_hash_key_t             *keys;
    ngx_uint_t                  k;
    ngx_http_variable_t        *indexed;
    ngx_http_core_main_conf_t  *cmcf;

    /* its first member is ngx_array_t *codes */

    codes = ngx_http_idem_module_conf(cf->cycle, loc_conf, &ngx_http_idem_rewrite);

    if (codes == NULL || *codes == NULL) {
        return NGX_OK;
    }

    cmcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_core_module);
    indexed = cmcf->variables.elts;
    keys = cmcf->variables_keys->keys.elts;
    words = (*codes)->elts;
    n = (*codes)->nelts * (*codes)->size / sizeof(uintptr_t);

    for (i = 0; i + 1 < n; i++) {

        if ((words[i] != (uintptr_t) ngx_http_script_var_code
             && words[i] != (uintptr_t) ngx_http_script_copy_var_code)
            || words[i + 1] >= cmcf->variables.nelts)
        {
            continue;
        }

        for (k = 0; k < cmcf->variables_keys->keys.nelts; k++) {

            if (keys[k].key.len == indexed[words[i + 1]].name.len
                && ngx_strncmp(keys[k].key.data, indexed[words[i + 1]].name.data,
                               keys[k].key.len)
                   == 0
                && ngx_http_idem_is_set(keys[k].value))
            {
                ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                              "idem: \"$%V\", which idem_set makes of the request, is read by "
                              "\"set\", \"if\" or \"rewrite\": those run before the body is "
                              "there; use it in idem_ directives, headers and logs; for the "
                              "guard in %s:%ui", &keys[k].key, guarded->conf->file,
                              guarded->conf->line);
                return NGX_ERROR;
            }
        }
    }

    return NGX_OK;
}


/* Rows of the backend's transactions are in a SQL database, and have the name that the backend can
   make of what it is told. */

static ngx_int_t
ngx_http_idem_check_row(ngx_conf_t *cf, ngx_http_idem_loc_conf_t *conf)
{
    if (conf->probe == NULL || conf->probe_type == NULL) {
        return NGX_OK;
    }

    if (!idem_store_has_transactions((char *) conf->store->url.data)) {
        ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                      "idem: idem_probe tx needs idem_store postgres: or mysql:, the database in "
                      "which the backend commits; for the guard in %s:%ui", conf->file,
                      conf->line);
        return NGX_ERROR;
    }

    if (conf->key->kind == NGX_HTTP_IDEM_KEY_TOKEN) {
        ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                      "idem: idem_probe tx and idem_key token exclude each other: a token names "
                      "no row of the backend's; for the guard in %s:%ui", conf->file,
                      conf->line);
        return NGX_ERROR;
    }

    return NGX_OK;
}


ngx_int_t
ngx_http_idem_check(ngx_conf_t *cf, ngx_http_idem_guarded_t *guarded)
{
    ngx_http_core_loc_conf_t  *clcf = guarded->clcf;
    ngx_http_idem_loc_conf_t  *conf = guarded->conf;

    if (conf->key->kind == NGX_HTTP_IDEM_KEY_PARAMS && conf->scope == NULL) {
        ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                      "idem: idem_key params and idem_scope none exclude each other: two users "
                      "who send the same would be one; for the guard in %s:%ui",
                      conf->file, conf->line);
        return NGX_ERROR;
    }

    if (ngx_http_idem_check_row(cf, conf) != NGX_OK
        || ngx_http_idem_check_rewrite(cf, guarded, guarded->loc_conf) != NGX_OK
        || ngx_http_idem_check_rewrite(cf, guarded, guarded->server->ctx->loc_conf) != NGX_OK)
    {
        return NGX_ERROR;
    }

    if (conf->key->kind == NGX_HTTP_IDEM_KEY_TOKEN && conf->policy->mode == IDEM_MODE_LOCK) {
        ngx_log_error(NGX_LOG_WARN, cf->log, 0,
                      "idem: under idem lock a token runs as often as it comes, one at a time, "
                      "until idem_ttl after its last use; say \"idem reject;\" for once; for the "
                      "guard in %s:%ui", conf->file, conf->line);
    }

    if (ngx_http_idem_round_is_wanted(conf) && !ngx_http_idem_round_may_ask(conf)) {
        ngx_log_error(NGX_LOG_WARN, cf->log, 0,
                      "idem: idem_probe \"%V\" is made of the request: nobody is asked in the "
                      "background, where there is none; $idem_downstream_key, $idem_key_hash and "
                      "$idem_attempt are known there; for the guard in %s:%ui",
                      &conf->probe->value, conf->file, conf->line);
    }

    if (clcf->handler == NULL) {

        if (clcf->name.len && conf->parent && conf->file != conf->parent->file) {
            ngx_log_error(NGX_LOG_WARN, cf->log, 0,
                          "idem: location \"%V\" has a guard and no backend (proxy_pass, "
                          "fastcgi_pass, uwsgi_pass); note that \"return\" and \"rewrite\" "
                          "answer before the guard; for the guard in %s:%ui",
                          &clcf->name, conf->file, conf->line);
        }

        return NGX_OK;
    }

    return ngx_http_idem_check_backend(cf, guarded);
}
