/*
 * The settings parser: any bytes become either settings, whose every layer can
 * be read, copied and printed and whose words are within their bounds, or an
 * error that names the line, with the result untouched.
 */
#include "base/units.h"
#include "core/settings.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MUST(cond)                                                                                 \
    do {                                                                                           \
        if (!(cond))                                                                               \
            abort();                                                                               \
    } while (0)

/* With names and texts of its own, any layer must resolve, or the error must give the reason. */
static void layer_check(const struct idem_policy *layer) {
    const struct idem_policy base = {.prefix = "fuzz:", .scope = IDEM_SCOPE_NONE};
    const struct idem_policy *layers[] = {layer, &base};
    char text[IDEM_OPTION_TEXT_MAX];
    struct idem_policy resolved;
    struct idem_error err;
    int rc;

    for (const struct idem_option *o = idem_option_table; o->word != NULL; o++)
        MUST(strlen(idem_option_print(o, layer, text, sizeof(text))) < sizeof(text));
    rc = idem_policy_resolve(layers, 2, &resolved, &err);
    /* Each value is within its bounds, so that only mode=lock can be contradicted. */
    MUST(rc == 0 || (rc == IDEM_E_INVALID && strstr(err.text, "contradicts mode=lock") != NULL));
    MUST(rc < 0 || resolved.lease_ms >= 100);
    MUST(rc < 0 || resolved.backoff_min_ms <= resolved.backoff_max_ms);
}

static void settings_check(const struct idem_settings *settings) {
    const struct idem_policy *defaults = idem_settings_defaults(settings), *policy;

    MUST(defaults != NULL && defaults->name == NULL && defaults->prefix == NULL);
    layer_check(defaults);
    for (size_t i = 0; i < settings->count; i++) {
        policy = &settings->policies[i].policy;
        MUST(policy->name != NULL && idem_settings_find(settings, policy->name) == policy);
        layer_check(policy);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct idem_settings *const untouched = (struct idem_settings *)&data;
    struct idem_settings *settings = untouched, *copy = NULL;
    struct idem_error err = {0};
    int rc;

    rc = idem_settings_parse("f", (const char *)data, size, &settings, &err);
    if (rc < 0) {
        MUST(settings == untouched && err.code == rc);
        MUST(rc == IDEM_E_NOMEM || strncmp(err.text, "f:", 2) == 0);
        MUST(idem_utf8_valid(err.text, strlen(err.text)));
        return 0;
    }
    MUST(settings != untouched && err.code == 0);
    settings_check(settings);
    MUST(idem_settings_copy(settings, &copy, &err) == 0);
    idem_settings_free(settings);
    settings_check(copy);
    idem_settings_free(copy);
    return 0;
}
