/*
 * Long-lived workers, with real processes: a script that acts on the body, and
 * others that do nothing right.
 */
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

/* Acts on the body: a word, and its arguments. */
static const char worker[] =
    "import json, os, signal, sys, time\n"
    "def say(**answer):\n"
    "    sys.stdout.write(json.dumps(answer) + '\\n')\n"
    "    sys.stdout.flush()\n"
    "def raw(text):\n"
    "    sys.stdout.write(text)\n"
    "    sys.stdout.flush()\n"
    "open('starts', 'a').write('%d\\n' % os.getpid())\n"
    "while True:\n"
    "    line = sys.stdin.readline()\n"
    "    if not line:\n"
    "        break\n"
    "    asked = json.loads(line)\n"
    "    n, body = asked['id'], asked.get('body', '')\n"
    "    word, _, rest = body.partition(' ')\n"
    "    if word == 'say':\n"
    "        raw('{\"id\": %d, %s}\\n' % (n, rest))\n"
    "    elif word == 'raw':\n"
    "        raw(rest.replace('ID', str(n)).replace('|', '\\n'))\n"
    "    elif word == 'long':\n"
    "        raw('x' * int(rest))\n"
    "    elif word == 'die':\n"
    "        os._exit(int(rest))\n"
    "    elif word == 'last':\n"
    "        say(id=n, result='done'); os._exit(3)\n"
    "    elif word == 'again':\n"
    "        say(id=n, result='done'); time.sleep(0.2)  # sleep: apart\n"
    "        say(id=n, result='done')\n"
    "    elif word == 'mumble':\n"
    "        say(id=n, result='done'); time.sleep(0.2)  # sleep: apart\n"
    "        raw('{')\n"
    "    elif word == 'half':\n"
    "        raw('{\"id\": %d, \"res' % n); os._exit(0)\n"
    "    elif word == 'segv':\n"
    "        os.kill(os.getpid(), signal.SIGSEGV)\n"
    "    elif word == 'deaf':\n"
    "        os.close(1); signal.pause()\n"
    "    elif word == 'child':\n"
    "        child = os.fork()\n"
    "        if child == 0:\n"
    "            signal.signal(signal.SIGTERM, signal.SIG_IGN); signal.pause()\n"
    "        open('child', 'w').write('%d\\n' % child); signal.pause()\n"
    "    elif word == 'stubborn':\n"
    "        signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    "        open('busy', 'w').write('1\\n'); signal.pause()\n"
    "    elif word == 'late':\n"
    "        def end(*_):\n"
    "            say(id=n, result='done'); os._exit(0)\n"
    "        signal.signal(signal.SIGTERM, end)\n"
    "        open('busy', 'w').write('1\\n'); signal.pause()\n"
    "    elif word == 'keep':\n"
    "        open('asked', 'w').write(line); say(id=n, result='done')\n"
    "    else:\n"
    "        say(id=n, result='done', status=len(body))\n"
    "open('ends', 'a').write('%d\\n' % os.getpid())\n";

/* A handler that must be killed is killed soon; one that ends by itself has all the time that it
 * needs. */
static int64_t kill_after_ms = 600000;

static void open_command(struct handler_rig *rig, unsigned workers, const char *command) {
    static char whole[4096];
    struct idem_error err;

    snprintf(whole, sizeof(whole), "cd %s && %s", temp_folder(), command);
    handler_rig_init(rig);
    if (handler_jsonl_open(
            &(struct handler_jsonl_config){
                .program = {.command = whole, .kill_after_ms = kill_after_ms, .die_with = SIGTERM},
                .workers = workers,
            },
            &rig->loop, &rig->handler, &err) < 0) {
        fprintf(stderr, "# %s\n", err.text);
        exit(1);
    }
}

static void open_worker(struct handler_rig *rig, unsigned workers) {
    file_write("worker.py", worker);
    open_command(rig, workers, "exec python3 -SE worker.py");
}

static int lines_in(const char *name) {
    char *text = file_read(name, NULL);
    int n = 0;

    for (const char *at = text; (at = strchr(at, '\n')) != NULL; at++)
        n++;
    free(text);
    return n;
}

