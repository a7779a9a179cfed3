/*
 * Compiles a pattern into a small program. Each part of a pattern is a run of operations with
 * relative jumps inside the run, so that it can be moved, and copied for {n,m}. A construct that
 * might mean something else in Java is refused.
 */
#include <string.h>

#include "base/chars.h"
#include "base/units.h"
#include "expr/expr_tree.h"

#define OPS_MAX 4096
#define RANGES_MAX 1024
#define GROUPS_MAX 32 /* nested groups */
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

/* A run of operations, from `start` to the end of the program at the time. */
struct part {
    size_t start;
    bool nullable; /* may match the empty text */
    bool group;
};

static int compiler_peek(const struct compiler *c) {
    return c->pos < c->len ? (unsigned char)c->text[c->pos] : -1;
}

static bool compiler_accept(struct compiler *c, char want) {
    if (compiler_peek(c) != (unsigned char)want)
        return false;
    c->pos++;
    return true;
}

/* The program. */

/* Makes room for n elements; NULL with trouble. */
static void *pattern_grow(struct idem_work *work, void *at, size_t *cap, size_t n, size_t size) {
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

static int compiler_reserve_ops(struct compiler *c, size_t more) {
    struct idem_pattern_op *ops;

    if (c->n + more > OPS_MAX)
        return IDEM_TROUBLE_PATTERN_KIND;
    IDEM_TRY(idem_work_spend(c->work, 1 + more / 4));
    ops = pattern_grow(c->work, c->ops, &c->cap, c->n + more, sizeof(*ops));
    if (ops == NULL)
        return idem_work_trouble(c->work, OPS_MAX * sizeof(*ops));
    c->ops = ops;
    return 0;
}

static int compiler_put_op(struct compiler *c, struct idem_pattern_op op) {
    IDEM_TRY(compiler_reserve_ops(c, 1));
    c->ops[c->n++] = op;
    return 0;
}

static int compiler_insert_op(struct compiler *c, size_t at, struct idem_pattern_op op) {
    IDEM_TRY(compiler_reserve_ops(c, 1));
    IDEM_TRY(idem_work_spend(c->work, (c->n - at) / 4));
    memmove(c->ops + at + 1, c->ops + at, (c->n - at) * sizeof(op));
    c->ops[at] = op;
    c->n++;
    return 0;
}

static int compiler_copy_ops(struct compiler *c, size_t from, size_t count) {
    if (count == 0)
        return 0;
    IDEM_TRY(compiler_reserve_ops(c, count));
    memcpy(c->ops + c->n, c->ops + from, count * sizeof(c->ops[0]));
    c->n += count;
    return 0;
}

static struct idem_pattern_op pattern_split_op(size_t preferred, size_t other, bool lazy) {
    return (struct idem_pattern_op){.kind = IDEM_PATTERN_SPLIT,
                                    .a = (int32_t)(lazy ? other : preferred),
                                    .b = (int32_t)(lazy ? preferred : other)};
}

/* Sets. */

static int compiler_put_range(struct compiler *c, uint32_t low, uint32_t high) {
    struct idem_pattern_range *ranges;

    if (c->range_n == RANGES_MAX)
        return IDEM_TROUBLE_PATTERN_KIND;
    IDEM_TRY(idem_work_spend(c->work, 1));
    ranges = pattern_grow(c->work, c->ranges, &c->range_cap, c->range_n + 1, sizeof(*ranges));
    if (ranges == NULL)
        return idem_work_trouble(c->work, RANGES_MAX * sizeof(*ranges));
    c->ranges = ranges;
    c->ranges[c->range_n++] = (struct idem_pattern_range){low, high};
    return 0;
}

static const struct named_set {
    char name, other; /* the name of its complement */
    unsigned char ranges[4][2];
} named_sets[] = {
    {'d', 'D', {{'0', '9'}}},
    {'s', 'S', {{'\t', '\r'}, {' ', ' '}}},
    {'w', 'W', {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}}},
};

static const struct named_set *pattern_find_named_set(int c) {
    for (size_t i = 0; i < sizeof(named_sets) / sizeof(named_sets[0]); i++)
        if (named_sets[i].name == c || named_sets[i].other == c)
            return &named_sets[i];
    return NULL;
}

