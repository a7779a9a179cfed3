/*
 * Long-lived workers, against real ones: a script that does what the body says,
 * and others that do nothing right.
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

/* Does what the body says: a word, and what follows it. */
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

/* A handler that must be killed is killed soon; one that ends by itself has all the time it needs.
 */
static int64_t kill_after_ms = 600000;

static void open_command(struct hand *hand, unsigned workers, const char *command) {
    static char whole[4096];
    struct idem_error err;

    snprintf(whole, sizeof(whole), "cd %s && %s", temp_folder(), command);
    hand_init(hand);
    if (handler_jsonl_open(
            &(struct handler_jsonl_config){
                .program = {.command = whole, .kill_after_ms = kill_after_ms, .die_with = SIGTERM},
                .workers = workers,
            },
            &hand->loop, &hand->handler, &err) < 0) {
        fprintf(stderr, "# %s\n", err.text);
        exit(1);
    }
}

static void open_worker(struct hand *hand, unsigned workers) {
    file_write("worker.py", worker);
    open_command(hand, workers, "exec python3 -SE worker.py");
}

static int lines_in(const char *name) {
    char *text = file_read(name, NULL);
    int n = 0;

    for (const char *at = text; (at = strchr(at, '\n')) != NULL; at++)
        n++;
    free(text);
    return n;
}

/* Until a file has so many lines. */
static void wait_lines(struct hand *hand, const char *name, int n) {
    HAND_UNTIL(hand, lines_in(name) >= n);
}

static struct item *run_body(struct hand *hand, const char *body) {
    struct item *item = item_new(body);

    hand_run(hand, item);
    return item;
}

/* One that is answered, by whichever worker there is now. */
static void works(struct hand *hand) {
    struct item *item = run_body(hand, "hello");

    CHECK_SAID(item, QUEUE_DONE);
    CHECK_INT(item->said.status, 5);
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
    struct hand hand;

    open_worker(&hand, 1);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct item *item = run_body(&hand, rows[i].body);

        CHECK_SAID(item, rows[i].result);
        CHECK_INT(item->said.delay_ms, rows[i].delay_ms);
        CHECK_INT(item->said.status, rows[i].status);
        CHECK_STR(item->reason, rows[i].reason);
        free(item);
    }
    CHECK_INT(lines_in("starts"), 1);
    hand_close(&hand);
}

TEST(a_worker_is_asked_by_a_line_with_all_that_is_known) {
    struct item *item = item_new("keep {\"order\": 1}\n");
    struct hand hand;
    char *text;

    open_worker(&hand, 1);
    item_header(item, "X-A", "b");
    item_property(item, "message_id", "m-1");
    hand_run(&hand, item);
    CHECK_SAID(item, QUEUE_DONE);
    text = file_read("asked", NULL);
    CHECK_STR(text, "{\"id\":1,\"attempt\":3,\"key\":\"4711\",\"key_hash\":\"" HAND_HASH
                    "\",\"trace\":\"trace-1\",\"queue\":\"orders\",\"redelivered\":false,"
                    "\"headers\":{\"X-A\":\"b\"},\"properties\":{\"message_id\":\"m-1\"},"
                    "\"body\":\"keep {\\\"order\\\": 1}\\n\"}\n");
    free(text);
    free(item);
    hand_close(&hand);
}

TEST(who_says_anything_else_is_ended_and_its_message_unknown) {
    static const struct {
        const char *body, *why;
    } rows[] = {
        {"raw SECRET|", "the answer is no JSON"},
        {"raw |", "the answer is no JSON"},
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
    struct hand hand;

    open_worker(&hand, 1);
    works(&hand);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct item *item = run_body(&hand, rows[i].body);

        CHECK_SAID(item, QUEUE_UNKNOWN);
        CHECK_HAS(item->reason, rows[i].why);
        CHECK(strstr(item->reason, "SECRET") == NULL);
        free(item);
        works(&hand);
        CHECK_INT(lines_in("starts"), i + 2);
    }
    hand_close(&hand);
}

