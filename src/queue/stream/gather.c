/*
 * Entries that were delivered before, one step at a time on the command connection,
 * and before anything new is read:
 *
 *     own       pending under our name and not known to us: we died, or an answer was lost. From
 *               the oldest
 *     due       delayed, and their time has come
 *     returned  given back by whomever
 *     idle      pending under other names for longer than min-idle: XAUTOCLAIM, in small steps, so
 *               that a long list keeps neither the server nor us from other things
 *
 * Each gives ids, for which there is room already; take.lua makes them ours and sends what fits
 * into an answer. What is lost on the way is found again as our own.
 */
#include <stdio.h>

#include "queue/stream/stream.h"

#define SURVEY_PAGE 500
#define CLAIM_STEPS 20 /* in a second */

bool stream_gather_wants(const struct stream_link *link) {
    return link->gathering != STREAM_GATHER_NOTHING || link->surveying ||
           link->lists[STREAM_DUE].first != NULL || link->returned ||
           (link->claiming && link->claim_steps > 0);
}

void stream_survey_begin(struct stream_link *link) {
    link->surveying = true;
    link->survey_at = (struct stream_id){0, 0};
}

static void gather_end(struct stream_link *link) {
    link->gathering = STREAM_GATHER_NOTHING;
    link->gather_n = 0;
    link->ids_n = 0;
    stream_next_post(link);
}

/* Without an answer, or with one that says that the group is gone, it is over. */
static bool is_over(struct stream_link *link, const struct redis_reply *reply, const char *what) {
    if (reply != NULL && reply->type == REDIS_REPLY_ARRAY)
        return false;
    link->gathering = STREAM_GATHER_NOTHING;
    link->gather_n = 0;
    link->ids_n = 0;
    while (link->lists[STREAM_ASKED].first != NULL)
        stream_entry_set(link->lists[STREAM_ASKED].first, STREAM_DUE);
    stream_survey_begin(link); /* some may be ours now */
    if (reply == NULL && link->command.state == REDIS_CONN_READY)
        stream_wait(link); /* it is memory that was not there */
    else if (reply != NULL && stream_is_gone(reply))
        stream_link_reset(link);
    else if (reply != NULL)
        stream_trouble(link, what, reply);
    return true;
}

/* What take.lua sends. */

static void said_take(struct stream_link *link, const struct stream_said *said) {
    struct stream_entry *entry = stream_entry_find(link, said->id);
    size_t bytes = 0;

    if (entry != NULL && entry->state != STREAM_ASKED)
        return; /* it became known meanwhile */
    switch (said->word) {
    case STREAM_WORD_ENTRY:
        if (stream_fields_measure(said->fields, &bytes) != STREAM_FITS)
            stream_park(link, entry, said->id, -1, 0);
        else if (stream_deliver(link, entry, said->id, said->deliveries, said->fields))
            link->troubles = 0;
        else
            stream_no_memory(link);
        return;
    case STREAM_WORD_LARGE:
        stream_park(link, entry, said->id, said->bytes, said->fields_n);
        return;
    case STREAM_WORD_LATER:
        if (entry == NULL)
            stream_survey_begin(link);
        return;
    case STREAM_WORD_DELETED:
        if (stream_deleted(link, said->id) && stream_deliver_kept(entry))
            return;
        break;
    default:
        break;
    }
    if (entry != NULL)
        stream_entry_free(entry);
}

static void take_taken(struct redis_conn *conn, void *data, const struct redis_reply *reply) {
    struct stream_link *link = data;
    struct stream_said said;

    (void)conn;
    if (is_over(link, reply, "EVAL (take)"))
        return;
    for (size_t i = 0; i < reply->items_n; i++)
        if (stream_read_said(reply->items[i], &said))
            said_take(link, &said);
    while (link->lists[STREAM_ASKED].first != NULL) /* they were left for later */
        stream_entry_set(link->lists[STREAM_ASKED].first, STREAM_DUE);
    gather_end(link);
}

