/*
 * Parsers for the server's replies. Pure. The only failure is a reply that is malformed, which
 * they report whatever its content.
 */
#include <stdio.h>
#include <string.h>

#include "queue/stream/stream.h"

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
bool stream_read_entries(const struct redis_reply *reply, const struct redis_reply **ret) {
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

bool stream_read_entry(const struct redis_reply *item, struct stream_id *ret_id,
                       const struct redis_reply **ret_fields) {
    if (!reply_is_array(item, 2) || !reply_id(item->items[0], ret_id))
        return false;
    *ret_fields = item->items[1];
    return true;
}

bool stream_read_pending(const struct redis_reply *item, struct stream_id *ret) {
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

bool stream_read_said(const struct redis_reply *item, struct stream_said *ret) {
    struct stream_said outcome = {.fields = NULL};
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

bool stream_read_claimed(const struct redis_reply *reply, struct stream_claimed *ret) {
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

bool stream_read_claimed_id(const struct redis_reply *item, struct stream_id *ret) {
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

    if (reply->type != REDIS_REPLY_ERROR) {
        snprintf(buf, STREAM_ERROR_TEXT, "the server's answer is not understood");
        return buf;
    }
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
        if (redis_reply_is(reply, texts[i].word)) {
            snprintf(buf, STREAM_ERROR_TEXT, "%s", texts[i].text);
            return buf;
        }
    if (strstr(reply->text, "nknown command") != NULL) {
        snprintf(buf, STREAM_ERROR_TEXT,
                 "the server does not know the command: is it older than "
                 "Redis 6.2?");
        return buf;
    }
    len = strspn(reply->text, "ABCDEFGHIJKLMNOPQRSTUVWXYZ");
    snprintf(buf, STREAM_ERROR_TEXT, "the server answers with an error (%.*s)",
             (int)(len < 20 ? len : 20), reply->text);
    return buf;
}
