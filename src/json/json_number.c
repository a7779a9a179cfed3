/*
 * Doubles as text. The digits are found in three ways: rounding to 15, 16 or 17 digits by the C
 * library until they read back, which gives the shortest form; the same from decimal digits, in
 * integer arithmetic; and Java's algorithm up to JDK 18, which stops when the remainder is less
 * than half a unit in the last place, and so sometimes prints a digit too many.
 */
#include "json/json_number.h"

#include <float.h>
#include <locale.h>
#include <math.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/chars.h"
#include "base/units.h"

/* 0.DIGITS * 10^point */
struct digits {
    char at[24];
    int n, point;
};

static locale_t plain_locale;
static pthread_once_t plain_once = PTHREAD_ONCE_INIT;

static void number_init_locale(void) {
    plain_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
}

/* strtod() uses the program's locale, whose decimal point may be a comma. */
static double number_read_plain(const char *text) {
    pthread_once(&plain_once, number_init_locale);
    return plain_locale == (locale_t)0 ? strtod(text, NULL) : strtod_l(text, NULL, plain_locale);
}

double idem_number_read(const char *text, size_t len) {
    char small[64], *copy = len < sizeof(small) ? small : malloc(len + 1);
    double d;

    if (copy == NULL)
        return NAN;
    memcpy(copy, text, len);
    copy[len] = '\0';
    d = number_read_plain(copy);
    if (copy != small)
        free(copy);
    return d;
}

/* Shortest. */

static void digits_trim(struct digits *digits) {
    while (digits->n > 1 && digits->at[digits->n - 1] == '0')
        digits->n--;
}

/* Rounds to n digits, and skips the locale's decimal point after the first. */
static void number_round_digits(double d, int n, struct digits *ret) {
    char text[48];
    const char *at;

    snprintf(text, sizeof(text), "%.*e", n - 1, d);
    ret->n = 0;
    for (at = text; *at != 'e'; at++)
        if (idem_is_digit(*at) && ret->n < n)
            ret->at[ret->n++] = *at;
    ret->point = (int)strtol(at + 1, NULL, 10) + 1;
}

static double digits_value(const struct digits *digits) {
    char text[48];

    snprintf(text, sizeof(text), "%.*se%d", digits->n, digits->at, digits->point - digits->n);
    return number_read_plain(text);
}

/* Adds one in the last place. The first digit is not a nine, so nothing is carried out of it. */
static void digits_up(struct digits *digits) {
    int i = digits->n - 1;

    while (i > 0 && digits->at[i] == '9')
        digits->at[i--] = '0';
    digits->at[i]++;
}

/* Above a power of two the next double is twice as far away as below. So there the nearest text of
   n digits may not read back, although the next one above does. */
static bool number_fit_digits(double d, int n, struct digits *ret) {
    int exponent;

    number_round_digits(d, n, ret);
    if (digits_value(ret) == d)
        return true;
    if (frexp(d, &exponent) != 0.5 || ret->at[0] == '9')
        return false;
    digits_up(ret);
    return digits_value(ret) == d;
}

/* Every normal double keeps 15 digits; a subnormal double may keep only one. */
static void number_shortest(double d, struct digits *ret) {
    int n = d < DBL_MIN ? 1 : 15;

    while (n < 17 && !number_fit_digits(d, n, ret))
        n++;
    if (n == 17)
        number_round_digits(d, 17, ret);
    digits_trim(ret);
}

static char *number_put_zeros(char *out, int n) {
    while (n-- > 0)
        *out++ = '0';
    return out;
}

static char *number_put_bytes(char *out, const char *bytes, int n) {
    memcpy(out, bytes, (size_t)n);
    return out + n;
}

static int number_put_uint(uint64_t value, char *out) {
    char digits[20], *end = digits + sizeof(digits), *at = idem_digits_put(value, end);

    memcpy(out, at, (size_t)(end - at));
    return (int)(end - at);
}

static char *number_put_es_exponent(char *out, const struct digits *digits) {
    *out++ = digits->at[0];
    if (digits->n > 1) {
        *out++ = '.';
        out = number_put_bytes(out, digits->at + 1, digits->n - 1);
    }
    *out++ = 'e';
    *out++ = digits->point > 0 ? '+' : '-';
    return out + number_put_uint((uint64_t)abs(digits->point - 1), out);
}

