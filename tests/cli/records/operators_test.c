/* The operators' commands: show, list, settle, forget, stats. */
#include "operators.h"

#include <pty.h>

/* Show. */

TEST(a_record_is_shown_by_key_and_by_hash) {
    char *hash, shorter[13];
    struct ran ran;

    RUN_SH("secret-key", "echo out; echo err >&2", "--label", "order 4711");
    ran = RUN("show", "secret-key");
    CHECK_INT(ran.status, 0);
    CHECK_HAS(ran.out, "state    done\n");
    CHECK_HAS(ran.out, "label    order 4711\n");
    CHECK_HAS(ran.out, "attempt  1\n");
    CHECK_HAS(ran.out, "result   exit 0, 4 bytes of stdout, 4 of stderr\n");
    CHECK_HAS(ran.out, "Z (in 23h)\n");
    CHECK(strstr(ran.out, "secret") == NULL);
    hash = hash_of("secret-key");
    snprintf(shorter, sizeof(shorter), "%s", hash);
    ran = RUN("show", "--json", "secret-key");
    CHECK_STR(RUN("show", "--json", "--hash", hash).out, ran.out);
    CHECK_STR(RUN("show", "--json", "--hash", shorter).out, ran.out);
    CHECK_STR(RUN("show", "--json", "--hash", hash, "--prefix", "run:").out, ran.out);
    CHECK_INT(RUN("show", "--hash", hash, "--prefix", "other:").status, 66);
}

TEST(a_record_tells_the_key_by_which_the_backend_knows_it) {
    char command[200], want[64 + 1], line[100];
    FILE *sum;

    RUN_SH("k", ":");
    snprintf(command, sizeof(command), "printf 'idem downstream key\\0run:\\0%%s' %s | sha256sum",
             hash_of("k"));
    sum = popen(command, "r");
    CHECK(sum != NULL);
    CHECK(fgets(want, sizeof(want), sum) != NULL);
    pclose(sum);
    snprintf(line, sizeof(line), "\"downstream_key\":\"%s\",", want);
    CHECK_HAS(RUN("show", "--json", "k").out, line);
    CHECK_HAS(RUN("list", "--json").out, line);
    snprintf(line, sizeof(line), "downstream_key %s\n", want);
    CHECK_HAS(RUN("show", "k").out, line);
}

TEST(a_record_is_shown_in_its_scope_only) {
    RUN_SH("k", ":", "--scope", "alice");
    CHECK_INT(RUN("show", "k").status, 66);
    CHECK_INT(RUN("show", "--scope", "bob", "k").status, 66);
    CHECK_INT(RUN("show", "--scope", "alice", "k").status, 0);
}

TEST(a_record_that_is_not_there_is_told_without_its_key) {
    struct ran ran;

    RUN_SH("another", ":");
    ran = RUN("show", "secret-key");
    CHECK_INT(ran.status, 66);
    CHECK(starts_with(ran.err, "idem: show: "));
    CHECK(strstr(ran.err, "secret") == NULL);
    CHECK_INT(RUN("show", "--hash", "0123456789abcdef").status, 66);
    CHECK_INT(RUN("forget", "secret-key").status, 66);
    CHECK_INT(RUN("settle", "--done", "secret-key").status, 66);
}

TEST(a_result_is_shown_only_when_asked_for) {
    struct ran ran;

    RUN_SH("k", "printf 'a\\000b'; echo confidential >&2");
    ran = RUN("show", "k");
    CHECK(strstr(ran.out, "confidential") == NULL);
    ran = RUN("show", "--result", "k");
    CHECK_INT(ran.out_len, 3);
    CHECK(memcmp(ran.out, "a\0b", 3) == 0);
    CHECK_STR(ran.err, "confidential\n");
    RUN_SH("k2", ":", "--mode", "reject");
    CHECK_INT(RUN("show", "--result", "k2").status, 66);
}

