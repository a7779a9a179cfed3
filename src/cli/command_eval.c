/*
 * `idem eval`: evaluates an expression over variables; one expression, or one for each line of
 * JSON.
 */
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/error.h"
#include "cli/cli.h"
#include "cli/input.h"
#include "expr/expr.h"
#include "json/json_out.h"

#define MEMORY_MAX ((size_t)1 << 30)

struct result {
    const char *text, *type;
    size_t len;
};

/* Compiles and evaluates; the result's text belongs to the arena or the expression. */
static int expr_evaluate(struct idem_expr **expr, const char *text, size_t len, unsigned flags,
                         const struct idem_json *vars, struct idem_arena *arena, struct result *ret,
                         struct idem_error *err) {
    struct idem_value value;
    int rc;

    if (flags == IDEM_EXPR_KEY)
        rc = idem_expr_compile_key(text, len, expr, err);
    else
        rc = idem_expr_compile(text, len, flags, expr, err);
    if (rc != 0)
        return rc;
    if (flags & IDEM_EXPR_KEY) {
        ret->type = "String";
        return idem_expr_key(*expr, vars, arena, &ret->text, &ret->len, err);
    }
    rc = idem_expr_eval(*expr, vars, arena, &value, err);
    if (rc == 0)
        rc = idem_value_print(&value, arena, &ret->text, &ret->len, err);
    ret->type = rc == 0 ? idem_value_type_name(&value) : NULL;
    return rc;
}

static unsigned values_expression_flags(const struct cli_values *values) {
    return (values->template ? IDEM_EXPR_TEMPLATE : 0) | (values->key_rules ? IDEM_EXPR_KEY : 0);
}

/* One expression. */

static int command_eval_one(const struct cli_values *values) {
    const char *text = values->operands[0];
    char *vars_text;
    size_t vars_len;
    int status = cli_input_variables(values, "eval", &vars_text, &vars_len);
    struct idem_expr *expr = NULL;
    struct idem_arena arena;
    struct idem_json vars;
    struct result result;
    struct idem_error err;
    int rc;

    if (status != CLI_OK)
        return status;
    idem_arena_init(&arena, MEMORY_MAX);
    rc = idem_json_parse(vars_text == NULL ? "{}" : vars_text, vars_text == NULL ? 2 : vars_len,
                         &arena, &vars, &err);
    if (rc == 0 && vars.type != IDEM_JSON_OBJECT) {
        snprintf(err.text, sizeof(err.text),
                 "the variables are no JSON object: its members are the variables");
        rc = IDEM_E_INVALID;
    }
    if (rc == 0)
        rc = expr_evaluate(&expr, text, strlen(text), values_expression_flags(values), &vars,
                           &arena, &result, &err);
    if (rc == 0) {
        fwrite(result.text, 1, result.len, stdout);
        putchar('\n');
    } else {
        fprintf(stderr, "idem: %s\n", err.text);
    }
    idem_expr_free(expr);
    idem_arena_free(&arena);
    free(vars_text);
    return rc == 0 ? cli_flush() : rc == IDEM_E_NOMEM ? CLI_SYSTEM : CLI_MISMATCH;
}

/* Lines of JSON. */

static int command_eval_write(void *out, const char *bytes, size_t len) {
    fwrite(bytes, 1, len, out);
    return 0;
}

/* Finds the id in a line that cannot be parsed as a whole, so that the response can name the
   request. */
static bool command_eval_id_find(const char *line, size_t len, struct idem_arena *arena,
                                 struct idem_json *ret) {
    static const char name[] = "\"id\":";
    const char *at = memmem(line, len, name, sizeof(name) - 1), *from, *end = line + len;

    if (at == NULL)
        return false;
    from = at += sizeof(name) - 1;
    if (at < end && *at == '"') {
        for (at++; at < end && *at != '"'; at++)
            at += *at == '\\';
        at++;
    } else {
        while (at < end && strchr(",} ", *at) == NULL)
            at++;
    }
    return at <= end && idem_json_parse(from, (size_t)(at - from), arena, ret, NULL) == 0;
}

static const struct idem_json *json_text_member(const struct idem_json *object, const char *name) {
    const struct idem_json *value = idem_json_get(object, name, strlen(name));

    return value != NULL && value->type == IDEM_JSON_STRING ? value : NULL;
}

/* An unknown mode is refused: the result of another mode would be wrong. */
static int json_line_mode(const struct idem_json *line, unsigned *flags, struct idem_error *err) {
    const struct idem_json *mode = idem_json_get(line, "mode", 4),
                           *text = json_text_member(line, "mode");

    if (mode == NULL)
        return 0;
    if (text != NULL && idem_is_word(text->at.text, text->n, "expr"))
        return 0;
    if (text != NULL && idem_is_word(text->at.text, text->n, "template")) {
        *flags |= IDEM_EXPR_TEMPLATE;
        return 0;
    }
    return idem_error_set(err, IDEM_E_INVALID,
                          "\"mode\" is \"expr\", which is the default, or \"template\"");
}

