/*
 * `idem token`: issues a token, for a form on a page of the caller's own, or for a later `idem run
 * --token`.
 */
#include <inttypes.h>
#include <string.h>

#include "cli/cli.h"

/* The scope is mandatory: anyone could use a token without one. */
static int command_token_check_usage(const struct cli_values *values) {
    const char *scope = values->layer.policy.scope;
    const char *fault = NULL;

    if (values->operands_n != 0)
        fault = "takes no operand";
    else if (scope == NULL)
        fault = "--scope WHO is missing: its owner, such as a user's id; none: every caller";
    else if (strcmp(scope, IDEM_SCOPE_CALLER) == 0)
        fault = "--scope caller names no caller: use --scope WHO, or --scope none";
    else if (values->bind != NULL && values->bind[0] == '\0')
        fault = "--bind is empty: every caller without a value could use it; leave it out";
    if (fault == NULL)
        return CLI_OK;
    return cli_usage("token", "%s", fault);
}

static int command_token_print(struct idem *h, const struct idem_guard *guard,
                               const struct cli_values *values) {
    struct idem_args args = {.bind = values->bind,
                             .bind_len = values->bind == NULL ? 0 : strlen(values->bind),
                             .label = values->label};
    char token[IDEM_TOKEN_LEN + 1];
    struct idem_error err;

    if (idem_token_issue(h, guard, &args, token, &err) < 0)
        return cli_message_error("token", &err);
    if (values->json)
        printf("{\"token\":\"%s\",\"expires_in\":%" PRId64 "}\n", token,
               idem_guard_policy(guard)->token_ttl_s);
    else
        puts(token);
    return cli_flush();
}

static int command_token_run(const struct cli_values *values) {
    struct idem_policy policy = values->layer.policy;
    struct idem_guard *guard;
    struct idem_error err;
    struct idem *h;
    int status = command_token_check_usage(values);

    if (status != CLI_OK || (h = cli_open_or_make(values, &status)) == NULL)
        return status;
    policy.key_kind = IDEM_KEY_TOKEN;
    if (policy.prefix == NULL)
        policy.prefix = CLI_PREFIX;
    if (idem_guard_new(h, &policy, &guard, &err) < 0) {
        status = cli_message_error("token", &err);
    } else {
        status = command_token_print(h, guard, values);
        idem_guard_free(guard);
    }
    idem_close(h);
    return status;
}

static const char *const command_token_options[] = {"prefix", "scope", "bind", "token-ttl", "label",
                                                    "json",   "store", "help", NULL};

const struct cli_command cli_token = {
    .name = "token",
    .summary = "issue a token: a key that is good once",
    .synopsis = "--scope WHO [--bind VALUE] [OPTIONS]",
    .text =
        "Prints a token that WHO may use once, within --token-ttl, where keys are tokens: at a\n"
        "gateway with the same store, prefix and scope (idem_key token), or with\n"
        "`idem run --token`.\n",
    .after = "  idem token --scope ann --prefix order: --bind cart-17\n"
             "  idem run --scope ann --token \"$TOKEN\" -- ./charge-card 4711\n",
    .options = command_token_options,
    .run = command_token_run,
};
