/*
 * A guarded operation: what its row is called, and the row itself. The row is in the table idem_tx,
 * or in one of the caller's (struct idem_tx_table): the guards do not know which.
 */
#ifndef IDEM_SQL_TX_H
#define IDEM_SQL_TX_H

#include "core/key.h"
#include "core/policy.h"
#include "sql/dialect.h"

/* One operation, as guard and arguments have it. */
struct idem_tx_name {
    struct idem_sql conn;
    const struct idem_dialect *dialect;
    struct idem_policy policy;
    struct idem_record_key key;
    struct idem_identity identity;
    struct idem_bytes serial, source; /* in a table of the caller's; borrowed from this and args */
};

/* Checks the connection, too, and that the policy makes sense here. */
int idem_tx_name_make(struct idem_sql conn, const struct idem_guard *guard,
                      const struct idem_args *args, struct idem_tx_name *ret,
                      struct idem_error *err);
/* Wipes the key. */
void idem_tx_name_release(struct idem_tx_name *name);

/* Row.c. */

struct idem_tx_row {
    bool found, expired, has_result; /* in a table of the caller's, none expires */
    struct idem_fingerprint fingerprint;
    int32_t status;
    struct idem_reply reply; /* what `result` is in; to be released */
    struct idem_bytes result;
};

/* *ret_done: it was not there, and is now. A transaction that has it and is not committed is
   waited for. `begin` (NULL: none) is said in front of it; not for a table of the caller's. */
int idem_row_insert(const struct idem_tx_name *name, const char *begin, bool *ret_done,
                    struct idem_error *err);
/* What is committed. */
int idem_row_read(const struct idem_tx_name *name, struct idem_tx_row *ret, struct idem_error *err);
/* *ret_done: it had expired, and is ours now. Of two, one. */
int idem_row_renew(const struct idem_tx_name *name, bool *ret_done, struct idem_error *err);
/* IDEM_E_INVALID where there is none, or one that has its result. */
int idem_row_result(const struct idem_tx_name *name, int32_t status, struct idem_bytes result,
                    struct idem_error *err);

/* Table.c: the same in a table of the caller's, and what the row is called there. */
int idem_table_name(const struct idem_tx_table *table, const struct idem_args *args,
                    struct idem_tx_name *name, struct idem_error *err);
int idem_table_insert(const struct idem_tx_name *name, bool *ret_done, struct idem_error *err);
int idem_table_read(const struct idem_tx_name *name, struct idem_tx_row *ret,
                    struct idem_error *err);
int idem_table_result(const struct idem_tx_name *name, int32_t status, struct idem_bytes result,
                      struct idem_error *err);

/* Print.c. */

/* "4294967295:", the hash in hex, and a NUL. */
#define IDEM_PRINT_TEXT (11 + 2 * IDEM_HASH_LEN + 1)

/* Returns text; NULL: there is no fingerprint. */
const char *idem_print_write(const struct idem_fingerprint *print, char text[IDEM_PRINT_TEXT]);
/* False: it is none; *ret is as it was. */
bool idem_print_read(struct idem_bytes bytes, struct idem_fingerprint *ret);

/* Guard.c: idem_tx_once() and idem_tx_result() on a name that is made already. */
int idem_tx_guard(const struct idem_tx_name *name, struct idem_tx_answer *ret,
                  struct idem_error *err);
/* Begins the transaction, marks it (IDEM_TX_MARK), and guards it. */
int idem_tx_guard_begin(const struct idem_tx_name *name, enum idem_isolation isolation,
                        struct idem_tx_answer *ret, struct idem_error *err);
int idem_tx_store(const struct idem_tx_name *name, int32_t status, const void *result, size_t len,
                  struct idem_error *err);

#endif
