/*
 * The table of methods, and the functions of all types except strings. An argument whose conversion
 * in Java is not certain is refused.
 */

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/bytes.h"
#include "base/units.h"
#include "expr/expr_tree.h"
#include "expr/expr_value.h"

/*
 * Upper and lower case, where one character maps to one character, in every language but Turkish:
 * ASCII, Latin-1, Cyrillic, and scripts without case. All else (sharp s, sigma at the end of a
 * word...) is refused.
 */

static const struct range {
    uint32_t first, last;
    int32_t to_upper, to_lower;
} ranges[] = {
    {0x0, 0x40, 0, 0},        {'A', 'Z', 0, 32},        {0x5b, 0x60, 0, 0},
    {'a', 'z', -32, 0},       {0x7b, 0xb4, 0, 0},       {0xb6, 0xbf, 0, 0},
    {0xc0, 0xd6, 0, 32},      {0xd7, 0xd7, 0, 0},       {0xd8, 0xde, 0, 32},
    {0xe0, 0xf6, -32, 0},     {0xf7, 0xf7, 0, 0},       {0xf8, 0xfe, -32, 0},
    {0x400, 0x40f, 0, 80},    {0x410, 0x42f, 0, 32},    {0x430, 0x44f, -32, 0},
    {0x450, 0x45f, -80, 0},   {0x590, 0x6ff, 0, 0},     /* Hebrew, Arabic */
    {0x900, 0xeff, 0, 0},                               /* India, Thai, Lao */
    {0x2000, 0x206f, 0, 0},   {0x20a0, 0x20cf, 0, 0},   /* punctuation, currencies */
    {0x3000, 0xa4cf, 0, 0},   {0xac00, 0xd7a3, 0, 0},   /* China, Japan, Korea */
    {0x1f300, 0x1faff, 0, 0}, {0x20000, 0x2a6df, 0, 0}, /* emoji, more ideographs */
};

/* NULL: the mapping is not simple. The other case has the same number of bytes. */
static const struct range *case_find_range(uint32_t c) {
    for (size_t i = 0; i < sizeof(ranges) / sizeof(ranges[0]); i++)
        if (c >= ranges[i].first && c <= ranges[i].last)
            return &ranges[i];
    return NULL;
}

/*
 * The methods of strings, with Java's results: places in UTF-16 units, and the same arguments
 * accepted and refused.
 */

/* Spends the steps for reading the whole text, before the work. */
static int work_spend_text(struct idem_work *work, const struct idem_value *v) {
    return idem_work_spend(work, v->n / 16);
}

/* An argument where Java takes a String; Spring converts other types. */
static int strings_text_argument(struct idem_work *work, const struct idem_value *arg,
                                 struct idem_value *ret) {
    struct idem_text text;

    if (arg->type == IDEM_VALUE_STRING) {
        *ret = *arg;
        return 0;
    }
    if (work->strict && arg->type == IDEM_VALUE_LIST)
        return IDEM_TROUBLE_KEY_PRINTED;
    idem_text_init(&text, work);
    if (idem_text_convert(&text, arg) != 0)
        return IDEM_TROUBLE_ARGUMENT;
    *ret = idem_text_value(&text);
    return 0;
}

static int strings_index_argument(const struct idem_value *arg, int32_t *ret) {
    return idem_value_index(arg, ret) == 0 ? 0 : IDEM_TROUBLE_ARGUMENT;
}

static int string_length(struct idem_work *work, const struct idem_value *self,
                         const struct idem_value *args, struct idem_value *ret) {
    (void)args;
    IDEM_TRY(work_spend_text(work, self));
    *ret = idem_value_int((int64_t)idem_utf16_units(self));
    return 0;
}

/* Parts. */

static int strings_part(struct idem_work *work, const struct idem_value *self, int64_t from,
                        int64_t to, struct idem_value *ret) {
    IDEM_TRY(work_spend_text(work, self));
    return from > to ? IDEM_TROUBLE_RANGE : idem_utf16_part(self, from, to, ret);
}

