/*
 * Queries and forms: iterates over the pairs, and over the characters of their parts
 * (fuzz/http_form_fuzz.c).
 */
#include "http/http_form.h"

#include "base/hex.h"

bool idem_http_pair_next(struct idem_http_text *form, struct idem_http_pair *ret) {
    struct idem_http_text part = {0};

    while (part.len == 0)
        if (!idem_http_part_next(form, '&', &part))
            return false;
    ret->value = part;
    return idem_http_part_next(&ret->value, '=', &ret->name);
}

char idem_http_form_char_next(struct idem_http_text text, size_t *i) {
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
