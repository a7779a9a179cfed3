/*
 * The store's two clocks. Leases use CLOCK_BOOTTIME, together with the boot
 * they belong to. Expiry uses real time that never falls below its high-water
 * mark, which all processes share and which is kept in the file.
 *
 * A real time that jumped by more than a day against the lease clock is an
 * error, not a time: judged by it, every record would expire at once, or never.
 * The same holds for smaller jumps forward that add up to more than a day in a
 * week (clock_jumps_*). The error lasts until the clock is right again, or
 * until this or another process opens the store with accept_clock=yes.
 */
#include <errno.h>
#include <string.h>
#include <time.h>

#include "base/error.h"
#include "store/lmdb/lmdb_store.h"

#define DAY_MS ((int64_t)24 * 3600 * 1000)
#define HOUR_MS ((int64_t)3600 * 1000)

/* Reports a jump of more than a day, back or forward. */
static int clock_refuse(const struct lmdb_env *env, int64_t by, struct idem_error *err) {
    return idem_error_set(err, IDEM_E_CLOCK,
                          "%s: the machine's clock jumped %s by %lld hours; "
                          "set it right, or open the store once with accept_clock=yes if it is",
                          env->config.path, by < 0 ? "back" : "forward",
                          (long long)((by < 0 ? -by : by) / 3600000));
}

/*
 * Counts how far real time has jumped forward, and refuses more than a day of
 * jumps in seven days of uptime.
 *
 * A record lives for a number of hours by the store's time: the highest real
 * time that any process has seen. When real time is set forward, all records
 * lose that many hours at once, and a record that expires too early lets its
 * operation run again. Up to a day in all is accepted, as one jump or as many;
 * for more, the operator must confirm that the clock is right
 * (accept_clock=yes).
 *
 * The store's time minus the lease clock (`offset`) is constant while both run.
 * If it grows, the difference is a jump, and is added to the day of uptime in
 * which it occurs. It falls while the store's time stands still, after real
 * time was set back. Differences below a second arise because two clocks are
 * read one after the other.
 *
 * The sums are in the shared file, where all processes use them under a lock,
 * and in data.mdb, written by the transaction that first used the new time.
 * Across a boot nothing can be judged: the machine may have been off.
 *
 * Functions that use the shared file are called with the clock's mutex held, but
 * for lmdb_jumps_open(): other threads have no access to the store yet.
 */

#define JUMPS_FORMAT 1
#define SLACK_MS 1000
#define DAY_JUMPS_MAX (INT64_MAX / 16)
/* The current day, and seven complete ones. */
#define WINDOW_DAYS (LMDB_JUMP_DAYS - 1)

_Static_assert(sizeof(struct lmdb_jumps) == 144, "the stored form has no holes");

/* True if the sums below cannot overflow with these numbers. */
static bool clock_jumps_are_valid(const struct lmdb_jumps *jumps) {
    if (jumps->format != JUMPS_FORMAT || jumps->uptime < 0 || jumps->uptime > INT64_MAX / 2 ||
        jumps->lease < 0 || jumps->lease > INT64_MAX / 2 || jumps->offset < -(INT64_MAX / 2) ||
        jumps->offset > INT64_MAX / 2)
        return false;
    for (size_t i = 0; i < LMDB_JUMP_DAYS; i++)
        if (jumps->days[i] < 0 || jumps->days[i] > DAY_JUMPS_MAX)
            return false;
    return true;
}

int lmdb_jumps_parse(const void *bytes, size_t len, struct lmdb_jumps *ret) {
    struct lmdb_jumps jumps;

    if (len != sizeof(jumps))
        return MDB_CORRUPTED;
    memcpy(&jumps, bytes, sizeof(jumps));
    if (!clock_jumps_are_valid(&jumps))
        return MDB_CORRUPTED;
    *ret = jumps;
    return 0;
}

/* Copies the count from the shared file and checks the copy. Every user of the store may write
   to that file at any moment, so nothing is read from it twice. False if the count is invalid. */
static bool clock_jumps_copy_shared(const struct lmdb_jumps *shared, struct lmdb_jumps *ret) {
    memcpy(ret, shared, sizeof(*ret));
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    return clock_jumps_are_valid(ret);
}

/* The lock on the clock is held. Fields that others read without it are written atomically. */
static void clock_jumps_store_shared(struct lmdb_jumps *shared, const struct lmdb_jumps *jumps) {
    shared->uptime = jumps->uptime;
    shared->lease = jumps->lease;
    memcpy(shared->days, jumps->days, sizeof(shared->days));
    __atomic_store_n(&shared->offset, jumps->offset, __ATOMIC_SEQ_CST);
    __atomic_store_n(&shared->changes, jumps->changes, __ATOMIC_SEQ_CST);
    __atomic_store_n(&shared->accepted, jumps->accepted, __ATOMIC_SEQ_CST);
}

