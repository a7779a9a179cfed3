/*
 * `idem run` when something goes wrong in the middle: idem is killed, or
 * stopped beyond its lease, or the command takes too long.
 */
#include "cli/harness.h"

#include "store/lmdb/raw.h"

#include <sched.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>

/* Appends its attempt to `runs`, then sleeps long in the foreground; logs a SIGTERM. */
static char *long_script(void) {
    return script("trap 'echo term >> %s; exit 9' TERM; echo $IDEM_ATTEMPT >> %s; echo out; "
                  "%s",
                  in_folder("terms"), in_folder("runs"), until_there("go"));
}

static void go(void) {
    make_there("go");
}

TEST(the_lease_is_renewed_while_the_command_lives) {
    char *sh = long_script();
    struct proc first = START_SH("k", sh, "--lease", LEASE);
    struct ran ran;

    WAIT_UNTIL(lines_of("runs") == 1);
    renewals_wait("k", first.pid);
    CHECK_INT(RUN_SH("k", sh, "--recover", "rerun").status, 75);
    go();
    ran = proc_wait(&first);
    CHECK_INT(ran.status, 0);
    CHECK_HAS(ran.verdict, "stored said=done");
    CHECK_INT(lines_of("runs"), 1);
}

TEST(a_run_whose_idem_was_killed_is_uncertain_under_hold) {
    char *sh = long_script();
    struct proc first = START_SH("k", sh, "--lease", LEASE);
    struct ran ran;

    WAIT_UNTIL(lines_of("runs") == 1);
    kill(first.pid, SIGKILL);
    CHECK_INT(proc_wait(&first).signal, SIGKILL);
    CHECK_INT(RUN_SH("k", sh).status, 75);
    leases_end();
    ran = RUN_SH("k", sh);
    CHECK_INT(ran.status, 70);
    CHECK(starts_with(ran.err, "idem: uncertain: run:"));
    CHECK_HAS(ran.err, "idem settle");
    CHECK(starts_with(ran.verdict, "uncertain attempt=1 hash="));
    CHECK_INT(lines_of("runs"), 1);
    /* No other run takes over, so the command was left to end by itself. */
    CHECK(!exists("terms"));
    go();
}

/* As in idem(1): the command can go on writing only if idem does not capture the output. */
TEST(a_command_whose_idem_was_killed_goes_on_until_it_writes_into_its_pipe) {
    for (int i = 0; i < 2; i++) {
        const char *mode = i == 0 ? "reject" : "replay";
        char *sh = script("echo x >> %s; while [ ! -e %s ]; do sleep .02; done; "
                          "sh -c 'echo out'; echo $? >> %s",
                          in_folder("runs"), in_folder(mode), in_folder("ended"));
        struct proc proc = START_SH(mode, sh, "--mode", mode);

        WAIT_UNTIL(lines_of("runs") == i + 1);
        kill(proc.pid, SIGKILL);
        proc_wait(&proc);
        CHECK(creat(in_folder(mode), 0600) >= 0);
        WAIT_UNTIL(lines_of("ended") == i + 1);
    }
    CHECK_STR(slurp(open(in_folder("ended"), O_RDONLY), NULL), "0\n141\n");
}

TEST(a_run_whose_idem_was_killed_is_run_again_under_rerun) {
    char *sh = long_script();
    struct proc first = START_SH("k", sh, "--lease", LEASE, "--recover", "rerun"), second;
    struct ran ran;

    WAIT_UNTIL(lines_of("runs") == 1);
    kill(first.pid, SIGKILL);
    proc_wait(&first);
    /* The command must not outlive its guard if another run is going to take over. */
    WAIT_UNTIL(exists("terms"));
    leases_end();
    second = START_SH("k", sh, "--lease", LEASE, "--recover", "rerun", "--wait", "120s");
    WAIT_UNTIL(lines_of("runs") == 2);
    go();
    ran = proc_wait(&second);
    CHECK_INT(ran.status, 0);
    CHECK(starts_with(ran.verdict, "run attempt=2 hash="));
}

