/*
 * `idem eval`, `idem canon` and `idem id`.
 */
#include "harness.h"

/* Runs idem with `input` as standard input. */
static struct ran run_with(const char *input, const char *const *argv) {
    struct proc proc;
    const char *path = in_folder("input");
    FILE *file = fopen(path, "w");
    int fd;

    CHECK(file != NULL && fputs(input, file) >= 0 && fclose(file) == 0);
    fd = open(path, O_RDONLY);
    CHECK(fd >= 0);
    proc = proc_start_on(fd, argv);
    close(fd);
    return proc_wait(&proc);
}
#define RUN_WITH(input, ...) run_with(input, (const char *const[]){__VA_ARGS__, NULL})

TEST(eval_prints_the_value) {
    struct ran ran = RUN("eval", "'order:' + #order.id", "--vars", "{\"order\":{\"id\":4711}}");

    CHECK_INT(ran.status, 0);
    CHECK_STR(ran.out, "order:4711\n");
    CHECK_STR(RUN("eval", "1 + 1").out, "2\n");
    CHECK_STR(RUN("eval", "--template", "o:#{#id}", "--vars", "{\"id\":1}").out, "o:1\n");
    CHECK_STR(RUN("eval", "'a' + #x", "--vars", "{\"x\":null}").out, "anull\n");
}

TEST(eval_shows_where_an_expression_is_wrong) {
    struct ran ran = RUN("eval", "#a.b ++", "--vars", "{\"a\":{\"b\":1}}");

    CHECK_INT(ran.status, 65);
    CHECK_STR(ran.out, "");
    CHECK_HAS(ran.err, "column 6");
    CHECK_HAS(ran.err, "#a.b ++\n     ^");
}

TEST(eval_with_key_follows_the_rules_of_keys) {
    CHECK_INT(RUN("eval", "--key", "'a' + #x", "--vars", "{\"x\":null}").status, 65);
    CHECK_INT(RUN("eval", "--key", "order").status, 65);
    CHECK_STR(RUN("eval", "--key", "'a' + #x", "--vars", "{\"x\":7}").out, "a7\n");
    CHECK_STR(RUN("eval", "--key", "a#{#x}", "--vars", "{\"x\":7}").out, "a7\n");
    CHECK_INT(RUN("eval", "--key", "'a#{#x}'", "--vars", "{\"x\":7}").status, 65);
}

TEST(eval_refuses_variables_that_are_no_object) {
    struct ran ran = RUN("eval", "1", "--vars", "[1]");

    CHECK_INT(ran.status, 65);
    CHECK_HAS(ran.err, "the variables are no JSON object");
    ran = RUN("eval", "1", "--vars", "{");
    CHECK_INT(ran.status, 65);
    CHECK_HAS(ran.err, "column 2");
    CHECK_INT(RUN("eval").status, 64);
    CHECK_INT(RUN("eval", "1", "2").status, 64);
    CHECK_INT(RUN("eval", "1", "--jsonl").status, 64);
}

TEST(variables_come_from_a_file_too) {
    const char *path = in_folder("vars.json");
    FILE *file = fopen(path, "w");
    struct ran ran;

    CHECK(file != NULL && fputs("{\"a\": 5}", file) >= 0 && fclose(file) == 0);
    CHECK_STR(RUN("eval", "#a + 1", "--vars-file", path).out, "6\n");
    ran = RUN("eval", "#a + 1", "--vars-file", path, "--vars", "{}");
    CHECK_INT(ran.status, 64);
    ran = RUN("eval", "#a + 1", "--vars-file", in_folder("nowhere"));
    CHECK_INT(ran.status, 66);
    CHECK_HAS(ran.err, "--vars-file: cannot open it");
    ran = RUN("run", "--key-expr", "'f' + #a", "--vars-file", path, "--", "sh", "-c",
              "echo $IDEM_KEY");
    CHECK_STR(ran.out, "f5\n");
}

/* idem run --key-expr. */

