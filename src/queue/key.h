/*
 * What makes two messages the same one, and which must not be handled at the same
 * time: the key, the fingerprint, the lane.
 */
#ifndef IDEM_QUEUE_KEY_H
#define IDEM_QUEUE_KEY_H

#include "core/key.h"
#include "queue/message.h"

enum queue_key_kind {
    QUEUE_KEY_EXPRESSION = 1, /* the guard's key_expr, over queue_variables() */
    QUEUE_KEY_ID,             /* the broker's message id */
    QUEUE_KEY_HEADER,
    QUEUE_KEY_GIVEN, /* by the caller */
};

struct queue_keying {
    enum queue_key_kind kind;
    const char *header;             /* HEADER: its name, in any case */
    struct idem_bytes given;        /* GIVEN */
    const struct idem_guard *guard; /* key_expr under EXPRESSION, fingerprint_expr */
    const struct idem_guard *order; /* its key is the lane; NULL: the message's own key is */
    const struct idem_guard *label; /* its key is the record's label; NULL: none */
};

/* The arguments of a claim, made of a message; they point into it and into here. */
struct queue_args {
    struct idem_args args;
    char *variables;
    size_t variables_len;
    unsigned char print[IDEM_HASH_LEN];
};

/*
 * Fails with IDEM_E_INVALID where a message has no such key, or one that expressions refuse: it
 * will never have one. A body is the fingerprint of a key that somebody chose (an id, a header,
 * one that was given): canonical if it is JSON, byte for byte otherwise.
 */
int queue_args_make(const struct queue_keying *keying, const struct queue_message *message,
                    struct queue_args *ret, struct idem_error *err);
void queue_args_release(struct queue_args *args);

struct queue_identity {
    struct idem_identity call;         /* key and fingerprint */
    unsigned char lane[IDEM_HASH_LEN]; /* messages of one lane are handled one after the other */
    char label[IDEM_LABEL_MAX + 1];    /* empty: none */
};
int queue_identity_make(const struct queue_keying *keying, const struct queue_message *message,
                        struct queue_identity *ret, struct idem_error *err);

#endif
