/*
 * How a policy gets the values that it leaves out: defaults, presets and weaker layers.
 */
#include "policies.h"

TEST(the_defaults_are_those_of_the_design) {
    const struct idem_policy p = resolved((struct idem_policy){0});

    CHECK_INT(p.mode, IDEM_MODE_REPLAY);
    CHECK_INT(p.key_kind, IDEM_KEY_LITERAL);
    CHECK_INT(p.fingerprint, 1);
    CHECK_INT(p.ttl_s, 86400);
    CHECK_INT(p.hold_ttl_s, 30 * 86400);
    CHECK_INT(p.lease_ms, 30000);
    CHECK_INT(p.run_max_ms, IDEM_NONE);
    CHECK_INT(p.wait_ms, IDEM_NONE);
    CHECK_INT(p.recover, IDEM_RECOVER_HOLD);
    CHECK_INT(p.on_failure, IDEM_ON_FAILURE_RELEASE);
    CHECK_INT(p.attempts, IDEM_NONE);
    CHECK_INT(p.backoff_min_ms, 1000);
    CHECK_INT(p.backoff_max_ms, 300000);
    CHECK_INT(p.on_duplicate, IDEM_ON_DUPLICATE_ERROR);
    CHECK_INT(p.on_store_error, IDEM_ON_STORE_ERROR_CLOSED);
    CHECK_INT(p.result_max, 1 << 20);
    CHECK_INT(p.finish_timeout_ms, 10000);
    CHECK_INT(p.token_ttl_s, 300);
    CHECK(p.message != NULL && p.message[0] != '\0');
    CHECK_INT(p.preset, 0);
}

TEST(submit_replays_and_waits_for_45_seconds) {
    const struct idem_policy p = resolved((struct idem_policy){.preset = IDEM_PRESET_SUBMIT});

    CHECK_INT(p.mode, IDEM_MODE_REPLAY);
    CHECK_INT(p.wait_ms, 45000);
    CHECK_INT(p.ttl_s, 45);
    CHECK_INT(p.recover, IDEM_RECOVER_HOLD);
    CHECK_INT(p.attempts, IDEM_NONE);
}

TEST(api_replays_for_a_day_and_releases) {
    const struct idem_policy p = resolved((struct idem_policy){.preset = IDEM_PRESET_API});

    CHECK_INT(p.mode, IDEM_MODE_REPLAY);
    CHECK_INT(p.ttl_s, 86400);
    CHECK_INT(p.on_failure, IDEM_ON_FAILURE_RELEASE);
    CHECK_INT(p.wait_ms, IDEM_NONE);
}

TEST(payment_never_runs_again_by_itself) {
    const struct idem_policy p = resolved((struct idem_policy){.preset = IDEM_PRESET_PAYMENT});

    CHECK_INT(p.mode, IDEM_MODE_REPLAY);
    CHECK_INT(p.ttl_s, 86400);
    CHECK_INT(p.recover, IDEM_RECOVER_HOLD);
    CHECK_INT(p.on_failure, IDEM_ON_FAILURE_KEEP);
}

TEST(queue_rejects_reruns_and_tries_five_times) {
    const struct idem_policy p = resolved((struct idem_policy){.preset = IDEM_PRESET_QUEUE});

    CHECK_INT(p.mode, IDEM_MODE_REJECT);
    CHECK_INT(p.recover, IDEM_RECOVER_RERUN);
    CHECK_INT(p.on_failure, IDEM_ON_FAILURE_RETRY);
    CHECK_INT(p.attempts, 5);
    CHECK_INT(p.backoff_min_ms, 1000);
    CHECK_INT(p.backoff_max_ms, 300000);
}

TEST(job_rejects_for_a_day) {
    const struct idem_policy p = resolved((struct idem_policy){.preset = IDEM_PRESET_JOB});

    CHECK_INT(p.mode, IDEM_MODE_REJECT);
    CHECK_INT(p.ttl_s, 86400);
    CHECK_INT(p.recover, IDEM_RECOVER_HOLD);
}

TEST(retry_without_attempts_means_five) {
    CHECK_INT(resolved((struct idem_policy){.on_failure = IDEM_ON_FAILURE_RETRY}).attempts, 5);
    CHECK_INT(
        resolved((struct idem_policy){.on_failure = IDEM_ON_FAILURE_RETRY, .attempts = IDEM_NONE})
            .attempts,
        IDEM_NONE);
    CHECK_INT(
        resolved((struct idem_policy){.on_failure = IDEM_ON_FAILURE_RETRY, .attempts = 7}).attempts,
        7);
}

/* Precedence. */

TEST(a_stronger_layer_wins_and_a_weaker_one_fills) {
    struct idem_policy p;

    CHECK_INT(resolve2((struct idem_policy){.ttl_s = 5, .wait_ms = IDEM_NONE},
                       (struct idem_policy){.ttl_s = 6, .wait_ms = 9, .lease_ms = 200}, &p),
              0);
    CHECK_INT(p.ttl_s, 5);
    CHECK_INT(p.wait_ms, IDEM_NONE);
    CHECK_INT(p.lease_ms, 200);
}

