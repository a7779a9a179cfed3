/*
 * Keys: the values that two requests share if they are one operation. If two operations get one
 * key, an order is lost; if one operation gets two keys, it is paid twice. So a key is stricter
 * than an expression:
 *
 * - it reads a variable, or is a quoted literal or a template; compilation refuses a name without #
 *   and, in a template, #name outside of #{...};
 * - it contains no null, object, empty list, NaN or infinity; null may stand only before ?: and
 *   beside a literal null in == and !=;
 * - the members of an object have no order, and no operation can depend on one;
 * - the whole has 1 to IDEM_KEY_MAX bytes;
 * - a list is [a,b,[c]] and differs from every other list and text: expr_print.c;
 * - lossy calculations and comparisons are refused: integers that wrap or do not fit a double,
 *   numbers that a double does not keep digit for digit (in the document or as literals),
 *   hashCode(), and the text of lists, which may be equal for different lists.
 */
#include "expr/expr_key.h"

#include <string.h>

#include "base/error.h"
#include "expr/expr_eval.h"

void idem_key_check(struct idem_parser *p, const struct idem_node *root) {
    bool literal = root->kind == IDEM_NODE_LITERAL && root->at.value.type == IDEM_VALUE_STRING;

    if (p->bare)
        idem_parse_fault(p, p->bare_pos, "a name without # is no variable; write #name");
    else if (!p->reads && !literal && (p->flags & IDEM_EXPR_TEMPLATE) == 0)
        idem_parse_fault(p, root->pos,
                         "no variable is read, so all operations would have this key; write "
                         "#name, or a quoted literal");
}

int idem_expr_compile_key(const char *text, size_t len, struct idem_expr **ret,
                          struct idem_error *err) {
    struct idem_expr *expr = NULL;
    int rc;

    if (memmem(text, len, "#{", 2) == NULL)
        return idem_expr_compile(text, len, IDEM_EXPR_KEY, ret, err);
    rc = idem_expr_compile(text, len, IDEM_EXPR_KEY, &expr, NULL);
    idem_expr_free(expr);
    if (rc == IDEM_E_NOMEM)
        return idem_error_set(err, rc, "no memory for an expression");
    if (rc == 0)
        return idem_error_set(err, IDEM_E_INVALID,
                              "it can be read as an expression with #{ in a string, and as a "
                              "template: write '#' + '{' for the former, and no quotes around "
                              "#{...} for the latter");
    return idem_expr_compile(text, len, IDEM_EXPR_KEY | IDEM_EXPR_TEMPLATE, ret, err);
}

static bool value_is_plain_text(const struct idem_value *v) {
    return v->type == IDEM_VALUE_STRING && ((v->flags & IDEM_VALUE_MADE) != 0 || v->n == 0 ||
                                            (v->at.text[0] != '[' && v->at.text[0] != '"'));
}

/* The result as the text of a key. */
static int key_text(struct idem_eval *e, const struct idem_value *value, struct idem_value *ret) {
    struct idem_text text;

    *ret = *value;
    if (!value_is_plain_text(value)) {
        idem_text_init(&text, &e->work);
        IDEM_TRY(idem_text_key(&text, value));
        *ret = idem_text_value(&text);
    }
    if (ret->n == 0)
        return IDEM_TROUBLE_KEY_EMPTY;
    return ret->n > IDEM_KEY_MAX ? IDEM_TROUBLE_KEY_LONG : 0;
}

int idem_expr_key(const struct idem_expr *expr, const struct idem_json *vars,
                  struct idem_arena *arena, const char **ret, size_t *ret_len,
                  struct idem_error *err) {
    struct idem_eval e = {.work = {.arena = arena, .steps = IDEM_EXPR_STEPS_MAX, .strict = true},
                          .vars = vars};
    struct idem_value value, key;
    int rc, trouble;

    if ((expr->flags & IDEM_EXPR_KEY) == 0)
        return idem_error_set(err, IDEM_E_INVALID, "the expression was not compiled for keys");
    rc = idem_eval_run(expr, &e, &value, err);
    if (rc < 0)
        return rc;
    trouble = key_text(&e, &value, &key);
    if (trouble != 0)
        return idem_eval_report(expr, expr->root, trouble, err);
    *ret = key.at.text;
    *ret_len = key.n;
    return 0;
}
