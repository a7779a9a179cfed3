/*
 * The settings file: the lines that it may have, and the error for each that it
 * may not.
 */
#include "core/settings.h"
#include "temp.h"
#include "test.h"

#include <fcntl.h>

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

static struct idem_error err;

static struct idem_settings *parse_n(const char *text, size_t len) {
    struct idem_settings *untouched = (struct idem_settings *)&err, *s = untouched;
    int rc;

    memset(&err, 0, sizeof(err));
    rc = idem_settings_parse("t.conf", text, len, &s, &err);
    CHECK((rc == 0) == (s != untouched));
    CHECK_INT(rc, err.code);
    return rc == 0 ? s : NULL;
}

static struct idem_settings *parse(const char *text) {
    return parse_n(text, strlen(text));
}

static struct idem_settings *parse_ok(const char *text) {
    struct idem_settings *s = parse(text);

    if (s == NULL)
        fprintf(stderr, "# %s\n", err.text);
    CHECK(s != NULL);
    return s;
}

TEST(an_empty_file_says_nothing) {
    static const char *const empty[] = {"", "\n", "\r\n\r\n", "# x", "  ; x\n\t\n", "\xef\xbb\xbf"};

    for (size_t i = 0; i < COUNT_OF(empty); i++) {
        struct idem_settings *s = parse_ok(empty[i]);

        CHECK_INT(idem_settings_defaults(s)->ttl_s, 0);
        CHECK_INT(s->count, 0);
        CHECK(idem_settings_find(s, "x") == NULL);
        idem_settings_free(s);
    }
}

TEST(sections_and_words_are_read) {
    struct idem_settings *s = parse_ok("# shop\n"
                                       "[defaults]\n"
                                       "scope = none\n"
                                       "  ttl=48h\t\n"
                                       "\n"
                                       "; the policies\n"
                                       "[policy create-order]\n"
                                       "prefix = order:\n"
                                       "backoff = 1s..5m\n"
                                       "\t[ policy  pay now ]  \n"
                                       "prefix = a=b\n"
                                       "wait = none");
    const struct idem_policy *p = idem_settings_find(s, "create-order");

    CHECK_STR(idem_settings_defaults(s)->scope, "none");
    CHECK_INT(idem_settings_defaults(s)->ttl_s, 172800);
    CHECK_STR(p->name, "create-order");
    CHECK_STR(p->prefix, "order:");
    CHECK_INT(p->backoff_max_ms, 300000);
    CHECK_INT(p->ttl_s, 0);
    p = idem_settings_find(s, "pay now");
    CHECK_STR(p->prefix, "a=b");
    CHECK_INT(p->wait_ms, IDEM_NONE);
    CHECK_INT(s->count, 2);
    CHECK(idem_settings_find(s, "pay") == NULL);
    CHECK(idem_settings_find(s, NULL) == NULL);
    idem_settings_free(s);
}

TEST(there_may_be_no_settings_at_all) {
    struct idem_settings *copy = (struct idem_settings *)&err;

    CHECK(idem_settings_find(NULL, "x") == NULL);
    CHECK(idem_settings_defaults(NULL) == NULL);
    CHECK_INT(idem_settings_copy(NULL, &copy, &err), 0);
    CHECK(copy == NULL);
    idem_settings_free(NULL);
}

TEST(lines_may_end_in_crlf_after_a_mark) {
    struct idem_settings *s =
        parse_ok("\xef\xbb\xbf[policy a]\r\nprefix = x\r\nmessage = \"y\"\r\n");

    CHECK_STR(idem_settings_find(s, "a")->prefix, "x");
    CHECK_STR(idem_settings_find(s, "a")->message, "y");
    idem_settings_free(s);
}

TEST(quotes_keep_what_they_hold) {
    struct idem_settings *s = parse_ok("[policy a]\n"
                                       "prefix = \" # ; = [x] \"\n"
                                       "message = \"say \\\"no\\\" to C:\\\\ – déjà\"\n"
                                       "ttl = \"5s\"\n");
    const struct idem_policy *p = idem_settings_find(s, "a");

    CHECK_STR(p->prefix, " # ; = [x] ");
    CHECK_STR(p->message, "say \"no\" to C:\\ – déjà");
    CHECK_INT(p->ttl_s, 5);
    idem_settings_free(s);
}

