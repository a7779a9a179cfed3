/*
 * The properties of a copy: those of the message, except those that would misroute it. No
 * expiration, which would end it on its way; no CC and BCC, which would route it elsewhere
 * too; no headers added by the server, since it would detect a cycle and drop the copy. User
 * and delivery mode are ours. The old values are in headers of ours, so that the copy shows
 * the same fields as the message.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/base64.h"
#include "base/rfc3339.h"
#include "base/units.h"
#include "base/visible.h"
#include "queue/amqp/rabbit.h"
#include "json/json_number.h"

/*
 * Makes fields of header tables and properties. One table here states the owner of each
 * header: the sender, the server on a message's way, or a copy of ours. A copy must show the
 * same fields as the original, or its key would differ. A header must never stand for a fact
 * that the server vouches for: any publisher could then forge a key made of it.
 *
 * The output is bounded: librabbitmq accepts no table longer than a frame, and values that are
 * nested too deep are left out. Without memory the fields are marked as failed.
 */

/* Owners. */

static const struct {
    const char *name;
    enum rabbit_header kind;
} headers[] = {
    {"x-death", RABBIT_SERVERS},
    {"x-first-death-exchange", RABBIT_SERVERS},
    {"x-first-death-queue", RABBIT_SERVERS},
    {"x-first-death-reason", RABBIT_SERVERS},
    {"x-last-death-exchange", RABBIT_SERVERS},
    {"x-last-death-queue", RABBIT_SERVERS},
    {"x-last-death-reason", RABBIT_SERVERS},
    {"x-delivery-count", RABBIT_SERVERS},
    {"x-acquired-count", RABBIT_SERVERS},
    {"BCC", RABBIT_SERVERS}, /* the server removes it */
    {"CC", RABBIT_CC},
    {QUEUE_DEAD_VERDICT, RABBIT_DEAD_FIELD},
    {QUEUE_DEAD_REASON, RABBIT_DEAD_FIELD},
    {QUEUE_DEAD_ATTEMPTS, RABBIT_DEAD_FIELD},
    {QUEUE_DEAD_STATUS, RABBIT_DEAD_FIELD},
    {QUEUE_DEAD_RECORD_PREFIX, RABBIT_DEAD_FIELD},
    {QUEUE_DEAD_HASH, RABBIT_DEAD_FIELD},
    {QUEUE_DEAD_QUEUE, RABBIT_DEAD_FIELD},
    {QUEUE_DEAD_AT, RABBIT_DEAD_FIELD},
    {QUEUE_DEAD_EXCHANGE, RABBIT_ORIGIN_EXCHANGE},
    {QUEUE_DEAD_ROUTING_KEY, RABBIT_ORIGIN_ROUTING_KEY},
    {RABBIT_HEADER_ORIGIN_USER, RABBIT_ORIGIN_USER},
    {RABBIT_HEADER_ORIGIN_MODE, RABBIT_ORIGIN_MODE},
    {RABBIT_HEADER_ORIGIN_CC, RABBIT_ORIGIN_CC},
    {RABBIT_HEADER_COPY, RABBIT_COPY},
};

enum rabbit_header rabbit_headers_kind(amqp_bytes_t name) {
    for (size_t i = 0; i < sizeof(headers) / sizeof(headers[0]); i++)
        if (rabbit_is(name, headers[i].name))
            return headers[i].kind;
    return RABBIT_SENDERS;
}

const amqp_field_value_t *rabbit_header_find(const amqp_table_t *table, enum rabbit_header kind) {
    for (int i = 0; i < table->num_entries; i++)
        if (rabbit_headers_kind(table->entries[i].key) == kind)
            return &table->entries[i].value;
    return NULL;
}

static bool headers_text(const amqp_table_t *table, enum rabbit_header kind, size_t max,
                         amqp_bytes_t *ret) {
    const amqp_field_value_t *value = rabbit_header_find(table, kind);

    if (value == NULL ||
        (value->kind != AMQP_FIELD_KIND_UTF8 && value->kind != AMQP_FIELD_KIND_BYTES) ||
        value->value.bytes.len > max)
        return false;
    *ret = value->value.bytes;
    return true;
}

/* A publisher chooses all headers, but not the user: the server compares it with the login. */
enum rabbit_author rabbit_author(const amqp_basic_properties_t *p, const char *user) {
    bool given = (p->_flags & AMQP_BASIC_USER_ID_FLAG) != 0;

