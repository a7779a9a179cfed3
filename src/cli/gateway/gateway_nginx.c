/*
 * Runs nginx for `idem gateway`: writes the configuration and has nginx check it, starts nginx in
 * the foreground, and passes signals on until it ends.
 *
 * nginx has its own process group: Ctrl-C reaches idem, which lets nginx finish its requests,
 * whereas nginx itself drops them on SIGINT. Its access log passes through a pipe of idem's, since
 * /dev/stdout cannot be opened where stdout is a socket or belongs to another user. If idem is
 * killed, the kernel sends SIGQUIT to nginx, which then stops listening, finishes its requests and
 * ends.
 *
 * Fails if nginx refuses the configuration (which is kept for inspection), cannot be started or
 * ends by itself.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/bytes.h"
#include "cli/gateway/gateway.h"

#define CONFIG "nginx.conf"
#define CHECK_CONFIG "check.conf"
#define CHECK_LOG "check.log"
#define CHECK_MAX ((size_t)64 * 1024)
#define SOCKET_MAX 107 /* the longest path of a socket, in bytes */

/* The configuration file. */

static bool gateway_path(const struct gateway *g, const char *name, char ret[PATH_MAX]) {
    int n = snprintf(ret, PATH_MAX, "%s/%s", g->folder, name);

    return n > 0 && n < PATH_MAX;
}

/* Replaces the file in one step: nginx may be reading the old one. */
static int gateway_config_save(const struct gateway *g, const char *name, const char *listen,
                               struct gateway_lines *lines) {
    char path[PATH_MAX], fresh[PATH_MAX];
    FILE *file = NULL;
    int fd = -1;
    bool bad;

    if (gateway_path(g, name, path) && gateway_path(g, CONFIG ".new", fresh))
        fd = open(fresh, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd >= 0)
        file = fdopen(fd, "w");
    if (file != NULL) {
        gateway_config_write(g, listen, file, lines);
        bad = ferror(file) != 0;
        bad |= fclose(file) != 0;
        if (!bad && rename(fresh, path) == 0)
            return CLI_OK;
    } else if (fd >= 0) {
        close(fd);
    }
    return cli_fail(CLI_SYSTEM, "gateway: cannot write nginx's configuration into %s: %s",
                    g->folder, strerror(errno));
}

/* Starting. */

static void gateway_nginx_fd_move(int from, int to) {
    if (from == to)
        fcntl(to, F_SETFD, 0);
    else
        dup2(from, to);
}

/* Runs between fork and exec: async-signal-safe calls only. `output` is -1, or receives nginx's
   output. */
_Noreturn static void gateway_nginx_exec(const struct gateway *g, char *const *argv, int output,
                                         pid_t parent) {
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGQUIT);
    if (getppid() != parent)
        _exit(CLI_NOT_FOUND);
    if (output >= 0) {
        dup2(output, STDOUT_FILENO);
        dup2(output, STDERR_FILENO);
    }
    gateway_nginx_fd_move(g->log[1], GATEWAY_LOG_FD);
    signals_restore(&g->signals);
    /* A reload that is requested before nginx installs its handlers must not end nginx. */
    signal(SIGHUP, SIG_IGN);
    execv(argv[0], argv);
    _exit(CLI_NOT_FOUND);
}

static pid_t gateway_nginx_start(const struct gateway *g, bool check, int output) {
    char config[PATH_MAX];
    char *argv[] = {(char *)g->nginx,    "-p", (char *)g->folder, "-e", "stderr", "-c", config,
                    check ? "-t" : NULL, NULL};
    pid_t parent = getpid(), pid;

    if (!gateway_path(g, check ? CHECK_CONFIG : CONFIG, config))
        return -1;
    fflush(NULL);
    pid = fork();
    if (pid == 0)
        gateway_nginx_exec(g, argv, output, parent);
    if (pid > 0)
        setpgid(pid, pid); /* the child does the same: one of them is first */
    else
        cli_message("gateway: cannot start nginx: %s", strerror(errno));
    return pid;
}

/* The nginx process: it serves, or only checks its configuration. */

struct gateway_process {
    struct gateway *g;
    pid_t pid;
    bool check; /* nginx only checks its configuration */
    int asked;  /* how often a signal has asked it to end */
    bool ended;
    int status;    /* in waitpid()'s form */
    bool log_lost; /* stdout takes no more of the log */
};

/* The first request lets nginx finish its work, the second one ends it, further ones kill it. */
static void gateway_process_stop(struct gateway_process *process) {
    process->asked++;
    if (process->check)
        kill(-process->pid, SIGKILL);
    else if (process->asked == 1)
        kill(process->pid, SIGQUIT);
    else if (process->asked == 2)
        kill(process->pid, SIGTERM);
    else
        kill(-process->pid, SIGKILL);
    if (process->asked == 1 && !process->check)
        cli_message("gateway: ending when the last request is answered; once more ends it at once");
}

