/*
 * Verifies a request in a blocking call: first the request itself, then its nonce.
 */
#include <inttypes.h>
#include <openssl/sha.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/error.h"
#include "core/handle.h"
#include "core/store_call.h"
#include "protocol/record_key.h"
#include "sign/sign.h"
#include "sign/sign_request.h"

/*
 * Nonces: each can be used once per key id. One step in the store decides whether a nonce is new
 * and marks it as used. With a sequence it is a counter of the key id, kept permanently. Otherwise
 * it is kept until no clock that we trust can accept its timestamp, by any window in force, and
 * for a day at least: the window may be widened meanwhile.
 */

#define PREFIX "sign:"
/* If the last number of a sequence were forgotten, the sequence could be replayed from its
   start. */
#define FOREVER_MS ((int64_t)100 * 366 * 24 * 3600 * 1000)

struct idem_nonce {
    struct idem_store_call store_call;
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

static void nonce_answered(struct idem_store_call *store_call, int rc,
                           const struct idem_error *err) {
    struct idem_nonce *nonce = idem_container_of(store_call, struct idem_nonce, store_call);
    char room[IDEM_SIGN_DETAIL];
    const char *detail = NULL;

    if (rc == 0)
        detail = idem_nonce_answer(nonce->signer, &store_call->op, room);
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
    if ((rc = idem_nonce_op(signer, parts, &nonce->store_call.op, err)) != 0) {
        free(nonce);
        return rc;
    }
    nonce->signer = signer;
    nonce->cb = cb;
    nonce->data = data;
    nonce->store_call.answered = nonce_answered;
    idem_store_call_start(h, &nonce->store_call);
    *ret = nonce;
    return 0;
}

void idem_nonce_free(struct idem_nonce *nonce) {
    if (nonce == NULL)
        return;
    idem_store_call_stop(&nonce->store_call);
    free(nonce);
}

/*
 * The order of checks: the parts are present, the timestamp is current, the signature is right. No
 * state is kept of a request that fails here; the store checks the nonce, last.
 */

int idem_sign_text(const struct idem_signer *signer, const struct idem_sign_request *request,
                   const struct idem_sign_parts *parts, char **ret, size_t *ret_len,
                   const char **ret_detail, char room[IDEM_SIGN_DETAIL]) {
    const struct idem_sign_form_ops *form = idem_sign_form(signer->form);
    struct idem_out out = {0};

    *ret_detail = form->text(signer, request, parts, &out, room);
    if (*ret_detail != NULL)
        return 1;
    if (out.len > IDEM_SIGN_TEXT_MAX) {
        *ret_detail = "The signed text is too long.";
        return 1;
    }
    if (!idem_out_allocate(&out))
        return IDEM_E_NOMEM;
    *ret_detail = form->text(signer, request, parts, &out, room);
    if (*ret_detail != NULL) {
        free(out.buf);
        return 1;
    }
    out.buf[out.len] = '\0';
    *ret = out.buf;
    *ret_len = out.len;
    return 0;
}

int64_t idem_sign_now(void) {
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void checked_refuse(struct idem_sign_checked *ret, enum idem_proof proof,
                           const char *detail) {
    ret->proof = proof;
    ret->detail = detail;
}

/* In both directions: a request from the future could be replayed until then. */
static bool verify_time_is_current(const struct idem_signer *signer,
                                   const struct idem_sign_parts *parts, int64_t now_ms) {
    if (parts->timed && (parts->time_ms < now_ms - signer->window_ms ||
                         parts->time_ms > now_ms + signer->window_ms))
        return false;
    return !parts->expires || parts->expires_ms > now_ms;
}

static int verify_signature(const struct idem_signer *signer,
                            const struct idem_sign_request *request, size_t which, int64_t now_ms,
                            struct idem_sign_checked *ret, struct idem_error *err) {
    const struct idem_sign_form_ops *form = idem_sign_form(signer->form);
    struct idem_sign_parts *parts = &ret->parts;
    struct idem_http_text text;
    const char *detail;
    bool nomem, incomplete;
    int rc;

    *ret = (struct idem_sign_checked){.proof = IDEM_PROOF_GOOD};
    detail = form->read(signer, request, which, parts, ret->room, &nomem);
    rc = nomem ? IDEM_E_NOMEM : 0;
    if (rc == 0 && detail == NULL)
        rc = idem_sign_text(signer, request, parts, &ret->text, &text.len, &detail, ret->room);
    if (rc < 0) {
        idem_sign_checked_release(ret);
        return idem_error_set(err, rc, "no memory to verify a signature");
    }
    if (detail != NULL) {
        checked_refuse(ret, IDEM_PROOF_INCOMPLETE, detail);
        return 0;
    }
    text.at = ret->text;
    detail = form->body(request, parts, &incomplete);
    if (incomplete)
        checked_refuse(ret, IDEM_PROOF_INCOMPLETE, detail);
    else if (!verify_time_is_current(signer, parts, now_ms))
        checked_refuse(ret, IDEM_PROOF_STALE,
                       "The request's timestamp is too far from this server's time (the header "
                       "Date), or the signature has expired.");
    else if (detail != NULL)
        checked_refuse(ret, IDEM_PROOF_WRONG, detail);
    else if (!idem_keyring_verify(signer->keyring, idem_sign_parts_id(parts), parts->alg, text,
                                  parts->signature, parts->signature_len))
        checked_refuse(ret, IDEM_PROOF_WRONG,
                       "The signature was not made for this request with a secret of that key id.");
    return 0;
}

/* A detail may point into the room of its own struct. */
static void checked_swap(struct idem_sign_checked *a, struct idem_sign_checked *b) {
    struct idem_sign_checked was = *a;
    bool a_own = a->detail == a->room, b_own = b->detail == b->room;

    *a = *b;
    *b = was;
    if (b_own)
        a->detail = a->room;
    if (a_own)
        b->detail = b->room;
}

/*
 * Of several signatures, the one with a known key counts. All are checked completely before one is
 * chosen: the time of checking that one alone would reveal which keys are known.
 */
int idem_sign_check(const struct idem_signer *signer, const struct idem_sign_request *request,
                    int64_t now_ms, struct idem_sign_checked *ret, struct idem_error *err) {
    int rc = verify_signature(signer, request, 0, now_ms, ret, err);
    size_t n = rc == 0 ? ret->parts.signatures : 0, known = n > 0 && ret->parts.known;

    for (size_t i = 1; i < n; i++) {
        struct idem_sign_checked one;

        if ((rc = verify_signature(signer, request, i, now_ms, &one, err)) != 0) {
            idem_sign_checked_release(ret);
            return rc;
        }
        if (one.parts.known && known++ == 0)
            checked_swap(ret, &one);
        idem_sign_checked_release(&one);
    }
    if (known > 1)
        checked_refuse(ret, IDEM_PROOF_INCOMPLETE,
                       "Signature-Input has more than one signature of known keys.");
    return rc;
}

void idem_sign_checked_release(struct idem_sign_checked *checked) {
    free(checked->parts.fields);
    free(checked->text);
    checked->parts.fields = NULL;
    checked->text = NULL;
}

static void verify_result_fill(const struct idem_sign_checked *checked, struct idem_verified *ret) {
    ret->proof = checked->proof;
    memcpy(ret->key_id, checked->parts.key_id, sizeof(ret->key_id));
    memcpy(ret->nonce, checked->parts.nonce, sizeof(ret->nonce));
    ret->time_ms = checked->parts.time_ms;
    if (checked->detail != NULL)
        snprintf(ret->detail, sizeof(ret->detail), "%s", checked->detail);
}

static int verify_nonce(struct idem *h, const struct idem_signer *signer,
                        const struct idem_sign_parts *parts, struct idem_verified *ret,
                        struct idem_error *err) {
    char room[IDEM_SIGN_DETAIL];
    struct idem_op op = {0};
    const char *detail;
    int rc = idem_nonce_op(signer, parts, &op, err);

    if (rc == 0)
        rc = idem_handle_run(h, &op, NULL, err);
    if (rc != 0)
        return rc;
    if (signer->sequence != IDEM_SEQUENCE_OFF)
        ret->last = op.out.count.value;
    detail = idem_nonce_answer(signer, &op, room);
    if (detail != NULL) {
        ret->proof = IDEM_PROOF_REUSED;
        snprintf(ret->detail, sizeof(ret->detail), "%s", detail);
    }
    return 0;
}

static int verify_with_store(struct idem *h, const struct idem_signer *signer,
                             const struct idem_sign_request *request, struct idem_verified *ret,
                             struct idem_error *err) {
    struct idem_sign_checked checked;
    int rc = idem_sign_check(signer, request, ret->now_ms, &checked, err);

    if (rc != 0)
        return rc;
    verify_result_fill(&checked, ret);
    if (checked.proof == IDEM_PROOF_GOOD && h != NULL)
        rc = verify_nonce(h, signer, &checked.parts, ret, err);
    ret->signed_text = checked.text;
    checked.text = NULL;
    idem_sign_checked_release(&checked);
    return rc;
}

int idem_verify_request(struct idem *h, const struct idem_signer *signer,
                        const struct idem_request *request, struct idem_verified *ret,
                        struct idem_error *err) {
    unsigned char sha256[IDEM_HASH_LEN], sha512[IDEM_SHA512_LEN];
    struct idem_verified verified = {.now_ms = idem_sign_now()};
    struct idem_http_header *headers;
    struct idem_sign_request read;
    int rc = idem_need(signer, err) ?: idem_need(request, err) ?: idem_need(ret, err);

    if (rc == 0 && h != NULL)
        rc = idem_handle_check_blocking(h, err);
    if (rc != 0 || (rc = idem_request_read(request, 0, sha256, &headers, &read, err)) != 0)
        return rc;
    SHA512(request->body, request->body_len, sha512);
    read.sha512 = sha512;
    rc = verify_with_store(h, signer, &read, &verified, err);
    free(headers);
    if (rc != 0) {
        idem_verified_release(&verified);
        return rc;
    }
    if (h != NULL) {
        idem_handle_enter(h);
        idem_proof_tally(h, verified.proof);
        idem_handle_leave(h);
    }
    *ret = verified;
    return 0;
}

void idem_verified_release(struct idem_verified *verified) {
    if (verified == NULL)
        return;
    free(verified->signed_text);
    verified->signed_text = NULL;
}
