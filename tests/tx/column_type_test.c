/*
 * Recipes on tables whose columns are odd: of another type than the given key,
 * full, NULL, or read back differently than written; and with the largest
 * numbers.
 */
#include "db.h"
#include "test.h"

static struct idem_error err;
static struct idem_sql_column key_of_row;

static struct idem_sql_row row_of(const char *table, struct idem_sql_value id) {
    key_of_row = (struct idem_sql_column){"id", id};
    return (struct idem_sql_row){.table = table, .key = &key_of_row, .key_n = 1};
}

/* A key of another type. PostgreSQL may refuse it. */

static void unlike(struct idem_sql conn, const char *table, struct idem_sql_value id) {
    struct idem_sql_row row = row_of(table, id);
    enum idem_sql_verdict verdict = 0;
    int rc;

    db_begin(conn, NULL);
    rc = idem_sql_lock(conn, &row, 0, NULL, 0, NULL, &verdict, &err);
    CHECK(rc == IDEM_E_REFUSED || (rc == 0 && verdict == IDEM_SQL_GONE));
    db_rollback(conn);
    rc = idem_sql_delete(conn, &row, &verdict, &err);
    CHECK(rc == IDEM_E_REFUSED || (rc == 0 && verdict == IDEM_SQL_ALREADY_GONE));
    CHECK_INT(db_askf(conn, "SELECT count(*) FROM %s", table), 1);
}

static void like(struct idem_sql conn, const char *table, struct idem_sql_value id) {
    struct idem_sql_row row = row_of(table, id);
    enum idem_sql_verdict verdict = 0;

    db_begin(conn, NULL);
    CHECK_INT(idem_sql_delete(conn, &row, &verdict, &err), 0);
    CHECK_INT(verdict, IDEM_SQL_DELETED);
    db_rollback(conn);
}

TEST(a_key_means_no_row_that_is_only_like_it) {
    struct idem_sql conn = db_open(NULL);

    db_do(conn, "CREATE TABLE texts (id VARCHAR(20) PRIMARY KEY)");
    db_do(conn, "INSERT INTO texts VALUES ('7abc')");
    db_do(conn, "CREATE TABLE numbers (id INTEGER PRIMARY KEY)");
    db_do(conn, "INSERT INTO numbers VALUES (7)");
    db_do(conn, "CREATE TABLE decimals (id DECIMAL(20, 0) PRIMARY KEY)");
    db_do(conn, "INSERT INTO decimals VALUES (9007199254740993)");
    db_do(conn, "CREATE TABLE dates (id DATE PRIMARY KEY)");
    db_do(conn, "INSERT INTO dates VALUES ('2026-01-05')");
    for (int lax = 0; lax < (db_kind == IDEM_SQL_MYSQL ? 2 : 1); lax++) {
        if (lax)
            db_do(conn, "SET SESSION sql_mode = ''");
        unlike(conn, "texts", idem_sql_int(7));
        unlike(conn, "texts", idem_sql_text("7"));
        unlike(conn, "numbers", idem_sql_text("7abc"));
        unlike(conn, "numbers", idem_sql_text(""));
        unlike(conn, "decimals", idem_sql_int(9007199254740992));
        like(conn, "texts", idem_sql_text("7abc"));
        like(conn, "numbers", idem_sql_int(7));
        like(conn, "numbers", idem_sql_text("7"));
        like(conn, "decimals", idem_sql_int(9007199254740993));
        like(conn, "decimals", idem_sql_text("9007199254740993"));
        like(conn, "dates", idem_sql_text("2026-01-05"));
    }
    db_close(conn);
}

