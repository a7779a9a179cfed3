/*
 * Examines the guards of an nginx configuration by a table of rules, each guard with the settings
 * that it inherits; then the stores that it names. A configuration that nginx refuses is a finding.
 */
#include <grp.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/doctor/doctor_nginx.h"

#define STORES_MAX 32

/* The results so far. */
struct inspection {
    struct doctor *d;
    struct {
        const char *url;
        char prefix[IDEM_PREFIX_MAX + 1];
    } stores[STORES_MAX];
    size_t stores_n;
    unsigned guards, shown; /* guarded locations; locations that show metrics */
    bool unlabelled;        /* the finding about labels was reported */
    bool stores_cut;        /* there are more than STORES_MAX */
};

static bool doctor_nginx_is_on(const char *value) {
    return value != NULL && strcmp(value, "off") != 0;
}

/* True if users are authenticated here. */
static bool nginx_scope_authenticates(const struct nginx_scope *scope) {
    static const enum nginx_word words[] = {AUTH_BASIC, AUTH_REQUEST, AUTH_JWT, VERIFY_CLIENT};

    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        if (doctor_nginx_is_on(nginx_value(scope, words[i])))
            return true;
    return false;
}

static bool nginx_scope_value_is(const struct nginx_scope *scope, enum nginx_word word,
                                 const char *what) {
    const char *value = nginx_value(scope, word);

    return value != NULL && strcmp(value, what) == 0;
}

/* True if only known addresses or certificates are let in. Values of ssl_verify_client other than
   `on` also admit clients without a certificate. */
static bool nginx_scope_is_restricted(const struct nginx_scope *scope) {
    return nginx_scope_value_is(scope, VERIFY_CLIENT, "on") ||
           (nginx_access(scope) == ACCESS_CLOSED && !nginx_scope_value_is(scope, SATISFY, "any"));
}

/* True if clients are let in without any check. */
static bool nginx_scope_is_public(const struct nginx_scope *scope) {
    bool asked = doctor_nginx_is_on(nginx_value(scope, AUTH_BASIC)) ||
                 doctor_nginx_is_on(nginx_value(scope, AUTH_REQUEST)) ||
                 doctor_nginx_is_on(nginx_value(scope, AUTH_JWT));

    if (nginx_scope_is_restricted(scope) || nginx_access(scope) == ACCESS_CLOSED)
        return false;
    return !asked ||
           (nginx_scope_value_is(scope, SATISFY, "any") && nginx_access(scope) == ACCESS_ALL);
}

/* Rules of a location that is guarded. */

/* True for variables that any client may set. */
static bool doctor_nginx_is_from_client(const char *name) {
    static const char *const sent[] = {"http_*",       "arg_*",          "cookie_*", "args",
                                       "query_string", "request_uri",    "request",  "request_body",
                                       "content_type", "content_length", "host",     NULL};

    return nginx_name_fits(name, sent);
}

static bool doctor_nginx_is_volatile(const char *name) {
    static const char *const volatiles[] = {
        "request_id",         "request_time",        "connection*", "remote_port", "msec",
        "realip_remote_port", "proxy_protocol_port", "pid",         "time_*",      NULL};

    return nginx_name_fits(name, volatiles);
}

static bool doctor_nginx_is_authorization(const char *name) {
    static const char *const names[] = {"http_authorization", NULL};

    return nginx_name_fits(name, names);
}

/* True for a value that a client can claim for another user. A secret is no such value: a client
   cannot know another user's. */
static bool doctor_nginx_is_claimable(const char *name) {
    static const char *const
        claims[] = {"http_*",       "arg_*",        "cookie_*",    "args",
                    "query_string", "request_body", "proxy_add_*", NULL},
        *const secrets[] = {"http_authorization", "http_cookie", "*token*", "*sess*", "*secret*",
                            "*api_key*",          "*apikey*",    "*sid",    "*jwt*",  NULL};

    return nginx_name_fits(name, claims) && !nginx_name_fits(name, secrets);
}

/* nginx takes this name from the request; only auth_basic checks the password beside it. */
static bool doctor_nginx_is_user(const char *name) {
    static const char *const names[] = {"remote_user", NULL};

    return nginx_name_fits(name, names);
}

/* True for a part of the request's address: it names a service, and no caller. */
static bool doctor_nginx_is_address(const char *name) {
    static const char *const names[] = {"host",        "uri",     "document_uri",
                                        "request_uri", "request", NULL};

    return nginx_name_fits(name, names);
}

static bool doctor_nginx_is_no_address(const char *name) {
    return !doctor_nginx_is_address(name);
}

