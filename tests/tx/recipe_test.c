/*
 * The recipes for tables of the caller's own, on each engine, at each isolation
 * level and over each flavour of connection.
 */
#include "db.h"
#include "test.h"

static struct idem_error err;
static struct flavour flavour;

#define N(array) (sizeof(array) / sizeof((array)[0]))

/* A table whose names need quotes, with a second unique key. */
static const char *const tables[] = {
    [IDEM_SQL_POSTGRES] =
        "CREATE TABLE \"Order's \"\"table\"\"\" (\"select\" varchar(40) NOT NULL, "
        "shop integer NOT NULL, note text, raw bytea, version bigint NOT NULL "
        "DEFAULT 1, state varchar(20) NOT NULL DEFAULT 'unpaid', other integer "
        "UNIQUE, PRIMARY KEY (shop, \"select\"))",
    [IDEM_SQL_MYSQL] = "CREATE TABLE `Order's \"table\"` (`select` varchar(40) NOT NULL, shop "
                       "integer NOT NULL, note text, raw blob, version bigint NOT NULL DEFAULT 1, "
                       "state varchar(20) NOT NULL DEFAULT 'unpaid', other integer UNIQUE, PRIMARY "
                       "KEY (shop, `select`)) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin",
    [IDEM_SQL_SQLITE] =
        "CREATE TABLE \"Order's \"\"table\"\"\" (\"select\" TEXT NOT NULL, shop "
        "INTEGER NOT NULL, note TEXT, raw BLOB, version INTEGER NOT NULL DEFAULT 1, "
        "state TEXT NOT NULL DEFAULT 'unpaid', other INTEGER UNIQUE, PRIMARY KEY "
        "(shop, \"select\"))",
};
#define TABLE "Order's \"table\""

static struct idem_sql begin(const struct flavour *f) {
    struct idem_sql conn = db_open(f);
    const struct idem_sql_column key[] = {{"shop", idem_sql_int(7)}};
    const struct idem_sql_row row = {.table = TABLE, .key = key, .key_n = 1};
    enum idem_sql_verdict verdict;

    if (f != NULL && f->n > 0) {
        while (idem_sql_delete(conn, &row, &verdict, &err) == 0 && verdict == IDEM_SQL_DELETED)
            ;
        return conn;
    }
    db_do(conn, db_kind == IDEM_SQL_MYSQL ? "DROP TABLE IF EXISTS `Order's \"table\"`"
                                          : "DROP TABLE IF EXISTS \"Order's \"\"table\"\"\"");
    db_do(conn, tables[db_kind]);
    return conn;
}

/* A row of the table. */
static struct idem_sql_column key_of_row[2], value_of_row[3];

static struct idem_sql_row row_of(const char *id, size_t values_n) {
    key_of_row[0] = (struct idem_sql_column){"shop", idem_sql_int(7)};
    key_of_row[1] = (struct idem_sql_column){"select", idem_sql_text(id)};
    return (struct idem_sql_row){.table = TABLE,
                                 .key = key_of_row,
                                 .key_n = 2,
                                 .values = value_of_row,
                                 .values_n = values_n};
}

static int64_t count(struct idem_sql conn, const char *where) {
    return db_askf(conn, "SELECT count(*) FROM %s WHERE %s",
                   db_kind == IDEM_SQL_MYSQL ? "`Order's \"table\"`" : "\"Order's \"\"table\"\"\"",
                   where);
}

static enum idem_sql_verdict insert(struct idem_sql conn, const struct idem_sql_row *row) {
    enum idem_sql_verdict verdict = 0;
    int rc = idem_sql_insert(conn, row, &verdict, &err);

    if (rc != 0)
        fprintf(stderr, "# %s\n", err.text);
    CHECK_INT(rc, 0);
    return verdict;
}

