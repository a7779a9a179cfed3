
/*
 * The directives, and how the levels of a configuration merge.
 *
 * The words of a policy (core/option.h) are read by the table that reads them
 * everywhere else. Each level keeps what it said, because a preset belongs to
 * its level: what the level itself says comes before it, and what the levels
 * above say behind.
 */

#include "ngx_http_idem.h"


static ngx_int_t ngx_http_idem_preconfiguration(ngx_conf_t *cf);
static ngx_int_t ngx_http_idem_postconfiguration(ngx_conf_t *cf);
static void *ngx_http_idem_create_main_conf(ngx_conf_t *cf);
static void *ngx_http_idem_create_loc_conf(ngx_conf_t *cf);
static char *ngx_http_idem_merge_loc_conf(ngx_conf_t *cf, void *parent, void *child);
static ngx_int_t ngx_http_idem_init_process(ngx_cycle_t *cycle);
static void ngx_http_idem_exit_process(ngx_cycle_t *cycle);

static char *ngx_http_idem_mode(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
static char *ngx_http_idem_word(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
static char *ngx_http_idem_store_url(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
static char *ngx_http_idem_scope_value(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
static char *ngx_http_idem_key(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
static char *ngx_http_idem_fingerprint(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
static char *ngx_http_idem_method_names(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
static char *ngx_http_idem_release_status(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
static char *ngx_http_idem_replay_headers(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
static char *ngx_http_idem_probe_uri(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
static char *ngx_http_idem_enforce(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);


static ngx_conf_bitmask_t  ngx_http_idem_methods[] = {
    { ngx_string("POST"), NGX_HTTP_POST },
    { ngx_string("PUT"), NGX_HTTP_PUT },
    { ngx_string("PATCH"), NGX_HTTP_PATCH },
    { ngx_string("DELETE"), NGX_HTTP_DELETE },
    { ngx_null_string, 0 }
};


#define NGX_HTTP_IDEM_ANYWHERE                                                \
    NGX_HTTP_MAIN_CONF|NGX_HTTP_SRV_CONF|NGX_HTTP_LOC_CONF|NGX_HTTP_LIF_CONF

#define NGX_HTTP_IDEM_WORD(word)                                              \
    { ngx_string("idem_" word), NGX_HTTP_IDEM_ANYWHERE|NGX_CONF_TAKE1,         \
      ngx_http_idem_word, NGX_HTTP_LOC_CONF_OFFSET, 0, NULL }

#define NGX_HTTP_IDEM_VALUE(word, field)                                      \
    { ngx_string("idem_" word), NGX_HTTP_IDEM_ANYWHERE|NGX_CONF_TAKE1,         \
      ngx_http_set_complex_value_slot, NGX_HTTP_LOC_CONF_OFFSET,              \
      offsetof(ngx_http_idem_loc_conf_t, field), NULL }


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
      NGX_HTTP_IDEM_ANYWHERE|NGX_CONF_TAKE1,
      ngx_http_idem_probe_uri,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      NULL },

    NGX_HTTP_IDEM_VALUE("label", label),

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
    conf->scope = NGX_CONF_UNSET_PTR;
    conf->key = NGX_CONF_UNSET_PTR;
    conf->enforce = NGX_CONF_UNSET_PTR;
    conf->release = NGX_CONF_UNSET_PTR;
    conf->headers = NGX_CONF_UNSET_PTR;

    return conf;
}


/* Words of the policy. */

static char *
ngx_http_idem_say(ngx_conf_t *cf, ngx_http_idem_loc_conf_t *conf, const char *word,
    ngx_str_t *value)
{
    struct idem_error  err;

    if (idem_policy_set(&conf->said, word, ngx_strlen(word), (char *) value->data, value->len,
                        &err)
        != 0)
    {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "idem_%s", err.text);
        return NGX_CONF_ERROR;
    }

    return NGX_CONF_OK;
}


static void
ngx_http_idem_mark_place(ngx_conf_t *cf, ngx_http_idem_loc_conf_t *conf)
{
    conf->file = cf->conf_file->file.name.data;
    conf->line = cf->conf_file->line;
}


static char *
ngx_http_idem_word(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_str_t                 *value;
    const char                *word;
    const struct idem_option  *option;
    ngx_http_idem_loc_conf_t  *ilcf = conf;
    char                       said[IDEM_OPTION_TEXT_MAX];

    value = cf->args->elts;
    word = (char *) cmd->name.data + sizeof("idem_") - 1;
    option = idem_option_find(word, ngx_strlen(word));

    if (ngx_strcmp(idem_option_print(option, &ilcf->said.said, said, sizeof(said)), "-") != 0) {
        return "is duplicate";
    }

    if (ngx_strcmp(word, "preset") == 0) {

        if (ngx_strcmp(value[1].data, "queue") == 0 || ngx_strcmp(value[1].data, "job") == 0) {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "idem_preset: \"%V\" is not for requests; allowed: submit, api, "
                               "payment", &value[1]);
            return NGX_CONF_ERROR;
        }

        if (ilcf->file == NULL) {
            ngx_http_idem_mark_place(cf, ilcf);
        }
    }

    return ngx_http_idem_say(cf, ilcf, word, &value[1]);
}


static char *
ngx_http_idem_mode(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_str_t                 *value;
    struct idem_error          err;
    ngx_http_idem_loc_conf_t  *ilcf = conf;

    if (ilcf->on != NGX_CONF_UNSET) {
        return "is duplicate";
    }

    value = cf->args->elts;
    ilcf->on = 1;
    ngx_http_idem_mark_place(cf, ilcf);

    if (ngx_strcmp(value[1].data, "off") == 0) {
        ilcf->on = 0;
        return NGX_CONF_OK;
    }

    if (idem_policy_set(&ilcf->said, "mode", 4, (char *) value[1].data, value[1].len, &err)
        != 0)
    {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "idem %s, off", err.text);
        return NGX_CONF_ERROR;
    }

    return NGX_CONF_OK;
}


static char *
ngx_http_idem_store_url(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
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

    ilcf->store = ngx_http_idem_store_add(cf, &value[1]);

    return ilcf->store ? NGX_CONF_OK : NGX_CONF_ERROR;
}


static ngx_http_complex_value_t *
ngx_http_idem_complex(ngx_conf_t *cf, ngx_str_t *value)
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


static char *
ngx_http_idem_scope_value(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_str_t                 *value, caller = ngx_string("caller");
    ngx_http_idem_loc_conf_t  *ilcf = conf;

    if (ilcf->scope != NGX_CONF_UNSET_PTR) {
        return "is duplicate";
    }

    value = cf->args->elts;

    if (ngx_strcmp(value[1].data, "none") == 0) {
        ilcf->scope = NULL;
        return ngx_http_idem_say(cf, ilcf, "scope", &value[1]);
    }

    if (ngx_strlchr(value[1].data, value[1].data + value[1].len, '$') == NULL) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "idem_scope: \"%V\" has no variable, and would be one scope for "
                           "everybody; say who is asking ($remote_user, $http_x_user), or "
                           "\"none\"", &value[1]);
        return NGX_CONF_ERROR;
    }

    ilcf->scope = ngx_http_idem_complex(cf, &value[1]);
    if (ilcf->scope == NULL) {
        return NGX_CONF_ERROR;
    }

    return ngx_http_idem_say(cf, ilcf, "scope", &caller);
}


/* Keys. */

static ngx_int_t
ngx_http_idem_named(ngx_str_t *word, const char *name, ngx_str_t *ret)
{
    size_t  len = ngx_strlen(name);

    if (word->len <= len || ngx_strncmp(word->data, name, len) != 0) {
        return NGX_DECLINED;
    }

    ret->data = word->data + len;
    ret->len = word->len - len;

    return NGX_OK;
}


static ngx_uint_t
ngx_http_idem_is_token(ngx_str_t *name)
{
    struct idem_http_text  text;

    text.at = (char *) name->data;
    text.len = name->len;

    return idem_http_is_token(text);
}


static char *
ngx_http_idem_key_wrong(ngx_conf_t *cf, ngx_str_t *word)
{
    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                       "idem_key: \"%V\" is not understood; allowed: header=NAME "
                       "[required|optional], param=NAME [required|optional], params, serial "
                       "header=NAME credential=NAME, or a value with variables ($NAME)", word);
    return NGX_CONF_ERROR;
}


static char *
ngx_http_idem_key_serial_words(ngx_conf_t *cf, ngx_http_idem_key_t *key)
{
    ngx_str_t   *value;
    ngx_uint_t   i;

    value = cf->args->elts;
    key->kind = NGX_HTTP_IDEM_KEY_SERIAL;

    for (i = 2; i < cf->args->nelts; i++) {
        if (ngx_http_idem_named(&value[i], "header=", &key->name) != NGX_OK
            && ngx_http_idem_named(&value[i], "credential=", &key->credential) != NGX_OK)
        {
            return ngx_http_idem_key_wrong(cf, &value[i]);
        }
    }

    if (!ngx_http_idem_is_token(&key->name) || !ngx_http_idem_is_token(&key->credential)) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "idem_key serial needs both header=NAME and credential=NAME, the "
                           "names of two headers");
        return NGX_CONF_ERROR;
    }

    return NGX_CONF_OK;
}


