/*
 * The record's bytes, as the scripts write them (protocol.lua documents the format), and its name.
 * Fails on bytes that are not a record.
 */
#include <string.h>

#include "base/big_endian.h"
#include "base/hex.h"
#include "store/redis/redis_connection.h"

#define FORM 225 /* the first byte: format 1. 226 to 239 are later formats */
#define FORM_LAST 239
#define LIFE_AT 64 /* offset of the life; `due` follows */

/* Names. */

size_t redis_name(const struct idem_record_key *key, char out[REDIS_NAME_MAX]) {
    memcpy(out, key->at, key->prefix_len);
    idem_hex_write(key->at + key->prefix_len, IDEM_HASH_LEN, out + key->prefix_len);
    return key->prefix_len + IDEM_HEX_LEN;
}

bool redis_name_parse(const char *name, size_t len, struct idem_record_key *ret) {
    if (len < IDEM_HEX_LEN || len > REDIS_NAME_MAX)
        return false;
    ret->prefix_len = len - IDEM_HEX_LEN;
    memcpy(ret->at, name, ret->prefix_len);
    return idem_hex_parse(name + ret->prefix_len, IDEM_HEX_LEN, ret->at + ret->prefix_len);
}

/* Bytes. */

struct reader {
    const unsigned char *at;
};

static uint64_t reader_get(struct reader *r, size_t bytes) {
    r->at += bytes;
    return idem_be_get(r->at - bytes, bytes);
}

static void reader_get_bytes(struct reader *r, void *out, size_t len) {
    memcpy(out, r->at, len);
    r->at += len;
}

static void reader_get_fingerprint(struct reader *r, struct idem_fingerprint *ret) {
    ret->definition = (uint32_t)reader_get(r, 4);
    reader_get_bytes(r, ret->hash, IDEM_HASH_LEN);
}

static void record_put(struct idem_buffer *out, uint64_t n, size_t bytes) {
    unsigned char text[8];

    idem_be_put(text, n, bytes);
    idem_buffer_put(out, text, bytes);
}

/* Times that are relative in the store, and absolute in memory. */
struct ages {
    uint64_t life, due, age, lag;
};

static void record_fill_times(struct idem_record *record, const struct ages *ages, int64_t now,
                              int64_t left) {
    int64_t since = (int64_t)ages->life - left, written = now - (since > 0 ? since : 0);

    record->expires = now + left;
    record->changed = written - (int64_t)ages->lag;
    record->created = written - (int64_t)ages->age;
    if (record->state == IDEM_RUNNING || record->state == IDEM_FAILED)
        record->lease_end = written + (int64_t)ages->due;
    /* prior.due is the prior record's age when the current run was claimed; a record that can be
       claimed is due. */
    if (record->state == IDEM_RUNNING && record->prior.state != IDEM_ABSENT)
        record->prior.expires += record->created + record->prior.due;
    record->prior.due = 0;
}

static void reader_get_prior(struct reader *r, struct idem_record *record) {
    record->prior.tries = (uint32_t)reader_get(r, 4);
    reader_get_fingerprint(r, &record->prior.fingerprint);
    record->prior.expires = (int64_t)reader_get(r, 6); /* the remaining life at that time */
    record->prior.due =
        (int64_t)reader_get(r, 6); /* its age at that time; see record_fill_times() */
}

static struct idem_bytes reader_get_tail(struct reader *r, size_t len) {
    struct idem_bytes bytes = {r->at, len};

    r->at += len;
    return bytes;
}

bool redis_record_is(const unsigned char *bytes, size_t len) {
    return len > 0 && bytes[0] >= FORM && bytes[0] <= FORM_LAST;
}

static int record_check_form(struct idem_bytes bytes) {
    if (bytes.len > 0 && bytes.at[0] > FORM && bytes.at[0] <= FORM_LAST)
        return IDEM_E_VERSION;
    return bytes.len < REDIS_HEAD_LEN || bytes.at[0] != FORM ? IDEM_E_CORRUPT : 0;
}

