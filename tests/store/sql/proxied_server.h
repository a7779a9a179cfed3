/*
 * Shared by the tests of a SQL store's faults: one server of the kind in
 * IDEM_TEST_SQL, and stores on it, directly or through the proxy.
 */
#ifndef IDEM_TEST_STORE_SQL_PROXIED_SERVER_H
#define IDEM_TEST_STORE_SQL_PROXIED_SERVER_H

#include <libpq-fe.h>

#include "contract/conn.h"
#include "idem.h"
#include "store/proxy.h"
#include "tables.h"

extern struct farm farm;
extern struct proxy proxy;

bool is_postgres(void);
void server_begin(const char *const *settings); /* with Idem's tables */
/* options: "&name=value..." */
void open_plain(struct conn *c, const char *options);
/* Starts both, and opens a connected store of one connection through the proxy. */
void proxied(struct conn *c, enum host_kind kind, const char *options);
void proxy_begin(void); /* again, after proxy_stop() */
/* Submits, and waits until the server has the request. */
void submit_asked(struct conn *c, struct call *call);
/* Turns the loop until the condition holds, or the test's time is up. */
void turn_until(struct conn *c, bool (*holds)(void));
/* The number that a query returns. */
long ask_number(const char *sql);
/* Returns a transaction that locks the record of a key until it is closed. */
struct idem_sql row_hold(const char *key);
/* As the server's superuser, outside of the database. */
void root_do(const char *sql);
long root_number(const char *sql);

#endif
