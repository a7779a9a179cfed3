/*
 * Connections and calls. A fault here ends the test with its line. The
 * functions return only the store's own codes.
 */
#include "conn.h"

#include <ftw.h>
#include <sys/mman.h>

#include "../loop_clock.h"
#include "protocol/record_key.h"

static int64_t clock_lease(void *data) {
    return ((struct shared_clock *)data)->lease;
}

static int64_t clock_wall(void *data) {
    return ((struct shared_clock *)data)->wall;
}

struct shared_clock *clock_share(int *ret_fd) {
    struct shared_clock *clock;
    int fd = memfd_create("idem-clock", MFD_CLOEXEC);

    CHECK(fd >= 0 && ftruncate(fd, sizeof(*clock)) == 0);
    clock = mmap(NULL, sizeof(*clock), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(clock != MAP_FAILED);
    if (ret_fd != NULL)
        *ret_fd = fd;
    else
        close(fd);
    clock_reset(clock);
    return clock;
}

void clock_reset(struct shared_clock *clock) {
    clock->lease = 5000000;
    clock->wall = 1700000000000;
}

struct idem_clock clock_calls(struct shared_clock *clock) {
    return (struct idem_clock){.lease = clock_lease, .wall = clock_wall, .data = clock};
}

struct kept {
    struct kept *next;
    max_align_t bytes[];
};
static _Thread_local struct kept *kept_all;

void *keep(const void *bytes, size_t len) {
    struct kept *kept = malloc(sizeof(*kept) + len + 1);

    CHECK(kept != NULL);
    kept->next = kept_all;
    kept_all = kept;
    if (len != 0)
        memcpy(kept->bytes, bytes, len);
    ((unsigned char *)kept->bytes)[len] = '\0';
    return kept->bytes;
}

void keep_reset(void) {
    while (kept_all != NULL) {
        struct kept *next = kept_all->next;

        free(kept_all);
        kept_all = next;
    }
}

struct idem_bytes bytes_of(const char *text) {
    return (struct idem_bytes){(const unsigned char *)text, text == NULL ? 0 : strlen(text)};
}

static struct idem_bytes bytes_keep(struct idem_bytes bytes) {
    CHECK(bytes.len == 0 || bytes.at != NULL);
    return (struct idem_bytes){keep(bytes.at, bytes.len), bytes.len};
}

struct idem_record record_keep(const struct idem_record *record) {
    struct idem_record copy = *record;

