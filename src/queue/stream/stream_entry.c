/*
 * The known entries: messages that are out, delayed ones, acks on their way. Three parts: the table
 * of entries, found by their ids and listed by their states; the renewal of their idle time; and
 * the commands for a message that was out: ack, nack, delay, bury.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/bytes.h"
#include "base/list.h"
#include "base/rfc3339.h"
#include "queue/stream/stream.h"

/*
 * The table of entries. Fails only without memory, and only when an entry is created.
 */

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

/* Lists: one for each state, and one of the entries that wait, in the order of their renewal. */

/* True if an entry in this state waits: then it is in the list `waiting`, and is renewed. */
static bool entry_state_waits(enum stream_state state) {
    return state == STREAM_DELAYED || state == STREAM_DUE || state == STREAM_ASKED ||
           state == STREAM_PARKED;
}

static void list_append(struct stream_list *list, struct stream_entry *entry) {
    idem_link_append(&list->end, entry);
    list->n++;
}

static void list_remove(struct stream_list *list, struct stream_entry *entry) {
    idem_link_remove_end(&list->end, entry);
    list->n--;
}

static void link_waiting_remove(struct stream_link *link, struct stream_entry *entry) {
    idem_link_remove_end_in(waiting_, &link->waiting_end, entry);
    link->waiting_n--;
}

/* Puts the entry to the front, to be renewed next. */
static void link_waiting_prepend(struct stream_link *link, struct stream_entry *entry) {
    entry->renewed = 0;
    idem_link_prepend_in(waiting_, &link->waiting, &link->waiting_end, entry);
    link->waiting_n++;
}

/* Moves it to the end of the renewed entries. */
static void entry_set_renewed(struct stream_entry *entry, int64_t now) {
    struct stream_link *link = entry->owner;

    entry->renewed = now;
    idem_link_remove_end_in(waiting_, &link->waiting_end, entry);
    idem_link_append_in(waiting_, &link->waiting_end, entry);
}

/* The only place that changes the state. */
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
        [STREAM_NACKING] = IN(OUT) | IN(NACKED) | IN(DELAYED) | IN(DUE) | IN(ASKED) | IN(PARKED),
        [STREAM_NACKED] = IN(NACKING),
        [STREAM_SAVING] = IN(NACKED) | IN(SAVED),
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
    if (entry_state_waits(entry->state) && !entry_state_waits(state))
        link_waiting_remove(link, entry);
    else if (!entry_state_waits(entry->state) && entry_state_waits(state))
        link_waiting_prepend(link, entry);
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

/* Creation and release. */

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
    if (entry->waiting_link != NULL)
        link_waiting_remove(link, entry);
    idem_timer_clear(link->loop, &entry->due);
    stream_content_drop(entry);
    free(entry);
}

void stream_entry_forget(struct stream_entry *entry) {
    struct stream_link *link = entry->owner;
    struct stream_message *message = entry->message;

    stream_entry_free(entry);
    if (message == NULL)
        return;
    message->entry = NULL;
    if ((message->events & STREAM_NOTIFY_MESSAGE) != 0) /* the consumer does not know it yet */
        stream_notify_drop(link, message);
    else
        stream_notify_post(link, message, STREAM_NOTIFY_LOST);
}

