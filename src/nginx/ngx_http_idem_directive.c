
/*
 * Parses the directives. The table in core/option.h parses words of a policy, as
 * everywhere else; the other directives are specific to HTTP.
 */

#include "ngx_http_idem.h"


/* GET, HEAD and OPTIONS change nothing; nginx itself refuses the other two. */

static const char  *ngx_http_idem_unguarded[] = {
    "GET", "HEAD", "OPTIONS", "TRACE", "CONNECT", NULL
};


/* Options of the policy. */

static char *
ngx_http_idem_directive_set_option(ngx_conf_t *cf, ngx_http_idem_loc_conf_t *conf, const char *word,
    ngx_str_t *value)
{
    struct idem_error  err;

    if (idem_policy_set(&conf->layer, word, ngx_strlen(word), (char *) value->data, value->len,
                        &err)
        != 0)
    {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "idem_%s", err.text);
        return NGX_CONF_ERROR;
    }

    return NGX_CONF_OK;
}


static void
ngx_http_idem_directive_mark_place(ngx_conf_t *cf, ngx_http_idem_loc_conf_t *conf)
{
    conf->file = cf->conf_file->file.name.data;
    conf->line = cf->conf_file->line;
}


char *
ngx_http_idem_directive_option(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_str_t                 *value;
    const char                *word;
    const struct idem_option  *option;
    ngx_http_idem_loc_conf_t  *ilcf = conf;
    char                       text[IDEM_OPTION_TEXT_MAX];

    value = cf->args->elts;
    word = (char *) cmd->name.data + sizeof("idem_") - 1;
    option = idem_option_find(word, ngx_strlen(word));

    if (ngx_strcmp(idem_option_print(option, &ilcf->layer.policy, text, sizeof(text)), "-") != 0) {
        return "is duplicate";
    }

    if (ngx_strcmp(word, "preset") == 0) {

        if (ngx_strcmp(value[1].data, "submit") != 0 && ngx_strcmp(value[1].data, "api") != 0
            && ngx_strcmp(value[1].data, "payment") != 0)
        {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "idem_preset: \"%V\" is not for requests; allowed: submit, api, "
                               "payment", &value[1]);
            return NGX_CONF_ERROR;
        }

        if (ilcf->file == NULL) {
            ngx_http_idem_directive_mark_place(cf, ilcf);
        }
    }

    return ngx_http_idem_directive_set_option(cf, ilcf, word, &value[1]);
}


char *
ngx_http_idem_directive_mode(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_str_t                 *value;
    struct idem_error          err;
    ngx_http_idem_loc_conf_t  *ilcf = conf;

    if (ilcf->on != NGX_CONF_UNSET) {
        return "is duplicate";
    }

    value = cf->args->elts;
    ilcf->on = 1;
    ngx_http_idem_directive_mark_place(cf, ilcf);

    if (ngx_strcmp(value[1].data, "off") == 0) {
        ilcf->on = 0;
        return NGX_CONF_OK;
    }

    if (idem_policy_set(&ilcf->layer, "mode", 4, (char *) value[1].data, value[1].len, &err)
        != 0)
    {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "idem %s, off", err.text);
        return NGX_CONF_ERROR;
    }

    return NGX_CONF_OK;
}


char *
ngx_http_idem_directive_store(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_str_t                 *value;
    struct idem_error          err;
    ngx_http_idem_loc_conf_t  *ilcf = conf;

    if (ilcf->store != NGX_CONF_UNSET_PTR) {
        return "is duplicate";
    }

    value = cf->args->elts;

    if (idem_store_check((char *) value[1].data, &err) != 0) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "idem_store: %s", err.text);
        return NGX_CONF_ERROR;
    }

    /* nginx does not change to its prefix: a relative path would depend on where it was started */

    if (ngx_strncasecmp(value[1].data, (u_char *) "lmdb:", 5) == 0 && value[1].data[5] != '/') {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "idem_store: \"%V\" is another store for each directory that nginx is "
                           "started in; write the whole path, as in lmdb:/var/lib/nginx/idem",
                           &value[1]);
        return NGX_CONF_ERROR;
    }

    ilcf->store = ngx_http_idem_store_add(cf, &value[1]);

    return ilcf->store ? NGX_CONF_OK : NGX_CONF_ERROR;
}


