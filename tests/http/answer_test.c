/* Stored responses: the headers that belong to one, and its bytes. */
#include "http/http_answer.h"

#include "heap_text.h"

#define H(name, value)                                                                             \
    { IDEM_HTTP_TEXT(name), IDEM_HTTP_TEXT(value) }

static const struct idem_http_header two[] = {H("Content-Type", "text/plain"), H("X-Empty", "")};

static unsigned char bytes[4096];

/* Writes the whole response into `bytes` and returns its length. */
static size_t encode(int status, const struct idem_http_header *headers, size_t n, const char *body,
                     size_t body_len) {
    size_t size = idem_http_answer_size(headers, n, body_len);
    struct idem_http_answer_out out;

    CHECK(size != 0 && size <= sizeof(bytes));
    CHECK_INT(idem_http_answer_begin(&out, bytes, size, status, headers, n), 0);
    for (size_t i = 0; i < body_len; i++)
        CHECK_INT(idem_http_answer_append(&out, body + i, 1), 0);
    CHECK_INT(idem_http_answer_append(&out, "x", 1), IDEM_E_INVALID);
    CHECK_INT(idem_http_answer_append(&out, NULL, 0), 0);
    CHECK_INT(idem_http_answer_end(&out), size);
    return size;
}

/* Reads a copy of exactly that length, so that a sanitizer sees a read beyond its end. */
static int decode(size_t len) {
    struct idem_http_text copy = text_n((const char *)bytes, len);
    struct idem_http_answer answer = {.status = -1};
    int rc = idem_http_answer_read(copy.at, copy.len, &answer);

    CHECK((rc == 0) == (answer.status != -1));
    text_free(copy);
    return rc;
}

static bool is(struct idem_http_text text, const char *want) {
    return text.len == strlen(want) && memcmp(text.at, want, text.len) == 0;
}

TEST(what_is_written_is_read_again) {
    struct idem_http_answer answer;
    struct idem_http_header header;
    size_t len = encode(201, two, 2, "a\0b\r\n\xff", 6);

    CHECK_INT(idem_http_answer_read(bytes, len, &answer), 0);
    CHECK_INT(answer.status, 201);
    CHECK_INT(answer.headers_n, 2);
    CHECK(answer.body.len == 6 && memcmp(answer.body.at, "a\0b\r\n\xff", 6) == 0);
    CHECK(idem_http_answer_next(&answer.headers, &header));
    CHECK(is(header.name, "Content-Type") && is(header.value, "text/plain"));
    CHECK(idem_http_answer_next(&answer.headers, &header));
    CHECK(is(header.name, "X-Empty") && is(header.value, ""));
    CHECK(!idem_http_answer_next(&answer.headers, &header));
}

TEST(how_long_a_body_is_decoded_is_no_header_of_the_answer) {
    static const struct idem_http_decoded all[] = {{IDEM_HTTP_DECODED_EXACT, 0},
                                                   {IDEM_HTTP_DECODED_EXACT, 67108864},
                                                   {IDEM_HTTP_DECODED_OVER, 1048576},
                                                   {IDEM_HTTP_DECODED_NEVER, 0}};
    static const char *const wrong[] = {"",    "+",   "01",         "-1", "1 ",
                                        "yes", "no+", "4294967296", "1++"};
    struct idem_http_header headers[2] = {{{NULL, 0}, {NULL, 0}}, H("X-Empty", "")}, header;
    char room[IDEM_HTTP_DECODED_TEXT];
    struct idem_http_answer_out out;
    struct idem_http_answer answer;
    size_t len;

    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        headers[0] = idem_http_decoded_print(&all[i], room);
        len = encode(200, headers, 2, "x", 1);
        CHECK_INT(idem_http_answer_read(bytes, len, &answer), 0);
        CHECK(answer.decoded.kind == all[i].kind && answer.decoded.size == all[i].size);
        CHECK_INT(answer.headers_n, 1);
        CHECK(idem_http_answer_next(&answer.headers, &header) && is(header.name, "X-Empty"));
        CHECK(!idem_http_answer_next(&answer.headers, &header));
    }
    CHECK_INT(idem_http_answer_read(bytes, encode(200, two, 2, "x", 1), &answer), 0);
    CHECK_INT(answer.decoded.kind, IDEM_HTTP_DECODED_UNKNOWN);
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        headers[0].value = (struct idem_http_text){wrong[i], strlen(wrong[i])};
        CHECK_INT(idem_http_answer_begin(&out, bytes, sizeof(bytes), 200, headers, 2),
                  IDEM_E_INVALID);
    }
    /* The outcome header stands first, and the backend cannot set it. */
    headers[1] = idem_http_decoded_print(&all[0], room);
    headers[0] = two[1];
    CHECK_INT(idem_http_answer_begin(&out, bytes, sizeof(bytes), 200, headers, 2), IDEM_E_INVALID);
    CHECK(idem_http_header_refused(headers[1].name) != NULL);
}

