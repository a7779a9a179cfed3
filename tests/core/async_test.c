/*
 * Claims on the caller's own loop, level- and edge-triggered: callbacks come
 * from the loop only, once, and never after the claim or the handle is gone.
 */
#include <sys/epoll.h>
#include <time.h>

#include "idem.h"
#include "loop_clock.h"
#include "temp.h"
#include "test.h"
#include "wait.h"

/* A host on epoll. Edge-triggered where asked for. */
struct host {
    int epoll;
    bool edge;
    int64_t deadline; /* ms; -1: none */
    struct idem *h;
};

static int64_t now_ms(void) {
    struct timespec ts;

    clock_gettime(CLOCK_BOOTTIME, &ts); /* loop_clock.h */
    return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

static int host_watch(void *data, int fd, int events) {
    struct host *host = data;
    struct epoll_event event = {.data.fd = fd};

    event.events =
        (uint32_t)((events & IDEM_READ ? EPOLLIN : 0) | (events & IDEM_WRITE ? EPOLLOUT : 0)) |
        (host->edge ? (uint32_t)EPOLLET : 0);
    if (events == 0)
        return epoll_ctl(host->epoll, EPOLL_CTL_DEL, fd, NULL);
    if (epoll_ctl(host->epoll, EPOLL_CTL_ADD, fd, &event) == 0)
        return 0;
    return epoll_ctl(host->epoll, EPOLL_CTL_MOD, fd, &event);
}

static void host_timer(void *data, int64_t ms) {
    struct host *host = data;

    host->deadline = ms < 0 ? -1 : now_ms() + ms;
}

static void host_open(struct host *host, const char *options, bool edge) {
    struct idem_host hooks = {.data = host, .watch = host_watch, .timer = host_timer};
    struct idem_error err = {0};

    *host = (struct host){.epoll = epoll_create1(EPOLL_CLOEXEC), .edge = edge, .deadline = -1};
    if (idem_open_on(temp_url("store", options), NULL, &hooks, &host->h, &err) < 0) {
        fprintf(stderr, "# %s\n", err.text);
        exit(1);
    }
}

static void host_turn(struct host *host, int max_ms) {
    struct epoll_event events[8];
    int64_t left = host->deadline < 0 ? max_ms : host->deadline - now_ms();
    int n = epoll_wait(host->epoll, events, 8, left < 0 ? 0 : left < max_ms ? (int)left : max_ms);

    for (int i = 0; i < n && host->h != NULL; i++)
        idem_ready(host->h, events[i].data.fd, IDEM_READ);
    if (host->h != NULL && host->deadline >= 0 && now_ms() >= host->deadline) {
        host->deadline = -1;
        idem_timeout(host->h);
    }
}

static void host_close(struct host *host) {
    struct idem *h = host->h;

    host->h = NULL;
    idem_close(h);
    close(host->epoll);
}

/* The events that a claim's callbacks receive. */
struct seen {
    int answers, finishes, lost;
    int rc;
    enum idem_verdict verdict;
    bool late;
    char result[64];
    bool free_inside, close_inside;
    struct host *host;
};

static void on_answer(struct idem_claim *claim, int rc, const struct idem_answer *answer,
                      const struct idem_error *err, void *data) {
    struct seen *seen = data;

    (void)err;
    seen->answers++;
    seen->rc = rc;
    if (rc == 0) {
        seen->verdict = answer->verdict;
        if (answer->has_result)
            snprintf(seen->result, sizeof(seen->result), "%.*s", (int)answer->result_len,
                     (const char *)answer->result);
    }
    if (seen->close_inside) {
        struct idem *h = seen->host->h;

        seen->host->h = NULL;
        idem_close(h);
    }
    if (seen->free_inside)
        idem_claim_free(claim);
}

static void on_finish(struct idem_claim *claim, int rc, bool lost, const struct idem_error *err,
                      void *data) {
    struct seen *seen = data;

    (void)err;
    seen->finishes++;
    seen->rc = rc;
    seen->late = lost;
    if (seen->free_inside)
        idem_claim_free(claim);
}

static void on_lost(struct idem_claim *claim, enum idem_end why, void *data) {
    (void)claim;
    CHECK_INT(why, IDEM_END_LEASE);
    ((struct seen *)data)->lost++;
}

static struct idem_guard *guard_of(struct host *host, struct idem_policy policy) {
    struct idem_guard *guard;

    policy.prefix = "t:";
    policy.scope = IDEM_SCOPE_NONE;
    CHECK_INT(idem_guard_new(host->h, &policy, &guard, NULL), 0);
    return guard;
}

static struct idem_claim *ask(struct host *host, const struct idem_guard *guard, const char *key,
                              struct seen *seen) {
    struct idem_args args = {.key = key, .key_len = strlen(key)};
    struct idem_claim *claim;

    seen->host = host;
    CHECK_INT(idem_claim_new(host->h, guard, &args, on_answer, seen, &claim, NULL), 0);
    CHECK_INT(seen->answers, 0); /* never inside the call */
    return claim;
}

static void turn_until(struct host *host, const int *count, int want) {
    WAIT_UNTIL((host_turn(host, 10), *count >= want || host->h == NULL));
    CHECK_INT(*count, want);
}

static void claim_and_done(const char *options, bool edge) {
    struct host host;
    struct idem_guard *guard;
    struct seen seen = {0}, again = {0};
    struct idem_claim *claim;

    host_open(&host, options, edge);
    guard = guard_of(&host, (struct idem_policy){0});
    claim = ask(&host, guard, "k", &seen);
    turn_until(&host, &seen.answers, 1);
    CHECK_INT(seen.verdict, IDEM_RUN);
    CHECK_INT(idem_claim_done(claim, 200, "body", 4, on_finish, &seen), 0);
    CHECK_INT(seen.finishes, 0);
    CHECK_INT(idem_claim_done(claim, 200, "body", 4, on_finish, &seen), IDEM_E_INVALID);
    turn_until(&host, &seen.finishes, 1);
    CHECK(!seen.late && seen.rc == 0);
    idem_claim_free(claim);
    claim = ask(&host, guard, "k", &again);
    turn_until(&host, &again.answers, 1);
    CHECK_INT(again.verdict, IDEM_REPLAY);
    CHECK_STR(again.result, "body");
    idem_claim_free(claim);
    host_turn(&host, 20);
    CHECK_INT(seen.answers + seen.finishes + again.answers, 3);
    idem_guard_free(guard);
    host_close(&host);
}

TEST(a_claim_works_on_a_level_triggered_loop) {
    claim_and_done("sync=off", false);
}

TEST(a_claim_works_on_an_edge_triggered_loop) {
    claim_and_done("sync=off", true);
}

TEST(a_claim_works_with_the_writer_thread_on_either_loop) {
    claim_and_done("sync=always", false);
}

TEST(a_claim_works_with_the_writer_thread_on_an_edge_triggered_loop) {
    claim_and_done("sync=always", true);
}

TEST(a_claim_may_be_freed_inside_its_call_back) {
    struct host host;
    struct idem_guard *guard;
    struct seen seen = {.free_inside = true};

    host_open(&host, "sync=always", false);
    guard = guard_of(&host, (struct idem_policy){0});
    ask(&host, guard, "k", &seen);
    turn_until(&host, &seen.answers, 1);
    idem_guard_free(guard);
    host_close(&host);
}

TEST(a_handle_may_be_closed_inside_a_call_back) {
    struct host host;
    struct idem_guard *guard;
    struct seen seen = {.close_inside = true}, other = {0};
    struct idem_claim *a, *b;

    host_open(&host, "sync=off", false);
    guard = guard_of(&host, (struct idem_policy){0});
    a = ask(&host, guard, "a", &seen);
    b = ask(&host, guard, "b", &other);
    while (host.h != NULL)
        host_turn(&host, 20);
    CHECK_INT(seen.answers, 1);
    CHECK_INT(other.answers, 0); /* nothing after close */
    CHECK_INT(idem_claim_done(a, 0, NULL, 0, NULL, NULL), IDEM_E_INVALID);
    idem_claim_free(a);
    idem_claim_free(b);
    idem_guard_free(guard);
    close(host.epoll);
}

TEST(a_claim_given_up_is_released_in_the_background) {
    struct host host;
    struct idem_guard *guard;
    struct seen seen = {0}, next = {0};
    struct idem_claim *claim;

    host_open(&host, "sync=always", false);
    guard = guard_of(&host, (struct idem_policy){0});
    claim = ask(&host, guard, "k", &seen);
    host_turn(&host, 0); /* it is on its way now */
    idem_claim_free(claim);
    for (int i = 0; i < 10; i++)
        host_turn(&host, 20);
    CHECK_INT(seen.answers, 0);
    claim = ask(&host, guard, "k", &next);
    turn_until(&host, &next.answers, 1);
    CHECK_INT(next.verdict, IDEM_RUN);
    idem_claim_free(claim);
    idem_guard_free(guard);
    host_close(&host);
}

/* Closes after so many ms, in which the writer goes on and the loop does not. */
static void close_while_asking(useconds_t ms) {
    struct host host;
    struct idem_guard *guard;
    struct seen seen = {0}, next = {0};
    struct idem_claim *claim;

    host_open(&host, "sync=always", false);
    guard = guard_of(&host, (struct idem_policy){0});
    claim = ask(&host, guard, "k", &seen);
    host_turn(&host, 0);
    host_turn(&host, 0);
    usleep(1000 * ms); /* sleep: any moment will do */
    host_close(&host);
    CHECK_INT(seen.answers, 0);
    idem_claim_free(claim);
    host_open(&host, "sync=always", false);
    claim = ask(&host, guard, "k", &next);
    turn_until(&host, &next.answers, 1);
    CHECK_INT(next.verdict, IDEM_RUN);
    idem_claim_free(claim);
    idem_guard_free(guard);
    host_close(&host);
}

TEST(a_claim_given_up_by_closing_is_released_too) {
    close_while_asking(0);
}

TEST(a_claim_that_was_granted_when_the_handle_is_closed_is_released) {
    close_while_asking(50);
}

TEST(a_finish_that_was_sent_is_stored_though_the_handle_is_closed) {
    struct host host;
    struct idem_guard *guard;
    struct seen seen = {0}, next = {0};
    struct idem_claim *claim;

    host_open(&host, "sync=always", false);
    guard = guard_of(&host, (struct idem_policy){0});
    claim = ask(&host, guard, "k", &seen);
    turn_until(&host, &seen.answers, 1);
    CHECK_INT(idem_claim_done(claim, 0, "r", 1, on_finish, &seen), 0);
    host_turn(&host, 0); /* it is sent */
    host_close(&host);
    CHECK_INT(seen.finishes, 0);
    idem_claim_free(claim);
    host_open(&host, "sync=always", false);
    claim = ask(&host, guard, "k", &next);
    turn_until(&host, &next.answers, 1);
    CHECK_INT(next.verdict, IDEM_REPLAY);
    idem_claim_free(claim);
    idem_guard_free(guard);
    host_close(&host);
}

TEST(a_stalled_owner_under_rerun_is_told_once_and_changes_nothing) {
    struct host host;
    struct idem_guard *guard;
    struct seen old = {0}, new = {0};
    struct idem_claim *first, *second;

    host_open(&host, "sync=off", false);
    guard = guard_of(&host, (struct idem_policy){.lease_ms = 60000, .recover = IDEM_RECOVER_RERUN});
    first = ask(&host, guard, "k", &old);
    idem_claim_on_lost(first, on_lost, &old);
    turn_until(&host, &old.answers, 1);
    loop_clock_forward(61000); /* nothing is renewed: the lease is over */
    host_turn(&host, 0);
    turn_until(&host, &old.lost, 1);
    second = ask(&host, guard, "k", &new);
    turn_until(&host, &new.answers, 1);
    CHECK_INT(new.verdict, IDEM_RUN);
    CHECK_INT(idem_claim_done(first, 1, "late", 4, on_finish, &old), 0);
    turn_until(&host, &old.finishes, 1);
    CHECK(old.late);
    CHECK_INT(idem_claim_done(second, 2, "good", 4, on_finish, &new), 0);
    turn_until(&host, &new.finishes, 1);
    CHECK(!new.late);
    CHECK_INT(old.lost, 1);
    idem_claim_free(first);
    idem_claim_free(second);
    idem_guard_free(guard);
    host_close(&host);
}

TEST(a_stalled_owner_under_hold_may_still_finish) {
    struct host host;
    struct idem_guard *guard;
    struct seen old = {0}, new = {0};
    struct idem_claim *first, *second;

    host_open(&host, "sync=off", false);
    guard = guard_of(&host, (struct idem_policy){.lease_ms = 60000});
    first = ask(&host, guard, "k", &old);
    idem_claim_on_lost(first, on_lost, &old);
    turn_until(&host, &old.answers, 1);
    loop_clock_forward(61000);
    CHECK_INT(idem_claim_done(first, 1, "late", 4, on_finish, &old), 0);
    turn_until(&host, &old.finishes, 1);
    CHECK(!old.late);
    CHECK_INT(old.lost, 0);
    second = ask(&host, guard, "k", &new);
    turn_until(&host, &new.answers, 1);
    CHECK_INT(new.verdict, IDEM_REPLAY);
    idem_claim_free(first);
    idem_claim_free(second);
    idem_guard_free(guard);
    host_close(&host);
}

TEST(a_renewal_can_be_asked_for) {
    struct host host;
    struct idem_guard *guard;
    struct seen seen = {0};
    struct idem_claim *claim;

    host_open(&host, "sync=always", false);
    guard = guard_of(&host, (struct idem_policy){0});
    claim = ask(&host, guard, "k", &seen);
    CHECK_INT(idem_claim_renew(claim, on_finish, &seen), IDEM_E_INVALID); /* not running yet */
    turn_until(&host, &seen.answers, 1);
    CHECK_INT(idem_claim_renew(claim, on_finish, &seen), 0);
    turn_until(&host, &seen.finishes, 1);
    CHECK(!seen.late && seen.rc == 0);
    idem_claim_free(claim);
    idem_guard_free(guard);
    host_close(&host);
}

TEST(a_parked_claim_is_woken_by_the_finish) {
    struct host host;
    struct idem_guard *guard, *waits;
    struct seen run = {0}, wait = {0};
    struct idem_claim *first, *second;

    host_open(&host, "sync=off", true);
    guard = guard_of(&host, (struct idem_policy){0});
    waits = guard_of(&host, (struct idem_policy){.wait_ms = 120000});
    first = ask(&host, guard, "k", &run);
    turn_until(&host, &run.answers, 1);
    second = ask(&host, waits, "k", &wait);
    for (int i = 0; i < 300; i++) { /* until its slow poll is 2 s apart */
        loop_clock_forward(10);
        host_turn(&host, 1);
    }
    loop_clock_stop(); /* it is not by time that it is woken */
    CHECK_INT(wait.answers, 0);
    CHECK_INT(idem_claim_done(first, 0, "r", 1, on_finish, &run), 0);
    turn_until(&host, &wait.answers, 1);
    CHECK_INT(wait.verdict, IDEM_REPLAY);
    idem_claim_free(first);
    idem_claim_free(second);
    idem_guard_free(guard);
    idem_guard_free(waits);
    host_close(&host);
}

TEST(a_handle_on_a_loop_has_no_blocking_calls) {
    struct host host;
    struct idem_error err;
    int64_t ms;

    host_open(&host, "sync=off", false);
    CHECK_INT(idem_time(host.h, &ms, &err), IDEM_E_INVALID);
    CHECK_HAS(err.text, "idem_open()");
    host_close(&host);
}

TEST_MAIN
