/*
 * Guards: the layers in their order, and a call's own values before them.
 */
#include "core/policy.h"
#include "core/settings.h"
#include "test.h"

static struct idem_error err;

static struct idem_settings *settings(const char *text) {
    struct idem_settings *s = NULL;

    if (idem_settings_parse("t.conf", text, strlen(text), &s, &err) < 0)
        fprintf(stderr, "# %s\n", err.text);
    CHECK(s != NULL);
    return s;
}

static struct idem_guard *guard(const char *conf, const struct idem_policy *policy,
                                const struct idem_policy *door) {
    struct idem_settings *s = conf == NULL ? NULL : settings(conf);
    struct idem_guard *g = NULL;

    if (idem_guard_make(s, policy, door, &g, &err) < 0)
        fprintf(stderr, "# %s\n", err.text);
    CHECK(g != NULL);
    idem_settings_free(s);
    return g;
}

static const struct idem_policy orders = {.name = "orders", .prefix = "order:", .scope = "none"};

TEST(a_guard_needs_no_handle) {
    struct idem_guard *g = NULL;

    CHECK_INT(idem_guard_new(NULL, &orders, &g, &err), 0);
    CHECK_STR(idem_guard_policy(g)->prefix, "order:");
    CHECK_INT(idem_guard_policy(g)->ttl_s, 86400);
    idem_guard_free(g);
    idem_guard_free(NULL);
}

TEST(a_guard_that_cannot_be_made_leaves_the_result_alone) {
    struct idem_guard *g = (struct idem_guard *)&err;

    CHECK_INT(idem_guard_new(NULL, NULL, &g, &err), IDEM_E_INVALID);
    CHECK_HAS(err.text, "policy is NULL");
    CHECK_INT(idem_guard_new(NULL, &(struct idem_policy){.prefix = "x"}, &g, &err), IDEM_E_INVALID);
    CHECK_HAS(err.text, "scope is missing");
    CHECK(g == (struct idem_guard *)&err);
}

TEST(a_guard_keeps_its_own_copies) {
    char prefix[] = "order:", scope[] = "me", message[] = "no", name[] = "orders";
    const struct idem_policy p = {
        .name = name, .prefix = prefix, .scope = scope, .message = message};
    struct idem_guard *g = guard(NULL, &p, NULL);

    memset(prefix, 'x', 6);
    memset(scope, 'x', 2);
    memset(message, 'x', 2);
    memset(name, 'x', 6);
    CHECK_STR(idem_guard_policy(g)->prefix, "order:");
    CHECK_STR(idem_guard_policy(g)->scope, "me");
    CHECK_STR(idem_guard_policy(g)->message, "no");
    CHECK_STR(idem_guard_policy(g)->name, "orders");
    idem_guard_free(g);
}

TEST(the_layers_come_in_their_order) {
    const struct idem_policy door = {.preset = IDEM_PRESET_QUEUE,
                                     .lease_ms = 105000,
                                     .wait_ms = 5000,
                                     .run_max_ms = 5000,
                                     .hold_ttl_s = 5,
                                     .finish_timeout_ms = 5000};
    const struct idem_policy with = {.ttl_s = 1};
    struct idem_policy p = orders, call;
    struct idem_guard *g;

    p.ttl_s = 2;
    p.hold_ttl_s = 2;
    g = guard("[defaults]\nttl=4s\nhold_ttl=4s\nlease=104s\nwait=4s\n"
              "[policy other]\nlease=9m\n"
              "[policy orders]\nttl=3s\nhold_ttl=3s\nlease=103s\n",
              &p, &door);
    CHECK_INT(idem_guard_with(g, &with, &call, &err), 0);
    CHECK_INT(call.ttl_s, 1);
    CHECK_INT(call.hold_ttl_s, 2);
    CHECK_INT(call.lease_ms, 103000);
    CHECK_INT(call.wait_ms, 4000);
    CHECK_INT(call.run_max_ms, 5000);
    CHECK_INT(call.mode, IDEM_MODE_REJECT);
    CHECK_INT(call.attempts, 5);
    CHECK_INT(call.result_max, 1 << 20);
    CHECK_INT(idem_guard_policy(g)->ttl_s, 2);
    idem_guard_free(g);
}

TEST(settings_without_the_policy_are_fine) {
    struct idem_guard *g = guard("[policy other]\nttl=3s\n", &orders, NULL);

    CHECK_INT(idem_guard_policy(g)->ttl_s, 86400);
    idem_guard_free(g);
}

