/*
 * The guards of an nginx configuration, each with what it inherits, by a table of rules; then the
 * stores that it names. What nginx refuses is a finding.
 */
#include <grp.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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
    bool stores_cut;        /* there are more */
};

static bool is_on(const char *value) {
    return value != NULL && strcmp(value, "off") != 0;
}

/* Whether users are told apart here. */
static bool authenticates(const struct nginx_scope *scope) {
    static const enum nginx_word words[] = {AUTH_BASIC, AUTH_REQUEST, AUTH_JWT, VERIFY_CLIENT};

    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        if (is_on(nginx_value(scope, words[i])))
            return true;
    return false;
}

static bool says(const struct nginx_scope *scope, enum nginx_word word, const char *what) {
    const char *value = nginx_value(scope, word);

    return value != NULL && strcmp(value, what) == 0;
}

/* Whether none comes in but by address or certificate. Other words of ssl_verify_client let those
   in who have none. */
static bool only_some_come(const struct nginx_scope *scope) {
    return says(scope, VERIFY_CLIENT, "on") ||
           (nginx_access(scope) == ACCESS_CLOSED && !says(scope, SATISFY, "any"));
}

/* Whether anybody comes in whom nothing has looked at. */
static bool everybody_comes(const struct nginx_scope *scope) {
    bool asked = is_on(nginx_value(scope, AUTH_BASIC)) || is_on(nginx_value(scope, AUTH_REQUEST)) ||
                 is_on(nginx_value(scope, AUTH_JWT));

    if (only_some_come(scope) || nginx_access(scope) == ACCESS_CLOSED)
        return false;
    return !asked || (says(scope, SATISFY, "any") && nginx_access(scope) == ACCESS_ALL);
}

/* Rules of a location that is guarded. */

static bool only_watches(const struct nginx_scope *scope) {
    const char *value = nginx_value(scope, ENFORCE);

    return value != NULL && (strcmp(value, "off") == 0 || strcmp(value, "0") == 0);
}

/* What a client may send as it likes. */
static bool is_sent(const char *name) {
    static const char *const sent[] = {"http_*",       "arg_*",          "cookie_*", "args",
                                       "query_string", "request_uri",    "request",  "request_body",
                                       "content_type", "content_length", "host",     NULL};

    return nginx_name_fits(name, sent);
}

static bool client_switches(const struct nginx_scope *scope) {
    const char *value = nginx_value(scope, ENFORCE);

    return value != NULL && nginx_names(scope, value, true, is_sent);
}

static bool watches_some(const struct nginx_scope *scope) {
    const char *value = nginx_value(scope, ENFORCE);

    return value != NULL && value[0] == '$' && !client_switches(scope);
}

static bool knows_users_and_mixes_them(const struct nginx_scope *scope) {
    return says(scope, SCOPE, "none") && authenticates(scope);
}

static bool is_volatile(const char *name) {
    static const char *const volatiles[] = {
        "request_id",         "request_time",        "connection*", "remote_port", "msec",
        "realip_remote_port", "proxy_protocol_port", "pid",         "time_*",      NULL};

    return nginx_name_fits(name, volatiles);
}

static bool is_authorization(const char *name) {
    static const char *const names[] = {"http_authorization", NULL};

    return nginx_name_fits(name, names);
}

/* A name that anybody can say; of what is secret nobody knows another's. */
static bool is_claimed(const char *name) {
    static const char *const claims[] = {"http_*", "arg_*", NULL},
                             *const secrets[] = {"http_authorization", "http_cookie", "*token*",
                                                 "*session*",          "*secret*",    "*api_key*",
                                                 "*apikey*",           NULL};

    return nginx_name_fits(name, claims) && !nginx_name_fits(name, secrets);
}

static bool scope_names(const struct nginx_scope *scope, bool (*is)(const char *name)) {
    const char *value = nginx_value(scope, SCOPE);

    return value != NULL && nginx_names(scope, value, false, is);
}

static bool scope_changes(const struct nginx_scope *scope) {
    return scope_names(scope, is_volatile);
}

static bool scope_is_refreshed(const struct nginx_scope *scope) {
    return scope_names(scope, is_authorization);
}

static bool scope_is_anybodys(const struct nginx_scope *scope) {
    return scope_names(scope, is_claimed) && !only_some_come(scope);
}

static bool scope_is_the_proxys(const struct nginx_scope *scope) {
    return scope_names(scope, is_claimed) && only_some_come(scope);
}

static bool speaks_http_1_0(const struct nginx_scope *scope) {
    const char *value = nginx_value(scope, HTTP_VERSION);

    return nginx_value(scope, PROXY_PASS) != NULL && (value == NULL || strcmp(value, "1.0") == 0);
}

