/*
 * Dead letters of a stream, for the operator's commands: a connection on a loop of its own,
 * which runs until the server has replied. Letters are read by pages in the stream's order; a
 * receipt is an entry's id.
 *
 * A letter that is too large (no idem has buried it) is reported with its size, as the
 * property too_large, without its fields. It can be removed, but not requeued. A lost
 * connection is an error of the call that finds it: IDEM_E_REFUSED if nothing was sent, else
 * IDEM_E_UNKNOWN.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "loop/poll.h"
#include "queue/stream/stream.h"
#include "store/redis/redis_store.h"

static const char end_script[] = "local e = redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', "
                                 "1)[1] return e and e[1] or '0-0'";

#define PAGE 16
#define TIMEOUT_MS 10000
#define TURN_MS 1000

struct queue_dead {
    struct idem_poll poll;
    struct idem_loop loop;
    struct redis_config config;
    struct redis_tls_config *tls;
    struct redis_conn conn;
    char *queue, *body_field;
    int64_t timeout_ms;

    bool lost, answered;
    struct redis_reply *answer;

    struct redis_reply *page;
    size_t page_at;
    struct stream_id last; /* the last id that was read */
    struct stream_id end;  /* the last id at the time of the opening */
    bool began, ended;
    struct stream_message *letter; /* the letter returned last */
    bool large;
    char size[24], id[STREAM_ID_TEXT];
    struct queue_field properties[2];
    struct queue_message stub; /* stands for a letter that is too large */
};

/* The connection. */

static void dead_letter_on_greeting(struct redis_conn *conn, void *data,
                                    const struct redis_reply *reply) {
    (void)data;
    if (reply == NULL || redis_greet_full(conn, reply))
        return;
    redis_conn_ready(conn);
}

static void dead_letter_greet(struct redis_conn *conn) {
    redis_greet(conn, dead_letter_on_greeting, NULL);
    redis_conn_flush(conn);
}

static void dead_letter_refused(struct redis_conn *conn, const char *why) {
    redis_conn_fail(conn, IDEM_E_REFUSED, "%s", why);
}

static void dead_letter_lost(struct redis_conn *conn) {
    struct queue_dead *dead = conn->data;

    dead->lost = true;
}

static const struct redis_role dead_role = {
    .greet = dead_letter_greet, .refused = dead_letter_refused, .lost = dead_letter_lost};

static void dead_letter_on_reply(struct redis_conn *conn, void *data,
                                 const struct redis_reply *reply) {
    struct queue_dead *dead = data;

    if (reply == NULL)
        return;
    dead->answer = redis_conn_hold(conn);
    dead->answered = true;
}

static void dead_letter_loop_ready(void *sink, int fd, int events) {
    idem_loop_ready(sink, fd, events);
}

static void dead_letter_loop_timeout(void *sink) {
    idem_loop_timeout(sink);
}

static bool dead_turn(struct queue_dead *dead, int64_t until) {
    int64_t left = until - idem_loop_now();

    return left > 0 && idem_poll_turn(&dead->poll, NULL, 0, left < TURN_MS ? left : TURN_MS) >= 0;
}

/* Waits until the connection is ready. The first failure ends the wait: a command's user gets
   the error at once. */
static int dead_connect(struct queue_dead *dead, int64_t until, struct idem_error *err) {
    dead->lost = false;
    if (dead->conn.state == REDIS_CONN_PAUSING)
        redis_conn_close(&dead->conn);
    redis_conn_open(&dead->conn);
    while (dead->conn.state != REDIS_CONN_READY) {
        if (dead->lost)
            return idem_error_set(err, IDEM_E_REFUSED, "%s: %s", dead->conn.place, dead->conn.why);
        if (!dead_turn(dead, until))
            return idem_error_set(err, IDEM_E_REFUSED, "%s: no connection within %lld ms",
                                  dead->conn.place, (long long)dead->timeout_ms);
    }
    return 0;
}

/* Sends the command and frees it. Waits for the reply, which the caller frees. The server's
   errors become errors here. For a command that changes nothing, a missing reply is
   IDEM_E_REFUSED. */
