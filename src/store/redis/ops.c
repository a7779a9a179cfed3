/*
 * Each operation as commands, and its replies as an answer.
 *
 * A claim of a key that is not there is a plain SET NX, which the server does
 * many times as fast as a script: it returns what is there instead, and what
 * changes nothing is decided here, by the same tables. Whatever would change an
 * existing record goes to the script.
 */
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "store/redis/store.h"

/* SET with NX and GET together. */
#define VERSION_SET_NX_GET 70000

/* How long a key that was found running makes others likely. */
#define CONTENDED_MS 1000

/* Numbers as the scripts unpack them: big-endian, of fixed lengths. */

struct packer {
    unsigned char at[160];
    size_t len;
};

static void pack(struct packer *p, int64_t n, int bytes) {
    uint64_t value = (uint64_t)n;

    for (int i = bytes - 1; i >= 0; i--)
        p->at[p->len++] = (unsigned char)(value >> (8 * i));
}

static void pack_bytes(struct packer *p, const void *bytes, size_t len) {
    memcpy(p->at + p->len, bytes, len);
    p->len += len;
}

/* Writing. */

/* The script itself, with leave to go beyond the server's maxmemory. */
static void put_urgent(struct redis_job *job, enum redis_script script) {
    static const char leave[] = "#!lua flags=allow-oom\n";
    const char *text = job->store->scripts.text[script];
    struct redis_buffer whole = {0};

    redis_buffer_put(&whole, leave, sizeof(leave) - 1);
    redis_buffer_put(&whole, text, strlen(text));
    redis_put_text(&job->command, "EVAL");
    redis_put_part(&job->command, whole.at, whole.len);
    job->command.failed |= whole.failed;
    redis_buffer_release(&whole);
}

static void put_eval(struct redis_job *job, enum redis_script script, size_t arguments) {
    struct redis_buffer *out = &job->command;
    char name[REDIS_NAME_MAX];
    size_t len = redis_name(&job->copy.key, name);

    redis_put_head(out, 4 + arguments);
    if (job->urgent) {
        put_urgent(job, script);
    } else {
        redis_put_text(out, "EVALSHA");
        redis_put_part(out, job->store->scripts.sha[script], 40);
    }
    redis_put_part(out, "1", 1);
    redis_put_part(out, name, len);
    job->replies = 1;
}

static void put_packed(struct redis_job *job, const struct packer *p) {
    redis_put_part(&job->command, p->at, p->len);
}

static void put_bytes(struct redis_job *job, struct idem_bytes bytes) {
    redis_put_part(&job->command, bytes.at, bytes.len);
}

static unsigned wish(bool wished, unsigned bit) {
    return wished ? bit : 0;
}

/* A life for PX: the server forgets a key in the ms after its last, the protocol in the last. */
static void put_life(struct redis_job *job, int64_t life) {
    redis_put_number(&job->command, life > 1 ? life - 1 : 1);
}

static void claim_script(struct redis_job *job) {
    const struct idem_claim_in *in = &job->copy.in.claim;
    int64_t life = in->lease_ms + in->hold_ttl_ms;
    struct packer p = {.len = 0};

    pack_bytes(&p, in->owner, IDEM_OWNER_LEN);
    pack(&p, in->fingerprint.definition, 4);
    pack_bytes(&p, in->fingerprint.hash, IDEM_HASH_LEN);
    pack(&p,
         wish(in->token, 1) | wish(in->probe, 4) | wish(in->mode == IDEM_MODE_REPLAY, 8) |
             wish(in->mode == IDEM_MODE_LOCK, 16) | wish(in->recover == IDEM_RECOVER_RERUN, 32) |
             wish(in->on_failure == IDEM_ON_FAILURE_KEEP, 64),
         1);
    pack(&p, in->attempts, 4);
    pack(&p, in->lease_ms, 6);
    pack(&p, life, 6);
    pack(&p, in->ttl_ms, 6);
    put_eval(job, REDIS_SCRIPT_CLAIM, 5);
    put_packed(job, &p);
    put_bytes(job, (struct idem_bytes){in->bind, in->has_bind ? IDEM_HASH_LEN : 0});
    put_bytes(job, in->label);
    put_life(job, life);
    put_life(job, in->ttl_ms);
}

