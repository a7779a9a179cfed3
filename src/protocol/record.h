/*
 * The record: the stored state of one key, and its binary format.
 */
#ifndef IDEM_PROTOCOL_RECORD_H
#define IDEM_PROTOCOL_RECORD_H

#include "base/hash.h"
#include "idem.h"

#define IDEM_OWNER_LEN 16
#define IDEM_RECORD_KEY_MAX (IDEM_PREFIX_MAX + IDEM_HASH_LEN)

/* prefix + SHA-256(kind, scope, key): the name of a record in every store. */
struct idem_record_key {
    size_t prefix_len;
    unsigned char at[IDEM_RECORD_KEY_MAX];
};

static inline size_t idem_record_key_len(const struct idem_record_key *key) {
    return key->prefix_len + IDEM_HASH_LEN;
}

/* Definitions that callers number themselves are below COMPUTED. In a computed definition, RAW
   means that the JSON was too long to parse; RAW is ignored when two definitions are compared. */
#define IDEM_DEFINITION_COMPUTED ((uint32_t)1 << 31)
#define IDEM_DEFINITION_RAW ((uint32_t)1)

struct idem_fingerprint {
    uint32_t definition; /* 0: no fingerprint */
    unsigned char hash[IDEM_HASH_LEN];
};

/*
 * Two clocks of the store complete the state: `lease`, which only runs forward while the machine
 * is up (leases, due times), and `wall` (expiry). A store with one clock uses it for both. Both
 * are in milliseconds.
 *
 * A running record keeps the state that it was claimed from, so that a release can restore it:
 * status, result and reason of an earlier failure stay in place, the rest is under `prior`.
 */
struct idem_record {
    enum idem_state state;
    bool lock;        /* run or done by mode=lock */
    bool kept;        /* result holds the first result (which may be empty) */
    bool final;       /* failed permanently */
    bool released;    /* the owner's last finish was a release */
    bool bound;       /* bind is set */
    uint32_t attempt; /* the fencing number: never issued twice while the record exists */
    uint32_t tries;   /* runs begun since the record was absent, issued or freed */
    unsigned char owner[IDEM_OWNER_LEN];
    struct idem_fingerprint fingerprint;
    unsigned char bind[IDEM_HASH_LEN];
    int64_t lease_end; /* lease clock; failed: the due time */
    int64_t expires;   /* wall clock */
    int64_t created;
    int64_t changed;
    int32_t status;
    struct idem_bytes result;
    struct idem_bytes reason;
    struct idem_bytes label;
    struct {
        enum idem_state state;
        uint32_t tries;
        int64_t due;
        int64_t expires;
        struct idem_fingerprint fingerprint;
    } prior; /* only while running */
};

/* The bools of a record as bits, which every store keeps with it. */
enum {
    IDEM_RECORD_LOCK = 1 << 0,
    IDEM_RECORD_KEPT = 1 << 1,
    IDEM_RECORD_FINAL = 1 << 2,
    IDEM_RECORD_RELEASED = 1 << 3,
    IDEM_RECORD_BOUND = 1 << 4,
};
unsigned idem_record_flags(const struct idem_record *record);
void idem_record_set_flags(struct idem_record *record, unsigned flags);

struct idem_time {
    int64_t lease;
    int64_t wall;
};

#define IDEM_RECORD_FORMAT 1

/* Returns the number of bytes that idem_record_encode() writes. */
size_t idem_record_size(const struct idem_record *record, uint32_t epoch);

/*
 * Writes exactly idem_record_size() bytes. `epoch` identifies the run of the lease clock (a boot).
 * The checksum covers the key as well, so that a record stored under another key is detected.
 */
void idem_record_encode(const struct idem_record *record, uint32_t epoch,
                        const struct idem_record_key *key, unsigned char *out);

/*
 * Decodes a record; its byte strings point into `bytes`. 0, IDEM_E_CORRUPT or IDEM_E_VERSION; *ret
 * and *ret_epoch are untouched on failure.
 */
int idem_record_decode(struct idem_bytes bytes, const struct idem_record_key *key,
                       struct idem_record *ret, uint32_t *ret_epoch);

#endif
