/*
 * What becomes of a message that was out: acknowledged, given back, delayed,
 * buried.
 *
 * Acks and givebacks gather over a turn of the loop and go out in few commands; a
 * giveback of an entry that is not in the stream any more puts it among the dead
 * letters instead. All may be said twice, so that what gets no answer is said again after the
 * reconnect, SEND_TRIES times; then it is left to the group, which delivers it
 * again. A burial that gets no answer is refused: it may have happened, and the
 * consumer's next try buries it twice.
 */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "core/when.h"
#include "queue/stream/stream.h"

#define SEND_MAX 128 /* ids of a command */
#define SEND_TRIES 8
#define RETURNED_IDLE_MS INT64_C(31536000000) /* a year: more than anybody's min-idle */
#define DELAY_MAX_MS INT64_C(31536000000)

/* Acks and givebacks. */

struct kind {
    enum stream_state waits, sent;
    const char *name;
};
static const struct kind ack_kind = {STREAM_ACKING, STREAM_ACKED, "XACK"};
static const struct kind give_kind = {STREAM_GIVING, STREAM_GIVEN, "EVAL (move)"};
static const struct kind save_kind = {STREAM_SAVING, STREAM_SAVED, "XADD"};

/* The first `n` that were sent: answered, or to be said again. */
static void sent_take(struct stream_link *link, const struct kind *kind, size_t n, bool answered) {
    struct stream_list *sent = &link->lists[kind->sent];
    char text[STREAM_ID_TEXT];

    for (; n > 0 && sent->first != NULL; n--) {
        struct stream_entry *entry = sent->first;

        if (!answered && ++entry->tries < SEND_TRIES) {
            stream_entry_set(entry, kind->waits);
            continue;
        }
        if (!answered && kind == &save_kind)
            stream_say(link, "%s: entry %s was trimmed, is not among the dead letters, and is lost",
                       link->queue, stream_id_print(entry->id, text));
        stream_entry_free(entry);
    }
}

/* data: how many it was about. */
static void take_given(struct redis_conn *conn, const struct kind *kind, void *data,
                       const struct redis_reply *reply) {
    struct stream_link *link = conn->data;
    bool answered = reply != NULL && reply->type != REDIS_REPLY_ERROR;

    sent_take(link, kind, (size_t)(uintptr_t)data, answered);
    if (reply != NULL && !answered) {
        if (kind != &save_kind && stream_is_gone(reply))
            stream_link_reset(link);
        else
            stream_trouble(link, kind->name, reply);
        link->give_until = link->wait_until;
    }
    stream_next_post(link);
}

static void take_acked(struct redis_conn *conn, void *data, const struct redis_reply *reply) {
    take_given(conn, &ack_kind, data, reply);
}

static void take_saved(struct redis_conn *conn, void *data, const struct redis_reply *reply) {
    take_given(conn, &save_kind, data, reply);
}

/* Those that are not in the stream any more, so that nobody can be given them; how many. */
static size_t trimmed_save(struct stream_link *link, const struct redis_reply *reply) {
    struct stream_entry *entry;
    struct stream_said said;
    size_t n = 0;

    for (size_t i = 0; reply->type == REDIS_REPLY_ARRAY && i < reply->items_n; i++) {
        if (!stream_read_said(reply->items[i], &said) || said.word != STREAM_WORD_DELETED)
            continue;
        entry = stream_entry_find(link, said.id);
        if (!stream_deleted(link, said.id) || entry->state != STREAM_GIVEN)
            continue;
        stream_entry_set(entry, STREAM_SAVING);
        n++;
    }
    return n;
}

static void take_returned(struct redis_conn *conn, void *data, const struct redis_reply *reply) {
    size_t n = (size_t)(uintptr_t)data;

    if (reply != NULL)
        n -= trimmed_save(conn->data, reply);
    take_given(conn, &give_kind, (void *)(uintptr_t)n, reply);
}

/* Dead letters. */

static bool is_epitaph(struct idem_bytes name) {
    static const char *const names[] = {
        QUEUE_DEAD_VERDICT, QUEUE_DEAD_REASON,        QUEUE_DEAD_ATTEMPTS,
        QUEUE_DEAD_STATUS,  QUEUE_DEAD_RECORD_PREFIX, QUEUE_DEAD_HASH,
        QUEUE_DEAD_QUEUE,   STREAM_DEAD_ID,           QUEUE_DEAD_AT};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (strlen(names[i]) == name.len && memcmp(names[i], name.at, name.len) == 0)
            return true;
    return false;
}