ngx_http_complex_value_t *
ngx_http_idem_directive_complex_value(ngx_conf_t *cf, ngx_str_t *value)
{
    ngx_http_complex_value_t          *cv;
    ngx_http_compile_complex_value_t   ccv;

    cv = ngx_palloc(cf->pool, sizeof(ngx_http_complex_value_t));
    if (cv == NULL) {
        return NULL;
    }

    ngx_memzero(&ccv, sizeof(ngx_http_compile_complex_value_t));
    ccv.cf = cf;
    ccv.value = value;
    ccv.complex_value = cv;

    return ngx_http_compile_complex_value(&ccv) == NGX_OK ? cv : NULL;
}


/* Sets a value with variables, or NULL if it is the word `none`. */

static char *
ngx_http_idem_directive_set_value(ngx_conf_t *cf, ngx_http_complex_value_t **slot,
    const char *none)
{
    ngx_str_t  *value = cf->args->elts;

    if (*slot != NGX_CONF_UNSET_PTR) {
        return "is duplicate";
    }

    if (ngx_strcmp(value[1].data, none) == 0) {
        *slot = NULL;
        return NGX_CONF_OK;
    }

    *slot = ngx_http_idem_directive_complex_value(cf, &value[1]);

    return *slot ? NGX_CONF_OK : NGX_CONF_ERROR;
}


static ngx_uint_t
ngx_http_idem_directive_has_variable(ngx_str_t *value)
{
    return ngx_strlchr(value->data, value->data + value->len, '$') != NULL;
}


char *
ngx_http_idem_directive_scope(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    char                      *rc;
    ngx_str_t                 *value = cf->args->elts, caller = ngx_string("caller");
    ngx_http_idem_loc_conf_t  *ilcf = conf;

    rc = ngx_http_idem_directive_set_value(cf, &ilcf->scope, "none");

    if (rc != NGX_CONF_OK) {
        return rc;
    }

    if (ilcf->scope && !ngx_http_idem_directive_has_variable(&value[1])) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "idem_scope: \"%V\" has no variable, and would be one scope for all "
                           "callers; identify the caller by what was checked ($remote_user under "
                           "auth_basic), or \"none\"", &value[1]);
        return NGX_CONF_ERROR;
    }

    return ngx_http_idem_directive_set_option(cf, ilcf, "scope",
                                              ilcf->scope ? &caller : &value[1]);
}


char *
ngx_http_idem_directive_fingerprint(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_str_t                 *value;
    ngx_uint_t                 i, k;
    ngx_http_idem_loc_conf_t  *ilcf = conf;

    static const struct {
        const char  *word;
        ngx_uint_t   part;
    } parts[] = {
        { "method", NGX_HTTP_IDEM_FINGERPRINT_METHOD },
        { "path", NGX_HTTP_IDEM_FINGERPRINT_PATH },
        { "query", NGX_HTTP_IDEM_FINGERPRINT_QUERY },
        { "body", NGX_HTTP_IDEM_FINGERPRINT_BODY },
        { "none", NGX_HTTP_IDEM_FINGERPRINT_NONE },
        { NULL, 0 }
    };

    if (ilcf->fingerprint) {
        return "is duplicate";
    }

    value = cf->args->elts;

    if (ngx_strlchr(value[1].data, value[1].data + value[1].len, '#')
        && cf->args->nelts == 2)
    {
        ilcf->fingerprint = NGX_HTTP_IDEM_FINGERPRINT_EXPR;
        ilcf->fingerprint_expr = ngx_http_idem_variable_compile(cf, &value[1]);

        return ilcf->fingerprint_expr ? NGX_CONF_OK : NGX_CONF_ERROR;
    }

    for (i = 1; i < cf->args->nelts; i++) {

        for (k = 0; parts[k].word; k++) {
            if (ngx_strcmp(value[i].data, parts[k].word) == 0) {
                break;
            }
        }

        if (parts[k].word == NULL || (ilcf->fingerprint & parts[k].part)
            || (parts[k].part == NGX_HTTP_IDEM_FINGERPRINT_NONE && cf->args->nelts > 2))
        {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "idem_fingerprint: \"%V\" is not understood; allowed: none, or "
                               "one or more of method, path, query, body, or one expression "
                               "('#body.amount')", &value[i]);
            return NGX_CONF_ERROR;
        }

        ilcf->fingerprint |= parts[k].part;
    }

    return NGX_CONF_OK;
}


