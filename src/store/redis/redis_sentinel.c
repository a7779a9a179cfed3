/*
 * Finds the master, and decides if it may be written to now. If no sentinel was heard for
 * sentinel_grace, a failover could go unseen, and nothing new is granted.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/error.h"
#include "store/redis/redis_sentinel_event.h"
#include "store/redis/redis_store.h"

/*
 * The events that a sentinel publishes about a master. Fails on text that does not have the form of
 * its channel.
 */

#define WORDS_MAX 8

/* The places of the master's name and of the new address in the text. */
enum form {
    FORM_INSTANCE, /* master NAME IP PORT, or slave NAME IP PORT @ NAME IP PORT */
    FORM_SWITCH,   /* NAME OLD-IP OLD-PORT NEW-IP NEW-PORT */
};

static const struct {
    const char *channel;
    enum sentinel_sign sign;
    enum form form;
} channels[] = {
    {"+selected-slave", SENTINEL_BEGINS, FORM_INSTANCE},
    {"+failover-state-send-slaveof-noone", SENTINEL_BEGINS, FORM_INSTANCE},
    {"+failover-state-wait-promotion", SENTINEL_BEGINS, FORM_INSTANCE},
    {"+promoted-slave", SENTINEL_MOVES, FORM_INSTANCE},
    {"+switch-master", SENTINEL_MOVES, FORM_SWITCH},
    {"-failover-abort-not-elected", SENTINEL_ABORTS, FORM_INSTANCE},
    {"-failover-abort-no-good-slave", SENTINEL_ABORTS, FORM_INSTANCE},
    {"-failover-abort-slave-timeout", SENTINEL_ABORTS, FORM_INSTANCE},
};

const char *sentinel_channel(size_t i) {
    return i < sizeof(channels) / sizeof(channels[0]) ? channels[i].channel : NULL;
}

struct word {
    const char *at;
    size_t len;
};

/* Splits the text at its spaces; returns the number of words, at most WORDS_MAX. */
static size_t sentinel_event_split_words(const char *text, size_t len,
                                         struct word words[WORDS_MAX]) {
    const char *end = text + len, *space;
    size_t n = 0;

    while (text < end && n < WORDS_MAX) {
        space = memchr(text, ' ', (size_t)(end - text));
        if (space == NULL)
            space = end;
        words[n++] = (struct word){text, (size_t)(space - text)};
        text = space + (space < end);
    }
    return n;
}

static bool word_is(struct word word, const char *text) {
    return idem_is_word(word.at, word.len, text);
}

/* Parses a host and a port; false, with *ret unchanged: they are not an address. */
static bool sentinel_address(const char *name, size_t name_len, const char *port, size_t port_len,
                             struct idem_host_name *ret) {
    struct idem_host_name host = {0};
    char digits[8], *end;
    unsigned long number;

    if (name_len == 0 || name_len >= sizeof(host.name) || memchr(name, '\0', name_len) != NULL ||
        port_len == 0 || port_len >= sizeof(digits) || port[0] < '0' || port[0] > '9')
        return false;
    memcpy(digits, port, port_len);
    digits[port_len] = '\0';
    number = strtoul(digits, &end, 10);
    if (*end != '\0' || number == 0 || number > UINT16_MAX)
        return false;
    memcpy(host.name, name, name_len);
    host.port = (uint16_t)number;
    *ret = host;
    return true;
}

bool sentinel_event_read(const char *channel, const char *text, size_t len, const char *master,
                         struct sentinel_event *ret) {
    struct word words[WORDS_MAX], at;
    size_t n = sentinel_event_split_words(text, len, words), i = 0, address = 2;

    while (i < sizeof(channels) / sizeof(channels[0]) && strcmp(channels[i].channel, channel) != 0)
        i++;
    if (i == sizeof(channels) / sizeof(channels[0]))
        return false;
    if (channels[i].form == FORM_SWITCH && n == 5) {
        at = words[0];
        address = 3;
    } else if (channels[i].form == FORM_INSTANCE && n >= 4 && word_is(words[0], "master")) {
        at = words[1];
    } else if (channels[i].form == FORM_INSTANCE && n == 8 && word_is(words[4], "@")) {
        at = words[5];
    } else {
        return false;
    }
    ret->sign = channels[i].sign;
    return word_is(at, master) &&
           sentinel_address(words[address].at, words[address].len, words[address + 1].at,
                            words[address + 1].len, &ret->host);
}

