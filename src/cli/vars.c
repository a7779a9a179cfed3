/*
 * Variables from the command line or from a file. Fails on both at once, and on
 * a file that cannot be read or has more than CLI_INPUT_MAX bytes.
 */
#include "cli/vars.h"

#include <errno.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/input.h"

static int vars_file(const char *path, char **ret, size_t *ret_len) {
    FILE *file = fopen(path, "re");
    int status;

    if (file == NULL) {
        cli_say("--vars-file: cannot open it: %s", strerror(errno));
        return CLI_ABSENT;
    }
    status = cli_input_all(file, "--vars-file", ret, ret_len);
    fclose(file);
    return status;
}

int cli_vars(const struct cli_values *values, const char *command, char **ret, size_t *ret_len) {
    if (values->vars != NULL && values->vars_file != NULL) {
        cli_say("%s: --vars and --vars-file are two places for one thing; leave one out (see: idem "
                "help %s)",
                command, command);
        return CLI_USAGE;
    }
    if (values->vars_file != NULL)
        return vars_file(values->vars_file, ret, ret_len);
    *ret = NULL;
    *ret_len = 0;
    if (values->vars == NULL)
        return CLI_OK;
    *ret = strdup(values->vars);
    *ret_len = strlen(values->vars);
    return *ret != NULL ? CLI_OK : CLI_SYSTEM;
}
