/*
 * A compiled expression: an immutable tree, which any number of threads may evaluate at once.
 */
#ifndef IDEM_EXPR_EXPR_TREE_H
#define IDEM_EXPR_EXPR_TREE_H

#include "expr/expr.h"
#include "expr/expr_arithmetic.h"
#include "expr/expr_match.h"
#include "expr/expr_methods.h"

enum idem_node_kind {
    IDEM_NODE_LITERAL,
    IDEM_NODE_VARIABLE,
    IDEM_NODE_THIS,
    IDEM_NODE_ROOT,
    IDEM_NODE_PATH, /* a value, and the steps from it */
    /* Steps; at the beginning of a path they start from #this. */
    IDEM_NODE_NAME,
    IDEM_NODE_INDEX,
    IDEM_NODE_METHOD,
    IDEM_NODE_PROJECT,
    IDEM_NODE_SELECT,
    IDEM_NODE_LIST,
    IDEM_NODE_MAP, /* key, value, key, value... */
    /* Chains: one node with all operands, so that long chains are not deep. */
    IDEM_NODE_SUM,
    IDEM_NODE_PRODUCT,
    IDEM_NODE_AND,
    IDEM_NODE_OR,
    IDEM_NODE_POWER,
    IDEM_NODE_PLUS,
    IDEM_NODE_NEGATE,
    IDEM_NODE_NOT,
    IDEM_NODE_COMPARE,
    IDEM_NODE_BETWEEN,
    IDEM_NODE_MATCHES,
    IDEM_NODE_TERNARY,
    IDEM_NODE_ELVIS,
    IDEM_NODE_TEMPLATE, /* its children are the parts */
    IDEM_NODE_COUNT,
};

enum idem_select { IDEM_SELECT_ALL, IDEM_SELECT_FIRST, IDEM_SELECT_LAST };

struct idem_node {
    uint8_t kind;
    uint8_t op;   /* COMPARE: enum idem_expr_op. SELECT: enum idem_select */
    uint8_t link; /* in a sum or product: the enum idem_expr_op in front of this operand */
    bool safe;    /* written with ?. */
    uint32_t pos; /* byte offset in the text */
    uint32_t n;   /* number of children */
    struct idem_node *first, *next;
    union {
        struct idem_value value; /* LITERAL; NAME and VARIABLE: the name, as text */
        const struct idem_method *method;
        const struct idem_pattern *pattern; /* MATCHES: compiled, if the pattern is a literal */
    } at;
};

struct idem_expr {
    struct idem_arena arena;
    const char *text; /* a copy */
    size_t len;
    unsigned flags;
    const struct idem_node *root;
};

#endif
