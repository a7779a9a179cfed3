/*
 * Evaluation, in three parts: nodes, the steps of a path, and the selected value as JSON.
 *
 * There is one function per kind of node. It recurses as deep as the tree, which the parser
 * bounds; every node costs a step. For keys (work.strict) a null operand is trouble, except where
 * the expression handles it: before ?: and beside a literal null in == and !=.
 */
#include <math.h>
#include <string.h>

#include "base/bytes.h"
#include "expr/expr_tree.h"
#include "expr/expr_value.h"
#include "json/json_number.h"

typedef int eval_fn(struct idem_eval *e, const struct idem_node *node, struct idem_value *ret);

/* Applies one step of a path to *value: the second part. */
static int path_apply(struct idem_eval *e, const struct idem_node *step, struct idem_value *value);

static int eval_literal(struct idem_eval *e, const struct idem_node *node, struct idem_value *ret) {
    (void)e;
    *ret = node->at.value;
    return 0;
}

/* A missing variable is null. */
static int eval_variable(struct idem_eval *e, const struct idem_node *node,
                         struct idem_value *ret) {
    const struct idem_json *json = idem_json_get(e->vars, node->at.value.at.text, node->at.value.n);

    if (json != NULL)
        return idem_value_of(&e->work, json, ret);
    *ret = IDEM_VALUE_NONE;
    return 0;
}

static int eval_this(struct idem_eval *e, const struct idem_node *node, struct idem_value *ret) {
    (void)node;
    *ret = e->active;
    return 0;
}

/* There is no root object. */
static int eval_root(struct idem_eval *e, const struct idem_node *node, struct idem_value *ret) {
    (void)e;
    (void)node;
    *ret = IDEM_VALUE_NONE;
    return 0;
}

static int eval_path(struct idem_eval *e, const struct idem_node *node, struct idem_value *ret) {
    struct idem_value value;

    IDEM_TRY(idem_eval_node(e, node->first, &value));
    for (const struct idem_node *step = node->first->next; step != NULL; step = step->next)
        IDEM_TRY(path_apply(e, step, &value));
    *ret = value;
    return 0;
}

/* A step at the beginning of a path. */
static int eval_step(struct idem_eval *e, const struct idem_node *node, struct idem_value *ret) {
    struct idem_value value = e->active;

    if (node->kind == IDEM_NODE_NAME && value.type == IDEM_VALUE_NULL)
        return IDEM_TROUBLE_BARE;
    IDEM_TRY(path_apply(e, node, &value));
    *ret = value;
    return 0;
}

/* Lists and maps. */

static int eval_list(struct idem_eval *e, const struct idem_node *node, struct idem_value *ret) {
    struct idem_value *items;
    uint32_t n = 0;

    IDEM_TRY_ALLOC(&e->work, items, node->n * sizeof(*items));
    for (const struct idem_node *item = node->first; item != NULL; item = item->next)
        IDEM_TRY(idem_eval_node(e, item, &items[n++]));
    *ret = (struct idem_value){.type = IDEM_VALUE_LIST, .n = n, .at.items = items};
    return 0;
}

/* As in Java, a repeated key keeps its first place and gets the new value. */
static int eval_put_pair(struct idem_eval *e, struct idem_pair *pairs, uint32_t *n,
                         const struct idem_pair *pair) {
    bool same = false;

    for (uint32_t i = 0; i < *n; i++) {
        IDEM_TRY(idem_value_equals(&e->work, &pairs[i].key, &pair->key, &same));
        if (same) {
            pairs[i].value = pair->value;
            return 0;
        }
    }
    pairs[(*n)++] = *pair;
    return 0;
}

static int eval_map(struct idem_eval *e, const struct idem_node *node, struct idem_value *ret) {
    struct idem_pair *pairs, pair;
    uint32_t n = 0;

    IDEM_TRY_ALLOC(&e->work, pairs, node->n / 2 * sizeof(*pairs));
    for (const struct idem_node *key = node->first; key != NULL; key = key->next->next) {
        IDEM_TRY(idem_eval_node(e, key, &pair.key));
        IDEM_TRY(idem_eval_node(e, key->next, &pair.value));
        IDEM_TRY(eval_put_pair(e, pairs, &n, &pair));
    }
    *ret = (struct idem_value){.type = IDEM_VALUE_MAP, .n = n, .at.pairs = pairs};
    return 0;
}

