/*
 * The lines of the audit: what is left out, how a text is cut, and what the store's word means.
 */
#include <stdlib.h>

#include "core/audit.h"
#include "idem.h"
#include "test.h"

static char text[4096];

static const char *written(const struct idem_audit *audit, size_t max) {
    FILE *out = fmemopen(text, sizeof(text), "w");

    idem_audit_write(audit, max, out);
    fclose(out);
    return text;
}

TEST(members_have_one_order_and_those_that_are_not_known_are_left_out) {
    struct idem_audit all = {
        .time_ms = INT64_C(1763236800125),
        .who = "root",
        .login = "ann",
        .address = "::1",
        .action = "settle",
        .result = "done",
        .record = "74e3",
        .prefix = "pay:",
        .store = "lmdb:/s",
        .broker = "amqp://b",
        .queue = "q",
        .before = "uncertain",
        .attempt = 3,
        .after = "done",
        .status = 201,
        .force = true,
        .label = "l\n\"",
        .reason = "r",
        .refused = "f",
    };
    struct idem_audit least = {.who = "", .action = "forget", .result = "failed", .label = ""};

    CHECK_STR(written(&all, 100),
              "{\"time\":\"2025-11-15T20:00:00.125Z\",\"who\":\"root\",\"login\":\"ann\","
              "\"address\":\"::1\",\"action\":\"settle\",\"result\":\"done\",\"record\":\"74e3\","
              "\"prefix\":\"pay:\",\"store\":\"lmdb:/s\",\"broker\":\"amqp://b\",\"queue\":\"q\","
              "\"before\":\"uncertain\",\"attempt\":3,\"after\":\"done\",\"status\":201,"
              "\"force\":true,\"label\":\"l\\n\\\"\",\"reason\":\"r\",\"refused\":\"f\"}\n");
    CHECK_STR(written(&least, 100), "{\"time\":\"1970-01-01T00:00:00Z\",\"who\":\"\","
                                    "\"action\":\"forget\",\"result\":\"failed\"}\n");
}

TEST(a_long_text_is_cut_between_characters) {
    struct idem_audit audit = {.who = "abcd", .label = "ab\xc3\xa9z", .reason = "abc\x01z"};

    CHECK_HAS(written(&audit, 4),
              "\"who\":\"abcd\",\"label\":\"ab\xc3\xa9...\",\"reason\":\"abc...\"}");
    CHECK_HAS(written(&audit, 3), "\"who\":\"abc...\",\"label\":\"ab...\",\"reason\":\"abc...\"}");
}

TEST(the_stores_word_is_one_of_four) {
    CHECK_STR(idem_audit_result(0), "done");
    CHECK_STR(idem_audit_result(IDEM_E_ABSENT), "refused");
    CHECK_STR(idem_audit_result(IDEM_E_LIVE), "refused");
    CHECK_STR(idem_audit_result(IDEM_E_SETTLED), "refused");
    CHECK_STR(idem_audit_result(IDEM_E_UNKNOWN), "unknown");
    CHECK_STR(idem_audit_result(IDEM_E_REFUSED), "failed");
    CHECK_STR(idem_audit_result(IDEM_E_CORRUPT), "failed");
}

TEST_MAIN
