/*
 * `idem consume`: the command, its preparation and its loop. Fails with a usage error before
 * anything is opened, and with an error of the store or the broker if a retry cannot help. A broker
 * that is merely down is waited for.
 */
#include "cli/consume/command_consume.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "base/bytes.h"
#include "base/error.h"
#include "base/units.h"
#include "cli/consume/metrics_server.h"
#include "core/policy.h"
#include "core/settings.h"
#include "expr/expr.h"

/*
 * Parses --key of `idem consume`: the name of a header, the broker's message id, or an expression.
 * Fails if the value is empty.
 */

/* CLI_OK, or an exit status after a message. */
static int consume_key_parse(const char *text, struct consume_key *ret) {
    static const char header[] = "header:";

    *ret = (struct consume_key){.kind = QUEUE_KEY_EXPRESSION, .expr = text};
    if (strcmp(text, "message-id") == 0)
        *ret = (struct consume_key){.kind = QUEUE_KEY_ID};
    else if (idem_text_begins(text, header))
        *ret = (struct consume_key){.kind = QUEUE_KEY_HEADER, .header = text + strlen(header)};
    if (text[0] != '\0' && (ret->header == NULL || ret->header[0] != '\0'))
        return CLI_OK;
    return cli_usage("consume", "--key: %s is missing",
                     ret->header == NULL ? "the expression"
                                         : "the header's name, as in header:Idempotency-Key,");
}

#define PREFETCH_MORE 8
#define PROGRESS_MS 1000
#define FILES_MAX 65536

/* Everything that is open for one consumer. */
struct consume {
    const struct cli_values *values;
    struct idem_settings *settings;
    struct consume_key key;
    char *prefix;
    struct idem_guard *guard; /* as configured: key and fingerprint expressions */
    struct idem_guard *plain; /* for claims: the same with a literal key */
    struct idem_guard *order, *label;
    struct idem_poll poll;
    struct idem *h;
    char *store, *broker_url, *to;
    const struct queue_broker *broker;
    struct queue_config queue;
    struct handler handler;
    struct queue_consumer *consumer;
    struct signals signals;
    struct consume_log log;
    struct consume_metrics metrics;
    int asked; /* how often a signal has asked to stop */
    bool stopped;
};

/* Checks which flags are required, and which exclude each other. */

static bool command_consume_is_one_of(const char *text, const char *const *words) {
    if (text == NULL)
        return true;
    for (; *words != NULL; words++)
        if (strcmp(text, *words) == 0)
            return true;
    return false;
}

static const char *values_fault(const struct cli_values *values) {
    static const char *const logs[] = {"all", "problems", "none", NULL};
    static const char *const topologies[] = {"declare", "none", NULL};
    int handlers = (values->exec != NULL) + (values->exec_jsonl != NULL) + (values->to != NULL);

    if (values->operands_n == 0)
        return "the broker's URL is missing: idem consume amqp://HOST --queue NAME ...";
    if (values->operands_n > 1)
        return "one URL is enough; an option's value with blanks in it needs quotes";
    if (values->queue == NULL || values->queue[0] == '\0')
        return "--queue NAME is missing: where messages come from";
    if (handlers == 0)
        return "a handler is missing: --exec COMMAND, --exec-jsonl COMMAND or --to URL";
    if (handlers > 1)
        return "--exec, --exec-jsonl and --to exclude each other";
    if (values->on_exit != NULL && values->exec == NULL)
        return "--on-exit is about exit statuses, and goes with --exec";
    if (values->on_status != NULL && values->to == NULL)
        return "--on-status is about HTTP statuses, and goes with --to";
    if (values->metrics_hosts.n > 0 && values->metrics == NULL)
        return "--metrics-host is about the Host of requests, and goes with --metrics";
    if (!command_consume_is_one_of(values->log, logs))
        return "--log is all, problems or none";
    if (!command_consume_is_one_of(values->topology, topologies))
        return "--retry-topology is declare or none";
    if (values->prefetch != 0 && values->prefetch < values->workers)
        return "--prefetch is below --workers: some of them would never have anything to do";
    return NULL;
}

