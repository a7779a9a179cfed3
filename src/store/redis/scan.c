/*
 * List and stats: SCAN, which never holds the server up, and a look at each name
 * that it gives. A cluster's servers are gone through one after the other, in the
 * order of numbers made of their names. If those that are behind are not those
 * that were gone through (one has come, or has taken another's place), it begins
 * anew; if that happens too often, it goes on with what there is. SCAN's cursors
 * are of one process of one server: where that has changed, that server is gone
 * through from its beginning.
 *
 * A name whose slot has moved, or moves, is asked for where the server says, slot
 * by slot; what a server cannot answer now is asked for again after a pause. No
 * record is left out because its answer was an error, unless it is about that key
 * alone: it is none of ours then.
 *
 * A page of SCAN may have more names than fit into an answer: page.c keeps the rest. SCAN promises
 * that what is there all the time is told; while the server makes its table larger or smaller, it
 * may be told twice.
 *
 * Each page that was gone through renews the operation's deadline.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/entry.h"
#include "core/error.h"
#include "store/redis/scan.h"

/* Names per SCAN, more or less: a list has room for so many, and stats takes what does not keep
   the server from others for longer than some hundred microseconds. */
#define PAGE_MIN 10
#define PAGE_MAX 200
#define PAGE_STATS 400
#define RESTARTS_MAX 3
#define PAGES_MAX 50 /* per call: a list that finds nothing must come to an answer too */

/* Enough for all but the result. */
#define LOOK_LEN                                                                                   \
    (REDIS_HEAD_LEN + IDEM_HASH_LEN + REDIS_PRIOR_LEN + IDEM_LABEL_MAX + IDEM_REASON_MAX)

void redis_scan_free(struct redis_scan *scan) {
    if (scan == NULL)
        return;
    free(scan->names);
    free(scan->looks);
    free(scan->entries);
    free(scan);
}

static bool is_list(const struct redis_job *job) {
    return job->copy.kind == IDEM_OP_LIST;
}

static bool is_leased(const struct redis_scan *scan, size_t i) {
    return (scan->looks[i] & LOOK_LEASE) != 0;
}

static void look_set(struct redis_scan *scan, size_t i, enum look look) {
    scan->looks[i] = (unsigned char)((scan->looks[i] & LOOK_LEASE) | look);
}

/* Servers. */

static uint64_t mix(uint64_t hash, const char *text) {
    for (; *text != '\0'; text++)
        hash = (hash ^ (unsigned char)*text) * 1099511628211u;
    return hash == 0 ? 1 : hash;
}

/* Its number, by its place; and which process it is there, by what that calls itself. */
static uint64_t server_number(const struct redis_node *node) {
    return mix(14695981039346656037u, node->conn.place);
}

static uint64_t server_id(const struct redis_node *node) {
    return mix(server_number(node), node->run_id);
}

static bool is_member(const struct redis_node *node) {
    return node->store->config.kind != REDIS_CLUSTER || node->known;
}

/* The one that comes next; NULL: all were gone through. */
static struct redis_node *server_next(const struct redis_store *store, uint64_t passed) {
    struct redis_node *next = NULL;

    for (struct redis_node *node = store->nodes; node != NULL; node = node->next)
        if (is_member(node) && server_number(node) > passed &&
            (next == NULL || server_number(node) < server_number(next)))
            next = node;
    return next;
}

static uint64_t servers_digest(const struct redis_store *store, uint64_t passed) {
    uint64_t digest = 0;

    for (const struct redis_node *node = store->nodes; node != NULL; node = node->next)
        if (is_member(node) && server_number(node) <= passed)
            digest += server_number(node);
    return digest;
}

static void servers_restart(struct redis_scan *scan) {
    scan->restarts++;
    scan->passed = scan->digest = 0;
    scan->stats = scan->before = (struct idem_stats){0};
}

static const struct redis_node *server_find(const struct redis_store *store, uint64_t id) {
    const struct redis_node *node = store->nodes;

    while (node != NULL && (!is_member(node) || server_id(node) != id))
        node = node->next;
    return node;
}

