/*
 * List and stats: SCAN, which never blocks the server for long, and a look at each name found. A
 * record is left out because of an error only if the error is about that key alone: then it is not
 * one of ours.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/big_endian.h"
#include "base/error.h"
#include "base/words.h"
#include "protocol/record_entry.h"
#include "store/redis/redis_store.h"

/*
 * The position of a list between two calls: its cursor, and the names of a page of SCAN that did
 * not fit into a response. The names are kept for the next call under an ID in the cursor, for the
 * latest REDIS_PAGES_KEPT pages only; without them the page is read again. Fails without memory,
 * and on a cursor that is not one of ours.
 */

enum step { STEP_SCAN, STEP_LOOK, STEP_EVENTS, STEP_MEMORY };
enum look { LOOK_WANTED, LOOK_SENT, LOOK_DONE };
#define LOOK_LEASE 4 /* a flag of stats: the record runs, so PTTL is needed too */

struct redis_scan {
    enum step step;
    uint64_t passed;     /* the number of the last completed server; 0: none */
    uint64_t digest;     /* of all completed servers */
    unsigned restarts;   /* because that digest was wrong */
    uint64_t server;     /* the process that gave the cursors; 0: not begun */
    uint64_t page, next; /* SCAN's cursors: of this page, and of the next one */
    struct idem_record_key *names;
    unsigned char *looks; /* enum look, of each name */
    size_t names_n, at;   /* at: the name of the next reply, or a name before it */
    bool one_slot;        /* only names of one slot, which another server has, are sent */
    uint16_t slot;
    bool asking;        /* ASKING precedes each command */
    unsigned taken;     /* replies to the last commands */
    bool half, blocked; /* of the name at `at`: its life is known; its reply was an obstacle */
    int64_t left;       /* the remaining life of that name */
    char why[300];      /* the first obstacle; "": none */
    struct redis_reply obstacle;
    unsigned pages;
    struct idem_entry *entries; /* LIST */
    size_t entries_n;
    struct idem_stats stats, before; /* before: without the current server */
};

static inline enum look redis_look_of(const struct redis_scan *scan, size_t i) {
    return (enum look)(scan->looks[i] & (LOOK_LEASE - 1));
}

/* redis_scan.c */

/* Kept pages. */

void redis_pages_free(struct redis_store *store) {
    for (size_t i = 0; i < REDIS_PAGES_KEPT; i++)
        free(store->pages[i].names);
}

/* Allocates room for n names, and empties the list; false without memory. */
static bool redis_names_alloc(struct redis_scan *scan, size_t n) {
    free(scan->names);
    free(scan->looks);
    scan->names_n = 0;
    scan->names = calloc(n + 1, sizeof(*scan->names));
    scan->looks = calloc(n + 1, sizeof(*scan->looks));
    return scan->names != NULL && scan->looks != NULL;
}

/* Keeps the names without a result; returns the page's ID, 0 without memory. */
static uint64_t redis_page_save(struct redis_store *store, const struct redis_scan *scan) {
    struct redis_page *page = &store->pages[store->pages_made % REDIS_PAGES_KEPT];
    struct idem_record_key *names = malloc(scan->names_n * sizeof(*names));
    uint64_t id = 0;
    size_t n = 0;

    /* A random ID cannot be mistaken for one of another process. */
    if (names == NULL || idem_random(&id, sizeof(id)) != 0 || id == 0) {
        free(names);
        return 0;
    }
    for (size_t i = 0; i < scan->names_n; i++)
        if (redis_look_of(scan, i) != LOOK_DONE)
            names[n++] = scan->names[i];
    free(page->names);
    *page = (struct redis_page){.id = id, .names = names, .names_n = n};
    store->pages_made++;
    return id;
}

static const struct redis_page *scan_page_find(const struct redis_store *store, uint64_t id) {
    for (size_t i = 0; id != 0 && i < REDIS_PAGES_KEPT; i++)
        if (store->pages[i].id == id)
            return &store->pages[i];
    return NULL;
}