static int consume_values_check(struct consume *c) {
    const char *fault = values_fault(c->values);

    if (fault != NULL)
        return cli_usage("consume", "%s", fault);
    return c->values->key == NULL ? CLI_OK : consume_key_parse(c->values->key, &c->key);
}

/* The policy. */

static bool command_consume_prefix_fits(const char *prefix) {
    size_t len = strlen(prefix);
    struct idem_policy policy = {.prefix = prefix, .scope = IDEM_SCOPE_NONE};
    struct idem_guard *guard = NULL;
    bool fits = len <= IDEM_PREFIX_MAX && idem_guard_make(NULL, &policy, NULL, &guard, NULL) == 0;

    idem_guard_free(guard);
    return fits;
}

/* The defaults of this front door. The queue's name is the prefix of its keys unless --prefix is
   set; a name that cannot be a prefix leaves it NULL. */
static int consume_door_make(struct consume *c, struct idem_policy *ret) {
    if (asprintf(&c->prefix, "%s:", c->values->queue) < 0) {
        c->prefix = NULL;
        return CLI_SYSTEM;
    }
    *ret = (struct idem_policy){.scope = IDEM_SCOPE_NONE, .preset = IDEM_PRESET_QUEUE};
    if (command_consume_prefix_fits(c->prefix))
        ret->prefix = c->prefix;
    return CLI_OK;
}

static int consume_guard_check(const struct consume *c) {
    const struct idem_policy *policy = idem_guard_policy(c->guard);

    if (policy->key_kind != IDEM_KEY_EXPRESSION && c->key.kind == 0)
        return cli_usage("consume",
                         "--key is missing: what makes two messages one, such as --key "
                         "'#body.orderId', --key header:Idempotency-Key or --key message-id");
    if (strcmp(policy->scope, IDEM_SCOPE_CALLER) == 0)
        return cli_fail(
            CLI_USAGE,
            "consume: the policy has scope = caller, and a queue has no caller: use --scope "
            "none, or --scope with the sender's name");
    if (policy->mode == IDEM_MODE_LOCK)
        return cli_fail(
            CLI_USAGE,
            "consume: mode = lock forgets a message when it is done, so that its redelivery "
            "runs again: use mode = reject");
    return CLI_OK;
}

/* Makes the same policy for claims: they get the values that expressions made, not the
   expressions. */
static int consume_plain_guard_make(struct consume *c) {
    struct idem_policy flat = *idem_guard_policy(c->guard);
    struct idem_error err;

    flat.key_kind = IDEM_KEY_LITERAL;
    flat.key_expr = flat.fingerprint_expr = NULL;
    flat.fingerprint = 1;
    if (idem_guard_make(NULL, &flat, NULL, &c->plain, &err) < 0)
        return cli_message_error("consume", &err);
    return CLI_OK;
}

static int command_consume_expression_make(const char *flag, const char *expr,
                                           struct idem_guard **ret) {
    struct idem_policy policy = {.prefix = "-", .scope = IDEM_SCOPE_NONE, .key_expr = expr};
    struct idem_error err;

    if (expr == NULL || idem_guard_make(NULL, &policy, NULL, ret, &err) == 0)
        return CLI_OK;
    return cli_message_error(flag, &err);
}

/* Refuses a name that no message has: each message would become a dead letter. */
static int command_consume_names_check(const char *flag, const struct idem_expr *expr) {
    static const char *const names[] = {"body", "headers", "properties", "queue", NULL};
    const char *stranger;
    size_t len = 0;

    stranger = expr == NULL ? NULL : idem_expr_stranger(expr, names, &len);
    if (stranger == NULL)
        return CLI_OK;
    return cli_fail(
        CLI_USAGE,
        "consume: %s: there is no #%.*s; a message has #body, #headers, #properties and #queue",
        flag, (int)len, stranger);
}

