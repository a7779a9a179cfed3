/*
 * The lexer. Names and white space are ASCII; a NUL between tokens is skipped, as Spring does;
 * strings have no escapes, only doubled quotes. lt gt le ge eq ne div mod not are operators in any
 * case.
 */
#include "base/bytes.h"
#include "base/hex.h"
#include "expr/expr_parse.h"

#include <string.h>

static const struct symbol {
    char text[3]; /* a longer symbol stands before its prefix */
    uint8_t kind;
} symbols[] = {
    {"++", IDEM_TOKEN_INCREMENT},
    {"+", IDEM_TOKEN_PLUS},
    {"--", IDEM_TOKEN_DECREMENT},
    {"-", IDEM_TOKEN_MINUS},
    {"^[", IDEM_TOKEN_SELECT_FIRST},
    {"^", IDEM_TOKEN_POWER},
    {"!=", IDEM_TOKEN_NE},
    {"![", IDEM_TOKEN_PROJECT},
    {"!", IDEM_TOKEN_NOT},
    {"==", IDEM_TOKEN_EQ},
    {"=", IDEM_TOKEN_ASSIGN},
    {"&&", IDEM_TOKEN_AND},
    {"&", IDEM_TOKEN_FACTORY},
    {"||", IDEM_TOKEN_OR},
    {"?[", IDEM_TOKEN_SELECT},
    {"?:", IDEM_TOKEN_ELVIS},
    {"?.", IDEM_TOKEN_SAFE},
    {"?", IDEM_TOKEN_QUESTION},
    {"$[", IDEM_TOKEN_SELECT_LAST},
    {">=", IDEM_TOKEN_GE},
    {">", IDEM_TOKEN_GT},
    {"<=", IDEM_TOKEN_LE},
    {"<", IDEM_TOKEN_LT},
    {"*", IDEM_TOKEN_STAR},
    {"/", IDEM_TOKEN_DIV},
    {"%", IDEM_TOKEN_MOD},
    {"(", IDEM_TOKEN_LPAREN},
    {")", IDEM_TOKEN_RPAREN},
    {"[", IDEM_TOKEN_LSQUARE},
    {"]", IDEM_TOKEN_RSQUARE},
    {"{", IDEM_TOKEN_LCURLY},
    {"}", IDEM_TOKEN_RCURLY},
    {".", IDEM_TOKEN_DOT},
    {",", IDEM_TOKEN_COMMA},
    {":", IDEM_TOKEN_COLON},
    {"#", IDEM_TOKEN_HASH},
    {"@", IDEM_TOKEN_BEAN},
};

static const struct {
    char text[4];
    uint8_t kind;
} words[] = {
    {"div", IDEM_TOKEN_DIV}, {"eq", IDEM_TOKEN_EQ}, {"ge", IDEM_TOKEN_GE},
    {"gt", IDEM_TOKEN_GT},   {"le", IDEM_TOKEN_LE}, {"lt", IDEM_TOKEN_LT},
    {"mod", IDEM_TOKEN_MOD}, {"ne", IDEM_TOKEN_NE}, {"not", IDEM_TOKEN_NOT},
};

static bool lex_is_letter(char c) {
    return idem_is_alpha(c) || c == '_' || c == '$';
}

/* The byte at `pos`; 0 at the end and beyond. */
static char lexer_byte_at(const struct idem_lexer *lexer, size_t pos) {
    return pos < lexer->end ? lexer->text[pos] : 0;
}

static bool lexer_fault(struct idem_lexer *lexer, size_t pos, const char *what) {
    lexer->fault = what;
    lexer->fault_pos = pos;
    return false;
}

static bool lexer_end_token(struct idem_lexer *lexer, struct idem_token *token, int kind,
                            size_t end) {
    token->kind = (uint8_t)kind;
    token->len = (uint32_t)(end - token->pos);
    lexer->pos = end;
    return true;
}

static bool lex_name(struct idem_lexer *lexer, struct idem_token *token) {
    size_t end = lexer->pos;

    while (lex_is_letter(lexer_byte_at(lexer, end)) || idem_is_digit(lexer_byte_at(lexer, end)))
        end++;
    lexer_end_token(lexer, token, IDEM_TOKEN_NAME, end);
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        if (idem_same_ignoring_case(lexer->text + token->pos, token->len, words[i].text,
                                    strlen(words[i].text))) {
            token->kind = words[i].kind;
            token->word = true;
        }
    return true;
}

