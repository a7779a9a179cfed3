/*
 * Examines policies: times that contradict each other, and risks that a policy
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
    struct doctor *d;
    const char *subject;
    const struct idem_policy *policy;
    enum idem_preset preset;
    int64_t client_ms; /* how long a client waits for a response */
    int64_t retry_ms;  /* for how long clients retry; 0: not known */
};

/* A record is forgotten while its operation may still come again. */
static void examined_ttl(const struct examined *p) {
    int64_t ttl_ms = p->policy->ttl_s * 1000,
            attempts = p->policy->attempts == IDEM_NONE ? 1 : p->policy->attempts,
            least_ms = attempts * (p->policy->backoff_max_ms + p->policy->lease_ms);
    /* The preset for buttons has a short ttl on purpose. */
    bool guessed = p->retry_ms == 0 && p->preset != IDEM_PRESET_SUBMIT,
         keeps = p->policy->mode != IDEM_MODE_LOCK;
    char ttl[IDEM_UNITS_TEXT], span[IDEM_UNITS_TEXT], wait[IDEM_UNITS_TEXT], least[IDEM_UNITS_TEXT];

    idem_duration_print(ttl_ms, ttl, sizeof(ttl));
    if (keeps && p->retry_ms != 0 && ttl_ms < p->retry_ms)
        doctor_find(p->d, DOCTOR_UNSAFE, p->subject, "ttl", "a ttl of at least the span of retries",
                    "ttl is %s, and clients ask again for %s: a late retry runs it a second time",
                    ttl, idem_duration_print(p->retry_ms, span, sizeof(span)));
    if (keeps && guessed && ttl_ms < p->client_ms)
        doctor_find(p->d, DOCTOR_UNSAFE, p->subject, "ttl",
                    "a longer ttl, or --client-timeout, if clients give up earlier",
                    "ttl is %s, and clients wait for %s before they ask again: the first retry may "
                    "come after it is forgotten, and runs it a second time",
                    ttl, idem_duration_print(p->client_ms, wait, sizeof(wait)));
    if (keeps && guessed && ttl_ms >= p->client_ms && ttl_ms < TTL_SHORT_MS)
        doctor_find(p->d, DOCTOR_NOTE, p->subject, "ttl",
                    "compare it with how long clients retry (--retry-span)",
                    "ttl is %s: a later retry runs it a second time", ttl);
    if (p->policy->on_failure == IDEM_ON_FAILURE_RETRY && ttl_ms < least_ms)
        doctor_find(p->d, DOCTOR_UNSAFE, p->subject, "redelivery",
                    "a longer ttl, fewer attempts or a shorter back-off",
                    "ttl is %s, and attempts, back-off and lease take up to %s: a message may come "
                    "again after it is forgotten, and is handled twice",
                    ttl, idem_duration_print(least_ms, least, sizeof(least)));
}

static void examined_times(const struct examined *p) {
    char wait[IDEM_UNITS_TEXT], client[IDEM_UNITS_TEXT], hold[IDEM_UNITS_TEXT];
    int64_t hold_ms = p->policy->hold_ttl_s * 1000;

    if (p->policy->wait_ms != IDEM_NONE && p->policy->wait_ms >= p->client_ms)
        doctor_find(p->d, DOCTOR_NOTE, p->subject, "wait",
                    "a shorter wait, or --client-timeout, if clients are more patient",
                    "wait is %s, and clients give up after %s: the client has given up by then",
                    idem_duration_print(p->policy->wait_ms, wait, sizeof(wait)),
                    idem_duration_print(p->client_ms, client, sizeof(client)));
    if (p->policy->recover == IDEM_RECOVER_HOLD && hold_ms < HOLD_SHORT_MS &&
        p->policy->mode != IDEM_MODE_LOCK)
        doctor_find(p->d, DOCTOR_UNSAFE, p->subject, "hold_ttl",
                    "30d, the default, gives people time",
                    "hold_ttl is %s: an uncertain run that is not settled in that time may run a "
                    "second time",
                    idem_duration_print(hold_ms, hold, sizeof(hold)));
}

static void examined_risks(const struct examined *p) {
    bool open = p->policy->on_store_error == IDEM_ON_STORE_ERROR_OPEN,
         pays = p->preset == IDEM_PRESET_PAYMENT;
    const struct doctor_rule rules[] = {
        {open && pays, DOCTOR_UNSAFE, "store error",
         "on_store_error is open: while the store is away payments run unguarded, each retry anew",
         "on_store_error closed"},
        {open && !pays, DOCTOR_NOTE, "store error",
         "on_store_error is open: while the store is away everything runs unguarded, each retry "
         "anew",
         "closed, where twice is worse than not at all"},
        {pays && p->policy->recover == IDEM_RECOVER_RERUN, DOCTOR_UNSAFE, "recover",
         "recover is rerun: a payment whose run vanished may have happened, and runs again",
         "recover hold"},
    };

    DOCTOR_FIND_ALL(p->d, p->subject, rules);
}

void doctor_policy(struct doctor *d, const char *subject, const struct idem_policy *policy,
                   enum idem_preset preset) {
    const struct cli_values *values = d->values;
    struct examined examined = {
        .d = d,
        .subject = subject,
        .policy = policy,
        .preset = preset,
        .client_ms = values->client_timeout_ms != 0 ? values->client_timeout_ms : CLIENT_TIMEOUT_MS,
        .retry_ms = values->retry_span_ms,
    };
    unsigned before = d->counts[DOCTOR_NOTE] + d->counts[DOCTOR_UNSAFE];

    examined_ttl(&examined);
    examined_times(&examined);
    examined_risks(&examined);
    if (d->counts[DOCTOR_NOTE] + d->counts[DOCTOR_UNSAFE] == before)
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
