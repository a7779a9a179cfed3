/*
 * The pessimistic lock: a row that stays unchanged until the end of the transaction. A read with
 * the lock returns the current row; a later plain SELECT may show the transaction's older snapshot.
 *
 * A refused lock leaves the transaction usable on every engine. PostgreSQL fails the transaction on
 * NOWAIT, so there the row is read with SKIP LOCKED, and a second statement checks whether it
 * exists; a wait with a limit runs inside a savepoint.
 */
#include <stdlib.h>

#include "base/error.h"
#include "tx/recipe.h"

/* One request for a lock. */
struct lock_request {
    struct idem_recipe recipe;
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
    idem_query_say(&q, "SELECT ");
    for (size_t i = 0; i < request->n; i++) {
        idem_query_say(&q, i == 0 ? "" : ", ");
        idem_query_column(&q, request->columns[i]);
    }
    idem_query_say(&q, request->n == 0 ? "1 FROM " : " FROM ");
    idem_query_name(&q, request->recipe.row->table);
    idem_recipe_where(&request->recipe, &q);
    idem_query_say(&q, clause);
    rc = idem_recipe_say(&q, &request->reply, err);
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
    rc = idem_recipe_exists(&request->recipe, "", &there, err);
    if (rc == 0 && there)
        *ret = IDEM_SQL_BUSY;
    return rc;
}

static int lock_request_bounded(struct lock_request *request, enum idem_sql_verdict *ret,
                                struct idem_error *err) {
    const struct idem_dialect *dialect = request->recipe.dialect;
    struct idem_wait wait = idem_wait_of(request->wait_ms);
    int rc = dialect->wait_begin(request->recipe.conn, &wait, err);
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

    if (rc != 0 || (rc = idem_recipe_begin(&request.recipe, conn, row, err)) != 0 ||
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
