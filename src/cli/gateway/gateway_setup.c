/*
 * Prepares the start of nginx for `idem gateway`: finds nginx, its module and its workers' user,
 * and creates nginx's working directory and the store. Fails if one of them is missing or not
 * allowed, and reports what to install or which flag to set.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/path_walk.h"
#include "cli/gateway/gateway.h"
#include "store/store.h"

#define MODULE "ngx_http_idem_module.so"

#ifndef IDEM_NGINX_MODULES
#define IDEM_NGINX_MODULES "/usr/local/lib/nginx/modules"
#endif

/* Programs and files. */

static bool gateway_setup_absolute_path(const char *path, char ret[PATH_MAX]) {
    char found[PATH_MAX];

    if (realpath(path, found) == NULL)
        return false;
    memcpy(ret, found, strlen(found) + 1);
    return true;
}

/* The module in the build directory of this program. */
static void gateway_setup_build_module(char ret[PATH_MAX]) {
    ssize_t n = readlink("/proc/self/exe", ret, PATH_MAX - 1);
    const char tail[] = "/../nginx/" MODULE;
    char *slash;

    ret[n < 0 ? 0 : n] = '\0';
    slash = strrchr(ret, '/');
    if (slash == NULL || (size_t)(slash - ret) + sizeof(tail) > PATH_MAX)
        ret[0] = '\0';
    else
        memcpy(slash, tail, sizeof(tail));
}

static int gateway_module_find(struct gateway *g) {
    const char *given = g->values->module != NULL ? g->values->module : getenv("IDEM_NGINX_MODULE");
    char built[PATH_MAX];
    const char *const places[] = {built, IDEM_NGINX_MODULES "/" MODULE,
                                  "/usr/lib/nginx/modules/" MODULE,
                                  "/usr/share/nginx/modules/" MODULE};

    g->module_found = true;
    if (given != NULL && given[0] != '\0') {
        if (gateway_setup_absolute_path(given, g->module))
            return CLI_OK;
        return cli_fail(CLI_USAGE, "gateway: %s %s: %s",
                        g->values->module != NULL ? "--module" : "IDEM_NGINX_MODULE", given,
                        strerror(errno));
    }
    gateway_setup_build_module(built);
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++)
        if (access(places[i], R_OK) == 0 && gateway_setup_absolute_path(places[i], g->module))
            return CLI_OK;
    g->module_found = false;
    snprintf(g->module, sizeof(g->module), "%s", places[1]);
    if (g->values->print_config)
        return CLI_OK;
    return cli_fail(
        CLI_NOT_FOUND,
        "gateway: nginx's module " MODULE
        " is neither in %s nor in /usr/lib/nginx/modules; it is built with idem where nginx's "
        "headers are (Debian: apt-get install nginx-dev), or set its path with --module FILE",
        IDEM_NGINX_MODULES);
}

static bool gateway_setup_program_in(const char *directory, size_t len, const char *name,
                                     char ret[PATH_MAX]) {
    int n = snprintf(ret, PATH_MAX, "%.*s/%s", (int)len, directory, name);

    return len != 0 && n > 0 && n < PATH_MAX && access(ret, X_OK) == 0;
}

/* Users other than root often lack the sbin directories in PATH, and nginx is in one of them. */
static bool gateway_setup_program_find(const char *name, char ret[PATH_MAX]) {
    static const char further[] = "/usr/sbin:/usr/local/sbin:/usr/local/nginx/sbin:/sbin";
    const char *lists[] = {getenv("PATH"), further};
    size_t len;

    if (strchr(name, '/') != NULL)
        return access(name, X_OK) == 0 && gateway_setup_absolute_path(name, ret);
    for (size_t i = 0; i < 2; i++) {
        for (const char *at = lists[i]; at != NULL && *at != '\0'; at += len + (at[len] == ':')) {
            len = strcspn(at, ":");
            if (gateway_setup_program_in(at, len, name, ret))
                return true;
        }
    }
    return false;
}

