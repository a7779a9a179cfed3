/* Guards whose rows are in a table of the caller's own. */
#include "db.h"
#include "test.h"

static struct idem_error err;
static struct idem_guard *guard;

static enum idem_tx_verdict once(struct idem_sql conn, const struct idem_args *args) {
    struct idem_tx_answer answer;
    int rc = idem_tx_once(conn, guard, args, &answer, &err);

    if (rc != 0)
        fprintf(stderr, "# %s\n", err.text);
    CHECK_INT(rc, 0);
    idem_tx_answer_release(&answer);
    return answer.verdict;
}

static struct idem_args scoped(const char *scope, const char *key) {
    struct idem_args args = db_key(key);

    args.scope = scope;
    args.scope_len = strlen(scope);
    return args;
}

static const struct idem_tx_columns all = {.table = "dedup",
                                           .key = "serial_no",
                                           .source = "source_type",
                                           .fingerprint = "print",
                                           .status = "status",
                                           .result = "result",
                                           .created = "created"};

static void dedup_make(struct idem_sql conn) {
    db_dof(conn,
           "CREATE TABLE dedup (serial_no VARCHAR(64) NOT NULL, source_type VARCHAR(20) NOT NULL, "
           "print VARCHAR(80), status INTEGER NOT NULL DEFAULT 0, result %s, created %s, "
           "UNIQUE (source_type, serial_no))%s",
           db_kind == IDEM_SQL_POSTGRES ? "bytea" : "BLOB",
           db_kind == IDEM_SQL_POSTGRES ? "timestamptz" : "TIMESTAMP",
           db_kind == IDEM_SQL_MYSQL ? " CHARACTER SET utf8mb4 COLLATE utf8mb4_bin" : "");
}

TEST(a_table_that_is_there_is_as_good) {
    guard = db_guard("theirs:");
    EACH_FLAVOUR(f) {
        struct idem_sql conn = db_open(&f);
        struct idem_args args = scoped("app", "S-1 ü"), other = scoped("web", "S-1 ü");
        struct idem_tx_table *table;
        struct idem_tx_answer answer;

        if (f.n == 0)
            dedup_make(conn);
        db_do(conn, "DELETE FROM dedup");
        CHECK_INT(idem_tx_table_new(conn, &all, &table, &err), 0);
        conn.table = table;
        args.fingerprint = "a";
        args.fingerprint_len = 1;
        db_begin(conn, &f);
        CHECK_INT(once(conn, &args), IDEM_TX_FIRST);
        CHECK_INT(idem_tx_result(conn, guard, &args, 201, "r\0", 2, &err), 0);
        CHECK_INT(once(conn, &other), IDEM_TX_FIRST);
        CHECK_INT(idem_tx_result(conn, guard, &other, 0, NULL, 0, &err), 0);
        db_commit(conn);
        db_begin(conn, &f);
        CHECK_INT(idem_tx_once(conn, guard, &args, &answer, &err), 0);
        CHECK_INT(answer.verdict, IDEM_TX_DUPLICATE);
        CHECK(answer.status == 201 && answer.has_result && answer.result_len == 2);
        CHECK(memcmp(answer.result, "r\0", 2) == 0);
        idem_tx_answer_release(&answer);
        args.fingerprint = "b";
        CHECK_INT(once(conn, &args), IDEM_TX_MISMATCH);
        CHECK_INT(idem_tx_once(conn, guard, &other, &answer, &err), 0);
        CHECK(answer.verdict == IDEM_TX_DUPLICATE && !answer.has_result);
        other = scoped("app", "none");
        CHECK_INT(idem_tx_result(conn, guard, &other, 0, NULL, 0, &err), IDEM_E_INVALID);
        db_rollback(conn);
        CHECK_INT(db_ask(conn, "SELECT count(*) FROM dedup WHERE created IS NOT NULL"), 2);
        CHECK_INT(db_ask(conn, "SELECT count(*) FROM idem_tx"), 0);
        CHECK_INT(idem_tx_outcome(conn, guard, &other, 100, &answer, &err), 0);
        CHECK_INT(answer.verdict, IDEM_TX_NEVER);
        idem_tx_table_free(table);
        db_close(conn);
    }
    idem_guard_free(guard);
}

