/*
 * The small HTTP server for metrics: its responses, and the clients that it
 * disconnects.
 */
#include "cli/consume/metrics_server.h"

#include <arpa/inet.h>
#include <sys/socket.h>

#include "loop/poll.h"
#include "loop_clock.h"
#include "test.h"
#include "wait.h"

struct rig {
    struct idem_poll poll;
    struct idem_loop loop;
    struct board *board;
    struct metrics *metrics;
};

static void rig_ready(void *sink, int fd, int events) {
    idem_loop_ready(sink, fd, events);
}

static void rig_timeout(void *sink) {
    idem_loop_timeout(sink);
}

static void rig_begin_for(struct rig *rig, const char *address, struct metrics_hosts hosts) {
    struct idem_error err = {0};
    struct idem_host host;

    loop_clock_stop(); /* so that no client is disconnected because this process stood still */
    rig->board = calloc(1, BOARD_SIZE);
    CHECK(rig->board != NULL && board_init(rig->board));
    board_add(&board_route(rig->board, "queue", "orders", "order:")->verdicts[BOARD_RUN], 3);
    idem_poll_init(&rig->poll);
    host = idem_poll_host(&rig->poll);
    idem_loop_init(&rig->loop, &host);
    rig->poll.ready = rig_ready;
    rig->poll.timeout = rig_timeout;
    rig->poll.sink = &rig->loop;
    CHECK_INT(metrics_open(address, hosts, rig->board, "queue", &rig->loop, &rig->metrics, &err),
              0);
}

static void rig_begin(struct rig *rig) {
    rig_begin_for(rig, "127.0.0.1:0", (struct metrics_hosts){0});
}

static void rig_end(struct rig *rig) {
    metrics_close(rig->metrics);
    idem_loop_stop(&rig->loop);
    idem_poll_release(&rig->poll);
    free(rig->board);
}

static int dial(struct rig *rig) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    const char *address = metrics_address(rig->metrics);

    at.sin_port = htons((uint16_t)strtol(strrchr(address, ':') + 1, NULL, 10));
    CHECK(fd >= 0);
    CHECK(connect(fd, (struct sockaddr *)&at, sizeof(at)) == 0 || errno == EINPROGRESS);
    return fd;
}

static void turn(struct rig *rig, int64_t ms) {
    CHECK(idem_poll_turn(&rig->poll, NULL, 0, ms) >= 0);
}

static bool is_connected(int fd) {
    struct pollfd it = {.fd = fd, .events = POLLOUT};

    return poll(&it, 1, 0) == 1;
}

/* Reads until the server disconnects; returns the bytes. */
static char *hear(struct rig *rig, int fd) {
    size_t size = 1 << 20, len = 0;
    char *text = malloc(size);
    ssize_t n = -1;

    while (n != 0) {
        WAIT_BY(turn(rig, 10),
                (n = recv(fd, text + len, size - 1 - len, 0)) >= 0 || errno == ECONNRESET);
        if (n < 0)
            break;
        len += (size_t)n;
    }
    text[len] = '\0';
    close(fd);
    return text;
}

static char *ask(struct rig *rig, const char *request) {
    int fd = dial(rig);

    WAIT_BY(turn(rig, 10), is_connected(fd));
    CHECK_INT(send(fd, request, strlen(request), 0), strlen(request));
    return hear(rig, fd);
}

static void check(struct rig *rig, const char *request, const char *status, const char *part) {
    char *answer = ask(rig, request);

    CHECK_HAS(answer, status);
    CHECK_HAS(answer, part);
    CHECK_HAS(answer, "\r\nConnection: close\r\n");
    free(answer);
}