/* This one was gone through. True if there is another. */
static bool server_pass(const struct redis_store *store, struct redis_scan *scan) {
    const struct redis_node *node = server_find(store, scan->server);
    bool gone = node == NULL;

    if (gone)
        node = server_next(store, scan->passed);
    if (node != NULL) {
        scan->passed = server_number(node);
        scan->digest += scan->passed;
    }
    scan->page = scan->server = 0;
    scan->before = scan->stats;
    if (gone || servers_digest(store, scan->passed) != scan->digest) {
        if (scan->restarts < RESTARTS_MAX)
            servers_restart(scan);
        else
            scan->digest = servers_digest(store, scan->passed);
    }
    return server_next(store, scan->passed) != NULL;
}

/* SCAN's cursor is worth nothing to another server: then it is begun anew. */
static void server_check(struct redis_scan *scan, const struct redis_node *node) {
    uint64_t id = server_id(node);

    if (scan->server != 0 && scan->server != id) {
        scan->page = 0;
        scan->stats = scan->before;
    }
    scan->server = id;
}

/* Commands. */

/* What a pattern means literally. */
static void put_pattern(struct redis_buffer *out, struct idem_bytes prefix) {
    char pattern[2 * IDEM_PREFIX_MAX + 2];
    size_t len = 0;

    for (size_t i = 0; i < prefix.len && i < IDEM_PREFIX_MAX; i++) {
        if (strchr("*?[]\\^-", prefix.at[i]) != NULL && prefix.at[i] != '\0')
            pattern[len++] = '\\';
        pattern[len++] = (char)prefix.at[i];
    }
    pattern[len++] = '*';
    redis_put_part(out, pattern, len);
}

static int64_t page_size(const struct redis_job *job) {
    size_t room;

    if (!is_list(job))
        return PAGE_STATS;
    room = job->copy.in.list.max - job->scan->entries_n;
    return room < PAGE_MIN ? PAGE_MIN : room > PAGE_MAX ? PAGE_MAX : (int64_t)room;
}

static void scan_write(struct redis_job *job) {
    struct redis_scan *scan = job->scan;
    struct redis_buffer *out = &job->command;
    char cursor[24];

    snprintf(cursor, sizeof(cursor), "%" PRIu64, scan->page);
    redis_put_head(out, 6);
    redis_put_text(out, "SCAN");
    redis_put_text(out, cursor);
    redis_put_text(out, "MATCH");
    put_pattern(out, is_list(job) ? job->copy.in.list.prefix : (struct idem_bytes){0});
    redis_put_text(out, "COUNT");
    redis_put_number(out, page_size(job));
    job->replies = 1;
}

/* job.c says ASKING before the first command, here it is said before each other one. */
static void put_asking(struct redis_job *job) {
    if (job->replies > 0 && job->asking) {
        redis_put_command(&job->command, "ASKING", NULL);
        job->replies++;
    }
    job->replies++;
}

/* Stats wants the state alone, and of what runs whether its lease is over: a script for each record
   would cost the server several times as much. That life and head are not of one moment does not
   matter to a figure that changes all the time. */
static void put_look(struct redis_job *job, const char *name, size_t len, bool lease) {
    struct redis_buffer *out = &job->command;

    put_asking(job);
    if (is_list(job)) {
        redis_put_head(out, 5);
        redis_put_text(out, "EVALSHA");
        redis_put_part(out, job->store->scripts.sha[REDIS_SCRIPT_LOOK], 40);
        redis_put_part(out, "1", 1);
        redis_put_part(out, name, len);
        redis_put_number(out, LOOK_LEN - 1);
        return;
    }
    if (lease) {
        redis_put_head(out, 2);
        redis_put_text(out, "PTTL");
        redis_put_part(out, name, len);
        put_asking(job);
    }
    redis_put_head(out, 4);
    redis_put_text(out, "GETRANGE");
    redis_put_part(out, name, len);
    redis_put_part(out, "0", 1);
    redis_put_number(out, REDIS_HEAD_LEN - 1);
}

