/*
 * Memory that all processes on one store share: the counts of events, and the
 * waiters by key.
 *
 * A store that has waiters holds a slot: a byte of idem.lock, which the kernel
 * unlocks when a process dies, a FIFO `wake.N` in the store's directory, and a
 * bit in the bucket of each key it waits for. After its commit, a process that
 * finishes a key reads the key's bucket and writes the key's hash into the
 * FIFOs of the slots found there. A waiter sets its bit before it reads the
 * record again, so at least one side sees the other. A superfluous bit costs a
 * superfluous wake-up; a slot whose process died is detected because its FIFO
 * has no reader.
 *
 * Nothing here is needed for correctness: without a slot, waiters poll slowly.
 */

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "store/lmdb/lmdb_directory.h"
#include "store/lmdb/lmdb_store.h"

#define SHARED_FILE "idem.shared"
#define SHARED_MAGIC 0x6d656469u
#define SHARED_FORMAT 3u
#define SLOTS LMDB_SLOTS
#define BUCKETS LMDB_BUCKETS
#define WORDS (SLOTS / 64)

struct lmdb_shared {
    uint32_t magic, format;
    _Atomic int64_t high; /* the highest real time that any process has seen */
    _Atomic uint64_t events[64];
    struct {
        _Atomic uint32_t named;    /* its FIFO may exist */
        _Atomic uint32_t overflow; /* its FIFO was full: check all watched keys */
    } slots[SLOTS];
    _Atomic uint64_t buckets[BUCKETS][WORDS];
    struct lmdb_jumps jumps; /* the file of earlier versions with this format ends before it */
};

_Static_assert(IDEM_EVENT__COUNT <= 64, "more events than the shared file has room for");

static void shared_slot_name(int slot, char out[16]) {
    snprintf(out, 16, "wake.%d", slot);
}

/* No other process has the store open: slots in use are left over from dead processes. */
static void shared_reset_slots(struct lmdb_env *env) {
    for (int i = 0; i < SLOTS; i++) {
        char name[16];

        if (env->shared->slots[i].named == 0)
            continue;
        shared_slot_name(i, name);
        (void)unlinkat(env->dir_fd, name, 0);
        env->shared->slots[i].named = 0;
        env->shared->slots[i].overflow = 0;
    }
    memset(env->shared->buckets, 0, sizeof(env->shared->buckets));
}

int lmdb_shared_open(struct lmdb_env *env, bool alone, struct idem_error *err) {
    struct lmdb_shared *shared;
    struct stat st;
    int fd, rc = lmdb_directory_open_file(env, SHARED_FILE, O_RDWR | O_CREAT, &fd, &st, err);

    if (rc != 0)
        return rc;
    /* Allocated, not sparse: a full disk must be an error here and not a SIGBUS later. */
    rc = posix_fallocate(fd, 0, sizeof(*shared));
    if (rc != 0) {
        close(fd);
        return idem_error_set(err, rc == ENOSPC || rc == EDQUOT ? IDEM_E_FULL : IDEM_E_REFUSED,
                              "cannot allocate %s/%s: %s", env->config.path, SHARED_FILE,
                              strerror(rc));
    }
    shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (shared == MAP_FAILED)
        return idem_error_set(err, IDEM_E_NOMEM, "cannot map %s/%s: %s", env->config.path,
                              SHARED_FILE, strerror(errno));
    if (alone && (shared->magic != SHARED_MAGIC || shared->format != SHARED_FORMAT)) {
        memset(shared, 0, sizeof(*shared));
        shared->format = SHARED_FORMAT;
        shared->magic = SHARED_MAGIC;
    }
    if (shared->magic != SHARED_MAGIC || shared->format != SHARED_FORMAT) {
        munmap(shared, sizeof(*shared));
        return idem_error_set(err, IDEM_E_VERSION, "%s/%s is in use by another version of Idem",
                              env->config.path, SHARED_FILE);
    }
    env->shared = shared;
    if (alone)
        shared_reset_slots(env);
    if (alone || env->config.accept_clock)
        shared->high = env->clock.high;
    return lmdb_jumps_open(env, err);
}

void lmdb_shared_close(struct lmdb_env *env) {
    if (env->shared != NULL)
        munmap(env->shared, sizeof(*env->shared));
    env->shared = NULL;
}

void lmdb_shared_tally(struct lmdb_env *env, enum idem_event event, uint64_t n) {
    env->shared->events[event] += n;
}

