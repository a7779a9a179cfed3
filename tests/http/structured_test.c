/* Structured fields: the shapes of RFC 9651 that the parser supports. */
#include "http/http_structured.h"

#include <stdarg.h>

#include "heap_text.h"

static const char *const types[] = {
    [IDEM_SF_INTEGER] = "integer", [IDEM_SF_DECIMAL] = "decimal", [IDEM_SF_STRING] = "string",
    [IDEM_SF_TOKEN] = "token",     [IDEM_SF_BYTES] = "bytes",     [IDEM_SF_BOOLEAN] = "boolean",
    [IDEM_SF_DATE] = "date",       [IDEM_SF_DISPLAY] = "display", [IDEM_SF_INNER_LIST] = "list",
};

static char said[4096];

__attribute__((format(printf, 1, 2))) static void say(const char *fmt, ...) {
    size_t len = strlen(said);
    va_list args;

    va_start(args, fmt);
    vsnprintf(said + len, sizeof(said) - len, fmt, args);
    va_end(args);
}

static void say_bare(const struct idem_sf_bare *bare) {
    say("%s(%.*s)", types[bare->type], (int)bare->text.len, bare->text.at);
}

static bool say_parameters(struct idem_sf *sf) {
    struct idem_sf_parameter parameter;
    enum idem_sf_next next;

    while ((next = idem_sf_parameter(sf, &parameter)) == IDEM_SF_NEXT) {
        say(";%.*s=", (int)parameter.key.len, parameter.key.at);
        say_bare(&parameter.value);
    }
    return next == IDEM_SF_END;
}

/* Reads an item with its parameters, to the end of the field; "bad" if it is not valid. */
static const char *item(const char *value) {
    struct idem_http_text text = text_n(value, strlen(value));
    struct idem_sf sf = idem_sf_of(text);
    struct idem_sf_bare bare;

    said[0] = '\0';
    if (!idem_sf_bare(&sf, &bare)) {
        snprintf(said, sizeof(said), "bad");
    } else {
        CHECK(bare.all.at == text.at);
        say_bare(&bare);
        if (!say_parameters(&sf) || sf.at != sf.end)
            snprintf(said, sizeof(said), "bad");
    }
    text_free(text);
    return said;
}

/* Prints the inner list, which the dictionary has found valid. */
static void say_list(struct idem_http_text text) {
    struct idem_sf sf = idem_sf_of(text);
    struct idem_sf_bare bare;
    enum idem_sf_next next;

    say("(");
    while ((next = idem_sf_inner(&sf, &bare)) == IDEM_SF_NEXT) {
        say(" ");
        say_bare(&bare);
        CHECK(say_parameters(&sf));
    }
    CHECK_INT(next, IDEM_SF_END);
    say(")");
}

static const char *dictionary_n(const char *value, size_t n) {
    struct idem_http_text text = text_n(value, n);
    struct idem_sf sf = idem_sf_of(text);
    struct idem_sf_member member;
    enum idem_sf_next next;

    said[0] = '\0';
    while ((next = idem_sf_member(&sf, &member)) == IDEM_SF_NEXT) {
        struct idem_sf parameters = idem_sf_of(member.parameters);

        say("%s%.*s=", said[0] == '\0' ? "" : ", ", (int)member.key.len, member.key.at);
        if (member.value.type == IDEM_SF_INNER_LIST)
            say_list(member.value.text);
        else
            say_bare(&member.value);
        CHECK(say_parameters(&parameters));
        CHECK(parameters.at == parameters.end);
    }
    text_free(text);
    return next == IDEM_SF_END ? said : "bad";
}

static const char *dictionary(const char *value) {
    return dictionary_n(value, strlen(value));
}

TEST(numbers_have_so_many_digits) {
    CHECK_STR(item("0"), "integer(0)");
    CHECK_STR(item("-42"), "integer(-42)");
    CHECK_STR(item("999999999999999"), "integer(999999999999999)");
    CHECK_STR(item("4.5"), "decimal(4.5)");
    CHECK_STR(item("-123456789012.123"), "decimal(-123456789012.123)");
    CHECK_STR(item("@1659578233"), "date(1659578233)");
    CHECK_STR(item("@-1"), "date(-1)");
    CHECK_STR(item("1000000000000000"), "bad");
    CHECK_STR(item("1234567890123.1"), "bad");
    CHECK_STR(item("1.1234"), "bad");
    CHECK_STR(item("1."), "bad");
    CHECK_STR(item(".5"), "bad");
    CHECK_STR(item("-"), "bad");
    CHECK_STR(item("--1"), "bad");
    CHECK_STR(item("+1"), "bad");
    CHECK_STR(item("@1.5"), "bad");
    CHECK_STR(item("@"), "bad");
}

