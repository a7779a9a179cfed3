/*
 * Evaluation: one function per kind of node. It recurses as deep as the tree, which the parser
 * bounds; every node costs a step. For keys (work.strict) a null operand is trouble, except where
 * the expression handles it: before ?: and beside a literal null in == and !=.
 */
#include "expr/expr_eval.h"

typedef int eval_fn(struct idem_eval *e, const struct idem_node *node, struct idem_value *ret);

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
        IDEM_TRY(idem_eval_step(e, step, &value));
    *ret = value;
    return 0;
}

/* A step at the beginning of a path. */
static int eval_step(struct idem_eval *e, const struct idem_node *node, struct idem_value *ret) {
    struct idem_value value = e->active;

    if (node->kind == IDEM_NODE_NAME && value.type == IDEM_VALUE_NULL)
        return IDEM_TROUBLE_BARE;
    IDEM_TRY(idem_eval_step(e, node, &value));
    *ret = value;
    return 0;
}

/* Lists and maps. */

static int eval_list(struct idem_eval *e, const struct idem_node *node, struct idem_value *ret) {
    struct idem_value *items;
    uint32_t n = 0;

    items = idem_work_alloc(&e->work, node->n * sizeof(*items));
    if (items == NULL)
        return idem_work_trouble(&e->work, node->n * sizeof(*items));
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

    pairs = idem_work_alloc(&e->work, node->n / 2 * sizeof(*pairs));
    if (pairs == NULL)
        return idem_work_trouble(&e->work, node->n / 2 * sizeof(*pairs));
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
    if (order >= 0) {
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
        if (!idem_work_spend(&e->work, 1))
            return idem_eval_at(e, node, IDEM_TROUBLE_STEPS);
        trouble = node->kind == IDEM_NODE_TERNARY ? eval_ternary_branch(e, node, &branch)
                                                  : eval_elvis_branch(e, node, &branch, ret);
        if (trouble != 0 || branch == NULL)
            return trouble;
        node = branch;
    }
    if (!idem_work_spend(&e->work, 1))
        return idem_eval_at(e, node, IDEM_TROUBLE_STEPS);
    trouble = functions[node->kind](e, node, ret);
    return trouble == 0 ? 0 : idem_eval_at(e, node, trouble);
}
