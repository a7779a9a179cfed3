/*
 * Literals: numbers and strings. An int or long that does not fit its type is a fault, as in
 * Spring. A float halfway between two floats is a fault here, because reading it through a double
 * would not be exact. For keys, so is a number with more digits than its type keeps, or too large
 * for its type, because it would become another number.
 */
#include <math.h>
#include <string.h>

#include "expr/expr_parse.h"
#include "json/json_number.h"

static struct idem_node *literal_new(struct idem_parser *p, struct idem_value value) {
    struct idem_node *node = idem_parse_node(p, IDEM_NODE_LITERAL, p->token.pos);

    if (node != NULL)
        node->at.value = value;
    return node;
}

static int literal_digit_value(char c) {
    return c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10;
}

/* False if the number is larger than `most`. */
static bool literal_read_integer(const char *digits, size_t len, int base, int64_t most,
                                 int64_t *ret) {
    int64_t n = 0;

    for (size_t i = 0; i < len; i++) {
        int digit = literal_digit_value(digits[i]);

        if (n > (most - digit) / base)
            return false;
        n = n * base + digit;
    }
    *ret = n;
    return true;
}

static struct idem_node *literal_integer(struct idem_parser *p, int base, bool is_long) {
    size_t skip = base == 16 ? 2 : 0;
    int64_t n;

    if (!literal_read_integer(p->text + p->token.pos + skip, p->token.len - skip - is_long, base,
                              is_long ? INT64_MAX : INT32_MAX, &n))
        return idem_parse_fault(p, p->token.pos,
                                is_long
                                    ? "the number does not fit 64 bits"
                                    : "the number does not fit 32 bits; L after it makes it 64");
    return literal_new(p, (struct idem_value){.type = is_long ? IDEM_VALUE_LONG : IDEM_VALUE_INT,
                                              .at.integer = n});
}

/* The number as JSON: without the suffix and leading zeros. */
static struct idem_json literal_real_json(const struct idem_parser *p) {
    const char *text = p->text + p->token.pos;
    size_t len = p->token.len;

    if ((text[len - 1] | 0x20) == 'f' || (text[len - 1] | 0x20) == 'd')
        len--;
    while (len > 1 && text[0] == '0' && text[1] >= '0' && text[1] <= '9') {
        text++;
        len--;
    }
    return (struct idem_json){.type = IDEM_JSON_NUMBER,
                              .flag = memchr(text, '.', len) == NULL &&
                                      memchr(text, 'e', len) == NULL &&
                                      memchr(text, 'E', len) == NULL,
                              .n = (uint32_t)len,
                              .at.text = text};
}

/* For keys, the value must be exactly the written one. */
static bool literal_real_fits(struct idem_parser *p, bool finite, bool kept) {
    if ((p->flags & IDEM_EXPR_KEY) == 0 || kept)
        return true;
    idem_parse_fault(p, p->token.pos,
                     idem_trouble_text(finite ? IDEM_TROUBLE_KEY_DIGITS : IDEM_TROUBLE_KEY_FINITE));
    return false;
}

static struct idem_node *literal_real(struct idem_parser *p) {
    struct idem_json json = literal_real_json(p);
    double d = idem_number_read(json.at.text, json.n);

    if (!literal_real_fits(p, isfinite(d), isfinite(d) && idem_number_kept(&json)))
        return NULL;
    return literal_new(p, (struct idem_value){.type = IDEM_VALUE_DOUBLE, .at.real = d});
}

/* A double halfway between two floats may itself be rounded, so the nearest float is not
   certain. */
static struct idem_node *literal_float(struct idem_parser *p) {
    struct idem_json json = literal_real_json(p);
    double d = idem_number_read(json.at.text, json.n);
    float f = (float)d;
    char text[IDEM_NUMBER_MAX];

    if (isfinite(d) && (double)f != d) {
        double other = (double)nextafterf(f, d > (double)f ? INFINITY : -INFINITY);

        if (fabs(d - (double)f) == fabs(other - d))
            return idem_parse_fault(p, p->token.pos, "the number lies between two floats");
    }
    if (!literal_real_fits(p, isfinite(f),
                           isfinite(f) &&
                               idem_number_is(&json, text, idem_number_java_float(f, text))))
        return NULL;
    return literal_new(p, (struct idem_value){.type = IDEM_VALUE_FLOAT, .at.single = f});
}

/* Two quotes become one. Spring also does this for the quotes of the other kind. */
static struct idem_node *literal_string(struct idem_parser *p) {
    const char *text = p->text + p->token.pos + 1;
    size_t len = p->token.len - 2, n = 0;
    char *at = idem_parse_alloc(p, len);
    struct idem_value value;
    bool ascii = true;

    if (at == NULL)
        return NULL;
    for (size_t i = 0; i < len; i++) {
        at[n++] = text[i];
        ascii &= (unsigned char)text[i] < 0x80;
        if ((text[i] == '\'' || text[i] == '"') && i + 1 < len && text[i + 1] == text[i])
            i++;
    }
    value = idem_value_text(at, n, ascii);
    value.flags |= IDEM_VALUE_MADE;
    return literal_new(p, value);
}

struct idem_node *idem_parse_literal(struct idem_parser *p) {
    switch (p->token.kind) {
    case IDEM_TOKEN_INT:
        return literal_integer(p, 10, false);
    case IDEM_TOKEN_LONG:
        return literal_integer(p, 10, true);
    case IDEM_TOKEN_HEX_INT:
        return literal_integer(p, 16, false);
    case IDEM_TOKEN_HEX_LONG:
        return literal_integer(p, 16, true);
    case IDEM_TOKEN_DOUBLE:
        return literal_real(p);
    case IDEM_TOKEN_FLOAT:
        return literal_float(p);
    default:
        return literal_string(p);
    }
}
