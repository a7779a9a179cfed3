/*
 * The store's directory: opened, used as its owner, and searched for what is
 * not a file of ours.
 *
 * Whoever owns the directory may put a link where a file of the store is
 * expected. Root that opened it would write to the file behind the link, which
 * may be root's. So root becomes the directory's owner whenever names in it are
 * used: then a link leads nowhere that the owner could not go by itself, however
 * fast names are swapped. What is changed is the identity of one thread, and for
 * files only (setfsuid(2)): other threads, the commands that are started and the
 * audit stay root's.
 *
 * The second line, for every user: files are opened in the directory that was
 * looked at, through no link, and must be regular files (or FIFOs) with one name.
 */
#include "store/lmdb/folder.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
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

#include "core/error.h"

/* The group of an owner that has no entry in the user database: one that owns nothing. */
#define NO_GROUP ((gid_t)65534)
#define GROUPS_MAX 65536
#define ENTRY_MAX ((size_t)1 << 20)

/* 16-bit ids on some 32-bit machines. */
#ifdef SYS_setgroups32
#define SETGROUPS SYS_setgroups32
#else
#define SETGROUPS SYS_setgroups
#endif

static int folder_make(const char *path, struct idem_error *err) {
    if (mkdir(path, 0700) == 0 || errno == EEXIST)
        return 0;
    return idem_error_set(err, errno == ENOSPC ? IDEM_E_FULL : IDEM_E_REFUSED,
                          "cannot make the store's folder %s: %s%s", path, strerror(errno),
                          errno == ENOENT ? "; make the folder above it first" : "");
}

/* Another user's link must not lead root into a directory of root's. Looked at after the directory
   was opened: a name that is swapped back leads to another inode. */
static bool name_trusted(const char *path, const struct stat *folder) {
    size_t len = strlen(path);
    char name[PATH_MAX];
    struct stat st;

    if (geteuid() != 0 || folder->st_uid != 0)
        return true;
    while (len > 1 && path[len - 1] == '/') /* which would follow the link */
        len--;
    if (len >= sizeof(name)) /* which could not have been opened */
        return false;
    memcpy(name, path, len);
    name[len] = '\0';
    if (lstat(name, &st) < 0)
        return false;
    return S_ISLNK(st.st_mode) ? st.st_uid == 0
                               : st.st_dev == folder->st_dev && st.st_ino == folder->st_ino;
}

int lmdb_folder_open(const struct lmdb_config *config, int *ret_fd, struct stat *ret_st,
                     struct idem_error *err) {
    const char *path = config->path;
    struct stat data;
    int fd, rc = config->create ? folder_make(path, err) : 0;

    if (rc != 0)
        return rc;
    fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (!config->create &&
        (fd < 0 ? errno == ENOENT : fstatat(fd, "data.mdb", &data, AT_SYMLINK_NOFOLLOW) < 0)) {
        if (fd >= 0)
            close(fd);
        return idem_error_set(err, IDEM_E_ABSENT, "there is no store at %s", path);
    }
    if (fd < 0 || fstat(fd, ret_st) < 0) {
        int saved = errno;

        if (fd >= 0)
            close(fd);
        return idem_error_set(err, IDEM_E_REFUSED, "cannot open the store's folder %s: %s", path,
                              strerror(saved));
    }
    if (!name_trusted(path, ret_st)) {
        close(fd);
        return idem_error_set(err, IDEM_E_REFUSED,
                              "%s is a link of another user to a directory of root's, or was "
                              "replaced meanwhile; name the store's directory itself",
                              path);
    }
    *ret_fd = fd;
    return 0;
}

/* The owner. */

/* The entry of the user database, with a buffer that grows as it must. *ret_buf is to be freed;
   false: there is no such user. */
