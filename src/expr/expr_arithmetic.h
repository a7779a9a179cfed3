/*
 * Operators on values, with SpEL's rules: numbers are converted to the larger of the two types, int
 * and long wrap around. For keys, an operation that would lose digits is an error instead.
 */
#ifndef IDEM_EXPR_EXPR_ARITHMETIC_H
#define IDEM_EXPR_EXPR_ARITHMETIC_H

#include "expr/expr_value.h"

enum idem_expr_op {
    IDEM_EXPR_OP_ADD,
    IDEM_EXPR_OP_SUBTRACT,
    IDEM_EXPR_OP_MULTIPLY,
    IDEM_EXPR_OP_DIVIDE,
    IDEM_EXPR_OP_MODULUS,
    IDEM_EXPR_OP_POWER,
    IDEM_EXPR_OP_EQ,
    IDEM_EXPR_OP_NE,
    IDEM_EXPR_OP_LT,
    IDEM_EXPR_OP_LE,
    IDEM_EXPR_OP_GT,
    IDEM_EXPR_OP_GE,
};

/* ADD to POWER. The evaluator handles a + with a text. */
int idem_op_calculate(struct idem_work *work, enum idem_expr_op op, const struct idem_value *a,
                      const struct idem_value *b, struct idem_value *ret);
int idem_op_negate(struct idem_work *work, const struct idem_value *v, struct idem_value *ret);

/* Checks that two numbers may be converted to double or float, which happens if one of them has
   that type, and for powers. For keys, an integer that would lose digits is refused. */
int idem_op_reals(const struct idem_work *work, const struct idem_value *a,
                  const struct idem_value *b);

/* EQ to GE. */
int idem_op_compare(struct idem_work *work, enum idem_expr_op op, const struct idem_value *a,
                    const struct idem_value *b, bool *ret);
/* Java's compare(), a total order for doubles as well. *ret is -1, 0 or 1. */
int idem_op_order(struct idem_work *work, const struct idem_value *a, const struct idem_value *b,
                  int *ret);

#endif
