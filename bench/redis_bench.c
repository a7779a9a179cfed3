/*
 * claim+done pairs on Redis, of one process with so many callers in flight, each
 * beginning its next pair when the last has ended; and the time of one claim
 * alone. redis-benchmark, on the same server, is what bench/run compares with.
 *
 *     bench-redis URL pairs CALLERS PAIRS       pairs per second
 *     bench-redis URL latency CLAIMS            microseconds of a claim and of a plain SET, each in
 *                                               turn: medians, and their ratio
 *     bench-redis URL fill RECORDS              finished records of 200 bytes
 */
#include <arpa/inet.h>
#include <err.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "idem.h"
#include "loop/poll.h"

#define RESULT_LEN 200

struct bench {
    struct idem_poll poll;
    struct idem *h;
    struct idem_guard *guard;
    long begun, ended, pairs;
    double *times, *plain; /* latency */
    int fd;                /* of the plain SETs */
};

struct caller {
    struct bench *bench;
    struct idem_claim *claim;
    double sent;
};

static double now_s(void) {
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static void begin(struct caller *caller);

/* The same wait as the claim's: poll(2), then read(2). */
static double set_plain(struct bench *bench) {
    char command[512], answer[64];
    struct pollfd fd = {.fd = bench->fd, .events = POLLIN};
    double from;
    int len = snprintf(command, sizeof(command),
                       "*5\r\n$3\r\nSET\r\n$71\r\nplain:%065ld\r\n$200\r\n%0200d\r\n$2\r\nPX\r\n"
                       "$8\r\n86400000\r\n",
                       bench->begun, 0);

    from = now_s();
    if (write(bench->fd, command, (size_t)len) != len || poll(&fd, 1, 5000) != 1 ||
        read(bench->fd, answer, sizeof(answer)) != 5)
        errx(1, "plain SET");
    return now_s() - from;
}

static void plain_open(struct bench *bench, const char *url) {
    struct sockaddr_in address = {.sin_family = AF_INET};
    const char *port = strrchr(url, ':');
    int one = 1;

    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons((uint16_t)strtoul(port + 1, NULL, 10));
    bench->fd = socket(AF_INET, SOCK_STREAM, 0);
    if (bench->fd < 0 || connect(bench->fd, (struct sockaddr *)&address, sizeof(address)) < 0)
        err(1, "plain SET");
    setsockopt(bench->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
}

static void on_done(struct idem_claim *claim, int rc, bool lost, const struct idem_error *error,
                    void *data) {
    struct caller *caller = data;

    (void)claim;
    if (rc < 0 || lost)
        errx(1, "done: %s", rc < 0 ? error->text : "lost");
    idem_claim_free(caller->claim);
    caller->bench->ended++;
    if (caller->bench->begun < caller->bench->pairs)
        begin(caller);
}

static void on_claim(struct idem_claim *claim, int rc, const struct idem_answer *answer,
                     const struct idem_error *error, void *data) {
    static const char result[RESULT_LEN] = "receipt";
    struct caller *caller = data;

    if (rc < 0 || answer->verdict != IDEM_RUN)
        errx(1, "claim: %s", rc < 0 ? error->text : idem_verdict_name(answer->verdict));
    if (caller->bench->times != NULL) {
        caller->bench->times[caller->bench->ended] = now_s() - caller->sent;
        caller->bench->plain[caller->bench->ended] = set_plain(caller->bench);
    }
    if (idem_claim_done(claim, 201, result, sizeof(result), on_done, caller) < 0)
        errx(1, "done");
}

static void begin(struct caller *caller) {
    static const char fingerprint[] = "POST /orders {\"id\":4711,\"amount\":42}";
    struct bench *bench = caller->bench;
    struct idem_error error;
    char key[64];
    struct idem_args args = {
        .key = key, .fingerprint = fingerprint, .fingerprint_len = sizeof(fingerprint) - 1};

    args.key_len = (size_t)snprintf(key, sizeof(key), "%d-%ld-%ld", getpid(), (long)time(NULL),
                                    bench->begun++);
    caller->sent = now_s();
    if (idem_claim_new(bench->h, bench->guard, &args, on_claim, caller, &caller->claim, &error) < 0)
        errx(1, "%s", error.text);
}

static void ready(void *sink, int fd, int events) {
    idem_ready(sink, fd, events);
}

static void timeout(void *sink) {
    idem_timeout(sink);
}

static double run(struct bench *bench, unsigned callers) {
    struct caller *all = calloc(callers, sizeof(*all));
    double from = now_s();

    for (unsigned i = 0; i < callers; i++) {
        all[i].bench = bench;
        begin(&all[i]);
    }
    while (bench->ended < bench->pairs)
        idem_poll_turn(&bench->poll, NULL, 0, 1000);
    free(all);
    return now_s() - from;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

int main(int argc, char **argv) {
    static const struct idem_policy policy = {
        .prefix = "order:", .scope = IDEM_SCOPE_NONE, .ttl_s = 86400};
    struct bench bench = {0};
    struct idem_host host;
    struct idem_error error;
    unsigned callers = 1;
    double seconds;

    if (argc < 4)
        errx(64, "URL pairs CALLERS PAIRS | latency CLAIMS | fill RECORDS");
    idem_poll_init(&bench.poll);
    host = idem_poll_host(&bench.poll);
    if (idem_open_on(argv[1], NULL, &host, &bench.h, &error) < 0 ||
        idem_guard_new(bench.h, &policy, &bench.guard, &error) < 0)
        errx(1, "%s", error.text);
    bench.poll.ready = ready;
    bench.poll.timeout = timeout;
    bench.poll.sink = bench.h;
    bench.pairs = 100; /* connected, and warm */
    run(&bench, 1);
    bench.begun = bench.ended = 0;
    bench.pairs = strtol(argv[argc - 1], NULL, 10);
    if (argc > 4)
        callers = (unsigned)strtoul(argv[3], NULL, 10);
    else if (strcmp(argv[2], "fill") == 0)
        callers = 64;
    if (strcmp(argv[2], "latency") == 0) {
        bench.times = calloc((size_t)bench.pairs, sizeof(double));
        bench.plain = calloc((size_t)bench.pairs, sizeof(double));
        plain_open(&bench, argv[1]);
    }
    sleep(1); /* the keys of this second are taken */
    seconds = run(&bench, callers);
    if (bench.times != NULL) {
        qsort(bench.times, (size_t)bench.pairs, sizeof(double), by_value);
        qsort(bench.plain, (size_t)bench.pairs, sizeof(double), by_value);
        printf("%8.1f %8.1f %8.2f\n", bench.times[bench.pairs / 2] * 1e6,
               bench.plain[bench.pairs / 2] * 1e6,
               bench.times[bench.pairs / 2] / bench.plain[bench.pairs / 2]);
    } else {
        printf("%.0f\n", (double)bench.pairs / seconds);
    }
    free(bench.times);
    free(bench.plain);
    idem_guard_free(bench.guard);
    idem_close(bench.h);
    idem_poll_release(&bench.poll);
    return 0;
}
