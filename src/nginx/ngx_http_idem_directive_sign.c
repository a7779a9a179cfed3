
/*
 * Parses idem_sign. The file of secrets is read with the configuration, so that
 * a reload rotates them; the pool of a cycle wipes them when it is destroyed.
 */

#include "ngx_http_idem.h"
#include "base/units.h"
#include "base/words.h"


#define NGX_HTTP_IDEM_SIGN_SHOWN  16       /* bytes: no secret is shorter */


typedef struct {
    struct idem_sign_rules     rules;
    ngx_str_t                  file;
    ngx_uint_t                 seen;        /* bits of the parameters present */
} ngx_http_idem_directive_sign_t;


static void
ngx_http_idem_directive_sign_cleanup(void *data)
{
    idem_signer_free(data);
}


/* Returns the value of a word in a list, or 0 after a message. */

static int
ngx_http_idem_directive_sign_word(ngx_conf_t *cf, const char *name, ngx_str_t *word,
    const struct idem_word *words)
{
    int   value;
    char  allowed[128];

    if (idem_word_find(words, (char *) word->data, word->len, &value)) {
        return value;
    }

    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "idem_sign: %s=%V: allowed: %s", name, word,
                       idem_words_list(words, allowed, sizeof(allowed)));
    return 0;
}


static char *
ngx_http_idem_directive_sign_window(ngx_conf_t *cf, ngx_http_idem_directive_sign_t *words,
    ngx_str_t *value)
{
    struct idem_error  err;

    if (idem_duration_parse((char *) value->data, value->len, &words->rules.window_ms, &err) == 0
        && words->rules.window_ms > 0)
    {
        return NGX_CONF_OK;
    }

    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                       "idem_sign: window=%V: allowed is a time of 1s to 1d", value);
    return NGX_CONF_ERROR;
}


static char *
ngx_http_idem_directive_sign_set(ngx_conf_t *cf, ngx_http_idem_directive_sign_t *words,
    ngx_uint_t which, ngx_str_t *value)
{
    switch (which) {

    case 0:
        words->file = *value;
        return ngx_conf_full_name(cf->cycle, &words->file, 1) == NGX_OK ? NGX_CONF_OK
                                                                       : NGX_CONF_ERROR;

    case 1:
        words->rules.form = (enum idem_sign_form)
            ngx_http_idem_directive_sign_word(cf, "form", value, idem_words_sign_form);
        return words->rules.form ? NGX_CONF_OK : NGX_CONF_ERROR;

    case 2:
        return ngx_http_idem_directive_sign_window(cf, words, value);

    case 3:
        words->rules.headers = (char *) value->data;    /* the word ends with a NUL */
        return NGX_CONF_OK;

    default:
        words->rules.sequence = (enum idem_sequence)
            ngx_http_idem_directive_sign_word(cf, "sequence", value, idem_words_sequence);
        return words->rules.sequence ? NGX_CONF_OK : NGX_CONF_ERROR;
    }
}


/*
 * Shows an unknown word only up to its "=", because the value may be a secret
 * that belongs in a file. A word as long as a secret is not shown at all.
 */

static char *
ngx_http_idem_directive_sign_parameter(ngx_conf_t *cf, ngx_http_idem_directive_sign_t *words,
    ngx_str_t *word)
{
    u_char      *end;
    ngx_uint_t   i;
    ngx_str_t    value;

    static const char *const  names[] = {
        "secret_file=", "form=", "window=", "headers=", "sequence="
    };

    for (i = 0; i < sizeof(names) / sizeof(names[0]); i++) {

        if (ngx_http_idem_directive_parameter(word, names[i], &value) != NGX_OK) {
            continue;
        }

        if (words->seen & ((ngx_uint_t) 1 << i)) {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "idem_sign: %s is set twice", names[i]);
            return NGX_CONF_ERROR;
        }

        words->seen |= (ngx_uint_t) 1 << i;

        return ngx_http_idem_directive_sign_set(cf, words, i, &value);
    }

    value = *word;
    end = ngx_strlchr(word->data, word->data + word->len, '=');

    if (end) {
        value.len = (size_t) (end - word->data) + 1;
    }

    if (value.len >= NGX_HTTP_IDEM_SIGN_SHOWN) {
        ngx_str_set(&value, "...");
    }

    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                       "idem_sign: \"%V\" is not understood; allowed: off, or secret_file=FILE "
                       "[form=rfc9421|classic] [window=TIME] [headers=NAME,...] "
                       "[sequence=off|increasing|consecutive]", &value);

    return NGX_CONF_ERROR;
}


char *
ngx_http_idem_directive_sign(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_str_t                       *value;
    ngx_uint_t                       i;
    struct idem_error                err;
    ngx_pool_cleanup_t              *cln;
    ngx_http_idem_signer_t          *signer;
    ngx_http_idem_loc_conf_t        *ilcf = conf;
    ngx_http_idem_main_conf_t       *imcf;
    ngx_http_idem_directive_sign_t   words;

    if (ilcf->sign != NGX_CONF_UNSET_PTR) {
        return "is duplicate";
    }

    value = cf->args->elts;

    if (cf->args->nelts == 2 && ngx_strcmp(value[1].data, "off") == 0) {
        ilcf->sign = NULL;
        return NGX_CONF_OK;
    }

    ngx_memzero(&words, sizeof(ngx_http_idem_directive_sign_t));

    for (i = 1; i < cf->args->nelts; i++) {
        if (ngx_http_idem_directive_sign_parameter(cf, &words, &value[i]) != NGX_CONF_OK) {
            return NGX_CONF_ERROR;
        }
    }

    if (words.file.len == 0) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "idem_sign: secret_file=FILE is missing: a key to a line, ID "
                           "hmac-sha256 base64:SECRET, that only its owner may read");
        return NGX_CONF_ERROR;
    }

    imcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_idem_module);

    cln = ngx_pool_cleanup_add(cf->pool, 0);
    signer = ngx_array_push(&imcf->signers);

    if (cln == NULL || signer == NULL) {
        return NGX_CONF_ERROR;
    }

    words.rules.secret_file = (char *) words.file.data;

    if (idem_signer_new(&words.rules, &ilcf->sign, &err) != 0) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "idem_sign: %s", err.text);
        return NGX_CONF_ERROR;
    }

    cln->handler = ngx_http_idem_directive_sign_cleanup;
    cln->data = ilcf->sign;

    ilcf->sign_file = cf->conf_file->file.name.data;
    ilcf->sign_line = cf->conf_file->line;

    signer->signer = ilcf->sign;
    signer->server = ngx_http_conf_get_module_srv_conf(cf, ngx_http_core_module);
    signer->file = ilcf->sign_file;
    signer->line = ilcf->sign_line;

    return NGX_CONF_OK;
}
