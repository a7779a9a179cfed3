/*
 * An LMDB environment: opening it with every check there is, its transactions,
 * and its close.
 *
 * Errors name the file and the cause: a directory that cannot be made or
 * written, a full disk, a file that is not a store's, damaged, truncated or of
 * a newer version, another sync mode in use, a power loss under sync=off, a
 * clock that jumped.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"
#include "base/fork.h"
#include "base/list.h"
#include "store/lmdb/lmdb_check.h"
#include "store/lmdb/lmdb_directory.h"

int lmdb_fail(const struct lmdb_env *env, struct idem_error *err, int rc, const char *doing) {
    const char *path = env->config.path;

    if (rc == EIO && lmdb_check_disk_full(env))
        rc = ENOSPC; /* LMDB reports a short write as EIO */
    switch (rc) {
    case MDB_MAP_FULL:
        return idem_error_set(err, IDEM_E_FULL,
                              "%s: the store has reached its size of %zu MiB; "
                              "raise size=, shorten ttl, or wait until records expire",
                              path, env->config.size >> 20);
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
        return idem_error_set(err, IDEM_E_FULL, "%s: the disk is full: %s", path, strerror(rc));
    case LMDB_GONE:
        return idem_error_set(
            err, IDEM_E_REFUSED,
            "%s is not the file that this process opened any more, or a lock beside "
            "it is not: the store was removed, replaced or moved meanwhile; "
            "open it again",
            env->data_path);
    case ENOMEM:
        if (strcmp(doing, "open it") == 0)
            return idem_error_set(err, IDEM_E_NOMEM,
                                  "%s: cannot map %zu MiB: this process may not have so much "
                                  "address space (ulimit -v); raise that, or lower size=",
                                  path, lmdb_map_limit(&env->config) >> 20);
        return idem_error_set(err, IDEM_E_NOMEM, "%s: no memory to %s", path, doing);
    case MDB_CORRUPTED:
    case MDB_PAGE_NOTFOUND:
    case MDB_BAD_TXN:
        return idem_error_set(err, IDEM_E_CORRUPT, "%s/data.mdb is damaged: %s", path,
                              mdb_strerror(rc));
    case MDB_INVALID:
        return idem_error_set(err, IDEM_E_CORRUPT,
                              "%s/data.mdb is not a store, or its first "
                              "pages are damaged",
                              path);
    case MDB_VERSION_MISMATCH:
        return idem_error_set(err, IDEM_E_VERSION,
                              "%s/data.mdb was made by another version of "
                              "LMDB",
                              path);
    case MDB_READERS_FULL:
        return idem_error_set(err, IDEM_E_REFUSED, "%s: more than %d handles have the store open",
                              path, LMDB_READERS_MAX);
    case EAGAIN:
    case EACCES:
        if (strcmp(doing, "read") == 0)
            return idem_error_set(err, IDEM_E_REFUSED,
                                  "%s: another process with this one's pid has the store open; "
                                  "containers that share a store must share a PID namespace",
                                  path);
        if (rc == EACCES)
            break;
        return idem_error_set(err, IDEM_E_REFUSED,
                              "%s: another process has been changing the length of data.mdb for "
                              "more than a second; it may be stopped (`lsof %s/data.mdb` names it)",
                              path, path);
    case MDB_PANIC:
        return idem_error_set(err, IDEM_E_REFUSED,
                              "%s: an earlier write failed; the store must "
                              "be opened anew",
                              path);
    default:
        break;
    }
    return idem_error_set(err, IDEM_E_REFUSED, "%s: cannot %s: %s", path, doing, mdb_strerror(rc));
}

/* Begins a transaction, or renews *txn, and holds map_lock if that succeeds. */
static int env_begin_transaction(struct lmdb_env *env, unsigned flags, MDB_txn **txn) {
    int rc;

    for (int tries = 0; tries < LMDB_RESIZES_MAX; tries++) {
        pthread_rwlock_rdlock(&env->map_lock);
        if (env->unmapped)
            rc = MDB_PANIC;
        else
            rc = *txn == NULL ? mdb_txn_begin(env->mdb, NULL, flags, txn) : mdb_txn_renew(*txn);
        if (rc == 0)
            return 0;
        pthread_rwlock_unlock(&env->map_lock);
        if (rc != MDB_MAP_RESIZED || (rc = lmdb_map_adopt(env)) != 0)
            break;
        rc = MDB_MAP_RESIZED;
    }
    return rc;
}

