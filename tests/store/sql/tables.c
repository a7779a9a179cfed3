/*
 * The tables, as `idem migrate` makes them.
 */
#include "tables.h"

#include <stdio.h>
#include <stdlib.h>

#include "idem.h"

void tables_make(struct farm *farm) {
    struct idem_error error;
    struct idem_sql conn;
    char url[1024];

    farm_url_as(farm, FARM_OWNER, FARM_PATIENT, url, sizeof(url));
    if (idem_sql_open(url, &conn, &error) == 0 && idem_sql_migrate(conn, &error) == 0) {
        idem_sql_close(conn);
        return;
    }
    fprintf(stderr, "cannot make the tables: %s\n", error.text);
    exit(1);
}
