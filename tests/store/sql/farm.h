/*
 * SQL servers for tests in every arrangement that a URL can name. Started once,
 * in a folder; `farm.server` can be killed, paused and started again.
 */
#ifndef IDEM_TEST_STORE_SQL_FARM_H
#define IDEM_TEST_STORE_SQL_FARM_H

#include "pooler.h"
#include "server.h"

enum farm_kind {
    FARM_PG_SOCKET, /* PostgreSQL on a socket */
    FARM_PG_TCP,    /* on a port, with a password that the URL escapes */
    FARM_PG_TLS,    /* on a port, by TLS with certificates on both sides */
    FARM_PG_POOLED, /* behind a pgbouncer that pools by transaction */
    FARM_MY_SOCKET, /* MariaDB likewise */
    FARM_MY_TCP,
    FARM_MY_TLS,
};

enum farm_user {
    FARM_APP,   /* SELECT, INSERT, UPDATE, DELETE on what the owner made */
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
/* With settings of the server ("name=value", NULL at the end; they stay; or NULL), and durable. */
void farm_start_with(struct farm *farm, enum farm_kind kind, const char *folder, int clock_fd,
                     const char *const *settings, bool durable);
void farm_stop(struct farm *farm);
void farm_kill(struct farm *farm); /* the server, by SIGKILL; a pooler stays */
void farm_restart(struct farm *farm);

/* Its URL with further options ("&a=b") or "", as FARM_APP; as FARM_ODD for the kinds _TCP. */
void farm_url(const struct farm *farm, const char *options, char *url, size_t size);
void farm_url_as(const struct farm *farm, enum farm_user user, const char *options, char *url,
                 size_t size);

/* Options for who opens that URL by idem_sql_open() or another program: by default a server has
   five seconds to answer in. conn_open() has them anyway. */
#define FARM_PATIENT "&connect_timeout=100s&timeout=100s"

/* SQL as the owner, by the socket; one that fails ends the test. Statements are separated by
   semicolons. */
void farm_sql(struct farm *farm, const char *sql);
/* The same; the first column of the first row that came last, until the next call. */
const char *farm_ask(struct farm *farm, const char *sql);
/* The way that the URL takes. NULL, or what was wrong; the answer is in farm->answer. */
const char *farm_try(struct farm *farm, enum farm_user user, const char *sql);

/* Empties Idem's tables, those that are there. */
void farm_flush(struct farm *farm);
size_t farm_keys(struct farm *farm); /* rows of idem_record and idem_counter */

#endif
