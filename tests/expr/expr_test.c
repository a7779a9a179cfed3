/*
 * Expressions: the errors with their words and columns, the limits, Java's
 * printing, and one expression in many threads. vectors_test.c compares results
 * with Spring's.
 */
#include "expressions.h"

#include <pthread.h>
#include <time.h>

#include "expr/expr_value.h"

#define DOC                                                                                        \
    "{\"a\":{\"b\":1},\"s\":\"abc\",\"i\":7,\"n\":null,\"l\":[1,2,3],\"m\":{\"x\":1,\"y\":2},"     \
    "\"t\":true,\"u\":\"a\\ud83d\\ude00b\",\"d\":2.5}"

static void error_check(const char *expr, unsigned flags, const char *column, const char *lines) {
    CHECK_INT(evaluate(expr, flags, DOC), IDEM_E_INVALID);
    if (strncmp(outcome.err.text, column, strlen(column)) != 0)
        fprintf(stderr, "# %s\n", outcome.err.text);
    CHECK(strncmp(outcome.err.text, column, strlen(column)) == 0);
    CHECK_HAS(outcome.err.text, lines);
}

TEST(an_error_has_the_column_and_a_caret_under_the_place) {
    error_check("#a.b ++", 0, "column 6: ", "\n#a.b ++\n     ^");
    error_check("1 + ", 0, "column 5: ", "\n1 + \n    ^");
    error_check("'abc", 0, "column 1: ", "\n'abc\n^");
    error_check("#s.nope()", 0, "column 4: ", "\n#s.nope()\n   ^");
    error_check("'x' + #a.zz", 0, "column 10: ", "\n'x' + #a.zz\n         ^");
    error_check("#l[9]", 0, "column 3: ", "\n#l[9]\n  ^");
    error_check("#i + #t", 0, "column 4: ", "\n#i + #t\n   ^");
    error_check("1 2", 0, "column 3: ", "\n1 2\n  ^");
}

TEST(a_template_counts_columns_from_its_own_beginning) {
    error_check("order:#{#a.zz}", IDEM_EXPR_TEMPLATE,
                "column 12: ", "\norder:#{#a.zz}\n           ^");
    error_check("x#{1}#{2", IDEM_EXPR_TEMPLATE, "column 6: ", "\nx#{1}#{2\n     ^");
}

TEST(columns_are_characters_and_not_bytes) {
    error_check("'\xc3\xa9\xe6\x97\xa5' + #a.zz", 0,
                "column 11: ", "\n'\xc3\xa9\xe6\x97\xa5' + #a.zz\n          ^");
}

TEST(control_characters_are_shown_as_spaces) {
    error_check("1 +\n\t#n.x", 0, "column 9: ", "\n1 +  #n.x\n        ^");
}

TEST(a_long_expression_is_shown_around_the_place) {
    char expr[2000];

    memset(expr, ' ', sizeof(expr));
    memcpy(expr, "1", 1);
    memcpy(expr + 1000, "+ #i.zz + 1", 11);
    memcpy(expr + sizeof(expr) - 4, "+ 2", 4);
    CHECK_INT(evaluate(expr, 0, DOC), IDEM_E_INVALID);
    CHECK_HAS(outcome.err.text, "column 1006: ");
    CHECK_HAS(outcome.err.text, "+ #i.zz + 1");
    CHECK_HAS(outcome.err.text, "...\n");
    CHECK(strlen(outcome.err.text) < 200);
    CHECK(outcome.err.text[strlen(outcome.err.text) - 1] == '^');
}

TEST(an_error_never_shows_a_value) {
    evaluate("#s.zz", 0, "{\"s\":\"top-secret\"}");
    CHECK(strstr(outcome.err.text, "secret") == NULL);
    evaluate("#m[#k].zz", 0, "{\"m\":{\"top-secret\":1},\"k\":\"top-secret\"}");
    CHECK(strstr(outcome.err.text, "secret") == NULL);
}

