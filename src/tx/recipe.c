/*
 * Recipes for rows of the caller's own tables: insert, upsert and delete by key; the lock; the
 * moves between the states of a row; updates that happen once.
 */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/bytes.h"
#include "base/error.h"
#include "base/words.h"
#include "tx/tx_dialect.h"

/*
 * Shared by the recipes. Fails on rows without a key, which would match every row of the table, and
 * on a NULL in a key, which is equal to nothing.
 */

/* Attempts for a row that appears and disappears between two statements. */
#define RECIPE_TRIES 3

/* One call of a recipe. */
struct recipe {
    struct idem_sql conn;
    const struct idem_dialect *dialect;
    const struct idem_sql_row *row;
};

static int recipe_check_columns(const struct idem_sql_column *columns, size_t n, const char *what,
                                bool null, struct idem_error *err) {
    if (n > 0 && columns == NULL)
        return idem_error_set(err, IDEM_E_INVALID,
                              "idem_sql_row.%s is NULL, and its number is not 0", what);
    for (size_t i = 0; i < n; i++) {
        if (columns[i].name == NULL)
            return idem_error_set(err, IDEM_E_INVALID, "a column of idem_sql_row.%s has no name",
                                  what);
        if (!null && columns[i].value.type == IDEM_SQL_NULL)
            return idem_error_set(err, IDEM_E_INVALID,
                                  "a value of idem_sql_row.%s is NULL, which is equal to nothing",
                                  what);
    }
    return 0;
}

static const struct idem_sql_column *row_column_at(const struct idem_sql_row *row, size_t i) {
    return i < row->key_n ? &row->key[i] : &row->values[i - row->key_n];
}

/* Checks that none of the row's first n columns has this name. With a column named twice, SQLite
   and MySQL would take one of the two values, or both in turn. PostgreSQL's quoted names are
   case-sensitive. */
static int recipe_check_name(const struct recipe *recipe, size_t n, const char *name,
                             struct idem_error *err) {
    bool cased = recipe->conn.kind == IDEM_SQL_POSTGRES;

    for (size_t i = 0; i < n; i++) {
        const char *other = row_column_at(recipe->row, i)->name;

        if ((cased ? strcmp(name, other) : strcasecmp(name, other)) == 0)
            return idem_error_set(err, IDEM_E_INVALID, "a column of idem_sql_row is named twice");
    }
    return 0;
}

static int recipe_check_names(const struct recipe *recipe, struct idem_error *err) {
    size_t n = recipe->row->key_n + recipe->row->values_n;
    int rc = 0;

    for (size_t i = 1; i < n && rc == 0; i++)
        rc = recipe_check_name(recipe, i, row_column_at(recipe->row, i)->name, err);
    return rc;
}

/* Returns IDEM_E_INVALID if `column`, which the recipe writes itself, is one of the row's
   columns. */
static int recipe_check_apart(const struct recipe *recipe, const char *column,
                              struct idem_error *err) {
    return recipe_check_name(recipe, recipe->row->key_n + recipe->row->values_n, column, err);
}

/* Checks the connection and the row. */
static int recipe_begin(struct recipe *recipe, struct idem_sql conn, const struct idem_sql_row *row,
                        struct idem_error *err) {
    int rc;

    *recipe = (struct recipe){.conn = conn, .row = row};
    recipe->dialect = idem_dialect_of(conn, err);
    if (recipe->dialect == NULL)
        return IDEM_E_INVALID;
    if (row->table == NULL)
        return idem_error_set(err, IDEM_E_INVALID, "idem_sql_row.table is NULL, and is required");
    if (row->key_n == 0)
        return idem_error_set(err, IDEM_E_INVALID,
                              "idem_sql_row has no key, and without it every row would be meant");
    rc = recipe_check_columns(row->key, row->key_n, "key", false, err);
    if (rc == 0)
        rc = recipe_check_columns(row->values, row->values_n, "values", true, err);
    return rc != 0 ? rc : recipe_check_names(recipe, err);
}

/* Appends " WHERE key AND key". */
static void recipe_append_where(const struct recipe *recipe, struct idem_query *q) {
    const struct idem_sql_row *row = recipe->row;

    for (size_t i = 0; i < row->key_n; i++) {
        idem_query_add(q, i == 0 ? " WHERE " : " AND ");
        idem_query_equal(q, row->key[i].name, row->key[i].value);
    }
}

/* Begins the query: "UPDATE table SET name = value, name = value". */
static void recipe_append_update(const struct recipe *recipe, struct idem_query *q) {
    const struct idem_sql_row *row = recipe->row;

    idem_query_begin(q, recipe->conn, recipe->dialect);
    idem_query_add(q, "UPDATE ");
    idem_query_name(q, row->table);
    idem_query_add(q, " SET ");
    for (size_t i = 0; i < row->values_n; i++) {
        idem_query_add(q, i == 0 ? "" : ", ");
        idem_query_assign(q, row->values[i].name, row->values[i].value);
    }
}