/* A damaged value must not overflow when a duration is added to it. */
int64_t lmdb_shared_high(struct lmdb_env *env, int64_t wall) {
    int64_t high = env->shared->high;

    while (wall > high)
        if (__atomic_compare_exchange_n((int64_t *)&env->shared->high, &high, wall, false,
                                        __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
            return wall;
    return high < INT64_MAX / 2 ? high : INT64_MAX / 2;
}

struct lmdb_jumps *lmdb_shared_jumps(struct lmdb_env *env) {
    return &env->shared->jumps;
}

uint64_t lmdb_shared_count(const struct lmdb_env *env, enum idem_event event) {
    return env->shared->events[event];
}

unsigned lmdb_hash_bucket(const unsigned char *hash) {
    return ((unsigned)hash[0] << 8 | hash[1]) % BUCKETS;
}

unsigned lmdb_bucket(const struct idem_record_key *key) {
    return lmdb_hash_bucket(key->at + key->prefix_len);
}

static void shared_clear_slot_bits(struct lmdb_env *env, int slot) {
    uint64_t mask = ~((uint64_t)1 << (slot % 64));

    for (unsigned b = 0; b < BUCKETS; b++)
        env->shared->buckets[b][slot / 64] &= mask;
}

/* A slot is dead if its FIFO has no reader. */
static bool shared_slot_is_dead(struct lmdb_env *env, int slot) {
    char name[16];
    int fd;

    shared_slot_name(slot, name);
    fd = lmdb_directory_open_fifo(env, name, O_WRONLY);
    if (fd >= 0)
        close(fd);
    return fd < 0 && (errno == ENXIO || errno == ENOENT);
}

/* The lock excludes other processes; `slots` excludes the other handles of this process. */
static bool shared_reserve_slot(struct lmdb_env *env, int slot) {
    bool got;

    pthread_mutex_lock(&env->lock);
    got = !env->slots[slot] && lmdb_lock_slot(env, slot);
    if (got)
        env->slots[slot] = true;
    pthread_mutex_unlock(&env->lock);
    return got;
}

/* The name is removed before the lock is released: the next owner makes its own FIFO. */
static void shared_release_slot(struct lmdb_env *env, int slot) {
    char name[16];

    shared_slot_name(slot, name);
    (void)unlinkat(env->dir_fd, name, 0);
    env->shared->slots[slot].named = 0;
    pthread_mutex_lock(&env->lock);
    env->slots[slot] = false;
    lmdb_unlock_slot(env, slot);
    pthread_mutex_unlock(&env->lock);
}

static int shared_take_slot(struct lmdb_env *env, int *ret_slot, int *ret_fd) {
    for (int slot = 0; slot < SLOTS; slot++) {
        char name[16];
        int fd;

        if (!shared_reserve_slot(env, slot))
            continue;
        shared_clear_slot_bits(env, slot);
        shared_slot_name(slot, name);
        env->shared->slots[slot].named = 1;
        (void)unlinkat(env->dir_fd, name, 0);
        /* Opened for both ways, so that it never reads as ended, even when all writers have
           closed it. */
        fd = mkfifoat(env->dir_fd, name, 0600) < 0 ? -1
                                                   : lmdb_directory_open_fifo(env, name, O_RDWR);
        if (fd < 0) {
            shared_release_slot(env, slot);
            return -1;
        }
        env->shared->slots[slot].overflow = 0;
        *ret_slot = slot;
        *ret_fd = fd;
        return 0;
    }
    return -1;
}

int lmdb_slot_take(struct lmdb_env *env, int *ret_slot, int *ret_fd) {
    struct lmdb_identity before;
    int rc;

    if (lmdb_owner_become(&env->owner, &before) != 0)
        return -1;
    rc = shared_take_slot(env, ret_slot, ret_fd);
    lmdb_identity_restore(&before);
    return rc;
}

/* If the name cannot be removed, the slot is later found dead, and the name is removed when a
   process opens the store alone. */
void lmdb_slot_leave(struct lmdb_env *env, int slot) {
    struct lmdb_identity before = {0};

    shared_clear_slot_bits(env, slot);
    (void)lmdb_owner_become(&env->owner, &before);
    shared_release_slot(env, slot);
    lmdb_identity_restore(&before);
}

void lmdb_slot_want(struct lmdb_env *env, int slot, const struct idem_record_key *key) {
    env->shared->buckets[lmdb_bucket(key)][slot / 64] |= (uint64_t)1 << (slot % 64);
}

void lmdb_slot_unwant(struct lmdb_env *env, int slot, const struct idem_record_key *key) {
    env->shared->buckets[lmdb_bucket(key)][slot / 64] &= ~((uint64_t)1 << (slot % 64));
}

bool lmdb_slot_overflowed(struct lmdb_env *env, int slot) {
    return __atomic_exchange_n((uint32_t *)&env->shared->slots[slot].overflow, 0,
                               __ATOMIC_SEQ_CST) != 0;
}

/* Opened for both ways: a reader that dies meanwhile must not raise SIGPIPE here. */
static void shared_notify_slot(struct lmdb_env *env, int slot, const struct idem_record_key *key) {
    const unsigned char *hash = key->at + key->prefix_len;
    char name[16];
    int fd;

    if (shared_slot_is_dead(env, slot)) {
        lmdb_slot_unwant(env, slot, key);
        return;
    }
    shared_slot_name(slot, name);
    fd = lmdb_directory_open_fifo(env, name, O_RDWR);
    if (fd < 0)
        return;
    if (write(fd, hash, IDEM_HASH_LEN) != IDEM_HASH_LEN) {
        /* The flag is set before the second try: either that write succeeds, or the reader has
           yet to read the flag. */
        env->shared->slots[slot].overflow = 1;
        if (write(fd, hash, IDEM_HASH_LEN) != IDEM_HASH_LEN)
            errno = 0;
    }
    close(fd);
}

void lmdb_wake(struct lmdb_env *env, const struct idem_record_key *key) {
    _Atomic uint64_t *bucket = env->shared->buckets[lmdb_bucket(key)];
    struct lmdb_identity before = {0};

    for (int word = 0; word < WORDS; word++) {
        uint64_t bits = bucket[word];

        /* Waiters that cannot be woken poll. */
        if (bits != 0 && lmdb_owner_become(&env->owner, &before) != 0)
            return;

        while (bits != 0) {
            int bit = __builtin_ctzll(bits);

            bits &= bits - 1;
            shared_notify_slot(env, word * 64 + bit, key);
        }
        lmdb_identity_restore(&before);
    }
}
