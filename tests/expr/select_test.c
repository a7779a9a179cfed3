/*
 * The values that fingerprints compare (src/expr/expr_eval.c), as the digest sees it.
 */
#include "expressions.h"

#define DOC                                                                                        \
    "{\"n\":null,\"s\":\"abc\",\"d\":2.5,\"l\":[1,2.50,null],\"l0\":[],\"m\":{\"b\":1,\"a\":[]},"  \
    "\"f\":100000000000.12345678,\"o\":{\"f\":100000000000.12345678},\"i\":1e2,\"odd\":"           \
    "9007199254740993}"

static int put(void *data, const char *bytes, size_t len) {
    (void)data;
    CHECK(outcome.len + len < sizeof(outcome.text));
    memcpy(outcome.text + outcome.len, bytes, len);
    outcome.len += len;
    outcome.text[outcome.len] = '\0';
    return 0;
}

static int select_of(const char *expr, const char *json) {
    struct idem_arena arena;
    struct idem_expr *compiled = NULL;
    struct idem_json vars, selected;

    memset(&outcome, 0, sizeof(outcome));
    idem_arena_init(&arena, ARENA);
    vars = vars_of(&arena, json);
    outcome.rc = idem_expr_compile_key(expr, strlen(expr), &compiled, &outcome.err);
    if (outcome.rc == 0)
        outcome.rc = idem_expr_select(compiled, &vars, &arena, &selected, &outcome.err);
    if (outcome.rc == 0)
        outcome.rc = idem_json_canon_exact(&selected, put, NULL, &outcome.err);
    idem_expr_free(compiled);
    idem_arena_free(&arena);
    return outcome.rc;
}

static void selects(const char *expr, const char *want) {
    if (select_of(expr, DOC) < 0)
        fprintf(stderr, "# %s\n", outcome.err.text);
    CHECK_INT(outcome.rc, 0);
    CHECK_STR(outcome.text, want);
}

static void refuses(const char *expr, const char *words) {
    CHECK_INT(select_of(expr, DOC), IDEM_E_INVALID);
    CHECK_HAS(outcome.err.text, words);
}

TEST(what_the_document_holds_is_selected_as_it_is) {
    selects("#m", "{\"a\":[],\"b\":1}");
    selects("#l", "[1,2.5,null]");
    selects("#l0", "[]");
    selects("#d", "2.5");
    selects("#i", "100");
    selects("#o", "{\"f\":10000000000012345678e-8}");
    selects("#odd", "9007199254740993");
    selects("{#m, #s, #d > 2, 1.5f}", "[{\"a\":[],\"b\":1},\"abc\",true,1.5]");
}

TEST(what_the_expression_makes_follows_the_rules_of_keys) {
    refuses("#n", "null");
    refuses("{#s, #n}", "null");
    refuses("#l0.?[true]", "an empty list");
    refuses("{#s, #l0.?[true]}", "an empty list");
    refuses("#d / 0", "beyond all bounds");
    refuses("{-#d / 0}", "beyond all bounds");
    refuses("#d * 0 / 0", "beyond all bounds");
    refuses("3E38f * 10 * #d.intValue()", "beyond all bounds");
    refuses("#f", "more digits");
}

TEST(a_map_that_the_expression_makes_is_not_compared) {
    refuses("{a: #s}", "an object that the expression makes");
    refuses("{{a: #s}}", "an object that the expression makes");
    refuses("#m.?[true]", "an object that the expression makes");
    refuses("#m.?[key == 'a']", "an object that the expression makes");
    refuses("#m.?[false]", "an object that the expression makes");
    refuses("{#m.?[true]}", "an object that the expression makes");
    refuses("#m.^[true]", "have no order");
    refuses("#m.$[true]", "have no order");
    refuses("#m.![key]", "have no order");
    refuses("#m.![value]", "have no order");
}

TEST_MAIN
