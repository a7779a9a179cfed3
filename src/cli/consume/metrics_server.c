/*
 * A small HTTP server for one page, on the caller's event loop. It holds a few connections at a
 * time, each for a few seconds and with a head of bounded length: a client that sends nothing or
 * does not read is disconnected, and costs other clients nothing. Fails if it cannot listen.
 */
#include "cli/consume/metrics_server.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/error.h"
#include "http/http_host.h"

/*
 * Reads the head of a request (RFC 9112). An odd value in a field that is not used here is ignored;
 * an odd first line, an odd shape of the lines, and a second Host are refused
 * (fuzz/metrics_request_fuzz.c).
 */

/* Takes the next line without its end, CR LF or LF; false if the line is not complete. */
static bool http_text_next_line(struct idem_http_text *rest, struct idem_http_text *ret) {
    const char *end = memchr(rest->at, '\n', rest->len);
    size_t len;

    if (end == NULL)
        return false;
    len = (size_t)(end - rest->at);
    *ret = (struct idem_http_text){rest->at, len};
    if (len > 0 && end[-1] == '\r')
        ret->len--;
    *rest = (struct idem_http_text){end + 1, rest->len - len - 1};
    return true;
}

static bool http_text_is_visible(struct idem_http_text text) {
    for (size_t i = 0; i < text.len; i++)
        if ((unsigned char)text.at[i] <= ' ' || text.at[i] == 0x7f)
            return false;
    return text.len > 0;
}

/* Takes the text up to a blank, and skips the blank; false if there is no blank. */
static bool http_text_next_word(struct idem_http_text *rest, struct idem_http_text *ret) {
    const char *end = memchr(rest->at, ' ', rest->len);

    if (end == NULL)
        return false;
    *ret = (struct idem_http_text){rest->at, (size_t)(end - rest->at)};
    *rest = (struct idem_http_text){end + 1, rest->len - ret->len - 1};
    return true;
}

static bool metrics_request_first_line_read(struct idem_http_text line,
                                            struct metrics_request *ret) {
    struct idem_http_text target;
    const char *mark;

    if (!http_text_next_word(&line, &ret->method) || !http_text_next_word(&line, &target))
        return false;
    if (!idem_http_is_token(ret->method) || !http_text_is_visible(target) || target.at[0] != '/')
        return false;
    if (line.len != 8 || memcmp(line.at, "HTTP/1.", 7) != 0 ||
        (line.at[7] != '0' && line.at[7] != '1'))
        return false;
    mark = memchr(target.at, '?', target.len);
    ret->path = target;
    ret->query = (struct idem_http_text){"", 0};
    if (mark != NULL) {
        ret->path.len = (size_t)(mark - target.at);
        ret->query = (struct idem_http_text){mark + 1, target.len - ret->path.len - 1};
    }
    return true;
}

/* A second Host is refused: a proxy before this server might have checked the other one. */
static bool metrics_request_host_read(struct idem_http_text value, struct metrics_request *ret) {
    return ret->host.at == NULL && idem_http_host_read(value, &ret->host);
}

static bool metrics_request_field_read(struct idem_http_text line, struct metrics_request *ret) {
    const char *colon = memchr(line.at, ':', line.len);
    struct idem_http_text name, value;

    if (colon == NULL)
        return false;
    name = (struct idem_http_text){line.at, (size_t)(colon - line.at)};
    value = (struct idem_http_text){colon + 1, line.len - name.len - 1};
    if (!idem_http_is_token(name))
        return false;
    if (idem_http_same(name, IDEM_HTTP_TEXT("Accept")))
        idem_http_accept_add(&ret->accept, idem_http_trim(value));
    if (idem_http_same(name, IDEM_HTTP_TEXT("Host")))
        return metrics_request_host_read(idem_http_trim(value), ret);
    return true;
}

int metrics_request_read(const char *text, size_t len, struct metrics_request *ret) {
    struct idem_http_text rest = {text, len}, line;
    struct metrics_request request = {0};

    idem_http_accept_init(&request.accept);
    if (!http_text_next_line(&rest, &line))
        return 0;
    if (!metrics_request_first_line_read(line, &request))
        return -1;
    for (;;) {
        if (!http_text_next_line(&rest, &line))
            return 0;
        if (line.len == 0)
            break;
        if (!metrics_request_field_read(line, &request))
            return -1;
    }
    *ret = request;
    return 1;
}

