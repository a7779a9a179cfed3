/*
 * Linearizability of what was asked about one key: is there an order of the
 * operations that the pure core answers as the store did?
 */
#ifndef IDEM_CONTRACT_ORDER_H
#define IDEM_CONTRACT_ORDER_H

#include "model.h"

struct asked {
    struct question question;
    struct brief answer;
    int64_t begin, end; /* when it was asked, and answered */
    bool given_up;      /* its answer was not waited for: it may have happened */
};

#define ORDER_MAX 64

/*
 * True if there is one that begins with *slot and ends with what was found;
 * *slot is then how it ends.
 */
bool order_find(struct slot *slot, struct asked *const *asked, unsigned n, struct idem_time now,
                const struct brief *found);

/* Says on stderr what was asked and answered, in the order of asking. */
void order_say(struct asked *const *asked, unsigned n);

#endif
