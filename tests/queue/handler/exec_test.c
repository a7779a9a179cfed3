/*
 * One process per message, with real processes: their input, their ends, and
 * their remains.
 */
#include <sys/resource.h>

#include "handler_rig.h"

static bool fork_fails;

pid_t __real_fork(void);
pid_t __wrap_fork(void);

pid_t __wrap_fork(void) {
    if (!fork_fails)
        return __real_fork();
    errno = EAGAIN;
    return -1;
}

static void open_with(struct handler_rig *rig, const struct handler_exec_config *config) {
    struct idem_error err;

    handler_rig_init(rig);
    if (handler_exec_open(config, &rig->loop, &rig->handler, &err) < 0) {
        fprintf(stderr, "# %s\n", err.text);
        exit(1);
    }
    CHECK_INT(rig->handler.queue.workers, config->workers);
}

/* A handler that must be killed is killed soon; one that ends by itself has all the time that it
 * needs. */
static int64_t kill_after_ms = 600000;

/* Runs the command in the test's directory. */
static void open_command(struct handler_rig *rig, const char *command) {
    static char whole[4096];

    snprintf(whole, sizeof(whole), "cd %s && { %s\n}", temp_folder(), command);
    open_with(
        rig, &(struct handler_exec_config){
                 .program = {.command = whole, .kill_after_ms = kill_after_ms, .die_with = SIGTERM},
                 .workers = 4,
             });
}

/* Runs one message through a command of its own, with the default rules. */
static struct item *run_command(const char *command, const char *body) {
    struct item *item = item_new(body);
    struct handler_rig rig;

    open_command(&rig, command);
    handler_rig_run(&rig, item);
    handler_rig_close(&rig);
    return item;
}

static bool has_line(const char *text, const char *line) {
    size_t len = strlen(line);

    for (const char *at = text; (at = strstr(at, line)) != NULL; at++)
        if ((at == text || at[-1] == '\n') && (at[len] == '\n' || at[len] == '\0'))
            return true;
    fprintf(stderr, "# there is no line %s in:\n# %s\n", line, text);
    return false;
}

TEST(a_program_gets_the_body_and_what_is_known_of_it) {
    struct item *item = item_new("{\"order\": 1}");
    struct handler_rig rig;
    char *text;

    setenv("IDEM_HEADER_OLD", "of an idem around this one", 1);
    setenv("IDEM_KEY", "of an idem around this one", 1);
    setenv("IDEM_STORE", "stays", 1);
    item->message.redelivered = true;
    item_header(item, "X-Trace.Id", "a b");
    item_header(item, "X-Trace-Id", "the second of one spelling");
    item_header(item, "traceparent", "00-1-2-01");
    item->headers[0].json = false;
    item->headers[item->message.headers_n++] =
        (struct queue_field){.name = bytes_of("n"), .value = bytes_of("42"), .json = true};
    item_property(item, "message_id", "m-1");
    item_property(item, "content_type", "application/json");
    open_command(&rig, "cat >body; env | grep ^IDEM_ >env");
    handler_rig_run(&rig, item);
    CHECK_SAID(item, QUEUE_DONE);
    CHECK_INT(item->outcome.status, 0);
    CHECK(item->outcome.reason == NULL);
    text = file_read("body", NULL);
    CHECK_STR(text, "{\"order\": 1}");
    free(text);
    text = file_read("env", NULL);
    CHECK(has_line(text, "IDEM_KEY=4711"));
    CHECK(has_line(text, "IDEM_KEY_HASH=" HANDLER_RIG_HASH));
    CHECK(has_line(text, "IDEM_ATTEMPT=3"));
    CHECK(has_line(text, "IDEM_QUEUE=orders"));
    CHECK(has_line(text, "IDEM_TRACE=trace-1"));
    CHECK(has_line(text, "IDEM_REDELIVERED=1"));
    CHECK(has_line(text, "IDEM_MESSAGE_ID=m-1"));
    CHECK(has_line(text, "IDEM_CONTENT_TYPE=application/json"));
    CHECK(has_line(text, "IDEM_HEADER_X_TRACE_ID=a b"));
    CHECK(has_line(text, "IDEM_HEADER_TRACEPARENT=00-1-2-01"));
    CHECK(has_line(text, "IDEM_HEADERS={\"X-Trace-Id\":\"the second of one spelling\","
                         "\"X-Trace.Id\":\"a b\",\"n\":42,\"traceparent\":\"00-1-2-01\"}"));
    CHECK(has_line(text, "IDEM_PROPERTIES={\"content_type\":\"application/json\","
                         "\"message_id\":\"m-1\"}"));
    CHECK(has_line(text, "IDEM_OMITTED=IDEM_HEADER_X_TRACE_ID"));
    CHECK(has_line(text, "IDEM_STORE=stays"));
    CHECK(strstr(text, "IDEM_HEADER_OLD") == NULL);
    CHECK(strstr(text, "IDEM_HEADER_N=") == NULL);
    free(text);
    free(item);
    handler_rig_close(&rig);
}

