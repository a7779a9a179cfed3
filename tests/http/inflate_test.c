/* Stored bodies in gzip. */
#include "http/http_inflate.h"

#include "heap_text.h"

static unsigned char packed[1 << 16];

/* The text follows the bytes that are there already. */
static size_t pack(size_t at, const char *bytes, size_t len, int window_bits) {
    z_stream z = {0};

    CHECK_INT(deflateInit2(&z, 6, Z_DEFLATED, window_bits, 8, Z_DEFAULT_STRATEGY), Z_OK);
    z.next_in = (Bytef *)bytes;
    z.avail_in = (uInt)len;
    z.next_out = packed + at;
    z.avail_out = (uInt)(sizeof(packed) - at);
    CHECK_INT(deflate(&z, Z_FINISH), Z_STREAM_END);
    at += z.total_out;
    CHECK_INT(deflateEnd(&z), Z_OK);
    return at;
}

static size_t gzip(size_t at, const char *bytes, size_t len) {
    return pack(at, bytes, len, 15 + 16);
}

static char *unpacked;
static size_t unpacked_len;

/* Decodes a copy of `len` bytes in steps of `step`. */
static int unpack(size_t len, size_t step, size_t max) {
    struct idem_http_text copy = text_n((const char *)packed, len);
    struct idem_http_inflate z;
    char *out = malloc(step);
    size_t n = 99;
    int rc;

    CHECK(out != NULL);
    CHECK_INT(idem_http_inflate_init(&z, copy.at, copy.len, max), 0);
    free(unpacked);
    unpacked = malloc(max + 1);
    CHECK(unpacked != NULL);
    unpacked_len = 0;
    while ((rc = idem_http_inflate_next(&z, out, step, &n)) == 0 && (n != 0 || !z.done)) {
        CHECK(n <= step && n <= max - unpacked_len);
        memcpy(unpacked + unpacked_len, out, n);
        unpacked_len += n;
        n = 99;
    }
    CHECK((rc == 0) == (n == 0));
    if (rc == 0) {
        CHECK_INT(idem_http_inflate_next(&z, out, step, &n), 0);
        CHECK_INT(n, 0);
    }
    idem_http_inflate_release(&z);
    free(out);
    text_free(copy);
    return rc;
}

TEST(what_was_packed_comes_out) {
    size_t len = gzip(0, "hello, hello, hello", 19);

    for (size_t step = 1; step < 25; step++) {
        CHECK_INT(unpack(len, step, 100), 0);
        CHECK(unpacked_len == 19 && memcmp(unpacked, "hello, hello, hello", 19) == 0);
    }
    len = gzip(0, "", 0);
    CHECK_INT(unpack(len, 16, 0), 0);
    CHECK_INT(unpacked_len, 0);
}

TEST(no_more_comes_out_than_is_allowed) {
    size_t len = gzip(0, "hello, hello, hello", 19);

    CHECK_INT(unpack(len, 7, 19), 0);
    CHECK_INT(unpack(len, 19, 19), 0);
    for (size_t max = 0; max < 19; max++) {
        CHECK_INT(unpack(len, 7, max), IDEM_E_FULL);
        CHECK_INT(unpack(len, 100, max), IDEM_E_FULL);
        CHECK_INT(unpacked_len, max);
    }
}

TEST(a_bomb_is_refused_at_its_bound) {
    char *zeros = calloc(1, 16 << 20);
    size_t len;

    CHECK(zeros != NULL);
    len = gzip(0, zeros, 16 << 20);
    free(zeros);
    CHECK(len < 20000);
    CHECK_INT(unpack(len, 4096, 1 << 20), IDEM_E_FULL);
    CHECK_INT(unpack(len, 4096, 16 << 20), 0);
}

TEST(a_part_of_it_is_not_the_whole) {
    size_t len = gzip(0, "hello, hello, hello", 19);

    for (size_t part = 0; part < len; part++)
        CHECK_INT(unpack(part, 8, 100), IDEM_E_CORRUPT);
}

TEST(a_damaged_byte_is_seen) {
    size_t len = gzip(0, "hello, hello, hello", 19);

    for (size_t i = 0; i < len; i++) {
        packed[i] ^= 0x55;
        /* Bytes 4 to 9 of the header are not checked: the time, the compressor's flags, the system.
         */
        if (i < 4 || i > 9)
            CHECK_INT(unpack(len, 8, 1000), IDEM_E_CORRUPT);
        packed[i] ^= 0x55;
    }
}

