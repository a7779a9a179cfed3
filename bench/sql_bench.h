/*
 * Loads on a SQL server: Idem's, and the same work written by hand. Each first
 * opens what it needs, so that only the work is measured; a failure ends the
 * program.
 */
#ifndef IDEM_SQL_BENCH_H
#define IDEM_SQL_BENCH_H

#include "idem.h"

struct load {
    const char *url;
    unsigned width; /* connections, or callers in flight */
    long number;    /* of pairs or transactions */
};

struct idem_sql load_connect(const char *url);
void load_say(struct idem_sql conn, const char *text);

/* An INSERT and an UPDATE of one row by its key, each a transaction of its own, as the
 * comparison for a claim and its done (sql_plain.c). */
void *plain_open(const struct load *load);
double plain_run(void *state, const struct load *load); /* seconds */

/* BEGIN, INSERT into a table of one unique column, UPDATE of an account, COMMIT; and the same
 * with idem_tx_once() in place of the INSERT, or with idem_tx_call() for all of it (sql_hand.c). */
void *hand_open(const struct load *load);
void *guard_open(const struct load *load);
void *call_open(const struct load *load);
double hand_run(void *state, const struct load *load);

#endif
