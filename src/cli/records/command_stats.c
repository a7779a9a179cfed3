/*
 * `idem stats`: counts the records by state, and the events since the store was created.
 */
#include <inttypes.h>

#include "base/units.h"
#include "cli/cli.h"
#include "json/json_out.h"

struct count {
    const char *name;
    uint64_t value;
};

static void stats_count_records(const struct idem_stats *stats, struct count ret[5]) {
    ret[0] = (struct count){"issued", stats->issued};
    ret[1] = (struct count){"running", stats->running};
    ret[2] = (struct count){"uncertain", stats->uncertain};
    ret[3] = (struct count){"done", stats->done};
    ret[4] = (struct count){"failed", stats->failed};
}

static void stats_json(const struct idem_stats *stats, FILE *out) {
    struct json_out json = {out, false};
    struct count records[5];

    stats_count_records(stats, records);
    json_out_open(&json, NULL);
    json_out_open(&json, "records");
    for (size_t i = 0; i < 5; i++)
        json_out_uint(&json, records[i].name, records[i].value);
    json_out_close(&json);
    json_out_open(&json, "events");
    for (int i = 0; i < IDEM_EVENT__COUNT; i++)
        json_out_uint(&json, idem_event_name((enum idem_event)i), stats->events[i]);
    json_out_close(&json);
    if (stats->bytes_max != 0) {
        json_out_uint(&json, "bytes_used", stats->bytes_used);
        json_out_uint(&json, "bytes_max", stats->bytes_max);
    }
    json_out_line(&json);
}

static void stats_table(const struct idem_stats *stats, FILE *out) {
    struct count records[5];
    char max[IDEM_UNITS_TEXT];

    stats_count_records(stats, records);
    fputs("records now\n", out);
    for (size_t i = 0; i < 5; i++)
        fprintf(out, "  %-20s %12" PRIu64 "\n", records[i].name, records[i].value);
    fputs("since the store was made\n", out);
    for (int i = 0; i < IDEM_EVENT__COUNT; i++)
        fprintf(out, "  %-20s %12" PRIu64 "\n", idem_event_name((enum idem_event)i),
                stats->events[i]);
    if (stats->bytes_max != 0)
        fprintf(out, "room\n  %-20s %12" PRIu64 " KiB of %s\n", "used", stats->bytes_used / 1024,
                idem_size_print((int64_t)stats->bytes_max, max, sizeof(max)));
}

static int command_stats_run(struct idem *h, const struct cli_values *values) {
    struct idem_stats stats;
    struct idem_error err;

    if (idem_stats(h, &stats, &err) < 0)
        return cli_message_error("stats", &err);
    if (values->json)
        stats_json(&stats, stdout);
    else
        stats_table(&stats, stdout);
    return cli_flush();
}

static const char *const command_stats_options[] = {"json", "store", "help", NULL};

const struct cli_command cli_stats = {
    .name = "stats",
    .summary = "how many records, and what has happened",
    .synopsis = "[OPTIONS]",
    .text = "Counts the records by state, and what happened since the store was made: runs,\n"
            "replays, refusals, lost leases, superseded owners.\n",
    .after = "  idem stats --json\n",
    .no_operand = "takes no operand",
    .options = command_stats_options,
    .run_on_store = command_stats_run,
};
