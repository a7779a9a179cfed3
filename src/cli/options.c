/*
 * The table of flags and their parser. It fails, with a line that says what to
 * write instead, on flags that the command does not take and on values that do
 * not fit. A line never repeats a value that could be a key or a scope.
 */
#include "cli/options.h"

#include <getopt.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "core/error.h"
#include "core/units.h"

#define AT(field) offsetof(struct cli_values, field)

/* clang-format off */
const struct cli_option cli_option_table[] = {
    {"key", 'k', "KEY", "what must happen once; taken literally",
     CLI_TEXT, AT(key), 0, 0},
    {"at", 0, "STEP[+OFFSET]", "append the planned time to the key: 1h, 24h+2h30m",
     CLI_SCHEDULE, AT(at), 0, 0},
    {"label", 0, "TEXT", "what idem list shows of it: an order number, a job",
     CLI_TEXT, AT(label), 0, 0},
    {"kill-after", 0, "TIME", "from SIGTERM to SIGKILL, when it must end (10s)",
     CLI_DURATION, AT(kill_after_ms), 0, 86400000},
    {"verdict-fd", 0, "N", "write the verdict and the finish to descriptor N",
     CLI_NUMBER, AT(verdict_fd), 1, 65535},
    {"duplicate-exit", 0, "N", "exit status of a duplicate",
     CLI_NUMBER, AT(duplicate_exit), 0, 255},
    {"quiet", 'q', NULL, "no line on stderr about a verdict",
     CLI_FLAG, AT(quiet), 0, 0},
    {"policy", 0, "NAME", "take [policy NAME] of the settings",
     CLI_TEXT, AT(policy), 0, 0},
    {"config", 'c', "FILE", "read settings",
     CLI_TEXT, AT(config), 0, 0},
    {"store", 's', "URL", "where it is remembered ($IDEM_STORE)",
     CLI_TEXT, AT(store), 0, 0},
    {"print", 0, NULL, "write the statements, and change nothing",
     CLI_FLAG, AT(print), 0, 0},
    {"hash", 0, "HEX", "name the record by its hash, or the hash's beginning",
     CLI_TEXT, AT(hash), 0, 0},
    {"state", 0, "STATE", "issued, running, uncertain, done, failed, damaged or\n"
                       "newer only",
     CLI_TEXT, AT(state), 0, 0},
    {"since", 0, "TIME", "changed since then: 2h (ago), 2026-11-15T20:00:00Z",
     CLI_TEXT, AT(since), 0, 0},
    {"only", 0, "FILE", "of these, only those that a line of FILE names: a hash, or\n"
                        "what idem list --json writes; -: standard input",
     CLI_TEXT, AT(only), 0, 0},
    {"json", 0, NULL, "one JSON object per line",
     CLI_FLAG, AT(json), 0, 0},
    {"result", 0, NULL, "write the stored result as it was, and nothing else",
     CLI_FLAG, AT(result), 0, 0},
    {"done", 0, NULL, "it happened",
     CLI_FLAG, AT(done), 0, 0},
    {"failed", 0, NULL, "it did not happen",
     CLI_FLAG, AT(failed), 0, 0},
    {"status", 0, "N", "the exit status to remember (done: 0, failed: 1)",
     CLI_NUMBER, AT(status), 0, INT32_MAX},
    {"reason", 0, "TEXT", "why, for whoever looks at it later",
     CLI_TEXT, AT(reason), 0, 0},
    {"force", 'f', NULL, "although somebody holds a live lease on it",
     CLI_FLAG, AT(force), 0, 0},
    {"dry-run", 'n', NULL, "show what would be settled, and change nothing",
     CLI_FLAG, AT(dry_run), 0, 0},
    {"token", 0, "TOKEN", "instead of a key: what idem token has issued",
     CLI_TEXT, AT(token), 0, 0},
    {"token", 0, NULL, "KEY is a token",
     CLI_FLAG, AT(key_is_token), 0, 0, .id = "key-is-token"},
    {"bind", 0, "TEXT", "what a token is issued for, and must be used with",
     CLI_TEXT, AT(bind), 0, 0},
    {"vars", 0, "JSON", "the variables of expressions, an object",
     CLI_TEXT, AT(vars), 0, 0},
    {"vars-file", 0, "FILE", "read the variables from a file",
     CLI_TEXT, AT(vars_file), 0, 0},
    {"key", 0, NULL, "by the rules of keys",
     CLI_FLAG, AT(key_rules), 0, 0, .id = "key-rules"},
    {"template", 0, NULL, "it is text with #{...} in it",
     CLI_FLAG, AT(template), 0, 0},
    {"jsonl", 0, NULL, "read lines {\"id\",\"mode\",\"expr\",\"vars\"}, answer each with one",
     CLI_FLAG, AT(jsonl), 0, 0},
    {"v7", 0, NULL, "UUIDs of version 7, in order of time (the default)",
     CLI_FLAG, AT(v7), 0, 0},
    {"v4", 0, NULL, "UUIDs of version 4, random",
     CLI_FLAG, AT(v4), 0, 0},
    {"snowflake", 0, NULL, "numbers of 63 bits, in order of time",
     CLI_FLAG, AT(snowflake), 0, 0},
    {"number", 'n', "N", "how many (1)",
     CLI_NUMBER, AT(number), 1, 100000000},
    {"name", 0, "NAME", "snowflakes of another name have workers of their own",
     CLI_TEXT, AT(name), 0, 0},
    {"listen", 0, "ADDRESS", "PORT, HOST:PORT, [V6]:PORT or unix:PATH; a PORT alone is\n"
                             "this machine's only, *:PORT is for all (127.0.0.1:8080)",
     CLI_TEXT, AT(listen), 0, 0},
    {"upstream", 0, "URL", "the backend, http[s]://HOST[:PORT][/PATH]; several times:\n"
                           "they take turns",
     CLI_LIST, AT(upstreams), 0, 0},
    {"scope", 0, "VALUE", "who is asking, with nginx's variables: '$http_x_user';\n"
                          "none: nobody is told apart",
     CLI_TEXT, AT(scope), 0, 0, .id = "gateway-scope"},
    {"key", 'k', "KEY", "header=NAME [optional], param=NAME [optional], params,\n"
                        "'serial header=NAME credential=NAME', 'token [param=NAME]',\n"
                        "or text with nginx's variables (header=Idempotency-Key)",
     CLI_TEXT, AT(key), 0, 0, .id = "gateway-key"},
    {"methods", 0, "LIST", "what is guarded, of POST PUT PATCH DELETE ('POST PATCH')",
     CLI_TEXT, AT(methods), 0, 0},
    {"fingerprint", 0, "PARTS", "what must be equal when a key comes back: of method path\n"
                                "query body; none; or an expression over the request",
     CLI_TEXT, AT(fingerprint), 0, 0, .id = "gateway-fingerprint"},
    {"probe", 0, "URI", "ask the backend there what came of a run that vanished",
     CLI_TEXT, AT(probe), 0, 0},
    {"token", 0, "PATH", "issue tokens there, on GET and POST, for --key token",
     CLI_TEXT, AT(token_at), 0, 0, .id = "gateway-token"},
    {"token-bind", 0, "VALUE", "what a token is issued for, and must be used with, with\n"
                               "nginx's variables",
     CLI_TEXT, AT(token_bind), 0, 0},
    {"js", 0, "PATH", "serve idem.js there, for pages",
     CLI_TEXT, AT(js), 0, 0},
    {"label", 0, "VALUE", "what idem list shows of it, with nginx's variables",
     CLI_TEXT, AT(label), 0, 0, .id = "gateway-label"},
    {"enforce", 0, "VALUE", "on; off: only log what would have been done; or text with\n"
                            "nginx's variables (on)",
     CLI_TEXT, AT(enforce), 0, 0},
    {"release-status", 0, "LIST", "statuses that give the key back, or none\n"
                                  "('401 407 408 421 423 425 429')",
     CLI_TEXT, AT(release_status), 0, 0},
    {"replay-headers", 0, "LIST", "further headers that a replay repeats",
     CLI_TEXT, AT(replay_headers), 0, 0},
    {"workers", 0, "N", "processes of nginx (one for each processor)",
     CLI_NUMBER, AT(workers), 1, 512},
    {"config", 'c', "FILE", "further nginx directives for the server { } block; limits too:\n"
                            "client_max_body_size (1m), proxy_read_timeout (60s)",
     CLI_TEXT, AT(config), 0, 0, .id = "gateway-config"},
    {"print-config", 0, NULL, "print what to copy into an nginx.conf, and end",
     CLI_FLAG, AT(print_config), 0, 0},
    {"module", 0, "FILE", "ngx_http_idem_module.so ($IDEM_NGINX_MODULE)",
     CLI_TEXT, AT(module), 0, 0},
    {"nginx", 0, "FILE", "the nginx to run (nginx)",
     CLI_TEXT, AT(nginx), 0, 0},
    {"nginx", 0, "FILE", "examine this configuration of nginx, and its stores",
     CLI_TEXT, AT(nginx_config), 0, 0, .id = "nginx-config"},
    {"nginx-exe", 0, "FILE", "the nginx that reads it (nginx)",
     CLI_TEXT, AT(nginx_exe), 0, 0},
    {"client-timeout", 0, "TIME", "how long clients wait before they ask again (60s)",
     CLI_DURATION, AT(client_timeout_ms), 1, 86400000},
    {"retry-span", 0, "TIME", "for how long clients ask again: a ttl below it is unsafe",
     CLI_DURATION, AT(retry_span_ms), 1, (int64_t)366 * 86400000},
    {"key-id", 0, "ID", "whose secret signs",
     CLI_TEXT, AT(key_id), 0, 0},
    {"secret-file", 0, "FILE", "the secrets: ID hmac-sha256 base64:SECRET to a line",
     CLI_TEXT, AT(secret_file), 0, 0},
    {"form", 0, "FORM", "rfc9421 or classic (rfc9421)",
     CLI_TEXT, AT(form), 0, 0},
    {"window", 0, "TIME", "how far a timestamp may be from now, 1s to 1d (60s)",
     CLI_DURATION, AT(window_ms), 1000, 86400000},
    {"headers", 0, "NAMES", "headers that are signed too, parted by commas; with rfc9421\n"
                            "also @authority and the like",
     CLI_TEXT, AT(sign_headers), 0, 0},
    {"sequence", 0, "HOW", "off, increasing or consecutive: the nonce is a number (off)",
     CLI_TEXT, AT(sequence), 0, 0},
    {"nonce", 0, "NONCE", "instead of 128 random bits; of a sequence, its number",
     CLI_TEXT, AT(nonce), 0, 0},
    {"time", 0, "TIME", "instead of now: seconds since 1970, 2026-11-15T20:00:00Z;\n"
                        "none: without, where there is a sequence",
     CLI_TEXT, AT(time), 0, 0},
    {"now", 0, "TIME", "compare with this time instead of now",
     CLI_TEXT, AT(now), 0, 0},
    {"method", 'X', "METHOD", "of the request (POST with a body, else GET)",
     CLI_TEXT, AT(method), 0, 0},
    {"header", 'H', "'NAME: VALUE'", "of the request; @FILE or @-: one to a line",
     CLI_LIST, AT(headers), 0, 0},
    {"data", 'd', "BODY", "of the request; @FILE or @-: all that is in it",
     CLI_LIST, AT(data), 0, 0},
    {"data-file", 0, "FILE", "the body is all that is in it; -: standard input",
     CLI_TEXT, AT(data_file), 0, 0},
    {"show", 0, NULL, "say on stderr what was signed",
     CLI_FLAG, AT(show), 0, 0, .id = "show-signed"},
    {"show", 0, NULL, "show what was signed although it is right",
     CLI_FLAG, AT(show), 0, 0, .id = "show-verified"},
    {"spend", 0, NULL, "ask the store for the nonce, too, which is used then",
     CLI_FLAG, AT(spend), 0, 0},
    {"queue", 0, "NAME", "where messages come from: a queue, or a stream",
     CLI_TEXT, AT(queue), 0, 0},
    {"key", 'k', "KEY", "what makes two messages one: an expression over body,\n"
                        "headers, properties and queue ('#body.orderId'),\n"
                        "header:NAME, or message-id",
     CLI_TEXT, AT(key), 0, 0, .id = "consume-key"},
    {"exec", 0, "COMMAND", "run it for each message, by sh, the body on its stdin",
     CLI_TEXT, AT(exec), 0, 0},
    {"exec-jsonl", 0, "COMMAND", "start --workers of it, which read a line of JSON for each\n"
                                 "message, and answer by one",
     CLI_TEXT, AT(exec_jsonl), 0, 0},
    {"to", 0, "URL", "POST each message there",
     CLI_TEXT, AT(to), 0, 0},
    {"to-timeout", 0, "TIME", "how long that may take (30s)",
     CLI_DURATION, AT(to_timeout_ms), 1, 86400000},
    {"to-ca", 0, "FILE", "who may vouch for an https endpoint (the system's)",
     CLI_TEXT, AT(to_ca), 0, 0},
    {"workers", 0, "N", "messages that are handled at a time (1)",
     CLI_NUMBER, AT(workers), 1, 1024, .id = "consume-workers"},
    {"prefetch", 0, "N", "messages in hand at a time (--workers and 8)",
     CLI_NUMBER, AT(prefetch), 1, 65535},
    {"order-by", 0, "EXPR", "messages that have this in common are handled one after\n"
                            "the other, as they came, failures included",
     CLI_TEXT, AT(order_by), 0, 0},
    {"dead-letter", 0, "NAME", "where messages go that cannot be handled (QUEUE.dead)",
     CLI_TEXT, AT(dead_letter), 0, 0},
    {"retry-topology", 0, "HOW", "declare: RabbitMQ queues for delays and dead letters are\n"
                                 "made where they are missing; none: delays are waited for\n"
                                 "here (declare)",
     CLI_TEXT, AT(topology), 0, 0},
    {"on-exit", 0, "LIST", "what exit statuses mean: 65=dead,3=done,*=retry; 0 is done\n"
                           "and 75 is retry (*=retry)",
     CLI_TEXT, AT(on_exit), 0, 0},
    {"on-status", 0, "LIST", "what HTTP statuses mean: 404=retry,5xx=dead",
     CLI_TEXT, AT(on_status), 0, 0},
    {"group", 0, "NAME", "streams: the consumer group (idem)",
     CLI_TEXT, AT(group), 0, 0},
    {"consumer", 0, "NAME", "streams: this consumer's name, the same over restarts and no\n"
                            "other's (the machine's name)",
     CLI_TEXT, AT(consumer), 0, 0},
    {"body-field", 0, "NAME", "streams: which field is the body (body)",
     CLI_TEXT, AT(body_field), 0, 0},
    {"label", 0, "EXPR", "what idem list shows of it: '#body.orderId'",
     CLI_TEXT, AT(label), 0, 0, .id = "consume-label"},
    {"drain", 0, "TIME", "how long a stop waits for what is handled (30s)",
     CLI_DURATION, AT(drain_ms), 0, 86400000},
    {"unsafe-ttl", 0, NULL, "although a message may come again after it is forgotten",
     CLI_FLAG, AT(unsafe_ttl), 0, 0},
    {"log", 0, "WHAT", "all, problems or none (all; on a terminal: problems)",
     CLI_TEXT, AT(log), 0, 0},
    {"metrics", 0, "ADDRESS", "serve what was counted at HOST:PORT/metrics: for\n"
                              "Prometheus, as JSON, and as a page for a browser",
     CLI_TEXT, AT(metrics), 0, 0},
    {"json", 0, NULL, "one line of JSON per second on stdout: counts and rates",
     CLI_FLAG, AT(json), 0, 0, .id = "consume-json"},
    {"number", 'n', "N", "which one, as idem dead list counts them",
     CLI_NUMBER, AT(letter), 1, 1000000000, .id = "dead-number"},
    {"force", 'f', NULL, "although nobody knows whether it happened",
     CLI_FLAG, AT(force), 0, 0, .id = "force-uncertain"},
    {"dry-run", 0, NULL, "show what would be requeued, and change nothing",
     CLI_FLAG, AT(dry_run), 0, 0, .id = "dead-dry-run"},
    {"result", 0, NULL, "write the body as it is, and nothing else",
     CLI_FLAG, AT(result), 0, 0, .id = "dead-result"},
    {"all", 0, NULL, "all of them",
     CLI_FLAG, AT(all), 0, 0},
    {"audit", 0, "FILE", "append a line for each change to this file ($IDEM_AUDIT;\n"
                         "the system's log)",
     CLI_TEXT, AT(audit), 0, 0},
    {"yes", 'y', NULL, "do not ask",
     CLI_FLAG, AT(yes), 0, 0},
    {"help", 'h', NULL, "show this",
     CLI_FLAG, AT(help), 0, 0},
    {NULL, 0, NULL, NULL, CLI_FLAG, 0, 0, 0},
};

