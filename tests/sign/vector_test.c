/*
 * The RFCs' own examples: signature bases and signatures of RFC 9421, digests
 * of RFC 9530. Examples without a nonce are checked below the layer that
 * demands one.
 */
#include <openssl/sha.h>

#include "base/base64.h"
#include "rig.h"

/* RFC 9421, B.2: the test request. */
static const char body[] = "{\"hello\": \"world\"}";
static const struct idem_http_header headers[] = {
    {IDEM_HTTP_TEXT("Host"), IDEM_HTTP_TEXT("example.com")},
    {IDEM_HTTP_TEXT("Date"), IDEM_HTTP_TEXT("Tue, 20 Apr 2021 02:07:55 GMT")},
    {IDEM_HTTP_TEXT("Content-Type"), IDEM_HTTP_TEXT("application/json")},
    {IDEM_HTTP_TEXT("Content-Digest"),
     IDEM_HTTP_TEXT("sha-512=:WZDPaVn/7XgHaAy8pmojAkGWoRx2UFChF41A2svX+TaPm+"
                    "AbwAgBWnrIiYllu7BNNyealdVLvRwEmTHWXvJwew==:")},
    {IDEM_HTTP_TEXT("Content-Length"), IDEM_HTTP_TEXT("18")},
};

static unsigned char sha256[IDEM_HASH_LEN], sha512[IDEM_SHA512_LEN];

static struct idem_sign_request rfc_request(void) {
    SHA256((const unsigned char *)body, sizeof(body) - 1, sha256);
    SHA512((const unsigned char *)body, sizeof(body) - 1, sha512);
    return (struct idem_sign_request){
        .method = IDEM_HTTP_TEXT("POST"),
        .scheme = IDEM_HTTP_TEXT("https"),
        .authority = IDEM_HTTP_TEXT("example.com"),
        .path = IDEM_HTTP_TEXT("/foo"),
        .query = IDEM_HTTP_TEXT("param=Value&Pet=dog"),
        .headers = headers,
        .headers_n = sizeof(headers) / sizeof(headers[0]),
        .has_body = true,
        .sha256 = sha256,
        .sha512 = sha512,
    };
}

static char *base_of(const struct idem_signer *signer, const struct idem_sign_request *request,
                     const char *components, const char *parameters) {
    struct idem_sign_parts parts = {
        .components = {components, strlen(components)},
        .parameters = {parameters, strlen(parameters)},
    };
    char room[IDEM_SIGN_DETAIL];
    const char *detail = NULL;
    char *text = NULL;
    size_t len;

    if (idem_sign_text(signer, request, &parts, &text, &len, &detail, room) != 0) {
        fprintf(stderr, "# %s\n", detail);
        exit(1);
    }
    return text;
}

static bool signs(const struct idem_signer *signer, const char *key_id, const char *text,
                  const char *base64) {
    struct idem_http_text id = {key_id, strlen(key_id)}, base = {text, strlen(text)};
    unsigned char signature[IDEM_SIGNATURE_MAX];
    size_t len;

    CHECK(idem_base64_decode(base64, strlen(base64), signature, sizeof(signature), &len));
    return idem_keyring_verify(signer->keyring, id, 0, base, signature, len);
}

TEST(b_2_5_is_signed_with_a_shared_secret) {
    struct idem_signer *signer = signer_of(KEYS, (struct idem_sign_rules){0});
    struct idem_sign_request request = rfc_request();
    char *base = base_of(signer, &request, "\"date\" \"@authority\" \"content-type\"",
                         ";created=1618884473;keyid=\"test-shared-secret\"");

    CHECK_STR(base, "\"date\": Tue, 20 Apr 2021 02:07:55 GMT\n"
                    "\"@authority\": example.com\n"
                    "\"content-type\": application/json\n"
                    "\"@signature-params\": (\"date\" \"@authority\" \"content-type\")"
                    ";created=1618884473;keyid=\"test-shared-secret\"");
    CHECK(
        signs(signer, "test-shared-secret", base, "pxcQw6G3AjtMBQjwo8XzkZf/bws5LelbaMk5rGIGtE8="));
    CHECK(!signs(signer, "shop-1", base, "pxcQw6G3AjtMBQjwo8XzkZf/bws5LelbaMk5rGIGtE8="));
    CHECK(!signs(signer, "nobody", base, "pxcQw6G3AjtMBQjwo8XzkZf/bws5LelbaMk5rGIGtE8="));
    free(base);
    idem_signer_free(signer);
}