TEST(a_layer_beats_its_own_preset_which_beats_the_next_layer) {
    struct idem_policy p;

    CHECK_INT(
        resolve2((struct idem_policy){.preset = IDEM_PRESET_PAYMENT, .ttl_s = 60},
                 (struct idem_policy){.ttl_s = 70, .recover = IDEM_RECOVER_RERUN, .wait_ms = 1000},
                 &p),
        0);
    CHECK_INT(p.ttl_s, 60);
    CHECK_INT(p.recover, IDEM_RECOVER_HOLD);
    CHECK_INT(p.wait_ms, 1000);
}

TEST(only_the_strongest_preset_counts) {
    struct idem_policy p;

    CHECK_INT(resolve2((struct idem_policy){.preset = IDEM_PRESET_API},
                       (struct idem_policy){.preset = IDEM_PRESET_QUEUE, .lease_ms = 700}, &p),
              0);
    CHECK_INT(p.preset, IDEM_PRESET_API);
    CHECK_INT(p.mode, IDEM_MODE_REPLAY);
    CHECK_INT(p.recover, IDEM_RECOVER_HOLD);
    CHECK_INT(p.attempts, IDEM_NONE);
    CHECK_INT(p.lease_ms, 700);
}

TEST(every_option_of_a_stronger_layer_wins) {
    static const char *const strong[][2] = {
        {"preset", "api"},          {"mode", "reject"},
        {"key", "token"},           {"key_expr", "#s"},
        {"prefix", "s:"},           {"scope", "s"},
        {"fingerprint", "2"},       {"fingerprint_expr", "#s"},
        {"json_max", "2KiB"},       {"ttl", "2s"},
        {"hold_ttl", "2s"},         {"lease", "2s"},
        {"run_max", "2s"},          {"wait", "2s"},
        {"recover", "rerun"},       {"on_failure", "keep"},
        {"attempts", "2"},          {"backoff", "2s..3s"},
        {"message", "s"},           {"on_duplicate", "success"},
        {"on_store_error", "open"}, {"result_max", "2KiB"},
        {"finish_timeout", "2s"},   {"token_ttl", "2s"},
    };
    static const char *const weak[][2] = {
        {"preset", "queue"},     {"mode", "replay"},         {"key", "expression"},
        {"key_expr", "#w"},      {"prefix", "w:"},           {"scope", "none"},
        {"fingerprint", "9"},    {"fingerprint_expr", "#w"}, {"json_max", "9KiB"},
        {"ttl", "9s"},           {"hold_ttl", "9s"},         {"lease", "9s"},
        {"run_max", "none"},     {"wait", "none"},           {"recover", "hold"},
        {"on_failure", "retry"}, {"attempts", "none"},       {"backoff", "9s"},
        {"message", "w"},        {"on_duplicate", "error"},  {"on_store_error", "closed"},
        {"result_max", "9KiB"},  {"finish_timeout", "9s"},   {"token_ttl", "9s"},
    };
    char got[IDEM_OPTION_TEXT_MAX];
    size_t options = 0;

    for (const struct idem_option *o = idem_option_table; o->word != NULL; o++)
        options++;
    CHECK_INT(options, COUNT_OF(strong));
    for (size_t i = 0; i < COUNT_OF(strong); i++) {
        const struct idem_option *o = idem_option_find(strong[i][0], strlen(strong[i][0]));
        struct idem_layer a = {0}, b = {0};
        struct idem_policy p;

        set_ok(&a, strong[i][0], strong[i][1]);
        for (size_t k = 0; k < COUNT_OF(weak); k++)
            set_ok(&b, weak[k][0], weak[k][1]);
        CHECK_INT(resolve2(a.policy, b.policy, &p), 0);
        CHECK_STR(idem_option_print(o, &p, got, sizeof(got)), strong[i][1]);
        CHECK_INT(resolve2((struct idem_policy){0}, b.policy, &p), 0);
        CHECK_STR(idem_option_print(o, &p, got, sizeof(got)), weak[i][1]);
        idem_policy_release(&a);
        idem_policy_release(&b);
    }
}

TEST(one_end_of_a_backoff_bends_the_weaker_other_end) {
    struct idem_policy p = resolved((struct idem_policy){.backoff_min_ms = 600000});

    CHECK_INT(p.backoff_max_ms, 600000);
    p = resolved((struct idem_policy){.backoff_max_ms = 50});
    CHECK_INT(p.backoff_min_ms, 50);
    CHECK_INT(resolve2((struct idem_policy){.backoff_max_ms = 5000},
                       (struct idem_policy){.backoff_min_ms = 2000, .backoff_max_ms = 9000}, &p),
              0);
    CHECK_INT(p.backoff_min_ms, 2000);
    CHECK_INT(p.backoff_max_ms, 5000);
    CHECK_INT(resolve1((struct idem_policy){.backoff_min_ms = 3, .backoff_max_ms = 2}, &p),
              IDEM_E_INVALID);
    CHECK_HAS(err.text, "backoff is 3ms..2ms; allowed: 1ms to 7d");
}

TEST_MAIN