/* What the help says of the policy's words; the words themselves are the policy's. */
static const struct cli_policy_help policy_help[] = {
    {"preset", "NAME", "a customary set: submit, api, payment, queue, job"},
    {"mode", "MODE", "lock, reject or replay (replay)"},
    {"key_expr", "EXPR", "the key as an expression over --vars:\n"
                         "'user:' + #user.id, or order:#{#id}"},
    {"prefix", "TEXT", "put before the key (run:)"},
    {"scope", "TEXT", "who is asking; scopes never meet (none)"},
    {"fingerprint", "N", "the command line must be equal when the key\n"
                         "comes back; none: it may differ (1)"},
    {"fingerprint_expr", "EXPR", "compare this of --vars instead"},
    {"json_max", "SIZE", "how long the variables may be (1MiB)"},
    {"ttl", "TIME", "how long done and failed are remembered (24h)"},
    {"hold_ttl", "TIME", "how long a vanished run is remembered (30d)"},
    {"lease", "TIME", "how long a run may be silent (30s)"},
    {"run_max", "TIME", "how long the command may take (none)"},
    {"wait", "TIME", "how long a duplicate waits for the first (none)"},
    {"recover", "HOW", "a run that vanished: hold or rerun (hold)"},
    {"on_failure", "HOW", "release, retry or keep (release)"},
    {"attempts", "N", "how often it may run under retry and rerun"},
    {"backoff", "MIN..MAX", "between retries (1s..5m)"},
    {"message", "TEXT", "what a refused caller reads"},
    {"on_store_error", "HOW", "closed: do not run; open: run anyway (closed)"},
    {"result_max", "SIZE", "how much output is kept (1MiB)"},
    {"finish_timeout", "TIME", "how long storing the end is tried (10s)"},
    {"token_ttl", "TIME", "how long a token may wait for its use (5m)"},
    {NULL, NULL, NULL},
};
/* clang-format on */