/* Sums, including texts. */

static int text_put_operand(struct idem_text *text, const struct idem_value *v) {
    if (v->type == IDEM_VALUE_STRING && ((v->flags & IDEM_VALUE_MADE) != 0 || !text->work->strict))
        return idem_text_put(text, v->at.text, v->n, idem_value_is_ascii(v));
    if (text->work->strict)
        return idem_text_key(text, v);
    if (v->type == IDEM_VALUE_NULL || v->type == IDEM_VALUE_MAP || v->type == IDEM_VALUE_ENTRY)
        return idem_text_java(text, v);
    return idem_text_convert(text, v);
}

static struct idem_value text_made(const struct idem_text *text) {
    struct idem_value v = idem_text_value(text);

    v.flags |= IDEM_VALUE_MADE;
    return v;
}

/* From the first text on, the operands of + are appended to one growing text. */
static int eval_sum(struct idem_eval *e, const struct idem_node *node, struct idem_value *ret) {
    const struct idem_node *operand = node->first, *before = operand;
    struct idem_value sum, value;
    struct idem_text text;
    bool growing = false;

    IDEM_TRY(idem_eval_node(e, operand, &sum));
    for (operand = operand->next; operand != NULL; before = operand, operand = operand->next) {
        IDEM_TRY(idem_eval_node(e, operand, &value));
        if (operand->link == IDEM_EXPR_OP_ADD &&
            (growing || sum.type == IDEM_VALUE_STRING || value.type == IDEM_VALUE_STRING)) {
            if (!growing) {
                idem_text_init(&text, &e->work);
                IDEM_TRY(idem_eval_at(e, before, text_put_operand(&text, &sum)));
                growing = true;
            }
            IDEM_TRY(idem_eval_at(e, operand, text_put_operand(&text, &value)));
            continue;
        }
        if (growing)
            sum = text_made(&text);
        growing = false;
        if (e->work.strict && (sum.type == IDEM_VALUE_NULL || value.type == IDEM_VALUE_NULL))
            return idem_eval_at(e, sum.type == IDEM_VALUE_NULL ? before : operand,
                                IDEM_TROUBLE_KEY_NULL);
        IDEM_TRY(idem_op_calculate(&e->work, operand->link, &sum, &value, &sum));
    }
    *ret = growing ? text_made(&text) : sum;
    return 0;
}

static int eval_product(struct idem_eval *e, const struct idem_node *node, struct idem_value *ret) {
    const struct idem_node *operand = node->first;
    struct idem_value product, value;

    IDEM_TRY(idem_eval_node(e, operand, &product));
    while ((operand = operand->next) != NULL) {
        IDEM_TRY(idem_eval_node(e, operand, &value));
        IDEM_TRY(idem_op_calculate(&e->work, operand->link, &product, &value, &product));
    }
    *ret = product;
    return 0;
}

static int eval_two_operands(struct idem_eval *e, const struct idem_node *node,
                             struct idem_value *a, struct idem_value *b) {
    IDEM_TRY(idem_eval_node(e, node->first, a));
    return idem_eval_node(e, node->first->next, b);
}

static int eval_power(struct idem_eval *e, const struct idem_node *node, struct idem_value *ret) {
    struct idem_value a, b;

    IDEM_TRY(eval_two_operands(e, node, &a, &b));
    return idem_op_calculate(&e->work, IDEM_EXPR_OP_POWER, &a, &b, ret);
}

static int eval_plus(struct idem_eval *e, const struct idem_node *node, struct idem_value *ret) {
    IDEM_TRY(idem_eval_node(e, node->first, ret));
    if (ret->type == IDEM_VALUE_NULL && e->work.strict)
        return idem_eval_at(e, node->first, IDEM_TROUBLE_KEY_NULL);
    return idem_value_is_number(ret) ? 0 : IDEM_TROUBLE_OPERANDS;
}

