/*
 * The cost of guards and stores beside the same work, written by hand with the engine's own
 * library.
 *
 *     bench-sql URL plain|pairs CALLERS PAIRS
 *     bench-sql URL hand|guard|call CONNECTIONS TIMES
 *
 * prints the number per second, and the microseconds of the server's CPU time for each. It makes
 * the tables bench_plain, bench_seen and bench_account if they are missing.
 */
#include "sql_bench.h"

#include <dirent.h>
#include <err.h>
#include <libpq-fe.h>
#include <mysql.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "pairs.h"

struct idem_sql load_connect(const char *url) {
    struct idem_error error;
    struct idem_sql conn;

    if (idem_sql_open(url, &conn, &error) < 0)
        errx(1, "%s", error.text);
    return conn;
}

void load_say(struct idem_sql conn, const char *text) {
    PGresult *res;

    if (conn.kind == IDEM_SQL_MYSQL) {
        if (mysql_query(conn.at.mysql, text) != 0)
            errx(1, "%s: %s", text, mysql_error(conn.at.mysql));
        return;
    }
    res = PQexec(conn.at.pg, text);
    if (PQresultStatus(res) != PGRES_COMMAND_OK)
        errx(1, "%s: %s", text, PQerrorMessage(conn.at.pg));
    PQclear(res);
}

/* Tables for the work by hand, with a text as the key, which is usual. */
static void tables_make(struct idem_sql conn) {
    static const char *const postgres[] = {
        "CREATE TABLE IF NOT EXISTS bench_plain (key bytea PRIMARY KEY, state int NOT NULL, "
        "result bytea) WITH (fillfactor = 70)",
        "CREATE TABLE IF NOT EXISTS bench_seen (key text PRIMARY KEY)",
        "CREATE TABLE IF NOT EXISTS bench_account (id int PRIMARY KEY, balance bigint NOT NULL) "
        "WITH (fillfactor = 50)",
        "INSERT INTO bench_account SELECT i, 0 FROM generate_series(0, 999) i "
        "ON CONFLICT DO NOTHING",
    };
    static const char *const mysql[] = {
        "CREATE TABLE IF NOT EXISTS bench_plain (id VARBINARY(32) PRIMARY KEY, state INT NOT NULL, "
        "result BLOB) ENGINE=InnoDB",
        "CREATE TABLE IF NOT EXISTS bench_seen (id VARCHAR(190) PRIMARY KEY) ENGINE=InnoDB",
        "CREATE TABLE IF NOT EXISTS bench_account (id INT PRIMARY KEY, balance BIGINT NOT NULL) "
        "ENGINE=InnoDB",
        "INSERT IGNORE INTO bench_account SELECT seq, 0 FROM seq_0_to_999",
    };

    for (size_t i = 0; i < sizeof(mysql) / sizeof(mysql[0]); i++)
        load_say(conn, conn.kind == IDEM_SQL_POSTGRES ? postgres[i] : mysql[i]);
}

/* The server's CPU time. */

static double schedstat_s(const char *path) {
    FILE *file = fopen(path, "r");
    char line[100] = "";

    if (file == NULL) /* the thread has ended */
        return 0;
    if (fgets(line, sizeof(line), file) == NULL)
        errx(1, "%s", path);
    fclose(file);
    return strtod(line, NULL) / 1e9;
}

/* The CPU time of all sessions except this one. */
static double postgres_s(PGconn *conn) {
    PGresult *res = PQexec(conn, "SELECT pid FROM pg_stat_activity WHERE datname = "
                                 "current_database() AND pid <> pg_backend_pid()");
    double sum = 0;

    for (int i = 0; i < PQntuples(res); i++) {
        char path[64];

        snprintf(path, sizeof(path), "/proc/%s/schedstat", PQgetvalue(res, i, 0));
        sum += schedstat_s(path);
    }
    PQclear(res);
    return sum;
}

/* The CPU time of all the server's threads, because it does not report which of them are
 * sessions. The kernel knows the process at the other end of the socket. */
static double mysql_s(MYSQL *conn) {
    struct ucred peer;
    socklen_t len = sizeof(peer);
    struct dirent *entry;
    char path[300];
    double sum = 0;
    DIR *tasks;

    if (getsockopt(mysql_get_socket(conn), SOL_SOCKET, SO_PEERCRED, &peer, &len) < 0)
        err(1, "the server's process");
    snprintf(path, sizeof(path), "/proc/%d/task", peer.pid);
    tasks = opendir(path);
    if (tasks == NULL)
        err(1, "%s: is the URL that of a socket?", path);
    while ((entry = readdir(tasks)) != NULL) {
        if (entry->d_name[0] == '.')
            continue;
        snprintf(path, sizeof(path), "/proc/%d/task/%.20s/schedstat", peer.pid, entry->d_name);
        sum += schedstat_s(path);
    }
    closedir(tasks);
    return sum;
}

static double server_s(struct idem_sql conn) {
    return conn.kind == IDEM_SQL_POSTGRES ? postgres_s(conn.at.pg) : mysql_s(conn.at.mysql);
}

/* claim+done. */

static void *store_open(const struct load *load) {
    struct pairs *pairs = calloc(1, sizeof(*pairs));

    if (pairs == NULL)
        err(1, "no memory");
    pairs_open(pairs, load->url);
    return pairs;
}

static double store_run(void *state, const struct load *load) {
    return pairs_run(state, load->width, load->number);
}

static const struct {
    const char *name;
    void *(*open)(const struct load *load);
    double (*run)(void *state, const struct load *load);
} loads[] = {
    {"plain", plain_open, plain_run}, {"pairs", store_open, store_run},
    {"hand", hand_open, hand_run},    {"guard", guard_open, hand_run},
    {"call", call_open, hand_run},
};

int main(int argc, char **argv) {
    size_t i = 0, n = sizeof(loads) / sizeof(loads[0]);
    struct idem_sql conn;
    struct load load;
    double seconds, cpu;
    void *state;

    while (argc == 5 && i < n && strcmp(loads[i].name, argv[2]) != 0)
        i++;
    if (argc != 5 || i == n)
        errx(64, "bench-sql URL plain|pairs|hand|guard|call WIDTH NUMBER");
    load = (struct load){argv[1], (unsigned)strtoul(argv[3], NULL, 10), strtol(argv[4], NULL, 10)};
    if (load.width < 1 || load.number < load.width)
        errx(64, "WIDTH is at least 1, and NUMBER no less");
    load.number -= load.number % load.width; /* so that each connection does equally many */
    conn = load_connect(load.url);
    tables_make(conn);
    state = loads[i].open(&load);
    cpu = server_s(conn);
    seconds = loads[i].run(state, &load);
    printf("%.0f %.1f\n", (double)load.number / seconds,
           (server_s(conn) - cpu) / (double)load.number * 1e6);
    return 0;
}
