/*
 * The pessimistic lock: a row that stays as it is until the end of the transaction. What is read
 * with the lock is the present row; a plain SELECT behind it may show what the transaction saw
 * first.
 *
 * A lock that is not to be had leaves the transaction whole on every engine. For PostgreSQL, which
 * fails a transaction with NOWAIT, the row is asked for as one that may be skipped, and then
 * whether it is there; and a wait that ends is within a savepoint.
 */
#include <stdlib.h>

#include "core/error.h"
#include "sql/recipe.h"

/* One lock that is asked for. */
struct asking {
    struct idem_recipe recipe;
    const char *const *columns;
    size_t n;
    int64_t wait_ms;
    struct idem_reply reply; /* the row, once it is locked */
};

static int row_ask(struct asking *a, const char *clause, enum idem_sql_verdict *ret,
                   struct idem_error *err) {
    struct idem_query q;
    int rc;

    idem_query_begin(&q, a->recipe.conn, a->recipe.dialect);
    idem_query_say(&q, "SELECT ");
    for (size_t i = 0; i < a->n; i++) {
        idem_query_say(&q, i == 0 ? "" : ", ");
        idem_query_column(&q, a->columns[i]);
    }
    idem_query_say(&q, a->n == 0 ? "1 FROM " : " FROM ");
    idem_query_name(&q, a->recipe.row->table);
    idem_recipe_where(&a->recipe, &q);
    idem_query_say(&q, clause);
    rc = idem_recipe_say(&q, &a->reply, err);
    if (rc == 0 && a->reply.rows > 1) {
        idem_reply_release(&a->reply);
        return idem_error_set(err, IDEM_E_INVALID,
                              "%zu rows were locked: what was given as the row's key is none",
                              a->reply.rows);
    }
    *ret = a->reply.rows == 1 ? IDEM_SQL_LOCKED : IDEM_SQL_GONE;
    return rc;
}

/* A refusal for somebody else's lock, which undid the statement alone, is an answer. */
static int locked_turn(const struct asking *a, int rc, enum idem_sql_verdict *ret) {
    if (rc != IDEM_E_RETRY_TX || a->reply.why != IDEM_WHY_LOCKED)
        return rc;
    *ret = IDEM_SQL_BUSY;
    return 0;
}

static int lock_skip(struct asking *a, enum idem_sql_verdict *ret, struct idem_error *err) {
    int rc = row_ask(a, a->recipe.dialect->lock_free, ret, err);

    if (rc == 0 && *ret == IDEM_SQL_GONE)
        *ret = IDEM_SQL_SKIPPED;
    return rc;
}

static int lock_now(struct asking *a, enum idem_sql_verdict *ret, struct idem_error *err) {
    const struct idem_dialect *dialect = a->recipe.dialect;
    bool there;
    int rc;

    if (dialect->lock_now != NULL)
        return locked_turn(a, row_ask(a, dialect->lock_now, ret, err), ret);
    rc = row_ask(a, dialect->lock_free, ret, err);
    if (rc != 0 || *ret == IDEM_SQL_LOCKED)
        return rc;
    rc = idem_recipe_exists(&a->recipe, "", &there, err);
    if (rc == 0 && there)
        *ret = IDEM_SQL_BUSY;
    return rc;
}

static int lock_bounded(struct asking *a, enum idem_sql_verdict *ret, struct idem_error *err) {
    const struct idem_dialect *dialect = a->recipe.dialect;
    struct idem_wait wait = idem_wait_of(a->wait_ms);
    int rc = dialect->wait_begin(a->recipe.conn, &wait, err);
    bool busy;

    if (rc != 0)
        return rc;
    rc = locked_turn(a, row_ask(a, dialect->lock, ret, err), ret);
    busy = rc == 0 && *ret == IDEM_SQL_BUSY;
    /* After another failure there is nothing to go back to; only MySQL's limit outlives it. */
    if (wait.set && rc != 0)
        (void)dialect->wait_end(a->recipe.conn, &wait, IDEM_WAIT_ROLLED_BACK, NULL);
    else if (wait.set)
        rc =
            dialect->wait_end(a->recipe.conn, &wait, busy ? IDEM_WAIT_LOCKED : IDEM_WAIT_DONE, err);
    return rc;
}

static int lock_ask(struct asking *a, enum idem_sql_verdict *ret, struct idem_error *err) {
    if (a->wait_ms == IDEM_SKIP_LOCKED)
        return lock_skip(a, ret, err);
    if (a->wait_ms == IDEM_NONE)
        return lock_now(a, ret, err);
    if (a->wait_ms == 0)
        return row_ask(a, a->recipe.dialect->lock, ret, err);
    return lock_bounded(a, ret, err);
}

static int asking_check(const struct asking *a, const struct idem_sql_cells *cells,
                        struct idem_error *err) {
    if (a->wait_ms < IDEM_SKIP_LOCKED)
        return idem_error_set(err, IDEM_E_INVALID,
                              "wait_ms is negative, and neither IDEM_NONE nor IDEM_SKIP_LOCKED");
    if (a->n > IDEM_SQL_COLUMNS_MAX || (a->n > 0 && (a->columns == NULL || cells == NULL)))
        return idem_error_set(err, IDEM_E_INVALID,
                              "at most %d columns can be read with a lock, and they need names and "
                              "ret_cells",
                              IDEM_SQL_COLUMNS_MAX);
    for (size_t i = 0; i < a->n; i++) {
        if (a->columns[i] == NULL)
            return idem_error_set(err, IDEM_E_INVALID, "a column to be read has no name");
    }
    return a->recipe.dialect->inside(a->recipe.conn, err);
}

int idem_sql_lock(struct idem_sql conn, const struct idem_sql_row *row, int64_t wait_ms,
                  const char *const *columns, size_t n, struct idem_sql_cells *ret_cells,
                  enum idem_sql_verdict *ret, struct idem_error *err) {
    struct asking a = {.columns = columns, .n = n, .wait_ms = wait_ms};
    enum idem_sql_verdict verdict = 0;
    int rc = idem_need(row, err) ?: idem_need(ret, err);

    if (rc != 0 || (rc = idem_recipe_begin(&a.recipe, conn, row, err)) != 0 ||
        (rc = asking_check(&a, ret_cells, err)) != 0)
        return rc;
    rc = lock_ask(&a, &verdict, err);
    if (rc == 0 && ret_cells != NULL)
        *ret_cells = verdict == IDEM_SQL_LOCKED && n > 0
                         ? (struct idem_sql_cells){a.reply.columns, a.reply.cells}
                         : (struct idem_sql_cells){0};
    if (rc != 0 || ret_cells == NULL || ret_cells->n == 0)
        idem_reply_release(&a.reply);
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