TEST(strings_end_and_escape_two_characters) {
    CHECK_STR(item("\"hello world\""), "string(hello world)");
    CHECK_STR(item("\"\""), "string()");
    CHECK_STR(item("\"a\\\"b\\\\c\""), "string(a\\\"b\\\\c)");
    CHECK_STR(item("\"a"), "bad");
    CHECK_STR(item("\"a\\"), "bad");
    CHECK_STR(item("\"a\\\""), "bad");
    CHECK_STR(item("\"a\\n\""), "bad");
    CHECK_STR(item("\"a\tb\""), "bad");
    CHECK_STR(item("\"\x7f\""), "bad");
    CHECK_STR(item("\"f\xc3\xbc\""), "bad");
    CHECK_STR(item("'a'"), "bad");
}

TEST(an_escaped_string_is_told_whole_however_little_fits) {
    static const struct idem_http_text text = IDEM_HTTP_TEXT("a\\\"b\\\\");
    char out[4] = "....";

    CHECK_INT(idem_sf_unescape(text, NULL, 0), 4);
    CHECK_INT(idem_sf_unescape(text, out, 2), 4);
    CHECK(memcmp(out, "a\"..", 4) == 0);
    CHECK_INT(idem_sf_unescape(text, out, 4), 4);
    CHECK(memcmp(out, "a\"b\\", 4) == 0);
}

TEST(tokens_bytes_booleans_and_display_strings) {
    CHECK_STR(item("sugar"), "token(sugar)");
    CHECK_STR(item("*a/b:c!#$%&'+-.^_`|~9"), "token(*a/b:c!#$%&'+-.^_`|~9)");
    CHECK_STR(item(":cHJldGVuZA==:"), "bytes(cHJldGVuZA==)");
    CHECK_STR(item("::"), "bytes()");
    CHECK_STR(item(":cHJldGVuZA:"), "bytes(cHJldGVuZA)");
    CHECK_STR(item(":Zg=:"), "bad");
    CHECK_STR(item(":Zm9v====:"), "bad");
    CHECK_STR(item(":Zg==Zg==:"), "bad");
    CHECK_STR(item(":Z:"), "bad");
    CHECK_STR(item(":Zg=="), "bad");
    CHECK_STR(item(":Z-_a:"), "bad");
    CHECK_STR(item(":Zm 9v:"), "bad");
    CHECK_STR(item("?1"), "boolean(1)");
    CHECK_STR(item("?0"), "boolean(0)");
    CHECK_STR(item("?2"), "bad");
    CHECK_STR(item("?"), "bad");
    CHECK_STR(item("?10"), "bad");
    CHECK_STR(item("%\"f%c3%bc\""), "display(f%c3%bc)");
    CHECK_STR(item("%\"f%C3%BC\""), "bad");
    CHECK_STR(item("%\"%c3\""), "bad");
    CHECK_STR(item("%\"%c3"), "bad");
    CHECK_STR(item("%\"%c"), "bad");
    CHECK_STR(item("%a"), "bad");
    CHECK_STR(item("%"), "bad");
    CHECK_STR(item(""), "bad");
    CHECK_STR(item("(a)"), "bad"); /* an item is no list */
    CHECK_STR(item("a b"), "bad");
}

TEST(an_item_has_parameters) {
    CHECK_STR(item("text/html;charset=utf-8"), "token(text/html);charset=token(utf-8)");
    CHECK_STR(item("1;a;b=?0;c=\"x;y\""), "integer(1);a=boolean(1);b=boolean(0);c=string(x;y)");
    CHECK_STR(item("1;  a=2;*b=3"), "integer(1);a=integer(2);*b=integer(3)");
    CHECK_STR(item("1;a=1;a=2"),
              "integer(1);a=integer(1);a=integer(2)"); /* the caller decides which one counts */
    CHECK_STR(item("1;"), "bad");
    CHECK_STR(item("1; "), "bad");
    CHECK_STR(item("1;A=1"), "bad");
    CHECK_STR(item("1;1a=1"), "bad");
    CHECK_STR(item("1;a="), "bad");
    CHECK_STR(item("1;a=(1)"), "bad");
    CHECK_STR(item("1 ;a"), "bad");
    CHECK_STR(item("1;a =1"), "bad");
    CHECK_STR(item("1;a= 1"), "bad");
    CHECK_STR(item("1;\ta"), "bad");
}

