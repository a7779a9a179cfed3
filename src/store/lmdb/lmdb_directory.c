/*
 * Opens the store's directory, uses it as its owner, and refuses entries that
 * are not files of the store.
 *
 * The owner of the directory may put a link where a file of the store is
 * expected. If root opened it, root would write to the file behind the link,
 * which may be root's. So root becomes the directory's owner whenever it uses
 * names in it: a link then leads only where the owner could go anyway, however
 * fast names are swapped.
 *
 * The owner may also write anything into the files, and LMDB believes what it
 * reads there. A program that needs root for nothing else becomes the owner for
 * good before it opens the first file (lmdb_owner_stay). A program that starts
 * commands as root cannot: it changes the identity of one thread only, and for
 * files only (setfsuid(2)). Other threads, the commands and the audit log stay
 * root's, and the files are checked when they are opened (lmdb_state.c,
 * lmdb_env.c).
 *
 * The second defence, for every user: files are opened relative to the checked
 * directory, through no link, and must be regular files (or FIFOs) with one
 * name.
 */
#include "store/lmdb/lmdb_directory.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <libgen.h>
#include <limits.h>
#include <linux/securebits.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/error.h"
#include "base/path_walk.h"

/* The group of an owner that is not in the user database: a group that owns nothing. */
#define NO_GROUP ((gid_t)65534)
#define GROUPS_MAX 65536
#define ENTRY_MAX ((size_t)1 << 20)

/* 16-bit ids on some 32-bit machines. */
#ifdef SYS_setgroups32
#define SETGROUPS SYS_setgroups32
#else
#define SETGROUPS SYS_setgroups
#endif

/* Opens the directory for users other than root. */
static int directory_open_plain(const struct lmdb_config *config, int *ret_fd,
                                struct idem_error *err) {
    const char *path = config->path;

    if (config->create && mkdir(path, 0700) < 0 && errno != EEXIST)
        return idem_path_make_fail(path, errno, err);
    *ret_fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (*ret_fd >= 0)
        return 0;
    if (!config->create && errno == ENOENT)
        return idem_error_set(err, IDEM_E_ABSENT, "there is no store at %s", path);
    return idem_path_open_fail(path, errno, err);
}

/* Users with write permission can replace the store's files while root uses them. A process that
   becomes the owner for good risks no more than the owner does. */
static bool directory_is_open_to_others(const struct stat *st) {
    return geteuid() == 0 && (st->st_mode & (S_IWGRP | S_IWOTH)) != 0 &&
           (st->st_uid == 0 || !idem_store_becomes_owner());
}

static int directory_check(const struct lmdb_config *config, int fd, struct stat *ret_st,
                           struct idem_error *err) {
    struct stat data;

    if (!config->create && fstatat(fd, "data.mdb", &data, AT_SYMLINK_NOFOLLOW) < 0)
        return idem_error_set(err, IDEM_E_ABSENT, "there is no store at %s", config->path);
    if (fstat(fd, ret_st) < 0)
        return idem_path_open_fail(config->path, errno, err);
    if (directory_is_open_to_others(ret_st))
        return idem_error_set(
            err, IDEM_E_REFUSED,
            "%s can be written to by others than its owner (mode %03o), who could "
            "replace the store's files while root uses them; chmod go-w it, or "
            "run this as its owner",
            config->path, (unsigned)ret_st->st_mode & 07777);
    return 0;
}

int lmdb_directory_open(const struct lmdb_config *config, int *ret_fd, struct stat *ret_st,
                        struct idem_error *err) {
    int fd = -1;
    int rc = geteuid() == 0 ? idem_path_walk(config->path, config->create, &fd, err)
                            : directory_open_plain(config, &fd, err);

    if (rc != 0)
        return rc;
    rc = directory_check(config, fd, ret_st, err);
    if (rc != 0) {
        close(fd);
        return rc;
    }
    *ret_fd = fd;
    return 0;
}

/* The owner. */

/* Looks up the user database, with a buffer that grows as needed. The caller frees *ret_buf;
   false if there is no such user. */
