/*
 * Snowflakes when time passes: leases that are kept, that lapse and that are
 * found in other hands; what is remembered over kills and clocks that go back;
 * both ends of their time. The clocks are the test's own, and so is the worker
 * that is asked for first.
 */
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <time.h>

#include "calls.h"
#include "core/id.h"
#include "test.h"

#define EPOCH_MS 1577836800000
#define TIME_MAX (((int64_t)1 << 41) - 1)
#define SEQUENCES 4096
#define LEASE_S 60
#define YEAR_S ((int64_t)365 * 24 * 3600)

#define WORKER(id) ((int)((id) >> 12 & 1023))
#define MS(id) ((id) >> 22)

/* How far the machine's clocks are off; or the time at which the clock of the date stands still. */
static _Atomic int64_t wall_s, boot_s, wall_stands_ms;

/* The worker that is asked for first. */
static _Atomic unsigned first_worker;

int __real_clock_gettime(clockid_t id, struct timespec *ret);
int __wrap_clock_gettime(clockid_t id, struct timespec *ret);
int __wrap_clock_gettime(clockid_t id, struct timespec *ret) {
    int rc = __real_clock_gettime(id, ret);

    if (id == CLOCK_REALTIME && wall_stands_ms != 0)
        *ret = (struct timespec){.tv_sec = (time_t)(wall_stands_ms / 1000),
                                 .tv_nsec = (long)(wall_stands_ms % 1000) * 1000000};
    if (id == CLOCK_REALTIME)
        ret->tv_sec += (time_t)wall_s;
    if (id == CLOCK_BOOTTIME)
        ret->tv_sec += (time_t)boot_s;
    return rc;
}

/* Nothing else asks for as few bytes. */
ssize_t __real_getrandom(void *out, size_t len, unsigned flags);
ssize_t __wrap_getrandom(void *out, size_t len, unsigned flags);
ssize_t __wrap_getrandom(void *out, size_t len, unsigned flags) {
    unsigned worker = first_worker;

    if (len != sizeof(worker))
        return __real_getrandom(out, len, flags);
    memcpy(out, &worker, sizeof(worker));
    return sizeof(worker);
}

static void later(int64_t seconds) {
    wall_s += seconds;
    boot_s += seconds;
}

static struct idem_snowflake *snowflakes(struct idem *h, unsigned worker) {
    struct idem_snowflake *s = NULL;
    struct idem_error err;

    first_worker = worker;
    if (idem_snowflake_new(h, NULL, &s, &err) != 0) {
        fprintf(stderr, "# %s\n", err.text);
        exit(1);
    }
    return s;
}

static int64_t next(struct idem_snowflake *s) {
    struct idem_error err;
    int64_t id = 0;

    if (idem_snowflake_next(s, &id, &err) != 0) {
        fprintf(stderr, "# %s\n", err.text);
        exit(1);
    }
    CHECK(id > 0);
    return id;
}

static void *shared(size_t size) {
    void *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    CHECK(at != MAP_FAILED);
    return at;
}

static struct idem *open_at(const char *url) {
    struct idem_error err;
    struct idem *h = NULL;

    if (idem_open(url, NULL, &h, &err) < 0) {
        fprintf(stderr, "# %s\n", err.text);
        exit(1);
    }
    return h;
}

/* Leases. */

TEST(a_worker_is_kept_by_who_goes_on_using_it) {
    struct idem *h = open_store("sync=off");
    struct idem_snowflake *s = snowflakes(h, 7), *other;
    int64_t last = next(s), id;

    for (unsigned i = 0; i < 10; i++) {
        later(LEASE_S * 5 / 12);
        first_worker = 100; /* the one that a new lease would get */
        id = next(s);
        CHECK_INT(WORKER(id), 7);
        CHECK(id > last);
        last = id;
        later(LEASE_S * 5 / 12);
        other = snowflakes(h, 7); /* the store knows, too */
        CHECK_INT(WORKER(next(other)), 8);
        idem_snowflake_free(other);
        first_worker = 100;
        CHECK_INT(WORKER(next(s)), 7);
    }
    idem_snowflake_free(s);
    idem_close(h);
}

TEST(who_slept_over_its_lease_takes_another_worker) {
    struct idem *h = open_store("sync=off");
    struct idem_snowflake *s = snowflakes(h, 7), *other;
    int64_t before = next(s), id, others;

    later(LEASE_S + 1);
    other = snowflakes(h, 7);
    others = next(other);
    CHECK_INT(WORKER(others), 7);
    CHECK(others > before);
    id = next(s);
    CHECK_INT(WORKER(id), 8);
    CHECK_INT(WORKER(next(other)), 7);
    idem_snowflake_free(s);
    idem_snowflake_free(other);
    idem_close(h);
}