TEST(what_no_variable_can_hold_is_left_out_and_named) {
    struct item *item = item_new("x");
    struct handler_rig rig;
    char *text;

    item->run.key = "a\0b";
    item->run.key_len = 3;
    item->headers[0] =
        (struct queue_field){.name = bytes_of("nul"), .value = {(const void *)"a\0b", 3}};
    item->headers[1] = (struct queue_field){.name = bytes_of("raw"), .value = bytes_of("\xff\xfe")};
    item->headers[2] = (struct queue_field){.name = bytes_of(""), .value = bytes_of("no name")};
    item->message.headers_n = 3;
    open_command(&rig, "env | grep -a ^IDEM_ >env");
    handler_rig_run(&rig, item);
    CHECK_SAID(item, QUEUE_DONE);
    text = file_read("env", NULL);
    CHECK(has_line(text, "IDEM_OMITTED=IDEM_KEY,IDEM_HEADER_NUL"));
    CHECK(has_line(text, "IDEM_HEADER_RAW=\xff\xfe"));
    CHECK(strstr(text, "IDEM_KEY=") == NULL);
    free(text);
    free(item);
    handler_rig_close(&rig);
}

/* Names and values of many headers, which live as long as the test. */
static void many_headers(struct item *item, int n, size_t len) {
    static char names[HANDLER_RIG_FIELDS][16];
    char *value = malloc(len + 1);

    CHECK(value != NULL);
    memset(value, 'v', len);
    value[len] = '\0';
    for (int i = 0; i < n; i++) {
        snprintf(names[i], sizeof(names[i]), "h%d", i);
        item_header(item, names[i], value);
    }
}

TEST(headers_that_are_too_many_are_left_out_and_the_program_runs) {
    struct item *item = item_new("x");
    struct handler_rig rig;
    char *text;

    many_headers(item, 1100, 1000);
    open_command(&rig, "env | grep ^IDEM_ >env");
    handler_rig_run(&rig, item);
    CHECK_SAID(item, QUEUE_DONE);
    text = file_read("env", NULL);
    CHECK(has_line(text, "IDEM_KEY=4711"));
    CHECK_HAS(text, "\nIDEM_HEADER_H0=vvv");
    CHECK_HAS(text, "\nIDEM_OMITTED=IDEM_HEADERS,IDEM_HEADER_H");
    CHECK_HAS(text, ",...\n");
    CHECK(strstr(text, "\nIDEM_HEADERS=") == NULL);
    CHECK(strlen(text) < 140000);
    free(text);
    free((void *)item->headers[0].value.at);
    free(item);
    handler_rig_close(&rig);
}

TEST(small_headers_have_at_most_so_many_variables) {
    struct item *item = item_new("x");
    struct handler_rig rig;
    char *text;

    many_headers(item, 300, 1);
    open_command(&rig, "env | grep -c ^IDEM_HEADER_ >env");
    handler_rig_run(&rig, item);
    CHECK_SAID(item, QUEUE_DONE);
    text = file_read("env", NULL);
    CHECK_STR(text, "256\n");
    free(text);
    free((void *)item->headers[0].value.at);
    free(item);
    handler_rig_close(&rig);
}