/*
 * Every sentinel is asked once a second, and its events are subscribed to, on a second connection:
 * a subscribed connection accepts no other commands. The sentinels in the URL list the others. The
 * view with the highest configuration epoch counts.
 *
 *     ──+selected-slave──> HELD ──+promoted-slave, +switch-master──> at the new master
 *                           └─────-failover-abort-*, its end─────> at the old one
 *
 * While held, nothing is written: the old master would acknowledge changes that the new one never
 * sees, until Sentinel demotes it, some ten seconds after the switch. An operation waits for the
 * end of a failover for sentinel_grace at most; later ones are refused.
 *
 * It is also held in three other cases. While the sentinel that leads a failover is unreachable,
 * for sentinel_grace and a round: it may continue the failover unseen. While the newest view is
 * lost with its sentinel, for sentinel_grace: the others may not know that failover yet. After a
 * +switch-master whose failover was not seen, until that sentinel reports the epoch: it may have
 * been suspended, and name a former master.
 *
 * A sentinel counts as heard when it has responded and its events arrive: the subscription is
 * confirmed, and PING on that connection has a response.
 */

#define ASK_MS 1000
#define ASK_AGAIN_MS 50    /* between two rounds on request */
#define LEARN_ROUNDS 10    /* every tenth round asks for the other sentinels */
#define UNLISTED_ROUNDS 30 /* a sentinel that no other has listed for so long is dropped */
#define PEERS_MAX REDIS_HOSTS_MAX
#define ID_LEN 40

struct sentinel_peer {
    struct redis_sentinel *sentinel;
    struct redis_conn queries, events;
    bool named;     /* by the URL */
    bool was_tried; /* has responded once, or could not be reached */
    char id[ID_LEN + 1];
    unsigned listed; /* the last round in which another sentinel listed it */

    bool has_view; /* the two fields below are valid */
    struct idem_host_name master;
    uint64_t epoch;

    bool leads_failover;     /* by its last report */
    bool epoch_is_due;       /* its event named a new master; its next reply has the epoch */
    int64_t doubtful_at;     /* when it last reported one of the two */
    uint64_t doubtful_epoch; /* the newest epoch then */

    unsigned replies_due;
    unsigned events_n;      /* received from it */
    unsigned events_at_ask; /* events_n when it was asked: a reply older than an event is void */
    unsigned subscribed;    /* confirmed channels */
    int64_t pinged_at;      /* on the connection of events; 0: no response is pending */
    struct {
        bool known, in_progress;
        struct idem_host_name master;
        uint64_t epoch;
    } reply; /* to SENTINEL MASTER, until the address arrives */
};

struct redis_sentinel {
    struct redis_store *store;
    struct sentinel_peer *peers[PEERS_MAX];
    size_t peers_n;
    struct idem_timer timer;
    unsigned rounds;
    unsigned rounds_unheard; /* since one was heard */
    int64_t asked_at;        /* the time of the last round */
    int64_t heard_at;        /* when a sentinel whose events arrive last named the master */
    uint64_t epoch;          /* of the view in use */
    int64_t behind_since;    /* since when all views are older than that; 0: one is not */
    bool held;
    int64_t held_since;
};

static bool sentinel_same_host(const struct idem_host_name *a, const struct idem_host_name *b) {
    return a->port == b->port && strcmp(a->name, b->name) == 0;
}

/* Decisions. */

/* Returns the newest view. Among several, one that names the master in use wins. */
static const struct sentinel_peer *sentinel_newest_view(const struct redis_sentinel *sentinel) {
    const struct redis_node *node = sentinel->store->nodes;
    const struct sentinel_peer *best = NULL;

    for (size_t i = 0; i < sentinel->peers_n; i++) {
        const struct sentinel_peer *peer = sentinel->peers[i];

        if (!peer->has_view || (best != NULL && peer->epoch < best->epoch))
            continue;
        if (best == NULL || peer->epoch > best->epoch ||
            (node != NULL && sentinel_same_host(&peer->master, &node->conn.host)))
            best = peer;
    }
    return best;
}

/* The first master is accepted when most sentinels in the URL have responded, or all were tried:
   a single one may have been suspended during a failover. */
