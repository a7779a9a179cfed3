/*
 * The free list, read, and the length of the file, checked.
 *
 * LMDB maps the file and reads it where it ends, which is a SIGBUS. A file may
 * rightly be shorter than its last page number says: pages that were taken and
 * given back in one transaction are never written. So the file is lengthened
 * with zeros for the time of the check, and every page that was missing must be
 * on the free list; otherwise it is put back to its length and refused.
 */
#include "store/lmdb/check.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "core/error.h"

/* LMDB's own number for the table of free pages; its tools use it so. */
#define FREE_TABLE 0

typedef int free_fn(const size_t *ids, size_t n, void *data);

/* Each entry of the free list is a count and that many page numbers. */
static int free_each(MDB_txn *txn, free_fn *fn, void *data) {
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

static int free_count(const size_t *ids, size_t n, void *data) {
    (void)ids;
    *(size_t *)data += n;
    return 0;
}

int lmdb_check_free(MDB_txn *txn, size_t *ret) {
    size_t n = 0;
    int rc = free_each(txn, free_count, &n);

    if (rc == 0)
        *ret = n;
    return rc;
}

struct missing {
    size_t from, n;
};

static int free_cross_off(const size_t *ids, size_t n, void *data) {
    struct missing *missing = data;

    for (size_t i = 0; i < n; i++)
        missing->n -= ids[i] >= missing->from;
    return 0;
}

/* 0 if every page from `from` on is free; MDB codes. */
static int missing_are_free(struct lmdb_env *env, struct missing *missing) {
    MDB_txn *txn;
    int rc = mdb_txn_begin(env->mdb, NULL, MDB_RDONLY, &txn);

    if (rc != 0)
        return rc;
    rc = free_each(txn, free_cross_off, missing);
    mdb_txn_abort(txn);
    if (rc == 0 && missing->n != 0)
        rc = MDB_CORRUPTED;
    return rc;
}

int lmdb_check_length(struct lmdb_env *env, struct idem_error *err) {
    int fd = openat(env->dir_fd, "data.mdb", O_RDWR | O_CLOEXEC);
    struct missing missing;
    MDB_envinfo info;
    MDB_stat stat;
    struct stat st = {0};
    off_t need;
    int rc = 0;

    mdb_env_info(env->mdb, &info);
    mdb_env_stat(env->mdb, &stat);
    need = (off_t)((info.me_last_pgno + 1) * stat.ms_psize);
    if (fd < 0 || fstat(fd, &st) < 0) {
        rc = errno;
    } else if (st.st_size < need) {
        missing.from = (size_t)st.st_size / stat.ms_psize;
        missing.n = info.me_last_pgno + 1 - missing.from;
        rc = ftruncate(fd, need) < 0 ? errno : missing_are_free(env, &missing);
        if (rc != 0 && ftruncate(fd, st.st_size) < 0)
            rc = errno;
    }
    if (fd >= 0)
        close(fd);
    if (rc == MDB_CORRUPTED || rc == MDB_PAGE_NOTFOUND || rc == MDB_INVALID)
        return idem_error_set(err, IDEM_E_CORRUPT,
                              "%s/data.mdb is truncated: it has %lld bytes of "
                              "%lld; restore it from a copy, or move it away to start empty",
                              env->config.path, (long long)st.st_size, (long long)need);
    return rc == 0 ? 0 : lmdb_fail(env, err, rc, "check the length of data.mdb");
}

int lmdb_check_present(struct lmdb_env *env, struct idem_error *err) {
    struct stat st;

    if (fstatat(env->dir_fd, "data.mdb", &st, 0) < 0 || st.st_size > 0)
        return 0;
    return idem_error_set(
        err, IDEM_E_CORRUPT,
        "%s/data.mdb is truncated: it is empty, and the store was in use; restore "
        "it from a copy, or move it away to start empty",
        env->config.path);
}

/* What LMDB makes it for 1024 readers, and a little more. */
#define LOCK_FILE_LEN (1024 * 64 + 256)

int lmdb_check_lock_file(struct lmdb_env *env, struct idem_error *err) {
    int fd = openat(env->dir_fd, "lock.mdb", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    int rc = fd < 0 ? errno : posix_fallocate(fd, 0, LOCK_FILE_LEN);

    if (fd >= 0)
        close(fd);
    return rc == 0 ? 0 : lmdb_fail(env, err, rc, "allocate lock.mdb");
}

bool lmdb_check_disk_full(const struct lmdb_env *env) {
    struct statvfs fs;

    return fstatvfs(env->dir_fd, &fs) == 0 && (uint64_t)fs.f_bavail * fs.f_frsize < 1 << 20;
}

static _Thread_local jmp_buf *guarded;

/* LMDB aborts when this returns. */
void lmdb_check_failed(MDB_env *mdb, const char *text) {
    (void)mdb;
    (void)text;
    if (guarded != NULL)
        longjmp(*guarded, 1);
}

int lmdb_check_guard(int (*fn)(void *data), void *data) {
    jmp_buf here, *outer = guarded;
    int rc;

    if (setjmp(here) == 0) {
        guarded = &here;
        rc = fn(data);
    } else {
        rc = MDB_CORRUPTED;
    }
    guarded = outer;
    return rc;
}
