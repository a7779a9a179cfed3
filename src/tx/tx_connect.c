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
static int connect_server(const struct sql_engine *engine, const struct idem_url *url, void **ret,
                          struct idem_error *err) {
    struct sql_dialled dialled = {0};
    struct sql_config config;
    int rc = sql_config_read(engine, url, &config, err);

    if (rc != 0)
        return rc;
    config.patient = true;
    *ret = engine->connect(&config, &dialled);
    sql_config_release(&config);
    return *ret != NULL ? 0 : idem_error_set(err, dialled.code, "%s", dialled.text);
}
#endif

#if IDEM_HAVE_POSTGRES
static int connect_postgres(const struct idem_url *url, struct idem_sql *ret,
                            struct idem_error *err) {
    void *conn;
    int rc = connect_server(&sql_engine_postgres, url, &conn, err);

    if (rc == 0)
        *ret = idem_sql_pg(conn);
    return rc;
}
#endif

#if IDEM_HAVE_MYSQL
static int connect_mysql(const struct idem_url *url, struct idem_sql *ret, struct idem_error *err) {
    void *conn;
    int rc = connect_server(&sql_engine_mysql, url, &conn, err);

    if (rc == 0)
        *ret = idem_sql_mysql(conn);
    return rc;
}
#endif

static const struct {
    const char *scheme;
    int (*dial)(const struct idem_url *url, struct idem_sql *ret, struct idem_error *err);
} schemes[] = {
#if IDEM_HAVE_POSTGRES
    {"postgres", connect_postgres},
    {"postgresql", connect_postgres},
#endif
#if IDEM_HAVE_MYSQL
    {"mysql", connect_mysql},
    {"mariadb", connect_mysql},
#endif
#if IDEM_HAVE_SQLITE
    {"sqlite", connect_sqlite},
#endif
    {NULL, NULL},
};

int idem_sql_open(const char *text, struct idem_sql *ret, struct idem_error *err) {
    struct idem_url url;
    int rc = idem_need(text, err) ?: idem_need(ret, err) ?: idem_url_parse(text, &url, err);
    size_t i = 0;

    if (rc != 0)
        return rc;
    while (schemes[i].scheme != NULL && strcmp(schemes[i].scheme, url.scheme) != 0)
        i++;
    if (schemes[i].scheme != NULL)
        rc = schemes[i].dial(&url, ret, err);
    else
        rc = idem_error_set(err, IDEM_E_INVALID,
                            "%.40s: is no SQL database that this build knows; say "
                            "postgres://HOST/DATABASE, mysql://HOST/DATABASE or sqlite:PATH",
                            url.scheme);
    idem_url_release(&url);
    return rc;
}

void idem_sql_close(struct idem_sql conn) {
    switch (conn.kind) {
#if IDEM_HAVE_POSTGRES
    case IDEM_SQL_POSTGRES:
        sql_engine_postgres.disconnect(conn.at.pg);
        break;
#endif
#if IDEM_HAVE_MYSQL
    case IDEM_SQL_MYSQL:
        sql_engine_mysql.disconnect(conn.at.mysql);
        break;
#endif
#if IDEM_HAVE_SQLITE
    case IDEM_SQL_SQLITE:
        (void)sqlite3_close_v2(conn.at.sqlite);
        break;
#endif
    default:
        break;
    }
}
