/* The contract of sizes and bytes: every value comes back byte for byte. */
#include "contract.h"
#include "protocol/record_key.h"

#define RESULT_MAX ((size_t)1 << 20)

static void fill(unsigned char *at, size_t len, unsigned seed) {
    for (size_t i = 0; i < len; i++)
        at[i] = (unsigned char)(i * 31 + (i >> 8) * 7 + seed);
}

/* Sizes at which a store may switch its format: pages, overflow pages, powers of two. */
CONTRACT(a_replay_is_byte_identical_to_the_result_of_any_size) {
    const size_t sizes[] = {
        0,    1,    2,    255,  256,   1000,  1900,    2030,           2040,      4000,
        4095, 4096, 4097, 8192, 65535, 65536, 1 << 18, RESULT_MAX - 1, RESULT_MAX};
    unsigned char *bytes = malloc(RESULT_MAX);
    struct conn *other = another(HOST_EDGE);

    CHECK(bytes != NULL);
    for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        struct idem_finish_in done = done_by(1, (int32_t)i, "");
        struct told told;
        char name[16];

        snprintf(name, sizeof(name), "size%u", i);
        fill(bytes, sizes[i], i);
        done.result = (struct idem_bytes){bytes, sizes[i]};
        CHECK_INT(claim(c, name, claim_by(1)).verdict, IDEM_RUN);
        CHECK_INT(finish(c, name, done), IDEM_ACK);
        told = claim(other, name, claim_by(2));
        CHECK_INT(told.verdict, IDEM_REPLAY);
        CHECK_INT(told.record.result.len, sizes[i]);
        CHECK(memcmp(told.record.result.at, bytes, sizes[i]) == 0);
        keep_reset();
    }
    free(bytes);
}

CONTRACT(a_failure_keeps_a_result_of_any_size_through_the_next_run) {
    const size_t sizes[] = {1, 4096, RESULT_MAX};
    unsigned char *bytes = malloc(RESULT_MAX);

    CHECK(bytes != NULL);
    for (unsigned i = 0; i < 3; i++) {
        struct idem_finish_in failed = fail_by(1, 500, "no", 0);
        char name[16];

        snprintf(name, sizeof(name), "size%u", i);
        fill(bytes, sizes[i], i);
        failed.keep_result = true;
        failed.result = (struct idem_bytes){bytes, sizes[i]};
        CHECK_INT(claim(c, name, rerun_by(1, 0)).verdict, IDEM_RUN);
        CHECK_INT(finish(c, name, failed), IDEM_ACK);
        CHECK_INT(claim(c, name, rerun_by(2, 0)).verdict, IDEM_RUN);
        CHECK_INT(finish(c, name, renew_by(2, LEASE_MS)), IDEM_ACK);
        CHECK_INT(finish(c, name, release_by(2)), IDEM_ACK);
        CHECK(memcmp(peek(c, name).result.at, bytes, sizes[i]) == 0);
        keep_reset();
    }
    free(bytes);
}

/* Keys to 4 KiB, of every byte value, none of which collides with another. */
CONTRACT(keys_of_every_byte_and_length_are_told_apart) {
    static const size_t lengths[] = {1, 2, 31, 32, 33, 255, 256, 511, 512, 4095, IDEM_KEY_MAX};
    unsigned char bytes[IDEM_KEY_MAX];
    struct idem_record_key key;

    for (unsigned value = 0; value < 256; value++) {
        bytes[0] = (unsigned char)value;
        CHECK(idem_record_key_make(&key, IDEM_NAME_RECORD, bytes_of("b:"), (struct idem_bytes){0},
                                   (struct idem_bytes){bytes, 1}) == 0);
        CHECK_INT(claim_at(c, &key, claim_by(1)).verdict, IDEM_RUN);
    }
    for (unsigned i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
        memset(bytes, 0, sizeof(bytes));
        for (unsigned last = 0; last < 2; last++) {
            bytes[lengths[i] - 1] = (unsigned char)last;
            CHECK(idem_record_key_make(&key, IDEM_NAME_RECORD, bytes_of("l:"),
                                       (struct idem_bytes){0},
                                       (struct idem_bytes){bytes, lengths[i]}) == 0);
            CHECK_INT(claim_at(c, &key, claim_by(1)).verdict, IDEM_RUN);
        }
    }
    CHECK_INT(list_all(c, "b:", (struct idem_list_in){0}, 100).n, 256);
}

/* A hash may be anything: all of one byte, or an end that looks like a beginning. */
CONTRACT(names_with_any_hash_are_told_apart) {
    struct idem_record_key key = key_in("h:", "");

    for (unsigned value = 0; value < 256; value++) {
        memset(key.at + key.prefix_len, (int)value, IDEM_HASH_LEN);
        CHECK_INT(claim_at(c, &key, claim_by(value + 1)).verdict, IDEM_RUN);
    }
    for (unsigned value = 0; value < 256; value++) {
        memset(key.at + key.prefix_len, (int)value, IDEM_HASH_LEN);
        CHECK_INT(finish_at(c, &key, done_by(value + 1, (int32_t)value, "r")), IDEM_ACK);
    }
    CHECK_INT(list_all(c, "h:", (struct idem_list_in){0}, 100).n, 256);
}

