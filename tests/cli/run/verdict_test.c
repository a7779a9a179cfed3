/* `idem run`: the single run, the result of a duplicate, and every verdict. */
#include "cli/harness.h"

/* Once, and then the same again. */

TEST(a_second_run_gives_the_same_bytes_and_runs_nothing) {
    char *sh = script("echo x >> %s; printf 'a\\000b\\377'; echo oops >&2", in_folder("runs"));
    struct ran first = RUN_SH("k", sh), again = RUN_SH("k", sh);

    CHECK_INT(first.status, 0);
    CHECK_INT(first.out_len, 4);
    CHECK(memcmp(first.out, "a\0b\377", 4) == 0);
    CHECK_STR(first.err, "oops\n");
    CHECK(starts_with(first.verdict, "run attempt=1 hash="));
    CHECK_HAS(first.verdict, "\nstored said=done attempt=1 status=0 hash=");
    CHECK_INT(again.status, 0);
    CHECK_INT(again.out_len, 4);
    CHECK(memcmp(again.out, first.out, 4) == 0);
    CHECK_STR(again.err, "oops\n");
    CHECK(starts_with(again.verdict, "replay attempt=1 status=0 hash="));
    CHECK_INT(lines_of("runs"), 1);
}

/* Runs with stdout and stderr in one file, which shows their order. */
static char *merged(const char *key, const char *sh) {
    int fd = open(in_folder("merged"), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600), status;
    pid_t pid = fork();

    CHECK(fd >= 0 && pid >= 0);
    if (pid == 0) {
        dup2(fd, 1);
        dup2(fd, 2);
        execl(harness_exe(), "idem", "run", "--key", key, "--", "sh", "-c", sh, NULL);
        _exit(99);
    }
    CHECK(waitpid(pid, &status, 0) == pid);
    CHECK_INT(status, 0);
    return slurp(fd, NULL);
}

TEST(stdout_and_stderr_are_replayed_in_their_order) {
    /* sleep: the step of a poll: each line is written once the one before it has arrived */
    char *sh = script("seen() { while [ $(wc -l < %s) -lt $1 ]; do sleep .02; done; }; "
                      "echo 1; seen 1; echo 2 >&2; seen 2; echo 3; seen 3; echo 4 >&2",
                      in_folder("merged"));

    CHECK_STR(merged("k", sh), "1\n2\n3\n4\n");
    CHECK_STR(merged("k", sh), "1\n2\n3\n4\n");
}

TEST(a_large_output_is_replayed_whole) {
    const char *sh = "head -c 700000 /dev/zero | tr '\\0' x; head -c 300000 /dev/zero >&2";
    struct ran first = RUN_SH("k", sh), again = RUN_SH("k", sh);

    CHECK_INT(first.out_len, 700000);
    CHECK_INT(first.err_len, 300000);
    CHECK_INT(again.out_len, 700000);
    CHECK_INT(again.err_len, 300000);
    CHECK(memcmp(first.out, again.out, 700000) == 0);
    CHECK(starts_with(again.verdict, "replay "));
}

TEST(an_empty_output_is_replayed_as_such) {
    struct ran first = RUN_SH("k", ":"), again = RUN_SH("k", ":");

    CHECK_INT(first.status, 0);
    CHECK_INT(again.status, 0);
    CHECK_INT(again.out_len + again.err_len, 0);
    CHECK(starts_with(again.verdict, "replay "));
}

TEST(another_key_prefix_or_scope_runs_by_itself) {
    char *sh = script("echo x >> %s", in_folder("runs"));

    RUN_SH("k", sh);
    RUN_SH("k2", sh);
    RUN_SH("k", sh, "--prefix", "other:");
    RUN_SH("k", sh, "--scope", "alice");
    CHECK_INT(lines_of("runs"), 4);
    RUN_SH("k", sh, "--scope", "none");
    RUN_SH("k", sh, "--prefix", "run:");
    CHECK_INT(lines_of("runs"), 4);
}

