/*
 * Prometheus' text format, version 0.0.4. A family of the other front door is left out; each other
 * family has all its series from the start, so that a first event is visible as a change.
 */
#include <inttypes.h>
#include <string.h>

#include "base/units.h"
#include "base/visible.h"
#include "metric/metric_report.h"

enum { OF_BOTH, OF_HTTP, OF_QUEUE };

/* Writes the value of a label: always UTF-8, with its three escapes. A character that is not
   visible is written as its code, so that two names that differ only there stay two series. */
static void text_value_print(FILE *out, const char *text) {
    size_t len = strlen(text), n;
    char code[IDEM_VISIBLE_JSON];
    uint32_t c;

    for (; len > 0; text += n, len -= n) {
        n = idem_utf8_next(text, len, &c);
        if (n == 0) {
            fputc('?', out);
            n = 1;
        } else if (c == '\\' || c == '"') {
            fprintf(out, "\\%c", (int)c);
        } else if (c == '\n') {
            fputs("\\n", out);
        } else if (!idem_visible(c)) {
            idem_visible_json(c, code);
            for (const char *at = code; *at != '\0'; at++)
                fprintf(out, *at == '\\' ? "\\%c" : "%c", *at);
        } else {
            fwrite(text, 1, n, out);
        }
    }
}

static void text_label_print(FILE *out, const char *name, const char *value, bool first) {
    fprintf(out, "%s%s=\"", first ? "{" : ",", name);
    text_value_print(out, value);
    fputc('"', out);
}

static void text_head_print(FILE *out, const char *name, const char *type, const char *help) {
    fprintf(out, "# HELP idem_%s %s\n# TYPE idem_%s %s\n", name, help, name, type);
}

static bool text_row_exists(const struct board *board, size_t i) {
    return i < BOARD_ROWS && atomic_load(&board->rows[i].used) != 0;
}

static bool text_store_exists(const struct board *board, size_t i) {
    return i < BOARD_STORES && atomic_load(&board->stores[i].used) != 0;
}

static void text_row_print(FILE *out, const char *name, const struct board_row *row) {
    fprintf(out, "idem_%s", name);
    text_label_print(out, "route", row->route, true);
    text_label_print(out, "policy", row->policy, false);
}

static void text_verdicts_print(FILE *out, const struct board *board) {
    text_head_print(out, "verdicts_total", "counter",
                    "Requests or messages by how they were answered.");
    for (size_t i = 0; text_row_exists(board, i); i++)
        for (size_t v = 0; v < BOARD_VERDICTS; v++) {
            text_row_print(out, "verdicts_total", &board->rows[i]);
            text_label_print(out, "verdict", board_verdict_name((enum board_verdict)v), false);
            fprintf(out, "} %" PRIu64 "\n", board_get(&board->rows[i].verdicts[v]));
        }
}

/* The counts of rows. */
static const struct {
    const char *name, *help;
    enum board_count count;
    int door;
} row_families[] = {
    {"tokens_issued_total", "Tokens that were issued.", BOARD_TOKEN_ISSUED, OF_HTTP},
    {"tokens_spent_total", "Tokens with which an operation began.", BOARD_TOKEN_SPENT, OF_HTTP},
    {"results_not_kept_total",
     "Operations that were done and whose result was not stored: too long, a stream, the "
     "backend's wish, or no room in the store.",
     BOARD_NOT_KEPT, OF_HTTP},
    {"answers_lost_total", "Answers whose owner was superseded while the backend worked.",
     BOARD_LOST, OF_HTTP},
    {"cancelled_total", "Runs that were ended because their lease was lost or run_max over.",
     BOARD_CANCELLED, OF_BOTH},
    {"outcomes_unknown_total", "Runs whose outcome is unknown.", BOARD_UNKNOWN, OF_BOTH},
    {"shadowed_total",
     "Requests that passed in shadow mode and would have been refused or replayed.", BOARD_SHADOWED,
     OF_HTTP},
    {"messages_done_total", "Messages that were handled.", BOARD_DONE, OF_QUEUE},
    {"messages_retried_total", "Messages that failed and are to be tried again.", BOARD_RETRIED,
     OF_QUEUE},
    {"messages_buried_total", "Messages that were put among the dead letters.", BOARD_BURIED,
     OF_QUEUE},
    {"messages_unburied_total", "Dead letters that the broker did not take.", BOARD_UNBURIED,
     OF_QUEUE},
};

