/*
 * Runs each operation inside a transaction, in three parts: nonces and counters, the record under a
 * key, and the operations on records. These load the record, ask the protocol for its new state,
 * and store that.
 *
 * An error of one operation alone (no such record, a damaged record, no memory) is left in the job;
 * an error that spoils the transaction is returned as an MDB code.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "protocol/checksum.h"
#include "protocol/record_key.h"
#include "store/lmdb/lmdb_store.h"

/*
 * Nonces and counters. A row holds the stamp in the index, expiry, value,
 * format and a checksum, 32 bytes in all. A damaged row is refused, never taken
 * for absent: a nonce that cannot be read must not be accepted again.
 */

#define AUX_FORMAT 1
#define DAY_MS ((int64_t)24 * 3600 * 1000)

struct aux {
    uint64_t indexed;
    int64_t expires, value;
    uint32_t format, sum;
};

_Static_assert(sizeof(struct aux) == 32, "the stored form has no holes");

static uint32_t aux_checksum(const struct aux *aux, const struct idem_record_key *key) {
    return idem_checksum(key, aux, offsetof(struct aux, sum));
}

/* *ret_code is the error of this row; the return value, that of the transaction. */
static int aux_get(struct lmdb_env *env, MDB_txn *txn, const struct idem_record_key *key,
                   struct aux *ret, bool *ret_there, int *ret_code) {
    MDB_val name = {idem_record_key_len(key), (void *)key->at}, value;
    int rc = mdb_get(txn, env->aux, &name, &value);

    *ret = (struct aux){0};
    *ret_code = 0;
    *ret_there = rc == 0;
    if (rc != 0)
        return rc == MDB_NOTFOUND ? 0 : rc;
    if (value.mv_size != sizeof(*ret)) {
        *ret_code = IDEM_E_CORRUPT;
        return 0;
    }
    memcpy(ret, value.mv_data, sizeof(*ret));
    if (ret->sum != aux_checksum(ret, key))
        *ret_code = IDEM_E_CORRUPT;
    else if (ret->format > AUX_FORMAT)
        *ret_code = IDEM_E_VERSION;
    return 0;
}

/* `there`: the row has an entry in the index already, under aux->indexed. */
static int aux_put(struct lmdb_env *env, MDB_txn *txn, const struct idem_record_key *key,
                   struct aux *aux, bool there) {
    MDB_val name = {idem_record_key_len(key), (void *)key->at}, value = {sizeof(*aux), aux};
    int rc = 0;

    aux->format = AUX_FORMAT;
    if (!there)
        rc = lmdb_expiry_add(env, txn, LMDB_KIND_AUX, key, aux->expires, &aux->indexed);
    aux->sum = aux_checksum(aux, key);
    return rc != 0 ? rc : mdb_put(txn, env->aux, &name, &value, 0);
}

/* Reads the row for a job. False if the job has its result by that. */
static bool aux_load(struct lmdb_env *env, MDB_txn *txn, struct lmdb_job *job, struct aux *aux,
                     bool *there, int *ret_rc) {
    int code;

    *ret_rc = aux_get(env, txn, &job->copy.key, aux, there, &code);
    if (*ret_rc != 0)
        return false;
    if (code == 0)
        return true;
    job->rc =
        idem_error_set(&job->copy.error, code, "%s: the stored counter or nonce is %s",
                       env->config.path, code == IDEM_E_VERSION ? "of a newer version" : "damaged");
    return false;
}

static bool ops_refuse_full(struct lmdb_env *env, MDB_txn *txn, struct lmdb_job *job) {
    if (!lmdb_env_full(env, txn))
        return false;
    job->rc = lmdb_fail(env, &job->copy.error, MDB_MAP_FULL, "write");
    return true;
}

/* A new row needs room. In a full store the rest is reserved for runs that must finish. */
static bool aux_refuses_new(struct lmdb_env *env, MDB_txn *txn, struct lmdb_job *job, bool there) {
    return !there && ops_refuse_full(env, txn, job);
}

