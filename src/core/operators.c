/*
 * The operators' functions: look up, list, settle, forget, count. Blocking, on a handle from
 * idem_open().
 */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/hex.h"
#include "core/handle.h"
#include "protocol/record_entry.h"
#include "protocol/record_key.h"

#define SETTLE_STEP 100
#define SETTLE_TTL_S (24 * 3600)
#define SETTLE_TTL_MAX_S ((int64_t)3650 * 24 * 3600)

int idem_name_key(const struct idem_name *name, struct idem_record_key *ret,
                  struct idem_error *err) {
    struct idem_bytes prefix = {(const unsigned char *)name->prefix,
                                name->prefix == NULL ? 0 : strlen(name->prefix)};

    if (prefix.len == 0 || prefix.len > IDEM_PREFIX_MAX)
        return idem_error_set(err, IDEM_E_INVALID, "a prefix of 1 to %d bytes is needed",
                              IDEM_PREFIX_MAX);
    if (name->hash != NULL) {
        memcpy(ret->at, prefix.at, prefix.len);
        ret->prefix_len = prefix.len;
        if (!idem_hex_parse(name->hash, strlen(name->hash), ret->at + prefix.len))
            return idem_error_set(err, IDEM_E_INVALID, "a hash has 64 hex digits");
        return 0;
    }
    if (name->scope == NULL && name->scope_len != 0)
        return idem_error_set(err, IDEM_E_INVALID,
                              "idem_name.scope is NULL, and its length is not 0");
    if (name->key == NULL || name->key_len == 0 || name->key_len > IDEM_KEY_MAX ||
        name->scope_len > IDEM_SCOPE_MAX)
        return idem_error_set(err, IDEM_E_INVALID,
                              "a key of 1 to %d bytes, in a scope of at most "
                              "%d, or a hash is needed",
                              IDEM_KEY_MAX, IDEM_SCOPE_MAX);
    if (idem_record_key_make(ret, name->token ? IDEM_NAME_TOKEN : IDEM_NAME_RECORD, prefix,
                             (struct idem_bytes){name->scope, name->scope_len},
                             (struct idem_bytes){name->key, name->key_len}) != 0)
        return idem_error_set(err, IDEM_E_NOMEM, "no memory for a hash");
    return 0;
}

struct lookup {
    struct idem_entry entry;
    int rc;
};

static void op_copy_lookup(struct idem_op *op, int rc) {
    const struct idem_record *r = &op->out.lookup.record;
    struct lookup *lookup = op->data;
    struct idem_entry *entry = &lookup->entry;

    if (rc != 0)
        return;
    idem_entry_fill(entry, &op->key, r, op->out.lookup.live, op->out.lookup.left_ms);
    entry->result = malloc(r->result.len + 1);
    if (entry->result == NULL)
        lookup->rc = idem_error_set(&op->error, IDEM_E_NOMEM, "no memory for a result of %zu bytes",
                                    r->result.len);
    else if (r->result.len != 0)
        memcpy(entry->result, r->result.at, r->result.len);
}

int idem_lookup(struct idem *h, const struct idem_name *name, struct idem_entry *ret,
                struct idem_error *err) {
    struct lookup lookup = {0};
    struct idem_op op = {.kind = IDEM_OP_LOOKUP, .data = &lookup};
    int rc = idem_need(h, err) ?: idem_need(name, err) ?: idem_need(ret, err);

    if (rc != 0 || (rc = idem_handle_check_blocking(h, err)) != 0 ||
        (rc = idem_name_key(name, &op.key, err)) != 0 ||
        (rc = idem_handle_run(h, &op, op_copy_lookup, err)) != 0)
        return rc;
    if (lookup.rc != 0) {
        idem_error_copy(err, &op.error);
        return lookup.rc;
    }
    *ret = lookup.entry;
    return 0;
}

void idem_entry_release(struct idem_entry *entry) {
    if (entry == NULL)
        return;
    free(entry->result);
    entry->result = NULL;
}

static void op_copy_list(struct idem_op *op, int rc) {
    if (rc == 0 && op->out.list.n != 0)
        memcpy(op->data, op->out.list.entries, op->out.list.n * sizeof(struct idem_entry));
}