TEST(a_whole_answer_counts_though_its_worker_ends_with_it) {
    struct item *item;
    struct hand hand;

    open_worker(&hand, 1);
    item = run_body(&hand, "last");
    CHECK_SAID(item, QUEUE_DONE);
    free(item);
    works(&hand);
    CHECK_INT(lines_in("starts"), 2);
    hand_close(&hand);
}

TEST(who_answers_twice_is_ended_and_the_first_answer_counts) {
    struct item *item;
    struct hand hand;

    open_worker(&hand, 1);
    item = run_body(&hand, "raw {\"id\": ID, \"result\": \"dead\"}|{\"id\": ID, \"result\": "
                           "\"done\"}|");
    CHECK_SAID(item, QUEUE_REFUSED);
    free(item);
    works(&hand);
    CHECK_INT(lines_in("starts"), 2);
    hand_close(&hand);
}

TEST(who_speaks_unasked_is_ended) {
    struct hand hand;

    file_write("worker.py", worker);
    open_command(
        &hand, 1,
        /* sleep: until it is ended */
        "{ [ -e again ] || { touch again; echo ready; sleep 600; }; exec python3 -SE worker.py; "
        "}");
    wait_lines(&hand, "starts", 1);
    works(&hand);
    hand_close(&hand);
}

TEST(who_says_something_after_its_answer_is_ended) {
    static const char *const bodies[] = {"again", "mumble"};
    struct item *item;
    struct hand hand;

    open_worker(&hand, 1);
    for (int i = 0; i < 2; i++) {
        item = run_body(&hand, bodies[i]);
        CHECK_SAID(item, QUEUE_DONE);
        free(item);
        wait_lines(&hand, "starts", i + 2);
        works(&hand);
        CHECK_INT(lines_in("starts"), i + 2);
    }
    hand_close(&hand);
}

TEST(one_that_dies_idle_is_started_again) {
    struct hand hand;

    open_worker(&hand, 1);
    works(&hand);
    kill(file_number("starts"), SIGKILL);
    wait_lines(&hand, "starts", 2);
    works(&hand);
    CHECK_INT(lines_in("starts"), 2);
    hand_close(&hand);
}

TEST(what_a_dead_worker_never_read_goes_to_another) {
    struct hand hand;
    int pid;

    open_worker(&hand, 1);
    works(&hand);
    pid = file_number("starts");
    kill(pid, SIGKILL);
    WAIT_UNTIL(is_gone(pid));
    works(&hand); /* nobody has seen yet that it is dead */
    CHECK_INT(lines_in("starts"), 2);
    hand_close(&hand);
}

TEST(workers_that_die_at_their_start_are_started_ever_more_rarely) {
    struct item *item = item_new("x");
    int64_t began = idem_loop_now();
    struct hand hand;

    open_command(&hand, 1, "{ echo x >>starts; exit 3; }");
    hand_run(&hand, item);
    CHECK_SAID(item, QUEUE_UNBEGUN);
    CHECK_STR(item->reason, "the worker has ended before it read the message: exit status 3");
    wait_lines(&hand, "starts", 5); /* at 0, 100, 300, 700 and 1500 ms, or later */
    CHECK(idem_loop_now() - began >= 1500);
    free(item);
    hand_close(&hand);
}

TEST(workers_that_cannot_be_started_begin_nothing) {
    struct item *item = item_new("x");
    struct hand hand;

    open_worker(&hand, 2);
    fork_fails = true;
    hand_run(&hand, item);
    CHECK_SAID(item, QUEUE_UNBEGUN);
    CHECK_HAS(item->reason, "no worker can be started: Resource temporarily unavailable; it is "
                            "tried again in ");
    fork_fails = false;
    works(&hand);
    free(item);
    hand_close(&hand);
}

