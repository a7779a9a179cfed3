/*
 * The RabbitMQ broker, inside.
 *
 *     rabbit_broker.c       the loop's side: the broker's table, messages that are out, events
 *     rabbit_thread.c       an I/O thread with its two mailboxes
 *     rabbit_consume.c      the consuming thread: deliveries made of frames, acknowledgements
 *     rabbit_publish.c      the publishing thread: copies, confirms, returns, large bodies
 *     rabbit_topology.c     the queues for delays and dead letters
 *     rabbit_session.c      a connection: login, TLS, frames, errors as texts
 *     rabbit_properties.c   properties and headers of a copy; the owner of each header
 *     rabbit_dead_letter.c  dead letters, for the operator's commands
 *     rabbit_url.c          the URL
 *
 * librabbitmq's calls block, so each connection lives in a thread. It has one channel for
 * messages (1) and one for declarations (2), since a refused declaration closes its channel.
 * The names amqp_* are librabbitmq's.
 */
#ifndef IDEM_QUEUE_AMQP_RABBIT_H
#define IDEM_QUEUE_AMQP_RABBIT_H

#include <amqp.h>
#include <amqp_framing.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "base/buffer.h"
#include "queue/broker.h"
#include "queue/dead_letter.h"
#include "store/store_url.h"

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
    char *name; /* of the connections, in the server's lists */
};

int rabbit_config_read(const char *url, struct rabbit_config *ret, struct idem_error *err);
void rabbit_config_release(struct rabbit_config *config);
/* Checks the name of a queue; `what` names it in the error. */
int rabbit_url_check_name(const char *name, const char *what, struct idem_error *err);

/* Bytes. */

static inline amqp_bytes_t rabbit_borrow(struct idem_bytes bytes) {
    return (amqp_bytes_t){.bytes = (void *)(uintptr_t)bytes.at, .len = bytes.len};
}
static inline bool rabbit_is(amqp_bytes_t bytes, const char *text) {
    return idem_is_word(bytes.bytes, bytes.len, text);
}

/* Makes a printable text of a server's, cut to `size` with its NUL; returns buf. */
const char *rabbit_session_clean(amqp_bytes_t text, char *buf, size_t size);

/* Sessions: one connection from login to close, used by one thread. */

#define RABBIT_WHY 400

struct rabbit_session {
    const struct rabbit_config *config;
    amqp_connection_state_t conn; /* NULL: it is closed */
    bool ready;                   /* logged in, and channel 1 is open */
    bool side;                    /* channel 2 is open */
    bool blocked;                 /* the server accepts no publishes now */
    uint32_t consumers, messages; /* of the queue that was declared last */
    int64_t beat_at;              /* time of the last heartbeat sent during a rest */
    int code;                     /* of the last refusal (404, ...); 0: it was no refusal */
    char place[280];              /* for people */
    char why[RABBIT_WHY];         /* the reason of the last failure */
};

enum rabbit_got { RABBIT_GOT, RABBIT_NONE, RABBIT_LOST };

/* Connects, logs in, opens channel 1; false: `why` has the reason. `host` counts tries: hosts
   take turns. */
bool rabbit_session_open(struct rabbit_session *s, const struct rabbit_config *config,
                         unsigned host, const char *role);
/* Politely: sends pending frames, and waits for the server's close-ok for GOODBYE_MS. */
void rabbit_session_close(struct rabbit_session *s, bool politely);
/* Reads the next frame of channel 1, without waiting; it is valid until the next call. LOST:
   `why` has the reason, and the session is closed. */
enum rabbit_got rabbit_session_next(struct rabbit_session *s, amqp_frame_t *ret);
/* Sleeps until the socket or `event` is readable, a heartbeat is due, or `until`, on
   idem_loop_now(). s may be NULL or closed. */
void rabbit_session_wait(struct rabbit_session *s, int event, int64_t until);
/* Sleeps until `event` is readable. Reads nothing from the socket, so that the server stops
   sending, but sends heartbeats. */
void rabbit_session_rest(struct rabbit_session *s, int event);
/* True if a call succeeded. Otherwise `why` begins with `doing`, and a session that is no
   longer usable is closed. That includes a refusal on channel 1. */
bool rabbit_session_ok(struct rabbit_session *s, amqp_rpc_reply_t reply, amqp_channel_t channel,
                       const char *doing);
