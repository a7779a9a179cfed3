/*
 * The tables, by the text that `idem migrate` runs.
 */
#include "tables.h"

#include <stdio.h>

void tables_make(struct farm *farm) {
    char text[65536], path[512];
    FILE *file;
    size_t n;

    snprintf(path, sizeof(path), "%s/%s.sql", SQL_SCHEMA_DIR,
             farm->kind >= FARM_MY_SOCKET ? "mysql" : "postgres");
    file = fopen(path, "r");
    n = fread(text, 1, sizeof(text) - 1, file);
    fclose(file);
    text[n] = '\0';
    farm_sql(farm, text);
}