static int eval_negate(struct idem_eval *e, const struct idem_node *node, struct idem_value *ret) {
    struct idem_value value;

    IDEM_TRY(idem_eval_node(e, node->first, &value));
    return idem_op_negate(&e->work, &value, ret);
}

/* Booleans. */

static int eval_truth(struct idem_eval *e, const struct idem_node *node, bool *ret) {
    struct idem_value value;

    IDEM_TRY(idem_eval_node(e, node, &value));
    return idem_eval_at(e, node, idem_value_truth(&e->work, &value, ret));
}

static int eval_not(struct idem_eval *e, const struct idem_node *node, struct idem_value *ret) {
    bool flag;

    IDEM_TRY(eval_truth(e, node->first, &flag));
    *ret = idem_value_bool(!flag);
    return 0;
}

/* Evaluation stops at the first operand that decides the result. */
static int eval_logic(struct idem_eval *e, const struct idem_node *node, struct idem_value *ret) {
    bool deciding = node->kind == IDEM_NODE_OR, flag = !deciding;

    for (const struct idem_node *operand = node->first; operand != NULL && flag != deciding;
         operand = operand->next)
        IDEM_TRY(eval_truth(e, operand, &flag));
    *ret = idem_value_bool(flag);
    return 0;
}

static bool node_is_null_literal(const struct idem_node *node) {
    return node->kind == IDEM_NODE_LITERAL && node->at.value.type == IDEM_VALUE_NULL;
}

/* For keys, null is an operand only beside a literal null: #x == null. */
static int eval_check_nulls(struct idem_eval *e, const struct idem_node *node,
                            const struct idem_value *a, const struct idem_value *b) {
    const struct idem_node *left = node->first, *right = left->next;

    if (!e->work.strict || (a->type != IDEM_VALUE_NULL && b->type != IDEM_VALUE_NULL))
        return 0;
    if ((node->op == IDEM_EXPR_OP_EQ || node->op == IDEM_EXPR_OP_NE) &&
        (node_is_null_literal(left) || node_is_null_literal(right)))
        return 0;
    return idem_eval_at(e, a->type == IDEM_VALUE_NULL ? left : right, IDEM_TROUBLE_KEY_NULL);
}

static int eval_compare(struct idem_eval *e, const struct idem_node *node, struct idem_value *ret) {
    struct idem_value a, b;
    bool flag;

    IDEM_TRY(eval_two_operands(e, node, &a, &b));
    IDEM_TRY(eval_check_nulls(e, node, &a, &b));
    IDEM_TRY(idem_op_compare(&e->work, node->op, &a, &b, &flag));
    *ret = idem_value_bool(flag);
    return 0;
}

static int eval_between(struct idem_eval *e, const struct idem_node *node, struct idem_value *ret) {
    struct idem_value value, bounds, low, high;
    int order;

    IDEM_TRY(eval_two_operands(e, node, &value, &bounds));
    if (bounds.type != IDEM_VALUE_LIST || bounds.n != 2)
        return idem_eval_at(e, node->first->next, IDEM_TROUBLE_TWO_ITEMS);
    IDEM_TRY(idem_value_item(&e->work, &bounds, 0, &low));
    IDEM_TRY(idem_value_item(&e->work, &bounds, 1, &high));
    IDEM_TRY(eval_check_nulls(e, node, &value, &low));
    IDEM_TRY(eval_check_nulls(e, node, &value, &high));
    IDEM_TRY(idem_op_order(&e->work, &value, &low, &order));
    if (order >= 0) { /* from here on: not negative if the value is within both bounds */
        IDEM_TRY(idem_op_order(&e->work, &value, &high, &order));
        order = order <= 0 ? 0 : -1;
    }
    *ret = idem_value_bool(order >= 0);
    return 0;
}

