/*
 * Ports of the loopback, for the servers of tests.
 */
#ifndef IDEM_TEST_PORT_H
#define IDEM_TEST_PORT_H

/* A port of 127.0.0.1 that nobody listens on, nor on the one that is 10000 above it. */
int port_free(void);

#endif
