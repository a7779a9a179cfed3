/*
 * The rules of keys at compile time; expr.h has those at evaluation.
 */
#ifndef IDEM_EXPR_EXPR_KEY_H
#define IDEM_EXPR_EXPR_KEY_H

#include "expr/expr_parse.h"

/* Sets a fault in the parser if the expression is not fit for a key. */
void idem_key_check(struct idem_parser *p, const struct idem_node *root);

#endif
