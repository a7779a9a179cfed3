/*
 * The RabbitMQ broker, inside.
 *
 *     link.c       the loop's side: the broker's table, what is out, what is told
 *     thread.c     an I/O thread with its two mailboxes
 *     consume.c    the thread that consumes: deliveries, acknowledgements
 *     publish.c    the thread that publishes: copies, confirms, returns
 *     topology.c   the queues of delays and of dead letters
 *     session.c    a connection: login, frames, errors as texts
 *     tls.c        its TLS
 *     arrive.c     frames become a message
 *     table.c      header tables become fields; which headers are whose
 *     copy.c       the properties of a copy
 *     spool.c      bodies that are too large for memory
 *     dead.c       dead letters, for the operator's commands
 *     url.c        the URL
 *
 * librabbitmq's calls block, so that each connection lives in a thread, with one
 * channel that carries messages (1) and one for declarations (2): a declaration
 * that is refused closes its channel. The names amqp_* are librabbitmq's.
 */
#ifndef IDEM_QUEUE_AMQP_AMQP_H
#define IDEM_QUEUE_AMQP_AMQP_H

#include <amqp.h>
#include <amqp_framing.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "queue/broker.h"
#include "queue/dead.h"
#include "store/reading.h"

/* Config. */

#define RABBIT_HOSTS_MAX 8
#define RABBIT_NAME_MAX 255 /* bytes of a queue's name */
#define RABBIT_BODY_MAX ((size_t)64 << 20)
#define RABBIT_PREFETCH_MAX 65535

struct rabbit_config {
    struct idem_host_name hosts[RABBIT_HOSTS_MAX];
    size_t hosts_n;
    char *user, *password, *vhost;
    bool tls, tls_verify;
    char *tls_ca, *tls_cert, *tls_key, *tls_name; /* NULL: the system's, none, none, the host's */
    int64_t connect_timeout_ms, heartbeat_ms;
    char *name; /* of the connections, as the server's lists show it */
};

int rabbit_config_read(const char *url, struct rabbit_config *ret, struct idem_error *err);
void rabbit_config_release(struct rabbit_config *config);
/* Whether a queue may have that name; `what` is for the error. */
int rabbit_name_check(const char *name, const char *what, struct idem_error *err);

/* Bytes. */

static inline amqp_bytes_t rabbit_borrow(struct idem_bytes bytes) {
    return (amqp_bytes_t){.bytes = (void *)(uintptr_t)bytes.at, .len = bytes.len};
}
static inline bool rabbit_is(amqp_bytes_t bytes, const char *text) {
    return bytes.len == strlen(text) &&
           (bytes.len == 0 || memcmp(bytes.bytes, text, bytes.len) == 0);
}

/* Text from a server, cleaned, cut and with a NUL; returns buf. */
const char *rabbit_clean(amqp_bytes_t text, char *buf, size_t size);

/* Sessions: one connection from its login to its end, used by one thread. */

#define RABBIT_WHY 400

struct rabbit_session {
    const struct rabbit_config *config;
    amqp_connection_state_t conn; /* NULL: it is over */
    bool ready;                   /* it is logged in, and channel 1 is open */
    bool side;                    /* channel 2 is open */
    bool blocked;                 /* the server takes no publishes now */
    uint32_t consumers, messages; /* of the queue that was declared last */
    int64_t beat_at;              /* when a heartbeat was sent while it rested */
    int code;                     /* of the last refusal (404, ...); 0: it was no refusal */
    char place[280];              /* for people */
    char why[RABBIT_WHY];         /* how the last thing failed */
};

enum rabbit_got { RABBIT_GOT, RABBIT_NONE, RABBIT_LOST };

/* Connects, logs in, opens channel 1; false: see `why`. `host` counts tries: hosts take turns. */
bool rabbit_session_open(struct rabbit_session *s, const struct rabbit_config *config,
                         unsigned host, const char *role);
/* Politely: what was sent is flushed, and the server says goodbye within the RPC's limit. */
void rabbit_session_close(struct rabbit_session *s, bool politely);
/* The next frame of channel 1, without waiting; valid until the next call. LOST: see `why`; the
   session is closed. */
enum rabbit_got rabbit_session_next(struct rabbit_session *s, amqp_frame_t *ret);
/* Sleeps until the socket or `event` has something, a heartbeat is due, or `until`, on
   idem_loop_now(). s may be NULL, or over. */
void rabbit_session_wait(struct rabbit_session *s, int event, int64_t until);
/* Sleeps until `event` has something, and leaves what comes in the socket, so that the server stops
   to send. It is told that we live. */
void rabbit_session_rest(struct rabbit_session *s, int event);
/* Whether a call went well; otherwise `why` begins with `doing`, and a session that cannot be used
   any more is closed. Channel 1 refusing is the end of the session, too. */
