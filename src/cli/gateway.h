/*
 * What the parts of `idem gateway` share: where it listens, what stands behind
 * it, and the nginx that does the work.
 */
#ifndef IDEM_CLI_GATEWAY_H
#define IDEM_CLI_GATEWAY_H

#include <limits.h>
#include <sys/types.h>

#include "cli/cli.h"
#include "cli/signals.h"

#define GATEWAY_PREFIX "http:"

/* The descriptor that nginx finds its access log under. */
#define GATEWAY_LOG_FD 3

struct gateway_listen {
    char text[PATH_MAX + 8]; /* as nginx has it: HOST:PORT, [V6]:PORT, unix:PATH */
    char host[256], port[8]; /* without brackets; empty under unix: */
};

struct gateway_upstream {
    bool tls;
    char host[260], port[8]; /* the host with its brackets */
    char path[1024];         /* "", or from slash to slash */
};

struct gateway {
    const struct cli_values *values;
    struct gateway_listen listen;
    struct gateway_upstream upstreams[CLI_LIST_MAX];
    char *store; /* owned */
    char nginx[PATH_MAX], module[PATH_MAX], include[PATH_MAX];
    bool module_found;
    char folder[PATH_MAX];    /* private to this process; empty: not made yet */
    char user[64], group[64]; /* nginx's workers, where root starts them; else empty */
    uid_t uid;
    gid_t gid;
    unsigned connections; /* of each worker */
    int log[2];           /* the access log's pipe */
    bool tty;
    struct cli_signals signals;
};

/* Gateway_address.c: what flags say of addresses. CLI_OK, or a status after saying why. */

int gateway_listen_parse(const char *text, struct gateway_listen *ret);
int gateway_upstreams_parse(const struct cli_list *list, struct gateway_upstream *ret);

/* Whether nobody else listens there already. A socket's file that nobody serves is removed. */
int gateway_listen_check(const struct gateway_listen *at);

/* Gateway_place.c: what is there, and what must be made. */

/* Finds nginx, the module and the file of --config. */
int gateway_find(struct gateway *g);

/* The user whom nginx's workers become if this is root. */
int gateway_user(struct gateway *g);

/* As cli_store_url(); where root says none, the workers' is in a folder below root's own. */
char *gateway_store_url(const struct gateway *g, int *ret_status);

/* Makes the store as the workers will open it, so that what is wrong with it is told at once. One
   on a server that does not answer is left to them: they try again until it does. */
int gateway_store_check(struct gateway *g);

int gateway_folder_make(struct gateway *g);
void gateway_folder_remove(struct gateway *g);

/* Gateway_config.c. */

/* Which flag a line of the configuration comes from. */
#define GATEWAY_LINES 128
struct gateway_lines {
    char flag[GATEWAY_LINES + 1][24]; /* by line, from 1; empty: none */
};

/* Whether every text may stand in a configuration. CLI_OK, or CLI_USAGE after saying why. */
int gateway_texts_check(const struct cli_values *values);

/* The whole configuration, listening there, and the part of it that a person would copy. */
void gateway_config_write(const struct gateway *g, const char *listen, FILE *out,
                          struct gateway_lines *lines);
void gateway_config_print(const struct gateway *g, FILE *out);

/* Gateway_nginx.c: writes the configuration, has it checked, and runs nginx until it ends. Returns
   the exit status. */
int gateway_serve(struct gateway *g);

#endif
