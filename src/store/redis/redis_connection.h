/*
 * Inside the Redis driver: configuration, buffers, replies, connections, records and scripts.
 */
#ifndef IDEM_STORE_REDIS_REDIS_CONNECTION_H
#define IDEM_STORE_REDIS_REDIS_CONNECTION_H

#include <hiredis/read.h>
#include <stdarg.h>
#include <sys/socket.h>

#include "base/buffer.h"
#include "base/hash.h"
#include "store/store_url.h"

/*
 *     redis_driver.c       open, close, counts (store/remote.c has what SQL stores need as well)
 *     redis_op.c           operations: sending, and what a reply means for them
 *     redis_command.c      an operation as commands, and its replies as a result
 *     redis_scan.c         list and stats: SCAN, page by page; the position of a
 *                          list between two calls
 *     redis_record.c       the record in bytes
 *     redis_script.c       the protocol as scripts that run inside the server
 *     redis_node.c         one server: its command connection, greeting and checks
 *     redis_replication.c  replies that wait until replicas have the change
 *     redis_wake.c         the connection that carries wake-ups
 *     redis_sentinel.c     finds the master, and detects failovers; the events of a failover, as
 *                          sentinels publish them
 *     redis_resolve.c      detects that a name has a new address; name lookups in a thread
 *     redis_cluster.c      the map of slots to servers, and redirections
 *     redis_connection.c   a connection: resolve, connect, TLS, write, read, reconnect
 *     redis_resp.c         commands as bytes, replies as trees, and their limits
 *     redis_tls.c          TLS over bytes in memory
 *     redis_config.c       the URL
 *
 * A record is one string under prefix + 64 hex digits. The channel of its wake-ups has the same
 * name, so both are in one slot.
 */

/* Config. */

#define REDIS_HOSTS_MAX 16
#define REDIS_PORT 6379
#define REDIS_SENTINEL_PORT 26379

enum redis_kind { REDIS_STANDALONE, REDIS_SENTINEL, REDIS_CLUSTER };

struct redis_config {
    enum redis_kind kind;
    struct idem_host_name hosts[REDIS_HOSTS_MAX];
    size_t hosts_n;
    char *user, *password;                   /* NULL: none */
    char *sentinel_user, *sentinel_password; /* NULL: none */
    char *master;                            /* SENTINEL: the master's name */
    int replicas;                            /* that must have a change before it is acknowledged */
    int64_t sentinel_grace_ms; /* claims are granted for this long while no sentinel responds */
    int db;
    bool db_given;
    bool tls, tls_verify;
    char *tls_ca, *tls_cert, *tls_key, *tls_name; /* NULL: the system's, none, none, the host's */
    bool unsafe;
    int64_t connect_timeout_ms, timeout_ms;
    char *name;
};

int redis_config_read(const struct idem_url *url, struct redis_config *ret, struct idem_error *err);
void redis_config_release(struct redis_config *config);

/* Builds a command in the server's protocol: first the head with the number of parts, then each
   part. */
void redis_put_head(struct idem_buffer *buffer, size_t parts);
void redis_put_part(struct idem_buffer *buffer, const void *bytes, size_t len);
void redis_put_text(struct idem_buffer *buffer, const char *text);
void redis_put_number(struct idem_buffer *buffer, int64_t number);
/* Adds a complete command made of texts; NULL ends the list. */
void redis_put_command(struct idem_buffer *buffer, ...) __attribute__((sentinel));
void redis_put_command_of(struct idem_buffer *buffer, va_list texts);

/* Replies, as the reader builds them. */

struct redis_reply {
    int type;    /* REDIS_REPLY_STRING, ... of hiredis/read.h */
    bool shared; /* it lies in shared bytes, because its text is long */
    long long integer;
    char *text; /* with a terminating NUL that `len` does not count */
    size_t len;
    struct redis_reply **items;
    size_t items_n;
};
/* The memory of the reply and of its text, for a reference by a user that needs the text for longer
   than the reply lives; NULL: the text is short, and has to be copied. */
struct idem_shared_bytes *redis_reply_shared(const struct redis_reply *reply);
void redis_reply_free(struct redis_reply *reply);
bool redis_reply_is(const struct redis_reply *reply, const char *error_word);

/* Limits of one reply, whatever the server sends. Parts take memory when they arrive, not when
   the server announces them. */
#define REDIS_REPLY_BYTES_MAX ((size_t)160 << 20) /* the longest result and its frame */
#define REDIS_REPLY_PARTS_MAX ((size_t)1 << 20)   /* many times a list's page, or a map of slots */
#define REDIS_REPLY_LINE_MAX ((size_t)1 << 16)    /* searched again as bytes arrive */

