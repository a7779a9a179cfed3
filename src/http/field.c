/*
 * Single values of header fields: the key, numbers, words, types. The key's
 * reader is strict, because what two readers take for two keys runs twice; what
 * is refused is refused whole (fuzz/http_field_fuzz.c).
 */
#include "http/field.h"

#include <string.h>

#include "core/units.h"
#include "core/words.h"

static bool is_blank(char c) {
    return c == ' ' || c == '\t';
}

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

static bool is_lower(char c) {
    return c >= 'a' && c <= 'z';
}

static bool is_alpha(char c) {
    return is_lower((char)(c | 0x20));
}

static bool is_tchar(char c) {
    return is_digit(c) || is_alpha(c) || (c != '\0' && strchr("!#$%&'*+-.^_`|~", c) != NULL);
}

struct idem_http_text idem_http_trim(struct idem_http_text text) {
    while (text.len > 0 && is_blank(text.at[0])) {
        text.at++;
        text.len--;
    }
    while (text.len > 0 && is_blank(text.at[text.len - 1]))
        text.len--;
    return text;
}

bool idem_http_is_token(struct idem_http_text text) {
    for (size_t i = 0; i < text.len; i++)
        if (!is_tchar(text.at[i]))
            return false;
    return text.len > 0;
}

static char lower(char c) {
    return c >= 'A' && c <= 'Z' ? (char)(c | 0x20) : c;
}

bool idem_http_same(struct idem_http_text a, struct idem_http_text b) {
    if (a.len != b.len)
        return false;
    for (size_t i = 0; i < a.len; i++)
        if (lower(a.at[i]) != lower(b.at[i]))
            return false;
    return true;
}

/* Structured fields. Every reader begins at `at`, and leaves it behind what it read. */

struct item {
    const char *at, *end;
};

static bool item_is(const struct item *item, char c) {
    return item->at < item->end && *item->at == c;
}

static size_t item_digits(struct item *item) {
    const char *begin = item->at;

    while (item->at < item->end && is_digit(*item->at))
        item->at++;
    return (size_t)(item->at - begin);
}

/* Behind the opening quote, to behind the closing one. `out` has room for `size` bytes and may be
   NULL; *ret_len counts those that had none as well. */
static bool item_string(struct item *item, char *out, size_t size, size_t *ret_len) {
    size_t len = 0;

    for (; item->at < item->end && *item->at != '"'; item->at++) {
        if (*item->at == '\\') {
            item->at++;
            if (!item_is(item, '"') && !item_is(item, '\\'))
                return false;
        }
        if (*item->at < 0x20 || *item->at > 0x7e)
            return false;
        if (out != NULL && len < size)
            out[len] = *item->at;
        len++;
    }
    if (item->at == item->end)
        return false;
    item->at++;
    *ret_len = len;
    return true;
}

/* An integer of up to 15 digits, or a decimal of up to 12 and 3. */
static bool item_number(struct item *item, bool whole) {
    size_t n;

    if (item_is(item, '-'))
        item->at++;
    n = item_digits(item);
    if (n == 0 || n > 15)
        return false;
    if (whole || !item_is(item, '.'))
        return true;
    item->at++;
    if (n > 12)
        return false;
    n = item_digits(item);
    return n >= 1 && n <= 3;
}

/* Behind the first colon: base64, whose padding may be missing, up to the second. */
static bool item_binary(struct item *item) {
    size_t n = 0, pad = 0;

    for (; item->at < item->end && *item->at != ':'; item->at++) {
        if (*item->at == '=')
            pad++;
        else if (pad == 0 &&
                 (is_alpha(*item->at) || is_digit(*item->at) || strchr("+/", *item->at)) &&
                 *item->at != '\0')
            n++;
        else
            return false;
    }
    if (item->at == item->end || n % 4 == 1 || (pad != 0 && (pad > 2 || (n + pad) % 4 != 0)))
        return false;
    item->at++;
    return true;
}

