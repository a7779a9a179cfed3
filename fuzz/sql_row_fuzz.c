/*
 * A row of any values: a record, or damaged; a record that was read is written
 * back unchanged.
 */
#include <assert.h>
#include <string.h>

#include "store/sql/sql_engine.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A value from the input: its type, then a number of this many bytes, or bytes. */
static struct sql_value value_take(const uint8_t **data, size_t *size) {
    struct sql_value value = {.type = SQL_NULL};
    size_t len;

    if (*size < 2)
        return value;
    value.type = (enum sql_type)((*data)[0] % 4);
    len = (*data)[1] % 48;
    *data += 2;
    *size -= 2;
    if (len > *size)
        len = *size;
    if (value.type == SQL_BYTES)
        value.bytes = (struct idem_bytes){*data, len};
    else
        memcpy(&value.n, *data, len < sizeof(value.n) ? len : sizeof(value.n));
    *data += len;
    *size -= len;
    return value;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const struct idem_record_key key = {.prefix_len = 1, .at = "p"};
    struct sql_value cells[SQL_COL__COUNT], written[SQL_VALUES_MAX];
    struct idem_record record = {0};
    int64_t now = 0;
    size_t n;
    int rc;

    for (size_t i = 0; i < SQL_COL__COUNT; i++)
        cells[i] = value_take(&data, &size);
    rc = sql_row_decode(cells, &record, &now);
    assert(rc == 0 || rc == IDEM_E_CORRUPT || rc == IDEM_E_VERSION);
    if (rc != 0)
        return 0;
    assert(record.state >= IDEM_ISSUED && record.state <= IDEM_FAILED && now >= 0);
    n = sql_row_encode(&key, &record, 1, 2, true, written);
    assert(n + 1 == strlen(sql_shapes[SQL_WRITE_RESULT].takes));
    assert(written[1].n == cells[SQL_COL_STATE].n && written[2].n == cells[SQL_COL_FLAGS].n &&
           written[3].n == cells[SQL_COL_ATTEMPT].n);
    return 0;
}
