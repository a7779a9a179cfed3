/*
 * Keys: every sentence of the rules (src/expr/expr.c), and that no two lists
 * give one key.
 */
#include "expressions.h"

#define DOC                                                                                        \
    "{\"user\":{\"id\":7,\"name\":\"\"},\"order\":{\"id\":\"A-1\",\"lines\":[1,2,3]},\"n\":null,"  \
    "\"e\":\"\",\"s\":\"abc\",\"b\":true,\"d\":100.0,\"l0\":[],\"max\":2147483647,"                \
    "\"lmax\":9223372036854775807,\"big\":12345678901234567890,\"odd\":9007199254740993}"

#define KEY IDEM_EXPR_KEY
#define KEY_TEMPLATE (IDEM_EXPR_KEY | IDEM_EXPR_TEMPLATE)

TEST(a_key_is_what_java_prints_for_texts_and_numbers) {
    CHECK_KEY("'user:' + #user.id + ':order:' + #order.id", DOC, "user:7:order:A-1");
    CHECK_KEY("#user.id", DOC, "7");
    CHECK_KEY("#order.id", DOC, "A-1");
    CHECK_KEY("#d", DOC, "100.0");
    CHECK_KEY("'d=' + #d", DOC, "d=100.0");
    CHECK_KEY("#b", DOC, "true");
    CHECK_KEY("#big", DOC, "12345678901234567890");
    CHECK_KEY("'odd:' + #odd", DOC, "odd:9007199254740993");
    CHECK_KEY_OF("order:#{#order.id}", IDEM_EXPR_TEMPLATE, DOC, "order:A-1");
    CHECK_KEY_OF("#{#user.id}", IDEM_EXPR_TEMPLATE, DOC, "7");
}

TEST(members_that_are_read_by_their_names_are_listed) {
    static const char text[] =
        "#h['X-A'] + #h.b + (#h[c] ?: #h?.d) + #h[#o.e] + #o.f + {#h['g'].h}";
    static const char *const want[] = {"X-A", "b", "c", "d", "g"};
    struct idem_expr *expr;
    struct idem_error err;
    const char *name;
    size_t len, n;

    CHECK(idem_expr_compile(text, sizeof(text) - 1, 0, &expr, &err) == 0);
    for (n = 0; (name = idem_expr_member(expr, "h", n, &len)) != NULL; n++) {
        CHECK(n < 5);
        CHECK(strlen(want[n]) == len && memcmp(want[n], name, len) == 0);
    }
    CHECK(n == 5);
    CHECK(idem_expr_member(expr, "x", 0, &len) == NULL);
    idem_expr_free(expr);
}

TEST(a_null_operand_is_an_error_that_shows_the_expression) {
    CHECK_REFUSED("'a' + #n", KEY, DOC, "column 7: null");
    CHECK_HAS(outcome.err.text, "\n'a' + #n\n      ^");
    CHECK_REFUSED("#n + 'a'", KEY, DOC, "column 1: null");
    CHECK_REFUSED("'a' + #missing", KEY, DOC, "null");
    CHECK_REFUSED("#n + #n", KEY, DOC, "null");
    CHECK_REFUSED("1 + #n", KEY, DOC, "null");
    CHECK_REFUSED("-#n", KEY, DOC, "null");
    CHECK_REFUSED("#n < 1 ? #s : 'x'", KEY, DOC, "null");
    CHECK_REFUSED("#n == 'x' ? #s : 'y'", KEY, DOC, "null");
    CHECK_REFUSED("#s == #n ? #s : 'y'", KEY, DOC, "null");
    CHECK_REFUSED("#n between {1,2} ? #s : 'y'", KEY, DOC, "null");
    CHECK_REFUSED("#max between {#n, 9} ? #s : 'y'", KEY, DOC, "null");
    CHECK_REFUSED("#user.id between {1, #n} ? #s : 'y'", KEY, DOC, "null");
    CHECK_REFUSED("#n matches 'x' ? #s : 'y'", KEY, DOC, "null, which must not be");
    CHECK_REFUSED("#s matches #n ? #s : 'y'", KEY, DOC, "null, which must not be");
    CHECK_REFUSED("#n ? #s : 'y'", KEY, DOC, "null");
    CHECK_REFUSED("#s.equals(#n) ? #s : 'y'", KEY, DOC, "null");
    CHECK_REFUSED("#user[#n]", KEY, DOC, "null");
    CHECK_REFUSED("#user[#n] ?: 'none'", KEY, DOC, "column 7: null");
    CHECK_REFUSED("a#{#n}b", KEY_TEMPLATE, DOC, "null");
    CHECK_REFUSED("{#s, #n}", KEY, DOC, "null");
    CHECK_REFUSED("#l", KEY, "{\"l\":[1,null]}", "null");
}

