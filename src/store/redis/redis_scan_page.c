/*
 * The position of a list between two calls: its cursor, and the names of a page of SCAN that did
 * not fit into a response. The names are kept for the next call under an ID in the cursor, for the
 * latest REDIS_PAGES_KEPT pages only; without them the page is read again. Fails without memory,
 * and on a cursor that is not one of ours.
 */
#include <stdlib.h>
#include <string.h>

#include "store/redis/redis_scan.h"

/* Kept pages. */

void redis_pages_free(struct redis_store *store) {
    for (size_t i = 0; i < REDIS_PAGES_KEPT; i++)
        free(store->pages[i].names);
}

bool redis_names_alloc(struct redis_scan *scan, size_t n) {
    free(scan->names);
    free(scan->looks);
    scan->names_n = 0;
    scan->names = calloc(n + 1, sizeof(*scan->names));
    scan->looks = calloc(n + 1, sizeof(*scan->looks));
    return scan->names != NULL && scan->looks != NULL;
}

uint64_t redis_page_keep(struct redis_store *store, const struct redis_scan *scan) {
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

static uint64_t scan_page_get_number(const unsigned char *at, int bytes) {
    uint64_t n = 0;

    while (bytes-- > 0)
        n = n << 8 | *at++;
    return n;
}

static void scan_page_put_number(unsigned char *at, uint64_t n, int bytes) {
    for (int i = bytes - 1; i >= 0; i--, n >>= 8)
        at[i] = (unsigned char)n;
}

bool redis_cursor_read(struct redis_job *job) {
    const struct idem_cursor *cursor = &job->base.copy.in.list.cursor;
    struct redis_scan *scan = job->scan;
    const struct redis_page *kept;

    if (cursor->len == 0)
        return true;
    if (cursor->len != CURSOR_LEN)
        return false;
    scan->restarts = cursor->at[0];
    scan->passed = scan_page_get_number(cursor->at + 1, 8);
    scan->digest = scan_page_get_number(cursor->at + 9, 8);
    scan->server = scan_page_get_number(cursor->at + 17, 8);
    scan->page = scan_page_get_number(cursor->at + 25, 8);
    kept = scan_page_find(job->store, scan_page_get_number(cursor->at + 41, 8));
    if (kept == NULL)
        return true;
    if (!redis_names_alloc(scan, kept->names_n))
        return false;
    memcpy(scan->names, kept->names, kept->names_n * sizeof(*kept->names));
    scan->names_n = kept->names_n;
    scan->next = scan_page_get_number(cursor->at + 33, 8);
    scan->step = STEP_LOOK;
    return true;
}

void redis_cursor_write(const struct redis_scan *scan, uint64_t id, struct idem_cursor *cursor) {
    cursor->len = CURSOR_LEN;
    cursor->at[0] = (unsigned char)scan->restarts;
    scan_page_put_number(cursor->at + 1, scan->passed, 8);
    scan_page_put_number(cursor->at + 9, scan->digest, 8);
    scan_page_put_number(cursor->at + 17, scan->server, 8);
    scan_page_put_number(cursor->at + 25, scan->page, 8);
    scan_page_put_number(cursor->at + 33, scan->next, 8);
    scan_page_put_number(cursor->at + 41, id, 8);
}