TEST(a_crash_counts_as_an_attempt) {
    char *sh = long_script();
    struct proc first =
        START_SH("k", sh, "--lease", LEASE, "--recover", "rerun", "--attempts", "1");
    struct ran ran;

    WAIT_UNTIL(lines_of("runs") == 1);
    kill(first.pid, SIGKILL);
    proc_wait(&first);
    leases_end();
    ran = RUN_SH("k", sh, "--recover", "rerun", "--attempts", "1");
    CHECK_INT(ran.status, 77);
    CHECK_HAS(ran.err, "vanished");
    CHECK_INT(lines_of("runs"), 1);
}

TEST(an_owner_that_slept_beyond_its_lease_ends_its_command_and_is_refused) {
    char *sh = long_script();
    struct proc first =
        START_SH("k", sh, "--lease", LEASE, "--recover", "rerun", "--kill-after", "10m");
    struct proc second;
    struct ran ran;

    WAIT_UNTIL(lines_of("runs") == 1);
    raw_child_stop(in_folder("store"), first.pid);
    leases_end();
    second = START_SH("k", sh, "--lease", LEASE, "--recover", "rerun", "--wait", "120s");
    WAIT_UNTIL(lines_of("runs") == 2);
    kill(first.pid, SIGCONT);
    ran = proc_wait(&first);
    CHECK_INT(ran.status, 76);
    CHECK(exists("terms"));
    CHECK_HAS(ran.err, "idem: lost: run:");
    CHECK_HAS(ran.verdict, "\nlost said=unknown attempt=1 status=9 hash=");
    go();
    ran = proc_wait(&second);
    CHECK_INT(ran.status, 0);
    CHECK_HAS(ran.verdict, "stored said=done attempt=2 status=0");
    ran = RUN_SH("k", sh);
    CHECK(starts_with(ran.verdict, "replay attempt=2 "));
}

TEST(an_owner_that_slept_beyond_its_lease_may_still_finish_under_hold) {
    char *sh = long_script();
    struct proc first = START_SH("k", sh, "--lease", LEASE);
    struct ran ran;

    WAIT_UNTIL(lines_of("runs") == 1);
    raw_child_stop(in_folder("store"), first.pid);
    leases_end();
    CHECK_INT(RUN_SH("k", sh).status, 70);
    go();
    kill(first.pid, SIGCONT);
    ran = proc_wait(&first);
    CHECK_INT(ran.status, 0);
    CHECK(!exists("terms"));
    CHECK(starts_with(RUN_SH("k", sh).verdict, "replay attempt=1 "));
}

/* Waits until the process whose number is in this file is dead. A zombie counts, because there
 * may be no parent to reap it. */
static void dead_check(const char *name) {
    int fd = open(in_folder(name), O_RDONLY);
    long pid = strtol(slurp(fd, NULL), NULL, 10);

    close(fd);
    CHECK(pid > 1);
    WAIT_UNTIL(strchr("ZX", proc_state((pid_t)pid)) != NULL);
}

TEST(a_command_that_ended_while_its_owner_slept_is_recorded_if_nobody_took_over) {
    char *sh = script("echo $$ > %s; echo x >> %s; %s; echo out", in_folder("pid"),
                      in_folder("runs"), until_there("go"));
    struct proc first = START_SH("k", sh, "--lease", LEASE, "--recover", "rerun");
    struct ran ran;

    WAIT_UNTIL(lines_of("runs") == 1);
    raw_child_stop(in_folder("store"), first.pid);
    go();
    dead_check("pid");
    leases_end();
    CHECK_INT(lease_left("k"), 0);
    kill(first.pid, SIGCONT);
    ran = proc_wait(&first);
    CHECK_INT(ran.status, 0);
    CHECK_STR(ran.out, "out\n");
    CHECK_HAS(ran.verdict, "stored said=done attempt=1 status=0");
}

