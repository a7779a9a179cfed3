/*
 * The errors of an evaluation: one constant each, with its text in expr_report.c. The caller that
 * knows the place in the expression adds it. No text contains a value of the document, because
 * values may be secret.
 */
#ifndef IDEM_EXPR_EXPR_ERROR_H
#define IDEM_EXPR_EXPR_ERROR_H

#include <stddef.h>

#include "idem.h"

enum idem_trouble {
    IDEM_FINE,
    /* Limits. */
    IDEM_TROUBLE_MEMORY,
    IDEM_TROUBLE_SPACE,
    IDEM_TROUBLE_STEPS,
    IDEM_TROUBLE_SIZE,
    IDEM_TROUBLE_DEPTH,
    /* Errors in Java, too. */
    IDEM_TROUBLE_OF_NULL,
    IDEM_TROUBLE_BARE,
    IDEM_TROUBLE_NO_MEMBER,
    IDEM_TROUBLE_NOT_OBJECT,
    IDEM_TROUBLE_CALL_NULL,
    IDEM_TROUBLE_NO_METHOD,
    IDEM_TROUBLE_ARGUMENT,
    IDEM_TROUBLE_RANGE,
    IDEM_TROUBLE_NOT_INDEX,
    IDEM_TROUBLE_NOT_INDEXED,
    IDEM_TROUBLE_INDEX_NULL,
    IDEM_TROUBLE_NOT_LIST,
    IDEM_TROUBLE_CRITERION,
    IDEM_TROUBLE_OPERANDS,
    IDEM_TROUBLE_ORDER,
    IDEM_TROUBLE_TWO_ITEMS,
    IDEM_TROUBLE_ZERO,
    IDEM_TROUBLE_TRUTH,
    IDEM_TROUBLE_TEXT,
    IDEM_TROUBLE_PATTERN,
    /* Refused, because Java's result is not certain. */
    IDEM_TROUBLE_SURROGATE,
    IDEM_TROUBLE_CASE,
    IDEM_TROUBLE_LOOSE,
    IDEM_TROUBLE_BIG,
    IDEM_TROUBLE_POWER,
    IDEM_TROUBLE_ENTRY,
    IDEM_TROUBLE_PATTERN_KIND,
    IDEM_TROUBLE_PATTERN_WORK,
    /* Only for keys. */
    IDEM_TROUBLE_KEY_NULL,
    IDEM_TROUBLE_KEY_OBJECT,
    IDEM_TROUBLE_KEY_LIST,
    IDEM_TROUBLE_KEY_EMPTY,
    IDEM_TROUBLE_KEY_LONG,
    IDEM_TROUBLE_KEY_FINITE,
    IDEM_TROUBLE_KEY_DIGITS,
    IDEM_TROUBLE_KEY_OVERFLOW,
    IDEM_TROUBLE_KEY_EXACT,
    IDEM_TROUBLE_KEY_PRINTED,
    IDEM_TROUBLE_KEY_ORDER,
    IDEM_TROUBLE_SELECT_MAP,
    IDEM_TROUBLE_COUNT,
};

/* Returns the trouble of a call to the caller. */
#define IDEM_TRY(call)                                                                             \
    do {                                                                                           \
        int trouble_ = (call);                                                                     \
        if (trouble_ != 0)                                                                         \
            return trouble_;                                                                       \
    } while (0)

const char *idem_trouble_text(int trouble);
/* The code of struct idem_error for this trouble. */
int idem_trouble_code(int trouble);

/*
 * Fills *err with "column N: what", and under it the part of the expression around byte `pos`, with
 * a caret. Returns `code`.
 */
int idem_expr_report(struct idem_error *err, int code, const char *text, size_t len, size_t pos,
                     const char *what);

#endif