CONTRACT(prefixes_from_one_byte_to_128_of_any_byte_are_kept) {
    char prefix[IDEM_PREFIX_MAX + 1];

    for (unsigned len = 1; len <= IDEM_PREFIX_MAX; len++) {
        struct idem_record_key key;
        struct listed all;

        for (unsigned i = 0; i < len; i++)
            prefix[i] = (char)(1 + (len * 2 + i) % 255);
        prefix[len] = '\0';
        key = key_in(prefix, "same");
        CHECK_INT(claim_at(c, &key, claim_by(1)).verdict, IDEM_RUN);
        all = list_all(c, prefix, (struct idem_list_in){0}, 10);
        CHECK_INT(all.n, 1);
        CHECK_STR(all.entries[0].prefix, prefix);
        CHECK_INT(finish_at(c, &key, done_by(1, 200, prefix)), IDEM_ACK);
    }
    CHECK_INT(list_all(c, "", (struct idem_list_in){0}, 10).n, IDEM_PREFIX_MAX);
}

CONTRACT(labels_and_reasons_are_kept_whole) {
    const size_t labels[] = {1, 128, IDEM_LABEL_MAX - 1, IDEM_LABEL_MAX};
    const size_t reasons[] = {1, 512, IDEM_REASON_MAX - 1, IDEM_REASON_MAX};
    char text[IDEM_REASON_MAX + 1];

    for (unsigned i = 0; i < 4; i++) {
        struct idem_claim_in in = claim_by(1);
        struct idem_finish_in failed = fail_by(1, INT32_MIN, "", 0);
        struct idem_list_in newest = {.since_ms = now().wall};
        struct listed all;
        char name[16];

        snprintf(name, sizeof(name), "k%u", i);
        memset(text, 'a' + (int)i, sizeof(text));
        in.label = (struct idem_bytes){(unsigned char *)text, labels[i]};
        failed.reason = (struct idem_bytes){(unsigned char *)text, reasons[i]};
        CHECK_INT(claim(c, name, in).verdict, IDEM_RUN);
        CHECK_INT(finish(c, name, failed), IDEM_ACK);
        all = list_all(c, "t:", newest, 10);
        CHECK_INT(all.n, 1);
        CHECK_INT(strlen(all.entries[0].label), labels[i]);
        CHECK_INT(strlen(all.entries[0].reason), reasons[i]);
        CHECK_INT(peek(c, name).label.len, labels[i]);
        CHECK_INT(peek(c, name).reason.len, reasons[i]);
        advance(1);
    }
}

CONTRACT(numbers_are_kept_to_their_ends) {
    const int32_t statuses[] = {INT32_MIN, -1, 0, 1, 200, INT32_MAX};
    struct idem_claim_in in = claim_by(1);

    in.fingerprint = fingerprint_of(UINT32_MAX, 0xff);
    for (unsigned i = 0; i < 6; i++) {
        char name[16];

        snprintf(name, sizeof(name), "k%u", i);
        CHECK_INT(claim(c, name, in).verdict, IDEM_RUN);
        CHECK_INT(finish(c, name, done_by(1, statuses[i], "r")), IDEM_ACK);
        CHECK_INT(claim(c, name, claim_by(2)).record.status, statuses[i]);
    }
}

/* Times beyond the range of 32 bits of seconds since 1970. */
CONTRACT(a_life_of_two_hundred_years_is_one) {
    const int64_t years = (int64_t)200 * 365 * 24 * 3600 * 1000;
    struct idem_claim_in in = claim_by(1);
    struct idem_finish_in done = done_by(1, 200, "r");

    in.hold_ttl_ms = years;
    done.ttl_ms = years;
    CHECK_INT(claim(c, "h", in).verdict, IDEM_RUN);
    CHECK_INT(claim(c, "k", in).verdict, IDEM_RUN);
    CHECK_INT(finish(c, "k", done), IDEM_ACK);
    CHECK(issue(c, "t", 9, 7, years));
    CHECK(once(c, "n", years));
    CHECK_INT(sweep_all(c, 10), 0);
    advance(10 * TTL_MS);
    CHECK_INT(sweep_all(c, 10), 0);
    CHECK_INT(claim(c, "k", claim_by(2)).verdict, IDEM_REPLAY);
    CHECK_INT(claim(c, "h", claim_by(2)).verdict, IDEM_UNCERTAIN);
    CHECK_INT(peek(c, "t").state, IDEM_ISSUED);
    CHECK(!once(c, "n", years));
}
