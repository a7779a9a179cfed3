/*
 * Builds the key and the fingerprint of a call. Fails on missing, empty or too long arguments, on
 * JSON that cannot be read, and on the errors of an expression. No error text contains a key, a
 * scope or an argument.
 */
#include "core/key.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/hex.h"
#include "core/fingerprint.h"
#include "expr/expr.h"

/* The memory that an evaluation may use beside the document. */
#define WORK_ROOM ((size_t)4 << 20)

/* Builds the identity of one call. */
struct builder {
    const struct idem_guard *guard;
    const struct idem_policy *policy;
    const struct idem_args *args;
    struct idem_identity *ret;
    struct idem_error *err;
    struct idem_arena arena;
    struct idem_json json; /* the arguments, valid once `read` is set */
    bool read;
};

static int key_refuse_length(struct idem_error *err, size_t len) {
    return idem_error_set(err, IDEM_E_INVALID, "the key has %zu bytes; at most %d are allowed", len,
                          IDEM_KEY_MAX);
}

static int key_set(struct idem_identity *ret, const void *key, size_t len, struct idem_error *err) {
    if (len > IDEM_KEY_MAX)
        return key_refuse_length(err, len);
    memcpy(ret->key, key, len);
    ret->key_len = len;
    return 0;
}

/* Prefixes an error with the policy option that it concerns. */
static int key_error_at(struct idem_error *err, const char *word, int rc,
                        const struct idem_error *why) {
    return idem_error_set(err, rc, "%s: %s", word, why->text);
}

/* Parses the arguments for an expression, once. */
static int builder_read_json(struct builder *m, const char *word) {
    const struct idem_args *args = m->args;
    struct idem_error why;
    int rc;

    if (m->read)
        return 0;
    if (args->json == NULL)
        return idem_error_set(m->err, IDEM_E_INVALID,
                              "%s reads the arguments, and the call brings none: set "
                              "idem_args.json to an object whose members are the variables",
                              word);
    if (args->json_len > (size_t)m->policy->json_max)
        return idem_error_set(m->err, IDEM_E_INVALID,
                              "%s: the arguments have %zu bytes; json_max allows %lld", word,
                              args->json_len, (long long)m->policy->json_max);
    idem_fingerprint_arena(&m->arena, args->json_len);
    m->arena.left += WORK_ROOM;
    rc = idem_json_parse(args->json, args->json_len, &m->arena, &m->json, &why);
    if (rc != 0)
        return key_error_at(m->err, "the arguments (idem_args.json)", rc, &why);
    m->read = true;
    return 0;
}

/* Keys. */

static int key_given(struct builder *m) {
    const struct idem_args *args = m->args;
    long n;

    if (args->key == NULL && m->policy->key_fn != NULL) {
        n = m->policy->key_fn(args->data, (char *)m->ret->key, sizeof(m->ret->key));
        if (n < 0 || (size_t)n > sizeof(m->ret->key))
            return idem_error_set(m->err, IDEM_E_INVALID, "the policy's key_fn refused the call");
        m->ret->key_len = (size_t)n;
        if (n > 0)
            return 0;
    }
    if (args->key == NULL || args->key_len == 0)
        return idem_error_set(m->err, IDEM_E_INVALID,
                              "a key is needed: set idem_args.key, or a "
                              "key_fn in the policy that returns one");
    return key_set(m->ret, args->key, args->key_len, m->err);
}

static int key_expression(struct builder *m) {
    struct idem_error why;
    const char *key;
    size_t len;
    int rc;

    if (m->guard->key_expr == NULL)
        return idem_error_set(
            m->err, IDEM_E_INVALID,
            "the call has key = expression, and its guard has no key_expr: set both in the policy");
    rc = builder_read_json(m, "key_expr");
    if (rc != 0)
        return rc;
    rc = idem_expr_key(m->guard->key_expr, &m->json, &m->arena, &key, &len, &why);
    return rc != 0 ? key_error_at(m->err, "key_expr", rc, &why) : key_set(m->ret, key, len, m->err);
}

