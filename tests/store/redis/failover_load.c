/* Load while a server fails over, and the check of its log. */
#include "failover_load.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "idem.h"
#include "model/history.h"
#include "temp.h"
#include "test.h"
#include "wait.h"

#define WORKERS 4
#define LEASE "600000" /* longer than a failover takes on a busy machine */
#define KEYS_MAX 200000

struct stage {
    _Atomic int64_t again; /* when the workers claim every key a second time; 0: not yet */
    _Atomic unsigned long keys[WORKERS], since; /* since: calls, for load_calls_wait() */
};

static struct stage *stage;
static pid_t pids[WORKERS];
static char log_path[300];
static int log_fd;

/* Workers. */

struct job {
    char key[48], owner[64];
    bool ran;
};

static void note(const struct job *job, const char *event, const char *names) {
    CHECK(history_write(log_fd, job->key, event, "owner=%s%s%s", job->owner,
                        names[0] == '\0' ? "" : " ", names) == 0);
}

static enum idem_result effect(struct idem_run *run, void *data) {
    struct job *job = data;
    char names[64];

    job->ran = true;
    snprintf(names, sizeof(names), "attempt=%u", idem_run_attempt(run));
    CHECK(history_write(log_fd, job->key, "claimed", "owner=%s verdict=run %s", job->owner,
                        names) == 0);
    note(job, "effect", names);
    CHECK_INT(idem_run_set_result(run, job->owner, strlen(job->owner)), 0);
    CHECK(history_write(log_fd, job->key, "finish", "owner=%s said=done digest=%s", job->owner,
                        job->owner) == 0);
    return IDEM_RESULT_DONE;
}

/* Makes one call. Returns false if its claim was refused, or its outcome is unknown, because
 * there is no master now. */
static bool job_try(struct idem *h, struct idem_guard *guard, struct job *job) {
    struct idem_args args = {.key = job->key, .key_len = strlen(job->key)};
    struct idem_outcome out = {0};
    struct idem_error err = {0};
    int rc;

    note(job, "claim", "");
    rc = idem_call(h, guard, &args, effect, job, &out, &err);
    if (rc != 0) {
        if (!job->ran)
            note(job, "claimed", "verdict=error");
    } else if (out.verdict == IDEM_RUN) {
        note(job, "finished",
             out.finish == IDEM_FINISH_STORED ? "said=done ack=ack"
             : out.finish == IDEM_FINISH_LOST ? "said=done ack=lost"
                                              : "said=done ack=error");
    } else if (out.verdict == IDEM_REPLAY) {
        CHECK(history_write(log_fd, job->key, "claimed", "owner=%s verdict=replay digest=%.*s",
                            job->owner, (int)out.result_len, (const char *)out.result) == 0);
    } else {
        CHECK(history_write(log_fd, job->key, "claimed", "owner=%s verdict=%s", job->owner,
                            idem_verdict_name(out.verdict)) == 0);
    }
    idem_outcome_release(&out);
    return rc == 0 || job->ran;
}

static void job_run(struct idem *h, struct idem_guard *guard, struct job *job) {
    WAIT_UNTIL(job_try(h, guard, job));
    stage->since++;
}

static void worker(unsigned who, const char *url) {
    static const struct idem_policy policy = {.prefix = "f:",
                                              .scope = IDEM_SCOPE_NONE,
                                              .mode = IDEM_MODE_REPLAY,
                                              .recover = IDEM_RECOVER_HOLD,
                                              .lease_ms = 600000,
                                              .ttl_s = 3600,
                                              .finish_timeout_ms = 120000,
                                              .wait_ms = IDEM_NONE};
    struct idem_options options = {.op_timeout_ms = 120000};
    struct idem_guard *guard;
    struct idem_error err = {0};
    struct idem *h;
    unsigned long n = 0;

    if (idem_open(url, &options, &h, &err) != 0 || idem_guard_new(h, &policy, &guard, &err) != 0) {
        fprintf(stderr, "# %s\n", err.text);
        exit(1);
    }
    for (; stage->again == 0 && n < KEYS_MAX; n++) {
        struct job job = {.ran = false};

        snprintf(job.key, sizeof(job.key), "k%u-%lu", who, n);
        snprintf(job.owner, sizeof(job.owner), "w%u-%lu", who, n);
        job_run(h, guard, &job);
        stage->keys[who] = n + 1;
        /* Claims a key that another worker has finished. */
        if (n % 8 == 7 && stage->keys[(who + 1) % WORKERS] > 0) {
            unsigned other = (who + 1) % WORKERS;

            snprintf(job.key, sizeof(job.key), "k%u-%lu", other, stage->keys[other] / 2);
            snprintf(job.owner, sizeof(job.owner), "x%u-%lu", who, n);
            job.ran = false;
            job_run(h, guard, &job);
        }
        wait_step(); /* sleep: so that the log stays small */
    }
    for (unsigned long i = 0; i < n; i++) {
        struct job job = {.ran = false};

        snprintf(job.key, sizeof(job.key), "k%u-%lu", who, i);
        snprintf(job.owner, sizeof(job.owner), "y%u-%lu", who, i);
        job_run(h, guard, &job);
    }
    idem_guard_free(guard);
    idem_close(h);
}

/* Afterwards: the fate of each key, according to the log. */

struct fate {
    char key[48];
    int64_t first, last; /* of the claims before the second time */
    unsigned effects;
    bool refused; /* a claim was refused */
    bool broken;  /* a finish failed */
};

static int fate_order(const void *a, const void *b) {
    return strcmp(((const struct fate *)a)->key, ((const struct fate *)b)->key);
}

static struct fate *fate_of(struct fate *fates, size_t n, const char *key) {
    struct fate wanted;

