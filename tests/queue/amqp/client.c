/*
 * The plain client: blocking, with one channel for everything except counts,
 * which may be refused.
 */
#include "client.h"

#include <amqp_tcp_socket.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../wait.h"
#include "server.h"

static void fail(const char *what) {
    fprintf(stderr, "# the client: %s\n", what);
    exit(1);
}

static void check(const struct client *c, const char *what) {
    amqp_rpc_reply_t reply = amqp_get_rpc_reply(c->conn);
    char text[400];

    if (reply.reply_type == AMQP_RESPONSE_NORMAL)
        return;
    snprintf(text, sizeof(text), "%s: %s", what,
             reply.reply_type == AMQP_RESPONSE_LIBRARY_EXCEPTION
                 ? amqp_error_string2(reply.library_error)
                 : "refused");
    if (reply.reply_type == AMQP_RESPONSE_SERVER_EXCEPTION &&
        reply.reply.id == AMQP_CHANNEL_CLOSE_METHOD) {
        const amqp_channel_close_t *close = reply.reply.decoded;

        snprintf(text, sizeof(text), "%s: %.*s", what, (int)close->reply_text.len,
                 (const char *)close->reply_text.bytes);
    }
    fail(text);
}

bool client_try(struct client *c, int port) {
    struct timeval limit = {.tv_sec = WAIT_LIMIT_S};
    amqp_socket_t *socket;

    *c = (struct client){.conn = amqp_new_connection()};
    (void)amqp_set_handshake_timeout(c->conn, &limit);
    socket = amqp_tcp_socket_new(c->conn);
    if (amqp_socket_open_noblock(socket, "127.0.0.1", port, &limit) != AMQP_STATUS_OK ||
        amqp_login(c->conn, "/", 0, 131072, 0, AMQP_SASL_METHOD_PLAIN, SERVER_USER, SERVER_PASSWORD)
                .reply_type != AMQP_RESPONSE_NORMAL) {
        amqp_destroy_connection(c->conn);
        return false;
    }
    amqp_set_rpc_timeout(c->conn, &limit);
    (void)amqp_channel_open(c->conn, 1);
    check(c, "channel");
    (void)amqp_confirm_select(c->conn, 1);
    check(c, "confirms");
    return true;
}

void client_open(struct client *c, int port) {
    if (!client_try(c, port))
        fail("no connection");
}

void client_close(struct client *c) {
    (void)amqp_connection_close(c->conn, AMQP_REPLY_SUCCESS);
    amqp_destroy_connection(c->conn);
    free(c->acked);
    *c = (struct client){0};
}

void client_declare(struct client *c, const char *queue, bool quorum,
                    const struct client_arg *args) {
    amqp_table_entry_t entries[CLIENT_ARGS];
    amqp_table_t table = {.entries = entries};
    struct client_arg type = {"x-queue-type", quorum ? "quorum" : "classic", 0};

    for (const struct client_arg *arg = &type; arg != NULL && arg->name != NULL;
         arg = arg == &type ? args : arg + 1) {
        amqp_table_entry_t *entry = &entries[table.num_entries++];

        entry->key = amqp_cstring_bytes(arg->name);
        entry->value.kind = arg->text != NULL ? AMQP_FIELD_KIND_UTF8 : AMQP_FIELD_KIND_I64;
        if (arg->text != NULL)
            entry->value.value.bytes = amqp_cstring_bytes(arg->text);
        else
            entry->value.value.i64 = arg->number;
    }
    (void)amqp_queue_declare(c->conn, 1, amqp_cstring_bytes(queue), 0, 1, 0, 0, table);
    check(c, queue);
}

void client_delete(struct client *c, const char *queue) {
    (void)amqp_queue_delete(c->conn, 1, amqp_cstring_bytes(queue), 0, 0);
    check(c, queue);
}

void client_bind(struct client *c, const char *exchange, const char *queue, const char *key) {
    (void)amqp_exchange_declare(c->conn, 1, amqp_cstring_bytes(exchange),
                                amqp_cstring_bytes("direct"), 0, 1, 0, 0, amqp_empty_table);
    check(c, exchange);
    (void)amqp_queue_bind(c->conn, 1, amqp_cstring_bytes(queue), amqp_cstring_bytes(exchange),
                          amqp_cstring_bytes(key), amqp_empty_table);
    check(c, queue);
}

