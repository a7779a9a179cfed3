/*
 * Checks that LMDB does not make itself: its files exist, are complete and have
 * room; and the number of free pages.
 */
#ifndef IDEM_STORE_LMDB_LMDB_CHECK_H
#define IDEM_STORE_LMDB_LMDB_CHECK_H

#include "store/lmdb/lmdb_store.h"

/* Counts the pages on the free list. MDB codes. */
int lmdb_check_free(MDB_txn *txn, size_t *ret);

/* Returns IDEM_E_CORRUPT if the data file is truncated or its pages do not form valid trees.
   Reads the whole file. Call it only while no other process has the store open. */
int lmdb_check_file(struct lmdb_env *env, struct idem_error *err);

/* Returns IDEM_E_CORRUPT if a store that was in use has an empty data file, which LMDB would
   take for a new one. A missing file is accepted: the operator has moved it away. */
int lmdb_check_present(struct lmdb_env *env, struct idem_error *err);

/* Allocates LMDB's lock file: it is mapped, and without allocation a full disk would raise
   SIGBUS. */
int lmdb_check_lock_file(struct lmdb_env *env, struct idem_error *err);

bool lmdb_check_disk_full(const struct lmdb_env *env);

/*
 * Verifies that the pages of data.mdb form valid trees.
 */

/* Returns 0, MDB_CORRUPTED, ENOMEM or an errno. *ret_page is the first damaged page. A page in
   use beyond the file's end counts as damaged. Call it only while no other process has the store
   open. */
int lmdb_tree_check(int fd, size_t page_size, size_t *ret_page);

#endif
