/*
 * The grammar of SpEL, by recursive descent to IDEM_EXPR_DEPTH_MAX. Unsafe constructs are faults:
 * types, constructors, beans, functions, assignment, ++, and methods that are not in the table. A
 * missing operand is a fault, too, although Spring takes it for null in some places.
 */
#include "expr/expr_parse.h"

#include <math.h>
#include <string.h>

#include "base/bytes.h"
#include "base/error.h"
#include "base/hex.h"
#include "expr/expr_tree.h"
#include "json/json_number.h"

/* Parse a nested expression, and an operand; NULL with a fault. */
static struct idem_node *parse_inner(struct idem_parser *p);
static struct idem_node *parse_primary(struct idem_parser *p);

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

/* Allocates in the expression's arena; NULL with a fault. */
static void *parse_alloc(struct idem_parser *p, size_t size) {
    void *at = idem_work_alloc(&p->work, size);

    if (at == NULL)
        parse_fault_trouble(p, p->token.pos, idem_work_trouble(&p->work, size));
    return at;
}

static struct idem_node *parse_node(struct idem_parser *p, int kind, size_t pos) {
    struct idem_node *node = parse_alloc(p, sizeof(*node));

    if (node == NULL)
        return NULL;
    *node = (struct idem_node){.kind = (uint8_t)kind, .pos = (uint32_t)pos};
    return node;
}

/* Tokens. Makes the next token the current one; false with a fault. */
static bool parse_advance(struct idem_parser *p) {
    if (idem_lex_next(&p->lexer, &p->token))
        return true;
    idem_parse_fault(p, p->lexer.fault_pos, p->lexer.fault);
    return false;
}

/* True if the token is this word as a name, in any case. */
static bool parse_is_word(const struct idem_parser *p, const char *word) {
    return idem_parse_is(p, IDEM_TOKEN_NAME) &&
           idem_same_ignoring_case(p->text + p->token.pos, p->token.len, word, strlen(word));
}

/* The same if the current token is of this kind; otherwise a fault. */
static bool parse_expect(struct idem_parser *p, int kind, const char *what) {
    if (idem_parse_is(p, kind))
        return parse_advance(p);
    idem_parse_fault(p, p->token.pos, what);
    return false;
}

/* Nodes. *last is where the next child goes. */
static void parse_add(struct idem_node *parent, struct idem_node ***last, struct idem_node *child) {
    **last = child;
    *last = &child->next;
    parent->n++;
}

/* Makes a node with one or two children; NULL if `first` is NULL. */
static struct idem_node *parse_parent(struct idem_parser *p, int kind, size_t pos,
                                      struct idem_node *first, struct idem_node *second) {
    struct idem_node *node = parse_node(p, kind, pos);

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
        return parse_primary(p);
    if (++p->depth > IDEM_EXPR_DEPTH_MAX)
        return idem_parse_fault(p, pos, "the expression is nested too deep; allowed: 128 levels");
    node = parse_advance(p) ? parse_parent(p, kind, pos, parse_unary(p), NULL) : NULL;
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
    right = parse_advance(p) ? parse_unary(p) : NULL;
    return right == NULL ? NULL : parse_parent(p, IDEM_NODE_POWER, pos, left, right);
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
    if ((level == LEVEL_OR && parse_is_word(p, "or")) ||
        (level == LEVEL_AND && parse_is_word(p, "and")))
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
            node = parse_parent(p, level_kinds[level], p->token.pos, first, NULL);
            last = &first->next;
        }
        operand = node != NULL && parse_advance(p) ? parse_chain_operand(p, level) : NULL;
        if (operand == NULL)
            return NULL;
        operand->link = op;
        parse_add(node, &last, operand);
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
    if (parse_is_word(p, "between"))
        return IDEM_NODE_BETWEEN;
    return parse_is_word(p, "matches") ? IDEM_NODE_MATCHES : -1;
}

