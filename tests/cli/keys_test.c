/*
 * `idem eval`, `idem canon` and `idem id`.
 */
#include "harness.h"

/* What stands in a file, as standard input. */
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
}

TEST(eval_refuses_variables_that_are_no_object) {
    struct ran ran = RUN("eval", "1", "--vars", "[1]");

    CHECK_INT(ran.status, 65);
    CHECK_HAS(ran.err, "--vars");
    ran = RUN("eval", "1", "--vars", "{");
    CHECK_INT(ran.status, 65);
    CHECK_HAS(ran.err, "column 2");
    CHECK_INT(RUN("eval").status, 64);
    CHECK_INT(RUN("eval", "1", "2").status, 64);
    CHECK_INT(RUN("eval", "1", "--jsonl").status, 64);
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