#define PEERS_MAX 16
#define PEER_MS 5000
#define PAUSE_MS 1000 /* without free descriptors: the pause before the next accept */

struct peer {
    struct metrics *metrics; /* NULL: this slot is free */
    struct idem_fd fd;
    struct idem_timer timer;
    char head[METRICS_HEAD_MAX];
    size_t head_len;
    char *response; /* NULL: the request is not complete */
    size_t response_len, sent;
};

struct metrics {
    const struct board *board;
    const char *door;
    struct idem_loop *loop;
    struct idem_fd fd;
    struct idem_timer pause;
    bool listening;        /* the loop watches the listening socket */
    char host[NI_MAXHOST]; /* the one to listen on, as it was given */
    struct metrics_hosts hosts;
    char address[NI_MAXHOST + NI_MAXSERV + 4];
    struct peer peers[PEERS_MAX];
};

static void metrics_listen_resume(struct metrics *metrics) {
    if (!metrics->listening)
        metrics->listening = idem_loop_watch(metrics->loop, &metrics->fd, IDEM_READ) == 0;
}

static void metrics_listen_pause(struct metrics *metrics) {
    if (metrics->listening)
        idem_loop_unwatch(metrics->loop, &metrics->fd);
    metrics->listening = false;
}

static void metrics_server_pause_end(struct idem_timer *timer) {
    metrics_listen_resume(idem_container_of(timer, struct metrics, pause));
}

/* One connection. */

static void peer_close(struct peer *peer) {
    struct metrics *metrics = peer->metrics;

    if (metrics == NULL)
        return;
    idem_timer_clear(metrics->loop, &peer->timer);
    idem_loop_unwatch(metrics->loop, &peer->fd);
    close(peer->fd.fd);
    free(peer->response);
    peer->response = NULL;
    peer->metrics = NULL;
}

static void peer_drop(struct peer *peer) {
    struct metrics *metrics = peer->metrics;

    peer_close(peer);
    if (metrics->pause.link == NULL)
        metrics_listen_resume(metrics);
}

static void metrics_server_peer_timeout(struct idem_timer *timer) {
    peer_drop(idem_container_of(timer, struct peer, timer));
}

/* Responses. */

static void metrics_server_head_write(FILE *out, const char *status, const char *type, size_t len) {
    fprintf(out,
            "HTTP/1.1 %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\n"
            "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n"
            "Connection: close\r\n",
            status, type, len);
}

static void metrics_server_refusal_write(FILE *out, const char *status, const char *more) {
    metrics_server_head_write(out, status, "text/plain", strlen(status) + 1);
    fprintf(out, "%s\r\n%s\n", more, status);
}

static void metrics_server_board_write(FILE *out, const struct metrics *metrics,
                                       enum report_form form, bool with_body) {
    const char *policy = form == REPORT_PAGE ? report_page_policy() : NULL;
    size_t len = 0;
    char *body = NULL;
    FILE *stream = open_memstream(&body, &len);

    if (stream != NULL) {
        report_write(metrics->board, &(struct report_origin){.door = metrics->door}, form, stream);
        fclose(stream);
    }
    if (body == NULL || (form == REPORT_PAGE && policy == NULL)) {
        metrics_server_refusal_write(out, "500 Internal Server Error", "");
    } else {
        metrics_server_head_write(out, "200 OK", report_type(form), len);
        if (policy != NULL)
            fprintf(out,
                    "Content-Security-Policy: %s\r\nReferrer-Policy: no-referrer\r\n"
                    "X-Frame-Options: DENY\r\n",
                    policy);
        fputs("Vary: Accept\r\n\r\n", out);
        if (with_body)
            fwrite(body, 1, len, out);
    }
    free(body);
}

/* A request without Host is not from a browser. */
static bool metrics_server_allows_host(const struct metrics *metrics, struct idem_http_text host) {
    if (host.len == 0 || idem_http_host_is_plain(host) ||
        idem_http_same(host, idem_http_text_of(metrics->host)))
        return true;
    for (size_t i = 0; i < metrics->hosts.n; i++)
        if (strcmp(metrics->hosts.names[i], "any") == 0 ||
            idem_http_host_matches(host, idem_http_text_of(metrics->hosts.names[i])))
            return true;
    return false;
}

