/*
 * Nonces and counters. A row holds the stamp in the index, expiry, value,
 * format and a checksum, 32 bytes in all. A damaged row is refused, never taken
 * for absent: a nonce that cannot be read must not be accepted again.
 */
#include "store/lmdb/lmdb_counter.h"

#include <string.h>

#include "base/error.h"
#include "protocol/checksum.h"

#define AUX_FORMAT 1
#define DAY_MS ((int64_t)24 * 3600 * 1000)

struct aux {
    uint64_t indexed;
    int64_t expires, value;
    uint32_t format, sum;
};

_Static_assert(sizeof(struct aux) == 32, "the stored form has no holes");

static uint32_t counter_checksum(const struct aux *aux, const struct idem_record_key *key) {
    return idem_checksum(key, aux, offsetof(struct aux, sum));
}

/* *ret_code is the error of this row; the return value, that of the transaction. */
static int counter_get(struct lmdb_env *env, MDB_txn *txn, const struct idem_record_key *key,
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
    if (ret->sum != counter_checksum(ret, key))
        *ret_code = IDEM_E_CORRUPT;
    else if (ret->format > AUX_FORMAT)
        *ret_code = IDEM_E_VERSION;
    return 0;
}

/* `there`: the row has an entry in the index already, under aux->indexed. */
static int counter_put(struct lmdb_env *env, MDB_txn *txn, const struct idem_record_key *key,
                       struct aux *aux, bool there) {
    MDB_val name = {idem_record_key_len(key), (void *)key->at}, value = {sizeof(*aux), aux};
    int rc = 0;

    aux->format = AUX_FORMAT;
    if (!there)
        rc = lmdb_expiry_add(env, txn, LMDB_KIND_AUX, key, aux->expires, &aux->indexed);
    aux->sum = counter_checksum(aux, key);
    return rc != 0 ? rc : mdb_put(txn, env->aux, &name, &value, 0);
}

/* Reads the row for a job. False if the job has its result by that. */
static bool counter_load(struct lmdb_env *env, MDB_txn *txn, struct lmdb_job *job, struct aux *aux,
                         bool *there, int *ret_rc) {
    int code;

    *ret_rc = counter_get(env, txn, &job->copy.key, aux, there, &code);
    if (*ret_rc != 0)
        return false;
    if (code == 0)
        return true;
    job->rc =
        idem_error_set(&job->copy.error, code, "%s: the stored counter or nonce is %s",
                       env->config.path, code == IDEM_E_VERSION ? "of a newer version" : "damaged");
    return false;
}

/* A new row needs room. In a full store the rest is reserved for runs that must finish. */
static bool counter_refuses_new(struct lmdb_env *env, MDB_txn *txn, struct lmdb_job *job,
                                bool there) {
    if (there || !lmdb_env_full(env, txn))
        return false;
    job->rc = lmdb_fail(env, &job->copy.error, MDB_MAP_FULL, "write");
    return true;
}

int lmdb_aux_once(struct lmdb_env *env, MDB_txn *txn, struct lmdb_job *job, struct idem_time now) {
    struct aux aux;
    bool there;
    int rc;

    if (!counter_load(env, txn, job, &aux, &there, &rc))
        return rc;
    job->copy.out.once.first = !there || aux.expires <= now.wall;
    if (!job->copy.out.once.first || counter_refuses_new(env, txn, job, there))
        return 0;
    aux.expires = now.wall + job->copy.in.once.ttl_ms;
    aux.value = 1;
    return counter_put(env, txn, &job->copy.key, &aux, there);
}

int lmdb_aux_count(struct lmdb_env *env, MDB_txn *txn, struct lmdb_job *job, struct idem_time now) {
    const struct idem_count_in *in = &job->copy.in.count;
    struct aux aux;
    bool there;
    int rc;

    if (!counter_load(env, txn, job, &aux, &there, &rc))
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
    if (counter_refuses_new(env, txn, job, there))
        return 0;
    aux.expires = now.wall + in->ttl_ms;
    return counter_put(env, txn, &job->copy.key, &aux, there);
}

int lmdb_aux_visit(struct lmdb_env *env, MDB_txn *txn, const struct idem_record_key *key,
                   struct idem_time now, bool *ret_gone) {
    MDB_val name = {idem_record_key_len(key), (void *)key->at};
    struct aux aux;
    uint64_t stamp;
    bool there;
    int code, rc = counter_get(env, txn, key, &aux, &there, &code);

    *ret_gone = false;
    if (rc != 0)
        return rc;
    if (code != 0)
        return lmdb_expiry_add(env, txn, LMDB_KIND_AUX, key, now.wall + DAY_MS, &stamp);
    *ret_gone = !there || aux.expires <= now.wall;
    if (*ret_gone)
        return there ? mdb_del(txn, env->aux, &name, NULL) : 0;
    return counter_put(env, txn, key, &aux, false);
}