static int ops_once(struct lmdb_env *env, MDB_txn *txn, struct lmdb_job *job,
                    struct idem_time now) {
    struct aux aux;
    bool there;
    int rc;

    if (!aux_load(env, txn, job, &aux, &there, &rc))
        return rc;
    job->copy.out.once.first = !there || aux.expires <= now.wall;
    if (!job->copy.out.once.first || aux_refuses_new(env, txn, job, there))
        return 0;
    aux.expires = now.wall + job->copy.in.once.ttl_ms;
    aux.value = 1;
    return aux_put(env, txn, &job->copy.key, &aux, there);
}

static int ops_count(struct lmdb_env *env, MDB_txn *txn, struct lmdb_job *job,
                     struct idem_time now) {
    const struct idem_count_in *in = &job->copy.in.count;
    struct aux aux;
    bool there;
    int rc;

    if (!aux_load(env, txn, job, &aux, &there, &rc))
        return rc;
    if (!there || aux.expires <= now.wall)
        aux.value = 0;
    job->copy.out.count.changed = idem_count_apply(in, &aux.value);
    job->copy.out.count.value = aux.value;
    if (!job->copy.out.count.changed) {
        if (in->how == IDEM_COUNT_ADD)
            job->rc = idem_error_set(&job->copy.error, IDEM_E_INVALID, "the counter overflows");
        return 0;
    }
    if (aux_refuses_new(env, txn, job, there))
        return 0;
    aux.expires = now.wall + in->ttl_ms;
    return aux_put(env, txn, &job->copy.key, &aux, there);
}

int lmdb_aux_visit(struct lmdb_env *env, MDB_txn *txn, const struct idem_record_key *key,
                   struct idem_time now, bool *ret_gone) {
    MDB_val name = {idem_record_key_len(key), (void *)key->at};
    struct aux aux;
    uint64_t stamp;
    bool there;
    int code, rc = aux_get(env, txn, key, &aux, &there, &code);

    *ret_gone = false;
    if (rc != 0)
        return rc;
    if (code != 0)
        return lmdb_expiry_add(env, txn, LMDB_KIND_AUX, key, now.wall + DAY_MS, &stamp);
    *ret_gone = !there || aux.expires <= now.wall;
    if (*ret_gone)
        return there ? mdb_del(txn, env->aux, &name, NULL) : 0;
    return aux_put(env, txn, key, &aux, false);
}

/*
 * The record under a key. A value in the records table is the stamp under which the index has it (8
 * bytes), then the encoded record.
 */

#define INDEXED_LEN 8

int lmdb_record_get(struct lmdb_env *env, MDB_txn *txn, const struct idem_record_key *key,
                    struct lmdb_found *ret, struct idem_error *err, int *ret_code) {
    MDB_val name = {idem_record_key_len(key), (void *)key->at}, value;
    int rc = mdb_get(txn, env->records, &name, &value);

    ret->there = rc == 0;
    ret->indexed = 0;
    *ret_code = 0;
    if (rc != 0)
        return rc == MDB_NOTFOUND ? 0 : rc;
    *ret_code = lmdb_record_read(env, value, key, ret);
    if (*ret_code != 0) {
        char hex[IDEM_HEX_LEN + 1];

        idem_record_key_hex(key, hex);
        idem_error_set(err, *ret_code, "%s: the record %.12s is %s", env->config.path, hex,
                       *ret_code == IDEM_E_VERSION
                           ? "written by a newer version of Idem; upgrade this one"
                           : "damaged; `idem forget --force --hash` removes it, and its key may "
                             "then run again");
    }
    return 0;
}

int lmdb_record_read(const struct lmdb_env *env, MDB_val value, const struct idem_record_key *key,
                     struct lmdb_found *ret) {
    const unsigned char *at = value.mv_data;
    uint32_t epoch;
    int rc;

    if (value.mv_size < INDEXED_LEN)
        return IDEM_E_CORRUPT;
    rc = idem_record_decode((struct idem_bytes){at + INDEXED_LEN, value.mv_size - INDEXED_LEN}, key,
                            &ret->record, &epoch);
    if (rc != 0)
        return rc;
    memcpy(&ret->indexed, at, INDEXED_LEN);
    /* The machine has rebooted since: the process that held this lease has ended. */
    if (epoch != env->epoch)
        ret->record.lease_end = 0;
    return 0;
}

