/*
 * The key and fingerprint of a message, which make two messages the same one, and its lane, in
 * which messages are handled one at a time.
 */
#ifndef IDEM_QUEUE_MESSAGE_KEY_H
#define IDEM_QUEUE_MESSAGE_KEY_H

#include "core/key.h"
#include "queue/message.h"

enum queue_key_kind {
    QUEUE_KEY_EXPRESSION = 1, /* the guard's key_expr, over queue_message_variables() */
    QUEUE_KEY_ID,             /* the broker's message id */
    QUEUE_KEY_HEADER,
    QUEUE_KEY_GIVEN, /* the caller passes it */
};

struct queue_keying {
    enum queue_key_kind kind;
    const char *header;             /* HEADER: its name, in any case */
    struct idem_bytes given;        /* GIVEN */
    const struct idem_guard *guard; /* key_expr under EXPRESSION, fingerprint_expr */
    const struct idem_guard
        *order; /* the key of this guard is the lane; NULL: the message's own key */
    const struct idem_guard *label; /* the key of this guard is the record's label; NULL: none */
};

/* The arguments of a claim, computed from a message; they point into it and into this struct. */
struct queue_args {
    struct idem_args args;
    char *variables;
    size_t variables_len;
    unsigned char fingerprint[IDEM_HASH_LEN];
};

/*
 * Fails with IDEM_E_INVALID if the message has no such key, or if an expression refuses the
 * message: it never will have a key. If the key was chosen by a caller or sender (an id, a
 * header, a given key), the body is its fingerprint: canonical if it is JSON, byte for byte
 * otherwise.
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
