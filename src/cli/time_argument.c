/*
 * Prints and parses times. Pure. Parsing fails on text that is neither RFC 3339 nor a duration;
 * leap seconds (":60") are refused, since no clock here has them.
 */
#include "cli/time_argument.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/error.h"
#include "base/units.h"

const char *time_argument_relative(int64_t ms, int64_t now_ms, char *buf, size_t size) {
    static const struct {
        int64_t ms;
        char unit;
    } units[] = {{86400000, 'd'}, {3600000, 'h'}, {60000, 'm'}, {1000, 's'}};
    int64_t span = ms > now_ms ? ms - now_ms : now_ms - ms;

    for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
        /* A unit is used from two of it on: 90m is more precise than 1h. */
        if (span < 2 * units[i].ms && units[i].ms != 1000)
            continue;
        if (span < units[i].ms)
            break;
        snprintf(buf, size, ms > now_ms ? "in %" PRId64 "%c" : "%" PRId64 "%c ago",
                 span / units[i].ms, units[i].unit);
        return buf;
    }
    snprintf(buf, size, "now");
    return buf;
}

/* Reads exactly `n` digits and moves *at past them; -1 if there are fewer. */
static int time_argument_digits(const char **at, int n) {
    int value = 0;

    for (int i = 0; i < n; i++, (*at)++) {
        if (**at < '0' || **at > '9')
            return -1;
        value = value * 10 + (**at - '0');
    }
    return value;
}

static bool time_argument_skip(const char **at, const char *any) {
    if (**at == '\0' || strchr(any, **at) == NULL)
        return false;
    (*at)++;
    return true;
}

static bool time_argument_zone_parse(const char **at, int *ret_s) {
    int hours, minutes, sign;

    if (time_argument_skip(at, "Zz")) {
        *ret_s = 0;
        return true;
    }
    sign = **at == '-' ? -1 : 1;
    if (!time_argument_skip(at, "+-"))
        return false;
    hours = time_argument_digits(at, 2);
    if (hours < 0 || hours > 23 || !time_argument_skip(at, ":"))
        return false;
    minutes = time_argument_digits(at, 2);
    if (minutes < 0 || minutes > 59)
        return false;
    *ret_s = sign * (hours * 3600 + minutes * 60);
    return true;
}

static bool time_argument_date_parse(const char **at, struct tm *tm) {
    static const int days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    int year = time_argument_digits(at, 4), month, leap;

    if (year < 0 || !time_argument_skip(at, "-"))
        return false;
    month = time_argument_digits(at, 2);
    if (month < 1 || month > 12 || !time_argument_skip(at, "-"))
        return false;
    leap = month == 2 && (year % 4 == 0 && (year % 100 != 0 || year % 400 == 0));
    tm->tm_mday = time_argument_digits(at, 2);
    tm->tm_year = year - 1900;
    tm->tm_mon = month - 1;
    return tm->tm_mday >= 1 && tm->tm_mday <= days[month - 1] + leap;
}

static bool time_argument_clock_parse(const char **at, struct tm *tm, int *ret_ms) {
    int scale = 100;

    tm->tm_hour = time_argument_digits(at, 2);
    if (tm->tm_hour < 0 || tm->tm_hour > 23 || !time_argument_skip(at, ":"))
        return false;
    tm->tm_min = time_argument_digits(at, 2);
    if (tm->tm_min < 0 || tm->tm_min > 59 || !time_argument_skip(at, ":"))
        return false;
    tm->tm_sec = time_argument_digits(at, 2);
    if (tm->tm_sec < 0 || tm->tm_sec > 59)
        return false;
    *ret_ms = 0;
    if (!time_argument_skip(at, "."))
        return true;
    if (**at < '0' || **at > '9')
        return false;
    for (; **at >= '0' && **at <= '9'; (*at)++, scale /= 10)
        *ret_ms += (**at - '0') * scale;
    return true;
}

static bool time_argument_rfc3339_parse(const char *at, int64_t *ret_ms) {
    struct tm tm = {0};
    int ms = 0, zone = 0;

    if (!time_argument_date_parse(&at, &tm) || !time_argument_skip(&at, "Tt ") ||
        !time_argument_clock_parse(&at, &tm, &ms) || !time_argument_zone_parse(&at, &zone) ||
        *at != '\0')
        return false;
    *ret_ms = ((int64_t)timegm(&tm) - zone) * 1000 + ms;
    return true;
}

int time_argument_parse(const char *text, int64_t now_ms, int64_t *ret_ms, struct idem_error *err) {
    char quoted[IDEM_QUOTE_TEXT];
    int64_t ms = 0;

    if (time_argument_rfc3339_parse(text, ret_ms))
        return 0;
    if (idem_duration_parse(text, strlen(text), &ms, err) == 0) {
        *ret_ms = ms > now_ms ? 0 : now_ms - ms;
        return 0;
    }
    return idem_error_set(err, IDEM_E_INVALID,
                          "%s is no time; write 2h (ago) or 2026-11-15T20:00:00Z",
                          idem_error_quote(text, strlen(text), quoted, sizeof(quoted)));
}

void time_argument_json(struct json_out *json, const char *name, int64_t ms) {
    char text[IDEM_RFC3339_TEXT];

    if (ms == 0)
        json_out_null(json, name);
    else
        json_out_text(json, name, idem_rfc3339_print(ms, text, sizeof(text)));
}
