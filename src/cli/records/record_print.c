/*
 * Prints records. Labels and reasons are untrusted bytes: a terminal gets only their visible
 * characters, JSON only valid strings. Results are never printed here, only counted.
 */
#include "cli/records/record_print.h"

#include <inttypes.h>
#include <string.h>

#include "base/units.h"
#include "cli/cli.h"
#include "cli/run/run_result.h"
#include "cli/time_argument.h"
#include "protocol/record_key.h"
#include "json/json_out.h"

static bool entry_is_over(const struct idem_entry *entry) {
    return entry->state == IDEM_DONE || entry->state == IDEM_FAILED;
}

/* The key by which the backend knows the operation, whatever label it has; empty if it cannot be
   computed. */
static const char *entry_downstream_key(const struct idem_entry *entry,
                                        char buf[IDEM_HEX_LEN + 1]) {
    return idem_downstream_key(entry->prefix, entry->hash, buf) == 0 ? buf : "";
}

void cli_entry_json(const struct idem_entry *entry, FILE *out) {
    struct json_out json = {out, false};
    char key[IDEM_HEX_LEN + 1];

    json_out_open(&json, NULL);
    json_out_text(&json, "hash", entry->hash);
    json_out_text(&json, "prefix", entry->prefix);
    json_out_text(&json, "downstream_key", entry_downstream_key(entry, key));
    json_out_text(&json, "label", entry->label);
    json_out_text(&json, "state", cli_entry_state(entry));
    json_out_uint(&json, "attempt", entry->attempt);
    if (entry_is_over(entry))
        json_out_int(&json, "status", entry->status);
    else
        json_out_null(&json, "status");
    json_out_text(&json, "reason", entry->reason);
    json_out_bool(&json, "final", entry->final);
    json_out_bool(&json, "lock", entry->locked);
    json_out_bool(&json, "has_result", entry->has_result);
    json_out_uint(&json, "result_len", entry->result_len);
    json_out_int(&json, "left_ms", entry->left_ms);
    cli_json_when(&json, "created", entry->created_ms);
    cli_json_when(&json, "changed", entry->changed_ms);
    cli_json_when(&json, "expires", entry->expires_ms);
    json_out_line(&json);
}

#define ROW "%-12s  %-9s  %7s  %6s  %-20s  %-8s  %-8s  %s\n"

void cli_entry_head(FILE *out) {
    fprintf(out, ROW, "HASH", "STATE", "ATTEMPT", "STATUS", "CHANGED", "AGE", "PREFIX", "LABEL");
}

void cli_entry_row(const struct idem_entry *entry, int64_t now_ms, FILE *out) {
    char hash[CLI_HASH_SHORT + 1], attempt[16] = "-", status[16] = "-",
                                   changed[IDEM_WHEN_TEXT] = "-", age[IDEM_WHEN_TEXT] = "-",
                                   prefix[sizeof(entry->prefix)], label[sizeof(entry->label)];

    snprintf(hash, sizeof(hash), "%.*s", CLI_HASH_SHORT, entry->hash);
    if (cli_entry_readable(entry)) {
        snprintf(attempt, sizeof(attempt), "%" PRIu32, entry->attempt);
        /* Whole seconds: people read this table. */
        idem_when_print(entry->changed_ms - entry->changed_ms % 1000, changed, sizeof(changed));
        cli_when_relative(entry->changed_ms, now_ms, age, sizeof(age));
    }
    if (entry_is_over(entry))
        snprintf(status, sizeof(status), "%" PRId32, entry->status);
    fprintf(out, ROW, hash, cli_entry_state(entry), attempt, status, changed, age,
            cli_printable(entry->prefix, prefix, sizeof(prefix)),
            cli_printable(entry->label, label, sizeof(label)));
}

#define LINE "%-9s"

static void record_print_text(FILE *out, const char *name, const char *text) {
    char clean[IDEM_REASON_MAX + 1];

    if (text[0] != '\0')
        fprintf(out, LINE "%s\n", name, cli_printable(text, clean, sizeof(clean)));
}

static void record_print_time(FILE *out, const char *name, int64_t ms, int64_t now_ms) {
    char at[IDEM_WHEN_TEXT], relative[IDEM_WHEN_TEXT];

    if (ms != 0)
        fprintf(out, LINE "%s (%s)\n", name, idem_when_print(ms, at, sizeof(at)),
                cli_when_relative(ms, now_ms, relative, sizeof(relative)));
}

/* After unknown() under recover=rerun a record is still `running`, and its lease is the pause
   before the next run. Such a record has a reason. So does a record whose earlier attempts failed,
   so a reason is conclusive only at the first attempt. */
static const char *entry_left_text(const struct idem_entry *entry) {
    if (entry->state == IDEM_FAILED)
        return ", due in";
    if (entry->reason[0] == '\0')
        return ", lease left:";
    return entry->attempt == 1 ? ": its outcome is unknown; it may run again in"
                               : ", or waiting to run again; lease or pause left:";
}

static void record_print_state(FILE *out, const struct idem_entry *entry) {
    char left[IDEM_UNITS_TEXT];

    fprintf(out, LINE "%s", "state", cli_entry_state(entry));
    if (entry->locked)
        fputs(entry->state == IDEM_DONE ? ", a lock that is free" : ", a lock that is held", out);
    if (entry->uncertain)
        fputs(": its outcome is unknown; it may have happened", out);
    else if (entry->state == IDEM_FAILED)
        fputs(entry->final ? " for good" : "", out);
    if (entry->left_ms > 0 && !entry->uncertain)
        fprintf(out, "%s %s", entry_left_text(entry),
                idem_duration_print(entry->left_ms, left, sizeof(left)));
    fputc('\n', out);
}

/* Counts the bytes of each stream if the result is that of a command. */
static void record_print_result(FILE *out, const struct idem_entry *entry) {
    size_t bytes[3] = {0, 0, 0};
    struct cli_reader reader;
    struct cli_chunk chunk;
    struct spawn_end end;

    if (!entry->has_result) {
        if (entry->state == IDEM_DONE && !entry->locked)
            fprintf(out, LINE "not kept\n", "result");
        return;
    }
    if (entry->result == NULL ||
        !cli_result_read(entry->result, entry->result_len, &end, &reader)) {
        fprintf(out, LINE "%zu bytes\n", "result", entry->result_len);
        return;
    }
    while (cli_reader_next(&reader, &chunk))
        bytes[chunk.stream] += chunk.len;
    fprintf(out, LINE "%s %d, %zu bytes of stdout, %zu of stderr\n", "result",
            end.signalled ? "signal" : "exit", end.number, bytes[1], bytes[2]);
}

void cli_entry_lines(const struct idem_entry *entry, int64_t now_ms, FILE *out) {
    char key[IDEM_HEX_LEN + 1];

    record_print_text(out, "hash", entry->hash);
    record_print_text(out, "prefix", entry->prefix);
    record_print_text(out, "label", entry->label);
    record_print_state(out, entry);
    fprintf(out, LINE "%" PRIu32 "\n", "attempt", entry->attempt);
    if (entry_is_over(entry) && !entry->locked)
        fprintf(out, LINE "%" PRId32 "\n", "status", entry->status);
    record_print_text(out, "reason", entry->reason);
    record_print_result(out, entry);
    record_print_time(out, "created", entry->created_ms, now_ms);
    record_print_time(out, "changed", entry->changed_ms, now_ms);
    record_print_time(out, "expires", entry->expires_ms, now_ms);
    fprintf(out, "downstream_key %s\n", entry_downstream_key(entry, key));
}