/* Fields that are counted while they are put; the head comes before them. */
struct letter {
    struct redis_buffer out;
    size_t n;
};

static void letter_put(struct letter *letter, struct idem_bytes name, struct idem_bytes value) {
    redis_put_part(&letter->out, name.at, name.len);
    redis_put_part(&letter->out, value.at, value.len);
    letter->n++;
}

static void letter_say(struct letter *letter, const char *name, const char *value) {
    if (value == NULL)
        return;
    redis_put_text(&letter->out, name);
    redis_put_text(&letter->out, value);
    letter->n++;
}

static void letter_count(struct letter *letter, const char *name, int64_t value) {
    redis_put_text(&letter->out, name);
    redis_put_number(&letter->out, value);
    letter->n++;
}

/* What the entry had of these names is of an earlier burial. */
static void letter_write(struct letter *letter, const struct stream_message *message,
                         const struct queue_epitaph *epitaph) {
    char now[IDEM_WHEN_TEXT];

    for (size_t i = 0; i < message->fields_n; i++)
        if (!is_epitaph(message->fields[2 * i]))
            letter_put(letter, message->fields[2 * i], message->fields[2 * i + 1]);
    letter_say(letter, QUEUE_DEAD_VERDICT, epitaph->verdict);
    letter_say(letter, QUEUE_DEAD_REASON, epitaph->reason);
    letter_count(letter, QUEUE_DEAD_ATTEMPTS, epitaph->attempts);
    letter_count(letter, QUEUE_DEAD_STATUS, epitaph->status);
    letter_say(letter, QUEUE_DEAD_RECORD_PREFIX, epitaph->prefix);
    letter_say(letter, QUEUE_DEAD_HASH, epitaph->hash);
    letter_say(letter, QUEUE_DEAD_QUEUE, message->base.queue);
    letter_say(letter, STREAM_DEAD_ID, message->id);
    letter_say(letter, QUEUE_DEAD_AT,
               idem_when_print(1000 * (int64_t)time(NULL), now, sizeof(now)));
}

/* XADD. */
static void letter_put_all(const struct stream_link *link, struct redis_buffer *out,
                           const struct stream_message *message,
                           const struct queue_epitaph *epitaph) {
    struct letter letter = {0};

    letter_write(&letter, message, epitaph);
    redis_put_head(out, 3 + 2 * letter.n);
    redis_put_text(out, "XADD");
    redis_put_text(out, link->dead_letter);
    redis_put_text(out, "*");
    redis_buffer_put(out, letter.out.at, letter.out.len);
    out->failed |= letter.out.failed;
    redis_buffer_release(&letter.out);
}

/* Sending. */

static bool saved_send(struct stream_link *link) {
    static const struct queue_epitaph epitaph = {
        .verdict = "trimmed",
        .reason = "its entry was deleted or trimmed before it was done with",
    };
    struct stream_entry *entry = link->lists[STREAM_SAVING].first;
    struct redis_buffer out = {0};

    letter_put_all(link, &out, entry->kept, &epitaph);
    if (!stream_send(link, &out, take_saved, (void *)(uintptr_t)1))
        return false;
    stream_entry_set(entry, STREAM_SAVED);
    return true;
}

/* As many as go into one command; how many that were. */
static size_t given_send(struct stream_link *link, const struct kind *kind) {
    struct stream_list *waits = &link->lists[kind->waits];
    struct stream_entry *entry = waits->first;
    struct redis_buffer out = {0};
    bool begun = entry != NULL && entry->begun;
    size_t n = 0;

    while (n < SEND_MAX && entry != NULL && entry->begun == begun) {
        n++;
        entry = entry->next;
    }
    if (kind == &ack_kind) {
        stream_put_begin(link, &out, n, "XACK");
    } else {
        stream_put_script(link, &out, 4 + n, stream_move_script);
        redis_put_text(&out, link->consumer);
        redis_put_text(&out, STREAM_NOBODY);
        redis_put_number(&out, RETURNED_IDLE_MS);
        redis_put_number(&out, begun ? 0 : 1);
    }
    entry = waits->first;
    for (size_t i = 0; i < n; i++, entry = entry->next)
        stream_put_id(&out, entry->id);
    if (!stream_send(link, &out, kind == &ack_kind ? take_acked : take_returned,
                     (void *)(uintptr_t)n))
        return 0;
    for (size_t i = 0; i < n; i++)
        stream_entry_set(waits->first, kind->sent);
    return n;
}

