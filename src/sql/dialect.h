/*
 * What guards and recipes know of an engine: a table of functions and texts. A statement is put
 * together with query.h, said on the caller's connection, and its answer is a struct idem_reply.
 * Nothing above this header knows libpq, Connector/C or SQLite.
 */
#ifndef IDEM_SQL_DIALECT_H
#define IDEM_SQL_DIALECT_H

#include "idem.h"
#include "sql/query.h"

/* How a failed statement is told apart beyond its code. */
enum idem_sql_why {
    IDEM_WHY_NONE,
    IDEM_WHY_CONFLICT,   /* a unique key has such a row */
    IDEM_WHY_LOCKED,     /* a lock was not had in time */
    IDEM_WHY_CONNECTION, /* it is gone; a COMMIT may have happened */
};

struct idem_reply {
    enum idem_sql_why why; /* also after a failure */
    int64_t changed;       /* rows */
    bool warned;           /* of a change: a value may have been stored as another one */
    size_t rows;
    size_t columns;
    struct idem_sql_value *cells; /* the first row's; owned: idem_reply_release() */
};

/* What the guards say on the table idem_tx; ? is a value. */
struct idem_tx_texts {
    const char *insert; /* prefix, hash, definition, fingerprint, ttl in s */
    const char *read;   /* prefix, hash: definition, fingerprint, status, result, expired */
    const char *renew;  /* definition, fingerprint, ttl, prefix, hash: if it has expired */
    const char *result; /* status, result, prefix, hash: if none was said */
};

/* What came of the statement that was said under a limit on waiting. */
enum idem_wait_end {
    IDEM_WAIT_DONE,        /* it was answered */
    IDEM_WAIT_LOCKED,      /* it was refused for the limit; it alone is to be undone */
    IDEM_WAIT_ROLLED_BACK, /* its transaction is over */
};

/* A limit on waiting for locks, while it is in force. */
struct idem_wait {
    int64_t ms;      /* 0: none of ours */
    char before[32]; /* what it was */
    bool set;
};

/* The limit that a caller named, as far as every engine can count: 24 days. */
struct idem_wait idem_wait_of(int64_t ms);

/* How tables are made, by one at a time. */
struct idem_migration {
    const char *schema; /* parts, each behind a line `-- @ VERSION` */
    const char *exists; /* 1, if there is a table idem_meta */
    int (*begin)(struct idem_sql conn, struct idem_error *err);
    /* `rc` is what came of it; its code, or that of the end. */
    int (*end)(struct idem_sql conn, int rc, struct idem_error *err);
    /* Runs a part: several statements. */
    int (*script)(struct idem_sql conn, const char *text, struct idem_error *err);
};

struct idem_dialect {
    const char *name;
    char quote; /* around identifiers */
    struct idem_tx_texts tx;

    /* Behind an INSERT, with the columns that are its key, it makes a conflict no error; NULL: it
       cannot be said, the conflict is an error and leaves a lock that others share. */
    const char *on_conflict;
    /* Behind a SELECT: it sees what is committed now, whatever the transaction saw before. */
    const char *present;
    /* Behind a SELECT: the row stays as it is until the end of the transaction; where somebody
       else has it, that is an error at once (NULL: it cannot be said without harm); or the row is
       as if it were not there. */
    const char *lock, *lock_now, *lock_free;
    const char *now; /* for a column of theirs */
    /* Around a column: as text, in UTF-8 or as it was given, with nothing added or cut. */
    const char *text_open, *text_close;
    /* Around a column of bytes or text: the bytes that it has, whatever the connection makes of
       texts. */
    const char *bytes_open, *bytes_close;
    /* How many unique indexes are of just these columns; schema (or NULL), table, column, column
       again or another, their number. NULL: what on_conflict says is refused without one. */
    const char *unique;
    /* More than 0, if the table takes part in transactions; schema (or NULL), table. NULL: all
       do. */
    const char *transactional;

    /* The level at which a statement that has waited sees what was committed meanwhile; 0: all. */
    enum idem_isolation seeing;

    /* 0, or IDEM_E_INVALID with what is wrong: whether a statement can be said at all, within a
       transaction that is open and sound, or where none is open. */
    int (*ready)(struct idem_sql conn, struct idem_error *err);
    int (*inside)(struct idem_sql conn, struct idem_error *err);
    int (*outside)(struct idem_sql conn, struct idem_error *err);

    /* Writes a value into the statement, by name or as it is. */
    void (*value)(struct idem_query *q, const struct idem_sql_value *value);
    /* What is said behind `column = value`, where that alone is true of values that are not the
       same. NULL: nowhere. */
    void (*same)(struct idem_query *q, const char *column, const struct idem_sql_value *value);
    int (*run)(struct idem_query *q, struct idem_reply *ret, struct idem_error *err);
    /* What the connection's last failure means. */
    int (*failure)(struct idem_sql conn, const char *sqlstate, struct idem_error *err);

    int (*begin)(struct idem_sql conn, enum idem_isolation isolation, struct idem_error *err);
    /* The same with IDEM_TX_MARK in front of a statement that binds nothing, in the same round
       trip: a text for each isolation. NULL: it cannot be said so. */
    const char *const *begins;
    /* Of a transaction that was marked. IDEM_E_INVALID where this is another one: nothing was
       committed then. IDEM_E_UNKNOWN where it was not answered. */
    int (*commit)(struct idem_sql conn, struct idem_error *err);
    /* Of a transaction that may be gone already, also with its connection. A failure: it is still
       open. */
    int (*rollback)(struct idem_sql conn, struct idem_error *err);

    /* Puts a limit on waiting for a lock, and takes it back. */
    int (*wait_begin)(struct idem_sql conn, struct idem_wait *wait, struct idem_error *err);
    int (*wait_end)(struct idem_sql conn, struct idem_wait *wait, enum idem_wait_end how,
                    struct idem_error *err);

    struct idem_migration migration;
};

/* An engine; NULL: not in this build. */
const struct idem_dialect *idem_dialect_find(enum idem_sql_kind kind);
/* The engine of a connection; NULL with IDEM_E_INVALID in *err where there is none. */
const struct idem_dialect *idem_dialect_of(struct idem_sql conn, struct idem_error *err);

extern const struct idem_dialect idem_dialect_postgres, idem_dialect_mysql, idem_dialect_sqlite;

/* That a transaction is open does not say that it is the one that was begun: it may have been ended
   since, and another begun. A savepoint ends with its transaction, and cannot be released in
   another. */
#define IDEM_TX_MARK "SAVEPOINT idem_tx"
#define IDEM_TX_UNMARK "RELEASE SAVEPOINT idem_tx"

/* For a mark that is not there any more. */
int idem_mark_gone(struct idem_error *err);
/* For a ROLLBACK that failed. */
int idem_rollback_failed(struct idem_error *err);

/* Replies. */

/* Copies the first row; `cells` are borrowed. 0 or IDEM_E_NOMEM. */
int idem_reply_row(struct idem_reply *reply, const struct idem_sql_value *cells, size_t n,
                   struct idem_error *err);
void idem_reply_release(struct idem_reply *reply);

/* A cell as a number; 0 where it is NULL or none. */
int64_t idem_cell_number(const struct idem_sql_value *cell);

/* One of an engine's table of failures; the last one stands for all others. */
struct idem_failure {
    const char *text; /* what it says; NULL: the engine's own words, which quote no value */
    int number;
    int code;
    enum idem_sql_why why;
    const char *help; /* what to do; NULL: nothing is known */
};

#endif
