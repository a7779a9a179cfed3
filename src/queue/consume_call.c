/*
 * idem_consume(): handles one message of a foreign client by the tables that the consumer
 * uses. Fails on a caller's mistake or without memory. A fault of the message or the store is
 * no failure: it is reported as the disposal of the message.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "core/handle.h"
#include "queue/decide.h"
#include "queue/message_key.h"

/* Pause before a retry if the store could not be asked, or did not store the outcome. */
#define AGAIN_MS 1000

struct consume_call {
    const struct idem_guard *guard;
    struct queue_message message;
    struct queue_field *fields; /* headers, then properties */
    struct queue_keying keying;
    idem_fn *fn;
    void *data;
    int64_t took_ms;
};

static int consume_call_copy_fields(const char *what, const struct idem_field *from, size_t n,
                                    struct queue_field *to, struct idem_error *err) {
    for (size_t i = 0; i < n; i++) {
        if (from[i].name == NULL || from[i].value == NULL)
            return idem_error_set(err, IDEM_E_INVALID, "idem_message.%s: a name or a value is NULL",
                                  what);
        to[i] =
            (struct queue_field){idem_bytes_of(from[i].name), idem_bytes_of(from[i].value), false};
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

static int consume_call_init(struct consume_call *call, const struct idem_message *message,
                             struct idem_error *err) {
    size_t n = message->headers_n + message->properties_n;
    int rc = message_check(message, err);

    if (rc != 0)
        return rc;
    call->fields = calloc(n + 1, sizeof(*call->fields));
    if (call->fields == NULL)
        return idem_error_set(err, IDEM_E_NOMEM, "no memory for a message's headers");
    rc = consume_call_copy_fields("headers", message->headers, message->headers_n, call->fields,
                                  err);
    if (rc == 0)
        rc = consume_call_copy_fields("properties", message->properties, message->properties_n,
                                      call->fields + message->headers_n, err);
    for (size_t i = 0; rc == 0 && message->id != NULL && i < message->properties_n; i++)
        if (strcmp(message->properties[i].name, "message_id") == 0)
            rc = idem_error_set(err, IDEM_E_INVALID,
                                "idem_message: the id is set twice, as .id and as a property");
    if (message->id != NULL)
        call->fields[n++] =
            (struct queue_field){idem_bytes_of("message_id"), idem_bytes_of(message->id), false};
    call->message = (struct queue_message){
        .body = {message->body, message->body_len},
        .headers = call->fields,
        .headers_n = message->headers_n,
        .properties = call->fields + message->headers_n,
        .properties_n = n - message->headers_n,
        .queue = message->queue,
    };
    return rc;
}

/* Chooses the source of the key: the policy's expression, the caller's key, or the message id. */
static int consume_call_init_keying(struct consume_call *call, const struct idem_message *message,
                                    struct idem_error *err) {
    enum idem_key_kind kind = idem_guard_policy(call->guard)->key_kind;

    if (kind != IDEM_KEY_LITERAL && kind != IDEM_KEY_EXPRESSION)
        return idem_error_set(err, IDEM_E_INVALID,
                              "idem_consume(): the policy's key is %s; messages are known by an "
                              "expression, or by a key of their own (literal)",
                              idem_word_name(idem_words_key, (int)kind));
    call->keying = (struct queue_keying){.guard = call->guard, .kind = QUEUE_KEY_EXPRESSION};
    if (kind == IDEM_KEY_LITERAL)
        call->keying.kind = message->key == NULL ? QUEUE_KEY_ID : QUEUE_KEY_GIVEN;
    call->keying.given = (struct idem_bytes){message->key, message->key_len};
    return 0;
}

static enum idem_result consume_call_run(struct idem_run *run, void *data) {
    struct consume_call *call = data;
    int64_t begun = idem_loop_now();
    enum idem_result result = call->fn(run, call->data);

    call->took_ms = idem_loop_now() - begun;
    return result;
}

static void consumed_set_disposal(struct idem_consumed *ret, enum queue_step step,
                                  int64_t again_ms) {
    ret->disposal = step == QUEUE_STEP_ACK    ? IDEM_CONSUME_ACK
                    : step == QUEUE_STEP_BURY ? IDEM_CONSUME_DEAD
                                              : IDEM_CONSUME_RETRY_LATER;
    if (ret->disposal == IDEM_CONSUME_RETRY_LATER)
        ret->retry_ms = again_ms > 0 ? again_ms : AGAIN_MS;
}

static void consumed_set_reason(struct idem_consumed *ret, const char *reason) {
    snprintf(ret->reason, sizeof(ret->reason), "%.255s", reason == NULL ? "" : reason);
}

/* For messages without a verdict. */
static void consumed_refuse(struct idem_consumed *ret, enum queue_step step,
                            const struct idem_error *why) {
    ret->code = why->code;
    snprintf(ret->reason, sizeof(ret->reason), "%.*s",
             (int)(strcspn(why->text, "\n") < 255 ? strcspn(why->text, "\n") : 255), why->text);
    consumed_set_disposal(ret, step, AGAIN_MS);
}

static enum queue_result consume_call_result(enum idem_result result) {
    static const enum queue_result results[] = {
        [IDEM_RESULT_DONE] = QUEUE_DONE,
        [IDEM_RESULT_RETRY] = QUEUE_RETRY,
        [IDEM_RESULT_FINAL] = QUEUE_REFUSED,
        [IDEM_RESULT_UNKNOWN] = QUEUE_UNKNOWN,
    };

    return (size_t)result < sizeof(results) / sizeof(results[0]) ? results[result] : QUEUE_UNKNOWN;
}

static void consume_call_decide(const struct consume_call *call, const struct idem_outcome *out,
                                struct idem_consumed *ret) {
    enum queue_room room = queue_room(idem_guard_policy(call->guard), out->last);
    const struct queue_verdict_rule *verdict;

    if (out->verdict != IDEM_RUN) {
        verdict = queue_decide_verdict(out->verdict, IDEM_ABSENT);
        if (verdict->dead_verdict != NULL && ret->reason[0] == '\0')
            consumed_set_reason(ret, queue_dead_verdict_text(verdict->dead_verdict));
        consumed_set_disposal(ret, verdict->step, out->retry_after_ms);
        return;
    }
    ret->said = out->said;
    ret->took_ms = call->took_ms;
    /* An outcome that is not stored is unknown to the next consumer of this message. */
    if (out->finish == IDEM_FINISH_STORED || out->unguarded)
        consumed_set_disposal(ret, queue_decide_result(consume_call_result(out->said), room)->step,
                              out->retry_after_ms);
    else
        consumed_set_disposal(ret, QUEUE_STEP_HOLD, AGAIN_MS);
}

/* A message with an invalid key never can have one and is buried. Every other failure may go
   away with a later try or in another program. */
static int consume_call_claim(struct idem *h, struct consume_call *call,
                              const struct idem_message *message, struct idem_consumed *ret,
                              struct idem_error *err) {
    struct idem_outcome out;
    struct idem_identity identity;
    struct queue_args args;
    struct idem_error why;
    bool hidden;
    int rc = queue_args_make(&call->keying, &call->message, &args, &why);

    if (rc == 0) {
        rc = idem_identity_make(call->guard, idem_guard_policy(call->guard), &args.args, &identity,
                                &why);
        if (rc != 0)
            queue_args_release(&args);
    }
    if (rc == IDEM_E_INVALID) {
        consumed_refuse(ret, QUEUE_STEP_BURY, &why);
        return 0;
    }
    if (rc != 0)
        return idem_error_copy(err, &why);
    hidden = queue_message_trace_is_key(&call->message,
                                        (struct idem_bytes){identity.key, identity.key_len});
    if (hidden)
        snprintf(ret->trace, sizeof(ret->trace), "-");
    args.args.label = message->label;
    rc = idem_call(h, call->guard, &args.args, consume_call_run, call, &out, &why);
    queue_args_release(&args);
    if (rc == IDEM_E_INVALID || rc == IDEM_E_NOMEM || rc == IDEM_E_FORK)
        return idem_error_copy(err, &why);
    if (rc != 0) {
        consumed_refuse(ret, QUEUE_STEP_HOLD, &why);
        return 0;
    }
    ret->verdict = out.verdict;
    ret->status = out.status;
    ret->attempt = out.attempt;
    memcpy(ret->key_hash, out.key_hash, sizeof(ret->key_hash));
    if (hidden)
        memcpy(ret->trace, out.key_hash, sizeof(ret->key_hash));
    consumed_set_reason(ret, out.reason);
    consume_call_decide(call, &out, ret);
    idem_outcome_release(&out);
    return 0;
}

int idem_consume(struct idem *h, const struct idem_guard *guard, const struct idem_message *message,
                 idem_fn *fn, void *data, struct idem_consumed *ret, struct idem_error *err) {
    _Static_assert(sizeof(((struct idem_consumed *)0)->trace) == QUEUE_TRACE_TEXT,
                   "as idem.h has it");
    struct consume_call call = {.guard = guard, .fn = fn, .data = data};
    struct idem_consumed consumed = {0};
    int rc = idem_need(h, err) ?: idem_need(guard, err) ?: idem_need(message, err);

    if (rc == 0)
        rc = idem_need(fn, err) ?: idem_need(ret, err) ?: idem_handle_check_blocking(h, err);
    if (rc == 0)
        rc = consume_call_init(&call, message, err);
    if (rc == 0)
        rc = consume_call_init_keying(&call, message, err);
    if (rc == 0) {
        (void)queue_message_trace(&call.message, consumed.trace);
        rc = consume_call_claim(h, &call, message, &consumed, err);
    }
    free(call.fields);
    if (rc == 0)
        *ret = consumed;
    return rc;
}
