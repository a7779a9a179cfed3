/*
 * Any replies of a server to every kind of operation: through the reader and
 * into the operation. The first byte chooses the operation, and whether the
 * rest is the bytes of the replies, or a recipe for well-formed ones.
 */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store/redis/redis_store.h"

#define TEXT_MAX 65536
#define TURNS_MAX 64

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Recipes. */

struct recipe {
    const uint8_t *at, *end;
    struct idem_buffer out;
};

static unsigned next(struct recipe *r) {
    return r->at < r->end ? *r->at++ : 0;
}

static void put_text(struct recipe *r, const char *text) {
    idem_buffer_put(&r->out, text, strlen(text));
}

static void put_string(struct recipe *r, size_t len) {
    char head[32];

    if (len > (size_t)(r->end - r->at))
        len = (size_t)(r->end - r->at);
    snprintf(head, sizeof(head), "$%zu\r\n", len);
    put_text(r, head);
    idem_buffer_put(&r->out, r->at, len);
    put_text(r, "\r\n");
    r->at += len;
}

static void put_number(struct recipe *r, const char *head) {
    int64_t n = (int8_t)next(r);
    char text[40];

    if (n == -128) {
        for (int i = 0; i < 8; i++)
            n = (int64_t)((uint64_t)n << 8 | next(r));
    }
    snprintf(text, sizeof(text), "%s%lld\r\n", head, (long long)n);
    put_text(r, text);
}

static void put_reply(struct recipe *r, int depth) {
    static const char *const errors[] = {"-ERR what\r\n",      "-OOM command not allowed\r\n",
                                         "-WRONGTYPE x\r\n",   "-IDEM newer\r\n",
                                         "-IDEM damaged\r\n",  "-\r\n",
                                         "-NOSCRIPT none\r\n", "-READONLY you cannot\r\n"};
    unsigned what = next(r), n = what >> 4;
    char head[16];

    if (r->out.len > TEXT_MAX)
        return;
    switch (what % 8) {
    case 0:
        put_text(r, "$-1\r\n");
        return;
    case 1:
        put_number(r, ":");
        return;
    case 2:
        put_text(r, "+OK\r\n");
        return;
    case 3:
        put_text(r, errors[n % 8]);
        return;
    case 4:
        put_string(r, next(r));
        return;
    case 5: /* possibly a record */
        put_string(r, 96 + (size_t)next(r));
        return;
    default:
        if (depth > 4)
            n = 0;
        snprintf(head, sizeof(head), "*%u\r\n", n);
        put_text(r, head);
        for (unsigned i = 0; i < n; i++)
            put_reply(r, depth + 1);
    }
}

/* Operations. */

static struct redis_store store;
static struct redis_node node = {.store = &store, .version = 70000};
static struct redis_store store = {.nodes = &node};

static void job_fill(struct redis_job *job, enum idem_op_kind kind, bool scripted) {
    *job = (struct redis_job){.store = &store, .base.copy.kind = kind, .scripted = scripted};
    job->base.copy.key.prefix_len = 1;
    switch (kind) {
    case IDEM_OP_CLAIM:
        job->base.copy.in.claim = (struct idem_claim_in){.mode = IDEM_MODE_REPLAY,
                                                         .recover = IDEM_RECOVER_HOLD,
                                                         .on_failure = IDEM_ON_FAILURE_RELEASE,
                                                         .lease_ms = 1000,
                                                         .hold_ttl_ms = 1000,
                                                         .ttl_ms = 1000};
        return;
    case IDEM_OP_LIST:
        job->base.copy.in.list.max = 3;
        return;
    case IDEM_OP_FORGET:
        job->base.copy.in.forget.force = scripted;
        job->scripted = false;
        return;
    default:
        return;
    }
}

static volatile unsigned seen;

static void look_at(struct idem_bytes bytes) {
    for (size_t i = 0; i < bytes.len; i++)
        seen += bytes.at[i];
}

