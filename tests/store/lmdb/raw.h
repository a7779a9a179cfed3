/*
 * Counts, reads or damages the store's file with LMDB itself, without the
 * driver. Only while this process has the store closed, because LMDB allows one
 * environment per process and file.
 */
#ifndef IDEM_TEST_STORE_LMDB_RAW_H
#define IDEM_TEST_STORE_LMDB_RAW_H

#include <lmdb.h>
#include <sys/types.h>

#include "protocol/record.h"

struct raw {
    MDB_env *env;
    MDB_txn *txn;
};

/* Opens the directory and begins a transaction, to write or to read. raw_end() commits. */
void raw_begin(struct raw *raw, const char *folder, bool write);
void raw_end(struct raw *raw);

/* Returns a copy of a value, which the caller frees; NULL if there is none. */
void *raw_get(struct raw *raw, const char *table, const void *name, size_t name_len,
              size_t *ret_len);
void raw_put(struct raw *raw, const char *table, const void *name, size_t name_len,
             const void *value, size_t len);

/* Opens the store, counts the entries of a table, and closes it. */
size_t raw_count(const char *folder, const char *table);

/* Gives the stored record a newer format, with a valid checksum. */
void raw_record_newer(const char *folder, const struct idem_record_key *key);

/* Stops a child (SIGSTOP) that has the store open, at a moment when it is not writing: otherwise
 * no other process could write until the child continues. */
void raw_child_stop(const char *folder, pid_t child);

/* Changes the boot id in the store's state, as if the store were of another boot. */
void raw_boot_change(const char *folder);

#endif
