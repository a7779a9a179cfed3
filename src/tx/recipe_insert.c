/*
 * Unique insert, upsert and delete by key.
 *
 * Where the engine has ON CONFLICT, the clause names this key, so that a conflict with another key
 * is an error. MySQL has no such clause: its conflict error is caught, and the row is looked for by
 * the key. Transactions that get this error share a lock on the row, and a write then may deadlock.
 * So an upsert in MySQL first looks for the row, and mostly finds that no insert is needed.
 */
#include "base/error.h"
#include "tx/recipe.h"

static void query_append_columns(struct idem_query *q, const struct idem_sql_column *columns,
                                 size_t n, bool values, const char **comma) {
    for (size_t i = 0; i < n; i++) {
        idem_query_say(q, *comma);
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

static void recipe_append_insert(const struct idem_recipe *recipe, struct idem_query *q) {
    const char *comma = "";

    idem_query_begin(q, recipe->conn, recipe->dialect);
    idem_query_say(q, "INSERT INTO ");
    idem_query_name(q, recipe->row->table);
    idem_query_say(q, " (");
    row_append(recipe->row, q, false);
    idem_query_say(q, ") VALUES (");
    row_append(recipe->row, q, true);
    idem_query_say(q, ")");
    if (recipe->dialect->on_conflict == NULL)
        return;
    idem_query_say(q, recipe->dialect->on_conflict);
    query_append_columns(q, recipe->row->key, recipe->row->key_n, false, &comma);
    idem_query_say(q, ") DO NOTHING");
}

/* Sets *ret_done if the row was absent and is inserted now. */
static int recipe_insert_row(const struct idem_recipe *recipe, bool *ret_done,
                             struct idem_error *err) {
    struct idem_error why;
    struct idem_reply reply;
    struct idem_query q;
    bool there;
    int rc;

    recipe_append_insert(recipe, &q);
    rc = idem_recipe_say(&q, &reply, &why);
    idem_reply_release(&reply);
    *ret_done = rc == 0 && reply.changed == 1;
    if (rc == 0)
        return 0;
    if (reply.why != IDEM_WHY_CONFLICT || recipe->dialect->on_conflict != NULL)
        return idem_error_copy(err, &why);
    rc = idem_recipe_exists(recipe, recipe->dialect->present, &there, err);
    if (rc == 0 && !there)
        rc = idem_error_set(err, IDEM_E_REFUSED,
                            "another unique key of the table has such a row, or the row has gone "
                            "since, or the key was cut off by a lax sql_mode");
    return rc;
}

/* If the insert changed nothing, the row exists, or a trigger or policy kept it out, or the row was
   deleted since and the next attempt inserts it. */
static int recipe_insert_verified(const struct idem_recipe *recipe, enum idem_sql_verdict *ret,
                                  struct idem_error *err) {
    for (int i = 0; i < IDEM_RECIPE_TRIES; i++) {
        bool done, there = true;
        int rc = recipe_insert_row(recipe, &done, err);

        if (rc == 0 && !done && recipe->dialect->on_conflict != NULL)
            rc = idem_recipe_exists(recipe, recipe->dialect->present, &there, err);
        *ret = done ? IDEM_SQL_INSERTED : IDEM_SQL_ALREADY_THERE;
        if (rc != 0 || there)
            return rc;
    }
    return idem_error_set(
        err, IDEM_E_REFUSED,
        "the row was not inserted, and is not there: a trigger or a policy of the "
        "table keeps it out, or hides it");
}

int idem_sql_insert(struct idem_sql conn, const struct idem_sql_row *row,
                    enum idem_sql_verdict *ret, struct idem_error *err) {
    struct idem_recipe recipe;
    enum idem_sql_verdict verdict = 0;
    int rc = idem_need(row, err) ?: idem_need(ret, err);

    if (rc != 0 || (rc = idem_recipe_begin(&recipe, conn, row, err)) != 0 ||
        (rc = recipe_insert_verified(&recipe, &verdict, err)) != 0)
        return rc;
    *ret = verdict;
    return 0;
}

/* Sets *ret_done if the row exists. An update that changes nothing does not show that it is
   absent. */
static int recipe_update_row(const struct idem_recipe *recipe, bool *ret_done,
                             struct idem_error *err) {
    struct idem_query q;
    int rc;

    if (recipe->row->values_n == 0)
        return idem_recipe_exists(recipe, recipe->dialect->present, ret_done, err);
    idem_query_begin(&q, recipe->conn, recipe->dialect);
    idem_query_say(&q, "UPDATE ");
    idem_query_name(&q, recipe->row->table);
    idem_query_say(&q, " SET ");
    idem_recipe_set(recipe, &q);
    idem_recipe_where(recipe, &q);
    rc = idem_recipe_change(&q, ret_done, NULL, err);
    if (rc == 0 && !*ret_done)
        rc = idem_recipe_exists(recipe, recipe->dialect->present, ret_done, err);
    return rc;
}

static int recipe_upsert_row(const struct idem_recipe *recipe, enum idem_sql_verdict *ret,
                             struct idem_error *err) {
    bool there = false, done = false;
    int rc = 0;

    if (recipe->dialect->on_conflict == NULL)
        rc = idem_recipe_exists(recipe, "", &there, err);
    for (int i = 0; i < IDEM_RECIPE_TRIES && rc == 0; i++) {
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
    return rc != 0 ? rc : idem_recipe_restless(err);
}

int idem_sql_upsert(struct idem_sql conn, const struct idem_sql_row *row,
                    enum idem_sql_verdict *ret, struct idem_error *err) {
    struct idem_recipe recipe;
    enum idem_sql_verdict verdict = 0;
    int rc = idem_need(row, err) ?: idem_need(ret, err);

    if (rc != 0 || (rc = idem_recipe_begin(&recipe, conn, row, err)) != 0 ||
        (rc = recipe_upsert_row(&recipe, &verdict, err)) != 0)
        return rc;
    *ret = verdict;
    return 0;
}

int idem_sql_delete(struct idem_sql conn, const struct idem_sql_row *row,
                    enum idem_sql_verdict *ret, struct idem_error *err) {
    struct idem_recipe recipe;
    struct idem_query q;
    bool done;
    int rc = idem_need(row, err) ?: idem_need(ret, err);

    if (rc != 0 || (rc = idem_recipe_begin(&recipe, conn, row, err)) != 0)
        return rc;
    idem_query_begin(&q, conn, recipe.dialect);
    idem_query_say(&q, "DELETE FROM ");
    idem_query_name(&q, row->table);
    idem_recipe_where(&recipe, &q);
    rc = idem_recipe_change(&q, &done, NULL, err);
    if (rc == 0)
        *ret = done ? IDEM_SQL_DELETED : IDEM_SQL_ALREADY_GONE;
    return rc;
}
