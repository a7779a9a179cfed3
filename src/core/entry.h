/*
 * A record as operators see it.
 */
#ifndef IDEM_CORE_ENTRY_H
#define IDEM_CORE_ENTRY_H

#include "core/protocol.h"

/* The record that a name is of. 0, or IDEM_E_INVALID or IDEM_E_NOMEM. */
int idem_name_key(const struct idem_name *name, struct idem_record_key *ret,
                  struct idem_error *err);

/* Everything but the result's bytes. */
void idem_entry_fill(struct idem_entry *entry, const struct idem_record_key *key,
                     const struct idem_record *record, bool live, int64_t left_ms);

/* A record that cannot be read: damaged, or with IDEM_E_VERSION newer, and the reason. */
void idem_entry_fill_bad(struct idem_entry *entry, const struct idem_record_key *key, int code);

/* Counts it by its state. */
void idem_stats_add(struct idem_stats *stats, const struct idem_record *record, bool live);

#endif
