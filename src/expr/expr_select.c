/*
 * The selected value of an expression, as JSON: for fingerprints, which compare numbers by value,
 * and objects without regard to the order of their members.
 *
 * The rules are those of keys, because the value to compare must exist: a null or an empty list as
 * a result of the expression is refused. Nulls and empty lists inside of the document's values are
 * data. A map made by the expression has no order of its own, and is refused.
 */
#include <math.h>
#include <string.h>

#include "expr/expr_eval.h"
#include "json/json_number.h"

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
    items = idem_work_alloc(work, list->n * sizeof(*items));
    if (items == NULL)
        return idem_work_trouble(work, list->n * sizeof(*items));
    for (uint32_t i = 0; i < list->n; i++) {
        IDEM_TRY(idem_value_item(work, list, i, &item));
        IDEM_TRY(select_json(work, &item, &items[i]));
    }
    *ret = (struct idem_json){.type = IDEM_JSON_ARRAY, .n = list->n, .at.items = items};
    return 0;
}

static int select_nested(struct idem_work *work, const struct idem_value *list,
                         struct idem_json *ret) {
    int trouble = IDEM_TROUBLE_DEPTH;

    if (++work->depth <= IDEM_VALUE_DEPTH_MAX)
        trouble = select_list(work, list, ret);
    work->depth--;
    return trouble;
}

static int select_json(struct idem_work *work, const struct idem_value *v, struct idem_json *ret) {
    if (!idem_work_spend(work, 1))
        return IDEM_TROUBLE_STEPS;
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
        return select_nested(work, v, ret);
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