/* SET name first NX GET PX life; and, where keys were found running lately, PTTL name, which tells
   how long such a one has left. Elsewhere it would be asked for in vain. */
static void claim_plain(struct redis_job *job) {
    const struct idem_claim_in *in = &job->copy.in.claim;
    struct redis_buffer *out = &job->command, first = {0};
    char name[REDIS_NAME_MAX];
    size_t len = redis_name(&job->copy.key, name);

    redis_record_first(in, &first);
    redis_put_head(out, 7);
    redis_put_text(out, "SET");
    redis_put_part(out, name, len);
    redis_put_part(out, first.at, first.len);
    redis_put_text(out, "NX");
    redis_put_text(out, "GET");
    redis_put_text(out, "PX");
    put_life(job, in->lease_ms + in->hold_ttl_ms);
    out->failed |= first.failed;
    redis_buffer_release(&first);
    job->replies = 1;
    if (idem_loop_now() >= job->store->contended_until)
        return;
    redis_put_head(out, 2);
    redis_put_text(out, "PTTL");
    redis_put_part(out, name, len);
    job->replies = 2;
}

/* A token is never absent, and a lock that was used before is there: both are the script's. */
static bool claim_is_plain(const struct redis_job *job) {
    const struct idem_claim_in *in = &job->copy.in.claim;

    return !job->scripted && !in->token && in->mode != IDEM_MODE_LOCK &&
           job->version >= VERSION_SET_NX_GET;
}

static void write_claim(struct redis_job *job) {
    job->scripted = !claim_is_plain(job);
    if (job->scripted)
        claim_script(job);
    else
        claim_plain(job);
}

/* How long the record lives on, and when its lease ends or its retry is due. */
static void finish_times(const struct idem_finish_in *in, int64_t *ret_life, int64_t *ret_due) {
    *ret_life = in->ttl_ms;
    *ret_due = 0;
    if (in->said == IDEM_SAID_FAIL || in->said == IDEM_SAID_UNKNOWN)
        *ret_due = in->delay_ms;
    else if (in->said == IDEM_SAID_RENEW)
        *ret_due = in->lease_ms;
    if (in->said == IDEM_SAID_UNKNOWN || in->said == IDEM_SAID_RENEW)
        *ret_life = *ret_due + in->hold_ttl_ms;
}

/* How the record of a first attempt begins while it runs, and when it is done; nothing where the
   straight way does not lead there. */
static void put_straight(struct redis_job *job, const struct idem_finish_in *in) {
    struct redis_buffer heads = {0};
    struct idem_record record = {.state = IDEM_RUNNING, .attempt = 1, .tries = 1};

    memcpy(record.owner, in->owner, IDEM_OWNER_LEN);
    if (in->said == IDEM_SAID_DONE && in->attempt == 1 && in->keep_result) {
        redis_record_begin(&record, &heads);
        record.state = IDEM_DONE;
        record.kept = true;
        redis_record_begin(&record, &heads);
    }
    redis_put_part(&job->command, heads.at, heads.len);
    job->command.failed |= heads.failed;
    redis_buffer_release(&heads);
}

static void write_finish(struct redis_job *job) {
    const struct idem_finish_in *in = &job->copy.in.finish;
    struct packer p = {.len = 0};
    int64_t life, due;

    finish_times(in, &life, &due);
    pack(&p, in->said, 1);
    pack(&p, wish(in->keep_result, 1) | wish(in->final, 2), 1);
    pack(&p, in->attempt, 4);
    pack_bytes(&p, in->owner, IDEM_OWNER_LEN);
    pack(&p, in->status, 4);
    pack(&p, life, 6);
    pack(&p, due, 6);
    pack(&p, (int64_t)in->reason.len, 2);
    put_eval(job, REDIS_SCRIPT_FINISH, 5);
    put_packed(job, &p);
    put_bytes(job, in->reason);
    put_bytes(job, in->result);
    put_life(job, life);
    put_straight(job, in);
}