static int string_substring(struct idem_work *work, const struct idem_value *self,
                            const struct idem_value *args, struct idem_value *ret) {
    int32_t from;

    IDEM_TRY(strings_index_argument(&args[0], &from));
    IDEM_TRY(work_spend_text(work, self));
    return strings_part(work, self, from, (int64_t)idem_utf16_units(self), ret);
}

static int string_substring_to(struct idem_work *work, const struct idem_value *self,
                               const struct idem_value *args, struct idem_value *ret) {
    int32_t from, to;

    IDEM_TRY(strings_index_argument(&args[0], &from));
    IDEM_TRY(strings_index_argument(&args[1], &to));
    return strings_part(work, self, from, to, ret);
}

static int string_char_at(struct idem_work *work, const struct idem_value *self,
                          const struct idem_value *args, struct idem_value *ret) {
    int32_t at;

    IDEM_TRY(strings_index_argument(&args[0], &at));
    IDEM_TRY(strings_part(work, self, at, (int64_t)at + 1, ret));
    ret->type = IDEM_VALUE_CHAR;
    return 0;
}

static int string_trim(struct idem_work *work, const struct idem_value *self,
                       const struct idem_value *args, struct idem_value *ret) {
    (void)args;
    IDEM_TRY(work_spend_text(work, self));
    *ret = idem_value_trim(self);
    return 0;
}

/* Searches. */

static int string_contains(struct idem_work *work, const struct idem_value *self,
                           const struct idem_value *args, struct idem_value *ret) {
    if (args[0].type != IDEM_VALUE_STRING)
        return IDEM_TROUBLE_ARGUMENT;
    IDEM_TRY(work_spend_text(work, self));
    *ret = idem_value_bool(idem_utf16_find(self, &args[0], 0) >= 0);
    return 0;
}

static int strings_starts_or_ends(struct idem_work *work, const struct idem_value *self,
                                  const struct idem_value *arg, bool at_end,
                                  struct idem_value *ret) {
    struct idem_value other;
    size_t from;

    IDEM_TRY(strings_text_argument(work, arg, &other));
    IDEM_TRY(work_spend_text(work, &other));
    from = at_end && other.n <= self->n ? self->n - other.n : 0;
    *ret = idem_value_bool(other.n <= self->n &&
                           memcmp(self->at.text + from, other.at.text, other.n) == 0);
    return 0;
}

static int string_starts(struct idem_work *work, const struct idem_value *self,
                         const struct idem_value *args, struct idem_value *ret) {
    return strings_starts_or_ends(work, self, &args[0], false, ret);
}

static int string_ends(struct idem_work *work, const struct idem_value *self,
                       const struct idem_value *args, struct idem_value *ret) {
    return strings_starts_or_ends(work, self, &args[0], true, ret);
}

/*
 * indexOf() and lastIndexOf() take a String, or an int that is a character. For other types, which
 * convert to both, Java's choice is ambiguous. Sets *none if the number is not a code point.
 */
static int strings_search_argument(const struct idem_value *arg, char buf[4],
                                   struct idem_value *ret, bool *none) {
    uint32_t c;

    *none = false;
    *ret = *arg;
    if (arg->type == IDEM_VALUE_STRING)
        return 0;
    if (arg->type != IDEM_VALUE_INT)
        return IDEM_TROUBLE_ARGUMENT;
    *none = arg->at.integer < 0 || arg->at.integer > 0x10ffff;
    if (*none)
        return 0;
    c = (uint32_t)arg->at.integer;
    if (c >= 0xd800 && c <= 0xdfff)
        return IDEM_TROUBLE_SURROGATE;
    *ret = idem_value_text(buf, idem_utf8_put(c, buf), c < 0x80);
    return 0;
}