static int recipe_refuse_key(size_t rows, struct idem_error *err) {
    return idem_error_set(err, IDEM_E_INVALID,
                          "%zu rows matched: the given columns are not a key; roll back", rows);
}

/* Runs the statement and ends the query. */
static int recipe_run(struct idem_query *q, struct idem_reply *ret, struct idem_error *err) {
    int rc = idem_query_run(q, ret, err);

    idem_query_end(q);
    return rc;
}

/* recipe_run() for a statement that changes rows; more than one row is an error. ret_warned may be
   NULL. */
static int recipe_change(struct idem_query *q, bool *ret_changed, bool *ret_warned,
                         struct idem_error *err) {
    struct idem_reply reply;
    int rc = recipe_run(q, &reply, err);

    idem_reply_release(&reply);
    if (rc != 0)
        return rc;
    if (reply.changed > 1)
        return recipe_refuse_key((size_t)reply.changed, err);
    *ret_changed = reply.changed == 1;
    if (ret_warned != NULL)
        *ret_warned = reply.warned;
    return 0;
}

/* Reads a column of the row as it is committed now, or as this transaction changed it. `text`
   converts the value to text in UTF-8, whatever its type. ret->rows is 0 if the row does not
   exist. */
static int recipe_read_present(const struct recipe *recipe, const char *column, bool text,
                               struct idem_reply *ret, struct idem_error *err) {
    struct idem_query q;

    idem_query_begin(&q, recipe->conn, recipe->dialect);
    idem_query_add(&q, "SELECT ");
    idem_query_add(&q, text ? recipe->dialect->text_open : "");
    idem_query_column(&q, column);
    idem_query_add(&q, text ? recipe->dialect->text_close : "");
    idem_query_add(&q, " FROM ");
    idem_query_name(&q, recipe->row->table);
    recipe_append_where(recipe, &q);
    idem_query_add(&q, recipe->dialect->present);
    return recipe_run(&q, ret, err);
}

static int recipe_exists(const struct recipe *recipe, const char *clause, bool *ret,
                         struct idem_error *err) {
    struct idem_query q;
    struct idem_reply reply;
    int rc;

    idem_query_begin(&q, recipe->conn, recipe->dialect);
    idem_query_add(&q, "SELECT 1 FROM ");
    idem_query_name(&q, recipe->row->table);
    recipe_append_where(recipe, &q);
    idem_query_add(&q, clause);
    rc = recipe_run(&q, &reply, err);
    idem_reply_release(&reply);
    if (rc == 0 && reply.rows > 1)
        rc = recipe_refuse_key(reply.rows, err);
    *ret = rc == 0 && reply.rows == 1;
    return rc;
}

/* For a row that one statement found and the next did not, RECIPE_TRIES times. */
static int recipe_report_restless(struct idem_error *err) {
    return idem_error_set(err, IDEM_E_RETRY_TX,
                          "the row comes and goes: roll back, and begin anew");
}

const char *idem_sql_verdict_name(enum idem_sql_verdict verdict) {
    static const struct idem_word words[] = {
        {"inserted", IDEM_SQL_INSERTED},
        {"already_there", IDEM_SQL_ALREADY_THERE},
        {"updated", IDEM_SQL_UPDATED},
        {"locked", IDEM_SQL_LOCKED},
        {"busy", IDEM_SQL_BUSY},
        {"skipped", IDEM_SQL_SKIPPED},
        {"won", IDEM_SQL_WON},
        {"stale", IDEM_SQL_STALE},
        {"gone", IDEM_SQL_GONE},
        {"moved", IDEM_SQL_MOVED},
        {"already", IDEM_SQL_ALREADY},
        {"forbidden", IDEM_SQL_FORBIDDEN},
        {"deleted", IDEM_SQL_DELETED},
        {"already_gone", IDEM_SQL_ALREADY_GONE},
        {NULL, 0},
    };

    return idem_word_name(words, (int)verdict);
}

/*
 * Unique insert, upsert and delete by key.
 *
 * Where the engine has ON CONFLICT, the clause names this key, so that a conflict with another key
 * is an error. MySQL has no such clause: its conflict error is caught, and the row is looked for by
 * the key. Transactions that get this error share a lock on the row, and a write then may deadlock.
 * So an upsert in MySQL first looks for the row, and mostly finds that no insert is needed.
 */