struct redis_reader {
    redisReader *hiredis;
    size_t bytes, parts; /* of the incomplete reply */
    const char *why;     /* set when the reader is broken */
};
struct redis_reader *redis_reader_new(void); /* NULL: no memory */
void redis_reader_free(struct redis_reader *reader);
/* Adds bytes; false without memory. */
bool redis_reader_feed(struct redis_reader *reader, const char *bytes, size_t len);
/* Sets *ret to the next reply, which the caller owns, or to NULL if none is complete. False: the
   bytes are not a reply or exceed a limit; reader->why has the reason. */
bool redis_reader_next(struct redis_reader *reader, struct redis_reply **ret);

/* Connections. */

struct redis_tls;
struct redis_tls_config;

/* Makes the context that all connections of a store share; NULL without TLS. */
int redis_tls_config_new(const struct redis_config *config, struct redis_tls_config **ret,
                         struct idem_error *err);
void redis_tls_config_free(struct redis_tls_config *config);
struct redis_tls *redis_tls_new(struct redis_tls_config *config, const char *host);
void redis_tls_free(struct redis_tls *tls);
/* Both functions move as many bytes as they can. `out` gets bytes for the socket, `plain` those
   for the reader. False: the session is broken; *ret_why has the reason. */
bool redis_tls_receive(struct redis_tls *tls, const char *bytes, size_t len,
                       struct idem_buffer *plain, struct idem_buffer *out, const char **ret_why);
/* *ret_taken is the number of bytes taken; send the rest after the next redis_tls_receive(). */
bool redis_tls_send(struct redis_tls *tls, const char *bytes, size_t len, struct idem_buffer *out,
                    size_t *ret_taken, const char **ret_why);
bool redis_tls_begin(struct redis_tls *tls, struct idem_buffer *out, const char **ret_why);
bool redis_tls_ready(const struct redis_tls *tls);

#define REDIS_ADDRESSES_MAX 32 /* per name; a lookup with this many may be incomplete */

/* A lookup of a name, in a thread. */
struct redis_resolve {
    struct idem_offload *offload; /* NULL: none */
    struct redis_lookup *lookup;
};
struct redis_addresses {
    struct sockaddr_storage at[REDIS_ADDRESSES_MAX];
    size_t n;        /* 0: it failed, for this reason: */
    const char *why; /* static */
};
/* `done` runs from the loop, and calls redis_resolve_end(). A lookup that is cancelled before
   leaves its thread to itself. 0, or a code. */
int redis_resolve_begin(struct redis_resolve *resolve, struct idem_loop *loop,
                        const struct idem_host_name *host, void (*done)(void *data), void *data,
                        struct idem_error *err);
struct redis_addresses redis_resolve_end(struct redis_resolve *resolve);
void redis_resolve_cancel(struct redis_resolve *resolve); /* no effect without one */

struct redis_conn;
struct redis_taking;
typedef void redis_reply_fn(struct redis_conn *conn, void *data, const struct redis_reply *reply);

/* A pending reply; `take` gets NULL if the connection was lost before the reply arrived. */
struct redis_pending {
    redis_reply_fn *take;
    void *data;
};

enum redis_conn_state {
    REDIS_CONN_OFF,
    REDIS_CONN_RESOLVING,
    REDIS_CONN_CONNECTING,
    REDIS_CONN_SHAKING,  /* TLS */
    REDIS_CONN_GREETING, /* the replies to `greet` are pending */
    REDIS_CONN_READY,
    REDIS_CONN_PAUSING, /* until the next attempt */
};

/* The purpose of a connection, as callbacks. */
struct redis_role {
    void (*greet)(
        struct redis_conn *conn); /* sends commands; later calls redis_conn_ready() or _fail() */
    void (*refused)(struct redis_conn *conn,
                    const char *why); /* by the server: fails the connection; NULL: only that */
    void (*lost)(struct redis_conn *conn); /* runs after all pending replies got NULL; the
                                              connection tries again unless closed here. conn->why
                                              has the reason. NULL: nothing to do */
    void (*push)(struct redis_conn *conn,
                 const struct redis_reply *reply); /* a reply without a pending command; or NULL */
};

struct redis_conn {
    const struct redis_role *role;
    void *data; /* for the role */
    struct idem_loop *loop;
    const struct redis_config *config;
    struct redis_tls_config *tls_config;
    struct idem_host_name host;
    char place[280]; /* the same, for messages */
    bool sentinel;   /* it leads to a sentinel: another user, no database */

    enum redis_conn_state state;
    struct idem_fd fd;
    struct idem_timer timer;
    struct redis_resolve resolve;
    struct sockaddr_storage addresses[8];
    size_t addresses_n, address_at;
    int64_t connect_ms;    /* limit of an attempt to connect: the config's, or less */
    int64_t connect_until; /* deadline of the current attempt */
    struct redis_tls *tls;
    struct redis_reader *reader;
    struct idem_buffer out, cipher; /* cipher: with TLS, the bytes for the socket */
    size_t out_at, cipher_at;
    struct redis_pending *pending; /* a ring of `pending_size`, a power of two */
    size_t pending_size, pending_first, pending_n;
    int64_t last_read;   /* when bytes arrived last, or the oldest pending command was sent */
    unsigned tries;      /* since the last steady connection */
    int64_t ready_since; /* 0: not ready */
    bool silent;         /* closed because no reply arrived in time */
    bool was_ready;      /* when the connection was lost */
    struct redis_taking *taking; /* the reply that a callback is using; NULL: none */
    bool watching_write;
    bool *gone; /* set when the connection is closed inside its own callback */
    int code;   /* of the last failure */
    char why[200];
};