static int strings_search(struct idem_work *work, const struct idem_value *self,
                          const struct idem_value *arg, int64_t from, bool last,
                          struct idem_value *ret) {
    struct idem_value other;
    char buf[4];
    bool none;

    IDEM_TRY(strings_search_argument(arg, buf, &other, &none));
    /* The backward search compares at every place. */
    IDEM_TRY(idem_work_spend(work, self->n / 16 + (last ? self->n / 16 * (other.n / 16) : 0)));
    *ret = idem_value_int(none   ? -1
                          : last ? idem_utf16_find_last(self, &other, from)
                                 : idem_utf16_find(self, &other, from));
    return 0;
}

static int string_index_of(struct idem_work *work, const struct idem_value *self,
                           const struct idem_value *args, struct idem_value *ret) {
    return strings_search(work, self, &args[0], 0, false, ret);
}

static int string_last_index_of(struct idem_work *work, const struct idem_value *self,
                                const struct idem_value *args, struct idem_value *ret) {
    return strings_search(work, self, &args[0], INT32_MAX, true, ret);
}

/* If the second argument is not an Integer, Java's choice between String and int is ambiguous. */
static int string_index_of_from(struct idem_work *work, const struct idem_value *self,
                                const struct idem_value *args, struct idem_value *ret) {
    if (args[1].type != IDEM_VALUE_INT)
        return IDEM_TROUBLE_ARGUMENT;
    return strings_search(work, self, &args[0], args[1].at.integer, false, ret);
}

static int string_last_index_of_from(struct idem_work *work, const struct idem_value *self,
                                     const struct idem_value *args, struct idem_value *ret) {
    if (args[1].type != IDEM_VALUE_INT)
        return IDEM_TROUBLE_ARGUMENT;
    return strings_search(work, self, &args[0], args[1].at.integer, true, ret);
}

static int string_matches(struct idem_work *work, const struct idem_value *self,
                          const struct idem_value *args, struct idem_value *ret) {
    bool matched;

    if (args[0].type != IDEM_VALUE_STRING)
        return IDEM_TROUBLE_ARGUMENT;
    IDEM_TRY(idem_match(work, NULL, self, &args[0], &matched));
    *ret = idem_value_bool(matched);
    return 0;
}

/* Comparisons. */

static int string_compare(struct idem_work *work, const struct idem_value *self,
                          const struct idem_value *args, struct idem_value *ret) {
    struct idem_value other;

    IDEM_TRY(strings_text_argument(work, &args[0], &other));
    IDEM_TRY(work_spend_text(work, self));
    IDEM_TRY(work_spend_text(work, &other));
    *ret = idem_value_int(idem_utf16_compare(self, &other));
    return 0;
}

static bool value_all_ascii(const struct idem_value *v) {
    if (idem_value_is_ascii(v))
        return true;
    for (uint32_t i = 0; i < v->n; i++)
        if ((unsigned char)v->at.text[i] >= 0x80)
            return false;
    return true;
}

/* Java folds one unit at a time, so that texts of different length are never equal. */
static int string_equals_fold(struct idem_work *work, const struct idem_value *self,
                              const struct idem_value *args, struct idem_value *ret) {
    struct idem_value other;
    bool same;

    if (args[0].type == IDEM_VALUE_NULL) {
        *ret = idem_value_bool(false);
        return 0;
    }
    IDEM_TRY(strings_text_argument(work, &args[0], &other));
    IDEM_TRY(work_spend_text(work, self));
    IDEM_TRY(work_spend_text(work, &other));
    IDEM_TRY(idem_value_equals(work, self, &other, &same));
    *ret = idem_value_bool(same);
    if (same || idem_utf16_units(self) != idem_utf16_units(&other))
        return 0;
    if (!value_all_ascii(self) || !value_all_ascii(&other))
        return IDEM_TROUBLE_CASE;
    *ret = idem_value_bool(idem_same_ignoring_case(self->at.text, self->n, other.at.text, other.n));
    return 0;
}