TEST(it_serves_text_json_and_a_page) {
    struct rig rig;

    rig_begin(&rig);
    check(&rig, "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n", "HTTP/1.1 200 OK\r\n",
          "idem_verdicts_total{route=\"orders\",policy=\"order:\",verdict=\"run\"} 3\n");
    check(&rig,
          "GET / HTTP/1.1\nAccept: application/openmetrics-text;q=0.5,text/plain;q=0.3,*/*;q=0.2\n"
          "\n",
          "Content-Type: text/plain; version=0.0.4", "# TYPE idem_verdicts_total counter");
    check(&rig, "GET /metrics HTTP/1.1\r\nAccept: application/json\r\n\r\n",
          "Content-Type: application/json\r\n", "\"door\":\"queue\"");
    check(&rig, "GET /metrics?format=json HTTP/1.0\r\n\r\n", "200 OK", "\"route\":\"orders\"");
    check(&rig, "GET / HTTP/1.1\r\nAccept: text/html,*/*;q=0.8\r\n\r\n",
          "Content-Security-Policy: default-src 'none'; style-src 'sha256-", "<!doctype html>");
    rig_end(&rig);
}

TEST(a_head_has_no_body_and_the_length_of_one) {
    struct rig rig;
    char *answer;

    rig_begin(&rig);
    answer = ask(&rig, "HEAD /metrics HTTP/1.1\r\n\r\n");
    CHECK_HAS(answer, "HTTP/1.1 200 OK\r\n");
    CHECK(strstr(answer, "Content-Length: 0") == NULL);
    CHECK_STR(strstr(answer, "\r\n\r\n"), "\r\n\r\n");
    free(answer);
    rig_end(&rig);
}

TEST(what_it_does_not_serve_is_refused) {
    struct rig rig;

    rig_begin(&rig);
    check(&rig, "GET /other HTTP/1.1\r\n\r\n", "HTTP/1.1 404 ", "");
    check(&rig, "POST /metrics HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc", "HTTP/1.1 405 ",
          "\r\nAllow: GET, HEAD\r\n");
    check(&rig, "GET /metrics?format=xml HTTP/1.1\r\n\r\n", "HTTP/1.1 400 ",
          "prometheus, json or html");
    check(&rig, "nonsense\r\n", "HTTP/1.1 400 ", "");
    check(&rig, "GET http://x/metrics HTTP/1.1\r\n\r\n", "HTTP/1.1 400 ", "");
    check(&rig, "GET /metrics HTTP/2.0\r\n\r\n", "HTTP/1.1 400 ", "");
    check(&rig, "GET /metrics HTTP/1.1\r\nno colon\r\n\r\n", "HTTP/1.1 400 ", "");
    rig_end(&rig);
}

static void check_host(struct rig *rig, const char *host, const char *status) {
    static const char *const forms[] = {"/metrics", "/", "/metrics?format=json",
                                        "/metrics?format=html"};
    char request[300];

    for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
        char *answer;

        snprintf(request, sizeof(request), "GET %s HTTP/1.1\r\nHost: %s\r\n\r\n", forms[i], host);
        answer = ask(rig, request);
        CHECK_HAS(answer, status);
        CHECK((strstr(answer, "orders") != NULL) == (strcmp(status, "HTTP/1.1 200 ") == 0));
        free(answer);
    }
}

/* The owner of a domain name can point it at this address: then a request from a page of that
 * site carries the name in its Host field. */
TEST(a_name_that_is_not_the_servers_reads_nothing) {
    static const char *const names[] = {"consumer-1.internal", ".ops.example"};
    static const char *const any[] = {"any"};
    struct rig rig;

    rig_begin(&rig);
    check_host(&rig, "evil.example", "HTTP/1.1 403 ");
    check_host(&rig, "localhost.evil.example", "HTTP/1.1 403 ");
    check_host(&rig, "127.0.0.1.evil.example:80", "HTTP/1.1 403 ");
    check_host(&rig, "consumer-1.internal:9100", "HTTP/1.1 403 ");
    check_host(&rig, "localhost", "HTTP/1.1 200 ");
    check_host(&rig, "LOCALHOST:9100", "HTTP/1.1 200 ");
    check_host(&rig, "127.0.0.1:9100", "HTTP/1.1 200 ");
    check_host(&rig, "[::1]:9100", "HTTP/1.1 200 ");
    check_host(&rig, "127.0.0.1\r\nhost: evil.example", "HTTP/1.1 400 ");
    check_host(&rig, "127.0.0.1:80@evil.example", "HTTP/1.1 400 ");
    rig_end(&rig);
    rig_begin_for(&rig, "127.0.0.1:0", (struct metrics_hosts){names, 2});
    check_host(&rig, "consumer-1.internal:9100", "HTTP/1.1 200 ");
    check_host(&rig, "a.ops.example", "HTTP/1.1 200 ");
    check_host(&rig, "consumer-2.internal", "HTTP/1.1 403 ");
    rig_end(&rig);
    rig_begin_for(&rig, "127.0.0.1:0", (struct metrics_hosts){any, 1});
    check_host(&rig, "evil.example", "HTTP/1.1 200 ");
    rig_end(&rig);
}