TEST(a_null_result_is_an_error) {
    CHECK_REFUSED("#n", KEY, DOC, "null");
    CHECK_REFUSED("#missing", KEY, DOC, "null");
    CHECK_REFUSED("#n?.x", KEY, DOC, "null");
    CHECK_REFUSED("#user['zz']", KEY, DOC, "null");
    CHECK_REFUSED("#{#n}", KEY_TEMPLATE, DOC, "null");
}

TEST(elvis_provides_for_null_and_for_empty) {
    CHECK_KEY("#n ?: 'none'", DOC, "none");
    CHECK_KEY("'a' + (#n ?: 'none')", DOC, "anone");
    CHECK_KEY("#n?.x ?: 'none'", DOC, "none");
    CHECK_KEY("#e ?: 'none'", DOC, "none");
    CHECK_KEY_OF("a#{#n ?: '-'}b", IDEM_EXPR_TEMPLATE, DOC, "a-b");
}

TEST(null_may_be_asked_for) {
    CHECK_KEY("#n == null ? 'none' : #n", DOC, "none");
    CHECK_KEY("null != #s ? #s : 'none'", DOC, "abc");
}

TEST(an_empty_result_is_an_error) {
    CHECK_REFUSED("#e", KEY, DOC, "empty");
    CHECK_REFUSED("#user.name", KEY, DOC, "empty");
    CHECK_REFUSED("#e + ''", KEY, DOC, "empty");
    CHECK_REFUSED("#{#e}", KEY_TEMPLATE, DOC, "empty");
    CHECK_REFUSED("", KEY_TEMPLATE, DOC, "empty");
    CHECK_REFUSED("''", KEY, DOC, "empty");
}

TEST(an_object_is_an_error) {
    CHECK_REFUSED("#user", KEY, DOC, "object");
    CHECK_REFUSED("'u:' + #user", KEY, DOC, "object");
    CHECK_REFUSED("u:#{#user}", KEY_TEMPLATE, DOC, "object");
    CHECK_REFUSED("{#user}", KEY, DOC, "object");
    CHECK_REFUSED("{a:#s}", KEY, DOC, "object");
    CHECK_REFUSED("#user.toString()", KEY, DOC, "object");
    CHECK_REFUSED("#user.![#this]", KEY, DOC, "object");
}

TEST(a_list_is_told_from_every_other_list) {
    CHECK_KEY("#order.lines", DOC, "[1,2,3]");
    CHECK_KEY("'lines:' + #order.lines", DOC, "lines:[1,2,3]");
    CHECK_KEY_OF("l#{#order.lines}", IDEM_EXPR_TEMPLATE, DOC, "l[1,2,3]");
    CHECK_KEY("#l", "{\"l\":[\"a\",\"b\"]}", "[a,b]");
    CHECK_KEY("#l", "{\"l\":[\"a,b\"]}", "[\"a,b\"]");
    CHECK_KEY("#l", "{\"l\":[\"a\\\"b\"]}", "[\"a\"\"b\"]");
    CHECK_KEY("#l", "{\"l\":[\"\"]}", "[\"\"]");
    CHECK_KEY("#l", "{\"l\":[[1],[2,3]]}", "[[1],[2,3]]");
    CHECK_KEY("#l", "{\"l\":[\"[1]\",[]]}", "[\"[1]\",[]]");
    CHECK_KEY("{#user.id, #order.id}", DOC, "[7,A-1]");
    CHECK_KEY("#l", "{\"l\":[1,\"1\",true,\"true\",\"false\"]}",
              "[1,\"1\",true,\"true\",\"false\"]");
    CHECK_KEY("#l", "{\"l\":[\"-\",\"1a\",\"a1\",\"True\",\"null\",\"NaN\",\".5\"]}",
              "[\"-\",\"1a\",a1,True,null,NaN,.5]");
    CHECK_KEY("{#s.charAt(0), '1'.charAt(0)}", DOC, "[a,\"1\"]");
    CHECK_REFUSED("#order.lines.toString()", KEY, DOC, "the text of a list");
    CHECK_REFUSED("'x'.concat(#order.lines)", KEY, DOC, "the text of a list");
}

