/*
 * Merges layers into one checked policy: presets, defaults, contradictions. Fails on words that
 * are no option, on a policy without prefix or scope, on values out of bounds, on values that
 * contradict mode=lock, and when there is no memory for a string. No error text contains a scope.
 */
#include "core/policy.h"

#include "base/error.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SECOND 1000
#define MINUTE (60 * SECOND)
#define DAY_S (24 * 3600)

#define ATTEMPTS_RETRY 5

/* True of every refusal; front doors add the specific reason. */
#define MESSAGE_DEFAULT "This request was refused, and was not passed on."

/* clang-format off */
static const struct idem_policy policy_presets[] = {
    /* 45 s: longer than the timeout of the page whose button was clicked twice. */
    [IDEM_PRESET_SUBMIT] = {.mode = IDEM_MODE_REPLAY, .ttl_s = 45, .wait_ms = 45 * SECOND},
    [IDEM_PRESET_API] = {.mode = IDEM_MODE_REPLAY, .ttl_s = DAY_S,
                         .on_failure = IDEM_ON_FAILURE_RELEASE},
    [IDEM_PRESET_PAYMENT] = {.mode = IDEM_MODE_REPLAY, .ttl_s = DAY_S,
                             .recover = IDEM_RECOVER_HOLD, .on_failure = IDEM_ON_FAILURE_KEEP},
    [IDEM_PRESET_QUEUE] = {.mode = IDEM_MODE_REJECT, .recover = IDEM_RECOVER_RERUN,
                           .on_failure = IDEM_ON_FAILURE_RETRY, .attempts = ATTEMPTS_RETRY,
                           .backoff_min_ms = SECOND, .backoff_max_ms = 5 * MINUTE},
    [IDEM_PRESET_JOB] = {.mode = IDEM_MODE_REJECT, .ttl_s = DAY_S},
};

/* Without `attempts`, whose default depends on on_failure. */
static const struct idem_policy policy_default = {
    .mode = IDEM_MODE_REPLAY,
    .key_kind = IDEM_KEY_LITERAL,
    .fingerprint = 1,
    .json_max = 1 << 20,
    .ttl_s = DAY_S,
    .hold_ttl_s = 30 * DAY_S,
    .lease_ms = 30 * SECOND,
    .run_max_ms = IDEM_NONE,
    .wait_ms = IDEM_NONE,
    .recover = IDEM_RECOVER_HOLD,
    .on_failure = IDEM_ON_FAILURE_RELEASE,
    .backoff_min_ms = SECOND,
    .backoff_max_ms = 5 * MINUTE,
    .on_duplicate = IDEM_ON_DUPLICATE_ERROR,
    .message = MESSAGE_DEFAULT,
    .on_store_error = IDEM_ON_STORE_ERROR_CLOSED,
    .result_max = 1 << 20,
    .finish_timeout_ms = 10 * SECOND,
    .token_ttl_s = 300,
};
/* clang-format on */

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

/* Layers. */

/* Lists every string that a layer owns. */
#define TEXTS 6
static void layer_texts(struct idem_layer *layer, const char **texts[TEXTS]) {
    texts[0] = &layer->policy.name;
    texts[1] = &layer->policy.prefix;
    texts[2] = &layer->policy.scope;
    texts[3] = &layer->policy.message;
    texts[4] = &layer->policy.key_expr;
    texts[5] = &layer->policy.fingerprint_expr;
}

int idem_policy_set(struct idem_layer *layer, const char *word, size_t word_len, const char *value,
                    size_t value_len, struct idem_error *err) {
    const struct idem_option *option = idem_option_find(word, word_len);
    char quoted[IDEM_QUOTE_TEXT], words[IDEM_OPTION_TEXT_MAX];

    if (option == NULL)
        return idem_error_set(err, IDEM_E_INVALID, "%s is no option; allowed: %s",
                              idem_error_quote(word, word_len, quoted, sizeof(quoted)),
                              idem_option_words(words, sizeof(words)));
    return idem_option_set(option, &layer->policy, value, value_len, err);
}

