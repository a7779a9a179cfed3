/*
 * A listener like RocketMQ's: it gets a message, and returns CONSUME_SUCCESS or
 * RECONSUME_LATER. It calls idem_consume(), so that each message is handled once
 * however often it is delivered. The broker here is a list that delivers every
 * message twice, and once more after RECONSUME_LATER.
 *
 *     ./listener lmdb:./messages
 */
#include <err.h>
#include <idem.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum consume_status { CONSUME_SUCCESS, RECONSUME_LATER };

struct message_ext {
    const char *msg_id, *topic, *keys, *body;
    int reconsume_times;
};

struct listener {
    struct idem *h;
    struct idem_guard *guard;
    int handled;
};

/* The business logic: the first attempt of order 2 fails. */
static enum idem_result place_order(struct idem_run *run, void *data) {
    struct listener *listener = data;
    size_t len;
    const char *key = idem_run_key(run, &len);

    if (len == 7 && memcmp(key, "order-2", 7) == 0 && idem_run_attempt(run) == 1) {
        idem_run_set_reason(run, "the warehouse is closed");
        return IDEM_RESULT_RETRY;
    }
    listener->handled++;
    printf("placed %.*s, attempt %u\n", (int)len, key, idem_run_attempt(run));
    return IDEM_RESULT_DONE;
}

/* ACK is CONSUME_SUCCESS, RETRY_LATER is RECONSUME_LATER. DEAD is CONSUME_SUCCESS, too, once the
 * program has put the message where an operator will find it: RocketMQ would only deliver it
 * again. */
static enum consume_status consume_message(struct listener *listener,
                                           const struct message_ext *ext) {
    struct idem_message message = {.id = ext->msg_id,
                                   .queue = ext->topic,
                                   .key = ext->keys,
                                   .key_len = strlen(ext->keys),
                                   .body = ext->body,
                                   .body_len = strlen(ext->body)};
    struct idem_consumed consumed;
    struct idem_error error;

    if (idem_consume(listener->h, listener->guard, &message, place_order, listener, &consumed,
                     &error) < 0) {
        warnx("%s", error.text);
        return RECONSUME_LATER;
    }
    if (consumed.disposal == IDEM_CONSUME_DEAD)
        printf("dead letter %s: %s\n", ext->msg_id, consumed.reason);
    return consumed.disposal == IDEM_CONSUME_RETRY_LATER ? RECONSUME_LATER : CONSUME_SUCCESS;
}

static void deliver(struct listener *listener, struct message_ext *ext) {
    while (consume_message(listener, ext) == RECONSUME_LATER && ext->reconsume_times < 16) {
        ext->reconsume_times++;
        usleep(100000); /* sleep: like a broker that delivers later */
    }
}

int main(int argc, char **argv) {
    static const struct idem_policy policy = {.prefix = "order:",
                                              .scope = IDEM_SCOPE_NONE,
                                              .preset = IDEM_PRESET_QUEUE,
                                              .backoff_min_ms = 100,
                                              .backoff_max_ms = 100};
    struct message_ext messages[] = {
        {.msg_id = "A1", .topic = "orders", .keys = "order-1", .body = "{\"amount\": 5}"},
        {.msg_id = "A2", .topic = "orders", .keys = "order-2", .body = "{\"amount\": 7}"},
        {.msg_id = "B1", .topic = "orders", .keys = "order-1", .body = "{\"amount\": 5}"},
        {.msg_id = "B3", .topic = "orders", .keys = "order-1", .body = "{\"amount\": 9}"},
    };
    struct listener listener = {0};
    struct idem_error error;

    if (idem_open(argc > 1 ? argv[1] : "lmdb:./messages", NULL, &listener.h, &error) < 0 ||
        idem_guard_new(listener.h, &policy, &listener.guard, &error) < 0)
        errx(1, "%s", error.text);
    for (int again = 0; again < 2; again++)
        for (size_t i = 0; i < sizeof(messages) / sizeof(messages[0]); i++)
            deliver(&listener, &messages[i]);
    printf("%d orders\n", listener.handled);
    idem_guard_free(listener.guard);
    idem_close(listener.h);
    return 0;
}