static void query_append_columns(struct idem_query *q, const struct idem_sql_column *columns,
                                 size_t n, bool values, const char **comma) {
    for (size_t i = 0; i < n; i++) {
        idem_query_add(q, *comma);
        *comma = ", ";
        if (values)
            idem_query_value(q, columns[i].value);
        else
            idem_query_column(q, columns[i].name);
    }
}

static void row_append(const struct idem_sql_row *row, struct idem_query *q, bool values) {
    const char *comma = "";

    query_append_columns(q, row->key, row->key_n, values, &comma);
    query_append_columns(q, row->values, row->values_n, values, &comma);
}

static void recipe_append_insert(const struct recipe *recipe, struct idem_query *q) {
    const char *comma = "";

    idem_query_begin(q, recipe->conn, recipe->dialect);
    idem_query_add(q, "INSERT INTO ");
    idem_query_name(q, recipe->row->table);
    idem_query_add(q, " (");
    row_append(recipe->row, q, false);
    idem_query_add(q, ") VALUES (");
    row_append(recipe->row, q, true);
    idem_query_add(q, ")");
    if (recipe->dialect->on_conflict == NULL)
        return;
    idem_query_add(q, recipe->dialect->on_conflict);
    query_append_columns(q, recipe->row->key, recipe->row->key_n, false, &comma);
    idem_query_add(q, ") DO NOTHING");
}

/* Sets *ret_done if the row was absent and is inserted now. */
static int recipe_insert_row(const struct recipe *recipe, bool *ret_done, struct idem_error *err) {
    struct idem_error why;
    struct idem_reply reply;
    struct idem_query q;
    bool there;
    int rc;

    recipe_append_insert(recipe, &q);
    rc = recipe_run(&q, &reply, &why);
    idem_reply_release(&reply);
    *ret_done = rc == 0 && reply.changed == 1;
    if (rc == 0)
        return 0;
    if (reply.why != IDEM_WHY_CONFLICT || recipe->dialect->on_conflict != NULL)
        return idem_error_copy(err, &why);
    rc = recipe_exists(recipe, recipe->dialect->present, &there, err);
    if (rc == 0 && !there)
        rc = idem_error_set(err, IDEM_E_REFUSED,
                            "another unique key of the table has such a row, or the row has gone "
                            "since, or the key was cut off by a lax sql_mode");
    return rc;
}

/* If the insert changed nothing, the row exists, or a trigger or policy kept it out, or the row was
   deleted since and the next attempt inserts it. */
static int recipe_insert_verified(const struct recipe *recipe, enum idem_sql_verdict *ret,
                                  struct idem_error *err) {
    for (int i = 0; i < RECIPE_TRIES; i++) {
        bool done, there = true;
        int rc = recipe_insert_row(recipe, &done, err);

        if (rc == 0 && !done && recipe->dialect->on_conflict != NULL)
            rc = recipe_exists(recipe, recipe->dialect->present, &there, err);
        *ret = done ? IDEM_SQL_INSERTED : IDEM_SQL_ALREADY_THERE;
        if (rc != 0 || there)
            return rc;
    }
    return idem_error_set(
        err, IDEM_E_REFUSED,
        "the row was not inserted, and is not there: a trigger or a policy of the "
        "table keeps it out, or hides it");
}

typedef int recipe_fn(const struct recipe *recipe, enum idem_sql_verdict *ret,
                      struct idem_error *err);

static int recipe_call(struct idem_sql conn, const struct idem_sql_row *row, recipe_fn *fn,
                       enum idem_sql_verdict *ret, struct idem_error *err) {
    struct recipe recipe;
    enum idem_sql_verdict verdict = 0;
    int rc = idem_need(row, err) ?: idem_need(ret, err);

    if (rc != 0 || (rc = recipe_begin(&recipe, conn, row, err)) != 0 ||
        (rc = fn(&recipe, &verdict, err)) != 0)
        return rc;
    *ret = verdict;
    return 0;
}

int idem_sql_insert(struct idem_sql conn, const struct idem_sql_row *row,
                    enum idem_sql_verdict *ret, struct idem_error *err) {
    return recipe_call(conn, row, recipe_insert_verified, ret, err);
}

/* Sets *ret_done if the row exists. An update that changes nothing does not show that it is
   absent. */
static int recipe_update_row(const struct recipe *recipe, bool *ret_done, struct idem_error *err) {
    struct idem_query q;
    int rc;

    if (recipe->row->values_n == 0)
        return recipe_exists(recipe, recipe->dialect->present, ret_done, err);
    recipe_append_update(recipe, &q);
    recipe_append_where(recipe, &q);
    rc = recipe_change(&q, ret_done, NULL, err);
    if (rc == 0 && !*ret_done)
        rc = recipe_exists(recipe, recipe->dialect->present, ret_done, err);
    return rc;
}

