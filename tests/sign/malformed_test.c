/*
 * Messages that Idem's sender never writes: signed by hand, headers and ids
 * that are nearly right, and the limits.
 */
#include <openssl/err.h>

#include "base/base64.h"
#include "rig.h"

/* Messages that Idem's sender never writes, with a valid signature: `parameters` end the signed
 * text, and `before` and `after` stand around them in Signature-Input. */
struct by_hand {
    struct idem_request request;
    const char *lines, *parameters, *before, *after;
    bool twice; /* sends the same signature under the name b, too */
};

static enum idem_proof hand_proof(const struct idem_signer *signer, const struct by_hand *hand) {
    char base[2048], params[1024], input[4096], text[IDEM_BASE64_TEXT(IDEM_SIGNATURE_MAX)],
        field[512];
    struct idem_field fields[8] = {{"Signature-Input", input}, {"Signature", field}};
    struct idem_request sent = hand->request;
    unsigned char signature[IDEM_SIGNATURE_MAX];
    struct idem_http_text id = {"shop-1", 6}, of = {base, 0};
    size_t len;

    snprintf(params, sizeof(params), "%s;created=%lld;keyid=\"shop-1\";nonce=\"n\"",
             hand->parameters, (long long)(now_ms() / 1000));
    snprintf(base, sizeof(base), "%s\"@signature-params\": %s", hand->lines, params);
    of.len = strlen(base);
    CHECK_INT(idem_keyring_sign(signer->keyring, id, of, signature, &len, NULL), 0);
    idem_base64_encode(signature, len, text);
    snprintf(field, sizeof(field), hand->twice ? "sig=:%s:, b=:%s:" : "sig=:%s:", text, text);
    snprintf(input, sizeof(input), "%ssig=%s%s%s%s", hand->before != NULL ? hand->before : "",
             params, hand->after != NULL ? hand->after : "", hand->twice ? ", b=" : "",
             hand->twice ? params : "");
    for (size_t i = 0; i < hand->request.fields_n; i++)
        fields[2 + i] = hand->request.fields[i];
    sent.fields = fields;
    sent.fields_n = 2 + hand->request.fields_n;
    return proof_of(NULL, signer, &sent);
}

#define PLAIN_LINES "\"@method\": GET\n\"@path\": /orders\n"
#define PLAIN "(\"@method\" \"@path\")"
#define EIGHT                                                                                      \
    ", a1=();keyid=\"x\", a2=();keyid=\"x\", a3=();keyid=\"x\", a4=();keyid=\"x\", "               \
    "a5=();keyid=\"x\", a6=();keyid=\"x\", a7=();keyid=\"x\", a8=();keyid=\"x\""

TEST(a_right_signature_does_not_make_up_for_what_stands_around_it) {
    static const char same_name[] = "sig=(\"@method\" \"@path\");keyid=\"nobody\", ";
    struct idem_request get = {.method = "GET", .authority = "shop.test", .target = "/orders"};
    struct idem_request twice = {.method = "GET", .target = "/orders?a=1&a=2"};
    struct idem_request once = {.method = "GET", .target = "/orders?a=1&b=2"};
    struct idem_request odd = {.method = "GET", .authority = "shop test", .target = "/orders"};
    static const char one_lines[] =
        PLAIN_LINES "\"@query\": ?a=1&b=2\n\"@query-param\";name=\"a\": 1\n";
    static const char two_lines[] =
        PLAIN_LINES "\"@query\": ?a=1&a=2\n\"@query-param\";name=\"a\": 12\n";
    static const char param[] = "(\"@method\" \"@path\" \"@query\" \"@query-param\";name=\"a\")";
    const struct {
        struct by_hand hand;
        enum idem_proof proof;
    } cases[] = {
        {{get, PLAIN_LINES, PLAIN, NULL, NULL, false}, IDEM_PROOF_GOOD},
        {{get, PLAIN_LINES, PLAIN, "a=();keyid=\"x\", ", NULL, false}, IDEM_PROOF_GOOD},
        {{get, PLAIN_LINES, PLAIN, same_name, NULL, false}, IDEM_PROOF_INCOMPLETE},
        {{get, PLAIN_LINES, PLAIN, NULL, NULL, true}, IDEM_PROOF_INCOMPLETE},
        {{get, PLAIN_LINES, PLAIN, NULL, EIGHT, false}, IDEM_PROOF_INCOMPLETE},
        {{odd, PLAIN_LINES, PLAIN, NULL, NULL, false}, IDEM_PROOF_INCOMPLETE},
        {{once, one_lines, param, NULL, NULL, false}, IDEM_PROOF_GOOD},
        {{twice, two_lines, param, NULL, NULL, false}, IDEM_PROOF_INCOMPLETE},
    };
    struct idem_signer *signer = signer_of(KEYS, (struct idem_sign_rules){0});

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        fprintf(stderr, "# case %zu\n", i);
        CHECK_INT(hand_proof(signer, &cases[i].hand), cases[i].proof);
    }
    idem_signer_free(signer);
}

