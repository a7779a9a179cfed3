/*
 * The record's form in bytes, and the names of records.
 */
#include "protocol/record.h"

#include "base/hex.h"
#include "protocol/checksum.h"
#include "protocol/record_key.h"
#include "test.h"

static const struct idem_record_key key = {.prefix_len = 6, .at = "order:0123456789"};

static struct idem_bytes text(const char *s) {
    return (struct idem_bytes){(const unsigned char *)s, strlen(s)};
}

static struct idem_record sample(void) {
    struct idem_record record = {
        .state = IDEM_RUNNING,
        .lock = false,
        .kept = true,
        .bound = true,
        .attempt = 300,
        .tries = 2,
        .owner = {1, 2, 3},
        .fingerprint = {.definition = 7, .hash = {9, 8, 7}},
        .bind = {4, 5, 6},
        .lease_end = 123456789,
        .expires = 1800000000000,
        .created = 1700000000000,
        .changed = 1699999999999, /* a clock may have gone back */
        .status = -200,
        .result = {(const unsigned char *)"a\0b", 3},
        .reason = text("it broke"),
        .label = text("order 4711"),
        .prior = {.state = IDEM_FAILED,
                  .tries = 1,
                  .due = 99,
                  .expires = 1750000000000,
                  .fingerprint = {.definition = 6, .hash = {1}}},
    };

    return record;
}

static unsigned char *encode(const struct idem_record *record, size_t *len) {
    unsigned char *bytes;

    *len = idem_record_size(record, 42);
    bytes = malloc(*len);
    idem_record_encode(record, 42, &key, bytes);
    return bytes;
}

static bool same_bytes(struct idem_bytes a, struct idem_bytes b) {
    return a.len == b.len && (a.len == 0 || memcmp(a.at, b.at, a.len) == 0);
}

TEST(a_record_comes_back_as_it_was) {
    struct idem_record in = sample(), out;
    uint32_t epoch;
    size_t len;
    unsigned char *bytes = encode(&in, &len);

    CHECK_INT(idem_record_decode((struct idem_bytes){bytes, len}, &key, &out, &epoch), 0);
    CHECK_INT(epoch, 42);
    CHECK_INT(out.state, in.state);
    CHECK(out.kept && out.bound && !out.lock && !out.final && !out.released);
    CHECK_INT(out.attempt, 300);
    CHECK_INT(out.tries, 2);
    CHECK(memcmp(out.owner, in.owner, sizeof(in.owner)) == 0);
    CHECK(memcmp(&out.fingerprint, &in.fingerprint, sizeof(in.fingerprint)) == 0);
    CHECK(memcmp(out.bind, in.bind, sizeof(in.bind)) == 0);
    CHECK_INT(out.lease_end, in.lease_end);
    CHECK_INT(out.expires, in.expires);
    CHECK_INT(out.created, in.created);
    CHECK_INT(out.changed, in.changed);
    CHECK_INT(out.status, -200);
    CHECK(same_bytes(out.result, in.result));
    CHECK(same_bytes(out.reason, in.reason));
    CHECK(same_bytes(out.label, in.label));
    CHECK_INT(out.prior.state, IDEM_FAILED);
    CHECK_INT(out.prior.tries, 1);
    CHECK_INT(out.prior.due, 99);
    CHECK_INT(out.prior.expires, in.prior.expires);
    CHECK(memcmp(&out.prior.fingerprint, &in.prior.fingerprint, sizeof(in.fingerprint)) == 0);
    free(bytes);
}

TEST(a_plain_finished_record_is_short) {
    struct idem_record record = {.state = IDEM_DONE,
                                 .kept = true,
                                 .attempt = 1,
                                 .tries = 1,
                                 .created = 1700000000000,
                                 .changed = 1700000000100,
                                 .expires = 1700086400100,
                                 .status = 200,
                                 .fingerprint.definition = 1};
    unsigned char body[200] = {0};

    record.result = (struct idem_bytes){body, sizeof(body)};
    /* 200 of result, 32 of fingerprint, 16 of owner: the rest is 32 bytes. */
    CHECK(idem_record_size(&record, 1) <= 200 + 32 + 16 + 32);
}

TEST(every_changed_bit_is_seen) {
    struct idem_record in = sample(), out;
    uint32_t epoch;
    size_t len;
    unsigned char *bytes = encode(&in, &len);

    for (size_t i = 0; i < len * 8; i++) {
        bytes[i / 8] ^= (unsigned char)(1 << i % 8);
        CHECK_INT(idem_record_decode((struct idem_bytes){bytes, len}, &key, &out, &epoch),
                  IDEM_E_CORRUPT);
        bytes[i / 8] ^= (unsigned char)(1 << i % 8);
    }
    free(bytes);
}

TEST(a_record_cut_short_is_seen) {
    struct idem_record in = sample(), out;
    uint32_t epoch;
    size_t len;
    unsigned char *bytes = encode(&in, &len);

    for (size_t i = 0; i < len; i++)
        CHECK_INT(idem_record_decode((struct idem_bytes){bytes, i}, &key, &out, &epoch),
                  IDEM_E_CORRUPT);
    free(bytes);
}

