/*
 * What can go wrong in an evaluation: one word each, and its text in report.c.
 * The place in the expression is added where it is known. No text has a value
 * of the document in it: it may be secret.
 */
#ifndef IDEM_EXPR_TROUBLE_H
#define IDEM_EXPR_TROUBLE_H

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
    /* As in Java. */
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
    /* Refused, because what Java would answer is not certain. */
    IDEM_TROUBLE_SURROGATE,
    IDEM_TROUBLE_CASE,
    IDEM_TROUBLE_LOOSE,
    IDEM_TROUBLE_BIG,
    IDEM_TROUBLE_POWER,
    IDEM_TROUBLE_ENTRY,
    IDEM_TROUBLE_PATTERN_KIND,
    IDEM_TROUBLE_PATTERN_WORK,
    /* Of keys. */
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

/* Passes trouble on. */
#define IDEM_TRY(call)                                                                             \
    do {                                                                                           \
        int trouble_ = (call);                                                                     \
        if (trouble_ != 0)                                                                         \
            return trouble_;                                                                       \
    } while (0)

const char *idem_trouble_text(int trouble);
/* The error code that it is reported with. */
int idem_trouble_code(int trouble);

/*
 * Fills *err with "column N: what" and under it the expression, or the part of
 * it around byte `pos`, with a caret. Returns code.
 */
int idem_expr_report(struct idem_error *err, int code, const char *text, size_t len, size_t pos,
                     const char *what);

#endif