TEST(an_insert_is_done_or_already_there_and_other_errors_are_errors) {
    EACH_FLAVOUR(f) {
        struct idem_sql conn = begin(&f);
        struct idem_sql_row row = row_of("it's \\ \"ü\"", 3);
        enum idem_sql_verdict verdict = 0;

        for (int autocommit = 0; autocommit < 2; autocommit++) {
            if (autocommit == 0)
                db_begin(conn, &f);
            value_of_row[0] = (struct idem_sql_column){"note", idem_sql_text("'; DROP TABLE work")};
            value_of_row[1] = (struct idem_sql_column){"raw", idem_sql_bytes("\0\xff'", 3)};
            value_of_row[2] = (struct idem_sql_column){"other", idem_sql_int(5)};
            CHECK_INT(insert(conn, &row), IDEM_SQL_INSERTED);
            CHECK_INT(insert(conn, &row), IDEM_SQL_ALREADY_THERE);
            CHECK_INT(count(conn, "other = 5 AND note = '''; DROP TABLE work' AND shop = 7"), 1);
            /* A conflict with another unique key is not "already there". */
            row = row_of("else", 3);
            if (autocommit == 0)
                db_do(conn, "SAVEPOINT s");
            CHECK_INT(idem_sql_insert(conn, &row, &verdict, &err), IDEM_E_REFUSED);
            if (autocommit == 0)
                db_do(conn, "ROLLBACK TO SAVEPOINT s");
            value_of_row[2].value = idem_sql_null();
            CHECK_INT(insert(conn, &row), IDEM_SQL_INSERTED);
            value_of_row[0] = (struct idem_sql_column){
                db_kind == IDEM_SQL_POSTGRES ? "shop" : "Shop", idem_sql_int(1)};
            CHECK_INT(idem_sql_insert(conn, &row, &verdict, &err), IDEM_E_INVALID);
            CHECK_HAS(err.text, "twice");
            row = row_of("it's \\ \"ü\"", 3);
            if (autocommit == 0)
                db_rollback(conn);
        }
        CHECK_INT(count(conn, "shop = 7"), 2);
        db_close(conn);
    }
}

TEST(an_upsert_inserts_or_updates) {
    EACH_FLAVOUR(f) {
        struct idem_sql conn = begin(&f);
        struct idem_sql_row row = row_of("u", 1), bare = row_of("bare", 0);
        enum idem_sql_verdict verdict;

        db_begin(conn, &f);
        value_of_row[0] = (struct idem_sql_column){"note", idem_sql_text("a")};
        key_of_row[1].value = idem_sql_text("u");
        CHECK_INT(idem_sql_upsert(conn, &row, &verdict, &err), 0);
        CHECK_INT(verdict, IDEM_SQL_INSERTED);
        /* Without a change it is an update as well. */
        for (int i = 0; i < 2; i++) {
            CHECK_INT(idem_sql_upsert(conn, &row, &verdict, &err), 0);
            CHECK_INT(verdict, IDEM_SQL_UPDATED);
        }
        value_of_row[0].value = idem_sql_null();
        CHECK_INT(idem_sql_upsert(conn, &row, &verdict, &err), 0);
        CHECK_INT(verdict, IDEM_SQL_UPDATED);
        CHECK_INT(count(conn, "note IS NULL"), 1);
        key_of_row[1].value = idem_sql_text("bare");
        CHECK_INT(idem_sql_upsert(conn, &bare, &verdict, &err), 0);
        CHECK_INT(verdict, IDEM_SQL_INSERTED);
        CHECK_INT(idem_sql_upsert(conn, &bare, &verdict, &err), 0);
        CHECK_INT(verdict, IDEM_SQL_UPDATED);
        db_rollback(conn);
        db_close(conn);
    }
}

TEST(a_delete_is_done_or_was_done) {
    EACH_FLAVOUR(f) {
        struct idem_sql conn = begin(&f);
        struct idem_sql_row row = row_of("d", 0);
        enum idem_sql_verdict verdict;

        db_begin(conn, &f);
        CHECK_INT(insert(conn, &row), IDEM_SQL_INSERTED);
        CHECK_INT(idem_sql_delete(conn, &row, &verdict, &err), 0);
        CHECK_INT(verdict, IDEM_SQL_DELETED);
        CHECK_INT(idem_sql_delete(conn, &row, &verdict, &err), 0);
        CHECK_INT(verdict, IDEM_SQL_ALREADY_GONE);
        db_rollback(conn);
        db_close(conn);
    }
}