/* Returns NULL, or why a method cannot be guarded. */

static const char *
ngx_http_idem_directive_method_error(ngx_array_t *methods, ngx_str_t *name)
{
    size_t       i;
    ngx_str_t   *names = methods->elts;
    ngx_uint_t   k;

    for (i = 0; i < name->len; i++) {
        if ((name->data[i] < 'A' || name->data[i] > 'Z') && name->data[i] != '-'
            && name->data[i] != '_')
        {
            return "no request can have this method: nginx refuses what is not made of capital "
                   "letters, - and _";
        }
    }

    for (k = 0; ngx_http_idem_unguarded[k]; k++) {
        if (ngx_strcmp(name->data, ngx_http_idem_unguarded[k]) == 0) {
            return "this method is never guarded";
        }
    }

    for (k = 0; k < methods->nelts; k++) {
        if (idem_same(name->data, name->len, names[k].data, names[k].len)) {
            return "this method is named twice";
        }
    }

    return name->len ? NULL : "the name is empty";
}


char *
ngx_http_idem_directive_methods(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_str_t                 *value, *name;
    ngx_uint_t                 i;
    const char                *wrong;
    ngx_http_idem_loc_conf_t  *ilcf = conf;

    if (ilcf->methods != NGX_CONF_UNSET_PTR) {
        return "is duplicate";
    }

    value = cf->args->elts;

    ilcf->methods = ngx_array_create(cf->pool, cf->args->nelts, sizeof(ngx_str_t));
    if (ilcf->methods == NULL) {
        return NGX_CONF_ERROR;
    }

    for (i = 1; i < cf->args->nelts; i++) {
        wrong = ngx_http_idem_directive_method_error(ilcf->methods, &value[i]);

        if (wrong) {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "idem_methods: \"%V\": %s; allowed: POST, PUT, PATCH, DELETE and "
                               "every other method except GET, HEAD, OPTIONS, TRACE and CONNECT",
                               &value[i], wrong);
            return NGX_CONF_ERROR;
        }

        name = ngx_array_push(ilcf->methods);
        if (name == NULL) {
            return NGX_CONF_ERROR;
        }

        *name = value[i];
    }

    return NGX_CONF_OK;
}


char *
ngx_http_idem_directive_release_status(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_int_t                  n;
    ngx_str_t                 *value;
    ngx_uint_t                 i, *status;
    ngx_http_idem_loc_conf_t  *ilcf = conf;

    if (ilcf->release != NGX_CONF_UNSET_PTR) {
        return "is duplicate";
    }

    value = cf->args->elts;
    ilcf->release = ngx_array_create(cf->pool, cf->args->nelts, sizeof(ngx_uint_t));

    if (ilcf->release == NULL) {
        return NGX_CONF_ERROR;
    }

    if (cf->args->nelts == 2 && ngx_strcmp(value[1].data, "none") == 0) {
        return NGX_CONF_OK;
    }

    for (i = 1; i < cf->args->nelts; i++) {
        n = ngx_atoi(value[i].data, value[i].len);

        if (n < 300 || n > 599) {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "idem_release_status: \"%V\" is no status; allowed: 300 to 599, "
                               "or none", &value[i]);
            return NGX_CONF_ERROR;
        }

        status = ngx_array_push(ilcf->release);
        if (status == NULL) {
            return NGX_CONF_ERROR;
        }

        *status = (ngx_uint_t) n;
    }

    return NGX_CONF_OK;
}


