/*
 * Redis Streams as a broker, inside.
 *
 *     stream_broker.c       the broker's table: open, fetch, close, and the order of steps
 *     stream_connection.c   the two connections: greeting, the group, loss
 *     stream_read.c         new entries (XREADGROUP, which blocks), entries delivered before (our
 *                           own, due ones, other consumers'), and trimmed ones
 *     stream_entry.c        the known entries, by their ids: idle time, ack, nack, delay, bury
 *     stream_notify.c       events for the consumer
 *     stream_message.c      an entry as a message, and the parsers for the server's replies
 *     stream_dead_letter.c  dead letters, for the operator's commands
 *     take.lua, move.lua, page.lua   steps that must be atomic in the server
 *
 * A MESSAGE. The body is the first field with the configured name ("body"); the other fields
 * are headers, in their order. If an entry has one field only, that is its body, whatever its
 * name (idem-* fields of a dead letter do not count). If it has several fields, and none is
 * the body, the body is empty. Names and values may hold any bytes. Properties: message_id is
 * the entry's id, which stays the same over redeliveries, but differs for a second
 * publication; deliveries is the server's count of deliveries.
 *
 * OWNERSHIP. An entry that was read stays pending under our consumer's name until it is
 * acknowledged. This survives a lost connection and our own death, so `gone` is not reported
 * for those: acks are sent after the reconnect, and a process that starts under the same name
 * reads its own pending entries first, in order. After every reconnect, and at intervals, we
 * look for entries that are pending under our name, but unknown to us: they were in a reply
 * that never arrived. Other consumers take an entry over when it was idle for min-idle: twice
 * the lease, at least 3 s. The idle time of our entries is renewed at a third of the lease
 * (`extend` for messages that are out, a timer for delayed ones), always under the condition
 * that the entry is still ours. If it is not, because we were away for longer than min-idle, a
 * message that is out stays out. Its ack is still good (its record is done for every
 * consumer); its delay and its nack leave it to the new owner. A delayed message is
 * forgotten. That two consumers have a message in hand at a time is the case that the record's
 * claim solves.
 *
 * `gone` is reported when the group no longer exists (destroyed, the stream deleted or
 * flushed, a server that lost its data), or was created anew. We create it again, from the
 * beginning of the stream, so that nothing is lost; finished messages are then delivered
 * again, and their records prevent a second run.
 *
 * ONE NAME, ONE PROCESS. Two processes under one name would take each other's entries for
 * their own. Nothing would be done twice (the record), but each entry would be delivered
 * twice. So a process that finds another one connected under its name reports that, and goes
 * on. Each process needs a name of its own, and the same one after a restart.
 *
 * NACK. The entry is moved to a consumer without a process (STREAM_NOBODY), with an idle
 * time of a year, and its count of deliveries is restored. Each of our consumers looks there
 * every second, and every other client that uses XAUTOCLAIM takes it too.
 *
 * DELAY. No copy is made. The entry stays pending, and we remember its id and its due time.
 * After a crash it arrives too early, and its record states that it is not due. The same holds
 * for closing, which gives back all delayed entries with their count of deliveries.
 *
 * TRIMMED. An entry that is deleted before it is finished is handled from memory, as long as
 * we have its content. If it cannot stay in memory, because the link is closed, it is put
 * among the dead letters (verdict "trimmed").
 *
 * RIGHTS OF THE USER (ACL): +xreadgroup +xack +xadd +xpending +xclaim +xautoclaim +xrange
 * +xgroup|create +eval +client|setname +client|id, and for dead letters +type +xdel
 * +xrevrange, on the stream and its dead letters; +select if the URL has a database. Without
 * +client|unblock, a due entry may wait for a read to end; without +client|list, a process
 * with the same name is not found.
 *
 * An entry that is too large (STREAM_ENTRY_MAX, STREAM_FIELDS_MAX) is neither delivered nor
 * lost: it stays pending under our name, and `state` reports its id.
 */
#ifndef IDEM_QUEUE_STREAM_STREAM_H
#define IDEM_QUEUE_STREAM_STREAM_H

#include "queue/broker.h"
#include "queue/dead_letter.h"
#include "store/redis/redis_connection.h"

