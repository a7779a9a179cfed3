/*
 * The canonical form (RFC 8785): members by name, no white space, the fewest
 * escapes, numbers as ECMAScript prints them. It departs from that in one case:
 * an integer beyond 2^53 that the printed double would not be equal to keeps
 * its digits, because two order numbers must not become one.
 *
 * The exact form does so with every number: what no double keeps is written as
 * DIGITSeEXPONENT, without zeros at either end of the digits. So whatever is
 * written has the very value of what was read, and one value one text.
 */
#include <float.h>
#include <math.h>
#include <string.h>

#include "core/error.h"
#include "json/json.h"
#include "json/number.h"

#define DIGITS_MAX 17 /* that a double is known by */

struct writer {
    idem_json_put *put;
    void *data;
    struct idem_error *err;
    bool exact;
    size_t n;
    char buf[4096];
};

static int flush(struct writer *w) {
    int rc = w->n == 0 ? 0 : w->put(w->data, w->buf, w->n);

    w->n = 0;
    return rc;
}

static int write_bytes(struct writer *w, const char *bytes, size_t len) {
    int rc = len <= sizeof(w->buf) - w->n ? 0 : flush(w);

    if (rc != 0)
        return rc;
    if (len > sizeof(w->buf))
        return w->put(w->data, bytes, len);
    memcpy(w->buf + w->n, bytes, len);
    w->n += len;
    return 0;
}

static int write_char(struct writer *w, char c) {
    return write_bytes(w, &c, 1);
}

/* Strings. */

static int write_escape(struct writer *w, char c) {
    static const char names[] = "btnfr\"\\", values[] = "\b\t\n\f\r\"\\";
    static const char hex[] = "0123456789abcdef";
    const char *found = c == '\0' ? NULL : strchr(values, c);
    char out[6] = {'\\', 'u', '0', '0', hex[(unsigned char)c >> 4], hex[c & 15]};

    if (found == NULL)
        return write_bytes(w, out, 6);
    out[1] = names[found - values];
    return write_bytes(w, out, 2);
}

static bool escaped(char c) {
    return (unsigned char)c < 0x20 || c == '"' || c == '\\';
}

/* Sixteen bytes none of which is. */
static bool unescaped16(const char *at) {
    typedef unsigned char vector __attribute__((vector_size(16)));
    typedef uint64_t halves __attribute__((vector_size(16)));
    vector v;
    halves found;

    memcpy(&v, at, sizeof(v));
    found = (halves)((v < 0x20) | (v == '"') | (v == '\\'));
    return (found[0] | found[1]) == 0;
}

static int write_string(struct writer *w, const char *text, size_t len) {
    size_t from = 0, i = 0;
    int rc = write_char(w, '"');

    while (rc == 0) {
        while (len - i >= 16 && unescaped16(text + i))
            i += 16;
        /* The last of them once more, with what is left. */
        if (len >= 16 && len - i < 16 && unescaped16(text + len - 16))
            i = len;
        while (i < len && !escaped(text[i]))
            i++;
        rc = write_bytes(w, text + from, i - from);
        if (i == len)
            break;
        if (rc == 0)
            rc = write_escape(w, text[i]);
        from = ++i;
    }
    return rc == 0 ? write_char(w, '"') : rc;
}

/* Numbers. */

/* The exact value of a number as it is written: 0.DIGITS * 10^point, without zeros at either
   end. The digits lie in `text`, and a point may stand between them. */
struct decimal {
    const char *digits, *end;
    const char *dot; /* NULL: there is none between them */
    long long point;
};

/* No document can balance such an exponent with digits: it is as good as any larger. */
#define EXPONENT_MOST ((long long)1 << 40)

static long long exponent_read(const char *at, const char *end) {
    bool negative = *at == '-';
    long long exponent = 0;

    for (at += *at == '-' || *at == '+'; at < end && exponent < EXPONENT_MOST; at++)
        exponent = 10 * exponent + (*at - '0');
    return negative ? -exponent : exponent;
}

