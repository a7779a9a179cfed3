/*
 * A worker of the kill test: does things once under shared random keys, in
 * several threads, and writes down everything it asks and is told, until it is
 * killed or told to stop.
 */
#ifndef IDEM_TEST_STORE_LMDB_KILL_WORKER_H
#define IDEM_TEST_STORE_LMDB_KILL_WORKER_H

#include <stddef.h>
#include <stdint.h>

#define KILL_RESULT_MAX 20000
#define KILL_LEASE_MS 300

/* What `owner` stores under `key`: so can everybody make it again. Its length. */
size_t kill_result(const char *key, const char *owner, unsigned char out[KILL_RESULT_MAX]);

/* A word that two results share only if they are the same bytes. */
uint64_t kill_digest(const void *bytes, size_t len);

/* argv: program, --worker, URL, LOG, recover (hold or rerun), seed, start (history_now()). */
int kill_worker_main(int argc, char **argv);
/* SIG_BLOCK, before it is started: SIGTERM waits until it can be heeded. */
void kill_worker_defer(int how);

#endif