TEST(a_fingerprint_that_is_none_is_told) {
    static const struct {
        const char *head;
        int zeros;
    } prints[] = {{"", 0},    {"x", 0},   {"1:", 0},           {"0:", 64}, {"-1:", 64},
                  {"1:", 63}, {"1:", 65}, {"4294967296:", 64}, {"1:", 300}};
    struct idem_sql conn = db_open(NULL);
    const struct idem_tx_columns columns = {.table = "printed", .key = "k", .fingerprint = "p"};
    struct idem_args args = db_key("k");
    struct idem_tx_answer answer;
    struct idem_tx_table *table;
    char sql[600];

    guard = db_guard("printed:");
    db_do(conn, "CREATE TABLE printed (k VARCHAR(20) NOT NULL PRIMARY KEY, p VARCHAR(400))");
    CHECK_INT(idem_tx_table_new(conn, &columns, &table, &err), 0);
    args.fingerprint = "a";
    args.fingerprint_len = 1;
    for (size_t i = 0; i < sizeof(prints) / sizeof(prints[0]); i++) {
        conn.table = NULL;
        snprintf(sql, sizeof(sql), "INSERT INTO printed VALUES ('k', '%s%.*d')", prints[i].head,
                 prints[i].zeros, 0);
        db_do(conn, "DELETE FROM printed");
        db_do(conn, sql);
        conn.table = table;
        db_begin(conn, NULL);
        CHECK_INT(idem_tx_once(conn, guard, &args, &answer, &err), IDEM_E_CORRUPT);
        db_rollback(conn);
    }
    idem_tx_table_free(table);
    db_close(conn);
    idem_guard_free(guard);
}

/* That conflict is no duplicate, and a new transaction would not help. */
TEST(a_conflict_with_another_unique_key_is_an_error) {
    struct idem_sql conn = db_open(NULL);
    const struct idem_tx_columns columns = {.table = "twofold", .key = "k"};
    struct idem_args first = db_key("k"), second = db_key("l");
    struct idem_tx_answer answer;
    struct idem_tx_table *table;
    int rc;

    guard = db_guard("twofold:");
    db_do(conn, "CREATE TABLE twofold (k VARCHAR(20) NOT NULL PRIMARY KEY, "
                "other INTEGER DEFAULT 1 UNIQUE)");
    CHECK_INT(idem_tx_table_new(conn, &columns, &table, &err), 0);
    conn.table = table;
    db_begin(conn, NULL);
    CHECK_INT(once(conn, &first), IDEM_TX_FIRST);
    rc = idem_tx_once(conn, guard, &second, &answer, &err);
    CHECK(rc == IDEM_E_INVALID || rc == IDEM_E_REFUSED);
    db_rollback(conn);
    idem_tx_table_free(table);
    db_close(conn);
    idem_guard_free(guard);
}

TEST(a_serial_number_and_its_source_are_two_columns) {
    const struct idem_policy policy = {
        .prefix = "serial:", .scope = IDEM_SCOPE_NONE, .key_kind = IDEM_KEY_SERIAL};
    struct idem_sql conn = db_open(NULL);
    struct idem_tx_columns bare = {.table = "serials", .key = "no", .source = "source"};
    struct idem_args args = {
        .serial = "17", .serial_len = 2, .credential = "5", .credential_len = 1};
    struct idem_tx_table *table;
    struct idem_tx_answer answer;

    CHECK_INT(idem_guard_new(NULL, &policy, &guard, &err), 0);
    db_do(conn, "CREATE TABLE serials (no BIGINT NOT NULL, source INTEGER NOT NULL, "
                "PRIMARY KEY (no, source))");
    CHECK_INT(idem_tx_table_new(conn, &bare, &table, &err), 0);
    conn.table = table;
    db_begin(conn, NULL);
    CHECK_INT(once(conn, &args), IDEM_TX_FIRST);
    CHECK_INT(idem_tx_result(conn, guard, &args, 1, "nowhere", 7, &err), 0);
    CHECK_INT(once(conn, &args), IDEM_TX_DUPLICATE);
    CHECK_INT(db_ask(conn, "SELECT count(*) FROM serials WHERE no = 17 AND source = 5"), 1);
    args.credential = "6";
    CHECK_INT(once(conn, &args), IDEM_TX_FIRST);
    /* A number that can be written in two ways does not match another key's row. */
    args.serial = "0017";
    args.serial_len = 4;
    CHECK_INT(idem_tx_once(conn, guard, &args, &answer, &err), IDEM_E_INVALID);
    CHECK_HAS(err.text, "as they are given");
    args.scope = "s";
    args.scope_len = 1;
    CHECK_INT(idem_tx_once(conn, guard, &args, &answer, &err), IDEM_E_INVALID);
    CHECK_HAS(err.text, "scope = none");
    db_rollback(conn);
    idem_tx_table_free(table);
    db_close(conn);
    idem_guard_free(guard);
}

