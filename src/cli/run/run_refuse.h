/*
 * A verdict other than RUN: replays the stored result, or reports why nothing was run.
 */
#ifndef IDEM_CLI_RUN_RUN_REFUSE_H
#define IDEM_CLI_RUN_RUN_REFUSE_H

#include "cli/run/run_loop.h"

/* Returns the exit status. */
int cli_refuse(const struct work *work, const struct idem_answer *answer);

#endif
