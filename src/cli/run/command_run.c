/*
 * `idem run`: the command, its preparation and its end; run_loop.c has the part in between. Fails
 * with a usage error before anything is opened, and with a store error before anything is run.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"
#include "base/units.h"
#include "cli/cli.h"
#include "cli/input.h"
#include "cli/run/run_loop.h"
#include "cli/time_argument.h"
#include "core/key.h"
#include "core/settings.h"
#include "core/store_call.h"

/* The defaults of this front door, below flags and settings. */
static const struct idem_policy run_door = {.prefix = CLI_PREFIX, .scope = IDEM_SCOPE_NONE};

/* Everything that is open for one run. */
struct run {
    const struct cli_values *values;
    char *url;
    struct idem_settings *settings;
    struct idem_poll poll;
    struct idem *h;
    struct idem_guard *guard;
    char *key;
    char *vars;
    size_t vars_len;
    char planned[IDEM_RFC3339_TEXT];
    struct idem_fingerprint fingerprint;
    struct idem_policy with;
    int code;   /* the store's error code, after a store error */
    bool begun; /* from here on verdicts are written as they arrive */
};

/* The reason why a verdict would be lost; NULL if the descriptor can be written to. */
static const char *command_run_verdict_fault(int64_t fd) {
    int flags = fd < 0 ? O_WRONLY : fcntl((int)fd, F_GETFL);

    if (flags < 0)
        return "--verdict-fd is not open: open it with N>FILE, as in 3>verdict";
    if ((flags & O_ACCMODE) == O_RDONLY)
        return "--verdict-fd cannot be written to: open it with N>FILE, as in 3>verdict";
    return NULL;
}

static int values_check(const struct cli_values *values) {
    const char *fault = NULL;

    if (values->key != NULL && values->layer.policy.key_expr != NULL)
        fault = "--key and --key-expr are two keys; leave one out";
    else if (values->token != NULL &&
             (values->key != NULL || values->layer.policy.key_expr != NULL))
        fault = "a token is a key: leave --key and --key-expr out";
    else if (values->token != NULL && values->at != NULL)
        fault = "a token is good once: leave --at out";
    else if (values->token != NULL && values->token[0] == '\0')
        fault = "--token is empty";
    else if (values->token == NULL && values->bind != NULL)
        fault = "--bind is what a token was issued for, and there is no --token";
    else if (values->bind != NULL && values->bind[0] == '\0')
        fault = "--bind is empty";
    else if (values->key != NULL && values->key[0] == '\0')
        fault = "--key is empty";
    else if (values->operands_n == 0)
        fault = "the command is missing: idem run --key KEY -- COMMAND ARGS...";
    else
        fault = command_run_verdict_fault(values->verdict_fd);
    if (fault == NULL)
        return CLI_OK;
    return cli_usage("run", "%s", fault);
}

/* True if the policy runs the command in spite of this store error. A token is never accepted then:
   without the store nothing proves that it was issued. */
static bool run_ignores_store_error(const struct run *run, int code) {
    return idem_guard_policy(run->guard)->on_store_error == IDEM_ON_STORE_ERROR_OPEN &&
           run->values->token == NULL && code != IDEM_E_INVALID && code != IDEM_E_NOMEM;
}

/* The request for the store's time. */
struct run_clock {
    struct idem_store_call store_call;
    struct idem_error err;
    int rc;
    bool answered;
};

static void run_clock_answered(struct idem_store_call *store_call, int rc,
                               const struct idem_error *err) {
    struct run_clock *clock = idem_container_of(store_call, struct run_clock, store_call);

    clock->rc = rc;
    if (rc != 0)
        clock->err = *err;
    clock->answered = true;
}

static int run_clock_ask(struct run *run, struct run_clock *clock) {
    clock->store_call.op.kind = IDEM_OP_TIME;
    clock->store_call.answered = run_clock_answered;
    idem_store_call_start(run->h, &clock->store_call);
    while (!clock->answered)
        if (idem_poll_turn(&run->poll, NULL, 0, -1) < 0) {
            clock->rc = idem_error_set(&clock->err, IDEM_E_REFUSED, "poll: %s", strerror(errno));
            break;
        }
    idem_store_call_stop(&clock->store_call);
    return clock->rc;
}

