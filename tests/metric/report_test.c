/* The two texts of a board: Prometheus' format, and JSON. */
#include "metric/metric_report.h"

#include "test.h"
#include "json/json.h"

#define HASH "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

static struct board *board_new(void) {
    struct board *board = calloc(1, BOARD_SIZE);

    CHECK(board != NULL);
    CHECK(board_init(board));
    return board;
}

static char *report(void (*make)(const struct board *, const struct report_origin *, FILE *),
                    const struct board *board, const char *door) {
    struct report_origin origin = {.door = door};
    size_t len;
    char *text;
    FILE *out = open_memstream(&text, &len);

    CHECK(out != NULL);
    make(board, &origin, out);
    fclose(out);
    return text;
}

static struct board *board_filled(void) {
    struct board *board = board_new();
    struct board_route *route = board_route(board, "http", "a \"b\" \\ /orders", "order:");
    struct board_store *store = board_store(board, "redis://cache:6379/0");
    struct board_survey survey = {.at_ms = 1000, .running = 3, .uncertain = 2, .oldest_ms = 500};

    board_add(&route->verdicts[BOARD_RUN], 5);
    board_add(&route->verdicts[BOARD_SIGNATURE_STALE], 2);
    board_add(&route->counts[BOARD_TOKEN_SPENT], 4);
    board_observe(&store->ops[BOARD_OP_CLAIM], 80);
    board_observe(&store->ops[BOARD_OP_CLAIM], 60000000);
    board_add(&store->events[IDEM_EVENT_SUPERSEDED], 9);
    board_add(&store->reconnects, 1);
    board_store_answered(store);
    board_route_set_store(board, route, store);
    survey.oldest_n[1] = 1;
    snprintf(survey.oldest[1][0].hash, 65, "%s", HASH);
    snprintf(survey.oldest[1][0].label, 10, "order 7");
    board_survey_set(store, &survey);
    board_change(&board_process(board, getpid())->running, 6);
    board_refused(board, route, BOARD_MISMATCH, HASH, "order \x01 8");
    return board;
}

TEST(prometheus_text_has_every_family_with_its_labels) {
    static const char *const lines[] = {
        "# TYPE idem_verdicts_total counter\n",
        "idem_verdicts_total{route=\"a \\\"b\\\" \\\\ /orders\",policy=\"order:\",verdict=\"run\"} "
        "5\n",
        "policy=\"order:\",verdict=\"signature_stale\"} 2\n",
        "policy=\"order:\",verdict=\"replay\"} 0\n",
        "idem_tokens_spent_total{route=\"a \\\"b\\\" \\\\ /orders\",policy=\"order:\"} 4\n",
        "idem_superseded_total{store=\"redis://cache:6379/0\"} 9\n",
        "idem_store_reconnects_total{store=\"redis://cache:6379/0\"} 1\n",
        "idem_store_seconds_bucket{store=\"redis://cache:6379/0\",op=\"claim\",le=\"5e-05\"} 0\n",
        "idem_store_seconds_bucket{store=\"redis://cache:6379/0\",op=\"claim\",le=\"0.0001\"} 1\n",
        "idem_store_seconds_bucket{store=\"redis://cache:6379/0\",op=\"claim\",le=\"10\"} 1\n",
        "idem_store_seconds_bucket{store=\"redis://cache:6379/0\",op=\"claim\",le=\"+Inf\"} 2\n",
        "idem_store_seconds_sum{store=\"redis://cache:6379/0\",op=\"claim\"} 60.000080\n",
        "idem_store_seconds_count{store=\"redis://cache:6379/0\",op=\"claim\"} 2\n",
        "idem_claims_in_flight 6\n",
        "idem_waiters_parked 0\n",
        "idem_records{store=\"redis://cache:6379/0\",state=\"uncertain\"} 2\n",
        "idem_records_counted_timestamp_seconds{store=\"redis://cache:6379/0\"} 1.000\n",
        "idem_build_info{version=",
    };
    struct board *board = board_filled();
    char *text = report(report_text, board, "http");

    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++)
        CHECK_HAS(text, lines[i]);
    CHECK(strstr(text, "idem_messages") == NULL);
    CHECK(strstr(text, HASH) == NULL);
    free(text);
    text = report(report_text, board, "queue");
    CHECK_HAS(text, "idem_messages_done_total{");
    CHECK_HAS(text, "idem_handler_seconds_count{");
    CHECK(strstr(text, "tokens_issued") == NULL);
    free(text);
    free(board);
}

TEST(records_that_were_never_counted_are_not_shown_as_none) {
    struct board *board = board_new();
    char *text;

    (void)board_store(board, "lmdb:/x");
    text = report(report_text, board, "http");
    CHECK(strstr(text, "idem_records{") == NULL);
    free(text);
    text = report(report_json, board, "http");
    CHECK_HAS(text, "\"records\":null");
    free(text);
    free(board);
}

static const struct idem_json *member(const struct idem_json *of, const char *name) {
    const struct idem_json *at = idem_json_get(of, name, strlen(name));

    if (at == NULL)
        fprintf(stderr, "# no member %s\n", name);
    CHECK(at != NULL);
    return at;
}

#define CHECK_TEXT(json, want)                                                                     \
    CHECK((json)->n == strlen(want) && memcmp((json)->at.text, want, (json)->n) == 0)

