/*
 * Ports of the loopback, for the servers of tests.
 */
#ifndef IDEM_TEST_PORT_H
#define IDEM_TEST_PORT_H

/* A port of 127.0.0.1 on which nothing listens, nor on the one 10000 above it. No other test gets
   it while this process lives. */
int port_free(void);

#endif
