/*
 * Guards and recipes, with each of their allocations failing in turn, SQLite's
 * among them: an error, no leak, and no transaction that goes on half done.
 */
#include <sqlite3.h>

#include "base/error.h"
#include "contract/alloc_each.h"
#include "test.h"

static struct idem_guard *guard;

static const struct idem_tx_columns theirs = {
    .table = "dedup", .key = "k", .status = "s", .result = "r"};

static int said_no(struct idem_error *err) {
    return idem_error_set(err, IDEM_E_NOMEM, "SQLite has no memory");
}

static int work(struct idem_tx *tx, void *data) {
    static const char result[3000] = "r";
    struct idem_sql conn = idem_tx_conn(tx);
    const struct idem_sql_column key = {"id", idem_sql_int(1)}, n = {"n", idem_sql_text("7")};
    const struct idem_sql_row row = {"work", &key, 1, &n, 1};
    static const char *const column = "n";
    struct idem_sql_cells cells;
    enum idem_sql_verdict verdict;
    struct idem_error *err = data;
    int rc;

    if ((rc = idem_sql_upsert(conn, &row, &verdict, err)) != 0 ||
        (rc = idem_sql_update_version(conn, &row, "v", 1, NULL, &verdict, err)) != 0 ||
        (rc = idem_sql_lock(conn, &row, 0, &column, 1, &cells, &verdict, err)) != 0)
        return rc;
    idem_sql_cells_release(&cells);
    rc = idem_sql_delete(conn, &row, &verdict, err);
    return rc != 0 ? rc : idem_tx_keep(tx, 1, result, sizeof(result));
}

/* A new key, then the same key again, with each table. */
static int calls(struct idem_sql conn, struct idem_error *err) {
    const struct idem_args args = {.key = "key", .key_len = 3};
    struct idem_tx_answer answer;
    struct idem_error inner = {0};
    int rc = 0;

    for (int i = 0; i < 2 && rc == 0; i++) {
        rc = idem_tx_call(conn, guard, &args, NULL, work, &inner, &answer, err);
        if (rc == 0)
            idem_tx_answer_release(&answer);
    }
    return rc;
}

static int on_file(struct idem_sql conn, struct idem_error *err) {
    struct idem_tx_table *table = NULL;
    int rc = idem_sql_migrate(conn, err);

    if (rc == 0)
        rc = calls(conn, err);
    if (rc == 0)
        rc = idem_tx_table_new(conn, &theirs, &table, err);
    conn.table = table;
    if (rc == 0)
        rc = calls(conn, err);
    idem_tx_table_free(table);
    return rc;
}

static int scenario(struct idem_error *err) {
    sqlite3 *db = NULL;
    int rc;

    if (sqlite3_open(":memory:", &db) != SQLITE_OK ||
        sqlite3_exec(db,
                     "CREATE TABLE work (id INTEGER PRIMARY KEY, n TEXT, v INTEGER DEFAULT 1);"
                     "CREATE TABLE dedup (k TEXT PRIMARY KEY, s INTEGER, r BLOB)",
                     NULL, NULL, NULL) != SQLITE_OK)
        rc = said_no(err);
    else
        rc = on_file(idem_sql_sqlite(db), err);
    CHECK_INT(sqlite3_close(db), SQLITE_OK);
    return rc;
}

static int declare(struct idem_error *err) {
    static const struct idem_step steps[] = {{"a", "b"}, {"b", "c"}};
    struct idem_moves *moves;
    int rc = idem_moves_new("a b c", steps, 2, &moves, err);

    if (rc == 0)
        idem_moves_free(moves);
    return rc;
}

TEST(no_allocation_that_fails_does_harm) {
    const struct idem_policy policy = {.prefix = "alloc:", .scope = IDEM_SCOPE_NONE};
    struct idem_error err;

    CHECK_INT(idem_guard_new(NULL, &policy, &guard, &err), 0);
    alloc_fail_each_both(scenario, 100);
    alloc_fail_each_both(declare, 1);
    idem_guard_free(guard);
}

TEST_MAIN
