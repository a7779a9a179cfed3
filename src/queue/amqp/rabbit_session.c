/*
 * A connection to a server, from login to close. Every failure closes it and leaves a text
 * with the reason. The exceptions are declarations and looks, which may be refused without
 * harm, as they have a channel of their own.
 *
 * A server that is silent for two heartbeats is lost: librabbitmq counts them while it reads.
 * While it writes, it would wait for ever, so the kernel is asked to give up after the same
 * time.
 */
#include <amqp_ssl_socket.h>
#include <amqp_tcp_socket.h>
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include "base/bytes.h"
#include "base/hash.h"
#include "base/visible.h"
#include "queue/amqp/rabbit.h"

/*
 * TLS by librabbitmq's own layer, with changes in its context. By default the layer would
 * trust no authority, ask for a key's pass phrase at the terminal, check names but not
 * addresses, and hide why a certificate is refused.
 */

static _Thread_local int refused; /* X509_V_ERR_... of this thread's last handshake */

static int tls_check_certificate(int ok, X509_STORE_CTX *store) {
    if (ok == 0)
        refused = X509_STORE_CTX_get_error(store);
    return ok;
}

/* There is no terminal to ask for a pass phrase. */
static int tls_refuse_passphrase(char *buf, int size, int writing, void *data) {
    (void)buf;
    (void)size;
    (void)writing;
    (void)data;
    return -1;
}

