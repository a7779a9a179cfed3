/*
 * Guards: a policy merged with the settings and checked once, so that a call has little to do.
 * Fails on what idem_policy_resolve() refuses, and when there is no memory.
 */
#include "core/error.h"
#include "core/policy.h"
#include "core/settings.h"

#include <stdlib.h>

#define LAYERS_MAX (IDEM_GUARD__LAYERS + 1)

int idem_guard_with(const struct idem_guard *guard, const struct idem_policy *with,
                    struct idem_policy *ret_resolved, struct idem_error *err) {
    const struct idem_policy *layers[LAYERS_MAX] = {with};

    if (with == NULL) {
        *ret_resolved = guard->resolved;
        return 0;
    }
    for (size_t i = 0; i < IDEM_GUARD__LAYERS; i++)
        layers[i + 1] = &guard->layers[i].said;
    return idem_policy_resolve(layers, LAYERS_MAX, ret_resolved, err);
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
    /* Through the copies: what is resolved must not borrow from the caller. */
    if (rc == 0)
        rc = idem_guard_with(guard, &none, &guard->resolved, err);
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
    free(guard);
}

const struct idem_policy *idem_guard_policy(const struct idem_guard *guard) {
    return &guard->resolved;
}
