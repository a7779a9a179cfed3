/*
 * How entries get here, in three parts: trimmed ones, of which ours is the only copy; those that
 * were delivered before (stream_recover_*); and new ones (stream_read_*).
 */
#include <stdio.h>

#include "queue/stream/stream.h"

/*
 * Entries that are deleted or trimmed before they are finished. Then our copy is the only one.
 * A message that is out is handled as usual. The content of a delayed one is kept, up to
 * STREAM_CONTENT_BYTES in all, and delivered from here. If it cannot stay here, it is put among
 * the dead letters (stream_entry.c). Without our copy it is lost. Both cases are reported.
 */

bool stream_content_set(struct stream_entry *entry, struct stream_message *message, bool anyway) {
    struct stream_link *link = entry->owner;

    if (!anyway && link->content_bytes + message->bytes > STREAM_CONTENT_BYTES)
        return false;
    entry->content = message;
    message->content_of = entry;
    link->content_bytes += message->bytes;
    return true;
}

/* If the message has a pending request, the report of that request frees it. */
static struct stream_message *entry_detach_content(struct stream_entry *entry) {
    struct stream_message *message = entry->content;

    entry->content = NULL;
    message->content_of = NULL;
    entry->owner->content_bytes -= message->bytes;
    return message;
}

void stream_content_drop(struct stream_entry *entry) {
    struct stream_message *message;

    if (entry->content == NULL)
        return;
    message = entry_detach_content(entry);
    if (message->detached)
        stream_message_free(message);
}

/* Delivers the kept content, now or when its pending request is reported. False: nothing was
   kept. */
static bool trimmed_deliver(struct stream_entry *entry) {
    struct stream_message *message = entry->content;

    if (message == NULL || !message->detached)
        return message != NULL;
    message = entry_detach_content(entry);
    message->detached = message->dismissed = message->delayed = false;
    message->base.owner = NULL;
    message->base.redelivered = true;
    stream_notify_message(entry, message);
    return true;
}

bool stream_trimmed_report(struct stream_link *link, struct stream_id id) {
    struct stream_entry *entry = stream_entry_find(link, id);
    bool here = entry != NULL && (entry->message != NULL || entry->content != NULL);
    char text[STREAM_ID_TEXT];

    if (entry != NULL && (entry->state == STREAM_ACKING || entry->state == STREAM_ACKED))
        return false; /* it is finished */
    if (entry != NULL && entry->deleted)
        return here;
    if (entry != NULL)
        entry->deleted = true;
    link->deleted_n++;
    stream_notify_state(
        link,
        "%s: entry %s was deleted or trimmed before it was done with, %s (%llu so far); "
        "trim by XTRIM MINID, and not past the oldest that XPENDING shows",
        link->queue, stream_id_print(id, text), here ? "and is handled from memory" : "and is lost",
        (unsigned long long)link->deleted_n);
    return here;
}

/*
 * Entries that were delivered before, requested one step at a time on the command connection,
 * and before anything new is read:
 *
 *     own       pending under our name and unknown to us: we died, or a reply was lost.
 *               Oldest first
 *     due       delayed, and their time has arrived
 *     returned  nacked by any consumer
 *     idle      pending under other names for longer than min-idle: XAUTOCLAIM, in small
 *               steps, so that a long list blocks neither the server nor us
 *
 * Each step yields ids, with room reserved for them; take.lua makes them ours and sends as
 * many as fit into a reply. Entries of a lost reply are found again as our own.
 */

#define SURVEY_PAGE 500
#define CLAIM_STEPS 20 /* per second */

/* True if a step is under way, or is due as soon as there is room. New entries wait for it. */
static bool recover_is_pending(const struct stream_link *link) {
    return link->gathering != STREAM_GATHER_NOTHING || link->surveying ||
           link->lists[STREAM_DUE].first != NULL || link->returned ||
           (link->claiming && link->claim_steps > 0);
}

void stream_recover_survey(struct stream_link *link) {
    link->surveying = true;
    link->survey_at = (struct stream_id){0, 0};
}

