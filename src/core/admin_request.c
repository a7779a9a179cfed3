/*
 * Operators' requests (idem_admin): parsing, page tokens, responses and the audit line. Parsing
 * refuses unknown members: a misspelt member must not be taken for an omitted one.
 */
#include "core/admin_request.h"

#include <inttypes.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <string.h>

#include "base/bytes.h"
#include "base/error.h"
#include "base/hex.h"
#include "base/units.h"
#include "core/audit.h"
#include "protocol/record_key.h"
#include "json/json.h"
#include "json/json_out.h"

#define SETTLE_TTL_MS ((int64_t)24 * 3600 * 1000)
#define HOUR_S 3600

static const char *const action_names[] = {
    [IDEM_ADMIN_INSPECT] = "inspect",
    [IDEM_ADMIN_SETTLE] = "settle",
    [IDEM_ADMIN_FORGET] = "forget",
};

const char *idem_admin_action_name(enum idem_admin_action action) {
    return action_names[action];
}

/* Parsing. */

static bool json_text_is(const struct idem_json *value, const char *word) {
    return value->type == IDEM_JSON_STRING && idem_is_word(value->at.text, value->n, word);
}

static bool admin_read_action(const struct idem_json *value, struct idem_admin_request *request) {
    for (size_t i = 0; i < sizeof(action_names) / sizeof(action_names[0]); i++)
        if (json_text_is(value, action_names[i])) {
            request->action = (enum idem_admin_action)i;
            return true;
        }
    return false;
}

static bool admin_read_store(const struct idem_json *value, struct idem_admin_request *request) {
    request->store = (struct idem_http_text){value->at.text, value->n};
    return value->type == IDEM_JSON_STRING;
}

/* In a key the prefix comes before the hash, but the text may contain them in either order. */
static bool admin_read_prefix(const struct idem_json *value, struct idem_admin_request *request) {
    struct idem_record_key *key = &request->key;

    if (value->type != IDEM_JSON_STRING || value->n == 0 || value->n > IDEM_PREFIX_MAX ||
        memchr(value->at.text, '\0', value->n) != NULL)
        return false;
    memmove(key->at + value->n, key->at + key->prefix_len, IDEM_HASH_LEN);
    memcpy(key->at, value->at.text, value->n);
    key->prefix_len = value->n;
    return true;
}

static bool admin_read_hash(const struct idem_json *value, struct idem_admin_request *request) {
    return value->type == IDEM_JSON_STRING &&
           idem_hex_parse(value->at.text, value->n, request->key.at + request->key.prefix_len);
}

static bool admin_read_to(const struct idem_json *value, struct idem_admin_request *request) {
    if (!json_text_is(value, "done") && !json_text_is(value, "failed"))
        return false;
    request->settle.to = json_text_is(value, "done") ? IDEM_DONE : IDEM_FAILED;
    return true;
}

static bool json_number_read(const struct idem_json *value, int64_t max, int64_t *ret) {
    return value->type == IDEM_JSON_NUMBER &&
           idem_count_parse(value->at.text, value->n, ret, NULL) == 0 && *ret <= max;
}

static bool admin_read_status(const struct idem_json *value, struct idem_admin_request *request) {
    int64_t n;

    if (!json_number_read(value, 999, &n))
        return false;
    request->settle.status = (int32_t)n;
    return true;
}

static bool admin_read_attempt(const struct idem_json *value, struct idem_admin_request *request) {
    int64_t n;

    if (!json_number_read(value, UINT32_MAX, &n))
        return false;
    request->settle.attempt = (uint32_t)n;
    return true;
}

static bool admin_read_reason(const struct idem_json *value, struct idem_admin_request *request) {
    if (value->type != IDEM_JSON_STRING || value->n > IDEM_REASON_MAX)
        return false;
    for (uint32_t i = 0; i < value->n; i++)
        if ((unsigned char)value->at.text[i] < ' ' || value->at.text[i] == 0x7f)
            return false;
    request->settle.reason = (struct idem_bytes){(const unsigned char *)value->at.text, value->n};
    return true;
}

