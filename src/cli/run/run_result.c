/*
 * Encodes and decodes a command's result. Encoding keeps nothing once memory is missing or the
 * limit is exceeded. Decoding trusts nothing: it walks the whole result before any of it is used
 * (fuzz/cli_result_fuzz.c).
 */
#include "cli/run/run_result.h"

#include <stdlib.h>
#include <string.h>

#define MAGIC 'R'
#define VERSION 1
#define HEADER_LEN 4
#define CHUNK_LEN 5

void cli_result_init(struct cli_result *result, size_t limit) {
    *result = (struct cli_result){.limit = limit};
}

void cli_result_release(struct cli_result *result) {
    free(result->bytes);
    *result = (struct cli_result){.over = true};
}

static void result_drop(struct cli_result *result) {
    free(result->bytes);
    result->bytes = NULL;
    result->len = result->size = result->chunk = 0;
    result->over = true;
}

static bool result_reserve(struct cli_result *result, size_t more) {
    size_t need = result->len + more, size = result->size == 0 ? 4096 : result->size;
    unsigned char *bytes;

    if (need <= result->size)
        return true;
    while (size < need)
        size *= 2;
    bytes = realloc(result->bytes, size);
    if (bytes == NULL)
        return false;
    result->bytes = bytes;
    result->size = size;
    return true;
}

static void run_result_u32_put(unsigned char *at, uint32_t value) {
    for (int i = 0; i < 4; i++)
        at[i] = (unsigned char)(value >> (8 * i));
}

static uint32_t run_result_u32_get(const unsigned char *at) {
    uint32_t value = 0;

    for (int i = 0; i < 4; i++)
        value |= (uint32_t)at[i] << (8 * i);
    return value;
}

void cli_result_add(struct cli_result *result, int stream, const void *bytes, size_t len) {
    size_t more = len + CHUNK_LEN + (result->len == 0 ? HEADER_LEN : 0);

    if (result->over || len == 0)
        return;
    if (len > result->limit - result->output || !result_reserve(result, more)) {
        result_drop(result);
        return;
    }
    if (result->len == 0)
        result->len = HEADER_LEN;
    /* Consecutive output of the same stream belongs to the same chunk. */
    if (result->chunk == 0 || result->bytes[result->chunk] != stream) {
        result->chunk = result->len;
        result->bytes[result->chunk] = (unsigned char)stream;
        run_result_u32_put(result->bytes + result->chunk + 1, 0);
        result->len += CHUNK_LEN;
    }
    memcpy(result->bytes + result->len, bytes, len);
    result->len += len;
    result->output += len;
    run_result_u32_put(result->bytes + result->chunk + 1,
                       (uint32_t)(result->len - result->chunk - CHUNK_LEN));
}

bool cli_result_end(struct cli_result *result, const struct spawn_end *end) {
    if (result->over || !result_reserve(result, HEADER_LEN))
        return false;
    if (result->len == 0)
        result->len = HEADER_LEN;
    result->bytes[0] = MAGIC;
    result->bytes[1] = VERSION;
    result->bytes[2] = end->signalled;
    result->bytes[3] = (unsigned char)end->number;
    return true;
}

/* Reads one chunk; false at the end, or if the next bytes are no chunk. */
static bool reader_chunk_read(struct cli_reader *reader, struct cli_chunk *ret) {
    uint32_t len;

    if (reader->left <= CHUNK_LEN || (reader->at[0] != 1 && reader->at[0] != 2))
        return false;
    len = run_result_u32_get(reader->at + 1);
    if (len == 0 || len > reader->left - CHUNK_LEN)
        return false;
    *ret = (struct cli_chunk){reader->at[0], reader->at + CHUNK_LEN, len};
    reader->at += CHUNK_LEN + len;
    reader->left -= CHUNK_LEN + len;
    return true;
}

bool cli_result_read(const void *bytes, size_t len, struct spawn_end *ret_end,
                     struct cli_reader *ret_reader) {
    const unsigned char *at = bytes;
    struct cli_reader reader;
    struct cli_chunk chunk;

    if (len < HEADER_LEN || at[0] != MAGIC || at[1] != VERSION || at[2] > 1)
        return false;
    /* Signal numbers are 1 to 64; a larger one would give no exit status. */
    if (at[2] == 1 && (at[3] == 0 || at[3] > 64))
        return false;
    reader = (struct cli_reader){at + HEADER_LEN, len - HEADER_LEN};
    while (reader_chunk_read(&reader, &chunk))
        ;
    if (reader.left != 0)
        return false;
    *ret_end = (struct spawn_end){.signalled = at[2] == 1, .number = at[3]};
    *ret_reader = (struct cli_reader){at + HEADER_LEN, len - HEADER_LEN};
    return true;
}

bool cli_reader_next(struct cli_reader *reader, struct cli_chunk *ret) {
    return reader_chunk_read(reader, ret);
}