TEST(a_record_under_another_key_is_seen) {
    struct idem_record_key other = key;
    struct idem_record in = sample(), out;
    uint32_t epoch;
    size_t len;
    unsigned char *bytes = encode(&in, &len);

    other.at[10] ^= 1;
    CHECK_INT(idem_record_decode((struct idem_bytes){bytes, len}, &other, &out, &epoch),
              IDEM_E_CORRUPT);
    free(bytes);
}

/* Puts the right checksum behind bytes that were tampered with. */
static void mend(unsigned char *bytes, size_t len) {
    idem_checksum_put(idem_checksum(&key, bytes, len - 4), bytes + len - 4);
}

/* Records that one version stored are read by the next: the sum does not depend on the machine or
   the library. */
TEST(the_checksum_is_what_it_always_was) {
    struct idem_record_key name = {.prefix_len = 2, .at = "p:"};
    unsigned char bytes[300];

    for (unsigned i = 0; i < IDEM_HASH_LEN; i++)
        name.at[2 + i] = (unsigned char)i;
    for (unsigned i = 0; i < sizeof(bytes); i++)
        bytes[i] = (unsigned char)(7 * i);
    CHECK_INT(idem_checksum(&name, bytes, 0), 0x128a337a);
    CHECK_INT(idem_checksum(&name, bytes, 21), 0x87c67925);
    CHECK_INT(idem_checksum(&name, bytes, sizeof(bytes)), 0xb092776c);
    name.at[2]++;
    CHECK(idem_checksum(&name, bytes, 21) != 0x87c67925);
}

TEST(a_record_of_a_newer_format_is_told_from_a_damaged_one) {
    struct idem_record in = sample(), out;
    uint32_t epoch;
    size_t len;
    unsigned char *bytes = encode(&in, &len);

    bytes[0] = bytes[1] = IDEM_RECORD_FORMAT + 1;
    mend(bytes, len);
    CHECK_INT(idem_record_decode((struct idem_bytes){bytes, len}, &key, &out, &epoch),
              IDEM_E_VERSION);
    free(bytes);
}

TEST(a_newer_record_that_says_this_reader_may_read_it_is_read) {
    struct idem_record in = sample(), out;
    uint32_t epoch;
    size_t len;
    unsigned char *bytes = encode(&in, &len);

    /* Two bytes more, as a later format would append them. */
    bytes = realloc(bytes, len + 2);
    bytes[0] = IDEM_RECORD_FORMAT + 1;
    mend(bytes, len + 2);
    CHECK_INT(idem_record_decode((struct idem_bytes){bytes, len + 2}, &key, &out, &epoch), 0);
    CHECK_INT(out.attempt, 300);
    bytes[0] = IDEM_RECORD_FORMAT;
    mend(bytes, len + 2);
    CHECK_INT(idem_record_decode((struct idem_bytes){bytes, len + 2}, &key, &out, &epoch),
              IDEM_E_CORRUPT);
    free(bytes);
}

TEST(a_failed_decode_leaves_its_results_alone) {
    struct idem_record out = {.attempt = 77};
    uint32_t epoch = 88;
    unsigned char bytes[64] = {0};

    CHECK(idem_record_decode((struct idem_bytes){bytes, sizeof(bytes)}, &key, &out, &epoch) < 0);
    CHECK_INT(out.attempt, 77);
    CHECK_INT(epoch, 88);
}

static struct idem_record_key name(enum idem_name_kind kind, const char *scope, const char *k) {
    struct idem_record_key out;
    struct idem_bytes none = {0};

    CHECK_INT(
        idem_record_key_make(&out, kind, text("p:"), scope == NULL ? none : text(scope), text(k)),
        0);
    return out;
}

static bool same_name(struct idem_record_key a, struct idem_record_key b) {
    return idem_record_key_len(&a) == idem_record_key_len(&b) &&
           memcmp(a.at, b.at, idem_record_key_len(&a)) == 0;
}

TEST(names_of_different_things_never_meet) {
    CHECK(same_name(name(IDEM_NAME_RECORD, "u", "k"), name(IDEM_NAME_RECORD, "u", "k")));
    CHECK(!same_name(name(IDEM_NAME_RECORD, "u", "k"), name(IDEM_NAME_NONCE, "u", "k")));
    CHECK(!same_name(name(IDEM_NAME_RECORD, NULL, "k"), name(IDEM_NAME_RECORD, "", "k")));
    CHECK(!same_name(name(IDEM_NAME_RECORD, "ab", "c"), name(IDEM_NAME_RECORD, "a", "bc")));
    CHECK(!same_name(name(IDEM_NAME_RECORD, "u", "k"), name(IDEM_NAME_RECORD, "v", "k")));
}

TEST(a_hash_is_read_as_it_is_shown) {
    struct idem_record_key made = name(IDEM_NAME_RECORD, "u", "k");
    unsigned char hash[IDEM_HASH_LEN];
    char hex[IDEM_HEX_LEN + 1];

    idem_record_key_hex(&made, hex);
    CHECK_INT(strlen(hex), 64);
    CHECK(idem_hex_parse(hex, strlen(hex), hash));
    CHECK(memcmp(hash, made.at + made.prefix_len, IDEM_HASH_LEN) == 0);
    hex[5] = 'g';
    CHECK(!idem_hex_parse(hex, strlen(hex), hash));
    CHECK(!idem_hex_parse("abc", 3, hash));
}

TEST_MAIN
