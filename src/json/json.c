/*
 * The reader: one pass over the text. Values of the array or object being read
 * gather on a stack, and move into the arena together when it ends.
 */
#include "json/json.h"

#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/units.h"

/* Up to this many names are compared with each other; more are sorted first. */
#define PAIRS_MAX 8

struct reader {
    const char *text, *at, *end;
    struct idem_arena *arena;
    struct idem_member *stack; /* items use the value alone */
    size_t depth_n, stack_n, stack_size;
    struct idem_error *err;
};

/* Where something is wrong: lines and columns (in characters) from 1. */
static int fail_at(struct reader *r, const char *at, const char *what) {
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

static int fail(struct reader *r, const char *what) {
    return fail_at(r, r->at, r->at == r->end ? "the document ends too early" : what);
}

static void *take(struct reader *r, size_t size, int *ret_rc) {
    void *at = idem_arena_alloc(r->arena, size);

    if (at == NULL)
        *ret_rc = idem_arena_spent(r->arena, size)
                      ? fail_at(r, r->at, "the document needs more memory than is allowed")
                      : idem_error_set(r->err, IDEM_E_NOMEM, "no memory to read JSON");
    return at;
}

static void skip_space(struct reader *r) {
    while (r->at < r->end && (*r->at == ' ' || *r->at == '\n' || *r->at == '\t' || *r->at == '\r'))
        r->at++;
}

/* Strings. */

/* Eight bytes none of which ends a string, begins an escape, is a control or is not ASCII. */
static bool plain8(const char *at) {
    const uint64_t ones = 0x0101010101010101u, high = 0x8080808080808080u;
    uint64_t w, quote, escape;

    memcpy(&w, at, sizeof(w));
    quote = w ^ (ones * '"');
    escape = w ^ (ones * '\\');
    return ((w | (w - ones * 0x20) | (quote - ones) | (escape - ones)) & high) == 0;
}

/* Moves over plain text up to a quote or an escape. */
static int scan_plain(struct reader *r, bool *ascii) {
    for (;;) {
        uint32_t code;
        size_t n;

        while (r->end - r->at >= 8 && plain8(r->at))
            r->at += 8;
        if (r->at == r->end)
            return fail(r, "");
        if (*r->at == '"' || *r->at == '\\')
            return 0;
        if ((unsigned char)*r->at < 0x20)
            return fail(r, "a control character in a string must be written as \\u00XX");
        n = idem_utf8_next(r->at, (size_t)(r->end - r->at), &code);
        if (n == 0)
            return fail(r, "a string has bytes that are not UTF-8");
        *ascii &= n == 1;
        r->at += n;
    }
}

static int hex4(struct reader *r, uint32_t *ret) {
    uint32_t code = 0;

    if (r->end - r->at < 4)
        return fail_at(r, r->end, "the document ends too early");
    for (int i = 0; i < 4; i++) {
        char c = r->at[i];
        uint32_t digit;

        if (c >= '0' && c <= '9')
            digit = (uint32_t)(c - '0');
        else if ((c | 0x20) >= 'a' && (c | 0x20) <= 'f')
            digit = (uint32_t)((c | 0x20) - 'a' + 10);
        else
            return fail(r, "\\u needs four hexadecimal digits");
        code = code << 4 | digit;
    }
    r->at += 4;
    *ret = code;
    return 0;
}

/* At the digits behind \u; a pair of surrogates is one character. */
static int unescape_code(struct reader *r, uint32_t *ret) {
    const char *begin = r->at;
    uint32_t low = 0;
    int rc = hex4(r, ret);

    if (rc != 0 || *ret < 0xd800 || *ret > 0xdfff)
        return rc;
    if (*ret >= 0xdc00 || r->end - r->at < 2 || r->at[0] != '\\' || r->at[1] != 'u')
        return fail_at(r, begin, "half a surrogate pair: no character");
    r->at += 2;
    rc = hex4(r, &low);
    if (rc != 0)
        return rc;
    if (low < 0xdc00 || low > 0xdfff)
        return fail_at(r, begin, "half a surrogate pair: no character");
    *ret = 0x10000 + ((*ret - 0xd800) << 10) + (low - 0xdc00);
    return 0;
}

/* Behind a backslash. */
static int unescape(struct reader *r, char **out, bool *ascii) {
    static const char names[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
    const char *found;
    uint32_t code;
    int rc;

    if (r->at == r->end)
        return fail(r, "");
    if (*r->at == 'u') {
        r->at++;
        rc = unescape_code(r, &code);
        if (rc != 0)
            return rc;
        *ascii &= code < 0x80;
        *out += idem_utf8_put(code, *out);
        return 0;
    }
    found = *r->at == '\0' ? NULL : strchr(names, *r->at);
    if (found == NULL)
        return fail(r,
                    "there is no such escape; allowed: \\\" \\\\ \\/ \\b \\f \\n \\r \\t \\uXXXX");
    *(*out)++ = values[found - names];
    r->at++;
    return 0;
}

/* From the first escape on: decoded text is never longer than what it was written as. */
static int read_escaped(struct reader *r, const char *begin, struct idem_json *ret) {
    const char *quote = r->at;
    char *out, *to;
    bool ascii = ret->flag;
    int rc = 0;

    while (quote < r->end && *quote != '"')
        quote += *quote == '\\' && r->end - quote > 1 ? 2 : 1;
    out = to = take(r, (size_t)(quote - begin) + 1, &rc);
    if (out == NULL)
        return rc;
    for (;;) {
        memcpy(to, begin, (size_t)(r->at - begin));
        to += r->at - begin;
        if (*r->at++ == '"')
            break;
        rc = unescape(r, &to, &ascii);
        if (rc != 0)
            return rc;
        begin = r->at;
        rc = scan_plain(r, &ascii);
        if (rc != 0)
            return rc;
    }
    ret->at.text = out;
    ret->n = (uint32_t)(to - out);
    ret->flag = ascii;
    return 0;
}

/* At the opening quote. */
static int read_string(struct reader *r, struct idem_json *ret) {
    const char *begin = ++r->at;
    bool ascii = true;
    int rc = scan_plain(r, &ascii);

    if (rc != 0)
        return rc;
    *ret = (struct idem_json){
        .type = IDEM_JSON_STRING, .flag = ascii, .n = (uint32_t)(r->at - begin), .at.text = begin};
    if (*r->at == '\\')
        return read_escaped(r, begin, ret);
    r->at++;
    return 0;
}

/* Numbers and words. */

static bool digit_at(const struct reader *r) {
    return r->at < r->end && *r->at >= '0' && *r->at <= '9';
}

static int digits(struct reader *r) {
    if (!digit_at(r))
        return fail(r, "a number needs a digit here");
    while (digit_at(r))
        r->at++;
    return 0;
}

static int read_number(struct reader *r, struct idem_json *ret) {
    const char *begin = r->at;
    bool integer = true;
    int rc;

    r->at += *r->at == '-';
    if (r->at < r->end && *r->at == '0') {
        r->at++;
        if (digit_at(r))
            return fail(r, "a number must not begin with 0");
    } else if ((rc = digits(r)) != 0) {
        return rc;
    }
    if (r->at < r->end && *r->at == '.') {
        integer = false;
        r->at++;
        if ((rc = digits(r)) != 0)
            return rc;
    }
    if (r->at < r->end && (*r->at | 0x20) == 'e') {
        integer = false;
        r->at++;
        r->at += r->at < r->end && (*r->at == '+' || *r->at == '-');
        if ((rc = digits(r)) != 0)
            return rc;
    }
    *ret = (struct idem_json){.type = IDEM_JSON_NUMBER,
                              .flag = integer,
                              .n = (uint32_t)(r->at - begin),
                              .at.text = begin};
    return 0;
}

static int read_word(struct reader *r, struct idem_json *ret) {
    static const struct {
        const char *word;
        size_t len;
        struct idem_json value;
    } words[] = {
        {"null", 4, {.type = IDEM_JSON_NULL}},
        {"true", 4, {.type = IDEM_JSON_BOOL, .flag = true}},
        {"false", 5, {.type = IDEM_JSON_BOOL}},
    };

    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        if ((size_t)(r->end - r->at) >= words[i].len &&
            memcmp(r->at, words[i].word, words[i].len) == 0) {
            r->at += words[i].len;
            *ret = words[i].value;
            return 0;
        }
    }
    return fail(r, "a value is expected here");
}

/* Arrays and objects. */

static int stack_push(struct reader *r, const struct idem_member *member) {
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

static int read_value(struct reader *r, struct idem_json *ret);

/* After an item: whether there is another; moves over the comma or the end. */
static int list_goes_on(struct reader *r, char close, bool *ret) {
    skip_space(r);
    if (r->at == r->end)
        return fail(r, "");
    *ret = *r->at == ',';
    if (!*ret && *r->at != close)
        return fail(r, close == ']' ? "a comma or ] is expected here"
                                    : "a comma or } is expected here");
    r->at++;
    if (*ret)
        skip_space(r);
    return 0;
}

static int items_keep(struct reader *r, size_t first, struct idem_json *ret) {
    size_t n = r->stack_n - first;
    struct idem_json *items;
    int rc = 0;

    *ret = (struct idem_json){.type = IDEM_JSON_ARRAY, .n = (uint32_t)n};
    if (n == 0)
        return 0;
    items = take(r, n * sizeof(*items), &rc);
    if (items == NULL)
        return rc;
    for (size_t i = 0; i < n; i++)
        items[i] = r->stack[first + i].value;
    ret->at.items = items;
    r->stack_n = first;
    return 0;
}

static int read_array(struct reader *r, struct idem_json *ret) {
    size_t first = r->stack_n;
    struct idem_member item = {0};
    bool more = false;
    int rc;

    r->at++;
    skip_space(r);
    if (r->at < r->end && *r->at == ']') {
        r->at++;
        return items_keep(r, first, ret);
    }
    do {
        if ((rc = read_value(r, &item.value)) != 0 || (rc = stack_push(r, &item)) != 0 ||
            (rc = list_goes_on(r, ']', &more)) != 0)
            return rc;
    } while (more);
    return items_keep(r, first, ret);
}

static int member_cmp(const struct idem_member *a, const struct idem_member *b) {
    return idem_utf16_cmp(a->name, a->len, b->name, b->len);
}

static int order_cmp(const void *a, const void *b, void *members) {
    return member_cmp((struct idem_member *)members + *(const uint32_t *)a,
                      (struct idem_member *)members + *(const uint32_t *)b);
}

static void order_insert(uint32_t *order, uint32_t n, const struct idem_member *members) {
    for (uint32_t i = 1; i < n; i++) {
        uint32_t at = i, moved = order[i];

        while (at > 0 && member_cmp(&members[order[at - 1]], &members[moved]) > 0) {
            order[at] = order[at - 1];
            at--;
        }
        order[at] = moved;
    }
}

/* True if they all differ. */
static bool order_make(uint32_t *order, uint32_t n, const struct idem_member *members) {
    for (uint32_t i = 0; i < n; i++)
        order[i] = i;
    if (n <= PAIRS_MAX)
        order_insert(order, n, members);
    else
        qsort_r(order, n, sizeof(*order), order_cmp, (void *)members);
    for (uint32_t i = 1; i < n; i++)
        if (member_cmp(&members[order[i - 1]], &members[order[i]]) == 0)
            return false;
    return true;
}

static int members_keep(struct reader *r, size_t first, struct idem_json *ret) {
    uint32_t n = (uint32_t)(r->stack_n - first);
    struct idem_object *object;
    struct idem_member *members;
    uint32_t *order;
    int rc = 0;

    *ret = (struct idem_json){.type = IDEM_JSON_OBJECT, .n = n};
    if (n == 0)
        return 0;
    object = take(r, sizeof(*object) + n * (sizeof(*members) + sizeof(*order)), &rc);
    if (object == NULL)
        return rc;
    members = (struct idem_member *)(object + 1);
    order = (uint32_t *)(members + n);
    memcpy(members, r->stack + first, n * sizeof(*members));
    if (!order_make(order, n, members))
        return fail_at(r, r->at - 1, "the object that ends here has a name twice");
    *object = (struct idem_object){members, order};
    ret->at.object = object;
    r->stack_n = first;
    return 0;
}

static int read_member(struct reader *r, struct idem_member *ret) {
    struct idem_json name;
    int rc;

    if (r->at == r->end || *r->at != '"')
        return fail(r, "a name in quotes is expected here");
    rc = read_string(r, &name);
    if (rc != 0)
        return rc;
    ret->name = name.at.text;
    ret->len = name.n;
    skip_space(r);
    if (r->at == r->end || *r->at != ':')
        return fail(r, "a colon is expected here");
    r->at++;
    skip_space(r);
    return read_value(r, &ret->value);
}

static int read_object(struct reader *r, struct idem_json *ret) {
    size_t first = r->stack_n;
    struct idem_member member;
    bool more = false;
    int rc;

    r->at++;
    skip_space(r);
    if (r->at < r->end && *r->at == '}') {
        r->at++;
        return members_keep(r, first, ret);
    }
    do {
        if ((rc = read_member(r, &member)) != 0 || (rc = stack_push(r, &member)) != 0 ||
            (rc = list_goes_on(r, '}', &more)) != 0)
            return rc;
    } while (more);
    return members_keep(r, first, ret);
}

static int read_nested(struct reader *r, struct idem_json *ret) {
    int rc;

    if (r->depth_n == IDEM_JSON_DEPTH_MAX)
        return fail(r, "arrays and objects lie more than 256 deep");
    r->depth_n++;
    rc = *r->at == '[' ? read_array(r, ret) : read_object(r, ret);
    r->depth_n--;
    return rc;
}

static int read_value(struct reader *r, struct idem_json *ret) {
    if (r->at == r->end)
        return fail(r, "");
    switch (*r->at) {
    case '[':
    case '{':
        return read_nested(r, ret);
    case '"':
        return read_string(r, ret);
    case '-':
    case '0' ... '9':
        return read_number(r, ret);
    default:
        return read_word(r, ret);
    }
}

int idem_json_parse(const char *text, size_t len, struct idem_arena *arena, struct idem_json *ret,
                    struct idem_error *err) {
    struct reader r = {.text = text, .at = text, .end = text + len, .arena = arena, .err = err};
    int rc;

    if (len > UINT32_MAX)
        return idem_error_set(err, IDEM_E_INVALID, "JSON: a document of more than 4 GiB");
    skip_space(&r);
    rc = read_value(&r, ret);
    free(r.stack);
    skip_space(&r);
    if (rc == 0 && r.at != r.end)
        rc = fail(&r, "the document has ended before this");
    return rc;
}

static bool name_is(const struct idem_member *member, const char *name, size_t len) {
    return member->len == len && memcmp(member->name, name, len) == 0;
}

const struct idem_json *idem_json_get(const struct idem_json *value, const char *name, size_t len) {
    const struct idem_object *object = value->at.object;
    uint32_t low = 0, high = value->n;

    if (value->type != IDEM_JSON_OBJECT)
        return NULL;
    if (high <= PAIRS_MAX) {
        for (uint32_t i = 0; i < high; i++)
            if (name_is(&object->members[i], name, len))
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