static bool sentinel_knows_first_master(const struct redis_sentinel *sentinel) {
    size_t named = 0, know = 0, was_tried = 0;

    for (size_t i = 0; i < sentinel->peers_n; i++) {
        named += sentinel->peers[i]->named;
        know += sentinel->peers[i]->named && sentinel->peers[i]->has_view;
        was_tried += sentinel->peers[i]->named && sentinel->peers[i]->was_tried;
    }
    return know > named / 2 || was_tried == named;
}

/* Connects to the master, and drops the connections to the previous one. Callbacks may close the
   store, and with it the node, at each step. */
static void sentinel_set_master(struct redis_store *store, const struct idem_host_name *host) {
    struct redis_node *node = store->nodes;

    if (node == NULL)
        node = redis_node_new(store, host);
    if (node == NULL) {
        remote_trouble(&store->remote, IDEM_E_NOMEM, false, "no memory for a connection");
        return;
    }
    remote_enter(&store->remote);
    if (!sentinel_same_host(&node->conn.host, host)) {
        redis_conn_close(&node->wake);
        redis_wake_forget(node);
        if (redis_conn_is_made(&node->conn) || node->conn.state == REDIS_CONN_READY)
            redis_conn_fail(&node->conn, IDEM_E_REFUSED, "the master is %s now", host->name);
        if (!store->remote.closing)
            redis_node_move(node, host);
    }
    if (!store->remote.closing)
        redis_conn_open(&node->conn);
    (void)remote_leave(&store->remote);
}

/* True if the newest view is older than the one in use: the sentinel that led a failover is
   unreachable, and the others may not know that failover yet. After sentinel_grace their view is
   accepted. */
static bool sentinel_is_behind(struct redis_sentinel *sentinel, const struct sentinel_peer *best) {
    int64_t now = idem_loop_now();

    if (best->epoch >= sentinel->epoch) {
        sentinel->behind_since = 0;
        return false;
    }
    if (sentinel->behind_since == 0)
        sentinel->behind_since = now;
    return now - sentinel->behind_since < sentinel->store->config.sentinel_grace_ms;
}

static void sentinel_set_held(struct redis_sentinel *sentinel, bool held) {
    bool was_held = sentinel->held;

    sentinel->held = held;
    if (held && !was_held)
        sentinel->held_since = idem_loop_now();
    if (!held && was_held)
        remote_resume(&sentinel->store->remote);
}

static uint64_t sentinel_newest_epoch(const struct redis_sentinel *sentinel) {
    const struct sentinel_peer *best = sentinel_newest_view(sentinel);

    return best == NULL || best->epoch < sentinel->epoch ? sentinel->epoch : best->epoch;
}

/* Records a sentinel's report of a failover. */
static void sentinel_peer_set_doubt(struct sentinel_peer *peer, bool leads_failover,
                                    bool epoch_is_due) {
    peer->leads_failover = leads_failover;
    peer->epoch_is_due = epoch_is_due;
    peer->doubtful_at = idem_loop_now();
    peer->doubtful_epoch = sentinel_newest_epoch(peer->sentinel);
}

/* True while a sentinel's last report counts, though the sentinel may be unreachable by now: for
   sentinel_grace and a round, and until a newer master is known. */
static bool sentinel_peer_is_recent(const struct sentinel_peer *peer) {
    int64_t limit = peer->sentinel->store->config.sentinel_grace_ms + ASK_MS;

    return idem_loop_now() - peer->doubtful_at < limit &&
           sentinel_newest_epoch(peer->sentinel) <= peer->doubtful_epoch;
}

static bool sentinel_peer_is_doubtful(const struct sentinel_peer *peer) {
    return (peer->leads_failover || peer->epoch_is_due) && sentinel_peer_is_recent(peer);
}

/* Applies the sentinels' reports. Callers do this last: it may free the store. */
static void sentinel_decide(struct redis_sentinel *sentinel) {
    const struct sentinel_peer *best = sentinel_newest_view(sentinel);
    struct idem_host_name host;
    bool held = false;

    for (size_t i = 0; i < sentinel->peers_n; i++)
        held |= sentinel_peer_is_doubtful(sentinel->peers[i]);
    if (best != NULL && sentinel_is_behind(sentinel, best)) {
        sentinel_set_held(sentinel, true);
        return;
    }
    sentinel_set_held(sentinel, held);
    if (best == NULL || (sentinel->store->nodes == NULL && !sentinel_knows_first_master(sentinel)))
        return;
    sentinel->epoch = best->epoch;
    host = best->master;
    sentinel_set_master(sentinel->store, &host);
}

