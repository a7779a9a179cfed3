/*
 * The properties of a copy: those of the message, but for what would make it go astray. It has no
 * expiration, which would end it on its way; no CC and BCC, which would route it elsewhere as well;
 * none of the headers that the server adds, by which it would find a cycle and drop it. User and
 * delivery mode are ours. What it was before stands in headers of ours, so that the copy shows what
 * the message showed.
 */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "core/when.h"
#include "queue/amqp/amqp.h"

#define ADDED_MAX 16
#define PERSISTENT 2

struct making {
    struct rabbit_copy *copy;
    amqp_table_t table; /* room for what is there and ADDED_MAX */
};

static void entry_add(struct making *m, const char *name, amqp_field_value_t value) {
    amqp_table_entry_t *entry = &m->table.entries[m->table.num_entries++];

    entry->key = amqp_cstring_bytes(name);
    entry->value = value;
    m->copy->size += entry->key.len + 16;
    if (value.kind == AMQP_FIELD_KIND_UTF8)
        m->copy->size += value.value.bytes.len;
}

static void text_add(struct making *m, const char *name, amqp_bytes_t text) {
    entry_add(m, name,
              (amqp_field_value_t){.kind = AMQP_FIELD_KIND_UTF8, .value = {.bytes = text}});
}

/* Texts of the caller's; what is NULL is not known. */
static void word_add(struct making *m, const char *name, const char *text) {
    if (text != NULL)
        text_add(m, name, amqp_cstring_bytes(text));
}

/* One that is made here lives as long as the copy. */
static void made_add(struct making *m, const char *name, const char *text) {
    amqp_bytes_t bytes;

    amqp_pool_alloc_bytes(&m->copy->pool, strlen(text), &bytes);
    if (bytes.bytes == NULL)
        return;
    memcpy(bytes.bytes, text, bytes.len);
    text_add(m, name, bytes);
}

/* Of what was there. */
static void entry_keep(struct making *m, const amqp_table_entry_t *entry,
                       enum rabbit_purpose purpose) {
    switch (rabbit_header_kind(entry->key)) {
    case RABBIT_EPITAPH:
        if (purpose != RABBIT_FOR_LATER)
            return;
        break;
    case RABBIT_CC:
        entry_add(m, RABBIT_HEADER_ORIGIN_CC, entry->value);
        return;
    case RABBIT_SENDERS:
    case RABBIT_ORIGIN_CC:
        break;
    default:
        return; /* the server's, or written anew below */
    }
    m->table.entries[m->table.num_entries++] = *entry;
}

/* What the message showed, which may itself be what an earlier copy carried. */
static void origin_add(struct making *m, const struct rabbit_message *message) {
    const struct queue_field *user = queue_property(&message->base, "user_id");
    const struct queue_field *said = queue_property(&message->base, "delivery_mode");
    amqp_field_value_t mode = {.kind = AMQP_FIELD_KIND_U8};

    if (message->exchange.at != NULL) {
        text_add(m, QUEUE_DEAD_EXCHANGE, rabbit_borrow(message->exchange));
        text_add(m, QUEUE_DEAD_ROUTING_KEY, rabbit_borrow(message->routing_key));
    }
    if (user != NULL)
        text_add(m, RABBIT_HEADER_ORIGIN_USER, rabbit_borrow(user->value));
    for (size_t i = 0; said != NULL && i < said->value.len; i++)
        mode.value.u8 = (uint8_t)(10 * mode.value.u8 + (said->value.at[i] - '0'));
    if (mode.value.u8 != PERSISTENT)
        entry_add(m, RABBIT_HEADER_ORIGIN_MODE, mode);
}

static void epitaph_add(struct making *m, const struct rabbit_message *message,
                        const struct queue_epitaph *epitaph) {
    char text[IDEM_WHEN_TEXT];

    word_add(m, QUEUE_DEAD_VERDICT, epitaph->verdict);
    word_add(m, QUEUE_DEAD_REASON, epitaph->reason);
    snprintf(text, sizeof(text), "%u", epitaph->attempts);
    made_add(m, QUEUE_DEAD_ATTEMPTS, text);
    snprintf(text, sizeof(text), "%d", epitaph->status);
    made_add(m, QUEUE_DEAD_STATUS, text);
    word_add(m, QUEUE_DEAD_RECORD_PREFIX, epitaph->prefix);
    word_add(m, QUEUE_DEAD_HASH, epitaph->hash);
    word_add(m, QUEUE_DEAD_QUEUE, message->base.queue);
    made_add(m, QUEUE_DEAD_AT, idem_when_print(1000 * (int64_t)time(NULL), text, sizeof(text)));
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
    struct making m = {.copy = copy};
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
    m.table.entries = amqp_pool_alloc(&copy->pool, ((size_t)before.num_entries + ADDED_MAX) *
                                                       sizeof(*m.table.entries));
    if (m.table.entries == NULL)
        return false;
    for (int i = 0; i < before.num_entries; i++)
        entry_keep(&m, &before.entries[i], purpose);
    entry_add(&m, RABBIT_HEADER_COPY, number);
    origin_add(&m, message);
    if (purpose == RABBIT_FOR_DEAD)
        epitaph_add(&m, message, epitaph);
    properties_set(copy, user);
    copy->properties.headers = m.table;
    return true;
}

void rabbit_copy_release(struct rabbit_copy *copy) {
    empty_amqp_pool(&copy->pool);
}

bool rabbit_copy_send(struct rabbit_session *s, const struct rabbit_copy *copy, const char *queue,
                      struct idem_bytes body, bool *ret_refused) {
    int status;

    /* librabbitmq would notice when half of it is sent. */
    *ret_refused = copy->size > (size_t)amqp_get_frame_max(s->conn) - 8;
    if (*ret_refused) {
        rabbit_session_fail(s, "its headers leave no room for those of a copy");
        return false;
    }
    status = amqp_basic_publish(s->conn, 1, amqp_empty_bytes, amqp_cstring_bytes(queue), 1, 0,
                                &copy->properties, rabbit_borrow(body));
    return rabbit_session_sent(s, status, "publishing");
}
