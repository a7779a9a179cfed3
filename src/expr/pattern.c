/*
 * Patterns, from their text to a small program. A part of a pattern is a run of
 * operations whose jumps are relative and stay within it, so that it can be
 * moved, and copied for {n,m}. What is not surely the same in Java is refused.
 */
#include <string.h>

#include "core/units.h"
#include "expr/match.h"

#define OPS_MAX 4096
#define RANGES_MAX 1024
#define GROUPS_MAX 32 /* one in another */
#define TIMES_MAX 1000
#define UNBOUNDED (-1)
#define LAST_CHAR 0x10ffff

struct compiler {
    struct idem_work *work;
    const char *text;
    size_t len, pos;
    struct idem_pattern_op *ops;
    size_t n, cap;
    struct idem_pattern_range *ranges;
    size_t range_n, range_cap;
    int depth;
    bool repeats;
};

/* A part of the program, from `start` to where it ends when it is made. */
struct part {
    size_t start;
    bool nullable; /* may match nothing */
    bool group;
};

static int peek(const struct compiler *c) {
    return c->pos < c->len ? (unsigned char)c->text[c->pos] : -1;
}

static bool accept(struct compiler *c, char want) {
    if (peek(c) != (unsigned char)want)
        return false;
    c->pos++;
    return true;
}

/* The program. */

/* Room for n; NULL with trouble. */
static void *grow(struct idem_work *work, void *at, size_t *cap, size_t n, size_t size) {
    size_t want = *cap == 0 ? 32 : 2 * *cap;
    void *more;

    if (n <= *cap)
        return at;
    if (want < n)
        want = n;
    more = idem_work_alloc(work, want * size);
    if (more != NULL && *cap > 0)
        memcpy(more, at, *cap * size);
    if (more != NULL)
        *cap = want;
    return more;
}

static int ops_reserve(struct compiler *c, size_t more) {
    struct idem_pattern_op *ops;

    if (c->n + more > OPS_MAX)
        return IDEM_TROUBLE_PATTERN_KIND;
    if (!idem_work_spend(c->work, 1 + more / 4))
        return IDEM_TROUBLE_STEPS;
    ops = grow(c->work, c->ops, &c->cap, c->n + more, sizeof(*ops));
    if (ops == NULL)
        return idem_work_trouble(c->work, OPS_MAX * sizeof(*ops));
    c->ops = ops;
    return 0;
}

static int op_put(struct compiler *c, struct idem_pattern_op op) {
    IDEM_TRY(ops_reserve(c, 1));
    c->ops[c->n++] = op;
    return 0;
}

static int op_insert(struct compiler *c, size_t at, struct idem_pattern_op op) {
    IDEM_TRY(ops_reserve(c, 1));
    if (!idem_work_spend(c->work, (c->n - at) / 4))
        return IDEM_TROUBLE_STEPS;
    memmove(c->ops + at + 1, c->ops + at, (c->n - at) * sizeof(op));
    c->ops[at] = op;
    c->n++;
    return 0;
}

static int ops_copy(struct compiler *c, size_t from, size_t count) {
    if (count == 0)
        return 0;
    IDEM_TRY(ops_reserve(c, count));
    memcpy(c->ops + c->n, c->ops + from, count * sizeof(c->ops[0]));
    c->n += count;
    return 0;
}

static struct idem_pattern_op split(size_t preferred, size_t other, bool lazy) {
    return (struct idem_pattern_op){.kind = IDEM_PATTERN_SPLIT,
                                    .a = (int32_t)(lazy ? other : preferred),
                                    .b = (int32_t)(lazy ? preferred : other)};
}

/* Sets. */

