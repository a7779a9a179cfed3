/*
 * claim+done pairs on Redis, in one process with this many callers in flight,
 * each of which begins its next pair when the last has ended; and the time of one
 * claim alone. bench/run compares with redis-benchmark, on the same server.
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
#include <unistd.h>

#include "pairs.h"

struct latency {
    double *claims, *sets;
    int fd; /* of the plain SETs */
};

/* The same wait as the claim's: poll(2), then read(2). */
static double set_plain(const struct latency *latency, long n) {
    char command[512], answer[64];
    struct pollfd fd = {.fd = latency->fd, .events = POLLIN};
    double from;
    int len = snprintf(command, sizeof(command),
                       "*5\r\n$3\r\nSET\r\n$71\r\nplain:%065ld\r\n$200\r\n%0200d\r\n$2\r\nPX\r\n"
                       "$8\r\n86400000\r\n",
                       n, 0);

    from = now_s();
    if (write(latency->fd, command, (size_t)len) != len || poll(&fd, 1, 120000) != 1 ||
        read(latency->fd, answer, sizeof(answer)) != 5)
        errx(1, "plain SET");
    return now_s() - from;
}

static int plain_open(const char *url) {
    struct sockaddr_in address = {.sin_family = AF_INET};
    const char *port = strrchr(url, ':');
    int one = 1, fd = socket(AF_INET, SOCK_STREAM, 0);

    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons((uint16_t)strtoul(port + 1, NULL, 10));
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0)
        err(1, "plain SET");
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    return fd;
}

static void claimed(struct pairs *pairs, double seconds) {
    struct latency *latency = pairs->data;

    latency->claims[pairs->ended] = seconds;
    latency->sets[pairs->ended] = set_plain(latency, pairs->ended);
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

static void latency_tell(const char *url, struct pairs *pairs, long number) {
    struct latency latency = {calloc((size_t)number, sizeof(double)),
                              calloc((size_t)number, sizeof(double)), plain_open(url)};

    pairs->claimed = claimed;
    pairs->data = &latency;
    (void)pairs_run(pairs, 1, number);
    qsort(latency.claims, (size_t)number, sizeof(double), by_value);
    qsort(latency.sets, (size_t)number, sizeof(double), by_value);
    printf("%8.1f %8.1f %8.2f\n", latency.claims[number / 2] * 1e6, latency.sets[number / 2] * 1e6,
           latency.claims[number / 2] / latency.sets[number / 2]);
    free(latency.claims);
    free(latency.sets);
}

int main(int argc, char **argv) {
    struct pairs pairs = {0};
    long number;

    if (argc < 4)
        errx(64, "URL pairs CALLERS PAIRS | latency CLAIMS | fill RECORDS");
    pairs_open(&pairs, argv[1]);
    number = strtol(argv[argc - 1], NULL, 10);
    if (strcmp(argv[2], "latency") == 0)
        latency_tell(argv[1], &pairs, number);
    else
        printf("%.0f\n",
               (double)number /
                   pairs_run(&pairs, argc > 4 ? (unsigned)strtoul(argv[3], NULL, 10) : 64, number));
    pairs_close(&pairs);
    return 0;
}
