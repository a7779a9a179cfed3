/*
 * `idem forget`: removes one record, so that its key runs anew. Fails where
 * there is none, and on a live lease without --force.
 */
#include "cli/cli.h"

static int forget(struct idem *h, const struct cli_values *values) {
    struct cli_name_hold hold;
    struct idem_name name;
    struct idem_error err;
    int status = cli_name(h, values, &hold, &name);

    if (status != CLI_OK)
        return status;
    if (idem_forget(h, &name, values->force, &err) < 0)
        return cli_say_error("forget", &err);
    puts("forgotten");
    return cli_flush();
}

static int forget_run(const struct cli_values *values) {
    int status = CLI_OK;
    struct idem *h = cli_open(values, &status);

    if (h == NULL)
        return status;
    status = forget(h, values);
    idem_close(h);
    return status;
}

static const char *const forget_options[] = {"prefix", "scope", "key-is-token", "hash",
                                             "force",  "store", "help",         NULL};

const struct cli_command cli_forget = {
    .name = "forget",
    .summary = "forget one key, so that it runs anew",
    .synopsis = "[OPTIONS] KEY | --hash HEX",
    .text = "Removes the record of a key. Whoever is still running it is refused when it ends.\n",
    .after = "  idem forget order-4711\n"
             "  idem forget report@2026-11-15T20:00:00Z    (run with --at)\n",
    .operand = "a key",
    .options = forget_options,
    .run = forget_run,
};
