/*
 * Encodes and decodes a command's result. Encoding keeps nothing once memory is missing or the
 * limit is exceeded. Decoding trusts nothing: it walks the whole result before any of it is used
 * (fuzz/cli_result_fuzz.c).
 */
#include "cli/cli_result.h"

#include <errno.h>
#include <stdint.h>

#include "cli/cli.h"

#define MAGIC 'R'
#define VERSION 1
#define HEADER_LEN 4
#define CHUNK_LEN 5

void cli_result_init(struct cli_result *result, size_t limit) {
    *result = (struct cli_result){.limit = limit};
}

void cli_result_release(struct cli_result *result) {
    idem_buffer_release(&result->bytes);
    *result = (struct cli_result){.over = true};
}

static void result_u32_put(char *at, uint32_t value) {
    for (int i = 0; i < 4; i++)
        at[i] = (char)(value >> (8 * i));
}

static uint32_t result_u32_get(const unsigned char *at) {
    uint32_t value = 0;

    for (int i = 0; i < 4; i++)
        value |= (uint32_t)at[i] << (8 * i);
    return value;
}

void cli_result_add(struct cli_result *result, int stream, const void *bytes, size_t len) {
    struct idem_buffer *all = &result->bytes;

    if (result->over || len == 0)
        return;
    if (len > result->limit - result->output ||
        idem_buffer_reserve(all, HEADER_LEN + CHUNK_LEN + len) == NULL) {
        cli_result_release(result);
        return;
    }
    if (all->len == 0)
        all->len = HEADER_LEN;
    /* Consecutive output of the same stream belongs to the same chunk. */
    if (result->chunk == 0 || all->at[result->chunk] != stream) {
        result->chunk = all->len;
        all->at[result->chunk] = (char)stream;
        all->len += CHUNK_LEN;
    }
    idem_buffer_put(all, bytes, len);
    result->output += len;
    result_u32_put(all->at + result->chunk + 1, (uint32_t)(all->len - result->chunk - CHUNK_LEN));
}

bool cli_result_end(struct cli_result *result, const struct spawn_end *end) {
    char *at;

    if (result->over || idem_buffer_reserve(&result->bytes, HEADER_LEN) == NULL)
        return false;
    if (result->bytes.len == 0)
        result->bytes.len = HEADER_LEN;
    at = result->bytes.at;
    at[0] = MAGIC;
    at[1] = VERSION;
    at[2] = (char)end->signalled;
    at[3] = (char)end->number;
    return true;
}

/* Reads one chunk; false at the end, or if the next bytes are no chunk. */
static bool reader_chunk_read(struct cli_reader *reader, struct cli_chunk *ret) {
    uint32_t len;

    if (reader->left <= CHUNK_LEN || (reader->at[0] != 1 && reader->at[0] != 2))
        return false;
    len = result_u32_get(reader->at + 1);
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

/*
 * Writes a stored result to stdout and stderr. Fails if the bytes do not have the form that `idem
 * run` stores; reports the stream that could not be written.
 */

bool cli_replay(const void *bytes, size_t len, struct spawn_end *ret_end,
                struct cli_fault *ret_fault) {
    bool failed[3] = {false, false, false};
    struct cli_fault fault = {0, 0};
    struct cli_reader reader;
    struct cli_chunk chunk;

    if (!cli_result_read(bytes, len, ret_end, &reader))
        return false;
    while (cli_reader_next(&reader, &chunk)) {
        if (failed[chunk.stream] || cli_write_all(chunk.stream, chunk.bytes, chunk.len))
            continue;
        failed[chunk.stream] = true;
        if (fault.why == 0 && errno != EPIPE && errno != ECONNRESET)
            fault = (struct cli_fault){chunk.stream, errno};
    }
    *ret_fault = fault;
    return true;
}