static int consume_names_check(const struct consume *c) {
    const struct {
        const char *flag;
        const struct idem_expr *expr;
    } all[] = {
        {"--key", c->guard->key_expr},
        {"--fingerprint-expr", c->guard->fingerprint_expr},
        {"--order-by", c->order == NULL ? NULL : c->order->key_expr},
        {"--label", c->label == NULL ? NULL : c->label->key_expr},
    };
    int status = CLI_OK;

    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]) && status == CLI_OK; i++)
        status = command_consume_names_check(all[i].flag, all[i].expr);
    return status;
}

static int consume_guards_make(struct consume *c) {
    struct idem_policy policy = c->values->layer.policy, door;
    struct idem_error err;
    int status = consume_door_make(c, &door);

    if (status != CLI_OK)
        return status;
    policy.name = c->values->policy;
    if (policy.name != NULL && idem_settings_find(c->settings, policy.name) == NULL)
        return cli_fail(CLI_CONFIG, "consume: %s has no section [policy %s]", c->values->config,
                        policy.name);
    if (c->key.kind == QUEUE_KEY_EXPRESSION)
        policy.key_expr = c->key.expr;
    else if (c->key.kind != 0)
        policy.key_kind = IDEM_KEY_LITERAL;
    if (idem_guard_make(c->settings, &policy, &door, &c->guard, &err) < 0) {
        if (door.prefix == NULL && policy.prefix == NULL)
            cli_message(
                "consume: the queue's name is too long for a prefix (%d bytes), or has bytes "
                "that a prefix cannot have: set one with --prefix",
                IDEM_PREFIX_MAX);
        return cli_message_error("consume", &err);
    }
    status = consume_guard_check(c);
    if (status == CLI_OK)
        status = consume_plain_guard_make(c);
    if (status == CLI_OK)
        status =
            command_consume_expression_make("consume: --order-by", c->values->order_by, &c->order);
    if (status == CLI_OK)
        status = command_consume_expression_make("consume: --label", c->values->label, &c->label);
    if (status == CLI_OK)
        status = consume_names_check(c);
    if (c->key.kind == 0)
        c->key.kind = QUEUE_KEY_EXPRESSION;
    return status;
}

/* The broker. */

static unsigned consume_workers(const struct consume *c) {
    return c->values->workers == 0 ? 1 : (unsigned)c->values->workers;
}

static int consume_broker_prepare(struct consume *c) {
    const struct cli_values *values = c->values;
    const struct idem_policy *policy = idem_guard_policy(c->plain);
    struct idem_error err;

    c->broker_url = cli_secret_url(values->operands[0]);
    if (c->broker_url == NULL)
        return CLI_SYSTEM;
    c->broker = queue_broker_find(c->broker_url, &err);
    if (c->broker == NULL)
        return cli_message_error("consume", &err);
    c->queue = (struct queue_config){
        .url = c->broker_url,
        .queue = values->queue,
        .dead_letter = values->dead_letter,
        .group = values->group,
        .consumer = values->consumer,
        .body_field = values->body_field,
        .ordered = values->order_by != NULL,
        .prefetch =
            values->prefetch == 0 ? consume_workers(c) + PREFETCH_MORE : (unsigned)values->prefetch,
        .lease_ms = policy->lease_ms,
        .delay_max_ms = policy->backoff_max_ms,
        .topology = values->topology == NULL || strcmp(values->topology, "none") != 0,
    };
    return CLI_OK;
}

/* Refuses a ttl that ends while the broker can still deliver a message again: it would be handled
   twice. */
