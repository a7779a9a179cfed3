/*
 * Reads input with a limit on its length.
 */
#include "cli/input.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"

int cli_input_all(FILE *in, const char *name, char **ret, size_t *ret_len) {
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
            cli_say("cannot read %s: %s", name, strerror(errno));
        else
            cli_say("%s has more than %zu MiB", name, CLI_INPUT_MAX >> 20);
        free(text);
        return CLI_IO;
    }
    *ret = text;
    *ret_len = len;
    return CLI_OK;
}

ssize_t cli_input_line(FILE *in, char **line, size_t *size) {
    size_t len = 0;
    int c;

    while ((c = getc_unlocked(in)) != EOF && c != '\n') {
        if (len == CLI_INPUT_MAX)
            return -2;
        if (len == *size) {
            size_t larger = *size == 0 ? 4096 : 2 * *size;
            char *at = realloc(*line, larger);

            if (at == NULL)
                return -2;
            *line = at;
            *size = larger;
        }
        (*line)[len++] = (char)c;
    }
    return c == EOF && len == 0 ? -1 : (ssize_t)len;
}
