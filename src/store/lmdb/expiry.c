/*
 * The index on time, and the sweep.
 *
 * Every record has exactly one entry in the index, under a second at which it
 * is worth a look: (second, first bytes of the hash) -> (kind, name). A record
 * that lives on when its second comes (it was renewed, or its run took longer)
 * gets a new one then; so a finish does not have to move the entry, and steady
 * traffic appends to the index's right edge.
 *
 * A sweep looks at a bounded number of entries. MDB codes are returned; a
 * record that cannot be read is left alone and its entry is put off by a day,
 * so that one bad record does not stop the sweep.
 */
#include <string.h>

#include "store/lmdb/aux.h"
#include "store/lmdb/lmdb.h"

#define ENTRY_HASH 8
#define DAY_S (24 * 3600)

struct entry_key {
    unsigned char at[4 + ENTRY_HASH];
};

uint32_t lmdb_expiry_second(int64_t wall_ms) {
    int64_t second = wall_ms / 1000 + 1;

    return second > UINT32_MAX ? UINT32_MAX : (uint32_t)second;
}

static void second_put(unsigned char *out, uint32_t second) {
    for (unsigned i = 0; i < 4; i++)
        out[i] = (unsigned char)(second >> (24 - 8 * i));
}

static uint32_t second_get(const unsigned char *at) {
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static MDB_val entry_name(struct entry_key *buf, const struct idem_record_key *key,
                          uint32_t second) {
    second_put(buf->at, second);
    memcpy(buf->at + 4, key->at + key->prefix_len, ENTRY_HASH);
    return (MDB_val){sizeof(buf->at), buf->at};
}

int lmdb_expiry_add(struct lmdb_env *env, MDB_txn *txn, enum lmdb_kind kind,
                    const struct idem_record_key *key, uint32_t second) {
    unsigned char data[1 + IDEM_RECORD_KEY_MAX];
    struct entry_key buf;
    MDB_val name = entry_name(&buf, key, second);
    MDB_val value = {1 + idem_record_key_len(key), data};

    data[0] = (unsigned char)kind;
    memcpy(data + 1, key->at, idem_record_key_len(key));
    return mdb_put(txn, env->expiry, &name, &value, 0);
}

int lmdb_expiry_drop(struct lmdb_env *env, MDB_txn *txn, const struct idem_record_key *key,
                     uint32_t second) {
    struct entry_key buf;
    MDB_val name = entry_name(&buf, key, second);
    int rc = mdb_del(txn, env->expiry, &name, NULL);

    return rc == MDB_NOTFOUND ? 0 : rc;
}

static int record_visit(struct lmdb_env *env, MDB_txn *txn, const struct idem_record_key *key,
                        struct idem_time now, uint32_t *ret_next) {
    struct lmdb_found found;
    MDB_val name = {idem_record_key_len(key), (void *)key->at};
    int code, rc = lmdb_record_get(env, txn, key, &found, NULL, &code);

    *ret_next = 0;
    if (rc != 0)
        return rc;
    if (code != 0) {
        *ret_next = lmdb_expiry_second(now.wall) + DAY_S;
        return 0;
    }
    if (!found.there)
        return 0;
    if (idem_record_expired(&found.record, now))
        return mdb_del(txn, env->records, &name, NULL);
    *ret_next = lmdb_expiry_second(found.record.expires);
    return lmdb_record_put(env, txn, key, &found.record, *ret_next);
}

static int entry_visit(struct lmdb_env *env, MDB_txn *txn, MDB_val name, MDB_val value,
                       struct idem_time now, struct lmdb_sweep *sweep) {
    const unsigned char *data = value.mv_data;
    enum lmdb_kind kind = data[0];
    struct idem_record_key key;
    struct entry_key old;
    MDB_val old_name = {sizeof(old.at), old.at};
    uint32_t next = 0;
    int rc;

    /* Copied: the pages move under the writes below. */
    key.prefix_len = value.mv_size - 1 - IDEM_HASH_LEN;
    memcpy(key.at, data + 1, value.mv_size - 1);
    memcpy(old.at, name.mv_data, sizeof(old.at));
    rc = mdb_del(txn, env->expiry, &old_name, NULL);
    if (rc != 0)
        return rc;
    rc = kind == LMDB_KIND_RECORD ? record_visit(env, txn, &key, now, &next)
                                  : lmdb_aux_visit(env, txn, &key, now, &next);
    if (rc != 0)
        return rc;
    if (next != 0)
        return lmdb_expiry_add(env, txn, kind, &key, next);
    sweep->removed++;
    return 0;
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
    return name.mv_size == 4 + ENTRY_HASH && value.mv_size > 1 + IDEM_HASH_LEN &&
           value.mv_size <= 1 + IDEM_RECORD_KEY_MAX;
}

int lmdb_expiry_sweep(struct lmdb_env *env, MDB_txn *txn, struct idem_time now,
                      struct lmdb_sweep *sweep) {
    uint32_t present = (uint32_t)(now.wall / 1000);

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
        if (second_get(name.mv_data) > present) {
            env->sweep_next = (int64_t)second_get(name.mv_data) * 1000;
            if (env->sweep_next > now.wall + 1000)
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