/* A literal pattern is compiled together with the expression. */
static bool parse_compile_pattern(struct idem_parser *p, struct idem_node *node) {
    const struct idem_node *literal = node->first->next;
    struct idem_pattern *pattern;
    int trouble;

    if (literal->kind != IDEM_NODE_LITERAL || literal->at.value.type != IDEM_VALUE_STRING)
        return true;
    pattern = parse_alloc(p, sizeof(*pattern));
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
    if (parse_is_word(p, "instanceof"))
        return idem_parse_fault(p, pos, "instanceof is not allowed: there are no types");
    if (kind < 0)
        return left;
    if (!parse_advance(p))
        return NULL;
    node = parse_chain(p, LEVEL_SUM);
    if (node == NULL)
        return NULL;
    node = parse_parent(p, kind, pos, left, node);
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
        *slot = parse_parent(p, kind, p->token.pos, first, NULL);
        if (*slot == NULL || !parse_advance(p))
            return NULL;
        slot = &first->next;
        if (kind == IDEM_NODE_TERNARY) {
            *slot = parse_inner(p);
            if (*slot == NULL ||
                !parse_expect(p, IDEM_TOKEN_COLON,
                              "a : and what comes after it is missing after the ?"))
                return NULL;
            slot = &(*slot)->next;
        }
    }
}

/* Parse a nested expression, and an operand; NULL with a fault. */
static struct idem_node *parse_inner(struct idem_parser *p) {
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
    if (!parse_advance(p))
        return NULL;
    if (idem_parse_is(p, IDEM_TOKEN_END))
        return idem_parse_fault(p, from, "the expression is empty");
    node = parse_inner(p);
    if (node != NULL && !idem_parse_is(p, IDEM_TOKEN_END))
        return idem_parse_fault(p, p->token.pos, "the expression should have ended before this");
    return node;
}

/*
 * Literals: numbers and strings. An int or long that does not fit its type is a fault, as in
 * Spring. A float halfway between two floats is a fault here, because reading it through a double
 * would not be exact. For keys, so is a number with more digits than its type keeps, or too large
 * for its type, because it would become another number.
 */

static struct idem_node *literal_new(struct idem_parser *p, struct idem_value value) {
    struct idem_node *node = parse_node(p, IDEM_NODE_LITERAL, p->token.pos);

    if (node != NULL)
        node->at.value = value;
    return node;
}

/* False if the number is larger than `most`. */
static bool literal_read_integer(const char *digits, size_t len, int base, int64_t most,
                                 int64_t *ret) {
    int64_t n = 0;

    for (size_t i = 0; i < len; i++) {
        int digit = idem_hex_digit(digits[i]);

        if (n > (most - digit) / base)
            return false;
        n = n * base + digit;
    }
    *ret = n;
    return true;
}

static struct idem_node *literal_integer(struct idem_parser *p, int base, bool is_long) {
    size_t skip = base == 16 ? 2 : 0;
    int64_t n;

    if (!literal_read_integer(p->text + p->token.pos + skip, p->token.len - skip - is_long, base,
                              is_long ? INT64_MAX : INT32_MAX, &n))
        return idem_parse_fault(p, p->token.pos,
                                is_long
                                    ? "the number does not fit 64 bits"
                                    : "the number does not fit 32 bits; L after it makes it 64");
    return literal_new(p, (struct idem_value){.type = is_long ? IDEM_VALUE_LONG : IDEM_VALUE_INT,
                                              .at.integer = n});
}

/* The number as JSON: without the suffix and leading zeros. */
static struct idem_json literal_real_json(const struct idem_parser *p) {
    const char *text = p->text + p->token.pos;
    size_t len = p->token.len;

    if ((text[len - 1] | 0x20) == 'f' || (text[len - 1] | 0x20) == 'd')
        len--;
    while (len > 1 && text[0] == '0' && idem_is_digit(text[1])) {
        text++;
        len--;
    }
    return (struct idem_json){.type = IDEM_JSON_NUMBER,
                              .flag = memchr(text, '.', len) == NULL &&
                                      memchr(text, 'e', len) == NULL &&
                                      memchr(text, 'E', len) == NULL,
                              .n = (uint32_t)len,
                              .at.text = text};
}

