/*
 * Loads on a SQL server: ours, and the same work written by hand. Each opens what it needs first,
 * so that only the work is measured; what fails ends the program.
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

/* An INSERT and an UPDATE of one row by its key, each a transaction of its own: what a claim and
   its done are compared with (sql_plain.c). */
void *plain_open(const struct load *load);
double plain_run(void *state, const struct load *load); /* seconds */

/* BEGIN, INSERT into a table of one unique column, UPDATE of an account, COMMIT; and the same with
   idem_tx_once() in place of the INSERT, or by idem_tx_call() as a whole (sql_hand.c). */
void *hand_open(const struct load *load);
void *guard_open(const struct load *load);
void *call_open(const struct load *load);
double hand_run(void *state, const struct load *load);

#endif
