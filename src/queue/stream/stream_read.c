/*
 * New entries: one XREADGROUP at a time, on a connection of its own, which blocks for at most
 * STREAM_BLOCK_MS. It requests as many entries as there is room for, and reserves that room
 * until the reply. A step of stream_recover.c that needs the room before interrupts it.
 *
 * A reply that is too long breaks the connection. Its entries are then pending under our name,
 * and stream_recover.c requests them in small steps. Reads request fewer entries until that
 * has worked for a while.
 */
#include "queue/stream/stream.h"

#define READ_MAX ((size_t)256)
#define READ_BYTES ((size_t)16 << 20) /* a longer reply makes the next one shorter */

static void link_take_entry(struct stream_link *link, struct stream_id id,
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

static bool link_take_entries(struct stream_link *link, const struct redis_reply *entries) {
    const struct redis_reply *fields;
    struct stream_id id;
    size_t bytes = 0, n = entries == NULL ? 0 : entries->items_n;

    for (size_t i = 0; i < n; i++) {
        if (!stream_read_entry(entries->items[i], &id, &fields))
            return false;
        link_take_entry(link, id, fields, &bytes);
    }
    if (bytes > READ_BYTES)
        link->read_batch = n / 2 > 1 ? n / 2 : 1;
    else if (n == link->read_batch && n < READ_MAX)
        link->read_batch *= 2;
    return true;
}

static void read_take_reply(struct redis_conn *conn, void *data, const struct redis_reply *reply) {
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
    if (!stream_read_entries(reply, &entries) || !link_take_entries(link, entries)) {
        stream_link_report_error(link, "XREADGROUP", reply);
        stream_recover_survey(link); /* some entries may have been read */
    } else if (link->out_n > before) {
        link->troubles = 0;
    } else if (soon) { /* the read neither blocked nor returned entries: a pause prevents spinning
                        */
        stream_link_pause(link);
    }
    stream_link_post(link);
}

void stream_read_next(struct stream_link *link) {
    struct redis_buffer out = {0};
    size_t room = stream_link_room(link);

    if (link->read_n > 0 || link->unblocking || room == 0 || stream_recover_is_pending(link))
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
    if (!out.failed && redis_conn_send(&link->reading, out.at, out.len, read_take_reply, link)) {
        link->read_n = room;
        link->read_at = idem_loop_now();
    }
    redis_buffer_release(&out);
}

/* 0: the read did not block yet, or no longer. */
static void read_take_unblocked(struct redis_conn *conn, void *data,
                                const struct redis_reply *reply) {
    struct stream_link *link = data;

    (void)conn;
    link->unblocking = false;
    stream_link_post(link);
    if (reply != NULL && reply->type == REDIS_REPLY_INTEGER && reply->integer == 0)
        link->interrupted = false;
}

void stream_read_interrupt(struct stream_link *link) {
    struct redis_buffer out = {0};

    if (link->read_n == 0 || link->interrupted || link->unblocking || link->reading_id == 0)
        return;
    redis_put_head(&out, 3);
    redis_put_text(&out, "CLIENT");
    redis_put_text(&out, "UNBLOCK");
    redis_put_number(&out, link->reading_id);
    link->interrupted = link->unblocking = stream_link_send(link, &out, read_take_unblocked, link);
}
