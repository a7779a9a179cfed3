/*
 * The statements; sql_statement.c lists the values that each takes and returns. The time is
 * SYSDATE(3), in a session whose time zone is UTC. UTC_TIMESTAMP() would be wrong: it is the time
 * at which the statement began, before it waited for a lock, and it runs ahead if the clock
 * stands still.
 *
 * Rows behind a name are selected by prefix, and by hash within the prefix, because a comparison
 * of rows, (prefix, hash) > (?, ?), reads the whole table.
 */
#include "store/sql/mysql/mysql.h"

#define NOW "SYSDATE(3)"
/* The time in so many ms, bounded by the range of DATETIME. */
#define LATER(value) NOW " + INTERVAL LEAST(" value ", 200000000000000) * 1000 MICROSECOND"
#define RUNS "(state = 2 AND lease_end > " NOW ")"
#define EXPIRED "expires <= " NOW
#define EXPIRED_RECORD "(" EXPIRED " AND NOT " RUNS ")"
#define BEHIND "(prefix > ? OR (prefix = ? AND hash > ?))"
#define UP_TO "(prefix < ? OR (prefix = ? AND hash <= ?))"
#define NAMED " WHERE prefix = ? AND hash = ?"
#define ORDERED " ORDER BY prefix, hash LIMIT "

#define COLUMNS                                                                                    \
    "revision, format, state, flags, attempt, tries, owner, definition, fingerprint, bind, "       \
    "lease_end, expires, created, changed, status, prior_state, prior_tries, prior_due, "          \
    "prior_expires, prior_definition, prior_fingerprint, label, reason, "
#define WRITTEN                                                                                    \
    "UPDATE idem_record SET revision = ?, state = ?, flags = ?, attempt = ?, tries = ?, "          \
    "owner = ?, definition = ?, fingerprint = ?, bind = ?, lease_end = ?, expires = ?, "           \
    "created = ?, changed = ?, status = ?, prior_state = ?, prior_tries = ?, prior_due = ?, "      \
    "prior_expires = ?, prior_definition = ?, prior_fingerprint = ?, label = ?, reason = ?"

/* The flag for notifications is accepted and ignored, because MySQL cannot notify. */
#define REPLACED " AND revision = ? AND ? IN (0, 1)"

#define BOUND(table) "SELECT prefix, hash FROM " table " WHERE " BEHIND ORDERED "?, 1"
#define EXPIRED_OF(table, expired)                                                                 \
    "SELECT prefix, hash FROM " table " WHERE " BEHIND " AND " UP_TO " AND " expired ORDERED "?"
#define KEYS_8 "(?, ?), (?, ?), (?, ?), (?, ?), (?, ?), (?, ?), (?, ?), (?, ?)"
#define KEYS                                                                                       \
    KEYS_8 ", " KEYS_8 ", " KEYS_8 ", " KEYS_8 ", " KEYS_8 ", " KEYS_8 ", " KEYS_8 ", " KEYS_8
/* FORCE INDEX: in a small table the server would prefer to scan all rows, and wait for locked
   ones. */
#define REMOVE(table, expired)                                                                     \
    "DELETE t FROM " table " t FORCE INDEX (PRIMARY) WHERE (prefix, hash) IN (" KEYS               \
    ") AND " expired

