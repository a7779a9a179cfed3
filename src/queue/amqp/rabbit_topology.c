/*
 * The queues that we declare: one for each delay, from which the server returns a message to
 * its queue when its time is over, and one for dead letters.
 *
 * All messages in a queue of delays have the same delay: messages leave a queue at its head
 * only, so a long delay would block the shorter ones behind it. The delays are powers of two
 * of 125 ms, in any configuration, so that a change of it does not create new queues each
 * time, and the longest delay itself. None of the queues expires: the server would delete the
 * messages that wait in it for a full or absent queue.
 *
 * They are quorum queues, which return messages at-least-once, confirmed inside the server. A
 * server without them gets classic queues, which lose a message if the server dies at the
 * moment of its return.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "queue/amqp/rabbit.h"

#define DELAY_UNIT_MS 125
#define DELAY_MAX_MS ((int64_t)7 * 86400 * 1000)
/* Limit for deliveries of a dead letter: newer servers would drop it after twenty reads. */
#define DELIVERIES 1000000000

/* Starts at the shortest delay: a handler may request less than the back-off. Queues are
   declared when they are needed. */
static void topology_fill_delays(struct rabbit_topology *t, int64_t max) {
    int64_t step = 2, at;

    if (max < DELAY_UNIT_MS)
        max = DELAY_UNIT_MS;
    if (max > DELAY_MAX_MS)
        max = DELAY_MAX_MS;
    do {
        t->delays_n = 0;
        for (at = DELAY_UNIT_MS; at < max && t->delays_n < RABBIT_DELAYS_MAX; at *= step)
            t->delays[t->delays_n++] = at;
        step *= 2;
    } while (t->delays_n == RABBIT_DELAYS_MAX);
    t->delays[t->delays_n++] = max;
}

int rabbit_topology_make(struct rabbit_topology *t, const struct queue_config *config,
                         struct idem_error *err) {
    *t = (struct rabbit_topology){.allowed = config->topology, .queue = strdup(config->queue)};
    if (config->dead_letter != NULL)
        t->dead = strdup(config->dead_letter);
    else if (asprintf(&t->dead, "%s.dead", config->queue) < 0)
        t->dead = NULL;
    if (t->queue == NULL || t->dead == NULL)
        return idem_error_set(err, IDEM_E_NOMEM, "no memory for the names of queues");
    topology_fill_delays(t, config->delay_max_ms);
    return 0;
}

void rabbit_topology_release(struct rabbit_topology *t) {
    free(t->queue);
    free(t->dead);
}

int rabbit_topology_delay(const struct rabbit_topology *t, int64_t ms) {
    int i = 0;

    while (i + 1 < (int)t->delays_n && t->delays[i] < ms)
        i++;
    return i;
}

const char *rabbit_topology_name(const struct rabbit_topology *t, int delay,
                                 char buf[RABBIT_QUEUE_TEXT]) {
    if (delay < 0)
        snprintf(buf, RABBIT_QUEUE_TEXT, "%s", t->dead);
    else
        snprintf(buf, RABBIT_QUEUE_TEXT, "%s.idem.retry.%lld", t->queue,
                 (long long)t->delays[delay]);
    return buf;
}

/* Arguments. */

#define ARGS_MAX 8

struct args {
    amqp_table_t table;
    amqp_table_entry_t entries[ARGS_MAX];
};

static void args_put_text(struct args *args, const char *name, const char *text) {
    amqp_table_entry_t *entry = &args->entries[args->table.num_entries++];

    entry->key = amqp_cstring_bytes(name);
    entry->value.kind = AMQP_FIELD_KIND_UTF8;
    entry->value.value.bytes = amqp_cstring_bytes(text);
}

static void args_put_number(struct args *args, const char *name, int64_t number) {
    amqp_table_entry_t *entry = &args->entries[args->table.num_entries++];

    entry->key = amqp_cstring_bytes(name);
    entry->value.kind = AMQP_FIELD_KIND_I64;
    entry->value.value.i64 = number;
}

static void topology_make_args(const struct rabbit_topology *t, int delay, bool quorum,
                               struct args *args) {
    *args = (struct args){.table.num_entries = 0};
    args->table.entries = args->entries;
    args_put_text(args, "x-queue-type", quorum ? "quorum" : "classic");
    if (delay >= 0) {
        args_put_number(args, "x-message-ttl", t->delays[delay]);
        args_put_text(args, "x-dead-letter-exchange", "");
        args_put_text(args, "x-dead-letter-routing-key", t->queue);
        args_put_text(args, "x-overflow", "reject-publish");
        if (quorum)
            args_put_text(args, "x-dead-letter-strategy", "at-least-once");
    } else if (quorum) {
        args_put_number(args, "x-delivery-limit", DELIVERIES);
    }
}

/* 406 means that the queue exists with other arguments, or that the server has no quorum
   queues. In both cases a classic queue of ours may exist. */
int rabbit_topology_declare(const struct rabbit_topology *t, struct rabbit_session *s, int delay,
                            bool *ret_weak) {
    char name[RABBIT_QUEUE_TEXT], why[RABBIT_WHY];
    struct args args;
    int code;

    *ret_weak = false;
    rabbit_topology_name(t, delay, name);
    topology_make_args(t, delay, true, &args);
    code = rabbit_session_declare(s, name, false, &args.table);
    if (code != AMQP_PRECONDITION_FAILED && code != AMQP_NOT_IMPLEMENTED)
        return code;
    memcpy(why, s->why, sizeof(why));
    topology_make_args(t, delay, false, &args);
    code = rabbit_session_declare(s, name, false, &args.table);
    if (code > 0)
        memcpy(s->why, why, sizeof(why)); /* the first refusal is about the intended queue */
    *ret_weak = code == 0 && delay >= 0;
    return code;
}
