/*
 * `idem run` as a parent of processes: signals, pipes, descriptors, terminals.
 */
#include "cli/harness.h"

#include <pty.h>
#include <sys/resource.h>
#include <termios.h>

/* Signals. */

/* A command that writes each signal's name to `got`; it ends after TERM, or when `go` exists. */
static char *trap_script(void) {
    const char *got = in_folder("got");

    return script("for s in INT HUP QUIT USR1 USR2; do trap \"echo $s >> %s\" $s; done; "
                  "trap 'echo TERM >> %s; exit ${TERM_STATUS-0}' TERM; echo ready; "
                  "%s",
                  got, got, until_there("never"));
}

TEST(signals_are_passed_on_and_what_comes_of_them_is_recorded) {
    static const int sent[] = {SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};
    char *sh = trap_script();
    struct proc proc = START_SH("k", sh);
    struct ran ran;
    int fd;

    WAIT_UNTIL(wrote(proc.out, "ready"));
    for (int i = 0; i < 5; i++) {
        kill(proc.pid, sent[i]);
        WAIT_UNTIL(lines_of("got") == i + 1);
    }
    kill(proc.pid, SIGTERM);
    ran = proc_wait(&proc);
    CHECK_INT(ran.status, 0);
    CHECK_HAS(ran.verdict, "stored said=done");
    fd = open(in_folder("got"), O_RDONLY);
    CHECK_STR(slurp(fd, NULL), "INT\nHUP\nQUIT\nUSR1\nUSR2\nTERM\n");
}

TEST(a_command_that_dies_by_a_signal_we_passed_on_is_released) {
    struct proc proc = START_SH("k", "echo ready; exec sleep 600"); /* sleep: it is killed */
    struct ran ran;

    WAIT_UNTIL(wrote(proc.out, "ready"));
    kill(proc.pid, SIGTERM);
    ran = proc_wait(&proc);
    CHECK_INT(ran.status, 143);
    CHECK_HAS(ran.verdict, "stored said=release attempt=1 status=143");
}

TEST(a_waiter_dies_by_the_signal_and_spoils_nothing) {
    char *sh = script("echo x >> %s; while [ ! -e %s ]; do sleep .02; done", in_folder("runs"),
                      in_folder("go"));
    struct proc first = START_SH("k", sh), second;
    struct ran ran;

    WAIT_UNTIL(lines_of("runs") == 1);
    second = START_SH("k", sh, "--wait", "120s");
    WAIT_UNTIL(has_store(second.pid));
    kill(second.pid, SIGTERM);
    ran = proc_wait(&second);
    CHECK_INT(ran.signal, SIGTERM);
    CHECK(creat(in_folder("go"), 0600) >= 0);
    CHECK_INT(proc_wait(&first).status, 0);
    CHECK(starts_with(RUN_SH("k", sh).verdict, "replay "));
}

TEST(a_signal_at_any_moment_leaves_the_key_free_or_run) {
    char *sh = script("echo x >> %s", in_folder("runs"));

    clock_stop(); /* the run waits for its claim after the signal, however long the store takes */
    for (int i = 0; i < 25; i++) {
        struct proc proc = START_SH("k", sh, "--mode", "lock");
        struct ran ran;

        wait_ms(i / 2); /* sleep: any moment will do */
        kill(proc.pid, SIGTERM);
        ran = proc_wait(&proc);
        if (ran.signal == 0 && ran.status != 0 && ran.status != 143)
            fprintf(stderr, "# %d: %s%s", ran.status, ran.err, ran.verdict);
        CHECK(ran.signal == SIGTERM || ran.status == 0 || ran.status == 143);
        /* Before idem handles signals it dies at once, without a claim. */
        ran = RUN_SH("k", sh, "--mode", "lock");
        CHECK_INT(ran.status, 0);
    }
}

