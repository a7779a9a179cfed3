/*
 * The statements; sql_steps.c lists the values that each takes and returns. Numbers are
 * bigint, times timestamptz, bytes bytea. The time is clock_timestamp(), so a statement that
 * waited for a lock uses the time at which it got the lock.
 */
#include "store/sql/postgres/postgres.h"

#define NOW "clock_timestamp()"
#define EXPIRED "expires <= " NOW " AND NOT (state = 2 AND lease_end > " NOW ")"
/* In the same transaction, so a notification is sent if and only if the change is committed. */
#define NOTIFY(condition)                                                                          \
    " RETURNING CASE WHEN " condition "waited > " NOW                                              \
    " THEN pg_notify('idem', encode(hash, 'hex')) IS NULL END"
#define WRITTEN                                                                                    \
    "UPDATE idem_record SET revision = $1, state = $2, flags = $3, attempt = $4, tries = $5, "     \
    "owner = $6, definition = $7, fingerprint = $8, bind = $9, lease_end = $10, expires = $11, "   \
    "created = $12, changed = $13, status = $14, prior_state = $15, prior_tries = $16, "           \
    "prior_due = $17, prior_expires = $18, prior_definition = $19, prior_fingerprint = $20, "      \
    "label = $21, reason = $22"

/* A name with lengths that a walk can continue from. Idem writes no others, but a name that was
   inserted by hand must not stop a walk. */
#define NAME "octet_length(prefix) BETWEEN 1 AND 128 AND octet_length(hash) = 32"

#define BOUND(table)                                                                               \
    "SELECT prefix, hash FROM " table " WHERE prefix >= $2 AND (prefix, hash) > ($1, $3) "         \
    "AND " NAME " ORDER BY prefix, hash OFFSET $4 LIMIT 1"
#define SWEEP(table, expired)                                                                      \
    "DELETE FROM " table " WHERE ctid = ANY (ARRAY(SELECT ctid FROM " table                        \
    " WHERE prefix >= $2 AND prefix <= $5 AND (prefix, hash) > ($1, $3) "                          \
    "AND (prefix, hash) <= ($4, $6) AND " expired                                                  \
    " ORDER BY prefix, hash LIMIT $7 FOR UPDATE SKIP LOCKED))"