/* For keys, the value must be exactly the written one. */
static bool literal_real_fits(struct idem_parser *p, bool finite, bool kept) {
    if ((p->flags & IDEM_EXPR_KEY) == 0 || kept)
        return true;
    idem_parse_fault(p, p->token.pos,
                     idem_trouble_text(finite ? IDEM_TROUBLE_KEY_DIGITS : IDEM_TROUBLE_KEY_FINITE));
    return false;
}

static struct idem_node *literal_real(struct idem_parser *p) {
    struct idem_json json = literal_real_json(p);
    double d = idem_number_read(json.at.text, json.n);

    if (!literal_real_fits(p, isfinite(d), isfinite(d) && idem_number_kept(&json)))
        return NULL;
    return literal_new(p, (struct idem_value){.type = IDEM_VALUE_DOUBLE, .at.real = d});
}

/* A double halfway between two floats may itself be rounded, so the nearest float is not
   certain. */
static struct idem_node *literal_float(struct idem_parser *p) {
    struct idem_json json = literal_real_json(p);
    double d = idem_number_read(json.at.text, json.n);
    float f = (float)d;
    char text[IDEM_NUMBER_MAX];

    if (isfinite(d) && (double)f != d) {
        double other = (double)nextafterf(f, d > (double)f ? INFINITY : -INFINITY);

        if (fabs(d - (double)f) == fabs(other - d))
            return idem_parse_fault(p, p->token.pos, "the number lies between two floats");
    }
    if (!literal_real_fits(p, isfinite(f),
                           isfinite(f) &&
                               idem_number_is(&json, text, idem_number_java_float(f, text))))
        return NULL;
    return literal_new(p, (struct idem_value){.type = IDEM_VALUE_FLOAT, .at.single = f});
}

/* Two quotes become one. Spring also does this for the quotes of the other kind. */
static struct idem_node *literal_string(struct idem_parser *p) {
    const char *text = p->text + p->token.pos + 1;
    size_t len = p->token.len - 2, n = 0;
    char *at = parse_alloc(p, len);
    struct idem_value value;
    bool ascii = true;

    if (at == NULL)
        return NULL;
    for (size_t i = 0; i < len; i++) {
        at[n++] = text[i];
        ascii &= (unsigned char)text[i] < 0x80;
        if ((text[i] == '\'' || text[i] == '"') && i + 1 < len && text[i + 1] == text[i])
            i++;
    }
    value = idem_value_text(at, n, ascii);
    value.flags |= IDEM_VALUE_MADE;
    return literal_new(p, value);
}

/* Parses the current token as a number or string; NULL with a fault. */
static struct idem_node *parse_literal(struct idem_parser *p) {
    switch (p->token.kind) {
    case IDEM_TOKEN_INT:
        return literal_integer(p, 10, false);
    case IDEM_TOKEN_LONG:
        return literal_integer(p, 10, true);
    case IDEM_TOKEN_HEX_INT:
        return literal_integer(p, 16, false);
    case IDEM_TOKEN_HEX_LONG:
        return literal_integer(p, 16, true);
    case IDEM_TOKEN_DOUBLE:
        return literal_real(p);
    case IDEM_TOKEN_FLOAT:
        return literal_float(p);
    default:
        return literal_string(p);
    }
}

/*
 * The smallest parts of the grammar: literals, variables, lists, maps, and the steps of paths. This
 * file refuses types, constructors, beans, functions and methods that are not in the table.
 */

#define METHODS                                                                                    \
    "there is no such method here; allowed: length substring trim toUpperCase toLowerCase concat " \
    "equals contains startsWith endsWith indexOf replace isEmpty charAt toString size get..."

/* Operators that are words may also be names. */
static bool primary_is_name(const struct idem_parser *p) {
    return idem_parse_is(p, IDEM_TOKEN_NAME) || p->token.word;
}

static struct idem_node *primary_text_node(struct idem_parser *p, int kind,
                                           const struct idem_token *name, size_t pos) {
    struct idem_node *node = parse_node(p, kind, pos);

    if (node != NULL)
        node->at.value = idem_value_text(p->text + name->pos, name->len, true);
    return node;
}

