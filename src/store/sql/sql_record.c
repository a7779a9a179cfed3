/*
 * Converts a record to a row and back. Fails on rows that no version of Idem has written.
 */
#include <string.h>

#include "store/sql/sql_engine.h"

#define MS_MAX ((int64_t)1 << 53)

/* A binding has a column of its own. */
#define FLAGS (IDEM_RECORD_BOUND - 1)

const unsigned char sql_unread[1];

/* Reads cells by column; `bad` stays set. */
struct reader {
    const struct sql_value *cells;
    bool bad;
};

static int64_t reader_get_int(struct reader *r, enum sql_column column, int64_t min, int64_t max) {
    const struct sql_value *cell = &r->cells[column];

    if (cell->type != SQL_INT || cell->n < min || cell->n > max) {
        r->bad = true;
        return min;
    }
    return cell->n;
}

static int64_t reader_get_time(struct reader *r, enum sql_column column, bool may_be_null) {
    const struct sql_value *cell = &r->cells[column];

    if (cell->type == SQL_NULL && may_be_null)
        return 0;
    if (cell->type != SQL_MS || cell->n < 0 || cell->n > MS_MAX) {
        r->bad = true;
        return 0;
    }
    return cell->n;
}

/* Exactly `len` bytes. False: the cell is NULL or bad. */
static bool reader_get_hash(struct reader *r, enum sql_column column, void *out, size_t len) {
    const struct sql_value *cell = &r->cells[column];

    if (cell->type == SQL_NULL)
        return false;
    if (cell->type != SQL_BYTES || cell->bytes.len != len) {
        r->bad = true;
        return false;
    }
    memcpy(out, cell->bytes.at, len);
    return true;
}

static void reader_get_fingerprint(struct reader *r, enum sql_column definition,
                                   enum sql_column hash, struct idem_fingerprint *ret) {
    ret->definition = (uint32_t)reader_get_int(r, definition, 0, UINT32_MAX);
    if (reader_get_hash(r, hash, ret->hash, IDEM_HASH_LEN) != (ret->definition != 0))
        r->bad = true;
}

static struct idem_bytes reader_get_bytes(struct reader *r, enum sql_column column, size_t max) {
    const struct sql_value *cell = &r->cells[column];

    if (cell->type == SQL_BYTES && cell->bytes.len <= max)
        return cell->bytes;
    if (cell->type != SQL_NULL)
        r->bad = true;
    return (struct idem_bytes){0};
}

static void reader_get_prior(struct reader *r, struct idem_record *ret) {
    if (r->cells[SQL_COL_PRIOR_STATE].type == SQL_NULL)
        return;
    ret->prior.state =
        (enum idem_state)reader_get_int(r, SQL_COL_PRIOR_STATE, IDEM_ISSUED, IDEM_FAILED);
    ret->prior.tries = (uint32_t)reader_get_int(r, SQL_COL_PRIOR_TRIES, 0, UINT32_MAX);
    ret->prior.due = reader_get_time(r, SQL_COL_PRIOR_DUE, true);
    ret->prior.expires = reader_get_time(r, SQL_COL_PRIOR_EXPIRES, false);
    reader_get_fingerprint(r, SQL_COL_PRIOR_DEFINITION, SQL_COL_PRIOR_FINGERPRINT,
                           &ret->prior.fingerprint);
}

static void reader_get_result(struct reader *r, struct idem_record *ret) {
    const struct sql_value *len = &r->cells[SQL_COL_RESULT_LEN];

    ret->result = reader_get_bytes(r, SQL_COL_RESULT, IDEM_RESULT_MAX);
    if (r->cells[SQL_COL_RESULT].type == SQL_NULL) {
        ret->result.at = sql_unread;
        ret->result.len = len->type == SQL_NULL
                              ? 0
                              : (size_t)reader_get_int(r, SQL_COL_RESULT_LEN, 0, IDEM_RESULT_MAX);
    }
}