static int dead_ask(struct queue_dead *dead, struct idem_buffer *out, bool changes,
                    struct redis_reply **ret, struct idem_error *err) {
    int64_t until = idem_loop_now() + dead->timeout_ms;
    char text[STREAM_ERROR_TEXT];
    int rc = out->failed ? idem_error_set(err, IDEM_E_NOMEM, "no memory for a command")
                         : dead_connect(dead, until, err);

    dead->answered = false;
    dead->answer = NULL;
    if (rc == 0 && !redis_conn_send(&dead->conn, out->at, out->len, dead_letter_on_reply, dead))
        rc = idem_error_set(err, IDEM_E_NOMEM, "no memory for a command");
    idem_buffer_release(out);
    if (rc != 0)
        return rc;
    redis_conn_flush(&dead->conn);
    while (!dead->answered && !dead->lost && dead_turn(dead, until))
        ;
    if (!dead->answered) {
        rc = changes ? IDEM_E_UNKNOWN : IDEM_E_REFUSED;
        rc = idem_error_set(err, rc, "%s: %s%s", dead->conn.place,
                            dead->lost ? dead->conn.why : "there was no response in time",
                            changes ? "; it may have happened" : "");
        redis_conn_close(&dead->conn); /* a late reply must not be taken for the next one */
        return rc;
    }
    if (dead->answer->type == REDIS_REPLY_ERROR) {
        rc = idem_error_set(err, IDEM_E_REFUSED, "%s: %s", dead->conn.place,
                            stream_error_text(dead->answer, text));
        redis_reply_free(dead->answer);
        return rc;
    }
    *ret = dead->answer;
    return 0;
}

/* Opening. */

static void dead_close(struct queue_dead *dead) {

    if (dead == NULL)
        return;
    if (dead->conn.loop != NULL)
        redis_conn_close(&dead->conn);
    idem_loop_stop(&dead->loop);
    idem_poll_release(&dead->poll);
    redis_reply_free(dead->page);
    stream_message_free(dead->letter);
    redis_tls_config_free(dead->tls);
    redis_config_release(&dead->config);
    free(dead->queue);
    free(dead->body_field);
    free(dead);
}

static int dead_check_type(struct queue_dead *dead, struct idem_error *err) {
    struct idem_buffer out = {0};
    struct redis_reply *reply;
    int rc;

    redis_put_command(&out, "TYPE", dead->queue, NULL);
    rc = dead_ask(dead, &out, false, &reply, err);
    if (rc != 0)
        return rc;
    if (strcmp(reply->text, "none") == 0)
        rc = idem_error_set(err, IDEM_E_ABSENT, "there is no stream %s, so it has no letters",
                            dead->queue);
    else if (strcmp(reply->text, "stream") != 0)
        rc = idem_error_set(err, IDEM_E_INVALID, "%s is no stream", dead->queue);
    redis_reply_free(reply);
    return rc;
}

/* Reading ends here, so that a command that requeues all letters does not meet those that are
   buried again meanwhile. */
static int dead_find_end(struct queue_dead *dead, struct idem_error *err) {
    struct idem_buffer out = {0};
    struct redis_reply *reply;
    int rc;

    redis_put_command(&out, "EVAL", end_script, "1", dead->queue, NULL);
    rc = dead_ask(dead, &out, false, &reply, err);
    if (rc != 0)
        return rc;
    if (reply->type != REDIS_REPLY_STRING || !stream_id_parse(reply->text, reply->len, &dead->end))
        rc = idem_error_set(err, IDEM_E_REFUSED, "%s: the server's reply is not understood",
                            dead->conn.place);
    redis_reply_free(reply);
    return rc;
}