TEST(what_was_ignored_stays_ignored_for_the_command) {
    char *sh = script("echo ready; %s; echo end", until_there("go"));
    struct proc proc;
    struct ran ran;

    signal(SIGHUP, SIG_IGN);
    proc = START_SH("k", sh);
    signal(SIGHUP, SIG_DFL);
    WAIT_UNTIL(wrote(proc.out, "ready"));
    kill(proc.pid, SIGHUP);
    RUN_SH("another", ":"); /* by now the first run would be dead */
    make_there("go");
    ran = proc_wait(&proc);
    CHECK_INT(ran.status, 0);
    CHECK_STR(ran.out, "ready\nend\n");
}

/* Returns the output of a program that the test starts itself, because a shell would tidy up
 * first. */
static char *direct(const char *const *argv) {
    int fd = harness_file(), status;
    pid_t pid = fork();

    CHECK(pid >= 0);
    if (pid == 0) {
        dup2(open("/dev/null", O_RDONLY | O_CLOEXEC), 0);
        dup2(fd, 1);
        execvp(argv[0], (char **)argv);
        _exit(99);
    }
    CHECK(waitpid(pid, &status, 0) == pid);
    CHECK_INT(status, 0);
    return slurp(fd, NULL);
}

TEST(the_command_gets_signals_as_idem_found_them) {
    const char *argv[] = {"grep", "-E", "^Sig(Blk|Ign|Cgt)", "/proc/self/status", NULL};
    sigset_t set;
    char *want;

    sigemptyset(&set);
    sigaddset(&set, SIGUSR2);
    sigaddset(&set, SIGTERM);
    sigprocmask(SIG_BLOCK, &set, NULL);
    signal(SIGPIPE, SIG_IGN);
    want = direct(argv);
    CHECK_HAS(want, "SigBlk:\t0000000000004800");
    CHECK_STR(RUN("run", "--key", "k", "--", argv[0], argv[1], argv[2], argv[3]).out, want);
    CHECK_STR(
        RUN("run", "--key", "k2", "--mode", "lock", "--", argv[0], argv[1], argv[2], argv[3]).out,
        want);
}

/* Limits the size of files, for all programs started from now on. */
static void files_limit(rlim_t bytes) {
    struct rlimit limit = {bytes, bytes};

    CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
}

TEST(a_store_that_may_not_grow_is_a_store_error_and_no_death) {
    char *sh = script("touch %s", in_folder("ran"));
    struct ran ran;

    files_limit(1024);
    ran = RUN_SH("k", sh);
    CHECK_INT(ran.signal, 0);
    CHECK_INT(ran.status, 69);
    CHECK(starts_with(ran.err, "idem: store: "));
    CHECK(!exists("ran"));
}

TEST(an_operator_of_a_store_that_may_not_grow_is_told_so) {
    struct ran ran;

    RUN_SH("k", "exit 3", "--on-failure", "keep");
    files_limit(0);
    ran = RUN("settle", "--done", "k");
    CHECK_INT(ran.signal, 0);
    CHECK_INT(ran.status, 69);
}

TEST(an_end_that_a_limit_keeps_from_being_stored_is_told_and_no_death) {
    char *sh = script("while [ ! -e %s ]; do sleep .02; done", in_folder("go"));
    struct rlimit limit = {0, 0};
    struct proc proc = START_SH("k", sh, "--finish-timeout", "200ms");
    struct ran ran;

    WAIT_UNTIL(wrote(proc.verdict, "run "));
    CHECK(prlimit(proc.pid, RLIMIT_FSIZE, &limit, NULL) == 0);
    CHECK(creat(in_folder("go"), 0600) >= 0);
    ran = proc_wait(&proc);
    CHECK_INT(ran.signal, 0);
    CHECK_INT(ran.status, 69);
}

