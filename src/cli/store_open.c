/*
 * Finds and opens the store. Commands that run operations or issue tokens or ids create a
 * store; the others never do: an operator who mistakes the place must get an error, not an empty
 * store. Fails if no home directory is known, if a directory of the default place cannot be
 * created, if an operator's store does not exist, and as idem_open() does.
 */
#include <errno.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/url.h"
#include "cli/cli.h"
#include "store/store.h"

enum cli_store_kind cli_store_kind(const char *url) {
    static const struct {
        const char *scheme;
        enum cli_store_kind kind;
    } schemes[] = {
        {"lmdb", CLI_STORE_LMDB},           {"redis", CLI_STORE_REDIS},
        {"rediss", CLI_STORE_REDIS},        {"postgres", CLI_STORE_POSTGRES},
        {"postgresql", CLI_STORE_POSTGRES}, {"mysql", CLI_STORE_MYSQL},
        {"mariadb", CLI_STORE_MYSQL},       {"sqlite", CLI_STORE_SQLITE},
    };
    size_t len = strcspn(url, ":");

    if (url[len] != ':')
        return CLI_STORE_OTHER;
    len = strcspn(url, ":+"); /* redis+cluster: */
    for (size_t i = 0; i < sizeof(schemes) / sizeof(schemes[0]); i++)
        if (idem_is_word(url, len, schemes[i].scheme))
            return schemes[i].kind;
    return CLI_STORE_OTHER;
}

/* Creates the directory and its parents, for their owner only. */
static int store_open_make_directories(char *path) {
    for (char *at = path + 1;; at++) {
        char here = *at;

        if (here != '/' && here != '\0')
            continue;
        *at = '\0';
        if (mkdir(path, 0700) < 0 && errno != EEXIST) {
            int saved = errno;

            *at = here;
            errno = saved;
            return -1;
        }
        *at = here;
        if (here == '\0')
            return 0;
    }
}

/* Returns the directory for the state of the user who runs this; NULL if none is known. Root always
   gets the system's directory: sudo may have left another user's in the environment. */
static char *store_open_state_directory(void) {
    const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    struct passwd *user;
    char *path = NULL;
    int n;

    if (geteuid() == 0)
        return strdup(CLI_ROOTS_FOLDER);
    if (state != NULL && state[0] == '/') {
        n = asprintf(&path, "%s/idem", state);
        return n < 0 ? NULL : path;
    }
    if (home == NULL || home[0] != '/') {
        user = getpwuid(geteuid());
        home = user == NULL ? NULL : user->pw_dir;
    }
    if (home == NULL || home[0] != '/')
        return NULL;
    n = asprintf(&path, "%s/.local/state/idem", home);
    return n < 0 ? NULL : path;
}

/* Converts a path to the path of a URL: escapes the characters that have a meaning in a URL. */
static char *store_open_path_url(const char *path) {
    static const char scheme[] = "lmdb:";
    char *url = malloc(3 * strlen(path) + sizeof(scheme)), *out;

    if (url == NULL)
        return NULL;
    memcpy(url, scheme, sizeof(scheme));
    out = url + strlen(scheme);
    for (; *path != '\0'; path++) {
        if (strchr("?#%", *path) != NULL)
            out += snprintf(out, 4, "%%%02X", (unsigned)(unsigned char)*path);
        else
            *out++ = *path;
    }
    *out = '\0';
    return url;
}

static char *store_open_default_url(bool make, int *ret_status) {
    char *path = store_open_state_directory(), *url;

    if (path == NULL) {
        cli_message(
            "no home directory is known to keep the store in; set it with --store lmdb:PATH or "
            "IDEM_STORE");
        *ret_status = CLI_USAGE;
        return NULL;
    }
    if (make && store_open_make_directories(path) < 0) {
        cli_message("cannot make the directory %s: %s; make it, or name another place with --store "
                    "lmdb:PATH or IDEM_STORE",
                    path, strerror(errno));
        *ret_status = CLI_STORE;
        free(path);
        return NULL;
    }
    url = store_open_path_url(path);
    free(path);
    if (url == NULL)
        *ret_status = CLI_SYSTEM;
    return url;
}

/* Overwrites user and password in the process's arguments, which other users can list. The caller
   has a copy. */
static void store_open_hide_argument(const char *url) {
    char *from = strstr((char *)url, "//"), *to = from == NULL ? NULL : strrchr(from, '@');

    if (to != NULL)
        memset(from + 2, 'x', (size_t)(to - from - 2));
}

char *cli_secret_url(const char *url) {
    char *copy = strdup(url);

    if (copy == NULL)
        cli_message("no memory");
    else
        store_open_hide_argument(url);
    return copy;
}

/* A command with an audit calls this twice: the first call hides the argument and keeps a copy. */
static char *store_open_url(const struct cli_values *values, bool make, int *ret_status) {
    const char *given = values->store != NULL ? values->store : getenv("IDEM_STORE");
    static char *kept;
    char *url;

    if (given == NULL || given[0] == '\0')
        return store_open_default_url(make, ret_status);
    if (given == values->store && kept == NULL && (kept = strdup(given)) != NULL)
        store_open_hide_argument(given);
    url = given != values->store ? strdup(given) : kept == NULL ? NULL : strdup(kept);
    if (url == NULL) {
        cli_message("no memory");
        *ret_status = CLI_SYSTEM;
    }
    return url;
}

