/*
 * The Redis driver, inside.
 *
 *     driver.c    the driver's table: open, close, submit, deadlines, counts
 *     job.c       operations under way: sent, answered, sent again
 *     ops.c       an operation as commands, and its replies as an answer
 *     scan.c      list and stats: SCAN, page by page (scan.h)
 *     page.c      where a list stands between two calls
 *     record.c    the record in bytes
 *     script.c    the protocol as scripts that run inside the server
 *     node.c      one server: its command connection, its greeting, its checks
 *     wake.c      the connection that carries wake-ups
 *     sentinel.c  which server is the master
 *     cluster.c   which server has a slot, and redirections
 *     conn.c      a connection: resolve, connect, TLS, write, read, reconnect
 *     resp.c      commands as bytes, replies as trees, and what they may cost
 *     resolve.c   names, off the loop
 *     tls.c       TLS over bytes in memory
 *     config.c    the URL
 *
 * A record is one string under prefix + 64 hex digits; the channel of its
 * wake-ups has the same name, so that all that belongs to it is in one slot.
 */
#ifndef IDEM_STORE_REDIS_REDIS_H
#define IDEM_STORE_REDIS_REDIS_H

#include <hiredis/read.h>
#include <sys/socket.h>

#include "core/hash.h"
#include "store/reading.h"

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
    char *master;                            /* SENTINEL: its name */
    int db;
    bool db_said;
    bool tls, tls_verify;
    char *tls_ca, *tls_cert, *tls_key, *tls_name; /* NULL: the system's, none, none, the host's */
    bool unsafe;
    int64_t connect_timeout_ms, timeout_ms;
    char *client_name;
};

int redis_config_read(const struct idem_url *url, struct redis_config *ret, struct idem_error *err);
void redis_config_release(struct redis_config *config);

/* Bytes that wait to be written. */

struct redis_buffer {
    char *at;
    size_t len, size;
    bool failed; /* no memory: what is in it is not whole */
};
void redis_buffer_put(struct redis_buffer *buffer, const void *bytes, size_t len);
void redis_buffer_release(struct redis_buffer *buffer);

/* A command in the server's protocol: its head with the number of parts, then each part. */
void redis_put_head(struct redis_buffer *buffer, size_t parts);
void redis_put_part(struct redis_buffer *buffer, const void *bytes, size_t len);
void redis_put_text(struct redis_buffer *buffer, const char *text);
void redis_put_number(struct redis_buffer *buffer, int64_t number);
/* A whole one, of texts; ends with NULL. */
void redis_put_command(struct redis_buffer *buffer, ...) __attribute__((sentinel));

/* Replies, as the reader makes them. */

struct redis_reply {
    int type; /* REDIS_REPLY_STRING, ... of hiredis/read.h */
    long long integer;
    char *text; /* NUL-terminated besides */
    size_t len;
    struct redis_reply **items;
    size_t items_n;
};
void redis_reply_free(struct redis_reply *reply);
bool redis_reply_is(const struct redis_reply *reply, const char *error_word);

/* What a server may make us keep for one reply, whatever it says: so many bytes, and so many parts,
   which take memory when they come and not when they are announced. */
#define REDIS_REPLY_BYTES_MAX ((size_t)160 << 20) /* the longest result, and what is around it */
#define REDIS_REPLY_PARTS_MAX ((size_t)1 << 20)   /* many times a list's page, or a map of slots */
#define REDIS_REPLY_LINE_MAX ((size_t)1 << 16)    /* it is looked through anew as bytes come */

struct redis_reader {
    redisReader *hiredis;
    size_t bytes, parts; /* of the reply that is not whole yet */
    const char *why;     /* it is broken */
};
struct redis_reader *redis_reader_new(void); /* NULL: no memory */
void redis_reader_free(struct redis_reader *reader);
/* Takes bytes; false without memory. */
bool redis_reader_feed(struct redis_reader *reader, const char *bytes, size_t len);
/* The next reply, the caller's, or NULL: none is whole yet. False: what came is no reply, or is too
   much, as reader->why says. */
