/*
 * Counts how far real time has jumped forward, and limits it. All functions but
 * the first and the last two are called with the clock's mutex held.
 */
#ifndef IDEM_STORE_LMDB_LMDB_CLOCK_JUMPS_H
#define IDEM_STORE_LMDB_LMDB_CLOCK_JUMPS_H

#include "store/lmdb/lmdb_store.h"

/* Continues the count of the shared file or of data.mdb, and judges the time that the clock has
   read; with accept_clock=yes takes that time as right. */
int lmdb_jumps_open(struct lmdb_env *env, struct idem_error *err);

/* False if the difference of the two clocks has changed and must be judged. */
bool lmdb_jumps_none(struct lmdb_env *env, struct idem_time at);
/* Adds a jump, or refuses it (IDEM_E_CLOCK), and raises the store's time. */
int lmdb_jumps_judge(struct lmdb_env *env, struct idem_time at, struct idem_error *err);
/* Copies the count in the shared file as of `lease`. The lock on the clock is held. False if the
   count is invalid. */
bool lmdb_jumps_take(struct lmdb_env *env, int64_t lease, struct lmdb_jumps *ret);
/* Moves the count forward to `lease`; clears days that have left the window. */
void lmdb_jumps_pass(struct lmdb_jumps *jumps, int64_t lease);
/* The count to store when an operator accepts the clock. */
void lmdb_jumps_accepted(const struct lmdb_env *env, struct lmdb_jumps *ret);

/* Parses the count as stored in data.mdb. MDB_CORRUPTED if it is invalid; *ret is untouched on
   failure. */
int lmdb_jumps_parse(const void *bytes, size_t len, struct lmdb_jumps *ret);

#endif
