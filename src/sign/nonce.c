/*
 * Nonces: each is used once, by key id. One step in the store says whether it is new and makes it
 * used. Where there is a sequence, it is a counter of the key id's, kept for good; otherwise it is
 * remembered until no clock that we trust could take its timestamp for a current one.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/ask.h"
#include "core/error.h"
#include "core/hash.h"
#include "sign/sign.h"

#define PREFIX "sign:"
/* How far the clocks of two machines that share a store may be apart. */
#define SKEW_MS 60000
/* A sequence whose last number is forgotten could be sent again from its beginning. */
#define FOREVER_MS ((int64_t)100 * 366 * 24 * 3600 * 1000)

struct idem_nonce {
    struct idem_ask ask;
    const struct idem_signer *signer;
    idem_nonce_cb *cb;
    void *data;
};

static int name_make(enum idem_name_kind kind, const struct idem_sign_parts *parts, const void *key,
                     size_t len, struct idem_op *ret, struct idem_error *err) {
    struct idem_bytes prefix = {(const unsigned char *)PREFIX, sizeof(PREFIX) - 1};
    struct idem_bytes scope = {(const unsigned char *)parts->key_id, parts->key_id_len};

    if (idem_record_key_make(&ret->key, kind, prefix, scope, (struct idem_bytes){key, len}) == 0)
        return 0;
    return idem_error_set(err, IDEM_E_NOMEM, "no memory for a nonce");
}

/* A signature is good from window before its time to window after it, and a nonce is first seen
   within these. */
static int64_t nonce_life(const struct idem_signer *signer) {
    return 2 * signer->window_ms + SKEW_MS;
}

int idem_nonce_op(const struct idem_signer *signer, const struct idem_sign_parts *parts,
                  struct idem_op *ret, struct idem_error *err) {
    static const char sequence[] = "sequence";

    if (signer->sequence == IDEM_SEQUENCE_OFF) {
        ret->kind = IDEM_OP_ONCE;
        ret->in.once.ttl_ms = nonce_life(signer);
        return name_make(IDEM_NAME_NONCE, parts, parts->nonce, parts->nonce_len, ret, err);
    }
    ret->kind = IDEM_OP_COUNT;
    ret->in.count = (struct idem_count_in){
        .how = signer->sequence == IDEM_SEQUENCE_CONSECUTIVE ? IDEM_COUNT_NEXT : IDEM_COUNT_RAISE,
        .value = parts->number,
        .ttl_ms = FOREVER_MS,
    };
    return name_make(IDEM_NAME_COUNTER, parts, sequence, sizeof(sequence) - 1, ret, err);
}

const char *idem_nonce_answer(const struct idem_signer *signer, const struct idem_op *op,
                              char room[IDEM_SIGN_DETAIL]) {
    if (signer->sequence == IDEM_SEQUENCE_OFF)
        return op->out.once.first ? NULL : "The nonce was used before.";
    if (op->out.count.changed)
        return NULL;
    snprintf(room, IDEM_SIGN_DETAIL,
             "The number is not %s the last one that was taken, %" PRId64 ".",
             signer->sequence == IDEM_SEQUENCE_CONSECUTIVE ? "one higher than" : "higher than",
             op->out.count.value);
    return room;
}

void idem_proof_tally(struct idem *h, enum idem_proof proof) {
    static const enum idem_event events[] = {
        [IDEM_PROOF_INCOMPLETE] = IDEM_EVENT_SIGNATURE_INCOMPLETE,
        [IDEM_PROOF_STALE] = IDEM_EVENT_SIGNATURE_STALE,
        [IDEM_PROOF_WRONG] = IDEM_EVENT_SIGNATURE_WRONG,
        [IDEM_PROOF_REUSED] = IDEM_EVENT_NONCE_REUSED,
    };

    if (proof > IDEM_PROOF_GOOD)
        idem_handle_tally(h, events[proof]);
}

/* On a loop. */

static void nonce_answered(struct idem_ask *ask, int rc, const struct idem_error *err) {
    struct idem_nonce *nonce = idem_container_of(ask, struct idem_nonce, ask);
    char room[IDEM_SIGN_DETAIL];
    const char *detail = NULL;

    if (rc == 0)
        detail = idem_nonce_answer(nonce->signer, &ask->op, room);
    nonce->cb(nonce, rc, detail, err, nonce->data);
}

int idem_nonce_new(struct idem *h, const struct idem_signer *signer,
                   const struct idem_sign_parts *parts, idem_nonce_cb *cb, void *data,
                   struct idem_nonce **ret, struct idem_error *err) {
    struct idem_nonce *nonce;
    int rc = idem_handle_check_loop(h, err);

    if (rc != 0)
        return rc;
    nonce = calloc(1, sizeof(*nonce));
    if (nonce == NULL)
        return idem_error_set(err, IDEM_E_NOMEM, "no memory for a nonce");
    if ((rc = idem_nonce_op(signer, parts, &nonce->ask.op, err)) != 0) {
        free(nonce);
        return rc;
    }
    nonce->signer = signer;
    nonce->cb = cb;
    nonce->data = data;
    nonce->ask.answered = nonce_answered;
    idem_ask_start(h, &nonce->ask);
    *ret = nonce;
    return 0;
}

void idem_nonce_free(struct idem_nonce *nonce) {
    if (nonce == NULL)
        return;
    idem_ask_stop(&nonce->ask);
    free(nonce);
}
