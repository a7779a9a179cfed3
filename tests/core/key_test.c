/*
 * Calls that count as the same: keys by expression, by parameters and by serial number, and the
 * fingerprint that is compared when a key returns.
 */
#include "calls.h"

#include "core/key.h"

#define ORDER                                                                                      \
    "{\"order\":{\"id\":1810966706881941507,\"amount\":10,\"note\":null},\"user\":{\"id\":\"u1\"}" \
    "}"

static struct idem_error err;

static struct idem_args json_args(const char *json) {
    return (struct idem_args){.json = json, .json_len = strlen(json)};
}

/* The verdict of a call, or its error's code. */
static int ask(struct idem *h, const struct idem_guard *guard, struct idem_args args) {
    struct work work = {.result = "r"};
    struct idem_outcome out;
    int rc = idem_call(h, guard, &args, do_work, &work, &out, &err);

    if (rc == 0)
        idem_outcome_release(&out);
    return rc < 0 ? rc : (int)out.verdict;
}

static int guard_rc(struct idem_policy policy) {
    struct idem_guard *guard = NULL;
    int rc;

    if (policy.prefix == NULL)
        policy.prefix = "t:";
    if (policy.scope == NULL)
        policy.scope = IDEM_SCOPE_NONE;
    rc = idem_guard_new(NULL, &policy, &guard, &err);
    idem_guard_free(guard);
    return rc;
}

static struct idem *open_with(const char *settings_text) {
    struct idem_settings *settings;
    struct idem_options options = {0};
    struct idem *h = NULL;

    CHECK_INT(idem_settings_parse(NULL, settings_text, strlen(settings_text), &settings, &err), 0);
    options.settings = settings;
    CHECK_INT(idem_open(temp_url("store", "sync=off"), &options, &h, &err), 0);
    idem_settings_free(settings);
    return h;
}

/* The key that a call would have. */
static const char *key_of(const struct idem_guard *guard, struct idem_args args) {
    static struct idem_identity identity;
    static char text[IDEM_KEY_MAX + 1];

    memset(&err, 0, sizeof(err));
    if (idem_identity_make(guard, idem_guard_policy(guard), &args, &identity, &err) < 0)
        return NULL;
    memcpy(text, identity.key, identity.key_len);
    text[identity.key_len] = '\0';
    return text;
}

/* Expressions. */

TEST(an_expression_makes_the_key_of_the_arguments) {
    struct idem *h = open_store("sync=off");
    struct idem_guard *guard =
        guard_of(h, (struct idem_policy){.key_expr = "'user:' + #user.id + ':' + #order.id"});

    CHECK_INT(idem_guard_policy(guard)->key_kind, IDEM_KEY_EXPRESSION);
    CHECK_STR(key_of(guard, json_args(ORDER)), "user:u1:1810966706881941507");
    CHECK_INT(ask(h, guard, json_args(ORDER)), IDEM_RUN);
    CHECK_INT(ask(h, guard, json_args(ORDER)), IDEM_REPLAY);
    CHECK_INT(ask(h, guard,
                  json_args("{\"user\":{\"id\":\"u1\"},\"order\":{\"id\":1810966706881941508}}")),
              IDEM_RUN);
    idem_guard_free(guard);
    idem_close(h);
}

TEST(text_with_hash_and_brace_is_a_template) {
    struct idem_guard *guard =
        guard_of(NULL, (struct idem_policy){.key_expr = "order:#{#order.id}"});

    CHECK_STR(key_of(guard, json_args(ORDER)), "order:1810966706881941507");
    idem_guard_free(guard);
}

TEST(text_that_could_be_both_is_refused) {
    CHECK_INT(guard_rc((struct idem_policy){.key_expr = "'#{#a}' + #b"}), IDEM_E_INVALID);
    CHECK_HAS(err.text, "key_expr: ");
    CHECK_HAS(err.text, "as a template");
    CHECK_INT(guard_rc((struct idem_policy){.key_expr = "'#{#a}'"}), IDEM_E_INVALID);
    CHECK_INT(guard_rc((struct idem_policy){.key_expr = "it's #{#a} o'clock"}), 0);
}