/* New texts. */

static int strings_map_case(struct idem_work *work, const struct idem_value *self, bool upper,
                            struct idem_value *ret) {
    char *at;
    const struct range *range;
    uint32_t c;

    IDEM_TRY_ALLOC(work, at, self->n);
    IDEM_TRY(idem_work_spend(work, self->n / 4));
    for (size_t pos = 0; pos < self->n;) {
        idem_utf8_next(self->at.text + pos, self->n - pos, &c);
        range = case_find_range(c);
        if (range == NULL)
            return IDEM_TROUBLE_CASE;
        c = (uint32_t)((int32_t)c + (upper ? range->to_upper : range->to_lower));
        pos += idem_utf8_put(c, at + pos);
    }
    *ret = idem_value_text(at, self->n, idem_value_is_ascii(self));
    return 0;
}

static int string_lower(struct idem_work *work, const struct idem_value *self,
                        const struct idem_value *args, struct idem_value *ret) {
    (void)args;
    return strings_map_case(work, self, false, ret);
}

static int string_upper(struct idem_work *work, const struct idem_value *self,
                        const struct idem_value *args, struct idem_value *ret) {
    (void)args;
    return strings_map_case(work, self, true, ret);
}

static int string_concat(struct idem_work *work, const struct idem_value *self,
                         const struct idem_value *args, struct idem_value *ret) {
    struct idem_value other;
    struct idem_text text;

    IDEM_TRY(strings_text_argument(work, &args[0], &other));
    idem_text_init(&text, work);
    IDEM_TRY(idem_text_put(&text, self->at.text, self->n, idem_value_is_ascii(self)));
    IDEM_TRY(idem_text_put(&text, other.at.text, other.n, idem_value_is_ascii(&other)));
    *ret = idem_text_value(&text);
    return 0;
}

static int string_repeat(struct idem_work *work, const struct idem_value *self,
                         const struct idem_value *args, struct idem_value *ret) {
    struct idem_value times;
    int32_t n;

    IDEM_TRY(strings_index_argument(&args[0], &n));
    if (n < 0)
        return IDEM_TROUBLE_ARGUMENT;
    times = idem_value_int(n);
    return idem_op_calculate(work, IDEM_EXPR_OP_MULTIPLY, self, &times, ret);
}

/* An empty text is found before every unit and at the end. */
static int text_replace_empty(struct idem_text *text, const struct idem_value *self,
                              const struct idem_value *by) {
    size_t end;

    for (size_t pos = 0; pos < self->n; pos = end) {
        for (end = pos + 1; end < self->n && ((unsigned char)self->at.text[end] & 0xc0) == 0x80;)
            end++;
        if (end - pos == 4)
            return IDEM_TROUBLE_SURROGATE;
        IDEM_TRY(idem_text_put(text, by->at.text, by->n, idem_value_is_ascii(by)));
        IDEM_TRY(idem_text_put(text, self->at.text + pos, end - pos, idem_value_is_ascii(self)));
    }
    return idem_text_put(text, by->at.text, by->n, idem_value_is_ascii(by));
}

static int text_replace_all(struct idem_text *text, const struct idem_value *self,
                            const struct idem_value *what, const struct idem_value *by) {
    const char *at = self->at.text, *end = at + self->n, *found;

    while (at < end && (found = memmem(at, (size_t)(end - at), what->at.text, what->n)) != NULL) {
        IDEM_TRY(idem_text_put(text, at, (size_t)(found - at), idem_value_is_ascii(self)));
        IDEM_TRY(idem_text_put(text, by->at.text, by->n, idem_value_is_ascii(by)));
        at = found + what->n;
    }
    return idem_text_put(text, at, (size_t)(end - at), idem_value_is_ascii(self));
}

