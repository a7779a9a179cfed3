/*
 * What the tests of faults share: one server that keeps what it was told over a
 * restart, and stores on it, straight or behind the proxy.
 */
#ifndef IDEM_TEST_STORE_REDIS_PROXIED_SERVER_H
#define IDEM_TEST_STORE_REDIS_PROXIED_SERVER_H

#include "contract/conn.h"
#include "server.h"
#include "store/proxy.h"

extern struct server server;
extern struct proxy proxy;

void server_begin(void); /* or again, with what it had */
void open_plain(struct conn *c, const char *options);
/* Starts both, and opens a store behind the proxy, which is connected then. */
void proxied(struct conn *c, enum host_kind kind, const char *options);

/* Until it has happened, or the test's time is up. */
void turn_until(struct conn *c, bool (*holds)(void));
/* The same, while the loop's clock goes faster. */
void pass_until(struct conn *c, bool (*holds)(void));
/* Submits, and waits until the server was asked. */
void submit_asked(struct conn *c, struct call *call);

/* "STEM7", in one of four buffers. */
const char *numbered(const char *stem, unsigned n);

#endif