#define STREAM_BODY_FIELD "body"
#define STREAM_GROUP "idem"
#define STREAM_NOBODY "idem-returned"
#define STREAM_DEAD_ID "idem-id" /* the id of the entry that became the dead letter */
#define STREAM_NAME_MAX 1024     /* limit for names of streams, groups, consumers and fields */

#define STREAM_ENTRY_MAX ((size_t)64 << 20)     /* names and values of an entry */
#define STREAM_FIELDS_MAX ((size_t)4096)        /* fields of an entry */
#define STREAM_WAITING_MAX ((size_t)100000)     /* entries that wait, or cannot be delivered */
#define STREAM_CONTENT_BYTES ((size_t)64 << 20) /* content of entries that wait */
#define STREAM_UNCONFIRMED_MAX                                                                     \
    ((size_t)10000) /* acks without a reply; above it, nothing is fetched */

/* Time limit for a close to wait for replies to all that was sent. Tests set a longer one. */
extern int64_t stream_close_ms;

#define STREAM_BLOCK_MS 5000
#define STREAM_MIN_IDLE_MS 3000
#define STREAM_LEASE_MS 30000 /* if the config has none */

struct stream_link;

/* Ids: stream_entry.c. */

struct stream_id {
    uint64_t ms, seq;
};
#define STREAM_ID_TEXT 44
/* MS-SEQ, both decimal; false: the text is no id. */
bool stream_id_parse(const char *text, size_t len, struct stream_id *ret);
const char *stream_id_print(struct stream_id id, char buf[STREAM_ID_TEXT]);

/*
 * Entries.
 *
 *     (new) ──> OUT ──delay──> DELAYED ──its time──> DUE ──asked for──> ASKED ──> OUT
 *                │                                    ^                  │
 *                │                                    └──── no reply ────┘
 *                ├──ack───────> ACKING ──sent──> ACKED ──> (over)
 *                └──nack──────> NACKING ──sent──> NACKED ──> (over)
 *                                                  │ it was trimmed
 *                                                  └────> SAVING ──sent──> SAVED ──> (over)
 *     (new) ──> PARKED: it cannot be delivered
 *
 * Closing gives back the entries that are DELAYED, DUE, ASKED and PARKED.
 */
enum stream_state {
    STREAM_NEW, /* in no list yet */
    STREAM_OUT,
    STREAM_DELAYED,
    STREAM_DUE,
    STREAM_ASKED,
    STREAM_PARKED,
    STREAM_ACKING,
    STREAM_ACKED,
    STREAM_NACKING,
    STREAM_NACKED,
    STREAM_SAVING,
    STREAM_SAVED,
    STREAM_STATES
};

struct stream_entry {
    struct stream_link *owner;
    struct stream_entry *same; /* the next one in its bucket */
    struct stream_id id;
    enum stream_state state;
    struct stream_entry *next, **link; /* list of its state, oldest first */
    struct stream_entry *waiting_next,
        **waiting_link; /* list of renewed entries, oldest renewal first */
    int64_t renewed;    /* time of the last renewal; 0: renew it now */
    struct idem_timer due;
    bool lost;                      /* another consumer has it */
    bool deleted;                   /* it is no longer in the stream */
    bool begun;                     /* returned with its delivery counted */
    unsigned tries;                 /* of the current command */
    struct stream_message *message; /* OUT */
    struct stream_message *content; /* its content in every other state; may be NULL */
};

struct stream_list {
    struct stream_entry *first, **end;
    size_t n;
};

/* Messages. */

enum {
    STREAM_NOTIFY_MESSAGE = 1 << 0,
    STREAM_NOTIFY_LOST = 1 << 1,
    STREAM_NOTIFY_RESULT = 1 << 2,
};

struct stream_message {
    struct queue_message base;
    struct stream_message *next, **link; /* all messages */
    struct stream_entry *entry;          /* NULL: it is no longer ours */
    struct stream_entry *content_of;     /* the entry whose `content` it is */
    bool detached;                       /* only the content_of has it */
    struct idem_bytes *fields;           /* of the entry: name, value, name, ... */
    size_t fields_n;                     /* number of names */
    size_t bytes;
    char id[STREAM_ID_TEXT];
    char deliveries[24];

