/*
 * A history as history.c has read it and history_rules.c and history_queue.c judge
 * it: per key, the claims and finishes of each owner with their times. Private to
 * the three.
 */
#ifndef IDEM_TEST_MODEL_HISTORY_LOG_H
#define IDEM_TEST_MODEL_HISTORY_LOG_H

#include "history.h"
#include "idem.h"

#include <stdbool.h>

/* A growing array; grow() gives room for one more, zeroed. */
#define VEC(type)                                                                                  \
    struct {                                                                                       \
        type *at;                                                                                  \
        size_t n, room;                                                                            \
    }
#define VEC_ADD(v)                                                                                 \
    ((v)->at = history_grow((v)->at, (v)->n, &(v)->room, sizeof(*(v)->at)), &(v)->at[(v)->n++])
void *history_grow(void *at, size_t n, size_t *room, size_t size);

#define NEVER INT64_MAX

enum verdict_or_not { NO_ANSWER = 0, ANSWER_ERROR = -1 }; /* beside enum idem_verdict */
enum said { SAID_NONE, SAID_DONE, SAID_FAIL, SAID_RELEASE, SAID_UNKNOWN, SAID_RENEW };
enum ack { ACK_NONE, ACK_YES, ACK_LOST, ACK_ERROR };

struct policy {
    bool known;
    enum idem_mode mode;
    enum idem_recover recover;
    int64_t lease_ns; /* 0: not given */
    bool once;        /* effects=once */
};

/* Took effect between sent and answered; NEVER: was not answered. */
struct claim {
    int64_t sent, answered;
    size_t sent_line, answered_line;
    int verdict;
    uint32_t attempt;
    bool unguarded;
    struct policy policy;
    const char *fp, *digest;
};

struct finish {
    int64_t sent, answered;
    size_t sent_line, answered_line;
    enum said said;
    enum ack ack;
    const char *digest;
};

enum moment_kind { MOMENT_EFFECT, MOMENT_ENTER, MOMENT_LEAVE };
struct moment {
    enum moment_kind kind;
    int64_t at;
    size_t line;
    uint32_t attempt;
};

/* One owner id. */
struct party {
    const char *name;
    VEC(struct claim) claims;
    VEC(struct finish) finishes;
    VEC(struct moment) moments;
};

/* Expiry, or an operator: the state known before it may not hold after it. */
struct reset {
    int64_t sent, answered;
    size_t line;
};

struct key {
    const char *name;
    struct policy policy;
    VEC(struct party) parties;
    VEC(struct reset) resets;
    VEC(size_t) lines; /* numbers of its lines, for the report */
    const char *lane;  /* NULL: it was not published */
    int64_t published; /* first */
    size_t published_line;
    bool dead;
};

struct history {
    VEC(char *) lines; /* as they were read; line N is at[N - 1] */
    VEC(char *) words; /* what the names point into */
    VEC(struct key) keys;
    VEC(int64_t) crashes; /* of everything */
    struct policy policy;
    struct history_sum sum;
};

/* Judges one key; the number of violations. */
int history_judge(const struct history *h, const struct key *key, FILE *report);
/* Judges all messages: 8 to 10. */
int history_judge_messages(const struct history *h, FILE *report);

#endif