/* Asks for link->ids; without any it is over. */
static void take_ask(struct stream_link *link) {
    struct redis_buffer out = {0};

    if (link->ids_n == 0) {
        gather_end(link);
        return;
    }
    stream_put_script(link, &out, 5 + link->ids_n, stream_take_script);
    redis_put_text(&out, link->consumer);
    redis_put_text(&out, STREAM_NOBODY);
    redis_put_number(&out, link->min_idle_ms);
    redis_put_number(&out, (int64_t)STREAM_ENTRY_MAX);
    redis_put_number(&out, (int64_t)STREAM_FIELDS_MAX);
    for (size_t i = 0; i < link->ids_n; i++)
        stream_put_id(&out, link->ids[i]);
    link->gathering = STREAM_GATHER_TAKE;
    link->gather_n = link->ids_n;
    if (!stream_send(link, &out, take_taken, link))
        (void)is_over(link, NULL, NULL);
}

static bool id_put(struct stream_link *link, struct stream_id id) {
    if (link->ids_n == link->gather_n)
        return false;
    link->ids[link->ids_n++] = id;
    return true;
}

/* Our own. */

static void take_own(struct redis_conn *conn, void *data, const struct redis_reply *reply) {
    struct stream_link *link = data;
    struct stream_id id;
    size_t i;

    (void)conn;
    if (is_over(link, reply, "XPENDING"))
        return;
    for (i = 0; i < reply->items_n; i++) {
        if (!stream_read_pending(reply->items[i], &id))
            continue;
        if (stream_entry_find(link, id) == NULL && !id_put(link, id))
            break;
        link->survey_at = id;
    }
    if (i == reply->items_n && i < SURVEY_PAGE)
        link->surveying = false;
    take_ask(link);
}

static void own_ask(struct stream_link *link) {
    char text[STREAM_ID_TEXT], behind[STREAM_ID_TEXT + 1];
    struct redis_buffer out = {0};

    snprintf(behind, sizeof(behind), "(%s", stream_id_print(link->survey_at, text));
    stream_put_begin(link, &out, 4, "XPENDING");
    redis_put_text(&out, behind);
    redis_put_text(&out, "+");
    redis_put_number(&out, SURVEY_PAGE);
    redis_put_text(&out, link->consumer);
    link->gathering = STREAM_GATHER_OWN;
    if (!stream_send(link, &out, take_own, link))
        (void)is_over(link, NULL, NULL);
}

/* Those whose time has come. */
static void due_ask(struct stream_link *link) {
    struct stream_entry *entry;

    while ((entry = link->lists[STREAM_DUE].first) != NULL && id_put(link, entry->id))
        stream_entry_set(entry, STREAM_ASKED);
    take_ask(link);
}

/* Nobody's. */

static void take_returned(struct redis_conn *conn, void *data, const struct redis_reply *reply) {
    struct stream_link *link = data;
    struct stream_id id;

    (void)conn;
    link->returned = false;
    if (is_over(link, reply, "XPENDING"))
        return;
    for (size_t i = 0; i < reply->items_n; i++)
        if (stream_read_pending(reply->items[i], &id) && stream_entry_find(link, id) == NULL)
            (void)id_put(link, id);
    link->returned = link->ids_n == link->gather_n; /* there may be more */
    take_ask(link);
}

/* Whether there are any. */
static void take_poll(struct redis_conn *conn, void *data, const struct redis_reply *reply) {
    struct stream_link *link = data;

    (void)conn;
    link->polling = false;
    if (reply == NULL || reply->type != REDIS_REPLY_ARRAY || reply->items_n == 0)
        return;
    link->returned = true;
    stream_next_post(link);
}

static bool returned_send(struct stream_link *link, size_t n, redis_reply_fn *take) {
    struct redis_buffer out = {0};

    stream_put_begin(link, &out, 4, "XPENDING");
    redis_put_text(&out, "-");
    redis_put_text(&out, "+");
    redis_put_number(&out, (int64_t)n);
    redis_put_text(&out, STREAM_NOBODY);
    return stream_send(link, &out, take, link);
}

