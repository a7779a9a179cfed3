/*
 * PostgreSQL as a test's server.
 */
#include <glob.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/shm.h>

#include "client.h"
#include "engine.h"
#include "process.h"

/* Debian keeps the programs out of PATH, in one directory per version; this takes the newest. */
static const char *bin(const char *program) {
    static char path[2][300];
    static int turn;
    char *out = path[turn++ % 2];
    char pattern[100];
    glob_t found;

    snprintf(pattern, sizeof(pattern), "/usr/lib/postgresql/*/bin/%s", program);
    snprintf(out, sizeof(path[0]), "%s", program);
    if (glob(pattern, 0, NULL, &found) != 0)
        return out;
    for (size_t i = 0; i < found.gl_pathc; i++)
        if (i == 0 || strverscmp(found.gl_pathv[i], out) > 0)
            snprintf(out, sizeof(path[0]), "%s", found.gl_pathv[i]);
    globfree(&found);
    return out;
}

static const char *program(void) {
    return bin("postgres");
}

static void init(const char *folder, struct args *args) {
    args_add(args, "%s", bin("initdb"));
    args_add(args, "--pgdata=%s/data", folder);
    args_add(args, "--username=" CLIENT_POSTGRES_ROOT);
    args_add(args, "--encoding=UTF8");
    args_add(args, "--locale=C");
    args_add(args, "--wal-segsize=1"); /* what is copied is smaller */
    args_add(args, "--no-sync");
    args_add(args, "--no-instructions");
}

/* On the socket the server trusts the user name; over TCP a user needs a password and, with TLS,
 * a certificate. */
static void prepare(const struct server *server) {
    const char *tls = server->options.tls;
    char path[400];
    FILE *file;

    snprintf(path, sizeof(path), "%s/pg_hba.conf", server->folder);
    file = fopen(path, "w");
    if (file == NULL)
        process_fail(server->folder, "pg_hba.conf");
    fprintf(file, "local all all trust\n%s all all 127.0.0.1/32 scram-sha-256%s\n",
            tls != NULL ? "hostssl" : "host", tls != NULL ? " clientcert=verify-ca" : "");
    fclose(file);
    process_give(path, engine_postgres.user);
    if (tls == NULL)
        return;
    snprintf(path, sizeof(path), "%s/server.key", tls);
    process_give(path, engine_postgres.user);
}

static void command(const struct server *server, struct args *args) {
    const char *tls = server->options.tls;

    args_add(args, "%s", program());
    args_add(args, "-D%s/data", server->folder);
    args_add(args, "--hba_file=%s/pg_hba.conf", server->folder);
    args_add(args, "--unix_socket_directories=%s", server->folder);
    args_add(args, "--listen_addresses=%s", server->port != 0 ? "127.0.0.1" : "");
    args_add(args, "--port=%d", server->port != 0 ? server->port : SERVER_POSTGRES_PORT);
    args_add(args, "--max_connections=300");
    args_add(args, "--shared_buffers=16MB");
    args_add(args, "--max_wal_size=64MB");
    args_add(args, "--wal_level=minimal");
    args_add(args, "--max_wal_senders=0");
    args_add(args, "--jit=off");
    /* In its own directory, so that a killed server leaves nothing elsewhere. */
    args_add(args, "--dynamic_shared_memory_type=mmap");
    /* A zone that is neither UTC nor whole hours, so that code that forgets the zone fails. */
    args_add(args, "--timezone=<+0530>-05:30");
    if (!server->options.durable) {
        args_add(args, "--fsync=off");
        args_add(args, "--full_page_writes=off");
    }
    if (tls != NULL) {
        args_add(args, "--ssl=on");
        args_add(args, "--ssl_cert_file=%s/server.crt", tls);
        args_add(args, "--ssl_key_file=%s/server.key", tls);
        args_add(args, "--ssl_ca_file=%s/ca.crt", tls);
    }
}

/* Removes the shared memory by which a second server on the same data would detect the first:
 * its id is the last word of the seventh line of the file. */
static void forget(const struct server *server) {
    char path[400], line[300], *word;
    FILE *file;

    snprintf(path, sizeof(path), "%s/data/postmaster.pid", server->folder);
    file = fopen(path, "r");
    if (file == NULL)
        return;
    for (int i = 1; fgets(line, sizeof(line), file) != NULL; i++) {
        word = strrchr(line, ' ');
        if (i == 7 && word != NULL)
            (void)shmctl((int)strtol(word, NULL, 10), IPC_RMID, NULL);
    }
    fclose(file);
}

#define ROLE(name, password) "CREATE ROLE " name " LOGIN PASSWORD '" password "';"
#define FIRST_DB "template1" /* a database that exists at first */

/* One database is enough; each further one would add three hundred files to copy. */
static const struct engine_sql recipe[] = {
    {FIRST_DB,
     "SET password_encryption = 'scram-sha-256';" ROLE(CLIENT_OWNER, CLIENT_OWNER_PASSWORD)
         ROLE(CLIENT_APP, CLIENT_APP_PASSWORD) ROLE(CLIENT_ODD, CLIENT_ODD_PASSWORD)},
    {FIRST_DB, "ALTER DATABASE postgres RENAME TO " SERVER_DB},
    {SERVER_DB, "ALTER DATABASE " SERVER_DB " OWNER TO " CLIENT_OWNER ";"
                "ALTER DEFAULT PRIVILEGES FOR ROLE " CLIENT_OWNER
                " GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO " CLIENT_APP ", " CLIENT_ODD ";"
                "UPDATE pg_database SET datistemplate = false"},
    {SERVER_DB, "DROP DATABASE template0"},
    {SERVER_DB, "DROP DATABASE template1"},
};

const struct engine engine_postgres = {
    .name = "postgres",
    .user = "postgres",
    .first_db = FIRST_DB,
    .stop = SIGQUIT,
    .shut = SIGINT,
    .program = program,
    .init = init,
    .prepare = prepare,
    .command = command,
    .forget = forget,
    .recipe = recipe,
    .recipe_n = sizeof(recipe) / sizeof(recipe[0]),
};