static int consume_ttl_check(const struct consume *c) {
    const struct idem_policy *policy = idem_guard_policy(c->plain);
    int64_t longest = queue_redelivery_ms(policy, c->broker, &c->queue);
    char ttl[IDEM_UNITS_TEXT], least[IDEM_UNITS_TEXT];

    if (policy->ttl_s * 1000 >= longest || c->values->unsafe_ttl)
        return CLI_OK;
    idem_duration_print(policy->ttl_s * 1000, ttl, sizeof(ttl));
    idem_duration_print(longest, least, sizeof(least));
    return cli_fail(
        CLI_USAGE,
        "consume: ttl is %s, and a message may come again %s later (attempts, back-off, lease, "
        "and the broker's own timeouts): it would be handled twice. Set a ttl of at least %s, "
        "fewer attempts or a shorter back-off, or --unsafe-ttl",
        ttl, least, least);
}

/* The store, and the handlers of messages. */

static int consume_store_open(struct consume *c) {
    struct idem_error err;
    int status = CLI_OK;

    c->store = cli_store_url(c->values, &status);
    if (c->store == NULL)
        return status;
    if (cli_open_on_poll(c->values, c->store, c->settings, &c->poll, &c->h, &err) < 0)
        return cli_message_error("store", &err);
    return CLI_OK;
}

/* Raises the limit of descriptors as far as allowed: each worker needs several. */
static void command_consume_files_raise(void) {
    struct rlimit files;

    if (getrlimit(RLIMIT_NOFILE, &files) < 0 || files.rlim_cur >= files.rlim_max)
        return;
    files.rlim_cur = files.rlim_max < FILES_MAX ? files.rlim_max : FILES_MAX;
    (void)setrlimit(RLIMIT_NOFILE, &files);
}

static int consume_programs_open(struct consume *c, struct idem_error *err) {
    const struct cli_values *values = c->values;
    bool reruns = idem_guard_policy(c->plain)->recover == IDEM_RECOVER_RERUN;
    struct handler_program program = {
        .command = values->exec != NULL ? values->exec : values->exec_jsonl,
        .signals = &c->signals,
        .kill_after_ms = values->kill_after_ms,
        .die_with = reruns ? SIGTERM : 0,
    };
    struct handler_rules on_exit;
    int rc;

    if (values->exec == NULL)
        return handler_jsonl_open(
            &(struct handler_jsonl_config){.program = program, .workers = consume_workers(c)},
            &c->h->loop, &c->handler, err);
    rc = handler_on_exit_parse(values->on_exit, &on_exit, err);
    if (rc != 0)
        return rc;
    return handler_exec_open(&(struct handler_exec_config){.program = program,
                                                           .on_exit = &on_exit,
                                                           .workers = consume_workers(c)},
                             &c->h->loop, &c->handler, err);
}

static int consume_endpoint_open(struct consume *c, struct idem_error *err) {
    struct handler_rules on_status;
    int rc = handler_on_status_parse(c->values->on_status, &on_status, err);

    if (rc != 0)
        return rc;
    c->to = cli_secret_url(c->values->to);
    if (c->to == NULL)
        return idem_error_set(err, IDEM_E_NOMEM, "no memory for a URL");
    return handler_to_open(
        &(struct handler_to_config){.url = c->to,
                                    .prefix = idem_guard_policy(c->plain)->prefix,
                                    .ca_file = c->values->to_ca,
                                    .on_status = &on_status,
                                    .timeout_ms = c->values->to_timeout_ms,
                                    .workers = consume_workers(c)},
        &c->h->loop, &c->handler, err);
}

static int consume_handler_open(struct consume *c) {
    struct idem_error err;

    if ((c->values->to != NULL ? consume_endpoint_open(c, &err) : consume_programs_open(c, &err)) <
        0)
        return cli_message_error("consume", &err);
    return CLI_OK;
}

/* The loop. */

static void command_consume_on_report(void *data, const struct queue_report *report) {
    struct consume *c = data;

    consume_log_report(&c->log, report);
    consume_metrics_report(&c->metrics, report);
}

static void command_consume_on_state(void *data, bool ready, const char *text) {
    struct consume *c = data;

    consume_log_state(&c->log, ready, text);
}

static void command_consume_on_stopped(void *data) {
    struct consume *c = data;

    c->stopped = true;
}

