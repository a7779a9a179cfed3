/*
 * MariaDB as a test's server.
 */
#include <signal.h>
#include <stdio.h>

#include "client.h"
#include "engine.h"
#include "process.h"

static const char *program(void) {
    return "/usr/sbin/mariadbd";
}

static void init(const char *folder, struct args *args) {
    args_add(args, "mariadb-install-db");
    args_add(args, "--no-defaults");
    args_add(args, "--datadir=%s/data", folder);
    args_add(args, "--auth-root-authentication-method=normal");
    args_add(args, "--skip-name-resolve");
    args_add(args, "--skip-test-db");
    args_add(args, "--innodb-log-file-size=4M"); /* the copy is smaller */
    args_add(args, "--innodb-flush-log-at-trx-commit=0");
}

static void prepare(const struct server *server) {
    char path[400];

    if (server->options.tls == NULL)
        return;
    snprintf(path, sizeof(path), "%s/server.key", server->options.tls);
    process_give(path, engine_mariadb.user);
}

static void command(const struct server *server, struct args *args) {
    const char *tls = server->options.tls;

    args_add(args, "%s", program());
    args_add(args, "--no-defaults");
    args_add(args, "--datadir=%s/data", server->folder);
    args_add(args, "--tmpdir=%s", server->folder);
    args_add(args, "--socket=%s", server->socket);
    args_add(args, "--pid-file=%s/pid", server->folder);
    if (server->port == 0)
        args_add(args, "--skip-networking");
    args_add(args, "--bind-address=127.0.0.1");
    args_add(args, "--port=%d", server->port);
    args_add(args, "--skip-name-resolve"); /* the users of the socket are not those of 127.0.0.1 */
    args_add(args, "--max-connections=300");
    args_add(args, "--connect-timeout=120"); /* a client may be paused during its greeting */
    args_add(args, "--performance-schema=OFF");
    args_add(args, "--innodb-buffer-pool-size=16M");
    args_add(args, "--innodb-log-file-size=4M");
    args_add(args, "--innodb-use-native-aio=OFF");
    /* A zone that is neither UTC nor whole hours, so that code that forgets the zone fails. */
    args_add(args, "--default-time-zone=+05:30");
    if (!server->options.durable) {
        /* The log is written at each commit, so that it survives SIGKILL, but it is not synced. */
        args_add(args, "--innodb-flush-log-at-trx-commit=2");
        args_add(args, "--innodb-doublewrite=OFF");
        args_add(args, "--innodb-flush-method=nosync");
    }
    if (tls != NULL) {
        args_add(args, "--ssl-cert=%s/server.crt", tls);
        args_add(args, "--ssl-key=%s/server.key", tls);
        args_add(args, "--ssl-ca=%s/ca.crt", tls);
        args_add(args, "--require-secure-transport=ON");
    }
}

#define FIRST_DB "mysql"

/* On the socket without a password, over TCP with one. */
#define USER(name, password, rights)                                                               \
    "CREATE USER " name "@localhost; CREATE USER " name                                            \
    "@127.0.0.1 IDENTIFIED VIA mysql_native_password USING PASSWORD('" password "');"              \
    "GRANT " rights " ON " SERVER_DB ".* TO " name "@localhost;"                                   \
    "GRANT " rights " ON " SERVER_DB ".* TO " name "@127.0.0.1;"

static const struct engine_sql recipe[] = {
    {FIRST_DB, "DELETE FROM mysql.global_priv WHERE User = ''; FLUSH PRIVILEGES;"
               "CREATE DATABASE " SERVER_DB ";"},
    {SERVER_DB, USER(CLIENT_OWNER, CLIENT_OWNER_PASSWORD, "ALL")
                    USER(CLIENT_APP, CLIENT_APP_PASSWORD, "SELECT, INSERT, UPDATE, DELETE")
                        USER(CLIENT_ODD, CLIENT_ODD_PASSWORD, "SELECT, INSERT, UPDATE, DELETE")},
};

const struct engine engine_mariadb = {
    .name = "mariadb",
    .user = "mysql",
    .first_db = FIRST_DB,
    .stop = SIGKILL, /* an orderly exit takes a second, and this leaves nothing behind either */
    .shut = SIGTERM,
    .program = program,
    .init = init,
    .prepare = prepare,
    .command = command,
    .recipe = recipe,
    .recipe_n = sizeof(recipe) / sizeof(recipe[0]),
};
