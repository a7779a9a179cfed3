/*
 * Arithmetic. The result has the larger type of the two: Double, Float, Long, Integer. Integers
 * beyond 64 bits are refused, and so is a power whose last digit differs between math libraries.
 */
#include <math.h>
#include <string.h>

#include "base/units.h"
#include "expr/expr_value.h"

/* A double and a float represent every integer up to these exactly. */
#define DOUBLE_EXACT ((int64_t)1 << 53)
#define FLOAT_EXACT ((int64_t)1 << 24)

static bool arithmetic_either_is(const struct idem_value *a, const struct idem_value *b, int type) {
    return a->type == type || b->type == type;
}

/* Doubles and floats. */

static bool arithmetic_integer_is_exact(const struct idem_value *v, int64_t most) {
    if (v->type == IDEM_VALUE_BIG)
        return false;
    return (v->type != IDEM_VALUE_INT && v->type != IDEM_VALUE_LONG) ||
           (v->at.integer >= -most && v->at.integer <= most);
}

/* Checks that two numbers may be converted to double or float, which happens if one of them has
   that type, and for powers. For keys, an integer that would lose digits is refused. */
static int arithmetic_check_exact(const struct idem_work *work, const struct idem_value *a,
                                  const struct idem_value *b) {
    int64_t most = arithmetic_either_is(a, b, IDEM_VALUE_FLOAT) ? FLOAT_EXACT : DOUBLE_EXACT;

    if (work->strict &&
        !(arithmetic_integer_is_exact(a, most) && arithmetic_integer_is_exact(b, most)))
        return IDEM_TROUBLE_KEY_EXACT;
    return 0;
}

static double arithmetic_double(enum idem_expr_op op, double a, double b) {
    switch (op) {
    case IDEM_EXPR_OP_ADD:
        return a + b;
    case IDEM_EXPR_OP_SUBTRACT:
        return a - b;
    case IDEM_EXPR_OP_MULTIPLY:
        return a * b;
    case IDEM_EXPR_OP_DIVIDE:
        return a / b;
    default:
        return fmod(a, b);
    }
}

/* Integers. Returns true if the result wrapped around. */

static bool arithmetic_wrap(enum idem_expr_op op, int64_t a, int64_t b, int64_t *ret) {
    switch (op) {
    case IDEM_EXPR_OP_ADD:
        return __builtin_add_overflow(a, b, ret);
    case IDEM_EXPR_OP_SUBTRACT:
        return __builtin_sub_overflow(a, b, ret);
    case IDEM_EXPR_OP_MULTIPLY:
        return __builtin_mul_overflow(a, b, ret);
    case IDEM_EXPR_OP_DIVIDE:
        /* -b overflows for the smallest integer, which is undefined in C. */
        if (b == -1)
            return __builtin_sub_overflow((int64_t)0, a, ret);
        *ret = a / b;
        return false;
    case IDEM_EXPR_OP_MODULUS:
        *ret = b == -1 ? 0 : a % b;
        return false;
    default:
        *ret = 0;
        return false;
    }
}

static int arithmetic_integer(struct idem_work *work, enum idem_expr_op op,
                              const struct idem_value *a, const struct idem_value *b,
                              struct idem_value *ret) {
    int type = arithmetic_either_is(a, b, IDEM_VALUE_LONG) ? IDEM_VALUE_LONG : IDEM_VALUE_INT;
    int64_t n;
    bool wrapped;

    if (b->at.integer == 0 && (op == IDEM_EXPR_OP_DIVIDE || op == IDEM_EXPR_OP_MODULUS))
        return IDEM_TROUBLE_ZERO;
    wrapped = arithmetic_wrap(op, a->at.integer, b->at.integer, &n);
    if (type == IDEM_VALUE_INT) {
        wrapped = n != (int32_t)(uint32_t)(uint64_t)n;
        n = (int32_t)(uint32_t)(uint64_t)n;
    }
    if (wrapped && work->strict)
        return IDEM_TROUBLE_KEY_OVERFLOW;
    *ret = (struct idem_value){.type = (uint8_t)type, .at.integer = n};
    return 0;
}

/* Powers. */

