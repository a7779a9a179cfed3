/*
 * A record as operators see it.
 */
#ifndef IDEM_PROTOCOL_RECORD_ENTRY_H
#define IDEM_PROTOCOL_RECORD_ENTRY_H

#include "protocol/protocol.h"

/* Computes the record key of a name. 0, IDEM_E_INVALID or IDEM_E_NOMEM. */
int idem_name_key(const struct idem_name *name, struct idem_record_key *ret,
                  struct idem_error *err);

/* Fills everything but the result's bytes. */
void idem_entry_fill(struct idem_entry *entry, const struct idem_record_key *key,
                     const struct idem_record *record, bool live, int64_t left_ms);

/* Fills the entry of an unreadable record: damaged, or newer if `code` is IDEM_E_VERSION, with
   the reason. */
void idem_entry_fill_bad(struct idem_entry *entry, const struct idem_record_key *key, int code);

/* Counts `n` records of a state. */
void idem_stats_add(struct idem_stats *stats, enum idem_state state, bool live, uint64_t n);

#endif