TEST(run_makes_the_key_of_the_variables) {
    static const char vars[] = "{\"o\":{\"id\":1810966706881941507},\"u\":\"x\"}";
    struct ran ran;

    ran = RUN("run", "--key-expr", "'u' + #u + #o.id", "--vars", vars, "--", "sh", "-c",
              "echo $IDEM_KEY");
    CHECK_INT(ran.status, 0);
    CHECK_STR(ran.out, "ux1810966706881941507\n");
    ran = RUN("run", "--key-expr", "u#{#u}#{#o.id}", "--vars", vars, "--", "sh", "-c",
              "echo $IDEM_KEY");
    CHECK_STR(ran.out, "ux1810966706881941507\n");
    ran = RUN("run", "--key", "ux1810966706881941507", "--mode", "reject", "--fingerprint", "none",
              "-q", "--duplicate-exit", "3", "--", "true");
    CHECK_INT(ran.status, 3);
}

TEST(run_compares_the_command_line_or_what_an_expression_selects) {
    struct ran ran = RUN("run", "--key-expr", "#a", "--vars", "{\"a\":1}", "--", "echo", "1");

    CHECK_INT(ran.status, 0);
    CHECK_INT(RUN("run", "--key-expr", "#a", "--vars", "{\"a\":1}", "--", "echo", "2").status, 65);
    ran = RUN("run", "--key-expr", "#b", "--fingerprint-expr", "#c", "--vars",
              "{\"b\":2,\"c\":[1,{\"x\":1,\"y\":2}]}", "--", "echo", "1");
    CHECK_STR(ran.out, "1\n");
    ran = RUN("run", "--key-expr", "#b", "--fingerprint-expr", "#c", "--vars",
              "{\"b\":2,\"c\":[1.0,{\"y\":2,\"x\":1}],\"d\":1}", "--", "echo", "2");
    CHECK_STR(ran.out, "1\n");
    CHECK_INT(RUN("run", "--key-expr", "#b", "--fingerprint-expr", "#c", "--vars",
                  "{\"b\":2,\"c\":[2]}", "--", "echo", "2")
                  .status,
              65);
}

TEST(run_refuses_keys_that_are_none_and_starts_nothing) {
    static const struct {
        const char *expr, *vars, *text;
        int status;
    } wrong[] = {
        {"'k' + #a", "{\"a\":null}", "key_expr: column 7: null", 65},
        {"#a", "{\"a\":\"\"}", "key_expr: column 1: the key is empty", 65},
        {"#a", "{\"a\":{}}", "an object", 65},
        {"#a", "{\"a\":\"x\\u0000\"}", "NUL", 65},
        {"#a", "{\"a\":1", "run: --vars: JSON, line 1, column 7", 65},
        {"#a", "[1]", "run: --vars: the variables are no JSON object", 65},
        {"a", "{\"a\":1}", "key_expr: column 1: a name without #", 64},
        {"'#{#a}' + #b", "{}", "template", 64},
    };

    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        struct ran ran = RUN("run", "--key-expr", wrong[i].expr, "--vars", wrong[i].vars, "--",
                             "touch", in_folder("touched"));

        CHECK_INT(ran.status, wrong[i].status);
        CHECK_HAS(ran.err, wrong[i].text);
        CHECK(access(in_folder("touched"), F_OK) != 0);
    }
}

/* Status 65 has two meanings, which the verdict distinguishes. */
TEST(run_refuses_fingerprints_that_cannot_be_made_as_it_does_keys) {
    static const char *const vars[] = {"{\"a\":null}", "{}", NULL};
    struct ran ran;

    for (size_t i = 0; vars[i] != NULL; i++) {
        ran = RUN("run", "--verdict-fd", VERDICT_FD, "--key", "k", "--fingerprint-expr", "#a",
                  "--vars", vars[i], "--", "touch", in_folder("touched"));
        CHECK_INT(ran.status, 65);
        CHECK_HAS(ran.err, "fingerprint_expr: column 1");
        CHECK_STR(ran.verdict, "error code=invalid\n");
        CHECK(!exists("touched"));
        ran = RUN("run", "--verdict-fd", VERDICT_FD, "--key-expr", "#a", "--vars", vars[i], "--",
                  "touch", in_folder("touched"));
        CHECK_INT(ran.status, 65);
        CHECK_STR(ran.verdict, "error code=invalid\n");
        CHECK(!exists("touched"));
    }
    ran = RUN("run", "--key", "k", "--fingerprint-expr", "#a", "--", "touch", in_folder("touched"));
    CHECK_INT(ran.status, 65);
    CHECK_HAS(ran.err, "fingerprint_expr: column 1");
    CHECK(!exists("touched"));
    CHECK_INT(RUN("run", "--key", "k", "--", "true").status, 0);
    ran = RUN("run", "--verdict-fd", VERDICT_FD, "--key", "k", "--", "false");
    CHECK_INT(ran.status, 65);
    CHECK(starts_with(ran.verdict, "mismatch "));
}

