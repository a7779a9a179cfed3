/*
 * A connection to a store with its own loop and host, and operations on it as
 * calls that a test can wait for. Every call is checked against the promises
 * that store.h makes for all operations: the caller may free the inputs once
 * submit has returned, and complete runs once, from the loop, with a text for
 * every error.
 */
#ifndef IDEM_CONTRACT_CONN_H
#define IDEM_CONTRACT_CONN_H

#include "host.h"
#include "store/store.h"

/* test.h expects one program per file. A file that includes this header may have no main. */
struct test;
static struct test **test_last __attribute__((unused));
static int test_main(int argc, char **argv) __attribute__((unused));
#include "loop_clock.h"
#include "test.h"
#include "wait.h"

/* The store's clocks, shared by all processes that are forked after they were made. */
struct shared_clock {
    _Atomic int64_t lease, wall;
};

/* ret_fd, which may be NULL, receives the clocks' descriptor, for a server. The caller closes
 * it. */
struct shared_clock *clock_share(int *ret_fd);
void clock_reset(struct shared_clock *clock);
struct idem_clock clock_calls(struct shared_clock *clock);

/* Memory for copies of what a callback only lends: one list per thread, freed all at once. */
void *keep(const void *bytes, size_t len);
void keep_reset(void);

struct idem_bytes bytes_of(const char *text);
struct idem_record record_keep(const struct idem_record *record);

struct conn {
    bool open;
    struct host host;
    struct idem_loop loop;
    struct idem_store *store;
};

/* Returns the code and the err of idem_store_open(). A server's timeouts that the URL leaves out
 * are 100 s. */
int conn_try(struct conn *conn, const char *url, enum host_kind kind,
             const struct idem_clock *clock, struct idem_error *err);
void conn_open(struct conn *conn, const char *url, enum host_kind kind,
               const struct idem_clock *clock);
void conn_close(struct conn *conn);       /* a closed connection is allowed */
void conn_close_store(struct conn *conn); /* closes only the store: allowed inside a callback */
void conn_turn(struct conn *conn, int64_t max_ms);
/* A duration by the loop's clock (loop_clock.h), which passes much faster in fact: for events
 * that must not happen. */
void conn_pass(struct conn *conn, int64_t ms);
void conn_idle(struct conn *conn, int64_t ms); /* turns the loop for this time, whatever happens */

/* Lets the loop's clock advance by about `left` and no further; otherwise the clock stands
 * still. An event that needs a later timer does not come before the test's limit. */
void conn_turn_slowly(struct conn *conn, int64_t *left);

/* Turns the loop until the condition holds. If it never does, the test fails. */
#define TURN_UNTIL(conn, condition) WAIT_BY(conn_turn((conn), 10), condition)

/* The same, but an event that needs a timer so far away is too late. */
#define TURN_UNTIL_WITHIN(conn, ms, condition)                                                     \
    do {                                                                                           \
        int64_t turn_left_ = (ms);                                                                 \
        loop_clock_stop();                                                                         \
        WAIT_BY(conn_turn_slowly((conn), &turn_left_), condition);                                 \
        loop_clock_go_on();                                                                        \
    } while (0)

struct call {
    struct idem_op op;
    struct conn *conn;
    bool submitting;
    unsigned completed;
    int rc;
    struct idem_record record;        /* a copy: the record of a claim or a lookup */
    const struct idem_entry *entries; /* a copy: the entries of a list */
    void (*then)(struct call *call);  /* called inside complete; may be NULL */
    void *data;                       /* for then */
};

/* Sets kind and key (NULL: no key). */
void call_init(struct call *call, struct conn *conn, enum idem_op_kind kind,
               const struct idem_record_key *key);

/* Submits a copy of the inputs and destroys the copy. Returns the code of submit. */
int call_submit(struct call *call);

/* Waits for complete and returns its code, or that of submit if submit failed. */
int call_wait(struct call *call);
int call_run(struct call *call);

/* `prefix` + SHA-256 of a key in scope none. */
struct idem_record_key key_in(const char *prefix, const char *name);

/* A directory of this process under $TMPDIR; folder_remove() removes it with its content. */
void folder_make(char *path, size_t size);
void folder_remove(const char *path);

#endif
