/*
 * Lanes: messages of one lane are handled one after the other, in the order of their arrival;
 * lanes do not wait for each other. A lane exists while it has a message.
 */
#ifndef IDEM_QUEUE_KEY_LANE_H
#define IDEM_QUEUE_KEY_LANE_H

#include <stdbool.h>
#include <stddef.h>

#include "protocol/record.h"

/* Embedded in the struct that enters a lane. */
struct queue_place {
    unsigned char lane[IDEM_HASH_LEN];
    struct queue_place *behind; /* the next in the same lane */
    struct queue_place *last;   /* of the first: the last in the lane */
    struct queue_place *chain;  /* of the first: the next lane in its bucket */
};

struct queue_lanes {
    struct queue_place **buckets;
    size_t mask;
};

/* Sized for about `messages` at a time. 0 or IDEM_E_NOMEM. */
int queue_lanes_init(struct queue_lanes *lanes, size_t messages);
void queue_lanes_release(struct queue_lanes *lanes);

/* `place->lane` names the lane. True if the place is the first in it. */
bool queue_lane_enter(struct queue_lanes *lanes, struct queue_place *place);
/* Returns the place that became the first; NULL if the lane is empty now, or `place` was not
   the first. */
struct queue_place *queue_lane_leave(struct queue_lanes *lanes, struct queue_place *place);

#endif
