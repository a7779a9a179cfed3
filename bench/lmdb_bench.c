/*
 * claim+done pairs on the embedded store beside raw LMDB doing the same two
 * puts, each in a transaction of its own: same keys, same sizes, same flags,
 * same number of keys in the file. Rounds alternate between the two, and the
 * medians are compared, because machines are noisy.
 *
 *     bench-lmdb DIRECTORY KEYS always|off THREADS PROCESSES PAIRS ROUNDS
 *     bench-lmdb DIRECTORY KEYS size
 *
 * Each prints one line of figures. To count fdatasync(), the program replaces it.
 */
#include <dlfcn.h>
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <lmdb.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "idem.h"
#include "loop/poll.h"
#include "protocol/record_key.h"
#include "store/store.h"

#define PREFIX "order:"
#define RESULT_LEN 200
#define FINGERPRINT "POST /orders {\"id\":4711,\"amount\":42}"
#define ROUNDS_MAX 31

/* Shared by all processes. Only the pairs are measured: opening and closing a store, which makes
 * everything durable, are not compared. */
static struct shared {
    atomic_long syncs;
    pthread_barrier_t begin;
    struct {
        double begun, ended, cpu;
    } process[64];
} * shared;

int fdatasync(int fd) {
    static int (*real)(int);

    if (real == NULL)
        real = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
    if (shared != NULL)
        shared->syncs++;
    return real(fd);
}

