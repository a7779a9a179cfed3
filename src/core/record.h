/*
 * The record: what is remembered of one key, and its form in bytes.
 */
#ifndef IDEM_CORE_RECORD_H
#define IDEM_CORE_RECORD_H

#include "idem.h"

#define IDEM_OWNER_LEN 16
#define IDEM_HASH_LEN 32
#define IDEM_RECORD_KEY_MAX (IDEM_PREFIX_MAX + IDEM_HASH_LEN)

/* A run of bytes with its length; borrowed unless said otherwise. */
struct idem_bytes {
    const unsigned char *at;
    size_t len;
};

/* prefix + SHA-256(kind, scope, key): the name of a record in every store. */
struct idem_record_key {
    size_t prefix_len;
    unsigned char at[IDEM_RECORD_KEY_MAX];
};

static inline size_t idem_record_key_len(const struct idem_record_key *key) {
    return key->prefix_len + IDEM_HASH_LEN;
}

/* Definitions that callers number themselves stay below COMPUTED. In one that is computed, RAW says
   that JSON was too long to be read, and is not part of what must be equal. */
#define IDEM_DEFINITION_COMPUTED ((uint32_t)1 << 31)
#define IDEM_DEFINITION_RAW ((uint32_t)1)

struct idem_fingerprint {
    uint32_t definition; /* 0: there is none */
    unsigned char hash[IDEM_HASH_LEN];
};

/*
 * The state is judged together with two clocks of the store: `lease`, which
 * only runs forward while the machine is up (leases, due times), and `wall`
 * (expiry). A store with one clock uses it for both. Milliseconds.
 *
 * A running record still holds what it was claimed from: status, result and
 * reason of an earlier failure stay in place, the rest is under `prior`, so
 * that a release can put it back.
 */
struct idem_record {
    enum idem_state state;
    bool lock;        /* run or done by mode=lock */
    bool kept;        /* result holds the first result (which may be empty) */
    bool final;       /* failed for good */
    bool released;    /* the owner's last word was release */
    bool bound;       /* bind is set */
    uint32_t attempt; /* the fencing number: never given out twice while the record lives */
    uint32_t tries;   /* runs begun since it was absent, issued or freed */
    unsigned char owner[IDEM_OWNER_LEN];
    struct idem_fingerprint fingerprint;
    unsigned char bind[IDEM_HASH_LEN];
    int64_t lease_end; /* lease clock; failed: when it is due */
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

struct idem_time {
    int64_t lease;
    int64_t wall;
};

#define IDEM_RECORD_FORMAT 1

/* Bytes that idem_record_encode() will write. */
size_t idem_record_size(const struct idem_record *record, uint32_t epoch);

/*
 * Writes exactly idem_record_size() bytes. `epoch` names the run of the lease
 * clock (a boot); the checksum covers the key as well, so that a record found
 * under another key is seen.
 */
void idem_record_encode(const struct idem_record *record, uint32_t epoch,
                        const struct idem_record_key *key, unsigned char *out);

/*
 * Reads a record; its byte strings point into `bytes`. 0, IDEM_E_CORRUPT or
 * IDEM_E_VERSION; *ret and *ret_epoch are untouched on failure.
 */
int idem_record_decode(struct idem_bytes bytes, const struct idem_record_key *key,
                       struct idem_record *ret, uint32_t *ret_epoch);

#endif