bool stream_entry_table_init(struct stream_link *link) {
    link->buckets_n = BUCKETS_FIRST;
    link->buckets = calloc(link->buckets_n, sizeof(struct stream_entry *));
    for (size_t i = 0; i < STREAM_STATES; i++)
        link->lists[i].end = &link->lists[i].first;
    link->waiting_end = &link->waiting;
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

/*
 * The idle time of our entries, renewed so that no other consumer takes them over: at a third
 * of the lease for delayed and parked ones, at the consumer's `extend` for messages that are
 * out. move.lua renews an entry if it is still ours. If it is not, its reply shows that:
 *
 *     it is        a message that is out       an entry that waits
 *     another's    stays out: its ack counts   is forgotten: it is delivered there
 *     nowhere      is lost (`gone`)            is forgotten: it is done, or will be new
 *     deleted      stays out, and is reported  is reported, and forgotten without its content
 *
 * A renewal without a reply is repeated after the reconnect.
 */

#define RENEW_MAX 200 /* in one script call */
#define TICK_MS 1000

static void renew_next(struct stream_link *link);

static void renew_apply_outcome(struct stream_link *link, const struct stream_outcome *outcome) {
    struct stream_entry *entry = stream_entry_find(link, outcome->id);

    if (entry == NULL)
        return;
    if (entry->state != STREAM_OUT && entry->waiting_link == NULL)
        return; /* it is being returned now */
    if (outcome->word == STREAM_WORD_DELETED && stream_trimmed_report(link, outcome->id))
        return;
    if (entry->state == STREAM_OUT && outcome->word != STREAM_WORD_NONE)
        entry->lost = true;
    else
        stream_entry_forget(entry);
}

/* data: the link for renewals by the tick, NULL for others. */
static void renew_on_moved(struct redis_conn *conn, void *data, const struct redis_reply *reply) {
    struct stream_link *link = conn->data;
    struct stream_outcome outcome;

    if (data != NULL)
        link->renewing = false;
    if (reply == NULL)
        return;
    if (reply->type != REDIS_REPLY_ARRAY) {
        if (stream_is_gone(reply))
            stream_link_reset(link);
        else
            stream_link_report_error(link, "EVAL (move)", reply);
        return;
    }
    for (size_t i = 0; i < reply->items_n; i++)
        if (stream_parse_outcome(reply->items[i], &outcome))
            renew_apply_outcome(link, &outcome);
    if (data != NULL)
        renew_next(link);
    stream_link_post(link);
}

static bool renew_send(struct stream_link *link, const struct stream_id *ids, size_t n,
                       void *data) {
    struct idem_buffer out = {0};

    stream_link_put_script(link, &out, 4 + n, stream_move_script);
    redis_put_text(&out, link->consumer);
    redis_put_text(&out, link->consumer);
    redis_put_text(&out, "0");
    redis_put_text(&out, "0");
    for (size_t i = 0; i < n; i++)
        stream_connection_put_id(&out, ids[i]);
    return stream_link_send(link, &out, renew_on_moved, data);
}

static void renew_next(struct stream_link *link) {
    int64_t now = idem_loop_now();
    struct stream_id ids[RENEW_MAX];
    struct stream_entry *entry;
    size_t n = 0;

    if (link->renewing || link->command.state != REDIS_CONN_READY)
        return;
    while (n < RENEW_MAX && (entry = link->waiting) != NULL &&
           (entry->renewed == 0 || now - entry->renewed >= link->renew_ms)) {
        ids[n++] = entry->id;
        entry_set_renewed(entry, now);
    }
    if (n > 0)
        link->renewing = renew_send(link, ids, n, link);
}

/* Adds an entry that is out, and sends the renewals when they are complete. */
static void renew_out(struct stream_link *link, const struct stream_entry *entry, bool all,
                      struct stream_id ids[RENEW_MAX], size_t *n) {
    if (entry != NULL && entry->state == STREAM_OUT && !entry->lost)
        ids[(*n)++] = entry->id;
    if (*n == RENEW_MAX || (all && *n > 0)) {
        (void)renew_send(link, ids, *n, NULL);
        *n = 0;
    }
}

void stream_renew_all(struct stream_link *link) {
    struct stream_id ids[RENEW_MAX];
    struct stream_entry *entry;
    size_t n = 0;

    for (entry = link->waiting; entry != NULL; entry = entry->waiting_next)
        entry->renewed = 0;
    for (entry = link->lists[STREAM_OUT].first; entry != NULL; entry = entry->next)
        renew_out(link, entry, false, ids, &n);
    renew_out(link, NULL, true, ids, &n);
    renew_next(link);
}

void stream_renew_extend(struct queue_link *base, struct queue_message *const *messages, size_t n) {
    struct stream_link *link = stream_link_of(base);
    struct stream_id ids[RENEW_MAX];
    size_t sent = 0;

    for (size_t i = 0; i < n; i++)
        renew_out(link, stream_message_of(messages[i])->entry, false, ids, &sent);
    renew_out(link, NULL, true, ids, &sent);
    stream_link_post(link);
}

/* The link's tick, about once a second: also drives the steps of stream_read.c. */
void stream_renew_tick(struct idem_timer *timer) {
    struct stream_link *link = idem_container_of(timer, struct stream_link, tick);

    renew_next(link);
    if (stream_link_is_ready(link)) {
        if (link->fetching)
            stream_recover_tick(link, idem_loop_now());
        else
            stream_read_interrupt(link); /* the first interrupt may have been too early */
    }
    stream_link_post(link);
    idem_timer_set(link->loop, timer, link->renew_ms < TICK_MS ? link->renew_ms : TICK_MS);
}

/*
 * The ways of a message that was out: acknowledged, returned, delayed, buried.
 *
 * Acks and nacks gather over a turn of the loop and go out in few commands. If an entry
 * that is returned is no longer in the stream, it is put among the dead letters. All these
 * commands may be repeated: one without a reply is sent again after the reconnect, SEND_TRIES
 * times; then it is left to the group, which delivers the entry again. A burial without a
 * reply counts as refused: it may have happened, and then the consumer's next try buries the
 * message twice.
 */

#define SEND_MAX 128 /* ids in a command */
#define SEND_TRIES 8
#define RETURNED_IDLE_MS INT64_C(31536000000) /* a year: more than every consumer's min-idle */
#define DELAY_MAX_MS INT64_C(31536000000)

/* Acks and nacks. */

struct kind {
    enum stream_state waits, sent;
    const char *name;
};
static const struct kind ack_kind = {STREAM_ACKING, STREAM_ACKED, "XACK"};
static const struct kind nack_kind = {STREAM_NACKING, STREAM_NACKED, "EVAL (move)"};
static const struct kind save_kind = {STREAM_SAVING, STREAM_SAVED, "XADD"};

/* The first `n` entries that were sent: free them, or send them again if there was no reply. */
static void link_settle_sent(struct stream_link *link, const struct kind *kind, size_t n,
                             bool answered) {
    struct stream_entry *entry = link->lists[kind->sent].first, *next;
    char text[STREAM_ID_TEXT];

    for (; n > 0 && entry != NULL; n--, entry = next) {
        next = entry->next;
        if (!answered && ++entry->tries < SEND_TRIES) {
            stream_entry_set_state(entry, kind->waits);
            continue;
        }
        if (!answered && kind == &save_kind)
            stream_notify_state(
                link, "%s: entry %s was trimmed, is not among the dead letters, and is lost",
                link->queue, stream_id_print(entry->id, text));
        stream_entry_free(entry);
    }
}

/* The reply to a command of any kind. data: the number of its entries. */
static void ack_on_reply(struct redis_conn *conn, const struct kind *kind, void *data,
                         const struct redis_reply *reply) {
    struct stream_link *link = conn->data;
    bool answered = reply != NULL && reply->type != REDIS_REPLY_ERROR;

    link_settle_sent(link, kind, (size_t)(uintptr_t)data, answered);
    if (reply != NULL && !answered) {
        if (kind != &save_kind && stream_is_gone(reply))
            stream_link_reset(link);
        else
            stream_link_report_error(link, kind->name, reply);
        link->ack_until = link->wait_until;
    }
    stream_link_post(link);
}

static void ack_on_acked(struct redis_conn *conn, void *data, const struct redis_reply *reply) {
    ack_on_reply(conn, &ack_kind, data, reply);
}

static void ack_on_saved(struct redis_conn *conn, void *data, const struct redis_reply *reply) {
    ack_on_reply(conn, &save_kind, data, reply);
}

/* Entries that are no longer in the stream, so that no consumer can get them. Returns their
   number. */
static size_t link_save_trimmed(struct stream_link *link, const struct redis_reply *reply) {
    struct stream_entry *entry;
    struct stream_outcome outcome;
    size_t n = 0;

    for (size_t i = 0; reply->type == REDIS_REPLY_ARRAY && i < reply->items_n; i++) {
        if (!stream_parse_outcome(reply->items[i], &outcome) || outcome.word != STREAM_WORD_DELETED)
            continue;
        entry = stream_entry_find(link, outcome.id);
        if (!stream_trimmed_report(link, outcome.id) || entry->state != STREAM_NACKED)
            continue;
        stream_entry_set_state(entry, STREAM_SAVING);
        n++;
    }
    return n;
}

static void nack_on_reply(struct redis_conn *conn, void *data, const struct redis_reply *reply) {
    size_t n = (size_t)(uintptr_t)data;

    if (reply != NULL)
        n -= link_save_trimmed(conn->data, reply);
    ack_on_reply(conn, &nack_kind, (void *)(uintptr_t)n, reply);
}

/* Dead letters. */

static bool ack_is_dead_field(struct idem_bytes name) {
    static const char *const names[] = {
        QUEUE_DEAD_VERDICT, QUEUE_DEAD_REASON,        QUEUE_DEAD_ATTEMPTS,
        QUEUE_DEAD_STATUS,  QUEUE_DEAD_RECORD_PREFIX, QUEUE_DEAD_HASH,
        QUEUE_DEAD_QUEUE,   STREAM_DEAD_ID,           QUEUE_DEAD_AT};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (idem_is_word(name.at, name.len, names[i]))
            return true;
    return false;
}

/* Fields, counted while they are written; the command's head is written later. */
struct letter {
    struct idem_buffer out;
    size_t n;
};

static void letter_put_field(struct letter *letter, struct idem_bytes name,
                             struct idem_bytes value) {
    redis_put_part(&letter->out, name.at, name.len);
    redis_put_part(&letter->out, value.at, value.len);
    letter->n++;
}

static void letter_put_text(struct letter *letter, const char *name, const char *value) {
    if (value == NULL)
        return;
    redis_put_text(&letter->out, name);
    redis_put_text(&letter->out, value);
    letter->n++;
}

static void letter_put_number(struct letter *letter, const char *name, int64_t value) {
    redis_put_text(&letter->out, name);
    redis_put_number(&letter->out, value);
    letter->n++;
}

/* Fields with our names come from an earlier burial, and are left out. */
static void letter_write(struct letter *letter, const struct stream_message *message,
                         const struct queue_dead_fields *dead_fields) {
    char now[IDEM_RFC3339_TEXT];

    for (size_t i = 0; i < message->fields_n; i++)
        if (!ack_is_dead_field(message->fields[2 * i]))
            letter_put_field(letter, message->fields[2 * i], message->fields[2 * i + 1]);
    letter_put_text(letter, QUEUE_DEAD_VERDICT, dead_fields->verdict);
    letter_put_text(letter, QUEUE_DEAD_REASON, dead_fields->reason);
    letter_put_number(letter, QUEUE_DEAD_ATTEMPTS, dead_fields->attempts);
    letter_put_number(letter, QUEUE_DEAD_STATUS, dead_fields->status);
    letter_put_text(letter, QUEUE_DEAD_RECORD_PREFIX, dead_fields->prefix);
    letter_put_text(letter, QUEUE_DEAD_HASH, dead_fields->hash);
    letter_put_text(letter, QUEUE_DEAD_QUEUE, message->base.queue);
    letter_put_text(letter, STREAM_DEAD_ID, message->id);
    letter_put_text(letter, QUEUE_DEAD_AT,
                    idem_rfc3339_print(1000 * (int64_t)time(NULL), now, sizeof(now)));
}

static void link_put_letter(const struct stream_link *link, struct idem_buffer *out,
                            const struct stream_message *message,
                            const struct queue_dead_fields *dead_fields) {
    struct letter letter = {0};

    letter_write(&letter, message, dead_fields);
    redis_put_head(out, 3 + 2 * letter.n);
    redis_put_text(out, "XADD");
    redis_put_text(out, link->dead_letter);
    redis_put_text(out, "*");
    idem_buffer_put(out, letter.out.at, letter.out.len);
    out->failed |= letter.out.failed;
    idem_buffer_release(&letter.out);
}

/* Sending. */

static bool link_send_saved(struct stream_link *link) {
    static const struct queue_dead_fields dead_fields = {
        .verdict = "trimmed",
        .reason = "its entry was deleted or trimmed before it was done with",
    };
    struct stream_entry *entry = link->lists[STREAM_SAVING].first;
    struct idem_buffer out = {0};

    link_put_letter(link, &out, entry->content, &dead_fields);
    if (!stream_link_send(link, &out, ack_on_saved, (void *)(uintptr_t)1))
        return false;
    stream_entry_set_state(entry, STREAM_SAVED);
    return true;
}

/* Sends as many acks or nacks as fit into one command, and returns their number. */
static size_t link_send_ids(struct stream_link *link, const struct kind *kind) {
    struct stream_list *waits = &link->lists[kind->waits];
    struct stream_entry *entry = waits->first;
    struct idem_buffer out = {0};
    bool begun = entry != NULL && entry->begun;
    size_t n = 0;

    while (n < SEND_MAX && entry != NULL && entry->begun == begun) {
        n++;
        entry = entry->next;
    }
    if (kind == &ack_kind) {
        stream_link_put_command(link, &out, n, "XACK");
    } else {
        stream_link_put_script(link, &out, 4 + n, stream_move_script);
        redis_put_text(&out, link->consumer);
        redis_put_text(&out, STREAM_NOBODY);
        redis_put_number(&out, RETURNED_IDLE_MS);
        redis_put_number(&out, begun ? 0 : 1);
    }
    entry = waits->first;
    for (size_t i = 0; i < n; i++, entry = entry->next)
        stream_connection_put_id(&out, entry->id);
    if (!stream_link_send(link, &out, kind == &ack_kind ? ack_on_acked : nack_on_reply,
                          (void *)(uintptr_t)n))
        return 0;
    for (size_t i = 0; i < n; i++)
        stream_entry_set_state(waits->first, kind->sent);
    return n;
}

void stream_ack_send_next(struct stream_link *link) {
    while (link->lists[STREAM_ACKING].n > 0 && link_send_ids(link, &ack_kind) > 0)
        ;
    while (link->lists[STREAM_NACKING].n > 0 && link_send_ids(link, &nack_kind) > 0)
        ;
    while (link->lists[STREAM_SAVING].n > 0 && link_send_saved(link))
        ;
}

void stream_nack_all(struct stream_link *link) {
    static const enum stream_state states[] = {STREAM_DELAYED, STREAM_DUE, STREAM_ASKED,
                                               STREAM_PARKED};

    for (size_t i = 0; i < sizeof(states) / sizeof(states[0]); i++)
        while (link->lists[states[i]].first != NULL) {
            link->lists[states[i]].first->begun = true;
            stream_entry_set_state(link->lists[states[i]].first, STREAM_NACKING);
        }
}

void stream_ack(struct queue_link *base, struct queue_message *queued) {
    struct stream_link *link = stream_link_of(base);
    struct stream_message *message = stream_message_of(queued);
    struct stream_entry *entry = message->entry;

    stream_notify_dismiss(link, message);
    if (entry == NULL)
        return;
    stream_entry_set_state(entry, STREAM_ACKING);
    stream_link_post(link);
}

/* The content is kept until the stream is known to have the entry. */
void stream_nack(struct queue_link *base, struct queue_message *queued) {
    struct stream_link *link = stream_link_of(base);
    struct stream_message *message = stream_message_of(queued);
    struct stream_entry *entry = message->entry;

    if (entry != NULL && !entry->lost)
        (void)stream_content_set(entry, message, true);
    stream_notify_dismiss(link, message);
    if (entry == NULL)
        return;
    if (entry->lost)
        stream_entry_free(entry); /* the new owner delivers it */
    else
        stream_entry_set_state(entry, STREAM_NACKING);
    stream_link_post(link);
}

/* Delays. */

static void message_begin_request(struct stream_message *message, bool delayed, queue_done_fn *done,
                                  void *data) {
    message->asked = true;
    message->delayed = delayed;
    message->done = done;
    message->done_data = data;
}

void stream_ack_delay(struct queue_link *base, struct queue_message *queued, int64_t ms,
                      queue_done_fn *done, void *data) {
    struct stream_link *link = stream_link_of(base);
    struct stream_message *message = stream_message_of(queued);
    struct stream_entry *entry = message->entry;

    message_begin_request(message, true, done, data);
    if (entry != NULL && !entry->lost && link->waiting_n >= STREAM_WAITING_MAX) {
        stream_notify_result(link, message, false,
                             "100000 messages wait for their next try already");
        return;
    }
    if (entry != NULL && !entry->lost && !stream_content_set(entry, message, false) &&
        entry->deleted) {
        stream_notify_result(link, message, false,
                             "its entry was trimmed, and there is no room to keep it");
        return;
    }
    message->entry = NULL;
    if (entry != NULL) {
        entry->message = NULL;
        if (entry->lost) {
            stream_entry_free(entry);
        } else {
            stream_entry_set_state(entry, STREAM_DELAYED);
            idem_timer_set(link->loop, &entry->due, ms < DELAY_MAX_MS ? ms : DELAY_MAX_MS);
        }
    }
    stream_notify_result(link, message, true, NULL);
}

/* Burials. */

static void ack_on_buried(struct redis_conn *conn, void *data, const struct redis_reply *reply) {
    struct stream_link *link = conn->data;
    struct stream_message *message = data;
    char text[STREAM_ERROR_TEXT];

    if (reply == NULL)
        stream_notify_result(link, message, false,
                             "the connection was lost before the server answered");
    else if (reply->type == REDIS_REPLY_STRING)
        stream_notify_result(link, message, true, NULL);
    else
        stream_notify_result(link, message, false, stream_error_text(reply, text));
}

void stream_ack_bury(struct queue_link *base, struct queue_message *queued,
                     const struct queue_dead_fields *dead_fields, queue_done_fn *done, void *data) {
    struct stream_link *link = stream_link_of(base);
    struct stream_message *message = stream_message_of(queued);
    struct idem_buffer out = {0};

    message_begin_request(message, false, done, data);
    if (link->command.state != REDIS_CONN_READY) {
        stream_notify_result(link, message, false, "there is no connection to the server");
        return;
    }
    link_put_letter(link, &out, message, dead_fields);
    if (!stream_link_send(link, &out, ack_on_buried, message))
        stream_notify_result(link, message, false, "there is no memory for what is to be sent");
    stream_link_post(link);
}
