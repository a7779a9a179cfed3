/*
 * Lists of a client's preferences: Accept, Accept-Encoding, and plain lists of tokens. A malformed
 * list counts as an absent one (fuzz/http_accept_fuzz.c).
 */
#include <string.h>

#include "http/http_field.h"

struct list {
    const char *at, *end;
};

/* One element of a list: a token, or a media type with its slash, and its weight. */
struct element {
    struct idem_http_text name;
    int16_t q;
    bool parameters; /* it has parameters besides its weight */
};

static struct list accept_list_of(struct idem_http_text text) {
    return (struct list){text.at, text.len == 0 ? text.at : text.at + text.len};
}

static void list_skip_blanks(struct list *list) {
    while (list->at < list->end && (*list->at == ' ' || *list->at == '\t'))
        list->at++;
}

static bool list_is(const struct list *list, char c) {
    return list->at < list->end && *list->at == c;
}

/* Reads a token, which may be empty. */
static struct idem_http_text list_token(struct list *list) {
    struct idem_http_text text = {list->at, 0};

    while (list->at < list->end &&
           idem_http_is_token((struct idem_http_text){.at = list->at, .len = 1}))
        list->at++;
    text.len = (size_t)(list->at - text.at);
    return text;
}

/* Skips a quoted string: visible characters, blanks, and bytes that are not ASCII (RFC 9110,
   5.6.4). */
static bool list_skip_quoted(struct list *list) {
    for (list->at++; list->at < list->end && *list->at != '"'; list->at++) {
        if (*list->at == '\\' && ++list->at == list->end)
            return false;
        if (((unsigned char)*list->at < 0x20 && *list->at != '\t') || *list->at == 0x7f)
            return false;
    }
    if (list->at == list->end)
        return false;
    list->at++;
    return true;
}

/* Parses 0 to 1 with up to three digits, in thousandths; -1: malformed. */
static int16_t accept_weight_parse(struct idem_http_text text) {
    int16_t q;

    if (text.len == 0 || text.len > 5 || (text.at[0] != '0' && text.at[0] != '1'))
        return -1;
    q = text.at[0] == '1' ? 1000 : 0;
    if (text.len > 1 && text.at[1] != '.')
        return -1;
    for (size_t i = 2, unit = 100; i < text.len; i++, unit /= 10) {
        if (text.at[i] < '0' || text.at[i] > '9')
            return -1;
        q = (int16_t)(q + (text.at[i] - '0') * (int)unit);
    }
    return q > 1000 ? -1 : q;
}

/* Reads a parameter after its semicolon. Parameters after the weight were extensions (RFC 7231)
   and have no meaning any more. */
static bool list_parameter(struct list *list, struct element *element, bool *weighed) {
    struct idem_http_text name, value;

    list_skip_blanks(list);
    if (list->at == list->end || *list->at == ';' || *list->at == ',')
        return true;
    name = list_token(list);
    if (name.len == 0)
        return false;
    if (!list_is(list, '='))
        return *weighed; /* an extension without a value */
    list->at++;
    if (list_is(list, '"') && !idem_http_same(name, IDEM_HTTP_TEXT("q"))) {
        element->parameters |= !*weighed;
        return list_skip_quoted(list);
    }
    value = list_token(list);
    if (value.len == 0)
        return false;
    if (*weighed || !idem_http_same(name, IDEM_HTTP_TEXT("q"))) {
        element->parameters |= !*weighed;
        return true;
    }
    *weighed = true;
    element->q = accept_weight_parse(value);
    return element->q >= 0;
}

/* Reads the next element and skips empty ones. 1: an element; 0: the end of the list; -1:
   malformed. */
static int list_element_next(struct list *list, struct element *ret) {
    bool weighed = false;

    for (list_skip_blanks(list); list_is(list, ','); list_skip_blanks(list))
        list->at++;
    if (list->at == list->end)
        return 0;
    *ret = (struct element){.name = list_token(list), .q = 1000};
    if (ret->name.len != 0 && list_is(list, '/')) {
        list->at++;
        if (list_token(list).len == 0)
            return -1;
        ret->name.len = (size_t)(list->at - ret->name.at);
    }
    if (ret->name.len == 0)
        return -1;
    for (list_skip_blanks(list); list_is(list, ';'); list_skip_blanks(list)) {
        list->at++;
        if (!list_parameter(list, ret, &weighed))
            return -1;
    }
    return list->at == list->end || *list->at == ',' ? 1 : -1;
}

