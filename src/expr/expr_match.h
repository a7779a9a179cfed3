/*
 * Patterns of `matches`: the subset of java.util.regex that certainly means the same here, matched
 * against the whole text in bounded work.
 *
 *     literals  .  [a-z]  [^a-z]  \d \w \s \D \W \S  \t \n \r \f  \. and similar escapes
 *     ( )  (?: )  |  * + ? {n} {n,} {n,m}, each also lazy, with a ? after it
 *     ^ at the beginning and $ at the end, where they have no effect
 */
#ifndef IDEM_EXPR_EXPR_MATCH_H
#define IDEM_EXPR_EXPR_MATCH_H

#include "expr/expr_value.h"

enum idem_pattern_kind {
    IDEM_PATTERN_CHAR,
    IDEM_PATTERN_ANY,
    IDEM_PATTERN_SET,
    IDEM_PATTERN_SPLIT, /* tries a first, then b */
    IDEM_PATTERN_JUMP,  /* goes to a */
    IDEM_PATTERN_END,
};

struct idem_pattern_op {
    uint8_t kind;
    bool negated; /* SET */
    int32_t a;    /* the character; the index of the first range; a relative target */
    int32_t b;    /* the number of ranges; a relative target */
};

struct idem_pattern_range {
    uint32_t low, high;
};

struct idem_pattern {
    const struct idem_pattern_op *ops;
    const struct idem_pattern_range *ranges;
    bool repeats; /* has a repeated group, for which Java recurses once per repetition */
};

/* Compiles into the arena of `work`. Returns IDEM_TROUBLE_PATTERN_KIND for anything else. */
int idem_pattern_compile(struct idem_work *work, const struct idem_value *text,
                         struct idem_pattern *ret);

/* Sets *ret if the whole text matches. Compiles `pattern` if `compiled` is NULL. */
int idem_match(struct idem_work *work, const struct idem_pattern *compiled,
               const struct idem_value *text, const struct idem_value *pattern, bool *ret);

#endif
