/*
 * Linearizability of the operations on one key: is there an order in which the
 * pure core gives the same answers as the store?
 */
#ifndef IDEM_CONTRACT_ORDER_H
#define IDEM_CONTRACT_ORDER_H

#include "model.h"

struct asked {
    struct question question;
    struct brief answer;
    int64_t begin, end; /* when the operation began, and when its response came */
    bool given_up; /* the worker did not wait for the response: the operation may have happened */
};

#define ORDER_MAX 64

/*
 * True if there is an order that begins with *slot and ends with the record
 * found; *slot is then its last state.
 */
bool order_find(struct slot *slot, struct asked *const *asked, unsigned n, struct idem_time now,
                const struct brief *found);

/* Prints the operations and their answers on stderr, in the order of asking. */
void order_say(struct asked *const *asked, unsigned n);

#endif
