/*
 * Opens the contents of data.mdb: its tables, its format, and the boot that
 * leases belong to. A process that opens a store alone creates missing entries in
 * one write transaction. A later process only reads: a third process may have
 * been stopped while it held LMDB's write lock, and opening must not wait for
 * that.
 */
#include <string.h>

#include "base/error.h"
#include "store/lmdb/lmdb_store.h"

#define STORE_FORMAT 1

int lmdb_meta_get(struct lmdb_env *env, MDB_txn *txn, const char *label, MDB_val *ret) {
    MDB_val name = {strlen(label), (void *)label};

    return mdb_get(txn, env->meta, &name, ret);
}

int lmdb_meta_put(struct lmdb_env *env, MDB_txn *txn, const char *label, const void *at,
                  size_t len) {
    MDB_val name = {strlen(label), (void *)label}, value = {len, (void *)at};

    return mdb_put(txn, env->meta, &name, &value, 0);
}

static int tables_check_format(struct lmdb_env *env, MDB_txn *txn, bool alone,
                               struct idem_error *err) {
    uint32_t format = STORE_FORMAT;
    MDB_val value;
    int rc = lmdb_meta_get(env, txn, "format", &value);

    if (rc == MDB_NOTFOUND && alone) {
        value = (MDB_val){sizeof(format), &format};
        rc = lmdb_meta_put(env, txn, "format", &format, sizeof(format));
    }
    if (rc == MDB_NOTFOUND || (rc == 0 && value.mv_size != sizeof(format)))
        rc = MDB_CORRUPTED;
    if (rc != 0)
        return lmdb_fail(env, err, rc, "read the format");
    memcpy(&format, value.mv_data, sizeof(format));
    if (format > STORE_FORMAT)
        return idem_error_set(err, IDEM_E_VERSION,
                              "%s/data.mdb was made by a newer version of "
                              "Idem (format %u, this one reads %d)",
                              env->config.path, format, STORE_FORMAT);
    return 0;
}

/* Loads the number of the boot, which each record contains; a new boot gets the next one. */
static int tables_load_epoch(struct lmdb_env *env, MDB_txn *txn, bool alone, const char *boot,
                             bool *ret_same, struct idem_error *err) {
    struct {
        uint32_t epoch;
        char boot[LMDB_BOOT_LEN];
    } saved = {0};
    MDB_val value;
    int rc = lmdb_meta_get(env, txn, "boot", &value);

    if (rc == 0 && value.mv_size != sizeof(saved))
        rc = MDB_CORRUPTED;
    if (rc != 0 && rc != MDB_NOTFOUND)
        return lmdb_fail(env, err, rc, "read the boot");
    if (rc == 0)
        memcpy(&saved, value.mv_data, sizeof(saved));
    *ret_same = rc == 0 && memcmp(saved.boot, boot, LMDB_BOOT_LEN) == 0;
    if (!*ret_same && !alone)
        return idem_error_set(err, IDEM_E_REFUSED,
                              "%s is open on another machine, or in another time namespace; "
                              "the embedded store serves one machine: its locks and its clock "
                              "are that machine's",
                              env->config.path);
    if (!*ret_same) {
        saved.epoch++;
        memcpy(saved.boot, boot, LMDB_BOOT_LEN);
        rc = lmdb_meta_put(env, txn, "boot", &saved, sizeof(saved));
        if (rc != 0)
            return lmdb_fail(env, err, rc, "write the boot");
    }
    env->epoch = saved.epoch;
    return 0;
}

static int tables_load(struct lmdb_env *env, MDB_txn *txn, bool alone, const char *boot,
                       struct idem_error *err) {
    unsigned flags = alone ? MDB_CREATE : 0;
    bool same_boot = false;
    int rc;

    if ((rc = mdb_dbi_open(txn, "meta", flags, &env->meta)) != 0)
        return lmdb_fail(env, err, rc, "open the tables");
    rc = tables_check_format(env, txn, alone, err);
    if (rc != 0)
        return rc;
    if ((rc = mdb_dbi_open(txn, "records", flags, &env->records)) != 0 ||
        (rc = mdb_dbi_open(txn, "expiry", flags, &env->expiry)) != 0 ||
        (rc = mdb_dbi_open(txn, "aux", flags, &env->aux)) != 0)
        return lmdb_fail(env, err, rc, "open the tables");
    rc = tables_load_epoch(env, txn, alone, boot, &same_boot, err);
    if (rc == 0)
        rc = lmdb_clock_load(env, txn, same_boot, err);
    return rc == 0 && alone && env->config.accept_clock ? lmdb_clock_accept(env, txn, err) : rc;
}

/* Another process may have lengthened the file since it was mapped. */
static int tables_begin(struct lmdb_env *env, bool alone, MDB_txn **ret) {
    int rc = MDB_MAP_RESIZED;

    for (int tries = 0; tries < LMDB_RESIZES_MAX && rc == MDB_MAP_RESIZED; tries++) {
        rc = mdb_txn_begin(env->mdb, NULL, alone ? 0 : MDB_RDONLY, ret);
        if (rc == MDB_MAP_RESIZED && (rc = lmdb_map_adopt(env)) == 0)
            rc = MDB_MAP_RESIZED;
    }
    return rc;
}

/* With sync=off the state file must mark the store as open before the first write to it, but
   only after every check has passed. */
int lmdb_tables_open(struct lmdb_env *env, bool alone, const struct lmdb_state *state,
                     struct idem_error *err) {
    char clock_id[LMDB_BOOT_LEN + 1];
    MDB_txn *txn;
    int rc = tables_begin(env, alone, &txn);

    if (rc != 0)
        return lmdb_fail(env, err, rc, alone ? "begin" : "read");
    rc = lmdb_clock_id(clock_id, err);
    if (rc == 0) {
        memcpy(env->clock.boot, clock_id, sizeof(clock_id));
        rc = tables_load(env, txn, alone, clock_id, err);
    }
    if (rc == 0 && alone && env->config.sync == LMDB_SYNC_OFF)
        rc = lmdb_state_write(env, state, err);
    if (rc != 0) {
        mdb_txn_abort(txn);
        return rc;
    }
    rc = mdb_txn_commit(txn);
    return rc == 0 ? 0 : lmdb_fail(env, err, rc, "write");
}
