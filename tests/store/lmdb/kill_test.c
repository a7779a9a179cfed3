/*
 * kill -9 of a writer at any moment leaves a usable store and no lost
 * acknowledged write. Several processes work on shared keys and write a
 * history; one after the other is killed, now and then all at once, and new
 * ones take their places. Afterwards every acknowledged result is there byte
 * for byte, the store's own counts agree, the history is one that the design
 * allows, and no stray files are left.
 *
 * The schedule of kills follows from a seed, which is printed; IDEM_SEED
 * replays it. IDEM_LONG=1 kills hundreds.
 */
#include <inttypes.h>
#include <sys/wait.h>
#include <time.h>

#include "kill_worker.h"
#include "model/history.h"
#include "raw.h"
#include "rig.h"
#include "test.h"
#include "wait.h"

#define WORKERS 4
#define SPREAD_MS 70 /* the longest time between two kills */
#define RUNS_LEAST ((size_t)10 * WORKERS)
#define ACKNOWLEDGED " said=done ack=ack ." /* the longest line of the log */

static char program[512];

struct storm {
    char url[512], log[512], start[32];
    const char *recover;
    uint64_t random;
    pid_t pids[WORKERS];
    unsigned kills;
};

/* The storm. */

static uint64_t seed_choose(void) {
    const char *said = getenv("IDEM_SEED");
    uint64_t seed = 1; /* a fixed seed, so that the short form is the same each time */

    if (said != NULL)
        seed = strtoull(said, NULL, 10);
    else if (getenv("IDEM_LONG") != NULL)
        NEED(idem_random(&seed, sizeof(seed)) == 0);
    fprintf(stderr, "# seed %" PRIu64 "\n", seed);
    return seed;
}

static void worker_start(struct storm *storm, unsigned i) {
    char seed[32];

    snprintf(seed, sizeof(seed), "%" PRIu64, rig_random(&storm->random));
    fflush(NULL);
    kill_worker_defer(SIG_BLOCK); /* until the worker handles SIGTERM */
    storm->pids[i] = fork();
    CHECK(storm->pids[i] >= 0);
    if (storm->pids[i] > 0) {
        kill_worker_defer(SIG_UNBLOCK);
        return;
    }
    execl(program, program, "--worker", storm->url, storm->log, storm->recover, seed, storm->start,
          (char *)NULL);
    _exit(127);
}

/* A worker that ended by itself has found a fault, and has printed it. */
static void worker_kill(struct storm *storm, unsigned i, int log) {
    char actor[24];
    int status;

    CHECK(kill(storm->pids[i], SIGKILL) == 0);
    CHECK(waitpid(storm->pids[i], &status, 0) == storm->pids[i]);
    if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL) {
        fprintf(stderr, "# a worker ended by itself, with status 0x%x\n", (unsigned)status);
        exit(1);
    }
    snprintf(actor, sizeof(actor), "%ld", (long)storm->pids[i]);
    CHECK(history_write_as(log, actor, "*", "crash", "") == 0);
    storm->kills++;
}

static void storm_begin(struct storm *storm, const char *sync, const char *recover) {
    char names[64], options[64];
    int log;

    *storm = (struct storm){.recover = recover, .random = seed_choose()};
    snprintf(options, sizeof(options), "sync=%s", sync);
    snprintf(storm->url, sizeof(storm->url), "%s", rig_url("store", options));
    snprintf(storm->log, sizeof(storm->log), "%s", rig_path(rig_folder(), "log"));
    snprintf(storm->start, sizeof(storm->start), "%" PRId64, history_now());
    snprintf(names, sizeof(names), "mode=replay recover=%s lease_ms=%d", recover, KILL_LEASE_MS);
    log = history_open(storm->log);
    CHECK(log >= 0);
    CHECK(history_write_as(log, "test", "*", "policy", names) == 0);
    close(log);
    for (unsigned i = 0; i < WORKERS; i++)
        worker_start(storm, i);
}

/* Stops a worker for longer than a lease: others take over, and the worker does not disturb them
 * later. */
static void worker_stall(struct storm *storm, unsigned i) {
    CHECK(kill(storm->pids[i], SIGSTOP) == 0);
    rig_sleep(KILL_LEASE_MS * 2); /* sleep: for longer than a lease */
    CHECK(kill(storm->pids[i], SIGCONT) == 0);
}

/* Kills at random moments; one time in eight it kills all workers, so that no process has the
 * store open. */
