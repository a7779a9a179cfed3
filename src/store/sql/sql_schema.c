/*
 * Checks whether this program knows the version of the tables.
 */
#include <stdio.h>

#include "store/sql/sql_engine.h"

const char sql_schema_missing[] =
    "the tables are not there: `idem migrate --store URL` makes them, as a user who may";

bool sql_schema_fits(int64_t version, int64_t oldest, char *text, size_t size) {
    if (version >= SQL_SCHEMA && oldest <= SQL_SCHEMA)
        return true;
    if (version >= SQL_SCHEMA)
        snprintf(text, size,
                 "the tables are of version %lld, for programs that know %lld, and this one knows "
                 "%d: upgrade it",
                 (long long)version, (long long)oldest, SQL_SCHEMA);
    else if (version == 0)
        snprintf(text, size,
                 "idem_meta has no row: the tables were not finished (`idem migrate --store URL` "
                 "does), or it was deleted (put version and oldest back)");
    else
        snprintf(text, size,
                 "the tables are of version %lld, and this program needs %d: `idem migrate --store "
                 "URL` upgrades them",
                 (long long)version, SQL_SCHEMA);
    return false;
}