static void recover_end(struct stream_link *link) {
    link->gathering = STREAM_GATHER_NOTHING;
    link->gather_n = 0;
    link->ids_n = 0;
    stream_link_post(link);
}

/* Ends the step if there is no reply, or an error. Returns false for an array. */
static bool recover_has_failed(struct stream_link *link, const struct redis_reply *reply,
                               const char *what) {
    if (reply != NULL && reply->type == REDIS_REPLY_ARRAY)
        return false;
    link->gathering = STREAM_GATHER_NOTHING;
    link->gather_n = 0;
    link->ids_n = 0;
    while (link->lists[STREAM_ASKED].first != NULL)
        stream_entry_set_state(link->lists[STREAM_ASKED].first, STREAM_DUE);
    stream_recover_survey(link); /* some may be ours now */
    if (reply == NULL && link->command.state == REDIS_CONN_READY)
        stream_link_pause(link); /* the command found no memory */
    else if (reply != NULL && stream_is_gone(reply))
        stream_link_reset(link);
    else if (reply != NULL)
        stream_link_report_error(link, what, reply);
    return true;
}

/* Replies of take.lua. */

static void recover_apply_outcome(struct stream_link *link, const struct stream_outcome *outcome) {
    struct stream_entry *entry = stream_entry_find(link, outcome->id);
    size_t bytes = 0;

    if (entry != NULL && entry->state != STREAM_ASKED)
        return; /* it became known meanwhile */
    switch (outcome->word) {
    case STREAM_WORD_ENTRY:
        if (stream_fields_measure(outcome->fields, &bytes) != STREAM_FITS)
            stream_notify_park(link, entry, outcome->id, -1, 0);
        else if (stream_notify_deliver(link, entry, outcome->id, outcome->deliveries,
                                       outcome->fields))
            link->troubles = 0;
        else
            stream_link_no_memory(link);
        return;
    case STREAM_WORD_LARGE:
        stream_notify_park(link, entry, outcome->id, outcome->bytes, outcome->fields_n);
        return;
    case STREAM_WORD_LATER:
        if (entry == NULL)
            stream_recover_survey(link);
        return;
    case STREAM_WORD_DELETED:
        if (stream_trimmed_report(link, outcome->id) && entry != NULL && trimmed_deliver(entry))
            return;
        break;
    default:
        break;
    }
    if (entry != NULL)
        stream_entry_free(entry);
}

static void recover_on_taken(struct redis_conn *conn, void *data, const struct redis_reply *reply) {
    struct stream_link *link = data;
    struct stream_outcome outcome;

    (void)conn;
    if (recover_has_failed(link, reply, "EVAL (take)"))
        return;
    for (size_t i = 0; i < reply->items_n; i++)
        if (stream_parse_outcome(reply->items[i], &outcome))
            recover_apply_outcome(link, &outcome);
    while (link->lists[STREAM_ASKED].first != NULL) /* the reply had no room for them */
        stream_entry_set_state(link->lists[STREAM_ASKED].first, STREAM_DUE);
    recover_end(link);
}

/* The second half of each step: take.lua for link->ids. Without ids, the step is over. */
static void recover_ask_entries(struct stream_link *link) {
    struct idem_buffer out = {0};

    if (link->ids_n == 0) {
        recover_end(link);
        return;
    }
    stream_link_put_script(link, &out, 5 + link->ids_n, stream_take_script);
    redis_put_text(&out, link->consumer);
    redis_put_text(&out, STREAM_NOBODY);
    redis_put_number(&out, link->min_idle_ms);
    redis_put_number(&out, (int64_t)STREAM_ENTRY_MAX);
    redis_put_number(&out, (int64_t)STREAM_FIELDS_MAX);
    for (size_t i = 0; i < link->ids_n; i++)
        stream_connection_put_id(&out, link->ids[i]);
    link->gathering = STREAM_GATHER_TAKE;
    link->gather_n = link->ids_n;
    if (!stream_link_send(link, &out, recover_on_taken, link))
        (void)recover_has_failed(link, NULL, NULL);
}