/* Queries. */

/* Returns the value of a name in [name, value, name, value, ...]. */
static const struct redis_reply *reply_get_pair(const struct redis_reply *reply, const char *name) {
    for (size_t i = 0; reply->type == REDIS_REPLY_ARRAY && i + 1 < reply->items_n; i += 2)
        if (reply->items[i]->type == REDIS_REPLY_STRING &&
            reply->items[i + 1]->type == REDIS_REPLY_STRING &&
            strcmp(reply->items[i]->text, name) == 0)
            return reply->items[i + 1];
    return NULL;
}

static bool reply_get_address(const struct redis_reply *reply, struct idem_host_name *ret) {
    const struct redis_reply *ip = reply_get_pair(reply, "ip"),
                             *port = reply_get_pair(reply, "port");

    return ip != NULL && port != NULL &&
           sentinel_address(ip->text, ip->len, port->text, port->len, ret);
}

/* Takes the sentinel's view, with the flags of a failover that it leads. */
static void sentinel_take_master(struct redis_conn *conn, void *data,
                                 const struct redis_reply *reply) {
    struct sentinel_peer *peer = data;
    const struct redis_reply *flags, *epoch;

    peer->reply.known = false;
    if (reply == NULL)
        return;
    if (conn->state == REDIS_CONN_GREETING)
        redis_conn_ready(conn);
    peer->replies_due--;
    flags = reply_get_pair(reply, "flags");
    epoch = reply_get_pair(reply, "config-epoch");
    peer->reply.known = reply_get_address(reply, &peer->reply.master);
    peer->reply.in_progress = flags != NULL && strstr(flags->text, "failover_in_progress") != NULL;
    peer->reply.epoch = epoch == NULL ? 0 : strtoull(epoch->text, NULL, 10);
}

static void sentinel_peer_drop_view(struct sentinel_peer *peer) {
    peer->was_tried = true;
    peer->has_view = false;
}

static bool sentinel_peer_is_subscribed(const struct sentinel_peer *peer) {
    return peer->events.state == REDIS_CONN_READY && sentinel_channel(peer->subscribed) == NULL;
}

/* [host, port], or nil for an unknown name. It is the promoted replica's address as soon as that
   is the master, while SENTINEL MASTER still names the old one. */
static void sentinel_take_address(struct redis_conn *conn, void *data,
                                  const struct redis_reply *reply) {
    struct sentinel_peer *peer = data;
    struct redis_sentinel *sentinel = peer->sentinel;
    struct redis_store *store = sentinel->store;
    struct idem_host_name host;

    if (reply == NULL)
        return;
    peer->replies_due--;
    if (reply->type == REDIS_REPLY_ARRAY && reply->items_n == 2 &&
        reply->items[0]->type == REDIS_REPLY_STRING &&
        reply->items[1]->type == REDIS_REPLY_STRING &&
        sentinel_address(reply->items[0]->text, reply->items[0]->len, reply->items[1]->text,
                         reply->items[1]->len, &host)) {
        if (sentinel_peer_is_subscribed(peer)) {
            sentinel->heard_at = idem_loop_now();
            sentinel->rounds_unheard = 0;
        }
        if (peer->events_at_ask !=
            peer->events_n) { /* an event arrived since the question, and is newer */
            redis_sentinel_ask(store);
            return;
        }
        peer->was_tried = peer->has_view = true;
        peer->master = host;
        peer->epoch = peer->reply.epoch;
        sentinel_peer_set_doubt(peer,
                                peer->reply.known && peer->reply.in_progress &&
                                    sentinel_same_host(&host, &peer->reply.master),
                                false);
    } else {
        sentinel_peer_drop_view(peer);
        if (reply->type == REDIS_REPLY_NIL)
            remote_trouble(&store->remote, IDEM_E_REFUSED, false,
                           "%s: no master is called \"%.64s\"", conn->place, store->config.master);
        else
            remote_trouble(&store->remote, IDEM_E_REFUSED, false, "%s: %.100s", conn->place,
                           reply->type == REDIS_REPLY_ERROR ? reply->text : "is no sentinel");
    }
    sentinel_decide(sentinel);
}