TEST(the_order_of_members_is_no_part_of_a_key) {
    static const char *const exprs[] = {
        "#user.![key]",           "#user.![value]",
        "#user.^[true]",          "#user.$[true].id",
        "{a:#s}.![value]",        "{a:#s,b:1}.^[true].a",
        "#user.?[true].![value]", "#user.?[true].$[true].id",
        "#user.![value][0]",      "#l0.![#user.![key]] + #user.^[true]",
    };

    for (size_t i = 0; i < sizeof(exprs) / sizeof(exprs[0]); i++)
        CHECK_REFUSED(exprs[i], KEY, DOC, "the members of an object have no order");
    CHECK_REFUSED("#user.?[true]", KEY, DOC, "an object cannot be part");
    CHECK_KEY("#user.?[key == 'id'].size()", DOC, "1");
    CHECK_KEY("#user.?[key == 'id'].id", DOC, "7");
    CHECK_VALUE("#user.![key]", DOC, "[id, name]");
    CHECK_VALUE("#user.^[true]", DOC, "{id=7}");
}

TEST(an_empty_list_is_an_error) {
    CHECK_REFUSED("#l0", KEY, DOC, "empty list");
    CHECK_REFUSED("'x' + #l0", KEY, DOC, "empty list");
}

TEST(a_text_is_told_from_a_list) {
    CHECK_KEY("#x", "{\"x\":[1]}", "[1]");
    CHECK_KEY("#x", "{\"x\":\"[1]\"}", "\"[1]\"");
    CHECK_KEY("#x", "{\"x\":\"\\\"[1]\\\"\"}", "\"\"\"[1]\"\"\"");
    CHECK_KEY("'x:' + #x", "{\"x\":[1]}", "x:[1]");
    CHECK_KEY("'x:' + #x", "{\"x\":\"[1]\"}", "x:\"[1]\"");
    CHECK_KEY("#x.trim()", "{\"x\":\" [1]\"}", "\"[1]\"");
    /* Brackets that the expression itself adds are not quoted. */
    CHECK_KEY("'[' + #x + ']'", "{\"x\":1}", "[1]");
    CHECK_KEY_OF("[#{#x}]", IDEM_EXPR_TEMPLATE, "{\"x\":1}", "[1]");
}

TEST(an_expression_that_reads_no_variable_does_not_compile) {
    CHECK_REFUSED("1", KEY, DOC, "no variable is read");
    CHECK_REFUSED("'a' + 'b'", KEY, DOC, "no variable is read");
    CHECK_REFUSED("{1,2}", KEY, DOC, "no variable is read");
    CHECK_REFUSED("#root", KEY, DOC, "no variable is read");
    CHECK_REFUSED("'x' + #this", KEY, DOC, "no variable is read");
    CHECK_REFUSED("null ?: 'x'", KEY, DOC, "no variable is read");
}

TEST(a_quoted_literal_and_a_template_need_no_variable) {
    CHECK_KEY("'nightly'", DOC, "nightly");
    CHECK_KEY("('nightly')", DOC, "nightly");
    CHECK_KEY("\"nightly\"", DOC, "nightly");
    CHECK_KEY_OF("nightly", IDEM_EXPR_TEMPLATE, DOC, "nightly");
    CHECK_KEY_OF("n#{1 + 1}", IDEM_EXPR_TEMPLATE, DOC, "n2");
}

TEST(a_forgotten_hash_does_not_compile) {
    CHECK_REFUSED("orderId", KEY, DOC, "without #");
    CHECK_REFUSED("#b ? order.id : #s", KEY, DOC, "column 6: a name without #");
    CHECK_REFUSED("'x' + #s + order.id", KEY, DOC, "without #");
    CHECK_REFUSED("order:#{order.id}", KEY_TEMPLATE, DOC, "without #");
    CHECK_REFUSED("order:#order.id", KEY_TEMPLATE, DOC, "#{#name}");
    CHECK_REFUSED("#{#s}:#order.id", KEY_TEMPLATE, DOC, "column 7");
    /* Where a name without # is no variable, it is fine. */
    CHECK_KEY("#user[id]", DOC, "7");
    CHECK_KEY("#l.![id]", "{\"l\":[{\"id\":1},{\"id\":2}]}", "[1,2]");
    CHECK_KEY("#l.?[id == 2].![id]", "{\"l\":[{\"id\":1},{\"id\":2}]}", "[2]");
    CHECK_KEY("{id:#s}.id", DOC, "abc");
    CHECK_KEY_OF("room #1: #{#s}", IDEM_EXPR_TEMPLATE, DOC, "room #1: abc");
}

