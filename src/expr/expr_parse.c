/*
 * The grammar of SpEL, by recursive descent to IDEM_EXPR_DEPTH_MAX. Unsafe constructs are faults:
 * types, constructors, beans, functions, assignment, ++, and methods that are not in the table. A
 * missing operand is a fault, too, although Spring takes it for null in some places.
 */
#include "expr/expr_parse.h"

#include <string.h>

void *idem_parse_fault(struct idem_parser *p, size_t pos, const char *what) {
    if (p->fault == NULL) {
        p->fault = what;
        p->fault_pos = pos;
    }
    return NULL;
}

static void parse_fault_trouble(struct idem_parser *p, size_t pos, int trouble) {
    if (p->fault == NULL)
        p->code = idem_trouble_code(trouble);
    idem_parse_fault(p, pos, idem_trouble_text(trouble));
}

void *idem_parse_alloc(struct idem_parser *p, size_t size) {
    void *at = idem_work_alloc(&p->work, size);

    if (at == NULL)
        parse_fault_trouble(p, p->token.pos, idem_work_trouble(&p->work, size));
    return at;
}

struct idem_node *idem_parse_node(struct idem_parser *p, int kind, size_t pos) {
    struct idem_node *node = idem_parse_alloc(p, sizeof(*node));

    if (node == NULL)
        return NULL;
    *node = (struct idem_node){.kind = (uint8_t)kind, .pos = (uint32_t)pos};
    return node;
}

bool idem_parse_advance(struct idem_parser *p) {
    if (idem_lex_next(&p->lexer, &p->token))
        return true;
    idem_parse_fault(p, p->lexer.fault_pos, p->lexer.fault);
    return false;
}

bool idem_parse_is_word(const struct idem_parser *p, const char *word) {
    const char *text = p->text + p->token.pos;

    if (!idem_parse_is(p, IDEM_TOKEN_NAME) || p->token.len != strlen(word))
        return false;
    for (size_t i = 0; i < p->token.len; i++)
        if ((text[i] | 0x20) != word[i])
            return false;
    return true;
}

bool idem_parse_expect(struct idem_parser *p, int kind, const char *what) {
    if (idem_parse_is(p, kind))
        return idem_parse_advance(p);
    idem_parse_fault(p, p->token.pos, what);
    return false;
}

void idem_parse_add(struct idem_node *parent, struct idem_node ***last, struct idem_node *child) {
    **last = child;
    *last = &child->next;
    parent->n++;
}

struct idem_node *idem_parse_parent(struct idem_parser *p, int kind, size_t pos,
                                    struct idem_node *first, struct idem_node *second) {
    struct idem_node *node = idem_parse_node(p, kind, pos);

    if (node == NULL || first == NULL)
        return NULL;
    node->first = first;
    first->next = second;
    node->n = second == NULL ? 1 : 2;
    return node;
}

/* Operators. */

static struct idem_node *parse_unary(struct idem_parser *p) {
    size_t pos = p->token.pos;
    struct idem_node *node;
    int kind;

    if (idem_parse_is(p, IDEM_TOKEN_INCREMENT) || idem_parse_is(p, IDEM_TOKEN_DECREMENT))
        return idem_parse_fault(p, pos, "++ and -- are not allowed; two signs stand apart: 1 - -1");
    if (idem_parse_is(p, IDEM_TOKEN_PLUS))
        kind = IDEM_NODE_PLUS;
    else if (idem_parse_is(p, IDEM_TOKEN_MINUS))
        kind = IDEM_NODE_NEGATE;
    else if (idem_parse_is(p, IDEM_TOKEN_NOT))
        kind = IDEM_NODE_NOT;
    else
        return idem_parse_primary(p);
    if (++p->depth > IDEM_EXPR_DEPTH_MAX)
        return idem_parse_fault(p, pos, "the expression is nested too deep; allowed: 128 levels");
    node = idem_parse_advance(p) ? idem_parse_parent(p, kind, pos, parse_unary(p), NULL) : NULL;
    p->depth--;
    return node;
}

static struct idem_node *parse_power(struct idem_parser *p) {
    struct idem_node *left = parse_unary(p), *right;
    size_t pos = p->token.pos;

