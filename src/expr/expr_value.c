/*
 * Values: converts those of the document to Java's types, reads lists and maps of the document and
 * of the expression, and compares and hashes values as Java does.
 */
#include "expr/expr_value.h"

#include <math.h>
#include <string.h>

#include "base/bytes.h"
#include "base/units.h"
#include "json/json_number.h"

void *idem_work_alloc(struct idem_work *work, size_t size) {
    return idem_arena_alloc(work->arena, size == 0 ? 1 : size);
}

struct idem_value idem_value_text(const char *text, size_t len, bool ascii) {
    return (struct idem_value){.type = IDEM_VALUE_STRING,
                               .flags = ascii ? IDEM_VALUE_ASCII : 0,
                               .n = (uint32_t)len,
                               .at.text = text};
}

struct idem_value idem_value_bool(bool flag) {
    return (struct idem_value){.type = IDEM_VALUE_BOOL, .at.flag = flag};
}

struct idem_value idem_value_int(int64_t n) {
    return (struct idem_value){.type = IDEM_VALUE_INT, .at.integer = n};
}

/* From the document. */

/* False if the number needs more than 64 bits. */
static bool value_read_integer(const char *text, size_t len, int64_t *ret) {
    bool negative = text[0] == '-';
    int64_t n = 0;

    for (size_t i = negative; i < len; i++)
        if (__builtin_mul_overflow(n, 10, &n) || __builtin_sub_overflow(n, text[i] - '0', &n))
            return false;
    /* Counts downward, because the negative range has one more number. */
    if (!negative && __builtin_sub_overflow((int64_t)0, n, &n))
        return false;
    *ret = n;
    return true;
}

static int value_from_real(struct idem_work *work, const struct idem_json *json,
                           struct idem_value *ret) {
    double d;

    IDEM_TRY(idem_work_spend(work, json->n / 16));
    d = idem_number_read(json->at.text, json->n);
    if (isnan(d))
        return IDEM_TROUBLE_MEMORY;
    if (work->strict && isinf(d))
        return IDEM_TROUBLE_KEY_FINITE;
    if (work->strict && !idem_number_kept(json))
        return IDEM_TROUBLE_KEY_DIGITS;
    *ret = (struct idem_value){.type = IDEM_VALUE_DOUBLE, .at.real = d};
    return 0;
}

static int value_from_number(struct idem_work *work, const struct idem_json *json,
                             struct idem_value *ret) {
    int64_t n;

    if (!json->flag)
        return value_from_real(work, json, ret);
    if (value_read_integer(json->at.text, json->n, &n))
        *ret = (struct idem_value){.type = n == (int32_t)n ? IDEM_VALUE_INT : IDEM_VALUE_LONG,
                                   .at.integer = n};
    else
        *ret = (struct idem_value){.type = IDEM_VALUE_BIG,
                                   .flags = IDEM_VALUE_ASCII,
                                   .n = json->n,
                                   .at.text = json->at.text};
    return 0;
}

int idem_value_of(struct idem_work *work, const struct idem_json *json, struct idem_value *ret) {
    switch (json->type) {
    case IDEM_JSON_NUMBER:
        return value_from_number(work, json, ret);
    case IDEM_JSON_STRING:
        *ret = idem_value_text(json->at.text, json->n, json->flag);
        return 0;
    case IDEM_JSON_BOOL:
        *ret = idem_value_bool(json->flag);
        return 0;
    case IDEM_JSON_ARRAY:
    case IDEM_JSON_OBJECT:
        *ret = (struct idem_value){.type = json->type == IDEM_JSON_ARRAY ? IDEM_VALUE_LIST
                                                                         : IDEM_VALUE_MAP,
                                   .flags = IDEM_VALUE_JSON,
                                   .n = json->n,
                                   .at.json = json};
        return 0;
    default:
        *ret = IDEM_VALUE_NONE;
        return 0;
    }
}

/* Lists and maps. */

int idem_value_item(struct idem_work *work, const struct idem_value *list, uint32_t i,
                    struct idem_value *ret) {
    IDEM_TRY(idem_work_spend(work, 1));
    if ((list->flags & IDEM_VALUE_JSON) != 0)
        return idem_value_of(work, &list->at.json->at.items[i], ret);
    *ret = list->at.items[i];
    return 0;
}

