/*
 * The properties of a copy: those of the message, except those that would misroute it. No
 * expiration, which would end it on its way; no CC and BCC, which would route it elsewhere
 * too; no headers added by the server, since it would detect a cycle and drop the copy. User
 * and delivery mode are ours. The old values are in headers of ours, so that the copy shows
 * the same fields as the message.
 */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/rfc3339.h"
#include "queue/amqp/rabbit.h"

#define ADDED_MAX 16
#define PERSISTENT 2

struct builder {
    struct rabbit_copy *copy;
    amqp_table_t table; /* room for the present headers and ADDED_MAX */
};

static void builder_add_entry(struct builder *builder, const char *name, amqp_field_value_t value) {
    amqp_table_entry_t *entry = &builder->table.entries[builder->table.num_entries++];

    entry->key = amqp_cstring_bytes(name);
    entry->value = value;
    builder->copy->size += entry->key.len + 16;
    if (value.kind == AMQP_FIELD_KIND_UTF8)
        builder->copy->size += value.value.bytes.len;
}

static void builder_add_text(struct builder *builder, const char *name, amqp_bytes_t text) {
    builder_add_entry(builder, name,
                      (amqp_field_value_t){.kind = AMQP_FIELD_KIND_UTF8, .value = {.bytes = text}});
}

/* Adds a borrowed text; NULL: unknown, nothing is added. */
static void builder_add_word(struct builder *builder, const char *name, const char *text) {
    if (text != NULL)
        builder_add_text(builder, name, amqp_cstring_bytes(text));
}

/* Adds a copy of a text, which lives as long as the copy of the message. */
static void builder_add_copied_text(struct builder *builder, const char *name, const char *text) {
    amqp_bytes_t bytes;

    amqp_pool_alloc_bytes(&builder->copy->pool, strlen(text), &bytes);
    if (bytes.bytes == NULL)
        return;
    memcpy(bytes.bytes, text, bytes.len);
    builder_add_text(builder, name, bytes);
}

/* Keeps or drops a present header. */
static void builder_keep_entry(struct builder *builder, const amqp_table_entry_t *entry,
                               enum rabbit_purpose purpose) {
    switch (rabbit_headers_kind(entry->key)) {
    case RABBIT_EPITAPH:
        if (purpose != RABBIT_FOR_LATER)
            return;
        break;
    case RABBIT_CC:
        builder_add_entry(builder, RABBIT_HEADER_ORIGIN_CC, entry->value);
        return;
    case RABBIT_SENDERS:
    case RABBIT_ORIGIN_CC:
        break;
    default:
        return; /* the server's, or written anew below */
    }
    builder->table.entries[builder->table.num_entries++] = *entry;
}

/* Adds the origin that the message shows, which may stem from an earlier copy itself. */
static void builder_add_origin(struct builder *builder, const struct rabbit_message *message) {
    const struct queue_field *user = queue_property(&message->base, "user_id");
    const struct queue_field *shown_mode = queue_property(&message->base, "delivery_mode");
    amqp_field_value_t mode = {.kind = AMQP_FIELD_KIND_U8};

    if (message->exchange.at != NULL) {
        builder_add_text(builder, QUEUE_DEAD_EXCHANGE, rabbit_borrow(message->exchange));
        builder_add_text(builder, QUEUE_DEAD_ROUTING_KEY, rabbit_borrow(message->routing_key));
    }
    if (user != NULL)
        builder_add_text(builder, RABBIT_HEADER_ORIGIN_USER, rabbit_borrow(user->value));
    for (size_t i = 0; shown_mode != NULL && i < shown_mode->value.len; i++)
        mode.value.u8 = (uint8_t)(10 * mode.value.u8 + (shown_mode->value.at[i] - '0'));
    if (mode.value.u8 != PERSISTENT)
        builder_add_entry(builder, RABBIT_HEADER_ORIGIN_MODE, mode);
}