static int range_put(struct compiler *c, uint32_t low, uint32_t high) {
    struct idem_pattern_range *ranges;

    if (c->range_n == RANGES_MAX)
        return IDEM_TROUBLE_PATTERN_KIND;
    if (!idem_work_spend(c->work, 1))
        return IDEM_TROUBLE_STEPS;
    ranges = grow(c->work, c->ranges, &c->range_cap, c->range_n + 1, sizeof(*ranges));
    if (ranges == NULL)
        return idem_work_trouble(c->work, RANGES_MAX * sizeof(*ranges));
    c->ranges = ranges;
    c->ranges[c->range_n++] = (struct idem_pattern_range){low, high};
    return 0;
}

static const struct named {
    char name, other; /* and what has all the rest */
    unsigned char ranges[4][2];
} named_sets[] = {
    {'d', 'D', {{'0', '9'}}},
    {'s', 'S', {{'\t', '\r'}, {' ', ' '}}},
    {'w', 'W', {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}}},
};

static const struct named *named_find(int c) {
    for (size_t i = 0; i < sizeof(named_sets) / sizeof(named_sets[0]); i++)
        if (named_sets[i].name == c || named_sets[i].other == c)
            return &named_sets[i];
    return NULL;
}

/* The ranges are in order, so what is between them is the rest. */
static int named_put(struct compiler *c, const struct named *set, bool rest) {
    uint32_t next = 0;

    for (int i = 0; i < 4 && set->ranges[i][0] != 0; i++) {
        if (rest)
            IDEM_TRY(range_put(c, next, set->ranges[i][0] - 1u));
        else
            IDEM_TRY(range_put(c, set->ranges[i][0], set->ranges[i][1]));
        next = set->ranges[i][1] + 1u;
    }
    return rest ? range_put(c, next, LAST_CHAR) : 0;
}

static bool is_alphanumeric(int c) {
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
}

/* After a backslash: a character that stands for itself or for a control character. */
static int escaped_char(struct compiler *c, uint32_t *ret) {
    static const char names[] = "tnrf", chars[] = "\t\n\r\f";
    int next = peek(c);
    const char *name = next > 0 ? strchr(names, next) : NULL;

    if (next < 0 || next >= 0x80 || (name == NULL && is_alphanumeric(next)))
        return IDEM_TROUBLE_PATTERN_KIND;
    c->pos++;
    *ret = name == NULL ? (uint32_t)next : (unsigned char)chars[name - names];
    return 0;
}

static int plain_char(struct compiler *c, uint32_t *ret) {
    size_t n = idem_utf8_next(c->text + c->pos, c->len - c->pos, ret);

    c->pos += n;
    return n == 0 ? IDEM_TROUBLE_PATTERN_KIND : 0;
}

/* One character of a set, or a named set of them, for which *ret_set is set. */
static int set_char(struct compiler *c, uint32_t *ret, const struct named **ret_set) {
    *ret_set = NULL;
    if (accept(c, '\\')) {
        *ret_set = named_find(peek(c));
        if (*ret_set == NULL)
            return escaped_char(c, ret);
        *ret = (uint32_t)peek(c);
        c->pos++;
        return 0;
    }
    if (peek(c) < 0 || peek(c) == '[' || peek(c) == ']' ||
        (peek(c) == '&' && c->pos + 1 < c->len && c->text[c->pos + 1] == '&'))
        return IDEM_TROUBLE_PATTERN_KIND;
    return plain_char(c, ret);
}

/* An item of a set. A hyphen of its own stands first or last only. */
static int set_item(struct compiler *c, bool first) {
    const struct named *set;
    uint32_t low = 0, high;
    bool hyphen = peek(c) == '-';

    IDEM_TRY(set_char(c, &low, &set));
    if (set != NULL)
        return named_put(c, set, low == (unsigned char)set->other);
    if (hyphen && !first && peek(c) != ']')
        return IDEM_TROUBLE_PATTERN_KIND;
    high = low;
    if (peek(c) == '-' && c->pos + 1 < c->len && c->text[c->pos + 1] != ']') {
        c->pos++;
        IDEM_TRY(set_char(c, &high, &set));
        if (hyphen || set != NULL || high < low)
            return IDEM_TROUBLE_PATTERN_KIND;
    }
    return range_put(c, low, high);
}

