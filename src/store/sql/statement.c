/*
 * What each statement takes and gives, the same for every engine. Values are in the order in which
 * the texts with unnumbered marks have them; one that stands twice in such a text is taken twice.
 */
#include "store/sql/sql.h"

/* revision, format, state, flags, attempt, tries, owner, definition, fingerprint, bind, lease_end,
   expires, created, changed, status, prior: state, tries, due, expires, definition, fingerprint;
   label, reason, result, its length, now */
#define RECORD "iiiiiibibbttttiiittibbbbit"
/* revision, state, flags, attempt, tries, owner, definition, fingerprint, bind, lease_end, expires,
   created, changed, status, prior, label, reason */
#define WRITTEN "ihhiibibbttttnhittibbb"

/* SQL_REMOVE_MAX of prefix, hash */
#define KEYS_16 "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
#define KEYS KEYS_16 KEYS_16 KEYS_16 KEYS_16
_Static_assert(sizeof(KEYS) == 2 * SQL_REMOVE_MAX + 1, "a letter for each value");

const struct sql_shape sql_shapes[SQL_STATEMENT__COUNT] = {
    /* prefix, hash, revision, state, flags, attempt, tries, owner, definition, fingerprint, bind,
       lease, life, label */
    [SQL_INSERT] = {"bbihhiibibbddb", ""},
    [SQL_READ] = {"ibb", RECORD}, /* whether the result is wanted, prefix, hash */
    /* revision, state, flags, due, life, status, reason, result; prefix, hash, owner, attempt. Who
       waits is told by the statement itself, where the engine notifies. */
    [SQL_FINISH] = {"ihhddnbbbbbi", ""},
    /* prefix, hash, the revision that it replaces, whether to tell who waits */
    [SQL_WRITE] = {WRITTEN "bbii", ""},
    [SQL_WRITE_RESULT] = {WRITTEN "bbbii", ""},
    [SQL_DELETE] = {"bbi", ""},
    [SQL_COUNTER_INSERT] = {"bbiid", ""}, /* prefix, hash, revision, value, life */
    [SQL_COUNTER_READ] = {"bb", "iii"},   /* revision, value, whether it has not expired */
    [SQL_COUNTER_WRITE] = {"iidbbi", ""}, /* revision, value, life; prefix, hash, replaced */
    /* behind this prefix, this prefix and hash; prefixes from, to; states from, to; whether only
       those that are uncertain; changed since; at most */
    [SQL_LIST] = {"bbbbbiiiti", "bb" RECORD},
    [SQL_STATS] = {"", "iii"},           /* state, live, how many */
    [SQL_EVENTS] = {"", "bi"},           /* name, how many */
    [SQL_EVENT_ADD] = {"bi", ""},        /* name, how many */
    [SQL_TIME] = {"", "t"},              /* now */
    [SQL_TX] = {"bb", "ib"},             /* prefix, hash: status, result */
    [SQL_ELECT] = {"bdb", ""},           /* who, for so long, who */
    [SQL_ELECTED] = {"b", "ibb"},        /* who: table, prefix, hash */
    [SQL_SAVE] = {"hbbdb", ""},          /* table, prefix, hash; for so long; who */
    [SQL_BOUND_RECORD] = {"bbbi", "bb"}, /* behind this; so many: prefix, hash */
    [SQL_BOUND_COUNTER] = {"bbbi", "bb"},
    [SQL_BOUND_TX] = {"bbbi", "bb"},
    [SQL_SWEEP_RECORD] = {"bbbbbbi", ""}, /* behind this; up to this; at most */
    [SQL_SWEEP_COUNTER] = {"bbbbbbi", ""},
    [SQL_SWEEP_TX] = {"bbbbbbi", ""},
    [SQL_EXPIRED_RECORD] = {"bbbbbbi", "bb"}, /* the same: prefix, hash */
    [SQL_EXPIRED_COUNTER] = {"bbbbbbi", "bb"},
    [SQL_EXPIRED_TX] = {"bbbbbbi", "bb"},
    [SQL_REMOVE_RECORD] = {KEYS, ""}, /* prefix, hash; the last again and again */
    [SQL_REMOVE_COUNTER] = {KEYS, ""},
    [SQL_REMOVE_TX] = {KEYS, ""},
    [SQL_MARK] = {"bb", "i"}, /* prefix, hash: revision */
    [SQL_LOOK] = {"bb", "i"},
    [SQL_LISTEN] = {"", ""},
};