static void look_write(struct redis_job *job) {
    struct redis_scan *scan = job->scan;
    char name[REDIS_NAME_MAX];
    size_t len;

    scan->at = 0;
    for (size_t i = 0; i < scan->names_n; i++) {
        if (redis_look_of(scan, i) == LOOK_DONE)
            continue;
        len = redis_name(&scan->names[i], name);
        look_set(scan, i, LOOK_WANTED);
        if (scan->aside && redis_slot(name, len) != scan->aside_slot)
            continue;
        look_set(scan, i, LOOK_SENT);
        put_look(job, name, len, is_leased(scan, i));
    }
}

static bool scan_begin(struct redis_job *job) {
    struct redis_scan *scan = job->scan = calloc(1, sizeof(*scan));

    if (scan == NULL)
        return false;
    if (!is_list(job))
        return true;
    scan->entries = calloc(job->copy.in.list.max, sizeof(*scan->entries));
    return scan->entries != NULL && redis_cursor_read(job);
}

/* The server of a step that is not of a slot. There was one when it was gone on to. */
static struct redis_node *server_of(struct redis_job *job) {
    struct redis_scan *scan = job->scan;
    struct redis_node *node = server_next(job->store, scan->passed);

    if (node != NULL)
        return node;
    if (scan->step == STEP_SCAN)
        servers_restart(scan);
    if (scan->step == STEP_MEMORY)
        scan->passed = scan->stats.bytes_used = scan->stats.bytes_max = 0;
    return server_next(job->store, 0); /* a look is sent on by any of them */
}

/* Where this step goes to, now; NULL: nowhere. */
static const struct redis_node *server_now(struct redis_job *job) {
    struct redis_scan *scan = job->scan;
    struct redis_node *node;

    if (!scan->aside) {
        job->asking = false;
        job->at = scan->step == STEP_EVENTS ? NULL : server_of(job);
    }
    job->slot =
        scan->aside ? scan->aside_slot : redis_slot(REDIS_EVENTS_NAME, strlen(REDIS_EVENTS_NAME));
    node = redis_route(job->store, job);
    return node == NULL || node->conn.state != REDIS_CONN_READY ? NULL : node;
}

bool redis_scan_write(struct redis_job *job) {
    const struct redis_node *node;
    struct redis_scan *scan;

    if (job->scan == NULL && !scan_begin(job))
        return false;
    scan = job->scan;
    node = server_now(job);
    job->command.len = 0;
    job->replies = 0;
    if (node == NULL) /* what it is, is known only once it is there: it is written then */
        return true;
    scan->asking = job->asking;
    scan->taken = 0;
    scan->half = scan->blocked = false;
    scan->why[0] = '\0';
    switch (scan->step) {
    case STEP_SCAN:
        server_check(scan, node);
        scan_write(job);
        break;
    case STEP_LOOK:
        look_write(job);
        break;
    case STEP_EVENTS:
        redis_put_command(&job->command, "HGETALL", REDIS_EVENTS_NAME, NULL);
        job->replies = 1;
        break;
    case STEP_MEMORY:
        redis_put_command(&job->command, "INFO", "memory", NULL);
        job->replies = 1;
        break;
    }
    return !job->command.failed;
}

/* Replies. */

static int fail(struct redis_job *job, const struct redis_reply *reply) {
    if (reply->type == REDIS_REPLY_ERROR)
        return idem_error_set(&job->copy.error, IDEM_E_REFUSED, "the server says: %.150s",
                              reply->text);
    return idem_error_set(&job->copy.error, IDEM_E_REFUSED,
                          "the server's answer is not what was asked for");
}

/* Errors that say: elsewhere, or again. */
static bool is_obstacle(const struct redis_reply *reply) {
    return redis_reply_is(reply, "MOVED") || redis_reply_is(reply, "ASK") ||
           redis_reply_is(reply, "NOSCRIPT") || redis_is_passing(reply);
}

