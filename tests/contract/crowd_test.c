/*
 * Many threads in many processes send operations at once, each over a
 * connection of its own. The responses must be those of some sequential order:
 * for each key the test searches for an order that agrees with the pure core,
 * with every response, with which operation ended before which began, and with
 * the record that is found at the end.
 *
 * Time stands still while the crowd runs, and moves between two rounds; so the
 * model knows the time on the store's clock. IDEM_SEED=N replays the operations
 * (not their interleaving), IDEM_LONG=1 runs the long form.
 */
#include "../wait.h"
#include "contract.h"
#include "engine.h"
#include "model.h"
#include "order.h"

#include <pthread.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>

#define PROCESSES 2
#define THREADS 3
#define WORKERS (PROCESSES * THREADS)
#define ASKED_MAX 8 /* the operations of one worker in one round */

struct crowd {
    pthread_barrier_t barrier;
    uint64_t seed;
    unsigned rounds;
    char url[512];
    struct shared_clock *clock;
    struct asked asked[WORKERS][ASKED_MAX];
    unsigned asked_n[WORKERS];
};

static int64_t nanoseconds(void) {
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

static void crowd_meet(struct crowd *crowd) {
    int rc = pthread_barrier_wait(&crowd->barrier);

    CHECK(rc == 0 || rc == PTHREAD_BARRIER_SERIAL_THREAD);
}

struct worker {
    struct crowd *crowd;
    unsigned number;
    struct rng rng;
    struct conn conn;
    unsigned round;
};

static struct asked *asked_new(struct worker *w, const struct question *q) {
    struct asked *asked = &w->crowd->asked[w->number][w->crowd->asked_n[w->number]++];

    *asked = (struct asked){.question = *q};
    return asked;
}

static void ask(struct worker *w, const struct question *q) {
    struct asked *asked = asked_new(w, q);
    struct call call;

    question_ask(q, &w->conn, &call);
    asked->begin = nanoseconds();
    (void)call_run(&call);
    asked->end = nanoseconds();
    asked->answer = call_brief(&call);
}

/* Several operations at once on one connection; the responses come in any order. */
static void ask_together(struct worker *w, const struct question *a, const struct question *b) {
    struct asked *asked_a = asked_new(w, a), *asked_b = asked_new(w, b);
    struct call call_a, call_b;

    question_ask(a, &w->conn, &call_a);
    question_ask(b, &w->conn, &call_b);
    asked_a->begin = nanoseconds();
    (void)call_submit(&call_a);
    asked_b->begin = nanoseconds();
    (void)call_submit(&call_b);
    (void)call_wait(&call_a);
    (void)call_wait(&call_b);
    asked_a->end = asked_b->end = nanoseconds();
    asked_a->answer = call_brief(&call_a);
    asked_b->answer = call_brief(&call_b);
}

/* A claim that the worker gives up: the store applied it or not, but never after its release. */
static void ask_and_give_up(struct worker *w, struct question *q) {
    struct question release = {.kind = IDEM_OP_FINISH, .key = q->key};
    struct asked *asked = asked_new(w, q);
    struct call call;

    release.in.finish = release_by(0);
    memcpy(release.in.finish.owner, q->in.claim.owner, IDEM_OWNER_LEN);
    question_ask(q, &w->conn, &call);
    asked->given_up = true;
    asked->begin = nanoseconds();
    CHECK_INT(call_submit(&call), 0);
    if (rng_below(&w->rng, 2) == 0)
        conn_turn(&w->conn, 0);
    idem_store_cancel(w->conn.store, &call.op);
    ask(w, &release);
    asked->end = nanoseconds();
}

static void worker_round(struct worker *w) {
    unsigned n = 2 + rng_below(&w->rng, 4);

    w->crowd->asked_n[w->number] = 0;
    while (w->crowd->asked_n[w->number] < n) {
        struct question a = question_make(&w->rng, 0), b = question_make(&w->rng, 0);
        unsigned how = rng_below(&w->rng, 10);

        if (how < 7)
            ask(w, &a);
        else if (how == 9 && a.kind == IDEM_OP_CLAIM)
            ask_and_give_up(w, &a);
        else
            ask_together(w, &a, &b);
    }
    keep_reset();
}

static void *worker_main(void *data) {
    struct worker *w = data;
    struct idem_clock calls = clock_calls(w->crowd->clock);

    conn_open(&w->conn, w->crowd->url, w->number % 2 == 0 ? HOST_POLL : HOST_EDGE, &calls);
    for (w->round = 0; w->round < w->crowd->rounds; w->round++) {
        crowd_meet(w->crowd);
        worker_round(w);
        crowd_meet(w->crowd);
        /* Every now and then a worker closes its connection and comes back. */
        if (rng_below(&w->rng, 50) == 0) {
            conn_close(&w->conn);
            conn_open(&w->conn, w->crowd->url, HOST_POLL, &calls);
        }
    }
    conn_close(&w->conn);
    return NULL;
}

static void process_main(struct crowd *crowd, unsigned process) {
    static struct worker workers[THREADS];
    pthread_t threads[THREADS];

    for (unsigned i = 0; i < THREADS; i++) {
        unsigned number = process * THREADS + i;

        workers[i] = (struct worker){.crowd = crowd, .number = number};
        workers[i].rng.state = crowd->seed * 1000 + number;
        CHECK(pthread_create(&threads[i], NULL, worker_main, &workers[i]) == 0);
    }
    for (unsigned i = 0; i < THREADS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
}

static volatile sig_atomic_t ended;

/* A worker that failed would leave the others waiting at the barrier. */
static void child_ended(int signal_number) {
    int status, saved = errno;

    (void)signal_number;
    while (waitpid(-1, &status, WNOHANG) > 0)
        if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
            _exit(1);
        else
            ended++;
    errno = saved;
}

static void crowd_fork(struct crowd *crowd) {
    struct sigaction action = {.sa_handler = child_ended, .sa_flags = SA_RESTART};

    CHECK(sigaction(SIGCHLD, &action, NULL) == 0);
    fflush(NULL);
    for (unsigned i = 0; i < PROCESSES; i++) {
        pid_t pid = fork();

        CHECK(pid >= 0);
        if (pid == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            process_main(crowd, i);
            exit(0);
        }
    }
}

static void crowd_judge(struct crowd *crowd, struct conn *conn, struct slot *slots,
                        unsigned round) {
    struct idem_time time = {.lease = crowd->clock->lease, .wall = crowd->clock->wall};

    for (unsigned key = 0; key < MODEL_KEYS; key++) {
        struct asked *asked[WORKERS * ASKED_MAX];
        struct question q = question_lookup(key);
        struct brief found;
        struct call call;
        unsigned n = 0;

        for (unsigned i = 0; i < WORKERS; i++)
            for (unsigned k = 0; k < crowd->asked_n[i]; k++)
                if (crowd->asked[i][k].question.key == key)
                    asked[n++] = &crowd->asked[i][k];
        question_ask(&q, conn, &call);
        (void)call_run(&call);
        found = call_brief(&call);
        if (!order_find(&slots[key], asked, n, time, &found)) {
            fprintf(stderr, "# round %u key %u: no order of these explains the answers\n", round,
                    key);
            order_say(asked, n);
            exit(1);
        }
    }
    keep_reset();
}

/* Runs the crowd; this process only checks, between the rounds. */
static void crowd_run(const char *options, uint64_t seed, unsigned rounds) {
    static const int64_t steps[] = {0, 1, 500, 1000, 1000, 5000, 5000, 20000, 60000};
    struct crowd *crowd =
        mmap(NULL, sizeof(*crowd), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    struct slot slots[MODEL_KEYS] = {0};
    pthread_barrierattr_t attr;
    struct rng rng = {seed};
    struct idem_clock calls;
    struct conn conn;
    char folder[256];
    int clock_fd;

    CHECK(crowd != MAP_FAILED);
    model_pool_init();
    folder_make(folder, sizeof(folder));
    crowd->clock = clock_share(&clock_fd);
    engine_start(folder, options, crowd->clock, clock_fd, crowd->url, sizeof(crowd->url));
    close(clock_fd);
    crowd->seed = seed;
    crowd->rounds = rounds;
    pthread_barrierattr_init(&attr);
    pthread_barrierattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
    CHECK(pthread_barrier_init(&crowd->barrier, &attr, WORKERS + 1) == 0);
    crowd_fork(crowd);
    calls = clock_calls(crowd->clock);
    conn_open(&conn, crowd->url, HOST_POLL, &calls);
    for (unsigned round = 0; round < rounds; round++) {
        int64_t ms = steps[rng_below(&rng, sizeof(steps) / sizeof(steps[0]))];

        crowd_meet(crowd);
        crowd_meet(crowd);
        crowd_judge(crowd, &conn, slots, round);
        crowd->clock->lease += ms;
        crowd->clock->wall += ms;
    }
    conn_close(&conn);
    WAIT_UNTIL(ended >= PROCESSES); /* a server is a child, too */
    (void)signal(SIGCHLD, SIG_DFL);
    engine_stop();
    folder_remove(folder);
}

#ifdef ENGINE_SERVER
TEST_IN(answers_to_a_crowd_have_an_order_on_a_server, 1200) {
    crowd_run("", seed_from(1), long_form() ? 30000 : ROUNDS);
}
#else
TEST_IN(answers_to_a_crowd_have_an_order_under_sync_off, 1200) {
    crowd_run("sync=off", seed_from(1), long_form() ? 60000 : 3000);
}

TEST_IN(answers_to_a_crowd_have_an_order_under_sync_always, 1200) {
    crowd_run("sync=always", seed_from(2), long_form() ? 10000 : 500);
}
#endif

TEST_MAIN