TEST(a_literal_key_that_is_too_long_is_a_usage_error_with_or_without_a_fingerprint) {
    char *key = script("%05000d", 0);

    CHECK_INT(RUN("run", "--key", key, "--", "true").status, 64);
    CHECK_INT(
        RUN("run", "--key", key, "--fingerprint-expr", "#a", "--vars", "{\"a\":1}", "--", "true")
            .status,
        64);
}

TEST(a_mismatch_says_what_was_compared) {
    struct ran ran;

    CHECK_INT(RUN("run", "--key", "k", "--fingerprint-expr", "#a", "--vars", "{\"a\":1}", "--",
                  "echo", "1")
                  .status,
              0);
    ran = RUN("run", "--key", "k", "--fingerprint-expr", "#a", "--vars", "{\"a\":2}", "--", "echo",
              "1");
    CHECK_INT(ran.status, 65);
    CHECK_HAS(ran.err, "what fingerprint_expr selects of them differs");
    CHECK(strstr(ran.err, "command line") == NULL);
    CHECK_INT(RUN("run", "--key", "l", "--", "echo", "1").status, 0);
    CHECK_HAS(RUN("run", "--key", "l", "--", "echo", "2").err, "another command line");
}

TEST(what_is_wrong_with_variables_and_scope_is_said_in_words_of_the_command_line) {
    const char *conf = in_folder("words.conf"), *vars = in_folder("vars.json");
    FILE *file = fopen(conf, "w");
    struct ran ran;

    CHECK(file != NULL && fputs("[policy p]\nscope = caller\n", file) >= 0 && fclose(file) == 0);
    ran = RUN("run", "--config", conf, "--policy", "p", "--key", "k", "--", "true");
    CHECK_INT(ran.status, 64);
    CHECK_HAS(ran.err, "use --scope WHO");
    CHECK(strstr(ran.err, "idem_args") == NULL);
    CHECK_INT(
        RUN("run", "--config", conf, "--policy", "p", "--scope", "u", "--key", "k", "--", "true")
            .status,
        0);
    ran = RUN("run", "--scope", "caller", "--key", "k", "--", "true");
    CHECK_INT(ran.status, 64);
    CHECK_HAS(ran.err, "--scope caller");
    file = fopen(vars, "w");
    CHECK(file != NULL && fputs("{", file) >= 0 && fclose(file) == 0);
    ran = RUN("run", "--key-expr", "#a", "--vars-file", vars, "--", "true");
    CHECK_INT(ran.status, 65);
    CHECK_HAS(ran.err, "run: --vars-file: JSON, line 1, column 2");
    ran = RUN("run", "--key-expr", "#a", "--json-max", "5", "--vars", "{\"a\":1}", "--", "true");
    CHECK_INT(ran.status, 65);
    CHECK_HAS(ran.err, "--vars: the variables have 7 bytes; json_max allows 5");
}

TEST(run_wants_one_key_and_reads_all_it_is_given) {
    CHECK_INT(RUN("run", "--", "true").status, 64);
    CHECK_INT(RUN("run", "--key", "a", "--key-expr", "#a", "--", "true").status, 64);
    CHECK_INT(RUN("run", "--key", "a", "--vars", "{}", "--", "true").status, 64);
    CHECK_HAS(RUN("run", "--key", "a", "--vars", "{}", "--", "true").err,
              "nothing reads the variables");
}

