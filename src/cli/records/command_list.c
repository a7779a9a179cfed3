/*
 * `idem list`: prints the records that a filter selects, as a table or as lines of JSON.
 */
#include "cli/cli.h"
#include "cli/records/record_list.h"

struct listing {
    bool json;
    int64_t now;
    size_t n;
};

static bool command_list_print(const struct idem_entry *entry, void *data) {
    struct listing *listing = data;

    if (listing->json) {
        cli_entry_json(entry, stdout);
    } else {
        if (listing->n == 0)
            cli_entry_print_heading(stdout);
        cli_entry_print(entry, listing->now, stdout);
    }
    listing->n++;
    return !ferror(stdout);
}

static int command_list_run(struct idem *h, const struct cli_values *values) {
    struct listing listing = {.json = values->json};
    struct idem_filter filter;
    struct idem_error err;
    int status;

    status = cli_record_filter(h, values, &filter);
    if (status != CLI_OK)
        return status;
    if (idem_time(h, &listing.now, &err) < 0)
        return cli_message_error("store", &err);
    status = cli_record_each(h, values, &filter, command_list_print, &listing);
    return status != CLI_OK ? status : cli_flush();
}

static const char *const command_list_options[] = {"prefix", "state", "since", "json",
                                                   "store",  "help",  NULL};

const struct cli_command cli_list = {
    .name = "list",
    .summary = "the records, all or some of them",
    .synopsis = "[OPTIONS]",
    .text = "Lists what is remembered. Keys are not stored: a record shows its hash, and the\n"
            "label it was run with.\n",
    .after = "  idem list --state uncertain --since 24h\n"
             "  idem list --prefix run: --json\n",
    .no_operand = "takes no operand; to see one record: idem show KEY",
    .options = command_list_options,
    .run_on_store = command_list_run,
};