/* Encoded into a separate buffer: the record's strings may lie in the page that is written. */
int lmdb_record_put(struct lmdb_env *env, MDB_txn *txn, const struct idem_record_key *key,
                    const struct idem_record *record, uint64_t indexed) {
    MDB_val name = {idem_record_key_len(key), (void *)key->at}, value;
    size_t size = INDEXED_LEN + idem_record_size(record, env->epoch);

    if (size > env->scratch_size) {
        unsigned char *scratch = realloc(env->scratch, size + 1024);

        if (scratch == NULL)
            return ENOMEM;
        env->scratch = scratch;
        env->scratch_size = size + 1024;
    }
    memcpy(env->scratch, &indexed, INDEXED_LEN);
    idem_record_encode(record, env->epoch, key, env->scratch + INDEXED_LEN);
    value = (MDB_val){size, env->scratch};
    return mdb_put(txn, env->records, &name, &value, 0);
}

int lmdb_record_del(struct lmdb_env *env, MDB_txn *txn, const struct idem_record_key *key,
                    uint64_t indexed) {
    MDB_val name = {idem_record_key_len(key), (void *)key->at};
    int rc = mdb_del(txn, env->records, &name, NULL);

    return rc != 0 ? rc : lmdb_expiry_drop(env, txn, indexed);
}

/*
 * The operations on records.
 */

/* The delay after its expected end within which a run may finish without a new index entry. */
#define INDEX_GRACE_MS 60000

/* Stores a record that was not there before, with its index entry. */
static int ops_add_record(struct lmdb_env *env, MDB_txn *txn, const struct idem_record_key *key,
                          const struct idem_record *record, int64_t look_ms) {
    uint64_t stamp;
    int rc = lmdb_expiry_add(env, txn, LMDB_KIND_RECORD, key, look_ms, &stamp);

    return rc != 0 ? rc : lmdb_record_put(env, txn, key, record, stamp);
}

/* Copies to *at, and moves it behind the copy. */
static struct idem_bytes ops_copy_bytes(unsigned char **at, struct idem_bytes bytes) {
    struct idem_bytes copy = {*at, bytes.len};

    if (bytes.len != 0)
        memcpy(*at, bytes.at, bytes.len);
    *at += bytes.len;
    return copy;
}

/* Copies the strings of a result out of the map, which changes with the transaction. Most claims
   that are granted have none. */
static bool ops_copy_blob(struct lmdb_job *job, struct idem_record *record, bool with_result) {
    size_t len = record->reason.len + record->label.len;
    unsigned char *at;

    if (with_result)
        len += record->result.len;
    else
        record->result = (struct idem_bytes){0};
    if (len == 0 && !with_result) {
        record->reason = record->label = (struct idem_bytes){0};
        return true;
    }
    job->blob = idem_shared_bytes_new(len);
    if (job->blob == NULL) {
        job->rc = idem_error_set(&job->copy.error, IDEM_E_NOMEM,
                                 "no memory for a record of %zu "
                                 "bytes",
                                 record->result.len);
        return false;
    }
    at = job->blob->at;
    record->result = ops_copy_bytes(&at, record->result);
    record->reason = ops_copy_bytes(&at, record->reason);
    record->label = ops_copy_bytes(&at, record->label);
    return true;
}

/* Fills in a claim's result; the caller stores the record. */
static bool ops_fill_claim(struct lmdb_job *job, enum idem_verdict verdict, int64_t left,
                           const struct idem_record *record) {
    job->copy.out.claim.verdict = verdict;
    job->copy.out.claim.left_ms = left;
    job->copy.out.claim.record = *record;
    if (!ops_copy_blob(job, &job->copy.out.claim.record,
                       verdict == IDEM_REPLAY || verdict == IDEM_DEAD))
        return false;
    job->copy.out.claim.shared = job->blob;
    return true;
}

