/*
 * What guards and stores are compared with: the same work, written by hand with the engine's own
 * library.
 *
 *     bench-sql URL plain CALLERS PAIRS          an INSERT and an UPDATE of one row by its key,
 * each a transaction, on 4 connections: pairs per second bench-sql URL hand CONNECTIONS TIMES
 * BEGIN, INSERT into a one-column unique table, UPDATE of an account, COMMIT: transactions per
 * second bench-sql URL guard CONNECTIONS TIMES      the same with idem_tx_once() in place of the
 * INSERT
 */
#include <err.h>
#include <libpq-fe.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/hash.h"
#include "pairs.h"

#define CONNECTIONS 4

static PGconn *pg_open(const char *url) {
    struct idem_error error;
    struct idem_sql conn;

    if (idem_sql_open(url, &conn, &error) < 0)
        errx(1, "%s", error.text);
    return conn.at.pg;
}

static void pg_do(PGconn *conn, const char *text) {
    PGresult *res = PQexec(conn, text);

    if (PQresultStatus(res) != PGRES_COMMAND_OK)
        errx(1, "%s: %s", text, PQerrorMessage(conn));
    PQclear(res);
}

/* Plain pairs, pipelined. */

struct plain {
    PGconn *conns[CONNECTIONS];
    long begun, ended, pairs;
    unsigned char keys[CONNECTIONS][1024][32]; /* a ring of those whose INSERT is under way */
    bool updates[CONNECTIONS][1024];
    size_t first[CONNECTIONS], n[CONNECTIONS];
};

static void plain_send(struct plain *p, unsigned i, const unsigned char key[32], bool update) {
    static const char result[PAIRS_RESULT_LEN] = "receipt";
    const char *values[] = {(const char *)key, result};
    int lengths[] = {32, PAIRS_RESULT_LEN}, formats[] = {1, 1};
    size_t at = (p->first[i] + p->n[i]++) % 1024;

    memmove(p->keys[i][at], key, 32);
    p->updates[i][at] = update;
    if (PQsendQueryPrepared(p->conns[i], update ? "u" : "i", update ? 2 : 1, values, lengths,
                            formats, 1) != 1 ||
        PQpipelineSync(p->conns[i]) != 1)
        errx(1, "%s", PQerrorMessage(p->conns[i]));
}

static void plain_begin(struct plain *p, unsigned i) {
    char text[64];
    unsigned char key[32];
    int len = snprintf(text, sizeof(text), "%d-%ld", getpid(), p->begun++);

    (void)idem_sha256((struct idem_bytes){(unsigned char *)text, (size_t)len}, key);
    plain_send(p, i, key, false);
}

static void plain_take(struct plain *p, unsigned i) {
    PGresult *res;

    PQconsumeInput(p->conns[i]);
    while (p->n[i] > 0 && !PQisBusy(p->conns[i])) {
        unsigned char key[32];
        bool update;

        res = PQgetResult(p->conns[i]);
        if (res == NULL)
            continue;
        if (PQresultStatus(res) == PGRES_FATAL_ERROR)
            errx(1, "%s", PQresultErrorMessage(res));
        if (PQresultStatus(res) == PGRES_PIPELINE_SYNC) {
            memcpy(key, p->keys[i][p->first[i]], 32);
            update = p->updates[i][p->first[i]];
            p->first[i] = (p->first[i] + 1) % 1024;
            p->n[i]--;
            if (!update)
                plain_send(p, i, key, true);
            else if (++p->ended, p->begun < p->pairs)
                plain_begin(p, i);
        }
        PQclear(res);
    }
}

static struct plain *plain_open(const char *url) {
    struct plain *p = calloc(1, sizeof(*p));

    for (unsigned i = 0; i < CONNECTIONS; i++) {
        p->conns[i] = pg_open(url);
        PQclear(PQprepare(p->conns[i], "i", "INSERT INTO bench_plain (key, state) VALUES ($1, 1)",
                          0, NULL));
        PQclear(PQprepare(p->conns[i], "u",
                          "UPDATE bench_plain SET state = 2, result = $2 WHERE key = $1", 0, NULL));
        PQsetnonblocking(p->conns[i], 1);
        PQenterPipelineMode(p->conns[i]);
    }
    return p;
}

static double plain_run(struct plain *p, unsigned callers, long pairs) {
    struct pollfd fds[CONNECTIONS];
    double from = now_s();

    p->pairs = pairs;
    for (unsigned i = 0; i < callers; i++)
        plain_begin(p, i % CONNECTIONS);
    while (p->ended < p->pairs) {
        for (unsigned i = 0; i < CONNECTIONS; i++) {
            int left = PQflush(p->conns[i]);

            fds[i] = (struct pollfd){.fd = PQsocket(p->conns[i]),
                                     .events = (short)(POLLIN | (left > 0 ? POLLOUT : 0))};
        }
        if (poll(fds, CONNECTIONS, 5000) <= 0)
            errx(1, "silence");
        for (unsigned i = 0; i < CONNECTIONS; i++)
            if (fds[i].revents & POLLIN)
                plain_take(p, i);
    }
    return now_s() - from;
}

/* The server's CPU time, in seconds, of all sessions but this one. */
static double server_s(PGconn *conn) {
    PGresult *res = PQexec(conn, "SELECT pid FROM pg_stat_activity WHERE datname = "
                                 "current_database() AND pid <> pg_backend_pid()");
    double sum = 0;

    for (int i = 0; i < PQntuples(res); i++) {
        char path[64];
        double ns = 0;
        FILE *file;

        snprintf(path, sizeof(path), "/proc/%s/schedstat", PQgetvalue(res, i, 0));
        file = fopen(path, "r");
        if (file == NULL || fscanf(file, "%lf", &ns) != 1)
            errx(1, "%s", path);
        fclose(file);
        sum += ns / 1e9;
    }
    PQclear(res);
    return sum;
}

int main(int argc, char **argv) {
    struct pairs pairs = {0};
    struct plain *plain;
    double seconds, cpu;
    PGconn *conn;
    long n;

    if (argc != 5)
        errx(64, "URL plain|pairs CALLERS PAIRS");
    n = strtol(argv[4], NULL, 10);
    conn = pg_open(argv[1]);
    pg_do(conn,
          "CREATE TABLE IF NOT EXISTS bench_plain (key bytea PRIMARY KEY, state int NOT NULL, "
          "result bytea) WITH (fillfactor = 70)");
    plain = plain_open(argv[1]);
    pairs_open(&pairs, argv[1]);
    cpu = server_s(conn);
    if (strcmp(argv[2], "plain") == 0)
        seconds = plain_run(plain, (unsigned)strtoul(argv[3], NULL, 10), n);
    else
        seconds = pairs_run(&pairs, (unsigned)strtoul(argv[3], NULL, 10), n);
    printf("%.0f %.1f\n", (double)n / seconds, (server_s(conn) - cpu) / (double)n * 1e6);
    pairs_close(&pairs);
    PQfinish(conn);
    return 0;
}