static size_t digits_print_es(const struct digits *digits, bool negative,
                              char out[IDEM_NUMBER_MAX]) {
    char *to = out;

    if (negative)
        *to++ = '-';
    if (digits->point > 21 || digits->point < -5) {
        to = number_put_es_exponent(to, digits);
    } else if (digits->point <= 0) {
        to = number_put_zeros(number_put_bytes(to, "0.", 2), -digits->point);
        to = number_put_bytes(to, digits->at, digits->n);
    } else if (digits->n <= digits->point) {
        to = number_put_zeros(number_put_bytes(to, digits->at, digits->n),
                              digits->point - digits->n);
    } else {
        to = number_put_bytes(to, digits->at, digits->point);
        *to++ = '.';
        to = number_put_bytes(to, digits->at + digits->point, digits->n - digits->point);
    }
    *to = '\0';
    return (size_t)(to - out);
}

size_t idem_number_es(double d, char out[IDEM_NUMBER_MAX]) {
    struct digits digits;

    if (d == 0) {
        memcpy(out, "0", 2);
        return 1;
    }
    number_shortest(fabs(d), &digits);
    return digits_print_es(&digits, d < 0, out);
}

/* The shortest digits, from decimal digits, in integer arithmetic. */

#ifdef __SIZEOF_INT128__
__extension__ typedef unsigned __int128 wide;

/* A double of `fraction` (2^52 to 2^53) units of 2^-shift, and the interval of decimals that read
   back as it. The bounds are in units of 10^-scale * 2^-(shift + 1), in which they are integers. */
struct near {
    uint64_t fraction;
    int shift;
    wide low, middle, high;
};