/* The left operand is converted to text; the pattern must be text. */
static int eval_matches(struct idem_eval *e, const struct idem_node *node, struct idem_value *ret) {
    struct idem_value value, pattern;
    struct idem_text text;
    bool matched;

    IDEM_TRY(eval_two_operands(e, node, &value, &pattern));
    IDEM_TRY(eval_check_nulls(e, node, &value, &pattern));
    if (value.type == IDEM_VALUE_NULL || pattern.type != IDEM_VALUE_STRING)
        return IDEM_TROUBLE_PATTERN;
    if (value.type != IDEM_VALUE_STRING) {
        idem_text_init(&text, &e->work);
        IDEM_TRY(idem_text_convert(&text, &value));
        value = idem_text_value(&text);
    }
    IDEM_TRY(idem_match(&e->work, node->at.pattern, &value, &pattern, &matched));
    *ret = idem_value_bool(matched);
    return 0;
}

/* Spring omits null from the text of a template. */
static int eval_template(struct idem_eval *e, const struct idem_node *node,
                         struct idem_value *ret) {
    struct idem_value value = IDEM_VALUE_NONE;
    struct idem_text text;

    idem_text_init(&text, &e->work);
    for (const struct idem_node *part = node->first; part != NULL; part = part->next) {
        IDEM_TRY(idem_eval_node(e, part, &value));
        if (e->work.strict)
            IDEM_TRY(idem_eval_at(e, part, idem_text_key(&text, &value)));
        else if (value.type != IDEM_VALUE_NULL)
            IDEM_TRY(idem_eval_at(e, part, idem_text_convert(&text, &value)));
    }
    *ret = text_made(&text);
    return 0;
}

/* The loop in idem_eval_node() evaluates the last branch of these, so that long chains are not
   deep. */

static int eval_ternary_branch(struct idem_eval *e, const struct idem_node *node,
                               const struct idem_node **ret) {
    bool flag;

    IDEM_TRY(eval_truth(e, node->first, &flag));
    *ret = flag ? node->first->next : node->first->next->next;
    return 0;
}

/* *ret is NULL if the first operand is neither null nor ''; *value is then that operand. */
static int eval_elvis_branch(struct idem_eval *e, const struct idem_node *node,
                             const struct idem_node **ret, struct idem_value *value) {
    *value = IDEM_VALUE_NONE;
    IDEM_TRY(idem_eval_node(e, node->first, value));
    if (value->type == IDEM_VALUE_NULL || (value->type == IDEM_VALUE_STRING && value->n == 0))
        *ret = node->first->next;
    else
        *ret = NULL;
    return 0;
}

static eval_fn *const functions[IDEM_NODE_COUNT] = {
    [IDEM_NODE_LITERAL] = eval_literal, [IDEM_NODE_VARIABLE] = eval_variable,
    [IDEM_NODE_THIS] = eval_this,       [IDEM_NODE_ROOT] = eval_root,
    [IDEM_NODE_PATH] = eval_path,       [IDEM_NODE_NAME] = eval_step,
    [IDEM_NODE_INDEX] = eval_step,      [IDEM_NODE_METHOD] = eval_step,
    [IDEM_NODE_PROJECT] = eval_step,    [IDEM_NODE_SELECT] = eval_step,
    [IDEM_NODE_LIST] = eval_list,       [IDEM_NODE_MAP] = eval_map,
    [IDEM_NODE_SUM] = eval_sum,         [IDEM_NODE_PRODUCT] = eval_product,
    [IDEM_NODE_AND] = eval_logic,       [IDEM_NODE_OR] = eval_logic,
    [IDEM_NODE_POWER] = eval_power,     [IDEM_NODE_PLUS] = eval_plus,
    [IDEM_NODE_NEGATE] = eval_negate,   [IDEM_NODE_NOT] = eval_not,
    [IDEM_NODE_COMPARE] = eval_compare, [IDEM_NODE_BETWEEN] = eval_between,
    [IDEM_NODE_MATCHES] = eval_matches, [IDEM_NODE_TEMPLATE] = eval_template,
};

