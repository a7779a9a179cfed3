/*
 * The nginx configuration of `idem gateway`. Every line remembers which flag it
 * comes from, so that what nginx says of a line can be told of a flag.
 *
 * Texts from flags are words between quotes, in which nginx knows two escapes
 * that matter: \" and \\. A $ is left as it is: where nginx takes variables they
 * are meant, and elsewhere it is only a $. Control characters are refused
 * before.
 */
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "cli/gateway.h"

#define PLAIN_BYTES "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.:/=,+$@%&*?~-|"

#define BLANKS " \t,"

/* What is written, how deep, and which flag is its cause. */
struct config {
    FILE *out;
    struct gateway_lines *lines; /* or NULL */
    unsigned line, depth;
    bool explain; /* it is for people */
};

static void line_begin(struct config *c, const char *flag) {
    c->line++;
    if (c->lines != NULL && c->line <= GATEWAY_LINES)
        snprintf(c->lines->flag[c->line], sizeof(c->lines->flag[0]), "%s",
                 flag == NULL ? "" : flag);
    fprintf(c->out, "%*s", (int)(4 * c->depth), "");
}

__attribute__((format(printf, 2, 3))) static void put(struct config *c, const char *fmt, ...) {
    va_list args;

    line_begin(c, NULL);
    va_start(args, fmt);
    vfprintf(c->out, fmt, args);
    va_end(args);
    fputc('\n', c->out);
}

static void explain(struct config *c, const char *text) {
    if (c->explain)
        put(c, "# %s", text);
}

static void blank(struct config *c) {
    c->line++;
    fputc('\n', c->out);
}

static void block_open(struct config *c, const char *name) {
    put(c, "%s {", name);
    c->depth++;
}

static void block_close(struct config *c) {
    c->depth--;
    put(c, "}");
}

static void word_write(FILE *out, const char *text, size_t len) {
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
static void directive(struct config *c, const char *flag, const char *name, const char *word) {
    line_begin(c, flag);
    fprintf(c->out, "%s ", name);
    word_write(c->out, word, strlen(word));
    fputs(";\n", c->out);
}

/* The words of a text as nginx's words; one that has none is nginx's to refuse. */
static void directive_list(struct config *c, const char *flag, const char *name, const char *text) {
    size_t len;

    line_begin(c, flag);
    fputs(name, c->out);
    for (text += strspn(text, BLANKS); *text != '\0'; text += strspn(text, BLANKS)) {
        len = strcspn(text, BLANKS);
        fputc(' ', c->out);
        word_write(c->out, text, len);
        text += len;
    }
    fputs(";\n", c->out);
}

/* What flags say. */

static const char *const texts_of[] = {
    "--scope",  "--key",     "--methods",    "--fingerprint",
    "--probe",  "--label",   "--enforce",    "--release-status",
    "--token",  "--js",      "--token-bind", "--replay-headers",
    "--store",  "--config",  "--module",     "--listen",
    "--prefix", "--message", "--key-expr",   "--fingerprint-expr"};

int gateway_texts_check(const struct cli_values *values) {
    const struct idem_policy *said = &values->layer.said;
    const char *const texts[] = {
        values->scope,    values->key,    values->methods,    values->fingerprint,
        values->probe,    values->label,  values->enforce,    values->release_status,
        values->token_at, values->js,     values->token_bind, values->replay_headers,
        values->store,    values->config, values->module,     values->listen,
        said->prefix,     said->message,  said->key_expr,     said->fingerprint_expr};

    _Static_assert(sizeof(texts) == sizeof(texts_of), "a name for each");
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        if (texts[i] == NULL)
            continue;
        if (texts[i][0] == '\0') {
            cli_say("gateway: %s is empty", texts_of[i]);
            return CLI_USAGE;
        }
        for (const char *at = texts[i]; *at != '\0'; at++) {
            if ((unsigned char)*at < ' ' || *at == 0x7f) {
                cli_say("gateway: %s holds a control character, which nginx's configuration does "
                        "not take",
                        texts_of[i]);
                return CLI_USAGE;
            }
        }
    }
    return CLI_OK;
}

