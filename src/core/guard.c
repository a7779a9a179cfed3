/*
 * Guards: a policy that is merged with the settings and checked once, with compiled expressions,
 * so that a call has little to do. Fails on a policy that idem_policy_resolve() refuses, on
 * expressions that do not compile, and when there is no memory.
 */
#include "base/error.h"
#include "core/policy.h"
#include "core/settings.h"
#include "expr/expr.h"

#include <stdlib.h>
#include <string.h>

#define LAYERS_MAX (IDEM_GUARD__LAYERS + 1)

int idem_guard_with(const struct idem_guard *guard, const struct idem_policy *with,
                    struct idem_policy *ret_resolved, struct idem_error *err) {
    const struct idem_policy *layers[LAYERS_MAX] = {with};

    if (with == NULL) {
        *ret_resolved = guard->resolved;
        return 0;
    }
    if (with->key_expr != NULL || with->fingerprint_expr != NULL)
        return idem_error_set(err, IDEM_E_INVALID,
                              "an expression is compiled once, with its guard: set key_expr and "
                              "fingerprint_expr in the policy, not in a call's own values");
    for (size_t i = 0; i < IDEM_GUARD__LAYERS; i++)
        layers[i + 1] = &guard->layers[i].policy;
    return idem_policy_resolve(layers, LAYERS_MAX, ret_resolved, err);
}

static int guard_compile(struct idem_guard *guard, struct idem_error *err) {
    const struct {
        const char *word, *text;
        struct idem_expr **expr;
    } all[] = {
        {"key_expr", guard->resolved.key_expr, &guard->key_expr},
        {"fingerprint_expr", guard->resolved.fingerprint_expr, &guard->fingerprint_expr},
    };
    struct idem_error why;
    int rc;

    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        if (all[i].text == NULL)
            continue;
        rc = idem_expr_compile_key(all[i].text, strlen(all[i].text), all[i].expr, &why);
        if (rc != 0)
            return idem_error_set(err, rc, "%s: %s", all[i].word, why.text);
    }
    return 0;
}

int idem_guard_make(const struct idem_settings *settings, const struct idem_policy *policy,
                    const struct idem_policy *door, struct idem_guard **ret,
                    struct idem_error *err) {
    const struct idem_policy *layers[IDEM_GUARD__LAYERS] = {
        [IDEM_GUARD_POLICY] = policy,
        [IDEM_GUARD_NAMED] = idem_settings_find(settings, policy->name),
        [IDEM_GUARD_DEFAULTS] = idem_settings_defaults(settings),
        [IDEM_GUARD_DOOR] = door,
    };
    struct idem_guard *guard = calloc(1, sizeof(*guard));
    const struct idem_policy none = {0};
    int rc = 0;

    if (guard == NULL)
        return idem_error_set(err, IDEM_E_NOMEM, "no memory for a guard");
    for (size_t i = 0; i < IDEM_GUARD__LAYERS && rc == 0; i++) {
        if (layers[i] != NULL)
            rc = idem_policy_copy(layers[i], &guard->layers[i], err);
    }
    /* From the copies: the resolved policy must not borrow from the caller. */
    if (rc == 0)
        rc = idem_guard_with(guard, &none, &guard->resolved, err);
    if (rc == 0)
        rc = guard_compile(guard, err);
    if (rc < 0) {
        idem_guard_free(guard);
        return rc;
    }
    *ret = guard;
    return 0;
}

int idem_guard_new(const struct idem *h, const struct idem_policy *policy, struct idem_guard **ret,
                   struct idem_error *err) {
    return idem_need(policy, err)
        ?: idem_need(ret, err)
        ?: idem_guard_make(idem_handle_settings(h), policy, NULL, ret, err);
}

void idem_guard_free(struct idem_guard *guard) {
    if (guard == NULL)
        return;
    for (size_t i = 0; i < IDEM_GUARD__LAYERS; i++)
        idem_policy_release(&guard->layers[i]);
    idem_expr_free(guard->key_expr);
    idem_expr_free(guard->fingerprint_expr);
    free(guard);
}

const struct idem_policy *idem_guard_policy(const struct idem_guard *guard) {
    return &guard->resolved;
}
