/*
 * The store's two clocks. Leases: CLOCK_BOOTTIME, together with the boot they
 * belong to. Expiry: real time that never goes back below its high-water mark,
 * which all processes share, and which is kept in the file.
 *
 * A real time that jumped by more than a day against the other clock is an
 * error, not a time: judged by it, every record would be forgotten at once, or
 * kept for ever. It stays an error until the clock is right again or the store
 * is opened with accept_clock=yes.
 */
#include <string.h>
#include <time.h>

#include "core/error.h"
#include "store/lmdb/lmdb.h"

#define DAY_MS ((int64_t)24 * 3600 * 1000)
#define SAVE_EVERY_MS 10000

static int64_t read_ms(clockid_t id) {
    struct timespec ts;

    clock_gettime(id, &ts);
    return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

static int64_t system_lease(void *data) {
    (void)data;
    return read_ms(CLOCK_BOOTTIME);
}

static int64_t system_wall(void *data) {
    (void)data;
    return read_ms(CLOCK_REALTIME);
}

void lmdb_clock_init(struct lmdb_clock *clock, const struct idem_clock *source) {
    static const struct idem_clock system = {system_lease, system_wall, NULL};

    *clock = (struct lmdb_clock){.source = source != NULL ? *source : system};
    pthread_mutex_init(&clock->lock, NULL);
}

/* What the file remembers of the clock, as it is stored. */
struct saved_clock {
    int64_t lease, wall;
};

static MDB_val clock_name(void) {
    static char name[] = "clock";

    return (MDB_val){sizeof(name) - 1, name};
}

static int jump_error(const struct lmdb_env *env, int64_t by, struct idem_error *err) {
    return idem_error_set(err, IDEM_E_CLOCK,
                          "%s: the machine's clock jumped %s by %lld hours; "
                          "set it right, or open the store once with accept_clock=yes if it is",
                          env->config.path, by < 0 ? "back" : "forward",
                          (long long)((by < 0 ? -by : by) / 3600000));
}

int lmdb_clock_load(struct lmdb_env *env, MDB_txn *txn, bool same_boot, struct idem_error *err) {
    struct lmdb_clock *clock = &env->clock;
    struct saved_clock saved;
    MDB_val name = clock_name(), value;
    int64_t by;
    int rc = mdb_get(txn, env->meta, &name, &value);

    clock->lease = clock->source.lease(clock->source.data);
    clock->wall = clock->source.wall(clock->source.data);
    clock->high = clock->wall;
    if (rc == MDB_NOTFOUND)
        return 0;
    if (rc != 0)
        return lmdb_fail(env, err, rc, "read");
    if (value.mv_size != sizeof(saved))
        return idem_error_set(err, IDEM_E_CORRUPT, "%s: the clock's record is damaged",
                              env->config.path);
    memcpy(&saved, value.mv_data, sizeof(saved));
    by = clock->wall - saved.wall;
    if (same_boot)
        by -= clock->lease - saved.lease;
    /* After a boot, time may have passed: only going back can be judged. */
    if (!env->config.accept_clock && (by < -DAY_MS || (same_boot && by > DAY_MS)))
        return jump_error(env, by, err);
    if (!env->config.accept_clock && saved.wall > clock->high)
        clock->high = saved.wall;
    clock->saved = env->config.accept_clock ? 0 : saved.wall;
    return 0;
}

int lmdb_clock_save(struct lmdb_env *env, MDB_txn *txn, struct idem_time now) {
    struct saved_clock saved = {now.lease, now.wall};
    MDB_val name = clock_name(), value = {sizeof(saved), &saved};
    int rc;

    if (now.wall - env->clock.saved < SAVE_EVERY_MS)
        return 0;
    rc = mdb_put(txn, env->meta, &name, &value, 0);
    if (rc == 0)
        env->clock.saved = now.wall;
    return rc;
}

int64_t lmdb_clock_real(struct lmdb_env *env) {
    int64_t wall;

    pthread_mutex_lock(&env->clock.lock);
    wall = env->clock.wall;
    pthread_mutex_unlock(&env->clock.lock);
    return wall;
}

int lmdb_now(struct lmdb_env *env, struct idem_time *ret, struct idem_error *err) {
    struct lmdb_clock *clock = &env->clock;
    int64_t lease, wall, by;
    bool jumped;

    pthread_mutex_lock(&clock->lock);
    lease = clock->source.lease(clock->source.data);
    wall = clock->source.wall(clock->source.data);
    by = (wall - clock->wall) - (lease - clock->lease);
    jumped = by > DAY_MS || by < -DAY_MS;
    if (!jumped) {
        clock->lease = lease;
        clock->wall = wall;
        *ret = (struct idem_time){.lease = lease, .wall = lmdb_shared_high(env, wall)};
    }
    pthread_mutex_unlock(&clock->lock);
    return jumped ? jump_error(env, by, err) : 0;
}
