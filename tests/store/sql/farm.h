/*
 * SQL servers for tests in every arrangement that a URL can name. A test starts
 * the farm once, in a directory, and may kill, pause and restart `farm.server`.
 */
#ifndef IDEM_TEST_STORE_SQL_FARM_H
#define IDEM_TEST_STORE_SQL_FARM_H

#include "pooler.h"
#include "server.h"

enum farm_kind {
    FARM_PG_SOCKET, /* PostgreSQL on a socket */
    FARM_PG_TCP,    /* on a port, with a password that the URL escapes */
    FARM_PG_TLS,    /* on a port, over TLS with certificates on both sides */
    FARM_PG_POOLED, /* behind a pgbouncer that pools by transaction */
    FARM_MY_SOCKET, /* MariaDB likewise */
    FARM_MY_TCP,
    FARM_MY_TLS,
};

enum farm_user {
    FARM_APP,   /* SELECT, INSERT, UPDATE, DELETE on the owner's tables */
    FARM_OWNER, /* may make tables */
    FARM_ODD,   /* as FARM_APP, with odd bytes in the password */
};

struct farm {
    enum farm_kind kind;
    char folder[256];
    struct server server;
    struct pooler pooler;
    char answer[4000];
};

void farm_start(struct farm *farm, enum farm_kind kind, const char *folder, int clock_fd);
/* Starts a durable server, with settings ("name=value", NULL at the end; they must stay valid;
 * or NULL). */
void farm_start_with(struct farm *farm, enum farm_kind kind, const char *folder, int clock_fd,
                     const char *const *settings, bool durable);
void farm_stop(struct farm *farm);
void farm_kill(struct farm *farm); /* SIGKILL for the server; a pooler stays */
void farm_restart(struct farm *farm);

/* The farm's URL with further options ("&a=b") or "", as FARM_APP; for the kinds _TCP as
 * FARM_ODD. */
void farm_url(const struct farm *farm, const char *options, char *url, size_t size);
void farm_url_as(const struct farm *farm, enum farm_user user, const char *options, char *url,
                 size_t size);

/* Options for callers that open that URL through idem_sql_open() or another program: a server
 * has five seconds to respond by default. conn_open() adds them anyway. */
#define FARM_PATIENT "&connect_timeout=100s&timeout=100s"

/* Runs SQL as the owner, on the socket; a failure ends the test. Statements are separated by
 * semicolons. */
void farm_sql(struct farm *farm, const char *sql);
/* The same; returns the first column of the first row of the last result, valid until the next
 * call. */
const char *farm_ask(struct farm *farm, const char *sql);
/* Runs SQL over the connection that the URL names. Returns NULL, or the error; the result is in
 * farm->answer. */
const char *farm_try(struct farm *farm, enum farm_user user, const char *sql);

/* Empties those of Idem's tables that exist. */
void farm_flush(struct farm *farm);
size_t farm_keys(struct farm *farm); /* the number of rows of idem_record and idem_counter */

#endif