/* By collation, by blanks, and by a type that cuts off. */
TEST(columns_that_make_one_of_two_keys_are_found) {
    static const char *const types[][4] = {
        [IDEM_SQL_POSTGRES] = {"char(8)", "uuid", NULL},
        [IDEM_SQL_MYSQL] = {"varchar(8) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci",
                            "varchar(8) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci", NULL},
        [IDEM_SQL_SQLITE] = {"text COLLATE RTRIM", "text COLLATE NOCASE", NULL},
    };
    static const char *const keys[][2] = {
        {"key", "key "},
        {"a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", "A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11"}};
    struct idem_sql conn = db_open(NULL);
    const struct idem_tx_columns columns = {.table = "folded", .key = "k"};

    guard = db_guard("folded:");
    for (int i = 0; types[db_kind][i] != NULL; i++) {
        bool small = i == 1 && db_kind == IDEM_SQL_MYSQL;
        struct idem_args first = db_key(small ? "key" : keys[i][0]),
                         second = db_key(small ? "KEY" : keys[i][1]);
        struct idem_tx_table *table;
        struct idem_tx_answer answer;

        db_dof(conn, "CREATE TABLE folded (k %s NOT NULL UNIQUE)", types[db_kind][i]);
        CHECK_INT(idem_tx_table_new(conn, &columns, &table, &err), 0);
        conn.table = table;
        db_begin(conn, NULL);
        CHECK_INT(once(conn, &first), IDEM_TX_FIRST);
        CHECK_INT(once(conn, &first), IDEM_TX_DUPLICATE);
        CHECK_INT(idem_tx_once(conn, guard, &second, &answer, &err), IDEM_E_INVALID);
        CHECK_HAS(err.text, "as they are given");
        db_rollback(conn);
        conn.table = NULL;
        idem_tx_table_free(table);
        db_do(conn, "DROP TABLE folded");
    }
    if (db_kind == IDEM_SQL_MYSQL) {
        struct idem_args first = db_key("123456789"), second = db_key("123456788");
        struct idem_tx_table *table;
        struct idem_tx_answer answer;

        db_do(conn, "CREATE TABLE folded (k varchar(8) NOT NULL UNIQUE)");
        db_do(conn, "SET SESSION sql_mode = ''");
        CHECK_INT(idem_tx_table_new(conn, &columns, &table, &err), 0);
        conn.table = table;
        db_begin(conn, NULL);
        CHECK_INT(idem_tx_once(conn, guard, &first, &answer, &err), IDEM_E_INVALID);
        CHECK_INT(idem_tx_once(conn, guard, &second, &answer, &err), IDEM_E_INVALID);
        CHECK_HAS(err.text, "cut off");
        db_rollback(conn);
        idem_tx_table_free(table);
    }
    db_close(conn);
    idem_guard_free(guard);
}