int redis_record_decode(struct idem_bytes bytes, int64_t now, int64_t left,
                        struct idem_record *ret) {
    struct reader r = {bytes.at + 1};
    struct idem_record record = {0};
    size_t label, reason, need;
    struct ages ages;
    int rc = record_check_form(bytes);

    if (rc != 0)
        return rc;
    if (now < 0 || now > REDIS_MS_MAX || left < 0 || left > REDIS_MS_MAX)
        return IDEM_E_CORRUPT;
    idem_record_set_flags(&record, (unsigned)reader_get(&r, 1));
    record.state = (enum idem_state)reader_get(&r, 1);
    record.prior.state = (enum idem_state)reader_get(&r, 1);
    record.attempt = (uint32_t)reader_get(&r, 4);
    record.tries = (uint32_t)reader_get(&r, 4);
    reader_get_bytes(&r, record.owner, IDEM_OWNER_LEN);
    reader_get_fingerprint(&r, &record.fingerprint);
    ages.life = reader_get(&r, 6);
    ages.due = reader_get(&r, 6);
    ages.age = reader_get(&r, 6);
    ages.lag = reader_get(&r, 6);
    record.status = (int32_t)reader_get(&r, 4);
    label = (size_t)reader_get(&r, 2);
    reason = (size_t)reader_get(&r, 2);
    need = REDIS_HEAD_LEN + (record.bound ? IDEM_HASH_LEN : 0) +
           (record.state == IDEM_RUNNING ? REDIS_PRIOR_LEN : 0) + label + reason;
    if (record.state < IDEM_ISSUED || record.state > IDEM_FAILED || need > bytes.len)
        return IDEM_E_CORRUPT;
    if (record.bound)
        reader_get_bytes(&r, record.bind, IDEM_HASH_LEN);
    if (record.state == IDEM_RUNNING)
        reader_get_prior(&r, &record);
    record.label = reader_get_tail(&r, label);
    record.reason = reader_get_tail(&r, reason);
    record.result = reader_get_tail(&r, bytes.len - need);
    record_fill_times(&record, &ages, now, left);
    *ret = record;
    return 0;
}

bool redis_record_glance(const unsigned char *bytes, size_t len, int64_t left,
                         enum idem_state *ret_state, bool *ret_live) {
    struct reader r = {bytes + LIFE_AT};
    enum idem_state state;
    int64_t since;

    if (record_check_form((struct idem_bytes){bytes, len}) != 0 || left <= 0 || left > REDIS_MS_MAX)
        return false;
    state = (enum idem_state)bytes[2];
    if (state < IDEM_ISSUED || state > IDEM_FAILED)
        return false;
    since = (int64_t)reader_get(&r, 6) - left;
    *ret_state = state;
    *ret_live = (int64_t)reader_get(&r, 6) > (since > 0 ? since : 0);
    return true;
}

void redis_record_begin(const struct idem_record *record, struct idem_buffer *out) {
    record_put(out, FORM, 1);
    record_put(out, idem_record_flags(record), 1);
    record_put(out, record->state, 1);
    record_put(out, IDEM_ABSENT, 1);
    record_put(out, record->attempt, 4);
    record_put(out, record->tries, 4);
    idem_buffer_put(out, record->owner, IDEM_OWNER_LEN);
}

void redis_record_first(const struct idem_claim_in *in, struct idem_buffer *out) {
    static const unsigned char nothing[REDIS_PRIOR_LEN];
    struct idem_record record = {
        .state = IDEM_RUNNING, .lock = in->mode == IDEM_MODE_LOCK, .attempt = 1, .tries = 1};

    memcpy(record.owner, in->owner, IDEM_OWNER_LEN);
    redis_record_begin(&record, out);
    record_put(out, in->fingerprint.definition, 4);
    idem_buffer_put(out, in->fingerprint.hash, IDEM_HASH_LEN);
    record_put(out, (uint64_t)(in->lease_ms + in->hold_ttl_ms), 6); /* life */
    record_put(out, (uint64_t)in->lease_ms, 6);                     /* due */
    record_put(out, 0, 6);                                          /* age */
    record_put(out, 0, 6);                                          /* lag */
    record_put(out, 0, 4);                                          /* status */
    record_put(out, in->label.len, 2);
    record_put(out, 0, 2);
    idem_buffer_put(out, nothing, sizeof(nothing));
    idem_buffer_put(out, in->label.at, in->label.len);
}