/* Where the exponent begins, or the end: no other character of a number has this bit. */
static const char *exponent_find(const char *at, const char *end) {
    char seen = 0;

    for (const char *p = at; p < end; p++)
        seen |= *p;
    if ((seen & 0x40) == 0)
        return end;
    while ((*at & 0x40) == 0)
        at++;
    return at;
}

static struct decimal decimal_read(const struct idem_json *number) {
    const char *at = number->at.text + (number->at.text[0] == '-'),
               *end = number->at.text + number->n;
    const char *e = number->flag ? end : exponent_find(at, end);
    const char *dot = number->flag || e <= at ? NULL : memchr(at, '.', (size_t)(e - at));
    struct decimal decimal = {.digits = at, .end = e};

    decimal.point = (dot != NULL ? dot : e) - at + (e == end ? 0 : exponent_read(e + 1, end));
    while (decimal.digits < decimal.end && (*decimal.digits == '0' || *decimal.digits == '.'))
        decimal.point -= *decimal.digits++ == '0';
    while (decimal.end > decimal.digits && (decimal.end[-1] == '0' || decimal.end[-1] == '.'))
        decimal.end--;
    if (dot != NULL && dot > decimal.digits && dot < decimal.end)
        decimal.dot = dot;
    return decimal;
}

static long long decimal_count(const struct decimal *decimal) {
    return decimal->end - decimal->digits - (decimal->dot != NULL);
}

/* Without the point; returns how many. */
static size_t decimal_digits(const struct decimal *decimal, char *out) {
    const char *end = decimal->dot != NULL ? decimal->dot : decimal->end;
    size_t n = (size_t)(end - decimal->digits);

    memcpy(out, decimal->digits, n);
    if (decimal->dot == NULL)
        return n;
    memcpy(out + n, end + 1, (size_t)(decimal->end - end - 1));
    return n + (size_t)(decimal->end - end - 1);
}

/* Compares with digits that have no point; both without zeros at their ends. */
static int decimal_cmp(const struct decimal *decimal, const char *digits) {
    for (const char *at = decimal->digits; at < decimal->end; at++) {
        if (*at == '.')
            continue;
        if (*at != *digits)
            return (unsigned char)*at < (unsigned char)*digits ? -1 : 1;
        digits++;
    }
    return *digits == '\0' ? 0 : -1;
}

static bool decimal_beyond_exact(const struct decimal *decimal) {
    if (decimal->point < decimal_count(decimal) || decimal->point < 16)
        return false;
    return decimal->point > 16 || decimal_cmp(decimal, "9007199254740992") > 0;
}

static bool decimal_is_zero(const struct decimal *decimal) {
    return decimal->digits == decimal->end;
}

/* Whether a printed number has the very value of the decimal. */
static bool same_value(const struct decimal *decimal, const char *printed, size_t len) {
    struct idem_json number = {.type = IDEM_JSON_NUMBER, .n = (uint32_t)len, .at.text = printed};
    struct decimal other = decimal_read(&number);
    char digits[IDEM_NUMBER_MAX];

    if (decimal_is_zero(decimal) || decimal_is_zero(&other))
        return decimal_is_zero(decimal) && decimal_is_zero(&other);
    digits[decimal_digits(&other, digits)] = '\0';
    return other.point == decimal->point && decimal_cmp(decimal, digits) == 0;
}

static int write_digits(struct writer *w, const struct decimal *decimal, bool negative) {
    const char *end = decimal->dot != NULL ? decimal->dot : decimal->end;
    int rc = negative ? write_char(w, '-') : 0;

    if (rc == 0)
        rc = write_bytes(w, decimal->digits, (size_t)(end - decimal->digits));
    if (rc == 0 && decimal->dot != NULL)
        rc = write_bytes(w, end + 1, (size_t)(decimal->end - end - 1));
    return rc;
}

