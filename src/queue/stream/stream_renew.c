/*
 * The idle time of our entries, renewed so that no other consumer takes them over: at a third
 * of the lease for delayed and parked ones, at the consumer's `extend` for messages that are
 * out. move.lua renews an entry if it is still ours. If it is not, its reply shows that:
 *
 *     it is        a message that is out       an entry that waits
 *     another's    stays out: its ack counts   is forgotten: it is delivered there
 *     nowhere      is lost (`gone`)            is forgotten: it is done, or will be new
 *     deleted      stays out, and is reported  is reported, and forgotten without its content
 *
 * A renewal without a reply is repeated after the reconnect.
 */
#include "queue/stream/stream.h"

#define RENEW_MAX 200 /* in one script call */
#define TICK_MS 1000

static void renew_take_outcome(struct stream_link *link, const struct stream_said *outcome) {
    struct stream_entry *entry = stream_entry_find(link, outcome->id);

    if (entry == NULL)
        return;
    if (entry->state != STREAM_OUT && entry->keep_link == NULL)
        return; /* it is being given back now */
    if (outcome->word == STREAM_WORD_DELETED && stream_trimmed_report(link, outcome->id))
        return;
    if (entry->state == STREAM_OUT && outcome->word != STREAM_WORD_NONE)
        entry->lost = true;
    else
        stream_entry_forget(entry);
}

/* data: the link for renewals by the tick, NULL for others. */
static void renew_take_moved(struct redis_conn *conn, void *data, const struct redis_reply *reply) {
    struct stream_link *link = conn->data;
    struct stream_said outcome;

    if (data != NULL)
        link->renewing = false;
    if (reply == NULL)
        return;
    if (reply->type != REDIS_REPLY_ARRAY) {
        if (stream_is_gone(reply))
            stream_link_reset(link);
        else
            stream_link_report_error(link, "EVAL (move)", reply);
        return;
    }
    for (size_t i = 0; i < reply->items_n; i++)
        if (stream_read_said(reply->items[i], &outcome))
            renew_take_outcome(link, &outcome);
    if (data != NULL)
        stream_renew_next(link);
    stream_link_post(link);
}

static bool renew_send(struct stream_link *link, const struct stream_id *ids, size_t n,
                       void *data) {
    struct redis_buffer out = {0};

    stream_link_put_script(link, &out, 4 + n, stream_move_script);
    redis_put_text(&out, link->consumer);
    redis_put_text(&out, link->consumer);
    redis_put_text(&out, "0");
    redis_put_text(&out, "0");
    for (size_t i = 0; i < n; i++)
        stream_connection_put_id(&out, ids[i]);
    return stream_link_send(link, &out, renew_take_moved, data);
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

/* Adds an entry that is out, and sends the renewals when they are complete. */
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

void stream_renew_extend(struct queue_link *base, struct queue_message *const *messages, size_t n) {
    struct stream_link *link = stream_link_of(base);
    struct stream_id ids[RENEW_MAX];
    size_t sent = 0;

    for (size_t i = 0; i < n; i++)
        renew_out(link, stream_message_of(messages[i])->entry, false, ids, &sent);
    renew_out(link, NULL, true, ids, &sent);
    stream_link_post(link);
}

void stream_renew_tick(struct idem_timer *timer) {
    struct stream_link *link = idem_container_of(timer, struct stream_link, tick);

    stream_renew_next(link);
    if (stream_link_is_ready(link)) {
        if (link->fetching)
            stream_recover_tick(link, idem_loop_now());
        else
            stream_read_interrupt(link); /* the first interrupt may have been too early */
    }
    stream_link_post(link);
    idem_timer_set(link->loop, timer, link->renew_ms < TICK_MS ? link->renew_ms : TICK_MS);
}
