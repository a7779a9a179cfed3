/*
 * What the recipes share: a row of the caller's, the statements that name it, and how they are
 * said.
 */
#ifndef IDEM_SQL_RECIPE_H
#define IDEM_SQL_RECIPE_H

#include "sql/dialect.h"

/* How often a row that comes and goes between two statements is asked for. */
#define IDEM_RECIPE_TRIES 3

/* One call of a recipe. */
struct idem_recipe {
    struct idem_sql conn;
    const struct idem_dialect *dialect;
    const struct idem_sql_row *row;
};

/* Checks connection and row. */
int idem_recipe_begin(struct idem_recipe *recipe, struct idem_sql conn,
                      const struct idem_sql_row *row, struct idem_error *err);

/* That a column which is written besides the row's is none of these. */
int idem_recipe_apart(const struct idem_recipe *recipe, const char *column, struct idem_error *err);

/* " WHERE key AND key" */
void idem_recipe_where(const struct idem_recipe *recipe, struct idem_query *q);
/* "name = value, name = value" */
void idem_recipe_set(const struct idem_recipe *recipe, struct idem_query *q);

/* Says it and ends it. */
int idem_recipe_say(struct idem_query *q, struct idem_reply *ret, struct idem_error *err);
/* The same for one that changes rows; more than one is an error. *ret_warned may be NULL. */
int idem_recipe_change(struct idem_query *q, bool *ret_changed, bool *ret_warned,
                       struct idem_error *err);

/* The column of the row as it is committed now, or as this transaction has it; `text`: as a text in
   UTF-8, whatever it is. ret->rows is 0 where there is none. */
int idem_recipe_present(const struct idem_recipe *recipe, const char *column, bool text,
                        struct idem_reply *ret, struct idem_error *err);
int idem_recipe_exists(const struct idem_recipe *recipe, const char *clause, bool *ret,
                       struct idem_error *err);

/* A row that was seen by one statement and not by the next, again and again. */
int idem_recipe_restless(struct idem_error *err);

/* Moves.c. */

/* The number of a state; -1: it is none of them. */
int idem_moves_find(const struct idem_moves *moves, const char *state, size_t len);
const char *idem_moves_name(const struct idem_moves *moves, int state);
bool idem_moves_allow(const struct idem_moves *moves, int from, int to);
/* Whether a row in `state` has been in `to`, whichever way it came. */
bool idem_moves_passed(const struct idem_moves *moves, int state, int to);

#endif
