/*
 * Each operation as commands, and its replies as a result.
 *
 * A claim of an absent key is a plain SET NX, which the server executes many times as fast as a
 * script. If the key exists, SET returns its record: a claim that changes nothing is decided here,
 * by the same tables. A claim that would change an existing record is sent again as a script.
 */
#include <stdlib.h>
#include <string.h>

#include "base/big_endian.h"
#include "base/error.h"
#include "store/redis/redis_store.h"

/* The first version that accepts SET with both NX and GET. */
#define VERSION_SET_NX_GET 70000

/* After a running key is found, others are likely for this long. */
#define CONTENDED_MS 1000

/* Numbers in the form that the scripts unpack: big-endian, of fixed lengths. */

struct packer {
    unsigned char at[160];
    size_t len;
};

static void packer_put(struct packer *p, int64_t n, size_t bytes) {
    idem_be_put(p->at + p->len, (uint64_t)n, bytes);
    p->len += bytes;
}

static void packer_put_bytes(struct packer *p, const void *bytes, size_t len) {
    memcpy(p->at + p->len, bytes, len);
    p->len += len;
}

/* Writing. */

/* Sends the script's text, with a flag that lets it exceed the server's maxmemory. */
static void job_put_urgent(struct redis_job *job, enum redis_script script) {
    static const char leave[] = "#!lua flags=allow-oom\n";
    const char *text = job->store->scripts.text[script];
    struct idem_buffer whole = {0};

    idem_buffer_put(&whole, leave, sizeof(leave) - 1);
    idem_buffer_put(&whole, text, strlen(text));
    redis_put_text(&job->command, "EVAL");
    redis_put_part(&job->command, whole.at, whole.len);
    job->command.failed |= whole.failed;
    idem_buffer_release(&whole);
}

static void job_put_eval(struct redis_job *job, enum redis_script script, size_t arguments) {
    struct idem_buffer *out = &job->command;
    char name[REDIS_NAME_MAX];
    size_t len = redis_name(&job->base.copy.key, name);

    redis_put_head(out, 4 + arguments);
    if (job->urgent) {
        job_put_urgent(job, script);
    } else {
        redis_put_text(out, "EVALSHA");
        redis_put_part(out, job->store->scripts.sha[script], 40);
    }
    redis_put_part(out, "1", 1);
    redis_put_part(out, name, len);
    job->replies = 1;
}

static void job_put_packed(struct redis_job *job, const struct packer *p) {
    redis_put_part(&job->command, p->at, p->len);
}

static void job_put_bytes(struct redis_job *job, struct idem_bytes bytes) {
    redis_put_part(&job->command, bytes.at, bytes.len);
}

static unsigned command_flag(bool set, unsigned bit) {
    return set ? bit : 0;
}

/* A life for PX. The server removes a key in the ms after its last, the protocol in the last ms. */
static void job_put_life(struct redis_job *job, int64_t life) {
    redis_put_number(&job->command, life > 1 ? life - 1 : 1);
}

static void job_write_claim_script(struct redis_job *job) {
    const struct idem_claim_in *in = &job->base.copy.in.claim;
    int64_t life = in->lease_ms + in->hold_ttl_ms;
    struct packer p = {.len = 0};

    packer_put_bytes(&p, in->owner, IDEM_OWNER_LEN);
    packer_put(&p, in->fingerprint.definition, 4);
    packer_put_bytes(&p, in->fingerprint.hash, IDEM_HASH_LEN);
    packer_put(&p,
               command_flag(in->token, 1) | command_flag(in->probe, 4) |
                   command_flag(in->mode == IDEM_MODE_REPLAY, 8) |
                   command_flag(in->mode == IDEM_MODE_LOCK, 16) |
                   command_flag(in->recover == IDEM_RECOVER_RERUN, 32) |
                   command_flag(in->on_failure == IDEM_ON_FAILURE_KEEP, 64),
               1);
    packer_put(&p, in->attempts, 4);
    packer_put(&p, in->lease_ms, 6);
    packer_put(&p, life, 6);
    packer_put(&p, in->ttl_ms, 6);
    job_put_eval(job, REDIS_SCRIPT_CLAIM, 5);
    job_put_packed(job, &p);
    job_put_bytes(job, (struct idem_bytes){in->bind, in->has_bind ? IDEM_HASH_LEN : 0});
    job_put_bytes(job, in->label);
    job_put_life(job, life);
    job_put_life(job, in->ttl_ms);
}

