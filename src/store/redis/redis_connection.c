/*
 * One connection, in all its states. Silence longer than the config allows, while a reply is
 * pending, counts as lost.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/error.h"
#include "store/redis/redis_connection.h"

/*
 *     OFF ──open──> RESOLVING ──> CONNECTING ──> SHAKING ──> GREETING ──> READY
 *                    ^    │           │ (TLS)       │            │          │
 *                    │    └───────────┴───── lost ──┴────────────┴──────────┤
 *                    └──────────────── PAUSING <────────────────────────────┘
 *
 * Each attempt looks the name up again and tries every address, each for its share of the remaining
 * time, before the connection counts as lost. The first two attempts after a steady connection
 * follow at once. Then the pause grows from 50 to 500 ms; half of it is random, so that the clients
 * of a restarted server do not connect at the same time.
 *
 * Reading and writing go on until the kernel has no more, so that level- and edge-triggered loops
 * both work.
 */

#define PAUSE_FIRST_MS 10
#define PAUSE_MIN_MS 50
#define PAUSE_MAX_MS 500
#define STEADY_MS 1000 /* a connection that was ready for so long is reopened at once */
#define READ_SIZE 65536
#define GRACE_MS 200 /* extra time for a connection in progress while the host was suspended */

static void connection_resolve(struct redis_conn *conn);
static void connection_set_timer(struct redis_conn *conn, size_t shares);
static void connection_connect(struct redis_conn *conn);

static void connection_set_state(struct redis_conn *conn, enum redis_conn_state state) {
    static const unsigned from[] = {
#define IN(state) 1u << REDIS_CONN_##state
        [REDIS_CONN_OFF] = ~0u,
        [REDIS_CONN_RESOLVING] = IN(OFF) | IN(PAUSING),
        [REDIS_CONN_CONNECTING] = IN(RESOLVING) | IN(CONNECTING) | IN(OFF) | IN(PAUSING),
        [REDIS_CONN_SHAKING] = IN(CONNECTING),
        [REDIS_CONN_GREETING] = IN(CONNECTING) | IN(SHAKING),
        [REDIS_CONN_READY] = IN(GREETING),
        [REDIS_CONN_PAUSING] =
            IN(RESOLVING) | IN(CONNECTING) | IN(SHAKING) | IN(GREETING) | IN(READY) | IN(OFF),
#undef IN
    };

    if ((from[state] & 1u << conn->state) == 0)
        abort();
    conn->state = state;
}

/* Pending replies. */

static bool connection_pending_grow(struct redis_conn *conn) {
    size_t size = conn->pending_size == 0 ? 64 : 2 * conn->pending_size;
    struct redis_pending *pending = malloc(size * sizeof(*pending));

    if (pending == NULL)
        return false;
    for (size_t i = 0; i < conn->pending_n; i++)
        pending[i] = conn->pending[(conn->pending_first + i) & (conn->pending_size - 1)];
    free(conn->pending);
    conn->pending = pending;
    conn->pending_size = size;
    conn->pending_first = 0;
    return true;
}

static bool connection_pending_push(struct redis_conn *conn, struct redis_pending next) {
    if (conn->pending_n == conn->pending_size && !connection_pending_grow(conn))
        return false;
    conn->pending[(conn->pending_first + conn->pending_n++) & (conn->pending_size - 1)] = next;
    return true;
}

static struct redis_pending connection_pending_pop(struct redis_conn *conn) {
    struct redis_pending next = conn->pending[conn->pending_first];

    conn->pending_first = (conn->pending_first + 1) & (conn->pending_size - 1);
    conn->pending_n--;
    return next;
}

/* Callbacks may close or free the connection; *gone is set then. */

struct watcher {
    bool gone, *outer;
};

static void connection_watch_begin(struct redis_conn *conn, struct watcher *watcher) {
    watcher->gone = false;
    watcher->outer = conn->gone;
    conn->gone = &watcher->gone;
}

/* True if the connection was closed: do not use it any more. */
static bool connection_watch_end(struct redis_conn *conn, const struct watcher *watcher) {
    if (!watcher->gone) {
        conn->gone = watcher->outer;
        return false;
    }
    if (watcher->outer != NULL)
        *watcher->outer = true;
    return true;
}

/* Closing. */

