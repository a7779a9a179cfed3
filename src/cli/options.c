/*
 * Parses flags by the table in option_table.c, and prints their help. Fails with a line about the
 * remedy if the command does not take a flag, or a value does not fit. A message never repeats a
 * value that could be a key or a scope.
 */
#include "cli/options.h"

#include <getopt.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/units.h"
#include "cli/cli.h"

#define FLAGS_MAX 64

/* A flag of one command, from the table of flags or from the policy's. */
struct flag {
    char name[32];
    int letter;
    const char *arg, *help;
    const struct cli_option *own; /* either this one or `policy` is set */
    const struct idem_option *policy;
};

struct flags {
    struct flag at[FLAGS_MAX];
    size_t n;
};

static bool command_takes_policy(const struct cli_command *command, const char *word) {
    const char *const *without = command->policy_without;

    for (; without != NULL && *without != NULL; without++)
        if (strcmp(word, *without) == 0)
            return false;
    return true;
}

static bool policy_help_find(const struct cli_policy_help *help, struct flag *flag) {
    for (; help != NULL && help->word != NULL; help++) {
        if (strcmp(flag->policy->word, help->word) == 0) {
            flag->arg = help->arg;
            flag->help = help->help;
            return true;
        }
    }
    return false;
}

static void command_add_policy_flag(const struct cli_command *command, struct flags *flags,
                                    const struct idem_option *option) {
    struct flag *flag = &flags->at[flags->n];

    if (!command_takes_policy(command, option->word))
        return;
    *flag = (struct flag){.arg = "VALUE", .help = "", .policy = option};
    if (!policy_help_find(command->policy_help, flag))
        (void)policy_help_find(cli_policy_help_table, flag);
    snprintf(flag->name, sizeof(flag->name), "%s", option->word);
    for (char *c = flag->name; *c != '\0'; c++)
        if (*c == '_')
            *c = '-';
    flags->n++;
}

static void command_add_flag(const struct cli_command *command, struct flags *flags,
                             const char *name) {
    const struct idem_option *policy;

    for (const struct cli_option *own = cli_option_table; own->name != NULL; own++) {
        if (strcmp(own->id != NULL ? own->id : own->name, name) != 0)
            continue;
        struct flag *flag = &flags->at[flags->n++];

        *flag =
            (struct flag){.letter = own->letter, .arg = own->arg, .help = own->help, .own = own};
        snprintf(flag->name, sizeof(flag->name), "%s", own->name);
        return;
    }
    policy = idem_option_find_flag(name, strlen(name));
    if (policy != NULL)
        command_add_policy_flag(command, flags, policy);
}

/* Collects the flags in the order of the help: the command's own, then the policy's. */
static void command_gather_flags(const struct cli_command *command, struct flags *flags) {
    flags->n = 0;
    for (const char *const *name = command->options; *name != NULL; name++)
        command_add_flag(command, flags, *name);
    if (!command->policy)
        return;
    for (const struct idem_option *o = idem_option_table; o->word != NULL; o++)
        if (flags->n < FLAGS_MAX)
            command_add_policy_flag(command, flags, o);
}

/* Help. */

#define HELP_COLUMN 26

static void flag_print(const struct flag *flag, FILE *out) {
    char left[64], letter[8] = "";
    const char *help = flag->help, *newline;
    int len;

    if (flag->letter != 0)
        snprintf(letter, sizeof(letter), "-%c, ", flag->letter);
    len = snprintf(left, sizeof(left), "  %s--%s%s%s", letter, flag->name,
                   flag->arg == NULL ? "" : " ", flag->arg == NULL ? "" : flag->arg);
    fputs(left, out);
    if (len > HELP_COLUMN - 2) {
        fputc('\n', out);
        len = 0;
    }
    for (;; help = newline + 1, len = 0) {
        newline = strchr(help, '\n');
        fprintf(out, "%*s%.*s\n", HELP_COLUMN - len, "",
                newline == NULL ? (int)strlen(help) : (int)(newline - help), help);
        if (newline == NULL)
            return;
    }
}

void cli_options_print(const struct cli_command *command, FILE *out) {
    struct flags flags;
    bool titled = false;

    command_gather_flags(command, &flags);
    fputs("\nOptions:\n", out);
    for (size_t i = 0; i < flags.n; i++) {
        if (command->policy && flags.at[i].policy != NULL && !titled) {
            fprintf(out, "\nThe policy, each also a %s (defaults in brackets):\n",
                    command->policy_is == NULL ? "word of the settings" : command->policy_is);
            titled = true;
        }
        flag_print(&flags.at[i], out);
    }
}