static struct sentinel_peer *sentinel_find_peer(const struct redis_sentinel *sentinel,
                                                const char *id) {
    for (size_t i = 0; id[0] != '\0' && i < sentinel->peers_n; i++)
        if (strcmp(sentinel->peers[i]->id, id) == 0)
            return sentinel->peers[i];
    return NULL;
}

static void sentinel_add_peer(struct redis_sentinel *sentinel, const struct idem_host_name *host,
                              bool named, const char *id);
static void sentinel_remove_peer(struct redis_sentinel *sentinel, struct sentinel_peer *peer);

/* A listed sentinel whose address differs from the known one has moved. */
static void sentinel_update_peer(struct redis_sentinel *sentinel, const struct idem_host_name *host,
                                 const char *id) {
    struct sentinel_peer *known = sentinel_find_peer(sentinel, id);

    if (known != NULL && !known->named && !sentinel_same_host(&known->queries.host, host)) {
        sentinel_remove_peer(sentinel, known);
        known = NULL;
    }
    if (known == NULL)
        sentinel_add_peer(sentinel, host, false, id);
    else
        known->listed = sentinel->rounds;
}

/* Takes the list of the other sentinels. */
static void sentinel_take_list(struct redis_conn *conn, void *data,
                               const struct redis_reply *reply) {
    struct sentinel_peer *peer = data;
    struct redis_sentinel *sentinel = peer->sentinel;
    const struct redis_reply *id;
    struct idem_host_name host;

    (void)conn;
    if (reply == NULL)
        return;
    peer->replies_due--;
    for (size_t i = 0; reply->type == REDIS_REPLY_ARRAY && i < reply->items_n; i++) {
        id = reply_get_pair(reply->items[i], "runid");
        if (id != NULL && id->len == ID_LEN && reply_get_address(reply->items[i], &host) &&
            sentinel_find_peer(sentinel, id->text) != peer) /* a sentinel does not list itself */
            sentinel_update_peer(sentinel, &host, id->text);
    }
}

/* A sentinel in the URL may be known already, by an address that another sentinel listed. */
static void sentinel_take_id(struct redis_conn *conn, void *data, const struct redis_reply *reply) {
    struct sentinel_peer *peer = data;
    struct redis_sentinel *sentinel = peer->sentinel;

    (void)conn;
    if (reply == NULL)
        return;
    peer->replies_due--;
    if (reply->type != REDIS_REPLY_STRING || reply->len != ID_LEN)
        return;
    memcpy(peer->id, reply->text, ID_LEN);
    for (size_t i = 0; i < sentinel->peers_n; i++)
        if (sentinel->peers[i] != peer && !sentinel->peers[i]->named &&
            strcmp(sentinel->peers[i]->id, peer->id) == 0) {
            sentinel_remove_peer(sentinel, sentinel->peers[i]);
            return;
        }
}

static void sentinel_peer_send(struct sentinel_peer *peer, const char *word, const char *name,
                               redis_reply_fn *take) {
    peer->replies_due +=
        redis_conn_command(&peer->queries, take, peer, "SENTINEL", word, name, NULL);
}

static void sentinel_peer_query(struct sentinel_peer *peer, bool learn) {
    const char *master = peer->sentinel->store->config.master;

    peer->events_at_ask = peer->events_n;
    sentinel_peer_send(peer, "MASTER", master, sentinel_take_master);
    sentinel_peer_send(peer, "GET-MASTER-ADDR-BY-NAME", master, sentinel_take_address);
    if (learn) {
        sentinel_peer_send(peer, "MYID", NULL, sentinel_take_id);
        sentinel_peer_send(peer, "SENTINELS", master, sentinel_take_list);
    }
}

static void sentinel_greet_queries(struct redis_conn *conn) {
    struct sentinel_peer *peer = conn->data;

    peer->replies_due = 0;
    redis_greet(conn, NULL, NULL);
    sentinel_peer_query(peer, true);
    redis_conn_flush(conn);
}

static void sentinel_lose_queries(struct redis_conn *conn) {
    struct sentinel_peer *peer = conn->data;

    sentinel_peer_drop_view(peer);
    if (peer->named && sentinel_newest_view(peer->sentinel) == NULL)
        remote_trouble(&peer->sentinel->store->remote, conn->code, false, "the sentinel %s: %s",
                       conn->place, conn->why);
    sentinel_decide(peer->sentinel);
}

