/*
 * From text to tree.
 */
#ifndef IDEM_EXPR_PARSE_H
#define IDEM_EXPR_PARSE_H

#include "expr/lex.h"
#include "expr/tree.h"

struct idem_parser {
    struct idem_work work; /* the arena of the expression */
    const char *text;      /* in the arena too: names point into it */
    size_t len;
    unsigned flags;
    struct idem_lexer lexer;
    struct idem_token token; /* the one to be looked at */
    int depth;
    int inside; /* projections and selections: names are members of #this there */
    bool reads; /* a variable */
    bool bare;  /* a name without # outside of them, the first one at bare_pos */
    size_t bare_pos;
    const char *fault; /* what is wrong at fault_pos, once something is */
    size_t fault_pos;
    int code; /* of the fault */
};

/* NULL, with the first fault remembered. */
void *idem_parse_fault(struct idem_parser *p, size_t pos, const char *what);
/* Memory of the expression; NULL with a fault. */
void *idem_parse_alloc(struct idem_parser *p, size_t size);
struct idem_node *idem_parse_node(struct idem_parser *p, int kind, size_t pos);

/* Tokens. The next one becomes the current one; false with a fault. */
bool idem_parse_advance(struct idem_parser *p);
/* The same, if it is of that kind; a fault otherwise. */
bool idem_parse_expect(struct idem_parser *p, int kind, const char *what);
static inline bool idem_parse_is(const struct idem_parser *p, int kind) {
    return p->token.kind == kind;
}
/* A name that is this word, in whatever case. */
bool idem_parse_is_word(const struct idem_parser *p, const char *word);

/* Nodes. *last is where the next child goes. */
void idem_parse_add(struct idem_node *parent, struct idem_node ***last, struct idem_node *child);
/* A node with one child, or two; NULL if the first is. */
struct idem_node *idem_parse_parent(struct idem_parser *p, int kind, size_t pos,
                                    struct idem_node *first, struct idem_node *second);

/* An expression in another, and an operand; NULL with a fault. */
struct idem_node *idem_parse_inner(struct idem_parser *p);
struct idem_node *idem_parse_primary(struct idem_parser *p);

/* The expression between two bytes of the text; NULL with a fault. */
struct idem_node *idem_parse_expression(struct idem_parser *p, size_t from, size_t to);
/* The whole text as a template; NULL with a fault. */
struct idem_node *idem_parse_template(struct idem_parser *p);

/* A number or a string of the current token; NULL with a fault. In literal.c. */
struct idem_node *idem_parse_literal(struct idem_parser *p);

#endif
