/*
 * A claim that was not answered RUN: the stored result is given out, or who
 * asked is told why nothing was run.
 */
#ifndef IDEM_CLI_REFUSE_H
#define IDEM_CLI_REFUSE_H

#include "cli/work.h"

/* Returns the exit status. */
int cli_refuse(const struct work *work, const struct idem_answer *answer);

#endif
