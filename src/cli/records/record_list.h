/*
 * Records for the commands of operators: a list of those that are meant, and how records are
 * printed. cli.h has the functions that select records by a key, a hash or a filter.
 */
#ifndef IDEM_CLI_RECORDS_RECORD_LIST_H
#define IDEM_CLI_RECORDS_RECORD_LIST_H

#include <stdio.h>

#include "cli/cli.h"
#include "idem.h"

/*
 * --only FILE: a list of records that an operator has examined. A line is a line of `idem list
 * --json`, which contains the record's prefix and its attempt at that time; or a hash alone, which
 * needs a prefix besides, because a hash does not cover the prefix.
 */

#define CLI_ONLY_ANY (-1)

struct cli_record_set_item {
    char hash[65];
    char prefix[IDEM_PREFIX_MAX + 1];
    int64_t attempt; /* CLI_ONLY_ANY: any attempt */
    bool met;        /* a record that matches this item was found */
};

struct cli_record_set {
    struct cli_record_set_item
        *items; /* sorted by name, without duplicates; NULL: all records are meant */
    size_t n;
};

/* Parses one line without its end. `prefix` completes a line that names none; NULL: no prefix is
   known. Returns NULL, or a text that describes the error. An empty line yields an empty hash. */
const char *cli_record_set_parse_line(const char *line, size_t len, const char *prefix,
                                      struct cli_record_set_item *ret);

/* Reads the file; "-" is standard input. Returns CLI_OK, or a status after reporting the error. The
   caller releases the list either way. */
int cli_record_set_read(const char *path, const char *prefix, struct cli_record_set *ret);
void cli_record_set_release(struct cli_record_set *only);

/* True if the list names the record at its present attempt. */
bool cli_record_set_has(const struct cli_record_set *only, const struct idem_entry *entry);
size_t cli_record_set_unmet(const struct cli_record_set *only);

/*
 * Prints records for people and for programs.
 */

void cli_entry_json(const struct idem_entry *entry, FILE *out);

/* The heading of the table, and one item of it. */
void cli_entry_print_heading(FILE *out);
void cli_entry_print(const struct idem_entry *entry, int64_t now_ms, FILE *out);

/* All details of one record, one per line. */
void cli_entry_print_details(const struct idem_entry *entry, int64_t now_ms, FILE *out);

#endif
