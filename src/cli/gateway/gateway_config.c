/*
 * Writes the nginx configuration of `idem gateway`. Each line records the flag that it comes from,
 * so that nginx's error about a line can be reported as an error of the flag.
 *
 * A value of a flag becomes a quoted word, in which only two escapes of nginx matter: \" and \\. A
 * $ stays as it is: where nginx expands variables, the user meant one, and elsewhere it is an
 * ordinary character. Control characters were refused before.
 */
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "cli/gateway/gateway.h"

#define PLAIN_BYTES "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.:/=,+$@%&*?~-|"

#define BLANKS " \t,"

/* The output, its indentation, and the record of flags. */
struct config {
    FILE *out;
    struct gateway_lines *lines; /* or NULL */
    unsigned line, depth;
    bool explain; /* with comments for people */
};

static void config_line_begin(struct config *c, const char *flag) {
    c->line++;
    if (c->lines != NULL && c->line <= GATEWAY_LINES)
        snprintf(c->lines->flag[c->line], sizeof(c->lines->flag[0]), "%s",
                 flag == NULL ? "" : flag);
    fprintf(c->out, "%*s", (int)(4 * c->depth), "");
}

__attribute__((format(printf, 2, 3))) static void config_put(struct config *c, const char *fmt,
                                                             ...) {
    va_list args;

    config_line_begin(c, NULL);
    va_start(args, fmt);
    vfprintf(c->out, fmt, args);
    va_end(args);
    fputc('\n', c->out);
}

static void config_explain(struct config *c, const char *text) {
    if (c->explain)
        config_put(c, "# %s", text);
}

static void config_blank_line(struct config *c) {
    c->line++;
    fputc('\n', c->out);
}

static void config_block_open(struct config *c, const char *name) {
    config_put(c, "%s {", name);
    c->depth++;
}

static void config_block_close(struct config *c) {
    c->depth--;
    config_put(c, "}");
}

static void gateway_config_word_write(FILE *out, const char *text, size_t len) {
    if (len != 0 && strspn(text, PLAIN_BYTES) >= len) {
        fwrite(text, 1, len, out);
        return;
    }
    fputc('"', out);
    for (size_t i = 0; i < len; i++) {
        if (text[i] == '"' || text[i] == '\\')
            fputc('\\', out);
        fputc(text[i], out);
    }
    fputc('"', out);
}

/* NAME WORD; */
static void config_directive(struct config *c, const char *flag, const char *name,
                             const char *word) {
    config_line_begin(c, flag);
    fprintf(c->out, "%s ", name);
    gateway_config_word_write(c->out, word, strlen(word));
    fputs(";\n", c->out);
}

/* Writes the words of `text` as nginx's words. If there are none, nginx refuses the directive. */
static void config_directive_list(struct config *c, const char *flag, const char *name,
                                  const char *text) {
    size_t len;

    config_line_begin(c, flag);
    fputs(name, c->out);
    for (text += strspn(text, BLANKS); *text != '\0'; text += strspn(text, BLANKS)) {
        len = strcspn(text, BLANKS);
        fputc(' ', c->out);
        gateway_config_word_write(c->out, text, len);
        text += len;
    }
    fputs(";\n", c->out);
}

/* Values of flags. */

static const char *const texts_of[] = {
    "--scope",  "--key",     "--methods",    "--fingerprint",
    "--probe",  "--label",   "--enforce",    "--release-status",
    "--token",  "--js",      "--token-bind", "--replay-headers",
    "--store",  "--config",  "--module",     "--listen",
    "--prefix", "--message", "--key-expr",   "--fingerprint-expr"};

int gateway_texts_check(const struct cli_values *values) {
    const struct idem_policy *policy = &values->layer.policy;
    const char *const texts[] = {
        values->scope,    values->key,     values->methods,    values->fingerprint,
        values->probe,    values->label,   values->enforce,    values->release_status,
        values->token_at, values->js,      values->token_bind, values->replay_headers,
        values->store,    values->config,  values->module,     values->listen,
        policy->prefix,   policy->message, policy->key_expr,   policy->fingerprint_expr};

    _Static_assert(sizeof(texts) == sizeof(texts_of), "a name for each");
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        if (texts[i] == NULL)
            continue;
        if (texts[i][0] == '\0')
            return cli_fail(CLI_USAGE, "gateway: %s is empty", texts_of[i]);
        for (const char *at = texts[i]; *at != '\0'; at++) {
            if ((unsigned char)*at < ' ' || *at == 0x7f)
                return cli_fail(
                    CLI_USAGE,
                    "gateway: %s holds a control character, which nginx's configuration does "
                    "not take",
                    texts_of[i]);
        }
    }
    return CLI_OK;
}

