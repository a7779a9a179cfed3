/*
 * Judges one key of a history by the invariants that history.h lists. Every
 * rule condemns only what no order of the operations can excuse: where a moment
 * is not certain, it is taken as early or as late as speaks for the store.
 *
 * Fails never; no memory: abort.
 */
#include "history_log.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* Stores count leases in whole milliseconds: one may end that much before its time. */
#define LEASE_SLACK_NS 2000000
#define TOLD_MAX 5 /* a broken store breaks everything: a few pieces are enough to read */
#define AROUND 3   /* lines shown before and after a piece */
#define PIECE_MAX 40

/* One owner let in once. Granted between `from` and `by`; the lease is live at least `until`. */
struct grant {
    const struct party *party;
    const struct claim *claim; /* the one whose answer granted it */
    int64_t from, by, until;
    int64_t own_until; /* when it is over by the owner's own clock, or by an operator's word */
    uint32_t attempt;
    bool probe, lock;
};

struct section {
    const struct party *party;
    int64_t enter, end;
    size_t line;
};

struct judge {
    const struct history *h;
    const struct key *key;
    FILE *report;
    VEC(struct grant) grants; /* in the order of `by` */
    bool all_hold;            /* every claim is under hold, and none a lock's */
    int found;
};

static int line_compare(const void *a, const void *b) {
    size_t x = *(const size_t *)a, y = *(const size_t *)b;

    return (x > y) - (x < y);
}

static size_t line_index(const size_t *lines, size_t n, size_t line) {
    size_t i = 0;

    while (i < n && lines[i] < line)
        i++;
    return i;
}

/* Shows the key's lines around the two that make the case. */
static void piece_show(const struct judge *j, size_t one, size_t two) {
    size_t n = j->key->lines.n, *lines = calloc(n, sizeof(*lines)), first, last, cut;

    if (lines == NULL)
        abort();
    memcpy(lines, j->key->lines.at, n * sizeof(*lines));
    qsort(lines, n, sizeof(*lines), line_compare);
    first = line_index(lines, n, one < two ? one : two);
    last = line_index(lines, n, one < two ? two : one);
    first = first < AROUND ? 0 : first - AROUND;
    last = last + AROUND < n ? last + AROUND : n - 1;
    cut = last - first > PIECE_MAX ? first + PIECE_MAX / 2 : n;
    for (size_t i = first; i <= last; i++) {
        const char *text = j->h->lines.at[lines[i] - 1];

        if (i == cut) {
            i = last - PIECE_MAX / 2;
            fprintf(j->report, "      ...\n");
            continue;
        }
        fprintf(j->report, "  %c %zu: %.*s\n", lines[i] == one || lines[i] == two ? '>' : ' ',
                lines[i], (int)strcspn(text, "\r\n"), text);
    }
    free(lines);
}

__attribute__((format(printf, 5, 6))) static void tell(struct judge *j, int invariant, size_t one,
                                                       size_t two, const char *what, ...) {
    va_list args;

    if (j->found++ >= TOLD_MAX)
        return;
    fprintf(j->report, "history: invariant %d is broken for key %s: ", invariant, j->key->name);
    va_start(args, what);
    vfprintf(j->report, what, args);
    va_end(args);
    fprintf(j->report, "\n");
    piece_show(j, one, two);
}

/* An operator or expiry may have come between. */
static bool reset_between(const struct judge *j, int64_t from, int64_t to) {
    for (size_t i = 0; i < j->key->resets.n; i++)
        if (j->key->resets.at[i].sent <= to && j->key->resets.at[i].answered >= from)
            return true;
    return false;
}

/* True if this finish may have taken effect by then. */
static bool may_have_said(const struct party *party, enum said said, int64_t by) {
    for (size_t i = 0; i < party->finishes.n; i++) {
        const struct finish *finish = &party->finishes.at[i];

        if (finish->said == said && finish->sent <= by && finish->ack != ACK_LOST)
            return true;
    }
    return false;
}

