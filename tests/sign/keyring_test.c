/* The file of secrets: its syntax, its permissions, and its error messages. */
#include "rig.h"

#define SECRET "correct horse battery staple"

static int load(const char *text, struct idem_error *err) {
    struct idem_sign_rules rules = {.secret_file = keys_file(text)};
    struct idem_signer *signer = NULL;
    int rc = idem_signer_new(&rules, &signer, err);

    idem_signer_free(signer);
    return rc;
}

TEST(what_is_written_three_ways_is_one_secret) {
    static const char keys[] =
        "\r\n# a comment\n\n"
        "a hmac-sha256 text:" SECRET "\r\n"
        " b\thmac-sha256   base64:Y29ycmVjdCBob3JzZSBiYXR0ZXJ5IHN0YXBsZQ==\n"
        "c hmac-sha256 hex:636f727265637420686F727365206261747465727920737461"
        "706c65"; /* without a newline at the end */
    struct idem_request get = {.method = "GET", .target = "/"};
    struct idem_signer *signer =
        signer_of(keys, (struct idem_sign_rules){.form = IDEM_SIGN_CLASSIC});
    struct idem_sign_with with = {.nonce = "n", .time_ms = 1800000000000};
    static const char *const ids[] = {"a", "b", "c"};
    struct idem_http_text text = IDEM_HTTP_TEXT("text");
    unsigned char first[IDEM_SIGNATURE_MAX], made[IDEM_SIGNATURE_MAX];
    size_t len;

    for (size_t i = 0; i < 3; i++) {
        struct idem_signature signature;

        with.key_id = ids[i];
        CHECK_INT(idem_sign_request(signer, &with, &get, &signature, NULL), 0);
        idem_signature_release(&signature);
        CHECK_INT(idem_keyring_sign(signer->keyring, (struct idem_http_text){ids[i], 1}, text,
                                    i == 0 ? first : made, &len, NULL),
                  0);
        CHECK_INT(len, 32);
        CHECK(i == 0 || memcmp(first, made, len) == 0);
    }
    idem_signer_free(signer);
}

TEST(a_line_that_is_not_understood_is_told_and_shows_no_secret) {
    static const struct {
        const char *text, *says;
    } rows[] = {
        {"", "no key"},
        {"# only\n\n", "no key"},
        {"a\n", ":1: a key is written as three words"},
        {"a hmac-sha256\n", "three words"},
        {"\n\na sha1 text:" SECRET "\n", ":3: the second word is no algorithm"},
        {"a text:" SECRET "\n", "the second word is no algorithm"}, /* the algorithm is missing */
        {"a correct hmac-sha256\n",
         "the second word is no algorithm"}, /* the algorithm comes last */
        {"a hmac-sha256 " SECRET "\n", "text:, base64: or hex:"},
        {"a hmac-sha256 base64:correct horse\n", "not in the encoding"},
        {"a hmac-sha256 hex:0g\n", "not in the encoding"},
        {"a hmac-sha256 hex:123\n", "not in the encoding"},
        {"a hmac-sha256 text:horse\n", "at least 16"},
        {"a hmac-sha256 text:\n", "at least 16"},
        {"a ed25519 base64:AAAA\n", "32 bytes, not 3"},
        {"a ed25519-secret text:" SECRET "\n", "32 bytes"},
        {"\xc3\xa4 hmac-sha256 text:" SECRET "\n", "visible ASCII"},
    };
    char long_id[256];

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct idem_error err = {0};

        fprintf(stderr, "# %s\n", rows[i].says);
        CHECK_INT(load(rows[i].text, &err), IDEM_E_INVALID);
        CHECK_HAS(err.text, rows[i].says);
        CHECK_HAS(err.text, "/keys");
        CHECK(strstr(err.text, "horse") == NULL);
        CHECK(strstr(err.text, "correct") == NULL);
    }
    memset(long_id, 'a', 129);
    snprintf(long_id + 129, sizeof(long_id) - 129, " hmac-sha256 text:%s", SECRET);
    CHECK_INT(load(long_id, NULL), IDEM_E_INVALID);
    CHECK_INT(load(long_id + 1, NULL), 0);
}

TEST(a_file_that_others_could_read_is_refused) {
    static const struct {
        mode_t mode;
        bool root_may, may;
    } rows[] = {
        {0600, true, true},   {0400, true, true},   {0640, true, false},  {0660, false, false},
        {0644, false, false}, {0604, false, false}, {0602, false, false}, {0610, false, false},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct idem_sign_rules rules = {.secret_file = keys_file(KEYS)};
        bool may = geteuid() == 0 ? rows[i].root_may : rows[i].may;
        struct idem_signer *signer = NULL;
        struct idem_error err = {0};

        CHECK_INT(chmod(rules.secret_file, rows[i].mode), 0);
        CHECK_INT(idem_signer_new(&rules, &signer, &err), may ? 0 : IDEM_E_INVALID);
        if (!may)
            CHECK_HAS(err.text, "chmod 600");
        idem_signer_free(signer);
    }
}

