/*
 * One process per message. Nothing here blocks: the body is in memory before the process
 * begins, and its end is a descriptor on the loop; its output goes past us. If it cannot be
 * started (fork, memory, descriptors, the lease), nothing was begun, and no attempt is
 * counted.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/chars.h"
#include "base/error.h"
#include "queue/handler.h"
#include "queue/handler/handler_json.h"
#include "queue/handler/handler_open.h"
#include "queue/handler/handler_process.h"

/*
 * Builds the environment: one block with the pointers and, behind them, the texts of our own
 * variables. Fails only without memory. If an outer idem has set such variables for its own
 * message, they are left out.
 */

#define HANDLER_VARIABLES_MAX 131071 /* the kernel accepts no longer string either */
#define HANDLER_HEADERS_MAX 256      /* limit for headers with a variable of their own */

#define OWN_MAX 16       /* variables beside the headers */
#define OMITTED_MAX 1024 /* bytes of their names */
#define NAME_MAX_LEN 128 /* for a header's variable */
#define SPARE 8192       /* bytes left to the system */
#define LEAST 8192

static const char prefix[] = "IDEM_HEADER_";

static const char *const names[] = {
    "IDEM_KEY",         "IDEM_KEY_HASH",   "IDEM_ATTEMPT",      "IDEM_QUEUE",
    "IDEM_TRACE",       "IDEM_MESSAGE_ID", "IDEM_CONTENT_TYPE", "IDEM_PROPERTIES",
    "IDEM_REDELIVERED", "IDEM_HEADERS",    "IDEM_OMITTED",      NULL,
};

struct variables {
    char **env;
    size_t n, first; /* number of pointers; index of the first header */
    char *text;
    size_t len, size;
    char omitted[OMITTED_MAX];
    size_t omitted_len;
};

static bool variables_is_own(const char *variable) {
    if (idem_text_begins(variable, prefix))
        return true;
    for (size_t i = 0; names[i] != NULL; i++) {
        size_t len = strlen(names[i]);

        if (strncmp(variable, names[i], len) == 0 && variable[len] == '=')
            return true;
    }
    return false;
}

/* A list of names, which ends in "..." if it would be too long. */
static void variables_omit(struct variables *variables, const char *name) {
    size_t len = strlen(name), at = variables->omitted_len;

    if (at + len + 1 + sizeof(",...") > OMITTED_MAX) {
        name = "...";
        len = 3;
        if (at >= len && strcmp(variables->omitted + at - len, name) == 0)
            return;
    }
    if (at > 0)
        variables->omitted[at++] = ',';
    memcpy(variables->omitted + at, name, len + 1);
    variables->omitted_len = at + len;
}

/* Begins a variable. Its value is written next, then variables_end() is called. */
static struct idem_out variables_begin(const struct variables *variables, const char *name) {
    struct idem_out out = {.buf = variables->text + variables->len,
                           .size = variables->size - variables->len};

    idem_out_text(&out, name);
    idem_out_put(&out, "=", 1);
    return out;
}

/* A variable takes its bytes and a pointer of the system's room: the pointers are stored elsewhere,
   but count. */
static void variables_end(struct variables *variables, const char *name, struct idem_out *out) {
    idem_out_put(out, "", 1);
    if (variables->len + out->len + sizeof(char *) > variables->size) {
        variables_omit(variables, name);
        return;
    }
    variables->env[variables->n++] = variables->text + variables->len;
    variables->len += out->len;
    variables->size -= sizeof(char *);
}

static void variables_put(struct variables *variables, const char *name, struct idem_bytes value) {
    struct idem_out out = variables_begin(variables, name);

    if (value.len > 0 && memchr(value.at, '\0', value.len) != NULL) {
        variables_omit(variables, name);
        return;
    }
    idem_out_put(&out, value.at, value.len);
    variables_end(variables, name, &out);
}

static void variables_put_text(struct variables *variables, const char *name, const char *value) {
    variables_put(variables, name, idem_bytes_of(value));
}

