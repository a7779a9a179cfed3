/*
 * Options by their words, layers, presets and the policy that comes of them.
 */
#include "core/error.h"
#include "core/policy.h"
#include "test.h"

#include <limits.h>

#ifndef OPTIONS_MD
#define OPTIONS_MD "docs/options.md"
#endif

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

static struct idem_error err;

static int set(struct idem_layer *layer, const char *word, const char *value) {
    memset(&err, 0, sizeof(err));
    return idem_policy_set(layer, word, strlen(word), value, strlen(value), &err);
}

static void set_ok(struct idem_layer *layer, const char *word, const char *value) {
    if (set(layer, word, value) < 0)
        fprintf(stderr, "# %s = %s: %s\n", word, value, err.text);
    CHECK_INT(err.code, 0);
}

/* Resolves over a weakest layer that has what is required. */
static int resolve_n(const struct idem_policy *const *layers, size_t n, struct idem_policy *ret) {
    const struct idem_policy base = {.prefix = "p:", .scope = IDEM_SCOPE_NONE};
    const struct idem_policy *all[8];

    for (size_t i = 0; i < n; i++)
        all[i] = layers[i];
    all[n] = &base;
    memset(&err, 0, sizeof(err));
    return idem_policy_resolve(all, n + 1, ret, &err);
}

static int resolve1(struct idem_policy a, struct idem_policy *ret) {
    return resolve_n((const struct idem_policy *const[]){&a}, 1, ret);
}

static int resolve2(struct idem_policy a, struct idem_policy b, struct idem_policy *ret) {
    return resolve_n((const struct idem_policy *const[]){&a, &b}, 2, ret);
}

static struct idem_policy resolved(struct idem_policy a) {
    struct idem_policy p;

    if (resolve1(a, &p) < 0)
        fprintf(stderr, "# %s\n", err.text);
    CHECK_INT(err.code, 0);
    return p;
}

/* One option by its word. */

/* Each number, with the values at both ends that are in and the ones just out. */
static const struct bound {
    const char *word, *low, *high, *below, *above;
    int64_t low_value, high_value;
} bounds[] = {
    {"ttl", "1s", "3650d", "0s", "3651d", 1, 315360000},
    {"hold_ttl", "1s", "3650d", "0s", "3651d", 1, 315360000},
    {"lease", "100ms", "24h", "99ms", "24h1ms", 100, 86400000},
    {"run_max", "1ms", "3650d", "0s", "3650d1ms", 1, 315360000000},
    {"wait", "1ms", "1h", "0s", "1h1ms", 1, 3600000},
    {"backoff", "1ms", "7d", "0s", "7d1ms", 1, 604800000},
    {"finish_timeout", "1ms", "1h", "0s", "1h1ms", 1, 3600000},
    {"attempts", "1", "1000000", "0", "1000001", 1, 1000000},
    {"fingerprint", "1", "2147483647", "0", "2147483648", 1, INT_MAX},
    {"result_max", "1", "64MiB", "0", "67108865", 1, IDEM_RESULT_MAX},
};

/* The field, read without the code under test. */
static int64_t field(const struct idem_policy *p, const char *word) {
    const struct {
        const char *word;
        int64_t value;
    } fields[] = {
        {"ttl", p->ttl_s},
        {"hold_ttl", p->hold_ttl_s},
        {"lease", p->lease_ms},
        {"run_max", p->run_max_ms},
        {"wait", p->wait_ms},
        {"backoff", p->backoff_max_ms},
        {"finish_timeout", p->finish_timeout_ms},
        {"attempts", p->attempts},
        {"fingerprint", p->fingerprint},
        {"result_max", p->result_max},
        {"mode", p->mode},
        {"key", p->key_kind},
        {"recover", p->recover},
        {"on_failure", p->on_failure},
        {"on_duplicate", p->on_duplicate},
        {"on_store_error", p->on_store_error},
        {"preset", p->preset},
    };

    for (size_t i = 0; i < COUNT_OF(fields); i++) {
        if (strcmp(fields[i].word, word) == 0)
            return fields[i].value;
    }
    CHECK_STR(word, "one of the above");
    return 0;
}

