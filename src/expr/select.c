/*
 * What an expression selects, as JSON: for fingerprints, which compare numbers
 * by their value and objects without regard to the order of their members.
 *
 * The rules are those of keys, since what is compared must be there: a null that
 * the expression itself gives is refused, as is an empty list of it. Nulls and
 * empty lists inside of what the document holds are data. A map that the
 * expression makes has no order of its own, and is refused.
 */
#include <math.h>
#include <string.h>

#include "expr/eval.h"
#include "json/number.h"

static int json_of(struct idem_work *work, const struct idem_value *v, struct idem_json *ret);

static int number_put(struct idem_work *work, const char *digits, size_t len,
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

static int number_json(struct idem_work *work, const struct idem_value *v, struct idem_json *ret) {
    char digits[IDEM_NUMBER_MAX];
    double d = v->type == IDEM_VALUE_FLOAT ? (double)v->at.single : v->at.real;

    if (!isfinite(d))
        return IDEM_TROUBLE_KEY_FINITE;
    return number_put(work, digits, idem_number_es(d, digits), ret);
}

static int integer_json(struct idem_work *work, const struct idem_value *v, struct idem_json *ret) {
    struct idem_text text;

    idem_text_init(&text, work);
    IDEM_TRY(idem_text_java(&text, v));
    *ret = (struct idem_json){
        .type = IDEM_JSON_NUMBER, .flag = true, .n = (uint32_t)text.len, .at.text = text.at};
    return 0;
}

static int list_json(struct idem_work *work, const struct idem_value *list, struct idem_json *ret) {
    struct idem_json *items;
    struct idem_value item;

    if (list->n == 0)
        return IDEM_TROUBLE_KEY_LIST;
    items = idem_work_alloc(work, list->n * sizeof(*items));
    if (items == NULL)
        return idem_work_trouble(work, list->n * sizeof(*items));
    for (uint32_t i = 0; i < list->n; i++) {
        IDEM_TRY(idem_value_item(work, list, i, &item));
        IDEM_TRY(json_of(work, &item, &items[i]));
    }
    *ret = (struct idem_json){.type = IDEM_JSON_ARRAY, .n = list->n, .at.items = items};
    return 0;
}

static int nested_json(struct idem_work *work, const struct idem_value *list,
                       struct idem_json *ret) {
    int trouble = IDEM_TROUBLE_DEPTH;

    if (++work->depth <= IDEM_VALUE_DEPTH_MAX)
        trouble = list_json(work, list, ret);
    work->depth--;
    return trouble;
}

static int json_of(struct idem_work *work, const struct idem_value *v, struct idem_json *ret) {
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
        return integer_json(work, v, ret);
    case IDEM_VALUE_DOUBLE:
    case IDEM_VALUE_FLOAT:
        return number_json(work, v, ret);
    case IDEM_VALUE_LIST:
        return nested_json(work, v, ret);
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
    trouble = json_of(&e.work, &value, &json);
    if (trouble != 0)
        return idem_eval_report(expr, expr->root, trouble, err);
    *ret = json;
    return 0;
}
