/*
 * Text that grows in the arena of an evaluation, and the three ways to append a value to it.
 */
#ifndef IDEM_EXPR_EXPR_PRINT_H
#define IDEM_EXPR_EXPR_PRINT_H

#include "expr/expr_value.h"

#define IDEM_EXPR_TEXT_MAX ((size_t)1 << 20) /* bytes of any text */

struct idem_text {
    struct idem_work *work;
    char *at;
    size_t len, cap;
    bool ascii;
};

void idem_text_init(struct idem_text *text, struct idem_work *work);
/* The text as a value; ends the use of the builder. */
struct idem_value idem_text_value(const struct idem_text *text);

int idem_text_put(struct idem_text *text, const char *bytes, size_t len, bool ascii);

/* As String.valueOf() writes it: [1, 2], {a=1}, null. */
int idem_text_java(struct idem_text *text, const struct idem_value *v);
/* As Spring converts it to a String: items of lists joined by commas; no objects. */
int idem_text_convert(struct idem_text *text, const struct idem_value *v);
/* As part of a key: no null, no objects, and a different text for every list. */
int idem_text_key(struct idem_text *text, const struct idem_value *v);

#endif
