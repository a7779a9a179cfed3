/*
 * The rules of keys at compile time; those at evaluation are in expr.h.
 */
#ifndef IDEM_EXPR_KEY_H
#define IDEM_EXPR_KEY_H

#include "expr/parse.h"

/* Leaves a fault in the parser if what was parsed is not fit for a key. */
void idem_key_check(struct idem_parser *p, const struct idem_node *root);

#endif
