/*
 * The store's two clocks. Leases use CLOCK_BOOTTIME, together with the boot
 * they belong to. Expiry uses real time that never falls below its high-water
 * mark, which all processes share and which is kept in the file.
 *
 * A real time that jumped by more than a day against the lease clock is an
 * error, not a time: judged by it, every record would expire at once, or never.
 * The same holds for smaller jumps forward that add up to more than a day in a
 * week (lmdb_clock_jumps.c). The error lasts until the clock is right again, or
 * until this or another process opens the store with accept_clock=yes.
 */
#include <string.h>
#include <time.h>

#include "base/error.h"
#include "store/lmdb/lmdb_clock_jumps.h"

#define DAY_MS ((int64_t)24 * 3600 * 1000)
#define SAVE_EVERY_MS 10000

static int64_t clock_read_ms(clockid_t id) {
    struct timespec ts;

    clock_gettime(id, &ts);
    return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

static int64_t clock_system_lease(void *data) {
    (void)data;
    return clock_read_ms(CLOCK_BOOTTIME);
}

static int64_t clock_system_wall(void *data) {
    (void)data;
    return clock_read_ms(CLOCK_REALTIME);
}

void lmdb_clock_init(struct lmdb_clock *clock, const struct idem_clock *source) {
    static const struct idem_clock system = {clock_system_lease, clock_system_wall, NULL};

    *clock = (struct lmdb_clock){.source = source != NULL ? *source : system};
    pthread_mutex_init(&clock->lock, NULL);
}

/* The clock readings as data.mdb stores them. */
struct saved_clock {
    int64_t lease, wall;
};

static int clock_put(struct lmdb_env *env, MDB_txn *txn, char *label, void *row, size_t size) {
    MDB_val name = {strlen(label), label}, value = {size, row};

    return mdb_put(txn, env->meta, &name, &value, 0);
}

/* Both rows must change in one transaction. */
static int clock_store(struct lmdb_env *env, MDB_txn *txn, struct saved_clock saved,
                       struct lmdb_jumps *jumps) {
    char clock[] = "clock", label[] = "jumps";
    int rc = clock_put(env, txn, clock, &saved, sizeof(saved));

    return rc == 0 ? clock_put(env, txn, label, jumps, sizeof(*jumps)) : rc;
}

int lmdb_clock_refuse(const struct lmdb_env *env, int64_t by, struct idem_error *err) {
    return idem_error_set(err, IDEM_E_CLOCK,
                          "%s: the machine's clock jumped %s by %lld hours; "
                          "set it right, or open the store once with accept_clock=yes if it is",
                          env->config.path, by < 0 ? "back" : "forward",
                          (long long)((by < 0 ? -by : by) / 3600000));
}

/* MDB_NOTFOUND is not an error: *ret stays unchanged. */
static int clock_load_jumps(struct lmdb_env *env, MDB_txn *txn, struct lmdb_jumps *ret) {
    char label[] = "jumps";
    MDB_val name = {sizeof(label) - 1, label}, value;
    int rc = mdb_get(txn, env->meta, &name, &value);

    if (rc == 0)
        rc = lmdb_jumps_parse(value.mv_data, value.mv_size, ret);
    return rc == MDB_NOTFOUND ? 0 : rc;
}

/* *ret_found is false if the store is new. */
static int clock_load_saved(struct lmdb_env *env, MDB_txn *txn, struct saved_clock *ret,
                            bool *ret_found) {
    char label[] = "clock";
    MDB_val name = {sizeof(label) - 1, label}, value;
    int rc = mdb_get(txn, env->meta, &name, &value);

    *ret_found = rc == 0;
    if (rc == 0 && value.mv_size != sizeof(*ret))
        return MDB_CORRUPTED;
    if (rc == 0)
        memcpy(ret, value.mv_data, sizeof(*ret));
    return rc == MDB_NOTFOUND ? 0 : rc;
}

/* Across a boot any time may have passed, so only a step back can be detected. */
static bool clock_refuses_saved(const struct lmdb_clock *clock, struct saved_clock saved,
                                bool same_boot, int64_t *ret_by) {
    *ret_by = clock->wall - saved.wall;
    if (same_boot)
        *ret_by -= clock->lease - saved.lease;
    return *ret_by < -DAY_MS || (same_boot && *ret_by > DAY_MS);
}

int lmdb_clock_load(struct lmdb_env *env, MDB_txn *txn, bool same_boot, struct idem_error *err) {
    struct lmdb_clock *clock = &env->clock;
    struct saved_clock saved = {0};
    bool found;
    int64_t by;
    int rc = clock_load_saved(env, txn, &saved, &found);

    if (rc == 0)
        rc = clock_load_jumps(env, txn, &clock->jumps);
    if (rc == MDB_CORRUPTED)
        return idem_error_set(err, IDEM_E_CORRUPT, "%s: the clock's record is damaged",
                              env->config.path);
    if (rc != 0)
        return lmdb_fail(env, err, rc, "read");
    clock->lease = clock->source.lease(clock->source.data);
    clock->wall = clock->source.wall(clock->source.data);
    clock->high = clock->wall;
    clock->same_boot = same_boot;
    if (!found || env->config.accept_clock)
        return 0;
    if (clock_refuses_saved(clock, saved, same_boot, &by))
        return lmdb_clock_refuse(env, by, err);
    clock->file_lease = saved.lease;
    clock->file_wall = saved.wall;
    clock->high = saved.wall;
    clock->saved = saved.wall;
    clock->changes = clock->jumps.changes;
    return 0;
}

int lmdb_clock_accept(struct lmdb_env *env, MDB_txn *txn, struct idem_error *err) {
    struct lmdb_clock *clock = &env->clock;
    struct lmdb_jumps jumps;
    int rc;

    lmdb_jumps_accepted(env, &jumps);
    rc = clock_store(env, txn, (struct saved_clock){clock->lease, clock->wall}, &jumps);
    return rc == 0 ? 0 : lmdb_fail(env, err, rc, "write");
}

/* Without the lock, or if the shared count is invalid, nothing is saved now; the next batch
   tries again. */
int lmdb_clock_save(struct lmdb_env *env, MDB_txn *txn, struct idem_time now) {
    struct lmdb_clock *clock = &env->clock;
    struct lmdb_jumps jumps;
    bool taken = false;
    int rc;

    if (now.wall - clock->saved < SAVE_EVERY_MS &&
        __atomic_load_n(&lmdb_shared_jumps(env)->changes, __ATOMIC_SEQ_CST) == clock->changes)
        return 0;
    pthread_mutex_lock(&clock->lock);
    if (lmdb_lock_clock(env) == 0) {
        taken = lmdb_jumps_take(env, now.lease, &jumps);
        lmdb_unlock_clock(env);
    }
    pthread_mutex_unlock(&clock->lock);
    if (!taken)
        return 0;
    rc = clock_store(env, txn, (struct saved_clock){now.lease, now.wall}, &jumps);
    if (rc == 0) {
        clock->saved = now.wall;
        clock->changes = jumps.changes;
    }
    return rc;
}

void lmdb_clock_unsaved(struct lmdb_env *env) {
    env->clock.saved = 0;
}

int64_t lmdb_clock_real(struct lmdb_env *env) {
    int64_t wall;

    pthread_mutex_lock(&env->clock.lock);
    wall = env->clock.wall;
    pthread_mutex_unlock(&env->clock.lock);
    return wall;
}

static struct idem_time clock_read(const struct lmdb_clock *clock) {
    int64_t lease = clock->source.lease(clock->source.data);

    return (struct idem_time){.lease = lease, .wall = clock->source.wall(clock->source.data)};
}

/* The clocks are read again under the lock: another process may have judged a later reading
   meanwhile. */
static int clock_judge(struct lmdb_env *env, struct idem_time *at, struct idem_error *err) {
    struct lmdb_clock *clock = &env->clock;
    int64_t by = (at->wall - clock->wall) - (at->lease - clock->lease);

    if (by > DAY_MS || by < -DAY_MS)
        return lmdb_clock_refuse(env, by, err);
    if (lmdb_jumps_none(env, *at))
        return 0;
    *at = clock_read(clock);
    return lmdb_jumps_judge(env, *at, err);
}

/* True if the operator has accepted the clock meanwhile, in any process. */
static bool clock_accepted(struct lmdb_env *env, struct idem_time at) {
    struct lmdb_clock *clock = &env->clock;
    uint64_t accepted = __atomic_load_n(&lmdb_shared_jumps(env)->accepted, __ATOMIC_SEQ_CST);

    if (accepted == clock->accepted)
        return false;
    clock->accepted = accepted;
    clock->lease = at.lease;
    clock->wall = at.wall;
    return true;
}

int lmdb_now(struct lmdb_env *env, struct idem_time *ret, struct idem_error *err) {
    struct lmdb_clock *clock = &env->clock;
    struct idem_time at;
    int rc;

    pthread_mutex_lock(&clock->lock);
    at = clock_read(clock);
    rc = clock_judge(env, &at, err);
    if (rc != 0 && clock_accepted(env, at))
        rc = clock_judge(env, &at, err);
    if (rc == 0) {
        clock->lease = at.lease;
        clock->wall = at.wall;
        *ret = (struct idem_time){.lease = at.lease, .wall = lmdb_shared_high(env, at.wall)};
    }
    pthread_mutex_unlock(&clock->lock);
    return rc;
}
