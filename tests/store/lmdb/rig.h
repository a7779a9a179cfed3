/*
 * Helpers that the tests of the embedded store share: a store on its own loop
 * with an injected clock, used as if its operations were blocking; calls
 * through the library's handle; children; and the sizes and counts of files.
 *
 * A failure of the rig itself ends the test with its line; the store's codes
 * are returned.
 */
#ifndef IDEM_TEST_STORE_LMDB_RIG_H
#define IDEM_TEST_STORE_LMDB_RIG_H

#include <stdio.h>
#include <stdlib.h>
#include <sys/types.h>

#include "loop/poll.h"
#include "protocol/record_key.h"
#include "store/lmdb/lmdb_store.h"
#include "store/store.h"

#define NEED(cond)                                                                                 \
    do {                                                                                           \
        if (!(cond)) {                                                                             \
            fprintf(stderr, "# %s:%d: NEED(%s) failed\n", __FILE__, __LINE__, #cond);              \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

#define DAY_MS ((int64_t)24 * 3600 * 1000)

/* The default values of lmdb_patience; in the tests each wait is two minutes. */
extern struct lmdb_patience rig_documented;

/* A store with its loop. */

/* Both clocks, in memory that children share. */
struct rig_clock {
    _Atomic int64_t lease, wall;
};
struct rig_clock *rig_clock_new(void);
struct idem_clock rig_clock_calls(struct rig_clock *clock);
void rig_clock_pass(struct rig_clock *clock, int64_t ms); /* advances both clocks */

struct rig {
    struct idem_poll poll;
    struct idem_loop loop;
    struct idem_store *store;
    struct idem_error error; /* of the last failure */
    /* The policy of claims, which rig_open() sets; the test may change it. */
    const char *prefix;
    struct idem_claim_in policy;
};

/* Returns the store's code; the error is in rig->error. */
int rig_try(struct rig *rig, const char *url, const struct idem_clock *clock);
void rig_open(struct rig *rig, const char *url, const struct idem_clock *clock);
void rig_close(struct rig *rig);

/* Submits and turns the loop until the response comes. Returns its code; the error is in
 * rig->error. `take` (may be NULL) sees borrowed memory. */
int rig_run(struct rig *rig, struct idem_op *op, void (*take)(struct idem_op *op, void *data),
            void *data);

struct rig_claim {
    struct idem_record_key key;
    unsigned char owner[IDEM_OWNER_LEN];
    enum idem_verdict verdict;
    int64_t left_ms;
    uint32_t attempt;
};

struct idem_record_key rig_key(enum idem_name_kind kind, const char *prefix, const char *name);
int rig_claim(struct rig *rig, const char *name, struct rig_claim *ret);
int rig_finish(struct rig *rig, const struct rig_claim *claim, enum idem_owner_action action,
               const void *result, size_t len, enum idem_ack *ret);
/* Claims and finishes; if one of the two fails, the test ends. */
void rig_once(struct rig *rig, const char *name, const void *result, size_t len);
enum idem_verdict rig_ask(struct rig *rig,
                          const char *name); /* a claim that must succeed; returns its verdict */

/* True if a lookup finds the record done with exactly these bytes. */
bool rig_holds(struct rig *rig, const char *name, const void *result, size_t len);
struct idem_stats rig_stats(struct rig *rig);

/* The library's handle. */

struct idem *rig_handle(const char *url);
/* An idem_open() that must fail without a crash. Returns its code; the text is in err. */
int rig_refused(const char *url, struct idem_error *err);

/* Calls idem_call() under `key` with a callback that returns this result. Returns the code of
 * the call, and in *ret_verdict the verdict if there is one. */
int rig_call(struct idem *h, const char *key, const void *result, size_t len,
             enum idem_verdict *ret_verdict, struct idem_error *err);
/* The same; the call must run. */
void rig_call_runs(struct idem *h, const char *key, const void *result, size_t len);
/* True if a call replays exactly these bytes. */
bool rig_call_replays(struct idem *h, const char *key, const void *result, size_t len);

/* Bytes that follow from a seed, so that a test can compute them again. */
void rig_bytes(uint64_t seed, void *out, size_t len);
uint64_t rig_random(uint64_t *state);

/* Children and files. */

/* The directory of this process, which is removed at its end; and URLs in it. */
const char *rig_folder(void);
const char *rig_url(const char *name, const char *options); /* one of four buffers */

/* Runs fn in a child of its own, and returns its wait status. */
int rig_child(void (*fn)(void *data), void *data);
/* The same; the test fails unless the child exits with 0. `what` names the case. */
void rig_child_ok(const char *what, void (*fn)(void *data), void *data);
pid_t rig_spawn(void (*fn)(void *data), void *data);
void rig_sleep(int64_t ms);

off_t rig_file_size(const char *path);
void rig_file_write(const char *path, const void *bytes, size_t len); /* made or replaced */
size_t rig_file_read(const char *path, void *out, size_t size);
void rig_file_poke(const char *path, off_t at, const void *bytes, size_t len);
void rig_file_copy(const char *from, const char *to);
/* The number of names in the directory with this prefix. */
size_t rig_file_count(const char *folder, const char *begin);
size_t rig_fd_count(void);

/* DIRECTORY/NAME, in one of four buffers that are used in turn. */
const char *rig_path(const char *folder, const char *name);

#endif