TEST(numbers_are_taken_up_to_both_ends_and_not_beyond) {
    for (size_t i = 0; i < COUNT_OF(bounds); i++) {
        const struct bound *b = &bounds[i];
        struct idem_layer layer = {0};

        set_ok(&layer, b->word, b->low);
        CHECK_INT(field(&layer.said, b->word), b->low_value);
        set_ok(&layer, b->word, b->high);
        CHECK_INT(field(&layer.said, b->word), b->high_value);
        CHECK_INT(set(&layer, b->word, b->below), IDEM_E_INVALID);
        CHECK_HAS(err.text, "out of range; allowed: ");
        CHECK_INT(set(&layer, b->word, b->above), IDEM_E_INVALID);
        CHECK_HAS(err.text, b->word);
        CHECK_INT(field(&layer.said, b->word), b->high_value);
        idem_policy_release(&layer);
    }
}

TEST(none_is_taken_where_it_means_something_and_nowhere_else) {
    static const char *const may[] = {"fingerprint", "run_max", "wait", "attempts"};
    static const char *const may_not[] = {"ttl",        "hold_ttl",       "lease", "backoff",
                                          "result_max", "finish_timeout", "mode"};
    struct idem_layer layer = {0};

    for (size_t i = 0; i < COUNT_OF(may); i++) {
        set_ok(&layer, may[i], "none");
        CHECK_INT(field(&layer.said, may[i]), IDEM_NONE);
    }
    for (size_t i = 0; i < COUNT_OF(may_not); i++)
        CHECK_INT(set(&layer, may_not[i], "none"), IDEM_E_INVALID);
}

TEST(every_word_of_every_list_is_taken) {
    struct idem_layer layer = {0};
    int lists = 0;

    for (const struct idem_option *o = idem_option_table; o->word != NULL; o++) {
        if (o->type != IDEM_OPTION_WORD)
            continue;
        lists++;
        for (const struct idem_word *w = o->values; w->word != NULL; w++) {
            set_ok(&layer, o->word, w->word);
            CHECK_INT(field(&layer.said, o->word), w->value);
        }
        CHECK_INT(set(&layer, o->word, "nonsense"), IDEM_E_INVALID);
    }
    CHECK_INT(lists, 7);
}

TEST(an_unknown_value_is_told_which_are_known) {
    struct idem_layer layer = {0};

    CHECK_INT(set(&layer, "mode", "Lock"), IDEM_E_INVALID);
    CHECK_STR(err.text, "mode: \"Lock\" is not known; allowed: lock, reject, replay");
    CHECK_INT(set(&layer, "preset", ""), IDEM_E_INVALID);
    CHECK_STR(err.text, "preset: \"\" is not known; allowed: submit, api, payment, queue, job");
    CHECK_INT(set(&layer, "lease", "90"), IDEM_E_INVALID);
    CHECK_HAS(err.text, "lease: \"90\" has no unit; write it as 90s");
    CHECK_HAS(err.text, "allowed: 100ms to 24h");
    CHECK_INT(set(&layer, "wait", "2h"), IDEM_E_INVALID);
    CHECK_STR(err.text, "wait: \"2h\" is out of range; allowed: 1ms to 1h, or none");
    CHECK_INT(set(&layer, "result_max", "1GiB"), IDEM_E_INVALID);
    CHECK_STR(err.text, "result_max: \"1GiB\" is out of range; allowed: 1 to 64MiB");
    CHECK_INT(set(&layer, "attempts", "many"), IDEM_E_INVALID);
    CHECK_STR(err.text, "attempts: \"many\" is not a number; allowed: 1 to 1000000, or none");
    CHECK_INT(set(&layer, "ttl", "1500ms"), IDEM_E_INVALID);
    CHECK_STR(err.text, "ttl: it is counted in whole seconds; allowed: 1s to 3650d");
}

TEST(an_unknown_word_is_told_all_words) {
    struct idem_layer layer = {0};

    CHECK_INT(set(&layer, "tll", "1s"), IDEM_E_INVALID);
    CHECK_HAS(err.text, "\"tll\" is no option; allowed: preset, mode, key, prefix");
    CHECK_HAS(err.text, "result_max, finish_timeout");
    CHECK_INT(set(&layer, "hold-ttl", "1s"), IDEM_E_INVALID);
    CHECK_INT(set(&layer, "", "1s"), IDEM_E_INVALID);
}

TEST(flags_are_the_words_with_dashes) {
    CHECK(idem_option_find_flag("hold-ttl", 8) == idem_option_find("hold_ttl", 8));
    CHECK(idem_option_find_flag("hold-ttl", 8) != NULL);
    CHECK(idem_option_find_flag("hold_ttl", 8) == NULL);
    CHECK(idem_option_find_flag("ttlx", 3) == idem_option_find("ttl", 3));
}