/* C returns 1 where Java returns NaN. */
static double arithmetic_java_pow(double a, double b) {
    if (isnan(b) || (isinf(b) && fabs(a) == 1))
        return NAN;
    return pow(a, b);
}

/* Java's library and this one differ in one power of a thousand, always where the true value is
   within a two-hundredth of the middle between two doubles. */
static bool arithmetic_power_is_certain(double a, double b, double power) {
    long double more = powl(a, b), unit;

    if (!isfinite(power) || power == 0 || more == (long double)power)
        return true;
    unit = (long double)nextafter(fabs(power), INFINITY) - (long double)fabs(power);
    return fabsl(more - (long double)power) < unit * 49 / 100;
}

static int arithmetic_integer_power(struct idem_work *work, const struct idem_value *a,
                                    const struct idem_value *b, struct idem_value *ret) {
    double x = idem_value_double(a), y = idem_value_double(b), d = arithmetic_java_pow(x, y);

    if (!arithmetic_power_is_certain(x, y, d))
        return IDEM_TROUBLE_POWER;
    if (work->strict && fabs(d) > (double)DOUBLE_EXACT)
        return IDEM_TROUBLE_KEY_OVERFLOW;
    if (d > INT32_MAX || arithmetic_either_is(a, b, IDEM_VALUE_LONG)) {
        *ret = (struct idem_value){.type = IDEM_VALUE_LONG, .at.integer = idem_double_long(d)};
        return 0;
    }
    if (work->strict && d < INT32_MIN)
        return IDEM_TROUBLE_KEY_OVERFLOW;
    *ret = idem_value_int(idem_double_int(d));
    return 0;
}

static int arithmetic_power(struct idem_work *work, const struct idem_value *a,
                            const struct idem_value *b, struct idem_value *ret) {
    double x, y, d;

    if (arithmetic_either_is(a, b, IDEM_VALUE_BIG))
        return IDEM_TROUBLE_BIG;
    IDEM_TRY(arithmetic_check_exact(work, a, b));
    if (arithmetic_either_is(a, b, IDEM_VALUE_DOUBLE)) {
        x = idem_value_double(a);
        y = idem_value_double(b);
    } else if (arithmetic_either_is(a, b, IDEM_VALUE_FLOAT)) {
        x = (double)idem_value_float(a);
        y = (double)idem_value_float(b);
    } else {
        return arithmetic_integer_power(work, a, b, ret);
    }
    d = arithmetic_java_pow(x, y);
    if (!arithmetic_power_is_certain(x, y, d))
        return IDEM_TROUBLE_POWER;
    *ret = (struct idem_value){.type = IDEM_VALUE_DOUBLE, .at.real = d};
    return 0;
}

static int arithmetic_numbers(struct idem_work *work, enum idem_expr_op op,
                              const struct idem_value *a, const struct idem_value *b,
                              struct idem_value *ret) {
    IDEM_TRY(idem_work_spend(work, a->n / 16 + b->n / 16)); /* for integers beyond 64 bits */
    if (op == IDEM_EXPR_OP_POWER)
        return arithmetic_power(work, a, b, ret);
    if (arithmetic_either_is(a, b, IDEM_VALUE_DOUBLE)) {
        IDEM_TRY(arithmetic_check_exact(work, a, b));
        *ret = (struct idem_value){
            .type = IDEM_VALUE_DOUBLE,
            .at.real = arithmetic_double(op, idem_value_double(a), idem_value_double(b))};
        return 0;
    }
    if (arithmetic_either_is(a, b, IDEM_VALUE_BIG))
        return IDEM_TROUBLE_BIG;
    if (arithmetic_either_is(a, b, IDEM_VALUE_FLOAT)) {
        IDEM_TRY(arithmetic_check_exact(work, a, b));
        /* A double has more than twice the digits of a float, so that rounding twice makes no
           difference. */
        *ret =
            (struct idem_value){.type = IDEM_VALUE_FLOAT,
                                .at.single = (float)arithmetic_double(
                                    op, (double)idem_value_float(a), (double)idem_value_float(b))};
        return 0;
    }
    return arithmetic_integer(work, op, a, b, ret);
}

/* Texts: 'ab' * 2 is abab, and 'b' - 1 is a. */

