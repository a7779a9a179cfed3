/*
 * The parser: one pass over the text. The values of an unfinished array or object are on a stack,
 * and move into the arena together at its end.
 */
#include "json/json.h"

#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/error.h"
#include "base/hex.h"
#include "base/units.h"

/* Up to this many names, an insertion sort and a linear search are used; beyond it, qsort and a
   binary search. */
#define PAIRS_MAX 8

struct reader {
    const char *text, *at, *end;
    struct idem_arena *arena;
    struct idem_member *stack; /* items of arrays use only the value */
    size_t depth_n, stack_n, stack_size;
    struct idem_error *err;
};

/* Reports an error with line and column (in characters), both from 1. */
static int reader_fail_at(struct reader *r, const char *at, const char *what) {
    size_t line = 1, column = 1;

    for (const char *p = r->text; p < at; p++) {
        if (*p == '\n') {
            line++;
            column = 1;
        } else if (((unsigned char)*p & 0xc0) != 0x80) {
            column++;
        }
    }
    return idem_error_set(r->err, IDEM_E_INVALID, "JSON, line %zu, column %zu: %s", line, column,
                          what);
}

static int reader_fail(struct reader *r, const char *what) {
    return reader_fail_at(r, r->at, r->at == r->end ? "the document ends too early" : what);
}

static void *reader_alloc(struct reader *r, size_t size, int *ret_rc) {
    void *at = idem_arena_alloc(r->arena, size);

    if (at == NULL)
        *ret_rc = idem_arena_spent(r->arena, size)
                      ? reader_fail_at(r, r->at, "the document needs more memory than is allowed")
                      : idem_error_set(r->err, IDEM_E_NOMEM, "no memory to read JSON");
    return at;
}

static void reader_skip_space(struct reader *r) {
    while (r->at < r->end && (*r->at == ' ' || *r->at == '\n' || *r->at == '\t' || *r->at == '\r'))
        r->at++;
}

/* Strings. */

/* True if none of eight bytes ends a string, begins an escape, is a control character or is not
   ASCII. */
static bool json_is_plain8(const char *at) {
    const uint64_t ones = 0x0101010101010101u, high = 0x8080808080808080u;
    uint64_t w, quote, escape;

    memcpy(&w, at, sizeof(w));
    quote = w ^ (ones * '"');
    escape = w ^ (ones * '\\');
    return ((w | (w - ones * 0x20) | (quote - ones) | (escape - ones)) & high) == 0;
}

/* Skips plain text up to a quote or an escape. */
static int reader_scan_plain(struct reader *r, bool *ascii) {
    for (;;) {
        uint32_t code;
        size_t n;

        while (r->end - r->at >= 8 && json_is_plain8(r->at))
            r->at += 8;
        if (r->at == r->end)
            return reader_fail(r, "");
        if (*r->at == '"' || *r->at == '\\')
            return 0;
        if ((unsigned char)*r->at < 0x20)
            return reader_fail(r, "a control character in a string must be written as \\u00XX");
        n = idem_utf8_next(r->at, (size_t)(r->end - r->at), &code);
        if (n == 0)
            return reader_fail(r, "a string has bytes that are not UTF-8");
        *ascii &= n == 1;
        r->at += n;
    }
}

static int reader_hex4(struct reader *r, uint32_t *ret) {
    uint32_t code = 0;

    if (r->end - r->at < 4)
        return reader_fail_at(r, r->end, "the document ends too early");
    for (int i = 0; i < 4; i++) {
        int digit = idem_hex_digit(r->at[i]);

        if (digit < 0)
            return reader_fail(r, "\\u needs four hexadecimal digits");
        code = code << 4 | (uint32_t)digit;
    }
    r->at += 4;
    *ret = code;
    return 0;
}