/* True for a word of the policy that is not written as the directive idem_WORD. */
static bool gateway_config_word_is_special(const char *word) {
    static const char *const special[] = {"preset",      "mode",    "key",
                                          "key_expr",    "prefix",  "scope",
                                          "fingerprint", "message", "fingerprint_expr"};

    for (size_t i = 0; i < sizeof(special) / sizeof(special[0]); i++)
        if (strcmp(word, special[i]) == 0)
            return true;
    return false;
}

static const char *gateway_config_flag_of_word(const char *word, char *buf, size_t size) {
    snprintf(buf, size, "--%s", word);
    for (char *c = buf; *c != '\0'; c++)
        if (*c == '_')
            *c = '-';
    return buf;
}

static void config_policy_write(struct config *c, const struct idem_policy *policy) {
    char value[IDEM_OPTION_TEXT_MAX], name[40], flag[40];

    for (const struct idem_option *o = idem_option_table; o->word != NULL; o++) {
        if (gateway_config_word_is_special(o->word))
            continue;
        if (strcmp(idem_option_print(o, policy, value, sizeof(value)), "-") == 0)
            continue;
        snprintf(name, sizeof(name), "idem_%s", o->word);
        config_directive(c, gateway_config_flag_of_word(o->word, flag, sizeof(flag)), name, value);
    }
    if (policy->message != NULL)
        config_directive(c, "--message", "idem_message", policy->message);
}

/* A value with variables is one word, including its blanks; only `optional` or `required` may
   follow it. */
static void config_key_value_write(struct config *c, const char *key) {
    static const char *const last[] = {" optional", " required"};
    size_t len = strlen(key), tail;
    const char *word = "";

    for (size_t i = 0; i < 2; i++) {
        tail = strlen(last[i]);
        if (len > tail && strcmp(key + len - tail, last[i]) == 0) {
            len -= tail;
            word = last[i];
            break;
        }
    }
    config_line_begin(c, "--key");
    fputs("idem_key ", c->out);
    gateway_config_word_write(c->out, key, len);
    fprintf(c->out, "%s;\n", word);
}

static void config_key_write(struct config *c, const struct cli_values *values) {
    const char *expr = values->layer.policy.key_expr;

    if (expr != NULL) {
        config_line_begin(c, "--key-expr");
        fputs("idem_set $gateway_key ", c->out);
        gateway_config_word_write(c->out, expr, strlen(expr));
        fputs(";\n", c->out);
        config_directive(c, "--key-expr", "idem_key", "$gateway_key");
    } else if (values->key != NULL && strchr(values->key, '$') != NULL) {
        config_key_value_write(c, values->key);
    } else if (values->key != NULL) {
        config_directive_list(c, "--key", "idem_key", values->key);
    }
}

static void config_fingerprint_write(struct config *c, const struct cli_values *values) {
    const char *expr = values->layer.policy.fingerprint_expr;

    if (expr != NULL)
        config_directive(c, "--fingerprint-expr", "idem_fingerprint", expr);
    else if (values->fingerprint != NULL && strchr(values->fingerprint, '#') != NULL)
        config_directive(c, "--fingerprint", "idem_fingerprint", values->fingerprint);
    else if (values->fingerprint != NULL)
        config_directive_list(c, "--fingerprint", "idem_fingerprint", values->fingerprint);
}

