/*
 * The worker. Exits with 0 on SIGTERM, and with 2 if the store gave a wrong
 * response: an error, while the store is there and has room.
 */
#include "kill_worker.h"

#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "model/history.h"
#include "rig.h"

#define THREADS 3
#define CALLS_PER_OPEN 40

/* New keys come into use at intervals, so that there is always something to run. */
#define KEY_EVERY_NS 400000
#define KEYS_OPEN 12
#define KEYS_RECENT 2500 /* keys whose age is about one lease and more */

/* All workers want these few keys, and their runs take long: so kills happen in the middle of
 * runs. */
#define HOT_EVERY_NS 700000000
#define HOT_KEYS 6

struct worker {
    const char *url, *recover;
    int log;
    int64_t start;
    uint64_t seed;
    struct idem *h;
    struct idem_guard *guard;
};

static _Atomic int stopped;
static _Atomic unsigned owners;

static void stop(int signal) {
    (void)signal;
    stopped = 1;
}

uint64_t kill_digest(const void *bytes, size_t len) {
    const unsigned char *at = bytes;
    uint64_t hash = UINT64_C(0xcbf29ce484222325);

    for (size_t i = 0; i < len; i++)
        hash = (hash ^ at[i]) * UINT64_C(0x100000001b3);
    return hash;
}

size_t kill_result(const char *key, const char *owner, unsigned char out[KILL_RESULT_MAX]) {
    uint64_t seed = kill_digest(key, strlen(key)) ^ kill_digest(owner, strlen(owner)) * 3;
    uint64_t random = rig_random(&seed);
    size_t len = random % 16 == 0 ? random / 16 % KILL_RESULT_MAX : random / 16 % 400;

    rig_bytes(seed, out, len);
    return len;
}

static void note(const struct worker *w, const char *key, const char *event, const char *names) {
    NEED(history_write(w->log, key, event, "%s", names) == 0);
}

/* One call. */

struct call {
    const struct worker *worker;
    char key[48], owner[40];
    enum idem_result says;
    int64_t sleep_ms;
    bool ran;
};

static const char *said_word(enum idem_result says) {
    static const char *const words[] = {
        [IDEM_RESULT_DONE] = "done",
        [IDEM_RESULT_RETRY] = "release",
        [IDEM_RESULT_FINAL] = "fail",
        [IDEM_RESULT_UNKNOWN] = "unknown",
    };

    return words[says];
}

/* The effect is logged before it happens. */
static enum idem_result effect(struct idem_run *run, void *data) {
    struct call *call = data;
    unsigned char result[KILL_RESULT_MAX];
    size_t len = kill_result(call->key, call->owner, result);
    char names[160];

    call->ran = true;
    snprintf(names, sizeof(names), "owner=%s verdict=run attempt=%u", call->owner,
             idem_run_attempt(run));
    note(call->worker, call->key, "claimed", names);
    if (call->sleep_ms > 0)
        rig_sleep(call->sleep_ms); /* sleep: the duration of the work */
    if (idem_run_cancelled(run)) {
        call->says = IDEM_RESULT_UNKNOWN;
    } else {
        snprintf(names, sizeof(names), "owner=%s attempt=%u", call->owner, idem_run_attempt(run));
        note(call->worker, call->key, "effect", names);
    }
    NEED(idem_run_set_result(run, result, len) == 0);
    snprintf(names, sizeof(names), "owner=%s said=%s digest=%016" PRIx64, call->owner,
             said_word(call->says), kill_digest(result, len));
    note(call->worker, call->key, "finish", names);
    return call->says;
}

static void note_finish(const struct call *call, const struct idem_outcome *out) {
    char names[160];

    snprintf(names, sizeof(names), "owner=%s said=%s ack=%s", call->owner, said_word(call->says),
             out->finish == IDEM_FINISH_STORED ? "ack"
             : out->finish == IDEM_FINISH_LOST ? "lost"
                                               : "error");
    note(call->worker, call->key, "finished", names);
}

static void note_answer(const struct call *call, const struct idem_outcome *out) {
    char names[160];

    if (out->verdict == IDEM_REPLAY)
        snprintf(names, sizeof(names), "owner=%s verdict=replay digest=%016" PRIx64, call->owner,
                 kill_digest(out->result, out->result_len));
    else
        snprintf(names, sizeof(names), "owner=%s verdict=%s", call->owner,
                 idem_verdict_name(out->verdict));
    note(call->worker, call->key, "claimed", names);
}