TEST(what_is_not_safe_does_not_compile) {
    static const char *const forbidden[][2] = {
        {"T(java.lang.Runtime)", "types"},
        {"true or T(String)", "types"},
        {"T (String)", "types"},
        {"new String()", "constructors"},
        {"NEW String()", "constructors"},
        {"@bean", "beans"},
        {"&bean", "beans"},
        {"#a = 1", "assignment"},
        {"#s ?: #a = 1", "assignment"},
        {"#a++", "++"},
        {"--#a", "++"},
        {"#fn()", "functions"},
        {"#s.getClass()", "no such method"},
        {"#s?.notify()", "no such method"},
        {"#l.remove(0)", "no such method"},
        {"#l.clear()", "no such method"},
        {"#m.put('z', 1)", "no such method"},
        {"#i instanceof T(Integer)", "instanceof"},
        {"false and exit()", "no such method"},
    };
    struct idem_expr *expr;
    struct idem_error err;

    for (size_t i = 0; i < sizeof(forbidden) / sizeof(forbidden[0]); i++) {
        CHECK_INT(idem_expr_compile(forbidden[i][0], strlen(forbidden[i][0]), 0, &expr, &err),
                  IDEM_E_INVALID);
        CHECK_HAS(err.text, forbidden[i][1]);
    }
}

TEST(what_only_looks_unsafe_compiles) {
    CHECK_VALUE("'T(' + #T + ')'", "{\"T\":1}", "T(1)");
    CHECK_VALUE("#m[T]", "{\"m\":{\"T\":\"x\"}}", "x");
    CHECK_VALUE("#m[new]", "{\"m\":{\"new\":\"x\"}}", "x");
    CHECK_VALUE("#m.class", "{\"m\":{\"class\":\"first\"}}", "first");
    CHECK_VALUE("#new.T.new", "{\"new\":{\"T\":{\"new\":1}}}", "1");
}

TEST(a_missing_operand_is_an_error_and_not_null) {
    CHECK_REFUSED("#n ?:", 0, DOC, "a value is missing");
    CHECK_REFUSED("?: 1", 0, DOC, "a value is missing");
    CHECK_REFUSED("()", 0, DOC, "a value is missing");
    CHECK_REFUSED("", 0, DOC, "empty");
    CHECK_REFUSED("  \n", 0, DOC, "empty");
}

/* Limits. */

TEST(an_expression_may_have_16384_bytes_and_no_more) {
    static char expr[IDEM_EXPR_LEN_MAX + 2];

    memset(expr, ' ', sizeof(expr) - 1);
    expr[0] = '1';
    CHECK_REFUSED(expr, 0, DOC, "allowed: up to 16384");
    expr[IDEM_EXPR_LEN_MAX] = '\0';
    CHECK_INT(evaluate(expr, 0, DOC), 0);
}

static void nested_check(const char *open, const char *close, int levels, bool allowed) {
    char expr[4096];
    size_t n = 0;

    for (int i = 0; i < levels; i++)
        n += (size_t)snprintf(expr + n, sizeof(expr) - n, "%s", open);
    expr[n++] = '1';
    for (int i = 0; i < levels; i++)
        n += (size_t)snprintf(expr + n, sizeof(expr) - n, "%s", close);
    expr[n] = '\0';
    if (allowed)
        CHECK_INT(evaluate(expr, 0, DOC), 0);
    else
        CHECK_REFUSED(expr, 0, DOC, "nested too deep");
}

