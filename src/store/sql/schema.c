/*
 * Whether the tables are those that this program knows.
 */
#include <stdio.h>

#include "store/sql/sql.h"

const char sql_schema_missing[] =
    "the tables are not there: `idem migrate --store URL` makes them, as a user who may";

bool sql_schema_fits(int64_t version, char *text, size_t size) {
    if (version == SQL_SCHEMA)
        return true;
    if (version > SQL_SCHEMA)
        snprintf(text, size,
                 "the tables are of version %lld, and this program knows %d: upgrade it",
                 (long long)version, SQL_SCHEMA);
    else
        snprintf(text, size,
                 "the tables are of version %lld, and this program needs %d: `idem migrate --store "
                 "URL` upgrades them",
                 (long long)version, SQL_SCHEMA);
    return false;
}
