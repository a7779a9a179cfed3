/*
 * Examines any store: the URL is valid, the server responds in time, its clock agrees with this
 * machine's, and a record can be claimed and finished as a front door does it. Each failure is a
 * finding.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/units.h"
#include "cli/doctor/doctor.h"
#include "engines.h"

#define TRIES 5
#define CLOCK_NOTE_MS 1000
#define CLOCK_UNSAFE_MS 10000
#define SLOW_US 20000
#define OP_TIMEOUT_MS 5000

bool doctor_is_loopback(const char *host) {
    return host[0] == '/' || idem_text_begins(host, "127.") || strcmp(host, "::1") == 0 ||
           strcasecmp(host, "localhost") == 0;
}

void doctor_network(struct doctor *d, const char *subject, bool loopback, bool tls, bool password) {
    if (loopback) {
        doctor_find(d, DOCTOR_OK, subject, "network", NULL, "it is on this machine");
        return;
    }
    if (tls)
        doctor_find(d, DOCTOR_OK, subject, "network", NULL, "the way there is encrypted");
    else
        doctor_find(d, DOCTOR_UNSAFE, subject, "network",
                    "use TLS (rediss:, tls=verify), or a tunnel",
                    "nothing is encrypted on the way there: a listener can read the password and "
                    "the stored responses");
    if (!password)
        doctor_find(d, DOCTOR_UNSAFE, subject, "password", "set one, and give it by password_file=",
                    "no password is given: every client that reaches the server can read, forget "
                    "and settle everything");
}

/* An open store. */