static char *
ngx_http_idem_key(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_str_t                         *value;
    ngx_uint_t                         i;
    ngx_http_idem_key_t               *key;
    ngx_http_idem_loc_conf_t          *ilcf = conf;
    ngx_http_compile_complex_value_t   ccv;

    if (ilcf->key != NGX_CONF_UNSET_PTR) {
        return "is duplicate";
    }

    key = ngx_pcalloc(cf->pool, sizeof(ngx_http_idem_key_t));
    if (key == NULL) {
        return NGX_CONF_ERROR;
    }

    ilcf->key = key;
    value = cf->args->elts;

    if (ngx_strcmp(value[1].data, "serial") == 0) {
        return ngx_http_idem_key_serial_words(cf, key);
    }

    if (ngx_strcmp(value[1].data, "params") == 0) {
        key->kind = NGX_HTTP_IDEM_KEY_PARAMS;

        return cf->args->nelts == 2 ? NGX_CONF_OK : ngx_http_idem_key_wrong(cf, &value[2]);
    }

    if (ngx_http_idem_named(&value[1], "header=", &key->name) == NGX_OK) {
        key->kind = NGX_HTTP_IDEM_KEY_HEADER;

    } else if (ngx_http_idem_named(&value[1], "param=", &key->name) == NGX_OK) {
        key->kind = NGX_HTTP_IDEM_KEY_PARAM;

    } else if (ngx_strlchr(value[1].data, value[1].data + value[1].len, '$')) {
        key->kind = NGX_HTTP_IDEM_KEY_VALUE;

        ngx_memzero(&ccv, sizeof(ngx_http_compile_complex_value_t));
        ccv.cf = cf;
        ccv.value = &value[1];
        ccv.complex_value = &key->value;

        if (ngx_http_compile_complex_value(&ccv) != NGX_OK) {
            return NGX_CONF_ERROR;
        }

    } else {
        return ngx_http_idem_key_wrong(cf, &value[1]);
    }

    if (key->kind == NGX_HTTP_IDEM_KEY_HEADER && !ngx_http_idem_is_token(&key->name)) {
        return ngx_http_idem_key_wrong(cf, &value[1]);
    }

    for (i = 2; i < cf->args->nelts; i++) {

        if (i == 2 && ngx_strcmp(value[i].data, "optional") == 0) {
            key->optional = 1;

        } else if (i > 2 || ngx_strcmp(value[i].data, "required") != 0) {
            return ngx_http_idem_key_wrong(cf, &value[i]);
        }
    }

    return NGX_CONF_OK;
}