/* Words of the policy that are not simply the directive of their name. */
static bool policy_word_is_special(const char *word) {
    static const char *const special[] = {"preset",      "mode",    "key",
                                          "key_expr",    "prefix",  "scope",
                                          "fingerprint", "message", "fingerprint_expr"};

    for (size_t i = 0; i < sizeof(special) / sizeof(special[0]); i++)
        if (strcmp(word, special[i]) == 0)
            return true;
    return false;
}

static const char *flag_of_word(const char *word, char *buf, size_t size) {
    snprintf(buf, size, "--%s", word);
    for (char *c = buf; *c != '\0'; c++)
        if (*c == '_')
            *c = '-';
    return buf;
}

static void policy_write(struct config *c, const struct idem_policy *said) {
    char value[IDEM_OPTION_TEXT_MAX], name[40], flag[40];

    for (const struct idem_option *o = idem_option_table; o->word != NULL; o++) {
        if (policy_word_is_special(o->word))
            continue;
        if (strcmp(idem_option_print(o, said, value, sizeof(value)), "-") == 0)
            continue;
        snprintf(name, sizeof(name), "idem_%s", o->word);
        directive(c, flag_of_word(o->word, flag, sizeof(flag)), name, value);
    }
    if (said->message != NULL)
        directive(c, "--message", "idem_message", said->message);
}

/* A value with variables is one word, blanks and all; only `optional` or `required` may follow. */
static void key_value_write(struct config *c, const char *key) {
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
    line_begin(c, "--key");
    fputs("idem_key ", c->out);
    word_write(c->out, key, len);
    fprintf(c->out, "%s;\n", word);
}

static void key_write(struct config *c, const struct cli_values *values) {
    const char *expr = values->layer.said.key_expr;

    if (expr != NULL) {
        line_begin(c, "--key-expr");
        fputs("idem_set $gateway_key ", c->out);
        word_write(c->out, expr, strlen(expr));
        fputs(";\n", c->out);
        directive(c, "--key-expr", "idem_key", "$gateway_key");
    } else if (values->key != NULL && strchr(values->key, '$') != NULL) {
        key_value_write(c, values->key);
    } else if (values->key != NULL) {
        directive_list(c, "--key", "idem_key", values->key);
    }
}

static void fingerprint_write(struct config *c, const struct cli_values *values) {
    const char *expr = values->layer.said.fingerprint_expr;

    if (expr != NULL)
        directive(c, "--fingerprint-expr", "idem_fingerprint", expr);
    else if (values->fingerprint != NULL && strchr(values->fingerprint, '#') != NULL)
        directive(c, "--fingerprint", "idem_fingerprint", values->fingerprint);
    else if (values->fingerprint != NULL)
        directive_list(c, "--fingerprint", "idem_fingerprint", values->fingerprint);
}

static void guard_write(struct config *c, const struct gateway *g) {
    const struct cli_values *values = g->values;
    const struct idem_policy *said = &values->layer.said;
    const struct idem_option *preset = idem_option_find("preset", 6);
    const struct idem_option *mode = idem_option_find("mode", 4);
    char value[IDEM_OPTION_TEXT_MAX];

    explain(c, "What a duplicate gets: the first answer (replay), a refusal (reject), its turn "
               "(lock).");
    if (said->preset != 0)
        directive(c, "--preset", "idem_preset",
                  idem_option_print(preset, said, value, sizeof(value)));
    if (said->mode != 0 || said->preset == 0)
        directive(c, "--mode", "idem",
                  said->mode == 0 ? "replay" : idem_option_print(mode, said, value, sizeof(value)));
    explain(c, "Where it is remembered. A folder (lmdb:) must belong to the user of nginx's "
               "workers.");
    directive(c, "--store", "idem_store", g->store);
    explain(c, "Put before every key: operations with prefixes of their own never meet.");
    directive(c, "--prefix", "idem_prefix", said->prefix == NULL ? GATEWAY_PREFIX : said->prefix);
    explain(c, "Who is asking: nobody gets the answer to somebody else's request.");
    directive(c, "--scope", "idem_scope", values->scope);
    if (values->key == NULL && said->key_expr == NULL)
        explain(c, said->preset == IDEM_PRESET_SUBMIT
                       ? "The key is what is asked for, by whom, and what is sent with it; "
                         "`idem_key` says otherwise."
                       : "The key is the header Idempotency-Key; `idem_key` says otherwise.");
    key_write(c, values);
    fingerprint_write(c, values);
    if (values->methods != NULL)
        directive_list(c, "--methods", "idem_methods", values->methods);
    policy_write(c, said);
    if (values->probe != NULL)
        directive(c, "--probe", "idem_probe", values->probe);
    if (values->label != NULL)
        directive(c, "--label", "idem_label", values->label);
    if (values->token_bind != NULL)
        directive(c, "--token-bind", "idem_token_bind", values->token_bind);
    if (values->enforce != NULL)
        directive(c, "--enforce", "idem_enforce", values->enforce);
    if (values->release_status != NULL)
        directive_list(c, "--release-status", "idem_release_status", values->release_status);
    if (values->replay_headers != NULL)
        directive_list(c, "--replay-headers", "idem_replay_headers", values->replay_headers);
}

