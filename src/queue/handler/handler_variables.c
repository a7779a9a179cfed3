/*
 * Builds the environment: one block with the pointers and, behind them, the texts of our own
 * variables. Fails only without memory. If an outer idem has set such variables for its own
 * message, they are left out.
 */
#include "queue/handler/handler_variables.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "http/http_chars.h"
#include "queue/handler/handler_json.h"

#define OWN_MAX 16       /* variables beside the headers */
#define OMITTED_MAX 1024 /* bytes of their names */
#define NAME_MAX_LEN 128 /* for a header's variable */
#define SPARE 8192       /* bytes left to the system */
#define LEAST 8192

static const char prefix[] = "IDEM_HEADER_";

static const char *const names[] = {
    "IDEM_KEY",         "IDEM_KEY_HASH",   "IDEM_ATTEMPT",      "IDEM_QUEUE",
    "IDEM_TRACE",       "IDEM_MESSAGE_ID", "IDEM_CONTENT_TYPE", "IDEM_PROPERTIES",
    "IDEM_REDELIVERED", "IDEM_HEADERS",    "IDEM_OMITTED",      NULL,
};

struct variables {
    char **env;
    size_t n, first; /* number of pointers; index of the first header */
    char *text;
    size_t len, size;
    char omitted[OMITTED_MAX];
    size_t omitted_len;
};

static bool variables_is_own(const char *variable) {
    if (strncmp(variable, prefix, sizeof(prefix) - 1) == 0)
        return true;
    for (size_t i = 0; names[i] != NULL; i++) {
        size_t len = strlen(names[i]);

        if (strncmp(variable, names[i], len) == 0 && variable[len] == '=')
            return true;
    }
    return false;
}

/* A list of names, which ends in "..." if it would be too long. */
static void variables_omit(struct variables *variables, const char *name) {
    size_t len = strlen(name), at = variables->omitted_len;

    if (at + len + 1 + sizeof(",...") > OMITTED_MAX) {
        name = "...";
        len = 3;
        if (at >= len && strcmp(variables->omitted + at - len, name) == 0)
            return;
    }
    if (at > 0)
        variables->omitted[at++] = ',';
    memcpy(variables->omitted + at, name, len + 1);
    variables->omitted_len = at + len;
}

/* A variable takes its bytes and a pointer of the system's room. */
static bool variables_has_room(const struct variables *variables, size_t len) {
    return variables->len + len + sizeof(char *) <= variables->size;
}

static void variables_take(struct variables *variables, size_t len) {
    variables->env[variables->n++] = variables->text + variables->len;
    variables->len += len;
    /* The pointers are stored elsewhere, but count. */
    variables->size -= sizeof(char *);
}

static void variables_put(struct variables *variables, const char *name, struct idem_bytes value) {
    struct idem_out out = {.buf = variables->text + variables->len,
                           .size = variables->size - variables->len};

    if (value.len > 0 && memchr(value.at, '\0', value.len) != NULL) {
        variables_omit(variables, name);
        return;
    }
    idem_out_say(&out, name);
    idem_out_put(&out, "=", 1);
    idem_out_put(&out, value.at, value.len);
    idem_out_put(&out, "", 1);
    if (variables_has_room(variables, out.len))
        variables_take(variables, out.len);
    else
        variables_omit(variables, name);
}

static void variables_put_text(struct variables *variables, const char *name, const char *value) {
    variables_put(variables, name,
                  (struct idem_bytes){(const unsigned char *)value, strlen(value)});
}

static void variables_put_property(struct variables *variables, const char *name,
                                   const struct queue_message *message, const char *property) {
    const struct queue_field *field = queue_property(message, property);

    if (field != NULL && !field->json)
        variables_put(variables, name, field->value);
}

static void variables_put_fields(struct variables *variables, const char *name,
                                 const struct queue_field *list, size_t n) {
    struct idem_out out = {.buf = variables->text + variables->len,
                           .size = variables->size - variables->len};
    struct handler_fields fields;

    if (!handler_fields_init(&fields, list, n)) {
        variables_omit(variables, name);
        return;
    }
    idem_out_say(&out, name);
    idem_out_put(&out, "=", 1);
    handler_json_fields(&out, &fields);
    idem_out_put(&out, "", 1);
    handler_fields_release(&fields);
    if (variables_has_room(variables, out.len))
        variables_take(variables, out.len);
    else
        variables_omit(variables, name);
}

