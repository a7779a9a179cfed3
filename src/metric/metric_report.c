/*
 * The forms of a report: the status page, text for Prometheus, and JSON.
 */
#include "metric/metric_report.h"

#include <inttypes.h>
#include <string.h>

#include "base/base64.h"
#include "base/hash.h"
#include "base/units.h"
#include "base/visible.h"
#include "json/json_out.h"

/*
 * Selects the form of a report, and holds the page, which is one file that includes its style and
 * script.
 */

static const char page[] =
#include "status.html.h"
    ;

static const struct {
    const char *name, *type;
} forms[REPORT_FORMS] = {
    [REPORT_TEXT] = {"prometheus", "text/plain; version=0.0.4; charset=utf-8"},
    [REPORT_JSON] = {"json", "application/json"},
    [REPORT_PAGE] = {"html", "text/html; charset=utf-8"},
};

const char *report_type(enum report_form form) {
    return forms[form].type;
}

/* Returns the value of `format=`; .at is NULL if it is absent. */
static struct idem_http_text report_query_format(struct idem_http_text query) {
    struct idem_http_text parameter, name;

    while (idem_http_part_next(&query, '&', &parameter))
        if (memchr(parameter.at, '=', parameter.len) != NULL &&
            idem_http_part_next(&parameter, '=', &name) && idem_http_is(name, "format"))
            return parameter;
    return (struct idem_http_text){NULL, 0};
}

bool report_form(struct idem_http_text query, const struct idem_http_accept *accept,
                 enum report_form *ret) {
    struct idem_http_text format = report_query_format(query);

    if (format.at == NULL) {
        *ret = idem_http_accept_html(accept)   ? REPORT_PAGE
               : idem_http_accept_json(accept) ? REPORT_JSON
                                               : REPORT_TEXT;
        return true;
    }
    for (int form = 0; form < REPORT_FORMS; form++)
        if (idem_http_is(format, forms[form].name)) {
            *ret = (enum report_form)form;
            return true;
        }
    return false;
}

void report_write(const struct board *board, const struct report_origin *origin,
                  enum report_form form, FILE *out) {
    if (form == REPORT_TEXT)
        report_text(board, origin, out);
    else if (form == REPORT_JSON)
        report_json(board, origin, out);
    else
        fwrite(page, 1, sizeof(page) - 1, out);
}

/* The hash of the text between two tags, as a source of Content-Security-Policy. */
static bool report_source_make(const char *open, const char *close, char *buf, size_t size) {
    const char *begin = strstr(page, open), *end = begin == NULL ? NULL : strstr(begin, close);
    unsigned char hash[IDEM_HASH_LEN];
    char text[IDEM_BASE64_TEXT(IDEM_HASH_LEN)];

    if (end == NULL)
        return false;
    begin += strlen(open);
    if (idem_sha256((struct idem_bytes){(const unsigned char *)begin, (size_t)(end - begin)},
                    hash) != 0)
        return false;
    idem_base64_encode(hash, sizeof(hash), text);
    snprintf(buf, size, "'sha256-%s'", text);
    return true;
}

const char *report_page_policy(void) {
    static char policy[400];
    char style[80], script[80];

    if (policy[0] != '\0')
        return policy;
    if (!report_source_make("<style>", "</style>", style, sizeof(style)) ||
        !report_source_make("<script>", "</script>", script, sizeof(script)))
        return NULL;
    snprintf(policy, sizeof(policy),
             "default-src 'none'; style-src %s; script-src %s; connect-src 'self'; "
             "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
             style, script);
    return policy;
}

/*
 * Prometheus' text format, version 0.0.4. A family of the other front door is left out; each other
 * family has all its series from the start, so that a first event is visible as a change.
 */

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

static bool text_route_exists(const struct board *board, size_t i) {
    return i < BOARD_ROUTES && atomic_load(&board->routes[i].used) != 0;
}

static bool text_store_exists(const struct board *board, size_t i) {
    return i < BOARD_STORES && atomic_load(&board->stores[i].used) != 0;
}

static void text_route_print(FILE *out, const char *name, const struct board_route *route) {
    fprintf(out, "idem_%s", name);
    text_label_print(out, "route", route->name, true);
    text_label_print(out, "policy", route->policy, false);
}

static void text_verdicts_print(FILE *out, const struct board *board) {
    text_head_print(out, "verdicts_total", "counter",
                    "Requests or messages by how they were answered.");
    for (size_t i = 0; text_route_exists(board, i); i++)
        for (size_t v = 0; v < BOARD_VERDICTS; v++) {
            text_route_print(out, "verdicts_total", &board->routes[i]);
            text_label_print(out, "verdict", board_verdict_name((enum board_verdict)v), false);
            fprintf(out, "} %" PRIu64 "\n", board_get(&board->routes[i].verdicts[v]));
        }
}

