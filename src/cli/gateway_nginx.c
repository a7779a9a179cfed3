/*
 * nginx under `idem gateway`: the configuration is written and checked, nginx
 * is started in the foreground, and what signals ask for is passed on until it
 * ends.
 *
 * nginx has a process group of its own: Ctrl-C asks idem, which lets it finish
 * what it is at; nginx's own answer to SIGINT is to drop it. Its access log comes
 * through a pipe of ours, since /dev/stdout cannot be opened where stdout is a
 * socket or somebody else's. If idem is killed, the kernel sends nginx SIGQUIT:
 * it stops listening at once, ends what it is at, and is gone.
 *
 * Fails where the configuration is refused (and leaves it to be looked at), and
 * where nginx cannot be started or ends by itself.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/child.h"
#include "cli/gateway.h"

#define CONFIG "nginx.conf"
#define CHECK_CONFIG "check.conf"
#define CHECK_LOG "check.log"
#define CHECK_MAX ((size_t)64 * 1024)
#define SOCKET_MAX 107 /* bytes that the name of a socket's file has at most */

/* Writing it. */

static bool path_of(const struct gateway *g, const char *name, char ret[PATH_MAX]) {
    int n = snprintf(ret, PATH_MAX, "%s/%s", g->folder, name);

    return n > 0 && n < PATH_MAX;
}

/* In one step: nginx may be reading the one that was. */
static int config_write(const struct gateway *g, const char *name, const char *listen,
                        struct gateway_lines *lines) {
    char path[PATH_MAX], fresh[PATH_MAX];
    FILE *file = NULL;
    int fd = -1;
    bool bad;

    if (path_of(g, name, path) && path_of(g, CONFIG ".new", fresh))
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
    cli_say("gateway: cannot write nginx's configuration into %s: %s", g->folder, strerror(errno));
    return CLI_SYSTEM;
}

/* Starting. */

static void fd_become(int from, int to) {
    if (from == to)
        fcntl(to, F_SETFD, 0);
    else
        dup2(from, to);
}

/* Between fork and exec: async-signal-safe calls only. `output` is -1, or takes what it writes. */
_Noreturn static void nginx_become(const struct gateway *g, char *const *argv, int output,
                                   pid_t parent) {
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGQUIT);
    if (getppid() != parent)
        _exit(CLI_NOT_FOUND);
    if (output >= 0) {
        dup2(output, STDOUT_FILENO);
        dup2(output, STDERR_FILENO);
    }
    fd_become(g->log[1], GATEWAY_LOG_FD);
    cli_signals_restore(&g->signals);
    /* A reload that is asked for before nginx listens to signals must not end it; it sets its own
       handler later. */
    signal(SIGHUP, SIG_IGN);
    execv(argv[0], argv);
    _exit(CLI_NOT_FOUND);
}

static pid_t nginx_start(const struct gateway *g, bool check, int output) {
    char config[PATH_MAX];
    char *argv[] = {(char *)g->nginx,    "-p", (char *)g->folder, "-e", "stderr", "-c", config,
                    check ? "-t" : NULL, NULL};
    pid_t parent = getpid(), pid;

    if (!path_of(g, check ? CHECK_CONFIG : CONFIG, config))
        return -1;
    fflush(NULL);
    pid = fork();
    if (pid == 0)
        nginx_become(g, argv, output, parent);
    if (pid > 0)
        setpgid(pid, pid); /* here as well: whoever comes first */
    else
        cli_say("gateway: cannot start nginx: %s", strerror(errno));
    return pid;
}

/* While it runs. */

struct run {
    struct gateway *g;
    pid_t pid;
    bool check; /* it only reads its configuration */
    int asked;  /* how often it was asked to end */
    bool ended;
    int status;    /* as waitpid() has it */
    bool log_lost; /* nobody takes the log any more */
};

/* First it may finish what it is at; then not; then it is not asked any more. */
static void run_end(struct run *run) {
    run->asked++;
    if (run->check)
        kill(-run->pid, SIGKILL);
    else if (run->asked == 1)
        kill(run->pid, SIGQUIT);
    else if (run->asked == 2)
        kill(run->pid, SIGTERM);
    else
        kill(-run->pid, SIGKILL);
    if (run->asked == 1 && !run->check)
        cli_say("gateway: ending when the last request is answered; once more ends it at once");
}