static struct idem_node *primary_literal_node(struct idem_parser *p, struct idem_value value) {
    struct idem_node *node = literal_new(p, value);

    return node != NULL && parse_advance(p) ? node : NULL;
}

/* Up to the closing parenthesis; SpEL allows a comma in front of it. */
static bool primary_arguments(struct idem_parser *p, struct idem_node *method) {
    struct idem_node **last = &method->first, *arg;

    do {
        if (!parse_advance(p))
            return false;
        if (idem_parse_is(p, IDEM_TOKEN_RPAREN))
            break;
        arg = parse_inner(p);
        if (arg == NULL)
            return false;
        parse_add(method, &last, arg);
    } while (idem_parse_is(p, IDEM_TOKEN_COMMA));
    return parse_expect(p, IDEM_TOKEN_RPAREN, "a ) is missing after the arguments");
}

static struct idem_node *primary_method(struct idem_parser *p, const struct idem_token *name) {
    struct idem_node *node = parse_node(p, IDEM_NODE_METHOD, name->pos);
    const char *text = p->text + name->pos;

    if (node == NULL || !primary_arguments(p, node))
        return NULL;
    node->at.method = idem_method_find(text, name->len, node->n);
    if (node->at.method != NULL && node->at.method->blurs && (p->flags & IDEM_EXPR_KEY) != 0)
        return idem_parse_fault(p, name->pos,
                                "this gives one number to different values; in a key, use the "
                                "value itself");
    if (node->at.method == NULL)
        return idem_parse_fault(p, name->pos,
                                idem_method_known(text, name->len)
                                    ? "the method does not take so many arguments"
                                    : METHODS);
    return node;
}

static struct idem_node *primary_name_or_method(struct idem_parser *p) {
    struct idem_token name = p->token;

    if (!parse_advance(p))
        return NULL;
    if (idem_parse_is(p, IDEM_TOKEN_LPAREN))
        return primary_method(p, &name);
    return primary_text_node(p, IDEM_NODE_NAME, &name, name.pos);
}

static bool primary_name_is(const struct idem_parser *p, const struct idem_token *name,
                            const char *word) {
    return idem_is_word(p->text + name->pos, name->len, word);
}

static struct idem_node *primary_variable(struct idem_parser *p) {
    size_t pos = p->token.pos;
    struct idem_token name;

    if (!parse_advance(p))
        return NULL;
    name = p->token;
    if (idem_parse_is(p, IDEM_TOKEN_LCURLY))
        return idem_parse_fault(p, pos, "#{...} is for templates");
    if (!parse_expect(p, IDEM_TOKEN_NAME,
                      name.word ? "the name of an operator cannot be a variable's"
                                : "the name of a variable is missing after #"))
        return NULL;
    if (idem_parse_is(p, IDEM_TOKEN_LPAREN))
        return idem_parse_fault(p, pos, "there are no functions; allowed: variables, #name");
    if (primary_name_is(p, &name, "this"))
        return parse_node(p, IDEM_NODE_THIS, pos);
    if (primary_name_is(p, &name, "root"))
        return parse_node(p, IDEM_NODE_ROOT, pos);
    p->reads = true;
    return primary_text_node(p, IDEM_NODE_VARIABLE, &name, pos);
}

/* Between [ and ]: an index, a projection or a selection, depending on `kind`. */
static struct idem_node *primary_bracketed(struct idem_parser *p, int kind, int op) {
    size_t pos = p->token.pos;
    bool within = kind != IDEM_NODE_INDEX, bare = p->bare;
    struct idem_node *node, *body;

    if (!parse_advance(p))
        return NULL;
    p->inside += within;
    body = parse_inner(p);
    p->inside -= within;
    if (body == NULL || !parse_expect(p, IDEM_TOKEN_RSQUARE, "a ] is missing"))
        return NULL;
    /* #m[name] is #m['name'] if #m is an object, so the name needs no #. */
    if (kind == IDEM_NODE_INDEX && body->kind == IDEM_NODE_NAME)
        p->bare = bare;
    node = parse_parent(p, kind, pos, body, NULL);
    if (node != NULL)
        node->op = (uint8_t)op;
    return node;
}

