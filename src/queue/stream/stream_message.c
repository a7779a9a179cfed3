/*
 * An entry as a message: one allocation, with copies of all names and values. Fails only
 * without memory; stream_fields_measure() finds entries that do not fit.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "queue/stream/stream.h"

/*
 * Parsers for the server's replies. Pure. The only failure is a reply that is malformed, which
 * they report whatever its content.
 */

static bool reply_is_array(const struct redis_reply *reply, size_t least) {
    return reply->type == REDIS_REPLY_ARRAY && reply->items_n >= least;
}

static bool reply_is_text(const struct redis_reply *reply) {
    return reply->type == REDIS_REPLY_STRING || reply->type == REDIS_REPLY_STATUS;
}

static bool reply_id(const struct redis_reply *reply, struct stream_id *ret) {
    return reply_is_text(reply) && stream_id_parse(reply->text, reply->len, ret);
}

/* Parses [[stream, [entry, ...]]], or nil. */
bool stream_parse_entries(const struct redis_reply *reply, const struct redis_reply **ret) {
    const struct redis_reply *stream;

    *ret = NULL;
    if (reply->type == REDIS_REPLY_NIL)
        return true;
    if (!reply_is_array(reply, 1) || reply->items_n != 1)
        return false;
    stream = reply->items[0];
    if (!reply_is_array(stream, 2) || !reply_is_array(stream->items[1], 0))
        return false;
    *ret = stream->items[1];
    return true;
}

bool stream_parse_entry(const struct redis_reply *item, struct stream_id *ret_id,
                        const struct redis_reply **ret_fields) {
    if (!reply_is_array(item, 2) || !reply_id(item->items[0], ret_id))
        return false;
    *ret_fields = item->items[1];
    return true;
}

bool stream_parse_pending(const struct redis_reply *item, struct stream_id *ret) {
    return reply_is_array(item, 4) && reply_id(item->items[0], ret);
}

static bool reply_word(const struct redis_reply *reply, enum stream_word *ret) {
    static const char *const words[STREAM_WORD__COUNT] = {
        [STREAM_WORD_ENTRY] = "entry", [STREAM_WORD_LARGE] = "large",
        [STREAM_WORD_LATER] = "later", [STREAM_WORD_OTHER] = "other",
        [STREAM_WORD_NONE] = "none",   [STREAM_WORD_DELETED] = "deleted",
    };

    for (size_t i = 0; reply_is_text(reply) && i < STREAM_WORD__COUNT; i++)
        if (strcmp(reply->text, words[i]) == 0) {
            *ret = (enum stream_word)i;
            return true;
        }
    return false;
}

bool stream_parse_outcome(const struct redis_reply *item, struct stream_outcome *ret) {
    struct stream_outcome outcome = {.fields = NULL};
    struct redis_reply **parts = item->items;

    if (!reply_is_array(item, 2) || !reply_id(parts[0], &outcome.id) ||
        !reply_word(parts[1], &outcome.word))
        return false;
    if (outcome.word == STREAM_WORD_ENTRY) {
        if (item->items_n < 4 || parts[2]->type != REDIS_REPLY_INTEGER)
            return false;
        outcome.deliveries = parts[2]->integer;
        outcome.fields = parts[3];
    } else if (outcome.word == STREAM_WORD_LARGE) {
        if (item->items_n < 4 || parts[2]->type != REDIS_REPLY_INTEGER ||
            parts[3]->type != REDIS_REPLY_INTEGER)
            return false;
        outcome.bytes = parts[2]->integer;
        outcome.fields_n = parts[3]->integer;
    }
    *ret = outcome;
    return true;
}

bool stream_parse_claimed(const struct redis_reply *reply, struct stream_claimed *ret) {
    struct stream_claimed claimed = {.deleted = 0};

    if (!reply_is_array(reply, 2) || !reply_id(reply->items[0], &claimed.next) ||
        !reply_is_array(reply->items[1], 0))
        return false;
    claimed.items = reply->items[1];
    for (size_t i = 0; i < claimed.items->items_n; i++)
        claimed.deleted += claimed.items->items[i]->type == REDIS_REPLY_NIL;
    if (reply->items_n > 2 && reply->items[2]->type == REDIS_REPLY_ARRAY) {
        claimed.deleted_items = reply->items[2];
        claimed.deleted += reply->items[2]->items_n;
    }
    *ret = claimed;
    return true;
}

bool stream_parse_claimed_id(const struct redis_reply *item, struct stream_id *ret) {
    if (reply_is_array(item, 1))
        item = item->items[0];
    return reply_id(item, ret);
}

/* Errors. */

bool stream_is_gone(const struct redis_reply *reply) {
    /* Redis 6.2 puts its own words before the error of a command in a script. */
    return reply->type == REDIS_REPLY_ERROR &&
           (strstr(reply->text, "NOGROUP") != NULL || redis_reply_is(reply, "UNBLOCKED") ||
            strstr(reply->text, "WRONGTYPE") != NULL);
}

