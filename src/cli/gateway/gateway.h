/*
 * Shared by the parts of `idem gateway`: the address where it listens, the backends, and the nginx
 * that does the work.
 */
#ifndef IDEM_CLI_GATEWAY_GATEWAY_H
#define IDEM_CLI_GATEWAY_GATEWAY_H

#include <limits.h>
#include <sys/types.h>

#include "cli/cli.h"
#include "loop/signals.h"

#define GATEWAY_PREFIX "http:"

/* The number of the descriptor on which nginx writes its access log. */
#define GATEWAY_LOG_FD 3

struct gateway_listen {
    char text[PATH_MAX + 8]; /* in nginx's form: HOST:PORT, [V6]:PORT, unix:PATH */
    char host[256], port[8]; /* without brackets; empty under unix: */
};

struct gateway_upstream {
    bool tls;
    char host[260], port[8]; /* the host with its brackets */
    char path[1024];         /* empty, or with a slash at both ends */
};

struct gateway {
    const struct cli_values *values;
    struct gateway_listen listen;
    struct gateway_upstream upstreams[CLI_LIST_MAX];
    char *store; /* owned */
    char nginx[PATH_MAX], module[PATH_MAX], include[PATH_MAX];
    bool module_found;
    char folder[PATH_MAX];    /* private to this process; empty: not created yet */
    char user[64], group[64]; /* of nginx's workers, if root starts them; else empty */
    uid_t uid;
    gid_t gid;
    unsigned connections; /* the limit of each worker */
    int log[2];           /* the access log's pipe */
    bool tty;
    struct signals signals;
};

/* gateway_address.c: addresses in flags. CLI_OK, or an exit status after a message. */

int gateway_listen_parse(const char *text, struct gateway_listen *ret);
int gateway_upstreams_parse(const struct cli_list *list, struct gateway_upstream *ret);

/* Refuses an address on which another process listens. Removes the file of a socket that no process
   serves. */
int gateway_listen_check(const struct gateway_listen *at);

/* gateway_setup.c: finds the programs, and creates the store and the directory. */

/* Finds nginx, the module and the file of --config. */
int gateway_find(struct gateway *g);

/* Finds the user of nginx's workers; sets nothing unless root runs this. */
int gateway_user(struct gateway *g);

/* As cli_store_url(); if root names no store, the workers' store is a directory below root's
   own. */
char *gateway_store_url(const struct gateway *g, int *ret_status);

/* Opens the store in the same way as the workers will, so that errors are reported at once. A
   server that does not respond is no error: the workers retry until it does. */
int gateway_store_check(struct gateway *g);

int gateway_folder_make(struct gateway *g);
void gateway_folder_remove(struct gateway *g);

/* gateway_config.c. */

/* The flag that each line of the configuration comes from. */
#define GATEWAY_LINES 128
struct gateway_lines {
    char flag[GATEWAY_LINES + 1][24]; /* by line number, from 1; empty: none */
};

/* Checks that all values can be written into a configuration. CLI_OK, or CLI_USAGE after a
   message. */
int gateway_texts_check(const struct cli_values *values);

/* gateway_config_write() writes the whole configuration, which listens on `listen`;
   gateway_config_print() the part of it that a person would copy. */
void gateway_config_write(const struct gateway *g, const char *listen, FILE *out,
                          struct gateway_lines *lines);
void gateway_config_print(const struct gateway *g, FILE *out);

/* gateway_nginx.c: writes the configuration, has nginx check it, and runs nginx until it ends.
   Returns the exit status. */
int gateway_serve(struct gateway *g);

#endif
