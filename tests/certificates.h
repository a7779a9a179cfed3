/*
 * Certificates for servers and clients of tests, signed by an authority of the
 * tests' own.
 */
#ifndef IDEM_TEST_CERTIFICATES_H
#define IDEM_TEST_CERTIFICATES_H

/* Makes in the directory, each with a key (.key): ca.crt; server.crt for localhost and
 * 127.0.0.1; client.crt; elsewhere.crt, for another host. They are valid from the clock's time
 * on (-1: from now). */
void certificates_make(const char *folder, int clock_fd);

#endif
