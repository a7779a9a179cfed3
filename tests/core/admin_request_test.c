/*
 * An operator's request, as far as it needs no server: parsing, tokens,
 * origins, and its line in the audit.
 */
#include "core/admin_request.h"

#include "protocol/record_key.h"
#include "test.h"

#define HASH "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

static int read_one(const char *text, struct idem_admin_request *ret, struct idem_error *err) {
    static struct idem_arena arena; /* until the next call, because the request points into it */

    idem_arena_free(&arena);
    idem_arena_init(&arena, 1 << 16);
    return idem_admin_request_read(text, strlen(text), &arena, ret, err);
}

TEST(a_request_is_read_in_whatever_order) {
    static const char *const texts[] = {
        "{\"action\":\"settle\",\"store\":\"s\",\"prefix\":\"pay:\",\"hash\":\"" HASH
        "\",\"to\":\"done\",\"status\":201,\"reason\":\"seen\",\"attempt\":3,\"force\":true}",
        "{\"force\":true,\"attempt\":3,\"reason\":\"seen\",\"status\":201,\"to\":\"done\","
        "\"hash\":\"" HASH "\",\"prefix\":\"pay:\",\"store\":\"s\",\"action\":\"settle\"}",
    };

    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        struct idem_admin_request request;
        struct idem_error err;
        struct idem_op op;
        char hash[IDEM_HEX_LEN + 1];

        CHECK_INT(read_one(texts[i], &request, &err), 0);
        idem_admin_request_op(&request, &op);
        CHECK_INT(op.kind, IDEM_OP_SETTLE);
        CHECK_INT(op.key.prefix_len, 4);
        CHECK(memcmp(op.key.at, "pay:", 4) == 0);
        idem_record_key_hex(&op.key, hash);
        CHECK_STR(hash, HASH);
        CHECK_INT(op.in.settle.to, IDEM_DONE);
        CHECK_INT(op.in.settle.status, 201);
        CHECK_INT(op.in.settle.attempt, 3);
        CHECK(op.in.settle.force && op.in.settle.ttl_ms > 0);
        CHECK_INT(op.in.settle.reason.len, 4);
    }
}

TEST(a_request_that_is_not_understood_says_why) {
    static const struct {
        const char *text, *why;
    } rows[] = {
        {"[]", "one JSON object"},
        {"{}", "\"action\" is missing"},
        {"{\"action\":\"forget\",\"store\":\"s\",\"prefix\":\"p\",\"hash\":\"" HASH
         "\",\"reason\":\"x\"}",
         "\"reason\" means nothing to forget"},
        {"{\"action\":\"forget\",\"Force\":true}", "not known"},
        {"{\"status\":1e2}", "from 0 to 999"},
        {"{\"attempt\":99999999999}", "the attempt"},
        {"{\"hash\":\"xyz\"}", "64 hexadecimal digits"},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct idem_admin_request request;
        struct idem_error err;

        CHECK_INT(read_one(rows[i].text, &request, &err), IDEM_E_INVALID);
        CHECK_HAS(err.text, rows[i].why);
    }
}

#define AT(text) IDEM_HTTP_TEXT(text)

TEST(a_token_is_good_for_its_caller_and_for_a_while) {
    static const unsigned char secret[IDEM_ADMIN_SECRET] = {1}, other[IDEM_ADMIN_SECRET] = {2};
    struct idem_admin_caller ann = {AT("ann"), AT("10.0.0.1")}, bob = {AT("bob"), AT("10.0.0.1")},
                             far = {AT("ann"), AT("10.0.0.2")}, split = {AT("ann1"), AT("0.0.0.1")};
    int64_t now = 1800000000;
    char made[IDEM_ADMIN_TOKEN + 1];
    struct idem_http_text token = {made, IDEM_ADMIN_TOKEN};

    CHECK_INT(idem_admin_token_make(secret, &ann, now, made), 0);
    CHECK(idem_admin_token_good(secret, &ann, now, token));
    CHECK(idem_admin_token_good(secret, &ann, now + 3600, token));
    CHECK(!idem_admin_token_good(secret, &ann, now + 7200, token));
    CHECK(!idem_admin_token_good(secret, &ann, now - 3600, token));
    CHECK(!idem_admin_token_good(secret, &bob, now, token));
    CHECK(!idem_admin_token_good(secret, &far, now, token));
    CHECK(!idem_admin_token_good(secret, &split, now, token));
    CHECK(!idem_admin_token_good(other, &ann, now, token));
    token.len--;
    CHECK(!idem_admin_token_good(secret, &ann, now, token));
}