TEST(an_owner_whose_record_was_settled_meanwhile_is_refused) {
    char *sh = long_script();
    struct proc first = START_SH("k", sh, "--lease", LEASE);
    struct ran ran;

    WAIT_UNTIL(lines_of("runs") == 1);
    CHECK_INT(RUN("settle", "--failed", "k").status, 75);
    CHECK_INT(RUN("settle", "--failed", "--force", "k").status, 0);
    go();
    ran = proc_wait(&first);
    CHECK_INT(ran.status, 76);
    CHECK_STR(ran.out, "out\n");
    CHECK_HAS(ran.verdict, "\nlost said=done attempt=1 status=0 hash=");
}

#define RUN_MAX "60s"
#define RUN_MAX_S 60

/* The command has made this file, and then run_max ends. */
static struct ran run_max_ends(struct proc *proc, const char *made) {
    WAIT_UNTIL(lines_of(made) == 1);
    clock_forward_for(proc->pid, RUN_MAX_S + 1);
    return proc_wait(proc);
}

TEST(a_command_that_takes_longer_than_run_max_is_ended_and_uncertain) {
    char *sh = long_script();
    struct proc proc =
        START_SH("k", sh, "--lease", LEASE, "--run-max", RUN_MAX, "--kill-after", "10m");
    struct ran ran = run_max_ends(&proc, "runs");

    CHECK_INT(ran.status, 70);
    CHECK(exists("terms"));
    CHECK_HAS(ran.err, "idem: uncertain: run:");
    CHECK_HAS(ran.err, "run_max");
    CHECK_HAS(ran.verdict, "\nstored said=unknown attempt=1 status=9 hash=");
    CHECK(starts_with(RUN_SH("k", sh).verdict, "uncertain attempt=1 "));
    CHECK_INT(lines_of("runs"), 1);
}

TEST(an_unguarded_command_is_ended_after_run_max_as_well) {
    char *sh = long_script();
    struct proc proc = START_SH("k", sh, "--run-max", RUN_MAX, "--kill-after", "10m",
                                "--on-store-error", "open", "--store", "lmdb:/proc/none/store");
    struct ran ran = run_max_ends(&proc, "runs");

    CHECK_INT(ran.status, 70);
    CHECK(exists("terms"));
}

/* Two processes, of which the second ignores SIGTERM, and with `stubborn` the first, too. */
static char *family_script(bool stubborn) {
    return script("%s echo $$ > %s; sh -c 'trap \"\" TERM; echo $$ > %s; %s' & %s",
                  stubborn ? "trap '' TERM;" : "", in_folder("pid"), in_folder("pid2"),
                  until_there("never"), until_there("never"));
}

TEST(a_command_that_will_not_end_is_killed_with_all_that_it_started) {
    struct proc proc = START_SH("k", family_script(true), "--lease", LEASE, "--run-max", RUN_MAX,
                                "--kill-after", "200ms");
    struct ran ran = run_max_ends(&proc, "pid2");

    CHECK_INT(ran.status, 70);
    CHECK_HAS(ran.verdict, " status=137 ");
    dead_check("pid");
    dead_check("pid2");
}

TEST(what_a_command_started_does_not_outlive_its_being_ended) {
    struct proc proc = START_SH("k", family_script(false), "--lease", LEASE, "--run-max", RUN_MAX,
                                "--kill-after", "10m");
    struct ran ran = run_max_ends(&proc, "pid2");

    CHECK_INT(ran.status, 70);
    CHECK_HAS(ran.verdict, " status=143 ");
    dead_check("pid");
    dead_check("pid2");
}

/* An idem that is held up between its claim and its command. */

enum held_at {
    HELD_AT_VERDICT, /* before the verdict is written */
    HELD_AT_FORK,    /* after the last look at the clock */
};

static bool is_held_at(const struct __ptrace_syscall_info *info, enum held_at at) {
    if (info->op != PTRACE_SYSCALL_INFO_ENTRY)
        return false;
    if (at == HELD_AT_VERDICT)
        return info->entry.nr == SYS_write && info->entry.args[0] == 9;
    return info->entry.nr == SYS_clone && (info->entry.args[0] & CLONE_THREAD) == 0;
}