static const struct {
    bool (*is)(const struct nginx_scope *scope);
    enum doctor_grade grade;
    const char *check, *found, *todo;
} rules[] = {
    {only_watches, DOCTOR_UNSAFE, "enforce",
     "idem_enforce is off: verdicts are logged, and every request passes, each retry anew",
     "idem_enforce on, when the log shows what you expect"},
    {client_switches, DOCTOR_UNSAFE, "enforce",
     "idem_enforce goes by what the client sends: whoever likes passes, each retry anew",
     "a variable that no client chooses"},
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
    {scope_is_anybodys, DOCTOR_UNSAFE, "scope",
     "idem_scope is a name that any client may send: who says another's, and the same key, gets "
     "his "
     "answer",
     "idem_scope $remote_user, or another identity that was checked; or let none in but the proxy "
     "that sets it: allow ADDRESS; deny all"},
    {scope_is_the_proxys, DOCTOR_NOTE, "scope",
     "idem_scope is a name that who asks here has sent: it must set it, and let no client's "
     "through",
     NULL},
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
    round->stores_cut |= url != NULL && round->stores_n == STORES_MAX;
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

/* An `if` in a location that is guarded, by which it is not. */
static void exception_examine(struct round *round, const struct nginx_scope *scope,
                              const char *subject) {
    if (nginx_names(scope, scope->condition, true, is_sent))
        doctor_find(round->d, DOCTOR_UNSAFE, subject, "guard",
                    "a condition that no client chooses, or a location of its own",
                    "idem is off by what the client sends: whoever likes passes, each retry anew");
    else
        doctor_find(round->d, DOCTOR_NOTE, subject, "guard", NULL,
                    "idem is off here: every request passes, each retry anew");
}

static void scope_examine(struct round *round, const struct nginx_scope *scope) {
    static const enum nginx_word others[] = {INTERNAL, TOKEN, JS, STATUS, ADMIN};
    const char *server = nginx_value(scope, SERVER_NAME);
    bool exception = scope->condition != NULL;
    char subject[500];

    snprintf(subject, sizeof(subject), "nginx %.100s%s%.160s%s%.160s", server == NULL ? "" : server,
             server == NULL || server[0] == '\0' ? "" : " ", scope->location,
             exception ? " if " : "", exception ? scope->condition : "");
    round->shown += scope->values[STATUS] != NULL || scope->values[ADMIN] != NULL;
    if (scope->admin_all && everybody_comes(scope))
        doctor_find(round->d, DOCTOR_UNSAFE, subject, "idem_admin",
                    "idem_admin allow=ADDRESS, or auth_basic, auth_request, ssl_verify_client on",
                    "everybody may settle and forget records here");
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
        if (nginx_value(scope, others[i]) != NULL)
            return;
    if (nginx_guarded(scope))
        guard_examine(round, scope, subject);
    else if (exception && nginx_guarded(scope->outer))
        exception_examine(round, scope, subject);
}

static void limits_tell(struct round *round, const struct nginx_tree *tree, const char *path) {
    if (tree->cut)
        doctor_find(
            round->d, DOCTOR_UNSAFE, path, "limits", "examine its parts one by one",
            "it has more files, or deeper ones, than are read: of the rest nothing is known");
    if (round->stores_cut)
        doctor_find(round->d, DOCTOR_UNSAFE, path, "limits", "examine them with --store",
                    "it names more than %d stores: of the others nothing is known", STORES_MAX);
}

static void tree_examine(struct round *round, const struct nginx_tree *tree, const char *path) {
    for (const struct nginx_scope *scope = tree->first; scope != NULL; scope = scope->next)
        if (scope->location != NULL && (scope->condition == NULL || scope->says))
            scope_examine(round, scope);
    limits_tell(round, tree, path);
    if (round->guards == 0)
        doctor_find(round->d, DOCTOR_UNSAFE, path, "guards", "idem or idem_preset in a location",
                    "no location is guarded");
    if (round->shown == 0)
        doctor_find(round->d, DOCTOR_NOTE, path, "metrics", "a location with idem_status",
                    "there is no idem_status: nobody sees uncertain runs pile up");
    for (size_t i = 0; i < round->stores_n; i++)
        doctor_store(round->d, round->stores[i].url, round->stores[i].prefix);
}

/* The user of the workers; false: whoever runs nginx, since only root can become another. */
static bool workers_user(const struct nginx_tree *tree, const char *compiled,
                         struct doctor_user *ret) {
    const char *name = tree->user != NULL ? tree->user : compiled;
    struct passwd *user = geteuid() == 0 ? getpwnam(name) : NULL;
    struct group *group = getgrnam(tree->group != NULL ? tree->group : name); /* as nginx does */

    if (user == NULL)
        return false;
    *ret = (struct doctor_user){name, user->pw_uid, group == NULL ? user->pw_gid : group->gr_gid};
    return true;
}

/* Links are not followed: nginx finds what is included beside the name that it was given. Owned by
   the caller; NULL with errno. */
static char *path_absolute(const char *said) {
    char *folder = said[0] == '/' ? strdup("") : getcwd(NULL, 0), *path = NULL;

    if (folder != NULL && access(said, F_OK) == 0 &&
        asprintf(&path, "%s%s%s", folder, said[0] == '/' ? "" : "/", said) < 0)
        path = NULL;
    free(folder);
    return path;
}

int doctor_nginx(struct doctor *d, const char *said) {
    struct round round = {.d = d};
    char *path = path_absolute(said), *text = NULL, compiled[NGINX_USER];
    struct doctor_user user;
    struct nginx_tree tree;
    int status = CLI_OK;
    size_t len = 0;

    if (path == NULL) { /* nginx would look where it was installed */
        doctor_find(d, DOCTOR_BROKEN, said, "nginx", "name the file as it is", "%m");
        return CLI_OK;
    }
    text = nginx_dump(d, path, &len, compiled, &status);
    if (text != NULL) {
        if (nginx_tree_read(&tree, path, text, len) == 0) {
            d->user = workers_user(&tree, compiled, &user) ? &user : NULL;
            tree_examine(&round, &tree, path);
            d->user = NULL;
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
