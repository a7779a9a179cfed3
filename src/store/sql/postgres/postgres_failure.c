/*
 * The errors of PostgreSQL.
 */
#include <stddef.h>
#include <string.h>

#include "idem.h"
#include "store/sql/sql_failure.h"

#define KEY_HELP "the columns that are named as the key need a unique index of just these"

/* clang-format off */
static const struct sql_failure failures[] = {
    {"23505", 0, SQL_CONFLICT, IDEM_E_REFUSED, IDEM_WHY_CONFLICT, NULL, NULL},
    {"40001", 0, SQL_AGAIN, IDEM_E_RETRY_TX, IDEM_WHY_NONE, NULL, NULL},
    {"40P01", 0, SQL_AGAIN, IDEM_E_RETRY_TX, IDEM_WHY_NONE, NULL, NULL},
    {"55P03", 0, SQL_AGAIN, IDEM_E_RETRY_TX, IDEM_WHY_LOCKED, NULL, NULL},
    {"57014", 0, SQL_AGAIN, IDEM_E_REFUSED, IDEM_WHY_NONE, NULL, NULL},
    {"53100", 0, SQL_FULL, IDEM_E_FULL, IDEM_WHY_NONE, NULL, NULL},
    {"53200", 0, SQL_FULL, IDEM_E_REFUSED, IDEM_WHY_NONE, NULL, NULL},
    {"57P", 0, SQL_BROKEN, IDEM_E_REFUSED, IDEM_WHY_CONNECTION, NULL, NULL},
    {"08", 0, SQL_BROKEN, IDEM_E_REFUSED, IDEM_WHY_CONNECTION, NULL, NULL},
    {"26000", 0, SQL_ELSEWHERE, IDEM_E_REFUSED, IDEM_WHY_NONE, NULL, NULL},
    {"42P05", 0, SQL_ELSEWHERE, IDEM_E_REFUSED, IDEM_WHY_NONE, NULL, NULL},
    {"25006", 0, SQL_ELSEWHERE, IDEM_E_REFUSED, IDEM_WHY_NONE, NULL, NULL},
    {"0A000", 0, SQL_ELSEWHERE, IDEM_E_REFUSED, IDEM_WHY_NONE, NULL, NULL},
    {"25P02", 0, SQL_REFUSED, IDEM_E_INVALID, IDEM_WHY_NONE, NULL, "roll it back"},
    {"42P01", 0, SQL_REFUSED, IDEM_E_REFUSED, IDEM_WHY_NONE, NULL, SQL_HELP_MIGRATE},
    {"42P10", 0, SQL_REFUSED, IDEM_E_INVALID, IDEM_WHY_NONE, NULL, KEY_HELP},
    {"", 0, SQL_REFUSED, IDEM_E_REFUSED, IDEM_WHY_NONE, NULL, NULL},
};
/* clang-format on */

const struct sql_failure *postgres_failure_find(const char *state) {
    const struct sql_failure *f = failures;

    while (strncmp(f->state, state, strlen(f->state)) != 0)
        f++;
    return f;
}
