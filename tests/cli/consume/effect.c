/*
 * A handler for tests of `idem consume`, whose effect and whose guard are one
 * transaction (docs/sql.md).
 *
 *     queue-effect make DATABASE             makes the table of effects
 *     queue-effect once DATABASE             --exec: the message of IDEM_KEY
 *     queue-effect lines DATABASE HISTORY    --exec-jsonl: a message per line
 *     queue-effect list DATABASE             the effects: TIME OWNER KEY ATTEMPT
 *
 * HISTORY is a log of tests/model/history.h: each run writes a line there when it begins and when
 * it ends, and its effect is a row of the database. Without a DATABASE ("-") the effect is a line
 * of the log, without a guard. The key chooses the result: a key with ".retry" fails at its first
 * attempt, one with ".dead" always. A worker takes some time before and after its effect, so that a
 * kill can hit it at any point. On a message that it cannot read, or a failure of the database, the
 * handler exits.
 */
#include <err.h>
#include <idem.h>
#include <inttypes.h>
#include <sqlite3.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "model/history.h"
#include "json/json.h"

#define MESSAGE_MAX ((size_t)1 << 20)
#define PAUSE_MAX_US 12000

static const struct idem_policy policy = {.prefix = "effect:", .scope = IDEM_SCOPE_NONE};

struct work {
    sqlite3 *db; /* NULL: without a guard */
    struct idem_guard *guard;
    int history; /* -1: none */
    char owner[32];
    char key[256], hash[80];
    int64_t id;
    uint32_t attempt;
};

static const char *const results[] = {"done", "retry", "dead"};
enum { DONE, RETRY, DEAD };

/* The database. */

static void database_open(struct work *work, const char *path) {
    struct idem_error error;

    if (sqlite3_open(path, &work->db) != SQLITE_OK)
        errx(1, "%s", sqlite3_errmsg(work->db));
    sqlite3_busy_timeout(work->db, 20000);
    /* The data survives processes, which the test kills, and no loss of power. */
    sqlite3_exec(work->db, "PRAGMA journal_mode=WAL; PRAGMA synchronous=OFF", NULL, NULL, NULL);
    if (idem_guard_new(NULL, &policy, &work->guard, &error) < 0)
        errx(1, "%s", error.text);
}

static void table_make(const struct work *work) {
    if (sqlite3_exec(work->db,
                     "CREATE TABLE effect (n INTEGER PRIMARY KEY, at INTEGER, owner TEXT, key TEXT,"
                     " attempt INTEGER)",
                     NULL, NULL, NULL) != SQLITE_OK)
        errx(1, "%s", sqlite3_errmsg(work->db));
}

static void table_list(const struct work *work) {
    sqlite3_stmt *rows;

    if (sqlite3_prepare_v2(work->db, "SELECT at, owner, key, attempt FROM effect ORDER BY n", -1,
                           &rows, NULL) != SQLITE_OK)
        errx(1, "%s", sqlite3_errmsg(work->db));
    while (sqlite3_step(rows) == SQLITE_ROW)
        printf("%s %s %s %s\n", (const char *)sqlite3_column_text(rows, 0),
               (const char *)sqlite3_column_text(rows, 1),
               (const char *)sqlite3_column_text(rows, 2),
               (const char *)sqlite3_column_text(rows, 3));
    sqlite3_finalize(rows);
}

static int row_add(struct idem_tx *tx, void *data) {
    const struct work *work = data;
    sqlite3_stmt *insert;
    int rc;

    if (sqlite3_prepare_v2(work->db,
                           "INSERT INTO effect (at, owner, key, attempt) VALUES (?, ?, ?, ?)", -1,
                           &insert, NULL) != SQLITE_OK)
        return idem_sql_failure(idem_tx_conn(tx), NULL, NULL);
    sqlite3_bind_int64(insert, 1, history_now());
    sqlite3_bind_text(insert, 2, work->owner, -1, SQLITE_STATIC);
    sqlite3_bind_text(insert, 3, work->key, -1, SQLITE_STATIC);
    sqlite3_bind_int64(insert, 4, work->attempt);
    rc = sqlite3_step(insert);
    sqlite3_finalize(insert);
    return rc == SQLITE_DONE ? 0 : idem_sql_failure(idem_tx_conn(tx), NULL, NULL);
}

/* The effect happens now, or has happened before. */
static int row_once(struct work *work) {
    struct idem_args args = {.key = work->key, .key_len = strlen(work->key)};
    struct idem_tx_answer answer;
    struct idem_error error;

    if (idem_tx_call(idem_sql_sqlite(work->db), work->guard, &args, NULL, row_add, work, &answer,
                     &error) < 0) {
        fprintf(stderr, "queue-effect: %s\n", error.text);
        return RETRY;
    }
    idem_tx_answer_release(&answer);
    return DONE;
}

