/*
 * Creates the tables; for the command line.
 */
#ifndef IDEM_TX_TX_MIGRATE_H
#define IDEM_TX_TX_MIGRATE_H

#include "idem.h"

/* The version of the tables that this program creates and uses. */
#define IDEM_SCHEMA_VERSION 1

/* All statements as text; NULL if this build does not include the engine. */
const char *idem_sql_schema(enum idem_sql_kind kind);

#endif