/* Reads the store's time, so that all machines agree. */
static int run_time_read(struct run *run, int64_t *ret_ms) {
    struct run_clock clock = {.err.code = IDEM_E_REFUSED};
    struct timespec now;

    if (run->h != NULL && run_clock_ask(run, &clock) == 0) {
        *ret_ms = clock.store_call.op.out.time.date;
        return CLI_OK;
    }
    if (!run_ignores_store_error(run, clock.err.code)) {
        run->code = clock.err.code;
        return cli_message_error("store", &clock.err);
    }
    clock_gettime(CLOCK_REALTIME, &now);
    *ret_ms = (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
    return CLI_OK;
}

/* Appends the planned time to the key. */
static int run_key_schedule(struct run *run) {
    char *planned;
    int64_t now = 0;
    int status = run_time_read(run, &now);

    if (status != CLI_OK)
        return status;
    idem_rfc3339_print(1000 * cli_schedule_planned(&run->values->schedule, now), run->planned,
                       sizeof(run->planned));
    if (asprintf(&planned, "%s@%s", run->key, run->planned) < 0)
        return CLI_SYSTEM;
    free(run->key);
    run->key = planned;
    return CLI_OK;
}

/* All words of the command line, each with its NUL: the same key with another command line is
   another operation. Owned by the caller; NULL without memory. */
static unsigned char *run_command_line(const struct run *run, size_t *ret_len) {
    unsigned char *line;
    size_t len = 0, at = 0, n;

    for (int i = 0; i < run->values->operands_n; i++)
        len += strlen(run->values->operands[i]) + 1;
    line = malloc(len);
    if (line == NULL)
        return NULL;
    for (int i = 0; i < run->values->operands_n; i++, at += n) {
        n = strlen(run->values->operands[i]) + 1;
        memcpy(line + at, run->values->operands[i], n);
    }
    *ret_len = len;
    return line;
}

/* Makes the identity by the policy that the claim will have, but for the key: that of the claim is
   this one. */
static int run_identity_evaluate(const struct run *run, const struct idem_args *args,
                                 struct idem_identity *ret, struct idem_error *err) {
    struct idem_policy policy;
    int rc = idem_guard_with(run->guard, &run->with, &policy, err);

    policy.key_kind = idem_guard_policy(run->guard)->key_kind;
    return rc != 0 ? rc : idem_identity_make(run->guard, &policy, args, ret, err);
}

static int run_identity_set(struct run *run, const struct idem_identity *identity) {
    if (idem_guard_policy(run->guard)->key_kind == IDEM_KEY_EXPRESSION &&
        memchr(identity->key, '\0', identity->key_len) != NULL)
        return cli_fail(
            CLI_MISMATCH,
            "run: key_expr: the key has a NUL byte in it, and a command cannot get it as "
            "IDEM_KEY");
    run->key = strndup((const char *)identity->key, identity->key_len);
    run->fingerprint = identity->fingerprint;
    return run->key != NULL ? CLI_OK : CLI_SYSTEM;
}

/* Evaluates the policy's expressions over the variables, once: the claim gets key and fingerprint,
   and the command the key, in its environment. The command line is the fingerprint, unless an
   expression selects something else. An error in the variables is a mismatch, but a key that is too
   long a usage error. */
static int run_identity_make(struct run *run) {
    const char *key = run->values->token != NULL ? run->values->token : run->values->key;
    struct idem_args args = {.key = key,
                             .key_len = key == NULL ? 0 : strlen(key),
                             .json = run->vars,
                             .json_len = run->vars_len};
    struct idem_identity identity;
    unsigned char *line = NULL;
    struct idem_error err;
    int rc, status;

    if (idem_guard_policy(run->guard)->fingerprint_expr == NULL) {
        line = run_command_line(run, &args.fingerprint_len);
        if (line == NULL)
            return CLI_SYSTEM;
        args.fingerprint = line;
    }
    rc = run_identity_evaluate(run, &args, &identity, &err);
    free(line);
    if (rc == 0)
        return run_identity_set(run, &identity);
    if (rc == IDEM_E_NOMEM)
        return CLI_SYSTEM;
    status = cli_message_error("run", &err);
    return args.key_len > IDEM_KEY_MAX ? status : CLI_MISMATCH;
}

/* The kind of key that the settings ask for, and the section that does; 0: none. */
static enum idem_key_kind run_key_kind(const struct run *run, const char **ret_name) {
    const struct idem_policy *layers[] = {
        idem_settings_find(run->settings, run->values->policy),
        idem_settings_defaults(run->settings),
    };

    for (size_t i = 0; i < sizeof(layers) / sizeof(layers[0]); i++) {
        if (layers[i] == NULL || (layers[i]->key_kind == 0 && layers[i]->key_expr == NULL))
            continue;
        *ret_name = layers[i]->name;
        return layers[i]->key_kind != 0 ? layers[i]->key_kind : IDEM_KEY_EXPRESSION;
    }
    return 0;
}

/* A command has a literal key, or a key that an expression makes. Settings with another kind of key
   belong to another front door and would guard something else here: they are refused, not
   adapted. */
static int run_key_check(const struct run *run) {
    bool literal = run->values->key != NULL, own = run->values->layer.policy.key_expr != NULL;
    const char *name = NULL;
    enum idem_key_kind kind = run_key_kind(run, &name);

    if (run->values->token != NULL && (kind == 0 || kind == IDEM_KEY_TOKEN))
        return CLI_OK;
    if (kind != 0 && kind != IDEM_KEY_LITERAL && (kind != IDEM_KEY_EXPRESSION || literal))
        return cli_fail(
            CLI_CONFIG,
            "run: %s: %s%s] has key = %s, and a command has a literal key (--key) or one that "
            "an expression makes (--key-expr); name another policy with --policy, or set key = "
            "literal",
            run->values->config, name != NULL ? "[policy " : "[defaults", name != NULL ? name : "",
            idem_word_name(idem_words_key, (int)kind));
    if (!literal && !own && kind != IDEM_KEY_EXPRESSION)
        return cli_usage("run", "--key KEY is missing: what must happen once; or --key-expr EXPR, "
                                "which makes it of --vars");
    return CLI_OK;
}

/* Refuses variables that no expression reads: that mistake would go unnoticed. */
static int run_variables_read(struct run *run) {
    const struct idem_policy *policy = idem_guard_policy(run->guard);
    int status = cli_input_variables(run->values, "run", &run->vars, &run->vars_len);

    if (status != CLI_OK)
        return status;
    if (run->vars != NULL && policy->key_expr == NULL && policy->fingerprint_expr == NULL)
        return cli_usage("run",
                         "nothing reads the variables: add --key-expr or --fingerprint-expr");
    if (run->vars != NULL)
        return cli_input_variables_check(run->values, run->vars, run->vars_len, policy->json_max);
    run->vars = strdup("{}"); /* an expression that needs a variable reports its name */
    run->vars_len = 2;
    return run->vars != NULL ? CLI_OK : CLI_SYSTEM;
}

/* The values that flags and settings set explicitly, 0 for all others: a value from a preset or a
   default may be adapted to the schedule. */
static struct idem_policy run_policy_explicit(const struct run *run) {
    struct idem_policy explicit = run->values->layer.policy;
    const struct idem_policy *layers[] = {
        idem_settings_find(run->settings, run->values->policy),
        idem_settings_defaults(run->settings),
    };

    for (size_t i = 0; i < sizeof(layers) / sizeof(layers[0]); i++) {
        if (explicit.ttl_s == 0 && layers[i] != NULL)
            explicit.ttl_s = layers[i]->ttl_s;
        if (explicit.hold_ttl_s == 0 && layers[i] != NULL)
            explicit.hold_ttl_s = layers[i]->hold_ttl_s;
    }
    return explicit;
}

/* A run that expires before its step of --at is over would run again in the same step. An explicit
   ttl that is too short is refused; any other is raised: *ret is the ttl to use then, and is
   untouched where the policy's ttl is long enough. */
static int run_ttl_check(const struct run *run, const char *word, int64_t ttl_s, int64_t explicit_s,
                         int64_t *ret) {
    const struct cli_schedule *schedule = &run->values->schedule;
    int64_t least_s = cli_schedule_ttl_least_s(schedule), wanted_s = cli_schedule_ttl_s(schedule);
    char ttl[IDEM_UNITS_TEXT], step[IDEM_UNITS_TEXT];

    if (explicit_s != ttl_s) {
        if (ttl_s < wanted_s)
            *ret = wanted_s;
        return CLI_OK;
    }
    if (ttl_s >= least_s)
        return CLI_OK;
    idem_duration_print(ttl_s * 1000, ttl, sizeof(ttl));
    idem_duration_print(least_s * 1000, step, sizeof(step));
    return cli_fail(
        CLI_USAGE,
        "run: %s is %s, and the step of --at is %s: a second start in one step would run again "
        "once the first is forgotten; set a %s of at least %s, or leave it out",
        word, ttl, step, word, step);
}

/* In mode lock a key may run any number of times, so ttl does not matter. */
static int run_schedule_check(struct run *run) {
    const struct idem_policy *policy = idem_guard_policy(run->guard);
    struct idem_policy explicit = run_policy_explicit(run);
    int status;

    if (run->values->at == NULL || policy->mode == IDEM_MODE_LOCK)
        return CLI_OK;
    status = run_ttl_check(run, "ttl", policy->ttl_s, explicit.ttl_s, &run->with.ttl_s);
    if (status == CLI_OK)
        status = run_ttl_check(run, "hold_ttl", policy->hold_ttl_s, explicit.hold_ttl_s,
                               &run->with.hold_ttl_s);
    return status;
}

/* A policy with scope = caller needs --scope: only the command line can identify the caller. */
static int run_scope_check(const struct run *run) {
    if (strcmp(idem_guard_policy(run->guard)->scope, IDEM_SCOPE_CALLER) != 0)
        return CLI_OK;
    if (run->values->layer.policy.scope != NULL)
        return cli_usage("run", "--scope caller names no caller: use --scope WHO, such as a user's "
                                "id, or --scope none");
    return cli_usage("run", "the settings have scope = caller, and the command line names no "
                            "caller: use --scope WHO, such as a user's id");
}

static int run_guard_make(struct run *run) {
    struct idem_policy policy = run->values->layer.policy;
    struct idem_error err;
    int status;

    policy.name = run->values->policy;
    if (run->values->key != NULL)
        policy.key_kind = IDEM_KEY_LITERAL;
    if (run->values->token != NULL)
        policy.key_kind = IDEM_KEY_TOKEN;
    if (policy.name != NULL && idem_settings_find(run->settings, policy.name) == NULL)
        return cli_fail(CLI_CONFIG, "run: %s has no section [policy %s]", run->values->config,
                        policy.name);
    status = run_key_check(run);
    if (status != CLI_OK)
        return status;
    if (idem_guard_make(run->settings, &policy, &run_door, &run->guard, &err) < 0)
        return cli_message_error("run", &err);
    /* The claim gets the key itself, also where an expression has made it. */
    run->with.key_kind = run->values->token != NULL ? IDEM_KEY_TOKEN : IDEM_KEY_LITERAL;
    /* result_max limits the output; the stored form adds a header to each chunk of it. */
    if (idem_guard_policy(run->guard)->mode == IDEM_MODE_REPLAY)
        run->with.result_max = IDEM_RESULT_MAX;
    return run_scope_check(run);
}

/* Leaves run->h NULL where the store cannot be opened and the policy runs the command anyway. */
static int run_store_open(struct run *run) {
    struct idem_error err;
    int status = CLI_OK;

    run->url = cli_store_url(run->values, &status);
    run->code = IDEM_E_REFUSED;
    if (run->url == NULL)
        return status == CLI_STORE && run_ignores_store_error(run, IDEM_E_REFUSED) ? CLI_OK
                                                                                   : status;
    if (cli_open_on_poll(run->values, run->url, run->settings, &run->poll, &run->h, &err) < 0) {
        run->code = err.code;
        status = cli_message_error("store", &err);
        return run_ignores_store_error(run, err.code) ? CLI_OK : status;
    }
    return CLI_OK;
}

static int run_prepare(struct run *run) {
    int status = values_check(run->values);

    if (status == CLI_OK)
        status = cli_settings(run->values, &run->settings);
    if (status == CLI_OK)
        status = run_guard_make(run);
    if (status == CLI_OK)
        status = run_variables_read(run);
    if (status == CLI_OK)
        status = run_schedule_check(run);
    if (status == CLI_OK)
        status = run_store_open(run);
    if (status == CLI_OK)
        status = run_identity_make(run);
    if (status == CLI_OK && run->values->at != NULL)
        status = run_key_schedule(run);
    return status;
}

/* The caller's own message for refusals; NULL for the built-in one, which adds nothing here. */
static const char *policy_message(const struct idem_policy *policy) {
    const struct idem_policy *layers[] = {&run_door};
    struct idem_policy plain;

    if (idem_policy_resolve(layers, 1, &plain, NULL) == 0 &&
        strcmp(plain.message, policy->message) == 0)
        return NULL;
    return policy->message;
}

static struct run_loop run_make_loop(struct run *run) {
    const struct cli_values *values = run->values;
    const struct idem_policy *policy = idem_guard_policy(run->guard);

    return (struct run_loop){
        .values = values,
        .poll = &run->poll,
        .h = run->h,
        .guard = run->guard,
        .policy = policy,
        .args = {.key = run->key,
                 .key_len = strlen(run->key),
                 .bind = values->bind,
                 .bind_len = values->bind == NULL ? 0 : strlen(values->bind),
                 .label = values->label,
                 .with = &run->with},
        .fingerprint = run->fingerprint,
        .verdict = {.fd = (int)values->verdict_fd,
                    .quiet = values->quiet,
                    .prefix = policy->prefix,
                    .label = values->label,
                    .message = policy_message(policy),
                    .selected = policy->fingerprint_expr != NULL},
        .argv = values->operands,
        .planned = values->at == NULL ? NULL : run->planned,
        .tty = signals_has_tty(),
    };
}

static int run_execute(struct run *run, int *ret_signal) {
    struct run_loop loop = run_make_loop(run);
    int status;

    /* The command must not inherit the verdict descriptor: its reader waits for end of file. The
       command does keep stdout and stderr. */
    if (loop.verdict.fd > 2)
        fcntl(loop.verdict.fd, F_SETFD, FD_CLOEXEC);
    if (signals_open(&loop.signals, loop.tty) < 0)
        return cli_fail(CLI_SYSTEM, "run: %s", strerror(errno));
    if (run_verdict_open(&loop.verdict) < 0) {
        cli_message("run: --verdict-fd: %s", strerror(errno));
        signals_release(&loop.signals);
        return CLI_SYSTEM;
    }
    status = run_loop_run(&loop);
    run_verdict_close(&loop.verdict);
    signals_release(&loop.signals);
    *ret_signal = loop.quit_signal;
    return status;
}

static void run_release(struct run *run) {
    idem_close(run->h);
    idem_poll_release(&run->poll);
    idem_guard_free(run->guard);
    idem_settings_free(run->settings);
    free(run->key);
    free(run->vars);
    free(run->url);
}

static int run_error_code(const struct run *run, int status) {
    if (status == CLI_SYSTEM)
        return IDEM_E_NOMEM;
    return status == CLI_STORE && run->code != 0 ? run->code : IDEM_E_INVALID;
}

static int command_run_run(const struct cli_values *values) {
    struct run run = {.values = values};
    int status, quit = 0;

    idem_poll_init(&run.poll);
    status = run_prepare(&run);
    run.begun = status == CLI_OK;
    if (run.begun)
        status = run_execute(&run, &quit);
    else if (status == CLI_SYSTEM)
        cli_message("run: no memory");
    if (status != CLI_OK && !run.begun && command_run_verdict_fault(values->verdict_fd) == NULL)
        run_verdict_failed((int)values->verdict_fd, run_error_code(&run, status));
    run_release(&run);
    if (quit != 0) {
        signal(quit, SIG_DFL);
        raise(quit);
    }
    return status;
}

static const char *const run_options[] = {
    "key",        "token",          "bind",       "vars",   "vars-file", "at",    "label", "quiet",
    "verdict-fd", "duplicate-exit", "kill-after", "config", "policy",    "store", "help",  NULL,
};

/* --key or --key-expr determines the kind of key; a duplicate gets an exit status. */
static const char *const run_policy_without[] = {"key", "on_duplicate", "token_ttl", NULL};

const struct cli_command cli_run = {
    .name = "run",
    .summary = "run a command once; give its output again after that",
    .synopsis = "--key KEY | --key-expr EXPR | --token TOKEN [OPTIONS] [--] COMMAND ARGS...",
    .text = "Runs COMMAND if it has not run under KEY before. A duplicate gets the first run's\n"
            "stdout, stderr and exit status (--mode replay), or is refused (--mode reject). The\n"
            "command sees IDEM_KEY, IDEM_ATTEMPT and, under --at, IDEM_AT.\n",
    .after = "Exit status: the command's own, 128+N where signal N ended it; 126 or 127 where it\n"
             "could not be started. Idem's own (--verdict-fd distinguishes them):\n"
             "   0  duplicate under reject, or what --duplicate-exit sets\n"
             "  64  usage\n"
             "  65  mismatch: the key came with another command line, or with other variables;\n"
             "      or --vars, of which no key or no fingerprint can be made\n"
             "  66  there is no such --vars-file, or no such token for this caller\n"
             "  69  store error    70  uncertain: a run vanished, or was ended by run_max\n"
             "  71  system error   74  a replay could not be written\n"
             "  75  busy: it is running, or a retry is not due yet\n"
             "  76  lost: the lease was lost while it ran, and nothing was stored; or before\n"
             "      it was started, and nothing was run\n"
             "  77  dead: it has failed for good\n"
             "  78  settings are wrong\n"
             "\n"
             "  idem run --key order-4711 -- ./charge-card 4711\n"
             "  idem run --key-expr \"'order-' + #order.id\" --vars \"$JSON\" -- ./charge-card\n"
             "  idem run --key nightly --at 24h+2h30m --mode reject -- ./report\n"
             "  idem run --key import --mode lock --wait 5m -- ./import\n",
    .options = run_options,
    .policy = true,
    .policy_without = run_policy_without,
    .stops = true,
    .run = command_run_run,
};
