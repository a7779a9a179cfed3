/*
 * Settings: the content of idem.conf, as layers for guards. The public part is in idem.h.
 *
 *     # Comments stand on lines of their own.
 *     [defaults]
 *     scope = none
 *
 *     [policy create-order]
 *     prefix  = order:
 *     ttl     = 24h
 *     message = "Order \"in progress\""
 */
#ifndef IDEM_CORE_SETTINGS_H
#define IDEM_CORE_SETTINGS_H

#include "core/policy.h"

#define IDEM_SETTINGS_FILE_MAX (1u << 20)
#define IDEM_SETTINGS_LINE_MAX 8192
#define IDEM_SETTINGS_NAME_MAX 64
#define IDEM_SETTINGS_POLICIES_MAX 1024

struct idem_settings {
    struct idem_layer defaults;
    struct idem_layer *policies; /* each with its name, in the file's order */
    size_t count;
};

/* The section [policy NAME], borrowed; NULL if there is none. Both arguments may be NULL. */
const struct idem_policy *idem_settings_find(const struct idem_settings *settings,
                                             const char *name);

/* The section [defaults], borrowed; NULL without settings. */
const struct idem_policy *idem_settings_defaults(const struct idem_settings *settings);

/* A copy, which the caller frees with idem_settings_free(). NULL copies to NULL. */
int idem_settings_copy(const struct idem_settings *settings, struct idem_settings **ret,
                       struct idem_error *err);

#endif