/* Even if the sender names and signs another algorithm, a key is used only for its own. */
TEST(a_key_is_not_used_for_another_algorithm) {
    struct idem_request get = {.method = "GET", .authority = "shop.test", .target = "/orders"};
    struct by_hand hand = {get, PLAIN_LINES, PLAIN ";alg=\"ed25519\"", NULL, NULL, false};
    struct idem_signer *signer = signer_of(KEYS, (struct idem_sign_rules){0});

    CHECK_INT(hand_proof(signer, &hand), IDEM_PROOF_WRONG);
    hand.parameters = PLAIN ";alg=\"hmac-sha256\"";
    CHECK_INT(hand_proof(signer, &hand), IDEM_PROOF_GOOD);
    idem_signer_free(signer);
}

TEST(a_digest_that_cannot_be_read_to_its_end_is_none) {
    struct idem_field digest = {.name = "Content-Digest"};
    struct idem_request post = {
        .method = "POST", .target = "/orders", .fields = &digest, .fields_n = 1, .body = "x"};
    struct by_hand hand = {.request = post,
                           .parameters = "(\"@method\" \"@path\" \"content-digest\")"};
    char lines[256], made[IDEM_DIGEST_TEXT], long_one[IDEM_DIGEST_TEXT + 8];
    struct idem_signer *signer = signer_of(KEYS, (struct idem_sign_rules){0});
    unsigned char sha256[IDEM_HASH_LEN];

    hand.request.body_len = 1;
    CHECK_INT(idem_sha256((struct idem_bytes){(const unsigned char *)"x", 1}, sha256), 0);
    idem_digest_print(sha256, made);
    snprintf(long_one, sizeof(long_one), "%s, !", made);
    for (int i = 0; i < 2; i++) {
        digest.value = i == 0 ? made : long_one;
        snprintf(lines, sizeof(lines),
                 "\"@method\": POST\n\"@path\": /orders\n\"content-digest\": %s\n", digest.value);
        hand.lines = lines;
        CHECK_INT(hand_proof(signer, &hand), i == 0 ? IDEM_PROOF_GOOD : IDEM_PROOF_INCOMPLETE);
    }
    idem_signer_free(signer);
}

/* One id may begin like another: shop, and shop-1. */
TEST(an_id_is_compared_to_its_end) {
    static const char long_id[] = "shop-1 hmac-sha256 text:correct horse battery staple\n";
    static const char short_id[] = "shop hmac-sha256 text:correct horse battery staple\n";

    struct idem_request post = {.method = "POST", .target = "/orders"};

    for (size_t i = 0; i < 2; i++) {
        struct idem_sign_rules rules = {.form = forms[i]};
        struct idem_signer *one = signer_of(long_id, rules), *other = signer_of(short_id, rules);
        struct sent sent;

        send_as(&sent, one, "shop-1", &post);
        CHECK_INT(proof_of(NULL, one, &sent.request), IDEM_PROOF_GOOD);
        CHECK_INT(proof_of(NULL, other, &sent.request), IDEM_PROOF_WRONG);
        idem_signature_release(&sent.signature);
        send_as(&sent, other, "shop", &post);
        CHECK_INT(proof_of(NULL, one, &sent.request), IDEM_PROOF_WRONG);
        idem_signature_release(&sent.signature);
        idem_signer_free(one);
        idem_signer_free(other);
    }
}

