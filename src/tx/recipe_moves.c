/*
 * The moves that a state may make. Sets of states are the bits of a word. Fails on invalid
 * declarations, and names the wrong word in the error.
 *
 * The current state of a row shows whether the row has been in a state: it has if, without that
 * state, no path leads from the first state to the current one. A cancelled order may or may not
 * have been paid; a shipped order was paid.
 */
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/error.h"
#include "tx/recipe.h"

#define STATES_MAX 64

struct idem_moves {
    size_t n;
    uint64_t next[STATES_MAX];   /* states that a move leads to from here */
    uint64_t passed[STATES_MAX]; /* states reached only through this one, and this one */
    const char *names[STATES_MAX];
    char text[]; /* the names */
};

static uint64_t moves_bit(size_t state) {
    return (uint64_t)1 << state;
}

int idem_moves_find(const struct idem_moves *moves, const char *state, size_t len) {
    for (size_t i = 0; i < moves->n; i++) {
        if (idem_is_word(state, len, moves->names[i]))
            return (int)i;
    }
    return -1;
}

const char *idem_moves_name(const struct idem_moves *moves, int state) {
    return moves->names[state];
}

bool idem_moves_allow(const struct idem_moves *moves, int from, int to) {
    return (moves->next[from] & moves_bit((size_t)to)) != 0;
}

bool idem_moves_passed(const struct idem_moves *moves, int state, int to) {
    return (moves->passed[to] & moves_bit((size_t)state)) != 0;
}

/* States that can be reached from the first state without passing through `without`. */
static uint64_t moves_reach(const struct idem_moves *moves, uint64_t without) {
    uint64_t found = moves_bit(0) & ~without, before;

    do {
        before = found;
        for (size_t i = 0; i < moves->n; i++) {
            if ((found & moves_bit(i)) != 0)
                found |= moves->next[i] & ~without;
        }
    } while (found != before);
    return found;
}

static int moves_refuse_state(struct idem_error *err, const char *name, const char *what) {
    char quoted[IDEM_QUOTE_TEXT];

    return idem_error_set(err, IDEM_E_INVALID, "moves: the state %s %s",
                          idem_error_quote(name, strlen(name), quoted, sizeof(quoted)), what);
}

/* Splits the text into names. */
static int moves_read_states(struct idem_moves *moves, struct idem_error *err) {
    char *at = moves->text, *end;

    for (at += strspn(at, " "); *at != '\0'; at = end + strspn(end, " ")) {
        end = at + strcspn(at, " ");
        if (moves->n == STATES_MAX)
            return idem_error_set(err, IDEM_E_INVALID, "moves: there are more than %d states",
                                  STATES_MAX);
        if (idem_moves_find(moves, at, (size_t)(end - at)) >= 0) {
            *end = '\0';
            return moves_refuse_state(err, at, "is declared twice");
        }
        if (*end != '\0')
            *end++ = '\0';
        moves->names[moves->n++] = at;
    }
    return moves->n > 0 ? 0 : idem_error_set(err, IDEM_E_INVALID, "moves: there are no states");
}

static int moves_read_move(struct idem_moves *moves, const struct idem_step *move,
                           struct idem_error *err) {
    const char *const ends[] = {move->from, move->to};
    int states[2];

    for (int i = 0; i < 2; i++) {
        if (ends[i] == NULL)
            return idem_error_set(err, IDEM_E_INVALID, "moves: a move lacks its %s",
                                  i == 0 ? "from" : "to");
        states[i] = idem_moves_find(moves, ends[i], strlen(ends[i]));
        if (states[i] < 0)
            return moves_refuse_state(err, ends[i], "is in a move, and is not declared");
    }
    if (states[0] == states[1])
        return moves_refuse_state(err, ends[0], "moves to itself, which is no move");
    if (idem_moves_allow(moves, states[0], states[1]))
        return moves_refuse_state(err, ends[0], "has one of its moves twice");
    moves->next[states[0]] |= moves_bit((size_t)states[1]);
    return 0;
}

static int moves_check_reach(struct idem_moves *moves, struct idem_error *err) {
    uint64_t all = moves_reach(moves, 0);

    for (size_t i = 0; i < moves->n; i++) {
        if ((all & moves_bit(i)) == 0)
            return moves_refuse_state(err, moves->names[i], "cannot be reached from the first one");
    }
    for (size_t i = 0; i < moves->n; i++)
        moves->passed[i] = all & ~moves_reach(moves, moves_bit(i));
    return 0;
}

int idem_moves_new(const char *states, const struct idem_step *moves, size_t n,
                   struct idem_moves **ret, struct idem_error *err) {
    struct idem_moves *made;
    int rc = idem_need(states, err) ?: idem_need(moves, err) ?: idem_need(ret, err);

    if (rc != 0)
        return rc;
    made = calloc(1, sizeof(*made) + strlen(states) + 1);
    if (made == NULL)
        return idem_error_set(err, IDEM_E_NOMEM, "no memory for moves");
    memcpy(made->text, states, strlen(states) + 1);
    rc = moves_read_states(made, err);
    for (size_t i = 0; i < n && rc == 0; i++)
        rc = moves_read_move(made, &moves[i], err);
    if (rc == 0)
        rc = moves_check_reach(made, err);
    if (rc != 0) {
        idem_moves_free(made);
        return rc;
    }
    *ret = made;
    return 0;
}

void idem_moves_free(struct idem_moves *moves) {
    free(moves);
}