    if (left == NULL)
        return NULL;
    if (idem_parse_is(p, IDEM_TOKEN_INCREMENT) || idem_parse_is(p, IDEM_TOKEN_DECREMENT))
        return idem_parse_fault(p, pos, "++ and -- are not allowed; two signs stand apart: 1 - -1");
    if (!idem_parse_is(p, IDEM_TOKEN_POWER))
        return left;
    right = idem_parse_advance(p) ? parse_unary(p) : NULL;
    return right == NULL ? NULL : idem_parse_parent(p, IDEM_NODE_POWER, pos, left, right);
}

/* The levels of left-associative operators, loosest first. Relations stand between AND and SUM. */
enum level { LEVEL_OR, LEVEL_AND, LEVEL_SUM, LEVEL_PRODUCT };

static const uint8_t level_kinds[] = {IDEM_NODE_OR, IDEM_NODE_AND, IDEM_NODE_SUM,
                                      IDEM_NODE_PRODUCT};

static const struct {
    uint8_t token, level, op;
} chain_ops[] = {
    {IDEM_TOKEN_OR, LEVEL_OR, 0},
    {IDEM_TOKEN_AND, LEVEL_AND, 0},
    {IDEM_TOKEN_PLUS, LEVEL_SUM, IDEM_EXPR_OP_ADD},
    {IDEM_TOKEN_MINUS, LEVEL_SUM, IDEM_EXPR_OP_SUBTRACT},
    {IDEM_TOKEN_STAR, LEVEL_PRODUCT, IDEM_EXPR_OP_MULTIPLY},
    {IDEM_TOKEN_DIV, LEVEL_PRODUCT, IDEM_EXPR_OP_DIVIDE},
    {IDEM_TOKEN_MOD, LEVEL_PRODUCT, IDEM_EXPR_OP_MODULUS},
};

static bool parse_chain_continues(const struct idem_parser *p, enum level level, uint8_t *op) {
    if ((level == LEVEL_OR && idem_parse_is_word(p, "or")) ||
        (level == LEVEL_AND && idem_parse_is_word(p, "and")))
        return true;
    for (size_t i = 0; i < sizeof(chain_ops) / sizeof(chain_ops[0]); i++)
        if (chain_ops[i].level == level && idem_parse_is(p, chain_ops[i].token)) {
            *op = chain_ops[i].op;
            return true;
        }
    return false;
}

static struct idem_node *parse_relation(struct idem_parser *p);

static struct idem_node *parse_chain(struct idem_parser *p, enum level level);

static struct idem_node *parse_chain_operand(struct idem_parser *p, enum level level) {
    switch (level) {
    case LEVEL_OR:
        return parse_chain(p, LEVEL_AND);
    case LEVEL_AND:
        return parse_relation(p);
    case LEVEL_SUM:
        return parse_chain(p, LEVEL_PRODUCT);
    default:
        return parse_power(p);
    }
}

static struct idem_node *parse_chain(struct idem_parser *p, enum level level) {
    struct idem_node *first = parse_chain_operand(p, level), *node = NULL, **last = NULL, *operand;
    uint8_t op = 0;

    while (first != NULL && parse_chain_continues(p, level, &op)) {
        if (node == NULL) {
            node = idem_parse_parent(p, level_kinds[level], p->token.pos, first, NULL);
            last = &first->next;
        }
        operand = node != NULL && idem_parse_advance(p) ? parse_chain_operand(p, level) : NULL;
        if (operand == NULL)
            return NULL;
        operand->link = op;
        idem_parse_add(node, &last, operand);
    }
    return node == NULL ? first : node;
}

static const struct {
    uint8_t token, op;
} relations[] = {{IDEM_TOKEN_EQ, IDEM_EXPR_OP_EQ}, {IDEM_TOKEN_NE, IDEM_EXPR_OP_NE},
                 {IDEM_TOKEN_LT, IDEM_EXPR_OP_LT}, {IDEM_TOKEN_LE, IDEM_EXPR_OP_LE},
                 {IDEM_TOKEN_GT, IDEM_EXPR_OP_GT}, {IDEM_TOKEN_GE, IDEM_EXPR_OP_GE}};

/* The kind of node for the current token as a relation; -1 if it is none. */
static int parse_relation_kind(struct idem_parser *p, uint8_t *op) {
    for (size_t i = 0; i < sizeof(relations) / sizeof(relations[0]); i++)
        if (idem_parse_is(p, relations[i].token)) {
            *op = relations[i].op;
            return IDEM_NODE_COMPARE;
        }
    if (idem_parse_is_word(p, "between"))
        return IDEM_NODE_BETWEEN;
    return idem_parse_is_word(p, "matches") ? IDEM_NODE_MATCHES : -1;
}

