/*
 * Policy: the layers of a policy, and the guard made from them. option.h handles a single option.
 *
 * Precedence, strongest first:
 *
 *     the call's own (idem_args.with)
 *     the program's struct idem_policy
 *     [policy NAME] of the settings
 *     [defaults] of the settings
 *     the front door's own (`idem run`: prefix run:, scope none)
 *     the built-in defaults
 *
 * A preset fills the unset fields of its layer before the next layer does. Only the strongest
 * preset counts: a policy with `preset = api` under defaults with `preset = queue` gets nothing of
 * queue.
 */
#ifndef IDEM_CORE_POLICY_H
#define IDEM_CORE_POLICY_H

#include "core/option.h"
#include "idem.h"

/* Layers. */

/* The options set in one place. It owns its strings, begins as zeros and ends with
   idem_policy_release(). */
struct idem_layer {
    struct idem_policy policy;
};

/* Sets one option by its word; copies both. An earlier value is replaced. On failure
   (IDEM_E_INVALID with the allowed values, or IDEM_E_NOMEM) the layer is untouched. */
int idem_policy_set(struct idem_layer *layer, const char *word, size_t word_len, const char *value,
                    size_t value_len, struct idem_error *err);

/* Fills *ret, which must be empty, with a copy that owns its strings. 0 or IDEM_E_NOMEM. */
int idem_policy_copy(const struct idem_policy *policy, struct idem_layer *ret,
                     struct idem_error *err);

/* Frees the strings and sets the layer back to zeros. */
void idem_policy_release(struct idem_layer *layer);

/* Fills the unset fields of `into` from the next weaker layer, then from that layer's preset.
   It begins as zeros and receives all layers in turn. Strings are borrowed. */
void idem_policy_merge(struct idem_policy *into, const struct idem_policy *layer);

/*
 * Merges the layers, strongest first (NULLs are skipped), fills in the defaults and checks the
 * result. In *ret every field is set except `preset`, `name`, `key_fn` and the expressions;
 * `fingerprint` stays 0 if keys are computed and no layer sets it; under mode=lock result_max is
 * IDEM_NONE: no result is kept. Strings are borrowed from the layers. No allocation.
 */
int idem_policy_resolve(const struct idem_policy *const *layers, size_t n, struct idem_policy *ret,
                        struct idem_error *err);

/* Guards. */

enum idem_guard_layer {
    IDEM_GUARD_POLICY,
    IDEM_GUARD_NAMED,
    IDEM_GUARD_DEFAULTS,
    IDEM_GUARD_DOOR,
    IDEM_GUARD__LAYERS
};

/* Immutable once made. Keeps the layers apart, so that a call's own values can precede them,
   and owns every string. */
struct idem_guard {
    struct idem_layer layers[IDEM_GUARD__LAYERS];
    struct idem_policy resolved;
    struct idem_expr *key_expr, *fingerprint_expr; /* compiled; NULL if unset */
};

/* idem_guard_new() for a front door: `settings` and `door`, the front door's own layer, may be
   NULL. All are copied. */
int idem_guard_make(const struct idem_settings *settings, const struct idem_policy *policy,
                    const struct idem_policy *door, struct idem_guard **ret,
                    struct idem_error *err);

/* The policy of one call: `with` (may be NULL) precedes the guard's layers. Its strings are
   borrowed from both. No allocation. Fails only on values in `with`, which must not contain an
   expression: expressions are compiled once, with the guard. */
int idem_guard_with(const struct idem_guard *guard, const struct idem_policy *with,
                    struct idem_policy *ret_resolved, struct idem_error *err);

/* The settings of the handle, borrowed; NULL if there are none. Defined in handle.c. */
const struct idem_settings *idem_handle_settings(const struct idem *h);

#endif
