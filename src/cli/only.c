/*
 * Reads a list of records. Fails on a file that cannot be read, and on a line that names none: half
 * of a list would be settled otherwise, and the other half forgotten.
 */
#include "cli/only.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cli/input.h"
#include "core/hash.h"
#include "core/print.h"
#include "http/binary.h"
#include "json/json.h"

static const char wrong[] = "neither a hash of 64 digits nor a line of idem list --json";

/* In small letters, as records have it. */
static bool hash_take(const char *text, size_t len, struct cli_only_row *ret) {
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

/* {"hash":"...","attempt":N,...} */
static const char *object_take(const char *text, size_t len, struct cli_only_row *ret) {
    const struct idem_json *hash, *attempt;
    const char *fault = wrong;
    struct idem_arena arena;
    struct idem_json object;
    char number[16];

    idem_print_arena(&arena, len);
    if (idem_json_parse(text, len, &arena, &object, NULL) == 0 && object.type == IDEM_JSON_OBJECT) {
        hash = idem_json_get(&object, "hash", 4);
        attempt = idem_json_get(&object, "attempt", 7);
        if (hash != NULL && hash->type == IDEM_JSON_STRING &&
            hash_take(hash->at.text, hash->n, ret))
            fault = NULL;
        if (attempt != NULL && attempt->type == IDEM_JSON_NUMBER && attempt->flag &&
            attempt->n < sizeof(number)) {
            snprintf(number, sizeof(number), "%.*s", (int)attempt->n, attempt->at.text);
            ret->attempt = (uint32_t)strtoul(number, NULL, 10);
        }
    }
    idem_arena_free(&arena);
    return fault;
}

const char *cli_only_line(const char *line, size_t len, struct cli_only_row *ret) {
    *ret = (struct cli_only_row){.attempt = 0};
    while (len > 0 && (line[len - 1] == '\r' || line[len - 1] == ' '))
        len--;
    if (len == 0)
        return NULL;
    if (line[0] == '{')
        return object_take(line, len, ret);
    return hash_take(line, len, ret) ? NULL : wrong;
}

static int by_hash(const void *a, const void *b) {
    return strcmp(((const struct cli_only_row *)a)->hash, ((const struct cli_only_row *)b)->hash);
}

/* Each once: who is named twice was listed twice. */
static void rows_order(struct cli_only *only) {
    size_t n = 0;

    qsort(only->rows, only->n, sizeof(*only->rows), by_hash);
    for (size_t i = 0; i < only->n; i++)
        if (n == 0 || strcmp(only->rows[n - 1].hash, only->rows[i].hash) != 0)
            only->rows[n++] = only->rows[i];
    only->n = n;
}

static int row_add(struct cli_only *only, size_t *size, const struct cli_only_row *row) {
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

static int rows_read(FILE *in, const char *path, struct cli_only *only) {
    struct cli_only_row row;
    const char *fault;
    size_t size = 0, room = 0, number = 0;
    char *line = NULL;
    int status = CLI_OK;
    ssize_t len;

    while (status == CLI_OK && (len = cli_input_line(in, &line, &room)) >= 0) {
        number++;
        fault = cli_only_line(line, (size_t)len, &row);
        if (fault != NULL) {
            cli_say("--only: %s: line %zu is %s; nothing was changed", path, number, fault);
            status = CLI_USAGE;
        } else if (row.hash[0] != '\0') {
            status = row_add(only, &size, &row);
        }
    }
    if (status == CLI_OK && (len == -2 || ferror(in))) {
        cli_say("--only: %s cannot be read to its end; nothing was changed", path);
        status = CLI_IO;
    }
    free(line);
    return status;
}

int cli_only_read(const char *path, struct cli_only *ret) {
    bool input = strcmp(path, "-") == 0;
    FILE *in = input ? stdin : fopen(path, "re");
    int status;

    *ret = (struct cli_only){0};
    if (in == NULL) {
        cli_say("--only: cannot open %s: %s", path, strerror(errno));
        return CLI_ABSENT;
    }
    status = rows_read(in, path, ret);
    if (!input)
        fclose(in);
    if (status == CLI_OK && ret->n == 0) {
        cli_say("--only: %s names no record", path);
        status = CLI_USAGE;
    }
    if (status == CLI_OK)
        rows_order(ret);
    return status;
}

void cli_only_release(struct cli_only *only) {
    free(only->rows);
    *only = (struct cli_only){0};
}

bool cli_only_has(const struct cli_only *only, const struct idem_entry *entry) {
    struct cli_only_row key = {.attempt = 0}, *row;

    if (only->rows == NULL)
        return true;
    memcpy(key.hash, entry->hash, sizeof(key.hash));
    row = bsearch(&key, only->rows, only->n, sizeof(key), by_hash);
    if (row == NULL || (row->attempt != 0 && row->attempt != entry->attempt))
        return false;
    row->met = true;
    return true;
}

size_t cli_only_unmet(const struct cli_only *only) {
    size_t n = 0;

    for (size_t i = 0; i < only->n; i++)
        n += !only->rows[i].met;
    return n;
}
