/*
 * A command's stored result against any bytes: refused whole, or read to its
 * end within its bounds; a result that was read encodes to the same output
 * again.
 */
#include <assert.h>
#include <string.h>

#include "cli/cli_result.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct cli_reader reader, again;
    struct cli_chunk chunk, copy = {0};
    struct cli_result result;
    struct spawn_end end, end_again;
    size_t output = 0, copied = 0;

    if (!cli_result_read(data, size, &end, &reader))
        return 0;
    assert(spawn_end_status(&end) >= 0 && spawn_end_status(&end) <= 255);
    cli_result_init(&result, size);
    while (cli_reader_next(&reader, &chunk)) {
        assert(chunk.len != 0 && (chunk.stream == 1 || chunk.stream == 2));
        assert(chunk.bytes >= data && chunk.bytes + chunk.len <= data + size);
        output += chunk.len;
        cli_result_add(&result, chunk.stream, chunk.bytes, chunk.len);
    }
    assert(cli_result_end(&result, &end));
    assert(result.bytes.len <= size);
    assert(cli_result_read(result.bytes.at, result.bytes.len, &end_again, &again));
    assert(end.signalled == end_again.signalled && end.number == end_again.number);
    while (cli_reader_next(&again, &copy))
        copied += copy.len;
    assert(copied == output);
    cli_result_release(&result);
    return 0;
}