static void connection_drop_socket(struct redis_conn *conn) {
    if (conn->fd.fd >= 0) {
        idem_loop_unwatch(conn->loop, &conn->fd);
        close(conn->fd.fd);
        conn->fd.fd = -1;
    }
    redis_resolve_cancel(&conn->resolve);
    redis_tls_free(conn->tls);
    conn->tls = NULL;
    redis_reader_free(conn->reader);
    conn->reader = NULL;
    idem_buffer_release(&conn->out);
    idem_buffer_release(&conn->cipher);
    conn->out_at = conn->cipher_at = 0;
    conn->watching_write = false;
}

void redis_conn_close(struct redis_conn *conn) {
    if (conn->gone != NULL)
        *conn->gone = true;
    conn->gone = NULL;
    conn->taking = NULL;
    idem_timer_clear(conn->loop, &conn->timer);
    connection_drop_socket(conn);
    free(conn->pending);
    conn->pending = NULL;
    conn->pending_size = conn->pending_first = conn->pending_n = 0;
    connection_set_state(conn, REDIS_CONN_OFF);
}

int64_t redis_pause_ms(unsigned tries) {
    int64_t pause = tries < 2 ? PAUSE_FIRST_MS : PAUSE_MIN_MS;
    uint32_t random = 0;

    for (unsigned i = 2; i < tries && pause < PAUSE_MAX_MS; i++)
        pause *= 2;
    if (pause > PAUSE_MAX_MS)
        pause = PAUSE_MAX_MS;
    (void)idem_random(&random, sizeof(random));
    return pause / 2 + (int64_t)(random % (uint32_t)(pause / 2 + 1));
}

/* Notifies every pending reply, then the role; either may close the connection. */
static void connection_lose(struct redis_conn *conn) {
    struct watcher watcher;
    struct redis_pending next;

    conn->was_ready = conn->state == REDIS_CONN_READY;
    if (conn->ready_since != 0 && idem_loop_now() - conn->ready_since >= STEADY_MS)
        conn->tries = 0;
    conn->ready_since = 0;
    connection_drop_socket(conn);
    connection_set_state(conn, REDIS_CONN_PAUSING);
    idem_timer_set(conn->loop, &conn->timer, redis_pause_ms(conn->tries));
    if (conn->tries < 16)
        conn->tries++;
    connection_watch_begin(conn, &watcher);
    while (!watcher.gone && conn->pending_n > 0) {
        next = connection_pending_pop(conn);
        next.take(conn, next.data, NULL);
    }
    if (!watcher.gone && conn->role->lost != NULL)
        conn->role->lost(conn);
    (void)connection_watch_end(conn, &watcher);
}

void redis_conn_fail(struct redis_conn *conn, int code, const char *why, ...) {
    va_list args;

    va_start(args, why);
    vsnprintf(conn->why, sizeof(conn->why), why, args);
    va_end(args);
    conn->code = code;
    connection_lose(conn);
}

void redis_conn_refuse(struct redis_conn *conn, const char *why) {
    if (conn->role->refused != NULL)
        conn->role->refused(conn, why);
    else
        redis_conn_fail(conn, IDEM_E_REFUSED, "%s", why);
}

/* Tries the next address of the name; without one the connection is lost. */
static void connection_try_next(struct redis_conn *conn, int why) {
    connection_drop_socket(conn);
    conn->address_at++;
    if (conn->address_at < conn->addresses_n) {
        connection_connect(conn);
        return;
    }
    redis_conn_fail(conn, IDEM_E_REFUSED, "cannot be reached: %s", strerror(why));
}

/* Writing. */

static bool connection_encrypt(struct redis_conn *conn) {
    const char *why = NULL;
    size_t taken;

    if (conn->out_at == conn->out.len)
        return true;
    if (!redis_tls_send(conn->tls, conn->out.at + conn->out_at, conn->out.len - conn->out_at,
                        &conn->cipher, &taken, &why)) {
        redis_conn_fail(conn, IDEM_E_REFUSED, "%s", why == NULL ? "TLS" : why);
        return false;
    }
    conn->out_at += taken;
    if (conn->out_at == conn->out.len) /* the rest is sent after the server's next bytes */
        conn->out_at = conn->out.len = 0;
    return true;
}