static int string_replace(struct idem_work *work, const struct idem_value *self,
                          const struct idem_value *args, struct idem_value *ret) {
    struct idem_text text;

    if (args[0].type != IDEM_VALUE_STRING || args[1].type != IDEM_VALUE_STRING)
        return IDEM_TROUBLE_ARGUMENT;
    IDEM_TRY(work_spend_text(work, self));
    idem_text_init(&text, work);
    if (args[0].n == 0)
        IDEM_TRY(text_replace_empty(&text, self, &args[1]));
    else
        IDEM_TRY(text_replace_all(&text, self, &args[0], &args[1]));
    *ret = idem_text_value(&text);
    return 0;
}

/*
 * Methods of the other types, and the table.
 */

static int methods_to_string(struct idem_work *work, const struct idem_value *self,
                             const struct idem_value *args, struct idem_value *ret) {
    struct idem_text text;

    (void)args;
    if (self->type == IDEM_VALUE_STRING) {
        *ret = *self;
        return 0;
    }
    if (work->strict && self->type >= IDEM_VALUE_LIST)
        return IDEM_TROUBLE_KEY_PRINTED;
    idem_text_init(&text, work);
    IDEM_TRY(idem_text_java(&text, self));
    *ret = idem_text_value(&text);
    return 0;
}

static int methods_equals(struct idem_work *work, const struct idem_value *self,
                          const struct idem_value *args, struct idem_value *ret) {
    bool same;

    IDEM_TRY(idem_value_equals(work, self, &args[0], &same));
    *ret = idem_value_bool(same);
    return 0;
}

static int methods_hash(struct idem_work *work, const struct idem_value *self,
                        const struct idem_value *args, struct idem_value *ret) {
    uint32_t hash;

    (void)args;
    IDEM_TRY(idem_value_hash(work, self, &hash));
    *ret = idem_value_int((int32_t)hash);
    return 0;
}

/* Lists and maps. */

static int methods_size(struct idem_work *work, const struct idem_value *self,
                        const struct idem_value *args, struct idem_value *ret) {
    (void)work;
    (void)args;
    *ret = idem_value_int(self->n);
    return 0;
}

static int methods_is_empty(struct idem_work *work, const struct idem_value *self,
                            const struct idem_value *args, struct idem_value *ret) {
    (void)work;
    (void)args;
    *ret = idem_value_bool(self->n == 0);
    return 0;
}

static int methods_list_get(struct idem_work *work, const struct idem_value *self,
                            const struct idem_value *args, struct idem_value *ret) {
    int32_t at;

    if (idem_value_index(&args[0], &at) != 0)
        return IDEM_TROUBLE_ARGUMENT;
    if (at < 0 || (uint32_t)at >= self->n)
        return IDEM_TROUBLE_RANGE;
    return idem_value_item(work, self, (uint32_t)at, ret);
}

/* The first index that has the item, from `i` in steps of `by`; -1 if there is none. */
static int methods_list_search(struct idem_work *work, const struct idem_value *self,
                               const struct idem_value *arg, int64_t i, int by, int64_t *ret) {
    struct idem_value item;
    bool same = false;

    for (; i >= 0 && i < self->n; i += by) {
        IDEM_TRY(idem_value_item(work, self, (uint32_t)i, &item));
        IDEM_TRY(idem_value_equals(work, &item, arg, &same));
        if (same)
            break;
    }
    *ret = same ? i : -1;
    return 0;
}

static int methods_list_contains(struct idem_work *work, const struct idem_value *self,
                                 const struct idem_value *args, struct idem_value *ret) {
    int64_t at;

    IDEM_TRY(methods_list_search(work, self, &args[0], 0, 1, &at));
    *ret = idem_value_bool(at >= 0);
    return 0;
}

static int methods_list_index_of(struct idem_work *work, const struct idem_value *self,
                                 const struct idem_value *args, struct idem_value *ret) {
    int64_t at;

    IDEM_TRY(methods_list_search(work, self, &args[0], 0, 1, &at));
    *ret = idem_value_int(at);
    return 0;
}