TEST(b_2_6_is_signed_with_ed25519) {
    static const char signature[] = "wqcAqbmYJ2ji2glfAMaRy4gruYYnx2nEFN2HN6jrnDnQCK1u02Gb04v9EDgwUP"
                                    "iu4A0w6vuQv5lIp5WPpBKRCw==";
    struct idem_signer *signer = signer_of(KEYS, (struct idem_sign_rules){0});
    struct idem_sign_request request = rfc_request();
    char *base = base_of(signer, &request,
                         "\"date\" \"@method\" \"@path\" \"@authority\" \"content-type\" "
                         "\"content-length\"",
                         ";created=1618884473;keyid=\"test-key-ed25519\"");

    CHECK_HAS(base, "\"@method\": POST\n\"@path\": /foo\n\"@authority\": example.com\n");
    CHECK(signs(signer, "test-key-ed25519", base, signature));
    CHECK(signs(signer, "public-only", base, signature)); /* the public half of the same key */
    base[0] = 'x';
    CHECK(!signs(signer, "test-key-ed25519", base, signature));
    CHECK(!signs(signer, "public-only", base, signature));
    free(base);
    idem_signer_free(signer);
}

/* 2.2 and 2.2.8, with the request of section 2.2. */
TEST(derived_components_are_those_of_section_2_2) {
    static const struct {
        const char *component, *line;
    } rows[] = {
        {"\"@method\"", "\"@method\": POST\n"},
        {"\"@target-uri\"", "\"@target-uri\": https://www.example.com/path?param=value\n"},
        {"\"@authority\"", "\"@authority\": www.example.com\n"},
        {"\"@scheme\"", "\"@scheme\": https\n"},
        {"\"@request-target\"", "\"@request-target\": /path?param=value\n"},
        {"\"@path\"", "\"@path\": /path\n"},
        {"\"@query\"", "\"@query\": ?param=value\n"},
        {"\"@query-param\";name=\"param\"", "\"@query-param\";name=\"param\": value\n"},
    };
    struct idem_signer *signer = signer_of(KEYS, (struct idem_sign_rules){0});
    struct idem_sign_request request = rfc_request();

    request.authority = (struct idem_http_text)IDEM_HTTP_TEXT("WWW.Example.com:443");
    request.path = (struct idem_http_text)IDEM_HTTP_TEXT("/path");
    request.query = (struct idem_http_text)IDEM_HTTP_TEXT("param=value");
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char *base = base_of(signer, &request, rows[i].component, "");

        CHECK_INT(strncmp(base, rows[i].line, strlen(rows[i].line)), 0);
        free(base);
    }
    idem_signer_free(signer);
}

/* 2.2.7: without a query there is a question mark all the same. */
TEST(no_query_is_a_question_mark) {
    struct idem_signer *signer = signer_of(KEYS, (struct idem_sign_rules){0});
    struct idem_sign_request request = rfc_request();
    char *base;

    request.query = (struct idem_http_text){NULL, 0};
    base = base_of(signer, &request, "\"@query\" \"@request-target\"", "");
    CHECK_HAS(base, "\"@query\": ?\n\"@request-target\": /foo\n");
    free(base);
    idem_signer_free(signer);
}

/* 2.2.8: parameters are decoded and encoded again. */
TEST(query_params_are_encoded_anew) {
    struct idem_signer *signer = signer_of(KEYS, (struct idem_sign_rules){0});
    struct idem_sign_request request = rfc_request();
    char *base;

    request.query = (struct idem_http_text)IDEM_HTTP_TEXT(
        "var=this%20is%20a%20big%0Amultiline%20value&bar=with+plus+whitespace&fa%C3%A7ade%22%3A%20"
        "=something");
    base = base_of(signer, &request,
                   "\"@query-param\";name=\"var\" \"@query-param\";name=\"bar\" "
                   "\"@query-param\";name=\"fa%C3%A7ade%22%3A%20\"",
                   "");
    CHECK_HAS(base, "\"@query-param\";name=\"var\": this%20is%20a%20big%0Amultiline%20value\n"
                    "\"@query-param\";name=\"bar\": with%20plus%20whitespace\n"
                    "\"@query-param\";name=\"fa%C3%A7ade%22%3A%20\": something\n");
    free(base);
    idem_signer_free(signer);
}

