/*
 * Dates, and Retry-After, which may be one. Each of the three forms that RFC 9110
 * has is read strictly; of the day of the week only that it is one.
 */
#include <string.h>
#include <time.h>

#include "http/chars.h"
#include "http/field.h"

static const char *const days[] = {"Monday", "Tuesday",  "Wednesday", "Thursday",
                                   "Friday", "Saturday", "Sunday",    NULL};
static const char *const months[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul",
                                     "Aug", "Sep", "Oct", "Nov", "Dec", NULL};

struct reading {
    const char *at, *end;
    struct tm tm;
    bool short_year;
};

static bool read_char(struct reading *r, char c) {
    if (r->at == r->end || *r->at != c)
        return false;
    r->at++;
    return true;
}

static bool read_text(struct reading *r, const char *text, size_t len) {
    if ((size_t)(r->end - r->at) < len || memcmp(r->at, text, len) != 0)
        return false;
    r->at += len;
    return true;
}

/* Which of the words it is, by its first `len` characters, or by all of them for 0. */
static bool read_word(struct reading *r, const char *const *words, size_t len, int *ret) {
    for (int i = 0; words[i] != NULL; i++)
        if (read_text(r, words[i], len == 0 ? strlen(words[i]) : len)) {
            *ret = i;
            return true;
        }
    return false;
}

static bool read_digits(struct reading *r, int n, int *ret) {
    int number = 0;

    for (; n > 0; n--, r->at++) {
        if (r->at == r->end || !idem_is_digit(*r->at))
            return false;
        number = 10 * number + (*r->at - '0');
    }
    *ret = number;
    return true;
}

/* One letter of a form; what is no letter stands for itself. */
static bool read_part(struct reading *r, char part) {
    int ignored;

    switch (part) {
    case 'w':
        return read_word(r, days, 3, &ignored);
    case 'W':
        return read_word(r, days, 0, &ignored);
    case 'm':
        return read_word(r, months, 3, &r->tm.tm_mon);
    case 'd':
        return read_digits(r, 2, &r->tm.tm_mday);
    case 'e': /* filled up with a blank */
        return read_char(r, ' ') ? read_digits(r, 1, &r->tm.tm_mday)
                                 : read_digits(r, 2, &r->tm.tm_mday);
    case 'y':
        r->short_year = true;
        return read_digits(r, 2, &r->tm.tm_year);
    case 'Y':
        return read_digits(r, 4, &r->tm.tm_year);
    case 't':
        return read_digits(r, 2, &r->tm.tm_hour) && read_char(r, ':') &&
               read_digits(r, 2, &r->tm.tm_min) && read_char(r, ':') &&
               read_digits(r, 2, &r->tm.tm_sec);
    case 'Z':
        return read_text(r, "GMT", 3);
    default:
        return read_char(r, part);
    }
}

static int this_year(int64_t now_s) {
    struct tm now = {0};
    time_t at = (time_t)now_s;

    return gmtime_r(&at, &now) == NULL ? 1970 : now.tm_year + 1900;
}

static int whole_year(int year, int64_t now_s) {
    int now = this_year(now_s);

    year += now - now % 100;
    if (year - now > 50)
        year -= 100;
    else if (now - year >= 50)
        year += 100;
    return year;
}

static bool read_form(struct idem_http_text value, const char *form, int64_t now_s,
                      int64_t *ret_s) {
    struct reading r = {.at = value.at, .end = value.at + value.len};
    struct tm tm;
    int64_t at;

    for (; *form != '\0'; form++)
        if (!read_part(&r, *form))
            return false;
    if (r.at != r.end)
        return false;
    tm = r.tm;
    if (r.short_year)
        tm.tm_year = whole_year(tm.tm_year, now_s);
    /* A leap second is the next one. */
    if (tm.tm_year < 1970 || tm.tm_mday < 1 || tm.tm_mday > 31 || tm.tm_hour > 23 ||
        tm.tm_min > 59 || tm.tm_sec > 60)
        return false;
    tm.tm_year -= 1900;
    tm.tm_sec = 0;
    at = timegm(&tm);
    if (tm.tm_mday != r.tm.tm_mday) /* a month is not that long */
        return false;
    *ret_s = at + r.tm.tm_sec;
    return true;
}

bool idem_http_date(struct idem_http_text value, int64_t now_s, int64_t *ret_s) {
    value = idem_http_trim(value);
    return read_form(value, "w, d m Y t Z", now_s, ret_s) ||
           read_form(value, "W, d-m-y t Z", now_s, ret_s) ||
           read_form(value, "w m e t Y", now_s, ret_s);
}

/* Digits of any number. */
static bool read_seconds(struct idem_http_text value, int64_t max_s, int64_t *ret_s) {
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
    else if (!read_seconds(value, max_s, &seconds))
        return false;
    *ret_s = seconds < 0 ? 0 : seconds > max_s ? max_s : seconds;
    return true;
}
