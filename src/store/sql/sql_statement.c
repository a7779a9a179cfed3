/*
 * The values that each statement takes and returns, the same for every engine. Values are in the
 * order of the unnumbered placeholders; a value that occurs twice in such a text is passed twice.
 */
#include "store/sql/sql_engine.h"

/* revision, format, state, flags, attempt, tries, owner, definition, fingerprint, bind, lease_end,
   expires, created, changed, status, prior: state, tries, due, expires, definition, fingerprint;
   label, reason, result, its length, now */
#define RECORD "iiiiiibibbttttiiittibbbbit"
/* revision, state, flags, attempt, tries, owner, definition, fingerprint, bind, lease_end,
   expires, created, changed, status, prior (six values), label, reason */
#define WRITTEN "ihhiibibbttttnhittibbb"

/* prefix, hash; SQL_REMOVE_MAX times */
#define KEYS_16 "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
#define KEYS KEYS_16 KEYS_16 KEYS_16 KEYS_16
_Static_assert(sizeof(KEYS) == 2 * SQL_REMOVE_MAX + 1, "a letter for each value");

const struct sql_shape sql_shapes[SQL_STATEMENT__COUNT] = {
    /* prefix, hash, revision, state, flags, attempt, tries, owner, definition, fingerprint, bind,
       lease, life, label */
    [SQL_INSERT] = {"bbihhiibibbddb", ""},
    [SQL_READ] = {"ibb", RECORD}, /* 1 to read the result, prefix, hash */
    /* revision, state, flags, due, life, status, reason, result; prefix, hash, owner, attempt.
       If the engine notifies, the statement itself does so. */
    [SQL_FINISH] = {"ihhddnbbbbbi", ""},
    /* values; prefix, hash, the revision to replace, 1 to notify waiting claims */
    [SQL_WRITE] = {WRITTEN "bbii", ""},
    [SQL_WRITE_RESULT] = {WRITTEN "bbbii", ""},
    [SQL_DELETE] = {"bbi", ""},
    [SQL_COUNTER_INSERT] = {"bbiid", ""}, /* prefix, hash, revision, value, life */
    [SQL_COUNTER_READ] = {"bb", "iii"},   /* revision, value, 1 if not expired */
    [SQL_COUNTER_WRITE] = {"iidbbi", ""}, /* revision, value, life; prefix, hash, old revision */
    /* behind this prefix, this prefix and hash; prefixes from, to; states from, to; 1 for
       uncertain records only; changed since; limit */
    [SQL_LIST] = {"bbbbbiiiti", "bb" RECORD},
    [SQL_STATS] = {"", "iii"},           /* state, live, count */
    [SQL_EVENTS] = {"", "bi"},           /* name, count */
    [SQL_EVENT_ADD] = {"bi", ""},        /* name, count */
    [SQL_TIME] = {"", "t"},              /* now */
    [SQL_TX] = {"bb", "ib"},             /* prefix, hash: status, result */
    [SQL_ELECT] = {"bdb", ""},           /* candidate, term, candidate */
    [SQL_ELECTED] = {"b", "ibb"},        /* candidate; table, prefix, hash */
    [SQL_SAVE] = {"hbbdb", ""},          /* table, prefix, hash, term, candidate */
    [SQL_BOUND_RECORD] = {"bbbi", "bb"}, /* behind this name; offset: prefix, hash */
    [SQL_BOUND_COUNTER] = {"bbbi", "bb"},
    [SQL_BOUND_TX] = {"bbbi", "bb"},
    [SQL_SWEEP_RECORD] = {"bbbbbbi", ""}, /* behind this name; up to this name; limit */
    [SQL_SWEEP_COUNTER] = {"bbbbbbi", ""},
    [SQL_SWEEP_TX] = {"bbbbbbi", ""},
    [SQL_EXPIRED_RECORD] = {"bbbbbbi", "bb"}, /* the same: prefix, hash */
    [SQL_EXPIRED_COUNTER] = {"bbbbbbi", "bb"},
    [SQL_EXPIRED_TX] = {"bbbbbbi", "bb"},
    [SQL_REMOVE_RECORD] = {KEYS, ""}, /* prefix, hash; the last pair fills up the rest */
    [SQL_REMOVE_COUNTER] = {KEYS, ""},
    [SQL_REMOVE_TX] = {KEYS, ""},
    [SQL_MARK] = {"bb", "i"}, /* prefix, hash: revision */
    [SQL_LOOK] = {"bb", "i"},
    [SQL_LISTEN] = {"", ""},
};