/* Decodes the digits after \u; a pair of surrogates is one character. */
static int reader_unescape_code(struct reader *r, uint32_t *ret) {
    const char *begin = r->at;
    uint32_t low = 0;
    int rc = reader_hex4(r, ret);

    if (rc != 0 || *ret < 0xd800 || *ret > 0xdfff)
        return rc;
    if (*ret >= 0xdc00 || r->end - r->at < 2 || r->at[0] != '\\' || r->at[1] != 'u')
        return reader_fail_at(r, begin, "half a surrogate pair: no character");
    r->at += 2;
    rc = reader_hex4(r, &low);
    if (rc != 0)
        return rc;
    if (low < 0xdc00 || low > 0xdfff)
        return reader_fail_at(r, begin, "half a surrogate pair: no character");
    *ret = 0x10000 + ((*ret - 0xd800) << 10) + (low - 0xdc00);
    return 0;
}

/* Decodes the escape after a backslash. */
static int reader_unescape(struct reader *r, char **out, bool *ascii) {
    static const char names[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
    const char *found;
    uint32_t code;
    int rc;

    if (r->at == r->end)
        return reader_fail(r, "");
    if (*r->at == 'u') {
        r->at++;
        rc = reader_unescape_code(r, &code);
        if (rc != 0)
            return rc;
        *ascii &= code < 0x80;
        *out += idem_utf8_put(code, *out);
        return 0;
    }
    found = *r->at == '\0' ? NULL : strchr(names, *r->at);
    if (found == NULL)
        return reader_fail(
            r, "there is no such escape; allowed: \\\" \\\\ \\/ \\b \\f \\n \\r \\t \\uXXXX");
    *(*out)++ = values[found - names];
    r->at++;
    return 0;
}

/* Decodes a string from its first escape on. Decoded text is never longer than its escaped form. */
static int reader_read_escaped(struct reader *r, const char *begin, struct idem_json *ret) {
    const char *quote = r->at;
    char *out, *to;
    bool ascii = ret->flag;
    int rc = 0;

    while (quote < r->end && *quote != '"')
        quote += *quote == '\\' && r->end - quote > 1 ? 2 : 1;
    out = to = reader_alloc(r, (size_t)(quote - begin) + 1, &rc);
    if (out == NULL)
        return rc;
    for (;;) {
        memcpy(to, begin, (size_t)(r->at - begin));
        to += r->at - begin;
        if (*r->at++ == '"')
            break;
        rc = reader_unescape(r, &to, &ascii);
        if (rc != 0)
            return rc;
        begin = r->at;
        rc = reader_scan_plain(r, &ascii);
        if (rc != 0)
            return rc;
    }
    ret->at.text = out;
    ret->n = (uint32_t)(to - out);
    ret->flag = ascii;
    return 0;
}

/* Begins at the opening quote. */
static int reader_read_string(struct reader *r, struct idem_json *ret) {
    const char *begin = ++r->at;
    bool ascii = true;
    int rc = reader_scan_plain(r, &ascii);

    if (rc != 0)
        return rc;
    *ret = (struct idem_json){
        .type = IDEM_JSON_STRING, .flag = ascii, .n = (uint32_t)(r->at - begin), .at.text = begin};
    if (*r->at == '\\')
        return reader_read_escaped(r, begin, ret);
    r->at++;
    return 0;
}

/* Numbers and words. */

static bool reader_at_digit(const struct reader *r) {
    return r->at < r->end && idem_is_digit(*r->at);
}

static int reader_skip_digits(struct reader *r) {
    if (!reader_at_digit(r))
        return reader_fail(r, "a number needs a digit here");
    while (reader_at_digit(r))
        r->at++;
    return 0;
}

static int reader_read_number(struct reader *r, struct idem_json *ret) {
    const char *begin = r->at;
    bool integer = true;
    int rc;

    r->at += *r->at == '-';
    if (r->at < r->end && *r->at == '0') {
        r->at++;
        if (reader_at_digit(r))
            return reader_fail(r, "a number must not begin with 0");
    } else if ((rc = reader_skip_digits(r)) != 0) {
        return rc;
    }
    if (r->at < r->end && *r->at == '.') {
        integer = false;
        r->at++;
        if ((rc = reader_skip_digits(r)) != 0)
            return rc;
    }
    if (r->at < r->end && (*r->at | 0x20) == 'e') {
        integer = false;
        r->at++;
        r->at += r->at < r->end && (*r->at == '+' || *r->at == '-');
        if ((rc = reader_skip_digits(r)) != 0)
            return rc;
    }
    *ret = (struct idem_json){.type = IDEM_JSON_NUMBER,
                              .flag = integer,
                              .n = (uint32_t)(r->at - begin),
                              .at.text = begin};
    return 0;
}

static int reader_read_word(struct reader *r, struct idem_json *ret) {
    static const struct {
        const char *word;
        struct idem_json value;
    } words[] = {
        {"null", {.type = IDEM_JSON_NULL}},
        {"true", {.type = IDEM_JSON_BOOL, .flag = true}},
        {"false", {.type = IDEM_JSON_BOOL}},
    };

    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        if (idem_begins(r->at, (size_t)(r->end - r->at), words[i].word)) {
            r->at += strlen(words[i].word);
            *ret = words[i].value;
            return 0;
        }
    }
    return reader_fail(r, "a value is expected here");
}

