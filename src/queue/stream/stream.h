/*
 * Redis Streams as a broker, inside.
 *
 *     broker.c   the broker's table: open, fetch, close, what comes next
 *     link.c     the two connections: greeting, the group, loss
 *     read.c     new entries: XREADGROUP, which blocks
 *     gather.c   entries that were delivered before: our own, due ones, other consumers'
 *     keep.c     the idle time of what we have, and the clock of all that is done at intervals
 *     give.c     ack, giveback, delay, bury
 *     save.c     what is left of entries that were trimmed
 *     tell.c     what the consumer is told
 *     entry.c    the entries that we know of, by their ids
 *     message.c  an entry as a message
 *     reply.c    the server's answers, taken apart
 *     dead.c     dead letters, for the operator's commands
 *     take.lua, move.lua, page.lua   what must be one step for the server
 *
 * A MESSAGE. The body is the field that the config names ("body"), the first of that name; the
 * other fields are headers, in their order. An entry of one field has that as its body, whatever
 * its name (a dead letter's idem-* do not count); one of several fields without the body's has an
 * empty body. Names and values are bytes, whatever they hold. Properties: message_id is the entry's
 * id, which the same entry keeps over redeliveries and a second publication does not have;
 * deliveries is the server's count of them.
 *
 * WHOSE IT IS. An entry that was read stays pending under our consumer's name until it is
 * acknowledged. That holds over a lost connection and over our own death, so `gone` is not told
 * for those: acks are sent after the reconnect, and who starts under the same name reads its own
 * pending entries first, in order. After every reconnect, and at intervals, entries that are
 * pending under our name and that we do not know are looked for: they are what was in an answer
 * that never came. Others take an entry over when it was idle for min-idle: twice the lease, at
 * least 3 s. What we keep is renewed at a third of the lease (`extend` for what is out, by itself
 * for what is delayed), always under the condition that it is still ours. If it is not, because
 * we were away for longer than min-idle, a message that is out stays out, and its ack is still
 * good (its record says that it is done, whoever asks); its delay and its giveback leave it to who
 * has it now; and a delayed one is forgotten. That two consumers have it in hand at a time is
 * what the record's claim is for.
 *
 * `gone` is told when the group is not there any more (destroyed, the stream deleted or flushed, a
 * server that lost its data), or has begun anew. It is made again, from the beginning of the
 * stream, so that nothing is lost; what was done before is then delivered again, and the records
 * know it.
 *
 * ONE NAME, ONE PROCESS. Two that run under one name would take each other's entries for their
 * own. Nothing would be done twice (the record), but each would be delivered twice. So a process
 * that finds another one connected under its name says so, and goes on. Each needs a name of its
 * own, and the same one after a restart.
 *
 * GIVEBACK. The entry goes to a consumer that is nobody (STREAM_NOBODY), as one that was idle for a
 * year, with its count of deliveries put back. Every consumer of ours looks there each second, and
 * whoever else uses XAUTOCLAIM takes it, too.
 *
 * DELAY. No copy is made. The entry stays pending, and we remember its id and its time. A crash
 * makes it come sooner, and the record says that it is not due. So does closing, which gives back
 * all that waits here, with its count of deliveries as it is.
 *
 * TRIMMED. An entry that is deleted before it was done with is handled from memory, as long as we
 * have its content; what cannot stay in memory, because the link is closed, goes to the dead
 * letters (verdict "trimmed").
 *
 * WHAT THE USER MAY (ACL): +xreadgroup +xack +xadd +xpending +xclaim +xautoclaim +xrange
 * +xgroup|create +eval +client|setname +client|id, and for dead letters +type +xdel +xrevrange, on
 * the stream and its dead letters; +select where the URL has a database. Without +client|unblock,
 * what is due may wait for a read to end; without +client|list a namesake is not found.
 *
 * What is too large (STREAM_ENTRY_MAX, STREAM_FIELDS_MAX) is not delivered, nor lost: it stays
 * pending under our name, and `state` says which it is.
 */
