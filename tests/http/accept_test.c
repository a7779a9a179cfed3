/* The types and codings that a client accepts: Accept and Accept-Encoding. */
#include "http/http_field.h"

#include "heap_text.h"

static bool html(const char *one, const char *two) {
    struct idem_http_accept accept;
    struct idem_http_text a, b;
    bool yes;

    idem_http_accept_init(&accept);
    if (one != NULL) {
        a = text_n(one, strlen(one));
        idem_http_accept_add(&accept, a);
        text_free(a);
    }
    if (two != NULL) {
        b = text_n(two, strlen(two));
        idem_http_accept_add(&accept, b);
        text_free(b);
    }
    yes = idem_http_accept_html(&accept);
    return yes;
}

TEST(browsers_get_html) {
    CHECK(html("text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,"
               "*/*;q=0.8",
               NULL));
    CHECK(html("text/html", NULL));
    CHECK(html("TEXT/HTML", NULL));
    CHECK(html("text/html;charset=utf-8", NULL));
    CHECK(html("text/html; charset=\"a, b;\\\"c\"", NULL));
    CHECK(html("text/html;q=0.001", NULL));
    CHECK(html("text/html, application/json;q=0.999", NULL));
    CHECK(html("text/html ; q=0.5 , application/* ; Q=0.4", NULL));
    CHECK(html("application/json;q=0.1", "text/html;q=0.2"));
    CHECK(html(",, text/html ,", NULL));
    CHECK(html("text/html;q=1.000;ext=1;other", NULL));
    CHECK(html("text/html;", NULL));
}

TEST(everybody_else_gets_json) {
    CHECK(!html(NULL, NULL));
    CHECK(!html("", NULL));
    CHECK(!html("*/*", NULL));
    CHECK(!html("text/*", NULL));
    CHECK(!html("application/json", NULL));
    CHECK(!html("image/png", NULL));
    CHECK(!html("text/html;q=0", NULL));
    CHECK(!html("text/html;q=0, */*", NULL));
    CHECK(!html("text/html2", NULL));
}

TEST(equal_preference_is_json) {
    CHECK(!html("text/html, application/json", NULL));
    CHECK(!html("text/html, */*", NULL));
    CHECK(!html("text/html, application/*", NULL));
    CHECK(!html("text/html;q=0.5, application/problem+json;q=0.50", NULL));
    CHECK(!html("text/html", "*/*"));
    CHECK(!html("application/problem+json, text/html, application/json;q=0.1", NULL));
}

TEST(the_nearest_range_counts) {
    CHECK(html("text/html;q=0.5, application/json;q=0.1, application/problem+json;q=0, */*", NULL));
    CHECK(!html("text/html;q=0.5, application/json;q=0.1, */*", NULL));
    CHECK(html("text/html;q=0.5, application/*;q=0.4, */*", NULL));
    CHECK(!html("text/html;q=0.5, application/*, */*;q=0.1", NULL));
    CHECK(!html("text/html;level=1, text/html;q=0.1, */*;q=0.2", NULL));
    CHECK(html("text/html;level=1, application/json;v=2;q=0.5", NULL));
}

TEST(an_accept_that_cannot_be_read_is_json) {
    for (const char **bad = (const char *[]){"html",
                                             "text/html text/plain",
                                             "text/html;q",
                                             "text/",
                                             "/html",
                                             "text/html;q=",
                                             "text/html;q=2",
                                             "text/html;q=1.5",
                                             "text/html;q=1.001",
                                             "text/html;q=0.1234",
                                             "text/html;q=.5",
                                             "text/html;q=\"1\"",
                                             "text/html;q=-1",
                                             "text/html;q=0,5",
                                             "text/html;=1",
                                             "text/html;a=",
                                             "text/html;a=\"",
                                             "text/html;a=\"\\",
                                             "text/html;a b",
                                             "text/html;a=b c",
                                             "text/html\x01",
                                             "text/html/x",
                                             "text/html;q =1",
                                             "(text/html)",
                                             "text/html;a=\"\x01\"",
                                             "*",
                                             NULL};
         *bad != NULL; bad++) {
        CHECK(!html(*bad, NULL));
        CHECK(!html("text/html", *bad));
    }
}

static int codings(const char *value) {
    struct idem_http_codings c;
    struct idem_http_text text;
    int ret;

    idem_http_codings_init(&c);
    if (value != NULL) {
        text = text_n(value, strlen(value));
        idem_http_codings_add(&c, text);
        text_free(text);
    }
    ret = (idem_http_codings_gzip(&c) ? 1 : 0) | (idem_http_codings_identity(&c) ? 2 : 0);
    return ret;
}

TEST(gzip_is_sent_to_those_who_say_so) {
    CHECK_INT(codings("gzip"), 3);
    CHECK_INT(codings("gzip, deflate, br, zstd"), 3);
    CHECK_INT(codings("GZIP;q=0.001"), 3);
    CHECK_INT(codings("x-gzip"), 3);
    CHECK_INT(codings("*"), 3);
    CHECK_INT(codings("br, *;q=0.1"), 3);
    CHECK_INT(codings("gzip, identity;q=0"), 1);
    CHECK_INT(codings("gzip, *;q=0"), 1);
}

TEST(gzip_is_not_sent_to_the_others) {
    CHECK_INT(codings(NULL), 2);
    CHECK_INT(codings(""), 2);
    CHECK_INT(codings("identity"), 2);
    CHECK_INT(codings("br"), 2);
    CHECK_INT(codings("gzip;q=0"), 2);
    CHECK_INT(codings("gzip;q=0.000, *"), 2);
    CHECK_INT(codings("*;q=0"), 0);
    CHECK_INT(codings("identity;q=0"), 0);
    CHECK_INT(codings("*;q=0, identity"), 2);
    CHECK_INT(codings("gzip;q=0, identity;q=0"), 0);
    CHECK_INT(codings("gzip;q=2"), 2);
    CHECK_INT(codings("gzip identity"), 2);
    CHECK_INT(codings("gzip, \""), 2);
    CHECK_INT(codings("*;q=0, \""), 2);
}

TEST(lists_of_names_are_searched_whole) {
    struct idem_http_text list = IDEM_HTTP_TEXT("close, X-Foo ,,keep-alive");

    CHECK(idem_http_list_has(list, IDEM_HTTP_TEXT("Close")));
    CHECK(idem_http_list_has(list, IDEM_HTTP_TEXT("x-foo")));
    CHECK(idem_http_list_has(list, IDEM_HTTP_TEXT("Keep-Alive")));
    CHECK(!idem_http_list_has(list, IDEM_HTTP_TEXT("foo")));
    CHECK(!idem_http_list_has(list, IDEM_HTTP_TEXT("x-foo-bar")));
    CHECK(!idem_http_list_has((struct idem_http_text){NULL, 0}, IDEM_HTTP_TEXT("x")));
}

TEST_MAIN
