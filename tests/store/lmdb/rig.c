/*
 * The rig of the embedded store's tests. A failure of its own ends the process
 * with a line on stderr; it returns the store's codes.
 */
#include "rig.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>

#include "temp.h"

#define ANSWER_LIMIT_MS 120000

/* Patience. */

struct lmdb_patience rig_documented;

/* A process or a disk that is busy is no reason to refuse an operation. A test that waits for a
 * timeout sets a shorter one. */
__attribute__((constructor)) static void patience_set(void) {
    rig_documented = lmdb_patience;
    lmdb_patience = (struct lmdb_patience){.door = 120, .stop = 120, .busy = 120, .length = 120};
}

/* Clocks. */

struct rig_clock *rig_clock_new(void) {
    struct rig_clock *clock =
        mmap(NULL, sizeof(*clock), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    NEED(clock != MAP_FAILED);
    clock->lease = 1000000;
    clock->wall = INT64_C(1700000000000);
    return clock;
}

static int64_t clock_lease(void *data) {
    return ((struct rig_clock *)data)->lease;
}

static int64_t clock_wall(void *data) {
    return ((struct rig_clock *)data)->wall;
}

struct idem_clock rig_clock_calls(struct rig_clock *clock) {
    return (struct idem_clock){.lease = clock_lease, .wall = clock_wall, .data = clock};
}

void rig_clock_pass(struct rig_clock *clock, int64_t ms) {
    clock->lease += ms;
    clock->wall += ms;
}

/* A store with its loop. */

static void sink_ready(void *sink, int fd, int events) {
    idem_loop_ready(&((struct rig *)sink)->loop, fd, events);
}

static void sink_timeout(void *sink) {
    idem_loop_timeout(&((struct rig *)sink)->loop);
}

int rig_try(struct rig *rig, const char *url, const struct idem_clock *clock) {
    struct idem_host host;
    int rc;

    *rig = (struct rig){.prefix = "rig:"};
    rig->policy = (struct idem_claim_in){
        .mode = IDEM_MODE_REPLAY,
        .recover = IDEM_RECOVER_HOLD,
        .on_failure = IDEM_ON_FAILURE_RELEASE,
        .lease_ms = 30000,
        .ttl_ms = DAY_MS,
        .hold_ttl_ms = 30 * DAY_MS,
    };
    idem_poll_init(&rig->poll);
    rig->poll.ready = sink_ready;
    rig->poll.timeout = sink_timeout;
    rig->poll.sink = rig;
    host = idem_poll_host(&rig->poll);
    idem_loop_init(&rig->loop, &host);
    rc = idem_store_open(url, &rig->loop, clock, &rig->store, &rig->error);
    if (rc != 0) {
        NEED(rig->store == NULL && rig->error.code == rc && rig->error.text[0] != '\0');
        idem_loop_stop(&rig->loop);
        idem_poll_release(&rig->poll);
    }
    return rc;
}

void rig_open(struct rig *rig, const char *url, const struct idem_clock *clock) {
    if (rig_try(rig, url, clock) != 0) {
        fprintf(stderr, "# cannot open %s: %s\n", url, rig->error.text);
        exit(1);
    }
}

void rig_close(struct rig *rig) {
    idem_store_close(rig->store);
    idem_loop_stop(&rig->loop);
    idem_poll_release(&rig->poll);
    rig->store = NULL;
}

struct answer {
    bool ready;
    int rc;
    void (*take)(struct idem_op *op, void *data);
    void *data;
};

static void run_complete(struct idem_op *op, int rc) {
    struct answer *answer = op->data;

    answer->ready = true;
    answer->rc = rc;
    if (rc == 0 && answer->take != NULL)
        answer->take(op, answer->data);
}

int rig_run(struct rig *rig, struct idem_op *op, void (*take)(struct idem_op *op, void *data),
            void *data) {
    struct answer answer = {.take = take, .data = data};
    int64_t limit = idem_loop_now() + ANSWER_LIMIT_MS;

    op->complete = run_complete;
    op->data = &answer;
    answer.rc = idem_store_submit(rig->store, op);
    while (answer.rc == 0 && !answer.ready) {
        NEED(idem_poll_turn(&rig->poll, NULL, 0, 1000) == 0);
        NEED(idem_loop_now() < limit);
    }
    if (answer.rc != 0)
        rig->error = op->error;
    return answer.rc;
}

struct idem_record_key rig_key(enum idem_name_kind kind, const char *prefix, const char *name) {
    struct idem_record_key key;