TEST(an_expression_may_be_nested_128_levels_and_no_more) {
    nested_check("(", ")", IDEM_EXPR_DEPTH_MAX - 1, true);
    nested_check("(", ")", IDEM_EXPR_DEPTH_MAX, false);
    nested_check("{", "}", IDEM_EXPR_DEPTH_MAX - 1, true);
    nested_check("{", "}", IDEM_EXPR_DEPTH_MAX, false);
    nested_check("- ", "", IDEM_EXPR_DEPTH_MAX - 1, true);
    nested_check("- ", "", IDEM_EXPR_DEPTH_MAX, false);
    nested_check("#l[", "]", IDEM_EXPR_DEPTH_MAX, false);
    nested_check("'a'.concat(", ")", IDEM_EXPR_DEPTH_MAX - 1, true);
}

TEST(a_long_chain_is_not_deep) {
    char expr[16000];
    size_t n = 0;

    for (int i = 0; i < 2000; i++)
        n += (size_t)snprintf(expr + n, sizeof(expr) - n, "#n ?: ");
    snprintf(expr + n, sizeof(expr) - n, "'end'");
    CHECK_VALUE(expr, DOC, "end");
    n = 0;
    for (int i = 0; i < 3000; i++)
        n += (size_t)snprintf(expr + n, sizeof(expr) - n, "#i + ");
    snprintf(expr + n, sizeof(expr) - n, "1");
    CHECK_VALUE(expr, DOC, "21001");
}

TEST(an_evaluation_may_take_a_million_steps_and_no_more) {
    char doc[4000] = "{\"l\":[0";

    for (int i = 1; i < 120; i++)
        snprintf(doc + strlen(doc), sizeof(doc) - strlen(doc), ",%d", i);
    strncat(doc, "]}", 3);
    CHECK_VALUE("#l.![#l.![#this]].size()", doc, "120");
    CHECK_REFUSED("#l.![#l.![#l.?[true].size()]].size()", 0, doc, "more steps than the million");
}

/* A list of so many ones, a text of so many letters. */
static const char *doc_of(int items, int letters) {
    static char doc[1 << 17];
    size_t n = (size_t)snprintf(doc, sizeof(doc), "{\"s\":\"%0*d\",\"l\":[1", letters, 0);

    for (int i = 1; i < items; i++)
        n += (size_t)snprintf(doc + n, sizeof(doc) - n, ",1");
    snprintf(doc + n, sizeof(doc) - n, "]}");
    return doc;
}

/* The body a thousand times, with a thousand steps for each. */
static void thousand_check(const char *body) {
    char expr[16000];

    snprintf(expr, sizeof(expr), "#l.![%s].size()", body);
    CHECK_VALUE(expr, doc_of(500, 64000), "500");
    CHECK_REFUSED(expr, 0, doc_of(1000, 64000), "steps");
}

static void chain_check(const char *link, const char *end) {
    char body[15000] = "";

    for (int i = 0; i < 1000; i++)
        strncat(body, link, 16);
    strncat(body, end, 16);
    thousand_check(body);
}

TEST(every_node_costs_a_step) {
    chain_check("1==1 and ", "true");
    chain_check("false?1:", "1");
    chain_check("null?:", "1");
}

TEST(every_comparison_costs_a_step_and_one_for_64_bytes) {
    char body[1000] = "{";

    thousand_check("#s == #s");
    /* Each key of a map is compared with those before it. */
    for (int i = 0; i < 46; i++)
        snprintf(body + strlen(body), sizeof(body) - strlen(body), "%sk%d:1", i == 0 ? "" : ",", i);
    strncat(body, "}", 2);
    thousand_check(body);
}

TEST(a_text_may_have_a_million_bytes_and_no_more) {
    CHECK_VALUE("('x' * 1048576).length()", DOC, "1048576");
    CHECK_REFUSED("'x' * 1048577", 0, DOC, "longer than 1 MiB");
    CHECK_REFUSED("('x' * 1048576) + 'y'", 0, DOC, "longer");
    CHECK_REFUSED("'x'.repeat(2147483647)", 0, DOC, "longer");
    CHECK_VALUE("'' * 2147483647", DOC, "");
}

