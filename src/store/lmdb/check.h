/*
 * What LMDB does not check by itself: whether the file has all the pages that
 * it needs, and how many of its pages are free.
 */
#ifndef IDEM_STORE_LMDB_CHECK_H
#define IDEM_STORE_LMDB_CHECK_H

#include "store/lmdb/lmdb.h"

/* Pages on the free list. MDB codes. */
int lmdb_check_free(MDB_txn *txn, size_t *ret);

/* IDEM_E_CORRUPT if the file was cut short. Only while nobody else has it open. */
int lmdb_check_length(struct lmdb_env *env, struct idem_error *err);

#endif