TEST(an_expression_is_refused_when_the_guard_is_made) {
    static const char *const wrong[] = {
        "order.id", "T(java.lang.Runtime)", "#a = 1", "#a +", "1", "@bean.key",
        "#{#a",     "new String('x')"};

    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        CHECK_INT(guard_rc((struct idem_policy){.key_expr = wrong[i]}), IDEM_E_INVALID);
        CHECK_HAS(err.text, "key_expr: column ");
        CHECK_HAS(err.text, "^");
        CHECK_INT(guard_rc((struct idem_policy){.fingerprint_expr = wrong[i]}), IDEM_E_INVALID);
        CHECK_HAS(err.text, "fingerprint_expr: column ");
    }
}

TEST(a_null_in_a_key_is_an_error_that_names_the_expression_and_runs_nothing) {
    struct idem *h = open_store("sync=off");
    struct idem_guard *guard = guard_of(h, (struct idem_policy){.key_expr = "'o' + #order.note"});

    CHECK_INT(ask(h, guard, json_args(ORDER)), IDEM_E_INVALID);
    CHECK_HAS(err.text, "key_expr: column ");
    CHECK_HAS(err.text, "'o' + #order.note");
    CHECK_INT(count_of(h, IDEM_EVENT_RUN), 0);
    idem_guard_free(guard);
    idem_close(h);
}

TEST(arguments_that_cannot_be_read_are_an_error) {
    struct idem_guard *guard =
        guard_of(NULL, (struct idem_policy){.key_expr = "#a", .json_max = 32});

    CHECK(key_of(guard, (struct idem_args){0}) == NULL);
    CHECK_HAS(err.text, "idem_args.json");
    CHECK(key_of(guard, json_args("{\"a\":1,\"a\":2}")) == NULL);
    CHECK_HAS(err.text, "idem_args.json");
    CHECK(key_of(guard, json_args("{\"a\":\"\\ud800\"}")) == NULL);
    CHECK(key_of(guard, json_args("[1]")) == NULL);
    CHECK_HAS(err.text, "object");
    CHECK(key_of(guard, json_args("{\"a\":\"0123456789012345678901234567\"}")) == NULL);
    CHECK_HAS(err.text, "json_max allows 32");
    CHECK_STR(key_of(guard, json_args("{\"a\":1}")), "1");
    idem_guard_free(guard);
}

TEST(who_brings_a_key_for_a_policy_that_makes_its_own_is_told) {
    struct idem_guard *guard = guard_of(NULL, (struct idem_policy){.key_expr = "#a"});
    struct idem_args args = json_args("{\"a\":1}");

    args.key = "1";
    args.key_len = 1;
    CHECK(key_of(guard, args) == NULL);
    CHECK_HAS(err.text, "key = expression");
    idem_guard_free(guard);
}

TEST(a_call_cannot_bring_an_expression) {
    struct idem *h = open_store("sync=off");
    struct idem_guard *guard = guard_of(h, (struct idem_policy){0});
    struct idem_policy with = {.key_expr = "#a"};
    struct idem_args args = json_args("{\"a\":1}");

    args.with = &with;
    CHECK_INT(ask(h, guard, args), IDEM_E_INVALID);
    CHECK_HAS(err.text, "compiled once");
    with = (struct idem_policy){.fingerprint_expr = "#a"};
    CHECK_INT(ask(h, guard, args), IDEM_E_INVALID);
    CHECK_HAS(err.text, "compiled once");
    with = (struct idem_policy){.key_kind = IDEM_KEY_EXPRESSION};
    CHECK_INT(ask(h, guard, args), IDEM_E_INVALID);
    CHECK_HAS(err.text, "key_expr");
    idem_guard_free(guard);
    idem_close(h);
}

TEST(settings_can_say_the_expression) {
    static const char text[] = "[defaults]\nkey = token\n"
                               "[policy pay]\nkey_expr = \"#order.id\"\nprefix = pay:\n"
                               "fingerprint_expr = \"#order.amount\"\njson_max = 4k\n";
    struct idem *h = open_with(text);
    struct idem_guard *guard;

    CHECK_INT(
        idem_guard_new(h, &(struct idem_policy){.name = "pay", .scope = "none"}, &guard, &err), 0);
    CHECK_STR(key_of(guard, json_args(ORDER)), "1810966706881941507");
    CHECK_INT(idem_guard_policy(guard)->json_max, 4096);
    CHECK_INT(ask(h, guard, json_args(ORDER)), IDEM_RUN);
    CHECK_INT(ask(h, guard, json_args("{\"order\":{\"id\":1810966706881941507,\"amount\":11}}")),
              IDEM_MISMATCH);
    idem_guard_free(guard);
    idem_close(h);
}

