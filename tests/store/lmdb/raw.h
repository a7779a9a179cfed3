/*
 * The store's file seen past the driver, with LMDB itself: what is counted,
 * read or spoilt there. Only while this process has the store closed, for LMDB
 * allows one environment per process and file.
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

/* Opens the folder and begins: to write, or to read. The end commits. */
void raw_begin(struct raw *raw, const char *folder, bool write);
void raw_end(struct raw *raw);

/* A copy of a value, owned by the caller: free(); NULL if there is none. */
void *raw_get(struct raw *raw, const char *table, const void *name, size_t name_len,
              size_t *ret_len);
void raw_put(struct raw *raw, const char *table, const void *name, size_t name_len,
             const void *value, size_t len);

/* Opens, counts the entries of a table, closes. */
size_t raw_count(const char *folder, const char *table);

/* Makes the stored record one of a newer format, checksum and all. */
void raw_record_newer(const char *folder, const struct idem_record_key *key);

/* Stops a child (SIGSTOP) that has the store open, at a moment when it is not writing: otherwise no
   other process could write until it goes on. */
void raw_child_stop(const char *folder, pid_t child);

/* Changes the boot that the store believes itself in. */
void raw_boot_change(const char *folder);

#endif
