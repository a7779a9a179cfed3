/*
 * The board as JSON: for programs, and for the page, which draws it.
 */
#include <string.h>

#include "metric/metric_report.h"
#include "json/json_out.h"

static void json_counts_write(struct json_out *json, const struct board_row *row) {
    json_out_open(json, "verdicts");
    for (size_t v = 0; v < BOARD_VERDICTS; v++)
        json_out_uint(json, board_verdict_name((enum board_verdict)v),
                      board_get(&row->verdicts[v]));
    json_out_close(json);
    json_out_open(json, "counts");
    for (size_t c = 0; c < BOARD_COUNTS; c++)
        json_out_uint(json, board_count_name((enum board_count)c), board_get(&row->counts[c]));
    json_out_close(json);
}

static void json_row_store_write(struct json_out *json, const struct board *board,
                                 const struct board_row *row) {
    const struct board_store *store = board_row_store(board, row);

    if (store == NULL)
        json_out_null(json, "store");
    else
        json_out_text(json, "store", store->name);
}

static void json_rows_write(struct json_out *json, const struct board *board) {
    json_out_list(json, "rows");
    for (size_t i = 0; i < BOARD_ROWS && atomic_load(&board->rows[i].used) != 0; i++) {
        json_out_open(json, NULL);
        json_out_text(json, "route", board->rows[i].route);
        json_out_text(json, "policy", board->rows[i].policy);
        json_row_store_write(json, board, &board->rows[i]);
        json_counts_write(json, &board->rows[i]);
        json_out_close(json);
    }
    json_out_list_end(json);
}

/* Stores. */

static void json_times_write(struct json_out *json, const char *name,
                             const struct board_histogram *histogram) {
    uint64_t counts[BOARD_BOUNDS + 1], n = 0;

    for (size_t i = 0; i <= BOARD_BOUNDS; i++)
        n += counts[i] = board_get(&histogram->counts[i]);
    json_out_open(json, name);
    json_out_uint(json, "count", n);
    json_out_uint(json, "sum_us", board_get(&histogram->sum_us));
    json_out_int(json, "p50_us", board_quantile(counts, 500));
    json_out_int(json, "p95_us", board_quantile(counts, 950));
    json_out_int(json, "p99_us", board_quantile(counts, 990));
    json_out_close(json);
}

static void json_found_write(struct json_out *json, const struct board_found *found) {
    json_out_open(json, NULL);
    json_out_text(json, "hash", found->hash);
    json_out_text(json, "prefix", found->prefix);
    json_out_text(json, "label", found->label);
    json_out_text(json, "reason", found->reason);
    json_out_uint(json, "attempt", found->attempt);
    json_out_int(json, "since", found->changed_ms);
    json_out_close(json);
}

static void json_survey_write(struct json_out *json, const struct board *board,
                              const struct board_store *store) {
    static const char *const names[2] = {"oldest_running", "oldest_uncertain"};
    struct board_survey survey;

    board_survey_get(board, store, &survey);
    if (survey.at_ms == 0) {
        json_out_null(json, "records");
        return;
    }
    json_out_open(json, "records");
    json_out_int(json, "counted", survey.at_ms);
    json_out_uint(json, "running", survey.running);
    json_out_uint(json, "uncertain", survey.uncertain);
    for (size_t list = 0; list < 2; list++) {
        json_out_list(json, names[list]);
        for (size_t i = 0; i < survey.oldest_n[list] && i < BOARD_OLDEST; i++)
            json_found_write(json, &survey.oldest[list][i]);
        json_out_list_end(json);
    }
    json_out_close(json);
}

static void json_store_write(struct json_out *json, const struct board *board,
                             const struct board_store *store) {
    static const char *const ops[BOARD_OPS] = {"claim", "finish", "other"};

    json_out_open(json, NULL);
    json_out_text(json, "name", store->name);
    json_out_open(json, "events");
    for (int i = 0; i < IDEM_EVENT__COUNT; i++)
        json_out_uint(json, idem_event_name((enum idem_event)i), board_get(&store->events[i]));
    json_out_close(json);
    json_out_uint(json, "reconnects", board_get(&store->reconnects));
    json_out_int(json, "answered", atomic_load(&store->answered_ms));
    json_out_int(json, "failed", atomic_load(&store->failed_ms));
    json_out_open(json, "times");
    for (size_t op = 0; op < BOARD_OPS; op++)
        json_times_write(json, ops[op], &store->ops[op]);
    json_out_close(json);
    json_survey_write(json, board, store);
    json_out_close(json);
}