TEST(an_evaluation_takes_no_more_memory_than_its_arena_has) {
    struct idem_arena doc, arena;
    struct idem_json vars;
    struct idem_expr *expr;
    struct idem_value value;
    struct idem_error err;

    idem_arena_init(&doc, ARENA);
    idem_arena_init(&arena, 4096);
    vars = vars_of(&doc, DOC);
    CHECK_INT(idem_expr_compile("'x' * 10000", 11, 0, &expr, &err), 0);
    CHECK_INT(idem_expr_eval(expr, &vars, &arena, &value, &err), IDEM_E_INVALID);
    CHECK_HAS(err.text, "more memory than");
    idem_expr_free(expr);
    idem_arena_free(&arena);
    idem_arena_free(&doc);
}

TEST(values_may_be_nested_512_levels_and_no_more) {
    char expr[16000] = "#l";

    for (int i = 0; i < 600; i++)
        strncat(expr, ".![{#this}]", 12);
    CHECK_REFUSED(expr, 0, "{\"l\":[1]}", "nested deeper than 512");
}

TEST(a_pattern_that_takes_too_long_is_refused_and_not_waited_for) {
    CHECK_VALUE("#s matches '(a|b|c)+'", DOC, "true");
    CHECK_REFUSED("'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!' matches '(a+)+'", 0, DOC,
                  "too many steps");
    CHECK_REFUSED("'x' matches '(a*)*'", 0, DOC, "the pattern");
    CHECK_REFUSED("'x' matches '(?i)X'", 0, DOC, "the pattern");
    CHECK_REFUSED("'x' matches '(x)\\1'", 0, DOC, "the pattern");
    CHECK_REFUSED("'x' matches 'x{1001}'", 0, DOC, "the pattern");
}

/* A document of nearly two megabytes: texts, a number and a list that are long. */
static char *long_doc(void) {
    size_t size = 1800000, n;
    char *doc = malloc(size);

    CHECK(doc != NULL);
    n = (size_t)snprintf(doc, size,
                         "{\"s\":\"%0*d\",\"w\":\"%*s\",\"x\":1.%0*d,\"b\":1%0*d,\"l\":[1", 400000,
                         1, 400000, " ", 400000, 1, 400000, 1);
    while (n < size - 10)
        n += (size_t)snprintf(doc + n, size - n, ",1");
    snprintf(doc + n, size - n, "]}");
    return doc;
}

static double seconds_of(const char *body, const char *doc) {
    clock_t start = clock();
    char expr[200];

    snprintf(expr, sizeof(expr), "#l.![%s].size()", body);
    evaluate(expr, 0, doc);
    snprintf(expr, sizeof(expr), "#l.![%s].size() + #s", body);
    evaluate(expr, IDEM_EXPR_KEY, doc);
    return (double)(clock() - start) / CLOCKS_PER_SEC;
}

/* The thread sanitizer reads all of a text whenever memmem() is called for it. */
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define SLOW_SEARCH 1
#endif
#endif
#if defined(__SANITIZE_THREAD__)
#define SLOW_SEARCH 1
#endif