static void accept_q_raise(int16_t *q, int16_t by) {
    if (by > *q)
        *q = by;
}

enum { HTML, PROBLEM, JSON, APPLICATION, ANY, RANGES };

static const char *const ranges[RANGES] = {
    "text/html", "application/problem+json", "application/json", "application/*", "*/*",
};

void idem_http_accept_init(struct idem_http_accept *accept) {
    *accept = (struct idem_http_accept){.malformed = false};
    for (int i = 0; i < RANGES; i++)
        accept->q[0][i] = accept->q[1][i] = -1;
}

void idem_http_accept_add(struct idem_http_accept *accept, struct idem_http_text value) {
    struct list list = accept_list_of(value);
    struct element element;
    int rc;

    while ((rc = list_element_next(&list, &element)) > 0) {
        if (memchr(element.name.at, '/', element.name.len) == NULL) {
            rc = -1;
            break;
        }
        for (int i = 0; i < RANGES; i++)
            if (idem_http_same(element.name, (struct idem_http_text){ranges[i], strlen(ranges[i])}))
                accept_q_raise(&accept->q[element.parameters ? 0 : 1][i], element.q);
    }
    accept->malformed |= rc < 0;
}

/* The weight of a range. A range without parameters precedes one with parameters, because our
   responses have no parameters that a client could ask for. */
static int16_t accept_q(const struct idem_http_accept *accept, int range) {
    return accept->q[1][range] >= 0 ? accept->q[1][range] : accept->q[0][range];
}

/* The weight of a type, by the most specific range. */
static int16_t accept_json(const struct idem_http_accept *accept, int type) {
    const int nearest[] = {type, APPLICATION, ANY};

    for (int i = 0; i < 3; i++)
        if (accept_q(accept, nearest[i]) >= 0)
            return accept_q(accept, nearest[i]);
    return 0;
}

bool idem_http_accept_html(const struct idem_http_accept *accept) {
    int16_t html = accept_q(accept, HTML);

    return !accept->malformed && html > accept_json(accept, PROBLEM) &&
           html > accept_json(accept, JSON);
}

bool idem_http_accept_json(const struct idem_http_accept *accept) {
    return !accept->malformed && accept_q(accept, JSON) > 0;
}

void idem_http_codings_init(struct idem_http_codings *codings) {
    *codings = (struct idem_http_codings){-1, -1, -1, false};
}

void idem_http_codings_add(struct idem_http_codings *codings, struct idem_http_text value) {
    struct list list = accept_list_of(value);
    struct element element;
    int rc;

    while ((rc = list_element_next(&list, &element)) > 0) {
        if (idem_http_same(element.name, IDEM_HTTP_TEXT("gzip")) ||
            idem_http_same(element.name, IDEM_HTTP_TEXT("x-gzip")))
            accept_q_raise(&codings->gzip, element.q);
        else if (idem_http_same(element.name, IDEM_HTTP_TEXT("identity")))
            accept_q_raise(&codings->identity, element.q);
        else if (idem_http_same(element.name, IDEM_HTTP_TEXT("*")))
            accept_q_raise(&codings->any, element.q);
    }
    codings->malformed |= rc < 0;
}

bool idem_http_codings_gzip(const struct idem_http_codings *codings) {
    return !codings->malformed && (codings->gzip >= 0 ? codings->gzip : codings->any) > 0;
}

bool idem_http_codings_identity(const struct idem_http_codings *codings) {
    return codings->malformed || (codings->identity >= 0 ? codings->identity : codings->any) != 0;
}

bool idem_http_list_has(struct idem_http_text text, struct idem_http_text name) {
    struct idem_http_text element;

    while (idem_http_part_next(&text, ',', &element))
        if (idem_http_same(idem_http_trim(element), name))
            return true;
    return false;
}
