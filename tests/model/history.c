/*
 * Writes events of a history, and reads a log back into keys and owners for
 * history_rules.c to judge. history.h has the format.
 *
 * Fails on what cannot be read or understood, with the number of the line; a
 * torn line (one without its end mark) is counted and left out. No memory:
 * abort, for a test that cannot be judged has failed.
 */
#include "history_log.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

#define LINE_MAX_BYTES 4096 /* far below what O_APPEND writes in one piece */

int history_open(const char *path) {
    return open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
}

int64_t history_now(void) {
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

int history_write_as(int fd, const char *actor, const char *key, const char *event,
                     const char *names) {
    char line[LINE_MAX_BYTES];
    int len = snprintf(line, sizeof(line), "%" PRId64 " %s %s %s%s%s .\n", history_now(), actor,
                       key, event, names[0] == '\0' ? "" : " ", names);

    if (len < 0 || (size_t)len >= sizeof(line)) {
        errno = EMSGSIZE;
        return -1;
    }
    return write(fd, line, (size_t)len) == len ? 0 : -1;
}

int history_write(int fd, const char *key, const char *event, const char *names, ...) {
    char actor[24], text[LINE_MAX_BYTES];
    va_list args;
    int len;

    va_start(args, names);
    len = vsnprintf(text, sizeof(text), names, args);
    va_end(args);
    if (len < 0 || (size_t)len >= sizeof(text)) {
        errno = EMSGSIZE;
        return -1;
    }
    snprintf(actor, sizeof(actor), "%ld", (long)getpid());
    return history_write_as(fd, actor, key, event, text);
}

void *history_grow(void *at, size_t n, size_t *room, size_t size) {
    if (n == *room) {
        *room = *room == 0 ? 8 : *room * 2;
        at = realloc(at, *room * size);
        if (at == NULL)
            abort();
    }
    memset((char *)at + n * size, 0, size);
    return at;
}

enum event_kind {
    EVENT_POLICY,
    EVENT_CLAIM,
    EVENT_CLAIMED,
    EVENT_FINISH,
    EVENT_FINISHED,
    EVENT_EFFECT,
    EVENT_ENTER,
    EVENT_LEAVE,
    EVENT_EXPIRE,
    EVENT_FORGET,
    EVENT_FORGOT,
    EVENT_SETTLE,
    EVENT_SETTLED,
    EVENT_CRASH,
    EVENT_PUBLISH,
    EVENT_DEAD,
};

/* One line, taken apart. Strings point into the copy that history.words keeps. */
struct event {
    size_t line;
    int64_t at;
    const char *key;
    enum event_kind kind;
    const char *owner;
    int verdict;
    enum said said;
    enum ack ack;
    uint32_t attempt;
    bool unguarded;
    struct policy policy;
    const char *fp, *digest, *lane;
};

struct reader {
    struct history history;
    VEC(struct event) events;
    FILE *report;
};

struct word {
    const char *name;
    int value;
};

static const struct word event_words[] = {
    {"policy", EVENT_POLICY},
    {"claim", EVENT_CLAIM},
    {"claimed", EVENT_CLAIMED},
    {"finish", EVENT_FINISH},
    {"finished", EVENT_FINISHED},
    {"effect", EVENT_EFFECT},
    {"enter", EVENT_ENTER},
    {"leave", EVENT_LEAVE},
    {"expire", EVENT_EXPIRE},
    {"forget", EVENT_FORGET},
    {"forgot", EVENT_FORGOT},
    {"settle", EVENT_SETTLE},
    {"settled", EVENT_SETTLED},
    {"crash", EVENT_CRASH},
    {"publish", EVENT_PUBLISH},
    {"dead", EVENT_DEAD},
    {NULL, 0},
};
static const struct word verdict_words[] = {
    {"run", IDEM_RUN},
    {"replay", IDEM_REPLAY},
    {"duplicate", IDEM_DUPLICATE},
    {"busy", IDEM_BUSY},
    {"mismatch", IDEM_MISMATCH},
    {"uncertain", IDEM_UNCERTAIN},
    {"dead", IDEM_DEAD},
    {"no_token", IDEM_NO_TOKEN},
    {"probe", IDEM_PROBE},
    {"error", ANSWER_ERROR},
    {NULL, 0},
};
static const struct word said_words[] = {
    {"done", SAID_DONE},       {"fail", SAID_FAIL},   {"release", SAID_RELEASE},
    {"unknown", SAID_UNKNOWN}, {"renew", SAID_RENEW}, {NULL, 0},
};
static const struct word ack_words[] = {
    {"ack", ACK_YES}, {"lost", ACK_LOST}, {"error", ACK_ERROR}, {NULL, 0}};
static const struct word mode_words[] = {{"lock", IDEM_MODE_LOCK},
                                         {"reject", IDEM_MODE_REJECT},
                                         {"replay", IDEM_MODE_REPLAY},
                                         {NULL, 0}};
static const struct word recover_words[] = {
    {"hold", IDEM_RECOVER_HOLD}, {"rerun", IDEM_RECOVER_RERUN}, {NULL, 0}};

static bool word_find(const struct word *words, const char *name, int *ret) {
    for (; words->name != NULL; words++)
        if (strcasecmp(words->name, name) == 0) {
            *ret = words->value;
            return true;
        }
    return false;
}

static bool number_read(const char *text, int64_t max, int64_t *ret) {
    char *end;
    long long value;

    errno = 0;
    value = strtoll(text, &end, 10);
    if (errno != 0 || end == text || *end != '\0' || value < 0 || value > max)
        return false;
    *ret = value;
    return true;
}

/* Takes the next word off a line; NULL at its end. */
static char *word_take(char **rest) {
    char *word = *rest + strspn(*rest, " \t");
    size_t len = strcspn(word, " \t");

    if (len == 0)
        return NULL;
    *rest = word + len + (word[len] != '\0');
    word[len] = '\0';
    return word;
}

static int refuse(const struct reader *reader, size_t line, const char *why, const char *what) {
    fprintf(reader->report, "history: line %zu: %s%s%s\n", line, why, what[0] == '\0' ? "" : ": ",
            what);
    return -1;
}

/* False: the name is unknown, or its value is. */
static bool name_read(struct event *event, const char *name, const char *value) {
    int word = 0;
    int64_t number = 0;

    if (strncmp(name, "x-", 2) == 0)
        return true;
    if (strcmp(name, "owner") == 0)
        event->owner = value;
    else if (strcmp(name, "fp") == 0)
        event->fp = value;
    else if (strcmp(name, "digest") == 0)
        event->digest = value;
    else if (strcmp(name, "lane") == 0)
        event->lane = value;
    else if (strcmp(name, "effects") == 0 && strcmp(value, "once") == 0)
        event->policy.once = true;
    else if (strcmp(name, "verdict") == 0 && word_find(verdict_words, value, &word))
        event->verdict = word;
    else if (strcmp(name, "said") == 0 && word_find(said_words, value, &word))
        event->said = (enum said)word;
    else if (strcmp(name, "ack") == 0 && word_find(ack_words, value, &word))
        event->ack = (enum ack)word;
    else if (strcmp(name, "mode") == 0 && word_find(mode_words, value, &word))
        event->policy.mode = (enum idem_mode)word;
    else if (strcmp(name, "recover") == 0 && word_find(recover_words, value, &word))
        event->policy.recover = (enum idem_recover)word;
    else if (strcmp(name, "attempt") == 0 && number_read(value, UINT32_MAX, &number))
        event->attempt = (uint32_t)number;
    else if (strcmp(name, "unguarded") == 0 && number_read(value, 1, &number))
        event->unguarded = number != 0;
    else if (strcmp(name, "lease_ms") == 0 && number_read(value, INT64_MAX / 2000000, &number))
        event->policy.lease_ns = number * 1000000;
    else
        return false;
    return true;
}

static const char *event_lacks(const struct event *event) {
    bool owned = event->kind >= EVENT_CLAIM && event->kind <= EVENT_LEAVE;

    if (owned && event->owner == NULL)
        return "owner=";
    if (event->kind == EVENT_CLAIMED && event->verdict == NO_ANSWER)
        return "verdict=";
    if ((event->kind == EVENT_FINISH || event->kind == EVENT_FINISHED) && event->said == SAID_NONE)
        return "said=";
    if (event->kind == EVENT_FINISHED && event->ack == ACK_NONE)
        return "ack=";
    if (event->kind == EVENT_PUBLISH && event->lane == NULL)
        return "lane=";
    return NULL;
}

/* `text` ends before its end mark, and is taken apart in place. */
static int event_read(struct reader *reader, size_t line, char *text) {
    struct event *event = VEC_ADD(&reader->events);
    char *at = word_take(&text), *actor = word_take(&text), *key = word_take(&text),
         *kind = word_take(&text), *name;
    const char *lacks;
    int word = 0;

    if (at == NULL || actor == NULL || key == NULL || kind == NULL)
        return refuse(reader, line, "is not TIME ACTOR KEY EVENT", "");
    if (!number_read(at, NEVER - 1, &event->at))
        return refuse(reader, line, "is not a time", at);
    if (!word_find(event_words, kind, &word))
        return refuse(reader, line, "is not an event", kind);
    event->line = line;
    event->key = key;
    event->kind = (enum event_kind)word;
    while ((name = word_take(&text)) != NULL) {
        char *value = strchr(name, '=');

        if (value == NULL)
            return refuse(reader, line, "is not name=value", name);
        *value++ = '\0';
        if (!name_read(event, name, value))
            return refuse(reader, line, "has a name or a value that is unknown", name);
    }
    lacks = event_lacks(event);
    return lacks == NULL ? 0 : refuse(reader, line, "lacks", lacks);
}

/* Ends the text before its end mark. False: there is none, the line was torn. */
static bool end_mark_cut(char *text) {
    size_t len = strlen(text);

    while (len > 0 && strchr(" \t\r\n", text[len - 1]) != NULL)
        len--;
    if (len < 2 || text[len - 1] != '.' || (text[len - 2] != ' ' && text[len - 2] != '\t'))
        return false;
    text[len - 2] = '\0';
    return true;
}

static int line_read(struct reader *reader, const char *text) {
    struct history *h = &reader->history;
    char *words;

    *VEC_ADD(&h->lines) = strdup(text);
    if (h->lines.at[h->lines.n - 1] == NULL || (words = strdup(text)) == NULL)
        abort();
    *VEC_ADD(&h->words) = words;
    if (words[0] == '#' || words[strspn(words, " \t\r\n")] == '\0')
        return 0;
    h->sum.lines++;
    if (!end_mark_cut(words)) {
        h->sum.torn++;
        return 0;
    }
    return event_read(reader, h->lines.n, words);
}

static int owner_compare(const char *a, const char *b) {
    if (a == NULL || b == NULL)
        return (a != NULL) - (b != NULL);
    return strcmp(a, b);
}

/* By key, then by owner (events without one first), then as they were written. */
static int event_compare(const void *a, const void *b) {
    const struct event *x = a, *y = b;
    int order = strcmp(x->key, y->key);

    if (order == 0)
        order = owner_compare(x->owner, y->owner);
    return order != 0 ? order : (x->line > y->line) - (x->line < y->line);
}

static void policy_merge(struct policy *policy, const struct policy *said) {
    if (said->mode != 0)
        policy->mode = said->mode;
    if (said->recover != 0)
        policy->recover = said->recover;
    if (said->lease_ns != 0)
        policy->lease_ns = said->lease_ns;
    policy->once |= said->once;
    if (policy->mode == IDEM_MODE_LOCK)
        policy->recover = IDEM_RECOVER_RERUN;
    policy->known = policy->mode != 0 && policy->recover != 0;
}

/* A claim's answer is that of the owner's first claim that has none: they come in order. */
static bool claim_answered(struct party *party, const struct event *event) {
    for (size_t i = 0; i < party->claims.n; i++) {
        struct claim *claim = &party->claims.at[i];

        if (claim->verdict != NO_ANSWER)
            continue;
        claim->answered = event->verdict == ANSWER_ERROR ? NEVER : event->at;
        claim->answered_line = event->line;
        claim->verdict = event->verdict;
        claim->attempt = event->attempt;
        claim->unguarded = event->unguarded;
        claim->digest = event->digest;
        return true;
    }
    return false;
}

static bool finish_answered(struct party *party, const struct event *event) {
    for (size_t i = 0; i < party->finishes.n; i++) {
        struct finish *finish = &party->finishes.at[i];

        if (finish->ack != ACK_NONE || finish->said != event->said)
            continue;
        finish->answered = event->ack == ACK_ERROR ? NEVER : event->at;
        finish->answered_line = event->line;
        finish->ack = event->ack;
        return true;
    }
    return false;
}

static void claim_add(struct party *party, const struct key *key, const struct event *event) {
    struct claim *claim = VEC_ADD(&party->claims);

    claim->sent = event->at;
    claim->answered = NEVER;
    claim->sent_line = event->line;
    claim->fp = event->fp;
    claim->policy = key->policy;
    policy_merge(&claim->policy, &event->policy);
}

static void finish_add(struct party *party, const struct event *event) {
    struct finish *finish = VEC_ADD(&party->finishes);

    finish->sent = event->at;
    finish->answered = NEVER;
    finish->sent_line = event->line;
    finish->said = event->said;
    finish->digest = event->digest;
}

static void moment_add(struct party *party, const struct event *event, enum moment_kind kind) {
    struct moment *moment = VEC_ADD(&party->moments);

    moment->kind = kind;
    moment->at = event->at;
    moment->line = event->line;
    moment->attempt = event->attempt;
}

/* Files an owner's event; -1 if it makes no sense there. */
static int owned_add(const struct reader *reader, const struct key *key, struct party *party,
                     const struct event *event) {
    bool sense = true;

    switch (event->kind) {
    case EVENT_CLAIM:
        claim_add(party, key, event);
        if (!party->claims.at[party->claims.n - 1].policy.known)
            return refuse(reader, event->line,
                          "claims without mode= and recover=, and no policy "
                          "line says them",
                          "");
        break;
    case EVENT_CLAIMED:
        sense = claim_answered(party, event);
        break;
    case EVENT_FINISH:
        finish_add(party, event);
        break;
    case EVENT_FINISHED:
        sense = finish_answered(party, event);
        break;
    case EVENT_EFFECT:
        moment_add(party, event, MOMENT_EFFECT);
        break;
    case EVENT_ENTER:
        moment_add(party, event, MOMENT_ENTER);
        break;
    default:
        moment_add(party, event, MOMENT_LEAVE);
        break;
    }
    return sense ? 0 : refuse(reader, event->line, "answers what nobody asked", event->owner);
}

/* A message, which may come again. */
static void message_add(struct key *key, const struct event *event) {
    key->dead |= event->kind == EVENT_DEAD;
    if (event->kind != EVENT_PUBLISH || key->lane != NULL)
        return;
    key->lane = event->lane;
    key->published = event->at;
    key->published_line = event->line;
}

/* Expiry and operators: events without an owner. An operator's command without an answer may take
   effect at any later moment. */
static void nobodys_add(struct key *key, const struct event *event) {
    if (event->kind == EVENT_POLICY) {
        policy_merge(&key->policy, &event->policy);
    } else if (event->kind == EVENT_EXPIRE || event->kind == EVENT_FORGET ||
               event->kind == EVENT_SETTLE) {
        struct reset *reset = VEC_ADD(&key->resets);

        reset->sent = event->at;
        reset->answered = event->kind == EVENT_EXPIRE ? event->at : NEVER;
        reset->line = event->line;
    } else if (event->kind == EVENT_PUBLISH || event->kind == EVENT_DEAD) {
        message_add(key, event);
    } else if (event->kind != EVENT_CRASH) {
        for (size_t i = 0; i < key->resets.n; i++)
            if (key->resets.at[i].answered == NEVER) {
                key->resets.at[i].answered = event->at;
                break;
            }
    }
}

/* Files the events of one key, from *first on; moves *first to the next key. */
static int key_read(struct reader *reader, size_t *first) {
    const struct event *events = reader->events.at;
    struct key *key = VEC_ADD(&reader->history.keys);
    size_t i = *first;

    key->name = events[i].key;
    key->policy = reader->history.policy;
    for (; i < reader->events.n && strcmp(events[i].key, key->name) == 0; i++) {
        const struct event *event = &events[i];
        struct party *party = key->parties.n == 0 ? NULL : &key->parties.at[key->parties.n - 1];

        *VEC_ADD(&key->lines) = event->line;
        if (event->kind < EVENT_CLAIM || event->kind > EVENT_LEAVE) {
            nobodys_add(key, event);
            continue;
        }
        if (party == NULL || strcmp(party->name, event->owner) != 0) {
            party = VEC_ADD(&key->parties);
            party->name = event->owner;
        }
        if (owned_add(reader, key, party, event) < 0)
            return -1;
    }
    *first = i;
    return 0;
}

static int history_read(struct reader *reader, FILE *log) {
    char *line = NULL;
    size_t size = 0;
    int rc = 0;

    while (rc == 0 && getline(&line, &size, log) >= 0)
        rc = line_read(reader, line);
    free(line);
    if (rc == 0 && ferror(log))
        rc = refuse(reader, reader->history.lines.n, "cannot read on", strerror(errno));
    for (size_t i = 0; rc == 0 && i < reader->events.n; i++) {
        struct event *event = &reader->events.at[i];

        /* Only events of a claim have an owner, whatever the line names. */
        if (event->kind < EVENT_CLAIM || event->kind > EVENT_LEAVE)
            event->owner = NULL;
        if (event->kind == EVENT_POLICY && strcmp(event->key, "*") == 0)
            policy_merge(&reader->history.policy, &event->policy);
        if (event->kind == EVENT_CRASH && strcmp(event->key, "*") == 0)
            *VEC_ADD(&reader->history.crashes) = event->at;
    }
    if (rc == 0 && reader->events.n > 0)
        qsort(reader->events.at, reader->events.n, sizeof(*reader->events.at), event_compare);
    for (size_t i = 0; rc == 0 && i < reader->events.n;)
        rc = key_read(reader, &i);
    return rc;
}

static void history_count(struct history *h) {
    struct history_sum *sum = &h->sum;

    for (size_t k = 0; k < h->keys.n; k++) {
        const struct key *key = &h->keys.at[k];

        sum->keys += strcmp(key->name, "*") != 0;
        for (size_t p = 0; p < key->parties.n; p++) {
            const struct party *party = &key->parties.at[p];

            sum->claims += party->claims.n;
            sum->finishes += party->finishes.n;
            for (size_t i = 0; i < party->claims.n; i++) {
                sum->runs += party->claims.at[i].verdict == IDEM_RUN;
                sum->replays += party->claims.at[i].verdict == IDEM_REPLAY;
            }
            for (size_t i = 0; i < party->finishes.n; i++) {
                sum->acknowledged += party->finishes.at[i].ack == ACK_YES;
                sum->lost += party->finishes.at[i].ack == ACK_LOST;
            }
            for (size_t i = 0; i < party->moments.n; i++)
                sum->effects += party->moments.at[i].kind == MOMENT_EFFECT;
        }
    }
}

static void history_release(struct history *h) {
    for (size_t k = 0; k < h->keys.n; k++) {
        struct key *key = &h->keys.at[k];

        for (size_t p = 0; p < key->parties.n; p++) {
            free(key->parties.at[p].claims.at);
            free(key->parties.at[p].finishes.at);
            free(key->parties.at[p].moments.at);
        }
        free(key->parties.at);
        free(key->resets.at);
        free(key->lines.at);
    }
    for (size_t i = 0; i < h->lines.n; i++) {
        free(h->lines.at[i]);
        free(h->words.at[i]);
    }
    free(h->lines.at);
    free(h->words.at);
    free(h->keys.at);
    free(h->crashes.at);
}

int history_check(FILE *log, FILE *report, struct history_sum *ret) {
    struct reader reader = {.report = report};
    int found = 0;

    if (history_read(&reader, log) < 0)
        found = -1;
    for (size_t i = 0; found >= 0 && i < reader.history.keys.n; i++)
        found += history_judge(&reader.history, &reader.history.keys.at[i], report);
    if (found >= 0)
        found += history_judge_messages(&reader.history, report);
    if (found >= 0 && ret != NULL) {
        history_count(&reader.history);
        *ret = reader.history.sum;
    }
    history_release(&reader.history);
    free(reader.events.at);
    return found;
}

int history_check_file(const char *path, FILE *report, struct history_sum *ret) {
    FILE *log = fopen(path, "re");
    int found;

    if (log == NULL) {
        fprintf(report, "history: %s: %s\n", path, strerror(errno));
        return -1;
    }
    found = history_check(log, report, ret);
    fclose(log);
    return found;
}
