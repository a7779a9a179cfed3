/*
 * The URLs of the Redis store: their meaning, the faults that are refused, and
 * that no refusal reveals a password.
 */
#include "store/redis/redis_connection.h"
#include "temp.h"
#include "test.h"

static int read_url(const char *text, struct redis_config *config, struct idem_error *err) {
    struct idem_url url;
    int rc = idem_url_parse(text, &url, err);

    if (rc != 0)
        return rc;
    rc = redis_config_read(&url, config, err);
    idem_url_release(&url);
    return rc;
}

static struct redis_config good(const char *text) {
    struct redis_config config;
    struct idem_error err = {0};

    if (read_url(text, &config, &err) != 0) {
        fprintf(stderr, "# %s: %s\n", text, err.text);
        exit(1);
    }
    return config;
}

static void bad(const char *text, const char *why) {
    struct redis_config config;
    struct idem_error err = {0};

    fprintf(stderr, "# %s\n", text);
    CHECK_INT(read_url(text, &config, &err), IDEM_E_INVALID);
    CHECK_HAS(err.text, why);
    CHECK(strstr(err.text, "secret") == NULL);
}

static void is_user(const char *text, const char *user, const char *password) {
    struct redis_config config = good(text);

    CHECK((config.user == NULL) == (user == NULL));
    if (user != NULL)
        CHECK_STR(config.user, user);
    CHECK_STR(config.password, password);
    redis_config_release(&config);
}

TEST(a_user_and_a_password_may_hold_what_parts_a_url) {
    is_user("redis://u:p%3F%40%2F%25%3A%26%23@h", "u", "p?@/%:&#");
    is_user("redis://:p@a/b@h:1/2", NULL, "p@a/b"); /* taken literally, except for ? and % */
    is_user("redis://u:a:b@h", "u", "a:b");
    is_user("redis://a%3Ab:p@h", "a:b", "p");
    is_user("redis://a%40b%2Fc:p@h", "a@b/c", "p");
    is_user("redis://:p%3Aq@h", NULL, "p:q");
    is_user("redis+sentinel://u:p%40q@h,i/shop/1", "u", "p@q");
    is_user("redis+cluster://u:p%2Cq@h,i", "u", "p,q");
}

TEST(a_password_that_is_cut_at_its_question_mark_is_not_told) {
    bad("redis://u:a?secret@h", "name=value");
    bad("redis://u:a?secret=b@h", "%3F");
    bad("redis://u:a?secret=b&c=d@h", "%3F");
    bad("redis://u:a?x@secret=b@h", "%3F");
    bad("redis://u:6379?secret=b@h", "%3F");
    bad("redis://u:6379?unsafe=secret@h", "allowed: yes, no");
    bad("redis://u:6379?timeout=secret@h", "allowed: 1ms to 1h");
    bad("redis://u:a%secret@h", "two hex digits");
}

TEST(a_user_needs_a_password_from_somewhere) {
    unsetenv("IDEM_REDIS_PASSWORD");
    bad("redis://u@h", "a user needs a password");
    bad("redis:/s?user=u", "a user needs a password");
    setenv("IDEM_REDIS_PASSWORD", "", 1);
    bad("redis://u@h", "a user needs a password");
    setenv("IDEM_REDIS_PASSWORD", "p", 1);
    is_user("redis://u@h", "u", "p");
    is_user("redis://u:q@h", "u", "q");
    is_user("redis:/s?user=u", "u", "p");
}

TEST(a_socket_has_its_user_and_database_by_options) {
    struct redis_config config;

    setenv("IDEM_REDIS_PASSWORD", "p", 1);
    config = good("redis:/run/a%40b%3Fc?user=a%3Ab%40c&db=3");
    CHECK_STR(config.hosts[0].name, "/run/a@b?c");
    CHECK_INT(config.hosts[0].port, 0);
    CHECK_STR(config.user, "a:b@c");
    CHECK_INT(config.db, 3);
    redis_config_release(&config);
    bad("redis:/s?db=x", "a number");
    bad("redis:/s?db=", "a number");
    bad("redis:/s?user=", "empty");
}

TEST(a_user_or_database_that_is_given_twice_is_refused) {
    bad("redis://u:p@h?user=u", "user= is given twice");
    bad("redis://h/1?db=1", "the database is given twice");
    bad("redis+sentinel://h/shop/0?db=0", "the database is given twice");
    bad("redis+cluster://h?db=1", "one database only");
    bad("redis+cluster://h/1", "one database only");
}

TEST(a_socket_is_without_tls) {
    bad("rediss:/run/redis.sock", "use redis:/PATH");
    bad("rediss:/run/redis.sock?tls_name=h", "use redis:/PATH");
    bad("redis:/run/redis.sock?tls_name=h", "with TLS only");
}

TEST(a_master_may_be_called_anything) {
    struct redis_config config = good("redis+sentinel://u:p@h:1,[::1]:2/a%2Fb%40c/4");

    CHECK_STR(config.master, "a/b@c");
    CHECK_INT(config.db, 4);
    CHECK_INT(config.hosts_n, 2);
    CHECK_STR(config.hosts[1].name, "::1");
    redis_config_release(&config);
}

TEST(replicas_and_the_grace_of_sentinels_are_read) {
    struct redis_config config = good("redis+sentinel://h/shop?replicas=2&sentinel_grace=10s");

    CHECK_INT(config.replicas, 2);
    CHECK_INT(config.sentinel_grace_ms, 10000);
    redis_config_release(&config);
    config = good("redis+sentinel://h/shop");
    CHECK_INT(config.replicas, 0);
    CHECK_INT(config.sentinel_grace_ms, 3000);
    redis_config_release(&config);
    bad("redis://h?sentinel_grace=10s", "sentinels only");
    bad("redis+sentinel://h/shop?sentinel_grace=999ms", "1s or more");
    bad("redis+cluster://h?replicas=1", "not for clusters");
    bad("redis://h?replicas=many", "a number");
    bad("redis://h?replicas=-1", "a number");
}

TEST(a_name_that_no_server_takes_is_refused) {
    struct redis_config config = good("redis://h?name=shop-7");

    CHECK_STR(config.name, "shop-7");
    redis_config_release(&config);
    bad("redis://h?name=a%20b", "no space");
    bad("redis://h?name=a%0Ab", "no space");
}

TEST(a_file_with_a_password_has_one_line_and_is_named_when_it_is_not_there) {
    char file[400], url[500];
    FILE *out;

    snprintf(file, sizeof(file), "%s/password", temp_folder());
    snprintf(url, sizeof(url), "redis://h?password_file=%s", file);
    bad(url, file);
    out = fopen(file, "w");
    CHECK(out != NULL && fputs("secret\nsecret\n", out) >= 0 && fclose(out) == 0);
    bad(url, "on one line");
    out = fopen(file, "w");
    CHECK(out != NULL && fputs("right\r\n", out) >= 0 && fclose(out) == 0);
    is_user(url, NULL, "right");
}

TEST(times_and_ports_that_are_none_are_refused) {
    bad("redis://h?timeout=0", "1ms to 1h");
    bad("redis://h?connect_timeout=2h", "1ms to 1h");
    bad("redis://h:0", "1 to 65535");
    bad("redis://h:65536", "1 to 65535");
    bad("rediss://h?tls_cert=/c", "go together");
}

TEST_MAIN