static int arithmetic_repeat_text(struct idem_work *work, const struct idem_value *v, int64_t times,
                                  struct idem_value *ret) {
    size_t all, done;
    char *at;

    if (v->n == 0 || times <= 0) {
        *ret = idem_value_text("", 0, true);
        return 0;
    }
    if (times > (int64_t)(IDEM_EXPR_TEXT_MAX / v->n))
        return IDEM_TROUBLE_SIZE;
    all = v->n * (size_t)times;
    IDEM_TRY(idem_work_spend(work, all / 64));
    IDEM_TRY_ALLOC(work, at, all);
    memcpy(at, v->at.text, v->n);
    for (done = v->n; done < all; done *= 2)
        memcpy(at + done, at, done < all - done ? done : all - done);
    *ret = idem_value_text(at, all, idem_value_is_ascii(v));
    return 0;
}

static int arithmetic_subtract_from_char(struct idem_work *work, const struct idem_value *v,
                                         int64_t n, struct idem_value *ret) {
    uint32_t c = 0;
    char *at;

    if (v->n == 0 || idem_utf8_next(v->at.text, v->n, &c) != v->n || c > 0xffff)
        return IDEM_TROUBLE_OPERANDS;
    c = (uint32_t)((int64_t)c - n) & 0xffff;
    if (c >= 0xd800 && c <= 0xdfff)
        return IDEM_TROUBLE_SURROGATE;
    IDEM_TRY_ALLOC(work, at, 4);
    *ret = idem_value_text(at, idem_utf8_put(c, at), c < 0x80);
    return 0;
}

int idem_op_calculate(struct idem_work *work, enum idem_expr_op op, const struct idem_value *a,
                      const struct idem_value *b, struct idem_value *ret) {
    if (idem_value_is_number(a) && idem_value_is_number(b))
        return arithmetic_numbers(work, op, a, b, ret);
    if (work->strict && arithmetic_either_is(a, b, IDEM_VALUE_NULL))
        return IDEM_TROUBLE_KEY_NULL;
    if (a->type == IDEM_VALUE_STRING && b->type == IDEM_VALUE_INT) {
        if (op == IDEM_EXPR_OP_MULTIPLY)
            return arithmetic_repeat_text(work, a, b->at.integer, ret);
        if (op == IDEM_EXPR_OP_SUBTRACT)
            return arithmetic_subtract_from_char(work, a, b->at.integer, ret);
    }
    return IDEM_TROUBLE_OPERANDS;
}

/* Java computes 0 - x, so that the result is never -0.0. */
int idem_op_negate(struct idem_work *work, const struct idem_value *v, struct idem_value *ret) {
    static const struct idem_value zero = {.type = IDEM_VALUE_INT};

    if (v->type == IDEM_VALUE_NULL && work->strict)
        return IDEM_TROUBLE_KEY_NULL;
    if (!idem_value_is_number(v))
        return IDEM_TROUBLE_OPERANDS;
    return arithmetic_numbers(work, IDEM_EXPR_OP_SUBTRACT, &zero, v, ret);
}

/*
 * Equality and order. == first converts numbers to the larger type, so that 1 equals 1.0; all other
 * values are compared by Java's equals(). null sorts before everything. For keys, an integer that a
 * double or float cannot represent is not compared with one: two integers would both be equal to
 * it.
 */

#define UNORDERED 2 /* one of the numbers is NaN */

static int compare_integers(int64_t a, int64_t b) {
    return a < b ? -1 : a > b;
}

/* At least one needs more than 64 bits. More digits mean a larger absolute value. */
static int compare_big(const struct idem_value *a, const struct idem_value *b) {
    int sign, cmp;

    if (a->type != IDEM_VALUE_BIG)
        return -compare_big(b, a);
    sign = a->at.text[0] == '-' ? -1 : 1;
    if (b->type != IDEM_VALUE_BIG || (b->at.text[0] == '-') != (sign < 0))
        return sign;
    cmp = compare_integers(a->n, b->n);
    return sign * (cmp != 0 ? cmp : compare_integers(memcmp(a->at.text, b->at.text, a->n), 0));
}