TEST(the_exit_status_says_what_came_of_it) {
    static const struct {
        const char *command;
        enum queue_result result;
        int status;
        const char *reason;
    } rows[] = {
        {"true", QUEUE_DONE, 0, ""},
        {"exit 75", QUEUE_RETRY, 75, "exit status 75"},
        {"exit 1", QUEUE_RETRY, 1, "exit status 1"},
        {"there-is-no-such-command 2>/dev/null", QUEUE_RETRY, 127, "exit status 127"},
        {". 2>/dev/null; /dev/null 2>/dev/null", QUEUE_RETRY, -1, "exit status"},
        {"sh -c 'kill -SEGV $$' 2>/dev/null; exit $?", QUEUE_UNKNOWN, 139, "exit status 139"},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct item *item = run_command(rows[i].command, "x");

        CHECK_SAID(item, rows[i].result);
        if (rows[i].status >= 0)
            CHECK_INT(item->outcome.status, rows[i].status);
        CHECK_INT(item->outcome.delay_ms, 0);
        CHECK_HAS(item->reason, rows[i].reason);
        free(item);
    }
}

TEST(rules_for_exit_statuses_are_kept) {
    struct item *item = item_new("x"), *other = item_new("x");
    struct handler_rules rules;
    struct handler_rig rig;

    CHECK_INT(handler_on_exit_parse("65=dead,*=unknown", &rules, NULL), 0);
    open_with(&rig, &(struct handler_exec_config){
                        .program = {.command = "exit $IDEM_HEADER_EXIT"},
                        .on_exit = &rules,
                        .workers = 2,
                    });
    item_header(item, "exit", "65");
    item_header(other, "exit", "9");
    handler_rig_begin(&rig, item);
    handler_rig_begin(&rig, other);
    handler_rig_wait_all(&rig, 2);
    CHECK_SAID(item, QUEUE_REFUSED);
    CHECK_SAID(other, QUEUE_UNKNOWN);
    CHECK_INT(other->outcome.status, 9);
    free(item);
    free(other);
    handler_rig_close(&rig);
}

TEST(what_dies_by_a_signal_is_unknown) {
    struct item *item;

    item = run_command("kill -KILL $$", "x");
    CHECK_SAID(item, QUEUE_UNKNOWN);
    CHECK_INT(item->outcome.status, 128 + SIGKILL);
    CHECK_STR(item->reason, "ended by signal 9 (Killed)");
    free(item);
    item = run_command("exec python3 -c 'import ctypes; ctypes.string_at(0)'", "x");
    CHECK_SAID(item, QUEUE_UNKNOWN);
    CHECK_STR(item->reason, "ended by signal 11 (Segmentation fault)");
    free(item);
}

TEST(a_reader_that_does_not_read_is_no_failure) {
    static char body[1 << 20];
    static const char *const commands[] = {
        "exec true", "exec head -c 10 >/dev/null",
        "exec <&-; sleep 0.1", /* sleep: it ends when the write has failed */
    };
    struct item *item;
    struct handler_rig rig;
    char *text;

    memset(body, 'x', sizeof(body));
    for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++) {
        item = item_of(body, sizeof(body));
        open_command(&rig, commands[i]);
        handler_rig_run(&rig, item);
        CHECK_SAID(item, QUEUE_DONE);
        free(item);
        handler_rig_close(&rig);
    }
    item = item_of(body, sizeof(body));
    open_command(&rig, "wc -c >size");
    handler_rig_run(&rig, item);
    text = file_read("size", NULL);
    CHECK_STR(text, "1048576\n");
    free(text);
    free(item);
    handler_rig_close(&rig);
}

TEST(any_bytes_are_a_body_and_none_are_too) {
    static const char all[] = "\0\xff\n\r\0";
    struct item *item = item_of(all, 5);
    struct handler_rig rig;
    size_t len;
    char *text;

    open_command(&rig, "cat >body");
    handler_rig_run(&rig, item);
    text = file_read("body", &len);
    CHECK_INT(len, 5);
    CHECK(memcmp(text, all, 5) == 0);
    free(text);
    free(item);
    item = item_of(NULL, 0);
    handler_rig_run(&rig, item);
    CHECK_SAID(item, QUEUE_DONE);
    text = file_read("body", &len);
    CHECK_INT(len, 0);
    free(text);
    free(item);
    handler_rig_close(&rig);
}