/* The first counts; `slot` is of the name that it is about. */
static void obstacle_keep(struct redis_scan *scan, const struct redis_reply *reply, uint16_t slot) {
    if (scan->why[0] != '\0')
        return;
    snprintf(scan->why, sizeof(scan->why), "%s", reply->text);
    scan->aside = redis_reply_is(reply, "MOVED") || redis_reply_is(reply, "ASK");
    scan->aside_slot = slot;
}

const struct redis_reply *redis_scan_obstacle(struct redis_job *job) {
    struct redis_scan *scan = job->scan;

    job->command.len = 0; /* to be written anew */
    scan->obstacle = (struct redis_reply){
        .type = REDIS_REPLY_ERROR, .text = scan->why, .len = strlen(scan->why)};
    return &scan->obstacle;
}

/* What is about one key and says that it is none of ours: of another type, or not allowed. In
   older servers such words stand somewhere in what a script says. */
static bool is_foreign(const struct redis_reply *reply) {
    return strstr(reply->text, "WRONGTYPE") != NULL ||
           (strstr(reply->text, "NOPERM") != NULL && strstr(reply->text, "key") != NULL);
}

static int name_order(const void *a, const void *b) {
    const struct idem_record_key *x = a, *y = b;
    size_t xn = idem_record_key_len(x), yn = idem_record_key_len(y);
    int order = memcmp(x->at, y->at, xn < yn ? xn : yn);

    return order != 0 ? order : xn < yn ? -1 : xn > yn;
}

/* The names of a page, in order, each once. */
static bool names_take(struct redis_job *job, const struct redis_reply *list) {
    struct redis_scan *scan = job->scan;
    size_t least = is_list(job) ? job->copy.in.list.prefix.len : 0, n = 0;
    struct idem_record_key key;

    if (!redis_names_alloc(scan, list->items_n))
        return false;
    for (size_t i = 0; i < list->items_n; i++)
        if (redis_name_parse(list->items[i]->text, list->items[i]->len, &key) &&
            key.prefix_len >= least)
            scan->names[n++] = key;
    qsort(scan->names, n, sizeof(*scan->names), name_order);
    for (size_t i = 0; i < n; i++)
        if (i == 0 || name_order(&scan->names[scan->names_n - 1], &scan->names[i]) != 0)
            scan->names[scan->names_n++] = scan->names[i];
    return true;
}

/* Goes on to the next page, server or step; true if there is one. */
static bool page_next(struct redis_job *job) {
    struct redis_scan *scan = job->scan;

    scan->step = STEP_SCAN;
    scan->aside = false;
    scan->page = scan->next;
    if (scan->page != 0)
        return true;
    if (server_pass(job->store, scan))
        return true;
    if (is_list(job))
        return false;
    scan->step = STEP_EVENTS;
    return true;
}

/* `left`: names of this page were not told yet. */
static enum redis_taken list_end(struct redis_job *job, bool all, bool left, int *ret_rc) {
    struct redis_scan *scan = job->scan;
    uint64_t id = left ? redis_page_keep(job->store, scan) : 0;

    *ret_rc = 0;
    if (left && id == 0) {
        *ret_rc = idem_error_set(&job->copy.error, IDEM_E_NOMEM, "no memory for a list");
        return REDIS_DONE;
    }
    job->copy.out.list.entries = scan->entries;
    job->copy.out.list.n = scan->entries_n;
    job->copy.out.list.cursor = job->copy.in.list.cursor;
    job->copy.out.list.cursor.end = all;
    if (!all)
        redis_cursor_write(scan, id, &job->copy.out.list.cursor);
    return REDIS_DONE;
}

static enum redis_taken again(struct redis_job *job) {
    job->command.len = 0; /* it is written where it is sent */
    return REDIS_AGAIN;
}

static enum redis_taken page_end(struct redis_job *job, int *ret_rc) {
    struct redis_scan *scan = job->scan;
    bool more = page_next(job);

    redis_job_renew(job);
    scan->pages++;
    if (is_list(job) &&
        (!more || scan->entries_n == job->copy.in.list.max || scan->pages >= PAGES_MAX))
        return list_end(job, !more, false, ret_rc);
    return again(job);
}