/* 10^0 to 10^22: the powers of ten that a double represents exactly. */
static const double tens_real[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                   1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                                   1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
#define TEN19 10000000000000000000u

static wide number_power_of_ten(int n) {
    return n < 20 ? (wide)(uint64_t)tens_real[n] : TEN19 * (wide)(uint64_t)tens_real[n - 19];
}

/* False at the ends of the range, and for a power of two, where the two margins differ. */
static bool number_make_near(uint64_t bits, wide scale, struct near *ret) {
    uint64_t one = (uint64_t)1 << 52;

    ret->fraction = (bits & (one - 1)) | one;
    ret->shift = 1075 - (int)(bits >> 52);
    if (ret->fraction == one || ret->shift < 0 || ret->shift > 72)
        return false;
    ret->middle = 2 * ret->fraction * scale;
    ret->low = ret->middle - scale;
    ret->high = ret->middle + scale;
    return true;
}

/* Finds the double nearest to whole / 10^n. The quotient may be one unit off. */
static bool number_find_near(uint64_t whole, int n, struct near *ret) {
    double quotient = (double)(int64_t)whole / tens_real[n];
    wide scale = number_power_of_ten(n);
    uint64_t bits;

    memcpy(&bits, &quotient, sizeof(bits));
    for (int i = 0; i < 3 && number_make_near(bits, scale, ret); i++) {
        wide want = (wide)whole << (ret->shift + 1);

        if (want > ret->low && want < ret->high)
            return true;
        bits += want >= ret->high ? 1 : -1;
    }
    return false;
}

/* The multiple of the largest power of ten that reads back; of two, the nearer. 0 if not
   certain. */
static uint64_t near_shortest(const struct near *near) {
    int shift = near->shift + 1;
    bool odd = (near->fraction & 1) != 0;
    uint64_t last = (uint64_t)(near->high >> shift), first = (uint64_t)(near->low >> shift);
    uint64_t unit = 1, tenth, value;
    wide rest, half;

    /* A bound of the interval reads back as the double with the even fraction. */
    if (odd || (wide)first << shift != near->low)
        first++;
    if (odd && (wide)last << shift == near->high)
        last--;
    for (tenth = last / 10; tenth > 0 && tenth * unit * 10 >= first; tenth /= 10)
        unit *= 10;
    value = (uint64_t)(near->middle >> shift) / unit * unit;
    rest = near->middle - ((wide)value << shift);
    half = (wide)unit << near->shift;
    if (rest > half || (rest == half && (value / unit & 1) != 0))
        value += unit;
    return value >= first && value <= last ? value : 0;
}

/* Combines digits into pairs, pairs into fours, and fours into eight, in parallel. */
static uint64_t number_eight_digits(const char *digits) {
    uint64_t w;

    memcpy(&w, digits, sizeof(w));
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    w = __builtin_bswap64(w);
#endif
    w -= 0x3030303030303030u;
    w = (w * 10 + (w >> 8)) & 0x00ff00ff00ff00ffu;
    w = (w * 100 + (w >> 16)) & 0x0000ffff0000ffffu;
    return (w * 10000 + (w >> 32)) & 0xffffffffu;
}

/* For 16 or 17 digits of a number between 10^-6 and 2^53, all intermediate values fit 128 bits. */
static bool number_shortest_decimal(const char *digits, size_t n, int point, struct digits *ret) {
    uint64_t whole, value;
    struct near near;

    whole = number_eight_digits(digits) * 100000000 + number_eight_digits(digits + 8);
    whole = 10 * whole + (n == 17 ? (uint64_t)(digits[16] - '0') : 0);
    if (!number_find_near(whole, 17 - point, &near))
        return false;
    value = near_shortest(&near);
    if (value == 0)
        return false;
    if (value == whole) {
        memcpy(ret->at, digits, n);
        ret->n = (int)n;
        ret->point = point;
        return true;
    }
    ret->n = number_put_uint(value, ret->at);
    ret->point = point + ret->n - 17;
    digits_trim(ret);
    return true;
}
#else
static bool number_shortest_decimal(const char *digits, size_t n, int point, struct digits *ret) {
    (void)digits;
    (void)n;
    (void)point;
    (void)ret;
    return false;
}
#endif

size_t idem_number_es_decimal(const char *digits, size_t n, long long point, bool negative,
                              char out[IDEM_NUMBER_MAX]) {
    struct digits ret;

    /* Different texts of DBL_DIG digits are different doubles, so no shorter text reads as the same
       double. This does not hold near zero, where doubles have fewer bits. */
    if (n <= DBL_DIG && point > DBL_MIN_10_EXP + 1 && point < DBL_MAX_10_EXP) {
        memcpy(ret.at, digits, n);
        ret.n = (int)n;
        ret.point = (int)point;
    } else if (n > 17 || point < -5 || point > 16 ||
               !number_shortest_decimal(digits, n, (int)point, &ret)) {
        return 0;
    }
    return digits_print_es(&ret, negative, out);
}

/* Java's algorithm. */

/* Integers large enough for every value here: 5^325 * 2^1100 and a digit. */
#define BIG_WORDS 64
struct big {
    uint32_t word[BIG_WORDS];
    int n;
};

static void big_mul(struct big *a, uint32_t by) {
    uint64_t carry = 0;

    for (int i = 0; i < a->n; i++) {
        carry += (uint64_t)a->word[i] * by;
        a->word[i] = (uint32_t)carry;
        carry >>= 32;
    }
    if (carry != 0)
        a->word[a->n++] = (uint32_t)carry;
}

static void big_shift(struct big *a, int bits) {
    int words = bits / 32;

    memmove(a->word + words, a->word, (size_t)a->n * sizeof(a->word[0]));
    memset(a->word, 0, (size_t)words * sizeof(a->word[0]));
    a->n += words;
    big_mul(a, (uint32_t)1 << bits % 32);
}

/* value * 5^fives * 2^twos */
static struct big number_make_big(uint64_t value, int fives, int twos) {
    struct big a = {.word = {(uint32_t)value, (uint32_t)(value >> 32)}, .n = value >> 32 ? 2 : 1};

    while (fives-- > 0)
        big_mul(&a, 5);
    big_shift(&a, twos);
    return a;
}

static int big_cmp(const struct big *a, const struct big *b) {
    if (a->n != b->n)
        return a->n < b->n ? -1 : 1;
    for (int i = a->n - 1; i >= 0; i--)
        if (a->word[i] != b->word[i])
            return a->word[i] < b->word[i] ? -1 : 1;
    return 0;
}

static void big_add(struct big *a, const struct big *b) {
    uint64_t carry = 0;

    for (int i = 0; i < a->n || i < b->n || carry != 0; i++) {
        carry += (uint64_t)(i < a->n ? a->word[i] : 0) + (i < b->n ? b->word[i] : 0);
        a->word[i] = (uint32_t)carry;
        carry >>= 32;
        if (i >= a->n)
            a->n = i + 1;
    }
}

static void big_sub(struct big *a, const struct big *b) {
    int64_t borrow = 0;

    for (int i = 0; i < a->n; i++) {
        borrow += (int64_t)a->word[i] - (i < b->n ? b->word[i] : 0);
        a->word[i] = (uint32_t)borrow;
        borrow >>= 32;
    }
    while (a->n > 1 && a->word[a->n - 1] == 0)
        a->n--;
}

/* Returns the quotient of a and b, which is one digit; a becomes ten times the remainder. */
static char big_digit(struct big *a, const struct big *b) {
    char digit = '0';

    while (big_cmp(a, b) >= 0) {
        big_sub(a, b);
        digit++;
    }
    big_mul(a, 10);
    return digit;
}

/* The parts of a double or float: the fraction, shifted so that its lowest bit is set, and its
   number of bits; the exponent of its highest bit; and the precision of the type. */
struct binary {
    uint64_t fraction;
    int bits, exponent, precision;
    double value;
};

static struct binary number_make_binary(double d, int precision, int lowest) {
    struct binary b = {.precision = precision, .value = d};
    int exponent;

    b.fraction = (uint64_t)ldexp(frexp(d, &exponent), 53);
    b.exponent = exponent - 1;
    /* A subnormal number has fewer bits. */
    if (b.exponent < lowest)
        b.precision -= lowest - b.exponent;
    b.bits = 53;
    while ((b.fraction & 1) == 0) {
        b.fraction >>= 1;
        b.bits--;
    }
    return b;
}

/* For a whole number below 2^63, Java drops exactly the digits beyond its precision. */
static void binary_java_whole(const struct binary *b, struct digits *ret) {
    uint64_t value = b->fraction << (b->exponent + 1 - b->bits), unit = 1;
    int beyond = b->exponent - b->precision - 1, dropped = 0;

    for (uint64_t rest = beyond > 1 ? (uint64_t)1 << beyond : 0; rest >= 10; rest /= 10) {
        unit *= 10;
        dropped++;
    }
    value = value / unit + (unit > 1 && value % unit >= unit / 2);
    ret->n = snprintf(ret->at, sizeof(ret->at), "%llu", (unsigned long long)value);
    ret->point = ret->n + dropped;
    digits_trim(ret);
}

/* floor(log10) by a linear approximation; it may be one too high. */
static int binary_java_estimate(const struct binary *b) {
    double top = ldexp((double)b->fraction, 1 - b->bits); /* from 1 to 2 */

    return (int)floor((top - 1.5) * 0.289529654 + 0.176091259 + b->exponent * 0.301029995663981);
}

static void digits_round_up(struct digits *digits) {
    int i = digits->n - 1;

    while (i > 0 && digits->at[i] == '9')
        digits->at[i--] = '0';
    if (digits->at[i] == '9') {
        digits->at[i] = '1';
        digits->point++;
    } else {
        digits->at[i]++;
    }
}

/* The approximate number of bits of 5^n, by which Java chooses one of its three arithmetics. */
static int number_java_five_bits(int n) {
    static const signed char bits[] = {0,  3,  5,  7,  10, 12, 14, 17, 19, 21, 24, 26, 28, 31,
                                       33, 35, 38, 40, 42, 45, 47, 49, 52, 54, 56, 59, 61};

    return n < (int)sizeof(bits) ? bits[n] : 3 * n;
}

/* The arithmetic that Java chooses: signed with 31 or 63 bits, or big integers (0). */
static int number_java_width(int value_bits, int tens_bits) {
    int most = value_bits > tens_bits ? value_bits : tens_bits;

    return most < 32 ? 31 : most < 64 ? 63 : 0;
}

/* True if the value overflows in Java's arithmetic. A sum is then negative, and so never high; a
   margin that overflows counts as larger than everything. */
static bool big_beyond(const struct big *a, int width) {
    int bits = 32 * a->n;

    while (bits > 1 && (a->word[(bits - 1) / 32] >> (bits - 1) % 32 & 1) == 0)
        bits--;
    return width != 0 && bits > width;
}

/* Generates digits of value / scale until the remainder, or its distance to the next digit, is
   within the margin of half a unit in the last place. Java's small arithmetics require less than
   the margin; its big integers also accept equality above. */
static void binary_java_generate(const struct binary *b, struct digits *ret) {
    int tiny = b->bits - b->exponent - 1 > 0 ? b->bits - b->exponent - 1 : 0;
    int point = binary_java_estimate(b);
    int fives = point < 0 ? -point : 0, scale_fives = point > 0 ? point : 0;
    int twos = fives + tiny + b->exponent, scale_twos = scale_fives + tiny;
    int margin_twos = twos - b->precision, common;
    struct big value, scale, tens, margin, sum;
    bool low, high, first = true;
    int width, rest;

    twos -= b->bits - 1;
    common = twos < scale_twos ? twos : scale_twos;
    twos -= common;
    scale_twos -= common;
    margin_twos -= common + (b->bits == 1);
    if (margin_twos < 0) {
        twos -= margin_twos;
        scale_twos -= margin_twos;
        margin_twos = 0;
    }
    width = number_java_width(b->bits + twos + number_java_five_bits(fives),
                              scale_twos + 1 + number_java_five_bits(scale_fives + 1));
    value = number_make_big(b->fraction, fives, twos);
    scale = number_make_big(1, scale_fives, scale_twos);
    tens = number_make_big(10, scale_fives, scale_twos);
    margin = number_make_big(1, fives, margin_twos);

    ret->n = 0;
    do {
        char digit = big_digit(&value, &scale);

        big_mul(&margin, 10);
        low = big_cmp(&value, &margin) < 0;
        sum = value;
        big_add(&sum, &margin);
        high = big_cmp(&sum, &tens) > (width == 0 ? -1 : 0) && !big_beyond(&sum, width);
        if (!first && big_beyond(&margin, width))
            low = high = true;
        if (ret->n == 0 && digit == '0' && !high)
            point--; /* the estimate was too high */
        else
            ret->at[ret->n++] = digit;
        /* A number with an exponent has at least two digits, including a leading zero. */
        if (first && (point < -3 || point >= 8))
            low = high = false;
        first = false;
    } while ((!low && !high) || ret->n == 0);
    ret->point = point + 1;
    if (!high)
        return;
    big_mul(&value, 2);
    rest = big_cmp(&value, &tens);
    if (!low || rest > 0 || (rest == 0 && (ret->at[ret->n - 1] & 1) != 0))
        digits_round_up(ret);
}

static size_t digits_print_java(const struct digits *digits, bool negative,
                                char out[IDEM_NUMBER_MAX]) {
    char *to = out;
    int whole;

    if (negative)
        *to++ = '-';
    if (digits->point > 0 && digits->point < 8) {
        whole = digits->n < digits->point ? digits->n : digits->point;
        to = number_put_zeros(number_put_bytes(to, digits->at, whole), digits->point - whole);
        *to++ = '.';
        to = digits->n > whole ? number_put_bytes(to, digits->at + whole, digits->n - whole)
                               : number_put_zeros(to, 1);
    } else if (digits->point <= 0 && digits->point > -3) {
        to = number_put_zeros(number_put_bytes(to, "0.", 2), -digits->point);
        to = number_put_bytes(to, digits->at, digits->n);
    } else {
        *to++ = digits->at[0];
        *to++ = '.';
        to = digits->n > 1 ? number_put_bytes(to, digits->at + 1, digits->n - 1)
                           : number_put_zeros(to, 1);
        to += snprintf(to, 8, "E%d", digits->point - 1);
    }
    *to = '\0';
    return (size_t)(to - out);
}

static size_t number_java_text(double d, int precision, int lowest, char out[IDEM_NUMBER_MAX]) {
    struct digits digits = {.at = "0", .n = 1, .point = 1};
    const char *word = isnan(d) ? "NaN" : !isinf(d) ? NULL : d < 0 ? "-Infinity" : "Infinity";
    struct binary b;

    if (word != NULL)
        return (size_t)snprintf(out, IDEM_NUMBER_MAX, "%s", word);
    if (d == 0)
        return digits_print_java(&digits, signbit(d), out);
    b = number_make_binary(fabs(d), precision, lowest);
    if (b.exponent >= b.bits - 1 && b.exponent <= 62)
        binary_java_whole(&b, &digits);
    else
        binary_java_generate(&b, &digits);
    return digits_print_java(&digits, d < 0, out);
}

size_t idem_number_java(double d, char out[IDEM_NUMBER_MAX]) {
    return number_java_text(d, DBL_MANT_DIG, DBL_MIN_EXP - 1, out);
}

size_t idem_number_java_float(float f, char out[IDEM_NUMBER_MAX]) {
    return number_java_text((double)f, FLT_MANT_DIG, FLT_MIN_EXP - 1, out);
}
