/*
 * Keys of messages. message_key.h describes the failures; no error text contains a key or a
 * body.
 */
#include "queue/message_key.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/units.h"
#include "core/fingerprint.h"

static int message_key_absent(const char *what, const char *name, struct idem_error *err) {
    char quoted[IDEM_QUOTE_TEXT];

    return idem_error_set(
        err, IDEM_E_INVALID,
        "the message has no %s%s to be known by: let its sender set one, or make "
        "the key of something else",
        what, name == NULL ? "" : idem_error_quote(name, strlen(name), quoted, sizeof(quoted)));
}

static int keying_read_key(const struct queue_keying *keying, const struct queue_message *message,
                           struct idem_args *args, struct idem_error *err) {
    const struct queue_field *field;

    switch (keying->kind) {
    case QUEUE_KEY_EXPRESSION:
        return 0;
    case QUEUE_KEY_GIVEN:
        args->key = keying->given.at;
        args->key_len = keying->given.len;
        break;
    case QUEUE_KEY_ID:
    case QUEUE_KEY_HEADER:
        field = keying->kind == QUEUE_KEY_ID ? queue_message_property(message, "message_id")
                                             : queue_message_header(message, keying->header);
        if (keying->kind == QUEUE_KEY_HEADER &&
            queue_message_header_is_repeated(message, keying->header))
            return idem_error_set(
                err, IDEM_E_INVALID,
                "the message has the header of its key twice: which one counts is ambiguous");
        if (field != NULL) {
            args->key = field->value.at;
            args->key_len = field->value.len;
        }
        break;
    }
    if (args->key_len != 0)
        return 0;
    return keying->kind == QUEUE_KEY_HEADER ? message_key_absent("header ", keying->header, err)
                                            : message_key_absent("message id", NULL, err);
}

/* The kind of the body (JSON or plain bytes) goes into the hash, not into the definition of the
   fingerprint: different definitions are not compared, so a sender could skip the comparison by
   a change of the kind. A body that is too long to be parsed is compared byte for byte. */
static int hash_add_body(struct idem_fingerprint_hash *hash, const struct idem_policy *policy,
                         struct idem_bytes body, struct idem_error *err) {
    struct idem_arena arena;
    struct idem_json json;
    int rc = 0;

    idem_fingerprint_arena(&arena, body.len);
    if (body.len <= (size_t)policy->json_max && body.len != 0 &&
        idem_json_parse((const char *)body.at, body.len, &arena, &json, NULL) == 0) {
        rc = idem_fingerprint_json(hash, "body", IDEM_FINGERPRINT_JSON, &json, err);
    } else {
        idem_fingerprint_open_plain(hash, "body");
        idem_fingerprint_add(hash, body.at, body.len);
        idem_fingerprint_close(hash);
    }
    idem_arena_free(&arena);
    return rc;
}

static int message_key_fingerprint(const struct idem_policy *policy,
                                   const struct queue_message *message, struct queue_args *ret,
                                   struct idem_error *err) {
    struct idem_fingerprint fingerprint;
    struct idem_fingerprint_hash hash;
    int rc, ended;

    idem_fingerprint_begin(&hash);
    rc = hash_add_body(&hash, policy, message->body, err);
    ended = idem_fingerprint_end(&hash, &fingerprint);
    if (rc == 0 && ended != 0)
        rc = idem_error_set(err, ended, "no memory for a hash");
    if (rc != 0)
        return rc;
    memcpy(ret->fingerprint, fingerprint.hash, sizeof(ret->fingerprint));
    ret->args.fingerprint = ret->fingerprint;
    ret->args.fingerprint_len = sizeof(ret->fingerprint);
    return 0;
}

static bool keying_reads_variables(const struct queue_keying *keying) {
    return keying->kind == QUEUE_KEY_EXPRESSION || keying->guard->fingerprint_expr != NULL ||
           keying->order != NULL || keying->label != NULL;
}

int queue_args_make(const struct queue_keying *keying, const struct queue_message *message,
                    struct queue_args *ret, struct idem_error *err) {
    const struct idem_policy *policy = idem_guard_policy(keying->guard);
    int rc;

    *ret = (struct queue_args){0};
    rc = keying_read_key(keying, message, &ret->args, err);
    if (rc == 0 && keying_reads_variables(keying))
        rc = queue_message_variables(message, &ret->variables, &ret->variables_len, err);
    if (rc == 0 && (keying->kind == QUEUE_KEY_EXPRESSION || policy->fingerprint_expr != NULL)) {
        ret->args.json = ret->variables;
        ret->args.json_len = ret->variables_len;
    } else if (rc == 0 && policy->fingerprint != IDEM_NONE) {
        rc = message_key_fingerprint(policy, message, ret, err);
    }
    if (rc != 0)
        queue_args_release(ret);
    return rc;
}

void queue_args_release(struct queue_args *args) {
    free(args->variables);
    args->variables = NULL;
}

/* Evaluates another expression over the same variables. */
static int guard_evaluate(const struct idem_guard *guard, const struct queue_args *made,
                          struct idem_identity *ret, struct idem_error *err) {
    struct idem_args args = {.json = made->variables, .json_len = made->variables_len};

    return idem_identity_make(guard, idem_guard_policy(guard), &args, ret, err);
}

static int keying_make_lane(const struct queue_keying *keying, const struct queue_args *args,
                            struct queue_identity *ret, struct idem_error *err) {
    struct idem_identity order;
    const struct idem_identity *of = &ret->call;
    int rc = 0;

    if (keying->order != NULL) {
        rc = guard_evaluate(keying->order, args, &order, err);
        of = &order;
    }
    if (rc == 0 && idem_sha256((struct idem_bytes){of->key, of->key_len}, ret->lane) != 0)
        rc = idem_error_set(err, IDEM_E_NOMEM, "no memory for a hash");
    return rc;
}

/* A label that is too long is cut between two characters. */
static int keying_make_label(const struct queue_keying *keying, const struct queue_args *args,
                             struct queue_identity *ret, struct idem_error *err) {
    struct idem_identity label;
    size_t len;
    int rc;

    ret->label[0] = '\0';
    if (keying->label == NULL)
        return 0;
    rc = guard_evaluate(keying->label, args, &label, err);
    if (rc == IDEM_E_INVALID)
        return 0; /* a label is for people: its failure is no reason to refuse the message */
    if (rc != 0)
        return rc;
    len = label.key_len < IDEM_LABEL_MAX ? label.key_len : IDEM_LABEL_MAX;
    while (len > 0 && !idem_utf8_valid((const char *)label.key, len))
        len--;
    memcpy(ret->label, label.key, len);
    ret->label[len] = '\0';
    return 0;
}

int queue_identity_make(const struct queue_keying *keying, const struct queue_message *message,
                        struct queue_identity *ret, struct idem_error *err) {
    struct queue_args args;
    int rc = queue_args_make(keying, message, &args, err);

    if (rc != 0)
        return rc;
    rc = idem_identity_make(keying->guard, idem_guard_policy(keying->guard), &args.args, &ret->call,
                            err);
    if (rc == 0)
        rc = keying_make_lane(keying, &args, ret, err);
    if (rc == 0)
        rc = keying_make_label(keying, &args, ret, err);
    queue_args_release(&args);
    return rc;
}