TEST(a_version_is_won_once) {
    EACH_FLAVOUR(f) {
        struct idem_sql conn = begin(&f);
        struct idem_sql_row row = row_of("v", 1);
        enum idem_sql_verdict verdict;
        int64_t present = -1;

        db_begin(conn, &f);
        value_of_row[0] = (struct idem_sql_column){"note", idem_sql_text("same")};
        CHECK_INT(insert(conn, &row), IDEM_SQL_INSERTED);
        for (int i = 1; i <= 2; i++) { /* the note does not change; the version does */
            CHECK_INT(idem_sql_update_version(conn, &row, "version", i, &present, &verdict, &err),
                      0);
            CHECK_INT(verdict, IDEM_SQL_WON);
            CHECK_INT(present, i + 1);
        }
        CHECK_INT(idem_sql_update_version(conn, &row, "version", 1, &present, &verdict, &err), 0);
        CHECK_INT(verdict, IDEM_SQL_STALE);
        CHECK_INT(present, 3);
        row.values_n = 0;
        CHECK_INT(idem_sql_update_version(conn, &row, "version", 3, NULL, &verdict, &err), 0);
        CHECK_INT(verdict, IDEM_SQL_WON);
        key_of_row[1].value = idem_sql_text("nobody");
        CHECK_INT(idem_sql_update_version(conn, &row, "version", 3, &present, &verdict, &err), 0);
        CHECK_INT(verdict, IDEM_SQL_GONE);
        db_rollback(conn);
        db_close(conn);
    }
}

/* State machine. */

static const struct idem_step order_moves[] = {
    {"unpaid", "paid"},      {"paid", "shipped"},   {"shipped", "done"},
    {"unpaid", "cancelled"}, {"paid", "cancelled"},
};

static struct idem_moves *moves_of(const char *states, const struct idem_step *steps, size_t n) {
    struct idem_moves *moves = NULL;
    int rc = idem_moves_new(states, steps, n, &moves, &err);

    if (rc != 0)
        CHECK_INT(rc, IDEM_E_INVALID);
    return moves;
}

TEST(a_state_moves_once_and_where_it_may) {
    struct idem_moves *moves =
        moves_of("unpaid paid  shipped done cancelled ", order_moves, N(order_moves));

    EACH_FLAVOUR(f) {
        struct idem_sql conn = begin(&f);
        struct idem_sql_row row = row_of("m", 0), with;
        enum idem_sql_verdict verdict;
        const char *state;
        const struct {
            const char *from, *to;
            enum idem_sql_verdict want;
            const char *state;
        } steps[] = {
            {"paid", "shipped", IDEM_SQL_FORBIDDEN, "unpaid"},
            {"unpaid", "paid", IDEM_SQL_MOVED, "paid"},
            {"unpaid", "paid", IDEM_SQL_ALREADY, "paid"},
            {"paid", "shipped", IDEM_SQL_MOVED, "shipped"},
            {"unpaid", "paid", IDEM_SQL_ALREADY, "shipped"}, /* a later state */
            {"paid", "cancelled", IDEM_SQL_FORBIDDEN, "shipped"},
            {"shipped", "done", IDEM_SQL_MOVED, "done"},
            {"unpaid", "paid", IDEM_SQL_ALREADY, "done"},
        };

        db_begin(conn, &f);
        CHECK_INT(insert(conn, &row), IDEM_SQL_INSERTED);
        for (size_t i = 0; i < N(steps); i++) {
            CHECK_INT(idem_sql_move(conn, &row, "state", moves, steps[i].from, steps[i].to, &state,
                                    &verdict, &err),
                      0);
            CHECK_INT(verdict, steps[i].want);
            CHECK_STR(state, steps[i].state);
        }
        /* A cancelled order was either paid or not. */
        with = row_of("n", 1);
        value_of_row[0] = (struct idem_sql_column){"note", idem_sql_text("no money")};
        CHECK_INT(insert(conn, &with), IDEM_SQL_INSERTED);
        CHECK_INT(
            idem_sql_move(conn, &with, "state", moves, "unpaid", "cancelled", NULL, &verdict, &err),
            0);
        CHECK_INT(verdict, IDEM_SQL_MOVED);
        CHECK_INT(
            idem_sql_move(conn, &with, "state", moves, "unpaid", "paid", &state, &verdict, &err),
            0);
        CHECK_INT(verdict, IDEM_SQL_FORBIDDEN);
        CHECK_STR(state, "cancelled");
        CHECK_INT(count(conn, "note = 'no money' AND state = 'cancelled'"), 1);
        key_of_row[1].value = idem_sql_text("nobody");
        CHECK_INT(
            idem_sql_move(conn, &with, "state", moves, "unpaid", "paid", &state, &verdict, &err),
            0);
        CHECK_INT(verdict, IDEM_SQL_GONE);
        CHECK(state == NULL);
        CHECK_INT(
            idem_sql_move(conn, &with, "state", moves, "paid", "unpaid", &state, &verdict, &err),
            IDEM_E_INVALID);
        CHECK_INT(
            idem_sql_move(conn, &with, "state", moves, "unpayed", "paid", &state, &verdict, &err),
            IDEM_E_INVALID);
        CHECK_HAS(err.text, "unpayed");
        db_rollback(conn);
        db_close(conn);
    }
    idem_moves_free(moves);
}