/* Turns the loop until a file has `n` lines. */
static void wait_lines(struct handler_rig *rig, const char *name, int n) {
    HANDLER_RIG_UNTIL(rig, lines_in(name) >= n);
}

static struct item *run_body(struct handler_rig *rig, const char *body) {
    struct item *item = item_new(body);

    handler_rig_run(rig, item);
    return item;
}

/* A message that succeeds, in whichever worker runs now. */
static void works(struct handler_rig *rig) {
    struct item *item = run_body(rig, "hello");

    CHECK_SAID(item, QUEUE_DONE);
    CHECK_INT(item->outcome.status, 5);
    free(item);
}

TEST(an_answer_is_what_came_of_it) {
    static const struct {
        const char *body;
        enum queue_result result;
        int64_t delay_ms;
        int status;
        const char *reason;
    } rows[] = {
        {"say \"result\": \"done\"", QUEUE_DONE, 0, 0, ""},
        {"say \"result\": \"retry\"", QUEUE_RETRY, 0, 0, ""},
        {"say \"result\": \"retry\", \"delay\": \"30s\", \"status\": 503, \"reason\": \"later\"",
         QUEUE_RETRY, 30000, 503, "later"},
        {"say \"result\": \"retry\", \"delay\": 1.5", QUEUE_RETRY, 1500, 0, ""},
        {"say \"result\": \"dead\", \"reason\": \"no such order\"", QUEUE_REFUSED, 0, 0,
         "no such order"},
        {"say \"result\": \"unknown\"", QUEUE_UNKNOWN, 0, 0, ""},
    };
    struct handler_rig rig;

    open_worker(&rig, 1);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct item *item = run_body(&rig, rows[i].body);

        CHECK_SAID(item, rows[i].result);
        CHECK_INT(item->outcome.delay_ms, rows[i].delay_ms);
        CHECK_INT(item->outcome.status, rows[i].status);
        CHECK_STR(item->reason, rows[i].reason);
        free(item);
    }
    CHECK_INT(lines_in("starts"), 1);
    handler_rig_close(&rig);
}

TEST(a_worker_is_asked_by_a_line_with_all_that_is_known) {
    struct item *item = item_new("keep {\"order\": 1}\n");
    struct handler_rig rig;
    char *text;

    open_worker(&rig, 1);
    item_header(item, "X-A", "b");
    item_property(item, "message_id", "m-1");
    handler_rig_run(&rig, item);
    CHECK_SAID(item, QUEUE_DONE);
    text = file_read("asked", NULL);
    CHECK_STR(text, "{\"id\":1,\"attempt\":3,\"key\":\"4711\",\"key_hash\":\"" HANDLER_RIG_HASH
                    "\",\"trace\":\"trace-1\",\"queue\":\"orders\",\"redelivered\":false,"
                    "\"headers\":{\"X-A\":\"b\"},\"properties\":{\"message_id\":\"m-1\"},"
                    "\"body\":\"keep {\\\"order\\\": 1}\\n\"}\n");
    free(text);
    free(item);
    handler_rig_close(&rig);
}

TEST(who_says_anything_else_is_ended_and_its_message_unknown) {
    static const struct {
        const char *body, *why;
    } rows[] = {
        {"raw SECRET|", "the response is no JSON"},
        {"raw |", "the response is no JSON"},
        {"raw {\"id\": 99999, \"result\": \"done\"}|", "another \"id\""},
        {"raw {\"id\": ID, \"result\": \"SECRET\"}|", "is not done, retry, dead or unknown"},
        {"long 65537", "longer than 65536 bytes"},
        {"long 400000", "longer than 65536 bytes"},
        {"die 3", "the worker has ended before it answered: exit status 3"},
        {"die 0", "the worker has ended before it answered: exit status 0"},
        {"half", "the worker has ended before it answered: exit status 0"},
        {"segv", "the worker has ended before it answered: ended by signal 11"},
        {"deaf", "it had closed its stdout"},
    };
    struct handler_rig rig;

    open_worker(&rig, 1);
    works(&rig);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct item *item = run_body(&rig, rows[i].body);

        CHECK_SAID(item, QUEUE_UNKNOWN);
        CHECK_HAS(item->reason, rows[i].why);
        CHECK(strstr(item->reason, "SECRET") == NULL);
        free(item);
        works(&rig);
        CHECK_INT(lines_in("starts"), i + 2);
    }
    handler_rig_close(&rig);
}