static void write_issue(struct redis_job *job) {
    const struct idem_issue_in *in = &job->copy.in.issue;
    struct packer p = {.len = 0};

    pack_bytes(&p, in->owner, IDEM_OWNER_LEN);
    pack(&p, in->ttl_ms, 6);
    pack(&p, (int64_t)in->label.len, 2);
    put_eval(job, REDIS_SCRIPT_ISSUE, 4);
    put_packed(job, &p);
    put_bytes(job, (struct idem_bytes){in->bind, in->has_bind ? IDEM_HASH_LEN : 0});
    put_bytes(job, in->label);
    put_life(job, in->ttl_ms);
}

static void write_once(struct redis_job *job) {
    char name[REDIS_NAME_MAX];
    size_t len = redis_name(&job->copy.key, name);

    redis_put_head(&job->command, 6);
    redis_put_text(&job->command, "SET");
    redis_put_part(&job->command, name, len);
    redis_put_text(&job->command, "1");
    redis_put_text(&job->command, "NX");
    redis_put_text(&job->command, "PX");
    put_life(job, job->copy.in.once.ttl_ms);
    job->replies = 1;
}

static void write_count(struct redis_job *job) {
    static const char *const how[] = {
        [IDEM_COUNT_ADD] = "add", [IDEM_COUNT_RAISE] = "raise", [IDEM_COUNT_NEXT] = "next"};
    const struct idem_count_in *in = &job->copy.in.count;

    put_eval(job, REDIS_SCRIPT_COUNT, 4);
    redis_put_text(&job->command, how[in->how]);
    redis_put_number(&job->command, in->value);
    put_life(job, in->ttl_ms);
    redis_put_number(&job->command, in->value == INT64_MIN ? 0 : in->value - 1);
}

static void write_lookup(struct redis_job *job) {
    put_eval(job, REDIS_SCRIPT_LOOK, 1);
    redis_put_text(&job->command, "");
}

static void write_settle(struct redis_job *job) {
    const struct idem_settle_in *in = &job->copy.in.settle;
    struct packer p = {.len = 0};

    pack(&p, in->to, 1);
    pack(&p, in->force, 1);
    pack(&p, in->attempt, 4);
    pack(&p, in->status, 4);
    pack(&p, in->ttl_ms, 6);
    pack(&p, (int64_t)in->reason.len, 2);
    pack(&p, in->from, 1);
    put_eval(job, REDIS_SCRIPT_SETTLE, 3);
    put_packed(job, &p);
    put_bytes(job, in->reason);
    put_life(job, in->ttl_ms);
}

static void write_forget(struct redis_job *job) {
    put_eval(job, REDIS_SCRIPT_FORGET, 1);
    redis_put_text(&job->command, job->copy.in.forget.force ? "1" : "0");
}

static void write_time(struct redis_job *job) {
    redis_put_command(&job->command, "TIME", NULL);
    job->replies = 1;
}

bool redis_job_write(struct redis_job *job) {
    static void (*const writers[IDEM_OP__COUNT])(struct redis_job * job) = {
        [IDEM_OP_CLAIM] = write_claim,   [IDEM_OP_FINISH] = write_finish,
        [IDEM_OP_ISSUE] = write_issue,   [IDEM_OP_ONCE] = write_once,
        [IDEM_OP_COUNT] = write_count,   [IDEM_OP_LOOKUP] = write_lookup,
        [IDEM_OP_SETTLE] = write_settle, [IDEM_OP_FORGET] = write_forget,
        [IDEM_OP_SWEEP] = write_time,    [IDEM_OP_TIME] = write_time,
    };

    job->command.len = 0;
    if (job->copy.kind == IDEM_OP_LIST || job->copy.kind == IDEM_OP_STATS)
        return redis_scan_write(job);
    writers[job->copy.kind](job);
    return !job->command.failed;
}

/* Reading. */

static int fail(struct redis_job *job, int code, const char *what) {
    char hex[IDEM_HEX_LEN + 1];

    idem_record_key_hex(&job->copy.key, hex);
    return idem_error_set(&job->copy.error, code, "record %.12s: %s", hex, what);
}

static int fail_protocol(struct redis_job *job) {
    return idem_error_set(&job->copy.error, IDEM_E_UNKNOWN,
                          "the server's answer is not what was asked for; is it Redis 6.2 or "
                          "later?");
}

