/*
 * The table of methods, and the functions of all types except strings. An argument whose conversion
 * in Java is not certain is refused.
 */
#include "expr/expr_methods.h"

#include <math.h>
#include <string.h>

#include "base/bytes.h"
#include "expr/expr_print.h"

static int methods_to_string(struct idem_work *work, const struct idem_value *self,
                             const struct idem_value *args, struct idem_value *ret) {
    struct idem_text text;

    (void)args;
    if (self->type == IDEM_VALUE_STRING) {
        *ret = *self;
        return 0;
    }
    if (work->strict && self->type >= IDEM_VALUE_LIST)
        return IDEM_TROUBLE_KEY_PRINTED;
    idem_text_init(&text, work);
    IDEM_TRY(idem_text_java(&text, self));
    *ret = idem_text_value(&text);
    return 0;
}

static int methods_equals(struct idem_work *work, const struct idem_value *self,
                          const struct idem_value *args, struct idem_value *ret) {
    bool same;

    IDEM_TRY(idem_value_equals(work, self, &args[0], &same));
    *ret = idem_value_bool(same);
    return 0;
}

static int methods_hash(struct idem_work *work, const struct idem_value *self,
                        const struct idem_value *args, struct idem_value *ret) {
    uint32_t hash;

    (void)args;
    IDEM_TRY(idem_value_hash(work, self, &hash));
    *ret = idem_value_int((int32_t)hash);
    return 0;
}

/* Lists and maps. */

static int methods_size(struct idem_work *work, const struct idem_value *self,
                        const struct idem_value *args, struct idem_value *ret) {
    (void)work;
    (void)args;
    *ret = idem_value_int(self->n);
    return 0;
}

static int methods_is_empty(struct idem_work *work, const struct idem_value *self,
                            const struct idem_value *args, struct idem_value *ret) {
    (void)work;
    (void)args;
    *ret = idem_value_bool(self->n == 0);
    return 0;
}

static int methods_list_get(struct idem_work *work, const struct idem_value *self,
                            const struct idem_value *args, struct idem_value *ret) {
    int32_t at;

    if (idem_value_index(&args[0], &at) != 0)
        return IDEM_TROUBLE_ARGUMENT;
    if (at < 0 || (uint32_t)at >= self->n)
        return IDEM_TROUBLE_RANGE;
    return idem_value_item(work, self, (uint32_t)at, ret);
}

/* The first index that has the item, from `i` in steps of `by`; -1 if there is none. */
static int methods_list_search(struct idem_work *work, const struct idem_value *self,
                               const struct idem_value *arg, int64_t i, int by, int64_t *ret) {
    struct idem_value item;
    bool same = false;

    for (; i >= 0 && i < self->n; i += by) {
        IDEM_TRY(idem_value_item(work, self, (uint32_t)i, &item));
        IDEM_TRY(idem_value_equals(work, &item, arg, &same));
        if (same)
            break;
    }
    *ret = same ? i : -1;
    return 0;
}

static int methods_list_contains(struct idem_work *work, const struct idem_value *self,
                                 const struct idem_value *args, struct idem_value *ret) {
    int64_t at;

    IDEM_TRY(methods_list_search(work, self, &args[0], 0, 1, &at));
    *ret = idem_value_bool(at >= 0);
    return 0;
}

static int methods_list_index_of(struct idem_work *work, const struct idem_value *self,
                                 const struct idem_value *args, struct idem_value *ret) {
    int64_t at;

    IDEM_TRY(methods_list_search(work, self, &args[0], 0, 1, &at));
    *ret = idem_value_int(at);
    return 0;
}

static int methods_list_last_index_of(struct idem_work *work, const struct idem_value *self,
                                      const struct idem_value *args, struct idem_value *ret) {
    int64_t at;

    IDEM_TRY(methods_list_search(work, self, &args[0], (int64_t)self->n - 1, -1, &at));
    *ret = idem_value_int(at);
    return 0;
}

static int methods_map_get(struct idem_work *work, const struct idem_value *self,
                           const struct idem_value *args, struct idem_value *ret) {
    bool found;

    return idem_value_get(work, self, &args[0], &found, ret);
}

static int methods_map_get_or(struct idem_work *work, const struct idem_value *self,
                              const struct idem_value *args, struct idem_value *ret) {
    bool found;

    IDEM_TRY(idem_value_get(work, self, &args[0], &found, ret));
    if (!found)
        *ret = args[1];
    return 0;
}

static int methods_map_has_key(struct idem_work *work, const struct idem_value *self,
                               const struct idem_value *args, struct idem_value *ret) {
    struct idem_value value;
    bool found;

    IDEM_TRY(idem_value_get(work, self, &args[0], &found, &value));
    *ret = idem_value_bool(found);
    return 0;
}

static int methods_map_has_value(struct idem_work *work, const struct idem_value *self,
                                 const struct idem_value *args, struct idem_value *ret) {
    struct idem_pair pair;
    bool same = false;

    for (uint32_t i = 0; !same && i < self->n; i++) {
        IDEM_TRY(idem_value_pair(work, self, i, &pair));
        IDEM_TRY(idem_value_equals(work, &pair.value, &args[0], &same));
    }
    *ret = idem_value_bool(same);
    return 0;
}

/* Numbers. */

static bool value_is_real(const struct idem_value *v) {
    return v->type == IDEM_VALUE_DOUBLE || v->type == IDEM_VALUE_FLOAT;
}

static int methods_number_long(struct idem_work *work, const struct idem_value *self,
                               const struct idem_value *args, struct idem_value *ret) {
    double d = value_is_real(self) ? idem_value_double(self) : 0;
    int64_t n = value_is_real(self) ? idem_double_long(d) : self->at.integer;

    (void)args;
    if (work->strict && !(d >= -0x1p63 && d < 0x1p63))
        return IDEM_TROUBLE_KEY_OVERFLOW;
    *ret = (struct idem_value){.type = IDEM_VALUE_LONG, .at.integer = n};
    return 0;
}