void stream_give_next(struct stream_link *link) {
    while (link->lists[STREAM_ACKING].n > 0 && given_send(link, &ack_kind) > 0)
        ;
    while (link->lists[STREAM_GIVING].n > 0 && given_send(link, &give_kind) > 0)
        ;
    while (link->lists[STREAM_SAVING].n > 0 && saved_send(link))
        ;
}

void stream_give_all(struct stream_link *link) {
    static const enum stream_state states[] = {STREAM_DELAYED, STREAM_DUE, STREAM_ASKED,
                                               STREAM_PARKED};

    for (size_t i = 0; i < sizeof(states) / sizeof(states[0]); i++)
        while (link->lists[states[i]].first != NULL) {
            link->lists[states[i]].first->begun = true;
            stream_entry_set(link->lists[states[i]].first, STREAM_GIVING);
        }
}

void stream_ack(struct queue_link *base, struct queue_message *queued) {
    struct stream_link *link = stream_link_of(base);
    struct stream_message *message = stream_message_of(queued);
    struct stream_entry *entry = message->entry;

    stream_dismiss(link, message);
    if (entry == NULL)
        return;
    stream_entry_set(entry, STREAM_ACKING);
    stream_next_post(link);
}

/* Its content stays until it is sure that the stream has it. */
void stream_giveback(struct queue_link *base, struct queue_message *queued) {
    struct stream_link *link = stream_link_of(base);
    struct stream_message *message = stream_message_of(queued);
    struct stream_entry *entry = message->entry;

    if (entry != NULL && !entry->lost)
        (void)stream_keep(entry, message, true);
    stream_dismiss(link, message);
    if (entry == NULL)
        return;
    if (entry->lost)
        stream_entry_free(entry); /* who has it now delivers it */
    else
        stream_entry_set(entry, STREAM_GIVING);
    stream_next_post(link);
}

/* Delays. */

static void ask_begin(struct stream_message *message, bool delayed, queue_told_fn *told,
                      void *data) {
    message->asked = true;
    message->delayed = delayed;
    message->told = told;
    message->told_data = data;
}

void stream_delay(struct queue_link *base, struct queue_message *queued, int64_t ms,
                  queue_told_fn *told, void *data) {
    struct stream_link *link = stream_link_of(base);
    struct stream_message *message = stream_message_of(queued);
    struct stream_entry *entry = message->entry;

    ask_begin(message, true, told, data);
    if (entry != NULL && !entry->lost && link->kept_n >= STREAM_KEPT_MAX) {
        stream_told(link, message, false, "100000 messages wait for their next try already");
        return;
    }
    if (entry != NULL && !entry->lost && !stream_keep(entry, message, false) && entry->deleted) {
        stream_told(link, message, false, "its entry was trimmed, and there is no room to keep it");
        return;
    }
    message->entry = NULL;
    if (entry != NULL) {
        entry->message = NULL;
        if (entry->lost) {
            stream_entry_free(entry);
        } else {
            stream_entry_set(entry, STREAM_DELAYED);
            idem_timer_set(link->loop, &entry->due, ms < DELAY_MAX_MS ? ms : DELAY_MAX_MS);
        }
    }
    stream_told(link, message, true, NULL);
}

/* Burials. */

static void take_buried(struct redis_conn *conn, void *data, const struct redis_reply *reply) {
    struct stream_link *link = conn->data;
    struct stream_message *message = data;
    char text[STREAM_ERROR_TEXT];

    if (reply == NULL)
        stream_told(link, message, false, "the connection was lost before the server answered");
    else if (reply->type == REDIS_REPLY_STRING)
        stream_told(link, message, true, NULL);
    else
        stream_told(link, message, false, stream_error_text(reply, text));
}

void stream_bury(struct queue_link *base, struct queue_message *queued,
                 const struct queue_epitaph *epitaph, queue_told_fn *told, void *data) {
    struct stream_link *link = stream_link_of(base);
    struct stream_message *message = stream_message_of(queued);
    struct redis_buffer out = {0};

    ask_begin(message, false, told, data);
    if (link->command.state != REDIS_CONN_READY) {
        stream_told(link, message, false, "there is no connection to the server");
        return;
    }
    letter_put_all(link, &out, message, epitaph);
    if (!stream_send(link, &out, take_buried, message))
        stream_told(link, message, false, "there is no memory for what is to be sent");
    stream_next_post(link);
}
