/*
 * The guards of an nginx configuration, each with what it inherits, by a table of rules; then the
 * stores that it names. What nginx refuses is a finding.
 */
#include <stdlib.h>
#include <string.h>

#include "cli/doctor/nginx.h"

#define STORES_MAX 32

/* What is found on the way. */
struct round {
    struct doctor *d;
    struct {
        const char *url;
        char prefix[IDEM_PREFIX_MAX + 1];
    } stores[STORES_MAX];
    size_t stores_n;
    unsigned guards, shown; /* locations that are guarded; that show what is counted */
    bool unlabelled;        /* told once */
};

static bool is_on(const char *value) {
    return value != NULL && strcmp(value, "off") != 0;
}

static bool authenticates(const struct nginx_scope *scope) {
    static const enum nginx_word words[] = {AUTH_BASIC, AUTH_REQUEST, AUTH_JWT, VERIFY_CLIENT};

    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        if (is_on(nginx_value(scope, words[i])))
            return true;
    return false;
}

/* Rules of a location that is guarded. */

static bool only_watches(const struct nginx_scope *scope) {
    const char *value = nginx_value(scope, ENFORCE);

    return value != NULL && (strcmp(value, "off") == 0 || strcmp(value, "0") == 0);
}

static bool watches_some(const struct nginx_scope *scope) {
    const char *value = nginx_value(scope, ENFORCE);

    return value != NULL && value[0] == '$';
}

static bool knows_users_and_mixes_them(const struct nginx_scope *scope) {
    const char *value = nginx_value(scope, SCOPE);

    return value != NULL && strcmp(value, "none") == 0 && authenticates(scope);
}

static bool scope_changes(const struct nginx_scope *scope) {
    static const char *const volatiles[] = {"$request_id", "$connection", "$remote_port",
                                            "$msec",       "$pid",        "$time_"};
    const char *value = nginx_value(scope, SCOPE);

    for (size_t i = 0; value != NULL && i < sizeof(volatiles) / sizeof(volatiles[0]); i++)
        if (strstr(value, volatiles[i]) != NULL)
            return true;
    return false;
}

static bool scope_is_refreshed(const struct nginx_scope *scope) {
    const char *value = nginx_value(scope, SCOPE);

    return value != NULL && strstr(value, "$http_authorization") != NULL;
}

static bool speaks_http_1_0(const struct nginx_scope *scope) {
    const char *value = nginx_value(scope, HTTP_VERSION);

    return scope->values[PROXY_PASS] != NULL && (value == NULL || strcmp(value, "1.0") == 0);
}

static const struct {
    bool (*is)(const struct nginx_scope *scope);
    enum doctor_grade grade;
    const char *check, *found, *todo;
} rules[] = {
    {only_watches, DOCTOR_UNSAFE, "enforce",
     "idem_enforce is off: verdicts are logged, and every request passes, each retry anew",
     "idem_enforce on, when the log shows what you expect"},
    {watches_some, DOCTOR_NOTE, "enforce",
     "idem_enforce goes by a variable: where that is empty, 0 or off nothing is guarded", NULL},
    {knows_users_and_mixes_them, DOCTOR_UNSAFE, "scope",
     "users are told apart and idem_scope is none: who chooses the same key gets another user's "
     "answer",
     "idem_scope $remote_user, or another stable identity"},
    {scope_changes, DOCTOR_UNSAFE, "scope",
     "idem_scope has a variable that is another with each request: no retry is ever recognised",
     "a stable identity: the user's id"},
    {scope_is_refreshed, DOCTOR_NOTE, "scope",
     "idem_scope is the Authorization header: a retry with a refreshed token is another user's, "
     "and runs a second time",
     "the user's id, out of the token"},
    {speaks_http_1_0, DOCTOR_NOTE, "upstream",
     "the backend is spoken to in HTTP/1.0: an answer without a length that is cut off looks "
     "whole, "
     "and is kept",
     "proxy_http_version 1.1"},
};

/* Layers from the innermost outwards; the preset that counts. */
static enum idem_preset policy_of(const struct nginx_scope *scope, struct idem_policy *ret,
                                  int *ret_rc) {
    const struct idem_policy *layers[NGINX_DEPTH_MAX];
    enum idem_preset preset = 0;
    struct idem_error err;
    size_t n = 0;

    for (; scope != NULL && n < NGINX_DEPTH_MAX; scope = scope->outer) {
        layers[n++] = &scope->layer.said;
        if (preset == 0)
            preset = scope->layer.said.preset;
    }
    *ret_rc = idem_policy_resolve(layers, n, ret, &err);
    return preset;
}

