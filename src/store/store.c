/*
 * The drivers of this build, found by the scheme of a URL; and what all of them
 * want to know of an operation.
 */
#include "store/store.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "core/error.h"
#include "core/fork.h"
#include "core/hash.h"
#include "drivers.h"

/* drivers.h, written by the build, names what was chosen: IDEM_DRIVERS(X). */
#define DECLARE(name) extern const struct idem_driver idem_driver_##name;
IDEM_DRIVERS(DECLARE)

static const struct idem_driver *const drivers[] = {
#define LIST(name) &idem_driver_##name,
    IDEM_DRIVERS(LIST) NULL,
};

static const struct idem_driver *driver_find(const char *scheme) {
    for (size_t i = 0; drivers[i] != NULL; i++)
        for (size_t k = 0; drivers[i]->schemes[k] != NULL; k++)
            if (strcmp(drivers[i]->schemes[k], scheme) == 0)
                return drivers[i];
    return NULL;
}

static int unknown_scheme(const char *scheme, struct idem_error *err) {
    char known[256] = "";
    size_t len = 0;

    for (size_t i = 0; drivers[i] != NULL; i++)
        for (size_t k = 0; drivers[i]->schemes[k] != NULL && len < sizeof(known); k++)
            len += (size_t)snprintf(known + len, sizeof(known) - len, "%s%s:", len == 0 ? "" : ", ",
                                    drivers[i]->schemes[k]);
    return idem_error_set(err, IDEM_E_INVALID, "no store is called \"%.32s:\"; this build has: %s",
                          scheme, known);
}

int idem_store_check(const char *text, struct idem_error *err) {
    const struct idem_driver *driver;
    struct idem_url url;
    int rc = idem_url_parse(text, &url, err);

    if (rc != 0)
        return rc;
    driver = driver_find(url.scheme);
    rc = driver == NULL ? unknown_scheme(url.scheme, err) : driver->check(&url, err);
    idem_url_release(&url);
    return rc;
}

bool idem_store_has_transactions(const char *text) {
    const struct idem_driver *driver;
    struct idem_url url;

    if (idem_url_parse(text, &url, NULL) != 0)
        return false;
    driver = driver_find(url.scheme);
    idem_url_release(&url);
    return driver != NULL && driver->transactions;
}

int idem_store_open(const char *text, struct idem_loop *loop, const struct idem_clock *clock,
                    struct idem_store **ret, struct idem_error *err) {
    const struct idem_driver *driver;
    struct idem_url url;
    int rc = idem_url_parse(text, &url, err);

    if (rc != 0)
        return rc;
    driver = driver_find(url.scheme);
    if (driver == NULL) {
        rc = unknown_scheme(url.scheme, err);
    } else {
        /* Every slot is required. */
        assert(driver->check && driver->open && driver->close && driver->submit && driver->cancel &&
               driver->watch && driver->unwatch && driver->tally);
        rc = driver->open(&url, loop, clock, ret, err);
        if (rc == 0)
            (*ret)->driver = driver;
    }
    idem_url_release(&url);
    return rc;
}

size_t idem_op_strings(struct idem_op *op, struct idem_bytes *ret[IDEM_OP_STRINGS]) {
    switch (op->kind) {
    case IDEM_OP_CLAIM:
        ret[0] = &op->in.claim.label;
        return 1;
    case IDEM_OP_FINISH:
        ret[0] = &op->in.finish.result;
        ret[1] = &op->in.finish.reason;
        return 2;
    case IDEM_OP_ISSUE:
        ret[0] = &op->in.issue.label;
        return 1;
    case IDEM_OP_LIST:
        ret[0] = &op->in.list.prefix;
        return 1;
    case IDEM_OP_SETTLE:
        ret[0] = &op->in.settle.reason;
        return 1;
    default:
        return 0;
    }
}

size_t idem_op_strings_len(struct idem_op *op) {
    struct idem_bytes *strings[IDEM_OP_STRINGS];
    size_t n = idem_op_strings(op, strings), len = 0;

    for (size_t i = 0; i < n; i++)
        len += strings[i]->len;
    return len;
}

void idem_op_copy(const struct idem_op *op, struct idem_op *ret, unsigned char *at) {
    struct idem_bytes *strings[IDEM_OP_STRINGS];
    size_t n;

    ret->kind = op->kind;
    ret->key = op->key;
    ret->in = op->in;
    memset(&ret->out, 0, sizeof(ret->out));
    ret->error.code = 0;
    ret->error.text[0] = '\0';
    n = idem_op_strings(ret, strings);
    for (size_t i = 0; i < n; i++) {
        if (strings[i]->len != 0)
            memcpy(at, strings[i]->at, strings[i]->len);
        strings[i]->at = at;
        at += strings[i]->len;
    }
}

int idem_op_admit(struct idem_op *op, unsigned forks) {
    if (forks != idem_fork_count())
        return idem_error_set(&op->error, IDEM_E_FORK,
                              "the store was opened before a fork; open it in the process that "
                              "uses it");
    if (op->kind != IDEM_OP_LIST)
        return 0;
    if (op->in.list.max == 0)
        return idem_error_set(&op->error, IDEM_E_INVALID, "a list of at most 0 entries");
    if (op->in.list.max > IDEM_LIST_MAX)
        op->in.list.max = IDEM_LIST_MAX;
    return 0;
}

int idem_op_refuse_tx(struct idem_op *op) {
    return idem_error_set(&op->error, IDEM_E_INVALID,
                          "this store is no SQL database, in which there could be a row of a "
                          "guarded transaction");
}

int idem_op_refuse(struct idem_op *op, int code) {
    char hex[IDEM_HEX_LEN + 1];
    const char *text = code == IDEM_E_ABSENT ? "there is no such record"
                       : code == IDEM_E_LIVE
                           ? "somebody holds it with a live lease (wait, or use force), or it is "
                             "not at that attempt any more"
                           : "it is done already (forget it if it must run again), or somebody "
                             "has settled it since it was seen";

    idem_record_key_hex(&op->key, hex);
    return idem_error_set(&op->error, code, "record %.12s: %s", hex, text);
}

bool idem_list_wants(const struct idem_list_in *in, const struct idem_record *record, bool live) {
    if (record->changed < in->since_ms)
        return false;
    if (in->uncertain)
        return record->state == IDEM_RUNNING && !live;
    return in->state == IDEM_ABSENT || in->state == record->state;
}

bool idem_list_wants_bad(const struct idem_list_in *in, enum idem_state state) {
    return !in->uncertain && (in->state == IDEM_ABSENT || in->state == state);
}

bool idem_count_apply(const struct idem_count_in *in, int64_t *value) {
    switch (in->how) {
    case IDEM_COUNT_ADD:
        return !__builtin_add_overflow(*value, in->value, value);
    case IDEM_COUNT_RAISE:
        if (in->value <= *value)
            return false;
        break;
    case IDEM_COUNT_NEXT:
        if (*value == INT64_MAX || in->value != *value + 1)
            return false;
        break;
    }
    *value = in->value;
    return true;
}
