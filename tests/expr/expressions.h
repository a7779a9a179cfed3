/*
 * Expressions in tests: compiled and evaluated in one call, with what went
 * wrong kept.
 */
#ifndef IDEM_TEST_EXPRESSIONS_H
#define IDEM_TEST_EXPRESSIONS_H

#include "expr/expr.h"
#include "test.h"

#define ARENA ((size_t)16 << 20)

struct outcome {
    int rc;
    char text[70000]; /* the value or the key, NUL-terminated */
    size_t len;
    char type[16];
    struct idem_error err;
};

static struct outcome outcome;

static struct idem_json vars_of(struct idem_arena *arena, const char *json) {
    struct idem_json vars;
    struct idem_error err;

    if (idem_json_parse(json, strlen(json), arena, &vars, &err) < 0) {
        fprintf(stderr, "# %s: %s\n", json, err.text);
        exit(1);
    }
    return vars;
}

static void outcome_text(const char *text, size_t len) {
    CHECK(len < sizeof(outcome.text));
    memcpy(outcome.text, text, len);
    outcome.text[len] = '\0';
    outcome.len = len;
}

static inline int evaluate_bytes(const char *expr, size_t expr_len, unsigned flags,
                                 const char *json) {
    struct idem_arena doc, arena;
    struct idem_expr *compiled = NULL;
    struct idem_value value;
    struct idem_json vars;
    const char *text;
    size_t len;

    memset(&outcome, 0, sizeof(outcome));
    idem_arena_init(&doc, ARENA);
    idem_arena_init(&arena, ARENA);
    vars = vars_of(&doc, json);
    outcome.rc = idem_expr_compile(expr, expr_len, flags, &compiled, &outcome.err);
    if (outcome.rc == 0 && (flags & IDEM_EXPR_KEY) != 0) {
        outcome.rc = idem_expr_key(compiled, &vars, &arena, &text, &len, &outcome.err);
        if (outcome.rc == 0)
            outcome_text(text, len);
    } else if (outcome.rc == 0) {
        outcome.rc = idem_expr_eval(compiled, &vars, &arena, &value, &outcome.err);
        if (outcome.rc == 0)
            outcome.rc = idem_value_print(&value, &arena, &text, &len, &outcome.err);
        if (outcome.rc == 0) {
            outcome_text(text, len);
            snprintf(outcome.type, sizeof(outcome.type), "%s", idem_value_type_name(&value));
        }
    }
    idem_expr_free(compiled);
    idem_arena_free(&arena);
    idem_arena_free(&doc);
    return outcome.rc;
}

static inline int evaluate(const char *expr, unsigned flags, const char *json) {
    return evaluate_bytes(expr, strlen(expr), flags, json);
}

#define CHECK_VALUE(expr, json, want)                                                              \
    do {                                                                                           \
        if (evaluate(expr, 0, json) < 0)                                                           \
            fprintf(stderr, "# %s\n", outcome.err.text);                                           \
        CHECK_INT(outcome.rc, 0);                                                                  \
        CHECK_STR(outcome.text, want);                                                             \
    } while (0)

#define CHECK_KEY_OF(expr, flags, json, want)                                                      \
    do {                                                                                           \
        if (evaluate(expr, IDEM_EXPR_KEY | (flags), json) < 0)                                     \
            fprintf(stderr, "# %s\n", outcome.err.text);                                           \
        CHECK_INT(outcome.rc, 0);                                                                  \
        CHECK_STR(outcome.text, want);                                                             \
    } while (0)
#define CHECK_KEY(expr, json, want) CHECK_KEY_OF(expr, 0, json, want)

/* Refused, with a text that has these words in it. */
#define CHECK_REFUSED(expr, flags, json, words)                                                    \
    do {                                                                                           \
        CHECK_INT(evaluate(expr, flags, json), IDEM_E_INVALID);                                    \
        CHECK_HAS(outcome.err.text, words);                                                        \
    } while (0)

#endif
