/*
 * Fails every allocation in turn, in claims on the caller's own loop. Every
 * callback comes, with a code if there was no memory, and nothing is leaked.
 */
#include "../wait.h"
#include "alloc_each.h"
#include "host.h"
#include "idem.h"
#include "temp.h"
#include "test.h"

static const struct idem_policy policy = {
    .name = "pay",
    .prefix = "pay:",
    .scope = IDEM_SCOPE_NONE,
    .mode = IDEM_MODE_REPLAY,
    .lease_ms = 60000,
    .finish_timeout_ms = 60,
};

static struct idem_guard *guard;
static const char *open_options;
static unsigned serial; /* names a new key */
static char key_now[32];

static struct {
    struct host host;
    struct idem *h;
    struct idem_claim *claim;
    bool answered, finished, granted;
    int rc;
    struct idem_error err;
} on;

static void on_ready(void *sink, int fd, int events) {
    (void)sink;
    idem_ready(on.h, fd, events);
}

static void on_timeout(void *sink) {
    (void)sink;
    idem_timeout(on.h);
}

static void on_answer(struct idem_claim *claim, int rc, const struct idem_answer *answer,
                      const struct idem_error *err, void *data) {
    (void)claim;
    (void)data;
    on.answered = true;
    on.rc = rc;
    on.granted = rc == 0 && answer->verdict == IDEM_RUN;
    if (rc != 0)
        on.err = *err;
}

static void on_finish(struct idem_claim *claim, int rc, bool lost, const struct idem_error *err,
                      void *data) {
    (void)claim;
    (void)data;
    CHECK(!lost);
    on.finished = true;
    on.rc = rc;
    if (rc != 0)
        on.err = *err;
}

/* Every callback comes; if there is no memory, with a code. */
static void on_turn_until(const bool *flag) {
    int64_t end = wait_now_ms() + WAIT_LIMIT_S * 1000;

    while (!*flag) {
        CHECK(wait_now_ms() < end);
        CHECK(host_turn(&on.host, 1000) == 0);
    }
}

static unsigned on_said;

static int on_say(void) {
    switch (on_said) {
    case 0:
        return idem_claim_done(on.claim, 200, "result", 6, on_finish, NULL);
    case 1:
        return idem_claim_fail(on.claim, 500, "why", "result", 6, false, on_finish, NULL);
    case 2:
        return idem_claim_release(on.claim, on_finish, NULL);
    default:
        return idem_claim_unknown(on.claim, "why", on_finish, NULL);
    }
}

static int on_claim_and_finish(struct idem_error *err) {
    struct idem_args args = {.key = key_now};
    int rc;

    args.key_len = (size_t)snprintf(key_now, sizeof(key_now), "on %u", serial++);
    rc = idem_claim_new(on.h, guard, &args, on_answer, NULL, &on.claim, err);
    if (rc != 0)
        return rc;
    on_turn_until(&on.answered);
    if (!on.granted) {
        CHECK(on.rc != 0);
        *err = on.err;
        return on.rc;
    }
    on.finished = false;
    rc = idem_claim_renew(on.claim, on_finish, NULL);
    if (rc == 0)
        on_turn_until(&on.finished);
    on.finished = false;
    on.rc = 0;
    rc = on_say();
    if (rc != 0) {
        err->code = rc; /* these functions have no place for an error text */
        memcpy(err->text, "finish", 7);
        return rc;
    }
    on_turn_until(&on.finished);
    if (on.rc != 0)
        *err = on.err;
    return on.rc;
}

static int on_all(struct idem_error *err) {
    struct idem_host calls;
    int rc;

    memset(&on, 0, sizeof(on));
    CHECK(host_init(&on.host, HOST_EDGE) == 0);
    host_sink(&on.host, on_ready, on_timeout, NULL);
    calls = host_calls(&on.host);
    rc = idem_open_on(temp_url("store", open_options), NULL, &calls, &on.h, err);
    if (rc == 0)
        rc = on_claim_and_finish(err);
    idem_claim_free(on.claim);
    idem_close(on.h);
    host_release(&on.host);
    return rc;
}

/* The handle is freed while the response is on its way: the record is released after it. */
static int on_give_up(struct idem_error *err) {
    struct idem_args args = {.key = key_now};
    struct idem_host calls;
    int rc;

    memset(&on, 0, sizeof(on));
    CHECK(host_init(&on.host, HOST_POLL) == 0);
    host_sink(&on.host, on_ready, on_timeout, NULL);
    calls = host_calls(&on.host);
    args.key_len = (size_t)snprintf(key_now, sizeof(key_now), "given up %u", serial++);
    rc = idem_open_on(temp_url("store", open_options), NULL, &calls, &on.h, err);
    if (rc == 0)
        rc = idem_claim_new(on.h, guard, &args, on_answer, NULL, &on.claim, err);
    if (rc == 0) {
        CHECK(host_turn(&on.host, 0) == 0);
        idem_claim_free(on.claim);
        CHECK(host_turn(&on.host, 0) == 0);
    }
    idem_close(on.h);
    host_release(&on.host);
    return rc;
}

static void claims_fail(const char *options) {
    open_options = options;
    CHECK(idem_guard_new(NULL, &policy, &guard, NULL) == 0);
    alloc_fail_each_both(on_give_up, 5);
    for (on_said = 0; on_said < 4; on_said++)
        alloc_fail_each_both(on_all, 5);
    idem_guard_free(guard);
}

TEST(a_claim_on_a_loop_is_answered_or_there_is_no_memory_under_sync_off) {
    claims_fail("sync=off");
}

TEST(a_claim_on_a_loop_is_answered_or_there_is_no_memory_under_sync_always) {
    claims_fail("sync=always");
}

TEST_MAIN