static int set_put(struct compiler *c, size_t from, bool negated) {
    return op_put(c, (struct idem_pattern_op){.kind = IDEM_PATTERN_SET,
                                              .negated = negated,
                                              .a = (int32_t)from,
                                              .b = (int32_t)(c->range_n - from)});
}

static int set(struct compiler *c) {
    size_t from = c->range_n;
    bool negated = accept(c, '^'), first = true;

    do {
        IDEM_TRY(set_item(c, first));
        first = false;
    } while (!accept(c, ']'));
    return set_put(c, from, negated);
}

/* Atoms. */

static int alternatives(struct compiler *c, struct part *ret);

static int group(struct compiler *c, struct part *ret) {
    if (accept(c, '?') && !accept(c, ':'))
        return IDEM_TROUBLE_PATTERN_KIND;
    if (++c->depth > GROUPS_MAX)
        return IDEM_TROUBLE_PATTERN_KIND;
    IDEM_TRY(alternatives(c, ret));
    c->depth--;
    ret->group = true;
    return accept(c, ')') ? 0 : IDEM_TROUBLE_PATTERN_KIND;
}

static int char_put(struct compiler *c, uint32_t code) {
    return op_put(c, (struct idem_pattern_op){.kind = IDEM_PATTERN_CHAR, .a = (int32_t)code});
}

static int escaped(struct compiler *c) {
    const struct named *found = named_find(peek(c));
    size_t from = c->range_n;
    uint32_t code = 0;

    if (found == NULL) {
        IDEM_TRY(escaped_char(c, &code));
        return char_put(c, code);
    }
    IDEM_TRY(named_put(c, found, peek(c) == found->other));
    c->pos++;
    return set_put(c, from, false);
}

static int atom(struct compiler *c, struct part *ret) {
    uint32_t code = 0;

    *ret = (struct part){.start = c->n};
    if (accept(c, '('))
        return group(c, ret);
    if (accept(c, '['))
        return set(c);
    if (accept(c, '\\'))
        return escaped(c);
    if (accept(c, '.'))
        return op_put(c, (struct idem_pattern_op){.kind = IDEM_PATTERN_ANY});
    if (peek(c) <= 0 || strchr("^$*+?{})]", peek(c)) != NULL)
        return IDEM_TROUBLE_PATTERN_KIND;
    IDEM_TRY(plain_char(c, &code));
    return char_put(c, code);
}

/* Quantifiers. */

static int times_number(struct compiler *c, int *ret) {
    int n = 0;

    if (peek(c) < '0' || peek(c) > '9')
        return IDEM_TROUBLE_PATTERN_KIND;
    while (peek(c) >= '0' && peek(c) <= '9') {
        n = n * 10 + (c->text[c->pos++] - '0');
        if (n > TIMES_MAX)
            return IDEM_TROUBLE_PATTERN_KIND;
    }
    *ret = n;
    return 0;
}

static int times(struct compiler *c, int *least, int *most) {
    IDEM_TRY(times_number(c, least));
    *most = *least;
    if (accept(c, ',')) {
        *most = UNBOUNDED;
        if (peek(c) != '}')
            IDEM_TRY(times_number(c, most));
    }
    if (!accept(c, '}') || (*most != UNBOUNDED && *most < *least))
        return IDEM_TROUBLE_PATTERN_KIND;
    return 0;
}