static void variables_put_property(struct variables *variables, const char *name,
                                   const struct queue_message *message, const char *property) {
    const struct queue_field *field = queue_message_property(message, property);

    if (field != NULL && !field->json)
        variables_put(variables, name, field->value);
}

static void variables_put_fields(struct variables *variables, const char *name,
                                 const struct queue_field *list, size_t n) {
    struct idem_out out = variables_begin(variables, name);
    struct handler_fields fields;

    if (!handler_fields_init(&fields, list, n)) {
        variables_omit(variables, name);
        return;
    }
    handler_json_fields(&out, &fields);
    handler_fields_release(&fields);
    variables_end(variables, name, &out);
}

/* Makes the variable's name of a header; false if the header's name is empty or too long. */
static bool variables_spell(struct idem_bytes header, char out[NAME_MAX_LEN]) {
    size_t at = sizeof(prefix) - 1;

    if (header.len == 0 || header.len >= NAME_MAX_LEN - at)
        return false;
    memcpy(out, prefix, at);
    for (size_t i = 0; i < header.len; i++) {
        char c = (char)header.at[i];

        if (idem_is_lower(c))
            out[at++] = (char)(c & ~0x20);
        else
            out[at++] = idem_is_alpha(c) || idem_is_digit(c) ? c : '_';
    }
    out[at] = '\0';
    return true;
}

static bool variables_has_name(const struct variables *variables, const char *name) {
    size_t len = strlen(name);

    for (size_t i = variables->first; i < variables->n; i++)
        if (strncmp(variables->env[i], name, len) == 0 && variables->env[i][len] == '=')
            return true;
    return false;
}

static void variables_put_headers(struct variables *variables,
                                  const struct queue_message *message) {
    char name[NAME_MAX_LEN];
    size_t n = 0;

    variables->first = variables->n;
    for (size_t i = 0; i < message->headers_n; i++) {
        const struct queue_field *header = &message->headers[i];

        if (header->json || !variables_spell(header->name, name))
            continue;
        if (n++ >= HANDLER_HEADERS_MAX || variables_has_name(variables, name))
            variables_omit(variables, name);
        else
            variables_put(variables, name, header->value);
    }
}

static void variables_put_all(struct variables *variables, const struct queue_run *run) {
    const struct queue_message *message = run->message;
    char number[16];

    variables_put_text(variables, "IDEM_KEY_HASH", run->hash);
    snprintf(number, sizeof(number), "%" PRIu32, run->attempt);
    variables_put_text(variables, "IDEM_ATTEMPT", number);
    variables_put_text(variables, "IDEM_QUEUE", message->queue == NULL ? "" : message->queue);
    variables_put_text(variables, "IDEM_TRACE", run->trace);
    variables_put_text(variables, "IDEM_REDELIVERED", message->redelivered ? "1" : "0");
    variables_put(variables, "IDEM_KEY", (struct idem_bytes){run->key, run->key_len});
    variables_put_property(variables, "IDEM_MESSAGE_ID", message, "message_id");
    variables_put_property(variables, "IDEM_CONTENT_TYPE", message, "content_type");
    variables_put_fields(variables, "IDEM_PROPERTIES", message->properties, message->properties_n);
    variables_put_fields(variables, "IDEM_HEADERS", message->headers, message->headers_n);
    variables_put_headers(variables, message);
    if (variables->omitted_len > 0) {
        variables->size += OMITTED_MAX + 64; /* the reserve for this variable */
        variables_put_text(variables, "IDEM_OMITTED", variables->omitted);
    }
}

/* The room that the system has left beside the inherited variables; *ret_n is their number. */
static size_t variables_room(size_t args_len, size_t *ret_n) {
    long system = sysconf(_SC_ARG_MAX);
    size_t used = args_len + SPARE, n = 0, left;

    for (; environ != NULL && environ[n] != NULL; n++)
        used += strlen(environ[n]) + 1 + sizeof(char *);
    *ret_n = n;
    left = system > 0 && (size_t)system > used ? (size_t)system - used : 0;
    if (left > HANDLER_VARIABLES_MAX)
        return HANDLER_VARIABLES_MAX;
    /* With less room exec(3) fails anyway, with a clear error. */
    return left < LEAST ? LEAST : left;
}

