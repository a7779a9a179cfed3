/*
 * idem_consume(): one message of a client that is not ours, by the same tables that
 * the consumer goes by. Fails on a caller's mistake or without memory; whatever is
 * wrong with the message or the store is told as what to do with the message.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/handle.h"
#include "queue/decide.h"
#include "queue/key.h"

/* What could not be asked or stored is asked again then. */
#define AGAIN_MS 1000

struct door {
    const struct idem_guard *guard;
    struct queue_message message;
    struct queue_field *fields; /* headers, then properties */
    struct queue_keying keying;
    idem_fn *fn;
    void *data;
    int64_t took_ms;
};

static struct idem_bytes bytes_of(const char *text) {
    return (struct idem_bytes){(const unsigned char *)text, text == NULL ? 0 : strlen(text)};
}

static int fields_copy(const char *what, const struct idem_field *from, size_t n,
                       struct queue_field *to, struct idem_error *err) {
    for (size_t i = 0; i < n; i++) {
        if (from[i].name == NULL || from[i].value == NULL)
            return idem_error_set(err, IDEM_E_INVALID, "idem_message.%s: a name or a value is NULL",
                                  what);
        to[i] = (struct queue_field){bytes_of(from[i].name), bytes_of(from[i].value), false};
    }
    return 0;
}

static int message_check(const struct idem_message *message, struct idem_error *err) {
    const char *missing = message->body == NULL && message->body_len != 0             ? "body"
                          : message->headers == NULL && message->headers_n != 0       ? "headers"
                          : message->properties == NULL && message->properties_n != 0 ? "properties"
                          : message->key == NULL && message->key_len != 0             ? "key"
                                                                                      : NULL;

    if (missing == NULL)
        return 0;
    return idem_error_set(err, IDEM_E_INVALID, "idem_message.%s is NULL, and its length is not 0",
                          missing);
}

static int door_init(struct door *door, const struct idem_message *message,
                     struct idem_error *err) {
    size_t n = message->headers_n + message->properties_n;
    int rc = message_check(message, err);

    if (rc != 0)
        return rc;
    door->fields = calloc(n + 1, sizeof(*door->fields));
    if (door->fields == NULL)
        return idem_error_set(err, IDEM_E_NOMEM, "no memory for a message's headers");
    rc = fields_copy("headers", message->headers, message->headers_n, door->fields, err);
    if (rc == 0)
        rc = fields_copy("properties", message->properties, message->properties_n,
                         door->fields + message->headers_n, err);
    for (size_t i = 0; rc == 0 && message->id != NULL && i < message->properties_n; i++)
        if (strcmp(message->properties[i].name, "message_id") == 0)
            rc = idem_error_set(err, IDEM_E_INVALID,
                                "idem_message: the id is said twice, as .id and as a property");
    if (message->id != NULL)
        door->fields[n++] =
            (struct queue_field){bytes_of("message_id"), bytes_of(message->id), false};
    door->message = (struct queue_message){
        .body = {message->body, message->body_len},
        .headers = door->fields,
        .headers_n = message->headers_n,
        .properties = door->fields + message->headers_n,
        .properties_n = n - message->headers_n,
        .queue = message->queue,
    };
    return rc;
}

/* Whose key it is: what the policy makes of the message, or what the caller says, or the id. */
static int keying_init(struct door *door, const struct idem_message *message,
                       struct idem_error *err) {
    enum idem_key_kind kind = idem_guard_policy(door->guard)->key_kind;

    if (kind != IDEM_KEY_LITERAL && kind != IDEM_KEY_EXPRESSION)
        return idem_error_set(err, IDEM_E_INVALID,
                              "idem_consume(): the policy's key is %s; messages are known by an "
                              "expression, or by a key of their own (literal)",
                              idem_word_name(idem_words_key, (int)kind));
    door->keying = (struct queue_keying){.guard = door->guard, .kind = QUEUE_KEY_EXPRESSION};
    if (kind == IDEM_KEY_LITERAL)
        door->keying.kind = message->key == NULL ? QUEUE_KEY_ID : QUEUE_KEY_GIVEN;
    door->keying.given = (struct idem_bytes){message->key, message->key_len};
    return 0;
}

static enum idem_result timed(struct idem_run *run, void *data) {
    struct door *door = data;
    int64_t begun = idem_loop_now();
    enum idem_result said = door->fn(run, door->data);

    door->took_ms = idem_loop_now() - begun;
    return said;
}

static void dispose(struct idem_consumed *ret, enum queue_step step, int64_t again_ms) {
    ret->disposal = step == QUEUE_STEP_ACK    ? IDEM_CONSUME_ACK
                    : step == QUEUE_STEP_BURY ? IDEM_CONSUME_DEAD
                                              : IDEM_CONSUME_RETRY_LATER;
    if (ret->disposal == IDEM_CONSUME_RETRY_LATER)
        ret->retry_ms = again_ms > 0 ? again_ms : AGAIN_MS;
}