TEST(a_row_that_is_kept_out_is_not_already_there) {
    struct idem_sql conn = db_open(NULL);
    struct idem_sql_row row = row_of("kept", idem_sql_int(1));
    enum idem_sql_verdict verdict;

    db_do(conn, "CREATE TABLE kept (id INTEGER PRIMARY KEY)");
    if (db_kind == IDEM_SQL_POSTGRES) {
        db_do(conn, "CREATE FUNCTION eat() RETURNS trigger LANGUAGE plpgsql AS "
                    "$$ BEGIN RETURN NULL; END $$");
        db_do(conn, "CREATE TRIGGER eat BEFORE INSERT ON kept FOR EACH ROW EXECUTE FUNCTION eat()");
    } else if (db_kind == IDEM_SQL_SQLITE) {
        db_do(conn, "CREATE TRIGGER eat BEFORE INSERT ON kept BEGIN SELECT RAISE(IGNORE); END");
    }
    if (db_kind != IDEM_SQL_MYSQL) { /* triggers of MySQL can only refuse */
        CHECK_INT(idem_sql_insert(conn, &row, &verdict, &err), IDEM_E_REFUSED);
        CHECK_HAS(err.text, "trigger");
    }
    db_close(conn);
}

/* Values. */

TEST(what_is_empty_is_not_null_and_what_has_a_nul_is_not_cut) {
    struct idem_sql conn = db_open(NULL);
    struct idem_sql_column values[] = {
        {"t", {.type = IDEM_SQL_TEXT}}, {"b", idem_sql_bytes(NULL, 0)}, {"n", idem_sql_null()}};
    struct idem_sql_row row = row_of("empty", idem_sql_int(1));
    enum idem_sql_verdict verdict;

    row.values = values;
    row.values_n = 3;
    db_dof(conn, "CREATE TABLE empty (id INTEGER PRIMARY KEY, t VARCHAR(20), b %s, n INTEGER)",
           db_kind == IDEM_SQL_POSTGRES ? "bytea" : "BLOB");
    CHECK_INT(idem_sql_insert(conn, &row, &verdict, &err), 0);
    CHECK_INT(db_ask(conn, "SELECT count(*) FROM empty WHERE t = '' AND length(b) = 0 AND "
                           "n IS NULL"),
              1);
    values[0].value = (struct idem_sql_value){.type = IDEM_SQL_TEXT, .at = "a\0b", .len = 3};
    CHECK_INT(idem_sql_upsert(conn, &row, &verdict, &err),
              db_kind == IDEM_SQL_POSTGRES ? IDEM_E_INVALID : 0);
    if (db_kind != IDEM_SQL_POSTGRES)
        CHECK_INT(db_askf(conn, "SELECT length(CAST(t AS %s)) FROM empty",
                          db_kind == IDEM_SQL_MYSQL ? "BINARY" : "BLOB"),
                  3);
    db_close(conn);
}

#define WIDE 40

TEST(a_row_may_be_wide) {
    static char names[WIDE][8], texts[WIDE][8], sql[2000];
    struct idem_sql conn = db_open(NULL);
    struct idem_sql_column values[WIDE];
    const char *columns[WIDE];
    struct idem_sql_row row = row_of("wide", idem_sql_int(INT64_MIN));
    struct idem_sql_cells cells;
    enum idem_sql_verdict verdict;
    int n = snprintf(sql, sizeof(sql), "CREATE TABLE wide (id BIGINT PRIMARY KEY");

    for (int i = 0; i < WIDE; i++) {
        snprintf(names[i], sizeof(names[i]), "c%d", i);
        snprintf(texts[i], sizeof(texts[i]), "t%d", i);
        n += snprintf(sql + n, sizeof(sql) - (size_t)n, ", c%d VARCHAR(8)", i);
        values[i] = (struct idem_sql_column){names[i], idem_sql_text(texts[i])};
        columns[i] = names[i];
    }
    snprintf(sql + n, sizeof(sql) - (size_t)n, ", n %s)",
             db_kind == IDEM_SQL_MYSQL ? "MEDIUMINT" : "INTEGER");
    db_do(conn, sql);
    row.values = values;
    row.values_n = WIDE;
    CHECK_INT(idem_sql_insert(conn, &row, &verdict, &err), 0);
    db_do(conn, "UPDATE wide SET n = 5");
    db_begin(conn, NULL);
    columns[0] = "n";
    CHECK_INT(idem_sql_lock(conn, &row, 0, columns, WIDE, &cells, &verdict, &err), 0);
    CHECK_INT(verdict, IDEM_SQL_LOCKED);
    CHECK(cells.at[0].type == IDEM_SQL_INT && cells.at[0].number == 5);
    for (int i = 1; i < WIDE; i++)
        CHECK_STR(cells.at[i].at, texts[i]);
    idem_sql_cells_release(&cells);
    db_rollback(conn);
    db_close(conn);
}