int sql_row_decode(const struct sql_value *cells, struct idem_record *ret, int64_t *ret_now) {
    struct reader r = {cells, false};
    struct idem_record record = {0};

    if (cells[SQL_COL_FORMAT].type == SQL_INT && cells[SQL_COL_FORMAT].n > IDEM_RECORD_FORMAT)
        return IDEM_E_VERSION;
    (void)reader_get_int(&r, SQL_COL_FORMAT, 1, IDEM_RECORD_FORMAT);
    record.state = (enum idem_state)reader_get_int(&r, SQL_COL_STATE, IDEM_ISSUED, IDEM_FAILED);
    idem_record_set_flags(&record, (unsigned)reader_get_int(&r, SQL_COL_FLAGS, 0, FLAGS));
    record.attempt = (uint32_t)reader_get_int(&r, SQL_COL_ATTEMPT, 0, UINT32_MAX);
    record.tries = (uint32_t)reader_get_int(&r, SQL_COL_TRIES, 0, UINT32_MAX);
    if (!reader_get_hash(&r, SQL_COL_OWNER, record.owner, IDEM_OWNER_LEN))
        r.bad = true;
    reader_get_fingerprint(&r, SQL_COL_DEFINITION, SQL_COL_FINGERPRINT, &record.fingerprint);
    record.bound = reader_get_hash(&r, SQL_COL_BIND, record.bind, IDEM_HASH_LEN);
    record.lease_end = reader_get_time(&r, SQL_COL_LEASE_END, record.state != IDEM_RUNNING);
    record.expires = reader_get_time(&r, SQL_COL_EXPIRES, false);
    record.created = reader_get_time(&r, SQL_COL_CREATED, false);
    record.changed = reader_get_time(&r, SQL_COL_CHANGED, false);
    record.status = (int32_t)reader_get_int(&r, SQL_COL_STATUS, INT32_MIN, INT32_MAX);
    reader_get_prior(&r, &record);
    record.label = reader_get_bytes(&r, SQL_COL_LABEL, IDEM_LABEL_MAX);
    record.reason = reader_get_bytes(&r, SQL_COL_REASON, IDEM_REASON_MAX);
    reader_get_result(&r, &record);
    *ret_now = reader_get_time(&r, SQL_COL_NOW, false);
    if (r.bad)
        return IDEM_E_CORRUPT;
    *ret = record;
    return 0;
}

/* Writing. */

static struct sql_value record_time_value(int64_t ms) {
    return ms == 0 ? sql_null() : (struct sql_value){.type = SQL_MS, .n = ms};
}

static struct sql_value record_bytes_value(struct idem_bytes bytes) {
    return bytes.len == 0 ? sql_null() : sql_bytes(bytes.at, bytes.len);
}

static struct sql_value record_hash_value(const struct idem_fingerprint *fingerprint) {
    return fingerprint->definition == 0 ? sql_null() : sql_bytes(fingerprint->hash, IDEM_HASH_LEN);
}

int64_t sql_row_flags(const struct idem_record *record) {
    return idem_record_flags(record) & FLAGS;
}

static size_t record_put_prior(const struct idem_record *record, struct sql_value *out) {
    size_t n = 0;

    if (record->state != IDEM_RUNNING || record->prior.state == IDEM_ABSENT) {
        while (n < 6)
            out[n++] = sql_null();
        return n;
    }
    out[n++] = sql_int(record->prior.state);
    out[n++] = sql_int(record->prior.tries);
    out[n++] = record_time_value(record->prior.due);
    out[n++] = record_time_value(record->prior.expires);
    out[n++] = sql_int(record->prior.fingerprint.definition);
    out[n++] = record_hash_value(&record->prior.fingerprint);
    return n;
}

/* The values of a record that INSERT and UPDATE begin with. */
static size_t record_put_head(const struct idem_record *record, int64_t revision,
                              struct sql_value *out) {
    size_t n = 0;

    out[n++] = sql_int(revision);
    out[n++] = sql_int(record->state);
    out[n++] = sql_int(sql_row_flags(record));
    out[n++] = sql_int(record->attempt);
    out[n++] = sql_int(record->tries);
    out[n++] = sql_bytes(record->owner, IDEM_OWNER_LEN);
    out[n++] = sql_int(record->fingerprint.definition);
    out[n++] = record_hash_value(&record->fingerprint);
    out[n++] = record->bound ? sql_bytes(record->bind, IDEM_HASH_LEN) : sql_null();
    return n;
}

size_t sql_row_encode(const struct idem_record_key *key, const struct idem_record *record,
                      int64_t was, int64_t revision, bool result, struct sql_value *out) {
    size_t n = record_put_head(record, revision, out);

    out[n++] = record_time_value(record->lease_end);
    out[n++] = record_time_value(record->expires);
    out[n++] = record_time_value(record->created);
    out[n++] = record_time_value(record->changed);
    out[n++] = sql_int(record->status);
    n += record_put_prior(record, out + n);
    out[n++] = record_bytes_value(record->label);
    out[n++] = record_bytes_value(record->reason);
    if (result)
        out[n++] = record_bytes_value(record->result);
    n += sql_put_key(key, out + n);
    out[n++] = sql_int(was);
    return n;
}

size_t sql_row_insert(const struct idem_record_key *key, const struct idem_record *record,
                      int64_t revision, int64_t lease_ms, int64_t life_ms, struct sql_value *out) {
    size_t n = sql_put_key(key, out);

    n += record_put_head(record, revision, out + n);
    out[n++] = record->state == IDEM_RUNNING ? sql_int(lease_ms) : sql_null();
    out[n++] = sql_int(life_ms);
    out[n++] = record_bytes_value(record->label);
    return n;
}
