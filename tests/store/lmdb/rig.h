/*
 * What the tests of the embedded store share: a store on its own loop with an
 * injected clock, used as if its operations were blocking; the library's handle
 * doing something once; children; files seen from outside.
 *
 * What fails here and is not the store's answer ends the test with its line.
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

/* lmdb_patience as it is where no test has changed it; here it is two minutes each. */
extern struct lmdb_patience rig_documented;

/* A store with its loop. */

/* Both clocks, in memory that children share. */
struct rig_clock {
    _Atomic int64_t lease, wall;
};
struct rig_clock *rig_clock_new(void);
struct idem_clock rig_clock_calls(struct rig_clock *clock);
void rig_clock_pass(struct rig_clock *clock, int64_t ms); /* both clocks go on */

struct rig {
    struct idem_poll poll;
    struct idem_loop loop;
    struct idem_store *store;
    struct idem_error error; /* of what failed last */
    /* What claims say; set by rig_open(), the test may change it. */
    const char *prefix;
    struct idem_claim_in policy;
};

/* The store's code, with rig->error. */
int rig_try(struct rig *rig, const char *url, const struct idem_clock *clock);
void rig_open(struct rig *rig, const char *url, const struct idem_clock *clock);
void rig_close(struct rig *rig);

/* Submits and turns the loop until it is answered: its code, with rig->error. `take`
   (may be NULL) sees what is borrowed. */
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
/* Claims and finishes; both must succeed, or the test ends. */
void rig_once(struct rig *rig, const char *name, const void *result, size_t len);
enum idem_verdict rig_ask(struct rig *rig, const char *name); /* a claim that must be answered */

/* True if a look-up finds it done with exactly these bytes. */
bool rig_holds(struct rig *rig, const char *name, const void *result, size_t len);
struct idem_stats rig_stats(struct rig *rig);

/* The library's handle. */

struct idem *rig_handle(const char *url);
/* idem_open() that must fail, and not crash: its code, text in err. */
int rig_refused(const char *url, struct idem_error *err);

/* Does something once under `key`: idem_call() with a function that gives this result. The code
   of the call; *ret_verdict, where it was answered. */
int rig_call(struct idem *h, const char *key, const void *result, size_t len,
             enum idem_verdict *ret_verdict, struct idem_error *err);
/* The same, which must run. */
void rig_call_runs(struct idem *h, const char *key, const void *result, size_t len);
/* True if a call replays exactly these bytes. */
bool rig_call_replays(struct idem *h, const char *key, const void *result, size_t len);

/* Bytes that follow from a seed, so that they can be made again. */
void rig_bytes(uint64_t seed, void *out, size_t len);
uint64_t rig_random(uint64_t *state);

/* Children and files. */

/* The folder of this process, removed at its end; and URLs in it. */
const char *rig_folder(void);
const char *rig_url(const char *name, const char *options); /* one of four buffers */

/* Runs fn in a child of its own: its wait status. */
int rig_child(void (*fn)(void *data), void *data);
/* The same; the test ends unless it exits with 0. `what` names the case. */
void rig_child_ok(const char *what, void (*fn)(void *data), void *data);
pid_t rig_spawn(void (*fn)(void *data), void *data);
void rig_sleep(int64_t ms);

off_t rig_file_size(const char *path);
void rig_file_write(const char *path, const void *bytes, size_t len); /* made or replaced */
size_t rig_file_read(const char *path, void *out, size_t size);
void rig_file_poke(const char *path, off_t at, const void *bytes, size_t len);
void rig_file_copy(const char *from, const char *to);
/* How many names in the folder begin like that. */
size_t rig_file_count(const char *folder, const char *begin);
size_t rig_fd_count(void);

/* FOLDER/NAME, in one of four buffers that take turns. */
const char *rig_path(const char *folder, const char *name);

#endif
