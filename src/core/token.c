/*
 * Tokens: keys that are issued before they are used. A token is 128 random bits; its record, in
 * state issued, waits for the claim that uses it. Fails where the store does. A token whose issue
 * was not acknowledged is not returned, and expires.
 */
#include <openssl/crypto.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/hash.h"
#include "base/hex.h"
#include "core/claim.h"
#include "core/store_call.h"
#include "protocol/owner.h"

struct idem_issue {
    struct idem_store_call store_call;
    char token[IDEM_TOKEN_LEN + 1];
    char label[IDEM_LABEL_MAX];
    idem_issue_cb *cb;
    void *data;
};

static int token_make(char out[IDEM_TOKEN_LEN + 1], struct idem_error *err) {
    unsigned char bits[IDEM_TOKEN_LEN / 2];

    if (idem_random(bits, sizeof(bits)) != 0)
        return idem_error_set(err, IDEM_E_REFUSED, "the system gives no random bits");
    idem_hex_encode(bits, sizeof(bits), out);
    OPENSSL_cleanse(bits, sizeof(bits));
    return 0;
}

/* Fills the store operation; the label is put into `room`. */
static int token_fill_op(const struct idem_guard *guard, const struct idem_args *args,
                         const char *token, char room[IDEM_LABEL_MAX], struct idem_op *op,
                         struct idem_error *err) {
    struct idem_issue_in *in = &op->in.issue;
    struct idem_policy policy;
    int rc = idem_guard_with(guard, args->with, &policy, err);

    if (rc == 0 && policy.key_kind != IDEM_KEY_TOKEN)
        rc = idem_error_set(
            err, IDEM_E_INVALID,
            "no token can be issued for this policy, whose keys are not tokens: set key = token");
    if (rc == 0 && args->key != NULL)
        rc = idem_error_set(err, IDEM_E_INVALID,
                            "idem_args.key is set, and a token that is issued is a new one");
    if (rc == 0 && args->bind != NULL && args->bind_len == 0)
        rc = idem_error_set(
            err, IDEM_E_INVALID,
            "idem_args.bind is empty: every caller without a value could use the token");
    if (rc != 0 ||
        (rc = idem_claim_prepare_name(
             &policy, args, (struct idem_bytes){(const unsigned char *)token, IDEM_TOKEN_LEN},
             &op->key, err)) != 0 ||
        (rc = idem_claim_prepare_label(args->label, room, &in->label, err)) != 0 ||
        (rc = idem_claim_prepare_bind(args, in->bind, &in->has_bind, err)) != 0)
        return rc;
    if (idem_owner_make(in->owner) != 0)
        return idem_error_set(err, IDEM_E_REFUSED, "the system gives no random bits");
    in->ttl_ms = policy.token_ttl_s * 1000;
    op->kind = IDEM_OP_ISSUE;
    return 0;
}

/* A collision of 128 random bits means the RNG is broken. */
static int token_check_issued(const struct idem_op *op, struct idem_error *err) {
    if (op->out.issue.issued)
        return 0;
    return idem_error_set(err, IDEM_E_REFUSED,
                          "a token of 128 random bits is taken already: the system's random "
                          "numbers are not to be trusted");
}

int idem_token_issue(struct idem *h, const struct idem_guard *guard, const struct idem_args *args,
                     char token[IDEM_TOKEN_LEN + 1], struct idem_error *err) {
    char made[IDEM_TOKEN_LEN + 1], label[IDEM_LABEL_MAX];
    struct idem_op op = {0};
    int rc = idem_need(h, err) ?: idem_need(guard, err) ?: idem_need(args, err);

    if (rc != 0 || (rc = idem_need(token, err)) != 0 ||
        (rc = idem_handle_check_blocking(h, err)) != 0 || (rc = token_make(made, err)) != 0 ||
        (rc = token_fill_op(guard, args, made, label, &op, err)) != 0 ||
        (rc = idem_handle_run(h, &op, NULL, err)) != 0 || (rc = token_check_issued(&op, err)) != 0)
        return rc;
    memcpy(token, made, sizeof(made));
    return 0;
}

/* On a loop. */

static void token_issue_complete(struct idem_store_call *store_call, int rc,
                                 const struct idem_error *err) {
    struct idem_issue *issue = idem_container_of(store_call, struct idem_issue, store_call);
    struct idem_error why;

    if (rc == 0 && (rc = token_check_issued(&store_call->op, &why)) != 0)
        err = &why;
    issue->cb(issue, rc, rc == 0 ? issue->token : NULL, err, issue->data);
}

int idem_issue_new(struct idem *h, const struct idem_guard *guard, const struct idem_args *args,
                   idem_issue_cb *cb, void *data, struct idem_issue **ret, struct idem_error *err) {
    struct idem_issue *issue;
    int rc = idem_need(h, err) ?: idem_need(guard, err) ?: idem_need(args, err);

    if (rc == 0)
        rc = idem_need(cb, err) ?: idem_need(ret, err) ?: idem_handle_check_loop(h, err);
    if (rc != 0)
        return rc;
    issue = calloc(1, sizeof(*issue));
    if (issue == NULL)
        return idem_error_set(err, IDEM_E_NOMEM, "no memory for a token");
    if ((rc = token_make(issue->token, err)) != 0 ||
        (rc = token_fill_op(guard, args, issue->token, issue->label, &issue->store_call.op, err)) !=
            0) {
        free(issue);
        return rc;
    }
    issue->cb = cb;
    issue->data = data;
    issue->store_call.answered = token_issue_complete;
    idem_store_call_start(h, &issue->store_call);
    *ret = issue;
    return 0;
}

void idem_issue_free(struct idem_issue *issue) {
    if (issue == NULL)
        return;
    idem_store_call_stop(&issue->store_call);
    OPENSSL_cleanse(issue->token, sizeof(issue->token));
    free(issue);
}
