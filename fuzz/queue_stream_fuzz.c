/*
 * Any bytes as the replies of a server of Redis Streams, through the reader and
 * into messages. The first byte chooses the request, and whether the rest is
 * the bytes of the reply, or a recipe for a well-formed one.
 */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "queue/stream/stream.h"

#define TEXT_MAX 65536

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Recipes: each byte is a part, or the beginning of several. */

struct recipe {
    const uint8_t *at, *end;
    struct idem_buffer out;
};

static unsigned next(struct recipe *r) {
    return r->at < r->end ? *r->at++ : 0;
}

static void put_line(struct recipe *r, char mark, long long n) {
    char text[40];

    idem_buffer_put(&r->out, text, (size_t)snprintf(text, sizeof(text), "%c%lld\r\n", mark, n));
}

static void put_string(struct recipe *r, const void *bytes, size_t len) {
    put_line(r, '$', (long long)len);
    idem_buffer_put(&r->out, bytes, len);
    idem_buffer_put(&r->out, "\r\n", 2);
}

static void put_text(struct recipe *r, unsigned which) {
    static const char *const texts[] = {"1-1", "1-2",   "0-0",     "18446744073709551615-7",
                                        "q",   "entry", "large",   "later",
                                        "me",  "other", "deleted", "none",
                                        "",    "body",  "idem-id", "1-18446744073709551616"};
    size_t len = next(r);

    if (which < 16) {
        put_string(r, texts[which], strlen(texts[which]));
        return;
    }
    if (len > (size_t)(r->end - r->at))
        len = (size_t)(r->end - r->at);
    put_string(r, r->at, len);
    r->at += len;
}

static void put_reply(struct recipe *r, int depth) {
    unsigned what = next(r), n = what >> 3;

    if (r->out.len > TEXT_MAX)
        return;
    switch (what % 8) {
    case 0:
        put_line(r, '*', -1);
        return;
    case 1:
        put_line(r, ':', (int8_t)next(r) * (n == 31 ? INT64_C(72057594037927935) : 1));
        return;
    case 2:
        idem_buffer_put(&r->out, "+OK\r\n", 5);
        return;
    case 3:
        idem_buffer_put(&r->out, "-NOGROUP x\r\n", 12);
        return;
    case 4:
    case 5:
        put_text(r, n);
        return;
    default:
        if (depth > 5)
            n = 0;
        put_line(r, '*', n % 9);
        for (unsigned i = 0; i < n % 9; i++)
            put_reply(r, depth + 1);
    }
}

/* Reads every byte of the result. */

static volatile unsigned seen;

static void look(struct idem_bytes bytes) {
    for (size_t i = 0; i < bytes.len; i++)
        seen += bytes.at[i];
}

static void fields_look(const struct redis_reply *fields, struct stream_id id) {
    static const struct stream_shape shape = {.queue = "q", .body_field = "body"};
    struct stream_message *message;
    size_t bytes = 0, total;

    if (stream_fields_measure(fields, &bytes) != STREAM_FITS)
        return;
    message = stream_message_new(&shape, id, 1, fields);
    assert(message != NULL);
    assert(message->fields_n == fields->items_n / 2);
    assert(message->base.headers_n <= message->fields_n &&
           message->base.headers_n + 1 >= message->fields_n);
    total = message->base.headers_n == message->fields_n ? 0 : message->base.body.len;
    look(message->base.body);
    for (size_t i = 0; i < message->base.headers_n; i++) {
        look(message->base.headers[i].name);
        look(message->base.headers[i].value);
        total += message->base.headers[i].name.len + message->base.headers[i].value.len;
    }
    assert(total <= bytes);
    for (size_t i = 0; i < message->base.properties_n; i++)
        look(message->base.properties[i].value);
    stream_message_free(message);
}

static void id_look(struct stream_id id) {
    char text[STREAM_ID_TEXT];
    struct stream_id again;

    stream_id_print(id, text);
    assert(stream_id_parse(text, strlen(text), &again));
    assert(again.ms == id.ms && again.seq == id.seq);
}

static void read_look(const struct redis_reply *reply) {
    const struct redis_reply *entries, *fields;
    struct stream_id id;

    if (!stream_parse_entries(reply, &entries) || entries == NULL)
        return;
    for (size_t i = 0; i < entries->items_n; i++)
        if (stream_parse_entry(entries->items[i], &id, &fields)) {
            id_look(id);
            fields_look(fields, id);
        }
}

static void said_look(const struct redis_reply *reply) {
    struct stream_outcome said;

    for (size_t i = 0; i < reply->items_n; i++)
        if (stream_parse_outcome(reply->items[i], &said)) {
            id_look(said.id);
            assert(said.word >= 0 && said.word < STREAM_WORD__COUNT);
            if (said.word == STREAM_WORD_ENTRY)
                fields_look(said.fields, said.id);
        }
}

static void claimed_look(const struct redis_reply *reply) {
    struct stream_claimed claimed;
    struct stream_id id;

    if (!stream_parse_claimed(reply, &claimed))
        return;
    id_look(claimed.next);
    for (size_t i = 0; i < claimed.items->items_n; i++)
        if (stream_parse_claimed_id(claimed.items->items[i], &id))
            id_look(id);
}

static void pending_look(const struct redis_reply *reply) {
    struct stream_id id;

    for (size_t i = 0; i < reply->items_n; i++)
        if (stream_parse_pending(reply->items[i], &id))
            id_look(id);
}

static void error_look(const struct redis_reply *reply) {
    char text[STREAM_ERROR_TEXT];

    assert(strlen(stream_error_text(reply, text)) < sizeof(text));
    seen += stream_is_gone(reply);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static void (*const looks[])(const struct redis_reply *) = {read_look, said_look, claimed_look,
                                                                pending_look, error_look};
    struct recipe recipe = {.at = data + 1, .end = data + size};
    struct redis_reader *reader = redis_reader_new();
    struct redis_reply *reply = NULL;

    if (size < 1 || reader == NULL) {
        redis_reader_free(reader);
        return 0;
    }
    if ((data[0] & 0x80) != 0)
        idem_buffer_put(&recipe.out, data + 1, size - 1);
    else
        put_reply(&recipe, 0);
    if (recipe.out.len > 0)
        (void)redis_reader_feed(reader, recipe.out.at, recipe.out.len);
    if (redis_reader_next(reader, &reply) && reply != NULL)
        looks[(data[0] & 0x7f) % 5](reply);
    redis_reply_free(reply);
    redis_reader_free(reader);
    idem_buffer_release(&recipe.out);
    return 0;
}