TEST(an_answer_may_be_empty) {
    struct idem_http_answer answer;
    size_t len = encode(204, NULL, 0, "", 0);

    CHECK_INT(idem_http_answer_read(bytes, len, &answer), 0);
    CHECK(answer.status == 204 && answer.headers_n == 0 && answer.body.len == 0);
}

TEST(a_shorter_body_than_there_was_room_for_is_whole) {
    struct idem_http_answer_out out;
    struct idem_http_answer answer;
    size_t len;

    CHECK_INT(idem_http_answer_begin(&out, bytes, sizeof(bytes), 200, two, 2), 0);
    CHECK_INT(idem_http_answer_append(&out, "abc", 3), 0);
    CHECK_INT(idem_http_answer_append(&out, "", 0), 0);
    CHECK_INT(idem_http_answer_append(&out, "def", 3), 0);
    len = idem_http_answer_end(&out);
    CHECK_INT(len, idem_http_answer_size(two, 2, 6));
    CHECK_INT(idem_http_answer_read(bytes, len, &answer), 0);
    CHECK(is(answer.body, "abcdef"));
}

TEST(the_stored_form_does_not_change) {
    static const unsigned char want[] = "A\x01\xc9\x00\x01\x00\x02\x00\x00\x00"
                                        "\x04\x02\x00\x00\x00"
                                        "ETag"
                                        "\"\""
                                        "hi";
    const struct idem_http_header etag = H("ETag", "\"\"");

    CHECK_INT(encode(201, &etag, 1, "hi", 2), sizeof(want) - 1);
    CHECK(memcmp(bytes, want, sizeof(want) - 1) == 0);
}

TEST(a_part_of_an_answer_is_no_answer) {
    size_t len = encode(200, two, 2, "body", 4);

    for (size_t i = 0; i < len; i++)
        CHECK_INT(decode(i), IDEM_E_CORRUPT);
    CHECK_INT(decode(len), 0);
    CHECK_INT(decode(len + 1), IDEM_E_CORRUPT);
}

TEST(damage_is_seen_or_harmless) {
    size_t len = encode(200, two, 2, "body", 4);

    for (size_t i = 0; i < len; i++)
        for (int value = 0; value < 256; value++) {
            unsigned char was = bytes[i];

            bytes[i] = (unsigned char)value;
            decode(len);
            bytes[i] = was;
        }
}

TEST(a_newer_answer_is_told_from_a_damaged_one) {
    size_t len = encode(200, two, 2, "", 0);

    bytes[1] = 2;
    CHECK_INT(decode(len), IDEM_E_VERSION);
    CHECK_INT(decode(2), IDEM_E_VERSION);
    bytes[1] = 0;
    CHECK_INT(decode(len), IDEM_E_CORRUPT);
    bytes[1] = 1;
    bytes[0] = 'R';
    CHECK_INT(decode(len), IDEM_E_CORRUPT);
}

TEST(a_stored_header_cannot_write_others) {
    const struct idem_http_header header = H("X-A", "abcd");
    const char *const bad[] = {"a\r\nb", "ab\nc", "ab\rc"};
    size_t len = encode(200, &header, 1, "", 0);

    for (size_t i = 0; i < 3; i++) {
        memcpy(bytes + len - 4, bad[i], 4);
        CHECK_INT(decode(len), IDEM_E_CORRUPT);
    }
    memcpy(bytes + len - 4, "ab\0c", 4);
    CHECK_INT(decode(len), IDEM_E_CORRUPT);
    memcpy(bytes + len - 4, "ab\tc", 4);
    CHECK_INT(decode(len), 0);
    memcpy(bytes + len - 7, "X:A", 3);
    CHECK_INT(decode(len), IDEM_E_CORRUPT);
}

TEST(a_stored_answer_sets_no_cookie) {
    const struct idem_http_header header = H("Xet-Cookie", "a=b");
    size_t len = encode(200, &header, 1, "", 0);

    bytes[15] = 's';
    CHECK_INT(decode(len), IDEM_E_CORRUPT);
}

TEST(what_is_no_answer_is_not_written) {
    struct idem_http_answer_out out;
    const struct idem_http_header bad[] = {
        H("Set-Cookie", "a=b"), H("Content-Length", "1"), H("", "x"),       H("a b", "x"),
        H("X-A", "a\nb"),       H("X-A", "a\rb"),         H("X-A", "a\0b"), H("Idem-Lost", "true"),
    };

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        CHECK_INT(idem_http_answer_begin(&out, bytes, sizeof(bytes), 200, &bad[i], 1),
                  IDEM_E_INVALID);
    for (const int *status = (const int[]){-1, 0, 100, 199, 1000, 65736, 0x10000 + 200, -2};
         *status != -2; status++)
        CHECK_INT(idem_http_answer_begin(&out, bytes, sizeof(bytes), *status, two, 2),
                  IDEM_E_INVALID);
    CHECK_INT(
        idem_http_answer_begin(&out, bytes, idem_http_answer_size(two, 2, 0) - 1, 200, two, 2),
        IDEM_E_INVALID);
}

