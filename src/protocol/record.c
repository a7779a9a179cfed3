/*
 * The record's binary format.
 *
 *   format, oldest format whose reader understands it, state | prior << 4,
 *   two bytes of flags, owner (16), then varints and counted strings in the
 *   order of writer_put_body(), and a checksum over the record's key and all of this.
 *
 * Numbers are LEB128 varints, signed ones zig-zag; times after the first are differences. A later
 * format appends its fields, and its second byte names the oldest reader that may skip them; so a
 * rolling upgrade and its rollback work. Decoding trusts nothing: any inconsistency is
 * IDEM_E_CORRUPT, a format that this program cannot read is IDEM_E_VERSION.
 */
#include "protocol/record.h"

#include <string.h>

#include "protocol/checksum.h"

enum {
    FLAG_BOUND = IDEM_RECORD_BOUND, /* and the bits below it: idem_record_flags() */
    FLAG_FINGERPRINT = 1 << 5,
    FLAG_LEASE = 1 << 6,
    FLAG_LABEL = 1 << 7,
    FLAG_REASON = 1 << 8,
    FLAG_TRIES = 1 << 9,
    FLAG_PRIOR = 1 << 10,
    FLAG_PRIOR_FINGERPRINT = 1 << 11,
    FLAG__KNOWN = (1 << 12) - 1,
};

#define HEADER_LEN 5

/* Writes if `at` is set, and always counts. */
struct writer {
    unsigned char *at;
    size_t len;
};

static void writer_put(struct writer *w, const void *bytes, size_t len) {
    if (w->at != NULL && len != 0)
        memcpy(w->at + w->len, bytes, len);
    w->len += len;
}

static void writer_put_uint(struct writer *w, uint64_t value) {
    unsigned char buf[10];
    size_t n = 0;

    do {
        buf[n] = (unsigned char)(value & 0x7f);
        value >>= 7;
        if (value != 0)
            buf[n] |= 0x80;
        n++;
    } while (value != 0);
    writer_put(w, buf, n);
}

static void writer_put_int(struct writer *w, int64_t value) {
    writer_put_uint(w, ((uint64_t)value << 1) ^ (uint64_t)(value >> 63));
}

static void writer_put_string(struct writer *w, struct idem_bytes bytes) {
    writer_put_uint(w, bytes.len);
    writer_put(w, bytes.at, bytes.len);
}

static void writer_put_fingerprint(struct writer *w, const struct idem_fingerprint *fp) {
    writer_put_uint(w, fp->definition);
    writer_put(w, fp->hash, IDEM_HASH_LEN);
}

unsigned idem_record_flags(const struct idem_record *record) {
    return (record->lock ? IDEM_RECORD_LOCK : 0u) | (record->kept ? IDEM_RECORD_KEPT : 0u) |
           (record->final ? IDEM_RECORD_FINAL : 0u) |
           (record->released ? IDEM_RECORD_RELEASED : 0u) |
           (record->bound ? IDEM_RECORD_BOUND : 0u);
}

void idem_record_set_flags(struct idem_record *record, unsigned flags) {
    record->lock = (flags & IDEM_RECORD_LOCK) != 0;
    record->kept = (flags & IDEM_RECORD_KEPT) != 0;
    record->final = (flags & IDEM_RECORD_FINAL) != 0;
    record->released = (flags & IDEM_RECORD_RELEASED) != 0;
    record->bound = (flags & IDEM_RECORD_BOUND) != 0;
}

static unsigned record_flags(const struct idem_record *r) {
    bool prior = r->state == IDEM_RUNNING && r->prior.state != IDEM_ABSENT;

    return idem_record_flags(r) | (r->fingerprint.definition != 0 ? FLAG_FINGERPRINT : 0) |
           (r->lease_end != 0 ? FLAG_LEASE : 0) | (r->label.len != 0 ? FLAG_LABEL : 0) |
           (r->reason.len != 0 ? FLAG_REASON : 0) | (r->tries != r->attempt ? FLAG_TRIES : 0) |
           (prior ? FLAG_PRIOR : 0) |
           (prior && r->prior.fingerprint.definition != 0 ? FLAG_PRIOR_FINGERPRINT : 0);
}