char *
ngx_http_idem_directive_replay_headers(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_str_t                 *value;
    ngx_uint_t                 i;
    const char                *why;
    struct idem_http_text     *name;
    ngx_http_idem_loc_conf_t  *ilcf = conf;

    if (ilcf->headers != NGX_CONF_UNSET_PTR) {
        return "is duplicate";
    }

    value = cf->args->elts;
    ilcf->headers = ngx_array_create(cf->pool, cf->args->nelts, sizeof(struct idem_http_text));

    if (ilcf->headers == NULL) {
        return NGX_CONF_ERROR;
    }

    if (cf->args->nelts == 2 && ngx_strcmp(value[1].data, "none") == 0) {
        return NGX_CONF_OK;
    }

    for (i = 1; i < cf->args->nelts; i++) {
        name = ngx_array_push(ilcf->headers);
        if (name == NULL) {
            return NGX_CONF_ERROR;
        }

        name->at = (char *) value[i].data;
        name->len = value[i].len;
        why = ngx_strcmp(value[i].data, "none") == 0 ? "stands alone, or not at all"
                                                     : idem_http_header_refused(*name);

        if (why) {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "idem_replay_headers: \"%V\" %s; allowed: names of headers, or "
                               "none", &value[i], why);
            return NGX_CONF_ERROR;
        }
    }

    return NGX_CONF_OK;
}


char *
ngx_http_idem_directive_enforce(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    char                      *rc;
    ngx_str_t                 *value = cf->args->elts;
    ngx_http_idem_loc_conf_t  *ilcf = conf;

    rc = ngx_http_idem_directive_set_value(cf, &ilcf->enforce, "on");

    if (rc == NGX_CONF_OK && ilcf->enforce && ngx_strcmp(value[1].data, "off") != 0
        && !ngx_http_idem_directive_has_variable(&value[1]))
    {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "idem_enforce: \"%V\" is not understood; allowed: on, off, or a value "
                           "with variables", &value[1]);
        return NGX_CONF_ERROR;
    }

    return rc;
}


/* idem_probe tx [type=...]: the media type of the results in transaction rows. */

static char *
ngx_http_idem_directive_probe_tx(ngx_conf_t *cf, ngx_str_t *value, ngx_http_idem_loc_conf_t *ilcf)
{
    size_t      i;
    ngx_str_t  *type;

    static ngx_str_t  json = ngx_string("application/json");

    type = ngx_palloc(cf->pool, sizeof(ngx_str_t));
    if (type == NULL) {
        return NGX_CONF_ERROR;
    }

    *type = json;

    if (cf->args->nelts == 3
        && ngx_http_idem_directive_parameter(&value[2], "type=", type) != NGX_OK)
    {
        type->len = 0;
    }

    for (i = 0; i < type->len && type->data[i] >= 0x20 && type->data[i] != 0x7f; i++) {
        /* void */
    }

    if (type->len == 0 || i < type->len) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "idem_probe tx: \"%V\" is not understood; allowed: type=MEDIA/TYPE, "
                           "that of the responses which the rows hold", &value[2]);
        return NGX_CONF_ERROR;
    }

    ilcf->probe_type = type;

    return NGX_CONF_OK;
}


