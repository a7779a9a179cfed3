/*
 * Connections, the engines of this build, values, and the replies of engines.
 */
#include "tx/tx_dialect.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/words.h"
#include "engines.h"

struct idem_sql idem_sql_pg(struct pg_conn *conn) {
    return (struct idem_sql){.kind = IDEM_SQL_POSTGRES, .at.pg = conn};
}

struct idem_sql idem_sql_mysql(struct st_mysql *conn) {
    return (struct idem_sql){.kind = IDEM_SQL_MYSQL, .at.mysql = conn};
}

struct idem_sql idem_sql_sqlite(struct sqlite3 *conn) {
    return (struct idem_sql){.kind = IDEM_SQL_SQLITE, .at.sqlite = conn};
}

static const struct engine {
    const char *name;
    const struct idem_dialect *dialect; /* NULL: not in this build */
} engines[] = {
#if IDEM_HAVE_POSTGRES
    [IDEM_SQL_POSTGRES] = {"PostgreSQL", &idem_dialect_postgres},
#else
    [IDEM_SQL_POSTGRES] = {"PostgreSQL", NULL},
#endif
#if IDEM_HAVE_MYSQL
    [IDEM_SQL_MYSQL] = {"MySQL", &idem_dialect_mysql},
#else
    [IDEM_SQL_MYSQL] = {"MySQL", NULL},
#endif
#if IDEM_HAVE_SQLITE
    [IDEM_SQL_SQLITE] = {"SQLite", &idem_dialect_sqlite},
#else
    [IDEM_SQL_SQLITE] = {"SQLite", NULL},
#endif
};

static bool sql_has_handle(struct idem_sql conn) {
    return conn.kind == IDEM_SQL_POSTGRES ? conn.at.pg != NULL
           : conn.kind == IDEM_SQL_MYSQL  ? conn.at.mysql != NULL
                                          : conn.at.sqlite != NULL;
}

static bool dialect_kind_is_valid(enum idem_sql_kind kind) {
    return kind >= IDEM_SQL_POSTGRES && kind <= IDEM_SQL_SQLITE;
}

const struct idem_dialect *idem_dialect_find(enum idem_sql_kind kind) {
    return dialect_kind_is_valid(kind) ? engines[kind].dialect : NULL;
}

const struct idem_dialect *idem_dialect_of(struct idem_sql conn, struct idem_error *err) {
    const struct engine *engine;

    if (!dialect_kind_is_valid(conn.kind) || !sql_has_handle(conn)) {
        (void)idem_error_set(err, IDEM_E_INVALID,
                             "there is no connection: make one of your handle with idem_sql_pg(), "
                             "idem_sql_mysql() or idem_sql_sqlite()");
        return NULL;
    }
    engine = &engines[conn.kind];
    if (engine->dialect == NULL)
        (void)idem_error_set(err, IDEM_E_INVALID, "this build of libidem knows no %s",
                             engine->name);
    return engine->dialect;
}

const char *idem_tx_verdict_name(enum idem_tx_verdict verdict) {
    static const struct idem_word words[] = {
        {"first", IDEM_TX_FIRST},
        {"duplicate", IDEM_TX_DUPLICATE},
        {"mismatch", IDEM_TX_MISMATCH},
        {"refused", IDEM_TX_REFUSED},
        {"happened", IDEM_TX_HAPPENED},
        {"never", IDEM_TX_NEVER},
        {NULL, 0},
    };

    return idem_word_name(words, (int)verdict);
}

int idem_sql_failure(struct idem_sql conn, const char *sqlstate, struct idem_error *err) {
    const struct idem_dialect *dialect = idem_dialect_of(conn, err);

    return dialect == NULL ? IDEM_E_INVALID : dialect->failure(conn, sqlstate, err);
}

int idem_mark_gone(struct idem_error *err) {
    return idem_error_set(
        err, IDEM_E_INVALID,
        "the function returned 0 in another transaction than the one that was begun for it, and "
        "that other one is not committed: return what idem_sql_failure() gives for a statement "
        "that fails, and leave BEGIN, COMMIT and ROLLBACK to idem_tx_call()");
}

int idem_rollback_failed(struct idem_error *err) {
    return idem_error_set(err, IDEM_E_NOMEM,
                          "the transaction could not be rolled back (no memory, results that are "
                          "not read, or a pipeline), and is still open: roll it back, or close the "
                          "connection");
}

struct idem_wait idem_wait_of(int64_t ms) {
    return (struct idem_wait){.ms = ms < INT32_MAX ? ms : INT32_MAX};
}

/* Values. */

struct idem_sql_value idem_sql_null(void) {
    return (struct idem_sql_value){.type = IDEM_SQL_NULL};
}

struct idem_sql_value idem_sql_int(int64_t number) {
    return (struct idem_sql_value){.type = IDEM_SQL_INT, .number = number};
}

struct idem_sql_value idem_sql_text(const char *text) {
    if (text == NULL)
        return idem_sql_null();
    return (struct idem_sql_value){.type = IDEM_SQL_TEXT, .at = text, .len = strlen(text)};
}

struct idem_sql_value idem_sql_bytes(const void *bytes, size_t len) {
    return (struct idem_sql_value){.type = IDEM_SQL_BYTES, .at = bytes, .len = len};
}

/* Replies. */

int idem_reply_row(struct idem_reply *reply, const struct idem_sql_value *cells, size_t n,
                   struct idem_error *err) {
    size_t size = n * sizeof(*cells);
    char *at;

    for (size_t i = 0; i < n; i++)
        size += cells[i].len + 1;
    reply->cells = malloc(size + 1);
    if (reply->cells == NULL)
        return idem_error_set(err, IDEM_E_NOMEM, "no memory for a row of %zu bytes", size);
    reply->columns = n;
    at = (char *)(reply->cells + n);
    for (size_t i = 0; i < n; i++) {
        reply->cells[i] = cells[i];
        if (cells[i].type == IDEM_SQL_NULL || cells[i].type == IDEM_SQL_INT)
            continue;
        if (cells[i].len > 0)
            memcpy(at, cells[i].at, cells[i].len);
        at[cells[i].len] = '\0';
        reply->cells[i].at = at;
        at += cells[i].len + 1;
    }
    return 0;
}

void idem_reply_release(struct idem_reply *reply) {
    free(reply->cells);
    reply->cells = NULL;
    reply->columns = 0;
}

int64_t idem_cell_number(const struct idem_sql_value *cell) {
    if (cell->type == IDEM_SQL_INT)
        return cell->number;
    return cell->type == IDEM_SQL_TEXT ? strtoll(cell->at, NULL, 10) : 0;
}
