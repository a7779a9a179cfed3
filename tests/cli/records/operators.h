/*
 * Records for operators: some whose run has vanished, and many that have ended.
 */
#ifndef IDEM_TEST_CLI_RECORDS_OPERATORS_H
#define IDEM_TEST_CLI_RECORDS_OPERATORS_H

#include "cli/harness.h"

#include "idem.h"

/* Runs until the file `go` exists, so that it can vanish before that, and run again after. */
__attribute__((unused)) static const char *until_go(void) {
    return until_there("go");
}

__attribute__((unused)) static void go(void) {
    make_there("go");
}

/* A vanished run: idem is killed while the command runs, and its lease ends. */
__attribute__((unused)) static void vanish_under(const char *prefix, const char *key,
                                                 const char *label) {
    struct proc proc =
        START_SH(key, until_go(), "--prefix", prefix, "--label", label, "--lease", LEASE);
    char want[128];

    WAIT_UNTIL(wrote(proc.verdict, "run "));
    kill(proc.pid, SIGKILL);
    proc_wait(&proc);
    leases_end();
    snprintf(want, sizeof(want), "\"label\":\"%s\"", label);
    CHECK_HAS(RUN("list", "--state", "uncertain", "--json").out, want);
}

__attribute__((unused)) static void vanish(const char *key, const char *label) {
    vanish_under("run:", key, label);
}

__attribute__((unused)) static char *hash_of(const char *key) {
    char *hash = strstr(RUN("show", "--json", key).out, "\"hash\":\"");

    CHECK(hash != NULL);
    hash = keep(strndup(hash + 8, 64));
    CHECK_INT(strspn(hash, "0123456789abcdef"), 64);
    return hash;
}

/* Checks with another parser that each line is JSON. */
__attribute__((unused)) static void json_check(const char *text) {
    FILE *python = popen("python3 -c 'import json, sys\n"
                         "for line in sys.stdin: json.loads(line)'",
                         "w");

    CHECK(python != NULL);
    CHECK(fwrite(text, 1, strlen(text), python) == strlen(text));
    CHECK_INT(pclose(python), 0);
}

__attribute__((unused)) static int lines(const char *text) {
    int n = 0;

    for (; *text != '\0'; text++)
        n += *text == '\n';
    return n;
}

static enum idem_result end_as(struct idem_run *run, void *data) {
    (void)run;
    return *(enum idem_result *)data;
}

/* Runs n keys to this end. */
__attribute__((unused)) static void run_many(int n, enum idem_result end) {
    static const struct idem_policy policy = {.prefix = "many:", .scope = IDEM_SCOPE_NONE};
    struct idem_guard *guard;
    struct idem_error err;
    struct idem *h;

    CHECK(idem_open(temp_url("store", "sync=off"), NULL, &h, &err) == 0);
    CHECK(idem_guard_new(h, &policy, &guard, &err) == 0);
    for (int i = 0; i < n; i++) {
        struct idem_args args = {.key = &i, .key_len = sizeof(i)};
        struct idem_outcome out;

        CHECK(idem_call(h, guard, &args, end_as, &end, &out, &err) == 0);
        idem_outcome_release(&out);
    }
    idem_guard_free(guard);
    idem_close(h);
}

#endif
