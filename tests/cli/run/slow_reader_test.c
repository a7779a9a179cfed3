/*
 * `idem run` and the reader of its output: a reader that stands still slows the
 * command down, and nothing else. Leases, signals and run_max go on.
 */
#include "cli/harness.h"

#include <pty.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <termios.h>

/* Starts idem run --lease 10m --recover rerun with these descriptors, -1 for files. */
static struct proc start_to(int out, int err, int verdict, const char *key, const char *sh,
                            const char *flag, const char *value) {
    struct proc proc = {.out = harness_file(), .err = harness_file(), .verdict = harness_file()};

    proc.pid = fork();
    CHECK(proc.pid >= 0);
    if (proc.pid == 0) {
        setsid();
        harness_dup(out < 0 ? proc.out : out, 1);
        harness_dup(err < 0 ? proc.err : err, 2);
        harness_dup(verdict < 0 ? proc.verdict : verdict, 9);
        execl(harness_exe(), "idem", "run", "--key", key, "--verdict-fd", VERDICT_FD, "--lease",
              LEASE, "--recover", "rerun", flag, value, "--", "sh", "-c", sh, NULL);
        _exit(99);
    }
    return proc;
}

/* A terminal as its two ends, which passes input unchanged. Output gets longer by a byte per
 * line, as on a person's terminal. */
static void terminal_open(int *ret_master, int *ret_slave) {
    struct termios raw;

    CHECK(openpty(ret_master, ret_slave, NULL, NULL, NULL) == 0);
    CHECK(tcgetattr(*ret_slave, &raw) == 0);
    cfmakeraw(&raw);
    raw.c_oflag |= OPOST | ONLCR;
    CHECK(tcsetattr(*ret_slave, TCSANOW, &raw) == 0);
    fcntl(*ret_master, F_SETFD, FD_CLOEXEC);
    fcntl(*ret_slave, F_SETFD, FD_CLOEXEC);
}

/* More than a terminal, a pipe and idem's buffer hold, and a last line. */
static const char flood[] = "seq 1 60000; echo end";
#define FLOOD_LEN 348898

/* Reads the command's output, from a terminal or not. */
static void flood_check(int from) {
    char *bytes = keep(malloc(FLOOD_LEN + 1)), buf[4096];
    size_t len = 0;
    ssize_t n;

    while (len < FLOOD_LEN) {
        n = read(from, buf, sizeof(buf));
        CHECK(n > 0);
        for (ssize_t i = 0; i < n && len < FLOOD_LEN; i++)
            if (buf[i] != '\r')
                bytes[len++] = buf[i];
    }
    bytes[len] = '\0';
    CHECK(starts_with(bytes, "1\n2\n3\n"));
    CHECK_HAS(bytes, "\n59999\n60000\nend\n");
}

/* The owner renews its lease and keeps it, and the process that started idem has no other open
 * file. */
static void kept_check(const struct proc *proc, int shared) {
    WAIT_UNTIL(wrote(proc->verdict, "run "));
    renewals_wait("k", proc->pid);
    CHECK_INT(RUN_SH("k", flood, "--recover", "rerun", "--fingerprint", "none").status, 75);
    CHECK((fcntl(shared, F_GETFL) & O_NONBLOCK) == 0);
}

TEST(a_terminal_that_nobody_reads_slows_the_command_but_not_the_lease) {
    int master, slave;
    struct proc proc;

    harness_folder();
    terminal_open(&master, &slave);
    proc = start_to(slave, -1, -1, "k", flood, "--mode", "replay");
    kept_check(&proc, slave);
    flood_check(master);
    CHECK_HAS(proc_wait(&proc).verdict, "stored said=done");
}

/* The other end of a terminal cannot be opened again: opening it makes another terminal. */
TEST(what_cannot_be_opened_again_slows_the_command_but_not_the_lease) {
    int master, slave;
    struct proc proc;

    harness_folder();
    terminal_open(&master, &slave);
    proc = start_to(master, -1, -1, "k", flood, "--mode", "replay");
    kept_check(&proc, master);
    flood_check(slave);
    CHECK_HAS(proc_wait(&proc).verdict, "stored said=done");
}

TEST(a_socket_that_nobody_reads_slows_the_command_but_not_the_lease) {
    struct proc proc;
    int fds[2];

    harness_folder();
    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0);
    CHECK(setsockopt(fds[0], SOL_SOCKET, SO_SNDBUF, &(int){4096}, sizeof(int)) == 0);
    proc = start_to(fds[0], -1, -1, "k", flood, "--mode", "replay");
    kept_check(&proc, fds[0]);
    flood_check(fds[1]);
    CHECK_HAS(proc_wait(&proc).verdict, "stored said=done");
}

