/*
 * New entries: one XREADGROUP at a time, on a connection of its own, which blocks
 * for at most STREAM_BLOCK_MS. It asks for as many as there is room for, and its
 * room is kept until it is answered; whoever needs room before that interrupts it.
 *
 * An answer that is too long for us breaks the connection. The entries in it are
 * pending under our name then, and gather.c asks for them one by one; here, fewer
 * are asked for until that has gone well for a while.
 */
#include "queue/stream/stream.h"

#define READ_MAX ((size_t)256)
#define READ_BYTES ((size_t)16 << 20) /* an answer that is longer makes the next one shorter */

static void entry_take(struct stream_link *link, struct stream_id id,
                       const struct redis_reply *fields, size_t *bytes) {
    struct stream_entry *known = stream_entry_find(link, id);
    size_t size = 0;

    if (known != NULL) /* the group has begun anew, and what we know is of the one before */
        stream_entry_gone(known);
    switch (stream_fields_measure(fields, &size)) {
    case STREAM_FITS:
        *bytes += size;
        if (!stream_deliver(link, NULL, id, 1, fields))
            stream_no_memory(link);
        return;
    case STREAM_TOO_LARGE:
        stream_park(link, NULL, id, (int64_t)size, (int64_t)(fields->items_n / 2));
        return;
    case STREAM_ODD:
        stream_park(link, NULL, id, -1, 0);
        return;
    }
}

static bool entries_take(struct stream_link *link, const struct redis_reply *entries) {
    const struct redis_reply *fields;
    struct stream_id id;
    size_t bytes = 0, n = entries == NULL ? 0 : entries->items_n;

    for (size_t i = 0; i < n; i++) {
        if (!stream_read_entry(entries->items[i], &id, &fields))
            return false;
        entry_take(link, id, fields, &bytes);
    }
    if (bytes > READ_BYTES)
        link->read_batch = n / 2 > 1 ? n / 2 : 1;
    else if (n == link->read_batch && n < READ_MAX)
        link->read_batch *= 2;
    return true;
}

static void take_read(struct redis_conn *conn, void *data, const struct redis_reply *reply) {
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
    if (!stream_read_entries(reply, &entries) || !entries_take(link, entries)) {
        stream_trouble(link, "XREADGROUP", reply);
        stream_survey_begin(link); /* some of it may have been read */
    } else if (link->out_n > before) {
        link->troubles = 0;
    } else if (soon) { /* nothing comes of it, nor does it block: it is not asked at once again */
        stream_wait(link);
    }
    stream_next_post(link);
}

void stream_read_next(struct stream_link *link) {
    struct redis_buffer out = {0};
    size_t room = stream_room(link);

    if (link->read_n > 0 || link->unblocking || room == 0 || stream_gather_wants(link))
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
    if (!out.failed && redis_conn_send(&link->reading, out.at, out.len, take_read, link)) {
        link->read_n = room;
        link->read_at = idem_loop_now();
    }
    redis_buffer_release(&out);
}

/* 0: it did not block yet, or not any more. */
static void take_unblocked(struct redis_conn *conn, void *data, const struct redis_reply *reply) {
    struct stream_link *link = data;

    (void)conn;
    link->unblocking = false;
    stream_next_post(link);
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
    link->interrupted = link->unblocking = stream_send(link, &out, take_unblocked, link);
}
