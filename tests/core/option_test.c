/*
 * One option by its word: the values that it accepts, those that it refuses and with which text,
 * and its line in the manual.
 */
#include "policies.h"

#include <limits.h>

#ifndef OPTIONS_MD
#define OPTIONS_MD "docs/options.md"
#endif

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
    {"token_ttl", "1s", "3650d", "0s", "3651d", 1, 315360000},
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
        {"token_ttl", p->token_ttl_s},
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
        CHECK_INT(field(&layer.policy, b->word), b->low_value);
        set_ok(&layer, b->word, b->high);
        CHECK_INT(field(&layer.policy, b->word), b->high_value);
        CHECK_INT(set(&layer, b->word, b->below), IDEM_E_INVALID);
        CHECK_HAS(err.text, "out of range; allowed: ");
        CHECK_INT(set(&layer, b->word, b->above), IDEM_E_INVALID);
        CHECK_HAS(err.text, b->word);
        CHECK_INT(field(&layer.policy, b->word), b->high_value);
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
        CHECK_INT(field(&layer.policy, may[i]), IDEM_NONE);
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
            CHECK_INT(field(&layer.policy, o->word), w->value);
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
    CHECK_HAS(err.text, "\"tll\" is no option; allowed: preset, mode, key, key_expr, prefix");
    CHECK_HAS(err.text, "result_max, finish_timeout, token_ttl");
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
    CHECK_INT(layer.policy.backoff_min_ms, 2000);
    CHECK_INT(layer.policy.backoff_max_ms, 2000);
    set_ok(&layer, "backoff", "500ms..5m");
    CHECK_INT(layer.policy.backoff_min_ms, 500);
    CHECK_INT(layer.policy.backoff_max_ms, 300000);
    CHECK_INT(set(&layer, "backoff", "5m..1s"), IDEM_E_INVALID);
    CHECK_HAS(err.text, "the first time is longer than the second; allowed: 1ms to 7d, one or two");
    CHECK_INT(set(&layer, "backoff", "1s.."), IDEM_E_INVALID);
    CHECK_INT(set(&layer, "backoff", "..1s"), IDEM_E_INVALID);
    CHECK_INT(set(&layer, "backoff", "1s..2s..3s"), IDEM_E_INVALID);
    CHECK_INT(set(&layer, "backoff", "1s...2s"), IDEM_E_INVALID);
    CHECK_INT(set(&layer, "backoff", ""), IDEM_E_INVALID);
    CHECK_INT(layer.policy.backoff_min_ms, 500);
}

TEST(a_text_is_copied_and_replaced) {
    struct idem_layer layer = {0};
    char value[] = "order:";

    set_ok(&layer, "prefix", value);
    value[0] = 'X';
    CHECK_STR(layer.policy.prefix, "order:");
    set_ok(&layer, "prefix", "bill:");
    CHECK_STR(layer.policy.prefix, "bill:");
    set_ok(&layer, "message", "Déjà reçu 🙂");
    CHECK_STR(layer.policy.message, "Déjà reçu 🙂");
    idem_policy_release(&layer);
    CHECK(layer.policy.prefix == NULL);
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
    CHECK(layer.policy.scope == NULL && layer.policy.message == NULL);
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
        CHECK_STR(idem_option_print(o, &layer.policy, buf, sizeof(buf)), "-");
        set_ok(&layer, o->word, idem_option_print(o, &p, buf, sizeof(buf)));
        CHECK_STR(idem_option_print(o, &layer.policy, again, sizeof(again)), buf);
    }
    idem_policy_release(&layer);
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
        if (o->min == 0 || o->optional || strcmp(o->word, "prefix") == 0 ||
            strcmp(o->word, "scope") == 0)
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
