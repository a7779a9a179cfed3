/*
 * The index on time, and the sweep.
 *
 * Every record has one entry in the index, under a stamp: the time at which the
 * sweep should visit it, in ms, and bits that make it unique. The record knows
 * its stamp. A record that is still alive at that time (it was renewed, or its
 * run took longer) gets a new entry then. So a finish does not have to move the
 * entry, and steady traffic appends to the index's right edge, where LMDB fills
 * its pages.
 *
 * Entries of new records gather in memory and are written many at a time:
 * single writes would dirty half as many pages again as the records do. A
 * process that has claimed little writes them at once. Entries that a killed
 * process had not written are found by a crawl over the records: some of them
 * at each sweep, and all of them, batch by batch, once a process is found dead.
 *
 * A sweep visits a bounded number of entries. A record that cannot be read is
 * left alone and its entry is put off by a day, so that one bad record does not
 * stop the sweep.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/big_endian.h"
#include "store/lmdb/lmdb_store.h"

#define STAMP_LEN 8     /* big-endian, so that the bytes sort in the order of the times */
#define COUNTER_BITS 10 /* of one process in one millisecond */
#define TAG_BITS 11     /* of the process */
#define DAY_MS ((int64_t)24 * 3600 * 1000)
#define PENDING_MAX 16
#define CRAWL_STEP 32
#define SWEEP_EVERY_MS 1000

struct pending_entry {
    uint64_t stamp; /* 0: dropped */
    enum lmdb_kind kind;
    struct idem_record_key key;
};

struct lmdb_pending {
    size_t n;
    size_t before;  /* entries when this transaction began */
    uint64_t added; /* since the start; the more, the more entries may wait */
    bool flushed;   /* the entries are written, if this transaction is stored */
    uint16_t counter;
    struct idem_cursor crawl; /* the next record of the crawl */
    bool crawl_on;            /* a process has died: until every record was visited */
    struct pending_entry entries[PENDING_MAX];
};

int lmdb_expiry_begin(struct lmdb_env *env) {
    env->pending = calloc(1, sizeof(*env->pending));
    return env->pending == NULL ? ENOMEM : 0;
}

void lmdb_expiry_end(struct lmdb_env *env) {
    free(env->pending);
    env->pending = NULL;
}

static int64_t expiry_stamp_ms(uint64_t stamp) {
    return (int64_t)(stamp >> (TAG_BITS + COUNTER_BITS));
}

/* Appending fills pages completely; LMDB refuses it unless the stamp is the highest. */
static int expiry_write_entry(struct lmdb_env *env, MDB_txn *txn,
                              const struct pending_entry *entry) {
    unsigned char data[1 + IDEM_RECORD_KEY_MAX], name_bytes[STAMP_LEN];
    size_t len = idem_record_key_len(&entry->key);
    MDB_val name = {STAMP_LEN, name_bytes}, value = {1 + len, data};
    int rc;

    data[0] = (unsigned char)entry->kind;
    memcpy(data + 1, entry->key.at, len);
    idem_be_put(name_bytes, entry->stamp, STAMP_LEN);
    rc = mdb_put(txn, env->expiry, &name, &value, MDB_APPEND);
    if (rc != MDB_KEYEXIST)
        return rc;
    value = (MDB_val){1 + len, data};
    return mdb_put(txn, env->expiry, &name, &value, 0);
}

/* If two processes make the same stamp after all, one entry replaces the other, and the crawl
   finds the record that lost its entry. */
static uint64_t expiry_make_stamp(struct lmdb_env *env, int64_t look_ms) {
    uint64_t tag = (uint64_t)env->pid & ((1u << TAG_BITS) - 1);
    uint64_t counter = env->pending->counter++ & ((1u << COUNTER_BITS) - 1);

    return (uint64_t)look_ms << (TAG_BITS + COUNTER_BITS) | tag << COUNTER_BITS | counter;
}

/* A process that has added little writes at once: it may end soon. */
static size_t pending_limit(const struct lmdb_pending *pending) {
    return pending->added / 4 < PENDING_MAX ? (size_t)(pending->added / 4) : PENDING_MAX;
}

