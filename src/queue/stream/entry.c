/*
 * The entries that we know of: those that are out, those that wait for their time,
 * those whose ack is on its way. Found by their ids, listed by their states.
 * Fails only without memory, and only where a new one is made.
 */
#include <stdio.h>
#include <stdlib.h>

#include "queue/stream/stream.h"

#define BUCKETS_FIRST 256

/* Ids. */

/* Decimal digits; how many of the bytes, 0: none, or too many. */
static size_t digits_read(const char *text, size_t len, uint64_t *ret) {
    uint64_t n = 0;
    size_t i = 0;

    for (; i < len && text[i] >= '0' && text[i] <= '9'; i++)
        if (__builtin_mul_overflow(n, 10, &n) ||
            __builtin_add_overflow(n, (uint64_t)(text[i] - '0'), &n))
            return 0;
    *ret = n;
    return i;
}

bool stream_id_parse(const char *text, size_t len, struct stream_id *ret) {
    struct stream_id id;
    size_t ms = digits_read(text, len, &id.ms), seq;

    if (ms == 0 || ms == len || text[ms] != '-')
        return false;
    seq = digits_read(text + ms + 1, len - ms - 1, &id.seq);
    if (seq == 0 || ms + 1 + seq != len)
        return false;
    *ret = id;
    return true;
}

const char *stream_id_print(struct stream_id id, char buf[STREAM_ID_TEXT]) {
    snprintf(buf, STREAM_ID_TEXT, "%llu-%llu", (unsigned long long)id.ms,
             (unsigned long long)id.seq);
    return buf;
}

/* Lists. */

static bool is_kept(enum stream_state state) {
    return state == STREAM_DELAYED || state == STREAM_DUE || state == STREAM_ASKED ||
           state == STREAM_PARKED;
}

static void list_put(struct stream_list *list, struct stream_entry *entry) {
    entry->next = NULL;
    entry->link = list->end;
    *list->end = entry;
    list->end = &entry->next;
    list->n++;
}

static void list_take(struct stream_list *list, struct stream_entry *entry) {
    *entry->link = entry->next;
    if (entry->next != NULL)
        entry->next->link = entry->link;
    else
        list->end = entry->link;
    entry->link = NULL;
    list->n--;
}

static void keep_take(struct stream_link *link, struct stream_entry *entry) {
    *entry->keep_link = entry->keep_next;
    if (entry->keep_next != NULL)
        entry->keep_next->keep_link = entry->keep_link;
    else
        link->keep_end = entry->keep_link;
    entry->keep_link = NULL;
    link->kept_n--;
}

/* At the front: it is renewed next. */
static void keep_put(struct stream_link *link, struct stream_entry *entry) {
    entry->renewed = 0;
    entry->keep_next = link->keep;
    entry->keep_link = &link->keep;
    if (link->keep != NULL)
        link->keep->keep_link = &entry->keep_next;
    else
        link->keep_end = &entry->keep_next;
    link->keep = entry;
    link->kept_n++;
}

void stream_entry_renewed(struct stream_entry *entry, int64_t now) {
    struct stream_link *link = entry->owner;

    keep_take(link, entry);
    entry->renewed = now;
    entry->keep_next = NULL;
    entry->keep_link = link->keep_end;
    *link->keep_end = entry;
    link->keep_end = &entry->keep_next;
    link->kept_n++;
}

void stream_entry_set(struct stream_entry *entry, enum stream_state state) {
    static const unsigned from[STREAM_STATES] = {
#define IN(state) 1u << STREAM_##state
        [STREAM_OUT] = IN(NEW) | IN(DUE) | IN(ASKED),
        [STREAM_DELAYED] = IN(OUT),
        [STREAM_DUE] = IN(DELAYED) | IN(ASKED),
        [STREAM_ASKED] = IN(DUE),
        [STREAM_PARKED] = IN(NEW) | IN(DUE) | IN(ASKED),
        [STREAM_ACKING] = IN(OUT) | IN(ACKED),
        [STREAM_ACKED] = IN(ACKING),
        [STREAM_GIVING] = IN(OUT) | IN(GIVEN) | IN(DELAYED) | IN(DUE) | IN(ASKED) | IN(PARKED),
        [STREAM_GIVEN] = IN(GIVING),
        [STREAM_SAVING] = IN(GIVEN) | IN(SAVED),
        [STREAM_SAVED] = IN(SAVING),
#undef IN
    };
    struct stream_link *link = entry->owner;

    if ((from[state] & 1u << entry->state) == 0)
        abort();
    if (entry->state != STREAM_NEW)
        list_take(&link->lists[entry->state], entry);
    if (entry->state == STREAM_DELAYED)
        idem_timer_clear(link->loop, &entry->due);
    if (is_kept(entry->state) && !is_kept(state))
        keep_take(link, entry);
    else if (!is_kept(entry->state) && is_kept(state))
        keep_put(link, entry);
    entry->state = state;
    list_put(&link->lists[state], entry);
}