static int recipe_upsert_row(const struct recipe *recipe, enum idem_sql_verdict *ret,
                             struct idem_error *err) {
    bool there = false, done = false;
    int rc = 0;

    if (recipe->dialect->on_conflict == NULL)
        rc = recipe_exists(recipe, "", &there, err);
    for (int i = 0; i < RECIPE_TRIES && rc == 0; i++) {
        if (!there) {
            rc = recipe_insert_row(recipe, &done, err);
            *ret = IDEM_SQL_INSERTED;
        }
        if (rc == 0 && !done) {
            rc = recipe_update_row(recipe, &done, err);
            *ret = IDEM_SQL_UPDATED;
        }
        if (rc == 0 && done)
            return 0;
        there = false;
    }
    return rc != 0 ? rc : recipe_report_restless(err);
}

int idem_sql_upsert(struct idem_sql conn, const struct idem_sql_row *row,
                    enum idem_sql_verdict *ret, struct idem_error *err) {
    return recipe_call(conn, row, recipe_upsert_row, ret, err);
}

static int recipe_delete_row(const struct recipe *recipe, enum idem_sql_verdict *ret,
                             struct idem_error *err) {
    struct idem_query q;
    bool done = false;
    int rc;

    idem_query_begin(&q, recipe->conn, recipe->dialect);
    idem_query_add(&q, "DELETE FROM ");
    idem_query_name(&q, recipe->row->table);
    recipe_append_where(recipe, &q);
    rc = recipe_change(&q, &done, NULL, err);
    *ret = done ? IDEM_SQL_DELETED : IDEM_SQL_ALREADY_GONE;
    return rc;
}

int idem_sql_delete(struct idem_sql conn, const struct idem_sql_row *row,
                    enum idem_sql_verdict *ret, struct idem_error *err) {
    return recipe_call(conn, row, recipe_delete_row, ret, err);
}

/*
 * The pessimistic lock: a row that stays unchanged until the end of the transaction. A read with
 * the lock returns the current row; a later plain SELECT may show the transaction's older snapshot.
 *
 * A refused lock leaves the transaction usable on every engine. PostgreSQL fails the transaction on
 * NOWAIT, so there the row is read with SKIP LOCKED, and a second statement checks whether it
 * exists; a wait with a limit runs inside a savepoint.
 */

/* One request for a lock. */
struct lock_request {
    struct recipe recipe;
    const char *const *columns;
    size_t n;
    int64_t wait_ms;
    struct idem_reply reply; /* the row, once it is locked */
};

static int lock_request_select(struct lock_request *request, const char *clause,
                               enum idem_sql_verdict *ret, struct idem_error *err) {
    struct idem_query q;
    int rc;

    idem_query_begin(&q, request->recipe.conn, request->recipe.dialect);
    idem_query_add(&q, "SELECT ");
    for (size_t i = 0; i < request->n; i++) {
        idem_query_add(&q, i == 0 ? "" : ", ");
        idem_query_column(&q, request->columns[i]);
    }
    idem_query_add(&q, request->n == 0 ? "1 FROM " : " FROM ");
    idem_query_name(&q, request->recipe.row->table);
    recipe_append_where(&request->recipe, &q);
    idem_query_add(&q, clause);
    rc = recipe_run(&q, &request->reply, err);
    if (rc == 0 && request->reply.rows > 1) {
        idem_reply_release(&request->reply);
        return idem_error_set(err, IDEM_E_INVALID,
                              "%zu rows were locked: the given columns are not a key",
                              request->reply.rows);
    }
    *ret = request->reply.rows == 1 ? IDEM_SQL_LOCKED : IDEM_SQL_GONE;
    return rc;
}

/* If another transaction's lock undid only this statement, the verdict is busy, not an error. */
static int lock_request_busy(const struct lock_request *request, int rc,
                             enum idem_sql_verdict *ret) {
    if (rc != IDEM_E_RETRY_TX || request->reply.why != IDEM_WHY_LOCKED)
        return rc;
    *ret = IDEM_SQL_BUSY;
    return 0;
}

static int lock_request_skip(struct lock_request *request, enum idem_sql_verdict *ret,
                             struct idem_error *err) {
    int rc = lock_request_select(request, request->recipe.dialect->lock_free, ret, err);

    if (rc == 0 && *ret == IDEM_SQL_GONE)
        *ret = IDEM_SQL_SKIPPED;
    return rc;
}

