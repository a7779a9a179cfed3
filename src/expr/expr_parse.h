/*
 * The parser: from text to tree.
 */
#ifndef IDEM_EXPR_EXPR_PARSE_H
#define IDEM_EXPR_EXPR_PARSE_H

#include "expr/expr_lex.h"
#include "expr/expr_tree.h"

struct idem_parser {
    struct idem_work work; /* its arena is the expression's */
    const char *text;      /* also in the arena: names point into it */
    size_t len;
    unsigned flags;
    struct idem_lexer lexer;
    struct idem_token token; /* the current token */
    int depth;
    int inside; /* nesting of projections and selections: names in them are members of #this */
    bool reads; /* a variable was read */
    bool bare;  /* a name without # occurs outside of projections; the first is at bare_pos */
    size_t bare_pos;
    const char *fault; /* the error at fault_pos, or NULL */
    size_t fault_pos;
    int code; /* the error code of the fault */
};

/* Keeps the first fault, and returns NULL. */
void *idem_parse_fault(struct idem_parser *p, size_t pos, const char *what);
/* Allocates in the expression's arena; NULL with a fault. */
void *idem_parse_alloc(struct idem_parser *p, size_t size);
struct idem_node *idem_parse_node(struct idem_parser *p, int kind, size_t pos);

/* Tokens. Makes the next token the current one; false with a fault. */
bool idem_parse_advance(struct idem_parser *p);
/* The same if the current token is of this kind; otherwise a fault. */
bool idem_parse_expect(struct idem_parser *p, int kind, const char *what);
static inline bool idem_parse_is(const struct idem_parser *p, int kind) {
    return p->token.kind == kind;
}
/* True if the token is this word as a name, in any case. */
bool idem_parse_is_word(const struct idem_parser *p, const char *word);

/* Nodes. *last is where the next child goes. */
void idem_parse_add(struct idem_node *parent, struct idem_node ***last, struct idem_node *child);
/* Makes a node with one or two children; NULL if `first` is NULL. */
struct idem_node *idem_parse_parent(struct idem_parser *p, int kind, size_t pos,
                                    struct idem_node *first, struct idem_node *second);

/* Parse a nested expression, and an operand; NULL with a fault. */
struct idem_node *idem_parse_inner(struct idem_parser *p);
struct idem_node *idem_parse_primary(struct idem_parser *p);

/* Parses the expression between two bytes of the text; NULL with a fault. */
struct idem_node *idem_parse_expression(struct idem_parser *p, size_t from, size_t to);
/* Parses the whole text as a template; NULL with a fault. */
struct idem_node *idem_parse_template(struct idem_parser *p);

/* Parses the current token as a number or string; NULL with a fault. In expr_literal.c. */
struct idem_node *idem_parse_literal(struct idem_parser *p);

#endif
