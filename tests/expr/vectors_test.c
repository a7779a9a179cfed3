/*
 * Every vector that real Spring Expression 4.3.30 made: see README.md. One with
 * subset:true must be right, in value and type; another may be refused, but
 * never answered wrongly; what is forbidden must be refused.
 */
#include "expressions.h"

#ifndef IDEM_SOURCE
#error "where are the vectors?"
#endif

static bool is_half(const char *at, char from, char to) {
    return at[0] == '\\' && at[1] == 'u' && (at[2] == 'd' || at[2] == 'D') && at[3] >= from &&
           at[3] <= to;
}

/* Some expected values are half a pair, which is no JSON here: nothing may equal them. */
static void halves_replace(char *line) {
    for (char *at = line; (at = strstr(at, "\\u")) != NULL; at += 2) {
        if (at > line && at[-1] == '\\')
            continue;
        if (is_half(at, '8', 'b') && is_half(at + 6, 'c', 'f'))
            at += 6;
        else if (is_half(at, '8', 'f'))
            memcpy(at, "\\ufffd", 6);
    }
}

static const struct idem_json *member(const struct idem_json *object, const char *name) {
    return idem_json_get(object, name, strlen(name));
}

static bool text_is(const struct idem_json *json, const char *text, size_t len) {
    return json != NULL && json->type == IDEM_JSON_STRING && json->n == len &&
           memcmp(json->at.text, text, len) == 0;
}

static bool says_true(const struct idem_json *object, const char *name) {
    const struct idem_json *json = member(object, name);

    return json != NULL && json->type == IDEM_JSON_BOOL && json->flag;
}

struct answer {
    int rc;
    struct idem_value value;
    const char *text;
    size_t len;
    struct idem_error err;
};

static struct answer answer_of(const struct idem_json *vector, struct idem_arena *arena) {
    const struct idem_json *expr = member(vector, "expr");
    unsigned flags = text_is(member(vector, "mode"), "template", 8) ? IDEM_EXPR_TEMPLATE : 0;
    struct idem_expr *compiled = NULL;
    struct answer a;

    a.rc = idem_expr_compile(expr->at.text, expr->n, flags, &compiled, &a.err);
    if (a.rc == 0)
        a.rc = idem_expr_eval(compiled, member(vector, "vars"), arena, &a.value, &a.err);
    if (a.rc == 0)
        a.rc = idem_value_print(&a.value, arena, &a.text, &a.len, &a.err);
    /* The text may be the expression's own, which ends here. */
    if (a.rc == 0) {
        char *copy = idem_arena_alloc(arena, a.len + 1);

        CHECK(copy != NULL);
        memcpy(copy, a.text, a.len);
        a.text = copy;
    }
    idem_expr_free(compiled);
    return a;
}

static bool vector_holds(const struct idem_json *vector, const struct answer *a) {
    const struct idem_json *expect = member(vector, "expect");
    bool answered = says_true(expect, "ok"), subset = says_true(vector, "subset");
    const char *type;

    if (a->rc < 0)
        return !answered || !subset;
    type = idem_value_type_name(&a->value);
    return answered && text_is(member(expect, "value"), a->text, a->len) &&
           text_is(member(expect, "type"), type, strlen(type));
}

static bool line_holds(char *line, size_t len) {
    struct idem_arena doc, arena;
    struct idem_json vector;
    struct idem_error err;
    struct answer a;
    bool holds;

    idem_arena_init(&doc, ARENA);
    idem_arena_init(&arena, ARENA);
    halves_replace(line);
    if (idem_json_parse(line, len, &doc, &vector, &err) < 0) {
        fprintf(stderr, "# %s\n", err.text);
        exit(1);
    }
    a = answer_of(&vector, &arena);
    holds = vector_holds(&vector, &a);
    if (!holds)
        fprintf(stderr, "# wrong: %.*s\n# got: %.*s\n", (int)(len < 300 ? len : 300), line,
                a.rc < 0 ? 200 : (int)a.len, a.rc < 0 ? a.err.text : a.text);
    idem_arena_free(&arena);
    idem_arena_free(&doc);
    return holds;
}

static void file_check(const char *path, int least) {
    FILE *file = fopen(path, "r");
    int n = 0, wrong = 0;
    char *line = NULL;
    size_t cap = 0;
    ssize_t len;

    CHECK(file != NULL);
    while ((len = getline(&line, &cap, file)) > 0) {
        n++;
        wrong += !line_holds(line, (size_t)len);
    }
    free(line);
    fclose(file);
    CHECK(n >= least);
    CHECK_INT(wrong, 0);
}

TEST(every_vector_of_spring_is_answered_as_spring_does_or_refused_where_that_is_allowed) {
    file_check(IDEM_SOURCE "/tests/expr/vectors.jsonl", 2860);
}

TEST(random_expressions_that_spring_answered_are_answered_the_same) {
    file_check(IDEM_SOURCE "/tests/expr/random.jsonl", 1000);
}

TEST_MAIN