#ifndef IDEM_QUEUE_STREAM_STREAM_H
#define IDEM_QUEUE_STREAM_STREAM_H

#include "queue/broker.h"
#include "queue/dead.h"
#include "store/redis/redis.h"

#define STREAM_BODY_FIELD "body"
#define STREAM_GROUP "idem"
#define STREAM_NOBODY "idem-returned"
#define STREAM_DEAD_ID "idem-id" /* of the entry that a dead letter was */
#define STREAM_NAME_MAX 1024     /* of streams, groups, consumers and fields */

#define STREAM_ENTRY_MAX ((size_t)64 << 20)  /* names and values of an entry */
#define STREAM_FIELDS_MAX ((size_t)4096)     /* of an entry */
#define STREAM_KEPT_MAX ((size_t)100000)     /* entries that wait, or cannot be read */
#define STREAM_KEPT_BYTES ((size_t)64 << 20) /* content of entries that wait */
#define STREAM_UNSAID_MAX                                                                          \
    ((size_t)10000) /* acks without an answer; with more, nothing is fetched */

/* For how long a link that is closed waits until what it has sent is answered; tests wait longer.
 */
extern int64_t stream_close_ms;

#define STREAM_BLOCK_MS 5000
#define STREAM_MIN_IDLE_MS 3000
#define STREAM_LEASE_MS 30000 /* where the config has none */

struct stream_link;

/* Ids. */

struct stream_id {
    uint64_t ms, seq;
};
#define STREAM_ID_TEXT 44
/* MS-SEQ, both in decimal digits; false: it is none. */
bool stream_id_parse(const char *text, size_t len, struct stream_id *ret);
const char *stream_id_print(struct stream_id id, char buf[STREAM_ID_TEXT]);

/*
 * Entries.
 *
 *     (new) ──> OUT ──delay──> DELAYED ──its time──> DUE ──asked for──> ASKED ──> OUT
 *                │                                    ^                  │
 *                │                                    └──── no answer ───┘
 *                ├──ack───────> ACKING ──sent──> ACKED ──> (over)
 *                └──giveback──> GIVING ──sent──> GIVEN ──> (over)
 *                                                  │ it was trimmed
 *                                                  └────> SAVING ──sent──> SAVED ──> (over)
 *     (new) ──> PARKED: it cannot be delivered
 *
 * Closing gives back what is DELAYED, DUE, ASKED and PARKED.
 */
enum stream_state {
    STREAM_NEW, /* it is in no list yet */
    STREAM_OUT,
    STREAM_DELAYED,
    STREAM_DUE,
    STREAM_ASKED,
    STREAM_PARKED,
    STREAM_ACKING,
    STREAM_ACKED,
    STREAM_GIVING,
    STREAM_GIVEN,
    STREAM_SAVING,
    STREAM_SAVED,
    STREAM_STATES
};

struct stream_entry {
    struct stream_link *owner;
    struct stream_entry *same; /* the next one of its bucket */
    struct stream_id id;
    enum stream_state state;
    struct stream_entry *next, **link;           /* those of its state, the first that came first */
    struct stream_entry *keep_next, **keep_link; /* those that we renew, the oldest first */
    int64_t renewed;                             /* when that was asked for; 0: it is to be */
    struct idem_timer due;
    bool lost;                      /* another consumer has it */
    bool deleted;                   /* it is not in the stream any more */
    bool begun;                     /* given back, and its delivery counts */
    unsigned tries;                 /* of what is being sent */
    struct stream_message *message; /* OUT */
    struct stream_message *kept;    /* its content, while it is not; may be NULL */
};

struct stream_list {
    struct stream_entry *first, **end;
    size_t n;
};

/* Messages. */

enum {
    STREAM_TELL_MESSAGE = 1 << 0,
    STREAM_TELL_GONE = 1 << 1,
    STREAM_TELL_TOLD = 1 << 2,
};