/* Writes SET name first NX GET PX life. If running keys were found lately, PTTL name follows:
   the remaining life of such a key is then needed. Otherwise PTTL would be wasted. */
static void job_write_claim_plain(struct redis_job *job) {
    const struct idem_claim_in *in = &job->base.copy.in.claim;
    struct idem_buffer *out = &job->command, first = {0};
    char name[REDIS_NAME_MAX];
    size_t len = redis_name(&job->base.copy.key, name);

    redis_record_first(in, &first);
    redis_put_head(out, 7);
    redis_put_text(out, "SET");
    redis_put_part(out, name, len);
    redis_put_part(out, first.at, first.len);
    redis_put_text(out, "NX");
    redis_put_text(out, "GET");
    redis_put_text(out, "PX");
    job_put_life(job, in->lease_ms + in->hold_ttl_ms);
    out->failed |= first.failed;
    idem_buffer_release(&first);
    job->replies = 1;
    if (idem_loop_now() >= job->store->contended_until)
        return;
    redis_put_head(out, 2);
    redis_put_text(out, "PTTL");
    redis_put_part(out, name, len);
    job->replies = 2;
}

/* A token is never absent, and a lock may have a record of an earlier use: both need the script. */
static bool job_claim_is_plain(const struct redis_job *job) {
    const struct idem_claim_in *in = &job->base.copy.in.claim;

    return !job->scripted && !in->token && in->mode != IDEM_MODE_LOCK &&
           job->version >= VERSION_SET_NX_GET;
}

static void job_write_claim(struct redis_job *job) {
    job->scripted = !job_claim_is_plain(job);
    if (job->scripted)
        job_write_claim_script(job);
    else
        job_write_claim_plain(job);
}

/* The remaining life of the record, and the end of its lease or the time of its retry. */
static void command_finish_times(const struct idem_finish_in *in, int64_t *ret_life,
                                 int64_t *ret_due) {
    *ret_life = in->ttl_ms;
    *ret_due = 0;
    if (in->action == IDEM_OWNER_FAIL || in->action == IDEM_OWNER_UNKNOWN)
        *ret_due = in->delay_ms;
    else if (in->action == IDEM_OWNER_RENEW)
        *ret_due = in->lease_ms;
    if (in->action == IDEM_OWNER_UNKNOWN || in->action == IDEM_OWNER_RENEW)
        *ret_life = *ret_due + in->hold_ttl_ms;
}

/* Adds the head of a first attempt's record while it runs, and the head when it is done. The
   script replaces one by the other. Empty if the finish is of another kind. */
static void job_put_record_heads(struct redis_job *job, const struct idem_finish_in *in) {
    struct idem_buffer heads = {0};
    struct idem_record record = {.state = IDEM_RUNNING, .attempt = 1, .tries = 1};

    memcpy(record.owner, in->owner, IDEM_OWNER_LEN);
    if (in->action == IDEM_OWNER_DONE && in->attempt == 1 && in->keep_result) {
        redis_record_begin(&record, &heads);
        record.state = IDEM_DONE;
        record.kept = true;
        redis_record_begin(&record, &heads);
    }
    redis_put_part(&job->command, heads.at, heads.len);
    job->command.failed |= heads.failed;
    idem_buffer_release(&heads);
}

static void job_write_finish(struct redis_job *job) {
    const struct idem_finish_in *in = &job->base.copy.in.finish;
    struct packer p = {.len = 0};
    int64_t life, due;

    command_finish_times(in, &life, &due);
    packer_put(&p, in->action, 1);
    packer_put(&p, command_flag(in->keep_result, 1) | command_flag(in->final, 2), 1);
    packer_put(&p, in->attempt, 4);
    packer_put_bytes(&p, in->owner, IDEM_OWNER_LEN);
    packer_put(&p, in->status, 4);
    packer_put(&p, life, 6);
    packer_put(&p, due, 6);
    packer_put(&p, (int64_t)in->reason.len, 2);
    job_put_eval(job, REDIS_SCRIPT_FINISH, 5);
    job_put_packed(job, &p);
    job_put_bytes(job, in->reason);
    job_put_bytes(job, in->result);
    job_put_life(job, life);
    job_put_record_heads(job, in);
}