int lmdb_read_begin(struct lmdb_store *store) {
    return env_begin_transaction(store->env, MDB_RDONLY, &store->reader);
}

void lmdb_read_end(struct lmdb_store *store) {
    mdb_txn_reset(store->reader);
    pthread_rwlock_unlock(&store->env->map_lock);
}

static bool env_is_same_file(const struct stat *st, const struct lmdb_file *file) {
    return st->st_dev == file->dev && st->st_ino == file->ino;
}

/* A file that has lost its name is not seen by any process that opens the store from now on. */
static bool env_data_is_removed(const struct lmdb_env *env) {
    struct stat st;

    if (stat(env->data_path, &st) < 0)
        return errno == ENOENT || errno == ENOTDIR;
    return !env_is_same_file(&st, &env->data_file);
}

/* The lock files of LMDB and of the store: a process that opens the store after their removal
   makes new ones, and the two processes no longer exclude each other. */
static bool env_locks_are_removed(const struct lmdb_env *env) {
    struct stat st;

    return fstatat(env->dir_fd, "lock.mdb", &st, AT_SYMLINK_NOFOLLOW) < 0 ||
           !env_is_same_file(&st, &env->lock_file) ||
           fstatat(env->dir_fd, LMDB_LOCK_FILE, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
           !env_is_same_file(&st, &env->door_file);
}

/* Checked once per tick of the kernel's clock: a few ms. */
static bool env_files_are_removed(struct lmdb_env *env) {
    struct timespec tick;

    clock_gettime(CLOCK_MONOTONIC_COARSE, &tick);
    if (tick.tv_sec == env->looked.tv_sec && tick.tv_nsec == env->looked.tv_nsec)
        return env->gone;
    env->looked = tick;
    env->gone = env_data_is_removed(env) || env_locks_are_removed(env);
    return env->gone;
}

/* Allows one write transaction per process at a time. LMDB's own lock is not enough: the memory
   beside it (the scratch buffer, index entries not written yet) is settled after LMDB has released
   its lock. */
int lmdb_write_begin(struct lmdb_env *env, MDB_txn **ret) {
    int rc;

    *ret = NULL;
    pthread_mutex_lock(&env->write_lock);
    rc = env_begin_transaction(env, 0, ret);
    if (rc == 0 && env_files_are_removed(env)) {
        mdb_txn_abort(*ret);
        pthread_rwlock_unlock(&env->map_lock);
        rc = LMDB_GONE;
    }
    if (rc != 0)
        pthread_mutex_unlock(&env->write_lock);
    return rc;
}

static void env_end_write(struct lmdb_env *env, bool stored) {
    lmdb_expiry_settled(env, stored);
    if (!stored)
        lmdb_clock_unsaved(env);
    pthread_rwlock_unlock(&env->map_lock);
    pthread_mutex_unlock(&env->write_lock);
}

/* LMDB writes data pages, syncs them, and then writes its meta page. Only if that last write
   fails does it refuse everything from then on, and only then may the transaction have been stored.
 */
int lmdb_write_commit(struct lmdb_env *env, MDB_txn *txn, bool *ret_unknown) {
    int rc = mdb_txn_commit(txn);
    MDB_txn *next;

    *ret_unknown = false;
    if (rc != 0) {
        int again = mdb_txn_begin(env->mdb, NULL, 0, &next);

        if (again == 0)
            mdb_txn_abort(next);
        *ret_unknown = again == MDB_PANIC;
    }
    env_end_write(env, rc == 0);
    return rc;
}

void lmdb_write_abort(struct lmdb_env *env, MDB_txn *txn) {
    mdb_txn_abort(txn);
    env_end_write(env, false);
}

void lmdb_readers_check(struct lmdb_env *env) {
    int dead;

    if (mdb_reader_check(env->mdb, &dead) == 0 && dead > 0)
        lmdb_expiry_died(env);
}

int lmdb_env_used(struct lmdb_env *env, MDB_txn *reader, size_t *ret) {
    size_t page_size, free_pages;
    int rc = lmdb_check_free(reader, &free_pages);

    if (rc == 0)
        *ret = lmdb_map_used(env, &page_size) - free_pages * page_size;
    return rc;
}

/* LMDB shows its free pages to read transactions only. */
static bool env_pages_are_full(struct lmdb_env *env) {
    MDB_txn *reader;
    size_t used;
    bool full;

    if (mdb_txn_begin(env->mdb, NULL, MDB_RDONLY, &reader) != 0)
        return true;
    full = lmdb_env_used(env, reader, &used) != 0 || used >= env->config.size;
    mdb_txn_abort(reader);
    return full;
}

bool lmdb_env_full(struct lmdb_env *env, MDB_txn *txn) {
    if (lmdb_map_used(env, NULL) < env->config.size)
        return false;
    if (env->full_checked != mdb_txn_id(txn)) {
        env->full_checked = mdb_txn_id(txn);
        env->full = env_pages_are_full(env);
    }
    return env->full;
}

static int env_open_database(struct lmdb_env *env, bool alone, bool trusted,
                             const struct lmdb_state *state, struct idem_error *err) {
    int rc = lmdb_map_open(env, alone, trusted, err);

    if (rc != 0)
        return rc;
    lmdb_readers_check(env);
    return lmdb_tables_open(env, alone, state, err);
}

/* With sync=off and no clean close before the machine went down, the file's contents are
   undefined. It is kept under another name. */
static int env_accept_loss(struct lmdb_env *env, struct idem_error *err) {
    char name[64];
    struct timespec now;

    if (!env->config.accept_loss)
        return idem_error_set(err, IDEM_E_CORRUPT,
                              "%s: the machine went down while the store was "
                              "open with sync=off; what it remembered cannot be trusted. Open it "
                              "once with accept_loss=yes to set data.mdb aside and start empty",
                              env->config.path);
    clock_gettime(CLOCK_REALTIME, &now);
    snprintf(name, sizeof(name), "data.mdb.lost-%lld.%09ld", (long long)now.tv_sec, now.tv_nsec);
    if ((renameat(env->dir_fd, "data.mdb", env->dir_fd, name) < 0 && errno != ENOENT) ||
        (unlinkat(env->dir_fd, "lock.mdb", 0) < 0 && errno != ENOENT) || fsync(env->dir_fd) < 0)
        return idem_error_set(err, IDEM_E_REFUSED, "%s: cannot set data.mdb aside: %s",
                              env->config.path, strerror(errno));
    return 0;
}

/* If root cannot become the owner for good, it reads nothing of another user that it has not
   checked. While another process has the store open, the check is impossible: pages change under
   it, and LMDB believes lock.mdb (the number of readers, the links of its mutexes), which it
   creates anew only for the first process. */
static int env_check_foreign(const struct lmdb_env *env, bool alone, struct idem_error *err) {
    if (alone || !env->foreign || geteuid() != 0)
        return 0;
    return idem_error_set(err, IDEM_E_REFUSED,
                          "%s belongs to uid %lu and is open in another process, so that root "
                          "cannot check what is in it; start this as that user, or use a store of "
                          "root's",
                          env->config.path, (unsigned long)env->owner.uid);
}

/* *ret_trusted: the data is unchanged since a clean close. Root does not trust another user's
   state file on that. */
static int env_check_state(struct lmdb_env *env, bool alone, const char *boot, bool *ret_known,
                           bool *ret_trusted, struct idem_error *err) {
    struct lmdb_state state = {0};
    bool found;
    int rc = lmdb_state_read(env, &state, &found, err);

    *ret_known = rc == 0 && found && state.sync == env->config.sync;
    *ret_trusted = rc == 0 && found && !env->foreign && lmdb_state_fits(env, &state);

    if (rc != 0 || !found)
        return rc;
    if (!alone && state.sync != env->config.sync)
        return idem_error_set(err, IDEM_E_REFUSED,
                              "%s is in use with sync=%s; all processes on "
                              "one store must use the same sync",
                              env->config.path, state.sync == LMDB_SYNC_OFF ? "off" : "always");
    if (alone && state.sync == LMDB_SYNC_OFF && !state.clean && strcmp(state.boot, boot) != 0)
        return env_accept_loss(env, err);
    return alone ? lmdb_check_present(env, err) : 0;
}

/* Called with idem.lock held. Data that was written with sync=off before is made durable before
   the state file records sync=always. */
static int env_open_locked(struct lmdb_env *env, bool alone, struct idem_error *err) {
    struct lmdb_state state = {.sync = env->config.sync, .clean = false};
    bool known, trusted;
    int rc;

    if ((rc = env_check_foreign(env, alone, err)) != 0 ||
        (rc = lmdb_boot_id(state.boot, err)) != 0 ||
        (rc = env_check_state(env, alone, state.boot, &known, &trusted, err)) != 0)
        return rc;
    if ((alone && (rc = lmdb_check_lock_file(env, err)) != 0) ||
        (rc = env_open_database(env, alone, trusted, &state, err)) != 0)
        return rc;
    if (alone && env->config.sync == LMDB_SYNC_ALWAYS) {
        rc = mdb_env_sync(env->mdb, 1);
        if (rc != 0)
            return lmdb_fail(env, err, rc, "sync");
        /* On a full disk the stored records can still be read. The old state file is sufficient,
           because a data file that has changed since is not trusted. */
        rc = lmdb_state_write(env, &state, err);
        if (rc != 0 && !(rc == IDEM_E_FULL && known))
            return rc;
    }
    rc = lmdb_shared_open(env, alone, err);
    if (rc != 0 || env->config.sync == LMDB_SYNC_OFF)
        return rc;
    return lmdb_writer_start(env, err);
}

/* Writes the gathered index entries. If this fails, the crawl finds their records. */
void lmdb_env_flush(struct lmdb_env *env) {
    MDB_txn *txn;
    bool unknown;

    if (!lmdb_expiry_waits(env) || lmdb_write_begin(env, &txn) != 0)
        return;
    if (lmdb_expiry_flush(env, txn, true) == 0)
        (void)lmdb_write_commit(env, txn, &unknown);
    else
        lmdb_write_abort(env, txn);
}

/* Syncs the whole file. LMDB itself syncs only the part that this process has mapped, which may
   be less than other processes have written. */
static bool env_sync(struct lmdb_env *env) {
    mdb_filehandle_t fd;

    return mdb_env_get_fd(env->mdb, &fd) == 0 && fdatasync(fd) == 0;
}

/* The last process to close makes everything durable and records a clean close. */
static void env_seal(struct lmdb_env *env) {
    struct lmdb_state state = {.sync = env->config.sync, .clean = true};

    if (lmdb_lock_leave(env) && env_sync(env) && lmdb_boot_id(state.boot, NULL) == 0) {
        lmdb_state_note(env, &state);
        (void)lmdb_state_write(env, &state, NULL);
    }
}

static void env_free(struct lmdb_env *env) {
    lmdb_shared_close(env);
    if (env->mdb != NULL)
        mdb_env_close(env->mdb);
    lmdb_lock_close(env);
    if (env->dir_fd >= 0)
        close(env->dir_fd);
    pthread_rwlock_destroy(&env->map_lock);
    pthread_mutex_destroy(&env->lock);
    pthread_mutex_destroy(&env->write_lock);
    lmdb_expiry_end(env);
    pthread_mutex_destroy(&env->clock.lock);
    pthread_cond_destroy(&env->wake);
    pthread_cond_destroy(&env->stopped);
    free(env->scratch);
    free(env->config.path);
    free(env->data_path);
    lmdb_owner_release(&env->owner);
    free(env);
}

/* An absolute path: the program may change its working directory. */
static char *env_make_data_path(const char *directory) {
    char *full = directory == NULL ? NULL : realpath(directory, NULL), *path = NULL;

    if (full != NULL && asprintf(&path, "%s/data.mdb", full) < 0)
        path = NULL;
    free(full);
    return path;
}

/* The life of an environment: env_new() (or ENOMEM), env_start(); on close lmdb_env_flush(),
   env_seal(), env_free(). */
static int env_new(const struct lmdb_config *config, const struct idem_clock *clock, int dir_fd,
                   const struct stat *st, struct lmdb_env **ret) {
    struct lmdb_env *env = calloc(1, sizeof(*env));
    char *path = strdup(config->path), *data_path = env_make_data_path(path);
    pthread_condattr_t attr;

    if (env == NULL || path == NULL || data_path == NULL || lmdb_expiry_begin(env) != 0) {
        free(env);
        free(path);
        free(data_path);
        return ENOMEM;
    }
    env->config = *config;
    env->config.path = path;
    env->data_path = data_path;
    env->refs = 1;
    env->forks = idem_fork_count();
    env->pid = getpid();
    env->dev = st->st_dev;
    env->ino = st->st_ino;
    env->dir_fd = dir_fd;
    env->owner.uid = st->st_uid;
    env->lock_fd = -1;
    pthread_rwlock_init(&env->map_lock, NULL);
    pthread_mutex_init(&env->lock, NULL);
    pthread_mutex_init(&env->write_lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&env->wake, &attr);
    pthread_cond_init(&env->stopped, &attr);
    pthread_condattr_destroy(&attr);
    lmdb_jobs_init(&env->queue);
    lmdb_clock_init(&env->clock, clock);
    *ret = env;
    return 0;
}

static int env_lock_and_open(struct lmdb_env *env, struct idem_error *err) {
    bool alone;
    int rc = lmdb_lock_open(env, &alone, err);

    if (rc == 0)
        rc = env_open_locked(env, alone, err);
    if (rc == 0)
        lmdb_lock_opened(env);
    return rc;
}

/* Runs as the directory's owner, from the first file to the last. The writer thread is started
   in between, and stays the owner. */
static int env_start(struct lmdb_env *env, struct idem_error *err) {
    struct lmdb_identity before = {0};
    int rc;

    lmdb_owner_find(&env->owner, env->owner.uid);
    env->foreign = geteuid() == 0 && env->owner.uid != 0;
    if (env->foreign && idem_store_becomes_owner())
        rc = lmdb_owner_stay(&env->owner);
    else
        rc = lmdb_owner_become(&env->owner, &before);
    if (rc != 0)
        return lmdb_owner_fail(env, rc, err);
    rc = env_lock_and_open(env, err);
    lmdb_identity_restore(&before);
    return rc;
}

/*
 * Keeps one environment per process and path, which is all that LMDB allows,
 * shared by the handles on it. Opening and closing wait for locks and disks, so
 * the registry's lock is not held meanwhile: a thread that needs the same path
 * waits for a while; other threads and fork() do not.
 */

struct lmdb_patience lmdb_patience = {.door = 10, .stop = 10, .busy = 20, .length = 1};

static pthread_mutex_t registry_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t registry_change;
static struct lmdb_env *registry;
static pthread_once_t registry_once = PTHREAD_ONCE_INIT;

void lmdb_registry_lock(void) {
    pthread_mutex_lock(&registry_lock);
}

void lmdb_registry_unlock(void) {
    pthread_mutex_unlock(&registry_lock);
}

static void registry_init_change(void) {
    pthread_condattr_t attr;

    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&registry_change, &attr);
    pthread_condattr_destroy(&attr);
}