int idem_policy_copy(const struct idem_policy *policy, struct idem_layer *ret,
                     struct idem_error *err) {
    struct idem_layer copy = {.policy = *policy};
    const char **texts[TEXTS], *from[TEXTS];

    layer_texts(&copy, texts);
    for (size_t i = 0; i < TEXTS; i++) {
        from[i] = *texts[i];
        *texts[i] = NULL;
    }
    for (size_t i = 0; i < TEXTS; i++) {
        size_t size = from[i] == NULL ? 0 : strlen(from[i]) + 1;
        char *text = size == 0 ? NULL : malloc(size);

        if (size != 0 && text == NULL) {
            idem_policy_release(&copy);
            return idem_error_set(err, IDEM_E_NOMEM, "no memory for a policy");
        }
        if (text != NULL)
            *texts[i] = memcpy(text, from[i], size);
    }
    *ret = copy;
    return 0;
}

void idem_policy_release(struct idem_layer *layer) {
    const char **texts[TEXTS];

    layer_texts(layer, texts);
    for (size_t i = 0; i < TEXTS; i++)
        free((void *)*texts[i]);
    *layer = (struct idem_layer){0};
}

static void policy_fill(struct idem_policy *into, const struct idem_policy *layer) {
    for (const struct idem_option *o = idem_option_table; o->word != NULL; o++)
        idem_option_fill(o, into, layer);
    if (into->name == NULL)
        into->name = layer->name;
    if (into->key_fn == NULL)
        into->key_fn = layer->key_fn;
}

/* An expression implies the kind that it is for. */
static void policy_imply_kinds(struct idem_policy *policy) {
    if (policy->key_expr != NULL && policy->key_kind == 0)
        policy->key_kind = IDEM_KEY_EXPRESSION;
    if (policy->fingerprint_expr != NULL && policy->fingerprint == 0)
        policy->fingerprint = 1;
}

void idem_policy_merge(struct idem_policy *into, const struct idem_policy *layer) {
    struct idem_policy policy = *layer;
    bool first = into->preset == 0;

    policy_imply_kinds(&policy);
    policy_fill(into, &policy);
    if (first && layer->preset != 0 && (size_t)layer->preset < COUNT_OF(policy_presets))
        policy_fill(into, &policy_presets[layer->preset]);
}

/* Resolving and checking. */

#define POLICY_TEXT (IDEM_QUOTE_TEXT + 8)

/* The name of the policy in error texts. */
static const char *policy_describe(const struct idem_policy *policy, char *buf, size_t size) {
    char quoted[IDEM_QUOTE_TEXT];

    if (policy->name == NULL)
        return "policy";
    snprintf(buf, size, "policy %s",
             idem_error_quote(policy->name, strlen(policy->name), quoted, sizeof(quoted)));
    return buf;
}

static int policy_refuse_missing(const struct idem_policy *policy, struct idem_error *err) {
    char policy_name[POLICY_TEXT];

    if (policy->prefix == NULL)
        return idem_error_set(
            err, IDEM_E_INVALID,
            "%s: prefix is missing; it is put before every key and kept apart from the name, so "
            "that renaming an operation does not forget its keys; set one, as in prefix = order:",
            policy_describe(policy, policy_name, sizeof(policy_name)));
    return idem_error_set(
        err, IDEM_E_INVALID,
        "%s: scope is missing; it identifies the caller, so that one user's key never meets "
        "another's record; give a stable identity (user id, API key), or let all callers share one "
        "scope with scope = none (IDEM_SCOPE_NONE)",
        policy_describe(policy, policy_name, sizeof(policy_name)));
}

static int policy_check(const struct idem_policy *policy, struct idem_error *err) {
    char policy_name[POLICY_TEXT], text[IDEM_OPTION_TEXT_MAX], allowed[IDEM_OPTION_TEXT_MAX];
    const struct idem_option *o;
    const char *fault;

    if (policy->prefix == NULL || policy->scope == NULL)
        return policy_refuse_missing(policy, err);
    for (o = idem_option_table; o->word != NULL; o++) {
        fault = idem_option_fault(o, policy, text, sizeof(text));
        if (fault != NULL)
            return idem_error_set(err, IDEM_E_INVALID, "%s: %s %s; allowed: %s",
                                  policy_describe(policy, policy_name, sizeof(policy_name)),
                                  o->word, fault, idem_option_allowed(o, allowed, sizeof(allowed)));
    }
    return 0;
}

/*
 * mode=lock implies three more values. It overrules layers weaker than the one that sets it; a
 * different value in the same or a stronger layer is a mistake and is reported.
 */
