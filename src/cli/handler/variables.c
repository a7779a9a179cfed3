/*
 * Builds the environment: one block with pointers and, behind them, the texts of
 * our own variables. Fails only without memory. What an idem around this one has
 * said of its own message is left out.
 */
#include "cli/handler/variables.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/handler/json.h"
#include "http/chars.h"

#define OWN_MAX 16       /* variables beside the headers */
#define OMITTED_MAX 1024 /* bytes of names */
#define NAME_MAX_LEN 128 /* of a header's variable */
#define SPARE 8192       /* that the system may want besides */
#define LEAST 8192

static const char prefix[] = "IDEM_HEADER_";

static const char *const names[] = {
    "IDEM_KEY",         "IDEM_KEY_HASH",   "IDEM_ATTEMPT",      "IDEM_QUEUE",
    "IDEM_TRACE",       "IDEM_MESSAGE_ID", "IDEM_CONTENT_TYPE", "IDEM_PROPERTIES",
    "IDEM_REDELIVERED", "IDEM_HEADERS",    "IDEM_OMITTED",      NULL,
};

struct building {
    char **env;
    size_t n, first; /* of the pointers; where ours begin */
    char *text;
    size_t len, size;
    char omitted[OMITTED_MAX];
    size_t omitted_len;
};

static bool is_ours(const char *variable) {
    if (strncmp(variable, prefix, sizeof(prefix) - 1) == 0)
        return true;
    for (size_t i = 0; names[i] != NULL; i++) {
        size_t len = strlen(names[i]);

        if (strncmp(variable, names[i], len) == 0 && variable[len] == '=')
            return true;
    }
    return false;
}

/* A list of names, which ends in "..." where it would be too long. */
static void omit(struct building *b, const char *name) {
    size_t len = strlen(name), at = b->omitted_len;

    if (at + len + 1 + sizeof(",...") > OMITTED_MAX) {
        name = "...";
        len = 3;
        if (at >= len && strcmp(b->omitted + at - len, name) == 0)
            return;
    }
    if (at > 0)
        b->omitted[at++] = ',';
    memcpy(b->omitted + at, name, len + 1);
    b->omitted_len = at + len;
}

/* What it takes of the system's room: its bytes, and a pointer. */
static bool is_room(const struct building *b, size_t len) {
    return b->len + len + sizeof(char *) <= b->size;
}

static void take(struct building *b, size_t len) {
    b->env[b->n++] = b->text + b->len;
    b->len += len;
    /* Pointers lie elsewhere, but count. */
    b->size -= sizeof(char *);
}

static void put(struct building *b, const char *name, struct idem_bytes value) {
    struct idem_out out = {.buf = b->text + b->len, .size = b->size - b->len};

    if (value.len > 0 && memchr(value.at, '\0', value.len) != NULL) {
        omit(b, name);
        return;
    }
    idem_out_say(&out, name);
    idem_out_put(&out, "=", 1);
    idem_out_put(&out, value.at, value.len);
    idem_out_put(&out, "", 1);
    if (is_room(b, out.len))
        take(b, out.len);
    else
        omit(b, name);
}

static void put_text(struct building *b, const char *name, const char *value) {
    put(b, name, (struct idem_bytes){(const unsigned char *)value, strlen(value)});
}

static void put_property(struct building *b, const char *name, const struct queue_message *message,
                         const char *property) {
    const struct queue_field *field = queue_property(message, property);

    if (field != NULL && !field->json)
        put(b, name, field->value);
}

static void put_fields(struct building *b, const char *name, const struct queue_field *list,
                       size_t n) {
    struct idem_out out = {.buf = b->text + b->len, .size = b->size - b->len};
    struct handler_fields fields;

    if (!handler_fields_init(&fields, list, n)) {
        omit(b, name);
        return;
    }
    idem_out_say(&out, name);
    idem_out_put(&out, "=", 1);
    handler_json_fields(&out, &fields);
    idem_out_put(&out, "", 1);
    handler_fields_release(&fields);
    if (is_room(b, out.len))
        take(b, out.len);
    else
        omit(b, name);
}

/* The variable of a header; false if it is too long, or empty, to have one. */
static bool spell(struct idem_bytes header, char out[NAME_MAX_LEN]) {
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

static bool is_taken(const struct building *b, const char *name) {
    size_t len = strlen(name);

    for (size_t i = b->first; i < b->n; i++)
        if (strncmp(b->env[i], name, len) == 0 && b->env[i][len] == '=')
            return true;
    return false;
}

static void put_headers(struct building *b, const struct queue_message *message) {
    char name[NAME_MAX_LEN];
    size_t n = 0;

    b->first = b->n;
    for (size_t i = 0; i < message->headers_n; i++) {
        const struct queue_field *header = &message->headers[i];

        if (header->json || !spell(header->name, name))
            continue;
        if (n++ >= HANDLER_HEADERS_MAX || is_taken(b, name))
            omit(b, name);
        else
            put(b, name, header->value);
    }
}

static void put_all(struct building *b, const struct queue_work *work) {
    const struct queue_message *message = work->message;
    char number[16];

    put_text(b, "IDEM_KEY_HASH", work->hash);
    snprintf(number, sizeof(number), "%" PRIu32, work->attempt);
    put_text(b, "IDEM_ATTEMPT", number);
    put_text(b, "IDEM_QUEUE", message->queue == NULL ? "" : message->queue);
    put_text(b, "IDEM_TRACE", work->trace);
    put_text(b, "IDEM_REDELIVERED", message->redelivered ? "1" : "0");
    put(b, "IDEM_KEY", (struct idem_bytes){work->key, work->key_len});
    put_property(b, "IDEM_MESSAGE_ID", message, "message_id");
    put_property(b, "IDEM_CONTENT_TYPE", message, "content_type");
    put_fields(b, "IDEM_PROPERTIES", message->properties, message->properties_n);
    put_fields(b, "IDEM_HEADERS", message->headers, message->headers_n);
    put_headers(b, message);
    if (b->omitted_len > 0) {
        b->size += OMITTED_MAX + 64; /* which was kept back for it */
        put_text(b, "IDEM_OMITTED", b->omitted);
    }
}

/* How much of the system's room is left beside what is inherited; *ret_n: how many that are. */
static size_t room(size_t args_len, size_t *ret_n) {
    long system = sysconf(_SC_ARG_MAX);
    size_t used = args_len + SPARE, n = 0, left;

    for (; environ != NULL && environ[n] != NULL; n++)
        used += strlen(environ[n]) + 1 + sizeof(char *);
    *ret_n = n;
    left = system > 0 && (size_t)system > used ? (size_t)system - used : 0;
    if (left > HANDLER_VARIABLES_MAX)
        return HANDLER_VARIABLES_MAX;
    /* With less it cannot be started anyway, and exec(3) says so. */
    return left < LEAST ? LEAST : left;
}

char **handler_variables(const struct queue_work *work, size_t args_len) {
    struct building b = {0};
    size_t inherited, size = room(args_len, &inherited), pointers;

    pointers = inherited + OWN_MAX + HANDLER_HEADERS_MAX + 1;
    b.env = malloc(pointers * sizeof(*b.env) + size);
    if (b.env == NULL)
        return NULL;
    b.text = (char *)(b.env + pointers);
    b.size = size - (OMITTED_MAX + 64);
    for (size_t i = 0; i < inherited; i++)
        if (!is_ours(environ[i]))
            b.env[b.n++] = environ[i];
    put_all(&b, work);
    b.env[b.n] = NULL;
    return b.env;
}

void handler_variables_free(char **env) {
    free(env);
}
