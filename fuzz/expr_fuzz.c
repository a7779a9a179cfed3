/*
 * Expressions against any bytes: the first byte chooses how to compile, the
 * rest is the text. A compiled expression is evaluated over one document, as a
 * value and as a key, and as the input of a fingerprint. It must neither crash
 * nor go on for ever; a value can be printed or is refused with a reason; a key
 * has an allowed length; a selected value has an exact form; two evaluations
 * are equal; and an error has its column. Text that compiles as a key option
 * compiles as an expression or as a template, but not as both.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "expr/expr.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char document[] =
    "{\"a\":1,\"b\":2,\"i\":7,\"n\":null,\"s\":\"abc\",\"e\":\"\",\"t\":true,\"f\":false,\"d\":2.5,"
    "\"L\":5000000000,\"l\":[1,2,3],\"ll\":[[1,2],[3]],\"ls\":[\"a\",\"b,c\"],\"m\":{\"a\":1,\"x\":"
    "{\"y\":[1,\"z\"]},\"key\":\"k\"},\"o\":{\"id\":42,\"a\":{\"b\":null}},\"u\":\"a\\ud83d\\ude00"
    "\\u00e9\",\"big\":12345678901234567890,\"objs\":[{\"id\":1,\"tags\":[\"p\"]},{\"id\":2}],"
    "\"r\":{\"id\":42,\"name\":\"bob\"},\"user\":{\"id\":7},\"order\":{\"id\":\"A-1\"}}";

#define LIMIT ((size_t)4 << 20)

static struct idem_json vars;

static void vars_make(void) {
    static struct idem_arena arena;

    if (vars.n > 0)
        return;
    idem_arena_init(&arena, LIMIT);
    if (idem_json_parse(document, sizeof(document) - 1, &arena, &vars, NULL) < 0)
        abort();
}

static void error_check(int rc, const struct idem_error *err) {
    assert(rc == IDEM_E_INVALID || rc == IDEM_E_NOMEM);
    assert(err->code == rc);
    assert(strlen(err->text) < sizeof(err->text));
    assert(strncmp(err->text, "column ", 7) == 0 || strncmp(err->text, "the ", 4) == 0);
}

/* The printed value in fresh memory; NULL if it is refused. */
static char *value_text(const struct idem_expr *expr, size_t *len) {
    struct idem_arena arena;
    struct idem_value value;
    struct idem_error err;
    char *copy = NULL;
    const char *text;
    int rc;

    idem_arena_init(&arena, LIMIT);
    rc = idem_expr_eval(expr, &vars, &arena, &value, &err);
    if (rc == 0)
        rc = idem_value_print(&value, &arena, &text, len, &err);
    if (rc == 0) {
        assert(idem_value_type_name(&value) != NULL);
        copy = malloc(*len + 1);
        memcpy(copy, text, *len);
    } else {
        error_check(rc, &err);
    }
    idem_arena_free(&arena);
    return copy;
}

static void key_check(const struct idem_expr *expr) {
    struct idem_arena arena;
    struct idem_error err;
    const char *key;
    size_t len;
    int rc;

    idem_arena_init(&arena, LIMIT);
    rc = idem_expr_key(expr, &vars, &arena, &key, &len, &err);
    if (rc == 0)
        assert(len > 0 && len <= IDEM_KEY_MAX);
    else
        error_check(rc, &err);
    idem_arena_free(&arena);
}

static int count(void *data, const char *bytes, size_t len) {
    (void)bytes;
    *(size_t *)data += len;
    return 0;
}

static void select_check(const struct idem_expr *expr) {
    struct idem_json selected;
    struct idem_arena arena;
    struct idem_error err;
    size_t len = 0;
    int rc;

    idem_arena_init(&arena, LIMIT);
    rc = idem_expr_select(expr, &vars, &arena, &selected, &err);
    if (rc < 0) {
        error_check(rc, &err);
    } else {
        assert(selected.type != IDEM_JSON_NULL);
        assert(idem_json_canon_exact(&selected, count, &len, &err) == 0 && len > 0);
    }
    idem_arena_free(&arena);
}

static bool compiles(const char *text, size_t len, unsigned flags) {
    struct idem_expr *expr = NULL;
    bool fine = idem_expr_compile(text, len, flags, &expr, NULL) == 0;

    idem_expr_free(expr);
    return fine;
}

/* The text as a key option. */
static void option_check(const char *text, size_t len) {
    bool marked = memmem(text, len, "#{", 2) != NULL, plain = compiles(text, len, IDEM_EXPR_KEY);
    struct idem_expr *expr = NULL;
    struct idem_error err;
    int rc = idem_expr_compile_key(text, len, &expr, &err);

    if (rc < 0) {
        assert(expr == NULL && err.code == rc && err.text[0] != '\0');
        assert(marked || !plain);
        return;
    }
    assert(marked ? !plain && compiles(text, len, IDEM_EXPR_KEY | IDEM_EXPR_TEMPLATE) : plain);
    key_check(expr);
    select_check(expr);
    idem_expr_free(expr);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct idem_expr *expr = NULL;
    struct idem_error err;
    size_t len = 0, again_len = 0;
    char *text, *again;
    unsigned flags;
    int rc;

    if (size == 0)
        return 0;
    vars_make();
    option_check((const char *)data + 1, size - 1);
    flags = data[0] & (IDEM_EXPR_TEMPLATE | IDEM_EXPR_KEY);
    rc = idem_expr_compile((const char *)data + 1, size - 1, flags, &expr, &err);
    if (rc < 0) {
        error_check(rc, &err);
        assert(expr == NULL);
        return 0;
    }
    text = value_text(expr, &len);
    again = value_text(expr, &again_len);
    assert((text == NULL) == (again == NULL));
    assert(text == NULL || (len == again_len && memcmp(text, again, len) == 0));
    if ((flags & IDEM_EXPR_KEY) != 0) {
        key_check(expr);
        select_check(expr);
    }
    free(text);
    free(again);
    idem_expr_free(expr);
    return 0;
}