/* The cursor: restarts, the completed servers (number and digest), the current server, SCAN's
   two cursors, and the ID of a kept page. */

#define CURSOR_LEN (1 + 6 * 8)

/* Continues a list at its cursor; false if the cursor is not one of ours, or without memory. */
static bool redis_cursor_read(struct redis_job *job) {
    const struct idem_cursor *cursor = &job->base.copy.in.list.cursor;
    struct redis_scan *scan = job->scan;
    const struct redis_page *kept;

    if (cursor->len == 0)
        return true;
    if (cursor->len != CURSOR_LEN)
        return false;
    scan->restarts = cursor->at[0];
    scan->passed = idem_be_get(cursor->at + 1, 8);
    scan->digest = idem_be_get(cursor->at + 9, 8);
    scan->server = idem_be_get(cursor->at + 17, 8);
    scan->page = idem_be_get(cursor->at + 25, 8);
    kept = scan_page_find(job->store, idem_be_get(cursor->at + 41, 8));
    if (kept == NULL)
        return true;
    if (!redis_names_alloc(scan, kept->names_n))
        return false;
    memcpy(scan->names, kept->names, kept->names_n * sizeof(*kept->names));
    scan->names_n = kept->names_n;
    scan->next = idem_be_get(cursor->at + 33, 8);
    scan->step = STEP_LOOK;
    return true;
}

static void redis_cursor_write(const struct redis_scan *scan, uint64_t id,
                               struct idem_cursor *cursor) {
    cursor->len = CURSOR_LEN;
    cursor->at[0] = (unsigned char)scan->restarts;
    idem_be_put(cursor->at + 1, scan->passed, 8);
    idem_be_put(cursor->at + 9, scan->digest, 8);
    idem_be_put(cursor->at + 17, scan->server, 8);
    idem_be_put(cursor->at + 25, scan->page, 8);
    idem_be_put(cursor->at + 33, scan->next, 8);
    idem_be_put(cursor->at + 41, id, 8);
}

/*
 * A cluster's servers are scanned one after the other, in the order of numbers made of their names.
 * If the servers behind the current one are not the completed ones (one was added, or has replaced
 * another), the scan restarts; after too many restarts it goes on with the present servers. SCAN's
 * cursors belong to one process of one server: if the process changes, that server is scanned from
 * its beginning.
 *
 * A name whose slot has moved, or is moving, is read at the server that the redirection names, slot
 * by slot. A read that a server cannot serve now is repeated after a pause.
 *
 * A page of SCAN may have more names than fit into a response: redis_scan.c keeps the rest.
 * SCAN guarantees to return every key that exists all the time, but may return one twice while the
 * server resizes its table. Each completed page renews the operation's deadline.
 */

/* Names per SCAN, approximately. A list asks for as many as it has room for; stats asks for as
   many as delay other clients by a few hundred microseconds at most. */
#define PAGE_MIN 10
#define PAGE_MAX 200
#define PAGE_STATS 400
#define RESTARTS_MAX 3
#define PAGES_MAX 50 /* per call: a list without matches must return too */

/* Enough for a whole record but its result. */
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

static bool job_is_list(const struct redis_job *job) {
    return job->base.copy.kind == IDEM_OP_LIST;
}

static bool scan_is_leased(const struct redis_scan *scan, size_t i) {
    return (scan->looks[i] & LOOK_LEASE) != 0;
}

static void scan_set_look(struct redis_scan *scan, size_t i, enum look look) {
    scan->looks[i] = (unsigned char)((scan->looks[i] & LOOK_LEASE) | look);
}

/* Servers. */

static uint64_t scan_hash(uint64_t hash, const char *text) {
    for (; *text != '\0'; text++)
        hash = (hash ^ (unsigned char)*text) * 1099511628211u;
    return hash == 0 ? 1 : hash;
}

/* A server's number depends on its address only; its ID also on the process there. */
static uint64_t node_scan_number(const struct redis_node *node) {
    return scan_hash(14695981039346656037u, node->conn.place);
}

