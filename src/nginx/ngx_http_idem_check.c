
/*
 * Checks of the whole configuration that no single directive can do. nginx -t
 * reports them with the place of the guard.
 */

#include "ngx_http_idem.h"
#include "base/units.h"
#include "base/url.h"
#include "base/user.h"


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


/*
 * Returns a location's configuration of another module. For upstream modules it
 * begins with ngx_http_upstream_conf_t.
 */

static void *
ngx_http_idem_check_module_conf(volatile ngx_cycle_t *cycle, void **loc_conf, ngx_str_t *name)
{
    ngx_uint_t     i;
    ngx_module_t  *module;

    for (i = 0; cycle->modules[i]; i++) {
        module = cycle->modules[i];

        if (idem_is_word(name->data, name->len, module->name)) {
            return loc_conf[module->ctx_index];
        }
    }

    return NULL;
}


/* Logs a fault with the place of its guard. Returns NGX_ERROR. */

ngx_int_t
ngx_http_idem_check_report(ngx_conf_t *cf, ngx_uint_t level, ngx_http_idem_loc_conf_t *conf,
    const char *fmt, ...)
{
    u_char    text[NGX_MAX_CONF_ERRSTR], *last;
    va_list   args;

    va_start(args, fmt);
    last = ngx_vslprintf(text, text + sizeof(text), fmt, args);
    va_end(args);

    ngx_log_error(level, cf->log, 0, "idem: %*s; for the guard in %s:%ui",
                  (size_t) (last - text), text, conf->file, conf->line);

    return NGX_ERROR;
}


static ngx_int_t
ngx_http_idem_check_upstream(ngx_conf_t *cf, ngx_http_idem_location_t *guarded,
    ngx_http_upstream_conf_t *ucf)
{
    ngx_http_idem_loc_conf_t  *conf = guarded->conf;

    if (!ucf->request_buffering) {
        return ngx_http_idem_check_report(cf, NGX_LOG_EMERG, conf,
                   "a guard and proxy_request_buffering off (fastcgi_, uwsgi_, scgi_) exclude "
                   "each other: the key is claimed before the backend is asked; in location \"%V\"",
                   &guarded->clcf->name);
    }

    if (ucf->next_upstream & NGX_HTTP_UPSTREAM_FT_NON_IDEMPOTENT) {
        return ngx_http_idem_check_report(cf, NGX_LOG_EMERG, conf,
                   "a guard and proxy_next_upstream non_idempotent exclude each other: a request "
                   "that was sent is never sent to a second server; in location \"%V\"",
                   &guarded->clcf->name);
    }

    return NGX_OK;
}


/*
 * idem_ttl bounds how long duplicates are refused. A client whose backend takes
 * longer would retry with a key that is already forgotten.
 */

static void
ngx_http_idem_check_ttl(ngx_conf_t *cf, ngx_http_idem_location_t *guarded,
    ngx_http_upstream_conf_t *ucf)
{
    ngx_http_idem_loc_conf_t  *conf = guarded->conf;

    if (conf->policy->mode == IDEM_MODE_REJECT
        && (int64_t) ucf->read_timeout > conf->policy->ttl_s * 1000)
    {
        (void) ngx_http_idem_check_report(cf, NGX_LOG_WARN, conf,
                   "idem_ttl of %L s is shorter than the %M ms that the backend may take: a "
                   "client's retry after a timeout would run again; in location \"%V\"",
                   conf->policy->ttl_s, ucf->read_timeout, &guarded->clcf->name);
    }
}


/*
 * Collects the upstream configurations that a location may use. If a variable
 * names the backend (fastcgi_pass $name), its kind is unknown, and the settings
 * of every kind count.
 */