static int64_t doctor_store_now_us(clockid_t clock) {
    struct timespec now;

    clock_gettime(clock, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

static int doctor_store_compare_times(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

    return (x > y) - (x < y);
}

/* Reports the median of some round trips. False after reporting that the store does not respond. */
static bool doctor_store_check_reachable(struct doctor *d, const char *subject, struct idem *h) {
    int64_t took[TRIES], begin, ms;
    struct idem_error err;

    for (int i = 0; i < TRIES; i++) {
        begin = doctor_store_now_us(CLOCK_MONOTONIC);
        if (idem_time(h, &ms, &err) < 0) {
            doctor_find(d, DOCTOR_BROKEN, subject, "reachable",
                        "resolve this error; until then guarded requests are refused with 503",
                        "%s", err.text);
            return false;
        }
        took[i] = doctor_store_now_us(CLOCK_MONOTONIC) - begin;
    }
    qsort(took, TRIES, sizeof(took[0]), doctor_store_compare_times);
    if (took[TRIES / 2] > SLOW_US)
        doctor_find(d, DOCTOR_NOTE, subject, "reachable", "put it nearer to who asks",
                    "a round trip takes %lld ms, and a guarded request waits for two of them",
                    (long long)took[TRIES / 2] / 1000);
    else
        doctor_find(d, DOCTOR_OK, subject, "reachable", NULL, "a round trip takes %lld us",
                    (long long)took[TRIES / 2]);
    return true;
}

static void doctor_store_check_clock(struct doctor *d, const char *subject, struct idem *h) {
    int64_t before = doctor_store_now_us(CLOCK_REALTIME) / 1000, after, date, off;
    enum doctor_grade grade = DOCTOR_OK;
    char text[IDEM_UNITS_TEXT];
    struct idem_error err;

    if (idem_date(h, &date, &err) < 0) {
        doctor_find(d, DOCTOR_BROKEN, subject, "clock", NULL, "%s", err.text);
        return;
    }
    after = doctor_store_now_us(CLOCK_REALTIME) / 1000;
    off = date < before ? before - date : date > after ? date - after : 0;
    if (off > CLOCK_NOTE_MS)
        grade = off > CLOCK_UNSAFE_MS ? DOCTOR_UNSAFE : DOCTOR_NOTE;
    if (grade == DOCTOR_OK)
        doctor_find(d, grade, subject, "clock", NULL, "store and machine agree within %lld ms",
                    (long long)off);
    else
        doctor_find(d, grade, subject, "clock", "run NTP on both",
                    "the store's clock is %s %s this machine's: leases and expiry go by the "
                    "store's, signatures and schedules are compared with this one",
                    idem_duration_print(off, text, sizeof(text)),
                    date < before ? "behind" : "ahead of");
}

static enum idem_result doctor_store_do_nothing(struct idem_run *run, void *data) {
    (void)run;
    (void)data;
    return IDEM_RESULT_DONE;
}

/* Runs all steps of a guarded operation: claim, done, replay, forget. */
static int doctor_store_use_record(struct idem *h, const char *prefix, struct idem_error *err) {
    struct idem_policy policy = {.prefix = prefix,
                                 .scope = IDEM_SCOPE_NONE,
                                 .mode = IDEM_MODE_REJECT,
                                 .ttl_s = 60,
                                 .hold_ttl_s = 60};
    struct idem_guard *guard = NULL;
    char key[IDEM_UUID_LEN + 1];
    struct idem_args args = {.key = key, .key_len = IDEM_UUID_LEN};
    struct idem_name name = {.prefix = prefix, .key = key, .key_len = IDEM_UUID_LEN};
    struct idem_outcome out;
    int rc = idem_uuid4(key, err);

    if (rc == 0)
        rc = idem_guard_new(h, &policy, &guard, err);
    for (int i = 0; rc == 0 && i < 2; i++) {
        rc = idem_call(h, guard, &args, doctor_store_do_nothing, NULL, &out, err);
        if (rc == 0)
            idem_outcome_release(&out);
    }
    if (rc == 0)
        rc = idem_forget(h, &name, true, err);
    idem_guard_free(guard);
    return rc;
}

static void doctor_store_check_permissions(struct doctor *d, const char *subject,
                                           const char *prefix, struct idem *h) {
    struct idem_error err;

    if (doctor_store_use_record(h, prefix, &err) == 0)
        doctor_find(d, DOCTOR_OK, subject, "permissions", NULL,
                    "a record was claimed, done and forgotten again under %s", prefix);
    else
        doctor_find(d, DOCTOR_BROKEN, subject, "permissions",
                    "give the user what docs/stores.md names; if its keys are limited, name one of "
                    "its own prefixes with --prefix",
                    "a record under %s could not be claimed, done and forgotten: %s", prefix,
                    err.text);
}

/* Collects the driver's notices, which may arrive from another thread while the doctor prints
   nothing. */
struct notices {
    char at[4][400];
    size_t n;
};

static void doctor_store_add_notice(void *data, const char *text) {
    struct notices *notices = data;

    if (notices->n < 4)
        snprintf(notices->at[notices->n++], sizeof(notices->at[0]), "%s", text);
}

static void doctor_store_use(struct doctor *d, const char *subject, const char *url,
                             const char *prefix, bool noticed) {
    struct notices notices = {.n = 0};
    struct idem_options options = {
        .op_timeout_ms = OP_TIMEOUT_MS, .notice = doctor_store_add_notice, .notice_data = &notices};
    struct idem_error err;
    struct idem *h;

    if (idem_open(url, &options, &h, &err) < 0) {
        doctor_find(d, DOCTOR_BROKEN, subject, "reachable", "resolve this error", "%s", err.text);
        return;
    }
    if (doctor_store_check_reachable(d, subject, h)) {
        doctor_store_check_clock(d, subject, h);
        doctor_store_check_permissions(d, subject, prefix, h);
    }
    idem_close(h);
    for (size_t i = 0; i < notices.n && noticed; i++)
        doctor_find(d, DOCTOR_NOTE, subject, "notice", NULL, "%s", notices.at[i]);
}

/* For root, a child process that becomes the owner of the directory for good examines an embedded
   store: this process goes on to read files that only root may read. The child returns its counts
   through a pipe. */
static void doctor_store_use_in_child(struct doctor *d, const char *subject, const char *url,
                                      const char *prefix) {
    unsigned before[DOCTOR_GRADES];
    int ends[2], status = 0;
    pid_t pid = -1;

    memcpy(before, d->counts, sizeof(before));
    if (fflush(stdout) == 0 && pipe2(ends, O_CLOEXEC) == 0) {
        pid = fork();
        if (pid == 0) {
            idem_store_become_owner();
            doctor_store_use(d, subject, url, prefix, true);
            _exit(fflush(stdout) == 0 && write(ends[1], d->counts, sizeof(before)) > 0 ? 0 : 1);
        }
        close(ends[1]);
        while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
            continue;
        if (pid > 0 && read(ends[0], d->counts, sizeof(before)) != sizeof(before))
            memcpy(d->counts, before, sizeof(before));
        close(ends[0]);
    }
    if (pid < 0)
        doctor_find(d, DOCTOR_BROKEN, subject, "reachable", NULL,
                    "no process could be started to look at it: %s", strerror(errno));
    else if (status != 0)
        doctor_find(d, DOCTOR_BROKEN, subject, "reachable",
                    "look at it as the owner of its directory; data.mdb may be damaged",
                    "the process that looked at it ended with %s %d",
                    WIFSIGNALED(status) ? "signal" : "status",
                    WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
}

void doctor_store(struct doctor *d, const char *text, const char *prefix) {
    char subject[256];
    struct idem_error err;
    struct idem_url url;
    enum cli_store_kind kind = cli_store_kind(text);

    idem_url_public(text, subject, sizeof(subject));
    if (idem_store_check(text, &err) < 0 || idem_url_parse(text, &url, &err) < 0) {
        doctor_find(d, DOCTOR_BROKEN, subject, "URL", "write it as docs/stores.md shows", "%s",
                    err.text);
        return;
    }
    if (kind != CLI_STORE_LMDB || doctor_lmdb(d, subject, &url)) {
#ifdef IDEM_DOCTOR_REDIS
        if (kind == CLI_STORE_REDIS)
            doctor_redis(d, subject, text, &url);
#endif
#if IDEM_HAVE_POSTGRES || IDEM_HAVE_MYSQL
        if (kind == CLI_STORE_POSTGRES || kind == CLI_STORE_MYSQL)
            doctor_sql(d, subject, text, &url);
#endif
        if (kind == CLI_STORE_LMDB && geteuid() == 0)
            doctor_store_use_in_child(d, subject, text, prefix);
        else
            doctor_store_use(d, subject, text, prefix, kind != CLI_STORE_REDIS);
    }
    idem_url_release(&url);
}
