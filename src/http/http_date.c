/*
 * Dates, and Retry-After, which may be a date. Each of the three forms in RFC 9110 is parsed
 * strictly; any weekday is accepted, even a wrong one.
 */
#include <string.h>
#include <time.h>

#include "base/chars.h"
#include "http/http_field.h"

static const char *const days[] = {"Monday", "Tuesday",  "Wednesday", "Thursday",
                                   "Friday", "Saturday", "Sunday",    NULL};
static const char *const months[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul",
                                     "Aug", "Sep", "Oct", "Nov", "Dec", NULL};

struct date_reader {
    const char *at, *end;
    struct tm tm;
    bool short_year;
};

static bool date_reader_char(struct date_reader *r, char c) {
    if (r->at == r->end || *r->at != c)
        return false;
    r->at++;
    return true;
}

static bool date_reader_text(struct date_reader *r, const char *text, size_t len) {
    if ((size_t)(r->end - r->at) < len || memcmp(r->at, text, len) != 0)
        return false;
    r->at += len;
    return true;
}

/* Finds the word at the reader by its first `len` characters, or by all of them if `len` is 0. */
static bool date_reader_word(struct date_reader *r, const char *const *words, size_t len,
                             int *ret) {
    for (int i = 0; words[i] != NULL; i++)
        if (date_reader_text(r, words[i], len == 0 ? strlen(words[i]) : len)) {
            *ret = i;
            return true;
        }
    return false;
}

static bool date_reader_digits(struct date_reader *r, int n, int *ret) {
    int number = 0;

    for (; n > 0; n--, r->at++) {
        if (r->at == r->end || !idem_is_digit(*r->at))
            return false;
        number = 10 * number + (*r->at - '0');
    }
    *ret = number;
    return true;
}

/* Parses one letter of a form; any other character must match exactly. */
static bool date_reader_part(struct date_reader *r, char part) {
    int ignored;

    switch (part) {
    case 'w':
        return date_reader_word(r, days, 3, &ignored);
    case 'W':
        return date_reader_word(r, days, 0, &ignored);
    case 'm':
        return date_reader_word(r, months, 3, &r->tm.tm_mon);
    case 'd':
        return date_reader_digits(r, 2, &r->tm.tm_mday);
    case 'e': /* padded with a space */
        return date_reader_char(r, ' ') ? date_reader_digits(r, 1, &r->tm.tm_mday)
                                        : date_reader_digits(r, 2, &r->tm.tm_mday);
    case 'y':
        r->short_year = true;
        return date_reader_digits(r, 2, &r->tm.tm_year);
    case 'Y':
        return date_reader_digits(r, 4, &r->tm.tm_year);
    case 't':
        return date_reader_digits(r, 2, &r->tm.tm_hour) && date_reader_char(r, ':') &&
               date_reader_digits(r, 2, &r->tm.tm_min) && date_reader_char(r, ':') &&
               date_reader_digits(r, 2, &r->tm.tm_sec);
    case 'Z':
        return date_reader_text(r, "GMT", 3);
    default:
        return date_reader_char(r, part);
    }
}

static int date_year_now(int64_t now_s) {
    struct tm now = {0};
    time_t at = (time_t)now_s;

    return gmtime_r(&at, &now) == NULL ? 1970 : now.tm_year + 1900;
}

static int date_year_complete(int year, int64_t now_s) {
    int now = date_year_now(now_s);

    year += now - now % 100;
    if (year - now > 50)
        year -= 100;
    else if (now - year >= 50)
        year += 100;
    return year;
}

static bool date_parse_form(struct idem_http_text value, const char *form, int64_t now_s,
                            int64_t *ret_s) {
    struct date_reader r = {.at = value.at, .end = value.at + value.len};
    struct tm tm;
    int64_t at;

    for (; *form != '\0'; form++)
        if (!date_reader_part(&r, *form))
            return false;
    if (r.at != r.end)
        return false;
    tm = r.tm;
    if (r.short_year)
        tm.tm_year = date_year_complete(tm.tm_year, now_s);
    /* A leap second counts as the next second. */
    if (tm.tm_year < 1970 || tm.tm_mday < 1 || tm.tm_mday > 31 || tm.tm_hour > 23 ||
        tm.tm_min > 59 || tm.tm_sec > 60)
        return false;
    tm.tm_year -= 1900;
    tm.tm_sec = 0;
    at = timegm(&tm);
    if (tm.tm_mday != r.tm.tm_mday) /* the month has fewer days */
        return false;
    *ret_s = at + r.tm.tm_sec;
    return true;
}

bool idem_http_date(struct idem_http_text value, int64_t now_s, int64_t *ret_s) {
    value = idem_http_trim(value);
    return date_parse_form(value, "w, d m Y t Z", now_s, ret_s) ||
           date_parse_form(value, "W, d-m-y t Z", now_s, ret_s) ||
           date_parse_form(value, "w m e t Y", now_s, ret_s);
}

/* Parses any number of digits. */
static bool date_parse_seconds(struct idem_http_text value, int64_t max_s, int64_t *ret_s) {
    int64_t seconds = 0;

    for (size_t i = 0; i < value.len; i++) {
        if (!idem_is_digit(value.at[i]))
            return false;
        if (seconds < max_s)
            seconds = 10 * seconds + (value.at[i] - '0');
    }
    if (value.len == 0)
        return false;
    *ret_s = seconds;
    return true;
}

bool idem_http_retry_after(struct idem_http_text value, int64_t now_s, int64_t max_s,
                           int64_t *ret_s) {
    int64_t seconds, date;

    value = idem_http_trim(value);
    if (idem_http_date(value, now_s, &date))
        seconds = date - now_s;
    else if (!date_parse_seconds(value, max_s, &seconds))
        return false;
    *ret_s = seconds < 0 ? 0 : seconds > max_s ? max_s : seconds;
    return true;
}
