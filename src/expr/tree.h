/*
 * A compiled expression: a tree that does not change any more, and may be
 * evaluated by any number of threads at once.
 */
#ifndef IDEM_EXPR_TREE_H
#define IDEM_EXPR_TREE_H

#include "expr/expr.h"
#include "expr/match.h"
#include "expr/methods.h"
#include "expr/ops.h"

enum idem_node_kind {
    IDEM_NODE_LITERAL,
    IDEM_NODE_VARIABLE,
    IDEM_NODE_THIS,
    IDEM_NODE_ROOT,
    IDEM_NODE_PATH, /* a value, and steps from it */
    /* Steps; as the beginning of a path they go from #this. */
    IDEM_NODE_NAME,
    IDEM_NODE_INDEX,
    IDEM_NODE_METHOD,
    IDEM_NODE_PROJECT,
    IDEM_NODE_SELECT,
    IDEM_NODE_LIST,
    IDEM_NODE_MAP, /* key, value, key, value... */
    /* Chains: as many operands as were written, so that long ones are not deep. */
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
    IDEM_NODE_TEMPLATE, /* its parts */
    IDEM_NODE_COUNT,
};

enum idem_select { IDEM_SELECT_ALL, IDEM_SELECT_FIRST, IDEM_SELECT_LAST };

struct idem_node {
    uint8_t kind;
    uint8_t op;   /* COMPARE: enum idem_expr_op. SELECT: enum idem_select */
    uint8_t link; /* in a sum or product: the enum idem_expr_op before this operand */
    bool safe;    /* ?. */
    uint32_t pos; /* byte in the text */
    uint32_t n;   /* children */
    struct idem_node *first, *next;
    union {
        struct idem_value value; /* LITERAL; NAME and VARIABLE: the name, as text */
        const struct idem_method *method;
        const struct idem_pattern *pattern; /* MATCHES: if it is a literal */
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