int idem_eval_node(struct idem_eval *e, const struct idem_node *node, struct idem_value *ret) {
    const struct idem_node *branch;
    int trouble;

    if (node->kind == IDEM_NODE_LITERAL) { /* free: the node that uses it costs a step */
        *ret = node->at.value;
        return 0;
    }
    while (node->kind == IDEM_NODE_TERNARY || node->kind == IDEM_NODE_ELVIS) {
        IDEM_TRY(idem_eval_at(e, node, idem_work_spend(&e->work, 1)));
        trouble = node->kind == IDEM_NODE_TERNARY ? eval_ternary_branch(e, node, &branch)
                                                  : eval_elvis_branch(e, node, &branch, ret);
        if (trouble != 0 || branch == NULL)
            return trouble;
        node = branch;
    }
    IDEM_TRY(idem_eval_at(e, node, idem_work_spend(&e->work, 1)));
    return idem_eval_at(e, node, functions[node->kind](e, node, ret));
}

/*
 * Steps of a path: members, indices, methods, projections and selections.
 *
 * The value of #this follows Spring: an index has no #this, arguments have the item of the
 * innermost projection or selection, and the bodies of those have the item. A selection from an
 * object is a HashMap in Java, whose order is not known here: its members can be read, but it can
 * be neither printed nor iterated. For keys this holds for every object, because the order of its
 * members has no meaning.
 */

/* Members. */

static int path_entry_member(const struct idem_node *step, const struct idem_pair *pair,
                             struct idem_value *ret) {
    const struct idem_value *name = &step->at.value;

    if (idem_is_word(name->at.text, name->n, "key"))
        *ret = pair->key;
    else if (idem_is_word(name->at.text, name->n, "value"))
        *ret = pair->value;
    else
        return IDEM_TROUBLE_NO_MEMBER;
    return 0;
}

static int path_step_name(struct idem_eval *e, const struct idem_node *step,
                          struct idem_value *value) {
    struct idem_value map = *value;
    bool found;

    switch (map.type) {
    case IDEM_VALUE_MAP:
        IDEM_TRY(idem_value_get(&e->work, &map, &step->at.value, &found, value));
        return found ? 0 : IDEM_TROUBLE_NO_MEMBER;
    case IDEM_VALUE_NULL:
        return step->safe ? 0 : IDEM_TROUBLE_OF_NULL;
    case IDEM_VALUE_ENTRY:
        return path_entry_member(step, map.at.pairs, value);
    default:
        return IDEM_TROUBLE_NOT_OBJECT;
    }
}

/* Indices. */

static int path_index_value(struct idem_eval *e, const struct idem_node *node,
                            struct idem_value *ret) {
    struct idem_value active = e->active;
    int trouble;

    e->active = IDEM_VALUE_NONE;
    trouble = idem_eval_node(e, node, ret);
    e->active = active;
    if (trouble == 0 && ret->type == IDEM_VALUE_NULL && e->work.strict)
        trouble = idem_eval_at(e, node, IDEM_TROUBLE_KEY_NULL);
    return trouble;
}

static int path_step_index(struct idem_eval *e, const struct idem_node *step,
                           struct idem_value *value) {
    const struct idem_node *body = step->first;
    struct idem_value of = *value, key;
    int32_t at;
    bool found;

    if (of.type == IDEM_VALUE_MAP && body->kind == IDEM_NODE_NAME)
        return idem_value_get(&e->work, &of, &body->at.value, &found, value);
    IDEM_TRY(path_index_value(e, body, &key));
    if (of.type == IDEM_VALUE_MAP)
        return idem_value_get(&e->work, &of, &key, &found, value);
    if (of.type != IDEM_VALUE_LIST && of.type != IDEM_VALUE_STRING)
        return of.type == IDEM_VALUE_NULL ? IDEM_TROUBLE_INDEX_NULL : IDEM_TROUBLE_NOT_INDEXED;
    IDEM_TRY(idem_value_index(&key, &at));
    IDEM_TRY(idem_work_spend(&e->work, of.type == IDEM_VALUE_STRING ? of.n / 16 : 0));
    if (of.type == IDEM_VALUE_STRING)
        return idem_utf16_part(&of, at, (int64_t)at + 1, value);
    if (at < 0 || (uint32_t)at >= of.n)
        return IDEM_TROUBLE_RANGE;
    return idem_value_item(&e->work, &of, (uint32_t)at, value);
}