TEST(a_command_that_writes_too_much_dies_as_it_would_without_idem) {
    const char *path = in_folder("big");

    for (int mode = 0; mode < 2; mode++) {
        char *sh = script("ulimit -f 1; exec head -c 100000 /dev/zero > %s", path);
        struct ran ran = RUN_SH("k", sh, "--mode", mode == 0 ? "replay" : "lock");

        CHECK_INT(ran.status, 128 + SIGXFSZ);
    }
}

/* The command is one process and starts none: a shell whose child is stopped between vfork() and
 * exec() waits for it in state D and never shows T. */
TEST(a_stop_without_a_terminal_stops_both_and_continues_both) {
    const char *fifo = in_folder("fifo");
    struct proc proc;
    pid_t command;
    int status, fd;

    CHECK(mkfifo(fifo, 0600) == 0);
    proc = START_SH("k", script("echo $$; exec cat %s", fifo));
    fd = open(fifo, O_WRONLY); /* blocks until cat has opened it, too */
    CHECK(fd >= 0);
    WAIT_UNTIL(wrote(proc.out, "\n"));
    command = (pid_t)strtol(slurp(proc.out, NULL), NULL, 10);
    CHECK(command > 1);
    kill(proc.pid, SIGTSTP);
    CHECK(waitpid(proc.pid, &status, WUNTRACED) == proc.pid);
    CHECK(WIFSTOPPED(status));
    WAIT_UNTIL(proc_state(command) == 'T');
    kill(proc.pid, SIGCONT);
    WAIT_UNTIL(proc_state(command) != 'T');
    CHECK(write(fd, "end\n", 4) == 4);
    close(fd);
    CHECK_INT(proc_wait(&proc).status, 0);
}

/* Pipes. */

/* Starts idem with its stdout in a pipe whose reading end is *ret_from. */
static struct proc start_piped(const char *key, const char *sh, int *ret_from) {
    struct proc proc = {.out = harness_file(), .err = harness_file(), .verdict = harness_file()};
    int fds[2];

    CHECK(pipe2(fds, O_CLOEXEC) == 0);
    proc.pid = fork();
    CHECK(proc.pid >= 0);
    if (proc.pid == 0) {
        setsid();
        harness_dup(fds[1], 1);
        harness_dup(proc.err, 2);
        harness_dup(proc.verdict, 9);
        execl(harness_exe(), "idem", "run", "--key", key, "--verdict-fd", VERDICT_FD, "--lease",
              LEASE, "--recover", "rerun", "--", "sh", "-c", sh, NULL);
        _exit(99);
    }
    close(fds[1]);
    *ret_from = fds[0];
    return proc;
}

TEST(a_reader_that_leaves_early_does_not_keep_the_finish_from_being_recorded) {
    char *sh = script("echo first; %s; i=0; while [ $i -lt 2000 ]; do echo line $i; "
                      "i=$((i+1)); done; echo last",
                      until_there("gone"));
    struct proc proc;
    struct ran ran;
    char byte;
    int from;

    harness_folder();
    proc = start_piped("k", sh, &from);
    CHECK(read(from, &byte, 1) == 1);
    close(from);
    make_there("gone");
    ran = proc_wait(&proc);
    CHECK_INT(ran.status, 0);
    CHECK_STR(ran.err, "");
    CHECK_HAS(ran.verdict, "stored said=done");
    ran = RUN_SH("k", sh, "--recover", "rerun");
    CHECK(starts_with(ran.out, "first\nline 0\n"));
    CHECK_HAS(ran.out, "line 1999\nlast\n");
    /* A broken pipe does not change a replay's status either. */
    proc = start_piped("k", sh, &from);
    close(from);
    CHECK_INT(proc_wait(&proc).status, 0);
}

