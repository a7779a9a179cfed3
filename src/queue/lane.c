/*
 * A hash table of lists: each bucket chains the first of each of its lanes. Names
 * of lanes are hashes already, so that nobody can choose who meets whom. Fails
 * only where there is no memory for the buckets.
 */
#include "queue/lane.h"

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

/* Where the lane's first stands in its chain; the end of the chain if there is none. */
static struct queue_place **lane_find(const struct queue_lanes *lanes, const unsigned char *lane) {
    struct queue_place **at;
    uint32_t bucket;

    memcpy(&bucket, lane, sizeof(bucket));
    at = &lanes->buckets[bucket & lanes->mask];
    while (*at != NULL && memcmp((*at)->lane, lane, IDEM_HASH_LEN) != 0)
        at = &(*at)->chain;
    return at;
}

bool queue_lane_enter(struct queue_lanes *lanes, struct queue_place *place) {
    struct queue_place **at = lane_find(lanes, place->lane), *first = *at;

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
    struct queue_place **at = lane_find(lanes, place->lane), *first = *at, *before = first;

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
    if (before == NULL) /* it is in no lane */
        return NULL;
    before->behind = place->behind;
    if (first->last == place)
        first->last = before;
    return NULL;
}
