/*
 * The pure core as a model of a store, one key at a time, and random questions
 * to ask both. All byte strings of a question come from a fixed pool, so that
 * questions and records can be copied, and can lie in shared memory.
 */
#ifndef IDEM_CONTRACT_MODEL_H
#define IDEM_CONTRACT_MODEL_H

#include "conn.h"

#define MODEL_KEYS 5

struct rng {
    uint64_t state;
};
uint64_t rng_next(struct rng *rng);
unsigned rng_below(struct rng *rng, unsigned n);

/* The content of a store under one name: a record, a nonce and a counter. */
struct slot {
    struct idem_record record;
    int64_t nonce_expires;
    int64_t counter, counter_expires;
};

struct question {
    enum idem_op_kind kind;
    unsigned key; /* below MODEL_KEYS */
    __typeof__(((struct idem_op *)0)->in) in;
};

/* The content of a response, so that equal responses are equal structs. */
struct brief {
    int64_t rc, what, number;
    uint64_t digest; /* of the record */
};

/* The times that the store returns. */
enum model_times {
    MODEL_EXACT,
    MODEL_UNTIMED_CLAIMS, /* the response to a claim has no times */
    MODEL_RELATIVE,       /* nor is the end of a lease known once it is over */
};
extern enum model_times model_times;

void model_pool_init(void);

/* A question about one key. `owner` is the owner of a claim or a finish; 0: any. */
struct question question_make(struct rng *rng, unsigned owner);
unsigned question_owner(struct rng *rng);
void question_say(const struct question *q, char *buf, size_t size);

/* Computes the answer, and changes the slot. */
struct brief model_answer(struct slot *slot, const struct question *q, struct idem_time now);

void question_ask(const struct question *q, struct conn *conn, struct call *call);
struct brief call_brief(const struct call *call);
bool brief_equal(const struct brief *a, const struct brief *b);

/* The answer that a lookup of the slot must give. */
struct brief slot_brief(const struct slot *slot, struct idem_time now);
struct question question_lookup(unsigned key);

/* Returns IDEM_SEED, or `otherwise`, and prints on stdout how to repeat the run. */
uint64_t seed_from(uint64_t otherwise);
bool long_form(void); /* IDEM_LONG is set */

#endif
