/*
 * The known entries: messages that are out, delayed ones, acks on their way. Found by their
 * ids, listed by their states. Fails only without memory, and only when an entry is created.
 */
#include <stdio.h>
#include <stdlib.h>

#include "queue/stream/stream.h"

#define BUCKETS_FIRST 256

/* Ids. */

/* Reads decimal digits and returns their number; 0: there are none, or the number is too large. */
static size_t entry_read_digits(const char *text, size_t len, uint64_t *ret) {
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
    size_t ms = entry_read_digits(text, len, &id.ms), seq;

    if (ms == 0 || ms == len || text[ms] != '-')
        return false;
    seq = entry_read_digits(text + ms + 1, len - ms - 1, &id.seq);
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

static bool entry_state_is_kept(enum stream_state state) {
    return state == STREAM_DELAYED || state == STREAM_DUE || state == STREAM_ASKED ||
           state == STREAM_PARKED;
}

static void list_append(struct stream_list *list, struct stream_entry *entry) {
    entry->next = NULL;
    entry->link = list->end;
    *list->end = entry;
    list->end = &entry->next;
    list->n++;
}

static void list_remove(struct stream_list *list, struct stream_entry *entry) {
    *entry->link = entry->next;
    if (entry->next != NULL)
        entry->next->link = entry->link;
    else
        list->end = entry->link;
    entry->link = NULL;
    list->n--;
}

static void link_keep_remove(struct stream_link *link, struct stream_entry *entry) {
    *entry->keep_link = entry->keep_next;
    if (entry->keep_next != NULL)
        entry->keep_next->keep_link = entry->keep_link;
    else
        link->keep_end = entry->keep_link;
    entry->keep_link = NULL;
    link->kept_n--;
}

/* Puts the entry to the front, to be renewed next. */
static void link_keep_prepend(struct stream_link *link, struct stream_entry *entry) {
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

    link_keep_remove(link, entry);
    entry->renewed = now;
    entry->keep_next = NULL;
    entry->keep_link = link->keep_end;
    *link->keep_end = entry;
    link->keep_end = &entry->keep_next;
    link->kept_n++;
}

void stream_entry_set_state(struct stream_entry *entry, enum stream_state state) {
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
        list_remove(&link->lists[entry->state], entry);
    if (entry->state == STREAM_DELAYED)
        idem_timer_clear(link->loop, &entry->due);
    if (entry_state_is_kept(entry->state) && !entry_state_is_kept(state))
        link_keep_remove(link, entry);
    else if (!entry_state_is_kept(entry->state) && entry_state_is_kept(state))
        link_keep_prepend(link, entry);
    entry->state = state;
    list_append(&link->lists[state], entry);
}

/* By id. */

static size_t id_hash(struct stream_id id) {
    uint64_t x = (id.ms ^ id.seq << 32 ^ id.seq >> 32) * UINT64_C(0x9e3779b97f4a7c15);

    return (size_t)(x ^ x >> 29);
}

static struct stream_entry **entry_position(const struct stream_link *link, struct stream_id id) {
    struct stream_entry **at = &link->buckets[id_hash(id) & (link->buckets_n - 1)];

    while (*at != NULL && ((*at)->id.ms != id.ms || (*at)->id.seq != id.seq))
        at = &(*at)->same;
    return at;
}

struct stream_entry *stream_entry_find(const struct stream_link *link, struct stream_id id) {
    return *entry_position(link, id);
}

/* Doubles the number of buckets. Without memory, the chains get longer instead. */
static void link_grow_buckets(struct stream_link *link) {
    size_t n = 2 * link->buckets_n;
    struct stream_entry **buckets = calloc(n, sizeof(struct stream_entry *)), *entry, *same;

    if (buckets == NULL)
        return;
    for (size_t i = 0; i < link->buckets_n; i++)
        for (entry = link->buckets[i]; entry != NULL; entry = same) {
            size_t to = id_hash(entry->id) & (n - 1);

            same = entry->same;
            entry->same = buckets[to];
            buckets[to] = entry;
        }
    free(link->buckets);
    link->buckets = buckets;
    link->buckets_n = n;
}

static void entry_due(struct idem_timer *timer) {
    struct stream_entry *entry = idem_container_of(timer, struct stream_entry, due);
    struct stream_link *link = entry->owner;

    stream_entry_set_state(entry, STREAM_DUE);
    stream_link_post(link);
}

struct stream_entry *stream_entry_new(struct stream_link *link, struct stream_id id) {
    struct stream_entry *entry = calloc(1, sizeof(*entry)), **at;

    if (entry == NULL)
        return NULL;
    if (link->entries_n >= link->buckets_n)
        link_grow_buckets(link);
    entry->owner = link;
    entry->id = id;
    entry->due.fire = entry_due;
    at = entry_position(link, id);
    *at = entry;
    link->entries_n++;
    return entry;
}

void stream_entry_free(struct stream_entry *entry) {
    struct stream_link *link = entry->owner;
    struct stream_entry **at = entry_position(link, entry->id);

    *at = entry->same;
    link->entries_n--;
    if (entry->state != STREAM_NEW)
        list_remove(&link->lists[entry->state], entry);
    if (entry->keep_link != NULL)
        link_keep_remove(link, entry);
    idem_timer_clear(link->loop, &entry->due);
    stream_trimmed_drop(entry);
    free(entry);
}

void stream_entry_forget(struct stream_entry *entry) {
    struct stream_link *link = entry->owner;
    struct stream_message *message = entry->message;

    stream_entry_free(entry);
    if (message == NULL)
        return;
    message->entry = NULL;
    if ((message->tell & STREAM_NOTIFY_MESSAGE) != 0) /* the consumer does not know it yet */
        stream_notify_drop(link, message);
    else
        stream_notify_post(link, message, STREAM_NOTIFY_LOST);
}

bool stream_entry_table_init(struct stream_link *link) {
    link->buckets_n = BUCKETS_FIRST;
    link->buckets = calloc(link->buckets_n, sizeof(struct stream_entry *));
    for (size_t i = 0; i < STREAM_STATES; i++)
        link->lists[i].end = &link->lists[i].first;
    link->keep_end = &link->keep;
    return link->buckets != NULL;
}

void stream_entry_table_release(struct stream_link *link) {
    struct stream_entry *entry, *next;

    for (size_t i = 0; link->buckets != NULL && i < STREAM_STATES; i++)
        for (entry = link->lists[i].first; entry != NULL; entry = next) {
            next = entry->next;
            stream_entry_free(entry);
        }
    free(link->buckets);
    link->buckets = NULL;
}