static void job_write_issue(struct redis_job *job) {
    const struct idem_issue_in *in = &job->base.copy.in.issue;
    struct packer p = {.len = 0};

    packer_put_bytes(&p, in->owner, IDEM_OWNER_LEN);
    packer_put(&p, in->ttl_ms, 6);
    packer_put(&p, (int64_t)in->label.len, 2);
    job_put_eval(job, REDIS_SCRIPT_ISSUE, 4);
    job_put_packed(job, &p);
    job_put_bytes(job, (struct idem_bytes){in->bind, in->has_bind ? IDEM_HASH_LEN : 0});
    job_put_bytes(job, in->label);
    job_put_life(job, in->ttl_ms);
}

static void job_write_once(struct redis_job *job) {
    char name[REDIS_NAME_MAX];
    size_t len = redis_name(&job->base.copy.key, name);

    redis_put_head(&job->command, 6);
    redis_put_text(&job->command, "SET");
    redis_put_part(&job->command, name, len);
    redis_put_text(&job->command, "1");
    redis_put_text(&job->command, "NX");
    redis_put_text(&job->command, "PX");
    job_put_life(job, job->base.copy.in.once.ttl_ms);
    job->replies = 1;
}

static void job_write_count(struct redis_job *job) {
    static const char *const how[] = {
        [IDEM_COUNT_ADD] = "add", [IDEM_COUNT_RAISE] = "raise", [IDEM_COUNT_NEXT] = "next"};
    const struct idem_count_in *in = &job->base.copy.in.count;

    job_put_eval(job, REDIS_SCRIPT_COUNT, 4);
    redis_put_text(&job->command, how[in->how]);
    redis_put_number(&job->command, in->value);
    job_put_life(job, in->ttl_ms);
    redis_put_number(&job->command, in->value == INT64_MIN ? 0 : in->value - 1);
}

static void job_write_lookup(struct redis_job *job) {
    job_put_eval(job, REDIS_SCRIPT_LOOK, 1);
    redis_put_text(&job->command, "");
}

static void job_write_settle(struct redis_job *job) {
    const struct idem_settle_in *in = &job->base.copy.in.settle;
    struct packer p = {.len = 0};

    packer_put(&p, in->to, 1);
    packer_put(&p, in->force, 1);
    packer_put(&p, in->attempt, 4);
    packer_put(&p, in->status, 4);
    packer_put(&p, in->ttl_ms, 6);
    packer_put(&p, (int64_t)in->reason.len, 2);
    packer_put(&p, in->from, 1);
    job_put_eval(job, REDIS_SCRIPT_SETTLE, 3);
    job_put_packed(job, &p);
    job_put_bytes(job, in->reason);
    job_put_life(job, in->ttl_ms);
}

static void job_write_forget(struct redis_job *job) {
    job_put_eval(job, REDIS_SCRIPT_FORGET, 1);
    redis_put_text(&job->command, job->base.copy.in.forget.force ? "1" : "0");
}

static void job_write_time(struct redis_job *job) {
    redis_put_command(&job->command, "TIME", NULL);
    job->replies = 1;
}

bool redis_job_write(struct redis_job *job) {
    static void (*const writers[IDEM_OP__COUNT])(struct redis_job * job) = {
        [IDEM_OP_CLAIM] = job_write_claim,   [IDEM_OP_FINISH] = job_write_finish,
        [IDEM_OP_ISSUE] = job_write_issue,   [IDEM_OP_ONCE] = job_write_once,
        [IDEM_OP_COUNT] = job_write_count,   [IDEM_OP_LOOKUP] = job_write_lookup,
        [IDEM_OP_SETTLE] = job_write_settle, [IDEM_OP_FORGET] = job_write_forget,
        [IDEM_OP_SWEEP] = job_write_time,    [IDEM_OP_TIME] = job_write_time,
    };

    job->command.len = 0;
    if (job->base.copy.kind == IDEM_OP_LIST || job->base.copy.kind == IDEM_OP_STATS)
        return redis_scan_write(job);
    writers[job->base.copy.kind](job);
    return !job->command.failed;
}