TEST(a_state_may_be_a_number) {
    static const struct idem_step steps[] = {{"0", "10"}, {"10", "20"}};
    struct idem_moves *moves = moves_of("0 10 20", steps, N(steps));
    struct idem_sql conn = db_open(NULL);
    const struct idem_sql_column key = {"id", idem_sql_int(500)};
    const struct idem_sql_row row = {.table = "work", .key = &key, .key_n = 1};
    enum idem_sql_verdict verdict;
    const char *state;

    db_do(conn, "INSERT INTO work VALUES (500, 0)");
    CHECK_INT(idem_sql_move(conn, &row, "n", moves, "0", "10", &state, &verdict, &err), 0);
    CHECK_INT(verdict, IDEM_SQL_MOVED);
    CHECK_INT(idem_sql_move(conn, &row, "n", moves, "0", "10", &state, &verdict, &err), 0);
    CHECK_INT(verdict, IDEM_SQL_ALREADY);
    CHECK_STR(state, "10");
    db_do(conn, "UPDATE work SET n = 11 WHERE id = 500");
    CHECK_INT(idem_sql_move(conn, &row, "n", moves, "0", "10", &state, &verdict, &err), 0);
    CHECK_INT(verdict, IDEM_SQL_FORBIDDEN);
    CHECK(state == NULL);
    db_close(conn);
    idem_moves_free(moves);
}

TEST(a_declaration_that_cannot_be_meant_is_refused) {
    static const struct idem_step typo[] = {{"unpaid", "paid"}, {"payed", "shipped"}};
    static const struct idem_step apart[] = {{"unpaid", "paid"}, {"shipped", "paid"}};
    static const struct idem_step self[] = {{"unpaid", "paid"}, {"paid", "paid"}};
    static const struct idem_step twice[] = {{"unpaid", "paid"}, {"unpaid", "paid"}};
    static const struct idem_step half[] = {{"unpaid", NULL}};
    char many[65 * 3 + 1] = "";

    for (size_t i = 0; i < 65; i++)
        snprintf(many + 3 * i, 4, "%02zu ", i);
    CHECK(moves_of("unpaid paid shipped", typo, N(typo)) == NULL);
    CHECK_HAS(err.text, "\"payed\" is in a move, and is not declared");
    CHECK(moves_of("unpaid paid shipped", apart, N(apart)) == NULL);
    CHECK_HAS(err.text, "\"shipped\" cannot be reached");
    CHECK(moves_of("unpaid paid", self, N(self)) == NULL);
    CHECK_HAS(err.text, "to itself");
    CHECK(moves_of("unpaid paid", twice, N(twice)) == NULL);
    CHECK_HAS(err.text, "twice");
    CHECK(moves_of("unpaid paid unpaid", twice, 1) == NULL);
    CHECK_HAS(err.text, "declared twice");
    CHECK(moves_of("unpaid", half, 1) == NULL);
    CHECK(moves_of("  ", half, 0) == NULL);
    CHECK(moves_of(many, half, 0) == NULL);
    CHECK_HAS(err.text, "64");
}