/* poll(2) reports room, and another writer uses it. */
TEST(a_pipe_that_others_write_to_as_well_slows_the_command_but_not_the_lease) {
    struct proc proc, other;
    char buf[4096];
    int fds[2];

    harness_folder();
    CHECK(pipe2(fds, O_CLOEXEC) == 0);
    other = start_to(fds[1], -1, -1, "other", "yes other", "--mode", "replay");
    proc = start_to(fds[1], -1, -1, "k", "yes", "--mode", "replay");
    WAIT_UNTIL(wrote(other.verdict, "run "));
    WAIT_UNTIL(wrote(proc.verdict, "run "));
    for (int i = 0; i < 300; i++) {
        CHECK(read(fds[0], buf, sizeof(buf)) > 0);
        wait_ms(1); /* sleep: a slow reader; how slow does not matter */
    }
    for (int i = 0; i < 2; i++) {
        clock_forward_for(proc.pid, LEASE_S / 2);
        kill(other.pid, SIGCONT);
        WAIT_UNTIL(is_renewed("k") && is_renewed("other"));
    }
    CHECK_INT(RUN_SH("k", flood, "--recover", "rerun", "--fingerprint", "none").status, 75);
    CHECK((fcntl(fds[1], F_GETFL) & O_NONBLOCK) == 0);
    CHECK_INT(RUN_SH("other", flood, "--recover", "rerun", "--fingerprint", "none").status, 75);
    kill(proc.pid, SIGTERM);
    kill(other.pid, SIGTERM);
    CHECK_INT(proc_wait(&proc).status, 143);
    CHECK_INT(proc_wait(&other).status, 143);
}

TEST(what_is_written_by_a_thread_keeps_its_order) {
    char *sh = script("echo 1; %s; echo 2 >&2; %s; echo 3; %s; echo 4 >&2", until_there("1"),
                      until_there("2"), until_there("3"));
    int master, slave;
    struct proc proc;
    char buf[64];
    ssize_t n = 0;

    harness_folder();
    terminal_open(&master, &slave);
    proc = start_to(master, master, -1, "k", sh, "--mode", "replay");
    for (int i = 1; i <= 4; i++) { /* each line is written once the one before was read */
        while (n < 2 * i)
            n += read(slave, buf + n, sizeof(buf) - (size_t)n);
        make_there(script("%d", i));
    }
    CHECK_INT(proc_wait(&proc).status, 0);
    buf[n] = '\0';
    CHECK_STR(buf, "1\n2\n3\n4\n");
}

TEST(a_terminal_that_nobody_reads_does_not_hold_up_signals_and_run_max) {
    struct proc proc;
    struct ran ran;

    for (int i = 0; i < 4; i++) {
        int ends[2], queued;

        harness_folder();
        terminal_open(&ends[0], &ends[1]);
        proc = start_to(ends[i / 2], -1, -1, "k", flood, "--run-max", i % 2 == 0 ? "200s" : "60s");
        WAIT_UNTIL(wrote(proc.verdict, "run "));
        WAIT_UNTIL(ioctl(ends[1 - i / 2], FIONREAD, &queued) == 0 && queued > 0);
        if (i % 2 == 0)
            kill(proc.pid, SIGTERM);
        else
            clock_forward_for(proc.pid, 61);
        ran = proc_wait(&proc);
        CHECK_INT(ran.status, i % 2 == 0 ? 143 : 70);
        CHECK_HAS(ran.verdict, i % 2 == 0 ? "stored said=release" : "stored said=unknown");
        CHECK_INT(RUN("forget", "--force", "k").status, i % 2 == 0 ? 66 : 0);
    }
}

TEST(a_verdict_that_nobody_reads_holds_up_neither_the_command_nor_its_lease) {
    char *sh = script("echo x >> %s; while [ ! -e %s ]; do sleep .02; done", in_folder("runs"),
                      in_folder("go")),
         buf[65536];
    struct proc proc;
    int fds[2], size;
    ssize_t n;

    CHECK(pipe2(fds, O_CLOEXEC) == 0);
    size = fcntl(fds[1], F_GETPIPE_SZ);
    for (int i = 0; i < size; i += (int)n)
        CHECK((n = write(fds[1], buf, (size_t)(size - i))) > 0);
    proc = start_to(-1, -1, fds[1], "k", sh, "--mode", "replay");
    WAIT_UNTIL(lines_of("runs") == 1);
    renewals_wait("k", proc.pid);
    CHECK_INT(RUN_SH("k", sh, "--recover", "rerun").status, 75);
    CHECK(creat(in_folder("go"), 0600) >= 0);
    WAIT_UNTIL(RUN_SH("k", sh, "--recover", "rerun").status == 0);
    CHECK((fcntl(fds[1], F_GETFL) & O_NONBLOCK) == 0);
    for (int i = 0; i < size; i += (int)n)
        CHECK((n = read(fds[0], buf, (size_t)(size - i))) > 0);
    CHECK_INT(proc_wait(&proc).status, 0);
    n = read(fds[0], buf, sizeof(buf) - 1);
    CHECK(n > 0);
    buf[n] = '\0';
    CHECK(starts_with(buf, "run attempt=1 hash="));
    CHECK_HAS(buf, "\nstored said=done attempt=1 status=0 hash=");
}

/* stderr is a terminal that nothing reads, too: idem's own messages wait until the end. */
TEST(what_idem_says_itself_holds_up_no_lease) {
    int master, slave;
    struct proc proc;

    harness_folder();
    terminal_open(&master, &slave);
    proc = start_to(open("/dev/full", O_WRONLY | O_CLOEXEC), slave, -1, "k",
                    "seq 1 60000 >&2; echo x; exec sleep 600", /* sleep: it is killed */
                    "--mode", "replay");
    kept_check(&proc, slave);
    kill(proc.pid, SIGTERM);
    WAIT_UNTIL(wrote(proc.verdict, "stored said=release"));
    kill(proc.pid, SIGKILL);
    proc_wait(&proc);
}

int main(int argc, char **argv) {
    test_at_a_time = 4;
    return test_main(argc, argv);
}
