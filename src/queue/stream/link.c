/*
 * The two connections of a link, and the group.
 *
 * The command connection looks for the group while it greets, and makes it if it
 * is not there: from the beginning of the stream, and the stream with it. That is
 * also how a group comes back that was lost: the connection begins anew. What the
 * server refuses (a password, a name that is no stream, a user who may not) is
 * told, and tried again with growing pauses, for somebody may mend it.
 *
 * The reading connection is silent as long as its XREADGROUP blocks, so its config
 * allows for that. When it is ready, what is pending under our name is looked at:
 * the last answer of the connection before may have been lost.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "queue/stream/stream.h"
#include "store/redis/store.h"

const char stream_take_script[] =
#include "take.lua.h"
    ;
const char stream_move_script[] =
#include "move.lua.h"
    ;
const char stream_page_script[] =
#include "page.lua.h"
    ;

/* Commands. */

void stream_put_begin(const struct stream_link *link, struct redis_buffer *out, size_t more,
                      const char *command) {
    redis_put_head(out, 3 + more);
    redis_put_text(out, command);
    redis_put_text(out, link->queue);
    redis_put_text(out, link->group);
}

void stream_put_script(const struct stream_link *link, struct redis_buffer *out, size_t more,
                       const char *script) {
    redis_put_head(out, 5 + more);
    redis_put_text(out, "EVAL");
    redis_put_text(out, script);
    redis_put_text(out, "1");
    redis_put_text(out, link->queue);
    redis_put_text(out, link->group);
}

void stream_put_id(struct redis_buffer *out, struct stream_id id) {
    char text[STREAM_ID_TEXT];

    redis_put_text(out, stream_id_print(id, text));
}

bool stream_send(struct stream_link *link, struct redis_buffer *out, redis_reply_fn *take,
                 void *data) {
    bool sent = !out->failed && link->command.state == REDIS_CONN_READY &&
                redis_conn_send(&link->command, out->at, out->len, take, data);

    redis_buffer_release(out);
    return sent;
}

/* One that is not pausing already begins anew. */
static void conn_fail(struct redis_conn *conn, int code, const char *why) {
    if (conn->state != REDIS_CONN_PAUSING && conn->state != REDIS_CONN_OFF)
        redis_conn_fail(conn, code, "%s", why);
}

static void ask(struct redis_conn *conn, struct redis_buffer *out, redis_reply_fn *take) {
    if (out->failed || !redis_conn_send(conn, out->at, out->len, take, conn->data))
        conn_fail(conn, IDEM_E_NOMEM, "no memory for what is to be sent");
    redis_buffer_release(out);
}

/* State. */

bool stream_is_ready(const struct stream_link *link) {
    return link->command.state == REDIS_CONN_READY && link->reading.state == REDIS_CONN_READY;
}

static void became_ready(struct stream_link *link) {
    if (stream_is_ready(link))
        stream_say(link, "connected to %s: stream %s, group %s, consumer %s", link->command.place,
                   link->queue, link->group, link->consumer);
    stream_next_post(link);
}

static void on_refused(struct redis_conn *conn, const char *why) {
    redis_conn_fail(conn, IDEM_E_REFUSED, "%s", why);
}

static void say_lost(struct redis_conn *conn) {
    stream_say(conn->data, "%s: %s; it is tried again", conn->place, conn->why);
}

/* What was known of a group that is not there. */
static void group_forget(struct stream_link *link) {
    static const enum stream_state states[] = {STREAM_OUT,   STREAM_DELAYED, STREAM_DUE,
                                               STREAM_ASKED, STREAM_PARKED,  STREAM_ACKING,
                                               STREAM_ACKED, STREAM_GIVING,  STREAM_GIVEN};

    for (size_t i = 0; i < sizeof(states) / sizeof(states[0]); i++)
        while (link->lists[states[i]].first != NULL)
            stream_entry_gone(link->lists[states[i]].first);
}

void stream_link_reset(struct stream_link *link) {
    static const char why[] = "the stream or its group is not there any more";

    conn_fail(&link->reading, IDEM_E_REFUSED, why);
    conn_fail(&link->command, IDEM_E_REFUSED, why);
    group_forget(link);
}

/* The command connection. */

static void command_ready(struct stream_link *link) {
    redis_conn_ready(&link->command);
    link->was_ready = true;
    link->returned = true; /* they may be older than what is new */
    link->claiming = false;
    link->claim_due = 0;
    stream_renew_all(link);
    became_ready(link);
}

static void take_made(struct redis_conn *conn, void *data, const struct redis_reply *reply) {
    struct stream_link *link = data;
    char text[STREAM_ERROR_TEXT];

    if (reply == NULL)
        return;
    if (reply->type == REDIS_REPLY_ERROR && !redis_reply_is(reply, "BUSYGROUP")) {
        redis_conn_fail(conn, IDEM_E_REFUSED,
                        "group %s of stream %s is not there, nor can it be "
                        "made: %s",
                        link->group, link->queue, stream_error_text(reply, text));
        return;
    }
    if (reply->type != REDIS_REPLY_ERROR)
        stream_say(link,
                   "%s: group %s was not there; it was made, and begins with what the stream "
                   "has now",
                   link->queue, link->group);
    command_ready(link);
}