struct stream_message {
    struct queue_message base;
    struct stream_message *next, **link; /* all there are */
    struct stream_entry *entry;          /* NULL: it is not ours any more */
    struct stream_entry *keeper;         /* which keeps it */
    bool aside;                          /* it does, and nobody else has it */
    struct idem_bytes *fields;           /* of the entry: name, value, name, ... */
    size_t fields_n;                     /* names */
    size_t bytes;
    char id[STREAM_ID_TEXT];
    char deliveries[24];

    unsigned tell; /* what of it is to be told */
    struct stream_message *tell_next, **tell_link;
    bool asked;     /* a delay or a burial has not been told yet */
    bool delayed;   /* it is the delay */
    bool dismissed; /* given back meanwhile: it goes when that is told */
    queue_told_fn *told;
    void *told_data;
    bool taken;
    char why[160];
};

/* What of an entry becomes the body, and where it was read. */
struct stream_shape {
    const char *queue, *body_field;
};

/* An entry's fields, as the server tells them: name, value, name, value. */
enum stream_fit { STREAM_FITS, STREAM_TOO_LARGE, STREAM_ODD };
enum stream_fit stream_fields_measure(const struct redis_reply *fields, size_t *ret_bytes);
/* One that fits, as a message. NULL without memory. */
struct stream_message *stream_message_new(const struct stream_shape *shape, struct stream_id id,
                                          int64_t deliveries, const struct redis_reply *fields);
void stream_message_free(struct stream_message *message);
/* A property. */
struct queue_field stream_field(const char *name, const char *value, bool json);
/* Whether a field is one that a dead letter has besides (idem-*). */
bool stream_is_epitaph(struct idem_bytes name);
static inline struct stream_message *stream_message_of(struct queue_message *message) {
    return idem_container_of(message, struct stream_message, base);
}

/* Answers. */

/* The entries that an XREADGROUP of one stream brought; false: it is no such answer. *ret is NULL
   where none came. */
bool stream_read_entries(const struct redis_reply *reply, const struct redis_reply **ret);
/* [id, fields]; false: it is none. */
bool stream_read_entry(const struct redis_reply *item, struct stream_id *ret_id,
                       const struct redis_reply **ret_fields);
/* [id, consumer, idle, deliveries] of XPENDING: the id. */
bool stream_read_pending(const struct redis_reply *item, struct stream_id *ret);

/* What take.lua or move.lua say of one entry. */
enum stream_word {
    STREAM_WORD_ENTRY,   /* it is ours, and here it is */
    STREAM_WORD_LARGE,   /* it is ours, and too large */
    STREAM_WORD_LATER,   /* the answer was long enough without it */
    STREAM_WORD_OTHER,   /* somebody has it */
    STREAM_WORD_NONE,    /* it is pending nowhere */
    STREAM_WORD_DELETED, /* it is not in the stream any more */
    STREAM_WORD__COUNT
};
struct stream_said {
    struct stream_id id;
    enum stream_word word;
    int64_t deliveries;               /* ENTRY */
    const struct redis_reply *fields; /* ENTRY */
    int64_t bytes, fields_n;          /* LARGE */
};
bool stream_read_said(const struct redis_reply *item, struct stream_said *ret);

/* XAUTOCLAIM ... JUSTID, and without; of Redis 7, which tells what was deleted, and of 6.2, which
   has nothing in its place. */
struct stream_claimed {
    struct stream_id next; /* where it goes on; 0-0: it was through */
    const struct redis_reply *items;
    size_t deleted;
    const struct redis_reply *deleted_items; /* their ids; NULL: the server did not say */
};
bool stream_read_claimed(const struct redis_reply *reply, struct stream_claimed *ret);
/* One of its items; false: nothing is there. */
bool stream_read_claimed_id(const struct redis_reply *item, struct stream_id *ret);

/* An error for people. What the server says is not passed on but for its first word: some errors
   repeat what was sent. Returns buf. */