static enum redis_taken scan_take(struct redis_job *job, const struct redis_reply *reply,
                                  int *ret_rc) {
    struct redis_scan *scan = job->scan;

    if (reply->type != REDIS_REPLY_ARRAY || reply->items_n != 2 ||
        reply->items[0]->type != REDIS_REPLY_STRING || reply->items[1]->type != REDIS_REPLY_ARRAY) {
        *ret_rc = fail(job, reply);
        return REDIS_DONE;
    }
    scan->next = strtoull(reply->items[0]->text, NULL, 10);
    if (!names_take(job, reply->items[1])) {
        *ret_rc = idem_error_set(&job->copy.error, IDEM_E_NOMEM, "no memory for a list");
        return REDIS_DONE;
    }
    if (scan->names_n == 0)
        return page_end(job, ret_rc);
    scan->step = STEP_LOOK;
    return again(job);
}

/* One record of the page. What is no record, a nonce or somebody's own key, is passed over. */
static void list_one(struct redis_job *job, const struct idem_record_key *key,
                     const struct redis_reply *reply) {
    struct redis_scan *scan = job->scan;
    const struct idem_list_in *in = &job->copy.in.list;
    const struct redis_reply *bytes = reply->items[0];
    int64_t left = reply->items[1]->integer, now = reply->items[2]->integer;
    int64_t cut = reply->items[3]->integer - (int64_t)bytes->len;
    struct idem_entry *entry = &scan->entries[scan->entries_n];
    struct idem_record record;
    bool live;
    int rc;

    if (left <= 0 || !redis_record_is((const unsigned char *)bytes->text, bytes->len))
        return;
    rc = redis_record_decode((struct idem_bytes){(const unsigned char *)bytes->text, bytes->len},
                             now, left, &record);
    if (rc != 0) {
        idem_entry_fill_bad(entry, key, rc);
        scan->entries_n += idem_list_wants_bad(in, entry->state);
        return;
    }
    live = record.lease_end > now;
    record.result.len += (size_t)(cut > 0 ? cut : 0);
    idem_entry_fill(entry, key, &record, live, live ? record.lease_end - now : 0);
    scan->entries_n += idem_list_wants(in, &record, live);
}

/* False: it runs, and what is left of its life is not known. */
static bool stats_one(struct redis_scan *scan, size_t i, const struct redis_reply *reply) {
    struct idem_record record = {0};
    bool leased = is_leased(scan, i), live;

    if (reply->type != REDIS_REPLY_STRING ||
        !redis_record_glance((const unsigned char *)reply->text, reply->len,
                             leased ? scan->left : 1, &record.state, &live))
        return true;
    if (!leased && record.state == IDEM_RUNNING)
        return false;
    idem_stats_add(&scan->stats, &record, live);
    return true;
}

static bool is_full(const struct redis_job *job) {
    return is_list(job) && job->scan->entries_n == job->copy.in.list.max;
}

/* All answers to what was sent have come. */
static enum redis_taken look_end(struct redis_job *job, int *ret_rc) {
    struct redis_scan *scan = job->scan;
    bool left = false;

    for (size_t i = 0; i < scan->names_n; i++)
        left |= redis_look_of(scan, i) != LOOK_DONE;
    if (left && is_full(job))
        return list_end(job, false, true, ret_rc);
    if (scan->why[0] != '\0')
        return REDIS_STUCK;
    scan->aside = false;
    return left ? again(job) : page_end(job, ret_rc);
}

static void look_one(struct redis_job *job, const struct redis_reply *reply) {
    struct redis_scan *scan = job->scan;
    size_t i = scan->at++;

    if (scan->blocked || is_full(job)) {
        look_set(scan, i, LOOK_WANTED);
        return;
    }
    look_set(scan, i, LOOK_DONE);
    job->redirects = job->reloads = 0; /* it goes on */
    if (!is_list(job)) {
        if (!stats_one(scan, i, reply))
            scan->looks[i] = LOOK_WANTED | LOOK_LEASE;
    } else if (reply->type == REDIS_REPLY_ARRAY && reply->items_n == 4) {
        list_one(job, &scan->names[i], reply);
    }
}

