/*
 * Judges what a consumer owes its messages beyond the protocol: none is lost, none
 * happens twice without a reason, and those of one lane happen in their order. The
 * rules are 8 to 10 of history.h; a log in which nothing was published breaks none.
 *
 * Fails never; no memory: abort.
 */
#include "history_log.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define TOLD_MAX 5

struct effect_at {
    int64_t at;
    size_t line;
};

/* A message and its effects, in the order of their times. */
struct message {
    const struct key *key;
    VEC(struct effect_at) effects;
};

struct bench {
    const struct history *h;
    FILE *report;
    VEC(struct message) messages;
    int found;
};

static void line_show(const struct bench *b, size_t line) {
    const char *text = line == 0 ? "" : b->h->lines.at[line - 1];

    if (line != 0)
        fprintf(b->report, "  > %zu: %.*s\n", line, (int)strcspn(text, "\r\n"), text);
}

__attribute__((format(printf, 6, 7))) static void tell(struct bench *b, int invariant,
                                                       const struct key *key, size_t one,
                                                       size_t two, const char *what, ...) {
    va_list args;

    if (b->found++ >= TOLD_MAX)
        return;
    fprintf(b->report, "history: invariant %d is broken for key %s: ", invariant, key->name);
    va_start(args, what);
    vfprintf(b->report, what, args);
    va_end(args);
    fprintf(b->report, "\n");
    line_show(b, one);
    line_show(b, two);
}

static int effect_compare(const void *a, const void *b) {
    const struct effect_at *x = a, *y = b;

    return (x->at > y->at) - (x->at < y->at);
}

static void message_add(struct bench *b, const struct key *key) {
    struct message *message = VEC_ADD(&b->messages);

    message->key = key;
    for (size_t p = 0; p < key->parties.n; p++) {
        const struct party *party = &key->parties.at[p];

        for (size_t i = 0; i < party->moments.n; i++)
            if (party->moments.at[i].kind == MOMENT_EFFECT)
                *VEC_ADD(&message->effects) =
                    (struct effect_at){party->moments.at[i].at, party->moments.at[i].line};
    }
    if (message->effects.n > 0)
        qsort(message->effects.at, message->effects.n, sizeof(*message->effects.at),
              effect_compare);
}

static bool crash_between(const struct history *h, int64_t from, int64_t to) {
    for (size_t i = 0; i < h->crashes.n; i++)
        if (h->crashes.at[i] >= from && h->crashes.at[i] <= to)
            return true;
    return false;
}

/* 8 and 9. */
static void message_judge(struct bench *b, const struct message *message) {
    const struct key *key = message->key;

    if (message->effects.n == 0 && !key->dead)
        tell(b, 8, key, key->published_line, 0, "it was published, and is lost");
    for (size_t i = 1; i < message->effects.n; i++) {
        const struct effect_at *one = &message->effects.at[i - 1], *two = one + 1;

        if (key->policy.once || !crash_between(b->h, one->at, two->at))
            tell(b, 9, key, one->line, two->line, "it happened twice, %s",
                 key->policy.once ? "which nothing excuses" : "with no crash between");
    }
}

/* By lane, and within one as they were published. */
static int message_compare(const void *a, const void *b) {
    const struct message *x = a, *y = b;
    int order = strcmp(x->key->lane, y->key->lane);

    if (order == 0)
        order = (x->key->published > y->key->published) - (x->key->published < y->key->published);
    return order != 0 ? order
                      : (x->key->published_line > y->key->published_line) -
                            (x->key->published_line < y->key->published_line);
}

/* 10. */
static void lanes_judge(struct bench *b) {
    const struct message *last = NULL; /* of its lane the one whose first effect is the latest */

    if (b->messages.n > 0)
        qsort(b->messages.at, b->messages.n, sizeof(*b->messages.at), message_compare);
    for (size_t i = 0; i < b->messages.n; i++) {
        const struct message *message = &b->messages.at[i];

        if (message->effects.n == 0)
            continue;
        if (last != NULL && strcmp(last->key->lane, message->key->lane) != 0)
            last = NULL;
        if (last != NULL && message->effects.at[0].at < last->effects.at[0].at)
            tell(b, 10, message->key, message->effects.at[0].line, last->effects.at[0].line,
                 "it happened before %s, which was published before it in lane %s", last->key->name,
                 last->key->lane);
        else
            last = message;
    }
}

int history_judge_messages(const struct history *h, FILE *report) {
    struct bench b = {.h = h, .report = report};

    for (size_t k = 0; k < h->keys.n; k++)
        if (h->keys.at[k].lane != NULL)
            message_add(&b, &h->keys.at[k]);
    for (size_t i = 0; i < b.messages.n; i++)
        message_judge(&b, &b.messages.at[i]);
    lanes_judge(&b);
    if (b.found > TOLD_MAX)
        fprintf(report, "history: of messages, %d more are not told\n", b.found - TOLD_MAX);
    for (size_t i = 0; i < b.messages.n; i++)
        free(b.messages.at[i].effects.at);
    free(b.messages.at);
    return b.found;
}
