/*
 * The response to a statement: its rows in our own memory, or its error. The library has read the
 * whole response before; nothing here communicates with the server.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "store/sql/mysql/mysql.h"

/* Errors. */

struct sql_answer *maria_refusal(enum sql_trouble trouble, unsigned code, const char *text) {
    struct sql_answer *answer = calloc(1, sizeof(*answer));

    if (answer == NULL)
        return NULL;
    answer->trouble = trouble;
    if (trouble == SQL_CONFLICT) /* the server's text would show the key */
        snprintf(answer->text, sizeof(answer->text), "there is one (%u)", code);
    else
        snprintf(answer->text, sizeof(answer->text), "%.250s (%u)", text, code);
    return answer;
}

struct sql_answer *maria_failure(MYSQL_STMT *stmt) {
    unsigned code = mysql_stmt_errno(stmt);

    return maria_refusal(code == 0 ? SQL_BROKEN : mysql_failure_find(code)->trouble, code,
                         mysql_stmt_error(stmt));
}

/* Rows. */

/* The bytes of all cells stand one after the other in the heap, which may move while it grows: the
   value's `n` is the offset until the heap is complete. */
static bool result_take_bytes(MYSQL_STMT *stmt, unsigned column, const struct maria_cell *cell,
                              struct idem_buffer *heap, struct sql_value *ret) {
    char *room = idem_buffer_reserve(heap, cell->len);
    unsigned long len = 0;
    MYSQL_BIND bind = {.buffer_type = MYSQL_TYPE_LONG_BLOB,
                       .buffer = room,
                       .buffer_length = cell->len,
                       .length = &len};

    if (room == NULL || (cell->len > 0 && mysql_stmt_fetch_column(stmt, &bind, column, 0) != 0))
        return false;
    *ret = (struct sql_value){.type = SQL_BYTES, .n = (int64_t)heap->len};
    ret->bytes.len = cell->len;
    heap->len += cell->len;
    return true;
}

static bool result_take_row(MYSQL_STMT *stmt, const char *letters, const struct maria_cell *cells,
                            struct idem_buffer *heap, struct sql_value *out) {
    int rc = mysql_stmt_fetch(stmt);

    if (rc != 0 && rc != MYSQL_DATA_TRUNCATED) /* of bytes, only the length is fetched */
        return false;
    for (unsigned i = 0; letters[i] != '\0'; i++) {
        if (letters[i] != 'b' || cells[i].null)
            out[i] = maria_value(&cells[i], letters[i]);
        else if (!result_take_bytes(stmt, i, &cells[i], heap, &out[i]))
            return false;
    }
    return true;
}

static bool result_take_rows(MYSQL_STMT *stmt, const char *letters, struct sql_answer *answer,
                             struct sql_value *cells) {
    MYSQL_BIND binds[SQL_COL__COUNT + 2];
    struct maria_cell row[SQL_COL__COUNT + 2] = {0};
    struct idem_buffer heap = {0};
    bool fine = true;

    for (size_t i = 0; i < answer->columns; i++)
        maria_bind_out(&binds[i], &row[i], letters[i]);
    if (answer->rows > 0)
        fine = mysql_stmt_bind_result(stmt, binds) == 0;
    for (size_t i = 0; fine && i < answer->rows; i++)
        fine = result_take_row(stmt, letters, row, &heap, cells + i * answer->columns);
    for (size_t i = 0; fine && i < answer->rows * answer->columns; i++)
        if (cells[i].type == SQL_BYTES)
            cells[i].bytes.at = (unsigned char *)heap.at + cells[i].n;
    answer->native = heap.at;
    return fine;
}

struct sql_answer *maria_answer(MYSQL_STMT *stmt, enum sql_statement statement) {
    const char *letters = sql_shapes[statement].gives;
    size_t columns = strlen(letters), rows = 0;
    struct sql_answer *answer;
    struct sql_value *cells;

    /* An UPDATE returns no rows. */
    if (mysql_stmt_field_count(stmt) == columns)
        rows = (size_t)mysql_stmt_num_rows(stmt);
    answer = malloc(sizeof(*answer) + rows * columns * sizeof(*cells));
    if (answer == NULL)
        return NULL;
    cells = (struct sql_value *)(answer + 1);
    *answer = (struct sql_answer){.affected = (int64_t)mysql_stmt_affected_rows(stmt),
                                  .rows = rows,
                                  .columns = columns,
                                  .cells = cells};
    if (result_take_rows(stmt, letters, answer, cells))
        return answer;
    maria_answer_free(answer);
    return NULL;
}

void maria_answer_free(struct sql_answer *answer) {
    if (answer == NULL)
        return;
    free(answer->native);
    free(answer);
}
