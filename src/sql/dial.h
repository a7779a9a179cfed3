/*
 * A connection by URL, for the command line and for programs that have none of their own.
 */
#ifndef IDEM_SQL_DIAL_H
#define IDEM_SQL_DIAL_H

#include "idem.h"

/* postgres:, mysql: (as of a store), sqlite:PATH. Blocks. 0, or a code: IDEM_E_INVALID for a URL
   that is none of these. */
int idem_sql_dial(const char *url, struct idem_sql *ret, struct idem_error *err);
void idem_sql_hangup(struct idem_sql conn);

#endif
