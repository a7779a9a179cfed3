/*
 * The proxy. A fault of a socket ends its pair; any other fault ends the test.
 */
#include "proxy.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static void fail(const char *what) {
    fprintf(stderr, "# the proxy: %s: %s\n", what, strerror(errno));
    exit(1);
}

static int socket_at(const char *path, bool listening) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd < 0)
        fail("socket");
    snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
    if (listening) {
        if (bind(fd, (struct sockaddr *)&address, sizeof(address)) < 0 || listen(fd, 64) < 0)
            fail(path);
        return fd;
    }
    if (connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0)
        return fd;
    close(fd);
    return -1;
}

static void pair_end(struct proxy *proxy, int i) {
    close(proxy->pairs[i].client);
    if (proxy->pairs[i].server >= 0 && proxy->pairs[i].server != proxy->held_server)
        close(proxy->pairs[i].server);
    proxy->pairs[i].client = proxy->pairs[i].server = -1;
}

static void pair_begin(struct proxy *proxy) {
    int client = accept4(proxy->listener, NULL, NULL, SOCK_CLOEXEC), server = -1, i = 0;

    if (client < 0)
        return;
    proxy->met++;
    while (i < PROXY_PAIRS && proxy->pairs[i].client >= 0)
        i++;
    if (i == PROXY_PAIRS)
        fail("too many connections");
    if (proxy->target[0] != '\0') {
        server = socket_at(proxy->target, false);
        if (server < 0) {
            close(client);
            return;
        }
    }
    proxy->pairs[i].client = client;
    proxy->pairs[i].server = server;
    proxy->pairs[i].deaf = false;
}

static bool send_all(int fd, const char *bytes, size_t len) {
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

static void replace(const struct proxy *proxy, char *bytes, size_t len) {
    const char *to = proxy->to;
    size_t n = to == NULL ? 0 : strlen(to);
    char *at = to == NULL ? NULL : memmem(bytes, len, proxy->from, n);

    if (at != NULL)
        memcpy(at, to, n);
}

static bool is_deaf(struct proxy *proxy, int i, const char *bytes, size_t len) {
    const char *at = proxy->deaf_at;

    if (at != NULL && memmem(bytes, len, at, strlen(at)) != NULL) {
        proxy->deaf_at = NULL;
        proxy->pairs[i].deaf = true;
    }
    return proxy->pairs[i].deaf;
}

/* Handles a client's request. Returns false if the pair is over. */
static bool asked_take(struct proxy *proxy, int i, const char *bytes, size_t n) {
    const char *say = proxy->say;

    if (is_deaf(proxy, i, bytes, n))
        return true;
    if (proxy->hold) {
        if (proxy->held_len + n > sizeof(proxy->held))
            fail("too much to hold");
        memcpy(proxy->held + proxy->held_len, bytes, n);
        proxy->held_len += n;
        proxy->held_server = proxy->pairs[i].server;
        return true;
    }
    if (proxy->pairs[i].server >= 0)
        return send_all(proxy->pairs[i].server, bytes, n);
    return say == NULL || send_all(proxy->pairs[i].client, say, strlen(say));
}

/* Reads from a client; returns false if the pair is over. The request counts once it is passed
 * on or kept, so that a test that waits for the count may then change the handling of the next
 * one. */
static bool ask_pass(struct proxy *proxy, int i) {
    static char bytes[1 << 16];
    ssize_t n = read(proxy->pairs[i].client, bytes, sizeof(bytes));
    bool goes_on = n > 0 && asked_take(proxy, i, bytes, (size_t)n);

    proxy->asked += n > 0;
    return goes_on;
}

static bool answer_pass(struct proxy *proxy, int i) {
    static char bytes[1 << 16];
    ssize_t n = read(proxy->pairs[i].server, bytes, sizeof(bytes));
    const char *say;
    long cut = proxy->cut_after;

    if (n <= 0)
        return false;
    if (proxy->swallow) {
        proxy->swallowed++;
        return true;
    }
    say = atomic_exchange(&proxy->say, NULL);
    if (say != NULL)
        return send_all(proxy->pairs[i].client, say, strlen(say));
    if (cut >= 0 && n >= cut) {
        proxy->cut_after = -1;
        proxy->cuts++;
        (void)send_all(proxy->pairs[i].client, bytes, (size_t)cut);
        return false;
    }
    if (cut >= 0)
        proxy->cut_after = cut - n;
    replace(proxy, bytes, (size_t)n);
    return send_all(proxy->pairs[i].client, bytes, (size_t)n);
}

static void *proxy_main(void *data) {
    struct proxy *proxy = data;
    struct pollfd fds[2 + 2 * PROXY_PAIRS];

    for (;;) {
        fds[0] = (struct pollfd){.fd = proxy->wake[0], .events = POLLIN};
        fds[1] = (struct pollfd){.fd = proxy->listener, .events = POLLIN};
        for (int i = 0; i < PROXY_PAIRS; i++) {
            fds[2 + 2 * i] = (struct pollfd){.fd = proxy->pairs[i].client, .events = POLLIN};
            fds[3 + 2 * i] = (struct pollfd){.fd = proxy->pairs[i].server, .events = POLLIN};
        }
        if (poll(fds, 2 + 2 * PROXY_PAIRS, -1) < 0 && errno != EINTR)
            fail("poll");
        if (fds[0].revents != 0)
            return NULL;
        for (int i = 0; i < PROXY_PAIRS; i++)
            if ((fds[3 + 2 * i].revents != 0 && !answer_pass(proxy, i)) ||
                (fds[2 + 2 * i].revents != 0 && !ask_pass(proxy, i)))
                pair_end(proxy, i);
        if (fds[1].revents != 0)
            pair_begin(proxy);
    }
}

void proxy_start(struct proxy *proxy, const char *folder, const char *name, const char *target) {
    memset(proxy, 0, sizeof(*proxy));
    snprintf(proxy->path, sizeof(proxy->path), "%.80s/%.20s", folder, name);
    snprintf(proxy->target, sizeof(proxy->target), "%.107s", target == NULL ? "" : target);
    proxy->cut_after = -1;
    proxy->held_server = -1;
    for (int i = 0; i < PROXY_PAIRS; i++)
        proxy->pairs[i].client = proxy->pairs[i].server = -1;
    proxy->listener = socket_at(proxy->path, true);
    if (pipe2(proxy->wake, O_CLOEXEC) < 0 ||
        pthread_create(&proxy->thread, NULL, proxy_main, proxy) != 0)
        fail("start");
}

bool proxy_let_go(struct proxy *proxy) {
    struct pollfd fd = {.fd = proxy->held_server, .events = POLLIN};
    char bytes[256];
    bool answered;

    if (proxy->held_server < 0)
        fail("nothing is held");
    answered = send_all(proxy->held_server, proxy->held, proxy->held_len) &&
               poll(&fd, 1, 120000) == 1 && read(proxy->held_server, bytes, sizeof(bytes)) > 0;
    close(proxy->held_server);
    proxy->held_server = -1;
    proxy->held_len = 0;
    return answered;
}

void proxy_stop(struct proxy *proxy) {
    close(proxy->wake[1]);
    pthread_join(proxy->thread, NULL);
    close(proxy->wake[0]);
    close(proxy->listener);
    for (int i = 0; i < PROXY_PAIRS; i++)
        if (proxy->pairs[i].client >= 0)
            pair_end(proxy, i);
    unlink(proxy->path);
}