/* The nearest word. */

#define NEAR_MAX 32

/* The number of letters to change, add, drop or swap. Both texts have at most NEAR_MAX letters. */
static size_t options_distance(const char *a, size_t a_len, const char *b, size_t b_len) {
    size_t d[NEAR_MAX + 1][NEAR_MAX + 1], best;

    for (size_t i = 0; i <= a_len; i++) {
        for (size_t j = 0; j <= b_len; j++) {
            if (i == 0 || j == 0) {
                d[i][j] = i + j;
                continue;
            }
            best = d[i - 1][j - 1] + (a[i - 1] != b[j - 1]);
            if (d[i - 1][j] + 1 < best)
                best = d[i - 1][j] + 1;
            if (d[i][j - 1] + 1 < best)
                best = d[i][j - 1] + 1;
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] &&
                d[i - 2][j - 2] + 1 < best)
                best = d[i - 2][j - 2] + 1;
            d[i][j] = best;
        }
    }
    return d[a_len][b_len];
}

const char *cli_options_nearest(const char *text, size_t len, const char *const *words) {
    size_t best = len <= 4 ? 2 : len / 3 + 2, far;
    const char *nearest = NULL;

    if (len == 0 || len > NEAR_MAX)
        return NULL;
    for (; *words != NULL; words++) {
        if (strlen(*words) > NEAR_MAX)
            continue;
        far = options_distance(text, len, *words, strlen(*words));
        if (far < best) {
            best = far;
            nearest = *words;
        }
    }
    return nearest;
}

/* Parsing. */

/* The word with an unknown letter. At the last letter of a word getopt_long() has moved past the
   word; before that, it has not. */
static const char *options_letter_word(int argc, char **argv, int letter) {
    const char *left = argv[optind - 1];
    size_t len = strlen(left);

    if (optind >= argc || (left[0] == '-' && left[1] != '-' && len > 1 && left[len - 1] == letter))
        return left;
    return argv[optind];
}

/* If no flag is similar, the word may be meant as an operand. */
static int command_unknown_report(const struct cli_command *command, const char *quoted,
                                  const char *nearest) {
    if (nearest != NULL)
        return cli_usage(command->name, "unknown flag %s; did you mean --%s?", quoted, nearest);
    if (command->operand == NULL)
        return cli_usage(command->name, "unknown flag %s", quoted);
    return cli_usage(
        command->name,
        "unknown flag %s; write -- before %s that begins with a dash, and all flags before that",
        quoted, command->operand);
}

/* Text after an unknown letter may be a value, which is not repeated; an expression may be. */
static int command_letter_unknown(const struct cli_command *command, const char *word, int letter) {
    const char flag[] = {'-', (char)letter};
    char quoted[IDEM_QUOTE_TEXT];

    if (command == &cli_eval)
        idem_error_quote(word, strlen(word), quoted, sizeof(quoted));
    else
        idem_error_quote(flag, sizeof(flag), quoted, sizeof(quoted));
    return command_unknown_report(command, quoted, NULL);
}

/* The word is unknown or ambiguous. Its value, after '=', is not repeated. */
static int command_flag_unknown(const struct cli_command *command, const struct flags *flags,
                                const char *word) {
    size_t len = strcspn(word + 2, "=");
    const char *names[FLAGS_MAX + 1];
    char quoted[IDEM_QUOTE_TEXT];

    for (size_t i = 0; i < flags->n; i++)
        names[i] = flags->at[i].name;
    names[flags->n] = NULL;
    return command_unknown_report(command, idem_error_quote(word, len + 2, quoted, sizeof(quoted)),
                                  cli_options_nearest(word + 2, len, names));
}

static int option_number_set(const struct cli_option *option, const char *text, int64_t *ret,
                             struct idem_error *err) {
    int64_t value = 0;
    int rc;

    if (option->type == CLI_DURATION)
        rc = idem_duration_parse(text, strlen(text), &value, err);
    else
        rc = idem_count_parse(text, strlen(text), &value, err);
    if (rc < 0)
        return rc;
    if (value < option->min || value > option->max)
        return idem_error_set(err, IDEM_E_INVALID,
                              "out of range; allowed: %" PRId64 " to %" PRId64 "%s", option->min,
                              option->max, option->type == CLI_DURATION ? " ms" : "");
    *ret = value;
    return 0;
}

