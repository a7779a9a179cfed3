/*
 * Schedules: `--at STEP[+OFFSET]` turns the store's time into the planned time
 * of a job, so that all machines that start it agree on its key. Pure.
 */
#ifndef IDEM_CLI_SCHEDULE_H
#define IDEM_CLI_SCHEDULE_H

#include "idem.h"

struct cli_schedule {
    int64_t step_s;   /* 1 s .. 366 d */
    int64_t offset_s; /* 0 .. step_s - 1, from 1970-01-01T00:00:00Z */
};

/* 0, or IDEM_E_INVALID with *ret untouched. */
int cli_schedule_parse(const char *text, struct cli_schedule *ret, struct idem_error *err);

/*
 * How long before a step a start already counts as that step: a tenth of it, at most 30 s. Cron
 * starts jobs by each machine's own clock; a machine whose clock is a little ahead of the store's
 * starts just before the step, and must not get the key of the previous step.
 */
int64_t cli_schedule_slack_ms(const struct cli_schedule *schedule);

/* The shortest ttl that covers a step, and the ttl to use where none is set. The second one has a
   margin, since the clock that counts the steps may be set back. */
int64_t cli_schedule_ttl_least_s(const struct cli_schedule *schedule);
int64_t cli_schedule_ttl_s(const struct cli_schedule *schedule);

/* The planned time, in seconds since 1970, of a start at `now_ms`. */
int64_t cli_schedule_planned(const struct cli_schedule *schedule, int64_t now_ms);

#endif