static int lock_request_now(struct lock_request *request, enum idem_sql_verdict *ret,
                            struct idem_error *err) {
    const struct idem_dialect *dialect = request->recipe.dialect;
    bool there;
    int rc;

    if (dialect->lock_now != NULL)
        return lock_request_busy(request, lock_request_select(request, dialect->lock_now, ret, err),
                                 ret);
    rc = lock_request_select(request, dialect->lock_free, ret, err);
    if (rc != 0 || *ret == IDEM_SQL_LOCKED)
        return rc;
    rc = recipe_exists(&request->recipe, "", &there, err);
    if (rc == 0 && there)
        *ret = IDEM_SQL_BUSY;
    return rc;
}

static int lock_request_bounded(struct lock_request *request, enum idem_sql_verdict *ret,
                                struct idem_error *err) {
    const struct idem_dialect *dialect = request->recipe.dialect;
    struct idem_wait wait;
    int rc = idem_wait_begin(request->recipe.conn, dialect, request->wait_ms, &wait, err);
    bool busy;

    if (rc != 0)
        return rc;
    rc = lock_request_busy(request, lock_request_select(request, dialect->lock, ret, err), ret);
    busy = rc == 0 && *ret == IDEM_SQL_BUSY;
    /* After another failure there is no savepoint to return to; only MySQL's limit outlives it. */
    if (wait.set && rc != 0)
        (void)dialect->wait_end(request->recipe.conn, &wait, IDEM_WAIT_ROLLED_BACK, NULL);
    else if (wait.set)
        rc = dialect->wait_end(request->recipe.conn, &wait,
                               busy ? IDEM_WAIT_LOCKED : IDEM_WAIT_DONE, err);
    return rc;
}

static int lock_request_run(struct lock_request *request, enum idem_sql_verdict *ret,
                            struct idem_error *err) {
    if (request->wait_ms == IDEM_SKIP_LOCKED)
        return lock_request_skip(request, ret, err);
    if (request->wait_ms == IDEM_NONE)
        return lock_request_now(request, ret, err);
    if (request->wait_ms == 0)
        return lock_request_select(request, request->recipe.dialect->lock, ret, err);
    return lock_request_bounded(request, ret, err);
}

static int lock_request_check(const struct lock_request *request,
                              const struct idem_sql_cells *cells, struct idem_error *err) {
    if (request->wait_ms < IDEM_SKIP_LOCKED)
        return idem_error_set(err, IDEM_E_INVALID,
                              "wait_ms is negative, and neither IDEM_NONE nor IDEM_SKIP_LOCKED");
    if (request->n > IDEM_SQL_COLUMNS_MAX ||
        (request->n > 0 && (request->columns == NULL || cells == NULL)))
        return idem_error_set(err, IDEM_E_INVALID,
                              "at most %d columns can be read with a lock, and they need names and "
                              "ret_cells",
                              IDEM_SQL_COLUMNS_MAX);
    for (size_t i = 0; i < request->n; i++) {
        if (request->columns[i] == NULL)
            return idem_error_set(err, IDEM_E_INVALID, "a column to be read has no name");
    }
    return request->recipe.dialect->inside(request->recipe.conn, err);
}

int idem_sql_lock(struct idem_sql conn, const struct idem_sql_row *row, int64_t wait_ms,
                  const char *const *columns, size_t n, struct idem_sql_cells *ret_cells,
                  enum idem_sql_verdict *ret, struct idem_error *err) {
    struct lock_request request = {.columns = columns, .n = n, .wait_ms = wait_ms};
    enum idem_sql_verdict verdict = 0;
    int rc = idem_need(row, err) ?: idem_need(ret, err);

    if (rc != 0 || (rc = recipe_begin(&request.recipe, conn, row, err)) != 0 ||
        (rc = lock_request_check(&request, ret_cells, err)) != 0)
        return rc;
    rc = lock_request_run(&request, &verdict, err);
    if (rc == 0 && ret_cells != NULL)
        *ret_cells = verdict == IDEM_SQL_LOCKED && n > 0
                         ? (struct idem_sql_cells){request.reply.columns, request.reply.cells}
                         : (struct idem_sql_cells){0};
    if (rc != 0 || ret_cells == NULL || ret_cells->n == 0)
        idem_reply_release(&request.reply);
    if (rc == 0)
        *ret = verdict;
    return rc;
}

void idem_sql_cells_release(struct idem_sql_cells *cells) {
    if (cells == NULL)
        return;
    free(cells->at);
    *cells = (struct idem_sql_cells){0};
}

/*
 * The moves that a state may make. Sets of states are the bits of a word. Fails on invalid
 * declarations, and names the wrong word in the error.
 *
 * The current state of a row shows whether the row has been in a state: it has if, without that
 * state, no path leads from the first state to the current one. A cancelled order may or may not
 * have been paid; a shipped order was paid.
 */

#define STATES_MAX 64

