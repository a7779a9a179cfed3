/*
 * Shared by the recipes. Fails on rows without a key, which would match every row of the table, and
 * on a NULL in a key, which is equal to nothing.
 */
#include "tx/recipe.h"

#include <string.h>
#include <strings.h>

#include "base/error.h"
#include "base/words.h"

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
static int recipe_check_name(const struct idem_recipe *recipe, size_t n, const char *name,
                             struct idem_error *err) {
    bool cased = recipe->conn.kind == IDEM_SQL_POSTGRES;

    for (size_t i = 0; i < n; i++) {
        const char *other = row_column_at(recipe->row, i)->name;

        if ((cased ? strcmp(name, other) : strcasecmp(name, other)) == 0)
            return idem_error_set(err, IDEM_E_INVALID, "a column of idem_sql_row is named twice");
    }
    return 0;
}

static int recipe_check_names(const struct idem_recipe *recipe, struct idem_error *err) {
    size_t n = recipe->row->key_n + recipe->row->values_n;
    int rc = 0;

    for (size_t i = 1; i < n && rc == 0; i++)
        rc = recipe_check_name(recipe, i, row_column_at(recipe->row, i)->name, err);
    return rc;
}

int idem_recipe_apart(const struct idem_recipe *recipe, const char *column,
                      struct idem_error *err) {
    return recipe_check_name(recipe, recipe->row->key_n + recipe->row->values_n, column, err);
}

int idem_recipe_begin(struct idem_recipe *recipe, struct idem_sql conn,
                      const struct idem_sql_row *row, struct idem_error *err) {
    int rc;

    *recipe = (struct idem_recipe){.conn = conn, .row = row};
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

void idem_recipe_where(const struct idem_recipe *recipe, struct idem_query *q) {
    const struct idem_sql_row *row = recipe->row;

    for (size_t i = 0; i < row->key_n; i++) {
        idem_query_say(q, i == 0 ? " WHERE " : " AND ");
        idem_query_equal(q, row->key[i].name, row->key[i].value);
    }
}

void idem_recipe_set(const struct idem_recipe *recipe, struct idem_query *q) {
    const struct idem_sql_row *row = recipe->row;

    for (size_t i = 0; i < row->values_n; i++) {
        idem_query_say(q, i == 0 ? "" : ", ");
        idem_query_column(q, row->values[i].name);
        idem_query_say(q, " = ");
        idem_query_value(q, row->values[i].value);
    }
}

static int recipe_refuse_key(size_t rows, struct idem_error *err) {
    return idem_error_set(err, IDEM_E_INVALID,
                          "%zu rows matched: the given columns are not a key; roll back", rows);
}

int idem_recipe_say(struct idem_query *q, struct idem_reply *ret, struct idem_error *err) {
    int rc = idem_query_run(q, ret, err);

    idem_query_end(q);
    return rc;
}

int idem_recipe_change(struct idem_query *q, bool *ret_changed, bool *ret_warned,
                       struct idem_error *err) {
    struct idem_reply reply;
    int rc = idem_recipe_say(q, &reply, err);

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

int idem_recipe_present(const struct idem_recipe *recipe, const char *column, bool text,
                        struct idem_reply *ret, struct idem_error *err) {
    struct idem_query q;

    idem_query_begin(&q, recipe->conn, recipe->dialect);
    idem_query_say(&q, "SELECT ");
    idem_query_say(&q, text ? recipe->dialect->text_open : "");
    idem_query_column(&q, column);
    idem_query_say(&q, text ? recipe->dialect->text_close : "");
    idem_query_say(&q, " FROM ");
    idem_query_name(&q, recipe->row->table);
    idem_recipe_where(recipe, &q);
    idem_query_say(&q, recipe->dialect->present);
    return idem_recipe_say(&q, ret, err);
}

int idem_recipe_exists(const struct idem_recipe *recipe, const char *clause, bool *ret,
                       struct idem_error *err) {
    struct idem_query q;
    struct idem_reply reply;
    int rc;

    idem_query_begin(&q, recipe->conn, recipe->dialect);
    idem_query_say(&q, "SELECT 1 FROM ");
    idem_query_name(&q, recipe->row->table);
    idem_recipe_where(recipe, &q);
    idem_query_say(&q, clause);
    rc = idem_recipe_say(&q, &reply, err);
    idem_reply_release(&reply);
    if (rc == 0 && reply.rows > 1)
        rc = recipe_refuse_key(reply.rows, err);
    *ret = rc == 0 && reply.rows == 1;
    return rc;
}

int idem_recipe_restless(struct idem_error *err) {
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