int lmdb_expiry_add(struct lmdb_env *env, MDB_txn *txn, enum lmdb_kind kind,
                    const struct idem_record_key *key, int64_t look_ms, uint64_t *ret_stamp) {
    struct lmdb_pending *pending = env->pending;
    struct pending_entry entry = {
        .stamp = expiry_make_stamp(env, look_ms), .kind = kind, .key = *key};
    int rc = 0;

    /* The crawl visits records only: an entry of another kind must not wait, because the crawl
       cannot restore it. */
    if (kind == LMDB_KIND_RECORD)
        pending->added++;
    if (kind == LMDB_KIND_RECORD && pending->n < PENDING_MAX)
        pending->entries[pending->n++] = entry;
    else
        rc = expiry_write_entry(env, txn, &entry);
    if (rc == 0)
        *ret_stamp = entry.stamp;
    return rc;
}

int lmdb_expiry_drop(struct lmdb_env *env, MDB_txn *txn, uint64_t stamp) {
    unsigned char name_bytes[STAMP_LEN];
    MDB_val name = {STAMP_LEN, name_bytes};
    int rc;

    for (size_t i = 0; i < env->pending->n; i++) {
        if (env->pending->entries[i].stamp == stamp) {
            env->pending->entries[i].stamp = 0;
            return 0;
        }
    }
    idem_be_put(name_bytes, stamp, STAMP_LEN);
    rc = mdb_del(txn, env->expiry, &name, NULL);
    return rc == MDB_NOTFOUND ? 0 : rc;
}

void lmdb_expiry_died(struct lmdb_env *env) {
    env->pending->crawl_on = true;
    env->pending->crawl.len = 0;
    env->sweep_next = 0;
}

bool lmdb_expiry_waits(const struct lmdb_env *env) {
    return env->pending->n != 0;
}

int lmdb_expiry_flush(struct lmdb_env *env, MDB_txn *txn, bool all) {
    struct lmdb_pending *pending = env->pending;

    if (pending->n == 0 || (!all && pending->n <= pending_limit(pending)))
        return 0;
    for (size_t i = 0; i < pending->n; i++) {
        int rc =
            pending->entries[i].stamp == 0 ? 0 : expiry_write_entry(env, txn, &pending->entries[i]);

        if (rc != 0)
            return rc;
    }
    pending->flushed = true;
    return 0;
}

void lmdb_expiry_settled(struct lmdb_env *env, bool stored) {
    struct lmdb_pending *pending = env->pending;

    if (!stored)
        pending->n = pending->before;
    else if (pending->flushed)
        pending->n = 0;
    pending->flushed = false;
    pending->before = pending->n;
}

static int expiry_visit_record(struct lmdb_env *env, MDB_txn *txn,
                               const struct idem_record_key *key, struct idem_time now,
                               bool *ret_gone) {
    struct lmdb_found found;
    MDB_val name = {idem_record_key_len(key), (void *)key->at};
    uint64_t stamp;
    int code, rc = lmdb_record_get(env, txn, key, &found, NULL, &code);

    *ret_gone = false;
    if (rc != 0)
        return rc;
    if (code != 0)
        return lmdb_expiry_add(env, txn, LMDB_KIND_RECORD, key, now.wall + DAY_MS, &stamp);
    *ret_gone = !found.there || idem_record_expired(&found.record, now);
    if (*ret_gone)
        return found.there ? mdb_del(txn, env->records, &name, NULL) : 0;
    rc = lmdb_expiry_add(env, txn, LMDB_KIND_RECORD, key, found.record.expires, &stamp);
    return rc != 0 ? rc : lmdb_record_put(env, txn, key, &found.record, stamp);
}

static int expiry_visit_entry(struct lmdb_env *env, MDB_txn *txn, MDB_val name, MDB_val value,
                              struct idem_time now, struct lmdb_sweep *sweep) {
    const unsigned char *data = value.mv_data;
    enum lmdb_kind kind = data[0];
    struct idem_record_key key;
    bool gone;
    int rc;

    /* Copied, because the pages move under the writes below. */
    key.prefix_len = value.mv_size - 1 - IDEM_HASH_LEN;
    memcpy(key.at, data + 1, value.mv_size - 1);
    rc = lmdb_expiry_drop(env, txn, idem_be_get(name.mv_data, STAMP_LEN));
    if (rc != 0)
        return rc;
    rc = kind == LMDB_KIND_RECORD ? expiry_visit_record(env, txn, &key, now, &gone)
                                  : lmdb_aux_visit(env, txn, &key, now, &gone);
    if (rc == 0 && gone)
        sweep->removed++;
    return rc;
}

