/*
 * Queries and forms: iterates over the pairs, and decodes them (fuzz/http_form_fuzz.c).
 */
#include "http/http_form.h"
#include "base/hex.h"

#include <string.h>

bool idem_http_pair_next(struct idem_http_text *form, struct idem_http_pair *ret) {
    struct idem_http_text part = {0};

    while (part.len == 0)
        if (!idem_http_part_next(form, '&', &part))
            return false;
    ret->value = part;
    return idem_http_part_next(&ret->value, '=', &ret->name);
}

/* Returns the character at *i and moves *i past it; 0 if it is malformed. */
static char form_char_next(struct idem_http_text text, size_t *i) {
    char c = text.at[(*i)++];
    int byte;

    if (c == '+')
        return ' ';
    if (c != '%')
        return c;
    if (text.len - *i < 2)
        return '\0';
    byte = idem_hex_byte(text.at + *i);
    *i += 2;
    return byte < 0 ? '\0' : (char)byte;
}

bool idem_http_unescape(struct idem_http_text text, char *out, size_t size, size_t *ret_len) {
    size_t len = 0;

    for (size_t i = 0; i < text.len;) {
        char c = form_char_next(text, &i);

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
        char c = form_char_next(text, &i);

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