TEST(who_is_left_behind_is_not_waited_for) {
    /* sleep: the test kills it below */
    struct item *item = run_command("sleep 600 & echo $! >pid; exit 0", "x");
    int pid = file_number("pid");

    CHECK_SAID(item, QUEUE_DONE);
    CHECK(!is_gone(pid)); /* a process that the handler left running on purpose continues */
    kill(pid, SIGKILL);
    free(item);
}

TEST(sixty_four_run_at_once) {
    struct item *items[64];
    struct handler_rig rig;
    size_t len;

    open_with(&rig, &(struct handler_exec_config){
                        .program = {.command = "cd $IDEM_HEADER_IN && echo x >>here && "
                                               "while [ ! -e gate ]; do sleep .05; done"},
                        .workers = 64,
                    });
    for (int i = 0; i < 64; i++) {
        items[i] = item_new("x");
        item_header(items[i], "in", temp_folder());
        handler_rig_begin(&rig, items[i]);
    }
    HANDLER_RIG_UNTIL(&rig, (free(file_read("here", &len)), len == 128));
    CHECK_INT(rig.reports, 0);
    file_write("gate", "");
    handler_rig_wait_all(&rig, 64);
    for (int i = 0; i < 64; i++) {
        CHECK_INT(items[i]->reports, 1);
        CHECK_SAID(items[i], QUEUE_DONE);
        free(items[i]);
    }
    handler_rig_close(&rig);
}

TEST(what_is_cancelled_is_unknown_whatever_it_says) {
    struct item *item = item_new("x");
    struct handler_rig rig;

    /* sleep: until it is ended */
    open_command(&rig, "trap 'exit 0' TERM; echo $$ >pid; while :; do sleep 0.02; done");
    handler_rig_begin(&rig, item);
    (void)file_number("pid");
    handler_rig_cancel(&rig, item);
    handler_rig_cancel(&rig, item);
    handler_rig_wait(&rig, item);
    CHECK_SAID(item, QUEUE_UNKNOWN);
    CHECK_STR(item->reason, "it was made to end: exit status 0");
    free(item);
    handler_rig_close(&rig);
}

TEST(what_is_cancelled_takes_its_group_along) {
    struct item *item = item_new("x");
    struct handler_rig rig;
    int pid;

    kill_after_ms = 300;
    /* sleep: until it is ended */
    open_command(&rig, "(trap '' TERM; echo $$ >/dev/null; sleep 600 & echo $! >pid; wait) & wait");
    handler_rig_begin(&rig, item);
    pid = file_number("pid");
    handler_rig_cancel(&rig, item);
    handler_rig_wait(&rig, item);
    CHECK_SAID(item, QUEUE_UNKNOWN);
    WAIT_UNTIL(is_gone(pid));
    free(item);
    handler_rig_close(&rig);
}

TEST(who_ignores_the_request_to_end_is_killed) {
    struct item *item = item_new("x");
    struct handler_rig rig;
    int64_t since;

    kill_after_ms = 300;
    open_command(&rig, "trap '' TERM; echo $$ >pid; sleep 600"); /* sleep: until it is ended */
    handler_rig_begin(&rig, item);
    (void)file_number("pid");
    since = idem_loop_now();
    handler_rig_cancel(&rig, item);
    handler_rig_wait(&rig, item);
    CHECK(idem_loop_now() - since >= 290);
    CHECK_SAID(item, QUEUE_UNKNOWN);
    CHECK_STR(item->reason, "it was made to end: ended by signal 9 (Killed)");
    free(item);
    handler_rig_close(&rig);
}