static bool admin_read_force(const struct idem_json *value, struct idem_admin_request *request) {
    request->force = value->type == IDEM_JSON_BOOL && value->flag;
    return value->type == IDEM_JSON_BOOL;
}

#define FOR_ALL (1u << IDEM_ADMIN_INSPECT | 1u << IDEM_ADMIN_SETTLE | 1u << IDEM_ADMIN_FORGET)
static const struct member {
    const char *name, *takes;
    bool (*take)(const struct idem_json *value, struct idem_admin_request *request);
    unsigned needed, allowed; /* by which actions */
} members[] = {
    {"action", "inspect, settle or forget", admin_read_action, FOR_ALL, FOR_ALL},
    {"store", "the store's name, as the page shows it", admin_read_store, FOR_ALL, FOR_ALL},
    {"prefix", "the record's prefix", admin_read_prefix, FOR_ALL, FOR_ALL},
    {"hash", "64 hexadecimal digits", admin_read_hash, FOR_ALL, FOR_ALL},
    {"to", "done or failed", admin_read_to, 1u << IDEM_ADMIN_SETTLE, 1u << IDEM_ADMIN_SETTLE},
    {"status", "a number from 0 to 999", admin_read_status, 0, 1u << IDEM_ADMIN_SETTLE},
    {"reason", "a text of at most 1024 bytes without control characters", admin_read_reason, 0,
     1u << IDEM_ADMIN_SETTLE},
    {"attempt", "the attempt that was seen", admin_read_attempt, 0, 1u << IDEM_ADMIN_SETTLE},
    {"force", "true or false", admin_read_force, 0,
     1u << IDEM_ADMIN_SETTLE | 1u << IDEM_ADMIN_FORGET},
};
#define MEMBERS (sizeof(members) / sizeof(members[0]))

/* Returns the index of a member by its name; MEMBERS: unknown. */
static size_t member_find(const struct idem_member *named) {
    size_t i = 0;

    while (i < MEMBERS && !idem_is_word(named->name, named->len, members[i].name))
        i++;
    return i;
}

/* *ret_taken: the members found, as bits. */
static int admin_read_members(const struct idem_json *all, struct idem_admin_request *request,
                              unsigned *ret_taken, struct idem_error *err) {
    for (uint32_t m = 0; m < all->n; m++) {
        const struct idem_member *named = &all->at.object->members[m];
        size_t i = member_find(named);

        if (i == MEMBERS)
            return idem_error_set(err, IDEM_E_INVALID,
                                  "There is a member that is not known. They are action, store, "
                                  "prefix, hash, to, status, reason, attempt and force.");
        if (!members[i].take(&named->value, request))
            return idem_error_set(err, IDEM_E_INVALID, "\"%s\" must be %s.", members[i].name,
                                  members[i].takes);
        *ret_taken |= 1u << i;
    }
    return 0;
}

static int admin_check_members(enum idem_admin_action action, unsigned taken,
                               struct idem_error *err) {
    for (size_t i = 0; i < MEMBERS; i++) {
        bool is_there = (taken >> i & 1) != 0;

        if (!is_there && (members[i].needed >> action & 1) != 0)
            return idem_error_set(err, IDEM_E_INVALID, "\"%s\" is missing: %s.", members[i].name,
                                  members[i].takes);
        if (is_there && (members[i].allowed >> action & 1) == 0)
            return idem_error_set(err, IDEM_E_INVALID, "\"%s\" means nothing to %s.",
                                  members[i].name, action_names[action]);
    }
    return 0;
}

int idem_admin_request_read(const char *text, size_t len, struct idem_arena *arena,
                            struct idem_admin_request *ret, struct idem_error *err) {
    static const char default_reason[] = "settled by an operator";
    struct idem_admin_request request = {.settle.ttl_ms = SETTLE_TTL_MS};
    struct idem_json all;
    unsigned taken = 0;
    int rc = idem_json_parse(text, len, arena, &all, NULL);

    if (rc == IDEM_E_NOMEM)
        return idem_error_set(err, rc, "There is no memory for it.");
    if (rc != 0 || all.type != IDEM_JSON_OBJECT)
        return idem_error_set(err, IDEM_E_INVALID, "The body must be one JSON object.");
    rc = admin_read_members(&all, &request, &taken, err);
    if (rc == 0)
        rc = admin_check_members(request.action, taken, err);
    if (rc != 0)
        return rc;
    if (request.settle.reason.len == 0)
        request.settle.reason =
            (struct idem_bytes){(const unsigned char *)default_reason, sizeof(default_reason) - 1};
    request.settle.force = request.force;
    *ret = request;
    return 0;
}