static bool directory_find_user(uid_t uid, struct passwd *ret, char **ret_buf) {
    struct passwd *found = NULL;
    int rc = ERANGE;

    *ret_buf = NULL;
    for (size_t size = 1024; rc == ERANGE && size <= ENTRY_MAX; size *= 4) {
        free(*ret_buf);
        *ret_buf = malloc(size);
        rc = *ret_buf == NULL ? ENOMEM : getpwuid_r(uid, ret, *ret_buf, size, &found);
    }
    return rc == 0 && found != NULL;
}

/* Finds all groups of the owner, as a login does; none without memory, which is safe. */
static void owner_find_groups(struct lmdb_owner *owner, const char *name) {
    int n = 0;

    (void)getgrouplist(name, owner->gid, NULL, &n);
    if (n <= 0 || n > GROUPS_MAX)
        return;
    owner->groups = calloc((size_t)n, sizeof(gid_t));
    if (owner->groups != NULL && getgrouplist(name, owner->gid, owner->groups, &n) >= 0)
        owner->groups_n = (size_t)n;
}

/* The directory's own group is not used: its owner may not be a member of it. */
void lmdb_owner_find(struct lmdb_owner *owner, uid_t uid) {
    struct passwd user;
    char *buf;

    *owner = (struct lmdb_owner){.uid = uid, .gid = NO_GROUP};
    if (geteuid() != 0 || uid == 0)
        return;
    if (directory_find_user(uid, &user, &buf)) {
        owner->gid = user.pw_gid;
        owner_find_groups(owner, user.pw_name);
    }
    free(buf);
}

void lmdb_owner_release(struct lmdb_owner *owner) {
    free(owner->groups);
    owner->groups = NULL;
    owner->groups_n = 0;
}

/* By system call: the library's setgroups() changes all threads. */
static bool directory_set_groups(const gid_t *groups, size_t n) {
    return syscall(SETGROUPS, n, groups) == 0;
}

/* setfsuid() returns the previous id in every case, so a second call reads the outcome. */
static bool directory_set_fs_identity(uid_t uid, gid_t gid) {
    (void)setfsgid(gid);
    (void)setfsuid(uid);
    return (uid_t)setfsuid((uid_t)-1) == uid && (gid_t)setfsgid((gid_t)-1) == gid;
}

static bool identity_save_groups(struct lmdb_identity *before) {
    int n = getgroups(0, NULL);

    if (n < 0)
        return false;
    before->groups = calloc((size_t)n + 1, sizeof(gid_t));
    if (before->groups == NULL)
        return false;
    n = getgroups(n, before->groups);
    before->groups_n = n < 0 ? 0 : (size_t)n;
    return n >= 0;
}

int lmdb_owner_become(const struct lmdb_owner *owner, struct lmdb_identity *before) {
    int saved;

    *before = (struct lmdb_identity){0};
    if (owner->uid == 0 || geteuid() != 0)
        return 0;
    before->uid = (uid_t)setfsuid((uid_t)-1);
    before->gid = (gid_t)setfsgid((gid_t)-1);
    if (before->uid == owner->uid)
        return 0; /* the writer thread, which was started as the owner */
    if (!identity_save_groups(before)) {
        saved = errno;
        free(before->groups);
        return saved;
    }
    before->changed = true;
    errno = EPERM;
    /* With that bit set, root's capabilities would outlast the change. */
    if ((prctl(PR_GET_SECUREBITS) & SECBIT_NO_SETUID_FIXUP) == 0 &&
        directory_set_groups(owner->groups, owner->groups_n) &&
        directory_set_fs_identity(owner->uid, owner->gid))
        return 0;
    saved = errno;
    lmdb_identity_restore(before);
    return saved;
}

/* The kernel drops capabilities with the last uid that is 0, unless these bits keep them. The
   owner's processes must not inspect this one, which may have root's files open. */