TEST(the_command_sees_its_key_and_attempt) {
    struct ran ran;

    setenv("IDEM_AT", "of another run", 1);
    ran = RUN_SH("order 4711", "echo \"$IDEM_KEY|$IDEM_ATTEMPT|${IDEM_AT-unset}\"");
    CHECK_STR(ran.out, "order 4711|1|unset\n");
}

TEST(stdin_is_passed_through) {
    const char *argv[] = {"run", "--key", "k", "--", "cat", NULL};
    struct proc proc;
    struct ran ran;
    int fds[2];

    harness_folder();
    CHECK(pipe2(fds, O_CLOEXEC) == 0);
    proc = proc_start_on(fds[0], argv);
    CHECK(write(fds[1], "hello", 5) == 5);
    close(fds[0]);
    close(fds[1]);
    ran = proc_wait(&proc);
    CHECK_STR(ran.out, "hello");
}

TEST(options_end_at_the_command) {
    struct ran ran = RUN("run", "--key", "k", "echo", "--key", "--help");

    CHECK_INT(ran.status, 0);
    CHECK_STR(ran.out, "--key --help\n");
}

/* The command's exit. */

TEST(a_failure_is_released_and_runs_again) {
    char *sh = script("echo x >> %s; echo out; exit 3", in_folder("runs"));
    struct ran first = RUN_SH("k", sh), again = RUN_SH("k", sh);

    CHECK_INT(first.status, 3);
    CHECK_STR(first.out, "out\n");
    CHECK_HAS(first.verdict, "\nstored said=release attempt=1 status=3 hash=");
    CHECK_INT(again.status, 3);
    CHECK(starts_with(again.verdict, "run "));
    CHECK_INT(lines_of("runs"), 2);
}

TEST(a_failure_that_is_kept_is_replayed_as_it_was) {
    char *sh = script("echo x >> %s; echo out; echo err >&2; exit 3", in_folder("runs"));
    struct ran first = RUN_SH("k", sh, "--on-failure", "keep"),
               again = RUN_SH("k", sh, "--on-failure", "keep");

    CHECK_INT(first.status, 3);
    CHECK_HAS(first.verdict, "\nstored said=fail attempt=1 status=3 hash=");
    CHECK_INT(again.status, 3);
    CHECK_STR(again.out, "out\n");
    CHECK_STR(again.err, "err\n");
    CHECK(starts_with(again.verdict, "dead attempt=1 status=3 hash="));
    CHECK_INT(lines_of("runs"), 1);
}

TEST(a_death_by_signal_is_kept_and_replayed_as_128_plus_the_signal) {
    char *sh = script("echo x >> %s; echo out; kill -9 $$", in_folder("runs"));
    struct ran first = RUN_SH("k", sh, "--on-failure", "keep"),
               again = RUN_SH("k", sh, "--on-failure", "keep");

    CHECK_INT(first.status, 137);
    CHECK_INT(again.status, 137);
    CHECK_STR(again.out, "out\n");
    CHECK_INT(lines_of("runs"), 1);
}

TEST(a_death_by_signal_is_released_like_any_failure) {
    char *sh = script("echo x >> %s; kill -TERM $$", in_folder("runs"));

    CHECK_INT(RUN_SH("k", sh).status, 143);
    CHECK_INT(RUN_SH("k", sh).status, 143);
    CHECK_INT(lines_of("runs"), 2);
}

TEST(a_failure_kept_under_reject_is_dead_with_a_status_of_its_own) {
    struct ran again;

    CHECK_INT(RUN_SH("k", "exit 3", "--mode", "reject", "--on-failure", "keep").status, 3);
    again = RUN_SH("k", "exit 3", "--mode", "reject", "--on-failure", "keep");
    CHECK_INT(again.status, 77);
    CHECK(starts_with(again.err, "idem: dead: run:"));
    CHECK_HAS(again.err, "exit status 3");
    CHECK(starts_with(again.verdict, "dead attempt=1 status=3 hash="));
}

