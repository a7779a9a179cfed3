
/*
 * Parses idem_key.
 */

#include "ngx_http_idem.h"


/* Parses NAME=VALUE. NGX_DECLINED: another name, or an empty value. */

ngx_int_t
ngx_http_idem_directive_parameter(ngx_str_t *word, const char *name, ngx_str_t *ret)
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
ngx_http_idem_directive_key_is_token(ngx_str_t *name)
{
    return idem_http_is_token(ngx_http_idem_text(name));
}


static char *
ngx_http_idem_directive_key_reject(ngx_conf_t *cf, ngx_str_t *word)
{
    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                       "idem_key: \"%V\" is not understood; allowed: header=NAME "
                       "[required|optional], param=NAME [required|optional], params, serial "
                       "header=NAME credential=NAME, token [header=NAME] [param=NAME], or a "
                       "value with variables ($NAME)", word);
    return NGX_CONF_ERROR;
}


/* Refuses a header that strip.c removes before the key is read. */

static char *
ngx_http_idem_directive_key_check_name(ngx_conf_t *cf, ngx_str_t *name)
{
    ngx_table_elt_t  header;

    header.key = *name;

    if (!ngx_http_idem_strip_is_reserved(&header)) {
        return NGX_CONF_OK;
    }

    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                       "idem_key: no client can send \"%V\": what begins with Idem-, and "
                       "Idempotency_Key, is taken out of its requests; choose another name", name);

    return NGX_CONF_ERROR;
}


static char *
ngx_http_idem_directive_key_parse_serial(ngx_conf_t *cf, ngx_http_idem_key_t *key)
{
    ngx_str_t   *value;
    ngx_uint_t   i;

    value = cf->args->elts;
    key->kind = NGX_HTTP_IDEM_KEY_SERIAL;

    for (i = 2; i < cf->args->nelts; i++) {
        if (ngx_http_idem_directive_parameter(&value[i], "header=", &key->name) != NGX_OK
            && ngx_http_idem_directive_parameter(&value[i], "credential=", &key->credential)
               != NGX_OK)
        {
            return ngx_http_idem_directive_key_reject(cf, &value[i]);
        }
    }

    if (!ngx_http_idem_directive_key_is_token(&key->name)
        || !ngx_http_idem_directive_key_is_token(&key->credential))
    {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "idem_key serial needs both header=NAME and credential=NAME, the "
                           "names of two headers");
        return NGX_CONF_ERROR;
    }

    if (ngx_http_idem_directive_key_check_name(cf, &key->name) != NGX_CONF_OK) {
        return NGX_CONF_ERROR;
    }

    return ngx_http_idem_directive_key_check_name(cf, &key->credential);
}


static char *
ngx_http_idem_directive_key_parse_token(ngx_conf_t *cf, ngx_http_idem_key_t *key)
{
    ngx_str_t   *value;
    ngx_uint_t   i;

    value = cf->args->elts;
    key->kind = NGX_HTTP_IDEM_KEY_TOKEN;

    for (i = 2; i < cf->args->nelts; i++) {
        if ((key->name.len
             || ngx_http_idem_directive_parameter(&value[i], "header=", &key->name) != NGX_OK)
            && (key->param.len
                || ngx_http_idem_directive_parameter(&value[i], "param=", &key->param) != NGX_OK))
        {
            return ngx_http_idem_directive_key_reject(cf, &value[i]);
        }
    }

    if (key->name.len == 0) {
        ngx_str_set(&key->name, "Idempotent-Token");
    }

    return ngx_http_idem_directive_key_is_token(&key->name)
           ? ngx_http_idem_directive_key_check_name(cf, &key->name)
           : ngx_http_idem_directive_key_reject(cf, &key->name);
}


char *
ngx_http_idem_directive_key(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_str_t                 *value;
    ngx_uint_t                 i;
    ngx_http_idem_key_t       *key;
    ngx_http_idem_loc_conf_t  *ilcf = conf;

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
        return ngx_http_idem_directive_key_parse_serial(cf, key);
    }

    if (ngx_strcmp(value[1].data, "token") == 0) {
        return ngx_http_idem_directive_key_parse_token(cf, key);
    }

    if (ngx_strcmp(value[1].data, "params") == 0) {
        key->kind = NGX_HTTP_IDEM_KEY_PARAMS;

        return cf->args->nelts == 2 ? NGX_CONF_OK
                                    : ngx_http_idem_directive_key_reject(cf, &value[2]);
    }

    if (ngx_http_idem_directive_parameter(&value[1], "header=", &key->name) == NGX_OK) {
        key->kind = NGX_HTTP_IDEM_KEY_HEADER;

    } else if (ngx_http_idem_directive_parameter(&value[1], "param=", &key->param) == NGX_OK) {
        key->kind = NGX_HTTP_IDEM_KEY_PARAM;

    } else if (ngx_strlchr(value[1].data, value[1].data + value[1].len, '$')) {
        key->kind = NGX_HTTP_IDEM_KEY_VALUE;
        key->value = ngx_http_idem_directive_complex_value(cf, &value[1]);

        if (key->value == NULL) {
            return NGX_CONF_ERROR;
        }

    } else {
        return ngx_http_idem_directive_key_reject(cf, &value[1]);
    }

    if (key->kind == NGX_HTTP_IDEM_KEY_HEADER
        && !ngx_http_idem_directive_key_is_token(&key->name))
    {
        return ngx_http_idem_directive_key_reject(cf, &value[1]);
    }

    for (i = 2; i < cf->args->nelts; i++) {

        if (i == 2 && ngx_strcmp(value[i].data, "optional") == 0) {
            key->optional = 1;

        } else if (i > 2 || ngx_strcmp(value[i].data, "required") != 0) {
            return ngx_http_idem_directive_key_reject(cf, &value[i]);
        }
    }

    return key->kind == NGX_HTTP_IDEM_KEY_HEADER
           ? ngx_http_idem_directive_key_check_name(cf, &key->name) : NGX_CONF_OK;
}