static void writer_put_body(struct writer *w, const struct idem_record *r, unsigned flags,
                            uint32_t epoch) {
    writer_put_uint(w, r->attempt);
    if (flags & FLAG_TRIES)
        writer_put_uint(w, r->tries);
    writer_put_int(w, r->created);
    writer_put_int(w, r->changed - r->created);
    writer_put_int(w, r->expires - r->changed);
    if (flags & FLAG_LEASE) {
        writer_put_uint(w, epoch);
        writer_put_int(w, r->lease_end);
    }
    writer_put_int(w, r->status);
    if (flags & FLAG_FINGERPRINT)
        writer_put_fingerprint(w, &r->fingerprint);
    if (flags & FLAG_BOUND)
        writer_put(w, r->bind, IDEM_HASH_LEN);
    if (flags & FLAG_PRIOR) {
        writer_put_uint(w, r->prior.tries);
        writer_put_int(w, r->prior.due);
        writer_put_int(w, r->prior.expires);
        if (flags & FLAG_PRIOR_FINGERPRINT)
            writer_put_fingerprint(w, &r->prior.fingerprint);
    }
    if (flags & FLAG_LABEL)
        writer_put_string(w, r->label);
    if (flags & FLAG_REASON)
        writer_put_string(w, r->reason);
    writer_put_string(w, r->result);
}

static void writer_put_record(struct writer *w, const struct idem_record *r, uint32_t epoch) {
    unsigned flags = record_flags(r);
    unsigned prior = flags & FLAG_PRIOR ? r->prior.state : IDEM_ABSENT;
    unsigned char header[HEADER_LEN] = {
        IDEM_RECORD_FORMAT,
        IDEM_RECORD_FORMAT,
        (unsigned char)((unsigned)r->state | prior << 4),
        (unsigned char)flags,
        (unsigned char)(flags >> 8),
    };

    writer_put(w, header, sizeof(header));
    writer_put(w, r->owner, IDEM_OWNER_LEN);
    writer_put_body(w, r, flags, epoch);
}

size_t idem_record_size(const struct idem_record *record, uint32_t epoch) {
    struct writer w = {NULL, 0};

    writer_put_record(&w, record, epoch);
    return w.len + IDEM_CHECKSUM_LEN;
}

void idem_record_encode(const struct idem_record *record, uint32_t epoch,
                        const struct idem_record_key *key, unsigned char *out) {
    struct writer w = {out, 0};

    writer_put_record(&w, record, epoch);
    idem_checksum_put(idem_checksum(key, out, w.len), out + w.len);
}

/* Reads forward. Once `bad` is set it stays set. */
struct reader {
    const unsigned char *at, *end;
    bool bad;
};

static const unsigned char *reader_get(struct reader *r, size_t len) {
    const unsigned char *at = r->at;

    if (r->bad || (size_t)(r->end - r->at) < len) {
        r->bad = true;
        return NULL;
    }
    r->at += len;
    return at;
}

static uint64_t reader_get_uint(struct reader *r) {
    uint64_t value = 0;

    for (unsigned shift = 0; shift < 64; shift += 7) {
        const unsigned char *byte = reader_get(r, 1);

        if (byte == NULL)
            return 0;
        if (shift == 63 && *byte > 1)
            break;
        value |= (uint64_t)(*byte & 0x7f) << shift;
        if ((*byte & 0x80) == 0)
            return value;
    }
    r->bad = true;
    return 0;
}

static uint32_t reader_get_uint32(struct reader *r) {
    uint64_t value = reader_get_uint(r);

    if (value > UINT32_MAX)
        r->bad = true;
    return (uint32_t)value;
}

static int64_t reader_get_int(struct reader *r) {
    uint64_t value = reader_get_uint(r);

    return (int64_t)((value >> 1) ^ (~(value & 1) + 1));
}

/* Reads a time that is stored as a difference; an overflow means damage. */
static int64_t reader_get_delta(struct reader *r, int64_t base) {
    int64_t sum;

    if (__builtin_add_overflow(base, reader_get_int(r), &sum)) {
        r->bad = true;
        return 0;
    }
    return sum;
}

static void reader_get_hash(struct reader *r, unsigned char *out) {
    const unsigned char *at = reader_get(r, IDEM_HASH_LEN);

    if (at != NULL)
        memcpy(out, at, IDEM_HASH_LEN);
}

static void reader_get_fingerprint(struct reader *r, struct idem_fingerprint *out) {
    out->definition = reader_get_uint32(r);
    if (out->definition == 0)
        r->bad = true;
    reader_get_hash(r, out->hash);
}

static struct idem_bytes reader_get_string(struct reader *r, size_t max) {
    uint64_t len = reader_get_uint(r);
    const unsigned char *at;