TEST(json_is_json_and_has_the_same) {
    struct board *board = board_filled();
    struct idem_arena arena;
    struct idem_json all;
    const struct idem_json *route, *store, *note, *old;
    char *text;

    board_sample(board);
    board->sampled_ms -= BOARD_SAMPLE_MS;
    board->samples[0].at_ms -= BOARD_SAMPLE_MS;
    board_add(&board->routes[0].verdicts[BOARD_RUN], 2);
    board_sample(board);
    text = report(report_json, board, "http");
    idem_arena_init(&arena, 1 << 20);
    CHECK_INT(idem_json_parse(text, strlen(text), &arena, &all, NULL), 0);
    route = &member(&all, "rows")->at.items[0];
    CHECK_TEXT(member(route, "route"), "a \"b\" \\ /orders");
    CHECK_TEXT(member(member(route, "verdicts"), "run"), "7");
    store = &member(&all, "stores")->at.items[0];
    CHECK_TEXT(member(member(member(store, "times"), "claim"), "count"), "2");
    CHECK_TEXT(member(member(store, "events"), "superseded"), "9");
    old = &member(member(store, "records"), "oldest_uncertain")->at.items[0];
    CHECK_TEXT(member(old, "label"), "order 7");
    note = &member(&all, "refusals")->at.items[0];
    CHECK_TEXT(member(note, "hash"), HASH);
    CHECK_TEXT(member(note, "label"), "order ? 8");
    CHECK_TEXT(member(note, "verdict"), "mismatch");
    CHECK_TEXT(member(note, "store"), "redis://cache:6379/0");
    CHECK_TEXT(member(route, "store"), "redis://cache:6379/0");
    CHECK(strcmp(member(store, "answered")->at.text, "0") != 0);
    CHECK_TEXT(member(store, "failed"), "0");
    CHECK_INT(member(&all, "intervals")->n, 1);
    CHECK_TEXT(member(member(&member(&all, "intervals")->at.items[0], "verdicts"), "run"), "2");
    CHECK_TEXT(member(member(member(&all, "last_minute"), "verdicts"), "run"), "2");
    CHECK(idem_json_get(&all, "admin", 5) == NULL);
    idem_arena_free(&arena);
    free(text);
    free(board);
}

/* Ninety in a hundred are quick, eight take some milliseconds, two take seconds. */
static void times_fill(struct board_histogram *histogram) {
    for (int i = 0; i < 100; i++)
        board_observe(histogram, i < 90 ? 80 : i < 98 ? 4000 : 3000000);
}

static void times_check(const struct idem_json *times) {
    static const struct {
        const char *name;
        int64_t least, most;
    } parts[] = {{"p50_us", 50, 100}, {"p95_us", 2500, 5000}, {"p99_us", 1000000, 5000000}};

    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        int64_t us = strtoll(member(times, parts[i].name)->at.text, NULL, 10);

        CHECK(us >= parts[i].least && us <= parts[i].most);
    }
}

TEST(half_most_and_nearly_all_of_the_times_are_told_apart) {
    struct board *board = board_new();
    struct board_store *store = board_store(board, "lmdb:/x");
    struct idem_arena arena;
    struct idem_json all;
    const struct idem_json *times;
    char *text;

    board_sample(board);
    board->sampled_ms -= BOARD_SAMPLE_MS;
    board->samples[0].at_ms -= BOARD_SAMPLE_MS;
    times_fill(&store->ops[BOARD_OP_FINISH]);
    board_sample(board);
    text = report(report_json, board, "http");
    idem_arena_init(&arena, 1 << 20);
    CHECK_INT(idem_json_parse(text, strlen(text), &arena, &all, NULL), 0);
    times = member(&member(&all, "stores")->at.items[0], "times");
    times_check(member(times, "finish"));
    CHECK_TEXT(member(member(times, "finish"), "sum_us"), "6039200");
    CHECK_TEXT(member(member(times, "claim"), "count"), "0");
    times_check(&member(&all, "intervals")->at.items[0]);
    times_check(member(&all, "last_minute"));
    idem_arena_free(&arena);
    free(text);
    free(board);
}

TEST(what_nobody_sees_in_a_name_is_shown) {
    struct board *board = board_new();
    struct board_route *route = board_route(board, "http", "/a\xe2\x80\x8b", "p:");
    char *text;

    (void)board_route(board, "http", "/a\xf3\xa0\x81\x81", "p:");
    board_refused(board, route, BOARD_MISMATCH, NULL,
                  "7\xe2\x80\xae"
                  "8");
    text = report(report_text, board, "http");
    CHECK_HAS(text, "route=\"/a\\\\u200b\"");
    CHECK_HAS(text, "route=\"/a\\\\udb40\\\\udc41\"");
    CHECK(strstr(text, "\xe2\x80\x8b") == NULL && strstr(text, "\xf3\xa0") == NULL);
    free(text);
    text = report(report_json, board, "http");
    CHECK_HAS(text, "\"label\":\"7\\u202e8\"");
    CHECK_HAS(text, "\"route\":\"/a\\u200b\"");
    free(text);
    free(board);
}

TEST(a_name_that_is_not_utf8_does_not_spoil_either) {
    struct board *board = board_new();
    struct idem_arena arena;
    struct idem_json all;
    char *text;

    (void)board_route(board, "http", "caf\xe9 /", "p:");
    text = report(report_text, board, "http");
    CHECK_HAS(text, "route=\"caf? /\"");
    free(text);
    text = report(report_json, board, "http");
    idem_arena_init(&arena, 1 << 20);
    CHECK_INT(idem_json_parse(text, strlen(text), &arena, &all, NULL), 0);
    idem_arena_free(&arena);
    free(text);
    free(board);
}

TEST_MAIN