static int dead_letter_open(const struct queue_dead_config *config, struct queue_dead **ret,
                            struct idem_error *err) {
    struct queue_dead *dead;
    struct idem_host host;
    int rc;

    if (config->queue == NULL || *config->queue == '\0')
        return idem_error_set(err, IDEM_E_INVALID, "the stream of dead letters has no name");
    dead = calloc(1, sizeof(*dead));
    if (dead == NULL)
        return idem_error_set(err, IDEM_E_NOMEM, "no memory for dead letters");
    idem_poll_init(&dead->poll);
    host = idem_poll_host(&dead->poll);
    idem_loop_init(&dead->loop, &host);
    dead->poll.ready = dead_letter_loop_ready;
    dead->poll.timeout = dead_letter_loop_timeout;
    dead->poll.sink = &dead->loop;
    dead->timeout_ms = config->timeout_ms > 0 ? config->timeout_ms : TIMEOUT_MS;
    dead->queue = strdup(config->queue);
    dead->body_field = strdup(config->body_field == NULL ? STREAM_BODY_FIELD : config->body_field);
    rc = dead->queue == NULL || dead->body_field == NULL
             ? idem_error_set(err, IDEM_E_NOMEM, "no memory for dead letters")
             : stream_broker_read_url(config->url, &dead->config, &dead->tls, err);
    if (rc == 0) {
        redis_conn_init(&dead->conn, &dead->loop, &dead->config, dead->tls, &dead->config.hosts[0],
                        &dead_role, dead);
        rc = dead_check_type(dead, err);
        if (rc == 0)
            rc = dead_find_end(dead, err);
    }
    if (rc != 0) {
        dead_close(dead);
        return rc;
    }
    *ret = dead;
    return 0;
}

/* Reading. */

static int dead_read_page(struct queue_dead *dead, struct idem_error *err) {
    char text[STREAM_ID_TEXT], from[STREAM_ID_TEXT + 1] = "-";
    struct idem_buffer out = {0};
    struct redis_reply *reply;
    int rc;

    if (dead->began)
        snprintf(from, sizeof(from), "(%s", stream_id_print(dead->last, text));
    redis_put_head(&out, 9);
    redis_put_text(&out, "EVAL");
    redis_put_text(&out, stream_page_script);
    redis_put_text(&out, "1");
    redis_put_text(&out, dead->queue);
    redis_put_text(&out, from);
    redis_put_number(&out, PAGE);
    redis_put_number(&out, (int64_t)STREAM_ENTRY_MAX);
    redis_put_number(&out, (int64_t)STREAM_FIELDS_MAX);
    stream_connection_put_id(&out, dead->end);
    rc = dead_ask(dead, &out, false, &reply, err);
    if (rc != 0)
        return rc;
    redis_reply_free(dead->page);
    dead->page = reply;
    dead->page_at = 0;
    dead->ended = reply->items_n == 0;
    return 0;
}

static int dead_make_letter(struct queue_dead *dead, const struct stream_outcome *outcome,
                            struct idem_error *err) {
    const struct stream_shape shape = {.queue = dead->queue, .body_field = dead->body_field};
    size_t bytes;

    stream_message_free(dead->letter);
    dead->letter = NULL;
    dead->large = outcome->word != STREAM_WORD_ENTRY ||
                  stream_fields_measure(outcome->fields, &bytes) != STREAM_FITS;
    if (!dead->large) {
        dead->letter = stream_message_new(&shape, outcome->id, 0, outcome->fields);
        return dead->letter != NULL ? 0
                                    : idem_error_set(err, IDEM_E_NOMEM, "no memory for a letter");
    }
    snprintf(dead->size, sizeof(dead->size), "%lld", (long long)outcome->bytes);
    dead->properties[0] =
        stream_message_property("message_id", stream_id_print(outcome->id, dead->id), false);
    dead->properties[1] = stream_message_property("too_large", dead->size, true);
    dead->stub = (struct queue_message){
        .body = {(const unsigned char *)"", 0},
        .properties = dead->properties,
        .properties_n = 2,
        .queue = dead->queue,
    };
    return 0;
}

