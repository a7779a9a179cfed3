/*
 * Matching by backtracking, as in Java. Gives up after so many steps that Java might give up, too.
 * The branches not yet tried are on a stack in the arena: nothing recurses.
 */
#include "expr/expr_match.h"

#include <string.h>

#include "base/units.h"

#define STEPS_MAX 100000 /* Spring's limit is a million characters read */
#define DEEP_MAX 1000    /* bytes of text; for longer text Java's stack may overflow */

struct branch {
    uint32_t op, pos;
};

struct matcher {
    struct idem_work *work;
    const struct idem_pattern *pattern;
    const char *text;
    size_t len;
    struct branch *branches;
    size_t n, cap;
};

static int matcher_push(struct matcher *m, uint32_t op, uint32_t pos) {
    size_t cap = m->cap == 0 ? 64 : 2 * m->cap;
    struct branch *branches;

    if (m->n == m->cap) {
        branches = idem_work_alloc(m->work, cap * sizeof(*branches));
        if (branches == NULL)
            return idem_work_trouble(m->work, cap * sizeof(*branches));
        if (m->n > 0)
            memcpy(branches, m->branches, m->n * sizeof(*branches));
        m->branches = branches;
        m->cap = cap;
    }
    m->branches[m->n++] = (struct branch){op, pos};
    return 0;
}

static bool match_is_line_end(uint32_t c) {
    return c == '\n' || c == '\r' || c == 0x85 || c == 0x2028 || c == 0x2029;
}

static bool pattern_set_has(const struct idem_pattern *pattern, const struct idem_pattern_op *op,
                            uint32_t c) {
    const struct idem_pattern_range *range = pattern->ranges + op->a;

    for (int32_t i = 0; i < op->b; i++)
        if (c >= range[i].low && c <= range[i].high)
            return !op->negated;
    return op->negated;
}

static bool pattern_op_takes(const struct idem_pattern *pattern, const struct idem_pattern_op *op,
                             uint32_t c) {
    switch (op->kind) {
    case IDEM_PATTERN_CHAR:
        return (uint32_t)op->a == c;
    case IDEM_PATTERN_ANY:
        return !match_is_line_end(c);
    default:
        return pattern_set_has(pattern, op, c);
    }
}

/* Follows one branch until it ends. Sets *ret if the text ends there, too. */
static int matcher_follow(struct matcher *m, struct branch branch, size_t *steps, bool *ret) {
    const struct idem_pattern_op *op;
    uint32_t c;
    size_t n;

    *ret = false;
    for (;;) {
        op = &m->pattern->ops[branch.op];
        if (++*steps > STEPS_MAX || !idem_work_spend(m->work, 1))
            return IDEM_TROUBLE_PATTERN_WORK;
        switch (op->kind) {
        case IDEM_PATTERN_END:
            *ret = branch.pos == m->len;
            return 0;
        case IDEM_PATTERN_SPLIT:
            IDEM_TRY(matcher_push(m, (uint32_t)((int32_t)branch.op + op->b), branch.pos));
            branch.op = (uint32_t)((int32_t)branch.op + op->a);
            break;
        case IDEM_PATTERN_JUMP:
            branch.op = (uint32_t)((int32_t)branch.op + op->a);
            break;
        default:
            n = idem_utf8_next(m->text + branch.pos, m->len - branch.pos, &c);
            if (n == 0 || !pattern_op_takes(m->pattern, op, c))
                return 0;
            branch.pos += (uint32_t)n;
            branch.op++;
        }
    }
}

static bool pattern_too_deep(const struct idem_pattern *pattern, const struct idem_value *text) {
    if (text->n <= DEEP_MAX)
        return false;
    if (pattern->repeats)
        return true;
    for (uint32_t i = 0; i < text->n; i++)
        if ((unsigned char)text->at.text[i] >= 0xf0)
            return true;
    return false;
}

int idem_match(struct idem_work *work, const struct idem_pattern *compiled,
               const struct idem_value *text, const struct idem_value *pattern, bool *ret) {
    struct idem_pattern own;
    struct matcher m = {.work = work, .text = text->at.text, .len = text->n};
    size_t steps = 0;

    if (compiled == NULL) {
        IDEM_TRY(idem_pattern_compile(work, pattern, &own));
        compiled = &own;
    }
    if (!idem_work_spend(work, text->n / 64))
        return IDEM_TROUBLE_STEPS;
    if (pattern_too_deep(compiled, text))
        return IDEM_TROUBLE_PATTERN_WORK;
    m.pattern = compiled;
    IDEM_TRY(matcher_push(&m, 0, 0));
    for (*ret = false; m.n > 0 && !*ret;)
        IDEM_TRY(matcher_follow(&m, m.branches[--m.n], &steps, ret));
    return 0;
}
