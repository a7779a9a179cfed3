/*
 * The URLs of the SQL stores: their meaning, the faults that are refused, and
 * that no refusal reveals a password.
 */
#include "store/sql/sql_engine.h"
#include "temp.h"
#include "test.h"

static const struct sql_engine *engine_of(const char *text) {
    return strncmp(text, "mysql", 5) == 0 ? &sql_engine_mysql : &sql_engine_postgres;
}

static int read_url(const char *text, struct sql_config *config, struct idem_error *err) {
    struct idem_url url;
    int rc = idem_url_parse(text, &url, err);

    if (rc != 0)
        return rc;
    rc = sql_config_read(engine_of(text), &url, config, err);
    idem_url_release(&url);
    return rc;
}

static struct sql_config good(const char *text) {
    struct sql_config config;
    struct idem_error err = {0};

    if (read_url(text, &config, &err) != 0) {
        fprintf(stderr, "# %s: %s\n", text, err.text);
        exit(1);
    }
    return config;
}

static void bad(const char *text, const char *why) {
    struct sql_config config;
    struct idem_error err = {0};

    fprintf(stderr, "# %s\n", text);
    CHECK_INT(read_url(text, &config, &err), IDEM_E_INVALID);
    CHECK_HAS(err.text, why);
    CHECK(strstr(err.text, "secret") == NULL);
}

TEST(a_url_says_who_where_and_which) {
    struct sql_config c = good("postgres://u:p%40q@db.example:5433,[::1]/shop%2Fone");

    CHECK_STR(c.user, "u");
    CHECK_STR(c.password, "p@q");
    CHECK_STR(c.db, "shop/one");
    CHECK_INT(c.hosts_n, 2);
    CHECK_STR(c.hosts[0].name, "db.example");
    CHECK_INT(c.hosts[0].port, 5433);
    CHECK_STR(c.hosts[1].name, "::1");
    CHECK_INT(c.hosts[1].port, 5432);
    CHECK_INT(c.connections_n, 4);
    CHECK_INT(c.tls, SQL_TLS_PREFER);
    CHECK(c.sweep && !c.pooled);
    CHECK_STR(c.name, "idem");
    sql_config_release(&c);
    c = good("mysql://u@h/d");
    CHECK_INT(c.hosts[0].port, 3306);
    CHECK(c.password == NULL);
    sql_config_release(&c);
}

TEST(a_socket_has_its_user_and_database_as_options) {
    struct sql_config c = good("postgres:/run/postgresql?user=u&db=d");

    CHECK_STR(c.hosts[0].name, "/run/postgresql");
    CHECK_INT(c.hosts[0].port, 0);
    CHECK_STR(c.user, "u");
    CHECK_STR(c.db, "d");
    sql_config_release(&c);
}

TEST(options_are_read) {
    struct sql_config c =
        good("postgres://h/d?connections=9&timeout=2s&connect_timeout=300ms&pooled=yes&sweep=no"
             "&tls=require&tls_cert=/c&tls_key=/k&name=n");

    CHECK_INT(c.connections_n, 9);
    CHECK_INT(c.timeout_ms, 2000);
    CHECK_INT(c.connect_timeout_ms, 300);
    CHECK(c.pooled && !c.sweep);
    CHECK_INT(c.tls, SQL_TLS_REQUIRE);
    CHECK_STR(c.name, "n");
    sql_config_release(&c);
    c = good("mysql://h/d?tls_ca=/ca");
    CHECK_INT(c.tls, SQL_TLS_VERIFY);
    sql_config_release(&c);
}

TEST(a_password_comes_from_a_file_or_the_environment) {
    struct sql_config c;
    char path[300], url[500];
    FILE *file;

    snprintf(path, sizeof(path), "%s/password", temp_folder());
    file = fopen(path, "w");
    CHECK(file != NULL && fputs("from a file\n", file) >= 0 && fclose(file) == 0);
    setenv("IDEM_POSTGRES_PASSWORD", "of postgres", 1);
    setenv("IDEM_MYSQL_PASSWORD", "of mysql", 1);
    snprintf(url, sizeof(url), "postgres://u@h/d?password_file=%s", path);
    c = good(url);
    CHECK_STR(c.password, "from a file");
    sql_config_release(&c);
    c = good("postgres://u@h/d");
    CHECK_STR(c.password, "of postgres");
    sql_config_release(&c);
    c = good("mysql://u@h/d");
    CHECK_STR(c.password, "of mysql");
    sql_config_release(&c);
    c = good("mysql://u:said@h/d");
    CHECK_STR(c.password, "said");
    sql_config_release(&c);
}

TEST(what_cannot_be_meant_is_refused_with_what_is_allowed) {
    bad("postgres://h", "postgres://USER:PASSWORD@HOST:PORT/DATABASE");
    bad("postgres:h/d", "postgres://USER:PASSWORD@HOST:PORT/DATABASE");
    bad("postgres:/run?user=u", "db=DATABASE");
    bad("mysql://h", "mysql://");
    bad("mysql://a,b/d", "more than 1 host");
    bad("postgres://h:0/d", "the port must be a number");
    bad("postgres://h:99999/d", "the port must be a number");
    bad("postgres://[::1/d", "IPv6");
    bad("postgres://h/d?db=e", "given twice");
    bad("postgres://u@h/d?user=v", "given twice");
    bad("postgres://h/d?connections=0", "1 to 64");
    bad("postgres://h/d?connections=65", "1 to 64");
    bad("postgres://h/d?tls=maybe", "off, prefer, require, verify");
    bad("postgres://h/d?tls=require&tls_ca=/ca", "tls=verify");
    bad("postgres://h/d?tls_cert=/c", "go together");
    bad("postgres:/run?user=u&db=d&tls=verify", "a socket is without TLS");
    bad("postgres://h/d?timeout=0", "1ms to 1h");
    bad("postgres://h/d?sync=off", "unknown option sync");
    bad("postgres://u:secret?x=y@h/d", "written %3F");
    bad("postgres://u:secret@h/d?password_file=/not/there", "the file with the password");
}

TEST(a_copy_is_whole) {
    struct sql_config c = good("postgres://u:p@h/d?name=n&tls_ca=/ca"), copy;

    CHECK(sql_config_copy(&c, &copy));
    sql_config_release(&c);
    CHECK_STR(copy.user, "u");
    CHECK_STR(copy.password, "p");
    CHECK_STR(copy.tls_ca, "/ca");
    sql_config_release(&copy);
}

TEST_MAIN