static int dead_next(struct queue_dead *dead, struct queue_letter *ret, struct idem_error *err) {
    struct stream_outcome outcome;
    int rc = 0;

    if (!dead->ended && (dead->page == NULL || dead->page_at == dead->page->items_n))
        rc = dead_read_page(dead, err);
    if (rc != 0)
        return rc;
    if (dead->ended) {
        *ret = (struct queue_letter){.message = NULL};
        return 0;
    }
    if (!stream_parse_outcome(dead->page->items[dead->page_at], &outcome))
        return idem_error_set(err, IDEM_E_REFUSED, "%s: the server's reply is not understood",
                              dead->conn.place);
    rc = dead_make_letter(dead, &outcome, err);
    if (rc != 0)
        return rc;
    dead->page_at++;
    dead->last = outcome.id;
    dead->began = true;
    ret->message = dead->large ? &dead->stub : &dead->letter->base;
    ret->claimed = false; /* every client with the right to write can forge the idem-* fields */
    stream_id_print(outcome.id, ret->receipt);
    return 0;
}

/* Requeueing. */

static struct idem_bytes message_origin(const struct stream_message *letter) {
    for (size_t i = 0; i < letter->fields_n; i++)
        if (idem_is_word(letter->fields[2 * i].at, letter->fields[2 * i].len, QUEUE_DEAD_QUEUE))
            return letter->fields[2 * i + 1];
    return (struct idem_bytes){NULL, 0};
}

static int dead_send_copy(struct queue_dead *dead, struct idem_bytes to, struct idem_error *err) {
    const struct stream_message *letter = dead->letter;
    struct idem_buffer out = {0};
    struct redis_reply *reply;
    size_t n = 0;
    int rc;

    for (size_t i = 0; i < letter->fields_n; i++)
        n += !stream_message_is_dead_field(letter->fields[2 * i]);
    if (n == 0)
        return idem_error_set(err, IDEM_E_INVALID, "the letter has nothing but idem-* fields");
    redis_put_head(&out, 3 + 2 * n);
    redis_put_text(&out, "XADD");
    redis_put_part(&out, to.at, to.len);
    redis_put_text(&out, "*");
    for (size_t i = 0; i < letter->fields_n; i++)
        if (!stream_message_is_dead_field(letter->fields[2 * i])) {
            redis_put_part(&out, letter->fields[2 * i].at, letter->fields[2 * i].len);
            redis_put_part(&out, letter->fields[2 * i + 1].at, letter->fields[2 * i + 1].len);
        }
    rc = dead_ask(dead, &out, true, &reply, err);
    if (rc == 0)
        redis_reply_free(reply);
    return rc;
}

static int dead_requeue(struct queue_dead *dead, const char *to, struct idem_error *err) {
    struct idem_bytes name = idem_bytes_of(to);

    if (dead->large)
        return idem_error_set(err, IDEM_E_INVALID, "the letter is too large to be sent again");
    if (dead->letter == NULL)
        return idem_error_set(err, IDEM_E_INVALID, "no letter was read that could be requeued");
    if (to == NULL)
        name = message_origin(dead->letter);
    if (name.len == 0)
        return idem_error_set(err, IDEM_E_INVALID, "the letter has no origin (%s): name a stream",
                              QUEUE_DEAD_QUEUE);
    if (idem_is_word(name.at, name.len, dead->queue))
        return idem_error_set(err, IDEM_E_INVALID, "a letter cannot be requeued to where it is");
    return dead_send_copy(dead, name, err);
}

static int dead_remove(struct queue_dead *dead, const char *receipt, struct idem_error *err) {
    struct idem_buffer out = {0};
    struct redis_reply *reply;
    struct stream_id id;
    int rc;

    if (!stream_id_parse(receipt, strlen(receipt), &id))
        return idem_error_set(err, IDEM_E_INVALID,
                              "a letter of a stream is named by its id, as "
                              "1712345678901-0");
    redis_put_command(&out, "XDEL", dead->queue, receipt, NULL);
    rc = dead_ask(dead, &out, true, &reply, err);
    if (rc != 0)
        return rc;
    if (reply->type != REDIS_REPLY_INTEGER || reply->integer != 1)
        rc = idem_error_set(err, IDEM_E_ABSENT, "there is no such letter any more");
    redis_reply_free(reply);
    return rc;
}

const struct queue_dead_broker queue_dead_broker_stream = {
    .open = dead_letter_open,
    .next = dead_next,
    .requeue = dead_requeue,
    .remove = dead_remove,
    .close = dead_close,
};
