/*
 * The canonical form (RFC 8785): members sorted by name, no white space, the fewest escapes,
 * numbers as ECMAScript prints them. One exception: an integer beyond 2^53 keeps its digits if the
 * printed double would have another value, because two order numbers must not become one.
 *
 * The exact form extends this to every number: a number that no double keeps is written as
 * DIGITSeEXPONENT, without zeros at either end of the digits. So the output has exactly the value
 * of the input, and each value has one text.
 */
#include <float.h>
#include <math.h>
#include <string.h>

#include "base/bytes.h"
#include "base/error.h"
#include "base/hex.h"
#include "base/units.h"
#include "json/json.h"
#include "json/json_number.h"

#define DIGITS_MAX 17 /* significant digits that identify a double */

struct writer {
    idem_json_put *put;
    void *data;
    struct idem_error *err;
    bool exact;
    size_t n;
    char buf[4096];
};

static int writer_flush(struct writer *w) {
    int rc = w->n == 0 ? 0 : w->put(w->data, w->buf, w->n);

    w->n = 0;
    return rc;
}

static int writer_put_bytes(struct writer *w, const char *bytes, size_t len) {
    int rc = len <= sizeof(w->buf) - w->n ? 0 : writer_flush(w);

    if (rc != 0)
        return rc;
    if (len > sizeof(w->buf))
        return w->put(w->data, bytes, len);
    memcpy(w->buf + w->n, bytes, len);
    w->n += len;
    return 0;
}

static int writer_put_char(struct writer *w, char c) {
    return writer_put_bytes(w, &c, 1);
}

/* Strings. */

static int writer_put_escape(struct writer *w, char c) {
    static const char names[] = "btnfr\"\\", values[] = "\b\t\n\f\r\"\\";
    const char *found = c == '\0' ? NULL : strchr(values, c);
    char out[6] = "\\u00";

    if (found == NULL)
        return writer_put_bytes(w, out, (size_t)(idem_hex_write(&c, 1, out + 4) - out));
    out[1] = names[found - values];
    return writer_put_bytes(w, out, 2);
}

static bool canon_is_escaped(char c) {
    return (unsigned char)c < 0x20 || c == '"' || c == '\\';
}

/* True if none of sixteen bytes needs an escape. */
static bool canon_is_unescaped16(const char *at) {
    typedef unsigned char vector __attribute__((vector_size(16)));
    typedef uint64_t halves __attribute__((vector_size(16)));
    vector v;
    halves found;

    memcpy(&v, at, sizeof(v));
    found = (halves)((v < 0x20) | (v == '"') | (v == '\\'));
    return (found[0] | found[1]) == 0;
}

static int writer_put_string(struct writer *w, const char *text, size_t len) {
    size_t from = 0, i = 0;
    int rc = writer_put_char(w, '"');

    while (rc == 0) {
        while (len - i >= 16 && canon_is_unescaped16(text + i))
            i += 16;
        /* Checks the last 16 bytes, overlapping the earlier ones, instead of the remaining bytes
           one by one. */
        if (len >= 16 && len - i < 16 && canon_is_unescaped16(text + len - 16))
            i = len;
        while (i < len && !canon_is_escaped(text[i]))
            i++;
        rc = writer_put_bytes(w, text + from, i - from);
        if (i == len)
            break;
        if (rc == 0)
            rc = writer_put_escape(w, text[i]);
        from = ++i;
    }
    return rc == 0 ? writer_put_char(w, '"') : rc;
}

/* Numbers. */

/* The exact value of a written number: 0.DIGITS * 10^point, without zeros at either end. The digits
   are those of the number's text, and a decimal point may be between them. */
struct decimal {
    const char *digits, *end;
    const char *dot; /* the decimal point between the digits, or NULL */
    long long point;
};

/* No document has enough digits to balance such an exponent, so a larger one makes no
   difference. */
#define EXPONENT_MOST ((long long)1 << 40)

static long long canon_read_exponent(const char *at, const char *end) {
    bool negative = *at == '-';
    long long exponent = 0;

    for (at += *at == '-' || *at == '+'; at < end && exponent < EXPONENT_MOST; at++)
        exponent = 10 * exponent + (*at - '0');
    return negative ? -exponent : exponent;
}

/* The position of the exponent, or `end`. Its letter is the only character of a number with this
   bit. */
static const char *canon_find_exponent(const char *at, const char *end) {
    char seen = 0;

    for (const char *p = at; p < end; p++)
        seen |= *p;
    if ((seen & 0x40) == 0)
        return end;
    while ((*at & 0x40) == 0)
        at++;
    return at;
}

static struct decimal canon_read_decimal(const struct idem_json *number) {
    const char *at = number->at.text + (number->at.text[0] == '-'),
               *end = number->at.text + number->n;
    const char *e = number->flag ? end : canon_find_exponent(at, end);
    const char *dot = number->flag || e <= at ? NULL : memchr(at, '.', (size_t)(e - at));
    struct decimal decimal = {.digits = at, .end = e};