TEST(settings_can_say_what_the_struct_leaves_out) {
    const struct idem_policy p = {.name = "orders"};
    struct idem_guard *g = guard("[defaults]\nscope=none\n[policy orders]\nprefix=o:\n", &p, NULL);

    CHECK_STR(idem_guard_policy(g)->prefix, "o:");
    CHECK_STR(idem_guard_policy(g)->scope, IDEM_SCOPE_NONE);
    idem_guard_free(g);
}

TEST(a_front_door_can_bring_prefix_and_scope) {
    const struct idem_policy door = {.prefix = "run:", .scope = "none", .preset = IDEM_PRESET_JOB};
    struct idem_guard *g = guard(NULL, &(struct idem_policy){0}, &door);

    CHECK_STR(idem_guard_policy(g)->prefix, "run:");
    CHECK_INT(idem_guard_policy(g)->mode, IDEM_MODE_REJECT);
    idem_guard_free(g);
}

TEST(a_call_without_own_values_gets_the_guards) {
    struct idem_guard *g = guard(NULL, &orders, NULL);
    struct idem_policy call;

    CHECK_INT(idem_guard_with(g, NULL, &call, &err), 0);
    CHECK_INT(memcmp(&call, idem_guard_policy(g), sizeof(call)), 0);
    idem_guard_free(g);
}

TEST(a_call_may_bring_a_preset_of_its_own) {
    struct idem_policy p = orders, call;
    struct idem_guard *g;

    p.preset = IDEM_PRESET_QUEUE;
    g = guard(NULL, &p, NULL);
    CHECK_INT(idem_guard_with(g, &(struct idem_policy){.preset = IDEM_PRESET_PAYMENT}, &call, &err),
              0);
    CHECK_INT(call.mode, IDEM_MODE_REPLAY);
    CHECK_INT(call.on_failure, IDEM_ON_FAILURE_KEEP);
    CHECK_INT(call.attempts, IDEM_NONE);
    idem_guard_free(g);
}

TEST(a_call_that_says_nonsense_is_refused_and_the_guard_unharmed) {
    struct idem_guard *g = guard(NULL, &orders, NULL);
    struct idem_policy call = {.lease_ms = 42};

    CHECK_INT(idem_guard_with(g, &(struct idem_policy){.lease_ms = 1}, &call, &err),
              IDEM_E_INVALID);
    CHECK_HAS(err.text, "policy \"orders\": lease is 1ms; allowed: 100ms to 24h");
    CHECK_INT(call.lease_ms, 42);
    CHECK_INT(idem_guard_policy(g)->lease_ms, 30000);
    idem_guard_free(g);
}

TEST(a_call_may_lock_where_the_policy_holds_but_not_hold_where_it_locks) {
    const struct idem_policy lock = {.mode = IDEM_MODE_LOCK}, hold = {.recover = IDEM_RECOVER_HOLD};
    struct idem_policy p = orders, call;
    struct idem_guard *g;

    p.recover = IDEM_RECOVER_HOLD;
    g = guard(NULL, &p, NULL);
    CHECK_INT(idem_guard_with(g, &lock, &call, &err), 0);
    CHECK_INT(call.recover, IDEM_RECOVER_RERUN);
    idem_guard_free(g);
    p.recover = 0;
    p.mode = IDEM_MODE_LOCK;
    g = guard(NULL, &p, NULL);
    CHECK_INT(idem_guard_with(g, &hold, &call, &err), IDEM_E_INVALID);
    CHECK_HAS(err.text, "recover=hold contradicts mode=lock");
    idem_guard_free(g);
}

static long key_fn(void *data, char *buf, size_t size) {
    (void)data;
    (void)buf;
    return (long)size;
}

TEST(a_key_function_comes_from_the_policy_or_the_call) {
    struct idem_policy p = orders, call;
    struct idem_guard *g = guard(NULL, &p, NULL);

    CHECK(idem_guard_policy(g)->key_fn == NULL);
    CHECK_INT(idem_guard_with(g, &(struct idem_policy){.key_fn = key_fn}, &call, &err), 0);
    CHECK(call.key_fn == key_fn);
    idem_guard_free(g);
    p.key_fn = key_fn;
    g = guard(NULL, &p, NULL);
    CHECK(idem_guard_policy(g)->key_fn == key_fn);
    idem_guard_free(g);
}

TEST_MAIN