TEST(a_mistake_is_told_with_file_line_and_what_is_allowed) {
    static const struct {
        const char *text, *error;
    } wrong[] = {
        {"ttl = 1s", "t.conf:1: a word stands before the first section; allowed: [defaults], "
                     "[policy NAME]"},
        {"\n\n[default]\n", "t.conf:3: \"[default]\" is no section; allowed: [defaults], "
                            "[policy NAME]"},
        {"[]", "t.conf:1: \"[]\" is no section"},
        {"[", "t.conf:1: the section has no ] at the end of its line"},
        {"[defaults] # x", "t.conf:1: the section has no ] at the end of its line"},
        {"[policyx]", "t.conf:1: \"[policyx]\" is no section"},
        {"[policy]", "t.conf:1: [policy NAME] has no name; allowed: 1 to 64 bytes"},
        {"[policy  ]", "t.conf:1: [policy NAME] has no name; allowed: 1 to 64 bytes"},
        {"[policy a[b]", "t.conf:1: [policy NAME] has a bracket, a quote or a control character"},
        {"[policy \"a\"]", "t.conf:1: [policy NAME] has a bracket, a quote or a control character"},
        {"[policy a\tb]", "t.conf:1: [policy NAME] has a bracket, a quote or a control character"},
        {"[defaults]\n[policy a]\n[defaults]", "t.conf:3: [defaults] was there before; allowed: "
                                               "once"},
        {"[policy a]\n[policy b]\n[policy a]", "t.conf:3: policy \"a\" was there before; allowed: "
                                               "one section each"},
        {"[defaults]\n# c\ntll = 1s", "t.conf:3: \"tll\" is no option; allowed: preset, mode, key"},
        {"[defaults]\n= 1s", "t.conf:2: \"\" is no option; allowed: preset, mode, key"},
        {"[defaults]\nname = x", "t.conf:2: \"name\" is no option; allowed: preset"},
        {"[defaults]\nttl = 1s\nwait = 1s\nttl = 1s",
         "t.conf:4: ttl is set twice in this section; allowed: once"},
        {"[defaults]\nttl 1s", "t.conf:2: there is no = in this line; allowed: WORD = VALUE"},
        {"[defaults]\nttl =", "t.conf:2: there is no value after the ="},
        {"[defaults]\nttl = 1", "t.conf:2: ttl: \"1\" has no unit; write it as 90s"},
        {"[defaults]\nttl = 0s", "t.conf:2: ttl: \"0s\" is out of range; allowed: 1s to 3650d"},
        {"[defaults]\nmode = maybe",
         "t.conf:2: mode: \"maybe\" is not known; allowed: lock, reject, replay"},
        {"[defaults]\nprefix = x:", "t.conf:2: prefix cannot stand in [defaults]: every policy "
                                    "would share it"},
        {"[defaults]\nttl = 1s # a second", "t.conf:2: a value with #, ; or a quote in it must "
                                            "stand between double quotes; comments stand on lines"},
        {"[defaults]\nmessage = a;b", "t.conf:2: a value with #, ; or a quote"},
        {"[defaults]\nmessage = a\"b\"", "t.conf:2: a value with #, ; or a quote"},
        {"[defaults]\nmessage = \"a", "t.conf:2: the value has no closing quote"},
        {"[defaults]\nmessage = \"", "t.conf:2: the value has no closing quote"},
        {"[defaults]\nmessage = \"a\\\"", "t.conf:2: the value has no closing quote"},
        {"[defaults]\nmessage = \"a\\", "t.conf:2: a backslash stands before something else; "
                                        "allowed between quotes: \\\" and \\\\"},
        {"[defaults]\nmessage = \"a\\n\"", "t.conf:2: a backslash stands before something else"},
        {"[defaults]\nmessage = \"a\" b", "t.conf:2: something follows the closing quote"},
        {"[defaults]\nmessage = \"\"", "t.conf:2: message: is empty; allowed: 1 to 1024 bytes"},
        {"[defaults]\nmessage = \xff", "t.conf:2: this is not UTF-8; allowed: UTF-8 text"},
        {"# \xc0\xaf", "t.conf:1: this is not UTF-8"},
        {"[defaults]\nttl = 1s\rwait = 1s", "t.conf:2: ttl: \"1s?wait = 1s\" is not a time"},
    };

    for (size_t i = 0; i < COUNT_OF(wrong); i++) {
        CHECK(parse(wrong[i].text) == NULL);
        CHECK_INT(err.code, IDEM_E_INVALID);
        CHECK_HAS(err.text, wrong[i].error);
    }
}

TEST(a_word_may_come_back_in_another_section) {
    idem_settings_free(parse_ok("[defaults]\nttl=1s\n[policy a]\nttl=2s\n[policy b]\nttl=3s\n"));
}

TEST(nul_bytes_are_refused) {
    CHECK(parse_n("[defaults]\nscope = a\0b\n", 23) == NULL);
    CHECK_HAS(err.text, "t.conf:2: there is a NUL byte");
    CHECK(parse_n("\0", 1) == NULL);
}

TEST(a_line_may_be_8192_bytes_long_and_no_longer) {
    char *text = malloc(IDEM_SETTINGS_LINE_MAX + 2);

    memset(text, '#', IDEM_SETTINGS_LINE_MAX + 2);
    text[IDEM_SETTINGS_LINE_MAX] = '\n';
    idem_settings_free(parse_n(text, IDEM_SETTINGS_LINE_MAX + 1));
    CHECK_INT(err.code, 0);
    text[IDEM_SETTINGS_LINE_MAX] = '#';
    CHECK(parse_n(text, IDEM_SETTINGS_LINE_MAX + 1) == NULL);
    CHECK_HAS(err.text, "t.conf:1: the line is too long; allowed: 8192 bytes");
    free(text);
}