static struct idem_node *primary_projection_or_selection(struct idem_parser *p) {
    switch (p->token.kind) {
    case IDEM_TOKEN_PROJECT:
        return primary_bracketed(p, IDEM_NODE_PROJECT, 0);
    case IDEM_TOKEN_SELECT:
        return primary_bracketed(p, IDEM_NODE_SELECT, IDEM_SELECT_ALL);
    case IDEM_TOKEN_SELECT_FIRST:
        return primary_bracketed(p, IDEM_NODE_SELECT, IDEM_SELECT_FIRST);
    case IDEM_TOKEN_SELECT_LAST:
        return primary_bracketed(p, IDEM_NODE_SELECT, IDEM_SELECT_LAST);
    default:
        return NULL;
    }
}

/* {a:1} has the key 'a'; the name is not a member of #this. */
static struct idem_node *primary_map_key(struct idem_parser *p, bool bare, struct idem_node *key) {
    if (key != NULL && key->kind == IDEM_NODE_NAME) {
        key->kind = IDEM_NODE_LITERAL;
        p->bare = bare;
    }
    return key;
}

static struct idem_node *primary_inline_map(struct idem_parser *p, struct idem_node *map,
                                            struct idem_node *key) {
    struct idem_node **last = &map->first, *value;
    bool bare;

    map->kind = IDEM_NODE_MAP;
    for (;;) {
        if (!parse_expect(p, IDEM_TOKEN_COLON, "a : is missing after the key"))
            return NULL;
        value = parse_inner(p);
        if (value == NULL)
            return NULL;
        parse_add(map, &last, key);
        parse_add(map, &last, value);
        if (!idem_parse_is(p, IDEM_TOKEN_COMMA))
            break;
        bare = p->bare;
        if (!parse_advance(p))
            return NULL;
        key = primary_map_key(p, bare, parse_inner(p));
        if (key == NULL)
            return NULL;
    }
    return parse_expect(p, IDEM_TOKEN_RCURLY, "a } is missing after the map") ? map : NULL;
}

static struct idem_node *primary_inline_list(struct idem_parser *p, struct idem_node *list,
                                             struct idem_node *item) {
    struct idem_node **last = &list->first;

    for (;;) {
        parse_add(list, &last, item);
        if (!idem_parse_is(p, IDEM_TOKEN_COMMA))
            break;
        if (!parse_advance(p))
            return NULL;
        item = parse_inner(p);
        if (item == NULL)
            return NULL;
    }
    return parse_expect(p, IDEM_TOKEN_RCURLY, "a } is missing after the list") ? list : NULL;
}

static struct idem_node *primary_list_or_map(struct idem_parser *p) {
    struct idem_node *node = parse_node(p, IDEM_NODE_LIST, p->token.pos), *first;
    bool bare = p->bare;

    if (node == NULL || !parse_advance(p))
        return NULL;
    if (idem_parse_is(p, IDEM_TOKEN_RCURLY))
        return parse_advance(p) ? node : NULL;
    if (idem_parse_is(p, IDEM_TOKEN_COLON)) {
        node->kind = IDEM_NODE_MAP;
        return parse_advance(p) && parse_expect(p, IDEM_TOKEN_RCURLY, "a } is missing after {:")
                   ? node
                   : NULL;
    }
    first = parse_inner(p);
    if (first == NULL)
        return NULL;
    if (idem_parse_is(p, IDEM_TOKEN_COLON))
        return primary_inline_map(p, node, primary_map_key(p, bare, first));
    return primary_inline_list(p, node, first);
}

/* Records the first name outside of projections and selections: see key_check(). */
static struct idem_node *primary_bare_name(struct idem_parser *p) {
    if (p->inside == 0 && !p->bare) {
        p->bare = true;
        p->bare_pos = p->token.pos;
    }
    return primary_name_or_method(p);
}

/* T and new are names if they are an index: #m[T]. */
static struct idem_node *primary_reserved(struct idem_parser *p, const char *what) {
    struct idem_token name = p->token;