    if (rabbit_header_find(&p->headers, RABBIT_COPY) == NULL)
        return RABBIT_ORIGINAL;
    return given && rabbit_is(p->user_id, user) ? RABBIT_OURS : RABBIT_CLAIMED;
}

bool rabbit_headers_origin(const struct rabbit_envelope *envelope, const amqp_basic_properties_t *p,
                           const char *user, amqp_bytes_t *ret_exchange,
                           amqp_bytes_t *ret_routing_key) {
    enum rabbit_author whose = rabbit_author(p, user);

    if (whose == RABBIT_ORIGINAL) {
        *ret_exchange = envelope->exchange;
        *ret_routing_key = envelope->routing_key;
        return true;
    }
    return whose == RABBIT_OURS &&
           headers_text(&p->headers, RABBIT_ORIGIN_EXCHANGE, RABBIT_NAME_MAX, ret_exchange) &&
           headers_text(&p->headers, RABBIT_ORIGIN_ROUTING_KEY, RABBIT_NAME_MAX, ret_routing_key);
}

bool rabbit_headers_is_of_other(const amqp_basic_properties_t *p, const char *user) {
    return rabbit_author(p, user) == RABBIT_CLAIMED && (p->_flags & AMQP_BASIC_USER_ID_FLAG) != 0 &&
           rabbit_header_find(&p->headers, RABBIT_ORIGIN_USER) != NULL;
}

void rabbit_fields_reset(struct rabbit_fields *fields) {
    fields->n = 0;
    fields->text.len = 0;
    fields->text.failed = false;
}

void rabbit_fields_release(struct rabbit_fields *fields) {
    free(fields->at);
    idem_buffer_release(&fields->text);
    *fields = (struct rabbit_fields){0};
}

bool rabbit_fields_failed(const struct rabbit_fields *fields) {
    return fields->text.failed;
}

/* Begins a field. Its value is written next, then fields_end() is called. */
static bool fields_begin(struct rabbit_fields *fields, amqp_bytes_t name) {
    struct rabbit_field *grown;

    if (fields->n == fields->size) {
        size_t size = fields->size == 0 ? 32 : 2 * fields->size;

        grown = realloc(fields->at, size * sizeof(*grown));
        if (grown == NULL) {
            fields->text.failed = true;
            return false;
        }
        fields->at = grown;
        fields->size = size;
    }
    fields->at[fields->n] = (struct rabbit_field){.name = fields->text.len, .name_len = name.len};
    idem_buffer_put(&fields->text, name.bytes, name.len);
    fields->at[fields->n].value = fields->text.len;
    return true;
}

static void fields_end(struct rabbit_fields *fields, bool json) {
    struct rabbit_field *field = &fields->at[fields->n];

    field->json = json;
    field->value_len = fields->text.len - field->value;
    fields->n++;
}

/* Removes a field that was begun. */
static void fields_drop(struct rabbit_fields *fields) {
    fields->text.len = fields->at[fields->n].name;
}

/* Texts. */

static void text_put_base64(struct idem_buffer *text, amqp_bytes_t bytes) {
    enum { PIECE = 768 }; /* a multiple of three: no padding between the pieces */
    char piece[IDEM_BASE64_TEXT(PIECE)];
    size_t n;

    idem_buffer_put_text(text, "base64:");
    for (size_t at = 0; at < bytes.len; at += n) {
        n = bytes.len - at < PIECE ? bytes.len - at : PIECE;
        idem_base64_encode((const unsigned char *)bytes.bytes + at, n, piece);
        idem_buffer_put_text(text, piece);
    }
}

/* Writes bytes as a text. */
static void text_put_text(struct idem_buffer *text, amqp_bytes_t bytes) {
    if (idem_utf8_valid(bytes.bytes, bytes.len))
        idem_buffer_put(text, bytes.bytes, bytes.len);
    else
        text_put_base64(text, bytes);
}

/* Writes UTF-8 with escapes. `idem dead --json` prints it unchanged. */
static void text_put_escaped(struct idem_buffer *text, amqp_bytes_t bytes) {
    const char *at = bytes.bytes, *from = at, *end = at + bytes.len;
    char code[IDEM_VISIBLE_JSON];
    uint32_t c = 0;

    for (size_t n; at < end; at += n) {
        n = idem_utf8_next(at, (size_t)(end - at), &c);
        if (idem_visible(c) && c != '"' && c != '\\')
            continue;
        idem_buffer_put(text, from, (size_t)(at - from));
        from = at + n;
        if (idem_visible(c))
            snprintf(code, sizeof(code), "\\%c", (char)c);
        else
            idem_visible_json(c, code);
        idem_buffer_put_text(text, code);
    }
    idem_buffer_put(text, from, (size_t)(end - from));
}