static int ops_claim(struct lmdb_env *env, MDB_txn *txn, struct lmdb_job *job,
                     struct lmdb_found *found, struct idem_time now) {
    const struct idem_claim_in *in = &job->copy.in.claim;
    struct idem_record fresh = {0}, *record = found->there ? &found->record : &fresh;
    enum idem_verdict verdict;
    int64_t left;
    bool write;

    verdict = idem_protocol_claim(found->there ? record : NULL, &fresh, in, now, &write, &left);
    if ((write && !found->there && ops_refuse_full(env, txn, job)) ||
        !ops_fill_claim(job, verdict, left, record) || !write)
        return 0;
    job->wakes = verdict == IDEM_DEAD;
    if (found->there)
        return lmdb_record_put(env, txn, &job->copy.key, record, found->indexed);
    return ops_add_record(env, txn, &job->copy.key, record,
                          now.wall + (in->ttl_ms < in->hold_ttl_ms ? in->ttl_ms : in->hold_ttl_ms) +
                              INDEX_GRACE_MS);
}

static int ops_finish(struct lmdb_env *env, MDB_txn *txn, struct lmdb_job *job,
                      struct lmdb_found *found, struct idem_time now) {
    enum idem_store_write write;

    job->copy.out.finish.ack = idem_protocol_finish(found->there ? &found->record : NULL,
                                                    &job->copy.in.finish, now, &write);
    job->wakes = write != IDEM_WRITE_NONE && job->copy.in.finish.action != IDEM_OWNER_RENEW;
    if (write == IDEM_WRITE_DELETE)
        return lmdb_record_del(env, txn, &job->copy.key, found->indexed);
    if (write == IDEM_WRITE_PUT)
        return lmdb_record_put(env, txn, &job->copy.key, &found->record, found->indexed);
    return 0;
}

static int ops_issue(struct lmdb_env *env, MDB_txn *txn, struct lmdb_job *job,
                     struct lmdb_found *found, struct idem_time now) {
    struct idem_record fresh;
    bool write;

    job->copy.out.issue.issued = idem_protocol_issue(found->there ? &found->record : NULL, &fresh,
                                                     &job->copy.in.issue, now, &write);
    if (!write || (!found->there && ops_refuse_full(env, txn, job)))
        return 0;
    if (found->there)
        return lmdb_record_put(env, txn, &job->copy.key, &fresh, found->indexed);
    return ops_add_record(env, txn, &job->copy.key, &fresh, fresh.expires);
}

static int ops_settle(struct lmdb_env *env, MDB_txn *txn, struct lmdb_job *job,
                      struct lmdb_found *found, struct idem_time now) {
    int code =
        idem_protocol_settle(found->there ? &found->record : NULL, &job->copy.in.settle, now);

    if (code != 0) {
        job->rc = idem_op_refuse(&job->copy, code);
        return 0;
    }
    job->wakes = true;
    return lmdb_record_put(env, txn, &job->copy.key, &found->record, found->indexed);
}

static int ops_forget(struct lmdb_env *env, MDB_txn *txn, struct lmdb_job *job,
                      struct lmdb_found *found, struct idem_time now) {
    int code =
        idem_protocol_forget(found->there ? &found->record : NULL, job->copy.in.forget.force, now);

    if (code != 0) {
        job->rc = idem_op_refuse(&job->copy, code);
        return 0;
    }
    job->wakes = true;
    return lmdb_record_del(env, txn, &job->copy.key, found->indexed);
}

typedef int decide_fn(struct lmdb_env *env, MDB_txn *txn, struct lmdb_job *job,
                      struct lmdb_found *found, struct idem_time now);

/* The operations on a record, which is loaded first. */
static decide_fn *const deciders[IDEM_OP__COUNT] = {
    [IDEM_OP_CLAIM] = ops_claim,   [IDEM_OP_FINISH] = ops_finish, [IDEM_OP_ISSUE] = ops_issue,
    [IDEM_OP_SETTLE] = ops_settle, [IDEM_OP_FORGET] = ops_forget,
};

