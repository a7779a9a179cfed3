/*
 * Records for the commands of operators, in three parts: selects them in the store, prints them,
 * and reads a list of them (--only).
 */
#include "cli/records/record_list.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/hash.h"
#include "base/hex.h"
#include "base/units.h"
#include "base/words.h"
#include "cli/cli.h"
#include "cli/cli_result.h"
#include "cli/input.h"
#include "cli/time_argument.h"
#include "core/fingerprint.h"
#include "protocol/record_key.h"
#include "json/json.h"
#include "json/json_out.h"

/*
 * Finds the records that a command line selects: one by key or hash, or many by a filter. Fails if
 * a hash matches no record or several, on an unknown word or time, and if the store fails.
 */

#define PAGE 64

/* One record. */

static const char *values_prefix(const struct cli_values *values) {
    return values->layer.policy.prefix;
}

/* Returns an error text if the command line does not name one record properly, else NULL. */
static const char *values_name_fault(const struct cli_values *values) {
    size_t len;

    if (values->hash == NULL)
        return values->operands_n == 1 ? NULL : "name one record: KEY, or --hash HEX";
    if (values->operands_n != 0)
        return "name the record by KEY or by --hash, not by both";
    if (values->layer.policy.scope != NULL)
        return "a hash has the scope in it: leave --scope out";
    if (values->key_is_token)
        return "a hash is of a token or of a key: leave --token out";
    len = strlen(values->hash);
    if (len < CLI_HASH_LEAST || len > 64 || strspn(values->hash, "0123456789abcdefABCDEF") != len)
        return "--hash takes 8 to 64 hex digits, as idem list shows them";
    return NULL;
}

static void values_name_by_key(const struct cli_values *values, struct idem_name *ret) {
    const char *prefix = values_prefix(values), *scope = values->layer.policy.scope;

    *ret = (struct idem_name){
        .prefix = prefix == NULL ? CLI_PREFIX : prefix,
        .key = values->operands[0],
        .key_len = strlen(values->operands[0]),
        .token = values->key_is_token,
    };
    if (scope != NULL && strcmp(scope, IDEM_SCOPE_NONE) != 0) {
        ret->scope = scope;
        ret->scope_len = strlen(scope);
    }
}

struct hash_search {
    const char *hash;
    struct cli_record_name_hold *hold;
    int found;
};

static bool record_select_match_hash(const struct idem_entry *entry, void *data) {
    struct hash_search *search = data;

    if (strncasecmp(entry->hash, search->hash, strlen(search->hash)) != 0)
        return true;
    if (search->found++ > 0)
        return false;
    memcpy(search->hold->hash, entry->hash, sizeof(search->hold->hash));
    memcpy(search->hold->prefix, entry->prefix, sizeof(search->hold->prefix));
    return true;
}

/* A store looks records up by prefix and whole hash, but people type the first digits of a hash. */
static int record_select_by_hash(struct idem *h, const struct cli_values *values,
                                 struct cli_record_name_hold *hold, struct idem_name *ret) {
    struct hash_search search = {values->hash, hold, 0};
    struct idem_filter filter = {.prefix = values_prefix(values)};
    struct cli_values any = *values;
    int status;

    any.state = NULL;
    status = cli_record_each(h, &any, &filter, record_select_match_hash, &search);
    if (status != CLI_OK)
        return status;
    if (search.found == 0)
        return cli_fail(CLI_ABSENT, "no record has this hash%s; it may have expired",
                        filter.prefix == NULL ? "" : " under this prefix");
    if (search.found > 1)
        return cli_fail(CLI_USAGE,
                        "several records' hashes begin so: give more digits, or --prefix");
    *ret = (struct idem_name){.prefix = hold->prefix, .hash = hold->hash};
    return CLI_OK;
}