/* A literal pattern is compiled together with the expression. */
static bool parse_compile_pattern(struct idem_parser *p, struct idem_node *node) {
    const struct idem_node *literal = node->first->next;
    struct idem_pattern *pattern;
    int trouble;

    if (literal->kind != IDEM_NODE_LITERAL || literal->at.value.type != IDEM_VALUE_STRING)
        return true;
    pattern = idem_parse_alloc(p, sizeof(*pattern));
    if (pattern == NULL)
        return false;
    trouble = idem_pattern_compile(&p->work, &literal->at.value, pattern);
    if (trouble != 0) {
        parse_fault_trouble(p, literal->pos, trouble);
        return false;
    }
    node->at.pattern = pattern;
    return true;
}

/* Relations do not chain. */
static struct idem_node *parse_relation(struct idem_parser *p) {
    struct idem_node *left = parse_chain(p, LEVEL_SUM), *node;
    size_t pos = p->token.pos;
    uint8_t op = 0;
    int kind;

    if (left == NULL)
        return NULL;
    kind = parse_relation_kind(p, &op);
    if (idem_parse_is_word(p, "instanceof"))
        return idem_parse_fault(p, pos, "instanceof is not allowed: there are no types");
    if (kind < 0)
        return left;
    if (!idem_parse_advance(p))
        return NULL;
    node = parse_chain(p, LEVEL_SUM);
    if (node == NULL)
        return NULL;
    node = idem_parse_parent(p, kind, pos, left, node);
    if (node == NULL || (kind == IDEM_NODE_MATCHES && !parse_compile_pattern(p, node)))
        return NULL;
    node->op = op;
    return node;
}

/* Ternary and elvis, the loosest operators. The loop reads the last branch without recursion, so
   that long chains are not deep. */
static struct idem_node *parse_conditional(struct idem_parser *p) {
    struct idem_node *root = NULL, **slot = &root, *first;
    int kind;

    for (;;) {
        first = parse_chain(p, LEVEL_OR);
        if (first == NULL)
            return NULL;
        *slot = first;
        if (idem_parse_is(p, IDEM_TOKEN_ASSIGN))
            return idem_parse_fault(p, p->token.pos, "assignment is not allowed; equality is ==");
        if (!idem_parse_is(p, IDEM_TOKEN_ELVIS) && !idem_parse_is(p, IDEM_TOKEN_QUESTION))
            return root;
        kind = idem_parse_is(p, IDEM_TOKEN_ELVIS) ? IDEM_NODE_ELVIS : IDEM_NODE_TERNARY;
        *slot = idem_parse_parent(p, kind, p->token.pos, first, NULL);
        if (*slot == NULL || !idem_parse_advance(p))
            return NULL;
        slot = &first->next;
        if (kind == IDEM_NODE_TERNARY) {
            *slot = idem_parse_inner(p);
            if (*slot == NULL ||
                !idem_parse_expect(p, IDEM_TOKEN_COLON,
                                   "a : and what comes after it is missing after the ?"))
                return NULL;
            slot = &(*slot)->next;
        }
    }
}

struct idem_node *idem_parse_inner(struct idem_parser *p) {
    struct idem_node *node;

    if (++p->depth > IDEM_EXPR_DEPTH_MAX)
        return idem_parse_fault(p, p->token.pos,
                                "the expression is nested too deep; allowed: 128 levels");
    node = parse_conditional(p);
    p->depth--;
    return node;
}

struct idem_node *idem_parse_expression(struct idem_parser *p, size_t from, size_t to) {
    struct idem_node *node;

    p->lexer = (struct idem_lexer){.text = p->text, .pos = from, .end = to};
    if (!idem_parse_advance(p))
        return NULL;
    if (idem_parse_is(p, IDEM_TOKEN_END))
        return idem_parse_fault(p, from, "the expression is empty");
    node = idem_parse_inner(p);
    if (node != NULL && !idem_parse_is(p, IDEM_TOKEN_END))
        return idem_parse_fault(p, p->token.pos, "the expression should have ended before this");
    return node;
}