TEST(a_text_may_be_1_mib_long_and_no_longer) {
    char *text = malloc(IDEM_SETTINGS_FILE_MAX + 1);

    memset(text, '\n', IDEM_SETTINGS_FILE_MAX + 1);
    idem_settings_free(parse_n(text, IDEM_SETTINGS_FILE_MAX));
    CHECK_INT(err.code, 0);
    CHECK(parse_n(text, IDEM_SETTINGS_FILE_MAX + 1) == NULL);
    CHECK_STR(err.text, "t.conf: too large; allowed: 1MiB");
    free(text);
}

TEST(a_name_may_be_64_bytes_long_and_no_longer) {
    char text[128];

    snprintf(text, sizeof(text), "[policy %064d]", 1);
    idem_settings_free(parse_ok(text));
    snprintf(text, sizeof(text), "[policy %065d]", 1);
    CHECK(parse(text) == NULL);
    CHECK_HAS(err.text, "t.conf:1: [policy NAME] has too long a name; allowed: 1 to 64 bytes");
}

TEST(there_may_be_1024_policies_and_no_more) {
    char *text = malloc(1025 * 16), *at = text;

    for (int i = 0; i < 1025; i++)
        at += snprintf(at, 16, "[policy %04d]\n", i);
    idem_settings_free(parse_n(text, (size_t)(at - text) - 14));
    CHECK_INT(err.code, 0);
    CHECK(parse_n(text, (size_t)(at - text)) == NULL);
    CHECK_STR(err.text, "t.conf:1025: too many policies; allowed: 1024");
    free(text);
}

TEST(an_error_without_a_name_says_settings) {
    struct idem_settings *s;

    CHECK_INT(idem_settings_parse(NULL, "x", 1, &s, &err), IDEM_E_INVALID);
    CHECK_HAS(err.text, "settings:1: ");
    CHECK_INT(idem_settings_parse(NULL, "x", 1, &s, NULL), IDEM_E_INVALID);
}

TEST(no_error_holds_a_value_that_was_not_understood_at_all) {
    CHECK(parse("[defaults]\npassword = hunter2") == NULL);
    CHECK(strstr(err.text, "hunter2") == NULL);
}

TEST(a_copy_lives_on) {
    struct idem_settings *s = parse_ok("[defaults]\nscope=none\n[policy a]\nprefix=x\nttl=5s\n");
    struct idem_settings *copy = NULL;

    CHECK_INT(idem_settings_copy(s, &copy, &err), 0);
    idem_settings_free(s);
    CHECK_STR(idem_settings_defaults(copy)->scope, "none");
    CHECK_STR(idem_settings_find(copy, "a")->prefix, "x");
    CHECK_INT(idem_settings_find(copy, "a")->ttl_s, 5);
    idem_settings_free(copy);
    s = parse_ok("");
    CHECK_INT(idem_settings_copy(s, &copy, &err), 0);
    CHECK_INT(copy->count, 0);
    idem_settings_free(copy);
    idem_settings_free(s);
}

/* Files. */

static void file_write(const char *path, const char *text, size_t len) {
    int fd = creat(path, 0600);

    CHECK(fd >= 0);
    CHECK(write(fd, text, len) == (ssize_t)len);
    close(fd);
}

TEST(a_file_is_loaded_and_its_mistakes_carry_its_name) {
    const char *path = temp_file("settings");
    struct idem_settings *s = NULL;
    char *large = calloc(1, IDEM_SETTINGS_FILE_MAX + 1);

    file_write(path, "[policy a]\nprefix=x\n", 20);
    CHECK_INT(idem_settings_load(path, &s, &err), 0);
    CHECK_STR(idem_settings_find(s, "a")->prefix, "x");
    idem_settings_free(s);
    unlink(path);

    file_write(path, "[policy a]\nprefix\n", 18);
    s = NULL;
    CHECK_INT(idem_settings_load(path, &s, &err), IDEM_E_INVALID);
    CHECK(s == NULL);
    CHECK(strncmp(err.text, path, strlen(path)) == 0);
    CHECK_HAS(err.text, ":2: there is no = in this line");
    unlink(path);

    memset(large, '\n', IDEM_SETTINGS_FILE_MAX + 1);
    file_write(path, large, IDEM_SETTINGS_FILE_MAX + 1);
    CHECK_INT(idem_settings_load(path, &s, &err), IDEM_E_INVALID);
    CHECK_HAS(err.text, ": too large; allowed: 1MiB");
    unlink(path);
    free(large);
}

TEST(a_file_that_cannot_be_read_says_why) {
    struct idem_settings *s = NULL;

    CHECK_INT(idem_settings_load("/nowhere/idem.conf", &s, &err), IDEM_E_INVALID);
    CHECK_STR(err.text, "/nowhere/idem.conf: cannot be opened: No such file or directory");
    CHECK_INT(idem_settings_load("/", &s, &err), IDEM_E_INVALID);
    CHECK_STR(err.text, "/: cannot be read: Is a directory");
    CHECK(s == NULL);
}

TEST_MAIN
