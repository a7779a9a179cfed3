/*
 * Templates: text with expressions in #{ and }. The end of an expression is found as in Spring, by
 * counting brackets outside of quotes.
 */
#include <string.h>

#include "expr/expr_parse.h"

/* The closing bracket for an opening one; 0 for other bytes. */
static char template_closing(char c) {
    return c == '(' ? ')' : c == '[' ? ']' : c == '{' ? '}' : 0;
}

static bool template_is_closing(char c) {
    return c == ')' || c == ']' || c == '}';
}

/* The place of the } for the #{ in front of `from`; 0 with a fault. */
static size_t template_expression_end(struct idem_parser *p, size_t from) {
    char open[IDEM_EXPR_DEPTH_MAX];
    const char *quote;
    size_t n = 0;

    for (size_t pos = from; pos < p->len; pos++) {
        char c = p->text[pos];

        if (c == '}' && n == 0)
            return pos;
        if (template_closing(c) != 0) {
            if (n == sizeof(open))
                return idem_parse_fault(p, pos, "brackets are nested too deep"), 0;
            open[n++] = template_closing(c);
        } else if (template_is_closing(c)) {
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

/* Spring trims the text between the braces, so here it accepts blanks that it refuses elsewhere. */
static struct idem_node *template_embedded(struct idem_parser *p, size_t from, size_t to) {
    size_t begin = from;

    while (begin < to && (unsigned char)p->text[begin] <= ' ')
        begin++;
    while (to > begin && (unsigned char)p->text[to - 1] <= ' ')
        to--;
    if (begin == to)
        return idem_parse_fault(p, from - 2, "there is no expression between #{ and }");
    return idem_parse_expression(p, begin, to);
}

static bool template_is_letter(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

/* In a key's template, #name outside of #{...} is most likely a variable by intent, but would be
   literal text, the same for every request. */
static bool template_check_literal(struct idem_parser *p, size_t from, size_t to) {
    for (size_t pos = from; pos + 1 < to; pos++)
        if (p->text[pos] == '#' && template_is_letter(p->text[pos + 1])) {
            idem_parse_fault(p, pos, "a variable in a template is written #{#name}");
            return false;
        }
    return true;
}

static struct idem_node *template_literal(struct idem_parser *p, size_t from, size_t to) {
    struct idem_node *node = idem_parse_node(p, IDEM_NODE_LITERAL, from);

    if ((p->flags & IDEM_EXPR_KEY) != 0 && !template_check_literal(p, from, to))
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
        return node == NULL ? NULL : template_literal(p, 0, 0);
    last = &node->first;
    while (pos < p->len) {
        next = memmem(p->text + pos, p->len - pos, "#{", 2);
        if (next == NULL || next > p->text + pos) {
            end = next == NULL ? p->len : (size_t)(next - p->text);
            part = template_literal(p, pos, end);
            pos = end;
        } else {
            end = template_expression_end(p, pos + 2);
            part = end == 0 ? NULL : template_embedded(p, pos + 2, end);
            pos = end + 1;
        }
        if (part == NULL)
            return NULL;
        *last = part;
        last = &part->next;
        node->n++;
    }
    /* A template of one expression alone keeps the type of its value. */
    return node->n == 1 ? node->first : node;
}
