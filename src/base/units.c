/*
 * Parses and prints times and sizes, and checks UTF-8. Pure: it allocates nothing and knows no
 * option's bounds. It fails on a value that units.h does not allow or that int64_t cannot hold;
 * the error quotes the value with idem_error_quote().
 */
#include "base/units.h"

#include "base/bytes.h"
#include "base/error.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

struct unit {
    const char *word;
    int64_t factor;
};

/* In descending order: a compound duration uses each unit at most once, in this order. */
static const struct unit duration_units[] = {
    {"d", 86400000}, {"h", 3600000}, {"m", 60000}, {"s", 1000}, {"ms", 1}, {NULL, 0},
};

static const struct unit size_units[] = {
    {"", 1},
    {"k", 1 << 10},
    {"K", 1 << 10},
    {"KiB", 1 << 10},
    {"m", 1 << 20},
    {"M", 1 << 20},
    {"MiB", 1 << 20},
    {"g", 1 << 30},
    {"G", 1 << 30},
    {"GiB", 1 << 30},
    {"t", INT64_C(1) << 40},
    {"T", INT64_C(1) << 40},
    {"TiB", INT64_C(1) << 40},
    {NULL, 0},
};

enum number { NUMBER_READ, NUMBER_MISSING, NUMBER_HUGE };

/* Reads the digits at *pos and moves *pos past them. */
static enum number units_number_read(const char *text, size_t len, size_t *pos, int64_t *ret) {
    size_t first = *pos;
    int64_t value = 0;

    for (; *pos < len && idem_is_digit(text[*pos]); (*pos)++) {
        if (__builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, text[*pos] - '0', &value))
            return NUMBER_HUGE;
    }
    if (*pos == first)
        return NUMBER_MISSING;
    *ret = value;
    return NUMBER_READ;
}

/* Reads the letters at *pos as a unit and moves *pos past them; NULL if the unit is unknown. */
static const struct unit *unit_read(const struct unit *units, const char *text, size_t len,
                                    size_t *pos) {
    size_t first = *pos;

    while (*pos < len && idem_is_alpha(text[*pos]))
        (*pos)++;
    for (const struct unit *unit = units; unit->word != NULL; unit++)
        if (idem_is_word(text + first, *pos - first, unit->word))
            return unit;
    return NULL;
}

/* Returns IDEM_E_INVALID with an error text: the quoted value, then `what`. */
static int units_value_refuse(struct idem_error *err, const char *text, size_t len,
                              const char *what) {
    char quoted[IDEM_QUOTE_TEXT];

    return idem_error_set(err, IDEM_E_INVALID, "%s %s",
                          idem_error_quote(text, len, quoted, sizeof(quoted)), what);
}

#define DURATION_HINT "write it as 90s, 10m, 24h, 7d, 500ms or 2h30m"

int idem_duration_parse(const char *text, size_t len, int64_t *ret_ms, struct idem_error *err) {
    const struct unit *last = NULL, *unit;
    int64_t total = 0, part = 0;
    enum number number;
    size_t pos = 0;

    do {
        number = units_number_read(text, len, &pos, &part);
        if (number == NUMBER_HUGE)
            return units_value_refuse(err, text, len, "is too large");
        if (number == NUMBER_MISSING)
            return units_value_refuse(err, text, len, "is not a time; " DURATION_HINT);
        if (pos == len)
            return units_value_refuse(err, text, len, "has no unit; " DURATION_HINT);
        unit = unit_read(duration_units, text, len, &pos);
        if (unit == NULL)
            return units_value_refuse(err, text, len, "has an unknown unit; " DURATION_HINT);
        if (last != NULL && unit <= last)
            return units_value_refuse(err, text, len, "is not in falling order; " DURATION_HINT);
        if (__builtin_mul_overflow(part, unit->factor, &part) ||
            __builtin_add_overflow(total, part, &total))
            return units_value_refuse(err, text, len, "is too large");
        last = unit;
    } while (pos < len);
    *ret_ms = total;
    return 0;
}

#define SIZE_HINT "write it as 500, 64k, 1M or 1MiB"

int idem_size_parse(const char *text, size_t len, int64_t *ret, struct idem_error *err) {
    const struct unit *unit;
    int64_t value = 0;
    enum number number;
    size_t pos = 0;

    number = units_number_read(text, len, &pos, &value);
    if (number == NUMBER_HUGE)
        return units_value_refuse(err, text, len, "is too large");
    if (number == NUMBER_MISSING)
        return units_value_refuse(err, text, len, "is not a size; " SIZE_HINT);
    unit = unit_read(size_units, text, len, &pos);
    if (unit == NULL || pos < len)
        return units_value_refuse(err, text, len, "has an unknown unit; " SIZE_HINT);
    if (__builtin_mul_overflow(value, unit->factor, &value))
        return units_value_refuse(err, text, len, "is too large");
    *ret = value;
    return 0;
}