static void call_make(struct call *call) {
    const struct worker *w = call->worker;
    struct idem_args args = {.key = call->key, .key_len = strlen(call->key)};
    struct idem_outcome out;
    struct idem_error err = {0};
    char names[64];

    snprintf(names, sizeof(names), "owner=%s", call->owner);
    note(w, call->key, "claim", names);
    if (idem_call(w->h, w->guard, &args, effect, call, &out, &err) != 0) {
        fprintf(stderr, "# a worker's call failed: %s\n", err.text);
        exit(2);
    }
    if (call->ran)
        note_finish(call, &out);
    else
        note_answer(call, &out);
    idem_outcome_release(&out);
}

/* A new key mostly, or one that other calls have used. */
static void key_choose(struct call *call, uint64_t *random) {
    uint64_t age = (uint64_t)(history_now() - call->worker->start);
    uint64_t newest = age / KEY_EVERY_NS, dice = rig_random(random) % 100, key;

    call->sleep_ms = 0;
    if (dice < 8) {
        snprintf(call->key, sizeof(call->key), "hot%" PRIu64 ".%" PRIu64, age / HOT_EVERY_NS,
                 rig_random(random) % HOT_KEYS);
        call->sleep_ms = 30 + (int64_t)(rig_random(random) % 60);
        return;
    }
    key = rig_random(random) % KEYS_OPEN + newest;
    if (dice < 35)
        key = newest - rig_random(random) % (newest < KEYS_RECENT ? newest + 1 : KEYS_RECENT);
    else if (dice < 45)
        key = rig_random(random) % (newest + 1);
    snprintf(call->key, sizeof(call->key), "k%" PRIu64, key);
}

/* Mostly done, at once; some calls have another result, some take longer than their lease. */
static void call_choose(struct call *call, uint64_t *random) {
    uint64_t dice;

    key_choose(call, random);
    snprintf(call->owner, sizeof(call->owner), "%ld.%u", (long)getpid(), ++owners);
    dice = rig_random(random) % 100;
    call->says = dice < 90   ? IDEM_RESULT_DONE
                 : dice < 95 ? IDEM_RESULT_RETRY
                 : dice < 98 ? IDEM_RESULT_FINAL
                             : IDEM_RESULT_UNKNOWN;
    dice = rig_random(random) % 100;
    call->sleep_ms += dice < 60 ? 0 : dice < 98 ? (int64_t)(dice % 4) : 2 * KILL_LEASE_MS;
    call->ran = false;
}

struct thread {
    pthread_t id;
    const struct worker *worker;
    uint64_t random;
};

static void *thread_main(void *data) {
    struct thread *thread = data;
    struct call call = {.worker = thread->worker};

    for (unsigned i = 0; i < CALLS_PER_OPEN && !stopped; i++) {
        call_choose(&call, &thread->random);
        call_make(&call);
    }
    return NULL;
}

/* Opens the store, works, closes it, and again. */

static void worker_open(struct worker *w) {
    struct idem_policy policy = {
        .prefix = "kill:",
        .scope = IDEM_SCOPE_NONE,
        .mode = IDEM_MODE_REPLAY,
        .recover = strcmp(w->recover, "hold") == 0 ? IDEM_RECOVER_HOLD : IDEM_RECOVER_RERUN,
        .lease_ms = KILL_LEASE_MS,
        .wait_ms = 50,
        .backoff_min_ms = 50,
        .backoff_max_ms = 50,
    };

    w->h = rig_handle(w->url);
    NEED(idem_guard_new(w->h, &policy, &w->guard, NULL) == 0);
}

static void worker_turn(struct worker *w) {
    struct thread threads[THREADS];

    worker_open(w);
    for (unsigned i = 0; i < THREADS; i++) {
        threads[i] = (struct thread){.worker = w, .random = rig_random(&w->seed)};
        NEED(pthread_create(&threads[i].id, NULL, thread_main, &threads[i]) == 0);
    }
    for (unsigned i = 0; i < THREADS; i++)
        NEED(pthread_join(threads[i].id, NULL) == 0);
    idem_guard_free(w->guard);
    idem_close(w->h);
}

void kill_worker_defer(int how) {
    sigset_t stops;

    sigemptyset(&stops);
    sigaddset(&stops, SIGTERM);
    NEED(sigprocmask(how, &stops, NULL) == 0);
}

int kill_worker_main(int argc, char **argv) {
    struct sigaction action = {.sa_handler = stop, .sa_flags = SA_RESTART};
    struct worker w = {0};

    NEED(argc == 7);
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    NEED(sigaction(SIGTERM, &action, NULL) == 0);
    kill_worker_defer(SIG_UNBLOCK);
    w.url = argv[2];
    w.log = history_open(argv[3]);
    NEED(w.log >= 0);
    w.recover = argv[4];
    w.seed = strtoull(argv[5], NULL, 10);
    w.start = strtoll(argv[6], NULL, 10);
    while (!stopped)
        worker_turn(&w);
    close(w.log);
    return 0;
}