static ngx_uint_t
ngx_http_idem_check_backends(volatile ngx_cycle_t *cycle, void **loc_conf,
    ngx_http_upstream_conf_t **ret)
{
    ngx_str_t                 *name;
    ngx_uint_t                 n;
    ngx_http_upstream_conf_t  *ucf;

    n = 0;

    for (name = ngx_http_idem_upstreams; name->len; name++) {
        ucf = ngx_http_idem_check_module_conf(cycle, loc_conf, name);

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


/*
 * True if nginx would send a request to a second server after it asked the first
 * one. Guarded locations refuse this setting, but a request may be redirected to
 * others.
 */

ngx_uint_t
ngx_http_idem_check_sends_twice(ngx_http_request_t *r)
{
    ngx_uint_t                 i, n;
    ngx_http_upstream_conf_t  *backends[NGX_HTTP_IDEM_KINDS];

    n = ngx_http_idem_check_backends(ngx_cycle, r->loc_conf, backends);

    for (i = 0; i < n; i++) {
        if (backends[i]->next_upstream & NGX_HTTP_UPSTREAM_FT_NON_IDEMPOTENT) {
            return 1;
        }
    }

    return 0;
}


static ngx_int_t
ngx_http_idem_check_backend(ngx_conf_t *cf, ngx_http_idem_location_t *guarded)
{
    ngx_uint_t                 i, n;
    ngx_http_upstream_conf_t  *ucf, *backends[NGX_HTTP_IDEM_KINDS];
    ngx_http_idem_loc_conf_t  *conf = guarded->conf;

    ucf = ngx_http_idem_check_module_conf(cf->cycle, guarded->loc_conf, &ngx_http_idem_grpc);

    if (ucf && ucf->upstream) {
        return ngx_http_idem_check_report(cf, NGX_LOG_EMERG, conf,
                   "a guard and grpc_pass exclude each other: the outcome of a call is in its "
                   "trailers, which are neither read nor kept; set \"idem off;\" in location "
                   "\"%V\"", &guarded->clcf->name);
    }

    n = ngx_http_idem_check_backends(cf->cycle, guarded->loc_conf, backends);

    for (i = 0; i < n; i++) {
        if (ngx_http_idem_check_upstream(cf, guarded, backends[i]) != NGX_OK) {
            return NGX_ERROR;
        }
    }

    if (n) {
        ngx_http_idem_check_ttl(cf, guarded, backends[0]);
    }

    return NGX_OK;
}


/*
 * Refuses variables of idem_set in `set`, `if` and `rewrite`. Their program is
 * an array of codes; a code that reads a variable is a function, followed by the
 * variable's index.
 */

static ngx_int_t
ngx_http_idem_check_rewrite(ngx_conf_t *cf, ngx_http_idem_location_t *guarded, void **loc_conf)
{
    size_t                      i, n;
    ngx_str_t                  *name;
    uintptr_t                  *words;
    ngx_array_t               **codes;
    ngx_http_variable_t        *indexed;
    ngx_http_core_main_conf_t  *cmcf;

    /* its first member is ngx_array_t *codes */

    codes = ngx_http_idem_check_module_conf(cf->cycle, loc_conf, &ngx_http_idem_rewrite);

    if (codes == NULL || *codes == NULL) {
        return NGX_OK;
    }

    cmcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_core_module);
    indexed = cmcf->variables.elts;
    words = (*codes)->elts;
    n = (*codes)->nelts * (*codes)->size / sizeof(uintptr_t);

    for (i = 0; i + 1 < n; i++) {

        if ((words[i] != (uintptr_t) ngx_http_script_var_code
             && words[i] != (uintptr_t) ngx_http_script_copy_var_code)
            || words[i + 1] >= cmcf->variables.nelts)
        {
            continue;
        }

        name = &indexed[words[i + 1]].name;

        if (ngx_http_idem_variable_find_set(cf, name)) {
            return ngx_http_idem_check_report(cf, NGX_LOG_EMERG, guarded->conf,
                       "\"$%V\", which idem_set makes of the request, is read by \"set\", \"if\" "
                       "or \"rewrite\": those run before the body is there; use it in idem_ "
                       "directives, headers and logs", name);
        }
    }

    return NGX_OK;
}


/*
 * Transaction rows need a SQL database, and a name that the backend can make
 * from the headers it gets.
 */

static ngx_int_t
ngx_http_idem_check_probe_tx(ngx_conf_t *cf, ngx_http_idem_loc_conf_t *conf)
{
    if (conf->probe == NULL || conf->probe_type == NULL) {
        return NGX_OK;
    }

    if (!idem_store_has_transactions((char *) conf->store->url.data)) {
        return ngx_http_idem_check_report(cf, NGX_LOG_EMERG, conf,
                   "idem_probe tx needs idem_store postgres: or mysql:, the database in which the "
                   "backend commits");
    }

    if (conf->key->kind == NGX_HTTP_IDEM_KEY_TOKEN) {
        return ngx_http_idem_check_report(cf, NGX_LOG_EMERG, conf,
                   "idem_probe tx and idem_key token exclude each other: a token names no row of "
                   "the backend's");
    }

    return NGX_OK;
}


ngx_int_t
ngx_http_idem_check(ngx_conf_t *cf, ngx_http_idem_location_t *guarded)
{
    ngx_http_core_loc_conf_t  *clcf = guarded->clcf;
    ngx_http_idem_loc_conf_t  *conf = guarded->conf;

    if (conf->key->kind == NGX_HTTP_IDEM_KEY_PARAMS && conf->scope == NULL) {
        return ngx_http_idem_check_report(cf, NGX_LOG_EMERG, conf,
                   "idem_key params and idem_scope none exclude each other: two users who send "
                   "the same would be one");
    }

    if (ngx_http_idem_check_probe_tx(cf, conf) != NGX_OK
        || ngx_http_idem_check_rewrite(cf, guarded, guarded->loc_conf) != NGX_OK
        || ngx_http_idem_check_rewrite(cf, guarded, guarded->server->ctx->loc_conf) != NGX_OK)
    {
        return NGX_ERROR;
    }

    if (conf->key->kind == NGX_HTTP_IDEM_KEY_TOKEN && conf->policy->mode == IDEM_MODE_LOCK) {
        (void) ngx_http_idem_check_report(cf, NGX_LOG_WARN, conf,
                   "under idem lock a token runs as often as it comes, one at a time, until "
                   "idem_ttl after its last use; use \"idem reject;\" for once");
    }

    if (ngx_http_idem_probe_sweep_is_wanted(conf)
        && !ngx_http_idem_probe_sweep_is_possible(cf->pool, conf))
    {
        (void) ngx_http_idem_check_report(cf, NGX_LOG_WARN, conf,
                   "idem_probe \"%V\" uses the request: it cannot probe in the background, where "
                   "there is none; $idem_downstream_key, $idem_key_hash and $idem_attempt are "
                   "known there", &conf->probe->value);
    }

    if (clcf->handler == NULL) {

        if (clcf->name.len && conf->parent && conf->file != conf->parent->file) {
            (void) ngx_http_idem_check_report(cf, NGX_LOG_WARN, conf,
                       "location \"%V\" has a guard and no backend (proxy_pass, fastcgi_pass, "
                       "uwsgi_pass); note that \"return\" and \"rewrite\" answer before the guard",
                       &clcf->name);
        }

        return NGX_OK;
    }

    return ngx_http_idem_check_backend(cf, guarded);
}


/*
 * Returns the longest window before a reload, or 0 if it is not known: with
 * nginx -t, at a start, or if the module was not loaded or was another build.
 */

static int64_t
ngx_http_idem_check_previous_window(ngx_cycle_t *old)
{
    ngx_uint_t                  i;
    ngx_http_idem_main_conf_t  *imcf;

    if (old == NULL || ngx_is_init_cycle(old)) {
        return 0;
    }

    for (i = 0; old->modules[i]; i++) {

        if (old->modules[i] == &ngx_http_idem_module) {
            imcf = ngx_http_cycle_get_module_main_conf(old, ngx_http_idem_module);
            return imcf ? imcf->longest : 0;
        }
    }

    return 0;
}


/*
 * The store keeps a nonce until its request is too old for the longest window of
 * the whole configuration. Looking only at guards with the same store and secrets
 * is not enough: two URLs may name one store, and two files may hold one secret.
 *
 * Warns if a request whose nonce was stored earlier could be accepted again.
 * Sequences are left out: their memory does not expire.
 */

static void
ngx_http_idem_check_windows(ngx_conf_t *cf, ngx_http_idem_main_conf_t *imcf)
{
    char                     window[IDEM_UNITS_TEXT], safe[IDEM_UNITS_TEXT];
    ngx_uint_t               i;
    ngx_http_idem_signer_t  *signers, *longest;

    signers = imcf->signers.elts;
    longest = NULL;

    for (i = 0; i < imcf->signers.nelts; i++) {

        if (signers[i].signer->sequence == IDEM_SEQUENCE_OFF
            && signers[i].signer->window_ms > imcf->longest)
        {
            longest = &signers[i];
            imcf->longest = longest->signer->window_ms;
        }
    }

    for (i = 0; i < imcf->signers.nelts; i++) {
        signers[i].signer->longest_ms = imcf->longest;
    }

    if (longest == NULL
        || idem_nonce_outlives(ngx_http_idem_check_previous_window(cf->cycle->old_cycle),
                               imcf->longest))
    {
        return;
    }

    idem_duration_print(imcf->longest, window, sizeof(window));
    idem_duration_print(IDEM_NONCE_WINDOW_MS, safe, sizeof(safe));

    ngx_log_error(NGX_LOG_WARN, cf->log, 0,
                  "idem: window=%s can make nonces reusable: while the longest window was shorter, "
                  "nonces may have been stored for less time than it lets requests in, and a "
                  "request captured then could be accepted once more; use new key ids when you "
                  "widen it, or a window of at most %s; for idem_sign in %s:%ui",
                  window, safe, longest->file, longest->line);
}


/*
 * A number that was taken by a sequence is not a nonce that was used, nor the other way round: a
 * request that was captured before one is accepted by the other, if it is good there. Locations of
 * one server have paths of their own, which are signed; two servers may have the same path.
 */

static void
ngx_http_idem_check_sequences(ngx_conf_t *cf, ngx_http_idem_main_conf_t *imcf)
{
    ngx_uint_t               i, k;
    ngx_http_idem_signer_t  *signers = imcf->signers.elts;

    for (i = 0; i < imcf->signers.nelts; i++) {
        for (k = 0; k < i; k++) {

            if (signers[i].server == signers[k].server
                || signers[i].signer->form != signers[k].signer->form
                || (signers[i].signer->sequence == IDEM_SEQUENCE_OFF)
                   == (signers[k].signer->sequence == IDEM_SEQUENCE_OFF)
                || !idem_keyring_shares_key(signers[i].signer->keyring,
                                            signers[k].signer->keyring))
            {
                continue;
            }

            ngx_log_error(NGX_LOG_WARN, cf->log, 0,
                          "idem: a request that was captured before one of two servers can be "
                          "accepted by the other, if it has the same path: they have a key in "
                          "common, and only one has sequence=; set it for both, or give each "
                          "keys of its own; for idem_sign in %s:%ui and %s:%ui", signers[k].file,
                          signers[k].line, signers[i].file, signers[i].line);
            return;
        }
    }
}


void
ngx_http_idem_check_signers(ngx_conf_t *cf, ngx_http_idem_main_conf_t *imcf)
{
    ngx_http_idem_check_windows(cf, imcf);
    ngx_http_idem_check_sequences(cf, imcf);
}


static void
ngx_http_idem_check_store(const struct idem_user *user, ngx_http_idem_store_t *store)
{
    ngx_err_t        err;
    struct idem_url  url;

    if (idem_user_may(user, idem_store_may_open, (char *) store->url.data)) {
        return;
    }

    err = ngx_errno;

    if (idem_url_parse((char *) store->url.data, &url, NULL) != 0) {
        return;
    }

    /* not to the log, whose level may be higher */
    ngx_log_stderr(0, "[warn] idem: idem_store %s:%s: the workers' user \"%s\" cannot open "
                   "this directory (%d: %s), so that guarded requests get 503; give it to that "
                   "user: %s %s '%s'", url.scheme, url.rest, user->name, err, strerror(err),
                   access(url.rest, F_OK) == 0 ? "chown -R" : "install -d -m 700 -o", user->name,
                   url.rest);

    idem_url_release(&url);
}


/*
 * Warns of embedded stores that the workers cannot open. By nginx -t only, and
 * only for root: other users start workers that are themselves. The user is known
 * once the whole configuration is read.
 */

ngx_int_t
ngx_http_idem_check_stores(ngx_cycle_t *cycle)
{
    ngx_uint_t                  i;
    ngx_core_conf_t            *ccf;
    struct idem_user            user;
    ngx_http_idem_store_t     **stores;
    ngx_http_idem_main_conf_t  *imcf;

    imcf = ngx_http_cycle_get_module_main_conf(cycle, ngx_http_idem_module);
    ccf = (ngx_core_conf_t *) ngx_get_conf(cycle->conf_ctx, ngx_core_module);

    if (imcf == NULL || ccf->username == NULL || !ngx_test_config || geteuid() != 0) {
        return NGX_OK;
    }

    user.name = ccf->username;
    user.uid = ccf->user;
    user.gid = ccf->group;
    stores = imcf->stores.elts;

    for (i = 0; i < imcf->stores.nelts; i++) {
        ngx_http_idem_check_store(&user, stores[i]);
    }

    return NGX_OK;
}