int idem_list(struct idem *h, const struct idem_filter *filter, struct idem_cursor *cursor,
              struct idem_entry *ret, size_t max, size_t *ret_n, struct idem_error *err) {
    struct idem_op op = {.kind = IDEM_OP_LIST, .data = ret};
    int rc = idem_need(h, err) ?: idem_need(cursor, err) ?: idem_need(ret, err);

    if (rc == 0)
        rc = idem_need(ret_n, err) ?: idem_handle_check_blocking(h, err);
    if (rc != 0)
        return rc;
    if (max == 0)
        return idem_error_set(err, IDEM_E_INVALID, "a list of at most 0 entries");
    if (cursor->len > sizeof(cursor->at))
        return idem_error_set(err, IDEM_E_INVALID, "a cursor starts as zeros; this one did not");
    if (cursor->end) {
        *ret_n = 0;
        return 0;
    }
    if (filter != NULL) {
        op.in.list.prefix.at = (const unsigned char *)filter->prefix;
        op.in.list.prefix.len = filter->prefix == NULL ? 0 : strlen(filter->prefix);
        op.in.list.state = filter->state;
        op.in.list.uncertain = filter->uncertain;
        op.in.list.since_ms = filter->since_ms;
        if (op.in.list.prefix.len > IDEM_PREFIX_MAX)
            return idem_error_set(err, IDEM_E_INVALID, "a prefix has at most %d bytes",
                                  IDEM_PREFIX_MAX);
    }
    op.in.list.cursor = *cursor;
    op.in.list.max = max;
    rc = idem_handle_run(h, &op, op_copy_list, err);
    if (rc != 0)
        return rc;
    *cursor = op.out.list.cursor;
    *ret_n = op.out.list.n;
    return 0;
}

static int settlement_check(const struct idem_settlement *how, struct idem_error *err) {
    if (how->to != IDEM_DONE && how->to != IDEM_FAILED)
        return idem_error_set(err, IDEM_E_INVALID, "a record is settled as done or as failed");
    if ((unsigned)how->from > IDEM_FAILED)
        return idem_error_set(err, IDEM_E_INVALID, "idem_settlement.from is no state of a record");
    if (how->reason != NULL && strlen(how->reason) > IDEM_REASON_MAX)
        return idem_error_set(err, IDEM_E_INVALID, "a reason has at most %d bytes",
                              IDEM_REASON_MAX);
    if (how->ttl_s < 0 || how->ttl_s > SETTLE_TTL_MAX_S)
        return idem_error_set(err, IDEM_E_INVALID, "ttl_s must be positive, at most 3650 days");
    return 0;
}

static int operators_settle(struct idem *h, const struct idem_record_key *key,
                            const struct idem_settlement *how, struct idem_error *err) {
    struct idem_op op = {.kind = IDEM_OP_SETTLE, .key = *key};

    op.in.settle = (struct idem_settle_in){
        .to = how->to,
        .status = how->status,
        .force = how->force,
        .attempt = how->attempt,
        .from = how->from,
        .ttl_ms = (how->ttl_s > 0 ? how->ttl_s : SETTLE_TTL_S) * 1000,
        .reason = {(const unsigned char *)how->reason,
                   how->reason == NULL ? 0 : strlen(how->reason)},
    };
    return idem_handle_run(h, &op, NULL, err);
}

int idem_settle(struct idem *h, const struct idem_name *name, const struct idem_settlement *how,
                struct idem_error *err) {
    struct idem_record_key key;
    int rc = idem_need(h, err) ?: idem_need(name, err) ?: idem_need(how, err);

    if (rc != 0 || (rc = idem_handle_check_blocking(h, err)) != 0 ||
        (rc = settlement_check(how, err)) != 0 || (rc = idem_name_key(name, &key, err)) != 0)
        return rc;
    return operators_settle(h, &key, how, err);
}

static bool operators_may_settle(enum idem_state state) {
    return state == IDEM_ISSUED || state == IDEM_RUNNING || state == IDEM_FAILED;
}