void idem_admin_request_op(const struct idem_admin_request *request, struct idem_op *op) {
    static const enum idem_op_kind kinds[] = {
        [IDEM_ADMIN_INSPECT] = IDEM_OP_LOOKUP,
        [IDEM_ADMIN_SETTLE] = IDEM_OP_SETTLE,
        [IDEM_ADMIN_FORGET] = IDEM_OP_FORGET,
    };

    memset(op, 0, sizeof(*op));
    op->kind = kinds[request->action];
    op->key = request->key;
    if (op->kind == IDEM_OP_SETTLE)
        op->in.settle = request->settle;
    else if (op->kind == IDEM_OP_FORGET)
        op->in.forget.force = request->force;
}

/* The page's token and its origin. */

static int admin_token_hash(const unsigned char secret[IDEM_ADMIN_SECRET],
                            const struct idem_admin_caller *caller, int64_t hour,
                            char out[IDEM_ADMIN_TOKEN + 1]) {
    const uint64_t head[2] = {(uint64_t)hour, caller->who.len};
    unsigned char digest[IDEM_HASH_LEN], mac[IDEM_HASH_LEN];
    struct idem_sha sha;

    idem_sha_begin(&sha);
    idem_sha_add(&sha, head, sizeof(head));
    idem_sha_add(&sha, caller->who.at, caller->who.len);
    idem_sha_add(&sha, caller->address.at, caller->address.len);
    if (idem_sha_end(&sha, digest) != 0 ||
        HMAC(EVP_sha256(), secret, IDEM_ADMIN_SECRET, digest, sizeof(digest), mac, NULL) == NULL)
        return IDEM_E_NOMEM;
    idem_hex_encode(mac, sizeof(mac), out);
    return 0;
}

int idem_admin_token_make(const unsigned char secret[IDEM_ADMIN_SECRET],
                          const struct idem_admin_caller *caller, int64_t now_s,
                          char out[IDEM_ADMIN_TOKEN + 1]) {
    return admin_token_hash(secret, caller, now_s / HOUR_S, out);
}

bool idem_admin_token_good(const unsigned char secret[IDEM_ADMIN_SECRET],
                           const struct idem_admin_caller *caller, int64_t now_s,
                           struct idem_http_text token) {
    char made[IDEM_ADMIN_TOKEN + 1];
    bool good = false;

    if (token.len != IDEM_ADMIN_TOKEN)
        return false;
    for (int64_t back = 0; back < 2; back++)
        if (admin_token_hash(secret, caller, now_s / HOUR_S - back, made) == 0 &&
            CRYPTO_memcmp(made, token.at, IDEM_ADMIN_TOKEN) == 0)
            good = true;
    return good;
}

bool idem_admin_same_origin(struct idem_http_text origin, struct idem_http_text host) {
    const char *mark = memmem(origin.at, origin.len, "://", 3);
    size_t skip = mark == NULL ? 0 : (size_t)(mark - origin.at) + 3;

    return mark != NULL && host.len > 0 &&
           idem_http_same((struct idem_http_text){origin.at + skip, origin.len - skip}, host);
}

/* Responses. */

static const char *admin_found_state(const struct idem_admin_found *found) {
    return found->entry.uncertain ? "uncertain" : idem_state_name(found->entry.state);
}