/* Methods. */

static int path_arguments(struct idem_eval *e, const struct idem_node *step,
                          struct idem_value *args) {
    struct idem_value active = e->active;
    int trouble = 0;

    e->active = e->scope;
    for (const struct idem_node *arg = step->first; arg != NULL && trouble == 0;
         arg = arg->next, args++) {
        trouble = idem_eval_node(e, arg, args);
        if (trouble == 0 && args->type == IDEM_VALUE_NULL && e->work.strict)
            trouble = idem_eval_at(e, arg, IDEM_TROUBLE_KEY_NULL);
    }
    e->active = active;
    return trouble;
}

static int path_step_method(struct idem_eval *e, const struct idem_node *step,
                            struct idem_value *value) {
    struct idem_value self = *value, args[IDEM_METHOD_ARGS];
    const struct idem_method *method;

    IDEM_TRY(path_arguments(e, step, args));
    if (self.type == IDEM_VALUE_NULL)
        return step->safe ? 0 : IDEM_TROUBLE_CALL_NULL;
    method = idem_method_of(step->at.method, &self);
    return method == NULL ? IDEM_TROUBLE_NO_METHOD : method->call(&e->work, &self, args, value);
}

/* Projections and selections. */

/* The body's value for an item, or for an entry of an object. */
static int path_body_value(struct idem_eval *e, const struct idem_node *step,
                           const struct idem_value *item, struct idem_value *ret) {
    struct idem_value active = e->active, scope = e->scope;
    int trouble;

    e->active = e->scope = *item;
    trouble = idem_eval_node(e, step->first, ret);
    e->active = active;
    e->scope = scope;
    return trouble;
}

/* The item at index `i`; of an object, the entry. */
static int path_item(struct idem_eval *e, const struct idem_value *many, uint32_t i,
                     struct idem_value *ret) {
    struct idem_pair *pair;

    if (many->type == IDEM_VALUE_LIST)
        return idem_value_item(&e->work, many, i, ret);
    IDEM_TRY_ALLOC(&e->work, pair, sizeof(*pair));
    IDEM_TRY(idem_value_pair(&e->work, many, i, pair));
    *ret = (struct idem_value){.type = IDEM_VALUE_ENTRY, .at.pairs = pair};
    return 0;
}

/* Checks that *value can be iterated, in order if the order affects the result. Sets *none if it is
   null and the step is ?., which yields null. */
static int path_check_iterable(const struct idem_eval *e, const struct idem_node *step,
                               const struct idem_value *value, bool *none) {
    bool ordered = step->kind == IDEM_NODE_PROJECT || step->op != IDEM_SELECT_ALL;

    *none = value->type == IDEM_VALUE_NULL && step->safe;
    if (*none || value->type == IDEM_VALUE_LIST)
        return 0;
    if (value->type != IDEM_VALUE_MAP)
        return value->type == IDEM_VALUE_NULL ? IDEM_TROUBLE_OF_NULL : IDEM_TROUBLE_NOT_LIST;
    if (ordered && e->work.strict)
        return IDEM_TROUBLE_KEY_ORDER;
    return ordered && (value->flags & IDEM_VALUE_LOOSE) != 0 ? IDEM_TROUBLE_LOOSE : 0;
}

static int path_step_project(struct idem_eval *e, const struct idem_node *step,
                             struct idem_value *value) {
    struct idem_value many = *value, *items, item;
    bool none;

    IDEM_TRY(path_check_iterable(e, step, &many, &none));
    if (none)
        return 0;
    IDEM_TRY_ALLOC(&e->work, items, many.n * sizeof(*items));
    for (uint32_t i = 0; i < many.n; i++) {
        IDEM_TRY(path_item(e, &many, i, &item));
        IDEM_TRY(path_body_value(e, step, &item, &items[i]));
    }
    *value = (struct idem_value){.type = IDEM_VALUE_LIST, .n = many.n, .at.items = items};
    return 0;
}

