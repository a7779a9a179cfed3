/*
 * Reads nginx's syntax in place: what is written is never longer than what was read. Cannot fail: a
 * text that is none of nginx's ends early, or has odd words.
 */
#include "cli/doctor/reader.h"

#include <string.h>

static bool is_space(char c) {
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

/* Spaces and comments. */
static void skip(struct nginx_reader *r) {
    while (r->at < r->end) {
        if (*r->at == '#')
            while (r->at < r->end && *r->at != '\n')
                r->at++;
        else if (is_space(*r->at))
            r->at++;
        else
            return;
    }
}

/* The character behind a backslash, as nginx takes it; false: both stay as they are. */
static bool escaped(char c, char *ret) {
    static const char from[] = "\"'\\trn", to[] = "\"'\\\t\r\n";
    const char *found = c == '\0' ? NULL : strchr(from, c);

    if (found == NULL)
        return false;
    *ret = to[found - from];
    return true;
}

/* One character, which a backslash may stand before; where it is put, and what follows. */
static void take(struct nginx_reader *r, char **to) {
    char c;

    if (*r->at == '\\' && r->at + 1 < r->end) {
        if (escaped(r->at[1], &c)) {
            *(*to)++ = c;
            r->at += 2;
            return;
        }
        *(*to)++ = *r->at++;
    }
    *(*to)++ = *r->at++;
}

/* A word, which ends in a NUL where what ends it stood; that is in *ret_ends. NULL: the text ends
   before it does. */
static char *word(struct nginx_reader *r, char *ret_ends) {
    char quote = *r->at == '"' || *r->at == '\'' ? *r->at++ : '\0', *begin = r->at, *to = begin;
    bool variable = false; /* ${ opens no block */

    for (; r->at < r->end; take(r, &to)) {
        if (quote != '\0' ? *r->at == quote
                          : is_space(*r->at) || *r->at == ';' || (*r->at == '{' && !variable))
            break;
        variable = *r->at == '$';
    }
    if (r->at >= r->end)
        return NULL;
    *ret_ends = *r->at++;
    *to = '\0';
    return begin;
}

/* To behind the brace that closes what was opened. */
static void pass_over(struct nginx_reader *r) {
    for (int depth = 1; r->at < r->end && depth > 0; r->at++)
        depth += (*r->at == '{') - (*r->at == '}');
}

static bool is_lua(const char *name) {
    static const char end[] = "_by_lua_block";
    size_t len = strlen(name);

    return len >= strlen(end) && strcmp(name + len - strlen(end), end) == 0;
}

/* What ends a directive, once it has words; false: another word. */
static bool ends(struct nginx_reader *r, char c, const struct nginx_said *said,
                 enum nginx_what *ret) {
    if (c == ';') {
        *ret = NGINX_DIRECTIVE;
        return true;
    }
    if (c != '{')
        return false;
    *ret = NGINX_BLOCK;
    if (is_lua(said->words[0])) {
        pass_over(r);
        *ret = NGINX_DIRECTIVE;
    }
    return true;
}

enum nginx_what nginx_next(struct nginx_reader *r, struct nginx_said *ret) {
    enum nginx_what what;
    char end, *next;

    ret->n = 0;
    for (;;) {
        skip(r);
        if (r->at >= r->end)
            return NGINX_END;
        if (*r->at == '}' && ret->n == 0) {
            r->at++;
            return NGINX_BLOCK_END;
        }
        end = *r->at;
        if (end == ';' || end == '{') {
            r->at++;
            if (ret->n != 0 && ends(r, end, ret, &what))
                return what;
            continue; /* one without a name */
        }
        next = word(r, &end);
        if (next == NULL)
            return NGINX_END;
        if (ret->n < NGINX_WORDS_MAX)
            ret->words[ret->n++] = next;
        if (ends(r, end, ret, &what))
            return what;
    }
}
