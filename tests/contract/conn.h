/*
 * A connection to a store with its own loop and host, and operations on it as
 * calls that can be waited for. Every call is checked against what store.h
 * promises of all of them: inputs may go once submit has returned, complete
 * runs once, from the loop, with a text to every error.
 */
#ifndef IDEM_CONTRACT_CONN_H
#define IDEM_CONTRACT_CONN_H

#include "host.h"
#include "store/store.h"

/* test.h has one program per file in mind: where its main is not used, that is meant. */
struct test;
static struct test **test_last __attribute__((unused));
static int test_main(int argc, char **argv) __attribute__((unused));
#include "loop_clock.h"
#include "test.h"
#include "wait.h"

/* The store's clocks, shared by all processes that were forked after they were made. */
struct shared_clock {
    _Atomic int64_t lease, wall;
};

/* ret_fd, which may be NULL, gets the descriptor behind it, for a server: the caller's to close. */
struct shared_clock *clock_share(int *ret_fd);
void clock_reset(struct shared_clock *clock);
struct idem_clock clock_calls(struct shared_clock *clock);

/* Memory for what a call-back only lends; one list per thread, freed all at once. */
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

/* The code and err of idem_store_open(). Of a server's times those that the URL leaves out are 100
 * s.
 */
int conn_try(struct conn *conn, const char *url, enum host_kind kind,
             const struct idem_clock *clock, struct idem_error *err);
void conn_open(struct conn *conn, const char *url, enum host_kind kind,
               const struct idem_clock *clock);
void conn_close(struct conn *conn);       /* takes a closed one */
void conn_close_store(struct conn *conn); /* only that: may be done inside a call-back */
void conn_turn(struct conn *conn, int64_t max_ms);
/* So long by the loop's clock (loop_clock.h), and much less in fact: for what must not happen. */
void conn_pass(struct conn *conn, int64_t ms);
void conn_idle(struct conn *conn, int64_t ms); /* turns for so long, whatever happens */

/* While the loop's clock stands still otherwise: a turn, and time goes on up to `left`, and hardly
   beyond that. What comes only by a later timer does not come before the test's limit. */
void conn_turn_slowly(struct conn *conn, int64_t *left);

/* Turns until the condition holds; one that never does ends the test. */
#define TURN_UNTIL(conn, condition) WAIT_BY(conn_turn((conn), 10), condition)

/* The same, where what comes only by a timer that is so far away is too late. */
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
    struct idem_record record;        /* kept: of a claim or a look-up */
    const struct idem_entry *entries; /* kept: of a list */
    void (*then)(struct call *call);  /* from inside complete; may be NULL */
    void *data;                       /* for then */
};

/* Fills in kind and key (NULL: none). */
void call_init(struct call *call, struct conn *conn, enum idem_op_kind kind,
               const struct idem_record_key *key);

/* Submits a copy of the inputs and destroys the copy. The code of submit. */
int call_submit(struct call *call);

/* Waits for complete, and gives back its code; a call that failed in submit is that. */
int call_wait(struct call *call);
int call_run(struct call *call);

/* `prefix` + SHA-256 of a key in scope none. */
struct idem_record_key key_in(const char *prefix, const char *name);

/* A folder of this process under $TMPDIR; all in it goes with folder_remove(). */
void folder_make(char *path, size_t size);
void folder_remove(const char *path);

#endif
