/*
 * The cost of a refusal must not depend on the key id, or the response time
 * reveals which ids are in the file. The test replaces functions of libcrypto,
 * and counts the operations that cost time and the bytes that they get.
 */
#include <dlfcn.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include "rig.h"

#define ED_A "base64:JrQLj5P/89iXES9+vFgrIy29clF9CC/oPPsw3c5D0bs="
#define ED_B "hex:d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"
#define HMAC_A "text:correct horse battery staple"
#define HMAC_B "text:the one before it, until nobody uses it"
/* longer than a block of SHA-256, so that HMAC hashes it before use */
#define HMAC_LONG "text:" LONG_64 LONG_64 LONG_64 LONG_64
#define LONG_64 "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

static struct cost { size_t ed25519, ed25519_bytes, hmac, hmac_bytes, hmac_blocks; } cost;

typedef int verify_fn(EVP_MD_CTX *ctx, const unsigned char *signature, size_t len,
                      const unsigned char *text, size_t text_len);
typedef unsigned char *hmac_fn(const EVP_MD *md, const void *key, int key_len,
                               const unsigned char *text, size_t text_len, unsigned char *out,
                               unsigned *out_len);

int EVP_DigestVerify(EVP_MD_CTX *ctx, const unsigned char *signature, size_t len,
                     const unsigned char *text, size_t text_len) {
    verify_fn *next = (verify_fn *)dlsym(RTLD_NEXT, "EVP_DigestVerify");

    cost.ed25519++;
    cost.ed25519_bytes += text_len;
    return next(ctx, signature, len, text, text_len);
}

unsigned char *HMAC(const EVP_MD *md, const void *key, int key_len, const unsigned char *text,
                    size_t text_len, unsigned char *out, unsigned *out_len) {
    hmac_fn *next = (hmac_fn *)dlsym(RTLD_NEXT, "HMAC");

    cost.hmac++;
    cost.hmac_bytes += text_len;
    cost.hmac_blocks += key_len > 64;
    return next(md, key, key_len, text, text_len, out, out_len);
}

static void cost_show(const char *of, const struct cost *c) {
    fprintf(stderr, "# %s: %zu ed25519 (%zu bytes), %zu hmac (%zu bytes, %zu long secrets)\n", of,
            c->ed25519, c->ed25519_bytes, c->hmac, c->hmac_bytes, c->hmac_blocks);
}

static bool cost_same(const struct cost *a, const struct cost *b) {
    return a->ed25519 == b->ed25519 && a->ed25519_bytes == b->ed25519_bytes && a->hmac == b->hmac &&
           a->hmac_bytes == b->hmac_bytes && a->hmac_blocks == b->hmac_blocks;
}

/* Files of secrets. All ids have the same length, so that a guessed id may have it, too. */
static const struct {
    const char *name, *keys;
    size_t ed25519, hmac; /* the cost of a refusal: for each operation the highest cost of an id */
} files[] = {
    {"hmac alone", "hmac hmac-sha256 " HMAC_A "\nlong hmac-sha256 " HMAC_LONG "\n", 0, 1},
    {"ed25519 alone", "edwa ed25519 " ED_A "\nedwb ed25519 " ED_B "\n", 1, 0},
    {"both", "hmac hmac-sha256 " HMAC_A "\nedwa ed25519 " ED_A "\n", 1, 1},
    {"two of one id", "edwa ed25519 " ED_A "\nhmac hmac-sha256 " HMAC_A "\nedwa ed25519 " ED_B "\n",
     2, 1},
    {"two of one id and algorithm",
     "hmac hmac-sha256 " HMAC_A "\nedwa ed25519 " ED_A "\nhmac hmac-sha256 " HMAC_B "\n", 1, 2},
    {"both of one id", "both hmac-sha256 " HMAC_A "\nboth ed25519 " ED_A "\n", 1, 1},
};
#define FILES (sizeof(files) / sizeof(files[0]))

static const char *const ids[] = {"none", "hmac", "long", "edwa", "edwb", "both"};
#define IDS (sizeof(ids) / sizeof(ids[0]))