    NEED(idem_record_key_make(&key, kind,
                              (struct idem_bytes){(const unsigned char *)prefix, strlen(prefix)},
                              (struct idem_bytes){NULL, 0},
                              (struct idem_bytes){(const unsigned char *)name, strlen(name)}) == 0);
    return key;
}

int rig_claim(struct rig *rig, const char *name, struct rig_claim *ret) {
    struct idem_op op = {.kind = IDEM_OP_CLAIM, .in.claim = rig->policy};
    int rc;

    *ret = (struct rig_claim){.key = rig_key(IDEM_NAME_RECORD, rig->prefix, name)};
    NEED(idem_random(ret->owner, sizeof(ret->owner)) == 0);
    memcpy(op.in.claim.owner, ret->owner, IDEM_OWNER_LEN);
    op.key = ret->key;
    rc = rig_run(rig, &op, NULL, NULL);
    if (rc == 0) {
        ret->verdict = op.out.claim.verdict;
        ret->left_ms = op.out.claim.left_ms;
        ret->attempt = op.out.claim.record.attempt;
    }
    return rc;
}

int rig_finish(struct rig *rig, const struct rig_claim *claim, enum idem_owner_action action,
               const void *result, size_t len, enum idem_ack *ret) {
    struct idem_op op = {.kind = IDEM_OP_FINISH, .key = claim->key};
    int rc;

    op.in.finish = (struct idem_finish_in){
        .action = action,
        .result = {result, len},
        .keep_result = action == IDEM_OWNER_DONE,
        .lease_ms = rig->policy.lease_ms,
        .ttl_ms = rig->policy.ttl_ms,
        .hold_ttl_ms = rig->policy.hold_ttl_ms,
    };
    memcpy(op.in.finish.owner, claim->owner, IDEM_OWNER_LEN);
    rc = rig_run(rig, &op, NULL, NULL);
    if (rc == 0)
        *ret = op.out.finish.ack;
    return rc;
}

void rig_once(struct rig *rig, const char *name, const void *result, size_t len) {
    struct rig_claim claim;
    enum idem_ack ack = IDEM_LOST;

    if (rig_claim(rig, name, &claim) != 0 ||
        (claim.verdict == IDEM_RUN &&
         rig_finish(rig, &claim, IDEM_OWNER_DONE, result, len, &ack) != 0)) {
        fprintf(stderr, "# %s: %s\n", name, rig->error.text);
        exit(1);
    }
    NEED(claim.verdict == IDEM_RUN);
    NEED(ack == IDEM_ACK);
}

enum idem_verdict rig_ask(struct rig *rig, const char *name) {
    struct rig_claim claim;

    if (rig_claim(rig, name, &claim) != 0) {
        fprintf(stderr, "# %s: %s\n", name, rig->error.text);
        exit(1);
    }
    return claim.verdict;
}

struct expected {
    const void *result;
    size_t len;
    bool met;
};

static void holds_take(struct idem_op *op, void *data) {
    const struct idem_record *record = &op->out.lookup.record;
    struct expected *expected = data;

    expected->met =
        record->state == IDEM_DONE && record->kept && record->result.len == expected->len &&
        (expected->len == 0 || memcmp(record->result.at, expected->result, expected->len) == 0);
}

bool rig_holds(struct rig *rig, const char *name, const void *result, size_t len) {
    struct expected expected = {result, len, false};
    struct idem_op op = {.kind = IDEM_OP_LOOKUP};

    op.key = rig_key(IDEM_NAME_RECORD, rig->prefix, name);
    return rig_run(rig, &op, holds_take, &expected) == 0 && expected.met;
}

struct idem_stats rig_stats(struct rig *rig) {
    struct idem_op op = {.kind = IDEM_OP_STATS};