static bool doctor_nginx_is_certificate(const char *name) {
    static const char *const names[] = {"ssl_client_s_dn*", "ssl_client_i_dn*", "ssl_client_*cert",
                                        "ssl_client_serial", NULL};

    return nginx_name_fits(name, names);
}

/* True if each client has shown the password of its user name. nginx checks none without a file,
   and a realm that is a variable may be `off`. Under `satisfy any` another check may suffice. */
static bool nginx_scope_proves_user(const struct nginx_scope *scope) {
    const char *realm = nginx_value(scope, AUTH_BASIC);
    bool others = nginx_access(scope) != ACCESS_UNSAID ||
                  doctor_nginx_is_on(nginx_value(scope, AUTH_REQUEST)) ||
                  doctor_nginx_is_on(nginx_value(scope, AUTH_JWT));

    return doctor_nginx_is_on(realm) && strchr(realm, '$') == NULL &&
           nginx_value(scope, AUTH_BASIC_FILE) != NULL &&
           (!nginx_scope_value_is(scope, SATISFY, "any") || !others);
}

static void inspection_rules_examine(const struct inspection *inspection,
                                     const struct nginx_scope *scope, const char *subject) {
    const char *enforce = nginx_value(scope, ENFORCE), *version = nginx_value(scope, HTTP_VERSION),
               *identity = nginx_value(scope, SCOPE) ?: "";
    bool off = enforce != NULL && (strcmp(enforce, "off") == 0 || strcmp(enforce, "0") == 0),
         chosen = enforce != NULL && nginx_names(scope, enforce, true, doctor_nginx_is_from_client),
         claimable = nginx_names(scope, identity, false, doctor_nginx_is_claimable),
         unproven = nginx_names(scope, identity, true, doctor_nginx_is_user) &&
                    !nginx_scope_proves_user(scope),
         shared = nginx_names(scope, identity, false, doctor_nginx_is_address) &&
                  !nginx_names(scope, identity, false, doctor_nginx_is_no_address),
         delegated = unproven && doctor_nginx_is_on(nginx_value(scope, AUTH_REQUEST));
    const struct doctor_rule rules[] = {
        {off, DOCTOR_UNSAFE, "enforce",
         "idem_enforce is off: verdicts are logged, and every request passes, each retry anew",
         "idem_enforce on, when the log shows what you expect"},
        {chosen, DOCTOR_UNSAFE, "enforce",
         "idem_enforce depends on what the client sends: every client can switch the guard off",
         "a variable that no client chooses"},
        {enforce != NULL && enforce[0] == '$' && !chosen, DOCTOR_NOTE, "enforce",
         "idem_enforce goes by a variable: where that is empty, 0 or off nothing is guarded", NULL},
        {nginx_scope_value_is(scope, SCOPE, "none") && nginx_scope_authenticates(scope),
         DOCTOR_UNSAFE, "scope",
         "users are identified and idem_scope is none: a user who chooses the same key gets "
         "another user's response",
         "idem_scope with the identity that was checked: $remote_user under auth_basic, "
         "$ssl_client_s_dn under ssl_verify_client"},
        {nginx_names(scope, identity, false, doctor_nginx_is_volatile), DOCTOR_UNSAFE, "scope",
         "idem_scope has a variable that is another with each request: no retry is ever recognised",
         "a stable identity: the user's id"},
        {nginx_names(scope, identity, false, doctor_nginx_is_authorization), DOCTOR_NOTE, "scope",
         "idem_scope is the Authorization header: a retry with a refreshed token is another "
         "user's, and runs a second time",
         "the user's id, out of the token"},
        {claimable && !nginx_scope_is_restricted(scope), DOCTOR_UNSAFE, "scope",
         "idem_scope is a name that any client may send: a client that sends another's name and "
         "key gets that response",
         "an identity that was checked: $remote_user under auth_basic, $ssl_client_s_dn under "
         "ssl_verify_client; or let none in but the proxy that sets it: allow ADDRESS; deny all"},
        {unproven && !delegated && !nginx_scope_is_restricted(scope), DOCTOR_UNSAFE, "scope",
         "idem_scope is $remote_user, and no auth_basic checks the password: a client can send "
         "any name, and gets that user's response",
         "auth_basic and auth_basic_user_file in this location; or another identity that was "
         "checked"},
        {shared, DOCTOR_UNSAFE, "scope",
         "idem_scope is a part of the request's address: all callers share it, and a caller who "
         "chooses the same key gets another's response",
         "an identity that was checked beside it: $remote_user under auth_basic"},
        {delegated, DOCTOR_NOTE, "scope",
         "idem_scope is $remote_user, and auth_request decides: the service behind it must check "
         "the password of that name",
         NULL},
        {nginx_names(scope, identity, false, doctor_nginx_is_certificate) &&
             nginx_scope_value_is(scope, VERIFY_CLIENT, "optional_no_ca"),
         DOCTOR_UNSAFE, "scope",
         "idem_scope is the client's certificate, and ssl_verify_client optional_no_ca checks "
         "none: a client can make one with any name",
         "ssl_verify_client on, or optional"},
        {(claimable || (unproven && !delegated)) && nginx_scope_is_restricted(scope), DOCTOR_NOTE,
         "scope",
         "idem_scope is a name that the proxy before this server sends: it must set the name "
         "itself, and drop the one that a client sends",
         NULL},
        {nginx_value(scope, PROXY_PASS) != NULL && (version == NULL || strcmp(version, "1.0") == 0),
         DOCTOR_NOTE, "upstream",
         "the backend is spoken to in HTTP/1.0: a response without a length that is cut off looks "
         "whole, and is kept",
         "proxy_http_version 1.1"},
    };

    DOCTOR_FIND_ALL(inspection->d, subject, rules);
}