int idem_key_parameters(struct idem_bytes path, const struct idem_fingerprint *arguments,
                        struct idem_identity *ret, struct idem_error *err) {
    char *at;

    if (path.len == 0)
        return idem_error_set(err, IDEM_E_INVALID,
                              "key = parameters needs the path of the request (idem_args.path)");
    if (path.len > IDEM_KEY_MAX - 1 - 2 * IDEM_HASH_LEN)
        return key_refuse_length(err, path.len + 1 + 2 * IDEM_HASH_LEN);
    memcpy(ret->key, path.at, path.len);
    at = (char *)ret->key + path.len;
    *at++ = ':';
    at = idem_hex_write(arguments->hash, IDEM_HASH_LEN, at);
    ret->key_len = (size_t)(at - (char *)ret->key);
    return 0;
}

static int key_parameters(struct builder *m) {
    const struct idem_args *args = m->args;
    struct idem_fingerprint arguments;
    struct idem_fingerprint_hash hash;
    int rc = 0, ended;

    idem_fingerprint_begin(&hash);
    if (args->json != NULL)
        rc = idem_fingerprint_body(&hash, "json", true, (size_t)m->policy->json_max, args->json,
                                   args->json_len, m->err);
    ended = idem_fingerprint_end(&hash, &arguments);
    if (rc == 0 && ended != 0)
        rc = idem_error_set(m->err, ended, "no memory for a hash");
    if (rc != 0)
        return rc;
    return idem_key_parameters((struct idem_bytes){args->path, args->path_len}, &arguments, m->ret,
                               m->err);
}

int idem_key_serial(struct idem_bytes serial, struct idem_bytes credential,
                    struct idem_identity *ret, struct idem_error *err) {
    const char *missing = serial.len == 0 ? "serial" : "credential";
    int n;

    if (serial.len == 0 || credential.len == 0)
        return idem_error_set(err, IDEM_E_INVALID,
                              "key = serial needs the serial number and the credential's id, and "
                              "the %s is missing (idem_args.%s)",
                              missing, missing);
    n = snprintf((char *)ret->key, sizeof(ret->key), "%zu:", credential.len);
    if (credential.len > IDEM_KEY_MAX || serial.len > IDEM_KEY_MAX)
        return key_refuse_length(err, credential.len > IDEM_KEY_MAX ? credential.len : serial.len);
    ret->key_len = (size_t)n + credential.len + 1 + serial.len;
    if (ret->key_len > IDEM_KEY_MAX)
        return key_refuse_length(err, ret->key_len);
    memcpy(ret->key + n, credential.at, credential.len);
    ret->key[(size_t)n + credential.len] = ':';
    memcpy(ret->key + (size_t)n + credential.len + 1, serial.at, serial.len);
    return 0;
}

static int key_serial(struct builder *m) {
    const struct idem_args *args = m->args;

    return idem_key_serial((struct idem_bytes){args->serial, args->serial_len},
                           (struct idem_bytes){args->credential, args->credential_len}, m->ret,
                           m->err);
}

static int key_make(struct builder *m) {
    static int (*const makers[])(struct builder * m) = {
        [IDEM_KEY_LITERAL] = key_given,         [IDEM_KEY_TOKEN] = key_given,
        [IDEM_KEY_EXPRESSION] = key_expression, [IDEM_KEY_PARAMETERS] = key_parameters,
        [IDEM_KEY_SERIAL] = key_serial,
    };
    enum idem_key_kind kind = m->policy->key_kind;

    /* A caller that passes a key for a policy that makes its own confuses the two. */
    if (makers[kind] != key_given && m->args->key != NULL)
        return idem_error_set(m->err, IDEM_E_INVALID,
                              "idem_args.key is set, and the policy makes its keys itself "
                              "(key = %s)",
                              idem_word_name(idem_words_key, (int)kind));
    return makers[kind](m);
}

/* Fingerprints. */

static int builder_hash_selected(struct builder *m, struct idem_fingerprint_hash *fingerprint) {
    const struct idem_expr *expr = m->guard->fingerprint_expr;
    struct idem_json selected;
    struct idem_error why;
    int rc = builder_read_json(m, "fingerprint_expr");

    if (rc != 0)
        return rc;
    rc = idem_expr_select(expr, &m->json, &m->arena, &selected, &why);
    if (rc == 0)
        rc = idem_fingerprint_json(fingerprint, idem_expr_text(expr), IDEM_FINGERPRINT_VALUE,
                                   &selected, &why);
    return rc != 0 ? key_error_at(m->err, "fingerprint_expr", rc, &why) : 0;
}

