/*
 * The audit of operators: no operator changes a record without a line in the
 * audit, whichever process is killed.
 */
#include "operators.h"

#include <sys/socket.h>
#include <sys/un.h>

#define MANY 3000

static int times(const char *text, const char *part) {
    int n = 0;

    for (; (text = strstr(text, part)) != NULL; text++)
        n++;
    return n;
}

TEST(every_change_leaves_a_line_of_who_what_before_and_after) {
    char *audit;

    vanish("order-4711", "order 7");
    vanish("order-4712", "order 8");
    CHECK_INT(RUN("settle", "--done", "--reason", "seen at the bank", "order-4711").status, 0);
    CHECK_INT(RUN("settle", "--failed", "order-4711").status, 65);
    CHECK_INT(RUN("settle", "--state", "uncertain", "--failed", "--dry-run").status, 0);
    audit = file_text("audit");
    CHECK_INT(lines(audit),
              4); /* the begin and the result of two commands; a dry run has no line */
    CHECK_INT(RUN("settle", "--state", "uncertain", "--failed", "--yes").status, 0);
    CHECK_INT(RUN("forget", "order-4711").status, 0);
    audit = file_text("audit");
    json_check(audit);
    CHECK_INT(lines(audit), 8);
    CHECK_INT(times(audit, "\"result\":\"begun\""), 4);
    CHECK_HAS(audit, "\"action\":\"settle\",\"result\":\"done\"");
    CHECK_HAS(audit, "\"before\":\"uncertain\",\"attempt\":1,\"after\":\"done\","
                     "\"label\":\"order 7\",\"reason\":\"seen at the bank\"}\n");
    CHECK_HAS(audit, "\"action\":\"settle\",\"result\":\"refused\"");
    CHECK_HAS(audit, "\"before\":\"done\",\"attempt\":1,\"after\":\"done\",");
    CHECK_HAS(audit, "\"refused\":\"");
    CHECK_HAS(audit, "\"before\":\"uncertain\",\"attempt\":1,\"after\":\"failed\","
                     "\"label\":\"order 8\"");
    CHECK_HAS(audit, "\"action\":\"forget\"");
    CHECK_HAS(audit, "\"before\":\"done\",\"attempt\":1,\"after\":\"absent\"");
    CHECK_HAS(audit, hash_of("order-4712"));
    CHECK(strstr(audit, "order-471") == NULL); /* without the key */
    CHECK_HAS(audit, "\"who\":\"");
    CHECK_HAS(audit, "\"store\":\"lmdb:/");
}

TEST(without_an_audit_nothing_is_changed) {
    struct ran ran;

    vanish("k", "order 7");
    setenv("IDEM_AUDIT", in_folder("no/such/folder"), 1);
    ran = RUN("settle", "--done", "k");
    CHECK_INT(ran.status, 74);
    CHECK_HAS(ran.err, "cannot be written: No such file or directory; nothing was changed");
    CHECK_INT(RUN("forget", "k").status, 74);
    CHECK_HAS(RUN("list").out, "  uncertain ");
    setenv("IDEM_AUDIT", in_folder("audit"), 1);
    CHECK_INT(RUN("forget", "k").status, 0);
}

/* The file can be opened, but a write to it fails. */
TEST(where_no_line_can_be_written_nothing_is_changed) {
    struct ran ran;

    vanish("k", "order 7");
    setenv("IDEM_AUDIT", "/dev/full", 1);
    ran = RUN("settle", "--done", "k");
    CHECK_INT(ran.status, 74);
    CHECK_STR(ran.err, "idem: settle: the audit, /dev/full, cannot be written: No space left on "
                       "device; nothing is changed without it\n");
    CHECK_INT(RUN("forget", "k").status, 74);
    ran = RUN("settle", "--state", "uncertain", "--done", "--yes");
    CHECK_INT(ran.status, 74);
    CHECK_HAS(ran.err, "idem: settle: nothing was changed\n");
    CHECK_HAS(RUN("list").out, "  uncertain ");
}

TEST(a_pipe_without_a_reader_is_refused_and_not_waited_for) {
    struct ran ran;

    vanish("k", "order 7");
    CHECK_INT(mkfifo(in_folder("pipe"), 0600), 0);
    ran = RUN("forget", "--audit", in_folder("pipe"), "k");
    CHECK_INT(ran.status, 74);
    CHECK_HAS(ran.err, "cannot be written: no process reads it; nothing was changed");
    CHECK_HAS(RUN("list").out, "  uncertain ");
}

/* True if a process listens on the socket of the system's log. */
static bool is_logged(void) {
    struct sockaddr_un to = {.sun_family = AF_UNIX, .sun_path = "/dev/log"};
    int fd = socket(AF_UNIX, SOCK_DGRAM, 0), rc = connect(fd, (struct sockaddr *)&to, sizeof(to));

    close(fd);
    return rc == 0;
}

TEST(without_a_log_lines_go_to_stderr_or_nothing_is_changed) {
    struct ran ran;

    vanish("k", "order 7");
    setenv("IDEM_AUDIT", "", 1);
    if (is_logged()) {
        CHECK_INT(RUN("forget", "k").status, 0);
        return;
    }
    for (int i = 0; i < 2; i++) {
        char *sh = script("%s forget k 2>%s", harness_exe(), i == 0 ? "&-" : "/dev/null");

        CHECK_INT(WEXITSTATUS(system(sh)), 74);
        CHECK_HAS(RUN("list").out, "  uncertain ");
    }
    ran = RUN("forget", "k");
    CHECK_INT(ran.status, 0);
    CHECK(starts_with(ran.err, "idem: audit: {\"time\":\""));
    CHECK_INT(times(ran.err, "idem: audit: "), 2);
}