static void admin_found_write(struct json_out *json, const char *name,
                              const struct idem_admin_found *found) {
    const struct idem_entry *entry = &found->entry;

    if (found->rc != 0) {
        json_out_null(json, name);
        return;
    }
    json_out_open(json, name);
    json_out_text(json, "state", admin_found_state(found));
    json_out_bool(json, "live", found->live);
    json_out_text(json, "label", entry->label);
    json_out_text(json, "reason", entry->reason);
    json_out_uint(json, "attempt", entry->attempt);
    json_out_int(json, "status", entry->status);
    json_out_bool(json, "final", entry->final);
    json_out_bool(json, "lock", entry->locked);
    json_out_int(json, "left_ms", entry->left_ms);
    json_out_int(json, "created", entry->created_ms);
    json_out_int(json, "changed", entry->changed_ms);
    json_out_int(json, "expires", entry->expires_ms);
    json_out_bool(json, "has_result", entry->has_result);
    json_out_uint(json, "result_len", entry->result_len);
    json_out_close(json);
}

void idem_admin_answer(const struct idem_admin_found *before, const struct idem_admin_found *after,
                       FILE *out) {
    struct json_out json = {.out = out};

    json_out_open(&json, NULL);
    admin_found_write(&json, "before", before);
    admin_found_write(&json, "after", after);
    json_out_line(&json);
}

void idem_admin_problem(int status, const char *title, const char *detail, FILE *out) {
    struct json_out json = {.out = out};

    json_out_open(&json, NULL);
    json_out_text(&json, "type", "about:blank");
    json_out_text(&json, "title", title);
    json_out_int(&json, "status", status);
    json_out_text(&json, "detail", detail);
    json_out_line(&json);
}

/* The audit. */

#define LINE_TEXT 200 /* bytes of each text, so that a line of nginx's log holds all of them */
#define LINE_COPY (LINE_TEXT + 4) /* a longer text stays too long, even if a character is cut */

static const char *admin_text_copy(const void *at, size_t len, char ret[LINE_COPY]) {
    if (len > LINE_COPY - 1)
        len = LINE_COPY - 1;
    memcpy(ret, at, len);
    ret[len] = '\0';
    return ret;
}

static const char *admin_found_name(const struct idem_admin_found *found) {
    return found->rc == 0                      ? admin_found_state(found)
           : found->rc == IDEM_E_ABSENT        ? "absent"
           : found->rc == IDEM_E_CORRUPT       ? "damaged"
           : found->rc == IDEM_ADMIN_NOT_ASKED ? NULL
                                               : "unknown";
}

static const char *admin_request_target(const struct idem_admin_request *request) {
    return idem_state_name(request->action == IDEM_ADMIN_SETTLE ? request->settle.to : IDEM_ABSENT);
}

void idem_admin_line(const struct idem_admin_audit *audit, char out[IDEM_ADMIN_LINE]) {
    const struct idem_admin_request *request = audit->request;
    const struct idem_admin_found *before = audit->before, *after = audit->after;
    char who[LINE_COPY], address[LINE_COPY], prefix[LINE_COPY], store[LINE_COPY], reason[LINE_COPY];
    char hash[IDEM_HEX_LEN + 1];
    struct idem_audit line = {
        .time_ms = audit->time_ms,
        .who = admin_text_copy(audit->caller->who.at, audit->caller->who.len, who),
        .address = admin_text_copy(audit->caller->address.at, audit->caller->address.len, address),
        .action = action_names[request->action],
        .result = audit->begun ? "begun" : idem_audit_result(audit->code),
        .record = hash,
        .prefix = admin_text_copy(request->key.at, request->key.prefix_len, prefix),
        .store = admin_text_copy(request->store.at, request->store.len, store),
        .before = admin_found_name(before),
        .attempt = before->entry.attempt,
        .after = audit->begun ? admin_request_target(request) : admin_found_name(after),
        .status = audit->begun ? request->settle.status : after->entry.status,
        .force = request->force,
        .label = before->entry.label,
    };
    FILE *file = fmemopen(out, IDEM_ADMIN_LINE, "w");

    out[0] = '\0';
    if (file == NULL)
        return;
    idem_record_key_hex(&request->key, hash);
    if (request->action == IDEM_ADMIN_SETTLE)
        line.reason =
            admin_text_copy(request->settle.reason.at, request->settle.reason.len, reason);
    idem_audit_write(&line, LINE_TEXT, file);
    fclose(file);
    out[strcspn(out, "\n")] = '\0';
}