/* The ranges are sorted, so the gaps between them are the complement. */
static int compiler_put_named_set(struct compiler *c, const struct named_set *set, bool rest) {
    uint32_t next = 0;

    for (int i = 0; i < 4 && set->ranges[i][0] != 0; i++) {
        if (rest)
            IDEM_TRY(compiler_put_range(c, next, set->ranges[i][0] - 1u));
        else
            IDEM_TRY(compiler_put_range(c, set->ranges[i][0], set->ranges[i][1]));
        next = set->ranges[i][1] + 1u;
    }
    return rest ? compiler_put_range(c, next, LAST_CHAR) : 0;
}

/* After a backslash: a literal or control character. */
static int compiler_escaped_char(struct compiler *c, uint32_t *ret) {
    static const char names[] = "tnrf", chars[] = "\t\n\r\f";
    int next = compiler_peek(c);
    const char *name = next > 0 ? strchr(names, next) : NULL;

    if (next < 0 || next >= 0x80 ||
        (name == NULL && (idem_is_digit((char)next) || idem_is_alpha((char)next))))
        return IDEM_TROUBLE_PATTERN_KIND;
    c->pos++;
    *ret = name == NULL ? (uint32_t)next : (unsigned char)chars[name - names];
    return 0;
}

static int compiler_plain_char(struct compiler *c, uint32_t *ret) {
    size_t n = idem_utf8_next(c->text + c->pos, c->len - c->pos, ret);

    c->pos += n;
    return n == 0 ? IDEM_TROUBLE_PATTERN_KIND : 0;
}

/* One character of a set, or a named set, which is returned in *ret_set. */
static int compiler_set_char(struct compiler *c, uint32_t *ret, const struct named_set **ret_set) {
    *ret_set = NULL;
    if (compiler_accept(c, '\\')) {
        *ret_set = pattern_find_named_set(compiler_peek(c));
        if (*ret_set == NULL)
            return compiler_escaped_char(c, ret);
        *ret = (uint32_t)compiler_peek(c);
        c->pos++;
        return 0;
    }
    if (compiler_peek(c) < 0 || compiler_peek(c) == '[' || compiler_peek(c) == ']' ||
        (compiler_peek(c) == '&' && c->pos + 1 < c->len && c->text[c->pos + 1] == '&'))
        return IDEM_TROUBLE_PATTERN_KIND;
    return compiler_plain_char(c, ret);
}

/* An item of a set. A literal hyphen is allowed only first or last. */
static int compiler_set_item(struct compiler *c, bool first) {
    const struct named_set *set;
    uint32_t low = 0, high;
    bool hyphen = compiler_peek(c) == '-';

    IDEM_TRY(compiler_set_char(c, &low, &set));
    if (set != NULL)
        return compiler_put_named_set(c, set, low == (unsigned char)set->other);
    if (hyphen && !first && compiler_peek(c) != ']')
        return IDEM_TROUBLE_PATTERN_KIND;
    high = low;
    if (compiler_peek(c) == '-' && c->pos + 1 < c->len && c->text[c->pos + 1] != ']') {
        c->pos++;
        IDEM_TRY(compiler_set_char(c, &high, &set));
        if (hyphen || set != NULL || high < low)
            return IDEM_TROUBLE_PATTERN_KIND;
    }
    return compiler_put_range(c, low, high);
}

static int compiler_put_set(struct compiler *c, size_t from, bool negated) {
    return compiler_put_op(c, (struct idem_pattern_op){.kind = IDEM_PATTERN_SET,
                                                       .negated = negated,
                                                       .a = (int32_t)from,
                                                       .b = (int32_t)(c->range_n - from)});
}

static int compiler_set(struct compiler *c) {
    size_t from = c->range_n;
    bool negated = compiler_accept(c, '^'), first = true;

    do {
        IDEM_TRY(compiler_set_item(c, first));
        first = false;
    } while (!compiler_accept(c, ']'));
    return compiler_put_set(c, from, negated);
}