TEST(a_run_that_waits_to_be_run_again_is_not_shown_as_running) {
    char *sh = script("touch %s; %s", in_folder("begun"), until_go());
    struct proc proc = START_SH("k", sh, "--recover", "rerun", "--lease", LEASE, "--run-max", "60s",
                                "--backoff", "5m");
    struct ran ran;

    WAIT_UNTIL(exists("begun"));
    clock_forward_for(proc.pid, 61);
    CHECK_INT(proc_wait(&proc).status, 70);
    ran = RUN("show", "k");
    CHECK_HAS(ran.out, "state    running: its outcome is unknown; it may run again in 4m");
    CHECK_HAS(ran.out, "reason   ended after run_max\n");
    ran = RUN_SH("k", sh, "--recover", "rerun");
    CHECK_INT(ran.status, 75);
    CHECK_HAS(ran.err, " has ended with an unknown outcome, and its rerun is not due yet "
                       "(attempt 1); try again in ");
}

/* A later attempt may show the reason of an earlier one. */
TEST(a_second_attempt_is_shown_as_what_it_may_be) {
    char *sh = script("[ $IDEM_ATTEMPT = 2 ] || exit 3; %s", until_go());
    struct proc proc;
    struct ran ran;

    RUN_SH("k", sh, "--on-failure", "retry", "--backoff", "1ms");
    proc = START_SH("k", sh, "--wait", "120s");
    WAIT_UNTIL(wrote(proc.verdict, "run attempt=2 "));
    CHECK_HAS(RUN("show", "k").out,
              "state    running, or waiting to run again; lease or pause left: ");
    ran = RUN_SH("k", sh);
    CHECK_HAS(ran.err, " is running elsewhere, or its rerun is not due yet (attempt 2)");
    go();
    CHECK_INT(proc_wait(&proc).status, 0);
}

/* List. */

TEST(a_list_shows_states_and_labels) {
    struct ran ran;

    RUN_SH("a", ":", "--label", "first");
    RUN_SH("b", "exit 3", "--label", "second", "--on-failure", "keep");
    RUN_SH("c", ":", "--prefix", "other:");
    vanish("d", "third");
    CHECK_INT(lines(RUN("list", "--state", "uncertain").out), 2);
    ran = RUN("list");
    CHECK_INT(lines(ran.out), 5);
    CHECK(starts_with(ran.out, "HASH"));
    CHECK_HAS(ran.out, "first\n");
    CHECK_HAS(RUN("list", "--state", "done").out, "first\n");
    CHECK_INT(lines(RUN("list", "--state", "done").out), 3);
    CHECK_HAS(RUN("list", "--state", "failed").out, "second\n");
    CHECK_HAS(RUN("list", "--state", "uncertain").out, "third\n");
    CHECK_STR(RUN("list", "--state", "running").out, "");
    CHECK_INT(lines(RUN("list", "--prefix", "other:").out), 2);
    CHECK_INT(lines(RUN("list", "--since", "1h").out), 5);
    CHECK_STR(RUN("list", "--since", "2999-01-01T00:00:00Z").out, "");
}

TEST(a_list_is_valid_json_whatever_the_label) {
    struct ran ran;

    RUN_SH("a", ":", "--label", "quote\" back\\ tab\t");
    RUN_SH("b", ":", "--label", "not utf-8: \xff\xc3");
    RUN_SH("c", "exit 3", "--on-failure", "keep");
    ran = RUN("list", "--json");
    CHECK_INT(lines(ran.out), 3);
    json_check(ran.out);
    CHECK_HAS(ran.out, "\\ufffd");
    CHECK_HAS(ran.out, "\"status\":3");
    json_check(RUN("show", "--json", "b").out);
    /* Control characters do not reach a terminal. */
    CHECK(strchr(RUN("list").out, '\t') == NULL);
}

/* A label that a terminal would show as another order's, and one that is safe only for programs. */
TEST(what_nobody_sees_in_a_label_reaches_no_terminal) {
    static const char *const commands[][3] = {
        {"list"}, {"list", "--json"}, {"show", "a"}, {"show", "--json", "a"}};
    struct ran ran;

    RUN_SH("a", "exit 3", "--on-failure", "keep", "--label",
           "7\xe2\x80\xae"
           "8\xf3\xa0\x81\x81");
    for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++) {
        ran = run_argv((const char *const[]){commands[i][0], commands[i][1], commands[i][2], NULL});
        CHECK_INT(ran.status, 0);
        CHECK(strstr(ran.out, "\xe2\x80\xae") == NULL && strstr(ran.out, "\xf3\xa0") == NULL);
        CHECK_HAS(ran.out, i % 2 == 0 ? "7?8?" : "\"label\":\"7\\u202e8\\udb40\\udc41\"");
    }
    ran = RUN_SH("a", "exit 3", "--mode", "reject", "--label",
                 "7\xe2\x80\xae"
                 "8");
    CHECK_HAS(ran.err, "(7?8)");
}