/* Parameters. */

static struct idem_args parameters(const char *path, const char *user, const char *json) {
    return (struct idem_args){.path = path,
                              .path_len = path == NULL ? 0 : strlen(path),
                              .scope = user,
                              .scope_len = user == NULL ? 0 : strlen(user),
                              .json = json,
                              .json_len = json == NULL ? 0 : strlen(json)};
}

static const struct idem_policy by_parameters = {.key_kind = IDEM_KEY_PARAMETERS,
                                                 .scope = IDEM_SCOPE_CALLER};

TEST(parameters_are_path_user_and_canonical_arguments) {
    struct idem *h = open_store("sync=off");
    struct idem_guard *guard = guard_of(h, by_parameters);

    CHECK_INT(ask(h, guard, parameters("/orders", "u1", "{\"a\":1,\"b\":2.50}")), IDEM_RUN);
    CHECK_INT(ask(h, guard, parameters("/orders", "u1", "{ \"b\": 2.5e0, \"\\u0061\": 1.0 }")),
              IDEM_REPLAY);
    CHECK_INT(ask(h, guard, parameters("/orders", "u2", "{\"a\":1,\"b\":2.5}")), IDEM_RUN);
    CHECK_INT(ask(h, guard, parameters("/order", "u1", "{\"a\":1,\"b\":2.5}")), IDEM_RUN);
    CHECK_INT(ask(h, guard, parameters("/orders", "u1", "{\"a\":1,\"b\":2.51}")), IDEM_RUN);
    CHECK_INT(ask(h, guard, parameters("/orders", "u1", NULL)), IDEM_RUN);
    CHECK_INT(ask(h, guard, parameters("/orders", "u1", "null")), IDEM_RUN);
    CHECK_INT(ask(h, guard, parameters("/orders", "u1", "null")), IDEM_REPLAY);
    CHECK_INT(ask(h, guard, parameters("/orders", "u1", "1810966706881941507")), IDEM_RUN);
    CHECK_INT(ask(h, guard, parameters("/orders", "u1", "1810966706881941508")), IDEM_RUN);
    idem_guard_free(guard);
    idem_close(h);
}

TEST(no_user_where_one_is_required_is_an_error) {
    struct idem *h = open_store("sync=off");
    struct idem_guard *guard = guard_of(h, by_parameters);

    CHECK_INT(ask(h, guard, parameters("/orders", NULL, "{}")), IDEM_E_INVALID);
    CHECK_HAS(err.text, "the caller is not identified");
    CHECK_HAS(err.text, "missing");
    CHECK_INT(ask(h, guard, parameters("/orders", "", "{}")), IDEM_E_INVALID);
    CHECK_HAS(err.text, "empty");
    CHECK_INT(ask(h, guard, parameters("", "u1", "{}")), IDEM_E_INVALID);
    CHECK_HAS(err.text, "path");
    CHECK_INT(guard_rc((struct idem_policy){.key_kind = IDEM_KEY_PARAMETERS, .scope = "fixed"}),
              IDEM_E_INVALID);
    CHECK_HAS(err.text, "scope = caller");
    CHECK_INT(guard_rc((struct idem_policy){.key_kind = IDEM_KEY_PARAMETERS}), 0);
    idem_guard_free(guard);
    idem_close(h);
}

TEST(an_empty_scope_is_an_error_under_every_policy) {
    struct idem *h = open_store("sync=off");
    struct idem_guard *guard = guard_of(h, (struct idem_policy){0});
    struct idem_args args = {.key = "k", .key_len = 1, .scope = "", .scope_len = 0};

    CHECK_INT(ask(h, guard, args), IDEM_E_INVALID);
    CHECK_HAS(err.text, "the caller is not identified");
    idem_guard_free(guard);
    idem_close(h);
}