static const struct redis_role queries_role = {.greet = sentinel_greet_queries,
                                               .lost = sentinel_lose_queries};

/* Events. */

static void sentinel_take_greeting(struct redis_conn *conn, void *data,
                                   const struct redis_reply *reply) {
    struct sentinel_peer *peer = conn->data;
    struct idem_buffer out = {0};
    size_t n = 0;

    (void)data;
    peer->subscribed = 0;
    peer->pinged_at = 0;
    if (reply == NULL || redis_greet_full(conn, reply))
        return;
    while (sentinel_channel(n) != NULL)
        n++;
    redis_put_head(&out, n + 1);
    redis_put_text(&out, "SUBSCRIBE");
    for (size_t i = 0; i < n; i++)
        redis_put_text(&out, sentinel_channel(i));
    redis_conn_ready(conn);
    (void)redis_conn_send(conn, out.at, out.len, NULL, NULL);
    idem_buffer_release(&out);
    redis_conn_flush(conn);
}

static void sentinel_greet_events(struct redis_conn *conn) {
    redis_greet(conn, sentinel_take_greeting, NULL);
    redis_conn_flush(conn);
}

/* Sends PING, unless a response is pending. If it is pending for too long, the connection is
   dead. */
static void sentinel_peer_probe_events(struct sentinel_peer *peer) {
    int64_t now = idem_loop_now();

    if (!sentinel_peer_is_subscribed(peer))
        return;
    if (peer->pinged_at != 0) {
        if (now - peer->pinged_at > peer->sentinel->store->config.sentinel_grace_ms)
            redis_conn_fail(&peer->events, IDEM_E_REFUSED, "PING has no response");
        return;
    }
    if (redis_conn_command(&peer->events, NULL, NULL, "PING", NULL)) {
        peer->pinged_at = now;
        redis_conn_flush(&peer->events);
    }
}

/* An event has no epoch. The epoch of a failover that was seen is higher than all before; the
   next reply has it. */
static uint64_t sentinel_guess_epoch(const struct redis_sentinel *sentinel,
                                     const struct idem_host_name *host) {
    const struct sentinel_peer *best = sentinel_newest_view(sentinel);
    const struct redis_node *node = sentinel->store->nodes;
    const struct idem_host_name *master = best != NULL   ? &best->master
                                          : node != NULL ? &node->conn.host
                                                         : NULL;

    return sentinel_newest_epoch(sentinel) + (master == NULL || !sentinel_same_host(master, host));
}

static bool sentinel_peer_is_alone(const struct sentinel_peer *peer) {
    const struct redis_sentinel *sentinel = peer->sentinel;

    for (size_t i = 0; i < sentinel->peers_n; i++)
        if (sentinel->peers[i] != peer && sentinel->peers[i]->has_view)
            return false;
    return true;
}

/* A new master is accepted without its epoch if its failover was seen, or if no other sentinel
   could know better. */
static bool sentinel_peer_is_credible(const struct sentinel_peer *peer,
                                      const struct idem_host_name *host) {
    const struct sentinel_peer *best = sentinel_newest_view(peer->sentinel);

    return (peer->leads_failover && sentinel_peer_is_recent(peer)) ||
           sentinel_peer_is_alone(peer) || best == NULL || sentinel_same_host(&best->master, host);
}

static void sentinel_peer_take_event(struct sentinel_peer *peer,
                                     const struct sentinel_event *event) {
    bool moves = event->sign == SENTINEL_MOVES;
    bool credible = moves && sentinel_peer_is_credible(peer, &event->host);

    if (credible) {
        peer->epoch = sentinel_guess_epoch(peer->sentinel, &event->host);
        peer->master = event->host;
        peer->has_view = true;
    }
    sentinel_peer_set_doubt(peer, event->sign == SENTINEL_BEGINS, moves && !credible);
}