static char *
ngx_http_idem_fingerprint(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_str_t                 *value;
    ngx_uint_t                 i, k;
    ngx_http_idem_loc_conf_t  *ilcf = conf;

    static const struct {
        const char  *word;
        ngx_uint_t   part;
    } parts[] = {
        { "method", NGX_HTTP_IDEM_PRINT_METHOD },
        { "path", NGX_HTTP_IDEM_PRINT_PATH },
        { "query", NGX_HTTP_IDEM_PRINT_QUERY },
        { "body", NGX_HTTP_IDEM_PRINT_BODY },
        { "none", NGX_HTTP_IDEM_PRINT_NONE },
        { NULL, 0 }
    };

    if (ilcf->print) {
        return "is duplicate";
    }

    value = cf->args->elts;

    if (ngx_strlchr(value[1].data, value[1].data + value[1].len, '#')
        && cf->args->nelts == 2)
    {
        ilcf->print = NGX_HTTP_IDEM_PRINT_EXPR;
        ilcf->print_expr = ngx_http_idem_compile(cf, &value[1]);

        return ilcf->print_expr ? NGX_CONF_OK : NGX_CONF_ERROR;
    }

    for (i = 1; i < cf->args->nelts; i++) {

        for (k = 0; parts[k].word; k++) {
            if (ngx_strcmp(value[i].data, parts[k].word) == 0) {
                break;
            }
        }

        if (parts[k].word == NULL || (ilcf->print & parts[k].part)
            || (parts[k].part == NGX_HTTP_IDEM_PRINT_NONE && cf->args->nelts > 2))
        {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "idem_fingerprint: \"%V\" is not understood; allowed: none, or "
                               "one or more of method, path, query, body, or one expression "
                               "('#body.amount')", &value[i]);
            return NGX_CONF_ERROR;
        }

        ilcf->print |= parts[k].part;
    }

    return NGX_CONF_OK;
}


