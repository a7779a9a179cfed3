/*
 * `idem id`: prints unique identifiers.
 */
#include <inttypes.h>

#include "cli/cli.h"

static int command_id_print_uuids(const struct cli_values *values, int64_t n) {
    char text[IDEM_UUID_LEN + 1];
    struct idem_error err;

    for (int64_t i = 0; i < n && !ferror(stdout); i++) {
        if ((values->v4 ? idem_uuid4(text, &err) : idem_uuid7(text, &err)) < 0)
            return cli_message_error("id", &err);
        puts(text);
    }
    return cli_flush();
}

static int command_id_print_snowflakes(const struct cli_values *values, int64_t n) {
    struct idem_snowflake *snowflake = NULL;
    struct idem_error err;
    struct idem *h;
    int64_t id;
    int status;

    h = cli_open_or_make(values, &status);
    if (h == NULL)
        return status;
    status = CLI_OK;
    if (idem_snowflake_new(h, values->name, &snowflake, &err) < 0)
        status = cli_message_error("id", &err);
    for (int64_t i = 0; i < n && status == CLI_OK && !ferror(stdout); i++) {
        if (idem_snowflake_next(snowflake, &id, &err) < 0)
            status = cli_message_error("id", &err);
        else
            printf("%" PRId64 "\n", id);
    }
    idem_snowflake_free(snowflake);
    idem_close(h);
    return status == CLI_OK ? cli_flush() : status;
}

static int command_id_run(const struct cli_values *values) {
    int64_t n = values->number;

    if (values->v4 + values->v7 + values->snowflake > 1)
        return cli_fail(CLI_USAGE, "id: one of --v7, --v4 and --snowflake");
    return values->snowflake ? command_id_print_snowflakes(values, n)
                             : command_id_print_uuids(values, n);
}

static const char *const id_options[] = {"v7",   "v4",    "snowflake", "number",
                                         "name", "store", "help",      NULL};

const struct cli_command cli_id = {
    .name = "id",
    .summary = "identifiers: UUIDs and snowflakes",
    .synopsis = "[--v7 | --v4 | --snowflake] [-n N]",
    .text = "Prints identifiers, one per line. UUIDs of version 7 (the default) are in order of\n"
            "time; those of version 4 are random. Snowflakes are numbers of 63 bits in order of\n"
            "time; the store sees to it that no two machines make the same.\n",
    .after = "  idem run --key \"$(idem id)\" -- ./charge-card 4711\n",
    .no_operand = "takes no operand",
    .options = id_options,
    .run = command_id_run,
};