TEST(a_whole_answer_counts_though_its_worker_ends_with_it) {
    struct item *item;
    struct handler_rig rig;

    open_worker(&rig, 1);
    item = run_body(&rig, "last");
    CHECK_SAID(item, QUEUE_DONE);
    free(item);
    works(&rig);
    CHECK_INT(lines_in("starts"), 2);
    handler_rig_close(&rig);
}

TEST(who_answers_twice_is_ended_and_the_first_answer_counts) {
    struct item *item;
    struct handler_rig rig;

    open_worker(&rig, 1);
    item = run_body(&rig, "raw {\"id\": ID, \"result\": \"dead\"}|{\"id\": ID, \"result\": "
                          "\"done\"}|");
    CHECK_SAID(item, QUEUE_REFUSED);
    free(item);
    works(&rig);
    CHECK_INT(lines_in("starts"), 2);
    handler_rig_close(&rig);
}

TEST(who_speaks_unasked_is_ended) {
    struct handler_rig rig;

    file_write("worker.py", worker);
    open_command(
        &rig, 1,
        /* sleep: until it is ended */
        "{ [ -e again ] || { touch again; echo ready; sleep 600; }; exec python3 -SE worker.py; "
        "}");
    wait_lines(&rig, "starts", 1);
    works(&rig);
    handler_rig_close(&rig);
}

TEST(who_says_something_after_its_answer_is_ended) {
    static const char *const bodies[] = {"again", "mumble"};
    struct item *item;
    struct handler_rig rig;

    open_worker(&rig, 1);
    for (int i = 0; i < 2; i++) {
        item = run_body(&rig, bodies[i]);
        CHECK_SAID(item, QUEUE_DONE);
        free(item);
        wait_lines(&rig, "starts", i + 2);
        works(&rig);
        CHECK_INT(lines_in("starts"), i + 2);
    }
    handler_rig_close(&rig);
}

TEST(one_that_dies_idle_is_started_again) {
    struct handler_rig rig;

    open_worker(&rig, 1);
    works(&rig);
    kill(file_number("starts"), SIGKILL);
    wait_lines(&rig, "starts", 2);
    works(&rig);
    CHECK_INT(lines_in("starts"), 2);
    handler_rig_close(&rig);
}

TEST(what_a_dead_worker_never_read_goes_to_another) {
    struct handler_rig rig;
    int pid;

    open_worker(&rig, 1);
    works(&rig);
    pid = file_number("starts");
    kill(pid, SIGKILL);
    WAIT_UNTIL(is_gone(pid));
    works(&rig); /* its death is not noticed yet */
    CHECK_INT(lines_in("starts"), 2);
    handler_rig_close(&rig);
}

TEST(workers_that_die_at_their_start_are_started_ever_more_rarely) {
    struct item *item = item_new("x");
    int64_t began = idem_loop_now();
    struct handler_rig rig;

    open_command(&rig, 1, "{ echo x >>starts; exit 3; }");
    handler_rig_run(&rig, item);
    CHECK_SAID(item, QUEUE_UNBEGUN);
    CHECK_STR(item->reason, "the worker has ended before it read the message: exit status 3");
    wait_lines(&rig, "starts", 5); /* at 0, 100, 300, 700 and 1500 ms, or later */
    CHECK(idem_loop_now() - began >= 1500);
    free(item);
    handler_rig_close(&rig);
}

TEST(workers_that_cannot_be_started_begin_nothing) {
    struct item *item = item_new("x");
    struct handler_rig rig;

    open_worker(&rig, 2);
    fork_fails = true;
    handler_rig_run(&rig, item);
    CHECK_SAID(item, QUEUE_UNBEGUN);
    CHECK_HAS(item->reason, "no worker can be started: Resource temporarily unavailable; it is "
                            "tried again in ");
    fork_fails = false;
    works(&rig);
    free(item);
    handler_rig_close(&rig);
}

