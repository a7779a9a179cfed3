/*
 * The search for an order. An operation whose response shows that it changed
 * nothing is taken as soon as it fits: any order that has it later is as good
 * with it now. Only the others are tried in turn, and no state is tried twice.
 * An operation that was given up may have happened or not.
 */
#include "order.h"

#define SEEN_SIZE 4096
#define TRIES_MAX 1000000

struct search {
    struct asked *const *asked;
    unsigned n;
    struct idem_time now;
    const struct brief *found;
    uint64_t seen[SEEN_SIZE]; /* hashes of (taken, slot); a full table forgets */
    unsigned long tried;
};

/* The records of one process hold pointers into the pool, so equal bytes are equal records. */
static uint64_t state_hash(uint64_t taken, const struct slot *slot) {
    uint64_t hash = taken * 0x9e3779b97f4a7c15u;
    const unsigned char *at = (const unsigned char *)slot;

    for (size_t i = 0; i < sizeof(*slot); i++)
        hash = (hash ^ at[i]) * 0x100000001b3u;
    return hash | 1;
}

static bool seen_before(struct search *s, uint64_t hash) {
    uint64_t *place = &s->seen[(hash >> 8) % SEEN_SIZE];
    bool seen = *place == hash;

    *place = hash;
    return seen;
}

/* An operation may come next only if no other one ended before it began. */
static bool may_be_next(const struct search *s, uint64_t taken, unsigned i) {
    if (taken & ((uint64_t)1 << i))
        return false;
    for (unsigned k = 0; k < s->n; k++)
        if (k != i && !(taken & ((uint64_t)1 << k)) && s->asked[k]->end < s->asked[i]->begin)
            return false;
    return true;
}

static bool fits(const struct search *s, unsigned i, struct slot *slot) {
    struct brief answer = model_answer(slot, &s->asked[i]->question, s->now);

    return s->asked[i]->given_up || brief_equal(&answer, &s->asked[i]->answer);
}

/* A response that fits any record and changes none. */
static bool changed_nothing(const struct asked *asked) {
    int64_t what = asked->answer.what;

    if (asked->given_up)
        return false;
    if (asked->answer.rc != 0)
        return true;
    switch (asked->question.kind) {
    case IDEM_OP_CLAIM:
        return what != IDEM_RUN && what != IDEM_DEAD && what != IDEM_PROBE;
    case IDEM_OP_FINISH:
        return what == IDEM_LOST;
    case IDEM_OP_ISSUE:
    case IDEM_OP_ONCE:
    case IDEM_OP_COUNT:
        return what == 0;
    default:
        return asked->question.kind == IDEM_OP_LOOKUP;
    }
}

static bool search(struct search *s, uint64_t taken, struct slot *slot);

/* Takes operation i and continues; *slot changes if the search succeeds. */
static bool search_with(struct search *s, uint64_t taken, unsigned i, struct slot *slot) {
    struct slot after = *slot;

    if (!search(s, taken | (uint64_t)1 << i, &after))
        return false;
    *slot = after;
    return true;
}

static bool search(struct search *s, uint64_t taken, struct slot *slot) {
    if (taken == (s->n == 64 ? UINT64_MAX : ((uint64_t)1 << s->n) - 1)) {
        struct brief end = slot_brief(slot, s->now);

        return brief_equal(&end, s->found);
    }
    if (seen_before(s, state_hash(taken, slot)) || s->tried++ > TRIES_MAX)
        return false;
    for (unsigned i = 0; i < s->n; i++) {
        struct slot after = *slot;

        if (!may_be_next(s, taken, i))
            continue;
        if (fits(s, i, &after)) {
            if (search_with(s, taken, i, &after)) {
                *slot = after;
                return true;
            }
            if (changed_nothing(s->asked[i]))
                return false;
        }
        if (s->asked[i]->given_up && search_with(s, taken, i, slot))
            return true;
    }
    return false;
}

bool order_find(struct slot *slot, struct asked *const *asked, unsigned n, struct idem_time now,
                const struct brief *found) {
    static struct search s;

    CHECK(n <= ORDER_MAX);
    s = (struct search){.asked = asked, .n = n, .now = now, .found = found};
    return search(&s, 0, slot);
}

void order_say(struct asked *const *asked, unsigned n) {
    int64_t first = INT64_MAX;

    for (unsigned i = 0; i < n; i++)
        first = asked[i]->begin < first ? asked[i]->begin : first;
    for (unsigned i = 0; i < n; i++) {
        char text[200];

        question_say(&asked[i]->question, text, sizeof(text));
        fprintf(stderr, "#   %8lld..%8lld ns %s: %s rc %lld what %lld number %lld\n",
                (long long)(asked[i]->begin - first), (long long)(asked[i]->end - first), text,
                asked[i]->given_up ? "given up" : "", (long long)asked[i]->answer.rc,
                (long long)asked[i]->answer.what, (long long)asked[i]->answer.number);
    }
}