static int fail_record(struct redis_job *job, int code) {
    return fail(job, code,
                code == IDEM_E_VERSION
                    ? "written by a newer version of Idem; upgrade this one"
                    : "damaged; `idem forget --force --hash` removes it, and its key may then run "
                      "again");
}

static bool is_oom(const struct redis_reply *reply) {
    return redis_reply_is(reply, "OOM") || strstr(reply->text, "OOM command not allowed") != NULL;
}

/* An error of the server's as a code. Whatever refuses a command has not begun it. */
static int fail_error(struct redis_job *job, const struct redis_reply *reply) {
    if (redis_reply_is(reply, "IDEM"))
        return fail_record(job, strcmp(reply->text, "IDEM newer") == 0 ? IDEM_E_VERSION
                                                                       : IDEM_E_CORRUPT);
    if (redis_reply_is(reply, "WRONGTYPE") || strstr(reply->text, "WRONGTYPE") != NULL)
        return fail_record(job, IDEM_E_CORRUPT);
    /* Before 7.0 no script has such leave, and the user may not be allowed EVAL. */
    if (is_oom(reply) || job->urgent)
        return idem_error_set(&job->copy.error, IDEM_E_FULL,
                              "the server is at its maxmemory, and takes nothing new");
    if (redis_reply_is(reply, "MOVED") && job->store->cluster == NULL)
        return idem_error_set(&job->copy.error, IDEM_E_REFUSED,
                              "the server is one of a cluster, and has not this key: say "
                              "redis+cluster://HOST,HOST");
    return idem_error_set(&job->copy.error, IDEM_E_REFUSED, "the server refuses: %.200s",
                          reply->text);
}

static struct idem_bytes bytes_of(const struct redis_reply *reply) {
    return (struct idem_bytes){(const unsigned char *)reply->text, reply->len};
}

static bool is_array(const struct redis_reply *reply, size_t n) {
    return reply->type == REDIS_REPLY_ARRAY && reply->items_n == n;
}

static bool is_within(const struct redis_reply *reply, int64_t min, int64_t max) {
    return reply->type == REDIS_REPLY_INTEGER && reply->integer >= min && reply->integer <= max;
}

/* What the plain way does not lead to. */
static enum redis_taken claim_by_script(struct redis_job *job, int *ret_rc) {
    job->scripted = true;
    job->command.len = 0;
    claim_script(job);
    if (!job->command.failed)
        return REDIS_AGAIN;
    *ret_rc = idem_error_set(&job->copy.error, IDEM_E_NOMEM, "no memory for an operation");
    return REDIS_DONE;
}

/* What a plain claim found, and perhaps (NULL: it was not asked for) what is left of its life. */
static enum redis_taken claim_look(struct redis_job *job, const struct redis_reply *was,
                                   const struct redis_reply *ttl, int *ret_rc) {
    const struct idem_claim_in *in = &job->copy.in.claim;
    bool timed = ttl != NULL && is_within(ttl, 0, REDIS_MS_MAX - 1);
    struct idem_record record, fresh;
    struct idem_time zero = {0, 0};
    enum idem_verdict verdict;
    int64_t left;
    bool write;

    if (was->type == REDIS_REPLY_NIL) {
        (void)idem_protocol_claim(NULL, &fresh, in, zero, &write, &left);
        job->copy.out.claim.verdict = IDEM_RUN;
        job->copy.out.claim.record = fresh;
        *ret_rc = 0;
        return REDIS_DONE;
    }
    if (was->type != REDIS_REPLY_STRING ||
        redis_record_decode(bytes_of(was), 0, timed ? ttl->integer + 1 : 1, &record) != 0)
        return claim_by_script(job, ret_rc);
    if (record.state == IDEM_RUNNING)
        job->store->contended_until = idem_loop_now() + CONTENDED_MS;
    /* Without the time that is left nothing is certain of a lease or a back-off; nor if the record
       has gone meanwhile. */
    if (!timed && (ttl != NULL || record.state == IDEM_RUNNING || record.state == IDEM_FAILED))
        return claim_by_script(job, ret_rc);
    verdict = idem_protocol_claim(&record, NULL, in, zero, &write, &left);
    /* That a lease is over is for the script to say, which sees both at once. */
    if (write || verdict == IDEM_UNCERTAIN)
        return claim_by_script(job, ret_rc);
    job->copy.out.claim.verdict = verdict;
    job->copy.out.claim.left_ms = left;
    job->copy.out.claim.record = record;
    if (verdict != IDEM_REPLAY && verdict != IDEM_DEAD)
        job->copy.out.claim.record.result = (struct idem_bytes){0};
    *ret_rc = 0;
    return REDIS_DONE;
}