static bool user_find(uid_t uid, struct passwd *ret, char **ret_buf) {
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

/* All groups of the owner, as after a login; none without memory, which is safe. */
static void groups_find(struct lmdb_owner *owner, const char *name) {
    int n = 0;

    (void)getgrouplist(name, owner->gid, NULL, &n);
    if (n <= 0 || n > GROUPS_MAX)
        return;
    owner->groups = calloc((size_t)n, sizeof(gid_t));
    if (owner->groups != NULL && getgrouplist(name, owner->gid, owner->groups, &n) >= 0)
        owner->groups_n = (size_t)n;
}

/* Not the directory's own group: that may be one which its owner is no member of. */
void lmdb_owner_find(struct lmdb_owner *owner, uid_t uid) {
    struct passwd user;
    char *buf;

    *owner = (struct lmdb_owner){.uid = uid, .gid = NO_GROUP};
    if (geteuid() != 0 || uid == 0)
        return;
    if (user_find(uid, &user, &buf)) {
        owner->gid = user.pw_gid;
        groups_find(owner, user.pw_name);
    }
    free(buf);
}

void lmdb_owner_release(struct lmdb_owner *owner) {
    free(owner->groups);
    owner->groups = NULL;
    owner->groups_n = 0;
}

/* By the system call: the function of that name changes all threads. */
static bool groups_set(const gid_t *groups, size_t n) {
    return syscall(SETGROUPS, n, groups) == 0;
}

/* setfsuid() returns what was before, whether or not it did anything. */
static bool files_as(uid_t uid, gid_t gid) {
    (void)setfsgid(gid);
    (void)setfsuid(uid);
    return (uid_t)setfsuid((uid_t)-1) == uid && (gid_t)setfsgid((gid_t)-1) == gid;
}

static bool groups_save(struct lmdb_identity *before) {
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
        return 0; /* the writer thread, which was started so */
    if (!groups_save(before)) {
        saved = errno;
        free(before->groups);
        return saved;
    }
    before->changed = true;
    errno = EPERM;
    /* With that bit set, root's capabilities would outlast the change. */
    if ((prctl(PR_GET_SECUREBITS) & SECBIT_NO_SETUID_FIXUP) == 0 &&
        groups_set(owner->groups, owner->groups_n) && files_as(owner->uid, owner->gid))
        return 0;
    saved = errno;
    lmdb_owner_resign(before);
    return saved;
}

void lmdb_owner_resign(struct lmdb_identity *before) {
    int saved = errno;

    if (!before->changed)
        return;
    /* If this fails, the thread is left with fewer rights, not with more. */
    (void)files_as(before->uid, before->gid);
    (void)groups_set(before->groups, before->groups_n);
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

/* Its files. */

static const char *kind_name(mode_t mode) {
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

static int kind_refuse(const struct lmdb_env *env, const char *name, const struct stat *st,
                       mode_t kind, struct idem_error *err) {
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
                          env->config.path, name, kind_name(st->st_mode), kind_name(kind));
}

static bool kind_fits(const struct stat *st, mode_t kind) {
    return (st->st_mode & S_IFMT) == kind && st->st_nlink == 1;
}

/* All zero: there is none. */
static int name_look(const struct lmdb_env *env, const char *name, struct stat *ret,
                     struct idem_error *err) {
    *ret = (struct stat){0};
    if (fstatat(env->dir_fd, name, ret, AT_SYMLINK_NOFOLLOW) == 0)
        return kind_fits(ret, S_IFREG) ? 0 : kind_refuse(env, name, ret, S_IFREG, err);
    if (errno == ENOENT)
        return 0;
    return idem_error_set(err, IDEM_E_REFUSED, "cannot look at %s/%s: %s", env->config.path, name,
                          strerror(errno));
}

int lmdb_folder_look(const struct lmdb_env *env, const char *name, struct lmdb_file *ret,
                     struct idem_error *err) {
    struct stat st;
    int rc = name_look(env, name, &st, err);

    *ret = (struct lmdb_file){st.st_dev, st.st_ino};
    return rc;
}

static int open_refuse(const struct lmdb_env *env, const char *name, const struct stat *st,
                       int code, struct idem_error *err) {
    if (code == EACCES && st->st_nlink != 0 && geteuid() == 0 && st->st_uid != env->owner.uid)
        return idem_error_set(err, IDEM_E_REFUSED,
                              "cannot open %s/%s: it belongs to uid %lu and the directory to uid "
                              "%lu, as whom root uses it; if the file is the store's, give it to "
                              "the directory's owner (chown %lu)",
                              env->config.path, name, (unsigned long)st->st_uid,
                              (unsigned long)env->owner.uid, (unsigned long)env->owner.uid);
    return idem_error_set(
        err, code == ENOSPC || code == EDQUOT ? IDEM_E_FULL : IDEM_E_REFUSED,
        "cannot open %s/%s: %s; the store's folder and its files must be writable "
        "by this user",
        env->config.path, name, strerror(code));
}

/* Looked at before, because to open a device may do something, and after, because the name may have
   been swapped meanwhile. */
int lmdb_folder_file(const struct lmdb_env *env, const char *name, int flags, int *ret_fd,
                     struct stat *ret_st, struct idem_error *err) {
    struct stat st;
    int fd, rc = name_look(env, name, &st, err);

    if (rc != 0)
        return rc;
    fd = openat(env->dir_fd, name, flags | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0600);
    if (fd < 0 && errno == ENOENT && (flags & O_CREAT) == 0) {
        *ret_fd = -1;
        return 0;
    }
    if (fd < 0)
        return open_refuse(env, name, &st, errno, err);
    rc = fstat(fd, &st) < 0 ? lmdb_fail(env, err, errno, "look at a file") : 0;
    if (rc == 0 && !kind_fits(&st, S_IFREG))
        rc = kind_refuse(env, name, &st, S_IFREG, err);
    if (rc != 0) {
        close(fd);
        return rc;
    }
    *ret_fd = fd;
    *ret_st = st;
    return 0;
}

int lmdb_folder_fifo(const struct lmdb_env *env, const char *name, int flags) {
    struct stat st;
    int fd;

    if (fstatat(env->dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return -1;
    fd = kind_fits(&st, S_IFIFO)
             ? openat(env->dir_fd, name, flags | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC)
             : -1;
    if (fd >= 0 && fstat(fd, &st) == 0 && kind_fits(&st, S_IFIFO))
        return fd;
    if (fd >= 0)
        close(fd);
    if (!kind_fits(&st, S_IFIFO))
        errno = ENOENT; /* what is there is nobody's FIFO */
    return -1;
}

int lmdb_folder_same(const struct lmdb_env *env, const char *name, const struct lmdb_file *file,
                     struct idem_error *err) {
    struct lmdb_file now;
    int rc = lmdb_folder_look(env, name, &now, err);

    if (rc != 0 || (now.dev == file->dev && now.ino == file->ino && now.ino != 0))
        return rc;
    return idem_error_set(err, IDEM_E_REFUSED,
                          "%s/%s was replaced while the store was opened; find out by whom, then "
                          "open it again",
                          env->config.path, name);
}
