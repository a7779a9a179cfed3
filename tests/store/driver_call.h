/*
 * Operations of a store with a server, through its driver, and their responses.
 * Keys are texts under the prefix "t:", owners are numbers.
 */
#ifndef IDEM_TEST_STORE_DRIVER_CALL_H
#define IDEM_TEST_STORE_DRIVER_CALL_H

#include "contract/conn.h"

#define LEASE_MS 60000
#define TTL_MS 3600000

struct answer {
    int rc;
    char text[512]; /* of an error */
    enum idem_verdict verdict;
    uint32_t attempt;
    enum idem_ack ack;
    char result[64];
};

/* Fill in one operation each; the test may change it before it is submitted. */
void claim_fill(struct call *call, struct conn *c, const char *key, unsigned owner);
void done_fill(struct call *call, struct conn *c, const char *key, unsigned owner,
               const char *result);
void settle_fill(struct call *call, struct conn *c, const char *key);
void forget_fill(struct call *call, struct conn *c, const char *key, bool force);
void once_fill(struct call *call, struct conn *c, const char *key);
void count_fill(struct call *call, struct conn *c, const char *key, int64_t add);
void kind_fill(struct call *call, struct conn *c, enum idem_op_kind kind, const char *key);

struct answer answer_of(const struct call *call);
struct answer answer_wait(struct call *call); /* of a submitted call */
struct answer claim(struct conn *c, const char *key, unsigned owner);
struct answer done(struct conn *c, const char *key, unsigned owner, const char *result);
struct answer settle(struct conn *c, const char *key);
struct answer forget(struct conn *c, const char *key, bool force);
struct answer lookup(struct conn *c, const char *key);
/* Claims and finishes; both must succeed. */
void run_done(struct conn *c, const char *key, unsigned owner, const char *result);
/* Lists page by page; returns the number of entries. */
size_t list_count(struct conn *c);
size_t list_each(struct conn *c, void (*look)(const struct idem_entry *entries, size_t n));

/* The record's name in the server. */
void name_of(const char *key, char *out, size_t size);

/* Keeps the store's notices to operators, one per line. */
void notices_keep(struct conn *c, char *out, size_t size);

#endif
