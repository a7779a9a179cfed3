/*
 * The public functions on expressions: compile, evaluate, free, and report errors with their place.
 */
#include "expr/expr.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/error.h"
#include "base/units.h"
#include "base/visible.h"
#include "expr/expr_parse.h"
#include "expr/expr_tree.h"
#include "expr/expr_value.h"

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

static void key_check(struct idem_parser *p, const struct idem_node *root) {
    bool literal = root->kind == IDEM_NODE_LITERAL && root->at.value.type == IDEM_VALUE_STRING;

    if (p->bare)
        idem_parse_fault(p, p->bare_pos, "a name without # is no variable; write #name");
    else if (!p->reads && !literal && (p->flags & IDEM_EXPR_TEMPLATE) == 0)
        idem_parse_fault(p, root->pos,
                         "no variable is read, so all operations would have this key; write "
                         "#name, or a quoted literal");
}

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
        key_check(&p, expr->root);
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
        if (idem_is_word(name->at.text, name->n, *names))
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

/*
 * Errors of expressions: the error, its column, and the expression with a caret under the place. A
 * long expression is shown in part, so that the message fits struct idem_error.
 */

#define BEFORE 32 /* characters shown before the place; AFTER counts those after it */
#define AFTER 24
#define SHOWN 256 /* bytes */

static const char *const texts[IDEM_TROUBLE_COUNT] = {
    [IDEM_FINE] = "nothing is wrong",
    [IDEM_TROUBLE_MEMORY] = "no memory",
    [IDEM_TROUBLE_SPACE] = "this needs more memory than an evaluation may use",
    [IDEM_TROUBLE_STEPS] = "this takes more steps than the million that an evaluation has",
    [IDEM_TROUBLE_SIZE] = "the text gets longer than 1 MiB, the most that an evaluation makes",
    [IDEM_TROUBLE_DEPTH] = "the lists are nested deeper than 512 levels",
    [IDEM_TROUBLE_OF_NULL] = "a member of null; ?. instead of . gives null then",
    [IDEM_TROUBLE_BARE] = "a name without # is no variable: there is nothing here to read it of",
    [IDEM_TROUBLE_NO_MEMBER] =
        "the object has no such member; ['name'] instead of .name gives null then",
    [IDEM_TROUBLE_NOT_OBJECT] = "a member of something that is no object",
    [IDEM_TROUBLE_CALL_NULL] = "a method of null; ?. instead of . gives null then",
    [IDEM_TROUBLE_NO_METHOD] = "the value has no such method",
    [IDEM_TROUBLE_ARGUMENT] = "the method does not take such an argument",
    [IDEM_TROUBLE_RANGE] = "beyond the end, or before the beginning",
    [IDEM_TROUBLE_NOT_INDEX] = "this is no index; a list and a text want an integer",
    [IDEM_TROUBLE_NOT_INDEXED] = "[] of something that is neither list, object nor text",
    [IDEM_TROUBLE_INDEX_NULL] = "[] of null; there is no ?[], but (... ?: {:})['name'] is allowed",
    [IDEM_TROUBLE_NOT_LIST] = "this wants a list or an object",
    [IDEM_TROUBLE_CRITERION] = "a selection wants true or false for each item",
    [IDEM_TROUBLE_OPERANDS] = "the operator does not take values of these types",
    [IDEM_TROUBLE_ORDER] = "values of these types have no order",
    [IDEM_TROUBLE_TWO_ITEMS] = "between wants a list of two, as in {1, 9}",
    [IDEM_TROUBLE_ZERO] = "division of an integer by zero",
    [IDEM_TROUBLE_TRUTH] = "this is neither true nor false",
    [IDEM_TROUBLE_TEXT] = "this has no text: an object, or a list of objects",
    [IDEM_TROUBLE_PATTERN] = "matches wants two texts, the second a pattern",
    [IDEM_TROUBLE_SURROGATE] = "this cuts a character beyond U+FFFF in two, which is refused",
    [IDEM_TROUBLE_CASE] = "the text has characters whose upper or lower case is not plain; refused",
    [IDEM_TROUBLE_LOOSE] = "the selected members of an object have no order to go by",
    [IDEM_TROUBLE_BIG] = "integers beyond 64 bits are compared and printed, not calculated with",
    [IDEM_TROUBLE_POWER] = "the last digit of this power would depend on the machine",
    [IDEM_TROUBLE_ENTRY] = "an entry of an object is no value of its own; take its key or value",
    [IDEM_TROUBLE_PATTERN_KIND] =
        "the pattern is wrong, or has more than literals, classes, groups, | and quantifiers",
    [IDEM_TROUBLE_PATTERN_WORK] = "the pattern takes too many steps on this text",
    [IDEM_TROUBLE_KEY_NULL] =
        "null, which must not be part of a key; give a value to use instead: (... ?: 'none')",
    [IDEM_TROUBLE_KEY_OBJECT] = "an object cannot be part of a key; name the members that count",
    [IDEM_TROUBLE_KEY_LIST] = "an empty list cannot be part of a key",
    [IDEM_TROUBLE_KEY_EMPTY] = "the key is empty; give a value to use instead: ... ?: 'none'",
    [IDEM_TROUBLE_KEY_LONG] = "the key is longer than 4096 bytes",
    [IDEM_TROUBLE_KEY_FINITE] = "a number beyond all bounds cannot be part of a key",
    [IDEM_TROUBLE_KEY_DIGITS] =
        "a number with more digits than a double keeps: in a key it would be taken for another",
    [IDEM_TROUBLE_KEY_OVERFLOW] =
        "the integer overflows, and in a key it would be taken for another",
    [IDEM_TROUBLE_KEY_EXACT] =
        "an integer that a double does not keep: in a key it would be taken for another",
    [IDEM_TROUBLE_KEY_PRINTED] =
        "the text of a list or object may be another's too; in a key, use the list itself",
    [IDEM_TROUBLE_KEY_ORDER] =
        "the members of an object have no order, so a key cannot go by it; name those that count",
    [IDEM_TROUBLE_SELECT_MAP] =
        "an object that the expression makes cannot be compared; name its parts in a list, {a, b}",
};

