/*
 * Parses structured fields. Strict, as RFC 9651 requires: a field that is not valid to its end is
 * ignored as a whole.
 */
#include "http/http_structured.h"

#include <string.h>

#include "base/chars.h"
#include "base/hex.h"
#include "base/units.h"

static struct idem_http_text structured_text_since(const char *begin, const struct idem_sf *sf) {
    return (struct idem_http_text){begin, (size_t)(sf->at - begin)};
}

static size_t sf_skip_digits(struct idem_sf *sf) {
    const char *begin = sf->at;

    while (sf->at < sf->end && idem_is_digit(*sf->at))
        sf->at++;
    return (size_t)(sf->at - begin);
}

/* Each of these starts after the mark of its type, and stops before the closing mark. */

static bool sf_read_string(struct idem_sf *sf) {
    for (; sf->at < sf->end && *sf->at != '"'; sf->at++) {
        if (*sf->at == '\\') {
            sf->at++;
            if (!idem_sf_is(sf, '"') && !idem_sf_is(sf, '\\'))
                return false;
        }
        if (!idem_is_print(*sf->at))
            return false;
    }
    return sf->at < sf->end;
}

/* Reads an integer of up to 15 digits, or a decimal of up to 12 and 3. */
static bool sf_read_number(struct idem_sf *sf, enum idem_sf_type *type) {
    size_t n;

    if (idem_sf_is(sf, '-'))
        sf->at++;
    n = sf_skip_digits(sf);
    if (n == 0 || n > 15)
        return false;
    if (*type == IDEM_SF_DATE || !idem_sf_is(sf, '.'))
        return true;
    *type = IDEM_SF_DECIMAL;
    sf->at++;
    if (n > 12)
        return false;
    n = sf_skip_digits(sf);
    return n >= 1 && n <= 3;
}

/* Reads base64, with or without padding. */
static bool sf_read_bytes(struct idem_sf *sf) {
    size_t n = 0, pad = 0;

    for (; sf->at < sf->end && *sf->at != ':'; sf->at++) {
        if (*sf->at == '=')
            pad++;
        else if (pad == 0 &&
                 (idem_is_alpha(*sf->at) || idem_is_digit(*sf->at) || idem_is_any(*sf->at, "+/")))
            n++;
        else
            return false;
    }
    return sf->at < sf->end && n % 4 != 1 && (pad == 0 || (pad <= 2 && (n + pad) % 4 == 0));
}

/* Reads one byte of a display string; -1: malformed. */
static int sf_display_byte(struct idem_sf *sf) {
    if (*sf->at != '%')
        return idem_is_print(*sf->at) ? (unsigned char)*sf->at++ : -1;
    if (sf->end - sf->at < 3)
        return -1;
    for (int i = 1; i <= 2; i++) /* in lower case only */
        if (sf->at[i] >= 'A' && sf->at[i] <= 'F')
            return -1;
    sf->at += 3;
    return idem_hex_byte(sf->at - 2);
}

/* Reads a display string; its bytes must be UTF-8, so at most four are buffered. */
static bool sf_read_display(struct idem_sf *sf) {
    char c[4];
    size_t n = 0;
    uint32_t code;

    while (sf->at < sf->end && *sf->at != '"') {
        int byte = sf_display_byte(sf);

        if (byte < 0)
            return false;
        c[n++] = (char)byte;
        if (idem_utf8_next(c, n, &code) == n)
            n = 0;
        else if (n == sizeof(c))
            return false;
    }
    return sf->at < sf->end && n == 0;
}

static bool sf_read_boolean(struct idem_sf *sf) {
    if (!idem_sf_is(sf, '0') && !idem_sf_is(sf, '1'))
        return false;
    sf->at++;
    return true;
}

static bool sf_read_token(struct idem_sf *sf) {
    while (sf->at < sf->end && (idem_is_tchar(*sf->at) || *sf->at == ':' || *sf->at == '/'))
        sf->at++;
    return true;
}

/* The type of an item, by its first character; returns the length of its opening mark. */
static size_t sf_bare_type(const struct idem_sf *sf, enum idem_sf_type *ret) {
    char c = *sf->at;

    *ret = IDEM_SF_TOKEN;
    if (idem_is_alpha(c) || c == '*')
        return 0;
    *ret = IDEM_SF_INTEGER;
    if (idem_is_digit(c) || c == '-')
        return 0;
    *ret = c == '"'   ? IDEM_SF_STRING
           : c == ':' ? IDEM_SF_BYTES
           : c == '?' ? IDEM_SF_BOOLEAN
           : c == '@' ? IDEM_SF_DATE
           : c == '%' ? IDEM_SF_DISPLAY
                      : IDEM_SF_INNER_LIST;
    return c == '%' && sf->end - sf->at > 1 && sf->at[1] == '"' ? 2 : 1;
}

static bool sf_bare_content(struct idem_sf *sf, size_t marks, enum idem_sf_type *type) {
    switch (*type) {
    case IDEM_SF_INTEGER:
    case IDEM_SF_DATE:
        return sf_read_number(sf, type);
    case IDEM_SF_STRING:
        return sf_read_string(sf);
    case IDEM_SF_TOKEN:
        return sf_read_token(sf);
    case IDEM_SF_BYTES:
        return sf_read_bytes(sf);
    case IDEM_SF_BOOLEAN:
        return sf_read_boolean(sf);
    case IDEM_SF_DISPLAY:
        return marks == 2 && sf_read_display(sf);
    default:
        return false;
    }
}

