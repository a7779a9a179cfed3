/*
 * Connections, the engines of this build, values, and the replies of engines.
 */
#include "tx/tx_dialect.h"

#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/words.h"
#include "engines.h"
#include "store/sql/sql_engine.h"

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
    [IDEM_SQL_POSTGRES] = {"PostgreSQL", IDEM_HAVE_POSTGRES ? &idem_dialect_postgres : NULL},
    [IDEM_SQL_MYSQL] = {"MySQL", IDEM_HAVE_MYSQL ? &idem_dialect_mysql : NULL},
    [IDEM_SQL_SQLITE] = {"SQLite", IDEM_HAVE_SQLITE ? &idem_dialect_sqlite : NULL},
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

int idem_outside_failed(struct idem_error *err) {
    return idem_error_set(err, IDEM_E_INVALID,
                          "a transaction is open on the connection, and none may be");
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

int idem_wait_begin(struct idem_sql conn, const struct idem_dialect *dialect, int64_t ms,
                    struct idem_wait *ret, struct idem_error *err) {
    *ret = (struct idem_wait){.ms = ms < INT32_MAX ? ms : INT32_MAX};
    return dialect->wait_begin == NULL ? 0 : dialect->wait_begin(conn, ret, err);
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

/*
 * Opens connections by URL. Connections to servers are made the same way as those of the stores.
 * Fails with the text of the server or the system; no error contains a password.
 */

#if IDEM_HAVE_SQLITE

#define BUSY_MS 5000

static int connect_sqlite(const struct idem_url *url, struct idem_sql *ret,
                          struct idem_error *err) {
    struct sqlite3 *conn = NULL;
    int rc;

    if (url->query_n != 0 || url->rest[0] == '\0')
        return idem_error_set(err, IDEM_E_INVALID, "sqlite: written sqlite:PATH");
    rc = sqlite3_open_v2(url->rest, &conn,
                         SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_FULLMUTEX, NULL);
    if (rc != SQLITE_OK) {
        rc = idem_error_set(err, IDEM_E_REFUSED, "%.200s: %.200s", url->rest,
                            conn == NULL ? "no memory" : sqlite3_errmsg(conn));
        sqlite3_close(conn);
        return rc;
    }
    sqlite3_busy_timeout(conn, BUSY_MS);
    *ret = idem_sql_sqlite(conn);
    return 0;
}
#endif

#if IDEM_HAVE_POSTGRES || IDEM_HAVE_MYSQL
static int connect_server(const struct sql_engine *engine, enum idem_sql_kind kind,
                          const struct idem_url *url, struct idem_sql *ret,
                          struct idem_error *err) {
    struct sql_dialled dialled = {0};
    struct sql_config config;
    void *conn;
    int rc = sql_config_read(engine, url, &config, err);

    if (rc != 0)
        return rc;
    config.patient = true;
    conn = engine->connect(&config, &dialled);
    sql_config_release(&config);
    if (conn == NULL)
        return idem_error_set(err, dialled.code, "%s", dialled.text);
    *ret = (struct idem_sql){.kind = kind, .at.pg = conn}; /* a pointer of any kind */
    return 0;
}
#endif

static const struct {
    const char *scheme;
    enum idem_sql_kind kind;
    const struct sql_engine *engine; /* NULL: SQLite */
} schemes[] = {
#if IDEM_HAVE_POSTGRES
    {"postgres", IDEM_SQL_POSTGRES, &sql_engine_postgres},
    {"postgresql", IDEM_SQL_POSTGRES, &sql_engine_postgres},
#endif
#if IDEM_HAVE_MYSQL
    {"mysql", IDEM_SQL_MYSQL, &sql_engine_mysql},
    {"mariadb", IDEM_SQL_MYSQL, &sql_engine_mysql},
#endif
#if IDEM_HAVE_SQLITE
    {"sqlite", IDEM_SQL_SQLITE, NULL},
#endif
    {NULL, 0, NULL},
};

int idem_sql_open(const char *text, struct idem_sql *ret, struct idem_error *err) {
    struct idem_url url;
    int rc = idem_need(text, err) ?: idem_need(ret, err) ?: idem_url_parse(text, &url, err);
    size_t i = 0;

    if (rc != 0)
        return rc;
    while (schemes[i].scheme != NULL && strcmp(schemes[i].scheme, url.scheme) != 0)
        i++;
    if (schemes[i].scheme == NULL)
        rc = idem_error_set(err, IDEM_E_INVALID,
                            "%.40s: is no SQL database that this build knows; use "
                            "postgres://HOST/DATABASE, mysql://HOST/DATABASE or sqlite:PATH",
                            url.scheme);
#if IDEM_HAVE_SQLITE
    else if (schemes[i].engine == NULL)
        rc = connect_sqlite(&url, ret, err);
#endif
#if IDEM_HAVE_POSTGRES || IDEM_HAVE_MYSQL
    else
        rc = connect_server(schemes[i].engine, schemes[i].kind, &url, ret, err);
#endif
    idem_url_release(&url);
    return rc;
}

void idem_sql_close(struct idem_sql conn) {
#if IDEM_HAVE_SQLITE
    if (conn.kind == IDEM_SQL_SQLITE)
        (void)sqlite3_close_v2(conn.at.sqlite);
#endif
    for (size_t i = 0; schemes[i].scheme != NULL; i++)
        if (schemes[i].kind == conn.kind && schemes[i].engine != NULL) {
            schemes[i].engine->disconnect(conn.at.pg);
            return;
        }
}