/* A conflict with a row that no SELECT shows must not lead to endless retries. */
static void unseen(struct idem_sql conn, const char *table, const char *first, const char *second) {
    const struct idem_tx_columns columns = {.table = table, .key = "k"};
    struct idem_args before = db_key(first), args = db_key(second);
    struct idem_tx_answer answer;
    struct idem_tx_table *made;

    CHECK_INT(idem_tx_table_new(conn, &columns, &made, &err), 0);
    conn.table = made;
    db_begin(conn, NULL);
    if (first[0] != '\0')
        CHECK_INT(once(conn, &before), IDEM_TX_FIRST);
    CHECK_INT(idem_tx_once(conn, guard, &args, &answer, &err), IDEM_E_INVALID);
    CHECK_HAS(err.text, "nor seen there");
    db_rollback(conn);
    idem_tx_table_free(made);
}

TEST(a_row_that_cannot_be_seen_is_told) {
    struct idem_sql conn = db_open(NULL);

    guard = db_guard("unseen:");
    if (db_kind == IDEM_SQL_POSTGRES) {
        db_do(conn, "CREATE COLLATION folds (provider = icu, locale = 'und-u-ks-level2', "
                    "deterministic = false)");
        db_do(conn, "CREATE TABLE indexed (k text NOT NULL)");
        db_do(conn, "CREATE UNIQUE INDEX indexed_k ON indexed (k COLLATE folds)");
        db_do(conn, "CREATE TABLE rls (k text PRIMARY KEY, tenant text)");
        db_do(conn, "INSERT INTO rls VALUES ('key', 'another')");
        db_do(conn, "ALTER TABLE rls ENABLE ROW LEVEL SECURITY");
        db_do(conn, "ALTER TABLE rls FORCE ROW LEVEL SECURITY");
        db_do(conn, "CREATE POLICY mine ON rls USING (tenant IS NULL)");
        unseen(conn, "rls", "", "key");
    } else if (db_kind == IDEM_SQL_SQLITE) {
        db_do(conn, "CREATE TABLE indexed (k TEXT NOT NULL)");
        db_do(conn, "CREATE UNIQUE INDEX indexed_k ON indexed (k COLLATE NOCASE)");
    }
    if (db_kind != IDEM_SQL_MYSQL) /* MySQL's indexes have the collation of their column, and it
                                      reports 1062 */
        unseen(conn, "indexed", "key", "KEY");
    db_close(conn);
    idem_guard_free(guard);
}

/* Results. */

/* Stores a result in a column of that type; `kept`: a duplicate gets it byte for byte, otherwise
 * it is refused. */
static void result_in(const struct flavour *f, const char *mode, const char *type,
                      const char *result, bool kept) {
    struct idem_sql conn = db_open(f);
    const struct idem_tx_columns columns = {.table = "results", .key = "k", .result = "r"};
    struct idem_args args = db_key("k");
    struct idem_tx_answer answer;
    struct idem_tx_table *table;

    db_do(conn, "DROP TABLE IF EXISTS results");
    db_dof(conn, "CREATE TABLE results (k VARCHAR(20) NOT NULL PRIMARY KEY, r %s)", type);
    if (mode != NULL)
        db_do(conn, mode);
    CHECK_INT(idem_tx_table_new(conn, &columns, &table, &err), 0);
    conn.table = table;
    db_begin(conn, f);
    CHECK_INT(once(conn, &args), IDEM_TX_FIRST);
    CHECK_INT(idem_tx_result(conn, guard, &args, 1, result, strlen(result), &err),
              kept ? 0 : IDEM_E_INVALID);
    if (kept) {
        db_commit(conn);
        db_begin(conn, f);
        CHECK_INT(idem_tx_once(conn, guard, &args, &answer, &err), 0);
        CHECK_INT(answer.verdict, IDEM_TX_DUPLICATE);
        CHECK(answer.result_len == strlen(result));
        CHECK(memcmp(answer.result, result, strlen(result)) == 0);
        idem_tx_answer_release(&answer);
        /* A duplicate's own result would replace it. */
        CHECK_INT(idem_tx_result(conn, guard, &args, 2, "other", 5, &err), IDEM_E_INVALID);
        CHECK_HAS(err.text, "waits for its result");
    }
    db_rollback(conn);
    idem_tx_table_free(table);
    db_close(conn);
}