    if (!parse_advance(p))
        return NULL;
    if (!idem_parse_is(p, IDEM_TOKEN_RSQUARE))
        return idem_parse_fault(p, name.pos, what);
    return primary_text_node(p, IDEM_NODE_NAME, &name, name.pos);
}

static struct idem_node *primary_word(struct idem_parser *p) {
    if (parse_is_word(p, "true") || parse_is_word(p, "false"))
        return primary_literal_node(p, idem_value_bool(parse_is_word(p, "true")));
    if (primary_name_is(p, &p->token, "T"))
        return primary_reserved(p, "types, T(...), are not allowed");
    if (parse_is_word(p, "null"))
        return primary_literal_node(p, IDEM_VALUE_NONE);
    if (parse_is_word(p, "new"))
        return primary_reserved(p, "constructors, new ...(), are not allowed");
    return primary_bare_name(p);
}

static struct idem_node *primary_parenthesised(struct idem_parser *p) {
    struct idem_node *node;

    if (!parse_advance(p))
        return NULL;
    node = parse_inner(p);
    if (node == NULL || !parse_expect(p, IDEM_TOKEN_RPAREN, "a ) is missing"))
        return NULL;
    return node;
}

static struct idem_node *primary_start(struct idem_parser *p) {
    struct idem_node *node;

    if (p->token.kind >= IDEM_TOKEN_INT && p->token.kind <= IDEM_TOKEN_STRING) {
        node = parse_literal(p);
        return node != NULL && parse_advance(p) ? node : NULL;
    }
    if (primary_is_name(p))
        return primary_word(p);
    switch (p->token.kind) {
    case IDEM_TOKEN_LPAREN:
        return primary_parenthesised(p);
    case IDEM_TOKEN_HASH:
        return primary_variable(p);
    case IDEM_TOKEN_LSQUARE:
        return primary_bracketed(p, IDEM_NODE_INDEX, 0);
    case IDEM_TOKEN_LCURLY:
        return primary_list_or_map(p);
    case IDEM_TOKEN_PROJECT:
    case IDEM_TOKEN_SELECT:
    case IDEM_TOKEN_SELECT_FIRST:
    case IDEM_TOKEN_SELECT_LAST:
        return primary_projection_or_selection(p);
    case IDEM_TOKEN_BEAN:
    case IDEM_TOKEN_FACTORY:
        return idem_parse_fault(p, p->token.pos, "beans, @name and &name, are not allowed");
    default:
        return idem_parse_fault(p, p->token.pos, "a value is missing here");
    }
}

/* After a dot. */
static struct idem_node *primary_dotted(struct idem_parser *p) {
    bool safe = idem_parse_is(p, IDEM_TOKEN_SAFE);
    struct idem_node *node;

    if (!parse_advance(p))
        return NULL;
    if (primary_is_name(p))
        node = primary_name_or_method(p);
    else if (idem_parse_is(p, IDEM_TOKEN_HASH))
        node = primary_variable(p);
    else
        node = primary_projection_or_selection(p);
    if (node == NULL)
        return idem_parse_fault(p, p->token.pos, "the name of a member is missing after the dot");
    node->safe = safe;
    return node;
}

static struct idem_node *parse_primary(struct idem_parser *p) {
    struct idem_node *first = primary_start(p), *path = NULL, **last = NULL, *step;

    while (first != NULL) {
        if (idem_parse_is(p, IDEM_TOKEN_DOT) || idem_parse_is(p, IDEM_TOKEN_SAFE))
            step = primary_dotted(p);
        else if (idem_parse_is(p, IDEM_TOKEN_LSQUARE))
            step = primary_bracketed(p, IDEM_NODE_INDEX, 0);
        else
            break;
        if (step != NULL && path == NULL) {
            path = parse_parent(p, IDEM_NODE_PATH, first->pos, first, NULL);
            last = &first->next;
        }
        if (step == NULL || path == NULL)
            return NULL;
        parse_add(path, &last, step);
    }
    return path == NULL ? first : path;
}