int idem_value_pair(struct idem_work *work, const struct idem_value *map, uint32_t i,
                    struct idem_pair *ret) {
    const struct idem_member *member;

    IDEM_TRY(idem_work_spend(work, 1));
    if ((map->flags & IDEM_VALUE_JSON) == 0) {
        *ret = map->at.pairs[i];
        return 0;
    }
    member = &map->at.json->at.object->members[i];
    ret->key = idem_value_text(member->name, member->len, false);
    return idem_value_of(work, &member->value, &ret->value);
}

/* Names in a document are text, so a key of another type is never found. */
static int value_get_json(struct idem_work *work, const struct idem_value *map,
                          const struct idem_value *key, bool *found, struct idem_value *ret) {
    const struct idem_json *json = NULL;

    if (key->type == IDEM_VALUE_STRING)
        json = idem_json_get(map->at.json, key->at.text, key->n);
    *found = json != NULL;
    if (json != NULL)
        return idem_value_of(work, json, ret);
    *ret = IDEM_VALUE_NONE;
    return 0;
}

int idem_value_get(struct idem_work *work, const struct idem_value *map,
                   const struct idem_value *key, bool *found, struct idem_value *ret) {
    if ((map->flags & IDEM_VALUE_JSON) != 0)
        return value_get_json(work, map, key, found, ret);
    *found = false;
    for (uint32_t i = 0; i < map->n; i++) {
        IDEM_TRY(idem_value_equals(work, &map->at.pairs[i].key, key, found));
        if (*found) {
            *ret = map->at.pairs[i].value;
            return 0;
        }
    }
    *ret = IDEM_VALUE_NONE;
    return 0;
}

/* Equality. */

static uint64_t value_double_bits(double d) {
    uint64_t bits;

    if (isnan(d))
        return 0x7ff8000000000000; /* Java has only one NaN */
    memcpy(&bits, &d, sizeof(bits));
    return bits;
}

static uint32_t value_float_bits(float f) {
    uint32_t bits;

    if (isnan(f))
        return 0x7fc00000;
    memcpy(&bits, &f, sizeof(bits));
    return bits;
}

static int value_lists_equal(struct idem_work *work, const struct idem_value *a,
                             const struct idem_value *b, bool *ret) {
    struct idem_value x, y;

    *ret = a->n == b->n;
    for (uint32_t i = 0; *ret && i < a->n; i++) {
        IDEM_TRY(idem_value_item(work, a, i, &x));
        IDEM_TRY(idem_value_item(work, b, i, &y));
        IDEM_TRY(idem_value_equals(work, &x, &y, ret));
    }
    return 0;
}

static int value_maps_equal(struct idem_work *work, const struct idem_value *a,
                            const struct idem_value *b, bool *ret) {
    struct idem_pair pair;
    struct idem_value other;

    *ret = a->n == b->n;
    for (uint32_t i = 0; *ret && i < a->n; i++) {
        IDEM_TRY(idem_value_pair(work, a, i, &pair));
        IDEM_TRY(idem_value_get(work, b, &pair.key, ret, &other));
        if (*ret)
            IDEM_TRY(idem_value_equals(work, &pair.value, &other, ret));
    }
    return 0;
}

static int value_entries_equal(struct idem_work *work, const struct idem_value *a,
                               const struct idem_value *b, bool *ret) {
    IDEM_TRY(idem_value_equals(work, &a->at.pairs->key, &b->at.pairs->key, ret));
    return *ret ? idem_value_equals(work, &a->at.pairs->value, &b->at.pairs->value, ret) : 0;
}

int idem_value_equals(struct idem_work *work, const struct idem_value *a,
                      const struct idem_value *b, bool *ret) {
    IDEM_TRY(idem_work_spend(work, 1 + a->n / 64));
    *ret = false;
    if (a->type != b->type)
        return 0;
    switch (a->type) {
    case IDEM_VALUE_BOOL:
        *ret = a->at.flag == b->at.flag;
        return 0;
    case IDEM_VALUE_INT:
    case IDEM_VALUE_LONG:
        *ret = a->at.integer == b->at.integer;
        return 0;
    case IDEM_VALUE_DOUBLE:
        *ret = value_double_bits(a->at.real) == value_double_bits(b->at.real);
        return 0;
    case IDEM_VALUE_FLOAT:
        *ret = value_float_bits(a->at.single) == value_float_bits(b->at.single);
        return 0;
    case IDEM_VALUE_BIG:
    case IDEM_VALUE_CHAR:
    case IDEM_VALUE_STRING:
        *ret = idem_same(a->at.text, a->n, b->at.text, b->n);
        return 0;
    case IDEM_VALUE_LIST:
        return IDEM_DEEPER(work, value_lists_equal(work, a, b, ret));
    case IDEM_VALUE_MAP:
        return IDEM_DEEPER(work, value_maps_equal(work, a, b, ret));
    case IDEM_VALUE_ENTRY:
        return IDEM_DEEPER(work, value_entries_equal(work, a, b, ret));
    default:
        *ret = true;
        return 0;
    }
}

