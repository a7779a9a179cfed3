/*
 * The meaning of an engine's errors: for a statement of a store, which is sent again, elsewhere or
 * not at all; and for a statement in a transaction of the caller's (src/tx), which only the caller
 * can begin anew.
 */
#ifndef IDEM_STORE_SQL_SQL_FAILURE_H
#define IDEM_STORE_SQL_SQL_FAILURE_H

enum sql_trouble {
    SQL_FINE,
    SQL_CONFLICT,  /* a row with this key exists */
    SQL_AGAIN,     /* the server rolled it back: deadlock, serialization, lock timeout */
    SQL_ELSEWHERE, /* nothing happened, and this connection cannot do it: read only, statement
                      unknown */
    SQL_REFUSED,
    SQL_FULL,   /* no space on the server */
    SQL_BROKEN, /* no response, or the connection ended: it may have happened */
};

/* Classifies a failed statement beyond its code. */
enum idem_sql_why {
    IDEM_WHY_NONE,
    IDEM_WHY_CONFLICT,   /* a unique key has such a row */
    IDEM_WHY_LOCKED,     /* the lock was not granted in time */
    IDEM_WHY_CONNECTION, /* the connection is lost; a COMMIT may have happened */
};

/* An entry in an engine's table; the last entry matches all other failures. */
struct sql_failure {
    const char *state; /* PostgreSQL: the SQLSTATE, or its beginning */
    int number;        /* the other engines */
    enum sql_trouble trouble;
    int code;
    enum idem_sql_why why;
    const char *text; /* our text; NULL: the engine's own text, which quotes no value */
    const char *help; /* advice for the operator, or NULL */
};

#define SQL_HELP_MIGRATE "run `idem migrate --store URL`, or idem_sql_migrate()"

/* postgres_connect.c, mysql_connect.c */
const struct sql_failure *postgres_failure_find(const char *state);
const struct sql_failure *mysql_failure_find(unsigned number);

#endif