TEST(a_long_list_comes_whole) {
    char key[16];

    for (int i = 0; i < 70; i++) {
        snprintf(key, sizeof(key), "k%d", i);
        CHECK_INT(RUN("run", "--key", key, "--mode", "reject", "--", "true").status, 0);
    }
    CHECK_INT(lines(RUN("list", "--json").out), 70);
}

/* Settle and forget. */

TEST(an_uncertain_run_settled_as_done_is_a_duplicate) {
    struct ran ran;

    vanish("k", "x");
    CHECK_INT(RUN_SH("k", until_go()).status, 70);
    CHECK_STR(RUN("settle", "--done", "--reason", "seen it", "k").out, "settled as done\n");
    ran = RUN_SH("k", until_go());
    CHECK_INT(ran.status, 0);
    CHECK(starts_with(ran.err, "idem: duplicate: "));
    CHECK_HAS(RUN("show", "k").out, "reason   seen it\n");
    ran = RUN("settle", "--failed", "k");
    CHECK_INT(ran.status, 65);
    CHECK(starts_with(ran.err, "idem: settle: "));
}

TEST(an_uncertain_run_settled_as_failed_runs_again) {
    vanish("k", "x");
    CHECK_INT(RUN_SH("k", until_go()).status, 70);
    CHECK_INT(RUN("settle", "--failed", "--status", "9", "--hash", hash_of("k")).status, 0);
    CHECK_HAS(RUN("show", "k").out, "status   9\n");
    go();
    CHECK_INT(RUN_SH("k", until_go()).status, 0);
}

/* A crash between the claim and the run: the record has the fingerprint of a command line that
 * never ran. The refusal of another command line names the two ways out, and they work. */
TEST(a_command_that_never_ran_holds_its_key_until_an_operator_frees_it) {
    const char *forget, *settle = "(idem settle --failed only for that one)";
    struct ran ran;

    vanish("k", "order 1");
    forget = script("idem forget --hash %.12s frees the key for this one", hash_of("k"));
    ran = RUN_SH("k", "echo right");
    CHECK_INT(ran.status, 65);
    CHECK_HAS(ran.err, forget);
    CHECK_HAS(ran.err, settle);
    ran = RUN("run", "--key", "k", "--vars", "{\"a\":1}", "--fingerprint-expr", "#a", "--", "true");
    CHECK_INT(ran.status, 70); /* made by another definition: not comparable */
    CHECK_INT(RUN("settle", "--failed", "k").status, 0);
    ran = RUN_SH("k", "echo right");
    CHECK_INT(ran.status, 65);
    CHECK_HAS(ran.err, forget);
    go();
    CHECK_INT(RUN_SH("k", until_go()).status, 0);
    CHECK_INT(RUN_SH("k", "echo right").status, 65);
    CHECK_INT(RUN("forget", "--hash", script("%.12s", hash_of("k"))).status, 0);
    ran = RUN_SH("k", "echo right");
    CHECK_INT(ran.status, 0);
    CHECK_STR(ran.out, "right\n");
}

TEST(other_variables_are_refused_with_the_way_out) {
    struct ran ran;

#define WITH(vars)                                                                                 \
    RUN("run", "--key", "k", "--vars", vars, "--fingerprint-expr", "#a", "--", "echo", "once")
    CHECK_INT(WITH("{\"a\":1}").status, 0);
    ran = WITH("{\"a\":2}");
    CHECK_INT(ran.status, 65);
    CHECK_HAS(ran.err, "with other variables before");
    CHECK_HAS(ran.err, script("idem forget --hash %.12s frees the key", hash_of("k")));
    CHECK_HAS(ran.err, "only for that one)\n");
#undef WITH
}

