/*
 * What the consumer is told: messages, that one is gone, what became of a delay or
 * a burial, lines for people. All of it gathers and is told from one task, so that
 * nothing is told inside the call that caused it, and there is one place where the
 * consumer may close the link from inside.
 *
 * Lines that come faster than they are told take the place of the last of them.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "queue/stream/stream.h"

#define TELL_MAX 128 /* in a turn of the loop: what is told may make more of it */

void stream_say(struct stream_link *link, const char *fmt, ...) {
    struct stream_line *line;
    bool ready = stream_is_ready(link);
    char text[sizeof(line->text)];
    va_list args;

    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    if (ready == link->told_ready && strcmp(text, link->told_text) == 0)
        return; /* the same trouble again */
    link->told_ready = ready;
    memcpy(link->told_text, text, sizeof(text));
    line = &link->lines[link->lines_n < STREAM_LINES ? link->lines_n++ : STREAM_LINES - 1];
    line->ready = ready;
    memcpy(line->text, text, sizeof(text));
    idem_task_post(link->loop, &link->tell);
}

/* Messages. */

void stream_tell(struct stream_link *link, struct stream_message *message, unsigned what) {
    message->tell |= what;
    if (message->tell_link == NULL) {
        message->tell_next = NULL;
        message->tell_link = link->tells_end;
        *link->tells_end = message;
        link->tells_end = &message->tell_next;
    }
    idem_task_post(link->loop, &link->tell);
}

static void tell_take(struct stream_link *link, struct stream_message *message) {
    if (message->tell_link == NULL)
        return;
    *message->tell_link = message->tell_next;
    if (message->tell_next != NULL)
        message->tell_next->tell_link = message->tell_link;
    else
        link->tells_end = message->tell_link;
    message->tell_link = NULL;
}

void stream_message_drop(struct stream_link *link, struct stream_message *message) {
    tell_take(link, message);
    *message->link = message->next;
    if (message->next != NULL)
        message->next->link = message->link;
    link->out_n--;
    link->out_bytes -= message->bytes;
    if (message->keeper != NULL)
        message->aside = true;
    else
        stream_message_free(message);
    if (!link->closing)
        stream_next_post(link); /* there is room */
}

void stream_dismiss(struct stream_link *link, struct stream_message *message) {
    if (message->entry != NULL)
        message->entry->message = NULL;
    message->entry = NULL;
    if (message->asked)
        message->dismissed = true;
    else
        stream_message_drop(link, message);
}

void stream_told(struct stream_link *link, struct stream_message *message, bool taken,
                 const char *why) {
    message->taken = taken;
    snprintf(message->why, sizeof(message->why), "%s", why == NULL ? "" : why);
    stream_tell(link, message, STREAM_TELL_TOLD);
}

void stream_message_out(struct stream_entry *entry, struct stream_message *message) {
    struct stream_link *link = entry->owner;

    stream_entry_set(entry, STREAM_OUT);
    entry->lost = false;
    entry->message = message;
    message->entry = entry;
    message->next = link->messages;
    message->link = &link->messages;
    if (link->messages != NULL)
        link->messages->link = &message->next;
    link->messages = message;
    link->out_n++;
    link->out_bytes += message->bytes;
    stream_tell(link, message, STREAM_TELL_MESSAGE);
}

bool stream_deliver(struct stream_link *link, struct stream_entry *entry, struct stream_id id,
                    int64_t deliveries, const struct redis_reply *fields) {
    struct stream_message *message = stream_message_new(&link->shape, id, deliveries, fields);

    if (message != NULL && entry == NULL)
        entry = stream_entry_new(link, id);
    if (message == NULL || entry == NULL) {
        stream_message_free(message);
        return false;
    }
    stream_unkeep(entry);
    stream_message_out(entry, message);
    return true;
}

void stream_park(struct stream_link *link, struct stream_entry *entry, struct stream_id id,
                 int64_t bytes, int64_t fields_n) {
    char text[STREAM_ID_TEXT];

    if (entry == NULL && link->kept_n < STREAM_KEPT_MAX)
        entry = stream_entry_new(link, id);
    if (entry != NULL)
        stream_entry_set(entry, STREAM_PARKED);
    stream_id_print(id, text);
    if (bytes < 0)
        stream_say(link, "%s: entry %s is not delivered: what the server sent of it is none",
                   link->queue, text);
    else
        stream_say(link,
                   "%s: entry %s is not delivered: it has %lld bytes in %lld fields, and there may "
                   "be %zu in %zu; it is left pending under %s, to be dealt with by hand (XRANGE, "
                   "XACK)",
                   link->queue, text, (long long)bytes, (long long)fields_n, STREAM_ENTRY_MAX,
                   STREAM_FIELDS_MAX, link->consumer);
}

/* Telling. */

static void tell_lines(struct stream_link *link) {
    struct stream_line lines[STREAM_LINES];
    unsigned n = link->lines_n;

    memcpy(lines, link->lines, n * sizeof(lines[0]));
    link->lines_n = 0;
    for (unsigned i = 0; i < n && !link->closing; i++)
        link->events.state(link->events.data, lines[i].ready, lines[i].text);
}

/* One that was delayed, or given back meanwhile, is not the consumer's any more, and goes. Another
   may be given back from inside. */
static void tell_told(struct stream_link *link, struct stream_message *message) {
    bool over = message->dismissed || (message->taken && message->delayed);

    message->asked = false;
    message->told(message->told_data, message->taken,
                  message->why[0] == '\0' ? NULL : message->why);
    if (over && !link->closing)
        stream_message_drop(link, message);
}

static void tell_one(struct stream_link *link, struct stream_message *message) {
    unsigned what = message->tell & -message->tell; /* the lowest first */

    message->tell &= ~what;
    tell_take(link, message);
    if (message->tell != 0)
        stream_tell(link, message, 0);
    if (what == STREAM_TELL_MESSAGE)
        link->events.message(link->events.data, &message->base);
    else if (what == STREAM_TELL_GONE)
        link->events.gone(link->events.data, &message->base);
    else
        tell_told(link, message);
}

void stream_tell_run(struct idem_task *task) {
    struct stream_link *link = idem_container_of(task, struct stream_link, tell);

    link->telling = true;
    tell_lines(link);
    for (int i = 0; i < TELL_MAX && !link->closing && link->tells != NULL; i++)
        tell_one(link, link->tells);
    link->telling = false;
    if (link->closing) /* from inside: the rest of it is gone already */
        free(link);
    else if (link->tells != NULL)
        idem_task_post(link->loop, &link->tell);
}
