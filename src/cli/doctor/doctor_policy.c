/*
 * Examines policies by a table of rules: times that contradict each other, and risks that a policy
 * accepts. Pure, except that it reads a settings file.
 */
#include <string.h>

#include "base/units.h"
#include "cli/doctor/doctor.h"
#include "core/settings.h"

#define CLIENT_TIMEOUT_MS 60000
#define TTL_SHORT_MS (3600 * 1000)
#define HOLD_SHORT_MS (86400 * 1000)

struct examined {
    const struct idem_policy *policy;
    enum idem_preset preset;
    int64_t client_ms; /* how long a client waits for a response */
    int64_t retry_ms;  /* for how long clients retry; 0: not known */
    char text[200];    /* the finding of a rule */
};

/* The rules. Each returns true if its problem exists, and describes it in `text`. */

static const char *doctor_policy_duration_print(int64_t ms, char buf[IDEM_UNITS_TEXT]) {
    return idem_duration_print(ms, buf, IDEM_UNITS_TEXT);
}

static bool examined_forgets_before_retries_end(struct examined *p) {
    char ttl[IDEM_UNITS_TEXT], span[IDEM_UNITS_TEXT];
    int64_t ttl_ms = p->policy->ttl_s * 1000;

    snprintf(p->text, sizeof(p->text), "ttl is %s, and clients ask again for %s",
             doctor_policy_duration_print(ttl_ms, ttl),
             doctor_policy_duration_print(p->retry_ms, span));
    return p->retry_ms != 0 && ttl_ms < p->retry_ms && p->policy->mode != IDEM_MODE_LOCK;
}

/* The preset for buttons has a short ttl on purpose. */
static bool examined_forgets_before_client_gives_up(struct examined *p) {
    char ttl[IDEM_UNITS_TEXT], wait[IDEM_UNITS_TEXT];
    int64_t ttl_ms = p->policy->ttl_s * 1000;

    snprintf(p->text, sizeof(p->text), "ttl is %s, and clients wait for %s before they ask again",
             doctor_policy_duration_print(ttl_ms, ttl),
             doctor_policy_duration_print(p->client_ms, wait));
    return ttl_ms < p->client_ms && p->preset != IDEM_PRESET_SUBMIT &&
           p->policy->mode != IDEM_MODE_LOCK && p->retry_ms == 0;
}

static bool examined_forgets_soon(struct examined *p) {
    char ttl[IDEM_UNITS_TEXT];
    int64_t ttl_ms = p->policy->ttl_s * 1000;

    snprintf(p->text, sizeof(p->text), "ttl is %s", doctor_policy_duration_print(ttl_ms, ttl));
    return ttl_ms < TTL_SHORT_MS && ttl_ms >= p->client_ms && p->retry_ms == 0 &&
           p->preset != IDEM_PRESET_SUBMIT && p->policy->mode != IDEM_MODE_LOCK;
}

static bool examined_forgets_before_redelivery(struct examined *p) {
    char ttl[IDEM_UNITS_TEXT], least[IDEM_UNITS_TEXT];
    int64_t ttl_ms = p->policy->ttl_s * 1000,
            attempts = p->policy->attempts == IDEM_NONE ? 1 : p->policy->attempts,
            least_ms = attempts * (p->policy->backoff_max_ms + p->policy->lease_ms);

    snprintf(p->text, sizeof(p->text), "ttl is %s, and attempts, back-off and lease take up to %s",
             doctor_policy_duration_print(ttl_ms, ttl),
             doctor_policy_duration_print(least_ms, least));
    return p->policy->on_failure == IDEM_ON_FAILURE_RETRY && ttl_ms < least_ms;
}

static bool examined_waits_longer_than_clients(struct examined *p) {
    char wait[IDEM_UNITS_TEXT], client[IDEM_UNITS_TEXT];

    snprintf(p->text, sizeof(p->text), "wait is %s, and clients give up after %s",
             doctor_policy_duration_print(p->policy->wait_ms, wait),
             doctor_policy_duration_print(p->client_ms, client));
    return p->policy->wait_ms != IDEM_NONE && p->policy->wait_ms >= p->client_ms;
}

static bool examined_holds_briefly(struct examined *p) {
    char hold[IDEM_UNITS_TEXT];

    snprintf(p->text, sizeof(p->text), "hold_ttl is %s",
             doctor_policy_duration_print(p->policy->hold_ttl_s * 1000, hold));
    return p->policy->recover == IDEM_RECOVER_HOLD &&
           p->policy->hold_ttl_s * 1000 < HOLD_SHORT_MS && p->policy->mode != IDEM_MODE_LOCK;
}