/* Arrays and objects. */

static int reader_push(struct reader *r, const struct idem_member *member) {
    if (r->stack_n == r->stack_size) {
        size_t size = r->stack_size == 0 ? 64 : 2 * r->stack_size;
        struct idem_member *stack = realloc(r->stack, size * sizeof(*stack));

        if (stack == NULL)
            return idem_error_set(r->err, IDEM_E_NOMEM, "no memory to read JSON");
        r->stack = stack;
        r->stack_size = size;
    }
    r->stack[r->stack_n++] = *member;
    return 0;
}

static int reader_read_value(struct reader *r, struct idem_json *ret);

/* After an item, skips the comma or the closing bracket. Sets *ret if another item follows. */
static int reader_list_continues(struct reader *r, char close, bool *ret) {
    reader_skip_space(r);
    if (r->at == r->end)
        return reader_fail(r, "");
    *ret = *r->at == ',';
    if (!*ret && *r->at != close)
        return reader_fail(r, close == ']' ? "a comma or ] is expected here"
                                           : "a comma or } is expected here");
    r->at++;
    if (*ret)
        reader_skip_space(r);
    return 0;
}

static int reader_store_items(struct reader *r, size_t first, struct idem_json *ret) {
    size_t n = r->stack_n - first;
    struct idem_json *items;
    int rc = 0;

    *ret = (struct idem_json){.type = IDEM_JSON_ARRAY, .n = (uint32_t)n};
    if (n == 0)
        return 0;
    items = reader_alloc(r, n * sizeof(*items), &rc);
    if (items == NULL)
        return rc;
    for (size_t i = 0; i < n; i++)
        items[i] = r->stack[first + i].value;
    ret->at.items = items;
    r->stack_n = first;
    return 0;
}

static int member_compare(const struct idem_member *a, const struct idem_member *b) {
    return idem_utf16_cmp(a->name, a->len, b->name, b->len);
}

static int json_order_compare(const void *a, const void *b, void *members) {
    return member_compare((struct idem_member *)members + *(const uint32_t *)a,
                          (struct idem_member *)members + *(const uint32_t *)b);
}

static void json_order_insert(uint32_t *order, uint32_t n, const struct idem_member *members) {
    for (uint32_t i = 1; i < n; i++) {
        uint32_t at = i, moved = order[i];

        while (at > 0 && member_compare(&members[order[at - 1]], &members[moved]) > 0) {
            order[at] = order[at - 1];
            at--;
        }
        order[at] = moved;
    }
}

/* Sorts the members by name; false if two names are equal. */
static bool json_order_make(uint32_t *order, uint32_t n, const struct idem_member *members) {
    for (uint32_t i = 0; i < n; i++)
        order[i] = i;
    if (n <= PAIRS_MAX)
        json_order_insert(order, n, members);
    else
        qsort_r(order, n, sizeof(*order), json_order_compare, (void *)members);
    for (uint32_t i = 1; i < n; i++)
        if (member_compare(&members[order[i - 1]], &members[order[i]]) == 0)
            return false;
    return true;
}

