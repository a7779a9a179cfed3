/*
 * The methods of strings, with Java's results: places in UTF-16 units, and the same arguments
 * accepted and refused.
 */
#include <string.h>

#include "base/units.h"
#include "expr/expr_arithmetic.h"
#include "expr/expr_case.h"
#include "expr/expr_match.h"
#include "expr/expr_methods.h"
#include "expr/expr_print.h"
#include "expr/expr_utf16.h"

/* Spends the steps for reading the whole text, before the work. */
static int work_spend_text(struct idem_work *work, const struct idem_value *v) {
    return idem_work_spend(work, v->n / 16) ? 0 : IDEM_TROUBLE_STEPS;
}

/* An argument where Java takes a String; Spring converts other types. */
static int strings_text_argument(struct idem_work *work, const struct idem_value *arg,
                                 struct idem_value *ret) {
    struct idem_text text;

    if (arg->type == IDEM_VALUE_STRING) {
        *ret = *arg;
        return 0;
    }
    if (work->strict && arg->type == IDEM_VALUE_LIST)
        return IDEM_TROUBLE_KEY_PRINTED;
    idem_text_init(&text, work);
    if (idem_text_convert(&text, arg) != 0)
        return IDEM_TROUBLE_ARGUMENT;
    *ret = idem_text_value(&text);
    return 0;
}

static int strings_index_argument(const struct idem_value *arg, int32_t *ret) {
    return idem_value_index(arg, ret) == 0 ? 0 : IDEM_TROUBLE_ARGUMENT;
}

int idem_string_length(struct idem_work *work, const struct idem_value *self,
                       const struct idem_value *args, struct idem_value *ret) {
    (void)args;
    IDEM_TRY(work_spend_text(work, self));
    *ret = idem_value_int((int64_t)idem_utf16_units(self));
    return 0;
}

int idem_string_is_empty(struct idem_work *work, const struct idem_value *self,
                         const struct idem_value *args, struct idem_value *ret) {
    (void)work;
    (void)args;
    *ret = idem_value_bool(self->n == 0);
    return 0;
}

/* Parts. */

static int strings_part(struct idem_work *work, const struct idem_value *self, int64_t from,
                        int64_t to, struct idem_value *ret) {
    size_t begin, end;

    IDEM_TRY(work_spend_text(work, self));
    if (from > to)
        return IDEM_TROUBLE_RANGE;
    IDEM_TRY(idem_utf16_place(self, from, &begin));
    IDEM_TRY(idem_utf16_place(self, to, &end));
    *ret = idem_value_text(self->at.text + begin, end - begin, idem_value_is_ascii(self));
    return 0;
}

int idem_string_substring(struct idem_work *work, const struct idem_value *self,
                          const struct idem_value *args, struct idem_value *ret) {
    int32_t from;

    IDEM_TRY(strings_index_argument(&args[0], &from));
    IDEM_TRY(work_spend_text(work, self));
    return strings_part(work, self, from, (int64_t)idem_utf16_units(self), ret);
}

int idem_string_substring_to(struct idem_work *work, const struct idem_value *self,
                             const struct idem_value *args, struct idem_value *ret) {
    int32_t from, to;

    IDEM_TRY(strings_index_argument(&args[0], &from));
    IDEM_TRY(strings_index_argument(&args[1], &to));
    return strings_part(work, self, from, to, ret);
}

int idem_string_char_at(struct idem_work *work, const struct idem_value *self,
                        const struct idem_value *args, struct idem_value *ret) {
    int32_t at;

    IDEM_TRY(strings_index_argument(&args[0], &at));
    IDEM_TRY(strings_part(work, self, at, (int64_t)at + 1, ret));
    ret->type = IDEM_VALUE_CHAR;
    return 0;
}

int idem_string_trim(struct idem_work *work, const struct idem_value *self,
                     const struct idem_value *args, struct idem_value *ret) {
    const char *text = self->at.text;
    size_t begin = 0, end = self->n;

    (void)args;
    IDEM_TRY(work_spend_text(work, self));
    while (begin < end && (unsigned char)text[begin] <= ' ')
        begin++;
    while (end > begin && (unsigned char)text[end - 1] <= ' ')
        end--;
    *ret = idem_value_text(text + begin, end - begin, idem_value_is_ascii(self));
    return 0;
}

/* Searches. */

int idem_string_contains(struct idem_work *work, const struct idem_value *self,
                         const struct idem_value *args, struct idem_value *ret) {
    if (args[0].type != IDEM_VALUE_STRING)
        return IDEM_TROUBLE_ARGUMENT;
    IDEM_TRY(work_spend_text(work, self));
    *ret = idem_value_bool(idem_utf16_find(self, &args[0], 0) >= 0);
    return 0;
}

static int strings_starts_or_ends(struct idem_work *work, const struct idem_value *self,
                                  const struct idem_value *arg, bool at_end,
                                  struct idem_value *ret) {
    struct idem_value other;
    size_t from;

    IDEM_TRY(strings_text_argument(work, arg, &other));
    IDEM_TRY(work_spend_text(work, &other));
    from = at_end && other.n <= self->n ? self->n - other.n : 0;
    *ret = idem_value_bool(other.n <= self->n &&
                           memcmp(self->at.text + from, other.at.text, other.n) == 0);
    return 0;
}

