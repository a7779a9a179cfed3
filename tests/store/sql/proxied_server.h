/*
 * What the tests of a SQL store's faults share: one server of the kind that IDEM_TEST_SQL names,
 * and stores on it, straight or behind the proxy.
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
void server_begin(const char *const *settings); /* with the tables */
/* options: "&name=value..." */
void open_plain(struct conn *c, const char *options);
/* Starts both, and opens a store of one connection behind the proxy, which is connected then. */
void proxied(struct conn *c, enum host_kind kind, const char *options);
void proxy_begin(void); /* again, after proxy_stop() */
/* Submits, and waits until the server was asked. */
void submit_asked(struct conn *c, struct call *call);
/* Until it has happened, or the test's time is up. */
void turn_until(struct conn *c, bool (*holds)(void));
/* A number that the server gives. */
long ask_number(const char *sql);
/* Somebody's transaction, open until it is closed, that holds the record of a key. */
struct idem_sql row_hold(const char *key);
/* As the server's superuser, outside of the database. */
void root_do(const char *sql);
long root_number(const char *sql);

#endif
