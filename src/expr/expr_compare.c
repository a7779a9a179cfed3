/*
 * Equality and order. == first converts numbers to the larger type, so that 1 equals 1.0; all other
 * values are compared by Java's equals(). null sorts before everything. For keys, an integer that a
 * double or float cannot represent is not compared with one: two integers would both be equal to
 * it.
 */
#include <math.h>
#include <string.h>

#include "expr/expr_arithmetic.h"

#define UNORDERED 2 /* one of the numbers is NaN */

static int compare_integers(int64_t a, int64_t b) {
    return a < b ? -1 : a > b;
}

static bool compare_either_is(const struct idem_value *a, const struct idem_value *b, int type) {
    return a->type == type || b->type == type;
}

/* Signed digits; more digits mean a larger absolute value. */
static int compare_bigs(const struct idem_value *a, const struct idem_value *b) {
    bool a_below = a->at.text[0] == '-', b_below = b->at.text[0] == '-';
    int cmp;

    if (a_below != b_below)
        return a_below ? -1 : 1;
    cmp = compare_integers(a->n, b->n);
    if (cmp == 0) {
        cmp = memcmp(a->at.text, b->at.text, a->n);
        cmp = compare_integers(cmp, 0);
    }
    return a_below ? -cmp : cmp;
}

/* At least one needs more than 64 bits. */
static int compare_big(const struct idem_value *a, const struct idem_value *b) {
    if (a->type != IDEM_VALUE_BIG)
        return -compare_big(b, a);
    if (b->type != IDEM_VALUE_BIG)
        return a->at.text[0] == '-' ? -1 : 1;
    return compare_bigs(a, b);
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
    if (compare_either_is(a, b, IDEM_VALUE_DOUBLE)) {
        IDEM_TRY(idem_op_reals(work, a, b));
        *ret = compare_doubles(idem_value_double(a), idem_value_double(b), total);
        return 0;
    }
    if (compare_either_is(a, b, IDEM_VALUE_FLOAT)) {
        if (compare_either_is(a, b, IDEM_VALUE_BIG))
            return IDEM_TROUBLE_BIG;
        IDEM_TRY(idem_op_reals(work, a, b));
        *ret = compare_doubles((double)idem_value_float(a), (double)idem_value_float(b), total);
        return 0;
    }
    *ret = compare_either_is(a, b, IDEM_VALUE_BIG) ? compare_big(a, b)
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
    if (!idem_work_spend(work, a->n / 64 + b->n / 64))
        return IDEM_TROUBLE_STEPS;
    if (compare_either_is(a, b, IDEM_VALUE_NULL)) {
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
