/*
 * The keeper obeys one letter at a time, and replies to each with another. It
 * ends, with the server, when the last process that could send one has ended.
 */
#include "farm.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static void fail(const char *what) {
    fprintf(stderr, "# %s: %s\n", what, strerror(errno));
    exit(1);
}

static void keep(int line, const char *folder) {
    struct server server;
    char word;

    prctl(PR_SET_PDEATHSIG, SIGTERM);
    server_start(&server, folder, false);
    if (write(line, &server, sizeof(server)) != sizeof(server))
        _exit(1);
    while (read(line, &word, 1) == 1) {
        if (word == 'k')
            server_kill(&server);
        else if (word == 'r')
            server_restart(&server);
        else if (word == 'p')
            server_pause(&server);
        else if (word == 'g')
            server_go_on(&server);
        if (write(line, "!", 1) != 1)
            break;
    }
    server_stop(&server);
}

void farm_start(struct farm *farm, const char *folder) {
    int lines[2];

    if (socketpair(AF_UNIX, SOCK_STREAM, 0, lines) < 0)
        fail("socketpair");
    (void)fcntl(lines[0], F_SETFD, FD_CLOEXEC);
    (void)fcntl(lines[1], F_SETFD, FD_CLOEXEC);
    fflush(NULL);
    farm->keeper = fork();
    if (farm->keeper < 0)
        fail("fork");
    if (farm->keeper == 0) {
        close(lines[0]);
        keep(lines[1], folder);
        _exit(0);
    }
    close(lines[1]);
    farm->line = lines[0];
    if (read(farm->line, &farm->server, sizeof(farm->server)) != sizeof(farm->server)) {
        fprintf(stderr, "# no server was started\n");
        exit(1);
    }
}

void farm_stop(struct farm *farm) {
    close(farm->line);
    waitpid(farm->keeper, NULL, 0);
}

static void tell(const struct farm *farm, char word) {
    char answer;

    if (write(farm->line, &word, 1) != 1 || read(farm->line, &answer, 1) != 1)
        fail("the keeper of the server");
}

void farm_kill(const struct farm *farm) {
    tell(farm, 'k');
}

void farm_restart(const struct farm *farm) {
    tell(farm, 'r');
}

void farm_pause(const struct farm *farm) {
    tell(farm, 'p');
}

void farm_go_on(const struct farm *farm) {
    tell(farm, 'g');
}

void farm_eval(const struct farm *farm, const char *expression) {
    server_eval(&farm->server, expression);
}

const char *farm_url(int port, const char *options) {
    static char urls[4][600];
    static unsigned turn;
    char *url = urls[turn++ % 4];

    if (options[0] == '\0')
        options = "heartbeat=60s&connect_timeout=60s";
    snprintf(url, sizeof(urls[0]), "amqp://%s:%s@127.0.0.1:%d?%s", SERVER_USER,
             SERVER_PASSWORD_IN_URL, port, options);
    return url;
}
