/*
 * Policy: the layers it comes from, and the guard made of them. One option of it by its word is
 * option.h.
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
 * A preset fills what its layer leaves unsaid, before the next layer does. Only the strongest
 * preset counts: a policy that says `preset = api` under defaults that say `preset = queue` gets
 * nothing of queue.
 */
#ifndef IDEM_CORE_POLICY_H
#define IDEM_CORE_POLICY_H

#include "core/option.h"
#include "idem.h"

/* Layers. */

/* What one place says. Its strings are its own; it begins as zeros and ends with
   idem_policy_release(). */
struct idem_layer {
    struct idem_policy said;
};

/* Sets one option by its word; both are copied. A word said before is replaced. On failure,
   IDEM_E_INVALID with what is allowed or IDEM_E_NOMEM, the layer is untouched. */
int idem_policy_set(struct idem_layer *layer, const char *word, size_t word_len, const char *value,
                    size_t value_len, struct idem_error *err);

/* Makes *ret, which holds nothing yet, a copy that owns its strings. 0 or IDEM_E_NOMEM. */
int idem_policy_copy(const struct idem_policy *policy, struct idem_layer *ret,
                     struct idem_error *err);

/* Frees the strings; the layer is zeros again. */
void idem_policy_release(struct idem_layer *layer);

/* Fills what *into leaves unsaid from the next weaker layer and then from that layer's preset.
 *into begins as zeros and is given all layers in turn. Strings are borrowed. */
void idem_policy_merge(struct idem_policy *into, const struct idem_policy *layer);

/*
 * Merges the layers, strongest first (NULLs are skipped), fills in the defaults and checks the
 * whole. In *ret every field is said except `preset`, `name`, `key_fn` and the expressions;
 * `fingerprint` stays 0 where keys are computed and nobody says it; under mode=lock result_max is
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

/* Immutable once made. It keeps the layers apart so that a call's own values can be put before
   them, and owns every string. */
struct idem_guard {
    struct idem_layer layers[IDEM_GUARD__LAYERS];
    struct idem_policy resolved;
    struct idem_expr *key_expr, *fingerprint_expr; /* compiled; NULL where none is said */
};

/* idem_guard_new() for a front door: `settings` and `door`, the front door's own layer, may be
   NULL. All are copied. */
int idem_guard_make(const struct idem_settings *settings, const struct idem_policy *policy,
                    const struct idem_policy *door, struct idem_guard **ret,
                    struct idem_error *err);

/* The policy of one call: `with` (may be NULL) before the guard's. Its strings are borrowed from
   both. No allocation; fails only on what `with` says, which must not be an expression: those
   are compiled once. */
int idem_guard_with(const struct idem_guard *guard, const struct idem_policy *with,
                    struct idem_policy *ret_resolved, struct idem_error *err);

/* The settings that the handle was opened with, borrowed; NULL if none. Defined beside the
   handle. */
const struct idem_settings *idem_handle_settings(const struct idem *h);

#endif
