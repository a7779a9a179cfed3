/*
 * What LMDB does not check by itself: whether its files are there, whole and
 * have room, and how many pages are free.
 */
#ifndef IDEM_STORE_LMDB_CHECK_H
#define IDEM_STORE_LMDB_CHECK_H

#include "store/lmdb/lmdb.h"

/* Pages on the free list. MDB codes. */
int lmdb_check_free(MDB_txn *txn, size_t *ret);

/* IDEM_E_CORRUPT if the data file was cut short or its pages do not hang together. Reads all of
   it. Only while nobody else has it open. */
int lmdb_check_file(struct lmdb_env *env, struct idem_error *err);

/* IDEM_E_CORRUPT if a store that was in use has an empty data file, which LMDB takes for a new
   one. Where there is none, somebody has moved it away. */
int lmdb_check_present(struct lmdb_env *env, struct idem_error *err);

/* Allocates LMDB's lock file: it is mapped, and a full disk must not be a SIGBUS. */
int lmdb_check_lock_file(struct lmdb_env *env, struct idem_error *err);

bool lmdb_check_disk_full(const struct lmdb_env *env);

#endif