/* Merges the layers from the innermost outwards; returns the preset that counts. */
static enum idem_preset nginx_scope_policy(const struct nginx_scope *scope, struct idem_policy *ret,
                                           int *ret_rc) {
    const struct idem_policy *layers[NGINX_DEPTH_MAX];
    enum idem_preset preset = 0;
    struct idem_error err;
    size_t n = 0;

    for (; scope != NULL && n < NGINX_DEPTH_MAX; scope = scope->outer) {
        layers[n++] = &scope->layer.policy;
        if (preset == 0)
            preset = scope->layer.policy.preset;
    }
    *ret_rc = idem_policy_resolve(layers, n, ret, &err);
    return preset;
}

static void inspection_store_add(struct inspection *inspection, const struct nginx_scope *scope,
                                 const char *prefix) {
    const char *url = nginx_value(scope, STORE);

    for (size_t i = 0; url != NULL && i < inspection->stores_n; i++)
        if (strcmp(inspection->stores[i].url, url) == 0)
            return;
    inspection->stores_cut |= url != NULL && inspection->stores_n == STORES_MAX;
    if (url == NULL || inspection->stores_n == STORES_MAX)
        return;
    inspection->stores[inspection->stores_n].url = url;
    snprintf(inspection->stores[inspection->stores_n++].prefix,
             sizeof(inspection->stores[0].prefix), "%s", prefix == NULL ? "doctor:" : prefix);
}

static void inspection_guard_examine(struct inspection *inspection, const struct nginx_scope *scope,
                                     const char *subject) {
    struct idem_policy policy;
    enum idem_preset preset;
    int rc;

    inspection->guards++;
    inspection_rules_examine(inspection, scope, subject);
    preset = nginx_scope_policy(scope, &policy, &rc);
    inspection_store_add(inspection, scope, rc == 0 ? policy.prefix : NULL);
    if (rc != 0)
        return;
    doctor_policy(inspection->d, subject, &policy, preset);
    if (policy.recover == IDEM_RECOVER_HOLD && !inspection->unlabelled &&
        !doctor_nginx_is_on(nginx_value(scope, LABEL)) &&
        !doctor_nginx_is_on(nginx_value(scope, PROBE))) {
        inspection->unlabelled = true;
        doctor_find(inspection->d, DOCTOR_NOTE, subject, "uncertain",
                    "idem_probe, or idem_label with the order's number",
                    "a run that vanishes is held until it is settled: without idem_probe by a "
                    "person, who without idem_label cannot see which order it is");
    }
}

/* Examines an `if` within a guarded location that switches the guard off. */
static void inspection_exception_examine(struct inspection *inspection,
                                         const struct nginx_scope *scope, const char *subject) {
    if (nginx_names(scope, scope->condition, true, doctor_nginx_is_from_client))
        doctor_find(inspection->d, DOCTOR_UNSAFE, subject, "guard",
                    "a condition that no client chooses, or a location of its own",
                    "idem is off depending on what the client sends: every client can switch the "
                    "guard off");
    else
        doctor_find(inspection->d, DOCTOR_NOTE, subject, "guard", NULL,
                    "idem is off here: every request passes, each retry anew");
}