static int list_add(struct cli_list *list, const char *text, struct idem_error *err) {
    if (list->n == CLI_LIST_MAX)
        return idem_error_set(err, IDEM_E_INVALID, "at most %d of them", CLI_LIST_MAX);
    list->at[list->n++] = text;
    return 0;
}

static int flag_set(const struct flag *flag, const char *text, struct cli_values *values,
                    struct idem_error *err) {
    void *field;

    if (flag->policy != NULL)
        return idem_policy_set(&values->layer, flag->policy->word, strlen(flag->policy->word), text,
                               strlen(text), err);
    field = (char *)values + flag->own->offset;
    switch (flag->own->type) {
    case CLI_FLAG:
        *(bool *)field = true;
        return 0;
    case CLI_TEXT:
        *(const char **)field = text;
        return 0;
    case CLI_LIST:
        return list_add(field, text, err);
    case CLI_SCHEDULE:
        *(const char **)field = text;
        return cli_schedule_parse(text, &values->schedule, err);
    default:
        return option_number_set(flag->own, text, field, err);
    }
}

#define LONG_BASE 256

/* Makes the tables for getopt_long(), which returns LONG_BASE + i for flag i, or its letter. */
static void command_getopt_tables(const struct cli_command *command, const struct flags *flags,
                                  struct option *longs, char *letters, size_t size) {
    size_t at = 0;

    at += (size_t)snprintf(letters, size, "%s:", command->stops ? "+" : "");
    for (size_t i = 0; i < flags->n; i++) {
        const struct flag *flag = &flags->at[i];

        longs[i] = (struct option){flag->name, flag->arg == NULL ? no_argument : required_argument,
                                   NULL, LONG_BASE + (int)i};
        if (flag->letter != 0 && at + 3 < size)
            at += (size_t)snprintf(letters + at, size - at, "%c%s", flag->letter,
                                   flag->arg == NULL ? "" : ":");
    }
    longs[flags->n] = (struct option){NULL, 0, NULL, 0};
}

static const struct flag *flags_find(const struct flags *flags, int got) {
    if (got >= LONG_BASE && (size_t)(got - LONG_BASE) < flags->n)
        return &flags->at[got - LONG_BASE];
    for (size_t i = 0; i < flags->n; i++)
        if (got != 0 && flags->at[i].letter == got)
            return &flags->at[i];
    return NULL;
}

/* Handles one result of getopt_long(). */
static int command_set_flag(const struct cli_command *command, const struct flags *flags, int got,
                            int argc, char **argv, struct cli_values *values) {
    const struct flag *flag = flags_find(flags, got == ':' || got == '?' ? optopt : got);
    struct idem_error err;

    if (flag == NULL && optopt != 0)
        return command_letter_unknown(command, options_letter_word(argc, argv, optopt), optopt);
    if (flag == NULL)
        return command_flag_unknown(command, flags, argv[optind - 1]);
    if (got == ':')
        return cli_usage(command->name, "--%s: its value is missing", flag->name);
    if (got == '?')
        return cli_usage(command->name, "--%s: it takes no value", flag->name);
    if (flag_set(flag, optarg, values, &err) < 0)
        return cli_usage(command->name, "--%s: %s", flag->name, err.text);
    return CLI_OK;
}

int cli_options_parse(const struct cli_command *command, int argc, char **argv,
                      struct cli_values *ret) {
    struct option longs[FLAGS_MAX + 1];
    char letters[2 * FLAGS_MAX + 4];
    struct flags flags;
    int got, status;

    *ret = (struct cli_values){.kill_after_ms = 10000,
                               .verdict_fd = -1,
                               .duplicate_exit = -1,
                               .status = -1,
                               .number = 1,
                               .drain_ms = 30000,
                               .to_timeout_ms = 30000};
    command_gather_flags(command, &flags);
    command_getopt_tables(command, &flags, longs, letters, sizeof(letters));
    opterr = 0;
    optind = 0; /* in glibc: start a new parse */
    while ((got = getopt_long(argc, argv, letters, longs, NULL)) != -1) {
        status = command_set_flag(command, &flags, got, argc, argv, ret);
        if (status != CLI_OK)
            return status;
    }
    ret->operands = argv + optind;
    ret->operands_n = argc - optind;
    return CLI_OK;
}
