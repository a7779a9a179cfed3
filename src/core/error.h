/*
 * Errors: how a function fills the caller's struct idem_error.
 *
 * A failing function ends with `return idem_error_set(err, IDEM_E_..., "what; where; what to
 * do")`. No text may hold a key, a scope, a password or a result.
 */
#ifndef IDEM_CORE_ERROR_H
#define IDEM_CORE_ERROR_H

#include "idem.h"

/* Fills *err, which may be NULL, and returns code. A text that is too long ends in "...". */
int idem_error_fill(struct idem_error *err, int code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* The same; a macro, so that a reader of the code that is a program sees that what is
   returned is the code, and no success. `code` is evaluated twice. */
#define idem_error_set(err, code, ...) idem_error_is(code, idem_error_fill(err, code, __VA_ARGS__))
static inline int idem_error_is(int code, int filled) {
    (void)filled;
    return code;
}

/* 0, or IDEM_E_INVALID with the names of the public function and of its pointer that is NULL. */
#define idem_need(pointer, err)                                                                    \
    ((pointer) != NULL ? 0                                                                         \
                       : idem_error_set(err, IDEM_E_INVALID, "%s(): %s is NULL, and is required",  \
                                        __func__, #pointer))

/* Copies *from to *to and returns from's code; `to` may be NULL, and may be `from`. */
int idem_error_copy(struct idem_error *to, const struct idem_error *from);

/*
 * Puts bytes from outside between double quotes, fit for an error's text: at most 60 of them,
 * then "...", with '?' for control characters and for what is not UTF-8. Returns buf, whose size
 * is at least IDEM_QUOTE_TEXT.
 */
#define IDEM_QUOTE_TEXT 72
const char *idem_error_quote(const char *bytes, size_t len, char *buf, size_t size);

#endif