/* Atoms. */

static int compiler_alternatives(struct compiler *c, struct part *ret);

static int compiler_group(struct compiler *c, struct part *ret) {
    if (compiler_accept(c, '?') && !compiler_accept(c, ':'))
        return IDEM_TROUBLE_PATTERN_KIND;
    if (++c->depth > GROUPS_MAX)
        return IDEM_TROUBLE_PATTERN_KIND;
    IDEM_TRY(compiler_alternatives(c, ret));
    c->depth--;
    ret->group = true;
    return compiler_accept(c, ')') ? 0 : IDEM_TROUBLE_PATTERN_KIND;
}

static int compiler_put_char(struct compiler *c, uint32_t code) {
    return compiler_put_op(c,
                           (struct idem_pattern_op){.kind = IDEM_PATTERN_CHAR, .a = (int32_t)code});
}

static int compiler_escape(struct compiler *c) {
    const struct named_set *found = pattern_find_named_set(compiler_peek(c));
    size_t from = c->range_n;
    uint32_t code = 0;

    if (found == NULL) {
        IDEM_TRY(compiler_escaped_char(c, &code));
        return compiler_put_char(c, code);
    }
    IDEM_TRY(compiler_put_named_set(c, found, compiler_peek(c) == found->other));
    c->pos++;
    return compiler_put_set(c, from, false);
}

static int compiler_atom(struct compiler *c, struct part *ret) {
    uint32_t code = 0;

    *ret = (struct part){.start = c->n};
    if (compiler_accept(c, '('))
        return compiler_group(c, ret);
    if (compiler_accept(c, '['))
        return compiler_set(c);
    if (compiler_accept(c, '\\'))
        return compiler_escape(c);
    if (compiler_accept(c, '.'))
        return compiler_put_op(c, (struct idem_pattern_op){.kind = IDEM_PATTERN_ANY});
    if (compiler_peek(c) <= 0 || strchr("^$*+?{})]", compiler_peek(c)) != NULL)
        return IDEM_TROUBLE_PATTERN_KIND;
    IDEM_TRY(compiler_plain_char(c, &code));
    return compiler_put_char(c, code);
}

/* Quantifiers. */

static int compiler_times_number(struct compiler *c, int *ret) {
    int n = 0;

    if (compiler_peek(c) < '0' || compiler_peek(c) > '9')
        return IDEM_TROUBLE_PATTERN_KIND;
    while (compiler_peek(c) >= '0' && compiler_peek(c) <= '9') {
        n = n * 10 + (c->text[c->pos++] - '0');
        if (n > TIMES_MAX)
            return IDEM_TROUBLE_PATTERN_KIND;
    }
    *ret = n;
    return 0;
}

static int compiler_times(struct compiler *c, int *least, int *most) {
    IDEM_TRY(compiler_times_number(c, least));
    *most = *least;
    if (compiler_accept(c, ',')) {
        *most = UNBOUNDED;
        if (compiler_peek(c) != '}')
            IDEM_TRY(compiler_times_number(c, most));
    }
    if (!compiler_accept(c, '}') || (*most != UNBOUNDED && *most < *least))
        return IDEM_TROUBLE_PATTERN_KIND;
    return 0;
}

/* Repeats the part: makes copies. Those beyond `least` are optional; if one is skipped, so are all
   after it. */
static int compiler_repeat(struct compiler *c, struct part *part, int least, int most, bool lazy) {
    size_t len = c->n - part->start, from = part->start;
    int copies = most == UNBOUNDED ? least + 1 : most;

    if (most == UNBOUNDED && part->nullable)
        return IDEM_TROUBLE_PATTERN_KIND; /* Java's end of such a loop is not certain */
    c->repeats |= part->group && most != 1;
    part->nullable |= least == 0;
    if (copies == 0) {
        c->n = from;
        return 0;
    }
    for (int i = 1; i < copies; i++)
        IDEM_TRY(compiler_copy_ops(c, from, len));
    for (int i = copies - 1; i >= least; i--) {
        size_t at = from + (size_t)i * len, rest = c->n - at;

        IDEM_TRY(
            compiler_insert_op(c, at, pattern_split_op(1, rest + 1 + (most == UNBOUNDED), lazy)));
        if (most == UNBOUNDED)
            IDEM_TRY(compiler_put_op(
                c, (struct idem_pattern_op){.kind = IDEM_PATTERN_JUMP, .a = -(int32_t)(rest + 1)}));
    }
    return 0;
}

