/*
 * Starting and ending RabbitMQ, for tests.
 */
#include "server.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
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
#include "../../wait.h"
#include "client.h"

#define RABBIT "/usr/lib/rabbitmq/bin/rabbitmq-server"
#define LIBRARIES "/usr/lib/rabbitmq/lib/rabbitmq_server-*/plugins/*"
#define READY_QUEUE "idem.test.ready"
#define WAIT_MS "120000" /* WAIT_LIMIT_S, for Erlang */

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

/* Ends the program if the server's process has ended, because it will never be ready. */
static bool is_alive(pid_t pid, const struct server *server, const char *what) {
    if (waitpid(pid, NULL, WNOHANG) != pid)
        return true;
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

/* A directory with RabbitMQ's own libraries and without its plugins, which it would read at each
 * start. */
static void libraries_link(const struct server *server) {
    char path[400];
    glob_t found;

    folder_make(server, "lib");
    if (glob(LIBRARIES, 0, NULL, &found) != 0)
        fail(LIBRARIES);
    for (size_t i = 0; i < found.gl_pathc; i++) {
        const char *name = strrchr(found.gl_pathv[i], '/') + 1;

        if (strncmp(name, "rabbitmq_", 9) == 0 && strncmp(name, "rabbitmq_prelaunch", 18) != 0)
            continue;
        snprintf(path, sizeof(path), "%s/lib/%s", server->folder, name);
        if (symlink(found.gl_pathv[i], path) < 0 && errno != EEXIST)
            fail(path);
    }
    globfree(&found);
}

/* Settings as Erlang terms: rabbitmq.conf would be parsed into these first. Without it and the
 * plugins a start takes about a tenth less CPU time. */
static void files_make(const struct server *server) {
    const char *f = server->folder;

    folder_make(server, "home");
    folder_make(server, "mnesia");
    folder_make(server, "log");
    libraries_link(server);
    file_write(server, "env.conf", "%s", "");
    file_write(server, "plugins", "[].\n");
    file_write(server, "rabbitmq.config",
               "[{rabbit, [\n"
               "  {tcp_listeners, [{\"127.0.0.1\", %d}]},\n"
               "  {ssl_listeners, [{\"127.0.0.1\", %d}]},\n"
               "  {ssl_options, [{cacertfile, \"%s/ca.crt\"},\n"
               "                 {certfile, \"%s/server.crt\"},\n"
               "                 {keyfile, \"%s/server.key\"},\n"
               "                 {verify, verify_peer}, {fail_if_no_peer_cert, false}]},\n"
               "  {default_user, <<\"%s\">>},\n"
               "  {default_pass, <<\"%s\">>},\n"
               "  {default_user_tags, [administrator]},\n"
               "  {disk_free_limit, 1000000},\n"
               "  {log, [{console, [{enabled, false}]}, {file, [{level, warning}]}]},\n"
               "  {queue_master_locator, <<\"client-local\">>},\n"
               "  {handshake_timeout, 120000},\n"
               "  {ssl_handshake_timeout, 120000}]}].\n",
               server->port, server->tls_port, f, f, f, SERVER_USER, SERVER_PASSWORD);
}

/* In the child, which runs none of the test's code, and ends with the test. */
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

/* Settings that the scripts would otherwise read from /etc/rabbitmq and /var/lib/rabbitmq. */
static void environment_make(const struct server *server) {
    const char *f = server->folder;

    variable("LD_PRELOAD", "%s", server->syncs ? "" : NOSYNC_PRELOAD);
    variable("HOME", "%s/home", f);
    variable("ERL_CRASH_DUMP", "%s/erl_crash.dump", f);
    variable("ERL_EPMD_PORT", "%d", server->epmd_port);
    variable("ERL_EPMD_ADDRESS", "127.0.0.1");
    variable("RABBITMQ_NODENAME", "idem%d@localhost", server->port);
    variable("RABBITMQ_NODE_PORT", "%d", server->port);
    variable("RABBITMQ_NODE_IP_ADDRESS", "127.0.0.1");
    variable("RABBITMQ_DIST_PORT", "%d", server->dist_port);
    variable("RABBITMQ_MNESIA_BASE", "%s/mnesia", f);
    variable("RABBITMQ_LOG_BASE", "%s/log", f);
    variable("RABBITMQ_PID_FILE", "%s/pid", f);
    variable("RABBITMQ_CONFIG_FILE", "%s/rabbitmq.config", f);
    variable("RABBITMQ_PLUGINS_DIR", "%s/lib", f);
    variable("RABBITMQ_CONF_ENV_FILE", "%s/env.conf", f);
    variable("RABBITMQ_ENABLED_PLUGINS_FILE", "%s/plugins", f);
    variable("RABBITMQ_ALLOW_INPUT",
             "1"); /* runs the node itself, without a shell that watches it */
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
    WAIT_UNTIL(connects(server->epmd_port) || !is_alive(server->epmd, server, "epmd"));
}

/* With erl_call(1), which takes a hundredth of the time of rabbitmqctl(8). Its exit status is no
 * evidence. */
void server_eval(const struct server *server, const char *expression) {
    char line[1200];
    FILE *call;

    snprintf(
        line, sizeof(line),
        "HOME='%s/home' ERL_EPMD_PORT=%d erl_call -timeout %d -c idem -sname idem%d@localhost -e "
        ">'%s/call.log' 2>&1; grep -q '^{ok,' '%s/call.log'",
        server->folder, server->epmd_port, WAIT_LIMIT_S, server->port, server->folder,
        server->folder);
    call = popen(line, "w");
    if (call != NULL && fprintf(call, "%s.\n", expression) > 0 && pclose(call) == 0)
        return;
    fprintf(stderr, "# erl_call: %s failed: see %s/call.log\n", expression, server->folder);
    exit(1);
}

void server_settle(const struct server *server) {
    server_eval(server, "mnesia:sync_log(), [dets:sync(Table) || Table <- dets:all()]");
}

/* A port accepts connections before the node has started. Existing quorum queues find their
 * leaders then, except for those that were too young when the server was killed: these never do.
 * A new queue accepts a message. */
static void server_ready(const struct server *server) {
    struct client client;

    WAIT_UNTIL((connects(server->port) && connects(server->tls_port)) ||
               !is_alive(server->pid, server, "rabbitmq-server"));
    server_eval(server, "ok = rabbit_boot_state:wait_for(ready, " WAIT_MS "), "
                        "[catch ra:members(amqqueue:get_pid(Queue), 10000) || "
                        "Queue <- rabbit_amqqueue:list(), "
                        "amqqueue:get_type(Queue) =:= rabbit_quorum_queue]");
    client_open(&client, server->port);
    client_declare(&client, READY_QUEUE, true, NULL);
    client_publish(&client, READY_QUEUE, "");
    client_delete(&client, READY_QUEUE);
    client_close(&client);
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
    server_ready(server);
}

void server_start(struct server *server, const char *folder, bool syncs) {
    *server = (struct server){
        .port = port_free(),
        .tls_port = port_free(),
        .dist_port = port_free(),
        .epmd_port = port_free(),
        .syncs = syncs,
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
