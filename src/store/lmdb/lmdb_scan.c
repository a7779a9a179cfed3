/*
 * Operations that read many records: list and stats. Each call reads a bounded
 * number and remembers its position, so that no loop and no read transaction is
 * held for long. Changes made meanwhile may be seen or missed.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/error.h"
#include "protocol/record_entry.h"
#include "store/lmdb/lmdb_store.h"

#define SCAN_STEP 1000

static void scan_add_to_list(struct lmdb_env *env, struct lmdb_job *job,
                             const struct idem_record_key *key, MDB_val value,
                             struct idem_time now) {
    const struct idem_list_in *in = &job->copy.in.list;
    struct lmdb_found found;
    int code = lmdb_record_read(env, value, key, &found);

    if ((code == 0 && idem_record_expired(&found.record, now)) ||
        !idem_list_take(in, key, code, &found.record, now, &job->entries[job->copy.out.list.n]))
        return;
    if (++job->copy.out.list.n == in->max)
        job->ready = true;
}

static void scan_add_to_stats(struct lmdb_env *env, struct lmdb_job *job,
                              const struct idem_record_key *key, MDB_val value,
                              struct idem_time now) {
    struct idem_stats *stats = &job->copy.out.stats;
    struct lmdb_found found;

    if (lmdb_record_read(env, value, key, &found) != 0 || idem_record_expired(&found.record, now))
        return;
    idem_stats_add(stats, found.record.state, idem_record_live(&found.record, now), 1);
}

static bool scan_read_key(MDB_val name, struct idem_record_key *key) {
    if (name.mv_size <= IDEM_HASH_LEN || name.mv_size > IDEM_RECORD_KEY_MAX)
        return false;
    key->prefix_len = name.mv_size - IDEM_HASH_LEN;
    memcpy(key->at, name.mv_data, name.mv_size);
    return true;
}

/* Moves to the first record after the scan's position. */
static int scan_seek(MDB_cursor *cursor, const struct idem_cursor *at, struct idem_bytes prefix,
                     MDB_val *name, MDB_val *value) {
    int rc;

    if (at->len == 0) {
        if (prefix.len == 0)
            return mdb_cursor_get(cursor, name, value, MDB_FIRST);
        *name = (MDB_val){prefix.len, (void *)prefix.at};
        return mdb_cursor_get(cursor, name, value, MDB_SET_RANGE);
    }
    *name = (MDB_val){at->len, (void *)at->at};
    rc = mdb_cursor_get(cursor, name, value, MDB_SET_RANGE);
    if (rc == 0 && idem_same(name->mv_data, name->mv_size, at->at, at->len))
        rc = mdb_cursor_get(cursor, name, value, MDB_NEXT);
    return rc;
}

typedef void see_fn(struct lmdb_env *env, struct lmdb_job *job, const struct idem_record_key *key,
                    MDB_val value, struct idem_time now);

/* Sets job->ready when the scan reaches the end or has enough records. */
static int scan_step(struct lmdb_env *env, MDB_txn *txn, struct lmdb_job *job,
                     struct idem_cursor *at, struct idem_bytes prefix, see_fn *see,
                     struct idem_time now) {
    MDB_cursor *cursor;
    MDB_val name, value;
    int rc = mdb_cursor_open(txn, env->records, &cursor);

    if (rc != 0)
        return rc;
    rc = scan_seek(cursor, at, prefix, &name, &value);
    for (unsigned n = 0; rc == 0 && n < SCAN_STEP && !job->ready; n++) {
        struct idem_record_key key;

        if (prefix.len != 0 &&
            (name.mv_size < prefix.len || memcmp(name.mv_data, prefix.at, prefix.len) != 0)) {
            rc = MDB_NOTFOUND;
            break;
        }
        if (!scan_read_key(name, &key)) {
            rc = MDB_CORRUPTED;
            break;
        }
        memcpy(at->at, name.mv_data, name.mv_size);
        at->len = name.mv_size;
        if (key.prefix_len >= prefix.len) /* otherwise the prefix matched bytes of the hash */
            see(env, job, &key, value, now);
        if (!job->ready)
            rc = mdb_cursor_get(cursor, &name, &value, MDB_NEXT);
    }
    mdb_cursor_close(cursor);
    if (rc == MDB_NOTFOUND) {
        at->end = true;
        job->ready = true;
        rc = 0;
    }
    return rc;
}

static int scan_list(struct lmdb_env *env, MDB_txn *txn, struct lmdb_job *job,
                     struct idem_time now) {
    struct idem_list_in *in = &job->copy.in.list;
    int rc;

    if (job->entries == NULL) {
        job->entries = calloc(in->max, sizeof(*job->entries));
        if (job->entries == NULL)
            return ENOMEM;
        job->copy.out.list.entries = job->entries;
        job->copy.out.list.n = 0;
    }
    rc = scan_step(env, txn, job, &in->cursor, in->prefix, scan_add_to_list, now);
    job->copy.out.list.cursor = in->cursor;
    return rc;
}

static int scan_stats(struct lmdb_env *env, MDB_txn *txn, struct lmdb_job *job,
                      struct idem_time now) {
    struct idem_stats *stats = &job->copy.out.stats;
    struct idem_cursor *at = &job->copy.in.list.cursor; /* zeroed by submit */
    size_t used;
    int rc = scan_step(env, txn, job, at, (struct idem_bytes){0}, scan_add_to_stats, now);

    if (rc != 0 || !job->ready)
        return rc;
    for (int i = 0; i < IDEM_EVENT__COUNT; i++)
        stats->events[i] = lmdb_shared_count(env, i);
    rc = lmdb_env_used(env, txn, &used);
    stats->bytes_used = used;
    stats->bytes_max = env->config.size;
    return rc;
}

bool lmdb_op_scans(const struct lmdb_job *job) {
    return job->copy.kind == IDEM_OP_LIST || job->copy.kind == IDEM_OP_STATS;
}

void lmdb_op_scan(struct lmdb_env *env, MDB_txn *txn, struct lmdb_job *job, struct idem_time now) {
    int rc = job->copy.kind == IDEM_OP_LIST ? scan_list(env, txn, job, now)
                                            : scan_stats(env, txn, job, now);

    if (rc != 0) {
        job->rc = lmdb_fail(env, &job->copy.error, rc, "read");
        job->ready = true;
    }
}