int lmdb_owner_stay(const struct lmdb_owner *owner) {
    int bits = prctl(PR_GET_SECUREBITS);

    if (bits < 0 || (bits & (SECBIT_NO_SETUID_FIXUP | SECBIT_KEEP_CAPS)) != 0)
        return EPERM;
    if (setgroups(owner->groups_n, owner->groups) < 0 ||
        setresgid(owner->gid, owner->gid, owner->gid) < 0 ||
        setresuid(owner->uid, owner->uid, owner->uid) < 0 || prctl(PR_SET_DUMPABLE, 0) < 0)
        return errno;
    return geteuid() == owner->uid && setuid(0) < 0 ? 0 : EPERM;
}

void lmdb_identity_restore(struct lmdb_identity *before) {
    int saved = errno;

    if (!before->changed)
        return;
    /* If this fails, the thread is left with fewer rights, not with more. */
    (void)directory_set_fs_identity(before->uid, before->gid);
    (void)directory_set_groups(before->groups, before->groups_n);
    free(before->groups);
    *before = (struct lmdb_identity){0};
    errno = saved;
}

int lmdb_owner_fail(const struct lmdb_env *env, int rc, struct idem_error *err) {
    return idem_error_set(err, rc == ENOMEM ? IDEM_E_NOMEM : IDEM_E_REFUSED,
                          "%s belongs to uid %lu, and root uses another user's store only as that "
                          "user, which it cannot become: %s; start this as that user",
                          env->config.path, (unsigned long)env->owner.uid, strerror(rc));
}

/* The directory's files. */

static const char *directory_kind_name(mode_t mode) {
    switch (mode & S_IFMT) {
    case S_IFLNK:
        return "a symbolic link";
    case S_IFDIR:
        return "a directory";
    case S_IFIFO:
        return "a FIFO";
    case S_IFSOCK:
        return "a socket";
    case S_IFCHR:
    case S_IFBLK:
        return "a device";
    default:
        return "a regular file";
    }
}

static int directory_refuse_kind(const struct lmdb_env *env, const char *name,
                                 const struct stat *st, mode_t kind, struct idem_error *err) {
    if ((st->st_mode & S_IFMT) == kind)
        return idem_error_set(err, IDEM_E_REFUSED,
                              "%s/%s has %lu names (hard links), and a store's file has one: what "
                              "is written here would change the other; find it (find -inum %llu), "
                              "then remove the one that is wrong",
                              env->config.path, name, (unsigned long)st->st_nlink,
                              (unsigned long long)st->st_ino);
    return idem_error_set(err, IDEM_E_REFUSED,
                          "%s/%s is %s, where the store needs %s of its own: it was not made by "
                          "Idem; find out how it came there (ls -l), then remove it",
                          env->config.path, name, directory_kind_name(st->st_mode),
                          directory_kind_name(kind));
}

static bool directory_is_single_file(const struct stat *st, mode_t kind) {
    return (st->st_mode & S_IFMT) == kind && st->st_nlink == 1;
}

/* *ret is all zero if there is no such entry. */
static int directory_stat_entry(const struct lmdb_env *env, const char *name, struct stat *ret,
                                struct idem_error *err) {
    *ret = (struct stat){0};
    if (fstatat(env->dir_fd, name, ret, AT_SYMLINK_NOFOLLOW) == 0)
        return directory_is_single_file(ret, S_IFREG)
                   ? 0
                   : directory_refuse_kind(env, name, ret, S_IFREG, err);
    if (errno == ENOENT)
        return 0;
    return idem_error_set(err, IDEM_E_REFUSED, "cannot look at %s/%s: %s", env->config.path, name,
                          strerror(errno));
}

int lmdb_directory_find(const struct lmdb_env *env, const char *name, struct lmdb_file *ret,
                        struct idem_error *err) {
    struct stat st;
    int rc = directory_stat_entry(env, name, &st, err);

    *ret = (struct lmdb_file){st.st_dev, st.st_ino};
    return rc;
}

