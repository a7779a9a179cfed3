/*
 * `idem canon`: writes a JSON document in its canonical form.
 */
#include <stdlib.h>

#include "cli/cli.h"
#include "cli/input.h"
#include "json/json.h"

#define MEMORY_MAX ((size_t)4 << 30)

static int command_canon_write(void *data, const char *bytes, size_t len) {
    return fwrite(bytes, 1, len, data) == len ? 0 : IDEM_E_REFUSED;
}

/* Checks the whole document before anything is written. */
static int command_canon_text(const char *text, size_t len, FILE *out) {
    struct idem_arena arena;
    struct idem_json value;
    struct idem_error err;
    int rc;

    idem_arena_init(&arena, MEMORY_MAX);
    rc = idem_json_parse(text, len, &arena, &value, &err);
    if (rc == 0)
        rc = idem_json_canon(&value, command_canon_write, out, &err);
    idem_arena_free(&arena);
    if (rc == 0 || rc == IDEM_E_REFUSED)
        return CLI_OK; /* cli_flush() reports errors of the output */
    cli_message("%s", err.text);
    return rc == IDEM_E_NOMEM ? CLI_SYSTEM : CLI_MISMATCH;
}

static int command_canon_run(const struct cli_values *values) {
    char *text;
    size_t len;
    int status;

    (void)values;
    status = cli_input_all(stdin, "standard input", &text, &len);
    if (status != CLI_OK)
        return status;
    status = command_canon_text(text, len, stdout);
    free(text);
    return status == CLI_OK ? cli_flush() : status;
}

static const char *const canon_options[] = {"help", NULL};

const struct cli_command cli_canon = {
    .name = "canon",
    .summary = "the canonical form of a JSON document",
    .synopsis = "< FILE",
    .text = "Reads a JSON document and writes its canonical form (RFC 8785). Integers beyond 2^53\n"
            "keep their digits; fingerprints keep those of all other numbers as well. A name that\n"
            "stands twice in an object, or half a surrogate pair, is an error (65).\n",
    .after = "  echo '{\"b\":1.50,\"a\":1810966706881941507}' | idem canon\n",
    .no_operand = "takes no operand; it reads standard input",
    .options = canon_options,
    .run = command_canon_run,
};