/* Hashes. */

/* The first and the second unit of a character; both are c if it has only one. */
static uint32_t utf16_unit_high(uint32_t c) {
    return c > 0xffff ? 0xd800 + ((c - 0x10000) >> 10) : c;
}

static uint32_t utf16_unit_low(uint32_t c) {
    return c > 0xffff ? 0xdc00 + (c & 0x3ff) : c;
}

static uint32_t value_hash_text(const struct idem_value *v) {
    uint32_t hash = 0, c;

    for (size_t pos = 0, n; pos < v->n; pos += n) {
        n = idem_utf8_next(v->at.text + pos, v->n - pos, &c);
        if (c > 0xffff)
            hash = hash * 31 + utf16_unit_high(c);
        hash = hash * 31 + utf16_unit_low(c);
    }
    return hash;
}

static int value_hash_list(struct idem_work *work, const struct idem_value *list, uint32_t *ret) {
    struct idem_value item;
    uint32_t hash = 1, one;

    for (uint32_t i = 0; i < list->n; i++) {
        IDEM_TRY(idem_value_item(work, list, i, &item));
        IDEM_TRY(idem_value_hash(work, &item, &one));
        hash = hash * 31 + one;
    }
    *ret = hash;
    return 0;
}

static int value_hash_map(struct idem_work *work, const struct idem_value *map, uint32_t *ret) {
    struct idem_pair pair;
    uint32_t hash = 0, key, value;

    for (uint32_t i = 0; i < map->n; i++) {
        IDEM_TRY(idem_value_pair(work, map, i, &pair));
        IDEM_TRY(idem_value_hash(work, &pair.key, &key));
        IDEM_TRY(idem_value_hash(work, &pair.value, &value));
        hash += key ^ value;
    }
    *ret = hash;
    return 0;
}

static uint32_t value_hash_long(uint64_t n) {
    return (uint32_t)(n ^ n >> 32);
}

int idem_value_hash(struct idem_work *work, const struct idem_value *v, uint32_t *ret) {
    IDEM_TRY(idem_work_spend(work, 1 + v->n / 16));
    switch (v->type) {
    case IDEM_VALUE_NULL:
        *ret = 0;
        return 0;
    case IDEM_VALUE_BOOL:
        *ret = v->at.flag ? 1231 : 1237;
        return 0;
    case IDEM_VALUE_INT:
        *ret = (uint32_t)v->at.integer;
        return 0;
    case IDEM_VALUE_LONG:
        *ret = value_hash_long((uint64_t)v->at.integer);
        return 0;
    case IDEM_VALUE_DOUBLE:
        *ret = value_hash_long(value_double_bits(v->at.real));
        return 0;
    case IDEM_VALUE_FLOAT:
        *ret = value_float_bits(v->at.single);
        return 0;
    case IDEM_VALUE_CHAR:
    case IDEM_VALUE_STRING:
        *ret = value_hash_text(v);
        return 0;
    case IDEM_VALUE_LIST:
        return IDEM_DEEPER(work, value_hash_list(work, v, ret));
    case IDEM_VALUE_MAP:
        return IDEM_DEEPER(work, value_hash_map(work, v, ret));
    case IDEM_VALUE_BIG:
        return IDEM_TROUBLE_BIG;
    default:
        return IDEM_TROUBLE_ENTRY;
    }
}

/*
 * Places in text, counted as Java counts them. A text of whole characters is found at the same
 * places in UTF-8 and in UTF-16, so the search compares bytes, and only the places are converted.
 */

struct idem_value idem_value_trim(const struct idem_value *text) {
    const char *at = text->at.text, *end = at + text->n;

    while (at < end && (unsigned char)*at <= ' ')
        at++;
    while (at < end && (unsigned char)end[-1] <= ' ')
        end--;
    return idem_value_text(at, (size_t)(end - at), idem_value_is_ascii(text));
}