TEST(an_integer_that_would_wrap_is_an_error) {
    CHECK_REFUSED("#max + 1", KEY, DOC, "overflows");
    CHECK_REFUSED("#max * 1000", KEY, DOC, "overflows");
    CHECK_REFUSED("'x' + (#lmax + 1)", KEY, DOC, "overflows");
    CHECK_REFUSED("#max ^ 3", KEY, DOC, "overflows");
    CHECK_REFUSED("#lmax.intValue()", KEY, DOC, "overflows");
    CHECK_REFUSED("(#s.length() - 5) ^ 33", KEY, DOC, "overflows");
    CHECK_REFUSED("#x.longValue()", KEY, "{\"x\":1e19}", "overflows");
    CHECK_REFUSED("#x.longValue()", KEY, "{\"x\":-1e19}", "overflows");
    CHECK_REFUSED("(#x * 9223372036854775808d).longValue()", KEY, "{\"x\":1.0}", "more digits");
    CHECK_REFUSED("(2.0 ^ #x).longValue()", KEY, "{\"x\":63}", "overflows");
    CHECK_KEY("(0 - 2.0 ^ #x).longValue()", "{\"x\":63}", "-9223372036854775808");
    CHECK_KEY("#x.longValue()", "{\"x\":1e18}", "1000000000000000000");
    CHECK_KEY("#lmax.longValue()", DOC, "9223372036854775807");
    CHECK_KEY("(#s.length() - 5) ^ 31", DOC, "-2147483648");
    CHECK_KEY("#max + 1L", DOC, "2147483648");
}

TEST(an_integer_keeps_its_digits_or_is_an_error) {
    CHECK_REFUSED("#odd + 0.0", KEY, DOC, "a double does not keep");
    CHECK_REFUSED("#odd.doubleValue()", KEY, DOC, "a double does not keep");
    CHECK_REFUSED("#big * 1.0", KEY, DOC, "a double does not keep");
    CHECK_REFUSED("#max * 1f", KEY, DOC, "a double does not keep");
    CHECK_KEY("#max * 1.0", DOC, "2.147483647E9");
    CHECK_REFUSED("#odd ^ 1", KEY, DOC, "a double does not keep");
    CHECK_REFUSED("#odd ^ 1.0", KEY, DOC, "a double does not keep");
    CHECK_REFUSED("#max ^ 1f", KEY, DOC, "a double does not keep");
}

TEST(an_integer_is_not_compared_with_a_double_that_two_are_equal_to) {
    static const char *const exprs[] = {
        "#odd == 9007199254740992.0",
        "9007199254740992.0 != #odd",
        "#odd < 9007199254740992.0",
        "#odd <= 1.0",
        "#odd > 1.0",
        "1.0 >= #odd",
        "#odd between {1.0, 2}",
        "#d between {1, #odd}",
        "#d between {#odd, 1}",
        "#big > 1.0",
        "#odd == 1f",
        "#max == 1f",
        "#x == 16777216f",
    };
    char expr[80];

    for (size_t i = 0; i < sizeof(exprs) / sizeof(exprs[0]); i++) {
        snprintf(expr, sizeof(expr), "%s ? #s : 'y'", exprs[i]);
        CHECK_REFUSED(expr, KEY,
                      "{\"odd\":9007199254740993,\"d\":1.5,\"s\":\"abc\",\"max\":2147483647,"
                      "\"big\":12345678901234567890,\"x\":16777217}",
                      "a double does not keep");
    }
    CHECK_VALUE("#odd == 9007199254740992.0", DOC, "true");
    CHECK_KEY("#odd == 9007199254740993L", DOC, "true");
    CHECK_KEY("#odd > #max", DOC, "true");
    CHECK_KEY("#big > #odd", DOC, "true");
    CHECK_KEY("#max == 2147483647.0", DOC, "true");
    CHECK_KEY("#max == 2147483647.0 + 0f", DOC, "true");
    CHECK_KEY("#odd.equals(9007199254740992.0)", DOC, "false");
}