TEST(parameters_are_sorted_by_their_whole_names_and_by_nothing_else) {
    struct idem_signer *signer = signer_of(KEYS, (struct idem_sign_rules){.form = forms[1]});
    struct idem_request get = {.method = "GET", .target = "/o?ab=1&a=2&a=1&=3&a&b=0&aa&"};
    struct idem_sign_with with = {.key_id = "shop-1", .nonce = "n", .time_ms = 1618884473000};
    struct idem_signature made;

    CHECK_INT(idem_sign_request(signer, &with, &get, &made, NULL), 0);
    CHECK_HAS(made.signed_text, "\n/o?=3&&a=2&a=1&a&aa&ab=1&b=0\n");
    idem_signature_release(&made);
    idem_signer_free(signer);
}

TEST(a_timestamp_is_written_in_one_way) {
    static const char *const bad[][2] = {{"0", ""}, {"", "000000"}, {"+", ""}, {"", ".0"}};
    struct idem_signer *signer =
        signer_of(KEYS, (struct idem_sign_rules){.form = IDEM_SIGN_CLASSIC});
    struct idem_request post = {.method = "POST", .target = "/orders"};
    char value[64];

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct sent sent;

        send_as(&sent, signer, "shop-1", &post);
        snprintf(value, sizeof(value), "%s%lld%s", bad[i][0], (long long)(now_ms() / 1000),
                 bad[i][1]);
        set_field(&sent, "X-Timestamp", value);
        CHECK_INT(proof_of(NULL, signer, &sent.request), IDEM_PROOF_INCOMPLETE);
        idem_signature_release(&sent.signature);
    }
    idem_signer_free(signer);
}

/* A host program may pass header values that nginx would refuse. */
TEST(no_header_that_is_signed_can_hold_a_line_s_end) {
    static const char *const values[] = {"a\nb", "a\rb", "a\0b"};
    struct idem_field field = {"Idempotency-Key", "a.b"};
    struct idem_request post = {
        .method = "POST", .target = "/orders", .fields = &field, .fields_n = 1};

    for (size_t i = 0; i < 2; i++) {
        struct idem_signer *signer = signer_of(
            KEYS, (struct idem_sign_rules){.form = forms[i], .headers = "Idempotency-Key"});

        for (size_t k = 0; k < 3; k++) {
            unsigned char sha256[IDEM_HASH_LEN];
            struct idem_http_header *headers;
            struct idem_sign_request request;
            struct idem_sign_checked checked;
            struct sent sent;

            send_as(&sent, signer, "shop-1", &post);
            CHECK_INT(idem_request_read(&sent.request, 0, sha256, &headers, &request, NULL), 0);
            headers[0].value = (struct idem_http_text){values[k], 3};
            CHECK_INT(idem_sign_check(signer, &request, now_ms(), &checked, NULL), 0);
            CHECK_INT(checked.proof, IDEM_PROOF_INCOMPLETE);
            idem_sign_checked_release(&checked);
            free(headers);
            idem_signature_release(&sent.signature);
        }
        idem_signer_free(signer);
    }
}

TEST(what_is_signed_has_an_end) {
    size_t len = IDEM_SIGN_TEXT_MAX;
    char *target = malloc(len + 1);
    struct idem_request get = {.method = "GET", .target = target};
    struct idem_sign_with with = {.key_id = "shop-1"};

    memset(target, 'a', len);
    target[0] = '/';
    target[len] = '\0';
    for (size_t i = 0; i < 2; i++) {
        struct idem_signer *signer = signer_of(KEYS, (struct idem_sign_rules){.form = forms[i]});
        struct idem_signature none;
        struct idem_error err;

        CHECK_INT(idem_sign_request(signer, &with, &get, &none, &err), IDEM_E_INVALID);
        CHECK_HAS(err.text, "too long");
        idem_signer_free(signer);
    }
    free(target);
}

