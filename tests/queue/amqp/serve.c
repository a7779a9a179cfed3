/*
 * A RabbitMQ for tests that are not in C: amqp-serve DIRECTORY [sync] (tests/rabbit.py). Without
 * `sync` its writes do not wait for the disk.
 *
 * Writes its URL and that with TLS, one per line. Then obeys the commands on standard input, one
 * per line, and answers each with one line that begins with "ok" or "no". Texts in commands are hex
 * digits, "-" for an empty one:
 *
 *     kill, restart, pause, go-on
 *     settle                  queues that were declared before it outlive a kill
 *     declare QUEUE classic|quorum [NAME=TEXT | NAME:NUMBER]...
 *     delete QUEUE            count QUEUE         (ready messages; -1: no such queue)
 *     bind EXCHANGE QUEUE KEY
 *     send EXCHANGE KEY BODY MESSAGE_ID [NAME=TEXT]...    and confirm, which waits for all of them
 *     get QUEUE               BODY MESSAGE_ID [NAME=TEXT | NAME:NUMBER]...: takes a message; or
 * nothing
 *
 * Ends, with the server, at the end of its input.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../wait.h"
#include "client.h"
#include "server.h"

#define WORDS_MAX 64
#define LINE_MAX_LEN (4 << 20)

static struct server server;
static struct client client;
static bool connected;
static char *words[WORDS_MAX];
static size_t words_n;

static void fail(const char *what) {
    fprintf(stderr, "# amqp-serve: %s\n", what);
    exit(1);
}

/* Decodes hex digits in place, and adds a NUL. */
static size_t decode(char *text) {
    size_t n = 0;
    unsigned byte;

    for (const char *at = text; sscanf(at, "%2x", &byte) == 1 && at[0] != '-'; at += 2) {
        text[n++] = (char)byte;
        if (at[1] == '\0')
            fail("half a byte");
    }
    text[n] = '\0';
    return n;
}

static const char *name_of(size_t i) {
    if (i >= words_n)
        fail("a word is missing");
    (void)decode(words[i]);
    return words[i];
}

static void encode(const void *bytes, size_t len) {
    const unsigned char *at = bytes;

    if (len == 0)
        putchar('-');
    for (size_t i = 0; i < len; i++)
        printf("%02x", at[i]);
}

/* Connects again after the server was killed. */
static void connect_again(void) {
    if (connected)
        return;
    WAIT_UNTIL(client_try(&client, server.port));
    connected = true;
}

static void disconnect(void) {
    if (connected)
        client_close(&client);
    connected = false;
}

/* Splits NAME=TEXT or NAME:NUMBER; true: a text. */
static bool pair(char *word, char **value) {
    char *at = strpbrk(word, "=:");
    bool is_text = at != NULL && *at == '=';

    if (at == NULL)
        fail(word);
    *at = '\0';
    *value = at + 1;
    (void)decode(word);
    return is_text;
}

static void declare(void) {
    struct client_arg args[CLIENT_ARGS] = {{NULL}};
    char *value;

    for (size_t i = 3; i < words_n && i - 3 < CLIENT_ARGS - 2; i++) {
        bool is_text = pair(words[i], &value);

        args[i - 3].name = words[i];
        if (is_text)
            (void)decode(value);
        args[i - 3].text = is_text ? value : NULL;
        args[i - 3].number = is_text ? 0 : strtoll(value, NULL, 10);
    }
    client_declare(&client, name_of(1), strcmp(words[2], "quorum") == 0, args);
}

static void publish(void) {
    amqp_table_entry_t headers[WORDS_MAX];
    amqp_basic_properties_t p = {._flags = AMQP_BASIC_DELIVERY_MODE_FLAG | AMQP_BASIC_HEADERS_FLAG,
                                 .delivery_mode = 2,
                                 .headers = {.entries = headers}};
    const char *exchange = name_of(1), *key = name_of(2), *id = name_of(4);
    size_t len = decode(words[3]);
    char *value;

    for (size_t i = 5; i < words_n; i++) {
        amqp_table_entry_t *entry = &headers[p.headers.num_entries++];
        bool is_text = pair(words[i], &value);

        entry->key = amqp_cstring_bytes(words[i]);
        entry->value.kind = is_text ? AMQP_FIELD_KIND_UTF8 : AMQP_FIELD_KIND_I64;
        if (is_text)
            entry->value.value.bytes = (amqp_bytes_t){.len = decode(value), .bytes = value};
        else
            entry->value.value.i64 = strtoll(value, NULL, 10);
    }
    if (id[0] != '\0') {
        p._flags |= AMQP_BASIC_MESSAGE_ID_FLAG;
        p.message_id = amqp_cstring_bytes(id);
    }
    client_send(&client, exchange, key, &p, words[3], len);
}

