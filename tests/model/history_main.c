/*
 * history-check: judges a history, or appends a line to one (for shells).
 *
 *     history-check LOG
 *     history-check --append LOG ACTOR KEY EVENT [name=value]...
 *
 * Exits 0 when every invariant holds, 1 when one is broken (reported on stdout
 * with the lines of the log), 2 when the log is unusable or cannot be written.
 */
#include "history.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int append(int argc, char **argv) {
    char names[2048];
    size_t len = 0;
    int fd;

    names[0] = '\0';
    for (int i = 4; i < argc; i++) {
        int n = snprintf(names + len, sizeof(names) - len, "%s%s", i == 4 ? "" : " ", argv[i]);

        if (n < 0 || (size_t)n >= sizeof(names) - len) {
            fprintf(stderr, "history-check: the line is too long\n");
            return 2;
        }
        len += (size_t)n;
    }
    fd = history_open(argv[0]);
    if (fd < 0 || history_write_as(fd, argv[1], argv[2], argv[3], names) < 0) {
        fprintf(stderr, "history-check: %s: %s\n", argv[0], strerror(errno));
        return 2;
    }
    close(fd);
    return 0;
}

static int check(const char *path) {
    struct history_sum sum;
    int found = history_check_file(path, stdout, &sum);

    if (found < 0)
        return 2;
    printf("history: %zu keys, %zu claims (%zu run, %zu replay), %zu finishes (%zu acknowledged, "
           "%zu lost), %zu effects, %zu lines (%zu torn): %d broken\n",
           sum.keys, sum.claims, sum.runs, sum.replays, sum.finishes, sum.acknowledged, sum.lost,
           sum.effects, sum.lines, sum.torn, found);
    return found > 0;
}

int main(int argc, char **argv) {
    if (argc >= 6 && strcmp(argv[1], "--append") == 0)
        return append(argc - 2, argv + 2);
    if (argc == 2 && argv[1][0] != '-')
        return check(argv[1]);
    fprintf(stderr, "usage: history-check LOG\n"
                    "       history-check --append LOG ACTOR KEY EVENT [name=value]...\n");
    return 2;
}