/* Reading. */

static int job_fail_protocol(struct redis_job *job) {
    return idem_error_set(&job->base.copy.error, IDEM_E_UNKNOWN,
                          "the server's reply is not what was asked for; is it Redis 6.2 or "
                          "later?");
}

static bool reply_is_oom(const struct redis_reply *reply) {
    return redis_reply_is(reply, "OOM") || strstr(reply->text, "OOM command not allowed") != NULL;
}

/* Sets the job's error from the server's. A command that is refused was not executed. */
static int job_fail_error(struct redis_job *job, const struct redis_reply *reply) {
    if (redis_reply_is(reply, "IDEM"))
        return idem_op_refuse(&job->base.copy, strcmp(reply->text, "IDEM newer") == 0
                                                   ? IDEM_E_VERSION
                                                   : IDEM_E_CORRUPT);
    if (redis_reply_is(reply, "WRONGTYPE") || strstr(reply->text, "WRONGTYPE") != NULL)
        return idem_op_refuse(&job->base.copy, IDEM_E_CORRUPT);
    /* Before 7.0 scripts have no such flag, and the user may not be allowed EVAL. */
    if (reply_is_oom(reply) || job->urgent)
        return idem_error_set(&job->base.copy.error, IDEM_E_FULL,
                              "the server is at its maxmemory, and takes nothing new");
    if (redis_reply_is(reply, "MOVED") && job->store->cluster == NULL)
        return idem_error_set(&job->base.copy.error, IDEM_E_REFUSED,
                              "the server is one of a cluster, and does not have this key: use "
                              "redis+cluster://HOST,HOST");
    return idem_error_set(&job->base.copy.error, IDEM_E_REFUSED, "the server refuses: %.200s",
                          reply->text);
}

static struct idem_bytes reply_bytes(const struct redis_reply *reply) {
    return (struct idem_bytes){(const unsigned char *)reply->text, reply->len};
}

static bool reply_is_array(const struct redis_reply *reply, size_t n) {
    return reply->type == REDIS_REPLY_ARRAY && reply->items_n == n;
}

static bool reply_is_within(const struct redis_reply *reply, int64_t min, int64_t max) {
    return reply->type == REDIS_REPLY_INTEGER && reply->integer >= min && reply->integer <= max;
}

/* Sends the claim again as a script. */
static int job_claim_by_script(struct redis_job *job) {
    job->scripted = true;
    job->command.len = 0;
    job_write_claim_script(job);
    if (!job->command.failed)
        return REDIS_AGAIN;
    return idem_error_set(&job->base.copy.error, IDEM_E_NOMEM, "no memory for an operation");
}

/* Decides a plain claim from the record found; `ttl` is its remaining life, NULL if PTTL was not
   sent. */
static int job_decide_claim(struct redis_job *job, const struct redis_reply *was,
                            const struct redis_reply *ttl) {
    const struct idem_claim_in *in = &job->base.copy.in.claim;
    bool timed = ttl != NULL && reply_is_within(ttl, 0, REDIS_MS_MAX - 1);
    struct idem_record record, fresh;
    struct idem_time zero = {0, 0};
    enum idem_verdict verdict;
    int64_t left;
    bool write;

    if (was->type == REDIS_REPLY_NIL) {
        (void)idem_protocol_claim(NULL, &fresh, in, zero, &write, &left);
        job->base.copy.out.claim.verdict = IDEM_RUN;
        job->base.copy.out.claim.record = fresh;
        return 0;
    }
    if (was->type != REDIS_REPLY_STRING ||
        redis_record_decode(reply_bytes(was), 0, timed ? ttl->integer + 1 : 1, &record) != 0)
        return job_claim_by_script(job);
    if (record.state == IDEM_RUNNING)
        job->store->contended_until = idem_loop_now() + CONTENDED_MS;
    /* Without the remaining life, the state of a lease or a back-off is unknown. The same holds
       if the record was removed between the two commands. */
    if (!timed && (ttl != NULL || record.state == IDEM_RUNNING || record.state == IDEM_FAILED))
        return job_claim_by_script(job);
    verdict = idem_protocol_claim(&record, NULL, in, zero, &write, &left);
    /* Only the script may find that a lease is over: it reads the record and its life at once. */
    if (write || verdict == IDEM_UNCERTAIN)
        return job_claim_by_script(job);
    job->base.copy.out.claim.verdict = verdict;
    job->base.copy.out.claim.left_ms = left;
    job->base.copy.out.claim.record = record;
    job->base.copy.out.claim.shared = redis_reply_shared(was);
    if (verdict != IDEM_REPLAY && verdict != IDEM_DEAD)
        job->base.copy.out.claim.record.result = (struct idem_bytes){0};
    return 0;
}