/* As in Java, a real number saturates at the limits of int, and an integer wraps around. */
static int methods_number_int(struct idem_work *work, const struct idem_value *self,
                              const struct idem_value *args, struct idem_value *ret) {
    int64_t n = value_is_real(self) ? idem_double_int(idem_value_double(self))
                                    : (int32_t)(uint32_t)(uint64_t)self->at.integer;

    (void)args;
    if (work->strict &&
        (value_is_real(self) ? (double)n != trunc(idem_value_double(self)) : n != self->at.integer))
        return IDEM_TROUBLE_KEY_OVERFLOW;
    *ret = idem_value_int(n);
    return 0;
}

static int methods_number_double(struct idem_work *work, const struct idem_value *self,
                                 const struct idem_value *args, struct idem_value *ret) {
    static const int64_t most = (int64_t)1 << 53;
    double d = idem_value_double(self);

    (void)args;
    if (work->strict && !value_is_real(self) &&
        (self->at.integer > most || self->at.integer < -most))
        return IDEM_TROUBLE_KEY_EXACT;
    *ret = (struct idem_value){.type = IDEM_VALUE_DOUBLE, .at.real = d};
    return 0;
}

/* The table, sorted by name. */

#define STRINGS (1 << IDEM_VALUE_STRING)
#define LISTS (1 << IDEM_VALUE_LIST)
#define MAPS (1 << IDEM_VALUE_MAP)
#define NUMBERS                                                                                    \
    (1 << IDEM_VALUE_INT | 1 << IDEM_VALUE_LONG | 1 << IDEM_VALUE_DOUBLE | 1 << IDEM_VALUE_FLOAT)
#define ALL                                                                                        \
    (STRINGS | LISTS | MAPS | NUMBERS | 1 << IDEM_VALUE_BIG | 1 << IDEM_VALUE_BOOL |               \
     1 << IDEM_VALUE_CHAR | 1 << IDEM_VALUE_ENTRY)

/* clang-format off */
static const struct idem_method methods[] = {
    {"charAt", 1, STRINGS, idem_string_char_at, false},
    {"compareTo", 1, STRINGS, idem_string_compare, false},
    {"concat", 1, STRINGS, idem_string_concat, false},
    {"contains", 1, STRINGS, idem_string_contains, false},
    {"contains", 1, LISTS, methods_list_contains, false},
    {"containsKey", 1, MAPS, methods_map_has_key, false},
    {"containsValue", 1, MAPS, methods_map_has_value, false},
    {"doubleValue", 0, NUMBERS, methods_number_double, false},
    {"endsWith", 1, STRINGS, idem_string_ends, false},
    {"equals", 1, ALL, methods_equals, false},
    {"equalsIgnoreCase", 1, STRINGS, idem_string_equals_fold, false},
    {"get", 1, LISTS, methods_list_get, false},
    {"get", 1, MAPS, methods_map_get, false},
    {"getOrDefault", 2, MAPS, methods_map_get_or, false},
    {"hashCode", 0, ALL, methods_hash, true},
    {"indexOf", 1, STRINGS, idem_string_index_of, false},
    {"indexOf", 1, LISTS, methods_list_index_of, false},
    {"indexOf", 2, STRINGS, idem_string_index_of_from, false},
    {"intValue", 0, NUMBERS, methods_number_int, false},
    {"isEmpty", 0, STRINGS, idem_string_is_empty, false},
    {"isEmpty", 0, LISTS | MAPS, methods_is_empty, false},
    {"lastIndexOf", 1, STRINGS, idem_string_last_index_of, false},
    {"lastIndexOf", 1, LISTS, methods_list_last_index_of, false},
    {"lastIndexOf", 2, STRINGS, idem_string_last_index_of_from, false},
    {"length", 0, STRINGS, idem_string_length, false},
    {"longValue", 0, NUMBERS, methods_number_long, false},
    {"matches", 1, STRINGS, idem_string_matches, false},
    {"repeat", 1, STRINGS, idem_string_repeat, false},
    {"replace", 2, STRINGS, idem_string_replace, false},
    {"size", 0, LISTS | MAPS, methods_size, false},
    {"startsWith", 1, STRINGS, idem_string_starts, false},
    {"substring", 1, STRINGS, idem_string_substring, false},
    {"substring", 2, STRINGS, idem_string_substring_to, false},
    {"toLowerCase", 0, STRINGS, idem_string_lower, false},
    {"toString", 0, ALL, methods_to_string, false},
    {"toUpperCase", 0, STRINGS, idem_string_upper, false},
    {"trim", 0, STRINGS, idem_string_trim, false},
    {NULL, 0, 0, NULL, false},
};
/* clang-format on */

const struct idem_method *idem_method_find(const char *name, size_t len, size_t args) {
    for (const struct idem_method *method = methods; method->name != NULL; method++)
        if (method->args == args && idem_is_word(name, len, method->name))
            return method;
    return NULL;
}

bool idem_method_known(const char *name, size_t len) {
    for (const struct idem_method *method = methods; method->name != NULL; method++)
        if (idem_is_word(name, len, method->name))
            return true;
    return false;
}

const struct idem_method *idem_method_of(const struct idem_method *method,
                                         const struct idem_value *self) {
    const char *name = method->name;

    for (uint8_t args = method->args; method->name != NULL && strcmp(method->name, name) == 0;
         method++)
        if (method->args == args && (method->types >> self->type & 1) != 0)
            return method;
    return NULL;
}
