/*
 * Writes the audit. A file is appended to, a line at a time, and is on the disk when the command
 * ends. Fails where the file cannot be opened or written.
 */
#include "cli/audit.h"

#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <syslog.h>
#include <time.h>
#include <unistd.h>

#include "store/store.h"

/* A user by name, or by number where there is none. */
static void user_name(uid_t uid, char *buf, size_t size) {
    struct passwd *user = getpwuid(uid);

    if (user != NULL)
        snprintf(buf, size, "%s", user->pw_name);
    else
        snprintf(buf, size, "%lu", (unsigned long)uid);
}

/* Who had logged in before sudo or su, as the kernel remembers it; (uid_t)-1: it does not. */
static uid_t login_uid(void) {
    FILE *file = fopen("/proc/self/loginuid", "re");
    unsigned long uid = (unsigned long)(uid_t)-1;

    if (file != NULL && fscanf(file, "%lu", &uid) != 1) // NOLINT(cert-err34-c): the kernel's own
        uid = (unsigned long)(uid_t)-1;
    if (file != NULL)
        fclose(file);
    return (uid_t)uid;
}

static int file_open(struct cli_audit *audit) {
    int fd = open(audit->path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0640);

    audit->file = fd < 0 ? NULL : fdopen(fd, "a");
    if (audit->file != NULL)
        return CLI_OK;
    cli_say("%s: the audit, %s, cannot be written: %s; nothing was changed", audit->action,
            audit->path, strerror(errno));
    if (fd >= 0)
        close(fd);
    return CLI_IO;
}

int cli_audit_open(struct cli_audit *audit, const struct cli_values *values, const char *action) {
    const char *variable = getenv("IDEM_AUDIT");
    struct stat log;
    uid_t login;
    int status;
    char *url = cli_store_url_said(values, &status);

    if (url == NULL)
        return status;
    *audit = (struct cli_audit){.action = action,
                                .force = values->force,
                                .path = values->audit != NULL ? values->audit : variable};
    (void)idem_url_public(url, audit->store, sizeof(audit->store));
    free(url);
    user_name(getuid(), audit->who, sizeof(audit->who));
    login = login_uid();
    if (login != (uid_t)-1 && login != getuid())
        user_name(login, audit->login, sizeof(audit->login));
    if (audit->path != NULL && audit->path[0] != '\0')
        return file_open(audit);
    audit->syslog = stat("/dev/log", &log) == 0 && S_ISSOCK(log.st_mode);
    if (audit->syslog)
        openlog("idem", LOG_PID, LOG_AUTH);
    return CLI_OK;
}

static void line_fill(const struct cli_audit *audit, struct idem_audit *line) {
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    line->time_ms = (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
    line->who = audit->who;
    line->login = audit->login;
    line->action = audit->action;
}

void cli_audit_put(struct cli_audit *audit, struct idem_audit *line) {
    char *text = NULL;
    size_t len = 0;
    FILE *out = open_memstream(&text, &len);

    line_fill(audit, line);
    if (out != NULL)
        idem_audit_write(line, SIZE_MAX, out);
    if (out == NULL || fclose(out) != 0) {
        audit->failed = true;
    } else if (audit->file != NULL) { /* in one piece: others append, too */
        audit->failed |= fwrite(text, 1, len, audit->file) != len || fflush(audit->file) != 0;
    } else if (audit->syslog) {
        syslog(LOG_NOTICE, "%.*s", (int)len - 1, text);
    } else {
        fprintf(stderr, "idem: audit: %s", text);
    }
    free(text);
}

void cli_audit_line(struct cli_audit *audit, const struct idem_entry *before, const char *after,
                    const char *reason, const struct idem_error *err) {
    int code = err == NULL ? 0 : err->code;
    struct idem_audit line = {
        .result = idem_audit_result(code),
        .record = before->hash,
        .prefix = before->prefix,
        .store = audit->store,
        .before = cli_entry_state(before),
        .attempt = before->attempt,
        .after = code == 0                ? after
                 : code == IDEM_E_UNKNOWN ? "unknown"
                                          : cli_entry_state(before),
        .force = audit->force,
        .label = before->label,
        .reason = reason,
        .refused = err == NULL ? NULL : err->text,
    };

    cli_audit_put(audit, &line);
}

int cli_audit_close(struct cli_audit *audit) {
    if (audit->file != NULL)
        audit->failed |= fsync(fileno(audit->file)) < 0 && errno != EINVAL;
    if (audit->file != NULL)
        audit->failed |= fclose(audit->file) != 0;
    audit->file = NULL;
    if (audit->syslog)
        closelog();
    if (!audit->failed)
        return CLI_OK;
    cli_say("%s: not all of the audit could be written%s%s", audit->action,
            audit->path == NULL ? "" : " to ", audit->path == NULL ? "" : audit->path);
    return CLI_IO;
}