static int64_t clock_jumps_difference(int64_t a, int64_t b) {
    int64_t by;

    return !__builtin_sub_overflow(a, b, &by) ? by : a < b ? INT64_MIN : INT64_MAX;
}

/* True if the count belongs to this boot and data.mdb was used in this boot before. Both
   conditions matter: the files may have been copied from another machine. */
static bool clock_jumps_are_of_boot(const struct lmdb_jumps *jumps,
                                    const struct lmdb_clock *clock) {
    return clock->same_boot && clock_jumps_are_valid(jumps) &&
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

static int64_t clock_jumps_sum(const struct lmdb_jumps *jumps) {
    int64_t sum = 0;

    for (size_t i = 0; i < LMDB_JUMP_DAYS; i++)
        sum += jumps->days[i];
    return sum;
}

static int clock_jumps_refuse(const struct lmdb_env *env, int64_t by, int64_t before,
                              struct idem_error *err) {
    if (by > DAY_MS)
        return clock_refuse(env, by, err);
    return idem_error_set(err, IDEM_E_CLOCK,
                          "%s: the machine's clock jumped forward by %lld h %lld min, after %lld h "
                          "%lld min in the last %d days of uptime, and 24 h in all are accepted; "
                          "set it right, or open the store once with accept_clock=yes if it is",
                          env->config.path, (long long)(by / HOUR_MS), (long long)(by / 60000 % 60),
                          (long long)(before / HOUR_MS), (long long)(before / 60000 % 60),
                          WINDOW_DAYS);
}

/* False if the difference of the two clocks has changed and must be judged. */
static bool clock_jumps_are_none(struct lmdb_env *env, struct idem_time at) {
    const struct lmdb_jumps *jumps = lmdb_shared_jumps(env);
    int64_t high = lmdb_shared_high(env, INT64_MIN), store = at.wall > high ? at.wall : high;
    int64_t by =
        clock_jumps_difference(store - at.lease, __atomic_load_n(&jumps->offset, __ATOMIC_SEQ_CST));

    return by >= -SLACK_MS && by <= SLACK_MS;
}

/* A jump that another version has accepted may be longer than a day. */
static void clock_jumps_add(struct lmdb_jumps *jumps, int64_t by) {
    int64_t *day = &jumps->days[jumps->uptime / DAY_MS % LMDB_JUMP_DAYS];

    *day = by < DAY_JUMPS_MAX - *day ? *day + by : DAY_JUMPS_MAX;
    jumps->changes++;
}

/* A jump that another version has accepted is in force already: it is only added. */
static int clock_jumps_judge(struct lmdb_env *env, struct lmdb_jumps *jumps, struct idem_time at,
                             struct idem_error *err) {
    int64_t high = lmdb_shared_high(env, INT64_MIN), store = at.wall > high ? at.wall : high;
    int64_t offset = store - at.lease, by = clock_jumps_difference(offset, jumps->offset);

    lmdb_jumps_pass(jumps, at.lease);
    if (by > SLACK_MS) {
        if (at.wall > high && (by > DAY_MS || clock_jumps_sum(jumps) > DAY_MS - by))
            return clock_jumps_refuse(env, by, clock_jumps_sum(jumps), err);
        clock_jumps_add(jumps, by);
    }
    if (by > SLACK_MS || by < -SLACK_MS)
        jumps->offset = offset;
    (void)lmdb_shared_high(env, at.wall);
    return 0;
}

static int clock_jumps_refuse_lock(const struct lmdb_env *env, struct idem_error *err) {
    return idem_error_set(
        err, IDEM_E_REFUSED,
        "%s: cannot lock %s to judge the machine's clock: %s; another process may "
        "be stopped (`lsof %s/%s` names it)",
        env->config.path, LMDB_LOCK_FILE, strerror(errno), env->config.path, LMDB_LOCK_FILE);
}

static int clock_jumps_refuse_shared(const struct lmdb_env *env, struct idem_error *err) {
    return idem_error_set(
        err, IDEM_E_CORRUPT,
        "%s/idem.shared is damaged: its count of the clock's jumps is impossible; "
        "remove that file while no process has the store open",
        env->config.path);
}

/* Under the lock on the clock: adds a jump, or refuses it (IDEM_E_CLOCK), and raises the store's
   time. */
static int clock_jumps_judge_shared(struct lmdb_env *env, struct idem_time at,
                                    struct idem_error *err) {
    struct lmdb_jumps *shared = lmdb_shared_jumps(env), jumps;
    int rc;

    if (lmdb_lock_clock(env) < 0)
        return clock_jumps_refuse_lock(env, err);
    if (clock_jumps_copy_shared(shared, &jumps)) {
        rc = clock_jumps_judge(env, &jumps, at, err);
        clock_jumps_store_shared(shared, &jumps);
    } else {
        rc = clock_jumps_refuse_shared(env, err);
    }
    lmdb_unlock_clock(env);
    return rc;
}

/* Copies the count in the shared file as of `lease`. The lock on the clock is held. False if the
   count is invalid. */
static bool clock_jumps_take_shared(struct lmdb_env *env, int64_t lease, struct lmdb_jumps *ret) {
    struct lmdb_jumps *shared = lmdb_shared_jumps(env);

    if (!clock_jumps_copy_shared(shared, ret))
        return false;
    lmdb_jumps_pass(ret, lease);
    clock_jumps_store_shared(shared, ret);
    return true;
}

/* The first process of this boot continues the count in data.mdb, from the time that an earlier
   version has left there. */
static struct lmdb_jumps clock_jumps_continue(const struct lmdb_clock *clock) {
    struct lmdb_jumps jumps = clock->jumps;
    bool known = clock->same_boot && clock->file_lease != 0;
    int64_t store = clock->wall > clock->high ? clock->wall : clock->high;

    if (clock_jumps_are_of_boot(&jumps, clock))
        return jumps;
    jumps.format = JUMPS_FORMAT;
    memcpy(jumps.boot, clock->boot, LMDB_BOOT_LEN);
    jumps.lease = known ? clock->file_lease : clock->lease;
    jumps.offset = known ? clock->file_wall - clock->file_lease : store - clock->lease;
    return jumps;
}

static void clock_jumps_forgive(struct lmdb_jumps *jumps, struct idem_time at) {
    memset(jumps->days, 0, sizeof(jumps->days));
    jumps->offset = at.wall - at.lease;
    jumps->changes++;
    jumps->accepted++;
}

/* The time in data.mdb is newer than the count if the last writer was an earlier version, which
   keeps no count. */
int lmdb_jumps_open(struct lmdb_env *env, struct idem_error *err) {
    struct lmdb_clock *clock = &env->clock;
    struct lmdb_jumps *shared = lmdb_shared_jumps(env), jumps;
    struct idem_time at = {.lease = clock->lease, .wall = clock->wall};
    int rc = 0;

    if (lmdb_lock_clock(env) < 0)
        return clock_jumps_refuse_lock(env, err);
    if (!clock_jumps_copy_shared(shared, &jumps) || !clock_jumps_are_of_boot(&jumps, clock)) {
        jumps = clock_jumps_continue(clock);
        *shared = jumps;
    }
    if (clock->same_boot && clock->file_lease > jumps.lease)
        jumps.offset = clock->file_wall - clock->file_lease;
    if (env->config.accept_clock)
        clock_jumps_forgive(&jumps, at);
    else
        rc = clock_jumps_judge(env, &jumps, at, err);
    clock_jumps_store_shared(shared, &jumps);
    clock->accepted = jumps.accepted;
    lmdb_unlock_clock(env);
    return rc;
}

/*
 * The two clocks: as the system has them, as data.mdb has them, and as the store uses them.
 */

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

/* Both entries must change in one transaction. */
static int clock_store(struct lmdb_env *env, MDB_txn *txn, struct saved_clock saved,
                       struct lmdb_jumps *jumps) {
    int rc = lmdb_meta_put(env, txn, "clock", &saved, sizeof(saved));

    return rc == 0 ? lmdb_meta_put(env, txn, "jumps", jumps, sizeof(*jumps)) : rc;
}

/* MDB_NOTFOUND is not an error: *ret stays unchanged. */
static int clock_load_jumps(struct lmdb_env *env, MDB_txn *txn, struct lmdb_jumps *ret) {
    MDB_val value;
    int rc = lmdb_meta_get(env, txn, "jumps", &value);

    if (rc == 0)
        rc = lmdb_jumps_parse(value.mv_data, value.mv_size, ret);
    return rc == MDB_NOTFOUND ? 0 : rc;
}

/* *ret_found is false if the store is new. */
static int clock_load_saved(struct lmdb_env *env, MDB_txn *txn, struct saved_clock *ret,
                            bool *ret_found) {
    MDB_val value;
    int rc = lmdb_meta_get(env, txn, "clock", &value);

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
        return clock_refuse(env, by, err);
    clock->file_lease = saved.lease;
    clock->file_wall = saved.wall;
    clock->high = saved.wall;
    clock->saved = saved.wall;
    clock->changes = clock->jumps.changes;
    return 0;
}

int lmdb_clock_accept(struct lmdb_env *env, MDB_txn *txn, struct idem_error *err) {
    struct lmdb_clock *clock = &env->clock;
    struct lmdb_jumps jumps = clock_jumps_continue(clock);
    int rc;

    lmdb_jumps_pass(&jumps, clock->lease);
    clock_jumps_forgive(&jumps, (struct idem_time){.lease = clock->lease, .wall = clock->wall});
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
        taken = clock_jumps_take_shared(env, now.lease, &jumps);
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
        return clock_refuse(env, by, err);
    if (clock_jumps_are_none(env, *at))
        return 0;
    *at = clock_read(clock);
    return clock_jumps_judge_shared(env, *at, err);
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
