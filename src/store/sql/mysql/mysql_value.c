/*
 * Values in the library's form: numbers as BIGINT, times as DATETIME(3) in UTC, bytes as blobs. A
 * time beyond the range of DATETIME becomes the end of that range.
 */
#include <string.h>

#include "store/sql/mysql/mysql.h"

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

/* Removes `const`: the library does not write to a value that it sends. */
static void *value_borrow(const void *at) {
    void *out;

    memcpy(&out, &at, sizeof(out));
    return out;
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
        bind->buffer = value_borrow(value->bytes.len == 0 ? "" : (const void *)value->bytes.at);
        bind->buffer_length = cell->len = value->bytes.len;
    }
}

void maria_bind_out(MYSQL_BIND *bind, struct maria_cell *cell, char letter) {
    *cell = (struct maria_cell){0};
    *bind = (MYSQL_BIND){.buffer_type = value_type(letter),
                         .buffer = &cell->at,
                         .buffer_length = letter == 'b' ? 0 : sizeof(cell->at),
                         .length = &cell->len,
                         .is_null = &cell->null};
}

struct sql_value maria_value(const struct maria_cell *cell, char letter) {
    if (cell->null)
        return sql_null();
    if (letter == 'i')
        return sql_int(cell->at.n);
    return (struct sql_value){.type = SQL_MS, .n = maria_time_get(&cell->at.time)};
}