/* Without events a failover goes unseen: this sentinel does not count as heard. */
static void sentinel_refuse_subscribe(struct redis_conn *conn, const char *why) {
    struct sentinel_peer *peer = conn->data;

    redis_store_notice(peer->sentinel->store, NOTICE_SENTINEL,
                       "%s: the sentinel refuses SUBSCRIBE (%.80s): claims are refused unless "
                       "another sentinel accepts it; its user needs +subscribe, +ping and the "
                       "channels (&*)",
                       conn->place, why);
    redis_conn_fail(conn, IDEM_E_REFUSED, "SUBSCRIBE: %s", why);
}

static bool reply_is_push(const struct redis_reply *reply, const char *word) {
    return reply->type == REDIS_REPLY_ARRAY && reply->items_n > 0 &&
           reply->items[0]->type == REDIS_REPLY_STRING && strcmp(reply->items[0]->text, word) == 0;
}

/* [message, CHANNEL, TEXT], [subscribe, CHANNEL, NUMBER] or [pong, ""] */
static void sentinel_push_event(struct redis_conn *conn, const struct redis_reply *reply) {
    struct sentinel_peer *peer = conn->data;
    struct redis_sentinel *sentinel = peer->sentinel;
    struct sentinel_event event;

    if (reply->type == REDIS_REPLY_ERROR) {
        sentinel_refuse_subscribe(conn, reply->text);
        return;
    }
    if (reply_is_push(reply, "pong"))
        peer->pinged_at = 0;
    if (reply_is_push(reply, "subscribe") && sentinel_channel(peer->subscribed) != NULL)
        peer->subscribed++;
    if (!reply_is_push(reply, "message") || reply->items_n != 3 ||
        reply->items[1]->type != REDIS_REPLY_STRING ||
        reply->items[2]->type != REDIS_REPLY_STRING ||
        !sentinel_event_read(reply->items[1]->text, reply->items[2]->text, reply->items[2]->len,
                             sentinel->store->config.master, &event))
        return;
    peer->events_n++;
    sentinel_peer_take_event(peer, &event);
    redis_sentinel_ask(sentinel->store);
    sentinel_decide(sentinel);
}

/* When it is lost, the next reply covers the missed events. */
static const struct redis_role events_role = {.greet = sentinel_greet_events,
                                              .push = sentinel_push_event};

/* Sentinels. */

static void sentinel_peer_init_connection(struct redis_conn *conn,
                                          const struct idem_host_name *host,
                                          const struct redis_role *role,
                                          struct sentinel_peer *peer) {
    struct redis_store *store = peer->sentinel->store;

    redis_conn_init(conn, store->remote.base.loop, &store->config, store->tls, host, role, peer);
    conn->sentinel = true;
    /* All sentinels share the time of one attempt: a waiting operation has no more. */
    conn->connect_ms = (store->config.connect_timeout_ms - 1) / (int64_t)store->config.hosts_n + 1;
    redis_conn_open(conn);
}

static void sentinel_add_peer(struct redis_sentinel *sentinel, const struct idem_host_name *host,
                              bool named, const char *id) {
    struct sentinel_peer *peer;

    for (size_t i = 0; i < sentinel->peers_n; i++)
        if (sentinel_same_host(&sentinel->peers[i]->queries.host, host))
            return;
    if (sentinel->peers_n == PEERS_MAX || (peer = calloc(1, sizeof(*peer))) == NULL)
        return;
    peer->sentinel = sentinel;
    peer->named = named;
    peer->listed = sentinel->rounds;
    memcpy(peer->id, id, strnlen(id, ID_LEN));
    sentinel->peers[sentinel->peers_n++] = peer;
    sentinel_peer_init_connection(&peer->queries, host, &queries_role, peer);
    sentinel_peer_init_connection(&peer->events, host, &events_role, peer);
}

static void sentinel_peer_free(struct sentinel_peer *peer) {
    redis_conn_close(&peer->queries);
    redis_conn_close(&peer->events);
    free(peer);
}

static void sentinel_remove_peer(struct redis_sentinel *sentinel, struct sentinel_peer *peer) {
    for (size_t i = 0; i < sentinel->peers_n; i++)
        if (sentinel->peers[i] == peer) {
            sentinel->peers[i] = sentinel->peers[--sentinel->peers_n];
            break;
        }
    sentinel_peer_free(peer);
}