const char *const pg_texts[SQL_STATEMENT__COUNT] = {
    [SQL_INSERT] =
        "INSERT INTO idem_record (prefix, hash, revision, format, state, flags, attempt, tries, "
        "owner, definition, fingerprint, bind, lease_end, expires, created, changed, status, "
        "label) "
        "VALUES ($1, $2, $3, 1, $4, $5, $6, $7, $8, $9, $10, $11, " NOW " + $12, " NOW
        " + $13, " NOW ", " NOW ", 0, $14) ON CONFLICT DO NOTHING",
    [SQL_READ] = "SELECT " SQL_RECORD_COLUMNS
                 "CASE WHEN $1 = 1 OR state = 4 THEN result END, octet_length(result), " NOW
                 " FROM idem_record WHERE prefix = $2 AND hash = $3",
    [SQL_FINISH] =
        "UPDATE idem_record SET revision = $1, state = $2, flags = $3, lease_end = " NOW
        " + $4, expires = " NOW " + $5, changed = " NOW ", status = $6, reason = $7, result = $8, "
        "prior_state = NULL, prior_tries = NULL, "
        "prior_due = NULL, prior_expires = NULL, prior_definition = "
        "NULL, prior_fingerprint = NULL "
        "WHERE prefix = $9 AND hash = $10 AND owner = $11 AND "
        "attempt = $12 AND state = 2 "
        "AND flags & 9 = 0 AND (expires > " NOW " OR lease_end > " NOW ")" NOTIFY(""),
    [SQL_WRITE] =
        WRITTEN " WHERE prefix = $23 AND hash = $24 AND revision = $25" NOTIFY("$26 = 1 AND "),
    [SQL_WRITE_RESULT] = WRITTEN
    ", result = $23 WHERE prefix = $24 AND hash = $25 AND revision = $26" NOTIFY("$27 = 1 AND "),
    [SQL_DELETE] =
        "DELETE FROM idem_record WHERE prefix = $1 AND hash = $2 AND revision = $3" NOTIFY(""),
    [SQL_COUNTER_INSERT] = "INSERT INTO idem_counter (prefix, hash, revision, value, expires) "
                           "VALUES ($1, $2, $3, $4, " NOW " + $5) ON CONFLICT DO NOTHING",
    [SQL_COUNTER_READ] = "SELECT revision, value, (expires > " NOW ") "
                         "FROM idem_counter WHERE prefix = $1 AND hash = $2",
    [SQL_COUNTER_WRITE] = "UPDATE idem_counter SET revision = $1, value = $2, expires = " NOW
                          " + $3 WHERE prefix = $4 AND hash = $5 AND revision = $6",
    [SQL_LIST] =
        "SELECT prefix, hash, " SQL_RECORD_COLUMNS "NULL::bytea, octet_length(result), " NOW
        " FROM idem_record WHERE prefix >= $2 AND (prefix, hash) > ($1, $3) "
        "AND prefix >= $4 AND prefix < $5 AND state BETWEEN $6 AND $7 "
        "AND ($8 = 0 OR (state = 2 AND lease_end <= " NOW ")) AND changed >= $9 "
        "AND NOT (" EXPIRED ") AND " NAME " ORDER BY prefix, hash LIMIT $10",
    [SQL_STATS] = "SELECT state, (lease_end > now), count(*) "
                  "FROM (SELECT state, lease_end, expires, " NOW " AS now FROM idem_record) t "
                  "WHERE expires > now OR (state = 2 AND lease_end > now) GROUP BY 1, 2",
    [SQL_EVENTS] = "SELECT convert_to(name, 'UTF8'), n FROM idem_event",
    [SQL_EVENT_ADD] = "INSERT INTO idem_event AS e (name, n) VALUES (convert_from($1, 'UTF8'), $2) "
                      "ON CONFLICT (name) DO UPDATE SET n = e.n + EXCLUDED.n",
    [SQL_TIME] = "SELECT " NOW,
    [SQL_TX] = "SELECT coalesce(status, 0), result FROM idem_tx "
               "WHERE prefix = $1 AND hash = $2 AND expires > " NOW,
    [SQL_ELECT] = "UPDATE idem_meta SET sweeper = $1, sweep_until = " NOW
                  " + $2 WHERE sweeper = $3 OR sweep_until IS NULL OR sweep_until <= " NOW,
    [SQL_ELECTED] =
        "SELECT sweep_table, sweep_prefix, sweep_hash FROM idem_meta WHERE sweeper = $1",
    [SQL_SAVE] = "UPDATE idem_meta SET sweep_table = $1, sweep_prefix = $2, sweep_hash = $3, "
                 "sweep_until = " NOW " + $4 WHERE sweeper = $5",
    [SQL_BOUND_RECORD] = BOUND("idem_record"),
    [SQL_BOUND_COUNTER] = BOUND("idem_counter"),
    [SQL_BOUND_TX] = BOUND("idem_tx"),
    [SQL_SWEEP_RECORD] = SWEEP("idem_record", EXPIRED),
    [SQL_SWEEP_COUNTER] = SWEEP("idem_counter", "expires <= " NOW),
    [SQL_SWEEP_TX] = SWEEP("idem_tx", "expires <= " NOW),
    /* SKIP LOCKED: a locked row is polled again, instead of waited for. */
    [SQL_MARK] = "UPDATE idem_record SET waited = " NOW " + interval '60 seconds' "
                 "WHERE ctid = (SELECT ctid FROM idem_record WHERE prefix = $1 AND hash = $2 "
                 "FOR UPDATE SKIP LOCKED) RETURNING revision",
    [SQL_LOOK] = "SELECT revision FROM idem_record WHERE prefix = $1 AND hash = $2",
    [SQL_LISTEN] = "LISTEN idem",
};
