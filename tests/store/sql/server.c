/* The life of a server, for either engine. */
#include "server.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/wait.h>

#include "client.h"
#include "engine.h"
#include "port.h"
#include "process.h"
#include "wait.h"

const struct engine *engine_of(enum server_engine engine) {
    return engine == SERVER_POSTGRES ? &engine_postgres : &engine_mariadb;
}

void args_add(struct args *args, const char *format, ...) {
    va_list list;

    if (args->n + 1 >= ARGS_MAX)
        process_fail(format, "too many arguments");
    va_start(list, format);
    vsnprintf(args->texts[args->n], ARG_MAX_LEN, format, list);
    va_end(list);
    args->argv[args->n] = args->texts[args->n];
    args->argv[++args->n] = NULL;
}

static bool server_answers(const struct server *server, const char *db) {
    struct client client = client_root(server);

    if (waitpid(server->pid, NULL, WNOHANG) == server->pid)
        process_fail(server->folder, "the server did not start");
    client.db = db;
    return client_try(&client, "SELECT 1", NULL, 0) == NULL;
}

void engine_launch(struct server *server, const char *db) {
    const struct engine *engine = engine_of(server->engine);
    const struct process_how how = {.user = engine->user,
                                    .folder = server->folder,
                                    .death = engine->stop,
                                    .clock_fd = server->options.clock_fd};
    struct args args = {.n = 0};

    engine->prepare(server);
    engine->command(server, &args);
    for (const char *const *at = server->options.settings; at != NULL && *at != NULL; at++)
        args_add(&args, "--%s", *at);
    server->pid = process_start(&how, args.argv);
    WAIT_UNTIL(server_answers(server, db));
}

void server_start(struct server *server, enum server_engine engine, const char *folder,
                  const struct server_options *options) {
    *server = (struct server){.engine = engine, .options = *options};
    snprintf(server->folder, sizeof(server->folder), "%.255s", folder);
    if (engine == SERVER_POSTGRES)
        snprintf(server->socket, sizeof(server->socket), "%s", server->folder);
    else
        snprintf(server->socket, sizeof(server->socket), "%s/s", server->folder);
    if (options->port)
        server->port = port_free();
    process_folder(folder, engine_of(engine)->user);
    template_copy(engine, folder);
    engine_launch(server, SERVER_DB);
}

void server_restart(struct server *server) {
    if (server->pid == 0)
        engine_launch(server, SERVER_DB);
}

void server_stop(struct server *server) {
    if (server->pid <= 0)
        return;
    process_go_on(&server->pause);
    process_end(server->pid, engine_of(server->engine)->stop);
    server->pid = 0;
}

void server_kill(struct server *server) {
    if (server->pid <= 0)
        return;
    process_kill_all(server->pid);
    process_go_on(&server->pause);
    server->pid = 0;
    if (engine_of(server->engine)->forget != NULL)
        engine_of(server->engine)->forget(server);
}

void server_pause(struct server *server) {
    process_pause_all(server->pid, &server->pause);
}

void server_go_on(struct server *server) {
    process_go_on(&server->pause);
}
