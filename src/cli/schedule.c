/*
 * Parses a schedule and computes planned times. Pure. Fails only on text that is not STEP[+OFFSET],
 * on a step that is not in whole seconds, and on an offset that is not less than its step.
 */
#include "cli/schedule.h"

#include <string.h>

#include "base/error.h"
#include "base/units.h"

#define SLACK_MAX_MS 30000
#define TTL_MARGIN_S 3600
#define STEP_MAX_S (366 * 86400)

static int schedule_seconds_parse(const char *text, size_t len, int64_t *ret,
                                  struct idem_error *err) {
    int64_t ms = 0;
    int rc = idem_duration_parse(text, len, &ms, err);

    if (rc < 0)
        return rc;
    if (ms % 1000 != 0)
        return idem_error_set(err, IDEM_E_INVALID, "a schedule is counted in whole seconds");
    *ret = ms / 1000;
    return 0;
}

int cli_schedule_parse(const char *text, struct cli_schedule *ret, struct idem_error *err) {
    size_t len = strlen(text);
    const char *plus = memchr(text, '+', len);
    size_t step_len = plus == NULL ? len : (size_t)(plus - text);
    struct cli_schedule got = {0, 0};
    int rc;

    rc = schedule_seconds_parse(text, step_len, &got.step_s, err);
    if (rc == 0 && plus != NULL)
        rc = schedule_seconds_parse(plus + 1, len - step_len - 1, &got.offset_s, err);
    if (rc < 0)
        return rc;
    if (got.step_s < 1 || got.step_s > STEP_MAX_S)
        return idem_error_set(err, IDEM_E_INVALID, "the step must be 1s to 366d");
    if (got.offset_s >= got.step_s)
        return idem_error_set(err, IDEM_E_INVALID, "the offset must be less than the step");
    *ret = got;
    return 0;
}

int64_t cli_schedule_slack_ms(const struct cli_schedule *schedule) {
    int64_t tenth = schedule->step_s * 1000 / 10;

    return tenth < SLACK_MAX_MS ? tenth : SLACK_MAX_MS;
}

int64_t cli_schedule_ttl_least_s(const struct cli_schedule *schedule) {
    return schedule->step_s;
}

int64_t cli_schedule_ttl_s(const struct cli_schedule *schedule) {
    return schedule->step_s + TTL_MARGIN_S;
}

int64_t cli_schedule_planned(const struct cli_schedule *schedule, int64_t now_ms) {
    int64_t step_ms = schedule->step_s * 1000;
    int64_t since = now_ms + cli_schedule_slack_ms(schedule) - schedule->offset_s * 1000;
    int64_t steps = since / step_ms;

    /* C rounds towards zero; times before the first offset of 1970 must be rounded down as well. */
    if (since % step_ms < 0)
        steps--;
    return steps * schedule->step_s + schedule->offset_s;
}
