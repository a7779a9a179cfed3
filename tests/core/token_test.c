/*
 * Tokens in C: issued blocking and on a loop, used once by the caller that they were issued to.
 */
#include "calls.h"
#include "poll_handle.h"
#include "wait.h"

static const struct idem_policy tokens = {
    .prefix = "t:", .scope = IDEM_SCOPE_CALLER, .key_kind = IDEM_KEY_TOKEN};

static struct idem_args args_of(const char *scope, const char *bind) {
    return (struct idem_args){.scope = scope,
                              .scope_len = strlen(scope),
                              .bind = bind,
                              .bind_len = bind == NULL ? 0 : strlen(bind)};
}

static void issue(struct idem *h, const struct idem_guard *guard, const char *scope,
                  const char *bind, char token[IDEM_TOKEN_LEN + 1]) {
    struct idem_args args = args_of(scope, bind);
    struct idem_error err = {0};

    CHECK_INT(idem_token_issue(h, guard, &args, token, &err), 0);
    CHECK_INT(strlen(token), IDEM_TOKEN_LEN);
}

static enum idem_verdict use(struct idem *h, const struct idem_guard *guard, const char *token,
                             const char *scope, const char *bind, struct work *work) {
    struct idem_args args = args_of(scope, bind);
    struct idem_error err = {0};
    struct idem_outcome out;

    args.key = token;
    args.key_len = strlen(token);
    if (idem_call(h, guard, &args, do_work, work, &out, &err) < 0) {
        fprintf(stderr, "# %s\n", err.text);
        exit(1);
    }
    idem_outcome_release(&out);
    return out.verdict;
}

TEST(a_token_runs_once) {
    struct idem *h = open_store("sync=off");
    struct idem_guard *guard = guard_of(h, tokens);
    struct work work = {.say = IDEM_RESULT_DONE, .result = "r"};
    char token[IDEM_TOKEN_LEN + 1];

    issue(h, guard, "ann", NULL, token);
    CHECK_INT(use(h, guard, token, "ann", NULL, &work), IDEM_RUN);
    CHECK_INT(use(h, guard, token, "ann", NULL, &work), IDEM_REPLAY);
    CHECK_INT(work.runs, 1);
    idem_guard_free(guard);
    idem_close(h);
}

/* 128 bits, and not the half of them twice. */
TEST(each_digit_is_drawn) {
    struct idem *h = open_store("sync=off");
    struct idem_guard *guard = guard_of(h, tokens);
    char token[IDEM_TOKEN_LEN + 1], first[IDEM_TOKEN_LEN + 1];
    int pairs = 0, changed = 0;

    issue(h, guard, "ann", NULL, first);
    for (int n = 0; n < 20; n++) {
        issue(h, guard, "ann", NULL, token);
        for (int i = 0; i < IDEM_TOKEN_LEN; i++)
            changed |= (token[i] != first[i]) << (i / 2);
        for (int i = 0; i < IDEM_TOKEN_LEN; i += 2)
            pairs += token[i] == token[i + 1];
    }
    CHECK_INT(changed, 0xffff);
    CHECK(pairs < 160); /* of 320; a sixteenth is to be expected */
    idem_guard_free(guard);
    idem_close(h);
}

TEST(nobody_else_can_use_it) {
    struct idem *h = open_store("sync=off");
    struct idem_guard *guard = guard_of(h, tokens);
    struct work work = {.say = IDEM_RESULT_DONE};
    char token[IDEM_TOKEN_LEN + 1];

    issue(h, guard, "ann", "cart", token);
    CHECK_INT(use(h, guard, token, "bob", "cart", &work), IDEM_NO_TOKEN);
    CHECK_INT(use(h, guard, token, "ann", "trolley", &work), IDEM_NO_TOKEN);
    CHECK_INT(use(h, guard, token, "ann", NULL, &work), IDEM_NO_TOKEN);
    CHECK_INT(use(h, guard, "never", "ann", "cart", &work), IDEM_NO_TOKEN);
    CHECK_INT(work.runs, 0);
    CHECK_INT(use(h, guard, token, "ann", "cart", &work), IDEM_RUN);
    CHECK_INT(use(h, guard, token, "ann", "trolley", &work), IDEM_NO_TOKEN);
    CHECK_INT(count_of(h, IDEM_EVENT_NO_TOKEN), 5);
    idem_guard_free(guard);
    idem_close(h);
}

