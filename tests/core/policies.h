/*
 * Policies in tests: setting a word, and resolving over a layer that has what is required.
 */
#ifndef IDEM_TEST_CORE_POLICIES_H
#define IDEM_TEST_CORE_POLICIES_H

#include "core/policy.h"
#include "test.h"

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

static struct idem_error err;

static inline int set(struct idem_layer *layer, const char *word, const char *value) {
    memset(&err, 0, sizeof(err));
    return idem_policy_set(layer, word, strlen(word), value, strlen(value), &err);
}

static inline void set_ok(struct idem_layer *layer, const char *word, const char *value) {
    if (set(layer, word, value) < 0)
        fprintf(stderr, "# %s = %s: %s\n", word, value, err.text);
    CHECK_INT(err.code, 0);
}

/* Resolves over a weakest layer that has what is required. */
static inline int resolve_n(const struct idem_policy *const *layers, size_t n,
                            struct idem_policy *ret) {
    const struct idem_policy base = {.prefix = "p:", .scope = IDEM_SCOPE_NONE};
    const struct idem_policy *all[8];

    for (size_t i = 0; i < n; i++)
        all[i] = layers[i];
    all[n] = &base;
    memset(&err, 0, sizeof(err));
    return idem_policy_resolve(all, n + 1, ret, &err);
}

static inline int resolve1(struct idem_policy a, struct idem_policy *ret) {
    return resolve_n((const struct idem_policy *const[]){&a}, 1, ret);
}

static inline int resolve2(struct idem_policy a, struct idem_policy b, struct idem_policy *ret) {
    return resolve_n((const struct idem_policy *const[]){&a, &b}, 2, ret);
}

static inline struct idem_policy resolved(struct idem_policy a) {
    struct idem_policy p;

    if (resolve1(a, &p) < 0)
        fprintf(stderr, "# %s\n", err.text);
    CHECK_INT(err.code, 0);
    return p;
}

#endif