TEST(what_follows_must_be_gzip_too) {
    size_t one = gzip(0, "hello", 5), two;

    packed[one] = '\0';
    CHECK_INT(unpack(one + 1, 8, 100), IDEM_E_CORRUPT);
    packed[one] = 0x1f;
    CHECK_INT(unpack(one + 1, 8, 100), IDEM_E_CORRUPT);
    memcpy(packed + one, "garbage", 7);
    CHECK_INT(unpack(one + 7, 8, 100), IDEM_E_CORRUPT);
    two = gzip(one, ", world", 7);
    CHECK_INT(unpack(two, 8, 12), 0);
    CHECK(unpacked_len == 12 && memcmp(unpacked, "hello, world", 12) == 0);
    CHECK_INT(unpack(two, 8, 11), IDEM_E_FULL);
    CHECK_INT(unpack(two - 1, 8, 100), IDEM_E_CORRUPT);
    two = gzip(one, "", 0);
    CHECK_INT(unpack(two, 5, 5), 0);
}

/* Decodes in pieces of `step`. */
static struct idem_http_decoded measured(size_t len, size_t step, size_t max) {
    struct idem_http_text copy = text_n((const char *)packed, len);
    struct idem_http_measure m;
    struct idem_http_decoded decoded;

    idem_http_measure_begin(&m, max);
    for (size_t at = 0; at < len; at += step)
        idem_http_measure_add(&m, copy.at + at, len - at < step ? len - at : step);
    decoded = idem_http_measure_end(&m);
    idem_http_measure_drop(&m);
    text_free(copy);
    return decoded;
}

TEST(the_length_is_known_before_it_is_decoded) {
    size_t one = gzip(0, "hello, hello, hello", 19), two;
    struct idem_http_decoded decoded;

    for (size_t step = 1; step <= one; step++) {
        decoded = measured(one, step, 19);
        CHECK(decoded.kind == IDEM_HTTP_DECODED_EXACT && decoded.size == 19);
        decoded = measured(one, step, 18);
        CHECK(decoded.kind == IDEM_HTTP_DECODED_OVER && decoded.size == 18);
        CHECK(measured(one - 1, step, 19).kind == IDEM_HTTP_DECODED_NEVER);
    }
    CHECK_INT(idem_http_gzip_claims((struct idem_http_text){(char *)packed, one}), 19);
    CHECK_INT(idem_http_gzip_claims((struct idem_http_text){(char *)packed, 17}), 0);
    two = gzip(one, ", world", 7);
    decoded = measured(two, 5, 100);
    CHECK(decoded.kind == IDEM_HTTP_DECODED_EXACT && decoded.size == 26);
    CHECK(measured(0, 1, 10).kind == IDEM_HTTP_DECODED_NEVER);
    memcpy(packed + one, "garbage", 7);
    CHECK(measured(one + 7, 3, 100).kind == IDEM_HTTP_DECODED_NEVER);
    two = gzip(0, "", 0);
    decoded = measured(two, 4, 0);
    CHECK(decoded.kind == IDEM_HTTP_DECODED_EXACT && decoded.size == 0);
}

TEST(a_bomb_is_not_measured_to_its_end) {
    char *zeros = calloc(1, 16 << 20);
    size_t len;
    struct idem_http_measure m;

    CHECK(zeros != NULL);
    len = gzip(0, zeros, 16 << 20);
    free(zeros);
    idem_http_measure_begin(&m, 1 << 20);
    idem_http_measure_add(&m, packed, len);
    CHECK(m.size > 1 << 20 && m.size < 2 << 20 && !m.open);
    idem_http_measure_add(&m, packed, len);
    CHECK_INT(idem_http_measure_end(&m).kind, IDEM_HTTP_DECODED_OVER);
}

/* Empty members give no output; each step reads 16 KiB of them and no more. */
TEST(a_step_is_bounded_by_what_it_reads) {
    struct idem_http_inflate z;
    char out[64];
    size_t len = 0, n = 99, steps = 0, read = 0;

    while (len < sizeof(packed) - 64)
        len = gzip(len, "", 0);
    CHECK_INT(idem_http_inflate_init(&z, packed, len, 100), 0);
    for (; !z.done; steps++) {
        const unsigned char *at = z.zlib.next_in;

        CHECK_INT(idem_http_inflate_next(&z, out, sizeof(out), &n), 0);
        CHECK_INT(n, 0);
        CHECK(z.zlib.next_in - at <= 16384);
        read += (size_t)(z.zlib.next_in - at);
    }
    CHECK_INT(read, len);
    CHECK(steps >= len / 16384);
    idem_http_inflate_release(&z);
}

TEST(only_gzip_is_taken) {
    CHECK_INT(unpack(pack(0, "hello", 5, 15), 8, 100), IDEM_E_CORRUPT);
    CHECK_INT(unpack(pack(0, "hello", 5, -15), 8, 100), IDEM_E_CORRUPT);
    memcpy(packed, "hello", 5);
    CHECK_INT(unpack(5, 8, 100), IDEM_E_CORRUPT);
}

TEST_MAIN