    unsigned events; /* STREAM_NOTIFY_* events to be reported */
    struct stream_message *notify_next, **notify_link;
    bool asked;     /* the result of a delay or a burial is not reported yet */
    bool delayed;   /* it is a delay */
    bool dismissed; /* returned meanwhile: freed after that report */
    queue_done_fn *done;
    void *done_data;
    bool taken;
    char why[160];
};

/* The name of the body's field, and the stream that was read. */
struct stream_shape {
    const char *queue, *body_field;
};

/* Measures an entry's fields, as the server sends them: name, value, name, value. */
enum stream_fit { STREAM_FITS, STREAM_TOO_LARGE, STREAM_ODD };
enum stream_fit stream_fields_measure(const struct redis_reply *fields, size_t *ret_bytes);
/* Makes a message of fields that fit. NULL without memory. */
struct stream_message *stream_message_new(const struct stream_shape *shape, struct stream_id id,
                                          int64_t deliveries, const struct redis_reply *fields);
void stream_message_free(struct stream_message *message);
/* A property. */
struct queue_field stream_message_property(const char *name, const char *value, bool json);
/* True for the fields that only dead letters have (idem-*). */
bool stream_message_is_dead_field(struct idem_bytes name);
static inline struct stream_message *stream_message_of(struct queue_message *message) {
    return idem_container_of(message, struct stream_message, base);
}

/* Replies: stream_message.c parses them. */

/* The entries in the reply to an XREADGROUP of one stream; false: the reply is malformed. *ret
   is NULL if there are none. */
bool stream_parse_entries(const struct redis_reply *reply, const struct redis_reply **ret);
/* Parses [id, fields]; false: malformed. */
bool stream_parse_entry(const struct redis_reply *item, struct stream_id *ret_id,
                        const struct redis_reply **ret_fields);
/* Parses the id of XPENDING's [id, consumer, idle, deliveries]. */
bool stream_parse_pending(const struct redis_reply *item, struct stream_id *ret);

/* The outcome for one entry in a reply of take.lua or move.lua. */
enum stream_word {
    STREAM_WORD_ENTRY,   /* it is ours, and its content is here */
    STREAM_WORD_LARGE,   /* it is ours, and too large */
    STREAM_WORD_LATER,   /* the reply had no room for it */
    STREAM_WORD_OTHER,   /* another consumer has it */
    STREAM_WORD_NONE,    /* it is pending nowhere */
    STREAM_WORD_DELETED, /* it is no longer in the stream */
    STREAM_WORD__COUNT
};
struct stream_outcome {
    struct stream_id id;
    enum stream_word word;
    int64_t deliveries;               /* ENTRY */
    const struct redis_reply *fields; /* ENTRY */
    int64_t bytes, fields_n;          /* LARGE */
};
bool stream_parse_outcome(const struct redis_reply *item, struct stream_outcome *ret);

/* The reply to XAUTOCLAIM, with and without JUSTID. Redis 7 lists the ids of deleted entries;
   6.2 has a nil in the place of each. */
struct stream_claimed {
    struct stream_id next; /* the start of the next call; 0-0: the scan is complete */
    const struct redis_reply *items;
    size_t deleted;
    const struct redis_reply *deleted_items; /* their ids; NULL: the server sent none */
};
bool stream_parse_claimed(const struct redis_reply *reply, struct stream_claimed *ret);
/* Parses one of its items; false: the item is nil. */
bool stream_parse_claimed_id(const struct redis_reply *item, struct stream_id *ret);

/* An error text for people, which may be in `buf`. Only the first word of the server's error is
   passed on, since some errors repeat the command. */
#define STREAM_ERROR_TEXT 160
const char *stream_error_text(const struct redis_reply *reply, char buf[STREAM_ERROR_TEXT]);
/* True if the error means that the group or the stream does not exist (any more). */
bool stream_is_gone(const struct redis_reply *reply);

/* The link. */

enum stream_gathering {
    STREAM_GATHER_NOTHING,
    STREAM_GATHER_OWN,      /* looks for entries pending under our name */
    STREAM_GATHER_IDLE,     /* takes over idle entries */
    STREAM_GATHER_RETURNED, /* looks for entries that were returned */
    STREAM_GATHER_TAKE,     /* requests entries by their ids */
};
#define STREAM_GATHER_MAX 64

