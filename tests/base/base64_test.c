/* Base64 and hex, read from a heap block of the exact length: the sanitizers see one byte too many.
 */

#include "base/base64.h"
#include "base/hex.h"
#include "test.h"

/* The bytes as hex, or NULL if the text is not valid. */
static const char *decoded(bool (*decode)(const char *, size_t, unsigned char *, size_t, size_t *),
                           const char *value, size_t size) {
    static char hex[IDEM_HEX_TEXT(64)];
    size_t text_len = strlen(value), len = 999;
    char *text = malloc(text_len + (text_len == 0));
    unsigned char *out = malloc(size + (size == 0));
    bool ok;

    CHECK(text != NULL && out != NULL);
    memcpy(text, value, text_len);
    ok = decode(text, text_len, out, size, &len);
    free(text);
    if (ok) {
        CHECK(len <= size);
        idem_hex_encode(out, len, hex);
    } else {
        CHECK_INT(len, 999);
    }
    free(out);
    return ok ? hex : NULL;
}

#define BASE64(value) decoded(idem_base64_decode, value, 64)
#define HEX(value) decoded(idem_hex_decode, value, 64)

/* RFC 4648, 10. */
TEST(base64_is_written_with_padding) {
    static const char *const texts[] = {"",         "Zg==",     "Zm8=",    "Zm9v",
                                        "Zm9vYg==", "Zm9vYmE=", "Zm9vYmFy"};
    char out[IDEM_BASE64_TEXT(6)];

    for (size_t i = 0; i <= 6; i++) {
        idem_base64_encode((const unsigned char *)"foobar", i, out);
        CHECK_STR(out, texts[i]);
        CHECK_INT(strlen(out) + 1, IDEM_BASE64_TEXT(i));
    }
}

TEST(base64_is_read_with_and_without_padding) {
    CHECK_STR(BASE64(""), "");
    CHECK_STR(BASE64("Zg=="), "66");
    CHECK_STR(BASE64("Zg"), "66");
    CHECK_STR(BASE64("Zm8="), "666f");
    CHECK_STR(BASE64("Zm8"), "666f");
    CHECK_STR(BASE64("Zm9v"), "666f6f");
    CHECK_STR(BASE64("+/+/"), "fbffbf");
    CHECK_STR(BASE64("Zh=="), "66"); /* padding bits are ignored */
}

TEST(what_is_no_base64_is_not_read) {
    static const char *const wrong[] = {
        "Z",    "Zg=",   "Zm9v=", "Zm9v==", "=",    "==",    "Zg===", "Zg==Z",
        "Z=g=", "Zm9v ", " Zg",   "Zm\n8",  "Zm-_", "Z\xc3", "====",  "Zm9vY"};

    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        CHECK(BASE64(wrong[i]) == NULL);
    CHECK(!idem_base64_decode("Zm\0v", 4, (unsigned char[3]){0}, 3, &(size_t){0}));
}

TEST(no_more_is_written_than_there_is_room_for) {
    CHECK_STR(decoded(idem_base64_decode, "Zm9v", 3), "666f6f");
    CHECK(decoded(idem_base64_decode, "Zm9v", 2) == NULL);
    CHECK(decoded(idem_base64_decode, "Zg", 0) == NULL);
    CHECK_STR(decoded(idem_hex_decode, "0aFF", 2), "0aff");
    CHECK(decoded(idem_hex_decode, "0aFF", 1) == NULL);
}

TEST(hex_has_digits_of_either_case_in_pairs) {
    CHECK_STR(HEX(""), "");
    CHECK_STR(HEX("00fFAa9"
                  "0"),
              "00ffaa90");
    CHECK(HEX("0") == NULL);
    CHECK(HEX("0g") == NULL);
    CHECK(HEX("0x") == NULL);
    CHECK(HEX(" 00") == NULL);
    CHECK(HEX("@0") == NULL);
    CHECK(HEX("`0") == NULL);
}

TEST(every_byte_comes_back) {
    unsigned char bytes[256], again[256];
    char base64[IDEM_BASE64_TEXT(256)], hex[IDEM_HEX_TEXT(256)];

    for (size_t i = 0; i < 256; i++)
        bytes[i] = (unsigned char)(i * 7 + 3);
    for (size_t n = 0; n <= 256; n++) {
        size_t len = 999;

        idem_base64_encode(bytes, n, base64);
        CHECK(idem_base64_decode(base64, strlen(base64), again, n, &len));
        CHECK_INT(len, n);
        CHECK(memcmp(bytes, again, n) == 0);
        idem_hex_encode(bytes, n, hex);
        CHECK(idem_hex_decode(hex, strlen(hex), again, n, &len));
        CHECK_INT(len, n);
        CHECK(memcmp(bytes, again, n) == 0);
    }
}

TEST_MAIN
