/*
 * A list or stats under way, as scan.c and page.c share it.
 */
#ifndef IDEM_STORE_REDIS_SCAN_H
#define IDEM_STORE_REDIS_SCAN_H

#include "store/redis/store.h"

enum step { STEP_SCAN, STEP_LOOK, STEP_EVENTS, STEP_MEMORY };
enum look { LOOK_WANTED, LOOK_SENT, LOOK_DONE };
#define LOOK_LEASE 4 /* besides, in stats: it runs, and whether its lease is over is asked for */

struct redis_scan {
    enum step step;
    uint64_t passed;     /* the number of the server that was gone through last; 0: none was */
    uint64_t digest;     /* of all that were */
    unsigned restarts;   /* because that was not so */
    uint64_t server;     /* the process whose cursors these are; 0: not begun */
    uint64_t page, next; /* SCAN's cursors: of this page, and of the one behind it */
    struct idem_record_key *names;
    unsigned char *looks; /* enum look, of each name */
    size_t names_n, at;   /* at: whose answer comes next, or a later one's */
    bool aside;           /* only the names of a slot that is elsewhere are asked for */
    uint16_t aside_slot;
    bool asking;        /* there is an ASKING between any two commands */
    unsigned taken;     /* replies to what was sent last */
    bool half, blocked; /* of the name whose answer is coming: its life is known; it is stuck */
    int64_t left;       /* what is left of its life */
    char why[300];      /* the first error that stands in the way; "": none */
    struct redis_reply obstacle;
    unsigned pages;
    struct idem_entry *entries; /* LIST */
    size_t entries_n;
    struct idem_stats stats, before; /* before: without the server that is gone through */
};

static inline enum look redis_look_of(const struct redis_scan *scan, size_t i) {
    return (enum look)(scan->looks[i] & (LOOK_LEASE - 1));
}

/* page.c */

/* Room for so many names, of which there is none yet; false without memory. */
bool redis_names_alloc(struct redis_scan *scan, size_t n);
/* Keeps the names that were not looked at; the page's number, 0 without memory. */
uint64_t redis_page_keep(struct redis_store *store, const struct redis_scan *scan);
/* Takes a list up where its cursor says; false if that is none of ours, or without memory. */
bool redis_cursor_read(struct redis_job *job);
void redis_cursor_write(const struct redis_scan *scan, uint64_t id, struct idem_cursor *cursor);

#endif