static bool recover_add_id(struct stream_link *link, struct stream_id id) {
    if (link->ids_n == link->gather_n)
        return false;
    link->ids[link->ids_n++] = id;
    return true;
}

/* Own entries. */

static void recover_on_own(struct redis_conn *conn, void *data, const struct redis_reply *reply) {
    struct stream_link *link = data;
    struct stream_id id;
    size_t i;

    (void)conn;
    if (recover_has_failed(link, reply, "XPENDING"))
        return;
    for (i = 0; i < reply->items_n; i++) {
        if (!stream_parse_pending(reply->items[i], &id))
            continue;
        if (stream_entry_find(link, id) == NULL && !recover_add_id(link, id))
            break;
        link->survey_at = id;
    }
    if (i == reply->items_n && i < SURVEY_PAGE)
        link->surveying = false;
    recover_ask_entries(link);
}

static void recover_ask_own(struct stream_link *link) {
    char text[STREAM_ID_TEXT], behind[STREAM_ID_TEXT + 1];
    struct idem_buffer out = {0};

    snprintf(behind, sizeof(behind), "(%s", stream_id_print(link->survey_at, text));
    stream_link_put_command(link, &out, 4, "XPENDING");
    redis_put_text(&out, behind);
    redis_put_text(&out, "+");
    redis_put_number(&out, SURVEY_PAGE);
    redis_put_text(&out, link->consumer);
    link->gathering = STREAM_GATHER_OWN;
    if (!stream_link_send(link, &out, recover_on_own, link))
        (void)recover_has_failed(link, NULL, NULL);
}

/* Due entries. */
static void recover_ask_due(struct stream_link *link) {
    struct stream_entry *entry;

    while ((entry = link->lists[STREAM_DUE].first) != NULL && recover_add_id(link, entry->id))
        stream_entry_set_state(entry, STREAM_ASKED);
    recover_ask_entries(link);
}

/* Returned entries. */

static void recover_on_returned(struct redis_conn *conn, void *data,
                                const struct redis_reply *reply) {
    struct stream_link *link = data;
    struct stream_id id;

    (void)conn;
    link->returned = false;
    if (recover_has_failed(link, reply, "XPENDING"))
        return;
    for (size_t i = 0; i < reply->items_n; i++)
        if (stream_parse_pending(reply->items[i], &id) && stream_entry_find(link, id) == NULL)
            (void)recover_add_id(link, id);
    link->returned = link->ids_n == link->gather_n; /* there may be more */
    recover_ask_entries(link);
}

/* Checks only that there are some. */
static void recover_on_poll(struct redis_conn *conn, void *data, const struct redis_reply *reply) {
    struct stream_link *link = data;

    (void)conn;
    link->polling = false;
    if (reply == NULL || reply->type != REDIS_REPLY_ARRAY || reply->items_n == 0)
        return;
    link->returned = true;
    stream_link_post(link);
}

static bool recover_send_returned(struct stream_link *link, size_t n, redis_reply_fn *take) {
    struct idem_buffer out = {0};

    stream_link_put_command(link, &out, 4, "XPENDING");
    redis_put_text(&out, "-");
    redis_put_text(&out, "+");
    redis_put_number(&out, (int64_t)n);
    redis_put_text(&out, STREAM_NOBODY);
    return stream_link_send(link, &out, take, link);
}

static void recover_ask_returned(struct stream_link *link) {
    link->gathering = STREAM_GATHER_RETURNED;
    if (!recover_send_returned(link, link->gather_n, recover_on_returned))
        (void)recover_has_failed(link, NULL, NULL);
}

static void recover_poll_returned(struct stream_link *link) {
    if (!link->polling && !link->returned)
        link->polling = recover_send_returned(link, 1, recover_on_poll);
}

/* Idle entries of other consumers. */

