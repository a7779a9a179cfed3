/*
 * A compiled expression: an immutable tree, which any number of threads may evaluate at once.
 */
#ifndef IDEM_EXPR_EXPR_TREE_H
#define IDEM_EXPR_EXPR_TREE_H

#include "expr/expr.h"
#include "expr/expr_value.h"

/*
 * The methods that an expression may call: a table of name, receiver, number of arguments and
 * function. No other methods exist.
 */

#define IDEM_METHOD_ARGS 2

/* The type of every function in the table. */
typedef int idem_method_fn(struct idem_work *work, const struct idem_value *self,
                           const struct idem_value *args, struct idem_value *ret);

struct idem_method {
    const char *name;
    uint8_t args;
    uint16_t types; /* of receivers, bits by enum idem_value_type */
    idem_method_fn *call;
    bool blurs; /* maps different values to one, so that it is refused in a key */
};

/* The first method with this name and number of arguments, or NULL. */
const struct idem_method *idem_method_find(const char *name, size_t len, size_t args);
/* True if a method has this name, with any number of arguments. */
bool idem_method_known(const char *name, size_t len);
/* Among the methods with the name and number of arguments of `method`, the one for this
   receiver. */
const struct idem_method *idem_method_of(const struct idem_method *method,
                                         const struct idem_value *self);

/*
 * Patterns of `matches`: the subset of java.util.regex that certainly means the same here, matched
 * against the whole text in bounded work.
 *
 *     literals  .  [a-z]  [^a-z]  \d \w \s \D \W \S  \t \n \r \f  \. and similar escapes
 *     ( )  (?: )  |  * + ? {n} {n,} {n,m}, each also lazy, with a ? after it
 *     ^ at the beginning and $ at the end, where they have no effect
 */

enum idem_pattern_kind {
    IDEM_PATTERN_CHAR,
    IDEM_PATTERN_ANY,
    IDEM_PATTERN_SET,
    IDEM_PATTERN_SPLIT, /* tries a first, then b */
    IDEM_PATTERN_JUMP,  /* goes to a */
    IDEM_PATTERN_END,
};

struct idem_pattern_op {
    uint8_t kind;
    bool negated; /* SET */
    int32_t a;    /* the character; the index of the first range; a relative target */
    int32_t b;    /* the number of ranges; a relative target */
};

struct idem_pattern_range {
    uint32_t low, high;
};

struct idem_pattern {
    const struct idem_pattern_op *ops;
    const struct idem_pattern_range *ranges;
    bool repeats; /* has a repeated group, for which Java recurses once per repetition */
};

/* Compiles into the arena of `work`. Returns IDEM_TROUBLE_PATTERN_KIND for anything else. */
int idem_pattern_compile(struct idem_work *work, const struct idem_value *text,
                         struct idem_pattern *ret);

/* Sets *ret if the whole text matches. Compiles `pattern` if `compiled` is NULL. */
int idem_match(struct idem_work *work, const struct idem_pattern *compiled,
               const struct idem_value *text, const struct idem_value *pattern, bool *ret);

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

/*
 * Evaluation of a tree: shared by its files.
 */

struct idem_eval {
    struct idem_work work;
    const struct idem_json *vars;
    struct idem_value active;      /* #this: the value whose members are names without # */
    struct idem_value scope;       /* #this for arguments: the item of the innermost projection */
    const struct idem_node *where; /* the place of the trouble, or NULL */
};

/* Records the place of the trouble; the innermost place wins, because it is recorded first. */
static inline int idem_eval_at(struct idem_eval *e, const struct idem_node *node, int trouble) {
    if (trouble != 0 && e->where == NULL)
        e->where = node;
    return trouble;
}

int idem_eval_node(struct idem_eval *e, const struct idem_node *node, struct idem_value *ret);

/* Evaluates the whole expression; fills *err on trouble. */
int idem_eval_run(const struct idem_expr *expr, struct idem_eval *e, struct idem_value *ret,
                  struct idem_error *err);
/* Reports trouble at a place in the expression. */
int idem_eval_report(const struct idem_expr *expr, const struct idem_node *node, int trouble,
                     struct idem_error *err);

#endif