#define STREAM_LINES 64
struct stream_line {
    bool ready;
    char text[400];
};

struct stream_link {
    struct idem_loop *loop;
    struct queue_events events;
    char *queue, *dead_letter, *group, *consumer, *body_field;
    struct stream_shape shape;
    size_t prefetch, more; /* their sum may be out */
    int64_t min_idle_ms, renew_ms, claim_ms, block_ms;

    /* stream_connection.c */
    struct redis_config config, reading_config; /* the second shares the first's strings */
    char *reading_name;
    char mark[20]; /* end of the reading connection's name: a client with the same mark has our
                      consumer's name */
    struct redis_tls_config *tls;
    struct redis_conn command, reading;
    long long reading_id; /* the server's id for the connection; 0: unknown */
    bool was_ready;       /* the group existed once */
    bool looked;          /* the check for another process with our name is done */
    bool reported_ready;
    char reported_text[400];

    /* stream_broker.c */
    bool fetching, closing, notifying;
    struct idem_task next;
    struct idem_timer again;       /* after a pause */
    int64_t wait_until, ack_until; /* no fetching until then; no acks and nacks until then */
    unsigned troubles;
    struct idem_timer tick;

    /* stream_read.c: new entries */
    size_t read_n;     /* entries requested; 0: no read is under way */
    size_t read_batch; /* limit for read_n */
    int64_t read_at;   /* its start */
    bool interrupted;
    bool unblocking; /* CLIENT UNBLOCK has no reply yet: it must not hit another read */

    /* stream_read.c: entries that were delivered before, or trimmed */
    enum stream_gathering gathering;
    size_t gather_n; /* room reserved for it */
    struct stream_id ids[STREAM_GATHER_MAX];
    size_t ids_n;
    bool surveying;
    struct stream_id survey_at; /* the last id that was looked at */
    bool claiming, returned;
    bool polling; /* looks for returned entries without room for them */
    struct stream_id claim_at;
    unsigned claim_steps;
    int64_t claim_due;
    size_t content_bytes; /* of the messages that are the `content` of an entry */
    uint64_t deleted_n;

    /* stream_entry.c */
    struct stream_entry **buckets;
    size_t buckets_n; /* a power of two */
    size_t entries_n;
    struct stream_list lists[STREAM_STATES];
    struct stream_entry *waiting,
        **waiting_end; /* entries that wait, by waiting_next; waiting_n of them */
    size_t waiting_n;
    bool renewing;

    /* stream_notify.c */
    struct stream_message *messages;
    size_t out_n, out_bytes;
    struct stream_message *notify_first, **notify_end;
    struct stream_line lines[STREAM_LINES];
    unsigned lines_n;
    struct idem_task notify;
};

static inline struct stream_link *stream_link_of(struct queue_link *link) {
    return (struct stream_link *)(void *)link;
}

/* stream_broker.c */
void stream_link_post(struct stream_link *link);
/* The number of further messages that may be out. */
size_t stream_link_room(const struct stream_link *link);
/* Stops fetching until a pause is over. The pauses grow. */
void stream_link_pause(struct stream_link *link);
/* Reports a refused command, and stops fetching until a pause is over. */
void stream_link_report_error(struct stream_link *link, const char *what,
                              const struct redis_reply *reply);
/* The same for a message that found no memory; its entry is looked for again. */
void stream_link_no_memory(struct stream_link *link);
int64_t stream_broker_min_idle(const struct queue_config *config);
/* Reads the URL of one server. The caller releases both results, also after a failure. */
int stream_broker_read_url(const char *text, struct redis_config *ret,
                           struct redis_tls_config **ret_tls, struct idem_error *err);

/* stream_connection.c */
void stream_link_connect(struct stream_link *link);
bool stream_link_is_ready(const struct stream_link *link);
/* The group no longer exists: forgets everything about it, and restarts both connections. */
void stream_link_reset(struct stream_link *link);
/* Starts COMMAND stream group, with `more` parts to follow. */
void stream_link_put_command(const struct stream_link *link, struct idem_buffer *out, size_t more,
                             const char *command);
