/*
 * What becomes of a message that was out: acknowledged, given back, delayed,
 * buried.
 *
 * Acks and givebacks gather over a turn of the loop and go out in few commands.
 * Both may be said twice, so that what gets no answer is said again after the
 * reconnect, SEND_TRIES times; then it is left to the group, which delivers it
 * again. A burial that gets no answer is refused: it may have happened, and the
 * consumer's next try buries it twice.
 */
#include <stdio.h>
#include <string.h>
#include <time.h>

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

/* The first `n` that were sent: answered, or to be said again. */
static void sent_take(struct stream_link *link, const struct kind *kind, size_t n, bool answered) {
    struct stream_list *sent = &link->lists[kind->sent];

    for (; n > 0 && sent->first != NULL; n--) {
        struct stream_entry *entry = sent->first;

        if (answered || ++entry->tries >= SEND_TRIES)
            stream_entry_free(entry);
        else
            stream_entry_set(entry, kind->waits);
    }
}

/* data: how many it was about. */
static void take_given(struct redis_conn *conn, const struct kind *kind, void *data,
                       const struct redis_reply *reply) {
    struct stream_link *link = conn->data;
    bool answered = reply != NULL && reply->type != REDIS_REPLY_ERROR;

    sent_take(link, kind, (size_t)(uintptr_t)data, answered);
    if (reply != NULL && !answered) {
        if (stream_is_gone(reply))
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

static void take_returned(struct redis_conn *conn, void *data, const struct redis_reply *reply) {
    take_given(conn, &give_kind, data, reply);
}

static void given_send(struct stream_link *link, const struct kind *kind) {
    struct stream_list *waits = &link->lists[kind->waits];
    size_t n = waits->n < SEND_MAX ? waits->n : SEND_MAX;
    struct redis_buffer out = {0};
    struct stream_entry *entry = waits->first;

    if (kind == &ack_kind) {
        stream_put_begin(link, &out, n, "XACK");
    } else {
        stream_put_script(link, &out, 3 + n, stream_move_script);
        redis_put_text(&out, link->consumer);
        redis_put_text(&out, STREAM_NOBODY);
        redis_put_number(&out, RETURNED_IDLE_MS);
    }
    for (size_t i = 0; i < n; i++, entry = entry->next)
        stream_put_id(&out, entry->id);
    if (!stream_send(link, &out, kind == &ack_kind ? take_acked : take_returned,
                     (void *)(uintptr_t)n))
        return;
    for (; n > 0; n--)
        stream_entry_set(waits->first, kind->sent);
}

void stream_give_next(struct stream_link *link) {
    const struct kind *const kinds[] = {&ack_kind, &give_kind};

    for (size_t i = 0; i < 2; i++)
        for (size_t left = link->lists[kinds[i]->waits].n; left > 0;
             left -= left < SEND_MAX ? left : SEND_MAX)
            given_send(link, kinds[i]);
}

static void give(struct queue_link *base, struct queue_message *queued, enum stream_state state) {
    struct stream_link *link = stream_link_of(base);
    struct stream_message *message = stream_message_of(queued);
    struct stream_entry *entry = message->entry;

    stream_dismiss(link, message);
    if (entry == NULL)
        return;
    if (state == STREAM_GIVING && entry->lost) {
        stream_entry_free(entry); /* who has it now delivers it */
        return;
    }
    stream_entry_set(entry, state);
    stream_next_post(link);
}

void stream_ack(struct queue_link *link, struct queue_message *message) {
    give(link, message, STREAM_ACKING);
}

void stream_giveback(struct queue_link *link, struct queue_message *message) {
    give(link, message, STREAM_GIVING);
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
    char now[32];
    struct tm tm;
    time_t at = time(NULL);

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
    if (gmtime_r(&at, &tm) != NULL && strftime(now, sizeof(now), "%Y-%m-%dT%H:%M:%SZ", &tm) > 0)
        letter_say(letter, QUEUE_DEAD_AT, now);
}

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
    struct letter letter = {0};

    ask_begin(message, false, told, data);
    if (link->command.state != REDIS_CONN_READY) {
        stream_told(link, message, false, "there is no connection to the server");
        return;
    }
    letter_write(&letter, message, epitaph);
    redis_put_head(&out, 3 + 2 * letter.n);
    redis_put_text(&out, "XADD");
    redis_put_text(&out, link->dead_letter);
    redis_put_text(&out, "*");
    redis_buffer_put(&out, letter.out.at, letter.out.len);
    out.failed |= letter.out.failed;
    redis_buffer_release(&letter.out);
    if (!stream_send(link, &out, take_buried, message))
        stream_told(link, message, false, "there is no memory for what is to be sent");
    stream_next_post(link);
}