int cli_record_name(struct idem *h, const struct cli_values *values,
                    struct cli_record_name_hold *hold, struct idem_name *ret) {
    const char *fault = values_name_fault(values);

    if (fault != NULL)
        return cli_fail(CLI_USAGE, "%s", fault);
    if (values->hash != NULL)
        return record_select_by_hash(h, values, hold, ret);
    values_name_by_key(values, ret);
    return CLI_OK;
}

/* Many records. */

static const char uncertain_word[] = "uncertain";

bool cli_entry_readable(const struct idem_entry *entry) {
    return entry->state != IDEM_DAMAGED && entry->state != IDEM_NEWER;
}

const char *cli_entry_state(const struct idem_entry *entry) {
    return entry->uncertain ? uncertain_word : idem_state_name(entry->state);
}

int cli_record_filter(struct idem *h, const struct cli_values *values, struct idem_filter *ret) {
    struct idem_filter filter = {.prefix = values_prefix(values)};
    struct idem_error err;
    int64_t now = 0;
    int state = 0;

    if (values->state != NULL) {
        filter.uncertain = strcmp(values->state, uncertain_word) == 0;
        if (filter.uncertain)
            state = IDEM_RUNNING;
        else if (!idem_word_find(idem_words_state, values->state, strlen(values->state), &state) ||
                 state == IDEM_ABSENT)
            return cli_fail(
                CLI_USAGE, "--state is issued, running, uncertain, done, failed, damaged or newer");
        filter.state = (enum idem_state)state;
    }
    if (values->since != NULL) {
        if (idem_time(h, &now, &err) < 0)
            return cli_message_error("store", &err);
        if (time_argument_parse(values->since, now, &filter.since_ms, &err) < 0)
            return cli_message_error("--since", &err);
    }
    *ret = filter;
    return CLI_OK;
}

bool cli_record_filter_takes(const struct cli_values *values, const struct idem_entry *entry) {
    return values->state == NULL || strcmp(values->state, cli_entry_state(entry)) == 0;
}

int cli_record_each(struct idem *h, const struct cli_values *values,
                    const struct idem_filter *filter,
                    bool (*each)(const struct idem_entry *entry, void *data), void *data) {
    static struct idem_entry page[PAGE];
    struct idem_cursor cursor = {0};
    struct idem_error err;
    size_t n = 0;

    while (!cursor.end) {
        if (idem_list(h, filter, &cursor, page, PAGE, &n, &err) < 0)
            return cli_message_error("list", &err);
        for (size_t i = 0; i < n; i++)
            if (cli_record_filter_takes(values, &page[i]) && !each(&page[i], data))
                return CLI_OK;
    }
    return CLI_OK;
}

/*
 * Prints records. Labels and reasons are untrusted bytes: a terminal gets only their visible
 * characters, JSON only valid strings. Results are never printed here, only counted.
 */

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
    time_argument_json(&json, "created", entry->created_ms);
    time_argument_json(&json, "changed", entry->changed_ms);
    time_argument_json(&json, "expires", entry->expires_ms);
    json_out_line(&json);
}

#define ROW "%-12s  %-9s  %7s  %6s  %-20s  %-8s  %-8s  %s\n"

void cli_entry_print_heading(FILE *out) {
    fprintf(out, ROW, "HASH", "STATE", "ATTEMPT", "STATUS", "CHANGED", "AGE", "PREFIX", "LABEL");
}