TEST(long_arguments_are_hashed_byte_for_byte_and_never_meet_canonical_ones) {
    struct idem_guard *small =
        guard_of(NULL, (struct idem_policy){.key_kind = IDEM_KEY_PARAMETERS, .json_max = 4});
    struct idem_guard *large =
        guard_of(NULL, (struct idem_policy){.key_kind = IDEM_KEY_PARAMETERS});
    char canonical[IDEM_KEY_MAX];

    snprintf(canonical, sizeof(canonical), "%s", key_of(large, parameters("/", NULL, "{\"a\":1}")));
    CHECK(strcmp(key_of(large, parameters("/", NULL, "{ \"a\":1}")), canonical) == 0);
    CHECK(strcmp(key_of(small, parameters("/", NULL, "{\"a\":1}")), canonical) != 0);
    snprintf(canonical, sizeof(canonical), "%s", key_of(small, parameters("/", NULL, "{\"a\":1}")));
    CHECK(strcmp(key_of(small, parameters("/", NULL, "{ \"a\":1}")), canonical) != 0);
    idem_guard_free(small);
    idem_guard_free(large);
}

TEST(a_path_up_to_the_longest_key_is_taken) {
    struct idem_guard *guard =
        guard_of(NULL, (struct idem_policy){.key_kind = IDEM_KEY_PARAMETERS});
    char path[IDEM_KEY_MAX - 63];

    memset(path, 'p', sizeof(path));
    CHECK(key_of(guard, (struct idem_args){.path = path, .path_len = IDEM_KEY_MAX - 65}) != NULL);
    CHECK(key_of(guard, (struct idem_args){.path = path, .path_len = IDEM_KEY_MAX - 64}) == NULL);
    CHECK_HAS(err.text, "4097 bytes");
    idem_guard_free(guard);
}

/* Serial numbers. */

static struct idem_args serial(const char *number, const char *credential) {
    return (struct idem_args){.serial = number,
                              .serial_len = strlen(number),
                              .credential = credential,
                              .credential_len = strlen(credential)};
}

TEST(a_serial_number_and_a_credential_are_both_required) {
    struct idem_guard *guard = guard_of(NULL, (struct idem_policy){.key_kind = IDEM_KEY_SERIAL});

    CHECK_STR(key_of(guard, serial("S-1", "card")), "4:card:S-1");
    CHECK(key_of(guard, serial("", "card")) == NULL);
    CHECK_HAS(err.text, "serial is missing");
    CHECK(key_of(guard, serial("S-1", "")) == NULL);
    CHECK_HAS(err.text, "credential is missing");
    idem_guard_free(guard);
}

TEST(the_parts_of_a_serial_key_cannot_run_into_each_other) {
    struct idem_guard *guard = guard_of(NULL, (struct idem_policy){.key_kind = IDEM_KEY_SERIAL});
    char first[64];

    snprintf(first, sizeof(first), "%s", key_of(guard, serial("b:c", "a")));
    CHECK(strcmp(first, key_of(guard, serial("c", "a:b"))) != 0);
    snprintf(first, sizeof(first), "%s", key_of(guard, serial("1", "11:1")));
    CHECK(strcmp(first, key_of(guard, serial("1:1", "11"))) != 0);
    idem_guard_free(guard);
}

TEST(a_serial_key_has_at_most_4096_bytes) {
    struct idem_guard *guard = guard_of(NULL, (struct idem_policy){.key_kind = IDEM_KEY_SERIAL});
    char text[IDEM_KEY_MAX + 1];

    memset(text, 's', sizeof(text) - 1);
    text[IDEM_KEY_MAX] = '\0';
    CHECK(key_of(guard, serial(text, "a")) == NULL);
    text[IDEM_KEY_MAX - 4] = '\0';
    CHECK(key_of(guard, serial(text, "a")) != NULL);
    CHECK(key_of(guard, serial(text, "ab")) == NULL);
    CHECK(key_of(guard, (struct idem_args){.serial = "s",
                                           .serial_len = SIZE_MAX,
                                           .credential = "c",
                                           .credential_len = 1}) == NULL);
    CHECK_HAS(err.text, "18446744073709551615 bytes");
    idem_guard_free(guard);
}

/* Fingerprints. */

static struct idem_args keyed(const char *key, const char *json) {
    struct idem_args args = json_args(json);

    args.key = key;
    args.key_len = strlen(key);
    return args;
}

TEST(the_arguments_of_a_literal_key_must_be_the_same) {
    struct idem *h = open_store("sync=off");
    struct idem_guard *guard = guard_of(h, (struct idem_policy){0});

    CHECK_INT(ask(h, guard, keyed("k", "{\"a\":1,\"b\":[true,null]}")), IDEM_RUN);
    CHECK_INT(ask(h, guard, keyed("k", "{\"b\": [true, null], \"a\": 1.0}")), IDEM_REPLAY);
    CHECK_INT(ask(h, guard, keyed("k", "{\"b\":[null,true],\"a\":1}")), IDEM_MISMATCH);
    CHECK_INT(ask(h, guard, keyed("k", "{\"a\":1,\"a\":1}")), IDEM_E_INVALID);
    idem_guard_free(guard);
    idem_close(h);
}

