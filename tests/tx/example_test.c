/*
 * The examples: 64 processes at once send each the same command. The work is
 * done once, and all of them get the first result. Then the example of their
 * README. IDEM_EXAMPLES is the directory of the examples, IDEM_README the page.
 */
#include <fcntl.h>

#include "db.h"
#include "temp.h"
#include "test.h"

#define CROWD 64
#define FEW 16 /* for commands that differ a little */
#define LINE_MAX_LEN 400

/* Programs. */

static void become(const char *name, char *const *argv, const char *out) {
    char path[600];
    int fd = open(out, O_WRONLY | O_CREAT | O_TRUNC, 0600);

    snprintf(path, sizeof(path), "%s/%s", getenv("IDEM_EXAMPLES"), name);
    dup2(fd, 1);
    dup2(fd, 2);
    execv(path, argv);
    _exit(127);
}

/* Splits the command at blanks. */
static void words_of(char *text, char **argv, size_t max) {
    size_t n = 0;

    for (char *word; n < max - 1 && (word = strsep(&text, " ")) != NULL;)
        argv[n++] = word;
    argv[n] = NULL;
}

struct crowd {
    int n;
    pid_t pids[CROWD];
    char outs[CROWD][300];
};

/* A child that waits for the others before it runs its command. */
static void crowd_join(struct crowd *crowd, int i, const char *command, const int gate[2]) {
    char text[LINE_MAX_LEN], *argv[10], byte;

    snprintf(crowd->outs[i], sizeof(crowd->outs[i]), "%s/out.%d", temp_folder(), i);
    fflush(NULL);
    crowd->pids[i] = fork();
    CHECK(crowd->pids[i] >= 0);
    if (crowd->pids[i] > 0)
        return;
    alarm(TEST_LIMIT_S);
    close(gate[1]); /* so that only the parent has it open */
    snprintf(text, sizeof(text), "%s", command);
    words_of(text, argv, 10);
    if (read(gate[0], &byte, 1) == 0)
        become(argv[0], argv, crowd->outs[i]);
    _exit(126);
}

static void line_read(const char *path, char *line, size_t size) {
    FILE *file = fopen(path, "r");
    size_t n;

    CHECK(file != NULL);
    n = fread(line, 1, size - 1, file);
    fclose(file);
    line[n] = '\0';
    line[strcspn(line, "\n")] = '\0';
}

/* Runs `turns` commands in turn, n processes of them at once; all must end with 0 or 1. */
static void crowd_run(struct crowd *crowd, int n, const char *const *commands, int turns) {
    int gate[2], status;

    crowd->n = n;
    CHECK(pipe2(gate, O_CLOEXEC) == 0);
    for (int i = 0; i < crowd->n; i++)
        crowd_join(crowd, i, commands[i % turns], gate);
    close(gate[0]);
    close(gate[1]); /* starts all of them */
    for (int i = 0; i < crowd->n; i++) {
        char line[LINE_MAX_LEN];

        CHECK(waitpid(crowd->pids[i], &status, 0) == crowd->pids[i]);
        line_read(crowd->outs[i], line, sizeof(line));
        if (!WIFEXITED(status) || WEXITSTATUS(status) > 1)
            fprintf(stderr, "# %s: %s\n", commands[i % turns], line);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) <= 1);
    }
}

/* Checks the results: one is the first, `duplicates` have the same result, the others were
 * refused. */
