/* nginx's syntax, as the doctor parses it. */
#include "cli/doctor/nginx_reader.h"

#include <stdlib.h>
#include <string.h>

#include "test.h"

/* The parsed configuration as text: words separated by bars, then ; { or }. */
static const char *read_all(const char *text) {
    static char out[2000];
    char *copy = strdup(text);
    struct nginx_reader reader = {copy, copy + strlen(copy)};
    struct nginx_directive directive;
    enum nginx_what what;
    size_t len = 0;

    CHECK(copy != NULL);
    while ((what = nginx_next(&reader, &directive)) != NGINX_END) {
        for (size_t i = 0; i < directive.n && what != NGINX_BLOCK_END; i++)
            len += (size_t)snprintf(out + len, sizeof(out) - len, "%s%s", i == 0 ? "" : "|",
                                    directive.words[i]);
        len += (size_t)snprintf(out + len, sizeof(out) - len, "%s",
                                what == NGINX_BLOCK_END ? "}"
                                : what == NGINX_BLOCK   ? "{"
                                                        : ";");
    }
    out[len] = '\0';
    free(copy);
    return out;
}

TEST(directives_and_blocks) {
    CHECK_STR(read_all("events { }\nhttp{server{listen 80;location = /a{idem replay;}}}"),
              "events{}http{server{listen|80;location|=|/a{idem|replay;}}}");
    CHECK_STR(read_all(""), "");
    CHECK_STR(read_all(" \t\r\n# only; a { comment"), "");
    CHECK_STR(read_all("internal;a b c;"), "internal;a|b|c;");
}

TEST(quotes_escapes_and_variables) {
    CHECK_STR(read_all("a \"b c;\" 'd{}' ;"), "a|b c;|d{};");
    CHECK_STR(read_all("a \"\" x;"), "a||x;");
    CHECK_STR(read_all("a \"q\\\"q\" w\\;x \\d+ ;"), "a|q\"q|w\\;x|\\d+;");
    CHECK_STR(read_all("set $x ${host}y; a $z{b;}"), "set|$x|${host}y;a|$z{b;}");
    CHECK_STR(read_all("location ~ ^/a{b;}"), "location|~|^/a{b;}");
}

TEST(comments_stand_where_a_word_could_begin) {
    CHECK_STR(read_all("a b#c; # d;\n e;"), "a|b#c;e;");
}

TEST(lua_is_passed_over) {
    CHECK_STR(read_all("location / { content_by_lua_block { if x then { } end; } idem off; }"),
              "location|/{content_by_lua_block;idem|off;}");
}

TEST(what_is_not_whole_is_left_out) {
    CHECK_STR(read_all("a b; c d"), "a|b;");
    CHECK_STR(read_all("a \"b"), "");
    CHECK_STR(read_all("a { b;"), "a{b;");
    CHECK_STR(read_all("; { } a;"), "}a;");
    CHECK_STR(read_all("a \\"), "");
}

TEST(many_words_are_cut) {
    char text[500] = "a";
    struct nginx_directive directive;
    struct nginx_reader reader;

    for (size_t i = 1; i < 200; i += 2)
        memcpy(text + i, " b", 2);
    memcpy(text + 201, ";", 2);
    reader = (struct nginx_reader){text, text + 202};
    CHECK_INT(nginx_next(&reader, &directive), NGINX_DIRECTIVE);
    CHECK_INT((long long)directive.n, NGINX_WORDS_MAX);
    CHECK_INT(nginx_next(&reader, &directive), NGINX_END);
}

TEST_MAIN
