/*
 * The order: the parts are there, the timestamp is current, the signature is right. Nothing is
 * remembered of a request that fails here; its nonce is the store's to judge, and comes last.
 */
#include <stdlib.h>
#include <time.h>

#include "core/error.h"
#include "sign/sign.h"

int idem_sign_text(const struct idem_signer *signer, const struct idem_sign_request *request,
                   const struct idem_sign_parts *parts, char **ret, size_t *ret_len,
                   const char **ret_detail, char room[IDEM_SIGN_DETAIL]) {
    const struct idem_sign_form_row *form = idem_sign_form(signer->form);
    struct idem_out out = {0};

    *ret_detail = form->text(signer, request, parts, &out, room);
    if (*ret_detail != NULL)
        return 1;
    if (out.len > IDEM_SIGN_TEXT_MAX) {
        *ret_detail = "What was signed is too long.";
        return 1;
    }
    out.size = out.len;
    out.len = 0;
    out.buf = malloc(out.size + 1);
    if (out.buf == NULL)
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

static void refuse(struct idem_sign_checked *ret, enum idem_proof proof, const char *detail) {
    ret->proof = proof;
    ret->detail = detail;
}

/* Both ways: a request of tomorrow could be sent again until then. */
static bool is_current(const struct idem_signer *signer, const struct idem_sign_parts *parts,
                       int64_t now_ms) {
    if (parts->timed && (parts->time_ms < now_ms - signer->window_ms ||
                         parts->time_ms > now_ms + signer->window_ms))
        return false;
    return !parts->expires || parts->expires_ms > now_ms;
}

int idem_sign_check(const struct idem_signer *signer, const struct idem_sign_request *request,
                    int64_t now_ms, struct idem_sign_checked *ret, struct idem_error *err) {
    const struct idem_sign_form_row *form = idem_sign_form(signer->form);
    struct idem_sign_parts *parts = &ret->parts;
    struct idem_http_text text;
    const char *detail;
    bool nomem, incomplete;
    int rc;

    *ret = (struct idem_sign_checked){.proof = IDEM_PROOF_GOOD};
    detail = form->read(signer, request, parts, ret->room, &nomem);
    rc = nomem ? IDEM_E_NOMEM : 0;
    if (rc == 0 && detail == NULL)
        rc = idem_sign_text(signer, request, parts, &ret->text, &text.len, &detail, ret->room);
    if (rc < 0) {
        idem_sign_checked_release(ret);
        return idem_error_set(err, rc, "no memory to verify a signature");
    }
    if (detail != NULL) {
        refuse(ret, IDEM_PROOF_INCOMPLETE, detail);
        return 0;
    }
    text.at = ret->text;
    detail = form->body(request, parts, &incomplete);
    if (incomplete)
        refuse(ret, IDEM_PROOF_INCOMPLETE, detail);
    else if (!is_current(signer, parts, now_ms))
        refuse(ret, IDEM_PROOF_STALE,
               "The request's timestamp is too far from this server's time, which Date tells, or "
               "the signature has expired.");
    else if (detail != NULL)
        refuse(ret, IDEM_PROOF_WRONG, detail);
    else if (!idem_keyring_verify(signer->keyring,
                                  (struct idem_http_text){parts->key_id, parts->key_id_len},
                                  parts->alg, text, parts->signature, parts->signature_len))
        refuse(ret, IDEM_PROOF_WRONG,
               "The signature was not made for this request with a secret of that key id.");
    return 0;
}

void idem_sign_checked_release(struct idem_sign_checked *checked) {
    free(checked->parts.fields);
    free(checked->text);
    checked->parts.fields = NULL;
    checked->text = NULL;
}