TEST(many_are_settled_at_once_and_a_dry_run_changes_nothing) {
    struct ran ran;
    char *before;

    vanish("a", "one");
    vanish("b", "two");
    RUN_SH("c", ":", "--label", "three");
    before = RUN("list", "--json").out;
    ran = RUN("settle", "--state", "uncertain", "--since", "1h", "--done", "--dry-run");
    CHECK_INT(ran.status, 0);
    CHECK_HAS(ran.out, "one\n");
    CHECK_HAS(ran.out, "two\n");
    CHECK_HAS(ran.out, "2 records; nothing was changed\n");
    CHECK(strstr(ran.out, "three") == NULL);
    CHECK_INT(RUN("settle", "--state", "uncertain", "--dry-run").status, 0);
    CHECK_INT(RUN("settle", "--done", "--dry-run", "a").status, 0);
    ran = RUN("settle", "--state", "uncertain", "--done");
    CHECK_INT(ran.status, 64);
    CHECK_HAS(ran.err, "--yes");
    CHECK_STR(RUN("list", "--json").out, before);
    ran = RUN("settle", "--state", "uncertain", "--done", "--yes", "--prefix", "none:");
    CHECK_HAS(ran.out, "settled 0 records");
    ran = RUN("settle", "--state", "uncertain", "--done", "--yes");
    CHECK_HAS(ran.out, "settled 2 records as done\n");
    CHECK_STR(RUN("list", "--state", "uncertain").out, "");
    CHECK_INT(lines(RUN("list", "--state", "done").out), 4);
}

/* Answers the question on a terminal, after running `meanwhile` (may be NULL); returns the exit
 * status. */
static int settle_answering(const char *answer, void (*meanwhile)(void)) {
    char seen[1024] = "";
    size_t len = 0;
    int master, status;
    ssize_t n;
    pid_t pid;

    pid = forkpty(&master, NULL, NULL, NULL);
    CHECK(pid >= 0);
    if (pid == 0) {
        execl(harness_exe(), "idem", "settle", "--state", "uncertain", "--done", NULL);
        _exit(99);
    }
    while (strstr(seen, "Type yes: ") == NULL) {
        n = read(master, seen + len, sizeof(seen) - 1 - len);
        CHECK(n > 0);
        len += (size_t)n;
        seen[len] = '\0';
    }
    if (meanwhile != NULL)
        meanwhile();
    CHECK(write(master, answer, strlen(answer)) == (ssize_t)strlen(answer));
    while (read(master, seen, sizeof(seen)) > 0)
        ;
    CHECK(waitpid(pid, &status, 0) == pid);
    return WEXITSTATUS(status);
}

TEST(a_person_is_asked_before_many_are_settled) {
    vanish("a", "one");
    CHECK_INT(settle_answering("no\n", NULL), 64);
    CHECK_INT(lines(RUN("list", "--state", "uncertain").out), 2);
    CHECK_INT(settle_answering("yes\n", NULL), 0);
    CHECK_STR(RUN("list", "--state", "uncertain").out, "");
}

static void another_vanishes(void) {
    vanish("b", "unseen");
}

static void it_vanishes_again(void) {
    CHECK_INT(RUN("settle", "--failed", "a").status, 0);
    vanish("a", "another attempt");
}

static void it_is_another_one(void) {
    CHECK_INT(RUN("forget", "a").status, 0);
    wait_ms(200); /* sleep: a record that is younger by less than 100 ms counts as the same */
    vanish("a", "another record");
}

TEST(what_was_not_shown_is_not_settled) {
    vanish("a", "seen");
    CHECK_INT(settle_answering("yes\n", another_vanishes), 0);
    CHECK_HAS(RUN("list", "--state", "done").out, "seen\n");
    CHECK_HAS(RUN("list", "--state", "uncertain").out, "unseen\n");
}

TEST(what_has_changed_since_it_was_shown_is_not_settled) {
    vanish("a", "seen");
    CHECK_INT(settle_answering("yes\n", it_vanishes_again), 0);
    CHECK_HAS(RUN("list", "--state", "uncertain").out, " 2       -");
    CHECK_INT(settle_answering("yes\n", it_is_another_one), 0);
    CHECK_HAS(RUN("list", "--state", "uncertain").out, " 1       -");
}

TEST(what_was_forgotten_and_vanished_again_is_not_settled) {
    vanish("a", "seen");
    CHECK_INT(settle_answering("yes\n", it_is_another_one), 0);
    CHECK_HAS(RUN("list", "--state", "uncertain").out, "another record\n");
}

