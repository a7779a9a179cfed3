/*
 * What the examples share: a database by URL, and statements of one's own on it, the same for all
 * three engines. A program that knows its engine needs none of this: it has its own PGconn, MYSQL
 * or sqlite3, and gives that to idem_sql_pg(), idem_sql_mysql() or idem_sql_sqlite().
 */
#ifndef EXAMPLES_SQL_DB_H
#define EXAMPLES_SQL_DB_H

#include <idem.h>

/* Where the database is: what follows -d on the command line, from which it is taken, or what
   IDEM_EXAMPLE_DB says, or the file example.db here. */
const char *db_url(int *argc, char **argv);
/* Ends the program where it cannot be reached. */
struct idem_sql db_open(const char *url);

/* What a statement changed, and the first cell of its first row. */
struct db_answer {
    int64_t changed;
    bool found;
    char text[200];
};

/* Says a statement in which each ? is the next of the values. 0 with the answer (may be NULL), or
   what the failure means to the transaction: IDEM_E_RETRY_TX, IDEM_E_TX_LOST, ... */
int db_say(struct idem_sql conn, struct db_answer *ret, const char *sql,
           const struct idem_sql_value *values, size_t n);
#define DB_SAY(conn, ret, sql, ...)                                                                \
    db_say(conn, ret, sql, (const struct idem_sql_value[]){__VA_ARGS__},                           \
           sizeof((const struct idem_sql_value[]){__VA_ARGS__}) / sizeof(struct idem_sql_value))

/* One without values, such as CREATE TABLE, that ends the program where it fails. */
void db_do(struct idem_sql conn, const char *sql);
/* Prints what a SELECT of one value finds by another. */
void db_print(struct idem_sql conn, const char *sql, struct idem_sql_value value);

/* The guard of an example: what its keys begin with. */
struct idem_guard *db_guard(const char *prefix);
/* A key that stands for these words, and for no others. */
struct idem_args db_args(const char *key, const char *words);

/* Prints an answer: "first: " or "duplicate: " and what was kept, or "refused: " and why; returns
   the exit status. */
int db_tell(const struct idem_tx_answer *answer, const char *why);

#endif
