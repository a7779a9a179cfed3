/*
 * The store's file, read and changed without the driver. Ends the test if LMDB
 * refuses.
 */
#include "raw.h"

#include <signal.h>
#include <string.h>
#include <sys/wait.h>

#include "protocol/checksum.h"
#include "rig.h"

#define INDEXED_LEN 8 /* before each record: the stamp of its index entry */

void raw_begin(struct raw *raw, const char *folder, bool write) {
    NEED(mdb_env_create(&raw->env) == 0);
    NEED(mdb_env_set_maxdbs(raw->env, 8) == 0);
    NEED(mdb_env_open(raw->env, folder, write ? 0 : MDB_RDONLY, 0600) == 0);
    NEED(mdb_txn_begin(raw->env, NULL, write ? 0 : MDB_RDONLY, &raw->txn) == 0);
}

void raw_end(struct raw *raw) {
    NEED(mdb_txn_commit(raw->txn) == 0);
    mdb_env_close(raw->env);
}

static MDB_dbi table_open(struct raw *raw, const char *table) {
    MDB_dbi dbi;

    NEED(mdb_dbi_open(raw->txn, table, 0, &dbi) == 0);
    return dbi;
}

void *raw_get(struct raw *raw, const char *table, const void *name, size_t name_len,
              size_t *ret_len) {
    MDB_val key = {name_len, (void *)name}, value;
    void *copy;
    int rc = mdb_get(raw->txn, table_open(raw, table), &key, &value);

    if (rc == MDB_NOTFOUND)
        return NULL;
    NEED(rc == 0);
    copy = malloc(value.mv_size + 1);
    NEED(copy != NULL);
    memcpy(copy, value.mv_data, value.mv_size);
    *ret_len = value.mv_size;
    return copy;
}

void raw_put(struct raw *raw, const char *table, const void *name, size_t name_len,
             const void *value, size_t len) {
    MDB_val key = {name_len, (void *)name}, val = {len, (void *)value};

    NEED(mdb_put(raw->txn, table_open(raw, table), &key, &val, 0) == 0);
}

size_t raw_count(const char *folder, const char *table) {
    struct raw raw;
    MDB_stat stat;

    raw_begin(&raw, folder, false);
    NEED(mdb_stat(raw.txn, table_open(&raw, table), &stat) == 0);
    raw_end(&raw);
    return stat.ms_entries;
}

void raw_record_newer(const char *folder, const struct idem_record_key *key) {
    struct raw raw;
    size_t len = 0;
    unsigned char *value;

    raw_begin(&raw, folder, true);
    value = raw_get(&raw, "records", key->at, idem_record_key_len(key), &len);
    NEED(value != NULL && len > INDEXED_LEN + IDEM_CHECKSUM_LEN + 2);
    value[INDEXED_LEN] = value[INDEXED_LEN + 1] = IDEM_RECORD_FORMAT + 1;
    idem_checksum_put(
        idem_checksum(key, value + INDEXED_LEN, len - INDEXED_LEN - IDEM_CHECKSUM_LEN),
        value + len - IDEM_CHECKSUM_LEN);
    raw_put(&raw, "records", key->at, idem_record_key_len(key), value, len);
    raw_end(&raw);
    free(value);
}

void raw_child_stop(const char *folder, pid_t child) {
    struct raw raw;
    int status;

    raw_begin(&raw, folder, true);
    NEED(kill(child, SIGSTOP) == 0);
    NEED(waitpid(child, &status, WUNTRACED) == child && WIFSTOPPED(status));
    raw_end(&raw);
}

/* The row is an epoch (4 bytes) and the boot id. */
void raw_boot_change(const char *folder) {
    struct raw raw;
    size_t len = 0;
    unsigned char *row;

    raw_begin(&raw, folder, true);
    row = raw_get(&raw, "meta", "boot", 4, &len);
    NEED(row != NULL && len > 4 + 8);
    memcpy(row + 4, "00000000", 8);
    raw_put(&raw, "meta", "boot", 4, row, len);
    raw_end(&raw);
    free(row);
}