static int write_integer(struct writer *w, const struct decimal *decimal, bool negative) {
    int rc = write_digits(w, decimal, negative);

    for (long long i = decimal_count(decimal); i < decimal->point && rc == 0; i++)
        rc = write_char(w, '0');
    return rc;
}

/* What is no integer beyond 2^53, and no double either: its exponent is below zero. */
static int write_exact(struct writer *w, const struct decimal *decimal, bool negative) {
    long long exponent = decimal_count(decimal) - decimal->point;
    char text[24], *at = text + sizeof(text);
    int rc;

    if (decimal->point < -EXPONENT_MOST / 2)
        return idem_error_set(w->err, IDEM_E_INVALID,
                              "JSON: a number is nearer to zero than can be told from others");
    for (; exponent > 0; exponent /= 10)
        *--at = (char)('0' + exponent % 10);
    *--at = '-';
    *--at = 'e';
    rc = write_digits(w, decimal, negative);
    return rc == 0 ? write_bytes(w, at, (size_t)(text + sizeof(text) - at)) : rc;
}

/* How ECMAScript prints the nearest double: of the digits, where they tell, or of the double.
   IDEM_E_INVALID if that is infinite. */
static int nearest_print(const struct idem_json *number, const struct decimal *decimal,
                         char text[IDEM_NUMBER_MAX], size_t *ret_len) {
    char digits[DIGITS_MAX];
    size_t len = 0;
    double d;

    if (decimal_count(decimal) <= DIGITS_MAX)
        len = idem_number_es_decimal(digits, decimal_digits(decimal, digits), decimal->point,
                                     number->at.text[0] == '-', text);
    if (len == 0) {
        d = idem_number_read(number->at.text, number->n);
        if (!isfinite(d))
            return isnan(d) ? IDEM_E_NOMEM : IDEM_E_INVALID;
        len = idem_number_es(d, text);
    }
    *ret_len = len;
    return 0;
}

/* The same, of a number and how its double prints. A double keeps all numbers of DBL_DIG digits,
   but for those near zero. */
static bool same_number(const struct idem_json *number, const struct decimal *decimal,
                        const char *printed, size_t len) {
    if (decimal_count(decimal) <= DBL_DIG && decimal->point > DBL_MIN_10_EXP + 1)
        return true;
    return (len == number->n && memcmp(printed, number->at.text, len) == 0) ||
           same_value(decimal, printed, len);
}

static int write_decimal(struct writer *w, const struct idem_json *number,
                         const struct decimal *decimal, bool negative) {
    bool integer = decimal_beyond_exact(decimal);
    char text[IDEM_NUMBER_MAX];
    size_t len;
    int rc = nearest_print(number, decimal, text, &len);

    if (rc == IDEM_E_NOMEM)
        return idem_error_set(w->err, rc, "no memory to read a number");
    if (rc < 0 && number->flag)
        return write_integer(w, decimal, negative);
    if (rc < 0)
        return idem_error_set(w->err, rc,
                              "JSON: a number is beyond the range of a double (1.8e308)");
    if ((!integer && !w->exact) || same_number(number, decimal, text, len))
        return write_bytes(w, text, len);
    return integer ? write_integer(w, decimal, negative) : write_exact(w, decimal, negative);
}

/* A fraction of up to 15 digits without an exponent, and not so small that it would get one: it
   prints as it is written, but for zeros at its end. */
static size_t fraction_len(const struct idem_json *number, bool negative) {
    const char *text = number->at.text;
    size_t len = number->n;

    if (number->flag || len > 16u + negative || exponent_find(text, text + len) < text + len)
        return 0;
    while (text[len - 1] == '0')
        len--;
    len -= text[len - 1] == '.';
    if (text[negative] != '0')
        return len;
    if (len == 1u + negative || (len > 8 && memcmp(text + negative, "0.000000", 8) == 0))
        return 0;
    return len;
}