static void record_look(const struct idem_record *record) {
    look_at(record->result);
    look_at(record->reason);
    look_at(record->label);
}

static void job_check(const struct redis_job *job, int rc) {
    const struct idem_op *op = &job->base.copy;

    assert(rc <= 0 && rc >= IDEM_E_SETTLED);
    if (rc != 0) {
        assert(op->error.code == rc && op->error.text[0] != '\0');
        return;
    }
    if (op->kind == IDEM_OP_CLAIM) {
        assert(op->out.claim.verdict >= IDEM_RUN && op->out.claim.verdict <= IDEM_PROBE);
        assert(op->out.claim.left_ms >= 0);
        record_look(&op->out.claim.record);
    }
    if (op->kind == IDEM_OP_FINISH)
        assert(op->out.finish.ack == IDEM_ACK || op->out.finish.ack == IDEM_LOST);
    if (op->kind == IDEM_OP_LOOKUP)
        record_look(&op->out.lookup.record);
    if (op->kind == IDEM_OP_LIST)
        assert(op->out.list.n <= op->in.list.max);
}

/* As in redis_op.c; true when the operation is done. */
static bool job_feed(struct redis_job *job, struct redis_reply *reply) {
    const struct redis_reply *told = reply;
    bool done = false;
    int rc;

    job->base.responses_due--;
    if (job->scan == NULL && job->replies == 2 && job->first == NULL) {
        job->first = reply;
        return false;
    }
    if (job->first != NULL && job->first->type == REDIS_REPLY_ERROR)
        told = job->first;
    rc = redis_job_take(job, told);
    switch (rc) {
    case REDIS_MORE:
        assert(job->base.responses_due > 0);
        break;
    case REDIS_AGAIN:
        if (job->base.responses_due > 0) /* the other replies come first */
            break;
        if (job->command.len == 0 && !redis_job_write(job))
            abort();
        assert(job->command.len > 0 && job->replies > 0);
        redis_reply_free(job->first);
        job->first = NULL;
        job->base.responses_due = job->replies;
        break;
    case REDIS_STUCK:
        assert(job->scan != NULL && redis_scan_obstacle(job) != NULL);
        done = true;
        break;
    default:
        job_check(job, rc);
        done = true;
        break;
    }
    redis_reply_free(reply);
    return done;
}

static void job_run(struct redis_job *job, const struct idem_buffer *bytes) {
    struct redis_reader *reader = redis_reader_new();
    struct redis_reply *reply = NULL;

    assert(reader != NULL);
    if (!redis_job_write(job))
        abort();
    job->base.responses_due = job->replies;
    if (bytes->len > 0)
        (void)redis_reader_feed(reader, bytes->at, bytes->len);
    for (int i = 0; i < TURNS_MAX; i++)
        if (!redis_reader_next(reader, &reply) || reply == NULL || job_feed(job, reply))
            break;
    redis_reader_free(reader);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct redis_job job;
    struct recipe recipe = {.at = data + 1, .end = data + size};

    if (size < 1)
        return 0;
    if (store.scripts.text[0] == NULL && redis_scripts_make("PUBLISH", &store.scripts, NULL) != 0)
        abort();
    if ((data[0] & 0x80) != 0) {
        idem_buffer_put(&recipe.out, data + 1, size - 1);
    } else {
        while (recipe.at < recipe.end && recipe.out.len <= TEXT_MAX)
            put_reply(&recipe, 0);
    }
    job_fill(&job, (enum idem_op_kind)(data[0] % 16 % IDEM_OP__COMMON), (data[0] & 0x40) != 0);
    job_run(&job, &recipe.out);
    idem_buffer_release(&job.command);
    idem_buffer_release(&recipe.out);
    redis_reply_free(job.first);
    redis_scan_free(job.scan);
    redis_pages_free(&store);
    memset(store.pages, 0, sizeof(store.pages));
    return 0;
}
