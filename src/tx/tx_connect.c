/*
 * Opens connections by URL. Connections to servers are made the same way as those of the stores.
 * Fails with the text of the server or the system; no error contains a password.
 */
#include <string.h>

#include "base/error.h"
#include "engines.h"
#include "store/sql/sql_engine.h"

#if IDEM_HAVE_SQLITE
#include <sqlite3.h>

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