/* Redis 6.2 sends no ids of deleted entries. */
static void recover_report_deleted(struct stream_link *link, const struct stream_claimed *claimed) {
    const struct redis_reply *items = claimed->deleted_items;
    struct stream_id id;

    for (size_t i = 0; items != NULL && i < items->items_n; i++)
        if (stream_parse_claimed_id(items->items[i], &id))
            (void)stream_trimmed_report(link, id);
    if (items != NULL || claimed->deleted == 0)
        return;
    link->deleted_n += claimed->deleted;
    stream_notify_state(
        link,
        "%s: %zu pending entries were deleted or trimmed before they were done with, and "
        "are lost (%llu so far)",
        link->queue, claimed->deleted, (unsigned long long)link->deleted_n);
}

static void recover_on_claimed(struct redis_conn *conn, void *data,
                               const struct redis_reply *reply) {
    struct stream_link *link = data;
    struct stream_claimed claimed;
    struct stream_entry *entry;
    struct stream_id id;

    (void)conn;
    if (recover_has_failed(link, reply, "XAUTOCLAIM"))
        return;
    if (!stream_parse_claimed(reply, &claimed)) {
        link->claiming = false;
        recover_end(link);
        return;
    }
    link->claim_at = claimed.next;
    link->claiming = claimed.next.ms != 0 || claimed.next.seq != 0;
    for (size_t i = 0; i < claimed.items->items_n; i++) {
        if (!stream_parse_claimed_id(claimed.items->items[i], &id))
            continue;
        entry = stream_entry_find(link, id);
        if (entry != NULL)
            entry->lost = false; /* it was idle with the consumer that had taken it from us */
        else
            (void)recover_add_id(link, id);
    }
    recover_report_deleted(link, &claimed);
    recover_ask_entries(link);
}

static void recover_ask_idle(struct stream_link *link) {
    struct idem_buffer out = {0};

    link->claim_steps--;
    stream_link_put_command(link, &out, 6, "XAUTOCLAIM");
    redis_put_text(&out, link->consumer);
    redis_put_number(&out, link->min_idle_ms);
    stream_connection_put_id(&out, link->claim_at);
    redis_put_text(&out, "COUNT");
    redis_put_number(&out, (int64_t)link->gather_n);
    redis_put_text(&out, "JUSTID");
    link->gathering = STREAM_GATHER_IDLE;
    if (!stream_link_send(link, &out, recover_on_claimed, link))
        (void)recover_has_failed(link, NULL, NULL);
}

void stream_recover_tick(struct stream_link *link, int64_t now) {
    link->claim_steps = CLAIM_STEPS;
    if (now >= link->claim_due) {
        link->claim_due = now + link->claim_ms;
        link->claim_at = (struct stream_id){0, 0};
        link->claiming = true;
        if (!link->surveying)
            stream_recover_survey(link);
    }
    recover_poll_returned(link);
}

void stream_recover_next(struct stream_link *link) {
    size_t room = stream_link_room(link);

    if (link->gathering != STREAM_GATHER_NOTHING || !recover_is_pending(link))
        return; /* one step at a time */
    if (room == 0) {
        stream_read_interrupt(link);
        return;
    }
    link->gather_n = room < STREAM_GATHER_MAX ? room : STREAM_GATHER_MAX;
    link->ids_n = 0;
    if (link->surveying)
        recover_ask_own(link);
    else if (link->lists[STREAM_DUE].first != NULL)
        recover_ask_due(link);
    else if (link->returned)
        recover_ask_returned(link);
    else
        recover_ask_idle(link);
}

/*
 * New entries: one XREADGROUP at a time, on a connection of its own, which blocks for at most
 * STREAM_BLOCK_MS. It requests as many entries as there is room for, and reserves that room
 * until the reply. A step of the recovery above that needs the room earlier interrupts it.
 *
 * A reply that is too long breaks the connection. Its entries are then pending under our name,
 * and the recovery requests them in small steps. Reads request fewer entries until that has
 * worked for a while.
 */

#define READ_MAX ((size_t)256)
#define READ_BYTES ((size_t)16 << 20) /* a longer reply makes the next one shorter */

