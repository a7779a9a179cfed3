/*
 * Selects the form of a report, and holds the page, which is one file that includes its style and
 * script.
 */
#include "metric/metric_report.h"

#include <string.h>

#include "base/hash.h"
#include "http/http_binary.h"

static const char page[] =
#include "status.html.h"
    ;

static const struct {
    const char *name, *type;
} forms[REPORT_FORMS] = {
    [REPORT_TEXT] = {"prometheus", "text/plain; version=0.0.4; charset=utf-8"},
    [REPORT_JSON] = {"json", "application/json"},
    [REPORT_PAGE] = {"html", "text/html; charset=utf-8"},
};

const char *report_type(enum report_form form) {
    return forms[form].type;
}

/* Returns the value of `format`; .at is NULL if it is absent. */
static struct idem_http_text report_query_format(struct idem_http_text query) {
    static const char name[] = "format=";
    const char *at = query.at, *end = query.at + query.len;

    while (at < end) {
        const char *next = memchr(at, '&', (size_t)(end - at));

        if (next == NULL)
            next = end;
        if ((size_t)(next - at) >= sizeof(name) - 1 && memcmp(at, name, sizeof(name) - 1) == 0)
            return (struct idem_http_text){at + sizeof(name) - 1,
                                           (size_t)(next - at) - sizeof(name) + 1};
        at = next + 1;
    }
    return (struct idem_http_text){NULL, 0};
}

bool report_form(struct idem_http_text query, const struct idem_http_accept *accept,
                 enum report_form *ret) {
    struct idem_http_text format = report_query_format(query);

    if (format.at == NULL) {
        *ret = idem_http_accept_html(accept)   ? REPORT_PAGE
               : idem_http_accept_json(accept) ? REPORT_JSON
                                               : REPORT_TEXT;
        return true;
    }
    for (int form = 0; form < REPORT_FORMS; form++)
        if (idem_http_is(format, forms[form].name)) {
            *ret = (enum report_form)form;
            return true;
        }
    return false;
}

void report_write(const struct board *board, const struct report_who *who, enum report_form form,
                  FILE *out) {
    if (form == REPORT_TEXT)
        report_text(board, who, out);
    else if (form == REPORT_JSON)
        report_json(board, who, out);
    else
        fwrite(page, 1, sizeof(page) - 1, out);
}

/* The hash of the text between two tags, as a source of Content-Security-Policy. */
static bool report_source_make(const char *open, const char *close, char *buf, size_t size) {
    const char *begin = strstr(page, open), *end = begin == NULL ? NULL : strstr(begin, close);
    unsigned char hash[IDEM_HASH_LEN];
    char text[IDEM_BASE64_TEXT(IDEM_HASH_LEN)];

    if (end == NULL)
        return false;
    begin += strlen(open);
    if (idem_sha256((struct idem_bytes){(const unsigned char *)begin, (size_t)(end - begin)},
                    hash) != 0)
        return false;
    idem_base64_encode(hash, sizeof(hash), text);
    snprintf(buf, size, "'sha256-%s'", text);
    return true;
}

const char *report_page_policy(void) {
    static char policy[400];
    char style[80], script[80];

    if (policy[0] != '\0')
        return policy;
    if (!report_source_make("<style>", "</style>", style, sizeof(style)) ||
        !report_source_make("<script>", "</script>", script, sizeof(script)))
        return NULL;
    snprintf(policy, sizeof(policy),
             "default-src 'none'; style-src %s; script-src %s; connect-src 'self'; "
             "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
             style, script);
    return policy;
}
