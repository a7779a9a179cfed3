/*
 * Evaluation of a tree: what its files share.
 */
#ifndef IDEM_EXPR_EVAL_H
#define IDEM_EXPR_EVAL_H

#include "expr/print.h"
#include "expr/tree.h"

struct idem_eval {
    struct idem_work work;
    const struct idem_json *vars;
    struct idem_value active; /* #this: what names without # are members of */
    struct idem_value scope;  /* the same for arguments: the item of the innermost projection */
    const struct idem_node *where; /* of the trouble, once there is some */
};

/* Remembers where the trouble was; the innermost place counts. */
static inline int idem_eval_at(struct idem_eval *e, const struct idem_node *node, int trouble) {
    if (trouble != 0 && e->where == NULL)
        e->where = node;
    return trouble;
}

int idem_eval_node(struct idem_eval *e, const struct idem_node *node, struct idem_value *ret);

/* A step of a path from *value, which becomes the result. In path.c. */
int idem_eval_step(struct idem_eval *e, const struct idem_node *step, struct idem_value *value);

/* Evaluates the whole; fills *err if there is trouble. In compile.c. */
int idem_eval_run(const struct idem_expr *expr, struct idem_eval *e, struct idem_value *ret,
                  struct idem_error *err);
/* Reports trouble at a place of the expression. */
int idem_eval_report(const struct idem_expr *expr, const struct idem_node *node, int trouble,
                     struct idem_error *err);

#endif