TEST(what_is_cancelled_ends_its_worker_and_its_group) {
    struct item *item = item_new("child");
    struct handler_rig rig;
    int pid;

    open_worker(&rig, 1);
    handler_rig_begin(&rig, item);
    wait_lines(&rig, "child", 1);
    pid = file_number("child");
    handler_rig_cancel(&rig, item);
    handler_rig_cancel(&rig, item);
    handler_rig_wait(&rig, item);
    CHECK_SAID(item, QUEUE_UNKNOWN);
    CHECK_STR(item->reason,
              "the worker was made to end before it answered: ended by signal 15 (Terminated)");
    WAIT_UNTIL(is_gone(pid));
    works(&rig);
    CHECK_INT(lines_in("starts"), 2);
    free(item);
    handler_rig_close(&rig);
}

/* Turns the loop until the worker has the request. */
static void wait_busy(struct handler_rig *rig) {
    wait_lines(rig, "busy", 1);
}

TEST(a_worker_that_ignores_the_request_to_end_is_killed) {
    struct item *item = item_new("stubborn");
    struct handler_rig rig;
    int64_t since;

    kill_after_ms = 300;
    open_worker(&rig, 1);
    handler_rig_begin(&rig, item);
    wait_busy(&rig);
    since = idem_loop_now();
    handler_rig_cancel(&rig, item);
    handler_rig_wait(&rig, item);
    CHECK(idem_loop_now() - since >= 290);
    CHECK_SAID(item, QUEUE_UNKNOWN);
    CHECK_HAS(item->reason, "ended by signal 9");
    free(item);
    handler_rig_close(&rig);
}

TEST(what_is_answered_after_the_cancel_counts) {
    struct item *item = item_new("late");
    struct handler_rig rig;

    open_worker(&rig, 1);
    handler_rig_begin(&rig, item);
    wait_busy(&rig);
    handler_rig_cancel(&rig, item);
    handler_rig_wait(&rig, item);
    CHECK_SAID(item, QUEUE_DONE);
    works(&rig);
    free(item);
    handler_rig_close(&rig);
}

TEST(what_no_worker_had_yet_was_not_begun) {
    struct item *item = item_new("x"), *late = item_new("x");
    struct handler_rig rig;

    open_worker(&rig, 2);
    handler_rig_begin(&rig, item);
    handler_rig_cancel(&rig, item);
    late->run.not_after = idem_loop_now();
    handler_rig_begin(&rig, late);
    handler_rig_wait_all(&rig, 2);
    CHECK_SAID(item, QUEUE_UNBEGUN);
    CHECK_HAS(item->reason, "cancelled before a worker had it");
    CHECK_SAID(late, QUEUE_UNBEGUN);
    CHECK_HAS(late->reason, "the lease was over");
    works(&rig);
    free(item);
    free(late);
    handler_rig_close(&rig);
}

TEST(a_worker_that_reads_nothing_has_not_begun) {
    static char body[1 << 20];
    struct item *item = item_of(body, sizeof(body));
    struct handler_rig rig;

    memset(body, 'x', sizeof(body));
    open_command(&rig, 1, "exec sleep 600"); /* sleep: until it is ended */
    handler_rig_begin(&rig, item);
    /* sleep: only time shows that it gets no report */
    handler_rig_spin(&rig, 300);
    CHECK_INT(item->reports, 0);
    handler_rig_cancel(&rig, item);
    handler_rig_wait(&rig, item);
    CHECK_SAID(item, QUEUE_UNBEGUN);
    CHECK_HAS(item->reason, "was made to end before it read the message");
    free(item);
    handler_rig_close(&rig);
}

TEST(a_worker_that_reads_a_byte_may_have_begun) {
    struct item *item = item_new("x");
    struct handler_rig rig;

    open_command(&rig, 1, "{ head -c 1 >/dev/null; exit 0; }");
    handler_rig_run(&rig, item);
    CHECK_SAID(item, QUEUE_UNKNOWN);
    CHECK_HAS(item->reason, "has ended before it answered: exit status 0");
    free(item);
    handler_rig_close(&rig);
}

