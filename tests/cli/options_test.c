/*
 * Options: the nearest word, and the help.
 */
#include "test.h"

#include "cli/cli.h"

TEST(the_nearest_word_is_found_if_it_is_near) {
    static const char *const words[] = {"key", "lease", "on-failure", "result-max", NULL};

    CHECK_STR(cli_options_nearest("kee", 3, words), "key");
    CHECK_STR(cli_options_nearest("on_failure", 10, words), "on-failure");
    CHECK_STR(cli_options_nearest("laese", 5, words), "lease");
    CHECK(cli_options_nearest("colour", 6, words) == NULL);
    CHECK(cli_options_nearest("", 0, words) == NULL);
    CHECK(cli_options_nearest("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", 50, words) ==
          NULL);
}

TEST(every_word_of_the_policy_has_its_help) {
    char *text = NULL;
    size_t len = 0;
    FILE *out = open_memstream(&text, &len);
    char flag[64];

    cli_options_print(&cli_run, out);
    fclose(out);
    for (const struct idem_option *o = idem_option_table; o->word != NULL; o++) {
        if (strcmp(o->word, "key") == 0 || strcmp(o->word, "on_duplicate") == 0 ||
            strcmp(o->word, "token_ttl") == 0)
            continue;
        snprintf(flag, sizeof(flag), "--%s ", o->word);
        for (char *c = flag; *c != '\0'; c++)
            *c = *c == '_' ? '-' : *c;
        CHECK_HAS(text, flag);
    }
    CHECK(strstr(text, "VALUE") == NULL);
    free(text);
}

TEST_MAIN
