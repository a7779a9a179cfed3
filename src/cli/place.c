/*
 * Where the store is, and opening it. Only `idem run` makes one: an operator
 * who has mistaken the place must be told so, not shown an empty store. Fails
 * where no home is known, where a folder of the default place cannot be made,
 * where an operator's store is not there, and as idem_open() does.
 */
#include <errno.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/cli.h"

/* Makes the folder and those above it, for their owner only. */
static int folders_make(char *path) {
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

/* The folder that holds the state of whoever runs this; NULL if none is known. Root's is the
   system's whatever the environment says: sudo may have left another user's in it. */
static char *state_folder(void) {
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

/* A path as the path of a URL: what a URL would read otherwise is escaped. */
static char *url_of_path(const char *path) {
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

static char *default_url(bool make, int *ret_status) {
    char *path = state_folder(), *url;

    if (path == NULL) {
        cli_say("no home folder is known to keep the store in; say where with --store lmdb:PATH "
                "or IDEM_STORE");
        *ret_status = CLI_USAGE;
        return NULL;
    }
    if (make && folders_make(path) < 0) {
        cli_say("cannot make the folder %s: %s; make it, or say another place with --store "
                "lmdb:PATH or IDEM_STORE",
                path, strerror(errno));
        *ret_status = CLI_STORE;
        free(path);
        return NULL;
    }
    url = url_of_path(path);
    free(path);
    if (url == NULL)
        *ret_status = CLI_SYSTEM;
    return url;
}

/* Who lists processes sees their arguments: a user and a password are made unreadable there, once
   they are copied. */
static void argument_hide(const char *url) {
    char *from = strstr((char *)url, "//"), *to = from == NULL ? NULL : strrchr(from, '@');

    if (to != NULL)
        memset(from + 2, 'x', (size_t)(to - from - 2));
}

char *cli_secret_url(const char *url) {
    char *copy = strdup(url);

    if (copy == NULL)
        cli_say("no memory");
    else
        argument_hide(url);
    return copy;
}

static char *store_url(const struct cli_values *values, bool make, int *ret_status) {
    const char *said = values->store != NULL ? values->store : getenv("IDEM_STORE");
    char *url;

    if (said == NULL || said[0] == '\0')
        return default_url(make, ret_status);
    url = strdup(said);
    if (url == NULL) {
        cli_say("no memory");
        *ret_status = CLI_SYSTEM;
    } else if (said == values->store) {
        argument_hide(said);
    }
    return url;
}

/* What the store wants people to know. */
void cli_notice(void *data, const char *text) {
    const struct cli_values *values = data;

    if (!values->quiet)
        cli_say("store: %s", text);
}

char *cli_store_url(const struct cli_values *values, int *ret_status) {
    return store_url(values, true, ret_status);
}

char *cli_store_url_said(const struct cli_values *values, int *ret_status) {
    return store_url(values, false, ret_status);
}

/* A path from wherever this was started, as a whole one: nginx, and who copies its configuration,
   stand elsewhere. Takes `url`, and gives one to free; NULL after saying why. */
char *cli_store_url_whole(char *url) {
    static const char scheme[] = "lmdb:";
    char *cwd, *base, *whole = NULL;

    if (url == NULL || strncmp(url, scheme, strlen(scheme)) != 0 || url[strlen(scheme)] == '/' ||
        url[strlen(scheme)] == '\0')
        return url;
    cwd = getcwd(NULL, 0);
    base = cwd == NULL ? NULL : url_of_path(cwd);
    if (base == NULL || asprintf(&whole, "%s/%s", base, url + strlen(scheme)) < 0) {
        whole = NULL;
        cli_say("--store %s: the folder that this was started in has no name; write the whole path",
                url);
    }
    free(base);
    free(cwd);
    free(url);
    return whole;
}

/* The same URL, for a store that must be there already; the embedded store is the only one that a
   URL can make. What the URL says itself stays. Owned by the caller; NULL without memory. */
static char *url_of_existing(const char *url) {
    const char *query = strchr(url, '?');
    char *existing = NULL;
    int n;

    if (strncmp(url, "lmdb:", 5) != 0 ||
        (query != NULL && (strstr(query, "?create=") != NULL || strstr(query, "&create=") != NULL)))
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
        cli_say("--policy names a section of a settings file; say which with --config FILE");
        return CLI_USAGE;
    }
    if (idem_settings_load(values->config, ret, &err) == 0)
        return CLI_OK;
    cli_say_error("settings", &err);
    return err.code == IDEM_E_NOMEM ? CLI_SYSTEM : CLI_CONFIG;
}

/* The store's own text names the folder; whoever reads this has written a URL. */
static int open_failed(const char *url, const struct idem_error *err) {
    if (err->code != IDEM_E_ABSENT)
        return cli_say_error("store", err);
    cli_say("there is no store at %s (idem run makes one when it is first used; name another with "
            "--store URL or IDEM_STORE)",
            url);
    return CLI_STORE;
}

struct idem *cli_open_or_make(const struct cli_values *values, int *ret_status) {
    struct idem_options options = {.notice = cli_notice, .notice_data = (void *)values};
    char *url = cli_store_url(values, ret_status);
    struct idem_error err;
    struct idem *h = NULL;

    if (url != NULL && idem_open(url, &options, &h, &err) < 0) {
        *ret_status = cli_say_error("store", &err);
        h = NULL;
    }
    free(url);
    return h;
}

struct idem *cli_open(const struct cli_values *values, int *ret_status) {
    struct idem_options options = {.notice = cli_notice, .notice_data = (void *)values};
    char *url = store_url(values, false, ret_status), *existing;
    struct idem_error err;
    struct idem *h = NULL;

    if (url == NULL)
        return NULL;
    existing = url_of_existing(url);
    if (existing == NULL) {
        cli_say("no memory");
        *ret_status = CLI_SYSTEM;
    } else if (idem_open(existing, &options, &h, &err) < 0) {
        *ret_status = open_failed(url, &err);
        h = NULL;
    }
    free(existing);
    free(url);
    return h;
}