static int job_take_claim(struct redis_job *job, const struct redis_reply *reply) {
    struct idem_record *record = &job->base.copy.out.claim.record;
    int rc;

    if (!reply_is_array(reply, 4) || !reply_is_within(reply->items[0], IDEM_RUN, IDEM_PROBE) ||
        !reply_is_within(reply->items[1], 0, REDIS_MS_MAX) ||
        reply->items[2]->type != REDIS_REPLY_STRING || reply->items[3]->type != REDIS_REPLY_INTEGER)
        return job_fail_protocol(job);
    job->base.copy.out.claim.verdict = (enum idem_verdict)reply->items[0]->integer;
    job->base.copy.out.claim.left_ms = reply->items[1]->integer;
    *record = (struct idem_record){.state = IDEM_ABSENT};
    if (reply->items[2]->len == 0)
        return 0;
    job->base.copy.out.claim.shared = redis_reply_shared(reply->items[2]);
    rc = redis_record_decode(reply_bytes(reply->items[2]), 0, reply->items[3]->integer, record);
    return rc == 0 ? 0 : idem_op_refuse(&job->base.copy, rc);
}

static int job_take_lookup(struct redis_job *job, const struct redis_reply *reply) {
    struct idem_record record;
    int64_t now, left;
    int rc;

    if (!reply_is_array(reply, 4) || reply->items[0]->type != REDIS_REPLY_STRING)
        return job_fail_protocol(job);
    left = reply->items[1]->integer;
    now = reply->items[2]->integer;
    if (left < 0) /* PTTL returns -2 for an absent key */
        return idem_op_refuse(&job->base.copy, IDEM_E_ABSENT);
    rc = redis_record_decode(reply_bytes(reply->items[0]), now, left, &record);
    if (rc != 0)
        return idem_op_refuse(&job->base.copy, rc);
    idem_op_fill_lookup(&job->base.copy, &record, (struct idem_time){now, now});
    return 0;
}

static int job_take_count(struct redis_job *job, const struct redis_reply *reply) {
    if (!reply_is_array(reply, 2) || !reply_is_within(reply->items[0], 0, 1) ||
        reply->items[1]->type != REDIS_REPLY_STRING)
        return job_fail_protocol(job);
    job->base.copy.out.count.changed = reply->items[0]->integer == 1;
    job->base.copy.out.count.value = strtoll(reply->items[1]->text, NULL, 10);
    if (!job->base.copy.out.count.changed && job->base.copy.in.count.how == IDEM_COUNT_ADD)
        return idem_error_set(&job->base.copy.error, IDEM_E_INVALID, "the counter overflows");
    return 0;
}

static int job_take_time(struct redis_job *job, const struct redis_reply *reply) {
    int64_t seconds;

    if (!reply_is_array(reply, 2) || reply->items[0]->type != REDIS_REPLY_STRING ||
        reply->items[1]->type != REDIS_REPLY_STRING)
        return job_fail_protocol(job);
    if (job->base.copy.kind == IDEM_OP_SWEEP) /* the server expires keys itself */
        return 0;
    seconds = strtoll(reply->items[0]->text, NULL, 10);
    if (seconds < 0 || seconds > REDIS_MS_MAX / 1000)
        return job_fail_protocol(job);
    job->base.copy.out.time.ms = seconds * 1000 + strtoll(reply->items[1]->text, NULL, 10) / 1000;
    job->base.copy.out.time.date = job->base.copy.out.time.ms;
    return 0;
}