/* Locks. */

TEST(a_lock_is_had_or_not_and_the_transaction_goes_on) {
    static const char *const columns[] = {"note", "raw", "version", "other"};

    EACH_FLAVOUR(f) {
        struct idem_sql conn = begin(&f), other = db_open(&f);
        struct idem_sql_row row = row_of("l", 2);
        struct idem_sql_cells cells = {.n = 77};
        enum idem_sql_verdict verdict;

        value_of_row[0] = (struct idem_sql_column){"note", idem_sql_text("n")};
        value_of_row[1] = (struct idem_sql_column){"raw", idem_sql_bytes("\0r", 2)};
        CHECK_INT(idem_sql_lock(conn, &row, 0, NULL, 0, NULL, &verdict, &err), IDEM_E_INVALID);
        CHECK_INT(insert(conn, &row), IDEM_SQL_INSERTED);
        db_begin(conn, &f);
        CHECK_INT(idem_sql_lock(conn, &row, 0, columns, 4, &cells, &verdict, &err), 0);
        CHECK_INT(verdict, IDEM_SQL_LOCKED);
        CHECK_INT(cells.n, 4);
        CHECK(cells.at[0].type == IDEM_SQL_TEXT && strcmp(cells.at[0].at, "n") == 0);
        CHECK(cells.at[1].type == IDEM_SQL_BYTES && cells.at[1].len == 2);
        CHECK(memcmp(cells.at[1].at, "\0r", 2) == 0);
        CHECK(cells.at[2].type == IDEM_SQL_INT && cells.at[2].number == 1);
        CHECK(cells.at[3].type == IDEM_SQL_NULL);
        idem_sql_cells_release(&cells);
        if (db_kind != IDEM_SQL_SQLITE) {
            static const struct {
                int64_t wait_ms;
                enum idem_sql_verdict want;
            } ways[] = {{IDEM_NONE, IDEM_SQL_BUSY},
                        {IDEM_SKIP_LOCKED, IDEM_SQL_SKIPPED},
                        {40, IDEM_SQL_BUSY}};

            db_begin(other, &f);
            db_do(other, "INSERT INTO work VALUES (600, 0)");
            for (size_t i = 0; i < N(ways); i++) {
                if (ways[i].wait_ms > 0 && db_kind == IDEM_SQL_MYSQL && f.n % 3 != 1)
                    continue; /* a second for each */
                CHECK_INT(
                    idem_sql_lock(other, &row, ways[i].wait_ms, columns, 4, &cells, &verdict, &err),
                    0);
                CHECK_INT(verdict, ways[i].want);
                CHECK_INT(cells.n, 0);
                CHECK_INT(db_ask(other, "SELECT n FROM work WHERE id = 600"), 0);
            }
            db_rollback(other);
        }
        db_rollback(conn);
        db_begin(other, &f);
        for (int i = 0; i < 4; i++) {
            static const int64_t waits[] = {0, IDEM_NONE, IDEM_SKIP_LOCKED, 1000};

            key_of_row[1].value = idem_sql_text("l");
            CHECK_INT(idem_sql_lock(other, &row, waits[i], NULL, 0, NULL, &verdict, &err), 0);
            CHECK_INT(verdict, IDEM_SQL_LOCKED);
            key_of_row[1].value = idem_sql_text("nobody");
            CHECK_INT(idem_sql_lock(other, &row, waits[i], columns, 1, &cells, &verdict, &err), 0);
            CHECK_INT(verdict, waits[i] == IDEM_SKIP_LOCKED ? IDEM_SQL_SKIPPED : IDEM_SQL_GONE);
        }
        CHECK_INT(idem_sql_lock(other, &row, -3, NULL, 0, NULL, &verdict, &err), IDEM_E_INVALID);
        CHECK_INT(idem_sql_lock(other, &row, 0, columns, 65, &cells, &verdict, &err),
                  IDEM_E_INVALID);
        /* The lock timeout applied to that statement only. */
        if (db_kind == IDEM_SQL_POSTGRES)
            CHECK_INT(db_ask(other, "SELECT current_setting('lock_timeout')"), 0);
        if (db_kind == IDEM_SQL_MYSQL)
            CHECK_INT(db_ask(other, "SELECT @@innodb_lock_wait_timeout"), 50);
        db_rollback(other);
        db_close(other);
        db_close(conn);
    }
}