static void storm_rage(struct storm *storm, unsigned kills) {
    int log = history_open(storm->log);

    CHECK(log >= 0);
    while (storm->kills < kills) {
        uint64_t random = rig_random(&storm->random);

        rig_sleep((int64_t)(random % SPREAD_MS)); /* sleep: any moment will do */
        random /= SPREAD_MS;
        if (random % 8 == 0) {
            for (unsigned i = 0; i < WORKERS; i++)
                worker_kill(storm, i, log);
            for (unsigned i = 0; i < WORKERS; i++)
                worker_start(storm, i);
        } else if (random % 8 == 1) {
            worker_stall(storm, (unsigned)(random / 8 % WORKERS));
        } else {
            unsigned victim = (unsigned)(random / 8 % WORKERS);

            worker_kill(storm, victim, log);
            worker_start(storm, victim);
        }
    }
    close(log);
}

static size_t lines_with(const char *path, const char *words) {
    FILE *log = fopen(path, "re");
    char line[512];
    size_t n = 0;

    CHECK(log != NULL);
    while (fgets(line, sizeof(line), log) != NULL)
        n += strstr(line, words) != NULL;
    fclose(log);
    return n;
}

/* Enough work for check_history(): on a slow machine many workers were killed before they had
 * begun. */
static bool has_worked(const struct storm *storm) {
    return lines_with(storm->log, ACKNOWLEDGED) > storm->kills &&
           lines_with(storm->log, " verdict=run ") > RUNS_LEAST &&
           lines_with(storm->log, " verdict=replay ") > 0;
}

static void storm_end(struct storm *storm) {
    WAIT_UNTIL(has_worked(storm));
    for (unsigned i = 0; i < WORKERS; i++)
        CHECK(kill(storm->pids[i], SIGTERM) == 0);
    for (unsigned i = 0; i < WORKERS; i++) {
        int status;

        CHECK(waitpid(storm->pids[i], &status, 0) == storm->pids[i]);
        CHECK_INT(status, 0);
    }
    rig_sleep(KILL_LEASE_MS + 50); /* sleep: no lease is live after this */
}

/* Afterwards. */

static void check_result(struct idem *h, const char *key, const char *owner) {
    static unsigned char result[KILL_RESULT_MAX];
    struct idem_name name = {.prefix = "kill:", .key = key, .key_len = strlen(key)};
    size_t len = kill_result(key, owner, result);
    struct idem_entry entry;
    struct idem_error err = {0};

    if (idem_lookup(h, &name, &entry, &err) != 0) {
        fprintf(stderr, "# %s was acknowledged to %s: %s\n", key, owner, err.text);
        exit(1);
    }
    CHECK_INT(entry.state, IDEM_DONE);
    CHECK_INT(entry.result_len, len);
    CHECK(len == 0 || memcmp(entry.result, result, len) == 0);
    idem_entry_release(&entry);
}

/* Checks every acknowledged done of the log; returns their number. */
static size_t check_acknowledged(struct idem *h, const char *path) {
    FILE *log = fopen(path, "re");
    char line[512], key[64], owner[64];
    size_t n = 0;

    CHECK(log != NULL);
    while (fgets(line, sizeof(line), log) != NULL)
        if (strstr(line, ACKNOWLEDGED) != NULL &&
            sscanf(line, "%*s %*s %63s finished owner=%63s", key, owner) == 2) {
            check_result(h, key, owner);
            n++;
        }
    fclose(log);
    return n;
}

/* The list and the counts are two ways to see the same records. */
static void check_counts(struct idem *h, size_t acknowledged) {
    static struct idem_entry entries[100];
    struct idem_cursor cursor = {0};
    struct idem_stats stats;
    size_t n, states[IDEM_NEWER + 1] = {0}, uncertain = 0;

    while (!cursor.end) {
        CHECK_INT(idem_list(h, NULL, &cursor, entries, 100, &n, NULL), 0);
        for (size_t i = 0; i < n; i++) {
            states[entries[i].state]++;
            uncertain += entries[i].uncertain;
            CHECK_STR(entries[i].prefix, "kill:");
        }
    }
    CHECK_INT(idem_stats(h, &stats, NULL), 0);
    CHECK_INT(states[IDEM_ABSENT] + states[IDEM_DAMAGED] + states[IDEM_NEWER], 0);
    CHECK_INT(stats.done, states[IDEM_DONE]);
    CHECK_INT(stats.failed, states[IDEM_FAILED]);
    CHECK_INT(stats.uncertain, uncertain);
    CHECK_INT(stats.running, states[IDEM_RUNNING] - uncertain);
    CHECK_INT(stats.running, 0);
    /* It also counts a done whose response was lost with its process. */
    CHECK(stats.done >= acknowledged);
}