static void metrics_server_response_write(FILE *out, const struct metrics *metrics,
                                          const struct metrics_request *request) {
    bool head = idem_http_is(request->method, "HEAD");
    enum report_form form;

    if (!metrics_server_allows_host(metrics, request->host))
        metrics_server_refusal_write(
            out,
            "403 Forbidden: the Host is a name that is not allowed; use an address, or set "
            "--metrics-host",
            "");
    else if (!idem_http_is(request->path, "/metrics") && !idem_http_is(request->path, "/"))
        metrics_server_refusal_write(out, "404 Not Found", "");
    else if (!head && !idem_http_is(request->method, "GET"))
        metrics_server_refusal_write(out, "405 Method Not Allowed", "Allow: GET, HEAD\r\n");
    else if (!report_form(request->query, &request->accept, &form))
        metrics_server_refusal_write(out, "400 Bad Request: format is prometheus, json or html",
                                     "");
    else
        metrics_server_board_write(out, metrics, form, !head);
}

static bool peer_respond(struct peer *peer, const struct metrics_request *request) {
    FILE *out = open_memstream(&peer->response, &peer->response_len);

    if (out == NULL)
        return false;
    if (request == NULL)
        metrics_server_refusal_write(out, "400 Bad Request", "");
    else
        metrics_server_response_write(out, peer->metrics, request);
    return fclose(out) == 0 && idem_loop_watch(peer->metrics->loop, &peer->fd, IDEM_WRITE) == 0;
}

/* Reading the request and writing the response. False: the connection is finished. */

static bool peer_read(struct peer *peer) {
    struct metrics_request request;
    ssize_t n;
    int whole;

    for (;;) {
        n = recv(peer->fd.fd, peer->head + peer->head_len, METRICS_HEAD_MAX - peer->head_len, 0);
        if (n < 0)
            return errno == EAGAIN || errno == EINTR;
        if (n == 0)
            return false;
        peer->head_len += (size_t)n;
        whole = metrics_request_read(peer->head, peer->head_len, &request);
        if (whole != 0 || peer->head_len == METRICS_HEAD_MAX)
            return peer_respond(peer, whole == 1 ? &request : NULL);
    }
}

static bool peer_write(struct peer *peer) {
    while (peer->sent < peer->response_len) {
        ssize_t n = send(peer->fd.fd, peer->response + peer->sent, peer->response_len - peer->sent,
                         MSG_NOSIGNAL);

        if (n < 0)
            return errno == EAGAIN || errno == EINTR;
        peer->sent += (size_t)n;
    }
    (void)shutdown(peer->fd.fd, SHUT_WR);
    return false;
}

static void metrics_server_peer_ready(struct idem_fd *fd, int events) {
    struct peer *peer = idem_container_of(fd, struct peer, fd);

    (void)events;
    if (!(peer->response == NULL ? peer_read(peer) : peer_write(peer)))
        peer_drop(peer);
}

/* A free slot, or else the one of the connection that has sent no complete request for the longest
   time. NULL: all connections are being responded to. */
static struct peer *metrics_peer_slot(struct metrics *metrics) {
    struct peer *idle = NULL;

    for (size_t i = 0; i < PEERS_MAX; i++) {
        struct peer *peer = &metrics->peers[i];

        if (peer->metrics == NULL)
            return peer;
        if (peer->response == NULL && (idle == NULL || peer->timer.at < idle->timer.at))
            idle = peer;
    }
    return idle;
}

static void metrics_peer_open(struct metrics *metrics, struct peer *peer, int fd) {
    peer->fd = (struct idem_fd){.fd = fd, .ready = metrics_server_peer_ready};
    peer->timer = (struct idem_timer){.fire = metrics_server_peer_timeout};
    peer->head_len = peer->response_len = peer->sent = 0;
    if (idem_loop_watch(metrics->loop, &peer->fd, IDEM_READ) != 0) {
        close(fd);
        return;
    }
    peer->metrics = metrics;
    idem_timer_set(metrics->loop, &peer->timer, PEER_MS);
}