    decimal.point = (dot != NULL ? dot : e) - at + (e == end ? 0 : canon_read_exponent(e + 1, end));
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

/* Copies the digits without the decimal point; returns their number. */
static size_t decimal_digits(const struct decimal *decimal, char *out) {
    const char *end = decimal->dot != NULL ? decimal->dot : decimal->end;
    size_t n = (size_t)(end - decimal->digits);

    memcpy(out, decimal->digits, n);
    if (decimal->dot == NULL)
        return n;
    memcpy(out + n, end + 1, (size_t)(decimal->end - end - 1));
    return n + (size_t)(decimal->end - end - 1);
}

/* Compares with digits that have no decimal point; neither has zeros at its ends. */
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

/* True if a printed number has exactly the value of the decimal. */
static bool decimal_has_value(const struct decimal *decimal, const char *printed, size_t len) {
    struct idem_json number = {.type = IDEM_JSON_NUMBER, .n = (uint32_t)len, .at.text = printed};
    struct decimal other = canon_read_decimal(&number);
    char digits[IDEM_NUMBER_MAX];

    if (decimal_is_zero(decimal) || decimal_is_zero(&other))
        return decimal_is_zero(decimal) && decimal_is_zero(&other);
    digits[decimal_digits(&other, digits)] = '\0';
    return other.point == decimal->point && decimal_cmp(decimal, digits) == 0;
}

static int writer_put_digits(struct writer *w, const struct decimal *decimal, bool negative) {
    const char *end = decimal->dot != NULL ? decimal->dot : decimal->end;
    int rc = negative ? writer_put_char(w, '-') : 0;

    if (rc == 0)
        rc = writer_put_bytes(w, decimal->digits, (size_t)(end - decimal->digits));
    if (rc == 0 && decimal->dot != NULL)
        rc = writer_put_bytes(w, end + 1, (size_t)(decimal->end - end - 1));
    return rc;
}

static int writer_put_integer(struct writer *w, const struct decimal *decimal, bool negative) {
    int rc = writer_put_digits(w, decimal, negative);

    for (long long i = decimal_count(decimal); i < decimal->point && rc == 0; i++)
        rc = writer_put_char(w, '0');
    return rc;
}

/* Writes a number that no double keeps and that is not an integer beyond 2^53. It is a fraction, so
   its exponent is negative. */
static int writer_put_exact(struct writer *w, const struct decimal *decimal, bool negative) {
    long long exponent = decimal_count(decimal) - decimal->point;
    char text[24], *end = text + sizeof(text), *at;
    int rc;

    if (decimal->point < -EXPONENT_MOST / 2)
        return idem_error_set(w->err, IDEM_E_INVALID,
                              "JSON: a number is too close to zero to be kept exactly");
    at = idem_digits_put((uint64_t)exponent, end);
    *--at = '-';
    *--at = 'e';
    rc = writer_put_digits(w, decimal, negative);
    return rc == 0 ? writer_put_bytes(w, at, (size_t)(end - at)) : rc;
}

/* Prints the nearest double as ECMAScript does: from the digits if they determine the result,
   otherwise from the double. IDEM_E_INVALID if the double is infinite. */
static int canon_print_nearest(const struct idem_json *number, const struct decimal *decimal,
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

/* True if the printed double has the value of the number. A double keeps every number of up to
   DBL_DIG digits, except near zero. */
static bool canon_same_number(const struct idem_json *number, const struct decimal *decimal,
                              const char *printed, size_t len) {
    if (decimal_count(decimal) <= DBL_DIG && decimal->point > DBL_MIN_10_EXP + 1)
        return true;
    return idem_same(printed, len, number->at.text, number->n) ||
           decimal_has_value(decimal, printed, len);
}

static int writer_put_decimal(struct writer *w, const struct idem_json *number,
                              const struct decimal *decimal, bool negative) {
    bool integer = decimal_beyond_exact(decimal);
    char text[IDEM_NUMBER_MAX];
    size_t len;
    int rc = canon_print_nearest(number, decimal, text, &len);

    if (rc == IDEM_E_NOMEM)
        return idem_error_set(w->err, rc, "no memory to read a number");
    if (rc < 0 && number->flag)
        return writer_put_integer(w, decimal, negative);
    if (rc < 0)
        return idem_error_set(w->err, rc,
                              "JSON: a number is beyond the range of a double (1.8e308)");
    if ((!integer && !w->exact) || canon_same_number(number, decimal, text, len))
        return writer_put_bytes(w, text, len);
    return integer ? writer_put_integer(w, decimal, negative)
                   : writer_put_exact(w, decimal, negative);
}

/* The length of a fraction that prints as it is written, except for zeros at its end: up to 15
   digits, no exponent, and not so small that ECMAScript would add one. 0 for other numbers. */
static size_t canon_fraction_length(const struct idem_json *number, bool negative) {
    const char *text = number->at.text;
    size_t len = number->n;

    if (number->flag || len > 16u + negative || canon_find_exponent(text, text + len) < text + len)
        return 0;
    while (text[len - 1] == '0')
        len--;
    len -= text[len - 1] == '.';
    if (text[negative] != '0')
        return len;
    if (len == 1u + negative ||
        (len > 8 && idem_begins(text + negative, len - negative, "0.000000")))
        return 0;
    return len;
}

/* Computes no double if the digits alone determine the output. */
static int writer_put_number(struct writer *w, const struct idem_json *number) {
    bool negative = number->at.text[0] == '-';
    struct decimal decimal;
    size_t len;

    if (number->flag && number->n <= 15 && number->at.text[negative] != '0')
        return writer_put_bytes(w, number->at.text, number->n);
    len = canon_fraction_length(number, negative);
    if (len > 0)
        return writer_put_bytes(w, number->at.text, len);
    decimal = canon_read_decimal(number);
    if (decimal_is_zero(&decimal))
        return writer_put_char(w, '0');
    /* ECMAScript prints all digits of an integer below 10^21. Either they are these, or these are
       kept. */
    if (decimal_beyond_exact(&decimal) && decimal.point <= 21)
        return writer_put_integer(w, &decimal, negative);
    return writer_put_decimal(w, number, &decimal, negative);
}

bool idem_number_kept(const struct idem_json *number) {
    char text[IDEM_NUMBER_MAX];
    struct decimal decimal;
    size_t len;

    if (canon_fraction_length(number, number->at.text[0] == '-') > 0)
        return true;
    decimal = canon_read_decimal(number);
    return decimal_is_zero(&decimal) || (decimal_count(&decimal) <= DIGITS_MAX &&
                                         canon_print_nearest(number, &decimal, text, &len) == 0 &&
                                         canon_same_number(number, &decimal, text, len));
}

bool idem_number_is(const struct idem_json *number, const char *printed, size_t len) {
    struct decimal decimal = canon_read_decimal(number);

    return decimal_has_value(&decimal, printed, len);
}

/* Values. */

static int writer_put_value(struct writer *w, const struct idem_json *value);

static int writer_put_array(struct writer *w, const struct idem_json *array) {
    int rc = writer_put_char(w, '[');

    for (uint32_t i = 0; i < array->n && rc == 0; i++) {
        if (i > 0)
            rc = writer_put_char(w, ',');
        if (rc == 0)
            rc = writer_put_value(w, &array->at.items[i]);
    }
    return rc == 0 ? writer_put_char(w, ']') : rc;
}

static int writer_put_object(struct writer *w, const struct idem_json *value) {
    const struct idem_object *object = value->at.object;
    int rc = writer_put_char(w, '{');

    for (uint32_t i = 0; i < value->n && rc == 0; i++) {
        const struct idem_member *member = &object->members[object->order[i]];

        if (i > 0)
            rc = writer_put_char(w, ',');
        if (rc == 0)
            rc = writer_put_string(w, member->name, member->len);
        if (rc == 0)
            rc = writer_put_char(w, ':');
        if (rc == 0)
            rc = writer_put_value(w, &member->value);
    }
    return rc == 0 ? writer_put_char(w, '}') : rc;
}

static int writer_put_value(struct writer *w, const struct idem_json *value) {
    switch ((enum idem_json_type)value->type) {
    case IDEM_JSON_NULL:
        return writer_put_bytes(w, "null", 4);
    case IDEM_JSON_BOOL:
        return value->flag ? writer_put_bytes(w, "true", 4) : writer_put_bytes(w, "false", 5);
    case IDEM_JSON_NUMBER:
        return writer_put_number(w, value);
    case IDEM_JSON_STRING:
        return writer_put_string(w, value->at.text, value->n);
    case IDEM_JSON_ARRAY:
        return writer_put_array(w, value);
    case IDEM_JSON_OBJECT:
        return writer_put_object(w, value);
    }
    return 0;
}

static int canon_write(const struct idem_json *value, bool exact, idem_json_put *put, void *data,
                       struct idem_error *err) {
    struct writer w = {.put = put, .data = data, .err = err, .exact = exact};
    int rc = writer_put_value(&w, value);

    return rc == 0 ? writer_flush(&w) : rc;
}

int idem_json_canon(const struct idem_json *value, idem_json_put *put, void *data,
                    struct idem_error *err) {
    return canon_write(value, false, put, data, err);
}

int idem_json_canon_exact(const struct idem_json *value, idem_json_put *put, void *data,
                          struct idem_error *err) {
    return canon_write(value, true, put, data, err);
}