/* Evaluates a line {"id","mode","expr","vars"}. */
static int json_line_evaluate(const struct idem_json *line, unsigned flags, struct idem_expr **expr,
                              struct idem_arena *arena, struct result *ret,
                              struct idem_error *err) {
    static const struct idem_json none = {.type = IDEM_JSON_OBJECT};
    const struct idem_json *text = json_text_member(line, "expr"),
                           *vars = idem_json_get(line, "vars", 4);
    int rc;

    if (text == NULL || (vars != NULL && vars->type != IDEM_JSON_OBJECT)) {
        return idem_error_set(err, IDEM_E_INVALID,
                              "a line needs \"expr\", a string, and \"vars\", an object");
    }
    rc = json_line_mode(line, &flags, err);
    if (rc != 0)
        return rc;
    return expr_evaluate(expr, text->at.text, text->n, flags, vars == NULL ? &none : vars, arena,
                         ret, err);
}

static int command_eval_discard(void *out, const char *bytes, size_t len) {
    (void)out;
    (void)bytes;
    (void)len;
    return 0;
}

/* Prints an id. One without a canonical form, such as 1e400, becomes null; this is known before any
   of it is written. */
static void json_id_print(const struct idem_json *id) {
    if (id == NULL || idem_json_canon(id, command_eval_discard, NULL, NULL) != 0)
        fputs("null", stdout);
    else
        (void)idem_json_canon(id, command_eval_write, stdout, NULL);
}

static void json_line_print(const struct idem_json *id, int rc, const struct result *result,
                            const struct idem_error *err) {
    fputs("{\"id\":", stdout);
    json_id_print(id);
    if (rc == 0) {
        fputs(",\"ok\":true,\"value\":", stdout);
        json_out_string(stdout, result->text, result->len);
        printf(",\"type\":\"%s\"}\n", result->type);
    } else {
        fputs(",\"ok\":false,\"error\":", stdout);
        json_out_string(stdout, err->text, strlen(err->text));
        fputs("}\n", stdout);
    }
}

static void command_eval_line(const char *text, size_t len, unsigned flags) {
    const struct idem_json *id = NULL;
    struct idem_expr *expr = NULL;
    struct idem_json line, found;
    struct idem_arena arena;
    struct result result = {0};
    struct idem_error err;
    int rc;

    idem_arena_init(&arena, MEMORY_MAX);
    rc = idem_json_parse(text, len, &arena, &line, &err);
    if (rc != 0) {
        id = command_eval_id_find(text, len, &arena, &found) ? &found : NULL;
    } else {
        id = idem_json_get(&line, "id", 2);
        rc = json_line_evaluate(&line, flags, &expr, &arena, &result, &err);
    }
    json_line_print(id, rc, &result, &err);
    idem_expr_free(expr);
    idem_arena_free(&arena);
}

static int command_eval_lines(unsigned flags) {
    struct idem_buffer line = {0};
    ssize_t len;

    while ((len = cli_input_line(stdin, &line)) >= 0 && !ferror(stdout)) {
        if (len > 0)
            command_eval_line(line.at, line.len, flags);
    }
    idem_buffer_release(&line);
    if (len == -2)
        return cli_fail(
            CLI_IO,
            "eval: a line has more than %zu MiB, or there is no memory for it; nothing after it "
            "was read",
            CLI_INPUT_MAX >> 20);
    if (ferror(stdin))
        return cli_fail(CLI_IO, "cannot read standard input");
    return cli_flush();
}

/* Reports the first operand that is too many. A word that looks like a flag was written after
   `--`. */
static void values_operands_report(const struct cli_values *values) {
    char quoted[IDEM_QUOTE_TEXT];
    const char *word;

    for (int i = 1; i < values->operands_n; i++) {
        word = values->operands[i];
        if (word[0] != '-' || word[1] == '\0')
            continue;
        cli_message(
            "eval: %s stands behind --, where everything is an expression; flags go before it: "
            "idem eval --vars JSON -- EXPR (see: idem help eval)",
            idem_error_quote(word, strcspn(word, "="), quoted, sizeof(quoted)));
        return;
    }
    word = values->operands[1];
    cli_message(
        "eval: one expression, and %s is one more: an expression with spaces stands between "
        "quotes (see: idem help eval)",
        idem_error_quote(word, strlen(word), quoted, sizeof(quoted)));
}

static int command_eval_run(const struct cli_values *values) {
    if (values->operands_n > 1 && !values->jsonl) {
        values_operands_report(values);
        return CLI_USAGE;
    }
    if (values->operands_n != !values->jsonl ||
        (values->jsonl && (values->vars != NULL || values->vars_file != NULL)))
        return cli_usage(
            "eval",
            "one expression, with --vars JSON; or --jsonl, which reads both from standard input");
    return values->jsonl ? command_eval_lines(values_expression_flags(values))
                         : command_eval_one(values);
}

static const char *const eval_options[] = {"vars",  "vars-file", "key-rules", "template",
                                           "jsonl", "help",      NULL};

const struct cli_command cli_eval = {
    .name = "eval",
    .summary = "what an expression makes of variables",
    .synopsis = "[--vars JSON | --vars-file FILE] [--] EXPR | --jsonl",
    .text =
        "Evaluates a key expression (a safe part of the Spring Expression Language) and prints\n"
        "its value as Java would. --key applies the stricter rules of keys, and takes text with\n"
        "#{...} in it for a template, as key options do. An expression that is refused is exit\n"
        "status 65, with its column. Write -- before one that begins with a dash, and all\n"
        "options before that.\n",
    .after = "  idem eval \"'order:' + #order.id\" --vars '{\"order\":{\"id\":4711}}'\n"
             "  idem eval --template 'order:#{#id}' --vars '{\"id\":4711}'\n"
             "  idem eval --vars '{\"a\":1}' -- '-#a'\n",
    .operand = "an expression",
    .options = eval_options,
    .run = command_eval_run,
};