TEST(a_key_that_is_none_is_refused) {
    struct idem_sql conn = begin(NULL);
    struct idem_sql_row row = row_of("a", 1);
    enum idem_sql_verdict verdict = 77;
    int64_t present = 77;

    value_of_row[0] = (struct idem_sql_column){"note", idem_sql_text("n")};
    CHECK_INT(insert(conn, &row), IDEM_SQL_INSERTED);
    key_of_row[1].value = idem_sql_text("b");
    CHECK_INT(insert(conn, &row), IDEM_SQL_INSERTED);
    row.key_n = 1; /* the shop alone is not a key */
    db_begin(conn, NULL);
    CHECK_INT(idem_sql_delete(conn, &row, &verdict, &err), IDEM_E_INVALID);
    CHECK_INT(idem_sql_update_version(conn, &row, "version", 1, &present, &verdict, &err),
              0); /* the rows are deleted, and the caller rolls back */
    CHECK_INT(verdict, IDEM_SQL_GONE);
    db_rollback(conn);
    db_begin(conn, NULL);
    CHECK_INT(idem_sql_update_version(conn, &row, "version", 1, &present, &verdict, &err),
              IDEM_E_INVALID);
    CHECK_INT(idem_sql_lock(conn, &row, 0, NULL, 0, NULL, &verdict, &err), IDEM_E_INVALID);
    CHECK_INT(idem_sql_upsert(conn, &row, &verdict, &err),
              db_kind == IDEM_SQL_SQLITE ? IDEM_E_REFUSED : IDEM_E_INVALID);
    db_rollback(conn);
    CHECK_INT(count(conn, "version = 1"), 2);
    row.key_n = 0;
    CHECK_INT(idem_sql_delete(conn, &row, &verdict, &err), IDEM_E_INVALID);
    CHECK_HAS(err.text, "no key");
    row.key_n = 2;
    key_of_row[1].value = idem_sql_null();
    CHECK_INT(idem_sql_delete(conn, &row, &verdict, &err), IDEM_E_INVALID);
    key_of_row[1] = (struct idem_sql_column){"", idem_sql_text("x")};
    CHECK_INT(idem_sql_delete(conn, &row, &verdict, &err), IDEM_E_INVALID);
    CHECK_HAS(err.text, "empty");
    key_of_row[1] = (struct idem_sql_column){NULL, idem_sql_text("x")};
    CHECK_INT(idem_sql_delete(conn, &row, &verdict, &err), IDEM_E_INVALID);
    row.table = NULL;
    CHECK_INT(idem_sql_delete(conn, &row, &verdict, &err), IDEM_E_INVALID);
    CHECK_INT(idem_sql_delete(conn, NULL, &verdict, &err), IDEM_E_INVALID);
    /* A name that is no column does not become a text either. */
    row = row_of("a", 0);
    key_of_row[1] = (struct idem_sql_column){"no such column", idem_sql_text("no such column")};
    CHECK_INT(idem_sql_delete(conn, &row, &verdict, &err), IDEM_E_REFUSED);
    CHECK_INT(count(conn, "version = 1"), 2);
    db_close(conn);
}

