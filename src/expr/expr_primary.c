/*
 * The smallest parts of the grammar: literals, variables, lists, maps, and the steps of paths. This
 * file refuses types, constructors, beans, functions and methods that are not in the table.
 */
#include <string.h>

#include "base/bytes.h"
#include "expr/expr_parse.h"

#define METHODS                                                                                    \
    "there is no such method here; allowed: length substring trim toUpperCase toLowerCase concat " \
    "equals contains startsWith endsWith indexOf replace isEmpty charAt toString size get..."

/* Operators that are words may also be names. */
static bool primary_is_name(const struct idem_parser *p) {
    return idem_parse_is(p, IDEM_TOKEN_NAME) || p->token.word;
}

static struct idem_node *primary_text_node(struct idem_parser *p, int kind,
                                           const struct idem_token *name, size_t pos) {
    struct idem_node *node = idem_parse_node(p, kind, pos);

    if (node != NULL)
        node->at.value = idem_value_text(p->text + name->pos, name->len, true);
    return node;
}

static struct idem_node *primary_literal_node(struct idem_parser *p, struct idem_value value) {
    struct idem_node *node = idem_parse_node(p, IDEM_NODE_LITERAL, p->token.pos);

    if (node == NULL || !idem_parse_advance(p))
        return NULL;
    node->at.value = value;
    return node;
}

/* Up to the closing parenthesis; SpEL allows a comma in front of it. */
static bool primary_arguments(struct idem_parser *p, struct idem_node *method) {
    struct idem_node **last = &method->first, *arg;

    do {
        if (!idem_parse_advance(p))
            return false;
        if (idem_parse_is(p, IDEM_TOKEN_RPAREN))
            break;
        arg = idem_parse_inner(p);
        if (arg == NULL)
            return false;
        idem_parse_add(method, &last, arg);
    } while (idem_parse_is(p, IDEM_TOKEN_COMMA));
    return idem_parse_expect(p, IDEM_TOKEN_RPAREN, "a ) is missing after the arguments");
}

static struct idem_node *primary_method(struct idem_parser *p, const struct idem_token *name) {
    struct idem_node *node = idem_parse_node(p, IDEM_NODE_METHOD, name->pos);
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

    if (!idem_parse_advance(p))
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

    if (!idem_parse_advance(p))
        return NULL;
    name = p->token;
    if (idem_parse_is(p, IDEM_TOKEN_LCURLY))
        return idem_parse_fault(p, pos, "#{...} is for templates");
    if (!idem_parse_expect(p, IDEM_TOKEN_NAME,
                           name.word ? "the name of an operator cannot be a variable's"
                                     : "the name of a variable is missing after #"))
        return NULL;
    if (idem_parse_is(p, IDEM_TOKEN_LPAREN))
        return idem_parse_fault(p, pos, "there are no functions; allowed: variables, #name");
    if (primary_name_is(p, &name, "this"))
        return idem_parse_node(p, IDEM_NODE_THIS, pos);
    if (primary_name_is(p, &name, "root"))
        return idem_parse_node(p, IDEM_NODE_ROOT, pos);
    p->reads = true;
    return primary_text_node(p, IDEM_NODE_VARIABLE, &name, pos);
}

/* Between [ and ]: an index, a projection or a selection, depending on `kind`. */
static struct idem_node *primary_bracketed(struct idem_parser *p, int kind, int op) {
    size_t pos = p->token.pos;
    bool within = kind != IDEM_NODE_INDEX, bare = p->bare;
    struct idem_node *node, *body;

    if (!idem_parse_advance(p))
        return NULL;
    p->inside += within;
    body = idem_parse_inner(p);
    p->inside -= within;
    if (body == NULL || !idem_parse_expect(p, IDEM_TOKEN_RSQUARE, "a ] is missing"))
        return NULL;
    /* #m[name] is #m['name'] if #m is an object, so the name needs no #. */
    if (kind == IDEM_NODE_INDEX && body->kind == IDEM_NODE_NAME)
        p->bare = bare;
    node = idem_parse_parent(p, kind, pos, body, NULL);
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
        if (!idem_parse_expect(p, IDEM_TOKEN_COLON, "a : is missing after the key"))
            return NULL;
        value = idem_parse_inner(p);
        if (value == NULL)
            return NULL;
        idem_parse_add(map, &last, key);
        idem_parse_add(map, &last, value);
        if (!idem_parse_is(p, IDEM_TOKEN_COMMA))
            break;
        bare = p->bare;
        if (!idem_parse_advance(p))
            return NULL;
        key = primary_map_key(p, bare, idem_parse_inner(p));
        if (key == NULL)
            return NULL;
    }
    return idem_parse_expect(p, IDEM_TOKEN_RCURLY, "a } is missing after the map") ? map : NULL;
}