void cli_notice(void *data, const char *text) {
    const struct cli_values *values = data;

    if (!values->quiet)
        cli_message("store: %s", text);
}

char *cli_store_url(const struct cli_values *values, int *ret_status) {
    return store_open_url(values, true, ret_status);
}

char *cli_store_url_given(const struct cli_values *values, int *ret_status) {
    return store_open_url(values, false, ret_status);
}

/* Makes a relative path absolute, because nginx and users who copy its configuration work in
   other directories. Takes `url` and returns a URL that the caller frees; NULL after reporting
   the error. */
char *cli_store_url_absolute(char *url) {
    char *cwd, *base, *path, *whole = NULL;

    if (url == NULL || cli_store_kind(url) != CLI_STORE_LMDB)
        return url;
    path = url + strlen("lmdb:");
    if (*path == '/' || *path == '\0')
        return url;
    cwd = getcwd(NULL, 0);
    base = cwd == NULL ? NULL : store_open_path_url(cwd);
    if (base == NULL || asprintf(&whole, "%s/%s", base, path) < 0) {
        whole = NULL;
        cli_message(
            "--store %s: the directory that this was started in has no name; write the whole path",
            url);
    }
    free(base);
    free(cwd);
    free(url);
    return whole;
}

/* Returns the same URL for a store that must exist already; only an embedded store can be created
   by its URL. Options in the URL stay. Owned by the caller; NULL without memory. */
static char *store_open_existing_url(const char *url) {
    const char *query = strchr(url, '?');
    struct idem_url parsed = {0};
    char *existing = NULL;
    bool given;
    int n;

    if (cli_store_kind(url) != CLI_STORE_LMDB)
        return strdup(url);
    given = idem_url_parse(url, &parsed, NULL) < 0 || idem_url_get(&parsed, "create") != NULL;
    idem_url_release(&parsed);
    if (given) /* or malformed, which the store reports */
        return strdup(url);
    n = asprintf(&existing, "%s%screate=no", url,
                 query == NULL      ? "?"
                 : query[1] == '\0' ? ""
                                    : "&");
    return n < 0 ? NULL : existing;
}

int cli_settings(const struct cli_values *values, struct idem_settings **ret) {
    struct idem_error err;

    *ret = NULL;
    if (values->config == NULL) {
        if (values->policy == NULL)
            return CLI_OK;
        return cli_fail(
            CLI_USAGE,
            "--policy names a section of a settings file; name that file with --config FILE");
    }
    if (idem_settings_load(values->config, ret, &err) == 0)
        return CLI_OK;
    cli_message_error("settings", &err);
    return err.code == IDEM_E_NOMEM ? CLI_SYSTEM : CLI_CONFIG;
}

/* The store's own text contains the directory, but the user has written a URL. */
static int store_open_failed(const char *url, const struct idem_error *err) {
    if (err->code != IDEM_E_ABSENT)
        return cli_message_error("store", err);
    return cli_fail(
        CLI_STORE,
        "there is no store at %s (idem run makes one when it is first used; name another with "
        "--store URL or IDEM_STORE)",
        url);
}

struct idem *cli_open_or_make(const struct cli_values *values, int *ret_status) {
    struct idem_options options = {.notice = cli_notice, .notice_data = (void *)values};
    char *url = cli_store_url(values, ret_status);
    struct idem_error err;
    struct idem *h = NULL;

    idem_store_become_owner();
    if (url != NULL && idem_open(url, &options, &h, &err) < 0) {
        *ret_status = cli_message_error("store", &err);
        h = NULL;
    }
    free(url);
    return h;
}

static void store_open_poll_ready(void *sink, int fd, int events) {
    idem_ready(sink, fd, events);
}

static void store_open_poll_timeout(void *sink) {
    idem_timeout(sink);
}

int cli_open_on_poll(const struct cli_values *values, const char *url,
                     struct idem_settings *settings, struct idem_poll *poll, struct idem **ret,
                     struct idem_error *err) {
    struct idem_options options = {
        .settings = settings, .notice = cli_notice, .notice_data = (void *)values};
    struct idem_host host = idem_poll_host(poll);
    int rc = idem_open_on(url, &options, &host, ret, err);

    poll->ready = store_open_poll_ready;
    poll->timeout = store_open_poll_timeout;
    poll->sink = rc == 0 ? *ret : NULL;
    return rc;
}

struct idem *cli_open(const struct cli_values *values, int *ret_status) {
    struct idem_options options = {.notice = cli_notice, .notice_data = (void *)values};
    char *url = store_open_url(values, false, ret_status), *existing;
    struct idem_error err;
    struct idem *h = NULL;

    if (url == NULL)
        return NULL;
    idem_store_become_owner();
    existing = store_open_existing_url(url);
    if (existing == NULL) {
        cli_message("no memory");
        *ret_status = CLI_SYSTEM;
    } else if (idem_open(existing, &options, &h, &err) < 0) {
        *ret_status = store_open_failed(url, &err);
        h = NULL;
    }
    free(existing);
    free(url);
    return h;
}