TEST(an_expression_in_the_settings_makes_the_key) {
    const char *path = in_folder("expr.conf");
    FILE *file = fopen(path, "w");
    struct ran ran;

    CHECK(file != NULL &&
          fputs("[policy o]\nkey_expr = \"'o' + #id\"\n[policy t]\nkey = serial\n", file) >= 0 &&
          fclose(file) == 0);
    ran = RUN("run", "--config", path, "--policy", "o", "--vars", "{\"id\":9}", "--", "sh", "-c",
              "echo $IDEM_KEY");
    CHECK_STR(ran.out, "o9\n");
    CHECK_INT(RUN("run", "--config", path, "--policy", "o", "--key", "x", "--", "true").status, 78);
    ran = RUN("run", "--config", path, "--policy", "t", "--key-expr", "#a", "--vars", "{\"a\":1}",
              "--", "true");
    CHECK_INT(ran.status, 78);
    CHECK_HAS(ran.err, "key = serial");
}

TEST(a_schedule_goes_behind_a_key_that_was_made) {
    struct ran ran = RUN("run", "--key-expr", "'s' + #a", "--vars", "{\"a\":1}", "--at", "1h", "--",
                         "sh", "-c", "test \"$IDEM_KEY\" = \"s1@$IDEM_AT\" && echo yes");

    CHECK_STR(ran.out, "yes\n");
}

TEST(eval_answers_lines_with_lines) {
    struct ran ran = RUN_WITH(
        "{\"id\":\"a\",\"mode\":\"expr\",\"expr\":\"#x * 2\",\"vars\":{\"x\":21}}\n"
        "{\"id\":2,\"mode\":\"template\",\"expr\":\"n#{#x}\",\"vars\":{\"x\":\"\\u00e4\"}}\n"
        "\n"
        "{\"id\":\"c\",\"expr\":\"new X()\",\"vars\":{}}\n"
        "{\"id\":\"d\",\"expr\":\"1\",\"expect\":\"\\ud800\"}\n"
        "{\"id\":\"e\"}\n"
        "nonsense",
        "eval", "--jsonl");

    CHECK_INT(ran.status, 0);
    CHECK_HAS(ran.out, "{\"id\":\"a\",\"ok\":true,\"value\":\"42\",\"type\":\"Integer\"}\n");
    CHECK_HAS(ran.out, "{\"id\":2,\"ok\":true,\"value\":\"n\u00e4\",\"type\":\"String\"}\n");
    CHECK_HAS(ran.out, "{\"id\":\"c\",\"ok\":false,\"error\":\"column 1");
    CHECK_HAS(ran.out, "{\"id\":\"d\",\"ok\":false,\"error\":");
    CHECK_HAS(ran.out, "{\"id\":\"e\",\"ok\":false,\"error\":");
    CHECK_HAS(ran.out, "{\"id\":null,\"ok\":false,\"error\":");
}

/* No part of the output may be written either. */
TEST(an_id_that_has_no_canonical_form_is_answered_as_null) {
    struct ran ran = RUN_WITH("{\"id\":1e400,\"expr\":\"1\"}\n"
                              "{\"id\":[\"a\",1e400],\"expr\":\"2\"}\n"
                              "{\"id\":1e400,\"expr\":\"\"}\n",
                              "eval", "--jsonl");

    CHECK_INT(ran.status, 0);
    CHECK(starts_with(ran.out, "{\"id\":null,\"ok\":true,\"value\":\"1\",\"type\":\"Integer\"}\n"
                               "{\"id\":null,\"ok\":true,\"value\":\"2\",\"type\":\"Integer\"}\n"
                               "{\"id\":null,\"ok\":false,"));
}

TEST(a_mode_that_is_not_known_is_refused) {
    static const char *const modes[] = {"\"foo\"", "5", "null", "\"\"", "\"Expr\"", NULL};

    for (size_t i = 0; modes[i] != NULL; i++) {
        struct ran ran = RUN_WITH(script("{\"id\":1,\"mode\":%s,\"expr\":\"1\"}\n", modes[i]),
                                  "eval", "--jsonl");

        CHECK_INT(ran.status, 0);
        CHECK_HAS(ran.out, "{\"id\":1,\"ok\":false,\"error\":\"\\\"mode\\\" is \\\"expr\\\"");
    }
}

