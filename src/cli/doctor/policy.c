/*
 * Times that do not go together, and what a policy gives up: a table of rules. Pure, but for
 * reading a settings file.
 */
#include <string.h>

#include "cli/doctor/doctor.h"
#include "core/settings.h"
#include "core/units.h"

#define CLIENT_TIMEOUT_MS 60000
#define TTL_SHORT_MS (3600 * 1000)
#define HOLD_SHORT_MS (86400 * 1000)

struct patient {
    const struct idem_policy *policy;
    enum idem_preset preset;
    int64_t client_ms; /* how long a client waits for an answer */
    int64_t retry_ms;  /* over how long it asks again; 0: nobody has said */
    char text[200];    /* what a rule has found */
};

/* Each says whether it is so, and how. */

static const char *print(int64_t ms, char buf[IDEM_UNITS_TEXT]) {
    return idem_duration_print(ms, buf, IDEM_UNITS_TEXT);
}

static bool forgets_before_retries_end(struct patient *p) {
    char ttl[IDEM_UNITS_TEXT], span[IDEM_UNITS_TEXT];
    int64_t ttl_ms = p->policy->ttl_s * 1000;

    snprintf(p->text, sizeof(p->text), "ttl is %s, and clients ask again for %s",
             print(ttl_ms, ttl), print(p->retry_ms, span));
    return p->retry_ms != 0 && ttl_ms < p->retry_ms && p->policy->mode != IDEM_MODE_LOCK;
}

/* A button's preset is short on purpose. */
static bool forgets_before_the_client_gives_up(struct patient *p) {
    char ttl[IDEM_UNITS_TEXT], wait[IDEM_UNITS_TEXT];
    int64_t ttl_ms = p->policy->ttl_s * 1000;

    snprintf(p->text, sizeof(p->text), "ttl is %s, and clients wait for %s before they ask again",
             print(ttl_ms, ttl), print(p->client_ms, wait));
    return ttl_ms < p->client_ms && p->preset != IDEM_PRESET_SUBMIT &&
           p->policy->mode != IDEM_MODE_LOCK && p->retry_ms == 0;
}

static bool forgets_soon(struct patient *p) {
    char ttl[IDEM_UNITS_TEXT];
    int64_t ttl_ms = p->policy->ttl_s * 1000;

    snprintf(p->text, sizeof(p->text), "ttl is %s", print(ttl_ms, ttl));
    return ttl_ms < TTL_SHORT_MS && ttl_ms >= p->client_ms && p->retry_ms == 0 &&
           p->preset != IDEM_PRESET_SUBMIT && p->policy->mode != IDEM_MODE_LOCK;
}

static bool forgets_before_redelivery(struct patient *p) {
    char ttl[IDEM_UNITS_TEXT], least[IDEM_UNITS_TEXT];
    int64_t ttl_ms = p->policy->ttl_s * 1000,
            attempts = p->policy->attempts == IDEM_NONE ? 1 : p->policy->attempts,
            least_ms = attempts * (p->policy->backoff_max_ms + p->policy->lease_ms);

    snprintf(p->text, sizeof(p->text), "ttl is %s, and attempts, back-off and lease take up to %s",
             print(ttl_ms, ttl), print(least_ms, least));
    return p->policy->on_failure == IDEM_ON_FAILURE_RETRY && ttl_ms < least_ms;
}

static bool waits_longer_than_clients(struct patient *p) {
    char wait[IDEM_UNITS_TEXT], client[IDEM_UNITS_TEXT];

    snprintf(p->text, sizeof(p->text), "wait is %s, and clients give up after %s",
             print(p->policy->wait_ms, wait), print(p->client_ms, client));
    return p->policy->wait_ms != IDEM_NONE && p->policy->wait_ms >= p->client_ms;
}

static bool holds_briefly(struct patient *p) {
    char hold[IDEM_UNITS_TEXT];

    snprintf(p->text, sizeof(p->text), "hold_ttl is %s", print(p->policy->hold_ttl_s * 1000, hold));
    return p->policy->recover == IDEM_RECOVER_HOLD &&
           p->policy->hold_ttl_s * 1000 < HOLD_SHORT_MS && p->policy->mode != IDEM_MODE_LOCK;
}

static bool is_open(struct patient *p) {
    snprintf(p->text, sizeof(p->text), "on_store_error is open");
    return p->policy->on_store_error == IDEM_ON_STORE_ERROR_OPEN;
}

