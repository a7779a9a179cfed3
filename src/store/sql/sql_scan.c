/*
 * List, stats and time. A list is a page of the table in the order of names, by the primary key;
 * the server omits expired records and those in other states than the requested one.
 */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/words.h"
#include "protocol/record_entry.h"
#include "store/sql/sql_store.h"

#define KEY_COLUMNS 2

static bool scan_read_key(const struct sql_value *cells, struct idem_record_key *ret) {
    struct idem_bytes prefix = cells[0].bytes, hash = cells[1].bytes;

    if (cells[0].type != SQL_BYTES || cells[1].type != SQL_BYTES || prefix.len > IDEM_PREFIX_MAX ||
        hash.len != IDEM_HASH_LEN)
        return false;
    ret->prefix_len = prefix.len;
    memcpy(ret->at, prefix.at, prefix.len);
    memcpy(ret->at + prefix.len, hash.at, hash.len);
    return true;
}

/* List. */

/* The first name behind all names that begin with the prefix, or a name behind everything. */
static size_t scan_prefix_end(struct idem_bytes prefix, unsigned char *out) {
    size_t len = prefix.len;

    if (len != 0)
        memcpy(out, prefix.at, len);
    while (len > 0 && out[len - 1] == 0xff)
        len--;
    if (len == 0) {
        memset(out, 0xff, IDEM_PREFIX_MAX + 1);
        return IDEM_PREFIX_MAX + 1;
    }
    out[len - 1]++;
    return len;
}

/* Any state, if the request names no valid one. */
static void scan_state_range(const struct idem_list_in *in, int64_t *ret_from, int64_t *ret_to) {
    bool any = in->uncertain || in->state < IDEM_ISSUED || in->state > IDEM_FAILED;

    *ret_from = any ? INT16_MIN : (int64_t)in->state;
    *ret_to = any ? INT16_MAX : (int64_t)in->state;
}

static size_t job_write_list(struct sql_job *job, struct sql_value *values) {
    const struct idem_list_in *in = &job->base.copy.in.list;
    size_t prefix_len = in->cursor.len > IDEM_HASH_LEN ? in->cursor.len - IDEM_HASH_LEN : 0;
    size_t n = 0, end_len = scan_prefix_end(in->prefix, job->bound);
    int64_t from, to;

    scan_state_range(in, &from, &to);
    values[n++] = sql_bytes(in->cursor.at, prefix_len);
    values[n++] = values[0];
    values[n++] = sql_bytes(in->cursor.at + prefix_len, in->cursor.len - prefix_len);
    values[n++] = sql_bytes(in->prefix.at, in->prefix.len);
    values[n++] = sql_bytes(job->bound, end_len);
    values[n++] = sql_int(from);
    values[n++] = sql_int(to);
    values[n++] = sql_int(in->uncertain);
    values[n++] = (struct sql_value){.type = SQL_MS, .n = in->since_ms > 0 ? in->since_ms : 0};
    values[n++] = sql_int((int64_t)in->max);
    return n;
}

static bool scan_read_entry(const struct idem_list_in *in, const struct idem_record_key *key,
                            const struct sql_value *cells, struct idem_entry *entry) {
    struct idem_record record;
    int64_t now = 0;
    int rc = sql_row_decode(cells, &record, &now);

    return idem_list_take(in, key, rc, &record, (struct idem_time){now, now}, entry);
}

static int job_take_list(struct sql_job *job, struct sql_answer *answer) {
    const struct idem_list_in *in = &job->base.copy.in.list;
    struct idem_cursor *cursor = &job->base.copy.out.list.cursor;
    struct idem_record_key key;
    size_t n = 0;

    job->entries = malloc((answer->rows == 0 ? 1 : answer->rows) * sizeof(*job->entries));
    if (job->entries == NULL)
        return idem_error_set(&job->base.copy.error, IDEM_E_NOMEM, "no memory for a list");
    *cursor = in->cursor;
    for (size_t i = 0; i < answer->rows; i++) {
        const struct sql_value *cells = sql_cell(answer, i, 0);

        if (!scan_read_key(cells, &key))
            continue;
        cursor->len = idem_record_key_len(&key);
        memcpy(cursor->at, key.at, cursor->len);
        n += scan_read_entry(in, &key, cells + KEY_COLUMNS, &job->entries[n]);
    }
    cursor->end = answer->rows < in->max;
    job->base.copy.out.list.entries = job->entries;
    job->base.copy.out.list.n = n;
    return 0;
}

const struct sql_step sql_step_list = {SQL_LIST, false, job_write_list, job_take_list};

/* Stats: the records, then the events. */

static size_t job_write_nothing(struct sql_job *job, struct sql_value *values) {
    (void)job;
    (void)values;
    return 0;
}

static int job_take_events(struct sql_job *job, struct sql_answer *answer) {
    struct idem_stats *stats = &job->base.copy.out.stats;
    int event;

    for (size_t i = 0; i < answer->rows; i++) {
        struct idem_bytes name = sql_cell(answer, i, 0)->bytes;

        if (idem_word_find(idem_words_event, (const char *)name.at, name.len, &event))
            stats->events[event] = (uint64_t)sql_cell(answer, i, 1)->n;
    }
    for (event = 0; event < IDEM_EVENT__COUNT; event++) /* counted here, but not sent yet */
        stats->events[event] += job->store->remote.tally[event];
    return 0;
}

static const struct sql_step step_events = {SQL_EVENTS, false, job_write_nothing, job_take_events};

static int job_take_stats(struct sql_job *job, struct sql_answer *answer) {
    struct idem_stats *stats = &job->base.copy.out.stats;

    *stats = (struct idem_stats){0};
    for (size_t i = 0; i < answer->rows; i++)
        idem_stats_add(stats, (enum idem_state)sql_cell(answer, i, 0)->n,
                       sql_cell(answer, i, 1)->n != 0, (uint64_t)sql_cell(answer, i, 2)->n);
    return sql_job_continue(job, &step_events);
}

const struct sql_step sql_step_stats = {SQL_STATS, false, job_write_nothing, job_take_stats};

static int job_take_time(struct sql_job *job, struct sql_answer *answer) {
    if (answer->rows != 1 || sql_cell(answer, 0, 0)->type != SQL_MS)
        return idem_error_set(&job->base.copy.error, IDEM_E_REFUSED, "the server returned no time");
    job->base.copy.out.time.ms = job->base.copy.out.time.date = sql_cell(answer, 0, 0)->n;
    return 0;
}

const struct sql_step sql_step_time = {SQL_TIME, false, job_write_nothing, job_take_time};