TEST(a_refused_signature_costs_the_same_for_every_key_id) {
    static const size_t lens[] = {0, 1, 31, 32, 63, 64};
    static const enum idem_sign_alg algs[] = {0, IDEM_SIGN_HMAC_SHA256, IDEM_SIGN_ED25519};
    static const unsigned char signature[IDEM_SIGNATURE_MAX] = {1};
    struct idem_http_text text = IDEM_HTTP_TEXT("what was signed");

    for (size_t f = 0; f < FILES; f++) {
        struct idem_keyring *keyring = NULL;

        CHECK_INT(idem_keyring_parse("keys", files[f].keys, strlen(files[f].keys), &keyring, NULL),
                  0);
        for (size_t l = 0; l < sizeof(lens) / sizeof(lens[0]); l++)
            for (size_t a = 0; a < sizeof(algs) / sizeof(algs[0]); a++)
                for (size_t i = 0; i < IDS; i++) {
                    struct cost expected = {.ed25519 = files[f].ed25519,
                                            .ed25519_bytes = files[f].ed25519 * text.len,
                                            .hmac = files[f].hmac,
                                            .hmac_bytes = files[f].hmac * text.len};

                    cost = (struct cost){0};
                    CHECK(!idem_keyring_verify(keyring, (struct idem_http_text){ids[i], 4}, algs[a],
                                               text, signature, lens[l]));
                    if (!cost_same(&cost, &expected)) {
                        fprintf(stderr, "# file: %s, %zu bytes, algorithm %d\n", files[f].name,
                                lens[l], (int)algs[a]);
                        cost_show("expected", &expected);
                        cost_show(ids[i], &cost);
                    }
                    CHECK(cost_same(&cost, &expected));
                }
        idem_keyring_free(keyring);
    }
}

TEST(a_signature_that_is_good_costs_no_more_than_its_own_keys) {
    static const char keys[] =
        "hmac hmac-sha256 " HMAC_A "\n"
        "edwa ed25519-secret base64:n4Ni+HpISpVObnQMW0wOhCKROaIKqKtW/2ZYb2p9KcU=\n";
    struct idem_http_text text = IDEM_HTTP_TEXT("what was signed");
    unsigned char signature[IDEM_SIGNATURE_MAX];
    struct idem_keyring *keyring = NULL;
    size_t len;

    CHECK_INT(idem_keyring_parse("keys", keys, strlen(keys), &keyring, NULL), 0);
    for (size_t i = 0; i < 2; i++) {
        struct idem_http_text id = {i == 0 ? "hmac" : "edwa", 4};

        CHECK_INT(idem_keyring_sign(keyring, id, text, signature, &len, NULL), 0);
        cost = (struct cost){0};
        CHECK(idem_keyring_verify(keyring, id, 0, text, signature, len));
        CHECK_INT(cost.hmac, i == 0);
        CHECK_INT(cost.ed25519, i == 1);
    }
    idem_keyring_free(keyring);
}

TEST(a_secret_of_any_length_makes_the_signature_that_its_bytes_make) {
    struct idem_http_text text = IDEM_HTTP_TEXT("what was signed"), id = IDEM_HTTP_TEXT("long");
    char secret[1024], keys[1100];

    memset(secret, 'x', sizeof(secret));
    for (size_t n = 16; n <= sizeof(secret); n = n < 70 ? n + 1 : 2 * n > 1024 ? n + 512 : 2 * n) {
        unsigned char made[IDEM_SIGNATURE_MAX], right[EVP_MAX_MD_SIZE];
        struct idem_keyring *keyring = NULL;
        hmac_fn *real = (hmac_fn *)dlsym(RTLD_NEXT, "HMAC");
        size_t len;

        snprintf(keys, sizeof(keys), "long hmac-sha256 text:%.*s\n", (int)n, secret);
        CHECK_INT(idem_keyring_parse("keys", keys, strlen(keys), &keyring, NULL), 0);
        CHECK_INT(idem_keyring_sign(keyring, id, text, made, &len, NULL), 0);
        CHECK(real(EVP_sha256(), secret, (int)n, (const unsigned char *)text.at, text.len, right,
                   NULL) != NULL);
        CHECK_INT(len, 32);
        CHECK(memcmp(made, right, len) == 0);
        CHECK(idem_keyring_verify(keyring, id, 0, text, right, len));
        idem_keyring_free(keyring);
    }
}

/* Requests that bear two signatures. The one with a known key counts, and the content of the
 * other must not make the response faster. */
struct half {
    const char *parameters, *components;
};