TEST(a_retry_comes_after_its_pause_until_the_attempts_are_used_up) {
    char *sh = script("echo x >> %s; exit 4", in_folder("runs"));
    struct ran ran;

#define RETRY                                                                                      \
    RUN_SH("k", sh, "--mode", "reject", "--on-failure", "retry", "--attempts", "2", "--backoff",   \
           "60s")
    CHECK_INT(RETRY.status, 4);
    ran = RETRY;
    CHECK_INT(ran.status, 75);
    CHECK(starts_with(ran.err, "idem: busy: run:"));
    CHECK_HAS(ran.verdict, "retry_after_ms=");
    clock_forward(61);
    ran = RETRY;
    CHECK_INT(ran.status, 4);
    CHECK(starts_with(ran.verdict, "run attempt=2 "));
    ran = RETRY;
    CHECK_INT(ran.status, 77);
    CHECK_INT(lines_of("runs"), 2);
}

TEST(the_last_failure_of_a_retry_is_replayed) {
    struct ran ran;

    CHECK_INT(RUN_SH("k", "echo out; exit 4", "--on-failure", "retry", "--attempts", "1").status,
              4);
    ran = RUN_SH("k", "echo out; exit 4", "--on-failure", "retry", "--attempts", "1");
    CHECK_INT(ran.status, 4);
    CHECK_STR(ran.out, "out\n");
    CHECK_STR(ran.err, "");
    CHECK(starts_with(ran.verdict, "dead attempt=1 status=4 "));
}

TEST(a_wait_lasts_over_the_pause_of_a_retry) {
    char *sh = script("echo x >> %s; test $IDEM_ATTEMPT = 2", in_folder("runs"));
    struct ran ran;

    CHECK_INT(RUN_SH("k", sh, "--on-failure", "retry", "--backoff", "300ms").status, 1);
    ran = RUN_SH("k", sh, "--on-failure", "retry", "--wait", "120s");
    CHECK_INT(ran.status, 0);
    CHECK(starts_with(ran.verdict, "run attempt=2 "));
}

/* Duplicates. */

TEST(a_duplicate_under_reject_is_told_so_and_is_no_failure) {
    char *sh = script("echo x >> %s; echo out", in_folder("runs"));
    struct ran again;

    CHECK_STR(RUN_SH("secret-key", sh, "--mode", "reject", "--label", "job 7").out, "out\n");
    again = RUN_SH("secret-key", sh, "--mode", "reject", "--label", "job 7");
    CHECK_INT(again.status, 0);
    CHECK_STR(again.out, "");
    CHECK(starts_with(again.err, "idem: duplicate: run:"));
    CHECK_HAS(again.err, "(job 7)");
    CHECK(strstr(again.err, "secret") == NULL);
    CHECK(starts_with(again.verdict, "duplicate attempt=1 status=0 hash="));
    CHECK_INT(lines_of("runs"), 1);
}

TEST(a_duplicate_exits_as_it_was_told_to) {
    RUN_SH("k", ":", "--mode", "reject");
    CHECK_INT(RUN_SH("k", ":", "--mode", "reject", "--duplicate-exit", "42").status, 42);
}

TEST(a_quiet_duplicate_says_nothing) {
    struct ran ran;

    RUN_SH("k", ":", "--mode", "reject");
    ran = RUN_SH("k", ":", "--mode", "reject", "--quiet");
    CHECK_STR(ran.err, "");
    CHECK_INT(ran.status, 0);
}

TEST(a_refused_caller_reads_the_policys_message) {
    struct ran ran;

    RUN_SH("k", ":", "--mode", "reject");
    ran = RUN_SH("k", ":", "--mode", "reject", "--message", "Ask Anna.");
    CHECK_HAS(ran.err, "Ask Anna.");
}

TEST(output_beyond_result_max_streams_whole_and_is_not_kept) {
    char *sh = script("echo x >> %s; printf 12345678901", in_folder("runs"));
    struct ran first = RUN_SH("k", sh, "--result-max", "10"),
               again = RUN_SH("k", sh, "--result-max", "10");

    CHECK_STR(first.out, "12345678901");
    CHECK_INT(first.status, 0);
    CHECK_INT(again.status, 0);
    CHECK_STR(again.out, "");
    CHECK(starts_with(again.err, "idem: duplicate: run:"));
    CHECK_HAS(again.err, "not kept");
    CHECK(starts_with(again.verdict, "duplicate attempt=1 status=0 hash="));
    CHECK_INT(lines_of("runs"), 1);
}