/* A key that a caller chose is no token, and a token is no key that a caller could have chosen. */
TEST(tokens_and_keys_never_meet) {
    struct idem *h = open_store("sync=off");
    struct idem_guard *guard = guard_of(h, tokens);
    struct idem_guard *plain =
        guard_of(h, (struct idem_policy){.prefix = "t:", .scope = IDEM_SCOPE_CALLER});
    struct work work = {.say = IDEM_RESULT_DONE};
    char token[IDEM_TOKEN_LEN + 1];

    CHECK_INT(use(h, plain, "chosen", "ann", NULL, &work), IDEM_RUN);
    CHECK_INT(use(h, guard, "chosen", "ann", NULL, &work), IDEM_NO_TOKEN);
    issue(h, guard, "ann", NULL, token);
    CHECK_INT(use(h, plain, token, "ann", NULL, &work), IDEM_RUN);
    CHECK_INT(use(h, guard, token, "ann", NULL, &work), IDEM_RUN);
    idem_guard_free(plain);
    idem_guard_free(guard);
    idem_close(h);
}

TEST(a_run_that_failed_gives_it_back_with_its_binding) {
    struct idem *h = open_store("sync=off");
    struct idem_guard *guard = guard_of(h, tokens);
    struct work fails = {.say = IDEM_RESULT_RETRY}, work = {.say = IDEM_RESULT_DONE};
    struct idem_name name = {.prefix = "t:", .scope = "ann", .scope_len = 3, .token = true};
    struct idem_entry entry;
    char token[IDEM_TOKEN_LEN + 1];

    issue(h, guard, "ann", "cart", token);
    name.key = token;
    name.key_len = IDEM_TOKEN_LEN;
    CHECK_INT(use(h, guard, token, "ann", "cart", &fails), IDEM_RUN);
    CHECK_INT(idem_lookup(h, &name, &entry, NULL), 0);
    CHECK_INT(entry.state, IDEM_ISSUED);
    CHECK_INT(entry.expires_ms - entry.created_ms, 300000);
    idem_entry_release(&entry);
    CHECK_INT(use(h, guard, token, "ann", NULL, &work), IDEM_NO_TOKEN);
    CHECK_INT(use(h, guard, token, "ann", "cart", &work), IDEM_RUN);
    idem_guard_free(guard);
    idem_close(h);
}

TEST(what_cannot_be_issued_is_said) {
    struct idem *h = open_store("sync=off");
    struct idem_guard *guard = guard_of(h, tokens);
    struct idem_guard *plain = guard_of(h, (struct idem_policy){.mode = IDEM_MODE_REPLAY});
    struct idem_args args = args_of("ann", NULL), nobody = {0}, keyed = args_of("ann", NULL);
    struct idem_error err = {0};
    char token[IDEM_TOKEN_LEN + 1] = "untouched";

    keyed.key = "k";
    keyed.key_len = 1;
    CHECK_INT(idem_token_issue(h, plain, &args, token, &err), IDEM_E_INVALID);
    CHECK_HAS(err.text, "key = token");
    CHECK_INT(idem_token_issue(h, guard, &nobody, token, &err), IDEM_E_INVALID);
    CHECK_HAS(err.text, "the caller is not identified");
    CHECK_INT(idem_token_issue(h, guard, &keyed, token, &err), IDEM_E_INVALID);
    CHECK_HAS(err.text, "idem_args.key");
    CHECK_INT(idem_token_issue(h, guard, &args, NULL, &err), IDEM_E_INVALID);
    /* Every caller without a value would match the binding. */
    args = args_of("ann", "");
    CHECK_INT(idem_token_issue(h, guard, &args, token, &err), IDEM_E_INVALID);
    CHECK_HAS(err.text, "idem_args.bind");
    CHECK_STR(token, "untouched");
    idem_guard_free(plain);
    idem_guard_free(guard);
    idem_close(h);
}