static int directory_refuse_open(const struct lmdb_env *env, const char *name,
                                 const struct stat *st, int code, struct idem_error *err) {
    if (code == EACCES && st->st_nlink != 0 && geteuid() == 0 && st->st_uid != env->owner.uid)
        return idem_error_set(err, IDEM_E_REFUSED,
                              "cannot open %s/%s: it belongs to uid %lu and the directory to uid "
                              "%lu, as whom root uses it; if the file is the store's, give it to "
                              "the directory's owner (chown %lu)",
                              env->config.path, name, (unsigned long)st->st_uid,
                              (unsigned long)env->owner.uid, (unsigned long)env->owner.uid);
    return idem_error_set(
        err, code == ENOSPC || code == EDQUOT ? IDEM_E_FULL : IDEM_E_REFUSED,
        "cannot open %s/%s: %s; the store's directory and its files must be writable "
        "by this user",
        env->config.path, name, strerror(code));
}

/* Checked before, because opening a device may have effects, and after, because the name may
   have been swapped meanwhile. */
int lmdb_directory_open_file(const struct lmdb_env *env, const char *name, int flags, int *ret_fd,
                             struct stat *ret_st, struct idem_error *err) {
    struct stat st;
    int fd, rc = directory_stat_entry(env, name, &st, err);

    if (rc != 0)
        return rc;
    fd = openat(env->dir_fd, name, flags | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0600);
    if (fd < 0 && errno == ENOENT && (flags & O_CREAT) == 0) {
        *ret_fd = -1;
        return 0;
    }
    if (fd < 0)
        return directory_refuse_open(env, name, &st, errno, err);
    rc = fstat(fd, &st) < 0 ? lmdb_fail(env, err, errno, "look at a file") : 0;
    if (rc == 0 && !directory_is_single_file(&st, S_IFREG))
        rc = directory_refuse_kind(env, name, &st, S_IFREG, err);
    if (rc != 0) {
        close(fd);
        return rc;
    }
    *ret_fd = fd;
    *ret_st = st;
    return 0;
}

int lmdb_directory_open_fifo(const struct lmdb_env *env, const char *name, int flags) {
    struct stat st;
    int fd;

    if (fstatat(env->dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return -1;
    fd = directory_is_single_file(&st, S_IFIFO)
             ? openat(env->dir_fd, name, flags | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC)
             : -1;
    if (fd >= 0 && fstat(fd, &st) == 0 && directory_is_single_file(&st, S_IFIFO))
        return fd;
    if (fd >= 0)
        close(fd);
    if (!directory_is_single_file(&st, S_IFIFO))
        errno = ENOENT; /* the entry is not a FIFO of the store */
    return -1;
}

int lmdb_directory_refuse_replaced(const struct lmdb_env *env, const char *name,
                                   struct idem_error *err) {
    return idem_error_set(err, IDEM_E_REFUSED,
                          "%s/%s was replaced while the store was opened; find out by whom, then "
                          "open it again",
                          env->config.path, name);
}

int lmdb_directory_check_file(const struct lmdb_env *env, const char *name,
                              const struct lmdb_file *file, struct idem_error *err) {
    struct lmdb_file now;
    int rc = lmdb_directory_find(env, name, &now, err);

    if (rc != 0 || (now.dev == file->dev && now.ino == file->ino && now.ino != 0))
        return rc;
    return lmdb_directory_refuse_replaced(env, name, err);
}

/* Permissions. */

static bool lmdb_directory_may_use(int fd, const char *path) {
    static const char *const files[] = {"data.mdb", "lock.mdb", "idem.lock", "idem.shared",
                                        "idem.state"};
    bool may = access(path, R_OK | W_OK | X_OK) == 0;

    for (size_t i = 0; may && i < sizeof(files) / sizeof(files[0]); i++)
        may = faccessat(fd, files[i], R_OK | W_OK, 0) == 0 || errno == ENOENT;
    return may;
}

bool lmdb_directory_may_open(const char *path) {
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC), code;
    char above[PATH_MAX];
    bool may;

    if (fd < 0 && errno == ENOENT && strlen(path) < sizeof(above))
        return access(dirname(memcpy(above, path, strlen(path) + 1)), W_OK | X_OK) == 0;
    may = fd >= 0 && lmdb_directory_may_use(fd, path);
    code = errno;
    if (fd >= 0)
        close(fd);
    errno = code;
    return may;
}