TEST(bodies_of_any_size_are_read) {
    static char body[4 << 20];
    struct item *item;
    struct handler_rig rig;

    memset(body, 'x', sizeof(body));
    open_worker(&rig, 1);
    item = item_of(body, sizeof(body));
    handler_rig_run(&rig, item);
    CHECK_SAID(item, QUEUE_DONE);
    CHECK_INT(item->outcome.status, sizeof(body));
    free(item);
    item = item_of(NULL, 0);
    handler_rig_run(&rig, item);
    CHECK_SAID(item, QUEUE_DONE);
    free(item);
    CHECK_INT(lines_in("starts"), 1);
    handler_rig_close(&rig);
}

#define CROWD 400

TEST(many_messages_go_through_few_workers) {
    static struct item *items[CROWD];
    static char bodies[CROWD][64];
    struct handler_rig rig;
    int begun = 0;

    open_worker(&rig, 6);
    while (rig.reports < CROWD) { /* the test's time limit ends it */
        while (begun < CROWD && begun - rig.reports < 6) {
            snprintf(bodies[begun], sizeof(bodies[0]), "say \"result\": \"done\", \"status\": %d",
                     begun);
            items[begun] = item_new(bodies[begun]);
            handler_rig_begin(&rig, items[begun++]);
        }
        handler_rig_turn(&rig, 1000);
    }
    CHECK_INT(rig.reports, CROWD);
    for (int i = 0; i < CROWD; i++) {
        CHECK_INT(items[i]->reports, 1);
        CHECK_SAID(items[i], QUEUE_DONE);
        CHECK_INT(items[i]->outcome.status, i);
        free(items[i]);
    }
    CHECK_INT(lines_in("starts"), 6);
    handler_rig_close(&rig);
}

TEST(closing_lets_workers_end_by_themselves) {
    struct handler_rig rig;

    /* The worker ends at the end of its input, not by a signal. */
    open_command(
        &rig, 3,
        "{ trap '' TERM; echo x >>starts; while read -r line; do :; done; echo x >>ends; }");
    wait_lines(&rig, "starts", 3);
    handler_rig_close(&rig);
    CHECK_INT(lines_in("ends"), 3);
}

TEST(closing_ends_workers_that_do_not) {
    struct item *item = item_new("stubborn");
    struct handler_rig rig;
    int64_t since;
    int pid;

    kill_after_ms = 300;
    open_worker(&rig, 1);
    handler_rig_begin(&rig, item);
    wait_busy(&rig);
    pid = file_number("starts");
    since = idem_loop_now();
    handler_rig_close(&rig);
    CHECK(idem_loop_now() - since >= 1290);
    WAIT_UNTIL(is_gone(pid)); /* SIGKILL takes a moment */
    CHECK_INT(item->reports, 0);
    free(item);
}

TEST(workers_die_with_us) {
    struct handler_rig rig;
    pid_t us;
    int pid;

    (void)temp_folder();
    us = __real_fork();
    CHECK(us >= 0);
    if (us == 0) {
        temp_owner = getpid();                                      /* in the same directory */
        open_command(&rig, 1, "{ echo $$ >pid; exec sleep 600; }"); /* sleep: until it is ended */
        handler_rig_spin(&rig, TEST_LIMIT_S * 1000);                /* it is killed */
        _exit(1);
    }
    pid = file_number("pid");
    CHECK(!is_gone(pid));
    kill(us, SIGKILL);
    WAIT_UNTIL(is_gone(pid));
    CHECK_INT(waitpid(us, NULL, 0), us);
}

TEST(what_workers_say_to_people_is_passed_on) {
    struct handler_rig rig;
    int fd = open(path_of("said"), O_WRONLY | O_CREAT | O_APPEND, 0600), old = dup(2);
    char *text;

    CHECK(fd >= 0 && dup2(fd, 2) == 2);
    file_write("worker.py", worker);
    open_command(&rig, 1, "{ echo hello people >&2; exec python3 -SE worker.py; }");
    works(&rig);
    handler_rig_close(&rig);
    CHECK(dup2(old, 2) == 2);
    text = file_read("said", NULL);
    CHECK_STR(text, "hello people\n");
    free(text);
}

int main(int argc, char **argv) {
    test_at_a_time = 4; /* the tests wait more than they work */
    return test_main(argc, argv);
}