/* The counts of routes. */
static const struct {
    const char *name, *help;
    enum board_count count;
    int door;
} route_families[] = {
    {"tokens_issued_total", "Tokens that were issued.", BOARD_TOKEN_ISSUED, OF_HTTP},
    {"tokens_spent_total", "Tokens with which an operation began.", BOARD_TOKEN_SPENT, OF_HTTP},
    {"results_not_kept_total",
     "Operations that were done and whose result was not stored: too long, a stream, the "
     "backend's wish, or no room in the store.",
     BOARD_NOT_KEPT, OF_HTTP},
    {"answers_lost_total", "Responses whose owner was superseded while the backend worked.",
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

static void text_routes_print(FILE *out, const struct board *board, int door) {
    for (size_t f = 0; f < sizeof(route_families) / sizeof(route_families[0]); f++) {
        if (route_families[f].door != OF_BOTH && route_families[f].door != door)
            continue;
        text_head_print(out, route_families[f].name, "counter", route_families[f].help);
        for (size_t i = 0; text_route_exists(board, i); i++) {
            text_route_print(out, route_families[f].name, &board->routes[i]);
            fprintf(out, "} %" PRIu64 "\n",
                    board_get(&board->routes[i].counts[route_families[f].count]));
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
    for (size_t i = 0; text_route_exists(board, i); i++) {
        text_labels_make(labels, sizeof(labels), "route", board->routes[i].name, "policy",
                         board->routes[i].policy);
        text_histogram_print(out, "handler_seconds", labels, &board->routes[i].handler);
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

void report_text(const struct board *board, const struct report_origin *origin, FILE *out) {
    int of = strcmp(origin->door, "http") == 0 ? OF_HTTP : OF_QUEUE;

    text_head_print(out, "build_info", "gauge", "Which version this is, and which front door.");
    fputs("idem_build_info", out);
    text_label_print(out, "version", idem_version(), true);
    text_label_print(out, "door", origin->door, false);
    fputs("} 1\n", out);
    text_head_print(out, "start_time_seconds", "gauge", "Since when there are these counts.");
    fprintf(out, "idem_start_time_seconds %.3f\n", (double)board->started_ms / 1000);
    text_verdicts_print(out, board);
    text_routes_print(out, board, of);
    text_processes_print(out, board, of);
    text_stores_print(out, board);
    text_times_print(out, board, of);
    text_surveys_print(out, board);
}

/*
 * The board as JSON: for programs, and for the page, which draws it.
 */

static void json_counts_write(struct json_out *json, const struct board_route *route) {
    json_out_open(json, "verdicts");
    for (size_t v = 0; v < BOARD_VERDICTS; v++)
        json_out_uint(json, board_verdict_name((enum board_verdict)v),
                      board_get(&route->verdicts[v]));
    json_out_close(json);
    json_out_open(json, "counts");
    for (size_t c = 0; c < BOARD_COUNTS; c++)
        json_out_uint(json, board_count_name((enum board_count)c), board_get(&route->counts[c]));
    json_out_close(json);
}

static void json_route_store_write(struct json_out *json, const struct board *board,
                                   const struct board_route *route) {
    const struct board_store *store = board_route_store(board, route);

    if (store == NULL)
        json_out_null(json, "store");
    else
        json_out_text(json, "store", store->name);
}

static void json_routes_write(struct json_out *json, const struct board *board) {
    json_out_list(json, "rows");
    for (size_t i = 0; i < BOARD_ROUTES && atomic_load(&board->routes[i].used) != 0; i++) {
        json_out_open(json, NULL);
        json_out_text(json, "route", board->routes[i].name);
        json_out_text(json, "policy", board->routes[i].policy);
        json_route_store_write(json, board, &board->routes[i]);
        json_counts_write(json, &board->routes[i]);
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
        const struct board_route *route = &board->routes[notes[i].route];

        json_out_open(json, NULL);
        json_out_text(json, "hash", notes[i].hash);
        json_out_text(json, "label", notes[i].label);
        json_out_text(json, "route", route->name);
        json_out_text(json, "policy", route->policy);
        json_route_store_write(json, board, route);
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

void report_json(const struct board *board, const struct report_origin *origin, FILE *out) {
    struct json_out json = {.out = out};
    struct board_process now;

    board_processes(board, &now);
    json_out_open(&json, NULL);
    json_out_text(&json, "version", idem_version());
    json_out_text(&json, "door", origin->door);
    if (origin->token != NULL)
        json_out_text(&json, "admin", origin->token);
    json_out_int(&json, "now", board_now());
    json_out_int(&json, "started", board->started_ms);
    json_out_int(&json, "running", atomic_load(&now.running));
    json_out_int(&json, "parked", atomic_load(&now.parked));
    if (strcmp(origin->door, "queue") == 0) {
        json_out_int(&json, "in_hand", atomic_load(&now.in_hand));
        json_out_int(&json, "handled_now", atomic_load(&now.working));
    }
    json_routes_write(&json, board);
    json_out_list(&json, "stores");
    for (size_t i = 0; i < BOARD_STORES && atomic_load(&board->stores[i].used) != 0; i++)
        json_store_write(&json, board, &board->stores[i]);
    json_out_list_end(&json);
    json_notes_write(&json, board);
    json_samples_write(&json, board);
    json_out_line(&json);
}
