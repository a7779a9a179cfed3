/*
 * Reads a list of records. Fails on a file that cannot be read and on a line that names no record:
 * otherwise half of a list would be settled and the other half overlooked.
 */
#include "cli/records/record_list.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/hex.h"
#include "base/units.h"
#include "cli/input.h"
#include "core/fingerprint.h"
#include "http/http_binary.h"
#include "json/json.h"

static const char wrong[] = "neither a hash of 64 digits nor a line of idem list --json";
static const char wrong_prefix[] = "of a prefix that no record can have";
static const char wrong_attempt[] = "of an attempt that is no number from 0 to 4294967295";
static const char alone[] = "a hash without its prefix, which --prefix must give: records under "
                            "two prefixes may have the same hash";

/* Stores the digits in lower case, as records do. */
static bool record_list_read_hash(const char *text, size_t len, struct cli_only_row *ret) {
    char hex[IDEM_HEX_LEN + 1];
    unsigned char hash[IDEM_HASH_LEN];

    if (len != IDEM_HEX_LEN)
        return false;
    *(char *)mempcpy(hex, text, len) = '\0';
    if (!idem_hex_parse(hex, hash))
        return false;
    idem_hex_encode(hash, sizeof(hash), ret->hash);
    return true;
}

static const char *record_list_read_prefix(const struct idem_json *prefix,
                                           struct cli_only_row *ret) {
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
                                            struct cli_only_row *ret) {
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
static const char *record_list_read_object(const char *text, size_t len, struct cli_only_row *ret) {
    const struct idem_json *hash;
    const char *fault = wrong;
    struct idem_arena arena;
    struct idem_json object;

    idem_print_arena(&arena, len);
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

const char *cli_only_line(const char *line, size_t len, const char *prefix,
                          struct cli_only_row *ret) {
    const char *fault;

    *ret = (struct cli_only_row){.attempt = CLI_ONLY_ANY};
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
    const struct cli_only_row *a = first, *b = second;
    int order = strcmp(a->hash, b->hash) ?: strcmp(a->prefix, b->prefix);

    return order != 0 ? order : (a->attempt > b->attempt) - (a->attempt < b->attempt);
}

/* Removes duplicates: the same record may have been listed twice. */
static void only_sort(struct cli_only *only) {
    size_t n = 0;

    qsort(only->rows, only->n, sizeof(*only->rows), record_list_compare);
    for (size_t i = 0; i < only->n; i++)
        if (n == 0 || record_list_compare(&only->rows[n - 1], &only->rows[i]) != 0)
            only->rows[n++] = only->rows[i];
    only->n = n;
}

static int only_add(struct cli_only *only, size_t *size, const struct cli_only_row *row) {
    struct cli_only_row *larger;

    if (only->n == *size) {
        *size = *size == 0 ? 1024 : 2 * *size;
        larger = realloc(only->rows, *size * sizeof(*larger));
        if (larger == NULL) {
            cli_say("--only: no memory");
            return CLI_SYSTEM;
        }
        only->rows = larger;
    }
    only->rows[only->n++] = *row;
    return CLI_OK;
}

static int record_list_read_rows(FILE *in, const char *path, const char *prefix,
                                 struct cli_only *only) {
    struct cli_only_row row;
    const char *fault;
    size_t size = 0, room = 0, number = 0;
    char *line = NULL;
    int status = CLI_OK;
    ssize_t len;

    while (status == CLI_OK && (len = cli_input_line(in, &line, &room)) >= 0) {
        number++;
        fault = cli_only_line(line, (size_t)len, prefix, &row);
        if (fault != NULL) {
            cli_say("--only: %s: line %zu is %s; nothing was changed", path, number, fault);
            status = CLI_USAGE;
        } else if (row.hash[0] != '\0') {
            status = only_add(only, &size, &row);
        }
    }
    if (status == CLI_OK && (len == -2 || ferror(in))) {
        cli_say("--only: %s cannot be read to its end; nothing was changed", path);
        status = CLI_IO;
    }
    free(line);
    return status;
}

int cli_only_read(const char *path, const char *prefix, struct cli_only *ret) {
    bool input = strcmp(path, "-") == 0;
    FILE *in = input ? stdin : fopen(path, "re");
    int status;

    *ret = (struct cli_only){0};
    if (in == NULL) {
        cli_say("--only: cannot open %s: %s", path, strerror(errno));
        return CLI_ABSENT;
    }
    status = record_list_read_rows(in, path, prefix, ret);
    if (!input)
        fclose(in);
    if (status == CLI_OK && ret->n == 0) {
        cli_say("--only: %s names no record", path);
        status = CLI_USAGE;
    }
    if (status == CLI_OK)
        only_sort(ret);
    return status;
}

void cli_only_release(struct cli_only *only) {
    free(only->rows);
    *only = (struct cli_only){0};
}

static bool only_mark(const struct cli_only *only, const struct idem_entry *entry,
                      int64_t attempt) {
    struct cli_only_row key = {.attempt = attempt}, *row;

    memcpy(key.hash, entry->hash, sizeof(key.hash));
    memcpy(key.prefix, entry->prefix, sizeof(key.prefix));
    row = bsearch(&key, only->rows, only->n, sizeof(key), record_list_compare);
    if (row != NULL)
        row->met = true;
    return row != NULL;
}

bool cli_only_has(const struct cli_only *only, const struct idem_entry *entry) {
    return only->rows == NULL || only_mark(only, entry, entry->attempt) ||
           only_mark(only, entry, CLI_ONLY_ANY);
}

size_t cli_only_unmet(const struct cli_only *only) {
    size_t n = 0;

    for (size_t i = 0; i < only->n; i++)
        n += !only->rows[i].met;
    return n;
}