TEST(a_number_of_more_digits_than_a_double_is_an_error) {
    CHECK_KEY("#x", "{\"x\":0.30000000000000004}", "0.30000000000000004");
    CHECK_KEY("#x", "{\"x\":1.00000000000000000000}", "1.0");
    CHECK_REFUSED("#x", KEY, "{\"x\":1.00000000000000000001}", "more digits");
    /* Of all that read as one double, the shortest alone is a key. */
    CHECK_KEY("#x", "{\"x\":98765432109876.55}", "9.876543210987655E13");
    CHECK_REFUSED("#x", KEY, "{\"x\":98765432109876.541}", "more digits");
    CHECK_REFUSED("#x", KEY, "{\"x\":98765432109876.542}", "more digits");
    CHECK_REFUSED("'a' + #x", KEY, "{\"x\":[98765432109876.542]}", "more digits");
    CHECK_KEY("#x", "{\"x\":9007199254740992.0}", "9.007199254740992E15");
    CHECK_REFUSED("#x", KEY, "{\"x\":9007199254740993.0}", "more digits");
    CHECK_REFUSED("#x", KEY, "{\"x\":9007199254740993e0}", "more digits");
    CHECK_REFUSED("#x", KEY, "{\"x\":-0.30000000000000001}", "more digits");
    CHECK_KEY("#x", "{\"x\":-0.3000000000000000000}", "-0.3");
    CHECK_KEY("#x", "{\"x\":5e-324}", "4.9E-324");
    CHECK_REFUSED("#x", KEY, "{\"x\":4.9e-324}", "more digits");
    CHECK_KEY("#x", "{\"x\":0e-400}", "0.0");
    CHECK_REFUSED("#x", KEY, "{\"x\":1e-400}", "more digits");
    CHECK_REFUSED("#x", KEY, "{\"x\":1e400}", "beyond all bounds");
    CHECK_REFUSED("#d / 0", KEY, DOC, "beyond all bounds");
    CHECK_REFUSED("'x' + 0.0 / 0 + #s", KEY, DOC, "beyond all bounds");
}

TEST(a_number_in_the_expression_is_the_one_that_is_written) {
    CHECK_REFUSED("#d == 98765432109876.541", KEY, DOC, "column 7: a number with more digits");
    CHECK_REFUSED("#d + 9007199254740993.0", KEY, DOC, "more digits");
    CHECK_REFUSED("#d + 9007199254740993d", KEY, DOC, "more digits");
    CHECK_REFUSED("#d + 009007199254740993e0", KEY, DOC, "more digits");
    CHECK_REFUSED("#d + 1e-400", KEY, DOC, "more digits");
    CHECK_REFUSED("#d < 1e400", KEY, DOC, "beyond all bounds");
    CHECK_REFUSED("#d + 33554433f", KEY, DOC, "more digits");
    CHECK_REFUSED("#d + 0.123456789f", KEY, DOC, "more digits");
    CHECK_REFUSED("#d + 1e-50f", KEY, DOC, "more digits");
    CHECK_REFUSED("#d < 1e39f", KEY, DOC, "beyond all bounds");
    CHECK_KEY("#d + 9007199254740892d", DOC, "9.007199254740992E15");
    CHECK_KEY("#d + 0.5f", DOC, "100.5");
    CHECK_KEY("#d + 00.0f", DOC, "100.0");
    CHECK_KEY("#d < 16777216f", DOC, "true");
    CHECK_KEY("#d < 3.4028235E38f", DOC, "true");
    CHECK_KEY("#d + 0.30000000000000004", DOC, "100.3");
    CHECK_VALUE("9007199254740993.0", DOC, "9.007199254740992E15");
    CHECK_VALUE("33554433f", DOC, "3.3554432E7");
}

TEST(a_hash_is_no_key) {
    CHECK_REFUSED("#s.hashCode()", KEY, DOC, "one number to different values");
}

TEST(a_key_has_at_most_4096_bytes) {
    CHECK_KEY("(#s * 1365).length() + #s", DOC, "4095abc");
    CHECK_INT(evaluate("#s * 1365 + 'x'", KEY, DOC), 0);
    CHECK_INT(outcome.len, IDEM_KEY_MAX);
    CHECK_REFUSED("#s * 1365 + 'xy'", KEY, DOC, "longer than 4096");
}