    if (len > max)
        r->bad = true;
    at = reader_get(r, (size_t)len);
    return (struct idem_bytes){at, at == NULL ? 0 : (size_t)len};
}

static void reader_get_body(struct reader *r, struct idem_record *out, unsigned flags,
                            uint32_t *epoch) {
    int64_t status;

    out->attempt = reader_get_uint32(r);
    out->tries = flags & FLAG_TRIES ? reader_get_uint32(r) : out->attempt;
    out->created = reader_get_int(r);
    out->changed = reader_get_delta(r, out->created);
    out->expires = reader_get_delta(r, out->changed);
    if (flags & FLAG_LEASE) {
        *epoch = reader_get_uint32(r);
        out->lease_end = reader_get_int(r);
    }
    status = reader_get_int(r);
    if (status < INT32_MIN || status > INT32_MAX)
        r->bad = true;
    out->status = (int32_t)status;
    if (flags & FLAG_FINGERPRINT)
        reader_get_fingerprint(r, &out->fingerprint);
    if (flags & FLAG_BOUND)
        reader_get_hash(r, out->bind);
    if (flags & FLAG_PRIOR) {
        out->prior.tries = reader_get_uint32(r);
        out->prior.due = reader_get_int(r);
        out->prior.expires = reader_get_int(r);
        if (flags & FLAG_PRIOR_FINGERPRINT)
            reader_get_fingerprint(r, &out->prior.fingerprint);
    }
    if (flags & FLAG_LABEL)
        out->label = reader_get_string(r, IDEM_LABEL_MAX);
    if (flags & FLAG_REASON)
        out->reason = reader_get_string(r, IDEM_REASON_MAX);
    out->result = reader_get_string(r, IDEM_RESULT_MAX);
}

/* The bounds ensure that no sum or difference of times overflows anywhere. */
static bool record_times_are_sane(const struct idem_record *r) {
    const int64_t times[] = {r->created,   r->changed,   r->expires,
                             r->lease_end, r->prior.due, r->prior.expires};

    for (size_t i = 0; i < sizeof(times) / sizeof(times[0]); i++)
        if (times[i] < 0 || times[i] > (int64_t)1 << 53)
            return false;
    return true;
}

static bool record_header_is_sane(const struct idem_record *out, unsigned flags) {
    bool prior = (flags & FLAG_PRIOR) != 0;

    return out->state >= IDEM_ISSUED && out->state <= IDEM_FAILED &&
           out->prior.state <= IDEM_FAILED && prior == (out->prior.state != IDEM_ABSENT) &&
           (!prior || out->state == IDEM_RUNNING) &&
           (prior || (flags & FLAG_PRIOR_FINGERPRINT) == 0);
}

int idem_record_decode(struct idem_bytes bytes, const struct idem_record_key *key,
                       struct idem_record *ret, uint32_t *ret_epoch) {
    struct reader r = {bytes.at, bytes.at, false};
    struct idem_record out = {0};
    const unsigned char *header, *owner;
    uint32_t epoch = 0;
    unsigned flags;

    if (bytes.len < HEADER_LEN + IDEM_OWNER_LEN + IDEM_CHECKSUM_LEN)
        return IDEM_E_CORRUPT;
    r.end = bytes.at + bytes.len - IDEM_CHECKSUM_LEN;
    if (idem_checksum_get(r.end) != idem_checksum(key, bytes.at, bytes.len - IDEM_CHECKSUM_LEN))
        return IDEM_E_CORRUPT;
    header = reader_get(&r, HEADER_LEN);
    if (header[1] > IDEM_RECORD_FORMAT)
        return IDEM_E_VERSION;
    flags = (unsigned)header[3] | (unsigned)header[4] << 8;
    out.state = header[2] & 0xf;
    out.prior.state = header[2] >> 4;
    if (header[0] < header[1] || header[1] == 0 || !record_header_is_sane(&out, flags) ||
        (header[0] == IDEM_RECORD_FORMAT && (flags & ~(unsigned)FLAG__KNOWN) != 0))
        return IDEM_E_CORRUPT;
    idem_record_set_flags(&out, flags);
    owner = reader_get(&r, IDEM_OWNER_LEN);
    memcpy(out.owner, owner, IDEM_OWNER_LEN);
    reader_get_body(&r, &out, flags, &epoch);
    if (r.bad || !record_times_are_sane(&out) || (r.at != r.end && header[0] == IDEM_RECORD_FORMAT))
        return IDEM_E_CORRUPT;
    *ret = out;
    *ret_epoch = epoch;
    return 0;
}