/* File locks belong to the open file description, which a child shares. The child closes its
   copy at once; otherwise a store whose parent process closed it or was killed would look as if it
   were in use. */
static void registry_forked(void) {
    for (struct lmdb_env *env = registry; env != NULL; env = env->next) {
        if (env->lock_fd >= 0)
            close(env->lock_fd);
        env->lock_fd = -1;
    }
    registry_init_change(); /* no thread of the child waits for it */
    lmdb_registry_unlock();
}

/* A child may open stores of its own, whatever its parent's threads did at the fork. */
static void registry_init(void) {
    registry_init_change();
    (void)pthread_atfork(lmdb_registry_lock, lmdb_registry_unlock, registry_forked);
}

static struct lmdb_env *registry_find(const struct stat *st) {
    for (struct lmdb_env *env = registry; env != NULL; env = env->next)
        if (env->dev == st->st_dev && env->ino == st->st_ino && env->forks == idem_fork_count())
            return env;
    return NULL;
}

static void registry_remove(struct lmdb_env *env) {
    idem_link_remove(env);
    pthread_cond_broadcast(&registry_change);
}

/* Sets *ret to the environment of that directory once it is open, or to NULL if there is none.
   False after a timeout: another thread is still opening or closing it. */
static bool registry_settled(const struct stat *st, struct lmdb_env **ret) {
    struct timespec until;

    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += lmdb_patience.busy;
    while ((*ret = registry_find(st)) != NULL && !(*ret)->usable)
        if (pthread_cond_timedwait(&registry_change, &registry_lock, &until) != 0)
            return false;
    return true;
}

