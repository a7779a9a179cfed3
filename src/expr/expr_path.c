/*
 * Steps of a path: members, indices, methods, projections and selections.
 *
 * The value of #this follows Spring: an index has no #this, arguments have the item of the
 * innermost projection or selection, and the bodies of those have the item. A selection from an
 * object is a HashMap in Java, whose order is not known here: its members can be read, but it can
 * be neither printed nor iterated. For keys this holds for every object, because the order of its
 * members has no meaning.
 */
#include "expr/expr_eval.h"
#include "expr/expr_utf16.h"

#include <string.h>

/* Members. */

static int path_entry_member(const struct idem_node *step, const struct idem_pair *pair,
                             struct idem_value *ret) {
    const struct idem_value *name = &step->at.value;

    if (name->n == 3 && memcmp(name->at.text, "key", 3) == 0)
        *ret = pair->key;
    else if (name->n == 5 && memcmp(name->at.text, "value", 5) == 0)
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

static int path_text_index(const struct idem_value *text, int32_t at, struct idem_value *ret) {
    size_t begin, end;

    IDEM_TRY(idem_utf16_place(text, at, &begin));
    IDEM_TRY(idem_utf16_place(text, (int64_t)at + 1, &end));
    *ret = idem_value_text(text->at.text + begin, end - begin, idem_value_is_ascii(text));
    return 0;
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
    if (!idem_work_spend(&e->work, of.type == IDEM_VALUE_STRING ? of.n / 16 : 0))
        return IDEM_TROUBLE_STEPS;
    if (of.type == IDEM_VALUE_STRING)
        return path_text_index(&of, at, value);
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
    pair = idem_work_alloc(&e->work, sizeof(*pair));
    if (pair == NULL)
        return idem_work_trouble(&e->work, sizeof(*pair));
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
    items = idem_work_alloc(&e->work, many.n * sizeof(*items));
    if (items == NULL)
        return idem_work_trouble(&e->work, many.n * sizeof(*items));
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
    struct idem_value *items = idem_work_alloc(&e->work, size), item, verdict;
    uint32_t n = 0;

    if (items == NULL)
        return idem_work_trouble(&e->work, size);
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

    pairs = idem_work_alloc(&e->work, n * sizeof(*pairs));
    if (pairs == NULL)
        return idem_work_trouble(&e->work, n * sizeof(*pairs));
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

int idem_eval_step(struct idem_eval *e, const struct idem_node *step, struct idem_value *value) {
    int trouble;

    if (!idem_work_spend(&e->work, 1))
        return idem_eval_at(e, step, IDEM_TROUBLE_STEPS);
    switch (step->kind) {
    case IDEM_NODE_NAME:
        trouble = path_step_name(e, step, value);
        break;
    case IDEM_NODE_INDEX:
        trouble = path_step_index(e, step, value);
        break;
    case IDEM_NODE_METHOD:
        trouble = path_step_method(e, step, value);
        break;
    case IDEM_NODE_PROJECT:
        trouble = path_step_project(e, step, value);
        break;
    case IDEM_NODE_SELECT:
        trouble = path_step_select(e, step, value);
        break;
    default:
        trouble = path_step_variable(e, step, value);
    }
    return trouble == 0 ? 0 : idem_eval_at(e, step, trouble);
}
