/*
 * Checks LMDB's files where LMDB trusts them. LMDB maps the data file and reads
 * past its end, or wherever a damaged page points: that is a SIGBUS or an
 * abort. It also maps its lock file without allocating it.
 */
#include "store/lmdb/lmdb_check.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/error.h"
#include "store/lmdb/lmdb_directory.h"
#include "store/lmdb/lmdb_tree.h"

/* The fixed number of LMDB's table of free pages; LMDB's own tools rely on it too. */
#define FREE_TABLE 0

typedef int free_fn(const size_t *ids, size_t n, void *data);

/* Each entry of the free list is a count and that many page numbers. */
static int check_each_free_list(MDB_txn *txn, free_fn *fn, void *data) {
    MDB_cursor *cursor;
    MDB_val name, value;
    int rc = mdb_cursor_open(txn, FREE_TABLE, &cursor);

    if (rc != 0)
        return rc;
    while ((rc = mdb_cursor_get(cursor, &name, &value, MDB_NEXT)) == 0) {
        const size_t *ids = value.mv_data;

        if (value.mv_size < sizeof(*ids) || value.mv_size / sizeof(*ids) - 1 < ids[0]) {
            rc = MDB_CORRUPTED;
            break;
        }
        rc = fn(ids + 1, ids[0], data);
        if (rc != 0)
            break;
    }
    mdb_cursor_close(cursor);
    return rc == MDB_NOTFOUND ? 0 : rc;
}

static int check_count_free(const size_t *ids, size_t n, void *data) {
    (void)ids;
    *(size_t *)data += n;
    return 0;
}

int lmdb_check_free(MDB_txn *txn, size_t *ret) {
    size_t n = 0;
    int rc = check_each_free_list(txn, check_count_free, &n);

    if (rc == 0)
        *ret = n;
    return rc;
}

static int check_file_bad(const struct lmdb_env *env, off_t have, off_t need, size_t page,
                          struct idem_error *err) {
    if (have < need)
        return idem_error_set(
            err, IDEM_E_CORRUPT,
            "%s/data.mdb is truncated: it has %lld bytes of %lld; restore it from "
            "a copy, or move it away to start empty",
            env->config.path, (long long)have, (long long)need);
    return idem_error_set(err, IDEM_E_CORRUPT,
                          "%s/data.mdb is damaged: page %zu is not what it should be; restore it "
                          "from a copy, or move it away to start empty",
                          env->config.path, page);
}

/* A sound file may be shorter than its last page number implies: pages that were taken and given
   back in one transaction are never written. The file is lengthened by a hole, so that every mapped
   page exists. */
int lmdb_check_file(struct lmdb_env *env, struct idem_error *err) {
    MDB_envinfo info;
    MDB_stat stat;
    struct stat st = {0};
    size_t page = 0;
    off_t need;
    int fd = -1, rc = lmdb_folder_file(env, "data.mdb", O_RDWR, &fd, &st, err);

    if (rc != 0)
        return rc;
    mdb_env_info(env->mdb, &info);
    mdb_env_stat(env->mdb, &stat);
    need = (off_t)((info.me_last_pgno + 1) * stat.ms_psize);
    rc = fd < 0 ? ENOENT : lmdb_tree_check(fd, stat.ms_psize, &page);
    if (rc == 0 && st.st_size < need && ftruncate(fd, need) < 0)
        rc = errno;
    if (fd >= 0)
        close(fd);
    if (rc == MDB_CORRUPTED)
        return check_file_bad(env, st.st_size, need, page, err);
    return rc == 0 ? 0 : lmdb_fail(env, err, rc, "check data.mdb");
}

int lmdb_check_present(struct lmdb_env *env, struct idem_error *err) {
    struct stat st;

    if (fstatat(env->dir_fd, "data.mdb", &st, AT_SYMLINK_NOFOLLOW) < 0 || st.st_size > 0 ||
        !S_ISREG(st.st_mode)) /* a file of another kind is refused when it is opened */
        return 0;
    return idem_error_set(
        err, IDEM_E_CORRUPT,
        "%s/data.mdb is truncated: it is empty, and the store was in use; restore "
        "it from a copy, or move it away to start empty",
        env->config.path);
}

/* The length that LMDB gives it for 1024 readers, and a little more. */
#define LOCK_FILE_LEN (1024 * 64 + 256)

int lmdb_check_lock_file(struct lmdb_env *env, struct idem_error *err) {
    struct stat st;
    int fd, rc = lmdb_folder_file(env, "lock.mdb", O_RDWR | O_CREAT, &fd, &st, err);

    if (rc != 0)
        return rc;
    rc = posix_fallocate(fd, 0, LOCK_FILE_LEN);
    close(fd);
    return rc == 0 ? 0 : lmdb_fail(env, err, rc, "allocate lock.mdb");
}

bool lmdb_check_disk_full(const struct lmdb_env *env) {
    struct statvfs fs;

    return fstatvfs(env->dir_fd, &fs) == 0 && (uint64_t)fs.f_bavail * fs.f_frsize < 1 << 20;
}