TEST(output_of_exactly_result_max_is_kept) {
    struct ran ran;

    RUN_SH("k", "printf 12345; printf 67890 >&2", "--result-max", "10");
    ran = RUN_SH("k", "printf 12345; printf 67890 >&2", "--result-max", "10");
    CHECK_STR(ran.out, "12345");
    CHECK_STR(ran.err, "67890");
}

TEST(a_failure_whose_output_was_not_kept_is_dead_with_its_status_told) {
    struct ran ran;

    CHECK_INT(RUN_SH("k", "echo 123; exit 5", "--result-max", "2", "--on-failure", "keep").status,
              5);
    ran = RUN_SH("k", "echo 123; exit 5", "--result-max", "2", "--on-failure", "keep");
    CHECK_INT(ran.status, 77);
    CHECK_HAS(ran.err, "status 5");
}

TEST(a_mismatch_is_refused_whatever_came_of_the_first) {
    struct ran ran;

    RUN("run", "--key", "k", "--", "echo", "secret-argument");
    ran = RUN("run", "--key", "k", "--verdict-fd", VERDICT_FD, "--", "echo", "another");
    CHECK_INT(ran.status, 65);
    CHECK_STR(ran.out, "");
    CHECK(starts_with(ran.err, "idem: mismatch: run:"));
    CHECK(strstr(ran.err, "secret") == NULL);
    CHECK(starts_with(ran.verdict, "mismatch "));
    ran = RUN("run", "--key", "k", "--fingerprint", "none", "--", "echo", "another");
    CHECK_INT(ran.status, 0);
    CHECK_STR(ran.out, "secret-argument\n");
}

TEST(arguments_are_told_apart_from_each_other) {
    RUN("run", "--key", "k2", "--", "echo", "ab", "c");
    CHECK_INT(RUN("run", "--key", "k2", "--", "echo", "a", "bc").status, 65);
    RUN("run", "--key", "k", "--", "echo", "a b");
    CHECK_INT(RUN("run", "--key", "k", "--", "echo", "a", "b").status, 65);
}

/* Claims during the run. */

TEST(a_second_caller_is_busy_while_the_first_runs) {
    char *sh = script("touch %s; while [ ! -e %s ]; do sleep .02; done; echo out",
                      in_folder("started"), in_folder("go"));
    struct proc first = START_SH("secret-key", sh);
    struct ran ran, second;

    WAIT_UNTIL(exists("started"));
    second = RUN_SH("secret-key", sh);
    CHECK_INT(second.status, 75);
    CHECK_STR(second.out, "");
    CHECK(starts_with(second.err, "idem: busy: run:"));
    CHECK(strstr(second.err, "secret") == NULL);
    CHECK(starts_with(second.verdict, "busy attempt=1 hash="));
    CHECK_HAS(second.verdict, " retry_after_ms=");
    CHECK(creat(in_folder("go"), 0600) >= 0);
    ran = proc_wait(&first);
    CHECK_INT(ran.status, 0);
}

TEST(output_is_streamed_while_the_command_runs) {
    char *sh = script("echo early; while [ ! -e %s ]; do sleep .02; done", in_folder("go"));
    struct proc proc = START_SH("k", sh);
    struct ran ran;

    WAIT_UNTIL(wrote(proc.out, "early"));
    CHECK(creat(in_folder("go"), 0600) >= 0);
    ran = proc_wait(&proc);
    CHECK_INT(ran.status, 0);
}

TEST(a_waiter_gets_the_first_result) {
    char *sh =
        script("echo x >> %s; %s; echo out; echo err >&2", in_folder("runs"), until_there("go"));
    struct proc first = START_SH("k", sh), second;
    struct ran ran;

    WAIT_UNTIL(lines_of("runs") == 1);
    second = START_SH("k", sh, "--wait", "120s");
    WAIT_UNTIL(has_store(second.pid));
    make_there("go");
    ran = proc_wait(&first);
    CHECK_INT(ran.status, 0);
    ran = proc_wait(&second);
    CHECK_INT(ran.status, 0);
    CHECK_STR(ran.out, "out\n");
    CHECK_STR(ran.err, "err\n");
    CHECK(starts_with(ran.verdict, "replay "));
    CHECK_INT(lines_of("runs"), 1);
}