static int consume_consumer_open(struct consume *c) {
    struct queue_consumer_config config = {
        .h = c->h,
        .guard = c->plain,
        .keying = {.kind = c->key.kind,
                   .header = c->key.header,
                   .guard = c->guard,
                   .order = c->order,
                   .label = c->label},
        .broker = c->broker,
        .queue = c->queue,
        .handler = c->handler.queue,
        .events = {c, command_consume_on_report, command_consume_on_state,
                   command_consume_on_stopped},
    };
    struct idem_error err;

    if (queue_consumer_new(&config, &c->consumer, &err) < 0)
        return cli_message_error("consume", &err);
    return CLI_OK;
}

static void consume_sum(struct consume *c) {
    struct queue_counts counts;

    queue_consumer_counts(c->consumer, &counts);
    consume_log_sum(&c->log, &counts);
}

/* SIGUSR1 reports the counts. So does SIGHUP, unless it is ignored (nohup); that is deprecated. The
   first signal to end lets running handlers finish, the second one ends them. */
static void consume_signals_read(struct consume *c) {
    struct signalfd_siginfo info;

    while (signals_next(&c->signals, &info)) {
        if (info.ssi_signo == SIGUSR1 || info.ssi_signo == SIGHUP) {
            consume_sum(c);
        } else if (info.ssi_signo == SIGTERM || info.ssi_signo == SIGINT ||
                   info.ssi_signo == SIGQUIT) {
            if (c->asked++ == 0)
                consume_log_state(&c->log, false,
                                  "stopping: what is handled may end; once "
                                  "more, and it is made to");
            queue_consumer_stop(c->consumer, c->asked > 1 ? 0 : c->values->drain_ms);
        }
    }
}

static int consume_loop(struct consume *c) {
    struct pollfd extra = {.fd = c->signals.fd, .events = POLLIN};
    int64_t next = idem_loop_now() + PROGRESS_MS;
    struct queue_counts counts;

    while (!c->stopped) {
        int64_t left = next - idem_loop_now();

        if (left <= 0) {
            queue_consumer_counts(c->consumer, &counts);
            consume_log_progress(&c->log, &counts);
            consume_metrics_counts(&c->metrics, &counts);
            next = idem_loop_now() + PROGRESS_MS;
            left = PROGRESS_MS;
        }
        if (idem_poll_turn(&c->poll, &extra, 1, left) < 0)
            return cli_fail(CLI_SYSTEM, "consume: %s", strerror(errno));
        consume_signals_read(c);
    }
    consume_sum(c);
    return CLI_OK;
}

static int consume_metrics_begin(struct consume *c) {
    const struct cli_list *hosts = &c->values->metrics_hosts;
    struct idem_error err;

    if (c->values->metrics == NULL)
        return CLI_OK;
    if (consume_metrics_open(&c->metrics, c->values->metrics,
                             (struct metrics_hosts){hosts->at, hosts->n}, c->h, c->store,
                             c->values->queue, idem_guard_policy(c->plain)->prefix, &err) < 0)
        return cli_message_error("consume: --metrics", &err);
    if (c->log.level != CONSUME_LOG_NONE)
        cli_message("metrics at http://%s/metrics", metrics_address(c->metrics.server));
    return CLI_OK;
}

static int consume_serve(struct consume *c) {
    int status;

    if (signals_open(&c->signals, false) < 0)
        return cli_fail(CLI_SYSTEM, "consume: %s", strerror(errno));
    command_consume_files_raise();
    consume_log_init(&c->log, c->values);
    status = consume_metrics_begin(c);
    if (status == CLI_OK)
        status = consume_handler_open(c);
    if (status == CLI_OK)
        status = consume_consumer_open(c);
    if (status == CLI_OK)
        status = consume_loop(c);
    handler_close(&c->handler);
    queue_consumer_free(c->consumer);
    consume_metrics_close(&c->metrics);
    signals_release(&c->signals);
    return status;
}