TEST(a_backoff_is_one_time_or_two) {
    struct idem_layer layer = {0};

    set_ok(&layer, "backoff", "2s");
    CHECK_INT(layer.said.backoff_min_ms, 2000);
    CHECK_INT(layer.said.backoff_max_ms, 2000);
    set_ok(&layer, "backoff", "500ms..5m");
    CHECK_INT(layer.said.backoff_min_ms, 500);
    CHECK_INT(layer.said.backoff_max_ms, 300000);
    CHECK_INT(set(&layer, "backoff", "5m..1s"), IDEM_E_INVALID);
    CHECK_HAS(err.text, "the first time is longer than the second; allowed: 1ms to 7d, one or two");
    CHECK_INT(set(&layer, "backoff", "1s.."), IDEM_E_INVALID);
    CHECK_INT(set(&layer, "backoff", "..1s"), IDEM_E_INVALID);
    CHECK_INT(set(&layer, "backoff", "1s..2s..3s"), IDEM_E_INVALID);
    CHECK_INT(set(&layer, "backoff", "1s...2s"), IDEM_E_INVALID);
    CHECK_INT(set(&layer, "backoff", ""), IDEM_E_INVALID);
    CHECK_INT(layer.said.backoff_min_ms, 500);
}

TEST(a_text_is_copied_and_replaced) {
    struct idem_layer layer = {0};
    char value[] = "order:";

    set_ok(&layer, "prefix", value);
    value[0] = 'X';
    CHECK_STR(layer.said.prefix, "order:");
    set_ok(&layer, "prefix", "bill:");
    CHECK_STR(layer.said.prefix, "bill:");
    set_ok(&layer, "message", "Déjà reçu 🙂");
    CHECK_STR(layer.said.message, "Déjà reçu 🙂");
    idem_policy_release(&layer);
    CHECK(layer.said.prefix == NULL);
}

TEST(a_text_is_taken_up_to_its_longest_and_only_as_utf8) {
    struct idem_layer layer = {0};
    char longest[IDEM_PREFIX_MAX + 2];

    memset(longest, 'a', sizeof(longest));
    longest[IDEM_PREFIX_MAX] = '\0';
    set_ok(&layer, "prefix", longest);
    longest[IDEM_PREFIX_MAX] = 'a';
    longest[IDEM_PREFIX_MAX + 1] = '\0';
    CHECK_INT(set(&layer, "prefix", longest), IDEM_E_INVALID);
    CHECK_STR(err.text, "prefix: is too long; allowed: 1 to 128 bytes of UTF-8 without control "
                        "characters");
    CHECK_INT(set(&layer, "prefix", ""), IDEM_E_INVALID);
    CHECK_HAS(err.text, "is empty");
    CHECK_INT(set(&layer, "prefix", "a\nb"), IDEM_E_INVALID);
    CHECK_HAS(err.text, "holds a control character");
    CHECK_INT(set(&layer, "prefix", "a\xc2\x85"), IDEM_E_INVALID);
    CHECK_HAS(err.text, "holds a control character");
    CHECK_INT(set(&layer, "message", "\xff"), IDEM_E_INVALID);
    CHECK_HAS(err.text, "is not UTF-8");
    CHECK_INT(idem_policy_set(&layer, "scope", 5, "a\0b", 3, &err), IDEM_E_INVALID);
    CHECK_HAS(err.text, "holds a NUL byte");
    CHECK(layer.said.scope == NULL && layer.said.message == NULL);
    idem_policy_release(&layer);
}

TEST(no_error_holds_a_scope) {
    struct idem_layer layer = {0};
    struct idem_policy p;

    CHECK_INT(set(&layer, "scope", "secret\xff"), IDEM_E_INVALID);
    CHECK(strstr(err.text, "secret") == NULL);
    CHECK_INT(resolve1((struct idem_policy){.scope = "secret\xff"}, &p), IDEM_E_INVALID);
    CHECK(strstr(err.text, "secret") == NULL);
}

TEST(what_an_option_prints_it_takes) {
    const struct idem_policy p = resolved((struct idem_policy){.preset = IDEM_PRESET_QUEUE});
    char buf[IDEM_OPTION_TEXT_MAX], again[IDEM_OPTION_TEXT_MAX];
    struct idem_layer layer = {0};

    for (const struct idem_option *o = idem_option_table; o->word != NULL; o++) {
        CHECK_STR(idem_option_print(o, &layer.said, buf, sizeof(buf)), "-");
        set_ok(&layer, o->word, idem_option_print(o, &p, buf, sizeof(buf)));
        CHECK_STR(idem_option_print(o, &layer.said, again, sizeof(again)), buf);
    }
    idem_policy_release(&layer);
}