static int policy_apply_lock(const struct idem_policy *const *layers, size_t n,
                             struct idem_policy *policy, struct idem_error *err) {
    const char *against = NULL;
    char policy_name[POLICY_TEXT];

    for (size_t i = 0; i < n && against == NULL; i++) {
        if (layers[i] == NULL)
            continue;
        if (layers[i]->recover == IDEM_RECOVER_HOLD)
            against = "recover=hold";
        else if (layers[i]->fingerprint > 0 || layers[i]->fingerprint_expr != NULL)
            against = "a fingerprint";
        else if (layers[i]->result_max > 0)
            against = "result_max";
        if (layers[i]->mode != 0)
            break;
    }
    if (against != NULL)
        return idem_error_set(
            err, IDEM_E_INVALID,
            "%s: %s contradicts mode=lock, which is one at a time only: it implies recover=rerun, "
            "no fingerprint and no result; leave it out, or choose mode=reject or mode=replay",
            policy_describe(policy, policy_name, sizeof(policy_name)), against);
    policy->recover = IDEM_RECOVER_RERUN;
    policy->fingerprint = IDEM_NONE;
    policy->fingerprint_expr = NULL;
    policy->result_max = IDEM_NONE;
    return 0;
}

/* Finds contradictions within one layer. */
static const char *policy_layer_contradiction(const struct idem_policy *layer) {
    if (layer->key_expr != NULL && layer->key_kind != 0 && layer->key_kind != IDEM_KEY_EXPRESSION)
        return "key_expr is set where key is not expression; leave one of them out";
    if (layer->fingerprint_expr != NULL && layer->fingerprint == IDEM_NONE)
        return "fingerprint_expr is set beside fingerprint = none; leave one of them out";
    return NULL;
}

static const char *policy_key_contradiction(const struct idem_policy *policy) {
    if (policy->key_kind == IDEM_KEY_EXPRESSION && policy->key_expr == NULL)
        return "key = expression needs the expression; set it, as in key_expr = \"#order.id\"";
    if (policy->key_kind == IDEM_KEY_PARAMETERS && strcmp(policy->scope, IDEM_SCOPE_NONE) != 0 &&
        strcmp(policy->scope, IDEM_SCOPE_CALLER) != 0)
        return "key = parameters is path, user and arguments, and a fixed scope names no user; use "
               "scope = caller, so that each call must bring one, or scope = none";
    return NULL;
}

/* Checks the options of keys and fingerprints, and applies their consequences. */
static int policy_apply_keys(const struct idem_policy *const *layers, size_t n,
                             struct idem_policy *policy, struct idem_error *err) {
    const char *against = NULL;
    char policy_name[POLICY_TEXT];

    for (size_t i = 0; i < n && against == NULL; i++)
        against = layers[i] == NULL ? NULL : policy_layer_contradiction(layers[i]);
    if (against == NULL)
        against = policy_key_contradiction(policy);
    if (against != NULL)
        return idem_error_set(err, IDEM_E_INVALID, "%s: %s",
                              policy_describe(policy, policy_name, sizeof(policy_name)), against);
    if (policy->key_kind != IDEM_KEY_EXPRESSION)
        policy->key_expr = NULL;
    if (policy->fingerprint == IDEM_NONE)
        policy->fingerprint_expr = NULL;
    return 0;
}

/* A key that is computed from the arguments needs no fingerprint, unless the policy asks for
   one. */
static bool policy_key_is_computed(const struct idem_policy *policy) {
    return policy->key_kind == IDEM_KEY_EXPRESSION || policy->key_kind == IDEM_KEY_PARAMETERS;
}

int idem_policy_resolve(const struct idem_policy *const *layers, size_t n, struct idem_policy *ret,
                        struct idem_error *err) {
    struct idem_policy policy = {0};
    bool compared;
    int rc;

    for (size_t i = 0; i < n; i++) {
        if (layers[i] != NULL)
            idem_policy_merge(&policy, layers[i]);
    }
    compared = policy.fingerprint != 0 || !policy_key_is_computed(&policy);
    idem_policy_merge(&policy, &policy_default);
    if (policy.attempts == 0)
        policy.attempts = policy.on_failure == IDEM_ON_FAILURE_RETRY ? ATTEMPTS_RETRY : IDEM_NONE;
    rc = policy_check(&policy, err);
    if (rc == 0)
        rc = policy_apply_keys(layers, n, &policy, err);
    if (rc == 0 && !compared)
        policy.fingerprint = 0;
    if (rc == 0 && policy.mode == IDEM_MODE_LOCK)
        rc = policy_apply_lock(layers, n, &policy, err);
    if (rc == 0)
        *ret = policy;
    return rc;
}
