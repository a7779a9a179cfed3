/*
 * Events for the consumer: messages, lost messages, results of delays and burials, lines for
 * people. All of them gather and are reported by one task, so that no callback runs inside the
 * call that caused it, and the consumer can close the link from inside at one place only.
 *
 * If lines arrive faster than they are reported, new ones replace the last of them.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/list.h"
#include "queue/stream/stream.h"

#define NOTIFY_MAX 128 /* in a turn of the loop: a callback may cause further events */

void stream_notify_state(struct stream_link *link, const char *fmt, ...) {
    struct stream_line *line;
    bool ready = stream_link_is_ready(link);
    char text[sizeof(line->text)];
    va_list args;

    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    if (ready == link->reported_ready && strcmp(text, link->reported_text) == 0)
        return; /* the same trouble again */
    link->reported_ready = ready;
    memcpy(link->reported_text, text, sizeof(text));
    line = &link->lines[link->lines_n < STREAM_LINES ? link->lines_n++ : STREAM_LINES - 1];
    line->ready = ready;
    memcpy(line->text, text, sizeof(text));
    idem_task_post(link->loop, &link->notify);
}

/* Messages. */

void stream_notify_post(struct stream_link *link, struct stream_message *message, unsigned what) {
    message->events |= what;
    if (message->notify_link == NULL)
        idem_link_append_in(notify_, &link->notify_end, message);
    idem_task_post(link->loop, &link->notify);
}

static void notify_remove(struct stream_link *link, struct stream_message *message) {
    if (message->notify_link != NULL)
        idem_link_remove_end_in(notify_, &link->notify_end, message);
}

void stream_notify_drop(struct stream_link *link, struct stream_message *message) {
    notify_remove(link, message);
    idem_link_remove(message);
    link->out_n--;
    link->out_bytes -= message->bytes;
    if (message->content_of != NULL)
        message->detached = true;
    else
        stream_message_free(message);
    if (!link->closing)
        stream_link_post(link); /* there is room */
}

void stream_notify_dismiss(struct stream_link *link, struct stream_message *message) {
    if (message->entry != NULL)
        message->entry->message = NULL;
    message->entry = NULL;
    if (message->asked)
        message->dismissed = true;
    else
        stream_notify_drop(link, message);
}

void stream_notify_result(struct stream_link *link, struct stream_message *message, bool taken,
                          const char *why) {
    message->taken = taken;
    snprintf(message->why, sizeof(message->why), "%s", why == NULL ? "" : why);
    stream_notify_post(link, message, STREAM_NOTIFY_RESULT);
}

void stream_notify_message(struct stream_entry *entry, struct stream_message *message) {
    struct stream_link *link = entry->owner;

    stream_entry_set_state(entry, STREAM_OUT);
    entry->lost = false;
    entry->message = message;
    message->entry = entry;
    idem_link_insert(&link->messages, message);
    link->out_n++;
    link->out_bytes += message->bytes;
    stream_notify_post(link, message, STREAM_NOTIFY_MESSAGE);
}

bool stream_notify_deliver(struct stream_link *link, struct stream_entry *entry,
                           struct stream_id id, int64_t deliveries,
                           const struct redis_reply *fields) {
    struct stream_message *message = stream_message_new(&link->shape, id, deliveries, fields);

    if (message != NULL && entry == NULL)
        entry = stream_entry_new(link, id);
    if (message == NULL || entry == NULL) {
        stream_message_free(message);
        return false;
    }
    stream_content_drop(entry);
    stream_notify_message(entry, message);
    return true;
}

void stream_notify_park(struct stream_link *link, struct stream_entry *entry, struct stream_id id,
                        int64_t bytes, int64_t fields_n) {
    char text[STREAM_ID_TEXT];

    if (entry == NULL && link->waiting_n < STREAM_WAITING_MAX)
        entry = stream_entry_new(link, id);
    if (entry != NULL)
        stream_entry_set_state(entry, STREAM_PARKED);
    stream_id_print(id, text);
    if (bytes < 0)
        stream_notify_state(link,
                            "%s: entry %s is not delivered: the server sent a malformed entry",
                            link->queue, text);
    else
        stream_notify_state(
            link,
            "%s: entry %s is not delivered: it has %lld bytes in %lld fields, and there may "
            "be %zu in %zu; it is left pending under %s, to be dealt with by hand (XRANGE, "
            "XACK)",
            link->queue, text, (long long)bytes, (long long)fields_n, STREAM_ENTRY_MAX,
            STREAM_FIELDS_MAX, link->consumer);
}

/* Reporting. */

static void notify_lines(struct stream_link *link) {
    struct stream_line lines[STREAM_LINES];
    unsigned n = link->lines_n;

    memcpy(lines, link->lines, n * sizeof(lines[0]));
    link->lines_n = 0;
    for (unsigned i = 0; i < n && !link->closing; i++)
        link->events.state(link->events.data, lines[i].ready, lines[i].text);
}

/* A message that was delayed, or returned meanwhile, is no longer the consumer's, and is
   freed. Another message may be returned from inside the callback. */
static void notify_result(struct stream_link *link, struct stream_message *message) {
    bool over = message->dismissed || (message->taken && message->delayed);

    message->asked = false;
    message->done(message->done_data, message->taken,
                  message->why[0] == '\0' ? NULL : message->why);
    if (over && !link->closing)
        stream_notify_drop(link, message);
}

static void notify_one(struct stream_link *link, struct stream_message *message) {
    unsigned what = message->events & -message->events; /* the lowest first */

    message->events &= ~what;
    notify_remove(link, message);
    if (message->events != 0)
        stream_notify_post(link, message, 0);
    if (what == STREAM_NOTIFY_MESSAGE)
        link->events.message(link->events.data, &message->base);
    else if (what == STREAM_NOTIFY_LOST)
        link->events.gone(link->events.data, &message->base);
    else
        notify_result(link, message);
}

void stream_notify_run(struct idem_task *task) {
    struct stream_link *link = idem_container_of(task, struct stream_link, notify);

    link->notifying = true;
    notify_lines(link);
    for (int i = 0; i < NOTIFY_MAX && !link->closing && link->notify_first != NULL; i++)
        notify_one(link, link->notify_first);
    link->notifying = false;
    if (link->closing) /* closed from inside a callback: everything else is freed already */
        free(link);
    else if (link->notify_first != NULL)
        idem_task_post(link->loop, &link->notify);
}
