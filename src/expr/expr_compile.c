/*
 * The public functions on expressions: compile, evaluate, free, and report errors with their place.
 */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/units.h"
#include "expr/expr_eval.h"
#include "expr/expr_key.h"
#include "expr/expr_parse.h"

#define TREE_MAX ((size_t)8 << 20) /* bytes: many times the need of the longest expression */

static int compile_tree(struct idem_expr *expr, struct idem_error *err) {
    struct idem_parser p = {
        .work = {.arena = &expr->arena, .steps = IDEM_EXPR_STEPS_MAX},
        .text = expr->text,
        .len = expr->len,
        .flags = expr->flags,
        .code = IDEM_E_INVALID,
    };

    expr->root = (expr->flags & IDEM_EXPR_TEMPLATE) != 0 ? idem_parse_template(&p)
                                                         : idem_parse_expression(&p, 0, p.len);
    if (p.fault == NULL && (expr->flags & IDEM_EXPR_KEY) != 0)
        idem_key_check(&p, expr->root);
    if (p.fault != NULL)
        return idem_expr_report(err, p.code, expr->text, expr->len, p.fault_pos, p.fault);
    return 0;
}

static int compile_check_text(const char *text, size_t len, struct idem_error *err) {
    uint32_t c;
    size_t n;

    if (len > IDEM_EXPR_LEN_MAX)
        return idem_error_set(err, IDEM_E_INVALID,
                              "the expression has %zu bytes; allowed: up to %d", len,
                              IDEM_EXPR_LEN_MAX);
    for (size_t pos = 0; pos < len; pos += n) {
        n = idem_utf8_next(text + pos, len - pos, &c);
        if (n == 0)
            return idem_expr_report(err, IDEM_E_INVALID, text, len, pos, "this is not UTF-8");
    }
    return 0;
}

int idem_expr_compile(const char *text, size_t len, unsigned flags, struct idem_expr **ret,
                      struct idem_error *err) {
    struct idem_expr *expr;
    char *copy = NULL;
    int rc = compile_check_text(text, len, err);

    if (rc < 0)
        return rc;
    expr = calloc(1, sizeof(*expr));
    if (expr != NULL) {
        idem_arena_init(&expr->arena, TREE_MAX);
        copy = idem_arena_alloc(&expr->arena, len + 1);
    }
    if (copy == NULL) {
        idem_expr_free(expr);
        return idem_error_set(err, IDEM_E_NOMEM, "no memory for an expression");
    }
    if (len > 0)
        memcpy(copy, text, len);
    copy[len] = '\0';
    expr->text = copy;
    expr->len = len;
    expr->flags = flags;
    rc = compile_tree(expr, err);
    if (rc < 0) {
        idem_expr_free(expr);
        return rc;
    }
    *ret = expr;
    return 0;
}

void idem_expr_free(struct idem_expr *expr) {
    if (expr == NULL)
        return;
    idem_arena_free(&expr->arena);
    free(expr);
}

static bool value_is_named(const struct idem_value *name, const char *const *names) {
    for (; *names != NULL; names++)
        if (strlen(*names) == name->n && memcmp(*names, name->at.text, name->n) == 0)
            return true;
    return false;
}

/* The parser bounds the depth of this recursion. */
static const struct idem_node *node_find_unknown_variable(const struct idem_node *node,
                                                          const char *const *names) {
    const struct idem_node *found;

    if (node->kind == IDEM_NODE_VARIABLE && !value_is_named(&node->at.value, names))
        return node;
    for (const struct idem_node *child = node->first; child != NULL; child = child->next)
        if ((found = node_find_unknown_variable(child, names)) != NULL)
            return found;
    return NULL;
}

const char *idem_expr_stranger(const struct idem_expr *expr, const char *const *names,
                               size_t *ret) {
    const struct idem_node *node = node_find_unknown_variable(expr->root, names);

    if (node == NULL)
        return NULL;
    *ret = node->at.value.n;
    return node->at.value.at.text;
}

/* The name that a step reads; NULL if it is computed. */
static const struct idem_value *node_step_member(const struct idem_node *step) {
    if (step->kind == IDEM_NODE_INDEX)
        step = step->first;
    if (step->kind == IDEM_NODE_NAME ||
        (step->kind == IDEM_NODE_LITERAL && step->at.value.type == IDEM_VALUE_STRING))
        return &step->at.value;
    return NULL;
}