/* Settles one record of a list; a record that changed since it was listed is left alone. */
static int operators_settle_entry(struct idem *h, const struct idem_entry *entry,
                                  const struct idem_settlement *how, size_t *n,
                                  struct idem_error *err) {
    struct idem_name name = {.prefix = entry->prefix, .hash = entry->hash};
    struct idem_settlement as_seen = *how;
    struct idem_record_key key;
    int rc = idem_name_key(&name, &key, err);

    as_seen.attempt = entry->attempt;
    as_seen.from = entry->state;
    if (rc == 0)
        rc = operators_settle(h, &key, &as_seen, err);
    if (rc == 0)
        (*n)++;
    return rc == IDEM_E_ABSENT || rc == IDEM_E_LIVE || rc == IDEM_E_SETTLED ? 0 : rc;
}

/* Records settled before the failure stay settled, so the error reports their number. */
static void error_note_settled(struct idem_error *err, int rc, size_t settled) {
    struct idem_error cause;

    if (err == NULL)
        return;
    cause = *err;
    idem_error_set(err, rc, "%zu were settled, then: %.400s", settled, cause.text);
}

int idem_settle_all(struct idem *h, const struct idem_filter *filter,
                    const struct idem_settlement *how,
                    bool (*each)(const struct idem_entry *entry, void *data), void *data,
                    size_t *ret_n, struct idem_error *err) {
    struct idem_cursor cursor = {0};
    struct idem_entry *entries;
    size_t settled = 0;
    int rc = idem_need(h, err) ?: idem_need(how, err) ?: idem_need(ret_n, err);

    if (rc != 0 || (rc = idem_handle_check_blocking(h, err)) != 0 ||
        (rc = settlement_check(how, err)) != 0)
        return rc;
    entries = calloc(SETTLE_STEP, sizeof(*entries));
    if (entries == NULL)
        return idem_error_set(err, IDEM_E_NOMEM, "no memory to list records");
    while (rc == 0 && !cursor.end) {
        size_t n = 0;

        rc = idem_list(h, filter, &cursor, entries, SETTLE_STEP, &n, err);
        for (size_t i = 0; rc == 0 && i < n; i++)
            if (operators_may_settle(entries[i].state) && (each == NULL || each(&entries[i], data)))
                rc = operators_settle_entry(h, &entries[i], how, &settled, err);
    }
    free(entries);
    if (rc == 0)
        *ret_n = settled;
    else if (settled > 0)
        error_note_settled(err, rc, settled);
    return rc;
}

int idem_forget(struct idem *h, const struct idem_name *name, bool force, struct idem_error *err) {
    struct idem_op op = {.kind = IDEM_OP_FORGET, .in.forget.force = force};
    int rc = idem_need(h, err) ?: idem_need(name, err);

    if (rc != 0 || (rc = idem_handle_check_blocking(h, err)) != 0 ||
        (rc = idem_name_key(name, &op.key, err)) != 0)
        return rc;
    return idem_handle_run(h, &op, NULL, err);
}

int idem_stats(struct idem *h, struct idem_stats *ret, struct idem_error *err) {
    struct idem_op op = {.kind = IDEM_OP_STATS};
    int rc = idem_need(h, err) ?: idem_need(ret, err);

    if (rc != 0 || (rc = idem_handle_check_blocking(h, err)) != 0 ||
        (rc = idem_handle_run(h, &op, NULL, err)) != 0)
        return rc;
    *ret = op.out.stats;
    return 0;
}

static int operators_get_time(struct idem *h, struct idem_op *op, struct idem_error *err) {
    int rc = idem_handle_check_blocking(h, err);

    op->kind = IDEM_OP_TIME;
    return rc != 0 ? rc : idem_handle_run(h, op, NULL, err);
}

int idem_time(struct idem *h, int64_t *ret_ms, struct idem_error *err) {
    struct idem_op op = {0};
    int rc = idem_need(h, err) ?: idem_need(ret_ms, err) ?: operators_get_time(h, &op, err);

    if (rc == 0)
        *ret_ms = op.out.time.ms;
    return rc;
}

int idem_date(struct idem *h, int64_t *ret_ms, struct idem_error *err) {
    struct idem_op op = {0};
    int rc = idem_need(h, err) ?: idem_need(ret_ms, err) ?: operators_get_time(h, &op, err);

    if (rc == 0)
        *ret_ms = op.out.time.date;
    return rc;
}