TEST(an_expression_must_have_been_compiled_for_keys) {
    struct idem_arena arena;
    struct idem_json vars;
    struct idem_expr *expr;
    struct idem_error err;
    const char *key;
    size_t len;

    idem_arena_init(&arena, ARENA);
    vars = vars_of(&arena, DOC);
    CHECK_INT(idem_expr_compile("1", 1, 0, &expr, &err), 0);
    CHECK_INT(idem_expr_key(expr, &vars, &arena, &key, &len, &err), IDEM_E_INVALID);
    idem_expr_free(expr);
    idem_arena_free(&arena);
}

/* Every list of up to two short items, and every short text: no two have one key. */

#define LETTERS "a,[]\"1-"
#define TEXTS (1 + 7 + 49)          /* of up to two letters */
#define ITEMS (2 * TEXTS + SCALARS) /* a text, or a list of one, or something else */
#define LISTS (ITEMS + ITEMS * ITEMS)
#define SCALARS 6

static const char *const scalars[SCALARS] = {"1", "-1", "11", "1.0", "true", "false"};

static void put(char *to, size_t size, const char *text) {
    size_t len = strlen(to);

    snprintf(to + len, size - len, "%s", text);
}

static void text_put(char *json, size_t size, int number) {
    char letters[3] = "", escaped[8] = "";

    if (number > 0 && number <= 7) {
        letters[0] = LETTERS[number - 1];
    } else if (number > 7) {
        letters[0] = LETTERS[(number - 8) / 7];
        letters[1] = LETTERS[(number - 8) % 7];
    }
    for (int i = 0; letters[i] != '\0'; i++)
        put(escaped, sizeof(escaped), letters[i] == '"' ? "\\\"" : (char[2]){letters[i], '\0'});
    put(json, size, "\"");
    put(json, size, escaped);
    put(json, size, "\"");
}

static void item_put(char *json, size_t size, int number) {
    if (number >= 2 * TEXTS) {
        put(json, size, scalars[number - 2 * TEXTS]);
        return;
    }
    put(json, size, number < TEXTS ? "" : "[");
    text_put(json, size, number % TEXTS);
    put(json, size, number < TEXTS ? "" : "]");
}

struct seen {
    char json[40], key[40];
};

static int seen_order(const void *a, const void *b) {
    return strcmp(((const struct seen *)a)->key, ((const struct seen *)b)->key);
}

static void seen_make(struct seen *seen, const char *json) {
    char doc[80];

    snprintf(doc, sizeof(doc), "{\"x\":%s}", json);
    CHECK_INT(evaluate("#x", KEY, doc), 0);
    snprintf(seen->json, sizeof(seen->json), "%s", json);
    CHECK(outcome.len < sizeof(seen->key));
    memcpy(seen->key, outcome.text, outcome.len + 1);
}

TEST_IN(no_two_lists_and_no_list_and_text_give_one_key, 120) {
    static struct seen seen[LISTS + TEXTS];
    char json[40];
    size_t n = 0;

    for (int text = 1; text < TEXTS; text++) {
        json[0] = '\0';
        text_put(json, sizeof(json), text);
        seen_make(&seen[n++], json);
    }
    for (int first = 0; first < ITEMS; first++)
        for (int second = -1; second < ITEMS; second++) {
            snprintf(json, sizeof(json), "[");
            item_put(json, sizeof(json), first);
            if (second >= 0) {
                put(json, sizeof(json), ",");
                item_put(json, sizeof(json), second);
            }
            put(json, sizeof(json), "]");
            seen_make(&seen[n++], json);
        }
    qsort(seen, n, sizeof(seen[0]), seen_order);
    for (size_t i = 1; i < n; i++) {
        if (strcmp(seen[i - 1].key, seen[i].key) == 0)
            fprintf(stderr, "# %s and %s are both %s\n", seen[i - 1].json, seen[i].json,
                    seen[i].key);
        CHECK(strcmp(seen[i - 1].key, seen[i].key) != 0);
    }
}

/* Random lists: another list, another key. */

static uint64_t random_state;

static uint32_t random_below(uint32_t n) {
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(random_state >> 33) % n;
}

/* Appends a list, and the form that distinguishes it from all others: its items with their types,
   texts by length, numbers as Java prints them. */
