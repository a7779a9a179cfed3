/*
 * A guarded operation: its identity, and its row. The row is in the table idem_tx or in a table of
 * the caller (struct idem_tx_table); the guards do not distinguish the two.
 */
#ifndef IDEM_TX_TX_H
#define IDEM_TX_TX_H

#include "core/key.h"
#include "core/policy.h"
#include "tx/tx_dialect.h"

/* The identity of one operation, made from a guard and its arguments. */
struct idem_tx_operation {
    struct idem_sql conn;
    const struct idem_dialect *dialect;
    struct idem_policy policy;
    struct idem_record_key key;
    struct idem_identity identity;
    struct idem_bytes serial,
        source; /* only for a table of the caller; borrowed from identity and args */
};

/* tx_row.c. */

struct idem_tx_row {
    bool found, expired, has_result; /* a row in a table of the caller never expires */
    struct idem_fingerprint fingerprint;
    int32_t status;
    struct idem_reply reply; /* owns the bytes of `result`; the caller releases it */
    struct idem_bytes result;
};

/* Sets *ret_done if the row was absent and is inserted now. Waits for an open transaction that
   holds the row. `begin` (NULL: none) is sent in front of the statement, only for the table
   idem_tx. */
int idem_row_insert(const struct idem_tx_operation *op, const char *begin, bool *ret_done,
                    struct idem_error *err);
/* Reads the committed row. */
int idem_row_read(const struct idem_tx_operation *op, struct idem_tx_row *ret,
                  struct idem_error *err);
/* Sets *ret_done if the row had expired and belongs to this operation now. Of two concurrent
   callers, only the first succeeds. */
int idem_row_renew(const struct idem_tx_operation *op, bool *ret_done, struct idem_error *err);
/* IDEM_E_INVALID if the row does not exist or has its result already. */
int idem_row_result(const struct idem_tx_operation *op, int32_t status, struct idem_bytes result,
                    struct idem_error *err);

/* tx_table.c: the same for a table of the caller, and the values that identify the row there. */
int idem_table_name(const struct idem_tx_table *table, const struct idem_args *args,
                    struct idem_tx_operation *op, struct idem_error *err);
int idem_table_insert(const struct idem_tx_operation *op, bool *ret_done, struct idem_error *err);
int idem_table_read(const struct idem_tx_operation *op, struct idem_tx_row *ret,
                    struct idem_error *err);
int idem_table_result(const struct idem_tx_operation *op, int32_t status, struct idem_bytes result,
                      struct idem_error *err);

/* tx_row.c. */

/* "4294967295:", the hash in hexadecimal digits, and a NUL. */
#define IDEM_FINGERPRINT_TEXT (11 + 2 * IDEM_HASH_LEN + 1)

/* Returns `text`, or NULL if there is no fingerprint. */
const char *idem_fingerprint_write(const struct idem_fingerprint *fingerprint,
                                   char text[IDEM_FINGERPRINT_TEXT]);
/* Returns false, and leaves *ret unchanged, if the bytes are not a fingerprint. */
bool idem_fingerprint_read(struct idem_bytes bytes, struct idem_fingerprint *ret);

#endif