static void crowd_judge(const struct crowd *crowd, int duplicates, char *result, size_t size) {
    int first = 0, again = 0, refused = 0;
    char line[LINE_MAX_LEN];

    result[0] = '\0';
    for (int i = 0; i < crowd->n; i++) {
        line_read(crowd->outs[i], line, sizeof(line));
        if (strncmp(line, "first: ", 7) == 0 && ++first)
            snprintf(result, size, "%s", line + 7);
    }
    CHECK_INT(first, 1);
    for (int i = 0; i < crowd->n; i++) {
        line_read(crowd->outs[i], line, sizeof(line));
        again += strncmp(line, "duplicate: ", 11) == 0 && strcmp(line + 11, result) == 0;
        refused += strncmp(line, "refused: ", 9) == 0;
        if (strncmp(line, "first: ", 7) != 0 && strncmp(line, "refused: ", 9) != 0)
            CHECK_STR(strchr(line, ' ') + 1, result);
    }
    CHECK_INT(again, duplicates);
    CHECK_INT(1 + again + refused, crowd->n);
}

static void run_once(const char *command) {
    char text[LINE_MAX_LEN], out[300], *argv[10];
    int status;
    pid_t pid;

    snprintf(text, sizeof(text), "%s", command);
    snprintf(out, sizeof(out), "%s/out", temp_folder());
    words_of(text, argv, 10);
    fflush(NULL);
    pid = fork();
    if (pid == 0)
        become(argv[0], argv, out);
    CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static struct idem_sql begin(const char *init) {
    struct idem_sql conn;
    char url[1000];

    db_url(url, sizeof(url));
    setenv("IDEM_EXAMPLE_DB", url, 1);
    run_once(init);
    conn = db_open(NULL);
    db_do(conn, "DELETE FROM idem_tx"); /* those of the test before */
    return conn;
}

/* The examples. */

TEST(a_transfer_that_64_ask_for_is_done_once) {
    static const char *const same[] = {"transfer T-1 1 2 100"};
    static const char *const mixed[] = {"transfer T-2 1 2 100", "transfer T-2 1 2 100",
                                        "transfer T-2 1 2 101", "transfer T-2 1 2 100"};
    struct idem_sql conn = begin("transfer init");
    static struct crowd crowd;
    char result[LINE_MAX_LEN];

    crowd_run(&crowd, CROWD, same, 1);
    crowd_judge(&crowd, CROWD - 1, result, sizeof(result));
    CHECK_STR(result, "100 from 1 to 2, 900 left");
    CHECK_INT(db_ask(conn, "SELECT balance FROM account WHERE id = 1"), 900);
    CHECK_INT(db_ask(conn, "SELECT balance FROM account WHERE id = 2"), 1100);
    /* With two amounts under one key the first one counts. */
    crowd_run(&crowd, FEW, mixed, 4);
    crowd_judge(&crowd,
                db_ask(conn, "SELECT balance FROM account WHERE id = 1") == 800 ? FEW / 4 * 3 - 1
                                                                                : FEW / 4 - 1,
                result, sizeof(result));
    CHECK_INT(db_ask(conn, "SELECT sum(balance) FROM account"), 10000);
    CHECK_INT(db_ask(conn, "SELECT count(*) FROM idem_tx"), 2);
    db_close(conn);
}

TEST(stock_that_64_take_for_one_order_is_taken_once) {
    static const char *const same[] = {"stock take K 1 30"};
    static const char *const others[] = {"stock take A 1 30", "stock take B 1 30",
                                         "stock take C 1 30", "stock take D 1 30"};
    struct idem_sql conn = begin("stock init");
    static struct crowd crowd;
    char result[LINE_MAX_LEN], line[LINE_MAX_LEN];
    int first = 0, again = 0;

    crowd_run(&crowd, CROWD, same, 1);
    crowd_judge(&crowd, CROWD - 1, result, sizeof(result));
    CHECK_STR(result, "30 of item 1");
    CHECK_INT(db_ask(conn, "SELECT pieces FROM stock"), 70);
    /* Two of the four orders can be filled. */
    crowd_run(&crowd, FEW, others, 4);
    for (int i = 0; i < FEW; i++) {
        line_read(crowd.outs[i], line, sizeof(line));
        first += strcmp(line, "first: 30 of item 1") == 0;
        again += strcmp(line, "duplicate: 30 of item 1") == 0;
    }
    CHECK_INT(first, 2);
    CHECK_INT(db_ask(conn, "SELECT pieces FROM stock"), 10);
    CHECK_INT(db_ask(conn, "SELECT count(*) FROM idem_tx WHERE status IS NOT NULL"), 3);
    CHECK_INT(again, FEW / 4 * 2 - 2);
    db_close(conn);
}

TEST(an_order_that_64_pay_is_paid_once) {
    static const char *const same[] = {"payment pay P-1 1"};
    static const char *const rivals[] = {"payment pay Q-1 2", "payment pay Q-2 2",
                                         "payment pay Q-3 2", "payment pay Q-4 2"};
    struct idem_sql conn = begin("payment init");
    static struct crowd crowd;
    char result[LINE_MAX_LEN];

    crowd_run(&crowd, CROWD, same, 1);
    crowd_judge(&crowd, CROWD - 1, result, sizeof(result));
    CHECK_STR(result, "order 1, 250 paid");
    CHECK_INT(db_ask(conn, "SELECT sum(amount) FROM ledger"), 250);
    /* Of four payments for one order, one succeeds. */
    crowd_run(&crowd, FEW, rivals, 4);
    crowd_judge(&crowd, FEW / 4 - 1, result, sizeof(result));
    CHECK_INT(db_ask(conn, "SELECT sum(amount) FROM ledger"), 500);
    CHECK_INT(db_ask(conn, "SELECT count(*) FROM orders WHERE state = 'paid'"), 2);
    db_close(conn);
}

TEST(a_person_who_votes_64_times_has_one_vote) {
    static const char *const both[] = {"vote cast ann tea", "vote cast ann coffee"};
    struct idem_sql conn = begin("vote init");
    static struct crowd crowd;
    char result[LINE_MAX_LEN];

    crowd_run(&crowd, CROWD, both, 2);
    crowd_judge(&crowd, CROWD - 1, result, sizeof(result));
    CHECK_INT(db_ask(conn, "SELECT count(*) FROM vote"), 1);
    CHECK_INT(db_askf(conn, "SELECT count(*) FROM vote WHERE choice = '%s'", result), 1);
    run_once("vote cast Ann tea"); /* another voter */
    CHECK_INT(db_ask(conn, "SELECT count(*) FROM vote"), 2);
    db_close(conn);
}

/* The page. */

static bool output_matches(const char *command, FILE *page) {
    char full[LINE_MAX_LEN + 600], want[LINE_MAX_LEN], got[LINE_MAX_LEN];
    FILE *out;
    bool same = true;

    snprintf(full, sizeof(full), "PATH=%s:$PATH; %s 2>&1", getenv("IDEM_EXAMPLES"), command);
    out = popen(full, "r");
    CHECK(out != NULL);
    while (same && fgets(got, sizeof(got), out) != NULL)
        same = fgets(want, sizeof(want), page) != NULL && strcmp(got, want) == 0;
    pclose(out);
    if (!same)
        fprintf(stderr, "# $ %s\n# %s# instead of: %s", command, got, want);
    return same;
}

/* On SQLite, as a reader of the page would do it. */
TEST(the_readme_shows_what_happens) {
    FILE *page = fopen(getenv("IDEM_README"), "r");
    char line[LINE_MAX_LEN];
    int commands = 0;

    CHECK(page != NULL);
    unsetenv("IDEM_EXAMPLE_DB");
    CHECK_INT(chdir(temp_folder()), 0);
    while (db_kind == IDEM_SQL_SQLITE && fgets(line, sizeof(line), page) != NULL) {
        if (strncmp(line, "$ ", 2) != 0)
            continue;
        line[strcspn(line, "\n")] = '\0';
        CHECK(output_matches(line + 2, page));
        commands++;
    }
    CHECK(db_kind != IDEM_SQL_SQLITE || commands > 20);
    fclose(page);
}

DB_MAIN