    NEED(rig_run(rig, &op, NULL, NULL) == 0);
    return op.out.stats;
}

/* The library's handle. */

struct idem *rig_handle(const char *url) {
    static const struct idem_options options = {.op_timeout_ms = 120000};
    struct idem_error err = {0};
    struct idem *h = NULL;

    if (idem_open(url, &options, &h, &err) != 0) {
        fprintf(stderr, "# cannot open %s: %s\n", url, err.text);
        exit(1);
    }
    return h;
}

int rig_refused(const char *url, struct idem_error *err) {
    struct idem *h = NULL;
    int rc;

    *err = (struct idem_error){0};
    rc = idem_open(url, NULL, &h, err);
    if (rc == 0) {
        fprintf(stderr, "# %s was opened, and should have been refused\n", url);
        exit(1);
    }
    NEED(h == NULL && err->code == rc && err->text[0] != '\0');
    return rc;
}

struct given {
    const void *result;
    size_t len;
};

static enum idem_result give(struct idem_run *run, void *data) {
    const struct given *given = data;

    NEED(idem_run_set_result(run, given->result, given->len) == 0);
    return IDEM_RESULT_DONE;
}

static int call(struct idem *h, const char *key, const struct given *given,
                struct idem_outcome *ret, struct idem_error *err) {
    static const struct idem_policy policy = {
        .prefix = "rig:", .scope = IDEM_SCOPE_NONE, .finish_timeout_ms = 120000};
    struct idem_args args = {.key = key, .key_len = strlen(key)};
    struct idem_guard *guard = NULL;
    int rc;

    NEED(idem_guard_new(h, &policy, &guard, NULL) == 0);
    rc = idem_call(h, guard, &args, give, (void *)given, ret, err);
    idem_guard_free(guard);
    return rc;
}

int rig_call(struct idem *h, const char *key, const void *result, size_t len,
             enum idem_verdict *ret_verdict, struct idem_error *err) {
    struct given given = {result, len};
    struct idem_outcome out;
    int rc = call(h, key, &given, &out, err);