static const struct idem_value *node_find_member(const struct idem_node *node, const char *variable,
                                                 size_t *left) {
    const char *const names[] = {variable, NULL};
    const struct idem_node *first = node->first;
    const struct idem_value *found;

    if (node->kind == IDEM_NODE_PATH && first->kind == IDEM_NODE_VARIABLE &&
        value_is_named(&first->at.value, names) &&
        (found = node_step_member(first->next)) != NULL && (*left)-- == 0)
        return found;
    for (const struct idem_node *child = first; child != NULL; child = child->next)
        if ((found = node_find_member(child, variable, left)) != NULL)
            return found;
    return NULL;
}

const char *idem_expr_member(const struct idem_expr *expr, const char *variable, size_t i,
                             size_t *ret) {
    const struct idem_value *found = node_find_member(expr->root, variable, &i);

    if (found == NULL)
        return NULL;
    *ret = found->n;
    return found->at.text;
}

const char *idem_expr_text(const struct idem_expr *expr) {
    return expr->text;
}

int idem_eval_report(const struct idem_expr *expr, const struct idem_node *node, int trouble,
                     struct idem_error *err) {
    return idem_expr_report(err, idem_trouble_code(trouble), expr->text, expr->len, node->pos,
                            idem_trouble_text(trouble));
}

int idem_eval_run(const struct idem_expr *expr, struct idem_eval *e, struct idem_value *ret,
                  struct idem_error *err) {
    struct idem_value value;
    int trouble;

    if (e->vars->type != IDEM_JSON_OBJECT)
        return idem_error_set(err, IDEM_E_INVALID,
                              "the variables must be the members of an object");
    trouble = idem_eval_node(e, expr->root, &value);
    if (trouble != 0)
        return idem_eval_report(expr, e->where, trouble, err);
    *ret = value;
    return 0;
}

int idem_expr_eval(const struct idem_expr *expr, const struct idem_json *vars,
                   struct idem_arena *arena, struct idem_value *ret, struct idem_error *err) {
    struct idem_eval e = {.work = {.arena = arena, .steps = IDEM_EXPR_STEPS_MAX}, .vars = vars};
    struct idem_value value = IDEM_VALUE_NONE;
    int rc = idem_eval_run(expr, &e, &value, err);

    if (rc < 0)
        return rc;
    if (value.type == IDEM_VALUE_ENTRY)
        return idem_eval_report(expr, expr->root, IDEM_TROUBLE_ENTRY, err);
    *ret = value;
    return 0;
}

int idem_value_print(const struct idem_value *value, struct idem_arena *arena, const char **ret,
                     size_t *ret_len, struct idem_error *err) {
    struct idem_work work = {.arena = arena, .steps = IDEM_EXPR_STEPS_MAX};
    struct idem_value printed = *value;
    struct idem_text text;
    int trouble;

    if (value->type != IDEM_VALUE_STRING) {
        idem_text_init(&text, &work);
        trouble = idem_text_java(&text, value);
        if (trouble != 0)
            return idem_error_set(err, idem_trouble_code(trouble), "the result: %s",
                                  idem_trouble_text(trouble));
        printed = idem_text_value(&text);
    }
    *ret = printed.at.text;
    *ret_len = printed.n;
    return 0;
}

const char *idem_value_type_name(const struct idem_value *value) {
    static const char *const names[] = {
        [IDEM_VALUE_NULL] = "null",      [IDEM_VALUE_BOOL] = "Boolean",
        [IDEM_VALUE_INT] = "Integer",    [IDEM_VALUE_LONG] = "Long",
        [IDEM_VALUE_DOUBLE] = "Double",  [IDEM_VALUE_FLOAT] = "Float",
        [IDEM_VALUE_BIG] = "BigInteger", [IDEM_VALUE_CHAR] = "Character",
        [IDEM_VALUE_STRING] = "String",  [IDEM_VALUE_LIST] = "List",
        [IDEM_VALUE_MAP] = "Map",        [IDEM_VALUE_ENTRY] = "Entry",
    };

    return names[value->type];
}
