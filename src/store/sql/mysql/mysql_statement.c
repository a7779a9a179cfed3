/*
 * MySQL's statements: their texts, the values that they take, and the rows that they return.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "store/sql/mysql/mysql.h"

/*
 * Values in the library's form: numbers as BIGINT, times as DATETIME(3) in UTC, bytes as blobs. A
 * time beyond the range of DATETIME becomes the end of that range.
 */

#define DAY_MS INT64_C(86400000)
#define MS_MAX INT64_C(253402300799999) /* the end of the year 9999 */

static bool value_is_leap_year(int64_t year) {
    return (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
}

/* Days from 1970-01-01 to the first day of the year. */
static int64_t value_days_before_year(int64_t year) {
    int64_t past = year - 1;

    return 365 * (year - 1970) + (past / 4 - 1969 / 4) - (past / 100 - 1969 / 100) +
           (past / 400 - 1969 / 400);
}

/* Days from the first day of the year to that of the month, 1 to 13. */
static int64_t value_days_before_month(int64_t year, unsigned month) {
    static const int days[] = {0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334, 365};

    return days[month - 1] + (month > 2 && value_is_leap_year(year) ? 1 : 0);
}

static void value_set_date(MYSQL_TIME *ret, int64_t days) {
    int64_t year = 1970 + days / 366; /* a lower bound */
    unsigned month = 1;

    while (value_days_before_year(year + 1) <= days)
        year++;
    days -= value_days_before_year(year);
    while (value_days_before_month(year, month + 1) <= days)
        month++;
    ret->year = (unsigned)year;
    ret->month = month;
    ret->day = (unsigned)(days - value_days_before_month(year, month)) + 1;
}

void maria_time_set(MYSQL_TIME *ret, int64_t ms) {
    int64_t of_day;

    if (ms < 0)
        ms = 0;
    if (ms > MS_MAX)
        ms = MS_MAX;
    *ret = (MYSQL_TIME){.time_type = MYSQL_TIMESTAMP_DATETIME};
    value_set_date(ret, ms / DAY_MS);
    of_day = ms % DAY_MS;
    ret->hour = (unsigned)(of_day / 3600000);
    ret->minute = (unsigned)(of_day / 60000 % 60);
    ret->second = (unsigned)(of_day / 1000 % 60);
    ret->second_part = (unsigned long)(of_day % 1000 * 1000);
}

int64_t maria_time_get(const MYSQL_TIME *time) {
    int64_t days;

    if (time->year < 1970 || time->month < 1 || time->month > 12 || time->day < 1)
        return -1;
    days = value_days_before_year(time->year) + value_days_before_month(time->year, time->month) +
           time->day - 1;
    return days * DAY_MS + (int64_t)time->hour * 3600000 + (int64_t)time->minute * 60000 +
           (int64_t)time->second * 1000 + (int64_t)time->second_part / 1000;
}

static enum enum_field_types value_type(char letter) {
    return letter == 'b'   ? MYSQL_TYPE_LONG_BLOB
           : letter == 't' ? MYSQL_TYPE_DATETIME
                           : MYSQL_TYPE_LONGLONG;
}

void maria_bind_in(MYSQL_BIND *bind, struct maria_cell *cell, char letter,
                   const struct sql_value *value) {
    *cell = (struct maria_cell){.null = value->type == SQL_NULL};
    *bind = (MYSQL_BIND){.buffer_type = value_type(letter),
                         .buffer = &cell->at,
                         .length = &cell->len,
                         .is_null = &cell->null};
    if (value->type == SQL_INT)
        cell->at.n = value->n;
    if (value->type == SQL_MS)
        maria_time_set(&cell->at.time, value->n);
    if (value->type == SQL_BYTES) {
        /* Without `const`: the library does not write to a value that it sends. */
        bind->buffer = value->bytes.len == 0 ? (void *)"" : (void *)value->bytes.at;
        bind->buffer_length = cell->len = value->bytes.len;
    }
}

/* From the server: numbers and times arrive in the cell, but only the length of bytes. */
static void maria_bind_out(MYSQL_BIND *bind, struct maria_cell *cell, char letter) {
    *cell = (struct maria_cell){0};
    *bind = (MYSQL_BIND){.buffer_type = value_type(letter),
                         .buffer = &cell->at,
                         .buffer_length = letter == 'b' ? 0 : sizeof(cell->at),
                         .length = &cell->len,
                         .is_null = &cell->null};
}

static struct sql_value maria_value(const struct maria_cell *cell, char letter) {
    if (cell->null)
        return sql_null();
    if (letter == 'i')
        return sql_int(cell->at.n);
    return (struct sql_value){.type = SQL_MS, .n = maria_time_get(&cell->at.time)};
}

/*
 * The response to a statement: its rows in our own memory, or its error. The library has read the
 * whole response before; nothing here communicates with the server.
 */

/* Errors. */

struct sql_answer *maria_refusal(enum sql_trouble trouble, unsigned code, const char *text) {
    struct sql_answer *answer = calloc(1, sizeof(*answer));

    if (answer == NULL)
        return NULL;
    answer->trouble = trouble;
    if (trouble == SQL_CONFLICT) /* the server's text would show the key */
        snprintf(answer->text, sizeof(answer->text), "there is one (%u)", code);
    else
        snprintf(answer->text, sizeof(answer->text), "%.250s (%u)", text, code);
    return answer;
}

struct sql_answer *maria_failure(MYSQL_STMT *stmt) {
    unsigned code = mysql_stmt_errno(stmt);

    return maria_refusal(code == 0 ? SQL_BROKEN : mysql_failure_find(code)->trouble, code,
                         mysql_stmt_error(stmt));
}

/* Rows. */

/* The bytes of all cells stand one after the other in the heap, which may move while it grows: the
   value's `n` is the offset until the heap is complete. */
static bool result_take_bytes(MYSQL_STMT *stmt, unsigned column, const struct maria_cell *cell,
                              struct idem_buffer *heap, struct sql_value *ret) {
    char *room = idem_buffer_reserve(heap, cell->len);
    unsigned long len = 0;
    MYSQL_BIND bind = {.buffer_type = MYSQL_TYPE_LONG_BLOB,
                       .buffer = room,
                       .buffer_length = cell->len,
                       .length = &len};

    if (room == NULL || (cell->len > 0 && mysql_stmt_fetch_column(stmt, &bind, column, 0) != 0))
        return false;
    *ret = (struct sql_value){.type = SQL_BYTES, .n = (int64_t)heap->len};
    ret->bytes.len = cell->len;
    heap->len += cell->len;
    return true;
}

static bool result_take_row(MYSQL_STMT *stmt, const char *letters, const struct maria_cell *cells,
                            struct idem_buffer *heap, struct sql_value *out) {
    int rc = mysql_stmt_fetch(stmt);

    if (rc != 0 && rc != MYSQL_DATA_TRUNCATED) /* of bytes, only the length is fetched */
        return false;
    for (unsigned i = 0; letters[i] != '\0'; i++) {
        if (letters[i] != 'b' || cells[i].null)
            out[i] = maria_value(&cells[i], letters[i]);
        else if (!result_take_bytes(stmt, i, &cells[i], heap, &out[i]))
            return false;
    }
    return true;
}

static bool result_take_rows(MYSQL_STMT *stmt, const char *letters, struct sql_answer *answer,
                             struct sql_value *cells) {
    MYSQL_BIND binds[SQL_COL__COUNT + 2];
    struct maria_cell row[SQL_COL__COUNT + 2] = {0};
    struct idem_buffer heap = {0};
    bool fine = true;

    for (size_t i = 0; i < answer->columns; i++)
        maria_bind_out(&binds[i], &row[i], letters[i]);
    if (answer->rows > 0)
        fine = mysql_stmt_bind_result(stmt, binds) == 0;
    for (size_t i = 0; fine && i < answer->rows; i++)
        fine = result_take_row(stmt, letters, row, &heap, cells + i * answer->columns);
    for (size_t i = 0; fine && i < answer->rows * answer->columns; i++)
        if (cells[i].type == SQL_BYTES)
            cells[i].bytes.at = (unsigned char *)heap.at + cells[i].n;
    answer->native = heap.at;
    return fine;
}

struct sql_answer *maria_answer(MYSQL_STMT *stmt, enum sql_statement statement) {
    const char *letters = sql_shapes[statement].returns;
    size_t columns = strlen(letters), rows = 0;
    struct sql_answer *answer;
    struct sql_value *cells;

    /* An UPDATE returns no rows. */
    if (mysql_stmt_field_count(stmt) == columns)
        rows = (size_t)mysql_stmt_num_rows(stmt);
    answer = malloc(sizeof(*answer) + rows * columns * sizeof(*cells));
    if (answer == NULL)
        return NULL;
    cells = (struct sql_value *)(answer + 1);
    *answer = (struct sql_answer){.affected = (int64_t)mysql_stmt_affected_rows(stmt),
                                  .rows = rows,
                                  .columns = columns,
                                  .cells = cells};
    if (result_take_rows(stmt, letters, answer, cells))
        return answer;
    maria_answer_free(answer);
    return NULL;
}

void maria_answer_free(struct sql_answer *answer) {
    if (answer == NULL)
        return;
    free(answer->native);
    free(answer);
}

/*
 * The statements; sql_steps.c lists the values that each takes and returns. The time is
 * SYSDATE(3), in a session whose time zone is UTC. UTC_TIMESTAMP() would be wrong: it is the time
 * at which the statement began, before it waited for a lock, and it runs ahead if the clock
 * stands still.
 *
 * Rows behind a name are selected by prefix, and by hash within the prefix, because a comparison
 * of rows, (prefix, hash) > (?, ?), reads the whole table.
 */

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
    [SQL_READ] = "SELECT " SQL_RECORD_COLUMNS
                 "CASE WHEN ? = 1 OR state = 4 THEN result END, LENGTH(result), " NOW
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
    [SQL_LIST] = "SELECT prefix, hash, " SQL_RECORD_COLUMNS "NULL, LENGTH(result), " NOW
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
