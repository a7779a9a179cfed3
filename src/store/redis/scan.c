/*
 * List and stats: SCAN, which never holds the server up, and a look at each name
 * that it gives. A cluster's servers are gone through one after the other.
 *
 * A page of SCAN may have more names than fit into an answer. The rest is kept
 * here, under a number that the cursor has, for the next call; of the latest few
 * lists only. SCAN promises that what is there all the time is told; while the
 * server makes its table larger or smaller, it may be told twice.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/entry.h"
#include "core/error.h"
#include "store/redis/store.h"

#define PAGE 200     /* names per SCAN, more or less */
#define PAGES_MAX 50 /* per call: a list that finds nothing must come to an answer too */

/* Enough for all but the result. */
#define LOOK_LEN                                                                                   \
    (REDIS_HEAD_LEN + IDEM_HASH_LEN + REDIS_PRIOR_LEN + IDEM_LABEL_MAX + IDEM_REASON_MAX)

enum step { STEP_SCAN, STEP_LOOK, STEP_EVENTS, STEP_MEMORY };

struct redis_scan {
    enum step step;
    unsigned node; /* which server, counted from the first */
    uint64_t page; /* SCAN's cursor: of the page that comes next */
    struct idem_record_key *names;
    size_t names_n, looked;
    bool stuck; /* the scripts were gone in the middle of a page */
    unsigned pages;
    struct idem_entry *entries; /* LIST */
    size_t entries_n;
    struct idem_stats stats;
};

void redis_scan_free(struct redis_scan *scan) {
    if (scan == NULL)
        return;
    free(scan->names);
    free(scan->entries);
    free(scan);
}

static bool is_list(const struct redis_job *job) {
    return job->copy.kind == IDEM_OP_LIST;
}

/* Pages that are kept. */

void redis_pages_free(struct redis_store *store) {
    for (size_t i = 0; i < REDIS_PAGES_KEPT; i++)
        free(store->pages[i].names);
}

/* Keeps what is behind the name that was looked at last; its number, 0 without memory. */
static uint64_t page_keep(struct redis_store *store, const struct redis_scan *scan) {
    struct redis_page *page = &store->pages[store->pages_made % REDIS_PAGES_KEPT];
    size_t n = scan->names_n - scan->looked;
    struct idem_record_key *names = malloc(n * sizeof(*names));

    if (names == NULL)
        return 0;
    memcpy(names, scan->names + scan->looked, n * sizeof(*names));
    free(page->names);
    *page = (struct redis_page){.id = ++store->pages_made, .names = names, .names_n = n};
    return page->id;
}

static bool page_find(struct redis_store *store, uint64_t id, struct redis_scan *scan) {
    for (size_t i = 0; i < REDIS_PAGES_KEPT; i++) {
        struct redis_page *page = &store->pages[i];

        if (page->id != id)
            continue;
        scan->names = page->names;
        scan->names_n = page->names_n;
        *page = (struct redis_page){0};
        return true;
    }
    return false;
}

/* The cursor: server, SCAN's cursor, and the number of a page. */

#define CURSOR_LEN (2 + 8 + 8)

static uint64_t number_get(const unsigned char *at, int bytes) {
    uint64_t n = 0;

    while (bytes-- > 0)
        n = n << 8 | *at++;
    return n;
}

static void number_put(unsigned char *at, uint64_t n, int bytes) {
    for (int i = bytes - 1; i >= 0; i--, n >>= 8)
        at[i] = (unsigned char)n;
}

static bool cursor_read(struct redis_job *job) {
    const struct idem_cursor *cursor = &job->copy.in.list.cursor;
    struct redis_scan *scan = job->scan;
    uint64_t id;

    if (cursor->len == 0)
        return true;
    if (cursor->len != CURSOR_LEN)
        return false;
    scan->node = (unsigned)number_get(cursor->at, 2);
    scan->page = number_get(cursor->at + 2, 8);
    id = number_get(cursor->at + 10, 8);
    if (id == 0)
        return true;
    scan->step = STEP_LOOK;
    return page_find(job->store, id, scan);
}

static void cursor_write(const struct redis_scan *scan, uint64_t id, struct idem_cursor *cursor) {
    cursor->len = CURSOR_LEN;
    number_put(cursor->at, scan->node, 2);
    number_put(cursor->at + 2, scan->page, 8);
    number_put(cursor->at + 10, id, 8);
}