    if (rc != 0)
        return rc;
    NEED(out.verdict != IDEM_RUN || out.finish == IDEM_FINISH_STORED);
    *ret_verdict = out.verdict;
    idem_outcome_release(&out);
    return 0;
}

void rig_call_runs(struct idem *h, const char *key, const void *result, size_t len) {
    enum idem_verdict verdict = IDEM_BUSY;
    struct idem_error err = {0};

    if (rig_call(h, key, result, len, &verdict, &err) != 0 || verdict != IDEM_RUN) {
        fprintf(stderr, "# %s: %s %s\n", key, idem_verdict_name(verdict), err.text);
        exit(1);
    }
}

bool rig_call_replays(struct idem *h, const char *key, const void *result, size_t len) {
    struct given given = {"not this", 8};
    struct idem_error err = {0};
    struct idem_outcome out;
    bool same;

    if (call(h, key, &given, &out, &err) != 0) {
        fprintf(stderr, "# %s: %s\n", key, err.text);
        return false;
    }
    same = out.verdict == IDEM_REPLAY && out.result_len == len &&
           (len == 0 || memcmp(out.result, result, len) == 0);
    if (!same)
        fprintf(stderr, "# %s: %s with %zu bytes\n", key, idem_verdict_name(out.verdict),
                out.result_len);
    idem_outcome_release(&out);
    return same;
}

/* splitmix64 */
uint64_t rig_random(uint64_t *state) {
    uint64_t z = (*state += UINT64_C(0x9e3779b97f4a7c15));

    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

void rig_bytes(uint64_t seed, void *out, size_t len) {
    unsigned char *at = out;

    for (size_t i = 0; i < len; i++)
        at[i] = (unsigned char)rig_random(&seed);
}

/* Children and files. */

const char *rig_folder(void) {
    return temp_folder();
}

const char *rig_url(const char *name, const char *options) {
    return temp_url(name, options);
}

/* True if all other threads sleep, according to /proc. */
static bool threads_rest(void) {
    DIR *dir = opendir("/proc/self/task");
    struct dirent *entry;
    bool rest = true;

    NEED(dir != NULL);
    while ((entry = readdir(dir)) != NULL) {
        char path[64], text[512] = "";
        const char *state;
        FILE *file;

        if (entry->d_name[0] == '.' || strtol(entry->d_name, NULL, 10) == (long)getpid())
            continue;
        snprintf(path, sizeof(path), "/proc/self/task/%.20s/stat", entry->d_name);
        file = fopen(path, "r");
        if (file == NULL) /* the thread has ended */
            continue;
        state = fgets(text, sizeof(text), file) == NULL ? NULL : strrchr(text, ')');
        fclose(file);
        rest &= state == NULL || state[2] == 'S';
    }
    closedir(dir);
    return rest;
}

/* Other threads may hold locks that stay locked in the child: those of the sanitizers'
 * allocator, and of the leak checker. So this waits until they sleep. */
pid_t rig_spawn(void (*fn)(void *data), void *data) {
    bool threads = rig_file_count("/proc/self/task", "") > 1;
    pid_t pid;

    for (int i = 0; threads && i < 200 && !threads_rest(); i++)
        rig_sleep(10); /* sleep: the step of a poll, which may end in vain */
    fflush(NULL);
    pid = fork();
    NEED(pid >= 0);
    if (pid == 0) {
        /* The child ends with its test. */
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        fn(data);
        fflush(NULL);
        if (threads)
            _exit(0);
        exit(0);
    }
    return pid;
}

int rig_child(void (*fn)(void *data), void *data) {
    pid_t pid = rig_spawn(fn, data);
    int status;

    NEED(waitpid(pid, &status, 0) == pid);
    return status;
}

void rig_child_ok(const char *what, void (*fn)(void *data), void *data) {
    int status = rig_child(fn, data);

    if (status == 0)
        return;
    if (WIFSIGNALED(status))
        fprintf(stderr, "# %s: died by signal %d\n", what, WTERMSIG(status));
    else
        fprintf(stderr, "# %s: failed\n", what);
    exit(1);
}

void rig_sleep(int64_t ms) {
    struct timespec ts = {ms / 1000, ms % 1000 * 1000000};

    (void)nanosleep(&ts, NULL); /* sleep: the caller gives the reason */
}

const char *rig_path(const char *folder, const char *name) {
    static char paths[4][512];
    static unsigned turn;
    char *path = paths[turn++ % 4];

    snprintf(path, sizeof(paths[0]), "%s/%s", folder, name);
    return path;
}

off_t rig_file_size(const char *path) {
    struct stat st;

    NEED(stat(path, &st) == 0);
    return st.st_size;
}

void rig_file_write(const char *path, const void *bytes, size_t len) {
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

    NEED(fd >= 0);
    NEED(write(fd, bytes, len) == (ssize_t)len);
    close(fd);
}

size_t rig_file_read(const char *path, void *out, size_t size) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n;

    NEED(fd >= 0);
    n = read(fd, out, size);
    NEED(n >= 0);
    close(fd);
    return (size_t)n;
}

void rig_file_poke(const char *path, off_t at, const void *bytes, size_t len) {
    int fd = open(path, O_WRONLY | O_CLOEXEC);

    NEED(fd >= 0);
    NEED(pwrite(fd, bytes, len, at) == (ssize_t)len);
    close(fd);
}

void rig_file_copy(const char *from, const char *to) {
    size_t len = (size_t)rig_file_size(from);
    void *bytes = malloc(len + 1);

    NEED(bytes != NULL);
    NEED(rig_file_read(from, bytes, len) == len);
    rig_file_write(to, bytes, len);
    free(bytes);
}

size_t rig_file_count(const char *folder, const char *begin) {
    DIR *dir = opendir(folder);
    struct dirent *entry;
    size_t n = 0;

    NEED(dir != NULL);
    while ((entry = readdir(dir)) != NULL)
        n += entry->d_name[0] != '.' && strncmp(entry->d_name, begin, strlen(begin)) == 0;
    closedir(dir);
    return n;
}

size_t rig_fd_count(void) {
    return rig_file_count("/proc/self/fd", "");
}
