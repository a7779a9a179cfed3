/*
 * Starting pgbouncer.
 */
#include "pooler.h"

#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>

#include "client.h"
#include "engine.h"
#include "port.h"
#include "process.h"
#include "wait.h"

static FILE *pooler_file(const struct pooler *pooler, const char *name, char *path, size_t size) {
    FILE *file;

    snprintf(path, size, "%s/%s", pooler->folder, name);
    file = fopen(path, "w");
    if (file == NULL)
        process_fail(pooler->folder, name);
    return file;
}

static void pooler_settings(const struct pooler *pooler, const struct server *server, char *path,
                            size_t size) {
    char users[300];
    FILE *file = pooler_file(pooler, "users", users, sizeof(users));

    fputs("\"" CLIENT_OWNER "\" \"" CLIENT_OWNER_PASSWORD "\"\n"
          "\"" CLIENT_APP "\" \"" CLIENT_APP_PASSWORD "\"\n"
          "\"" CLIENT_ODD "\" \"" CLIENT_ODD_PASSWORD "\"\n",
          file);
    fclose(file);
    process_give(users, engine_postgres.user);
    file = pooler_file(pooler, "pgbouncer.ini", path, size);
    fprintf(file,
            "[databases]\n" SERVER_DB " = host=%s port=%d\n"
            "[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = %d\nunix_socket_dir =\n"
            "auth_type = scram-sha-256\nauth_file = %s\npool_mode = transaction\n"
            "default_pool_size = %d\nmax_client_conn = 500\n"
            /* The pooler soon finds a server that comes back. */
            "server_login_retry = 0.2\n",
            server->socket, server->port != 0 ? server->port : SERVER_POSTGRES_PORT, pooler->port,
            users, POOLER_SIZE);
    fclose(file);
    process_give(path, engine_postgres.user);
}

static bool pooler_answers(const struct pooler *pooler, const struct client *client) {
    if (waitpid(pooler->pid, NULL, WNOHANG) == pooler->pid)
        process_fail(pooler->folder, "pgbouncer did not start");
    return client_try(client, "SELECT 1", NULL, 0) == NULL;
}

void pooler_start(struct pooler *pooler, const struct server *server, const char *folder) {
    const struct process_how how = {
        .user = engine_postgres.user, .folder = folder, .death = SIGKILL, .clock_fd = -1};
    struct client client = {.engine = SERVER_POSTGRES,
                            .user = CLIENT_OWNER,
                            .password = CLIENT_OWNER_PASSWORD,
                            .db = SERVER_DB};
    char path[300];
    const char *argv[] = {"pgbouncer", path, NULL};

    *pooler = (struct pooler){.port = port_free()};
    snprintf(pooler->folder, sizeof(pooler->folder), "%.255s", folder);
    process_folder(folder, engine_postgres.user);
    pooler_settings(pooler, server, path, sizeof(path));
    client.port = pooler->port;
    pooler->pid = process_start(&how, argv);
    WAIT_UNTIL(pooler_answers(pooler, &client));
}

void pooler_stop(struct pooler *pooler) {
    if (pooler->pid > 0)
        process_end(pooler->pid, SIGKILL);
    pooler->pid = 0;
}
