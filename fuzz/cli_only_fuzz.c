/*
 * Lines of --only: what is taken is a hash of 64 digits, or nothing.
 */
#include <stdlib.h>
#include <string.h>

#include "cli/only.h"

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size) {
    struct cli_only_row row;
    size_t len;

    if (cli_only_line((const char *)data, size, &row) != NULL)
        return 0;
    len = strlen(row.hash);
    if ((len != 0 && len != 64) || strspn(row.hash, "0123456789abcdef") != len)
        abort();
    return 0;
}