/* A location that the module serves itself. */
static void place_write(struct config *c, const char *flag, const char *path, const char *served) {
    if (path == NULL)
        return;
    line_begin(c, flag);
    fputs("location = ", c->out);
    word_write(c->out, path, strlen(path));
    fputs(" {\n", c->out);
    c->depth++;
    put(c, "%s;", served);
    block_close(c);
}

static void places_write(struct config *c, const struct cli_values *values) {
    if (values->token_at != NULL)
        explain(c, "GET issues a token to who asks. Put limit_req before it: each is a record.");
    place_write(c, "--token", values->token_at, "idem_token");
    place_write(c, "--js", values->js, "idem_js");
}

/* What stands behind it. */

static void upstream_group_write(struct config *c, const struct gateway *g) {
    if (g->values->upstreams.n < 2)
        return;
    block_open(c, "upstream idem_backend");
    for (size_t i = 0; i < g->values->upstreams.n; i++) {
        line_begin(c, "--upstream");
        fprintf(c->out, "server %s:%s;\n", g->upstreams[i].host, g->upstreams[i].port);
    }
    block_close(c);
}

static void proxy_write(struct config *c, const struct gateway *g) {
    const struct gateway_upstream *first = &g->upstreams[0];

    put(c, "proxy_http_version 1.1;");
    put(c, "proxy_set_header Host $http_host;");
    put(c, "proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;");
    put(c, "proxy_set_header X-Forwarded-Proto $scheme;");
    if (!first->tls)
        return;
    put(c, "proxy_ssl_server_name on;");
    if (g->values->upstreams.n > 1)
        put(c, "proxy_ssl_name %s;", first->host);
    put(c, "proxy_ssl_verify on;");
    put(c, "proxy_ssl_verify_depth 4;");
    put(c, "proxy_ssl_trusted_certificate /etc/ssl/certs/ca-certificates.crt;");
}

static void pass_write(struct config *c, const struct gateway *g) {
    const struct gateway_upstream *first = &g->upstreams[0];

    line_begin(c, "--upstream");
    fprintf(c->out, "proxy_pass %s://", first->tls ? "https" : "http");
    if (g->values->upstreams.n > 1)
        fputs("idem_backend", c->out);
    else
        fprintf(c->out, "%s:%s", first->host, first->port);
    fprintf(c->out, "%s;\n", first->path);
}

/* `include` takes patterns; this is the name of one file. */
static void include_write(struct config *c, const char *path) {
    bool pattern = strpbrk(path, "*?[") != NULL;
    char *name = calloc(strlen(path) + 1, 2), *out = name;

    if (name == NULL)
        return;
    for (; *path != '\0'; path++) {
        if (pattern && strchr("*?[\\", *path) != NULL)
            *out++ = '\\';
        *out++ = *path;
    }
    directive(c, "--config", "include", name);
    free(name);
}