bool redis_reader_next(struct redis_reader *reader, struct redis_reply **ret);

/* Connections. */

struct redis_tls;
struct redis_tls_config;

/* The context that all connections of a store share; NULL without TLS. */
int redis_tls_config_new(const struct redis_config *config, struct redis_tls_config **ret,
                         struct idem_error *err);
void redis_tls_config_free(struct redis_tls_config *config);
struct redis_tls *redis_tls_new(struct redis_tls_config *config, const char *host);
void redis_tls_free(struct redis_tls *tls);
/* Each moves what it can; false: broken, and why. `out` gets bytes for the socket, `plain` those
   for the reader. */
bool redis_tls_receive(struct redis_tls *tls, const char *bytes, size_t len,
                       struct redis_buffer *plain, struct redis_buffer *out, const char **ret_why);
/* *ret_taken: how much of it; the rest is for after the next redis_tls_receive(). */
bool redis_tls_send(struct redis_tls *tls, const char *bytes, size_t len, struct redis_buffer *out,
                    size_t *ret_taken, const char **ret_why);
bool redis_tls_begin(struct redis_tls *tls, struct redis_buffer *out, const char **ret_why);
bool redis_tls_ready(const struct redis_tls *tls);

struct redis_resolve;
/* Looks a name up in a thread. `done` runs from the loop; the addresses are borrowed until it
   returns. Freed by its owner, in `done` or whenever: the thread goes on alone. */
typedef void redis_resolved_fn(void *data, const struct sockaddr_storage *addresses, size_t n,
                               const char *why);
struct redis_resolve *redis_resolve_new(struct idem_loop *loop, const struct idem_host_name *host,
                                        redis_resolved_fn *done, void *data,
                                        struct idem_error *err);
void redis_resolve_free(struct redis_resolve *resolve);

struct redis_conn;
typedef void redis_reply_fn(struct redis_conn *conn, void *data, const struct redis_reply *reply);

/* One that waits for its reply; reply is NULL where the connection was lost before it came. */
struct redis_want {
    redis_reply_fn *take;
    void *data;
};

enum redis_conn_state {
    REDIS_CONN_OFF,
    REDIS_CONN_RESOLVING,
    REDIS_CONN_CONNECTING,
    REDIS_CONN_SHAKING,  /* TLS */
    REDIS_CONN_GREETING, /* what `greet` asked is not answered yet */
    REDIS_CONN_READY,
    REDIS_CONN_PAUSING, /* until the next try */
};

/* What a connection is for. */
struct redis_role {
    void (*greet)(struct redis_conn *conn); /* asks; then redis_conn_ready() or _fail() */
    void (*refused)(struct redis_conn *conn, const char *why); /* by the server: fails it */
    void (*lost)(struct redis_conn *conn); /* after every want was told; it will try again, unless
                                              closed here. Why is in conn->why */
    void (*push)(struct redis_conn *conn, const struct redis_reply *reply); /* unasked; or NULL */
};

struct redis_conn {
    const struct redis_role *role;
    void *data; /* the role's */
    struct idem_loop *loop;
    const struct redis_config *config;
    struct redis_tls_config *tls_config;
    struct idem_host_name host;
    char place[280]; /* the same, for people */
    bool sentinel;   /* it is to one: another user, no database */