/* --only. */

static void file_write(const char *name, const char *text) {
    FILE *file = fopen(in_folder(name), "w");

    CHECK(file != NULL && fputs(text, file) >= 0 && fclose(file) == 0);
}

TEST(of_many_only_those_are_settled_that_a_file_names) {
    struct ran ran;

    vanish("a", "one");
    vanish("b", "two");
    vanish("c", "three");
    file_write("plain", hash_of("a"));
    file_write("listed", RUN("list", "--state", "uncertain", "--json").out);
    ran = RUN("settle", "--state", "uncertain", "--prefix", "run:", "--only", in_folder("plain"),
              "--done", "--dry-run");
    CHECK_HAS(ran.out, "one\n");
    CHECK_HAS(ran.out, "\n1 record; nothing was changed\n");
    ran = RUN("settle", "--state", "uncertain", "--prefix", "run:", "--only", in_folder("plain"),
              "--done", "--yes");
    CHECK_HAS(ran.out, "settled 1 record as done\n");
    CHECK_INT(RUN("settle", "--failed", "b").status, 0);
    vanish("b", "two again");
    ran = RUN("settle", "--state", "uncertain", "--only", in_folder("listed"), "--failed", "--yes");
    CHECK_HAS(ran.out, "settled 1 record as failed\n"); /* c; b is at another attempt by now */
    CHECK_HAS(ran.out, "2 of ");
    CHECK_HAS(ran.out, " not found as uncertain\n");
    CHECK_HAS(RUN("list", "--state", "uncertain").out, "two again\n");
    CHECK_HAS(RUN("list", "--state", "failed").out, "three\n");
}

/* The hash covers scope and key: two prefixes may each have a record with the same hash. */
TEST(a_list_names_records_under_their_prefix) {
    struct ran ran;

    vanish_under("order:", "7", "an order");
    vanish_under("payment:", "7", "a payment");
    file_write("listed", RUN("list", "--prefix", "order:", "--json").out);
    ran = RUN("settle", "--state", "uncertain", "--only", in_folder("listed"), "--done", "--yes");
    CHECK_HAS(ran.out, "\nsettled 1 record as done\n");
    CHECK_HAS(RUN("list", "--prefix", "order:", "--state", "done").out, "an order\n");
    CHECK_HAS(RUN("list", "--state", "uncertain").out, "a payment\n");
}

TEST(a_hash_alone_is_taken_under_a_prefix_that_is_said) {
    struct ran ran;

    vanish_under("order:", "7", "an order");
    vanish_under("payment:", "7", "a payment");
    file_write("plain", keep(strndup(strstr(RUN("list", "--json").out, "\"hash\":\"") + 8, 64)));
    ran = RUN("settle", "--state", "uncertain", "--only", in_folder("plain"), "--done", "--yes");
    CHECK_INT(ran.status, 64);
    CHECK_HAS(ran.err, "line 1 is a hash without its prefix, which --prefix must give");
    CHECK_INT(lines(RUN("list", "--state", "uncertain", "--json").out), 2);
    ran = RUN("settle", "--state", "uncertain", "--prefix", "payment:", "--only",
              in_folder("plain"), "--done", "--yes");
    CHECK_HAS(ran.out, "\nsettled 1 record as done\n");
    CHECK_HAS(RUN("list", "--state", "uncertain").out, "an order\n");
}

TEST(a_line_of_an_attempt_that_is_none_changes_nothing) {
    static const char *const bad[] = {"\"1\"", "1.0", "1e0", "-1", "4294967297", "null"};
    struct ran ran;
    char text[300];

    vanish("a", "one");
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        snprintf(text, sizeof(text), "{\"hash\":\"%s\",\"prefix\":\"run:\",\"attempt\":%s}\n",
                 hash_of("a"), bad[i]);
        file_write("only", text);
        ran = RUN("settle", "--state", "uncertain", "--only", in_folder("only"), "--done", "--yes");
        CHECK_INT(ran.status, 64);
        CHECK_HAS(ran.err, "line 1 is of an attempt that is no number");
    }
    CHECK_HAS(RUN("list", "--state", "uncertain").out, "one\n");
}

