/*
 * Keeps one environment per process and path, which is all that LMDB allows,
 * shared by the handles on it. Opening and closing wait for locks and disks, so
 * the registry's lock is not held meanwhile: a thread that needs the same path
 * waits for a while; other threads and fork() do not.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"
#include "base/fork.h"
#include "store/lmdb/lmdb_directory.h"

struct lmdb_patience lmdb_patience = {.door = 10, .stop = 10, .busy = 20, .length = 1};

static pthread_mutex_t registry_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t registry_change;
static struct lmdb_env *registry;
static pthread_once_t registry_once = PTHREAD_ONCE_INIT;

void lmdb_registry_take(void) {
    pthread_mutex_lock(&registry_lock);
}

void lmdb_registry_give(void) {
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
    lmdb_registry_give();
}

/* A child may open stores of its own, whatever its parent's threads did at the fork. */
static void registry_init(void) {
    registry_init_change();
    (void)pthread_atfork(lmdb_registry_take, lmdb_registry_give, registry_forked);
}

static struct lmdb_env *registry_find(const struct stat *st) {
    for (struct lmdb_env *env = registry; env != NULL; env = env->next)
        if (env->dev == st->st_dev && env->ino == st->st_ino && env->forks == idem_fork_count())
            return env;
    return NULL;
}

static void registry_remove(struct lmdb_env *env) {
    struct lmdb_env **at = &registry;

    while (*at != env)
        at = &(*at)->next;
    *at = env->next;
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

/* Called with the registry's lock held, and releases it while it opens. Takes over dir_fd. */
static int registry_add(const struct lmdb_config *config, const struct idem_clock *clock,
                        int dir_fd, const struct stat *st, struct lmdb_env **ret,
                        struct idem_error *err) {
    struct lmdb_env *env;
    int rc;

    if (lmdb_env_new(config, clock, dir_fd, st, &env) != 0) {
        close(dir_fd);
        return idem_error_set(err, IDEM_E_NOMEM, "no memory to open a store");
    }
    env->next = registry;
    registry = env;
    lmdb_registry_give();
    rc = lmdb_env_start(env, err);
    lmdb_registry_take();
    if (rc != 0) {
        registry_remove(env);
        lmdb_env_free(env);
        return rc;
    }
    env->usable = true;
    pthread_cond_broadcast(&registry_change);
    *ret = env;
    return 0;
}

static int registry_pass_fd(int *fd) {
    int passed = *fd;

    *fd = -1;
    return passed;
}

int lmdb_env_open(const struct lmdb_config *config, const struct idem_clock *clock,
                  struct lmdb_env **ret, struct idem_error *err) {
    struct lmdb_env *env;
    struct stat st = {0};
    int dir_fd = -1, rc;

    idem_fork_watch();
    pthread_once(&registry_once, registry_init);
    rc = lmdb_folder_open(config, &dir_fd, &st, err);
    if (rc != 0)
        return rc;
    lmdb_registry_take();
    if (!registry_settled(&st, &env))
        rc = idem_error_set(err, IDEM_E_REFUSED,
                            "%s: another thread of this process is still opening or closing the "
                            "store",
                            config->path);
    else if (env != NULL)
        rc = env_share(env, config, err);
    else
        rc = registry_add(config, clock, registry_pass_fd(&dir_fd), &st, &env, err);
    lmdb_registry_give();
    if (dir_fd >= 0)
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
        lmdb_env_seal(env);
        lmdb_identity_restore(&before);
    }
    lmdb_registry_take();
    registry_remove(env);
    lmdb_registry_give();
    lmdb_env_free(env);
}

/* Another process may keep the writer waiting without limit. After the timeout the writer is
   left alone, and frees the environment when it ends. */
void lmdb_env_close(struct lmdb_env *env) {
    bool last;

    if (env->forks != idem_fork_count())
        return; /* it is the parent's: a child must not touch it */
    lmdb_registry_take();
    last = --env->refs == 0;
    if (last)
        env->usable = false;
    lmdb_registry_give();
    if (last && lmdb_writer_stop(env, env_end))
        env_end(env);
}
