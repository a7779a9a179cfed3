/*
 * Verifies a request in a blocking call: first the request itself, then its nonce.
 */
#include <openssl/sha.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "core/handle.h"
#include "sign/sign_request.h"

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