/* Writes bytes as a JSON string. */
static void text_put_string(struct idem_buffer *text, amqp_bytes_t bytes) {
    idem_buffer_put_text(text, "\"");
    if (bytes.len == 0 || !idem_utf8_valid(bytes.bytes, bytes.len))
        text_put_text(text, bytes); /* base64 needs no escape */
    else
        text_put_escaped(text, bytes);
    idem_buffer_put_text(text, "\"");
}

static void fields_put_text(struct rabbit_fields *fields, const char *name, amqp_bytes_t value) {
    if (!fields_begin(fields, amqp_cstring_bytes(name)))
        return;
    text_put_text(&fields->text, value);
    fields_end(fields, false);
}

/* Numbers. */

static void text_put_unsigned(struct idem_buffer *text, uint64_t number) {
    char digits[24];

    snprintf(digits, sizeof(digits), "%llu", (unsigned long long)number);
    idem_buffer_put_text(text, digits);
}

static void text_put_signed(struct idem_buffer *text, int64_t number) {
    char digits[24];

    snprintf(digits, sizeof(digits), "%lld", (long long)number);
    idem_buffer_put_text(text, digits);
}

static void fields_put_number(struct rabbit_fields *fields, const char *name, uint64_t value) {
    if (!fields_begin(fields, amqp_cstring_bytes(name)))
        return;
    text_put_unsigned(&fields->text, value);
    fields_end(fields, true);
}

static const char *headers_double_name(double d) {
    return isnan(d) ? "NaN" : isinf(d) ? (d > 0 ? "Infinity" : "-Infinity") : NULL;
}

static void text_put_double(struct idem_buffer *text, double d) {
    char digits[IDEM_NUMBER_MAX];

    idem_buffer_put(text, digits, idem_number_es(d, digits));
}

/* value / 10^decimals, with all zeros. */
static void text_put_decimal(struct idem_buffer *text, amqp_decimal_t decimal) {
    char digits[280];
    size_t n =
        (size_t)snprintf(digits, sizeof(digits), "%0*u", decimal.decimals + 1, decimal.value);

    idem_buffer_put(text, digits, n - decimal.decimals);
    if (decimal.decimals > 0) {
        idem_buffer_put_text(text, ".");
        idem_buffer_put(text, digits + n - decimal.decimals, decimal.decimals);
    }
}

/* Values; false: nested too deep. */

static bool text_put_value(struct idem_buffer *text, const amqp_field_value_t *value, int depth);

static bool text_put_table(struct idem_buffer *text, const amqp_table_t *table, int depth) {
    const char *comma = "";

    idem_buffer_put_text(text, "{");
    for (int i = 0; i < table->num_entries; i++) {
        amqp_bytes_t key = table->entries[i].key;

        if (!idem_utf8_valid(key.bytes, key.len))
            continue;
        idem_buffer_put_text(text, comma);
        text_put_string(text, key);
        idem_buffer_put_text(text, ":");
        if (!text_put_value(text, &table->entries[i].value, depth + 1))
            return false;
        comma = ",";
    }
    idem_buffer_put_text(text, "}");
    return true;
}

static bool text_put_array(struct idem_buffer *text, const amqp_array_t *array, int depth) {
    idem_buffer_put_text(text, "[");
    for (int i = 0; i < array->num_entries; i++) {
        if (i > 0)
            idem_buffer_put_text(text, ",");
        if (!text_put_value(text, &array->entries[i], depth + 1))
            return false;
    }
    idem_buffer_put_text(text, "]");
    return true;
}

static bool text_put_float(struct idem_buffer *text, double d) {
    const char *odd = headers_double_name(d);

    if (odd == NULL)
        text_put_double(text, d);
    else
        text_put_string(text, amqp_cstring_bytes(odd));
    return true;
}

