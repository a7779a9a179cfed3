/*
 * Updates that happen once: by the version that the writer read, or by the state that a row leaves.
 * Both always change a column, so it does not matter whether the engine counts rows found or rows
 * changed (CLIENT_FOUND_ROWS). If the update changed no row, the recipe reads the current row to
 * find the reason.
 */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "tx/recipe.h"

static void recipe_append_update(const struct idem_recipe *recipe, struct idem_query *q) {
    idem_query_begin(q, recipe->conn, recipe->dialect);
    idem_query_say(q, "UPDATE ");
    idem_query_name(q, recipe->row->table);
    idem_query_say(q, " SET ");
    idem_recipe_set(recipe, q);
    idem_query_say(q, recipe->row->values_n == 0 ? "" : ", ");
}

/* Appends the row's key, and the condition that the column still has this value. */
static void recipe_append_condition(const struct idem_recipe *recipe, struct idem_query *q,
                                    const char *column, struct idem_sql_value value) {
    idem_recipe_where(recipe, q);
    idem_query_say(q, " AND ");
    idem_query_equal(q, column, value);
}

/* By version. */

/* *ret_kept: the engine warned, so the column may not hold the new value. */
static int recipe_version_try(const struct idem_recipe *recipe, const char *column, int64_t version,
                              bool *ret_won, bool *ret_kept, struct idem_error *err) {
    struct idem_query q;

    recipe_append_update(recipe, &q);
    idem_query_column(&q, column);
    idem_query_say(&q, " = ");
    idem_query_column(&q, column);
    idem_query_say(&q, " + 1");
    recipe_append_condition(recipe, &q, column, idem_sql_int(version));
    return idem_recipe_change(&q, ret_won, ret_kept, err);
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
static int recipe_version_read(const struct idem_recipe *recipe, const char *column,
                               int64_t version, enum idem_sql_verdict *ret, int64_t *ret_present,
                               bool *ret_over, struct idem_error *err) {
    struct idem_reply reply;
    int rc = idem_recipe_present(recipe, column, false, &reply, err);

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
static int recipe_version_check_growth(const struct idem_recipe *recipe, const char *column,
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

static int recipe_version_run(const struct idem_recipe *recipe, const char *column, int64_t version,
                              enum idem_sql_verdict *ret, int64_t *ret_present,
                              struct idem_error *err) {
    bool over = false, kept = false;
    int rc = 0;

    for (int i = 0; i < IDEM_RECIPE_TRIES && rc == 0 && !over; i++) {
        *ret = IDEM_SQL_WON;
        *ret_present = version + 1;
        rc = recipe_version_try(recipe, column, version, &over, &kept, err);
        if (rc == 0 && kept)
            rc = recipe_version_check_growth(recipe, column, version, err);
        if (rc == 0 && !over)
            rc = recipe_version_read(recipe, column, version, ret, ret_present, &over, err);
    }
    return rc == 0 && !over ? idem_recipe_restless(err) : rc;
}

int idem_sql_update_version(struct idem_sql conn, const struct idem_sql_row *row,
                            const char *column, int64_t version, int64_t *ret_present,
                            enum idem_sql_verdict *ret, struct idem_error *err) {
    struct idem_recipe recipe;
    enum idem_sql_verdict verdict = 0;
    int64_t present = 0;
    int rc = idem_need(row, err) ?: idem_need(column, err) ?: idem_need(ret, err);

    if (rc == 0 && version == INT64_MAX)
        rc = idem_error_set(err, IDEM_E_INVALID, "there is no version behind the last number");
    if (rc != 0 || (rc = idem_recipe_begin(&recipe, conn, row, err)) != 0 ||
        (rc = idem_recipe_apart(&recipe, column, err)) != 0 ||
        (rc = recipe_version_run(&recipe, column, version, &verdict, &present, err)) != 0)
        return rc;
    if (ret_present != NULL)
        *ret_present = present;
    *ret = verdict;
    return 0;
}

/* By state. */

struct move {
    struct idem_recipe recipe;
    const char *column;
    const struct idem_moves *moves;
    int from, to;
};

static int move_try(const struct move *m, bool *ret_moved, struct idem_error *err) {
    struct idem_query q;

    recipe_append_update(&m->recipe, &q);
    idem_query_column(&q, m->column);
    idem_query_say(&q, " = ");
    idem_query_value(&q, idem_sql_text(idem_moves_name(m->moves, m->to)));
    recipe_append_condition(&m->recipe, &q, m->column,
                            idem_sql_text(idem_moves_name(m->moves, m->from)));
    return idem_recipe_change(&q, ret_moved, NULL, err);
}

/* True if the row has made the move. For a move back to an earlier state this cannot be known:
   every row in `from` has been in `to` before. */
static bool move_done(const struct move *m, int state) {
    if (state == m->to)
        return true;
    return state >= 0 && idem_moves_passed(m->moves, state, m->to) &&
           !idem_moves_passed(m->moves, m->from, m->to);
}

/* Sets *ret_over if the row is not in the state that it should leave. */
static int move_look(const struct move *m, enum idem_sql_verdict *ret, int *ret_state,
                     bool *ret_over, struct idem_error *err) {
    struct idem_reply reply;
    int rc = idem_recipe_present(&m->recipe, m->column, true, &reply, err);

    if (rc != 0)
        return rc;
    *ret_state = reply.rows == 0 || reply.cells[0].type == IDEM_SQL_NULL
                     ? -1
                     : idem_moves_find(m->moves, reply.cells[0].at, reply.cells[0].len);
    *ret_over = *ret_state != m->from;
    if (reply.rows == 0)
        *ret = IDEM_SQL_GONE;
    else
        *ret = move_done(m, *ret_state) ? IDEM_SQL_ALREADY : IDEM_SQL_FORBIDDEN;
    idem_reply_release(&reply);
    return 0;
}

static int move_begin(struct move *m, const char *from, const char *to, struct idem_error *err) {
    m->from = idem_moves_find(m->moves, from, strlen(from));
    m->to = idem_moves_find(m->moves, to, strlen(to));
    if (m->from >= 0 && m->to >= 0 && idem_moves_allow(m->moves, m->from, m->to))
        return 0;
    return idem_error_set(err, IDEM_E_INVALID, "no move from \"%s\" to \"%s\" was declared", from,
                          to);
}

static int move_run(const struct move *m, enum idem_sql_verdict *ret, int *ret_state,
                    struct idem_error *err) {
    bool over = false;
    int rc = 0;

    for (int i = 0; i < IDEM_RECIPE_TRIES && rc == 0 && !over; i++) {
        *ret = IDEM_SQL_MOVED;
        *ret_state = m->to;
        rc = move_try(m, &over, err);
        if (rc == 0 && !over)
            rc = move_look(m, ret, ret_state, &over, err);
    }
    return rc == 0 && !over ? idem_recipe_restless(err) : rc;
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
        (rc = idem_recipe_begin(&m.recipe, conn, row, err)) != 0 ||
        (rc = idem_recipe_apart(&m.recipe, column, err)) != 0 ||
        (rc = move_run(&m, &verdict, &state, err)) != 0)
        return rc;
    if (ret_state != NULL)
        *ret_state = state < 0 ? NULL : idem_moves_name(moves, state);
    *ret = verdict;
    return 0;
}
