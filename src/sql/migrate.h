/*
 * Making the tables, for the command line.
 */
#ifndef IDEM_SQL_MIGRATE_H
#define IDEM_SQL_MIGRATE_H

#include "idem.h"

/* The version of the tables that this program makes and uses. */
#define IDEM_SCHEMA_VERSION 1

/* All statements, as text; NULL for an engine that is not in this build. */
const char *idem_sql_schema(enum idem_sql_kind kind);

#endif