TEST(a_reader_that_is_slow_slows_the_command_but_not_the_lease) {
    const char *sh = "head -c 400000 /dev/zero; echo x >&2";
    struct proc proc;
    struct ran ran;
    char buf[4096];
    size_t total = 0;
    ssize_t n;
    int from;

    harness_folder();
    proc = start_piped("k", sh, &from);
    WAIT_UNTIL(wrote(proc.verdict, "run "));
    renewals_wait("k", proc.pid);
    /* The command still runs, and still has its owner. */
    CHECK_INT(RUN_SH("k", sh, "--recover", "rerun").status, 75);
    while ((n = read(from, buf, sizeof(buf))) > 0)
        total += (size_t)n;
    CHECK_INT(total, 400000);
    ran = proc_wait(&proc);
    CHECK_INT(ran.status, 0);
    CHECK_HAS(ran.verdict, "stored said=done");
    CHECK_INT(RUN_SH("k", sh, "--recover", "rerun").out_len, 400000);
}

TEST(a_result_is_stored_although_nobody_reads_the_output) {
    const char *sh = "head -c 100000 /dev/zero; echo end >&2";
    struct proc proc;
    char buf[4096];
    size_t total = 0;
    ssize_t n;
    int from;

    harness_folder();
    proc = start_piped("k", sh, &from);
    WAIT_UNTIL(wrote(proc.verdict, "stored said=done"));
    CHECK_INT(RUN_SH("k", sh, "--recover", "rerun").out_len, 100000);
    while ((n = read(from, buf, sizeof(buf))) > 0)
        total += (size_t)n;
    CHECK_INT(total, 100000);
    CHECK_INT(proc_wait(&proc).status, 0);
}

TEST(a_process_left_behind_does_not_hold_idem_up) {
    char *sh = script("(echo late; %s; touch %s) & echo out; echo err >&2; exit 0",
                      until_there("go"), in_folder("left"));
    struct ran first = RUN_SH("k", sh), again;

    CHECK_INT(first.status, 0);
    CHECK(!exists("left"));
    CHECK_HAS(first.out, "out\n");
    CHECK_STR(first.err, "err\n");
    again = RUN_SH("k", sh);
    CHECK_STR(again.out, first.out);
    make_there("go");
    WAIT_UNTIL(exists("left")); /* the command was there all the time */
}

TEST(a_chatty_process_left_behind_does_not_hold_idem_up) {
    char *sh =
        script("(echo more; touch %s; while :; do echo more; done) & echo $! >&2; %s; exit 0",
               in_folder("begun"), until_there("begun"));
    struct ran ran = RUN_SH("k", sh);
    long pid = strtol(ran.err, NULL, 10);

    CHECK(pid > 1);
    kill((pid_t)pid, SIGKILL);
    CHECK_INT(ran.status, 0);
    CHECK(ran.out_len > 0);
}

TEST(a_full_disk_behind_stdout_is_told_and_the_result_kept) {
    struct proc proc = {.out = harness_file(), .err = harness_file(), .verdict = harness_file()};
    struct ran ran;

    proc.pid = fork();
    if (proc.pid == 0) {
        dup2(open("/dev/full", O_WRONLY), 1);
        dup2(proc.err, 2);
        execl(harness_exe(), "idem", "run", "--key", "k", "--", "echo", "hello", NULL);
        _exit(99);
    }
    ran = proc_wait(&proc);
    CHECK_INT(ran.status, 0);
    CHECK_HAS(ran.err, "cannot write to stdout");
    CHECK_STR(RUN("run", "--key", "k", "--", "echo", "hello").out, "hello\n");
}

/* Runs idem with one of its descriptors on a full disk. */
static struct ran run_full(int fd, const char *const *argv) {
    struct proc proc = {.out = harness_file(), .err = harness_file(), .verdict = harness_file()};
    const char *args[16] = {harness_exe()};

    for (int i = 0; argv[i] != NULL; i++)
        args[i + 1] = argv[i];
    proc.pid = fork();
    if (proc.pid == 0) {
        dup2(proc.out, 1);
        dup2(proc.err, 2);
        dup2(open("/dev/full", O_WRONLY), fd);
        execv(args[0], (char **)args);
        _exit(99);
    }
    return proc_wait(&proc);
}