static int ops_record(struct lmdb_env *env, MDB_txn *txn, struct lmdb_job *job,
                      struct idem_time now) {
    MDB_val name = {idem_record_key_len(&job->copy.key), job->copy.key.at};
    struct lmdb_found found;
    int rc = lmdb_record_get(env, txn, &job->copy.key, &found, &job->copy.error, &job->rc);

    if (rc == 0 && job->rc == 0)
        return deciders[job->copy.kind](env, txn, job, &found, now);
    if (rc != 0 || job->rc != IDEM_E_CORRUPT || job->copy.kind != IDEM_OP_FORGET ||
        !job->copy.in.forget.force)
        return rc;
    /* There is no other way to remove a damaged record. Its index entry, whose stamp only the
       record knows, is removed when its time arrives. */
    job->rc = 0;
    return mdb_del(txn, env->records, &name, NULL);
}

static int ops_sweep(struct lmdb_env *env, MDB_txn *txn, struct lmdb_job *job,
                     struct idem_time now) {
    struct lmdb_sweep sweep = {.budget = job->copy.in.sweep.max};
    int rc = lmdb_expiry_flush(env, txn, true);

    if (rc == 0)
        rc = lmdb_expiry_sweep(env, txn, now, &sweep);
    job->copy.out.sweep.removed = sweep.removed;
    job->copy.out.sweep.more = sweep.more;
    return rc;
}

int lmdb_op_write(struct lmdb_env *env, MDB_txn *txn, struct lmdb_job *job, struct idem_time now) {
    job->rc = 0;
    job->wakes = false;
    idem_shared_bytes_release(job->blob);
    job->blob = NULL;
    switch (job->copy.kind) {
    case IDEM_OP_ONCE:
        return ops_once(env, txn, job, now);
    case IDEM_OP_COUNT:
        return ops_count(env, txn, job, now);
    case IDEM_OP_SWEEP:
        return ops_sweep(env, txn, job, now);
    default:
        return ops_record(env, txn, job, now);
    }
}

/* A claim that changes nothing needs no write transaction: replays are reads. */
static bool ops_read_claim(struct lmdb_env *env, MDB_txn *txn, struct lmdb_job *job,
                           struct idem_time now) {
    struct idem_record fresh = {0};
    struct lmdb_found found;
    enum idem_verdict verdict;
    int64_t left;
    bool write;
    int code;

    /* A missing token is refused as fast as another client's token. */
    if (lmdb_record_get(env, txn, &job->copy.key, &found, NULL, &code) != 0 || code != 0 ||
        (!found.there && !job->copy.in.claim.token))
        return false;
    verdict = idem_protocol_claim(found.there ? &found.record : NULL, &fresh, &job->copy.in.claim,
                                  now, &write, &left);
    if (write)
        return false;
    (void)ops_fill_claim(job, verdict, left, found.there ? &found.record : &fresh);
    return true;
}

static bool ops_read_lookup(struct lmdb_env *env, MDB_txn *txn, struct lmdb_job *job,
                            struct idem_time now) {
    struct lmdb_found found = {0};
    int rc = lmdb_record_get(env, txn, &job->copy.key, &found, &job->copy.error, &job->rc);

    if (rc != 0)
        job->rc = lmdb_fail(env, &job->copy.error, rc, "read");
    if (job->rc != 0)
        return true;
    if (!found.there || idem_record_expired(&found.record, now)) {
        job->rc = idem_op_refuse(&job->copy, IDEM_E_ABSENT);
        return true;
    }
    idem_op_fill_lookup(&job->copy, &found.record, now);
    (void)ops_copy_blob(job, &job->copy.out.lookup.record, true);
    return true;
}

bool lmdb_op_read(struct lmdb_env *env, MDB_txn *txn, struct lmdb_job *job, struct idem_time now) {
    switch (job->copy.kind) {
    case IDEM_OP_CLAIM:
        return ops_read_claim(env, txn, job, now);
    case IDEM_OP_LOOKUP:
        return ops_read_lookup(env, txn, job, now);
    case IDEM_OP_TIME:
        job->copy.out.time.ms = now.wall;
        job->copy.out.time.date = lmdb_clock_real(env);
        return true;
    default:
        return false;
    }
}