static void builder_add_epitaph(struct builder *builder, const struct rabbit_message *message,
                                const struct queue_epitaph *epitaph) {
    char text[IDEM_WHEN_TEXT];

    builder_add_word(builder, QUEUE_DEAD_VERDICT, epitaph->verdict);
    builder_add_word(builder, QUEUE_DEAD_REASON, epitaph->reason);
    snprintf(text, sizeof(text), "%u", epitaph->attempts);
    builder_add_copied_text(builder, QUEUE_DEAD_ATTEMPTS, text);
    snprintf(text, sizeof(text), "%d", epitaph->status);
    builder_add_copied_text(builder, QUEUE_DEAD_STATUS, text);
    builder_add_word(builder, QUEUE_DEAD_RECORD_PREFIX, epitaph->prefix);
    builder_add_word(builder, QUEUE_DEAD_HASH, epitaph->hash);
    builder_add_word(builder, QUEUE_DEAD_QUEUE, message->base.queue);
    builder_add_copied_text(builder, QUEUE_DEAD_AT,
                            idem_when_print(1000 * (int64_t)time(NULL), text, sizeof(text)));
}

static void properties_set(struct rabbit_copy *copy, const char *user) {
    amqp_basic_properties_t *p = &copy->properties;

    p->_flags &= ~(amqp_flags_t)(AMQP_BASIC_EXPIRATION_FLAG | AMQP_BASIC_USER_ID_FLAG);
    p->_flags |= AMQP_BASIC_DELIVERY_MODE_FLAG | AMQP_BASIC_HEADERS_FLAG;
    p->delivery_mode = PERSISTENT;
    if (user == NULL)
        return;
    p->_flags |= AMQP_BASIC_USER_ID_FLAG;
    p->user_id = amqp_cstring_bytes(user);
    copy->size += p->user_id.len + 1;
}

bool rabbit_copy_make(struct rabbit_copy *copy, const struct rabbit_message *message,
                      enum rabbit_purpose purpose, const struct queue_epitaph *epitaph,
                      const char *user, uint64_t seq) {
    struct builder builder = {.copy = copy};
    void *decoded = NULL;
    amqp_table_t before;
    amqp_field_value_t number = {.kind = AMQP_FIELD_KIND_I64, .value = {.i64 = (int64_t)seq}};

    *copy = (struct rabbit_copy){.size = message->properties.len + 64};
    init_amqp_pool(&copy->pool, 4096);
    if (amqp_decode_properties(AMQP_BASIC_CLASS, &copy->pool, rabbit_borrow(message->properties),
                               &decoded) < 0)
        return false;
    copy->properties = *(amqp_basic_properties_t *)decoded;
    before = (copy->properties._flags & AMQP_BASIC_HEADERS_FLAG) != 0 ? copy->properties.headers
                                                                      : amqp_empty_table;
    builder.table.entries = amqp_pool_alloc(&copy->pool, ((size_t)before.num_entries + ADDED_MAX) *
                                                             sizeof(*builder.table.entries));
    if (builder.table.entries == NULL)
        return false;
    for (int i = 0; i < before.num_entries; i++)
        builder_keep_entry(&builder, &before.entries[i], purpose);
    builder_add_entry(&builder, RABBIT_HEADER_COPY, number);
    builder_add_origin(&builder, message);
    if (purpose == RABBIT_FOR_DEAD)
        builder_add_epitaph(&builder, message, epitaph);
    properties_set(copy, user);
    copy->properties.headers = builder.table;
    return true;
}

void rabbit_copy_release(struct rabbit_copy *copy) {
    empty_amqp_pool(&copy->pool);
}

bool rabbit_copy_send(struct rabbit_session *s, const struct rabbit_copy *copy, const char *queue,
                      struct idem_bytes body, bool *ret_refused) {
    int status;

    /* librabbitmq would notice only after it has sent half of it. */
    *ret_refused = copy->size > (size_t)amqp_get_frame_max(s->conn) - 8;
    if (*ret_refused) {
        rabbit_session_fail(s, "its headers leave no room for those of a copy");
        return false;
    }
    status = amqp_basic_publish(s->conn, 1, amqp_empty_bytes, amqp_cstring_bytes(queue), 1, 0,
                                &copy->properties, rabbit_borrow(body));
    return rabbit_session_sent(s, status, "publishing");
}