static void returned_ask(struct stream_link *link) {
    link->gathering = STREAM_GATHER_RETURNED;
    if (!returned_send(link, link->gather_n, take_returned))
        (void)is_over(link, NULL, NULL);
}

static void returned_poll(struct stream_link *link) {
    if (!link->polling && !link->returned)
        link->polling = returned_send(link, 1, take_poll);
}

/* Other consumers'. */

/* Redis 6.2 does not say which they were. */
static void claimed_tell(struct stream_link *link, const struct stream_claimed *claimed) {
    const struct redis_reply *items = claimed->deleted_items;
    struct stream_id id;

    for (size_t i = 0; items != NULL && i < items->items_n; i++)
        if (stream_read_claimed_id(items->items[i], &id))
            (void)stream_deleted(link, id);
    if (items != NULL || claimed->deleted == 0)
        return;
    link->deleted_n += claimed->deleted;
    stream_say(link,
               "%s: %zu pending entries were deleted or trimmed before they were done with, and "
               "are lost (%llu so far)",
               link->queue, claimed->deleted, (unsigned long long)link->deleted_n);
}

static void take_claimed(struct redis_conn *conn, void *data, const struct redis_reply *reply) {
    struct stream_link *link = data;
    struct stream_claimed claimed;
    struct stream_entry *entry;
    struct stream_id id;

    (void)conn;
    if (is_over(link, reply, "XAUTOCLAIM"))
        return;
    if (!stream_read_claimed(reply, &claimed)) {
        link->claiming = false;
        gather_end(link);
        return;
    }
    link->claim_at = claimed.next;
    link->claiming = claimed.next.ms != 0 || claimed.next.seq != 0;
    for (size_t i = 0; i < claimed.items->items_n; i++) {
        if (!stream_read_claimed_id(claimed.items->items[i], &id))
            continue;
        entry = stream_entry_find(link, id);
        if (entry != NULL)
            entry->lost = false; /* it was idle with whoever had taken it from us */
        else
            (void)id_put(link, id);
    }
    claimed_tell(link, &claimed);
    take_ask(link);
}

static void idle_ask(struct stream_link *link) {
    struct redis_buffer out = {0};

    link->claim_steps--;
    stream_put_begin(link, &out, 6, "XAUTOCLAIM");
    redis_put_text(&out, link->consumer);
    redis_put_number(&out, link->min_idle_ms);
    stream_put_id(&out, link->claim_at);
    redis_put_text(&out, "COUNT");
    redis_put_number(&out, (int64_t)link->gather_n);
    redis_put_text(&out, "JUSTID");
    link->gathering = STREAM_GATHER_IDLE;
    if (!stream_send(link, &out, take_claimed, link))
        (void)is_over(link, NULL, NULL);
}

/* A second has passed. */
void stream_gather_tick(struct stream_link *link, int64_t now) {
    link->claim_steps = CLAIM_STEPS;
    if (now >= link->claim_due) {
        link->claim_due = now + link->claim_ms;
        link->claim_at = (struct stream_id){0, 0};
        link->claiming = true;
        if (!link->surveying)
            stream_survey_begin(link);
    }
    returned_poll(link);
}

void stream_gather_next(struct stream_link *link) {
    size_t room = stream_room(link);

    if (link->gathering != STREAM_GATHER_NOTHING || !stream_gather_wants(link))
        return; /* one step after the other */
    if (room == 0) {
        stream_read_interrupt(link);
        return;
    }
    link->gather_n = room < STREAM_GATHER_MAX ? room : STREAM_GATHER_MAX;
    link->ids_n = 0;
    if (link->surveying)
        own_ask(link);
    else if (link->lists[STREAM_DUE].first != NULL)
        due_ask(link);
    else if (link->returned)
        returned_ask(link);
    else
        idle_ask(link);
}
