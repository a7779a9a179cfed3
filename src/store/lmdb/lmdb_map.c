/*
 * Maps data.mdb.
 *
 * With sync=always LMDB writes its pages with write(); the map is for reading,
 * and as large as the file may ever become. With sync=off nothing waits for the
 * disk, and most of the cost of a commit is copying whole pages into the
 * kernel, so the pages are written in the map itself (MDB_WRITEMAP). Such a
 * write cannot fail, it can only kill the process (SIGBUS, if the disk is
 * full). So every mapped page is allocated first, and the map grows in steps,
 * each of which can fail with an error. File systems that may still run out of
 * room for an allocated page (those that copy on write) are written to as with
 * sync=always.
 *
 * LMDB cuts the file to the length that it maps. So all processes read, change
 * and map the length under one lock, and the file never becomes shorter.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/error.h"
#include "store/lmdb/lmdb_check.h"
#include "store/lmdb/lmdb_directory.h"

/* Room beyond the limit, for finishes and the sweep when the store is full. */
#define RESERVE_MIN ((size_t)1 << 20)

/* Each step maps the file anew, and then every page faults once more. */
#define STEP_MIN ((size_t)1 << 20)
#define STEP_MAX ((size_t)256 << 20)
#define STEP_LEAST ((size_t)64 << 10) /* if the disk is nearly full */

size_t lmdb_map_limit(const struct lmdb_config *config) {
    size_t reserve = config->size / 16 > RESERVE_MIN ? config->size / 16 : RESERVE_MIN;

    return config->size + reserve;
}

static size_t map_next_length(const struct lmdb_env *env, size_t length) {
    size_t limit = lmdb_map_limit(&env->config), step = length;

    if (step < STEP_MIN)
        step = STEP_MIN;
    if (step > STEP_MAX)
        step = STEP_MAX;
    return length >= limit || step > limit - length ? limit : length + step;
}

/* True if an allocated page can always be written. Not on XFS: there cp lets a copy share the
   file's blocks (reflink), and then each written page needs a new block. */
static bool map_allocation_holds(int fd) {
    struct statfs fs;

    return fstatfs(fd, &fs) == 0 && (fs.f_type == EXT4_SUPER_MAGIC || fs.f_type == TMPFS_MAGIC);
}

static int map_allocate(int fd, size_t from, size_t to) {
    return from < to && fallocate(fd, 0, (off_t)from, (off_t)(to - from)) < 0 ? errno : 0;
}

/* Limits the length to RLIMIT_FSIZE (ulimit -f), unless less than a step would be left: a write
   beyond it raises SIGXFSZ, which ends a process that does not ignore it. */
static size_t map_length_allowed(size_t from, size_t to) {
    struct rlimit limit;

    if (getrlimit(RLIMIT_FSIZE, &limit) < 0 || limit.rlim_cur >= to ||
        limit.rlim_cur < from + STEP_LEAST)
        return to;
    return (size_t)limit.rlim_cur & ~(STEP_LEAST - 1);
}

/* Allocates the file from its length up to *to, or as far as the disk has room; *to is the new
   length. Returns 0 or an errno. */
static int map_lengthen_file(int fd, size_t from, size_t *to) {
    int rc = map_allocate(fd, from, *to = map_length_allowed(from, *to));

    while ((rc == ENOSPC || rc == EDQUOT || rc == EFBIG) && *to - from > STEP_LEAST) {
        *to = from + (*to - from) / 2;
        rc = map_allocate(fd, from, *to);
    }
    return rc;
}

/* LMDB opens its files by name and follows links, so the names are checked first. lock.mdb is
   not opened for that, because closing it would release LMDB's locks. */
static int map_check_files(struct lmdb_env *env, struct idem_error *err) {
    struct stat st;
    int fd = -1, rc = lmdb_directory_open_file(env, "data.mdb", O_RDWR, &fd, &st, err);

    if (fd >= 0)
        close(fd);
    return rc == 0 ? lmdb_directory_find(env, "lock.mdb", &env->lock_file, err) : rc;
}

static unsigned map_is_file(const char *descriptor, const struct lmdb_file *file) {
    struct stat st;

    return descriptor[0] != '.' && fstat((int)strtol(descriptor, NULL, 10), &st) == 0 &&
           st.st_dev == file->dev && st.st_ino == file->ino;
}

/* Counts the descriptors of this process that refer to the file, by fstat(). readdir(3) is
   avoided because it needs memory. */
