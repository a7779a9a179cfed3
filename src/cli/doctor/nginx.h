/*
 * A configuration of nginx as blocks with what each says, and what nginx -T writes of it.
 */
#ifndef IDEM_CLI_DOCTOR_NGINX_H
#define IDEM_CLI_DOCTOR_NGINX_H

#include "cli/doctor/doctor.h"
#include "core/arena.h"
#include "core/policy.h"

#define NGINX_DEPTH_MAX 32

/* What is remembered of a block, by name. */
enum nginx_word {
    AUTH_BASIC,
    AUTH_REQUEST,
    AUTH_JWT,
    VERIFY_CLIENT,
    DENY,
    ENFORCE,
    LABEL,
    PROBE,
    SCOPE,
    STORE,
    HTTP_VERSION,
    SERVER_NAME,
    PROXY_PASS, /* from here on its own only */
    INTERNAL,
    TOKEN,
    JS,
    STATUS,
    ADMIN,
    NGINX_WORDS
};

struct nginx_scope {
    const struct nginx_scope *outer;
    struct nginx_scope *next;        /* in the order of the files */
    const char *values[NGINX_WORDS]; /* its first word; NULL: not said here */
    const char *location;            /* NULL: it is none */
    struct idem_layer layer;         /* the policy's words */
    bool guards, off;                /* idem or idem_preset was said here; `off` */
    bool admin_all;                  /* idem_admin allow=all */
};

struct nginx_tree {
    struct nginx_scope *first, **last;
    struct idem_arena arena; /* all scopes, and the text that they point into */
};

/* What nginx -T writes, to be freed; NULL with *ret_status: CLI_OK where it has refused, which is a
   finding, or a status after saying why it was not asked. */
char *nginx_dump(struct doctor *d, const char *path, size_t *ret_len, int *ret_status);

/* The blocks of such a text, which is changed; `path` is the configuration's own. 0 or
   IDEM_E_NOMEM. Released either way. */
int nginx_tree_read(struct nginx_tree *tree, const char *path, char *text, size_t len);
void nginx_tree_release(struct nginx_tree *tree);

/* What is in force in a block: the nearest that says. NULL: nobody does. */
const char *nginx_value(const struct nginx_scope *scope, enum nginx_word word);
bool nginx_guarded(const struct nginx_scope *scope);

#endif