/* Finds the earliest entry; its time may be in the future. */
static int expiry_first_entry(struct lmdb_env *env, MDB_txn *txn, MDB_val *name, MDB_val *value) {
    MDB_cursor *cursor;
    int rc = mdb_cursor_open(txn, env->expiry, &cursor);

    if (rc != 0)
        return rc;
    rc = mdb_cursor_get(cursor, name, value, MDB_FIRST);
    mdb_cursor_close(cursor);
    return rc;
}

static bool expiry_entry_is_valid(MDB_val name, MDB_val value) {
    return name.mv_size == STAMP_LEN && value.mv_size > 1 + IDEM_HASH_LEN &&
           value.mv_size <= 1 + IDEM_RECORD_KEY_MAX;
}

/* Collects the keys of expired records among the next few, and moves the crawl on. */
static int expiry_crawl_find(struct lmdb_env *env, MDB_txn *txn, struct idem_time now,
                             struct idem_record_key *found, size_t *n) {
    struct idem_cursor *at = &env->pending->crawl;
    MDB_val name = {at->len, at->at}, value;
    MDB_cursor *cursor;
    int rc = mdb_cursor_open(txn, env->records, &cursor);

    *n = 0;
    if (rc != 0)
        return rc;
    rc = mdb_cursor_get(cursor, &name, &value, at->len == 0 ? MDB_FIRST : MDB_SET_RANGE);
    for (unsigned i = 0; i < CRAWL_STEP && rc == 0; i++) {
        struct idem_record_key *key = &found[*n];
        struct lmdb_found record;

        if (name.mv_size <= IDEM_HASH_LEN || name.mv_size > IDEM_RECORD_KEY_MAX) {
            rc = MDB_CORRUPTED;
            break;
        }
        key->prefix_len = name.mv_size - IDEM_HASH_LEN;
        memcpy(key->at, name.mv_data, name.mv_size);
        if (lmdb_record_read(env, value, key, &record) == 0 &&
            idem_record_expired(&record.record, now))
            (*n)++;
        rc = mdb_cursor_get(cursor, &name, &value, MDB_NEXT);
        at->len = rc == 0 && name.mv_size <= sizeof(at->at) ? name.mv_size : 0;
        if (at->len != 0)
            memcpy(at->at, name.mv_data, at->len);
    }
    mdb_cursor_close(cursor);
    if (rc == MDB_NOTFOUND) {
        env->pending->crawl_on = false;
        rc = 0;
    }
    return rc;
}

static int expiry_crawl(struct lmdb_env *env, MDB_txn *txn, struct idem_time now,
                        struct lmdb_sweep *sweep) {
    struct idem_record_key expired[CRAWL_STEP];
    size_t n;
    int rc = expiry_crawl_find(env, txn, now, expired, &n);

    for (size_t i = 0; i < n && rc == 0 && sweep->budget > 0; i++) {
        struct lmdb_found found;
        int code;

        rc = lmdb_record_get(env, txn, &expired[i], &found, NULL, &code);
        if (rc == 0 && code == 0 && found.there) {
            rc = lmdb_record_del(env, txn, &expired[i], found.indexed);
            sweep->removed++;
            sweep->budget--;
        }
    }
    return rc;
}

int lmdb_expiry_sweep(struct lmdb_env *env, MDB_txn *txn, struct idem_time now,
                      struct lmdb_sweep *sweep) {
    int rc;

    sweep->more = false;
    while (sweep->budget > 0) {
        MDB_val name, value;

        rc = expiry_first_entry(env, txn, &name, &value);
        if (rc == 0 && !expiry_entry_is_valid(name, value))
            return MDB_CORRUPTED;
        if (rc == MDB_NOTFOUND ||
            (rc == 0 && expiry_stamp_ms(idem_be_get(name.mv_data, STAMP_LEN)) > now.wall)) {
            /* Soon in any case: another process may add an earlier entry. */
            if (!env->pending->crawl_on)
                env->sweep_next = now.wall + SWEEP_EVERY_MS;
            return expiry_crawl(env, txn, now, sweep);
        }
        if (rc != 0)
            return rc;
        rc = expiry_visit_entry(env, txn, name, value, now, sweep);
        if (rc != 0)
            return rc;
        sweep->budget--;
    }
    sweep->more = true;
    return 0;
}
