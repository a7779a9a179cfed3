/*
 * A list or stats operation under way, as redis_scan.c and redis_scan_page.c share it.
 */
#ifndef IDEM_STORE_REDIS_REDIS_SCAN_H
#define IDEM_STORE_REDIS_REDIS_SCAN_H

#include "store/redis/redis_store.h"

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
    bool aside;           /* only names of one slot, which another server has, are sent */
    uint16_t aside_slot;
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

/* redis_scan_page.c */

/* Allocates room for n names, and empties the list; false without memory. */
bool redis_names_alloc(struct redis_scan *scan, size_t n);
/* Keeps the names without a result; returns the page's ID, 0 without memory. */
uint64_t redis_page_keep(struct redis_store *store, const struct redis_scan *scan);
/* Continues a list at its cursor; false if the cursor is not one of ours, or without memory. */
bool redis_cursor_read(struct redis_job *job);
void redis_cursor_write(const struct redis_scan *scan, uint64_t id, struct idem_cursor *cursor);

#endif
