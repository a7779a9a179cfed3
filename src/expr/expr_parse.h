/*
 * The parser: from text to tree.
 */
#ifndef IDEM_EXPR_EXPR_PARSE_H
#define IDEM_EXPR_EXPR_PARSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "expr/expr_tree.h"

/*
 * The tokens of an expression, one at a time, as SpEL divides it.
 */

enum idem_token_kind {
    IDEM_TOKEN_END,
    IDEM_TOKEN_INT,
    IDEM_TOKEN_LONG,
    IDEM_TOKEN_HEX_INT,
    IDEM_TOKEN_HEX_LONG,
    IDEM_TOKEN_DOUBLE,
    IDEM_TOKEN_FLOAT,
    IDEM_TOKEN_STRING,
    IDEM_TOKEN_NAME,
    IDEM_TOKEN_LPAREN,
    IDEM_TOKEN_RPAREN,
    IDEM_TOKEN_COMMA,
    IDEM_TOKEN_COLON,
    IDEM_TOKEN_HASH,
    IDEM_TOKEN_LSQUARE,
    IDEM_TOKEN_RSQUARE,
    IDEM_TOKEN_LCURLY,
    IDEM_TOKEN_RCURLY,
    IDEM_TOKEN_DOT,
    IDEM_TOKEN_SAFE,
    IDEM_TOKEN_PLUS,
    IDEM_TOKEN_MINUS,
    IDEM_TOKEN_STAR,
    IDEM_TOKEN_DIV,
    IDEM_TOKEN_MOD,
    IDEM_TOKEN_POWER,
    IDEM_TOKEN_EQ,
    IDEM_TOKEN_NE,
    IDEM_TOKEN_LT,
    IDEM_TOKEN_LE,
    IDEM_TOKEN_GT,
    IDEM_TOKEN_GE,
    IDEM_TOKEN_NOT,
    IDEM_TOKEN_AND,
    IDEM_TOKEN_OR,
    IDEM_TOKEN_QUESTION,
    IDEM_TOKEN_ELVIS,
    IDEM_TOKEN_PROJECT,
    IDEM_TOKEN_SELECT,
    IDEM_TOKEN_SELECT_FIRST,
    IDEM_TOKEN_SELECT_LAST,
    IDEM_TOKEN_ASSIGN,
    IDEM_TOKEN_INCREMENT,
    IDEM_TOKEN_DECREMENT,
    IDEM_TOKEN_BEAN,
    IDEM_TOKEN_FACTORY,
};

struct idem_token {
    uint8_t kind;
    bool word;    /* an operator written as a word, which may also be a name */
    uint32_t pos; /* includes quotes, 0x and suffixes, as does `len` */
    uint32_t len;
};

struct idem_lexer {
    const char *text;
    size_t pos, end;
    const char *fault; /* the error at fault_pos, or NULL */
    size_t fault_pos;
};

/* Returns the next token, or IDEM_TOKEN_END; false with a fault. */
bool idem_lex_next(struct idem_lexer *lexer, struct idem_token *ret);

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

static inline bool idem_parse_is(const struct idem_parser *p, int kind) {
    return p->token.kind == kind;
}

/* Parses the expression between two bytes of the text; NULL with a fault. */
struct idem_node *idem_parse_expression(struct idem_parser *p, size_t from, size_t to);
/* Parses the whole text as a template; NULL with a fault. */
struct idem_node *idem_parse_template(struct idem_parser *p);

#endif
