/*
 * `idem run` evaluates each expression once, and opens one handle. The linker
 * puts the functions below in front of those that they count.
 */
#include "cli/cli.h"
#include "core/handle.h"
#include "expr/expr.h"
#include "temp.h"
#include "test.h"

static unsigned keys, selections, handles;

int __real_idem_expr_key(const struct idem_expr *expr, const struct idem_json *args,
                         struct idem_arena *arena, const char **ret, size_t *ret_len,
                         struct idem_error *err);
int __wrap_idem_expr_key(const struct idem_expr *expr, const struct idem_json *args,
                         struct idem_arena *arena, const char **ret, size_t *ret_len,
                         struct idem_error *err);
int __real_idem_expr_select(const struct idem_expr *expr, const struct idem_json *args,
                            struct idem_arena *arena, struct idem_json *ret,
                            struct idem_error *err);
int __wrap_idem_expr_select(const struct idem_expr *expr, const struct idem_json *args,
                            struct idem_arena *arena, struct idem_json *ret,
                            struct idem_error *err);
int __real_idem_store_open(const char *text, struct idem_loop *loop, const struct idem_clock *clock,
                           struct idem_store **ret, struct idem_error *err);
int __wrap_idem_store_open(const char *text, struct idem_loop *loop, const struct idem_clock *clock,
                           struct idem_store **ret, struct idem_error *err);

int __wrap_idem_expr_key(const struct idem_expr *expr, const struct idem_json *args,
                         struct idem_arena *arena, const char **ret, size_t *ret_len,
                         struct idem_error *err) {
    keys++;
    return __real_idem_expr_key(expr, args, arena, ret, ret_len, err);
}

int __wrap_idem_expr_select(const struct idem_expr *expr, const struct idem_json *args,
                            struct idem_arena *arena, struct idem_json *ret,
                            struct idem_error *err) {
    selections++;
    return __real_idem_expr_select(expr, args, arena, ret, err);
}

int __wrap_idem_store_open(const char *text, struct idem_loop *loop, const struct idem_clock *clock,
                           struct idem_store **ret, struct idem_error *err) {
    handles++;
    return __real_idem_store_open(text, loop, clock, ret, err);
}

#define RUN(...)                                                                                   \
    run((char *[]){"run", "--store", (char *)temp_url("store", "sync=off"), __VA_ARGS__, "--",     \
                   "true", NULL})

static int run(char **argv) {
    struct cli_values values;
    int argc = 0, status;

    while (argv[argc] != NULL)
        argc++;
    CHECK_INT(cli_options_parse(&cli_run, argc, argv, &values), CLI_OK);
    status = cli_run.run(&values);
    idem_policy_release(&values.layer);
    return status;
}

TEST(key_and_fingerprint_are_evaluated_once) {
    CHECK_INT(
        RUN("--key-expr", "'k' + #a", "--fingerprint-expr", "#b", "--vars", "{\"a\":1,\"b\":2}"),
        CLI_OK);
    CHECK_INT(keys, 1);
    CHECK_INT(selections, 1);
    CHECK_INT(handles, 1);
}

TEST(a_fingerprint_beside_a_literal_key_is_evaluated_once) {
    CHECK_INT(RUN("--key", "k", "--fingerprint-expr", "#b", "--vars", "{\"b\":2}"), CLI_OK);
    CHECK_INT(keys, 0);
    CHECK_INT(selections, 1);
}

TEST(a_schedule_reads_the_time_through_the_one_handle) {
    CHECK_INT(RUN("--key-expr", "'k' + #a", "--vars", "{\"a\":1}", "--at", "1h"), CLI_OK);
    CHECK_INT(keys, 1);
    CHECK_INT(handles, 1);
}

TEST_MAIN