/* Expressions that begin with a dash. */

TEST(an_expression_that_begins_with_a_dash_stands_behind_two) {
    CHECK_STR(RUN("eval", "--vars", "{\"a\":1}", "--", "-#a").out, "-1\n");
    CHECK_STR(RUN("eval", "--", "-1").out, "-1\n");
}

TEST(eval_names_the_word_that_is_no_flag_and_says_what_to_write) {
    struct ran ran = RUN("eval", "--key", "-#a", "--vars", "{\"a\":1}");

    CHECK_INT(ran.status, 64);
    CHECK_HAS(ran.err, "unknown flag \"-#a\"; write -- before an expression");
    CHECK_HAS(RUN("eval", "-1").err, "unknown flag \"-1\"; write -- before an expression");
    CHECK_HAS(RUN("eval", "-12").err, "unknown flag \"-12\";");
    CHECK_HAS(RUN("eval", "--vars", "{}", "-1").err, "unknown flag \"-1\";");
    CHECK_HAS(RUN("eval", "-1", "-12").err, "unknown flag \"-1\";");
    CHECK_HAS(RUN("eval", "x", "-12", "--key").err, "unknown flag \"-12\";");
    CHECK_HAS(RUN("eval", "--#a").err, "unknown flag \"--#a\"; write -- before an expression");
    CHECK_HAS(RUN("eval", "--vrs", "{}").err, "unknown flag \"--vrs\"; did you mean --vars?");
}

TEST(eval_names_the_operand_that_is_one_too_many) {
    struct ran ran = RUN("eval", "--", "-#a", "--vars", "{\"a\":1}");

    CHECK_INT(ran.status, 64);
    CHECK_HAS(ran.err, "\"--vars\" stands behind --");
    CHECK_HAS(RUN("eval", "1", "+", "1").err, "\"+\" is one more");
}

/* The text after the letter may be a key. */
TEST(other_commands_name_only_the_letter) {
    struct ran ran = RUN("run", "-Ksecret", "--", "true");

    CHECK_INT(ran.status, 64);
    CHECK_HAS(ran.err, "run: unknown flag \"-K\" (see");
    CHECK(strstr(ran.err, "secret") == NULL);
    ran = RUN("show", "-order");
    CHECK_HAS(ran.err, "write -- before a key");
    CHECK(strstr(ran.err, "order") == NULL);
}

TEST(canon_prints_the_canonical_form_and_nothing_else) {
    struct ran ran = RUN_WITH(" {\"b\":1.50, \"a\":1810966706881941507}\n", "canon");

    CHECK_INT(ran.status, 0);
    CHECK_STR(ran.out, "{\"a\":1810966706881941507,\"b\":1.5}");
    ran = RUN_WITH("{\"a\":1,\"a\":2}", "canon");
    CHECK_INT(ran.status, 65);
    CHECK_STR(ran.out, "");
    CHECK_HAS(ran.err, "a name twice");
    CHECK_INT(RUN("canon", "x").status, 64);
}

TEST(id_prints_as_many_as_are_wanted) {
    struct ran ran = RUN("id", "-n", "3");

    CHECK_INT(ran.status, 0);
    CHECK_INT(strlen(ran.out), 3 * 37);
    CHECK_INT(ran.out[14], '7');
    CHECK_INT(RUN("id", "--v4").out[14], '4');
    CHECK_INT(RUN("id", "--v4", "--v7").status, 64);
    CHECK_INT(RUN("id", "x").status, 64);
    CHECK_INT(RUN("id", "-n", "0").status, 64);
}

TEST(id_makes_snowflakes_that_grow_from_run_to_run) {
    long long last = 0;

    for (int i = 0; i < 3; i++) {
        struct ran ran = RUN("id", "--snowflake", "-n", "5000");
        char *line = ran.out;

        CHECK_INT(ran.status, 0);
        for (int k = 0; k < 5000; k++) {
            long long id = strtoll(line, &line, 10);

            CHECK(id > 0);
            CHECK(id >> 22 >= last >> 22);
            last = id;
        }
    }
}

TEST_MAIN