TEST(what_is_cancelled_ends_its_worker_and_its_group) {
    struct item *item = item_new("child");
    struct hand hand;
    int pid;

    open_worker(&hand, 1);
    hand_begin(&hand, item);
    wait_lines(&hand, "child", 1);
    pid = file_number("child");
    hand_cancel(&hand, item);
    hand_cancel(&hand, item);
    hand_wait(&hand, item);
    CHECK_SAID(item, QUEUE_UNKNOWN);
    CHECK_STR(item->reason,
              "the worker was made to end before it answered: ended by signal 15 (Terminated)");
    WAIT_UNTIL(is_gone(pid));
    works(&hand);
    CHECK_INT(lines_in("starts"), 2);
    free(item);
    hand_close(&hand);
}

/* Until the worker is at it. */
static void wait_busy(struct hand *hand) {
    wait_lines(hand, "busy", 1);
}

TEST(a_worker_that_ignores_the_request_to_end_is_killed) {
    struct item *item = item_new("stubborn");
    struct hand hand;
    int64_t since;

    kill_after_ms = 300;
    open_worker(&hand, 1);
    hand_begin(&hand, item);
    wait_busy(&hand);
    since = idem_loop_now();
    hand_cancel(&hand, item);
    hand_wait(&hand, item);
    CHECK(idem_loop_now() - since >= 290);
    CHECK_SAID(item, QUEUE_UNKNOWN);
    CHECK_HAS(item->reason, "ended by signal 9");
    free(item);
    hand_close(&hand);
}

TEST(what_is_answered_after_the_cancel_counts) {
    struct item *item = item_new("late");
    struct hand hand;

    open_worker(&hand, 1);
    hand_begin(&hand, item);
    wait_busy(&hand);
    hand_cancel(&hand, item);
    hand_wait(&hand, item);
    CHECK_SAID(item, QUEUE_DONE);
    works(&hand);
    free(item);
    hand_close(&hand);
}

TEST(what_no_worker_had_yet_was_not_begun) {
    struct item *item = item_new("x"), *late = item_new("x");
    struct hand hand;

    open_worker(&hand, 2);
    hand_begin(&hand, item);
    hand_cancel(&hand, item);
    late->work.not_after = idem_loop_now();
    hand_begin(&hand, late);
    hand_wait_all(&hand, 2);
    CHECK_SAID(item, QUEUE_UNBEGUN);
    CHECK_HAS(item->reason, "cancelled before a worker had it");
    CHECK_SAID(late, QUEUE_UNBEGUN);
    CHECK_HAS(late->reason, "the lease was over");
    works(&hand);
    free(item);
    free(late);
    hand_close(&hand);
}

TEST(a_worker_that_reads_nothing_has_not_begun) {
    static char body[1 << 20];
    struct item *item = item_of(body, sizeof(body));
    struct hand hand;

    memset(body, 'x', sizeof(body));
    open_command(&hand, 1, "exec sleep 600"); /* sleep: until it is ended */
    hand_begin(&hand, item);
    /* sleep: only time shows that it gets no report */
    hand_spin(&hand, 300);
    CHECK_INT(item->told, 0);
    hand_cancel(&hand, item);
    hand_wait(&hand, item);
    CHECK_SAID(item, QUEUE_UNBEGUN);
    CHECK_HAS(item->reason, "was made to end before it read the message");
    free(item);
    hand_close(&hand);
}

TEST(a_worker_that_reads_a_byte_may_have_begun) {
    struct item *item = item_new("x");
    struct hand hand;

    open_command(&hand, 1, "{ head -c 1 >/dev/null; exit 0; }");
    hand_run(&hand, item);
    CHECK_SAID(item, QUEUE_UNKNOWN);
    CHECK_HAS(item->reason, "has ended before it answered: exit status 0");
    free(item);
    hand_close(&hand);
}

