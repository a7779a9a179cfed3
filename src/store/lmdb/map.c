/*
 * How data.mdb is mapped.
 *
 * With sync=always LMDB writes its pages with write(), the map is for reading,
 * and as large as the file may ever become. With sync=off nothing waits for the
 * disk, and most of what a commit costs is copying whole pages into the kernel:
 * there the pages are written in the map itself (MDB_WRITEMAP). Such a write
 * cannot fail, it can only kill the process (SIGBUS, where the disk is full). So
 * every page that is mapped was allocated before, and what is mapped grows in
 * steps, each of which can fail as it should. File systems that may still run
 * out of room for a page that was allocated (those that copy on write) are
 * written to as with sync=always.
 *
 * LMDB cuts the file to the length that it maps. So all processes look at the
 * length, change it and map it under one lock, and it never becomes shorter.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "core/error.h"
#include "store/lmdb/check.h"
#include "store/lmdb/folder.h"

/* Room beyond the limit, for finishes and the sweep when the store is full. */
#define RESERVE_MIN ((size_t)1 << 20)

/* Each step maps the file anew, and every page of it is then met for the first time again. */
#define STEP_MIN ((size_t)1 << 20)
#define STEP_MAX ((size_t)256 << 20)
#define STEP_LEAST ((size_t)64 << 10) /* where the disk is nearly full */

size_t lmdb_map_limit(const struct lmdb_config *config) {
    size_t reserve = config->size / 16 > RESERVE_MIN ? config->size / 16 : RESERVE_MIN;

    return config->size + reserve;
}

/* The next length after this one. */
static size_t length_next(const struct lmdb_env *env, size_t length) {
    size_t limit = lmdb_map_limit(&env->config), step = length;

    if (step < STEP_MIN)
        step = STEP_MIN;
    if (step > STEP_MAX)
        step = STEP_MAX;
    return length >= limit || step > limit - length ? limit : length + step;
}

/* Whether a page that was allocated can always be written. Not on XFS: cp lets a copy share the
   file's blocks there (reflink), and then each page that is written needs a new one. */
static bool allocation_holds(int fd) {
    struct statfs fs;

    return fstatfs(fd, &fs) == 0 && (fs.f_type == EXT4_SUPER_MAGIC || fs.f_type == TMPFS_MAGIC);
}

static int file_allocate(int fd, size_t from, size_t to) {
    return from < to && fallocate(fd, 0, (off_t)from, (off_t)(to - from)) < 0 ? errno : 0;
}

/* No further than this process may (ulimit -f), as long as that is some way: asking for more is a
   SIGXFSZ, which ends who does not ignore it. */
static size_t length_allowed(size_t from, size_t to) {
    struct rlimit limit;

    if (getrlimit(RLIMIT_FSIZE, &limit) < 0 || limit.rlim_cur >= to ||
        limit.rlim_cur < from + STEP_LEAST)
        return to;
    return (size_t)limit.rlim_cur & ~(STEP_LEAST - 1);
}

/* Allocates the file from its length on, up to *to, or as far as the disk has room for some of
   that; errno. */
static int file_lengthen(int fd, size_t from, size_t *to) {
    int rc = file_allocate(fd, from, *to = length_allowed(from, *to));

    while ((rc == ENOSPC || rc == EDQUOT || rc == EFBIG) && *to - from > STEP_LEAST) {
        *to = from + (*to - from) / 2;
        rc = file_allocate(fd, from, *to);
    }
    return rc;
}

/* LMDB opens its files by name, and follows links: what it would find is looked at before. lock.mdb
   is only looked at, because to close it would end LMDB's locks. */
static int files_look(struct lmdb_env *env, struct idem_error *err) {
    struct stat st;
    int fd = -1, rc = lmdb_folder_file(env, "data.mdb", O_RDWR, &fd, &st, err);

    if (fd >= 0)
        close(fd);
    return rc == 0 ? lmdb_folder_look(env, "lock.mdb", &env->lock_file, err) : rc;
}

/* And looked at afterwards: what it has open is what has the names. */
static int files_verify(struct lmdb_env *env, struct idem_error *err) {
    struct lmdb_file *lock = &env->lock_file;
    int rc = lmdb_folder_same(env, "data.mdb", &env->data_file, err);

    if (rc == 0 && lock->ino == 0) /* LMDB has made it */
        rc = lmdb_folder_look(env, "lock.mdb", lock, err);
    return rc == 0 ? lmdb_folder_same(env, "lock.mdb", lock, err) : rc;
}

/* LMDB's environment, open. The directory is the one that was opened, whatever has its name by
   now. */
static int mdb_open_files(struct lmdb_env *env, unsigned flags, size_t map) {
    mdb_filehandle_t fd = -1;
    char path[32];
    struct stat st;
    int rc;

    snprintf(path, sizeof(path), "/proc/self/fd/%d", env->dir_fd);
    flags |= MDB_NOTLS | (env->config.sync == LMDB_SYNC_OFF ? MDB_NOSYNC : 0);
    if ((rc = mdb_env_create(&env->mdb)) != 0 || (rc = mdb_env_set_maxdbs(env->mdb, 8)) != 0 ||
        (rc = mdb_env_set_maxreaders(env->mdb, LMDB_READERS_MAX)) != 0 ||
        (rc = mdb_env_set_mapsize(env->mdb, map)) != 0 ||
        (rc = mdb_env_open(env->mdb, path, flags, 0600)) != 0 ||
        (rc = mdb_env_get_fd(env->mdb, &fd)) != 0)
        return rc;
    if (fstat(fd, &st) < 0)
        return errno;
    env->data_file = (struct lmdb_file){st.st_dev, st.st_ino};
    /* LMDB forgets this for its main descriptor: a command we start must not inherit it. */
    (void)fcntl(fd, F_SETFD, FD_CLOEXEC);
    return 0;
}

