/*
 * `idem gateway`: a guard before any HTTP backend, without nginx configuration written by hand. It
 * fails before nginx starts if flags contradict each other, an address is taken, the store cannot
 * be used, or nginx or its module is not installed.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/bytes.h"
#include "cli/gateway/gateway.h"

#define LISTEN "127.0.0.1:8080"
#define CONNECTIONS 8192

/* The file of --config is read by nginx only, so it may well take tokens. */
static bool values_take_tokens(const struct cli_values *values) {
    return values->config != NULL ||
           (values->key != NULL && idem_text_begins(values->key, "token"));
}

static bool gateway_is_path(const char *text) {
    return text == NULL || text[0] == '/';
}

/* Checks which flags are required, and which exclude each other. */
static int values_check(const struct cli_values *values) {
    const struct idem_policy *given = &values->layer.policy;

    if (values->operands_n != 0)
        cli_message("gateway: takes no operand");
    else if (values->upstreams.n == 0)
        cli_message(
            "gateway: --upstream URL is missing: the backend that requests are passed on to "
            "(--upstream http://127.0.0.1:9000)");
    else if (values->scope == NULL)
        cli_message(
            "gateway: --scope is missing. Two users may choose the same key, and must not get "
            "each other's responses: identify the caller by what was checked and stays the same "
            "over retries, as in --scope '$http_x_user' (the header X-User) behind a proxy that "
            "sets it. Where callers need not be kept apart, use --scope none");
    else if (values->key != NULL && given->key_expr != NULL)
        cli_message("gateway: --key and --key-expr exclude each other");
    else if (values->fingerprint != NULL && given->fingerprint_expr != NULL)
        cli_message("gateway: --fingerprint and --fingerprint-expr exclude each other");
    else if (values->token_at != NULL && !values_take_tokens(values))
        cli_message("gateway: --token issues tokens that nothing takes: use --key token, or --key "
                    "'token param=token' where forms have it in a field of that name, or let a "
                    "location of --config take them");
    else if (!gateway_is_path(values->token_at) || !gateway_is_path(values->js))
        cli_message("gateway: --%s: a path begins with a slash",
                    gateway_is_path(values->js) ? "token" : "js");
    else
        return gateway_texts_check(values);
    return CLI_USAGE;
}

/* Raises the limit of descriptors as far as allowed. Each request needs two, and a worker some of
   its own. */
static unsigned gateway_connections_raise(void) {
    struct rlimit files;

    if (getrlimit(RLIMIT_NOFILE, &files) < 0)
        return 512;
    if (files.rlim_cur < files.rlim_max) {
        files.rlim_cur = files.rlim_max < 65536 ? files.rlim_max : 65536;
        (void)setrlimit(RLIMIT_NOFILE, &files);
        (void)getrlimit(RLIMIT_NOFILE, &files);
    }
    return files.rlim_cur < CONNECTIONS ? (unsigned)files.rlim_cur : CONNECTIONS;
}

static int gateway_show_config(struct gateway *g) {
    const char *given = g->values->store != NULL ? g->values->store : getenv("IDEM_STORE");

    /* A person who tries this out has a store below the home directory, which nginx's workers
       cannot enter. */
    g->store = strdup(given != NULL && given[0] != '\0' ? given : "lmdb:/var/lib/nginx/idem");
    if (g->store == NULL)
        cli_message("no memory");
    else
        g->store = cli_store_url_absolute(g->store);
    if (g->store == NULL)
        return CLI_SYSTEM;
    gateway_config_print(g, stdout);
    return cli_flush();
}

/* Signals are taken before: whatever ends nginx, the directory is removed. */
static int gateway_run_in_directory(struct gateway *g) {
    int status = gateway_folder_make(g);

    if (status == CLI_OK && pipe2(g->log, O_CLOEXEC | O_NONBLOCK) < 0) {
        cli_message("gateway: %s", strerror(errno));
        status = CLI_SYSTEM;
    } else if (status == CLI_OK) {
        /* nginx's end of the pipe blocks, so that no line of the log is lost. */
        (void)fcntl(g->log[1], F_SETFL, 0);
        status = gateway_serve(g);
        close(g->log[0]);
        close(g->log[1]);
    }
    gateway_folder_remove(g);
    return status;
}

static int gateway_start(struct gateway *g) {
    int status = gateway_user(g);

    if (status == CLI_OK)
        status = gateway_listen_check(&g->listen);
    if (status != CLI_OK)
        return status;
    g->store = gateway_store_url(g, &status);
    if (g->store == NULL)
        return status;
    g->store = cli_store_url_absolute(g->store);
    if (g->store == NULL)
        return CLI_SYSTEM;
    status = gateway_store_check(g);
    if (status != CLI_OK)
        return status;
    g->connections = gateway_connections_raise();
    g->tty = signals_has_tty();
    if (signals_open(&g->signals, g->tty) < 0)
        return cli_fail(CLI_SYSTEM, "gateway: %s", strerror(errno));
    status = gateway_run_in_directory(g);
    signals_release(&g->signals);
    return status;
}

