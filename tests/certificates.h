/*
 * Certificates for servers and clients of tests, of an authority of our own.
 */
#ifndef IDEM_TEST_CERTIFICATES_H
#define IDEM_TEST_CERTIFICATES_H

/* In the folder, each with a key beside it (.key): ca.crt; server.crt for localhost and 127.0.0.1;
   client.crt; elsewhere.crt, for another host. Valid from the clock's time on (-1: from now). */
void certificates_make(const char *folder, int clock_fd);

#endif
