/*
 * Connects to PostgreSQL, in a thread that may block, and checks the server: the version, the
 * tables, a proxy in between. Fails with a text that shows an operator what to do.
 */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "idem.h"
#include "store/sql/postgres/postgres.h"
#include "store/sql/sql_failure.h"

/*
 * The errors of PostgreSQL.
 */

#define KEY_HELP "the columns that are named as the key need a unique index of just these"

/* clang-format off */
static const struct sql_failure failures[] = {
    {"23505", 0, SQL_CONFLICT, IDEM_E_REFUSED, IDEM_WHY_CONFLICT, NULL, NULL},
    {"40001", 0, SQL_AGAIN, IDEM_E_RETRY_TX, IDEM_WHY_NONE, NULL, NULL},
    {"40P01", 0, SQL_AGAIN, IDEM_E_RETRY_TX, IDEM_WHY_NONE, NULL, NULL},
    {"55P03", 0, SQL_AGAIN, IDEM_E_RETRY_TX, IDEM_WHY_LOCKED, NULL, NULL},
    {"57014", 0, SQL_AGAIN, IDEM_E_REFUSED, IDEM_WHY_NONE, NULL, NULL},
    {"53100", 0, SQL_FULL, IDEM_E_FULL, IDEM_WHY_NONE, NULL, NULL},
    {"53200", 0, SQL_FULL, IDEM_E_REFUSED, IDEM_WHY_NONE, NULL, NULL},
    {"57P", 0, SQL_BROKEN, IDEM_E_REFUSED, IDEM_WHY_CONNECTION, NULL, NULL},
    {"08", 0, SQL_BROKEN, IDEM_E_REFUSED, IDEM_WHY_CONNECTION, NULL, NULL},
    {"26000", 0, SQL_ELSEWHERE, IDEM_E_REFUSED, IDEM_WHY_NONE, NULL, NULL},
    {"42P05", 0, SQL_ELSEWHERE, IDEM_E_REFUSED, IDEM_WHY_NONE, NULL, NULL},
    {"25006", 0, SQL_ELSEWHERE, IDEM_E_REFUSED, IDEM_WHY_NONE, NULL, NULL},
    {"0A000", 0, SQL_ELSEWHERE, IDEM_E_REFUSED, IDEM_WHY_NONE, NULL, NULL},
    {"25P02", 0, SQL_REFUSED, IDEM_E_INVALID, IDEM_WHY_NONE, NULL, "roll it back"},
    {"42P01", 0, SQL_REFUSED, IDEM_E_REFUSED, IDEM_WHY_NONE, NULL, SQL_HELP_MIGRATE},
    {"42P10", 0, SQL_REFUSED, IDEM_E_INVALID, IDEM_WHY_NONE, NULL, KEY_HELP},
    {"", 0, SQL_REFUSED, IDEM_E_REFUSED, IDEM_WHY_NONE, NULL, NULL},
};
/* clang-format on */

const struct sql_failure *postgres_failure_find(const char *state) {
    const struct sql_failure *f = failures;

    while (!idem_text_begins(state, f->state))
        f++;
    return f;
}

#define VERSION_MIN 120000
#define LOCK_MS "250"

/* Connecting. */

struct places {
    char hosts[SQL_HOSTS_MAX * 257], ports[SQL_HOSTS_MAX * 7];
};

/* `path` is the directory of a socket, or the socket in it, whose name ends in a port. The port
   is always set, because libpq would otherwise use PGPORT. */
static void connect_fill_socket(const char *path, struct places *ret) {
    static const char file[] = "/.s.PGSQL.";
    const char *at = strstr(path, file);

    snprintf(ret->hosts, sizeof(ret->hosts), "%.*s", (int)(at == NULL ? 107 : at - path), path);
    snprintf(ret->ports, sizeof(ret->ports), "%.5s", at == NULL ? "5432" : at + strlen(file));
}

static void connect_fill_places(const struct sql_config *config, struct places *ret) {
    size_t hosts = 0, ports = 0;

    *ret = (struct places){0};
    if (config->hosts[0].port == 0) {
        connect_fill_socket(config->hosts[0].name, ret);
        return;
    }
    for (size_t i = 0; i < config->hosts_n; i++) {
        hosts += (size_t)snprintf(ret->hosts + hosts, sizeof(ret->hosts) - hosts, "%s%s",
                                  i == 0 ? "" : ",", config->hosts[i].name);
        ports += (size_t)snprintf(ret->ports + ports, sizeof(ret->ports) - ports, "%s%u",
                                  i == 0 ? "" : ",", config->hosts[i].port);
    }
}

static void connect_drop_notice(void *data, const char *text) {
    (void)data;
    (void)text;
}