static int env_share(struct lmdb_env *env, const struct lmdb_config *config,
                     struct idem_error *err) {
    const struct lmdb_config *has = &env->config;

    if (has->sync != config->sync || has->size != config->size ||
        has->accept_loss != config->accept_loss || has->accept_clock != config->accept_clock)
        return idem_error_set(err, IDEM_E_REFUSED,
                              "%s is open in this process with another sync, size, accept_loss or "
                              "accept_clock; close it first, or use the same",
                              config->path);
    env->refs++;
    return 0;
}

/* Called with the registry's lock held, and releases it while it opens. */
static int registry_add(const struct lmdb_config *config, const struct idem_clock *clock,
                        int dir_fd, const struct stat *st, struct lmdb_env **ret,
                        struct idem_error *err) {
    struct lmdb_env *env;
    int rc;

    if (env_new(config, clock, dir_fd, st, &env) != 0)
        return idem_error_set(err, IDEM_E_NOMEM, "no memory to open a store");
    idem_link_insert(&registry, env);
    lmdb_registry_unlock();
    rc = env_start(env, err);
    lmdb_registry_lock();
    if (rc != 0) {
        registry_remove(env);
        env->dir_fd = -1; /* it stays the caller's */
        env_free(env);
        return rc;
    }
    env->usable = true;
    pthread_cond_broadcast(&registry_change);
    *ret = env;
    return 0;
}

