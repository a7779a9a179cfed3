/* `idem token`, and runs with a token. */
#include "cli/harness.h"

#define COUNT "echo x >>%s; echo done"

static char *token_of(const struct ran *ran) {
    CHECK_INT(ran->status, 0);
    CHECK_INT(strspn(ran->out, "0123456789abcdef"), 32);
    CHECK_STR(ran->out + 32, "\n");
    return keep(strndup(ran->out, 32));
}

static char *issue(void) {
    struct ran ran = RUN("token", "--scope", "ann");

    return token_of(&ran);
}

/* Runs that count themselves, with one command line. */
static struct ran use(const char *token, const char *scope, const char *bind) {
    char *text = script(COUNT, in_folder("runs"));

    if (bind == NULL)
        return RUN("run", "--scope", scope, "--token", token, "--", "sh", "-c", text);
    return RUN("run", "--scope", scope, "--bind", bind, "--token", token, "--", "sh", "-c", text);
}

static int runs(void) {
    struct stat st;

    return stat(in_folder("runs"), &st) < 0 ? 0 : (int)st.st_size / 2;
}

TEST(a_token_runs_once_and_is_replayed_then) {
    char *token = issue();
    struct ran first = use(token, "ann", NULL), again = use(token, "ann", NULL);

    CHECK_INT(first.status, 0);
    CHECK_STR(first.out, "done\n");
    CHECK_INT(again.status, 0);
    CHECK_STR(again.out, "done\n");
    CHECK_INT(runs(), 1);
}

TEST(two_tokens_are_two) {
    CHECK(strcmp(issue(), issue()) != 0);
}

TEST(what_was_never_issued_or_to_somebody_else_runs_nothing) {
    char *token = issue();
    struct ran theirs = use(token, "bob", NULL), nobodys = use("none such", "ann", NULL);

    CHECK_INT(theirs.status, 66);
    CHECK_HAS(theirs.err, "no_token: ");
    CHECK_HAS(theirs.err, "is no token for this caller");
    CHECK_INT(nobodys.status, 66);
    CHECK_INT(use(token, "ann", "cart").status, 66); /* the token has no binding */
    CHECK_INT(runs(), 0);
    CHECK(strstr(theirs.err, token) == NULL);
    CHECK_INT(use(token, "ann", NULL).status, 0);
}

TEST(what_it_was_bound_to_must_be_brought) {
    struct ran ran = RUN("token", "--scope", "ann", "--bind", "cart-17");
    char *token = token_of(&ran);

    CHECK_INT(use(token, "ann", NULL).status, 66);
    CHECK_INT(use(token, "ann", "cart-18").status, 66);
    CHECK_INT(use(token, "ann", "cart-17").status, 0);
    CHECK_INT(runs(), 1);
}

TEST(a_run_that_failed_gives_it_back) {
    char *token = issue();

    CHECK_INT(RUN("run", "--scope", "ann", "--token", token, "--", "false").status, 1);
    CHECK_INT(use(token, "ann", NULL).status, 0);
}

TEST(under_keep_it_is_gone_at_its_first_use) {
    char *token = issue();

    CHECK_INT(RUN("run", "--scope", "ann", "--on-failure", "keep", "--token", token, "--", "false")
                  .status,
              1);
    CHECK_INT(use(token, "ann", NULL).status, 65); /* another command line */
    CHECK_INT(runs(), 0);
}

TEST(without_its_store_nothing_runs_on_trust) {
    char *store = script("lmdb:%s/no/such/folder", in_folder("runs"));
    struct ran ran = RUN("run", "--store", store, "--scope", "ann", "--token", "made-up",
                         "--on-store-error", "open", "--", "echo", "ran");

    CHECK_STR(ran.out, "");
    CHECK_INT(ran.status, 69);
    ran =
        RUN("run", "--store", store, "--key", "k", "--on-store-error", "open", "--", "echo", "ran");
    CHECK_STR(ran.out, "ran\n");
}

TEST(it_expires) {
    struct ran ran = RUN("token", "--scope", "ann", "--token-ttl", "1s");
    char *token = token_of(&ran);

    CHECK_INT(use(token, "ann", "other").status, 66);
    WAIT_UNTIL(RUN("show", "--scope", "ann", "--token", token).status == 66);
    CHECK_INT(use(token, "ann", NULL).status, 66);
}

TEST(operators_name_it_with_token) {
    char *token = issue();
    struct ran shown = RUN("show", "--scope", "ann", "--token", token);

    CHECK_INT(shown.status, 0);
    CHECK_HAS(shown.out, "issued");
    CHECK_INT(RUN("show", "--scope", "ann", token).status, 66);
    CHECK_INT(RUN("forget", "--scope", "ann", "--token", token).status, 0);
    CHECK_INT(use(token, "ann", NULL).status, 66);
}

TEST(it_is_told_as_the_gateway_tells_it) {
    struct ran ran = RUN("token", "--scope", "ann", "--json", "--token-ttl", "10m");

    CHECK_INT(ran.status, 0);
    CHECK(strncmp(ran.out, "{\"token\":\"", 10) == 0);
    CHECK_HAS(ran.out, "\",\"expires_in\":600}\n");
}

TEST(what_is_missing_or_too_much_is_said) {
    static const struct {
        const char *argv[10], *text;
    } wrong[] = {
        {{"token"}, "--scope WHO is missing"},
        {{"token", "--scope", "caller"}, "--scope caller names no caller"},
        {{"token", "--scope", "ann", "more"}, "takes no operand"},
        {{"token", "--scope", "ann", "--bind", ""}, "--bind is empty"},
        {{"run", "--token", "t", "--bind", "", "--", "true"}, "--bind is empty"},
        {{"run", "--token", "t", "--key", "k", "--", "true"}, "a token is a key"},
        {{"run", "--token", "t", "--at", "1h", "--", "true"}, "leave --at out"},
        {{"run", "--token", "", "--", "true"}, "--token is empty"},
        {{"run", "--key", "k", "--bind", "b", "--", "true"}, "there is no --token"},
        {{"show", "--token", "--hash", "0123456789ab"}, "leave --token out"},
    };

    (void)issue(); /* so that the store exists */
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        struct ran ran = run_argv(wrong[i].argv);

        CHECK_INT(ran.status, 64);
        CHECK_HAS(ran.err, wrong[i].text);
    }
    CHECK_INT(RUN("token", "--scope", "none").status, 0);
}

int main(int argc, char **argv) {
    test_at_a_time = 4;
    return test_main(argc, argv);
}
