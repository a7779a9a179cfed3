/*
 * `idem migrate`: creates the tables of a SQL database or upgrades them to this version, or prints
 * the statements. Fails if the URL names no such database, if the server cannot be reached or
 * refuses, and on tables of a newer version.
 */
#include <stdlib.h>

#include "cli/cli.h"
#include "idem.h"
#include "tx/tx_migrate.h"

/* NULL: it is no SQL database of this build. */
static const char *command_migrate_schema(const char *url) {
    switch (cli_store_kind(url)) {
    case CLI_STORE_POSTGRES:
        return idem_sql_schema(IDEM_SQL_POSTGRES);
    case CLI_STORE_MYSQL:
        return idem_sql_schema(IDEM_SQL_MYSQL);
    case CLI_STORE_SQLITE:
        return idem_sql_schema(IDEM_SQL_SQLITE);
    default:
        return NULL;
    }
}

static int command_migrate_print(const char *url) {
    const char *schema = command_migrate_schema(url);

    if (schema == NULL)
        return cli_fail(
            CLI_USAGE,
            "migrate: --store names no SQL database that this build knows; use postgres:, "
            "mysql: or sqlite:");
    fputs(schema, stdout);
    return cli_flush();
}

static int command_migrate_tables(const char *url) {
    struct idem_sql conn;
    struct idem_error err;
    int rc = idem_sql_open(url, &conn, &err);

    if (rc != 0)
        return cli_message_error("migrate", &err);
    rc = idem_sql_migrate(conn, &err);
    idem_sql_close(conn);
    if (rc != 0)
        return cli_message_error("migrate", &err);
    printf("the tables are of version %d\n", IDEM_SCHEMA_VERSION);
    return cli_flush();
}

static int command_migrate_run(const struct cli_values *values) {
    const char *url_given = values->store != NULL ? values->store : getenv("IDEM_STORE");
    int status = CLI_OK;
    char *url;

    if (url_given == NULL || url_given[0] == '\0')
        return cli_fail(
            CLI_USAGE,
            "migrate: name the database with --store URL or IDEM_STORE; the embedded store and "
            "Redis need no tables");
    url = cli_store_url(values, &status);
    if (url == NULL)
        return status;
    status = values->print ? command_migrate_print(url) : command_migrate_tables(url);
    free(url);
    return status;
}

static const char *const command_migrate_options[] = {"print", "store", "help", NULL};

const struct cli_command cli_migrate = {
    .name = "migrate",
    .summary = "make or upgrade the tables of a SQL database",
    .synopsis = "[OPTIONS]",
    .text =
        "Makes what is missing in a PostgreSQL, MySQL or SQLite database: the tables of stores\n"
        "and guards, and the functions that other languages use (idem_once, idem_result).\n"
        "May be run twice, and by two machines at once. It needs a user who may make tables;\n"
        "after that SELECT, INSERT, UPDATE and DELETE on them are enough (MySQL: and EXECUTE).\n",
    .after = "  idem migrate --store postgres://owner@db/shop\n"
             "  idem migrate --store mysql: --print | mysql shop\n",
    .no_operand = "takes no operand",
    .options = command_migrate_options,
    .run = command_migrate_run,
};
