
/*
 * One line for the operator about a refusal: the record's hash, the reason, and
 * the remedy.
 */

#include "ngx_http_idem.h"
#include "base/error.h"
#include "base/log_line.h"


#define NGX_HTTP_IDEM_SHORT  12    /* digits of a hash, as people write it */


typedef struct {
    ngx_uint_t   level;
    const char  *what;
    const char  *todo;        /* HASH stands for the record's short hash */
} ngx_http_idem_log_words_t;


static const ngx_http_idem_log_words_t  ngx_http_idem_log_words[IDEM_HTTP_PROBLEMS] = {

    [IDEM_HTTP_KEY_MISSING] = { NGX_LOG_INFO, "no key",
        "the client must send its key; where it may go without: idem_key ... optional" },

    [IDEM_HTTP_KEY_MALFORMED] = { NGX_LOG_INFO, "malformed key",
        "the client must send one key, once, of 1 to 255 visible characters" },

    [IDEM_HTTP_MISMATCH] = { NGX_LOG_WARN, "the key came back with another request",
        "the client must choose a new key for each operation (the same one: see "
        "idem_fingerprint); if the recorded request never ran, idem forget --hash HASH frees "
        "the key, idem settle --failed lets only that request run again" },

    [IDEM_HTTP_IN_PROGRESS] = { NGX_LOG_INFO, "the first request is still running",
        "nothing: the client may ask again later; idem_wait lets it wait" },

    [IDEM_HTTP_DUPLICATE] = { NGX_LOG_INFO, "it was done before",
        "nothing: it has happened once" },

    [IDEM_HTTP_UNCERTAIN] = { NGX_LOG_WARN, "a run vanished, and its outcome is unknown",
        "ask the backend for the outcome, then: idem settle --hash HASH --done, or --failed" },

    [IDEM_HTTP_FAILED] = { NGX_LOG_INFO, "it failed for good",
        "nothing; to let it run again: idem forget --hash HASH" },

    [IDEM_HTTP_TOKEN_REFUSED] = { NGX_LOG_INFO, "no such token",
        "the client must fetch a new token; if that happens often, see idem_token_ttl" },

    [IDEM_HTTP_SIGNATURE_INCOMPLETE] = { NGX_LOG_INFO, "its signature is incomplete",
        "the client must send all parts of a signature: idem sign shows them" },

    [IDEM_HTTP_SIGNATURE_STALE] = { NGX_LOG_INFO, "its timestamp is not current",
        "if that happens often, compare the clocks of client and server; idem_sign window=" },

    [IDEM_HTTP_SIGNATURE_WRONG] = { NGX_LOG_WARN, "its signature is wrong",
        "compare the secrets; idem verify shows what should have been signed" },

    [IDEM_HTTP_NONCE_REUSED] = { NGX_LOG_WARN, "its nonce was used before",
        "the client must sign each request anew; if it does, captured requests are sent again" },

    [IDEM_HTTP_STORE_UNAVAILABLE] = { NGX_LOG_ERR, "the store cannot be asked",
        "see to the store: idem doctor --store URL" },
};


/* Copies a text with a NUL, without its final full stop. */

static const char *
ngx_http_idem_log_text(const char *text, size_t len, u_char *buf, size_t size)
{
    if (len && text[len - 1] == '.') {
        len--;
    }

    *ngx_snprintf(buf, size - 1, "%*s", len, text) = '\0';

    return (char *) buf;
}


static const char *
ngx_http_idem_log_todo(ngx_http_idem_ctx_t *ctx, u_char *buf, size_t size)
{
    size_t       head;
    const char  *todo, *mark;

    todo = ngx_http_idem_log_words[ctx->decision.problem].todo;
    mark = ngx_strstr(todo, "HASH");

    if (mark == NULL) {
        return todo;
    }

    head = mark - todo;

    *ngx_snprintf(buf, size - 1, "%*s%*s%s", head, todo, (size_t) NGX_HTTP_IDEM_SHORT,
                  ctx->decision.hash, mark + 4) = '\0';

    return (char *) buf;
}


void
ngx_http_idem_log_refusal(ngx_http_request_t *r, ngx_http_idem_ctx_t *ctx)
{
    u_char                            words[160], route[260], reason[260], todo[260];
    char                              text[IDEM_LINE_MAX];
    struct idem_line                  line;
    ngx_http_core_loc_conf_t         *clcf;
    ngx_http_core_srv_conf_t         *cscf;
    const ngx_http_idem_decision_t   *decision = &ctx->decision;
    const ngx_http_idem_log_words_t  *entry;

    entry = &ngx_http_idem_log_words[decision->problem];

    if (r->connection->log->log_level < entry->level) {
        return;
    }

    cscf = ngx_http_get_module_srv_conf(r, ngx_http_core_module);
    clcf = ngx_http_get_module_loc_conf(r, ngx_http_core_module);

    *ngx_snprintf(words, sizeof(words) - 1, "refused %s: %s",
                  idem_http_problem_defaults[decision->problem].word, entry->what) = '\0';
    ngx_http_idem_metric_route_name(cscf, clcf, route, sizeof(route));

    ngx_memzero(&line, sizeof(struct idem_line));

    line.words = (char *) words;
    line.record = (char *) decision->hash;
    line.prefix = ctx->conf->policy ? ctx->conf->policy->prefix : NULL;
    line.label = ctx->key.label;
    line.attempt = decision->attempt;
    line.route = (char *) route;

    if (decision->detail) {
        line.reason = ngx_http_idem_log_text(decision->detail, ngx_strlen(decision->detail),
                                             reason, sizeof(reason));

    } else if (decision->problem == IDEM_HTTP_FAILED
               || decision->problem == IDEM_HTTP_STORE_UNAVAILABLE)
    {
        line.reason = ngx_http_idem_log_text((char *) decision->reason.data,
                                             decision->reason.len, reason, sizeof(reason));
    }

    if (decision->problem == IDEM_HTTP_STORE_UNAVAILABLE && decision->reason.len == 0
        && ctx->conf->store && ctx->conf->store->h == NULL)
    {
        line.reason = ctx->conf->store->error.text;          /* it could not be opened */
    }

    line.todo = ngx_http_idem_log_todo(ctx, todo, sizeof(todo));

    (void) idem_line_print(&line, text, sizeof(text));

    ngx_log_error(entry->level, r->connection->log, 0, "idem: %s", text);
}


/* The client chooses the URI, which is decoded here: as it is, it could begin a line of its own. */

const char *
ngx_http_idem_log_uri(ngx_http_request_t *r, char *buf)
{
    return idem_error_quote((char *) r->uri.data, r->uri.len, buf, IDEM_QUOTE_TEXT);
}