struct idem_moves {
    size_t n;
    uint64_t next[STATES_MAX];   /* states that a move leads to from here */
    uint64_t passed[STATES_MAX]; /* states reached only through this one, and this one */
    const char *names[STATES_MAX];
    char text[]; /* the names */
};

static uint64_t moves_bit(size_t state) {
    return (uint64_t)1 << state;
}

/* The number of a state; -1 if it is not declared. */
static int moves_find(const struct idem_moves *moves, const char *state, size_t len) {
    for (size_t i = 0; i < moves->n; i++) {
        if (idem_is_word(state, len, moves->names[i]))
            return (int)i;
    }
    return -1;
}

static bool moves_allow(const struct idem_moves *moves, int from, int to) {
    return (moves->next[from] & moves_bit((size_t)to)) != 0;
}

/* True if every path to `state` leads through `to`, so that a row in `state` has been there. */
static bool moves_passed(const struct idem_moves *moves, int state, int to) {
    return (moves->passed[to] & moves_bit((size_t)state)) != 0;
}

/* States that can be reached from the first state without passing through `without`. */
static uint64_t moves_reach(const struct idem_moves *moves, uint64_t without) {
    uint64_t found = moves_bit(0) & ~without, before;

    do {
        before = found;
        for (size_t i = 0; i < moves->n; i++) {
            if ((found & moves_bit(i)) != 0)
                found |= moves->next[i] & ~without;
        }
    } while (found != before);
    return found;
}

static int moves_refuse_state(struct idem_error *err, const char *name, const char *what) {
    char quoted[IDEM_QUOTE_TEXT];

    return idem_error_set(err, IDEM_E_INVALID, "moves: the state %s %s",
                          idem_error_quote(name, strlen(name), quoted, sizeof(quoted)), what);
}

/* Splits the text into names. */
static int moves_read_states(struct idem_moves *moves, struct idem_error *err) {
    char *at = moves->text, *end;

    for (at += strspn(at, " "); *at != '\0'; at = end + strspn(end, " ")) {
        end = at + strcspn(at, " ");
        if (moves->n == STATES_MAX)
            return idem_error_set(err, IDEM_E_INVALID, "moves: there are more than %d states",
                                  STATES_MAX);
        if (moves_find(moves, at, (size_t)(end - at)) >= 0) {
            *end = '\0';
            return moves_refuse_state(err, at, "is declared twice");
        }
        if (*end != '\0')
            *end++ = '\0';
        moves->names[moves->n++] = at;
    }
    return moves->n > 0 ? 0 : idem_error_set(err, IDEM_E_INVALID, "moves: there are no states");
}

static int moves_read_move(struct idem_moves *moves, const struct idem_step *move,
                           struct idem_error *err) {
    const char *const ends[] = {move->from, move->to};
    int states[2];

    for (int i = 0; i < 2; i++) {
        if (ends[i] == NULL)
            return idem_error_set(err, IDEM_E_INVALID, "moves: a move lacks its %s",
                                  i == 0 ? "from" : "to");
        states[i] = moves_find(moves, ends[i], strlen(ends[i]));
        if (states[i] < 0)
            return moves_refuse_state(err, ends[i], "is in a move, and is not declared");
    }
    if (states[0] == states[1])
        return moves_refuse_state(err, ends[0], "moves to itself, which is no move");
    if (moves_allow(moves, states[0], states[1]))
        return moves_refuse_state(err, ends[0], "has one of its moves twice");
    moves->next[states[0]] |= moves_bit((size_t)states[1]);
    return 0;
}

static int moves_check_reach(struct idem_moves *moves, struct idem_error *err) {
    uint64_t all = moves_reach(moves, 0);

    for (size_t i = 0; i < moves->n; i++) {
        if ((all & moves_bit(i)) == 0)
            return moves_refuse_state(err, moves->names[i], "cannot be reached from the first one");
    }
    for (size_t i = 0; i < moves->n; i++)
        moves->passed[i] = all & ~moves_reach(moves, moves_bit(i));
    return 0;
}

int idem_moves_new(const char *states, const struct idem_step *moves, size_t n,
                   struct idem_moves **ret, struct idem_error *err) {
    struct idem_moves *made;
    int rc = idem_need(states, err) ?: idem_need(moves, err) ?: idem_need(ret, err);

    if (rc != 0)
        return rc;
    made = calloc(1, sizeof(*made) + strlen(states) + 1);
    if (made == NULL)
        return idem_error_set(err, IDEM_E_NOMEM, "no memory for moves");
    memcpy(made->text, states, strlen(states) + 1);
    rc = moves_read_states(made, err);
    for (size_t i = 0; i < n && rc == 0; i++)
        rc = moves_read_move(made, &moves[i], err);
    if (rc == 0)
        rc = moves_check_reach(made, err);
    if (rc != 0) {
        idem_moves_free(made);
        return rc;
    }
    *ret = made;
    return 0;
}