static int connection_watch_write(struct redis_conn *conn, bool write) {
    if (conn->watching_write == write)
        return 0;
    conn->watching_write = write;
    return idem_loop_watch(conn->loop, &conn->fd, IDEM_READ | (write ? IDEM_WRITE : 0));
}

/* Writes as much as the kernel takes; false if the connection was lost. */
static bool connection_write(struct redis_conn *conn, struct idem_buffer *buffer, size_t *at) {
    ssize_t n;

    while (*at < buffer->len) {
        n = send(conn->fd.fd, buffer->at + *at, buffer->len - *at, MSG_NOSIGNAL);
        if (n > 0) {
            *at += (size_t)n;
        } else if (n < 0 && errno == EINTR) {
            continue;
        } else if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
            (void)connection_watch_write(conn, true);
            return true;
        } else {
            redis_conn_fail(conn, IDEM_E_REFUSED, "the connection was lost: %s", strerror(errno));
            return false;
        }
    }
    *at = buffer->len = 0;
    if (buffer->size > 1 << 20)
        idem_buffer_release(buffer);
    (void)connection_watch_write(conn, false);
    return true;
}

void redis_conn_flush(struct redis_conn *conn) {
    if (conn->fd.fd < 0 || conn->state < REDIS_CONN_SHAKING || conn->state > REDIS_CONN_READY)
        return;
    if (conn->out.failed || conn->cipher.failed) {
        redis_conn_fail(conn, IDEM_E_NOMEM, "no memory for what is to be sent");
        return;
    }
    if (conn->tls == NULL)
        (void)connection_write(conn, &conn->out, &conn->out_at);
    else if (!redis_tls_ready(conn->tls) || connection_encrypt(conn))
        (void)connection_write(conn, &conn->cipher, &conn->cipher_at);
}

bool redis_conn_send(struct redis_conn *conn, const char *bytes, size_t len, redis_reply_fn *take,
                     void *data) {
    if (conn->state != REDIS_CONN_GREETING && conn->state != REDIS_CONN_READY)
        return false;
    if (take != NULL && !connection_pending_push(conn, (struct redis_pending){take, data}))
        return false;
    idem_buffer_put(&conn->out, bytes, len);
    if (conn->state == REDIS_CONN_READY && conn->pending_n == 1) {
        conn->last_read = idem_loop_now();
        if (conn->timer.link == NULL) /* a running timer rechecks `last_read` */
            idem_timer_set(conn->loop, &conn->timer, conn->config->timeout_ms);
    }
    return true;
}

bool redis_conn_command(struct redis_conn *conn, redis_reply_fn *take, void *data, ...) {
    va_list texts;

    if (!redis_conn_send(conn, "", 0, take, data))
        return false;
    va_start(texts, data);
    redis_put_command_of(&conn->out, texts);
    va_end(texts);
    return true;
}

/* Reading. */

/* A reply that a callback is using. It is apart from the connection, which the callback may
   free. */
struct redis_taking {
    struct redis_reply *reply;  /* NULL: the callback keeps it */
    struct redis_taking *outer; /* of the outer callback, if that runs the loop; else NULL */
};

/* Passes one reply to its callback; false if the connection was closed or lost. */
static bool connection_take_reply(struct redis_conn *conn, struct redis_reply *reply) {
    struct redis_reader *reader = conn->reader;
    struct redis_taking taking = {.reply = reply, .outer = conn->taking};
    struct watcher watcher;
    struct redis_pending next;
    bool gone;

    connection_watch_begin(conn, &watcher);
    conn->taking = &taking;
    if (conn->role->push != NULL && conn->pending_n == 0) {
        conn->role->push(conn, reply);
    } else if (conn->pending_n == 0) {
        redis_conn_fail(conn, IDEM_E_REFUSED, "the server answered what was not asked");
    } else {
        next = connection_pending_pop(conn);
        next.take(conn, next.data, reply);
    }
    gone = connection_watch_end(conn, &watcher);
    redis_reply_free(taking.reply);
    if (gone)
        return false;
    conn->taking = taking.outer;
    return conn->reader == reader;
}

struct redis_reply *redis_conn_hold(struct redis_conn *conn) {
    struct redis_reply *reply = conn->taking->reply;

    conn->taking->reply = NULL;
    return reply;
}