/* Sets *found if a quantifier follows. */
static int compiler_quantifier(struct compiler *c, int *least, int *most, bool *found) {
    int first = compiler_peek(c);

    *found = first == '*' || first == '+' || first == '?' || first == '{';
    if (!*found)
        return 0;
    c->pos++;
    if (first == '{')
        return compiler_times(c, least, most);
    *least = first == '+';
    *most = first == '?' ? 1 : UNBOUNDED;
    return 0;
}

static int compiler_quantified(struct compiler *c, struct part *ret) {
    int least, most;
    bool found;

    IDEM_TRY(compiler_atom(c, ret));
    IDEM_TRY(compiler_quantifier(c, &least, &most, &found));
    return found ? compiler_repeat(c, ret, least, most, compiler_accept(c, '?')) : 0;
}

static bool compiler_sequence_ends(const struct compiler *c) {
    return compiler_peek(c) < 0 || compiler_peek(c) == '|' ||
           (compiler_peek(c) == ')' && c->depth > 0);
}

static bool compiler_at_last_anchor(const struct compiler *c) {
    return c->depth == 0 && compiler_peek(c) == '$' &&
           (c->pos + 1 == c->len || c->text[c->pos + 1] == '|');
}

/* The whole text is matched, so that anchors at its ends have no effect. */
static int compiler_sequence(struct compiler *c, struct part *ret) {
    struct part one;

    *ret = (struct part){.start = c->n, .nullable = true};
    if (c->depth == 0)
        compiler_accept(c, '^');
    while (!compiler_sequence_ends(c) && !compiler_at_last_anchor(c)) {
        IDEM_TRY(compiler_quantified(c, &one));
        ret->nullable &= one.nullable;
    }
    if (compiler_at_last_anchor(c))
        c->pos++;
    return 0;
}

/* A jump to the end follows each alternative but the last. Until the end is known, field b links
   the jumps to a list. */
static int compiler_alternatives(struct compiler *c, struct part *ret) {
    size_t first = c->n;
    int32_t jumps = -1, next;
    bool nullable = false;
    struct part one;

    for (;;) {
        IDEM_TRY(compiler_sequence(c, &one));
        nullable |= one.nullable;
        if (!compiler_accept(c, '|'))
            break;
        IDEM_TRY(
            compiler_insert_op(c, one.start, pattern_split_op(1, c->n - one.start + 2, false)));
        IDEM_TRY(
            compiler_put_op(c, (struct idem_pattern_op){.kind = IDEM_PATTERN_JUMP, .b = jumps}));
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

    IDEM_TRY(compiler_alternatives(&c, &all));
    if (c.pos < c.len)
        return IDEM_TROUBLE_PATTERN_KIND;
    IDEM_TRY(compiler_put_op(&c, (struct idem_pattern_op){.kind = IDEM_PATTERN_END}));
    *ret = (struct idem_pattern){c.ops, c.ranges, c.repeats};
    return 0;
}

/*
 * Matching by backtracking, as in Java. Gives up after so many steps that Java might give up, too.
 * The branches not yet tried are on a stack in the arena: nothing recurses.
 */

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
        IDEM_TRY_ALLOC(m->work, branches, cap * sizeof(*branches));
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
        if (++*steps > STEPS_MAX || idem_work_spend(m->work, 1) != 0)
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
    IDEM_TRY(idem_work_spend(work, text->n / 64));
    if (pattern_too_deep(compiled, text))
        return IDEM_TROUBLE_PATTERN_WORK;
    m.pattern = compiled;
    IDEM_TRY(matcher_push(&m, 0, 0));
    for (*ret = false; m.n > 0 && !*ret;)
        IDEM_TRY(matcher_follow(&m, m.branches[--m.n], &steps, ret));
    return 0;
}