static void gateway_process_reload(struct gateway_process *process) {
    /* A terminal that was closed sends the same signal. */
    if (process->g->tty && !signals_has_tty()) {
        gateway_process_stop(process);
        return;
    }
    if (process->check || process->asked > 0 ||
        gateway_config_save(process->g, CONFIG, process->g->listen.text, NULL) != CLI_OK)
        return;
    if (kill(process->pid, SIGHUP) == 0)
        cli_message("gateway: reloading");
}

static void gateway_process_signals_read(struct gateway_process *process) {
    struct signalfd_siginfo info;

    while (signals_next(&process->g->signals, &info)) {
        switch (info.ssi_signo) {
        case SIGTERM:
        case SIGINT:
        case SIGQUIT:
            gateway_process_stop(process);
            break;
        case SIGHUP:
            gateway_process_reload(process);
            break;
        case SIGCHLD:
            process->ended |= waitpid(process->pid, &process->status, WNOHANG) == process->pid;
            break;
        default:
            break;
        }
    }
}

/* Passes on one piece of the log; false: nothing for now. The caller has checked that stdout takes
   bytes; a slow stdout may still delay a piece, which is at most PIPE_BUF long. */
static bool gateway_process_log_pass(struct gateway_process *process) {
    char bytes[PIPE_BUF];
    ssize_t n = read(process->g->log[0], bytes, sizeof(bytes)), done;

    if (n <= 0)
        return false;
    for (ssize_t at = 0; at < n && !process->log_lost; at += done) {
        done = write(STDOUT_FILENO, bytes + at, (size_t)(n - at));
        if (done < 0 && errno == EINTR)
            done = 0;
        else if (done < 0 && errno == EAGAIN)
            done = poll(&(struct pollfd){.fd = STDOUT_FILENO, .events = POLLOUT}, 1, 1000) < 0;
        else if (done < 0)
            process->log_lost = true;
    }
    return true;
}

/* Reads the log only while stdout takes it, so that a stopped terminal does not delay signals. */
static void gateway_process_wait(struct gateway_process *process) {
    struct pollfd fds[] = {{.fd = process->g->signals.fd, .events = POLLIN},
                           {.fd = process->g->log[0], .events = POLLIN},
                           {.fd = -1, .events = POLLOUT}};
    bool full = false;

    while (!process->ended) {
        fds[1].fd = full ? -1 : process->g->log[0];
        fds[2].fd = full ? STDOUT_FILENO : -1;
        if (poll(fds, 3, -1) < 0 && errno != EINTR)
            return;
        if (fds[0].revents != 0)
            gateway_process_signals_read(process);
        if (full && fds[2].revents != 0)
            full = false;
        if (full || fds[1].fd < 0 || (fds[1].revents & POLLIN) == 0)
            continue;
        full = !process->log_lost &&
               poll(&(struct pollfd){.fd = STDOUT_FILENO, .events = POLLOUT}, 1, 0) == 0;
        if (!full)
            (void)gateway_process_log_pass(process);
    }
    while (gateway_process_log_pass(process))
        ;
}

/* Checking. */

/* The text after "nginx: [emerg] " or "DATE TIME [emerg] PID#TID: "; NULL in other lines. Warnings
   are left out, since nginx repeats them when it starts. */
static char *gateway_nginx_line_text(char *line) {
    static const char *const levels[] = {"[emerg] ", "[alert] ", "[crit] ", "[error] "};
    char *at, *text;

    for (size_t i = 0; i < sizeof(levels) / sizeof(levels[0]); i++) {
        at = strstr(line, levels[i]);
        if (at == NULL)
            continue;
        text = at + strlen(levels[i]);
        at = text + strspn(text, "0123456789#");
        return at != text && idem_text_begins(at, ": ") ? at + 2 : text;
    }
    return NULL;
}

/* Cuts off the file and line at the end of a message. Returns the line of the gateway's
   configuration; 0 if the message is about another file, about none, or about the guard as a whole,
   which no single flag has caused. */
static unsigned long gateway_position_cut(const struct gateway *g, char *text) {
    static const char *const guards[] = {", for the guard", "; for the guard"};
    size_t len, guard = strlen(guards[0]);
    char place[PATH_MAX + 16], *at;
    unsigned long line;

    snprintf(place, sizeof(place), " in %s/" CHECK_CONFIG ":", g->folder);
    at = strstr(text, place);
    if (at == NULL)
        return 0;
    line = strtoul(at + strlen(place), NULL, 10);
    *at = '\0';
    len = (size_t)(at - text);
    for (size_t i = 0; i < 2 && len > guard; i++) {
        if (strcmp(at - guard, guards[i]) != 0)
            continue;
        at[-(ptrdiff_t)guard] = '\0';
        return 0;
    }
    return line <= GATEWAY_LINES ? line : 0;
}

