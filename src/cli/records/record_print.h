/*
 * Prints records for people and for programs.
 */
#ifndef IDEM_CLI_RECORDS_RECORD_PRINT_H
#define IDEM_CLI_RECORDS_RECORD_PRINT_H

#include <stdio.h>

#include "idem.h"

void cli_entry_json(const struct idem_entry *entry, FILE *out);

/* The heading of the table, and one row of it. */
void cli_entry_head(FILE *out);
void cli_entry_row(const struct idem_entry *entry, int64_t now_ms, FILE *out);

/* All details of one record, one per line. */
void cli_entry_lines(const struct idem_entry *entry, int64_t now_ms, FILE *out);

#endif
