/*
 * Templates: text with expressions in #{ and }. Where an expression ends is
 * found as Spring finds it, by counting brackets outside of quotes.
 */
#include <string.h>

#include "expr/parse.h"

/* The bracket that closes the one that opens; 0 for other bytes. */
static char closing(char c) {
    return c == '(' ? ')' : c == '[' ? ']' : c == '{' ? '}' : 0;
}

static bool is_closing(char c) {
    return c == ')' || c == ']' || c == '}';
}

/* The place of the } for the #{ before `from`; 0 with a fault. */
static size_t expression_end(struct idem_parser *p, size_t from) {
    char open[IDEM_EXPR_DEPTH_MAX];
    const char *quote;
    size_t n = 0;

    for (size_t pos = from; pos < p->len; pos++) {
        char c = p->text[pos];

        if (c == '}' && n == 0)
            return pos;
        if (closing(c) != 0) {
            if (n == sizeof(open))
                return idem_parse_fault(p, pos, "brackets are nested too deep"), 0;
            open[n++] = closing(c);
        } else if (is_closing(c)) {
            if (n == 0 || open[--n] != c)
                return idem_parse_fault(p, pos, "this bracket closes none that is open"), 0;
        } else if (c == '\'' || c == '"') {
            quote = memchr(p->text + pos + 1, c, p->len - pos - 1);
            if (quote == NULL)
                return idem_parse_fault(p, pos, "the string is not ended"), 0;
            pos = (size_t)(quote - p->text);
        }
    }
    return idem_parse_fault(p, from - 2, "the } for this #{ is missing"), 0;
}

/* Spring trims what is between the braces, and so takes blanks there that it does not elsewhere. */
static struct idem_node *embedded(struct idem_parser *p, size_t from, size_t to) {
    size_t begin = from;

    while (begin < to && (unsigned char)p->text[begin] <= ' ')
        begin++;
    while (to > begin && (unsigned char)p->text[to - 1] <= ' ')
        to--;
    if (begin == to)
        return idem_parse_fault(p, from - 2, "there is no expression between #{ and }");
    return idem_parse_expression(p, begin, to);
}

static bool is_letter(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

/* In a key's template, #name outside of #{...} is a variable that was meant and is not read. */
static bool literal_sane(struct idem_parser *p, size_t from, size_t to) {
    for (size_t pos = from; pos + 1 < to; pos++)
        if (p->text[pos] == '#' && is_letter(p->text[pos + 1])) {
            idem_parse_fault(p, pos, "a variable in a template is written #{#name}");
            return false;
        }
    return true;
}

static struct idem_node *literal(struct idem_parser *p, size_t from, size_t to) {
    struct idem_node *node = idem_parse_node(p, IDEM_NODE_LITERAL, from);

    if ((p->flags & IDEM_EXPR_KEY) != 0 && !literal_sane(p, from, to))
        return NULL;
    if (node != NULL) {
        node->at.value = idem_value_text(p->text + from, to - from, false);
        node->at.value.flags |= IDEM_VALUE_MADE;
    }
    return node;
}

struct idem_node *idem_parse_template(struct idem_parser *p) {
    struct idem_node *node = idem_parse_node(p, IDEM_NODE_TEMPLATE, 0), **last, *part;
    size_t pos = 0, end;
    const char *next;

    if (node == NULL || p->len == 0)
        return node == NULL ? NULL : literal(p, 0, 0);
    last = &node->first;
    while (pos < p->len) {
        next = memmem(p->text + pos, p->len - pos, "#{", 2);
        if (next == NULL || next > p->text + pos) {
            end = next == NULL ? p->len : (size_t)(next - p->text);
            part = literal(p, pos, end);
            pos = end;
        } else {
            end = expression_end(p, pos + 2);
            part = end == 0 ? NULL : embedded(p, pos + 2, end);
            pos = end + 1;
        }
        if (part == NULL)
            return NULL;
        *last = part;
        last = &part->next;
        node->n++;
    }
    /* A lone expression keeps its type. */
    return node->n == 1 ? node->first : node;
}