/* In quotes a name has its case: there are two such columns. */
TEST(a_name_has_its_case_with_postgres) {
    struct idem_sql conn = db_open(NULL);
    const struct idem_sql_column values[] = {{"a", idem_sql_int(1)}, {"A", idem_sql_int(2)}};
    struct idem_sql_row row = row_of("cased", idem_sql_int(1));
    enum idem_sql_verdict verdict;

    row.values = values;
    row.values_n = 2;
    if (db_kind == IDEM_SQL_POSTGRES)
        db_do(conn, "CREATE TABLE cased (id integer PRIMARY KEY, a integer, \"A\" integer)");
    CHECK_INT(idem_sql_insert(conn, &row, &verdict, &err),
              db_kind == IDEM_SQL_POSTGRES ? 0 : IDEM_E_INVALID);
    db_close(conn);
}

/* States. */

TEST(a_move_back_is_already_only_where_the_row_stands_there) {
    static const struct idem_step steps[] = {
        {"draft", "review"}, {"review", "draft"}, {"review", "approved"}};
    static const struct {
        const char *state, *from, *to;
        enum idem_sql_verdict want;
    } cases[] = {
        {"approved", "review", "draft", IDEM_SQL_FORBIDDEN},
        {"draft", "review", "draft", IDEM_SQL_ALREADY},
        {"review", "review", "draft", IDEM_SQL_MOVED},
        {"approved", "draft", "review", IDEM_SQL_ALREADY}, /* forward, as ever */
    };
    struct idem_sql conn = db_open(NULL);
    struct idem_sql_row row = row_of("doc", idem_sql_int(1));
    struct idem_moves *moves;
    enum idem_sql_verdict verdict;

    db_do(conn, "CREATE TABLE doc (id INTEGER PRIMARY KEY, s VARCHAR(20))");
    db_do(conn, "INSERT INTO doc VALUES (1, '')");
    CHECK_INT(idem_moves_new("draft review approved", steps, 3, &moves, &err), 0);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        db_dof(conn, "UPDATE doc SET s = '%s'", cases[i].state);
        CHECK_INT(
            idem_sql_move(conn, &row, "s", moves, cases[i].from, cases[i].to, NULL, &verdict, &err),
            0);
        CHECK_INT(verdict, cases[i].want);
    }
    idem_moves_free(moves);
    db_close(conn);
}

static void state_in(const struct flavour *f, const char *type, const char *first,
                     const char *second) {
    const struct idem_step step = {first, second};
    const struct idem_sql_column value = {"s", idem_sql_text(first)};
    struct idem_sql conn = db_open(f);
    struct idem_sql_row row = row_of("stated", idem_sql_int(1)), fresh = row;
    struct idem_moves *moves;
    enum idem_sql_verdict verdict;
    const char *state;
    char states[100];

    db_do(conn, "DROP TABLE IF EXISTS stated");
    db_dof(conn, "CREATE TABLE stated (id INTEGER PRIMARY KEY, s %s)", type);
    fresh.values = &value;
    fresh.values_n = 1;
    CHECK_INT(idem_sql_insert(conn, &fresh, &verdict, &err), 0);
    snprintf(states, sizeof(states), "%s %s", first, second);
    CHECK_INT(idem_moves_new(states, &step, 1, &moves, &err), 0);
    for (int i = 0; i < 2; i++) {
        CHECK_INT(idem_sql_move(conn, &row, "s", moves, first, second, &state, &verdict, &err), 0);
        CHECK_INT(verdict, i == 0 ? IDEM_SQL_MOVED : IDEM_SQL_ALREADY);
        CHECK_STR(state, second);
    }
    db_do(conn, "UPDATE stated SET s = NULL");
    CHECK_INT(idem_sql_move(conn, &row, "s", moves, first, second, &state, &verdict, &err), 0);
    CHECK(verdict == IDEM_SQL_FORBIDDEN && state == NULL);
    idem_moves_free(moves);
    db_close(conn);
}