const char *const maria_texts[SQL_STATEMENT__COUNT] = {
    [SQL_INSERT] =
        "INSERT INTO idem_record (prefix, hash, revision, format, state, flags, attempt, tries, "
        "owner, definition, fingerprint, bind, lease_end, expires, created, changed, status, "
        "label) VALUES (?, ?, ?, 1, ?, ?, ?, ?, ?, ?, ?, ?, " LATER("?") ", " LATER("?") ", " NOW
                                                                                         ", " NOW
                                                                                         ", 0, ?)",
    [SQL_READ] =
        "SELECT " COLUMNS "CASE WHEN ? = 1 OR state = 4 THEN result END, LENGTH(result), " NOW
        " FROM idem_record" NAMED,
    [SQL_FINISH] = "UPDATE idem_record SET revision = ?, state = ?, flags = ?, lease_end = " LATER(
        "?") ", expires = " LATER("?") ", changed = " NOW ", status = ?, reason = ?, result = ?, "
                                       "prior_state = NULL, prior_tries = NULL, "
                                       "prior_due = NULL, prior_expires = NULL, prior_definition = "
                                       "NULL, "
                                       "prior_fingerprint = NULL" NAMED
                                       " AND owner = ? AND attempt = ? AND state = 2 "
                                       "AND (flags & 9) = 0 AND (expires > " NOW
                                       " OR lease_end > " NOW ")",
    [SQL_WRITE] = WRITTEN NAMED REPLACED,
    [SQL_WRITE_RESULT] = WRITTEN ", result = ?" NAMED REPLACED,
    [SQL_DELETE] = "DELETE FROM idem_record" NAMED " AND revision = ?",
    [SQL_COUNTER_INSERT] = "INSERT INTO idem_counter (prefix, hash, revision, value, expires) "
                           "VALUES (?, ?, ?, ?, " LATER("?") ")",
    [SQL_COUNTER_READ] = "SELECT revision, value, expires > " NOW " FROM idem_counter" NAMED,
    [SQL_COUNTER_WRITE] = "UPDATE idem_counter SET revision = ?, value = ?, expires = " LATER("?")
        NAMED " AND revision = ?",
    [SQL_LIST] = "SELECT prefix, hash, " COLUMNS "NULL, LENGTH(result), " NOW
                 " FROM idem_record WHERE " BEHIND " AND prefix >= ? AND prefix < ? "
                 "AND state BETWEEN ? AND ? AND (? = 0 OR (state = 2 AND lease_end <= " NOW ")) "
                 "AND changed >= ? AND NOT " EXPIRED_RECORD ORDERED "?",
    [SQL_STATS] = "SELECT state, lease_end > " NOW
                  ", COUNT(*) FROM idem_record WHERE expires > " NOW " OR " RUNS " GROUP BY 1, 2",
    [SQL_EVENTS] = "SELECT name, n FROM idem_event",
    [SQL_EVENT_ADD] =
        "INSERT INTO idem_event (name, n) VALUES (?, ?) ON DUPLICATE KEY UPDATE n = n + VALUES(n)",
    [SQL_TIME] = "SELECT " NOW,
    [SQL_TX] = "SELECT COALESCE(status, 0), result FROM idem_tx" NAMED " AND expires > " NOW,
    [SQL_ELECT] = "UPDATE idem_meta SET sweeper = ?, sweep_until = " LATER(
        "?") " WHERE sweeper = ? OR sweep_until IS NULL OR sweep_until <= " NOW,
    [SQL_ELECTED] = "SELECT sweep_table, sweep_prefix, sweep_hash FROM idem_meta WHERE sweeper = ?",
    [SQL_SAVE] = "UPDATE idem_meta SET sweep_table = ?, sweep_prefix = ?, sweep_hash = ?, "
                 "sweep_until = " LATER("?") " WHERE sweeper = ?",
    [SQL_BOUND_RECORD] = BOUND("idem_record"),
    [SQL_BOUND_COUNTER] = BOUND("idem_counter"),
    [SQL_BOUND_TX] = BOUND("idem_tx"),
    [SQL_EXPIRED_RECORD] = EXPIRED_OF("idem_record", EXPIRED_RECORD),
    [SQL_EXPIRED_COUNTER] = EXPIRED_OF("idem_counter", EXPIRED),
    [SQL_EXPIRED_TX] = EXPIRED_OF("idem_tx", EXPIRED),
    [SQL_REMOVE_RECORD] = REMOVE("idem_record", EXPIRED_RECORD),
    [SQL_REMOVE_COUNTER] = REMOVE("idem_counter", EXPIRED),
    [SQL_REMOVE_TX] = REMOVE("idem_tx", EXPIRED),
    [SQL_LOOK] = "SELECT revision FROM idem_record" NAMED,
};
