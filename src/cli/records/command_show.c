/*
 * `idem show`: prints one record, or its result. Fails if there is no such record.
 */
#include <errno.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/cli_result.h"
#include "cli/records/record_list.h"

static int entry_result_write(const struct idem_entry *entry) {
    struct cli_fault fault;
    struct spawn_end end;

    if (!entry->has_result)
        return cli_fail(CLI_ABSENT, "this record has no result: it is %s%s", cli_entry_state(entry),
                        entry->state == IDEM_DONE ? ", and its result was not kept" : "");
    if (!cli_replay(entry->result, entry->result_len, &end, &fault))
        /* The result of another front door: its bytes are written unchanged. */
        fault =
            (struct cli_fault){1, cli_write_all(1, entry->result, entry->result_len) ? 0 : errno};
    if (fault.why == 0 || fault.why == EPIPE)
        return CLI_OK;
    return cli_fail(CLI_IO, "cannot write the result to %s: %s",
                    fault.stream == 1 ? "stdout" : "stderr", strerror(fault.why));
}

static int command_show_entry(struct idem *h, const struct cli_values *values,
                              const struct idem_entry *entry) {
    struct idem_error err;
    int64_t now = 0;

    if (values->result)
        return entry_result_write(entry);
    if (values->json) {
        cli_entry_json(entry, stdout);
        return cli_flush();
    }
    if (idem_time(h, &now, &err) < 0)
        return cli_message_error("store", &err);
    cli_entry_print_details(entry, now, stdout);
    return cli_flush();
}

static int command_show_run(struct idem *h, const struct cli_values *values) {
    struct cli_record_name_hold hold;
    struct idem_entry entry;
    struct idem_name name;
    struct idem_error err;
    int status = cli_record_name(h, values, &hold, &name);

    if (status != CLI_OK)
        return status;
    if (idem_lookup(h, &name, &entry, &err) < 0)
        return cli_message_error("show", &err);
    status = command_show_entry(h, values, &entry);
    idem_entry_release(&entry);
    return status;
}

static const char *const command_show_options[] = {
    "prefix", "scope", "key-is-token", "hash", "json", "result", "store", "help", NULL};

const struct cli_command cli_show = {
    .name = "show",
    .summary = "what is remembered of one key",
    .synopsis = "[OPTIONS] KEY | --hash HEX",
    .text = "Shows the record of a key: state, attempt, status, times. The result itself is\n"
            "written only with --result: stdout to stdout, stderr to stderr. A run with --at\n"
            "has its planned time in its key: KEY@TIME.\n",
    .after = "  idem show order-4711\n"
             "  idem show report@2026-11-15T20:00:00Z\n"
             "  idem show --hash 3f2a91c0d4e5 --result\n",
    .operand = "a key",
    .options = command_show_options,
    .run_on_store = command_show_run,
};