const char *stream_error_text(const struct redis_reply *reply, char buf[STREAM_ERROR_TEXT]) {
    static const struct {
        const char *word, *text;
    } texts[] = {
        {"NOAUTH", "the server wants a password (password_file=, or USER:PASSWORD@)"},
        {"NOPERM", "the user may not do that, or not with this key (ACL)"},
        {"WRONGTYPE", "what has that name is no stream"},
        {"OOM", "the server is at its maxmemory, and takes nothing more"},
        {"READONLY", "the server is a replica, which takes no writes; name its master"},
        {"LOADING", "the server is loading its data"},
        {"MASTERDOWN", "the server is a replica, and has lost its master"},
        {"MISCONF", "the server cannot write its data to disk, and takes nothing more"},
        {"MOVED", "the server is one of a cluster, and the stream is on another"},
        {"BUSY", "the server is busy with a script"},
    };
    size_t len;

    if (reply->type != REDIS_REPLY_ERROR)
        return "the server's reply is not understood";
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
        if (redis_reply_is(reply, texts[i].word))
            return texts[i].text;
    if (strstr(reply->text, "nknown command") != NULL)
        return "the server does not know the command: is it older than Redis 6.2?";
    len = strspn(reply->text, "ABCDEFGHIJKLMNOPQRSTUVWXYZ");
    snprintf(buf, STREAM_ERROR_TEXT, "the server answers with an error (%.*s)",
             (int)(len < 20 ? len : 20), reply->text);
    return buf;
}

#define PROPERTIES 2

enum stream_fit stream_fields_measure(const struct redis_reply *fields, size_t *ret_bytes) {
    size_t bytes = 0;

    if (fields->type != REDIS_REPLY_ARRAY || fields->items_n % 2 != 0)
        return STREAM_ODD;
    for (size_t i = 0; i < fields->items_n; i++) {
        if (fields->items[i]->type != REDIS_REPLY_STRING)
            return STREAM_ODD;
        bytes += fields->items[i]->len;
    }
    *ret_bytes = bytes;
    return bytes > STREAM_ENTRY_MAX || fields->items_n / 2 > STREAM_FIELDS_MAX ? STREAM_TOO_LARGE
                                                                               : STREAM_FITS;
}

bool stream_message_is_dead_field(struct idem_bytes name) {
    size_t len = strlen(QUEUE_DEAD_PREFIX);

    return name.len >= len && memcmp(name.at, QUEUE_DEAD_PREFIX, len) == 0;
}

/* The index of the body's field; fields_n: there is none. Fields that only dead letters have do
   not count. */
static size_t message_find_body(const struct stream_message *message, const char *name) {
    size_t n = message->fields_n, own = 0, last = n;

    for (size_t i = 0; i < n; i++) {
        const struct idem_bytes *at = &message->fields[2 * i];

        if (idem_is_word(at->at, at->len, name))
            return i;
        if (!stream_message_is_dead_field(*at)) {
            own++;
            last = i;
        }
    }
    return own == 1 ? last : n;
}

struct queue_field stream_message_property(const char *name, const char *value, bool json) {
    return (struct queue_field){
        .name = idem_bytes_of(name), .value = idem_bytes_of(value), .json = json};
}

/* Copies the fields to `at`, which has room for them. */
static void message_copy_fields(struct stream_message *message, const struct redis_reply *fields,
                                unsigned char *at) {
    for (size_t i = 0; i < fields->items_n; i++) {
        const struct redis_reply *part = fields->items[i];

        if (part->len > 0)
            memcpy(at, part->text, part->len);
        message->fields[i] = (struct idem_bytes){at, part->len};
        at += part->len;
    }
}

static size_t message_fill_headers(const struct stream_message *message, size_t body,
                                   struct queue_field *headers) {
    size_t n = 0;

    for (size_t i = 0; i < message->fields_n; i++)
        if (i != body)
            headers[n++] = (struct queue_field){.name = message->fields[2 * i],
                                                .value = message->fields[2 * i + 1]};
    return n;
}

struct stream_message *stream_message_new(const struct stream_shape *shape, struct stream_id id,
                                          int64_t deliveries, const struct redis_reply *fields) {
    size_t n = fields->items_n / 2, bytes = 0, body;
    struct stream_message *message;
    struct queue_field *headers, *properties;

    if (stream_fields_measure(fields, &bytes) != STREAM_FITS)
        return NULL;
    message = malloc(sizeof(*message) + (PROPERTIES + n) * sizeof(*headers) +
                     2 * n * sizeof(struct idem_bytes) + bytes);
    if (message == NULL)
        return NULL;
    memset(message, 0, sizeof(*message));
    properties = (struct queue_field *)(message + 1);
    headers = properties + PROPERTIES;
    message->fields = (struct idem_bytes *)(headers + n);
    message->fields_n = n;
    message->bytes = sizeof(*message) + bytes;
    message_copy_fields(message, fields, (unsigned char *)(message->fields + 2 * n));

    stream_id_print(id, message->id);
    snprintf(message->deliveries, sizeof(message->deliveries), "%lld", (long long)deliveries);
    properties[0] = stream_message_property("message_id", message->id, false);
    properties[1] = stream_message_property("deliveries", message->deliveries, true);
    body = message_find_body(message, shape->body_field);
    message->base = (struct queue_message){
        .body = body < n ? message->fields[2 * body + 1]
                         : (struct idem_bytes){(const unsigned char *)"", 0},
        .headers = headers,
        .headers_n = message_fill_headers(message, body, headers),
        .properties = properties,
        .properties_n = deliveries > 0 ? 2 : 1,
        .queue = shape->queue,
        .redelivered = deliveries > 1,
    };
    return message;
}

void stream_message_free(struct stream_message *message) {
    free(message);
}