/* Which server comes next; NULL: all were gone through. */
static struct redis_node *node_at(struct redis_store *store, unsigned n) {
    struct redis_node *node = store->nodes;

    for (; node != NULL; node = node->next)
        if ((store->config.kind != REDIS_CLUSTER || node->known) && n-- == 0)
            return node;
    return NULL;
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
    redis_put_number(out, PAGE);
    job->replies = 1;
}

static void look_write(struct redis_job *job) {
    struct redis_buffer *out = &job->command;
    char name[REDIS_NAME_MAX];

    for (size_t i = job->scan->looked; i < job->scan->names_n; i++) {
        redis_put_head(out, 5);
        redis_put_text(out, "EVALSHA");
        redis_put_part(out, job->store->scripts.sha[REDIS_SCRIPT_LOOK], 40);
        redis_put_part(out, "1", 1);
        redis_put_part(out, name, redis_name(&job->scan->names[i], name));
        redis_put_number(out, LOOK_LEN - 1);
    }
    job->replies = (unsigned)(job->scan->names_n - job->scan->looked);
}

bool redis_scan_write(struct redis_job *job) {
    struct redis_scan *scan = job->scan;

    if (scan == NULL) {
        job->scan = scan = calloc(1, sizeof(*scan));
        if (scan == NULL)
            return false;
        if (is_list(job)) {
            scan->entries = calloc(job->copy.in.list.max, sizeof(*scan->entries));
            if (scan->entries == NULL || !cursor_read(job))
                return false;
        }
    }
    job->command.len = 0;
    job->at = node_at(job->store, scan->node);
    switch (scan->step) {
    case STEP_SCAN:
        scan_write(job);
        break;
    case STEP_LOOK:
        look_write(job);
        break;
    case STEP_EVENTS:
        job->at = NULL;
        job->slot = redis_slot(REDIS_EVENTS_NAME, strlen(REDIS_EVENTS_NAME));
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

static int fail(struct redis_job *job) {
    return idem_error_set(&job->copy.error, IDEM_E_REFUSED,
                          "the server's answer is not what was asked for");
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

    free(scan->names);
    scan->names_n = scan->looked = 0;
    scan->names = calloc(list->items_n + 1, sizeof(*scan->names));
    if (scan->names == NULL)
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
    if (scan->page != 0)
        return true;
    scan->node++;
    if (node_at(job->store, scan->node) != NULL)
        return true;
    if (is_list(job))
        return false;
    scan->step = STEP_EVENTS;
    return true;
}

/* `left`: names of this page were not told yet. */
static enum redis_taken list_end(struct redis_job *job, bool all, bool left, int *ret_rc) {
    struct redis_scan *scan = job->scan;
    uint64_t id = left ? page_keep(job->store, scan) : 0;

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
        cursor_write(scan, id, &job->copy.out.list.cursor);
    return REDIS_DONE;
}

static enum redis_taken again(struct redis_job *job, int *ret_rc) {
    if (redis_scan_write(job))
        return REDIS_AGAIN;
    *ret_rc = idem_error_set(&job->copy.error, IDEM_E_NOMEM, "no memory for a list");
    return REDIS_DONE;
}

static enum redis_taken page_end(struct redis_job *job, int *ret_rc) {
    struct redis_scan *scan = job->scan;
    bool more = page_next(job);

    scan->pages++;
    if (is_list(job) &&
        (!more || scan->entries_n == job->copy.in.list.max || scan->pages >= PAGES_MAX))
        return list_end(job, !more, false, ret_rc);
    return again(job, ret_rc);
}

static enum redis_taken scan_take(struct redis_job *job, const struct redis_reply *reply,
                                  int *ret_rc) {
    struct redis_scan *scan = job->scan;

    if (reply->type != REDIS_REPLY_ARRAY || reply->items_n != 2 ||
        reply->items[0]->type != REDIS_REPLY_STRING || reply->items[1]->type != REDIS_REPLY_ARRAY) {
        *ret_rc = fail(job);
        return REDIS_DONE;
    }
    scan->page = strtoull(reply->items[0]->text, NULL, 10);
    if (!names_take(job, reply->items[1])) {
        *ret_rc = idem_error_set(&job->copy.error, IDEM_E_NOMEM, "no memory for a list");
        return REDIS_DONE;
    }
    if (scan->names_n == 0)
        return page_end(job, ret_rc);
    scan->step = STEP_LOOK;
    return again(job, ret_rc);
}

/* One record of the page. What is no record, a nonce or somebody's own key, is passed over. */
static void look_one(struct redis_job *job, const struct redis_reply *reply) {
    struct redis_scan *scan = job->scan;
    const struct idem_list_in *in = &job->copy.in.list;
    const struct idem_record_key *key = &scan->names[scan->looked];
    const struct redis_reply *bytes = reply->items[0];
    int64_t left = reply->items[1]->integer, now = reply->items[2]->integer;
    int64_t cut = reply->items[3]->integer - (int64_t)bytes->len;
    struct idem_entry *entry;
    struct idem_record record;
    bool live;
    int rc;

    if (left <= 0 || !redis_record_is((const unsigned char *)bytes->text, bytes->len))
        return;
    rc = redis_record_decode((struct idem_bytes){(const unsigned char *)bytes->text, bytes->len},
                             now, left, &record);
    live = rc == 0 && record.lease_end > now;
    if (!is_list(job)) {
        if (rc == 0)
            idem_stats_add(&scan->stats, &record, live);
        return;
    }
    entry = &scan->entries[scan->entries_n];
    if (rc == 0) {
        record.result.len += (size_t)(cut > 0 ? cut : 0);
        idem_entry_fill(entry, key, &record, live, live ? record.lease_end - now : 0);
        scan->entries_n += idem_list_wants(in, &record, live);
    } else {
        idem_entry_fill_bad(entry, key, rc);
        scan->entries_n += idem_list_wants_bad(in, entry->state);
    }
}

static bool is_full(const struct redis_job *job) {
    return is_list(job) && job->scan->entries_n == job->copy.in.list.max;
}

static enum redis_taken look_take(struct redis_job *job, const struct redis_reply *reply,
                                  int *ret_rc) {
    struct redis_scan *scan = job->scan;

    if (redis_reply_is(reply, "NOSCRIPT"))
        scan->stuck = true;
    if (!is_full(job) && !scan->stuck) {
        if (reply->type == REDIS_REPLY_ARRAY && reply->items_n == 4)
            look_one(job, reply);
        scan->looked++;
    }
    if (job->wanted > 0)
        return REDIS_MORE;
    if (scan->stuck) { /* from where it was on; the caller has loaded the scripts */
        scan->stuck = false;
        return again(job, ret_rc);
    }
    if (scan->looked < scan->names_n)
        return list_end(job, false, true, ret_rc);
    return page_end(job, ret_rc);
}

static uint64_t info_number(const char *text, const char *name) {
    const char *at = strstr(text, name);

    return at == NULL ? 0 : strtoull(at + strlen(name), NULL, 10);
}

static enum redis_taken events_take(struct redis_job *job, const struct redis_reply *reply,
                                    int *ret_rc) {
    struct redis_scan *scan = job->scan;

    for (size_t i = 0; reply->type == REDIS_REPLY_ARRAY && i + 1 < reply->items_n; i += 2)
        for (int k = 0; k < IDEM_EVENT__COUNT; k++)
            if (strcmp(reply->items[i]->text, idem_event_name((enum idem_event)k)) == 0)
                scan->stats.events[k] = strtoull(reply->items[i + 1]->text, NULL, 10);
    scan->step = STEP_MEMORY;
    scan->node = 0;
    return again(job, ret_rc);
}

static enum redis_taken memory_take(struct redis_job *job, const struct redis_reply *reply,
                                    int *ret_rc) {
    struct redis_scan *scan = job->scan;

    if (reply->type == REDIS_REPLY_STRING) {
        scan->stats.bytes_used += info_number(reply->text, "\nused_memory:");
        scan->stats.bytes_max += info_number(reply->text, "\nmaxmemory:");
    }
    scan->node++;
    if (node_at(job->store, scan->node) != NULL)
        return again(job, ret_rc);
    for (int k = 0; k < IDEM_EVENT__COUNT; k++)
        scan->stats.events[k] += job->store->tally[k]; /* not sent yet */
    job->copy.out.stats = scan->stats;
    *ret_rc = 0;
    return REDIS_DONE;
}

enum redis_taken redis_scan_take(struct redis_job *job, const struct redis_reply *reply,
                                 int *ret_rc) {
    switch (job->scan->step) {
    case STEP_SCAN:
        return scan_take(job, reply, ret_rc);
    case STEP_LOOK:
        return look_take(job, reply, ret_rc);
    case STEP_EVENTS:
        return events_take(job, reply, ret_rc);
    default:
        return memory_take(job, reply, ret_rc);
    }
}
