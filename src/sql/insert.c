/*
 * Unique insert, upsert and delete by key.
 *
 * Where the engine can say "unless this key is there", it is said of this key, so that a conflict
 * with another one is an error. MySQL cannot: its error of a conflict is caught, and the row looked
 * for by the key. Whoever had that error shares a lock of the row with others who had it, and to
 * write then may be a deadlock; so an upsert looks there first, and mostly finds that it need not
 * insert.
 */
#include "core/error.h"
#include "sql/recipe.h"

static void columns_say(struct idem_query *q, const struct idem_sql_column *columns, size_t n,
                        bool values, const char **comma) {
    for (size_t i = 0; i < n; i++) {
        idem_query_say(q, *comma);
        *comma = ", ";
        if (values)
            idem_query_value(q, columns[i].value);
        else
            idem_query_column(q, columns[i].name);
    }
}

static void row_say(const struct idem_sql_row *row, struct idem_query *q, bool values) {
    const char *comma = "";

    columns_say(q, row->key, row->key_n, values, &comma);
    columns_say(q, row->values, row->values_n, values, &comma);
}

static void insert_say(const struct idem_recipe *recipe, struct idem_query *q) {
    const char *comma = "";

    idem_query_begin(q, recipe->conn, recipe->dialect);
    idem_query_say(q, "INSERT INTO ");
    idem_query_name(q, recipe->row->table);
    idem_query_say(q, " (");
    row_say(recipe->row, q, false);
    idem_query_say(q, ") VALUES (");
    row_say(recipe->row, q, true);
    idem_query_say(q, ")");
    if (recipe->dialect->on_conflict == NULL)
        return;
    idem_query_say(q, recipe->dialect->on_conflict);
    columns_say(q, recipe->row->key, recipe->row->key_n, false, &comma);
    idem_query_say(q, ") DO NOTHING");
}

/* *ret_done: it was not there, and is now. */
static int insert(const struct idem_recipe *recipe, bool *ret_done, struct idem_error *err) {
    struct idem_error why;
    struct idem_reply reply;
    struct idem_query q;
    bool there;
    int rc;

    insert_say(recipe, &q);
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

/* What was not inserted is there, or a trigger or a policy has kept it out; or it has gone since,
   and is inserted now. */
static int insert_sure(const struct idem_recipe *recipe, enum idem_sql_verdict *ret,
                       struct idem_error *err) {
    for (int i = 0; i < IDEM_RECIPE_TRIES; i++) {
        bool done, there = true;
        int rc = insert(recipe, &done, err);

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
        (rc = insert_sure(&recipe, &verdict, err)) != 0)
        return rc;
    *ret = verdict;
    return 0;
}

/* *ret_done: the row was there. That nothing changed does not say that it was not. */
static int update(const struct idem_recipe *recipe, bool *ret_done, struct idem_error *err) {
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

static int upsert(const struct idem_recipe *recipe, enum idem_sql_verdict *ret,
                  struct idem_error *err) {
    bool there = false, done = false;
    int rc = 0;

    if (recipe->dialect->on_conflict == NULL)
        rc = idem_recipe_exists(recipe, "", &there, err);
    for (int i = 0; i < IDEM_RECIPE_TRIES && rc == 0; i++) {
        if (!there) {
            rc = insert(recipe, &done, err);
            *ret = IDEM_SQL_INSERTED;
        }
        if (rc == 0 && !done) {
            rc = update(recipe, &done, err);
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
        (rc = upsert(&recipe, &verdict, err)) != 0)
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