#define STREAM_ERROR_TEXT 160
const char *stream_error_text(const struct redis_reply *reply, char buf[STREAM_ERROR_TEXT]);
/* Whether it says that the group, or the stream, is not there (any more). */
bool stream_is_gone(const struct redis_reply *reply);

/* The link. */

enum stream_gathering {
    STREAM_GATHER_NOTHING,
    STREAM_GATHER_OWN,      /* asks what is pending under our name */
    STREAM_GATHER_IDLE,     /* takes over what was idle */
    STREAM_GATHER_RETURNED, /* asks what was given back */
    STREAM_GATHER_TAKE,     /* asks for entries */
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
    size_t prefetch, more; /* so many may be out */
    int64_t min_idle_ms, renew_ms, claim_ms, block_ms;

    /* link.c */
    struct redis_config config, reading_config; /* the second has the first's strings */
    char *reading_name;
    char mark[20]; /* what it ends in: whoever has the same is our namesake */
    struct redis_tls_config *tls;
    struct redis_conn command, reading;
    long long reading_id; /* the server's number of it; 0: not known */
    bool was_ready;       /* the group was there once */
    bool looked;          /* for namesakes */
    bool told_ready;
    char told_text[400];

    /* broker.c */
    bool fetching, closing, telling;
    struct idem_task next;
    struct idem_timer again;        /* after a pause */
    int64_t wait_until, give_until; /* nothing is asked for; nothing is given back */
    unsigned troubles;
    struct idem_timer tick;

    /* read.c */
    size_t read_n;     /* asked for; 0: no read is under way */
    size_t read_batch; /* ask for no more */
    int64_t read_at;   /* since when */
    bool interrupted;
    bool unblocking; /* that was not answered yet: no other read may be hit by it */

    /* gather.c */
    enum stream_gathering gathering;
    size_t gather_n; /* room that is kept for it */
    struct stream_id ids[STREAM_GATHER_MAX];
    size_t ids_n;
    bool surveying;
    struct stream_id survey_at; /* behind this one */
    bool claiming, returned;
    bool polling; /* returned ones are asked for, without room */
    struct stream_id claim_at;
    unsigned claim_steps;
    int64_t claim_due;

    /* entry.c */
    struct stream_entry **buckets;
    size_t buckets_n, entries_n; /* a power of two */
    struct stream_list lists[STREAM_STATES];
    struct stream_entry *keep, **keep_end;
    size_t kept_n;

    /* save.c */
    size_t kept_bytes;
    uint64_t deleted_n;

    /* keep.c */
    bool renewing;

    /* tell.c */
    struct stream_message *messages;
    size_t out_n, out_bytes;
    struct stream_message *tells, **tells_end;
    struct stream_line lines[STREAM_LINES];
    unsigned lines_n;
    struct idem_task tell;
};

static inline struct stream_link *stream_link_of(struct queue_link *link) {
    return (struct stream_link *)(void *)link;
}

/* broker.c */
void stream_next_post(struct stream_link *link);
/* How many more messages may come. */
size_t stream_room(const struct stream_link *link);
/* Nothing is asked for until a pause is over, which grows. */
void stream_wait(struct stream_link *link);
/* Something is refused: it is told, and nothing is asked for until a pause is over. */
void stream_trouble(struct stream_link *link, const char *what, const struct redis_reply *reply);
/* The same for a message that could not be made: it is looked for again. */
void stream_no_memory(struct stream_link *link);
int64_t stream_min_idle(const struct queue_config *config);

/* link.c */
void stream_link_connect(struct stream_link *link);
bool stream_is_ready(const struct stream_link *link);
/* The group is not there any more: all that is known goes with it. Both connections begin anew. */
void stream_link_reset(struct stream_link *link);
/* COMMAND stream group, with so many parts to follow. */
void stream_put_begin(const struct stream_link *link, struct redis_buffer *out, size_t more,
                      const char *command);
/* EVAL of a script on the stream, with so many arguments behind the group. */
void stream_put_script(const struct stream_link *link, struct redis_buffer *out, size_t more,
                       const char *script);