/* 2.1 and 2.1.3: several fields of one name, and the bytes of each. */
TEST(fields_are_joined_or_wrapped) {
    static const struct idem_http_header fields[] = {
        {IDEM_HTTP_TEXT("X-OWS-Header"), IDEM_HTTP_TEXT("   Leading and trailing whitespace.   ")},
        {IDEM_HTTP_TEXT("Cache-Control"), IDEM_HTTP_TEXT("max-age=60")},
        {IDEM_HTTP_TEXT("Cache-Control"), IDEM_HTTP_TEXT("   must-revalidate")},
        {IDEM_HTTP_TEXT("X-Empty-Header"), IDEM_HTTP_TEXT("")},
        {IDEM_HTTP_TEXT("Example-Header"), IDEM_HTTP_TEXT("value, with, lots")},
        {IDEM_HTTP_TEXT("Example-Header"), IDEM_HTTP_TEXT("of, commas")},
    };
    struct idem_signer *signer = signer_of(KEYS, (struct idem_sign_rules){0});
    struct idem_sign_request request = rfc_request();
    char *base;

    request.headers = fields;
    request.headers_n = sizeof(fields) / sizeof(fields[0]);
    base = base_of(signer, &request,
                   "\"x-ows-header\" \"cache-control\" \"x-empty-header\" \"example-header\" "
                   "\"example-header\";bs",
                   "");
    CHECK_HAS(base, "\"x-ows-header\": Leading and trailing whitespace.\n"
                    "\"cache-control\": max-age=60, must-revalidate\n"
                    "\"x-empty-header\": \n"
                    "\"example-header\": value, with, lots, of, commas\n"
                    "\"example-header\";bs: :dmFsdWUsIHdpdGgsIGxvdHM=:, :b2YsIGNvbW1hcw==:\n");
    free(base);
    idem_signer_free(signer);
}

/* RFC 9530, appendix: the digests of a body. */
TEST(content_digests_are_those_of_rfc_9530) {
    static const struct {
        const char *value;
        bool good, incomplete;
    } rows[] = {
        {"sha-256=:X48E9qOokqqrvdts8nOJRJN3OWDUoyWxBf7kbu9DBPE=:", true, false},
        {"sha-512=:WZDPaVn/7XgHaAy8pmojAkGWoRx2UFChF41A2svX+TaPm+AbwAgBWnrIiYllu7BNNyealdVLvRwEmTHW"
         "XvJwew==:",
         true, false},
        {"sha-256=:X48E9qOokqqrvdts8nOJRJN3OWDUoyWxBf7kbu9DBPF=:", true, false}, /* padding bits */
        {"sha-256=:A48E9qOokqqrvdts8nOJRJN3OWDUoyWxBf7kbu9DBPE=:", false, false},
        {"md5=:AAAA:, sha-256=:X48E9qOokqqrvdts8nOJRJN3OWDUoyWxBf7kbu9DBPE=:", true, false},
        {"sha-256=:X48E9qOokqqrvdts8nOJRJN3OWDUoyWxBf7kbu9DBPE=:, sha-512=:AAAA:", false, false},
        {"sha-256=:X48E9qOokqqrvdts8nOJRJN3OWDUoyWxBf7kbu9DBPE=:, sha-256=:AAAA:", false, false},
        {"md5=:AAAA:", false, true},
        {"sha-256=X48E9q", false, false},
        {"sha-256=:X48E9q", false, true},
        {"", false, true},
    };
    struct idem_sign_request request = rfc_request();

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct idem_http_header digest = {IDEM_HTTP_TEXT("content-digest"),
                                          {rows[i].value, strlen(rows[i].value)}};
        bool incomplete;

        request.headers = &digest;
        request.headers_n = 1;
        fprintf(stderr, "# %s\n", rows[i].value);
        CHECK_INT(idem_digest_check(&request, &incomplete) == NULL, rows[i].good);
        CHECK_INT(incomplete, rows[i].incomplete);
    }
}

/* A sender may write blanks where the RFC allows them; the signed text has none. */
TEST(a_list_is_signed_as_it_would_be_written_again) {
    struct idem_signer *signer = signer_of(KEYS, (struct idem_sign_rules){0});
    struct idem_sign_request request = rfc_request();
    char *base = base_of(signer, &request, "  \"@method\"   \"@path\" ",
                         "; created=1;  keyid=\"a\\\"b\";flag=?1;other=?0");

    CHECK_HAS(base, "\"@signature-params\": (\"@method\" \"@path\")"
                    ";created=1;keyid=\"a\\\"b\";flag;other=?0");
    free(base);
    idem_signer_free(signer);
}

TEST_MAIN
