/*
 * Errors of expressions: the error, its column, and the expression with a caret under the place. A
 * long expression is shown in part, so that the message fits struct idem_error.
 */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/units.h"
#include "base/visible.h"
#include "expr/expr.h"
#include "expr/expr_error.h"
#include "expr/expr_print.h"

#define BEFORE 32 /* characters shown before the place; AFTER counts those after it */
#define AFTER 24
#define SHOWN 256 /* bytes */

static const char *const texts[IDEM_TROUBLE_COUNT] = {
    [IDEM_FINE] = "nothing is wrong",
    [IDEM_TROUBLE_MEMORY] = "no memory",
    [IDEM_TROUBLE_SPACE] = "this needs more memory than an evaluation may use",
    [IDEM_TROUBLE_STEPS] = "this takes more steps than the million that an evaluation has",
    [IDEM_TROUBLE_SIZE] = "the text gets longer than 1 MiB, the most that an evaluation makes",
    [IDEM_TROUBLE_DEPTH] = "the lists are nested deeper than 512 levels",
    [IDEM_TROUBLE_OF_NULL] = "a member of null; ?. instead of . gives null then",
    [IDEM_TROUBLE_BARE] = "a name without # is no variable: there is nothing here to read it of",
    [IDEM_TROUBLE_NO_MEMBER] =
        "the object has no such member; ['name'] instead of .name gives null then",
    [IDEM_TROUBLE_NOT_OBJECT] = "a member of something that is no object",
    [IDEM_TROUBLE_CALL_NULL] = "a method of null; ?. instead of . gives null then",
    [IDEM_TROUBLE_NO_METHOD] = "the value has no such method",
    [IDEM_TROUBLE_ARGUMENT] = "the method does not take such an argument",
    [IDEM_TROUBLE_RANGE] = "beyond the end, or before the beginning",
    [IDEM_TROUBLE_NOT_INDEX] = "this is no index; a list and a text want an integer",
    [IDEM_TROUBLE_NOT_INDEXED] = "[] of something that is neither list, object nor text",
    [IDEM_TROUBLE_INDEX_NULL] = "[] of null; there is no ?[], but (... ?: {:})['name'] is allowed",
    [IDEM_TROUBLE_NOT_LIST] = "this wants a list or an object",
    [IDEM_TROUBLE_CRITERION] = "a selection wants true or false for each item",
    [IDEM_TROUBLE_OPERANDS] = "the operator does not take values of these types",
    [IDEM_TROUBLE_ORDER] = "values of these types have no order",
    [IDEM_TROUBLE_TWO_ITEMS] = "between wants a list of two, as in {1, 9}",
    [IDEM_TROUBLE_ZERO] = "division of an integer by zero",
    [IDEM_TROUBLE_TRUTH] = "this is neither true nor false",
    [IDEM_TROUBLE_TEXT] = "this has no text: an object, or a list of objects",
    [IDEM_TROUBLE_PATTERN] = "matches wants two texts, the second a pattern",
    [IDEM_TROUBLE_SURROGATE] = "this cuts a character beyond U+FFFF in two, which is refused",
    [IDEM_TROUBLE_CASE] = "the text has characters whose upper or lower case is not plain; refused",
    [IDEM_TROUBLE_LOOSE] = "the selected members of an object have no order to go by",
    [IDEM_TROUBLE_BIG] = "integers beyond 64 bits are compared and printed, not calculated with",
    [IDEM_TROUBLE_POWER] = "the last digit of this power would depend on the machine",
    [IDEM_TROUBLE_ENTRY] = "an entry of an object is no value of its own; take its key or value",
    [IDEM_TROUBLE_PATTERN_KIND] =
        "the pattern is wrong, or has more than literals, classes, groups, | and quantifiers",
    [IDEM_TROUBLE_PATTERN_WORK] = "the pattern takes too many steps on this text",
    [IDEM_TROUBLE_KEY_NULL] =
        "null, which must not be part of a key; give a value to use instead: (... ?: 'none')",
    [IDEM_TROUBLE_KEY_OBJECT] = "an object cannot be part of a key; name the members that count",
    [IDEM_TROUBLE_KEY_LIST] = "an empty list cannot be part of a key",
    [IDEM_TROUBLE_KEY_EMPTY] = "the key is empty; give a value to use instead: ... ?: 'none'",
    [IDEM_TROUBLE_KEY_LONG] = "the key is longer than 4096 bytes",
    [IDEM_TROUBLE_KEY_FINITE] = "a number beyond all bounds cannot be part of a key",
    [IDEM_TROUBLE_KEY_DIGITS] =
        "a number with more digits than a double keeps: in a key it would be taken for another",
    [IDEM_TROUBLE_KEY_OVERFLOW] =
        "the integer overflows, and in a key it would be taken for another",
    [IDEM_TROUBLE_KEY_EXACT] =
        "an integer that a double does not keep: in a key it would be taken for another",
    [IDEM_TROUBLE_KEY_PRINTED] =
        "the text of a list or object may be another's too; in a key, use the list itself",
    [IDEM_TROUBLE_KEY_ORDER] =
        "the members of an object have no order, so a key cannot go by it; name those that count",
    [IDEM_TROUBLE_SELECT_MAP] =
        "an object that the expression makes cannot be compared; name its parts in a list, {a, b}",
};

