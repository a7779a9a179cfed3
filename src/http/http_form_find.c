/*
 * Decodes the parts of a query or a form, and finds a parameter (fuzz/http_form_fuzz.c).
 */
#include "http/http_form.h"

bool idem_http_unescape(struct idem_http_text text, char *out, size_t size, size_t *ret_len) {
    size_t len = 0;

    for (size_t i = 0; i < text.len;) {
        char c = idem_http_form_char_next(text, &i);

        if (c == '\0')
            return false;
        if (len < size)
            out[len] = c;
        len++;
    }
    *ret_len = len;
    return true;
}

/* 1 if the escaped text decodes to `name`, 0 if not, -1 if it is malformed. */
static int form_name_is(struct idem_http_text text, struct idem_http_text name) {
    size_t n = 0;
    bool same = true;

    for (size_t i = 0; i < text.len; n++) {
        char c = idem_http_form_char_next(text, &i);

        if (c == '\0')
            return -1;
        same = same && n < name.len && name.at[n] == c;
    }
    return same && n == name.len;
}

enum idem_http_found idem_http_form_find(struct idem_http_text form, struct idem_http_text name,
                                         char *out, size_t size, size_t *ret_len) {
    struct idem_http_text value = {NULL, 0};
    struct idem_http_pair pair;
    size_t found = 0, len;
    bool malformed = false;

    while (idem_http_pair_next(&form, &pair)) {
        int is = form_name_is(pair.name, name);

        malformed |= is < 0;
        if (is > 0 && found++ == 0)
            value = pair.value;
    }
    if (found > 1)
        return IDEM_HTTP_REPEATED;
    if (malformed)
        return IDEM_HTTP_MALFORMED;
    if (found == 0)
        return IDEM_HTTP_NONE;
    if (!idem_http_unescape(value, out, size, &len))
        return IDEM_HTTP_MALFORMED;
    if (len > size)
        return IDEM_HTTP_TOO_LONG;
    *ret_len = len;
    return IDEM_HTTP_ONCE;
}