/* The items for which the body is true; for FIRST and LAST, only that item. */
static int path_select_items(struct idem_eval *e, const struct idem_node *step,
                             const struct idem_value *many, struct idem_value **ret,
                             uint32_t *ret_n) {
    size_t size = (step->op == IDEM_SELECT_ALL ? many->n : 1) * sizeof(struct idem_value);
    struct idem_value *items, item, verdict;
    uint32_t n = 0;

    IDEM_TRY_ALLOC(&e->work, items, size);
    for (uint32_t i = 0; i < many->n && (n == 0 || step->op != IDEM_SELECT_FIRST); i++) {
        IDEM_TRY(path_item(e, many, i, &item));
        IDEM_TRY(path_body_value(e, step, &item, &verdict));
        if (verdict.type != IDEM_VALUE_BOOL)
            return idem_eval_at(e, step->first, IDEM_TROUBLE_CRITERION);
        if (!verdict.at.flag)
            continue;
        if (step->op != IDEM_SELECT_ALL)
            n = 0;
        items[n++] = item;
    }
    *ret = items;
    *ret_n = n;
    return 0;
}

/* Makes a map of entries again. In Java it is a HashMap with its own order. */
static int path_select_map(struct idem_eval *e, const struct idem_value *entries, uint32_t n,
                           struct idem_value *ret) {
    struct idem_pair *pairs;

    IDEM_TRY_ALLOC(&e->work, pairs, n * sizeof(*pairs));
    for (uint32_t i = 0; i < n; i++)
        pairs[i] = *entries[i].at.pairs;
    *ret = (struct idem_value){
        .type = IDEM_VALUE_MAP, .flags = n > 1 ? IDEM_VALUE_LOOSE : 0, .n = n, .at.pairs = pairs};
    return 0;
}

static int path_step_select(struct idem_eval *e, const struct idem_node *step,
                            struct idem_value *value) {
    struct idem_value many = *value, *items = NULL;
    uint32_t n = 0;
    bool none;

    IDEM_TRY(path_check_iterable(e, step, &many, &none));
    if (none)
        return 0;
    IDEM_TRY(path_select_items(e, step, &many, &items, &n));
    if (step->op != IDEM_SELECT_ALL) {
        if (n == 0) {
            *value = IDEM_VALUE_NONE;
            return 0;
        }
        if (many.type == IDEM_VALUE_LIST) {
            *value = items[0];
            return 0;
        }
    }
    if (many.type == IDEM_VALUE_MAP)
        return path_select_map(e, items, n, value);
    *value = (struct idem_value){.type = IDEM_VALUE_LIST, .n = n, .at.items = items};
    return 0;
}

/* A variable after a dot discards the value in front of it, except as #this. */
static int path_step_variable(struct idem_eval *e, const struct idem_node *step,
                              struct idem_value *value) {
    struct idem_value active = e->active;
    int trouble;

    e->active = *value;
    trouble = idem_eval_node(e, step, value);
    e->active = active;
    return trouble;
}

static int path_step(struct idem_eval *e, const struct idem_node *step, struct idem_value *value) {
    IDEM_TRY(idem_work_spend(&e->work, 1));
    switch (step->kind) {
    case IDEM_NODE_NAME:
        return path_step_name(e, step, value);
    case IDEM_NODE_INDEX:
        return path_step_index(e, step, value);
    case IDEM_NODE_METHOD:
        return path_step_method(e, step, value);
    case IDEM_NODE_PROJECT:
        return path_step_project(e, step, value);
    case IDEM_NODE_SELECT:
        return path_step_select(e, step, value);
    default:
        return path_step_variable(e, step, value);
    }
}

static int path_apply(struct idem_eval *e, const struct idem_node *step, struct idem_value *value) {
    return idem_eval_at(e, step, path_step(e, step, value));
}

/*
 * The selected value of an expression, as JSON: for fingerprints, which compare numbers by value,
 * and objects without regard to the order of their members.
 *
 * The rules are those of keys, because the value to compare must exist: a null or an empty list as
 * a result of the expression is refused. Nulls and empty lists inside of the document's values are
 * data. A map made by the expression has no order of its own, and is refused.
 */

static int select_json(struct idem_work *work, const struct idem_value *v, struct idem_json *ret);