static void metrics_server_accept_ready(struct idem_fd *listening, int events) {
    struct metrics *metrics = idem_container_of(listening, struct metrics, fd);
    struct peer *peer;
    int fd;

    (void)events;
    while ((peer = metrics_peer_slot(metrics)) != NULL) {
        fd = accept4(metrics->fd.fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd >= 0) {
            if (peer->metrics != NULL)
                peer_close(peer);
            metrics_peer_open(metrics, peer, fd);
            continue;
        }
        if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
            metrics_listen_pause(metrics);
            idem_timer_set(metrics->loop, &metrics->pause, PAUSE_MS);
        }
        if (errno != ECONNABORTED && errno != EINTR)
            return;
    }
    metrics_listen_pause(metrics); /* until a connection is closed */
}

/* Opening. */

static int metrics_server_address_split(const char *address, char *host, size_t size,
                                        const char **ret_port, struct idem_error *err) {
    const char *colon = strrchr(address, ':'), *begin = address;
    size_t len = colon == NULL ? 0 : (size_t)(colon - address);

    *ret_port = colon == NULL ? address : colon + 1;
    if (colon == NULL)
        begin = "127.0.0.1", len = strlen(begin);
    else if (len >= 2 && address[0] == '[' && address[len - 1] == ']')
        begin++, len -= 2;
    else if (memchr(address, ':', len) != NULL)
        len = 0; /* an IPv6 address without brackets */
    if (len == 0 || len >= size || (*ret_port)[0] == '\0' ||
        strspn(*ret_port, "0123456789") != strlen(*ret_port) || strlen(*ret_port) > 5 ||
        strtol(*ret_port, NULL, 10) > 65535)
        return idem_error_set(err, IDEM_E_INVALID,
                              "no address: allowed are PORT, HOST:PORT and [V6]:PORT");
    memcpy(host, begin, len);
    host[len] = '\0';
    return 0;
}

static int addrinfo_listen(const struct addrinfo *at) {
    int fd = socket(at->ai_family, at->ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), on = 1;

    if (fd < 0)
        return -1;
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (bind(fd, at->ai_addr, at->ai_addrlen) == 0 && listen(fd, 64) == 0)
        return fd;
    close(fd);
    return -1;
}

static void metrics_address_print(struct metrics *metrics) {
    struct sockaddr_storage name;
    socklen_t len = sizeof(name);
    char host[NI_MAXHOST] = "?", port[NI_MAXSERV] = "?";

    if (getsockname(metrics->fd.fd, (struct sockaddr *)&name, &len) == 0)
        (void)getnameinfo((struct sockaddr *)&name, len, host, sizeof(host), port, sizeof(port),
                          NI_NUMERICHOST | NI_NUMERICSERV);
    snprintf(metrics->address, sizeof(metrics->address), strchr(host, ':') ? "[%s]:%s" : "%s:%s",
             host, port);
}

static int metrics_socket_open(struct metrics *metrics, const char *address,
                               struct idem_error *err) {
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE}, *found = NULL;
    const char *port;
    int rc =
        metrics_server_address_split(address, metrics->host, sizeof(metrics->host), &port, err);

    if (rc != 0)
        return rc;
    rc = getaddrinfo(metrics->host, port, &hints, &found);
    if (rc != 0)
        return idem_error_set(err, IDEM_E_REFUSED, "%s: %s", metrics->host, gai_strerror(rc));
    metrics->fd.fd = addrinfo_listen(found);
    freeaddrinfo(found);
    if (metrics->fd.fd < 0)
        return idem_error_set(err, IDEM_E_REFUSED, "cannot listen there: %s", strerror(errno));
    return 0;
}

int metrics_open(const char *address, struct metrics_hosts hosts, const struct board *board,
                 const char *door, struct idem_loop *loop, struct metrics **ret,
                 struct idem_error *err) {
    struct metrics *metrics = calloc(1, sizeof(*metrics));
    int rc;

    if (metrics == NULL)
        return idem_error_set(err, IDEM_E_NOMEM, "no memory to listen");
    *metrics = (struct metrics){.board = board,
                                .hosts = hosts,
                                .door = door,
                                .loop = loop,
                                .fd = {.fd = -1, .ready = metrics_server_accept_ready},
                                .pause = {.fire = metrics_server_pause_end}};
    rc = metrics_socket_open(metrics, address, err);
    if (rc == 0) {
        metrics_listen_resume(metrics);
        if (!metrics->listening)
            rc = idem_error_set(err, IDEM_E_REFUSED, "the loop cannot watch one more");
    }
    if (rc != 0) {
        metrics_close(metrics);
        return rc;
    }
    metrics_address_print(metrics);
    *ret = metrics;
    return 0;
}

