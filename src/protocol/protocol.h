/*
 * The protocol's moves on one record: pure functions over the tables, without I/O and without a
 * clock. A driver loads the record, calls a function here to compute the new one, and stores it,
 * in one atomic step.
 */
#ifndef IDEM_PROTOCOL_PROTOCOL_H
#define IDEM_PROTOCOL_PROTOCOL_H

#include "base/shared_bytes.h"
#include "protocol/record.h"
#include "protocol/table.h"

/* True if both fingerprints have the same definition and different hashes. */
bool idem_fingerprint_differs(const struct idem_fingerprint *a, const struct idem_fingerprint *b);

/* The input of a claim, merged with the policy and checked. */
struct idem_claim_in {
    unsigned char owner[IDEM_OWNER_LEN];
    struct idem_fingerprint fingerprint;
    unsigned char bind[IDEM_HASH_LEN];
    bool has_bind;
    bool token;
    bool probe;
    enum idem_mode mode;
    enum idem_recover recover;
    enum idem_on_failure on_failure;
    uint32_t attempts; /* 0: no limit */
    int64_t lease_ms;
    int64_t hold_ttl_ms;
    int64_t ttl_ms; /* of a record that this claim buries */
    struct idem_bytes label;
};

/*
 * Decides a claim. `now` is the store's time. `record` is the record found, or NULL. If *ret_write
 * is set, the caller must store `record`, which was changed in place (if `record` is NULL, *fresh
 * was filled instead). *ret_left is the time left of a live lease or back-off, else 0.
 */
enum idem_verdict idem_protocol_claim(struct idem_record *record, struct idem_record *fresh,
                                      const struct idem_claim_in *in, struct idem_time now,
                                      bool *ret_write, int64_t *ret_left);

struct idem_finish_in {
    enum idem_owner_action action;
    unsigned char owner[IDEM_OWNER_LEN];
    uint32_t attempt; /* the attempt that the claim returned; 0: no response arrived */
    int32_t status;
    struct idem_bytes result;
    struct idem_shared_bytes *shared; /* has the bytes of `result`; NULL: they are borrowed */
    bool keep_result;
    struct idem_bytes reason;
    bool final;
    int64_t delay_ms;    /* fail: time until the retry is due; unknown: time until the lease ends */
    int64_t lease_ms;    /* renew */
    int64_t ttl_ms;      /* done, fail */
    int64_t hold_ttl_ms; /* unknown, renew */
};

enum idem_store_write { IDEM_WRITE_NONE, IDEM_WRITE_PUT, IDEM_WRITE_DELETE };

/* Applies a finish to the record found (NULL: none), in place. */
enum idem_ack idem_protocol_finish(struct idem_record *record, const struct idem_finish_in *in,
                                   struct idem_time now, enum idem_store_write *ret_write);

/* An operator's decision. Returns 0, IDEM_E_ABSENT, IDEM_E_LIVE or IDEM_E_SETTLED. */
struct idem_settle_in {
    enum idem_state to;
    int32_t status;
    struct idem_bytes reason;
    bool force;
    uint32_t attempt; /* 0: any */
    int64_t ttl_ms;
    enum idem_state from; /* IDEM_ABSENT: any */
};
int idem_protocol_settle(struct idem_record *record, const struct idem_settle_in *in,
                         struct idem_time now);
int idem_protocol_forget(const struct idem_record *record, bool force, struct idem_time now);

/* Issues a token: fills *fresh if no record exists. False: the name is taken. */
struct idem_issue_in {
    unsigned char bind[IDEM_HASH_LEN];
    bool has_bind;
    unsigned char owner[IDEM_OWNER_LEN]; /* identifies repeats of one issue */
    int64_t ttl_ms;
    struct idem_bytes label;
};
bool idem_protocol_issue(const struct idem_record *record, struct idem_record *fresh,
                         const struct idem_issue_in *in, struct idem_time now, bool *ret_write);

/* Running: the lease is live. Failed: the retry is not due yet. */
static inline bool idem_record_live(const struct idem_record *record, struct idem_time now) {
    return record->lease_end > now.lease;
}

/* A record with a live lease never expires, whatever the wall clock shows: it may have been
   changed. */
static inline bool idem_record_expired(const struct idem_record *record, struct idem_time now) {
    return record->expires <= now.wall &&
           !(record->state == IDEM_RUNNING && idem_record_live(record, now));
}

#endif