static bool examined_is_open(struct examined *p) {
    snprintf(p->text, sizeof(p->text), "on_store_error is open");
    return p->policy->on_store_error == IDEM_ON_STORE_ERROR_OPEN;
}

static bool examined_pays_open(struct examined *p) {
    return examined_is_open(p) && p->preset == IDEM_PRESET_PAYMENT;
}

static bool examined_is_open_otherwise(struct examined *p) {
    return examined_is_open(p) && p->preset != IDEM_PRESET_PAYMENT;
}

static bool examined_reruns_payments(struct examined *p) {
    snprintf(p->text, sizeof(p->text), "recover is rerun");
    return p->preset == IDEM_PRESET_PAYMENT && p->policy->recover == IDEM_RECOVER_RERUN;
}

static const struct {
    bool (*is)(struct examined *p);
    enum doctor_grade grade;
    const char *check, *why, *todo;
} rules[] = {
    {examined_forgets_before_retries_end, DOCTOR_UNSAFE, "ttl",
     "a late retry runs it a second time", "a ttl of at least the span of retries"},
    {examined_forgets_before_client_gives_up, DOCTOR_UNSAFE, "ttl",
     "the first retry may come after it is forgotten, and runs it a second time",
     "a longer ttl, or --client-timeout, if clients give up earlier"},
    {examined_forgets_soon, DOCTOR_NOTE, "ttl", "a later retry runs it a second time",
     "compare it with how long clients retry (--retry-span)"},
    {examined_forgets_before_redelivery, DOCTOR_UNSAFE, "redelivery",
     "a message may come again after it is forgotten, and is handled twice",
     "a longer ttl, fewer attempts or a shorter back-off"},
    {examined_waits_longer_than_clients, DOCTOR_NOTE, "wait", "the client has given up by then",
     "a shorter wait, or --client-timeout, if clients are more patient"},
    {examined_holds_briefly, DOCTOR_UNSAFE, "hold_ttl",
     "an uncertain run that is not settled in that time may run a second time",
     "30d, the default, gives people time"},
    {examined_pays_open, DOCTOR_UNSAFE, "store error",
     "while the store is away payments run unguarded, each retry anew", "on_store_error closed"},
    {examined_is_open_otherwise, DOCTOR_NOTE, "store error",
     "while the store is away everything runs unguarded, each retry anew",
     "closed, where twice is worse than not at all"},
    {examined_reruns_payments, DOCTOR_UNSAFE, "recover",
     "a payment whose run vanished may have happened, and runs again", "recover hold"},
};

void doctor_policy(struct doctor *d, const char *subject, const struct idem_policy *policy,
                   enum idem_preset preset) {
    struct examined examined = {.policy = policy,
                                .preset = preset,
                                .client_ms = d->values->client_timeout_ms != 0
                                                 ? d->values->client_timeout_ms
                                                 : CLIENT_TIMEOUT_MS,
                                .retry_ms = d->values->retry_span_ms};
    bool found = false;

    for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++) {
        if (!rules[i].is(&examined))
            continue;
        found = true;
        doctor_find(d, rules[i].grade, subject, rules[i].check, rules[i].todo, "%s: %s",
                    examined.text, rules[i].why);
    }
    if (!found)
        doctor_find(d, DOCTOR_OK, subject, "policy", NULL, "its times go together");
}

/* Settings. */

static void doctor_section_examine(struct doctor *d, const struct idem_settings *settings,
                                   const struct idem_policy *section) {
    /* A front door would set these two; their values do not matter here. */
    const struct idem_policy door = {.prefix = CLI_PREFIX, .scope = IDEM_SCOPE_NONE};
    const struct idem_policy *layers[] = {section, &settings->defaults.policy, &door};
    struct idem_policy policy;
    struct idem_error err;
    char subject[100];

    snprintf(subject, sizeof(subject), "policy %s",
             section->name == NULL ? "[defaults]" : section->name);
    if (idem_policy_resolve(layers, 3, &policy, &err) == 0)
        doctor_policy(d, subject, &policy,
                      section->preset != 0 ? section->preset : settings->defaults.policy.preset);
    else
        doctor_find(d, DOCTOR_BROKEN, subject, "policy", NULL, "%s", err.text);
}

int doctor_settings(struct doctor *d) {
    struct idem_settings *settings = NULL;
    int status = cli_settings(d->values, &settings);

    if (status != CLI_OK)
        return status;
    if (settings->count == 0)
        doctor_section_examine(d, settings, &settings->defaults.policy);
    for (size_t i = 0; i < settings->count; i++)
        doctor_section_examine(d, settings, &settings->policies[i].policy);
    idem_settings_free(settings);
    return CLI_OK;
}