/* The part, as often as that: copies, of which those beyond `least` may be left out together. */
static int repeat(struct compiler *c, struct part *part, int least, int most, bool lazy) {
    size_t len = c->n - part->start, from = part->start;
    int copies = most == UNBOUNDED ? least + 1 : most;

    if (most == UNBOUNDED && part->nullable)
        return IDEM_TROUBLE_PATTERN_KIND; /* where Java stops turning is its own affair */
    c->repeats |= part->group && most != 1;
    part->nullable |= least == 0;
    if (copies == 0) {
        c->n = from;
        return 0;
    }
    for (int i = 1; i < copies; i++)
        IDEM_TRY(ops_copy(c, from, len));
    for (int i = copies - 1; i >= least; i--) {
        size_t at = from + (size_t)i * len, rest = c->n - at;

        IDEM_TRY(op_insert(c, at, split(1, rest + 1 + (most == UNBOUNDED), lazy)));
        if (most == UNBOUNDED)
            IDEM_TRY(op_put(
                c, (struct idem_pattern_op){.kind = IDEM_PATTERN_JUMP, .a = -(int32_t)(rest + 1)}));
    }
    return 0;
}

/* *found says whether there is one. */
static int quantifier(struct compiler *c, int *least, int *most, bool *found) {
    int first = peek(c);

    *found = first == '*' || first == '+' || first == '?' || first == '{';
    if (!*found)
        return 0;
    c->pos++;
    if (first == '{')
        return times(c, least, most);
    *least = first == '+';
    *most = first == '?' ? 1 : UNBOUNDED;
    return 0;
}

static int quantified(struct compiler *c, struct part *ret) {
    int least, most;
    bool found;

    IDEM_TRY(atom(c, ret));
    IDEM_TRY(quantifier(c, &least, &most, &found));
    return found ? repeat(c, ret, least, most, accept(c, '?')) : 0;
}

static bool sequence_ends(const struct compiler *c) {
    return peek(c) < 0 || peek(c) == '|' || (peek(c) == ')' && c->depth > 0);
}

static bool is_last_anchor(const struct compiler *c) {
    return c->depth == 0 && peek(c) == '$' && (c->pos + 1 == c->len || c->text[c->pos + 1] == '|');
}

/* The whole text is matched, so that anchors at its ends add nothing. */
static int sequence(struct compiler *c, struct part *ret) {
    struct part one;

    *ret = (struct part){.start = c->n, .nullable = true};
    if (c->depth == 0)
        accept(c, '^');
    while (!sequence_ends(c) && !is_last_anchor(c)) {
        IDEM_TRY(quantified(c, &one));
        ret->nullable &= one.nullable;
    }
    if (is_last_anchor(c))
        c->pos++;
    return 0;
}

/* Each but the last is followed by a jump to the end; the jumps not yet told where that is are
   linked by their b. */
static int alternatives(struct compiler *c, struct part *ret) {
    size_t first = c->n;
    int32_t jumps = -1, next;
    bool nullable = false;
    struct part one;

    for (;;) {
        IDEM_TRY(sequence(c, &one));
        nullable |= one.nullable;
        if (!accept(c, '|'))
            break;
        IDEM_TRY(op_insert(c, one.start, split(1, c->n - one.start + 2, false)));
        IDEM_TRY(op_put(c, (struct idem_pattern_op){.kind = IDEM_PATTERN_JUMP, .b = jumps}));
        jumps = (int32_t)c->n - 1;
    }
    for (; jumps >= 0; jumps = next) {
        next = c->ops[jumps].b;
        c->ops[jumps].a = (int32_t)c->n - jumps;
    }
    *ret = (struct part){.start = first, .nullable = nullable};
    return 0;
}

int idem_pattern_compile(struct idem_work *work, const struct idem_value *text,
                         struct idem_pattern *ret) {
    struct compiler c = {.work = work, .text = text->at.text, .len = text->n};
    struct part all;

    IDEM_TRY(alternatives(&c, &all));
    if (c.pos < c.len)
        return IDEM_TROUBLE_PATTERN_KIND;
    IDEM_TRY(op_put(&c, (struct idem_pattern_op){.kind = IDEM_PATTERN_END}));
    *ret = (struct idem_pattern){c.ops, c.ranges, c.repeats};
    return 0;
}