static void reason_set(struct idem_consumed *ret, const char *reason) {
    snprintf(ret->reason, sizeof(ret->reason), "%.255s", reason == NULL ? "" : reason);
}

/* There is no verdict. */
static void refused(struct idem_consumed *ret, enum queue_step step, const struct idem_error *why) {
    ret->code = why->code;
    snprintf(ret->reason, sizeof(ret->reason), "%.*s",
             (int)(strcspn(why->text, "\n") < 255 ? strcspn(why->text, "\n") : 255), why->text);
    dispose(ret, step, AGAIN_MS);
}

static enum queue_result result_of(enum idem_result said) {
    static const enum queue_result results[] = {
        [IDEM_RESULT_DONE] = QUEUE_DONE,
        [IDEM_RESULT_RETRY] = QUEUE_RETRY,
        [IDEM_RESULT_FINAL] = QUEUE_REFUSED,
        [IDEM_RESULT_UNKNOWN] = QUEUE_UNKNOWN,
    };

    return (size_t)said < sizeof(results) / sizeof(results[0]) ? results[said] : QUEUE_UNKNOWN;
}

static void handled(const struct door *door, const struct idem_outcome *out,
                    struct idem_consumed *ret) {
    enum queue_room room = queue_room(idem_guard_policy(door->guard), out->last);
    const struct queue_verdict_row *verdict;

    if (out->verdict != IDEM_RUN) {
        verdict = queue_verdict_row(out->verdict, IDEM_ABSENT);
        if (verdict->epitaph != NULL && ret->reason[0] == '\0')
            reason_set(ret, queue_epitaph_text(verdict->epitaph));
        dispose(ret, verdict->step, out->retry_after_ms);
        return;
    }
    ret->said = out->said;
    ret->took_ms = door->took_ms;
    /* What is not stored is not known to the next who gets this message. */
    if (out->finish == IDEM_FINISH_STORED || out->unguarded)
        dispose(ret, queue_result_row(result_of(out->said), room)->step, out->retry_after_ms);
    else
        dispose(ret, QUEUE_STEP_HOLD, AGAIN_MS);
}

/* A key that cannot be made of this message never can be: told apart from what a later try, or
   another program, would make better. */
static int consume(struct idem *h, struct door *door, const struct idem_message *message,
                   struct idem_consumed *ret, struct idem_error *err) {
    struct idem_outcome out;
    struct idem_identity identity;
    struct queue_args args;
    struct idem_error why;
    bool hidden;
    int rc = queue_args_make(&door->keying, &door->message, &args, &why);

    if (rc == 0) {
        rc = idem_identity_make(door->guard, idem_guard_policy(door->guard), &args.args, &identity,
                                &why);
        if (rc != 0)
            queue_args_release(&args);
    }
    if (rc == IDEM_E_INVALID) {
        refused(ret, QUEUE_STEP_BURY, &why);
        return 0;
    }
    if (rc != 0)
        return idem_error_copy(err, &why);
    hidden =
        queue_trace_is_key(&door->message, (struct idem_bytes){identity.key, identity.key_len});
    if (hidden)
        snprintf(ret->trace, sizeof(ret->trace), "-");
    args.args.label = message->label;
    rc = idem_call(h, door->guard, &args.args, timed, door, &out, &why);
    queue_args_release(&args);
    if (rc == IDEM_E_INVALID || rc == IDEM_E_NOMEM || rc == IDEM_E_FORK)
        return idem_error_copy(err, &why);
    if (rc != 0) {
        refused(ret, QUEUE_STEP_HOLD, &why);
        return 0;
    }
    ret->verdict = out.verdict;
    ret->status = out.status;
    ret->attempt = out.attempt;
    memcpy(ret->key_hash, out.key_hash, sizeof(ret->key_hash));
    if (hidden)
        memcpy(ret->trace, out.key_hash, sizeof(ret->key_hash));
    reason_set(ret, out.reason);
    handled(door, &out, ret);
    idem_outcome_release(&out);
    return 0;
}

int idem_consume(struct idem *h, const struct idem_guard *guard, const struct idem_message *message,
                 idem_fn *fn, void *data, struct idem_consumed *ret, struct idem_error *err) {
    _Static_assert(sizeof(((struct idem_consumed *)0)->trace) == QUEUE_TRACE_TEXT,
                   "as idem.h has it");
    struct door door = {.guard = guard, .fn = fn, .data = data};
    struct idem_consumed consumed = {0};
    int rc = idem_need(h, err) ?: idem_need(guard, err) ?: idem_need(message, err);

    if (rc == 0)
        rc = idem_need(fn, err) ?: idem_need(ret, err) ?: idem_handle_check_blocking(h, err);
    if (rc == 0)
        rc = door_init(&door, message, err);
    if (rc == 0)
        rc = keying_init(&door, message, err);
    if (rc == 0) {
        (void)queue_trace(&door.message, consumed.trace);
        rc = consume(h, &door, message, &consumed, err);
    }
    free(door.fields);
    if (rc == 0)
        *ret = consumed;
    return rc;
}