static int command_consume_run(const struct cli_values *values) {
    struct consume c = {.values = values};
    int status = consume_values_check(&c);

    idem_poll_init(&c.poll);
    if (status == CLI_OK)
        status = cli_settings(values, &c.settings);
    if (status == CLI_OK)
        status = consume_guards_make(&c);
    if (status == CLI_OK)
        status = consume_broker_prepare(&c);
    if (status == CLI_OK)
        status = consume_ttl_check(&c);
    if (status == CLI_OK)
        status = consume_store_open(&c);
    if (status == CLI_OK)
        status = consume_serve(&c);
    idem_close(c.h);
    consume_metrics_release(&c.metrics);
    idem_poll_release(&c.poll);
    idem_guard_free(c.guard);
    idem_guard_free(c.plain);
    idem_guard_free(c.order);
    idem_guard_free(c.label);
    idem_settings_free(c.settings);
    free(c.prefix);
    free(c.store);
    free(c.broker_url);
    free(c.to);
    return status;
}

/* The options left out are for callers that wait for a response, or are set by the consumer
   itself. */
static const char *const consume_without[] = {"key",          "key_expr",       "wait",
                                              "on_duplicate", "message",        "result_max",
                                              "token_ttl",    "finish_timeout", NULL};

static const struct cli_policy_help consume_help[] = {
    {"mode", "MODE", "reject or replay, which is the same here (reject)"},
    {"prefix", "TEXT", "put before the key (QUEUE:)"},
    {"fingerprint", "N",
     "with header: and message-id, the body must be\n"
     "equal when the key comes back; none: it may differ (1)"},
    {"fingerprint_expr", "EXPR", "compare this of the message instead"},
    {"json_max", "SIZE", "how long what expressions read may be (1MiB)"},
    {"ttl", "TIME", "how long a message is remembered (24h)"},
    {"run_max", "TIME", "how long handling a message may take (none)"},
    {"recover", "HOW", "a run that vanished: rerun, or hold: a dead letter\n(rerun)"},
    {"on_failure", "HOW", "retry, release (without counting) or keep (retry)"},
    {"attempts", "N", "how often a message is tried (5)"},
    {NULL, NULL, NULL},
};

/* clang-format off */
static const char *const consume_options[] = {
    "queue",         "consume-key",     "exec",       "exec-jsonl", "to",
    "store",         "consume-workers", "prefetch",   "order-by",   "dead-letter",
    "on-exit",       "on-status",       "to-timeout", "to-ca",      "kill-after",
    "drain",         "retry-topology",  "group",      "consumer",   "body-field",
    "consume-label", "unsafe-ttl",      "log",        "metrics",    "metrics-host",
    "consume-json",  "quiet",           "policy",     "config",     "help",
    NULL};
/* clang-format on */

const struct cli_command cli_consume = {
    .name = "consume",
    .summary = "handle each message of a queue once",
    .synopsis = "URL --queue NAME --key KEY\n"
                "                    (--exec COMMAND | --exec-jsonl COMMAND | --to URL) [OPTIONS]",
    .text =
        "Takes messages from RabbitMQ (amqp:, amqps:) or a Redis stream (redis:, rediss:), has\n"
        "each handled once, and acknowledges it when that is stored. A message that fails is\n"
        "tried again, later and later; one that cannot be handled goes to the dead letters\n"
        "(idem dead). SIGTERM ends it when what is handled has ended, SIGUSR1 reports counts.\n",
    .after = "  idem consume amqp://localhost --queue orders --key '#body.orderId' \\\n"
             "      --to http://127.0.0.1:9000/orders\n"
             "  idem consume redis://localhost --queue mail --key header:Idempotency-Key \\\n"
             "      --exec ./send-mail --workers 4 --order-by '#body.user'\n",
    .operand = "a URL",
    .options = consume_options,
    .policy = true,
    .policy_without = consume_without,
    .policy_help = consume_help,
    .run = command_consume_run,
};