/* So that a kill can hit it at any point. */
static void linger(const struct work *work) {
    if (work->id != 0)
        usleep((useconds_t)(rand() % PAUSE_MAX_US)); /* sleep: a random time */
}

/* The history. */

static void tell(const struct work *work, const char *event, const char *names) {
    if (work->history >= 0 &&
        history_write(work->history, work->key, event, "owner=%s %s", work->owner, names) < 0)
        err(1, "history");
}

static int handle(struct work *work) {
    char names[160];
    int result = DONE;

    snprintf(names, sizeof(names), "x-hash=%s", work->hash);
    tell(work, "claim", names);
    snprintf(names, sizeof(names), "verdict=run attempt=%" PRIu32, work->attempt);
    tell(work, "claimed", names);
    linger(work);
    if (strstr(work->key, ".dead") != NULL)
        result = DEAD;
    else if (strstr(work->key, ".retry") != NULL && work->attempt == 1)
        result = RETRY;
    else if (work->db != NULL)
        result = row_once(work);
    else if (work->history >= 0)
        tell(work, "effect", names + strlen("verdict=run "));
    linger(work);
    tell(work, "finish", result == DONE ? "said=done" : "said=fail");
    return result;
}

/* Messages. */

static void text_take(const struct idem_json *message, const char *name, char *buf, size_t size) {
    const struct idem_json *value = idem_json_get(message, name, strlen(name));

    if (value == NULL || (value->type != IDEM_JSON_STRING && value->type != IDEM_JSON_NUMBER) ||
        value->n >= size)
        errx(1, "the message has no %s that fits", name);
    memcpy(buf, value->at.text, value->n);
    buf[value->n] = '\0';
}

static void message_take(struct work *work, const char *line, size_t len) {
    struct idem_arena arena;
    struct idem_json message;
    struct idem_error error;
    char number[32];

    idem_arena_init(&arena, MESSAGE_MAX);
    if (idem_json_parse(line, len, &arena, &message, &error) < 0)
        errx(1, "%s", error.text);
    text_take(&message, "key", work->key, sizeof(work->key));
    text_take(&message, "key_hash", work->hash, sizeof(work->hash));
    text_take(&message, "id", number, sizeof(number));
    work->id = strtoll(number, NULL, 10);
    text_take(&message, "attempt", number, sizeof(number));
    work->attempt = (uint32_t)strtoul(number, NULL, 10);
    idem_arena_free(&arena);
}

static void lines(struct work *work) {
    char *line = NULL;
    size_t size = 0;
    unsigned n = 0;
    ssize_t len;

    srand((unsigned)getpid());
    while ((len = getline(&line, &size, stdin)) > 0) {
        message_take(work, line, (size_t)len);
        snprintf(work->owner, sizeof(work->owner), "%d.%d.%u", (int)getppid(), (int)getpid(), ++n);
        printf("{\"id\": %" PRId64 ", \"result\": \"%s\"}\n", work->id, results[handle(work)]);
        fflush(stdout);
    }
    free(line);
}

static int once(struct work *work) {
    static const int statuses[] = {[DONE] = 0, [RETRY] = 75, [DEAD] = 65};
    const char *key = getenv("IDEM_KEY"), *attempt = getenv("IDEM_ATTEMPT");

    if (key == NULL || attempt == NULL)
        errx(1, "IDEM_KEY and IDEM_ATTEMPT are not set");
    snprintf(work->key, sizeof(work->key), "%s", key);
    snprintf(work->owner, sizeof(work->owner), "%d", (int)getpid());
    work->attempt = (uint32_t)strtoul(attempt, NULL, 10);
    return statuses[handle(work)];
}

int main(int argc, char **argv) {
    struct work work = {.history = -1};
    int status = 0;

    if (argc < 3) {
        fprintf(stderr, "usage: queue-effect make|once|lines|list DATABASE [HISTORY]\n");
        return 64;
    }
    if (strcmp(argv[2], "-") != 0)
        database_open(&work, argv[2]);
    if (argc > 3) {
        work.history = history_open(argv[3]);
        if (work.history < 0)
            err(1, "%s", argv[3]);
    }
    if (strcmp(argv[1], "make") == 0)
        table_make(&work);
    else if (strcmp(argv[1], "list") == 0)
        table_list(&work);
    else if (strcmp(argv[1], "lines") == 0)
        lines(&work);
    else
        status = once(&work);
    idem_guard_free(work.guard);
    sqlite3_close(work.db);
    return status;
}