static bool lex_string(struct idem_lexer *lexer, struct idem_token *token) {
    char quote = lexer_byte_at(lexer, lexer->pos);

    for (size_t pos = lexer->pos + 1; pos < lexer->end; pos++) {
        if (lexer_byte_at(lexer, pos) != quote)
            continue;
        if (pos + 1 >= lexer->end || lexer_byte_at(lexer, pos + 1) != quote)
            return lexer_end_token(lexer, token, IDEM_TOKEN_STRING, pos + 1);
        pos++;
    }
    return lexer_fault(lexer, token->pos,
                       "the string is not ended; a quote in a string is written twice: 'it''s'");
}

static bool lex_hex(struct idem_lexer *lexer, struct idem_token *token) {
    size_t end = lexer->pos + 2;

    while (idem_hex_digit(lexer_byte_at(lexer, end)) >= 0)
        end++;
    if (end == lexer->pos + 2)
        return lexer_fault(lexer, token->pos, "0x without digits");
    if ((lexer_byte_at(lexer, end) | 0x20) == 'l')
        return lexer_end_token(lexer, token, IDEM_TOKEN_HEX_LONG, end + 1);
    return lexer_end_token(lexer, token, IDEM_TOKEN_HEX_INT, end);
}

/* The end of the exponent that begins at `pos`; 0 if it has no digits. */
static size_t lex_exponent_end(const struct idem_lexer *lexer, size_t pos) {
    pos++;
    if (lexer_byte_at(lexer, pos) == '+' || lexer_byte_at(lexer, pos) == '-')
        pos++;
    if (!idem_is_digit(lexer_byte_at(lexer, pos)))
        return 0;
    while (idem_is_digit(lexer_byte_at(lexer, pos)))
        pos++;
    return pos;
}

/* 1.5 is a number, but in 1.toString() the dot belongs to the method. */
static bool lex_number(struct idem_lexer *lexer, struct idem_token *token) {
    size_t end = lexer->pos;
    bool real = false;
    int suffix;

    if (lexer_byte_at(lexer, end) == '0' && (lexer_byte_at(lexer, end + 1) | 0x20) == 'x')
        return lex_hex(lexer, token);
    while (idem_is_digit(lexer_byte_at(lexer, end)))
        end++;
    if (lexer_byte_at(lexer, end) == '.') {
        if (!idem_is_digit(lexer_byte_at(lexer, end + 1)))
            return lexer_end_token(lexer, token, IDEM_TOKEN_INT, end);
        real = true;
        for (end++; idem_is_digit(lexer_byte_at(lexer, end));)
            end++;
    }
    if ((lexer_byte_at(lexer, end) | 0x20) == 'l')
        return real ? lexer_fault(lexer, token->pos, "L is for integers")
                    : lexer_end_token(lexer, token, IDEM_TOKEN_LONG, end + 1);
    if ((lexer_byte_at(lexer, end) | 0x20) == 'e') {
        real = true;
        end = lex_exponent_end(lexer, end);
        if (end == 0)
            return lexer_fault(lexer, token->pos, "the number has an exponent without digits");
    }
    suffix = lexer_byte_at(lexer, end) | 0x20;
    if (suffix == 'f')
        return lexer_end_token(lexer, token, IDEM_TOKEN_FLOAT, end + 1);
    if (suffix == 'd')
        return lexer_end_token(lexer, token, IDEM_TOKEN_DOUBLE, end + 1);
    return lexer_end_token(lexer, token, real ? IDEM_TOKEN_DOUBLE : IDEM_TOKEN_INT, end);
}

static bool lex_symbol(struct idem_lexer *lexer, struct idem_token *token) {
    for (size_t i = 0; i < sizeof(symbols) / sizeof(symbols[0]); i++) {
        const char *text = symbols[i].text;

        if (idem_begins(lexer->text + lexer->pos, lexer->end - lexer->pos, text))
            return lexer_end_token(lexer, token, symbols[i].kind, lexer->pos + strlen(text));
    }
    return lexer_fault(lexer, token->pos, "this character has no meaning here");
}

static bool lex_is_space(char c) {
    return c == ' ' || c == '\t' || c == '\r' || c == '\n' || c == 0;
}

bool idem_lex_next(struct idem_lexer *lexer, struct idem_token *ret) {
    char c;

    while (lexer->pos < lexer->end && lex_is_space(lexer_byte_at(lexer, lexer->pos)))
        lexer->pos++;
    *ret = (struct idem_token){.pos = (uint32_t)lexer->pos};
    if (lexer->pos == lexer->end)
        return lexer_end_token(lexer, ret, IDEM_TOKEN_END, lexer->pos);
    c = lexer_byte_at(lexer, lexer->pos);
    if (idem_is_digit(c))
        return lex_number(lexer, ret);
    if (c == '\'' || c == '"')
        return lex_string(lexer, ret);
    if (lex_is_letter(c) && !(c == '$' && lexer_byte_at(lexer, lexer->pos + 1) == '['))
        return lex_name(lexer, ret);
    return lex_symbol(lexer, ret);
}