/* Notes and samples. */

static void json_notes_write(struct json_out *json, const struct board *board) {
    struct board_note notes[BOARD_NOTES];
    size_t n = board_notes(board, notes, BOARD_NOTES);

    json_out_list(json, "refusals");
    for (size_t i = 0; i < n; i++) {
        const struct board_row *row = &board->rows[notes[i].row];

        json_out_open(json, NULL);
        json_out_text(json, "hash", notes[i].hash);
        json_out_text(json, "label", notes[i].label);
        json_out_text(json, "route", row->route);
        json_out_text(json, "policy", row->policy);
        json_row_store_write(json, board, row);
        json_out_text(json, "verdict", board_verdict_name((enum board_verdict)notes[i].verdict));
        json_out_int(json, "at", notes[i].at_ms);
        json_out_close(json);
    }
    json_out_list_end(json);
}

/* The increase between two samples. If the count is smaller, the board was restarted at 0. */
static uint64_t json_increase(uint64_t now, uint64_t before) {
    return now >= before ? now - before : now;
}

static void json_interval_write(struct json_out *json, const char *name,
                                const struct board_sample *sample,
                                const struct board_sample *before) {
    uint64_t ops[BOARD_BOUNDS + 1];

    for (size_t i = 0; i <= BOARD_BOUNDS; i++)
        ops[i] = json_increase(sample->ops[i], before->ops[i]);
    json_out_open(json, name);
    json_out_int(json, "at", sample->at_ms);
    json_out_int(json, "ms", sample->at_ms - before->at_ms);
    json_out_open(json, "verdicts");
    for (size_t v = 0; v < BOARD_VERDICTS; v++) {
        uint64_t n = json_increase(sample->verdicts[v], before->verdicts[v]);

        if (n != 0)
            json_out_uint(json, board_verdict_name((enum board_verdict)v), n);
    }
    json_out_close(json);
    json_out_int(json, "p50_us", board_quantile(ops, 500));
    json_out_int(json, "p95_us", board_quantile(ops, 950));
    json_out_int(json, "p99_us", board_quantile(ops, 990));
    json_out_close(json);
}

#define MINUTE ((size_t)60000 / BOARD_SAMPLE_MS)

static void json_samples_write(struct json_out *json, const struct board *board) {
    struct board_sample samples[BOARD_SAMPLES];
    size_t n = board_samples(board, samples, BOARD_SAMPLES);

    json_out_list(json, "intervals");
    for (size_t i = 1; i < n; i++)
        if (samples[i].at_ms > samples[i - 1].at_ms)
            json_interval_write(json, NULL, &samples[i], &samples[i - 1]);
    json_out_list_end(json);
    if (n < 2)
        json_out_null(json, "last_minute");
    else
        json_interval_write(json, "last_minute", &samples[n - 1],
                            &samples[n > MINUTE ? n - 1 - MINUTE : 0]);
}

void report_json(const struct board *board, const struct report_who *who, FILE *out) {
    struct json_out json = {.out = out};
    struct board_process now;

    board_processes(board, &now);
    json_out_open(&json, NULL);
    json_out_text(&json, "version", idem_version());
    json_out_text(&json, "door", who->door);
    if (who->token != NULL)
        json_out_text(&json, "admin", who->token);
    json_out_int(&json, "now", board_now());
    json_out_int(&json, "started", board->started_ms);
    json_out_int(&json, "running", atomic_load(&now.running));
    json_out_int(&json, "parked", atomic_load(&now.parked));
    if (strcmp(who->door, "queue") == 0) {
        json_out_int(&json, "in_hand", atomic_load(&now.in_hand));
        json_out_int(&json, "handled_now", atomic_load(&now.working));
    }
    json_rows_write(&json, board);
    json_out_list(&json, "stores");
    for (size_t i = 0; i < BOARD_STORES && atomic_load(&board->stores[i].used) != 0; i++)
        json_store_write(&json, board, &board->stores[i]);
    json_out_list_end(&json);
    json_notes_write(&json, board);
    json_samples_write(&json, board);
    json_out_line(&json);
}