static int mdb_start(struct lmdb_env *env, unsigned flags, size_t map, struct idem_error *err) {
    int rc = files_look(env, err);

    if (rc != 0)
        return rc;
    rc = mdb_open_files(env, flags, map);
    return rc == 0 ? files_verify(env, err) : lmdb_fail(env, err, rc, "open it");
}

static void mdb_stop(struct lmdb_env *env) {
    mdb_env_close(env->mdb);
    env->mdb = NULL;
}

static int plain_open(struct lmdb_env *env, struct idem_error *err) {
    return mdb_start(env, 0, lmdb_map_limit(&env->config), err);
}

/* With the lock on its length held: allocates the whole file, and a step beyond what is used.
 *ret_length stays as it is where it must not be written in the map. */
static int length_make(const struct lmdb_env *env, size_t used, size_t *ret_length,
                       struct idem_error *err) {
    size_t length = length_next(env, used);
    struct stat st = {0};
    int fd = -1, rc = lmdb_folder_file(env, "data.mdb", O_RDWR, &fd, &st, err);

    if (rc != 0)
        return rc;
    rc = fd < 0 ? ENOENT : 0;
    if (rc == 0 && allocation_holds(fd)) {
        rc = file_allocate(fd, 0, (size_t)st.st_size);
        if (rc == 0 && length > (size_t)st.st_size &&
            file_lengthen(fd, (size_t)st.st_size, &length) != 0)
            length = 0; /* found out again, and told, when something is written */
        if (rc == 0)
            *ret_length = length > (size_t)st.st_size ? length : (size_t)st.st_size;
    }
    if (fd >= 0)
        close(fd);
    return rc == 0 || rc == EOPNOTSUPP ? 0 : lmdb_fail(env, err, rc, "open it");
}

/* Where it may not be, it stays or is opened as it was. */
static int direct_open(struct lmdb_env *env, size_t used, struct idem_error *err) {
    size_t length = 0;
    int rc = lmdb_lock_length(env) < 0 ? lmdb_fail(env, err, errno, "open it")
                                       : length_make(env, used, &length, err);

    if (rc == 0 && length > 0) {
        if (env->mdb != NULL)
            mdb_stop(env);
        rc = mdb_start(env, MDB_WRITEMAP, length, err);
        env->direct = rc == 0;
    }
    lmdb_unlock_length(env);
    return rc;
}

static size_t pages_used(const struct lmdb_env *env) {
    MDB_envinfo info;
    MDB_stat stat;

    mdb_env_info(env->mdb, &info);
    mdb_env_stat(env->mdb, &stat);
    return (info.me_last_pgno + 1) * stat.ms_psize;
}

/* Who comes first opens it for reading, and looks at it before anything is allocated or
   mapped for writing. */
int lmdb_map_open(struct lmdb_env *env, bool alone, bool trusted, struct idem_error *err) {
    bool off = env->config.sync == LMDB_SYNC_OFF;
    int rc = 0;

    if (!alone && off)
        rc = direct_open(env, 0, err);
    if (rc == 0 && env->mdb == NULL)
        rc = plain_open(env, err);
    if (rc == 0 && alone && !trusted)
        rc = lmdb_check_file(env, err);
    if (rc == 0 && alone && off)
        rc = direct_open(env, pages_used(env), err);
    return rc;
}

/* The length to be mapped: the file's, or a step more if that is mapped already. */
static int length_find(const struct lmdb_env *env, int fd, bool grow, size_t *ret_length) {
    MDB_envinfo info;
    struct stat st;
    size_t length;

    if (fstat(fd, &st) < 0)
        return errno;
    length = (size_t)st.st_size;
    mdb_env_info(env->mdb, &info);
    if (grow && length <= info.me_mapsize) {
        if (length >= lmdb_map_limit(&env->config))
            return MDB_MAP_FULL;
        *ret_length = length_next(env, length);
        return file_lengthen(fd, length, ret_length);
    }
    *ret_length = length;
    return 0;
}

/* LMDB unmaps first: where it then cannot map, nothing works any more. */
static int map_set(struct lmdb_env *env, size_t length) {
    int rc = mdb_env_set_mapsize(env->mdb, length);

    env->unmapped = rc != 0;
    return rc;
}

static int length_change(struct lmdb_env *env, bool grow) {
    mdb_filehandle_t fd = -1;
    size_t length = 0;
    int rc = lmdb_lock_length(env) < 0 ? errno : mdb_env_get_fd(env->mdb, &fd);

    if (rc == 0)
        rc = length_find(env, fd, grow, &length);
    if (rc == 0)
        rc = map_set(env, length);
    lmdb_unlock_length(env);
    return rc;
}

static int map_change(struct lmdb_env *env, bool grow) {
    int rc;

    pthread_rwlock_wrlock(&env->map_lock);
    if (env->unmapped)
        rc = MDB_PANIC;
    else if (env->direct)
        rc = length_change(env, grow);
    else
        rc = grow ? MDB_MAP_FULL : map_set(env, 0);
    pthread_rwlock_unlock(&env->map_lock);
    return rc;
}

int lmdb_map_adopt(struct lmdb_env *env) {
    return map_change(env, false);
}

int lmdb_map_grow(struct lmdb_env *env) {
    return map_change(env, true);
}
