/*
 * Records as people and programs read them.
 */
#ifndef IDEM_CLI_ENTRY_H
#define IDEM_CLI_ENTRY_H

#include <stdio.h>

#include "idem.h"

/* One line of JSON. */
void cli_entry_json(const struct idem_entry *entry, FILE *out);

/* One line of a table, and the line above it. */
void cli_entry_head(FILE *out);
void cli_entry_row(const struct idem_entry *entry, int64_t now_ms, FILE *out);

/* Everything about one, a line for each. */
void cli_entry_lines(const struct idem_entry *entry, int64_t now_ms, FILE *out);

#endif
