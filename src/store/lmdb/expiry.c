/*
 * The index on time, and the sweep.
 *
 * Every record has exactly one entry in the index, under a stamp: the time at
 * which it is worth a look, in ms, and a counter that makes it unique. A record
 * that lives on when its time comes (it was renewed, or its run took longer)
 * gets a new one then; so a finish does not have to move the entry, and steady
 * traffic appends to the index's right edge, where LMDB fills its pages.
 *
 * A sweep looks at a bounded number of entries. MDB codes are returned; a
 * record that cannot be read is left alone and its entry is put off by a day,
 * so that one bad record does not stop the sweep.
 */
#include <string.h>

#include "store/lmdb/aux.h"
#include "store/lmdb/lmdb.h"

#define STAMP_LEN 8
#define COUNTER_BITS 16
#define DAY_MS ((int64_t)24 * 3600 * 1000)

/* Big-endian, so that the order of the bytes is that of the times. */
static void stamp_put(unsigned char *out, uint64_t stamp) {
    for (unsigned i = 0; i < STAMP_LEN; i++)
        out[i] = (unsigned char)(stamp >> (56 - 8 * i));
}

static uint64_t stamp_get(const unsigned char *at) {
    uint64_t stamp = 0;

    for (unsigned i = 0; i < STAMP_LEN; i++)
        stamp = stamp << 8 | at[i];
    return stamp;
}

static int64_t stamp_ms(uint64_t stamp) {
    return (int64_t)(stamp >> COUNTER_BITS);
}

/* Appending fills pages to the brim; it is refused unless the stamp is the highest. */
int lmdb_expiry_add(struct lmdb_env *env, MDB_txn *txn, enum lmdb_kind kind,
                    const struct idem_record_key *key, int64_t look_ms, uint64_t *ret_stamp) {
    unsigned char data[1 + IDEM_RECORD_KEY_MAX], name_bytes[STAMP_LEN];
    uint64_t stamp = (uint64_t)look_ms << COUNTER_BITS | env->stamps++;
    MDB_val name = {STAMP_LEN, name_bytes}, value = {1 + idem_record_key_len(key), data};
    int rc;

    data[0] = (unsigned char)kind;
    memcpy(data + 1, key->at, idem_record_key_len(key));
    stamp_put(name_bytes, stamp);
    rc = mdb_put(txn, env->expiry, &name, &value, MDB_APPEND);
    while (rc == MDB_KEYEXIST) {
        value = (MDB_val){1 + idem_record_key_len(key), data};
        rc = mdb_put(txn, env->expiry, &name, &value, MDB_NOOVERWRITE);
        if (rc == MDB_KEYEXIST)
            stamp_put(name_bytes, ++stamp);
    }
    if (rc == 0)
        *ret_stamp = stamp;
    return rc;
}

int lmdb_expiry_drop(struct lmdb_env *env, MDB_txn *txn, uint64_t stamp) {
    unsigned char name_bytes[STAMP_LEN];
    MDB_val name = {STAMP_LEN, name_bytes};
    int rc;

    stamp_put(name_bytes, stamp);
    rc = mdb_del(txn, env->expiry, &name, NULL);
    return rc == MDB_NOTFOUND ? 0 : rc;
}

static int record_visit(struct lmdb_env *env, MDB_txn *txn, const struct idem_record_key *key,
                        struct idem_time now, bool *ret_gone) {
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

static int entry_visit(struct lmdb_env *env, MDB_txn *txn, MDB_val name, MDB_val value,
                       struct idem_time now, struct lmdb_sweep *sweep) {
    const unsigned char *data = value.mv_data;
    enum lmdb_kind kind = data[0];
    struct idem_record_key key;
    bool gone;
    int rc;

    /* Copied: the pages move under the writes below. */
    key.prefix_len = value.mv_size - 1 - IDEM_HASH_LEN;
    memcpy(key.at, data + 1, value.mv_size - 1);
    rc = lmdb_expiry_drop(env, txn, stamp_get(name.mv_data));
    if (rc != 0)
        return rc;
    rc = kind == LMDB_KIND_RECORD ? record_visit(env, txn, &key, now, &gone)
                                  : lmdb_aux_visit(env, txn, &key, now, &gone);
    if (rc == 0 && gone)
        sweep->removed++;
    return rc;
}

/* The first entry, whose second may be in the future. */
static int entry_first(struct lmdb_env *env, MDB_txn *txn, MDB_val *name, MDB_val *value) {
    MDB_cursor *cursor;
    int rc = mdb_cursor_open(txn, env->expiry, &cursor);

    if (rc != 0)
        return rc;
    rc = mdb_cursor_get(cursor, name, value, MDB_FIRST);
    mdb_cursor_close(cursor);
    return rc;
}

static bool entry_sane(MDB_val name, MDB_val value) {
    return name.mv_size == STAMP_LEN && value.mv_size > 1 + IDEM_HASH_LEN &&
           value.mv_size <= 1 + IDEM_RECORD_KEY_MAX;
}

int lmdb_expiry_sweep(struct lmdb_env *env, MDB_txn *txn, struct idem_time now,
                      struct lmdb_sweep *sweep) {
    sweep->more = false;
    while (sweep->budget > 0) {
        MDB_val name, value;
        int rc = entry_first(env, txn, &name, &value);

        if (rc == MDB_NOTFOUND) {
            env->sweep_next = now.wall + 1000;
            return 0;
        }
        if (rc != 0)
            return rc;
        if (!entry_sane(name, value))
            return MDB_CORRUPTED;
        if (stamp_ms(stamp_get(name.mv_data)) > now.wall) {
            /* Soon again in any case: another process may add an earlier one. */
            env->sweep_next = now.wall + 1000;
            return 0;
        }
        rc = entry_visit(env, txn, name, value, now, sweep);
        if (rc != 0)
            return rc;
        sweep->budget--;
    }
    sweep->more = true;
    return 0;
}