/* Without making a double of it, where its digits tell what it would print as. */
static int write_number(struct writer *w, const struct idem_json *number) {
    bool negative = number->at.text[0] == '-';
    struct decimal decimal;
    size_t len;

    if (number->flag && number->n <= 15 && number->at.text[negative] != '0')
        return write_bytes(w, number->at.text, number->n);
    len = fraction_len(number, negative);
    if (len > 0)
        return write_bytes(w, number->at.text, len);
    decimal = decimal_read(number);
    if (decimal_is_zero(&decimal))
        return write_char(w, '0');
    /* Up to 10^21 all digits are printed: if they are not these, these are kept. */
    if (decimal_beyond_exact(&decimal) && decimal.point <= 21)
        return write_integer(w, &decimal, negative);
    return write_decimal(w, number, &decimal, negative);
}

bool idem_number_kept(const struct idem_json *number) {
    char text[IDEM_NUMBER_MAX];
    struct decimal decimal;
    size_t len;

    if (fraction_len(number, number->at.text[0] == '-') > 0)
        return true;
    decimal = decimal_read(number);
    return decimal_is_zero(&decimal) || (decimal_count(&decimal) <= DIGITS_MAX &&
                                         nearest_print(number, &decimal, text, &len) == 0 &&
                                         same_number(number, &decimal, text, len));
}

bool idem_number_is(const struct idem_json *number, const char *printed, size_t len) {
    struct decimal decimal = decimal_read(number);

    return same_value(&decimal, printed, len);
}

/* Values. */

static int write_value(struct writer *w, const struct idem_json *value);

static int write_array(struct writer *w, const struct idem_json *array) {
    int rc = write_char(w, '[');

    for (uint32_t i = 0; i < array->n && rc == 0; i++) {
        if (i > 0)
            rc = write_char(w, ',');
        if (rc == 0)
            rc = write_value(w, &array->at.items[i]);
    }
    return rc == 0 ? write_char(w, ']') : rc;
}

static int write_object(struct writer *w, const struct idem_json *value) {
    const struct idem_object *object = value->at.object;
    int rc = write_char(w, '{');

    for (uint32_t i = 0; i < value->n && rc == 0; i++) {
        const struct idem_member *member = &object->members[object->order[i]];

        if (i > 0)
            rc = write_char(w, ',');
        if (rc == 0)
            rc = write_string(w, member->name, member->len);
        if (rc == 0)
            rc = write_char(w, ':');
        if (rc == 0)
            rc = write_value(w, &member->value);
    }
    return rc == 0 ? write_char(w, '}') : rc;
}

static int write_value(struct writer *w, const struct idem_json *value) {
    switch ((enum idem_json_type)value->type) {
    case IDEM_JSON_NULL:
        return write_bytes(w, "null", 4);
    case IDEM_JSON_BOOL:
        return value->flag ? write_bytes(w, "true", 4) : write_bytes(w, "false", 5);
    case IDEM_JSON_NUMBER:
        return write_number(w, value);
    case IDEM_JSON_STRING:
        return write_string(w, value->at.text, value->n);
    case IDEM_JSON_ARRAY:
        return write_array(w, value);
    case IDEM_JSON_OBJECT:
        return write_object(w, value);
    }
    return 0;
}

static int canon(const struct idem_json *value, bool exact, idem_json_put *put, void *data,
                 struct idem_error *err) {
    struct writer w = {.put = put, .data = data, .err = err, .exact = exact};
    int rc = write_value(&w, value);

    return rc == 0 ? flush(&w) : rc;
}

int idem_json_canon(const struct idem_json *value, idem_json_put *put, void *data,
                    struct idem_error *err) {
    return canon(value, false, put, data, err);
}

int idem_json_canon_exact(const struct idem_json *value, idem_json_put *put, void *data,
                          struct idem_error *err) {
    return canon(value, true, put, data, err);
}