/* `total` orders as Double.compare() does: -0.0 before 0.0, NaN after everything. */
static int compare_doubles(double a, double b, bool total) {
    if (a < b || a > b)
        return a < b ? -1 : 1;
    if (!total)
        return isnan(a) || isnan(b) ? UNORDERED : 0;
    if (isnan(a) || isnan(b))
        return compare_integers(isnan(a) != 0, isnan(b) != 0);
    return compare_integers(signbit(b) != 0, signbit(a) != 0);
}

static int compare_numbers(const struct idem_work *work, const struct idem_value *a,
                           const struct idem_value *b, bool total, int *ret) {
    if (arithmetic_either_is(a, b, IDEM_VALUE_DOUBLE)) {
        IDEM_TRY(arithmetic_check_exact(work, a, b));
        *ret = compare_doubles(idem_value_double(a), idem_value_double(b), total);
        return 0;
    }
    if (arithmetic_either_is(a, b, IDEM_VALUE_FLOAT)) {
        if (arithmetic_either_is(a, b, IDEM_VALUE_BIG))
            return IDEM_TROUBLE_BIG;
        IDEM_TRY(arithmetic_check_exact(work, a, b));
        *ret = compare_doubles((double)idem_value_float(a), (double)idem_value_float(b), total);
        return 0;
    }
    *ret = arithmetic_either_is(a, b, IDEM_VALUE_BIG)
               ? compare_big(a, b)
               : compare_integers(a->at.integer, b->at.integer);
    return 0;
}

static int compare_others(const struct idem_value *a, const struct idem_value *b, int *ret) {
    if (a->type != b->type)
        return IDEM_TROUBLE_ORDER;
    switch (a->type) {
    case IDEM_VALUE_STRING:
    case IDEM_VALUE_CHAR:
        *ret = idem_utf16_cmp(a->at.text, a->n, b->at.text, b->n);
        return 0;
    case IDEM_VALUE_BOOL:
        *ret = compare_integers(a->at.flag, b->at.flag);
        return 0;
    default:
        return IDEM_TROUBLE_ORDER;
    }
}

/* Spends the steps for texts and long numbers before reading them. */
static int compare_order(struct idem_work *work, const struct idem_value *a,
                         const struct idem_value *b, bool total, int *ret) {
    IDEM_TRY(idem_work_spend(work, a->n / 64 + b->n / 64));
    if (arithmetic_either_is(a, b, IDEM_VALUE_NULL)) {
        *ret = compare_integers(a->type != IDEM_VALUE_NULL, b->type != IDEM_VALUE_NULL);
        return 0;
    }
    if (idem_value_is_number(a) && idem_value_is_number(b))
        return compare_numbers(work, a, b, total, ret);
    return compare_others(a, b, ret);
}

int idem_op_order(struct idem_work *work, const struct idem_value *a, const struct idem_value *b,
                  int *ret) {
    return compare_order(work, a, b, true, ret);
}

static int compare_equal(struct idem_work *work, const struct idem_value *a,
                         const struct idem_value *b, bool *ret) {
    int cmp = 0, trouble;

    if (!idem_value_is_number(a) || !idem_value_is_number(b))
        return idem_value_equals(work, a, b, ret);
    trouble = compare_order(work, a, b, false, &cmp);
    *ret = cmp == 0;
    return trouble;
}

int idem_op_compare(struct idem_work *work, enum idem_expr_op op, const struct idem_value *a,
                    const struct idem_value *b, bool *ret) {
    bool same = false;
    int cmp = 0, trouble;

    if (op == IDEM_EXPR_OP_EQ || op == IDEM_EXPR_OP_NE) {
        trouble = compare_equal(work, a, b, &same);
        *ret = same == (op == IDEM_EXPR_OP_EQ);
        return trouble;
    }
    trouble = compare_order(work, a, b, false, &cmp);
    switch (op) {
    case IDEM_EXPR_OP_LT:
        *ret = cmp < 0;
        break;
    case IDEM_EXPR_OP_LE:
        *ret = cmp <= 0;
        break;
    case IDEM_EXPR_OP_GT:
        *ret = cmp == 1;
        break;
    default:
        *ret = cmp == 0 || cmp == 1;
    }
    return trouble;
}
