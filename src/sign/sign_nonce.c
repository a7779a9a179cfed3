/*
 * Nonces: each can be used once per key id. One step in the store decides whether a nonce is new
 * and marks it as used. With a sequence it is a counter of the key id, kept permanently. Otherwise
 * it is kept until no clock that we trust can accept its timestamp, by any window in force, and
 * for a day at least: the window may be widened meanwhile.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "core/store_call.h"
#include "protocol/record_key.h"
#include "sign/sign.h"

#define PREFIX "sign:"
/* If the last number of a sequence were forgotten, the sequence could be replayed from its
   start. */
#define FOREVER_MS ((int64_t)100 * 366 * 24 * 3600 * 1000)

struct idem_nonce {
    struct idem_ask ask;
    const struct idem_signer *signer;
    idem_nonce_cb *cb;
    void *data;
};

static int nonce_name_make(enum idem_name_kind kind, const struct idem_sign_parts *parts,
                           const void *key, size_t len, struct idem_op *ret,
                           struct idem_error *err) {
    struct idem_bytes prefix = {(const unsigned char *)PREFIX, sizeof(PREFIX) - 1};
    struct idem_bytes scope = {(const unsigned char *)parts->key_id, parts->key_id_len};

    if (idem_record_key_make(&ret->key, kind, prefix, scope, (struct idem_bytes){key, len}) == 0)
        return 0;
    return idem_error_set(err, IDEM_E_NOMEM, "no memory for a nonce");
}

/* A signature is valid from window before its time to window after it, and a nonce is first seen
   within that range. */
int64_t idem_nonce_life(int64_t longest_ms) {
    if (longest_ms < IDEM_NONCE_WINDOW_MS)
        longest_ms = IDEM_NONCE_WINDOW_MS;
    return 2 * longest_ms + IDEM_NONCE_SKEW_MS;
}

/* A window below the floor counts as the floor: a longer one may have been in force before, and
   the nonces of that time are kept no longer. */
bool idem_nonce_outlives(int64_t before_ms, int64_t now_ms) {
    if (before_ms < IDEM_NONCE_WINDOW_MS)
        before_ms = IDEM_NONCE_WINDOW_MS;
    return before_ms + now_ms + IDEM_NONCE_SKEW_MS <= idem_nonce_life(before_ms);
}

int idem_nonce_op(const struct idem_signer *signer, const struct idem_sign_parts *parts,
                  struct idem_op *ret, struct idem_error *err) {
    static const char sequence[] = "sequence";

    if (signer->sequence == IDEM_SEQUENCE_OFF) {
        ret->kind = IDEM_OP_ONCE;
        ret->in.once.ttl_ms = idem_nonce_life(signer->longest_ms);
        return nonce_name_make(IDEM_NAME_NONCE, parts, parts->nonce, parts->nonce_len, ret, err);
    }
    ret->kind = IDEM_OP_COUNT;
    ret->in.count = (struct idem_count_in){
        .how = signer->sequence == IDEM_SEQUENCE_CONSECUTIVE ? IDEM_COUNT_NEXT : IDEM_COUNT_RAISE,
        .value = parts->number,
        .ttl_ms = FOREVER_MS,
    };
    return nonce_name_make(IDEM_NAME_COUNTER, parts, sequence, sizeof(sequence) - 1, ret, err);
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
