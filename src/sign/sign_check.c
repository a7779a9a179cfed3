/*
 * The order of checks: the parts are present, the timestamp is current, the signature is right. No
 * state is kept of a request that fails here; the store checks the nonce, last.
 */
#include <stdlib.h>
#include <time.h>

#include "base/error.h"
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
        *ret_detail = "The signed text is too long.";
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

static void checked_refuse(struct idem_sign_checked *ret, enum idem_proof proof,
                           const char *detail) {
    ret->proof = proof;
    ret->detail = detail;
}

/* In both directions: a request from the future could be replayed until then. */
static bool check_time_is_current(const struct idem_signer *signer,
                                  const struct idem_sign_parts *parts, int64_t now_ms) {
    if (parts->timed && (parts->time_ms < now_ms - signer->window_ms ||
                         parts->time_ms > now_ms + signer->window_ms))
        return false;
    return !parts->expires || parts->expires_ms > now_ms;
}

static int check_signature(const struct idem_signer *signer,
                           const struct idem_sign_request *request, size_t which, int64_t now_ms,
                           struct idem_sign_checked *ret, struct idem_error *err) {
    const struct idem_sign_form_row *form = idem_sign_form(signer->form);
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
    else if (!check_time_is_current(signer, parts, now_ms))
        checked_refuse(ret, IDEM_PROOF_STALE,
                       "The request's timestamp is too far from this server's time (the header "
                       "Date), or the signature has expired.");
    else if (detail != NULL)
        checked_refuse(ret, IDEM_PROOF_WRONG, detail);
    else if (!idem_keyring_verify(signer->keyring,
                                  (struct idem_http_text){parts->key_id, parts->key_id_len},
                                  parts->alg, text, parts->signature, parts->signature_len))
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
    int rc = check_signature(signer, request, 0, now_ms, ret, err);
    size_t n = rc == 0 ? ret->parts.signatures : 0, known = n > 0 && ret->parts.known;

    for (size_t i = 1; i < n; i++) {
        struct idem_sign_checked one;

        if ((rc = check_signature(signer, request, i, now_ms, &one, err)) != 0) {
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