TEST(a_head_that_does_not_end_is_refused) {
    static char request[METRICS_HEAD_MAX + 64];
    struct rig rig;

    rig_begin(&rig);
    memset(request, 'a', METRICS_HEAD_MAX);
    memcpy(request, "GET / HTTP/1.1\r\nX: ", 19);
    check(&rig, request, "HTTP/1.1 400 ", "");
    rig_end(&rig);
}

TEST(a_request_may_come_byte_by_byte) {
    static const char request[] = "GET /metrics?format=json HTTP/1.1\r\nHost: localhost\r\n\r\n";
    struct rig rig;
    char *answer;
    int fd;

    rig_begin(&rig);
    fd = dial(&rig);
    WAIT_BY(turn(&rig, 10), is_connected(fd));
    for (size_t i = 0; i + 1 < sizeof(request); i++) {
        CHECK_INT(send(fd, request + i, 1, 0), 1);
        turn(&rig, 1);
    }
    answer = hear(&rig, fd);
    CHECK_HAS(answer, "200 OK");
    free(answer);
    rig_end(&rig);
}

/* Returns how many clients are still connected. */
static int count_left(const int fds[], int n) {
    int left = 0;
    char byte;

    for (int i = 0; i < n; i++)
        left += recv(fds[i], &byte, 1, 0) != 0;
    return left;
}

TEST(who_says_nothing_is_hung_up_on_and_keeps_nobody_out) {
    struct rig rig;
    int silent[20];
    char *answer;

    rig_begin(&rig);
    for (int i = 0; i < 20; i++)
        silent[i] = dial(&rig);
    for (int i = 0; i < 20; i++) {
        WAIT_BY(turn(&rig, 5), is_connected(silent[i]));
        turn(&rig, 5);
    }
    answer = ask(&rig, "GET /metrics HTTP/1.1\r\n\r\n"); /* the first client is disconnected */
    CHECK_HAS(answer, "200 OK");
    WAIT_UNTIL(count_left(silent, 20) <= 15); /* one of the 16 places is the requester's */
    CHECK_INT(count_left(silent, 20), 15);
    for (int i = 0; i < 20; i++)
        close(silent[i]);
    free(answer);
    rig_end(&rig);
}

TEST(closing_hangs_up) {
    struct rig rig;
    char byte;
    int fd;

    rig_begin(&rig);
    fd = dial(&rig);
    turn(&rig, 50);
    rig_end(&rig);
    CHECK(recv(fd, &byte, 1, 0) <= 0);
    close(fd);
}

TEST(addresses_that_are_none_are_told) {
    static const char *const wrong[] = {"",        ":9",    "localhost:", "a:b",   "1.2.3.4:65536",
                                        "::1:900", "[::1]", "x y:1",      "99999", "-1"};
    struct rig rig;
    const struct metrics_hosts hosts = {0};
    struct metrics *more = NULL;
    struct idem_error err = {0};

    rig_begin(&rig);
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        CHECK(metrics_open(wrong[i], hosts, rig.board, "queue", &rig.loop, &more, &err) < 0);
    CHECK_INT(metrics_open(metrics_address(rig.metrics), hosts, rig.board, "queue", &rig.loop,
                           &more, &err),
              IDEM_E_REFUSED);
    CHECK_HAS(err.text, "in use");
    CHECK(more == NULL);
    rig_end(&rig);
}

TEST_MAIN
