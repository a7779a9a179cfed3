/*
 * Store URLs, and the errors that opening by URL gives.
 */
#include "store/store.h"
#include "test.h"

static int parse(const char *text, struct idem_url *url, struct idem_error *err) {
    return idem_url_parse(text, url, err);
}

TEST(a_url_is_split_and_decoded) {
    struct idem_url url;

    CHECK_INT(parse("lmdb:/a%20b/c?sync=off&size=4%4d", &url, NULL), 0);
    CHECK_STR(url.scheme, "lmdb");
    CHECK_STR(url.rest, "/a b/c");
    CHECK_STR(idem_url_get(&url, "sync"), "off");
    CHECK_STR(idem_url_get(&url, "size"), "4M");
    CHECK(idem_url_get(&url, "other") == NULL);
    idem_url_release(&url);
}

TEST(a_bad_url_is_an_error_and_not_a_guess) {
    static const char *const bad[] = {
        "",         "no-scheme",   ":x",           "lmdb:%",       "lmdb:%4",
        "lmdb:%zz", "lmdb:/a%00b", "lmdb:/x?sync", "lmdb:/x?=off", "lmdb:/x?sync=off&sync=off",
    };

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct idem_url url = {0};
        struct idem_error err = {0};

        CHECK_INT(parse(bad[i], &url, &err), IDEM_E_INVALID);
        CHECK(err.text[0] != '\0');
        CHECK(url.text == NULL);
    }
}

static void open_fails(const char *text, const char *part) {
    struct idem *h = NULL;
    struct idem_error err;

    CHECK_INT(idem_open(text, NULL, &h, &err), IDEM_E_INVALID);
    CHECK(h == NULL);
    CHECK_HAS(err.text, part);
}

TEST(what_cannot_be_opened_is_named_with_what_can) {
    open_fails("nosuch:/x", "lmdb:");
    open_fails("lmdb:", "a path is needed");
    open_fails("lmdb:/x?sync=maybe", "always, off");
    open_fails("lmdb:/x?size=3", "1M to 16T");
    open_fails("lmdb:/x?colour=red", "sync");
    open_fails("lmdb:/x?accept_loss=1", "yes, no");
}

TEST(an_error_does_not_show_the_url) {
    struct idem *h;
    struct idem_error err;

    CHECK(idem_open("nosuch://user:hunter2@host/", NULL, &h, &err) < 0);
    CHECK(strstr(err.text, "hunter2") == NULL);
}

static const char *shown(const char *text) {
    static char buf[200];

    return idem_url_public(text, buf, sizeof(buf));
}

TEST(what_is_shown_of_a_url_has_no_secret) {
    CHECK_STR(shown("redis://ann:hunter2@h:1/2?timeout=1s"), "redis://h:1/2");
    CHECK_STR(shown("redis://:p@ss@h"), "redis://h");
    CHECK_STR(shown("lmdb:/var/lib/idem?sync=off"), "lmdb:/var/lib/idem");
    CHECK_STR(shown("redis://:hunter2?x@h"), "redis:");
    CHECK_STR(shown("redis://:hunter2?db=1@h"), "redis:");
    CHECK_STR(shown("redis:/s?user=a@b"), "redis:");
    CHECK_STR(shown("hunter2?x:y@h"), "");
    CHECK_STR(shown("none"), "none");
}

TEST(two_databases_of_a_server_are_shown_as_two) {
    CHECK_STR(shown("redis:/s?db=1"), "redis:/s?db=1");
    CHECK_STR(shown("redis:/s?timeout=1s&db=12&user=ann"), "redis:/s?db=12");
    CHECK_STR(shown("redis://ann:hunter2@h?db=3"), "redis://h?db=3");
    CHECK_STR(shown("mysql:/s?user=u&db=shop"), "mysql:/s?db=shop");
    CHECK_STR(shown("redis:/s?ldb=1&db2=2"), "redis:/s");
}

TEST_MAIN