static int take_claim(struct redis_job *job, const struct redis_reply *reply) {
    struct idem_record *record = &job->copy.out.claim.record;
    int rc;

    if (!is_array(reply, 4) || !is_within(reply->items[0], IDEM_RUN, IDEM_PROBE) ||
        !is_within(reply->items[1], 0, REDIS_MS_MAX) ||
        reply->items[2]->type != REDIS_REPLY_STRING || reply->items[3]->type != REDIS_REPLY_INTEGER)
        return fail_protocol(job);
    job->copy.out.claim.verdict = (enum idem_verdict)reply->items[0]->integer;
    job->copy.out.claim.left_ms = reply->items[1]->integer;
    *record = (struct idem_record){.state = IDEM_ABSENT};
    if (reply->items[2]->len == 0)
        return 0;
    rc = redis_record_decode(bytes_of(reply->items[2]), 0, reply->items[3]->integer, record);
    return rc == 0 ? 0 : fail_record(job, rc);
}

static int take_lookup(struct redis_job *job, const struct redis_reply *reply) {
    struct idem_record *record = &job->copy.out.lookup.record;
    int64_t now, left;
    int rc;

    if (!is_array(reply, 4) || reply->items[0]->type != REDIS_REPLY_STRING)
        return fail_protocol(job);
    left = reply->items[1]->integer;
    now = reply->items[2]->integer;
    if (left < 0) /* PTTL is -2 */
        return idem_op_refuse(&job->copy, IDEM_E_ABSENT);
    rc = redis_record_decode(bytes_of(reply->items[0]), now, left, record);
    if (rc != 0)
        return fail_record(job, rc);
    job->copy.out.lookup.live = record->lease_end > now;
    job->copy.out.lookup.left_ms = job->copy.out.lookup.live ? record->lease_end - now : 0;
    return 0;
}

static int take_count(struct redis_job *job, const struct redis_reply *reply) {
    if (!is_array(reply, 2) || !is_within(reply->items[0], 0, 1) ||
        reply->items[1]->type != REDIS_REPLY_STRING)
        return fail_protocol(job);
    job->copy.out.count.changed = reply->items[0]->integer == 1;
    job->copy.out.count.value = strtoll(reply->items[1]->text, NULL, 10);
    if (!job->copy.out.count.changed && job->copy.in.count.how == IDEM_COUNT_ADD)
        return idem_error_set(&job->copy.error, IDEM_E_INVALID, "the counter overflows");
    return 0;
}

static int take_time(struct redis_job *job, const struct redis_reply *reply) {
    int64_t seconds;

    if (!is_array(reply, 2) || reply->items[0]->type != REDIS_REPLY_STRING ||
        reply->items[1]->type != REDIS_REPLY_STRING)
        return fail_protocol(job);
    if (job->copy.kind == IDEM_OP_SWEEP) /* the server does it */
        return 0;
    seconds = strtoll(reply->items[0]->text, NULL, 10);
    if (seconds < 0 || seconds > REDIS_MS_MAX / 1000)
        return fail_protocol(job);
    job->copy.out.time.ms = seconds * 1000 + strtoll(reply->items[1]->text, NULL, 10) / 1000;
    job->copy.out.time.date = job->copy.out.time.ms;
    return 0;
}

/* A repeat that finds another owner does not tell what became of the first. */
static int finish_doubt(struct redis_job *job) {
    if (!job->lost || job->copy.out.finish.ack != IDEM_LOST ||
        job->copy.in.finish.said == IDEM_SAID_RENEW)
        return 0;
    return idem_error_set(&job->copy.error, IDEM_E_UNKNOWN,
                          "the connection was lost before the answer came, and the record is not "
                          "this owner's any more: it may have been stored before");
}