static int select_put_number(struct idem_work *work, const char *digits, size_t len,
                             struct idem_json *ret) {
    struct idem_text text;

    idem_text_init(&text, work);
    IDEM_TRY(idem_text_put(&text, digits, len, true));
    *ret = (struct idem_json){.type = IDEM_JSON_NUMBER,
                              .flag = memchr(digits, '.', len) == NULL &&
                                      memchr(digits, 'e', len) == NULL,
                              .n = (uint32_t)text.len,
                              .at.text = text.at};
    return 0;
}

static int select_number(struct idem_work *work, const struct idem_value *v,
                         struct idem_json *ret) {
    char digits[IDEM_NUMBER_MAX];
    double d = v->type == IDEM_VALUE_FLOAT ? (double)v->at.single : v->at.real;

    if (!isfinite(d))
        return IDEM_TROUBLE_KEY_FINITE;
    return select_put_number(work, digits, idem_number_es(d, digits), ret);
}

static int select_integer(struct idem_work *work, const struct idem_value *v,
                          struct idem_json *ret) {
    struct idem_text text;

    idem_text_init(&text, work);
    IDEM_TRY(idem_text_java(&text, v));
    *ret = (struct idem_json){
        .type = IDEM_JSON_NUMBER, .flag = true, .n = (uint32_t)text.len, .at.text = text.at};
    return 0;
}

static int select_list(struct idem_work *work, const struct idem_value *list,
                       struct idem_json *ret) {
    struct idem_json *items;
    struct idem_value item;

    if (list->n == 0)
        return IDEM_TROUBLE_KEY_LIST;
    IDEM_TRY_ALLOC(work, items, list->n * sizeof(*items));
    for (uint32_t i = 0; i < list->n; i++) {
        IDEM_TRY(idem_value_item(work, list, i, &item));
        IDEM_TRY(select_json(work, &item, &items[i]));
    }
    *ret = (struct idem_json){.type = IDEM_JSON_ARRAY, .n = list->n, .at.items = items};
    return 0;
}

static int select_json(struct idem_work *work, const struct idem_value *v, struct idem_json *ret) {
    IDEM_TRY(idem_work_spend(work, 1));
    if ((v->flags & IDEM_VALUE_JSON) != 0) {
        *ret = *v->at.json;
        return 0;
    }
    switch (v->type) {
    case IDEM_VALUE_NULL:
        return IDEM_TROUBLE_KEY_NULL;
    case IDEM_VALUE_BOOL:
        *ret = (struct idem_json){.type = IDEM_JSON_BOOL, .flag = v->at.flag};
        return 0;
    case IDEM_VALUE_INT:
    case IDEM_VALUE_LONG:
    case IDEM_VALUE_BIG:
        return select_integer(work, v, ret);
    case IDEM_VALUE_DOUBLE:
    case IDEM_VALUE_FLOAT:
        return select_number(work, v, ret);
    case IDEM_VALUE_LIST:
        return IDEM_DEEPER(work, select_list(work, v, ret));
    case IDEM_VALUE_MAP:
    case IDEM_VALUE_ENTRY:
        return IDEM_TROUBLE_SELECT_MAP;
    default:
        *ret = (struct idem_json){.type = IDEM_JSON_STRING,
                                  .flag = idem_value_is_ascii(v),
                                  .n = v->n,
                                  .at.text = v->at.text};
        return 0;
    }
}

int idem_expr_select(const struct idem_expr *expr, const struct idem_json *vars,
                     struct idem_arena *arena, struct idem_json *ret, struct idem_error *err) {
    struct idem_eval e = {.work = {.arena = arena, .steps = IDEM_EXPR_STEPS_MAX, .strict = true},
                          .vars = vars};
    struct idem_value value;
    struct idem_json json;
    int rc = idem_eval_run(expr, &e, &value, err), trouble;

    if (rc < 0)
        return rc;
    trouble = select_json(&e.work, &value, &json);
    if (trouble != 0)
        return idem_eval_report(expr, expr->root, trouble, err);
    *ret = json;
    return 0;
}