TEST(a_state_is_read_as_it_was_written) {
    EACH_FLAVOUR(f) {
        state_in(&f, "CHAR(12)", "unpaid", "paid");
        state_in(&f,
                 db_kind == IDEM_SQL_MYSQL ? "VARCHAR(20) CHARACTER SET utf8mb4" : "VARCHAR(20)",
                 "unbezahlt", "gepr\303\274ft");
        state_in(&f, "BIGINT", "-10", "20");
    }
}

/* Versions. */

static int version_at(const struct flavour *f, const char *type, const char *value, int64_t version,
                      int *ret_won) {
    struct idem_sql conn = db_open(f);
    const struct idem_sql_column note = {"note", idem_sql_int(5)};
    struct idem_sql_row row = row_of("versions", idem_sql_int(1));
    enum idem_sql_verdict verdict = 0;
    int rc = 0;

    row.values = &note;
    row.values_n = 1;
    *ret_won = 0;
    db_do(conn, "DROP TABLE IF EXISTS versions");
    db_dof(conn, "CREATE TABLE versions (id INTEGER PRIMARY KEY, v %s, note INTEGER)", type);
    db_dof(conn, "INSERT INTO versions VALUES (1, %s, 0)", value);
    for (int i = 0; i < 2 && rc == 0; i++) {
        rc = idem_sql_update_version(conn, &row, "v", version, NULL, &verdict, &err);
        *ret_won += rc == 0 && verdict == IDEM_SQL_WON;
    }
    db_close(conn);
    return rc;
}

TEST(a_version_that_cannot_be_counted_is_an_error) {
    int won;

    CHECK_INT(version_at(NULL, "BIGINT", "NULL", 0, &won), IDEM_E_INVALID);
    CHECK_HAS(err.text, "NULL");
    CHECK_INT(version_at(NULL, "BIGINT", "NULL", 3, &won), IDEM_E_INVALID);
    CHECK_INT(version_at(NULL, "VARCHAR(20)", "'3a'", 3, &won),
              db_kind == IDEM_SQL_SQLITE ? IDEM_E_INVALID : IDEM_E_REFUSED);
    CHECK_INT(version_at(NULL, "BIGINT", "9223372036854775807", INT64_MAX, &won), IDEM_E_INVALID);
    CHECK_INT(version_at(NULL, "BIGINT", "9223372036854775806", INT64_MAX - 1, &won), 0);
    CHECK_INT(won, 1);
    if (db_kind == IDEM_SQL_MYSQL)
        CHECK_INT(version_at(NULL, "BIGINT UNSIGNED", "18446744073709551615", 7, &won), 0);
}

/* In a lax mode the version would stay the same, and the next caller would win with it again. */
TEST(a_version_at_the_end_of_its_column_is_not_won) {
    EACH_FLAVOUR(f) {
        int won, rc = 0;

        if (db_kind == IDEM_SQL_SQLITE) /* its columns hold every number */
            return;
        rc = version_at(&f, "SMALLINT", "32767", 32767, &won);
        CHECK(rc == IDEM_E_INVALID || rc == IDEM_E_REFUSED);
        CHECK_INT(won, 0);
    }
}