    copy.result = bytes_keep(record->result);
    copy.reason = bytes_keep(record->reason);
    copy.label = bytes_keep(record->label);
    return copy;
}

/* A server has five seconds to respond by default, which a busy machine exceeds. So a test that
 * sets no timeout gets a longer one. A directory has no such option. */
static const char *url_patient(const char *url, char *out, size_t size) {
    bool folder = strncmp(url, "lmdb:", 5) == 0;
    bool connects = strstr(url, "connect_timeout=") != NULL;
    bool answers = strstr(url, "?timeout=") != NULL || strstr(url, "&timeout=") != NULL;
    const char *options = strchr(url, '?');
    int n = snprintf(out, size, "%s%s%s%s%s", url,
                     options == NULL      ? "?"
                     : options[1] == '\0' ? ""
                                          : "&",
                     connects ? "" : "connect_timeout=100s", connects || answers ? "" : "&",
                     answers ? "" : "timeout=100s");

    CHECK(n < (int)size);
    return folder || (connects && answers) ? url : out;
}

int conn_try(struct conn *conn, const char *url, enum host_kind kind,
             const struct idem_clock *clock, struct idem_error *err) {
    struct idem_host calls;
    char patient[2200];
    int rc;

    *conn = (struct conn){.store = NULL};
    CHECK(host_init(&conn->host, kind) == 0);
    host_sink_loop(&conn->host, &conn->loop);
    calls = host_calls(&conn->host);
    idem_loop_init(&conn->loop, &calls);
    rc = idem_store_open(url_patient(url, patient, sizeof(patient)), &conn->loop, clock,
                         &conn->store, err);
    if (rc < 0) {
        CHECK(conn->store == NULL);
        CHECK_INT(err->code, rc);
        CHECK(err->text[0] != '\0');
        idem_loop_stop(&conn->loop);
        host_release(&conn->host);
    }
    conn->open = rc == 0;
    return rc;
}

void conn_open(struct conn *conn, const char *url, enum host_kind kind,
               const struct idem_clock *clock) {
    struct idem_error err = {0};

    if (conn_try(conn, url, kind, clock, &err) < 0) {
        fprintf(stderr, "# cannot open %s: %s\n", url, err.text);
        exit(1);
    }
    CHECK(conn->store != NULL);
    CHECK(conn->store->loop == &conn->loop);
}

void conn_close_store(struct conn *conn) {
    struct idem_store *store = conn->store;

    conn->store = NULL;
    idem_store_close(store);
    CHECK(conn->loop.fds == NULL);
    CHECK(conn->loop.timers == NULL);
}

void conn_close(struct conn *conn) {
    if (!conn->open)
        return;
    conn->open = false;
    conn_close_store(conn);
    idem_loop_stop(&conn->loop);
    host_release(&conn->host);
}

void conn_turn(struct conn *conn, int64_t max_ms) {
    CHECK(host_turn(&conn->host, max_ms) == 0);
}

void conn_pass(struct conn *conn, int64_t ms) {
    for (int64_t passed = 0; passed < ms; passed += 10) {
        loop_clock_forward(10);
        conn_turn(conn, 1);
    }
}

void conn_turn_slowly(struct conn *conn, int64_t *left) {
    conn_turn(conn, 5);
    *left -= 5;
    loop_clock_forward(*left > 0 ? 5 : *left % 10 == 0 ? 1 : 0);
}

void conn_idle(struct conn *conn, int64_t ms) {
    int64_t end = idem_loop_now() + ms, left;

    while ((left = end - idem_loop_now()) > 0)
        conn_turn(conn, left);
}

void call_init(struct call *call, struct conn *conn, enum idem_op_kind kind,
               const struct idem_record_key *key) {
    *call = (struct call){.op.kind = kind, .conn = conn};
    if (key != NULL)
        call->op.key = *key;
}

/* Copies the memory that is lent to a callback, so that a test can look at it later. */
static void call_take(struct call *call) {
    struct idem_op *op = &call->op;

    if (op->kind == IDEM_OP_CLAIM)
        call->record = record_keep(&op->out.claim.record);
    if (op->kind == IDEM_OP_LOOKUP)
        call->record = record_keep(&op->out.lookup.record);
    if (op->kind == IDEM_OP_LIST)
        call->entries = keep(op->out.list.entries, op->out.list.n * sizeof(struct idem_entry));
    if (op->kind == IDEM_OP_TX)
        op->out.tx.result.at = keep(op->out.tx.result.at, op->out.tx.result.len);
}

static void call_complete(struct idem_op *op, int rc) {
    struct call *call = op->data;

    CHECK(!call->submitting);
    CHECK(call->conn->store != NULL); /* not after close */
    CHECK(op == &call->op);
    CHECK(op->driver == NULL);
    CHECK_INT(++call->completed, 1);
    call->rc = rc;
    if (rc == 0) {
        call_take(call);
    } else {
        CHECK_INT(op->error.code, rc);
        CHECK(op->error.text[0] != '\0');
    }
    if (call->then != NULL)
        call->then(call);
}

int call_submit(struct call *call) {
    struct idem_bytes *inputs[IDEM_OP_STRINGS];
    unsigned char *lent[2] = {NULL, NULL};
    size_t n = idem_op_strings(&call->op, inputs);

    for (size_t i = 0; i < n; i++) {
        size_t len = inputs[i]->len;

        if (len == 0)
            continue;
        lent[i] = malloc(len);
        CHECK(lent[i] != NULL);
        memcpy(lent[i], inputs[i]->at, len);
        inputs[i]->at = lent[i];
    }
    call->op.complete = call_complete;
    call->op.data = call;
    call->completed = 0;
    call->submitting = true;
    call->rc = idem_store_submit(call->conn->store, &call->op);
    call->submitting = false;
    for (size_t i = 0; i < n; i++) {
        if (lent[i] != NULL)
            memset(lent[i], 0xa5, inputs[i]->len);
        free(lent[i]);
    }
    memset(&call->op.in, 0xa5, sizeof(call->op.in));
    memset(&call->op.key, 0xa5, sizeof(call->op.key));
    CHECK_INT(call->completed, 0);
    if (call->rc < 0)
        CHECK(call->op.error.text[0] != '\0');
    return call->rc;
}

int call_wait(struct call *call) {
    TURN_UNTIL(call->conn, call->completed > 0);
    return call->rc;
}

int call_run(struct call *call) {
    return call_submit(call) < 0 ? call->rc : call_wait(call);
}

struct idem_record_key key_in(const char *prefix, const char *name) {
    struct idem_record_key key;

    CHECK(idem_record_key_make(&key, IDEM_NAME_RECORD, bytes_of(prefix), (struct idem_bytes){0},
                               bytes_of(name)) == 0);
    return key;
}

void folder_make(char *path, size_t size) {
    const char *base = getenv("TMPDIR");

    if (base == NULL || base[0] == '\0')
        base = "/tmp";
    CHECK(snprintf(path, size, "%s/idem-test-XXXXXX", base) < (int)size);
    CHECK(mkdtemp(path) != NULL);
}

static int folder_entry(const char *path, const struct stat *st, int type, struct FTW *at) {
    (void)st;
    (void)type;
    (void)at;
    return remove(path);
}

void folder_remove(const char *path) {
    (void)nftw(path, folder_entry, 16, FTW_DEPTH | FTW_PHYS);
}