static void text_rows_print(FILE *out, const struct board *board, int door) {
    for (size_t f = 0; f < sizeof(row_families) / sizeof(row_families[0]); f++) {
        if (row_families[f].door != OF_BOTH && row_families[f].door != door)
            continue;
        text_head_print(out, row_families[f].name, "counter", row_families[f].help);
        for (size_t i = 0; text_row_exists(board, i); i++) {
            text_row_print(out, row_families[f].name, &board->rows[i]);
            fprintf(out, "} %" PRIu64 "\n",
                    board_get(&board->rows[i].counts[row_families[f].count]));
        }
    }
}

/* The counts of stores. */
static const struct {
    const char *name, *help;
    enum idem_event event;
} store_families[] = {
    {"superseded_total", "Owners that were superseded before they finished.",
     IDEM_EVENT_SUPERSEDED},
    {"leases_lost_total", "Runs whose lease was gone, or that took longer than run_max.",
     IDEM_EVENT_LEASE_LOST},
    {"unstored_total", "Ends of runs that the store did not acknowledge in time.",
     IDEM_EVENT_UNSTORED},
    {"unguarded_total", "Runs without a guard, since the store was away (on_store_error=open).",
     IDEM_EVENT_UNGUARDED},
    {"results_dropped_total",
     "Ends of runs that were stored without their result, since the store had no room for it.",
     IDEM_EVENT_RESULT_DROPPED},
    {"store_errors_total", "Operations that the store refused, failed or did not answer.",
     IDEM_EVENT_STORE_ERROR},
};

static void text_store_print(FILE *out, const char *name, const struct board_store *store) {
    fprintf(out, "idem_%s", name);
    text_label_print(out, "store", store->name, true);
}

static void text_stores_print(FILE *out, const struct board *board) {
    for (size_t f = 0; f < sizeof(store_families) / sizeof(store_families[0]); f++) {
        text_head_print(out, store_families[f].name, "counter", store_families[f].help);
        for (size_t i = 0; text_store_exists(board, i); i++) {
            text_store_print(out, store_families[f].name, &board->stores[i]);
            fprintf(out, "} %" PRIu64 "\n",
                    board_get(&board->stores[i].events[store_families[f].event]));
        }
    }
    text_head_print(out, "store_reconnects_total", "counter",
                    "Connections to the store that were made anew.");
    for (size_t i = 0; text_store_exists(board, i); i++) {
        text_store_print(out, "store_reconnects_total", &board->stores[i]);
        fprintf(out, "} %" PRIu64 "\n", board_get(&board->stores[i].reconnects));
    }
}

/* Histograms. */

/* `labels` is `{labels` without its closing brace, which is added here. */
static void text_histogram_print(FILE *out, const char *name, const char *labels,
                                 const struct board_histogram *histogram) {
    uint64_t n = 0;

    for (size_t i = 0; i < BOARD_BOUNDS; i++) {
        n += board_get(&histogram->counts[i]);
        fprintf(out, "idem_%s_bucket%s,le=\"%g\"} %" PRIu64 "\n", name, labels,
                (double)board_bounds[i] / 1e6, n);
    }
    n += board_get(&histogram->counts[BOARD_BOUNDS]);
    fprintf(out, "idem_%s_bucket%s,le=\"+Inf\"} %" PRIu64 "\n", name, labels, n);
    fprintf(out, "idem_%s_sum%s} %.6f\n", name, labels,
            (double)board_get(&histogram->sum_us) / 1e6);
    fprintf(out, "idem_%s_count%s} %" PRIu64 "\n", name, labels, n);
}

/* Formats labels as text that is used several times. */
static void text_labels_make(char *buf, size_t size, const char *name, const char *value,
                             const char *name2, const char *value2) {
    FILE *out = fmemopen(buf, size, "w");

    buf[0] = '\0';
    if (out == NULL)
        return;
    text_label_print(out, name, value, true);
    text_label_print(out, name2, value2, false);
    fclose(out);
    buf[size - 1] = '\0';
}