_Static_assert(IDEM_EXPR_STEPS_MAX == 1000000, "a text has this limit");
_Static_assert(IDEM_EXPR_TEXT_MAX == 1048576, "a text has this limit");

const char *idem_trouble_text(int trouble) {
    return texts[trouble];
}

int idem_trouble_code(int trouble) {
    return trouble == IDEM_TROUBLE_MEMORY ? IDEM_E_NOMEM : IDEM_E_INVALID;
}

/* The start of the character before `pos`, in text that may not be UTF-8. */
static size_t report_char_before(const char *text, size_t pos) {
    do
        pos--;
    while (pos > 0 && ((unsigned char)text[pos] & 0xc0) == 0x80);
    return pos;
}

static size_t report_char_after(const char *text, size_t len, size_t pos) {
    do
        pos++;
    while (pos < len && ((unsigned char)text[pos] & 0xc0) == 0x80);
    return pos;
}

static size_t report_count_chars(const char *text, size_t len) {
    size_t n = 0;

    for (size_t pos = 0; pos < len; n++)
        pos = report_char_after(text, len, pos);
    return n;
}

/* Copies printable text for one line: a space replaces invisible characters, '?' bytes that are not
   UTF-8. */
static size_t report_copy_visible(char *out, size_t at, const char *text, size_t from, size_t to) {
    uint32_t c;
    size_t n;

    for (size_t pos = from; pos < to && at < SHOWN - 8; pos += n == 0 ? 1 : n) {
        n = idem_utf8_next(text + pos, to - pos, &c);
        if (n == 0 || !idem_visible(c)) {
            out[at++] = n == 0 ? '?' : ' ';
        } else {
            memcpy(out + at, text + pos, n);
            at += n;
        }
    }
    return at;
}

int idem_expr_report(struct idem_error *err, int code, const char *text, size_t len, size_t pos,
                     const char *what) {
    char shown[SHOWN];
    size_t from = pos, to = pos, at = 0, indent;

    for (int i = 0; i < BEFORE && from > 0; i++)
        from = report_char_before(text, from);
    for (int i = 0; i < AFTER && to < len; i++)
        to = report_char_after(text, len, to);
    if (from > 0)
        at = (size_t)snprintf(shown, sizeof(shown), "...");
    indent = at + report_count_chars(text + from, pos - from);
    at = report_copy_visible(shown, at, text, from, to);
    if (to < len)
        at += (size_t)snprintf(shown + at, sizeof(shown) - at, "...");
    shown[at] = '\0';
    return idem_error_fill(err, code, "column %zu: %s\n%s\n%*s^", report_count_chars(text, pos) + 1,
                           what, shown, (int)indent, "");
}
