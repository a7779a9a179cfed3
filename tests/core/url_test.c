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

TEST_MAIN
