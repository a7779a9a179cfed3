/* The differences between the engines, behind server.h. */
#ifndef IDEM_TEST_STORE_SQL_ENGINE_H
#define IDEM_TEST_STORE_SQL_ENGINE_H

#include "server.h"

#define ARGS_MAX 64
#define ARG_MAX_LEN 600

struct args {
    const char *argv[ARGS_MAX];
    size_t n;
    char texts[ARGS_MAX][ARG_MAX_LEN];
};
__attribute__((format(printf, 2, 3))) void args_add(struct args *args, const char *format, ...);

/* Statements that make the template's database and users. */
struct engine_sql {
    const char *db, *sql;
};

struct engine {
    const char *name;
    const char *user;     /* the user that the server runs as */
    const char *first_db; /* a database that exists before SERVER_DB */
    int stop;             /* the signal for a fast but orderly exit */
    int shut;             /* the signal after which nothing has to be recovered */
    const char *(*program)(void);
    void (*init)(const char *folder, struct args *args); /* the command that makes DIRECTORY/data */
    void (*prepare)(
        const struct server *server); /* writes the files that the server needs to start */
    void (*command)(const struct server *server, struct args *args);
    /* After SIGKILL: removes what the server left outside of its directory; NULL: nothing. */
    void (*forget)(const struct server *server);
    const struct engine_sql *recipe;
    size_t recipe_n;
};

extern const struct engine engine_postgres, engine_mariadb;
const struct engine *engine_of(enum server_engine engine);

/* Starts the server on its data, and waits until it responds in that database. */
void engine_launch(struct server *server, const char *db);

/* Copies the template to DIRECTORY/data. */
void template_copy(enum server_engine engine, const char *folder);

#endif