bool idem_sf_bare(struct idem_sf *sf, struct idem_sf_bare *ret) {
    const char *begin = sf->at, *content;
    struct idem_sf_bare bare;
    size_t marks;

    if (sf->at == sf->end)
        return false;
    marks = sf_bare_type(sf, &bare.type);
    content = sf->at += marks;
    if (!sf_bare_content(sf, marks, &bare.type))
        return false;
    bare.text = structured_text_since(content, sf);
    if (bare.type == IDEM_SF_STRING || bare.type == IDEM_SF_BYTES || bare.type == IDEM_SF_DISPLAY)
        sf->at++; /* the closing mark */
    bare.all = structured_text_since(begin, sf);
    *ret = bare;
    return true;
}

size_t idem_sf_unescape(struct idem_http_text text, char *out, size_t size) {
    size_t len = 0;

    for (size_t i = 0; i < text.len; i++, len++) {
        if (text.at[i] == '\\')
            i++;
        if (out != NULL && len < size)
            out[len] = text.at[i];
    }
    return len;
}

static void sf_skip_blanks(struct idem_sf *sf, bool tabs) {
    while (idem_sf_is(sf, ' ') || (tabs && idem_sf_is(sf, '\t')))
        sf->at++;
}

static bool sf_read_key(struct idem_sf *sf, struct idem_http_text *ret) {
    const char *begin = sf->at;

    if (sf->at == sf->end || (!idem_is_lower(*sf->at) && *sf->at != '*'))
        return false;
    while (sf->at < sf->end &&
           (idem_is_lower(*sf->at) || idem_is_digit(*sf->at) || idem_is_any(*sf->at, "_-.*")))
        sf->at++;
    *ret = structured_text_since(begin, sf);
    return true;
}

static const struct idem_sf_bare bare_true = {IDEM_SF_BOOLEAN, {"1", 1}, {"", 0}};

enum idem_sf_next idem_sf_parameter(struct idem_sf *sf, struct idem_sf_parameter *ret) {
    if (!idem_sf_is(sf, ';'))
        return IDEM_SF_END;
    sf->at++;
    sf_skip_blanks(sf, false);
    if (!sf_read_key(sf, &ret->key))
        return IDEM_SF_BAD;
    ret->value = bare_true;
    if (!idem_sf_is(sf, '='))
        return IDEM_SF_NEXT;
    sf->at++;
    return idem_sf_bare(sf, &ret->value) ? IDEM_SF_NEXT : IDEM_SF_BAD;
}

bool idem_sf_parameters(struct idem_sf *sf) {
    struct idem_sf_parameter parameter;
    enum idem_sf_next next;

    do
        next = idem_sf_parameter(sf, &parameter);
    while (next == IDEM_SF_NEXT);
    return next == IDEM_SF_END;
}

enum idem_sf_next idem_sf_inner(struct idem_sf *sf, struct idem_sf_bare *ret) {
    sf_skip_blanks(sf, false);
    if (sf->at == sf->end)
        return IDEM_SF_END;
    return idem_sf_bare(sf, ret) ? IDEM_SF_NEXT : IDEM_SF_BAD;
}

/* Starts at the opening parenthesis. Spaces separate the items. */
static bool sf_read_inner_list(struct idem_sf *sf, struct idem_sf_bare *ret) {
    const char *open = sf->at++;
    struct idem_sf_bare item;

    for (;;) {
        sf_skip_blanks(sf, false);
        if (idem_sf_is(sf, ')'))
            break;
        if (!idem_sf_bare(sf, &item) || !idem_sf_parameters(sf) ||
            (!idem_sf_is(sf, ' ') && !idem_sf_is(sf, ')')))
            return false;
    }
    ret->type = IDEM_SF_INNER_LIST;
    ret->text = structured_text_since(open + 1, sf);
    sf->at++;
    ret->all = structured_text_since(open, sf);
    return true;
}

static bool sf_read_member_value(struct idem_sf *sf, struct idem_sf_bare *ret) {
    *ret = bare_true;
    if (!idem_sf_is(sf, '='))
        return true;
    sf->at++;
    return idem_sf_is(sf, '(') ? sf_read_inner_list(sf, ret) : idem_sf_bare(sf, ret);
}

enum idem_sf_next idem_sf_member(struct idem_sf *sf, struct idem_sf_member *ret) {
    struct idem_sf_member member;
    const char *begin;

    sf_skip_blanks(sf, true);
    if (sf->at == sf->end)
        return IDEM_SF_END;
    if (!sf_read_key(sf, &member.key) || !sf_read_member_value(sf, &member.value))
        return IDEM_SF_BAD;
    begin = sf->at;
    if (!idem_sf_parameters(sf))
        return IDEM_SF_BAD;
    member.parameters = structured_text_since(begin, sf);
    sf_skip_blanks(sf, true);
    if (sf->at < sf->end) {
        if (*sf->at++ != ',')
            return IDEM_SF_BAD;
        sf_skip_blanks(sf, true);
        if (sf->at == sf->end) /* a comma at the end */
            return IDEM_SF_BAD;
    }
    *ret = member;
    return IDEM_SF_NEXT;
}