size_t idem_utf16_units(const struct idem_value *text) {
    return idem_value_is_ascii(text) ? text->n : idem_utf16_len(text->at.text, text->n);
}

/* The length of the character that begins with c, in valid UTF-8. */
static size_t utf16_char_bytes(char c) {
    unsigned char first = (unsigned char)c;

    return first < 0x80 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
}

int idem_utf16_place(const struct idem_value *text, int64_t unit, size_t *ret) {
    size_t pos = 0, n;

    if (unit < 0 || unit > text->n)
        return IDEM_TROUBLE_RANGE;
    if (idem_value_is_ascii(text)) {
        *ret = (size_t)unit;
        return 0;
    }
    while (unit > 0 && pos < text->n) {
        n = utf16_char_bytes(text->at.text[pos]);
        if (n == 4 && unit == 1)
            return IDEM_TROUBLE_SURROGATE;
        unit -= n == 4 ? 2 : 1;
        pos += n;
    }
    if (unit > 0)
        return IDEM_TROUBLE_RANGE;
    *ret = pos;
    return 0;
}

int idem_utf16_part(const struct idem_value *text, int64_t from, int64_t to,
                    struct idem_value *ret) {
    size_t begin, end;

    IDEM_TRY(idem_utf16_place(text, from, &begin));
    IDEM_TRY(idem_utf16_place(text, to, &end));
    *ret = idem_value_text(text->at.text + begin, end - begin, idem_value_is_ascii(text));
    return 0;
}

int32_t idem_utf16_compare(const struct idem_value *a, const struct idem_value *b) {
    size_t least = a->n < b->n ? a->n : b->n, i = 0;
    uint32_t x, y;

    while (i < least && a->at.text[i] == b->at.text[i])
        i++;
    if (i == least)
        return (int32_t)((int64_t)idem_utf16_units(a) - (int64_t)idem_utf16_units(b));
    while (i > 0 && ((unsigned char)a->at.text[i] & 0xc0) == 0x80)
        i--;
    idem_utf8_next(a->at.text + i, a->n - i, &x);
    idem_utf8_next(b->at.text + i, b->n - i, &y);
    if (utf16_unit_high(x) != utf16_unit_high(y))
        return (int32_t)utf16_unit_high(x) - (int32_t)utf16_unit_high(y);
    return (int32_t)utf16_unit_low(x) - (int32_t)utf16_unit_low(y);
}

static int64_t utf16_units_before(const struct idem_value *text, size_t pos) {
    return (int64_t)(idem_value_is_ascii(text) ? pos : idem_utf16_len(text->at.text, pos));
}

int64_t idem_utf16_find(const struct idem_value *text, const struct idem_value *part,
                        int64_t from) {
    int64_t units = (int64_t)idem_utf16_units(text);
    const char *found;
    size_t pos;

    if (from < 0)
        from = 0;
    if (from > units)
        from = units;
    if (part->n == 0)
        return from;
    /* `from` is within a pair: no whole character begins there, so the search begins at the next
       one. */
    if (idem_utf16_place(text, from, &pos) != 0 && idem_utf16_place(text, from + 1, &pos) != 0)
        return -1;
    if (pos == text->n)
        return -1;
    found = memmem(text->at.text + pos, text->n - pos, part->at.text, part->n);
    return found == NULL ? -1 : utf16_units_before(text, (size_t)(found - text->at.text));
}

int64_t idem_utf16_find_last(const struct idem_value *text, const struct idem_value *part,
                             int64_t from) {
    int64_t units = (int64_t)idem_utf16_units(text);
    size_t pos;

    if (from > units)
        from = units;
    if (from < 0 || part->n == 0)
        return from < 0 ? -1 : from;
    if (idem_utf16_place(text, from, &pos) != 0 && idem_utf16_place(text, from - 1, &pos) != 0)
        return -1;
    if (part->n > text->n)
        return -1;
    if (pos > text->n - part->n)
        pos = text->n - part->n;
    for (pos++; pos-- > 0;)
        if (memcmp(text->at.text + pos, part->at.text, part->n) == 0)
            return utf16_units_before(text, pos);
    return -1;
}

/*
 * Conversions between types: those of Spring's ConversionService that are certain, and Java's casts
 * of numbers. Uncertain conversions are refused.
 */

