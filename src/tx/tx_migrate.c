/*
 * Creates the tables and functions, and upgrades older ones to this version: runs the missing parts
 * of the engine's schema in order. Each part writes its own version number. Fails on a version
 * newer than the program, and on errors of the engine. A failure rolls back all of the work, except
 * in MySQL, where the next attempt finds it and continues.
 */
#include "tx/tx_migrate.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "tx/tx_dialect.h"

static const char part_mark[] = "\n-- @ ";

/* Returns 0 in *ret if the tables do not exist yet. */
static int migrate_read_version(struct idem_sql conn, const struct idem_dialect *dialect,
                                int64_t *ret, struct idem_error *err) {
    int64_t exists = 0;
    int rc = idem_query_number(conn, dialect, dialect->migration.exists, NULL, &exists, err);

    *ret = 0;
    if (rc == 0 && exists != 0)
        rc = idem_query_number(conn, dialect, "SELECT version FROM idem_meta", NULL, ret, err);
    return rc;
}

/* Runs one part, up to the next mark. */
static int migrate_run_part(struct idem_sql conn, const struct idem_dialect *dialect,
                            const char *from, struct idem_error *err) {
    const char *next = strstr(from, part_mark);
    char *text = next == NULL ? strdup(from) : strndup(from, (size_t)(next - from));
    int rc;

    if (text == NULL)
        return idem_error_set(err, IDEM_E_NOMEM, "no memory for a statement");
    rc = dialect->migration.script(conn, text, err);
    free(text);
    return rc;
}

static int migrate_run_parts(struct idem_sql conn, const struct idem_dialect *dialect,
                             struct idem_error *err) {
    int64_t version = 0;
    int rc = migrate_read_version(conn, dialect, &version, err);

    if (rc == 0 && version > IDEM_SCHEMA_VERSION)
        return idem_error_set(err, IDEM_E_VERSION,
                              "the tables are of version %lld, and this program knows %d: use a "
                              "newer one",
                              (long long)version, IDEM_SCHEMA_VERSION);
    for (const char *at = dialect->migration.schema;
         rc == 0 && (at = strstr(at, part_mark)) != NULL;) {
        at += strlen(part_mark);
        if (strtoll(at, NULL, 10) > version)
            rc = migrate_run_part(conn, dialect, at + strcspn(at, "\n"), err);
    }
    return rc;
}

const char *idem_sql_schema(enum idem_sql_kind kind) {
    const struct idem_dialect *dialect = idem_dialect_find(kind);

    return dialect == NULL ? NULL : dialect->migration.schema;
}

int idem_sql_migrate(struct idem_sql conn, struct idem_error *err) {
    const struct idem_dialect *dialect = idem_dialect_of(conn, err);
    int rc;

    if (dialect == NULL)
        return IDEM_E_INVALID;
    rc = dialect->outside(conn, err);
    if (rc == 0)
        rc = dialect->migration.begin(conn, err);
    if (rc != 0)
        return rc;
    return dialect->migration.end(conn, migrate_run_parts(conn, dialect, err), err);
}