static int builder_hash_arguments(struct builder *m, struct idem_fingerprint_hash *fingerprint) {
    const struct idem_args *args = m->args;

    if (m->policy->fingerprint_expr != NULL)
        return builder_hash_selected(m, fingerprint);
    if (m->read)
        return idem_fingerprint_json(fingerprint, "json", IDEM_FINGERPRINT_JSON, &m->json, m->err);
    return idem_fingerprint_body(fingerprint, "json", true, (size_t)m->policy->json_max, args->json,
                                 args->json_len, m->err);
}

static int builder_compute_fingerprint(struct builder *m) {
    struct idem_fingerprint fingerprint;
    struct idem_fingerprint_hash hash;
    int rc, ended;

    idem_fingerprint_begin(&hash);
    idem_fingerprint_number(&hash, (uint32_t)m->policy->fingerprint);
    rc = builder_hash_arguments(m, &hash);
    ended = idem_fingerprint_end(&hash, &fingerprint);
    if (rc == 0 && ended != 0)
        rc = idem_error_set(m->err, ended, "no memory for a hash");
    if (rc == 0)
        m->ret->fingerprint = fingerprint;
    return rc;
}

static int builder_copy_fingerprint(struct builder *m) {
    const struct idem_args *args = m->args;
    int rc = idem_sha256((struct idem_bytes){args->fingerprint, args->fingerprint_len},
                         m->ret->fingerprint.hash);

    if (rc != 0)
        return idem_error_set(m->err, rc, "no memory for a hash");
    /* 0: a policy that makes its own keys and has no fingerprint option. */
    m->ret->fingerprint.definition =
        m->policy->fingerprint == 0 ? 1 : (uint32_t)m->policy->fingerprint;
    return 0;
}

static int builder_make_fingerprint(struct builder *m) {
    const struct idem_args *args = m->args;

    if (m->policy->fingerprint == IDEM_NONE)
        return 0;
    if (m->policy->fingerprint_expr != NULL && args->fingerprint != NULL)
        return idem_error_set(m->err, IDEM_E_INVALID,
                              "the call brings a fingerprint, and the policy computes one "
                              "(fingerprint_expr): leave one of them out");
    if (args->fingerprint != NULL)
        return builder_copy_fingerprint(m);
    if (m->policy->fingerprint_expr != NULL || (m->policy->fingerprint != 0 && args->json != NULL))
        return builder_compute_fingerprint(m);
    return 0;
}

/* The whole identity. */

/* A length without bytes is an error: a caller that meant to pass a value must not be treated
   as one that passed none, least of all for the scope. */
static int args_check(const struct idem_args *args, struct idem_error *err) {
    const struct {
        const char *name;
        const void *at;
        size_t len;
    } given[] = {
        {"key", args->key, args->key_len},
        {"scope", args->scope, args->scope_len},
        {"fingerprint", args->fingerprint, args->fingerprint_len},
        {"bind", args->bind, args->bind_len},
        {"json", args->json, args->json_len},
        {"path", args->path, args->path_len},
        {"serial", args->serial, args->serial_len},
        {"credential", args->credential, args->credential_len},
    };

    for (size_t i = 0; i < sizeof(given) / sizeof(given[0]); i++) {
        if (given[i].at == NULL && given[i].len != 0)
            return idem_error_set(err, IDEM_E_INVALID,
                                  "idem_args.%s is NULL, and its length is not 0", given[i].name);
    }
    return 0;
}

static int identity_make(struct builder *m, bool fingerprint) {
    int rc = args_check(m->args, m->err);

    idem_arena_init(&m->arena, 0);
    if (rc == 0)
        rc = key_make(m);
    /* All of it is stored: unset bytes must not leak the stack. */
    m->ret->fingerprint = (struct idem_fingerprint){0};
    if (rc == 0 && fingerprint)
        rc = builder_make_fingerprint(m);
    idem_arena_free(&m->arena);
    return rc;
}

int idem_identity_make(const struct idem_guard *guard, const struct idem_policy *policy,
                       const struct idem_args *args, struct idem_identity *ret,
                       struct idem_error *err) {
    struct builder m = {.guard = guard, .policy = policy, .args = args, .ret = ret, .err = err};

    return identity_make(&m, true);
}

int idem_identity_make_key(const struct idem_guard *guard, const struct idem_policy *policy,
                           const struct idem_args *args, struct idem_identity *ret,
                           struct idem_error *err) {
    struct builder m = {.guard = guard, .policy = policy, .args = args, .ret = ret, .err = err};

    return identity_make(&m, false);
}
