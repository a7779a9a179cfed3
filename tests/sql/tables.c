/*
 * The tables, as `idem migrate` makes them.
 */
#include "tables.h"

#include <stdio.h>
#include <stdlib.h>

#include "sql/dial.h"

void tables_make(struct farm *farm) {
    struct idem_error err = {0};
    struct idem_sql conn;
    char url[2000];
    int rc;

    farm_url_as(farm, FARM_OWNER, "", url, sizeof(url));
    rc = idem_sql_dial(url, &conn, &err);
    if (rc == 0) {
        rc = idem_sql_migrate(conn, &err);
        idem_sql_hangup(conn);
    }
    if (rc != 0) {
        fprintf(stderr, "# %s\n", err.text);
        exit(1);
    }
}
