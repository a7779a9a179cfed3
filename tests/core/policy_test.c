/*
 * Combinations of options that no policy may have, and those that mode=lock
 * implies.
 */
#include "policies.h"

#include <limits.h>

TEST(a_failed_resolution_leaves_the_result_alone) {
    struct idem_policy p = {.lease_ms = 42};

    CHECK_INT(idem_policy_resolve(NULL, 0, &p, &err), IDEM_E_INVALID);
    CHECK_INT(p.lease_ms, 42);
    CHECK_INT(idem_policy_resolve(NULL, 0, &p, NULL), IDEM_E_INVALID);
}

TEST(a_missing_prefix_is_explained) {
    const struct idem_policy a = {.name = "orders", .scope = "none"};
    struct idem_policy p;

    CHECK_INT(idem_policy_resolve((const struct idem_policy *const[]){&a}, 1, &p, &err),
              IDEM_E_INVALID);
    CHECK_HAS(err.text, "policy \"orders\": prefix is missing; ");
    CHECK_HAS(err.text, "renaming an operation does not forget its keys");
}

TEST(a_missing_scope_is_explained_with_how_to_say_none) {
    const struct idem_policy a = {.prefix = "order:"};
    struct idem_policy p;

    CHECK_INT(idem_policy_resolve((const struct idem_policy *const[]){&a}, 1, &p, &err),
              IDEM_E_INVALID);
    CHECK_HAS(err.text, "policy: scope is missing; it identifies the caller");
    CHECK_HAS(err.text, "never meets another's record");
    CHECK_HAS(err.text, "scope = none (IDEM_SCOPE_NONE)");
}

TEST(a_struct_is_held_to_the_same_bounds_as_words) {
    const struct {
        struct idem_policy p;
        const char *text;
    } wrong[] = {
        {{.mode = (enum idem_mode)7}, "mode is 7; allowed: lock, reject, replay"},
        {{.preset = (enum idem_preset)9}, "preset is 9; allowed: submit, api"},
        {{.preset = (enum idem_preset) - 1}, "preset is none; allowed: submit, api"},
        {{.recover = (enum idem_recover) - 3}, "recover is -3; allowed: hold, rerun"},
        {{.lease_ms = 99}, "lease is 99ms; allowed: 100ms to 24h"},
        {{.lease_ms = 86400001}, "lease is 24h1ms; allowed: 100ms to 24h"},
        {{.lease_ms = IDEM_NONE}, "lease is none; allowed: 100ms to 24h"},
        {{.lease_ms = -30000}, "lease is -30000ms; allowed: 100ms to 24h"},
        {{.ttl_s = 315360001}, "ttl is 3650d1s; allowed: 1s to 3650d"},
        {{.ttl_s = INT64_MAX}, "ttl is 9223372036854775807s; allowed: 1s to 3650d"},
        {{.ttl_s = IDEM_NONE}, "ttl is none; allowed: 1s to 3650d"},
        {{.hold_ttl_s = -2}, "hold_ttl is -2000ms; allowed: 1s to 3650d"},
        {{.wait_ms = 3600001}, "wait is 1h1ms; allowed: 1ms to 1h, or none"},
        {{.run_max_ms = -2}, "run_max is -2ms; allowed: 1ms to 3650d, or none"},
        {{.attempts = 1000001}, "attempts is 1000001; allowed: 1 to 1000000, or none"},
        {{.attempts = -2}, "attempts is -2; allowed: 1 to 1000000, or none"},
        {{.fingerprint = -2}, "fingerprint is -2; allowed: 1 to 2147483647, or none"},
        {{.result_max = IDEM_RESULT_MAX + 1}, "result_max is 67108865; allowed: 1 to 64MiB"},
        {{.result_max = IDEM_NONE}, "result_max is none; allowed: 1 to 64MiB"},
        {{.finish_timeout_ms = -1}, "finish_timeout is none; allowed: 1ms to 1h"},
        {{.backoff_min_ms = -1}, "backoff is none"},
        {{.backoff_max_ms = 604800001}, "backoff is 1s..7d1ms; allowed: 1ms to 7d"},
        {{.prefix = ""}, "prefix is empty; allowed: 1 to 128 bytes"},
        {{.prefix = "a\x01"}, "prefix holds a control character; allowed: 1 to 128 bytes"},
        {{.scope = ""}, "scope is empty; allowed: 1 to 4096 bytes of UTF-8"},
        {{.message = "\xc3("}, "message is not UTF-8; allowed: 1 to 1024 bytes of UTF-8"},
    };
    struct idem_policy p;

    for (size_t i = 0; i < COUNT_OF(wrong); i++) {
        CHECK_INT(resolve1(wrong[i].p, &p), IDEM_E_INVALID);
        CHECK_HAS(err.text, wrong[i].text);
    }
}