/* Makes the variable's name of a header; false if the header's name is empty or too long. */
static bool variables_spell(struct idem_bytes header, char out[NAME_MAX_LEN]) {
    size_t at = sizeof(prefix) - 1;

    if (header.len == 0 || header.len >= NAME_MAX_LEN - at)
        return false;
    memcpy(out, prefix, at);
    for (size_t i = 0; i < header.len; i++) {
        char c = (char)header.at[i];

        if (idem_is_lower(c))
            out[at++] = (char)(c & ~0x20);
        else
            out[at++] = idem_is_alpha(c) || idem_is_digit(c) ? c : '_';
    }
    out[at] = '\0';
    return true;
}

static bool variables_has_name(const struct variables *variables, const char *name) {
    size_t len = strlen(name);

    for (size_t i = variables->first; i < variables->n; i++)
        if (strncmp(variables->env[i], name, len) == 0 && variables->env[i][len] == '=')
            return true;
    return false;
}

static void variables_put_headers(struct variables *variables,
                                  const struct queue_message *message) {
    char name[NAME_MAX_LEN];
    size_t n = 0;

    variables->first = variables->n;
    for (size_t i = 0; i < message->headers_n; i++) {
        const struct queue_field *header = &message->headers[i];

        if (header->json || !variables_spell(header->name, name))
            continue;
        if (n++ >= HANDLER_HEADERS_MAX || variables_has_name(variables, name))
            variables_omit(variables, name);
        else
            variables_put(variables, name, header->value);
    }
}

static void variables_put_all(struct variables *variables, const struct queue_work *work) {
    const struct queue_message *message = work->message;
    char number[16];

    variables_put_text(variables, "IDEM_KEY_HASH", work->hash);
    snprintf(number, sizeof(number), "%" PRIu32, work->attempt);
    variables_put_text(variables, "IDEM_ATTEMPT", number);
    variables_put_text(variables, "IDEM_QUEUE", message->queue == NULL ? "" : message->queue);
    variables_put_text(variables, "IDEM_TRACE", work->trace);
    variables_put_text(variables, "IDEM_REDELIVERED", message->redelivered ? "1" : "0");
    variables_put(variables, "IDEM_KEY", (struct idem_bytes){work->key, work->key_len});
    variables_put_property(variables, "IDEM_MESSAGE_ID", message, "message_id");
    variables_put_property(variables, "IDEM_CONTENT_TYPE", message, "content_type");
    variables_put_fields(variables, "IDEM_PROPERTIES", message->properties, message->properties_n);
    variables_put_fields(variables, "IDEM_HEADERS", message->headers, message->headers_n);
    variables_put_headers(variables, message);
    if (variables->omitted_len > 0) {
        variables->size += OMITTED_MAX + 64; /* the reserve for this variable */
        variables_put_text(variables, "IDEM_OMITTED", variables->omitted);
    }
}

/* The room that the system has left beside the inherited variables; *ret_n is their number. */
static size_t variables_room(size_t args_len, size_t *ret_n) {
    long system = sysconf(_SC_ARG_MAX);
    size_t used = args_len + SPARE, n = 0, left;

    for (; environ != NULL && environ[n] != NULL; n++)
        used += strlen(environ[n]) + 1 + sizeof(char *);
    *ret_n = n;
    left = system > 0 && (size_t)system > used ? (size_t)system - used : 0;
    if (left > HANDLER_VARIABLES_MAX)
        return HANDLER_VARIABLES_MAX;
    /* With less room exec(3) fails anyway, with a clear error. */
    return left < LEAST ? LEAST : left;
}

char **handler_variables(const struct queue_work *work, size_t args_len) {
    struct variables variables = {0};
    size_t inherited, size = variables_room(args_len, &inherited), pointers;

    pointers = inherited + OWN_MAX + HANDLER_HEADERS_MAX + 1;
    variables.env = malloc(pointers * sizeof(*variables.env) + size);
    if (variables.env == NULL)
        return NULL;
    variables.text = (char *)(variables.env + pointers);
    variables.size = size - (OMITTED_MAX + 64);
    for (size_t i = 0; i < inherited; i++)
        if (!variables_is_own(environ[i]))
            variables.env[variables.n++] = environ[i];
    variables_put_all(&variables, work);
    variables.env[variables.n] = NULL;
    return variables.env;
}

void handler_variables_free(char **env) {
    free(env);
}