TEST(what_is_not_there_has_its_lines_too) {
    RUN_SH("other", ":");
    CHECK_INT(RUN("forget", "k").status, 66);
    CHECK_INT(times(file_text("audit"), "\"before\":\"absent\",\"after\":\"absent\""), 2);
}

/* All three have seen the records uncertain. */
TEST(of_operators_who_differ_one_settles_each_record) {
    struct proc operators[3];
    char *list, *hash, *audit;

    harness_folder();
    run_many(MANY, IDEM_RESULT_UNKNOWN);
    list = RUN("list", "--json").out;
    for (int i = 0; i < 3; i++)
        operators[i] = START("settle", "--state", "uncertain", i == 0 ? "--done" : "--failed",
                             "--reason", script("by number %d", i), "--yes");
    for (int i = 0; i < 3; i++)
        CHECK_INT(proc_wait(&operators[i]).status, 0);
    audit = file_text("audit");
    CHECK_INT(times(audit, "\"result\":\"done\""), MANY);
    for (; (hash = strstr(list, "\"hash\":\"")) != NULL; list = hash + 1)
        CHECK(strstr(audit, script("\"result\":\"done\",\"record\":\"%.64s\"", hash + 8)) != NULL);
}

/* A killed operator. */

/* Copies the bytes in the pipe to the file. Returns false at its end. */
static bool audit_pass(int from, int to) {
    static char bytes[65536];
    ssize_t n = read(from, bytes, sizeof(bytes));

    CHECK(n >= 0 || errno == EAGAIN);
    CHECK(n < 0 || write(to, bytes, (size_t)n) == n);
    return n != 0;
}

/* Sends the signal in the midst of settling the records. The audit goes to a pipe, which holds
 * only a part of the lines, so the command stands still there until the test reads on. */
static struct ran settle_and_send(int sig) {
    struct proc proc;
    int from, to;

    harness_folder();
    run_many(MANY, IDEM_RESULT_FINAL);
    CHECK_INT(mkfifo(in_folder("pipe"), 0600), 0);
    from = open(in_folder("pipe"), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    to = open(in_folder("audit"), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    CHECK(from >= 0 && to >= 0);
    proc = START("settle", "--audit", in_folder("pipe"), "--state", "failed", "--done", "--yes");
    WAIT_UNTIL((audit_pass(from, to), times(file_text("audit"), "\"result\":\"done\"") > 100));
    kill(proc.pid, sig);
    fcntl(from, F_SETFL, 0);
    while (audit_pass(from, to))
        ;
    close(from);
    close(to);
    return proc_wait(&proc);
}

/* Returns the number of done records. Each has a line with its result, or with `begun` at least
 * one that it was begun. */
static int done_with_lines(bool begun) {
    char *list = RUN("list", "--state", "done", "--json").out, *audit = file_text("audit"), *hash;
    int n = 0;

    for (; (hash = strstr(list, "\"hash\":\"")) != NULL; list = hash + 1) {
        char *part =
            script("\"result\":\"%s\",\"record\":\"%.64s\"", begun ? "begun" : "done", hash + 8);

        CHECK(strstr(audit, part) != NULL);
        n++;
    }
    return n;
}

TEST(who_is_killed_has_changed_nothing_without_a_line) {
    struct ran ran = settle_and_send(SIGKILL);
    int n;

    CHECK_INT(ran.signal, SIGKILL);
    n = done_with_lines(true);
    CHECK(n > 100 && n < MANY);
}

/* The threads finish the records that they have begun; the rest are reported as not tried. */
static void is_told_to_end(int sig) {
    struct ran ran = settle_and_send(sig);
    char *audit = file_text("audit");
    int n = done_with_lines(false);

    CHECK_INT(ran.signal, sig);
    CHECK_HAS(ran.err, "idem: settle: stopped by a signal\n");
    CHECK(n > 100 && n < MANY);
    CHECK(strstr(ran.out, script("\nsettled %d records as done\n", n)) != NULL);
    CHECK_INT(times(audit, "\"result\":\"done\""), n);
    CHECK_INT(times(audit, "\"result\":\"begun\""),
              n + times(audit, "\"refused\":\"it was not tried: "));
}

TEST(who_is_told_to_end_leaves_nothing_half_told) {
    is_told_to_end(SIGTERM);
}

TEST(who_is_interrupted_leaves_nothing_half_told) {
    is_told_to_end(SIGINT);
}

TEST(who_loses_his_terminal_leaves_nothing_half_told) {
    is_told_to_end(SIGHUP);
}

TEST(a_signal_that_was_ignored_before_is_ignored_here) {
    signal(SIGHUP, SIG_IGN);
    CHECK_INT(settle_and_send(SIGHUP).status, 0);
    CHECK_INT(done_with_lines(false), MANY);
}

int main(int argc, char **argv) {
    test_at_a_time = 4;
    return test_main(argc, argv);
}