int idem_string_starts(struct idem_work *work, const struct idem_value *self,
                       const struct idem_value *args, struct idem_value *ret) {
    return strings_starts_or_ends(work, self, &args[0], false, ret);
}

int idem_string_ends(struct idem_work *work, const struct idem_value *self,
                     const struct idem_value *args, struct idem_value *ret) {
    return strings_starts_or_ends(work, self, &args[0], true, ret);
}

/*
 * indexOf() and lastIndexOf() take a String, or an int that is a character. For other types, which
 * convert to both, Java's choice is ambiguous. Sets *none if the number is not a code point.
 */
static int strings_search_argument(const struct idem_value *arg, char buf[4],
                                   struct idem_value *ret, bool *none) {
    uint32_t c;

    *none = false;
    *ret = *arg;
    if (arg->type == IDEM_VALUE_STRING)
        return 0;
    if (arg->type != IDEM_VALUE_INT)
        return IDEM_TROUBLE_ARGUMENT;
    *none = arg->at.integer < 0 || arg->at.integer > 0x10ffff;
    if (*none)
        return 0;
    c = (uint32_t)arg->at.integer;
    if (c >= 0xd800 && c <= 0xdfff)
        return IDEM_TROUBLE_SURROGATE;
    *ret = idem_value_text(buf, idem_utf8_put(c, buf), c < 0x80);
    return 0;
}

static int strings_search(struct idem_work *work, const struct idem_value *self,
                          const struct idem_value *arg, int64_t from, bool last,
                          struct idem_value *ret) {
    struct idem_value other;
    char buf[4];
    bool none;

    IDEM_TRY(strings_search_argument(arg, buf, &other, &none));
    /* The backward search compares at every place. */
    if (!idem_work_spend(work, self->n / 16 + (last ? self->n / 16 * (other.n / 16) : 0)))
        return IDEM_TROUBLE_STEPS;
    *ret = idem_value_int(none   ? -1
                          : last ? idem_utf16_find_last(self, &other, from)
                                 : idem_utf16_find(self, &other, from));
    return 0;
}

int idem_string_index_of(struct idem_work *work, const struct idem_value *self,
                         const struct idem_value *args, struct idem_value *ret) {
    return strings_search(work, self, &args[0], 0, false, ret);
}

int idem_string_last_index_of(struct idem_work *work, const struct idem_value *self,
                              const struct idem_value *args, struct idem_value *ret) {
    return strings_search(work, self, &args[0], INT32_MAX, true, ret);
}

/* If the second argument is not an Integer, Java's choice between String and int is ambiguous. */
int idem_string_index_of_from(struct idem_work *work, const struct idem_value *self,
                              const struct idem_value *args, struct idem_value *ret) {
    if (args[1].type != IDEM_VALUE_INT)
        return IDEM_TROUBLE_ARGUMENT;
    return strings_search(work, self, &args[0], args[1].at.integer, false, ret);
}

int idem_string_last_index_of_from(struct idem_work *work, const struct idem_value *self,
                                   const struct idem_value *args, struct idem_value *ret) {
    if (args[1].type != IDEM_VALUE_INT)
        return IDEM_TROUBLE_ARGUMENT;
    return strings_search(work, self, &args[0], args[1].at.integer, true, ret);
}

int idem_string_matches(struct idem_work *work, const struct idem_value *self,
                        const struct idem_value *args, struct idem_value *ret) {
    bool matched;

    if (args[0].type != IDEM_VALUE_STRING)
        return IDEM_TROUBLE_ARGUMENT;
    IDEM_TRY(idem_match(work, NULL, self, &args[0], &matched));
    *ret = idem_value_bool(matched);
    return 0;
}

/* Comparisons. */

int idem_string_compare(struct idem_work *work, const struct idem_value *self,
                        const struct idem_value *args, struct idem_value *ret) {
    struct idem_value other;

    IDEM_TRY(strings_text_argument(work, &args[0], &other));
    IDEM_TRY(work_spend_text(work, self));
    IDEM_TRY(work_spend_text(work, &other));
    *ret = idem_value_int(idem_utf16_compare(self, &other));
    return 0;
}

static bool value_all_ascii(const struct idem_value *v) {
    if (idem_value_is_ascii(v))
        return true;
    for (uint32_t i = 0; i < v->n; i++)
        if ((unsigned char)v->at.text[i] >= 0x80)
            return false;
    return true;
}

static char strings_ascii_lower(char c) {
    return c >= 'A' && c <= 'Z' ? (char)(c + ('a' - 'A')) : c;
}