/*
 * Templates: text with expressions in #{ and }. The end of an expression is found as in Spring, by
 * counting brackets outside of quotes.
 */

/* The closing bracket for an opening one; 0 for other bytes. */
static char template_closing(char c) {
    return c == '(' ? ')' : c == '[' ? ']' : c == '{' ? '}' : 0;
}

/* The place of the } for the #{ in front of `from`; 0 with a fault. */
static size_t template_expression_end(struct idem_parser *p, size_t from) {
    char open[IDEM_EXPR_DEPTH_MAX];
    const char *quote;
    size_t n = 0;

    for (size_t pos = from; pos < p->len; pos++) {
        char c = p->text[pos];

        if (c == '}' && n == 0)
            return pos;
        if (template_closing(c) != 0) {
            if (n == sizeof(open))
                return idem_parse_fault(p, pos, "brackets are nested too deep"), 0;
            open[n++] = template_closing(c);
        } else if (idem_is_any(c, ")]}")) {
            if (n == 0 || open[--n] != c)
                return idem_parse_fault(p, pos, "this bracket closes none that is open"), 0;
        } else if (c == '\'' || c == '"') {
            quote = memchr(p->text + pos + 1, c, p->len - pos - 1);
            if (quote == NULL)
                return idem_parse_fault(p, pos, "the string is not ended"), 0;
            pos = (size_t)(quote - p->text);
        }
    }
    return idem_parse_fault(p, from - 2, "the } for this #{ is missing"), 0;
}

/* Spring trims the text between the braces, so here it accepts blanks that it refuses elsewhere. */
static struct idem_node *template_embedded(struct idem_parser *p, size_t from, size_t to) {
    size_t begin = from;

    while (begin < to && (unsigned char)p->text[begin] <= ' ')
        begin++;
    while (to > begin && (unsigned char)p->text[to - 1] <= ' ')
        to--;
    if (begin == to)
        return idem_parse_fault(p, from - 2, "there is no expression between #{ and }");
    return idem_parse_expression(p, begin, to);
}

/* In a key's template, #name outside of #{...} is most likely a variable by intent, but would be
   literal text, the same for every request. */
static bool template_check_literal(struct idem_parser *p, size_t from, size_t to) {
    for (size_t pos = from; pos + 1 < to; pos++)
        if (p->text[pos] == '#' && (idem_is_alpha(p->text[pos + 1]) || p->text[pos + 1] == '_')) {
            idem_parse_fault(p, pos, "a variable in a template is written #{#name}");
            return false;
        }
    return true;
}

static struct idem_node *template_literal(struct idem_parser *p, size_t from, size_t to) {
    struct idem_node *node = parse_node(p, IDEM_NODE_LITERAL, from);

    if ((p->flags & IDEM_EXPR_KEY) != 0 && !template_check_literal(p, from, to))
        return NULL;
    if (node != NULL) {
        node->at.value = idem_value_text(p->text + from, to - from, false);
        node->at.value.flags |= IDEM_VALUE_MADE;
    }
    return node;
}

struct idem_node *idem_parse_template(struct idem_parser *p) {
    struct idem_node *node = parse_node(p, IDEM_NODE_TEMPLATE, 0), **last, *part;
    size_t pos = 0, end;
    const char *next;

    if (node == NULL || p->len == 0)
        return node == NULL ? NULL : template_literal(p, 0, 0);
    last = &node->first;
    while (pos < p->len) {
        next = memmem(p->text + pos, p->len - pos, "#{", 2);
        if (next == NULL || next > p->text + pos) {
            end = next == NULL ? p->len : (size_t)(next - p->text);
            part = template_literal(p, pos, end);
            pos = end;
        } else {
            end = template_expression_end(p, pos + 2);
            part = end == 0 ? NULL : template_embedded(p, pos + 2, end);
            pos = end + 1;
        }
        if (part == NULL)
            return NULL;
        *last = part;
        last = &part->next;
        node->n++;
    }
    /* A template of one expression alone keeps the type of its value. */
    return node->n == 1 ? node->first : node;
}