static bool may_have_given_back(const struct party *party, int64_t by) {
    return may_have_said(party, SAID_FAIL, by) || may_have_said(party, SAID_RELEASE, by);
}

/* A prober's fail speaks for the run that vanished; its release does not. */
static bool prober_may_have_failed(const struct judge *j, int64_t by) {
    for (size_t i = 0; i < j->grants.n; i++)
        if (j->grants.at[i].probe && may_have_said(j->grants.at[i].party, SAID_FAIL, by))
            return true;
    return false;
}

static int64_t earlier(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static int64_t later(int64_t a, int64_t b) {
    return a > b ? a : b;
}

/* How long the lease was live for certain: from the sending, on through acknowledged renewals,
   until the owner first sent its finish, or an operator might have settled it. */
static void grant_time(const struct judge *j, struct grant *grant) {
    int64_t lease = grant->claim->policy.lease_ns;

    grant->own_until = lease == 0 ? NEVER : grant->from + lease - LEASE_SLACK_NS;
    for (size_t i = 0; lease != 0 && i < grant->party->finishes.n; i++) {
        const struct finish *finish = &grant->party->finishes.at[i];

        if (finish->said == SAID_RENEW && finish->ack == ACK_YES && finish->sent >= grant->from)
            grant->own_until = later(grant->own_until, finish->sent + lease - LEASE_SLACK_NS);
    }
    for (size_t i = 0; i < j->key->resets.n; i++)
        if (j->key->resets.at[i].answered >= grant->from)
            grant->own_until = earlier(grant->own_until, j->key->resets.at[i].sent);
    grant->until = lease == 0 ? grant->by : grant->own_until;
    for (size_t i = 0; i < grant->party->finishes.n; i++) {
        const struct finish *finish = &grant->party->finishes.at[i];

        if (finish->said != SAID_RENEW && finish->sent >= grant->from)
            grant->until = earlier(grant->until, finish->sent);
    }
}

static bool lets_in(const struct claim *claim) {
    return claim->verdict == IDEM_RUN || claim->verdict == IDEM_PROBE;
}

/* An answer that only repeats one before it (same owner, same attempt) is no second grant; a
   claim without an answer may be the one that was granted. */
static void party_grants(struct judge *j, const struct party *party) {
    int64_t from = NEVER;
    bool any = false;
    uint32_t last = 0;

    for (size_t i = 0; i < party->claims.n; i++) {
        const struct claim *claim = &party->claims.at[i];
        struct grant *grant;

        from = earlier(from, claim->sent);
        if (!lets_in(claim) || claim->unguarded || (any && claim->attempt == last))
            continue;
        grant = VEC_ADD(&j->grants);
        grant->party = party;
        grant->claim = claim;
        grant->from = from;
        grant->by = claim->answered;
        grant->attempt = claim->attempt;
        grant->probe = claim->verdict == IDEM_PROBE;
        grant->lock = claim->policy.mode == IDEM_MODE_LOCK;
        grant_time(j, grant);
        any = true;
        last = claim->attempt;
        from = NEVER;
    }
}

static int grant_compare(const void *a, const void *b) {
    const struct grant *x = a, *y = b;

    return (x->by > y->by) - (x->by < y->by);
}

static void judge_prepare(struct judge *j) {
    j->all_hold = true;
    for (size_t p = 0; p < j->key->parties.n; p++) {
        const struct party *party = &j->key->parties.at[p];

        party_grants(j, party);
        for (size_t i = 0; i < party->claims.n; i++)
            j->all_hold &= party->claims.at[i].policy.recover == IDEM_RECOVER_HOLD &&
                           party->claims.at[i].policy.mode != IDEM_MODE_LOCK;
    }
    if (j->grants.n > 0)
        qsort(j->grants.at, j->grants.n, sizeof(*j->grants.at), grant_compare);
}

/*
 * 1. Both owners were let in when the second one's answer arrived, and neither
 * lease can have ended; or the second was let in wholly while the first one's
 * was live.
 */
static void rule_leases(struct judge *j) {
    int64_t *most = calloc(j->grants.n + 1, sizeof(*most)); /* the latest end among those before */

    if (most == NULL)
        abort();
    for (size_t i = 0; i < j->grants.n; i++) {
        const struct grant *b = &j->grants.at[i];

        for (size_t k = i; k > 0 && most[k] > b->by; k--) {
            const struct grant *a = &j->grants.at[k - 1];
            bool both = b->by < earlier(a->until, b->until);
            bool within = a->by < b->from && b->by < a->until;

            if (a->party == b->party || (!both && !within))
                continue;
            tell(j, 1, a->claim->answered_line, b->claim->answered_line,
                 "owner %s was let in while the lease of owner %s was live", b->party->name,
                 a->party->name);
            break;
        }
        most[i + 1] = later(most[i], b->until);
    }
    free(most);
}

static int attempt_compare(const void *a, const void *b) {
    const struct grant *x = *(const struct grant *const *)a, *y = *(const struct grant *const *)b;

    if (x->attempt != y->attempt)
        return x->attempt < y->attempt ? -1 : 1;
    return grant_compare(x, y);
}

/* 1. An attempt is given out once, unless a release made the key as if never claimed. */
static void rule_attempts(struct judge *j) {
    const struct grant **order = calloc(j->grants.n + 1, sizeof(const struct grant *));

    if (order == NULL)
        abort();
    for (size_t i = 0; i < j->grants.n; i++)
        order[i] = &j->grants.at[i];
    qsort(order, j->grants.n, sizeof(*order), attempt_compare);
    for (size_t i = 1; i < j->grants.n; i++) {
        const struct grant *a = order[i - 1], *b = order[i];

        if (a->attempt == 0 || a->attempt != b->attempt || a->party == b->party ||
            may_have_said(a->party, SAID_RELEASE, b->by) ||
            may_have_said(b->party, SAID_RELEASE, a->by) ||
            reset_between(j, earlier(a->from, b->from), b->by))
            continue;
        tell(j, 1, a->claim->answered_line, b->claim->answered_line,
             "attempt %" PRIu32 " was given to owner %s and to owner %s", a->attempt,
             a->party->name, b->party->name);
    }
    free(order);
}

static bool is_lock(const struct party *party) {
    return party->claims.n > 0 && party->claims.at[0].policy.mode == IDEM_MODE_LOCK;
}

/* The done that must still be there when the claim was sent; NULL: none must. */
static const struct finish *done_before(const struct judge *j, const struct claim *claim,
                                        const struct party **ret_party) {
    for (size_t p = 0; p < j->key->parties.n; p++) {
        const struct party *party = &j->key->parties.at[p];

        for (size_t i = 0; i < party->finishes.n && !is_lock(party); i++) {
            const struct finish *done = &party->finishes.at[i];

            if (done->said == SAID_DONE && done->ack == ACK_YES && done->answered < claim->sent &&
                !reset_between(j, done->sent, claim->answered)) {
                *ret_party = party;
                return done;
            }
        }
    }
    return NULL;
}

/* 2. */
static void rule_done(struct judge *j, const struct party *party, const struct claim *claim) {
    const struct party *by = NULL;
    const struct finish *done;

    if (!lets_in(claim) || claim->unguarded || claim->policy.mode == IDEM_MODE_LOCK)
        return;
    done = done_before(j, claim, &by);
    if (done != NULL)
        tell(j, 2, done->answered_line, claim->answered_line,
             "owner %s was let in, by a claim that was sent after the done of owner %s was "
             "acknowledged",
             party->name, by->name);
}

/* `a` may have gone before `b`, and made room for it. */
static bool may_follow(const struct judge *j, const struct grant *a, const struct grant *b) {
    return may_have_given_back(a->party, b->by) || reset_between(j, a->from, b->by);
}

/* 3. An owner releases or fails only after it received its answer: so the order of the answers is
   the order of the grants, and it suffices to compare neighbours. */
static void rule_hold(struct judge *j) {
    const struct grant *a = NULL;

    for (size_t i = 0; i < j->grants.n && j->all_hold; i++) {
        const struct grant *b = &j->grants.at[i];

        if (b->probe)
            continue;
        if (a != NULL && a->party != b->party && !may_follow(j, a, b) && !may_follow(j, b, a) &&
            !prober_may_have_failed(j, b->by))
            tell(j, 3, a->claim->answered_line, b->claim->answered_line,
                 "under hold, RUN was answered to owner %s and to owner %s, and neither failed "
                 "nor released before",
                 a->party->name, b->party->name);
        a = b;
    }
}

/* The other grant was certainly the later one. */
static bool supersedes(const struct judge *j, const struct grant *other, const struct grant *mine,
                       const struct finish *finish) {
    if (other->party == mine->party || other->by >= finish->sent)
        return false;
    if (other->from <= mine->by &&
        (mine->attempt == 0 || other->attempt <= mine->attempt ||
         reset_between(j, earlier(mine->from, other->from), finish->answered)))
        return false;
    /* If no record is left, a release is acknowledged to every owner. */
    if (finish->said != SAID_RELEASE)
        return true;
    for (size_t i = 0; i < other->party->finishes.n; i++)
        if (other->party->finishes.at[i].sent <= finish->answered &&
            other->party->finishes.at[i].said != SAID_RENEW)
            return false;
    return !reset_between(j, other->from, finish->answered);
}

/* A claim that was never answered may let its owner in again at any time. */
static bool may_come_again(const struct party *party, const struct grant *mine) {
    for (size_t i = 0; i < party->claims.n; i++)
        if (party->claims.at[i].answered == NEVER ||
            (mine != NULL && lets_in(&party->claims.at[i]) &&
             party->claims.at[i].answered > mine->by))
            return true;
    return false;
}

static void finish_judge(struct judge *j, const struct party *party, const struct grant *mine,
                         const struct finish *finish) {
    if (finish->ack != ACK_YES || party->claims.n == 0 || may_come_again(party, mine))
        return;
    if (mine == NULL) {
        if (finish->said != SAID_RELEASE)
            tell(j, 4, finish->sent_line, finish->answered_line,
                 "a finish of owner %s, who was never let in, was acknowledged", party->name);
        return;
    }
    for (size_t i = 0; i < j->grants.n && j->grants.at[i].by < finish->sent; i++) {
        const struct grant *other = &j->grants.at[i];

        if (other->by < mine->from || !supersedes(j, other, mine, finish))
            continue;
        tell(j, 4, other->claim->answered_line, finish->answered_line,
             "a finish of owner %s was acknowledged after owner %s had superseded it", party->name,
             other->party->name);
        return;
    }
}

/* on_store_error=open let it run: the store promised nothing. */
static bool is_unguarded(const struct party *party) {
    for (size_t i = 0; i < party->claims.n; i++)
        if (party->claims.at[i].unguarded)
            return true;
    return false;
}

/* 4. */
static void rule_finishes(struct judge *j, const struct party *party) {
    const struct grant *mine = NULL;

    if (is_unguarded(party))
        return;
    for (size_t i = 0; i < j->grants.n; i++)
        if (j->grants.at[i].party == party)
            mine = &j->grants.at[i];
    for (size_t i = 0; i < party->finishes.n; i++)
        finish_judge(j, party, mine, &party->finishes.at[i]);
}

/* Some done that was sent by then, and not lost, may have stored it. */
static bool may_be_stored(const struct judge *j, const struct claim *replay) {
    for (size_t p = 0; p < j->key->parties.n; p++) {
        const struct party *party = &j->key->parties.at[p];

        for (size_t i = 0; i < party->finishes.n; i++) {
            const struct finish *done = &party->finishes.at[i];

            if (done->said == SAID_DONE && done->ack != ACK_LOST &&
                done->sent <= replay->answered &&
                (done->digest == NULL || strcmp(done->digest, replay->digest) == 0))
                return true;
        }
    }
    return false;
}

static bool differ(const char *a, const char *b) {
    return a != NULL && b != NULL && strcmp(a, b) != 0;
}

/* 5, and the replay's half of 6. */
static void rule_replay(struct judge *j, const struct party *party, const struct claim *claim) {
    const struct party *by = NULL;
    const struct finish *done;

    if (claim->verdict != IDEM_REPLAY || claim->policy.mode == IDEM_MODE_LOCK)
        return;
    done = done_before(j, claim, &by);
    if (done != NULL && differ(done->digest, claim->digest))
        tell(j, 5, done->sent_line, claim->answered_line,
             "owner %s was given %s, and owner %s had stored %s", party->name, claim->digest,
             by->name, done->digest);
    else if (claim->digest != NULL && !may_be_stored(j, claim))
        tell(j, 5, claim->sent_line, claim->answered_line,
             "owner %s was given %s, which nobody had stored", party->name, claim->digest);
    if (done != NULL && by->claims.n > 0 && differ(by->claims.at[0].fp, claim->fp))
        tell(j, 6, done->sent_line, claim->answered_line,
             "owner %s asked with fingerprint %s and was given the result of %s", party->name,
             claim->fp, by->claims.at[0].fp);
}

/* 6. A failure keeps its fingerprint; only a release gives the key to another. */
static void rule_fingerprints(struct judge *j) {
    const struct grant *a = NULL;

    for (size_t i = 0; i < j->grants.n; i++) {
        const struct grant *b = &j->grants.at[i];

        if (b->lock || b->claim->fp == NULL)
            continue;
        if (a != NULL && differ(a->claim->fp, b->claim->fp) &&
            !may_have_said(a->party, SAID_RELEASE, b->by) &&
            !may_have_said(b->party, SAID_RELEASE, a->by) &&
            !reset_between(j, earlier(a->from, b->from), b->by))
            tell(j, 6, a->claim->answered_line, b->claim->answered_line,
                 "owner %s ran with fingerprint %s, and owner %s was let in with %s",
                 a->party->name, a->claim->fp, b->party->name, b->claim->fp);
        a = b;
    }
}

struct effect {
    const struct party *party;
    const struct moment *moment;
};

static int effect_compare(const void *a, const void *b) {
    const struct moment *x = ((const struct effect *)a)->moment;
    const struct moment *y = ((const struct effect *)b)->moment;

    return (x->at > y->at) - (x->at < y->at);
}

static bool was_let_in(const struct party *party, int64_t by) {
    for (size_t i = 0; i < party->claims.n; i++)
        if (lets_in(&party->claims.at[i]) && party->claims.at[i].answered <= by)
            return true;
    return false;
}

static int64_t first_sent(const struct party *party) {
    return party->claims.n == 0 ? 0 : party->claims.at[0].sent;
}

static void effects_judge(struct judge *j, const struct effect *before, const struct effect *e) {
    if (!was_let_in(e->party, e->moment->at))
        tell(j, 7, e->moment->line, e->moment->line, "owner %s ran without being let in",
             e->party->name);
    if (before == NULL || is_lock(e->party) || is_unguarded(before->party) ||
        is_unguarded(e->party))
        return;
    if (before->party == e->party) {
        if (before->moment->attempt == e->moment->attempt)
            tell(j, 7, before->moment->line, e->moment->line,
                 "owner %s ran twice under one attempt", e->party->name);
        return;
    }
    if (j->all_hold && !may_have_given_back(before->party, e->moment->at) &&
        !reset_between(j, earlier(first_sent(before->party), first_sent(e->party)),
                       e->moment->at) &&
        !prober_may_have_failed(j, e->moment->at))
        tell(j, 3, before->moment->line, e->moment->line,
             "under hold it happened twice: by owner %s and by owner %s, and neither failed nor "
             "released before",
             before->party->name, e->party->name);
}

/* 3 and 7, for what really happened. */
static void rule_effects(struct judge *j) {
    VEC(struct effect) effects = {0};

    for (size_t p = 0; p < j->key->parties.n; p++) {
        const struct party *party = &j->key->parties.at[p];

        for (size_t i = 0; i < party->moments.n; i++)
            if (party->moments.at[i].kind == MOMENT_EFFECT)
                *VEC_ADD(&effects) = (struct effect){party, &party->moments.at[i]};
    }
    if (effects.n > 0)
        qsort(effects.at, effects.n, sizeof(*effects.at), effect_compare);
    for (size_t i = 0; i < effects.n; i++)
        effects_judge(j, i == 0 ? NULL : &effects.at[i - 1], &effects.at[i]);
    free(effects.at);
}

static int section_compare(const void *a, const void *b) {
    const struct section *x = a, *y = b;

    return (x->enter > y->enter) - (x->enter < y->enter);
}

/* A section ends when it is left, or with its owner's lease by its own clock, whatever is first:
   to stay longer, or to enter later, is the owner's fault, and not what is judged here. */
static int64_t section_end(const struct judge *j, const struct party *party, size_t enter) {
    int64_t end = NEVER;

    for (size_t i = 0; i < j->grants.n; i++)
        if (j->grants.at[i].party == party)
            end = j->grants.at[i].own_until;
    for (size_t i = enter + 1; i < party->moments.n; i++)
        if (party->moments.at[i].kind == MOMENT_LEAVE)
            return earlier(end, party->moments.at[i].at);
    return end == NEVER ? party->moments.at[enter].at : end;
}

/* 1, for mode=lock. */
static void rule_sections(struct judge *j) {
    VEC(struct section) sections = {0};
    size_t open = 0; /* the one that ends last */

    for (size_t p = 0; p < j->key->parties.n; p++) {
        const struct party *party = &j->key->parties.at[p];

        for (size_t i = 0; i < party->moments.n; i++) {
            const struct moment *m = &party->moments.at[i];
            int64_t end = m->kind == MOMENT_ENTER ? section_end(j, party, i) : 0;

            if (m->kind == MOMENT_ENTER && m->at < end)
                *VEC_ADD(&sections) = (struct section){party, m->at, end, m->line};
        }
    }
    if (sections.n > 0)
        qsort(sections.at, sections.n, sizeof(*sections.at), section_compare);
    for (size_t i = 1; i < sections.n; i++) {
        const struct section *a = &sections.at[open], *b = &sections.at[i];

        if (b->enter < a->end && a->party != b->party)
            tell(j, 1, a->line, b->line,
                 "owner %s entered while owner %s was inside, with its lease live", b->party->name,
                 a->party->name);
        if (b->end > a->end)
            open = i;
    }
    free(sections.at);
}

int history_judge(const struct history *h, const struct key *key, FILE *report) {
    struct judge j = {.h = h, .key = key, .report = report};

    judge_prepare(&j);
    rule_leases(&j);
    rule_attempts(&j);
    rule_hold(&j);
    rule_fingerprints(&j);
    rule_effects(&j);
    rule_sections(&j);
    for (size_t p = 0; p < key->parties.n; p++) {
        const struct party *party = &key->parties.at[p];

        rule_finishes(&j, party);
        for (size_t i = 0; i < party->claims.n; i++) {
            rule_done(&j, party, &party->claims.at[i]);
            rule_replay(&j, party, &party->claims.at[i]);
        }
    }
    if (j.found > TOLD_MAX)
        fprintf(report, "history: key %s: %d more are not told\n", key->name, j.found - TOLD_MAX);
    free(j.grants.at);
    return j.found;
}
