/*
 * Lanes: within a lane one message runs after the other, and no lane waits for
 * another.
 */
#include "queue/key_lane.h"
#include "test.h"

static void place_init(struct queue_place *place, unsigned lane) {
    memset(place, 0, sizeof(*place));
    place->lane[0] = (unsigned char)lane;
    place->lane[31] = (unsigned char)(lane >> 8);
}

TEST(who_comes_second_into_a_lane_waits_for_the_first) {
    struct queue_lanes lanes;
    struct queue_place a, b, c, other;

    CHECK_INT(queue_lanes_init(&lanes, 1), 0);
    place_init(&a, 1);
    place_init(&b, 1);
    place_init(&c, 1);
    place_init(&other, 1 + (1u << 8)); /* another lane in the same bucket */
    CHECK(queue_lane_enter(&lanes, &a));
    CHECK(!queue_lane_enter(&lanes, &b));
    CHECK(queue_lane_enter(&lanes, &other));
    CHECK(!queue_lane_enter(&lanes, &c));
    CHECK(queue_lane_leave(&lanes, &other) == NULL);
    CHECK(queue_lane_leave(&lanes, &a) == &b);
    CHECK(queue_lane_leave(&lanes, &b) == &c);
    CHECK(queue_lane_leave(&lanes, &c) == NULL);
    CHECK(queue_lane_enter(&lanes, &a));
    CHECK(queue_lane_leave(&lanes, &a) == NULL);
    queue_lanes_release(&lanes);
}

TEST(who_leaves_from_the_middle_or_the_end_makes_nobody_first) {
    struct queue_lanes lanes;
    struct queue_place a, b, c;

    CHECK_INT(queue_lanes_init(&lanes, 1), 0);
    place_init(&a, 1);
    place_init(&b, 1);
    place_init(&c, 1);
    queue_lane_enter(&lanes, &a);
    queue_lane_enter(&lanes, &b);
    queue_lane_enter(&lanes, &c);
    CHECK(queue_lane_leave(&lanes, &c) == NULL);
    CHECK(!queue_lane_enter(&lanes, &c));
    CHECK(queue_lane_leave(&lanes, &b) == NULL);
    CHECK(queue_lane_leave(&lanes, &a) == &c);
    CHECK(queue_lane_leave(&lanes, &c) == NULL);
    queue_lanes_release(&lanes);
}

/* Against a plain model: an array of lists. */
TEST(lanes_agree_with_a_model) {
    enum { LANES = 7, PLACES = 64 };
    static struct queue_place places[PLACES];
    int order[LANES][PLACES], length[LANES] = {0}, in[PLACES];
    struct queue_lanes lanes;
    unsigned seed = 4711;

    CHECK_INT(queue_lanes_init(&lanes, 4), 0);
    memset(in, -1, sizeof(in));
    for (int turn = 0; turn < 20000; turn++) {
        int i = (int)((seed = seed * 1103515245u + 12345u) >> 16) % PLACES, at = 0;

        if (in[i] < 0) {
            int lane = (int)((seed = seed * 1103515245u + 12345u) >> 16) % LANES;

            place_init(&places[i], (unsigned)lane << 8);
            CHECK_INT(queue_lane_enter(&lanes, &places[i]), length[lane] == 0);
            order[lane][length[lane]++] = i;
            in[i] = lane;
            continue;
        }
        while (order[in[i]][at] != i)
            at++;
        memmove(&order[in[i]][at], &order[in[i]][at + 1],
                (size_t)(--length[in[i]] - at) * sizeof(int));
        CHECK(queue_lane_leave(&lanes, &places[i]) ==
              (at == 0 && length[in[i]] > 0 ? &places[order[in[i]][0]] : NULL));
        in[i] = -1;
    }
    queue_lanes_release(&lanes);
}

TEST_MAIN