TEST(an_origin_is_that_of_the_host_or_it_is_not) {
    CHECK(idem_admin_same_origin(AT("https://ops.example"), AT("ops.example")));
    CHECK(idem_admin_same_origin(AT("http://Ops.example:8080"), AT("ops.example:8080")));
    CHECK(!idem_admin_same_origin(AT("http://ops.example:8080"), AT("ops.example")));
    CHECK(!idem_admin_same_origin(AT("https://ops.example.evil"), AT("ops.example")));
    CHECK(!idem_admin_same_origin(AT("https://evil/ops.example"), AT("ops.example")));
    CHECK(!idem_admin_same_origin(AT("null"), AT("ops.example")));
    CHECK(!idem_admin_same_origin(AT(""), AT("")));
    CHECK(!idem_admin_same_origin(AT("http://"), AT("")));
}

TEST(what_others_chose_cannot_break_out_of_the_line) {
    struct idem_admin_caller caller = {AT("a\n\"b\\"), AT("10.0.0.1")};
    struct idem_admin_request request;
    struct idem_admin_found before = {0}, after = {.rc = IDEM_E_ABSENT};
    struct idem_admin_audit audit = {1125, &caller, &request, 0, &before, &after, false};
    char line[IDEM_ADMIN_LINE];
    struct idem_error err;

    CHECK_INT(
        read_one("{\"action\":\"forget\",\"store\":\"s\",\"prefix\":\"p\\u0001\",\"hash\":\"" HASH
                 "\"}",
                 &request, &err),
        0);
    before.entry.state = IDEM_DONE;
    before.entry.attempt = 2;
    memset(before.entry.label, 0xff, IDEM_LABEL_MAX);
    idem_admin_line(&audit, line);
    CHECK_HAS(
        line,
        "{\"time\":\"1970-01-01T00:00:01.125Z\",\"who\":\"a\\n\\\"b\\\\\",\"address\":\"10.0.0.1\","
        "\"action\":\"forget\",\"result\":\"done\",\"record\":\"" HASH
        "\",\"prefix\":\"p\\u0001\",\"store\":\"s\",\"before\":\"done\",\"attempt\":2,\"after\":"
        "\"absent\","
        "\"label\":\"\\ufffd\\ufffd");
    CHECK_HAS(line, "\\ufffd...\"}");
    CHECK(strchr(line, '\n') == NULL);
}

TEST(what_is_begun_tells_what_it_is_to_become) {
    struct idem_admin_caller caller = {AT("ann"), AT("::1")};
    struct idem_admin_request request;
    struct idem_admin_found before = {.entry = {.state = IDEM_RUNNING, .uncertain = true}};
    struct idem_admin_found after = {.rc = IDEM_ADMIN_NOT_ASKED};
    struct idem_admin_audit audit = {0, &caller, &request, 0, &before, &after, true};
    char line[IDEM_ADMIN_LINE];
    struct idem_error err;

    CHECK_INT(read_one("{\"action\":\"settle\",\"to\":\"done\",\"status\":201,\"store\":\"s\","
                       "\"prefix\":\"p\",\"hash\":\"" HASH "\"}",
                       &request, &err),
              0);
    idem_admin_line(&audit, line);
    CHECK_HAS(line, "\"action\":\"settle\",\"result\":\"begun\"");
    CHECK_HAS(line, "\"before\":\"uncertain\",\"after\":\"done\",\"status\":201");
    request.action = IDEM_ADMIN_FORGET;
    idem_admin_line(&audit, line);
    CHECK_HAS(line, "\"before\":\"uncertain\",\"after\":\"absent\"");
}

TEST(the_longest_line_is_whole) {
    char who[4096], reason[IDEM_REASON_MAX];
    struct idem_admin_caller caller = {{who, sizeof(who)}, {who, sizeof(who)}};
    struct idem_admin_request request = {.action = IDEM_ADMIN_SETTLE,
                                         .key.prefix_len = IDEM_PREFIX_MAX,
                                         .store = {who, sizeof(who)},
                                         .settle.reason = {(unsigned char *)reason, sizeof(reason)},
                                         .force = true};
    struct idem_admin_found before = {.entry = {.uncertain = true, .attempt = UINT32_MAX}},
                            after = {.entry = {.state = IDEM_FAILED, .status = INT32_MIN}};
    struct idem_admin_audit audit = {
        INT64_C(253402300799999), &caller, &request, IDEM_E_LIVE, &before, &after, false};
    char line[IDEM_ADMIN_LINE];

    memset(who, 0x7f, sizeof(who));
    memset(reason, 0x7f, sizeof(reason));
    memset(request.key.at, 0x7f, sizeof(request.key.at));
    memset(before.entry.label, 0x7f, IDEM_LABEL_MAX);
    before.entry.state = IDEM_RUNNING;
    idem_admin_line(&audit, line);
    CHECK_HAS(line, "\\u007f...\"}");
    CHECK(line[strlen(line) - 1] == '}');
    memset(who, 'w', sizeof(who)); /* it is cut without escapes, too */
    idem_admin_line(&audit, line);
    CHECK_HAS(line, "www...\",\"address\"");
}

TEST_MAIN