static void inspection_scope_examine(struct inspection *inspection,
                                     const struct nginx_scope *scope) {
    static const enum nginx_word others[] = {INTERNAL, TOKEN, JS, STATUS, ADMIN};
    const char *server = nginx_value(scope, SERVER_NAME);
    bool exception = scope->condition != NULL;
    char subject[500];

    snprintf(subject, sizeof(subject), "nginx %.100s%s%.160s%s%.160s", server == NULL ? "" : server,
             server == NULL || server[0] == '\0' ? "" : " ", scope->location,
             exception ? " if " : "", exception ? scope->condition : "");
    inspection->shown += scope->values[STATUS] != NULL || scope->values[ADMIN] != NULL;
    if (scope->admin_all && nginx_scope_is_public(scope))
        doctor_find(inspection->d, DOCTOR_UNSAFE, subject, "idem_admin",
                    "idem_admin allow=ADDRESS, or auth_basic, auth_request, ssl_verify_client on",
                    "every client may settle and forget records here");
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
        if (nginx_value(scope, others[i]) != NULL)
            return;
    if (nginx_guarded(scope))
        inspection_guard_examine(inspection, scope, subject);
    else if (exception && nginx_guarded(scope->outer))
        inspection_exception_examine(inspection, scope, subject);
}

static void inspection_limits_report(struct inspection *inspection, const struct nginx_tree *tree,
                                     const char *path) {
    if (tree->cut)
        doctor_find(
            inspection->d, DOCTOR_UNSAFE, path, "limits", "examine its parts one by one",
            "it has more files, or deeper ones, than are read: of the rest nothing is known");
    if (inspection->stores_cut)
        doctor_find(inspection->d, DOCTOR_UNSAFE, path, "limits", "examine them with --store",
                    "it names more than %d stores: of the others nothing is known", STORES_MAX);
}

static void inspection_tree_examine(struct inspection *inspection, const struct nginx_tree *tree,
                                    const char *path) {
    for (const struct nginx_scope *scope = tree->first; scope != NULL; scope = scope->next)
        if (scope->location != NULL && (scope->condition == NULL || scope->mentions_idem))
            inspection_scope_examine(inspection, scope);
    inspection_limits_report(inspection, tree, path);
    if (inspection->guards == 0)
        doctor_find(inspection->d, DOCTOR_UNSAFE, path, "guards",
                    "idem or idem_preset in a location", "no location is guarded");
    if (inspection->shown == 0)
        doctor_find(inspection->d, DOCTOR_NOTE, path, "metrics", "a location with idem_status",
                    "there is no idem_status: uncertain runs pile up unseen");
    for (size_t i = 0; i < inspection->stores_n; i++)
        doctor_store(inspection->d, inspection->stores[i].url, inspection->stores[i].prefix);
}

/* Finds the workers' user. False if it is the user who runs nginx: only root can change it. */
static bool nginx_tree_workers_user(const struct nginx_tree *tree, const char *compiled,
                                    struct idem_user *ret) {
    const char *name = tree->user != NULL ? tree->user : compiled;
    struct passwd *user = geteuid() == 0 ? getpwnam(name) : NULL;
    struct group *group = getgrnam(tree->group != NULL ? tree->group : name); /* as nginx does */

    if (user == NULL)
        return false;
    *ret = (struct idem_user){name, user->pw_uid, group == NULL ? user->pw_gid : group->gr_gid};
    return true;
}

/* Makes a path absolute, but follows no links: nginx resolves includes relative to the name that it
   was given. Owned by the caller; NULL with errno. */
static char *doctor_nginx_path_absolute(const char *given) {
    char *directory = given[0] == '/' ? strdup("") : getcwd(NULL, 0), *path = NULL;

    if (directory != NULL && access(given, F_OK) == 0 &&
        asprintf(&path, "%s%s%s", directory, given[0] == '/' ? "" : "/", given) < 0)
        path = NULL;
    free(directory);
    return path;
}

int doctor_nginx(struct doctor *d, const char *given) {
    struct inspection inspection = {.d = d};
    char *path = doctor_nginx_path_absolute(given), *text = NULL, compiled[NGINX_USER];
    struct idem_user user;
    struct nginx_tree tree;
    int status = CLI_OK;
    size_t len = 0;

    if (path == NULL) { /* nginx would search its own installation directory */
        doctor_find(d, DOCTOR_BROKEN, given, "nginx", "name the file as it is", "%m");
        return CLI_OK;
    }
    text = nginx_dump(d, path, &len, compiled, &status);
    if (text != NULL) {
        if (nginx_tree_read(&tree, path, text, len) == 0) {
            d->user = nginx_tree_workers_user(&tree, compiled, &user) ? &user : NULL;
            inspection_tree_examine(&inspection, &tree, path);
            d->user = NULL;
        } else {
            cli_message("doctor: no memory");
            status = CLI_SYSTEM;
        }
        nginx_tree_release(&tree);
    }
    free(text);
    free(path);
    return status;
}