_Static_assert(IDEM_EXPR_STEPS_MAX == 1000000, "a text has this limit");
_Static_assert(IDEM_EXPR_TEXT_MAX == 1048576, "a text has this limit");

const char *idem_trouble_text(int trouble) {
    return texts[trouble];
}

int idem_trouble_code(int trouble) {
    return trouble == IDEM_TROUBLE_MEMORY ? IDEM_E_NOMEM : IDEM_E_INVALID;
}

/* The start of the character before `pos`, in text that may not be UTF-8. */
static size_t report_char_before(const char *text, size_t pos) {
    do
        pos--;
    while (pos > 0 && ((unsigned char)text[pos] & 0xc0) == 0x80);
    return pos;
}

static size_t report_char_after(const char *text, size_t len, size_t pos) {
    do
        pos++;
    while (pos < len && ((unsigned char)text[pos] & 0xc0) == 0x80);
    return pos;
}

static size_t report_count_chars(const char *text, size_t len) {
    size_t n = 0;

    for (size_t pos = 0; pos < len; n++)
        pos = report_char_after(text, len, pos);
    return n;
}

int idem_expr_report(struct idem_error *err, int code, const char *text, size_t len, size_t pos,
                     const char *what) {
    char shown[SHOWN];
    size_t from = pos, to = pos, at = 0, indent;

    for (int i = 0; i < BEFORE && from > 0; i++)
        from = report_char_before(text, from);
    for (int i = 0; i < AFTER && to < len; i++)
        to = report_char_after(text, len, to);
    if (from > 0)
        at = (size_t)snprintf(shown, sizeof(shown), "...");
    indent = at + report_count_chars(text + from, pos - from);
    at += idem_visible_copy(text + from, to - from, ' ', shown + at, SHOWN - strlen("...") - at);
    if (to < len)
        memcpy(shown + at, "...", sizeof("..."));
    return idem_error_fill(err, code, "column %zu: %s\n%s\n%*s^", report_count_chars(text, pos) + 1,
                           what, shown, (int)indent, "");
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
    struct idem_value value = IDEM_VALUE_NONE, key;
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