TEST(bodies_of_any_size_are_read) {
    static char body[4 << 20];
    struct item *item;
    struct hand hand;

    memset(body, 'x', sizeof(body));
    open_worker(&hand, 1);
    item = item_of(body, sizeof(body));
    hand_run(&hand, item);
    CHECK_SAID(item, QUEUE_DONE);
    CHECK_INT(item->said.status, sizeof(body));
    free(item);
    item = item_of(NULL, 0);
    hand_run(&hand, item);
    CHECK_SAID(item, QUEUE_DONE);
    free(item);
    CHECK_INT(lines_in("starts"), 1);
    hand_close(&hand);
}

#define CROWD 400

TEST(many_messages_go_through_few_workers) {
    static struct item *items[CROWD];
    static char bodies[CROWD][64];
    struct hand hand;
    int begun = 0;

    open_worker(&hand, 6);
    while (hand.told < CROWD) { /* TEST_LIMIT_S ends it */
        while (begun < CROWD && begun - hand.told < 6) {
            snprintf(bodies[begun], sizeof(bodies[0]), "say \"result\": \"done\", \"status\": %d",
                     begun);
            items[begun] = item_new(bodies[begun]);
            hand_begin(&hand, items[begun++]);
        }
        hand_turn(&hand, 1000);
    }
    CHECK_INT(hand.told, CROWD);
    for (int i = 0; i < CROWD; i++) {
        CHECK_INT(items[i]->told, 1);
        CHECK_SAID(items[i], QUEUE_DONE);
        CHECK_INT(items[i]->said.status, i);
        free(items[i]);
    }
    CHECK_INT(lines_in("starts"), 6);
    hand_close(&hand);
}

TEST(closing_lets_workers_end_by_themselves) {
    struct hand hand;

    /* Not by a signal. */
    open_command(
        &hand, 3,
        "{ trap '' TERM; echo x >>starts; while read -r line; do :; done; echo x >>ends; }");
    wait_lines(&hand, "starts", 3);
    hand_close(&hand);
    CHECK_INT(lines_in("ends"), 3);
}

TEST(closing_ends_workers_that_do_not) {
    struct item *item = item_new("stubborn");
    struct hand hand;
    int64_t since;
    int pid;

    kill_after_ms = 300;
    open_worker(&hand, 1);
    hand_begin(&hand, item);
    wait_busy(&hand);
    pid = file_number("starts");
    since = idem_loop_now();
    hand_close(&hand);
    CHECK(idem_loop_now() - since >= 1290);
    WAIT_UNTIL(is_gone(pid)); /* SIGKILL takes a moment */
    CHECK_INT(item->told, 0);
    free(item);
}

TEST(workers_die_with_us) {
    struct hand hand;
    pid_t us;
    int pid;

    (void)temp_folder();
    us = __real_fork();
    CHECK(us >= 0);
    if (us == 0) {
        temp_owner = getpid();                                       /* in the same folder */
        open_command(&hand, 1, "{ echo $$ >pid; exec sleep 600; }"); /* sleep: until it is ended */
        hand_spin(&hand, TEST_LIMIT_S * 1000);                       /* it is killed */
        _exit(1);
    }
    pid = file_number("pid");
    CHECK(!is_gone(pid));
    kill(us, SIGKILL);
    WAIT_UNTIL(is_gone(pid));
    CHECK_INT(waitpid(us, NULL, 0), us);
}

TEST(what_workers_say_to_people_is_passed_on) {
    struct hand hand;
    int fd = open(path_of("said"), O_WRONLY | O_CREAT | O_APPEND, 0600), old = dup(2);
    char *text;

    CHECK(fd >= 0 && dup2(fd, 2) == 2);
    file_write("worker.py", worker);
    open_command(&hand, 1, "{ echo hello people >&2; exec python3 -SE worker.py; }");
    works(&hand);
    hand_close(&hand);
    CHECK(dup2(old, 2) == 2);
    text = file_read("said", NULL);
    CHECK_STR(text, "hello people\n");
    free(text);
}

int main(int argc, char **argv) {
    test_at_a_time = 4; /* they wait more than they work */
    return test_main(argc, argv);
}