static void header_print(const amqp_table_entry_t *entry) {
    const amqp_field_value_t *value = &entry->value;

    putchar(' ');
    encode(entry->key.bytes, entry->key.len);
    if (value->kind == AMQP_FIELD_KIND_UTF8 || value->kind == AMQP_FIELD_KIND_BYTES) {
        putchar('=');
        encode(value->value.bytes.bytes, value->value.bytes.len);
    } else if (value->kind == AMQP_FIELD_KIND_I32) {
        printf(":%" PRId32, value->value.i32);
    } else {
        printf(":%" PRId64, value->kind == AMQP_FIELD_KIND_I64 ? value->value.i64 : 0);
    }
}

static void get(void) {
    amqp_message_t message;
    bool id;

    if (!client_get(&client, name_of(1), &message))
        return;
    id = (message.properties._flags & AMQP_BASIC_MESSAGE_ID_FLAG) != 0;
    encode(message.body.bytes, message.body.len);
    putchar(' ');
    encode(message.properties.message_id.bytes, id ? message.properties.message_id.len : 0);
    if ((message.properties._flags & AMQP_BASIC_HEADERS_FLAG) != 0)
        for (int i = 0; i < message.properties.headers.num_entries; i++)
            header_print(&message.properties.headers.entries[i]);
    amqp_destroy_message(&message);
}

/* Commands for the server; false: it is another one. */
static bool obey_server(const char *word) {
    if (strcmp(word, "kill") == 0) {
        disconnect();
        server_kill(&server);
    } else if (strcmp(word, "restart") == 0) {
        server_restart(&server);
    } else if (strcmp(word, "settle") == 0) {
        server_settle(&server);
    } else if (strcmp(word, "pause") == 0) {
        server_pause(&server);
    } else if (strcmp(word, "go-on") == 0) {
        server_go_on(&server);
    } else {
        return false;
    }
    return true;
}

static bool obey(const char *word) {
    if (obey_server(word))
        return true;
    connect_again();
    if (strcmp(word, "declare") == 0 && words_n >= 3)
        declare();
    else if (strcmp(word, "delete") == 0)
        client_delete(&client, name_of(1));
    else if (strcmp(word, "bind") == 0)
        client_bind(&client, name_of(1), name_of(2), name_of(3));
    else if (strcmp(word, "count") == 0)
        printf("%d", client_count(&client, name_of(1)));
    else if (strcmp(word, "send") == 0 && words_n >= 5)
        publish();
    else if (strcmp(word, "confirm") == 0)
        client_confirm(&client);
    else if (strcmp(word, "get") == 0)
        get();
    else
        return false;
    return true;
}

int main(int argc, char **argv) {
    char *line = malloc(LINE_MAX_LEN), *rest;

    if (argc < 2 || line == NULL) {
        fprintf(stderr, "amqp-serve FOLDER [sync]: see tests/queue/amqp/serve.c\n");
        return 64;
    }
    server_start(&server, argv[1], argc > 2 && strcmp(argv[2], "sync") == 0);
    printf("amqp://%s:%s@127.0.0.1:%d\n", SERVER_USER, SERVER_PASSWORD_IN_URL, server.port);
    printf("amqps://%s:%s@localhost:%d?tls_ca=%s/ca.crt\n", SERVER_USER, SERVER_PASSWORD_IN_URL,
           server.tls_port, server.folder);
    fflush(stdout);
    while (fgets(line, LINE_MAX_LEN, stdin) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        rest = line;
        for (words_n = 0; words_n < WORDS_MAX && rest != NULL;)
            words[words_n++] = strsep(&rest, " ");
        printf("ok ");
        if (!obey(words[0]))
            printf("no: there is no such word");
        printf("\n");
        fflush(stdout);
    }
    disconnect();
    server_stop(&server);
    free(line);
    return 0;
}