TEST(one_that_is_stopped_is_ended_as_well) {
    struct item *item = item_new("x");
    struct handler_rig rig;
    int pid;

    /* sleep: until it is ended */
    open_command(&rig, "trap 'exit 7' TERM; echo $$ >pid; while :; do sleep 0.02; done");
    handler_rig_begin(&rig, item);
    pid = file_number("pid");
    CHECK_INT(kill(-pid, SIGSTOP), 0);
    handler_rig_cancel(&rig, item);
    handler_rig_wait(&rig, item);
    CHECK_STR(item->reason, "it was made to end: exit status 7");
    free(item);
    handler_rig_close(&rig);
}

TEST(what_has_ended_before_it_was_cancelled_has_said_its_word) {
    struct item *item = item_new("x");
    struct handler_rig rig;
    int pid;

    open_command(&rig, "echo $$ >pid; exit 0");
    handler_rig_begin(&rig, item);
    pid = file_number("pid");
    WAIT_UNTIL(is_gone(pid));
    handler_rig_cancel(&rig, item);
    handler_rig_wait(&rig, item);
    CHECK_SAID(item, QUEUE_DONE);
    free(item);
    handler_rig_close(&rig);
}

TEST(what_cannot_be_started_was_not_begun) {
    struct item *item = item_new("x");
    struct handler_rig rig;

    open_command(&rig, "exit 0");
    fork_fails = true;
    handler_rig_run(&rig, item);
    CHECK_SAID(item, QUEUE_UNBEGUN);
    CHECK_STR(item->reason, "it could not be started: Resource temporarily unavailable");
    fork_fails = false;
    item->reports = 0;
    handler_rig_run(&rig, item);
    CHECK_SAID(item, QUEUE_DONE);
    free(item);
    handler_rig_close(&rig);
}

/* Every limit on descriptors, up to enough. */
TEST(without_descriptors_nothing_is_begun) {
    struct rlimit limit, old;
    struct item *item = item_new("x");
    struct handler_rig rig;
    int unbegun = 0, first, runs;
    char *text;

    /* The program has this limit, too. */
    open_command(&rig, "ulimit -Sn 64; echo x >>runs");
    first = dup(0);
    close(first);
    CHECK_INT(getrlimit(RLIMIT_NOFILE, &old), 0);
    for (int free_fds = 0;; free_fds++) {
        CHECK(free_fds < 20);
        limit = old;
        limit.rlim_cur = (rlim_t)(first + free_fds);
        CHECK_INT(setrlimit(RLIMIT_NOFILE, &limit), 0);
        item->reports = 0;
        handler_rig_begin(&rig, item);
        CHECK_INT(setrlimit(RLIMIT_NOFILE, &old), 0);
        handler_rig_wait(&rig, item);
        if (item->outcome.result == QUEUE_DONE)
            break;
        CHECK_SAID(item, QUEUE_UNBEGUN);
        unbegun++;
    }
    CHECK(unbegun >= 3);
    text = file_read("runs", NULL);
    runs = (int)strlen(text) / 2;
    CHECK_INT(runs, 1);
    free(text);
    free(item);
    handler_rig_close(&rig);
}

TEST(after_the_end_of_the_lease_nothing_is_begun) {
    struct item *item = item_new("x");
    struct handler_rig rig;

    item->run.not_after = idem_loop_now();
    open_command(&rig, "echo x >ran");
    handler_rig_run(&rig, item);
    CHECK_SAID(item, QUEUE_UNBEGUN);
    CHECK_STR(item->reason, "it could not be started: the lease was over before");
    CHECK(access(path_of("ran"), F_OK) < 0);
    free(item);
    handler_rig_close(&rig);
}

TEST(a_program_gets_no_descriptor_of_ours) {
    struct item *item;
    int fd = fcntl(open("/dev/null", O_RDONLY), F_DUPFD, 50);

    CHECK(fd >= 50);
    item = run_command("fd=3; while [ $fd -lt 99 ]; do [ ! -e /proc/$$/fd/$fd ] || exit 1; "
                       "fd=$((fd + 1)); done",
                       "x");
    CHECK_SAID(item, QUEUE_DONE);
    free(item);
}

/* The tests may inherit ignored signals. */
static const char *own_line(const char *name, char *line, int size) {
    FILE *status = fopen("/proc/self/status", "r");

    CHECK(status != NULL);
    while (fgets(line, size, status) != NULL && strncmp(line, name, strlen(name)) != 0)
        continue;
    fclose(status);
    line[strcspn(line, "\n")] = '\0';
    return line;
}