static int methods_list_last_index_of(struct idem_work *work, const struct idem_value *self,
                                      const struct idem_value *args, struct idem_value *ret) {
    int64_t at;

    IDEM_TRY(methods_list_search(work, self, &args[0], (int64_t)self->n - 1, -1, &at));
    *ret = idem_value_int(at);
    return 0;
}

static int methods_map_get(struct idem_work *work, const struct idem_value *self,
                           const struct idem_value *args, struct idem_value *ret) {
    bool found;

    return idem_value_get(work, self, &args[0], &found, ret);
}

static int methods_map_get_or(struct idem_work *work, const struct idem_value *self,
                              const struct idem_value *args, struct idem_value *ret) {
    bool found;

    IDEM_TRY(idem_value_get(work, self, &args[0], &found, ret));
    if (!found)
        *ret = args[1];
    return 0;
}

static int methods_map_has_key(struct idem_work *work, const struct idem_value *self,
                               const struct idem_value *args, struct idem_value *ret) {
    struct idem_value value;
    bool found;

    IDEM_TRY(idem_value_get(work, self, &args[0], &found, &value));
    *ret = idem_value_bool(found);
    return 0;
}

static int methods_map_has_value(struct idem_work *work, const struct idem_value *self,
                                 const struct idem_value *args, struct idem_value *ret) {
    struct idem_pair pair;
    bool same = false;

    for (uint32_t i = 0; !same && i < self->n; i++) {
        IDEM_TRY(idem_value_pair(work, self, i, &pair));
        IDEM_TRY(idem_value_equals(work, &pair.value, &args[0], &same));
    }
    *ret = idem_value_bool(same);
    return 0;
}

/* Numbers. */

static bool value_is_real(const struct idem_value *v) {
    return v->type == IDEM_VALUE_DOUBLE || v->type == IDEM_VALUE_FLOAT;
}

static int methods_number_long(struct idem_work *work, const struct idem_value *self,
                               const struct idem_value *args, struct idem_value *ret) {
    double d = value_is_real(self) ? idem_value_double(self) : 0;
    int64_t n = value_is_real(self) ? idem_double_long(d) : self->at.integer;

    (void)args;
    if (work->strict && !(d >= -0x1p63 && d < 0x1p63))
        return IDEM_TROUBLE_KEY_OVERFLOW;
    *ret = (struct idem_value){.type = IDEM_VALUE_LONG, .at.integer = n};
    return 0;
}

/* As in Java, a real number saturates at the limits of int, and an integer wraps around. */
static int methods_number_int(struct idem_work *work, const struct idem_value *self,
                              const struct idem_value *args, struct idem_value *ret) {
    int64_t n = value_is_real(self) ? idem_double_int(idem_value_double(self))
                                    : (int32_t)(uint32_t)(uint64_t)self->at.integer;

    (void)args;
    if (work->strict &&
        (value_is_real(self) ? (double)n != trunc(idem_value_double(self)) : n != self->at.integer))
        return IDEM_TROUBLE_KEY_OVERFLOW;
    *ret = idem_value_int(n);
    return 0;
}

static int methods_number_double(struct idem_work *work, const struct idem_value *self,
                                 const struct idem_value *args, struct idem_value *ret) {
    static const int64_t most = (int64_t)1 << 53;
    double d = idem_value_double(self);

    (void)args;
    if (work->strict && !value_is_real(self) &&
        (self->at.integer > most || self->at.integer < -most))
        return IDEM_TROUBLE_KEY_EXACT;
    *ret = (struct idem_value){.type = IDEM_VALUE_DOUBLE, .at.real = d};
    return 0;
}

/* The table, sorted by name. */