TEST(who_slept_over_its_lease_gives_nothing_back) {
    struct idem *h = open_store("sync=off");
    struct idem_snowflake *s = snowflakes(h, 7), *other, *third;

    later(LEASE_S + 1);
    other = snowflakes(h, 7);
    CHECK_INT(WORKER(next(other)), 7);
    idem_snowflake_free(s);
    later(1);
    third = snowflakes(h, 7);
    CHECK_INT(WORKER(next(third)), 8);
    idem_snowflake_free(other);
    idem_snowflake_free(third);
    idem_close(h);
}

/* The date is set ahead by a minute: by it the lease is over, by the other clock it is not. */
TEST(who_finds_its_worker_in_other_hands_takes_another) {
    struct idem *h = open_store("sync=off");
    struct idem_snowflake *s = snowflakes(h, 7), *other;

    CHECK_INT(WORKER(next(s)), 7);
    wall_s += LEASE_S + 1;
    other = snowflakes(h, 7);
    CHECK_INT(WORKER(next(other)), 7);
    later(LEASE_S * 5 / 12);
    CHECK_INT(WORKER(next(other)), 7); /* kept, which raises its counter past the first one's */
    CHECK_INT(WORKER(next(s)), 8);
    idem_snowflake_free(s);
    idem_snowflake_free(other);
    idem_close(h);
}

/* The same, with a counter that was far ahead of the other's. */
TEST(who_had_its_worker_for_long_does_not_take_it_from_who_has_it_now) {
    struct idem *h = open_store("sync=off");
    struct idem_snowflake *s = snowflakes(h, 7), *other;

    for (unsigned i = 0; i < 5; i++) {
        later(LEASE_S * 5 / 12);
        CHECK_INT(WORKER(next(s)), 7);
    }
    wall_s += LEASE_S + 1;
    other = snowflakes(h, 7);
    CHECK_INT(WORKER(next(other)), 7);
    later(LEASE_S * 5 / 12);
    CHECK_INT(WORKER(next(s)), 8);
    CHECK_INT(WORKER(next(other)), 7);
    idem_snowflake_free(s);
    idem_snowflake_free(other);
    idem_close(h);
}

TEST(a_forked_child_does_not_give_its_parents_worker_back) {
    struct idem *h = open_store("sync=off");
    struct idem_snowflake *s = snowflakes(h, 7), *other;
    int status;
    pid_t pid;

    CHECK_INT(WORKER(next(s)), 7);
    pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        idem_snowflake_free(s);
        _exit(0);
    }
    CHECK(waitpid(pid, &status, 0) == pid);
    CHECK_INT(status, 0);
    later(1);
    other = snowflakes(h, 7);
    CHECK_INT(WORKER(next(other)), 8);
    idem_snowflake_free(other);
    idem_snowflake_free(s);
    idem_close(h);
}

/* Other processes. */

#define PROCESSES 4
#define EACH 20000

static int id_cmp(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

    return (x > y) - (x < y);
}

/* Every process stays until the last one has finished, so that none gets the worker of another. */
static void process_run(const char *url, int64_t *ids, _Atomic unsigned *through) {
    struct idem_snowflake *s;
    struct idem *h;

    alarm(TEST_LIMIT_S); /* an orphan that waits for ever would keep the output open */
    h = open_at(url);
    s = snowflakes(h, 7);
    for (unsigned i = 0; i < EACH; i++) {
        ids[i] = next(s);
        CHECK_INT(WORKER(ids[i]), WORKER(ids[0]));
    }
    ++*through;
    WAIT_UNTIL(*through >= PROCESSES);
    idem_snowflake_free(s);
    idem_close(h);
}

TEST(processes_that_start_together_never_give_the_same) {
    const char *url = temp_url("store", "sync=off");
    int64_t *ids = shared(sizeof(*ids) * PROCESSES * EACH);
    _Atomic unsigned *through = shared(sizeof(*through));
    bool taken[1024] = {false};
    pid_t pids[PROCESSES];

    for (size_t i = 0; i < PROCESSES; i++) {
        pids[i] = fork();
        CHECK(pids[i] >= 0);
        if (pids[i] == 0) {
            process_run(url, ids + i * EACH, through);
            _exit(0);
        }
    }
    for (size_t i = 0; i < PROCESSES; i++) {
        int status;

        CHECK(waitpid(pids[i], &status, 0) == pids[i]);
        CHECK_INT(status, 0);
        CHECK(!taken[WORKER(ids[i * EACH])]);
        taken[WORKER(ids[i * EACH])] = true;
    }
    qsort(ids, (size_t)PROCESSES * EACH, sizeof(*ids), id_cmp);
    for (size_t i = 1; i < (size_t)PROCESSES * EACH; i++)
        CHECK(ids[i - 1] < ids[i]);
}

/* Gives out numbers of the next hour, and is killed. */
static int64_t killed_last(const char *url, int64_t ahead_ms) {
    int64_t *last = shared(sizeof(*last)), id;
    int status;
    pid_t pid = fork();

    CHECK(pid >= 0);
    if (pid == 0) {
        struct idem_snowflake *s;

        alarm(TEST_LIMIT_S);
        s = snowflakes(open_at(url), 7);
        idem_snowflake_shift(s, ahead_ms);
        for (unsigned i = 0; i < 3 * SEQUENCES; i++)
            *last = next(s);
        kill(getpid(), SIGKILL);
    }
    CHECK(waitpid(pid, &status, 0) == pid);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    id = *last;
    munmap(last, sizeof(*last));
    return id;
}

