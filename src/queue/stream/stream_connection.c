/*
 * The two connections of a link, and the group.
 *
 * The command connection looks for the group during its greeting, and creates it if needed:
 * from the beginning of the stream, and the stream with it. This also restores a group that
 * was lost: the connection starts anew. A refusal by the server (a password, a name that is no
 * stream, missing rights) is reported, and retried with growing pauses, since an operator may
 * fix it.
 *
 * The reading connection is silent as long as its XREADGROUP blocks, so its timeout is longer.
 * When it is ready, the entries pending under our name are looked at: the last reply of the
 * connection before may have been lost.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "queue/stream/stream.h"
#include "store/redis/redis_store.h"

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

void stream_link_put_command(const struct stream_link *link, struct idem_buffer *out, size_t more,
                             const char *command) {
    redis_put_head(out, 3 + more);
    redis_put_text(out, command);
    redis_put_text(out, link->queue);
    redis_put_text(out, link->group);
}

void stream_link_put_script(const struct stream_link *link, struct idem_buffer *out, size_t more,
                            const char *script) {
    redis_put_head(out, 5 + more);
    redis_put_text(out, "EVAL");
    redis_put_text(out, script);
    redis_put_text(out, "1");
    redis_put_text(out, link->queue);
    redis_put_text(out, link->group);
}

void stream_connection_put_id(struct idem_buffer *out, struct stream_id id) {
    char text[STREAM_ID_TEXT];

    redis_put_text(out, stream_id_print(id, text));
}

bool stream_link_send(struct stream_link *link, struct idem_buffer *out, redis_reply_fn *take,
                      void *data) {
    bool sent = !out->failed && link->command.state == REDIS_CONN_READY &&
                redis_conn_send(&link->command, out->at, out->len, take, data);

    idem_buffer_release(out);
    return sent;
}

/* Restarts the connection, unless it is pausing already. */
static void connection_fail(struct redis_conn *conn, int code, const char *why) {
    if (conn->state != REDIS_CONN_PAUSING && conn->state != REDIS_CONN_OFF)
        redis_conn_fail(conn, code, "%s", why);
}

static void connection_ask(struct redis_conn *conn, struct idem_buffer *out, redis_reply_fn *take) {
    if (out->failed || !redis_conn_send(conn, out->at, out->len, take, conn->data))
        connection_fail(conn, IDEM_E_NOMEM, "no memory for what is to be sent");
    idem_buffer_release(out);
}

/* State. */

bool stream_link_is_ready(const struct stream_link *link) {
    return link->command.state == REDIS_CONN_READY && link->reading.state == REDIS_CONN_READY;
}

static void link_became_ready(struct stream_link *link) {
    if (stream_link_is_ready(link))
        stream_notify_state(link, "connected to %s: stream %s, group %s, consumer %s",
                            link->command.place, link->queue, link->group, link->consumer);
    stream_link_post(link);
}

static void connection_refused(struct redis_conn *conn, const char *why) {
    redis_conn_fail(conn, IDEM_E_REFUSED, "%s", why);
}

static void connection_report_lost(struct redis_conn *conn) {
    stream_notify_state(conn->data, "%s: %s; it is tried again", conn->place, conn->why);
}

/* Forgets all entries of a group that no longer exists. */
static void link_forget_group(struct stream_link *link) {
    static const enum stream_state states[] = {STREAM_OUT,   STREAM_DELAYED, STREAM_DUE,
                                               STREAM_ASKED, STREAM_PARKED,  STREAM_ACKING,
                                               STREAM_ACKED, STREAM_NACKING, STREAM_NACKED};

    for (size_t i = 0; i < sizeof(states) / sizeof(states[0]); i++)
        while (link->lists[states[i]].first != NULL)
            stream_entry_forget(link->lists[states[i]].first);
}

void stream_link_reset(struct stream_link *link) {
    static const char why[] = "the stream or its group is not there any more";

    connection_fail(&link->reading, IDEM_E_REFUSED, why);
    connection_fail(&link->command, IDEM_E_REFUSED, why);
    link_forget_group(link);
}

/* The command connection. */

static void link_command_ready(struct stream_link *link) {
    redis_conn_ready(&link->command);
    link->was_ready = true;
    link->returned = true; /* returned entries may be older than new ones */
    link->claiming = false;
    link->claim_due = 0;
    stream_renew_all(link);
    link_became_ready(link);
}

static void connection_on_created(struct redis_conn *conn, void *data,
                                  const struct redis_reply *reply) {
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
        stream_notify_state(
            link,
            "%s: group %s was not there; it was made, and begins with what the stream "
            "has now",
            link->queue, link->group);
    link_command_ready(link);
}