/* The whole environment, for a program with `args_len` bytes of arguments. NULL without memory.
   Inherited variables are borrowed: our environment must not change while it is used. */
static char **handler_variables(const struct queue_run *run, size_t args_len) {
    struct variables variables = {0};
    size_t inherited, size = variables_room(args_len, &inherited), pointers;

    pointers = inherited + OWN_MAX + HANDLER_HEADERS_MAX + 1;
    variables.env = malloc(pointers * sizeof(*variables.env) + size);
    if (variables.env == NULL)
        return NULL;
    variables.text = (char *)(variables.env + pointers);
    variables.size = size - (OMITTED_MAX + 64);
    for (size_t i = 0; i < inherited; i++)
        if (!variables_is_own(environ[i]))
            variables.env[variables.n++] = environ[i];
    variables_put_all(&variables, run);
    variables.env[variables.n] = NULL;
    return variables.env;
}

#define REASON_MAX 160

/* Some systems refuse files in memory without this flag; older ones do not know it. */
#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008u
#endif

struct exec_slot {
    struct exec *exec;
    struct handler_process process;
    struct idem_task report_task; /* reports a run that was not begun */
    struct queue_run *run;
    bool cancelled;
    char reason[REASON_MAX];
    struct exec_slot *next; /* in the list of free slots */
};

struct exec {
    struct idem_loop *loop;
    struct idem_epoll_set epoll_set;
    struct handler_program program;
    char *command;
    struct handler_rules on_exit;
    struct exec_slot *free;
    unsigned workers;
    struct exec_slot slots[];
};

/* The last access to a slot: the callback may begin the next run with it. */
static void exec_slot_report(struct exec_slot *slot, enum queue_result result, int status) {
    struct queue_run *run = slot->run;
    struct queue_outcome outcome = {.result = result, .status = status};
    char reason[REASON_MAX];

    memcpy(reason, slot->reason, sizeof(reason));
    outcome.reason = result == QUEUE_DONE ? NULL : reason;
    slot->run = NULL;
    slot->next = slot->exec->free;
    slot->exec->free = slot;
    run->finished(run, &outcome);
}

static void exec_slot_unbegun(struct idem_task *task) {
    exec_slot_report(idem_container_of(task, struct exec_slot, report_task), QUEUE_UNBEGUN, 0);
}

static void exec_slot_ended(struct handler_process *process, const struct spawn_end *end) {
    struct exec_slot *slot = idem_container_of(process, struct exec_slot, process);
    enum queue_result result = QUEUE_UNKNOWN;
    char how[HANDLER_END_TEXT];

    if (!end->signalled && !slot->cancelled)
        result = handler_rule(&slot->exec->on_exit, end->number);
    snprintf(slot->reason, sizeof(slot->reason), "%s%s",
             slot->cancelled ? "it was made to end: " : "", handler_process_end_text(end, how));
    exec_slot_report(slot, result, spawn_end_status(end));
}

static bool exec_write_all(int fd, struct idem_bytes bytes) {
    for (size_t at = 0; at < bytes.len;) {
        ssize_t n = write(fd, bytes.at + at, bytes.len - at);

        if (n < 0 && errno != EINTR)
            return false;
        at += n > 0 ? (size_t)n : 0;
    }
    return lseek(fd, 0, SEEK_SET) == 0;
}

/* The body as a private sealed file; -1 with errno. */
static int exec_body_open(struct idem_bytes body) {
    const unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
    int fd = memfd_create("idem-message", flags | MFD_NOEXEC_SEAL), why;

    if (fd < 0 && errno == EINVAL)
        fd = memfd_create("idem-message", flags);
    if (fd < 0)
        return -1;
    if (exec_write_all(fd, body) &&
        fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE) == 0)
        return fd;
    why = errno;
    close(fd);
    errno = why;
    return -1;
}

