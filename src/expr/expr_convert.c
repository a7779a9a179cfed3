/*
 * Conversions between types: those of Spring's ConversionService that are certain, and Java's casts
 * of numbers. Uncertain conversions are refused.
 */
#include <math.h>
#include <string.h>

#include "expr/expr_value.h"
#include "json/json_number.h"

static const struct {
    const char *word;
    bool truth;
} truths[] = {{"true", true},   {"on", true},   {"yes", true}, {"1", true},
              {"false", false}, {"off", false}, {"no", false}, {"0", false}};

static bool convert_word_equals(const char *text, size_t len, const char *word) {
    if (strlen(word) != len)
        return false;
    for (size_t i = 0; i < len; i++)
        if ((text[i] >= 'A' && text[i] <= 'Z' ? text[i] + 32 : text[i]) != word[i])
            return false;
    return true;
}

static int convert_text_truth(const struct idem_value *v, bool *ret) {
    const char *text = v->at.text;
    size_t len = v->n;

    while (len > 0 && (unsigned char)text[0] <= ' ') {
        text++;
        len--;
    }
    while (len > 0 && (unsigned char)text[len - 1] <= ' ')
        len--;
    for (size_t i = 0; i < sizeof(truths) / sizeof(truths[0]); i++)
        if (convert_word_equals(text, len, truths[i].word)) {
            *ret = truths[i].truth;
            return 0;
        }
    return IDEM_TROUBLE_TRUTH;
}

int idem_value_truth(struct idem_work *work, const struct idem_value *v, bool *ret) {
    struct idem_value item;

    switch (v->type) {
    case IDEM_VALUE_BOOL:
        *ret = v->at.flag;
        return 0;
    case IDEM_VALUE_NULL:
        return work->strict ? IDEM_TROUBLE_KEY_NULL : IDEM_TROUBLE_TRUTH;
    case IDEM_VALUE_STRING:
        return idem_work_spend(work, v->n / 64) ? convert_text_truth(v, ret) : IDEM_TROUBLE_STEPS;
    case IDEM_VALUE_LIST: /* Spring takes the first item, but not of nested lists */
        if (v->n == 0)
            return IDEM_TROUBLE_TRUTH;
        IDEM_TRY(idem_value_item(work, v, 0, &item));
        return item.type == IDEM_VALUE_LIST ? IDEM_TROUBLE_TRUTH
                                            : idem_value_truth(work, &item, ret);
    default:
        return IDEM_TROUBLE_TRUTH;
    }
}

#define INDEX_DIGITS 32 /* including leading zeros */

/* Digits with or without a sign. Java's blanks, hexadecimal and non-ASCII digits are not
   accepted. */
static int convert_text_index(const struct idem_value *v, int32_t *ret) {
    size_t sign = v->n > 0 && (v->at.text[0] == '-' || v->at.text[0] == '+');
    int64_t n = 0;

    if (v->n == sign || v->n > INDEX_DIGITS)
        return IDEM_TROUBLE_NOT_INDEX;
    for (size_t i = sign; i < v->n; i++) {
        if (v->at.text[i] < '0' || v->at.text[i] > '9' || n > INT32_MAX)
            return IDEM_TROUBLE_NOT_INDEX;
        n = n * 10 + (v->at.text[i] - '0');
    }
    if (v->at.text[0] == '-')
        n = -n;
    if (n != (int32_t)n)
        return IDEM_TROUBLE_NOT_INDEX;
    *ret = (int32_t)n;
    return 0;
}

int idem_value_index(const struct idem_value *v, int32_t *ret) {
    int64_t n;

    switch (v->type) {
    case IDEM_VALUE_INT:
    case IDEM_VALUE_LONG:
        n = v->at.integer;
        break;
    case IDEM_VALUE_DOUBLE:
    case IDEM_VALUE_FLOAT:
        n = idem_double_long(idem_value_double(v));
        break;
    case IDEM_VALUE_STRING:
        return convert_text_index(v, ret);
    default:
        return IDEM_TROUBLE_NOT_INDEX;
    }
    if (n != (int32_t)n)
        return IDEM_TROUBLE_NOT_INDEX;
    *ret = (int32_t)n;
    return 0;
}

double idem_value_double(const struct idem_value *v) {
    switch (v->type) {
    case IDEM_VALUE_DOUBLE:
        return v->at.real;
    case IDEM_VALUE_FLOAT:
        return (double)v->at.single;
    case IDEM_VALUE_BIG:
        return idem_number_read(v->at.text, v->n);
    default:
        return (double)v->at.integer;
    }
}

float idem_value_float(const struct idem_value *v) {
    switch (v->type) {
    case IDEM_VALUE_DOUBLE:
        return (float)v->at.real;
    case IDEM_VALUE_FLOAT:
        return v->at.single;
    default:
        return (float)v->at.integer;
    }
}

int64_t idem_double_long(double d) {
    if (isnan(d))
        return 0;
    if (d >= 0x1p63)
        return INT64_MAX;
    return d <= -0x1p63 ? INT64_MIN : (int64_t)d;
}

int32_t idem_double_int(double d) {
    if (isnan(d))
        return 0;
    if (d >= INT32_MAX)
        return INT32_MAX;
    return d <= INT32_MIN ? INT32_MIN : (int32_t)d;
}
