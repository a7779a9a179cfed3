/*
 * An engine as guards and recipes see it: a table of functions and texts. tx_query.h builds a
 * statement, the statement runs on the caller's connection, and its response is a struct
 * idem_reply. Nothing above this header knows libpq, Connector/C or SQLite.
 */
#ifndef IDEM_TX_TX_DIALECT_H
#define IDEM_TX_TX_DIALECT_H

#include "idem.h"
#include "store/sql/sql_failure.h"
#include "tx/tx_query.h"

struct idem_reply {
    enum idem_sql_why why; /* set after a failure, too */
    int64_t changed;       /* number of rows */
    bool warned;           /* after a change: the engine may have stored another value */
    size_t rows;
    size_t columns;
    struct idem_sql_value *cells; /* of the first row; owned: idem_reply_release() */
};

/* The statements of the guards on the table idem_tx; ? is a value. */
struct idem_tx_texts {
    const char *insert; /* prefix, hash, definition, fingerprint, ttl in s */
    const char *read;   /* prefix, hash: definition, fingerprint, status, result, expired */
    const char *renew;  /* definition, fingerprint, ttl, prefix, hash: if the row has expired */
    const char *result; /* status, result, prefix, hash: if the row has no result */
};

/* The texts of an engine: its time, its time after ? seconds, and what follows an INSERT and a
   SELECT. */
#define IDEM_TX_TEXTS(now, later, behind_insert, behind_read)                                      \
    {                                                                                              \
        .insert = "INSERT INTO idem_tx (prefix, hash, definition, fingerprint, created, expires) " \
                  "VALUES (?, ?, ?, ?, " now ", " later ")" behind_insert,                         \
        .read = "SELECT definition, fingerprint, status, result, CASE WHEN expires <= " now        \
                " THEN 1 ELSE 0 END FROM idem_tx WHERE prefix = ? AND hash = ?" behind_read,       \
        .renew = "UPDATE idem_tx SET definition = ?, fingerprint = ?, status = NULL, "             \
                 "result = NULL, created = " now ", expires = " later                              \
                 " WHERE prefix = ? AND hash = ? AND expires <= " now,                             \
        .result = "UPDATE idem_tx SET status = ?, result = ? WHERE prefix = ? AND hash = ? "       \
                  "AND status IS NULL",                                                            \
    }

/* The outcome of the statement that ran under a limit on waiting. */
enum idem_wait_end {
    IDEM_WAIT_DONE,        /* the statement completed */
    IDEM_WAIT_LOCKED,      /* the limit was reached; undo only this statement */
    IDEM_WAIT_ROLLED_BACK, /* the transaction is over */
};

/* A limit on waiting for locks, while it is in force. */
struct idem_wait {
    int64_t ms;      /* 0: no limit from this library */
    char before[32]; /* the setting before it */
    bool set;
};

/* Creates the tables; only one process at a time may do so. */
struct idem_migration {
    const char *schema; /* parts, each behind a line `-- @ VERSION` */
    const char *exists; /* returns 1 if the table idem_meta exists */
    int (*begin)(struct idem_sql conn, struct idem_error *err);
    /* `rc` is the outcome of the migration. Returns it, or the code of the end's own failure. */
    int (*end)(struct idem_sql conn, int rc, struct idem_error *err);
    /* Runs one part: several statements. */
    int (*script)(struct idem_sql conn, const char *text, struct idem_error *err);
};

struct idem_dialect {
    const char *name;
    char quote; /* around identifiers */
    struct idem_tx_texts tx;

    /* Appended to an INSERT, with the columns of its key: turns a conflict into a success without a
       change. NULL: the engine has no such clause; a conflict is an error, and leaves a shared
       lock. */
    const char *on_conflict;
    /* Appended to a SELECT: reads what is committed now, not the transaction's snapshot. */
    const char *present;
    /* Appended to a SELECT. `lock` keeps the row unchanged until the end of the transaction. If
       another transaction holds the row, `lock_now` fails at once (NULL: such a failure would abort
       the transaction), and `lock_free` skips the row. */
    const char *lock, *lock_now, *lock_free;
    const char *now; /* for a `created` column in a table of the caller */
    /* Around a column: reads it as text, in UTF-8 or as it was given, without padding or
       truncation. */
    const char *text_open, *text_close;
    /* Around a column of bytes or text: reads the stored bytes, without conversion to the
       connection's character set. */
    const char *bytes_open, *bytes_close;
    /* Counts the unique indexes of exactly these columns. Values: schema (or NULL), table, column,
       the same column or a second one, number of columns. NULL: on_conflict fails without such an
       index. */
    const char *unique;
    /* More than 0 if the table takes part in transactions. Values: schema (or NULL), table. NULL:
       every table does. */
    const char *transactional;

