/*
 * A SQL server for tests that are not in C: sql-serve KIND DIRECTORY [durable]
 * [NAME=VALUE...]
 *
 * Writes its URL and its owner's, one per line. Then obeys the commands on
 * standard input, one per line, and answers each with one line that begins with
 * "ok" or "no": kill, restart, pause, go-on, sql TEXT. At the end of input it
 * stops the server and exits. KIND is a name of the table below; the rest are
 * the server's own settings.
 */
#include <stdio.h>
#include <string.h>

#include "farm.h"

static const char *const names[] = {
    [FARM_PG_SOCKET] = "postgres",  [FARM_PG_TCP] = "postgres-tcp",
    [FARM_PG_TLS] = "postgres-tls", [FARM_PG_POOLED] = "postgres-pooled",
    [FARM_MY_SOCKET] = "mysql",     [FARM_MY_TCP] = "mysql-tcp",
    [FARM_MY_TLS] = "mysql-tls",
};

static void answer(const char *word, const char *text) {
    char line[4096];

    snprintf(line, sizeof(line), "%s", text);
    for (char *at = line; *at != '\0'; at++)
        if (*at == '\n')
            *at = ' ';
    printf("%s %s\n", word, line);
    fflush(stdout);
}

static void obey(struct farm *farm, const char *word) {
    const char *error = NULL;

    farm->answer[0] = '\0';
    if (strcmp(word, "kill") == 0)
        farm_kill(farm);
    else if (strcmp(word, "restart") == 0)
        farm_restart(farm);
    else if (strcmp(word, "pause") == 0)
        server_pause(&farm->server);
    else if (strcmp(word, "go-on") == 0)
        server_go_on(&farm->server);
    else if (strncmp(word, "sql ", 4) == 0)
        error = farm_try(farm, FARM_OWNER, word + 4);
    else
        error = "there is no such word";
    answer(error == NULL ? "ok" : "no", error == NULL ? farm->answer : error);
}

int main(int argc, char **argv) {
    static char line[65536];
    static struct farm farm;
    bool durable = argc > 3 && strcmp(argv[3], "durable") == 0;
    size_t kind = 0, kinds = sizeof(names) / sizeof(names[0]);
    char url[2000];

    while (argc >= 3 && kind < kinds && strcmp(names[kind], argv[1]) != 0)
        kind++;
    if (argc < 3 || kind == kinds) {
        fprintf(stderr, "sql-serve KIND FOLDER ...: see tests/store/sql/serve.c\n");
        return 64;
    }
    farm_start_with(&farm, (enum farm_kind)kind, argv[2], -1,
                    (const char *const *)argv + (durable ? 4 : 3), durable);
    farm_url(&farm, "", url, sizeof(url));
    printf("%s\n", url);
    farm_url_as(&farm, FARM_OWNER, "", url, sizeof(url));
    printf("%s\n", url);
    fflush(stdout);
    while (fgets(line, sizeof(line), stdin) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        obey(&farm, line);
    }
    farm_stop(&farm);
    return 0;
}
