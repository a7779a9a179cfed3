/* SHA-256 and SHA-512, whole and in pieces (FIPS 180-4's own examples). */
#include "protocol/record_key.h"

#include <stdlib.h>

#include "test.h"

static const char two_blocks[] = "abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmn"
                                 "hijklmnoijklmnopjklmnopqklmnopqrlmnopqrsmnopqrstnopqrstu";

static const char *hex_of(const unsigned char *bytes, size_t len) {
    static char hex[2 * IDEM_SHA512_LEN + 1];

    for (size_t i = 0; i < len; i++)
        snprintf(hex + 2 * i, 3, "%02x", bytes[i]);
    return hex;
}

/* In pieces of that many bytes. */
static const char *sha512_of(const char *bytes, size_t len, size_t step) {
    unsigned char out[IDEM_SHA512_LEN];
    struct idem_sha512 sha;

    idem_sha512_begin(&sha);
    for (size_t at = 0; at < len; at += step)
        idem_sha512_add(&sha, bytes + at, len - at < step ? len - at : step);
    CHECK_INT(idem_sha512_end(&sha, out), 0);
    return hex_of(out, sizeof(out));
}

TEST(sha512_is_what_its_standard_says) {
    static const char abc[] = "ddaf35a193617abacc417349ae20413112e6fa4e89a97ea20a9eeee64b55d39a"
                              "2192992a274fc1a836ba3c23a3feebbd454d4423643ce80e2a9ac94fa54ca49f";
    static const char more[] = "8e959b75dae313da8cf4f72814fc143f8f7779c6eb9f7fa17299aeadb6889018"
                               "501d289e4900f7e4331b99dec4b5433ac7d329eeb6dd26545e96e55b874be909";
    static const char none[] = "cf83e1357eefb8bdf1542850d66d8007d620e4050b5715dc83f4a921d36ce9ce"
                               "47d0d13c5d85f2b0ff8318d2877eec2f63b931bd47417a81a538327af927da3e";

    CHECK_STR(sha512_of("abc", 3, 3), abc);
    CHECK_STR(sha512_of("", 0, 1), none);
    for (size_t step = 1; step <= strlen(two_blocks); step++)
        CHECK_STR(sha512_of(two_blocks, strlen(two_blocks), step), more);
}

TEST(nothing_may_be_added) {
    unsigned char out[IDEM_SHA512_LEN], hash[IDEM_HASH_LEN];
    struct idem_sha512 sha512;
    struct idem_sha sha;

    idem_sha512_begin(&sha512);
    idem_sha512_add(&sha512, NULL, 0);
    CHECK_INT(idem_sha512_end(&sha512, out), 0);
    CHECK(strncmp(hex_of(out, sizeof(out)), "cf83e1357eefb8bd", 16) == 0);
    idem_sha_begin(&sha);
    idem_sha_add(&sha, NULL, 0);
    CHECK_INT(idem_sha_end(&sha, hash), 0);
    CHECK(strncmp(hex_of(hash, sizeof(hash)), "e3b0c44298fc1c14", 16) == 0);
}

TEST(one_that_was_made_to_fail_says_so_at_its_end_and_writes_nothing) {
    unsigned char out[IDEM_SHA512_LEN] = {7}, hash[IDEM_HASH_LEN] = {7};
    struct idem_sha512 sha512;
    struct idem_sha sha;

    idem_sha512_begin(&sha512);
    idem_sha512_fail(&sha512);
    idem_sha512_add(&sha512, "abc", 3);
    CHECK_INT(idem_sha512_end(&sha512, out), IDEM_E_NOMEM);
    CHECK_INT(out[0], 7);
    idem_sha_begin(&sha);
    idem_sha_fail(&sha);
    idem_sha_add(&sha, "abc", 3);
    CHECK_INT(idem_sha_end(&sha, hash), IDEM_E_NOMEM);
    CHECK_INT(hash[0], 7);
}

/* Backends have stored these keys, and must find them again:
   printf 'idem downstream key\0order:\0%064d' 7 | sha256sum */
TEST(the_downstream_key_is_what_it_always_was) {
    char hash[IDEM_HEX_LEN + 1], out[IDEM_HEX_LEN + 1];

    snprintf(hash, sizeof(hash), "%064d", 7);
    CHECK_INT(idem_downstream_key("order:", hash, out), 0);
    CHECK_STR(out, "f306e2b6a5f5279dbbc8a6bff85abffa7e8a11f5bf335b3a08ab1f4bf6b89d88");
    CHECK_INT(idem_downstream_key("order", hash, out), 0);
    CHECK(strcmp(out, "f306e2b6a5f5279dbbc8a6bff85abffa7e8a11f5bf335b3a08ab1f4bf6b89d88") != 0);
}

TEST_MAIN