static int job_take_number(struct redis_job *job, const struct redis_reply *reply) {
    bool is_boolean = job->base.copy.kind == IDEM_OP_FINISH || job->base.copy.kind == IDEM_OP_ISSUE;

    if (is_boolean ? !reply_is_within(reply, 0, 1)
                   : !reply_is_within(reply, 0, 0) &&
                         !reply_is_within(reply, IDEM_E_SETTLED, IDEM_E_ABSENT))
        return job_fail_protocol(job);
    switch (job->base.copy.kind) {
    case IDEM_OP_FINISH:
        job->base.copy.out.finish.ack = (enum idem_ack)reply->integer;
        return remote_op_check_finish(&job->base);
    case IDEM_OP_ISSUE:
        job->base.copy.out.issue.issued = reply->integer == 1;
        return 0;
    default: /* settle and forget */
        return reply->integer == 0 ? 0 : idem_op_refuse(&job->base.copy, (int)reply->integer);
    }
}

static int job_take_result(struct redis_job *job, const struct redis_reply *reply) {
    switch (job->base.copy.kind) {
    case IDEM_OP_CLAIM:
        return job_take_claim(job, reply);
    case IDEM_OP_LOOKUP:
        return job_take_lookup(job, reply);
    case IDEM_OP_COUNT:
        return job_take_count(job, reply);
    case IDEM_OP_SWEEP:
    case IDEM_OP_TIME:
        return job_take_time(job, reply);
    case IDEM_OP_ONCE:
        if (reply->type != REDIS_REPLY_STATUS && reply->type != REDIS_REPLY_NIL)
            return job_fail_protocol(job);
        job->base.copy.out.once.first = reply->type == REDIS_REPLY_STATUS;
        return 0;
    default:
        return job_take_number(job, reply);
    }
}

/* forget --force also removes a damaged record: there is no other way. */
static bool job_forget_damaged(struct redis_job *job, int rc) {
    char name[REDIS_NAME_MAX];
    size_t len = redis_name(&job->base.copy.key, name);

    if (job->base.copy.kind != IDEM_OP_FORGET || rc != IDEM_E_CORRUPT ||
        !job->base.copy.in.forget.force)
        return false;
    job->command.len = 0;
    redis_put_head(&job->command, 2);
    redis_put_text(&job->command, "DEL");
    redis_put_part(&job->command, name, len);
    job->base.copy.in.forget.force = false; /* only once */
    job->deleting = true;
    job->replies = 1;
    return !job->command.failed;
}

/* An operation that has begun may be completed on a server that is at its maxmemory. */
static bool job_finish_urgent(struct redis_job *job, const struct redis_reply *reply) {
    if ((job->base.copy.kind != IDEM_OP_FINISH && job->base.copy.kind != IDEM_OP_SETTLE) ||
        job->urgent || !reply_is_oom(reply))
        return false;
    job->urgent = true;
    return redis_job_write(job);
}

int redis_job_take(struct redis_job *job, const struct redis_reply *reply) {
    int rc;

    if (job->scan != NULL)
        return redis_scan_take(job, reply);
    if (reply->type == REDIS_REPLY_ERROR) {
        /* A full server refuses SET even for an existing key; the script only reads that key. */
        if (job->base.copy.kind == IDEM_OP_CLAIM && !job->scripted && reply_is_oom(reply))
            return job_claim_by_script(job);
        if (job_finish_urgent(job, reply))
            return REDIS_AGAIN;
        rc = job_fail_error(job, reply);
        return job_forget_damaged(job, rc) ? REDIS_AGAIN : rc;
    }
    if (job->base.copy.kind == IDEM_OP_CLAIM && !job->scripted)
        return job_decide_claim(job, job->first != NULL ? job->first : reply,
                                job->first != NULL ? reply : NULL);
    if (job->deleting) /* the reply to DEL */
        return 0;
    return job_take_result(job, reply);
}
