/*
 * Standard input, within bounds.
 */
#include "cli/input.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"

int cli_input_all(FILE *in, char **ret, size_t *ret_len) {
    size_t size = 0, len = 0, n;
    char *text = NULL;

    do {
        if (len == size) {
            char *larger;

            size = size == 0 ? 4096 : 2 * size;
            larger = realloc(text, size);
            if (larger == NULL) {
                free(text);
                cli_say("no memory for the input");
                return CLI_SYSTEM;
            }
            text = larger;
        }
        n = fread(text + len, 1, size - len, in);
        len += n;
    } while (n > 0 && len <= CLI_INPUT_MAX);
    if (ferror(in) || len > CLI_INPUT_MAX) {
        if (ferror(in))
            cli_say("cannot read standard input: %s", strerror(errno));
        else
            cli_say("the input has more than %zu MiB", CLI_INPUT_MAX >> 20);
        free(text);
        return CLI_IO;
    }
    *ret = text;
    *ret_len = len;
    return CLI_OK;
}