static int reader_store_members(struct reader *r, size_t first, struct idem_json *ret) {
    uint32_t n = (uint32_t)(r->stack_n - first);
    struct idem_object *object;
    struct idem_member *members;
    uint32_t *order;
    int rc = 0;

    *ret = (struct idem_json){.type = IDEM_JSON_OBJECT, .n = n};
    if (n == 0)
        return 0;
    object = reader_alloc(r, sizeof(*object) + n * (sizeof(*members) + sizeof(*order)), &rc);
    if (object == NULL)
        return rc;
    members = (struct idem_member *)(object + 1);
    order = (uint32_t *)(members + n);
    memcpy(members, r->stack + first, n * sizeof(*members));
    if (!json_order_make(order, n, members))
        return reader_fail_at(r, r->at - 1, "the object that ends here has a name twice");
    *object = (struct idem_object){members, order};
    ret->at.object = object;
    r->stack_n = first;
    return 0;
}

static int reader_read_member(struct reader *r, struct idem_member *ret) {
    struct idem_json name;
    int rc;

    if (r->at == r->end || *r->at != '"')
        return reader_fail(r, "a name in quotes is expected here");
    rc = reader_read_string(r, &name);
    if (rc != 0)
        return rc;
    ret->name = name.at.text;
    ret->len = name.n;
    reader_skip_space(r);
    if (r->at == r->end || *r->at != ':')
        return reader_fail(r, "a colon is expected here");
    r->at++;
    reader_skip_space(r);
    return reader_read_value(r, &ret->value);
}

/* An array or an object. */
static int reader_read_list(struct reader *r, struct idem_json *ret) {
    bool array = *r->at == '[', more;
    char close = array ? ']' : '}';
    size_t first = r->stack_n;
    struct idem_member member = {0};
    int rc;

    r->at++;
    reader_skip_space(r);
    more = r->at == r->end || *r->at != close;
    if (!more)
        r->at++;
    while (more) {
        rc = array ? reader_read_value(r, &member.value) : reader_read_member(r, &member);
        if (rc != 0 || (rc = reader_push(r, &member)) != 0 ||
            (rc = reader_list_continues(r, close, &more)) != 0)
            return rc;
    }
    return array ? reader_store_items(r, first, ret) : reader_store_members(r, first, ret);
}

static int reader_read_nested(struct reader *r, struct idem_json *ret) {
    int rc;

    if (r->depth_n == IDEM_JSON_DEPTH_MAX)
        return reader_fail(r, "arrays and objects lie more than 256 deep");
    r->depth_n++;
    rc = reader_read_list(r, ret);
    r->depth_n--;
    return rc;
}

static int reader_read_value(struct reader *r, struct idem_json *ret) {
    if (r->at == r->end)
        return reader_fail(r, "");
    switch (*r->at) {
    case '[':
    case '{':
        return reader_read_nested(r, ret);
    case '"':
        return reader_read_string(r, ret);
    case '-':
    case '0' ... '9':
        return reader_read_number(r, ret);
    default:
        return reader_read_word(r, ret);
    }
}

int idem_json_parse(const char *text, size_t len, struct idem_arena *arena, struct idem_json *ret,
                    struct idem_error *err) {
    struct reader r = {.text = text, .at = text, .end = text + len, .arena = arena, .err = err};
    int rc;

    if (len > UINT32_MAX)
        return idem_error_set(err, IDEM_E_INVALID, "JSON: a document of more than 4 GiB");
    reader_skip_space(&r);
    rc = reader_read_value(&r, ret);
    free(r.stack);
    reader_skip_space(&r);
    if (rc == 0 && r.at != r.end)
        rc = reader_fail(&r, "the document has ended before this");
    return rc;
}

const struct idem_json *idem_json_get(const struct idem_json *value, const char *name, size_t len) {
    const struct idem_object *object = value->at.object;
    uint32_t low = 0, high = value->n;

    if (value->type != IDEM_JSON_OBJECT)
        return NULL;
    if (high <= PAIRS_MAX) {
        for (uint32_t i = 0; i < high; i++)
            if (idem_same(object->members[i].name, object->members[i].len, name, len))
                return &object->members[i].value;
        return NULL;
    }
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        const struct idem_member *member = &object->members[object->order[middle]];
        int cmp = idem_utf16_cmp(name, len, member->name, member->len);

        if (cmp == 0)
            return &member->value;
        if (cmp < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return NULL;
}
