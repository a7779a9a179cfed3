/*
 * Text that grows, and values appended to it: as Java writes them, as Spring converts them, and as
 * keys need them.
 *
 * A list in a key is [a,b,[c]]: each item as Java prints it. A text is quoted, with inner quotes
 * doubled, if it is empty, contains one of , [ ] " or looks like an unquoted item of another type:
 * a number, which begins with a digit or -, or true or false. So a list can be read back with the
 * types of its items, and different lists have different texts; numbers that print alike count as
 * equal. Text from the document that begins with [ or " is quoted, too, so that no text looks like
 * a list.
 */
#include <math.h>
#include <string.h>

#include "base/bytes.h"
#include "base/units.h"
#include "expr/expr_value.h"
#include "json/json_number.h"

#define FIRST 112 /* bytes: enough for most keys */

void idem_text_init(struct idem_text *text, struct idem_work *work) {
    *text = (struct idem_text){.work = work, .ascii = true};
}

struct idem_value idem_text_value(const struct idem_text *text) {
    return idem_value_text(text->at == NULL ? "" : text->at, text->len, text->ascii);
}

static int text_grow(struct idem_text *text, size_t need) {
    size_t cap = text->cap == 0 ? FIRST : 2 * text->cap;
    char *at;

    if (need > IDEM_EXPR_TEXT_MAX)
        return IDEM_TROUBLE_SIZE;
    if (cap < need)
        cap = need;
    IDEM_TRY_ALLOC(text->work, at, cap);
    if (text->len > 0)
        memcpy(at, text->at, text->len);
    text->at = at;
    text->cap = cap;
    return 0;
}

int idem_text_put(struct idem_text *text, const char *bytes, size_t len, bool ascii) {
    IDEM_TRY(idem_work_spend(text->work, 1 + len / 64));
    if (len > text->cap - text->len)
        IDEM_TRY(text_grow(text, text->len + len));
    if (len > 0)
        memcpy(text->at + text->len, bytes, len);
    text->len += len;
    text->ascii &= ascii;
    return 0;
}

static int text_put_ascii(struct idem_text *text, const char *bytes, size_t len) {
    return idem_text_put(text, bytes, len, true);
}

static int text_put_integer(struct idem_text *text, int64_t n) {
    char digits[24], *end = digits + sizeof(digits);
    char *at = idem_digits_put(n < 0 ? -(uint64_t)n : (uint64_t)n, end);

    if (n < 0)
        *--at = '-';
    return text_put_ascii(text, at, (size_t)(end - at));
}

/* Types other than null, lists, maps and entries have the same text in all three forms. */
static int text_put_scalar(struct idem_text *text, const struct idem_value *v) {
    char digits[IDEM_NUMBER_MAX];

    switch (v->type) {
    case IDEM_VALUE_BOOL:
        return v->at.flag ? text_put_ascii(text, "true", 4) : text_put_ascii(text, "false", 5);
    case IDEM_VALUE_INT:
    case IDEM_VALUE_LONG:
        return text_put_integer(text, v->at.integer);
    case IDEM_VALUE_DOUBLE:
        return text_put_ascii(text, digits, idem_number_java(v->at.real, digits));
    case IDEM_VALUE_FLOAT:
        return text_put_ascii(text, digits, idem_number_java_float(v->at.single, digits));
    default:
        return idem_text_put(text, v->at.text, v->n, idem_value_is_ascii(v));
    }
}

/* As Java. */

static int text_put_pair_java(struct idem_text *text, const struct idem_pair *pair) {
    IDEM_TRY(idem_text_java(text, &pair->key));
    IDEM_TRY(text_put_ascii(text, "=", 1));
    return idem_text_java(text, &pair->value);
}

static int text_put_list_java(struct idem_text *text, const struct idem_value *list) {
    struct idem_value item;

    IDEM_TRY(text_put_ascii(text, "[", 1));
    for (uint32_t i = 0; i < list->n; i++) {
        IDEM_TRY(text_put_ascii(text, ", ", i == 0 ? 0 : 2));
        IDEM_TRY(idem_value_item(text->work, list, i, &item));
        IDEM_TRY(idem_text_java(text, &item));
    }
    return text_put_ascii(text, "]", 1);
}

static int text_put_map_java(struct idem_text *text, const struct idem_value *map) {
    struct idem_pair pair;

    if ((map->flags & IDEM_VALUE_LOOSE) != 0)
        return IDEM_TROUBLE_LOOSE;
    IDEM_TRY(text_put_ascii(text, "{", 1));
    for (uint32_t i = 0; i < map->n; i++) {
        IDEM_TRY(text_put_ascii(text, ", ", i == 0 ? 0 : 2));
        IDEM_TRY(idem_value_pair(text->work, map, i, &pair));
        IDEM_TRY(text_put_pair_java(text, &pair));
    }
    return text_put_ascii(text, "}", 1);
}