/* Runs its first thread until that point. */
static void hold(pid_t pid, enum held_at at) {
    struct __ptrace_syscall_info info;
    int status, sig = 0;

    CHECK(waitpid(pid, &status, 0) == pid && WIFSTOPPED(status));
    CHECK(ptrace(PTRACE_SETOPTIONS, pid, 0, PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL) == 0);
    for (;;) {
        CHECK(ptrace(PTRACE_SYSCALL, pid, 0, sig) == 0);
        CHECK(waitpid(pid, &status, 0) == pid && WIFSTOPPED(status));
        sig = WSTOPSIG(status) == (SIGTRAP | 0x80) ? 0 : WSTOPSIG(status);
        if (sig == 0 && ptrace(PTRACE_GET_SYSCALL_INFO, pid, sizeof(info), &info) > 0 &&
            is_held_at(&info, at))
            return;
    }
}

static struct proc start_held(const char *sh, enum held_at at) {
    struct proc proc = {.out = harness_file(), .err = harness_file(), .verdict = harness_file()};

    proc.pid = fork();
    CHECK(proc.pid >= 0);
    if (proc.pid == 0) {
        setsid();
        harness_dup(proc.out, 1);
        harness_dup(proc.err, 2);
        harness_dup(proc.verdict, 9);
        ptrace(PTRACE_TRACEME, 0, 0, 0);
        execl(harness_exe(), "idem", "run", "--verdict-fd", VERDICT_FD, "--key", "k", "--lease",
              LEASE, "--", "sh", "-c", sh, NULL);
        _exit(99);
    }
    hold(proc.pid, at);
    return proc;
}

static void let_go(const struct proc *proc) {
    CHECK(ptrace(PTRACE_DETACH, proc->pid, 0, 0) == 0);
}

/* The lease is over; an operator has seen the record, and another run has taken over. */
static void held_until_taken(enum held_at at) {
    char *sh = script("echo x >> %s", in_folder("runs"));
    struct proc first = start_held(sh, at);
    struct ran ran;

    leases_end();
    CHECK_INT(RUN_SH("k", sh).status, 70);
    CHECK_INT(RUN("settle", "--failed", "k").status, 0);
    CHECK_INT(RUN_SH("k", sh).status, 0);
    CHECK_INT(lines_of("runs"), 1);
    let_go(&first);
    ran = proc_wait(&first);
    CHECK_INT(lines_of("runs"), 1);
    CHECK_INT(ran.status, 76);
    CHECK_HAS(ran.err, "nothing was run, and another process has taken the key over");
    CHECK_HAS(ran.verdict, "\nlost said=release attempt=1 ");
}

TEST(an_owner_held_up_beyond_its_lease_before_the_start_runs_nothing_under_hold) {
    held_until_taken(HELD_AT_VERDICT);
}

TEST(an_owner_held_up_at_the_very_start_runs_nothing_under_hold) {
    held_until_taken(HELD_AT_FORK);
}

TEST(an_owner_held_up_before_the_start_runs_it_if_nobody_took_over) {
    char *sh = script("echo x >> %s", in_folder("runs"));

    for (int at = HELD_AT_VERDICT; at <= HELD_AT_FORK; at++) {
        struct proc first = start_held(sh, (enum held_at)at);
        struct ran ran;

        leases_end();
        CHECK_INT(RUN_SH("k", sh).status, 70);
        let_go(&first);
        ran = proc_wait(&first);
        CHECK_INT(ran.status, 0);
        CHECK_HAS(ran.verdict, "\nstored said=done attempt=1 ");
        CHECK_INT(lines_of("runs"), at + 1);
        CHECK_INT(RUN("forget", "k").status, 0);
    }
}

int main(int argc, char **argv) {
    test_at_a_time = 6;
    return test_main(argc, argv);
}