static void take_group(struct redis_conn *conn, void *data, const struct redis_reply *reply) {
    struct stream_link *link = data;
    struct redis_buffer out = {0};
    char text[STREAM_ERROR_TEXT];

    if (reply == NULL)
        return;
    if (reply->type == REDIS_REPLY_ARRAY) {
        command_ready(link);
    } else if (redis_reply_is(reply, "NOGROUP")) {
        if (link->was_ready)
            group_forget(link);
        redis_put_command(&out, "XGROUP", "CREATE", link->queue, link->group, "0", "MKSTREAM",
                          NULL);
        ask(conn, &out, take_made);
    } else {
        redis_conn_fail(conn, IDEM_E_REFUSED, "stream %s: %s", link->queue,
                        stream_error_text(reply, text));
    }
}

static void command_greet(struct redis_conn *conn) {
    struct stream_link *link = conn->data;
    struct redis_buffer out = {0};

    redis_greet(conn, NULL, NULL);
    stream_put_begin(link, &out, 0, "XPENDING");
    ask(conn, &out, take_group);
    redis_conn_flush(conn);
}

static const struct redis_role command_role = {
    .greet = command_greet, .refused = on_refused, .lost = say_lost};

/* The reading connection. */

/* Whether a line of CLIENT LIST is of another connection with our mark. */
static bool is_namesake(const struct stream_link *link, const char *line, size_t len) {
    static const char field[] = " name=";
    const char *end = line + len, *name = memmem(line, len, field, sizeof(field) - 1);
    size_t mark = strlen(link->mark);

    if (name == NULL || strncmp(line, "id=", 3) != 0 ||
        strtoll(line + 3, NULL, 10) == link->reading_id)
        return false;
    name += sizeof(field) - 1;
    end = memchr(name, ' ', (size_t)(end - name));
    return end != NULL && (size_t)(end - name) >= mark && memcmp(end - mark, link->mark, mark) == 0;
}

/* Once, when it begins; who may not ask does without. */
static void take_clients(struct redis_conn *conn, void *data, const struct redis_reply *reply) {
    struct stream_link *link = data;
    const char *at;
    size_t len;

    if (reply == NULL)
        return;
    at = reply->type == REDIS_REPLY_STRING && link->reading_id != 0 ? reply->text : "";
    for (; *at != '\0'; at += len + (at[len] == '\n')) {
        len = strcspn(at, "\n");
        if (!is_namesake(link, at, len))
            continue;
        stream_say(link,
                   "%s: another process is connected as consumer %s of group %s: each needs a name "
                   "of its own, or what one has in hand is delivered to the other as well",
                   link->queue, link->consumer, link->group);
        break;
    }
    link->looked = true;
    redis_conn_ready(conn);
    stream_survey_begin(link);
    became_ready(link);
}

static void take_id(struct redis_conn *conn, void *data, const struct redis_reply *reply) {
    struct stream_link *link = data;

    if (reply == NULL)
        return;
    if (redis_reply_is(reply, "NOAUTH")) {
        char text[STREAM_ERROR_TEXT];

        on_refused(conn, stream_error_text(reply, text));
        return;
    }
    link->reading_id = reply->type == REDIS_REPLY_INTEGER ? reply->integer : 0;
    if (link->looked) {
        redis_conn_ready(conn);
        stream_survey_begin(link);
        became_ready(link);
    }
}

static void reading_greet(struct redis_conn *conn) {
    struct stream_link *link = conn->data;
    struct redis_buffer out = {0};

    redis_greet(conn, NULL, NULL);
    redis_put_command(&out, "CLIENT", "ID", NULL);
    ask(conn, &out, take_id);
    if (!link->looked) {
        redis_put_command(&out, "CLIENT", "LIST", "TYPE", "normal", NULL);
        ask(conn, &out, take_clients);
    }
    redis_conn_flush(conn);
}

/* What broke it may have been too long an answer. */
static void reading_lost(struct redis_conn *conn) {
    struct stream_link *link = conn->data;

    link->reading_id = 0;
    link->read_batch = 1;
    say_lost(conn);
}

static const struct redis_role reading_role = {
    .greet = reading_greet, .refused = on_refused, .lost = reading_lost};

void stream_link_connect(struct stream_link *link) {
    const struct idem_host_name *host = &link->config.hosts[0];

    redis_conn_init(&link->command, link->loop, &link->config, link->tls, host, &command_role,
                    link);
    redis_conn_init(&link->reading, link->loop, &link->reading_config, link->tls, host,
                    &reading_role, link);
    redis_conn_open(&link->command);
    redis_conn_open(&link->reading);
}