/* Starts the EVAL of a script on the stream, with `more` arguments after the group. */
void stream_link_put_script(const struct stream_link *link, struct idem_buffer *out, size_t more,
                            const char *script);
void stream_connection_put_id(struct idem_buffer *out, struct stream_id id);
/* Sends `out` on the command connection, and empties it. False: not sent. */
bool stream_link_send(struct stream_link *link, struct idem_buffer *out, redis_reply_fn *take,
                      void *data);

/* stream_read.c: new entries */
void stream_read_next(struct stream_link *link);
void stream_read_interrupt(struct stream_link *link);

/* stream_read.c: entries that were delivered before */
void stream_recover_next(struct stream_link *link);
void stream_recover_survey(struct stream_link *link);
/* Called about once a second. */
void stream_recover_tick(struct stream_link *link, int64_t now);

/* stream_entry.c: idle time */
/* About once a second, for stream_read.c too. */
void stream_renew_tick(struct idem_timer *timer);
/* Renews all entries after a reconnect, with the messages that are out. */
void stream_renew_all(struct stream_link *link);
void stream_renew_extend(struct queue_link *link, struct queue_message *const *messages, size_t n);

/* stream_entry.c: messages that were out */
void stream_ack_send_next(struct stream_link *link);
void stream_ack(struct queue_link *link, struct queue_message *message);
void stream_ack_delay(struct queue_link *link, struct queue_message *message, int64_t ms,
                      queue_done_fn *done, void *data);
void stream_ack_bury(struct queue_link *link, struct queue_message *message,
                     const struct queue_dead_fields *dead_fields, queue_done_fn *done, void *data);
void stream_nack(struct queue_link *link, struct queue_message *message);
/* Gives back all waiting entries, before the link is closed. */
void stream_nack_all(struct stream_link *link);

/* stream_read.c: trimmed entries */
/* Keeps the message as the entry's content, freed with the entry. False: there is no room. */
bool stream_content_set(struct stream_entry *entry, struct stream_message *message, bool anyway);
void stream_content_drop(struct stream_entry *entry);
/* Reports the deletion, once. True if we have the content. */
bool stream_trimmed_report(struct stream_link *link, struct stream_id id);

/* stream_notify.c */
void stream_notify_run(struct idem_task *task);
void stream_notify_state(struct stream_link *link, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* Makes a message of an entry's content. `entry` is NULL if it is not known yet. False without
   memory. stream_notify_park() is for entries that cannot be delivered: with their size, or
   with `bytes` -1 if they are malformed. */
bool stream_notify_deliver(struct stream_link *link, struct stream_entry *entry,
                           struct stream_id id, int64_t deliveries,
                           const struct redis_reply *fields);
void stream_notify_park(struct stream_link *link, struct stream_entry *entry, struct stream_id id,
                        int64_t bytes, int64_t fields_n);
void stream_notify_post(struct stream_link *link, struct stream_message *message, unsigned what);
/* Reports the result of a delay or a burial; `why` may be NULL. */
void stream_notify_result(struct stream_link *link, struct stream_message *message, bool taken,
                          const char *why);
/* The message is out from now on, and is reported. */
void stream_notify_message(struct stream_entry *entry, struct stream_message *message);
/* The message was returned: it is freed now, or after the report of its pending request. */
void stream_notify_dismiss(struct stream_link *link, struct stream_message *message);
void stream_notify_drop(struct stream_link *link, struct stream_message *message);

/* stream_entry.c: the table of entries */
bool stream_entry_table_init(struct stream_link *link);
void stream_entry_table_release(struct stream_link *link);
struct stream_entry *stream_entry_find(const struct stream_link *link, struct stream_id id);
struct stream_entry *stream_entry_new(struct stream_link *link, struct stream_id id);
void stream_entry_set_state(struct stream_entry *entry, enum stream_state state);
void stream_entry_free(struct stream_entry *entry);
/* The entry is no longer ours: for a message that is out, `gone` is reported. */
void stream_entry_forget(struct stream_entry *entry);

/* Written by the build. */
extern const char stream_take_script[], stream_move_script[], stream_page_script[];

extern const struct queue_broker queue_broker_stream;
extern const struct queue_dead_broker queue_dead_broker_stream;

#endif