static int hex_lower(char c) {
    if (is_digit(c))
        return c - '0';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* One byte of a display string, or -1. */
static int item_display_byte(struct item *item) {
    int high, low;

    if (*item->at != '%')
        return *item->at < 0x20 || *item->at > 0x7e ? -1 : (unsigned char)*item->at++;
    if (item->end - item->at < 3)
        return -1;
    high = hex_lower(item->at[1]);
    low = hex_lower(item->at[2]);
    item->at += 3;
    return high < 0 || low < 0 ? -1 : high << 4 | low;
}

/* Behind the percent sign: UTF-8 between quotes, of which up to four bytes are looked at. */
static bool item_display(struct item *item) {
    char c[4];
    size_t n = 0;
    uint32_t code;

    if (!item_is(item, '"'))
        return false;
    item->at++;
    while (item->at < item->end && *item->at != '"') {
        int byte = item_display_byte(item);

        if (byte < 0)
            return false;
        c[n++] = (char)byte;
        if (idem_utf8_next(c, n, &code) == n)
            n = 0;
        else if (n == sizeof(c))
            return false;
    }
    if (item->at == item->end || n != 0)
        return false;
    item->at++;
    return true;
}

static void item_token(struct item *item) {
    while (item->at < item->end && (is_tchar(*item->at) || *item->at == ':' || *item->at == '/'))
        item->at++;
}

/* The value of a parameter, which is only checked. */
static bool item_bare(struct item *item) {
    size_t len;
    char c;

    if (item->at == item->end)
        return false;
    c = *item->at;
    if (is_digit(c) || c == '-')
        return item_number(item, false);
    if (is_alpha(c) || c == '*') {
        item_token(item);
        return true;
    }
    item->at++;
    switch (c) {
    case '"':
        return item_string(item, NULL, 0, &len);
    case ':':
        return item_binary(item);
    case '@':
        return item_number(item, true);
    case '%':
        return item_display(item);
    case '?':
        if (!item_is(item, '0') && !item_is(item, '1'))
            return false;
        item->at++;
        return true;
    default:
        return false;
    }
}

static bool item_parameters(struct item *item) {
    while (item_is(item, ';')) {
        do
            item->at++;
        while (item_is(item, ' '));
        if (item->at == item->end || (!is_lower(*item->at) && *item->at != '*'))
            return false;
        while (item->at < item->end && (is_lower(*item->at) || is_digit(*item->at) ||
                                        (*item->at != '\0' && strchr("_-.*", *item->at) != NULL)))
            item->at++;
        if (item_is(item, '=')) {
            item->at++;
            if (!item_bare(item))
                return false;
        }
    }
    return true;
}

static const char *key_quoted(struct idem_http_text value, char *out, size_t *ret_len) {
    struct item item = {value.at + 1, value.at + value.len};
    size_t len;

    if (!item_string(&item, out, IDEM_HTTP_KEY_MAX, &len))
        return "The key begins with a quote, but is no string of structured fields (RFC 9651): "
               "printable ASCII in double quotes, with \\\" and \\\\ for those two.";
    if (!item_parameters(&item) || item.at != item.end)
        return "What follows the key's closing quote are no parameters of structured fields "
               "(RFC 9651).";
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
        return key_quoted(value, out, ret_len);
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

/* Numbers, words, types. */

bool idem_http_number(struct idem_http_text value, int64_t min, int64_t max, int64_t *ret) {
    int64_t number = 0;

    value = idem_http_trim(value);
    for (size_t i = 0; i < value.len; i++)
        if (!is_digit(value.at[i]) || __builtin_mul_overflow(number, 10, &number) ||
            __builtin_add_overflow(number, value.at[i] - '0', &number))
            return false;
    if (value.len == 0 || number < min || number > max)
        return false;
    *ret = number;
    return true;
}

bool idem_http_outcome_read(struct idem_http_text value, enum idem_http_outcome *ret) {
    static const struct idem_word words[] = {
        {"done", IDEM_HTTP_DONE},
        {"release", IDEM_HTTP_RELEASE},
        {"keep", IDEM_HTTP_KEEP},
        {"unknown", IDEM_HTTP_UNKNOWN},
        {NULL, 0},
    };

    value = idem_http_trim(value);
    for (const struct idem_word *word = words; word->word != NULL; word++)
        if (idem_http_same(value, (struct idem_http_text){word->word, strlen(word->word)})) {
            *ret = (enum idem_http_outcome)word->value;
            return true;
        }
    return false;
}

enum idem_http_type idem_http_type_read(struct idem_http_text value) {
    const char *slash, *semicolon;
    struct idem_http_text type, sub;

    if (value.len == 0)
        return IDEM_HTTP_OTHER;
    semicolon = memchr(value.at, ';', value.len);
    if (semicolon != NULL)
        value.len = (size_t)(semicolon - value.at);
    value = idem_http_trim(value);
    slash = memchr(value.at, '/', value.len);
    if (slash == NULL)
        return IDEM_HTTP_OTHER;
    type = (struct idem_http_text){value.at, (size_t)(slash - value.at)};
    sub = (struct idem_http_text){slash + 1, value.len - type.len - 1};
    if (!idem_http_is_token(type) || !idem_http_is_token(sub))
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
