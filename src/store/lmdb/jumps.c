/*
 * How far real time has jumped forward, and how far it may.
 *
 * A record lives for a number of hours by the store's time: the highest real
 * time that any process has seen. When real time is set forward, all records
 * lose as many hours at once, and one that is forgotten too early runs again. A
 * day of that in seven days of uptime is accepted, as one jump or as many; for
 * more, the operator must say that the clock is right (accept_clock=yes).
 *
 * The store's time minus the lease clock (`offset`) stays the same while both
 * run. Where it grew, that much is a jump, and is added to the day of uptime it
 * falls into. It falls while the store's time stands still, after real time was
 * set back. Smaller differences than a second are how the clocks are read.
 *
 * The sums stand in the shared file, where all processes use them under a
 * lock, and in data.mdb, written by the transaction that first used the new
 * time. Across a boot nothing can be judged: the machine may have been off.
 */
#include "store/lmdb/jumps.h"

#include <errno.h>
#include <string.h>

#include "core/error.h"

#define JUMPS_FORMAT 1
#define DAY_MS ((int64_t)24 * 3600 * 1000)
#define HOUR_MS ((int64_t)3600 * 1000)
#define SLACK_MS 1000
/* The day that runs, and seven whole ones. */
#define WINDOW_DAYS (LMDB_JUMP_DAYS - 1)

_Static_assert(sizeof(struct lmdb_jumps) == 144, "the stored form has no holes");

int lmdb_jumps_parse(const void *bytes, size_t len, struct lmdb_jumps *ret) {
    struct lmdb_jumps jumps;

    if (len != sizeof(jumps))
        return MDB_CORRUPTED;
    memcpy(&jumps, bytes, sizeof(jumps));
    if (jumps.format != JUMPS_FORMAT || jumps.uptime < 0 || jumps.uptime > INT64_MAX / 2 ||
        jumps.lease < 0 || jumps.lease > INT64_MAX / 2)
        return MDB_CORRUPTED;
    for (size_t i = 0; i < LMDB_JUMP_DAYS; i++)
        if (jumps.days[i] < 0 || jumps.days[i] > INT64_MAX / 16)
            return MDB_CORRUPTED;
    *ret = jumps;
    return 0;
}

/* Of this boot, in which data.mdb was used before, too: both may have been copied here. */
static bool of_boot(const struct lmdb_jumps *jumps, const struct lmdb_clock *clock) {
    return clock->same_boot && jumps->format == JUMPS_FORMAT &&
           memcmp(jumps->boot, clock->boot, LMDB_BOOT_LEN) == 0;
}

void lmdb_jumps_pass(struct lmdb_jumps *jumps, int64_t lease) {
    int64_t day = jumps->uptime / DAY_MS, today;

    if (lease <= jumps->lease)
        return;
    jumps->uptime += lease - jumps->lease;
    jumps->lease = lease;
    today = jumps->uptime / DAY_MS;
    for (int n = 0; day < today && n < LMDB_JUMP_DAYS; n++)
        jumps->days[++day % LMDB_JUMP_DAYS] = 0;
}

static int64_t jumped(const struct lmdb_jumps *jumps) {
    int64_t sum = 0;

    for (size_t i = 0; i < LMDB_JUMP_DAYS; i++)
        sum += jumps->days[i];
    return sum;
}

static int jump_refuse(const struct lmdb_env *env, int64_t by, int64_t before,
                       struct idem_error *err) {
    if (by > DAY_MS)
        return lmdb_clock_refuse(env, by, err);
    return idem_error_set(err, IDEM_E_CLOCK,
                          "%s: the machine's clock jumped forward by %lld h %lld min, after %lld h "
                          "%lld min in the last %d days of uptime, and 24 h in all are accepted; "
                          "set it right, or open the store once with accept_clock=yes if it is",
                          env->config.path, (long long)(by / HOUR_MS), (long long)(by / 60000 % 60),
                          (long long)(before / HOUR_MS), (long long)(before / 60000 % 60),
                          WINDOW_DAYS);
}

bool lmdb_jumps_none(struct lmdb_env *env, struct idem_time at) {
    const struct lmdb_jumps *jumps = lmdb_shared_jumps(env);
    int64_t high = lmdb_shared_high(env, INT64_MIN), store = at.wall > high ? at.wall : high;
    int64_t by = store - at.lease - __atomic_load_n(&jumps->offset, __ATOMIC_SEQ_CST);

    return by >= -SLACK_MS && by <= SLACK_MS;
}

