/*
 * Writes the audit one line at a time, each with one write(), because other processes append, too.
 * The line that begins a change is on the disk before the change is made; the other lines are
 * flushed when the command ends. Fails if a line cannot be written: then no further change begins.
 */
#include "cli/audit_file.h"

#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <syslog.h>
#include <time.h>
#include <unistd.h>

#include "store/store.h"

/* A user's name, or the number of a user without a name. */
static void audit_file_user_name(uid_t uid, char *buf, size_t size) {
    struct passwd *user = getpwuid(uid);

    if (user != NULL)
        snprintf(buf, size, "%s", user->pw_name);
    else
        snprintf(buf, size, "%lu", (unsigned long)uid);
}

/* The user who logged in before sudo or su, as the kernel recorded it; (uid_t)-1: not known. */
static uid_t audit_file_login_uid(void) {
    FILE *file = fopen("/proc/self/loginuid", "re");
    unsigned long uid = (unsigned long)(uid_t)-1;

    if (file != NULL && fscanf(file, "%lu", &uid) != 1) // NOLINT(cert-err34-c): the kernel's own
        uid = (unsigned long)(uid_t)-1;
    if (file != NULL)
        fclose(file);
    return (uid_t)uid;
}

/* O_NONBLOCK refuses a pipe without a reader, instead of waiting for one. */
static int audit_file_open(const char *path) {
    int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0640);

    if (fd >= 0)
        fcntl(fd, F_SETFL, O_APPEND);
    return fd;
}

/* Connects to the system's log directly: syslog(3) does not report if a line was accepted. */
static int audit_file_log_open(void) {
    struct sockaddr_un to = {.sun_family = AF_UNIX, .sun_path = "/dev/log"};
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);

    if (fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof(to)) == 0)
        return fd;
    close(fd);
    return -1;
}

/* True if output is discarded. A descriptor that was closed at the start is /dev/null by now. */
static bool audit_file_is_discarded(int fd) {
    struct stat there, nowhere;

    return fstat(fd, &there) < 0 || (S_ISCHR(there.st_mode) && stat("/dev/null", &nowhere) == 0 &&
                                     there.st_rdev == nowhere.st_rdev);
}

/* Opens the file, the log or stderr. Returns NULL, or a text that describes the error. */
static const char *audit_place_open(struct cli_audit *audit) {
    if (audit->path != NULL && audit->path[0] != '\0') {
        audit->fd = audit_file_open(audit->path);
        return audit->fd >= 0 ? NULL : errno == ENXIO ? "no process reads it" : strerror(errno);
    }
    audit->path = "/dev/log";
    audit->fd = audit_file_log_open();
    audit->log = audit->fd >= 0;
    if (audit->log)
        return NULL;
    audit->path = "stderr";
    audit->fd = STDERR_FILENO;
    return audit_file_is_discarded(audit->fd) ? "it is closed; name a file with --audit" : NULL;
}

int cli_audit_open(struct cli_audit *audit, const struct cli_values *values, const char *action) {
    const char *variable = getenv("IDEM_AUDIT"), *fault;
    uid_t login;
    int status;
    char *url = cli_store_url_given(values, &status);

    if (url == NULL)
        return status;
    *audit = (struct cli_audit){.action = action,
                                .force = values->force,
                                .path = values->audit != NULL ? values->audit : variable};
    (void)idem_url_public(url, audit->store, sizeof(audit->store));
    free(url);
    audit_file_user_name(getuid(), audit->who, sizeof(audit->who));
    login = audit_file_login_uid();
    if (login != (uid_t)-1 && login != getuid())
        audit_file_user_name(login, audit->login, sizeof(audit->login));
    signal(SIGPIPE, SIG_IGN); /* a reader that closes its pipe is a line that cannot be written */
    fault = audit_place_open(audit);
    audit->opened = fault == NULL;
    if (audit->opened)
        return CLI_OK;
    return cli_fail(CLI_IO, "%s: the audit, %s, cannot be written: %s; nothing was changed", action,
                    audit->path, fault);
}

