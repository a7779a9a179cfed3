/*
 * The methods that an expression may call: a table of name, receiver, number of arguments and
 * function. No other methods exist.
 */
#ifndef IDEM_EXPR_EXPR_METHODS_H
#define IDEM_EXPR_EXPR_METHODS_H

#include "expr/expr_value.h"

#define IDEM_METHOD_ARGS 2

/* The type of every function in the table. */
typedef int idem_method_fn(struct idem_work *work, const struct idem_value *self,
                           const struct idem_value *args, struct idem_value *ret);

struct idem_method {
    const char *name;
    uint8_t args;
    uint16_t types; /* of receivers, bits by enum idem_value_type */
    idem_method_fn *call;
    bool blurs; /* maps different values to one, so that it is refused in a key */
};

/* The first method with this name and number of arguments, or NULL. */
const struct idem_method *idem_method_find(const char *name, size_t len, size_t args);
/* True if a method has this name, with any number of arguments. */
bool idem_method_known(const char *name, size_t len);
/* Among the methods with the name and number of arguments of `method`, the one for this
   receiver. */
const struct idem_method *idem_method_of(const struct idem_method *method,
                                         const struct idem_value *self);

/* Methods of strings; in expr_strings.c. */
idem_method_fn idem_string_char_at, idem_string_compare, idem_string_concat, idem_string_contains,
    idem_string_ends, idem_string_equals_fold, idem_string_index_of, idem_string_index_of_from,
    idem_string_is_empty, idem_string_last_index_of, idem_string_last_index_of_from,
    idem_string_length, idem_string_lower, idem_string_matches, idem_string_repeat,
    idem_string_replace, idem_string_starts, idem_string_substring, idem_string_substring_to,
    idem_string_trim, idem_string_upper;

#endif
