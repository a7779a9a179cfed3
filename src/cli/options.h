/*
 * Options: one table of all flags, which drives the parser, the help and the check of the manual.
 * Flags of the policy are in the policy's own table (core/policy.h).
 */
#ifndef IDEM_CLI_OPTIONS_H
#define IDEM_CLI_OPTIONS_H

#include <stdio.h>

#include "cli/schedule.h"
#include "core/policy.h"

/* The values of a flag that may be repeated. */
#define CLI_LIST_MAX 32
struct cli_list {
    const char *at[CLI_LIST_MAX];
    size_t n;
};

/* The values on a command line. Strings are borrowed from argv. */
struct cli_values {
    const char *store;
    const char *config;
    const char *policy;
    const char *key;
    const char *label;
    const char *hash;
    const char *state;
    const char *since;
    const char *only;
    const char *reason;
    const char *at;
    const char *name;
    const char *token;
    const char *bind;
    const char *vars;
    const char *vars_file;
    const char *listen;
    const char *scope; /* of the gateway: text with nginx's variables */
    const char *methods;
    const char *fingerprint; /* of the gateway: parts of the request */
    const char *probe;
    const char *token_at, *token_bind, *js; /* of a gateway */
    const char *enforce;
    const char *release_status;
    const char *replay_headers;
    const char *module;
    const char *nginx;
    const char *key_id; /* from here on: signed requests */
    const char *secret_file;
    const char *form;
    const char *sign_headers;
    const char *sequence;
    const char *nonce;
    const char *time;
    const char *now;
    const char *method;
    const char *data_file;
    struct cli_list headers, data;
    const char *queue; /* from here on: consumers */
    const char *exec, *exec_jsonl, *to, *to_ca;
    const char *order_by;
    const char *dead_letter;
    const char *group, *consumer, *body_field;
    const char *on_exit, *on_status;
    const char *topology;
    const char *log;
    const char *metrics;
    struct cli_list metrics_hosts;
    const char *audit;
    const char *nginx_config, *nginx_exe; /* of doctor, as is the next line */
    int64_t client_timeout_ms, retry_span_ms;
    int64_t prefetch, letter;
    int64_t drain_ms, to_timeout_ms;
    int64_t window_ms;
    struct cli_list upstreams;
    int64_t workers;
    struct cli_schedule schedule; /* the parsed value of `at` */
    int64_t kill_after_ms;
    int64_t verdict_fd;
    int64_t duplicate_exit;
    int64_t status;
    int64_t number;
    bool quiet, json, done, failed, force, dry_run, yes, result, print, help;
    bool v4, v7, snowflake, jsonl, key_rules, template, print_config, key_is_token, show, spend;
    bool unsafe_ttl, all;
    struct idem_layer layer; /* the policy's flags */
    char **operands;
    int operands_n;
};

enum cli_type {
    CLI_FLAG,     /* bool */
    CLI_TEXT,     /* const char * */
    CLI_LIST,     /* struct cli_list; each use adds one */
    CLI_NUMBER,   /* int64_t, min..max */
    CLI_DURATION, /* int64_t, ms */
    CLI_SCHEDULE, /* STEP[+OFFSET]: as text, and parsed */
};

struct cli_option {
    const char *name; /* without the dashes */
    int letter;       /* the short form; 0: none */
    const char *arg;  /* the name of its value in the help; NULL: it takes none */
    const char *help;
    enum cli_type type;
    size_t offset; /* in struct cli_values */
    int64_t min, max;
    const char *id; /* the name in a command's list, if another flag has the same name */
};

/* The help of a policy's word; a command may have its own. */
struct cli_policy_help {
    const char *word, *arg, *help;
};

/* The last row of each has a NULL name. */
extern const struct cli_option cli_option_table[];
extern const struct cli_policy_help cli_policy_help_table[];

struct cli_command;

/* Fills *ret; the caller releases ret->layer with idem_policy_release() either way. CLI_OK, or
   CLI_USAGE after a message. argv[0] is the command. */
int cli_options_parse(const struct cli_command *command, int argc, char **argv,
                      struct cli_values *ret);

/* Prints the options of a command for its help. */
void cli_options_print(const struct cli_command *command, FILE *out);

/* The word most similar to `text`; NULL if none is similar enough. `words` ends with NULL. */
const char *cli_options_nearest(const char *text, size_t len, const char *const *words);

#endif