static int gateway_nginx_find(struct gateway *g) {
    const char *name = g->values->nginx != NULL ? g->values->nginx : "nginx";

    if (gateway_setup_program_find(name, g->nginx))
        return CLI_OK;
    if (g->values->nginx != NULL)
        return cli_fail(CLI_NOT_FOUND, "gateway: --nginx %s: there is no such program", name);
    return cli_fail(
        CLI_NOT_FOUND,
        "gateway: nginx is not installed (Debian: apt-get install nginx), or set its path "
        "with --nginx FILE");
}

int gateway_find(struct gateway *g) {
    int status = gateway_module_find(g);

    if (status != CLI_OK)
        return status;
    if (g->values->config != NULL) {
        if (access(g->values->config, R_OK) < 0 ||
            !gateway_setup_absolute_path(g->values->config, g->include))
            return cli_fail(CLI_CONFIG, "gateway: --config %s: %s", g->values->config,
                            strerror(errno));
    }
    return g->values->print_config ? CLI_OK : gateway_nginx_find(g);
}

/* The workers' user. */

int gateway_user(struct gateway *g) {
    struct passwd *user;
    struct group *group;

    if (geteuid() != 0)
        return CLI_OK;
    user = getpwnam("www-data");
    if (user == NULL)
        user = getpwnam("nobody");
    group = user == NULL ? NULL : getgrgid(user->pw_gid);
    if (group == NULL)
        return cli_fail(
            CLI_SYSTEM,
            "gateway: there is neither a user www-data nor a user nobody for nginx's workers; "
            "start this as another user than root");
    snprintf(g->user, sizeof(g->user), "%s", user->pw_name);
    snprintf(g->group, sizeof(g->group), "%s", group->gr_name);
    g->uid = user->pw_uid;
    g->gid = user->pw_gid;
    return CLI_OK;
}

/* The store. */

char *gateway_store_url(const struct gateway *g, int *ret_status) {
    const char *given = g->values->store != NULL ? g->values->store : getenv("IDEM_STORE");
    struct stat directory;
    char *url;

    if (g->user[0] == '\0' || (given != NULL && given[0] != '\0'))
        return cli_store_url(g->values, ret_status);
    /* The workers pass through root's directory; each file in it stays readable to root only. */
    (void)mkdir(CLI_ROOTS_FOLDER, 0711);
    if (stat(CLI_ROOTS_FOLDER, &directory) == 0)
        (void)!chmod(CLI_ROOTS_FOLDER, (directory.st_mode & 07777) | S_IXGRP | S_IXOTH);
    url = strdup("lmdb:" CLI_ROOTS_FOLDER "/gateway");
    if (url == NULL) {
        cli_message("no memory");
        *ret_status = CLI_SYSTEM;
    }
    return url;
}

static bool gateway_setup_is_empty(int directory) {
    int fd = dup(directory);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    struct dirent *entry;
    bool empty = dir != NULL;

    while (empty && (entry = readdir(dir)) != NULL)
        empty = strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0;
    if (dir != NULL)
        closedir(dir);
    else if (fd >= 0)
        close(fd);
    return empty;
}

static bool gateway_setup_is_root_directory(const struct stat *directory) {
    struct stat roots;

    return stat(CLI_ROOTS_FOLDER, &roots) == 0 && roots.st_dev == directory->st_dev &&
           roots.st_ino == directory->st_ino;
}

/* Creates the directory as root and gives it to the workers' user, who can neither create it below
   a directory of root's nor use one that root owns. A directory that is not empty keeps its owner,
   and so does the directory of root's own store. A link of another user on the way gets nothing of
   root's made or given away: the child, which is that user at most, reports what is missing. */
static void gateway_directory_chown(const struct gateway *g, const char *path, bool make) {
    struct stat directory;
    struct idem_error err;
    int fd;

    if (idem_path_walk(path, make, &fd, &err) != 0)
        return;
    if (fstat(fd, &directory) == 0 && directory.st_uid == 0 && gateway_setup_is_empty(fd) &&
        !gateway_setup_is_root_directory(&directory))
        (void)!fchown(fd, g->uid, g->gid);
    close(fd);
}

