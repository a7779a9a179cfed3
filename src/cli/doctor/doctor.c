/*
 * `idem doctor`: examines a setup, and reports unsafe settings before a customer suffers from them.
 * Fails with status 78 if something is unsafe or broken, and 64 on a usage error.
 */
#include "cli/doctor/doctor.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "json/json_out.h"

#define PREFIX "doctor:"

static const char *const grades[DOCTOR_GRADES] = {"ok", "note", "unsafe", "broken"};

void doctor_find(struct doctor *d, enum doctor_grade grade, const char *subject, const char *check,
                 const char *todo, const char *fmt, ...) {
    char text[900], clean[900], clean_subject[900];
    struct json_out json = {.out = stdout};
    va_list args;

    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    d->counts[grade]++;
    if (d->values->json) {
        json_out_open(&json, NULL);
        json_out_text(&json, "grade", grades[grade]);
        json_out_text(&json, "subject", subject);
        json_out_text(&json, "check", check);
        json_out_text(&json, "found", text);
        if (todo != NULL)
            json_out_text(&json, "do", todo);
        json_out_line(&json);
        return;
    }
    cli_printable(text, clean, sizeof(clean));
    printf("%-6s  %s: %s: %s", grades[grade],
           cli_printable(subject, clean_subject, sizeof(clean_subject)), check, clean);
    if (todo != NULL)
        printf("; to do: %s", cli_printable(todo, text, sizeof(text)));
    putchar('\n');
}

void doctor_find_all(struct doctor *d, const char *subject, const struct doctor_rule *rules,
                     size_t n) {
    for (size_t i = 0; i < n; i++)
        if (rules[i].applies)
            doctor_find(d, rules[i].grade, subject, rules[i].check, rules[i].todo, "%s",
                        rules[i].found);
}

/* Prints the last line, for people; returns the exit status. */
static int doctor_sum(const struct doctor *d) {
    unsigned bad = d->counts[DOCTOR_UNSAFE] + d->counts[DOCTOR_BROKEN];
    int status;

    if (!d->values->json)
        printf("%u broken, %u unsafe, %u to be known, %u in order\n", d->counts[DOCTOR_BROKEN],
               d->counts[DOCTOR_UNSAFE], d->counts[DOCTOR_NOTE], d->counts[DOCTOR_OK]);
    status = cli_flush();
    return status != CLI_OK ? status : bad != 0 ? CLI_CONFIG : CLI_OK;
}

/* A store is examined if --store names one, or if there is nothing else to examine. */
static int doctor_store_examine(struct doctor *d) {
    const struct cli_values *values = d->values;
    const char *prefix = values->layer.policy.prefix;
    int status = CLI_OK;
    char *url;

    if (values->store == NULL && (values->nginx_config != NULL || values->config != NULL))
        return CLI_OK;
    url = cli_store_url_given(values, &status);
    if (url != NULL)
        doctor_store(d, url, prefix == NULL ? PREFIX : prefix);
    free(url);
    return status;
}

static int doctor_run(const struct cli_values *values) {
    struct doctor d = {.values = values};
    int status;

    status = doctor_store_examine(&d);
    if (status == CLI_OK && values->config != NULL)
        status = doctor_settings(&d);
    if (status == CLI_OK && values->nginx_config != NULL)
        status = doctor_nginx(&d, values->nginx_config);
    return status != CLI_OK ? status : doctor_sum(&d);
}

static const char *const doctor_options[] = {
    "store",      "nginx-config", "nginx-exe", "config", "client-timeout",
    "retry-span", "prefix",       "json",      "help",   NULL,
};

/* clang-format off */
static const struct cli_policy_help doctor_help[] = {
    {"prefix", "TEXT", "of the record that is written as a trial\n"
                       "(" PREFIX ")"},
    {NULL, NULL, NULL},
};
/* clang-format on */

const struct cli_command cli_doctor = {
    .name = "doctor",
    .summary = "examine a set-up, and report what is unsafe in it",
    .synopsis = "[--store URL] [--nginx FILE] [--config FILE] [OPTIONS]",
    .text =
        "Looks at a store (is it reached, how fast, by which clock; what may it lose, evict or\n"
        "show to others; may it be written to), at the guards of an nginx configuration and\n"
        "their stores, and at the policies of a settings file. Each finding is a line: ok,\n"
        "note, unsafe or broken, what was found and what to do. It writes one record, under\n"
        "a prefix of its own, and forgets it again.\n",
    .after = "Exit status: 0 nothing is unsafe or broken, 78 something is.\n\n"
             "  idem doctor --store redis://10.0.0.7\n"
             "  idem doctor --nginx /etc/nginx/nginx.conf --retry-span 72h\n",
    .no_operand = "takes no operand; name the store with --store URL",
    .options = doctor_options,
    .policy_help = doctor_help,
    .run = doctor_run,
};