int idem_text_java(struct idem_text *text, const struct idem_value *v) {
    switch (v->type) {
    case IDEM_VALUE_NULL:
        return text_put_ascii(text, "null", 4);
    case IDEM_VALUE_LIST:
        return IDEM_DEEPER(text->work, text_put_list_java(text, v));
    case IDEM_VALUE_MAP:
        return IDEM_DEEPER(text->work, text_put_map_java(text, v));
    case IDEM_VALUE_ENTRY:
        return IDEM_DEEPER(text->work, text_put_pair_java(text, v->at.pairs));
    default:
        return text_put_scalar(text, v);
    }
}

/* As Spring. */

static int text_convert_list(struct idem_text *text, const struct idem_value *list) {
    struct idem_value item;

    for (uint32_t i = 0; i < list->n; i++) {
        IDEM_TRY(text_put_ascii(text, ",", i == 0 ? 0 : 1));
        IDEM_TRY(idem_value_item(text->work, list, i, &item));
        if (item.type == IDEM_VALUE_NULL)
            IDEM_TRY(text_put_ascii(text, "null", 4));
        else
            IDEM_TRY(idem_text_convert(text, &item));
    }
    return 0;
}

int idem_text_convert(struct idem_text *text, const struct idem_value *v) {
    switch (v->type) {
    case IDEM_VALUE_NULL:
    case IDEM_VALUE_MAP:
    case IDEM_VALUE_ENTRY:
        return IDEM_TROUBLE_TEXT;
    case IDEM_VALUE_LIST:
        return IDEM_DEEPER(text->work, text_convert_list(text, v));
    default:
        return text_put_scalar(text, v);
    }
}

/* As part of a key. */

static bool value_is_text(const struct idem_value *v) {
    return v->type == IDEM_VALUE_STRING || v->type == IDEM_VALUE_CHAR;
}

static int text_put_quoted(struct idem_text *text, const struct idem_value *v) {
    const char *at = v->at.text, *end = at + v->n, *quote;

    IDEM_TRY(text_put_ascii(text, "\"", 1));
    while ((quote = memchr(at, '"', (size_t)(end - at))) != NULL) {
        IDEM_TRY(idem_text_put(text, at, (size_t)(quote + 1 - at), idem_value_is_ascii(v)));
        IDEM_TRY(text_put_ascii(text, "\"", 1));
        at = quote + 1;
    }
    IDEM_TRY(idem_text_put(text, at, (size_t)(end - at), idem_value_is_ascii(v)));
    return text_put_ascii(text, "\"", 1);
}

static bool value_needs_quotes(const struct idem_value *v) {
    if (v->n == 0 || v->at.text[0] == '-' || idem_is_digit(v->at.text[0]) ||
        idem_is_word(v->at.text, v->n, "true") || idem_is_word(v->at.text, v->n, "false"))
        return true;
    for (uint32_t i = 0; i < v->n; i++) {
        char c = v->at.text[i];

        if (c == ',' || c == '[' || c == ']' || c == '"')
            return true;
    }
    return false;
}

static int text_put_list_key(struct idem_text *text, const struct idem_value *list);

static int text_put_number_key(struct idem_text *text, const struct idem_value *v) {
    if ((v->type == IDEM_VALUE_DOUBLE && !isfinite(v->at.real)) ||
        (v->type == IDEM_VALUE_FLOAT && !isfinite(v->at.single)))
        return IDEM_TROUBLE_KEY_FINITE;
    return text_put_scalar(text, v);
}

static int text_put_item_key(struct idem_text *text, const struct idem_value *v) {
    switch (v->type) {
    case IDEM_VALUE_NULL:
        return IDEM_TROUBLE_KEY_NULL;
    case IDEM_VALUE_MAP:
    case IDEM_VALUE_ENTRY:
        return IDEM_TROUBLE_KEY_OBJECT;
    case IDEM_VALUE_LIST:
        return IDEM_DEEPER(text->work, text_put_list_key(text, v));
    default:
        if (value_is_text(v) && value_needs_quotes(v))
            return text_put_quoted(text, v);
        return text_put_number_key(text, v);
    }
}

static int text_put_list_key(struct idem_text *text, const struct idem_value *list) {
    struct idem_value item;

    IDEM_TRY(text_put_ascii(text, "[", 1));
    for (uint32_t i = 0; i < list->n; i++) {
        IDEM_TRY(text_put_ascii(text, ",", i == 0 ? 0 : 1));
        IDEM_TRY(idem_value_item(text->work, list, i, &item));
        IDEM_TRY(text_put_item_key(text, &item));
    }
    return text_put_ascii(text, "]", 1);
}

int idem_text_key(struct idem_text *text, const struct idem_value *v) {
    if (value_is_text(v)) {
        if ((v->flags & IDEM_VALUE_MADE) == 0 && v->n > 0 &&
            (v->at.text[0] == '[' || v->at.text[0] == '"'))
            return text_put_quoted(text, v);
        return text_put_scalar(text, v);
    }
    if (v->type == IDEM_VALUE_LIST && v->n == 0)
        return IDEM_TROUBLE_KEY_LIST;
    return text_put_item_key(text, v);
}