static int exec_slot_spawn(struct exec_slot *slot, int body) {
    const struct handler_program *program = &slot->exec->program;
    char **env = handler_variables(slot->run, strlen(slot->exec->command));
    struct spawn how = {
        .env = env,
        .signals = program->signals,
        .fds = {body, -1, -1},
        .die_with = program->die_with,
        .not_after = slot->run->not_after,
    };
    int why = ENOMEM;

    if (env != NULL)
        why = handler_process_start(&slot->process, slot->exec->command, &how);
    free(env);
    return why;
}

static void exec_begin(void *data, struct queue_run *run) {
    struct exec *exec = data;
    struct exec_slot *slot = exec->free;
    int body, why;

    if (slot == NULL) /* the caller exceeded `workers` */
        abort();
    exec->free = slot->next;
    slot->run = run;
    slot->cancelled = false;
    run->data = slot;
    body = exec_body_open(run->message->body);
    why = body < 0 ? errno : exec_slot_spawn(slot, body);
    if (body >= 0)
        close(body);
    if (why == 0)
        return;
    snprintf(slot->reason, sizeof(slot->reason), "it could not be started: %s",
             why == SPAWN_LATE ? "the lease was over before" : strerror(why));
    idem_task_post(exec->loop, &slot->report_task);
}

static void exec_cancel(void *data, struct queue_run *run) {
    struct exec_slot *slot = run->data;

    (void)data;
    if (slot->cancelled || !handler_process_runs(&slot->process))
        return;
    slot->cancelled = true;
    handler_process_end(&slot->process);
}

static void exec_close(void *data) {
    struct exec *exec = data;

    for (unsigned i = 0; i < exec->workers; i++) {
        handler_process_release(&exec->slots[i].process);
        idem_task_drop(exec->loop, &exec->slots[i].report_task);
    }
    idem_epoll_set_close(&exec->epoll_set);
    free(exec->command);
    free(exec);
}

static void exec_slots_init(struct exec *exec) {
    for (unsigned i = exec->workers; i-- > 0;) {
        exec->slots[i] = (struct exec_slot){
            .exec = exec,
            .process = {.epoll_set = &exec->epoll_set,
                        .kill_after_ms = exec->program.kill_after_ms,
                        .ended = exec_slot_ended},
            .report_task.run = exec_slot_unbegun,
            .next = exec->free,
        };
        exec->free = &exec->slots[i];
    }
}

static int exec_init(struct exec *exec, const struct handler_exec_config *config,
                     struct idem_error *err) {
    int rc = 0;

    exec->program = config->program;
    exec->workers = config->workers;
    exec->command = strdup(config->program.command);
    if (exec->command == NULL)
        return idem_error_set(err, IDEM_E_NOMEM, "no memory for a handler");
    if (config->on_exit != NULL)
        exec->on_exit = *config->on_exit;
    else
        rc = handler_on_exit_parse(NULL, &exec->on_exit, err);
    if (rc == 0)
        rc = idem_epoll_set_open(&exec->epoll_set, exec->loop, err);
    exec_slots_init(exec);
    return rc;
}

int handler_exec_open(const struct handler_exec_config *config, struct idem_loop *loop,
                      struct handler *ret, struct idem_error *err) {
    struct exec *exec;
    int rc = handler_open_check_program("--exec", &config->program, config->workers, err);

    if (rc < 0)
        return rc;
    exec = calloc(1, sizeof(*exec) + config->workers * sizeof(exec->slots[0]));
    if (exec == NULL)
        return idem_error_set(err, IDEM_E_NOMEM, "no memory for a handler");
    exec->loop = loop;
    rc = exec_init(exec, config, err);
    if (rc < 0) {
        exec_close(exec);
        return rc;
    }
    *ret = (struct handler){
        .queue = {.data = exec,
                  .workers = config->workers,
                  .begin = exec_begin,
                  .cancel = exec_cancel},
        .close = exec_close,
    };
    return 0;
}