static char *
ngx_http_idem_method_names(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_str_t                 *value;
    ngx_uint_t                 i, m;
    ngx_http_idem_loc_conf_t  *ilcf = conf;

    if (ilcf->methods) {
        return "is duplicate";
    }

    value = cf->args->elts;
    ilcf->methods = NGX_CONF_BITMASK_SET;

    for (i = 1; i < cf->args->nelts; i++) {

        for (m = 0; ngx_http_idem_methods[m].name.len; m++) {
            if (ngx_strcmp(value[i].data, ngx_http_idem_methods[m].name.data) == 0) {
                break;
            }
        }

        if (ngx_http_idem_methods[m].name.len == 0
            || (ilcf->methods & ngx_http_idem_methods[m].mask))
        {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "idem_methods: \"%V\" is not understood, or said twice; allowed: "
                               "POST, PUT, PATCH, DELETE", &value[i]);
            return NGX_CONF_ERROR;
        }

        ilcf->methods |= ngx_http_idem_methods[m].mask;
    }

    return NGX_CONF_OK;
}


static char *
ngx_http_idem_release_status(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
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


static char *
ngx_http_idem_replay_headers(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
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

    for (i = 1; i < cf->args->nelts; i++) {
        name = ngx_array_push(ilcf->headers);
        if (name == NULL) {
            return NGX_CONF_ERROR;
        }

        name->at = (char *) value[i].data;
        name->len = value[i].len;
        why = idem_http_header_refused(*name);

        if (why) {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "idem_replay_headers: %V %s", &value[i],
                               why);
            return NGX_CONF_ERROR;
        }
    }

    return NGX_CONF_OK;
}


