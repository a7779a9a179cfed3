/*
 * A worker of the kill test: runs calls under shared random keys, in several
 * threads, and logs each call and its outcome, until it is killed or receives
 * SIGTERM.
 */
#ifndef IDEM_TEST_STORE_LMDB_KILL_WORKER_H
#define IDEM_TEST_STORE_LMDB_KILL_WORKER_H

#include <stddef.h>
#include <stdint.h>

#define KILL_RESULT_MAX 20000
#define KILL_LEASE_MS 300

/* Writes the result of `owner` under `key`, which any process can compute again. Returns its
 * length. */
size_t kill_result(const char *key, const char *owner, unsigned char out[KILL_RESULT_MAX]);

/* A number that two results share only if they have the same bytes. */
uint64_t kill_digest(const void *bytes, size_t len);

/* argv: program, --worker, URL, LOG, recover (hold or rerun), seed, start (history_now()). */
int kill_worker_main(int argc, char **argv);
/* SIG_BLOCK, before the worker starts: a SIGTERM then waits until the worker handles it. */
void kill_worker_defer(int how);

#endif
