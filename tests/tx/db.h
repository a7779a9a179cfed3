/*
 * A database of one engine for the tests of guards and recipes: started once
 * per program, with Idem's tables in it, and connections to it of every flavour
 * that must make no difference. IDEM_TEST_SQL names the engine: postgres,
 * mysql, or (the default) sqlite.
 */
#ifndef IDEM_TEST_TX_DB_H
#define IDEM_TEST_TX_DB_H

#include <stdbool.h>

#include "idem.h"

extern enum idem_sql_kind db_kind;

/* Properties that a user's connection may have. */
struct flavour {
    int n; /* for making keys; -1: no flavour is left */
    enum idem_isolation isolation;
    bool odd; /* MySQL: CLIENT_FOUND_ROWS, and a sql_mode and character set that read texts
                 differently. PostgreSQL: bytes are shown in the old way. */
};
struct flavour flavour_next(const struct flavour *before);
#define EACH_FLAVOUR(f)                                                                            \
    for (struct flavour f = flavour_next(NULL); (f).n >= 0; (f) = flavour_next(&(f)))

/* The server starts and stops around the tests (test.h), whose processes are children of this
 * one. */
void db_start(void);
void db_stop(void);
#define DB_MAIN                                                                                    \
    int main(int argc, char **argv) {                                                              \
        int rc;                                                                                    \
                                                                                                   \
        db_start();                                                                                \
        rc = test_main(argc, argv);                                                                \
        db_stop();                                                                                 \
        return rc;                                                                                 \
    }

struct idem_sql db_open(const struct flavour *flavour); /* NULL: a plain one */
void db_close(struct idem_sql conn);

/* The id of the connection at the server, with which another connection can end it. Not for
 * SQLite. */
long db_session(struct idem_sql conn);
int db_session_end(struct idem_sql conn, long session, struct idem_error *err);

/* Statements. With db_do() a failure ends the test; db_try() returns the code. */
void db_do(struct idem_sql conn, const char *sql);
int db_try(struct idem_sql conn, const char *sql, struct idem_error *err);
/* The first cell, as a number; -1: no row. */
int64_t db_ask(struct idem_sql conn, const char *sql);
void db_dof(struct idem_sql conn, const char *format, ...) __attribute__((format(printf, 2, 3)));
int64_t db_askf(struct idem_sql conn, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* The first row: texts and numbers as they are, the length of bytes, -1 for NULL. Returns out. */
const char *db_row(struct idem_sql conn, const char *sql, char *out, size_t size);
int db_try_row(struct idem_sql conn, const char *sql, char *out, size_t size,
               struct idem_error *err);

void db_begin(struct idem_sql conn, const struct flavour *flavour);
void db_commit(struct idem_sql conn);
void db_rollback(struct idem_sql conn);
/* Shortens the connection's wait for a lock: to about 100 ms, or a second with MySQL. */
void db_hurry(struct idem_sql conn);

struct idem_guard *db_guard(const char *prefix);
struct idem_args db_key(const char *key); /* borrowed */

/* Processes: runs fn(i) in n children at once; all must succeed. */
void db_crowd(int n, void (*fn)(int i));

/* A URL for the command line, of the user who may make tables. */
void db_url(char *url, size_t size);

/* The server, for tests that put a proxy in front of it, or kill it. Not for SQLite. */
const char *db_socket(void);
struct idem_sql db_open_by(const char *socket);
/* Starts one more server, for this test alone, and uses that: durable, with settings (NULL at
 * the end, or NULL). The test must stop it. */
void db_server_own(const char *const *settings);
void db_server_kill(void);
void db_server_restart(void);
void db_server_end(void);

#endif
