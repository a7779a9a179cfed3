/*
 * --only FILE: a list of records that somebody has looked into. A line is a line of `idem list
 * --json`, which says under which prefix the record is and at which attempt it was when it was
 * listed; or a hash alone, which needs a prefix besides: a hash does not cover it.
 */
#ifndef IDEM_CLI_ONLY_H
#define IDEM_CLI_ONLY_H

#include "cli/cli.h"

#define CLI_ONLY_ANY (-1)

struct cli_only_row {
    char hash[65];
    char prefix[IDEM_PREFIX_MAX + 1];
    int64_t attempt; /* CLI_ONLY_ANY: whichever */
    bool met;        /* a record was found that it names */
};

struct cli_only {
    struct cli_only_row *rows; /* by their names, each once; NULL: all records are meant */
    size_t n;
};

/* One line, without its end; `prefix` is for what names none (NULL: there is none). NULL, or what
   is wrong with it. An empty one has no hash. */
const char *cli_only_line(const char *line, size_t len, const char *prefix,
                          struct cli_only_row *ret);

/* Reads it; "-" is standard input. CLI_OK, or a status after saying why. Released either way. */
int cli_only_read(const char *path, const char *prefix, struct cli_only *ret);
void cli_only_release(struct cli_only *only);

/* Whether it names the record, as it is. */
bool cli_only_has(const struct cli_only *only, const struct idem_entry *entry);
size_t cli_only_unmet(const struct cli_only *only);

#endif