TEST(a_table_in_a_schema_is_found) {
    struct idem_sql conn = db_open(NULL);
    const struct idem_sql_column key = {"id", idem_sql_int(700)}, n = {"n", idem_sql_int(1)};
    const struct idem_sql_row row = {.table = db_kind == IDEM_SQL_POSTGRES ? "public.work"
                                              : db_kind == IDEM_SQL_MYSQL  ? "idem.work"
                                                                           : "main.work",
                                     .key = &key,
                                     .key_n = 1,
                                     .values = &n,
                                     .values_n = 1};

    CHECK_INT(insert(conn, &row), IDEM_SQL_INSERTED);
    CHECK_INT(db_ask(conn, "SELECT n FROM work WHERE id = 700"), 1);
    db_close(conn);
}

/* Many processes at once. */

#define CROWD 5
#define ROUNDS 10

/* Runs a recipe, in a new transaction each time as long as its code demands that. */
static enum idem_sql_verdict again(struct idem_sql conn,
                                   int (*fn)(struct idem_sql conn, enum idem_sql_verdict *ret)) {
    enum idem_sql_verdict verdict = 0;
    int rc, tries = 0;

    do {
        CHECK(tries++ < 300);
        db_begin(conn, &flavour);
        rc = fn(conn, &verdict);
        if (rc == 0)
            rc = db_try(conn, "COMMIT", &err);
        if (rc != 0 && rc != IDEM_E_RETRY_TX && rc != IDEM_E_TX_LOST)
            fprintf(stderr, "# %s\n", err.text);
        CHECK(rc == 0 || rc == IDEM_E_RETRY_TX || rc == IDEM_E_TX_LOST);
        if (rc != 0)
            db_rollback(conn);
    } while (rc != 0);
    return verdict;
}

static int crowd_round;

static struct idem_sql_row crowd_row(size_t values_n) {
    static struct idem_sql_column key, values;

    key = (struct idem_sql_column){"id", idem_sql_int(1000 * (flavour.n + 1) + crowd_round)};
    values = (struct idem_sql_column){"n", idem_sql_int(1)};
    return (struct idem_sql_row){
        .table = "work", .key = &key, .key_n = 1, .values = &values, .values_n = values_n};
}

static int crowd_upsert(struct idem_sql conn, enum idem_sql_verdict *ret) {
    struct idem_sql_row row = crowd_row(1);

    return idem_sql_upsert(conn, &row, ret, &err);
}

static int crowd_version(struct idem_sql conn, enum idem_sql_verdict *ret) {
    struct idem_sql_row row = crowd_row(0);

    return idem_sql_update_version(conn, &row, "n", 1, NULL, ret, &err);
}

/* Reads under the lock, then writes: no two processes may have read the same number. */
static int crowd_lock(struct idem_sql conn, enum idem_sql_verdict *ret) {
    static const char *const column = "n";
    struct idem_sql_row row = crowd_row(0);
    struct idem_sql_cells cells;
    char sql[100];
    int rc = idem_sql_lock(conn, &row, 0, &column, 1, &cells, ret, &err);

    if (rc != 0)
        return rc;
    CHECK_INT(*ret, IDEM_SQL_LOCKED);
    snprintf(sql, sizeof(sql), "UPDATE work SET n = %lld WHERE id = %lld",
             (long long)cells.at[0].number + 1, (long long)row.key[0].value.number);
    idem_sql_cells_release(&cells);
    return db_try(conn, sql, &err);
}

static int tally[2]; /* a pipe */

static void crowd(int i) {
    struct idem_sql conn = db_open(&flavour);

    (void)i;
    for (crowd_round = 0; crowd_round < ROUNDS; crowd_round++) {
        char told[3];

        told[0] = (char)again(conn, crowd_upsert);
        told[1] = (char)again(conn, crowd_version);
        told[2] = (char)again(conn, crowd_lock);
        CHECK(write(tally[1], told, 3) == 3);
    }
    db_close(conn);
}