static void connection_on_group(struct redis_conn *conn, void *data,
                                const struct redis_reply *reply) {
    struct stream_link *link = data;
    struct idem_buffer out = {0};
    char text[STREAM_ERROR_TEXT];

    if (reply == NULL)
        return;
    if (reply->type == REDIS_REPLY_ARRAY) {
        link_command_ready(link);
    } else if (redis_reply_is(reply, "NOGROUP")) {
        if (link->was_ready)
            link_forget_group(link);
        redis_put_command(&out, "XGROUP", "CREATE", link->queue, link->group, "0", "MKSTREAM",
                          NULL);
        connection_ask(conn, &out, connection_on_created);
    } else {
        redis_conn_fail(conn, IDEM_E_REFUSED, "stream %s: %s", link->queue,
                        stream_error_text(reply, text));
    }
}

static void connection_greet_command(struct redis_conn *conn) {
    struct stream_link *link = conn->data;
    struct idem_buffer out = {0};

    redis_greet(conn, NULL, NULL);
    stream_link_put_command(link, &out, 0, "XPENDING");
    connection_ask(conn, &out, connection_on_group);
    redis_conn_flush(conn);
}

static const struct redis_role command_role = {.greet = connection_greet_command,
                                               .refused = connection_refused,
                                               .lost = connection_report_lost};

/* The reading connection. */

/* True if a line of CLIENT LIST is another connection with our mark. */
static bool link_is_namesake(const struct stream_link *link, const char *line, size_t len) {
    static const char field[] = " name=";
    const char *end = line + len, *name = memmem(line, len, field, sizeof(field) - 1);
    size_t mark = strlen(link->mark);

    if (name == NULL || !idem_text_begins(line, "id=") ||
        strtoll(line + 3, NULL, 10) == link->reading_id)
        return false;
    name += sizeof(field) - 1;
    end = memchr(name, ' ', (size_t)(end - name));
    return end != NULL && (size_t)(end - name) >= mark && memcmp(end - mark, link->mark, mark) == 0;
}

/* Runs once, at the start. Without the right to list clients, the check is skipped. */
static void connection_on_clients(struct redis_conn *conn, void *data,
                                  const struct redis_reply *reply) {
    struct stream_link *link = data;
    const char *at;
    size_t len;

    if (reply == NULL)
        return;
    at = reply->type == REDIS_REPLY_STRING && link->reading_id != 0 ? reply->text : "";
    for (; *at != '\0'; at += len + (at[len] == '\n')) {
        len = strcspn(at, "\n");
        if (!link_is_namesake(link, at, len))
            continue;
        stream_notify_state(
            link,
            "%s: another process is connected as consumer %s of group %s: each needs a name "
            "of its own, or what one has in hand is delivered to the other as well",
            link->queue, link->consumer, link->group);
        break;
    }
    link->looked = true;
    redis_conn_ready(conn);
    stream_recover_survey(link);
    link_became_ready(link);
}

static void connection_on_id(struct redis_conn *conn, void *data, const struct redis_reply *reply) {
    struct stream_link *link = data;

    if (reply == NULL)
        return;
    if (redis_reply_is(reply, "NOAUTH")) {
        char text[STREAM_ERROR_TEXT];

        connection_refused(conn, stream_error_text(reply, text));
        return;
    }
    link->reading_id = reply->type == REDIS_REPLY_INTEGER ? reply->integer : 0;
    if (link->looked) {
        redis_conn_ready(conn);
        stream_recover_survey(link);
        link_became_ready(link);
    }
}

static void connection_greet_reading(struct redis_conn *conn) {
    struct stream_link *link = conn->data;
    struct idem_buffer out = {0};

    redis_greet(conn, NULL, NULL);
    redis_put_command(&out, "CLIENT", "ID", NULL);
    connection_ask(conn, &out, connection_on_id);
    if (!link->looked) {
        redis_put_command(&out, "CLIENT", "LIST", "TYPE", "normal", NULL);
        connection_ask(conn, &out, connection_on_clients);
    }
    redis_conn_flush(conn);
}

/* The connection may have failed because of a reply that was too long. */
static void connection_reading_lost(struct redis_conn *conn) {
    struct stream_link *link = conn->data;

    link->reading_id = 0;
    link->read_batch = 1;
    connection_report_lost(conn);
}

static const struct redis_role reading_role = {.greet = connection_greet_reading,
                                               .refused = connection_refused,
                                               .lost = connection_reading_lost};

void stream_link_connect(struct stream_link *link) {
    const struct idem_host_name *host = &link->config.hosts[0];

    redis_conn_init(&link->command, link->loop, &link->config, link->tls, host, &command_role,
                    link);
    redis_conn_init(&link->reading, link->loop, &link->reading_config, link->tls, host,
                    &reading_role, link);
    redis_conn_open(&link->command);
    redis_conn_open(&link->reading);
}
