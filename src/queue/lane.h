/*
 * Lanes: messages of one lane are handled one after the other, in the order in
 * which they came; lanes do not wait for each other. A lane is there while
 * somebody is in it.
 */
#ifndef IDEM_QUEUE_LANE_H
#define IDEM_QUEUE_LANE_H

#include <stdbool.h>
#include <stddef.h>

#include "core/record.h"

/* Embedded in what stands in a lane. */
struct queue_place {
    unsigned char lane[IDEM_HASH_LEN];
    struct queue_place *behind; /* the next in the same lane */
    struct queue_place *last;   /* of the first: who came last */
    struct queue_place *chain;  /* of the first: the next lane in its bucket */
};

struct queue_lanes {
    struct queue_place **buckets;
    size_t mask;
};

/* For about so many messages at a time. 0 or IDEM_E_NOMEM. */
int queue_lanes_init(struct queue_lanes *lanes, size_t messages);
void queue_lanes_release(struct queue_lanes *lanes);

/* True if it is the first in its lane, which `place->lane` names. */
bool queue_lane_enter(struct queue_lanes *lanes, struct queue_place *place);
/* Whoever is the first now and was not before; NULL: nobody, or it was not the first who left. */
struct queue_place *queue_lane_leave(struct queue_lanes *lanes, struct queue_place *place);

#endif