TEST(a_struct_is_taken_up_to_both_ends) {
    struct idem_policy p;

    CHECK_INT(resolve1((struct idem_policy){.lease_ms = 100,
                                            .ttl_s = 1,
                                            .wait_ms = 1,
                                            .attempts = 1,
                                            .result_max = 1,
                                            .finish_timeout_ms = 1},
                       &p),
              0);
    CHECK_INT(resolve1((struct idem_policy){.lease_ms = 86400000,
                                            .ttl_s = 315360000,
                                            .wait_ms = 3600000,
                                            .attempts = 1000000,
                                            .fingerprint = INT_MAX,
                                            .result_max = IDEM_RESULT_MAX,
                                            .finish_timeout_ms = 3600000},
                       &p),
              0);
}

TEST(a_prefix_that_never_ends_is_read_no_further_than_it_may_be_long) {
    char *endless = malloc(IDEM_PREFIX_MAX + 1); /* no NUL: a checker sees a step too far */
    struct idem_policy p;

    memset(endless, 'a', IDEM_PREFIX_MAX + 1);
    CHECK_INT(resolve1((struct idem_policy){.prefix = endless}, &p), IDEM_E_INVALID);
    CHECK_HAS(err.text, "prefix is too long");
    free(endless);
}

TEST(hold_and_attempts_go_together) {
    const struct idem_policy p =
        resolved((struct idem_policy){.recover = IDEM_RECOVER_HOLD, .attempts = 3});

    CHECK_INT(p.recover, IDEM_RECOVER_HOLD);
    CHECK_INT(p.attempts, 3);
}

/* Mode=lock. */

TEST(lock_implies_rerun_no_fingerprint_and_no_result) {
    const struct idem_policy p = resolved((struct idem_policy){.mode = IDEM_MODE_LOCK});

    CHECK_INT(p.recover, IDEM_RECOVER_RERUN);
    CHECK_INT(p.fingerprint, IDEM_NONE);
    CHECK_INT(p.result_max, IDEM_NONE);
}

TEST(lock_agrees_with_what_it_implies) {
    resolved((struct idem_policy){
        .mode = IDEM_MODE_LOCK, .recover = IDEM_RECOVER_RERUN, .fingerprint = IDEM_NONE});
}

TEST(asking_for_the_opposite_beside_lock_is_an_error) {
    const struct {
        struct idem_policy p;
        const char *text;
    } wrong[] = {
        {{.mode = IDEM_MODE_LOCK, .recover = IDEM_RECOVER_HOLD}, "recover=hold contradicts"},
        {{.mode = IDEM_MODE_LOCK, .fingerprint = 1}, "a fingerprint contradicts"},
        {{.mode = IDEM_MODE_LOCK, .result_max = 10}, "result_max contradicts"},
    };
    struct idem_policy p;

    for (size_t i = 0; i < COUNT_OF(wrong); i++) {
        CHECK_INT(resolve1(wrong[i].p, &p), IDEM_E_INVALID);
        CHECK_HAS(err.text, wrong[i].text);
        CHECK_HAS(err.text, "mode=lock, which is one at a time only");
        CHECK_HAS(err.text, "implies recover=rerun, no fingerprint and no result");
    }
}

TEST(asking_for_the_opposite_above_lock_is_an_error) {
    struct idem_policy p;

    CHECK_INT(resolve2((struct idem_policy){.recover = IDEM_RECOVER_HOLD},
                       (struct idem_policy){.mode = IDEM_MODE_LOCK}, &p),
              IDEM_E_INVALID);
}

TEST(lock_overrules_what_weaker_layers_and_presets_say) {
    struct idem_policy p;

    CHECK_INT(resolve2((struct idem_policy){.mode = IDEM_MODE_LOCK, .preset = IDEM_PRESET_PAYMENT},
                       (struct idem_policy){
                           .recover = IDEM_RECOVER_HOLD, .fingerprint = 3, .result_max = 10},
                       &p),
              0);
    CHECK_INT(p.recover, IDEM_RECOVER_RERUN);
    CHECK_INT(p.fingerprint, IDEM_NONE);
    CHECK_INT(p.result_max, IDEM_NONE);
}

TEST(a_lock_that_is_overruled_implies_nothing) {
    struct idem_policy p;

    CHECK_INT(resolve2((struct idem_policy){.preset = IDEM_PRESET_API},
                       (struct idem_policy){.mode = IDEM_MODE_LOCK}, &p),
              0);
    CHECK_INT(p.mode, IDEM_MODE_REPLAY);
    CHECK_INT(p.recover, IDEM_RECOVER_HOLD);
    CHECK_INT(p.fingerprint, 1);
    CHECK_INT(p.result_max, 1 << 20);
}

TEST_MAIN