/* A host program's parsing of a request line is not trusted. */
TEST(no_request_line_that_is_signed_can_hold_a_line_s_end) {
    struct idem_request get = {.method = "GET", .target = "/a?b"};

    for (size_t i = 0; i < 2; i++) {
        struct idem_signer *signer = signer_of(KEYS, (struct idem_sign_rules){.form = forms[i]});

        for (int k = 0; k < 3; k++) {
            unsigned char sha256[IDEM_HASH_LEN];
            struct idem_http_header *headers;
            struct idem_sign_request request;
            struct idem_sign_checked checked;
            struct sent sent;

            send_as(&sent, signer, "shop-1", &get);
            CHECK_INT(idem_request_read(&sent.request, 0, sha256, &headers, &request, NULL), 0);
            *(k == 0   ? &request.method
              : k == 1 ? &request.path
                       : &request.query) = (struct idem_http_text){"a\nb", 3};
            CHECK_INT(idem_sign_check(signer, &request, now_ms(), &checked, NULL), 0);
            CHECK_INT(checked.proof, IDEM_PROOF_INCOMPLETE);
            idem_sign_checked_release(&checked);
            free(headers);
            idem_signature_release(&sent.signature);
        }
        idem_signer_free(signer);
    }
}

TEST(a_signature_covers_up_to_64_components) {
    struct idem_request get = {.method = "GET", .authority = "shop.test", .target = "/orders"};
    struct idem_signer *signer = signer_of(KEYS, (struct idem_sign_rules){0});

    for (int n = 64; n <= 65; n++) {
        static struct idem_field fields[65];
        static char names[64][8];
        char input[1024], signature[] = "sig=:AAAA:";
        int len = snprintf(input, sizeof(input), "sig=(\"@method\" \"@path\"");

        for (int i = 2; i < n; i++) {
            snprintf(names[i - 2], sizeof(names[0]), "x%d", i);
            fields[i] = (struct idem_field){names[i - 2], "v"};
            len += snprintf(input + len, sizeof(input) - (size_t)len, " \"x%d\"", i);
        }
        snprintf(input + len, sizeof(input) - (size_t)len,
                 ");created=1;keyid=\"shop-1\";nonce=\"n\"");
        fields[0] = (struct idem_field){"Signature-Input", input};
        fields[1] = (struct idem_field){"Signature", signature};
        get.fields = fields;
        get.fields_n = (size_t)n;
        CHECK_INT(proof_of(NULL, signer, &get), n == 64 ? IDEM_PROOF_STALE : IDEM_PROOF_INCOMPLETE);
    }
    idem_signer_free(signer);
}

/* nginx would take errors left in the queue for those of its own connection. */
TEST(openssl_s_queue_of_errors_is_left_as_it_was) {
    static const char *const ids[] = {"shop-1", "test-key-ed25519", "nobody"};
    struct idem_signer *signer = signer_of(KEYS, (struct idem_sign_rules){0});
    unsigned char wrong[IDEM_SIGNATURE_MAX] = {0xff};

    memset(wrong, 0xff, sizeof(wrong));
    for (int full = 0; full < 2; full++)
        for (size_t i = 0; i < 3; i++) {
            unsigned long before;

            ERR_clear_error();
            if (full)
                ERR_raise(ERR_LIB_USER, 7);
            before = ERR_peek_last_error();
            CHECK(!idem_keyring_verify(signer->keyring,
                                       (struct idem_http_text){ids[i], strlen(ids[i])}, 0,
                                       (struct idem_http_text){"text", 4}, wrong, sizeof(wrong)));
            CHECK(ERR_peek_last_error() == before);
        }
    ERR_clear_error();
    idem_signer_free(signer);
}

TEST_MAIN