TEST(a_file_that_names_something_else_changes_nothing) {
    static const char *const bad[] = {"", "\n\n", "b4c3\n", "{\"hash\":7}\n", "{\n", "null\n"};
    struct ran ran;
    char text[300];

    vanish("a", "one");
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        snprintf(text, sizeof(text), "%s%s%s", i < 2 ? "" : hash_of("a"), i < 2 ? "" : "\r\n",
                 bad[i]);
        file_write("only", text);
        ran = RUN("settle", "--state", "uncertain", "--prefix", "run:", "--only", in_folder("only"),
                  "--done", "--yes");
        CHECK_INT(ran.status, 64);
        CHECK_HAS(ran.err, "--only: ");
    }
    CHECK_INT(RUN("settle", "--state", "uncertain", "--only", in_folder("none"), "--done").status,
              66);
    CHECK_INT(RUN("settle", "--only", in_folder("only"), "--done", "a").status, 64);
    CHECK_HAS(RUN("list", "--state", "uncertain").out, "one\n");
}

TEST(more_than_a_batch_are_settled_in_several) {
    struct ran ran;

    harness_folder();
    run_many(1100, IDEM_RESULT_FINAL);
    ran = RUN("settle", "--state", "failed", "--done", "--yes");
    CHECK_INT(ran.status, 0);
    CHECK_INT(lines(ran.out), 1102);
    CHECK_HAS(ran.out, "\nsettled 1100 records as done\n");
    CHECK_STR(RUN("list", "--state", "failed").out, "");
}

TEST(a_key_that_is_forgotten_runs_anew) {
    char *sh = script("echo x >> %s", in_folder("runs"));

    RUN_SH("k", sh);
    CHECK_STR(RUN("forget", "k").out, "forgotten\n");
    CHECK_INT(RUN("show", "k").status, 66);
    RUN_SH("k", sh);
    CHECK_INT(lines_of("runs"), 2);
}

TEST(a_live_lease_is_settled_and_forgotten_by_force_only) {
    struct proc proc = START_SH("k", until_go());
    struct ran ran;

    WAIT_UNTIL(wrote(proc.verdict, "run "));
    CHECK_HAS(RUN("show", "k").out, "state    running, lease left: ");
    CHECK_HAS(RUN_SH("k", until_go()).err, " is running elsewhere (attempt 1); ");
    ran = RUN("settle", "--done", "k");
    CHECK_INT(ran.status, 75);
    CHECK(starts_with(ran.err, "idem: settle: its lease is not over: "));
    CHECK_HAS(ran.err, " --force\n");
    ran = RUN("forget", "k");
    CHECK_INT(ran.status, 75);
    CHECK(starts_with(ran.err, "idem: forget: its lease is not over: "));
    CHECK_HAS(ran.err, " --force\n");
    CHECK_INT(RUN("forget", "--force", "k").status, 0);
    go();
    CHECK_INT(proc_wait(&proc).status, 76);
}

/* Stats. */

TEST(stats_count_records_and_events) {
    struct ran ran;

    RUN_SH("a", ":");
    RUN_SH("a", ":");
    RUN_SH("b", ":", "--mode", "reject");
    RUN_SH("b", ":", "--mode", "reject");
    RUN_SH("c", "exit 3", "--on-failure", "keep");
    ran = RUN("stats", "--json");
    json_check(ran.out);
    CHECK_INT(lines(ran.out), 1);
    CHECK_HAS(ran.out, "\"records\":{\"issued\":0,\"running\":0,\"uncertain\":0,\"done\":2,"
                       "\"failed\":1}");
    CHECK_HAS(ran.out, "\"run\":3,\"replay\":1,\"duplicate\":1,");
    ran = RUN("stats");
    CHECK_HAS(ran.out, "\n  done                            2\n");
    CHECK_HAS(ran.out,
              "\n  signature_incomplete            0\n"); /* the longest name: still one column */
}

TEST(operators_names_go_before_or_behind_their_flags) {
    RUN_SH("k", ":");
    CHECK_INT(RUN("show", "k", "--json").status, 0);
    CHECK_INT(RUN("show", "--json", "k").status, 0);
    CHECK_INT(RUN("show", "--", "--json").status, 66);
}

int main(int argc, char **argv) {
    test_at_a_time = 4;
    return test_main(argc, argv);
}