static void link_on_entry(struct stream_link *link, struct stream_id id,
                          const struct redis_reply *fields, size_t *bytes) {
    struct stream_entry *known = stream_entry_find(link, id);
    size_t size = 0;

    if (known != NULL) /* the group was created anew, and the known entry is of the old one */
        stream_entry_forget(known);
    switch (stream_fields_measure(fields, &size)) {
    case STREAM_FITS:
        *bytes += size;
        if (!stream_notify_deliver(link, NULL, id, 1, fields))
            stream_link_no_memory(link);
        return;
    case STREAM_TOO_LARGE:
        stream_notify_park(link, NULL, id, (int64_t)size, (int64_t)(fields->items_n / 2));
        return;
    case STREAM_ODD:
        stream_notify_park(link, NULL, id, -1, 0);
        return;
    }
}

static bool link_on_entries(struct stream_link *link, const struct redis_reply *entries) {
    const struct redis_reply *fields;
    struct stream_id id;
    size_t bytes = 0, n = entries == NULL ? 0 : entries->items_n;

    for (size_t i = 0; i < n; i++) {
        if (!stream_parse_entry(entries->items[i], &id, &fields))
            return false;
        link_on_entry(link, id, fields, &bytes);
    }
    if (bytes > READ_BYTES)
        link->read_batch = n / 2 > 1 ? n / 2 : 1;
    else if (n == link->read_batch && n < READ_MAX)
        link->read_batch *= 2;
    return true;
}

static void read_on_reply(struct redis_conn *conn, void *data, const struct redis_reply *reply) {
    struct stream_link *link = data;
    const struct redis_reply *entries;
    bool soon = !link->interrupted && idem_loop_now() - link->read_at < link->block_ms / 2;
    size_t before = link->out_n;

    (void)conn;
    link->read_n = 0;
    link->interrupted = false;
    if (reply == NULL)
        return;
    if (stream_is_gone(reply)) {
        stream_link_reset(link);
        return;
    }
    if (!stream_parse_entries(reply, &entries) || !link_on_entries(link, entries)) {
        stream_link_report_error(link, "XREADGROUP", reply);
        stream_recover_survey(link); /* some entries may have been read */
    } else if (link->out_n > before) {
        link->troubles = 0;
    } else if (soon) { /* it neither blocked nor returned entries: a pause prevents spinning */
        stream_link_pause(link);
    }
    stream_link_post(link);
}

void stream_read_next(struct stream_link *link) {
    struct idem_buffer out = {0};
    size_t room = stream_link_room(link);

    if (link->read_n > 0 || link->unblocking || room == 0 || recover_is_pending(link))
        return;
    if (room > link->read_batch)
        room = link->read_batch;
    redis_put_head(&out, 11);
    redis_put_text(&out, "XREADGROUP");
    redis_put_text(&out, "GROUP");
    redis_put_text(&out, link->group);
    redis_put_text(&out, link->consumer);
    redis_put_text(&out, "COUNT");
    redis_put_number(&out, (int64_t)room);
    redis_put_text(&out, "BLOCK");
    redis_put_number(&out, link->block_ms);
    redis_put_text(&out, "STREAMS");
    redis_put_text(&out, link->queue);
    redis_put_text(&out, ">");
    if (!out.failed && redis_conn_send(&link->reading, out.at, out.len, read_on_reply, link)) {
        link->read_n = room;
        link->read_at = idem_loop_now();
    }
    idem_buffer_release(&out);
}

/* 0: the read did not block yet, or no longer. */
static void read_on_unblocked(struct redis_conn *conn, void *data,
                              const struct redis_reply *reply) {
    struct stream_link *link = data;

    (void)conn;
    link->unblocking = false;
    stream_link_post(link);
    if (reply != NULL && reply->type == REDIS_REPLY_INTEGER && reply->integer == 0)
        link->interrupted = false;
}

void stream_read_interrupt(struct stream_link *link) {
    struct idem_buffer out = {0};

    if (link->read_n == 0 || link->interrupted || link->unblocking || link->reading_id == 0)
        return;
    redis_put_head(&out, 3);
    redis_put_text(&out, "CLIENT");
    redis_put_text(&out, "UNBLOCK");
    redis_put_number(&out, link->reading_id);
    link->interrupted = link->unblocking = stream_link_send(link, &out, read_on_unblocked, link);
}