    /* The isolation at which a statement that waited sees rows committed in the meantime; 0: every
       one. */
    enum idem_isolation seeing;

    /* Return 0, or IDEM_E_INVALID with the reason. `ready`: the connection can run a statement;
       NULL: the library checks that itself, without harm. `inside`: a transaction is open and has
       not failed. `outside`: no transaction is open. */
    int (*ready)(struct idem_sql conn, struct idem_error *err);
    int (*inside)(struct idem_sql conn, struct idem_error *err);
    int (*outside)(struct idem_sql conn, struct idem_error *err);

    /* Writes a value into the statement, as a placeholder or as a literal. */
    void (*value)(struct idem_query *q, const struct idem_sql_value *value);
    /* Appends a condition to `column = value` where the engine's `=` is also true for different
       values. NULL: not needed. */
    void (*same)(struct idem_query *q, const char *column, const struct idem_sql_value *value);
    int (*run)(struct idem_query *q, struct idem_reply *ret, struct idem_error *err);
    /* Classifies the connection's last failure. */
    int (*failure)(struct idem_sql conn, const char *sqlstate, struct idem_error *err);

    int (*begin)(struct idem_sql conn, enum idem_isolation isolation, struct idem_error *err);
    /* The same as `begin` with IDEM_TX_MARK, in front of a statement that binds nothing, in the
       same round trip: a text for each isolation. NULL: the engine cannot do this. */
    const char *const *begins;
    /* Commits a transaction that was marked. IDEM_E_INVALID if the open transaction is another one;
       then nothing was committed. IDEM_E_UNKNOWN if there was no response. */
    int (*commit)(struct idem_sql conn, struct idem_error *err);
    /* Rolls back. Succeeds if the transaction, or its connection, is lost already. After a failure
       the transaction is still open. */
    int (*rollback)(struct idem_sql conn, struct idem_error *err);

    /* Set a limit on waiting for a lock, and restore the limit before it. NULL: there is nothing to
       limit. */
    int (*wait_begin)(struct idem_sql conn, struct idem_wait *wait, struct idem_error *err);
    int (*wait_end)(struct idem_sql conn, struct idem_wait *wait, enum idem_wait_end how,
                    struct idem_error *err);

    struct idem_migration migration;
};

/* Returns NULL if this build does not include the engine. */
const struct idem_dialect *idem_dialect_find(enum idem_sql_kind kind);
/* Returns NULL, with IDEM_E_INVALID in *err, if there is no connection or no such engine. */
const struct idem_dialect *idem_dialect_of(struct idem_sql conn, struct idem_error *err);

/* Sets a limit on waiting for locks, if the engine has one; capped to what every engine can count:
   24 days. *ret->set: dialect->wait_end() is to be called. */
int idem_wait_begin(struct idem_sql conn, const struct idem_dialect *dialect, int64_t ms,
                    struct idem_wait *ret, struct idem_error *err);

extern const struct idem_dialect idem_dialect_postgres, idem_dialect_mysql, idem_dialect_sqlite;

/* An open transaction is not always the one that idem_tx_call() began: the caller's function may
   have ended that one and begun another. The mark detects it: a savepoint ends with its
   transaction, and cannot be released in another one. */
#define IDEM_TX_MARK "SAVEPOINT idem_tx"
#define IDEM_TX_UNMARK "RELEASE SAVEPOINT idem_tx"

/* Reports that a transaction is open. */
int idem_outside_failed(struct idem_error *err);
/* Reports that the mark is missing. */
int idem_mark_gone(struct idem_error *err);
/* Reports a ROLLBACK that failed. */
int idem_rollback_failed(struct idem_error *err);

/* Replies. */

/* Copies the first row; `cells` are borrowed. Returns 0 or IDEM_E_NOMEM. */
int idem_reply_row(struct idem_reply *reply, const struct idem_sql_value *cells, size_t n,
                   struct idem_error *err);
void idem_reply_release(struct idem_reply *reply);

/* A cell as a number; 0 if it is NULL or not numeric. */
int64_t idem_cell_number(const struct idem_sql_value *cell);

#endif