TEST(a_dictionary_has_members_parted_by_commas) {
    CHECK_STR(dictionary(""), "");
    CHECK_STR(dictionary("  "), "");
    CHECK_STR(dictionary("en=\"Applepie\", da=:w4ZibGV0w6Zy:"),
              "en=string(Applepie), da=bytes(w4ZibGV0w6Zy)");
    CHECK_STR(dictionary("a=?0, b, c; foo=bar"),
              "a=boolean(0), b=boolean(1), c=boolean(1);foo=token(bar)");
    CHECK_STR(dictionary(" a=1\t,\tb=2 "), "a=integer(1), b=integer(2)");
    CHECK_STR(dictionary("a=1,b=2"), "a=integer(1), b=integer(2)");
    CHECK_STR(dictionary("a=1,a=2"), "a=integer(1), a=integer(2)");
    CHECK_STR(dictionary("*a_b-c.d*=1"), "*a_b-c.d*=integer(1)");
    CHECK_STR(dictionary("a=1,"), "bad");
    CHECK_STR(dictionary("a=1, "), "bad");
    CHECK_STR(dictionary(",a=1"), "bad");
    CHECK_STR(dictionary("a=1,,b=2"), "bad");
    CHECK_STR(dictionary("a=1 b=2"), "bad");
    CHECK_STR(dictionary("a=1;b=2 c"), "bad");
    CHECK_STR(dictionary("A=1"), "bad");
    CHECK_STR(dictionary("=1"), "bad");
    CHECK_STR(dictionary("a="), "bad");
    CHECK_STR(dictionary("a= 1"), "bad");
    CHECK_STR(dictionary("a =1"), "bad");
    CHECK_STR(dictionary_n("a=1\0", 4), "bad");
    CHECK_STR(dictionary("a=1\n"), "bad");
}

TEST(a_member_may_be_a_list) {
    CHECK_STR(dictionary("a=()"), "a=()");
    CHECK_STR(dictionary("a=( )"), "a=()");
    CHECK_STR(dictionary("a=(\"x\" y 1);q=2, b=(z)"),
              "a=( string(x) token(y) integer(1));q=integer(2), b=( token(z))");
    CHECK_STR(dictionary("a=(  \"x\";bs  y;n=\"(\"  )"),
              "a=( string(x);bs=boolean(1) token(y);n=string(())");
    CHECK_STR(dictionary("sig=(\"@method\" \"@query-param\";name=\"a)b\");created=1;keyid=\"k\""),
              "sig=( string(@method) string(@query-param);name=string(a)b));created=integer(1);"
              "keyid=string(k)");
    CHECK_STR(dictionary("a=("), "bad");
    CHECK_STR(dictionary("a=(1"), "bad");
    CHECK_STR(dictionary("a=(1 "), "bad");
    CHECK_STR(dictionary("a=(1,2)"), "bad");
    CHECK_STR(dictionary("a=(\"x\"\"y\")"), "bad");
    CHECK_STR(dictionary("a=(1\t2)"), "bad");
    CHECK_STR(dictionary("a=((1))"), "bad");
    CHECK_STR(dictionary("a=(1))"), "bad");
    CHECK_STR(dictionary("a=(1;)"), "bad");
}

/* A field of several lines, or a missing one. */
TEST(nothing_is_read_of_nothing) {
    struct idem_sf sf = idem_sf_of((struct idem_http_text){NULL, 0});
    struct idem_sf_member member;
    struct idem_sf_bare bare;

    CHECK_INT(idem_sf_member(&sf, &member), IDEM_SF_END);
    CHECK_INT(idem_sf_inner(&sf, &bare), IDEM_SF_END);
    CHECK(!idem_sf_bare(&sf, &bare));
}

TEST_MAIN