/* Drops sentinels that were listed once and are no longer listed or reachable. */
static void sentinel_forget_peers(struct redis_sentinel *sentinel) {
    for (size_t i = sentinel->peers_n; i-- > 0;) {
        struct sentinel_peer *peer = sentinel->peers[i];

        if (!peer->named && peer->queries.state != REDIS_CONN_READY &&
            sentinel->rounds - peer->listed > UNLISTED_ROUNDS)
            sentinel_remove_peer(sentinel, peer);
    }
}

/* Rounds. */

static void sentinel_run_round(struct redis_sentinel *sentinel) {
    bool learn = ++sentinel->rounds % LEARN_ROUNDS == 0;
    struct redis_store *store = sentinel->store;

    sentinel->asked_at = idem_loop_now();
    sentinel->rounds_unheard++;
    sentinel_forget_peers(sentinel);
    remote_enter(&store->remote); /* a write may lose a connection */
    for (size_t i = 0; !store->remote.closing && i < sentinel->peers_n; i++) {
        struct sentinel_peer *peer = sentinel->peers[i];

        if (peer->replies_due == 0 && peer->queries.state == REDIS_CONN_READY) {
            sentinel_peer_query(peer, learn);
            redis_conn_flush(&peer->queries);
        }
        if (!store->remote.closing)
            sentinel_peer_probe_events(peer);
    }
    if (!store->remote.closing && store->nodes != NULL)
        redis_node_check_role(store->nodes);
    if (!store->remote.closing)
        idem_timer_set(store->remote.base.loop, &sentinel->timer, ASK_MS);
    if (!store->remote.closing)
        sentinel_decide(sentinel); /* some reports may have expired */
    (void)remote_leave(&store->remote);
}

static void sentinel_fire_round(struct idem_timer *timer) {
    sentinel_run_round(idem_container_of(timer, struct redis_sentinel, timer));
}

/* Runs the round from the loop, because the caller may be in the middle of losing a connection. */
void redis_sentinel_ask(struct redis_store *store) {
    struct redis_sentinel *sentinel = store->sentinel;
    int64_t since = idem_loop_now() - sentinel->asked_at;

    idem_timer_set(store->remote.base.loop, &sentinel->timer,
                   since < ASK_AGAIN_MS ? ASK_AGAIN_MS - since : 0);
}

bool redis_sentinel_is_asked(const struct redis_store *store) {
    const struct redis_sentinel *sentinel = store->sentinel;

    for (size_t i = 0; sentinel != NULL && i < sentinel->peers_n; i++)
        if (sentinel->peers[i]->named && !sentinel->peers[i]->was_tried)
            return true;
    return false;
}

bool redis_sentinel_holds(const struct redis_store *store) {
    return store->sentinel != NULL && store->sentinel->held;
}

bool redis_sentinel_holds_long(const struct redis_store *store) {
    return redis_sentinel_holds(store) &&
           idem_loop_now() - store->sentinel->held_since > store->config.sentinel_grace_ms;
}

/* Requires two rounds: the host may have been suspended, and replies may be unread. */
bool redis_sentinel_is_silent(const struct redis_store *store) {
    const struct redis_sentinel *sentinel = store->sentinel;

    return sentinel != NULL && sentinel->rounds_unheard > 1 &&
           idem_loop_now() - sentinel->heard_at > store->config.sentinel_grace_ms;
}

int redis_sentinel_new(struct redis_store *store, struct idem_error *err) {
    struct redis_sentinel *sentinel = calloc(1, sizeof(*sentinel));

    if (sentinel == NULL)
        return idem_error_set(err, IDEM_E_NOMEM, "no memory for a store");
    sentinel->store = store;
    sentinel->timer.fire = sentinel_fire_round;
    sentinel->heard_at = idem_loop_now();
    store->sentinel = sentinel;
    for (size_t i = 0; i < store->config.hosts_n; i++)
        sentinel_add_peer(sentinel, &store->config.hosts[i], true, "");
    if (sentinel->peers_n == 0)
        return idem_error_set(err, IDEM_E_NOMEM, "no memory for a store");
    idem_timer_set(store->remote.base.loop, &sentinel->timer, ASK_MS);
    return 0;
}

void redis_sentinel_free(struct redis_sentinel *sentinel) {
    if (sentinel == NULL)
        return;
    idem_timer_clear(sentinel->store->remote.base.loop, &sentinel->timer);
    while (sentinel->peers_n > 0)
        sentinel_remove_peer(sentinel, sentinel->peers[0]);
    free(sentinel);
}