static void audit_line_fill(const struct cli_audit *audit, struct idem_audit *line) {
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    line->time_ms = (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
    line->who = audit->who;
    line->login = audit->login;
    line->action = audit->action;
}

static struct idem_audit audit_line_make(const struct cli_audit *audit,
                                         const struct idem_entry *before, const char *after,
                                         const char *reason) {
    return (struct idem_audit){
        .record = before->hash,
        .prefix = before->prefix,
        .store = audit->store,
        .before = cli_entry_state(before),
        .attempt = before->attempt,
        .after = after,
        .force = audit->force,
        .label = before->label,
        .reason = reason,
    };
}

static void audit_line_begin(const struct cli_audit *audit, FILE *out) {
    time_t now = time(NULL);
    char when[32];
    struct tm tm;

    if (audit->fd == STDERR_FILENO)
        fputs("idem: audit: ", out);
    if (audit->log && strftime(when, sizeof(when), "%b %e %T", localtime_r(&now, &tm)) != 0)
        fprintf(out, "<%d>%s idem[%ld]: ", LOG_AUTH | LOG_NOTICE, when, (long)getpid());
}

void cli_audit_put(struct cli_audit *audit, struct idem_audit *line) {
    char *text = NULL;
    size_t len = 0;
    FILE *out = open_memstream(&text, &len);
    int fault = ENOMEM;

    audit_line_fill(audit, line);
    if (out != NULL) {
        audit_line_begin(audit, out);
        idem_audit_write(line, SIZE_MAX, out);
        if (fclose(out) == 0)
            fault = cli_write_all(audit->fd, text, audit->log ? len - 1 : len) ? 0 : errno;
    }
    if (audit->fault == 0)
        audit->fault = fault;
    free(text);
}

/* A file without a disk behind it (EINVAL) is as safe as it can be. */
static void audit_sync(struct cli_audit *audit) {
    if (audit->fault == 0 && fsync(audit->fd) < 0 && errno != EINVAL && errno != EROFS)
        audit->fault = errno;
}

int cli_audit_ready(struct cli_audit *audit) {
    audit_sync(audit);
    if (audit->fault == 0)
        return CLI_OK;
    cli_message("%s: the audit, %s, cannot be written: %s; nothing is changed without it",
                audit->action, audit->path, strerror(audit->fault));
    audit->fault_reported = true;
    return CLI_IO;
}

int cli_audit_begin(struct cli_audit *audit, const struct idem_entry *before, size_t n,
                    const char *after, const char *reason) {
    for (size_t i = 0; i < n && audit->fault == 0; i++) {
        struct idem_audit line = audit_line_make(audit, &before[i], after, reason);

        line.result = "begun";
        cli_audit_put(audit, &line);
    }
    return cli_audit_ready(audit);
}

void cli_audit_line(struct cli_audit *audit, const struct idem_entry *before, const char *after,
                    const char *reason, const struct idem_error *err) {
    int code = err == NULL ? 0 : err->code;
    struct idem_audit line = audit_line_make(audit, before, after, reason);

    line.result = idem_audit_result(code);
    if (code != 0) {
        line.after = code == IDEM_E_UNKNOWN ? "unknown" : line.before;
        line.refused = err->text;
    }
    cli_audit_put(audit, &line);
}

int cli_audit_close(struct cli_audit *audit) {
    if (!audit->opened)
        return CLI_OK;
    audit_sync(audit);
    if (audit->fd != STDERR_FILENO && close(audit->fd) < 0 && audit->fault == 0)
        audit->fault = errno;
    audit->opened = false;
    if (audit->fault == 0)
        return CLI_OK;
    if (!audit->fault_reported)
        cli_message(
            "%s: the end of the audit could not be written to %s: %s; what is begun there and "
            "has no end may have been changed",
            audit->action, audit->path, strerror(audit->fault));
    return CLI_IO;
}