static bool text_put_value(struct idem_buffer *text, const amqp_field_value_t *value, int depth) {
    if (depth > RABBIT_DEPTH_MAX)
        return false;
    switch (value->kind) {
    case AMQP_FIELD_KIND_BOOLEAN:
        idem_buffer_put_text(text, value->value.boolean != 0 ? "true" : "false");
        break;
    case AMQP_FIELD_KIND_I8:
        text_put_signed(text, value->value.i8);
        break;
    case AMQP_FIELD_KIND_I16:
        text_put_signed(text, value->value.i16);
        break;
    case AMQP_FIELD_KIND_I32:
        text_put_signed(text, value->value.i32);
        break;
    case AMQP_FIELD_KIND_I64:
        text_put_signed(text, value->value.i64);
        break;
    case AMQP_FIELD_KIND_U8:
        text_put_unsigned(text, value->value.u8);
        break;
    case AMQP_FIELD_KIND_U16:
        text_put_unsigned(text, value->value.u16);
        break;
    case AMQP_FIELD_KIND_U32:
        text_put_unsigned(text, value->value.u32);
        break;
    case AMQP_FIELD_KIND_U64:
    case AMQP_FIELD_KIND_TIMESTAMP:
        text_put_unsigned(text, value->value.u64);
        break;
    case AMQP_FIELD_KIND_F32:
        return text_put_float(text, (double)value->value.f32);
    case AMQP_FIELD_KIND_F64:
        return text_put_float(text, value->value.f64);
    case AMQP_FIELD_KIND_DECIMAL:
        text_put_decimal(text, value->value.decimal);
        break;
    case AMQP_FIELD_KIND_UTF8:
    case AMQP_FIELD_KIND_BYTES:
        text_put_string(text, value->value.bytes);
        break;
    case AMQP_FIELD_KIND_TABLE:
        return text_put_table(text, &value->value.table, depth);
    case AMQP_FIELD_KIND_ARRAY:
        return text_put_array(text, &value->value.array, depth);
    default:
        idem_buffer_put_text(text, "null");
        break;
    }
    return true;
}

/* Headers. */

static void fields_show_header(struct rabbit_fields *fields, amqp_bytes_t name,
                               const amqp_field_value_t *value) {
    const char *odd = value->kind == AMQP_FIELD_KIND_F64 ? headers_double_name(value->value.f64)
                      : value->kind == AMQP_FIELD_KIND_F32
                          ? headers_double_name((double)value->value.f32)
                          : NULL;

    if (!idem_utf8_valid(name.bytes, name.len) || !fields_begin(fields, name))
        return;
    if (value->kind == AMQP_FIELD_KIND_UTF8 || value->kind == AMQP_FIELD_KIND_BYTES) {
        text_put_text(&fields->text, value->value.bytes);
        fields_end(fields, false);
    } else if (odd != NULL) {
        idem_buffer_put_text(&fields->text, odd);
        fields_end(fields, false);
    } else if (text_put_value(&fields->text, value, 0)) {
        fields_end(fields, true);
    } else {
        fields_drop(fields);
    }
}

static int headers_compare_fields(const void *a, const void *b, void *data) {
    const struct rabbit_field *x = a, *y = b;
    const char *text = data;
    int order = idem_order(text + x->name, x->name_len, text + y->name, y->name_len);

    return order != 0 ? order : (x->name > y->name) - (x->name < y->name);
}

/* Sorted by name: the server reorders headers when a message goes back from a queue of delays. */
void rabbit_fields_headers(struct rabbit_fields *fields, const amqp_table_t *table) {
    for (int i = 0; i < table->num_entries; i++) {
        const amqp_table_entry_t *entry = &table->entries[i];

        switch (rabbit_headers_kind(entry->key)) {
        case RABBIT_SENDERS:
        case RABBIT_CC:
        case RABBIT_DEAD_FIELD:
            fields_show_header(fields, entry->key, &entry->value);
            break;
        case RABBIT_ORIGIN_CC:
            fields_show_header(fields, amqp_cstring_bytes("CC"), &entry->value);
            break;
        default:
            break;
        }
    }
    if (fields->n > 1 && !fields->text.failed)
        qsort_r(fields->at, fields->n, sizeof(*fields->at), headers_compare_fields,
                fields->text.at);
}

/* Properties. */

static bool headers_find_user(const amqp_basic_properties_t *p, const char *user,
                              amqp_bytes_t *ret) {
    enum rabbit_author whose = rabbit_author(p, user);

    if (whose != RABBIT_ORIGINAL)
        return whose == RABBIT_OURS &&
               headers_text(&p->headers, RABBIT_ORIGIN_USER, 2 * RABBIT_NAME_MAX, ret);
    *ret = p->user_id;
    return (p->_flags & AMQP_BASIC_USER_ID_FLAG) != 0;
}