/* By id. */

static size_t hash_of(struct stream_id id) {
    uint64_t x = (id.ms ^ id.seq << 32 ^ id.seq >> 32) * UINT64_C(0x9e3779b97f4a7c15);

    return (size_t)(x ^ x >> 29);
}

static struct stream_entry **entry_at(const struct stream_link *link, struct stream_id id) {
    struct stream_entry **at = &link->buckets[hash_of(id) & (link->buckets_n - 1)];

    while (*at != NULL && ((*at)->id.ms != id.ms || (*at)->id.seq != id.seq))
        at = &(*at)->same;
    return at;
}

struct stream_entry *stream_entry_find(const struct stream_link *link, struct stream_id id) {
    return *entry_at(link, id);
}

/* Twice as many buckets; without memory they get longer instead. */
static void buckets_grow(struct stream_link *link) {
    size_t n = 2 * link->buckets_n;
    struct stream_entry **buckets = calloc(n, sizeof(struct stream_entry *)), *entry, *same;

    if (buckets == NULL)
        return;
    for (size_t i = 0; i < link->buckets_n; i++)
        for (entry = link->buckets[i]; entry != NULL; entry = same) {
            size_t to = hash_of(entry->id) & (n - 1);

            same = entry->same;
            entry->same = buckets[to];
            buckets[to] = entry;
        }
    free(link->buckets);
    link->buckets = buckets;
    link->buckets_n = n;
}

static void due_fire(struct idem_timer *timer) {
    struct stream_entry *entry = idem_container_of(timer, struct stream_entry, due);
    struct stream_link *link = entry->owner;

    stream_entry_set(entry, STREAM_DUE);
    stream_next_post(link);
}

struct stream_entry *stream_entry_new(struct stream_link *link, struct stream_id id) {
    struct stream_entry *entry = calloc(1, sizeof(*entry)), **at;

    if (entry == NULL)
        return NULL;
    if (link->entries_n >= link->buckets_n)
        buckets_grow(link);
    entry->owner = link;
    entry->id = id;
    entry->due.fire = due_fire;
    at = entry_at(link, id);
    *at = entry;
    link->entries_n++;
    return entry;
}

void stream_entry_free(struct stream_entry *entry) {
    struct stream_link *link = entry->owner;
    struct stream_entry **at = entry_at(link, entry->id);

    *at = entry->same;
    link->entries_n--;
    if (entry->state != STREAM_NEW)
        list_take(&link->lists[entry->state], entry);
    if (entry->keep_link != NULL)
        keep_take(link, entry);
    idem_timer_clear(link->loop, &entry->due);
    stream_unkeep(entry);
    free(entry);
}

void stream_entry_gone(struct stream_entry *entry) {
    struct stream_link *link = entry->owner;
    struct stream_message *message = entry->message;

    stream_entry_free(entry);
    if (message == NULL)
        return;
    message->entry = NULL;
    if ((message->tell & STREAM_TELL_MESSAGE) != 0) /* nobody has heard of it */
        stream_message_drop(link, message);
    else
        stream_tell(link, message, STREAM_TELL_GONE);
}

bool stream_entries_init(struct stream_link *link) {
    link->buckets_n = BUCKETS_FIRST;
    link->buckets = calloc(link->buckets_n, sizeof(struct stream_entry *));
    for (size_t i = 0; i < STREAM_STATES; i++)
        link->lists[i].end = &link->lists[i].first;
    link->keep_end = &link->keep;
    return link->buckets != NULL;
}

void stream_entries_release(struct stream_link *link) {
    struct stream_entry *entry, *next;

    for (size_t i = 0; link->buckets != NULL && i < STREAM_STATES; i++)
        for (entry = link->lists[i].first; entry != NULL; entry = next) {
            next = entry->next;
            stream_entry_free(entry);
        }
    free(link->buckets);
    link->buckets = NULL;
}