static struct idem_node *primary_inline_list(struct idem_parser *p, struct idem_node *list,
                                             struct idem_node *item) {
    struct idem_node **last = &list->first;

    for (;;) {
        idem_parse_add(list, &last, item);
        if (!idem_parse_is(p, IDEM_TOKEN_COMMA))
            break;
        if (!idem_parse_advance(p))
            return NULL;
        item = idem_parse_inner(p);
        if (item == NULL)
            return NULL;
    }
    return idem_parse_expect(p, IDEM_TOKEN_RCURLY, "a } is missing after the list") ? list : NULL;
}

static struct idem_node *primary_list_or_map(struct idem_parser *p) {
    struct idem_node *node = idem_parse_node(p, IDEM_NODE_LIST, p->token.pos), *first;
    bool bare = p->bare;

    if (node == NULL || !idem_parse_advance(p))
        return NULL;
    if (idem_parse_is(p, IDEM_TOKEN_RCURLY))
        return idem_parse_advance(p) ? node : NULL;
    if (idem_parse_is(p, IDEM_TOKEN_COLON)) {
        node->kind = IDEM_NODE_MAP;
        return idem_parse_advance(p) &&
                       idem_parse_expect(p, IDEM_TOKEN_RCURLY, "a } is missing after {:")
                   ? node
                   : NULL;
    }
    first = idem_parse_inner(p);
    if (first == NULL)
        return NULL;
    if (idem_parse_is(p, IDEM_TOKEN_COLON))
        return primary_inline_map(p, node, primary_map_key(p, bare, first));
    return primary_inline_list(p, node, first);
}

/* Records the first name outside of projections and selections: see expr_key.c. */
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

    if (!idem_parse_advance(p))
        return NULL;
    if (!idem_parse_is(p, IDEM_TOKEN_RSQUARE))
        return idem_parse_fault(p, name.pos, what);
    return primary_text_node(p, IDEM_NODE_NAME, &name, name.pos);
}

static struct idem_node *primary_word(struct idem_parser *p) {
    if (idem_parse_is_word(p, "true") || idem_parse_is_word(p, "false"))
        return primary_literal_node(p, idem_value_bool(idem_parse_is_word(p, "true")));
    if (primary_name_is(p, &p->token, "T"))
        return primary_reserved(p, "types, T(...), are not allowed");
    if (idem_parse_is_word(p, "null"))
        return primary_literal_node(p, IDEM_VALUE_NONE);
    if (idem_parse_is_word(p, "new"))
        return primary_reserved(p, "constructors, new ...(), are not allowed");
    return primary_bare_name(p);
}

static struct idem_node *primary_parenthesised(struct idem_parser *p) {
    struct idem_node *node;

    if (!idem_parse_advance(p))
        return NULL;
    node = idem_parse_inner(p);
    if (node == NULL || !idem_parse_expect(p, IDEM_TOKEN_RPAREN, "a ) is missing"))
        return NULL;
    return node;
}

static struct idem_node *primary_start(struct idem_parser *p) {
    struct idem_node *node;

    if (p->token.kind >= IDEM_TOKEN_INT && p->token.kind <= IDEM_TOKEN_STRING) {
        node = idem_parse_literal(p);
        return node != NULL && idem_parse_advance(p) ? node : NULL;
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

    if (!idem_parse_advance(p))
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

struct idem_node *idem_parse_primary(struct idem_parser *p) {
    struct idem_node *first = primary_start(p), *path = NULL, **last = NULL, *step;

    while (first != NULL) {
        if (idem_parse_is(p, IDEM_TOKEN_DOT) || idem_parse_is(p, IDEM_TOKEN_SAFE))
            step = primary_dotted(p);
        else if (idem_parse_is(p, IDEM_TOKEN_LSQUARE))
            step = primary_bracketed(p, IDEM_NODE_INDEX, 0);
        else
            break;
        if (step != NULL && path == NULL) {
            path = idem_parse_parent(p, IDEM_NODE_PATH, first->pos, first, NULL);
            last = &first->next;
        }
        if (step == NULL || path == NULL)
            return NULL;
        idem_parse_add(path, &last, step);
    }
    return path == NULL ? first : path;
}
