/*
 * Key expressions: a safe subset of the Spring Expression Language (SpEL 4.3) over a JSON document.
 * The result is Spring's result. Anything that would give another result, or an uncertain one, is
 * refused. Types, constructors, beans, assignments and unlisted methods do not compile. An
 * expression calls, reads and writes nothing outside of the document.
 *
 *     struct idem_expr *expr;
 *
 *     idem_expr_compile("'user:' + #user.id", 18, IDEM_EXPR_KEY, &expr, &err);
 *     idem_expr_key(expr, &vars, &arena, &key, &len, &err);
 *
 * Errors are IDEM_E_INVALID (or IDEM_E_NOMEM) with the column and, on two more lines, the
 * expression and a caret. They show the expression, never a value.
 */
#ifndef IDEM_EXPR_EXPR_H
#define IDEM_EXPR_EXPR_H

#include "expr/expr_value.h"

/* Limits; see also IDEM_EXPR_TEXT_MAX, IDEM_KEY_MAX and the limit of the caller's arena. */
#define IDEM_EXPR_LEN_MAX 16384     /* bytes of an expression */
#define IDEM_EXPR_DEPTH_MAX 128     /* nested parentheses, arguments, signs... */
#define IDEM_EXPR_STEPS_MAX 1000000 /* of an evaluation: nodes, items, 64 bytes of text */

#define IDEM_EXPR_TEMPLATE 1 /* text that contains #{...} */
#define IDEM_EXPR_KEY 2      /* for keys: must read a variable, and refuses a name without # */

struct idem_expr;

/* The text is copied, and need not be NUL-terminated. The caller owns *ret: idem_expr_free(). It is
   immutable, so threads may share it. */
int idem_expr_compile(const char *text, size_t len, unsigned flags, struct idem_expr **ret,
                      struct idem_error *err);
void idem_expr_free(struct idem_expr *expr);

/*
 * The same for a key option, which has no flag for its kind: text with #{ in it is a template, all
 * other text an expression. Text that could be both is refused, because the two readings give
 * different keys.
 */
int idem_expr_compile_key(const char *text, size_t len, struct idem_expr **ret,
                          struct idem_error *err);

/* The first variable that is not in `names` (which end with NULL), and its length; NULL if the
   expression reads only variables in `names`. Borrowed. */
const char *idem_expr_stranger(const struct idem_expr *expr, const char *const *names, size_t *ret);

/* The member number `i`, from 0, of a variable that the expression reads by its name
   (#headers['X-User'], #headers.host), and the name's length; NULL after the last. Computed names
   are not included. Borrowed. */
const char *idem_expr_member(const struct idem_expr *expr, const char *variable, size_t i,
                             size_t *ret);

/* The source text; borrowed. */
const char *idem_expr_text(const struct idem_expr *expr);

/*
 * The value as Java computes it. `vars` is an object, whose members are the variables. The result
 * may point into the expression, the document and the arena.
 */
int idem_expr_eval(const struct idem_expr *expr, const struct idem_json *vars,
                   struct idem_arena *arena, struct idem_value *ret, struct idem_error *err);

/*
 * The key of an expression that was compiled with IDEM_EXPR_KEY: 1 to IDEM_KEY_MAX bytes, borrowed
 * like a value. The rules are stricter (expr.c).
 */
int idem_expr_key(const struct idem_expr *expr, const struct idem_json *vars,
                  struct idem_arena *arena, const char **ret, size_t *ret_len,
                  struct idem_error *err);

/*
 * The value to compare, of an expression that was compiled with IDEM_EXPR_KEY. The rules are those
 * of keys, except that an object is allowed, and numbers are compared by value. Borrowed like a
 * value.
 */
int idem_expr_select(const struct idem_expr *expr, const struct idem_json *vars,
                     struct idem_arena *arena, struct idem_json *ret, struct idem_error *err);

/* String.valueOf(value), borrowed from value or arena; not NUL-terminated. */
int idem_value_print(const struct idem_value *value, struct idem_arena *arena, const char **ret,
                     size_t *ret_len, struct idem_error *err);
/* The name of Java's type without its package: "String", "Integer", "List"..., or "null". */
const char *idem_value_type_name(const struct idem_value *value);

#endif
