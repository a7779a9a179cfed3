/*
 * The errors of MySQL, MariaDB and the library.
 */
#include <stdbool.h>
#include <stddef.h>

#include "idem.h"
#include "store/sql/sql_failure.h"

#define OMITTED "its words may quote a value, and are left out"
#define READS "a statement's results are still to be read on the connection"

/* clang-format off */
static const struct sql_failure failures[] = {
    {NULL, 1062, SQL_CONFLICT, IDEM_E_REFUSED, IDEM_WHY_CONFLICT,
     "its unique key has such a row", NULL},
    {NULL, 1169, SQL_REFUSED, IDEM_E_REFUSED, IDEM_WHY_CONFLICT,
     "its unique key has such a row", NULL},
    {NULL, 1586, SQL_REFUSED, IDEM_E_REFUSED, IDEM_WHY_CONFLICT,
     "its unique key has such a row", NULL},
    {NULL, 1205, SQL_AGAIN, IDEM_E_RETRY_TX, IDEM_WHY_LOCKED, "a lock was not had in time", NULL},
    {NULL, 3572, SQL_REFUSED, IDEM_E_RETRY_TX, IDEM_WHY_LOCKED, "a lock was not had at once", NULL},
    {NULL, 1213, SQL_AGAIN, IDEM_E_RETRY_TX, IDEM_WHY_NONE,
     "a deadlock", NULL}, /* or another node of the cluster was first */
    {NULL, 1020, SQL_AGAIN, IDEM_E_RETRY_TX, IDEM_WHY_NONE,
     "a row has changed since the transaction first read", NULL},
    {NULL, 1317, SQL_AGAIN, IDEM_E_REFUSED, IDEM_WHY_NONE, NULL, NULL}, /* KILL QUERY */
    {NULL, 1969, SQL_AGAIN, IDEM_E_REFUSED, IDEM_WHY_NONE, OMITTED, NULL}, /* max_statement_time */
    {NULL, 3024, SQL_AGAIN, IDEM_E_REFUSED, IDEM_WHY_NONE, OMITTED, NULL}, /* max_execution_time */
    {NULL, 1146, SQL_REFUSED, IDEM_E_REFUSED, IDEM_WHY_NONE,
     NULL, SQL_HELP_MIGRATE}, /* no such table */
    {NULL, 1305, SQL_REFUSED, IDEM_E_REFUSED, IDEM_WHY_NONE,
     NULL, SQL_HELP_MIGRATE}, /* no such function */
    {NULL, 1021, SQL_FULL, IDEM_E_FULL, IDEM_WHY_NONE, "the disk is full", NULL},
    {NULL, 1114, SQL_FULL, IDEM_E_FULL, IDEM_WHY_NONE, "the table is full", NULL},
    {NULL, 1041, SQL_FULL, IDEM_E_REFUSED, IDEM_WHY_NONE, OMITTED, NULL}, /* out of memory */
    {NULL, 1037, SQL_FULL, IDEM_E_REFUSED, IDEM_WHY_NONE, OMITTED, NULL}, /* out of memory */
    {NULL, 1038, SQL_FULL, IDEM_E_REFUSED, IDEM_WHY_NONE,
     OMITTED, NULL}, /* out of memory for sorting */
    {NULL, 1153, SQL_FULL, IDEM_E_REFUSED, IDEM_WHY_CONNECTION,
     NULL, "raise the server's max_allowed_packet"},
    {NULL, 1044, SQL_REFUSED, IDEM_E_REFUSED, IDEM_WHY_NONE, NULL, NULL},
    {NULL, 1054, SQL_REFUSED, IDEM_E_REFUSED, IDEM_WHY_NONE, NULL, NULL},
    {NULL, 1142, SQL_REFUSED, IDEM_E_REFUSED, IDEM_WHY_NONE, NULL, NULL},
    {NULL, 1143, SQL_REFUSED, IDEM_E_REFUSED, IDEM_WHY_NONE, NULL, NULL},
    {NULL, 1370, SQL_REFUSED, IDEM_E_REFUSED, IDEM_WHY_NONE, NULL, NULL},
    {NULL, 1406, SQL_REFUSED, IDEM_E_REFUSED, IDEM_WHY_NONE, NULL, NULL},
    {NULL, 1243, SQL_ELSEWHERE, IDEM_E_REFUSED, IDEM_WHY_NONE,
     OMITTED, NULL}, /* unknown prepared statement */
    {NULL, 1615, SQL_ELSEWHERE, IDEM_E_REFUSED, IDEM_WHY_NONE,
     OMITTED, NULL}, /* to be prepared again */
    {NULL, 1290, SQL_ELSEWHERE, IDEM_E_REFUSED, IDEM_WHY_NONE,
     NULL, NULL}, /* read_only: no longer the primary */
    {NULL, 1792, SQL_ELSEWHERE, IDEM_E_REFUSED, IDEM_WHY_NONE,
     NULL, NULL}, /* read-only transaction */
    {NULL, 1836, SQL_ELSEWHERE, IDEM_E_REFUSED, IDEM_WHY_NONE, NULL, NULL}, /* read-only server */
    {NULL, 1047, SQL_ELSEWHERE, IDEM_E_REFUSED, IDEM_WHY_NONE,
     OMITTED, NULL}, /* the cluster's node is not ready */
    {NULL, 1184, SQL_BROKEN, IDEM_E_REFUSED, IDEM_WHY_NONE, OMITTED, NULL}, /* aborted connection */
    {NULL, 4031, SQL_BROKEN, IDEM_E_REFUSED, IDEM_WHY_NONE,
     OMITTED, NULL}, /* disconnected while idle */
    {NULL, 1053, SQL_BROKEN, IDEM_E_REFUSED, IDEM_WHY_CONNECTION, NULL, NULL}, /* server shutdown */
    {NULL, 1927, SQL_BROKEN, IDEM_E_REFUSED, IDEM_WHY_CONNECTION,
     NULL, NULL}, /* the connection was killed */
    {NULL, 2006, SQL_BROKEN, IDEM_E_REFUSED, IDEM_WHY_CONNECTION, NULL, NULL},
    {NULL, 2013, SQL_BROKEN, IDEM_E_REFUSED, IDEM_WHY_CONNECTION, NULL, NULL},
    {NULL, 2055, SQL_BROKEN, IDEM_E_REFUSED, IDEM_WHY_CONNECTION, NULL, NULL},
    {NULL, 2014, SQL_BROKEN, IDEM_E_INVALID, IDEM_WHY_NONE, "it came out of turn", READS},
    {NULL, 2008, SQL_BROKEN, IDEM_E_NOMEM, IDEM_WHY_NONE, "no memory", NULL},
    {NULL, 0, SQL_REFUSED, IDEM_E_REFUSED, IDEM_WHY_NONE, OMITTED, NULL},
};

/* Any other error of the library: the connection is unusable afterwards. */
static const struct sql_failure broken =
    {NULL, 0, SQL_BROKEN, IDEM_E_REFUSED, IDEM_WHY_NONE, OMITTED, NULL};
/* clang-format on */

static bool failure_is_of_library(unsigned number) {
    return (number >= 2000 && number <= 2999) || (number >= 5000 && number <= 5999);
}

const struct sql_failure *mysql_failure_find(unsigned number) {
    const struct sql_failure *f = failures;

    while (f->number != 0 && (unsigned)f->number != number)
        f++;
    return f->number == 0 && failure_is_of_library(number) ? &broken : f;
}