int idem_count_parse(const char *text, size_t len, int64_t *ret, struct idem_error *err) {
    int64_t value = 0;
    enum number number;
    size_t pos = 0;

    number = units_number_read(text, len, &pos, &value);
    if (number == NUMBER_HUGE)
        return units_value_refuse(err, text, len, "is too large");
    if (number == NUMBER_MISSING || pos < len)
        return units_value_refuse(err, text, len, "is not a number");
    *ret = value;
    return 0;
}

const char *idem_duration_print(int64_t ms, char *buf, size_t size) {
    size_t at = 0;
    int n;

    /* No option is negative. A caller's struct may be; its value is then printed unchanged. */
    if (ms <= 0) {
        snprintf(buf, size, "%" PRId64 "%s", ms, ms == 0 ? "s" : "ms");
        return buf;
    }
    for (const struct unit *unit = duration_units; unit->word != NULL; unit++) {
        /* One day is written as 24h, the common form; the unit d starts at two days. */
        if (ms < unit->factor || (unit == duration_units && ms < 2 * unit->factor))
            continue;
        n = snprintf(buf + at, size - at, "%" PRId64 "%s", ms / unit->factor, unit->word);
        if (n < 0 || (size_t)n >= size - at)
            break;
        at += (size_t)n;
        ms %= unit->factor;
    }
    return buf;
}

char *idem_digits_put(uint64_t n, char *end) {
    char *at = end;

    for (; n >= 10; n /= 100) {
        *--at = (char)('0' + n % 10);
        *--at = (char)('0' + n / 10 % 10);
    }
    if (n > 0 || at == end)
        *--at = (char)('0' + n);
    return at;
}

const char *idem_size_print(int64_t bytes, char *buf, size_t size) {
    static const char *const words[] = {"", "KiB", "MiB", "GiB"};
    size_t i = 0;

    while (i < 3 && bytes != 0 && bytes % 1024 == 0) {
        bytes /= 1024;
        i++;
    }
    snprintf(buf, size, "%" PRId64 "%s", bytes, words[i]);
    return buf;
}

/* Returns the length of a character, given its first byte, and the smallest code point that
   needs this length. 0: not a first byte. */
static size_t units_utf8_length(unsigned char first, uint32_t *ret_bits, uint32_t *ret_least) {
    static const struct {
        unsigned char mask, mark;
        uint32_t least;
    } forms[] = {{0x80, 0x00, 0}, {0xe0, 0xc0, 0x80}, {0xf0, 0xe0, 0x800}, {0xf8, 0xf0, 0x10000}};

    for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
        if ((first & forms[i].mask) == forms[i].mark) {
            *ret_bits = (uint32_t)(first & ~forms[i].mask & 0xff);
            *ret_least = forms[i].least;
            return i + 1;
        }
    }
    return 0;
}

size_t idem_utf8_next(const char *text, size_t len, uint32_t *ret_char) {
    uint32_t c = 0, least = 0;
    size_t n;

    if (len == 0)
        return 0;
    n = units_utf8_length((unsigned char)text[0], &c, &least);
    if (n == 0 || n > len)
        return 0;
    for (size_t i = 1; i < n; i++) {
        if (((unsigned char)text[i] & 0xc0) != 0x80)
            return 0;
        c = (c << 6) | ((unsigned char)text[i] & 0x3f);
    }
    /* Overlong forms, surrogates and values beyond Unicode are not characters. */
    if (c < least || (c >= 0xd800 && c <= 0xdfff) || c > 0x10ffff)
        return 0;
    *ret_char = c;
    return n;
}

size_t idem_utf8_put(uint32_t c, char out[4]) {
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    if (c < 0x800) {
        out[0] = (char)(0xc0 | c >> 6);
        out[1] = (char)(0x80 | (c & 0x3f));
        return 2;
    }
    if (c < 0x10000) {
        out[0] = (char)(0xe0 | c >> 12);
        out[1] = (char)(0x80 | (c >> 6 & 0x3f));
        out[2] = (char)(0x80 | (c & 0x3f));
        return 3;
    }
    out[0] = (char)(0xf0 | c >> 18);
    out[1] = (char)(0x80 | (c >> 12 & 0x3f));
    out[2] = (char)(0x80 | (c >> 6 & 0x3f));
    out[3] = (char)(0x80 | (c & 0x3f));
    return 4;
}

bool idem_utf8_valid(const char *text, size_t len) {
    uint32_t c;
    size_t n;

    for (size_t pos = 0; pos < len; pos += n) {
        n = idem_utf8_next(text + pos, len - pos, &c);
        if (n == 0)
            return false;
    }
    return true;
}