void idem_moves_free(struct idem_moves *moves) {
    free(moves);
}

/*
 * Updates that happen once: by the version that the writer read, or by the state that a row leaves.
 * Both always change a column, so it does not matter whether the engine counts rows found or rows
 * changed (CLIENT_FOUND_ROWS). If the update changed no row, the recipe reads the current row to
 * find the reason.
 */

/* Appends the row's key, and the condition that the column still has this value. */
static void recipe_append_condition(const struct recipe *recipe, struct idem_query *q,
                                    const char *column, struct idem_sql_value value) {
    recipe_append_where(recipe, q);
    idem_query_add(q, " AND ");
    idem_query_equal(q, column, value);
}

/* By version. */

/* *ret_warned: the engine warned, so the column may not hold the new value. */
static int recipe_version_try(const struct recipe *recipe, const char *column, int64_t version,
                              bool *ret_won, bool *ret_warned, struct idem_error *err) {
    struct idem_query q;

    recipe_append_update(recipe, &q);
    idem_query_add(&q, recipe->row->values_n == 0 ? "" : ", ");
    idem_query_column(&q, column);
    idem_query_add(&q, " = ");
    idem_query_column(&q, column);
    idem_query_add(&q, " + 1");
    recipe_append_condition(recipe, &q, column, idem_sql_int(version));
    return recipe_change(&q, ret_won, ret_warned, err);
}

static int value_read_version(const struct idem_sql_value *cell, int64_t *ret,
                              struct idem_error *err) {
    char *end = NULL;

    if (cell->type == IDEM_SQL_NULL)
        return idem_error_set(err, IDEM_E_INVALID,
                              "the version of the row is NULL, which no update can be made by: "
                              "make its column NOT NULL");
    *ret = idem_cell_number(cell);
    if (cell->type == IDEM_SQL_TEXT)
        (void)strtoll(cell->at, &end, 10);
    if (cell->type == IDEM_SQL_BYTES || (end != NULL && *end != '\0'))
        return idem_error_set(err, IDEM_E_INVALID, "the version of the row is no whole number");
    return 0;
}

/* Sets *ret_over if the row does not have the requested version. */
static int recipe_version_read(const struct recipe *recipe, const char *column, int64_t version,
                               enum idem_sql_verdict *ret, int64_t *ret_present, bool *ret_over,
                               struct idem_error *err) {
    struct idem_reply reply;
    int rc = recipe_read_present(recipe, column, false, &reply, err);

    if (rc != 0)
        return rc;
    *ret = reply.rows == 0 ? IDEM_SQL_GONE : IDEM_SQL_STALE;
    *ret_present = 0;
    if (reply.rows != 0)
        rc = value_read_version(&reply.cells[0], ret_present, err);
    *ret_over = reply.rows == 0 || *ret_present != version;
    idem_reply_release(&reply);
    return rc;
}

/* In a lax sql_mode, MySQL leaves a column unchanged if its value would overflow. */
static int recipe_version_check_growth(const struct recipe *recipe, const char *column,
                                       int64_t version, struct idem_error *err) {
    enum idem_sql_verdict ignored;
    int64_t present;
    bool grown = true;
    int rc = recipe_version_read(recipe, column, version, &ignored, &present, &grown, err);

    if (rc == 0 && !grown)
        rc = idem_error_set(err, IDEM_E_INVALID,
                            "the column of the version cannot hold the next one; roll back");
    return rc;
}

static int recipe_version_run(const struct recipe *recipe, const char *column, int64_t version,
                              enum idem_sql_verdict *ret, int64_t *ret_present,
                              struct idem_error *err) {
    bool over = false, warned = false;
    int rc = 0;

    for (int i = 0; i < RECIPE_TRIES && rc == 0 && !over; i++) {
        *ret = IDEM_SQL_WON;
        *ret_present = version + 1;
        rc = recipe_version_try(recipe, column, version, &over, &warned, err);
        if (rc == 0 && warned)
            rc = recipe_version_check_growth(recipe, column, version, err);
        if (rc == 0 && !over)
            rc = recipe_version_read(recipe, column, version, ret, ret_present, &over, err);
    }
    return rc == 0 && !over ? recipe_report_restless(err) : rc;
}