/* A jump that another version has accepted is in force already: it is only added. */
static int jumps_judge(struct lmdb_env *env, struct idem_time at, struct idem_error *err) {
    struct lmdb_jumps *jumps = lmdb_shared_jumps(env);
    int64_t high = lmdb_shared_high(env, INT64_MIN), store = at.wall > high ? at.wall : high;
    int64_t offset = store - at.lease, by = offset - jumps->offset;

    lmdb_jumps_pass(jumps, at.lease);
    if (by > SLACK_MS) {
        if (at.wall > high && (by > DAY_MS || jumped(jumps) > DAY_MS - by))
            return jump_refuse(env, by, jumped(jumps), err);
        jumps->days[jumps->uptime / DAY_MS % LMDB_JUMP_DAYS] += by;
        __atomic_fetch_add(&jumps->changes, 1, __ATOMIC_SEQ_CST);
    }
    if (by > SLACK_MS || by < -SLACK_MS)
        __atomic_store_n(&jumps->offset, offset, __ATOMIC_SEQ_CST);
    (void)lmdb_shared_high(env, at.wall);
    return 0;
}

static int lock_refuse(const struct lmdb_env *env, struct idem_error *err) {
    return idem_error_set(
        err, IDEM_E_REFUSED,
        "%s: cannot lock %s to judge the machine's clock: %s; another process may "
        "be stopped (`lsof %s/%s` names it)",
        env->config.path, LMDB_LOCK_FILE, strerror(errno), env->config.path, LMDB_LOCK_FILE);
}

int lmdb_jumps_judge(struct lmdb_env *env, struct idem_time at, struct idem_error *err) {
    int rc;

    if (lmdb_lock_clock(env) < 0)
        return lock_refuse(env, err);
    rc = jumps_judge(env, at, err);
    lmdb_unlock_clock(env);
    return rc;
}

/* The first of this boot to keep count goes on with what data.mdb has, and from the time that an
   earlier version has left there. */
static struct lmdb_jumps jumps_continue(const struct lmdb_clock *clock) {
    struct lmdb_jumps jumps = clock->jumps;
    bool known = clock->same_boot && clock->file_lease != 0;
    int64_t store = clock->wall > clock->high ? clock->wall : clock->high;

    if (of_boot(&jumps, clock))
        return jumps;
    jumps.format = JUMPS_FORMAT;
    memcpy(jumps.boot, clock->boot, LMDB_BOOT_LEN);
    jumps.lease = known ? clock->file_lease : clock->lease;
    jumps.offset = known ? clock->file_wall - clock->file_lease : store - clock->lease;
    return jumps;
}

static void jumps_forgive(struct lmdb_jumps *jumps, struct idem_time at) {
    memset(jumps->days, 0, sizeof(jumps->days));
    __atomic_store_n(&jumps->offset, at.wall - at.lease, __ATOMIC_SEQ_CST);
    __atomic_fetch_add(&jumps->changes, 1, __ATOMIC_SEQ_CST);
    __atomic_fetch_add(&jumps->accepted, 1, __ATOMIC_SEQ_CST);
}

void lmdb_jumps_accepted(const struct lmdb_env *env, struct lmdb_jumps *ret) {
    const struct lmdb_clock *clock = &env->clock;

    *ret = jumps_continue(clock);
    lmdb_jumps_pass(ret, clock->lease);
    jumps_forgive(ret, (struct idem_time){.lease = clock->lease, .wall = clock->wall});
}

/* The time in data.mdb is newer than the count if an earlier version, which keeps none, was the
   last to write. */
int lmdb_jumps_open(struct lmdb_env *env, struct idem_error *err) {
    struct lmdb_clock *clock = &env->clock;
    struct lmdb_jumps *jumps = lmdb_shared_jumps(env);
    struct idem_time at = {.lease = clock->lease, .wall = clock->wall};
    int rc = 0;

    if (lmdb_lock_clock(env) < 0)
        return lock_refuse(env, err);
    if (!of_boot(jumps, clock))
        *jumps = jumps_continue(clock);
    if (clock->same_boot && clock->file_lease > jumps->lease)
        jumps->offset = clock->file_wall - clock->file_lease;
    if (env->config.accept_clock)
        jumps_forgive(jumps, at);
    else
        rc = jumps_judge(env, at, err);
    clock->accepted = jumps->accepted;
    lmdb_unlock_clock(env);
    return rc;
}
