/*
 * The server's protocol (RESP 2): commands as bytes, and replies as the trees
 * that hiredis's reader makes through the functions below. A reply of more than
 * hiredis allows, or one that is no reply, breaks its connection.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store/redis/redis.h"

#define ITEMS_MAX (1 << 20) /* many times the longest page of a list, or map of slots */

/* Buffers. */

void redis_buffer_put(struct redis_buffer *buffer, const void *bytes, size_t len) {
    size_t size = buffer->size == 0 ? 256 : buffer->size;
    char *at;

    if (buffer->failed || len == 0)
        return;
    while (size - buffer->len < len)
        size *= 2;
    if (size != buffer->size) {
        at = realloc(buffer->at, size);
        if (at == NULL) {
            buffer->failed = true;
            return;
        }
        buffer->at = at;
        buffer->size = size;
    }
    memcpy(buffer->at + buffer->len, bytes, len);
    buffer->len += len;
}

void redis_buffer_release(struct redis_buffer *buffer) {
    free(buffer->at);
    *buffer = (struct redis_buffer){0};
}

/* Commands. */

static void put_count(struct redis_buffer *buffer, char mark, size_t n) {
    char text[24], *end = text + sizeof(text), *at = end;

    *--at = '\n';
    *--at = '\r';
    do {
        *--at = (char)('0' + n % 10);
        n /= 10;
    } while (n > 0);
    *--at = mark;
    redis_buffer_put(buffer, at, (size_t)(end - at));
}

void redis_put_head(struct redis_buffer *buffer, size_t parts) {
    put_count(buffer, '*', parts);
}

void redis_put_part(struct redis_buffer *buffer, const void *bytes, size_t len) {
    put_count(buffer, '$', len);
    redis_buffer_put(buffer, bytes, len);
    redis_buffer_put(buffer, "\r\n", 2);
}

void redis_put_text(struct redis_buffer *buffer, const char *text) {
    redis_put_part(buffer, text, strlen(text));
}

void redis_put_number(struct redis_buffer *buffer, int64_t number) {
    char text[24];

    redis_put_part(buffer, text, (size_t)snprintf(text, sizeof(text), "%lld", (long long)number));
}

void redis_put_command(struct redis_buffer *buffer, ...) {
    va_list args;
    const char *text;
    size_t n = 0;

    va_start(args, buffer);
    while (va_arg(args, const char *) != NULL)
        n++;
    va_end(args);
    redis_put_head(buffer, n);
    va_start(args, buffer);
    while ((text = va_arg(args, const char *)) != NULL)
        redis_put_text(buffer, text);
    va_end(args);
}

/* Replies. */

void redis_reply_free(struct redis_reply *reply) {
    if (reply == NULL)
        return;
    for (size_t i = 0; i < reply->items_n; i++)
        redis_reply_free(reply->items[i]);
    free(reply->items);
    free(reply);
}

static void reply_free(void *reply) {
    redis_reply_free(reply);
}

/* The text lies behind the reply itself, and has a NUL besides. */
static struct redis_reply *reply_new(const redisReadTask *task, const char *text, size_t len) {
    struct redis_reply *reply = calloc(1, sizeof(*reply) + len + 1);

    if (reply == NULL)
        return NULL;
    reply->type = task->type;
    reply->text = (char *)(reply + 1);
    reply->len = len;
    if (len != 0)
        memcpy(reply->text, text, len);
    if (task->parent != NULL)
        ((struct redis_reply *)task->parent->obj)->items[task->idx] = reply;
    return reply;
}

static void *string_new(const redisReadTask *task, char *text, size_t len) {
    return reply_new(task, text, len);
}

static void *array_new(const redisReadTask *task, int n) {
    struct redis_reply *reply = n > ITEMS_MAX ? NULL : reply_new(task, NULL, 0);

    if (reply == NULL || n <= 0)
        return reply;
    reply->items = calloc((size_t)n, sizeof(struct redis_reply *));
    if (reply->items != NULL) {
        reply->items_n = (size_t)n;
        return reply;
    }
    /* The reader frees the root; what is in it must not be freed twice. */
    if (task->parent != NULL)
        ((struct redis_reply *)task->parent->obj)->items[task->idx] = NULL;
    free(reply);
    return NULL;
}

static void *integer_new(const redisReadTask *task, long long value) {
    struct redis_reply *reply = reply_new(task, NULL, 0);

    if (reply != NULL)
        reply->integer = value;
    return reply;
}

/* The task is of a string or an array: that there is none is known only now. */
static void *nil_new(const redisReadTask *task) {
    struct redis_reply *reply = reply_new(task, NULL, 0);

    if (reply != NULL)
        reply->type = REDIS_REPLY_NIL;
    return reply;
}

redisReader *redis_reader_new(void) {
    static redisReplyObjectFunctions functions = {
        .createString = string_new,
        .createArray = array_new,
        .createInteger = integer_new,
        .createNil = nil_new,
        .freeObject = reply_free,
    };

    return redisReaderCreateWithFunctions(&functions);
}

bool redis_reply_is(const struct redis_reply *reply, const char *error_word) {
    size_t len = strlen(error_word);

    return reply->type == REDIS_REPLY_ERROR && strncmp(reply->text, error_word, len) == 0 &&
           (reply->text[len] == ' ' || reply->text[len] == '\0');
}