int idem_sql_update_version(struct idem_sql conn, const struct idem_sql_row *row,
                            const char *column, int64_t version, int64_t *ret_present,
                            enum idem_sql_verdict *ret, struct idem_error *err) {
    struct recipe recipe;
    enum idem_sql_verdict verdict = 0;
    int64_t present = 0;
    int rc = idem_need(row, err) ?: idem_need(column, err) ?: idem_need(ret, err);

    if (rc == 0 && version == INT64_MAX)
        rc = idem_error_set(err, IDEM_E_INVALID, "there is no version behind the last number");
    if (rc != 0 || (rc = recipe_begin(&recipe, conn, row, err)) != 0 ||
        (rc = recipe_check_apart(&recipe, column, err)) != 0 ||
        (rc = recipe_version_run(&recipe, column, version, &verdict, &present, err)) != 0)
        return rc;
    if (ret_present != NULL)
        *ret_present = present;
    *ret = verdict;
    return 0;
}

/* By state. */

struct move {
    struct recipe recipe;
    const char *column;
    const struct idem_moves *moves;
    int from, to;
};

static int move_try(const struct move *m, bool *ret_moved, struct idem_error *err) {
    struct idem_query q;

    recipe_append_update(&m->recipe, &q);
    idem_query_add(&q, m->recipe.row->values_n == 0 ? "" : ", ");
    idem_query_assign(&q, m->column, idem_sql_text(m->moves->names[m->to]));
    recipe_append_condition(&m->recipe, &q, m->column, idem_sql_text(m->moves->names[m->from]));
    return recipe_change(&q, ret_moved, NULL, err);
}

/* True if the row has made the move. For a move back to an earlier state this cannot be known:
   every row in `from` has been in `to` before. */
static bool move_done(const struct move *m, int state) {
    if (state == m->to)
        return true;
    return state >= 0 && moves_passed(m->moves, state, m->to) &&
           !moves_passed(m->moves, m->from, m->to);
}

/* Sets *ret_over if the row is not in the state that it should leave. */
static int move_read_state(const struct move *m, enum idem_sql_verdict *ret, int *ret_state,
                           bool *ret_over, struct idem_error *err) {
    struct idem_reply reply;
    int rc = recipe_read_present(&m->recipe, m->column, true, &reply, err);

    if (rc != 0)
        return rc;
    *ret_state = reply.rows == 0 || reply.cells[0].type == IDEM_SQL_NULL
                     ? -1
                     : moves_find(m->moves, reply.cells[0].at, reply.cells[0].len);
    *ret_over = *ret_state != m->from;
    if (reply.rows == 0)
        *ret = IDEM_SQL_GONE;
    else
        *ret = move_done(m, *ret_state) ? IDEM_SQL_ALREADY : IDEM_SQL_FORBIDDEN;
    idem_reply_release(&reply);
    return 0;
}

static int move_begin(struct move *m, const char *from, const char *to, struct idem_error *err) {
    m->from = moves_find(m->moves, from, strlen(from));
    m->to = moves_find(m->moves, to, strlen(to));
    if (m->from >= 0 && m->to >= 0 && moves_allow(m->moves, m->from, m->to))
        return 0;
    return idem_error_set(err, IDEM_E_INVALID, "no move from \"%s\" to \"%s\" was declared", from,
                          to);
}

static int move_run(const struct move *m, enum idem_sql_verdict *ret, int *ret_state,
                    struct idem_error *err) {
    bool over = false;
    int rc = 0;

    for (int i = 0; i < RECIPE_TRIES && rc == 0 && !over; i++) {
        *ret = IDEM_SQL_MOVED;
        *ret_state = m->to;
        rc = move_try(m, &over, err);
        if (rc == 0 && !over)
            rc = move_read_state(m, ret, ret_state, &over, err);
    }
    return rc == 0 && !over ? recipe_report_restless(err) : rc;
}

int idem_sql_move(struct idem_sql conn, const struct idem_sql_row *row, const char *column,
                  const struct idem_moves *moves, const char *from, const char *to,
                  const char **ret_state, enum idem_sql_verdict *ret, struct idem_error *err) {
    struct move m = {.column = column, .moves = moves};
    enum idem_sql_verdict verdict = 0;
    int state = -1;
    int rc = idem_need(row, err) ?: idem_need(column, err) ?: idem_need(moves, err);

    if (rc == 0)
        rc = idem_need(from, err) ?: idem_need(to, err) ?: idem_need(ret, err);
    if (rc != 0 || (rc = move_begin(&m, from, to, err)) != 0 ||
        (rc = recipe_begin(&m.recipe, conn, row, err)) != 0 ||
        (rc = recipe_check_apart(&m.recipe, column, err)) != 0 ||
        (rc = move_run(&m, &verdict, &state, err)) != 0)
        return rc;
    if (ret_state != NULL)
        *ret_state = state < 0 ? NULL : moves->names[state];
    *ret = verdict;
    return 0;
}
