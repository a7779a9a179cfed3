/*
 * The contract suite: written once, run on every driver.
 *
 * A driver's program names the URL of a fresh store and calls contract_main().
 * Each CONTRACT(a_sentence) runs in a process of its own on an empty store,
 * under clocks that the test moves. A second connection to the same store is
 * another(), another process is a peer.
 *
 * The verbs below (claim, finish, settle, ...) look the record up before and
 * after: the tables judge each verb on top of the test's own checks. The suite
 * remembers which rows were met over the whole program, so that the last test
 * can prove that all of them were.
 */
#ifndef IDEM_CONTRACT_H
#define IDEM_CONTRACT_H

#include "conn.h"
#include "judge.h"

struct contract_driver {
    const char *name; /* chosen by --with=NAME; the first is the default */

    /* The URL of a store that does not exist yet. `folder` is an empty directory, which is removed
     * afterwards. */
    void (*url)(const char *folder, char *url, size_t size);

    /* A store with little room, which some MiB fill; NULL: the driver has none. */
    void (*small)(const char *folder, char *url, size_t size);

    /* The number of items that the closed store still holds; NULL: the driver cannot count them. */
    size_t (*stored)(const char *folder);

    /* Wake-ups must come well before this time, which is the safety net. */
    int64_t slow_poll_ms;

    /* Starts servers for the whole program, whose time is the shared clock's, and empties them
     * before each test; NULL: the driver has no servers. */
    void (*start)(const char *folder, int clock_fd);
    void (*begin)(void);
    void (*stop)(void);

    /* A waiter for a key that has no record yet is woken after this time. */
    int64_t poll_ms;

    /* Lists have no order, and may name an entry twice if the store changes meanwhile. */
    bool unordered;

    /* The store removes expired records by itself, at any time. */
    bool sweeps_itself;

    /* Counts of other connections are visible after this time. */
    int64_t tally_ms;
};

int contract_main(int argc, char **argv, const struct contract_driver *drivers, size_t n);

/* Cases. */

struct contract_case {
    const char *name;
    void (*run)(void);
    struct contract_case *next;
};
void contract_register(struct contract_case *it);

#define CONTRACT_REGISTER(name, function)                                                          \
    __attribute__((constructor)) static void name##_register(void) {                               \
        static struct contract_case it = {#name, function, NULL};                                  \
        contract_register(&it);                                                                    \
    }

/* The body gets `c`, a connection to a fresh store. */
#define CONTRACT(name)                                                                             \
    static void name(struct conn *c);                                                              \
    static void name##_run(void) {                                                                 \
        contract_begin();                                                                          \
        name(another(HOST_POLL));                                                                  \
        contract_end();                                                                            \
    }                                                                                              \
    CONTRACT_REGISTER(name, name##_run)                                                            \
    static void name(struct conn *c)

/* No connection is open yet: the body may fork. */
#define CONTRACT_BARE(name)                                                                        \
    static void name(void);                                                                        \
    static void name##_run(void) {                                                                 \
        contract_begin();                                                                          \
        name();                                                                                    \
        contract_end();                                                                            \
    }                                                                                              \
    CONTRACT_REGISTER(name, name##_run)                                                            \
    static void name(void)

void contract_begin(void);
void contract_end(void);
const struct contract_driver *contract_driver(void);
const char *contract_folder(void);
const struct idem_clock *contract_clock(void);

/* One more connection to this test's store. It is closed after the test. */
struct conn *another(enum host_kind kind);

/* Advances both clocks of the store. */
void advance(int64_t ms);
struct idem_time now(void);

/* Another process. */

struct peer {
    pid_t pid;
    int to, from;
};

/* Forks; no connection may be open yet. The child opens one and obeys each word. */
struct peer peer_start(void (*obey)(struct conn *c, char word));
void peer_tell(struct peer *peer, char word); /* does not wait until the peer is done */
void peer_wait(struct peer *peer);            /* waits until the peer is done with one word */
void peer_stop(struct peer *peer);

/* Verbs: a test names a key by text, under the prefix "t:" and scope none. */

#define LEASE_MS 30000
#define TTL_MS 3600000
#define HOLD_TTL_MS 7200000

struct idem_record_key key_of(const char *name);
void owner_set(unsigned char owner[IDEM_OWNER_LEN], unsigned n);
struct idem_fingerprint fingerprint_of(uint32_t definition, unsigned char fill);

/* mode=replay, recover=hold, on_failure=release, no limit of attempts, no fingerprint. */
struct idem_claim_in claim_by(unsigned owner);
struct idem_claim_in rerun_by(unsigned owner, uint32_t attempts);
struct idem_claim_in lock_by(unsigned owner);
struct idem_claim_in token_by(unsigned owner, unsigned char bind); /* 0: no binding */

struct told {
    enum idem_verdict verdict;
    int64_t left_ms;
    struct idem_record record;
};
struct told claim(struct conn *c, const char *key, struct idem_claim_in in);
struct told claim_at(struct conn *c, const struct idem_record_key *key, struct idem_claim_in in);

struct idem_finish_in done_by(unsigned owner, int32_t status, const char *result);
struct idem_finish_in fail_by(unsigned owner, int32_t status, const char *reason, int64_t delay);
struct idem_finish_in release_by(unsigned owner);
struct idem_finish_in unknown_by(unsigned owner, int64_t delay);
struct idem_finish_in renew_by(unsigned owner, int64_t lease);
enum idem_ack finish(struct conn *c, const char *key, struct idem_finish_in in);
enum idem_ack finish_at(struct conn *c, const struct idem_record_key *key,
                        struct idem_finish_in in);

/* The record's state is IDEM_ABSENT if there is none. */
struct idem_record peek(struct conn *c, const char *key);
struct idem_record peek_at(struct conn *c, const struct idem_record_key *key);

bool issue(struct conn *c, const char *key, unsigned owner, unsigned char bind, int64_t ttl_ms);
int settle(struct conn *c, const char *key, struct idem_settle_in in);
int forget(struct conn *c, const char *key, bool force);
bool once(struct conn *c, const char *key, int64_t ttl_ms);

struct counted {
    bool changed;
    int64_t value;
};
struct counted count(struct conn *c, const char *key, enum idem_count_how how, int64_t value);

/* Returns a kept copy of all entries that the filter names, read in pages of `page`. */
struct listed {
    struct idem_entry *entries;
    size_t n;
};
struct listed list_all(struct conn *c, const char *prefix, struct idem_list_in in, size_t page);

/* Sweeps to the end in steps of `step` and returns the number of removed records. */
size_t sweep_all(struct conn *c, size_t step);
struct idem_stats stats(struct conn *c);

/* Claims or finishes the keys named by "%s%u" for 0..n-1, all at once. */
void claim_many(struct conn *c, const char *stem, unsigned n, const struct idem_claim_in *in);
void finish_many(struct conn *c, const char *stem, unsigned n, const struct idem_finish_in *in);

/* Claims the key and finishes it with done. */
void run_done(struct conn *c, const char *key, unsigned owner, const char *result);

#endif