static char *
ngx_http_idem_enforce(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_str_t                 *value;
    ngx_http_idem_loc_conf_t  *ilcf = conf;

    if (ilcf->enforce != NGX_CONF_UNSET_PTR) {
        return "is duplicate";
    }

    value = cf->args->elts;

    if (ngx_strcmp(value[1].data, "on") == 0) {
        ilcf->enforce = NULL;
        return NGX_CONF_OK;
    }

    if (ngx_strcmp(value[1].data, "off") != 0
        && ngx_strlchr(value[1].data, value[1].data + value[1].len, '$') == NULL)
    {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "idem_enforce: \"%V\" is not understood; allowed: on, off, or a value "
                           "with variables", &value[1]);
        return NGX_CONF_ERROR;
    }

    ilcf->enforce = ngx_http_idem_complex(cf, &value[1]);

    return ilcf->enforce ? NGX_CONF_OK : NGX_CONF_ERROR;
}


static char *
ngx_http_idem_probe_uri(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_str_t                 *value;
    ngx_http_idem_loc_conf_t  *ilcf = conf;

    if (ilcf->probe) {
        return "is duplicate";
    }

    value = cf->args->elts;

    if (value[1].data[0] != '/') {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "idem_probe: \"%V\" is no URI of this server: it begins with /, and "
                           "names a location that asks the backend", &value[1]);
        return NGX_CONF_ERROR;
    }

    ilcf->probe = ngx_http_idem_complex(cf, &value[1]);

    return ilcf->probe ? NGX_CONF_OK : NGX_CONF_ERROR;
}


/* Merging. */

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

    said.key_kind = IDEM_KEY_LITERAL;
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


static char *
ngx_http_idem_merge_loc_conf(ngx_conf_t *cf, void *parent, void *child)
{
    ngx_uint_t                  i, *status;
    ngx_http_idem_guarded_t    *guarded;
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

    ngx_conf_merge_ptr_value(conf->store, prev->store, NULL);
    ngx_conf_merge_ptr_value(conf->scope, prev->scope, NULL);
    ngx_conf_merge_ptr_value(conf->key, prev->key, NULL);
    ngx_conf_merge_ptr_value(conf->enforce, prev->enforce, NULL);
    ngx_conf_merge_ptr_value(conf->release, prev->release, NULL);
    ngx_conf_merge_ptr_value(conf->headers, prev->headers, NULL);
    ngx_conf_merge_bitmask_value(conf->methods, prev->methods,
                                 (NGX_CONF_BITMASK_SET|NGX_HTTP_POST|NGX_HTTP_PATCH));

    if (conf->probe == NULL) {
        conf->probe = prev->probe;
    }

    if (conf->label == NULL) {
        conf->label = prev->label;
    }

    if (conf->print == 0) {
        conf->print = prev->print;
        conf->print_expr = prev->print_expr;
    }

    if (conf->on != 1) {
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
        conf->key = ngx_pcalloc(cf->pool, sizeof(ngx_http_idem_key_t));
        if (conf->key == NULL) {
            return NGX_CONF_ERROR;
        }

        conf->key->kind = NGX_HTTP_IDEM_KEY_HEADER;
        conf->key->name = ngx_http_idem_default_header;
    }

    if (conf->headers == NULL) {
        conf->headers = ngx_array_create(cf->pool, 1, sizeof(struct idem_http_text));
        if (conf->headers == NULL) {
            return NGX_CONF_ERROR;
        }
    }

    if (conf->release == NULL) {
        conf->release = ngx_array_create(cf->pool, 8, sizeof(ngx_uint_t));
        if (conf->release == NULL) {
            return NGX_CONF_ERROR;
        }

        for (i = 0; i < sizeof(ngx_http_idem_default_release) / sizeof(ngx_uint_t); i++) {
            status = ngx_array_push(conf->release);
            if (status == NULL) {
                return NGX_CONF_ERROR;
            }

            *status = ngx_http_idem_default_release[i];
        }
    }

    if (ngx_http_idem_make_guard(cf, conf) != NGX_OK) {
        return NGX_CONF_ERROR;
    }

    if (conf->policy->mode == IDEM_MODE_LOCK) {

        if (conf->print & ~NGX_HTTP_IDEM_PRINT_NONE && conf->print != prev->print) {
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