/* Reports one message, under the name of its flag. */
static void gateway_message_report(const struct gateway *g, const struct gateway_lines *lines,
                                   char *text) {
    const char *flag = lines->flag[gateway_position_cut(g, text)];
    struct idem_error err = {.code = IDEM_E_INVALID};
    char doing[64];
    size_t name;

    /* The directive's name adds nothing to the name of the flag. */
    name = strspn(text, "abcdefghijklmnopqrstuvwxyz_");
    if (flag[0] != '\0' && idem_text_begins(text, "idem_") && idem_text_begins(text + name, ": "))
        text += name + 2;
    snprintf(err.text, sizeof(err.text), "%s", text);
    snprintf(doing, sizeof(doing), "gateway: %s", flag[0] == '\0' ? "nginx" : flag);
    (void)cli_message_error(doing, &err);
}

/* A message in the log may have several lines: an expression is shown with a mark under the
   error. */
static void gateway_check_report(const struct gateway *g, const struct gateway_lines *lines,
                                 int fd) {
    char *text = calloc(1, CHECK_MAX + 1), *entry = NULL, *end, *begun;
    ssize_t n = text == NULL ? -1 : pread(fd, text, CHECK_MAX, 0);

    for (char *at = text; n > 0 && *at != '\0'; at = end) {
        end = at + strcspn(at, "\n");
        if (*end != '\0')
            *end++ = '\0';
        begun = gateway_nginx_line_text(at);
        if (entry != NULL && begun == NULL && !idem_text_begins(at, "nginx: ") &&
            strstr(at, " [warn] ") == NULL) {
            at[-1] = '\n'; /* the message continues */
            continue;
        }
        if (entry != NULL)
            gateway_message_report(g, lines, entry);
        entry = begun;
    }
    if (entry != NULL)
        gateway_message_report(g, lines, entry);
    free(text);
}

/* nginx listens even while it only checks, and a client might take that for the gateway. So it
   listens on a private socket then. */
static int gateway_check_config_save(const struct gateway *g, struct gateway_lines *lines) {
    char listen[PATH_MAX + 16];
    int n = snprintf(listen, sizeof(listen), "unix:%s/check", g->folder);

    memset(lines, 0, sizeof(*lines));
    return gateway_config_save(g, CHECK_CONFIG, n <= SOCKET_MAX ? listen : g->listen.text, lines);
}

static int gateway_config_check(struct gateway *g) {
    struct gateway_process process = {.g = g, .check = true};
    struct gateway_lines lines;
    char path[PATH_MAX];
    int fd = -1, status = gateway_check_config_save(g, &lines);

    if (status != CLI_OK)
        return status;
    status = CLI_SYSTEM;
    if (gateway_path(g, CHECK_LOG, path))
        fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0600);
    if (fd < 0) {
        cli_message("gateway: %s: %s", path, strerror(errno));
        return status;
    }
    process.pid = gateway_nginx_start(g, true, fd);
    if (process.pid > 0) {
        gateway_process_wait(&process);
        status = CLI_CONFIG;
        if (process.asked > 0) {
            status = 128 + SIGTERM;
        } else if (WIFEXITED(process.status) && WEXITSTATUS(process.status) == 0) {
            status = CLI_OK;
        } else if (WIFEXITED(process.status) && WEXITSTATUS(process.status) == CLI_NOT_FOUND) {
            cli_message("gateway: cannot start %s", g->nginx);
            status = CLI_NOT_FOUND;
        } else {
            gateway_check_report(g, &lines, fd);
            cli_message("gateway: nginx refuses the configuration, which is kept in %s/" CONFIG,
                        g->folder);
            g->folder[0] = '\0';
        }
    }
    close(fd);
    return status;
}

/* Reports how nginx ended; returns the exit status. */
static int gateway_process_status(const struct gateway_process *process) {
    if (WIFEXITED(process->status) && WEXITSTATUS(process->status) == 0)
        return CLI_OK;
    if (WIFSIGNALED(process->status)) {
        /* A signal to end may reach nginx before it has installed its handlers. */
        if (process->asked > 0 && WTERMSIG(process->status) != SIGKILL)
            return CLI_OK;
        cli_message("gateway: nginx was ended by signal %d", WTERMSIG(process->status));
        return 128 + WTERMSIG(process->status);
    }
    return cli_fail(CLI_SYSTEM, "gateway: nginx ended with status %d",
                    WEXITSTATUS(process->status));
}

static void gateway_start_report(const struct gateway *g) {
    const struct cli_values *values = g->values;
    bool plain = cli_store_kind(g->store) == CLI_STORE_LMDB; /* other URLs may contain a password */

    cli_message("gateway: %s%s before %s%s, remembered in %s",
                g->listen.port[0] == '\0' ? "" : "http://", g->listen.text, values->upstreams.at[0],
                values->upstreams.n > 1 ? " and others" : "",
                plain ? g->store : "the store that --store or IDEM_STORE names");
}

int gateway_serve(struct gateway *g) {
    struct gateway_process process = {.g = g};
    int status = gateway_config_save(g, CONFIG, g->listen.text, NULL);

    if (status == CLI_OK)
        status = gateway_config_check(g);
    if (status != CLI_OK)
        return status;
    gateway_start_report(g);
    process.pid = gateway_nginx_start(g, false, -1);
    if (process.pid < 0)
        return CLI_SYSTEM;
    gateway_process_wait(&process);
    return gateway_process_status(&process);
}
