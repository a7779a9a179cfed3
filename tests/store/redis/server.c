/*
 * Starting and ending servers, for tests.
 */
#include "server.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "wait.h"

#define ARGS_MAX 96

static void fail(const char *what) {
    fprintf(stderr, "# %s: %s\n", what, strerror(errno));
    exit(1);
}

static int server_connect(const struct server *server) {
    struct sockaddr_un path = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct timeval limit = {.tv_sec = WAIT_LIMIT_S};

    if (fd < 0)
        fail("socket");
    snprintf(path.sun_path, sizeof(path.sun_path), "%.107s", server->socket);
    if (connect(fd, (struct sockaddr *)&path, sizeof(path)) < 0) {
        close(fd);
        return -1;
    }
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    return fd;
}

static void server_exec(const struct server *server, const char *program, const char *const *args,
                        int clock_fd) {
    const char *argv[ARGS_MAX] = {program};
    const char *const common[] = {"--unixsocket", server->socket, "--dir",     server->folder,
                                  "--daemonize",  "no",           "--logfile", "log",
                                  "--bind",       "127.0.0.1",    "--port"};
    char port[16], fd[16], conf[300];
    int n = 1, log;

    snprintf(conf, sizeof(conf), "%s/sentinel.conf", server->folder);
    if (server->sentinel)
        argv[n++] = conf;
    for (size_t i = 0; i < sizeof(common) / sizeof(common[0]); i++)
        argv[n++] = common[i];
    snprintf(port, sizeof(port), "%d", server->port);
    argv[n++] = port;
    for (; *args != NULL; args++)
        argv[n++] = *args;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (clock_fd >= 0) {
        snprintf(fd, sizeof(fd), "%d", clock_fd);
        setenv("IDEM_CLOCK_FD", fd, 1);
        setenv("LD_PRELOAD", CLOCK_PRELOAD, 1);
        fcntl(clock_fd, F_SETFD, 0);
    }
    log = open("/dev/null", O_RDWR);
    dup2(log, 0);
    dup2(log, 1);
    dup2(log, 2);
    execvp(program, (char **)argv);
    _exit(127);
}

/* True if the server responds; it opens its socket after its port. If the server has exited, the
 * test fails. */
static bool server_is_ready(const struct server *server, const char *program) {
    char answer[64];
    int fd = server_connect(server), status;

    if (fd >= 0) {
        close(fd);
        server_ask(server, answer, sizeof(answer), "PING", NULL);
        return answer[0] != '\0' && strncmp(answer, "-LOADING", 8) != 0;
    }
    if (waitpid(server->pid, &status, WNOHANG) == server->pid) {
        fprintf(stderr, "# %s did not start: see %s/log\n", program, server->folder);
        exit(1);
    }
    return false;
}

void server_start(struct server *server, const char *folder, const char *program, bool port,
                  const char *const *args, int clock_fd) {
    static const char *const none[] = {NULL};

    snprintf(server->folder, sizeof(server->folder), "%.255s", folder);
    snprintf(server->socket, sizeof(server->socket), "%s/s", server->folder);
    (void)mkdir(server->folder, 0700);
    if (port && server->port == 0)
        server->port = port_free();
    fflush(NULL);
    server->pid = fork();
    if (server->pid < 0)
        fail("fork");
    if (server->pid == 0)
        server_exec(server, program, args == NULL ? none : args, clock_fd);
    WAIT_UNTIL(server_is_ready(server, program));
}

void server_stop(struct server *server) {
    if (server->pid <= 0)
        return;
    kill(server->pid, SIGKILL);
    waitpid(server->pid, NULL, 0);
    server->pid = 0;
}

static bool server_stands(const struct server *server) {
    char path[64], text[512];
    const char *end;
    FILE *file;
    size_t n;

    snprintf(path, sizeof(path), "/proc/%d/stat", (int)server->pid);
    file = fopen(path, "r");
    if (file == NULL)
        fail(path);
    n = fread(text, 1, sizeof(text) - 1, file);
    fclose(file);
    text[n] = '\0';
    end = strrchr(text, ')'); /* the name may contain blanks */
    return end != NULL && end[1] == ' ' && end[2] == 'T';
}

void server_pause(const struct server *server) {
    kill(server->pid, SIGSTOP);
    WAIT_UNTIL(server_stands(server));
}

void server_go_on(const struct server *server) {
    kill(server->pid, SIGCONT);
}

/* The length of the reply at the beginning of the text; 0: it is not complete. */
static size_t reply_length(const char *text, size_t len) {
    const char *end = memmem(text, len, "\r\n", 2);
    size_t used, size;
    long n;

    if (end == NULL)
        return 0;
    used = (size_t)(end - text) + 2;
    n = strtol(text + 1, NULL, 10);
    if (text[0] == '$' && n >= 0)
        return used + (size_t)n + 2 <= len ? used + (size_t)n + 2 : 0;
    for (long i = 0; text[0] == '*' && i < n; i++) {
        size = reply_length(text + used, len - used);
        if (size == 0)
            return 0;
        used += size;
    }
    return used;
}

void server_ask(const struct server *server, char *out, size_t size, const char *first, ...) {
    char command[4096];
    size_t len = 0, n = 0;
    const char *word;
    va_list args;
    int fd = server_connect(server);
    ssize_t got;

    if (fd < 0)
        fail("connect");
    va_start(args, first);
    for (word = first; word != NULL; word = va_arg(args, const char *))
        n++;
    va_end(args);
    len = (size_t)snprintf(command, sizeof(command), "*%zu\r\n", n);
    va_start(args, first);
    for (word = first; word != NULL; word = va_arg(args, const char *))
        len += (size_t)snprintf(command + len, sizeof(command) - len, "$%zu\r\n%s\r\n",
                                strlen(word), word);
    va_end(args);
    /* Sentinels make a server close its connections when they promote it, so there may be no reply.
     */
    if (send(fd, command, len, MSG_NOSIGNAL) != (ssize_t)len && errno != EPIPE &&
        errno != ECONNRESET)
        fail("send");
    for (len = 0; len < size - 1 && reply_length(out, len) == 0; len += (size_t)got) {
        got = read(fd, out + len, size - 1 - len);
        if (got <= 0)
            break;
    }
    out[len] = '\0';
    close(fd);
}