static int take_number(struct redis_job *job, const struct redis_reply *reply) {
    bool said = job->copy.kind == IDEM_OP_FINISH || job->copy.kind == IDEM_OP_ISSUE;

    if (said ? !is_within(reply, 0, 1)
             : !is_within(reply, 0, 0) && !is_within(reply, IDEM_E_SETTLED, IDEM_E_ABSENT))
        return fail_protocol(job);
    switch (job->copy.kind) {
    case IDEM_OP_FINISH:
        job->copy.out.finish.ack = (enum idem_ack)reply->integer;
        return finish_doubt(job);
    case IDEM_OP_ISSUE:
        job->copy.out.issue.issued = reply->integer == 1;
        return 0;
    default: /* settle and forget */
        return reply->integer == 0 ? 0 : idem_op_refuse(&job->copy, (int)reply->integer);
    }
}

static int take_whole(struct redis_job *job, const struct redis_reply *reply) {
    switch (job->copy.kind) {
    case IDEM_OP_CLAIM:
        return take_claim(job, reply);
    case IDEM_OP_LOOKUP:
        return take_lookup(job, reply);
    case IDEM_OP_COUNT:
        return take_count(job, reply);
    case IDEM_OP_SWEEP:
    case IDEM_OP_TIME:
        return take_time(job, reply);
    case IDEM_OP_ONCE:
        if (reply->type != REDIS_REPLY_STATUS && reply->type != REDIS_REPLY_NIL)
            return fail_protocol(job);
        job->copy.out.once.first = reply->type == REDIS_REPLY_STATUS;
        return 0;
    default:
        return take_number(job, reply);
    }
}

/* A damaged record can be forgotten too: that is the way to get rid of it. */
static bool forget_damaged(struct redis_job *job, int rc) {
    char name[REDIS_NAME_MAX];
    size_t len = redis_name(&job->copy.key, name);

    if (job->copy.kind != IDEM_OP_FORGET || rc != IDEM_E_CORRUPT || !job->copy.in.forget.force)
        return false;
    job->command.len = 0;
    redis_put_head(&job->command, 2);
    redis_put_text(&job->command, "DEL");
    redis_put_part(&job->command, name, len);
    job->copy.in.forget.force = false; /* once */
    job->deleting = true;
    job->replies = 1;
    return !job->command.failed;
}

/* What was begun is brought to its end where nothing new is taken. */
static bool finish_urgent(struct redis_job *job, const struct redis_reply *reply) {
    if ((job->copy.kind != IDEM_OP_FINISH && job->copy.kind != IDEM_OP_SETTLE) || job->urgent ||
        !is_oom(reply))
        return false;
    job->urgent = true;
    return redis_job_write(job);
}

enum redis_taken redis_job_take(struct redis_job *job, const struct redis_reply *reply,
                                int *ret_rc) {
    if (job->scan != NULL)
        return redis_scan_take(job, reply, ret_rc);
    if (reply->type == REDIS_REPLY_ERROR) {
        /* A server that is full refuses a SET even of what is there; the script only looks at it.
         */
        if (job->copy.kind == IDEM_OP_CLAIM && !job->scripted && is_oom(reply))
            return claim_by_script(job, ret_rc);
        if (finish_urgent(job, reply))
            return REDIS_AGAIN;
        *ret_rc = fail_error(job, reply);
        return forget_damaged(job, *ret_rc) ? REDIS_AGAIN : REDIS_DONE;
    }
    if (job->copy.kind == IDEM_OP_CLAIM && !job->scripted)
        return claim_look(job, job->first != NULL ? job->first : reply,
                          job->first != NULL ? reply : NULL, ret_rc);
    if (job->deleting) { /* DEL */
        *ret_rc = 0;
        return REDIS_DONE;
    }
    *ret_rc = take_whole(job, reply);
    return REDIS_DONE;
}

unsigned redis_tally_write(struct redis_store *store, struct redis_buffer *out) {
    unsigned n = 0;

    for (int i = 0; i < IDEM_EVENT__COUNT; i++) {
        if (store->tally[i] == 0)
            continue;
        redis_put_head(out, 4);
        redis_put_text(out, "HINCRBY");
        redis_put_text(out, REDIS_EVENTS_NAME);
        redis_put_text(out, idem_event_name((enum idem_event)i));
        redis_put_number(out, (int64_t)store->tally[i]);
        n++;
    }
    return n;
}
