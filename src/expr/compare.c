/*
 * Equality and order. == takes numbers to the larger type first, so 1 is 1.0;
 * everything else is compared by Java's equals(). null comes before everything.
 * In a key an integer that a double or a float does not keep is not compared
 * with one: two integers would both be equal to it.
 */
#include <math.h>
#include <string.h>

#include "expr/ops.h"

#define UNORDERED 2 /* one of them is no number */

static int sign_of(int64_t a, int64_t b) {
    return a < b ? -1 : a > b;
}

static bool is_type(const struct idem_value *a, const struct idem_value *b, int type) {
    return a->type == type || b->type == type;
}

/* Digits with a sign; longer is larger. */
static int bigs_order(const struct idem_value *a, const struct idem_value *b) {
    bool a_below = a->at.text[0] == '-', b_below = b->at.text[0] == '-';
    int cmp;

    if (a_below != b_below)
        return a_below ? -1 : 1;
    cmp = sign_of(a->n, b->n);
    if (cmp == 0) {
        cmp = memcmp(a->at.text, b->at.text, a->n);
        cmp = sign_of(cmp, 0);
    }
    return a_below ? -cmp : cmp;
}

/* One at least needs more than 64 bits. */
static int big_order(const struct idem_value *a, const struct idem_value *b) {
    if (a->type != IDEM_VALUE_BIG)
        return -big_order(b, a);
    if (b->type != IDEM_VALUE_BIG)
        return a->at.text[0] == '-' ? -1 : 1;
    return bigs_order(a, b);
}

/* Signs and NaN as Double.compare() has them: -0.0 before 0.0, NaN after all. */
static int doubles_order(double a, double b, bool total) {
    if (a < b || a > b)
        return a < b ? -1 : 1;
    if (!total)
        return isnan(a) || isnan(b) ? UNORDERED : 0;
    if (isnan(a) || isnan(b))
        return sign_of(isnan(a) != 0, isnan(b) != 0);
    return sign_of(signbit(b) != 0, signbit(a) != 0);
}

static int numbers_order(const struct idem_work *work, const struct idem_value *a,
                         const struct idem_value *b, bool total, int *ret) {
    if (is_type(a, b, IDEM_VALUE_DOUBLE)) {
        IDEM_TRY(idem_op_reals(work, a, b));
        *ret = doubles_order(idem_value_double(a), idem_value_double(b), total);
        return 0;
    }
    if (is_type(a, b, IDEM_VALUE_FLOAT)) {
        if (is_type(a, b, IDEM_VALUE_BIG))
            return IDEM_TROUBLE_BIG;
        IDEM_TRY(idem_op_reals(work, a, b));
        *ret = doubles_order((double)idem_value_float(a), (double)idem_value_float(b), total);
        return 0;
    }
    *ret = is_type(a, b, IDEM_VALUE_BIG) ? big_order(a, b) : sign_of(a->at.integer, b->at.integer);
    return 0;
}

static int others_order(const struct idem_value *a, const struct idem_value *b, int *ret) {
    if (a->type != b->type)
        return IDEM_TROUBLE_ORDER;
    switch (a->type) {
    case IDEM_VALUE_STRING:
    case IDEM_VALUE_CHAR:
        *ret = idem_utf16_cmp(a->at.text, a->n, b->at.text, b->n);
        return 0;
    case IDEM_VALUE_BOOL:
        *ret = sign_of(a->at.flag, b->at.flag);
        return 0;
    default:
        return IDEM_TROUBLE_ORDER;
    }
}

/* What texts and long numbers cost is paid before they are looked at. */
static int order(struct idem_work *work, const struct idem_value *a, const struct idem_value *b,
                 bool total, int *ret) {
    if (!idem_work_spend(work, a->n / 64 + b->n / 64))
        return IDEM_TROUBLE_STEPS;
    if (is_type(a, b, IDEM_VALUE_NULL)) {
        *ret = sign_of(a->type != IDEM_VALUE_NULL, b->type != IDEM_VALUE_NULL);
        return 0;
    }
    if (idem_value_is_number(a) && idem_value_is_number(b))
        return numbers_order(work, a, b, total, ret);
    return others_order(a, b, ret);
}

int idem_op_order(struct idem_work *work, const struct idem_value *a, const struct idem_value *b,
                  int *ret) {
    return order(work, a, b, true, ret);
}

static int equal(struct idem_work *work, const struct idem_value *a, const struct idem_value *b,
                 bool *ret) {
    int cmp = 0, trouble;

    if (!idem_value_is_number(a) || !idem_value_is_number(b))
        return idem_value_equals(work, a, b, ret);
    trouble = order(work, a, b, false, &cmp);
    *ret = cmp == 0;
    return trouble;
}

int idem_op_compare(struct idem_work *work, enum idem_expr_op op, const struct idem_value *a,
                    const struct idem_value *b, bool *ret) {
    bool same = false;
    int cmp = 0, trouble;

    if (op == IDEM_EXPR_OP_EQ || op == IDEM_EXPR_OP_NE) {
        trouble = equal(work, a, b, &same);
        *ret = same == (op == IDEM_EXPR_OP_EQ);
        return trouble;
    }
    trouble = order(work, a, b, false, &cmp);
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