#define FLAGS_MAX 64

/* A flag of one command, from either table. */
struct flag {
    char name[32];
    int letter;
    const char *arg, *help;
    const struct cli_option *own; /* one of these two */
    const struct idem_option *policy;
};

struct flags {
    struct flag at[FLAGS_MAX];
    size_t n;
};

static bool policy_takes(const struct cli_command *command, const char *word) {
    const char *const *without = command->policy_without;

    for (; without != NULL && *without != NULL; without++)
        if (strcmp(word, *without) == 0)
            return false;
    return true;
}

static bool flag_help(const struct cli_policy_help *help, struct flag *flag) {
    for (; help != NULL && help->word != NULL; help++) {
        if (strcmp(flag->policy->word, help->word) == 0) {
            flag->arg = help->arg;
            flag->help = help->help;
            return true;
        }
    }
    return false;
}

static void flag_add_policy(const struct cli_command *command, struct flags *flags,
                            const struct idem_option *option) {
    struct flag *flag = &flags->at[flags->n];

    if (!policy_takes(command, option->word))
        return;
    *flag = (struct flag){.arg = "VALUE", .help = "", .policy = option};
    if (!flag_help(command->policy_help, flag))
        (void)flag_help(policy_help, flag);
    snprintf(flag->name, sizeof(flag->name), "%s", option->word);
    for (char *c = flag->name; *c != '\0'; c++)
        if (*c == '_')
            *c = '-';
    flags->n++;
}