static bool connection_read_replies(struct redis_conn *conn) {
    struct redis_reply *reply = NULL;

    while (redis_reader_next(conn->reader, &reply)) {
        if (reply == NULL)
            return true;
        if (!connection_take_reply(conn, reply))
            return false;
    }
    redis_conn_fail(conn, IDEM_E_REFUSED, "the server's reply is not in its protocol: %.100s",
                    conn->reader->why);
    return false;
}

static void connection_greet(struct redis_conn *conn) {
    connection_set_state(conn, REDIS_CONN_GREETING);
    conn->role->greet(conn);
}

/* Feeds the bytes to the reader; false if the connection was lost. */
static bool connection_take_plain(struct redis_conn *conn, const char *bytes, size_t len) {
    if (!redis_reader_feed(conn->reader, bytes, len)) {
        redis_conn_fail(conn, IDEM_E_NOMEM, "no memory for a response");
        return false;
    }
    return connection_read_replies(conn);
}

static bool connection_take_cipher(struct redis_conn *conn, const char *bytes, size_t len) {
    struct idem_buffer plain = {0};
    const char *why = NULL;
    bool ready = redis_tls_ready(conn->tls), alive;

    if (!redis_tls_receive(conn->tls, bytes, len, &plain, &conn->cipher, &why) || plain.failed) {
        redis_conn_fail(conn, IDEM_E_REFUSED, "%s", why == NULL ? "TLS: no memory" : why);
        idem_buffer_release(&plain);
        return false;
    }
    if (!ready && redis_tls_ready(conn->tls))
        connection_greet(conn);
    if (conn->tls == NULL) { /* the greeting closed the connection */
        idem_buffer_release(&plain);
        return false;
    }
    alive = plain.len == 0 || connection_take_plain(conn, plain.at, plain.len);
    idem_buffer_release(&plain);
    return alive;
}