/* Sets the name or address that the certificate must have. */
static bool tls_expect_name(SSL_CTX *ctx, const char *name) {
    X509_VERIFY_PARAM *param = SSL_CTX_get0_param(ctx);
    unsigned char address[16];

    if (inet_pton(AF_INET, name, address) == 1 || inet_pton(AF_INET6, name, address) == 1)
        return X509_VERIFY_PARAM_set1_ip_asc(param, name) == 1;
    X509_VERIFY_PARAM_set_hostflags(param, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
    return X509_VERIFY_PARAM_set1_host(param, name, 0) == 1;
}

static const char *tls_load_files(SSL_CTX *ctx, const struct rabbit_config *config) {
    if (config->tls_ca != NULL ? SSL_CTX_load_verify_locations(ctx, config->tls_ca, NULL) != 1
                               : SSL_CTX_set_default_verify_paths(ctx) != 1)
        return "tls_ca: the file of authorities cannot be read";
    if (config->tls_cert != NULL && SSL_CTX_use_certificate_chain_file(ctx, config->tls_cert) != 1)
        return "tls_cert: the certificate cannot be read";
    if (config->tls_key != NULL &&
        SSL_CTX_use_PrivateKey_file(ctx, config->tls_key, SSL_FILETYPE_PEM) != 1)
        return "tls_key: the key cannot be read (it must have no pass phrase), or is not the "
               "certificate's";
    return NULL;
}

/* Prepares TLS before connecting; false: `why` has the reason. */
static bool rabbit_tls_prepare(struct rabbit_session *s, amqp_socket_t *socket, const char *host) {
    const struct rabbit_config *config = s->config;
    SSL_CTX *ctx = amqp_ssl_socket_get_context(socket);
    const char *what;

    refused = X509_V_OK;
    ERR_clear_error();
    SSL_CTX_set_default_passwd_cb(ctx, tls_refuse_passphrase);
    SSL_CTX_set_verify(ctx, config->tls_verify ? SSL_VERIFY_PEER : SSL_VERIFY_NONE,
                       config->tls_verify ? tls_check_certificate : NULL);
    amqp_ssl_socket_set_verify_peer(socket, config->tls_verify);
    amqp_ssl_socket_set_verify_hostname(socket, 0); /* the handshake checks it, see above */
    what = tls_load_files(ctx, config);
    if (what == NULL && config->tls_verify &&
        !tls_expect_name(ctx, config->tls_name != NULL ? config->tls_name : host))
        what = "no memory for TLS";
    if (what != NULL)
        rabbit_session_fail(s, "%s: %s", what,
                            ERR_reason_error_string(ERR_peek_last_error()) ?: "?");
    ERR_clear_error();
    return what == NULL;
}

/* The reason why the last handshake of this thread failed. */
static const char *rabbit_tls_why(void) {
    const char *why = ERR_reason_error_string(ERR_peek_last_error());

    if (refused != X509_V_OK)
        return X509_verify_cert_error_string(refused);
    return why != NULL ? why : "the connection was closed";
}

#define FRAME_MAX 131072 /* the server's default; a message's headers fit into one frame */
#define CHANNELS 2
#define GOODBYE_MS 400
#define PAUSE_MIN_MS INT64_C(200)
#define PAUSE_MAX_MS 15000
#define PAUSE_STEPS 16

int64_t rabbit_session_pause_ms(unsigned *tries) {
    int64_t pause = PAUSE_MIN_MS << *tries;
    uint32_t random = 0;

    *tries += *tries < PAUSE_STEPS;
    if (pause > PAUSE_MAX_MS)
        pause = PAUSE_MAX_MS;
    (void)idem_random(&random, sizeof(random));
    return pause / 2 + (int64_t)(random % (uint32_t)(pause / 2 + 1));
}

const char *rabbit_session_clean(amqp_bytes_t text, char *buf, size_t size) {
    (void)idem_visible_copy(text.bytes, text.len, '?', buf, size);
    return buf;
}

/* Failures. */

void rabbit_session_fail(struct rabbit_session *s, const char *fmt, ...) {
    va_list args;

    va_start(args, fmt);
    vsnprintf(s->why, sizeof(s->why), fmt, args);
    va_end(args);
}

static struct timeval session_timeval(int64_t ms) {
    return (struct timeval){.tv_sec = (time_t)(ms / 1000),
                            .tv_usec = (suseconds_t)(ms % 1000 * 1000)};
}

/* Later frames are dropped: librabbitmq's own call would keep them all until the close-ok. */
static void session_goodbye(struct rabbit_session *s) {
    amqp_connection_close_t word = {.reply_code = AMQP_REPLY_SUCCESS};
    int64_t until = idem_loop_now() + GOODBYE_MS;
    amqp_frame_t frame = {0};
    struct timeval limit;
    int status = amqp_send_method(s->conn, 0, AMQP_CONNECTION_CLOSE_METHOD, &word);

    while (status == AMQP_STATUS_OK && idem_loop_now() < until) {
        limit = session_timeval(until - idem_loop_now());
        amqp_maybe_release_buffers(s->conn);
        status = amqp_simple_wait_frame_noblock(s->conn, &frame, &limit);
        if (status == AMQP_STATUS_OK && frame.frame_type == AMQP_FRAME_METHOD &&
            frame.payload.method.id == AMQP_CONNECTION_CLOSE_OK_METHOD)
            return;
    }
}

void rabbit_session_close(struct rabbit_session *s, bool politely) {
    if (s->conn != NULL && politely && s->ready)
        session_goodbye(s);
    if (s->conn != NULL)
        (void)amqp_destroy_connection(s->conn);
    s->conn = NULL;
    s->ready = s->side = s->blocked = false;
}

bool rabbit_session_sent(struct rabbit_session *s, int status, const char *doing) {
    if (status == AMQP_STATUS_OK)
        return true;
    if (status == AMQP_STATUS_HEARTBEAT_TIMEOUT)
        rabbit_session_fail(s, "%s: the server is silent", doing);
    else
        rabbit_session_fail(s, "%s: %s", doing, amqp_error_string2(status));
    s->code = 0;
    rabbit_session_close(s, false);
    return false;
}

/* Reads channel.close or connection.close. */
static void session_read_refusal(struct rabbit_session *s, amqp_method_t method,
                                 const char *doing) {
    const amqp_channel_close_t *channel = method.decoded;
    const amqp_connection_close_t *connection = method.decoded;
    bool of_channel = method.id == AMQP_CHANNEL_CLOSE_METHOD;
    char text[RABBIT_WHY];

    s->code = of_channel ? channel->reply_code : connection->reply_code;
    rabbit_session_clean(of_channel ? channel->reply_text : connection->reply_text, text,
                         sizeof(text));
    rabbit_session_fail(s, "%s%s%s", doing, doing[0] == '\0' ? "" : ": ", text);
}

static bool session_is_refusal(amqp_method_number_t id) {
    return id == AMQP_CHANNEL_CLOSE_METHOD || id == AMQP_CONNECTION_CLOSE_METHOD;
}

bool rabbit_session_ok(struct rabbit_session *s, amqp_rpc_reply_t reply, amqp_channel_t channel,
                       const char *doing) {
    amqp_channel_close_ok_t ok = {0};

    switch (reply.reply_type) {
    case AMQP_RESPONSE_NORMAL:
        return true;
    case AMQP_RESPONSE_SERVER_EXCEPTION:
        if (!session_is_refusal(reply.reply.id))
            break;
        session_read_refusal(s, reply.reply, doing);
        if (reply.reply.id == AMQP_CHANNEL_CLOSE_METHOD && channel != 1) {
            s->side = false;
            if (amqp_send_method(s->conn, channel, AMQP_CHANNEL_CLOSE_OK_METHOD, &ok) == 0)
                return false;
        }
        rabbit_session_close(s, false);
        return false;
    case AMQP_RESPONSE_LIBRARY_EXCEPTION:
        return rabbit_session_sent(
            s, reply.library_error == 0 ? AMQP_STATUS_CONNECTION_CLOSED : reply.library_error,
            doing);
    default:
        break;
    }
    return rabbit_session_sent(s, AMQP_STATUS_WRONG_METHOD, doing);
}

/* Opening. */

static bool session_open_socket(struct rabbit_session *s, const struct idem_host_name *host) {
    struct timeval limit = session_timeval(s->config->connect_timeout_ms);
    amqp_socket_t *socket;
    int status;

    s->conn = amqp_new_connection();
    socket = s->conn == NULL  ? NULL
             : s->config->tls ? amqp_ssl_socket_new(s->conn)
                              : amqp_tcp_socket_new(s->conn);
    if (socket == NULL) {
        rabbit_session_fail(s, "no memory for a connection");
        return false;
    }
    if (s->config->tls && !rabbit_tls_prepare(s, socket, host->name))
        return false;
    status = amqp_socket_open_noblock(socket, host->name, host->port, &limit);
    if (status == AMQP_STATUS_OK)
        return true;
    if (status == AMQP_STATUS_SOCKET_ERROR)
        rabbit_session_fail(s, "it cannot be reached: nothing listens there, or there is no way");
    else if (status == AMQP_STATUS_SSL_CONNECTION_FAILED ||
             status == AMQP_STATUS_SSL_PEER_VERIFY_FAILED)
        rabbit_session_fail(s, "TLS: %s", rabbit_tls_why());
    else
        rabbit_session_fail(s, "%s", amqp_error_string2(status));
    return false;
}

static void session_set_write_timeout(struct rabbit_session *s) {
    unsigned limit = 2 * (unsigned)s->config->heartbeat_ms;

    (void)setsockopt(amqp_get_sockfd(s->conn), IPPROTO_TCP, TCP_USER_TIMEOUT, &limit,
                     sizeof(limit));
}

static amqp_table_entry_t session_text_entry(const char *name, const char *text) {
    amqp_table_entry_t entry = {.key = amqp_cstring_bytes(name)};

    entry.value.kind = AMQP_FIELD_KIND_UTF8;
    entry.value.value.bytes = amqp_cstring_bytes(text);
    return entry;
}

static amqp_table_entry_t session_true_entry(const char *name) {
    amqp_table_entry_t entry = {.key = amqp_cstring_bytes(name)};

    entry.value.kind = AMQP_FIELD_KIND_BOOLEAN;
    entry.value.value.boolean = 1;
    return entry;
}

static bool session_login(struct rabbit_session *s, const char *role) {
    const struct rabbit_config *config = s->config;
    struct timeval limit = session_timeval(config->connect_timeout_ms);
    amqp_table_entry_t can[] = {
        session_true_entry("consumer_cancel_notify"), session_true_entry("connection.blocked"),
        session_true_entry("basic.nack"), session_true_entry("publisher_confirms")};
    char name[RABBIT_NAME_MAX + 40];
    amqp_table_entry_t about[3];
    amqp_table_t table = {.num_entries = 3, .entries = about};

    snprintf(name, sizeof(name), "%s, %s", config->name, role);
    about[0] = session_text_entry("product", "Idem");
    about[1] = session_text_entry("connection_name", name);
    about[2] = (amqp_table_entry_t){.key = amqp_cstring_bytes("capabilities")};
    about[2].value.kind = AMQP_FIELD_KIND_TABLE;
    about[2].value.value.table =
        (amqp_table_t){.num_entries = sizeof(can) / sizeof(can[0]), .entries = can};
    if (amqp_set_handshake_timeout(s->conn, &limit) != 0 ||
        amqp_set_rpc_timeout(s->conn, &limit) != 0)
        return rabbit_session_sent(s, AMQP_STATUS_INVALID_PARAMETER, "time-outs");
    return rabbit_session_ok(s,
                             amqp_login_with_properties(s->conn, config->vhost, CHANNELS, FRAME_MAX,
                                                        (int)(config->heartbeat_ms / 1000), &table,
                                                        AMQP_SASL_METHOD_PLAIN, config->user,
                                                        config->password),
                             0, "login");
}

bool rabbit_session_open(struct rabbit_session *s, const struct rabbit_config *config,
                         unsigned host, const char *role) {
    const struct idem_host_name *at = &config->hosts[host % config->hosts_n];

    *s = (struct rabbit_session){.config = config};
    snprintf(s->place, sizeof(s->place), strchr(at->name, ':') != NULL ? "[%s]:%u" : "%s:%u",
             at->name, at->port);
    if (!session_open_socket(s, at)) {
        rabbit_session_close(s, false);
        return false;
    }
    session_set_write_timeout(s);
    if (!session_login(s, role))
        return false;
    (void)amqp_channel_open(s->conn, 1);
    s->ready = rabbit_session_ok(s, amqp_get_rpc_reply(s->conn), 1, "channel");
    return s->ready;
}

/* Frames. */

/* Takes a frame of channel 0; false: the session is closed. */
static bool session_on_connection_frame(struct rabbit_session *s, const amqp_frame_t *frame) {
    amqp_connection_close_ok_t ok = {0};

    if (frame->frame_type != AMQP_FRAME_METHOD)
        return true;
    switch (frame->payload.method.id) {
    case AMQP_CONNECTION_BLOCKED_METHOD:
        s->blocked = true;
        rabbit_session_clean(((amqp_connection_blocked_t *)frame->payload.method.decoded)->reason,
                             s->why, sizeof(s->why));
        break;
    case AMQP_CONNECTION_UNBLOCKED_METHOD:
        s->blocked = false;
        break;
    case AMQP_CONNECTION_CLOSE_METHOD:
        session_read_refusal(s, frame->payload.method, "");
        (void)amqp_send_method(s->conn, 0, AMQP_CONNECTION_CLOSE_OK_METHOD, &ok);
        rabbit_session_close(s, false);
        return false;
    default:
        break;
    }
    return true;
}

/* Takes a frame of a channel without messages; false: the session is closed. */
static bool session_on_other_frame(struct rabbit_session *s, const amqp_frame_t *frame) {
    amqp_channel_close_ok_t ok = {0};

    if (frame->channel == 0)
        return session_on_connection_frame(s, frame);
    if (frame->channel != 2)
        return rabbit_session_sent(s, AMQP_STATUS_BAD_AMQP_DATA, "a channel that is not open");
    if (frame->frame_type != AMQP_FRAME_METHOD ||
        frame->payload.method.id != AMQP_CHANNEL_CLOSE_METHOD)
        return true;
    s->side = false;
    return rabbit_session_sent(s, amqp_send_method(s->conn, 2, AMQP_CHANNEL_CLOSE_OK_METHOD, &ok),
                               "channel");
}

enum rabbit_got rabbit_session_next(struct rabbit_session *s, amqp_frame_t *ret) {
    struct timeval now = {0};
    int status;

    while (s->conn != NULL) {
        amqp_maybe_release_buffers_on_channel(s->conn, 1);
        amqp_maybe_release_buffers_on_channel(s->conn, 0);
        status = amqp_simple_wait_frame_noblock(s->conn, ret, &now);
        if (status == AMQP_STATUS_TIMEOUT)
            return RABBIT_NONE;
        if (!rabbit_session_sent(s, status, "the connection"))
            return RABBIT_LOST;
        if (ret->channel != 1) {
            if (!session_on_other_frame(s, ret))
                return RABBIT_LOST;
            continue;
        }
        if (ret->frame_type != AMQP_FRAME_METHOD ||
            ret->payload.method.id != AMQP_CHANNEL_CLOSE_METHOD)
            return RABBIT_GOT;
        session_read_refusal(s, ret->payload.method, "");
        rabbit_session_close(s, false);
    }
    return RABBIT_LOST;
}

/* True if a frame may be available without reading the socket. */
static bool session_has_more(struct rabbit_session *s) {
    return s->conn != NULL && (amqp_frames_enqueued(s->conn) || amqp_data_in_buffer(s->conn));
}

void rabbit_session_wait(struct rabbit_session *s, int event, int64_t until) {
    struct pollfd fds[2] = {{.fd = event, .events = POLLIN}, {.fd = -1, .events = POLLIN}};
    int64_t ms = until - idem_loop_now();
    eventfd_t count;

    if (s != NULL && s->conn != NULL) {
        if (session_has_more(s))
            ms = 0;
        if (ms > s->config->heartbeat_ms / 4)
            ms = s->config->heartbeat_ms / 4;
        fds[1].fd = amqp_get_sockfd(s->conn);
    }
    if (ms > 3600000)
        ms = 3600000;
    if (poll(fds, 2, ms < 0 ? 0 : (int)ms) > 0 && (fds[0].revents & POLLIN) != 0)
        (void)eventfd_read(event, &count);
}

/* librabbitmq sends heartbeats only while it reads. */
void rabbit_session_rest(struct rabbit_session *s, int event) {
    int64_t every = (int64_t)amqp_get_heartbeat(s->conn) * 1000 / 2, now = idem_loop_now();
    struct pollfd fd = {.fd = event, .events = POLLIN};
    amqp_frame_t beat = {.frame_type = AMQP_FRAME_HEARTBEAT};
    eventfd_t count;

    if (now - s->beat_at >= every) {
        s->beat_at = now;
        if (!rabbit_session_sent(s, amqp_send_frame(s->conn, &beat), "the connection"))
            return;
    }
    if (poll(&fd, 1, (int)(s->beat_at + every - now)) > 0)
        (void)eventfd_read(event, &count);
}

/* Declarations. */

static bool session_open_side(struct rabbit_session *s) {
    if (s->conn != NULL && !s->side) {
        (void)amqp_channel_open(s->conn, 2);
        s->side = rabbit_session_ok(s, amqp_get_rpc_reply(s->conn), 2, "channel");
    }
    return s->side;
}

int rabbit_session_declare(struct rabbit_session *s, const char *queue, bool passive,
                           const amqp_table_t *args) {
    const amqp_queue_declare_ok_t *ok;

    if (session_open_side(s)) {
        ok = amqp_queue_declare(s->conn, 2, amqp_cstring_bytes(queue), passive, 1, 0, 0,
                                args == NULL ? amqp_empty_table : *args);
        if (rabbit_session_ok(s, amqp_get_rpc_reply(s->conn), 2, "")) {
            s->consumers = ok->consumer_count;
            s->messages = ok->message_count;
            amqp_maybe_release_buffers_on_channel(s->conn, 2);
            return 0;
        }
    }
    return s->conn == NULL ? -1 : s->code;
}

/* Looks. */

/* A property that the server sent at the login; "" if it did not. */
static void session_read_property(const struct rabbit_session *s, const char *name, char *buf,
                                  size_t size) {
    const amqp_table_t *properties = amqp_get_server_properties(s->conn);

    buf[0] = '\0';
    for (int i = 0; i < properties->num_entries; i++)
        if (rabbit_is(properties->entries[i].key, name) &&
            properties->entries[i].value.kind == AMQP_FIELD_KIND_UTF8)
            rabbit_session_clean(properties->entries[i].value.value.bytes, buf, size);
}

/* All of RabbitMQ's queue types support a consumer's credit from 3.9 on; 4.0 would send
   messages. */
static bool session_has_credit(const struct rabbit_session *s) {
    char product[16], version[16];

    session_read_property(s, "product", product, sizeof(product));
    session_read_property(s, "version", version, sizeof(version));
    return strcmp(product, "RabbitMQ") == 0 && idem_text_begins(version, "3.") &&
           strtoul(version + 2, NULL, 10) >= 9;
}

bool rabbit_session_look(struct rabbit_session *s, const char *queue) {
    amqp_table_entry_t none[] = {
        {.key = amqp_cstring_bytes("credit"), .value.kind = AMQP_FIELD_KIND_I64},
        {.key = amqp_cstring_bytes("drain"), .value.kind = AMQP_FIELD_KIND_BOOLEAN},
    };
    amqp_table_entry_t credit = {.key = amqp_cstring_bytes("x-credit"),
                                 .value.kind = AMQP_FIELD_KIND_TABLE};
    amqp_table_t args = {.num_entries = 1, .entries = &credit};

    credit.value.value.table = (amqp_table_t){.num_entries = 2, .entries = none};
    if (!session_has_credit(s) || !session_open_side(s))
        return false;
    (void)amqp_basic_consume(s->conn, 2, amqp_cstring_bytes(queue), amqp_empty_bytes, 0, 0, 0,
                             args);
    return rabbit_session_ok(s, amqp_get_rpc_reply(s->conn), 2, "consuming");
}

void rabbit_session_look_end(struct rabbit_session *s) {
    if (s->conn == NULL || !s->side)
        return;
    s->side = false;
    (void)rabbit_session_ok(s, amqp_channel_close(s->conn, 2, AMQP_REPLY_SUCCESS), 2, "channel");
}