static void config_guard_write(struct config *c, const struct gateway *g) {
    const struct cli_values *values = g->values;
    const struct idem_policy *policy = &values->layer.policy;
    const struct idem_option *preset = idem_option_find("preset", 6);
    const struct idem_option *mode = idem_option_find("mode", 4);
    char value[IDEM_OPTION_TEXT_MAX];

    config_explain(
        c, "A duplicate gets the first response (replay), a refusal (reject) or its turn (lock).");
    if (policy->preset != 0)
        config_directive(c, "--preset", "idem_preset",
                         idem_option_print(preset, policy, value, sizeof(value)));
    if (policy->mode != 0 || policy->preset == 0)
        config_directive(c, "--mode", "idem",
                         policy->mode == 0 ? "replay"
                                           : idem_option_print(mode, policy, value, sizeof(value)));
    config_explain(c,
                   "Where it is remembered. A directory (lmdb:) must belong to the user of nginx's "
                   "workers.");
    config_directive(c, "--store", "idem_store", g->store);
    config_explain(c, "Put before every key: operations with prefixes of their own never meet.");
    config_directive(c, "--prefix", "idem_prefix",
                     policy->prefix == NULL ? GATEWAY_PREFIX : policy->prefix);
    config_explain(c, "The caller: no caller gets the response to another caller's request.");
    config_directive(c, "--scope", "idem_scope", values->scope);
    if (values->key == NULL && policy->key_expr == NULL)
        config_explain(c, policy->preset == IDEM_PRESET_SUBMIT
                              ? "The key is what is asked for, by whom, and what is sent with it; "
                                "`idem_key` changes that."
                              : "The key is the header Idempotency-Key; `idem_key` changes that.");
    config_key_write(c, values);
    config_fingerprint_write(c, values);
    if (values->methods != NULL)
        config_directive_list(c, "--methods", "idem_methods", values->methods);
    config_policy_write(c, policy);
    if (values->probe != NULL)
        config_directive(c, "--probe", "idem_probe", values->probe);
    if (values->label != NULL)
        config_directive(c, "--label", "idem_label", values->label);
    if (values->token_bind != NULL)
        config_directive(c, "--token-bind", "idem_token_bind", values->token_bind);
    if (values->enforce != NULL)
        config_directive(c, "--enforce", "idem_enforce", values->enforce);
    if (values->release_status != NULL)
        config_directive_list(c, "--release-status", "idem_release_status", values->release_status);
    if (values->replay_headers != NULL)
        config_directive_list(c, "--replay-headers", "idem_replay_headers", values->replay_headers);
}

/* Writes a location that the module itself serves. */
static void config_location_write(struct config *c, const char *flag, const char *path,
                                  const char *served) {
    if (path == NULL)
        return;
    config_line_begin(c, flag);
    fputs("location = ", c->out);
    gateway_config_word_write(c->out, path, strlen(path));
    fputs(" {\n", c->out);
    c->depth++;
    config_put(c, "%s;", served);
    config_block_close(c);
}

static void config_locations_write(struct config *c, const struct cli_values *values) {
    if (values->token_at != NULL)
        config_explain(
            c, "GET issues a token to who asks. Put limit_req before it: each is a record.");
    config_location_write(c, "--token", values->token_at, "idem_token");
    config_location_write(c, "--js", values->js, "idem_js");
}

/* The backend. */

static void config_upstream_write(struct config *c, const struct gateway *g) {
    if (g->values->upstreams.n < 2)
        return;
    config_block_open(c, "upstream idem_backend");
    for (size_t i = 0; i < g->values->upstreams.n; i++) {
        config_line_begin(c, "--upstream");
        fprintf(c->out, "server %s:%s;\n", g->upstreams[i].host, g->upstreams[i].port);
    }
    config_block_close(c);
}

static void config_proxy_write(struct config *c, const struct gateway *g) {
    const struct gateway_upstream *first = &g->upstreams[0];

    config_put(c, "proxy_http_version 1.1;");
    config_put(c, "proxy_set_header Host $http_host;");
    config_put(c, "proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;");
    config_put(c, "proxy_set_header X-Forwarded-Proto $scheme;");
    if (!first->tls)
        return;
    config_put(c, "proxy_ssl_server_name on;");
    if (g->values->upstreams.n > 1)
        config_put(c, "proxy_ssl_name %s;", first->host);
    config_put(c, "proxy_ssl_verify on;");
    config_put(c, "proxy_ssl_verify_depth 4;");
    config_put(c, "proxy_ssl_trusted_certificate /etc/ssl/certs/ca-certificates.crt;");
}

static void config_pass_write(struct config *c, const struct gateway *g) {
    const struct gateway_upstream *first = &g->upstreams[0];

    config_line_begin(c, "--upstream");
    fprintf(c->out, "proxy_pass %s://", first->tls ? "https" : "http");
    if (g->values->upstreams.n > 1)
        fputs("idem_backend", c->out);
    else
        fprintf(c->out, "%s:%s", first->host, first->port);
    fprintf(c->out, "%s;\n", first->path);
}

/* `include` takes patterns; the escapes make it the name of one file. */
static void config_include_write(struct config *c, const char *path) {
    bool pattern = strpbrk(path, "*?[") != NULL;
    char *name = calloc(strlen(path) + 1, 2), *out = name;

    if (name == NULL)
        return;
    for (; *path != '\0'; path++) {
        if (pattern && strchr("*?[\\", *path) != NULL)
            *out++ = '\\';
        *out++ = *path;
    }
    config_directive(c, "--config", "include", name);
    free(name);
}

