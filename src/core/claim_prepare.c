/*
 * Fills a claim before it is sent: the policy of this call, the key and its record name, the
 * fingerprint, the label, the binding. Reports every mistake in the call's arguments.
 */
#include <openssl/crypto.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "core/claim.h"
#include "core/key.h"
#include "protocol/owner.h"
#include "protocol/record_key.h"

/* The pause before a parked claim's first poll. */
#define POLL_FIRST_MS 250

static int claim_set_key(struct idem_claim *c, const unsigned char *key, size_t len,
                         struct idem_error *err) {
    unsigned char *at = len <= sizeof(c->key_room) ? c->key_room : malloc(len);

    if (at == NULL)
        return idem_error_set(err, IDEM_E_NOMEM, "no memory for a claim");
    memcpy(at, key, len);
    c->key_bytes = at;
    c->key_len = len;
    return 0;
}

static int claim_set_identity(struct idem_claim *c, const struct idem_guard *guard,
                              const struct idem_args *args,
                              const struct idem_fingerprint *fingerprint, struct idem_error *err) {
    struct idem_identity identity;
    int rc = fingerprint == NULL ? idem_identity_make(guard, &c->policy, args, &identity, err)
                                 : idem_identity_make_key(guard, &c->policy, args, &identity, err);

    if (rc == 0) {
        c->in.fingerprint = fingerprint == NULL ? identity.fingerprint : *fingerprint;
        rc = claim_set_key(c, identity.key, identity.key_len, err);
    }
    if (rc == 0) /* after a failure key_len is not set, and the key may be anywhere in the buffer */
        OPENSSL_cleanse(identity.key, identity.key_len);
    else
        OPENSSL_cleanse(identity.key, sizeof(identity.key));
    return rc;
}

/* The scope is the call's own, or else the policy's. */
int idem_claim_prepare_scope(const struct idem_policy *policy, const struct idem_args *args,
                             struct idem_bytes *ret, struct idem_error *err) {
    bool caller = strcmp(policy->scope, IDEM_SCOPE_CALLER) == 0;

    if (args->scope_len > IDEM_SCOPE_MAX)
        return idem_error_set(err, IDEM_E_INVALID,
                              "the scope has %zu bytes; at most %d are allowed", args->scope_len,
                              IDEM_SCOPE_MAX);
    if ((args->scope == NULL && caller) || (args->scope != NULL && args->scope_len == 0))
        return idem_error_set(err, IDEM_E_INVALID,
                              "the caller is not identified: the call's scope is %s%s; set "
                              "idem_args.scope to a stable identity (user id, API key)",
                              args->scope == NULL ? "missing" : "empty",
                              caller ? ", and the policy has scope = caller" : "");
    if (args->scope != NULL)
        *ret = (struct idem_bytes){args->scope, args->scope_len};
    else if (strcmp(policy->scope, IDEM_SCOPE_NONE) != 0)
        *ret = (struct idem_bytes){(const unsigned char *)policy->scope, strlen(policy->scope)};
    return 0;
}

int idem_claim_prepare_name(const struct idem_policy *policy, const struct idem_args *args,
                            struct idem_bytes key, struct idem_record_key *ret,
                            struct idem_error *err) {
    struct idem_bytes prefix = {(const unsigned char *)policy->prefix, strlen(policy->prefix)};
    struct idem_bytes scope = {0};
    /* A key that the caller chose is never a token, whatever its bytes. */
    enum idem_name_kind kind =
        policy->key_kind == IDEM_KEY_TOKEN ? IDEM_NAME_TOKEN : IDEM_NAME_RECORD;
    int rc = idem_claim_prepare_scope(policy, args, &scope, err);

    if (rc != 0)
        return rc;
    rc = idem_record_key_make(ret, kind, prefix, scope, key);
    return rc == 0 ? 0 : idem_error_set(err, rc, "no memory for a hash");
}

static int claim_set_name(struct idem_claim *c, const struct idem_args *args,
                          struct idem_error *err) {
    int rc = idem_claim_prepare_name(&c->policy, args,
                                     (struct idem_bytes){c->key_bytes, c->key_len}, &c->key, err);

    if (rc == 0)
        idem_record_key_hex(&c->key, c->hash);
    return rc;
}

int idem_claim_prepare_label(const char *label, char room[IDEM_LABEL_MAX], struct idem_bytes *ret,
                             struct idem_error *err) {
    struct idem_bytes text = {(const unsigned char *)label, label == NULL ? 0 : strlen(label)};

    if (text.len > IDEM_LABEL_MAX)
        return idem_error_set(err, IDEM_E_INVALID,
                              "the label has %zu bytes; at most %d are "
                              "allowed",
                              text.len, IDEM_LABEL_MAX);
    if (text.len != 0)
        memcpy(room, text.at, text.len);
    *ret = (struct idem_bytes){(const unsigned char *)room, text.len};
    return 0;
}

int idem_claim_prepare_bind(const struct idem_args *args, unsigned char bind[IDEM_HASH_LEN],
                            bool *ret_has, struct idem_error *err) {
    int rc = 0;

    *ret_has = args->bind != NULL;
    if (args->bind != NULL)
        rc = idem_sha256((struct idem_bytes){args->bind, args->bind_len}, bind);
    return rc == 0 ? 0 : idem_error_set(err, rc, "no memory for a hash");
}

/* Only keys that the server issued are bound. */
static int claim_set_bind(struct idem_claim *c, const struct idem_args *args,
                          struct idem_error *err) {
    if (c->policy.key_kind != IDEM_KEY_TOKEN)
        return 0;
    return idem_claim_prepare_bind(args, c->in.bind, &c->in.has_bind, err);
}

/* Sets the fields of a claim that its policy determines. */
int idem_claim_prepare_policy(struct idem_claim *c, bool probe, struct idem_error *err) {
    const struct idem_policy *p = &c->policy;

    if (idem_owner_make(c->in.owner) != 0)
        return idem_error_set(err, IDEM_E_REFUSED, "the system gives no random bits");
    c->in.token = p->key_kind == IDEM_KEY_TOKEN;
    c->in.probe = probe;
    c->in.mode = p->mode;
    c->in.recover = p->recover;
    c->in.on_failure = p->on_failure;
    c->in.attempts = p->attempts > 0 ? (uint32_t)p->attempts : 0;
    c->in.lease_ms = p->lease_ms;
    c->in.ttl_ms = p->ttl_s * 1000;
    c->in.hold_ttl_ms = p->hold_ttl_s * 1000;
    c->wait_until = idem_loop_now() + (p->wait_ms > 0 ? p->wait_ms : 0);
    c->poll_ms = POLL_FIRST_MS;
    return 0;
}

int idem_claim_prepare(struct idem_claim *c, const struct idem_guard *guard,
                       const struct idem_args *args, const struct idem_fingerprint *fingerprint,
                       struct idem_error *err) {
    int rc;

    if ((rc = idem_guard_with(guard, args->with, &c->policy, err)) != 0 ||
        (rc = claim_set_identity(c, guard, args, fingerprint, err)) != 0 ||
        (rc = claim_set_name(c, args, err)) != 0 ||
        (rc = idem_claim_prepare_label(args->label, c->label, &c->in.label, err)) != 0 ||
        (rc = claim_set_bind(c, args, err)) != 0)
        return rc;
    return idem_claim_prepare_policy(c, args->probe, err);
}