/* A copy is always persistent, so the message's own mode is in a header. 0: no mode was set. */
static uint8_t headers_find_mode(const amqp_basic_properties_t *p) {
    const amqp_field_value_t *given = rabbit_header_find(&p->headers, RABBIT_ORIGIN_MODE);

    if (given != NULL && given->kind == AMQP_FIELD_KIND_U8)
        return given->value.u8;
    return (p->_flags & AMQP_BASIC_DELIVERY_MODE_FLAG) != 0 ? p->delivery_mode : 0;
}

void rabbit_fields_properties(struct rabbit_fields *fields, const struct rabbit_envelope *envelope,
                              const amqp_basic_properties_t *p, const char *user) {
    const struct {
        amqp_flags_t flag;
        const char *name;
        amqp_bytes_t value;
    } texts[] = {
        {AMQP_BASIC_MESSAGE_ID_FLAG, "message_id", p->message_id},
        {AMQP_BASIC_CORRELATION_ID_FLAG, "correlation_id", p->correlation_id},
        {AMQP_BASIC_CONTENT_TYPE_FLAG, "content_type", p->content_type},
        {AMQP_BASIC_CONTENT_ENCODING_FLAG, "content_encoding", p->content_encoding},
        {AMQP_BASIC_TYPE_FLAG, "type", p->type},
        {AMQP_BASIC_APP_ID_FLAG, "app_id", p->app_id},
        {AMQP_BASIC_REPLY_TO_FLAG, "reply_to", p->reply_to},
    };
    amqp_bytes_t text, routing_key;

    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
        if ((p->_flags & texts[i].flag) != 0)
            fields_put_text(fields, texts[i].name, texts[i].value);
    if (headers_find_user(p, user, &text))
        fields_put_text(fields, "user_id", text);
    if ((p->_flags & AMQP_BASIC_TIMESTAMP_FLAG) != 0)
        fields_put_number(fields, "timestamp", p->timestamp);
    if ((p->_flags & AMQP_BASIC_PRIORITY_FLAG) != 0)
        fields_put_number(fields, "priority", p->priority);
    if (headers_find_mode(p) != 0)
        fields_put_number(fields, "delivery_mode", headers_find_mode(p));
    if (rabbit_headers_origin(envelope, p, user, &text, &routing_key)) {
        fields_put_text(fields, "exchange", text);
        fields_put_text(fields, "routing_key", routing_key);
    }
}

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
static void builder_copy_entry(struct builder *builder, const amqp_table_entry_t *entry,
                               enum rabbit_purpose purpose) {
    switch (rabbit_headers_kind(entry->key)) {
    case RABBIT_DEAD_FIELD:
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
    const struct queue_field *user = queue_message_property(&message->base, "user_id");
    const struct queue_field *shown_mode = queue_message_property(&message->base, "delivery_mode");
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

static void builder_add_dead_fields(struct builder *builder, const struct rabbit_message *message,
                                    const struct queue_dead_fields *dead_fields) {
    char text[IDEM_RFC3339_TEXT];

    builder_add_word(builder, QUEUE_DEAD_VERDICT, dead_fields->verdict);
    builder_add_word(builder, QUEUE_DEAD_REASON, dead_fields->reason);
    snprintf(text, sizeof(text), "%u", dead_fields->attempts);
    builder_add_copied_text(builder, QUEUE_DEAD_ATTEMPTS, text);
    snprintf(text, sizeof(text), "%d", dead_fields->status);
    builder_add_copied_text(builder, QUEUE_DEAD_STATUS, text);
    builder_add_word(builder, QUEUE_DEAD_RECORD_PREFIX, dead_fields->prefix);
    builder_add_word(builder, QUEUE_DEAD_HASH, dead_fields->hash);
    builder_add_word(builder, QUEUE_DEAD_QUEUE, message->base.queue);
    builder_add_copied_text(builder, QUEUE_DEAD_AT,
                            idem_rfc3339_print(1000 * (int64_t)time(NULL), text, sizeof(text)));
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
                      enum rabbit_purpose purpose, const struct queue_dead_fields *dead_fields,
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
        builder_copy_entry(&builder, &before.entries[i], purpose);
    builder_add_entry(&builder, RABBIT_HEADER_COPY, number);
    builder_add_origin(&builder, message);
    if (purpose == RABBIT_FOR_DEAD)
        builder_add_dead_fields(&builder, message, dead_fields);
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