TEST(what_was_killed_has_its_worker_until_the_lease_is_over) {
    const char *url = temp_url("store", "sync=off");
    int64_t last = killed_last(url, 0);
    struct idem *h = open_at(url);
    struct idem_snowflake *s = snowflakes(h, 7);

    CHECK_INT(WORKER(last), 7);
    CHECK_INT(WORKER(next(s)), 8);
    idem_snowflake_free(s);
    later(LEASE_S + 1);
    s = snowflakes(h, 7);
    CHECK_INT(WORKER(next(s)), 7);
    idem_snowflake_free(s);
    idem_close(h);
}

TEST(nothing_is_given_twice_although_one_was_killed_and_the_clock_went_back) {
    const char *url = temp_url("store", "sync=off");
    int64_t last = killed_last(url, 3600000), id;
    struct idem_snowflake *s;
    struct idem *h;

    later(LEASE_S + 1);
    h = open_at(url);
    s = snowflakes(h, 7);
    for (unsigned i = 0; i < 3 * SEQUENCES; i++) {
        id = next(s);
        CHECK_INT(WORKER(id), 7);
        CHECK(id > last);
        last = id;
    }
    idem_snowflake_free(s);
    idem_close(h);
}

/* Time. */

TEST(numbers_grow_although_the_clock_goes_back_while_they_are_made) {
    struct idem *h = open_store("sync=off");
    struct idem_snowflake *s = snowflakes(h, 7);
    int64_t last = 0, id;

    for (unsigned i = 0; i < 5 * SEQUENCES; i++) {
        if (i % 1000 == 0)
            idem_snowflake_shift(s, -(int64_t)i * 3600);
        id = next(s);
        CHECK(id > last);
        last = id;
    }
    idem_snowflake_free(s);
    idem_close(h);
}

TEST(what_was_given_out_is_remembered_for_decades) {
    struct idem *h = open_store("sync=off");
    struct idem_snowflake *s = snowflakes(h, 7);
    int64_t last, id;

    idem_snowflake_shift(s, 41 * YEAR_S * 1000);
    last = next(s);
    idem_snowflake_free(s);
    later(40 * YEAR_S);
    s = snowflakes(h, 7);
    id = next(s);
    CHECK_INT(WORKER(id), WORKER(last));
    CHECK(id > last);
    idem_snowflake_free(s);
    idem_close(h);
}

static int64_t wall_stop(void) {
    wall_stands_ms = idem_wall_ms();
    return wall_stands_ms - EPOCH_MS;
}

TEST(the_last_moment_of_2089_is_used_up_and_then_refused) {
    int64_t now = wall_stop(), last = 0, id;
    struct idem *h = open_store("sync=off");
    struct idem_snowflake *s = snowflakes(h, 7);
    struct idem_error err;

    idem_snowflake_shift(s, TIME_MAX - now);
    for (unsigned i = 0; i < SEQUENCES; i++) {
        id = next(s);
        CHECK_INT(MS(id), TIME_MAX);
        CHECK(id > last);
        last = id;
    }
    CHECK_INT(last, INT64_MAX - (int64_t)(1023 - 7) * SEQUENCES);
    for (unsigned i = 0; i < 3; i++) {
        CHECK_INT(idem_snowflake_next(s, &id, &err), IDEM_E_CLOCK);
        CHECK_HAS(err.text, "2089");
    }
    idem_snowflake_free(s);
    s = snowflakes(h, 9);
    idem_snowflake_shift(s, TIME_MAX + 1 - now);
    CHECK_INT(idem_snowflake_next(s, &id, &err), IDEM_E_CLOCK);
    idem_snowflake_free(s);
    idem_close(h);
}

TEST(a_clock_before_2020_is_refused) {
    int64_t now = wall_stop(), id = 5;
    struct idem *h = open_store("sync=off");
    struct idem_snowflake *s = snowflakes(h, 7);
    struct idem_error err;

    idem_snowflake_shift(s, -now);
    CHECK_INT(idem_snowflake_next(s, &id, &err), IDEM_E_CLOCK);
    CHECK_HAS(err.text, "before 2020");
    CHECK_INT(id, 5);
    idem_snowflake_shift(s, -now - 1000000);
    CHECK_INT(idem_snowflake_next(s, &id, &err), IDEM_E_CLOCK);
    idem_snowflake_shift(s, 1 - now);
    CHECK_INT(MS(next(s)), 1);
    idem_snowflake_shift(s, 0);
    CHECK_INT(MS(next(s)), now);
    idem_snowflake_free(s);
    idem_close(h);
}

TEST_MAIN