void cli_entry_print(const struct idem_entry *entry, int64_t now_ms, FILE *out) {
    char hash[CLI_HASH_SHORT + 1], attempt[16] = "-", status[16] = "-",
                                   changed[IDEM_RFC3339_TEXT] = "-", age[IDEM_RFC3339_TEXT] = "-",
                                   prefix[sizeof(entry->prefix)], label[sizeof(entry->label)];

    snprintf(hash, sizeof(hash), "%.*s", CLI_HASH_SHORT, entry->hash);
    if (cli_entry_readable(entry)) {
        snprintf(attempt, sizeof(attempt), "%" PRIu32, entry->attempt);
        /* Whole seconds: people read this table. */
        idem_rfc3339_print(entry->changed_ms - entry->changed_ms % 1000, changed, sizeof(changed));
        time_argument_relative(entry->changed_ms, now_ms, age, sizeof(age));
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
    char at[IDEM_RFC3339_TEXT], relative[IDEM_RFC3339_TEXT];

    if (ms != 0)
        fprintf(out, LINE "%s (%s)\n", name, idem_rfc3339_print(ms, at, sizeof(at)),
                time_argument_relative(ms, now_ms, relative, sizeof(relative)));
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

void cli_entry_print_details(const struct idem_entry *entry, int64_t now_ms, FILE *out) {
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

/*
 * Reads a list of records. Fails on a file that cannot be read and on a line that names no record:
 * otherwise half of a list would be settled and the other half overlooked.
 */

static const char wrong[] = "neither a hash of 64 digits nor a line of idem list --json";
static const char wrong_prefix[] = "of a prefix that no record can have";
static const char wrong_attempt[] = "of an attempt that is no number from 0 to 4294967295";
static const char alone[] = "a hash without its prefix, which --prefix must give: records under "
                            "two prefixes may have the same hash";

/* Stores the digits in lower case, as records do. */
static bool record_list_read_hash(const char *text, size_t len, struct cli_record_set_item *ret) {
    unsigned char hash[IDEM_HASH_LEN];

    if (!idem_hex_parse(text, len, hash))
        return false;
    idem_hex_encode(hash, sizeof(hash), ret->hash);
    return true;
}

static const char *record_list_read_prefix(const struct idem_json *prefix,
                                           struct cli_record_set_item *ret) {
    if (prefix == NULL)
        return NULL;
    if (prefix->type != IDEM_JSON_STRING || prefix->n == 0 || prefix->n > IDEM_PREFIX_MAX ||
        memchr(prefix->at.text, '\0', prefix->n) != NULL)
        return wrong_prefix;
    *(char *)mempcpy(ret->prefix, prefix->at.text, prefix->n) = '\0';
    return NULL;
}

/* An attempt that cannot be parsed is an error; it must not be taken for CLI_ONLY_ANY. */
static const char *record_list_read_attempt(const struct idem_json *attempt,
                                            struct cli_record_set_item *ret) {
    int64_t number;

    if (attempt == NULL)
        return NULL;
    if (attempt->type != IDEM_JSON_NUMBER ||
        idem_count_parse(attempt->at.text, attempt->n, &number, NULL) != 0 || number > UINT32_MAX)
        return wrong_attempt;
    ret->attempt = number;
    return NULL;
}

/* {"hash":"...","prefix":"...","attempt":N,...} */
static const char *record_list_read_object(const char *text, size_t len,
                                           struct cli_record_set_item *ret) {
    const struct idem_json *hash;
    const char *fault = wrong;
    struct idem_arena arena;
    struct idem_json object;

    idem_fingerprint_arena(&arena, len);
    if (idem_json_parse(text, len, &arena, &object, NULL) == 0 && object.type == IDEM_JSON_OBJECT) {
        hash = idem_json_get(&object, "hash", 4);
        if (hash != NULL && hash->type == IDEM_JSON_STRING &&
            record_list_read_hash(hash->at.text, hash->n, ret))
            fault = record_list_read_prefix(idem_json_get(&object, "prefix", 6), ret)
                        ?: record_list_read_attempt(idem_json_get(&object, "attempt", 7), ret);
    }
    idem_arena_free(&arena);
    return fault;
}

const char *cli_record_set_parse_line(const char *line, size_t len, const char *prefix,
                                      struct cli_record_set_item *ret) {
    const char *fault;

    *ret = (struct cli_record_set_item){.attempt = CLI_ONLY_ANY};
    while (len > 0 && (line[len - 1] == '\r' || line[len - 1] == ' '))
        len--;
    if (len == 0)
        return NULL;
    if (line[0] == '{')
        fault = record_list_read_object(line, len, ret);
    else
        fault = record_list_read_hash(line, len, ret) ? NULL : wrong;
    if (fault == NULL && ret->prefix[0] == '\0') {
        if (prefix == NULL)
            return alone;
        snprintf(ret->prefix, sizeof(ret->prefix), "%s", prefix);
    }
    return fault;
}

static int record_list_compare(const void *first, const void *second) {
    const struct cli_record_set_item *a = first, *b = second;
    int order = strcmp(a->hash, b->hash) ?: strcmp(a->prefix, b->prefix);

    return order != 0 ? order : (a->attempt > b->attempt) - (a->attempt < b->attempt);
}

/* Removes duplicates: the same record may have been listed twice. */
static void only_sort(struct cli_record_set *only) {
    size_t n = 0;

    qsort(only->items, only->n, sizeof(*only->items), record_list_compare);
    for (size_t i = 0; i < only->n; i++)
        if (n == 0 || record_list_compare(&only->items[n - 1], &only->items[i]) != 0)
            only->items[n++] = only->items[i];
    only->n = n;
}

static int record_list_read_items(FILE *in, const char *path, const char *prefix,
                                  struct cli_record_set *only) {
    struct idem_buffer line = {0}, items = {0};
    struct cli_record_set_item item;
    const char *fault;
    size_t number = 0;
    int status = CLI_OK;
    ssize_t len;

    while (status == CLI_OK && (len = cli_input_line(in, &line)) >= 0) {
        number++;
        fault = cli_record_set_parse_line(line.at, line.len, prefix, &item);
        if (fault != NULL) {
            cli_message("--only: %s: line %zu is %s; nothing was changed", path, number, fault);
            status = CLI_USAGE;
        } else if (item.hash[0] != '\0') {
            idem_buffer_put(&items, &item, sizeof(item));
        }
    }
    only->items = (struct cli_record_set_item *)(void *)items.at;
    only->n = items.len / sizeof(item);
    if (items.failed) {
        cli_message("--only: no memory");
        status = CLI_SYSTEM;
    }
    if (status == CLI_OK && (len == -2 || ferror(in))) {
        cli_message("--only: %s cannot be read to its end; nothing was changed", path);
        status = CLI_IO;
    }
    idem_buffer_release(&line);
    return status;
}

int cli_record_set_read(const char *path, const char *prefix, struct cli_record_set *ret) {
    bool input = strcmp(path, "-") == 0;
    FILE *in = input ? stdin : fopen(path, "re");
    int status;

    *ret = (struct cli_record_set){0};
    if (in == NULL)
        return cli_fail(CLI_ABSENT, "--only: cannot open %s: %s", path, strerror(errno));
    status = record_list_read_items(in, path, prefix, ret);
    if (!input)
        fclose(in);
    if (status == CLI_OK && ret->n == 0) {
        cli_message("--only: %s names no record", path);
        status = CLI_USAGE;
    }
    if (status == CLI_OK)
        only_sort(ret);
    return status;
}

void cli_record_set_release(struct cli_record_set *only) {
    free(only->items);
    *only = (struct cli_record_set){0};
}

static bool only_mark(const struct cli_record_set *only, const struct idem_entry *entry,
                      int64_t attempt) {
    struct cli_record_set_item key = {.attempt = attempt}, *item;

    memcpy(key.hash, entry->hash, sizeof(key.hash));
    memcpy(key.prefix, entry->prefix, sizeof(key.prefix));
    item = bsearch(&key, only->items, only->n, sizeof(key), record_list_compare);
    if (item != NULL)
        item->met = true;
    return item != NULL;
}

bool cli_record_set_has(const struct cli_record_set *only, const struct idem_entry *entry) {
    return only->items == NULL || only_mark(only, entry, entry->attempt) ||
           only_mark(only, entry, CLI_ONLY_ANY);
}

size_t cli_record_set_unmet(const struct cli_record_set *only) {
    size_t n = 0;

    for (size_t i = 0; i < only->n; i++)
        n += !only->items[i].met;
    return n;
}