static void flag_add(const struct cli_command *command, struct flags *flags, const char *name) {
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
        flag_add_policy(command, flags, policy);
}

/* In the order of the help: what the command names, then the policy's. */
static void flags_gather(const struct cli_command *command, struct flags *flags) {
    flags->n = 0;
    for (const char *const *name = command->options; *name != NULL; name++)
        flag_add(command, flags, *name);
    if (!command->policy)
        return;
    for (const struct idem_option *o = idem_option_table; o->word != NULL; o++)
        if (flags->n < FLAGS_MAX)
            flag_add_policy(command, flags, o);
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
    bool told = false;

    flags_gather(command, &flags);
    fputs("\nOptions:\n", out);
    for (size_t i = 0; i < flags.n; i++) {
        if (command->policy && flags.at[i].policy != NULL && !told) {
            fprintf(out, "\nThe policy, each also a %s (defaults in brackets):\n",
                    command->policy_is == NULL ? "word of the settings" : command->policy_is);
            told = true;
        }
        flag_print(&flags.at[i], out);
    }
}

/* The nearest word. */

#define NEAR_MAX 32

/* The number of letters to change, add, drop or swap; `a` and `b` are at most NEAR_MAX long. */
static size_t distance(const char *a, size_t a_len, const char *b, size_t b_len) {
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

const char *cli_nearest(const char *text, size_t len, const char *const *words) {
    size_t best = len <= 4 ? 2 : len / 3 + 2, far;
    const char *nearest = NULL;

    if (len == 0 || len > NEAR_MAX)
        return NULL;
    for (; *words != NULL; words++) {
        if (strlen(*words) > NEAR_MAX)
            continue;
        far = distance(text, len, *words, strlen(*words));
        if (far < best) {
            best = far;
            nearest = *words;
        }
    }
    return nearest;
}

/* Parsing. */

static int usage(const struct cli_command *command, const char *name, const char *what) {
    cli_say("%s: --%s: %s (see: idem help %s)", command->name, name, what, command->name);
    return CLI_USAGE;
}

/* The word with a letter that is no flag: getopt_long() has left it behind with its last letter,
   and stands on it before. */
static const char *letter_word(int argc, char **argv, int letter) {
    const char *left = argv[optind - 1];
    size_t len = strlen(left);

    if (optind >= argc || (left[0] == '-' && left[1] != '-' && len > 1 && left[len - 1] == letter))
        return left;
    return argv[optind];
}

/* A word that is near to no flag may be meant as an operand. */
static int unknown_say(const struct cli_command *command, const char *quoted, const char *nearest) {
    if (nearest != NULL)
        cli_say("%s: unknown flag %s; did you mean --%s? (see: idem help %s)", command->name,
                quoted, nearest, command->name);
    else if (command->operand != NULL)
        cli_say("%s: unknown flag %s; write -- before %s that begins with a dash, and all flags "
                "before that (see: idem help %s)",
                command->name, quoted, command->operand, command->name);
    else
        cli_say("%s: unknown flag %s (see: idem help %s)", command->name, quoted, command->name);
    return CLI_USAGE;
}

/* No value is repeated, and what follows a letter may be one. An expression is none. */
static int letter_unknown(const struct cli_command *command, const char *word, int letter) {
    const char flag[] = {'-', (char)letter};
    char quoted[IDEM_QUOTE_TEXT];

    if (command == &cli_eval)
        idem_error_quote(word, strlen(word), quoted, sizeof(quoted));
    else
        idem_error_quote(flag, sizeof(flag), quoted, sizeof(quoted));
    return unknown_say(command, quoted, NULL);
}

/* argv's word is unknown or ambiguous: its value, behind '=', is not repeated. */
static int flag_unknown(const struct cli_command *command, const struct flags *flags,
                        const char *word) {
    size_t len = strcspn(word + 2, "=");
    const char *names[FLAGS_MAX + 1];
    char quoted[IDEM_QUOTE_TEXT];

    for (size_t i = 0; i < flags->n; i++)
        names[i] = flags->at[i].name;
    names[flags->n] = NULL;
    return unknown_say(command, idem_error_quote(word, len + 2, quoted, sizeof(quoted)),
                       cli_nearest(word + 2, len, names));
}

static int number_set(const struct cli_option *option, const char *text, int64_t *ret,
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
        return number_set(flag->own, text, field, err);
    }
}