static void connection_read(struct redis_conn *conn) {
    char buf[READ_SIZE];
    ssize_t n;

    for (;;) {
        n = recv(conn->fd.fd, buf, sizeof(buf), 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            break;
        if (n <= 0) {
            redis_conn_fail(conn, IDEM_E_REFUSED, "the connection was lost: %s",
                            n == 0 ? "the server closed it" : strerror(errno));
            return;
        }
        conn->last_read = idem_loop_now();
        if (conn->tls != NULL ? !connection_take_cipher(conn, buf, (size_t)n)
                              : !connection_take_plain(conn, buf, (size_t)n))
            return;
    }
    redis_conn_flush(conn);
}

/* Connecting. */

static void connection_begin(struct redis_conn *conn) {
    const char *why = NULL;

    conn->reader = redis_reader_new();
    if (conn->reader == NULL) {
        redis_conn_fail(conn, IDEM_E_NOMEM, "no memory for a connection");
        return;
    }
    (void)connection_watch_write(conn, false);
    connection_set_timer(conn, 1);
    if (conn->tls_config == NULL) {
        connection_greet(conn);
        redis_conn_flush(conn);
        return;
    }
    connection_set_state(conn, REDIS_CONN_SHAKING);
    conn->tls = redis_tls_new(conn->tls_config, conn->host.name);
    if (conn->tls == NULL)
        redis_conn_fail(conn, IDEM_E_NOMEM, "no memory for TLS");
    else if (!redis_tls_begin(conn->tls, &conn->cipher, &why))
        redis_conn_fail(conn, IDEM_E_REFUSED, "%s", why);
    else
        redis_conn_flush(conn);
}

static void connection_socket_ready(struct idem_fd *fd, int events) {
    struct redis_conn *conn = idem_container_of(fd, struct redis_conn, fd);
    struct watcher watcher;
    int why = 0;
    socklen_t len = sizeof(why);

    if (conn->state == REDIS_CONN_CONNECTING) {
        if ((events & IDEM_WRITE) == 0)
            return;
        if (getsockopt(fd->fd, SOL_SOCKET, SO_ERROR, &why, &len) < 0)
            why = errno;
        if (why != 0)
            connection_try_next(conn, why);
        else
            connection_begin(conn);
        return;
    }
    if ((events & IDEM_WRITE) != 0) {
        connection_watch_begin(conn, &watcher);
        redis_conn_flush(conn);
        if (connection_watch_end(conn, &watcher) || conn->fd.fd < 0)
            return;
    }
    if ((events & IDEM_READ) != 0)
        connection_read(conn);
}

static socklen_t connection_address_len(const struct sockaddr_storage *address) {
    switch (address->ss_family) {
    case AF_INET:
        return sizeof(struct sockaddr_in);
    case AF_INET6:
        return sizeof(struct sockaddr_in6);
    default:
        return sizeof(struct sockaddr_un);
    }
}

/* Sets the timer to the remaining time of the attempt, divided by `shares`. */
static void connection_set_timer(struct redis_conn *conn, size_t shares) {
    int64_t left = (conn->connect_until - idem_loop_now()) / (int64_t)shares;

    idem_timer_set(conn->loop, &conn->timer, left > 1 ? left : 1);
}

static void connection_connect(struct redis_conn *conn) {
    const struct sockaddr_storage *address = &conn->addresses[conn->address_at];
    int one = 1, fd = socket(address->ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    if (conn->state != REDIS_CONN_CONNECTING)
        connection_set_state(conn, REDIS_CONN_CONNECTING);
    connection_set_timer(conn, conn->addresses_n - conn->address_at);
    if (fd < 0) {
        connection_try_next(conn, errno);
        return;
    }
    if (address->ss_family != AF_UNIX) {
        (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
        (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one));
    }
    conn->fd.fd = fd;
    conn->fd.ready = connection_socket_ready;
    conn->watching_write = true;
    if (idem_loop_watch(conn->loop, &conn->fd, IDEM_READ | IDEM_WRITE) != 0) {
        connection_try_next(conn, EMFILE);
        return;
    }
    /* The loop reports an immediate connection as well. */
    if (connect(fd, (const struct sockaddr *)address, connection_address_len(address)) < 0 &&
        errno != EINPROGRESS)
        connection_try_next(conn, errno);
}

static void connection_resolved(void *data) {
    struct redis_conn *conn = data;
    struct redis_addresses found = redis_resolve_end(&conn->resolve);
    size_t max = sizeof(conn->addresses) / sizeof(conn->addresses[0]);

    if (found.n == 0) {
        redis_conn_fail(conn, IDEM_E_REFUSED, "its name cannot be looked up: %s", found.why);
        return;
    }
    conn->addresses_n = found.n < max ? found.n : max;
    memcpy(conn->addresses, found.at, conn->addresses_n * sizeof(found.at[0]));
    conn->address_at = 0;
    connection_connect(conn);
}

/* An address or a socket's path needs no lookup in a thread. */
static bool connection_address_parse(const struct idem_host_name *host,
                                     struct sockaddr_storage *ret) {
    struct sockaddr_un *path = (struct sockaddr_un *)ret;
    struct sockaddr_in *four = (struct sockaddr_in *)ret;
    struct sockaddr_in6 *six = (struct sockaddr_in6 *)ret;

    memset(ret, 0, sizeof(*ret));
    if (host->port == 0) {
        path->sun_family = AF_UNIX;
        memcpy(path->sun_path, host->name,
               sizeof(path->sun_path) - 1); /* redis_config.c has checked the length */
        return true;
    }
    if (inet_pton(AF_INET, host->name, &four->sin_addr) == 1) {
        four->sin_family = AF_INET;
        four->sin_port = htons(host->port);
        return true;
    }
    if (inet_pton(AF_INET6, host->name, &six->sin6_addr) == 1) {
        six->sin6_family = AF_INET6;
        six->sin6_port = htons(host->port);
        return true;
    }
    return false;
}

bool redis_host_is_address(const struct idem_host_name *host) {
    struct sockaddr_storage address;

    return connection_address_parse(host, &address);
}

static void connection_resolve(struct redis_conn *conn) {
    struct idem_error err = {0};

    conn->silent = false;
    conn->connect_until = idem_loop_now() + conn->connect_ms;
    connection_set_timer(conn, 1);
    if (connection_address_parse(&conn->host, &conn->addresses[0])) {
        conn->addresses_n = 1;
        conn->address_at = 0;
        connection_connect(conn);
        return;
    }
    connection_set_state(conn, REDIS_CONN_RESOLVING);
    if (redis_resolve_begin(&conn->resolve, conn->loop, &conn->host, connection_resolved, conn,
                            &err) != 0)
        redis_conn_fail(conn, err.code, "%s", err.text);
}

void redis_conn_pump(struct redis_conn *conn) {
    struct pollfd fd = {.fd = conn->fd.fd, .events = POLLIN};

    if (conn->fd.fd < 0)
        return;
    if (conn->state == REDIS_CONN_CONNECTING)
        fd.events = POLLOUT;
    /* Inside a callback of this connection, replies that were already read may be pending. */
    else if (conn->reader != NULL && !connection_read_replies(conn))
        return;
    if (poll(&fd, 1, 0) == 1)
        connection_socket_ready(&conn->fd, fd.events == POLLOUT ? IDEM_WRITE : IDEM_READ);
}

/* The timer fired. If unread bytes have arrived, the server was in time: true, and no failure. */
static bool connection_is_heard(struct redis_conn *conn) {
    enum redis_conn_state state = conn->state;
    int64_t last_read = conn->last_read;
    struct watcher watcher;

    connection_watch_begin(conn, &watcher);
    redis_conn_pump(conn);
    if (connection_watch_end(conn, &watcher))
        return true;
    if (conn->state == state && conn->last_read == last_read)
        return false;
    if (conn->state > REDIS_CONN_RESOLVING && conn->state < REDIS_CONN_READY)
        idem_timer_set(conn->loop, &conn->timer, GRACE_MS);
    return conn->state != REDIS_CONN_READY || conn->pending_n == 0;
}

static void connection_timer_fire(struct idem_timer *timer) {
    struct redis_conn *conn = idem_container_of(timer, struct redis_conn, timer);
    int64_t silent;

    if (conn->state == REDIS_CONN_PAUSING) {
        connection_resolve(conn);
        return;
    }
    if (connection_is_heard(conn))
        return;
    silent = idem_loop_now() - conn->last_read;
    if (conn->state == REDIS_CONN_CONNECTING && conn->address_at + 1 < conn->addresses_n) {
        connection_try_next(conn, ETIMEDOUT);
    } else if (conn->state != REDIS_CONN_READY) {
        conn->silent = true;
        redis_conn_fail(conn, IDEM_E_REFUSED, "there was no response within %lld ms%s",
                        (long long)conn->connect_ms,
                        conn->state == REDIS_CONN_SHAKING ? "; does the server speak TLS?" : "");
    } else if (conn->pending_n > 0) {
        if (silent < conn->config->timeout_ms) {
            idem_timer_set(conn->loop, timer, conn->config->timeout_ms - silent);
            return;
        }
        conn->silent = true;
        redis_conn_fail(conn, IDEM_E_REFUSED, "there was no response within %lld ms",
                        (long long)conn->config->timeout_ms);
    }
}

void redis_conn_init(struct redis_conn *conn, struct idem_loop *loop,
                     const struct redis_config *config, struct redis_tls_config *tls,
                     const struct idem_host_name *host, const struct redis_role *role, void *data) {
    *conn = (struct redis_conn){
        .role = role,
        .data = data,
        .loop = loop,
        .config = config,
        .tls_config = tls,
        .connect_ms = config->connect_timeout_ms,
        .fd.fd = -1,
        .timer.fire = connection_timer_fire,
    };
    redis_conn_move(conn, host);
}

void redis_conn_move(struct redis_conn *conn, const struct idem_host_name *host) {
    bool six = strchr(host->name, ':') != NULL;

    conn->host = *host;
    if (host->port == 0)
        snprintf(conn->place, sizeof(conn->place), "%s", host->name);
    else
        snprintf(conn->place, sizeof(conn->place), "%s%s%s:%u", six ? "[" : "", host->name,
                 six ? "]" : "", host->port);
}

void redis_conn_open(struct redis_conn *conn) {
    if (conn->state == REDIS_CONN_OFF)
        connection_resolve(conn);
}

bool redis_conn_is_made(const struct redis_conn *conn) {
    return conn->state >= REDIS_CONN_RESOLVING && conn->state < REDIS_CONN_READY;
}

void redis_conn_ready(struct redis_conn *conn) {
    connection_set_state(conn, REDIS_CONN_READY);
    conn->why[0] = '\0';
    conn->last_read = conn->ready_since = idem_loop_now();
    if (conn->pending_n > 0)
        idem_timer_set(conn->loop, &conn->timer, conn->config->timeout_ms);
    else
        idem_timer_clear(conn->loop, &conn->timer);
}