bool rabbit_session_ok(struct rabbit_session *s, amqp_rpc_reply_t reply, amqp_channel_t channel,
                       const char *doing);
/* The same of calls that return a status only. */
bool rabbit_session_sent(struct rabbit_session *s, int status, const char *doing);
/* Declares on channel 2: 0, the code of the refusal, or -1 if the session is over. */
int rabbit_session_declare(struct rabbit_session *s, const char *queue, bool passive,
                           const amqp_table_t *args);
/* Consumes on channel 2 without ever getting anything, so that the queue's leader has answered, and
   counts us in `consumers` from now on; false: it was refused, or the server cannot. */
bool rabbit_session_look(struct rabbit_session *s, const char *queue);
void rabbit_session_look_end(struct rabbit_session *s);
void rabbit_session_fail(struct rabbit_session *s, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* Prepares TLS before it connects; false: see `why`. */
bool rabbit_tls_prepare(struct rabbit_session *s, amqp_socket_t *socket, const char *host);
/* Why the last handshake of this thread failed. */
const char *rabbit_tls_why(void);

/* Pauses between tries grow, and half of each is random. */
int64_t rabbit_pause_ms(unsigned tries);

/* Which headers are whose. */

enum rabbit_header {
    RABBIT_SENDERS, /* shown, and copied as it is */
    RABBIT_SERVERS, /* the server adds it on the way: neither shown nor copied */
    RABBIT_CC,      /* shown; in a copy it would route */
    RABBIT_EPITAPH, /* of a dead letter */
    RABBIT_ORIGIN_EXCHANGE,
    RABBIT_ORIGIN_ROUTING_KEY,
    RABBIT_ORIGIN_USER,
    RABBIT_ORIGIN_MODE, /* delivery mode, unless persistent */
    RABBIT_ORIGIN_CC,
    RABBIT_COPY, /* its sequence number: what returns is known by it */
};
#define RABBIT_HEADER_ORIGIN_USER "idem-origin-user-id"
#define RABBIT_HEADER_ORIGIN_MODE "idem-origin-delivery-mode"
#define RABBIT_HEADER_ORIGIN_CC "idem-origin-cc"
#define RABBIT_HEADER_COPY "idem-copy"
enum rabbit_header rabbit_header_kind(amqp_bytes_t name);
/* Of all entries of that kind the first; NULL. */
const amqp_field_value_t *rabbit_header_find(const amqp_table_t *table, enum rabbit_header kind);

/* Fields under construction: offsets into one growing text, which is used again and again. */

struct rabbit_text {
    char *at;
    size_t len, size;
    bool failed; /* no memory */
};

struct rabbit_fields {
    struct rabbit_field {
        size_t name, name_len, value, value_len;
        bool json;
    } * at;
    size_t n, size;
    struct rabbit_text text;
};
void rabbit_fields_reset(struct rabbit_fields *fields);
void rabbit_fields_release(struct rabbit_fields *fields);
bool rabbit_fields_failed(const struct rabbit_fields *fields);
/*
 * The headers that the sender meant. Texts are texts; numbers, truth values, tables and arrays are
 * JSON with all their digits; bytes that are no UTF-8 are the text "base64:..."; numbers that are
 * none (NaN, infinities) are the texts "NaN", "Infinity", "-Infinity"; times are seconds since
 * 1970. Left out: a name that is no UTF-8, and a value that is nested more than
 * RABBIT_DEPTH_MAX deep: expressions that read it say that it is missing.
 */
#define RABBIT_DEPTH_MAX 32
void rabbit_fields_headers(struct rabbit_fields *fields, const amqp_table_t *table);
struct rabbit_envelope {
    amqp_bytes_t exchange, routing_key;
    bool redelivered;
    uint64_t tag;
};
/* Whose it is. `user` is who we are. */
enum rabbit_whose {
    RABBIT_ORIGINAL, /* as its sender sent it */
    RABBIT_OURS,     /* a copy, and the server vouches that our user has sent it */
    RABBIT_CLAIMED,  /* says that it is a copy, as anybody can */
};
enum rabbit_whose rabbit_whose(const amqp_basic_properties_t *properties, const char *user);
/* The properties. What the server vouches for (user, exchange, routing key) is shown as the
   envelope has it, or as a copy of ours says; of one that only says that it is a copy it is not
   known. */
void rabbit_fields_properties(struct rabbit_fields *fields, const struct rabbit_envelope *envelope,
                              const amqp_basic_properties_t *properties, const char *user);
/* Where it first came from; false: that is not known. */
bool rabbit_origin(const struct rabbit_envelope *envelope,
                   const amqp_basic_properties_t *properties, const char *user,
                   amqp_bytes_t *ret_exchange, amqp_bytes_t *ret_routing_key);
/* Who has sent it, by the word of somebody else than us. */
bool rabbit_is_of_other(const amqp_basic_properties_t *properties, const char *user);

/* Messages. */

struct rabbit_mail {
    struct rabbit_mail *next;
    enum rabbit_mail_kind {
        RABBIT_MAIL_MESSAGE, /* out: it has come */
        RABBIT_MAIL_ACK,     /* in */
        RABBIT_MAIL_BACK,    /* in: deliver it again */
        RABBIT_MAIL_JOB,     /* in: publish; out: it was, or not */
    } kind;
};

struct rabbit_message;

/* A copy that is to be published. */
struct rabbit_job {
    struct rabbit_mail mail;
    struct rabbit_message *message;
    struct rabbit_job *next;   /* the thread's */
    int delay;                 /* which queue of delays; -1: the dead letters' */
    char *epitaph;             /* its texts, one allocation; NULL: none */
    struct queue_epitaph said; /* points into it */
    uint64_t seq;
    int64_t sent_at;
    bool returned; /* there is no such queue */
    bool declared; /* it was declared since */
    bool taken;
    char why[RABBIT_WHY + 300];
    queue_told_fn *told;
    void *data;
};

struct rabbit_message {
    struct queue_message base;
    struct rabbit_mail mail;
    struct rabbit_job job;
    atomic_int holders; /* the link, the thread that brought it, a job */
    uint64_t session, tag;
    struct idem_bytes properties;            /* as they came */
    struct idem_bytes exchange, routing_key; /* where it first came from; NULL: not known */
    enum rabbit_whose whose;
    bool of_other; /* it says who has sent it, by the word of another user than us */
    bool large;    /* its body is too large for memory; it is */
    void *spool;   /* here, or could not be kept: NULL, and the body's length is all there is */
    size_t bytes;  /* of memory */

    /* The link's. */
    struct queue_link *link;
    struct rabbit_message *prev, *next;
    bool out, gone;
    bool burying; /* the large one's copy is under way */
    /* The consuming thread's: what the server waits for, by tag. */
    struct rabbit_message *older, *newer;
    bool waiting, settled;
};

static inline struct rabbit_message *rabbit_message_of(const struct queue_message *message) {
    return (struct rabbit_message *)(uintptr_t)message; /* its first member */
}
void rabbit_message_leave(struct rabbit_message *message);

/* A message of which frames come. */
struct rabbit_arrival {
    enum { RABBIT_IDLE, RABBIT_HEADER, RABBIT_BODY } state;
    struct rabbit_envelope envelope; /* its texts are in `names` */
    char names[2 * RABBIT_NAME_MAX];
    struct rabbit_message *message; /* of which the body comes; NULL: it is skipped */
    size_t want, got;               /* bytes of the body */
    int spool;                      /* where they go instead; -1 */
    struct rabbit_fields fields;    /* used again for each */
};
void rabbit_arrival_init(struct rabbit_arrival *a);
void rabbit_arrival_release(struct rabbit_arrival *a);
/* What was begun is not to be ended. */
void rabbit_arrival_reset(struct rabbit_arrival *a);
/* basic.deliver, basic.get-ok. */
void rabbit_arrival_begin(struct rabbit_arrival *a, const struct rabbit_envelope *envelope);
/* Takes a frame of content. True: a message is whole, and *ret is the caller's; NULL without
   memory. *broken: what came is no message, and why. */
bool rabbit_arrival_take(struct rabbit_arrival *a, const amqp_frame_t *frame, const char *queue,
                         const char *user, struct rabbit_message **ret, const char **broken);

/* A file for a body, deleted already: a descriptor, or -1. */
int rabbit_spool_open(size_t size);
bool rabbit_spool_write(int fd, const void *bytes, size_t len, size_t at);
/* Whether there is room for one, now. */
bool rabbit_spool_room(size_t size);
/* The body, readable; NULL. Closes fd in any case. */
void *rabbit_spool_map(int fd, size_t size);

/* Copies. */

struct rabbit_copy {
    amqp_pool_t pool;
    amqp_basic_properties_t properties;
    size_t size; /* in bytes, at most */
};
enum rabbit_purpose { RABBIT_FOR_LATER, RABBIT_FOR_DEAD, RABBIT_FOR_QUEUE };
/* Decodes the message's properties and makes those of its copy; false without memory. Released in
   any case. */
bool rabbit_copy_make(struct rabbit_copy *copy, const struct rabbit_message *message,
                      enum rabbit_purpose purpose, const struct queue_epitaph *epitaph,
                      const char *user, uint64_t seq);
void rabbit_copy_release(struct rabbit_copy *copy);
/* Publishes it on channel 1 to the queue, mandatory. False: see s->why; the session is over, unless
   ret_refused says that nothing was sent. */
bool rabbit_copy_send(struct rabbit_session *s, const struct rabbit_copy *copy, const char *queue,
                      struct idem_bytes body, bool *ret_refused);

/* Topology. */

#define RABBIT_DELAYS_MAX 16

struct rabbit_topology {
    bool allowed;
    char *queue, *dead; /* names */
    int64_t delays[RABBIT_DELAYS_MAX];
    size_t delays_n;
};
/* Copies the names. 0 or IDEM_E_NOMEM. */
int rabbit_topology_make(struct rabbit_topology *t, const struct queue_config *config,
                         struct idem_error *err);
void rabbit_topology_release(struct rabbit_topology *t);
/* Which delay is for so many ms: the next longer one, or the longest. */
int rabbit_topology_delay(const struct rabbit_topology *t, int64_t ms);
#define RABBIT_QUEUE_TEXT (RABBIT_NAME_MAX + 40)
const char *rabbit_topology_name(const struct rabbit_topology *t, int delay,
                                 char buf[RABBIT_QUEUE_TEXT]);
/* Declares it, as a quorum queue or, where there are none, a classic one: 0, a code, or -1.
 *ret_weak: it was a classic one for delays, whose way back is not confirmed. */
int rabbit_topology_declare(const struct rabbit_topology *t, struct rabbit_session *s, int delay,
                            bool *ret_weak);

/* Threads. */

#define RABBIT_LINES 8

struct rabbit_line {
    bool ready;
    char text[RABBIT_WHY + 300];
};

/* What a thread and the link share; released by the one who lets go last. */
struct rabbit_thread {
    atomic_int holders;
    struct rabbit_config config;
    struct rabbit_topology topology;
    unsigned prefetch;
    bool ordered;

    pthread_mutex_t lock;
    pthread_cond_t over_cond;
    int in_event, out_event;
    /* All below under the lock. */
    struct rabbit_mail *in, **in_end, *out, **out_end;
    struct rabbit_line lines[RABBIT_LINES]; /* a ring: people see the last ones */
    size_t lines_first, lines_n;
    uint64_t lost; /* sessions up to this one are over */
    bool fetch;    /* messages are wanted */
    bool stop, over;
    int line; /* the session's socket, by a descriptor of our own; -1 */
};

struct rabbit_thread *rabbit_thread_new(const struct queue_config *config, struct idem_error *err);
/* Runs in it, with one hold of its own. */
typedef void rabbit_main_fn(struct rabbit_thread *t);
int rabbit_thread_start(struct rabbit_thread *t, rabbit_main_fn *main, struct idem_error *err);
void rabbit_thread_leave(struct rabbit_thread *t);
/* Tells it to end, without waiting; and waits for that until then, on idem_loop_now(). */
void rabbit_thread_stop(struct rabbit_thread *t);
void rabbit_thread_end(struct rabbit_thread *t, int64_t until);

/* The link's: a command. */
void rabbit_thread_tell(struct rabbit_thread *t, struct rabbit_mail *mail);
void rabbit_thread_fetch(struct rabbit_thread *t, bool on);
/* The link's: what has come, in order. */
struct rabbit_mail *rabbit_thread_collect(struct rabbit_thread *t, uint64_t *ret_lost,
                                          struct rabbit_line lines[RABBIT_LINES],
                                          size_t *ret_lines_n);

/* The thread's. */
struct rabbit_orders {
    struct rabbit_mail *mail;
    bool fetch, stop;
};
struct rabbit_orders rabbit_thread_orders(struct rabbit_thread *t);
void rabbit_thread_post(struct rabbit_thread *t, struct rabbit_mail *first,
                        struct rabbit_mail **end);
void rabbit_thread_say(struct rabbit_thread *t, bool ready, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* A session is over: none of its messages can be settled any more. */
void rabbit_thread_lost(struct rabbit_thread *t, uint64_t session);
/* The session's socket, for rabbit_thread_end() to shut down; -1: none. */
void rabbit_thread_line(struct rabbit_thread *t, int socket);

rabbit_main_fn rabbit_consume_main, rabbit_publish_main;

/* Until a queue that was declared is used; tests have less. */
extern int64_t rabbit_settle_ms;
/* In which a server has noticed that a consumer is gone, and in which a queue has found its leader
   after a crash of the server; tests choose others. */
extern _Atomic int64_t rabbit_ghost_ms, rabbit_calm_ms;
/* QUEUE_OUT_BYTES; tests have less. */
extern size_t rabbit_out_bytes;

extern const struct queue_broker queue_broker_amqp;
extern const struct queue_dead_broker queue_dead_broker_amqp;

#endif