TEST(what_is_no_file_of_ours_is_refused) {
    struct idem_sign_rules rules = {.secret_file = temp_folder()};
    struct idem_signer *signer;
    struct idem_error err;
    char path[512];

    CHECK_INT(idem_signer_new(&rules, &signer, &err), IDEM_E_INVALID);
    CHECK_HAS(err.text, "regular file");
    snprintf(path, sizeof(path), "%s/pipe", temp_folder());
    CHECK_INT(mkfifo(path, 0600), 0);
    rules.secret_file = path;
    CHECK_INT(idem_signer_new(&rules, &signer, &err), IDEM_E_INVALID);
    CHECK_HAS(err.text, "regular file");
    snprintf(path, sizeof(path), "%s/none", temp_folder());
    CHECK_INT(idem_signer_new(&rules, &signer, &err), IDEM_E_INVALID);
    CHECK_HAS(err.text, "No such file");
    rules.secret_file = NULL;
    CHECK_INT(idem_signer_new(&rules, &signer, &err), IDEM_E_INVALID);
    CHECK_HAS(err.text, "secret_file");
    if (geteuid() == 0) {
        rules.secret_file = keys_file(KEYS);
        CHECK_INT(chown(rules.secret_file, 12345, 0), 0);
        CHECK_INT(idem_signer_new(&rules, &signer, &err), IDEM_E_INVALID);
        CHECK_HAS(err.text, "12345");
    }
}

TEST(rules_that_cannot_be_are_told) {
    static const struct {
        struct idem_sign_rules rules;
        const char *says;
    } rows[] = {
        {{.form = 3}, "form"},
        {{.sequence = 4}, "sequence"},
        {{.window_ms = 999}, "1s to 1d"},
        {{.window_ms = -1}, "1s to 1d"},
        {{.window_ms = 86400001}, "1s to 1d"},
        {{.headers = "a b:c"}, "\"b:c\""},
        {{.headers = "@authority", .form = IDEM_SIGN_CLASSIC}, "\"@authority\""},
        {{.headers = "@status"}, "\"@status\""},
        {{.headers = "a,b,c,d,e,f,g,h,i,j,k,l,m,n,o,p,q"}, "more than 16"},
    };
    const char *path = keys_file(KEYS);
    struct idem_signer *signer;

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct idem_sign_rules rules = rows[i].rules;
        struct idem_error err = {0};

        rules.secret_file = path;
        CHECK_INT(idem_signer_new(&rules, &signer, &err), IDEM_E_INVALID);
        CHECK_HAS(err.text, rows[i].says);
    }
    signer = signer_of(KEYS, (struct idem_sign_rules){.headers = " Date,@authority, date ,X-A"});
    CHECK_INT(signer->names_n, 3);
    idem_signer_free(signer);
}

TEST(requests_that_cannot_be_are_told) {
    static const struct idem_field bad[] = {{"a b", "x"}, {"a", NULL}, {NULL, "x"}, {"a", "x\ny"}};
    static const struct idem_request rows[] = {
        {.target = "/"},
        {.method = "GET"},
        {.method = "G T", .target = "/"},
        {.method = "GET", .target = "x"},
        {.method = "GET", .target = ""},
        {.method = "GET", .target = "/a b"},
        {.method = "GET", .target = "/a\nb"},
        {.method = "GET", .target = "/", .body_len = 1},
        {.method = "GET", .target = "/", .fields_n = 1},
        {.method = "GET", .target = "/", .fields = &bad[0], .fields_n = 1},
        {.method = "GET", .target = "/", .fields = &bad[1], .fields_n = 1},
        {.method = "GET", .target = "/", .fields = &bad[2], .fields_n = 1},
        {.method = "GET", .target = "/", .fields = &bad[3], .fields_n = 1},
    };
    struct idem_signer *signer = signer_of(KEYS, (struct idem_sign_rules){0});
    struct idem_sign_with with = {.key_id = "shop-1"};

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct idem_signature signature;
        struct idem_verified verified;
        struct idem_error err = {0};

        fprintf(stderr, "# %zu\n", i);
        CHECK_INT(idem_sign_request(signer, &with, &rows[i], &signature, &err), IDEM_E_INVALID);
        CHECK(err.text[0] != '\0');
        CHECK_INT(idem_verify_request(NULL, signer, &rows[i], &verified, &err), IDEM_E_INVALID);
    }
    idem_signer_free(signer);
}

TEST_MAIN
