/*
 * The host of a request: read from its field, and compared with a server's names.
 */
#include "http/http_host.h"

#include "test.h"

#define AT(literal) IDEM_HTTP_TEXT(literal)

TEST(a_host_is_one_of_the_servers_names_or_no_name_at_all) {
    CHECK(idem_http_host_is_plain(AT("127.0.0.1")));
    CHECK(idem_http_host_is_plain(AT("[::1]")));
    CHECK(idem_http_host_is_plain(AT("localhost")));
    CHECK(idem_http_host_is_plain(AT("shop.localhost")));
    CHECK(!idem_http_host_is_plain(AT("evillocalhost")));
    CHECK(!idem_http_host_is_plain(AT("127.0.0.1.evil.example")));
    CHECK(!idem_http_host_is_plain(AT("[evil.example]")));
    CHECK(!idem_http_host_is_plain(AT("")));
    CHECK(idem_http_host_matches(AT("ops.example"), AT("ops.example")));
    CHECK(!idem_http_host_matches(AT("ops.example.evil"), AT("ops.example")));
    CHECK(!idem_http_host_matches(AT("evil"), AT("_")));
    CHECK(!idem_http_host_matches(AT(""), AT("")));
    CHECK(idem_http_host_matches(AT("ops.example"), AT(".ops.example")));
    CHECK(idem_http_host_matches(AT("a.ops.example"), AT(".ops.example")));
    CHECK(!idem_http_host_matches(AT("evilops.example"), AT(".ops.example")));
    CHECK(idem_http_host_matches(AT("a.ops.example"), AT("*.ops.example")));
    CHECK(!idem_http_host_matches(AT("ops.example"), AT("*.ops.example")));
    CHECK(idem_http_host_matches(AT("ops.example"), AT("ops.*")));
    CHECK(!idem_http_host_matches(AT("evil.example"), AT("ops.*")));
}

static void check_read(struct idem_http_text value, const char *want) {
    struct idem_http_text host = AT("untouched");

    if (want == NULL) {
        CHECK(!idem_http_host_read(value, &host));
        want = "untouched";
    } else {
        CHECK(idem_http_host_read(value, &host));
    }
    CHECK_INT(host.len, strlen(want));
    CHECK(memcmp(host.at, want, host.len) == 0);
}

TEST(a_host_is_read_without_its_port_and_a_dot_at_its_end) {
    check_read(AT("ops.example"), "ops.example");
    check_read(AT("ops.example:8080"), "ops.example");
    check_read(AT("ops.example.:8080"), "ops.example");
    check_read(AT("ops.example:"), "ops.example");
    check_read(AT("127.0.0.1:9100"), "127.0.0.1");
    check_read(AT("[::1]"), "[::1]");
    check_read(AT("[::1]:9100"), "[::1]");
    check_read(AT(""), "");
    check_read(AT("."), ".");
}

TEST(a_host_that_could_be_read_in_two_ways_is_none) {
    check_read(AT("[::1"), NULL);
    check_read(AT("[::1]evil.example"), NULL);
    check_read(AT("127.0.0.1:80.evil.example"), NULL);
    check_read(AT("::1"), NULL);
    check_read(AT("127.0.0.1 evil.example"), NULL);
    check_read(AT("127.0.0.1\0.evil.example"), NULL);
    check_read(AT("localhost/.evil.example"), NULL);
}

TEST_MAIN