static void store_note(struct round *round, const struct nginx_scope *scope, const char *prefix) {
    const char *url = nginx_value(scope, STORE);

    for (size_t i = 0; url != NULL && i < round->stores_n; i++)
        if (strcmp(round->stores[i].url, url) == 0)
            return;
    if (url == NULL || round->stores_n == STORES_MAX)
        return;
    round->stores[round->stores_n].url = url;
    snprintf(round->stores[round->stores_n++].prefix, sizeof(round->stores[0].prefix), "%s",
             prefix == NULL ? "doctor:" : prefix);
}

static void guard_examine(struct round *round, const struct nginx_scope *scope,
                          const char *subject) {
    struct idem_policy policy;
    enum idem_preset preset;
    int rc;

    round->guards++;
    for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++)
        if (rules[i].is(scope))
            doctor_find(round->d, rules[i].grade, subject, rules[i].check, rules[i].todo, "%s",
                        rules[i].found);
    preset = policy_of(scope, &policy, &rc);
    store_note(round, scope, rc == 0 ? policy.prefix : NULL);
    if (rc != 0)
        return;
    doctor_policy(round->d, subject, &policy, preset);
    if (policy.recover == IDEM_RECOVER_HOLD && !round->unlabelled &&
        !is_on(nginx_value(scope, LABEL)) && !is_on(nginx_value(scope, PROBE))) {
        round->unlabelled = true;
        doctor_find(
            round->d, DOCTOR_NOTE, subject, "uncertain",
            "idem_probe, or idem_label with the order's number",
            "a run that vanishes is held until somebody settles it: without idem_probe that "
            "is a person, and without idem_label nobody knows which order it is");
    }
}

static void scope_examine(struct round *round, const struct nginx_scope *scope) {
    static const enum nginx_word others[] = {INTERNAL, TOKEN, JS, STATUS, ADMIN};
    const char *server = nginx_value(scope, SERVER_NAME);
    char subject[300];

    snprintf(subject, sizeof(subject), "nginx %.100s%s%.160s", server == NULL ? "" : server,
             server == NULL || server[0] == '\0' ? "" : " ", scope->location);
    round->shown += scope->values[STATUS] != NULL || scope->values[ADMIN] != NULL;
    if (scope->admin_all && !authenticates(scope) && nginx_value(scope, DENY) == NULL)
        doctor_find(round->d, DOCTOR_UNSAFE, subject, "idem_admin",
                    "idem_admin allow=ADDRESS, or auth_basic, auth_request, ssl_verify_client",
                    "everybody may settle and forget records here");
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
        if (scope->values[others[i]] != NULL)
            return;
    if (nginx_guarded(scope))
        guard_examine(round, scope, subject);
}

static void tree_examine(struct round *round, const struct nginx_tree *tree, const char *path) {
    for (const struct nginx_scope *scope = tree->first; scope != NULL; scope = scope->next)
        if (scope->location != NULL)
            scope_examine(round, scope);
    if (round->guards == 0)
        doctor_find(round->d, DOCTOR_UNSAFE, path, "guards", "idem or idem_preset in a location",
                    "no location is guarded");
    if (round->shown == 0)
        doctor_find(round->d, DOCTOR_NOTE, path, "metrics", "a location with idem_status",
                    "there is no idem_status: nobody sees uncertain runs pile up");
    for (size_t i = 0; i < round->stores_n; i++)
        doctor_store(round->d, round->stores[i].url, round->stores[i].prefix);
}

int doctor_nginx(struct doctor *d, const char *said) {
    struct round round = {.d = d};
    char *path = realpath(said, NULL), *text = NULL;
    struct nginx_tree tree;
    int status = CLI_OK;
    size_t len = 0;

    if (path == NULL) { /* nginx would look where it was installed */
        doctor_find(d, DOCTOR_BROKEN, said, "nginx", "name the file as it is", "%m");
        return CLI_OK;
    }
    text = nginx_dump(d, path, &len, &status);
    if (text != NULL) {
        if (nginx_tree_read(&tree, path, text, len) == 0) {
            tree_examine(&round, &tree, path);
        } else {
            cli_say("doctor: no memory");
            status = CLI_SYSTEM;
        }
        nginx_tree_release(&tree);
    }
    free(text);
    free(path);
    return status;
}