TEST(headers_have_their_bounds) {
    static struct idem_http_header many[IDEM_HTTP_HEADERS_MAX + 1];
    static char long_value[IDEM_HTTP_HEAD_MAX];
    char name[256];
    struct idem_http_header one = {{name, 255}, {"", 0}};

    for (size_t i = 0; i <= IDEM_HTTP_HEADERS_MAX; i++)
        many[i] = (struct idem_http_header)H("X-A", "b");
    CHECK(idem_http_answer_size(many, IDEM_HTTP_HEADERS_MAX, 0) != 0);
    CHECK_INT(idem_http_answer_size(many, IDEM_HTTP_HEADERS_MAX + 1, 0), 0);
    encode(200, many, IDEM_HTTP_HEADERS_MAX, "x", 1);
    memset(name, 'n', sizeof(name));
    CHECK(idem_http_answer_size(&one, 1, 0) != 0);
    CHECK_INT(decode(encode(200, &one, 1, "", 0)), 0);
    one.name.len = 256;
    CHECK_INT(idem_http_answer_size(&one, 1, 0), 0);
    memset(long_value, 'v', sizeof(long_value));
    one = (struct idem_http_header){{name, 1}, {long_value, IDEM_HTTP_HEAD_MAX - 16}};
    CHECK_INT(idem_http_answer_size(&one, 1, 5), IDEM_HTTP_HEAD_MAX + 5);
    one.value.len++;
    CHECK_INT(idem_http_answer_size(&one, 1, 5), 0);
    one.value.len = SIZE_MAX;
    CHECK_INT(idem_http_answer_size(&one, 1, 5), 0);
    CHECK_INT(idem_http_answer_size(two, 2, SIZE_MAX), 0);
}

static bool kept(const char *name, const char *connection) {
    static const struct idem_http_text further[] = {
        {"X-Request-Id", 12}, {"Set-Cookie", 10}, {"Date", 4}};

    return idem_http_header_kept((struct idem_http_text){name, strlen(name)},
                                 (struct idem_http_text){connection, strlen(connection)}, further,
                                 3);
}

TEST(a_replay_repeats_what_describes_the_answer) {
    for (const char **name =
             (const char *[]){"Content-Type", "content-type", "CONTENT-LANGUAGE",
                              "Content-Encoding", "Content-Disposition", "Content-Location",
                              "Location", "ETag", "Last-Modified", "Link", "Cache-Control",
                              "Expires", "Vary", "Retry-After", "Allow", "Content-Security-Policy",
                              "Access-Control-Allow-Origin", "x-request-id", NULL};
         *name != NULL; name++)
        CHECK(kept(*name, ""));
}

TEST(a_replay_repeats_nothing_else) {
    for (const char **name = (const char *[]){"Set-Cookie",
                                              "set-cookie",
                                              "Set-Cookie2",
                                              "Date",
                                              "Server",
                                              "Age",
                                              "Content-Length",
                                              "Connection",
                                              "Keep-Alive",
                                              "Transfer-Encoding",
                                              "TE",
                                              "Trailer",
                                              "Upgrade",
                                              "Proxy-Authenticate",
                                              "WWW-Authenticate",
                                              "X-Other",
                                              "Idem-Outcome",
                                              "IDEM-TTL",
                                              "Idempotent-Replayed",
                                              "X-Accel-Redirect",
                                              "Content-Typ",
                                              "Content-Types",
                                              "",
                                              NULL};
         *name != NULL; name++)
        CHECK(!kept(*name, ""));
    CHECK(!idem_http_header_kept(IDEM_HTTP_TEXT("X-Request-Id"), (struct idem_http_text){NULL, 0},
                                 NULL, 0));
}

TEST(what_connection_names_ends_here) {
    CHECK(!kept("Link", "close, link"));
    CHECK(!kept("X-Request-Id", "x-request-id"));
    CHECK(kept("Link", "close, linked"));
}

static const char *why(const char *name) {
    const char *refused = idem_http_header_refused((struct idem_http_text){name, strlen(name)});

    return refused == NULL ? "allowed" : refused;
}

TEST(a_name_that_is_refused_is_told_why) {
    CHECK_STR(why("X-Request-Id"), "allowed");
    CHECK_STR(why("WWW-Authenticate"), "allowed");
    CHECK_STR(why("Content-Type"), "allowed");
    CHECK_STR(why("Identity"), "allowed");
    CHECK_HAS(why("SET-COOKIE"), "session");
    CHECK_HAS(why("connection"), "one connection");
    CHECK_HAS(why("Transfer-Encoding"), "one connection");
    CHECK_HAS(why("Date"), "anew");
    CHECK_HAS(why("Content-Length"), "anew");
    CHECK_HAS(why("Idem-Anything"), "anew");
    CHECK_HAS(why("x-accel-buffering"), "order");
    CHECK_HAS(why("Content-Range"), "whole");
    CHECK_HAS(why(""), "no name");
    CHECK_HAS(why("a b"), "no name");
    CHECK_HAS(why("X-A:"), "no name");
}

TEST_MAIN