#define RUN_FULL(fd, ...) run_full(fd, (const char *const[]){__VA_ARGS__, NULL})

TEST(a_replay_that_cannot_be_written_is_told_and_no_success) {
    const char *sh = "echo out; echo err >&2";
    struct ran ran;

    CHECK_INT(RUN("run", "--key", "k", "--", "sh", "-c", sh).status, 0);
    ran = RUN_FULL(1, "run", "--key", "k", "--", "sh", "-c", sh);
    CHECK_INT(ran.status, 74);
    CHECK_STR(ran.err, "err\nidem: replay: cannot write to stdout: No space left on device; the "
                       "command itself has ended with status 0\n");
    ran = RUN_FULL(2, "run", "--key", "k", "--", "sh", "-c", sh);
    CHECK_INT(ran.status, 74);
    CHECK_STR(ran.out, "out\n");
    ran = RUN_FULL(1, "show", "--result", "k");
    CHECK_INT(ran.status, 74);
    CHECK_HAS(ran.err, "cannot write the result to stdout: No space left on device");
}

/* Descriptors. */

TEST(the_command_inherits_no_descriptor_of_idems) {
    const char *argv[] = {"ls", "/proc/self/fd", NULL};
    char *want = direct(argv);

    CHECK(strstr(want, "9\n") == NULL);
    CHECK_STR(RUN("run", "--key", "k", "--verdict-fd", "9", "--", argv[0], argv[1]).out, want);
    CHECK_STR(
        RUN("run", "--key", "k2", "--verdict-fd", "9", "--mode", "lock", "--", argv[0], argv[1])
            .out,
        want);
}

TEST(closed_descriptors_do_not_reach_the_store) {
    int status;
    pid_t pid;

    harness_folder();
    pid = fork();
    if (pid == 0) {
        close(0);
        close(1);
        close(2);
        execl(harness_exe(), "idem", "run", "--key", "k", "--", "sh", "-c",
              "echo out; echo err >&2", NULL);
        _exit(99);
    }
    CHECK(waitpid(pid, &status, 0) == pid);
    CHECK_INT(status, 0);
    CHECK_STR(RUN("run", "--key", "k", "--", "sh", "-c", "echo out; echo err >&2").out, "out\n");
}

/* Terminals. */

struct terminal {
    pid_t pid;
    int master;
};

/* Starts idem as the foreground job of a terminal, like a shell: the session's leader waits, and
 * idem has a process group of its own. */
static struct terminal terminal_start(const char *const *argv) {
    const char *args[32] = {harness_exe()};
    struct terminal terminal;
    int status;
    pid_t job;