/* As slow as the machine and its sanitizers are, what takes all steps gives the measure. */
TEST_IN(work_on_long_texts_and_numbers_is_bounded_too, 300) {
    static const char *const bodies[] = {
        "#s < #s",
        "#s == #s",
        "#w and true",
        "#x > 1",
        "#b > #b",
        "#b > 1.0",
        "#s.length()",
        "#s.indexOf('x')",
        "#s.lastIndexOf(#s)",
        "#s.equalsIgnoreCase(#s)",
        "'a'.equalsIgnoreCase(#s)",
        "#s.compareTo(#s)",
        "#s.trim()",
        "#w.trim()",
        "#s.substring(99999)",
        "#s[99999]",
        "#s.contains('x')",
        "#s matches 'x'",
        "#s.toUpperCase()",
        "#s.replace('0','')",
        "#s.hashCode()",
        "#s + 'x'",
        "#l[#s]",
        "'x'.matches('a{0,99' + '9}')",
        "'x'.matches('(a{9}){9,9' + '9}')",
        "#l.^[true]",
        "#l.contains(2)",
        "#l == #l",
        "#s.concat(#s)",
        "#s.startsWith(#s)",
        "#b + 1.0",
        "#s * 10",
        "'x'.matches(#s)",
        "{#l} == {#l}",
    };
#ifdef SLOW_SEARCH
    return;
#endif
    char *doc = long_doc();
    double most = 1 + 40 * seconds_of("'' + #this + #this + #this + #this + #this", doc);

    for (size_t i = 0; i < sizeof(bodies) / sizeof(bodies[0]); i++) {
        double seconds = seconds_of(bodies[i], doc);

        if (seconds > most)
            fprintf(stderr, "# %s takes %.1f s\n", bodies[i], seconds);
        CHECK(seconds <= most);
    }
    free(doc);
}

TEST(bytes_that_are_not_utf8_do_not_compile) {
    error_check("'a\xff'", 0, "column 3: ", "not UTF-8");
    CHECK_INT(evaluate_bytes("'\xed\xa0\xbd'", 5, 0, DOC), IDEM_E_INVALID);
}

TEST(half_of_a_pair_is_refused) {
    CHECK_VALUE("#u.substring(1,3)", DOC, "\xf0\x9f\x98\x80");
    CHECK_VALUE("#u.length()", DOC, "4");
    CHECK_REFUSED("#u.substring(2)", 0, DOC, "in two");
    CHECK_REFUSED("#u.charAt(1)", 0, DOC, "in two");
    CHECK_REFUSED("#u[1]", 0, DOC, "in two");
}

TEST(variables_are_the_members_of_an_object) {
    struct idem_json list = {.type = IDEM_JSON_ARRAY};
    struct idem_arena arena;
    struct idem_expr *expr;
    struct idem_value value;
    struct idem_error err;

    idem_arena_init(&arena, ARENA);
    CHECK_INT(idem_expr_compile("#a", 2, 0, &expr, &err), 0);
    CHECK_INT(idem_expr_eval(expr, &list, &arena, &value, &err), IDEM_E_INVALID);
    CHECK_HAS(err.text, "members of an object");
    idem_expr_free(expr);
    idem_arena_free(&arena);
}

TEST(values_are_printed_as_java_prints_them) {
    CHECK_VALUE("#l", DOC, "[1, 2, 3]");
    CHECK_STR(outcome.type, "List");
    CHECK_VALUE("'' + #l", DOC, "1,2,3");
    CHECK_STR(outcome.type, "String");
    CHECK_VALUE("#m", DOC, "{x=1, y=2}");
    CHECK_STR(outcome.type, "Map");
    CHECK_VALUE("#d * 4000000", DOC, "1.0E7");
    CHECK_STR(outcome.type, "Double");
    CHECK_VALUE("0.001", DOC, "0.001");
    CHECK_VALUE("0.0001", DOC, "1.0E-4");
    CHECK_VALUE("1.5f", DOC, "1.5");
    CHECK_STR(outcome.type, "Float");
    CHECK_VALUE("2 ^ 31", DOC, "2147483648");
    CHECK_STR(outcome.type, "Long");
    CHECK_VALUE("2147483647 + 1", DOC, "-2147483648");
    CHECK_STR(outcome.type, "Integer");
    CHECK_VALUE("#s.charAt(0)", DOC, "a");
    CHECK_STR(outcome.type, "Character");
    CHECK_VALUE("#n", DOC, "null");
    CHECK_STR(outcome.type, "null");
    CHECK_VALUE("#b", "{\"b\":12345678901234567890}", "12345678901234567890");
    CHECK_STR(outcome.type, "BigInteger");
}

