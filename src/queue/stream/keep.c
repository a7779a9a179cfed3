/*
 * The idle time of what we have, renewed so that nobody takes it over: at a third
 * of the lease for what is delayed or parked, when the consumer says so (`extend`)
 * for what is out. move.lua does it, if the entry is still ours; what is not, is
 * learnt here:
 *
 *     it is        one that is out             one that we keep
 *     another's    stays out: its ack counts   is forgotten: it is delivered there
 *     nowhere      is gone                     is forgotten: it is done, or will be new
 *     deleted      stays out, and it is told   is told, and forgotten if its content was not kept
 *
 * A renewal that gets no answer is made again after the reconnect.
 */
#include "queue/stream/stream.h"

#define RENEW_MAX 200 /* in a step of the server's */
#define TICK_MS 1000

static void said_take(struct stream_link *link, const struct stream_said *said) {
    struct stream_entry *entry = stream_entry_find(link, said->id);

    if (entry == NULL)
        return;
    if (entry->state != STREAM_OUT && entry->keep_link == NULL)
        return; /* it is being given back by now */
    if (said->word == STREAM_WORD_DELETED && stream_deleted(link, said->id))
        return;
    if (entry->state == STREAM_OUT && said->word != STREAM_WORD_NONE)
        entry->lost = true;
    else
        stream_entry_gone(entry);
}

/* Of one that the tick has sent (data: the link), or of another (NULL). */
static void take_moved(struct redis_conn *conn, void *data, const struct redis_reply *reply) {
    struct stream_link *link = conn->data;
    struct stream_said said;

    if (data != NULL)
        link->renewing = false;
    if (reply == NULL)
        return;
    if (reply->type != REDIS_REPLY_ARRAY) {
        if (stream_is_gone(reply))
            stream_link_reset(link);
        else
            stream_trouble(link, "EVAL (move)", reply);
        return;
    }
    for (size_t i = 0; i < reply->items_n; i++)
        if (stream_read_said(reply->items[i], &said))
            said_take(link, &said);
    if (data != NULL)
        stream_renew_next(link);
    stream_next_post(link);
}

static bool renew_send(struct stream_link *link, const struct stream_id *ids, size_t n,
                       void *data) {
    struct redis_buffer out = {0};

    stream_put_script(link, &out, 4 + n, stream_move_script);
    redis_put_text(&out, link->consumer);
    redis_put_text(&out, link->consumer);
    redis_put_text(&out, "0");
    redis_put_text(&out, "0");
    for (size_t i = 0; i < n; i++)
        stream_put_id(&out, ids[i]);
    return stream_send(link, &out, take_moved, data);
}

void stream_renew_next(struct stream_link *link) {
    int64_t now = idem_loop_now();
    struct stream_id ids[RENEW_MAX];
    struct stream_entry *entry;
    size_t n = 0;

    if (link->renewing || link->command.state != REDIS_CONN_READY)
        return;
    while (n < RENEW_MAX && (entry = link->keep) != NULL &&
           (entry->renewed == 0 || now - entry->renewed >= link->renew_ms)) {
        ids[n++] = entry->id;
        stream_entry_renewed(entry, now);
    }
    if (n > 0)
        link->renewing = renew_send(link, ids, n, link);
}

/* What is out, or some of it. */
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

    for (entry = link->keep; entry != NULL; entry = entry->keep_next)
        entry->renewed = 0;
    for (entry = link->lists[STREAM_OUT].first; entry != NULL; entry = entry->next)
        renew_out(link, entry, false, ids, &n);
    renew_out(link, NULL, true, ids, &n);
    stream_renew_next(link);
}

void stream_extend(struct queue_link *base, struct queue_message *const *messages, size_t n) {
    struct stream_link *link = stream_link_of(base);
    struct stream_id ids[RENEW_MAX];
    size_t sent = 0;

    for (size_t i = 0; i < n; i++)
        renew_out(link, stream_message_of(messages[i])->entry, false, ids, &sent);
    renew_out(link, NULL, true, ids, &sent);
    stream_next_post(link);
}

void stream_tick_fire(struct idem_timer *timer) {
    struct stream_link *link = idem_container_of(timer, struct stream_link, tick);

    stream_renew_next(link);
    if (stream_is_ready(link)) {
        if (link->fetching)
            stream_gather_tick(link, idem_loop_now());
        else
            stream_read_interrupt(link); /* the first time may have come too early */
    }
    stream_next_post(link);
    idem_timer_set(link->loop, timer, link->renew_ms < TICK_MS ? link->renew_ms : TICK_MS);
}