static void run_reload(struct run *run) {
    /* A terminal that was closed says so with the same signal. */
    if (run->g->tty && !cli_has_tty()) {
        run_end(run);
        return;
    }
    if (run->check || run->asked > 0 ||
        config_write(run->g, CONFIG, run->g->listen.text, NULL) != CLI_OK)
        return;
    if (kill(run->pid, SIGHUP) == 0)
        cli_say("gateway: reloading");
}

static void run_signals(struct run *run) {
    struct signalfd_siginfo info;

    while (cli_signals_next(&run->g->signals, &info)) {
        switch (info.ssi_signo) {
        case SIGTERM:
        case SIGINT:
        case SIGQUIT:
            run_end(run);
            break;
        case SIGHUP:
            run_reload(run);
            break;
        case SIGCHLD:
            run->ended |= waitpid(run->pid, &run->status, WNOHANG) == run->pid;
            break;
        default:
            break;
        }
    }
}

/* Passes on what there is of the log; false: nothing for now. A pipe's worth is what stdout was
   asked to take, and it may be slow: it was looked at before. */
static bool log_pass(struct run *run) {
    char bytes[PIPE_BUF];
    ssize_t n = read(run->g->log[0], bytes, sizeof(bytes)), done;

    if (n <= 0)
        return false;
    for (ssize_t at = 0; at < n && !run->log_lost; at += done) {
        done = write(STDOUT_FILENO, bytes + at, (size_t)(n - at));
        if (done < 0 && errno == EINTR)
            done = 0;
        else if (done < 0 && errno == EAGAIN)
            done = poll(&(struct pollfd){.fd = STDOUT_FILENO, .events = POLLOUT}, 1, 1000) < 0;
        else if (done < 0)
            run->log_lost = true;
    }
    return true;
}

/* The log is read only while stdout takes it, so that a stopped terminal stops no signal. */
static void run_wait(struct run *run) {
    struct pollfd fds[] = {{.fd = run->g->signals.fd, .events = POLLIN},
                           {.fd = run->g->log[0], .events = POLLIN},
                           {.fd = -1, .events = POLLOUT}};
    bool full = false;

    while (!run->ended) {
        fds[1].fd = full ? -1 : run->g->log[0];
        fds[2].fd = full ? STDOUT_FILENO : -1;
        if (poll(fds, 3, -1) < 0 && errno != EINTR)
            return;
        if (fds[0].revents != 0)
            run_signals(run);
        if (full && fds[2].revents != 0)
            full = false;
        if (full || fds[1].fd < 0 || (fds[1].revents & POLLIN) == 0)
            continue;
        full = !run->log_lost &&
               poll(&(struct pollfd){.fd = STDOUT_FILENO, .events = POLLOUT}, 1, 0) == 0;
        if (!full)
            (void)log_pass(run);
    }
    while (log_pass(run))
        ;
}

/* Checking. */

/* What stands behind "nginx: [emerg] " or "DATE TIME [emerg] PID#TID: "; NULL in other lines, and
   in warnings: nginx says those again when it starts. */
static char *line_text(char *line) {
    static const char *const levels[] = {"[emerg] ", "[alert] ", "[crit] ", "[error] "};
    char *at, *text;

    for (size_t i = 0; i < sizeof(levels) / sizeof(levels[0]); i++) {
        at = strstr(line, levels[i]);
        if (at == NULL)
            continue;
        text = at + strlen(levels[i]);
        at = text + strspn(text, "0123456789#");
        return at != text && strncmp(at, ": ", 2) == 0 ? at + 2 : text;
    }
    return NULL;
}

/* Cuts off what says where it is; the line of our configuration, 0 if it is another file's or none.
   A guard as a whole is no flag's. */
