/*
 * Starting and ending RabbitMQ, for tests.
 */
#include "server.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../../certificates.h"
#include "../../port.h"

#define RABBIT "/usr/lib/rabbitmq/bin/rabbitmq-server"
#define START_TRIES 1200 /* of 50 ms */

static void fail(const char *what) {
    fprintf(stderr, "# %s: %s\n", what, strerror(errno));
    exit(1);
}

static bool connects(int port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool ok;

    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ok = fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0;
    if (fd >= 0)
        close(fd);
    return ok;
}

static void wait_for(pid_t pid, int port, const struct server *server, const char *what) {
    for (int i = 0; i < START_TRIES; i++) {
        if (connects(port))
            return;
        if (waitpid(pid, NULL, WNOHANG) == pid)
            break;
        nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
    }
    fprintf(stderr, "# %s did not start: see %s\n", what, server->folder);
    exit(1);
}

static void file_write(const struct server *server, const char *name, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
static void file_write(const struct server *server, const char *name, const char *fmt, ...) {
    char path[400];
    va_list args;
    FILE *file;

    snprintf(path, sizeof(path), "%s/%s", server->folder, name);
    file = fopen(path, "w");
    if (file == NULL)
        fail(path);
    va_start(args, fmt);
    vfprintf(file, fmt, args);
    va_end(args);
    fclose(file);
}

static void folder_make(const struct server *server, const char *name) {
    char path[400];

    snprintf(path, sizeof(path), "%s/%s", server->folder, name);
    if (mkdir(path, 0700) < 0 && errno != EEXIST)
        fail(path);
}

static void files_make(const struct server *server) {
    const char *f = server->folder;

    folder_make(server, "home");
    folder_make(server, "mnesia");
    folder_make(server, "log");
    file_write(server, "env.conf", "%s", "");
    file_write(server, "plugins", "[].\n");
    file_write(server, "rabbitmq.conf",
               "listeners.tcp.1 = 127.0.0.1:%d\n"
               "listeners.ssl.1 = 127.0.0.1:%d\n"
               "ssl_options.cacertfile = %s/ca.crt\n"
               "ssl_options.certfile = %s/server.crt\n"
               "ssl_options.keyfile = %s/server.key\n"
               "ssl_options.verify = verify_peer\n"
               "ssl_options.fail_if_no_peer_cert = false\n"
               "default_user = %s\n"
               "default_pass = %s\n"
               "default_user_tags.administrator = true\n"
               "disk_free_limit.absolute = 1MB\n"
               "log.console = false\n"
               "log.file.level = warning\n"
               "queue_master_locator = client-local\n",
               server->port, server->tls_port, f, f, f, SERVER_USER, SERVER_PASSWORD);
}

/* In the child: nothing of the test's goes on in it, and it ends with the test. */
static void child_begin(void) {
    int null = open("/dev/null", O_RDWR);

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    dup2(null, 0);
    dup2(null, 1);
    dup2(null, 2);
    for (int fd = 3; fd < 256; fd++)
        close(fd);
}

static void variable(const char *name, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void variable(const char *name, const char *fmt, ...) {
    char value[600];
    va_list args;

    va_start(args, fmt);
    vsnprintf(value, sizeof(value), fmt, args);
    va_end(args);
    setenv(name, value, 1);
}

/* What its scripts would otherwise take from /etc/rabbitmq and /var/lib/rabbitmq. */
static void environment_make(const struct server *server) {
    const char *f = server->folder;

    unsetenv("LD_PRELOAD");
    variable("HOME", "%s/home", f);
    variable("ERL_EPMD_PORT", "%d", server->epmd_port);
    variable("ERL_EPMD_ADDRESS", "127.0.0.1");
    variable("RABBITMQ_NODENAME", "idem%d@localhost", server->port);
    variable("RABBITMQ_NODE_PORT", "%d", server->port);
    variable("RABBITMQ_NODE_IP_ADDRESS", "127.0.0.1");
    variable("RABBITMQ_DIST_PORT", "%d", server->dist_port);
    variable("RABBITMQ_MNESIA_BASE", "%s/mnesia", f);
    variable("RABBITMQ_LOG_BASE", "%s/log", f);
    variable("RABBITMQ_PID_FILE", "%s/pid", f);
    variable("RABBITMQ_CONFIG_FILE", "%s/rabbitmq.conf", f);
    variable("RABBITMQ_CONF_ENV_FILE", "%s/env.conf", f);
    variable("RABBITMQ_ENABLED_PLUGINS_FILE", "%s/plugins", f);
    variable("RABBITMQ_ALLOW_INPUT", "1"); /* the node itself, and no shell that watches it */
    variable("RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS",
             "-kernel inet_dist_use_interface {127,0,0,1} -setcookie idem +S 2:2 +sbwt none "
             "+sbwtdcpu none +sbwtdio none");
}

static void epmd_start(struct server *server) {
    char port[16];

    snprintf(port, sizeof(port), "%d", server->epmd_port);
    fflush(NULL);
    server->epmd = fork();
    if (server->epmd < 0)
        fail("fork");
    if (server->epmd == 0) {
        child_begin();
        execlp("epmd", "epmd", "-port", port, "-address", "127.0.0.1", (char *)NULL);
        _exit(127);
    }
    wait_for(server->epmd, server->epmd_port, server, "epmd");
}

void server_restart(struct server *server) {
    fflush(NULL);
    server->pid = fork();
    if (server->pid < 0)
        fail("fork");
    if (server->pid == 0) {
        child_begin();
        environment_make(server);
        if (chdir(server->folder) == 0)
            execl(RABBIT, RABBIT, "-noinput", (char *)NULL);
        _exit(127);
    }
    wait_for(server->pid, server->port, server, "rabbitmq-server");
    wait_for(server->pid, server->tls_port, server, "rabbitmq-server with TLS");
}

void server_start(struct server *server, const char *folder) {
    *server = (struct server){
        .port = port_free(),
        .tls_port = port_free(),
        .dist_port = port_free(),
        .epmd_port = port_free(),
    };
    snprintf(server->folder, sizeof(server->folder), "%.200s/rabbit", folder);
    if (mkdir(server->folder, 0700) < 0)
        fail(server->folder);
    certificates_make(server->folder, -1);
    files_make(server);
    epmd_start(server);
    server_restart(server);
}

static void end(pid_t *pid) {
    if (*pid <= 0)
        return;
    kill(*pid, SIGKILL);
    waitpid(*pid, NULL, 0);
    *pid = 0;
}

void server_kill(struct server *server) {
    end(&server->pid);
}

void server_pause(const struct server *server) {
    kill(server->pid, SIGSTOP);
}

void server_go_on(const struct server *server) {
    kill(server->pid, SIGCONT);
}

void server_stop(struct server *server) {
    end(&server->pid);
    end(&server->epmd);
}
