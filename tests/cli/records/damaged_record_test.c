/* Records that cannot be read, in operators' commands. */
#include "cli/harness.h"

#include "protocol/record_key.h"
#include "store/lmdb/raw.h"

/* The name in the store of a key of idem run. */
static struct idem_record_key key_of(const char *key) {
    struct idem_bytes prefix = {(const unsigned char *)"run:", 4};
    struct idem_bytes name = {(const unsigned char *)key, strlen(key)};
    struct idem_record_key made;

    CHECK(idem_record_key_make(&made, IDEM_NAME_RECORD, prefix, (struct idem_bytes){0}, name) == 0);
    return made;
}

static void damage(const char *key) {
    struct idem_record_key name = key_of(key);
    unsigned char *value;
    struct raw raw;
    size_t len = 0;

    raw_begin(&raw, in_folder("store"), true);
    value = raw_get(&raw, "records", name.at, idem_record_key_len(&name), &len);
    CHECK(value != NULL);
    value[len - 1] ^= 1;
    raw_put(&raw, "records", name.at, idem_record_key_len(&name), value, len);
    raw_end(&raw);
    free(value);
}

/* The first digits of its hash, as in a table. */
static char *hash_of(const char *key) {
    struct idem_record_key name = key_of(key);
    char hex[65];

    idem_record_key_hex(&name, hex);
    return script("%.12s", hex);
}

TEST(a_damaged_record_is_listed_as_damaged_and_removed_by_force) {
    char *hash, *row;

    RUN_SH("a", ":");
    RUN_SH("b", ":");
    damage("a");
    hash = hash_of("a");
    row = strstr(RUN("list").out, hash);
    CHECK(row != NULL);
    CHECK(starts_with(row, script("%s  damaged          -       -  -  ", hash)));
    CHECK_HAS(RUN("list", "--json").out, "\"state\":\"damaged\",");
    CHECK_HAS(RUN("list", "--json").out, "\"state\":\"done\",");
    CHECK_HAS(RUN("list", "--state", "damaged").out, hash);
    CHECK(strstr(RUN("list", "--state", "damaged").out, hash_of("b")) == NULL);
    CHECK(strstr(RUN("list", "--state", "done").out, hash) == NULL);
    CHECK_INT(RUN("show", "a").status, 69);
    CHECK_INT(RUN_SH("a", ":").status, 69);
    CHECK_INT(RUN("forget", "--force", "--hash", hash).status, 0);
    CHECK(starts_with(RUN_SH("a", ":").verdict, "run attempt=1 "));
}

TEST(a_damaged_record_that_is_removed_by_its_key_has_its_lines_in_the_audit) {
    char *audit, *lines;

    RUN_SH("a", ":");
    damage("a");
    CHECK_INT(RUN("forget", "--force", "a").status, 0);
    audit = file_text("audit");
    lines = strstr(audit, script("\"result\":\"begun\",\"record\":\"%s", hash_of("a")));
    CHECK(lines != NULL);
    CHECK_HAS(lines, script("\"result\":\"done\",\"record\":\"%s", hash_of("a")));
    CHECK_HAS(lines, "\"before\":\"damaged\",\"after\":\"absent\",\"force\":true");
}

TEST(a_record_of_a_newer_version_is_not_called_damaged) {
    struct idem_record_key name = key_of("a");

    RUN_SH("a", ":");
    raw_record_newer(in_folder("store"), &name);
    CHECK_HAS(RUN("list").out, script("%s  newer     ", hash_of("a")));
    CHECK_HAS(RUN("list", "--state", "newer", "--json").out, "\"state\":\"newer\",");
    CHECK_STR(RUN("list", "--state", "damaged").out, "");
}

TEST_MAIN