static enum redis_taken look_take(struct redis_job *job, const struct redis_reply *reply,
                                  int *ret_rc) {
    struct redis_scan *scan = job->scan;
    char name[REDIS_NAME_MAX];

    if (scan->asking && scan->taken++ % 2 == 1) /* to ASKING */
        return REDIS_MORE;
    while (scan->at < scan->names_n && redis_look_of(scan, scan->at) != LOOK_SENT)
        scan->at++;
    if (scan->at == scan->names_n) {
        *ret_rc = fail(job, reply);
        return REDIS_DONE;
    }
    if (is_obstacle(reply)) {
        scan->blocked = true;
        obstacle_keep(scan, reply, redis_slot(name, redis_name(&scan->names[scan->at], name)));
    } else if (reply->type == REDIS_REPLY_ERROR && !is_foreign(reply)) {
        *ret_rc = fail(job, reply);
        return REDIS_DONE;
    }
    if (is_leased(scan, scan->at) && !scan->half) {
        scan->half = true;
        scan->left = reply->type == REDIS_REPLY_INTEGER ? reply->integer + 1 : 0;
        return REDIS_MORE;
    }
    look_one(job, reply);
    scan->half = scan->blocked = false;
    return job->wanted > 0 ? REDIS_MORE : look_end(job, ret_rc);
}

static uint64_t info_number(const char *text, const char *name) {
    const char *at = strstr(text, name);

    return at == NULL ? 0 : strtoull(at + strlen(name), NULL, 10);
}

static enum redis_taken events_take(struct redis_job *job, const struct redis_reply *reply,
                                    int *ret_rc) {
    struct redis_scan *scan = job->scan;

    if (reply->type != REDIS_REPLY_ARRAY) {
        *ret_rc = fail(job, reply);
        return REDIS_DONE;
    }
    for (size_t i = 0; i + 1 < reply->items_n; i += 2)
        for (int k = 0; k < IDEM_EVENT__COUNT; k++)
            if (strcmp(reply->items[i]->text, idem_event_name((enum idem_event)k)) == 0)
                scan->stats.events[k] = strtoull(reply->items[i + 1]->text, NULL, 10);
    scan->step = STEP_MEMORY;
    scan->aside = false;
    scan->passed = scan->digest = 0;
    return again(job);
}

static enum redis_taken memory_take(struct redis_job *job, const struct redis_reply *reply,
                                    int *ret_rc) {
    struct redis_scan *scan = job->scan;
    const struct redis_node *node;

    if (reply->type == REDIS_REPLY_STRING) {
        scan->stats.bytes_used += info_number(reply->text, "\nused_memory:");
        scan->stats.bytes_max += info_number(reply->text, "\nmaxmemory:");
    }
    node = server_next(job->store, scan->passed);
    if (node != NULL)
        scan->passed = server_number(node);
    if (server_next(job->store, scan->passed) != NULL)
        return again(job);
    for (int k = 0; k < IDEM_EVENT__COUNT; k++)
        scan->stats.events[k] += job->store->tally[k]; /* not sent yet */
    job->copy.out.stats = scan->stats;
    *ret_rc = 0;
    return REDIS_DONE;
}

enum redis_taken redis_scan_take(struct redis_job *job, const struct redis_reply *reply,
                                 int *ret_rc) {
    struct redis_scan *scan = job->scan;

    if (scan->step == STEP_LOOK)
        return look_take(job, reply, ret_rc);
    if (is_obstacle(reply)) {
        obstacle_keep(scan, reply, job->slot);
        return REDIS_STUCK;
    }
    job->redirects = job->reloads = 0;
    switch (scan->step) {
    case STEP_SCAN:
        return scan_take(job, reply, ret_rc);
    case STEP_EVENTS:
        return events_take(job, reply, ret_rc);
    default:
        return memory_take(job, reply, ret_rc);
    }
}
