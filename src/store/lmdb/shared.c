/*
 * Memory that all processes on one store share: the counts of events, and who
 * waits for what.
 *
 * A store that has waiters holds a slot: a byte of idem.lock, which the kernel
 * takes back from the dead, a FIFO `wake.N` in the store's folder, and a bit in
 * the bucket of each key it waits for. Who finishes a key looks at
 * its bucket after the commit and writes the key's hash into the FIFOs of the
 * slots it finds there. A waiter sets its bit before it looks at the record
 * again, so one of the two always sees the other. A bit too many costs a spare
 * wake-up; a slot whose process died is found dead when its FIFO has no reader.
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

#include "core/error.h"
#include "store/lmdb/folder.h"
#include "store/lmdb/jumps.h"

#define SHARED_FILE "idem.shared"
#define SHARED_MAGIC 0x6d656469u
#define SHARED_FORMAT 3u
#define SLOTS LMDB_SLOTS
#define BUCKETS LMDB_BUCKETS
#define WORDS (SLOTS / 64)

struct lmdb_shared {
    uint32_t magic, format;
    _Atomic int64_t high; /* the highest real time anybody has seen */
    _Atomic uint64_t events[64];
    struct {
        _Atomic uint32_t named;    /* its FIFO may be there */
        _Atomic uint32_t overflow; /* its FIFO was full: look at everything */
    } slots[SLOTS];
    _Atomic uint64_t buckets[BUCKETS][WORDS];
    struct lmdb_jumps jumps; /* earlier versions with this format end before it */
};

_Static_assert(IDEM_EVENT__COUNT <= 64, "more events than the shared file has room for");

static void slot_name(int slot, char out[16]) {
    snprintf(out, 16, "wake.%d", slot);
}

/* Nobody has the store open: whatever slots are taken are left over from the dead. */
static void slots_reset(struct lmdb_env *env) {
    for (int i = 0; i < SLOTS; i++) {
        char name[16];

        if (env->shared->slots[i].named == 0)
            continue;
        slot_name(i, name);
        (void)unlinkat(env->dir_fd, name, 0);
        env->shared->slots[i].named = 0;
        env->shared->slots[i].overflow = 0;
    }
    memset(env->shared->buckets, 0, sizeof(env->shared->buckets));
}

int lmdb_shared_open(struct lmdb_env *env, bool alone, struct idem_error *err) {
    struct lmdb_shared *shared;
    struct stat st;
    int fd, rc = lmdb_folder_file(env, SHARED_FILE, O_RDWR | O_CREAT, &fd, &st, err);

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
        slots_reset(env);
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

int64_t lmdb_shared_high(struct lmdb_env *env, int64_t wall) {
    int64_t high = env->shared->high;

    while (wall > high)
        if (__atomic_compare_exchange_n((int64_t *)&env->shared->high, &high, wall, false,
                                        __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
            return wall;
    return high;
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

static void slot_clear_bits(struct lmdb_env *env, int slot) {
    uint64_t mask = ~((uint64_t)1 << (slot % 64));

    for (unsigned b = 0; b < BUCKETS; b++)
        env->shared->buckets[b][slot / 64] &= mask;
}

/* A slot is dead when nobody reads its FIFO. */
static bool slot_dead(struct lmdb_env *env, int slot) {
    char name[16];
    int fd;

    slot_name(slot, name);
    fd = lmdb_folder_fifo(env, name, O_WRONLY);
    if (fd >= 0)
        close(fd);
    return fd < 0 && (errno == ENXIO || errno == ENOENT);
}

/* The lock keeps other processes out; among the handles of this one, `slots` does. */
static bool slot_grab(struct lmdb_env *env, int slot) {
    bool got;

    pthread_mutex_lock(&env->lock);
    got = !env->slots[slot] && lmdb_lock_slot(env, slot);
    if (got)
        env->slots[slot] = true;
    pthread_mutex_unlock(&env->lock);
    return got;
}

/* The name goes before the lock: the next owner makes its own. */
static void slot_free(struct lmdb_env *env, int slot) {
    char name[16];

    slot_name(slot, name);
    (void)unlinkat(env->dir_fd, name, 0);
    env->shared->slots[slot].named = 0;
    pthread_mutex_lock(&env->lock);
    env->slots[slot] = false;
    lmdb_unlock_slot(env, slot);
    pthread_mutex_unlock(&env->lock);
}

static int slot_take(struct lmdb_env *env, int *ret_slot, int *ret_fd) {
    for (int slot = 0; slot < SLOTS; slot++) {
        char name[16];
        int fd;

        if (!slot_grab(env, slot))
            continue;
        slot_clear_bits(env, slot);
        slot_name(slot, name);
        env->shared->slots[slot].named = 1;
        (void)unlinkat(env->dir_fd, name, 0);
        /* Opened for both, so that it never reads as ended and no writer's end matters. */
        fd = mkfifoat(env->dir_fd, name, 0600) < 0 ? -1 : lmdb_folder_fifo(env, name, O_RDWR);
        if (fd < 0) {
            slot_free(env, slot);
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
    rc = slot_take(env, ret_slot, ret_fd);
    lmdb_owner_resign(&before);
    return rc;
}

/* A name that cannot be removed is found dead, and removed when a process opens the store alone. */
void lmdb_slot_leave(struct lmdb_env *env, int slot) {
    struct lmdb_identity before = {0};

    slot_clear_bits(env, slot);
    (void)lmdb_owner_become(&env->owner, &before);
    slot_free(env, slot);
    lmdb_owner_resign(&before);
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
static void slot_tell(struct lmdb_env *env, int slot, const struct idem_record_key *key) {
    const unsigned char *hash = key->at + key->prefix_len;
    char name[16];
    int fd;

    if (slot_dead(env, slot)) {
        lmdb_slot_unwant(env, slot, key);
        return;
    }
    slot_name(slot, name);
    fd = lmdb_folder_fifo(env, name, O_RDWR);
    if (fd < 0)
        return;
    if (write(fd, hash, IDEM_HASH_LEN) != IDEM_HASH_LEN) {
        /* Said before the second try: either that one gets in, or the reader has yet to
           look at the flag. */
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
            slot_tell(env, word * 64 + bit, key);
        }
        lmdb_owner_resign(&before);
    }
}
