/*
 * Errors: how a function fills the caller's struct idem_error.
 *
 * A failing function ends with `return idem_error_set(err, IDEM_E_..., "what is wrong; where; what
 * to do")`. No text may contain a key, a scope, a password or a result.
 */
#ifndef IDEM_BASE_ERROR_H
#define IDEM_BASE_ERROR_H

#include "idem.h"

/* Fills *err, which may be NULL, and returns code. A text that is too long ends in "...".
   Characters that are not visible (base/visible.h) become '?', except line breaks. */
int idem_error_fill(struct idem_error *err, int code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Fills *err as idem_error_fill() does. It is a macro, so that static analysis sees that the
   returned value is the code and never success. `code` is evaluated twice. */
#define idem_error_set(err, code, ...) idem_error_is(code, idem_error_fill(err, code, __VA_ARGS__))
static inline int idem_error_is(int code, int filled) {
    (void)filled;
    return code;
}

/* 0, or IDEM_E_INVALID with the name of the public function and of its pointer argument that is
   NULL. */
#define idem_need(pointer, err)                                                                    \
    ((pointer) != NULL ? 0                                                                         \
                       : idem_error_set(err, IDEM_E_INVALID, "%s(): %s is NULL, and is required",  \
                                        __func__, #pointer))

/* Copies *from to *to and returns from's code. `to` may be NULL, and may be `from`. */
int idem_error_copy(struct idem_error *to, const struct idem_error *from);

/*
 * Quotes bytes from outside for an error's text: at most 60 of them between double quotes, then
 * "...", with '?' for each character that is not visible (base/visible.h) or not UTF-8. Returns
 * buf, whose size is at least IDEM_QUOTE_TEXT.
 */
#define IDEM_QUOTE_TEXT 72
const char *idem_error_quote(const char *bytes, size_t len, char *buf, size_t size);

#endif