/* Java folds one unit at a time, so that texts of different length are never equal. */
int idem_string_equals_fold(struct idem_work *work, const struct idem_value *self,
                            const struct idem_value *args, struct idem_value *ret) {
    struct idem_value other;
    bool same;

    if (args[0].type == IDEM_VALUE_NULL) {
        *ret = idem_value_bool(false);
        return 0;
    }
    IDEM_TRY(strings_text_argument(work, &args[0], &other));
    IDEM_TRY(work_spend_text(work, self));
    IDEM_TRY(work_spend_text(work, &other));
    IDEM_TRY(idem_value_equals(work, self, &other, &same));
    *ret = idem_value_bool(same);
    if (same || idem_utf16_units(self) != idem_utf16_units(&other))
        return 0;
    if (!value_all_ascii(self) || !value_all_ascii(&other))
        return IDEM_TROUBLE_CASE;
    same = true;
    for (uint32_t i = 0; same && i < self->n; i++)
        same = strings_ascii_lower(self->at.text[i]) == strings_ascii_lower(other.at.text[i]);
    *ret = idem_value_bool(same);
    return 0;
}

/* New texts. */

static int strings_map_case(struct idem_work *work, const struct idem_value *self,
                            bool (*map)(uint32_t c, uint32_t *ret), struct idem_value *ret) {
    char *at = idem_work_alloc(work, self->n);
    uint32_t c;

    if (at == NULL)
        return idem_work_trouble(work, self->n);
    if (!idem_work_spend(work, self->n / 4))
        return IDEM_TROUBLE_STEPS;
    for (size_t pos = 0; pos < self->n;) {
        idem_utf8_next(self->at.text + pos, self->n - pos, &c);
        if (!map(c, &c))
            return IDEM_TROUBLE_CASE;
        pos += idem_utf8_put(c, at + pos);
    }
    *ret = idem_value_text(at, self->n, idem_value_is_ascii(self));
    return 0;
}

int idem_string_lower(struct idem_work *work, const struct idem_value *self,
                      const struct idem_value *args, struct idem_value *ret) {
    (void)args;
    return strings_map_case(work, self, idem_case_lower, ret);
}

int idem_string_upper(struct idem_work *work, const struct idem_value *self,
                      const struct idem_value *args, struct idem_value *ret) {
    (void)args;
    return strings_map_case(work, self, idem_case_upper, ret);
}

int idem_string_concat(struct idem_work *work, const struct idem_value *self,
                       const struct idem_value *args, struct idem_value *ret) {
    struct idem_value other;
    struct idem_text text;

    IDEM_TRY(strings_text_argument(work, &args[0], &other));
    idem_text_init(&text, work);
    IDEM_TRY(idem_text_put(&text, self->at.text, self->n, idem_value_is_ascii(self)));
    IDEM_TRY(idem_text_put(&text, other.at.text, other.n, idem_value_is_ascii(&other)));
    *ret = idem_text_value(&text);
    return 0;
}

int idem_string_repeat(struct idem_work *work, const struct idem_value *self,
                       const struct idem_value *args, struct idem_value *ret) {
    struct idem_value times;
    int32_t n;

    IDEM_TRY(strings_index_argument(&args[0], &n));
    if (n < 0)
        return IDEM_TROUBLE_ARGUMENT;
    times = idem_value_int(n);
    return idem_op_calculate(work, IDEM_EXPR_OP_MULTIPLY, self, &times, ret);
}

/* An empty text is found before every unit and at the end. */
static int text_replace_empty(struct idem_text *text, const struct idem_value *self,
                              const struct idem_value *by) {
    size_t end;

    for (size_t pos = 0; pos < self->n; pos = end) {
        for (end = pos + 1; end < self->n && ((unsigned char)self->at.text[end] & 0xc0) == 0x80;)
            end++;
        if (end - pos == 4)
            return IDEM_TROUBLE_SURROGATE;
        IDEM_TRY(idem_text_put(text, by->at.text, by->n, idem_value_is_ascii(by)));
        IDEM_TRY(idem_text_put(text, self->at.text + pos, end - pos, idem_value_is_ascii(self)));
    }
    return idem_text_put(text, by->at.text, by->n, idem_value_is_ascii(by));
}

static int text_replace_all(struct idem_text *text, const struct idem_value *self,
                            const struct idem_value *what, const struct idem_value *by) {
    const char *at = self->at.text, *end = at + self->n, *found;

    while (at < end && (found = memmem(at, (size_t)(end - at), what->at.text, what->n)) != NULL) {
        IDEM_TRY(idem_text_put(text, at, (size_t)(found - at), idem_value_is_ascii(self)));
        IDEM_TRY(idem_text_put(text, by->at.text, by->n, idem_value_is_ascii(by)));
        at = found + what->n;
    }
    return idem_text_put(text, at, (size_t)(end - at), idem_value_is_ascii(self));
}

int idem_string_replace(struct idem_work *work, const struct idem_value *self,
                        const struct idem_value *args, struct idem_value *ret) {
    struct idem_text text;

    if (args[0].type != IDEM_VALUE_STRING || args[1].type != IDEM_VALUE_STRING)
        return IDEM_TROUBLE_ARGUMENT;
    IDEM_TRY(work_spend_text(work, self));
    idem_text_init(&text, work);
    if (args[0].n == 0)
        IDEM_TRY(text_replace_empty(&text, self, &args[1]));
    else
        IDEM_TRY(text_replace_all(&text, self, &args[0], &args[1]));
    *ret = idem_text_value(&text);
    return 0;
}