static void text_times_print(FILE *out, const struct board *board, int door) {
    static const char *const ops[BOARD_OPS] = {"claim", "finish", "other"};
    char labels[2 * (BOARD_ROUTE_MAX + BOARD_STORE_MAX + IDEM_PREFIX_MAX) + 64];

    text_head_print(out, "store_seconds", "histogram", "How long the store took to answer.");
    for (size_t i = 0; text_store_exists(board, i); i++)
        for (size_t op = 0; op < BOARD_OPS; op++) {
            text_labels_make(labels, sizeof(labels), "store", board->stores[i].name, "op", ops[op]);
            text_histogram_print(out, "store_seconds", labels, &board->stores[i].ops[op]);
        }
    if (door != OF_QUEUE)
        return;
    text_head_print(out, "handler_seconds", "histogram", "How long messages took to be handled.");
    for (size_t i = 0; text_row_exists(board, i); i++) {
        text_labels_make(labels, sizeof(labels), "route", board->rows[i].route, "policy",
                         board->rows[i].policy);
        text_histogram_print(out, "handler_seconds", labels, &board->rows[i].handler);
    }
}

/* Gauges. */

static void text_gauge_print(FILE *out, const char *name, const char *help, int64_t value) {
    text_head_print(out, name, "gauge", help);
    fprintf(out, "idem_%s %" PRId64 "\n", name, value);
}

static void text_processes_print(FILE *out, const struct board *board, int door) {
    struct board_process now;

    board_processes(board, &now);
    text_gauge_print(out, "claims_in_flight", "Operations that run now, in these processes.",
                     now.running);
    text_gauge_print(out, "waiters_parked", "Duplicates that wait for the first one's end.",
                     now.parked);
    if (door != OF_QUEUE)
        return;
    text_gauge_print(out, "messages_in_hand", "Messages that were fetched and are not settled yet.",
                     now.in_hand);
    text_gauge_print(out, "messages_handled_now", "Messages that a handler is at.", now.working);
}

/* Writes only stores with at least one finished survey. */
static void text_surveys_print(FILE *out, const struct board *board) {
    struct board_survey survey;
    int64_t age;

    text_head_print(
        out, "records", "gauge",
        "Records in the store that run, and those whose run vanished, as last counted.");
    for (size_t i = 0; text_store_exists(board, i); i++) {
        board_survey_get(board, &board->stores[i], &survey);
        if (survey.at_ms == 0)
            continue;
        text_store_print(out, "records", &board->stores[i]);
        fprintf(out, ",state=\"running\"} %" PRIu64 "\n", survey.running);
        text_store_print(out, "records", &board->stores[i]);
        fprintf(out, ",state=\"uncertain\"} %" PRIu64 "\n", survey.uncertain);
    }
    text_head_print(out, "oldest_uncertain_seconds", "gauge",
                    "Seconds since the oldest run with an unknown outcome began.");
    for (size_t i = 0; text_store_exists(board, i); i++) {
        board_survey_get(board, &board->stores[i], &survey);
        if (survey.at_ms == 0)
            continue;
        age = survey.oldest_ms == 0 ? 0 : board_now() - survey.oldest_ms;
        text_store_print(out, "oldest_uncertain_seconds", &board->stores[i]);
        fprintf(out, "} %.3f\n", age > 0 ? (double)age / 1000 : 0);
    }
    text_head_print(out, "records_counted_timestamp_seconds", "gauge",
                    "When the records were last counted.");
    for (size_t i = 0; text_store_exists(board, i); i++) {
        board_survey_get(board, &board->stores[i], &survey);
        if (survey.at_ms == 0)
            continue;
        text_store_print(out, "records_counted_timestamp_seconds", &board->stores[i]);
        fprintf(out, "} %.3f\n", (double)survey.at_ms / 1000);
    }
}

void report_text(const struct board *board, const struct report_who *who, FILE *out) {
    int of = strcmp(who->door, "http") == 0 ? OF_HTTP : OF_QUEUE;

    text_head_print(out, "build_info", "gauge", "Which version this is, and which front door.");
    fputs("idem_build_info", out);
    text_label_print(out, "version", idem_version(), true);
    text_label_print(out, "door", who->door, false);
    fputs("} 1\n", out);
    text_head_print(out, "start_time_seconds", "gauge", "Since when there are these counts.");
    fprintf(out, "idem_start_time_seconds %.3f\n", (double)board->started_ms / 1000);
    text_verdicts_print(out, board);
    text_rows_print(out, board, of);
    text_processes_print(out, board, of);
    text_stores_print(out, board);
    text_times_print(out, board, of);
    text_surveys_print(out, board);
}
