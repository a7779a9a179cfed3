/*
 * Nonces and counters in the embedded store: a value with a lifetime under a
 * name, in a table apart from the records.
 */
#ifndef IDEM_STORE_LMDB_LMDB_COUNTER_H
#define IDEM_STORE_LMDB_LMDB_COUNTER_H

#include "store/lmdb/lmdb_store.h"

int lmdb_aux_once(struct lmdb_env *env, MDB_txn *txn, struct lmdb_job *job, struct idem_time now);
int lmdb_aux_count(struct lmdb_env *env, MDB_txn *txn, struct lmdb_job *job, struct idem_time now);

/* The sweep calls it after it has removed the row's index entry. MDB codes. */
int lmdb_aux_visit(struct lmdb_env *env, MDB_txn *txn, const struct idem_record_key *key,
                   struct idem_time now, bool *ret_gone);

#endif