static uint64_t node_scan_id(const struct redis_node *node) {
    return scan_hash(node_scan_number(node), node->run_id);
}

static bool node_is_member(const struct redis_node *node) {
    return node->store->config.kind != REDIS_CLUSTER || node->known;
}

/* Returns the next server to scan; NULL: all are completed. */
static struct redis_node *store_next_server(const struct redis_store *store, uint64_t passed) {
    struct redis_node *next = NULL;

    for (struct redis_node *node = store->nodes; node != NULL; node = node->next)
        if (node_is_member(node) && node_scan_number(node) > passed &&
            (next == NULL || node_scan_number(node) < node_scan_number(next)))
            next = node;
    return next;
}

static uint64_t store_digest_servers(const struct redis_store *store, uint64_t passed) {
    uint64_t digest = 0;

    for (const struct redis_node *node = store->nodes; node != NULL; node = node->next)
        if (node_is_member(node) && node_scan_number(node) <= passed)
            digest += node_scan_number(node);
    return digest;
}

static void scan_restart(struct redis_scan *scan) {
    scan->restarts++;
    scan->passed = scan->digest = 0;
    scan->stats = scan->before = (struct idem_stats){0};
}

static const struct redis_node *store_find_server(const struct redis_store *store, uint64_t id) {
    const struct redis_node *node = store->nodes;

    while (node != NULL && (!node_is_member(node) || node_scan_id(node) != id))
        node = node->next;
    return node;
}

/* Completes the current server. True if another one follows. */
static bool store_pass_server(const struct redis_store *store, struct redis_scan *scan) {
    const struct redis_node *node = store_find_server(store, scan->server);
    bool gone = node == NULL;

    if (gone)
        node = store_next_server(store, scan->passed);
    if (node != NULL) {
        scan->passed = node_scan_number(node);
        scan->digest += scan->passed;
    }
    scan->page = scan->server = 0;
    scan->before = scan->stats;
    if (gone || store_digest_servers(store, scan->passed) != scan->digest) {
        if (scan->restarts < RESTARTS_MAX)
            scan_restart(scan);
        else
            scan->digest = store_digest_servers(store, scan->passed);
    }
    return store_next_server(store, scan->passed) != NULL;
}

/* A cursor of SCAN is worthless to another server: the page then starts again. */
static void scan_check_server(struct redis_scan *scan, const struct redis_node *node) {
    uint64_t id = node_scan_id(node);

    if (scan->server != 0 && scan->server != id) {
        scan->page = 0;
        scan->stats = scan->before;
    }
    scan->server = id;
}

/* Commands. */

