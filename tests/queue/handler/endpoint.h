/*
 * The endpoint of endpoint.py: a child process, which ends with the test. The
 * requests for it, and its log.
 */
#ifndef IDEM_TEST_QUEUE_HANDLER_ENDPOINT_H
#define IDEM_TEST_QUEUE_HANDLER_ENDPOINT_H

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "certificates.h"
#include "handler_rig.h"
#include "json/json.h"

struct endpoint {
    pid_t pid;
    int port, keep;
};

static inline struct endpoint endpoint_start(bool tls) {
    const char *folder = temp_folder(), *key = path_of("server.key");
    const char *cert = tls ? path_of("server.crt") : NULL;
    struct endpoint e = {0};
    int ends[2];

    (void)unlink(path_of("port"));
    if (tls)
        certificates_make(folder, -1);
    CHECK_INT(pipe2(ends, O_CLOEXEC), 0);
    fflush(NULL);
    e.pid = fork();
    CHECK(e.pid >= 0);
    if (e.pid == 0) {
        dup2(ends[0], 0);
        execlp("python3", "python3", "-SE", ENDPOINT, folder, cert, key, (char *)NULL);
        _exit(127);
    }
    close(ends[0]);
    e.keep = ends[1];
    e.port = file_number("port");
    return e;
}

static inline void endpoint_stop(struct endpoint *e) {
    close(e->keep);
    kill(e->pid, SIGKILL);
    CHECK_INT(waitpid(e->pid, NULL, 0), e->pid);
}

/* A port of the loopback that no process listens on, and that no other one gets as long as it is
 * open. */
static inline int bound(int *ret_port) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(at);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    CHECK(fd >= 0);
    CHECK_INT(bind(fd, (struct sockaddr *)&at, sizeof(at)), 0);
    CHECK_INT(getsockname(fd, (struct sockaddr *)&at, &len), 0);
    *ret_port = ntohs(at.sin_port);
    return fd;
}

/* A server that listens and never accepts. */
static inline int listener(int *ret_port) {
    int fd = bound(ret_port);

    CHECK_INT(listen(fd, 16), 0);
    return fd;
}

static inline struct handler_to_config config_of(const char *scheme, int port) {
    static char url[128];

    snprintf(url, sizeof(url), "%s://127.0.0.1:%d/handle?x=1", scheme, port);
    return (struct handler_to_config){
        .url = url, .prefix = "order:", .timeout_ms = WAIT_LIMIT_S * 1000, .workers = 32};
}

static inline void open_with(struct handler_rig *rig, const struct handler_to_config *config) {
    struct idem_error err;

    handler_rig_init(rig);
    if (handler_to_open(config, &rig->loop, &rig->handler, &err) < 0) {
        fprintf(stderr, "# %s\n", err.text);
        exit(1);
    }
}

static inline void open_at(struct handler_rig *rig, int port) {
    struct handler_to_config config = config_of("http", port);

    open_with(rig, &config);
}

static inline struct item *item_do(const char *what) {
    struct item *item = item_new("a body");

    if (what != NULL)
        item_header(item, "X-Do", what);
    return item;
}

static inline struct item *run_do(struct handler_rig *rig, const char *what) {
    struct item *item = item_do(what);

    handler_rig_run(rig, item);
    return item;
}

/* The requests that the endpoint got. */

struct log {
    char *text;
    struct idem_arena arena;
    struct idem_json requests[64];
    int n;
};

static inline void log_read(struct log *log) {
    struct idem_error err;
    char *at, *end;

    log->text = file_read("requests", NULL);
    log->n = 0;
    idem_arena_init(&log->arena, 64 << 20);
    for (at = log->text; (end = strchr(at, '\n')) != NULL; at = end + 1) {
        CHECK(log->n < 64);
        CHECK_INT(
            idem_json_parse(at, (size_t)(end - at), &log->arena, &log->requests[log->n++], &err),
            0);
    }
}

static inline void log_free(struct log *log) {
    idem_arena_free(&log->arena);
    free(log->text);
}

static inline int requests_n(void) {
    struct log log;

    log_read(&log);
    log_free(&log);
    return log.n;
}

/* The value of a field of a request, in one of four buffers; NULL: it is missing. A field that
 * occurs twice fails the test. */
static inline const char *field(const struct idem_json *request, const char *name) {
    const struct idem_json *fields = idem_json_get(request, "fields", 6);
    static char values[4][20000];
    static unsigned turn;
    const char *found = NULL;

    for (uint32_t i = 0; i < fields->n; i++) {
        const struct idem_json *pair = fields->at.items[i].at.items;

        if (pair[0].n != strlen(name) || strncasecmp(pair[0].at.text, name, pair[0].n) != 0)
            continue;
        CHECK(found == NULL);
        found = values[turn % 4];
        snprintf(values[turn++ % 4], sizeof(values[0]), "%.*s", (int)pair[1].n, pair[1].at.text);
    }
    return found;
}

#endif