/* On a loop. */

struct told {
    int n, rc;
    char token[IDEM_TOKEN_LEN + 1];
    bool frees;
};

static void tell(struct idem_issue *made, int rc, const char *token, const struct idem_error *err,
                 void *data) {
    struct told *told = data;

    (void)err;
    told->n++;
    told->rc = rc;
    if (token != NULL)
        snprintf(told->token, sizeof(told->token), "%s", token);
    if (told->frees)
        idem_issue_free(made);
}

static void turn(struct rig *rig, const struct told *told) {
    WAIT_BY(idem_poll_turn(&rig->poll, NULL, 0, 10), told->n > 0);
}

TEST(on_a_loop_it_is_told_once_and_may_be_freed_there) {
    for (int frees = 0; frees < 2; frees++) {
        struct rig rig;
        struct idem_guard *guard;
        struct idem_args args = args_of("ann", NULL);
        struct told told = {.frees = frees == 1};
        struct idem_issue *made;

        rig_begin(&rig, "sync=off", NULL);
        CHECK_INT(idem_guard_new(rig.h, &tokens, &guard, NULL), 0);
        CHECK_INT(idem_issue_new(rig.h, guard, &args, tell, &told, &made, NULL), 0);
        CHECK_INT(told.n, 0); /* never before the call has returned */
        turn(&rig, &told);
        CHECK_INT(told.n, 1);
        CHECK_INT(told.rc, 0);
        CHECK_INT(strlen(told.token), IDEM_TOKEN_LEN);
        if (frees == 0)
            idem_issue_free(made);
        idem_guard_free(guard);
        rig_end(&rig);
    }
}

TEST(what_was_freed_before_its_turn_has_none) {
    struct rig rig;
    struct idem_guard *guard;
    struct idem_args args = args_of("ann", NULL);
    struct told told = {0}, other = {0};
    struct idem_issue *one, *two;

    rig_begin(&rig, "sync=off", NULL);
    CHECK_INT(idem_guard_new(rig.h, &tokens, &guard, NULL), 0);
    CHECK_INT(idem_issue_new(rig.h, guard, &args, tell, &told, &one, NULL), 0);
    CHECK_INT(idem_issue_new(rig.h, guard, &args, tell, &other, &two, NULL), 0);
    idem_issue_free(one);
    turn(&rig, &other);
    CHECK_INT(told.n, 0);
    CHECK_INT(other.n, 1);
    CHECK_INT(other.rc, 0);
    idem_issue_free(two);
    idem_guard_free(guard);
    rig_end(&rig);
}

TEST(who_frees_it_first_or_closes_the_handle_is_not_told) {
    struct rig rig;
    struct idem_guard *guard;
    struct idem_args args = args_of("ann", NULL);
    struct told told = {0};
    struct idem_issue *one, *two;

    rig_begin(&rig, "sync=always", NULL);
    CHECK_INT(idem_guard_new(rig.h, &tokens, &guard, NULL), 0);
    CHECK_INT(idem_issue_new(rig.h, guard, &args, tell, &told, &one, NULL), 0);
    CHECK_INT(idem_issue_new(rig.h, guard, &args, tell, &told, &two, NULL), 0);
    idem_issue_free(one);
    rig_end(&rig);
    CHECK_INT(told.n, 0);
    idem_issue_free(two);
    idem_issue_free(NULL);
    idem_guard_free(guard);
}

TEST_MAIN