TEST(a_result_comes_back_byte_for_byte_or_is_refused) {
    static const char text[] = "5 \342\202\254 \303\274"; /* in UTF-8 */
    bool mysql = db_kind == IDEM_SQL_MYSQL;

    guard = db_guard("results:");
    EACH_FLAVOUR(f) {
        result_in(&f, NULL, mysql ? "TEXT CHARACTER SET utf8mb4" : "TEXT", text, true);
        result_in(&f, NULL, db_kind == IDEM_SQL_POSTGRES ? "bytea" : "BLOB", text, true);
    }
    if (mysql) {
        result_in(NULL, "SET SESSION sql_mode = ''", "VARBINARY(4)", "123456789", false);
        result_in(NULL, NULL, "BINARY(12)", "123456789", false);
    } else if (db_kind == IDEM_SQL_POSTGRES) {
        result_in(NULL, NULL, "CHAR(12)", "123456789", false);
    }
    idem_guard_free(guard);
}

TEST(keys_may_be_bytes) {
    struct idem_sql conn = db_open(NULL);
    const struct idem_tx_columns columns = {.table = "raw", .key = "k", .bytes = true};
    struct idem_args args = {.key = "\0\xff'", .key_len = 3};
    struct idem_tx_table *table;

    guard = db_guard("raw:");
    db_dof(conn, "CREATE TABLE raw (k %s NOT NULL PRIMARY KEY)",
           db_kind == IDEM_SQL_POSTGRES ? "bytea"
           : db_kind == IDEM_SQL_MYSQL  ? "varbinary(100)"
                                        : "blob");
    CHECK_INT(idem_tx_table_new(conn, &columns, &table, &err), 0);
    conn.table = table;
    db_begin(conn, NULL);
    CHECK_INT(once(conn, &args), IDEM_TX_FIRST);
    CHECK_INT(once(conn, &args), IDEM_TX_DUPLICATE);
    args.key_len = 2;
    CHECK_INT(once(conn, &args), IDEM_TX_FIRST);
    db_rollback(conn);
    idem_tx_table_free(table);
    db_close(conn);
    idem_guard_free(guard);
}

static int refused(struct idem_sql conn, struct idem_tx_columns columns) {
    struct idem_tx_table *table = NULL;
    int rc = idem_tx_table_new(conn, &columns, &table, &err);

    CHECK(rc == 0 || table == NULL);
    idem_tx_table_free(table);
    return rc;
}

TEST(a_table_that_cannot_guard_is_refused) {
    struct idem_sql conn = db_open(NULL);
    const struct idem_tx_columns loose = {.table = "loose", .key = "a", .source = "b"};
    struct idem_tx_columns columns = loose;

    db_do(conn, "CREATE TABLE loose (a VARCHAR(20), b VARCHAR(20), c INTEGER UNIQUE, "
                "UNIQUE (a, b, c))");
    db_do(conn, "CREATE INDEX loose_ab ON loose (a, b)");
    CHECK(refused(conn, loose) != 0); /* unique together with a third column, or not at all */
    columns = (struct idem_tx_columns){.table = "loose", .key = "c"};
    CHECK_INT(refused(conn, columns), 0);
    columns.table = db_kind == IDEM_SQL_POSTGRES ? "public.loose"
                    : db_kind == IDEM_SQL_MYSQL  ? "idem.loose"
                                                 : "main.loose";
    CHECK_INT(refused(conn, columns), 0);
    columns.result = "no such column";
    CHECK_INT(refused(conn, columns), IDEM_E_REFUSED);
    columns = (struct idem_tx_columns){.table = "none", .key = "c"};
    CHECK_INT(refused(conn, columns), IDEM_E_REFUSED);
    columns = (struct idem_tx_columns){.table = "loose"};
    CHECK_INT(refused(conn, columns), IDEM_E_INVALID);
    columns = (struct idem_tx_columns){.key = "c"};
    CHECK_INT(refused(conn, columns), IDEM_E_INVALID);
    if (db_kind == IDEM_SQL_MYSQL) { /* an index on the first letters */
        db_do(conn, "CREATE UNIQUE INDEX loose_part ON loose (a(3), b(3))");
        CHECK_INT(refused(conn, loose), IDEM_E_INVALID);
        /* Without transactions, the guard's row would stay when everything else is rolled back. */
        db_do(conn, "CREATE TABLE isam (c INTEGER NOT NULL PRIMARY KEY) ENGINE=MyISAM");
        columns = (struct idem_tx_columns){.table = "isam", .key = "c"};
        CHECK_INT(refused(conn, columns), IDEM_E_INVALID);
        CHECK_HAS(err.text, "without transactions");
    }
    db_do(conn, "CREATE UNIQUE INDEX loose_whole ON loose (b, a)");
    CHECK_INT(refused(conn, loose), 0);
    db_close(conn);
}

