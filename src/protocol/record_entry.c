/*
 * Converts a record into an entry for operators. Nothing here can fail; texts that are too long
 * are cut.
 */
#include "protocol/record_entry.h"

#include <stdio.h>
#include <string.h>

#include "protocol/record_key.h"

static void record_entry_text_copy(char *out, size_t size, struct idem_bytes from) {
    size_t len = from.len < size - 1 ? from.len : size - 1;

    if (len != 0)
        memcpy(out, from.at, len);
    out[len] = '\0';
}

static void entry_name_fill(struct idem_entry *entry, const struct idem_record_key *key) {
    idem_record_key_hex(key, entry->hash);
    record_entry_text_copy(entry->prefix, sizeof(entry->prefix),
                           (struct idem_bytes){key->at, key->prefix_len});
}

void idem_entry_fill(struct idem_entry *entry, const struct idem_record_key *key,
                     const struct idem_record *record, bool live, int64_t left_ms) {
    *entry = (struct idem_entry){
        .state = record->state,
        .uncertain = record->state == IDEM_RUNNING && !live,
        .locked = record->lock,
        .final = record->final,
        .has_result = record->kept,
        .attempt = record->attempt,
        .status = record->status,
        .left_ms = left_ms,
        .created_ms = record->created,
        .changed_ms = record->changed,
        .expires_ms = record->expires,
        .result_len = record->result.len,
    };
    entry_name_fill(entry, key);
    record_entry_text_copy(entry->label, sizeof(entry->label), record->label);
    record_entry_text_copy(entry->reason, sizeof(entry->reason), record->reason);
}

void idem_entry_fill_bad(struct idem_entry *entry, const struct idem_record_key *key, int code) {
    bool newer = code == IDEM_E_VERSION;

    *entry = (struct idem_entry){.state = newer ? IDEM_NEWER : IDEM_DAMAGED};
    entry_name_fill(entry, key);
    snprintf(entry->reason, sizeof(entry->reason), "%s",
             newer ? "written by a newer version" : "damaged record");
}

void idem_stats_add(struct idem_stats *stats, enum idem_state state, bool live, uint64_t n) {
    switch (state) {
    case IDEM_ISSUED:
        stats->issued += n;
        break;
    case IDEM_RUNNING:
        *(live ? &stats->running : &stats->uncertain) += n;
        break;
    case IDEM_DONE:
        stats->done += n;
        break;
    case IDEM_FAILED:
        stats->failed += n;
        break;
    default: /* not a state of a record */
        break;
    }
}
