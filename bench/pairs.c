/*
 * claim+done pairs through the library, in one process with this many callers
 * in flight, each of which begins its next pair when the last has ended.
 */
#include "pairs.h"

#include <err.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

struct caller {
    struct pairs *pairs;
    struct idem_claim *claim;
    double sent;
};

double now_s(void) {
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static void begin(struct caller *caller);

static void on_done(struct idem_claim *claim, int rc, bool lost, const struct idem_error *error,
                    void *data) {
    struct caller *caller = data;

    (void)claim;
    if (rc < 0 || lost)
        errx(1, "done: %s", rc < 0 ? error->text : "lost");
    idem_claim_free(caller->claim);
    caller->pairs->ended++;
    if (caller->pairs->begun < caller->pairs->number)
        begin(caller);
}

static void on_claim(struct idem_claim *claim, int rc, const struct idem_answer *answer,
                     const struct idem_error *error, void *data) {
    static const char result[PAIRS_RESULT_LEN] = "receipt";
    struct caller *caller = data;

    if (rc < 0 || answer->verdict != IDEM_RUN)
        errx(1, "claim: %s", rc < 0 ? error->text : idem_verdict_name(answer->verdict));
    if (caller->pairs->claimed != NULL)
        caller->pairs->claimed(caller->pairs, now_s() - caller->sent);
    if (idem_claim_done(claim, 201, result, sizeof(result), on_done, caller) < 0)
        errx(1, "done");
}

static void begin(struct caller *caller) {
    static const char fingerprint[] = "POST /orders {\"id\":4711,\"amount\":42}";
    static long serial; /* no key is used twice, in this run or another */
    struct pairs *pairs = caller->pairs;
    struct idem_error error;
    char key[64];
    struct idem_args args = {
        .key = key, .fingerprint = fingerprint, .fingerprint_len = sizeof(fingerprint) - 1};

    pairs->begun++;
    args.key_len =
        (size_t)snprintf(key, sizeof(key), "%d-%ld-%ld", getpid(), (long)time(NULL), serial++);
    caller->sent = now_s();
    if (idem_claim_new(pairs->h, pairs->guard, &args, on_claim, caller, &caller->claim, &error) < 0)
        errx(1, "%s", error.text);
}

static void ready(void *sink, int fd, int events) {
    idem_ready(sink, fd, events);
}

static void timeout(void *sink) {
    idem_timeout(sink);
}

double pairs_run(struct pairs *pairs, unsigned callers, long number) {
    struct caller *all = calloc(callers, sizeof(*all));
    double from = now_s();

    pairs->begun = pairs->ended = 0;
    pairs->number = number;
    for (unsigned i = 0; i < callers; i++) {
        all[i].pairs = pairs;
        begin(&all[i]);
    }
    while (pairs->ended < pairs->number)
        idem_poll_turn(&pairs->poll, NULL, 0, 1000);
    free(all);
    return now_s() - from;
}

void pairs_open(struct pairs *pairs, const char *url) {
    static const struct idem_policy policy = {
        .prefix = "order:", .scope = IDEM_SCOPE_NONE, .ttl_s = 86400};
    struct idem_host host;
    struct idem_error error;

    idem_poll_init(&pairs->poll);
    host = idem_poll_host(&pairs->poll);
    if (idem_open_on(url, NULL, &host, &pairs->h, &error) < 0 ||
        idem_guard_new(pairs->h, &policy, &pairs->guard, &error) < 0)
        errx(1, "%s", error.text);
    pairs->poll.ready = ready;
    pairs->poll.timeout = timeout;
    pairs->poll.sink = pairs->h;
    pairs_run(pairs, 1, 100); /* so that it is connected, and warm */
}

void pairs_close(struct pairs *pairs) {
    idem_guard_free(pairs->guard);
    idem_close(pairs->h);
    idem_poll_release(&pairs->poll);
}
