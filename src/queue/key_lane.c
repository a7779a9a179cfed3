/*
 * A hash table of lists: each bucket chains the first places of its lanes. Names of lanes are
 * hashes already, so that a sender cannot choose collisions. Fails only without memory for the
 * buckets.
 */
#include "queue/key_lane.h"

#include <stdlib.h>
#include <string.h>

#include "idem.h"

int queue_lanes_init(struct queue_lanes *lanes, size_t messages) {
    size_t n = 16;

    while (n < messages)
        n *= 2;
    lanes->buckets = calloc(n, sizeof(struct queue_place *));
    lanes->mask = n - 1;
    return lanes->buckets != NULL ? 0 : IDEM_E_NOMEM;
}

void queue_lanes_release(struct queue_lanes *lanes) {
    free(lanes->buckets);
    lanes->buckets = NULL;
}

/* The position of the lane's first place in its chain; the end of the chain if there is no such
   lane. */
static struct queue_place **lanes_find(const struct queue_lanes *lanes, const unsigned char *lane) {
    struct queue_place **at;
    uint32_t bucket;

    memcpy(&bucket, lane, sizeof(bucket));
    at = &lanes->buckets[bucket & lanes->mask];
    while (*at != NULL && memcmp((*at)->lane, lane, IDEM_HASH_LEN) != 0)
        at = &(*at)->chain;
    return at;
}

bool queue_lane_enter(struct queue_lanes *lanes, struct queue_place *place) {
    struct queue_place **at = lanes_find(lanes, place->lane), *first = *at;

    place->behind = place->chain = NULL;
    place->last = place;
    if (first == NULL) {
        *at = place;
        return true;
    }
    first->last->behind = place;
    first->last = place;
    return false;
}

struct queue_place *queue_lane_leave(struct queue_lanes *lanes, struct queue_place *place) {
    struct queue_place **at = lanes_find(lanes, place->lane), *first = *at, *before = first;

    if (first == place) {
        struct queue_place *next = place->behind;

        *at = next == NULL ? place->chain : next;
        if (next != NULL) {
            next->chain = place->chain;
            next->last = place->last;
        }
        return next;
    }
    while (before != NULL && before->behind != place)
        before = before->behind;
    if (before == NULL) /* the place is in no lane */
        return NULL;
    before->behind = place->behind;
    if (first->last == place)
        first->last = before;
    return NULL;
}
