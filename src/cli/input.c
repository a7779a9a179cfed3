/*
 * The input of a command: standard input or a file, with a limit on its length, and variables.
 */
#include "cli/input.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "core/fingerprint.h"
#include "json/json.h"

#define PIECE 4096

int cli_input_all(FILE *in, const char *name, char **ret, size_t *ret_len) {
    struct idem_buffer text = {0};
    int status = CLI_IO;
    size_t n = 1;
    char *at;

    while (n > 0 && text.len <= CLI_INPUT_MAX &&
           (at = idem_buffer_reserve(&text, PIECE + 1)) != NULL) {
        n = fread(at, 1, PIECE, in);
        at[n] = '\0';
        text.len += n;
    }
    if (!text.failed && !ferror(in) && text.len <= CLI_INPUT_MAX) {
        *ret = text.at;
        *ret_len = text.len;
        return CLI_OK;
    }
    if (text.failed)
        status = cli_fail(CLI_SYSTEM, "no memory for the input");
    else if (ferror(in))
        cli_message("cannot read %s: %s", name, strerror(errno));
    else
        cli_message("%s has more than %zu MiB", name, CLI_INPUT_MAX >> 20);
    idem_buffer_release(&text);
    return status;
}

ssize_t cli_input_line(FILE *in, struct idem_buffer *line) {
    int c;

    line->len = 0;
    while ((c = getc_unlocked(in)) != EOF && c != '\n') {
        if (line->len == CLI_INPUT_MAX || idem_buffer_reserve(line, 1) == NULL)
            return -2;
        line->at[line->len++] = (char)c;
    }
    return c == EOF && line->len == 0 ? -1 : (ssize_t)line->len;
}

/*
 * Variables from the command line or a file. Fails if both are given, if the file cannot be read or
 * is longer than CLI_INPUT_MAX, and if the text is not a JSON object.
 */

static int input_variables_file(const char *path, char **ret, size_t *ret_len) {
    FILE *file = fopen(path, "re");
    int status;

    if (file == NULL)
        return cli_fail(CLI_ABSENT, "--vars-file: cannot open it: %s", strerror(errno));
    status = cli_input_all(file, "--vars-file", ret, ret_len);
    fclose(file);
    return status;
}

int cli_input_variables(const struct cli_values *values, const char *command, char **ret,
                        size_t *ret_len) {
    if (values->vars != NULL && values->vars_file != NULL)
        return cli_fail(
            CLI_USAGE,
            "%s: --vars and --vars-file are two places for one thing; leave one out (see: idem "
            "help %s)",
            command, command);
    if (values->vars_file != NULL)
        return input_variables_file(values->vars_file, ret, ret_len);
    *ret = NULL;
    *ret_len = 0;
    if (values->vars == NULL)
        return CLI_OK;
    *ret = strdup(values->vars);
    *ret_len = strlen(values->vars);
    return *ret != NULL ? CLI_OK : CLI_SYSTEM;
}

int cli_input_variables_check(const struct cli_values *values, const char *text, size_t len,
                              int64_t max) {
    const char *flag = values->vars_file != NULL ? "--vars-file" : "--vars";
    struct idem_arena arena;
    struct idem_json vars;
    struct idem_error err;
    int rc;

    if (len > (size_t)max)
        return cli_fail(CLI_MISMATCH, "run: %s: the variables have %zu bytes; json_max allows %lld",
                        flag, len, (long long)max);
    idem_fingerprint_arena(&arena, len);
    rc = idem_json_parse(text, len, &arena, &vars, &err);
    idem_arena_free(&arena);
    if (rc == 0 && vars.type == IDEM_JSON_OBJECT)
        return CLI_OK;
    if (rc == IDEM_E_NOMEM)
        return CLI_SYSTEM;
    return cli_fail(CLI_MISMATCH, "run: %s: %s", flag,
                    rc != 0 ? err.text
                            : "the variables are no JSON object: its members are the variables");
}