const char *metrics_address(const struct metrics *metrics) {
    return metrics->address;
}

void metrics_close(struct metrics *metrics) {
    if (metrics == NULL)
        return;
    for (size_t i = 0; i < PEERS_MAX; i++)
        peer_close(&metrics->peers[i]);
    idem_timer_clear(metrics->loop, &metrics->pause);
    metrics_listen_pause(metrics);
    if (metrics->fd.fd >= 0)
        close(metrics->fd.fd);
    free(metrics);
}

/*
 * Fills the consumer's board: counts each message's verdict once, and copies the counts that the
 * consumer keeps itself.
 */

int consume_metrics_open(struct consume_metrics *m, const char *address, struct metrics_hosts hosts,
                         struct idem *h, const char *url, const char *queue, const char *prefix,
                         struct idem_error *err) {
    int rc;

    m->board = calloc(1, BOARD_SIZE);
    if (m->board == NULL)
        return idem_error_set(err, IDEM_E_NOMEM, "no memory for metrics");
    (void)board_init(m->board);
    m->route = board_route(m->board, "queue", queue, prefix);
    m->store = board_store(m->board, url);
    board_route_set_store(m->board, m->route, m->store);
    m->process = board_process(m->board, getpid());
    rc = metrics_open(address, hosts, m->board, "queue", &h->loop, &m->server, err);
    if (rc != 0)
        return rc;
    board_meter_init(&m->meter, m->store, m->process);
    idem_handle_measure(h, &m->meter.meter);
    survey_start(&m->survey, h, m->store);
    return 0;
}

/* Maps the consumer's words to the verdicts of a board. */
static enum board_verdict consume_metrics_verdict(const char *word) {
    static const struct {
        const char *word;
        enum board_verdict verdict;
    } others[] = {{"key", BOARD_MALFORMED}, {"store", BOARD_STORE_ERROR}};

    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
        if (strcmp(word, others[i].word) == 0)
            return others[i].verdict;
    return board_verdict_find(word);
}

static bool consume_metrics_is_refusal(enum board_verdict verdict) {
    return verdict != BOARD_RUN && verdict != BOARD_OPEN && verdict != BOARD_DUPLICATE &&
           verdict != BOARD_BUSY;
}

void consume_metrics_report(struct consume_metrics *m, const struct queue_report *report) {
    enum board_verdict verdict;

    if (m->board == NULL)
        return;
    verdict = consume_metrics_verdict(report->verdict);
    if (verdict == BOARD_VERDICTS)
        return;
    board_add(&m->route->verdicts[verdict], 1);
    if (report->result != NULL)
        board_observe(&m->route->handler, report->took_ms * 1000);
    if (consume_metrics_is_refusal(verdict))
        board_refused(m->board, m->route, verdict, report->hash, report->label);
}

void consume_metrics_counts(struct consume_metrics *m, const struct queue_counts *counts) {
    if (m->board == NULL)
        return;
    atomic_store(&m->route->counts[BOARD_DONE], counts->done);
    atomic_store(&m->route->counts[BOARD_RETRIED], counts->retries);
    atomic_store(&m->route->counts[BOARD_BURIED], counts->dead);
    atomic_store(&m->route->counts[BOARD_UNBURIED], counts->unburied);
    atomic_store(&m->route->counts[BOARD_LOST], counts->lost);
    atomic_store(&m->route->counts[BOARD_CANCELLED], counts->cancelled);
    atomic_store(&m->route->counts[BOARD_UNKNOWN], counts->unknown);
    atomic_store(&m->process->in_hand, (int64_t)counts->in_hand);
    atomic_store(&m->process->working, (int64_t)counts->working);
    board_sample(m->board);
}

void consume_metrics_close(struct consume_metrics *m) {
    survey_stop(&m->survey);
    metrics_close(m->server);
    m->server = NULL;
}

void consume_metrics_release(struct consume_metrics *m) {
    free(m->board);
    m->board = NULL;
}
