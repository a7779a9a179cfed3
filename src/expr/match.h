/*
 * Patterns of `matches`: the part of java.util.regex that is certain to mean
 * here what it means there, matched against the whole text in bounded work.
 *
 *     literals  .  [a-z]  [^a-z]  \d \w \s \D \W \S  \t \n \r \f  \. and the like
 *     ( )  (?: )  |  * + ? {n} {n,} {n,m}, each with a ? after it or not
 *     ^ at the beginning and $ at the end, where they change nothing
 */
#ifndef IDEM_EXPR_MATCH_H
#define IDEM_EXPR_MATCH_H

#include "expr/value.h"

enum idem_pattern_kind {
    IDEM_PATTERN_CHAR,
    IDEM_PATTERN_ANY,
    IDEM_PATTERN_SET,
    IDEM_PATTERN_SPLIT, /* first to a, then to b */
    IDEM_PATTERN_JUMP,  /* to a */
    IDEM_PATTERN_END,
};

struct idem_pattern_op {
    uint8_t kind;
    bool negated; /* SET */
    int32_t a;    /* the character; the first range; how far to go from here */
    int32_t b;    /* how many ranges; how far to go from here */
};

struct idem_pattern_range {
    uint32_t low, high;
};

struct idem_pattern {
    const struct idem_pattern_op *ops;
    const struct idem_pattern_range *ranges;
    bool repeats; /* has a group that is repeated: Java recurses for each turn */
};

/* Into the arena of `work`. IDEM_TROUBLE_PATTERN_KIND for all that is not as above. */
int idem_pattern_compile(struct idem_work *work, const struct idem_value *text,
                         struct idem_pattern *ret);

/* Whether the whole text matches; the pattern is compiled unless it is given compiled. */
int idem_match(struct idem_work *work, const struct idem_pattern *compiled,
               const struct idem_value *text, const struct idem_value *pattern, bool *ret);

#endif