    for (int i = 0; argv[i] != NULL; i++)
        args[i + 1] = argv[i];
    harness_folder();
    terminal.pid = forkpty(&terminal.master, NULL, NULL, NULL);
    CHECK(terminal.pid >= 0);
    if (terminal.pid != 0)
        return terminal;
    signal(SIGTTOU, SIG_IGN);
    job = fork();
    if (job == 0) {
        setpgid(0, 0);
        tcsetpgrp(0, getpid());
        signal(SIGTTOU, SIG_DFL);
        execv(args[0], (char **)args);
        _exit(99);
    }
    setpgid(job, job);
    tcsetpgrp(0, job);
    /* Like a shell: on a stop, take the terminal back, print a line, and after a while continue the
     * job in the foreground. */
    while (waitpid(job, &status, WUNTRACED) == job && WIFSTOPPED(status)) {
        tcsetpgrp(0, getpgrp());
        dprintf(1, "[stopped]");
        usleep(200000); /* sleep: as a person would; how long does not matter */
        tcsetpgrp(0, job);
        kill(-job, SIGCONT);
    }
    dprintf(1, "[%s %d]", WIFSIGNALED(status) ? "signal" : "exit",
            WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    /* The end of a session hangs up its terminal, and unread output may be lost. So the leader
     * stays until the other side is closed (SIGHUP). */
    for (;;)
        pause();
}

#define TERMINAL(...) terminal_start((const char *const[]){__VA_ARGS__, NULL})

/* Reads until `part` was seen, and returns everything so far. */
static const char *terminal_until(struct terminal *terminal, const char *part) {
    static char seen[4096];
    static size_t len;
    ssize_t n;

    while (strstr(seen, part) == NULL) {
        n = read(terminal->master, seen + len, sizeof(seen) - 1 - len);
        if (n <= 0)
            fprintf(stderr, "# the terminal shows: %s\n", seen);
        CHECK(n > 0);
        len += (size_t)n;
        seen[len] = '\0';
    }
    return seen;
}

TEST(ctrl_c_reaches_the_command_once_and_idem_dies_by_it_as_well) {
    /* One process: a shell that is about to start another one would start it nevertheless. */
    const char *sh = "echo ready; exec sleep 600"; /* sleep: it is killed */
    struct terminal t = TERMINAL("run", "--key", "k", "--", "sh", "-c", sh);

    terminal_until(&t, "ready");
    CHECK(write(t.master, "\003", 1) == 1);
    terminal_until(&t, "[signal 2]");
    CHECK_INT(RUN("show", "k").status, 66);
}

static volatile sig_atomic_t interrupts;

static void interrupt_count(int sig) {
    (void)sig;
    interrupts++;
}

/* This program as a command that counts SIGINT, which a shell cannot do: it exits with 10 plus
 * the count, a while after the first. */
__attribute__((constructor)) static void count_main(void) {
    if (getenv("COUNT_SIGINT") == NULL)
        return;
    signal(SIGINT, interrupt_count);
    dprintf(1, "ready\n");
    WAIT_UNTIL(interrupts > 0);
    for (int i = 0; i < 20; i++)
        usleep(20000); /* sleep: a second one would come with the first; a signal ends the call */
    _exit(10 + interrupts);
}

TEST(a_command_that_takes_ctrl_c_goes_on_and_sees_it_once) {
    struct terminal t = TERMINAL("run", "--key", "k", "--on-failure", "keep", "--", "env",
                                 "COUNT_SIGINT=1", program_invocation_name);

    terminal_until(&t, "ready");
    CHECK(write(t.master, "\003", 1) == 1);
    terminal_until(&t, "[exit 11]");
}

TEST(ctrl_z_stops_the_job_and_the_foreground_continues_it) {
    char *sh =
        script("echo ready; while [ ! -e %s ]; do sleep .02; done; echo end", in_folder("go"));
    struct terminal t = TERMINAL("run", "--key", "k", "--", "sh", "-c", sh);

    terminal_until(&t, "ready");
    CHECK(write(t.master, "\032", 1) == 1);
    terminal_until(&t, "[stopped]");
    CHECK(creat(in_folder("go"), 0600) >= 0);
    terminal_until(&t, "end");
    terminal_until(&t, "[exit 0]");
}

TEST(a_command_can_read_the_keyboard) {
    struct terminal t =
        TERMINAL("run", "--key", "k", "--", "sh", "-c", "echo ready; read a; echo got $a");

    terminal_until(&t, "ready");
    CHECK(write(t.master, "word\n", 5) == 5);
    terminal_until(&t, "got word");
    terminal_until(&t, "[exit 0]");
}

TEST(a_command_whose_output_is_not_kept_has_the_terminal_itself) {
    struct terminal t = TERMINAL("run", "--key", "k", "--mode", "lock", "--", "test", "-t", "1");

    terminal_until(&t, "[exit 0]");
    t = TERMINAL("run", "--key", "k2", "--mode", "replay", "--", "test", "-t", "1");
    terminal_until(&t, "[exit 1]");
}

int main(int argc, char **argv) {
    test_at_a_time = 4;
    return test_main(argc, argv);
}
