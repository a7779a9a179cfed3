/*
 * Places in text, counted as Java counts them. A text of whole characters is found at the same
 * places in UTF-8 and in UTF-16, so the search compares bytes, and only the places are converted.
 */
#include "expr/expr_utf16.h"

#include <string.h>

#include "base/units.h"

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

/* The first and the second unit of a character; both are c if it has only one. */
static uint32_t utf16_unit_high(uint32_t c) {
    return c > 0xffff ? 0xd800 + ((c - 0x10000) >> 10) : c;
}

static uint32_t utf16_unit_low(uint32_t c) {
    return c > 0xffff ? 0xdc00 + (c & 0x3ff) : c;
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