static int gateway_run(const struct cli_values *values) {
    struct gateway *g;
    int status = values_check(values);

    if (status != CLI_OK)
        return status;
    g = calloc(1, sizeof(*g));
    if (g == NULL)
        return cli_fail(CLI_SYSTEM, "no memory");
    g->values = values;
    status = gateway_listen_parse(values->listen == NULL ? LISTEN : values->listen, &g->listen);
    if (status == CLI_OK)
        status = gateway_upstreams_parse(&values->upstreams, g->upstreams);
    if (status == CLI_OK)
        status = gateway_find(g);
    if (status == CLI_OK)
        status = values->print_config ? gateway_show_config(g) : gateway_start(g);
    free(g->store);
    free(g);
    return status;
}

static const char *const gateway_options[] = {
    "listen",         "upstream",
    "gateway-scope",  "gateway-key",
    "methods",        "gateway-fingerprint",
    "probe",          "gateway-token",
    "token-bind",     "js",
    "gateway-label",  "enforce",
    "release-status", "replay-headers",
    "store",          "workers",
    "gateway-config", "print-config",
    "module",         "nginx",
    "help",           NULL,
};

/* The gateway has its own flags for these. */
static const char *const gateway_policy_without[] = {"key", "scope", "fingerprint", NULL};

/* clang-format off */
static const struct cli_policy_help gateway_policy_help[] = {
    {"preset", "NAME", "a customary set: submit, api, payment"},
    {"key_expr", "EXPR", "the key as an expression over the request:\n"
                         "'#body.orderId', or order:#{#body.id}"},
    {"prefix", "TEXT", "put before the key (" GATEWAY_PREFIX ")"},
    {"fingerprint_expr", "EXPR", "the same as --fingerprint with an expression"},
    {"json_max", "SIZE", "how long a body may be that is read as JSON (1MiB)"},
    {"run_max", "TIME", "how long a request may take (none)"},
    {"on_duplicate", "HOW", "a duplicate that gets no response again: error, or success\n"
                            "(error)"},
    {"message", "TEXT", "what a refused client reads"},
    {"on_store_error", "HOW", "closed: refuse; open: pass on unguarded (closed)"},
    {"result_max", "SIZE", "how long a response may be that is kept (1MiB)"},
    {NULL, NULL, NULL},
};
/* clang-format on */

const struct cli_command cli_gateway = {
    .name = "gateway",
    .summary = "stand before an HTTP backend; each request happens once",
    .synopsis = "--upstream URL --scope VALUE|none [OPTIONS]",
    .text = "Runs nginx with idem's module before the backend: a POST or PATCH with an\n"
            "Idempotency-Key that was seen before gets the first response again, and the backend\n"
            "does not see it. Its log is on stdout, nginx's errors are on stderr. SIGTERM and\n"
            "SIGINT let running requests finish, a second one does not; SIGHUP reloads.\n",
    .after =
        "In expressions the request is #method, #path, #query, #headers, #cookies, #body, #user.\n"
        "Root is not needed. Started by root, nginx's workers run as www-data, and the store\n"
        "must be theirs: a directory that is not there yet is made so. Without --store it is\n"
        "/var/lib/idem/gateway then.\n"
        "\n"
        "nginx's own limits hold: a request's body of more than 1 MiB is refused (413), and a\n"
        "backend that is silent for 60 s is not waited for (504, and the outcome is\n"
        "uncertain). In the file of --config:\n"
        "\n"
        "  client_max_body_size 20m;\n"
        "  proxy_read_timeout 5m;\n"
        "\n"
        "Exit status: 0 after SIGTERM or SIGINT, 64 usage, 69 store error, 71 the address is\n"
        "taken or nginx failed, 78 nginx refuses the configuration, 127 nginx or its module\n"
        "is not installed.\n"
        "\n"
        "  idem gateway --upstream http://127.0.0.1:9000 --scope '$http_x_user'\n"
        "  idem gateway --listen '*:80' --upstream https://shop.example --scope none \\\n"
        "      --preset payment --label '$request_id' --print-config\n",
    .options = gateway_options,
    .policy = true,
    .policy_without = gateway_policy_without,
    .policy_help = gateway_policy_help,
    .policy_is = "directive of nginx's, idem_ttl",
    .run = gateway_run,
};