static double now_s(void) {
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static double cpu_s(void) {
    struct rusage usage;

    getrusage(RUSAGE_SELF, &usage);
    return (double)usage.ru_utime.tv_sec + (double)usage.ru_stime.tv_sec +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

/* Starts and ends the time of one process's pairs, when all processes are ready. */
static void measure_begin(int process) {
    pthread_barrier_wait(&shared->begin);
    shared->process[process].cpu = cpu_s();
    shared->process[process].begun = now_s();
}

static void measure_end(int process) {
    shared->process[process].ended = now_s();
    shared->process[process].cpu = cpu_s() - shared->process[process].cpu;
}

struct plan {
    char url[512], raw_path[512];
    bool always;
    int threads, processes;
    long pairs; /* pairs of each thread */
    unsigned round;
};

/* Idem. */

static const struct idem_policy policy = {.prefix = PREFIX, .scope = IDEM_SCOPE_NONE};
static char result[RESULT_LEN];

static enum idem_result work(struct idem_run *run, void *data) {
    (void)data;
    return idem_run_set_result(run, result, sizeof(result)) == 0 ? IDEM_RESULT_DONE
                                                                 : IDEM_RESULT_RETRY;
}

struct worker {
    pthread_t thread;
    const struct plan *plan;
    int number;
    struct idem *h;
    struct idem_guard *guard;
    MDB_env *env;
    MDB_dbi dbi;
};

static int key_print(char *buf, size_t size, const struct worker *w, long i) {
    return snprintf(buf, size, "%u-%d-%d-%ld", w->plan->round, (int)getpid(), w->number, i);
}

static void *idem_worker(void *data) {
    struct worker *w = data;
    struct idem_error error;

    for (long i = 0; i < w->plan->pairs; i++) {
        char key[64];
        struct idem_args args = {
            .key = key, .fingerprint = FINGERPRINT, .fingerprint_len = sizeof(FINGERPRINT) - 1};
        struct idem_outcome out;

        args.key_len = (size_t)key_print(key, sizeof(key), w, i);
        if (idem_call(w->h, w->guard, &args, work, NULL, &out, &error) < 0)
            errx(1, "%s", error.text);
        if (out.verdict != IDEM_RUN || out.finish != IDEM_FINISH_STORED)
            errx(1, "not stored");
        idem_outcome_release(&out);
    }
    return NULL;
}

static void idem_process(const struct plan *plan, int process) {
    struct worker workers[64];
    struct idem_error error;
    struct idem_guard *guard;
    struct idem *h;

    if (idem_open(plan->url, NULL, &h, &error) < 0 ||
        idem_guard_new(h, &policy, &guard, &error) < 0)
        errx(1, "%s", error.text);
    measure_begin(process);
    for (int i = 0; i < plan->threads; i++) {
        workers[i] = (struct worker){.plan = plan, .number = i, .h = h, .guard = guard};
        pthread_create(&workers[i].thread, NULL, idem_worker, &workers[i]);
    }
    for (int i = 0; i < plan->threads; i++)
        pthread_join(workers[i].thread, NULL);
    measure_end(process);
    idem_guard_free(guard);
    idem_close(h);
}

/* Raw LMDB, with values of the lengths that Idem writes. */

static size_t running_len, done_len;

static void lengths_find(void) {
    struct idem_record record = {.state = IDEM_RUNNING,
                                 .attempt = 1,
                                 .tries = 1,
                                 .lease_end = 100000000,
                                 .created = 1800000000000,
                                 .changed = 1800000000000,
                                 .expires = 1802592000000,
                                 .fingerprint.definition = 1};

    running_len = idem_record_size(&record, 1) + 8;
    record.state = IDEM_DONE;
    record.kept = true;
    record.lease_end = 0;
    record.result = (struct idem_bytes){(const unsigned char *)result, RESULT_LEN};
    done_len = idem_record_size(&record, 1) + 8;
}

static void raw_check(int rc) {
    if (rc != 0)
        errx(1, "raw LMDB: %s", mdb_strerror(rc));
}

static void raw_open(const struct plan *plan, MDB_env **env, MDB_dbi *dbi) {
    MDB_txn *txn;

    raw_check(mdb_env_create(env));
    raw_check(mdb_env_set_maxdbs(*env, 8));
    raw_check(mdb_env_set_mapsize(*env, (size_t)16 << 30));
    raw_check(mdb_env_open(*env, plan->raw_path, plan->always ? 0 : MDB_NOSYNC, 0600));
    raw_check(mdb_txn_begin(*env, NULL, 0, &txn));
    raw_check(mdb_dbi_open(txn, "records", MDB_CREATE, dbi));
    raw_check(mdb_txn_commit(txn));
}

static void raw_put(struct worker *w, const struct idem_record_key *key, size_t len) {
    static unsigned char value[512];
    MDB_val k = {idem_record_key_len(key), (void *)key->at}, v = {len, value};
    MDB_txn *txn;

    raw_check(mdb_txn_begin(w->env, NULL, 0, &txn));
    raw_check(mdb_put(txn, w->dbi, &k, &v, 0));
    raw_check(mdb_txn_commit(txn));
}

static void raw_key(struct idem_record_key *ret, const char *key, size_t len) {
    idem_record_key_make(ret, IDEM_NAME_RECORD,
                         (struct idem_bytes){(const unsigned char *)PREFIX, sizeof(PREFIX) - 1},
                         (struct idem_bytes){0},
                         (struct idem_bytes){(const unsigned char *)key, len});
}

static void *raw_worker(void *data) {
    struct worker *w = data;

    for (long i = 0; i < w->plan->pairs; i++) {
        struct idem_record_key name;
        char key[64];

        raw_key(&name, key, (size_t)key_print(key, sizeof(key), w, i));
        raw_put(w, &name, running_len);
        raw_put(w, &name, done_len);
    }
    return NULL;
}

static void raw_process(const struct plan *plan, int process) {
    struct worker workers[64];
    MDB_env *env;
    MDB_dbi dbi;

    raw_open(plan, &env, &dbi);
    measure_begin(process);
    for (int i = 0; i < plan->threads; i++) {
        workers[i] = (struct worker){.plan = plan, .number = i, .env = env, .dbi = dbi};
        pthread_create(&workers[i].thread, NULL, raw_worker, &workers[i]);
    }
    for (int i = 0; i < plan->threads; i++)
        pthread_join(workers[i].thread, NULL);
    measure_end(process);
    mdb_env_close(env);
}

/* A round: all processes at once. */

struct figures {
    double rate;     /* pairs per second */
    double cpu_us;   /* per pair */
    double per_sync; /* operations per fdatasync */
};

static void processes_run(const struct plan *plan, void (*process)(const struct plan *, int)) {
    pthread_barrierattr_t attr;

    pthread_barrierattr_init(&attr);
    pthread_barrierattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
    pthread_barrier_init(&shared->begin, &attr, (unsigned)plan->processes);
    for (int i = 0; i < plan->processes; i++) {
        pid_t pid = fork();

        if (pid < 0)
            err(1, "fork");
        if (pid == 0) {
            process(plan, i);
            _exit(0);
        }
    }
    for (int i = 0; i < plan->processes; i++) {
        int status;

        if (wait(&status) < 0 || status != 0)
            errx(1, "a process failed");
    }
}

static struct figures round_run(const struct plan *plan,
                                void (*process)(const struct plan *, int)) {
    double pairs = (double)plan->pairs * plan->threads * plan->processes;
    double begun = 1e300, ended = 0, cpu = 0;
    long before = shared->syncs;

    processes_run(plan, process);
    for (int i = 0; i < plan->processes; i++) {
        if (shared->process[i].begun < begun)
            begun = shared->process[i].begun;
        if (shared->process[i].ended > ended)
            ended = shared->process[i].ended;
        cpu += shared->process[i].cpu;
    }
    return (struct figures){pairs / (ended - begun), cpu / pairs * 1e6,
                            plan->always ? 2 * pairs / (double)(shared->syncs - before) : 0};
}

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double median(double *values, int n) {
    qsort(values, (size_t)n, sizeof(*values), compare);
    return values[n / 2];
}

static void rounds_run(struct plan *plan, long keys, int rounds) {
    double ratio[ROUNDS_MAX], cpu[ROUNDS_MAX], idem[ROUNDS_MAX], raw[ROUNDS_MAX], sync[ROUNDS_MAX];

    for (int i = 0; i < rounds; i++) {
        struct figures a, b;

        plan->round = (unsigned)now_s() * 64 + (unsigned)i;
        a = round_run(plan, raw_process);
        b = round_run(plan, idem_process);
        raw[i] = a.rate;
        idem[i] = b.rate;
        ratio[i] = b.rate / a.rate;
        cpu[i] = b.cpu_us / a.cpu_us;
        sync[i] = b.per_sync;
    }
    printf("%8ld %-6s %7d %9d %12.0f %12.0f %7.2f %9.2f %9.1f\n", keys,
           plan->always ? "always" : "off", plan->threads, plan->processes, median(raw, rounds),
           median(idem, rounds), median(ratio, rounds), median(cpu, rounds), median(sync, rounds));
    fflush(stdout);
}

/* Filling both files, many records to a transaction. */

static void raw_fill(const struct plan *plan, long keys) {
    struct plan off = *plan;
    static unsigned char value[512];
    MDB_env *env;
    MDB_dbi dbi;
    MDB_txn *txn = NULL;

    off.always = false;
    mkdir(plan->raw_path, 0700);
    raw_open(&off, &env, &dbi);
    for (long i = 0; i < keys; i++) {
        struct idem_record_key name;
        char key[32];
        MDB_val k, v = {done_len, value};

        if (txn == NULL)
            raw_check(mdb_txn_begin(env, NULL, 0, &txn));
        raw_key(&name, key, (size_t)snprintf(key, sizeof(key), "fill-%ld", i));
        k = (MDB_val){idem_record_key_len(&name), name.at};
        raw_check(mdb_put(txn, dbi, &k, &v, 0));
        if (i % 1000 == 999 || i == keys - 1) {
            raw_check(mdb_txn_commit(txn));
            txn = NULL;
        }
    }
    mdb_env_sync(env, 1);
    mdb_env_close(env);
}

#define FILL_STEP 500

static int fill_left;

static void fill_complete(struct idem_op *op, int rc) {
    (void)op;
    if (rc != 0)
        errx(1, "fill: %s", op->error.text);
    fill_left--;
}

static void fill_turns(struct idem_loop *loop) {
    while (fill_left > 0)
        idem_loop_timeout(loop);
}

static int fill_watch(void *data, int fd, int events) {
    (void)data;
    (void)fd;
    (void)events;
    return 0;
}

static void fill_timer(void *data, int64_t ms) {
    (void)data;
    (void)ms;
}

static void fill_op(struct idem_op *op, long i, bool finish) {
    struct idem_record_key key;
    char text[32];

    raw_key(&key, text, (size_t)snprintf(text, sizeof(text), "fill-%ld", i));
    *op = (struct idem_op){
        .kind = finish ? IDEM_OP_FINISH : IDEM_OP_CLAIM, .key = key, .complete = fill_complete};
    if (finish) {
        op->in.finish =
            (struct idem_finish_in){.action = IDEM_OWNER_DONE,
                                    .keep_result = true,
                                    .ttl_ms = 86400000,
                                    .result = {(const unsigned char *)result, RESULT_LEN}};
        memcpy(op->in.finish.owner, key.at, IDEM_OWNER_LEN);
    } else {
        op->in.claim = (struct idem_claim_in){.mode = IDEM_MODE_REPLAY,
                                              .recover = IDEM_RECOVER_HOLD,
                                              .lease_ms = 30000,
                                              .hold_ttl_ms = 2592000000,
                                              .ttl_ms = 86400000,
                                              .fingerprint.definition = 1};
        memcpy(op->in.claim.owner, key.at, IDEM_OWNER_LEN);
    }
}

static void idem_fill(const struct plan *plan, long keys) {
    static struct idem_op ops[FILL_STEP];
    struct idem_host host = {.watch = fill_watch, .timer = fill_timer};
    struct idem_store *store;
    struct idem_error error;
    struct idem_loop loop;
    char url[600];

    snprintf(url, sizeof(url), "%.*s?sync=off", (int)strcspn(plan->url, "?"), plan->url);
    idem_loop_init(&loop, &host);
    if (idem_store_open(url, &loop, NULL, &store, &error) < 0)
        errx(1, "%s", error.text);
    for (long at = 0; at < keys; at += FILL_STEP) {
        for (int finish = 0; finish < 2; finish++) {
            for (long i = 0; i < FILL_STEP && at + i < keys; i++) {
                fill_op(&ops[i], at + i, finish);
                if (idem_store_submit(store, &ops[i]) != 0)
                    errx(1, "fill");
                fill_left++;
            }
            fill_turns(&loop);
        }
    }
    idem_store_close(store);
}

static void size_print(const struct plan *plan, long keys) {
    struct idem_error error;
    struct idem_stats stats;
    struct idem *h;
    double content = (double)(done_len - 8 + sizeof(PREFIX) - 1 + IDEM_HASH_LEN);

    if (idem_open(plan->url, NULL, &h, &error) < 0 || idem_stats(h, &stats, &error) < 0)
        errx(1, "%s", error.text);
    printf("%8ld records: %.0f bytes each in pages in use, %.0f of content: %.2f\n",
           (long)stats.done, (double)stats.bytes_used / (double)stats.done, content,
           (double)stats.bytes_used / (double)stats.done / content);
    idem_close(h);
    (void)keys;
}

int main(int argc, char **argv) {
    struct plan plan = {0};
    long keys;
    struct stat st;

    if (argc < 4)
        errx(64, "usage: bench-lmdb FOLDER KEYS always|off THREADS PROCESSES PAIRS ROUNDS");
    shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        err(1, "mmap");
    keys = strtol(argv[2], NULL, 10);
    plan.always = strcmp(argv[3], "always") == 0;
    lengths_find();
    snprintf(plan.raw_path, sizeof(plan.raw_path), "%s/raw-%ld", argv[1], keys);
    snprintf(plan.url, sizeof(plan.url), "lmdb:%s/idem-%ld?sync=%s", argv[1], keys,
             plan.always ? "always" : "off");
    if (stat(plan.raw_path, &st) < 0) {
        raw_fill(&plan, keys);
        idem_fill(&plan, keys);
    }
    if (strcmp(argv[3], "size") == 0) {
        size_print(&plan, keys);
        return 0;
    }
    if (argc != 8)
        errx(64, "usage: bench-lmdb FOLDER KEYS always|off THREADS PROCESSES PAIRS ROUNDS");
    plan.threads = (int)strtol(argv[4], NULL, 10);
    plan.processes = (int)strtol(argv[5], NULL, 10);
    plan.pairs = strtol(argv[6], NULL, 10);
    if (plan.threads < 1 || plan.threads > 64 || strtol(argv[7], NULL, 10) > ROUNDS_MAX)
        errx(64, "1 to 64 threads, at most %d rounds", ROUNDS_MAX);
    rounds_run(&plan, keys, (int)strtol(argv[7], NULL, 10));
    return 0;
}