TEST(of_many_at_once_one_inserts_one_wins_and_none_is_lost) {
    struct idem_sql conn = db_open(NULL);

    EACH_FLAVOUR(f) {
        int inserted = 0, won = 0;
        char told[3];

        flavour = f;
        CHECK(pipe(tally) == 0);
        db_crowd(CROWD, crowd);
        close(tally[1]);
        while (read(tally[0], told, 3) == 3) {
            inserted += told[0] == IDEM_SQL_INSERTED;
            won += told[1] == IDEM_SQL_WON;
            CHECK_INT(told[2], IDEM_SQL_LOCKED);
        }
        close(tally[0]);
        CHECK_INT(inserted, ROUNDS);
        CHECK(won >= ROUNDS); /* an upsert after a win sets the version back */
        CHECK_INT(db_askf(conn, "SELECT count(*) FROM work WHERE id >= %d AND id < %d",
                          1000 * (f.n + 1), 1000 * (f.n + 1) + ROUNDS),
                  ROUNDS);
    }
    db_close(conn);
}

static void lock_only(int i) {
    struct idem_sql conn = db_open(&flavour);

    (void)i;
    crowd_round = 900;
    for (int round = 0; round < ROUNDS; round++)
        (void)again(conn, crowd_lock);
    db_close(conn);
}

static int crowd_insert(struct idem_sql conn, enum idem_sql_verdict *ret) {
    struct idem_sql_row row = crowd_row(1);

    return idem_sql_insert(conn, &row, ret, &err);
}

static int crowd_move(struct idem_sql conn, enum idem_sql_verdict *ret) {
    static const struct idem_step steps[] = {{"1", "2"}, {"2", "3"}};
    struct idem_sql_row row = crowd_row(0);
    struct idem_moves *moves = moves_of("1 2 3", steps, N(steps));
    int rc = idem_sql_move(conn, &row, "n", moves, "1", "2", NULL, ret, &err);

    idem_moves_free(moves);
    return rc;
}

static int crowd_delete(struct idem_sql conn, enum idem_sql_verdict *ret) {
    struct idem_sql_row row = crowd_row(0);

    return idem_sql_delete(conn, &row, ret, &err);
}

/* Each recipe in turn, by all processes at once: one does the work, the others see that it is
 * done. */
static int (*const turns[])(struct idem_sql conn,
                            enum idem_sql_verdict *ret) = {crowd_insert, crowd_move, crowd_delete};
static int turn;

static void crowd_turn(int i) {
    struct idem_sql conn = db_open(&flavour);
    char told;

    (void)i;
    for (crowd_round = 100; crowd_round < 100 + ROUNDS; crowd_round++) {
        told = (char)again(conn, turns[turn]);
        CHECK(write(tally[1], &told, 1) == 1);
    }
    db_close(conn);
}

TEST(of_many_at_once_one_does_it_and_the_others_are_told) {
    static const enum idem_sql_verdict done[] = {IDEM_SQL_INSERTED, IDEM_SQL_MOVED,
                                                 IDEM_SQL_DELETED};
    static const enum idem_sql_verdict late[] = {IDEM_SQL_ALREADY_THERE, IDEM_SQL_ALREADY,
                                                 IDEM_SQL_ALREADY_GONE};

    EACH_FLAVOUR(f) {
        flavour = f;
        for (turn = 0; turn < 3; turn++) {
            int first = 0;
            char told;

            CHECK(pipe(tally) == 0);
            db_crowd(CROWD, crowd_turn);
            close(tally[1]);
            while (read(tally[0], &told, 1) == 1) {
                first += told == (char)done[turn];
                CHECK(told == (char)done[turn] || told == (char)late[turn]);
            }
            close(tally[0]);
            CHECK_INT(first, ROUNDS);
        }
    }
}

TEST(what_is_read_under_a_lock_is_what_is_written_over) {
    struct idem_sql conn = db_open(NULL);

    EACH_FLAVOUR(f) {
        flavour = f;
        db_dof(conn, "INSERT INTO work VALUES (%d, 0)", 1000 * (f.n + 1) + 900);
        db_crowd(CROWD, lock_only);
        CHECK_INT(db_askf(conn, "SELECT n FROM work WHERE id = %d", 1000 * (f.n + 1) + 900),
                  CROWD * ROUNDS);
    }
    db_close(conn);
}

DB_MAIN
