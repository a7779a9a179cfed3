/*
 * A transaction that must not happen twice, by hand and with the guard:
 * blocking calls, one connection for each thread, as in most programs.
 */
#include <err.h>
#include <libpq-fe.h>
#include <mysql.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pairs.h"
#include "sql_bench.h"

#define ACCOUNTS 1000 /* the number of rows of bench_account */

struct hand {
    struct idem_guard *guard; /* NULL: by hand */
    bool call;                /* with idem_tx_call() */
    unsigned threads_n;
    struct thread {
        const struct hand *hand;
        unsigned number;
        struct idem_sql conn;
        pthread_t id;
        long times;
    } * threads;
};

/* The statements of a program that knows its engine. */

static void postgres_say(PGconn *conn, const char *text, const char *value) {
    PGresult *res = PQexecParams(conn, text, 1, NULL, &value, NULL, NULL, 0);

    if (PQresultStatus(res) != PGRES_COMMAND_OK)
        errx(1, "%s: %s", text, PQerrorMessage(conn));
    PQclear(res);
}

static void seen_insert(struct idem_sql conn, const char *key) {
    char escaped[2 * IDEM_UUID_LEN + 1], text[2 * IDEM_UUID_LEN + 100];

    if (conn.kind == IDEM_SQL_POSTGRES) {
        postgres_say(conn.at.pg, "INSERT INTO bench_seen VALUES ($1)", key);
        return;
    }
    mysql_real_escape_string(conn.at.mysql, escaped, key, strlen(key));
    snprintf(text, sizeof(text), "INSERT INTO bench_seen VALUES ('%s')", escaped);
    load_say(conn, text);
}

static void account_update(struct idem_sql conn, unsigned id) {
    char number[16], text[100];

    snprintf(number, sizeof(number), "%u", id);
    snprintf(text, sizeof(text), "UPDATE bench_account SET balance = balance + 1 WHERE id = %u",
             id);
    if (conn.kind == IDEM_SQL_POSTGRES)
        postgres_say(conn.at.pg, "UPDATE bench_account SET balance = balance + 1 WHERE id = $1",
                     number);
    else
        load_say(conn, text);
}

static void guard_ask(const struct thread *t, const char *key) {
    const struct idem_args args = {.key = key, .key_len = strlen(key)};
    struct idem_tx_answer answer;
    struct idem_error error;

    if (idem_tx_once(t->conn, t->hand->guard, &args, &answer, &error) < 0)
        errx(1, "%s", error.text);
    if (answer.verdict != IDEM_TX_FIRST)
        errx(1, "%s", idem_tx_verdict_name(answer.verdict));
}

/* One transaction; each thread has accounts of its own, so that no thread waits for another. */
static void transact(const struct thread *t, const char *key, unsigned account) {
    load_say(t->conn, "BEGIN");
    if (t->hand->guard != NULL)
        guard_ask(t, key);
    else
        seen_insert(t->conn, key);
    account_update(t->conn, account);
    load_say(t->conn, "COMMIT");
}

static int work(struct idem_tx *tx, void *data) {
    account_update(idem_tx_conn(tx), *(unsigned *)data);
    return 0;
}

static void call(const struct thread *t, const char *key, unsigned account) {
    const struct idem_args args = {.key = key, .key_len = strlen(key)};
    struct idem_tx_answer answer;
    struct idem_error error;

    if (idem_tx_call(t->conn, t->hand->guard, &args, NULL, work, &account, &answer, &error) < 0)
        errx(1, "%s", error.text);
    if (answer.verdict != IDEM_TX_FIRST)
        errx(1, "%s", idem_tx_verdict_name(answer.verdict));
}

static void *thread_run(void *data) {
    struct thread *t = data;
    struct idem_error error;

    for (long i = 0; i < t->times; i++) {
        char key[IDEM_UUID_LEN + 1]; /* the usual key of a client */
        unsigned account = (unsigned)(i * t->hand->threads_n + t->number) % ACCOUNTS;

        if (idem_uuid4(key, &error) < 0)
            errx(1, "%s", error.text);
        if (t->hand->call)
            call(t, key, account);
        else
            transact(t, key, account);
    }
    return NULL;
}

void *hand_open(const struct load *load) {
    struct hand *hand = calloc(1, sizeof(*hand));

    if (hand == NULL || (hand->threads = calloc(load->width, sizeof(*hand->threads))) == NULL)
        err(1, "no memory");
    hand->threads_n = load->width;
    for (unsigned i = 0; i < load->width; i++)
        hand->threads[i] = (struct thread){.hand = hand,
                                           .number = i,
                                           .conn = load_connect(load->url),
                                           .times = load->number / load->width};
    return hand;
}

void *guard_open(const struct load *load) {
    static const struct idem_policy policy = {.prefix = "order:", .scope = IDEM_SCOPE_NONE};
    struct hand *hand = hand_open(load);
    struct idem_error error;

    if (idem_guard_new(NULL, &policy, &hand->guard, &error) < 0)
        errx(1, "%s", error.text);
    return hand;
}

void *call_open(const struct load *load) {
    struct hand *hand = guard_open(load);

    hand->call = true;
    return hand;
}

double hand_run(void *state, const struct load *load) {
    struct hand *hand = state;
    double from = now_s();

    (void)load;
    for (unsigned i = 0; i < hand->threads_n; i++)
        if (pthread_create(&hand->threads[i].id, NULL, thread_run, &hand->threads[i]) != 0)
            errx(1, "no thread");
    for (unsigned i = 0; i < hand->threads_n; i++)
        pthread_join(hand->threads[i].id, NULL);
    return now_s() - from;
}