TEST(what_an_update_writes_by_itself_is_not_among_the_values) {
    static const struct idem_step steps[] = {{"1", "2"}};
    struct idem_sql conn = db_open(NULL);
    const struct idem_sql_column value = {"n", idem_sql_int(5)};
    struct idem_sql_row row = row_of("work", idem_sql_int(1));
    struct idem_moves *moves;
    enum idem_sql_verdict verdict;

    row.values = &value;
    row.values_n = 1;
    CHECK_INT(idem_moves_new("1 2", steps, 1, &moves, &err), 0);
    CHECK_INT(idem_sql_update_version(conn, &row, "n", 1, NULL, &verdict, &err), IDEM_E_INVALID);
    CHECK_HAS(err.text, "twice");
    CHECK_INT(idem_sql_move(conn, &row, "n", moves, "1", "2", NULL, &verdict, &err),
              IDEM_E_INVALID);
    CHECK_INT(idem_sql_update_version(conn, &row, "id", 1, NULL, &verdict, &err), IDEM_E_INVALID);
    idem_moves_free(moves);
    db_close(conn);
}

/* A number beyond 63 bits is returned as its digits. */
TEST(a_number_that_does_not_fit_is_read_as_a_text) {
    static const char *const column = "n";
    struct idem_sql conn = db_open(NULL);
    struct idem_sql_row row = row_of("large", idem_sql_int(1));
    struct idem_sql_cells cells;
    enum idem_sql_verdict verdict;

    if (db_kind == IDEM_SQL_MYSQL) {
        db_do(conn, "CREATE TABLE large (id INTEGER PRIMARY KEY, n BIGINT UNSIGNED)");
        db_do(conn, "INSERT INTO large VALUES (1, 18446744073709551615)");
        db_begin(conn, NULL);
        CHECK_INT(idem_sql_lock(conn, &row, 0, &column, 1, &cells, &verdict, &err), 0);
        CHECK(cells.at[0].type == IDEM_SQL_TEXT);
        CHECK_STR(cells.at[0].at, "18446744073709551615");
        idem_sql_cells_release(&cells);
        db_rollback(conn);
    }
    db_close(conn);
}

/* Also after a statement that failed. */
TEST(a_limit_on_waiting_leaves_nothing_behind) {
    struct idem_sql conn = db_open(NULL);
    struct idem_sql_row row = row_of("work", idem_sql_int(1));
    enum idem_sql_verdict verdict;

    db_hurry(conn);
    db_begin(conn, NULL);
    CHECK_INT(idem_sql_lock(conn, &row, 7000, NULL, 0, NULL, &verdict, &err), 0);
    if (db_kind == IDEM_SQL_POSTGRES) {
        CHECK_INT(db_ask(conn, "SELECT current_setting('lock_timeout')"), 100);
        CHECK_INT(db_try(conn, "RELEASE SAVEPOINT idem_wait", &err), IDEM_E_REFUSED);
    }
    db_rollback(conn);
    db_begin(conn, NULL);
    row.table = "none";
    CHECK_INT(idem_sql_lock(conn, &row, 7000, NULL, 0, NULL, &verdict, &err), IDEM_E_REFUSED);
    db_rollback(conn);
    if (db_kind == IDEM_SQL_MYSQL)
        CHECK_INT(db_ask(conn, "SELECT @@innodb_lock_wait_timeout"), 1);
    db_close(conn);
}

TEST(a_very_long_wait_is_one) {
    static const int64_t waits[] = {INT32_MAX, (int64_t)INT32_MAX + 1, INT64_MAX};
    struct idem_guard *guard = db_guard("long:");
    struct idem_sql conn = db_open(NULL);
    struct idem_sql_row row = row_of("work", idem_sql_int(1));
    struct idem_args args = db_key("k");
    enum idem_sql_verdict verdict;
    struct idem_tx_answer answer;

    for (size_t i = 0; i < sizeof(waits) / sizeof(waits[0]); i++) {
        db_begin(conn, NULL);
        CHECK_INT(idem_sql_lock(conn, &row, waits[i], NULL, 0, NULL, &verdict, &err), 0);
        CHECK_INT(verdict, IDEM_SQL_GONE);
        db_rollback(conn);
        CHECK_INT(idem_tx_outcome(conn, guard, &args, waits[i], &answer, &err), 0);
        CHECK_INT(answer.verdict, IDEM_TX_NEVER);
    }
    db_close(conn);
    idem_guard_free(guard);
}

DB_MAIN