/* The same for calls that return only a status. */
bool rabbit_session_sent(struct rabbit_session *s, int status, const char *doing);
/* Declares on channel 2: 0, the code of the refusal, or -1 if the session is closed. */
int rabbit_session_declare(struct rabbit_session *s, const char *queue, bool passive,
                           const amqp_table_t *args);
/* Consumes on channel 2 without credit, so that no message arrives. The queue's leader has
   replied then, and counts us in `consumers` from now on. False: refused, or the server has no
   credit. */
bool rabbit_session_look(struct rabbit_session *s, const char *queue);
void rabbit_session_look_end(struct rabbit_session *s);
void rabbit_session_fail(struct rabbit_session *s, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* The pause before the next try. Pauses grow with *tries, which is counted here, and half of each
   is random. */
int64_t rabbit_session_pause_ms(unsigned *tries);

/* The owner of each header. */

enum rabbit_header {
    RABBIT_SENDERS,    /* the sender's: shown, and copied unchanged */
    RABBIT_SERVERS,    /* added by the server on the way: neither shown nor copied */
    RABBIT_CC,         /* shown; left out of a copy, which it would route elsewhere */
    RABBIT_DEAD_FIELD, /* of a dead letter */
    RABBIT_ORIGIN_EXCHANGE,
    RABBIT_ORIGIN_ROUTING_KEY,
    RABBIT_ORIGIN_USER,
    RABBIT_ORIGIN_MODE, /* delivery mode, unless persistent */
    RABBIT_ORIGIN_CC,
    RABBIT_COPY, /* a copy's sequence number, by which a return is matched */
};
#define RABBIT_HEADER_ORIGIN_USER "idem-origin-user-id"
#define RABBIT_HEADER_ORIGIN_MODE "idem-origin-delivery-mode"
#define RABBIT_HEADER_ORIGIN_CC "idem-origin-cc"
#define RABBIT_HEADER_COPY "idem-copy"
enum rabbit_header rabbit_headers_kind(amqp_bytes_t name);
/* Returns the value of the first entry of that kind, or NULL. */
const amqp_field_value_t *rabbit_header_find(const amqp_table_t *table, enum rabbit_header kind);

/* Fields under construction: offsets into one growing text, which is reused. */

struct rabbit_fields {
    struct rabbit_field {
        size_t name, name_len, value, value_len;
        bool json;
    } * at;
    size_t n, size;
    struct idem_buffer text;
};
void rabbit_fields_reset(struct rabbit_fields *fields);
void rabbit_fields_release(struct rabbit_fields *fields);
bool rabbit_fields_failed(const struct rabbit_fields *fields);
/*
 * Adds the sender's headers. Texts stay texts. Numbers, booleans, tables and arrays become
 * JSON with all their digits. Bytes that are not UTF-8 become the text "base64:...". NaN and
 * infinities become the texts "NaN", "Infinity", "-Infinity". Times are seconds since 1970.
 * Left out are names that are not UTF-8, and values that are nested deeper than
 * RABBIT_DEPTH_MAX: an expression that reads them fails because they are missing.
 */
#define RABBIT_DEPTH_MAX 32
void rabbit_fields_headers(struct rabbit_fields *fields, const amqp_table_t *table);
struct rabbit_envelope {
    amqp_bytes_t exchange, routing_key;
    bool redelivered;
    uint64_t tag;
};
/* The author of a message. `user` is our login. */
enum rabbit_author {
    RABBIT_ORIGINAL, /* as its sender sent it */
    RABBIT_OURS,     /* a copy, and the server confirms that our user sent it */
    RABBIT_CLAIMED,  /* claims to be a copy, which any publisher can do */
};
enum rabbit_author rabbit_author(const amqp_basic_properties_t *properties, const char *user);
/* Adds the properties. Those that the server vouches for (user, exchange, routing key) are
   taken from the envelope, or from the headers of our own copy. For a claimed copy they are
   unknown. */
void rabbit_fields_properties(struct rabbit_fields *fields, const struct rabbit_envelope *envelope,
                              const amqp_basic_properties_t *properties, const char *user);
/* The first exchange and routing key of the message; false: they are unknown. */
bool rabbit_headers_origin(const struct rabbit_envelope *envelope,
                           const amqp_basic_properties_t *properties, const char *user,
                           amqp_bytes_t *ret_exchange, amqp_bytes_t *ret_routing_key);
/* True if the message names its sender by the word of a user other than ours. */
bool rabbit_headers_is_of_other(const amqp_basic_properties_t *properties, const char *user);

/* Messages. */

struct rabbit_mail {
    struct rabbit_mail *next;
    enum rabbit_mail_kind {
        RABBIT_MAIL_MESSAGE, /* out: a message has arrived */
        RABBIT_MAIL_ACK,     /* in */
        RABBIT_MAIL_NACK,    /* in: to be delivered again */
        RABBIT_MAIL_JOB,     /* in: publish a copy; out: its result */
    } kind;
};

struct rabbit_message;

/* A copy to be published. */
struct rabbit_job {
    struct rabbit_mail mail;
    struct rabbit_message *message;
    struct rabbit_job *next, **link; /* for the lists of the thread and of the link */
    int delay;                       /* index of the delay's queue; -1: the queue of dead letters */
    char *dead_fields_text;          /* its texts, one allocation; NULL: none */
    struct queue_dead_fields dead_fields; /* points into it */
    uint64_t seq;
    int64_t sent_at;
    bool returned; /* the server returned it: the queue does not exist */
    bool declared; /* the queue was declared since */
    bool taken;
    char why[RABBIT_WHY + 300];
    queue_done_fn *done;
    void *data;
};

struct rabbit_message {
    struct queue_message base;
    struct rabbit_mail mail;
    struct rabbit_job job;
    atomic_int holders; /* references: the link, the thread that brought it, a job */
    uint64_t session, tag;
    struct idem_bytes properties;            /* encoded, as received */
    struct idem_bytes exchange, routing_key; /* its first ones; NULL: unknown */
    enum rabbit_author whose;
    bool of_other; /* it names its sender by the word of another user */
    bool large;    /* its body is too large for memory: see `spool` */
    void *spool;   /* the body; NULL: it could not be kept, and only its length is known */
    size_t bytes;  /* of memory */

    /* Used by the link. */
    struct queue_link *link;
    struct rabbit_message *out_next, **out_link; /* out_link NULL: it is not out */
    bool gone;
    bool burying; /* the copy of a large message is under way */
    /* Used by the consuming thread: messages that are not settled yet, by tag. */
    struct rabbit_message *newer_next, **newer_link; /* newer_link NULL: commands are ignored */
    bool settled;
};

static inline struct rabbit_message *rabbit_message_of(const struct queue_message *message) {
    return (struct rabbit_message *)(uintptr_t)message; /* base is the first member */
}
void rabbit_message_leave(struct rabbit_message *message);

/* A message whose frames are arriving. */
struct rabbit_arrival {
    enum { RABBIT_IDLE, RABBIT_HEADER, RABBIT_BODY } state;
    struct rabbit_envelope envelope; /* its texts point into `names` */
    char names[2 * RABBIT_NAME_MAX];
    struct rabbit_message *message; /* receives the body; NULL: the body is skipped */
    size_t want, got;               /* bytes of the body */
    int spool;                      /* file for a large body; -1 */
    struct rabbit_fields fields;    /* reused for each message */
};
void rabbit_arrival_init(struct rabbit_arrival *a);
void rabbit_arrival_release(struct rabbit_arrival *a);
/* Starts with basic.deliver or basic.get-ok. */
void rabbit_arrival_begin(struct rabbit_arrival *a, const struct rabbit_envelope *envelope);
/* Takes a frame of content. True: the message is complete, and the caller owns *ret; it is NULL
   without memory. *broken: the reason why the frames form no message, or NULL. */
bool rabbit_arrival_read(struct rabbit_arrival *a, const amqp_frame_t *frame, const char *queue,
                         const char *user, struct rabbit_message **ret, const char **broken);

/* Creates an unnamed file for a body. Returns a descriptor, or -1. */
int rabbit_spool_open(size_t size);
bool rabbit_spool_write(int fd, const void *bytes, size_t len, size_t at);
/* True if there is room for such a file now. */
bool rabbit_spool_room(size_t size);
/* Maps the body; NULL on failure. Closes fd in any case. */
void *rabbit_spool_map(int fd, size_t size);

/* Copies. */

struct rabbit_copy {
    amqp_pool_t pool;
    amqp_basic_properties_t properties;
    size_t size; /* upper limit in bytes */
};
enum rabbit_purpose { RABBIT_FOR_LATER, RABBIT_FOR_DEAD, RABBIT_FOR_QUEUE };
/* Decodes the message's properties and makes those of its copy; false without memory. The
   caller releases the copy in any case. */
bool rabbit_copy_make(struct rabbit_copy *copy, const struct rabbit_message *message,
                      enum rabbit_purpose purpose, const struct queue_dead_fields *dead_fields,
                      const char *user, uint64_t seq);
void rabbit_copy_release(struct rabbit_copy *copy);
/* Publishes the copy on channel 1 to the queue, mandatory. False: s->why has the reason, and
   the session is closed unless *ret_refused, which means that nothing was sent. */
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
/* Chooses the queue for a delay: the next longer one, or the longest. */
int rabbit_topology_delay(const struct rabbit_topology *t, int64_t ms);
#define RABBIT_QUEUE_TEXT (RABBIT_NAME_MAX + 40)
const char *rabbit_topology_name(const struct rabbit_topology *t, int delay,
                                 char buf[RABBIT_QUEUE_TEXT]);
/* Declares the queue as a quorum queue or, on a server without them, as a classic one: 0, a
   code, or -1. *ret_weak: a classic queue for delays, whose messages go back unconfirmed. */
int rabbit_topology_declare(const struct rabbit_topology *t, struct rabbit_session *s, int delay,
                            bool *ret_weak);

/* Threads. */

#define RABBIT_LINES 8

struct rabbit_line {
    bool ready;
    char text[RABBIT_WHY + 300];
};

/* Shared by a thread and the link; the last holder releases it. */
struct rabbit_thread {
    atomic_int holders;
    struct rabbit_config config;
    struct rabbit_topology topology;
    unsigned prefetch;
    bool ordered;

    pthread_mutex_t lock;
    pthread_cond_t over_cond;
    int in_event, out_event;
    /* Protected by the lock from here on. */
    struct rabbit_mail *in, **in_end, *out, **out_end;
    struct rabbit_line lines[RABBIT_LINES]; /* a ring with the last lines */
    size_t lines_first, lines_n;
    uint64_t lost; /* sessions up to this one are over */
    bool fetch;    /* the consumer wants messages */
    bool stop, over;
    int line; /* a duplicate of the session's socket; -1 */
};

struct rabbit_thread *rabbit_thread_new(const struct queue_config *config, struct idem_error *err);
/* Runs in the thread, which holds a reference. */
typedef void rabbit_main_fn(struct rabbit_thread *t);
int rabbit_thread_start(struct rabbit_thread *t, rabbit_main_fn *main, struct idem_error *err);
void rabbit_thread_release(struct rabbit_thread *t);
/* The first requests the end without waiting, the second waits for it until then, on
   idem_loop_now(). */
void rabbit_thread_stop(struct rabbit_thread *t);
void rabbit_thread_end(struct rabbit_thread *t, int64_t until);

/* Called by the link: sends a command. */
void rabbit_thread_send(struct rabbit_thread *t, struct rabbit_mail *mail);
void rabbit_thread_fetch(struct rabbit_thread *t, bool on);
/* Called by the link: takes everything that has arrived, in order. */
struct rabbit_mail *rabbit_thread_collect(struct rabbit_thread *t, uint64_t *ret_lost,
                                          struct rabbit_line lines[RABBIT_LINES],
                                          size_t *ret_lines_n);

/* Called by the thread. */
struct rabbit_orders {
    struct rabbit_mail *mail;
    bool fetch, stop;
};
struct rabbit_orders rabbit_thread_orders(struct rabbit_thread *t);
void rabbit_thread_post(struct rabbit_thread *t, struct rabbit_mail *first,
                        struct rabbit_mail **end);
void rabbit_thread_report(struct rabbit_thread *t, bool ready, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* The session is lost: its messages can no longer be settled. */
void rabbit_thread_lost(struct rabbit_thread *t, uint64_t session);
/* Sets the session's socket, for rabbit_thread_end() to shut down; -1: none. */
void rabbit_thread_set_socket(struct rabbit_thread *t, int socket);

rabbit_main_fn rabbit_consume_main, rabbit_publish_main;

/* Pause between the declaration of a queue and its use. Tests set a shorter one. */
extern int64_t rabbit_settle_ms;
/* Time after which a server has noticed that a consumer is lost, and time after which a queue
   has found its leader after a crash of the server. Tests set others. */
extern _Atomic int64_t rabbit_ghost_ms, rabbit_calm_ms;
/* QUEUE_OUT_BYTES; tests set less. */
extern size_t rabbit_out_bytes;

extern const struct queue_broker queue_broker_amqp;
extern const struct queue_dead_broker queue_dead_broker_amqp;

#endif
