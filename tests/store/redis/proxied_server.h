/*
 * Shared by the tests of faults: one server that keeps its data over a restart,
 * and stores on it, directly or through the proxy.
 */
#ifndef IDEM_TEST_STORE_REDIS_PROXIED_SERVER_H
#define IDEM_TEST_STORE_REDIS_PROXIED_SERVER_H

#include "contract/conn.h"
#include "server.h"
#include "store/proxy.h"

extern struct server server;
extern struct proxy proxy;

void server_begin(void); /* also starts it again, with its data */
void open_plain(struct conn *c, const char *options);
/* Starts both, and opens a connected store through the proxy. */
void proxied(struct conn *c, enum host_kind kind, const char *options);

/* Turns the loop until the condition holds, or the test's time is up. */
void turn_until(struct conn *c, bool (*holds)(void));
/* The same, while the loop's clock runs faster. */
void pass_until(struct conn *c, bool (*holds)(void));
/* Submits, and waits until the server has the request. */
void submit_asked(struct conn *c, struct call *call);

/* "STEM7", in one of four buffers. */
const char *numbered(const char *stem, unsigned n);

#endif
