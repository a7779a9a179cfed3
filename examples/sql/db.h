/*
 * Shared by the examples: a database by URL, and statements of one's own on it,
 * the same for all three engines. A program that knows its engine needs none of
 * this: it passes its own PGconn, MYSQL or sqlite3 to idem_sql_pg(),
 * idem_sql_mysql() or idem_sql_sqlite().
 */
#ifndef EXAMPLES_SQL_DB_H
#define EXAMPLES_SQL_DB_H

#include <idem.h>

/* The database's URL: the argument of -d on the command line, which is removed there, or
 * IDEM_EXAMPLE_DB, or the file example.db in the current directory. */
const char *db_url(int *argc, char **argv);
/* Connects; a failure ends the program. */
struct idem_sql db_open(const char *url);

/* The number of changed rows, and the first cell of the first row. */
struct db_answer {
    int64_t changed;
    bool found;
    char text[200];
};

/* Runs a statement in which each ? stands for the next of the values. Returns 0 with the result
 * (ret may be NULL), or the meaning of the failure for the transaction: IDEM_E_RETRY_TX,
 * IDEM_E_TX_LOST, ... */
int db_say(struct idem_sql conn, struct db_answer *ret, const char *sql,
           const struct idem_sql_value *values, size_t n);
#define DB_SAY(conn, ret, sql, ...)                                                                \
    db_say(conn, ret, sql, (const struct idem_sql_value[]){__VA_ARGS__},                           \
           sizeof((const struct idem_sql_value[]){__VA_ARGS__}) / sizeof(struct idem_sql_value))

/* Runs a statement without values, such as CREATE TABLE; a failure ends the program. */
void db_do(struct idem_sql conn, const char *sql);
/* Prints the value that a SELECT finds for another value. */
void db_print(struct idem_sql conn, const char *sql, struct idem_sql_value value);

/* The guard of an example, whose keys begin with `prefix`. */
struct idem_guard *db_guard(const char *prefix);
/* A key that is valid for these words only. */
struct idem_args db_args(const char *key, const char *words);

/* Prints the outcome: "first: " or "duplicate: " and the result, or "refused: " and why; returns
 * the exit status. */
int db_tell(const struct idem_tx_answer *answer, const char *why);

#endif
