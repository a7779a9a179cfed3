/*
 * Shared by the recipes: a row of the caller, the clauses that name it, and functions that run a
 * statement.
 */
#ifndef IDEM_TX_RECIPE_H
#define IDEM_TX_RECIPE_H

#include "tx/tx_dialect.h"

/* Attempts for a row that appears and disappears between two statements. */
#define IDEM_RECIPE_TRIES 3

/* One call of a recipe. */
struct idem_recipe {
    struct idem_sql conn;
    const struct idem_dialect *dialect;
    const struct idem_sql_row *row;
};

/* Checks the connection and the row. */
int idem_recipe_begin(struct idem_recipe *recipe, struct idem_sql conn,
                      const struct idem_sql_row *row, struct idem_error *err);

/* Returns IDEM_E_INVALID if `column`, which the recipe writes itself, is one of the row's
   columns. */
int idem_recipe_apart(const struct idem_recipe *recipe, const char *column, struct idem_error *err);

/* Appends " WHERE key AND key". */
void idem_recipe_where(const struct idem_recipe *recipe, struct idem_query *q);
/* Appends "name = value, name = value". */
void idem_recipe_set(const struct idem_recipe *recipe, struct idem_query *q);

/* Runs the statement and ends the query. */
int idem_recipe_say(struct idem_query *q, struct idem_reply *ret, struct idem_error *err);
/* The same for a statement that changes rows; more than one row is an error. ret_warned may be
   NULL. */
int idem_recipe_change(struct idem_query *q, bool *ret_changed, bool *ret_warned,
                       struct idem_error *err);

/* Reads a column of the row as it is committed now, or as this transaction changed it. `text`
   converts the value to text in UTF-8, whatever its type. ret->rows is 0 if the row does not
   exist. */
int idem_recipe_present(const struct idem_recipe *recipe, const char *column, bool text,
                        struct idem_reply *ret, struct idem_error *err);
int idem_recipe_exists(const struct idem_recipe *recipe, const char *clause, bool *ret,
                       struct idem_error *err);

/* For a row that one statement found and the next did not, IDEM_RECIPE_TRIES times. */
int idem_recipe_restless(struct idem_error *err);

/* recipe_moves.c. */

/* The number of a state; -1 if it is not declared. */
int idem_moves_find(const struct idem_moves *moves, const char *state, size_t len);
const char *idem_moves_name(const struct idem_moves *moves, int state);
bool idem_moves_allow(const struct idem_moves *moves, int from, int to);
/* True if every path to `state` leads through `to`, so that a row in `state` has been there. */
bool idem_moves_passed(const struct idem_moves *moves, int state, int to);

#endif