int lmdb_env_open(const struct lmdb_config *config, const struct idem_clock *clock,
                  struct lmdb_env **ret, struct idem_error *err) {
    struct lmdb_env *env;
    struct stat st = {0};
    int dir_fd = -1, rc;

    idem_fork_watch();
    pthread_once(&registry_once, registry_init);
    rc = lmdb_directory_open(config, &dir_fd, &st, err);
    if (rc != 0)
        return rc;
    lmdb_registry_lock();
    if (!registry_settled(&st, &env))
        rc = idem_error_set(err, IDEM_E_REFUSED,
                            "%s: another thread of this process is still opening or closing the "
                            "store",
                            config->path);
    else if (env != NULL)
        rc = env_share(env, config, err);
    else
        rc = registry_add(config, clock, dir_fd, &st, &env, err);
    lmdb_registry_unlock();
    if (rc != 0 || env->dir_fd != dir_fd)
        close(dir_fd);
    if (rc == 0)
        *ret = env;
    return rc;
}

/* Runs once nothing writes any more. */
static void env_end(struct lmdb_env *env) {
    struct lmdb_identity before;

    /* Without a clean end the next open checks the whole file. */
    if (lmdb_owner_become(&env->owner, &before) == 0) {
        env_seal(env);
        lmdb_identity_restore(&before);
    }
    lmdb_registry_lock();
    registry_remove(env);
    lmdb_registry_unlock();
    env_free(env);
}

/* Another process may keep the writer waiting without limit. After the timeout the writer is
   left alone, and frees the environment when it ends. */
void lmdb_env_close(struct lmdb_env *env) {
    bool last;

    if (env->forks != idem_fork_count())
        return; /* it is the parent's: a child must not touch it */
    lmdb_registry_lock();
    last = --env->refs == 0;
    if (last)
        env->usable = false;
    lmdb_registry_unlock();
    if (last && lmdb_writer_stop(env, env_end))
        env_end(env);
}
