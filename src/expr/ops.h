/*
 * Operators on values, as SpEL has them: numbers are taken to the larger of the
 * two types, int and long wrap. Under the rules of keys what would lose digits
 * is an error instead.
 */
#ifndef IDEM_EXPR_OPS_H
#define IDEM_EXPR_OPS_H

#include "expr/value.h"

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

/* ADD to POWER. A + with a text is the evaluator's. */
int idem_op_calculate(struct idem_work *work, enum idem_expr_op op, const struct idem_value *a,
                      const struct idem_value *b, struct idem_value *ret);
int idem_op_negate(struct idem_work *work, const struct idem_value *v, struct idem_value *ret);

/* Whether two numbers may be taken to a double or a float, as one of them is or as a power does: in
   a key not an integer that would not keep its digits. */
int idem_op_reals(const struct idem_work *work, const struct idem_value *a,
                  const struct idem_value *b);

/* EQ to GE. */
int idem_op_compare(struct idem_work *work, enum idem_expr_op op, const struct idem_value *a,
                    const struct idem_value *b, bool *ret);
/* Java's compare(): of doubles too every two have an order. -1, 0 or 1. */
int idem_op_order(struct idem_work *work, const struct idem_value *a, const struct idem_value *b,
                  int *ret);

#endif
