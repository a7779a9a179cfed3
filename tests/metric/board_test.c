/*
 * The board: counted by several processes and threads at once, read by others.
 */
#include "metric/metric_board.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "test.h"

static struct board *board_new(void) {
    struct board *board =
        mmap(NULL, BOARD_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    CHECK(board != MAP_FAILED);
    CHECK(board_init(board));
    return board;
}

TEST(rows_are_found_again_by_their_names) {
    struct board *board = board_new();
    struct board_route *a = board_route(board, "http", "shop /orders", "order:");

    CHECK(board_route(board, "http", "shop /orders", "order:") == a);
    CHECK(board_route(board, "http", "shop /orders", "pay:") != a);
    CHECK(board_route(board, "http", "shop /pay", "order:") != a);
    CHECK(board_route(board, "queue", "shop /orders", "order:") != a);
    CHECK(board_init(board)); /* the process takes over the board, as after a reload */
    CHECK(board_route(board, "http", "shop /orders", "order:") == a);
}

TEST(memory_of_another_layout_is_not_taken_over) {
    struct board *board = board_new();

    board->layout ^= 16;
    CHECK(!board_init(board));
}

TEST(what_has_no_room_is_counted_together) {
    struct board *board = board_new();
    struct board_route *last = NULL;
    char route[32];

    for (int i = 0; i < BOARD_ROUTES + 10; i++) {
        snprintf(route, sizeof(route), "r%d", i);
        last = board_route(board, "http", route, "p:");
    }
    CHECK(last == &board->routes[BOARD_ROUTES - 1]);
    CHECK_STR(last->name, "other");
    CHECK(board_route(board, "http", "r1", "p:") == &board->routes[1]);
    for (int i = 0; i < BOARD_STORES + 2; i++) {
        snprintf(route, sizeof(route), "lmdb:/s%d", i);
        CHECK_STR(board_store(board, route)->name, i < BOARD_STORES - 1 ? route : "other");
    }
    CHECK(board_store(board, "lmdb:/s1") == &board->stores[1]);
}

static int64_t surveyed(const struct board *board, const struct board_store *store) {
    struct board_survey survey;

    board_survey_get(board, store, &survey);
    return survey.at_ms;
}

TEST(what_was_found_in_a_store_that_is_not_used_any_more_is_not_told) {
    struct board *board = board_new();
    struct board_store *stays = board_store(board, "lmdb:/stays"),
                       *goes = board_store(board, "lmdb:/goes");

    board_stores_next_turn(board);
    board_survey_set(stays, &(struct board_survey){.at_ms = 1});
    board_survey_set(goes, &(struct board_survey){.at_ms = 2});
    CHECK_INT(surveyed(board, stays), 1);
    CHECK_INT(surveyed(board, goes), 2);
    CHECK(board_store(board, "lmdb:/stays") == stays);
    CHECK_INT(surveyed(board, stays), 1); /* the place stays surveyed between the two */
    board_stores_next_turn(board);
    CHECK_INT(surveyed(board, stays), 1);
    CHECK_INT(surveyed(board, goes), 0);
    CHECK(board_store(board, "lmdb:/goes") == goes); /* the store is back */
    CHECK_INT(surveyed(board, goes), 2);
}

TEST(stores_that_share_a_place_tell_of_no_records) {
    struct board *board = board_new();
    struct board_route *route = board_route(board, "http", "r", "p:");
    struct board_store *other = &board->stores[BOARD_STORES - 1];
    char url[32];

    for (int i = 0; i < BOARD_STORES; i++) {
        snprintf(url, sizeof(url), "lmdb:/s%d", i);
        CHECK(board_store(board, url) == &board->stores[i]);
    }
    board_survey_set(other, &(struct board_survey){.at_ms = 1});
    CHECK_INT(surveyed(board, other), 0);
    board_route_set_store(board, route, other);
    CHECK(board_route_store(board, route) == NULL);
    board_route_set_store(board, route, other - 1);
    CHECK(board_route_store(board, route) == other - 1);
}

TEST(long_names_are_cut_between_characters) {
    struct board *board = board_new();
    char route[400];

    memset(route, 'a', sizeof(route));
    memcpy(route + BOARD_ROUTE_MAX - 1, "\xe8\xae\xa2", 3); /* a character over the edge */
    route[399] = '\0';
    CHECK_INT(strlen(board_route(board, "http", route, "p:")->name), BOARD_ROUTE_MAX - 1);
    CHECK_STR(board_route(board, "http", "a\nb\x7f", "p:")->name, "a?b?");
}

TEST(a_stores_name_has_neither_user_nor_password_nor_options) {
    struct board *board = board_new();
    static const char *const cases[][2] = {
        {"redis://bob:hunter2@cache:6379/1?timeout=1s", "redis://cache:6379/1"},
        {"redis://:p@ss@cache/0", "redis://cache/0"},
        {"postgres://u:x@/idem?host=/run/pg&password=hunter2", "postgres:///idem"},
        {"lmdb:/var/lib/idem/x?sync=off", "lmdb:/var/lib/idem/x"},
        {"mysql://db/shop", "mysql://db/shop"},
        {"redis:/run/redis.sock?db=1", "redis:/run/redis.sock?db=1"},
        {"redis:/run/redis.sock?db=2&timeout=1s", "redis:/run/redis.sock?db=2"},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        CHECK_STR(board_store(board, cases[i][0])->name, cases[i][1]);
    CHECK(board_store(board, cases[0][0]) == &board->stores[0]);
}

/* Processes. */

TEST(a_process_that_was_killed_leaves_its_counts_and_not_its_gauges) {
    struct board *board = board_new();
    struct board_route *route = board_route(board, "http", "/", "p:");
    struct board_process now, *mine = board_process(board, getpid());
    pid_t pid = fork();
    int status;

    if (pid == 0) {
        struct board_process *process = board_process(board, getpid());

        board_add(&route->verdicts[BOARD_RUN], 3);
        board_change(&process->running, 5);
        board_change(&process->parked, 2);
        kill(getpid(), SIGKILL);
    }
    board_change(&mine->running, 1);
    CHECK_INT(waitpid(pid, &status, 0), pid);
    board_processes(board, &now);
    CHECK_INT(now.running, 1);
    CHECK_INT(now.parked, 0);
    CHECK_INT(board_get(&route->verdicts[BOARD_RUN]), 3);
    /* the next process takes the place, and starts from zero */
    pid = fork();
    if (pid == 0) {
        struct board_process *process = board_process(board, getpid());

        _exit(process == &board->processes[1] && process->running == 0 ? 0 : 1);
    }
    CHECK_INT(waitpid(pid, &status, 0), pid);
    CHECK_INT(status, 0);
}

TEST(a_process_that_leaves_is_not_counted_any_more) {
    struct board *board = board_new();
    struct board_process now, *mine = board_process(board, getpid());

    board_change(&mine->running, 4);
    board_process_leave(mine);
    board_processes(board, &now);
    CHECK_INT(now.running, 0);
    CHECK_INT(board->processes[0].pid, 0);
}

/* Refusals. */

static atomic_bool enough;

/* Fills the board at least once. The last hash begins with 9, the one before with 8. */
static void *refuse_many(void *data) {
    struct board *board = data;
    char hash[65], label[9];

    for (int i = 0; i < 10000000; i++) {
        char digit = (char)('0' + i % 10);

        memset(hash, digit, 64);
        memset(label, digit, 8);
        hash[64] = label[8] = '\0';
        board_refused(board, &board->routes[i % 2], BOARD_MISMATCH, hash, label);
        if (digit == '9' && i >= BOARD_NOTES && atomic_load(&enough))
            break;
    }
    return NULL;
}

TEST(refusals_that_are_written_while_they_are_read_are_whole) {
    struct board *board = board_new();
    struct board_note notes[BOARD_NOTES];
    pthread_t thread;

    (void)board_route(board, "http", "a", "p:");
    (void)board_route(board, "http", "b", "p:");
    CHECK_INT(pthread_create(&thread, NULL, refuse_many, board), 0);
    for (size_t seen = 0; seen < 20000;) {
        size_t n = board_notes(board, notes, BOARD_NOTES);

        for (size_t i = 0; i < n; i++)
            CHECK(notes[i].hash[0] == notes[i].hash[63] && notes[i].label[7] == notes[i].hash[0]);
        seen += n;
    }
    atomic_store(&enough, true);
    pthread_join(thread, NULL);
    CHECK_INT(board_notes(board, notes, BOARD_NOTES), BOARD_NOTES);
    CHECK(notes[0].hash[0] == '9' && notes[1].hash[0] == '8'); /* the newest comes first */
}

TEST(a_refusal_whose_writer_died_is_left_out) {
    struct board *board = board_new();
    struct board_route *route = board_route(board, "http", "a", "p:");
    struct board_note notes[BOARD_NOTES];

    for (int i = 0; i < 3; i++)
        board_refused(board, route, BOARD_BUSY, NULL, NULL);
    board->notes[1].seq |= 1;
    CHECK_INT(board_notes(board, notes, BOARD_NOTES), 2);
    CHECK_STR(notes[0].hash, "");
    for (int i = 0; i < BOARD_NOTES; i++) /* the board overwrites old notes later */
        board_refused(board, route, BOARD_BUSY, NULL, NULL);
    CHECK_INT(board_notes(board, notes, BOARD_NOTES), BOARD_NOTES);
}

/* Times. */

TEST(quantiles_lie_within_their_bucket) {
    struct board_histogram histogram = {0};
    uint64_t counts[BOARD_BOUNDS + 1];

    for (size_t i = 0; i <= BOARD_BOUNDS; i++)
        counts[i] = 0;
    CHECK_INT(board_quantile(counts, 500), 0);
    for (int i = 0; i < 90; i++)
        board_observe(&histogram, 400);
    for (int i = 0; i < 10; i++)
        board_observe(&histogram, 40000);
    board_observe(&histogram, 3600000000);
    for (size_t i = 0; i <= BOARD_BOUNDS; i++)
        counts[i] = board_get(&histogram.counts[i]);
    CHECK(board_quantile(counts, 500) > 250 && board_quantile(counts, 500) <= 500);
    CHECK(board_quantile(counts, 950) > 25000 && board_quantile(counts, 950) <= 50000);
    CHECK_INT(board_quantile(counts, 999), 10000000);
    CHECK_INT(board_get(&histogram.sum_us), 90 * 400 + 10 * 40000 + 3600000000);
}

TEST(a_time_on_a_bound_belongs_below_it) {
    struct board_histogram histogram = {0};

    board_observe(&histogram, 50);
    board_observe(&histogram, 51);
    board_observe(&histogram, -1);
    CHECK_INT(board_get(&histogram.counts[0]), 2);
    CHECK_INT(board_get(&histogram.counts[1]), 1);
    CHECK_INT(board_get(&histogram.sum_us), 101);
}

/* Samples. */

static atomic_bool date_stands;

/* Replaces the C library's function: the time of day stands still if a test wants that. */
int clock_gettime(clockid_t id, struct timespec *ret) {
    int rc = (int)syscall(SYS_clock_gettime, id, ret);

    if (id == CLOCK_REALTIME && date_stands)
        *ret = (struct timespec){.tv_sec = 1800000000};
    return rc;
}

TEST(one_sample_is_taken_every_few_seconds_whoever_asks) {
    struct board *board = board_new();
    struct board_route *route = board_route(board, "http", "a", "p:");
    struct board_sample samples[BOARD_SAMPLES];

    date_stands = true;
    board_sample(board);
    board_sample(board);
    CHECK_INT(board_samples(board, samples, BOARD_SAMPLES), 1);
    board_add(&route->verdicts[BOARD_REPLAY], 7);
    board_observe(&board_store(board, "lmdb:/x")->ops[BOARD_OP_CLAIM], 60);
    board->sampled_ms -= BOARD_SAMPLE_MS;
    board_sample(board);
    CHECK_INT(board_samples(board, samples, BOARD_SAMPLES), 2);
    CHECK_INT(samples[0].verdicts[BOARD_REPLAY], 0);
    CHECK_INT(samples[1].verdicts[BOARD_REPLAY], 7);
    CHECK_INT(samples[1].ops[1], 1);
    board->sampled_ms += 86400000; /* the clock was set back */
    board_sample(board);
    CHECK_INT(board_samples(board, samples, BOARD_SAMPLES), 3);
    for (int i = 0; i < 2 * BOARD_SAMPLES; i++) {
        board->sampled_ms -= BOARD_SAMPLE_MS;
        board_sample(board);
    }
    CHECK_INT(board_samples(board, samples, BOARD_SAMPLES), BOARD_SAMPLES - 1);
}

TEST_MAIN