/* Defaults and presets. */

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
        {"preset", "api"},
        {"mode", "reject"},
        {"key", "token"},
        {"prefix", "s:"},
        {"scope", "s"},
        {"fingerprint", "2"},
        {"ttl", "2s"},
        {"hold_ttl", "2s"},
        {"lease", "2s"},
        {"run_max", "2s"},
        {"wait", "2s"},
        {"recover", "rerun"},
        {"on_failure", "keep"},
        {"attempts", "2"},
        {"backoff", "2s..3s"},
        {"message", "s"},
        {"on_duplicate", "success"},
        {"on_store_error", "open"},
        {"result_max", "2KiB"},
        {"finish_timeout", "2s"},
    };
    static const char *const weak[][2] = {
        {"preset", "queue"},     {"mode", "replay"},        {"key", "literal"},
        {"prefix", "w:"},        {"scope", "none"},         {"fingerprint", "none"},
        {"ttl", "9s"},           {"hold_ttl", "9s"},        {"lease", "9s"},
        {"run_max", "none"},     {"wait", "none"},          {"recover", "hold"},
        {"on_failure", "retry"}, {"attempts", "none"},      {"backoff", "9s"},
        {"message", "w"},        {"on_duplicate", "error"}, {"on_store_error", "closed"},
        {"result_max", "9KiB"},  {"finish_timeout", "9s"},
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
        CHECK_INT(resolve2(a.said, b.said, &p), 0);
        CHECK_STR(idem_option_print(o, &p, got, sizeof(got)), strong[i][1]);
        CHECK_INT(resolve2((struct idem_policy){0}, b.said, &p), 0);
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

/* What a whole policy may not be. */

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
    CHECK_HAS(err.text, "policy: scope is missing; it says who is asking");
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

/* The manual. */

static char *file_text(const char *path) {
    FILE *f = fopen(path, "r");
    char *text = calloc(1, 1 << 16);

    CHECK(f != NULL && text != NULL);
    CHECK(fread(text, 1, (1 << 16) - 1, f) > 0);
    fclose(f);
    return text;
}

TEST(the_manual_names_every_word_field_and_flag) {
    char *manual = file_text(OPTIONS_MD), part[80], *c;

    for (const struct idem_option *o = idem_option_table; o->word != NULL; o++) {
        snprintf(part, sizeof(part), "| `%s` |", o->word);
        CHECK_HAS(manual, part);
        snprintf(part, sizeof(part), "`.%s`", o->field);
        CHECK_HAS(manual, part);
        /* The command line has its own ways for these. */
        if (strcmp(o->word, "key") == 0 || strcmp(o->word, "on_duplicate") == 0)
            continue;
        snprintf(part, sizeof(part), "`--%s`", o->word);
        for (c = part + 3; *c != '\0'; c++)
            *c = *c == '_' ? '-' : *c;
        CHECK_HAS(manual, part);
    }
    free(manual);
}

TEST(the_manual_names_every_value_and_what_is_allowed) {
    char *manual = file_text(OPTIONS_MD), part[IDEM_OPTION_TEXT_MAX + 8];
    char allowed[IDEM_OPTION_TEXT_MAX];

    for (const struct idem_option *o = idem_option_table; o->word != NULL; o++) {
        if (o->type != IDEM_OPTION_WORD) {
            CHECK_HAS(manual, idem_option_allowed(o, allowed, sizeof(allowed)));
            continue;
        }
        for (const struct idem_word *w = o->values; w->word != NULL; w++) {
            snprintf(part, sizeof(part), "`%s`", w->word);
            CHECK_HAS(manual, part);
        }
    }
    free(manual);
}

TEST(the_manual_tells_the_default_of_every_option) {
    const struct idem_policy p = resolved((struct idem_policy){0});
    char *manual = file_text(OPTIONS_MD), part[IDEM_OPTION_TEXT_MAX + 8];
    char said[IDEM_OPTION_TEXT_MAX], *row, *end;

    for (const struct idem_option *o = idem_option_table; o->word != NULL; o++) {
        if (o->min == 0 || strcmp(o->word, "prefix") == 0 || strcmp(o->word, "scope") == 0)
            continue;
        snprintf(part, sizeof(part), "\n| `%s` |", o->word);
        row = strstr(manual, part);
        CHECK(row != NULL);
        row = strdup(row + 1);
        end = strchr(row, '\n');
        CHECK(end != NULL);
        *end = '\0';
        snprintf(part, sizeof(part), "| %s |", idem_option_print(o, &p, said, sizeof(said)));
        CHECK_HAS(row, part);
        free(row);
    }
    free(manual);
}

TEST_MAIN