TEST(nuls_in_texts_are_kept) {
    CHECK_INT(evaluate("#z + 'x'", 0, "{\"z\":\"a\\u0000b\"}"), 0);
    CHECK_INT(outcome.len, 4);
    CHECK(memcmp(outcome.text, "a\0bx", 4) == 0);
}

TEST(the_order_of_selected_members_is_not_guessed) {
    CHECK_VALUE("#m.?[value == 2]", DOC, "{y=2}");
    CHECK_VALUE("#m.?[true].size()", DOC, "2");
    CHECK_VALUE("#m.?[true].x", DOC, "1");
    CHECK_REFUSED("#m.?[true]", 0, DOC, "no order");
    CHECK_REFUSED("#m.?[true].![key]", 0, DOC, "no order");
    CHECK_REFUSED("#m.?[true].^[true]", 0, DOC, "no order");
}

TEST(a_power_that_libraries_do_not_agree_on_is_refused) {
    CHECK_REFUSED("0.2 ^ 1.5", 0, DOC, "the last digit of this power");
    CHECK_REFUSED("0.5 ^ 0.3", 0, DOC, "the last digit of this power");
    CHECK_REFUSED("5L ^ 23", 0, DOC, "the last digit of this power");
    CHECK_REFUSED("10 ^ 23", 0, DOC, "the last digit of this power");
    CHECK_VALUE("0.2 ^ 2.0", DOC, "0.04000000000000001");
    CHECK_VALUE("5L ^ 22", DOC, "2384185791015625");
}

TEST(one_to_an_infinite_power_is_no_number) {
    CHECK_VALUE("1.0 ^ (1.0 / 0)", DOC, "NaN");
    CHECK_VALUE("1.0 ^ (-1.0 / 0)", DOC, "NaN");
    CHECK_VALUE("(-1.0) ^ (1.0 / 0)", DOC, "NaN");
    CHECK_VALUE("1.0 ^ (0.0 / 0)", DOC, "NaN");
    CHECK_VALUE("2.0 ^ (1.0 / 0)", DOC, "Infinity");
    CHECK_VALUE("(0.0 / 0) ^ 0", DOC, "1.0");
}

/* Threads. */

#define THREADS 8

struct shared {
    const struct idem_expr *expr;
    const struct idem_json *vars;
};

static void *thread_run(void *data) {
    const struct shared *shared = data;
    struct idem_arena arena;
    struct idem_value value;
    struct idem_error err;
    const char *text;
    size_t len;

    idem_arena_init(&arena, ARENA);
    for (int i = 0; i < 2000; i++) {
        idem_arena_reset(&arena, ARENA);
        if (idem_expr_eval(shared->expr, shared->vars, &arena, &value, &err) < 0 ||
            idem_value_print(&value, &arena, &text, &len, &err) < 0 || len != 17 ||
            memcmp(text, "abc:1,2,3:true2.5", 17) != 0)
            return "wrong";
    }
    idem_arena_free(&arena);
    return NULL;
}

TEST(one_expression_serves_eight_threads_at_once) {
    static const char text[] = "#s + ':' + #l.![#this] + ':' + (#s matches '[a-c]+') + #d";
    struct shared shared;
    struct idem_arena doc;
    struct idem_json vars;
    struct idem_expr *expr;
    struct idem_error err;
    pthread_t threads[THREADS];
    void *answer;

    idem_arena_init(&doc, ARENA);
    vars = vars_of(&doc, DOC);
    CHECK_INT(idem_expr_compile(text, strlen(text), 0, &expr, &err), 0);
    shared = (struct shared){expr, &vars};
    for (int i = 0; i < THREADS; i++)
        CHECK_INT(pthread_create(&threads[i], NULL, thread_run, &shared), 0);
    for (int i = 0; i < THREADS; i++) {
        CHECK_INT(pthread_join(threads[i], &answer), 0);
        CHECK(answer == NULL);
    }
    idem_expr_free(expr);
    idem_arena_free(&doc);
}

TEST_MAIN
