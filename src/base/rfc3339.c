/*
 * Formats timestamps. Pure; it cannot fail.
 */
#include "base/rfc3339.h"

#include <stdio.h>
#include <time.h>

const char *idem_rfc3339_print(int64_t ms, char *buf, size_t size) {
    time_t seconds = (time_t)(ms / 1000);
    int rest = (int)(ms % 1000);
    struct tm tm;
    size_t len;

    if (rest < 0) {
        rest += 1000;
        seconds--;
    }
    if (gmtime_r(&seconds, &tm) == NULL || tm.tm_year < -1900 || tm.tm_year > 9999 - 1900) {
        snprintf(buf, size, "?");
        return buf;
    }
    len = strftime(buf, size, "%Y-%m-%dT%H:%M:%S", &tm);
    if (rest != 0)
        snprintf(buf + len, size - len, ".%03dZ", rest);
    else
        snprintf(buf + len, size - len, "Z");
    return buf;
}