static void check_history(const struct storm *storm, size_t acknowledged) {
    struct history_sum sum;

    if (history_check_file(storm->log, stderr, &sum) != 0) {
        char kept[64];

        /* Keeps a copy of the log, because the directory goes with the test. */
        snprintf(kept, sizeof(kept), "/tmp/idem-kill-test.%ld.log", (long)getpid());
        rig_file_copy(storm->log, kept);
        fprintf(stderr, "# the whole history is in %s\n", kept);
        exit(1);
    }
    fprintf(stderr, "# %u kills, %zu keys, %zu claims, %zu runs, %zu replays, %zu done, %zu lost\n",
            storm->kills, sum.keys, sum.claims, sum.runs, sum.replays, acknowledged, sum.lost);
    CHECK(sum.runs > RUNS_LEAST);
    CHECK(sum.replays > 0);
    CHECK(acknowledged > storm->kills);
}

/* A store that no process has open has these files, and no others. */
static void check_tidy(const char *folder) {
    CHECK_INT(rig_file_count(folder, "wake."), 0);
    CHECK_INT(rig_file_count(folder, ""), 5);
    CHECK_INT(rig_file_count(folder, "idem."), 3);
}

static int64_t lease_later(void *data) {
    struct timespec now;

    (void)data;
    clock_gettime(CLOCK_BOOTTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000 + 40 * DAY_MS;
}

static int64_t wall_later(void *data) {
    struct timespec now;

    (void)data;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000 + 40 * DAY_MS;
}

/* Forty days later: records whose index the killed processes had not yet written do not stay for
 * ever. */
static void check_all_expires(const char *url, const char *folder) {
    struct idem_clock later = {lease_later, wall_later, NULL};
    struct idem_op op = {.kind = IDEM_OP_SWEEP, .in.sweep.max = 100};
    size_t records = raw_count(folder, "records"), swept = 0;
    struct rig rig;

    rig_open(&rig, url, &later);
    for (size_t i = 0; i < records / 8 + 100 && swept < records; i++) {
        CHECK_INT(rig_run(&rig, &op, NULL, NULL), 0);
        swept += op.out.sweep.removed;
    }
    rig_close(&rig);
    CHECK_INT(raw_count(folder, "records"), 0);
    CHECK_INT(raw_count(folder, "expiry"), 0);
}

static void storm_case(const char *sync, const char *recover) {
    struct storm storm;
    size_t fds, acknowledged;
    struct idem *h;

    storm_begin(&storm, sync, recover);
    storm_rage(&storm, getenv("IDEM_LONG") == NULL ? 40 : 250);
    storm_end(&storm);
    fds = rig_fd_count();
    h = rig_handle(storm.url);
    acknowledged = check_acknowledged(h, storm.log);
    check_counts(h, acknowledged);
    rig_call_runs(h, "it still works", "yes", 3);
    idem_close(h);
    CHECK_INT(rig_fd_count(), fds);
    check_history(&storm, acknowledged);
    check_tidy(rig_path(rig_folder(), "store"));
    check_all_expires(storm.url, rig_path(rig_folder(), "store"));
}

TEST_IN(writers_killed_at_any_moment_lose_nothing_under_hold_with_sync_off, 900) {
    storm_case("off", "hold");
}

TEST_IN(writers_killed_at_any_moment_lose_nothing_under_hold_with_sync_always, 900) {
    storm_case("always", "hold");
}

TEST_IN(writers_killed_at_any_moment_lose_nothing_under_rerun_with_sync_off, 900) {
    storm_case("off", "rerun");
}

TEST_IN(writers_killed_at_any_moment_lose_nothing_under_rerun_with_sync_always, 900) {
    storm_case("always", "rerun");
}

int main(int argc, char **argv) {
    ssize_t n = readlink("/proc/self/exe", program, sizeof(program) - 1);

    if (n < 0)
        return 1;
    program[n] = '\0';
    if (argc > 1 && strcmp(argv[1], "--worker") == 0)
        return kill_worker_main(argc, argv);
    return test_main(argc, argv);
}
