/*
 * Two plain statements on one row by its key, as fast as a hand-written program
 * can send them: prepared; with PostgreSQL pipelined, on a loop; with MySQL,
 * which accepts one at a time, by a thread for each connection. There are as
 * many connections as a store has.
 */
#include <err.h>
#include <libpq-fe.h>
#include <mysql.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/hash.h"
#include "pairs.h"
#include "sql_bench.h"

#define CONNECTIONS 4
#define RING 1024

static const char result[PAIRS_RESULT_LEN] = "receipt";

static void key_make(long number, unsigned char key[32]) {
    char text[64];
    int len = snprintf(text, sizeof(text), "%d-%ld-%ld", getpid(), (long)time(NULL) / 1000, number);

    if (idem_sha256((struct idem_bytes){(unsigned char *)text, (size_t)len}, key) < 0)
        errx(1, "no hash");
}

struct plain {
    struct idem_sql conns[CONNECTIONS];
    atomic_long begun;
    long ended, pairs;
    /* PostgreSQL: rings of connections whose statement is under way. */
    struct ring {
        unsigned char keys[RING][32];
        bool updates[RING];
        size_t first, n;
    } rings[CONNECTIONS];
};

/* PostgreSQL. */

static void ring_send(struct plain *p, unsigned i, const unsigned char key[32], bool update) {
    const char *values[] = {(const char *)key, result};
    int lengths[] = {32, PAIRS_RESULT_LEN}, formats[] = {1, 1};
    struct ring *ring = &p->rings[i];
    PGconn *conn = p->conns[i].at.pg;
    size_t at = (ring->first + ring->n++) % RING;

    memmove(ring->keys[at], key, 32);
    ring->updates[at] = update;
    if (PQsendQueryPrepared(conn, update ? "u" : "i", update ? 2 : 1, values, lengths, formats,
                            1) != 1 ||
        PQpipelineSync(conn) != 1)
        errx(1, "%s", PQerrorMessage(conn));
}

static void ring_begin(struct plain *p, unsigned i) {
    unsigned char key[32];

    key_make(p->begun++, key);
    ring_send(p, i, key, false);
}

/* The oldest statement has its result. */
static void ring_end(struct plain *p, unsigned i) {
    struct ring *ring = &p->rings[i];
    unsigned char key[32];
    bool update = ring->updates[ring->first];

    memcpy(key, ring->keys[ring->first], 32);
    ring->first = (ring->first + 1) % RING;
    ring->n--;
    if (!update)
        ring_send(p, i, key, true);
    else if (++p->ended, p->begun < p->pairs)
        ring_begin(p, i);
}

static void ring_take(struct plain *p, unsigned i) {
    PGconn *conn = p->conns[i].at.pg;

    PQconsumeInput(conn);
    while (p->rings[i].n > 0 && !PQisBusy(conn)) {
        PGresult *res = PQgetResult(conn);

        if (res == NULL)
            continue;
        if (PQresultStatus(res) == PGRES_FATAL_ERROR)
            errx(1, "%s", PQresultErrorMessage(res));
        if (PQresultStatus(res) == PGRES_PIPELINE_SYNC)
            ring_end(p, i);
        PQclear(res);
    }
}

static void postgres_prepare(PGconn *conn) {
    PQclear(PQprepare(conn, "i", "INSERT INTO bench_plain (key, state) VALUES ($1, 1)", 0, NULL));
    PQclear(PQprepare(conn, "u", "UPDATE bench_plain SET state = 2, result = $2 WHERE key = $1", 0,
                      NULL));
    PQsetnonblocking(conn, 1);
    PQenterPipelineMode(conn);
}

static void postgres_run(struct plain *p, unsigned callers) {
    struct pollfd fds[CONNECTIONS];

    for (unsigned i = 0; i < callers; i++)
        ring_begin(p, i % CONNECTIONS);
    while (p->ended < p->pairs) {
        for (unsigned i = 0; i < CONNECTIONS; i++) {
            int left = PQflush(p->conns[i].at.pg);

            fds[i] = (struct pollfd){.fd = PQsocket(p->conns[i].at.pg),
                                     .events = (short)(POLLIN | (left > 0 ? POLLOUT : 0))};
        }
        if (poll(fds, CONNECTIONS, 120000) <= 0)
            errx(1, "silence");
        for (unsigned i = 0; i < CONNECTIONS; i++)
            if (fds[i].revents & POLLIN)
                ring_take(p, i);
    }
}

/* MySQL. */

static MYSQL_STMT *mysql_prepare(MYSQL *conn, const char *text) {
    MYSQL_STMT *stmt = mysql_stmt_init(conn);

    if (stmt == NULL || mysql_stmt_prepare(stmt, text, strlen(text)) != 0)
        errx(1, "%s: %s", text, mysql_error(conn));
    return stmt;
}

static void stmt_say(MYSQL_STMT *stmt, MYSQL_BIND *values) {
    if (mysql_stmt_bind_param(stmt, values) != 0 || mysql_stmt_execute(stmt) != 0)
        errx(1, "%s", mysql_stmt_error(stmt));
}

struct lane {
    struct plain *plain;
    MYSQL *conn;
    pthread_t id;
};

static void *lane_run(void *data) {
    struct lane *lane = data;
    MYSQL_STMT *insert =
        mysql_prepare(lane->conn, "INSERT INTO bench_plain (id, state) VALUES (?, 1)");
    MYSQL_STMT *update =
        mysql_prepare(lane->conn, "UPDATE bench_plain SET state = 2, result = ? WHERE id = ?");
    unsigned char key[32];
    MYSQL_BIND id = {.buffer_type = MYSQL_TYPE_BLOB, .buffer = key, .buffer_length = sizeof(key)};
    MYSQL_BIND both[] = {
        {.buffer_type = MYSQL_TYPE_BLOB, .buffer = (char *)result, .buffer_length = sizeof(result)},
        id};
    long number;

    while ((number = atomic_fetch_add(&lane->plain->begun, 1)) < lane->plain->pairs) {
        key_make(number, key);
        stmt_say(insert, &id);
        stmt_say(update, both);
    }
    mysql_stmt_close(insert);
    mysql_stmt_close(update);
    return NULL;
}

static void mysql_run(struct plain *p) {
    struct lane lanes[CONNECTIONS];

    for (unsigned i = 0; i < CONNECTIONS; i++) {
        lanes[i] = (struct lane){.plain = p, .conn = p->conns[i].at.mysql};
        if (pthread_create(&lanes[i].id, NULL, lane_run, &lanes[i]) != 0)
            errx(1, "no thread");
    }
    for (unsigned i = 0; i < CONNECTIONS; i++)
        pthread_join(lanes[i].id, NULL);
}

/* Both. */

void *plain_open(const struct load *load) {
    struct plain *p = calloc(1, sizeof(*p));

    if (p == NULL)
        err(1, "no memory");
    for (unsigned i = 0; i < CONNECTIONS; i++) {
        p->conns[i] = load_connect(load->url);
        if (p->conns[i].kind == IDEM_SQL_POSTGRES)
            postgres_prepare(p->conns[i].at.pg);
    }
    if (load->width > RING)
        errx(64, "at most %d callers", RING);
    return p;
}

double plain_run(void *state, const struct load *load) {
    struct plain *p = state;
    double from = now_s();

    p->pairs = load->number;
    if (p->conns[0].kind == IDEM_SQL_POSTGRES)
        postgres_run(p, load->width);
    else
        mysql_run(p);
    return now_s() - from;
}