struct made {
    char json[600], form[900];
};

static void text_make(struct made *made) {
    static const char *const pieces[] = {"a",     ",",       "[",        "]",  "\\\"", "1",
                                         " ",     "\\u0000", "-",        ".",  "E",    "true",
                                         "false", "1.0",     "Infinity", "NaN"};
    static const char *const plain[] = {"a",     ",",       "[",        "]",  "\"", "1",
                                        " ",     "\\u0000", "-",        ".",  "E",  "true",
                                        "false", "1.0",     "Infinity", "NaN"};
    char json[64] = "", form[64] = "", sized[96];
    uint32_t n = random_below(4), piece;

    for (uint32_t i = 0; i < n; i++) {
        piece = random_below(sizeof(pieces) / sizeof(pieces[0]));
        put(json, sizeof(json), pieces[piece]);
        put(form, sizeof(form), plain[piece]);
    }
    put(made->json, sizeof(made->json), "\"");
    put(made->json, sizeof(made->json), json);
    put(made->json, sizeof(made->json), "\"");
    snprintf(sized, sizeof(sized), "%zu:%s", strlen(form), form);
    put(made->form, sizeof(made->form), sized);
}

static void scalar_make(struct made *made) {
    static const char *const each[][2] = {
        {"1", "1"},
        {"1.0", "1.0"},
        {"1e0", "1.0"},
        {"1.00", "1.0"},
        {"-1", "-1"},
        {"-1.0", "-1.0"},
        {"11", "11"},
        {"-0", "0"},
        {"-0.0", "-0.0"},
        {"0", "0"},
        {"1e7", "1.0E7"},
        {"10000000", "10000000"},
        {"1e-7", "1.0E-7"},
        {"1.11", "1.11"},
        {"true", "true"},
        {"false", "false"},
        {"11e0", "11.0"},
        {"0.1e1", "1.0"},
        {"5000000000", "5000000000"},
        {"12345678901234567890", "12345678901234567890"},
    };
    uint32_t one = random_below(sizeof(each) / sizeof(each[0]));

    put(made->json, sizeof(made->json), each[one][0]);
    put(made->form, sizeof(made->form), "=");
    put(made->form, sizeof(made->form), each[one][1]);
    put(made->form, sizeof(made->form), ";");
}

static void list_make(struct made *made, int depth) {
    uint32_t n = random_below(4);

    put(made->json, sizeof(made->json), "[");
    put(made->form, sizeof(made->form), "(");
    for (uint32_t i = 0; i < n; i++) {
        if (i > 0)
            put(made->json, sizeof(made->json), ",");
        if (depth > 0 && random_below(3) == 0)
            list_make(made, depth - 1);
        else if (random_below(2) == 0)
            scalar_make(made);
        else
            text_make(made);
    }
    put(made->json, sizeof(made->json), "]");
    put(made->form, sizeof(made->form), ")");
}

static bool random_key(struct made *made, char *key, size_t *len) {
    char doc[700];

    *made = (struct made){"", ""};
    if (random_below(4) == 0)
        text_make(made);
    else
        list_make(made, 2);
    snprintf(doc, sizeof(doc), "{\"x\":%s}", made->json);
    if (evaluate("#x", KEY, doc) < 0)
        return false;
    memcpy(key, outcome.text, outcome.len);
    *len = outcome.len;
    return true;
}

TEST_IN(random_lists_that_differ_have_keys_that_differ, 120) {
    static struct {
        struct made made;
        char key[1200];
        size_t len;
    } seen[1500];
    const char *seed = getenv("IDEM_SEED");
    size_t n = 0;

    random_state = seed == NULL ? 20240229 : strtoull(seed, NULL, 10);
    while (n < sizeof(seen) / sizeof(seen[0])) {
        if (!random_key(&seen[n].made, seen[n].key, &seen[n].len))
            continue;
        for (size_t i = 0; i < n; i++) {
            bool same = strcmp(seen[i].made.form, seen[n].made.form) == 0;
            bool one =
                seen[i].len == seen[n].len && memcmp(seen[i].key, seen[n].key, seen[n].len) == 0;

            if (same != one)
                fprintf(stderr, "# %s and %s\n", seen[i].made.json, seen[n].made.json);
            CHECK(same == one);
        }
        n++;
    }
}

TEST_MAIN
