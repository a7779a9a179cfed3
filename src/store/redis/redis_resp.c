/*
 * The server's protocol (RESP 2): commands as bytes, and replies as the trees that hiredis's reader
 * builds through the functions below. Bytes that are not a reply, are nested deeper than hiredis
 * allows (7), or exceed the limits of redis_connection.h break the connection. Until then the
 * memory grows with the bytes received (about thirty times as much at most), never with an
 * announced length.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/units.h"
#include "store/redis/redis_connection.h"

#define DIGITS_MAX 20
#define SHARED_LEAST 256 /* bytes of a text that may be a result worth a reference */

/* Commands. */

/* Writes a mark, a number and the end of a line, backwards from `end`. */
static char *resp_put_count(char *end, char mark, size_t n) {
    *--end = '\n';
    *--end = '\r';
    end = idem_digits_put(n, end);
    *--end = mark;
    return end;
}

void redis_put_head(struct idem_buffer *buffer, size_t parts) {
    char text[DIGITS_MAX + 3], *end = text + sizeof(text), *at = resp_put_count(end, '*', parts);

    idem_buffer_put(buffer, at, (size_t)(end - at));
}

void redis_put_part(struct idem_buffer *buffer, const void *bytes, size_t len) {
    char text[DIGITS_MAX + 3], *end = text + sizeof(text), *count = resp_put_count(end, '$', len);
    size_t count_len = (size_t)(end - count);
    char *at = idem_buffer_reserve(buffer, count_len + len + 2);

    if (at == NULL)
        return;
    memcpy(at, count, count_len);
    if (len > 0)
        memcpy(at + count_len, bytes, len);
    at[count_len + len] = '\r';
    at[count_len + len + 1] = '\n';
    buffer->len += count_len + len + 2;
}

void redis_put_text(struct idem_buffer *buffer, const char *text) {
    redis_put_part(buffer, text, strlen(text));
}

void redis_put_number(struct idem_buffer *buffer, int64_t number) {
    char text[DIGITS_MAX + 1], *end = text + sizeof(text);
    char *at = idem_digits_put(number < 0 ? -(uint64_t)number : (uint64_t)number, end);

    if (number < 0)
        *--at = '-';
    redis_put_part(buffer, at, (size_t)(end - at));
}

void redis_put_command_of(struct idem_buffer *buffer, va_list texts) {
    va_list counted;
    const char *text;
    size_t n = 0;

    va_copy(counted, texts);
    while (va_arg(counted, const char *) != NULL)
        n++;
    va_end(counted);
    redis_put_head(buffer, n);
    while ((text = va_arg(texts, const char *)) != NULL)
        redis_put_text(buffer, text);
}

void redis_put_command(struct idem_buffer *buffer, ...) {
    va_list texts;

    va_start(texts, buffer);
    redis_put_command_of(buffer, texts);
    va_end(texts);
}

/* Replies. */

void redis_reply_free(struct redis_reply *reply) {
    if (reply == NULL)
        return;
    for (size_t i = 0; i < reply->items_n; i++)
        redis_reply_free(reply->items[i]);
    free(reply->items);
    if (reply->shared)
        idem_shared_bytes_release(redis_reply_shared(reply));
    else
        free(reply);
}

struct idem_shared_bytes *redis_reply_shared(const struct redis_reply *reply) {
    char *at = (char *)reply;

    return reply->shared ? (struct idem_shared_bytes *)(at - offsetof(struct idem_shared_bytes, at))
                         : NULL;
}

static void resp_reply_free(void *reply) {
    redis_reply_free(reply);
}

/* The array of items grows as items arrive: first four, then powers of two. */
static bool reply_add_item(struct redis_reply *parent, struct redis_reply *item) {
    size_t n = parent->items_n;
    struct redis_reply **items;

    if (n == 0 || (n >= 4 && (n & (n - 1)) == 0)) {
        items = realloc(parent->items, (n == 0 ? 4 : 2 * n) * sizeof(struct redis_reply *));
        if (items == NULL)
            return false;
        parent->items = items;
    }
    parent->items[parent->items_n++] = item;
    return true;
}

static bool resp_parts_fit(struct redis_reader *reader, size_t more) {
    if (more <= REDIS_REPLY_PARTS_MAX - reader->parts)
        return true;
    reader->why = "it has too many parts";
    return false;
}

/* Memory for a reply and its text. Short ones, which may be many, go without a count. */
static struct redis_reply *resp_reply_alloc(size_t len) {
    size_t size = sizeof(struct redis_reply) + len + 1;
    struct idem_shared_bytes *shared;