/* True for an address or a socket's path, which need no lookup. */
bool redis_host_is_address(const struct idem_host_name *host);
void redis_conn_init(struct redis_conn *conn, struct idem_loop *loop,
                     const struct redis_config *config, struct redis_tls_config *tls,
                     const struct idem_host_name *host, const struct redis_role *role, void *data);
/* Sets another host; the connection must be off. */
void redis_conn_move(struct redis_conn *conn, const struct idem_host_name *host);
/* Starts at once, unless an attempt or a pause is under way. */
void redis_conn_open(struct redis_conn *conn);
/* Closes without callbacks: no pending reply is notified. */
void redis_conn_close(struct redis_conn *conn);
/* Treats the connection as lost; the next attempt follows after a pause. */
void redis_conn_fail(struct redis_conn *conn, int code, const char *why, ...)
    __attribute__((format(printf, 3, 4)));
/* The server refuses the connection, which fails. */
void redis_conn_refuse(struct redis_conn *conn, const char *why);
void redis_conn_ready(struct redis_conn *conn);
/* True while an attempt to connect is under way. */
bool redis_conn_is_made(const struct redis_conn *conn);
/* Returns the pause before the next attempt, after `tries` attempts. It grows from about 10 ms
   to 500 ms; half of it is random. */
int64_t redis_pause_ms(unsigned tries);
/* Queues the bytes of one command, and `take` for its reply; redis_conn_flush() sends them.
   False without memory, or while the connection is neither greeting nor ready. */
bool redis_conn_send(struct redis_conn *conn, const char *bytes, size_t len, redis_reply_fn *take,
                     void *data);
/* The same for a command made of texts; NULL ends the list. */
bool redis_conn_command(struct redis_conn *conn, redis_reply_fn *take, void *data, ...)
    __attribute__((sentinel));
void redis_conn_flush(struct redis_conn *conn);
/* Reads pending bytes without waiting for the loop: the host may have been suspended. */
void redis_conn_pump(struct redis_conn *conn);
/* Inside a redis_reply_fn: makes its reply the caller's, to be freed with redis_reply_free(). */
struct redis_reply *redis_conn_hold(struct redis_conn *conn);

/* Records. */

#define REDIS_NAME_MAX (IDEM_PREFIX_MAX + 2 * IDEM_HASH_LEN)
#define REDIS_HEAD_LEN 96
#define REDIS_PRIOR_LEN 52
#define REDIS_MS_MAX ((int64_t)1 << 52) /* greater than any valid time or life */

/* Writes the record's name in the store; returns its length. */
size_t redis_name(const struct idem_record_key *key, char out[REDIS_NAME_MAX]);
/* Parses such a name; false: it is not one of ours. */
bool redis_name_parse(const char *name, size_t len, struct idem_record_key *ret);

/* True if the bytes look like a record of this version or a later one. */
bool redis_record_is(const unsigned char *bytes, size_t len);
/* `now` and `left` (the rest of the record's life) are in the server's ms. Returns 0,
   IDEM_E_CORRUPT or IDEM_E_VERSION. */
int redis_record_decode(struct idem_bytes bytes, int64_t now, int64_t left,
                        struct idem_record *ret);
/* Reads the state from the head alone, and if a lease is live. False: the record is unreadable. */
bool redis_record_glance(const unsigned char *bytes, size_t len, int64_t left,
                         enum idem_state *ret_state, bool *ret_live);
/* Writes the first 28 bytes, up to the owner; the prior state is absent. */
void redis_record_begin(const struct idem_record *record, struct idem_buffer *out);
/* Writes a first run; for a claim of an absent key. */
void redis_record_first(const struct idem_claim_in *in, struct idem_buffer *out);

/* Scripts. */

enum redis_script {
    REDIS_SCRIPT_CLAIM,
    REDIS_SCRIPT_FINISH,
    REDIS_SCRIPT_ISSUE,
    REDIS_SCRIPT_COUNT,
    REDIS_SCRIPT_LOOK,
    REDIS_SCRIPT_SETTLE,
    REDIS_SCRIPT_FORGET,
    REDIS_SCRIPT__COUNT
};

struct redis_scripts {
    char *text[REDIS_SCRIPT__COUNT];
    char sha[REDIS_SCRIPT__COUNT][41];
};

/* `publish` is the command that wakes waiters: PUBLISH or SPUBLISH. */
int redis_scripts_make(const char *publish, struct redis_scripts *ret, struct idem_error *err);
void redis_scripts_release(struct redis_scripts *scripts);

#endif
