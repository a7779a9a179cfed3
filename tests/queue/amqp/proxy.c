/*
 * The proxy, in a thread of its own. A fault of a socket ends its pair; any
 * other fault ends the test.
 */
#include "proxy.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static void fail(const char *what) {
    fprintf(stderr, "# the proxy: %s: %s\n", what, strerror(errno));
    exit(1);
}

static struct sockaddr_in address_of(int port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};

    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
}

/* With a reset, so that bytes that are on their way do not arrive. */
static void reset(int fd) {
    struct linger now = {.l_onoff = 1};

    if (fd < 0)
        return;
    (void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
    close(fd);
}

static void pair_end(struct proxy *p, int i) {
    if (p->pairs[i].client >= 0)
        close(p->pairs[i].client);
    reset(p->pairs[i].server);
    p->pairs[i].client = p->pairs[i].server = -1;
}

/* The client has disconnected: the server still gets all bytes from it, and then the end. */
static void pair_drain(struct proxy *p, int i) {
    close(p->pairs[i].client);
    p->pairs[i].client = -1;
    (void)shutdown(p->pairs[i].server, SHUT_WR);
}

static void pair_begin(struct proxy *p) {
    struct sockaddr_in address = address_of(p->target);
    int client = accept4(p->listener, NULL, NULL, SOCK_CLOEXEC), server, i = 0;

    if (client < 0)
        return;
    p->met++;
    server = p->closed ? -1 : socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (server < 0 || connect(server, (struct sockaddr *)&address, sizeof(address)) < 0) {
        reset(server);
        close(client);
        return;
    }
    while (i < PROXY_PAIRS && p->pairs[i].server >= 0)
        i++;
    if (i == PROXY_PAIRS)
        fail("too many connections");
    p->pairs[i].client = client;
    p->pairs[i].server = server;
}

static bool send_all(int fd, const unsigned char *bytes, size_t len) {
    while (len > 0) {
        ssize_t n = send(fd, bytes, len, MSG_NOSIGNAL);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        bytes += n;
        len -= (size_t)n;
    }
    return true;
}

static void replace(unsigned char *bytes, size_t len, const void *from, const void *to, size_t n) {
    unsigned char *at = to == NULL ? NULL : memmem(bytes, len, from, n);

    if (at != NULL)
        memcpy(at, to, n);
}

static void acks_count(struct proxy *p, const unsigned char *bytes, size_t len) {
    static const unsigned char method[] = {0, 60, 0, 80}; /* basic.ack */
    const unsigned char *at = bytes, *end = bytes + len;

    while ((at = memmem(at, (size_t)(end - at), method, sizeof(method))) != NULL) {
        p->acks++;
        at += sizeof(method);
    }
}

/* Reads from a client; false: the pair is over. */
static bool up_pass(struct proxy *p, int i) {
    unsigned char bytes[1 << 16];
    ssize_t n = read(p->pairs[i].client, bytes, sizeof(bytes));
    const unsigned char *cut = p->cut_at, *at;
    const char *to = p->to;

    if (n == 0)
        pair_drain(p, i);
    if (n <= 0)
        return n == 0;
    replace(bytes, (size_t)n, p->from, to, to == NULL ? 0 : strlen(to));
    at = cut == NULL ? NULL : memmem(bytes, (size_t)n, cut, p->cut_at_len);
    if (at == NULL) {
        bool sent = send_all(p->pairs[i].server, bytes, (size_t)n);

        acks_count(p, bytes, (size_t)n);
        return sent;
    }
    p->cut_at = NULL;
    p->cuts++;
    (void)send_all(p->pairs[i].server, bytes, (size_t)(at - bytes) + p->cut_behind);
    return false;
}

static bool down_pass(struct proxy *p, int i) {
    unsigned char bytes[1 << 16];
    ssize_t n = read(p->pairs[i].server, bytes, sizeof(bytes));
    long cut = p->cut_after;

    if (n <= 0)
        return false;
    if (p->deaf || p->pairs[i].client < 0)
        return true;
    replace(bytes, (size_t)n, p->lie_from, p->lie_to, p->lie_len);
    if (cut >= 0 && n >= cut) {
        p->cut_after = -1;
        p->cuts++;
        (void)send_all(p->pairs[i].client, bytes, (size_t)cut);
        return false;
    }
    if (cut >= 0)
        p->cut_after = cut - n;
    return send_all(p->pairs[i].client, bytes, (size_t)n);
}

static void *proxy_main(void *data) {
    struct proxy *p = data;
    struct pollfd fds[2 + 2 * PROXY_PAIRS];

    for (;;) {
        fds[0] = (struct pollfd){.fd = p->wake[0], .events = POLLIN};
        fds[1] = (struct pollfd){.fd = p->listener, .events = POLLIN};
        for (int i = 0; i < PROXY_PAIRS; i++) {
            fds[2 + 2 * i] = (struct pollfd){.fd = p->pairs[i].client, .events = POLLIN};
            fds[3 + 2 * i] = (struct pollfd){.fd = p->pairs[i].server, .events = POLLIN};
        }
        if (poll(fds, 2 + 2 * PROXY_PAIRS, -1) < 0 && errno != EINTR)
            fail("poll");
        if (fds[0].revents != 0)
            return NULL;
        for (int i = 0; i < PROXY_PAIRS; i++) {
            bool on = p->pairs[i].server >= 0;

            if (on && fds[2 + 2 * i].revents != 0)
                on = up_pass(p, i);
            if (on && fds[3 + 2 * i].revents != 0)
                on = down_pass(p, i);
            if (!on && p->pairs[i].server >= 0)
                pair_end(p, i);
        }
        if (fds[1].revents != 0)
            pair_begin(p);
    }
}

void proxy_start(struct proxy *p, int target) {
    struct sockaddr_in address = address_of(0);
    socklen_t len = sizeof(address);

    memset(p, 0, sizeof(*p));
    p->target = target;
    p->cut_after = -1;
    for (int i = 0; i < PROXY_PAIRS; i++)
        p->pairs[i].client = p->pairs[i].server = -1;
    p->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (p->listener < 0 || bind(p->listener, (struct sockaddr *)&address, len) < 0 ||
        listen(p->listener, 64) < 0 ||
        getsockname(p->listener, (struct sockaddr *)&address, &len) < 0 || pipe(p->wake) < 0)
        fail("listening");
    p->port = ntohs(address.sin_port);
    if (pthread_create(&p->thread, NULL, proxy_main, p) != 0)
        fail("thread");
}

void proxy_stop(struct proxy *p) {
    close(p->wake[1]);
    pthread_join(p->thread, NULL);
    close(p->wake[0]);
    close(p->listener);
    for (int i = 0; i < PROXY_PAIRS; i++)
        if (p->pairs[i].server >= 0)
            pair_end(p, i);
}