static bool pays_open(struct patient *p) {
    return is_open(p) && p->preset == IDEM_PRESET_PAYMENT;
}

static bool is_open_otherwise(struct patient *p) {
    return is_open(p) && p->preset != IDEM_PRESET_PAYMENT;
}

static bool reruns_payments(struct patient *p) {
    snprintf(p->text, sizeof(p->text), "recover is rerun");
    return p->preset == IDEM_PRESET_PAYMENT && p->policy->recover == IDEM_RECOVER_RERUN;
}

static const struct {
    bool (*is)(struct patient *p);
    enum doctor_grade grade;
    const char *check, *why, *todo;
} rules[] = {
    {forgets_before_retries_end, DOCTOR_UNSAFE, "ttl", "a late retry runs it a second time",
     "a ttl of at least the span of retries"},
    {forgets_before_the_client_gives_up, DOCTOR_UNSAFE, "ttl",
     "the first retry may come after it is forgotten, and runs it a second time",
     "a longer ttl, or --client-timeout, if clients give up earlier"},
    {forgets_soon, DOCTOR_NOTE, "ttl", "whoever asks again later runs it a second time",
     "compare it with how long clients retry (--retry-span)"},
    {forgets_before_redelivery, DOCTOR_UNSAFE, "redelivery",
     "a message may come again after it is forgotten, and is handled twice",
     "a longer ttl, fewer attempts or a shorter back-off"},
    {waits_longer_than_clients, DOCTOR_NOTE, "wait", "nobody is there any more to be answered",
     "a shorter wait, or --client-timeout, if clients are more patient"},
    {holds_briefly, DOCTOR_UNSAFE, "hold_ttl",
     "an uncertain run that nobody settles in that time may run a second time",
     "30d, the default, gives people time"},
    {pays_open, DOCTOR_UNSAFE, "store error",
     "while the store is away payments run unguarded, each retry anew", "on_store_error closed"},
    {is_open_otherwise, DOCTOR_NOTE, "store error",
     "while the store is away everything runs unguarded, each retry anew",
     "closed, where twice is worse than not at all"},
    {reruns_payments, DOCTOR_UNSAFE, "recover",
     "a payment whose run vanished may have happened, and runs again", "recover hold"},
};

void doctor_policy(struct doctor *d, const char *subject, const struct idem_policy *policy,
                   enum idem_preset preset) {
    struct patient patient = {.policy = policy,
                              .preset = preset,
                              .client_ms = d->values->client_timeout_ms != 0
                                               ? d->values->client_timeout_ms
                                               : CLIENT_TIMEOUT_MS,
                              .retry_ms = d->values->retry_span_ms};
    bool found = false;

    for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++) {
        if (!rules[i].is(&patient))
            continue;
        found = true;
        doctor_find(d, rules[i].grade, subject, rules[i].check, rules[i].todo, "%s: %s",
                    patient.text, rules[i].why);
    }
    if (!found)
        doctor_find(d, DOCTOR_OK, subject, "policy", NULL, "its times go together");
}

/* Settings. */

static void section_examine(struct doctor *d, const struct idem_settings *settings,
                            const struct idem_policy *section) {
    /* A front door would say them; here they are of no interest. */
    const struct idem_policy door = {.prefix = CLI_PREFIX, .scope = IDEM_SCOPE_NONE};
    const struct idem_policy *layers[] = {section, &settings->defaults.said, &door};
    struct idem_policy policy;
    struct idem_error err;
    char subject[100];

    snprintf(subject, sizeof(subject), "policy %s",
             section->name == NULL ? "[defaults]" : section->name);
    if (idem_policy_resolve(layers, 3, &policy, &err) == 0)
        doctor_policy(d, subject, &policy,
                      section->preset != 0 ? section->preset : settings->defaults.said.preset);
    else
        doctor_find(d, DOCTOR_BROKEN, subject, "policy", NULL, "%s", err.text);
}

int doctor_settings(struct doctor *d) {
    struct idem_settings *settings = NULL;
    int status = cli_settings(d->values, &settings);

    if (status != CLI_OK)
        return status;
    if (settings->count == 0)
        section_examine(d, settings, &settings->defaults.said);
    for (size_t i = 0; i < settings->count; i++)
        section_examine(d, settings, &settings->policies[i].said);
    idem_settings_free(settings);
    return CLI_OK;
}