/* The log contains neither query nor headers: both may contain a key. */
static void config_log_write(struct config *c) {
    config_block_open(c, "map $idem_key_hash $idem_log_hash");
    config_put(c, "default -;");
    config_put(c, "\"~^(?<idem_log_digits>.{%d})\" $idem_log_digits;", CLI_HASH_SHORT);
    config_block_close(c);
    config_block_open(c, "map $idem_attempt $idem_log_attempt");
    config_put(c, "\"\" -;");
    config_put(c, "default $idem_attempt;");
    config_block_close(c);
    config_block_open(c, "map $idem_time $idem_log_time");
    config_put(c, "\"\" -;");
    config_put(c, "default ${idem_time}s;");
    config_block_close(c);
    config_block_open(c, "map $idem_verdict $idem_log");
    config_put(c, "\"\" \"\";");
    config_put(c, "default \" idem=$idem_verdict hash=$idem_log_hash attempt=$idem_log_attempt "
                  "store=$idem_log_time\";");
    config_block_close(c);
    config_put(c, "log_format idem '$time_iso8601 $remote_addr $request_method \"$uri\" $status '");
    config_put(c, "                '${request_time}s$idem_log';");
    config_put(c, "access_log /dev/fd/%d idem;", GATEWAY_LOG_FD);
}

static void config_http_write(struct config *c, const struct gateway *g, const char *listen) {
    static const char *const temps[] = {"client_body", "proxy", "fastcgi", "uwsgi", "scgi"};

    for (size_t i = 0; i < sizeof(temps) / sizeof(temps[0]); i++)
        config_put(c, "%s_temp_path %s;", temps[i], temps[i]);
    config_put(c, "server_tokens off;");
    config_log_write(c);
    config_proxy_write(c, g);
    config_upstream_write(c, g);
    config_block_open(c, "server");
    config_directive(c, "--listen", "listen", listen);
    config_guard_write(c, g);
    if (g->include[0] != '\0')
        config_include_write(c, g->include);
    config_locations_write(c, g->values);
    config_block_open(c, "location /");
    config_pass_write(c, g);
    config_block_close(c);
    config_block_close(c);
}

/* nginx removes all variables from its workers' environment except the named ones. */
static void config_passwords_write(struct config *c) {
    static const char *const names[] = {"IDEM_REDIS_PASSWORD", "IDEM_POSTGRES_PASSWORD",
                                        "IDEM_MYSQL_PASSWORD"};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (getenv(names[i]) != NULL)
            config_put(c, "env %s;", names[i]);
}

void gateway_config_write(const struct gateway *g, const char *listen, FILE *out,
                          struct gateway_lines *lines) {
    struct config c = {.out = out, .lines = lines};

    config_put(&c, "# Written by idem gateway, which removes it when it ends.");
    config_directive(&c, "--module", "load_module", g->module);
    config_put(&c, "daemon off;");
    if (g->user[0] != '\0')
        config_put(&c, "user %s %s;", g->user, g->group);
    config_put(&c, "pid nginx.pid;");
    config_put(&c, "lock_file nginx.lock;");
    config_put(&c, "error_log stderr warn;");
    config_passwords_write(&c);
    if (g->values->workers == 0)
        config_put(&c, "worker_processes auto;");
    else
        config_put(&c, "worker_processes %d;", (int)g->values->workers);
    config_block_open(&c, "events");
    config_put(&c, "worker_connections %u;", g->connections);
    config_block_close(&c);
    config_block_open(&c, "http");
    config_http_write(&c, g, listen);
    config_block_close(&c);
}

/* Output for people. */

void gateway_config_print(const struct gateway *g, FILE *out) {
    struct config c = {.out = out, .explain = true};

    config_put(&c, "# At the top of nginx.conf, before events { }:");
    config_directive(&c, NULL, "load_module", g->module);
    if (!g->module_found)
        config_put(&c, "# (It is not there: where was it installed?)");
    config_passwords_write(&c);
    config_blank_line(&c);
    if (g->values->upstreams.n > 1) {
        config_put(&c, "# In http { }:");
        config_upstream_write(&c, g);
        config_blank_line(&c);
    }
    config_put(&c,
               "# In server { }. Each line may also stand in a location, and differ from one to "
               "another;");
    config_put(&c, "# `idem off;` takes a location out.");
    config_guard_write(&c, g);
    if (g->include[0] != '\0')
        config_include_write(&c, g->include);
    config_locations_write(&c, g->values);
    config_blank_line(&c);
    config_put(
        &c,
        "# Any location with a backend (proxy_pass, fastcgi_pass, uwsgi_pass) is guarded then.");
    config_block_open(&c, "location /");
    config_proxy_write(&c, g);
    config_pass_write(&c, g);
    config_block_close(&c);
    config_blank_line(&c);
    config_put(&c,
               "# For an access_log: $idem_verdict, $idem_key_hash, $idem_attempt, $idem_time.");
}