    if (len < SHARED_LEAST)
        return calloc(1, size);
    shared = idem_shared_bytes_new(size);
    if (shared == NULL)
        return NULL;
    return memcpy(shared->at, &(struct redis_reply){.shared = true}, sizeof(struct redis_reply));
}

/* The text is stored behind the reply, with a terminating NUL. */
static struct redis_reply *resp_reply_new(const redisReadTask *task, const char *text, size_t len) {
    struct redis_reader *reader = task->privdata;
    struct redis_reply *reply;

    if (!resp_parts_fit(reader, 1))
        return NULL;
    reader->parts++;
    reader->bytes += len;
    reply = resp_reply_alloc(len);
    if (reply == NULL)
        return NULL;
    reply->type = task->type;
    reply->text = (char *)(reply + 1);
    reply->len = len;
    if (len != 0)
        memcpy(reply->text, text, len);
    reply->text[len] = '\0';
    if (task->parent == NULL || reply_add_item(task->parent->obj, reply))
        return reply;
    redis_reply_free(reply);
    return NULL;
}

static void *resp_string_new(const redisReadTask *task, char *text, size_t len) {
    return resp_reply_new(task, text, len);
}

static void *resp_array_new(const redisReadTask *task, int n) {
    /* Refuse at the announcement, instead of waiting for items that would be refused. */
    return resp_parts_fit(task->privdata, (size_t)n) ? resp_reply_new(task, NULL, 0) : NULL;
}

static void *resp_integer_new(const redisReadTask *task, long long value) {
    struct redis_reply *reply = resp_reply_new(task, NULL, 0);

    if (reply != NULL)
        reply->integer = value;
    return reply;
}

/* The task has the type of a string or an array; only now it is known to be nil. */
static void *resp_nil_new(const redisReadTask *task) {
    struct redis_reply *reply = resp_reply_new(task, NULL, 0);

    if (reply != NULL)
        reply->type = REDIS_REPLY_NIL;
    return reply;
}

struct redis_reader *redis_reader_new(void) {
    static redisReplyObjectFunctions functions = {
        .createString = resp_string_new,
        .createArray = resp_array_new,
        .createInteger = resp_integer_new,
        .createNil = resp_nil_new,
        .freeObject = resp_reply_free,
    };
    struct redis_reader *reader = calloc(1, sizeof(*reader));

    if (reader == NULL)
        return NULL;
    reader->hiredis = redisReaderCreateWithFunctions(&functions);
    if (reader->hiredis == NULL) {
        free(reader);
        return NULL;
    }
    reader->hiredis->privdata = reader;
    return reader;
}

void redis_reader_free(struct redis_reader *reader) {
    if (reader == NULL)
        return;
    redisReaderFree(reader->hiredis);
    free(reader);
}

bool redis_reader_feed(struct redis_reader *reader, const char *bytes, size_t len) {
    return redisReaderFeed(reader->hiredis, bytes, len) == REDIS_OK;
}

/* Checks an incomplete reply. The line that heads a text is complete early, even if the text is
   long. */
static bool resp_is_too_much(struct redis_reader *reader) {
    const redisReader *hiredis = reader->hiredis;
    const char *at = hiredis->buf + hiredis->pos;
    size_t waits = hiredis->len - hiredis->pos;

    if (reader->bytes + waits > REDIS_REPLY_BYTES_MAX)
        reader->why = "it is too long";
    else if (waits > REDIS_REPLY_LINE_MAX && memmem(at, REDIS_REPLY_LINE_MAX, "\r\n", 2) == NULL)
        reader->why = "it has too long a line";
    return reader->why != NULL;
}

bool redis_reader_next(struct redis_reader *reader, struct redis_reply **ret) {
    void *reply = NULL;

    if (redisReaderGetReply(reader->hiredis, &reply) != REDIS_OK) {
        if (reader->why == NULL)
            reader->why = reader->hiredis->errstr;
        return false;
    }
    if (reply == NULL && resp_is_too_much(reader))
        return false;
    if (reply != NULL)
        reader->bytes = reader->parts = 0;
    *ret = reply;
    return true;
}

bool redis_reply_is(const struct redis_reply *reply, const char *error_word) {
    size_t len = strlen(error_word);

    return reply->type == REDIS_REPLY_ERROR && strncmp(reply->text, error_word, len) == 0 &&
           (reply->text[len] == ' ' || reply->text[len] == '\0');
}
