/*
 * The fake servers. A fault of a socket ends its connection; any other fault
 * ends the test.
 */
#include "fake_server.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

struct fakes fakes;

static void fail(const char *what) {
    fprintf(stderr, "# a fake server: %s: %s\n", what, strerror(errno));
    exit(1);
}

static int listener_make(int *ret_port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(address);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd < 0 || bind(fd, (struct sockaddr *)&address, len) < 0 || listen(fd, 64) < 0 ||
        getsockname(fd, (struct sockaddr *)&address, &len) < 0)
        fail("listen");
    *ret_port = ntohs(address.sin_port);
    return fd;
}

bool fake_is(const struct fake_command *command, const char *first, const char *second) {
    return strcasecmp(command->word[0], first) == 0 &&
           (second == NULL || strcasecmp(command->word[1], second) == 0);
}

bool fake_greets(const struct fake_command *command, char *out, size_t size) {
    const char *version = fakes.versions[command->fake], *run_id = fakes.run_id;
    char info[200], own_id[16];
    int len;

    if (fake_is(command, "CLIENT", "ID")) {
        snprintf(out, size, ":7\r\n");
    } else if (fake_is(command, "CLIENT", NULL)) {
        snprintf(out, size, "+OK\r\n");
    } else if (fake_is(command, "INFO", NULL)) {
        snprintf(own_id, sizeof(own_id), "fake%zu", command->fake);
        len = snprintf(info, sizeof(info),
                       "redis_version:%s\r\nrun_id:%s\r\nrole:master\r\nloading:0\r\n"
                       "maxmemory_policy:noeviction\r\n",
                       version == NULL ? "7.0.15" : version, run_id == NULL ? own_id : run_id);
        snprintf(out, size, "$%d\r\n%s\r\n", len, info);
    } else if (fake_is(command, "CONFIG", NULL)) {
        snprintf(out, size, "*2\r\n$10\r\nappendonly\r\n$3\r\nyes\r\n");
    } else if (fake_is(command, "SCRIPT", "LOAD")) {
        snprintf(out, size, "$40\r\n%040d\r\n", 0);
    } else if (fake_is(command, "ASKING", NULL)) {
        snprintf(out, size, "+OK\r\n");
    } else {
        return false;
    }
    return true;
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

void fake_push(int client, const char *bytes) {
    (void)send_all(client, bytes, strlen(bytes));
}

/* Splits the command at the beginning of the bytes, in place. Returns its length; 0: it is not
 * complete. */
static size_t command_take(char *bytes, size_t len, struct fake_command *command) {
    char *at = bytes, *end = bytes + len, *line = memchr(at, '\n', len);

    if (line == NULL)
        return 0;
    command->n = strtoul(at + 1, NULL, 10);
    for (size_t i = 0; i < FAKE_WORDS; i++)
        command->word[i] = "";
    at = line + 1;
    for (size_t i = 0; i < command->n; i++) {
        size_t size;

        line = at < end ? memchr(at, '\n', (size_t)(end - at)) : NULL;
        if (line == NULL)
            return 0;
        size = strtoul(at + 1, NULL, 10);
        if ((size_t)(end - line - 1) < size + 2)
            return 0;
        if (i < FAKE_WORDS)
            command->word[i] = line + 1;
        at = line + 1 + size + 2;
    }
    /* The command is complete: only now may its bytes be changed. */
    for (size_t i = 0; i < command->n && i < FAKE_WORDS; i++) {
        char *word = (char *)command->word[i], *head = word - 2;

        while (*head != '$')
            head--;
        word[strtoul(head + 1, NULL, 10)] = '\0';
    }
    return (size_t)(at - bytes);
}

/* Returns false if the connection is over. */
static bool client_read(size_t i) {
    static char out[1 << 16];
    struct fake_command command = {.fake = fakes.clients[i].fake, .client = fakes.clients[i].fd};
    char *bytes = fakes.clients[i].bytes;
    ssize_t n = recv(command.client, bytes + fakes.clients[i].len,
                     sizeof(fakes.clients[i].bytes) - fakes.clients[i].len, 0);
    size_t used;
    bool goes_on = true;

    if (n <= 0)
        return false;
    fakes.clients[i].len += (size_t)n;
    while (goes_on && (used = command_take(bytes, fakes.clients[i].len, &command)) > 0) {
        out[0] = '\0';
        command.asking = fakes.clients[i].asking;
        fakes.clients[i].asking = fake_is(&command, "ASKING", NULL);
        if (!fake_greets(&command, out, sizeof(out))) {
            fakes.asked[command.fake]++;
            goes_on = fakes.say(&command, out, sizeof(out));
        }
        if (!send_all(command.client, out, strlen(out)))
            return false;
        fakes.clients[i].len -= used;
        memmove(bytes, bytes + used, fakes.clients[i].len);
    }
    return goes_on;
}

static void client_begin(size_t fake) {
    int fd = accept4(fakes.listener[fake], NULL, NULL, SOCK_CLOEXEC);
    const char *at_once = fakes.at_once;
    char rest[4096];
    size_t i = 0;
    int one = 1;

    if (fd < 0)
        return;
    /* Without TCP_NODELAY a second small reply would wait for the ACK of the first, and seem to be
     * missing. */
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    fakes.met[fake]++;
    if (at_once != NULL) {
        (void)send_all(fd, at_once, strlen(at_once));
        shutdown(fd, SHUT_WR);
        (void)recv(fd, rest, sizeof(rest), 0); /* so that close() does not reset the connection */
        close(fd);
        return;
    }
    while (i < FAKE_CLIENTS && fakes.clients[i].fd != 0)
        i++;
    if (i == FAKE_CLIENTS)
        fail("too many connections");
    fakes.clients[i].fd = fd;
    fakes.clients[i].fake = fake;
    fakes.clients[i].len = 0;
    fakes.clients[i].asking = false;
}

static void *fakes_main(void *data) {
    struct pollfd fds[1 + FAKES_MAX + FAKE_CLIENTS];

    (void)data;
    for (;;) {
        fds[0] = (struct pollfd){.fd = fakes.wake[0], .events = POLLIN};
        for (size_t i = 0; i < FAKES_MAX; i++)
            fds[1 + i] =
                (struct pollfd){.fd = i < fakes.n ? fakes.listener[i] : -1, .events = POLLIN};
        for (size_t i = 0; i < FAKE_CLIENTS; i++)
            fds[1 + FAKES_MAX + i] = (struct pollfd){
                .fd = fakes.clients[i].fd == 0 ? -1 : fakes.clients[i].fd, .events = POLLIN};
        fakes.busy = false;
        if (poll(fds, 1 + FAKES_MAX + FAKE_CLIENTS, -1) < 0 && errno != EINTR)
            fail("poll");
        fakes.busy = true;
        if (fds[0].revents != 0)
            return NULL;
        for (size_t i = 0; i < FAKE_CLIENTS; i++)
            if (fds[1 + FAKES_MAX + i].revents != 0 && !client_read(i)) {
                close(fakes.clients[i].fd);
                fakes.clients[i].fd = 0;
            }
        for (size_t i = 0; i < fakes.n; i++)
            if (fds[1 + i].revents != 0)
                client_begin(i);
    }
}

/* In this order: a request that is no longer unread is being answered, or is answered. */
static bool nothing_is_due(void) {
    int unread;

    for (size_t i = 0; i < fakes.n; i++) {
        struct pollfd fd = {.fd = fakes.listener[i], .events = POLLIN};

        if (poll(&fd, 1, 0) > 0)
            return false;
    }
    for (size_t i = 0; i < FAKE_CLIENTS; i++)
        if (fakes.clients[i].fd != 0 && ioctl(fakes.clients[i].fd, FIONREAD, &unread) == 0 &&
            unread > 0)
            return false;
    return !fakes.busy;
}

/* Twice: the thread may accept a client during the first check. */
bool fakes_are_idle(void) {
    return nothing_is_due() && nothing_is_due();
}

/* In this order: once the fakes are idle, all of their responses have arrived. */
static bool is_settled(const struct conn *c) {
    struct pollfd fd = {.fd = c->host.epoll, .events = POLLIN};

    return fakes_are_idle() && poll(&fd, 1, 0) == 0 && c->host.deadline > idem_loop_now();
}

void fakes_settle(struct conn *c) {
    do
        conn_turn(c, 1);
    while (!is_settled(c));
}

void fakes_pass(struct conn *c, int64_t ms) {
    for (int64_t passed = 0; passed < ms; passed += 50) {
        loop_clock_forward(50);
        fakes_settle(c);
    }
}

void fakes_start(size_t n, bool (*say)(const struct fake_command *, char *, size_t)) {
    memset(&fakes, 0, sizeof(fakes));
    fakes.n = n;
    fakes.say = say;
    for (size_t i = 0; i < n; i++)
        fakes.listener[i] = listener_make(&fakes.port[i]);
    if (pipe2(fakes.wake, O_CLOEXEC) < 0 ||
        pthread_create(&fakes.thread, NULL, fakes_main, NULL) != 0)
        fail("start");
}

void fakes_stop(void) {
    close(fakes.wake[1]);
    pthread_join(fakes.thread, NULL);
    close(fakes.wake[0]);
    for (size_t i = 0; i < fakes.n; i++)
        close(fakes.listener[i]);
    for (size_t i = 0; i < FAKE_CLIENTS; i++)
        if (fakes.clients[i].fd != 0)
            close(fakes.clients[i].fd);
}