static unsigned map_count_descriptors(const struct lmdb_file *file) {
    int fd = open("/proc/self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    _Alignas(struct dirent64) char bytes[4096];
    ssize_t n = 0;
    unsigned found = 0;

    while (fd >= 0 && (n = getdents64(fd, bytes, sizeof(bytes))) > 0) {
        for (ssize_t at = 0; at < n;) {
            const struct dirent64 *entry = (const struct dirent64 *)(bytes + at);

            found += map_is_file(entry->d_name, file);
            at += entry->d_reclen;
        }
    }
    if (fd >= 0)
        close(fd);
    return found;
}

/* Checks afterwards that LMDB has the named files open. LMDB does not expose its descriptor of
   lock.mdb, so this process must have one more of that file than before. (A forked child has one of
   its parent's.) */
static int map_verify_files(struct lmdb_env *env, unsigned before, struct idem_error *err) {
    struct lmdb_file *lock = &env->lock_file;
    int rc = lmdb_directory_check_file(env, "data.mdb", &env->data_file, err);

    if (rc == 0 && lock->ino == 0) /* LMDB has created it */
        rc = lmdb_directory_find(env, "lock.mdb", lock, err);
    if (rc == 0 && map_count_descriptors(lock) <= before)
        return lmdb_directory_refuse_replaced(env, "lock.mdb", err);
    return rc == 0 ? lmdb_directory_check_file(env, "lock.mdb", lock, err) : rc;
}

/* Opens LMDB's environment. It uses the directory's descriptor, in case the name now belongs to
   another directory. */
static int map_open_files(struct lmdb_env *env, unsigned flags, size_t map) {
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
    /* LMDB does not set this on its main descriptor; commands that the process starts must not
       inherit it. */
    (void)fcntl(fd, F_SETFD, FD_CLOEXEC);
    return 0;
}

static int map_start(struct lmdb_env *env, unsigned flags, size_t map, struct idem_error *err) {
    int rc = map_check_files(env, err);
    unsigned before;

    if (rc != 0)
        return rc;
    before = env->lock_file.ino == 0 ? 0 : map_count_descriptors(&env->lock_file);
    rc = map_open_files(env, flags, map);
    return rc == 0 ? map_verify_files(env, before, err) : lmdb_fail(env, err, rc, "open it");
}

/* Called with the lock on the length held. Allocates the whole file, and a step beyond the used
   part. *ret_length is unchanged if the file must not be written in the map. */
static int map_make_length(const struct lmdb_env *env, size_t used, size_t *ret_length,
                           struct idem_error *err) {
    size_t length = map_next_length(env, used);
    struct stat st = {0};
    int fd = -1, rc = lmdb_directory_open_file(env, "data.mdb", O_RDWR, &fd, &st, err);

    if (rc != 0)
        return rc;
    rc = fd < 0 ? ENOENT : 0;
    if (rc == 0 && map_allocation_holds(fd)) {
        rc = map_allocate(fd, 0, (size_t)st.st_size);
        if (rc == 0 && length > (size_t)st.st_size &&
            map_lengthen_file(fd, (size_t)st.st_size, &length) != 0)
            length = 0; /* the next write finds the error again and reports it */
        if (rc == 0)
            *ret_length = length > (size_t)st.st_size ? length : (size_t)st.st_size;
    }
    if (fd >= 0)
        close(fd);
    return rc == 0 || rc == EOPNOTSUPP ? 0 : lmdb_fail(env, err, rc, "open it");
}

/* Maps the file for writing. Where that is not safe, it keeps the mode it has. */
static int map_open_direct(struct lmdb_env *env, size_t used, struct idem_error *err) {
    size_t length = 0;
    int rc = lmdb_lock_length(env) < 0 ? lmdb_fail(env, err, errno, "open it")
                                       : map_make_length(env, used, &length, err);

    if (rc == 0 && length > 0) {
        if (env->mdb != NULL)
            mdb_env_close(env->mdb);
        env->mdb = NULL;
        rc = map_start(env, MDB_WRITEMAP, length, err);
        env->direct = rc == 0;
    }
    lmdb_unlock_length(env);
    return rc;
}

size_t lmdb_map_used(const struct lmdb_env *env, size_t *ret_page_size) {
    MDB_envinfo info;
    MDB_stat stat;

    mdb_env_info(env->mdb, &info);
    mdb_env_stat(env->mdb, &stat);
    if (ret_page_size != NULL)
        *ret_page_size = stat.ms_psize;
    return (info.me_last_pgno + 1) * stat.ms_psize;
}

/* The first process opens the file for reading, and checks it before anything is allocated or
   mapped for writing. */
int lmdb_map_open(struct lmdb_env *env, bool alone, bool trusted, struct idem_error *err) {
    bool off = env->config.sync == LMDB_SYNC_OFF;
    int rc = 0;

    if (!alone && off)
        rc = map_open_direct(env, 0, err);
    if (rc == 0 && env->mdb == NULL)
        rc = map_start(env, 0, lmdb_map_limit(&env->config), err);
    if (rc == 0 && alone && !trusted)
        rc = lmdb_check_file(env, err);
    if (rc == 0 && alone && off)
        rc = map_open_direct(env, lmdb_map_used(env, NULL), err);
    return rc;
}

/* Finds the length to map: the file's, or a step more if all of the file is mapped already. */
static int map_find_length(const struct lmdb_env *env, int fd, bool grow, size_t *ret_length) {
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
        *ret_length = map_next_length(env, length);
        return map_lengthen_file(fd, length, ret_length);
    }
    *ret_length = length;
    return 0;
}

/* LMDB unmaps first: if it then cannot map, the environment is unusable. */
static int map_set(struct lmdb_env *env, size_t length) {
    int rc = mdb_env_set_mapsize(env->mdb, length);

    env->unmapped = rc != 0;
    return rc;
}

static int map_change_length(struct lmdb_env *env, bool grow) {
    mdb_filehandle_t fd = -1;
    size_t length = 0;
    int rc = lmdb_lock_length(env) < 0 ? errno : mdb_env_get_fd(env->mdb, &fd);

    if (rc == 0)
        rc = map_find_length(env, fd, grow, &length);
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
        rc = map_change_length(env, grow);
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