static unsigned long place_cut(const struct gateway *g, char *text) {
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

/* What was wrong with which flag. */
static void entry_say(const struct gateway *g, const struct gateway_lines *lines, char *text) {
    const char *flag = lines->flag[place_cut(g, text)];
    struct idem_error err = {.code = IDEM_E_INVALID};
    char doing[64];
    size_t name;

    /* The directive's name says nothing that the flag's does not. */
    name = strspn(text, "abcdefghijklmnopqrstuvwxyz_");
    if (flag[0] != '\0' && strncmp(text, "idem_", 5) == 0 && strncmp(text + name, ": ", 2) == 0)
        text += name + 2;
    snprintf(err.text, sizeof(err.text), "%s", text);
    snprintf(doing, sizeof(doing), "gateway: %s", flag[0] == '\0' ? "nginx" : flag);
    (void)cli_say_error(doing, &err);
}

/* An entry of the log may have several lines: expressions are shown with what is wrong in them. */
static void check_say(const struct gateway *g, const struct gateway_lines *lines, int fd) {
    char *text = calloc(1, CHECK_MAX + 1), *entry = NULL, *end, *begun;
    ssize_t n = text == NULL ? -1 : pread(fd, text, CHECK_MAX, 0);

    for (char *at = text; n > 0 && *at != '\0'; at = end) {
        end = at + strcspn(at, "\n");
        if (*end != '\0')
            *end++ = '\0';
        begun = line_text(at);
        if (entry != NULL && begun == NULL && strncmp(at, "nginx: ", 7) != 0 &&
            strstr(at, " [warn] ") == NULL) {
            at[-1] = '\n'; /* it goes on */
            continue;
        }
        if (entry != NULL)
            entry_say(g, lines, entry);
        entry = begun;
    }
    if (entry != NULL)
        entry_say(g, lines, entry);
    free(text);
}

/* nginx listens even while it only checks, and somebody might take that for the gateway: it does
   so where nobody looks. */
static int check_config_write(const struct gateway *g, struct gateway_lines *lines) {
    char listen[PATH_MAX + 16];
    int n = snprintf(listen, sizeof(listen), "unix:%s/check", g->folder);

    memset(lines, 0, sizeof(*lines));
    return config_write(g, CHECK_CONFIG, n <= SOCKET_MAX ? listen : g->listen.text, lines);
}

static int config_check(struct gateway *g) {
    struct run run = {.g = g, .check = true};
    struct gateway_lines lines;
    char path[PATH_MAX];
    int fd = -1, status = check_config_write(g, &lines);

    if (status != CLI_OK)
        return status;
    status = CLI_SYSTEM;
    if (path_of(g, CHECK_LOG, path))
        fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0600);
    if (fd < 0) {
        cli_say("gateway: %s: %s", path, strerror(errno));
        return status;
    }
    run.pid = nginx_start(g, true, fd);
    if (run.pid > 0) {
        run_wait(&run);
        status = CLI_CONFIG;
        if (run.asked > 0) {
            status = 128 + SIGTERM;
        } else if (WIFEXITED(run.status) && WEXITSTATUS(run.status) == 0) {
            status = CLI_OK;
        } else if (WIFEXITED(run.status) && WEXITSTATUS(run.status) == CLI_NOT_FOUND) {
            cli_say("gateway: cannot start %s", g->nginx);
            status = CLI_NOT_FOUND;
        } else {
            check_say(g, &lines, fd);
            cli_say("gateway: nginx refuses the configuration, which is kept in %s/" CONFIG,
                    g->folder);
            g->folder[0] = '\0';
        }
    }
    close(fd);
    return status;
}

/* How it ended. */
static int run_status(const struct run *run) {
    if (WIFEXITED(run->status) && WEXITSTATUS(run->status) == 0)
        return CLI_OK;
    if (WIFSIGNALED(run->status)) {
        /* It may be asked before it listens. */
        if (run->asked > 0 && WTERMSIG(run->status) != SIGKILL)
            return CLI_OK;
        cli_say("gateway: nginx was ended by signal %d", WTERMSIG(run->status));
        return 128 + WTERMSIG(run->status);
    }
    cli_say("gateway: nginx ended with status %d", WEXITSTATUS(run->status));
    return CLI_SYSTEM;
}

static void hello_say(const struct gateway *g) {
    const struct cli_values *values = g->values;
    bool plain = strncmp(g->store, "lmdb:", 5) == 0; /* others' may hold a password */

    cli_say("gateway: %s%s before %s%s, remembered in %s",
            g->listen.port[0] == '\0' ? "" : "http://", g->listen.text, values->upstreams.at[0],
            values->upstreams.n > 1 ? " and others" : "",
            plain ? g->store : "the store that --store or IDEM_STORE names");
}

int gateway_serve(struct gateway *g) {
    struct run run = {.g = g};
    int status = config_write(g, CONFIG, g->listen.text, NULL);

    if (status == CLI_OK)
        status = config_check(g);
    if (status != CLI_OK)
        return status;
    hello_say(g);
    run.pid = nginx_start(g, false, -1);
    if (run.pid < 0)
        return CLI_SYSTEM;
    run_wait(&run);
    return run_status(&run);
}
