/*
 * How far real time has jumped forward, and how far it may. All but the first
 * and the last two with the clock's mutex held.
 */
#ifndef IDEM_STORE_LMDB_JUMPS_H
#define IDEM_STORE_LMDB_JUMPS_H

#include "store/lmdb/lmdb.h"

/* Goes on with what the shared file or data.mdb has, and judges the time that the clock has read;
   or takes that as right, with accept_clock=yes. */
int lmdb_jumps_open(struct lmdb_env *env, struct idem_error *err);

/* False: the two clocks differ from what they did, and must be judged. */
bool lmdb_jumps_none(struct lmdb_env *env, struct idem_time at);
/* Adds a jump, or refuses it (IDEM_E_CLOCK), and raises the store's time. */
int lmdb_jumps_judge(struct lmdb_env *env, struct idem_time at, struct idem_error *err);
/* Time passes; days that are over too long ago are forgotten. */
void lmdb_jumps_pass(struct lmdb_jumps *jumps, int64_t lease);
/* The count to store when an operator accepts the clock. */
void lmdb_jumps_accepted(const struct lmdb_env *env, struct lmdb_jumps *ret);

/* As it stands in data.mdb; MDB_CORRUPTED. *ret is untouched on failure. */
int lmdb_jumps_parse(const void *bytes, size_t len, struct lmdb_jumps *ret);

#endif
