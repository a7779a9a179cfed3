/*
 * idem(1): finds the command, shows help and version, and runs the command. Fails with status 64 on
 * an unknown command.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "cli/cli.h"
#include "loop/signals.h"

const struct cli_command *const cli_commands[] = {
    &cli_run,    &cli_gateway, &cli_consume, &cli_dead,   &cli_show,    &cli_list,
    &cli_settle, &cli_forget,  &cli_stats,   &cli_doctor, &cli_eval,    &cli_canon,
    &cli_id,     &cli_token,   &cli_sign,    &cli_verify, &cli_migrate, NULL,
};

static const struct cli_command *main_find_command(const char *name) {
    for (size_t i = 0; cli_commands[i] != NULL; i++)
        if (strcmp(cli_commands[i]->name, name) == 0)
            return cli_commands[i];
    return NULL;
}

static void main_print_help(FILE *out) {
    fputs("idem makes an operation happen once, however often it is asked for.\n\n"
          "usage: idem COMMAND [OPTIONS]\n\n"
          "  idem run --key order-4711 -- ./charge-card 4711\n\n"
          "runs the command the first time; every time after that it gives the same output\n"
          "and exit status again without running it.\n\nCommands:\n",
          out);
    for (size_t i = 0; cli_commands[i] != NULL; i++)
        fprintf(out, "  %-8s %s\n", cli_commands[i]->name, cli_commands[i]->summary);
    fputs("\n`idem help COMMAND` shows its options, `idem --version` the version; idem(1) is the\n"
          "manual. A store remembers each operation: --store URL, else $IDEM_STORE,\n"
          "else a directory of your own (root: /var/lib/idem).\n",
          out);
}

static void command_print_help(const struct cli_command *command, FILE *out) {
    fprintf(out, "usage: idem %s %s\n\n%s", command->name, command->synopsis, command->text);
    cli_options_print(command, out);
    if (command->after != NULL)
        fprintf(out, "\n%s", command->after);
}

static int main_report_unknown(const char *name) {
    const char *names[20], *nearest;
    char quoted[IDEM_QUOTE_TEXT];
    size_t n = 0;

    for (; cli_commands[n] != NULL; n++)
        names[n] = cli_commands[n]->name;
    names[n++] = "help";
    names[n] = NULL;
    nearest = cli_options_nearest(name, strlen(name), names);
    return cli_fail(CLI_USAGE, "%s is no command%s%s%s (see: idem help)",
                    idem_error_quote(name, strlen(name), quoted, sizeof(quoted)),
                    nearest == NULL ? "" : "; did you mean ", nearest == NULL ? "" : nearest,
                    nearest == NULL ? "" : "?");
}

static int main_help(const char *name) {
    const struct cli_command *command;

    if (name == NULL) {
        main_print_help(stdout);
        return cli_flush();
    }
    command = main_find_command(name);
    if (command == NULL)
        return main_report_unknown(name);
    command_print_help(command, stdout);
    return cli_flush();
}

/* Opens /dev/null for each of 0, 1 and 2 that is closed: the store's file would get its number
   otherwise, and output would be written into the store. */
static bool main_open_descriptors(void) {
    for (int fd = 0; fd <= 2; fd++) {
        if (fcntl(fd, F_GETFD) >= 0 || errno != EBADF)
            continue;
        if (open("/dev/null", fd == 0 ? O_RDONLY : O_WRONLY) != fd)
            return false;
    }
    return true;
}

static bool main_is_one_of(const char *word, const char *a, const char *b, const char *c) {
    return strcmp(word, a) == 0 || strcmp(word, b) == 0 || strcmp(word, c) == 0;
}

static int command_execute(const struct cli_command *command, const struct cli_values *values) {
    int status = CLI_OK;
    struct idem *h;

    if (values->help)
        return main_help(command->name);
    if (values->operands_n != 0 && command->no_operand != NULL)
        return cli_fail(CLI_USAGE, "%s: %s", command->name, command->no_operand);
    if (command->run != NULL)
        return command->run(values);
    h = cli_open(values, &status);
    if (h == NULL)
        return status;
    status = command->run_on_store(h, values);
    idem_close(h);
    return status;
}

static int command_run(const struct cli_command *command, int argc, char **argv) {
    struct cli_values values;
    int status = cli_options_parse(command, argc, argv, &values);

    if (status == CLI_OK)
        status = command_execute(command, &values);
    idem_policy_release(&values.layer);
    return status;
}

int main(int argc, char **argv) {
    const struct cli_command *command;

    signals_begin();
    if (!main_open_descriptors())
        return CLI_SYSTEM;
    if (argc < 2) {
        main_print_help(stderr);
        return CLI_USAGE;
    }
    if (main_is_one_of(argv[1], "help", "--help", "-h"))
        return main_help(argc > 2 ? argv[2] : NULL);
    if (main_is_one_of(argv[1], "version", "--version", "-V")) {
        printf("idem %s\n", idem_version());
        return cli_flush();
    }
    command = main_find_command(argv[1]);
    if (command == NULL)
        return main_report_unknown(argv[1]);
    return command_run(command, argc - 1, argv + 1);
}