TEST(a_program_has_the_signals_as_they_were_found) {
    struct signals signals;
    struct item *item = item_new("x");
    struct handler_rig rig;
    char *text, found[80];

    handler_rig_init(&rig);
    (void)signal(SIGPIPE, SIG_DFL);
    own_line("SigIgn:", found, sizeof(found));
    CHECK_INT(signals_open(&signals, false), 0);
    file_write("show", "grep -E '^Sig(Blk|Ign)' /proc/self/status >\"$1\"\n");
    CHECK_INT(handler_exec_open(
                  &(struct handler_exec_config){
                      .program = {.command = "sh $IDEM_HEADER_IN/show $IDEM_HEADER_IN/signals",
                                  .signals = &signals},
                      .workers = 1,
                  },
                  &rig.loop, &rig.handler, NULL),
              0);
    item_header(item, "in", temp_folder());
    handler_rig_run(&rig, item);
    CHECK_SAID(item, QUEUE_DONE);
    text = file_read("signals", NULL);
    CHECK(has_line(text, "SigBlk:\t0000000000000000"));
    CHECK(has_line(text, found));
    free(text);
    free(item);
    handler_rig_close(&rig);
    signals_release(&signals);
}

TEST(programs_die_with_us) {
    struct item *item = item_new("x");
    struct handler_rig rig;
    pid_t us;
    int pid;

    (void)temp_folder();
    us = __real_fork();
    CHECK(us >= 0);
    if (us == 0) {
        temp_owner = getpid();                              /* in the same directory */
        open_command(&rig, "echo $$ >pid; exec sleep 600"); /* sleep: until it is ended */
        handler_rig_begin(&rig, item);
        /* sleep: it is killed */
        handler_rig_spin(&rig, TEST_LIMIT_S * 1000); /* it is killed */
        _exit(1);
    }
    pid = file_number("pid");
    CHECK(!is_gone(pid));
    kill(us, SIGKILL);
    WAIT_UNTIL(is_gone(pid));
    CHECK_INT(waitpid(us, NULL, 0), us);
    free(item);
}

TEST(closing_ends_what_is_still_at_work) {
    struct item *item = item_new("x");
    struct handler_rig rig;
    int pid;

    kill_after_ms = 300;
    open_command(&rig, "trap '' TERM; echo $$ >pid; exec sleep 600"); /* sleep: until it is ended */
    handler_rig_begin(&rig, item);
    pid = file_number("pid");
    handler_rig_close(&rig);
    WAIT_UNTIL(is_gone(pid)); /* SIGKILL takes a moment */
    CHECK_INT(item->reports, 0);
    free(item);
}

TEST(what_cannot_be_opened_is_refused) {
    static char command[140000];
    struct handler handler = {0};
    struct idem_error err;
    struct handler_rig rig;

    handler_rig_init(&rig);
    CHECK_INT(
        handler_exec_open(&(struct handler_exec_config){.program = {.command = " "}, .workers = 1},
                          &rig.loop, &handler, &err),
        IDEM_E_INVALID);
    CHECK_STR(err.text, "--exec: the command is empty");
    CHECK_INT(handler_exec_open(&(struct handler_exec_config){.program = {.command = "true"}},
                                &rig.loop, &handler, &err),
              IDEM_E_INVALID);
    CHECK_STR(err.text, "0 workers: there are 1 to 1024");
    memset(command, 'x', sizeof(command) - 1);
    CHECK_INT(handler_exec_open(
                  &(struct handler_exec_config){.program = {.command = command}, .workers = 1},
                  &rig.loop, &handler, &err),
              IDEM_E_INVALID);
    CHECK_HAS(err.text, "longer than the system takes");
    CHECK(handler.close == NULL);
    handler_close(&handler);
    handler_rig_close(&rig);
}

int main(int argc, char **argv) {
    test_at_a_time = 4; /* the tests wait more than they work */
    return test_main(argc, argv);
}