/* Runs in a child process, as the user of the workers. */
_Noreturn static void gateway_store_try(const struct gateway *g, bool embedded) {
    struct idem_options options = {.notice = cli_notice, .notice_data = (void *)g->values};
    struct idem_error err;
    struct idem *h = NULL;
    int status = CLI_OK, rc;

    if (g->user[0] != '\0' &&
        (initgroups(g->user, g->gid) < 0 || setgid(g->gid) < 0 || setuid(g->uid) < 0)) {
        cli_message("gateway: cannot become %s: %s", g->user, strerror(errno));
        _exit(CLI_SYSTEM);
    }
    rc = idem_open(g->store, &options, &h, &err);
    if (rc == 0) {
        idem_close(h);
    } else if (embedded || rc == IDEM_E_INVALID) {
        status = cli_message_error("gateway: store", &err);
        if (embedded && g->user[0] != '\0')
            cli_message(
                "gateway: nginx's workers run as %s, and the store must be theirs: give the "
                "directory to that user (not %s itself, which is root's), or start this as "
                "another user than root",
                g->user, CLI_ROOTS_FOLDER);
    } else {
        (void)cli_message_error("gateway: the store fails, and is tried again", &err);
    }
    _exit(status);
}

static int gateway_store_try_in_child(const struct gateway *g, bool embedded) {
    int status = 0;
    pid_t pid;

    fflush(NULL);
    pid = fork();
    if (pid < 0)
        return cli_fail(CLI_SYSTEM, "gateway: %s", strerror(errno));
    if (pid == 0)
        gateway_store_try(g, embedded);
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            return CLI_SYSTEM;
    return WIFEXITED(status) ? WEXITSTATUS(status) : CLI_STORE;
}

int gateway_store_check(struct gateway *g) {
    const char *create;
    struct idem_error err;
    struct idem_url url;
    bool embedded;

    if (idem_url_parse(g->store, &url, &err) < 0)
        return cli_message_error("gateway: --store", &err);
    create = idem_url_get(&url, "create");
    embedded = cli_store_kind(g->store) == CLI_STORE_LMDB;
    if (embedded && g->user[0] != '\0')
        gateway_directory_chown(g, url.rest, create == NULL || strcmp(create, "no") != 0);
    idem_url_release(&url);
    return gateway_store_try_in_child(g, embedded);
}

/* nginx's working directory. */

static bool gateway_directory_make_in(struct gateway *g, const char *base) {
    int n = snprintf(g->folder, sizeof(g->folder), "%s/idem-gateway.XXXXXX", base);

    if (base[0] == '/' && n < (int)sizeof(g->folder) && mkdtemp(g->folder) != NULL)
        return true;
    g->folder[0] = '\0';
    return false;
}

int gateway_folder_make(struct gateway *g) {
    const char *runtime = getenv("XDG_RUNTIME_DIR"), *temp = getenv("TMPDIR");

    /* Workers of a gateway that root has started run as another user, and must reach their
       temporary files, but not the files that root writes there. XDG_RUNTIME_DIR and TMPDIR of a
       user who called sudo may be closed to them, so only /tmp is left. */
    if ((g->user[0] == '\0' && runtime != NULL && gateway_directory_make_in(g, runtime)) ||
        (g->user[0] == '\0' && temp != NULL && gateway_directory_make_in(g, temp)) ||
        gateway_directory_make_in(g, "/tmp")) {
        if (g->user[0] == '\0' || chmod(g->folder, 0711) == 0)
            return CLI_OK;
    }
    return cli_fail(CLI_SYSTEM, "gateway: cannot make a directory for nginx to work in: %s",
                    strerror(errno));
}

/* Works with descriptors and follows no links: the workers' user owns parts of the tree. */
static void gateway_setup_remove_at(int at, const char *name) {
    int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    struct dirent *entry;

    if (dir == NULL) {
        if (fd >= 0)
            close(fd);
        (void)unlinkat(at, name, 0);
        return;
    }
    while ((entry = readdir(dir)) != NULL)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            gateway_setup_remove_at(fd, entry->d_name);
    closedir(dir);
    (void)unlinkat(at, name, AT_REMOVEDIR);
}

void gateway_folder_remove(struct gateway *g) {
    if (g->folder[0] != '\0')
        gateway_setup_remove_at(AT_FDCWD, g->folder);
    g->folder[0] = '\0';
}