TEST(who_is_asking_is_said_where_there_is_a_column_for_it) {
    struct idem_sql conn = db_open(NULL);
    const struct idem_tx_columns alone = {.table = "lonely", .key = "k"},
                                 both = {.table = "lonely", .key = "k", .source = "s"};
    struct idem_args anybody = db_key("k"), somebody = scoped("app", "k");
    struct idem_tx_table *one, *two;
    struct idem_tx_answer answer;

    guard = db_guard("lonely:");
    db_do(conn,
          "CREATE TABLE lonely (k VARCHAR(20) NOT NULL UNIQUE, s VARCHAR(20), UNIQUE (k, s))");
    CHECK_INT(idem_tx_table_new(conn, &alone, &one, &err), 0);
    CHECK_INT(idem_tx_table_new(conn, &both, &two, &err), 0);
    db_begin(conn, NULL);
    conn.table = one;
    CHECK_INT(idem_tx_once(conn, guard, &somebody, &answer, &err), IDEM_E_INVALID);
    CHECK_HAS(err.text, "would meet");
    CHECK_INT(once(conn, &anybody), IDEM_TX_FIRST);
    conn.table = two;
    CHECK_INT(idem_tx_once(conn, guard, &anybody, &answer, &err), IDEM_E_INVALID);
    CHECK_HAS(err.text, "idem_args.scope");
    db_rollback(conn);
    idem_tx_table_free(one);
    idem_tx_table_free(two);
    db_close(conn);
    idem_guard_free(guard);
}

/* At the same moment. */

static struct flavour flavour;

static int work(struct idem_tx *tx, void *data) {
    (void)data;
    return db_try(idem_tx_conn(tx), "UPDATE work SET n = n + 1 WHERE id = 1", &err);
}

static void one_of_many(int i) {
    const struct idem_tx_options options = {
        .isolation = flavour.isolation, .attempts = 100, .backoff_max_ms = 20};
    struct idem_sql conn = db_open(&flavour);
    struct idem_tx_table *table;

    (void)i;
    CHECK_INT(idem_tx_table_new(conn, &all, &table, &err), 0);
    conn.table = table;
    for (int round = 0; round < 8; round++) {
        struct idem_args args;
        struct idem_tx_answer answer;
        char key[32];
        int rc;

        snprintf(key, sizeof(key), "crowd-%d-%d", flavour.n, round);
        args = scoped("app", key);
        rc = idem_tx_call(conn, guard, &args, &options, work, NULL, &answer, &err);
        if (rc != 0)
            fprintf(stderr, "# %s\n", err.text);
        CHECK_INT(rc, 0);
        idem_tx_answer_release(&answer);
    }
    idem_tx_table_free(table);
    db_close(conn);
}

TEST(of_duplicates_at_the_same_moment_one_does_it) {
    struct idem_sql conn = db_open(NULL);

    guard = db_guard("theirs:");
    db_do(conn, "DROP TABLE IF EXISTS dedup");
    dedup_make(conn);
    db_do(conn, "INSERT INTO work VALUES (1, 0)");
    EACH_FLAVOUR(f) {
        flavour = f;
        db_do(conn, "UPDATE work SET n = 0 WHERE id = 1");
        db_crowd(5, one_of_many);
        CHECK_INT(db_ask(conn, "SELECT n FROM work WHERE id = 1"), 8);
    }
    db_close(conn);
    idem_guard_free(guard);
}

DB_MAIN