    snprintf(wanted.key, sizeof(wanted.key), "%s", key);
    return bsearch(&wanted, fates, n, sizeof(*fates), fate_order);
}

static struct fate *fates_make(size_t *ret_n) {
    size_t n = 0, all = 0;
    struct fate *fates;

    for (unsigned who = 0; who < WORKERS; who++)
        all += stage->keys[who];
    fates = calloc(all + 1, sizeof(*fates));
    CHECK(fates != NULL);
    for (unsigned who = 0; who < WORKERS; who++)
        for (unsigned long i = 0; i < stage->keys[who]; i++)
            snprintf(fates[n++].key, sizeof(fates[0].key), "k%u-%lu", who, i);
    qsort(fates, n, sizeof(*fates), fate_order);
    *ret_n = n;
    return fates;
}

static void fates_read(struct fate *fates, size_t n) {
    char line[512], key[64], event[32];
    FILE *log = fopen(log_path, "re");
    int64_t at;

    CHECK(log != NULL);
    while (fgets(line, sizeof(line), log) != NULL) {
        struct fate *fate;

        if (sscanf(line, "%" SCNd64 " %*s %63s %31s", &at, key, event) != 3 ||
            (fate = fate_of(fates, n, key)) == NULL)
            continue;
        if (strcmp(event, "effect") == 0)
            fate->effects++;
        fate->refused |= strstr(line, "verdict=error") != NULL;
        fate->broken |= strstr(line, "ack=error") != NULL;
        if (at > stage->again)
            continue;
        if (fate->first == 0)
            fate->first = at;
        fate->last = at;
    }
    fclose(log);
}

static bool was_at_risk(const struct fate *fate, const struct load_allowed *allowed) {
    return allowed->to != 0 && fate->first <= allowed->to && fate->last >= allowed->from;
}

/* True for a key that may have run twice. */
static bool is_excused(const struct fate *fate, const struct load_allowed *allowed) {
    return was_at_risk(fate, allowed) || (allowed->twice && fate->effects > 1);
}

/* The history of all other keys. */
static void check_others(struct fate *fates, size_t n, const struct load_allowed *allowed) {
    char path[320], line[512], key[64];
    FILE *log = fopen(log_path, "re"), *rest;
    struct history_sum sum;

    snprintf(path, sizeof(path), "%s.rest", log_path);
    rest = fopen(path, "we");
    CHECK(log != NULL && rest != NULL);
    while (fgets(line, sizeof(line), log) != NULL) {
        const struct fate *fate;

        if (sscanf(line, "%*s %*s %63s", key) == 1 && (fate = fate_of(fates, n, key)) != NULL &&
            is_excused(fate, allowed))
            continue;
        fputs(line, rest);
    }
    fclose(log);
    CHECK(fclose(rest) == 0);
    CHECK_INT(history_check_file(path, stderr, &sum), 0);
    CHECK(sum.keys > 500);
    CHECK(sum.replays > 500);
}

size_t load_check(const struct load_allowed *allowed) {
    size_t n, twice = 0, lost = 0, risk = 0, refused = 0, broken = 0;
    struct fate *fates = fates_make(&n);

    fates_read(fates, n);
    for (size_t i = 0; i < n; i++) {
        const struct fate *fate = &fates[i];
        bool at_risk = was_at_risk(fate, allowed);

        risk += at_risk;
        refused += fate->refused;
        /* If the replica had not seen a claim, its finish may never learn whether it was stored. */
        broken += fate->broken && !at_risk;
        lost += fate->effects == 0;
        if (fate->effects <= 1)
            continue;
        twice++;
        CHECK_INT(fate->effects, 2);
        if (!is_excused(fate, allowed))
            fprintf(stderr, "# %s ran twice, and was asked for from %lld to %lld ms\n", fate->key,
                    (long long)(fate->first - allowed->from) / 1000000,
                    (long long)(fate->last - allowed->from) / 1000000);
        CHECK(is_excused(fate, allowed));
    }
    fprintf(stderr, "# %zu keys, %zu at risk, %zu ran twice, %zu never, %zu refused, %zu unclear\n",
            n, risk, twice, lost, refused, broken);
    CHECK_INT(lost, 0);
    CHECK_INT(broken, 0); /* no finish failed, because the load waited for all of them */
    CHECK(refused == 0 || allowed->refused);
    check_others(fates, n, allowed);
    free(fates);
    munmap(stage, sizeof(*stage));
    return twice;
}

/* The course of the load. */

void load_check_alive(void) {
    CHECK_INT(waitpid(-1, NULL, WNOHANG), 0);
}

static bool have_called(unsigned long n) {
    load_check_alive();
    return stage->since >= n;
}

void load_calls_wait(unsigned long n) {
    stage->since = 0;
    WAIT_UNTIL(have_called(n));
}

void load_start(const char *url) {
    stage = mmap(NULL, sizeof(*stage), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(stage != MAP_FAILED);
    snprintf(log_path, sizeof(log_path), "%s/log", temp_folder());
    (void)unlink(log_path);
    log_fd = history_open(log_path);
    CHECK(log_fd >= 0);
    CHECK(history_write_as(log_fd, "test", "*", "policy",
                           "mode=replay recover=hold lease_ms=" LEASE) == 0);
    fflush(NULL);
    for (unsigned i = 0; i < WORKERS; i++) {
        pids[i] = fork();
        CHECK(pids[i] >= 0);
        if (pids[i] == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            worker(i, url);
            exit(0);
        }
    }
}

void load_end(void) {
    stage->again = history_now();
    for (unsigned i = 0; i < WORKERS; i++) {
        int status;

        CHECK(waitpid(pids[i], &status, 0) == pids[i]);
        CHECK_INT(status, 0);
    }
    close(log_fd);
}