void stream_put_id(struct redis_buffer *out, struct stream_id id);
/* Sends it on the command connection, and empties it; false: not sent. */
bool stream_send(struct stream_link *link, struct redis_buffer *out, redis_reply_fn *take,
                 void *data);

/* read.c */
void stream_read_next(struct stream_link *link);
void stream_read_interrupt(struct stream_link *link);

/* gather.c */
void stream_gather_next(struct stream_link *link);
/* Whether it is at it, or would be if there were room: what is new comes behind that. */
bool stream_gather_wants(const struct stream_link *link);
void stream_survey_begin(struct stream_link *link);
/* A second has passed, or so. */
void stream_gather_tick(struct stream_link *link, int64_t now);

/* keep.c */
void stream_tick_fire(struct idem_timer *timer);
void stream_renew_next(struct stream_link *link);
void stream_renew_all(struct stream_link *link); /* also what is out: we are back */
void stream_extend(struct queue_link *link, struct queue_message *const *messages, size_t n);

/* give.c */
void stream_give_next(struct stream_link *link);
void stream_ack(struct queue_link *link, struct queue_message *message);
void stream_delay(struct queue_link *link, struct queue_message *message, int64_t ms,
                  queue_told_fn *told, void *data);
void stream_bury(struct queue_link *link, struct queue_message *message,
                 const struct queue_epitaph *epitaph, queue_told_fn *told, void *data);
void stream_giveback(struct queue_link *link, struct queue_message *message);
/* All that waits here: the link is to be closed. */
void stream_give_all(struct stream_link *link);

/* save.c */
/* Keeps its content, and frees it with the entry; false: there is no room. */
bool stream_keep(struct stream_entry *entry, struct stream_message *message, bool anyway);
void stream_unkeep(struct stream_entry *entry);
/* Delivers what was kept, now or when it is asked for the next time; false: nothing was. */
bool stream_deliver_kept(struct stream_entry *entry);
/* It is told, once; whether we have its content. */
bool stream_deleted(struct stream_link *link, struct stream_id id);

/* tell.c */
void stream_tell_run(struct idem_task *task);
void stream_say(struct stream_link *link, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* An entry with its content: a message for it. `entry` may be NULL: it is not known yet. False
   without memory. One that cannot be delivered has too many bytes and fields, or (-1) is none. */
bool stream_deliver(struct stream_link *link, struct stream_entry *entry, struct stream_id id,
                    int64_t deliveries, const struct redis_reply *fields);
void stream_park(struct stream_link *link, struct stream_entry *entry, struct stream_id id,
                 int64_t bytes, int64_t fields_n);
void stream_tell(struct stream_link *link, struct stream_message *message, unsigned what);
/* What became of a delay or a burial; `why` may be NULL. */
void stream_told(struct stream_link *link, struct stream_message *message, bool taken,
                 const char *why);
/* It is out from now on, and is told. */
void stream_message_out(struct stream_entry *entry, struct stream_message *message);
/* It is given back: it goes now, or when what was asked of it is told. */
void stream_dismiss(struct stream_link *link, struct stream_message *message);
void stream_message_drop(struct stream_link *link, struct stream_message *message);

/* entry.c */
bool stream_entries_init(struct stream_link *link);
void stream_entries_release(struct stream_link *link);
struct stream_entry *stream_entry_find(const struct stream_link *link, struct stream_id id);
struct stream_entry *stream_entry_new(struct stream_link *link, struct stream_id id);
void stream_entry_set(struct stream_entry *entry, enum stream_state state);
void stream_entry_free(struct stream_entry *entry);
/* It is not ours any more: a message that is out is told so. */
void stream_entry_gone(struct stream_entry *entry);
/* It goes to the end of those that are renewed. */
void stream_entry_renewed(struct stream_entry *entry, int64_t now);

/* Written by the build. */
extern const char stream_take_script[], stream_move_script[], stream_page_script[];

extern const struct queue_broker queue_broker_stream;
extern const struct queue_dead_broker queue_dead_broker_stream;

#endif