PGconn *pg_connect(const struct sql_config *config, struct sql_dialled *ret) {
    static const char *const modes[] = {[SQL_TLS_OFF] = "disable",
                                        [SQL_TLS_PREFER] = "prefer",
                                        [SQL_TLS_REQUIRE] = "require",
                                        [SQL_TLS_VERIFY] = "verify-full"};
    struct places places;
    char seconds[24];
    const struct {
        const char *word, *value;
    } options[] = {
        {"host", places.hosts},
        {"port", places.ports},
        {"user", config->user},
        {"password", config->password},
        {"dbname", config->db},
        {"sslmode", modes[config->tls]},
        {"sslrootcert", config->tls == SQL_TLS_VERIFY ? sql_authorities(config) : NULL},
        {"sslcert", config->tls_cert},
        {"sslkey", config->tls_key},
        {"application_name", config->name},
        {"connect_timeout", seconds},
        {"target_session_attrs", "read-write"},
        {"client_encoding", "UTF8"},
        {"gssencmode", "disable"},
        {NULL, NULL},
    };
    const char *words[sizeof(options) / sizeof(options[0])];
    const char *values[sizeof(options) / sizeof(options[0])];
    PGconn *conn;

    if (getenv("PGHOSTADDR") != NULL) { /* libpq would connect there, whatever the host */
        sql_dialled_fail(ret, IDEM_E_REFUSED, true,
                         "PGHOSTADDR is set, and leads elsewhere: unset it");
        return NULL;
    }
    connect_fill_places(config, &places);
    snprintf(seconds, sizeof(seconds), "%lld",
             (long long)(config->connect_timeout_ms + 999) / 1000);
    for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++) {
        words[i] = options[i].word;
        values[i] = options[i].value;
    }
    conn = PQconnectdbParams(words, values, 0);
    if (conn == NULL) {
        sql_dialled_fail(ret, IDEM_E_NOMEM, false, "no memory for a connection");
        return NULL;
    }
    PQsetNoticeProcessor(conn, connect_drop_notice, NULL);
    if (PQstatus(conn) == CONNECTION_OK)
        return conn;
    sql_dialled_fail(ret, IDEM_E_REFUSED, false, PQerrorMessage(conn));
    PQfinish(conn);
    return NULL;
}

/* Checks. */

static int64_t connect_get_number(const PGresult *res, int column) {
    return PQgetisnull(res, 0, column) ? 0 : strtoll(PQgetvalue(res, 0, column), NULL, 10);
}

static bool connect_check_tables(const PGresult *res, struct sql_dialled *ret) {
    const char *state = PQresultErrorField(res, PG_DIAG_SQLSTATE);
    char text[200];
    int64_t version = 0, oldest = 0;

    if (PQresultStatus(res) != PGRES_TUPLES_OK) {
        if (state != NULL && strcmp(state, "42P01") == 0)
            return sql_dialled_fail(ret, IDEM_E_REFUSED, true, sql_schema_missing);
        return sql_dialled_fail(ret, IDEM_E_REFUSED, false, PQresultErrorMessage(res));
    }
    if (PQntuples(res) == 1) {
        version = connect_get_number(res, 0);
        oldest = connect_get_number(res, 3);
    }
    return sql_schema_fits(version, oldest, text, sizeof(text)) ||
           sql_dialled_fail(ret, IDEM_E_REFUSED, true, text);
}

static bool connect_inspect(PGconn *conn, struct sql_dialled *ret) {
    PGresult *res;
    bool fine;

    if (PQserverVersion(conn) < VERSION_MIN)
        return sql_dialled_fail(ret, IDEM_E_REFUSED, true,
                                "the server is older than PostgreSQL 12");
    res = PQexec(conn, "SELECT m.version, pg_backend_pid(), "
                       "(extract(epoch FROM a.backend_start) * 1000000)::bigint, m.oldest "
                       "FROM idem_meta m "
                       "LEFT JOIN pg_stat_activity a ON a.pid = pg_backend_pid()");
    fine = connect_check_tables(res, ret);
    if (fine) {
        ret->session = (struct sql_session){connect_get_number(res, 1), connect_get_number(res, 2)};
        /* A proxy returns a process id of its own, and may use another session for each
           transaction. */
        ret->pooled = ret->session.id != PQbackendPID(conn);
        if (ret->pooled)
            ret->session = (struct sql_session){0};
    }
    PQclear(res);
    return fine;
}

/* In the pipeline, statements for other keys wait behind a statement that waits for a locked
   row. So it gives up after LOCK_MS and is sent again. Behind a pooler, session settings must
   not be changed. A shorter lock_timeout of the server is kept. */
static bool connect_configure_session(PGconn *conn, struct sql_dialled *ret) {
    PGresult *res = PQexec(conn, "SELECT set_config(name, '" LOCK_MS "', false) FROM pg_settings "
                                 "WHERE name = 'lock_timeout' "
                                 "AND setting::int NOT BETWEEN 1 AND " LOCK_MS);
    bool fine = PQresultStatus(res) == PGRES_TUPLES_OK;

    if (!fine)
        sql_dialled_fail(ret, IDEM_E_REFUSED, false, PQresultErrorMessage(res));
    PQclear(res);
    return fine;
}

/* Ends a lost session; true if it does not exist any more. */
static bool connect_kill_past(void *conn, const struct sql_session *past) {
    char text[300];
    PGresult *res;
    bool there;

    snprintf(text, sizeof(text),
             "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid = %lld "
             "AND (extract(epoch FROM backend_start) * 1000000)::bigint = %lld",
             (long long)past->id, (long long)past->since);
    res = PQexec(conn, text);
    there = PQresultStatus(res) != PGRES_TUPLES_OK || PQntuples(res) > 0;
    PQclear(res);
    return !there;
}

void pg_dial(const struct sql_config *config, const struct sql_session *past,
             struct sql_dialled *ret) {
    PGconn *conn;

    *ret = (struct sql_dialled){0};
    conn = pg_connect(config, ret);
    if (conn == NULL)
        return;
    if (connect_inspect(conn, ret) && sql_end_past(connect_kill_past, conn, past, ret) &&
        (ret->pooled || config->pooled || connect_configure_session(conn, ret))) {
        ret->pooled |= config->pooled;
        ret->connection = pg_connection_new(conn, ret->pooled);
        if (ret->connection != NULL)
            return;
        sql_dialled_fail(ret, IDEM_E_NOMEM, false, "no memory for a connection");
    }
    PQfinish(conn);
}
