/*
 * Single values of header fields: the key, numbers, types. The parser of the key is strict,
 * because an operation runs twice if two parsers read two different keys; a malformed key is
 * refused as a whole (fuzz/http_field_fuzz.c).
 */
#include "http/http_field.h"

#include <string.h>

#include "base/chars.h"
#include "http/http_structured.h"

struct idem_http_text idem_http_trim(struct idem_http_text text) {
    idem_trim(&text.at, &text.len);
    return text;
}

bool idem_http_part_next(struct idem_http_text *rest, char separator, struct idem_http_text *ret) {
    const char *end;
    size_t skip;

    if (rest->len == 0)
        return false;
    end = memchr(rest->at, separator, rest->len);
    *ret = (struct idem_http_text){rest->at, end == NULL ? rest->len : (size_t)(end - rest->at)};
    skip = ret->len + (end != NULL);
    rest->at += skip;
    rest->len -= skip;
    return true;
}

bool idem_http_is_token(struct idem_http_text text) {
    for (size_t i = 0; i < text.len; i++)
        if (!idem_is_tchar(text.at[i]))
            return false;
    return text.len > 0;
}

static char field_variable_char(char c) {
    c = idem_lower(c);
    return idem_is_lower(c) || idem_is_digit(c) ? c : '_';
}

bool idem_http_same_variable(struct idem_http_text a, struct idem_http_text b) {
    if (a.len != b.len)
        return false;
    for (size_t i = 0; i < a.len; i++)
        if (field_variable_char(a.at[i]) != field_variable_char(b.at[i]))
            return false;
    return true;
}

static const char *field_key_quoted(struct idem_http_text value, char *out, size_t *ret_len) {
    struct idem_sf sf = idem_sf_of(value);
    struct idem_sf_bare string;
    size_t len;

    if (!idem_sf_bare(&sf, &string))
        return "The key begins with a quote, but is no string of structured fields (RFC 9651): "
               "printable ASCII in double quotes, with \\\" and \\\\ for those two.";
    if (!idem_sf_parameters(&sf) || sf.at != sf.end)
        return "After the key's closing quote, only parameters of structured fields (RFC 9651) may "
               "follow.";
    len = idem_sf_unescape(string.text, out, IDEM_HTTP_KEY_MAX);
    if (len == 0)
        return "The key is empty.";
    if (len > IDEM_HTTP_KEY_MAX)
        return "The key is longer than 255 characters.";
    *ret_len = len;
    return NULL;
}

const char *idem_http_key_read(struct idem_http_text value, char out[IDEM_HTTP_KEY_MAX],
                               size_t *ret_len) {
    value = idem_http_trim(value);
    if (value.len == 0)
        return "The key is empty.";
    if (value.at[0] == '"')
        return field_key_quoted(value, out, ret_len);
    for (size_t i = 0; i < value.len; i++)
        if (value.at[i] <= 0x20 || value.at[i] > 0x7e)
            return "The key has a character that is not visible ASCII; one with blanks is written "
                   "in double quotes.";
    if (value.len > IDEM_HTTP_KEY_MAX)
        return "The key is longer than 255 characters.";
    memcpy(out, value.at, value.len);
    *ret_len = value.len;
    return NULL;
}

/* Numbers, types. */

bool idem_http_number(struct idem_http_text value, int64_t min, int64_t max, int64_t *ret) {
    int64_t number = 0;

    value = idem_http_trim(value);
    for (size_t i = 0; i < value.len; i++)
        if (!idem_is_digit(value.at[i]) || __builtin_mul_overflow(number, 10, &number) ||
            __builtin_add_overflow(number, value.at[i] - '0', &number))
            return false;
    if (value.len == 0 || number < min || number > max)
        return false;
    *ret = number;
    return true;
}

enum idem_http_type idem_http_type_read(struct idem_http_text value) {
    struct idem_http_text parameters = value, type, sub;

    if (!idem_http_part_next(&parameters, ';', &value))
        return IDEM_HTTP_OTHER;
    value = sub = idem_http_trim(value);
    if (!idem_http_part_next(&sub, '/', &type) || !idem_http_is_token(type) ||
        !idem_http_is_token(sub))
        return IDEM_HTTP_OTHER;
    if (idem_http_same(value, IDEM_HTTP_TEXT("application/json")))
        return IDEM_HTTP_JSON;
    if (sub.len > 5 &&
        idem_http_same((struct idem_http_text){sub.at + sub.len - 5, 5}, IDEM_HTTP_TEXT("+json")))
        return IDEM_HTTP_JSON;
    if (idem_http_same(value, IDEM_HTTP_TEXT("application/x-www-form-urlencoded")))
        return IDEM_HTTP_FORM;
    if (idem_http_same(value, IDEM_HTTP_TEXT("text/event-stream")))
        return IDEM_HTTP_EVENTS;
    return IDEM_HTTP_OTHER;
}