/* Writes a pattern that matches the prefix literally. */
static void scan_put_pattern(struct idem_buffer *out, struct idem_bytes prefix) {
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

static int64_t job_page_size(const struct redis_job *job) {
    size_t room;

    if (!job_is_list(job))
        return PAGE_STATS;
    room = job->base.copy.in.list.max - job->scan->entries_n;
    return room < PAGE_MIN ? PAGE_MIN : room > PAGE_MAX ? PAGE_MAX : (int64_t)room;
}

static void scan_write(struct redis_job *job) {
    struct redis_scan *scan = job->scan;
    struct idem_buffer *out = &job->command;
    char cursor[24];

    snprintf(cursor, sizeof(cursor), "%" PRIu64, scan->page);
    redis_put_head(out, 6);
    redis_put_text(out, "SCAN");
    redis_put_text(out, cursor);
    redis_put_text(out, "MATCH");
    scan_put_pattern(out,
                     job_is_list(job) ? job->base.copy.in.list.prefix : (struct idem_bytes){0});
    redis_put_text(out, "COUNT");
    redis_put_number(out, job_page_size(job));
    job->replies = 1;
}

/* redis_op.c sends ASKING before the first command; here it is added before each later one. */
static void job_put_asking(struct redis_job *job) {
    if (job->replies > 0 && job->asking) {
        redis_put_command(&job->command, "ASKING", NULL);
        job->replies++;
    }
    job->replies++;
}

/* Stats needs only the state, and of a running record if its lease is over: a script per record
   would cost the server several times as much. The life and the head may be of different
   moments, which does not matter to a changing figure. */
static void job_put_look(struct redis_job *job, const char *name, size_t len, bool lease) {
    struct idem_buffer *out = &job->command;

    job_put_asking(job);
    if (job_is_list(job)) {
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
        job_put_asking(job);
    }
    redis_put_head(out, 4);
    redis_put_text(out, "GETRANGE");
    redis_put_part(out, name, len);
    redis_put_part(out, "0", 1);
    redis_put_number(out, REDIS_HEAD_LEN - 1);
}

static void job_write_looks(struct redis_job *job) {
    struct redis_scan *scan = job->scan;
    char name[REDIS_NAME_MAX];
    size_t len;

    scan->at = 0;
    for (size_t i = 0; i < scan->names_n; i++) {
        if (redis_look_of(scan, i) == LOOK_DONE)
            continue;
        len = redis_name(&scan->names[i], name);
        scan_set_look(scan, i, LOOK_WANTED);
        if (scan->one_slot && redis_cluster_slot(name, len) != scan->slot)
            continue;
        scan_set_look(scan, i, LOOK_SENT);
        job_put_look(job, name, len, scan_is_leased(scan, i));
    }
}

static bool scan_begin(struct redis_job *job) {
    struct redis_scan *scan = job->scan = calloc(1, sizeof(*scan));

    if (scan == NULL)
        return false;
    if (!job_is_list(job))
        return true;
    scan->entries = calloc(job->base.copy.in.list.max, sizeof(*scan->entries));
    return scan->entries != NULL && redis_cursor_read(job);
}

/* Returns the server of a step without a slot. A server existed when the step began; if it was
   removed, the step restarts. */
static struct redis_node *job_next_server(struct redis_job *job) {
    struct redis_scan *scan = job->scan;
    struct redis_node *node = store_next_server(job->store, scan->passed);

    if (node != NULL)
        return node;
    if (scan->step == STEP_SCAN)
        scan_restart(scan);
    if (scan->step == STEP_MEMORY)
        scan->passed = scan->stats.bytes_used = scan->stats.bytes_max = 0;
    return store_next_server(job->store, 0); /* any server redirects a look */
}

/* Returns the server of the current step; NULL: none now. */
static const struct redis_node *job_current_server(struct redis_job *job) {
    struct redis_scan *scan = job->scan;
    struct redis_node *node;

    if (!scan->one_slot) {
        job->asking = false;
        job->target = scan->step == STEP_EVENTS ? NULL : job_next_server(job);
    }
    job->slot = scan->one_slot ? scan->slot
                               : redis_cluster_slot(REDIS_EVENTS_NAME, strlen(REDIS_EVENTS_NAME));
    node = redis_cluster_route(job->store, job);
    return node == NULL || node->conn.state != REDIS_CONN_READY ? NULL : node;
}

bool redis_scan_write(struct redis_job *job) {
    const struct redis_node *node;
    struct redis_scan *scan;

    if (job->scan == NULL && !scan_begin(job))
        return false;
    scan = job->scan;
    node = job_current_server(job);
    job->command.len = 0;
    job->replies = 0;
    if (node ==
        NULL) /* the command depends on the server: it is written when the server is ready */
        return true;
    scan->asking = job->asking;
    scan->taken = 0;
    scan->half = scan->blocked = false;
    scan->why[0] = '\0';
    switch (scan->step) {
    case STEP_SCAN:
        scan_check_server(scan, node);
        scan_write(job);
        break;
    case STEP_LOOK:
        job_write_looks(job);
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

static int job_fail_reply(struct redis_job *job, const struct redis_reply *reply) {
    if (reply->type == REDIS_REPLY_ERROR)
        return idem_error_set(&job->base.copy.error, IDEM_E_REFUSED, "the server says: %.150s",
                              reply->text);
    return idem_error_set(&job->base.copy.error, IDEM_E_REFUSED,
                          "the server's reply is not what was asked for");
}

/* True for errors that mean: at another server, or later. */
static bool reply_is_obstacle(const struct redis_reply *reply) {
    return redis_reply_is(reply, "MOVED") || redis_reply_is(reply, "ASK") ||
           redis_reply_is(reply, "NOSCRIPT") || redis_is_passing(reply);
}

/* Keeps the first obstacle only; `slot` is that of its name. */
static void scan_note_obstacle(struct redis_scan *scan, const struct redis_reply *reply,
                               uint16_t slot) {
    if (scan->why[0] != '\0')
        return;
    snprintf(scan->why, sizeof(scan->why), "%s", reply->text);
    scan->one_slot = redis_reply_is(reply, "MOVED") || redis_reply_is(reply, "ASK");
    scan->slot = slot;
}

const struct redis_reply *redis_scan_obstacle(struct redis_job *job) {
    struct redis_scan *scan = job->scan;

    job->command.len = 0; /* to be written again */
    scan->obstacle = (struct redis_reply){
        .type = REDIS_REPLY_ERROR, .text = scan->why, .len = strlen(scan->why)};
    return &scan->obstacle;
}

/* True for an error that shows that a key is not one of ours: it has another type, or is not
   allowed. Older servers include such an error in the text of a script's error. */
static bool reply_is_foreign(const struct redis_reply *reply) {
    return strstr(reply->text, "WRONGTYPE") != NULL ||
           (strstr(reply->text, "NOPERM") != NULL && strstr(reply->text, "key") != NULL);
}

static int scan_compare_names(const void *a, const void *b) {
    const struct idem_record_key *x = a, *y = b;
    size_t xn = idem_record_key_len(x), yn = idem_record_key_len(y);
    int order = memcmp(x->at, y->at, xn < yn ? xn : yn);

    return order != 0 ? order : xn < yn ? -1 : xn > yn;
}

/* Takes the names of a page, sorted, without duplicates. */
static bool job_take_names(struct redis_job *job, const struct redis_reply *list) {
    struct redis_scan *scan = job->scan;
    size_t least = job_is_list(job) ? job->base.copy.in.list.prefix.len : 0, n = 0;
    struct idem_record_key key;

    if (!redis_names_alloc(scan, list->items_n))
        return false;
    for (size_t i = 0; i < list->items_n; i++)
        if (redis_name_parse(list->items[i]->text, list->items[i]->len, &key) &&
            key.prefix_len >= least)
            scan->names[n++] = key;
    qsort(scan->names, n, sizeof(*scan->names), scan_compare_names);
    for (size_t i = 0; i < n; i++)
        if (i == 0 || scan_compare_names(&scan->names[scan->names_n - 1], &scan->names[i]) != 0)
            scan->names[scan->names_n++] = scan->names[i];
    return true;
}

/* Goes to the next page, server or step; true if there is one. */
static bool job_next_page(struct redis_job *job) {
    struct redis_scan *scan = job->scan;

    scan->step = STEP_SCAN;
    scan->one_slot = false;
    scan->page = scan->next;
    if (scan->page != 0)
        return true;
    if (store_pass_server(job->store, scan))
        return true;
    if (job_is_list(job))
        return false;
    scan->step = STEP_EVENTS;
    return true;
}

/* `left`: some names of this page are not in the response yet. */
static int job_end_list(struct redis_job *job, bool all, bool left) {
    struct redis_scan *scan = job->scan;
    uint64_t id = left ? redis_page_save(job->store, scan) : 0;

    if (left && id == 0) {
        return idem_error_set(&job->base.copy.error, IDEM_E_NOMEM, "no memory for a list");
    }
    job->base.copy.out.list.entries = scan->entries;
    job->base.copy.out.list.n = scan->entries_n;
    job->base.copy.out.list.cursor = job->base.copy.in.list.cursor;
    job->base.copy.out.list.cursor.end = all;
    if (!all)
        redis_cursor_write(scan, id, &job->base.copy.out.list.cursor);
    return 0;
}

static int job_send_again(struct redis_job *job) {
    job->command.len = 0; /* it is written again when it is sent */
    return REDIS_AGAIN;
}

static int job_end_page(struct redis_job *job) {
    struct redis_scan *scan = job->scan;
    bool more = job_next_page(job);

    remote_op_renew(&job->base);
    scan->pages++;
    if (job_is_list(job) &&
        (!more || scan->entries_n == job->base.copy.in.list.max || scan->pages >= PAGES_MAX))
        return job_end_list(job, !more, false);
    return job_send_again(job);
}

static int scan_take(struct redis_job *job, const struct redis_reply *reply) {
    struct redis_scan *scan = job->scan;

    if (reply->type != REDIS_REPLY_ARRAY || reply->items_n != 2 ||
        reply->items[0]->type != REDIS_REPLY_STRING || reply->items[1]->type != REDIS_REPLY_ARRAY) {
        return job_fail_reply(job, reply);
    }
    scan->next = strtoull(reply->items[0]->text, NULL, 10);
    if (!job_take_names(job, reply->items[1])) {
        return idem_error_set(&job->base.copy.error, IDEM_E_NOMEM, "no memory for a list");
    }
    if (scan->names_n == 0)
        return job_end_page(job);
    scan->step = STEP_LOOK;
    return job_send_again(job);
}

/* Adds one record of the page. Keys that are not records (a nonce, or a foreign key) are
   skipped. */
static void job_add_entry(struct redis_job *job, const struct idem_record_key *key,
                          const struct redis_reply *reply) {
    struct redis_scan *scan = job->scan;
    const struct redis_reply *bytes = reply->items[0];
    int64_t left = reply->items[1]->integer, now = reply->items[2]->integer;
    int64_t cut = reply->items[3]->integer - (int64_t)bytes->len;
    struct idem_record record;
    int rc;

    if (left <= 0 || !redis_record_is((const unsigned char *)bytes->text, bytes->len))
        return;
    rc = redis_record_decode((struct idem_bytes){(const unsigned char *)bytes->text, bytes->len},
                             now, left, &record);
    if (rc == 0 && cut > 0)
        record.result.len += (size_t)cut;
    scan->entries_n +=
        idem_list_take(&job->base.copy.in.list, key, rc, &record, (struct idem_time){now, now},
                       &scan->entries[scan->entries_n]);
}

/* False: the record runs, and its remaining life is unknown. */
static bool scan_add_stats(struct redis_scan *scan, size_t i, const struct redis_reply *reply) {
    bool leased = scan_is_leased(scan, i), live;
    enum idem_state state;

    if (reply->type != REDIS_REPLY_STRING ||
        !redis_record_glance((const unsigned char *)reply->text, reply->len,
                             leased ? scan->left : 1, &state, &live))
        return true;
    if (!leased && state == IDEM_RUNNING)
        return false;
    idem_stats_add(&scan->stats, state, live, 1);
    return true;
}

static bool job_is_full(const struct redis_job *job) {
    return job_is_list(job) && job->scan->entries_n == job->base.copy.in.list.max;
}

/* Runs after all replies to the sent commands. */
static int job_end_looks(struct redis_job *job) {
    struct redis_scan *scan = job->scan;
    bool left = false;

    for (size_t i = 0; i < scan->names_n; i++)
        left |= redis_look_of(scan, i) != LOOK_DONE;
    if (left && job_is_full(job))
        return job_end_list(job, false, true);
    if (scan->why[0] != '\0')
        return REDIS_STUCK;
    scan->one_slot = false;
    return left ? job_send_again(job) : job_end_page(job);
}

static void job_complete_look(struct redis_job *job, const struct redis_reply *reply) {
    struct redis_scan *scan = job->scan;
    size_t i = scan->at++;

    if (scan->blocked || job_is_full(job)) {
        scan_set_look(scan, i, LOOK_WANTED);
        return;
    }
    scan_set_look(scan, i, LOOK_DONE);
    job->redirects = job->reloads = 0; /* the operation makes progress */
    if (!job_is_list(job)) {
        if (!scan_add_stats(scan, i, reply))
            scan->looks[i] = LOOK_WANTED | LOOK_LEASE;
    } else if (reply->type == REDIS_REPLY_ARRAY && reply->items_n == 4) {
        job_add_entry(job, &scan->names[i], reply);
    }
}

static int job_take_look(struct redis_job *job, const struct redis_reply *reply) {
    struct redis_scan *scan = job->scan;
    char name[REDIS_NAME_MAX];

    if (scan->asking && scan->taken++ % 2 == 1) /* the reply to ASKING */
        return REDIS_MORE;
    while (scan->at < scan->names_n && redis_look_of(scan, scan->at) != LOOK_SENT)
        scan->at++;
    if (scan->at == scan->names_n) {
        return job_fail_reply(job, reply);
    }
    if (reply_is_obstacle(reply)) {
        scan->blocked = true;
        scan_note_obstacle(scan, reply,
                           redis_cluster_slot(name, redis_name(&scan->names[scan->at], name)));
    } else if (reply->type == REDIS_REPLY_ERROR && !reply_is_foreign(reply)) {
        return job_fail_reply(job, reply);
    }
    if (scan_is_leased(scan, scan->at) && !scan->half) {
        scan->half = true;
        scan->left = reply->type == REDIS_REPLY_INTEGER ? reply->integer + 1 : 0;
        return REDIS_MORE;
    }
    job_complete_look(job, reply);
    scan->half = scan->blocked = false;
    return job->base.responses_due > 0 ? REDIS_MORE : job_end_looks(job);
}

static uint64_t scan_info_number(const char *text, const char *name) {
    const char *at = strstr(text, name);

    return at == NULL ? 0 : strtoull(at + strlen(name), NULL, 10);
}

static int job_take_events(struct redis_job *job, const struct redis_reply *reply) {
    struct redis_scan *scan = job->scan;
    int event;

    if (reply->type != REDIS_REPLY_ARRAY) {
        return job_fail_reply(job, reply);
    }
    for (size_t i = 0; i + 1 < reply->items_n; i += 2)
        if (idem_word_find(idem_words_event, reply->items[i]->text, reply->items[i]->len, &event))
            scan->stats.events[event] = strtoull(reply->items[i + 1]->text, NULL, 10);
    scan->step = STEP_MEMORY;
    scan->one_slot = false;
    scan->passed = scan->digest = 0;
    return job_send_again(job);
}

static int job_take_memory(struct redis_job *job, const struct redis_reply *reply) {
    struct redis_scan *scan = job->scan;
    const struct redis_node *node;

    if (reply->type == REDIS_REPLY_STRING) {
        scan->stats.bytes_used += scan_info_number(reply->text, "\nused_memory:");
        scan->stats.bytes_max += scan_info_number(reply->text, "\nmaxmemory:");
    }
    node = store_next_server(job->store, scan->passed);
    if (node != NULL)
        scan->passed = node_scan_number(node);
    if (store_next_server(job->store, scan->passed) != NULL)
        return job_send_again(job);
    for (int k = 0; k < IDEM_EVENT__COUNT; k++)
        scan->stats.events[k] += job->store->remote.tally[k]; /* not sent yet */
    job->base.copy.out.stats = scan->stats;
    return 0;
}

int redis_scan_take(struct redis_job *job, const struct redis_reply *reply) {
    struct redis_scan *scan = job->scan;

    if (scan->step == STEP_LOOK)
        return job_take_look(job, reply);
    if (reply_is_obstacle(reply)) {
        scan_note_obstacle(scan, reply, job->slot);
        return REDIS_STUCK;
    }
    job->redirects = job->reloads = 0;
    switch (scan->step) {
    case STEP_SCAN:
        return scan_take(job, reply);
    case STEP_EVENTS:
        return job_take_events(job, reply);
    default:
        return job_take_memory(job, reply);
    }
}
