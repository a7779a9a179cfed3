/*
 * Lines of --only: an accepted line is a hash of 64 digits under a prefix, or
 * nothing.
 */
#include <stdlib.h>
#include <string.h>

#include "cli/records/record_list.h"

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size) {
    struct cli_record_set_item row;
    size_t len;

    /* The last bit of the length chooses whether --prefix was given. */
    if (cli_record_set_parse_line((const char *)data, size, size % 2 == 0 ? NULL : "t:", &row) !=
        NULL)
        return 0;
    len = strlen(row.hash);
    if ((len != 0 && len != 64) || strspn(row.hash, "0123456789abcdef") != len)
        abort();
    if ((len != 0) != (row.prefix[0] != '\0') || row.attempt < CLI_ONLY_ANY ||
        row.attempt > UINT32_MAX)
        abort();
    return 0;
}