#define LONG_BASE 256

/* What getopt_long() wants to know; flag i comes back as LONG_BASE + i, or as its letter. */
static void getopt_tables(const struct cli_command *command, const struct flags *flags,
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

static const struct flag *flag_of(const struct flags *flags, int got) {
    if (got >= LONG_BASE && (size_t)(got - LONG_BASE) < flags->n)
        return &flags->at[got - LONG_BASE];
    for (size_t i = 0; i < flags->n; i++)
        if (got != 0 && flags->at[i].letter == got)
            return &flags->at[i];
    return NULL;
}

/* One answer of getopt_long(). */
static int flag_take(const struct cli_command *command, const struct flags *flags, int got,
                     int argc, char **argv, struct cli_values *values) {
    const struct flag *flag = flag_of(flags, got == ':' || got == '?' ? optopt : got);
    struct idem_error err;

    if (flag == NULL && optopt != 0)
        return letter_unknown(command, letter_word(argc, argv, optopt), optopt);
    if (flag == NULL)
        return flag_unknown(command, flags, argv[optind - 1]);
    if (got == ':')
        return usage(command, flag->name, "its value is missing");
    if (got == '?')
        return usage(command, flag->name, "it takes no value");
    if (flag_set(flag, optarg, values, &err) < 0)
        return usage(command, flag->name, err.text);
    return CLI_OK;
}

int cli_parse(const struct cli_command *command, int argc, char **argv, struct cli_values *ret) {
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
    flags_gather(command, &flags);
    getopt_tables(command, &flags, longs, letters, sizeof(letters));
    opterr = 0;
    optind = 0; /* glibc: begin anew, whatever was parsed before */
    while ((got = getopt_long(argc, argv, letters, longs, NULL)) != -1) {
        status = flag_take(command, &flags, got, argc, argv, ret);
        if (status != CLI_OK)
            return status;
    }
    ret->operands = argv + optind;
    ret->operands_n = argc - optind;
    return CLI_OK;
}