#define STRINGS (1 << IDEM_VALUE_STRING)
#define LISTS (1 << IDEM_VALUE_LIST)
#define MAPS (1 << IDEM_VALUE_MAP)
#define NUMBERS                                                                                    \
    (1 << IDEM_VALUE_INT | 1 << IDEM_VALUE_LONG | 1 << IDEM_VALUE_DOUBLE | 1 << IDEM_VALUE_FLOAT)
#define ALL                                                                                        \
    (STRINGS | LISTS | MAPS | NUMBERS | 1 << IDEM_VALUE_BIG | 1 << IDEM_VALUE_BOOL |               \
     1 << IDEM_VALUE_CHAR | 1 << IDEM_VALUE_ENTRY)

/* clang-format off */
static const struct idem_method methods[] = {
    {"charAt", 1, STRINGS, string_char_at, false},
    {"compareTo", 1, STRINGS, string_compare, false},
    {"concat", 1, STRINGS, string_concat, false},
    {"contains", 1, STRINGS, string_contains, false},
    {"contains", 1, LISTS, methods_list_contains, false},
    {"containsKey", 1, MAPS, methods_map_has_key, false},
    {"containsValue", 1, MAPS, methods_map_has_value, false},
    {"doubleValue", 0, NUMBERS, methods_number_double, false},
    {"endsWith", 1, STRINGS, string_ends, false},
    {"equals", 1, ALL, methods_equals, false},
    {"equalsIgnoreCase", 1, STRINGS, string_equals_fold, false},
    {"get", 1, LISTS, methods_list_get, false},
    {"get", 1, MAPS, methods_map_get, false},
    {"getOrDefault", 2, MAPS, methods_map_get_or, false},
    {"hashCode", 0, ALL, methods_hash, true},
    {"indexOf", 1, STRINGS, string_index_of, false},
    {"indexOf", 1, LISTS, methods_list_index_of, false},
    {"indexOf", 2, STRINGS, string_index_of_from, false},
    {"intValue", 0, NUMBERS, methods_number_int, false},
    {"isEmpty", 0, STRINGS | LISTS | MAPS, methods_is_empty, false},
    {"lastIndexOf", 1, STRINGS, string_last_index_of, false},
    {"lastIndexOf", 1, LISTS, methods_list_last_index_of, false},
    {"lastIndexOf", 2, STRINGS, string_last_index_of_from, false},
    {"length", 0, STRINGS, string_length, false},
    {"longValue", 0, NUMBERS, methods_number_long, false},
    {"matches", 1, STRINGS, string_matches, false},
    {"repeat", 1, STRINGS, string_repeat, false},
    {"replace", 2, STRINGS, string_replace, false},
    {"size", 0, LISTS | MAPS, methods_size, false},
    {"startsWith", 1, STRINGS, string_starts, false},
    {"substring", 1, STRINGS, string_substring, false},
    {"substring", 2, STRINGS, string_substring_to, false},
    {"toLowerCase", 0, STRINGS, string_lower, false},
    {"toString", 0, ALL, methods_to_string, false},
    {"toUpperCase", 0, STRINGS, string_upper, false},
    {"trim", 0, STRINGS, string_trim, false},
    {NULL, 0, 0, NULL, false},
};
/* clang-format on */

const struct idem_method *idem_method_find(const char *name, size_t len, size_t args) {
    for (const struct idem_method *method = methods; method->name != NULL; method++)
        if (method->args == args && idem_is_word(name, len, method->name))
            return method;
    return NULL;
}

bool idem_method_known(const char *name, size_t len) {
    for (const struct idem_method *method = methods; method->name != NULL; method++)
        if (idem_is_word(name, len, method->name))
            return true;
    return false;
}

const struct idem_method *idem_method_of(const struct idem_method *method,
                                         const struct idem_value *self) {
    const char *name = method->name;

    for (uint8_t args = method->args; method->name != NULL && strcmp(method->name, name) == 0;
         method++)
        if (method->args == args && (method->types >> self->type & 1) != 0)
            return method;
    return NULL;
}
