/*
 * Runs nginx -T with -V. Fails if nginx cannot be started; kills it after a minute.
 */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/doctor/doctor_nginx.h"
#include "loop/spawn.h"

#define DUMP_MAX (32 << 20)
#define PATIENCE_MS 60000

static int nginx_dump_wait(pid_t pid) {
    int status = 0;

    for (int ms = 0; ms < PATIENCE_MS; ms += 10) {
        if (waitpid(pid, &status, WNOHANG) == pid)
            return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
        usleep(10000);
    }
    kill(pid, SIGKILL);
    (void)waitpid(pid, &status, 0);
    return -1;
}

/* Returns the content of the file, owned by the caller; NULL without memory, or if it is longer
   than DUMP_MAX. */
static char *nginx_dump_file_text(FILE *file, size_t *ret_len) {
    long len = fseek(file, 0, SEEK_END) == 0 ? ftell(file) : -1;
    char *text = len < 0 || len > DUMP_MAX ? NULL : calloc(1, (size_t)len + 1);

    rewind(file);
    if (text != NULL)
        *ret_len = fread(text, 1, (size_t)len, file);
    return text;
}

/* The workers' user if the configuration sets none: the one in the output of nginx -V, or nginx's
   own default. */
static void nginx_dump_compiled_user(FILE *err, char ret[NGINX_USER]) {
    size_t len;
    char *output = nginx_dump_file_text(err, &len),
         *at = output == NULL ? NULL : strstr(output, " --user=");

    if (at != NULL) {
        at += strlen(" --user=");
        snprintf(ret, NGINX_USER, "%.*s", (int)strcspn(at, " \n"), at);
    } else {
        snprintf(ret, NGINX_USER, "nobody");
    }
    free(output);
}

/* The last error in nginx's output, without level and process. */
static const char *nginx_dump_last_error(char *text) {
    const char *found = "it wrote no error";
    char *line, *level;

    while ((line = strsep(&text, "\n")) != NULL) {
        level = strstr(line, "[emerg] ");
        if (level == NULL)
            continue;
        found = level + strlen("[emerg] ");
        if (found[strspn(found, "0123456789#")] == ':')
            found = strchr(found, ' ') == NULL ? found : strchr(found, ' ') + 1;
    }
    return found;
}

char *nginx_dump(struct doctor *d, const char *path, size_t *ret_len, char ret_user[NGINX_USER],
                 int *ret_status) {
    const char *exe = d->values->nginx_exe == NULL ? "nginx" : d->values->nginx_exe;
    char *argv[] = {(char *)exe, "-V", "-T", "-c", (char *)path, NULL}, *text = NULL,
         *output = NULL;
    FILE *out = tmpfile(), *err = tmpfile();
    size_t output_len;
    pid_t pid;
    int rc = out == NULL || err == NULL ? errno : 0;

    if (rc == 0)
        rc = spawn_start(&(struct spawn){.argv = argv,
                                         .env = environ,
                                         .fds = {-1, fileno(out), fileno(err)},
                                         .not_after = INT64_MAX},
                         &pid);
    *ret_status = CLI_OK;
    if (rc != 0) {
        cli_say("doctor: cannot start %s: %s; set its path with --nginx-exe", exe, strerror(rc));
        *ret_status = CLI_NOT_FOUND;
    } else if (nginx_dump_wait(pid) == 0) {
        text = nginx_dump_file_text(out, ret_len);
        nginx_dump_compiled_user(err, ret_user);
        if (text == NULL)
            doctor_find(d, DOCTOR_UNSAFE, path, "limits", "examine its parts one by one",
                        "nginx -T writes more than %d MiB of it, or than there is memory for: "
                        "nothing of it is known",
                        DUMP_MAX >> 20);
    } else {
        output = nginx_dump_file_text(err, &output_len);
        doctor_find(d, DOCTOR_BROKEN, path, "nginx", "nginx -t -c FILE shows all of it",
                    "nginx refuses the configuration: %s",
                    output == NULL ? "" : nginx_dump_last_error(output));
        free(output);
    }
    if (out != NULL)
        fclose(out);
    if (err != NULL)
        fclose(err);
    return text;
}