    enum redis_conn_state state;
    struct idem_fd fd;
    struct idem_timer timer;
    struct redis_resolve *resolve;
    struct sockaddr_storage addresses[8];
    size_t addresses_n, address_at;
    int64_t connect_ms;    /* how long it may take to make it: the config's, or less */
    int64_t connect_until; /* while it is made */
    struct redis_tls *tls;
    struct redis_reader *reader;
    struct redis_buffer out, cipher; /* cipher: with TLS, what the socket gets */
    size_t out_at, cipher_at;
    struct redis_want *wants; /* a ring of `wants_size`, a power of two */
    size_t wants_size, wants_first, wants_n;
    int64_t heard;             /* when bytes came last, or the oldest want was sent */
    unsigned tries;            /* since it was ready */
    struct redis_reply *taken; /* the one that is being told */
    bool watching_write;
    bool *gone; /* set when it is closed inside its own call-back */
    int code;   /* of the last failure */
    char why[200];
};

void redis_conn_init(struct redis_conn *conn, struct idem_loop *loop,
                     const struct redis_config *config, struct redis_tls_config *tls,
                     const struct idem_host_name *host, const struct redis_role *role, void *data);
/* Another host, for a connection that is off. */
void redis_conn_move(struct redis_conn *conn, const struct idem_host_name *host);
/* Starts at once, unless it is under way or in a pause. */
void redis_conn_open(struct redis_conn *conn);
/* Quietly: no want is told, nothing is called. */
void redis_conn_close(struct redis_conn *conn);
/* As if the connection had been lost; the next try comes after a pause. */
void redis_conn_fail(struct redis_conn *conn, int code, const char *why, ...)
    __attribute__((format(printf, 3, 4)));
void redis_conn_ready(struct redis_conn *conn);
/* Whether it is neither ready nor lost yet. */
bool redis_conn_is_made(const struct redis_conn *conn);
/* A pause before the next try, after so many: it grows, and half of it is random. */
int64_t redis_pause_ms(unsigned tries);
/* Queues bytes of one command, and the wish for its reply; they go out with redis_conn_flush().
   False without memory, or while the connection is neither greeting nor ready. */
bool redis_conn_send(struct redis_conn *conn, const char *bytes, size_t len, redis_reply_fn *take,
                     void *data);
void redis_conn_flush(struct redis_conn *conn);
/* Takes what has come, whatever the loop has told: the host may have been away. */
void redis_conn_pump(struct redis_conn *conn);
/* Inside a redis_reply_fn: its reply becomes the caller's, to be freed with redis_reply_free(). */
struct redis_reply *redis_conn_keep(struct redis_conn *conn);

/* Records. */

#define REDIS_NAME_MAX (IDEM_PREFIX_MAX + 2 * IDEM_HASH_LEN)
#define REDIS_HEAD_LEN 96
#define REDIS_PRIOR_LEN 52
#define REDIS_MS_MAX ((int64_t)1 << 52) /* more than any time or life that is one */

/* The name in the store; returns its length. */
size_t redis_name(const struct idem_record_key *key, char out[REDIS_NAME_MAX]);
/* The other way round; false: it is none of ours. */
bool redis_name_parse(const char *name, size_t len, struct idem_record_key *ret);

/* Whether it looks like a record, of this version or a later one. */
bool redis_record_is(const unsigned char *bytes, size_t len);
/* `now` and what is left of its life, in the server's ms. 0, IDEM_E_CORRUPT or IDEM_E_VERSION. */
int redis_record_decode(struct idem_bytes bytes, int64_t now, int64_t left,
                        struct idem_record *ret);
/* By its head alone: the state, and whether a lease is live. False: none that could be read. */
bool redis_record_glance(const unsigned char *bytes, size_t len, int64_t left,
                         enum idem_state *ret_state, bool *ret_live);
/* The first 28 bytes, up to the owner; the prior state is absent. */
void redis_record_begin(const struct idem_record *record, struct redis_buffer *out);
/* A first run, as bytes; for a claim of a key that is not there. */
void redis_record_first(const struct idem_claim_in *in, struct redis_buffer *out);

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

/* `publish` is the command that wakes: PUBLISH or SPUBLISH. */
int redis_scripts_make(const char *publish, struct redis_scripts *ret, struct idem_error *err);
void redis_scripts_release(struct redis_scripts *scripts);

#endif
