/*
 * Entries that were delivered before, requested one step at a time on the command connection,
 * and before anything new is read:
 *
 *     own       pending under our name and unknown to us: we died, or a reply was lost.
 *               Oldest first
 *     due       delayed, and their time has arrived
 *     returned  given back by any consumer
 *     idle      pending under other names for longer than min-idle: XAUTOCLAIM, in small
 *               steps, so that a long list blocks neither the server nor us
 *
 * Each step yields ids, with room reserved for them; take.lua makes them ours and sends as
 * many as fit into a reply. Entries of a lost reply are found again as our own.
 */
#include <stdio.h>

#include "queue/stream/stream.h"

#define SURVEY_PAGE 500
#define CLAIM_STEPS 20 /* per second */

bool stream_recover_is_pending(const struct stream_link *link) {
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
static bool recover_is_over(struct stream_link *link, const struct redis_reply *reply,
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

static void recover_take_outcome(struct stream_link *link, const struct stream_said *outcome) {
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
        if (stream_trimmed_report(link, outcome->id) && stream_trimmed_deliver(entry))
            return;
        break;
    default:
        break;
    }
    if (entry != NULL)
        stream_entry_free(entry);
}

static void recover_take_taken(struct redis_conn *conn, void *data,
                               const struct redis_reply *reply) {
    struct stream_link *link = data;
    struct stream_said outcome;

    (void)conn;
    if (recover_is_over(link, reply, "EVAL (take)"))
        return;
    for (size_t i = 0; i < reply->items_n; i++)
        if (stream_read_said(reply->items[i], &outcome))
            recover_take_outcome(link, &outcome);
    while (link->lists[STREAM_ASKED].first != NULL) /* the reply had no room for them */
        stream_entry_set_state(link->lists[STREAM_ASKED].first, STREAM_DUE);
    recover_end(link);
}

/* Requests link->ids; without ids, the step is over. */
static void recover_ask_entries(struct stream_link *link) {
    struct redis_buffer out = {0};

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
    if (!stream_link_send(link, &out, recover_take_taken, link))
        (void)recover_is_over(link, NULL, NULL);
}

static bool recover_add_id(struct stream_link *link, struct stream_id id) {
    if (link->ids_n == link->gather_n)
        return false;
    link->ids[link->ids_n++] = id;
    return true;
}

/* Own entries. */

static void recover_take_own(struct redis_conn *conn, void *data, const struct redis_reply *reply) {
    struct stream_link *link = data;
    struct stream_id id;
    size_t i;

    (void)conn;
    if (recover_is_over(link, reply, "XPENDING"))
        return;
    for (i = 0; i < reply->items_n; i++) {
        if (!stream_read_pending(reply->items[i], &id))
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
    struct redis_buffer out = {0};

    snprintf(behind, sizeof(behind), "(%s", stream_id_print(link->survey_at, text));
    stream_link_put_command(link, &out, 4, "XPENDING");
    redis_put_text(&out, behind);
    redis_put_text(&out, "+");
    redis_put_number(&out, SURVEY_PAGE);
    redis_put_text(&out, link->consumer);
    link->gathering = STREAM_GATHER_OWN;
    if (!stream_link_send(link, &out, recover_take_own, link))
        (void)recover_is_over(link, NULL, NULL);
}

/* Due entries. */
static void recover_ask_due(struct stream_link *link) {
    struct stream_entry *entry;

    while ((entry = link->lists[STREAM_DUE].first) != NULL && recover_add_id(link, entry->id))
        stream_entry_set_state(entry, STREAM_ASKED);
    recover_ask_entries(link);
}

/* Returned entries. */

static void recover_take_returned(struct redis_conn *conn, void *data,
                                  const struct redis_reply *reply) {
    struct stream_link *link = data;
    struct stream_id id;

    (void)conn;
    link->returned = false;
    if (recover_is_over(link, reply, "XPENDING"))
        return;
    for (size_t i = 0; i < reply->items_n; i++)
        if (stream_read_pending(reply->items[i], &id) && stream_entry_find(link, id) == NULL)
            (void)recover_add_id(link, id);
    link->returned = link->ids_n == link->gather_n; /* there may be more */
    recover_ask_entries(link);
}

/* Checks only that there are some. */
static void recover_take_poll(struct redis_conn *conn, void *data,
                              const struct redis_reply *reply) {
    struct stream_link *link = data;

    (void)conn;
    link->polling = false;
    if (reply == NULL || reply->type != REDIS_REPLY_ARRAY || reply->items_n == 0)
        return;
    link->returned = true;
    stream_link_post(link);
}

static bool recover_send_returned(struct stream_link *link, size_t n, redis_reply_fn *take) {
    struct redis_buffer out = {0};

    stream_link_put_command(link, &out, 4, "XPENDING");
    redis_put_text(&out, "-");
    redis_put_text(&out, "+");
    redis_put_number(&out, (int64_t)n);
    redis_put_text(&out, STREAM_NOBODY);
    return stream_link_send(link, &out, take, link);
}

static void recover_ask_returned(struct stream_link *link) {
    link->gathering = STREAM_GATHER_RETURNED;
    if (!recover_send_returned(link, link->gather_n, recover_take_returned))
        (void)recover_is_over(link, NULL, NULL);
}

static void recover_poll_returned(struct stream_link *link) {
    if (!link->polling && !link->returned)
        link->polling = recover_send_returned(link, 1, recover_take_poll);
}

/* Idle entries of other consumers. */

/* Redis 6.2 sends no ids of deleted entries. */
static void recover_report_deleted(struct stream_link *link, const struct stream_claimed *claimed) {
    const struct redis_reply *items = claimed->deleted_items;
    struct stream_id id;

    for (size_t i = 0; items != NULL && i < items->items_n; i++)
        if (stream_read_claimed_id(items->items[i], &id))
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

static void recover_take_claimed(struct redis_conn *conn, void *data,
                                 const struct redis_reply *reply) {
    struct stream_link *link = data;
    struct stream_claimed claimed;
    struct stream_entry *entry;
    struct stream_id id;

    (void)conn;
    if (recover_is_over(link, reply, "XAUTOCLAIM"))
        return;
    if (!stream_read_claimed(reply, &claimed)) {
        link->claiming = false;
        recover_end(link);
        return;
    }
    link->claim_at = claimed.next;
    link->claiming = claimed.next.ms != 0 || claimed.next.seq != 0;
    for (size_t i = 0; i < claimed.items->items_n; i++) {
        if (!stream_read_claimed_id(claimed.items->items[i], &id))
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
    struct redis_buffer out = {0};

    link->claim_steps--;
    stream_link_put_command(link, &out, 6, "XAUTOCLAIM");
    redis_put_text(&out, link->consumer);
    redis_put_number(&out, link->min_idle_ms);
    stream_connection_put_id(&out, link->claim_at);
    redis_put_text(&out, "COUNT");
    redis_put_number(&out, (int64_t)link->gather_n);
    redis_put_text(&out, "JUSTID");
    link->gathering = STREAM_GATHER_IDLE;
    if (!stream_link_send(link, &out, recover_take_claimed, link))
        (void)recover_is_over(link, NULL, NULL);
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

    if (link->gathering != STREAM_GATHER_NOTHING || !stream_recover_is_pending(link))
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