TEST(the_arguments_of_a_computed_key_are_not_compared_unless_it_is_said) {
    struct idem *h = open_store("sync=off");
    struct idem_guard *guard = guard_of(h, (struct idem_policy){.key_expr = "#k"});
    struct idem_guard *all =
        guard_of(h, (struct idem_policy){.key_expr = "#k", .fingerprint = 1, .prefix = "all:"});

    CHECK_INT(ask(h, guard, json_args("{\"k\":1,\"a\":1}")), IDEM_RUN);
    CHECK_INT(ask(h, guard, json_args("{\"k\":1,\"a\":2}")), IDEM_REPLAY);
    CHECK_INT(ask(h, all, json_args("{\"k\":1,\"a\":1}")), IDEM_RUN);
    CHECK_INT(ask(h, all, json_args("{\"k\":1,\"a\":2}")), IDEM_MISMATCH);
    CHECK_INT(ask(h, all, json_args("{\"a\":1.0,\"k\":1}")), IDEM_REPLAY);
    idem_guard_free(guard);
    idem_guard_free(all);
    idem_close(h);
}

TEST(bytes_that_a_call_brings_are_compared_under_every_kind_of_key) {
    struct idem *h = open_store("sync=off");
    struct idem_guard *guard = guard_of(h, (struct idem_policy){.key_expr = "#k"});
    struct idem_args args = json_args("{\"k\":1}");

    args.fingerprint = "one";
    args.fingerprint_len = 3;
    CHECK_INT(ask(h, guard, args), IDEM_RUN);
    args.fingerprint = "two";
    CHECK_INT(ask(h, guard, args), IDEM_MISMATCH);
    idem_guard_free(guard);
    idem_close(h);
}

TEST(only_selected_members_must_be_the_same) {
    struct idem *h = open_store("sync=off");
    struct idem_guard *guard =
        guard_of(h, (struct idem_policy){.fingerprint_expr = "{#amount, #items, #to ?: 'nobody'}"});

    CHECK_INT(
        ask(h, guard, keyed("k", "{\"amount\":10,\"items\":[{\"a\":1,\"b\":null}],\"at\":1}")),
        IDEM_RUN);
    CHECK_INT(
        ask(h, guard, keyed("k", "{\"at\":2,\"items\":[{\"b\":null,\"a\":1}],\"amount\":1e1}")),
        IDEM_REPLAY);
    CHECK_INT(ask(h, guard, keyed("k", "{\"amount\":10,\"items\":[{\"a\":1}]}")), IDEM_MISMATCH);
    CHECK_INT(ask(h, guard, keyed("k", "{\"amount\":11,\"items\":[{\"a\":1,\"b\":null}]}")),
              IDEM_MISMATCH);
    CHECK_INT(ask(h, guard, keyed("k", "{\"items\":[]}")), IDEM_E_INVALID);
    CHECK_HAS(err.text, "fingerprint_expr: ");
    idem_guard_free(guard);
    idem_close(h);
}

/* The part is named by its expression, but its kind keeps it apart from whatever has that name. */
TEST(a_selected_value_is_no_document) {
    struct idem_guard *guard = guard_of(NULL, (struct idem_policy){.fingerprint_expr = "#json"});
    struct idem_guard *whole = guard_of(NULL, (struct idem_policy){0});
    struct idem_args one = keyed("k", "{\"json\":1}"), all = keyed("k", "1");
    struct idem_identity a, b;

    CHECK_INT(idem_identity_make(guard, idem_guard_policy(guard), &one, &a, &err), 0);
    CHECK_INT(idem_identity_make(whole, idem_guard_policy(whole), &all, &b, &err), 0);
    CHECK(a.fingerprint.definition != b.fingerprint.definition);
    CHECK(memcmp(a.fingerprint.hash, b.fingerprint.hash, IDEM_HASH_LEN) != 0);
    idem_guard_free(guard);
    idem_guard_free(whole);
}