char *
ngx_http_idem_directive_probe(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    char                      *rc;
    ngx_str_t                 *value = cf->args->elts;
    ngx_uint_t                 tx = (ngx_strcmp(value[1].data, "tx") == 0);
    ngx_http_idem_loc_conf_t  *ilcf = conf;

    rc = ngx_http_idem_directive_set_value(cf, &ilcf->probe, "off");

    if (rc != NGX_CONF_OK || tx) {
        return rc == NGX_CONF_OK ? ngx_http_idem_directive_probe_tx(cf, value, ilcf) : rc;
    }

    if (cf->args->nelts != 2) {
        return "takes two words only where the first is tx";
    }

    if (ilcf->probe && value[1].data[0] != '/') {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "idem_probe: \"%V\" is no URI of this server; allowed: off, tx, or "
                           "what begins with / and names a location that asks the backend",
                           &value[1]);
        return NGX_CONF_ERROR;
    }

    return NGX_CONF_OK;
}


char *
ngx_http_idem_directive_label(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_idem_loc_conf_t  *ilcf = conf;

    return ngx_http_idem_directive_set_value(cf, &ilcf->label, "off");
}


/* Tokens. */

char *
ngx_http_idem_directive_token(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_core_loc_conf_t  *clcf;
    ngx_http_idem_loc_conf_t  *ilcf = conf;

    if (ilcf->issues) {
        return "is duplicate";
    }

    clcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);
    clcf->handler = ngx_http_idem_token_handler;

    ilcf->issues = 1;
    ngx_http_idem_directive_mark_place(cf, ilcf);

    return NGX_CONF_OK;
}


/* Serves the browser's scripts. A guard from above lets GET and HEAD pass. */

char *
ngx_http_idem_directive_js(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_str_t                 *value = cf->args->elts;
    ngx_http_core_loc_conf_t  *clcf;

    clcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);
    clcf->handler = ngx_http_idem_js_handler;

    if (cf->args->nelts == 2) {
        if (ngx_strcmp(value[1].data, "sign") != 0) {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "idem_js: \"%V\" is not understood; it takes "
                               "\"sign\", or nothing", &value[1]);
            return NGX_CONF_ERROR;
        }

        clcf->handler = ngx_http_idem_js_sign_handler;
    }

    return ngx_http_idem_js_init() == NGX_OK ? NGX_CONF_OK : NGX_CONF_ERROR;
}


char *
ngx_http_idem_directive_status(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_str_t                 *value = cf->args->elts;
    ngx_http_core_loc_conf_t  *clcf;
    ngx_http_idem_loc_conf_t  *ilcf = conf;

    if (ilcf->hosts) {
        return "is duplicate, or stands beside idem_admin";
    }

    ilcf->hosts = ngx_pcalloc(cf->pool, sizeof(ngx_http_idem_hosts_t));
    if (ilcf->hosts == NULL) {
        return NGX_CONF_ERROR;
    }

    if (cf->args->nelts == 2) {
        if (ngx_strcmp(value[1].data, "host=any") != 0) {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "idem_status: \"%V\" is not understood; it "
                               "takes \"host=any\", or nothing", &value[1]);
            return NGX_CONF_ERROR;
        }

        ilcf->hosts->any = 1;
    }

    clcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);
    clcf->handler = ngx_http_idem_status_handler;
    ilcf->shows = 1;

    return ngx_http_idem_metric_zone(cf) == NGX_OK ? NGX_CONF_OK : NGX_CONF_ERROR;
}


char *
ngx_http_idem_directive_token_bind(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    char                      *rc;
    ngx_str_t                 *value = cf->args->elts;
    ngx_http_idem_loc_conf_t  *ilcf = conf;

    rc = ngx_http_idem_directive_set_value(cf, &ilcf->bind, "off");

    if (rc == NGX_CONF_OK && ilcf->bind && !ngx_http_idem_directive_has_variable(&value[1])) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "idem_token_bind: \"%V\" has no variable, and would bind every "
                           "token to the same; name what must be equal when it is used "
                           "($cookie_session), or \"off\"", &value[1]);
        return NGX_CONF_ERROR;
    }

    return rc;
}