TEST(a_waiter_runs_next_where_the_first_has_failed) {
    char *sh = script("echo x >> %s; %s; test $(wc -l < %s) = 2", in_folder("runs"),
                      until_there("go"), in_folder("runs"));
    struct proc first = START_SH("k", sh), second;
    struct ran ran;

    WAIT_UNTIL(lines_of("runs") == 1);
    second = START_SH("k", sh, "--wait", "120s");
    WAIT_UNTIL(has_store(second.pid));
    make_there("go");
    CHECK_INT(proc_wait(&first).status, 1);
    ran = proc_wait(&second);
    CHECK_INT(ran.status, 0);
    CHECK(starts_with(ran.verdict, "run "));
}

TEST(a_wait_in_vain_ends_busy) {
    char *sh = script("while [ ! -e %s ]; do sleep .02; done", in_folder("go"));
    struct proc first = START_SH("k", sh);

    WAIT_UNTIL(wrote(first.verdict, "run "));
    CHECK_INT(RUN_SH("k", sh, "--wait", "200ms").status, 75);
    CHECK(creat(in_folder("go"), 0600) >= 0);
    CHECK_INT(proc_wait(&first).status, 0);
}

TEST(locks_run_one_after_the_other_and_the_attempt_grows) {
    /* sleep: so that a second run would be seen; how long does not matter */
    char *sh = script("echo in >> %s; sleep .05; echo out >> %s; echo $IDEM_ATTEMPT",
                      in_folder("log"), in_folder("log"));
    struct proc procs[4];
    char seen[5] = "";
    int log;

    for (int i = 0; i < 4; i++)
        procs[i] = START_SH("k", sh, "--mode", "lock", "--wait", "120s");
    for (int i = 0; i < 4; i++) {
        struct ran ran = proc_wait(&procs[i]);

        CHECK_INT(ran.status, 0);
        CHECK(ran.out[0] >= '1' && ran.out[0] <= '4');
        seen[ran.out[0] - '1'] = 'x';
    }
    CHECK_STR(seen, "xxxx");
    log = open(in_folder("log"), O_RDONLY);
    CHECK_STR(slurp(log, NULL), "in\nout\nin\nout\nin\nout\nin\nout\n");
}

TEST(a_verdict_may_go_to_stderr_and_takes_it_from_nobody) {
    struct ran ran = RUN("run", "--key", "k", "--verdict-fd", "2", "--mode", "lock", "--", "sh",
                         "-c", "echo out; echo err >&2");

    CHECK_INT(ran.status, 0);
    CHECK_STR(ran.out, "out\n");
    CHECK(starts_with(ran.err, "run attempt=1 hash="));
    CHECK_HAS(ran.err, "\nerr\nstored said=done ");
}

/* Commands that cannot be started. */

TEST(a_command_that_is_not_found_frees_its_key) {
    struct ran ran = RUN("run", "--key", "k", "--verdict-fd", VERDICT_FD, "--on-failure", "keep",
                         "--", "/no/such/program");

    CHECK_INT(ran.status, 127);
    CHECK(starts_with(ran.err, "idem: the command cannot be started: No such file"));
    CHECK_HAS(ran.verdict, "\nstored said=release attempt=1 status=127 hash=");
    CHECK_INT(RUN("show", "k").status, 66);
    CHECK_INT(RUN_SH("k", "exit 0").status, 0);
}

TEST(a_command_that_is_not_executable_frees_its_key) {
    int fd = creat(in_folder("file"), 0600);

    close(fd);
    CHECK_INT(RUN("run", "--key", "k", "--", in_folder("file")).status, 126);
    CHECK_INT(RUN("run", "--key", "k", "--", harness_folder()).status, 126);
    CHECK_INT(RUN("show", "k").status, 66);
}

