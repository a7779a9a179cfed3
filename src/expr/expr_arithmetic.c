/*
 * Arithmetic. The result has the larger type of the two: Double, Float, Long, Integer. Integers
 * beyond 64 bits are refused, and so is a power whose last digit differs between math libraries.
 */
#include "expr/expr_arithmetic.h"

#include <math.h>
#include <string.h>

#include "base/units.h"
#include "expr/expr_print.h"
#include "expr/expr_utf16.h"

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

int idem_op_reals(const struct idem_work *work, const struct idem_value *a,
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

static float arithmetic_float(enum idem_expr_op op, float a, float b) {
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
        return fmodf(a, b);
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
    IDEM_TRY(idem_op_reals(work, a, b));
    if (!arithmetic_either_is(a, b, IDEM_VALUE_DOUBLE) &&
        !arithmetic_either_is(a, b, IDEM_VALUE_FLOAT))
        return arithmetic_integer_power(work, a, b, ret);
    if (arithmetic_either_is(a, b, IDEM_VALUE_DOUBLE)) {
        x = idem_value_double(a);
        y = idem_value_double(b);
    } else {
        x = (double)idem_value_float(a);
        y = (double)idem_value_float(b);
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
    if (!idem_work_spend(work, a->n / 16 + b->n / 16)) /* for integers beyond 64 bits */
        return IDEM_TROUBLE_STEPS;
    if (op == IDEM_EXPR_OP_POWER)
        return arithmetic_power(work, a, b, ret);
    if (arithmetic_either_is(a, b, IDEM_VALUE_DOUBLE)) {
        IDEM_TRY(idem_op_reals(work, a, b));
        *ret = (struct idem_value){
            .type = IDEM_VALUE_DOUBLE,
            .at.real = arithmetic_double(op, idem_value_double(a), idem_value_double(b))};
        return 0;
    }
    if (arithmetic_either_is(a, b, IDEM_VALUE_BIG))
        return IDEM_TROUBLE_BIG;
    if (arithmetic_either_is(a, b, IDEM_VALUE_FLOAT)) {
        IDEM_TRY(idem_op_reals(work, a, b));
        *ret = (struct idem_value){
            .type = IDEM_VALUE_FLOAT,
            .at.single = arithmetic_float(op, idem_value_float(a), idem_value_float(b))};
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
    if (!idem_work_spend(work, all / 64))
        return IDEM_TROUBLE_STEPS;
    at = idem_work_alloc(work, all);
    if (at == NULL)
        return idem_work_trouble(work, all);
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
    at = idem_work_alloc(work, 4);
    if (at == NULL)
        return idem_work_trouble(work, 4);
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