TEST(another_selection_is_not_comparable) {
    struct idem *h = open_store("sync=off");
    struct idem_guard *one = guard_of(h, (struct idem_policy){.fingerprint_expr = "#a"});
    struct idem_guard *two = guard_of(h, (struct idem_policy){.fingerprint_expr = "#b"});
    struct idem_guard *three =
        guard_of(h, (struct idem_policy){.fingerprint_expr = "#a", .fingerprint = 2});

    CHECK_INT(ask(h, one, keyed("k", "{\"a\":1,\"b\":2}")), IDEM_RUN);
    CHECK_INT(ask(h, two, keyed("k", "{\"a\":1,\"b\":2}")), IDEM_REPLAY);
    CHECK_INT(ask(h, three, keyed("k", "{\"a\":7}")), IDEM_REPLAY);
    CHECK_INT(ask(h, one, keyed("k", "{\"a\":7}")), IDEM_MISMATCH);
    idem_guard_free(one);
    idem_guard_free(two);
    idem_guard_free(three);
    idem_close(h);
}

TEST(a_fingerprint_by_expression_and_one_by_the_call_contradict) {
    struct idem *h = open_store("sync=off");
    struct idem_guard *guard = guard_of(h, (struct idem_policy){.fingerprint_expr = "#a"});
    struct idem_args args = keyed("k", "{\"a\":1}");

    args.fingerprint = "x";
    args.fingerprint_len = 1;
    CHECK_INT(ask(h, guard, args), IDEM_E_INVALID);
    CHECK_HAS(err.text, "leave one of them out");
    idem_guard_free(guard);
    idem_close(h);
}

TEST(what_contradicts_itself_is_refused) {
    const struct {
        struct idem_policy policy;
        const char *text;
    } wrong[] = {
        {{.key_kind = IDEM_KEY_EXPRESSION}, "key = expression needs the expression"},
        {{.key_kind = IDEM_KEY_TOKEN, .key_expr = "#a"}, "key_expr is set where key is not"},
        {{.fingerprint = IDEM_NONE, .fingerprint_expr = "#a"}, "fingerprint = none"},
        {{.mode = IDEM_MODE_LOCK, .fingerprint_expr = "#a"}, "contradicts mode=lock"},
        {{.key_expr = ""}, "key_expr is empty"},
        {{.key_kind = (enum idem_key_kind)9}, "key is 9; allowed: literal, token, expression"},
    };

    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        CHECK_INT(guard_rc(wrong[i].policy), IDEM_E_INVALID);
        CHECK_HAS(err.text, wrong[i].text);
    }
}

TEST(a_stronger_place_overrules_an_expression) {
    static const char text[] = "[policy p]\nprefix = p:\nscope = none\nkey_expr = \"#a\"\n"
                               "fingerprint_expr = \"#b\"\n";
    struct idem *h = open_with(text);
    struct idem_guard *guard;

    CHECK_INT(idem_guard_new(h,
                             &(struct idem_policy){.name = "p",
                                                   .key_kind = IDEM_KEY_LITERAL,
                                                   .fingerprint = IDEM_NONE},
                             &guard, &err),
              0);
    CHECK(idem_guard_policy(guard)->key_expr == NULL);
    CHECK(idem_guard_policy(guard)->fingerprint_expr == NULL);
    CHECK_INT(ask(h, guard, keyed("k", "{}")), IDEM_RUN);
    idem_guard_free(guard);
    idem_close(h);
}

/* A call without a fingerprint stores zeros, even if the memory held other bytes before. */
TEST(no_fingerprint_is_stored_as_zeros_and_not_as_what_the_memory_held) {
    static const struct idem_fingerprint zeros;
    static const int kinds[] = {IDEM_NONE, 0};

    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        struct idem_guard *guard = guard_of(NULL, (struct idem_policy){.fingerprint = kinds[i]});
        struct idem_args args = {.key = "k", .key_len = 1};
        struct idem_identity identity;

        memset(&identity, 0xa5, sizeof(identity));
        CHECK_INT(idem_identity_make(guard, idem_guard_policy(guard), &args, &identity, &err), 0);
        CHECK(memcmp(&identity.fingerprint, &zeros, sizeof(zeros)) == 0);
        idem_guard_free(guard);
    }
}