/* The log names neither query nor headers: either may hold a key. */
static void log_write(struct config *c) {
    block_open(c, "map $idem_key_hash $idem_log_hash");
    put(c, "default -;");
    put(c, "\"~^(?<idem_log_digits>.{%d})\" $idem_log_digits;", CLI_HASH_SHORT);
    block_close(c);
    block_open(c, "map $idem_attempt $idem_log_attempt");
    put(c, "\"\" -;");
    put(c, "default $idem_attempt;");
    block_close(c);
    block_open(c, "map $idem_time $idem_log_time");
    put(c, "\"\" -;");
    put(c, "default ${idem_time}s;");
    block_close(c);
    block_open(c, "map $idem_verdict $idem_log");
    put(c, "\"\" \"\";");
    put(c, "default \" idem=$idem_verdict hash=$idem_log_hash attempt=$idem_log_attempt "
           "store=$idem_log_time\";");
    block_close(c);
    put(c, "log_format idem '$time_iso8601 $remote_addr $request_method \"$uri\" $status '");
    put(c, "                '${request_time}s$idem_log';");
    put(c, "access_log /dev/fd/%d idem;", GATEWAY_LOG_FD);
}

static void http_write(struct config *c, const struct gateway *g, const char *listen) {
    static const char *const temps[] = {"client_body", "proxy", "fastcgi", "uwsgi", "scgi"};

    for (size_t i = 0; i < sizeof(temps) / sizeof(temps[0]); i++)
        put(c, "%s_temp_path %s;", temps[i], temps[i]);
    put(c, "server_tokens off;");
    log_write(c);
    proxy_write(c, g);
    upstream_group_write(c, g);
    block_open(c, "server");
    directive(c, "--listen", "listen", listen);
    guard_write(c, g);
    if (g->include[0] != '\0')
        include_write(c, g->include);
    places_write(c, g->values);
    block_open(c, "location /");
    pass_write(c, g);
    block_close(c);
    block_close(c);
}

/* nginx takes the environment away from its workers, but for what is named. */
static void passwords_write(struct config *c) {
    static const char *const names[] = {"IDEM_REDIS_PASSWORD", "IDEM_POSTGRES_PASSWORD",
                                        "IDEM_MYSQL_PASSWORD"};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (getenv(names[i]) != NULL)
            put(c, "env %s;", names[i]);
}

void gateway_config_write(const struct gateway *g, const char *listen, FILE *out,
                          struct gateway_lines *lines) {
    struct config c = {.out = out, .lines = lines};

    put(&c, "# Written by idem gateway, which removes it when it ends.");
    directive(&c, "--module", "load_module", g->module);
    put(&c, "daemon off;");
    if (g->user[0] != '\0')
        put(&c, "user %s %s;", g->user, g->group);
    put(&c, "pid nginx.pid;");
    put(&c, "lock_file nginx.lock;");
    put(&c, "error_log stderr warn;");
    passwords_write(&c);
    if (g->values->workers == 0)
        put(&c, "worker_processes auto;");
    else
        put(&c, "worker_processes %d;", (int)g->values->workers);
    block_open(&c, "events");
    put(&c, "worker_connections %u;", g->connections);
    block_close(&c);
    block_open(&c, "http");
    http_write(&c, g, listen);
    block_close(&c);
}

/* For people. */

void gateway_config_print(const struct gateway *g, FILE *out) {
    struct config c = {.out = out, .explain = true};

    put(&c, "# At the top of nginx.conf, before events { }:");
    directive(&c, NULL, "load_module", g->module);
    if (!g->module_found)
        put(&c, "# (It is not there: where was it installed?)");
    passwords_write(&c);
    blank(&c);
    if (g->values->upstreams.n > 1) {
        put(&c, "# In http { }:");
        upstream_group_write(&c, g);
        blank(&c);
    }
    put(&c, "# In server { }. Each line may also stand in a location, and differ from one to "
            "another;");
    put(&c, "# `idem off;` takes a location out.");
    guard_write(&c, g);
    if (g->include[0] != '\0')
        include_write(&c, g->include);
    places_write(&c, g->values);
    blank(&c);
    put(&c,
        "# Any location with a backend (proxy_pass, fastcgi_pass, uwsgi_pass) is guarded then.");
    block_open(&c, "location /");
    proxy_write(&c, g);
    pass_write(&c, g);
    block_close(&c);
    blank(&c);
    put(&c, "# For an access_log: $idem_verdict, $idem_key_hash, $idem_attempt, $idem_time.");
}
