/*
 * Nonces and counters in the embedded store: a value with a life time under a
 * name, beside the records and never mixed with them.
 */
#ifndef IDEM_STORE_LMDB_AUX_H
#define IDEM_STORE_LMDB_AUX_H

#include "store/lmdb/lmdb.h"

int lmdb_aux_once(struct lmdb_env *env, MDB_txn *txn, struct lmdb_job *job, struct idem_time now);
int lmdb_aux_count(struct lmdb_env *env, MDB_txn *txn, struct lmdb_job *job, struct idem_time now);

/* The sweep's look, when its entry was taken out. MDB codes. */
int lmdb_aux_visit(struct lmdb_env *env, MDB_txn *txn, const struct idem_record_key *key,
                   struct idem_time now, bool *ret_gone);

#endif