static enum idem_proof two_asked(const struct idem_signer *signer, const struct half *first,
                                 const struct half *second, const char *second_id,
                                 struct cost *ret) {
    char inputs[1024];
    struct idem_field fields[2] = {{"Signature-Input", inputs},
                                   {"Signature",
                                    "a=:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=:, "
                                    "b=:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=:"}};
    struct idem_request get = {
        .method = "GET", .target = "/", .authority = "shop.test", .fields = fields, .fields_n = 2};
    struct idem_verified verified;

    snprintf(inputs, sizeof(inputs), "a=(%s)%s;keyid=\"none\", b=(%s)%s;keyid=\"%s\"",
             first->components, first->parameters, second->components, second->parameters,
             second_id);
    cost = (struct cost){0};
    CHECK_INT(idem_verify_request(NULL, signer, &get, &verified, NULL), 0);
    *ret = cost;
    idem_verified_release(&verified);
    return verified.proof;
}

TEST(of_two_signatures_neither_shows_by_its_cost_whose_key_is_known) {
    char whole[64], more[96], stale[] = ";created=1;nonce=\"n\"";
    struct half halves[] = {{whole, "\"@method\" \"@path\""},
                            {more, "\"@method\" \"@path\" \"@authority\" \"@target-uri\""},
                            {stale, "\"@method\" \"@path\""},
                            {"", "\"@method\" \"@path\""},
                            {whole, "\"@method\""}};

    snprintf(whole, sizeof(whole), ";created=%lld;nonce=\"n\"", (long long)(now_ms() / 1000));
    snprintf(more, sizeof(more), "%s;tag=\"much more\"", whole);
    for (size_t f = 0; f < FILES; f++) {
        struct idem_signer *signer = signer_of(files[f].keys, (struct idem_sign_rules){0});

        for (size_t i = 0; i < 25; i++) {
            struct cost unknown, known;

            CHECK(two_asked(signer, &halves[i / 5], &halves[i % 5], "none", &unknown) !=
                  IDEM_PROOF_GOOD);
            for (size_t k = 1; k < IDS; k++) {
                CHECK(two_asked(signer, &halves[i / 5], &halves[i % 5], ids[k], &known) !=
                      IDEM_PROOF_GOOD);
                if (!cost_same(&known, &unknown)) {
                    fprintf(stderr, "# file: %s, halves %zu and %zu\n", files[f].name, i / 5,
                            i % 5);
                    cost_show("none", &unknown);
                    cost_show(ids[k], &known);
                }
                CHECK(cost_same(&known, &unknown));
            }
        }
        idem_signer_free(signer);
    }
}

/* The detail is about the signature with a known key, in any place. */
TEST(of_several_signatures_the_one_of_a_known_key_is_explained) {
    static const char *const places[] = {"a", "b", "c"};
    struct idem_signer *signer = signer_of(KEYS, (struct idem_sign_rules){0});

    for (size_t known = 0; known < 4; known++) {
        char inputs[1024] = "";
        struct idem_field fields[2] = {{"Signature-Input", inputs},
                                       {"Signature", "a=:AAAA:, b=:AAAA:, c=:AAAA:"}};
        struct idem_request get = {.method = "GET",
                                   .target = "/",
                                   .authority = "shop.test",
                                   .fields = fields,
                                   .fields_n = 2};
        struct idem_verified verified;

        for (size_t i = 0; i < 3; i++)
            snprintf(inputs + strlen(inputs), sizeof(inputs) - strlen(inputs),
                     "%s%s=(\"@method\");keyid=\"%s\"%s", i > 0 ? ", " : "", places[i],
                     i == known ? "shop-1" : "none", i == known ? ";created=1" : "");
        CHECK_INT(idem_verify_request(NULL, signer, &get, &verified, NULL), 0);
        CHECK_INT(verified.proof, IDEM_PROOF_INCOMPLETE);
        CHECK_STR(verified.key_id, known < 3 ? "shop-1" : "none");
        CHECK_STR(verified.detail, "The signature's parameter nonce is missing.");
        idem_verified_release(&verified);
        if (known < 3) {
            snprintf(inputs + strlen(inputs), sizeof(inputs) - strlen(inputs),
                     ", d=(\"@method\");keyid=\"public-only\"");
            CHECK_INT(idem_verify_request(NULL, signer, &get, &verified, NULL), 0);
            CHECK_STR(verified.detail,
                      "Signature-Input has more than one signature of known keys.");
            idem_verified_release(&verified);
        }
    }
    idem_signer_free(signer);
}

TEST_MAIN