TEST(a_length_without_bytes_is_an_error) {
    struct idem_guard *guard = guard_of(NULL, (struct idem_policy){0});
    const struct {
        struct idem_args args;
        const char *text;
    } wrong[] = {
        {{.key_len = 1}, "idem_args.key is NULL"},
        {{.key = "k", .key_len = 1, .scope_len = 1}, "idem_args.scope is NULL"},
        {{.key = "k", .key_len = 1, .fingerprint_len = 1}, "idem_args.fingerprint is NULL"},
        {{.key = "k", .key_len = 1, .bind_len = 1}, "idem_args.bind is NULL"},
        {{.key = "k", .key_len = 1, .json_len = 1}, "idem_args.json is NULL"},
        {{.key = "k", .key_len = 1, .path_len = 1}, "idem_args.path is NULL"},
        {{.key = "k", .key_len = 1, .serial_len = 1}, "idem_args.serial is NULL"},
        {{.key = "k", .key_len = 1, .credential_len = 1}, "idem_args.credential is NULL"},
    };

    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        CHECK(key_of(guard, wrong[i].args) == NULL);
        CHECK_HAS(err.text, wrong[i].text);
    }
    idem_guard_free(guard);
}

/* The sender of the body chooses its length, which must not switch the comparison off. */
TEST(a_body_that_is_too_long_to_be_read_is_another_one) {
    struct idem *h = open_store("sync=off");
    struct idem_guard *guard = guard_of(h, (struct idem_policy){.json_max = 16});
    struct idem_guard *raised = guard_of(h, (struct idem_policy){.json_max = 16, .fingerprint = 2});

    CHECK_INT(ask(h, guard, keyed("k", "{\"a\":1}")), IDEM_RUN);
    CHECK_INT(ask(h, guard, keyed("k", "{\"a\":2,     \"b\":2}")), IDEM_MISMATCH);
    CHECK_INT(ask(h, guard, keyed("k", "{\"a\":1               }")), IDEM_MISMATCH);
    CHECK_INT(ask(h, guard, keyed("long", "{\"a\":2,     \"b\":2}")), IDEM_RUN);
    CHECK_INT(ask(h, guard, keyed("long", "{\"a\":2,     \"b\":2}")), IDEM_REPLAY);
    CHECK_INT(ask(h, guard, keyed("long", "{\"a\":2,\"b\":2}")), IDEM_MISMATCH);
    CHECK_INT(ask(h, raised, keyed("long", "{\"a\":2}")), IDEM_REPLAY);
    idem_guard_free(guard);
    idem_guard_free(raised);
    idem_close(h);
}

TEST(json_up_to_its_limit_is_read_and_beyond_it_is_not) {
    struct idem_guard *guard =
        guard_of(NULL, (struct idem_policy){.key_kind = IDEM_KEY_PARAMETERS, .json_max = 8});
    char first[IDEM_KEY_MAX];

    snprintf(first, sizeof(first), "%s", key_of(guard, parameters("/", NULL, "{\"a\":1}")));
    CHECK(strcmp(first, key_of(guard, parameters("/", NULL, "{\"a\": 1}"))) == 0);
    CHECK(strcmp(first, key_of(guard, parameters("/", NULL, "{\"a\":  1}"))) != 0);
    CHECK(key_of(guard, parameters("/", NULL, "{\"a\":1 ")) == NULL);   /* 8 bytes, and read */
    CHECK(key_of(guard, parameters("/", NULL, "{\"a\":111 ")) != NULL); /* 9, and not */
    idem_guard_free(guard);
}

/* Threads: one guard for all of them. */

static void *evaluate(void *data) {
    struct idem_identity identity;
    char json[64];

    for (int i = 0; i < 2000; i++) {
        snprintf(json, sizeof(json), "{\"a\":%d}", i);
        struct idem_args args = json_args(json);

        CHECK_INT(idem_identity_make(data, idem_guard_policy(data), &args, &identity, NULL), 0);
        snprintf(json, sizeof(json), "k%d", i);
        CHECK(identity.key_len == strlen(json) &&
              memcmp(identity.key, json, identity.key_len) == 0);
    }
    return NULL;
}

TEST(one_guard_serves_many_threads) {
    struct idem_guard *guard =
        guard_of(NULL, (struct idem_policy){.key_expr = "'k' + #a", .fingerprint_expr = "{#a}"});
    pthread_t threads[4];

    for (int i = 0; i < 4; i++)
        CHECK_INT(pthread_create(&threads[i], NULL, evaluate, guard), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    idem_guard_free(guard);
}

TEST_MAIN