TEST(a_script_without_a_first_line_is_run_by_the_shell) {
    int fd = open(in_folder("script"), O_CREAT | O_WRONLY, 0700);

    CHECK(write(fd, "echo yes\n", 9) == 9);
    close(fd);
    CHECK_STR(RUN("run", "--key", "k", "--", in_folder("script")).out, "yes\n");
}

/* Schedules. */

TEST(a_planned_time_is_part_of_the_key_and_told_to_the_command) {
    /* The last step was half a day ago, so the next one does not fall between two runs. */
    int minute = (int)((time(NULL) / 60 + 12 * 60) % (24 * 60));
    char *at = script("24h+%dh%dm", minute / 60, minute % 60), key[64];
    struct ran ran = RUN_SH("nightly", "echo $IDEM_KEY; echo $IDEM_AT", "--at", at);

    CHECK_INT(ran.status, 0);
    CHECK(starts_with(ran.out, "nightly@2"));
    CHECK_HAS(ran.out, script("T%02d:%02d:00Z\n2", minute / 60, minute % 60));
    CHECK(starts_with(RUN_SH("nightly", "echo $IDEM_KEY; echo $IDEM_AT", "--at", at).verdict,
                      "replay "));
    snprintf(key, sizeof(key), "%.*s", (int)strcspn(ran.out, "\n"), ran.out);
    CHECK_INT(RUN("show", key).status, 0);
    CHECK_INT(RUN("show", "nightly").status, 66);
    CHECK_INT(RUN("settle", "--done", "--dry-run", key).status, 0);
    CHECK_INT(RUN("forget", key).status, 0);
}

/* The time until the record of the key expires, in whole hours. */
static int hours_left(const char *prefix) {
    char *at = strstr(RUN("list", "--json", "--prefix", prefix).out, "\"expires\":\"");
    struct tm tm = {0};

    CHECK(at != NULL && strptime(at + 11, "%Y-%m-%dT%H:%M:%S", &tm) != NULL);
    return (int)((timegm(&tm) - time(NULL) + 60) / 3600);
}

TEST(a_step_is_remembered_until_it_is_over) {
    RUN_SH("k", ":", "--prefix", "hour:", "--at", "1h");
    CHECK_INT(hours_left("hour:"), 24);
    RUN_SH("k", ":", "--prefix", "week:", "--at", "7d");
    CHECK_INT(hours_left("week:"), 7 * 24 + 1);
    RUN_SH("k", ":", "--prefix", "job:", "--at", "7d", "--preset", "job");
    CHECK_INT(hours_left("job:"), 7 * 24 + 1);
    RUN_SH("k", ":", "--prefix", "said:", "--at", "7d", "--ttl", "7d");
    CHECK_INT(hours_left("said:"), 7 * 24);
    RUN_SH("k", ":", "--prefix", "lock:", "--at", "7d", "--ttl", "2h", "--mode", "lock");
    CHECK_INT(hours_left("lock:"), 2);
}

TEST(settings_that_forget_a_step_too_early_are_refused_and_presets_bent) {
    char *conf = script("%s", in_folder("conf"));
    int fd = open(conf, O_CREAT | O_WRONLY, 0600);
    struct ran ran;

    CHECK(write(fd, "[defaults]\nttl = 1s\n", 20) == 20);
    close(fd);
    ran = RUN_SH("k", ":", "--at", "1h", "--config", conf);
    CHECK_INT(ran.status, 64);
    CHECK_HAS(ran.err, "ttl is 1s, and the step of --at is 1h: ");
    /* A preset with a ttl of 45 s is extended to the step; a flag takes precedence. */
    RUN_SH("k", ":", "--at", "1h", "--preset", "submit", "--prefix", "submit:");
    CHECK_INT(hours_left("submit:"), 2);
    CHECK_INT(RUN_SH("k", ":", "--at", "1h", "--ttl", "1h", "--config", conf).status, 0);
}

int main(int argc, char **argv) {
    test_at_a_time = 4;
    return test_main(argc, argv);
}
