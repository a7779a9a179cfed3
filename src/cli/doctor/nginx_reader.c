/*
 * Reads nginx's syntax in place: a word is never longer than its source. Cannot fail: a text that
 * is not nginx's ends early, or gives odd words.
 */
#include "cli/doctor/nginx_reader.h"

#include <string.h>

static bool nginx_reader_is_space(char c) {
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

/* Skips spaces and comments. */
static void nginx_reader_skip_space(struct nginx_reader *r) {
    while (r->at < r->end) {
        if (*r->at == '#')
            while (r->at < r->end && *r->at != '\n')
                r->at++;
        else if (nginx_reader_is_space(*r->at))
            r->at++;
        else
            return;
    }
}

/* The character that nginx makes of a backslash and `c`; false: both stay as they are. */
static bool nginx_reader_unescape(char c, char *ret) {
    static const char from[] = "\"'\\trn", to[] = "\"'\\\t\r\n";
    const char *found = c == '\0' ? NULL : strchr(from, c);

    if (found == NULL)
        return false;
    *ret = to[found - from];
    return true;
}

/* Copies one character, which a backslash may escape, to *to, and moves both positions. */
static void nginx_reader_take_character(struct nginx_reader *r, char **to) {
    char c;

    if (*r->at == '\\' && r->at + 1 < r->end) {
        if (nginx_reader_unescape(r->at[1], &c)) {
            *(*to)++ = c;
            r->at += 2;
            return;
        }
        *(*to)++ = *r->at++;
    }
    *(*to)++ = *r->at++;
}

/* Reads a word, and writes a NUL at its end; *ret_ends is the character that ended it. NULL: the
   text ends within the word. */
static char *nginx_reader_word(struct nginx_reader *r, char *ret_ends) {
    char quote = *r->at == '"' || *r->at == '\'' ? *r->at++ : '\0', *begin = r->at, *to = begin;
    bool variable = false; /* ${ opens no block */

    for (; r->at < r->end; nginx_reader_take_character(r, &to)) {
        if (quote != '\0'
                ? *r->at == quote
                : nginx_reader_is_space(*r->at) || *r->at == ';' || (*r->at == '{' && !variable))
            break;
        variable = *r->at == '$';
    }
    if (r->at >= r->end)
        return NULL;
    *ret_ends = *r->at++;
    *to = '\0';
    return begin;
}

/* Skips to behind the brace that closes the block. */
static void nginx_reader_skip_block(struct nginx_reader *r) {
    for (int depth = 1; r->at < r->end && depth > 0; r->at++)
        depth += (*r->at == '{') - (*r->at == '}');
}

static bool nginx_reader_is_lua(const char *name) {
    static const char end[] = "_by_lua_block";
    size_t len = strlen(name);

    return len >= strlen(end) && strcmp(name + len - strlen(end), end) == 0;
}

/* Returns true if `c` ends the directive, which has words by then; false: another word follows. */
static bool nginx_reader_directive_ends(struct nginx_reader *r, char c,
                                        const struct nginx_said *directive, enum nginx_what *ret) {
    if (c == ';') {
        *ret = NGINX_DIRECTIVE;
        return true;
    }
    if (c != '{')
        return false;
    *ret = NGINX_BLOCK;
    if (nginx_reader_is_lua(directive->words[0])) {
        nginx_reader_skip_block(r);
        *ret = NGINX_DIRECTIVE;
    }
    return true;
}

enum nginx_what nginx_next(struct nginx_reader *r, struct nginx_said *ret) {
    enum nginx_what what;
    char end, *next;

    ret->n = 0;
    for (;;) {
        nginx_reader_skip_space(r);
        if (r->at >= r->end)
            return NGINX_END;
        if (*r->at == '}' && ret->n == 0) {
            r->at++;
            return NGINX_BLOCK_END;
        }
        end = *r->at;
        if (end == ';' || end == '{') {
            r->at++;
            if (ret->n != 0 && nginx_reader_directive_ends(r, end, ret, &what))
                return what;
            continue; /* a block or directive without a name */
        }
        next = nginx_reader_word(r, &end);
        if (next == NULL)
            return NGINX_END;
        if (ret->n < NGINX_WORDS_MAX)
            ret->words[ret->n++] = next;
        if (nginx_reader_directive_ends(r, end, ret, &what))
            return what;
    }
}
