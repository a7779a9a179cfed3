/*
 * Evaluation of a tree: shared by its files.
 */
#ifndef IDEM_EXPR_EXPR_EVAL_H
#define IDEM_EXPR_EXPR_EVAL_H

#include "expr/expr_print.h"
#include "expr/expr_tree.h"

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

/* Applies one step of a path to *value. In expr_path.c. */
int idem_eval_step(struct idem_eval *e, const struct idem_node *step, struct idem_value *value);

/* Evaluates the whole expression; fills *err on trouble. In expr_compile.c. */
int idem_eval_run(const struct idem_expr *expr, struct idem_eval *e, struct idem_value *ret,
                  struct idem_error *err);
/* Reports trouble at a place in the expression. */
int idem_eval_report(const struct idem_expr *expr, const struct idem_node *node, int trouble,
                     struct idem_error *err);

#endif