void client_send(struct client *c, const char *exchange, const char *key,
                 const amqp_basic_properties_t *properties, const void *body, size_t len) {
    amqp_basic_properties_t persistent = {._flags = AMQP_BASIC_DELIVERY_MODE_FLAG,
                                          .delivery_mode = 2};
    amqp_bytes_t bytes = {.bytes = (void *)(uintptr_t)body, .len = len};

    if (amqp_basic_publish(c->conn, 1, amqp_cstring_bytes(exchange), amqp_cstring_bytes(key), 0, 0,
                           properties == NULL ? &persistent : properties, bytes) != AMQP_STATUS_OK)
        fail("publish");
    c->sent++;
    if ((c->sent & (c->sent - 1)) == 0 || c->acked == NULL)
        c->acked = realloc(c->acked, 2 * c->sent + 1);
    c->acked[c->sent] = false;
}

/* Acks may cover many messages at a time, and come in any order. */
static void ack_take(struct client *c, const amqp_basic_ack_t *ack) {
    if (ack->delivery_tag > c->sent)
        fail("a confirm of nothing");
    for (uint64_t i = c->confirmed + 1; ack->multiple != 0 && i < ack->delivery_tag; i++)
        c->acked[i] = true;
    c->acked[ack->delivery_tag] = true;
    while (c->confirmed < c->sent && c->acked[c->confirmed + 1])
        c->confirmed++;
}

void client_confirm(struct client *c) {
    struct timeval limit = {.tv_sec = WAIT_LIMIT_S};
    amqp_frame_t frame;

    while (c->confirmed < c->sent) {
        amqp_maybe_release_buffers(c->conn);
        if (amqp_simple_wait_frame_noblock(c->conn, &frame, &limit) != AMQP_STATUS_OK)
            fail("no confirm");
        if (frame.frame_type != AMQP_FRAME_METHOD)
            continue;
        if (frame.payload.method.id != AMQP_BASIC_ACK_METHOD)
            fail("a publish was refused");
        ack_take(c, frame.payload.method.decoded);
    }
}

void client_publish(struct client *c, const char *queue, const char *body) {
    client_send(c, "", queue, NULL, body, strlen(body));
    client_confirm(c);
}

/* The counts of messages and consumers; false: there is no such queue. */
static bool look(struct client *c, const char *queue, int *messages, int *consumers) {
    amqp_queue_declare_ok_t *ok;
    bool there;

    (void)amqp_channel_open(c->conn, 2);
    check(c, "channel");
    ok = amqp_queue_declare(c->conn, 2, amqp_cstring_bytes(queue), 1, 0, 0, 0, amqp_empty_table);
    there = ok != NULL;
    if (there) {
        *messages = (int)ok->message_count;
        *consumers = (int)ok->consumer_count;
        (void)amqp_channel_close(c->conn, 2, AMQP_REPLY_SUCCESS);
    } else {
        amqp_channel_close_ok_t closed = {0};

        (void)amqp_send_method(c->conn, 2, AMQP_CHANNEL_CLOSE_OK_METHOD, &closed);
    }
    amqp_maybe_release_buffers(c->conn);
    return there;
}

int client_count(struct client *c, const char *queue) {
    int messages, consumers;

    return look(c, queue, &messages, &consumers) ? messages : -1;
}

void client_wait_consumers(struct client *c, const char *queue, int n) {
    int messages, consumers = -1;

    WAIT_UNTIL(look(c, queue, &messages, &consumers) && consumers == n);
}

void client_wait_count(struct client *c, const char *queue, int n) {
    WAIT_UNTIL(client_count(c, queue) == n);
}

bool client_get(struct client *c, const char *queue, amqp_message_t *ret) {
    amqp_rpc_reply_t reply = amqp_basic_get(c->conn, 1, amqp_cstring_bytes(queue), 1);

    if (reply.reply_type != AMQP_RESPONSE_NORMAL)
        fail(queue);
    if (reply.reply.id == AMQP_BASIC_GET_EMPTY_METHOD)
        return false;
    if (amqp_read_message(c->conn, 1, ret, 0).reply_type != AMQP_RESPONSE_NORMAL)
        fail("a message");
    return true;
}

const char *client_header(const amqp_message_t *message, const char *name) {
    static char texts[4][600];
    static unsigned turn;
    const amqp_table_t *table = &message->properties.headers;
    char *text = texts[turn++ % 4];

    for (int i = 0; i < table->num_entries; i++) {
        const amqp_table_entry_t *entry = &table->entries[i];

        if (entry->key.len != strlen(name) || memcmp(entry->key.bytes, name, entry->key.len) != 0)
            continue;
        text[0] = '\0';
        if (entry->value.kind == AMQP_FIELD_KIND_UTF8)
            snprintf(text, sizeof(texts[0]), "%.*s", (int)entry->value.value.bytes.len,
                     (const char *)entry->value.value.bytes.bytes);
        return text;
    }
    return NULL;
}