static const struct {
    const char *word;
    bool truth;
} truths[] = {{"true", true},   {"on", true},   {"yes", true}, {"1", true},
              {"false", false}, {"off", false}, {"no", false}, {"0", false}};

static int convert_text_truth(const struct idem_value *v, bool *ret) {
    struct idem_value text = idem_value_trim(v);

    for (size_t i = 0; i < sizeof(truths) / sizeof(truths[0]); i++)
        if (idem_same_ignoring_case(text.at.text, text.n, truths[i].word, strlen(truths[i].word))) {
            *ret = truths[i].truth;
            return 0;
        }
    return IDEM_TROUBLE_TRUTH;
}

int idem_value_truth(struct idem_work *work, const struct idem_value *v, bool *ret) {
    struct idem_value item;

    switch (v->type) {
    case IDEM_VALUE_BOOL:
        *ret = v->at.flag;
        return 0;
    case IDEM_VALUE_NULL:
        return work->strict ? IDEM_TROUBLE_KEY_NULL : IDEM_TROUBLE_TRUTH;
    case IDEM_VALUE_STRING:
        IDEM_TRY(idem_work_spend(work, v->n / 64));
        return convert_text_truth(v, ret);
    case IDEM_VALUE_LIST: /* Spring takes the first item, but not of nested lists */
        if (v->n == 0)
            return IDEM_TROUBLE_TRUTH;
        IDEM_TRY(idem_value_item(work, v, 0, &item));
        return item.type == IDEM_VALUE_LIST ? IDEM_TROUBLE_TRUTH
                                            : idem_value_truth(work, &item, ret);
    default:
        return IDEM_TROUBLE_TRUTH;
    }
}

#define INDEX_DIGITS 32 /* including leading zeros */

/* Digits with or without a sign. Java's blanks, hexadecimal and non-ASCII digits are not
   accepted. */
static int convert_text_index(const struct idem_value *v, int32_t *ret) {
    size_t sign = v->n > 0 && (v->at.text[0] == '-' || v->at.text[0] == '+');
    int64_t n = 0;

    if (v->n == sign || v->n > INDEX_DIGITS)
        return IDEM_TROUBLE_NOT_INDEX;
    for (size_t i = sign; i < v->n; i++) {
        if (!idem_is_digit(v->at.text[i]) || n > INT32_MAX)
            return IDEM_TROUBLE_NOT_INDEX;
        n = n * 10 + (v->at.text[i] - '0');
    }
    if (v->at.text[0] == '-')
        n = -n;
    if (n != (int32_t)n)
        return IDEM_TROUBLE_NOT_INDEX;
    *ret = (int32_t)n;
    return 0;
}

int idem_value_index(const struct idem_value *v, int32_t *ret) {
    int64_t n;

    switch (v->type) {
    case IDEM_VALUE_INT:
    case IDEM_VALUE_LONG:
        n = v->at.integer;
        break;
    case IDEM_VALUE_DOUBLE:
    case IDEM_VALUE_FLOAT:
        n = idem_double_long(idem_value_double(v));
        break;
    case IDEM_VALUE_STRING:
        return convert_text_index(v, ret);
    default:
        return IDEM_TROUBLE_NOT_INDEX;
    }
    if (n != (int32_t)n)
        return IDEM_TROUBLE_NOT_INDEX;
    *ret = (int32_t)n;
    return 0;
}

double idem_value_double(const struct idem_value *v) {
    switch (v->type) {
    case IDEM_VALUE_DOUBLE:
        return v->at.real;
    case IDEM_VALUE_FLOAT:
        return (double)v->at.single;
    case IDEM_VALUE_BIG:
        return idem_number_read(v->at.text, v->n);
    default:
        return (double)v->at.integer;
    }
}

float idem_value_float(const struct idem_value *v) {
    switch (v->type) {
    case IDEM_VALUE_DOUBLE:
        return (float)v->at.real;
    case IDEM_VALUE_FLOAT:
        return v->at.single;
    default:
        return (float)v->at.integer;
    }
}

int64_t idem_double_long(double d) {
    if (isnan(d))
        return 0;
    if (d >= 0x1p63)
        return INT64_MAX;
    return d <= -0x1p63 ? INT64_MIN : (int64_t)d;
}

int32_t idem_double_int(double d) {
    if (isnan(d))
        return 0;
    if (d >= INT32_MAX)
        return INT32_MAX;
    return d <= INT32_MIN ? INT32_MIN : (int32_t)d;
}
